/*
 * fetch.h - downloads the public data sets from their published addresses.
 *
 * libcurl is loaded by the first download, not linked: programs that never download need
 * no libcurl. A download goes to <file>.part, is resumed after an interruption (HTTP
 * Range), checked against the digest in the table, and renamed. Complete files are
 * checked and kept.
 *
 * Threads: any number of downloads may run at once, of different files.
 */
#ifndef SONDE_NN_FETCH_H
#define SONDE_NN_FETCH_H

#include <sonde/options.h>
#include <stdbool.h>
#include <stdint.h>

#include <sonde/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called a few times a second, and once at the end of each file. total is 0 while
 * unknown. Return false to stop: the fetch ends with SONDE_EINTERRUPTED and can be
 * resumed. */
typedef bool (*sonde_nn_progress)(void *user, const char *file, uint64_t done,
                                  uint64_t total);

typedef struct sonde_nn_fetch_options {
    size_t size;        /* sizeof(sonde_nn_fetch_options) */
    const char *mirror; /* "http://host/folder" instead of the published address */
    sonde_nn_progress progress; /* may be NULL */
    void *user;                 /* borrowed, for progress */
} sonde_nn_fetch_options;

/*
 * Downloads the four files of "fashion-mnist" or "mnist" into dir, which is created if
 * missing; NULL: sonde_nn_data_cache. options may be NULL. SONDE_ENOTFOUND: an unknown
 * name or a 404. SONDE_EIO: the network fails. SONDE_EFORMAT: a wrong digest (found and
 * expected in diag; the file is removed). SONDE_EUNSUPPORTED: libcurl is not installed
 * (diag names the package).
 */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_data_fetch(const char *name, const char *dir,
                    const sonde_nn_fetch_options *options, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
