/*
 * vitals.c - vital signs of whole views: cutting into blocks, closing a block, merging.
 *
 * A kernel gives plain sums of a block. Two cases need the block's memory, which is
 * still in cache: elements that are not finite (the finite ones are copied to a buffer,
 * and the kernel runs again), and a |mean| so large that it dominates the sum of squares
 * (a second pass computes the variance about the mean).
 *
 * Compiled without contraction: the results here are the same for every kernel.
 */
#include "tensor/vitals.h"
#include "base/cpu.h"
#include "base/macros.h"
#include "base/memory.h"

#include "tensor/convert.h"

#include <sonde/stats.h>

#include <math.h>
#include <string.h>

/* One block of float32, or of float64 if wide. ahead is the next block, or the same one.
 */
typedef struct block {
    const void *elements;
    const void *ahead;
    size_t n;
    bool wide;
} block;

void sonde_vitals_init(sonde_vitals *vitals)
{
    if (vitals == NULL) {
        return;
    }
    *vitals = (sonde_vitals){.min = (double)INFINITY,
                             .max = -(double)INFINITY,
                             .abs_min = (double)INFINITY,
                             .abs_max = -(double)INFINITY};
}

static double finite_count(const sonde_vitals *v)
{
    return (double)(v->count - v->nan - v->pos_inf - v->neg_inf);
}

/* --- norms -------------------------------------------------------------------------- */

void sonde_norms_keep(sonde_vitals *vitals)
{
    if (vitals == NULL) {
        return;
    }
    vitals->zero = SONDE_VITALS_ABSENT;
    vitals->min = vitals->max = vitals->abs_min = (double)NAN;
    vitals->m2 = vitals->l1 = (double)NAN;
}

extern inline bool sonde_vitals_are_norms(const sonde_vitals *vitals);

static bool either_is_norms(const sonde_vitals *a, const sonde_vitals *b)
{
    return sonde_vitals_are_norms(a) || sonde_vitals_are_norms(b);
}

/* into := into + part, of which one is norms. */
static void merge_norms(sonde_vitals *into, const sonde_vitals *part)
{
    const double n = finite_count(into) + finite_count(part);

    into->count += part->count;
    into->nan += part->nan;
    into->pos_inf += part->pos_inf;
    into->neg_inf += part->neg_inf;
    into->abs_max = part->abs_max > into->abs_max ? part->abs_max : into->abs_max;
    into->sumsq += part->sumsq;
    into->sum += part->sum;
    into->mean = n > 0.0 ? into->sum / n : 0.0;
    sonde_norms_keep(into);
}

/* --- merging ------------------------------------------------------------------------ */

/* sonde_vitals_merge of full vital signs, where it can be inlined: once a block. */
static inline void merge(sonde_vitals *into, const sonde_vitals *part)
{
    const double na = finite_count(into), nb = finite_count(part), n = na + nb;

    if (na > 0.0 && nb > 0.0) {
        const double apart = part->mean - into->mean;

        into->m2 += part->m2 + apart * apart * (na * (nb / n));
        into->sum += part->sum;
        into->mean = into->sum / n;
    } else if (nb > 0.0) {
        into->m2 = part->m2;
        into->sum = part->sum;
        into->mean = part->mean;
    }
    if (isnan(into->m2)) { /* float64 near its limits: sums overflowed */
        into->m2 = (double)INFINITY;
    }
    into->count += part->count;
    into->nan += part->nan;
    into->pos_inf += part->pos_inf;
    into->neg_inf += part->neg_inf;
    into->zero += part->zero;
    into->min = part->min < into->min ? part->min : into->min;
    into->max = part->max > into->max ? part->max : into->max;
    into->abs_min = part->abs_min < into->abs_min ? part->abs_min : into->abs_min;
    into->abs_max = part->abs_max > into->abs_max ? part->abs_max : into->abs_max;
    into->l1 += part->l1;
    into->sumsq += part->sumsq;
}

void sonde_vitals_merge(sonde_vitals *into, const sonde_vitals *part)
{
    if (into == NULL || part == NULL) {
        return;
    }
    if (either_is_norms(into, part)) {
        merge_norms(into, part);
    } else {
        merge(into, part);
    }
}

/* --- closing a block -------------------------------------------------------------- */

