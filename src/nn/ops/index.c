/*
 * index.c - elements by their places along an axis, and elements put there: gather and
 * index_select, scatter, scatter_add and index_add, with their gradients.
 *
 *   Gather      y[..., i, ...] = x[..., index[..., i, ...], ...]
 *   GatherGrad  dx = 0; dx[..., index[..., i, ...], ...] += dy[..., i, ...]
 *   Scatter     y = x; y[..., index[..., i, ...], ...] = (or +=) source[..., i, ...]
 *   ScatterGrad dx = dy, with 0 at the places that were overwritten
 *
 * in order of i, so that sums have one order and of several elements for a place the last
 * one stays. index is int64. It has the rank of x, and its other dimensions are at most
 * those of x (torch.gather, torch.scatter), or rank 1, the same places for all lines
 * (torch.index_select, torch.index_add). A place below 0 or beyond the axis yields NaN
 * (0 of whole numbers), and puts nothing anywhere; a session refuses such an input.
 *
 * A part has some of the lines before the axis, or of the elements after it.
 *
 * attrs: index.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>
#include <string.h>

/* --- shapes --------------------------------------------------------------------------- */

/* The shape of what index takes from x. */
static sonde_err expect_index(const sonde__op_shape *x, const sonde__op_shape *index,
                              sonde__op_attrs *attrs, sonde__op_shape *taken,
                              sonde_diag *diag)
{
    char found[SONDE__SHAPE_TEXT], wanted[SONDE__SHAPE_TEXT];
    bool fits = index->rank == x->rank || index->rank == 1;

    SONDE__TRY(sonde__op_expect_size(x, "input", diag));
    SONDE__TRY(sonde__op_expect_dtype(index, SONDE_I64, "index", diag));
    SONDE__TRY(sonde__op_expect_size(index, "index", diag));
    SONDE__TRY(sonde__op_expect_axis(&attrs->index.axis, x->rank, diag));
    *taken = *x;
    for (int i = 0; i < x->rank && fits; i++) {
        if (index->rank == x->rank) {
            fits = i == attrs->index.axis || index->dim[i] <= x->dim[i];
            taken->dim[i] = index->dim[i];
        } else if (i == attrs->index.axis) {
            taken->dim[i] = index->dim[0];
        }
    }
    if (!fits) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL,
                           "an index of one dimension, or no larger than the input",
                           "index %s of %s", sonde__op_shape_text(index, found),
                           sonde__op_shape_text(x, wanted));
    }
    return sonde__op_expect_size(taken, "output", diag);
}

static sonde_err gather_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                              sonde_diag *diag)
{
    return expect_index(&call->in[0].shape, &call->in[1].shape, attrs,
                        &call->out[0].shape, diag);
}

/* dy, index */
static sonde_err gather_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                   sonde_diag *diag)
{
    return sonde__op_infer_shaped(call, attrs, gather_infer, diag);
}

/* x, index, source */
static sonde_err scatter_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    sonde__op_shape taken;

    SONDE__TRY(sonde__op_expect_float(&call->in[0].shape, "input", diag));
    SONDE__TRY(expect_index(&call->in[0].shape, &call->in[1].shape, attrs, &taken, diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[2].shape, &taken, "source", diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

/* dy, index */
static sonde_err scatter_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                    sonde_diag *diag)
{
    sonde__op_shape taken;

    SONDE__TRY(sonde__op_expect_float(&call->in[0].shape, "output gradient", diag));
    SONDE__TRY(expect_index(&call->in[0].shape, &call->in[1].shape, attrs, &taken, diag));
    call->out[0].shape = call->in[0].shape;
    return SONDE_OK;
}

/* --- references: element by element --------------------------------------------------- */

/* The place in x of element `at` of what is taken; -1: out of range. */
static int64_t place_of(const sonde__op_shape *x, const sonde__op_shape *taken,
                        const sonde__operand *index, int axis, int64_t at)
{
    const int64_t *places = index->data;
    int64_t rest = at, step = 1, place = 0, along = 0;

    for (int d = x->rank - 1; d >= 0; d--) {
        const int64_t i = rest % taken->dim[d];

        along = d == axis ? i : along;
        place += d == axis ? 0 : i * step;
        step *= x->dim[d];
        rest /= taken->dim[d];
    }
    along = places[index->shape.rank == 1 ? along : at];
    return along >= 0 && along < x->dim[axis]
               ? place + along * sonde__op_dims_product(x, axis + 1, x->rank)
               : -1;
}

static void copy_element(const sonde__operand *y, int64_t target, const sonde__operand *x,
                         int64_t source)
{
    const size_t size = sonde_dtype_size(x->shape.dtype);

    memcpy((char *)y->data + (size_t)target * size,
           (const char *)x->data + (size_t)source * size, size);
}

static void gather_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *x = &call->in[0], *y = &call->out[0];
    const int64_t count = sonde__op_shape_count(&y->shape);
    const size_t size = sonde_dtype_size(x->shape.dtype);

    (void)part, (void)parts;
    for (int64_t i = 0; i < count; i++) {
        const int64_t place =
            place_of(&x->shape, &y->shape, &call->in[1], call->attrs->index.axis, i);

        if (place >= 0) {
            copy_element(y, i, x, place);
        } else if (sonde_dtype_is_float(x->shape.dtype)) {
            sonde__op_store(y, i, (double)NAN);
        } else {
            memset((char *)y->data + (size_t)i * size, 0, size);
        }
    }
}

