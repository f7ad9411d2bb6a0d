/*
 * ranks.h - what the engine asks of the other ranks, and the table of the object that does
 * it over MPI. Internal.
 */
#ifndef SONDE_NN_RANKS_RANKS_H
#define SONDE_NN_RANKS_RANKS_H

#include <stdint.h>

#include <sonde/nn/ranks.h>

#define SONDE__RANKS_TABLE "sonde__ranks_mpi"

/* Asked while a call waits; true: it may give up. */
typedef struct sonde__ranks_wait {
    bool (*interrupted)(void *user); /* may be NULL */
    void *user;
} sonde__ranks_wait;

/* Calls of all ranks return SONDE_OK or SONDE_EIO. */
typedef struct sonde__ranks_ops {
    sonde_err (*join)(int *rank, int *count, sonde_diag *diag);
    void (*leave)(bool well);
    /* all[r * bytes]: what rank r gave. */
    sonde_err (*gather)(const void *own, void *all, size_t bytes,
                        const sonde__ranks_wait *wait, sonde_diag *diag);
    /* Rank r's slice s, at part[r][s], becomes slice r of `parts` of rank s. */
    sonde_err (*exchange)(const float *slices, float *parts, int each,
                          const sonde__ranks_wait *wait, sonde_diag *diag);
    sonde_err (*broadcast)(void *data, size_t bytes, const sonde__ranks_wait *wait,
                           sonde_diag *diag);
} sonde__ranks_ops;

/* Of `count` processors, those for this rank: mpirun binds ranks to processors of their own,
 * or they share all of a machine. */
SONDE_API int sonde__ranks_processors(const sonde_nn_ranks *ranks, int count);
/* Bytes that summing needs beside the values. */
size_t sonde__ranks_scratch(const sonde_nn_ranks *ranks, int64_t count);
/*
 * Adds floats of all ranks in the order of ranks: ((x0 + x1) + x2) + ...; all ranks get
 * the same bits. Moves 2 (n - 1) / n of the values in and out of each of n ranks. After a
 * failure of this or an earlier call, which sonde__ranks_fault tells, values are not
 * specified.
 */
void sonde__ranks_sum_floats(sonde_nn_ranks *ranks, float *values, int64_t count,
                             void *scratch);
/* Rank 0's bytes for all ranks. */
void sonde__ranks_broadcast(sonde_nn_ranks *ranks, void *data, size_t bytes);
/* A hash of what ranks must agree on, which begins at SEED: FNV-1a, on whole numbers. */
#define SONDE__RANKS_SEED UINT64_C(0xcbf29ce484222325)
static inline uint64_t sonde__ranks_mix(uint64_t hash, int64_t number)
{
    return (hash ^ (uint64_t)number) * UINT64_C(0x100000001b3);
}
/* Whether all ranks have the same 64 bits. SONDE_EINVAL: what differs, at which rank. */
SONDE_API sonde_err sonde__ranks_agree(sonde_nn_ranks *ranks, uint64_t value,
                                       const char *what, sonde_diag *diag);
/* The first failure of any call; SONDE_OK: none. NULL ranks: none. */
sonde_err sonde__ranks_fault(const sonde_nn_ranks *ranks, sonde_diag *diag);

#endif
