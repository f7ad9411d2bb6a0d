/*
 * local.h - a run in a folder of this machine, from inside: shared by backend_local.c and
 * local_file.c. Internal.
 */
#ifndef SONDE_RECORD_LOCAL_H
#define SONDE_RECORD_LOCAL_H

#include "record/backend.h"
#include "record/bulk.h"

enum { SONDE__LOCAL_NAME = 192 /* behind the path: "/w0000/" and the longest name */ };

typedef struct sonde__record_local {
    sonde__record_backend backend; /* first */
    char *path;
    char *name, *other; /* room for the path and any name of a run */
    size_t room;
    int lock;
    sonde__record_bulk *bulk; /* from the first bulk on; used by one file at a time */
} sonde__record_local;

/* The path of a name, in to, which is home->name or home->other. */
SONDE_API const char *sonde__record_local_path(const sonde__record_local *home, char *to,
                                               const char *name);

/* The functions of a backend's files. */
SONDE_API int sonde__record_local_create(sonde__record_backend *backend, const char *name,
                                         sonde__record_file **out);
SONDE_API int sonde__record_local_open(sonde__record_backend *backend, const char *name,
                                       sonde__record_file **out);
SONDE_API int sonde__record_local_append(sonde__record_file *of, const void *bytes,
                                         size_t size);
SONDE_API int sonde__record_local_settle(sonde__record_file *of);
SONDE_API int sonde__record_local_write_at(sonde__record_file *of, uint64_t at,
                                           const void *bytes, size_t size);
SONDE_API int sonde__record_local_read_at(sonde__record_file *of, uint64_t at,
                                          void *bytes, size_t size, size_t *got);
SONDE_API int sonde__record_local_truncate(sonde__record_file *of, uint64_t size);
SONDE_API int sonde__record_local_sync(sonde__record_file *of);
SONDE_API void sonde__record_local_begin_sync(sonde__record_file *of);
SONDE_API int sonde__record_local_publish(sonde__record_file *of, const char *from,
                                          const char *to);
SONDE_API bool sonde__record_local_is_lost(sonde__record_file *of);
SONDE_API void sonde__record_local_close(sonde__record_file *of);

#endif
