/*
 * profile.c - see profile.h.
 *
 *     [default]                 [profile work]     in config; in credentials [work]
 *     region = eu-west-1        s3 =
 *                                 addressing_style = path
 */
#include "store/s3/profile.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/clock.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/fail.h"
#include "store/s3/keys.h"

#include <sonde/text.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include <time.h>

enum { PATH = 4096, NAME = 256 };

const char *sonde__s3_variable(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

double sonde__s3_setting(const char *name, double usual)
{
    const char *text = getenv(name);
    char *end = NULL;
    const double value = text != NULL ? sonde__strtod(text, &end) : 0.0;

    return text != NULL && end != text && value > 0.0 ? value : usual;
}

const char *sonde__s3_profile(void)
{
    const char *name = sonde__s3_variable("AWS_PROFILE");

    name = name != NULL ? name : sonde__s3_variable("AWS_DEFAULT_PROFILE");
    return name != NULL ? name : "default";
}

/* --- the files ---------------------------------------------------------------------- */

static FILE *open_file(sonde__s3_profile_file file)
{
    const bool config = file == SONDE__S3_CONFIG;
    const char *path =
        sonde__s3_variable(config ? "AWS_CONFIG_FILE" : "AWS_SHARED_CREDENTIALS_FILE");
    const char *home = getenv("HOME");
    char buf[PATH];

    if (path == NULL) {
        const int length =
            snprintf(buf, sizeof buf, "%s/.aws/%s", home != NULL ? home : "",
                     config ? "config" : "credentials");

        if (length < 0 || (size_t)length >= sizeof buf) {
            return NULL;
        }
        path = buf;
    }
    return fopen(path, "re");
}

/* Cuts blanks at both ends. */
static char *trim(char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1])) {
        text[--length] = '\0';
    }
    return text;
}

/* A section of a file: "profile" or "services", and its name. */
typedef struct section {
    sonde__s3_profile_file file;
    const char *kind, *name;
} section;

/* Whether "[line" begins the section. */
static bool begins(char *line, const section *wanted)
{
    char *end = strchr(line, ']');
    char *kind = NULL, *name = NULL;

    if (end == NULL) {
        return false;
    }
    *end = '\0';
    name = trim(line + 1);
    if (wanted->file == SONDE__S3_CREDENTIALS) {
        return strcmp(name, wanted->name) == 0;
    }
    if (strcmp(name, "default") == 0) {
        return strcmp(wanted->kind, "profile") == 0 &&
               strcmp(wanted->name, "default") == 0;
    }
    kind = name;
    name += strcspn(name, " \t");
    if (*name != '\0') {
        *name++ = '\0';
    }
    name = trim(name);
    const size_t length = strlen(name);
    if (length > 1 && (name[0] == '"' || name[0] == '\'') &&
        name[length - 1] == name[0]) {
        name[length - 1] = '\0';
        name++;
    }
    return strcmp(kind, wanted->kind) == 0 && strcmp(name, wanted->name) == 0;
}

/* The value on the line if it has the key; parent: the last key that was not indented. */
static char *value_on(char *line, const char *key, char parent[NAME])
{
    const bool indented = isspace((unsigned char)line[0]);
    char *sign = line + strcspn(line, "=:"), *name = NULL;
    char whole[2 * NAME];

    if (*sign == '\0') {
        return NULL;
    }
    *sign = '\0';
    name = trim(line);
    if (indented) {
        (void)snprintf(whole, sizeof whole, "%s.%s", parent, name);
    } else {
        (void)snprintf(whole, sizeof whole, "%s", name);
        (void)snprintf(parent, NAME, "%s", name);
    }
    return sonde__strcasecmp(whole, key) == 0 ? trim(sign + 1) : NULL;
}

