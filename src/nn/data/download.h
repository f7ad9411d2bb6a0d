/*
 * curl.h - one HTTP download, by a libcurl that is loaded when it is first needed.
 */
#ifndef SONDE_NN_DATA_DOWNLOAD_H
#define SONDE_NN_DATA_DOWNLOAD_H

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sonde__data_download {
    const char *url;
    uint64_t from; /* first byte asked for */
    /* Takes bytes; false ends the download. */
    bool (*take)(void *user, const void *bytes, size_t size);
    /* Called now and then; of this transfer alone; false ends the download. */
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
} sonde__data_download;

typedef enum sonde__data_download_end {
    SONDE__DOWNLOAD_DONE,
    SONDE__DOWNLOAD_STOPPED,   /* by take or progress */
    SONDE__DOWNLOAD_NO_RANGE,  /* the server cannot begin at from, or has no more */
    SONDE__DOWNLOAD_NOT_FOUND, /* 404 and the like */
    SONDE__DOWNLOAD_FAILED
} sonde__data_download_end;

/* SONDE_EUNSUPPORTED if there is no libcurl; else how it ended, with why in message. */
sonde_err sonde__data_download_run(const sonde__data_download *download,
                                   sonde__data_download_end *end, char *message,
                                   size_t message_size, sonde_diag *diag);

#endif
