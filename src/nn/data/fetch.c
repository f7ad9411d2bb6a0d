/*
 * fetch.c - HTTP downloads with resume and digests, and the table of the public data
 * sets.
 *
 * A file that is present with the right digest is kept. Otherwise <file>.part is resumed,
 * or restarted if the server cannot resume, and then checked. A resumed part with a wrong
 * digest is deleted and the file downloaded once more in full before the error is
 * reported. libcurl is loaded on first use.
 */
#include "base/curl.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/data/files.h"
#include "base/options.h"
#include "base/number.h"

#include <sonde/nn/dataset.h>

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { URL_SIZE = 1024, PATH_SIZE = 4096, FILES = 4 };

static const char *const file_names[FILES] = {
    "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};

/* Digests are of the IDX content: mirrors compress it differently. */
typedef struct public_set {
    const char *name, *address;
    const char *sha256[FILES];
} public_set;

static const public_set public_sets[] = {
    {"fashion-mnist",
     "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
     {"c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
      "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
      "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
      "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"}},
    {"mnist",
     "https://ossci-datasets.s3.amazonaws.com/mnist",
     {"ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
      "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
      "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
      "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}},
};

/* The download of one file. */
typedef struct fetch_job {
    const sonde__data_remote_file *file;
    const char *path;
    const sonde_nn_fetch_options *options;
    char part[PATH_SIZE];
    FILE *stream;
    uint64_t start; /* bytes of the part before this transfer */
    bool asked_to_stop, write_failed;
    sonde_diag *diag;
} fetch_job;

enum { DIGEST = 32, HEX = 2 * DIGEST + 1 }; /* bytes of SHA-256, and its digits */

/* --- digests ------------------------------------------------------------------------ */

/* The digest of a file, or of its unzipped content. */
static sonde_err digest(const char *path, bool of_content, char hex[HEX],
                        sonde_diag *diag)
{
    unsigned char sum[DIGEST] = {0};
    sonde__data_input input;
    SONDE__TRY(sonde__data_input_read(&input, path, !of_content, diag));
    const bool known =
        EVP_Digest(input.bytes, input.size, sum, NULL, EVP_sha256(), NULL) == 1;
    sonde__data_input_fini(&input);
    for (size_t i = 0; i < sizeof sum; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    }
    return known ? SONDE_OK : sonde__fail_nomem(diag, "a digest");
}

/* SONDE_EFORMAT: the digest differs from the table's. */
static sonde_err check(const fetch_job *job, const char *path)
{
    char found[HEX];
    sonde_err err = SONDE_OK;

    if (job->file->sha256 == NULL) {
        return SONDE_OK;
    }
    SONDE__TRY(digest(path, job->file->of_content, found, job->diag));
    if (sonde__strcasecmp(found, job->file->sha256) != 0) {
        err = sonde__fail(job->diag, SONDE_EFORMAT, job->file->url, job->file->sha256,
                          "wrong contents: its SHA-256%s is %s",
                          job->file->of_content ? " (unzipped)" : "", found);
    }
    return err;
}

/* --- one transfer ------------------------------------------------------------------- */

typedef enum download_end {
    DONE,
    STOPPED,   /* by a write error or progress */
    NO_RANGE,  /* the server cannot start where the part ends */
    NOT_FOUND, /* 404 or 410 */
    FAILED
} download_end;

static size_t on_bytes(char *bytes, size_t size, size_t count, void *user)
{
    fetch_job *job = user;

    job->write_failed = fwrite(bytes, 1, size * count, job->stream) != size * count;
    return job->write_failed ? 0 : size * count;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static int on_progress(void *user, curl_off_t total, curl_off_t done, curl_off_t up_total,
                       curl_off_t up)
{
    fetch_job *job = user;
    const sonde_nn_fetch_options *options = job->options;

    (void)up_total;
    (void)up;
    if (options->progress != NULL) {
        job->asked_to_stop = !options->progress(
            options->user, base_name(job->path), job->start + (uint64_t)done,
            total > 0 ? job->start + (uint64_t)total : 0);
    }
    return job->asked_to_stop ? 1 : 0;
}

static bool set_options(const sonde__curl *curl, CURL *easy, fetch_job *job,
                        const char *message)
{
    static const struct {
        CURLoption option;
        long value;
    } numbers[] = {{CURLOPT_NOPROGRESS, 0},      {CURLOPT_NOSIGNAL, 1},
                   {CURLOPT_FAILONERROR, 1},     {CURLOPT_FOLLOWLOCATION, 1},
                   {CURLOPT_MAXREDIRS, 5},       {CURLOPT_CONNECTTIMEOUT, 30},
                   {CURLOPT_LOW_SPEED_LIMIT, 1}, {CURLOPT_LOW_SPEED_TIME, 60}};
    bool good = true;

    for (size_t i = 0; i < SONDE_COUNT_OF(numbers); i++) {
        good = good &&
               curl->easy_setopt(easy, numbers[i].option, numbers[i].value) == CURLE_OK;
    }
    return good && curl->easy_setopt(easy, CURLOPT_URL, job->file->url) == CURLE_OK &&
           curl->easy_setopt(easy, CURLOPT_ERRORBUFFER, message) == CURLE_OK &&
           curl->easy_setopt(easy, CURLOPT_WRITEDATA, job) == CURLE_OK &&
           curl->easy_setopt(easy, CURLOPT_XFERINFODATA, job) == CURLE_OK &&
           curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes) == CURLE_OK &&
           curl->easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK &&
           curl->easy_setopt(easy, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)job->start) ==
               CURLE_OK;
}

static download_end judge(CURLcode code, long response)
{
    switch ((int)code) {
    case CURLE_OK:
        return DONE;
    case CURLE_WRITE_ERROR:
    case CURLE_ABORTED_BY_CALLBACK:
        return STOPPED;
    case CURLE_RANGE_ERROR:
        return NO_RANGE;
    case CURLE_HTTP_RETURNED_ERROR:
        return response == 416                      ? NO_RANGE
               : response == 404 || response == 410 ? NOT_FOUND
                                                    : FAILED;
    default:
        return FAILED;
    }
}

/* SONDE_EUNSUPPORTED: no libcurl. Otherwise *end is the outcome, with its reason in
 * message. */
static sonde_err run_download(fetch_job *job, download_end *end, char *message,
                              size_t message_size)
{
    const sonde__curl *curl = sonde__curl_load(job->file->url, job->diag);
    char buffer[CURL_ERROR_SIZE] = "";
    long response = 0;

    if (curl == NULL) {
        return SONDE_EUNSUPPORTED;
    }
    CURL *easy = curl->easy_init();
    if (easy == NULL || !set_options(curl, easy, job, buffer)) {
        if (easy != NULL) {
            curl->easy_cleanup(easy);
        }
        return sonde__fail_nomem(job->diag, "a download");
    }
    const CURLcode code = curl->easy_perform(easy);
    (void)curl->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &response);
    *end = judge(code, response);
    (void)snprintf(message, message_size, "%s",
                   buffer[0] != '\0' ? buffer : curl->easy_strerror(code));
    curl->easy_cleanup(easy);
    return SONDE_OK;
}

static sonde_err fail_download(const fetch_job *job, download_end end,
                               const char *message)
{
    const char *url = job->file->url;

    if (job->asked_to_stop) {
        return sonde__fail(job->diag, SONDE_EINTERRUPTED, url, NULL,
                           "stopped; what there is stays in %s", job->part);
    }
    if (job->write_failed) {
        return sonde__fail_errno(job->diag, job->part, "cannot write");
    }
    if (end == NOT_FOUND) {
        return sonde__fail(job->diag, SONDE_ENOTFOUND, url, NULL, "%s", message);
    }
    return sonde__fail(job->diag, SONDE_EIO, url, NULL, "cannot download: %s", message);
}

/* Appends to the part from its end (fresh: starts it again). */
static sonde_err append_part(fetch_job *job, bool fresh, download_end *end)
{
    char message[256] = "";
    sonde_err err = SONDE_OK;
    bool closed = false, done = false;

    job->stream = fopen(job->part, fresh ? "wb" : "ab");
    if (job->stream == NULL) {
        return sonde__fail_errno(job->diag, job->part, "cannot write");
    }
    (void)fseek(job->stream, 0, SEEK_END);
    job->start = (uint64_t)ftell(job->stream);
    err = run_download(job, end, message, sizeof message);
    done = err == SONDE_OK && *end == DONE;
    if (done && fflush(job->stream) == 0 && fsync(fileno(job->stream)) != 0) {
        job->write_failed = true;
    }
    closed = fclose(job->stream) == 0;
    job->stream = NULL;
    if (err != SONDE_OK || *end == NO_RANGE) {
        return err;
    }
    if (!done) {
        return fail_download(job, *end, message);
    }
    return closed && !job->write_failed
               ? SONDE_OK
               : sonde__fail_errno(job->diag, job->part, "cannot write");
}

/* Downloads the missing bytes and checks the file; fresh: discards the part first. */
static sonde_err complete(fetch_job *job, bool fresh)
{
    download_end end = DONE;
    SONDE__TRY(append_part(job, fresh, &end));
    if (end == NO_RANGE &&
        (job->file->sha256 == NULL || check(job, job->part) != SONDE_OK)) {
        SONDE__TRY(append_part(job, true, &end));
        if (end != DONE) {
            return fail_download(job, end, "the server sends no such range");
        }
    }
    return check(job, job->part);
}

static sonde_err fetch(fetch_job *job)
{
    const bool had_part = access(job->part, F_OK) == 0;
    struct stat status;
    sonde_err err = complete(job, false);

    if (err == SONDE_EFORMAT && had_part) {
        err = complete(job, true);
    }
    if (err == SONDE_EFORMAT ||
        (err != SONDE_OK && stat(job->part, &status) == 0 && status.st_size == 0)) {
        (void)unlink(job->part);
    }
    if (err != SONDE_OK) {
        return err;
    }
    if (rename(job->part, job->path) != 0) {
        err = sonde__fail_errno(job->diag, job->path, "cannot write");
    }
    return err;
}

sonde_err sonde__data_fetch_file(const sonde__data_remote_file *file, const char *path,
                                 const sonde_nn_fetch_options *given, sonde_diag *diag)
{
    SONDE__NEEDS(diag, file, path);
    sonde_nn_fetch_options taken;
    const sonde_nn_fetch_options *const options = &taken;
    SONDE__TAKE(sonde_nn_fetch_options, &taken, given, diag);
    fetch_job job = {.file = file, .path = path, .options = options, .diag = diag};
    struct stat status;
    const int length = snprintf(job.part, sizeof job.part, "%s.part", path);

    if (length < 0 || (size_t)length >= sizeof job.part) {
        return sonde__fail(diag, SONDE_EINVAL, path, "a shorter path", "is too long");
    }
    if (file->sha256 != NULL && stat(path, &status) == 0 &&
        check(&job, path) == SONDE_OK) {
        if (job.options->progress != NULL) {
            (void)job.options->progress(job.options->user, base_name(path),
                                        (uint64_t)status.st_size,
                                        (uint64_t)status.st_size);
        }
        return SONDE_OK;
    }
    return fetch(&job);
}

/* --- sets --------------------------------------------------------------------------- */

/* NULL with diag filled: there is none. */
static const public_set *find_set(const char *name, sonde_diag *diag)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(public_sets); i++) {
        if (strcmp(name, public_sets[i].name) == 0) {
            return &public_sets[i];
        }
    }
    (void)sonde__fail(diag, SONDE_ENOTFOUND, "fetch", "fashion-mnist or mnist",
                      "no data set '%s' is published", name);
    return NULL;
}

