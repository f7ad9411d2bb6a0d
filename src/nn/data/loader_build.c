/*
 * loader_build.c - making a loader: its options, its epoch, its memory, its threads.
 */
#include "base/fail.h"
#include "base/options.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/data/loader_state.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

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
    const size_t set_scratch = sonde_nn_dataset_get_traits(loader->set)->scratch;
    const size_t pipe_scratch = sonde_nn_pipeline_get_info(loader->pipeline).scratch;

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
        for (size_t k = 0; k < loader->field_count; k++) {
            part.fields[k] =
                sonde__arena_take(arena, SONDE__ALIGN, entries * loader->field_bytes[k]);
        }
        if (arena->base != NULL) {
            memcpy(loader->ring[i].fields, part.fields, sizeof part.fields);
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
    size_t entries = 0, ring = 0, largest = loader->sample_bytes;

    /* place multiplies these unchecked */
    if (!sonde__mul((size_t)loader->options.batch, loader->sample_bytes,
                    &loader->batch_bytes) ||
        loader->batch_bytes > SIZE_MAX / 4) {
        return sonde__fail_nomem(diag, "a batch");
    }
    for (size_t k = 0; k < loader->field_count; k++) {
        largest = SONDE_MAX(largest, loader->field_bytes[k] * SONDE_NN_FIELDS);
    }
    choose_sizes(loader);
    if (!sonde__mul((size_t)loader->chunk * loader->slots, (size_t)loader->options.batch,
                    &entries) ||
        !sonde__mul(entries, SONDE_MAX(largest, (size_t)loader->label_length * 16),
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

        code = pthread_create(&filler->thread, NULL, sonde__data_work, filler);
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
    SONDE__TRY(check_options(options, traits->count, diag));
    loader->options.world = SONDE_MAX(options->world, 1);
    SONDE__TRY(split_epoch(loader, diag));
    SONDE__TRY(sonde_nn_pipeline_create(options->transforms, options->transform_count,
                                        traits, &loader->pipeline, diag));
    loader->options.transforms = NULL; /* the caller's */
    loader->sample_bytes = sonde_nn_pipeline_get_info(loader->pipeline).bytes;
    loader->label_length = SONDE_MAX(traits->label_length, (int64_t)1);
    loader->field_count = traits->field_count;
    for (size_t k = 0; k < traits->field_count; k++) {
        loader->field_bytes[k] = sonde__dataset_field_bytes(&traits->fields[k]);
    }
    loader->fresh = true;
    SONDE__TRY(take_memory(loader, diag));
    SONDE__TRY(make_locks(loader, diag));
    return start_workers(loader, diag);
}

sonde_err sonde_nn_loader_create(const sonde_nn_dataset *set,
                                 const sonde_nn_loader_options *given,
                                 sonde_nn_loader **out, sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "set, options, out", set, given, out);
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
