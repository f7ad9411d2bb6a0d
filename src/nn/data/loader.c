/*
 * loader.c - a loader's consumer: hands batches over in order, and starts epochs.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "nn/data/loader_state.h"

#include <string.h>

/* --- the consumer ------------------------------------------------------------------- */

/* The ticket of the chunk that holds the next batch (one past the epoch's at its end). */
static uint64_t ticket_of_next(const sonde_nn_loader *loader)
{
    return (loader->epoch - loader->first_epoch) * loader->chunks +
           (uint64_t)((loader->next + loader->chunk - 1) / loader->chunk);
}

/* Wakes idle workers once half of the ring is free. */
static void wake_workers(sonde_nn_loader *loader, uint64_t released)
{
    if (atomic_load(&loader->idle_workers) > 0) {
        (void)pthread_mutex_lock(&loader->lock);
        if (loader->claimed - released <= loader->slots / 2) {
            (void)pthread_cond_broadcast(&loader->work);
        }
        (void)pthread_mutex_unlock(&loader->lock);
    }
}

/* Releases all tickets before this one. */
static void release(sonde_nn_loader *loader, uint64_t ticket)
{
    if (atomic_load_explicit(&loader->released, memory_order_relaxed) != ticket) {
        atomic_store(&loader->released, ticket);
        wake_workers(loader, ticket);
    }
}

/* Discards the batches made ahead and restarts at this epoch. */
static void start_afresh(sonde_nn_loader *loader, uint64_t epoch)
{
    (void)pthread_mutex_lock(&loader->lock);
    loader->paused = true;
    atomic_store(&loader->give_up, true);
    while (loader->busy > 0) {
        (void)pthread_cond_wait(&loader->news, &loader->lock);
    }
    for (uint64_t i = 0; i < loader->slots; i++) {
        atomic_store(&loader->ring[i].filled, 0);
    }
    loader->claimed = 0;
    loader->first_epoch = epoch;
    atomic_store(&loader->released, 0);
    atomic_store(&loader->reading_epoch, epoch);
    atomic_store(&loader->give_up, false);
    loader->paused = false;
    (void)pthread_cond_broadcast(&loader->work);
    (void)pthread_mutex_unlock(&loader->lock);
}

void sonde_nn_loader_start_epoch(sonde_nn_loader *loader, uint64_t epoch)
{
    if (loader == NULL) {
        return;
    }
    const bool in_turn = epoch == loader->epoch + 1 && loader->next == loader->batches;

    if (epoch == loader->epoch && loader->fresh) {
        return;
    }
    if (loader->options.workers > 0) {
        if (in_turn) {
            const uint64_t ticket = ticket_of_next(loader);

            atomic_store(&loader->released, ticket);
            atomic_store(&loader->reading_epoch, epoch);
            wake_workers(loader, ticket);
        } else {
            start_afresh(loader, epoch);
        }
    }
    loader->epoch = epoch;
    loader->next = 0;
    loader->fresh = true;
}

/* Waits for the chunk, or makes the batch when there are no workers. */
static const sonde__data_slot *have_chunk(sonde_nn_loader *loader, uint64_t ticket)
{
    sonde__data_slot *slot = &loader->ring[ticket % loader->slots];

    if (atomic_load_explicit(&slot->filled, memory_order_acquire) == ticket + 1) {
        return slot;
    }
    const double start = sonde__now();
    loader->stats.waits++;
    (void)pthread_mutex_lock(&loader->lock);
    atomic_store(&loader->consumer_waits, true);
    (void)pthread_cond_broadcast(
        &loader->work); /* workers that sleep while the ring is half full */
    while (atomic_load(&slot->filled) != ticket + 1) {
        (void)pthread_cond_wait(&loader->news, &loader->lock);
    }
    atomic_store(&loader->consumer_waits, false);
    (void)pthread_mutex_unlock(&loader->lock);
    loader->stats.waited += sonde__now() - start;
    return slot;
}

static const sonde__data_slot *make_batch(sonde_nn_loader *loader)
{
    const double start = sonde__now();

    if (loader->ordered[loader->epoch % 2] != loader->epoch + 1) {
        sonde__data_make_order(loader, loader->epoch);
        loader->ordered[loader->epoch % 2] = loader->epoch + 1;
    }
    sonde__data_fill(&loader->fillers[0], &loader->ring[0], loader->epoch, loader->next,
                     1);
    loader->stats.waited += sonde__now() - start;
    return &loader->ring[0];
}

static sonde_err give_batch(sonde_nn_loader *loader, const sonde__data_slot *slot,
                            sonde_nn_batch *out, sonde_diag *diag)
{
    const int64_t at = loader->next % loader->chunk;

    if (slot->err != SONDE_OK && at >= slot->failed_batch) {
        if (diag != NULL) {
            *diag = slot->diag;
        }
        return slot->err;
    }
    sonde_nn_batch batch = {
        .data = slot->data + (size_t)at * loader->batch_bytes,
        .labels = slot->labels + at * loader->options.batch * loader->label_length,
        .indices = slot->indices + at * loader->options.batch,
        .count = sonde__data_batch_samples(loader, loader->next),
        .number = loader->next,
        .label_length = sonde_nn_dataset_get_traits(loader->set)->label_length,
    };

    for (size_t k = 0; k < loader->field_count; k++) {
        batch.fields[k] = slot->fields[k] +
                          (size_t)(at * loader->options.batch) * loader->field_bytes[k];
    }
    *out = batch;
    loader->next++;
    loader->stats.batches++;
    return SONDE_OK;
}

sonde_err sonde_nn_loader_next(sonde_nn_loader *loader, sonde_nn_batch *out,
                               sonde_diag *diag)
{
    SONDE__NEEDS(diag, loader, out);
    const sonde__data_slot *slot = NULL;

    loader->fresh = false;
    if (loader->next == loader->batches) {
        if (loader->options.workers > 0) {
            release(loader, ticket_of_next(loader));
        }
        *out = (sonde_nn_batch){.number = loader->next};
        return SONDE_OK;
    }
    if (loader->options.workers == 0) {
        slot = make_batch(loader);
    } else {
        const uint64_t ticket = (loader->epoch - loader->first_epoch) * loader->chunks +
                                (uint64_t)(loader->next / loader->chunk);

        if (loader->next % loader->chunk == 0) {
            release(loader, ticket);
        }
        slot = have_chunk(loader, ticket);
    }
    return give_batch(loader, slot, out, diag);
}

/* --- describing --------------------------------------------------------------------- */

sonde_nn_loader_info sonde_nn_loader_get_info(const sonde_nn_loader *loader)
{
    if (loader == NULL) {
        return (sonde_nn_loader_info){.traits = NULL};
    }
    const sonde_nn_pipeline_info made = sonde_nn_pipeline_get_info(loader->pipeline);
    sonde_nn_loader_info info = {.traits = sonde_nn_dataset_get_traits(loader->set),
                                 .batch = loader->options.batch,
                                 .batches = loader->batches,
                                 .samples = loader->samples,
                                 .dtype = made.dtype,
                                 .rank = made.rank};

    memcpy(info.shape, made.shape, sizeof info.shape);
    return info;
}

sonde_nn_loader_stats sonde_nn_loader_get_stats(const sonde_nn_loader *loader)
{
    if (loader == NULL) {
        return (sonde_nn_loader_stats){0};
    }
    sonde_nn_loader_stats stats = loader->stats;

    stats.idle = atomic_load_explicit(&loader->idle, memory_order_relaxed);
    return stats;
}
