/*
 * actions_webhook.c - one try of a POST, by libcurl (base/curl.h).
 */
#include "rules/actions/actions_state.h"
#include "base/fail.h"

#include "base/curl.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HTTP_OR_HTTPS = 3, HTTP_TIMEOUT = 408, HTTP_TOO_MANY = 429 };

sonde_err sonde__action_webhook_check(const char *url, sonde_diag *diag)
{
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0) {
        return sonde__fail(diag, SONDE_EINVAL, "webhook", "http://... or https://...",
                           "'%.200s'", url);
    }
    return sonde__curl_load("webhook", diag) != NULL ? SONDE_OK : SONDE_EUNSUPPORTED;
}

static size_t drop(const char *bytes, size_t size, size_t count, void *user)
{
    (void)bytes;
    (void)user;
    return size * count;
}

/* Not 0: the transfer ends. */
static int on_progress(void *user, int64_t total, int64_t done, int64_t up_total,
                       int64_t up)
{
    (void)total;
    (void)done;
    (void)up_total;
    (void)up;
    return sonde__actions_given_up(user) ? 1 : 0;
}

typedef struct request {
    const sonde__curl *curl;
    void *easy;
    bool good;
} request;

static void set_long(request *of, int option, long value)
{
    of->good =
        of->good && of->curl->easy_setopt(of->easy, option, value) == SONDE__CURL_OK;
}

static void set_pointer(request *of, int option, const void *value)
{
    of->good =
        of->good && of->curl->easy_setopt(of->easy, option, value) == SONDE__CURL_OK;
}

static bool set_options(request *of, const sonde_actions *actions,
                        const sonde__action_job *job, const void *headers,
                        const char *message)
{
    set_pointer(of, SONDE__CURL_URL, job->action->text);
    set_pointer(of, SONDE__CURL_HEADERS, headers);
    set_pointer(of, SONDE__CURL_POST_FIELDS, job->json);
    set_pointer(of, SONDE__CURL_ERROR_BUFFER, message);
    set_pointer(of, SONDE__CURL_XFER_DATA, actions);
    set_long(of, SONDE__CURL_POST_FIELDS_SIZE, (long)job->length);
    set_long(of, SONDE__CURL_TIMEOUT_MS,
             (long)(1e3 * actions->options.webhook_seconds) + 1);
    set_long(of, SONDE__CURL_PROTOCOLS, HTTP_OR_HTTPS);
    set_long(of, SONDE__CURL_FOLLOW_LOCATION, 0);
    set_long(of, SONDE__CURL_NO_PROGRESS, 0);
    set_long(of, SONDE__CURL_NO_SIGNAL, 1);
    of->good = of->good &&
               of->curl->easy_setopt(of->easy, SONDE__CURL_WRITE_FUNCTION, drop) ==
                   SONDE__CURL_OK &&
               of->curl->easy_setopt(of->easy, SONDE__CURL_XFER_FUNCTION, on_progress) ==
                   SONDE__CURL_OK;
    return of->good;
}

/* What an answer means. */
static sonde__action_job_end judge(const request *of, long status,
                                   char said[SONDE__JOB_SAID])
{
    const char *place = NULL;

    if (status >= 300 && status < 400) {
        (void)of->curl->easy_getinfo(of->easy, SONDE__CURL_INFO_REDIRECT, &place);
        (void)snprintf(said, SONDE__JOB_SAID,
                       "status %ld, not followed: it is now %.160s", status,
                       place != NULL ? place : "elsewhere");
        return SONDE__JOB_FAILED;
    }
    (void)snprintf(said, SONDE__JOB_SAID, "status %ld", status);
    if (status >= 200 && status < 300) {
        return SONDE__JOB_DONE;
    }
    return status >= 500 || status == HTTP_TIMEOUT || status == HTTP_TOO_MANY
               ? SONDE__JOB_AGAIN
               : SONDE__JOB_FAILED;
}

sonde__action_job_end sonde__action_webhook(const sonde_actions *actions,
                                            const sonde__action_job *job,
                                            char said[SONDE__JOB_SAID])
{
    request of = {.curl = sonde__curl_load("webhook", NULL), .good = true};
    char message[SONDE__CURL_MESSAGE] = "";
    void *headers = NULL;
    sonde__action_job_end end = SONDE__JOB_FAILED;
    long status = 0;

    (void)snprintf(said, SONDE__JOB_SAID, "out of memory");
    of.easy = of.curl != NULL ? of.curl->easy_init() : NULL;
    if (of.easy == NULL) {
        return end;
    }
    headers = of.curl->slist_append(NULL, "Content-Type: application/json");
    if (headers != NULL && set_options(&of, actions, job, headers, message)) {
        const int code = of.curl->easy_perform(of.easy);

        (void)of.curl->easy_getinfo(of.easy, SONDE__CURL_INFO_RESPONSE, &status);
        if (code == SONDE__CURL_OK) {
            end = judge(&of, status, said);
        } else {
            end = SONDE__JOB_AGAIN;
            (void)snprintf(said, SONDE__JOB_SAID, "%s",
                           message[0] != '\0' ? message : of.curl->easy_strerror(code));
        }
    }
    of.curl->slist_free_all(headers);
    of.curl->easy_cleanup(of.easy);
    return end;
}
