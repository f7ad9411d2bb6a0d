/*
 * bucket.c - see bucket.h.
 */
#include "store/s3/bucket.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "store/s3/profile.h"
#include "store/s3/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define LONGEST 5.0      /* seconds between two tries of a request */
#define RENEW_AGAIN 15.0 /* seconds after a renewal that failed */

/* --- where the bucket is ------------------------------------------------------------ */

static sonde_err bad_url(const char *url, sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EINVAL, url, "s3://bucket/prefix",
                       "not the address of a run in S3");
}

/* s3://name/prefix */
static sonde_err split_url(sonde__s3_bucket *bucket, const char *url, sonde_diag *diag)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    const bool ours = strncmp(url, "s3://", 5) == 0;
    const char *name = ours ? url + 5 : "";

    for (const char *letter = url; *letter != '\0'; letter++) {
        if ((unsigned char)*letter < ' ' || *letter == '\x7f') {
            return bad_url("S3", diag);
        }
    }
    if (!ours || strspn(name, letters) != strcspn(name, "/") || strcspn(name, "/") == 0) {
        return bad_url(url, diag);
    }
    const char *key = name + strcspn(name, "/");
    bucket->name = sonde__strndup(name, (size_t)(key - name));
    key += strspn(key, "/");
    size_t length = strlen(key);
    while (length > 0 && key[length - 1] == '/') {
        length--;
    }
    bucket->prefix = sonde__strndup(key, length);
    bucket->url =
        sonde__strndup(url, length > 0 ? (size_t)(key - url) + length
                                       : strlen("s3://") + strlen(bucket->name));
    return bucket->name != NULL && bucket->prefix != NULL && bucket->url != NULL
               ? SONDE_OK
               : sonde__fail_nomem(diag, url);
}

static sonde_err find_region(sonde__s3_bucket *bucket, sonde__s3_line *line,
                             sonde_diag *diag)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

    char *region = sonde__s3_region(sonde__s3_profile());

    if (region == NULL && bucket->keys.of_instance) {
        region = sonde__s3_keys_region(line);
    }
    (void)snprintf(bucket->region, sizeof bucket->region, "%s",
                   region != NULL ? region : "us-east-1");
    sonde__free(region);
    return strspn(bucket->region, letters) == strlen(bucket->region)
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EINVAL, "AWS_REGION", "such as eu-west-1",
                             "'%s'", bucket->region);
}

/* The endpoint of another store: scheme, host and perhaps a path. */
static sonde_err split_endpoint(sonde__s3_bucket *bucket, const char *endpoint,
                                sonde_diag *diag)
{
    const char *host = strstr(endpoint, "://");

    if (host == NULL || strspn(host + 3, "/?#") > 0 || host[3] == '\0' ||
        (strncmp(endpoint, "http://", 7) != 0 && strncmp(endpoint, "https://", 8) != 0)) {
        return sonde__fail(diag, SONDE_EINVAL, "AWS_ENDPOINT_URL",
                           "http://host:port or https://host", "'%s'", endpoint);
    }
    bucket->scheme = sonde__strndup(endpoint, (size_t)(host - endpoint));
    host += 3;
    size_t length = strcspn(host, "/");
    bucket->host = sonde__strndup(host, length);
    host += length;
    length = strcspn(host, "?#");
    while (length > 0 && host[length - 1] == '/') {
        length--;
    }
    bucket->root = sonde__strndup(host, length);
    bucket->own_endpoint = true;
    return SONDE_OK;
}

