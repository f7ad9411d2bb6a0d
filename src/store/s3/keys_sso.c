/*
 * keys_sso.c - credentials of single sign-on, by the token that `aws sso login` left; see
 * keys.h.
 *
 *     ~/.aws/sso/cache/<SHA-1 of the session's name, or of sso_start_url>.json
 *         accessToken, expiresAt; of a session also refreshToken, clientId, clientSecret
 *     GET  <endpoint of sso>/federation/credentials?role_name=...&account_id=...
 *     POST <endpoint of sso_oidc>/token    a new token of a session, for an old one
 *
 * A new token replaces the old one in the file, since the old one may not serve again.
 * SHA-1 is written out: no library that Sonde links has it, and it guards nothing here.
 */
#include "base/fail.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"
#include "store/s3/keys.h"
#include "store/s3/profile.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SOON 300.0 /* seconds before a token expires */

enum { MOST = 256 * 1024, PATH = 4096, SHA1_HEX = 41 };

/* --- SHA-1 -------------------------------------------------------------------------- */

static uint32_t turn(uint32_t word, int bits)
{
    return (word << bits) | (word >> (32 - bits));
}

static void add_block(uint32_t state[5], const unsigned char block[64])
{
    uint32_t w[80], s[5];

    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | (uint32_t)block[4 * i + 3];
    }
    for (int i = 16; i < 80; i++) {
        w[i] = turn(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 80; i++) {
        const uint32_t f =
            i < 20   ? ((s[1] & s[2]) | (~s[1] & s[3])) + 0x5a827999u
            : i < 40 ? (s[1] ^ s[2] ^ s[3]) + 0x6ed9eba1u
            : i < 60 ? ((s[1] & s[2]) | (s[1] & s[3]) | (s[2] & s[3])) + 0x8f1bbcdcu
                     : (s[1] ^ s[2] ^ s[3]) + 0xca62c1d6u;
        const uint32_t next = turn(s[0], 5) + f + s[4] + w[i];

        s[4] = s[3];
        s[3] = s[2];
        s[2] = turn(s[1], 30);
        s[1] = s[0];
        s[0] = next;
    }
    for (int i = 0; i < 5; i++) {
        state[i] += s[i];
    }
}

static void sha1(const char *text, char hex[SHA1_HEX])
{
    uint32_t state[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
    const size_t length = strlen(text);
    const uint64_t bits = 8 * (uint64_t)length;
    unsigned char block[64] = {0};
    size_t used = 0;

    for (size_t i = 0; i <= length; i++) { /* and one bit */
        block[used++] = i < length ? (unsigned char)text[i] : 0x80;
        if (used == sizeof block) {
            add_block(state, block);
            memset(block, 0, sizeof block);
            used = 0;
        }
    }
    if (used > 56) {
        add_block(state, block);
        memset(block, 0, sizeof block);
    }
    for (int i = 0; i < 8; i++) {
        block[56 + i] = (unsigned char)(bits >> (56 - 8 * i));
    }
    add_block(state, block);
    for (int i = 0; i < 5; i++) {
        (void)snprintf(hex + 8 * i, 9, "%08x", (unsigned)state[i]);
    }
}

/* --- the profile -------------------------------------------------------------------- */

typedef struct sign_on {
    sonde__s3_line *line;
    const char *profile;
    char *session, *start, *region, *account, *role;
    char path[PATH]; /* of the token */
    char where[160];
    json_t *token; /* the file's content */
} sign_on;

static void fini(sign_on *sso)
{
    sonde__free(sso->session);
    sonde__free(sso->start);
    sonde__free(sso->region);
    sonde__free(sso->account);
    sonde__free(sso->role);
    json_decref(sso->token);
}

static char *session_or_profile(const sign_on *sso, const char *key)
{
    char *value =
        sso->session != NULL ? sonde__s3_session_value(sso->session, key) : NULL;

    return value != NULL ? value : sonde__s3_profile_value(sso->profile, key);
}

static sonde_err read_profile(sign_on *sso, sonde_diag *diag)
{
    const char *home = getenv("HOME");
    char name[SHA1_HEX];

    sso->session = sonde__s3_profile_value(sso->profile, "sso_session");
    sso->start = session_or_profile(sso, "sso_start_url");
    if (sso->session == NULL && sso->start == NULL) {
        return SONDE_ENOTFOUND;
    }
    sso->region = session_or_profile(sso, "sso_region");
    sso->account = sonde__s3_profile_value(sso->profile, "sso_account_id");
    sso->role = sonde__s3_profile_value(sso->profile, "sso_role_name");
    (void)snprintf(sso->where, sizeof sso->where, "single sign-on of profile %.100s",
                   sso->profile);
    if (sso->start == NULL || sso->region == NULL || sso->account == NULL ||
        sso->role == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, sso->where,
                           "sso_start_url, sso_region, sso_account_id and sso_role_name",
                           "%s is missing",
                           sso->start == NULL     ? "sso_start_url"
                           : sso->region == NULL  ? "sso_region"
                           : sso->account == NULL ? "sso_account_id"
                                                  : "sso_role_name");
    }
    sha1(sso->session != NULL ? sso->session : sso->start, name);
    (void)snprintf(sso->path, sizeof sso->path, "%s/.aws/sso/cache/%s.json",
                   home != NULL ? home : "", name);
    return SONDE_OK;
}

