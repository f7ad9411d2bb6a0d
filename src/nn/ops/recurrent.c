/*
 * recurrent.c - recurrent networks and their layers.
 *
 * RNN (Elman 1990), LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et
 * al. 2014) over whole sequences, and their gradients; as torch.nn.RNN, LSTM and GRU with
 * batch_first, from a state of zeros.
 *
 *   a_t = W_ih x_t + b_ih,  r_t = W_hh h_{t-1} + b_hh     (G H numbers, in G gates)
 *
 *   RNN   h = tanh(a + r), or max(a + r, 0)
 *   LSTM  i, f, o = sigmoid(a + r), g = tanh(a + r), c = f c + i g, h = o tanh(c)
 *   GRU   r, z = sigmoid(a + r), n = tanh(a_n + r r_n), h = (1 - z) n + z h
 *
 * One op is one layer in one direction: x (N, T, I), w_ih (G H, I), w_hh (G H, H), b_ih?
 * and b_hh? (G H). Outputs: h (N, T, H); the gates after their functions (N, T, G H), of a
 * GRU with r_n beside them (N, T, 4 H); of an LSTM the cells c (N, T, H), else the same
 * shape unused. The gradient reads the three. A reversed op begins at the last step.
 *
 * Parts take samples; the sums over samples and steps of the weight gradients are one
 * product of matrices, divided by its rows.
 *
 * with half, x, h and the weights are rounded where they are multiplied, and h is of that
 * dtype; gates and cells are float32.
 *
 * The layers rnn, lstm and gru: several layers, both directions; with
 * the parameters, names and initial values of torch.nn.RNN, LSTM and GRU (batch_first).
 *
 * attrs: recurrent.
 */
#include "base/macros.h"
#include "nn/kernels/gemm.h"
#include "nn/kernels/rows.h"
#include "nn/ops/recurrent.h"
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>
#include <string.h>

/* === recurrent ====================================================================== */

/* --- shapes --------------------------------------------------------------------------- */

static sonde_err recurrent_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                 sonde_diag *diag)
{
    static const char *const names[] = {"input", "weight_ih", "weight_hh", "bias_ih",
                                        "bias_hh"};
    const sonde__op_shape *x = &call->in[0].shape;
    const sonde_dtype numbers = attrs->half != 0 ? SONDE_F32 : x->dtype;
    sonde__op_shape wanted = {.dtype = numbers, .rank = 2};
    sonde_dtype dtype = x->dtype;
    sonde__op_recurrent_sizes n;

    SONDE__TRY(sonde__op_recurrent_expect_cell(attrs, diag));
    SONDE__TRY(sonde__op_expect_rank(x, 3, "input", "(N, T, I)", diag));
    SONDE__TRY(sonde__op_expect_product(attrs, x, x, "input", &dtype, diag));
    n = sonde__op_recurrent_sizes_of(x, attrs);
    for (int i = 1; i < call->in_count && i < 5; i++) {
        wanted.rank = i < 3 ? 2 : 1;
        wanted.dim[0] = n.gates;
        wanted.dim[1] = i == 1 ? n.inputs : i == 2 ? n.units : 0;
        SONDE__TRY(sonde__op_expect_shape(&call->in[i].shape, &wanted, names[i], diag));
    }
    call->out[0].shape = call->out[2].shape = sonde__op_recurrent_sequence(x, n.units);
    call->out[1].shape = sonde__op_recurrent_sequence(x, n.width);
    call->out[0].shape.dtype = dtype;
    call->out[1].shape.dtype = call->out[2].shape.dtype = numbers;
    return sonde__op_expect_size(&call->out[1].shape, "gates", diag);
}

/* --- the reference -------------------------------------------------------------------- */

