/*
 * upload.h - files to objects, the large ones in parts. Internal.
 *
 * An upload in parts that fails is aborted; the next one of the file begins with its first
 * part, and aborts what an earlier process, or an outage, left in the store.
 */
#ifndef SONDE_S3_UPLOAD_H
#define SONDE_S3_UPLOAD_H

#include "store/s3/objects.h"

/* A file, in several parts if it is larger than SONDE__S3_PART, or SONDE_S3_PART_BYTES. */
sonde_err sonde__s3_put_file(sonde__s3_bucket *bucket, sonde__s3_line *line,
                             const char *name, const char *path, sonde_diag *diag);
/* Aborts the uploads to names that begin with start. What fails is left. */
void sonde__s3_abort_uploads(sonde__s3_bucket *bucket, sonde__s3_line *line,
                             const char *start);

#endif
