/*
 * http.h - one HTTP request over libcurl. Internal.
 *
 * A line is a connection that several requests use; one thread at a time. Bodies are in
 * memory: larger objects are sent in parts.
 */
#ifndef SONDE_S3_HTTP_H
#define SONDE_S3_HTTP_H

#include "base/curl.h"
#include "store/s3/sign.h"
#include "storage/store.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sonde/text.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct sonde__s3_line {
    const sonde__curl *curl;
    CURL *easy;
    sonde__store_progress *progress; /* counts requests; NULL: they are not counted */
} sonde__s3_line;

typedef struct sonde__s3_call {
    const char *method, *url;
    const sonde__s3_pair *headers;
    size_t header_count;
    const void *body; /* NULL: none */
    size_t size;
    size_t most;             /* bytes of the answer that are accepted */
    double stall, connect;   /* seconds without a byte; seconds to connect */
    const atomic_bool *stop; /* set: the call ends early; NULL: never */
} sonde__s3_call;

typedef struct sonde__s3_answer {
    long status;     /* of HTTP; 0: there is no complete answer */
    char fault[256]; /* the reason, if status is 0 */
    bool untrusted;  /* then: TLS or its certificates failed */
    sonde_text body; /* freed by the caller */
    char etag[128], region[64], date[64], range[96];
    uint64_t length; /* as the header says */
    double retry_after;
    double later; /* seconds by which the clock of the server is ahead; if date is set */
    size_t most;
} sonde__s3_answer;

/* Around a request with its tries; NULL is fine. */
void sonde__s3_begin_asking(sonde__store_progress *progress);
void sonde__s3_end_asking(sonde__store_progress *progress);
/* SONDE_EUNSUPPORTED: libcurl is not installed. */
sonde_err sonde__s3_line_open(sonde__s3_line *line, const char *where, sonde_diag *diag);
void sonde__s3_line_close(sonde__s3_line *line);
/* Fills answer; its body, empty or of an earlier call, is used again. */
void sonde__s3_line_call(sonde__s3_line *line, const sonde__s3_call *call,
                         sonde__s3_answer *answer);

/* --- xml.c: the texts of elements in the answers of AWS --------------------------------- */

/* Without attributes, and with no nesting of an element in itself. */

/* Copies the text between the next <tag> and </tag> to value, with entities decoded, and
 * moves *place (in a NUL-terminated text) past them. False: there is none. */
bool sonde__s3_xml(const char **place, const char *tag, char *value, size_t size);
/* The first one of a body, which may be empty. */
bool sonde__s3_xml_first(const sonde_text *body, const char *tag, char *value,
                         size_t size);

#endif
