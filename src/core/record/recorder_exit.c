/*
 * recorder_exit.c - recorders that are open when the program exits, or forks.
 *
 * exit and a return from main close all recorders as interrupted. close may still be
 * called afterwards, by another exit handler. A forked child has the recorders of its
 * parent, but neither their threads nor a right to their files: it records nothing in
 * them, and may close them, which frees its memory. It gives up its part of the lock of
 * the folder, so that the lock ends with the parent.
 */
#include "record/recorder_state.h"

#include "base/log_lock.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sonde_recorder *first;

bool sonde__recorder_stop(sonde_recorder *recorder, sonde_run_end reason,
                          const char *text)
{
    sonde__record_writer *const writer = &recorder->writer;

    if (writer->started && writer->text == NULL) {
        writer->reason = reason;
        writer->text = text != NULL ? sonde__strdup(text) : NULL;
    }
    return sonde__record_writer_stop(writer);
}

/* The program may still call close. */
static void keep(void *user)
{
    (void)user;
}

static void close_all(void)
{
    (void)pthread_mutex_lock(&lock);
    for (sonde_recorder *r = first; r != NULL; r = r->next) {
        if (!r->is_over) {
            if (pthread_equal(atomic_load(&r->producer), pthread_self()) != 0) {
                sonde__recorder_end_quiet(r);
            }
            r->closed = true;
            r->is_over = true;
            r->writer.left = keep;
            r->is_left = !sonde__recorder_stop(
                r, SONDE_RUN_INTERRUPTED, "the program ended without closing the run");
            if (!r->is_left && r->spool != NULL) {
                (void)sonde__store_spool_finish(r->spool, NULL);
            }
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

static void before_fork(void)
{
    (void)pthread_mutex_lock(&lock);
    sonde__log_hold();
}

static void after_fork(void)
{
    sonde__log_release();
    (void)pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    sonde__log_release();
    for (sonde_recorder *r = first; r != NULL; r = r->next) {
        r->closed = true;
        r->forked = true;
        r->complained = false;
        r->is_over = true;
        r->is_left = false;
        r->writer.started = false;
        r->spool = NULL; /* its threads are the parent's */
        sonde__record_ring_renew(&r->ring);
        r->writer.backend->ops->unlock(r->writer.backend);
    }
    (void)pthread_mutex_unlock(&lock);
}

static void set_up(void)
{
    (void)pthread_atfork(before_fork, after_fork, in_child);
    (void)atexit(close_all);
}

void sonde__recorder_enter(sonde_recorder *recorder)
{
    (void)pthread_once(&once, set_up);
    (void)pthread_mutex_lock(&lock);
    atomic_store(&recorder->producer, pthread_self());
    recorder->next = first;
    if (first != NULL) {
        first->previous = recorder;
    }
    first = recorder;
    (void)pthread_mutex_unlock(&lock);
}

void sonde__recorder_leave(sonde_recorder *recorder)
{
    (void)pthread_mutex_lock(&lock);
    if (recorder->next != NULL) {
        recorder->next->previous = recorder->previous;
    }
    if (recorder->previous != NULL) {
        recorder->previous->next = recorder->next;
    } else if (first == recorder) {
        first = recorder->next;
    }
    (void)pthread_mutex_unlock(&lock);
}