static sonde_err find_style(sonde__s3_bucket *bucket, sonde_diag *diag)
{
    const char *set = sonde__s3_variable("SONDE_S3_ADDRESSING");
    char *asked =
        set != NULL ? sonde__strdup(set)
                    : sonde__s3_profile_value(sonde__s3_profile(), "s3.addressing_style");
    sonde_err err = SONDE_OK;

    bucket->path_style = bucket->own_endpoint || strchr(bucket->name, '.') != NULL;
    if (asked != NULL && strcmp(asked, "auto") != 0) {
        bucket->path_style = strcmp(asked, "path") == 0;
        if (!bucket->path_style && strcmp(asked, "virtual") != 0) {
            err = sonde__fail(diag, SONDE_EINVAL, "SONDE_S3_ADDRESSING",
                              "path, virtual or auto", "'%.60s'", asked);
        }
    }
    sonde__free(asked);
    return err;
}

static sonde_err find_endpoint(sonde__s3_bucket *bucket, sonde_diag *diag)
{
    char *endpoint = sonde__s3_endpoint(sonde__s3_profile(), "s3");
    sonde_text host = {0};
    sonde_err err = SONDE_OK;

    if (endpoint != NULL) {
        err = split_endpoint(bucket, endpoint, diag);
        sonde__free(endpoint);
        if (err != SONDE_OK) {
            return err;
        }
    } else {
        sonde_text_format(&host, "s3.%s.%s", bucket->region,
                          sonde__s3_domain(bucket->region));
        bucket->root = sonde__strdup("");
        bucket->scheme = sonde__strdup("https");
        bucket->host = host.failed ? NULL : sonde__strdup(host.data);
        sonde_text_fini(&host);
    }
    if (bucket->scheme == NULL || bucket->host == NULL || bucket->root == NULL) {
        return sonde__fail_nomem(diag, bucket->url);
    }
    return find_style(bucket, diag);
}

sonde_err sonde__s3_bucket_open(const char *url, sonde__s3_line *line,
                                sonde__s3_bucket **out, sonde_diag *diag)
{
    sonde__s3_bucket *bucket = sonde__calloc(1, sizeof *bucket);
    sonde_err err = SONDE_OK;

    if (bucket == NULL) {
        return sonde__fail_nomem(diag, url);
    }
    (void)pthread_mutex_init(&bucket->lock, NULL);
    (void)pthread_mutex_init(&bucket->renewal, NULL);
    bucket->stall = 20.0;
    SONDE__TRY_GO(split_url(bucket, url, diag));
    SONDE__TRY_GO(sonde__s3_keys_find(line, &bucket->keys, diag));
    SONDE__TRY_GO(find_region(bucket, line, diag));
    SONDE__TRY_GO(find_endpoint(bucket, diag));
    *out = bucket;
    return SONDE_OK;

error:
    sonde__s3_bucket_close(bucket);
    return err;
}

void sonde__s3_bucket_close(sonde__s3_bucket *bucket)
{
    if (bucket == NULL) {
        return;
    }
    sonde__s3_keys_fini(&bucket->keys);
    sonde__free(bucket->url);
    sonde__free(bucket->name);
    sonde__free(bucket->prefix);
    sonde__free(bucket->scheme);
    sonde__free(bucket->host);
    sonde__free(bucket->root);
    (void)pthread_mutex_destroy(&bucket->lock);
    (void)pthread_mutex_destroy(&bucket->renewal);
    sonde__free(bucket);
}

const char *sonde__s3_where(const sonde__s3_bucket *bucket, const char *name, char *where,
                            size_t size)
{
    (void)snprintf(where, size, "%s%s%s", bucket->url,
                   name != NULL && name[0] != '\0' ? "/" : "", name != NULL ? name : "");
    return where;
}

/* --- one try ------------------------------------------------------------------------ */

/* One request while it is tried. */
typedef struct attempt {
    sonde__s3_bucket *bucket;
    sonde__s3_line *line;
    const sonde__s3_request *request;
    sonde__s3_answer *answer;
    char payload[SONDE__S3_HASH];
    char key[32];                /* with which it was signed */
    char code[96], message[192]; /* of the store */
    bool moved, timed, renewed;  /* region, clock, credentials were corrected */
} attempt;

