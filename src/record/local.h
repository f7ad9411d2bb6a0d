/*
 * local.h - a run in a folder of this machine, from inside: shared by backend_local.c and
 * local_file.c. Internal.
 */
#ifndef SONDE_RECORD_LOCAL_H
#define SONDE_RECORD_LOCAL_H

#include "record/backend.h"
#include "record/bulk.h"

enum { SONDE__LOCAL_NAME = 192 /* behind the path: "/w0000/" and the longest name */ };

typedef struct sonde__local {
    sonde__backend backend; /* first */
    char *path;
    char *name, *other; /* room for the path and any name of a run */
    size_t room;
    int lock;
    sonde__bulk *bulk; /* from the first bulk on; used by one file at a time */
} sonde__local;

/* The path of a name, in to, which is home->name or home->other. */
SONDE_API const char *sonde__local_path(const sonde__local *home, char *to,
                                        const char *name);

/* The functions of a backend's files. */
SONDE_API int sonde__local_create(sonde__backend *backend, const char *name,
                                  sonde__file **out);
SONDE_API int sonde__local_open(sonde__backend *backend, const char *name,
                                sonde__file **out);
SONDE_API int sonde__local_append(sonde__file *of, const void *bytes, size_t size);
SONDE_API int sonde__local_settle(sonde__file *of);
SONDE_API int sonde__local_write_at(sonde__file *of, uint64_t at, const void *bytes,
                                    size_t size);
SONDE_API int sonde__local_read_at(sonde__file *of, uint64_t at, void *bytes, size_t size,
                                   size_t *got);
SONDE_API int sonde__local_truncate(sonde__file *of, uint64_t size);
SONDE_API int sonde__local_sync(sonde__file *of);
SONDE_API void sonde__local_begin_sync(sonde__file *of);
SONDE_API int sonde__local_publish(sonde__file *of, const char *from, const char *to);
SONDE_API bool sonde__local_is_lost(sonde__file *of);
SONDE_API void sonde__local_close(sonde__file *of);

#endif
