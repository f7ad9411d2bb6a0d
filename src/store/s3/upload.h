/*
 * upload.h - files to objects, the large ones in parts. Internal.
 *
 * A memory is a file that holds the upload that is under way: its id, and the parts that
 * the store has. An upload that ends early, even with its process, continues there. One
 * memory serves one upload at a time.
 *
 *     <upload id>
 *     <size> <seconds>.<nanoseconds> <bytes of a part> <name>
 *     <number> <etag>                      for each part
 */
#ifndef SONDE_S3_UPLOAD_H
#define SONDE_S3_UPLOAD_H

#include "store/s3/objects.h"

/* A file, in several parts if it is larger than SONDE__S3_PART, or SONDE_S3_PART_BYTES.
 * memory: path of the memory; NULL: an upload that fails is aborted. */
sonde_err sonde__s3_put_file(sonde__s3_bucket *bucket, sonde__s3_line *line,
                             const char *name, const char *path, const char *memory,
                             sonde_diag *diag);
/* Aborts the upload that a memory holds, if there is one, and removes the memory. */
void sonde__s3_forget_upload(sonde__s3_bucket *bucket, sonde__s3_line *line,
                             const char *memory);
/* Aborts the uploads to names that begin with start, but for that of the memory: nobody
 * continues them. What fails is left. */
void sonde__s3_abort_others(sonde__s3_bucket *bucket, sonde__s3_line *line,
                            const char *start, const char *memory);

#endif
