/*
 * row_norm.c - layer normalization (Ba et al. 2016) and RMS normalization (Zhang and
 * Sennrich 2019), with their gradients.
 *
 * The last dims of x, attrs.norm.dims of them, are a row of D elements:
 *
 *   LayerNorm  mean = sum x / D, rstd = 1 / sqrt(sum (x - mean)^2 / D + eps)
 *              y = (x - mean) rstd weight + bias
 *   RmsNorm    rstd = 1 / sqrt(sum x^2 / D + eps), y = x rstd weight
 *
 * as torch.nn.functional.layer_norm and rms_norm; weight and bias may be missing. With z
 * = (x - mean) rstd and h = dy weight, the gradient is
 *
 *   dweight = sum over rows of dy z, dbias = sum over rows of dy
 *   dx = rstd (h - sum h / D - z sum (h z) / D), for RmsNorm without sum h / D
 *
 * No gradient flows through mean and rstd: they exist to be observed.
 *
 * attrs: norm.
 */
#include "base/fail.h"
#include "nn/kernels/rows.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

/* --- shapes --------------------------------------------------------------------------- */

/* Checks that x ends with the dims of a row; fills the shape of a row and that of its
 * statistics. */
static sonde_err expect_rows(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                             sonde__op_shape *row, sonde__op_shape *lead,
                             sonde_diag *diag)
{
    char found[SONDE__SHAPE_TEXT], wanted[SONDE__SHAPE_TEXT];

    SONDE__TRY(sonde__op_expect_float(x, "input", diag));
    SONDE__TRY(sonde__op_expect_dims(attrs, -1, x->dtype, "normalized_shape", row, diag));
    *lead = (sonde__op_shape){.dtype = x->dtype, .rank = x->rank - row->rank};
    for (int i = 0; i < lead->rank; i++) {
        lead->dim[i] = x->dim[i];
    }
    for (int i = 0; lead->rank >= 0 && i < row->rank; i++) {
        if (row->dim[i] != x->dim[lead->rank + i]) {
            lead->rank = -1;
        }
    }
    if (row->rank < 1 || lead->rank < 0) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL,
                           sonde_shape_text(row->rank, row->dim, wanted, sizeof wanted),
                           "the last dimensions of %s", sonde__op_shape_text(x, found));
    }
    return SONDE_OK;
}

/* Rows, and the elements of one. */
typedef struct row_count {
    int64_t rows, size;
} row_count;

static row_count rows_of(const sonde__op_shape *x, const sonde__op_attrs *attrs)
{
    const int lead = x->rank - attrs->norm.rank;

    return (row_count){sonde__op_dims_product(x, 0, lead),
                       sonde__op_dims_product(x, lead, x->rank)};
}

/* A part has at least so many elements. */
enum { ELEMENTS_A_PART = 4096 };

static int row_parts(const sonde__op_call *call, int max)
{
    const int64_t parts = sonde__op_shape_count(&call->out[0].shape) / ELEMENTS_A_PART;

    return parts < 1 ? 1 : parts > max ? max : (int)parts;
}

/* --- forward -------------------------------------------------------------------------- */

static sonde_err forward_infer(sonde__op_call *call, const sonde__op_attrs *attrs,
                               sonde_diag *diag)
{
    static const char *const names[] = {"input", "weight", "bias"};
    sonde__op_shape row, lead;

    SONDE__TRY(expect_rows(&call->in[0].shape, attrs, &row, &lead, diag));
    for (int i = 1; i < call->in_count && i < 3; i++) {
        SONDE__TRY(sonde__op_expect_shape(&call->in[i].shape, &row, names[i], diag));
    }
    call->out[0].shape = call->in[0].shape;
    for (int i = 1; i < call->out_count; i++) {
        call->out[i].shape = lead;
    }
    return SONDE_OK;
}

static sonde_err row_norm_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    return forward_infer(call, attrs, diag);
}

static double sum_of_row(const sonde__operand *x, int64_t base, int64_t size, double mean,
                         bool squares)
{
    double sum = 0.0;

    for (int64_t i = 0; i < size; i++) {
        const double d = sonde__op_load(x, base + i) - mean;

        sum += squares ? d * d : d;
    }
    return sum;
}