static bool copy_keys(sonde__s3_bucket *bucket, sonde__s3_keys *keys)
{
    (void)pthread_mutex_lock(&bucket->lock);
    *keys = (sonde__s3_keys){
        .key = sonde__strdup(bucket->keys.key),
        .secret = sonde__strdup(bucket->keys.secret),
        .token = bucket->keys.token != NULL ? sonde__strdup(bucket->keys.token) : NULL};
    (void)pthread_mutex_unlock(&bucket->lock);
    return keys->key != NULL && keys->secret != NULL;
}

/* Whether it is time for new credentials. */
static bool is_due(sonde__s3_bucket *bucket)
{
    (void)pthread_mutex_lock(&bucket->lock);
    const bool due = sonde__s3_keys_are_old(&bucket->keys);
    (void)pthread_mutex_unlock(&bucket->lock);
    return due;
}

/* Takes new credentials; the old ones stay if there are none. */
static void renew_keys(sonde__s3_bucket *bucket, sonde__s3_line *line)
{
    sonde__s3_keys keys = {0};
    sonde_diag why = {0};
    const sonde_err err = sonde__s3_keys_find(line, &keys, &why);

    (void)pthread_mutex_lock(&bucket->lock);
    bucket->renewal_fault[0] = '\0';
    if (err == SONDE_OK) {
        sonde__s3_keys_fini(&bucket->keys);
        bucket->keys = keys;
    } else {
        char text[SONDE_DIAG_LINE];

        (void)snprintf(bucket->renewal_fault, sizeof bucket->renewal_fault, "%s",
                       sonde_diag_line(&why, text, sizeof text));
        sonde__s3_keys_renew_after(&bucket->keys, RENEW_AGAIN);
    }
    (void)pthread_mutex_unlock(&bucket->lock);
}

/* One thread renews; the others wait, and find it done. */
static void renew_old_keys(const attempt *try)
{
    if (!is_due(try->bucket)) {
        return;
    }
    (void)pthread_mutex_lock(&try->bucket->renewal);
    if (is_due(try->bucket)) {
        renew_keys(try->bucket, try->line);
    }
    (void)pthread_mutex_unlock(&try->bucket->renewal);
}

/* Path and host of the request. */
static void add_target(const attempt *try, sonde_text *path, sonde_text *host)
{
    const sonde__s3_bucket *bucket = try->bucket;
    const char *name = try->request->name;

    sonde_text_add(path, bucket->root);
    if (bucket->path_style) {
        sonde_text_format(path, "/%s", bucket->name);
        sonde_text_add(host, bucket->host);
    } else {
        sonde_text_format(host, "%s.%s", bucket->name, bucket->host);
    }
    if (name == NULL) {
        sonde_text_add(path, bucket->path_style ? "" : "/");
        return;
    }
    sonde_text_add(path, "/");
    if (bucket->prefix[0] != '\0') {
        sonde__s3_encode(path, bucket->prefix, true);
        sonde_text_add(path, "/");
    }
    sonde__s3_encode(path, name, true);
}

static void add_date(sonde__s3_bucket *bucket, char date[SONDE__S3_DATE], char region[64])
{
    struct tm utc = {0};
    time_t now = time(NULL);

    (void)pthread_mutex_lock(&bucket->lock);
    now += (time_t)bucket->skew;
    (void)snprintf(region, 64, "%s", bucket->region);
    (void)pthread_mutex_unlock(&bucket->lock);
    (void)gmtime_r(&now, &utc);
    (void)strftime(date, SONDE__S3_DATE, "%Y%m%dT%H%M%SZ", &utc);
}

typedef struct signed_texts {
    sonde_text path, host, url, authorization;
    char date[SONDE__S3_DATE], region[64];
} signed_texts;

