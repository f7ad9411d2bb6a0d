/*
 * remap.c - places of an axis taken from other places by a fixed map, and the gradient:
 * padding, interpolation, flips, rolls, repeats and windows are the same op with other
 * maps.
 *
 *   Remap      y[..., i, ...] = sum over the taps (p, w) of i of w x[..., p, ...], or
 *              number[0] at an i without taps
 *   RemapGrad  dx[..., p, ...] = sum over the taps (p, w), in order of i, of
 *              w dy[..., i, ...]
 *
 * A map with one tap of weight 1 a place copies, and takes every dtype; the others take
 * floats. x may be of any rank. Coordinates and weights of interpolation are those of
 * torch.nn.functional.interpolate, borders those of torch.nn.functional.pad.
 *
 * The reference looks a place's taps up each time it needs them. The kernel for float32
 * makes a table of them once a call, and copies runs of places that follow one another.
 *
 * attrs: remap.
 */
#include "nn/ops/remap.h"
#include "base/fail.h"
#include "nn/ops/common.h"

#include <math.h>
#include <string.h>

enum { MOST_TAPS = 4 };

typedef struct taps {
    int count;
    int64_t place[MOST_TAPS];
    double weight[MOST_TAPS];
} taps;

/* --- maps ----------------------------------------------------------------------------- */

static bool interpolates(int map)
{
    return map >= SONDE__REMAP_NEAREST && map <= SONDE__REMAP_CUBIC_CORNERS;
}

/* Whether each place has one tap of weight 1, or none. */
static bool copies(int map)
{
    return !interpolates(map) || map <= SONDE__REMAP_NEAREST_EXACT;
}

static int64_t remainder_of(int64_t a, int64_t b)
{
    return (a % b + b) % b;
}

/* The place of x beyond an end that a pad repeats; -1: none. */
static int64_t padded(int map, int64_t place, int64_t extent)
{
    if (place >= 0 && place < extent) {
        return place;
    }
    switch (map) {
    case SONDE__REMAP_REFLECT:
        return place < 0 ? -place : 2 * extent - 2 - place;
    case SONDE__REMAP_REPLICATE:
        return place < 0 ? 0 : extent - 1;
    case SONDE__REMAP_CIRCULAR:
        return remainder_of(place, extent);
    default:
        return -1;
    }
}

/* How far apart in x neighbors of y are. */
static double spacing(const sonde__op_attrs *attrs, int64_t extent, bool corners)
{
    const int64_t wanted = attrs->remap.count;

    if (corners) {
        return wanted > 1 ? (double)(extent - 1) / (double)(wanted - 1) : 0.0;
    }
    return attrs->remap.number > 0.0F ? 1.0 / sonde__op_decimal(attrs->remap.number)
                                      : (double)extent / (double)wanted;
}

/* PyTorch computes it in float32, whose rounding decides at whole numbers. */
static int64_t nearest(const sonde__op_attrs *attrs, int64_t extent, int64_t i)
{
    const float step = (float)spacing(attrs, extent, false);
    const bool exact = attrs->remap.map == SONDE__REMAP_NEAREST_EXACT;
    const float at = exact ? ((float)i + 0.5F) * step : (float)i * step;
    const int64_t place = (int64_t)floorf(at);

    return place < extent - 1 ? place : extent - 1;
}

/* Keys' kernel with a = -0.75. */
static double cubic(double t)
{
    const double a = -0.75, x = fabs(t);

    return x <= 1.0 ? ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                    : ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
}

static int64_t within(int64_t place, int64_t extent)
{
    return place < 0 ? 0 : place < extent ? place : extent - 1;
}