static double logistic(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double bias_of(const sonde__op_call *call, int operand, int64_t row)
{
    return sonde__op_has_in(call, operand) ? sonde__op_load(&call->in[operand], row)
                                           : 0.0;
}

/* b + w[row] x, or b alone if x is before the first step (at -1). */
static double row_product(const sonde__op_call *call, int w, int64_t row,
                          const sonde__operand *x, int64_t at, int64_t count, double bias)
{
    double sum = bias;

    for (int64_t k = 0; k < count && at >= 0; k++) {
        sum += sonde__op_load_rounded(call, w, row * count + k) *
               sonde__op_rounded(call, sonde__op_load(x, at * count + k));
    }
    return sum;
}

/* Unit j at a step: at is its place in sequences, before that of the step before. */
static void run_unit(const sonde__op_call *call, const sonde__op_recurrent_sizes *n,
                     int64_t at, int64_t before, int64_t j)
{
    const sonde__operand *h = &call->out[0], *gates = &call->out[1],
                         *cells = &call->out[2];
    const int64_t count = n->gates / n->units, u = n->units;
    const double last = before >= 0 ? sonde__op_load(h, before * u + j) : 0.0;
    double a[4] = {0}, r[4] = {0}, y[4] = {0}, cell = 0.0, out = 0.0;

    for (int64_t g = 0; g < count; g++) {
        a[g] = row_product(call, 1, g * u + j, &call->in[0], at, n->inputs,
                           bias_of(call, 3, g * u + j));
        r[g] = row_product(call, 2, g * u + j, h, before, u, bias_of(call, 4, g * u + j));
    }
    if (call->attrs->recurrent.cell == SONDE__LSTM) {
        for (int g = 0; g < 4; g++) {
            y[g] = g == 2 ? tanh(a[g] + r[g]) : logistic(a[g] + r[g]);
        }
        cell = y[1] * (before >= 0 ? sonde__op_load(cells, before * u + j) : 0.0) +
               y[0] * y[2];
        out = y[3] * tanh(cell);
    } else if (call->attrs->recurrent.cell == SONDE__GRU) {
        y[0] = logistic(a[0] + r[0]);
        y[1] = logistic(a[1] + r[1]);
        y[2] = tanh(a[2] + y[0] * r[2]);
        y[3] = r[2];
        out = (1.0 - y[1]) * y[2] + y[1] * last;
    } else {
        y[0] = call->attrs->recurrent.cell == SONDE__RNN_TANH ? tanh(a[0] + r[0])
               : a[0] + r[0] < 0.0                            ? 0.0
                                                              : a[0] + r[0];
        out = y[0];
    }
    for (int64_t g = 0; g < n->width / u; g++) {
        sonde__op_store(gates, at * n->width + g * u + j, y[g]);
    }
    sonde__op_store(cells, at * u + j, cell);
    sonde__op_store(h, at * u + j, out);
}

static void recurrent_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_recurrent_sizes n =
        sonde__op_recurrent_sizes_of(&call->in[0].shape, call->attrs);

    for (int64_t s = n.samples * part / parts; s < n.samples * (part + 1) / parts; s++) {
        for (int64_t i = 0; i < n.steps; i++) {
            const int64_t at =
                s * n.steps + sonde__op_recurrent_step(call->attrs, n.steps, i);
            const int64_t before =
                i == 0
                    ? -1
                    : s * n.steps + sonde__op_recurrent_step(call->attrs, n.steps, i - 1);

            for (int64_t j = 0; j < n.units; j++) {
                run_unit(call, &n, at, before, j);
            }
        }
    }
}

/* --- forward over the shared product -------------------------------------------------- */

/* Columns of W_hh^T that go to the gates at once: of a GRU r_n is apart. */
static int64_t first_gates(const sonde__op_recurrent_sizes *n,
                           const sonde__op_attrs *attrs)
{
    return attrs->recurrent.cell == SONDE__GRU ? 2 * n->units : n->gates;
}

/* Of the products of a part. */
static size_t product_bytes(const sonde__op_recurrent_sizes *n,
                            const sonde__op_attrs *attrs)
{
    return sonde__op_recurrent_scratch(attrs, n->samples * n->steps,
                                       SONDE_MAX(n->inputs, n->units));
}

/* Of a part: that of the product; two rows of states; W_hh^T packed, of a GRU in two; and
 * W_ih^T. */
static size_t forward_bytes(const sonde__op_recurrent_sizes *n,
                            const sonde__op_attrs *attrs)
{
    const int64_t first = first_gates(n, attrs);

    return product_bytes(n, attrs) +
           sonde__op_recurrent_rounded((size_t)(2 * n->units) * sizeof(float)) +
           sonde__kernel_half_gemm_packed(n->units, first) +
           sonde__kernel_half_gemm_packed(n->units, n->gates - first) +
           sonde__kernel_half_gemm_packed(n->inputs, n->gates);
}

static size_t recurrent_scratch(const sonde__op_call *call, int parts)
{
    const sonde__op_recurrent_sizes n =
        sonde__op_recurrent_sizes_of(&call->in[0].shape, call->attrs);

    return forward_bytes(&n, call->attrs) * (size_t)parts;
}

