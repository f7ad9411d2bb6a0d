/*
 * upload.c - files to objects; see objects.h.
 */
#include "store/s3/objects.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "store/s3/profile.h"
#include "store/s3/http.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_ANSWER = 4 << 20, MOST_PARTS = 10000 };

typedef struct upload {
    sonde__s3_bucket *bucket;
    sonde__s3_line *line;
    const char *name;
    char id[512];
    sonde_text parts; /* XML */
    uint64_t part;    /* bytes of one */
    int fd;           /* of the file at path */
    const char *path;
    unsigned char *piece; /* one part, or all of a small file */
    uint64_t size;        /* of the file */
    sonde_diag *diag;
} upload;

/* --- requests ----------------------------------------------------------------------- */

static sonde_err begin_upload(upload *up)
{
    const sonde__s3_request request = {.method = "POST",
                                       .name = up->name,
                                       .query = {{"uploads", ""}},
                                       .query_count = 1,
                                       .body = "",
                                       .most = MOST_ANSWER};
    sonde__s3_answer answer = {0};
    char where[256];
    sonde_err err = sonde__s3_send(up->bucket, up->line, &request, &answer, up->diag);

    if (err != SONDE_OK) {
        goto done;
    }
    if (!sonde__s3_xml_first(&answer.body, "UploadId", up->id, sizeof up->id)) {
        err = sonde__fail(up->diag, SONDE_EIO,
                          sonde__s3_where(up->bucket, up->name, where, sizeof where),
                          "an UploadId", "the store starts no upload in parts");
    }

done:
    sonde_text_fini(&answer.body);
    return err;
}

static sonde_err put_part(upload *up, int number, const void *bytes, size_t size)
{
    char text[16];
    const sonde__s3_request request = {
        .method = "PUT",
        .name = up->name,
        .query = {{"partNumber", text}, {"uploadId", up->id}},
        .query_count = 2,
        .body = bytes,
        .size = size,
        .most = MOST_ANSWER};
    sonde__s3_answer answer = {0};
    sonde_err err = SONDE_OK;

    (void)snprintf(text, sizeof text, "%d", number);
    SONDE__TRY_DONE(sonde__s3_send(up->bucket, up->line, &request, &answer, up->diag));
    sonde_text_format(&up->parts,
                      "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", number,
                      answer.etag);

done:
    sonde_text_fini(&answer.body);
    return err;
}

/* An error may come with status 200. */
static sonde_err end_upload(upload *up)
{
    sonde__s3_request request = {.method = "POST",
                                 .name = up->name,
                                 .query = {{"uploadId", up->id}},
                                 .query_count = 1,
                                 .most = MOST_ANSWER};
    sonde__s3_answer answer = {0};
    char code[96] = "", where[256];
    sonde_err err = SONDE_OK;

    sonde_text_add(&up->parts, "</CompleteMultipartUpload>");
    if (up->parts.failed) {
        return sonde__fail_nomem(up->diag, up->name);
    }
    request.body = up->parts.data;
    request.size = up->parts.length;
    SONDE__TRY_DONE(sonde__s3_send(up->bucket, up->line, &request, &answer, up->diag));
    if (answer.body.length > 0 && strstr(answer.body.data, "<Error>") != NULL &&
        sonde__s3_xml_first(&answer.body, "Code", code, sizeof code)) {
        err = sonde__fail(up->diag, SONDE_EIO,
                          sonde__s3_where(up->bucket, up->name, where, sizeof where),
                          NULL, "the upload in parts cannot be completed: %s", code);
    }

done:
    sonde_text_fini(&answer.body);
    return err;
}

static void abort_upload(sonde__s3_bucket *bucket, sonde__s3_line *line, const char *name,
                         const char *id)
{
    const sonde__s3_request request = {.method = "DELETE",
                                       .name = name,
                                       .query = {{"uploadId", id}},
                                       .query_count = 1,
                                       .most = MOST_ANSWER,
                                       .tries = 1};
    sonde__s3_answer answer = {0};

    (void)sonde__s3_send(bucket, line, &request, &answer, NULL);
    sonde_text_fini(&answer.body);
}

/* --- a file ------------------------------------------------------------------------- */

/* Reads a part into memory: a mapping of a file that becomes shorter, or whose disk
 * fails, would end the process. */
static sonde_err read_piece(const upload *up, uint64_t begin, size_t size)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n =
            pread(up->fd, up->piece + done, size - done, (off_t)(begin + done));

        if (n == 0) {
            return sonde__fail(up->diag, SONDE_EIO, up->path, NULL,
                               "it was cut off while it was read");
        }
        if (n < 0 && errno != EINTR) {
            return sonde__fail_errno(up->diag, up->path, "cannot be read");
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return SONDE_OK;
}

