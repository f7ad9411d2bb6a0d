/*
 * outfeed.c - an outfeed queue's life before it is attached: options, and what was asked
 * for.
 */
#include "observe/outfeed_state.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/names.h"

#include <stdio.h>
#include <string.h>

const char *sonde__outfeed_where(const sonde_outfeed *queue, char *buf, size_t size)
{
    (void)snprintf(buf, size, "outfeed '%.200s'", queue->name);
    return buf;
}

/* --- creating --------------------------------------------------------------------- */

static sonde_err check_options(const sonde_outfeed_options *options, sonde_diag *diag)
{
    if (options->rows < 1) {
        return sonde__fail(diag, SONDE_EINVAL, "rows", "1 or more", "%lld",
                           (long long)options->rows);
    }
    if ((unsigned)options->when_full > SONDE_OUTFEED_ERROR) {
        return sonde__fail(diag, SONDE_EINVAL, "when_full", "a sonde_outfeed_full", "%d",
                           (int)options->when_full);
    }
    if ((unsigned)options->per > SONDE_OUTFEED_MICRO_BATCH) {
        return sonde__fail(diag, SONDE_EINVAL, "per", "a sonde_outfeed_per", "%d",
                           (int)options->per);
    }
    if (options->one_thread && options->when_full == SONDE_OUTFEED_BLOCK) {
        return sonde__fail(diag, SONDE_EINVAL, "one_thread",
                           "another when_full: nobody could make room",
                           "a queue of one thread that blocks when it is full");
    }
    return options->when != NULL ? sonde_schedule_check(options->when, diag) : SONDE_OK;
}

static bool copy_texts(sonde_outfeed *queue, const sonde_outfeed_options *options)
{
    queue->name = sonde__strdup(options->name != NULL ? options->name : "outfeed");
    queue->filters = sonde__calloc(options->filter_count, sizeof *queue->filters);
    if (queue->name == NULL || queue->filters == NULL) {
        return false;
    }
    for (size_t i = 0; i < options->filter_count; i++) {
        queue->filters[i] = sonde__strdup(options->filters[i]);
        if (queue->filters[i] == NULL) {
            return false;
        }
        queue->filter_count++;
    }
    return true;
}

static void free_texts(sonde_outfeed *queue)
{
    for (size_t i = 0; i < queue->filter_count; i++) {
        sonde__free(queue->filters[i]);
    }
    sonde__free(queue->filters);
    sonde__free(queue->name);
}

/* The clock of timed waits must not jump. */
static void init_threads(sonde_outfeed *queue)
{
    pthread_condattr_t steady;

    (void)pthread_condattr_init(&steady);
    (void)pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&queue->lock, NULL);
    (void)pthread_cond_init(&queue->room, NULL);
    (void)pthread_cond_init(&queue->filled, &steady);
    (void)pthread_condattr_destroy(&steady);
}

sonde_err sonde_outfeed_create(const sonde_outfeed_options *options, sonde_outfeed **out,
                               sonde_diag *diag)
{
    const sonde_err err = check_options(options, diag);
    sonde_outfeed *queue = NULL;

    if (err != SONDE_OK) {
        return err;
    }
    queue = sonde__calloc(1, sizeof *queue);
    if (queue == NULL) {
        return sonde__fail_nomem(diag, "an outfeed queue");
    }
    queue->options = *options;
    queue->when = options->when != NULL ? *options->when : sonde_schedule_always();
    sonde__outfeed_sink_init(&queue->sink);
    if (!copy_texts(queue, options)) {
        free_texts(queue);
        sonde__free(queue);
        return sonde__fail_nomem(diag, "an outfeed queue");
    }
    sonde__names_init(&queue->keys);
    init_threads(queue);
    *out = queue;
    return SONDE_OK;
}

