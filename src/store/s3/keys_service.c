/*
 * keys_service.c - credentials of a container and of an instance; see keys.h.
 *
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
#include "base/point.h"
#include "store/s3/keys.h"
#include "store/s3/profile.h"

#include <stdio.h>
#include <string.h>

#define CONTAINER "http://169.254.170.2"
#define INSTANCE "http://169.254.169.254"
#define ROLES "/latest/meta-data/iam/security-credentials/"

enum { MOST = 64 * 1024 };

/* GET, or PUT; true with status 200. */
static bool ask(sonde__s3_line *line, const char *method, const char *url,
                const sonde__s3_pair *header, sonde__s3_answer *answer)
{
    const sonde__s3_call call = {.method = method,
                                 .url = url,
                                 .headers = header,
                                 .header_count = header != NULL ? 1 : 0,
                                 .body = strcmp(method, "PUT") == 0 ? "" : NULL,
                                 .most = MOST,
                                 .stall = 2.0,
                                 .connect = 1.0};

    sonde__s3_line_call(line, &call, answer);
    return answer->status == 200 && answer->body.length > 0;
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

/* The value of Authorization; new; *failed: its file cannot be read. */
static char *container_token(bool *failed)
{
    const char *path = sonde__s3_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *plain = sonde__s3_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char *token = NULL;

    if (path != NULL) {
        token = sonde__s3_first_line(path);
        *failed = token == NULL;
        return token;
    }
    return plain != NULL ? sonde__strdup(plain) : NULL;
}

sonde_err sonde__s3_keys_of_container(sonde__s3_line *line, sonde__s3_keys *keys,
                                      sonde_diag *diag)
{
    const char *relative = sonde__s3_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = sonde__s3_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    bool failed = false;
    sonde__s3_pair header = {"Authorization", NULL};
    sonde__s3_call call = {
        .method = "GET", .headers = &header, .most = MOST, .stall = 2.0, .connect = 1.0};
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
    token = container_token(&failed);
    header.value = token;
    call.header_count = token != NULL ? 1 : 0;
    sonde_text_format(&url, "%s%s", relative != NULL ? CONTAINER : "",
                      relative != NULL ? relative : full);
    call.url = url.data;
    if (failed) {
        err = sonde__fail(diag, SONDE_EIO, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                          "a file with a token", "cannot be read, or is empty");
        goto done;
    }
    if (url.failed) {
        err = sonde__fail_nomem(diag, "the container");
        goto done;
    }
    sonde__s3_ask(line, &call, &answer);
    err =
        answer.status == 200
            ? sonde__s3_keys_take_json(keys, answer.body.data, answer.body.length,
                                       "Token", "the container", diag)
            : sonde__s3_keys_refused(&answer, "credentials of the container", NULL, diag);

done:
    sonde_text_fini(&url);
    sonde_text_fini(&answer.body);
    sonde__free(token);
    return err;
}

/* --- the instance ------------------------------------------------------------------- */

/* Asks the metadata service, with its token. */
static bool ask_instance(sonde__s3_line *line, const char *path, const char *more,
                         sonde__s3_answer *answer)
{
    static const sonde__s3_pair life = {"X-aws-ec2-metadata-token-ttl-seconds", "300"};
    const char *disabled = sonde__s3_variable("AWS_EC2_METADATA_DISABLED");
    const char *base = sonde__s3_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    sonde__s3_pair token = {"X-aws-ec2-metadata-token", NULL};
    sonde_text url = {0}, held = {0};
    bool found = false;

    if (disabled != NULL && sonde__strcasecmp(disabled, "true") == 0) {
        return false;
    }
    base = base != NULL ? base : INSTANCE;
    sonde_text_format(&url, "%s/latest/api/token", base);
    if (!url.failed && ask(line, "PUT", url.data, &life, answer)) {
        sonde_text_put(&held, answer->body.data, answer->body.length);
        url.length = 0;
        sonde_text_format(&url, "%s%s%s", base, path, more);
        token.value = held.data;
        found = !held.failed && !url.failed && ask(line, "GET", url.data, &token, answer);
    }
    sonde_text_fini(&url);
    sonde_text_fini(&held);
    return found;
}

sonde_err sonde__s3_keys_of_instance(sonde__s3_line *line, sonde__s3_keys *keys)
{
    sonde__s3_answer role = {0}, answer = {0};
    sonde_err err = SONDE_ENOTFOUND;

    if (!ask_instance(line, ROLES, "", &role)) {
        goto done;
    }
    role.body.data[strcspn(role.body.data, "\r\n")] = '\0';
    if (ask_instance(line, ROLES, role.body.data, &answer) &&
        sonde__s3_keys_take_json(keys, answer.body.data, answer.body.length, "Token",
                                 "the instance's role", NULL) == SONDE_OK) {
        keys->of_instance = true;
        err = SONDE_OK;
    }

done:
    sonde_text_fini(&role.body);
    sonde_text_fini(&answer.body);
    return err;
}

char *sonde__s3_keys_region(sonde__s3_line *line)
{
    sonde__s3_answer answer = {0};
    char *region = NULL;

    if (ask_instance(line, "/latest/meta-data/placement/region", "", &answer)) {
        region = sonde__strndup(answer.body.data, strcspn(answer.body.data, "\r\n"));
    }
    sonde_text_fini(&answer.body);
    return region;
}
