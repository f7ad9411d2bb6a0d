/*
 * ranks.h - one training in several processes, on one machine or on many, over MPI.
 *
 * Each process, a rank, trains a copy of the network on samples of its own. Before every
 * update the gradients of all ranks are added in the order of ranks, so all ranks make the
 * same update. mpirun starts the processes:
 *
 *     mpirun -n 2 sonde train fashion_cnn
 *
 * Order of calls
 *     join; attach to a session or give to a trainer; run; leave
 *
 * The functions that say "all ranks" end when all ranks have called them. MPI is an object
 * of its own, "sonde/sonde-mpi.so" beside this library, loaded by join.
 *
 * One thread at a time uses a handle.
 */
#ifndef SONDE_NN_RANKS_H
#define SONDE_NN_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#include <sonde/error.h>
#include <sonde/export.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_ranks sonde_nn_ranks;

/* How many processes mpirun has started together with this one, from the environment
 * (Open MPI, PMI); 1: it was started alone. Cost: two getenv. */
SONDE_API int sonde_nn_ranks_started(void);

/*
 * Joins the other ranks; all ranks. interrupted (may be NULL) is asked while this rank
 * waits for another one: once it returns true, waiting ends within a second, with an error.
 * SONDE_EUNSUPPORTED: there is no MPI here, or the processes were started by another one.
 * SONDE_ESTATE: this process has joined before; MPI can be begun once.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_ranks_join(bool (*interrupted)(void *user),
                                                      void *user, sonde_nn_ranks **out,
                                                      sonde_diag *diag);
/*
 * well: all ranks; waits for the others and ends MPI. Not well: at once, and mpirun ends
 * the other ranks when this process has ended. The handle is gone. NULL is fine.
 */
SONDE_API void sonde_nn_ranks_leave(sonde_nn_ranks *ranks, bool well);

/* This rank, from 0, and their number. NULL: 0 of 1. */
SONDE_API int sonde_nn_ranks_rank(const sonde_nn_ranks *ranks);
SONDE_API int sonde_nn_ranks_count(const sonde_nn_ranks *ranks);

/*
 * Adds count numbers of all ranks, in the order of ranks; all ranks get the same bits.
 * NULL: one rank, values stay. SONDE_EIO: a rank has ended or does not answer, for 600 s
 * or, after interrupted, for one second; every later call returns the same error. count 0:
 * asks for such an error without waiting.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_ranks_sum(sonde_nn_ranks *ranks,
                                                     double *values, size_t count,
                                                     sonde_diag *diag);
/*
 * Gives all ranks the bytes of the first rank that has some. own: this rank's; NULL: it has
 * none. Sets *any: whether a rank has, else `first` stays. All ranks give the same count of
 * bytes. NULL ranks: one rank. SONDE_ENOMEM; SONDE_EIO as in sonde_nn_ranks_sum.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_ranks_first(sonde_nn_ranks *ranks,
                                                       const void *own, void *first,
                                                       size_t bytes, bool *any,
                                                       sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