/* Puts or adds element i of source at its place in y, for all i. */
static void put_all(const sonde__op_call *call, const sonde__operand *source,
                    const sonde__operand *index, bool adds)
{
    const sonde__operand *y = &call->out[0];
    const int64_t count = sonde__op_shape_count(&source->shape);

    for (int64_t i = 0; i < count; i++) {
        const int64_t place =
            place_of(&y->shape, &source->shape, index, call->attrs->index.axis, i);

        if (place >= 0) {
            sonde__op_store(y, place,
                            (adds ? sonde__op_load(y, place) : 0.0) +
                                sonde__op_load(source, i));
        }
    }
}

static void copy_or_clear(const sonde__operand *y, const sonde__operand *x)
{
    const size_t bytes =
        (size_t)sonde__op_shape_count(&y->shape) * sonde_dtype_size(y->shape.dtype);

    if (x == NULL) {
        memset(y->data, 0, bytes);
    } else {
        memcpy(y->data, x->data, bytes);
    }
}

static void gather_grad_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    copy_or_clear(&call->out[0], NULL);
    put_all(call, &call->in[0], &call->in[1], true);
}

static void scatter_run(const sonde__op_call *call, int part, int parts)
{
    (void)part, (void)parts;
    copy_or_clear(&call->out[0], &call->in[0]);
    put_all(call, &call->in[2], &call->in[1], call->attrs->index.adds);
}

static void scatter_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *y = &call->out[0], *index = &call->in[1];
    sonde__op_shape taken = y->shape;

    (void)part, (void)parts;
    for (int d = 0; d < taken.rank; d++) {
        taken.dim[d] = index->shape.rank == taken.rank ? index->shape.dim[d]
                       : d == call->attrs->index.axis  ? index->shape.dim[0]
                                                       : taken.dim[d];
    }
    const int64_t count = sonde__op_shape_count(&taken);
    copy_or_clear(y, &call->in[0]);
    for (int64_t i = 0; i < count; i++) {
        const int64_t place =
            place_of(&y->shape, &taken, index, call->attrs->index.axis, i);

        if (place >= 0) {
            sonde__op_store(y, place, 0.0);
        }
    }
}

/* --- rows: float32, and what is before and after the axis alike in index and x -------- */

/* x and what is taken: lines before the axis, extents of it, elements after it. */
typedef struct span {
    int64_t outer, x, taken, inner;
    const int64_t *index;
    bool shared; /* one index for all lines and elements */
} span;

static span span_of(const sonde__op_shape *x, const sonde__op_shape *taken, int axis,
                    const sonde__operand *index)
{
    return (span){sonde__op_dims_product(x, 0, axis),
                  x->dim[axis],
                  taken->dim[axis],
                  sonde__op_dims_product(x, axis + 1, x->rank),
                  index->data,
                  index->shape.rank == 1};
}

static bool takes_rows(const sonde__op_shape *x, const sonde__op_shape *index,
                       const sonde__op_attrs *attrs)
{
    bool alike = x->dtype == SONDE_F32;

    for (int d = 0; d < x->rank && index->rank == x->rank; d++) {
        alike = alike && (d == attrs->index.axis || index->dim[d] == x->dim[d]);
    }
    return alike;
}

static bool gather_takes_rows(const sonde__op_call *call)
{
    return takes_rows(&call->in[0].shape, &call->in[1].shape, call->attrs);
}

static bool grad_takes_rows(const sonde__op_call *call)
{
    return takes_rows(&call->out[0].shape, &call->in[1].shape, call->attrs);
}

/* The place along the axis of element k of row i of line o; -1: out of range. */
static int64_t along(const span *s, int64_t o, int64_t i, int64_t k)
{
    const int64_t place = s->index[s->shared ? i : (o * s->taken + i) * s->inner + k];

    return place >= 0 && place < s->x ? place : -1;
}

static void gather_rows(const sonde__op_call *call, int part, int parts)
{
    const span s = span_of(&call->in[0].shape, &call->out[0].shape,
                           call->attrs->index.axis, &call->in[1]);
    const int64_t rows = s.outer * s.taken;

    for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; row++) {
        const int64_t o = row / s.taken, i = row % s.taken;
        const float *x = (const float *)call->in[0].data + o * s.x * s.inner;
        float *y = (float *)call->out[0].data + row * s.inner;
        const int64_t first = along(&s, o, i, 0);

        if (s.shared && first >= 0) {
            memcpy(y, x + first * s.inner, (size_t)s.inner * sizeof *y);
            continue;
        }
        for (int64_t k = 0; k < s.inner; k++) {
            const int64_t place = along(&s, o, i, k);

            y[k] = place >= 0 ? x[place * s.inner + k] : NAN;
        }
    }
}

/* A part has elements [first, end) of all rows, or all of some lines. */
typedef struct share {
    int64_t line, lines, first, end;
} share;