/* What steps of some samples read and write. */
typedef struct pass {
    const sonde__op_call *call;
    sonde__op_recurrent_sizes n;
    int64_t first, count; /* samples */
    char *packed[2];      /* W_hh^T (H, G H): for the gates, and the rest */
    char *inputs;         /* W_ih^T (I, G H), likewise */
    char *scratch;
    float *rooms; /* for h of a step and of the one before, where h is of 16 bits */
    float *gates, *cells;
} pass;

/* The weights are the same at every step. */
static void pack_weights(pass *p)
{
    const sonde__op_recurrent_sizes *n = &p->n;
    const int64_t first = first_gates(n, p->call->attrs);
    const sonde__operand *w_hh = &p->call->in[2];
    sonde__kernel_half_gemm product = {
        .dtype = p->call->attrs->half,
        .n = first,
        .k = n->units,
        .b = sonde__op_recurrent_matrix(w_hh, 0, 1, n->units),
        .packed = p->packed[0],
        .packs = true};

    sonde__kernel_half_gemm_run(&product, p->scratch);
    if (first < n->gates) {
        product.n = n->gates - first;
        product.b = sonde__op_recurrent_matrix(w_hh, first * n->units, 1, n->units);
        product.packed = p->packed[1];
        sonde__kernel_half_gemm_run(&product, p->scratch);
    }
    product.n = n->gates;
    product.k = n->inputs;
    product.b = sonde__op_recurrent_matrix(&p->call->in[1], 0, 1, n->inputs);
    product.packed = p->inputs;
    sonde__kernel_half_gemm_run(&product, p->scratch);
}

/* Samples from which on a product of one step is as fast as one of all steps. */
enum { STEPWISE = 16 };

/* W_ih x + b of `rows` rows of x from number `first` on, `apart` rows from one another; with
 * b_hh where it is only added. */
static void fill_gates(const pass *p, int64_t first, int64_t rows, int64_t apart)
{
    const sonde__op_recurrent_sizes *n = &p->n;
    float *const made = p->gates + first * n->width;
    const sonde__kernel_half_gemm product = {
        .dtype = p->call->attrs->half,
        .m = rows,
        .n = n->gates,
        .k = n->inputs,
        .a = sonde__op_recurrent_matrix(&p->call->in[0], first * n->inputs,
                                        apart * n->inputs, 1),
        .c = made,
        .c_dtype = SONDE_F32,
        .c_row = apart * n->width,
        .packed = p->inputs};
    const float *b_ih = sonde__op_has_in(p->call, 3) ? p->call->in[3].data : NULL;
    const float *b_hh = sonde__op_has_in(p->call, 4) ? p->call->in[4].data : NULL;
    const int64_t both =
        p->call->attrs->recurrent.cell == SONDE__GRU ? 2 * n->units : n->gates;

    sonde__kernel_half_gemm_run(&product, p->scratch);
    for (int64_t row = 0; row < rows && b_ih != NULL && b_hh != NULL; row++) {
        float *gates = made + row * apart * n->width;

        for (int64_t k = 0; k < n->gates; k++) {
            gates[k] += b_ih[k] + (k < both ? b_hh[k] : 0.0F);
        }
    }
}

/* Adds W_hh h of the step before; of a GRU, r_n is kept apart. */
static void add_state(const pass *p, int64_t at, int64_t before)
{
    const sonde__op_recurrent_sizes *n = &p->n;
    const int64_t row = n->steps * n->width, start = p->first * row + at * n->width;
    const bool apart = p->call->attrs->recurrent.cell == SONDE__GRU;
    const float *b_hh = sonde__op_has_in(p->call, 4) ? p->call->in[4].data : NULL;
    float *const rest = p->gates + start + 3 * n->units;
    sonde__kernel_half_gemm product = {
        .dtype = p->call->attrs->half,
        .m = p->count,
        .n = first_gates(n, p->call->attrs),
        .k = before < 0 ? 0 : n->units,
        .a = sonde__op_recurrent_matrix(
            &p->call->out[0],
            (p->first * n->steps + (before < 0 ? 0 : before)) * n->units,
            n->steps * n->units, 1),
        .c = p->gates + start,
        .c_dtype = SONDE_F32,
        .c_row = row,
        .accumulate = true,
        .packed = p->packed[0]};

    sonde__kernel_half_gemm_run(&product, p->scratch);
    if (!apart) {
        return;
    }
    product.n = n->units;
    product.packed = p->packed[1];
    product.c = rest;
    product.accumulate = false;
    sonde__kernel_half_gemm_run(&product, p->scratch);
    for (int64_t s = 0; s < p->count && b_hh != NULL; s++) {
        for (int64_t j = 0; j < n->units; j++) {
            rest[s * row + j] += b_hh[2 * n->units + j];
        }
    }
}

