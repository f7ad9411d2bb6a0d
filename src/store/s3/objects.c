/*
 * objects.c - see objects.h.
 */
#include "store/s3/objects.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "store/s3/http.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_ANSWER = 4 << 20, MOST_SMALL = 64 << 20 };
#define MOST_WHOLE ((uint64_t)64 << 20) /* before a range, from a store without ranges */

/* --- get ---------------------------------------------------------------------------- */

static void copy_etag(char etag[SONDE__S3_ETAG], const char *text)
{
    text += text[0] == '"' ? 1 : 0;
    const size_t length = SONDE_MIN(strcspn(text, "\""), (size_t)SONDE__S3_ETAG - 1);
    memmove(etag, text, length); /* text may be in etag */
    etag[length] = '\0';
}

/* "bytes 0-9/100": the size of the whole; 0: not said. */
static uint64_t whole_size(const sonde__s3_answer *answer)
{
    const char *slash = strchr(answer->range, '/');

    return slash != NULL ? strtoull(slash + 1, NULL, 10) : answer->length;
}

/* The answer to a range: 206 with that range, or 200 with the whole. */
static sonde_err take_range(const sonde__s3_bucket *bucket, const char *name,
                            uint64_t offset, size_t count, sonde__s3_answer *answer,
                            sonde_diag *diag)
{
    char where[256];
    const uint64_t begin =
        answer->status == 206 && strncmp(answer->range, "bytes ", 6) == 0
            ? strtoull(answer->range + 6, NULL, 10)
            : 0;
    const uint64_t whole = whole_size(answer);
    const uint64_t rest = whole - SONDE_MIN(whole, offset);

    if (answer->status == 200 && offset > 0) {
        const size_t cut = (size_t)SONDE_MIN(offset, (uint64_t)answer->body.length);

        memmove(answer->body.data, answer->body.data + cut, answer->body.length - cut);
        answer->body.length -= cut;
    } else if (begin != offset) {
        return sonde__fail(
            diag, SONDE_EIO, sonde__s3_where(bucket, name, where, 256), NULL,
            "the store answers with bytes from %" PRIu64 " on, not from %" PRIu64, begin,
            offset);
    }
    if (answer->body.length < SONDE_MIN(rest, (uint64_t)count)) {
        return sonde__fail(diag, SONDE_EIO, sonde__s3_where(bucket, name, where, 256),
                           NULL, "cut off: %zu bytes of %" PRIu64, answer->body.length,
                           SONDE_MIN(rest, (uint64_t)count));
    }
    answer->body.length = SONDE_MIN(answer->body.length, count);
    return SONDE_OK;
}

sonde_err sonde__s3_get(sonde__s3_bucket *bucket, sonde__s3_line *line, const char *name,
                        uint64_t offset, size_t count, sonde_text *body,
                        sonde__s3_object *object, sonde_diag *diag)
{
    char range[64];
    const sonde__s3_request request = {.method = "GET",
                                       .name = name,
                                       .header = {"range", range},
                                       .most = (size_t)SONDE_MIN(offset, MOST_WHOLE) +
                                               count + MOST_ANSWER};
    sonde__s3_answer answer = {.body = *body};

    (void)snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, offset,
                   offset + count - 1);
    sonde_err err = sonde__s3_send(bucket, line, &request, &answer, diag);
    if (answer.status == 416) { /* the object is empty, or ends before the range */
        answer.body.length = 0;
        err = SONDE_OK;
    } else if (err == SONDE_OK) {
        err = take_range(bucket, name, offset, count, &answer, diag);
    }
    *body = answer.body;
    SONDE__TRY(err);
    if (object != NULL) {
        copy_etag(object->etag, answer.etag);
        object->size = answer.status == 416 ? 0 : whole_size(&answer);
    }
    return SONDE_OK;
}

