/*
 * loader.c - batches: made by worker threads or by the consumer, handed over in order.
 *
 * Batches are made and handed over in chunks: a few consecutive batches of one epoch.
 * Chunks carry tickets 0, 1, 2 ...; ticket t is chunk t mod C of epoch first + t / C,
 * where C chunks make an epoch, and goes through slot t mod S of the ring:
 *
 *     released <= reading < ... filled, in any order ... < claimed <= released + S
 *
 * A worker claims a ticket under the lock, fills the slot without it, and stores
 * slot.filled = t + 1 (release). The consumer loads that (acquire): if the chunk is
 * there, it takes no lock. It gives a chunk back by storing released (release; the
 * claiming worker's load under the lock is the acquire).
 *
 * A thread without work sets a flag (consumer_waits, idle_workers) and checks again
 * before it sleeps; a thread that made work checks that flag afterwards. Both pairs are
 * sequentially consistent, so one of the two always sees the other. Idle workers are
 * woken when half of the ring is free, not for every chunk: hand-overs cost no system
 * call while the loader is ahead.
 *
 * Workers run ahead at most into the epoch after the consumer's, so two orders are
 * enough: that of epoch e is orders[e mod 2].
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"
#include "nn/data/dataset.h"
#include "nn/data/pipeline.h"
#include "base/given.h"

#include <sonde/error.h>
#include <sonde/nn/loader.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* A place for one chunk. The buffers belong to the filler until filled is stored, then to
 * the consumer until released passes the ticket. */
typedef struct sonde__data_slot {
    _Atomic uint64_t filled; /* ticket + 1 of the chunk in it */
    unsigned char *data;     /* (chunk, batch, sample) */
    int64_t *labels;         /* (chunk, batch, labels of a sample) */
    uint32_t *indices;       /* (chunk, batch) */
    sonde_err err;           /* from batch failed_batch of the chunk */
    int64_t failed_batch;
    sonde_diag diag;
} sonde__data_slot;

/* Fills slots: a thread, or the consumer itself. */
typedef struct sonde__data_filler {
    struct sonde_nn_loader *loader;
    void *set_scratch, *pipe_scratch;
    pthread_t thread;
    bool started;
} sonde__data_filler;

struct sonde_nn_loader {
    /* fixed after create */
    const sonde_nn_dataset *set;
    sonde_nn_pipeline *pipeline;
    sonde_nn_loader_options options;
    int64_t samples, batches; /* of an epoch, this rank */
    int64_t block;   /* first sample of this rank in the order, epochs 0, 2 ... */
    int64_t shift;   /* added to it in odd epochs */
    int64_t chunk;   /* batches in one */
    uint64_t chunks; /* C */
    uint64_t slots;  /* S */
    size_t sample_bytes, batch_bytes;
    int64_t label_length; /* labels of a sample, at least 1 */
    sonde__data_slot *ring;
    sonde__data_filler *fillers; /* workers, or one */
    uint32_t *orders[2];         /* NULL: not shuffled */
    void *memory;                /* all of the above in one block */

    /* the consumer's own */
    uint64_t epoch; /* the current one */
    int64_t next;   /* batch of it */
    bool fresh;     /* no batch of it was requested */
    sonde_nn_loader_stats stats;

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t work; /* for workers */
    pthread_cond_t news; /* for the consumer */
    bool locks_made;
    bool stop, paused;
    int busy;             /* workers filling a slot */
    uint64_t claimed;     /* tickets */
    uint64_t first_epoch; /* of ticket 0 */
    uint64_t ordered[2];  /* epoch + 1 of each order that is made */
    bool ordering;        /* a thread is making one */

    /* shared without the lock */
    _Atomic uint64_t released;      /* tickets the consumer is done with */
    _Atomic uint64_t reading_epoch; /* the consumer's, for workers */
    atomic_bool consumer_waits;
    atomic_int idle_workers;
    atomic_bool give_up;   /* fillers end their chunk early */
    _Atomic uint64_t idle; /* times a worker became idle */
};

/* === making batches ================================================================= */

/* Makes the order of an epoch. */
static void make_order(sonde_nn_loader *loader, uint64_t epoch)
{
    const uint32_t count = (uint32_t)sonde_nn_dataset_get_traits(loader->set)->count;

    if (loader->orders[0] != NULL) {
        sonde__permute(loader->options.seed, sonde__data_stream(epoch, 0), count,
                       loader->orders[epoch % 2]);
    }
}

/* Samples in batch number n of an epoch. */
static int64_t batch_samples(const sonde_nn_loader *loader, int64_t n)
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
                       sonde_nn_dataset_where(loader->set, index));
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
    const int64_t count = batch_samples(loader, number);
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
    }
    return SONDE_OK;
}

