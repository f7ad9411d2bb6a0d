/*
 * http.c - see http.h.
 */
#include "store/s3/http.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/number.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void sonde__s3_begin_asking(sonde__store_progress *progress)
{
    if (progress != NULL) {
        (void)atomic_fetch_add(&progress->asking, 1);
        (void)atomic_fetch_add(&progress->turns, 1);
    }
}

void sonde__s3_end_asking(sonde__store_progress *progress)
{
    if (progress != NULL) {
        (void)atomic_fetch_add(&progress->turns, 1);
        (void)atomic_fetch_sub(&progress->asking, 1);
    }
}

sonde_err sonde__s3_line_open(sonde__s3_line *line, const char *where, sonde_diag *diag)
{
    line->curl = sonde__curl_load(where, diag);
    line->easy = line->curl != NULL ? line->curl->easy_init() : NULL;
    if (line->curl == NULL) {
        return SONDE_EUNSUPPORTED;
    }
    return line->easy != NULL ? SONDE_OK : sonde__fail_nomem(diag, "a connection");
}

void sonde__s3_line_close(sonde__s3_line *line)
{
    if (line->easy != NULL) {
        line->curl->easy_cleanup(line->easy);
        line->easy = NULL;
    }
}

/* --- what libcurl calls ------------------------------------------------------------- */

static size_t on_body(char *bytes, size_t size, size_t count, void *user)
{
    sonde__s3_answer *answer = user;
    const size_t n = size * count;

    if (n > answer->most - SONDE_MIN(answer->most, answer->body.length)) {
        return 0;
    }
    sonde_text_put(&answer->body, bytes, n);
    return answer->body.failed ? 0 : n;
}

static int on_progress(void *user, curl_off_t total, curl_off_t done, curl_off_t up_total,
                       curl_off_t up)
{
    const sonde__s3_call *call = user;

    (void)total;
    (void)done;
    (void)up_total;
    (void)up;
    return call->stop != NULL && atomic_load_explicit(call->stop, memory_order_relaxed)
               ? 1
               : 0;
}

/* Takes the value of a header line, if it has that name. */
static bool take_header(const char *line, size_t length, const char *name, char *value,
                        size_t room)
{
    const size_t n = strlen(name);
    size_t begin = n + 1, end = length;

    if (length <= n || line[n] != ':' || sonde__strncasecmp(line, name, n) != 0) {
        return false;
    }
    while (begin < end && isspace((unsigned char)line[begin])) {
        begin++;
    }
    while (end > begin && isspace((unsigned char)line[end - 1])) {
        end--;
    }
    (void)snprintf(value, room, "%.*s", (int)(end - begin), line + begin);
    return true;
}

static size_t on_header(char *bytes, size_t size, size_t count, void *user)
{
    sonde__s3_answer *answer = user;
    const size_t n = size * count;
    char value[64];

    if (take_header(bytes, n, "content-length", value, sizeof value)) {
        answer->length = strtoull(value, NULL, 10);
    } else if (take_header(bytes, n, "retry-after", value, sizeof value)) {
        answer->retry_after = sonde__strtod(value, NULL);
    } else {
        (void)(take_header(bytes, n, "etag", answer->etag, sizeof answer->etag) ||
               take_header(bytes, n, "x-amz-bucket-region", answer->region,
                           sizeof answer->region) ||
               take_header(bytes, n, "content-range", answer->range,
                           sizeof answer->range) ||
               take_header(bytes, n, "date", answer->date, sizeof answer->date));
    }
    return n;
}

/* --- a call ------------------------------------------------------------------------- */

static bool set_long(const sonde__s3_line *line, CURLoption option, long value)
{
    return line->curl->easy_setopt(line->easy, option, value) == CURLE_OK;
}

static bool set_pointer(const sonde__s3_line *line, CURLoption option, const void *value)
{
    return line->curl->easy_setopt(line->easy, option, value) == CURLE_OK;
}

static bool set_body(const sonde__s3_line *line, const sonde__s3_call *call)
{
    if (strcmp(call->method, "HEAD") == 0) {
        return set_long(line, CURLOPT_NOBODY, 1);
    }
    if (call->body != NULL &&
        (!set_pointer(line, CURLOPT_POSTFIELDS, call->body) ||
         line->curl->easy_setopt(line->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                                 (curl_off_t)call->size) != CURLE_OK)) {
        return false;
    }
    return set_pointer(line, CURLOPT_CUSTOMREQUEST, call->method);
}

