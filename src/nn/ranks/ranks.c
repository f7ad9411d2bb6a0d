/*
 * ranks.c - loads the object for MPI, and sums in the order of ranks.
 *
 * A sum of floats: every rank adds one slice of all ranks' values, then all slices are
 * gathered. Long tensors go in pieces, so that the memory beside them is bounded.
 */
#include "nn/ranks/ranks.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/shared_object.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 22 }; /* floats summed at a time */

struct sonde_nn_ranks {
    const sonde__ranks_ops *ops;
    int rank, count;
    sonde__ranks_wait wait;
    sonde_err err; /* the first failure */
    sonde_diag diag;
};

/* --- joining ------------------------------------------------------------------------ */

static const sonde__ranks_ops *loaded_ops;
static char load_fault[256];
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char here = 0;

    loaded_ops = sonde__object_table(&here, "sonde-mpi.so", SONDE__RANKS_TABLE,
                                     load_fault, sizeof load_fault);
}

int sonde_nn_ranks_started(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};

    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        const char *text = getenv(names[i]);
        const long count = text != NULL ? strtol(text, NULL, 10) : 0;

        if (count > 1 && count < INT32_MAX) {
            return (int)count;
        }
    }
    return 1;
}

sonde_err sonde_nn_ranks_join(bool (*interrupted)(void *user), void *user,
                              sonde_nn_ranks **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, out);
    const int started = sonde_nn_ranks_started();
    sonde_nn_ranks *ranks = NULL;
    sonde_err err = SONDE_OK;

    (void)pthread_once(&loaded, load);
    if (loaded_ops == NULL) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, "mpirun",
                           "sonde/sonde-mpi.so beside libsonde_nn", "MPI is not here: %s",
                           load_fault);
    }
    ranks = sonde__calloc(1, sizeof *ranks);
    if (ranks == NULL) {
        return sonde__fail_nomem(diag, "the ranks");
    }
    ranks->ops = loaded_ops;
    ranks->wait = (sonde__ranks_wait){interrupted, user};
    err = ranks->ops->join(&ranks->rank, &ranks->count, diag);
    if (err == SONDE_OK && ranks->count != started) {
        ranks->ops->leave(false);
        err =
            sonde__fail(diag, SONDE_EUNSUPPORTED, "mpirun", "an mpirun of Open MPI",
                        "it started %d processes, and MPI has %d", started, ranks->count);
    }
    if (err != SONDE_OK) {
        sonde__free(ranks);
        return err;
    }
    *out = ranks;
    return SONDE_OK;
}

void sonde_nn_ranks_leave(sonde_nn_ranks *ranks, bool well)
{
    if (ranks != NULL) {
        ranks->ops->leave(well && ranks->err == SONDE_OK);
        sonde__free(ranks);
    }
}

int sonde_nn_ranks_rank(const sonde_nn_ranks *ranks)
{
    return ranks != NULL ? ranks->rank : 0;
}

int sonde_nn_ranks_count(const sonde_nn_ranks *ranks)
{
    return ranks != NULL ? ranks->count : 1;
}

int sonde__ranks_processors(const sonde_nn_ranks *ranks, int count)
{
    const char *text = ranks != NULL ? getenv("OMPI_COMM_WORLD_LOCAL_SIZE") : NULL;
    const long here = text != NULL ? strtol(text, NULL, 10) : 1;
    const bool bound = count < (int)sysconf(_SC_NPROCESSORS_ONLN);

    return here <= 1 || bound ? count : SONDE_MAX(1, count / (int)SONDE_MIN(here, 4096));
}

/* --- failures ----------------------------------------------------------------------- */

sonde_err sonde__ranks_fault(const sonde_nn_ranks *ranks, sonde_diag *diag)
{
    if (ranks == NULL || ranks->err == SONDE_OK) {
        return SONDE_OK;
    }
    if (diag != NULL) {
        *diag = ranks->diag;
    }
    return ranks->err;
}

/* --- sums --------------------------------------------------------------------------- */

static int64_t slice_of(const sonde_nn_ranks *ranks, int64_t count)
{
    return (count + ranks->count - 1) / ranks->count;
}

size_t sonde__ranks_scratch(const sonde_nn_ranks *ranks, int64_t count)
{
    const int64_t piece = SONDE_MIN(count, PIECE);

    return 2 * (size_t)(slice_of(ranks, piece) * ranks->count) * sizeof(float);
}

