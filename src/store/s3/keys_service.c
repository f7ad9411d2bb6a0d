/*
 * keys_service.c - credentials that a service gives: of a role by a token, of a container,
 * of an instance; see keys.h.
 *
 * Token: POST of AssumeRoleWithWebIdentity to the Security Token Service; unsigned.
 * Container: GET AWS_CONTAINER_CREDENTIALS_RELATIVE_URI of 169.254.170.2, or
 * AWS_CONTAINER_CREDENTIALS_FULL_URI, with the token of
 * AWS_CONTAINER_AUTHORIZATION_TOKEN or of the file
 * AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE. Without TLS the host is one of this machine.
 * Instance (version 2): PUT for a token, GET for the name of the role, GET for its
 * credentials.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "store/s3/keys.h"
#include "store/s3/profile.h"
#include "store/s3/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONTAINER "http://169.254.170.2"
#define INSTANCE "http://169.254.169.254"
#define ROLES "/latest/meta-data/iam/security-credentials/"

enum { MOST = 256 * 1024, TOKEN = 8192, TRIES = 3 };

/* The first line of a file; new; NULL: it cannot be read. */
static char *read_token(const char *path, const char *where, sonde_diag *diag)
{
    FILE *stream = fopen(path, "re");
    char *line = NULL, *copy = NULL;
    size_t room = 0;

    if (stream != NULL && getline(&line, &room, stream) > 0) {
        line[strcspn(line, "\r\n")] = '\0';
        copy = sonde__strdup(line);
    }
    free(line);
    if (stream != NULL) {
        (void)fclose(stream);
    }
    if (copy == NULL) {
        (void)sonde__fail(diag, SONDE_EIO, where, "a file with a token",
                          "cannot be read, or is empty");
    }
    return copy;
}

/* Calls a service, again if there is no answer, or HTTP 429 or 5xx. */
static sonde_err ask(sonde__s3_line *line, const sonde__s3_call *call, const char *where,
                     const char *help, sonde__s3_answer *answer, sonde_diag *diag)
{
    const struct timespec nap = {0, 200 * 1000 * 1000};
    char code[96] = "", message[256] = "";

    for (int try = 1; try <= TRIES; try++) {
        if (try > 1) {
            (void)nanosleep(&nap, NULL);
        }
        sonde__s3_line_call(line, call, answer);
        if (answer->status != 0 && answer->status != 429 && answer->status < 500) {
            break;
        }
    }
    if (answer->status == 200) {
        return SONDE_OK;
    }
    if (answer->status == 0) {
        return sonde__fail(diag, SONDE_EIO, where, help, "no answer: %s", answer->fault);
    }
    (void)sonde__s3_xml_first(&answer->body, "Code", code, sizeof code);
    (void)sonde__s3_xml_first(&answer->body, "Message", message, sizeof message);
    return sonde__fail(diag, SONDE_EIO, where, help, "HTTP %ld%s%s%s%s", answer->status,
                       code[0] != '\0' ? ": " : "", code, message[0] != '\0' ? ", " : "",
                       message);
}

/* --- a role by a token -------------------------------------------------------------- */

/* A variable, or else a key of the profile; new. */
static char *setting(const char *variable, const char *profile, const char *key)
{
    const char *value = sonde__s3_variable(variable);

    return value != NULL ? sonde__strdup(value) : sonde__s3_profile_value(profile, key);
}

/* Appends "&name=value". */
static void add(sonde_text *form, const char *name, const char *value)
{
    sonde_text_format(form, "&%s=", name);
    sonde__s3_encode(form, value, false);
}

static sonde_err take_xml(const sonde_text *body, const char *where, sonde__s3_keys *keys,
                          sonde_diag *diag)
{
    char key[256] = "", secret[256] = "", expires[64] = "", token[TOKEN] = "";

    (void)sonde__s3_xml_first(body, "AccessKeyId", key, sizeof key);
    (void)sonde__s3_xml_first(body, "SecretAccessKey", secret, sizeof secret);
    (void)sonde__s3_xml_first(body, "SessionToken", token, sizeof token);
    (void)sonde__s3_xml_first(body, "Expiration", expires, sizeof expires);
    return sonde__s3_keys_take(keys, key, secret, token, expires, where, diag);
}

