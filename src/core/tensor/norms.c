/*
 * norms.c - norms of whole views: cutting into blocks, and the blocks that float32 cannot
 * hold, whose vital signs are taken instead.
 *
 * Compiled without contraction, as vitals.c.
 */
#include "tensor/convert.h"
#include "tensor/vitals.h"
#include "base/cpu.h"
#include "base/macros.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

void sonde__norms_init(sonde_vitals *norms)
{
    sonde_vitals_init(norms);
    sonde_norms_keep(norms);
}

/* Of a block that is not plain. */
static void take_any(sonde_vitals *into, const float *elements, size_t n)
{
    sonde_vitals part;

    sonde_vitals_init(&part);
    sonde__vitals_add_f32(&part, elements, n);
    sonde_norms_keep(&part);
    sonde_vitals_merge(into, &part);
}

void sonde__norms_take(sonde_vitals *into, const sonde__norms_sums *sums,
                       const float *elements, size_t n)
{
    if (n == 0) {
        return;
    }
    if (!sonde__norms_is_plain(sums)) {
        take_any(into, elements, n);
        return;
    }
    into->count += n;
    into->sum += sums->sum;
    into->sumsq += sums->sumsq;
    into->abs_max = sums->most > into->abs_max ? sums->most : into->abs_max;
    into->mean =
        into->sum / (double)(into->count - into->nan - into->pos_inf - into->neg_inf);
}

void sonde__norms_sums_of(const float *block, size_t n, sonde__norms_sums *out)
{
    sonde__vitals_kernels_of(sonde__cpu_isa())->norms_f32(block, n, block, out);
}

static void add_f32(const sonde__vitals_kernels *kernels, sonde_vitals *into,
                    const float *elements, size_t count)
{
    enum { N = SONDE__VITALS_BLOCK };
    const float *x = elements, *const end = elements + count;
    sonde__norms_sums sums[2];

    while (end - x > N) {
        const size_t n = SONDE_MIN((size_t)(end - x) - N, (size_t)N);

        kernels->norms_pair_f32(x, n, end - x >= 4 * N ? x + 2 * N : x, sums);
        sonde__norms_take(into, &sums[0], x, N);
        sonde__norms_take(into, &sums[1], x + N, n);
        x += N + n;
    }
    if (x < end) {
        const size_t n = (size_t)(end - x);

        kernels->norms_f32(x, n, x, sums);
        sonde__norms_take(into, sums, x, n);
    }
}

void sonde__norms_add_f32(sonde_vitals *into, const float *elements, size_t count)
{
    add_f32(sonde__vitals_kernels_of(sonde__cpu_isa()), into, elements, count);
}

void sonde__norms_add_u8(sonde_vitals *into, const uint8_t *elements, size_t count)
{
    sonde_vitals part;

    sonde_vitals_init(&part);
    sonde__vitals_add_u8(&part, elements, count);
    sonde_norms_keep(&part);
    sonde_vitals_merge(into, &part);
}

/* A view whose numbers are float32, or become that without loss. */
static void add_view(const sonde__vitals_kernels *kernels, sonde_vitals *into,
                     const sonde_view *view)
{
    _Alignas(SONDE__ALIGN) unsigned char gathered[SONDE__VITALS_BLOCK * sizeof(float)];
    _Alignas(SONDE__ALIGN) float widened[SONDE__VITALS_BLOCK];
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    size_t n = 0;

    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, SONDE__VITALS_BLOCK, gathered,
                                          &elements)) > 0) {
        const float *x = widened;
        sonde__norms_sums sums;

        if (view->dtype == SONDE_F32) {
            x = elements;
        } else if (view->dtype == SONDE_F16) {
            kernels->widen_f16(elements, n, widened);
        } else if (view->dtype == SONDE_BF16) {
            kernels->widen_bf16(elements, n, widened);
        } else {
            sonde__tensor_load_f32(view->dtype, elements, n, widened);
        }
        kernels->norms_f32(x, n, x, &sums);
        sonde__norms_take(into, &sums, x, n);
    }
}

void sonde__norms_of_isa(sonde__isa isa, const sonde_view *view, sonde_vitals *norms)
{
    const sonde__vitals_kernels *kernels = sonde__vitals_kernels_of(isa);
    const bool direct = sonde_view_is_contiguous(view);
    const size_t count = (size_t)sonde_view_count(view);

    if (count <= 1 || view->dtype == SONDE_U8 || sonde_dtype_is_complex(view->dtype) ||
        !sonde__tensor_fits_f32(view->dtype)) {
        sonde__vitals_of_isa(isa, view, norms);
        sonde_norms_keep(norms);
        return;
    }
    sonde__norms_init(norms);
    if (direct && view->dtype == SONDE_F32 &&
        (uintptr_t)view->data % sizeof(float) == 0) {
        add_f32(kernels, norms, view->data, count);
    } else {
        add_view(kernels, norms, view);
    }
}

void sonde_norms_of(const sonde_view *view, sonde_vitals *norms)
{
    if (norms == NULL) {
        return;
    }
    if (sonde__tensor_view_fault(view, true) != NULL) {
        sonde__norms_init(norms);
        return;
    }
    sonde__norms_of_isa(sonde__cpu_isa(), view, norms);
}
