/*
 * keys_role.c - credentials of a role, from the Security Token Service: AssumeRole with
 * keys, AssumeRoleWithWebIdentity with a token; see keys.h.
 *
 *     POST <endpoint of sts>/   Action=AssumeRole&Version=2011-06-15&RoleArn=...
 *
 * https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
 *
 * A device code (mfa_serial) cannot be asked for: roles that need one are refused.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "store/s3/keys.h"
#include "store/s3/profile.h"
#include "store/s3/xml.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST = 256 * 1024, TOKEN = 8192 };

/* One question to the service. */
typedef struct question {
    sonde__s3_line *line;
    const char *profile;
    char *region, *url;
    const sonde__s3_keys *giver; /* signs; NULL: nobody */
    sonde_text form;
    sonde__s3_answer answer;
    double skew; /* seconds by which the service's clock is ahead */
} question;

static void fini(question *ask)
{
    sonde__free(ask->region);
    sonde__free(ask->url);
    sonde_text_fini(&ask->form);
    sonde_text_fini(&ask->answer.body);
}

/* Appends "&name=value"; nothing for NULL. */
static void add(question *ask, const char *name, const char *value)
{
    if (value != NULL) {
        sonde_text_format(&ask->form, "&%s=", name);
        sonde__s3_encode(&ask->form, value, false);
    }
}

static sonde_err begin(question *ask, const char *action, const char *arn,
                       const char *session, sonde_diag *diag)
{
    char name[64];

    ask->region = sonde__s3_region(ask->profile);
    ask->region = ask->region != NULL ? ask->region : sonde__strdup("us-east-1");
    ask->url = ask->region != NULL
                   ? sonde__s3_service_url(ask->profile, "sts", "sts", ask->region)
                   : NULL;
    if (ask->url == NULL) {
        return sonde__fail_nomem(diag, arn);
    }
    (void)snprintf(name, sizeof name, "sonde-%lld", (long long)time(NULL));
    sonde_text_format(&ask->form, "Action=%s&Version=2011-06-15", action);
    add(ask, "RoleArn", arn);
    add(ask, "RoleSessionName", session != NULL ? session : name);
    return SONDE_OK;
}

/* Signs and sends. */
static void call_once(question *ask)
{
    const char *host = strstr(ask->url, "://");
    const char *path = host != NULL ? strchr(host + 3, '/') : NULL;
    const time_t now = time(NULL) + (time_t)ask->skew;
    char hash[SONDE__SHA256_HEX], date[SONDE__S3_DATE];
    struct tm utc = {0};
    sonde_text authorization = {0}, name = {0}, place = {0}, url = {0};
    sonde__s3_signing signing = {.method = "POST",
                                 .payload = hash,
                                 .date = date,
                                 .region = ask->region,
                                 .service = "sts"};
    sonde__s3_pair headers[4] = {{"content-type", "application/x-www-form-urlencoded"}};
    sonde__s3_call call = {.method = "POST",
                           .headers = headers,
                           .header_count = 1,
                           .body = ask->form.data,
                           .size = ask->form.length,
                           .most = MOST,
                           .stall = 10.0,
                           .connect = 5.0};
    sonde__sha256 sha;

    sonde__sha256_init(&sha);
    sonde__sha256_add(&sha, ask->form.data, ask->form.length);
    sonde__sha256_hex(&sha, hash);
    (void)gmtime_r(&now, &utc);
    (void)strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &utc);
    host = host != NULL ? host + 3 : ask->url;
    sonde_text_put(&name, host, strcspn(host, "/"));
    sonde_text_format(&place, "%s/", path != NULL ? path : "");
    sonde_text_format(&url, "%s/", ask->url);
    if (ask->giver != NULL) {
        signing.headers[signing.header_count++] = (sonde__s3_pair){"host", name.data};
        signing.headers[signing.header_count++] = (sonde__s3_pair){"x-amz-date", date};
        if (ask->giver->token != NULL) {
            signing.headers[signing.header_count++] =
                (sonde__s3_pair){"x-amz-security-token", ask->giver->token};
        }
        signing.path = place.data;
        signing.key = ask->giver->key;
        signing.secret = ask->giver->secret;
        if (!name.failed && !place.failed) {
            sonde__s3_sign(&authorization, &signing);
        }
        headers[call.header_count++] =
            (sonde__s3_pair){"authorization", authorization.data};
        for (size_t i = 0; i < signing.header_count; i++) {
            if (strcmp(signing.headers[i].name, "host") != 0) {
                headers[call.header_count++] = signing.headers[i];
            }
        }
    }
    call.url = url.data;
    if (!name.failed && !place.failed && !url.failed && !authorization.failed) {
        sonde__s3_ask(ask->line, &call, &ask->answer);
    }
    sonde_text_fini(&authorization);
    sonde_text_fini(&name);
    sonde_text_fini(&place);
    sonde_text_fini(&url);
}

