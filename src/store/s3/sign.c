/*
 * sign.c - see sign.h.
 */
#include "store/s3/sign.h"
#include "base/sha256.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALGORITHM "AWS4-HMAC-SHA256"

void sonde__s3_encode(sonde_text *out, const char *text, bool slashes)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789-._~";

    for (; *text != '\0'; text++) {
        if (strchr(plain, *text) != NULL || (slashes && *text == '/')) {
            sonde_text_put(out, text, 1);
        } else {
            sonde_text_format(out, "%%%02X", (unsigned)(unsigned char)*text);
        }
    }
}

static int by_name(const void *left, const void *right)
{
    const sonde__s3_pair *a = left, *b = right;
    const int order = strcmp(a->name, b->name);

    return order != 0 ? order : strcmp(a->value, b->value);
}

void sonde__s3_query(sonde_text *out, sonde__s3_signing *request)
{
    qsort(request->query, request->query_count, sizeof *request->query, by_name);
    for (size_t i = 0; i < request->query_count; i++) {
        sonde_text_add(out, i > 0 ? "&" : "");
        sonde__s3_encode(out, request->query[i].name, false);
        sonde_text_add(out, "=");
        sonde__s3_encode(out, request->query[i].value, false);
    }
}

/* "host;x-amz-date" */
static void add_signed_headers(sonde_text *out, const sonde__s3_signing *request)
{
    for (size_t i = 0; i < request->header_count; i++) {
        sonde_text_format(out, "%s%s", i > 0 ? ";" : "", request->headers[i].name);
    }
}

static void add_canonical(sonde_text *out, sonde__s3_signing *request)
{
    sonde_text_format(out, "%s\n%s\n", request->method, request->path);
    sonde__s3_query(out, request);
    sonde_text_add(out, "\n");
    for (size_t i = 0; i < request->header_count; i++) {
        sonde_text_format(out, "%s:%s\n", request->headers[i].name,
                          request->headers[i].value);
    }
    sonde_text_add(out, "\n");
    add_signed_headers(out, request);
    sonde_text_format(out, "\n%s", request->payload);
}

static void hash_text(const sonde_text *text, char hex[SONDE__SHA256_HEX])
{
    sonde__sha256 sha;

    sonde__sha256_init(&sha);
    sonde__sha256_add(&sha, text->data, text->length);
    sonde__sha256_hex(&sha, hex);
}

/* The key of a day, a region and a service. */
static void derive(const sonde__s3_signing *request, unsigned char key[SONDE__SHA256])
{
    sonde_text secret = {0};

    sonde_text_format(&secret, "AWS4%s", request->secret);
    if (secret.failed) {
        memset(key, 0, SONDE__SHA256);
    } else {
        sonde__hmac_sha256(secret.data, secret.length, request->date, 8, key);
        memset(secret.data, 0, secret.length);
    }
    sonde_text_fini(&secret);
    sonde__hmac_sha256(key, SONDE__SHA256, request->region, strlen(request->region), key);
    sonde__hmac_sha256(key, SONDE__SHA256, request->service, strlen(request->service),
                       key);
    sonde__hmac_sha256(key, SONDE__SHA256, "aws4_request", 12, key);
}

void sonde__s3_sign(sonde_text *out, sonde__s3_signing *request)
{
    sonde_text text = {0}, scope = {0};
    unsigned char key[SONDE__SHA256];
    char hex[SONDE__SHA256_HEX];

    qsort(request->headers, request->header_count, sizeof *request->headers, by_name);
    add_canonical(&text, request);
    sonde_text_format(&scope, "%.8s/%s/%s/aws4_request", request->date, request->region,
                      request->service);
    if (text.failed || scope.failed) {
        out->failed = true;
    } else {
        hash_text(&text, hex);
        text.length = 0;
        sonde_text_format(&text, ALGORITHM "\n%s\n%s\n%s", request->date, scope.data,
                          hex);
        derive(request, key);
        sonde__hmac_sha256(key, sizeof key, text.data, text.length, key);
        sonde__sha256_print(key, hex);
        sonde_text_format(
            out, ALGORITHM " Credential=%s/%s, SignedHeaders=", request->key, scope.data);
        add_signed_headers(out, request);
        sonde_text_format(out, ", Signature=%s", hex);
    }
    out->failed = out->failed || text.failed;
    sonde_text_fini(&text);
    sonde_text_fini(&scope);
}