sonde_err sonde__s3_get_small(sonde__s3_bucket *bucket, sonde__s3_line *line,
                              const char *name, char etag[SONDE__S3_ETAG],
                              sonde_text *body, bool *changed, sonde_diag *diag)
{
    char quoted[SONDE__S3_ETAG + 2];
    sonde__s3_request request = {.method = "GET", .name = name, .most = MOST_SMALL};
    sonde__s3_answer answer = {.body = *body};

    if (etag != NULL && etag[0] != '\0') {
        (void)snprintf(quoted, sizeof quoted, "\"%.126s\"", etag);
        request.header = (sonde__s3_pair){"if-none-match", quoted};
    }
    const sonde_err err = sonde__s3_send(bucket, line, &request, &answer, diag);
    *body = answer.body;
    SONDE__TRY(err);
    if (changed != NULL) {
        *changed = answer.status != 304;
    }
    if (etag != NULL && answer.status != 304) {
        copy_etag(etag, answer.etag);
    }
    return SONDE_OK;
}

bool sonde__s3_is_missing(sonde_err err, const sonde_diag *diag)
{
    return err == SONDE_ENOTFOUND && strstr(diag->found, "NoSuchBucket") == NULL;
}

/* --- put ---------------------------------------------------------------------------- */

static sonde_err put(sonde__s3_bucket *bucket, sonde__s3_line *line,
                     const sonde__s3_request *request, sonde_diag *diag)
{
    sonde__s3_answer answer = {0};
    const sonde_err err = sonde__s3_send(bucket, line, request, &answer, diag);

    sonde_text_fini(&answer.body);
    return err;
}

sonde_err sonde__s3_put(sonde__s3_bucket *bucket, sonde__s3_line *line, const char *name,
                        const void *bytes, size_t size, sonde__s3_putting how,
                        sonde_diag *diag)
{
    const sonde__s3_request request = {
        .method = "PUT",
        .name = name,
        .header = {how == SONDE__S3_CREATE ? "if-none-match" : NULL, "*"},
        .body = size > 0 ? bytes : "",
        .size = size,
        .most = MOST_ANSWER,
        .tries = how == SONDE__S3_TRY ? 1 : 0};

    return put(bucket, line, &request, diag);
}

sonde_err sonde__s3_remove(sonde__s3_bucket *bucket, sonde__s3_line *line,
                           const char *name, sonde_diag *diag)
{
    const sonde__s3_request request = {
        .method = "DELETE", .name = name, .most = MOST_ANSWER};
    const sonde_err err = put(bucket, line, &request, diag);

    return err == SONDE_ENOTFOUND ? SONDE_OK : err;
}

/* --- list --------------------------------------------------------------------------- */

typedef struct listing {
    sonde__s3_bucket *bucket;
    sonde__s3_line *line;
    sonde__s3_seen *seen;
    void *user;
    sonde_diag *diag;
    size_t skip; /* letters of the prefix and its slash */
} listing;

void sonde__s3_unescape(char *text)
{
    char *out = text;

    for (; *text != '\0'; text++) {
        char hex[3] = {0};

        if (*text == '+') {
            *out++ = ' ';
        } else if (*text == '%' && text[1] != '\0' && text[2] != '\0') {
            memcpy(hex, text + 1, 2);
            *out++ = (char)strtoul(hex, NULL, 16);
            text += 2;
        } else {
            *out++ = *text;
        }
    }
    *out = '\0';
}

/* Reports the keys of one kind of element. */
static sonde_err see_all(const listing *list, const char *body, const char *element,
                         const char *key)
{
    char open[64];

    (void)snprintf(open, sizeof open, "<%s>", element);
    for (const char *row = strstr(body, open); row != NULL; row = strstr(row, open)) {
        char name[3 * SONDE__S3_NAME], number[32] = "";
        sonde__s3_object object = {.size = 0};
        const char *part = row;

        row += strlen(open);
        if (!sonde__s3_xml(&part, key, name, sizeof name)) {
            continue;
        }
        sonde__s3_unescape(name);
        part = row;
        if (sonde__s3_xml(&part, "ETag", object.etag, sizeof object.etag)) {
            copy_etag(object.etag, object.etag[0] == '"' ? object.etag + 1 : object.etag);
        }
        part = row;
        if (sonde__s3_xml(&part, "Size", number, sizeof number)) {
            object.size = strtoull(number, NULL, 10);
        }
        if (strlen(name) <= list->skip) {
            continue;
        }
        (void)snprintf(object.name, sizeof object.name, "%s", name + list->skip);
        SONDE__TRY(list->seen(list->user, &object, list->diag));
    }
    return SONDE_OK;
}

