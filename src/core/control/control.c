/*
 * control.c - requests to the run loop: one of each kind, under a mutex. An atomic mask
 * says which kinds are pending, so that a take without a request locks nothing.
 *
 * Requests of other processes come in RUN/control.jsonl: one line per request, appended
 * by one write(), and read by the run loop from the length that the file had when the
 * control was created. Lines that are not requests are skipped with a warning.
 */
#include "control/control.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"
#include "format/format.h"
#include "storage/store.h"

#include <sonde/log.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const double look_seconds = 0.05;

struct sonde_control {
    pthread_mutex_t lock;
    sonde_request asked[SONDE__CONTROL_KINDS]; /* under lock */
    /* A bit for each pending kind. Set under the lock with release; pairs with take's
     * acquire. */
    atomic_uint mask;
    sonde__control_file file; /* the run loop's */
};

const char *sonde_request_kind_name(sonde_request_kind kind)
{
    static const char *const names[SONDE__CONTROL_KINDS] = {"stop", "checkpoint"};
    const size_t i = (size_t)kind;

    return i < SONDE_COUNT_OF(names) ? names[i] : "?";
}

void sonde__control_request_text(char copy[SONDE_REQUEST_TEXT], const char *text)
{
    size_t n = 0;

    for (; text[n] != '\0' && n + 1 < SONDE_REQUEST_TEXT; n++) {
        const unsigned char c = (unsigned char)text[n];

        copy[n] = c < 0x20 || c == 0x7F ? ' ' : text[n];
    }
    if (text[n] != '\0') { /* not inside a character */
        while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) {
            n--;
        }
    }
    copy[n] = '\0';
}

sonde_err sonde_control_create(const char *run, sonde_control **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, out);
    sonde_control *control = sonde__calloc(1, sizeof *control);

    if (control == NULL || pthread_mutex_init(&control->lock, NULL) != 0) {
        sonde__free(control);
        return sonde__fail_nomem(diag, "a control");
    }
    sonde_err err = sonde__control_file_init(&control->file, run, diag);
    if (err != SONDE_OK) {
        sonde_control_destroy(control);
        return err;
    }
    *out = control;
    return SONDE_OK;
}

void sonde_control_destroy(sonde_control *control)
{
    if (control == NULL) {
        return;
    }
    sonde__control_file_fini(&control->file);
    (void)pthread_mutex_destroy(&control->lock);
    sonde__free(control);
}

void sonde_control_ask(sonde_control *control, sonde_request_kind kind,
                       sonde_request_by asker, const char *text)
{
    if (control == NULL) {
        return;
    }
    const unsigned bit = 1U << (unsigned)kind;

    if ((unsigned)kind >= SONDE__CONTROL_KINDS) {
        return;
    }
    (void)pthread_mutex_lock(&control->lock);
    if ((atomic_load_explicit(&control->mask, memory_order_relaxed) & bit) == 0) {
        sonde_request *request = &control->asked[kind];

        request->kind = kind;
        request->by = asker;
        sonde__control_request_text(request->text, text != NULL ? text : "");
        (void)atomic_fetch_or_explicit(&control->mask, bit, memory_order_release);
    }
    (void)pthread_mutex_unlock(&control->lock);
}

bool sonde_control_take(sonde_control *control, sonde_request *request)
{
    if (control == NULL || request == NULL) {
        return false;
    }
    unsigned mask = 0;
    sonde_request_kind kind = SONDE_REQUEST_CHECKPOINT;

    if (control->file.path != NULL) {
        const double now = sonde__now();

        if (now - control->file.looked >= look_seconds) {
            control->file.looked = now;
            sonde__control_file_read(&control->file, control);
        }
    }
    mask = atomic_load_explicit(&control->mask, memory_order_acquire);
    if (mask == 0) {
        return false;
    }
    if ((mask & 1U << SONDE_REQUEST_CHECKPOINT) == 0) {
        kind = SONDE_REQUEST_STOP;
    }
    (void)pthread_mutex_lock(&control->lock);
    *request = control->asked[kind];
    (void)atomic_fetch_and_explicit(&control->mask, ~(1U << (unsigned)kind),
                                    memory_order_relaxed);
    (void)pthread_mutex_unlock(&control->lock);
    return true;
}

/* --- requests of other processes -------------------------------------------------- */