/* --- the token ---------------------------------------------------------------------- */

static sonde_err must_log_in(const sign_on *sso, const char *why, sonde_diag *diag)
{
    char help[256];

    (void)snprintf(help, sizeof help, "a login: aws sso login%s%.150s",
                   strcmp(sso->profile, "default") != 0 ? " --profile " : "",
                   strcmp(sso->profile, "default") != 0 ? sso->profile : "");
    return sonde__fail(diag, SONDE_EIO, sso->where, help, "%s", why);
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text != NULL ? text : "";
}

/* Writes the token's file in place of the old one, for its owner alone. */
static void save_token(const sign_on *sso)
{
    char part[PATH + 32];
    char *text = json_dumps(sso->token, 0);
    bool done = false;

    (void)snprintf(part, sizeof part, "%s.XXXXXX", sso->path);
    const int fd = text != NULL ? mkstemp(part) : -1;
    if (fd >= 0) {
        done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
        done = close(fd) == 0 && done;
        if (!done || rename(part, sso->path) != 0) {
            (void)unlink(part);
        }
    }
    free(text);
}

/* The object of an answer; NULL: it has none, or memory ran out. */
static json_t *read_body(const sonde__s3_answer *answer, bool *no_memory)
{
    return answer->body.length > 0
               ? sonde__json_read(answer->body.data, answer->body.length, 0, NULL,
                                  no_memory)
               : NULL;
}

/* Takes a new token from the answer. */
static bool take_token(const sign_on *sso, const sonde__s3_answer *answer)
{
    bool no_memory = false;
    json_t *fresh = read_body(answer, &no_memory);
    const char *access = text_of(fresh, "accessToken");
    const char *refresh = text_of(fresh, "refreshToken");
    const json_int_t life = json_integer_value(json_object_get(fresh, "expiresIn"));
    const time_t end = time(NULL) + (time_t)life;
    const bool good = answer->status == 200 && access[0] != '\0' && life > 0;
    struct tm utc = {0};
    char expires[40];

    if (good) {
        (void)gmtime_r(&end, &utc);
        (void)strftime(expires, sizeof expires, "%Y-%m-%dT%H:%M:%SZ", &utc);
        (void)json_object_set_new(sso->token, "accessToken", json_string(access));
        (void)json_object_set_new(sso->token, "expiresAt", json_string(expires));
        if (refresh[0] != '\0') {
            (void)json_object_set_new(sso->token, "refreshToken", json_string(refresh));
        }
        save_token(sso);
    }
    json_decref(fresh);
    return good;
}

/* A new token for the one that expires. */
static bool refresh_token(const sign_on *sso)
{
    static const sonde__s3_pair type = {"content-type", "application/json"};
    char *base = sonde__s3_service_url(sso->profile, "sso_oidc", "oidc", sso->region);
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s}", "clientId", text_of(sso->token, "clientId"),
                  "clientSecret", text_of(sso->token, "clientSecret"), "grantType",
                  "refresh_token", "refreshToken", text_of(sso->token, "refreshToken"));
    char *body = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    sonde_text url = {0};
    sonde__s3_call call = {.method = "POST",
                           .headers = &type,
                           .header_count = 1,
                           .body = body,
                           .most = MOST,
                           .stall = 10.0,
                           .connect = 5.0};
    sonde__s3_answer answer = {0};
    bool good = false;

    sonde_text_format(&url, "%s/token", base != NULL ? base : "");
    if (base != NULL && body != NULL && !url.failed) {
        call.url = url.data;
        call.size = strlen(body);
        sonde__s3_ask(sso->line, &call, &answer);
        good = take_token(sso, &answer);
    }
    sonde_text_fini(&url);
    sonde_text_fini(&answer.body);
    json_decref(object);
    free(body);
    sonde__free(base);
    return good;
}

