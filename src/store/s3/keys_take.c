/*
 * keys_take.c - what the sources of credentials share; see keys.h.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"
#include "store/s3/keys.h"
#include "store/s3/xml.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RENEW 300.0 /* seconds before credentials expire */

void sonde__s3_keys_fini(sonde__s3_keys *keys)
{
    sonde__free(keys->key);
    sonde__free(keys->secret);
    sonde__free(keys->token);
    *keys = (sonde__s3_keys){0};
}

double sonde__s3_time(const char *text)
{
    struct tm when = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &when);
    int hours = 0, minutes = 0;
    char sign = 0;

    if (rest == NULL) {
        return 0.0;
    }
    double seconds = (double)timegm(&when);
    rest += *rest == '.' ? 1 + strspn(rest + 1, "0123456789") : 0;
    if (sscanf(rest, "%c%2d:%2d", &sign, &hours, &minutes) == 3 &&
        (sign == '+' || sign == '-')) {
        seconds -= (sign == '+' ? 60.0 : -60.0) * (60.0 * hours + minutes);
    }
    return seconds;
}

void sonde__s3_keys_renew_after(sonde__s3_keys *keys, double seconds)
{
    keys->renew = (double)time(NULL) + seconds;
    keys->renew_at = sonde__now() + seconds;
}

bool sonde__s3_keys_are_old(const sonde__s3_keys *keys)
{
    return keys->renew > 0.0 &&
           ((double)time(NULL) >= keys->renew || sonde__now() >= keys->renew_at);
}

sonde_err sonde__s3_keys_take(sonde__s3_keys *keys, const char *key, const char *secret,
                              const char *token, const char *expires, const char *where,
                              sonde_diag *diag)
{
    const double now = (double)time(NULL);

    if (key == NULL || secret == NULL || key[0] == '\0' || secret[0] == '\0') {
        return sonde__fail(diag, SONDE_EFORMAT, where, "a key and a secret",
                           "gives no credentials");
    }
    if (expires != NULL && expires[0] != '\0') {
        keys->expires = sonde__s3_time(expires);
        if (keys->expires <= now) {
            return sonde__fail(diag, SONDE_EFORMAT, where, "a time to come",
                               "gives credentials that expired at %.40s", expires);
        }
        sonde__s3_keys_renew_after(
            keys, SONDE_MAX(keys->expires - now - RENEW, (keys->expires - now) / 2.0));
    }
    keys->key = sonde__strdup(key);
    keys->secret = sonde__strdup(secret);
    keys->token = token != NULL && token[0] != '\0' ? sonde__strdup(token) : NULL;
    if (keys->key == NULL || keys->secret == NULL ||
        (token != NULL && token[0] != '\0' && keys->token == NULL)) {
        return sonde__fail_nomem(diag, where);
    }
    (void)snprintf(keys->source, sizeof keys->source, "%s", where);
    return SONDE_OK;
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

sonde_err sonde__s3_keys_take_json(sonde__s3_keys *keys, const char *text, size_t size,
                                   const char *token, const char *where, sonde_diag *diag)
{
    bool no_memory = false;
    json_t *object =
        text != NULL ? sonde__json_read(text, size, 0, NULL, &no_memory) : NULL;
    const sonde_err err =
        no_memory ? sonde__fail_nomem(diag, where)
        : object != NULL
            ? sonde__s3_keys_take(keys, text_of(object, "AccessKeyId"),
                                  text_of(object, "SecretAccessKey"),
                                  text_of(object, token), text_of(object, "Expiration"),
                                  where, diag)
            : sonde__fail(diag, SONDE_EFORMAT, where, "an object with AccessKeyId",
                          "gives something other than JSON");

    json_decref(object);
    return err;
}

char *sonde__s3_first_line(const char *path)
{
    FILE *stream = fopen(path, "re");
    char *line = NULL, *copy = NULL;
    size_t room = 0;

    if (stream == NULL) {
        return NULL;
    }
    if (getline(&line, &room, stream) > 0) {
        line[strcspn(line, "\r\n")] = '\0';
        copy = sonde__strdup(line);
    }
    free(line);
    (void)fclose(stream);
    return copy;
}

void sonde__s3_ask(sonde__s3_line *line, const sonde__s3_call *call,
                   sonde__s3_answer *answer)
{
    for (int try = 1;; try++) {
        const struct timespec nap = {0, 200 * 1000 * 1000};

        sonde__s3_line_call(line, call, answer);
        if (try == 3 ||
            (answer->status != 0 && answer->status != 429 && answer->status < 500)) {
            return;
        }
        (void)nanosleep(&nap, NULL);
    }
}

sonde_err sonde__s3_keys_refused(const sonde__s3_answer *answer, const char *where,
                                 const char *help, sonde_diag *diag)
{
    char code[96] = "", message[256] = "";

    if (answer->status == 0) {
        return sonde__fail(diag, SONDE_EIO, where, help, "no answer: %s", answer->fault);
    }
    (void)sonde__s3_xml_first(&answer->body, "Code", code, sizeof code);
    (void)sonde__s3_xml_first(&answer->body, "Message", message, sizeof message);
    return sonde__fail(diag, SONDE_EIO, where, help, "HTTP %ld%s%s%s%s", answer->status,
                       code[0] != '\0' ? ": " : "", code, message[0] != '\0' ? ", " : "",
                       message);
}
