/*
 * objects.h - objects of a bucket by their names below the prefix: get, put, list,
 * remove. Internal.
 */
#ifndef SONDE_S3_OBJECTS_H
#define SONDE_S3_OBJECTS_H

#include "store/s3/bucket.h"

enum { SONDE__S3_NAME = 1025, SONDE__S3_ETAG = 128 };
#define SONDE__S3_PART ((size_t)16 << 20) /* bytes of one request, at most */

/* Decodes %XX and '+' in place. */
void sonde__s3_unescape(char *text);

typedef struct sonde__s3_object {
    char name[SONDE__S3_NAME];
    char etag[SONDE__S3_ETAG];
    uint64_t size;
} sonde__s3_object;

/* Replaces the content of body by bytes [offset, offset + count) of an object, fewer at
 * its end; count at most SONDE__S3_PART. object, unless NULL: etag and size of the whole. */
sonde_err sonde__s3_get(sonde__s3_bucket *bucket, sonde__s3_line *line, const char *name,
                        uint64_t offset, size_t count, sonde_text *body,
                        sonde__s3_object *object, sonde_diag *diag);
/* A small object whole. etag: "", or that of a known version: then body is filled only
 * if the store has another, and *changed is set. Both may be NULL. */
sonde_err sonde__s3_get_small(sonde__s3_bucket *bucket, sonde__s3_line *line,
                              const char *name, char etag[SONDE__S3_ETAG],
                              sonde_text *body, bool *changed, sonde_diag *diag);
typedef enum sonde__s3_putting {
    SONDE__S3_REPLACE,
    SONDE__S3_CREATE, /* SONDE_EEXIST if there is such an object */
    SONDE__S3_TRY     /* one request: it is sent again soon */
} sonde__s3_putting;
sonde_err sonde__s3_put(sonde__s3_bucket *bucket, sonde__s3_line *line, const char *name,
                        const void *bytes, size_t size, sonde__s3_putting how,
                        sonde_diag *diag);
/* Whether there is an object of that name below an address; asked on a connection of its own. */
sonde_err sonde__s3_exists(const char *url, const char *name, bool *out,
                           sonde_diag *diag);
/* Whether err means that the bucket lacks the object, not that there is no bucket. */
bool sonde__s3_is_missing(sonde_err err, const sonde_diag *diag);
/* SONDE_OK also if there is none. */
sonde_err sonde__s3_remove(sonde__s3_bucket *bucket, sonde__s3_line *line,
                           const char *name, sonde_diag *diag);

/* Any error ends the list. */
typedef sonde_err sonde__s3_seen(void *user, const sonde__s3_object *object,
                                 sonde_diag *diag);
/* Calls seen for the objects whose names begin with start and sort after `after` ("":
 * all), in the order of their bytes. folders: names with a '/' after start are reported
 * as one folder, "start.../", without size. */
sonde_err sonde__s3_list(sonde__s3_bucket *bucket, sonde__s3_line *line,
                         const char *start, const char *after, bool folders,
                         sonde__s3_seen *seen, void *user, sonde_diag *diag);

/* --- upload.c: files to objects, the large ones in parts ----------------------------- */

/* An upload in parts that fails is aborted; the next one of the file begins with its first
 * part, and aborts what an earlier process, or an outage, left in the store. */

/* A file, in several parts if it is larger than SONDE__S3_PART, or SONDE_S3_PART_BYTES. */
sonde_err sonde__s3_put_file(sonde__s3_bucket *bucket, sonde__s3_line *line,
                             const char *name, const char *path, sonde_diag *diag);
/* Aborts the uploads to names that begin with start. What fails is left. */
void sonde__s3_abort_uploads(sonde__s3_bucket *bucket, sonde__s3_line *line,
                             const char *start);

#endif