/*
 * Whether the difference sumsq - sum * mean has lost too much. Of a sum of squares about
 * an arbitrary point, rounding takes some 2^-53 * sqrt(256); what is left for m2 is
 * better than 1e-12 while m2 is at least 1/64 of it.
 */
static bool is_off_center(double sumsq, double m2)
{
    return m2 * 64.0 < sumsq;
}

bool sonde__vitals_is_plain(const sonde__vitals_sums *sums, size_t n)
{
    const double m2 = sums->sumsq - sums->sum * (sums->sum / (double)n);

    return isfinite(sums->sumsq) && (n == 1 || !is_off_center(sums->sumsq, m2));
}

bool sonde__vitals_needs_memory(const sonde__vitals_sums *sums, size_t n)
{
    return sums->abs_min == 0.0 || !sonde__vitals_is_plain(sums, n);
}

static void sum_up(const sonde__vitals_kernels *kernels, const block *b,
                   sonde__vitals_sums *sums)
{
    if (b->wide) {
        kernels->sums_f64(b->elements, b->n, b->ahead, sums);
    } else {
        kernels->sums_f32(b->elements, b->n, b->ahead, sums);
    }
}

/* sum of (x - mean)^2 in two passes; the second term mends what mean was rounded by
 * (Chan, Golub and LeVeque 1983). */
static double m2_about(const sonde__vitals_kernels *kernels, const block *b, double mean)
{
    double moments[2] = {0.0, 0.0};

    if (b->wide) {
        kernels->shifted_f64(b->elements, b->n, mean, moments);
    } else {
        kernels->shifted_f32(b->elements, b->n, mean, moments);
    }
    const double m2 = moments[1] - moments[0] * (moments[0] / (double)b->n);
    return m2 > 0.0 ? m2 : 0.0;
}

static size_t count_zeros(const sonde__vitals_kernels *kernels, const block *b)
{
    return b->wide ? kernels->zeros_f64(b->elements, b->n)
                   : kernels->zeros_f32(b->elements, b->n);
}

/* into := into + a block, whose m2 and count of zeros are known. */
static inline void take_moments(sonde_vitals *into, const sonde__vitals_sums *sums,
                                size_t n, double m2, size_t zeros)
{
    sonde_vitals part = {.count = n,
                         .zero = zeros,
                         .min = sums->min + 0.0, /* -0 becomes +0 */
                         .max = sums->max + 0.0,
                         .abs_min = sums->abs_min,
                         .mean = sums->sum / (double)n,
                         .m2 = isfinite(m2) ? m2 : (double)INFINITY,
                         .l1 = sums->l1,
                         .sumsq = sums->sumsq,
                         .sum = sums->sum};

    part.abs_max = -part.min > part.max ? -part.min : part.max;
    merge(into, &part);
}

void sonde__vitals_take_plain(sonde_vitals *into, const sonde__vitals_sums *sums,
                              size_t n, size_t zeros)
{
    const double mean = sums->sum / (double)n;

    take_moments(into, sums, n, n == 1 ? 0.0 : sums->sumsq - sums->sum * mean, zeros);
}

#define UNCOUNTED SIZE_MAX /* zeros not counted yet */

/* into := into + b, all of whose elements are finite. */
static void take_finite(const sonde__vitals_kernels *kernels, sonde_vitals *into,
                        const sonde__vitals_sums *sums, size_t zeros, const block *b)
{
    const double mean = sums->sum / (double)b->n;
    double m2 = sums->sumsq - sums->sum * mean;

    if (b->n == 1) {
        m2 = 0.0;
    } else if (is_off_center(sums->sumsq, m2)) {
        m2 = m2_about(kernels, b, mean);
    }
    if (zeros == UNCOUNTED) {
        zeros = sums->abs_min > 0.0 ? 0 : count_zeros(kernels, b);
    }
    take_moments(into, sums, b->n, m2, zeros);
}

/* Likewise; room: for n floats. */
static void take_bytes(const sonde__vitals_kernels *kernels, sonde_vitals *into,
                       const uint8_t *x, size_t n, float *room)
{
    const block b = {.elements = room, .ahead = room, .n = n};
    sonde__vitals_sums sums;
    const size_t zeros = kernels->sums_u8(x, n, &sums);
    const double mean = sums.sum / (double)n;
    double m2 = sums.sumsq - sums.sum * mean;

    if (n == 1) {
        m2 = 0.0;
    } else if (is_off_center(sums.sumsq, m2)) {
        sonde__tensor_load_f32(SONDE_U8, x, n, room);
        m2 = m2_about(kernels, &b, mean);
    }
    take_moments(into, &sums, n, m2, zeros);
}