void sonde__outfeed_clear(sonde_outfeed *queue)
{
    for (size_t i = 0; i < queue->column_count; i++) {
        sonde__outfeed_free_column(&queue->columns[i]);
    }
    sonde__names_fini(&queue->keys);
    sonde__names_init(&queue->keys);
    for (size_t id = 0; id < queue->id_capacity; id++) {
        queue->by_id[id] = SONDE__NO_COLUMN;
    }
    queue->column_count = 0;
    queue->prepared = 0;
    queue->row.open = false;
    queue->head = 0;
    queue->count = 0;
}

void sonde_outfeed_destroy(sonde_outfeed *queue)
{
    if (queue == NULL) {
        return;
    }
    sonde__outfeed_clear(queue);
    sonde__names_fini(&queue->keys);
    for (size_t i = 0; i < queue->request_count; i++) {
        sonde__free(queue->requests[i].tensor);
        sonde__free(queue->requests[i].key);
    }
    sonde__free(queue->requests);
    sonde__free(queue->columns);
    sonde__free(queue->by_id);
    sonde__free(queue->entries);
    free_texts(queue);
    (void)pthread_cond_destroy(&queue->room);
    (void)pthread_cond_destroy(&queue->filled);
    (void)pthread_mutex_destroy(&queue->lock);
    sonde__free(queue);
}

sonde_sink *sonde_outfeed_sink(sonde_outfeed *queue)
{
    return &queue->sink;
}

/* --- adding ----------------------------------------------------------------------- */

static sonde_err add_request(sonde_outfeed *queue, const sonde__outfeed_request *added,
                             sonde_diag *diag)
{
    char where[256];

    (void)sonde__outfeed_where(queue, where, sizeof where);
    if (queue->prepared > 0) {
        return sonde__fail(diag, SONDE_ESTATE, where, "tensors before it is bound",
                           "a tensor added to a queue in use");
    }
    if (!sonde__reserve(&queue->requests, &queue->request_capacity,
                        queue->request_count + 1, sizeof *queue->requests)) {
        return sonde__fail_nomem(diag, where);
    }
    queue->requests[queue->request_count++] = *added;
    return SONDE_OK;
}

sonde_err sonde_outfeed_add(sonde_outfeed *queue, const char *tensor, const char *key,
                            sonde_diag *diag)
{
    sonde__outfeed_request added = {.tensor = sonde__strdup(tensor)};
    sonde_err err = SONDE_OK;

    if (key != NULL) {
        added.key = sonde__strdup(key);
    }
    if (added.tensor == NULL || (key != NULL && added.key == NULL)) {
        err = sonde__fail_nomem(diag, "an outfeed queue");
    }
    if (err == SONDE_OK) {
        err = add_request(queue, &added, diag);
    }
    if (err != SONDE_OK) {
        sonde__free(added.tensor);
        sonde__free(added.key);
    }
    return err;
}

sonde_err sonde_outfeed_add_gradients(sonde_outfeed *queue, sonde_outfeed_gradients mode,
                                      sonde_diag *diag)
{
    const sonde__outfeed_request added = {.gradients = mode};
    const bool steps = queue->options.per == SONDE_OUTFEED_STEP;
    char where[256];

    (void)sonde__outfeed_where(queue, where, sizeof where);
    if ((unsigned)mode > SONDE_OUTFEED_BEFORE_APPLY) {
        return sonde__fail(diag, SONDE_EINVAL, where, "a sonde_outfeed_gradients",
                           "gradients of mode %d", (int)mode);
    }
    if (steps != (mode == SONDE_OUTFEED_BEFORE_APPLY)) {
        return sonde__fail(diag, SONDE_EINVAL, where,
                           steps ? "gradients BEFORE_APPLY" : "gradients AFTER_COMPUTE",
                           "gradients %s in a queue with a row a %s",
                           steps ? "AFTER_COMPUTE" : "BEFORE_APPLY",
                           steps ? "step" : "micro-batch");
    }
    return add_request(queue, &added, diag);
}