static void forward_run(const sonde__op_call *call, int part, int parts, bool centered)
{
    const row_count n = rows_of(&call->in[0].shape, call->attrs);
    const sonde__operand *x = &call->in[0];

    for (int64_t r = n.rows * part / parts; r < n.rows * (part + 1) / parts; r++) {
        const int64_t base = r * n.size;
        const double mean =
            centered ? sum_of_row(x, base, n.size, 0.0, false) / (double)n.size : 0.0;
        const double rstd =
            1.0 / sqrt(sum_of_row(x, base, n.size, mean, true) / (double)n.size +
                       (double)call->attrs->norm.eps);

        if (centered) {
            sonde__op_store(&call->out[1], r, mean);
        }
        sonde__op_store(&call->out[centered ? 2 : 1], r, rstd);
        for (int64_t i = 0; i < n.size; i++) {
            const double z = (sonde__op_load(x, base + i) - mean) * rstd;
            const double weight =
                sonde__op_has_in(call, 1) ? sonde__op_load(&call->in[1], i) : 1.0;
            const double bias =
                sonde__op_has_in(call, 2) ? sonde__op_load(&call->in[2], i) : 0.0;

            sonde__op_store(&call->out[0], base + i, z * weight + bias);
        }
    }
}

static void layer_norm_run(const sonde__op_call *call, int part, int parts)
{
    forward_run(call, part, parts, true);
}

static void rms_norm_run(const sonde__op_call *call, int part, int parts)
{
    forward_run(call, part, parts, false);
}

/* --- gradient ------------------------------------------------------------------------- */

/* dy, x, the statistics, and weight if there is one. */
static sonde_err row_norm_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                     sonde_diag *diag)
{
    const sonde__op_shape *x = &call->in[1].shape;
    const int statistics = call->out_count - 1; /* layer: mean, rstd; RMS: rstd */
    sonde__op_shape row, lead;

    SONDE__TRY(expect_rows(x, attrs, &row, &lead, diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[0].shape, x, "output gradient", diag));
    for (int i = 2; i < 2 + statistics; i++) {
        SONDE__TRY(sonde__op_expect_shape(&call->in[i].shape, &lead, "statistic", diag));
    }
    if (call->in_count > 2 + statistics) {
        SONDE__TRY(sonde__op_expect_shape(&call->in[2 + statistics].shape, &row, "weight",
                                          diag));
    }
    call->out[0].shape = *x;
    for (int i = 1; i < call->out_count; i++) {
        call->out[i].shape = row;
    }
    return SONDE_OK;
}

/* The operands of a gradient, and elements of them. */
typedef struct grad_operands {
    const sonde__operand *dy, *x, *mean, *rstd, *weight; /* mean, weight: or NULL */
    row_count n;
} grad_operands;

static grad_operands operands_of(const sonde__op_call *call, bool centered)
{
    const int weight = centered ? 4 : 3;

    return (grad_operands){.dy = &call->in[0],
                           .x = &call->in[1],
                           .mean = centered ? &call->in[2] : NULL,
                           .rstd = &call->in[centered ? 3 : 2],
                           .weight =
                               sonde__op_has_in(call, weight) ? &call->in[weight] : NULL,
                           .n = rows_of(&call->in[1].shape, call->attrs)};
}

static double h_at(const grad_operands *g, int64_t row, int64_t i)
{
    return sonde__op_load(g->dy, row * g->n.size + i) *
           (g->weight != NULL ? sonde__op_load(g->weight, i) : 1.0);
}

static double z_at(const grad_operands *g, int64_t row, int64_t i)
{
    const double mean = g->mean != NULL ? sonde__op_load(g->mean, row) : 0.0;

    return (sonde__op_load(g->x, row * g->n.size + i) - mean) *
           sonde__op_load(g->rstd, row);
}

static void grad_of_row(const sonde__op_call *call, const grad_operands *g, int64_t row)
{
    const double size = (double)g->n.size;
    double sum_h = 0.0, sum_hz = 0.0;

    for (int64_t i = 0; i < g->n.size; i++) {
        sum_h += h_at(g, row, i);
        sum_hz += h_at(g, row, i) * z_at(g, row, i);
    }
    for (int64_t i = 0; i < g->n.size; i++) {
        const double center = g->mean != NULL ? sum_h / size : 0.0;

        sonde__op_store(&call->out[0], row * g->n.size + i,
                        sonde__op_load(g->rstd, row) *
                            (h_at(g, row, i) - center - z_at(g, row, i) * sum_hz / size));
    }
}

