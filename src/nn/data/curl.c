/*
 * curl.c - see curl.h. Libraries stay loaded: unloading one that has started TLS is
 * asking for trouble.
 */
#include "nn/data/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* libcurl's numbers: options are 0 + n for long, 10000 + n for pointers, 20000 + n for
 * functions, 30000 + n for 64 bit sizes. */
enum {
    CURL_WRITE_DATA = 10001,
    CURL_URL = 10002,
    CURL_ERROR_BUFFER = 10010,
    CURL_XFER_DATA = 10057,
    CURL_WRITE_FUNCTION = 20011,
    CURL_XFER_FUNCTION = 20219,
    CURL_LOW_SPEED_LIMIT = 19,
    CURL_LOW_SPEED_TIME = 20,
    CURL_NO_PROGRESS = 43,
    CURL_FAIL_ON_ERROR = 45,
    CURL_FOLLOW_LOCATION = 52,
    CURL_MAX_REDIRS = 68,
    CURL_CONNECT_TIMEOUT = 78,
    CURL_NO_SIGNAL = 99,
    CURL_RESUME_FROM = 30116,
    CURL_INFO_RESPONSE = 0x200002,
    CURL_GLOBAL_ALL = 3,
    CURL_OK = 0,
    CURL_HTTP_ERROR = 22,
    CURL_WRITE_ERROR = 23,
    CURL_RANGE_ERROR = 33,
    CURL_ABORTED = 42,
    CURL_MESSAGE = 256
};

typedef struct curl_library {
    int (*global_init)(long flags);
    void *(*easy_init)(void);
    int (*easy_setopt)(void *easy, int option, ...);
    int (*easy_getinfo)(void *easy, int info, ...);
    int (*easy_perform)(void *easy);
    void (*easy_cleanup)(void *easy);
    const char *(*easy_strerror)(int code);
} curl_library;

static curl_library curl;
static bool curl_loaded;
static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);

    /* POSIX says they are of one size, C does not let us cast */
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void load(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;

    for (size_t i = 0; library == NULL && i < SONDE_COUNT_OF(names); i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    curl_loaded = library != NULL &&
                  find(library, "curl_global_init", &curl.global_init) &&
                  find(library, "curl_easy_init", &curl.easy_init) &&
                  find(library, "curl_easy_setopt", &curl.easy_setopt) &&
                  find(library, "curl_easy_getinfo", &curl.easy_getinfo) &&
                  find(library, "curl_easy_perform", &curl.easy_perform) &&
                  find(library, "curl_easy_cleanup", &curl.easy_cleanup) &&
                  find(library, "curl_easy_strerror", &curl.easy_strerror) &&
                  curl.global_init(CURL_GLOBAL_ALL) == CURL_OK;
}

static size_t on_bytes(char *bytes, size_t size, size_t count, void *user)
{
    const sonde__download *download = user;

    return download->take(download->user, bytes, size * count) ? size * count : 0;
}

static int on_progress(void *user, int64_t total, int64_t done, int64_t up_total,
                       int64_t up)
{
    const sonde__download *download = user;

    (void)up_total;
    (void)up;
    return download->progress == NULL ||
                   download->progress(download->user, (uint64_t)done, (uint64_t)total)
               ? 0
               : 1;
}

static bool set_options(void *easy, const sonde__download *download, char *buffer)
{
    bool good = curl.easy_setopt(easy, CURL_URL, download->url) == CURL_OK;

    good = good && curl.easy_setopt(easy, CURL_ERROR_BUFFER, buffer) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_WRITE_FUNCTION, on_bytes) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_WRITE_DATA, download) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_XFER_FUNCTION, on_progress) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_XFER_DATA, download) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_NO_PROGRESS, 0L) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_NO_SIGNAL, 1L) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_FAIL_ON_ERROR, 1L) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_FOLLOW_LOCATION, 1L) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_MAX_REDIRS, 5L) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_CONNECT_TIMEOUT, 30L) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_LOW_SPEED_LIMIT, 1L) == CURL_OK;
    good = good && curl.easy_setopt(easy, CURL_LOW_SPEED_TIME, 60L) == CURL_OK;
    return good &&
           curl.easy_setopt(easy, CURL_RESUME_FROM, (int64_t)download->from) == CURL_OK;
}

static sonde__download_end judge(int code, long response)
{
    switch (code) {
    case CURL_OK:
        return SONDE__DOWNLOAD_DONE;
    case CURL_WRITE_ERROR:
    case CURL_ABORTED:
        return SONDE__DOWNLOAD_STOPPED;
    case CURL_RANGE_ERROR:
        return SONDE__DOWNLOAD_NO_RANGE;
    case CURL_HTTP_ERROR:
        return response == 416                      ? SONDE__DOWNLOAD_NO_RANGE
               : response == 404 || response == 410 ? SONDE__DOWNLOAD_NOT_FOUND
                                                    : SONDE__DOWNLOAD_FAILED;
    default:
        return SONDE__DOWNLOAD_FAILED;
    }
}

sonde_err sonde__download_run(const sonde__download *download, sonde__download_end *end,
                              char *message, size_t message_size, sonde_diag *diag)
{
    char buffer[CURL_MESSAGE] = "";
    void *easy = NULL;
    long response = 0;
    int code = 0;

    (void)pthread_once(&curl_once, load);
    if (!curl_loaded) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, download->url,
                           "libcurl.so.4: install the package libcurl4 (or libcurl4t64)",
                           "cannot download without libcurl");
    }
    easy = curl.easy_init();
    if (easy == NULL || !set_options(easy, download, buffer)) {
        if (easy != NULL) {
            curl.easy_cleanup(easy);
        }
        return sonde__fail_nomem(diag, "a download");
    }
    code = curl.easy_perform(easy);
    (void)curl.easy_getinfo(easy, CURL_INFO_RESPONSE, &response);
    *end = judge(code, response);
    (void)snprintf(message, message_size, "%s",
                   buffer[0] != '\0' ? buffer : curl.easy_strerror(code));
    curl.easy_cleanup(easy);
    return SONDE_OK;
}
