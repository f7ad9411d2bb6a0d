/*
 * elements.c - see elements.h.
 */
#include "diff/elements.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "tensor/convert.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    LANES = 8,
    CHUNK = 4096,             /* elements that are widened at a time */
    SLICE = 1 << 20,          /* elements that a thread takes at a time */
    SLICE_BYTES = 4 << 20,    /* bytes, when only bytes are compared */
    WORTH_A_THREAD = 8 << 20, /* bytes of a tensor from which on threads help */
    MOST_THREADS = 8
};

/* --- sums --------------------------------------------------------------------------- */

void sonde__diff_elements_init(sonde__diff_elements *sum)
{
    *sum = (sonde__diff_elements){.at = -1};
}

void sonde__diff_elements_add(sonde__diff_elements *sum, const sonde__diff_elements *part,
                              int64_t first)
{
    if (part->at >= 0 && (sum->at < 0 || part->largest > sum->largest)) {
        sum->largest = part->largest;
        sum->at = first + part->at;
        sum->a = part->a;
        sum->b = part->b;
    }
    sum->count += part->count;
    sum->differing += part->differing;
    sum->bits |= part->bits;
    sum->nonfinite += part->nonfinite;
    sum->beyond += part->beyond;
    sum->squares += part->squares;
    sum->size += part->size;
    sum->peak = SONDE_MAX(sum->peak, part->peak);
}

/* --- one chunk ---------------------------------------------------------------------- */

/* A pair of which at least one is not finite. */
static void add_nonfinite(sonde__diff_elements *sum, double a, double b)
{
    const bool same = isnan(a) ? isnan(b) : a == b;

    sum->differing += !same;
    sum->nonfinite += !same;
    sum->beyond += !same;
}

/* A pair of finite elements. */
static void add_pair(sonde__diff_elements *sum, double a, double b, int64_t index,
                     sonde__diff_tolerance tolerance)
{
    const double d = fabs(a - b);

    sum->differing += d > 0.0;
    sum->beyond += d > tolerance.atol + tolerance.rtol * fabs(a);
    sum->squares += d * d;
    sum->size += a * a;
    sum->peak = SONDE_MAX(sum->peak, fabs(a));
    if (d > sum->largest) {
        sum->largest = d;
        sum->at = index;
        sum->a = a;
        sum->b = b;
    }
}

static void add_one_by_one(sonde__diff_elements *sum, const double *a, const double *b,
                           size_t n, int64_t first, sonde__diff_tolerance tolerance)
{
    for (size_t i = 0; i < n; i++) {
        if (isfinite(a[i]) && isfinite(b[i])) {
            add_pair(sum, a[i], b[i], first + (int64_t)i, tolerance);
        } else {
            add_nonfinite(sum, a[i], b[i]);
        }
    }
}

/* The sums of a chunk by lanes, which compilers make vectors of. */
typedef struct lanes {
    double squares[LANES], size[LANES], largest[LANES], peak[LANES];
    double differing[LANES], beyond[LANES];
} lanes;

static void add_lanes(lanes *l, const double *a, const double *b, size_t n,
                      sonde__diff_tolerance tolerance)
{
    for (size_t i = 0; i + LANES <= n; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            const double x = a[i + k], d = fabs(x - b[i + k]), size = fabs(x);

            l->squares[k] += d * d;
            l->size[k] += x * x;
            l->largest[k] = d > l->largest[k] ? d : l->largest[k];
            l->peak[k] = size > l->peak[k] ? size : l->peak[k];
            l->differing[k] += d > 0.0 ? 1.0 : 0.0;
            l->beyond[k] += d > tolerance.atol + tolerance.rtol * size ? 1.0 : 0.0;
        }
    }
}

static void find_largest(sonde__diff_elements *sum, const double *a, const double *b,
                         size_t n, int64_t first)
{
    for (size_t i = 0; i < n; i++) {
        const double d = fabs(a[i] - b[i]);

        if (d > sum->largest) {
            sum->largest = d;
            sum->at = first + (int64_t)i;
            sum->a = a[i];
            sum->b = b[i];
        }
    }
}