static bool set_options(const sonde__s3_line *line, const sonde__s3_call *call,
                        sonde__s3_answer *answer)
{
    const char *authorities = getenv("AWS_CA_BUNDLE");

    return set_pointer(line, CURLOPT_URL, call->url) &&
           set_pointer(line, CURLOPT_ERRORBUFFER, answer->fault) &&
           set_pointer(line, CURLOPT_WRITEDATA, answer) &&
           set_pointer(line, CURLOPT_HEADERDATA, answer) &&
           set_pointer(line, CURLOPT_XFERINFODATA, call) &&
           line->curl->easy_setopt(line->easy, CURLOPT_WRITEFUNCTION, on_body) ==
               CURLE_OK &&
           line->curl->easy_setopt(line->easy, CURLOPT_HEADERFUNCTION, on_header) ==
               CURLE_OK &&
           line->curl->easy_setopt(line->easy, CURLOPT_XFERINFOFUNCTION, on_progress) ==
               CURLE_OK &&
           set_long(line, CURLOPT_NOPROGRESS, 0) && set_long(line, CURLOPT_NOSIGNAL, 1) &&
           set_long(line, CURLOPT_CONNECTTIMEOUT_MS, (long)(1000 * call->connect)) &&
           set_long(line, CURLOPT_LOW_SPEED_LIMIT, 1) &&
           set_long(line, CURLOPT_LOW_SPEED_TIME, (long)SONDE_MAX(call->stall, 1.0)) &&
           (authorities == NULL || authorities[0] == '\0' ||
            set_pointer(line, CURLOPT_CAINFO, authorities)) &&
           set_body(line, call);
}

/* NULL: out of memory. */
static struct curl_slist *make_headers(const sonde__s3_line *line,
                                       const sonde__s3_call *call)
{
    /* by default libcurl waits for "100 Continue", and declares the body a form */
    struct curl_slist *list = line->curl->slist_append(NULL, "Expect:");
    struct curl_slist *more = list;
    bool typed = false;

    for (size_t i = 0; i < call->header_count; i++) {
        typed = typed || strcmp(call->headers[i].name, "content-type") == 0;
    }
    if (more != NULL && !typed) {
        more = line->curl->slist_append(list, "Content-Type: application/octet-stream");
    }
    for (size_t i = 0; more != NULL && i < call->header_count; i++) {
        sonde_text text = {0};

        sonde_text_format(&text, "%s: %s", call->headers[i].name, call->headers[i].value);
        more = text.failed ? NULL : line->curl->slist_append(list, text.data);
        sonde_text_fini(&text);
    }
    if (more == NULL) {
        line->curl->slist_free_all(list);
        return NULL;
    }
    return list;
}

static void read_date(sonde__s3_answer *answer)
{
    struct tm when = {0};

    if (strptime(answer->date, "%a, %d %b %Y %H:%M:%S", &when) != NULL) {
        answer->later = difftime(timegm(&when), time(NULL));
    } else {
        answer->date[0] = '\0';
    }
}

void sonde__s3_line_call(sonde__s3_line *line, const sonde__s3_call *call,
                         sonde__s3_answer *answer)
{
    sonde_text body = answer->body;
    char error[CURL_ERROR_SIZE] = "";
    CURLcode code = CURLE_OUT_OF_MEMORY;

    _Static_assert(CURL_ERROR_SIZE <= sizeof answer->fault, "libcurl writes so much");
    body.length = 0;
    body.failed = false;
    *answer = (sonde__s3_answer){.body = body, .most = call->most};
    line->curl->easy_reset(line->easy);
    struct curl_slist *headers = make_headers(line, call);
    if (headers != NULL && set_options(line, call, answer) &&
        set_pointer(line, CURLOPT_HTTPHEADER, headers)) {
        code = line->curl->easy_perform(line->easy);
    }
    answer->untrusted = code == CURLE_SSL_CONNECT_ERROR ||
                        code == CURLE_PEER_FAILED_VERIFICATION ||
                        code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CERTPROBLEM;
    if (code == CURLE_OK) {
        (void)line->curl->easy_getinfo(line->easy, CURLINFO_RESPONSE_CODE,
                                       &answer->status);
    } else {
        (void)snprintf(error, sizeof error, "%s",
                       answer->fault[0] != '\0' ? answer->fault
                                                : line->curl->easy_strerror(code));
    }
    (void)snprintf(answer->fault, sizeof answer->fault, "%s", error);
    line->curl->slist_free_all(headers);
    read_date(answer);
}
