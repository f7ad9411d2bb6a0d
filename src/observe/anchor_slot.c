/*
 * anchor_slot.c - one anchor: sizing its block, and putting values in their places.
 *
 * The block holds the n values as they are returned, and a value goes to its place by its
 * coordinates, so the order in which replicas deliver does not matter.
 */
#include "observe/anchor_slot.h"

#include "base/fail.h"
#include "base/memory.h"
#include "observe/accumulate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <sonde/error.h>

const char *sonde__anchor_where(const char *name, char *buf, size_t size)
{
    (void)snprintf(buf, size, "anchor '%.200s'", name);
    return buf;
}

/* --- preparing -------------------------------------------------------------------- */

static sonde_err check_slot(const sonde__anchor_slot *of, const char *where,
                            sonde_diag *diag)
{
    const bool adds = of->mode == SONDE_ANCHOR_SUM || of->mode == SONDE_ANCHOR_MEAN;
    const sonde_dtype dtype = of->value.dtype;
    char expected[64];

    if (of->period > of->run.iterations) {
        (void)snprintf(expected, sizeof expected, "1 to %d", of->run.iterations);
        return sonde__fail(diag, SONDE_EINVAL, where, expected,
                           "period %d is more than the iterations of a call, %d",
                           of->period, of->run.iterations);
    }
    if (of->run.iterations % of->period != 0) {
        (void)snprintf(expected, sizeof expected, "a divisor of %d", of->run.iterations);
        return sonde__fail(diag, SONDE_EINVAL, where, expected,
                           "period %d does not divide the iterations of a call, %d",
                           of->period, of->run.iterations);
    }
    if (adds && dtype == SONDE_BOOL) {
        return sonde__fail(diag, SONDE_EDTYPE, where, "mode final, everyn or all",
                           "mode %s of a bool tensor", sonde_anchor_mode_name(of->mode));
    }
    if (of->mode == SONDE_ANCHOR_MEAN && !sonde_dtype_is_float(dtype) &&
        !sonde_dtype_is_complex(dtype)) {
        return sonde__fail(diag, SONDE_EDTYPE, where, "mode sum", "mode mean of %s",
                           sonde_dtype_name(dtype));
    }
    return SONDE_OK;
}

int64_t sonde__anchor_micro_batches(const sonde__anchor_slot *of)
{
    return (int64_t)of->run.iterations * of->run.micro_batches;
}

/* How many values are kept. */
static int64_t kept_count(const sonde__anchor_slot *of)
{
    const bool one = of->mode != SONDE_ANCHOR_ALL && of->mode != SONDE_ANCHOR_EVERYN;

    return (one ? 1 : sonde__anchor_micro_batches(of) / of->period) * of->run.replicas;
}

/* Shape of what is returned, as anchor.h defines it. */
static sonde_err shape_kept(const sonde__anchor_slot *of, bool axes, int64_t *shape,
                            int *rank, const char *where, sonde_diag *diag)
{
    const bool one = of->mode != SONDE_ANCHOR_ALL && of->mode != SONDE_ANCHOR_EVERYN;
    const int64_t leading[3] = {one ? 1 : of->run.iterations / of->period,
                                one ? 1 : of->run.micro_batches, of->run.replicas};
    const int64_t n = kept_count(of);
    const size_t bytes = (size_t)of->value.rank * sizeof shape[0];

    *rank = 0;
    for (int i = 0; i < 3 && axes; i++) {
        if (leading[i] != 1) {
            shape[(*rank)++] = leading[i];
        }
    }
    if (*rank + of->value.rank > SONDE_MAX_DIMS) {
        return sonde__fail(diag, SONDE_ESHAPE, where, "at most 8 dimensions",
                           "%d axes before a tensor of rank %d", *rank, of->value.rank);
    }
    memcpy(shape + *rank, of->value.shape, bytes);
    *rank += of->value.rank;
    if (!axes && n > 1) {
        if (*rank == 0) {
            shape[(*rank)++] = 1;
        }
        if (__builtin_mul_overflow(shape[0], n, &shape[0])) {
            return sonde__fail(diag, SONDE_ESHAPE, where, "less",
                               "%lld values of one tensor", (long long)n);
        }
    }
    return SONDE_OK;
}