static taps between(const sonde__op_attrs *attrs, int64_t extent, int64_t i)
{
    const int map = attrs->remap.map;
    const bool corners =
        map == SONDE__REMAP_LINEAR_CORNERS || map == SONDE__REMAP_CUBIC_CORNERS;
    const bool linear = map == SONDE__REMAP_LINEAR || map == SONDE__REMAP_LINEAR_CORNERS;
    const double step = spacing(attrs, extent, corners);
    double at = corners ? step * (double)i : step * ((double)i + 0.5) - 0.5;
    taps t = {.count = linear ? 2 : 4};

    at = linear && at < 0.0 ? 0.0 : at;
    const int64_t first = (int64_t)floor(at);
    at -= (double)first;
    for (int k = 0; k < t.count; k++) {
        t.place[k] = within(linear ? first + k : first - 1 + k, extent);
        t.weight[k] = linear ? (k == 0 ? 1.0 - at : at) : cubic(at + 1.0 - k);
    }
    return t;
}

static taps one_tap(int64_t place)
{
    return place < 0 ? (taps){.count = 0}
                     : (taps){.count = 1, .place = {place}, .weight = {1.0}};
}

/* The taps of place i of y in an axis of x with `extent` places. */
static taps taps_of(const sonde__op_attrs *attrs, int64_t extent, int64_t i)
{
    const int64_t count = attrs->remap.count;
    int64_t place = 0;

    switch (attrs->remap.map) {
    case SONDE__REMAP_NEAREST:
    case SONDE__REMAP_NEAREST_EXACT:
        return one_tap(nearest(attrs, extent, i));
    case SONDE__REMAP_LINEAR:
    case SONDE__REMAP_LINEAR_CORNERS:
    case SONDE__REMAP_CUBIC:
    case SONDE__REMAP_CUBIC_CORNERS:
        return between(attrs, extent, i);
    case SONDE__REMAP_FLIP:
        return one_tap(extent - 1 - i);
    case SONDE__REMAP_ROLL:
        return one_tap(remainder_of(i - attrs->remap.before, extent));
    case SONDE__REMAP_REPEAT:
        return one_tap(i % extent);
    case SONDE__REMAP_REPEAT_EACH:
        return one_tap(i / count);
    case SONDE__REMAP_WINDOWS:
        place = i / count * attrs->remap.stride - attrs->remap.before +
                i % count * attrs->remap.dilation;
        return one_tap(place < extent ? place : -1);
    default:
        return one_tap(padded(attrs->remap.map, i - attrs->remap.before, extent));
    }
}

int64_t sonde__op_remap_place(const sonde__op_attrs *attrs, int64_t extent, int64_t i)
{
    const taps t = taps_of(attrs, extent, i);

    return t.count == 1 ? t.place[0] : -1;
}

/* --- shapes --------------------------------------------------------------------------- */

static sonde_err pad_extent(const sonde__op_attrs *attrs, int64_t extent, int64_t *wanted,
                            sonde_diag *diag)
{
    const int64_t before = attrs->remap.before, after = attrs->remap.after;
    const int64_t most = attrs->remap.map == SONDE__REMAP_REFLECT    ? extent - 1
                         : attrs->remap.map == SONDE__REMAP_CIRCULAR ? extent
                                                                     : SONDE__MAX_EXTENT;

    if (before > most || after > most || before < -extent || after < -extent ||
        (extent == 0 && attrs->remap.map != SONDE__REMAP_CONSTANT)) {
        return sonde__fail(
            diag, SONDE_EINVAL, NULL, "a border within the dimension, or of a constant",
            "padding (%lld, %lld) of dimension %d, of %lld", (long long)before,
            (long long)after, attrs->remap.axis, (long long)extent);
    }
    *wanted = extent + before + after;
    return SONDE_OK;
}

