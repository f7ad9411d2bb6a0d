/*
 * spool_place.c - the folder of a spool: its locks, small files and removal; see spool.h.
 */
#include "base/fail.h"
#include "base/memory.h"
#include "store/s3/copy.h"
#include "store/s3/spool.h"
#include "store/s3/objects.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *place(const sonde__s3_spool *spool, const char *name, char *path)
{
    (void)snprintf(path, SONDE__S3_PATH, "%s/%s", spool->folder, name);
    return path;
}

/* --- locks -------------------------------------------------------------------------- */

/* Locks a folder, which needs no file that would be left. A descriptor; -1: see errno. */
static int lock_folder(const sonde__s3_spool *spool, const char *name, int how)
{
    char path[SONDE__S3_PATH];
    int fd = -1;

    (void)mkdir(place(spool, name, path), 0777); /* open reports a failure */
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, how) != 0) {
        const int failed = errno;

        (void)close(fd);
        errno = failed;
        return -1;
    }
    return fd;
}

sonde_err sonde__s3_spool_enter(sonde__s3_spool *spool, const char *folder,
                                sonde_diag *diag)
{
    char name[64], path[SONDE__S3_PATH];

    spool->folder = sonde__strdup(folder);
    if (spool->folder == NULL) {
        return sonde__fail_nomem(diag, folder);
    }
    sonde__s3_make_way(place(spool, "", path));
    spool->entry = lock_folder(spool, "", LOCK_EX);
    if (spool->entry < 0) {
        return sonde__fail_errno(diag, folder, "cannot be locked");
    }
    (void)snprintf(name, sizeof name, "%s.lock", spool->worker);
    spool->held = lock_folder(spool, name, LOCK_EX | LOCK_NB);
    if (spool->held < 0 && errno == EWOULDBLOCK) {
        return sonde__fail(diag, SONDE_EBUSY, spool->bucket->url, "one writer",
                           "another process of this machine writes the run");
    }
    return spool->held >= 0 ? SONDE_OK
                            : sonde__fail_errno(diag, folder, "cannot be locked");
}

void sonde__s3_spool_entered(sonde__s3_spool *spool)
{
    if (spool->entry >= 0) {
        (void)close(spool->entry);
        spool->entry = -1;
    }
}

void sonde__s3_spool_leave(sonde__s3_spool *spool)
{
    sonde__s3_spool_entered(spool);
    if (spool->held >= 0) {
        (void)close(spool->held);
        spool->held = -1;
    }
}

/* --- small files -------------------------------------------------------------------- */

bool sonde__s3_spool_has(const sonde__s3_spool *spool, const char *name)
{
    char path[SONDE__S3_PATH];

    return access(sonde__s3_spool_path(spool, name, path), F_OK) == 0;
}

sonde_err sonde__s3_spool_write(const sonde__s3_spool *spool, const char *name,
                                const void *bytes, size_t size, sonde_diag *diag)
{
    char path[SONDE__S3_PATH];

    (void)sonde__s3_spool_path(spool, name, path);
    sonde__s3_make_way(path);
    FILE *stream = fopen(path, "we");
    bool done = stream != NULL && (size == 0 || fwrite(bytes, 1, size, stream) == size);
    done = stream != NULL && fclose(stream) == 0 && done;
    return done ? SONDE_OK : sonde__fail_errno(diag, path, "cannot be written");
}

bool sonde__s3_spool_was_sent(const sonde__s3_spool *spool)
{
    char path[SONDE__S3_PATH];

    return access(place(spool, "sent", path), F_OK) == 0;
}

void sonde__s3_spool_mark_sent(const sonde__s3_spool *spool)
{
    char path[SONDE__S3_PATH];
    FILE *stream = fopen(place(spool, "sent", path), "we");

    if (stream != NULL) {
        (void)fclose(stream);
    }
}

/* --- removal ------------------------------------------------------------------------ */

void sonde__s3_spool_wipe(sonde__s3_spool *spool)
{
    char path[SONDE__S3_PATH];

    (void)unlink(place(spool, "sent", path));
    (void)unlink(place(spool, "address", path));
    sonde__s3_remove_all(sonde__s3_spool_path(spool, "", path));
}

/* Whether another worker's process has the folder open, or left files in it. */
static bool is_shared(const sonde__s3_spool *spool)
{
    char path[SONDE__S3_PATH];
    DIR *run = opendir(sonde__s3_spool_path(spool, "", path));
    DIR *folder = opendir(spool->folder);
    const struct dirent *entry = NULL;
    bool shared = false;

    while (run != NULL && !shared && (entry = readdir(run)) != NULL) {
        shared = entry->d_name[0] == 'w' && strcmp(entry->d_name, spool->worker) != 0;
    }
    while (folder != NULL && !shared && (entry = readdir(folder)) != NULL) {
        const size_t length = strlen(entry->d_name);

        if (entry->d_name[0] == 'w' && length > 5 &&
            strcmp(entry->d_name + length - 5, ".lock") == 0 &&
            strncmp(entry->d_name, spool->worker, length - 5) != 0) {
            const int fd = lock_folder(spool, entry->d_name, LOCK_EX | LOCK_NB);

            shared = fd < 0;
            if (fd >= 0) {
                (void)close(fd);
            }
        }
    }
    if (run != NULL) {
        (void)closedir(run);
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return shared;
}

void sonde__s3_spool_clear(sonde__s3_spool *spool)
{
    const int entry = lock_folder(spool, "", LOCK_EX);
    char path[SONDE__S3_PATH];

    sonde__s3_remove_all(sonde__s3_spool_path(spool, spool->worker, path));
    if (!is_shared(spool)) {
        sonde__s3_spool_wipe(spool);
    }
    if (entry >= 0) {
        (void)close(entry);
    }
}
