/*
 * download.c - a download by libcurl; see download.h.
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

static int on_progress(void *user, curl_off_t total, curl_off_t done, curl_off_t up_total,
                       curl_off_t up)
{
    const sonde__data_download *download = user;

    (void)up_total;
    (void)up;
    return download->progress == NULL ||
                   download->progress(download->user, (uint64_t)done, (uint64_t)total)
               ? 0
               : 1;
}

static bool set_long(const sonde__curl *curl, CURL *easy, CURLoption option, long value)
{
    return curl->easy_setopt(easy, option, value) == CURLE_OK;
}

static bool set_pointer(const sonde__curl *curl, CURL *easy, CURLoption option,
                        const void *value)
{
    return curl->easy_setopt(easy, option, value) == CURLE_OK;
}

static bool set_options(const sonde__curl *curl, CURL *easy,
                        const sonde__data_download *download, const char *message)
{
    return set_pointer(curl, easy, CURLOPT_URL, download->url) &&
           set_pointer(curl, easy, CURLOPT_ERRORBUFFER, message) &&
           set_pointer(curl, easy, CURLOPT_WRITEDATA, download) &&
           set_pointer(curl, easy, CURLOPT_XFERINFODATA, download) &&
           curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes) == CURLE_OK &&
           curl->easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK &&
           set_long(curl, easy, CURLOPT_NOPROGRESS, 0) &&
           set_long(curl, easy, CURLOPT_NOSIGNAL, 1) &&
           set_long(curl, easy, CURLOPT_FAILONERROR, 1) &&
           set_long(curl, easy, CURLOPT_FOLLOWLOCATION, 1) &&
           set_long(curl, easy, CURLOPT_MAXREDIRS, 5) &&
           set_long(curl, easy, CURLOPT_CONNECTTIMEOUT, 30) &&
           set_long(curl, easy, CURLOPT_LOW_SPEED_LIMIT, 1) &&
           set_long(curl, easy, CURLOPT_LOW_SPEED_TIME, 60) &&
           curl->easy_setopt(easy, CURLOPT_RESUME_FROM_LARGE,
                             (curl_off_t)download->from) == CURLE_OK;
}

static sonde__data_download_end judge(CURLcode code, long response)
{
    switch ((int)code) {
    case CURLE_OK:
        return SONDE__DOWNLOAD_DONE;
    case CURLE_WRITE_ERROR:
    case CURLE_ABORTED_BY_CALLBACK:
        return SONDE__DOWNLOAD_STOPPED;
    case CURLE_RANGE_ERROR:
        return SONDE__DOWNLOAD_NO_RANGE;
    case CURLE_HTTP_RETURNED_ERROR:
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
    char buffer[CURL_ERROR_SIZE] = "";
    CURL *easy = NULL;
    long response = 0;
    CURLcode code = CURLE_OK;

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
    (void)curl->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &response);
    *end = judge(code, response);
    (void)snprintf(message, message_size, "%s",
                   buffer[0] != '\0' ? buffer : curl->easy_strerror(code));
    curl->easy_cleanup(easy);
    return SONDE_OK;
}