static sonde_err fetch_all(const public_set *set, const char *dir,
                           const sonde_nn_fetch_options *options, sonde_diag *diag)
{
    const char *address = options->mirror != NULL ? options->mirror : set->address;
    SONDE__TRY(sonde__data_make_folders(dir, diag));
    for (size_t i = 0; i < FILES; i++) {
        char url[URL_SIZE], path[PATH_SIZE];
        const sonde__data_remote_file file = {url, set->sha256[i], true};
        const int a = snprintf(url, sizeof url, "%s/%s", address, file_names[i]);
        const int b = snprintf(path, sizeof path, "%s/%s", dir, file_names[i]);

        if ((size_t)a >= sizeof url || (size_t)b >= sizeof path) {
            return sonde__fail(diag, SONDE_EINVAL, dir, "shorter ones",
                               "the address or the path is too long");
        }
        SONDE__TRY(sonde__data_fetch_file(&file, path, options, diag));
    }
    return SONDE_OK;
}

sonde_err sonde_nn_data_fetch(const char *name, const char *dir,
                              const sonde_nn_fetch_options *given, sonde_diag *diag)
{
    SONDE__NEEDS(diag, name);
    sonde_nn_fetch_options taken;
    const sonde_nn_fetch_options *const options = &taken;
    SONDE__TAKE(sonde_nn_fetch_options, &taken, given, diag);
    const public_set *set = find_set(name, diag);
    char cache[PATH_SIZE];

    if (set == NULL) {
        return SONDE_ENOTFOUND;
    }
    if (dir != NULL) {
        return fetch_all(set, dir, options, diag);
    }
    SONDE__TRY(sonde_nn_data_cache(name, cache, sizeof cache, diag));
    return fetch_all(set, cache, options, diag);
}