/* Fills a slot with the batches of a chunk. */
static void fill_slot(sonde__data_filler *filler, sonde__data_slot *slot, uint64_t epoch,
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
        make_order(loader, epoch);
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
    fill_slot(filler, slot, epoch, first,
              SONDE_MIN(loader->chunk, loader->batches - first));
    atomic_store(&slot->filled, ticket + 1);
    (void)pthread_mutex_lock(&loader->lock);
    loader->busy--;
    if (atomic_load(&loader->consumer_waits) || (loader->busy == 0 && loader->paused)) {
        (void)pthread_cond_signal(&loader->news);
    }
}

/* The thread: argument is a sonde__data_filler. */
static void *run_worker(void *argument)
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

/* === the consumer =================================================================== */

#if defined(SONDE_STRESS)
enum { CHUNK_BYTES = 1, RING_BYTES = 1 }; /* one batch a chunk, the smallest ring */
#else
enum { CHUNK_BYTES = 192 * 1024, RING_BYTES = 2 * 1024 * 1024 };
#endif

/* --- the epoch of this rank --------------------------------------------------------- */

static sonde_err check_options(const sonde_nn_loader_options *options, int64_t count,
                               sonde_diag *diag)
{
    if (options->batch < 1 || options->workers < 0 || options->workers > 1024 ||
        options->prefetch < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "loader",
                           "batch from 1, workers 0 to 1024, prefetch from 0",
                           "batch %" PRId64 ", %d workers, prefetch %" PRId64,
                           options->batch, options->workers, options->prefetch);
    }
    if (options->world < 0 || options->rank < 0 ||
        options->rank >= SONDE_MAX(options->world, 1)) {
        return sonde__fail(diag, SONDE_EINVAL, "loader", "rank below world",
                           "rank %d of %d", options->rank, options->world);
    }
    if (count > (int64_t)UINT32_MAX) {
        return sonde__fail(diag, SONDE_ERANGE, "loader", "at most 4294967295",
                           "%" PRId64 " samples", count);
    }
    return SONDE_OK;
}

static sonde_err split_epoch(sonde_nn_loader *loader, sonde_diag *diag)
{
    const sonde_nn_loader_options *options = &loader->options;
    const int64_t count = sonde_nn_dataset_get_traits(loader->set)->count;
    const int64_t world = options->world, rank = options->rank;
    int64_t together = 0;

    if (options->keep_last) {
        const int64_t more = count % world;

        loader->samples = count / world + (rank < more ? 1 : 0);
        loader->block = rank * (count / world) + SONDE_MIN(rank, more);
    } else if (!__builtin_mul_overflow(options->batch, world, &together)) {
        loader->samples = options->batch * (count / together);
        loader->block = rank * loader->samples;
        loader->shift = world > 1 ? count - world * loader->samples : 0;
    }
    if (loader->samples == 0) {
        return sonde__fail(
            diag, SONDE_ERANGE, sonde_nn_dataset_get_traits(loader->set)->source,
            "at least one batch a rank",
            "%" PRId64 " samples for batches of %" PRId64 " on %" PRId64 " rank%s", count,
            options->batch, world, world > 1 ? "s" : "");
    }
    loader->batches = loader->samples / options->batch +
                      (loader->samples % options->batch != 0 ? 1 : 0);
    return SONDE_OK;
}

/* --- memory ------------------------------------------------------------------------- */

/* Chooses batches a chunk and chunks a ring: a chunk fits the cache and an epoch has at
 * least one. */
static void choose_sizes(sonde_nn_loader *loader)
{
    const int64_t bytes = (int64_t)SONDE_MAX(loader->batch_bytes, (size_t)1);
    const int64_t prefetch = loader->options.prefetch;
    int64_t slots = 0;

    if (loader->options.workers == 0) {
        loader->chunk = 1;
        loader->slots = 1;
        loader->chunks = (uint64_t)loader->batches;
        return;
    }
    loader->chunk = SONDE_MAX(CHUNK_BYTES / bytes, (int64_t)1);
    if (prefetch > 0) {
        loader->chunk = SONDE_MIN(loader->chunk, SONDE_MAX(prefetch / 3, (int64_t)1));
    }
    loader->chunk = SONDE_MIN(loader->chunk, loader->batches);
    slots = prefetch > 0 ? (prefetch + loader->chunk - 1) / loader->chunk + 1
                         : RING_BYTES / (bytes * loader->chunk);
    slots = SONDE_MAX(slots, (int64_t)loader->options.workers + 2);
    loader->slots = (uint64_t)slots;
    loader->chunks = (uint64_t)((loader->batches + loader->chunk - 1) / loader->chunk);
}