static sonde_err put_parts(upload *up)
{
    sonde__s3_abort_uploads(up->bucket, up->line, up->name);
    SONDE__TRY(begin_upload(up));
    sonde_text_add(&up->parts, "<CompleteMultipartUpload>");
    sonde_err err = SONDE_OK;
    for (uint64_t begin = 0; begin < up->size && err == SONDE_OK; begin += up->part) {
        const size_t count = (size_t)SONDE_MIN(up->part, up->size - begin);

        err = read_piece(up, begin, count);
        if (err == SONDE_OK) {
            err = put_part(up, (int)(begin / up->part) + 1, up->piece, count);
        }
    }
    if (err == SONDE_OK) {
        err = end_upload(up);
    }
    if (err != SONDE_OK) {
        abort_upload(up->bucket, up->line, up->name, up->id);
    }
    return err;
}

/* Bytes of a part of a file of this size. */
static uint64_t part_size(uint64_t size)
{
    const char *text = sonde__s3_variable("SONDE_S3_PART_BYTES");
    const uint64_t asked = text != NULL ? strtoull(text, NULL, 10) : 0;
    const uint64_t usual =
        asked > 0 ? SONDE_MIN(asked, (uint64_t)SONDE__S3_PART) : SONDE__S3_PART;

    return SONDE_MAX(usual, size / MOST_PARTS + 1);
}

static sonde_err put_whole(upload *up)
{
    SONDE__TRY(read_piece(up, 0, (size_t)up->size));
    return sonde__s3_put(up->bucket, up->line, up->name, up->piece, (size_t)up->size,
                         SONDE__S3_REPLACE, up->diag);
}

sonde_err sonde__s3_put_file(sonde__s3_bucket *bucket, sonde__s3_line *line,
                             const char *name, const char *path, sonde_diag *diag)
{
    upload up = {.bucket = bucket,
                 .line = line,
                 .name = name,
                 .path = path,
                 .fd = open(path, O_RDONLY | O_CLOEXEC),
                 .diag = diag};
    struct stat about = {0};
    sonde_err err = SONDE_OK;

    if (up.fd < 0 || fstat(up.fd, &about) != 0) {
        err = sonde__fail_errno(diag, path, "cannot be read");
        goto done;
    }
    up.size = (uint64_t)about.st_size;
    up.part = part_size(up.size);
    up.piece = sonde__malloc((size_t)SONDE_MIN(up.part, SONDE_MAX(up.size, 1)));
    err = up.piece == NULL     ? sonde__fail_nomem(diag, path)
          : up.size <= up.part ? put_whole(&up)
                               : put_parts(&up);
done:
    if (up.fd >= 0) {
        (void)close(up.fd);
    }
    sonde__free(up.piece);
    sonde_text_fini(&up.parts);
    return err;
}

/* --- what others left --------------------------------------------------------------- */

void sonde__s3_abort_uploads(sonde__s3_bucket *bucket, sonde__s3_line *line,
                             const char *start)
{
    const size_t skip = bucket->prefix[0] != '\0' ? strlen(bucket->prefix) + 1 : 0;
    sonde_text prefix = {0};
    sonde__s3_answer answer = {0};
    const char *row = NULL;
    char name[3 * SONDE__S3_NAME], id[512];

    sonde_text_format(&prefix, "%s%s%s", bucket->prefix, skip > 0 ? "/" : "", start);
    const sonde__s3_request request = {
        .method = "GET",
        .query = {{"uploads", ""}, {"encoding-type", "url"}, {"prefix", prefix.data}},
        .query_count = 3,
        .most = MOST_ANSWER,
        .tries = 1};
    if (!prefix.failed &&
        sonde__s3_send(bucket, line, &request, &answer, NULL) == SONDE_OK &&
        answer.body.length > 0) {
        row = strstr(answer.body.data, "<Upload>");
    }
    for (; row != NULL; row = strstr(row + 1, "<Upload>")) { /* its parts in any order */
        const char *key = row, *number = row;

        if (sonde__s3_xml(&key, "Key", name, sizeof name) &&
            sonde__s3_xml(&number, "UploadId", id, sizeof id)) {
            sonde__s3_unescape(name);
            if (strlen(name) > skip) {
                abort_upload(bucket, line, name + skip, id);
            }
        }
    }
    sonde_text_fini(&answer.body);
    sonde_text_fini(&prefix);
}
