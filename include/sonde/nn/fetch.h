/*
 * fetch.h - getting the public data sets from their published addresses.
 *
 * libcurl does the talking. It is loaded when the first byte is asked for, not linked:
 * whoever never fetches needs no libcurl. A download goes to <file>.part, is taken up
 * again where it broke off (HTTP Range), checked against the digest in the table, and
 * only then gets its name. What is complete already is checked and left alone.
 */
#ifndef SONDE_NN_FETCH_H
#define SONDE_NN_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include <sonde/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called a few times a second, and once at the end of each file. total is 0 while
 * unknown. Return false to stop: the fetch ends with SONDE_EINTERRUPTED and can be taken
 * up again. */
typedef bool (*sonde_nn_progress)(void *user, const char *file, uint64_t done,
                                  uint64_t total);

typedef struct sonde_nn_fetch_options {
    const char *mirror; /* "http://host/folder" instead of the published address */
    sonde_nn_progress progress; /* may be NULL */
    void *user;                 /* borrowed, for progress */
} sonde_nn_fetch_options;

/*
 * The four files of "fashion-mnist" or "mnist" into dir, which is made if need be; dir
 * NULL is sonde_nn_data_cache. options may be NULL. SONDE_ENOTFOUND for an unknown name
 * or a 404, SONDE_EIO when the network fails, SONDE_EFORMAT for a wrong digest (found and
 * expected in diag; the file is removed), SONDE_EUNSUPPORTED if libcurl is not installed
 * (diag names the package).
 */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_data_fetch(const char *name, const char *dir,
                    const sonde_nn_fetch_options *options, sonde_diag *diag);

/* One file, for other sets. */
typedef struct sonde_nn_remote_file {
    const char *url;
    const char *sha256; /* 64 hexadecimal digits, or NULL: unchecked */
    bool of_content; /* the digest is of what the gzip file holds, however compressed */
} sonde_nn_remote_file;

SONDE_API SONDE_CHECKED sonde_err
sonde_nn_fetch_file(const sonde_nn_remote_file *file, const char *path,
                    const sonde_nn_fetch_options *options, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