static sonde_err interpolated_extent(sonde__op_attrs *attrs, int64_t extent,
                                     int64_t *wanted, sonde_diag *diag)
{
    const double factor = sonde__op_decimal(attrs->remap.number);

    if (factor > 0.0) {
        attrs->remap.count = factor * (double)extent < 0x1p24
                                 ? (int64_t)floor(factor * (double)extent)
                                 : SONDE__MAX_EXTENT + 1;
    }
    *wanted = attrs->remap.count;
    if (*wanted < 1 || *wanted > SONDE__MAX_EXTENT || extent < 1) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "1 to 2^24 elements",
                           "%lld elements made of %lld", (long long)*wanted,
                           (long long)extent);
    }
    return SONDE_OK;
}

/* count times as many. */
static sonde_err times(int64_t extent, int64_t count, int64_t *wanted, sonde_diag *diag)
{
    if (count < 1 || count > SONDE__MAX_EXTENT ||
        __builtin_mul_overflow(extent, count, wanted)) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "1 to 2^24", "%lld repeats",
                           (long long)count);
    }
    return SONDE_OK;
}

static sonde_err expect_remap(const sonde__op_shape *x, sonde__op_attrs *attrs,
                              sonde__op_shape *y, sonde_diag *diag)
{
    int64_t extent = 0, wanted = 0;

    SONDE__TRY(sonde__op_expect_size(x, "input", diag));
    SONDE__TRY(sonde__op_expect_axis(&attrs->remap.axis, x->rank, diag));
    if (!copies(attrs->remap.map)) {
        SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    }
    if (attrs->remap.number != 0.0F && !interpolates(attrs->remap.map)) {
        SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    }
    extent = wanted = x->dim[attrs->remap.axis];
    if (interpolates(attrs->remap.map)) {
        SONDE__TRY(interpolated_extent(attrs, extent, &wanted, diag));
    } else if (attrs->remap.map == SONDE__REMAP_WINDOWS) {
        const sonde__op_attrs windows = {.window = {.kernel = {attrs->remap.count},
                                                    .stride = {attrs->remap.stride},
                                                    .padding = {attrs->remap.before},
                                                    .dilation = {attrs->remap.dilation}}};

        SONDE__TRY(sonde__op_window_count(&windows, 0, extent, &wanted, diag));
        SONDE__TRY(times(wanted, attrs->remap.count, &wanted, diag));
    } else if (attrs->remap.map == SONDE__REMAP_REPEAT ||
               attrs->remap.map == SONDE__REMAP_REPEAT_EACH) {
        SONDE__TRY(times(extent, attrs->remap.count, &wanted, diag));
    } else if (attrs->remap.map <= SONDE__REMAP_CIRCULAR) {
        SONDE__TRY(pad_extent(attrs, extent, &wanted, diag));
    }
    if (wanted < 1) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "at least one element",
                           "dimension %d would have %lld", attrs->remap.axis,
                           (long long)wanted);
    }
    *y = *x;
    y->dim[attrs->remap.axis] = wanted;
    return sonde__op_expect_size(y, "output", diag);
}

static sonde_err remap_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                             sonde_diag *diag)
{
    return expect_remap(&call->in[0].shape, attrs, &call->out[0].shape, diag);
}

static sonde_err remap_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                  sonde_diag *diag)
{
    return sonde__op_infer_shaped(call, attrs, remap_infer, diag);
}

/* --- reference ------------------------------------------------------------------------ */

/* The axis of x and y: what is before it, its extents, what follows it. */
typedef struct span {
    int64_t outer, x, y, inner;
} span;

static span span_of(const sonde__op_shape *x, const sonde__op_shape *y, int axis)
{
    return (span){sonde__op_dims_product(x, 0, axis), x->dim[axis], y->dim[axis],
                  sonde__op_dims_product(x, axis + 1, x->rank)};
}

static double tapped(const sonde__operand *x, const span *s, const taps *t, int64_t outer,
                     int64_t k)
{
    double sum = 0.0;

    for (int n = 0; n < t->count; n++) {
        sum +=
            t->weight[n] * sonde__op_load(x, (outer * s->x + t->place[n]) * s->inner + k);
    }
    return sum;
}

