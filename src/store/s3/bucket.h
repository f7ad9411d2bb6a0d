/*
 * bucket.h - signed requests to a prefix of a bucket, repeated until they are answered.
 * Internal.
 *
 * Several threads may use a bucket, each with a line of its own. A request without a
 * complete answer, or with HTTP 408, 429 or 5xx, is repeated after waits that double from
 * 0.1 s; each wait is a random part between half and all of that. A request is repeated
 * once without a wait in another region, if the store names one; with the store's clock,
 * if ours is wrong; with fresh credentials, if the store refuses ours.
 */
#ifndef SONDE_S3_BUCKET_H
#define SONDE_S3_BUCKET_H

#include "store/s3/keys.h"

#include <pthread.h>
#include <stdint.h>

enum { SONDE__S3_TRIES = 6 };

typedef struct sonde__s3_bucket {
    char *url;           /* s3://bucket/prefix, as given but for slashes at its end */
    char *name, *prefix; /* prefix: "" or without slashes at its ends */
    char *scheme, *host; /* of the endpoint; host with its port */
    char *root;          /* path of the endpoint: "", or "/path" */
    bool own_endpoint;   /* not AWS's */
    bool path_style;     /* host/bucket/key, else bucket.host/key */
    double stall;        /* seconds without a byte after which a request is repeated */
    const atomic_bool *stop; /* set: requests end early; NULL: never */
    atomic_uint answered;    /* requests with success */
    pthread_mutex_t lock;    /* of what follows */
    char region[64];
    double skew; /* seconds by which the store's clock is ahead */
    sonde__s3_keys keys;
    char renewal_fault[512]; /* why there are no new credentials; "": there are */
    pthread_mutex_t renewal; /* held by the thread that finds new credentials */
} sonde__s3_bucket;

/* Finds region, endpoint and credentials. url: s3://bucket/prefix. */
sonde_err sonde__s3_bucket_open(const char *url, sonde__s3_line *line,
                                sonde__s3_bucket **out, sonde_diag *diag);
void sonde__s3_bucket_close(sonde__s3_bucket *bucket);

typedef struct sonde__s3_request {
    const char *method;
    const char *name; /* below the prefix; NULL: the bucket itself */
    sonde__s3_pair query[SONDE__S3_PAIRS];
    size_t query_count;
    sonde__s3_pair header; /* not signed; without a name: none */
    const void *body;
    size_t size;
    size_t most; /* bytes of the answer */
    int tries;   /* 0: SONDE__S3_TRIES */
} sonde__s3_request;

/* SONDE_OK for 2xx and 304. SONDE_ENOTFOUND: 404. SONDE_EEXIST: 412 and 409, a condition
 * does not hold. SONDE_ETIMEOUT: no answer, or 5xx, each time. SONDE_EINTERRUPTED:
 * stopped. */
sonde_err sonde__s3_send(sonde__s3_bucket *bucket, sonde__s3_line *line,
                         const sonde__s3_request *request, sonde__s3_answer *answer,
                         sonde_diag *diag);
/* "s3://bucket/prefix/name" to where. Returns where. */
const char *sonde__s3_where(const sonde__s3_bucket *bucket, const char *name, char *where,
                            size_t size);

#endif