/* Asks the service for the role. form: all but the session's name. */
static sonde_err assume(sonde__s3_line *line, const char *profile, const char *arn,
                        const sonde_text *form, const char *help, sonde__s3_keys *keys,
                        sonde_diag *diag)
{
    static const sonde__s3_pair type = {"content-type",
                                        "application/x-www-form-urlencoded"};
    char *region = sonde__s3_region(profile), where[160];
    char *base = sonde__s3_service_url(profile, "sts", "sts",
                                       region != NULL ? region : "us-east-1");
    sonde_text url = {0};
    sonde__s3_answer answer = {0};
    sonde_err err = SONDE_OK;

    (void)snprintf(where, sizeof where, "role %.140s", arn);
    sonde_text_format(&url, "%s/", base != NULL ? base : "");
    if (base == NULL || url.failed || form->failed) {
        err = sonde__fail_nomem(diag, where);
        goto done;
    }
    const sonde__s3_call call = {.method = "POST",
                                 .url = url.data,
                                 .headers = &type,
                                 .header_count = 1,
                                 .body = form->data,
                                 .size = form->length,
                                 .most = MOST,
                                 .stall = 10.0,
                                 .connect = 5.0};
    SONDE__TRY_DONE(ask(line, &call, where, help, &answer, diag));
    err = take_xml(&answer.body, where, keys, diag);

done:
    sonde_text_fini(&url);
    sonde_text_fini(&answer.body);
    sonde__free(base);
    sonde__free(region);
    return err;
}

