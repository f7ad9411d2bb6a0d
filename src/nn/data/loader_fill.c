/*
 * loader_fill.c - making batches, and the worker threads that do it ahead.
 */
#include "base/macros.h"
#include "base/random.h"
#include "nn/data/loader_state.h"

#include <stdio.h>
#include <string.h>

/* --- making batches ----------------------------------------------------------------- */

void sonde__data_make_order(sonde_nn_loader *loader, uint64_t epoch)
{
    const uint32_t count = (uint32_t)sonde_nn_dataset_get_traits(loader->set)->count;

    if (loader->orders[0] != NULL) {
        sonde__permute(loader->options.seed, sonde__data_stream(epoch, 0), count,
                       loader->orders[epoch % 2]);
    }
}

int64_t sonde__data_batch_samples(const sonde_nn_loader *loader, int64_t n)
{
    return SONDE_MIN(loader->options.batch, loader->samples - n * loader->options.batch);
}

/* A shuffled sample is a cache miss: asking for it this many samples early hides most of
 * it (measured on 28 x 28 bytes: 300 to 400 ns a sample without, 80 ns with). */
enum { AHEAD = 4 };

/* The i-th sample of this rank's epoch. */
static uint32_t index_of(const sonde_nn_loader *loader, uint64_t epoch, int64_t i)
{
    const uint32_t *order = loader->orders[epoch % 2];
    const int64_t place = loader->block + (epoch % 2 ? loader->shift : 0) + i;

    return order != NULL ? order[place] : (uint32_t)place;
}

/* Says which sample failed, unless diag does. */
static sonde_err name_sample(const sonde_nn_loader *loader, uint32_t index, sonde_err err,
                             sonde_diag *diag)
{
    if (diag->where[0] == '\0') {
        (void)snprintf(diag->where, sizeof diag->where, "%s",
                       sonde__dataset_where(loader->set, index));
    }
    return err;
}

/* One batch at place of the slot. */
static sonde_err fill_batch(const sonde__data_filler *filler,
                            const sonde__data_slot *slot, uint64_t epoch, int64_t number,
                            int64_t place, sonde_diag *diag)
{
    const sonde_nn_loader *loader = filler->loader;
    const int64_t first = number * loader->options.batch;
    const int64_t count = sonde__data_batch_samples(loader, number);
    unsigned char *data = slot->data + (size_t)place * loader->batch_bytes;
    int64_t *labels = slot->labels + place * loader->options.batch * loader->label_length;
    uint32_t *indices = slot->indices + place * loader->options.batch;

    for (int64_t i = 0; i < count; i++) {
        const uint32_t index = index_of(loader, epoch, first + i);
        sonde_nn_sample sample;
        sonde_err err =
            sonde_nn_dataset_get(loader->set, index, filler->set_scratch, &sample, diag);

        if (first + i + AHEAD < loader->samples) {
            sonde__dataset_prefetch(loader->set,
                                    index_of(loader, epoch, first + i + AHEAD));
        }
        if (err != SONDE_OK) {
            return name_sample(loader, index, err, diag);
        }
        err = sonde_nn_pipeline_run(loader->pipeline, &sample, loader->options.seed,
                                    epoch, index, filler->pipe_scratch,
                                    data + (size_t)i * loader->sample_bytes, diag);
        if (err != SONDE_OK) {
            return name_sample(loader, index, err, diag);
        }
        memcpy(labels + i * loader->label_length,
               sample.labels != NULL ? sample.labels : &sample.label,
               (size_t)loader->label_length * sizeof *labels);
        indices[i] = index;
        for (size_t k = 0; k < loader->field_count; k++) {
            memcpy(slot->fields[k] + (size_t)(place * loader->options.batch + i) *
                                         loader->field_bytes[k],
                   sample.fields[k], loader->field_bytes[k]);
        }
    }
    return SONDE_OK;
}

void sonde__data_fill(sonde__data_filler *filler, sonde__data_slot *slot, uint64_t epoch,
                      int64_t first_batch, int64_t batches)
{
    slot->err = SONDE_OK;
    for (int64_t i = 0; i < batches; i++) {
        if (atomic_load_explicit(&filler->loader->give_up, memory_order_relaxed)) {
            return; /* the chunk will be discarded */
        }
        slot->diag = (sonde_diag){0};
        slot->err = fill_batch(filler, slot, epoch, first_batch + i, i, &slot->diag);
        if (slot->err != SONDE_OK) {
            slot->failed_batch = i;
            return;
        }
    }
}

/* --- threads ------------------------------------------------------------------------ */

/* Under the lock: true if the next ticket may be claimed. */
static bool may_claim(const sonde_nn_loader *loader)
{
    const uint64_t epoch = loader->first_epoch + loader->claimed / loader->chunks;

    return !loader->paused &&
           loader->claimed < atomic_load(&loader->released) + loader->slots &&
           epoch <= atomic_load(&loader->reading_epoch) + 1;
}

/* Under the lock, released meanwhile: makes the order of epoch unless it exists. */
static void have_order(sonde_nn_loader *loader, uint64_t epoch)
{
    while (loader->ordered[epoch % 2] != epoch + 1) {
        if (loader->ordering) {
            (void)pthread_cond_wait(&loader->work, &loader->lock);
            continue;
        }
        loader->ordering = true;
        (void)pthread_mutex_unlock(&loader->lock);
        sonde__data_make_order(loader, epoch);
        (void)pthread_mutex_lock(&loader->lock);
        loader->ordered[epoch % 2] = epoch + 1;
        loader->ordering = false;
        (void)pthread_cond_broadcast(&loader->work);
    }
}

/* Under the lock: sleeps until there may be a ticket to claim, or stop. */
static void be_idle(sonde_nn_loader *loader)
{
    (void)atomic_fetch_add_explicit(&loader->idle, 1, memory_order_relaxed);
    (void)atomic_fetch_add(&loader->idle_workers, 1);
    while (!loader->stop && !may_claim(loader)) {
        (void)pthread_cond_wait(&loader->work, &loader->lock);
    }
    (void)atomic_fetch_sub(&loader->idle_workers, 1);
}

/* Under the lock, released while filling: makes one chunk. */
static void do_chunk(sonde__data_filler *filler)
{
    sonde_nn_loader *loader = filler->loader;
    const uint64_t ticket = loader->claimed++;
    const uint64_t epoch = loader->first_epoch + ticket / loader->chunks;
    const int64_t first = (int64_t)(ticket % loader->chunks) * loader->chunk;
    sonde__data_slot *slot = &loader->ring[ticket % loader->slots];

    loader->busy++;
    have_order(loader, epoch);
    (void)pthread_mutex_unlock(&loader->lock);
    sonde__data_fill(filler, slot, epoch, first,
                     SONDE_MIN(loader->chunk, loader->batches - first));
    atomic_store(&slot->filled, ticket + 1);
    (void)pthread_mutex_lock(&loader->lock);
    loader->busy--;
    if (atomic_load(&loader->consumer_waits) || (loader->busy == 0 && loader->paused)) {
        (void)pthread_cond_signal(&loader->news);
    }
}

void *sonde__data_work(void *argument)
{
    sonde__data_filler *filler = argument;
    sonde_nn_loader *loader = filler->loader;

    (void)pthread_mutex_lock(&loader->lock);
    while (!loader->stop) {
        if (may_claim(loader)) {
            do_chunk(filler);
        } else {
            be_idle(loader);
        }
    }
    (void)pthread_mutex_unlock(&loader->lock);
    return NULL;
}