static void remap_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0], *y = &call->out[0];
    const span s = span_of(&x->shape, &y->shape, call->attrs->remap.axis);
    const size_t size = sonde_dtype_size(x->shape.dtype);

    (void)part, (void)parts;
    for (int64_t row = 0; row < s.outer * s.y; row++) {
        const taps t = taps_of(call->attrs, s.x, row % s.y);
        const int64_t outer = row / s.y;

        for (int64_t k = 0; k < s.inner; k++) {
            char *target = (char *)y->data + (size_t)(row * s.inner + k) * size;

            if (t.count > 1) {
                sonde__op_store(y, row * s.inner + k, tapped(x, &s, &t, outer, k));
            } else if (t.count == 1) {
                memcpy(target,
                       (const char *)x->data +
                           (size_t)((outer * s.x + t.place[0]) * s.inner + k) * size,
                       size);
            } else if (call->attrs->remap.number == 0.0F) {
                memset(target, 0, size);
            } else {
                sonde__op_store(y, row * s.inner + k, (double)call->attrs->remap.number);
            }
        }
    }
}

static void remap_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *dy = &call->in[0], *dx = &call->out[0];
    const span s = span_of(&dx->shape, &dy->shape, call->attrs->remap.axis);

    (void)part, (void)parts;
    for (int64_t at = 0; at < s.outer * s.x * s.inner; at++) {
        const int64_t outer = at / (s.x * s.inner), place = at / s.inner % s.x;
        double sum = 0.0;

        for (int64_t i = 0; i < s.y; i++) {
            const taps t = taps_of(call->attrs, s.x, i);

            for (int n = 0; n < t.count; n++) {
                if (t.place[n] == place) {
                    sum += t.weight[n] *
                           sonde__op_load(dy, (outer * s.y + i) * s.inner + at % s.inner);
                }
            }
        }
        sonde__op_store(dx, at, sum);
    }
}

/* --- rows ----------------------------------------------------------------------------- */

/* A place of y, and how many from it on are copies of places that follow one another. */
typedef struct entry {
    int64_t place[MOST_TAPS];
    float weight[MOST_TAPS];
    int32_t count, run;
} entry;

static int64_t extent_of_y(const sonde__op_call *call, const sonde__operand *y)
{
    return y->shape.dim[call->attrs->remap.axis];
}

static size_t forward_scratch(const sonde__op_call *call, int parts)
{
    return (size_t)extent_of_y(call, &call->out[0]) * sizeof(entry) * (size_t)parts;
}

static size_t grad_scratch(const sonde__op_call *call, int parts)
{
    return (size_t)extent_of_y(call, &call->in[0]) * sizeof(entry) * (size_t)parts;
}

/* The table of a part. */
static const entry *fill_table(const sonde__op_call *call, const span *s, int part)
{
    entry *table = (entry *)call->scratch + s->y * part;

    for (int64_t i = s->y - 1; i >= 0; i--) {
        const taps t = taps_of(call->attrs, s->x, i);
        entry *e = &table[i];

        *e = (entry){.count = t.count, .run = 1};
        for (int n = 0; n < t.count; n++) {
            e->place[n] = t.place[n];
            e->weight[n] = (float)t.weight[n];
        }
        if (i + 1 < s->y && t.count == 1 && copies(call->attrs->remap.map) &&
            e[1].count == 1 && e[1].place[0] == t.place[0] + 1) {
            e->run = e[1].run + 1;
        }
    }
    return table;
}

static bool is_f32(const sonde__op_call *call)
{
    return call->in[0].shape.dtype == SONDE_F32;
}

static int remap_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *x = &call->in[0].shape;
    const int64_t outer = sonde__op_dims_product(x, 0, call->attrs->remap.axis);
    const int64_t worth =
        (sonde__op_shape_count(x) + sonde__op_shape_count(&call->out[0].shape)) / 65536;
    const int64_t parts = worth < outer ? worth : outer;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