sonde_err sonde__s3_keys_of_token(sonde__s3_line *line, const char *profile,
                                  sonde__s3_keys *keys, sonde_diag *diag)
{
    char *path =
        setting("AWS_WEB_IDENTITY_TOKEN_FILE", profile, "web_identity_token_file");
    char *arn = setting("AWS_ROLE_ARN", profile, "role_arn");
    char *session = setting("AWS_ROLE_SESSION_NAME", profile, "role_session_name");
    char *token = NULL, name[64], help[256];
    sonde_text form = {0};
    sonde_err err = SONDE_ENOTFOUND;

    if (path == NULL) {
        goto done;
    }
    if (arn == NULL) {
        err = sonde__fail(diag, SONDE_EINVAL, "AWS_WEB_IDENTITY_TOKEN_FILE",
                          "AWS_ROLE_ARN as well", "there is no role");
        goto done;
    }
    token = read_token(path, path, diag);
    if (token == NULL) {
        err = SONDE_EIO;
        goto done;
    }
    (void)snprintf(name, sizeof name, "sonde-%lld", (long long)time(NULL));
    sonde_text_add(&form, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
    add(&form, "RoleArn", arn);
    add(&form, "RoleSessionName", session != NULL ? session : name);
    add(&form, "WebIdentityToken", token);
    (void)snprintf(help, sizeof help, "a role that the token in %.180s may assume", path);
    err = assume(line, profile, arn, &form, help, keys, diag);

done:
    sonde_text_fini(&form);
    sonde__free(path);
    sonde__free(arn);
    sonde__free(session);
    sonde__free(token);
    return err;
}

/* --- the container ------------------------------------------------------------------ */

/* Whether a token may be sent to the address. */
static bool is_safe(const char *url)
{
    static const char *const hosts[] = {"localhost",      "127.",
                                        "[::1]",          "169.254.170.2",
                                        "169.254.170.23", "[fd00:ec2::23]"};
    const char *host = url + strlen("http://");
    const size_t length = strcspn(host, "/");

    if (sonde__strncasecmp(url, "https://", 8) == 0) {
        return true;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(hosts); i++) {
        const size_t n = strlen(hosts[i]);

        if (sonde__strncasecmp(url, "http://", 7) == 0 && n <= length &&
            sonde__strncasecmp(host, hosts[i], n) == 0 &&
            (hosts[i][n - 1] == '.' ? strspn(host, "0123456789.:") == length
                                    : n == length || host[n] == ':')) {
            return true;
        }
    }
    return false;
}

sonde_err sonde__s3_keys_of_container(sonde__s3_line *line, sonde__s3_keys *keys,
                                      sonde_diag *diag)
{
    static const char file[] = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
    const char *relative = sonde__s3_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = sonde__s3_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *path = sonde__s3_variable(file);
    sonde__s3_pair header = {"Authorization",
                             sonde__s3_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN")};
    sonde__s3_answer answer = {0};
    sonde_text url = {0};
    char *token = NULL;
    sonde_err err = SONDE_OK;

    if (relative == NULL && full == NULL) {
        return SONDE_ENOTFOUND;
    }
    if (relative == NULL && !is_safe(full)) {
        return sonde__fail(diag, SONDE_EINVAL, "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                           "https://, or a host of this machine", "'%s'", full);
    }
    if (path != NULL) {
        header.value = token = read_token(path, file, diag);
        SONDE__TRY(token != NULL ? SONDE_OK : SONDE_EIO);
    }
    sonde_text_format(&url, "%s%s", relative != NULL ? CONTAINER : "",
                      relative != NULL ? relative : full);
    if (url.failed) {
        err = sonde__fail_nomem(diag, "the container");
        goto done;
    }
    const sonde__s3_call call = {.method = "GET",
                                 .url = url.data,
                                 .headers = &header,
                                 .header_count = header.value != NULL ? 1 : 0,
                                 .most = MOST,
                                 .stall = 2.0,
                                 .connect = 1.0};
    SONDE__TRY_DONE(
        ask(line, &call, "credentials of the container", NULL, &answer, diag));
    err = sonde__s3_keys_take_json(keys, &answer.body, "Token", "the container", diag);

done:
    sonde_text_fini(&url);
    sonde_text_fini(&answer.body);
    sonde__free(token);
    return err;
}

/* --- the instance ------------------------------------------------------------------- */

/* PUT for a token, or GET with it; true with status 200. */
static bool ask_once(sonde__s3_line *line, const char *method, const sonde_text *url,
                     const char *name, const char *value, sonde__s3_answer *answer)
{
    const sonde__s3_pair header = {name, value};
    const sonde__s3_call call = {.method = method,
                                 .url = url->data,
                                 .headers = &header,
                                 .header_count = 1,
                                 .body = strcmp(method, "PUT") == 0 ? "" : NULL,
                                 .most = MOST,
                                 .stall = 2.0,
                                 .connect = 1.0};

    if (url->failed || value == NULL) {
        return false;
    }
    sonde__s3_line_call(line, &call, answer);
    return answer->status == 200 && answer->body.length > 0;
}

/* Asks the metadata service, with a token; new; NULL: it does not answer. */
static char *ask_instance(sonde__s3_line *line, const char *path, const char *more)
{
    const char *disabled = sonde__s3_variable("AWS_EC2_METADATA_DISABLED");
    const char *base = sonde__s3_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    sonde__s3_answer answer = {0};
    sonde_text url = {0};
    char *token = NULL, *found = NULL;

    if (disabled != NULL && sonde__strcasecmp(disabled, "true") == 0) {
        return NULL;
    }
    base = base != NULL ? base : INSTANCE;
    sonde_text_format(&url, "%s/latest/api/token", base);
    if (ask_once(line, "PUT", &url, "X-aws-ec2-metadata-token-ttl-seconds", "300",
                 &answer)) {
        token = sonde__strdup(answer.body.data);
        url.length = 0;
        sonde_text_format(&url, "%s%s%s", base, path, more);
        if (ask_once(line, "GET", &url, "X-aws-ec2-metadata-token", token, &answer)) {
            found = sonde__strdup(answer.body.data);
        }
    }
    sonde_text_fini(&url);
    sonde_text_fini(&answer.body);
    sonde__free(token);
    return found;
}

sonde_err sonde__s3_keys_of_instance(sonde__s3_line *line, sonde__s3_keys *keys)
{
    char *role = ask_instance(line, ROLES, "");

    if (role == NULL) {
        return SONDE_ENOTFOUND;
    }
    role[strcspn(role, "\r\n")] = '\0';
    char *text = ask_instance(line, ROLES, role);
    const sonde_text body = {.data = text, .length = text != NULL ? strlen(text) : 0};
    const bool taken =
        text != NULL && sonde__s3_keys_take_json(keys, &body, "Token",
                                                 "the instance's role", NULL) == SONDE_OK;
    keys->of_instance = taken;
    sonde__free(text);
    sonde__free(role);
    return taken ? SONDE_OK : SONDE_ENOTFOUND;
}

char *sonde__s3_keys_region(sonde__s3_line *line)
{
    char *region = ask_instance(line, "/latest/meta-data/placement/region", "");

    if (region != NULL) {
        region[strcspn(region, "\r\n")] = '\0';
    }
    return region;
}