static share share_of(const span *s, int part, int parts)
{
    return s->outer >= parts ? (share){s->outer * part / parts,
                                       s->outer * (part + 1) / parts, 0, s->inner}
                             : (share){0, s->outer, s->inner * part / parts,
                                       s->inner * (part + 1) / parts};
}

static void gather_grad_rows(const sonde__op_call *call, int part, int parts)
{
    const span s = span_of(&call->out[0].shape, &call->in[0].shape,
                           call->attrs->index.axis, &call->in[1]);
    const share own = share_of(&s, part, parts);

    for (int64_t o = own.line; o < own.lines; o++) {
        float *dx = (float *)call->out[0].data + o * s.x * s.inner;

        for (int64_t p = 0; p < s.x; p++) {
            for (int64_t k = own.first; k < own.end; k++) {
                dx[p * s.inner + k] = 0.0F;
            }
        }
        for (int64_t i = 0; i < s.taken; i++) {
            const float *dy =
                (const float *)call->in[0].data + (o * s.taken + i) * s.inner;

            for (int64_t k = own.first; k < own.end; k++) {
                const int64_t place = along(&s, o, i, k);

                if (place >= 0) {
                    dx[place * s.inner + k] += dy[k];
                }
            }
        }
    }
}

static int row_parts(const sonde__op_call *call, int max)
{
    const int64_t parts = (sonde__op_shape_count(&call->in[0].shape) +
                           sonde__op_shape_count(&call->out[0].shape)) /
                          65536;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

static const sonde__op_kernel *const *gather_fast(void)
{
    static const sonde__op_kernel rows = {.name = "rows",
                                          .accepts = gather_takes_rows,
                                          .parts = row_parts,
                                          .run = gather_rows};
    static const sonde__op_kernel *const kernels[] = {&rows, NULL};

    return kernels;
}

static const sonde__op_kernel *const *gather_grad_fast(void)
{
    static const sonde__op_kernel rows = {.name = "rows",
                                          .accepts = grad_takes_rows,
                                          .parts = row_parts,
                                          .run = gather_grad_rows};
    static const sonde__op_kernel *const kernels[] = {&rows, NULL};

    return kernels;
}

/* --- gradients and rows ---------------------------------------------------------------- */

static void scatter_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_value in[] = {context->grad_out[0], context->in[1]};

    if (context->wanted[0]) {
        context->grad_in[0] =
            context->attrs->index.adds
                ? context->grad_out[0]
                : sonde__op_emit(context->graph, &sonde__op_scatter_grad, context->attrs,
                                 in, 2);
    }
    if (context->wanted[2]) {
        context->grad_in[2] =
            sonde__op_emit(context->graph, &sonde__op_gather, context->attrs, in, 2);
    }
}

static bool index_ids(const sonde__op_call *call, int operand, sonde__op_ids *ids)
{
    *ids = (sonde__op_ids){.what = "index",
                           .count = call->in[0].shape.dim[call->attrs->index.axis]};
    return operand == 1;
}

SONDE__OP(gather, "Gather", index, 2, 2, 1, .infer = gather_infer,
          .backward = {&sonde__op_gather_grad, "d1", 0, true},
          SONDE__REFERENCE(gather_run), .fast = gather_fast, .ids = index_ids);

SONDE__OP(gather_grad, "GatherGrad", index, 2, 2, 1, .infer = gather_grad_infer,
          SONDE__REFERENCE(gather_grad_run), .fast = gather_grad_fast);

SONDE__OP(scatter, "Scatter", index, 3, 3, 1, .infer = scatter_infer,
          .gradient = scatter_gradient, SONDE__REFERENCE(scatter_run), .ids = index_ids);

SONDE__OP(scatter_grad, "ScatterGrad", index, 2, 2, 1, .infer = scatter_grad_infer,
          SONDE__REFERENCE(scatter_grad_run));

/* --- layers ----------------------------------------------------------------------------- */

static const sonde__op_attrs adds = {.index = {.adds = true}};

SONDE__LAYER(gather, gather, 2, "the elements of a at the places b (int64) along dim",
             .fields = {SONDE__FIELD_DIM("dim", index.axis, (double)NAN)});

SONDE__LAYER(index_select, gather, 2,
             "the places b (int64, of one dimension) of the dimension dim of a",
             .fields = {SONDE__FIELD_DIM("dim", index.axis, (double)NAN)});

SONDE__LAYER(scatter, scatter, 3,
             "a with the elements of c at the places b (int64) along dim; of several for "
             "a place the last",
             .fields = {SONDE__FIELD_DIM("dim", index.axis, (double)NAN)});

SONDE__LAYER(scatter_add, scatter, 3,
             "a plus the elements of c at the places b (int64) along dim",
             .preset = &adds,
             .fields = {SONDE__FIELD_DIM("dim", index.axis, (double)NAN)});

SONDE__LAYER(index_add, scatter, 3,
             "a plus c at the places b (int64, of one dimension) of the dimension dim",
             .preset = &adds,
             .fields = {SONDE__FIELD_DIM("dim", index.axis, (double)NAN)});