static void grad_run(const sonde__op_call *call, int part, int parts, bool centered)
{
    const grad_operands g = operands_of(call, centered);

    for (int64_t r = g.n.rows * part / parts; r < g.n.rows * (part + 1) / parts; r++) {
        grad_of_row(call, &g, r);
    }
    for (int64_t i = g.n.size * part / parts; i < g.n.size * (part + 1) / parts; i++) {
        double dweight = 0.0, dbias = 0.0;

        for (int64_t r = 0; r < g.n.rows; r++) {
            const double dy = sonde__op_load(g.dy, r * g.n.size + i);

            dweight += dy * z_at(&g, r, i);
            dbias += dy;
        }
        sonde__op_store(&call->out[1], i, dweight);
        if (centered) {
            sonde__op_store(&call->out[2], i, dbias);
        }
    }
}

static void layer_norm_grad_run(const sonde__op_call *call, int part, int parts)
{
    grad_run(call, part, parts, true);
}

static void rms_norm_grad_run(const sonde__op_call *call, int part, int parts)
{
    grad_run(call, part, parts, false);
}

/* --- rows ----------------------------------------------------------------------------- */

SONDE__OP(layer_norm, "LayerNorm", norm, 1, 3, 3, .out_names = {NULL, "Mean", "Rstd"},
          .infer = row_norm_infer, .backward = {&sonde__op_layer_norm_grad, "d0BC1"},
          SONDE__REFERENCE(layer_norm_run, .parts = row_parts),
          .fast = sonde__kernel_layer_norm_rows);

SONDE__OP(layer_norm_grad, "LayerNormGrad", norm, 4, 5, 3,
          .out_names = {NULL, "GradWeight", "GradBias"}, .infer = row_norm_grad_infer,
          SONDE__REFERENCE(layer_norm_grad_run, .parts = row_parts),
          .fast = sonde__kernel_layer_norm_grad_rows);

SONDE__OP(rms_norm, "RmsNorm", norm, 1, 2, 2, .out_names = {NULL, "Rstd"},
          .infer = row_norm_infer, .backward = {&sonde__op_rms_norm_grad, "d0B1"},
          SONDE__REFERENCE(rms_norm_run, .parts = row_parts));

SONDE__OP(rms_norm_grad, "RmsNormGrad", norm, 3, 4, 2, .out_names = {NULL, "GradWeight"},
          .infer = row_norm_grad_infer,
          SONDE__REFERENCE(rms_norm_grad_run, .parts = row_parts));

/* Weight 1 and bias 0, each of the shape of a row. */
static int row_params(const sonde__op_attrs *attrs, int most,
                      sonde__op_param params[SONDE__MAX_PARAMS])
{
    const int count = !attrs->norm.affine ? 0 : most;

    for (int i = 0; i < count; i++) {
        params[i] =
            (sonde__op_param){.suffix = i == 0 ? "weight" : "bias",
                              .role = i == 0 ? SONDE_ROLE_WEIGHT : SONDE_ROLE_BIAS,
                              .rank = attrs->norm.rank,
                              .constant = i == 0 ? 1.0F : 0.0F};
        for (int k = 0; k < attrs->norm.rank; k++) {
            params[i].dim[k] = attrs->norm.dims[k];
        }
    }
    return count;
}

static int layer_norm_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                             sonde__op_param params[SONDE__MAX_PARAMS])
{
    (void)x;
    return row_params(attrs, attrs->norm.bias ? 2 : 1, params);
}

static int rms_norm_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                           sonde__op_param params[SONDE__MAX_PARAMS])
{
    (void)x;
    return row_params(attrs, 1, params);
}

#define NORMALIZED_SHAPE                                                                 \
    SONDE__FIELD("normalized_shape", SONDE__FIELD_DIMS, norm.dims, (double)NAN, 1, 1e9)
#define AFFINE                                                                           \
    SONDE__FIELD("elementwise_affine", SONDE__FIELD_FLAG, norm.affine, 1.0, 0, 1)

SONDE__LAYER(layer_norm, layer_norm, 1,
             "(x - mean) / sqrt(variance + eps) over the last dimensions, times weight, "
             "plus bias",
             .fields = {NORMALIZED_SHAPE,
                        SONDE__FIELD("eps", SONDE__FIELD_NUMBER, norm.eps, 1e-5, 0,
                                     (double)INFINITY),
                        AFFINE,
                        SONDE__FIELD("bias", SONDE__FIELD_FLAG, norm.bias, 1.0, 0, 1)},
             .params = layer_norm_params);

SONDE__LAYER(rms_norm, rms_norm, 1,
             "x / sqrt(mean of squares + eps) over the last dimensions, times weight",
             .fields = {NORMALIZED_SHAPE,
                        SONDE__FIELD("eps", SONDE__FIELD_NUMBER, norm.eps, 1.1920929e-7,
                                     0, (double)INFINITY),
                        AFFINE},
             .params = rms_norm_params);