/* The same code measures (arena without base) and places. */
static void place(sonde_nn_loader *loader, sonde__arena *arena)
{
    const size_t entries = (size_t)(loader->chunk * loader->options.batch);
    const size_t fillers = (size_t)SONDE_MAX(loader->options.workers, 1);
    const size_t count = (size_t)sonde_nn_dataset_get_traits(loader->set)->count;
    const size_t set_scratch = sonde_nn_dataset_scratch(loader->set);
    const size_t pipe_scratch = sonde_nn_pipeline_scratch(loader->pipeline);

    loader->ring =
        sonde__arena_take(arena, SONDE__ALIGN, loader->slots * sizeof *loader->ring);
    loader->fillers =
        sonde__arena_take(arena, SONDE__ALIGN, fillers * sizeof *loader->fillers);
    if (arena->base != NULL) {
        memset(loader->ring, 0, loader->slots * sizeof *loader->ring);
        memset(loader->fillers, 0, fillers * sizeof *loader->fillers);
    }
    for (int i = 0; loader->options.shuffle && i < 2; i++) {
        loader->orders[i] =
            sonde__arena_take(arena, SONDE__ALIGN, count * sizeof *loader->orders[i]);
    }
    for (uint64_t i = 0; i < loader->slots; i++) {
        sonde__data_slot part = {0};

        part.data = sonde__arena_take(arena, SONDE__ALIGN,
                                      (size_t)loader->chunk * loader->batch_bytes);
        part.labels = sonde__arena_take(arena, SONDE__ALIGN,
                                        entries * (size_t)loader->label_length *
                                            sizeof *part.labels);
        part.indices =
            sonde__arena_take(arena, SONDE__ALIGN, entries * sizeof *part.indices);
        if (arena->base != NULL) {
            loader->ring[i].data = part.data;
            loader->ring[i].labels = part.labels;
            loader->ring[i].indices = part.indices;
        }
    }
    for (size_t i = 0; i < fillers; i++) {
        void *of_set = sonde__arena_take(arena, SONDE__ALIGN, set_scratch);
        void *of_pipe = sonde__arena_take(arena, SONDE__ALIGN, pipe_scratch);

        if (arena->base != NULL) {
            loader->fillers[i].loader = loader;
            loader->fillers[i].set_scratch = of_set;
            loader->fillers[i].pipe_scratch = of_pipe;
        }
    }
}

static sonde_err take_memory(sonde_nn_loader *loader, sonde_diag *diag)
{
    sonde__arena measure = {0}, arena = {0};
    size_t entries = 0, ring = 0;

    /* place multiplies these unchecked */
    if (!sonde__mul((size_t)loader->options.batch, loader->sample_bytes,
                    &loader->batch_bytes) ||
        loader->batch_bytes > SIZE_MAX / 4) {
        return sonde__fail_nomem(diag, "a batch");
    }
    choose_sizes(loader);
    if (!sonde__mul((size_t)loader->chunk * loader->slots, (size_t)loader->options.batch,
                    &entries) ||
        !sonde__mul(entries,
                    SONDE_MAX(loader->sample_bytes, (size_t)loader->label_length * 16),
                    &ring) ||
        ring > SIZE_MAX / 4) {
        return sonde__fail_nomem(diag, "a ring of batches");
    }
    place(loader, &measure);
    if (sonde__arena_init(&arena, measure.used) != SONDE_OK) {
        return sonde__fail(diag, SONDE_ENOMEM, NULL, NULL,
                           "out of memory for a loader of %zu bytes", measure.used);
    }
    loader->memory = arena.base;
    place(loader, &arena);
    return SONDE_OK;
}

/* --- building ----------------------------------------------------------------------- */

/* Workers block all signals: these belong to the program's own threads. */
static sonde_err start_workers(sonde_nn_loader *loader, sonde_diag *diag)
{
    sigset_t all, before;
    int code = 0;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; code == 0 && i < loader->options.workers; i++) {
        sonde__data_filler *filler = &loader->fillers[i];

        code = pthread_create(&filler->thread, NULL, run_worker, filler);
        filler->started = code == 0;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        return sonde__fail(diag, SONDE_EIO, "loader", NULL, "cannot start a thread: %s",
                           strerror(code));
    }
    return SONDE_OK;
}

static sonde_err make_locks(sonde_nn_loader *loader, sonde_diag *diag)
{
    const int a = pthread_mutex_init(&loader->lock, NULL);
    const int b = pthread_cond_init(&loader->work, NULL);
    const int c = pthread_cond_init(&loader->news, NULL);

    loader->locks_made = a == 0 && b == 0 && c == 0;
    return loader->locks_made ? SONDE_OK : sonde__fail_nomem(diag, "a lock");
}