#define DEFINE_CLOSE_UP(name, type)                                                      \
    /* The finite elements of x to finite, the others counted. Returns how many. */      \
    static size_t name(const type *x, size_t n, type *finite, sonde_vitals *counts)      \
    {                                                                                    \
        const type inf = (type)INFINITY;                                                 \
        uint32_t nan = 0, pos_inf = 0, neg_inf = 0;                                      \
        size_t kept = 0;                                                                 \
                                                                                         \
        for (size_t i = 0; i < n; i++) {                                                 \
            nan += isnan(x[i]) != 0;                                                     \
            pos_inf += x[i] == inf;                                                      \
            neg_inf += x[i] == -inf;                                                     \
        }                                                                                \
        counts->nan = nan;                                                               \
        counts->pos_inf = pos_inf;                                                       \
        counts->neg_inf = neg_inf;                                                       \
        for (size_t i = 0; i < n; i++) {                                                 \
            finite[kept] = x[i];                                                         \
            kept += isfinite(x[i]) != 0;                                                 \
        }                                                                                \
        return kept;                                                                     \
    }

DEFINE_CLOSE_UP(close_up_f32, float)
DEFINE_CLOSE_UP(close_up_f64, double)

/* into := into + b, which may hold anything. */
static void take_any(const sonde__vitals_kernels *kernels, sonde_vitals *into,
                     const block *b)
{
    union {
        float narrow[SONDE__VITALS_BLOCK];
        double wide[SONDE__VITALS_BLOCK];
    } room;
    block finite = {.elements = &room, .ahead = &room, .wide = b->wide};
    sonde_vitals others;
    sonde__vitals_sums sums;

    sonde_vitals_init(&others);
    finite.n = b->wide ? close_up_f64(b->elements, b->n, room.wide, &others)
                       : close_up_f32(b->elements, b->n, room.narrow, &others);
    others.count = b->n - finite.n;
    merge(into, &others);
    if (finite.n > 0) {
        sum_up(kernels, &finite, &sums);
        take_finite(kernels, into, &sums, UNCOUNTED, &finite);
    }
}

static void take(const sonde__vitals_kernels *kernels, sonde_vitals *into,
                 const sonde__vitals_sums *sums, size_t zeros, const block *b)
{
    if (isfinite(sums->sumsq)) {
        take_finite(kernels, into, sums, zeros, b);
    } else {
        take_any(kernels, into, b);
    }
}

void sonde__vitals_take(sonde_vitals *into, const sonde__vitals_sums *sums,
                        const float *elements, size_t n)
{
    const block b = {.elements = elements, .ahead = elements, .n = n};

    if (n > 0) {
        take(sonde__vitals_kernels_of(sonde__cpu_isa()), into, sums, UNCOUNTED, &b);
    }
}

void sonde__vitals_sums_of(const float *elements, size_t n, sonde__vitals_sums *out)
{
    sonde__vitals_kernels_of(sonde__cpu_isa())->sums_f32(elements, n, elements, out);
}

/* --- whole views ------------------------------------------------------------------ */

/* True to count zeros meanwhile: zeros rarely come alone. */
static bool holds_zero(const float *elements, size_t n)
{
    bool found = false;

    for (size_t i = 0; i < n; i++) {
        found |= elements[i] == 0.0F;
    }
    return found;
}

/* A finite number, as a block of it alone comes out: losses are numbers, and their step has
 * the kernels in no cache. */
static sonde_vitals of_number(double x)
{
    const double size = fabs(x);

    return (sonde_vitals){.count = 1,
                          .zero = x == 0.0,
                          .min = x + 0.0,
                          .max = x + 0.0,
                          .abs_min = size,
                          .abs_max = size,
                          .mean = x + 0.0,
                          .l1 = size,
                          .sumsq = x * x,
                          .sum = x + 0.0};
}

