/*
 * sign.h - AWS Signature Version 4 of a request without a chunked body. Internal.
 *
 * https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
 *
 *     canonical request = method, path, sorted query, headers, signed headers, payload hash
 *     string to sign    = algorithm, date, scope, SHA-256 of that
 *     signature         = HMAC by the key derived from secret, day, region, service
 */
#ifndef SONDE_S3_SIGN_H
#define SONDE_S3_SIGN_H

#include <sonde/text.h>

#include <stdbool.h>
#include <stddef.h>

enum { SONDE__S3_DATE = 17, SONDE__S3_PAIRS = 8, SONDE__S3_HASH = 65 };

#define SONDE__S3_UNSIGNED "UNSIGNED-PAYLOAD"

/* A parameter of a query, or a header. Names of headers are in lower case. */
typedef struct sonde__s3_pair {
    const char *name, *value;
} sonde__s3_pair;

typedef struct sonde__s3_signing {
    const char *method;
    const char *path;                        /* as sent: percent-encoded */
    sonde__s3_pair query[SONDE__S3_PAIRS];   /* not encoded */
    sonde__s3_pair headers[SONDE__S3_PAIRS]; /* all that are signed, host included */
    size_t query_count, header_count;
    const char *payload; /* the hash in hexadecimal digits, or SONDE__S3_UNSIGNED */
    const char *date;    /* 20150830T123600Z */
    const char *region, *service;
    const char *key, *secret;
} sonde__s3_signing;

/* SHA-256 in hexadecimal digits. */
void sonde__s3_hash(const void *bytes, size_t size, char hex[SONDE__S3_HASH]);
/* Appends text percent-encoded as S3 wants it; a '/' stays if slashes. */
void sonde__s3_encode(sonde_text *out, const char *text, bool slashes);
/* Appends the query, sorted and encoded; sorts request->query. */
void sonde__s3_query(sonde_text *out, sonde__s3_signing *request);
/* Appends the value of the header Authorization. Sorts query and headers. */
void sonde__s3_sign(sonde_text *out, sonde__s3_signing *request);

#endif