/* *exists: whether the file has the section. */
static char *look_up(const section *wanted, const char *key, bool *exists)
{
    FILE *stream = open_file(wanted->file);
    char *line = NULL, *found = NULL, parent[NAME] = "";
    size_t room = 0;
    bool inside = false;

    if (stream == NULL) {
        return NULL;
    }
    while (found == NULL && getline(&line, &room, stream) >= 0) {
        if (line[0] == '#' || line[0] == ';') {
            continue;
        }
        if (line[0] == '[') {
            inside = begins(line, wanted);
            *exists = *exists || inside;
            parent[0] = '\0';
        } else if (inside) {
            const char *value = value_on(line, key, parent);

            found = value != NULL && value[0] != '\0' ? sonde__strdup(value) : NULL;
        }
    }
    free(line);
    (void)fclose(stream);
    return found;
}

bool sonde__s3_profile_exists(const char *profile)
{
    bool exists = false;

    for (int file = SONDE__S3_CREDENTIALS; file <= SONDE__S3_CONFIG; file++) {
        const section wanted = {(sonde__s3_profile_file)file, "profile", profile};

        sonde__free(look_up(&wanted, "", &exists));
    }
    return exists;
}

char *sonde__s3_profile_in(sonde__s3_profile_file file, const char *profile,
                           const char *key)
{
    const section wanted = {file, "profile", profile};
    bool exists = false;

    return look_up(&wanted, key, &exists);
}

char *sonde__s3_profile_value(const char *profile, const char *key)
{
    char *value = sonde__s3_profile_in(SONDE__S3_CREDENTIALS, profile, key);

    return value != NULL ? value : sonde__s3_profile_in(SONDE__S3_CONFIG, profile, key);
}

bool sonde__s3_profile_has(const char *profile, const char *key)
{
    char *value = sonde__s3_profile_value(profile, key);
    const bool found = value != NULL;

    sonde__free(value);
    return found;
}

/* --- region and endpoint ------------------------------------------------------------ */

char *sonde__s3_region(const char *profile)
{
    const char *region = sonde__s3_variable("AWS_REGION");

    region = region != NULL ? region : sonde__s3_variable("AWS_DEFAULT_REGION");
    return region != NULL ? sonde__strdup(region)
                          : sonde__s3_profile_value(profile, "region");
}

/* Of a service in the section [services NAME] that the profile names. */
static char *endpoint_of_services(const char *profile, const char *service)
{
    char *name = sonde__s3_profile_value(profile, "services");
    const section wanted = {SONDE__S3_CONFIG, "services", name};
    char key[64], *found = NULL;
    bool exists = false;

    if (name == NULL) {
        return NULL;
    }
    (void)snprintf(key, sizeof key, "%s.endpoint_url", service);
    found = look_up(&wanted, key, &exists);
    sonde__free(name);
    return found;
}

char *sonde__s3_endpoint(const char *profile, const char *service)
{
    const char *ignore = sonde__s3_variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    char variable[64];

    if (ignore != NULL && sonde__strcasecmp(ignore, "true") == 0) {
        return NULL;
    }
    (void)snprintf(variable, sizeof variable, "AWS_ENDPOINT_URL_%s", service);
    for (char *letter = variable; *letter != '\0'; letter++) {
        *letter = (char)sonde__toupper((unsigned char)*letter);
    }
    const char *given = sonde__s3_variable(variable);
    given = given != NULL ? given : sonde__s3_variable("AWS_ENDPOINT_URL");
    if (given != NULL) {
        return sonde__strdup(given);
    }
    char *found = endpoint_of_services(profile, service);
    return found != NULL ? found : sonde__s3_profile_value(profile, "endpoint_url");
}

const char *sonde__s3_domain(const char *region)
{
    return strncmp(region, "cn-", 3) == 0 ? "amazonaws.com.cn" : "amazonaws.com";
}

char *sonde__s3_service_url(const char *profile, const char *service, const char *host,
                            const char *region)
{
    char *url = sonde__s3_endpoint(profile, service);
    sonde_text own = {0};

    if (url != NULL) {
        for (size_t length = strlen(url); length > 0 && url[length - 1] == '/';) {
            url[--length] = '\0';
        }
        return url;
    }
    sonde_text_format(&own, "https://%s.%s.%s", host, region, sonde__s3_domain(region));
    if (own.failed) {
        sonde_text_fini(&own);
        return NULL;
    }
    return own.data;
}

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
