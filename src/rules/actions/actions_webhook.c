/*
 * actions_webhook.c - one try of a POST, by libcurl (base/curl.h).
 */
#include "rules/actions/actions_state.h"
#include "base/fail.h"

#include "base/curl.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HTTP_TIMEOUT = 408, HTTP_TOO_MANY = 429 };

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
static int on_progress(void *user, curl_off_t total, curl_off_t done, curl_off_t up_total,
                       curl_off_t up)
{
    (void)total;
    (void)done;
    (void)up_total;
    (void)up;
    return sonde__actions_given_up(user) ? 1 : 0;
}

typedef struct request {
    const sonde__curl *curl;
    CURL *easy;
    bool good;
} request;

static void set_long(request *post, CURLoption option, long value)
{
    post->good =
        post->good && post->curl->easy_setopt(post->easy, option, value) == CURLE_OK;
}

static void set_pointer(request *post, CURLoption option, const void *value)
{
    post->good =
        post->good && post->curl->easy_setopt(post->easy, option, value) == CURLE_OK;
}

static bool set_options(request *post, const sonde_actions *actions,
                        const sonde__action_job *job, const void *headers,
                        const char *message)
{
    set_pointer(post, CURLOPT_URL, job->action->text);
    set_pointer(post, CURLOPT_HTTPHEADER, headers);
    set_pointer(post, CURLOPT_POSTFIELDS, job->json);
    set_pointer(post, CURLOPT_ERRORBUFFER, message);
    set_pointer(post, CURLOPT_XFERINFODATA, actions);
    set_long(post, CURLOPT_POSTFIELDSIZE, (long)job->length);
    set_long(post, CURLOPT_TIMEOUT_MS,
             (long)(1e3 * actions->options.webhook_seconds) + 1);
    set_long(post, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
    set_long(post, CURLOPT_FOLLOWLOCATION, 0);
    set_long(post, CURLOPT_NOPROGRESS, 0);
    set_long(post, CURLOPT_NOSIGNAL, 1);
    post->good =
        post->good &&
        post->curl->easy_setopt(post->easy, CURLOPT_WRITEFUNCTION, drop) == CURLE_OK &&
        post->curl->easy_setopt(post->easy, CURLOPT_XFERINFOFUNCTION, on_progress) ==
            CURLE_OK;
    return post->good;
}

/* What an answer means. */
static sonde__action_job_end judge(const request *post, long status,
                                   char said[SONDE__JOB_SAID])
{
    const char *place = NULL;

    if (status >= 300 && status < 400) {
        (void)post->curl->easy_getinfo(post->easy, CURLINFO_REDIRECT_URL, &place);
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
    request post = {.curl = sonde__curl_load("webhook", NULL), .good = true};
    char message[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    sonde__action_job_end end = SONDE__JOB_FAILED;
    long status = 0;

    (void)snprintf(said, SONDE__JOB_SAID, "out of memory");
    post.easy = post.curl != NULL ? post.curl->easy_init() : NULL;
    if (post.easy == NULL) {
        return end;
    }
    headers = post.curl->slist_append(NULL, "Content-Type: application/json");
    if (headers != NULL && set_options(&post, actions, job, headers, message)) {
        const CURLcode code = post.curl->easy_perform(post.easy);

        (void)post.curl->easy_getinfo(post.easy, CURLINFO_RESPONSE_CODE, &status);
        if (code == CURLE_OK) {
            end = judge(&post, status, said);
        } else {
            end = SONDE__JOB_AGAIN;
            (void)snprintf(said, SONDE__JOB_SAID, "%s",
                           message[0] != '\0' ? message : post.curl->easy_strerror(code));
        }
    }
    post.curl->slist_free_all(headers);
    post.curl->easy_cleanup(post.easy);
    return end;
}
