/*
 * keys.c - see keys.h.
 *
 * Container: GET AWS_CONTAINER_CREDENTIALS_RELATIVE_URI of 169.254.170.2, or
 * AWS_CONTAINER_CREDENTIALS_FULL_URI, with the token of
 * AWS_CONTAINER_AUTHORIZATION_TOKEN or of the file
 * AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE. Instance (version 2): PUT for a token, GET for
 * the name of the role, GET for its credentials. Not supported: roles to be assumed,
 * single sign-on and processes named in a profile; the message says how to get keys of
 * them.
 */
#include "s3/keys.h"
#include "base/fail.h"
#include "base/memory.h"
#include "s3/profile.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONTAINER "http://169.254.170.2"
#define INSTANCE "http://169.254.169.254"
#define ROLES "/latest/meta-data/iam/security-credentials/"

enum { MOST = 64 * 1024 };

void sonde__s3_keys_fini(sonde__s3_keys *keys)
{
    sonde__free(keys->key);
    sonde__free(keys->secret);
    sonde__free(keys->token);
    *keys = (sonde__s3_keys){0};
}

/* NULL for one that is empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool is_whole(const sonde__s3_keys *keys)
{
    return keys->key != NULL && keys->secret != NULL;
}

/* --- environment and profile -------------------------------------------------------- */

static bool find_in_environment(sonde__s3_keys *keys)
{
    const char *key = variable("AWS_ACCESS_KEY_ID");
    const char *secret = variable("AWS_SECRET_ACCESS_KEY");
    const char *token = variable("AWS_SESSION_TOKEN");

    if (key == NULL || secret == NULL) {
        return false;
    }
    keys->key = sonde__strdup(key);
    keys->secret = sonde__strdup(secret);
    keys->token = token != NULL ? sonde__strdup(token) : NULL;
    keys->source = "AWS_ACCESS_KEY_ID";
    return is_whole(keys);
}

static bool find_in_profile(sonde__s3_keys *keys)
{
    static const char *const sources[] = {"~/.aws/credentials", "~/.aws/config"};

    for (int file = SONDE__S3_CREDENTIALS; file <= SONDE__S3_CONFIG; file++) {
        const sonde__s3_profile_file which = (sonde__s3_profile_file)file;

        keys->key = sonde__s3_profile_value(which, "aws_access_key_id");
        keys->secret = sonde__s3_profile_value(which, "aws_secret_access_key");
        keys->token = sonde__s3_profile_value(which, "aws_session_token");
        keys->source = sources[file];
        if (is_whole(keys)) {
            return true;
        }
        sonde__s3_keys_fini(keys);
    }
    return false;
}

/* A key of the profile that names a source that is not supported; NULL: none. */
static const char *unsupported_source(void)
{
    static const char *const names[] = {"role_arn", "sso_session", "sso_start_url",
                                        "credential_process"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *value = sonde__s3_profile_value(SONDE__S3_CONFIG, names[i]);
        const bool found = value != NULL;

        sonde__free(value);
        if (found) {
            return names[i];
        }
    }
    return variable("AWS_WEB_IDENTITY_TOKEN_FILE") != NULL ? "AWS_WEB_IDENTITY_TOKEN_FILE"
                                                           : NULL;
}

/* --- metadata services -------------------------------------------------------------- */

static char *copy_of(const json_t *object, const char *name)
{
    const char *value = json_string_value(json_object_get(object, name));

    return value != NULL ? sonde__strdup(value) : NULL;
}

static bool read_keys(const sonde_text *text, sonde__s3_keys *keys)
{
    json_t *object = json_loadb(text->data, text->length, 0, NULL);
    const char *expires = json_string_value(json_object_get(object, "Expiration"));
    struct tm when = {0};

    keys->key = copy_of(object, "AccessKeyId");
    keys->secret = copy_of(object, "SecretAccessKey");
    keys->token = copy_of(object, "Token");
    if (expires != NULL && strptime(expires, "%Y-%m-%dT%H:%M:%S", &when) != NULL) {
        keys->expires = (double)timegm(&when);
    }
    json_decref(object);
    return is_whole(keys);
}

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

/* The content of a small file without its newline; new. */
static char *load_line(const char *path)
{
    FILE *stream = path != NULL ? fopen(path, "re") : NULL;
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
    return copy;
}

static bool find_in_container(sonde__s3_line *line, sonde__s3_keys *keys)
{
    const char *relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *plain = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char *token = load_line(variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"));
    const sonde__s3_pair header = {"Authorization", token != NULL ? token : plain};
    sonde__s3_answer answer = {0};
    sonde_text url = {0};
    bool found = false;

    if (relative != NULL || full != NULL) {
        sonde_text_format(&url, "%s%s", relative != NULL ? CONTAINER : "",
                          relative != NULL ? relative : full);
        found =
            !url.failed &&
            ask(line, "GET", url.data, header.value != NULL ? &header : NULL, &answer) &&
            read_keys(&answer.body, keys);
    }
    keys->source = "the container";
    sonde_text_fini(&url);
    sonde_text_fini(&answer.body);
    sonde__free(token);
    return found;
}

/* GET of a path of the instance's service, with its token. */
static bool ask_instance(sonde__s3_line *line, const char *path, const char *more,
                         sonde__s3_answer *answer)
{
    static const sonde__s3_pair life = {"X-aws-ec2-metadata-token-ttl-seconds", "300"};
    const char *disabled = variable("AWS_EC2_METADATA_DISABLED");
    const char *base = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    sonde__s3_pair token = {"X-aws-ec2-metadata-token", NULL};
    sonde_text url = {0}, held = {0};
    bool found = false;

    if (disabled != NULL && strcmp(disabled, "true") == 0) {
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

static bool find_in_instance(sonde__s3_line *line, sonde__s3_keys *keys)
{
    sonde__s3_answer role = {0}, answer = {0};
    bool found = false;

    if (ask_instance(line, ROLES, "", &role)) {
        role.body.data[strcspn(role.body.data, "\r\n")] = '\0';
        found = ask_instance(line, ROLES, role.body.data, &answer) &&
                read_keys(&answer.body, keys);
    }
    keys->source = "the instance's role";
    sonde_text_fini(&role.body);
    sonde_text_fini(&answer.body);
    return found;
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

sonde_err sonde__s3_keys_find(sonde__s3_line *line, sonde__s3_keys *keys,
                              sonde_diag *diag)
{
    const char *other = NULL;

    *keys = (sonde__s3_keys){0};
    if (find_in_environment(keys) || find_in_profile(keys) ||
        find_in_container(line, keys)) {
        return SONDE_OK;
    }
    other = unsupported_source();
    if (other == NULL && find_in_instance(line, keys)) {
        return SONDE_OK;
    }
    sonde__s3_keys_fini(keys);
    if (other != NULL) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, "S3",
                           "keys: eval \"$(aws configure export-credentials "
                           "--format env)\"",
                           "profile %s takes its credentials from %s, which is not "
                           "supported",
                           sonde__s3_profile(), other);
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, "S3",
                       "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in "
                       "~/.aws/credentials, or the role of a container or an instance",
                       "no credentials are found");
}
