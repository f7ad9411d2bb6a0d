/*
 * whole_file.h - files that appear whole or not at all. Internal.
 *
 *     sonde__whole_file file;
 *     err = sonde__whole_open(&file, path, diag);
 *     ... sonde__whole_write(&file, bytes, n) any number of times, or write to file.fd ...
 *     err = sonde__whole_commit(&file, SONDE__REPLACE, diag);
 *     sonde__whole_close(&file);                     in any case
 *
 * The bytes go to a temporary file beside path, with a short name (process id and a
 * number) opened exclusively: no two threads or processes share one. commit syncs it,
 * renames it and syncs the folder: at any moment there is the old file or the new one.
 * Links are followed. A terminal, pipe or device is written directly. Small pieces are
 * collected in a buffer, large ones are written at once; after a failure nothing more is
 * written.
 */
#ifndef SONDE_BASE_WHOLE_FILE_H
#define SONDE_BASE_WHOLE_FILE_H

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sonde__whole_file {
    char *path;      /* of the file, links followed */
    char *temporary; /* NULL: path is written directly */
    int fd;          /* -1: not open */
    unsigned char *buffer;
    size_t used;      /* bytes in it */
    uint64_t written; /* bytes passed to write */
    int error;        /* errno of the first failure; 0 */
} sonde__whole_file;

/* If path exists at commit. */
typedef enum sonde__at_place { SONDE__REPLACE, SONDE__KEEP } sonde__at_place;

/* After an error close is allowed and does nothing. */
SONDE_API sonde_err sonde__whole_open(sonde__whole_file *file, const char *path,
                                      sonde_diag *diag);
/* False after a failure, of which status gives the error. */
SONDE_API bool sonde__whole_write(sonde__whole_file *file, const void *bytes, size_t n);
/* The first failure so far; cheap. */
SONDE_API sonde_err sonde__whole_status(const sonde__whole_file *file, sonde_diag *diag);
/* Writes what the buffer holds, syncs, closes and renames. SONDE_EEXIST: path exists and
 * is kept. After a failed write: its error. */
SONDE_API sonde_err sonde__whole_commit(sonde__whole_file *file, sonde__at_place place,
                                        sonde_diag *diag);
/* Frees; removes the temporary file unless it was committed. Accepts a zeroed one. */
SONDE_API void sonde__whole_close(sonde__whole_file *file);

/* open, write and commit in one call. */
SONDE_API sonde_err sonde__whole_put(const char *path, const void *bytes, size_t n,
                                     sonde_diag *diag);

/* Creates an empty temporary folder beside path; returns its name, new. */
SONDE_API sonde_err sonde__folder_beside(const char *path, char **out, sonde_diag *diag);
/* Renames a file or a folder, as commit does. */
SONDE_API sonde_err sonde__publish(const char *temporary, const char *path,
                                   sonde__at_place place, sonde_diag *diag);

/* SONDE_EINVAL for a path that begins with "~/": only a shell expands it, and here it
 * would be a folder of that name. */
sonde_err sonde__check_home(const char *path, sonde_diag *diag);

/* write() until all is written; false: see errno. */
bool sonde__write_all(int fd, const void *bytes, size_t n);

#endif
