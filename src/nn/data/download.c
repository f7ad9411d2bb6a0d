/*
 * curl.c - see curl.h.
 */
#include "nn/data/download.h"
#include "base/fail.h"

#include "base/curl.h"

#include <stdio.h>

static size_t on_bytes(char *bytes, size_t size, size_t count, void *user)
{
    const sonde__data_download *download = user;

    return download->take(download->user, bytes, size * count) ? size * count : 0;
}

static int on_progress(void *user, int64_t total, int64_t done, int64_t up_total,
                       int64_t up)
{
    const sonde__data_download *download = user;

    (void)up_total;
    (void)up;
    return download->progress == NULL ||
                   download->progress(download->user, (uint64_t)done, (uint64_t)total)
               ? 0
               : 1;
}

static bool set_options(const sonde__curl *curl, void *easy,
                        const sonde__data_download *download, char *buffer)
{
    bool good = curl->easy_setopt(easy, SONDE__CURL_URL, download->url) == SONDE__CURL_OK;

    good = good &&
           curl->easy_setopt(easy, SONDE__CURL_ERROR_BUFFER, buffer) == SONDE__CURL_OK;
    good = good && curl->easy_setopt(easy, SONDE__CURL_WRITE_FUNCTION, on_bytes) ==
                       SONDE__CURL_OK;
    good = good &&
           curl->easy_setopt(easy, SONDE__CURL_WRITE_DATA, download) == SONDE__CURL_OK;
    good = good && curl->easy_setopt(easy, SONDE__CURL_XFER_FUNCTION, on_progress) ==
                       SONDE__CURL_OK;
    good = good &&
           curl->easy_setopt(easy, SONDE__CURL_XFER_DATA, download) == SONDE__CURL_OK;
    good = good && curl->easy_setopt(easy, SONDE__CURL_NO_PROGRESS, 0L) == SONDE__CURL_OK;
    good = good && curl->easy_setopt(easy, SONDE__CURL_NO_SIGNAL, 1L) == SONDE__CURL_OK;
    good =
        good && curl->easy_setopt(easy, SONDE__CURL_FAIL_ON_ERROR, 1L) == SONDE__CURL_OK;
    good = good &&
           curl->easy_setopt(easy, SONDE__CURL_FOLLOW_LOCATION, 1L) == SONDE__CURL_OK;
    good = good && curl->easy_setopt(easy, SONDE__CURL_MAX_REDIRS, 5L) == SONDE__CURL_OK;
    good = good &&
           curl->easy_setopt(easy, SONDE__CURL_CONNECT_TIMEOUT, 30L) == SONDE__CURL_OK;
    good = good &&
           curl->easy_setopt(easy, SONDE__CURL_LOW_SPEED_LIMIT, 1L) == SONDE__CURL_OK;
    good = good &&
           curl->easy_setopt(easy, SONDE__CURL_LOW_SPEED_TIME, 60L) == SONDE__CURL_OK;
    return good && curl->easy_setopt(easy, SONDE__CURL_RESUME_FROM,
                                     (int64_t)download->from) == SONDE__CURL_OK;
}

static sonde__data_download_end judge(int code, long response)
{
    switch (code) {
    case SONDE__CURL_OK:
        return SONDE__DOWNLOAD_DONE;
    case SONDE__CURL_WRITE_ERROR:
    case SONDE__CURL_ABORTED:
        return SONDE__DOWNLOAD_STOPPED;
    case SONDE__CURL_RANGE_ERROR:
        return SONDE__DOWNLOAD_NO_RANGE;
    case SONDE__CURL_HTTP_ERROR:
        return response == 416                      ? SONDE__DOWNLOAD_NO_RANGE
               : response == 404 || response == 410 ? SONDE__DOWNLOAD_NOT_FOUND
                                                    : SONDE__DOWNLOAD_FAILED;
    default:
        return SONDE__DOWNLOAD_FAILED;
    }
}

sonde_err sonde__data_download_run(const sonde__data_download *download,
                                   sonde__data_download_end *end, char *message,
                                   size_t message_size, sonde_diag *diag)
{
    const sonde__curl *curl = sonde__curl_load(download->url, diag);
    char buffer[SONDE__CURL_MESSAGE] = "";
    void *easy = NULL;
    long response = 0;
    int code = 0;

    if (curl == NULL) {
        return SONDE_EUNSUPPORTED;
    }
    easy = curl->easy_init();
    if (easy == NULL || !set_options(curl, easy, download, buffer)) {
        if (easy != NULL) {
            curl->easy_cleanup(easy);
        }
        return sonde__fail_nomem(diag, "a download");
    }
    code = curl->easy_perform(easy);
    (void)curl->easy_getinfo(easy, SONDE__CURL_INFO_RESPONSE, &response);
    *end = judge(code, response);
    (void)snprintf(message, message_size, "%s",
                   buffer[0] != '\0' ? buffer : curl->easy_strerror(code));
    curl->easy_cleanup(easy);
    return SONDE_OK;
}