static void add_chunk(sonde__diff_elements *sum, const double *a, const double *b,
                      size_t n, int64_t first, sonde__diff_tolerance tolerance)
{
    const size_t even = n / LANES * LANES;
    double largest = 0.0, finite = 0.0;
    lanes l = {0};

    sum->count += n;
    add_lanes(&l, a, b, even, tolerance);
    for (size_t k = 0; k < LANES; k++) {
        finite += l.squares[k] + l.size[k];
        largest = SONDE_MAX(largest, l.largest[k]);
    }
    if (!isfinite(finite)) {
        add_one_by_one(sum, a, b, n, first, tolerance);
        return;
    }
    for (size_t k = 0; k < LANES; k++) {
        sum->squares += l.squares[k];
        sum->size += l.size[k];
        sum->peak = SONDE_MAX(sum->peak, l.peak[k]);
        sum->differing += (uint64_t)l.differing[k];
        sum->beyond += (uint64_t)l.beyond[k];
    }
    if (largest > sum->largest) {
        find_largest(sum, a, b, even, first);
    }
    add_one_by_one(sum, a + even, b + even, n - even, first + (int64_t)even, tolerance);
}

/* --- a range of elements ------------------------------------------------------------ */

/* Integers of 64 bits may differ by less than their doubles show. */
static void count_bits(sonde__diff_elements *sum, const unsigned char *a,
                       const unsigned char *b, size_t n, size_t size, int64_t first,
                       uint64_t before)
{
    uint64_t differing = 0;

    for (size_t i = 0; i < n; i++) {
        if (memcmp(a + i * size, b + i * size, size) != 0) {
            differing++;
            sum->at = sum->at < 0 ? first + (int64_t)i : sum->at;
        }
    }
    sum->differing = before + differing;
}

static void compare_range(const sonde_view *a, const sonde_view *b,
                          sonde__diff_tolerance tolerance, sonde__diff_elements *sum)
{
    const bool one = a->dtype == b->dtype;
    const bool whole =
        one && !sonde_dtype_is_float(a->dtype) && !sonde_dtype_is_complex(a->dtype);
    const size_t size = sonde_dtype_size(a->dtype);
    _Alignas(64) unsigned char rooms[2][CHUNK * SONDE__ELEMENT];
    _Alignas(64) double wide[2][CHUNK];
    sonde__tensor_cursor at[2];
    int64_t first = 0;

    sonde__tensor_cursor_init(&at[0], a);
    sonde__tensor_cursor_init(&at[1], b);
    for (;;) {
        const void *bytes[2] = {NULL, NULL};
        const size_t n = sonde__tensor_cursor_take(&at[0], CHUNK, rooms[0], &bytes[0]);
        const uint64_t before = sum->differing;

        if (n == 0 ||
            sonde__tensor_cursor_take(&at[1], CHUNK, rooms[1], &bytes[1]) != n) {
            return;
        }
        sonde__tensor_load_f64(a->dtype, bytes[0], n, wide[0]);
        sonde__tensor_load_f64(b->dtype, bytes[1], n, wide[1]);
        add_chunk(sum, wide[0], wide[1], n, first, tolerance);
        sum->bits |= !one || memcmp(bytes[0], bytes[1], n * size) != 0;
        if (whole) {
            count_bits(sum, bytes[0], bytes[1], n, size, first, before);
        }
        first += (int64_t)n;
    }
}

/* --- slices and threads ------------------------------------------------------------- */

typedef struct work {
    const sonde__diff_operand *a, *b;
    sonde__diff_tolerance tolerance;
    sonde__diff_elements *parts; /* by slice; NULL: only bytes are compared */
    size_t slices, slice, count; /* number of them; elements of each; elements */
    atomic_size_t next;
    atomic_bool differs;
} work;

/* The memory of part of a mapped file goes back to the system; it is read again if it is
 * needed. Pages at its ends, which others share, stay. */
static void give_back(const sonde__diff_operand *operand, const void *data, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)data + bytes) / page * page;

    if (operand->mapped && end > begin) {
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
}