static sonde_err find_token(sign_on *sso, sonde_diag *diag)
{
    const double now = (double)time(NULL);
    bool no_memory = false;

    sso->token = sonde__json_read_file(sso->path, &no_memory);
    if (no_memory) {
        return sonde__fail_nomem(diag, sso->where);
    }
    if (sso->token == NULL || text_of(sso->token, "accessToken")[0] == '\0') {
        return must_log_in(sso, "you are not logged in", diag);
    }
    const double expires = sonde__s3_time(text_of(sso->token, "expiresAt"));
    if (now > expires - SOON && text_of(sso->token, "refreshToken")[0] != '\0' &&
        refresh_token(sso)) {
        return SONDE_OK;
    }
    return now < expires ? SONDE_OK : must_log_in(sso, "the login has expired", diag);
}

/* --- the credentials ---------------------------------------------------------------- */

static sonde_err take(const sign_on *sso, const sonde__s3_answer *answer,
                      sonde__s3_keys *keys, sonde_diag *diag)
{
    bool no_memory = false;
    json_t *object = read_body(answer, &no_memory);
    const json_t *role = json_object_get(object, "roleCredentials");
    const json_int_t end = json_integer_value(json_object_get(role, "expiration"));
    const time_t seconds = (time_t)(end / 1000);
    struct tm utc = {0};
    char expires[40] = "", why[160];
    sonde_err err = SONDE_OK;

    if (no_memory) {
        err = sonde__fail_nomem(diag, sso->where);
    } else if (answer->status == 401) {
        err = must_log_in(sso, "the login is not valid", diag);
    } else if (answer->status != 200) {
        (void)snprintf(why, sizeof why, "the role %.60s of account %.40s", sso->role,
                       sso->account);
        err = sonde__s3_keys_refused(answer, sso->where, why, diag);
    } else {
        if (end > 0) {
            (void)gmtime_r(&seconds, &utc);
            (void)strftime(expires, sizeof expires, "%Y-%m-%dT%H:%M:%SZ", &utc);
        }
        err = sonde__s3_keys_take(
            keys, text_of(role, "accessKeyId"), text_of(role, "secretAccessKey"),
            text_of(role, "sessionToken"), expires, sso->where, diag);
    }
    json_decref(object);
    return err;
}

static sonde_err ask(const sign_on *sso, sonde__s3_keys *keys, sonde_diag *diag)
{
    const sonde__s3_pair header = {"x-amz-sso_bearer_token",
                                   text_of(sso->token, "accessToken")};
    char *base = sonde__s3_service_url(sso->profile, "sso", "portal.sso", sso->region);
    sonde_text url = {0};
    sonde__s3_call call = {.method = "GET",
                           .headers = &header,
                           .header_count = 1,
                           .most = MOST,
                           .stall = 10.0,
                           .connect = 5.0};
    sonde__s3_answer answer = {0};
    sonde_err err = SONDE_OK;

    sonde_text_format(&url,
                      "%s/federation/credentials?role_name=", base != NULL ? base : "");
    sonde__s3_encode(&url, sso->role, false);
    sonde_text_add(&url, "&account_id=");
    sonde__s3_encode(&url, sso->account, false);
    if (base == NULL || url.failed) {
        err = sonde__fail_nomem(diag, sso->where);
        goto done;
    }
    call.url = url.data;
    sonde__s3_ask(sso->line, &call, &answer);
    err = take(sso, &answer, keys, diag);

done:
    sonde_text_fini(&url);
    sonde_text_fini(&answer.body);
    sonde__free(base);
    return err;
}

sonde_err sonde__s3_keys_of_sso(sonde__s3_line *line, const char *profile,
                                sonde__s3_keys *keys, sonde_diag *diag)
{
    sign_on sso = {.line = line, .profile = profile};
    sonde_err err = read_profile(&sso, diag);

    if (err != SONDE_OK) {
        goto done;
    }
    SONDE__TRY_DONE(find_token(&sso, diag));
    err = ask(&sso, keys, diag);

done:
    fini(&sso);
    return err;
}