/* Takes the credentials of the answer. */
static sonde_err take(const question *ask, const char *where, const char *help,
                      sonde__s3_keys *keys, sonde_diag *diag)
{
    const sonde_text *body = &ask->answer.body;
    char key[256] = "", secret[256] = "", expires[64] = "", *token = NULL;
    sonde_err err = SONDE_OK;

    if (ask->answer.status != 200) {
        return sonde__s3_keys_refused(&ask->answer, where, help, diag);
    }
    token = sonde__calloc(1, TOKEN);
    if (token == NULL) {
        return sonde__fail_nomem(diag, where);
    }
    (void)sonde__s3_xml_first(body, "AccessKeyId", key, sizeof key);
    (void)sonde__s3_xml_first(body, "SecretAccessKey", secret, sizeof secret);
    (void)sonde__s3_xml_first(body, "SessionToken", token, TOKEN);
    (void)sonde__s3_xml_first(body, "Expiration", expires, sizeof expires);
    err = sonde__s3_keys_take(keys, key, secret, token, expires, where, diag);
    sonde__free(token);
    return err;
}

/* Asks, and again with the service's clock if ours is wrong. */
static sonde_err put(question *ask, const char *arn, const char *help,
                     sonde__s3_keys *keys, sonde_diag *diag)
{
    char where[160];

    (void)snprintf(where, sizeof where, "role %.140s", arn);
    if (ask->form.failed) {
        return sonde__fail_nomem(diag, where);
    }
    call_once(ask);
    if (ask->answer.status >= 400 && ask->answer.status < 500 && ask->giver != NULL &&
        ask->answer.date[0] != '\0' && fabs(ask->answer.later) > 240.0) {
        ask->skew = ask->answer.later;
        call_once(ask);
    }
    return take(ask, where, help, keys, diag);
}

sonde_err sonde__s3_keys_of_role(sonde__s3_line *line, const char *profile,
                                 const sonde__s3_keys *giver, sonde__s3_keys *keys,
                                 sonde_diag *diag)
{
    char *arn = sonde__s3_profile_value(profile, "role_arn");
    char *session = sonde__s3_profile_value(profile, "role_session_name");
    char *seconds = sonde__s3_profile_value(profile, "duration_seconds");
    char *id = sonde__s3_profile_value(profile, "external_id");
    char *device = sonde__s3_profile_value(profile, "mfa_serial");
    question ask = {.line = line, .profile = profile, .giver = giver};
    char help[256];
    sonde_err err = SONDE_OK;

    if (device != NULL) {
        err =
            sonde__fail(diag, SONDE_EUNSUPPORTED, profile,
                        "keys: eval \"$(aws configure export-credentials --format env)\"",
                        "its role needs a code of the device %s", device);
        goto done;
    }
    SONDE__TRY_DONE(begin(&ask, "AssumeRole", arn != NULL ? arn : "", session, diag));
    add(&ask, "DurationSeconds", seconds);
    add(&ask, "ExternalId", id);
    (void)snprintf(help, sizeof help,
                   "a role of profile %.60s that key %.8s..., from %.100s, may assume",
                   profile, giver->key, giver->source);
    err = put(&ask, arn != NULL ? arn : "", help, keys, diag);

done:
    fini(&ask);
    sonde__free(arn);
    sonde__free(session);
    sonde__free(seconds);
    sonde__free(id);
    sonde__free(device);
    return err;
}

/* --- web identity ------------------------------------------------------------------- */

/* A variable, or else a key of the profile; new. */
static char *setting(const char *variable, const char *profile, const char *key)
{
    const char *value = sonde__s3_variable(variable);

    return value != NULL ? sonde__strdup(value) : sonde__s3_profile_value(profile, key);
}

sonde_err sonde__s3_keys_of_token(sonde__s3_line *line, const char *profile,
                                  sonde__s3_keys *keys, sonde_diag *diag)
{
    char *path =
        setting("AWS_WEB_IDENTITY_TOKEN_FILE", profile, "web_identity_token_file");
    char *arn = setting("AWS_ROLE_ARN", profile, "role_arn");
    char *session = setting("AWS_ROLE_SESSION_NAME", profile, "role_session_name");
    char *token = path != NULL ? sonde__s3_first_line(path) : NULL;
    question ask = {.line = line, .profile = profile};
    char help[256];
    sonde_err err = SONDE_ENOTFOUND;

    if (path == NULL) {
        goto done;
    }
    if (arn == NULL) {
        err = sonde__fail(diag, SONDE_EINVAL, "AWS_WEB_IDENTITY_TOKEN_FILE",
                          "AWS_ROLE_ARN as well", "there is no role");
        goto done;
    }
    if (token == NULL) {
        err = sonde__fail(diag, SONDE_EIO, path, "a file with a token",
                          "cannot be read, or is empty");
        goto done;
    }
    SONDE__TRY_DONE(begin(&ask, "AssumeRoleWithWebIdentity", arn, session, diag));
    add(&ask, "WebIdentityToken", token);
    (void)snprintf(help, sizeof help, "a role that the token in %.180s may assume", path);
    err = put(&ask, arn, help, keys, diag);

done:
    fini(&ask);
    sonde__free(path);
    sonde__free(arn);
    sonde__free(session);
    sonde__free(token);
    return err;
}