/* Elements first ... of a contiguous view, as a row. */
static sonde_view row_of(const sonde_view *view, size_t first, size_t count)
{
    const int64_t shape = (int64_t)count;
    unsigned char *data =
        (unsigned char *)view->data + first * sonde_dtype_size(view->dtype);

    return sonde_view_of(view->dtype, 1, &shape, data);
}

static void do_slice(work *w, size_t i)
{
    const size_t first = i * w->slice;
    const size_t count = SONDE_MIN(w->slice, w->count - first);
    const sonde_view a = row_of(&w->a->view, first, count);
    const sonde_view b = row_of(&w->b->view, first, count);
    const size_t size_a = count * sonde_dtype_size(a.dtype);
    const size_t size_b = count * sonde_dtype_size(b.dtype);

    if (w->parts != NULL) {
        sonde__diff_elements_init(&w->parts[i]);
        compare_range(&a, &b, w->tolerance, &w->parts[i]);
    } else if (memcmp(a.data, b.data, size_a) != 0) {
        atomic_store(&w->differs, true);
    }
    give_back(w->a, a.data, size_a);
    give_back(w->b, b.data, size_b);
}

static void *do_slices(void *user)
{
    work *w = user;

    for (;;) {
        const size_t i = atomic_fetch_add(&w->next, 1);

        if (i >= w->slices || atomic_load(&w->differs)) {
            return NULL;
        }
        do_slice(w, i);
    }
}

/* Without a thread the caller does its share. */
static void share(work *w, size_t bytes, int threads)
{
    pthread_t helper[MOST_THREADS];
    int started = 0;

    while (bytes >= WORTH_A_THREAD && started + 1 < SONDE_MIN(threads, MOST_THREADS) &&
           pthread_create(&helper[started], NULL, do_slices, w) == 0) {
        started++;
    }
    (void)do_slices(w);
    for (int i = 0; i < started; i++) {
        (void)pthread_join(helper[i], NULL);
    }
}

static work work_of(const sonde__diff_operand *a, const sonde__diff_operand *b,
                    size_t slice)
{
    const size_t count = (size_t)sonde_view_count(&a->view);

    return (work){.a = a,
                  .b = b,
                  .slice = slice,
                  .count = count,
                  .slices = (count + slice - 1) / slice};
}

static bool are_rows(const sonde__diff_operand *a, const sonde__diff_operand *b)
{
    return sonde_view_is_contiguous(&a->view) && sonde_view_is_contiguous(&b->view);
}

bool sonde__diff_same_bits(const sonde__diff_operand *a, const sonde__diff_operand *b,
                           int threads)
{
    const size_t size = sonde_dtype_size(a->view.dtype);
    work w = work_of(a, b, SLICE_BYTES / size);

    if (are_rows(a, b)) {
        share(&w, w.count * size, threads);
        return !atomic_load(&w.differs);
    }
    sonde__diff_elements sum;
    sonde__diff_elements_init(&sum);
    compare_range(&a->view, &b->view, (sonde__diff_tolerance){0.0, 0.0}, &sum);
    return sum.bits == 0;
}

sonde_err sonde__diff_compare(const sonde__diff_operand *a, const sonde__diff_operand *b,
                              sonde__diff_tolerance tolerance, int threads,
                              sonde__diff_elements *out, sonde_diag *diag)
{
    work w = work_of(a, b, SLICE);

    sonde__diff_elements_init(out);
    if (!are_rows(a, b)) {
        compare_range(&a->view, &b->view, tolerance, out);
        return SONDE_OK;
    }
    w.tolerance = tolerance;
    w.parts = sonde__calloc(w.slices + 1, sizeof *w.parts);
    if (w.parts == NULL) {
        return sonde__fail_nomem(diag, "the sums of a comparison");
    }
    share(&w, w.count * sonde_dtype_size(a->view.dtype), threads);
    for (size_t i = 0; i < w.slices; i++) {
        sonde__diff_elements_add(out, &w.parts[i], (int64_t)(i * SLICE));
    }
    sonde__free(w.parts);
    return SONDE_OK;
}