static void finish_gru(const sonde__kernel_row_functions *f, int64_t units, float *gates,
                       const float *last, float *h)
{
    float *z = gates + units, *n = gates + 2 * units;

    f->sigmoid(gates, gates, 2 * units);
    for (int64_t j = 0; j < units; j++) {
        n[j] += gates[j] * gates[3 * units + j];
    }
    f->tanh(n, n, units);
    for (int64_t j = 0; j < units; j++) {
        h[j] = (1.0F - z[j]) * n[j] + z[j] * (last != NULL ? last[j] : 0.0F);
    }
}

static void finish_cell(const pass *p, int64_t at, int64_t before, const float *last,
                        float *h)
{
    const sonde__kernel_row_functions *f = sonde__kernel_rows();
    const int64_t units = p->n.units;
    float *gates = p->gates + at * p->n.width;

    switch (p->call->attrs->recurrent.cell) {
    case SONDE__LSTM:
        f->lstm(gates, before < 0 ? NULL : p->cells + before * units,
                p->cells + at * units, h, units);
        return;
    case SONDE__GRU:
        finish_gru(f, units, gates, last, h);
        break;
    case SONDE__RNN_TANH:
        f->tanh(gates, gates, units);
        memcpy(h, gates, (size_t)units * sizeof *h);
        break;
    default:
        for (int64_t j = 0; j < units; j++) {
            gates[j] = gates[j] < 0.0F ? 0.0F : gates[j];
        }
        memcpy(h, gates, (size_t)units * sizeof *h);
        break;
    }
    memset(p->cells + at * units, 0, (size_t)units * sizeof *p->cells);
}

/* The functions of the gates, and h, of a sample. before < 0: the first step. */
static void finish_step(const pass *p, int64_t at, int64_t before)
{
    const sonde__operand *const states = &p->call->out[0];
    const int64_t units = p->n.units;
    float *const h = sonde__op_recurrent_room(states, at * units, p->rooms);
    const float *last = NULL;

    if (before >= 0 && p->call->attrs->recurrent.cell == SONDE__GRU) {
        last =
            sonde__op_recurrent_floats(states, before * units, units, p->rooms + units);
    }
    finish_cell(p, at, before, last, h);
    sonde__op_recurrent_keep(states, at * units, units, h);
}

static void recurrent_products(const sonde__op_call *call, int part, int parts)
{
    pass p = {.call = call,
              .n = sonde__op_recurrent_sizes_of(&call->in[0].shape, call->attrs)};
    const sonde__op_recurrent_sizes *n = &p.n;

    p.first = n->samples * part / parts;
    p.count = n->samples * (part + 1) / parts - p.first;
    p.scratch = (char *)call->scratch + forward_bytes(n, call->attrs) * (size_t)part;
    p.rooms = (float *)(void *)(p.scratch + product_bytes(n, call->attrs));
    p.packed[0] = (char *)p.rooms +
                  sonde__op_recurrent_rounded((size_t)(2 * n->units) * sizeof(float));
    p.packed[1] = p.packed[0] +
                  sonde__kernel_half_gemm_packed(n->units, first_gates(n, call->attrs));
    p.inputs = p.packed[1] + sonde__kernel_half_gemm_packed(
                                 n->units, n->gates - first_gates(n, call->attrs));
    p.gates = call->out[1].data;
    p.cells = call->out[2].data;
    pack_weights(&p);
    if (p.count < STEPWISE) {
        fill_gates(&p, p.first * n->steps, p.count * n->steps, 1);
    }
    for (int64_t i = 0; i < n->steps; i++) {
        const int64_t step = sonde__op_recurrent_step(call->attrs, n->steps, i);
        const int64_t before = sonde__op_recurrent_step(call->attrs, n->steps, i - 1);

        if (p.count >= STEPWISE) { /* gates of a step stay in cache */
            fill_gates(&p, p.first * n->steps + step, p.count, n->steps);
        }
        add_state(&p, step, before);
        for (int64_t s = p.first; s < p.first + p.count; s++) {
            finish_step(&p, s * n->steps + step, before < 0 ? -1 : s * n->steps + before);
        }
    }
}

