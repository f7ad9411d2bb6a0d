/*
 * module.c - the table through which libsonde uses this object, and single objects.
 */
#include "store/s3/copy.h"
#include "store/s3/objects.h"
#include "store/s3/spool.h"
#include "storage/store.h"

#include "base/fail.h"
#include "base/macros.h"

#include <string.h>

/* A bucket for one question. */
typedef struct access_once {
    sonde__s3_line line;
    sonde__s3_bucket *bucket;
} access_once;

static sonde_err begin(access_once *once, const char *url, sonde_diag *diag)
{
    const sonde_err err = sonde__s3_line_open(&once->line, url, diag);

    if (err != SONDE_OK) {
        return err;
    }
    return sonde__s3_bucket_open(url, &once->line, &once->bucket, diag);
}

static void end(access_once *once)
{
    sonde__s3_bucket_close(once->bucket);
    sonde__s3_line_close(&once->line);
}

/* --- folders ------------------------------------------------------------------------ */

typedef struct folder_list {
    sonde__store_seen *seen;
    void *user;
} folder_list;

static sonde_err see(void *user, const sonde__s3_object *object, sonde_diag *diag)
{
    const folder_list *list = user;
    char name[SONDE__S3_NAME];
    const size_t length = strlen(object->name);

    (void)diag;
    if (object->name[length - 1] == '/') {
        memcpy(name, object->name, length - 1);
        name[length - 1] = '\0';
        list->seen(list->user, name);
    }
    return SONDE_OK;
}

static sonde_err folders(const char *url, sonde__store_seen *seen, void *user,
                         sonde_diag *diag)
{
    access_once once = {.bucket = NULL};
    folder_list list = {seen, user};
    sonde_err err = begin(&once, url, diag);

    if (err != SONDE_OK) {
        goto done;
    }
    err = sonde__s3_list(once.bucket, &once.line, "", "", true, see, &list, diag);

done:
    end(&once);
    return err;
}

/* --- objects ------------------------------------------------------------------------ */

static sonde_err append(const char *url, const char *name, const void *bytes, size_t size,
                        sonde_diag *diag)
{
    access_once once = {.bucket = NULL};
    sonde_text body = {0};
    sonde_err err = begin(&once, url, diag);

    if (err != SONDE_OK) {
        goto done;
    }
    err = sonde__s3_get_small(once.bucket, &once.line, name, NULL, &body, NULL, diag);
    if (err == SONDE_ENOTFOUND) {
        body.length = 0;
    } else if (err != SONDE_OK) {
        goto done;
    }
    sonde_text_put(&body, bytes, size);
    err = body.failed ? sonde__fail_nomem(diag, url)
                      : sonde__s3_put(once.bucket, &once.line, name, body.data,
                                      body.length, SONDE__S3_REPLACE, diag);

done:
    sonde_text_fini(&body);
    end(&once);
    return err;
}

SONDE_API extern const sonde__store_ops sonde__store_s3;

const sonde__store_ops sonde__store_s3 = {
    .copy_open = sonde__s3_copy_open,
    .copy_refresh = sonde__s3_copy_refresh,
    .copy_fetch = sonde__s3_copy_fetch,
    .copy_send = sonde__s3_copy_send,
    .copy_close = sonde__s3_copy_close,
    .spool_open = sonde__s3_spool_open,
    .spool_start = sonde__s3_spool_start,
    .spool_has_room = sonde__s3_spool_has_room,
    .spool_finish = sonde__s3_spool_finish,
    .spool_close = sonde__s3_spool_close,
    .folders = folders,
    .append = append,
    .exists = sonde__s3_exists,
};