/* memory: two times the slices of all ranks. */
static sonde_err sum_piece(sonde_nn_ranks *ranks, float *values, int64_t count,
                           float *memory)
{
    const int64_t each = slice_of(ranks, count);
    float *slices = memory, *parts = memory + each * ranks->count;
    sonde_err err = SONDE_OK;

    memcpy(slices, values, (size_t)count * sizeof *values);
    for (int64_t i = count; i < each * ranks->count; i++) {
        slices[i] = 0.0F;
    }
    SONDE__TRY(
        ranks->ops->exchange(slices, parts, (int)each, &ranks->wait, &ranks->diag));
    for (int64_t i = 0; i < each; i++) {
        float total = parts[i];

        for (int r = 1; r < ranks->count; r++) {
            total += parts[r * each + i];
        }
        parts[i] = total;
    }
    err = ranks->ops->gather(parts, slices, (size_t)each * sizeof *parts, &ranks->wait,
                             &ranks->diag);
    if (err == SONDE_OK) {
        memcpy(values, slices, (size_t)count * sizeof *values);
    }
    return err;
}

void sonde__ranks_sum_floats(sonde_nn_ranks *ranks, float *values, int64_t count,
                             void *scratch)
{
    for (int64_t i = 0; i < count && ranks->err == SONDE_OK; i += PIECE) {
        ranks->err = sum_piece(ranks, values + i, SONDE_MIN(count - i, PIECE), scratch);
    }
}

sonde_err sonde_nn_ranks_sum(sonde_nn_ranks *ranks, double *values, size_t count,
                             sonde_diag *diag)
{
    double few[256], *all = few;

    if (ranks == NULL || ranks->err != SONDE_OK || count == 0) {
        return sonde__ranks_fault(ranks, diag);
    }
    SONDE__NEEDS(diag, values);
    if (count * (size_t)ranks->count > SONDE_COUNT_OF(few)) {
        all = sonde__calloc(count * (size_t)ranks->count, sizeof *all);
        if (all == NULL) {
            return sonde__fail_nomem(diag, "a sum over ranks");
        }
    }
    ranks->err = ranks->ops->gather(values, all, count * sizeof *values, &ranks->wait,
                                    &ranks->diag);
    for (size_t i = 0; ranks->err == SONDE_OK && i < count; i++) {
        values[i] = all[i];
        for (size_t r = 1; r < (size_t)ranks->count; r++) {
            values[i] += all[r * count + i];
        }
    }
    if (all != few) {
        sonde__free(all);
    }
    return sonde__ranks_fault(ranks, diag);
}

void sonde__ranks_broadcast(sonde_nn_ranks *ranks, void *data, size_t bytes)
{
    if (ranks->err == SONDE_OK && bytes > 0) {
        ranks->err = ranks->ops->broadcast(data, bytes, &ranks->wait, &ranks->diag);
    }
}

sonde_err sonde_nn_ranks_first(sonde_nn_ranks *ranks, const void *own, void *first,
                               size_t bytes, bool *any, sonde_diag *diag)
{
    SONDE__NEEDS(diag, first, any);
    const size_t count = (size_t)sonde_nn_ranks_count(ranks);
    const size_t each = 1 + bytes; /* whether there are some, and they */
    unsigned char *given = sonde__calloc(count + 1, each);

    *any = false;
    if (given == NULL) {
        return sonde__fail_nomem(diag, "the ranks");
    }
    unsigned char *all = given + each;
    if (own != NULL) {
        given[0] = 1;
        memcpy(given + 1, own, bytes);
    }
    if (ranks == NULL) {
        memcpy(all, given, each);
    } else if (ranks->err == SONDE_OK) {
        ranks->err = ranks->ops->gather(given, all, each, &ranks->wait, &ranks->diag);
    }
    for (size_t r = 0; !*any && sonde__ranks_fault(ranks, NULL) == SONDE_OK && r < count;
         r++) {
        *any = all[r * each] != 0;
        if (*any) {
            memcpy(first, all + r * each + 1, bytes);
        }
    }
    sonde__free(given);
    return sonde__ranks_fault(ranks, diag);
}

sonde_err sonde__ranks_agree(sonde_nn_ranks *ranks, uint64_t value, const char *what,
                             sonde_diag *diag)
{
    uint64_t *all = sonde__calloc((size_t)ranks->count, sizeof *all);

    if (all == NULL) {
        return sonde__fail_nomem(diag, "the ranks");
    }
    if (ranks->err == SONDE_OK) {
        ranks->err =
            ranks->ops->gather(&value, all, sizeof value, &ranks->wait, &ranks->diag);
    }
    for (int r = 1; ranks->err == SONDE_OK && r < ranks->count; r++) {
        if (all[r] != all[0]) {
            ranks->err = sonde__fail(&ranks->diag, SONDE_EINVAL, "mpirun",
                                     "one training for all ranks",
                                     "%s of rank %d differs from rank 0's", what, r);
        }
    }
    sonde__free(all);
    return sonde__ranks_fault(ranks, diag);
}