static sonde_err list_page(const listing *list, const sonde__s3_request *request,
                           char *token, size_t size)
{
    sonde__s3_answer answer = {0};
    char truncated[8] = "";
    sonde_err err =
        sonde__s3_send(list->bucket, list->line, request, &answer, list->diag);

    token[0] = '\0';
    if (err != SONDE_OK || answer.body.length == 0) {
        goto done;
    }
    SONDE__TRY_DONE(see_all(list, answer.body.data, "Contents", "Key"));
    SONDE__TRY_DONE(see_all(list, answer.body.data, "CommonPrefixes", "Prefix"));
    if (sonde__s3_xml_first(&answer.body, "IsTruncated", truncated, sizeof truncated) &&
        strcmp(truncated, "true") == 0) {
        (void)sonde__s3_xml_first(&answer.body, "NextContinuationToken", token, size);
    }

done:
    sonde_text_fini(&answer.body);
    return err;
}

sonde_err sonde__s3_list(sonde__s3_bucket *bucket, sonde__s3_line *line,
                         const char *start, const char *after, bool folders,
                         sonde__s3_seen *seen, void *user, sonde_diag *diag)
{
    const listing list = {
        bucket, line, seen,
        user,   diag, bucket->prefix[0] != '\0' ? strlen(bucket->prefix) + 1 : 0};
    sonde_text first = {0}, last = {0};
    char token[2048] = "";
    sonde_err err = SONDE_OK;

    sonde_text_format(&first, "%s%s%s", bucket->prefix, list.skip > 0 ? "/" : "", start);
    sonde_text_format(&last, "%s%s%s", bucket->prefix, list.skip > 0 ? "/" : "", after);
    if (first.failed || last.failed) {
        err = sonde__fail_nomem(diag, bucket->url);
        goto done;
    }
    do {
        sonde__s3_request request = {.method = "GET",
                                     .query = {{"list-type", "2"},
                                               {"encoding-type", "url"},
                                               {"prefix", first.data}},
                                     .query_count = 3,
                                     .most = MOST_ANSWER};
        char used[sizeof token];

        (void)snprintf(used, sizeof used, "%s", token);
        if (used[0] != '\0') {
            request.query[request.query_count++] =
                (sonde__s3_pair){"continuation-token", used};
        } else if (after[0] != '\0') {
            request.query[request.query_count++] =
                (sonde__s3_pair){"start-after", last.data};
        }
        if (folders) {
            request.query[request.query_count++] = (sonde__s3_pair){"delimiter", "/"};
        }
        SONDE__TRY_DONE(list_page(&list, &request, token, sizeof token));
    } while (token[0] != '\0');

done:
    sonde_text_fini(&first);
    sonde_text_fini(&last);
    return err;
}

sonde_err sonde__s3_exists(const char *url, const char *name, bool *out, sonde_diag *diag)
{
    sonde__s3_line line = {0};
    sonde__s3_bucket *bucket = NULL;
    sonde_text body = {0};
    sonde_diag why = {0};
    sonde_err err = sonde__s3_line_open(&line, url, diag);

    if (err != SONDE_OK) {
        goto done;
    }
    SONDE__TRY_DONE(sonde__s3_bucket_open(url, &line, &bucket, diag));
    err = sonde__s3_get(bucket, &line, name, 0, 1, &body, NULL, &why);
    if (err == SONDE_OK) {
        *out = true;
    } else if (sonde__s3_is_missing(err, &why)) {
        *out = false;
        err = SONDE_OK;
    } else if (diag != NULL) {
        *diag = why;
    }

done:
    sonde_text_fini(&body);
    sonde__s3_bucket_close(bucket);
    sonde__s3_line_close(&line);
    return err;
}