/* Signs and sends. False: out of memory. */
static bool sign_and_call(attempt *try, const sonde__s3_keys *keys, signed_texts *texts)
{
    const sonde__s3_request *request = try->request;
    sonde__s3_signing signing = {.method = request->method,
                                 .query_count = request->query_count,
                                 .payload = try->payload,
                                 .date = texts->date,
                                 .region = texts->region,
                                 .service = "s3",
                                 .key = keys->key,
                                 .secret = keys->secret};
    sonde__s3_pair headers[SONDE__S3_PAIRS + 2];
    sonde__s3_call call = {.method = request->method,
                           .body = request->body,
                           .size = request->size,
                           .most = request->most,
                           .stall = try->bucket->stall,
                           .connect = 10.0,
                           .stop = try->bucket->stop};

    memcpy(signing.query, request->query, sizeof signing.query);
    add_target(try, &texts->path, &texts->host);
    add_date(try->bucket, texts->date, texts->region);
    signing.headers[signing.header_count++] = (sonde__s3_pair){"host", texts->host.data};
    signing.headers[signing.header_count++] =
        (sonde__s3_pair){"x-amz-content-sha256", try->payload};
    signing.headers[signing.header_count++] = (sonde__s3_pair){"x-amz-date", texts->date};
    if (keys->token != NULL) {
        signing.headers[signing.header_count++] =
            (sonde__s3_pair){"x-amz-security-token", keys->token};
    }
    if (texts->path.failed || texts->host.failed) {
        return false;
    }
    signing.path = texts->path.data;
    sonde__s3_sign(&texts->authorization, &signing);
    sonde_text_format(&texts->url, "%s://%s%s%s", try->bucket->scheme, texts->host.data,
                      texts->path.data, signing.query_count > 0 ? "?" : "");
    sonde__s3_query(&texts->url, &signing);
    if (texts->url.failed || texts->authorization.failed) {
        return false;
    }
    memcpy(headers, signing.headers, sizeof signing.headers);
    size_t count = signing.header_count;
    headers[count++] = (sonde__s3_pair){"authorization", texts->authorization.data};
    if (request->header.name != NULL) {
        headers[count++] = request->header;
    }
    call.headers = headers;
    call.header_count = count;
    call.url = texts->url.data;
    sonde__s3_line_call(try->line, &call, try->answer);
    return true;
}

static bool try_once(attempt *try)
{
    sonde__s3_keys keys = {0};
    signed_texts texts = {0};

    renew_old_keys(try);
    bool done = copy_keys(try->bucket, &keys);
    (void)snprintf(try->key, sizeof try->key, "%s", done ? keys.key : "");
    done = done && sign_and_call(try, &keys, &texts);
    sonde__s3_keys_fini(&keys);
    sonde_text_fini(&texts.path);
    sonde_text_fini(&texts.host);
    sonde_text_fini(&texts.url);
    sonde_text_fini(&texts.authorization);
    try->code[0] = try->message[0] = '\0';
    if (done && try->answer->status >= 300) {
        const sonde_text *body = &try->answer->body;

        (void)sonde__s3_xml_first(body, "Code", try->code, sizeof try->code);
        (void)sonde__s3_xml_first(body, "Message", try->message, sizeof try->message);
    }
    return done;
}

/* --- correcting --------------------------------------------------------------------- */

/* Follows the store to the region that it names. */
static bool mend_region(attempt *try)
{
    sonde__s3_bucket *bucket = try->bucket;
    const long status = try->answer->status;
    char region[64];

    if (try->moved || (status != 301 && status != 307 && status != 400)) {
        return false;
    }
    (void)snprintf(region, sizeof region, "%s", try->answer->region);
    if (region[0] == '\0' &&
        !sonde__s3_xml_first(&try->answer->body, "Region", region, sizeof region)) {
        return false;
    }
    (void)pthread_mutex_lock(&bucket->lock);
    (void)snprintf(bucket->region, sizeof bucket->region, "%s", region);
    if (!bucket->own_endpoint) {
        sonde_text host = {0};
        char *copy = NULL;

        sonde_text_format(&host, "s3.%s.%s", region, sonde__s3_domain(region));
        copy = host.failed ? NULL : sonde__strdup(host.data);
        sonde_text_fini(&host);
        if (copy != NULL) {
            sonde__free(bucket->host);
            bucket->host = copy;
        }
    }
    (void)pthread_mutex_unlock(&bucket->lock);
    try->moved = true;
    return true;
}

