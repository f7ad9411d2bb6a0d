/*
 * keys.c - the order of the sources of credentials, and keys that stand somewhere; see
 * keys.h.
 */
#include "store/s3/keys.h"
#include "base/fail.h"
#include "base/memory.h"
#include "store/s3/profile.h"

#include <string.h>

#define MOST_WAIT 60.0 /* seconds that a credential_process may take */
enum { MOST_CHAIN = 8 /* profiles that take their keys one from the other */ };

/* --- keys that stand somewhere ------------------------------------------------------ */

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
    sonde_err err = SONDE_ENOTFOUND;

    if (key != NULL) {
        err = sonde__s3_keys_take(
            keys, key, secret, token, NULL,
            file == SONDE__S3_CONFIG ? "~/.aws/config" : "~/.aws/credentials", diag);
    }
    sonde__free(key);
    sonde__free(secret);
    sonde__free(token);
    return err;
}

/* --- profiles ----------------------------------------------------------------------- */

typedef struct search {
    sonde__s3_line *line;
    const char *seen[MOST_CHAIN]; /* profiles that wait for the keys of the next */
    size_t depth;
    sonde_diag *diag;
} search;

static bool has(const char *profile, const char *key)
{
    char *value = sonde__s3_profile_value(profile, key);
    const bool found = value != NULL;

    sonde__free(value);
    return found;
}

static bool has_role(const char *profile)
{
    return has(profile, "role_arn") &&
           (has(profile, "source_profile") || has(profile, "credential_source"));
}

/* All sources of a profile but its role. */
static sonde_err find_plain(search *state, const char *profile, sonde__s3_keys *keys)
{
    sonde_diag *diag = state->diag;
    sonde_err err = sonde__s3_keys_of_token(state->line, profile, keys, diag);

    if (err != SONDE_ENOTFOUND) {
        return err;
    }
    err = sonde__s3_keys_of_sso(state->line, profile, keys, diag);
    if (err != SONDE_ENOTFOUND) {
        return err;
    }
    err = find_in_file(SONDE__S3_CREDENTIALS, profile, keys, diag);
    if (err != SONDE_ENOTFOUND) {
        return err;
    }
    err = sonde__s3_keys_of_process(profile, MOST_WAIT, keys, diag);
    if (err != SONDE_ENOTFOUND) {
        return err;
    }
    return find_in_file(SONDE__S3_CONFIG, profile, keys, diag);
}

static sonde_err find_by_role(search *state, const char *profile, sonde__s3_keys *keys);

/* The keys of source_profile, which may have a role as well, or use its own keys. */
static sonde_err find_in_source(search *state, const char *profile, const char *source,
                                sonde__s3_keys *keys)
{
    bool seen = strcmp(profile, source) == 0;
    sonde_err err = SONDE_OK;

    for (size_t i = 0; i < state->depth; i++) {
        seen = seen || strcmp(state->seen[i], source) == 0;
    }
    if (!sonde__s3_profile_exists(source)) {
        return sonde__fail(state->diag, SONDE_EINVAL, profile,
                           "a profile in ~/.aws/config", "source_profile is '%s'",
                           source);
    }
    if (!has(source, "aws_access_key_id") && has_role(source)) {
        return seen || state->depth + 1 >= MOST_CHAIN
                   ? sonde__fail(state->diag, SONDE_EINVAL, profile,
                                 "a profile with keys of its own",
                                 "source_profile '%s' leads back to itself", source)
                   : find_by_role(state, source, keys);
    }
    err = find_plain(state, source, keys);
    return err == SONDE_ENOTFOUND
               ? sonde__fail(state->diag, SONDE_EINVAL, profile, "a profile with keys",
                             "source_profile '%s' has no credentials", source)
               : err;
}

