/*
 * curl.h - libcurl, loaded when it is first needed: nothing of Sonde links it.
 *
 * The few entry points and numbers that are used have been the same in every libcurl.so.4
 * since 2006, so no header of it is needed to build. It stays loaded: unloading a library
 * that has started TLS is asking for trouble.
 */
#ifndef SONDE_BASE_CURL_H
#define SONDE_BASE_CURL_H

#include <sonde/error.h>

/* libcurl's numbers: options are 0 + n for long, 10000 + n for pointers, 20000 + n for
 * functions, 30000 + n for 64 bit sizes. */
enum {
    SONDE__CURL_WRITE_DATA = 10001,
    SONDE__CURL_URL = 10002,
    SONDE__CURL_ERROR_BUFFER = 10010,
    SONDE__CURL_POST_FIELDS = 10015,
    SONDE__CURL_HEADERS = 10023,
    SONDE__CURL_XFER_DATA = 10057,
    SONDE__CURL_WRITE_FUNCTION = 20011,
    SONDE__CURL_XFER_FUNCTION = 20219,
    SONDE__CURL_LOW_SPEED_LIMIT = 19,
    SONDE__CURL_LOW_SPEED_TIME = 20,
    SONDE__CURL_NO_PROGRESS = 43,
    SONDE__CURL_FAIL_ON_ERROR = 45,
    SONDE__CURL_FOLLOW_LOCATION = 52,
    SONDE__CURL_POST_FIELDS_SIZE = 60,
    SONDE__CURL_MAX_REDIRS = 68,
    SONDE__CURL_CONNECT_TIMEOUT = 78,
    SONDE__CURL_NO_SIGNAL = 99,
    SONDE__CURL_TIMEOUT_MS = 155,
    SONDE__CURL_PROTOCOLS = 181, /* bit 0: http, bit 1: https */
    SONDE__CURL_RESUME_FROM = 30116,
    SONDE__CURL_INFO_RESPONSE = 0x200002,
    SONDE__CURL_INFO_REDIRECT = 0x10001F,
    SONDE__CURL_OK = 0,
    SONDE__CURL_HTTP_ERROR = 22,
    SONDE__CURL_WRITE_ERROR = 23,
    SONDE__CURL_RANGE_ERROR = 33,
    SONDE__CURL_ABORTED = 42,
    SONDE__CURL_MESSAGE = 256
};

typedef struct sonde__curl {
    void *(*easy_init)(void);
    int (*easy_setopt)(void *easy, int option, ...);
    int (*easy_getinfo)(void *easy, int info, ...);
    int (*easy_perform)(void *easy);
    void (*easy_cleanup)(void *easy);
    const char *(*easy_strerror)(int code);
    void *(*slist_append)(void *list, const char *text);
    void (*slist_free_all)(void *list);
} sonde__curl;

/* NULL, with SONDE_EUNSUPPORTED in diag, if there is none. where is what wants it. Any thread. */
SONDE_API const sonde__curl *sonde__curl_load(const char *where, sonde_diag *diag);

#endif