static bool mend_clock(attempt *try)
{
    if (try->timed || strcmp(try->code, "RequestTimeTooSkewed") != 0 ||
        try->answer->date[0] == '\0') {
        return false;
    }
    (void)pthread_mutex_lock(&try->bucket->lock);
    try->bucket->skew = try->answer->later;
    (void)pthread_mutex_unlock(&try->bucket->lock);
    try->timed = true;
    return true;
}

static bool mend_keys(attempt *try)
{
    static const char *const codes[] = {"ExpiredToken", "InvalidAccessKeyId",
                                        "InvalidToken", "TokenRefreshRequired"};

    for (size_t i = 0; i < SONDE_COUNT_OF(codes) && !try->renewed; i++) {
        if (strcmp(try->code, codes[i]) == 0) {
            (void)pthread_mutex_lock(&try->bucket->renewal);
            if (strcmp(try->key, try->bucket->keys.key) ==
                0) { /* not renewed meanwhile */
                renew_keys(try->bucket, try->line);
            }
            (void)pthread_mutex_unlock(&try->bucket->renewal);
            try->renewed = true;
            return true;
        }
    }
    return false;
}

static bool is_transient(const attempt *try)
{
    const long status = try->answer->status;

    return status == 0 || status == 408 || status == 429 || status >= 500 ||
           strcmp(try->code, "RequestTimeout") == 0 || strcmp(try->code, "SlowDown") == 0;
}

static bool is_stopped(const sonde__s3_bucket *bucket)
{
    return bucket->stop != NULL &&
           atomic_load_explicit(bucket->stop, memory_order_relaxed);
}

/* Sleeps before try number n + 1, or until stopped. */
static void wait_for(const attempt *try, int n)
{
    const double most = SONDE_MIN(0.1 * (double)(1u << SONDE_MIN(n, 10)),
                                  sonde__s3_setting("SONDE_S3_LONGEST_WAIT", LONGEST));
    unsigned lot = 0;

    (void)!getrandom(&lot, sizeof lot, GRND_NONBLOCK);
    double left = most * (0.5 + 0.5 * (double)lot / 4294967295.0);
    left = SONDE_MAX(left, SONDE_MIN(try->answer->retry_after, 30.0));
    for (; left > 0.0 && !is_stopped(try->bucket); left -= 0.05) {
        const struct timespec nap = {0, (long)(1e9 * SONDE_MIN(left, 0.05))};

        (void)nanosleep(&nap, NULL);
    }
}

/* --- failing ------------------------------------------------------------------------ */

/* Writes to expected what would help. */
static void advise(attempt *try, char *expected, size_t size)
{
    sonde__s3_bucket *bucket = try->bucket;
    const char *code = try->code;

    (void)pthread_mutex_lock(&bucket->lock);
    if (try->answer->untrusted) {
        (void)snprintf(expected, size,
                       "TLS at %s://%s, with a certificate that AWS_CA_BUNDLE or the "
                       "system trusts",
                       bucket->scheme, bucket->host);
    } else if (try->answer->status == 0) {
        (void)snprintf(expected, size, "a store at %s://%s%s%s", bucket->scheme,
                       bucket->path_style ? "" : bucket->name,
                       bucket->path_style ? "" : ".", bucket->host);
    } else if (strcmp(code, "NoSuchBucket") == 0) {
        (void)snprintf(expected, size, "a bucket at %s://%s", bucket->scheme,
                       bucket->host);
    } else if (strcmp(code, "RequestTimeTooSkewed") == 0) {
        (void)snprintf(expected, size, "a clock that is right; it is %.0f s behind",
                       try->answer->later);
    } else if (bucket->renewal_fault[0] != '\0') {
        (void)snprintf(expected, size, "new credentials: %.*s", (int)size - 20,
                       bucket->renewal_fault);
    } else if (strcmp(code, "SignatureDoesNotMatch") == 0) {
        (void)snprintf(expected, size, "the secret of key %.8s..., from %s",
                       bucket->keys.key, bucket->keys.source);
    } else if (try->answer->status == 401 || try->answer->status == 403) {
        (void)snprintf(expected, size, "leave to %s for key %.8s..., from %s",
                       try->request->method, bucket->keys.key, bucket->keys.source);
    } else if (try->answer->status == 301 || try->answer->status == 307 ||
               strcmp(code, "AuthorizationHeaderMalformed") == 0) {
        (void)snprintf(expected, size, "AWS_REGION of the bucket, not %s",
                       bucket->region);
    } else {
        expected[0] = '\0';
    }
    (void)pthread_mutex_unlock(&bucket->lock);
}