static sonde_err find_in_named(search *state, const char *profile, const char *name,
                               sonde__s3_keys *keys)
{
    sonde_err err = SONDE_ENOTFOUND;

    if (strcmp(name, "Environment") == 0) {
        err = find_in_environment(keys, state->diag);
    } else if (strcmp(name, "EcsContainer") == 0) {
        err = sonde__s3_keys_of_container(state->line, keys, state->diag);
    } else if (strcmp(name, "Ec2InstanceMetadata") == 0) {
        err = sonde__s3_keys_of_instance(state->line, keys);
    } else {
        return sonde__fail(state->diag, SONDE_EINVAL, profile,
                           "Environment, EcsContainer or Ec2InstanceMetadata",
                           "credential_source is '%s'", name);
    }
    return err == SONDE_ENOTFOUND
               ? sonde__fail(state->diag, SONDE_EINVAL, profile, NULL,
                             "credential_source %s has no credentials", name)
               : err;
}

static sonde_err find_by_role(search *state, const char *profile, sonde__s3_keys *keys)
{
    char *source = sonde__s3_profile_value(profile, "source_profile");
    char *name = sonde__s3_profile_value(profile, "credential_source");
    sonde__s3_keys giver = {0};
    sonde_err err = SONDE_OK;

    state->seen[state->depth++] = profile;
    if (source != NULL && name != NULL) {
        err = sonde__fail(state->diag, SONDE_EINVAL, profile, "one of them",
                          "has both source_profile and credential_source");
    } else if (source != NULL) {
        err = find_in_source(state, profile, source, &giver);
    } else {
        err = find_in_named(state, profile, name != NULL ? name : "", &giver);
    }
    if (err != SONDE_OK) {
        goto done;
    }
    err = sonde__s3_keys_of_role(state->line, profile, &giver, keys, state->diag);

done:
    state->depth--;
    sonde__s3_keys_fini(&giver);
    sonde__free(source);
    sonde__free(name);
    return err;
}

static sonde_err find_in_profile(search *state, sonde__s3_keys *keys)
{
    const char *profile = sonde__s3_profile();
    sonde_err err = SONDE_OK;

    if (strcmp(profile, "default") != 0 && !sonde__s3_profile_exists(profile)) {
        return sonde__fail(state->diag, SONDE_EINVAL, "AWS_PROFILE",
                           "a profile in ~/.aws/config or ~/.aws/credentials",
                           "there is no profile '%s'", profile);
    }
    if (has_role(profile)) {
        return find_by_role(state, profile, keys);
    }
    err = find_plain(state, profile, keys);
    if (err == SONDE_ENOTFOUND && has(profile, "role_arn")) {
        return sonde__fail(state->diag, SONDE_EINVAL, profile,
                           "source_profile, credential_source or "
                           "web_identity_token_file as well",
                           "has a role_arn alone");
    }
    return err;
}

/* Whether AWS_PROFILE names a role that is assumed with the keys of the environment. */
static bool gives_to_role(void)
{
    const bool named = sonde__s3_variable("AWS_PROFILE") != NULL ||
                       sonde__s3_variable("AWS_DEFAULT_PROFILE") != NULL;
    char *source =
        named ? sonde__s3_profile_value(sonde__s3_profile(), "credential_source") : NULL;
    const bool gives = source != NULL && strcmp(source, "Environment") == 0 &&
                       has(sonde__s3_profile(), "role_arn");

    sonde__free(source);
    return gives;
}

sonde_err sonde__s3_keys_find(sonde__s3_line *line, sonde__s3_keys *keys,
                              sonde_diag *diag)
{
    search state = {.line = line, .diag = diag};
    sonde_err err = SONDE_OK;

    *keys = (sonde__s3_keys){0};
    err = gives_to_role() ? SONDE_ENOTFOUND : find_in_environment(keys, diag);
    if (err != SONDE_ENOTFOUND) {
        goto done;
    }
    err = find_in_profile(&state, keys);
    if (err != SONDE_ENOTFOUND) {
        goto done;
    }
    err = sonde__s3_keys_of_container(line, keys, diag);
    if (err != SONDE_ENOTFOUND) {
        goto done;
    }
    err = sonde__s3_keys_of_instance(line, keys);
    if (err == SONDE_ENOTFOUND) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, "S3",
                          "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in "
                          "~/.aws/credentials, or the role of a container or an instance",
                          "no credentials are found");
    }

done:
    if (err != SONDE_OK) {
        sonde__s3_keys_fini(keys);
    }
    return err;
}