/* into := into + count contiguous elements. */
static void add_f32(const sonde__vitals_kernels *kernels, sonde_vitals *into,
                    const float *elements, size_t count)
{
    enum { N = SONDE__VITALS_BLOCK };
    const float *x = elements, *const end = elements + count;
    bool zeros = count > 0 && holds_zero(elements, SONDE_MIN(count, (size_t)16));
    sonde__vitals_sums sums[2];

    while (end - x > N) {
        const size_t n[2] = {N, SONDE_MIN((size_t)(end - x) - N, (size_t)N)};
        size_t counted[2] = {UNCOUNTED, UNCOUNTED};

        kernels->sums_pair_f32(x, n[1], end - x >= 4 * N ? x + 2 * N : x,
                               zeros ? counted : NULL, sums);
        zeros = sums[1].abs_min == 0.0;
        for (int i = 0; i < 2; i++) {
            const block b = {.elements = x, .ahead = x, .n = n[i]};

            take(kernels, into, &sums[i], counted[i], &b);
            x += n[i];
        }
    }
    if (x < end) {
        const size_t n = (size_t)(end - x);
        const block b = {.elements = x, .ahead = x, .n = n};

        kernels->sums_f32(x, n, x, sums);
        take(kernels, into, sums, UNCOUNTED, &b);
    }
}

static void add_u8(const sonde__vitals_kernels *kernels, sonde_vitals *into,
                   const uint8_t *elements, size_t count)
{
    float room[SONDE__VITALS_BLOCK];

    for (size_t i = 0; i < count; i += SONDE__VITALS_BLOCK) {
        take_bytes(kernels, into, elements + i,
                   SONDE_MIN(count - i, (size_t)SONDE__VITALS_BLOCK), room);
    }
}

void sonde__vitals_add_f32(sonde_vitals *into, const float *elements, size_t count)
{
    add_f32(sonde__vitals_kernels_of(sonde__cpu_isa()), into, elements, count);
}

void sonde__vitals_add_u8(sonde_vitals *into, const uint8_t *elements, size_t count)
{
    add_u8(sonde__vitals_kernels_of(sonde__cpu_isa()), into, elements, count);
}

static void take_block(const sonde__vitals_kernels *kernels, sonde_vitals *into,
                       const block *b)
{
    sonde__vitals_sums sums;

    sum_up(kernels, b, &sums);
    take(kernels, into, &sums, UNCOUNTED, b);
}

/* n elements of any dtype as a block; widened if need be, into room. */
static block block_of(const sonde__vitals_kernels *kernels, sonde_dtype dtype,
                      const void *elements, size_t n, const void *ahead, void *room)
{
    const block as_it_is = {elements, ahead, n, dtype == SONDE_F64};
    const block widened = {room, room, n, !sonde__tensor_fits_f32(dtype)};

    if (dtype == SONDE_F32 || dtype == SONDE_F64) {
        return as_it_is;
    }
    if (dtype == SONDE_F16) {
        kernels->widen_f16(elements, n, room);
    } else if (dtype == SONDE_BF16) {
        kernels->widen_bf16(elements, n, room);
    } else if (widened.wide) {
        sonde__tensor_load_f64(dtype, elements, n, room);
    } else {
        sonde__tensor_load_f32(dtype, elements, n, room);
    }
    return widened;
}

/* Complex numbers, half a block at a time: a whole one does not fit the buffer. */
static void add_sizes(const sonde__vitals_kernels *kernels, sonde_vitals *into,
                      const sonde_view *view)
{
    enum { HALF = SONDE__VITALS_BLOCK / 2 };
    _Alignas(SONDE__ALIGN) unsigned char gathered[HALF * SONDE__ELEMENT];
    _Alignas(SONDE__ALIGN) double sizes[SONDE__VITALS_BLOCK];
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    block b = {.elements = sizes, .ahead = sizes, .wide = true};
    size_t n = 0;

    sonde__tensor_cursor_init(&cursor, view);
    do {
        n = sonde__tensor_cursor_take(&cursor, HALF, gathered, &elements);
        if (n > 0) {
            sonde__tensor_load_f64(view->dtype, elements, n, sizes + b.n);
            b.n += n;
        }
        if (b.n > HALF || (n < HALF && b.n > 0)) {
            take_block(kernels, into, &b);
            b.n = 0;
        }
    } while (n > 0);
}