/* The same products, of float32 and of 16 bits. */
#define PRODUCTS(name)                                                                   \
    SONDE__KERNEL(name, recurrent_products, .accepts = sonde__op_recurrent_is_f32,       \
                  .scratch = recurrent_scratch, .parts = sonde__op_recurrent_parts)

/* --- gradient ------------------------------------------------------------------------- */

/* Emits (N, T, K) as (N T, K). */
static sonde__op_value as_rows(const sonde__op_gradient_context *context,
                               sonde__op_value x)
{
    const sonde__op_attrs attrs = {
        .shape = {.rank = 2,
                  .dims = {-1, sonde__op_value_shape(context->graph, x)->dim[2]}}};

    return sonde__op_emit(context->graph, &sonde__op_reshape, &attrs, &x, 1);
}

/* A product that is part of the gradient of `like`. */
static sonde__op_value emit_pair(const sonde__op_gradient_context *context,
                                 const sonde__op_kind *kind, sonde__op_value a,
                                 sonde__op_value b, sonde__op_value like)
{
    const sonde__op_value in[] = {a, b};
    const sonde__op_attrs attrs = {.half = context->attrs->half,
                                   .wide = sonde__op_product_attrs(context, like).wide};

    return sonde__op_emit(context->graph, kind, &attrs, in, 2);
}

static void recurrent_gradient(const sonde__op_gradient_context *context)
{
    const sonde__op_value in[] = {context->grad_out[0], context->out[0], context->out[1],
                                  context->out[2], context->in[2]};
    sonde__op_value first = 0, da = 0, dr = 0;

    if (context->grad_out[0] == 0) {
        return; /* something reads the gates only */
    }
    first =
        sonde__op_emit(context->graph, &sonde__op_recurrent_grad, context->attrs, in, 5);
    if (first == 0) {
        return;
    }
    da = as_rows(context, first); /* dr is another in a GRU alone */
    dr = context->attrs->recurrent.cell == SONDE__GRU ? as_rows(context, first + 1) : da;
    if (context->wanted[0]) {
        const sonde__op_value dx = emit_pair(context, &sonde__op_linear_grad_input, da,
                                             context->in[1], context->in[0]);

        context->grad_in[0] =
            sonde__op_emit_shaped(context, &sonde__op_reshape, context->in[0], &dx, 1);
    }
    if (context->wanted[1]) {
        context->grad_in[1] = emit_pair(context, &sonde__op_linear_grad_weight, da,
                                        as_rows(context, context->in[0]), context->in[1]);
    }
    if (context->wanted[2]) {
        context->grad_in[2] = emit_pair(context, &sonde__op_linear_grad_weight, dr,
                                        as_rows(context, first + 2), context->in[2]);
    }
    for (int i = 3; i < 5; i++) {
        if (context->wanted[i]) {
            context->grad_in[i] = sonde__op_emit(context->graph, &sonde__op_channel_sum,
                                                 NULL, i == 3 ? &da : &dr, 1);
        }
    }
}

SONDE__OP(recurrent, "Recurrent", recurrent, 3, 5, 3,
          .out_names = {NULL, "Gates", "Cells"}, .infer = recurrent_infer,
          .gradient = recurrent_gradient,
          SONDE__REFERENCE(recurrent_run, .parts = sonde__op_recurrent_parts),
          .own = PRODUCTS("gemm"), .halves = SONDE__HALVES_MADE,
          .half_kernels = PRODUCTS("half"));

/* === recurrent layers =============================================================== */

enum { LSTM = 2, GRU = 3, MOST_LAYERS = 4 };

#define NAMES(end)                                                                       \
    {                                                                                    \
        "weight_ih_l" end, "weight_hh_l" end, "bias_ih_l" end, "bias_hh_l" end           \
    }
static const char *const names[MOST_LAYERS][2][4] = {
    {NAMES("0"), NAMES("0_reverse")},
    {NAMES("1"), NAMES("1_reverse")},
    {NAMES("2"), NAMES("2_reverse")},
    {NAMES("3"), NAMES("3_reverse")},
};

static int directions(const sonde__op_attrs *attrs)
{
    return attrs->recurrent.bidirectional ? 2 : 1;
}