static sonde_err build(sonde_nn_loader *loader, sonde_diag *diag)
{
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(loader->set);
    const sonde_nn_loader_options *options = &loader->options;
    sonde_err err = check_options(options, traits->count, diag);

    if (err != SONDE_OK) {
        return err;
    }
    loader->options.world = SONDE_MAX(options->world, 1);
    err = split_epoch(loader, diag);
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde_nn_pipeline_create(options->transforms, options->transform_count, traits,
                                   &loader->pipeline, diag);
    if (err != SONDE_OK) {
        return err;
    }
    loader->options.transforms = NULL; /* the caller's */
    loader->sample_bytes = sonde_nn_pipeline_bytes(loader->pipeline);
    loader->label_length = SONDE_MAX(traits->label_length, (int64_t)1);
    loader->fresh = true;
    err = take_memory(loader, diag);
    if (err != SONDE_OK) {
        return err;
    }
    err = make_locks(loader, diag);
    if (err != SONDE_OK) {
        return err;
    }
    return start_workers(loader, diag);
}

sonde_err sonde_nn_loader_create(const sonde_nn_dataset *set,
                                 const sonde_nn_loader_options *given,
                                 sonde_nn_loader **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, set, given, out);
    sonde_nn_loader_options taken;
    const sonde_nn_loader_options *const options = &taken;
    SONDE__TAKE(sonde_nn_loader_options, &taken, given, diag);
    sonde_nn_loader *loader = sonde__calloc(1, sizeof *loader);
    sonde_err err = SONDE_OK;

    if (loader == NULL) {
        return sonde__fail_nomem(diag, "a loader");
    }
    loader->set = set;
    loader->options = *options;
    err = build(loader, diag);
    if (err != SONDE_OK) {
        sonde_nn_loader_destroy(loader);
        return err;
    }
    *out = loader;
    return SONDE_OK;
}

void sonde_nn_loader_destroy(sonde_nn_loader *loader)
{
    if (loader == NULL) {
        return;
    }
    if (loader->locks_made) {
        atomic_store(&loader->give_up, true);
        (void)pthread_mutex_lock(&loader->lock);
        loader->stop = true;
        (void)pthread_cond_broadcast(&loader->work);
        (void)pthread_mutex_unlock(&loader->lock);
        for (int i = 0; i < loader->options.workers; i++) {
            if (loader->fillers[i].started) {
                (void)pthread_join(loader->fillers[i].thread, NULL);
            }
        }
        (void)pthread_cond_destroy(&loader->news);
        (void)pthread_cond_destroy(&loader->work);
        (void)pthread_mutex_destroy(&loader->lock);
    }
    sonde_nn_pipeline_destroy(loader->pipeline);
    sonde__free(loader->memory);
    sonde__free(loader);
}

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
    double start = 0.0;

    if (atomic_load_explicit(&slot->filled, memory_order_acquire) == ticket + 1) {
        return slot;
    }
    start = sonde__now();
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
        make_order(loader, loader->epoch);
        loader->ordered[loader->epoch % 2] = loader->epoch + 1;
    }
    fill_slot(&loader->fillers[0], &loader->ring[0], loader->epoch, loader->next, 1);
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
    *out = (sonde_nn_batch){
        .data = slot->data + (size_t)at * loader->batch_bytes,
        .labels = slot->labels + at * loader->options.batch * loader->label_length,
        .indices = slot->indices + at * loader->options.batch,
        .count = batch_samples(loader, loader->next),
        .number = loader->next,
        .label_length = sonde_nn_dataset_get_traits(loader->set)->label_length,
    };
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

int64_t sonde_nn_loader_batches(const sonde_nn_loader *loader)
{
    if (loader == NULL) {
        return 0;
    }
    return loader->batches;
}

int64_t sonde_nn_loader_batch(const sonde_nn_loader *loader)
{
    if (loader == NULL) {
        return 0;
    }
    return loader->options.batch;
}

int64_t sonde_nn_loader_samples(const sonde_nn_loader *loader)
{
    if (loader == NULL) {
        return 0;
    }
    return loader->samples;
}

sonde_dtype sonde_nn_loader_dtype(const sonde_nn_loader *loader)
{
    if (loader == NULL) {
        return SONDE_BOOL;
    }
    return sonde_nn_pipeline_dtype(loader->pipeline);
}

int sonde_nn_loader_shape(const sonde_nn_loader *loader,
                          int64_t shape[SONDE_NN_SAMPLE_DIMS])
{
    if (loader == NULL || shape == NULL) {
        return 0;
    }
    return sonde_nn_pipeline_shape(loader->pipeline, shape);
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