sonde_err sonde__anchor_prepare(sonde__anchor_slot *of, const sonde_tensor_info *info,
                                bool axes, const sonde_call_shape *run, sonde_diag *diag)
{
    int64_t shape[SONDE_MAX_DIMS] = {0};
    char where[256];
    int rank = 0;
    size_t total = 0;
    sonde_err err = SONDE_OK;

    (void)sonde__anchor_where(of->name, where, sizeof where);
    of->value = sonde_view_of(info->dtype, info->rank, info->shape, NULL);
    of->run = *run;
    of->once = info->pass == SONDE_PASS_UPDATE;
    if (of->once) {
        of->run.micro_batches = 1;
    }
    err = check_slot(of, where, diag);
    if (err == SONDE_OK) {
        err = shape_kept(of, axes, shape, &rank, where, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    of->value_size = (size_t)sonde_view_count(&of->value) * sonde_dtype_size(info->dtype);
    if (!sonde__mul(of->value_size, (size_t)kept_count(of), &total)) {
        return sonde__fail_nomem(diag, where);
    }
    of->kept = sonde_view_of(info->dtype, rank, shape, sonde__calloc(total, 1));
    if (of->kept.data == NULL) {
        return sonde__fail_nomem(diag, where);
    }
    of->expected = of->mode == SONDE_ANCHOR_SUM || of->mode == SONDE_ANCHOR_MEAN
                       ? sonde__anchor_micro_batches(of) * run->replicas
                       : kept_count(of);
    of->prepared = true;
    return SONDE_OK;
}

/* --- keeping ---------------------------------------------------------------------- */

/* Copies or adds a value to the place-th of those kept. Dtype and shape are right. */
static void keep(sonde__anchor_slot *of, int64_t place, bool add, const sonde_view *view)
{
    unsigned char *data = (unsigned char *)of->kept.data + (size_t)place * of->value_size;

    if (add) {
        sonde__observe_accumulate(data, view);
        of->arrived++;
    } else {
        sonde_view to = of->value;

        to.data = data;
        of->arrived += sonde_view_copy(&to, view, NULL) == SONDE_OK;
    }
}

void sonde__anchor_take(sonde__anchor_slot *of, const sonde_observation *seen)
{
    const sonde_call_shape *run = &of->run;
    const int64_t g = of->once ? 0 : seen->at.micro_batch;
    const int64_t k = (int64_t)seen->at.iteration * run->micro_batches + g;
    const int r = seen->at.replica;

    if (seen->view->dtype != of->value.dtype ||
        !sonde_view_same_shape(seen->view, &of->value) || seen->at.iteration < 0 ||
        seen->at.iteration >= run->iterations || g < 0 || g >= run->micro_batches ||
        r < 0 || r >= run->replicas) {
        of->foreign++;
        return;
    }
    switch (of->mode) {
    case SONDE_ANCHOR_ALL:
    case SONDE_ANCHOR_EVERYN:
        if ((k + 1) % of->period == 0) {
            keep(of, ((k + 1) / of->period - 1) * run->replicas + r, false, seen->view);
        }
        break;
    case SONDE_ANCHOR_SUM:
    case SONDE_ANCHOR_MEAN:
        keep(of, r, k > 0, seen->view);
        break;
    case SONDE_ANCHOR_FINAL:
    case SONDE_ANCHOR_DEFAULT: /* resolved when added */
        if (k + 1 == sonde__anchor_micro_batches(of)) {
            keep(of, r, false, seen->view);
        }
        break;
    }
}
