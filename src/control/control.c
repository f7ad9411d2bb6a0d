/*
 * control.c - requests to the run loop: one of each kind, under a mutex. An atomic mask says
 * which kinds are pending, so that a take without a request locks nothing.
 */
#include "control/control.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

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
    sonde_control *control = sonde__calloc(1, sizeof *control);
    sonde_err err = SONDE_OK;

    if (control == NULL || pthread_mutex_init(&control->lock, NULL) != 0) {
        sonde__free(control);
        return sonde__fail_nomem(diag, "a control");
    }
    err = sonde__control_file_init(&control->file, run, diag);
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