/* A view of any kind. */
static void add_view(const sonde__vitals_kernels *kernels, sonde_vitals *into,
                     const sonde_view *view)
{
    _Alignas(SONDE__ALIGN) unsigned char gathered[SONDE__VITALS_BLOCK * 8];
    _Alignas(SONDE__ALIGN) unsigned char widened[SONDE__VITALS_BLOCK * 8];
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    size_t n = 0;

    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, SONDE__VITALS_BLOCK, gathered,
                                          &elements)) > 0) {
        const bool more = cursor.direct && cursor.left > 0;
        const block b = block_of(kernels, view->dtype, elements, n,
                                 more ? cursor.at : elements, widened);

        take_block(kernels, into, &b);
    }
}

void sonde__vitals_of_isa(sonde__isa isa, const sonde_view *view, sonde_vitals *vitals)
{
    const sonde__vitals_kernels *kernels = sonde__vitals_kernels_of(isa);
    const bool direct = sonde_view_is_contiguous(view);
    const size_t count = (size_t)sonde_view_count(view);

    sonde_vitals_init(vitals);
    if (direct && view->dtype == SONDE_F32 &&
        (uintptr_t)view->data % sizeof(float) == 0) {
        const float *const elements = view->data;

        if (count == 1 && isfinite(elements[0])) {
            *vitals = of_number((double)elements[0]);
            return;
        }
        add_f32(kernels, vitals, view->data, count);
    } else if (direct && view->dtype == SONDE_U8) {
        add_u8(kernels, vitals, view->data, count);
    } else if (sonde_dtype_is_complex(view->dtype)) {
        add_sizes(kernels, vitals, view);
    } else {
        add_view(kernels, vitals, view);
    }
}

void sonde_vitals_of(const sonde_view *view, sonde_vitals *vitals)
{
    if (vitals == NULL) {
        return;
    }
    if (sonde__tensor_view_fault(view, true) != NULL) {
        sonde_vitals_init(vitals);
        return;
    }
    sonde__vitals_of_isa(sonde__cpu_isa(), view, vitals);
}

/* --- whether anything is not finite --------------------------------------------------- */

/* By dtype: the width of a number, how many make an element, and the bits of infinity, which
 * without sign are the least that are not finite. */
static const struct {
    unsigned width, numbers;
    uint64_t infinity;
} exponents[SONDE_DTYPE_COUNT] = {
    [SONDE_F16] = {16, 1, 0x7c00},
    [SONDE_BF16] = {16, 1, 0x7f80},
    [SONDE_F32] = {32, 1, 0x7f800000},
    [SONDE_F64] = {64, 1, UINT64_C(0x7ff0000000000000)},
    [SONDE_C64] = {32, 2, 0x7f800000},
    [SONDE_C128] = {64, 2, UINT64_C(0x7ff0000000000000)},
};

/* n contiguous elements of a dtype in the table. */
static bool is_finite_block(const sonde__vitals_kernels *kernels, sonde_dtype dtype,
                            const void *elements, size_t n)
{
    const uint64_t infinity = exponents[dtype].infinity;

    n *= exponents[dtype].numbers;
    return exponents[dtype].width == 16 ? kernels->largest_bits_16(elements, n) < infinity
           : exponents[dtype].width == 32
               ? kernels->largest_bits_32(elements, n) < infinity
               : kernels->largest_bits_64(elements, n) < infinity;
}

bool sonde__vitals_all_finite(const sonde_view *view)
{
    const sonde__vitals_kernels *kernels = sonde__vitals_kernels_of(sonde__cpu_isa());
    _Alignas(SONDE__ALIGN) unsigned char gathered[SONDE__VITALS_BLOCK * SONDE__ELEMENT];
    const void *elements = NULL;
    sonde__tensor_cursor cursor;
    sonde_vitals vitals;
    size_t n = 0;

    if (exponents[view->dtype].width == 0) {
        sonde_vitals_of(view, &vitals);
        return vitals.nan + vitals.pos_inf + vitals.neg_inf == 0;
    }
    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, SONDE__VITALS_BLOCK, gathered,
                                          &elements)) > 0) {
        if (!is_finite_block(kernels, view->dtype, elements, n)) {
            return false;
        }
    }
    return true;
}

/* --- the instruction set ------------------------------------------------------------------ */

sonde_err sonde_isa_check(sonde_diag *diag)
{
    return sonde__cpu_isa_check(diag);
}