/* y = the taps of an entry, over a row of `inner`. */
static void gather_row(const entry *e, const float *x, int64_t inner, float *y)
{
    const float *a = x + e->place[0] * inner, *b = x + e->place[1] * inner,
                *c = x + e->place[2] * inner, *d = x + e->place[3] * inner;

    for (int64_t k = 0; k < inner && e->count == 2; k++) {
        y[k] = e->weight[0] * a[k] + e->weight[1] * b[k];
    }
    for (int64_t k = 0; k < inner && e->count == 4; k++) {
        y[k] = e->weight[0] * a[k] + e->weight[1] * b[k] + e->weight[2] * c[k] +
               e->weight[3] * d[k];
    }
}

static void remap_rows(const sonde__op_call *call, int part, int parts)
{
    const span s =
        span_of(&call->in[0].shape, &call->out[0].shape, call->attrs->remap.axis);
    const entry *table = fill_table(call, &s, part);

    for (int64_t o = s.outer * part / parts; o < s.outer * (part + 1) / parts; o++) {
        const float *x = (const float *)call->in[0].data + o * s.x * s.inner;
        float *y = (float *)call->out[0].data + o * s.y * s.inner;

        for (int64_t i = 0; i < s.y; i += table[i].run) {
            const entry *e = &table[i];
            float *row = y + i * s.inner;

            if (e->count > 1) {
                gather_row(e, x, s.inner, row);
            } else if (e->count == 1) {
                memcpy(row, x + e->place[0] * s.inner,
                       (size_t)(e->run * s.inner) * sizeof *row);
            } else {
                for (int64_t k = 0; k < s.inner; k++) {
                    row[k] = call->attrs->remap.number;
                }
            }
        }
    }
}

static void remap_grad_rows(const sonde__op_call *call, int part, int parts)
{
    const span s =
        span_of(&call->out[0].shape, &call->in[0].shape, call->attrs->remap.axis);
    const entry *table = fill_table(call, &s, part);

    for (int64_t o = s.outer * part / parts; o < s.outer * (part + 1) / parts; o++) {
        const float *dy = (const float *)call->in[0].data + o * s.y * s.inner;
        float *dx = (float *)call->out[0].data + o * s.x * s.inner;

        memset(dx, 0, (size_t)(s.x * s.inner) * sizeof *dx);
        for (int64_t i = 0; i < s.y; i += table[i].run) {
            for (int n = 0; n < table[i].count; n++) {
                float *target = dx + table[i].place[n] * s.inner;
                const float *source = dy + i * s.inner, weight = table[i].weight[n];

                for (int64_t k = 0; k < table[i].run * s.inner; k++) {
                    target[k] += weight * source[k];
                }
            }
        }
    }
}

static const sonde__op_kernel *const *remap_fast(void)
{
    static const sonde__op_kernel rows = {.name = "rows",
                                          .accepts = is_f32,
                                          .scratch = forward_scratch,
                                          .parts = remap_parts,
                                          .run = remap_rows};
    static const sonde__op_kernel *const kernels[] = {&rows, NULL};

    return kernels;
}

static const sonde__op_kernel *const *remap_grad_fast(void)
{
    static const sonde__op_kernel rows = {.name = "rows",
                                          .accepts = is_f32,
                                          .scratch = grad_scratch,
                                          .parts = remap_parts,
                                          .run = remap_grad_rows};
    static const sonde__op_kernel *const kernels[] = {&rows, NULL};

    return kernels;
}

SONDE__OP(remap, "Remap", remap, 1, 1, 1, .infer = remap_infer,
          .backward = {&sonde__op_remap_grad, "d", 0, true}, SONDE__REFERENCE(remap_run),
          .fast = remap_fast);

SONDE__OP(remap_grad, "RemapGrad", remap, 1, 1, 1, .infer = remap_grad_infer,
          SONDE__REFERENCE(remap_grad_run), .fast = remap_grad_fast);