static int recurrent_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                            sonde__op_param params[SONDE__MAX_PARAMS])
{
    const int64_t gates = attrs->recurrent.cell == LSTM  ? 4
                          : attrs->recurrent.cell == GRU ? 3
                                                         : 1;
    const int64_t rows = gates * attrs->recurrent.units;
    const float bound = (float)(1.0 / sqrt((double)attrs->recurrent.units));
    int count = 0;

    if (x->rank != 3) {
        return 0;
    }
    for (int64_t layer = 0; layer < attrs->recurrent.layers; layer++) {
        const int64_t width =
            layer == 0 ? x->dim[2] : directions(attrs) * attrs->recurrent.units;

        for (int way = 0; way < directions(attrs); way++) {
            for (int i = 0; i < (attrs->recurrent.bias ? 4 : 2); i++) {
                params[count++] =
                    (sonde__op_param){.suffix = names[layer][way][i],
                                      .role = i < 2 ? SONDE_ROLE_WEIGHT : SONDE_ROLE_BIAS,
                                      .rank = i < 2 ? 2 : 1,
                                      .dim = {rows, i == 0   ? width
                                                    : i == 1 ? attrs->recurrent.units
                                                             : 0},
                                      .bound = bound};
            }
        }
    }
    return count;
}

static sonde__op_value build_recurrent(const sonde__op_builder *builder,
                                       sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const int tensors = attrs->recurrent.bias ? 4 : 2;
    const sonde__op_value *next = in + 1;
    const sonde__op_attrs side_by_side = {.along = {.axis = 2}};
    sonde__op_value x = in[0];

    if (sonde__op_expect_rank(sonde__op_value_shape(builder->graph, x), 3, "input",
                              "(N, T, I)", builder->diag) != SONDE_OK) {
        return 0;
    }
    for (int64_t layer = 0; layer < attrs->recurrent.layers && x != 0; layer++) {
        sonde__op_value ways[2] = {0, 0};

        for (int way = 0; way < directions(attrs); way++) {
            const sonde__op_attrs cell = {.recurrent = {.units = attrs->recurrent.units,
                                                        .cell = attrs->recurrent.cell,
                                                        .reversed = way == 1}};
            sonde__op_value operands[5] = {x};

            for (int i = 0; i < tensors; i++) {
                operands[1 + i] = *next++;
            }
            ways[way] = builder->emit(builder, &sonde__op_recurrent, &cell, operands,
                                      1 + tensors);
            if (ways[way] == 0) {
                return 0;
            }
        }
        x = directions(attrs) == 1
                ? ways[0]
                : builder->emit(builder, &sonde__op_cat, &side_by_side, ways, 2);
    }
    return x;
}

static const sonde__op_attrs of_lstm = {.recurrent = {.cell = LSTM}},
                             of_gru = {.recurrent = {.cell = GRU}};

#define UNITS                                                                            \
    SONDE__FIELD("hidden_size", SONDE__FIELD_WHOLE, recurrent.units, (double)NAN, 1, 1e6)
#define LAYERS                                                                           \
    SONDE__FIELD("num_layers", SONDE__FIELD_WHOLE, recurrent.layers, 1.0, 1, MOST_LAYERS)
#define BIAS SONDE__FIELD("bias", SONDE__FIELD_FLAG, recurrent.bias, 1.0, 0, 1)
#define BOTH                                                                             \
    SONDE__FIELD("bidirectional", SONDE__FIELD_FLAG, recurrent.bidirectional, 0.0, 0, 1)

SONDE__LAYER(rnn, recurrent, 1,
             "the states (N, T, H) of a recurrent network over (N, T, I)",
             .fields = {UNITS, LAYERS,
                        SONDE__FIELD_CHOICE("nonlinearity", recurrent.cell, "tanh",
                                            "relu"),
                        BIAS, BOTH},
             .params = recurrent_params, .build = build_recurrent);

SONDE__LAYER(lstm, recurrent, 1, "the states (N, T, H) of an LSTM over (N, T, I)",
             .preset = &of_lstm, .fields = {UNITS, LAYERS, BIAS, BOTH},
             .params = recurrent_params, .build = build_recurrent);

SONDE__LAYER(gru, recurrent, 1, "the states (N, T, H) of a GRU over (N, T, I)",
             .preset = &of_gru, .fields = {UNITS, LAYERS, BIAS, BOTH},
             .params = recurrent_params, .build = build_recurrent);