static sonde_err fail(attempt *try, int tries, sonde_diag *diag)
{
    const long status = try->answer->status;
    const sonde_err err = status == 404                    ? SONDE_ENOTFOUND
                          : status == 409 || status == 412 ? SONDE_EEXIST
                          : is_transient(try)              ? SONDE_ETIMEOUT
                                                           : SONDE_EIO;
    char where[256], expected[256], after[32] = "";

    (void)sonde__s3_where(try->bucket, try->request->name, where, sizeof where);
    advise(try, expected, sizeof expected);
    if (tries > 1) {
        (void)snprintf(after, sizeof after, " after %d tries", tries);
    }
    if (status == 0) {
        return sonde__fail(diag, err, where, expected, "no answer to %s%s: %s",
                           try->request->method, after, try->answer->fault);
    }
    if (status == 404 && strcmp(try->code, "NoSuchBucket") != 0) {
        return sonde__fail(diag, err, where, expected, "there is no such object");
    }
    return sonde__fail(diag, err, where, expected, "%s is answered by HTTP %ld%s%s%s%s%s",
                       try->request->method, status, after,
                       try->code[0] != '\0' ? ": " : "", try->code,
                       try->message[0] != '\0' ? ", " : "", try->message);
}

static sonde_err send_request(sonde__s3_bucket *bucket, sonde__s3_line *line,
                              const sonde__s3_request *request, sonde__s3_answer *answer,
                              sonde_diag *diag)
{
    attempt try = {.bucket = bucket, .line = line, .request = request, .answer = answer};
    const int tries = request->tries > 0 ? request->tries : SONDE__S3_TRIES;
    sonde__s3_answer empty = {.body = answer->body};

    *answer = empty;
    sonde__s3_hash(request->body, request->size, try.payload);
    for (int n = 0;;) {
        if (!try_once(&try)) {
            return sonde__fail_nomem(diag, bucket->url);
        }
        if ((answer->status >= 200 && answer->status < 300) || answer->status == 304) {
            (void)atomic_fetch_add_explicit(&bucket->answered, 1, memory_order_relaxed);
            return SONDE_OK;
        }
        if (is_stopped(bucket)) {
            return sonde__fail(diag, SONDE_EINTERRUPTED, bucket->url, NULL, "stopped");
        }
        if (mend_region(&try) || mend_clock(&try) || mend_keys(&try)) {
            continue;
        }
        n++;
        if (!is_transient(&try) || n == tries || answer->untrusted) {
            return fail(&try, n, diag);
        }
        wait_for(&try, n - 1);
    }
}

sonde_err sonde__s3_send(sonde__s3_bucket *bucket, sonde__s3_line *line,
                         const sonde__s3_request *request, sonde__s3_answer *answer,
                         sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    sonde__s3_begin_asking(line->progress);
    err = send_request(bucket, line, request, answer, diag);
    sonde__s3_end_asking(line->progress);
    return err;
}