static char *path_of(const char *run, const char *name)
{
    const size_t size = strlen(run) + strlen(name) + 2;
    char *path = sonde__malloc(size);

    if (path != NULL) {
        (void)snprintf(path, size, "%s/%s", run, name);
    }
    return path;
}

sonde_err sonde__control_file_init(sonde__control_file *file, const char *run,
                                   sonde_diag *diag)
{
    struct stat status;

    if (run == NULL) {
        return SONDE_OK;
    }
    file->path = path_of(run, SONDE__CONTROL_FILE);
    if (file->path == NULL) {
        return sonde__fail_nomem(diag, "a control");
    }
    if (stat(file->path, &status) == 0 && status.st_size > 0) {
        file->offset = (uint64_t)status.st_size;
    }
    return SONDE_OK;
}

void sonde__control_file_fini(sonde__control_file *file)
{
    sonde__free(file->path);
    file->path = NULL;
}

/* --- reading ---------------------------------------------------------------------- */

sonde_err sonde__control_parse(const char *line, size_t size, sonde_request *request,
                               sonde_diag *diag)
{
    json_error_t error;
    bool no_memory = false;
    json_t *object =
        sonde__json_read(line, size, JSON_REJECT_DUPLICATES, &error, &no_memory);
    const char *kind = json_string_value(json_object_get(object, "request"));
    const char *asker = json_string_value(json_object_get(object, "by"));
    const char *text = json_string_value(json_object_get(object, "text"));
    sonde_err err = SONDE_OK;

    if (no_memory) {
        err = sonde__fail_nomem(diag, SONDE__CONTROL_FILE);
    } else if (object == NULL) {
        err = sonde__fail(diag, SONDE_EFORMAT, SONDE__CONTROL_FILE,
                          "a JSON object a line", "%s", error.text);
    } else if (sonde__record_seal_broken(line, size)) {
        err = sonde__fail(diag, SONDE_EFORMAT, SONDE__CONTROL_FILE, NULL,
                          "a line does not match its checksum");
    } else if (kind == NULL ||
               (strcmp(kind, "stop") != 0 && strcmp(kind, "checkpoint") != 0)) {
        err = sonde__fail(diag, SONDE_EFORMAT, SONDE__CONTROL_FILE, "stop or checkpoint",
                          "request '%.64s'", kind != NULL ? kind : "");
    } else {
        *request = (sonde_request){
            .kind = kind[0] == 's' ? SONDE_REQUEST_STOP : SONDE_REQUEST_CHECKPOINT,
            .by = asker != NULL && strcmp(asker, "rule") == 0 ? SONDE_BY_RULE
                                                              : SONDE_BY_USER};
        sonde__control_request_text(request->text, text != NULL ? text : "");
    }
    json_decref(object);
    return err;
}

static void take_line(sonde_control *control, const char *line, size_t size)
{
    sonde_request request;
    sonde_diag diag = {0};
    char text[SONDE_DIAG_LINE];

    if (sonde__control_parse(line, size, &request, &diag) == SONDE_OK) {
        sonde_control_ask(control, request.kind, request.by, request.text);
    } else {
        sonde_log(SONDE_LOG_WARNING, "control", "%s: ignored",
                  sonde_diag_line(&diag, text, sizeof text));
    }
}

/* Takes the complete lines of a piece; returns their bytes. A full piece without a
 * newline is not ours and is skipped. */
static size_t take_lines(sonde_control *control, const char *piece, size_t size)
{
    size_t done = 0;

    for (;;) {
        const char *end = memchr(piece + done, '\n', size - done);

        if (end == NULL) {
            break;
        }
        take_line(control, piece + done, (size_t)(end - piece) - done);
        done = (size_t)(end - piece) + 1;
    }
    if (done == 0 && size == SONDE__CONTROL_LINE) {
        sonde_log(SONDE_LOG_WARNING, "control",
                  SONDE__CONTROL_FILE ": a line of more than %d bytes: ignored",
                  SONDE__CONTROL_LINE);
        done = size;
    }
    return done;
}

void sonde__control_file_read(sonde__control_file *file, sonde_control *control)
{
    char piece[SONDE__CONTROL_LINE];
    struct stat status;

    if (stat(file->path, &status) != 0 || (uint64_t)status.st_size <= file->offset) {
        return;
    }
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (!file->warned) {
            file->warned = true;
            sonde_log(SONDE_LOG_WARNING, "control", "%s: cannot open: %s", file->path,
                      strerror(errno));
        }
        return;
    }
    for (;;) {
        const ssize_t got = pread(fd, piece, sizeof piece, (off_t)file->offset);
        const size_t done = got > 0 ? take_lines(control, piece, (size_t)got) : 0;

        if (done == 0) {
            break;
        }
        file->offset += done;
    }
    (void)close(fd);
}

