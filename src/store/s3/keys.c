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
