/*
 * keys.c - the order of the sources of credentials, and keys that stand in a variable or a
 * file; see keys.h.
 */
#include "store/s3/keys.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"
#include "store/s3/profile.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* --- as their sources give them ------------------------------------------------------- */

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
    const double seconds = (double)timegm(&when);
    rest += *rest == '.' ? 1 + strspn(rest + 1, "0123456789") : 0;
    if (sscanf(rest, "%c%2d:%2d", &sign, &hours, &minutes) == 3 &&
        (sign == '+' || sign == '-')) {
        return seconds - (sign == '+' ? 60.0 : -60.0) * (60.0 * hours + minutes);
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
    const bool has_token = token != NULL && token[0] != '\0';

    if (key == NULL || secret == NULL || key[0] == '\0' || secret[0] == '\0') {
        return sonde__fail(diag, SONDE_EFORMAT, where, "a key and a secret",
                           "gives no credentials");
    }
    if (expires != NULL && expires[0] != '\0') {
        const double left = sonde__s3_time(expires) - (double)time(NULL);

        if (left <= 0.0) {
            return sonde__fail(diag, SONDE_EFORMAT, where, "a time to come",
                               "gives credentials that expired at %.40s", expires);
        }
        sonde__s3_keys_renew_after(keys, SONDE_MAX(left - RENEW, left / 2.0));
    }
    keys->key = sonde__strdup(key);
    keys->secret = sonde__strdup(secret);
    keys->token = has_token ? sonde__strdup(token) : NULL;
    (void)snprintf(keys->source, sizeof keys->source, "%s", where);
    return keys->key != NULL && keys->secret != NULL &&
                   (keys->token != NULL || !has_token)
               ? SONDE_OK
               : sonde__fail_nomem(diag, where);
}

sonde_err sonde__s3_keys_take_json(sonde__s3_keys *keys, const sonde_text *text,
                                   const char *token, const char *where, sonde_diag *diag)
{
    const char *const names[] = {"AccessKeyId", "SecretAccessKey", token, "Expiration"};
    const char *values[SONDE_COUNT_OF(names)];
    bool no_memory = text->failed;
    json_t *object = text->data != NULL
                         ? sonde__json_read(text->data, text->length, 0, NULL, &no_memory)
                         : NULL;

    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        values[i] = json_string_value(json_object_get(object, names[i]));
    }
    const sonde_err err =
        no_memory ? sonde__fail_nomem(diag, where)
        : object != NULL
            ? sonde__s3_keys_take(keys, values[0], values[1], values[2], values[3], where,
                                  diag)
            : sonde__fail(diag, SONDE_EFORMAT, where, "an object with AccessKeyId",
                          "gives something other than JSON");
    json_decref(object);
    return err;
}

/* --- the order of the sources ----------------------------------------------------------- */

#define MOST_WAIT 60.0 /* seconds that a program may take */

static sonde_err find_in_environment(sonde__s3_keys *keys, sonde_diag *diag)
{
    const char *key = sonde__s3_variable("AWS_ACCESS_KEY_ID");
    const char *secret = sonde__s3_variable("AWS_SECRET_ACCESS_KEY");

    if (key == NULL) {
        return SONDE_ENOTFOUND;
    }
    if (secret == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "AWS_ACCESS_KEY_ID",
                           "AWS_SECRET_ACCESS_KEY as well", "has no secret");
    }
    return sonde__s3_keys_take(keys, key, secret, sonde__s3_variable("AWS_SESSION_TOKEN"),
                               NULL, "AWS_ACCESS_KEY_ID", diag);
}

static sonde_err find_in_file(sonde__s3_profile_file file, const char *profile,
                              sonde__s3_keys *keys, sonde_diag *diag)
{
    char *key = sonde__s3_profile_in(file, profile, "aws_access_key_id");
    char *secret = sonde__s3_profile_in(file, profile, "aws_secret_access_key");
    char *token = sonde__s3_profile_in(file, profile, "aws_session_token");
    const char *where = file == SONDE__S3_CONFIG ? "~/.aws/config" : "~/.aws/credentials";
    const sonde_err err =
        key != NULL ? sonde__s3_keys_take(keys, key, secret, token, NULL, where, diag)
                    : SONDE_ENOTFOUND;

    sonde__free(key);
    sonde__free(secret);
    sonde__free(token);
    return err;
}

static sonde_err find_in_profile(sonde__s3_line *line, sonde__s3_keys *keys,
                                 sonde_diag *diag)
{
    const char *profile = sonde__s3_profile();

    if (strcmp(profile, "default") != 0 && !sonde__s3_profile_exists(profile)) {
        return sonde__fail(diag, SONDE_EINVAL, "AWS_PROFILE",
                           "a profile in ~/.aws/config or ~/.aws/credentials",
                           "there is no profile '%s'", profile);
    }
    sonde_err err = sonde__s3_keys_of_aws(profile, MOST_WAIT, keys, diag);
    if (err == SONDE_ENOTFOUND) {
        err = sonde__s3_keys_of_token(line, profile, keys, diag);
    }
    if (err == SONDE_ENOTFOUND) {
        err = find_in_file(SONDE__S3_CREDENTIALS, profile, keys, diag);
    }
    if (err == SONDE_ENOTFOUND) {
        err = sonde__s3_keys_of_process(profile, MOST_WAIT, keys, diag);
    }
    if (err == SONDE_ENOTFOUND) {
        err = find_in_file(SONDE__S3_CONFIG, profile, keys, diag);
    }
    if (err == SONDE_ENOTFOUND && sonde__s3_profile_has(profile, "role_arn")) {
        err = sonde__fail(diag, SONDE_EINVAL, profile,
                          "source_profile, credential_source or "
                          "web_identity_token_file as well",
                          "has a role_arn alone");
    }
    return err;
}

sonde_err sonde__s3_keys_find(sonde__s3_line *line, sonde__s3_keys *keys,
                              sonde_diag *diag)
{
    *keys = (sonde__s3_keys){0};
    sonde_err err = find_in_environment(keys, diag);
    if (err == SONDE_ENOTFOUND) {
        err = find_in_profile(line, keys, diag);
    }
    if (err == SONDE_ENOTFOUND) {
        err = sonde__s3_keys_of_container(line, keys, diag);
    }
    if (err == SONDE_ENOTFOUND) {
        err = sonde__s3_keys_of_instance(line, keys);
    }
    if (err == SONDE_ENOTFOUND) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, "S3",
                          "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in "
                          "~/.aws/credentials, or the role of a container or an instance",
                          "no credentials are found");
    }
    if (err != SONDE_OK) {
        sonde__s3_keys_fini(keys);
    }
    return err;
}
