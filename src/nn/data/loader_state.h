/*
 * loader_state.h - the inside of pipelines and loaders. Internal.
 */
#ifndef SONDE_NN_DATA_LOADER_STATE_H
#define SONDE_NN_DATA_LOADER_STATE_H

#include "nn/data/dataset.h"
#include "nn/data/pixels.h"

#include <sonde/nn/loader.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* === pipeline ====================================================================== */

/*
 * The inside of a composed list of transforms.
 */

/* One step: a transform, or to_float fused with the normalize after it (affine). */
typedef struct sonde__data_step {
    sonde_nn_transform transform;
    bool fused;                 /* to_float that also normalizes */
    sonde__data_affine *affine; /* to_float: one, or one a channel; in the pipeline */
    int affines;
    uint64_t place; /* in the given list, from 1: its stream of random numbers */
} sonde__data_step;

struct sonde_nn_pipeline {
    sonde__data_step steps[SONDE_NN_TRANSFORMS_MAX];
    size_t count;
    sonde__data_affine_fn *kernel;
    sonde_dtype in_dtype, out_dtype;
    int rank;
    int64_t out_shape[SONDE_NN_SAMPLE_DIMS];
    size_t out_bytes;
    size_t buffer_bytes; /* size of each of the two buffers between steps */
    size_t resize_bytes;
    sonde__data_affine *affines; /* owned */
};

/* The stream of random numbers of an epoch: place 0 is the order, p is transform p. */
static inline uint64_t sonde__data_stream(uint64_t epoch, uint64_t place)
{
    return epoch * (SONDE_NN_TRANSFORMS_MAX + 1) + place;
}

/* === loader state ================================================================== */

/*
 * The inside of a loader: batches, made by worker threads or by the
 * consumer (loader_fill.c), handed over in order (loader.c); loader_build.c makes it.
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

/* A place for one chunk. The buffers belong to the filler until filled is stored, then to
 * the consumer until released passes the ticket. */
typedef struct sonde__data_slot {
    _Atomic uint64_t filled;                /* ticket + 1 of the chunk in it */
    unsigned char *data;                    /* (chunk, batch, sample) */
    int64_t *labels;                        /* (chunk, batch, labels of a sample) */
    uint32_t *indices;                      /* (chunk, batch) */
    unsigned char *fields[SONDE_NN_FIELDS]; /* (chunk, batch, field) */
    sonde_err err;                          /* from batch failed_batch of the chunk */
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
    size_t field_count;
    size_t field_bytes[SONDE_NN_FIELDS]; /* of a sample */
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

/* Samples in batch number n of an epoch. */
int64_t sonde__data_batch_samples(const sonde_nn_loader *loader, int64_t n);
/* Makes the order of an epoch, if the loader shuffles. */
void sonde__data_make_order(sonde_nn_loader *loader, uint64_t epoch);
/* Fills a slot with the batches of a chunk. */
void sonde__data_fill(sonde__data_filler *filler, sonde__data_slot *slot, uint64_t epoch,
                      int64_t first_batch, int64_t batches);
/* A worker's thread: argument is a sonde__data_filler. */
void *sonde__data_work(void *argument);

#endif
