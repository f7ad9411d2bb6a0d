/*
 * sign.c - see sign.h.
 */
#include "store/s3/sign.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
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

enum { DIGEST = 32 }; /* bytes of SHA-256 */

static void print_hex(const unsigned char digest[DIGEST], char hex[SONDE__S3_HASH])
{
    for (size_t i = 0; i < DIGEST; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
}

void sonde__s3_hash(const void *bytes, size_t size, char hex[SONDE__S3_HASH])
{
    unsigned char digest[DIGEST] = {0};

    (void)EVP_Digest(bytes, size, digest, NULL, EVP_sha256(), NULL);
    print_hex(digest, hex);
}

/* Puts HMAC(key, text) in place of the key; without memory the store refuses it. */
static void add_hmac(unsigned char key[DIGEST], const char *text, size_t length)
{
    unsigned char mac[DIGEST] = {0};

    (void)HMAC(EVP_sha256(), key, DIGEST, (const unsigned char *)text, length, mac, NULL);
    memcpy(key, mac, DIGEST);
}

/* The key of a day, a region and a service. */
static void derive(const sonde__s3_signing *request, unsigned char key[DIGEST])
{
    sonde_text secret = {0};

    memset(key, 0, DIGEST);
    sonde_text_format(&secret, "AWS4%s", request->secret);
    if (!secret.failed) {
        (void)HMAC(EVP_sha256(), secret.data, (int)secret.length,
                   (const unsigned char *)request->date, 8, key, NULL);
        memset(secret.data, 0, secret.length);
    }
    sonde_text_fini(&secret);
    add_hmac(key, request->region, strlen(request->region));
    add_hmac(key, request->service, strlen(request->service));
    add_hmac(key, "aws4_request", 12);
}

void sonde__s3_sign(sonde_text *out, sonde__s3_signing *request)
{
    sonde_text text = {0}, scope = {0};
    unsigned char key[DIGEST];
    char hex[SONDE__S3_HASH];

    qsort(request->headers, request->header_count, sizeof *request->headers, by_name);
    add_canonical(&text, request);
    sonde_text_format(&scope, "%.8s/%s/%s/aws4_request", request->date, request->region,
                      request->service);
    if (text.failed || scope.failed) {
        out->failed = true;
    } else {
        sonde__s3_hash(text.data, text.length, hex);
        text.length = 0;
        sonde_text_format(&text, ALGORITHM "\n%s\n%s\n%s", request->date, scope.data,
                          hex);
        derive(request, key);
        add_hmac(key, text.data, text.length);
        print_hex(key, hex);
        sonde_text_format(
            out, ALGORITHM " Credential=%s/%s, SignedHeaders=", request->key, scope.data);
        add_signed_headers(out, request);
        sonde_text_format(out, ", Signature=%s", hex);
    }
    out->failed = out->failed || text.failed;
    sonde_text_fini(&text);
    sonde_text_fini(&scope);
}