/* --- writing ---------------------------------------------------------------------- */

/* SONDE_OK if the folder holds a run that has not ended. */
static sonde_err check_run(const char *run, sonde_diag *diag)
{
    char *begun = path_of(run, "run.json"), *ended = path_of(run, "end.json");
    sonde_err err = SONDE_OK;

    if (begun == NULL || ended == NULL) {
        err = sonde__fail_nomem(diag, "a request");
    } else if (access(begun, F_OK) != 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, run, "the folder of a run",
                          "there is no run.json");
    } else if (access(ended, F_OK) == 0) {
        err = sonde__fail(diag, SONDE_ESTATE, run, "a run that has not ended",
                          "the run has ended");
    }
    sonde__free(begun);
    sonde__free(ended);
    return err;
}

/* The same of a run in a store. */
static sonde_err check_stored(const char *url, sonde_diag *diag)
{
    bool begun = false, ended = false;
    SONDE__TRY(sonde__store_exists(url, "run.json", &begun, diag));
    if (!begun) {
        return sonde__fail(diag, SONDE_ENOTFOUND, url, "the address of a run",
                           "there is no run.json");
    }
    SONDE__TRY(sonde__store_exists(url, "end.json", &ended, diag));
    if (ended) {
        return sonde__fail(diag, SONDE_ESTATE, url, "a run that has not ended",
                           "the run has ended");
    }
    return SONDE_OK;
}

/* A new line, freed with free(); NULL if memory runs out. */
static char *make_line(sonde_request_kind kind, sonde_request_by asker, const char *text)
{
    char when[32], clean[SONDE_REQUEST_TEXT], *body = NULL, *line = NULL;
    const time_t now = time(NULL);
    struct tm utc;
    json_t *object = NULL;

    sonde__control_request_text(clean, text != NULL ? text : "");
    (void)gmtime_r(&now, &utc);
    (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    object =
        json_pack("{s:s,s:s,s:s,s:s}", "request", sonde_request_kind_name(kind), "by",
                  asker == SONDE_BY_RULE ? "rule" : "user", "text", clean, "time", when);
    if (object == NULL) { /* text is not UTF-8 */
        object =
            json_pack("{s:s,s:s,s:s,s:s}", "request", sonde_request_kind_name(kind), "by",
                      asker == SONDE_BY_RULE ? "rule" : "user", "text", "", "time", when);
    }
    body = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (body != NULL) {
        size_t length = strlen(body);

        line = realloc(body, length + 2 + SONDE__SEAL);
        if (line == NULL) {
            free(body);
            return NULL;
        }
        line[length] = '\n';
        length = sonde__record_seal(line, length + 1);
        line[length] = '\0';
    }
    return line;
}

sonde_err sonde_control_send(const char *run, sonde_request_kind kind,
                             sonde_request_by asker, const char *text, sonde_diag *diag)
{
    SONDE__NEEDS(diag, run);
    const bool remote = sonde__store_is_address(run);
    char *path = NULL, *line = NULL;
    sonde_err err = remote ? check_stored(run, diag) : check_run(run, diag);
    int fd = -1;

    if (err != SONDE_OK) {
        return err;
    }
    if ((unsigned)kind >= SONDE__CONTROL_KINDS) {
        return sonde__fail(diag, SONDE_EINVAL, "control", "stop or checkpoint",
                           "request %d", (int)kind);
    }
    path = path_of(run, SONDE__CONTROL_FILE);
    line = make_line(kind, asker, text);
    if (path == NULL || line == NULL) {
        err = sonde__fail_nomem(diag, "a request");
        goto done;
    }
    if (remote) {
        err = sonde__store_append(run, SONDE__CONTROL_FILE, line, strlen(line), diag);
        goto done;
    }
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        err = sonde__fail_errno(diag, path, "cannot open");
    } else if (write(fd, line, strlen(line)) != (ssize_t)strlen(line)) {
        err = sonde__fail_errno(diag, path, "cannot write");
    }
    if (fd >= 0) {
        (void)close(fd);
    }
done:
    free(line);
    sonde__free(path);
    return err;
}
