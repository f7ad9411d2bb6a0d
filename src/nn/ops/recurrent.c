/*
 * recurrent.c - RNN (Elman 1990), LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et
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
 * attrs: choice the cell, affine true if reversed, groups H.
 */
#include "base/fail.h"
#include "nn/kernels/gemm.h"
#include "nn/kernels/rows.h"
#include "nn/ops/common.h"

#include <math.h>
#include <string.h>

extern const sonde__op_kind sonde__op_recurrent, sonde__op_recurrent_grad;

enum { RNN_TANH = 0, RNN_RELU = 1, LSTM = 2, GRU = 3 };

/* --- shapes --------------------------------------------------------------------------- */

typedef struct sizes {
    int64_t samples, steps, inputs, units;
    int64_t gates; /* G H: rows of the weights */
    int64_t width; /* of a step of the gates' output */
} sizes;

static int64_t gate_count(const sonde__op_attrs *attrs)
{
    return attrs->choice == LSTM ? 4 : attrs->choice == GRU ? 3 : 1;
}

static sizes sizes_of(const sonde__op_shape *x, const sonde__op_attrs *attrs)
{
    const int64_t units = attrs->groups;

    return (sizes){.samples = x->dim[0],
                   .steps = x->dim[1],
                   .inputs = x->dim[2],
                   .units = units,
                   .gates = gate_count(attrs) * units,
                   .width = (attrs->choice == GRU ? 4 : gate_count(attrs)) * units};
}

static sonde_err expect_cell(const sonde__op_attrs *attrs, sonde_diag *diag)
{
    if (attrs->choice < RNN_TANH || attrs->choice > GRU || attrs->groups < 1 ||
        attrs->groups > SONDE__MAX_EXTENT) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "a cell, and at least one unit",
                           "cell %d of %lld units", attrs->choice,
                           (long long)attrs->groups);
    }
    return SONDE_OK;
}

static sonde__op_shape sequence(const sonde__op_shape *x, int64_t width)
{
    sonde__op_shape shape = *x;

    shape.dim[2] = width;
    return shape;
}

static sonde_err recurrent_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                 sonde_diag *diag)
{
    static const char *const names[] = {"input", "weight_ih", "weight_hh", "bias_ih",
                                        "bias_hh"};
    const sonde__op_shape *x = &call->in[0].shape;
    sonde__op_shape wanted = {.dtype = x->dtype, .rank = 2};
    sizes n;

    SONDE__TRY(expect_cell(attrs, diag));
    SONDE__TRY(sonde__op_expect_rank(x, 3, "input", "(N, T, I)", diag));
    n = sizes_of(x, attrs);
    for (int i = 1; i < call->in_count && i < 5; i++) {
        wanted.rank = i < 3 ? 2 : 1;
        wanted.dim[0] = n.gates;
        wanted.dim[1] = i == 1 ? n.inputs : i == 2 ? n.units : 0;
        SONDE__TRY(sonde__op_expect_shape(&call->in[i].shape, &wanted, names[i], diag));
    }
    call->out[0].shape = call->out[2].shape = sequence(x, n.units);
    call->out[1].shape = sequence(x, n.width);
    return sonde__op_expect_size(&call->out[1].shape, "gates", diag);
}

/* A part has at least 100000 multiplications; in double, which no shape overflows. */
static int recurrent_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *h = &call->out[0].shape;
    const double samples = (double)h->dim[0];
    const double work =
        (double)sonde__op_shape_count(h) * (double)call->attrs->groups / 100000.0;
    const double parts = work < samples ? work : samples;

    return parts < 1.0 ? 1 : parts > (double)max ? max : (int)parts;
}

/* The i-th step in the order of the op, and the one before it; -1: none. */
static int64_t step_at(const sonde__op_attrs *attrs, int64_t steps, int64_t i)
{
    return i < 0 ? -1 : attrs->affine ? steps - 1 - i : i;
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
static double row_product(const sonde__operand *w, int64_t row, const sonde__operand *x,
                          int64_t at, int64_t count, double bias)
{
    double sum = bias;

    for (int64_t k = 0; k < count && at >= 0; k++) {
        sum += sonde__op_load(w, row * count + k) * sonde__op_load(x, at * count + k);
    }
    return sum;
}

/* Unit j at a step: at is its place in sequences, before that of the step before. */
static void run_unit(const sonde__op_call *call, const sizes *n, int64_t at,
                     int64_t before, int64_t j)
{
    const sonde__operand *h = &call->out[0], *gates = &call->out[1],
                         *cells = &call->out[2];
    const int64_t count = n->gates / n->units, u = n->units;
    const double last = before >= 0 ? sonde__op_load(h, before * u + j) : 0.0;
    double a[4] = {0}, r[4] = {0}, y[4] = {0}, cell = 0.0, out = 0.0;

    for (int64_t g = 0; g < count; g++) {
        a[g] = row_product(&call->in[1], g * u + j, &call->in[0], at, n->inputs,
                           bias_of(call, 3, g * u + j));
        r[g] = row_product(&call->in[2], g * u + j, h, before, u,
                           bias_of(call, 4, g * u + j));
    }
    if (call->attrs->choice == LSTM) {
        for (int g = 0; g < 4; g++) {
            y[g] = g == 2 ? tanh(a[g] + r[g]) : logistic(a[g] + r[g]);
        }
        cell = y[1] * (before >= 0 ? sonde__op_load(cells, before * u + j) : 0.0) +
               y[0] * y[2];
        out = y[3] * tanh(cell);
    } else if (call->attrs->choice == GRU) {
        y[0] = logistic(a[0] + r[0]);
        y[1] = logistic(a[1] + r[1]);
        y[2] = tanh(a[2] + y[0] * r[2]);
        y[3] = r[2];
        out = (1.0 - y[1]) * y[2] + y[1] * last;
    } else {
        y[0] = call->attrs->choice == RNN_TANH ? tanh(a[0] + r[0])
               : a[0] + r[0] < 0.0             ? 0.0
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
    const sizes n = sizes_of(&call->in[0].shape, call->attrs);

    for (int64_t s = n.samples * part / parts; s < n.samples * (part + 1) / parts; s++) {
        for (int64_t i = 0; i < n.steps; i++) {
            const int64_t at = s * n.steps + step_at(call->attrs, n.steps, i);
            const int64_t before =
                i == 0 ? -1 : s * n.steps + step_at(call->attrs, n.steps, i - 1);

            for (int64_t j = 0; j < n.units; j++) {
                run_unit(call, &n, at, before, j);
            }
        }
    }
}

/* --- forward over the shared product -------------------------------------------------- */

static bool is_f32(const sonde__op_call *call)
{
    return call->in[0].shape.dtype == SONDE_F32;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Of a part: that of the product, and W_hh with its rows as columns. */
static size_t forward_bytes(const sizes *n)
{
    return sonde__kernel_gemm_scratch() +
           rounded((size_t)(n->gates * n->units) * sizeof(float));
}

static size_t recurrent_scratch(const sonde__op_call *call, int parts)
{
    const sizes n = sizes_of(&call->in[0].shape, call->attrs);

    return forward_bytes(&n) * (size_t)parts;
}

/* What steps of some samples read and write. */
typedef struct pass {
    const sonde__op_call *call;
    sizes n;
    int64_t first, count; /* samples */
    float *turned;        /* (H, G H): W_hh with its rows as columns */
    char *scratch;
    float *h, *gates, *cells;
} pass;

/* W_ih x + b of all steps, with b_hh where it is only added. */
static void fill_gates(const pass *p)
{
    const sizes *n = &p->n;
    const sonde__kernel_gemm product = {
        .m = p->count * n->steps,
        .n = n->gates,
        .k = n->inputs,
        .a = {(const float *)p->call->in[0].data + p->first * n->steps * n->inputs,
              n->inputs, 1},
        .b = {p->call->in[1].data, 1, n->inputs},
        .c = p->gates + p->first * n->steps * n->width,
        .c_row = n->width};
    const float *b_ih = sonde__op_has_in(p->call, 3) ? p->call->in[3].data : NULL;
    const float *b_hh = sonde__op_has_in(p->call, 4) ? p->call->in[4].data : NULL;
    const int64_t both = p->call->attrs->choice == GRU ? 2 * n->units : n->gates;

    sonde__kernel_gemm_run(&product, p->scratch);
    for (int64_t row = 0; row < p->count * n->steps && b_ih != NULL && b_hh != NULL;
         row++) {
        float *gates = product.c + row * n->width;

        for (int64_t k = 0; k < n->gates; k++) {
            gates[k] += b_ih[k] + (k < both ? b_hh[k] : 0.0F);
        }
    }
}

/* Adds W_hh h of the step before; of a GRU, r_n is kept apart. */
static void add_state(const pass *p, int64_t at, int64_t before)
{
    const sizes *n = &p->n;
    const int64_t row = n->steps * n->width, start = p->first * row + at * n->width;
    const bool apart = p->call->attrs->choice == GRU;
    const float *b_hh = sonde__op_has_in(p->call, 4) ? p->call->in[4].data : NULL;
    sonde__kernel_gemm product = {
        .m = p->count,
        .n = apart ? 2 * n->units : n->gates,
        .k = before < 0 ? 0 : n->units,
        .a = {p->h + (p->first * n->steps + (before < 0 ? 0 : before)) * n->units,
              n->steps * n->units, 1},
        .b = {p->turned, n->gates, 1},
        .c = p->gates + start,
        .c_row = row,
        .accumulate = true};

    sonde__kernel_gemm_run(&product, p->scratch);
    if (!apart) {
        return;
    }
    product.n = n->units;
    product.b.data += 2 * n->units;
    product.c += 3 * n->units;
    product.accumulate = false;
    sonde__kernel_gemm_run(&product, p->scratch);
    for (int64_t s = 0; s < p->count && b_hh != NULL; s++) {
        for (int64_t j = 0; j < n->units; j++) {
            product.c[s * row + j] += b_hh[2 * n->units + j];
        }
    }
}

static void finish_lstm(const sonde__kernel_row_functions *f, int64_t units, float *gates,
                        const float *last, float *cell, float *h)
{
    f->sigmoid(gates, gates, 2 * units);
    f->tanh(gates + 2 * units, gates + 2 * units, units);
    f->sigmoid(gates + 3 * units, gates + 3 * units, units);
    for (int64_t j = 0; j < units; j++) {
        cell[j] = gates[units + j] * (last != NULL ? last[j] : 0.0F) +
                  gates[j] * gates[2 * units + j];
    }
    f->tanh(cell, h, units);
    for (int64_t j = 0; j < units; j++) {
        h[j] *= gates[3 * units + j];
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

/* The functions of the gates, and h, of a sample. before < 0: the first step. */
static void finish_step(const pass *p, int64_t at, int64_t before)
{
    const sonde__kernel_row_functions *f = sonde__kernel_rows();
    const int64_t units = p->n.units;
    float *gates = p->gates + at * p->n.width, *h = p->h + at * units;
    const float *last = before < 0 ? NULL : p->h + before * units;

    switch (p->call->attrs->choice) {
    case LSTM:
        finish_lstm(f, units, gates, before < 0 ? NULL : p->cells + before * units,
                    p->cells + at * units, h);
        return;
    case GRU:
        finish_gru(f, units, gates, last, h);
        break;
    case RNN_TANH:
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

static void recurrent_products(const sonde__op_call *call, int part, int parts)
{
    pass p = {.call = call, .n = sizes_of(&call->in[0].shape, call->attrs)};
    const sizes *n = &p.n;
    const float *w_hh = call->in[2].data;

    p.first = n->samples * part / parts;
    p.count = n->samples * (part + 1) / parts - p.first;
    p.scratch = (char *)call->scratch + forward_bytes(n) * (size_t)part;
    p.turned = (float *)(void *)(p.scratch + sonde__kernel_gemm_scratch());
    p.h = call->out[0].data;
    p.gates = call->out[1].data;
    p.cells = call->out[2].data;
    for (int64_t row = 0; row < n->gates; row++) {
        for (int64_t k = 0; k < n->units; k++) {
            p.turned[k * n->gates + row] = w_hh[row * n->units + k];
        }
    }
    fill_gates(&p);
    for (int64_t i = 0; i < n->steps; i++) {
        const int64_t step = step_at(call->attrs, n->steps, i);
        const int64_t before = step_at(call->attrs, n->steps, i - 1);

        add_state(&p, step, before);
        for (int64_t s = p.first; s < p.first + p.count; s++) {
            finish_step(&p, s * n->steps + step, before < 0 ? -1 : s * n->steps + before);
        }
    }
}

static const sonde__op_kernel *const *recurrent_fast(void)
{
    static const sonde__op_kernel gemm = {.name = "gemm",
                                          .accepts = is_f32,
                                          .scratch = recurrent_scratch,
                                          .parts = recurrent_parts,
                                          .run = recurrent_products};
    static const sonde__op_kernel *const kernels[] = {&gemm, NULL};

    return kernels;
}

SONDE__KERNELS_IN_PARTS_OF(recurrent, recurrent_parts, recurrent_fast)

/* --- gradient ------------------------------------------------------------------------- */

/* dy, h, gates, cells, w_hh -> da and dr (N, T, G H), and h of the step before (N, T, H). */
static sonde_err recurrent_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                      sonde_diag *diag)
{
    const sonde__op_shape *dy = &call->in[0].shape;
    sonde__op_shape gates, w;
    sizes n;

    SONDE__TRY(expect_cell(attrs, diag));
    SONDE__TRY(sonde__op_expect_rank(dy, 3, "output gradient", "(N, T, H)", diag));
    n = sizes_of(dy, attrs);
    gates = sequence(dy, n.width);
    w = (sonde__op_shape){.dtype = dy->dtype, .rank = 2, .dim = {n.gates, n.units}};
    if (dy->dim[2] != n.units) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "as many as units",
                           "%lld columns of %lld units", (long long)dy->dim[2],
                           (long long)n.units);
    }
    SONDE__TRY(sonde__op_expect_shape(&call->in[1].shape, dy, "output", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[2].shape, &gates, "gates", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[3].shape, dy, "cells", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[4].shape, &w, "weight_hh", diag));
    call->out[0].shape = call->out[1].shape = sequence(dy, n.gates);
    call->out[2].shape = *dy;
    return sonde__op_expect_size(&call->out[0].shape, "gradient", diag);
}

/* A unit of a step: what it was, and the gradients that reach it. */
typedef struct unit {
    double y[4];       /* gates, and r_n of a GRU */
    double cell, last; /* of an LSTM: c, and c before; of a GRU: last is h before */
    double dh, dc;
} unit;

/* da and dr of each gate. Returns what goes to the step before without W_hh: of an LSTM
 * the gradient of c, of a GRU that of h. */
static double unit_grad(int choice, const unit *u, double da[4], double dr[4])
{
    const double *y = u->y;

    if (choice == LSTM) {
        const double t = tanh(u->cell), dc = u->dc + u->dh * y[3] * (1.0 - t * t);

        da[0] = dc * y[2] * y[0] * (1.0 - y[0]);
        da[1] = dc * u->last * y[1] * (1.0 - y[1]);
        da[2] = dc * y[0] * (1.0 - y[2] * y[2]);
        da[3] = u->dh * t * y[3] * (1.0 - y[3]);
        memcpy(dr, da, 4 * sizeof *dr);
        return dc * y[1];
    }
    if (choice == GRU) {
        const double dn = u->dh * (1.0 - y[1]) * (1.0 - y[2] * y[2]);

        da[0] = dr[0] = dn * y[3] * y[0] * (1.0 - y[0]);
        da[1] = dr[1] = u->dh * (u->last - y[2]) * y[1] * (1.0 - y[1]);
        da[2] = dn;
        dr[2] = dn * y[0];
        return u->dh * y[1];
    }
    da[0] = dr[0] = choice == RNN_TANH ? u->dh * (1.0 - y[0] * y[0])
                    : y[0] <= 0.0      ? 0.0
                                       : u->dh;
    return 0.0;
}

/* What the next step sends back, of each sample and unit: through W_hh, and directly. */
typedef struct carried {
    double *dh, *direct;
} carried;

static size_t carried_bytes(const sizes *n)
{
    return rounded((size_t)(2 * n->samples * n->units) * sizeof(double));
}

/* Unit j of a sample at a step: stores da and dr, and what goes on directly. */
static void grad_unit(const sonde__op_call *call, const sizes *n, const carried *carry,
                      int64_t sample, int64_t step, int64_t before, int64_t j)
{
    const int64_t at = sample * n->steps + step, own = sample * n->units + j;
    const int64_t past = sample * n->steps + before, u = n->units;
    const bool is_lstm = call->attrs->choice == LSTM;
    unit now = {.cell = sonde__op_load(&call->in[3], at * u + j)};
    double da[4] = {0}, dr[4] = {0};

    for (int64_t g = 0; g < n->width / u; g++) {
        now.y[g] = sonde__op_load(&call->in[2], at * n->width + g * u + j);
    }
    if (before >= 0) {
        now.last = sonde__op_load(&call->in[is_lstm ? 3 : 1], past * u + j);
    }
    now.dh = sonde__op_load(&call->in[0], at * u + j) + carry->dh[own] +
             (is_lstm ? 0.0 : carry->direct[own]);
    now.dc = is_lstm ? carry->direct[own] : 0.0;
    carry->direct[own] = unit_grad(call->attrs->choice, &now, da, dr);
    for (int64_t g = 0; g < n->gates / u; g++) {
        sonde__op_store(&call->out[0], at * n->gates + g * u + j, da[g]);
        sonde__op_store(&call->out[1], at * n->gates + g * u + j, dr[g]);
    }
    sonde__op_store(&call->out[2], at * u + j,
                    before >= 0 ? sonde__op_load(&call->in[1], past * u + j) : 0.0);
}

/* dh of the step before, from dr of a step: dr W_hh. */
static void carry_back(const sonde__op_call *call, const sizes *n, const carried *carry,
                       int64_t sample, int64_t step)
{
    const int64_t at = (sample * n->steps + step) * n->gates;

    for (int64_t j = 0; j < n->units; j++) {
        double sum = 0.0;

        for (int64_t k = 0; k < n->gates; k++) {
            sum += sonde__op_load(&call->out[1], at + k) *
                   sonde__op_load(&call->in[4], k * n->units + j);
        }
        carry->dh[sample * n->units + j] = sum;
    }
}

static carried clear_carried(const sonde__op_call *call, const sizes *n, int64_t first,
                             int64_t end)
{
    const carried carry = {call->scratch,
                           (double *)call->scratch + n->samples * n->units};

    for (int64_t i = first * n->units; i < end * n->units; i++) {
        carry.dh[i] = carry.direct[i] = 0.0;
    }
    return carry;
}

static void recurrent_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sizes n = sizes_of(&call->in[0].shape, call->attrs);
    const int64_t first = n.samples * part / parts, end = n.samples * (part + 1) / parts;
    const carried carry = clear_carried(call, &n, first, end);

    for (int64_t s = first; s < end; s++) {
        for (int64_t i = n.steps; i-- > 0;) {
            const int64_t step = step_at(call->attrs, n.steps, i);
            const int64_t before = step_at(call->attrs, n.steps, i - 1);

            for (int64_t j = 0; j < n.units; j++) {
                grad_unit(call, &n, &carry, s, step, before, j);
            }
            carry_back(call, &n, &carry, s, step);
        }
    }
}

static size_t reference_scratch(const sonde__op_call *call, int parts)
{
    const sizes n = sizes_of(&call->in[0].shape, call->attrs);

    (void)parts;
    return carried_bytes(&n);
}

/* --- gradient over the shared product -------------------------------------------------- */

/* A step of a sample in float32: the same equations as unit_grad's, over all units. */
typedef struct grad_step {
    int64_t units;
    const float *y, *cell, *last, *dy; /* last NULL: zeros, before the first step */
    float *dh, *direct;                /* from the next step; direct: to the one before */
    float *da, *dr;
    float *turned; /* (H): tanh(c) */
} grad_step;

static void step_of_lstm(const grad_step *s)
{
    const int64_t u = s->units;

    sonde__kernel_rows()->tanh(s->cell, s->turned, u);
    for (int64_t j = 0; j < u; j++) {
        const float i = s->y[j], f = s->y[u + j], g = s->y[2 * u + j],
                    o = s->y[3 * u + j];
        const float t = s->turned[j], dh = s->dy[j] + s->dh[j];
        const float dc = s->direct[j] + dh * o * (1.0F - t * t);

        s->da[j] = dc * g * i * (1.0F - i);
        s->da[u + j] = dc * (s->last != NULL ? s->last[j] : 0.0F) * f * (1.0F - f);
        s->da[2 * u + j] = dc * i * (1.0F - g * g);
        s->da[3 * u + j] = dh * t * o * (1.0F - o);
        s->direct[j] = dc * f;
    }
    memcpy(s->dr, s->da, (size_t)(4 * u) * sizeof *s->dr);
}

static void step_of_gru(const grad_step *s)
{
    const int64_t u = s->units;

    for (int64_t j = 0; j < u; j++) {
        const float r = s->y[j], z = s->y[u + j], n = s->y[2 * u + j],
                    rn = s->y[3 * u + j];
        const float last = s->last != NULL ? s->last[j] : 0.0F;
        const float dh = s->dy[j] + s->dh[j] + s->direct[j];
        const float dn = dh * (1.0F - z) * (1.0F - n * n);

        s->da[j] = s->dr[j] = dn * rn * r * (1.0F - r);
        s->da[u + j] = s->dr[u + j] = dh * (last - n) * z * (1.0F - z);
        s->da[2 * u + j] = dn;
        s->dr[2 * u + j] = dn * r;
        s->direct[j] = dh * z;
    }
}

static void step_of_rnn(const grad_step *s, bool relu)
{
    for (int64_t j = 0; j < s->units; j++) {
        const float y = s->y[j], dh = s->dy[j] + s->dh[j];

        s->da[j] = s->dr[j] = !relu ? dh * (1.0F - y * y) : y <= 0.0F ? 0.0F : dh;
    }
}

static size_t grad_part_bytes(const sizes *n)
{
    return sonde__kernel_gemm_scratch() +
           rounded((size_t)((2 * n->samples + 1) * n->units) * sizeof(float));
}

static size_t recurrent_grad_scratch(const sonde__op_call *call, int parts)
{
    const sizes n = sizes_of(&call->in[0].shape, call->attrs);

    return grad_part_bytes(&n) * (size_t)parts;
}

/* One sample; state holds dh and what goes back directly, of all samples, and turned. */
static void grad_sample(const sonde__op_call *call, const sizes *n, int64_t sample,
                        int64_t step, int64_t before, float *state)
{
    const int64_t at = sample * n->steps + step, past = sample * n->steps + before;
    const bool is_lstm = call->attrs->choice == LSTM;
    const float *source = call->in[is_lstm ? 3 : 1].data, *h = call->in[1].data;
    float *previous = (float *)call->out[2].data + at * n->units;
    const grad_step s = {.units = n->units,
                         .y = (const float *)call->in[2].data + at * n->width,
                         .cell = (const float *)call->in[3].data + at * n->units,
                         .last = before < 0 ? NULL : source + past * n->units,
                         .dy = (const float *)call->in[0].data + at * n->units,
                         .dh = state + sample * n->units,
                         .direct = state + (n->samples + sample) * n->units,
                         .da = (float *)call->out[0].data + at * n->gates,
                         .dr = (float *)call->out[1].data + at * n->gates,
                         .turned = state + 2 * n->samples * n->units};

    if (is_lstm) {
        step_of_lstm(&s);
    } else if (call->attrs->choice == GRU) {
        step_of_gru(&s);
    } else {
        step_of_rnn(&s, call->attrs->choice == RNN_RELU);
    }
    if (before < 0) {
        memset(previous, 0, (size_t)n->units * sizeof *previous);
    } else {
        memcpy(previous, h + past * n->units, (size_t)n->units * sizeof *previous);
    }
}

static void recurrent_grad_products(const sonde__op_call *call, int part, int parts)
{
    const sizes n = sizes_of(&call->in[0].shape, call->attrs);
    const int64_t first = n.samples * part / parts, end = n.samples * (part + 1) / parts;
    char *scratch = (char *)call->scratch + grad_part_bytes(&n) * (size_t)part;
    float *state = (float *)(void *)(scratch + sonde__kernel_gemm_scratch());

    memset(state, 0, (size_t)(2 * n.samples * n.units) * sizeof *state);
    for (int64_t i = n.steps; i-- > 0;) {
        const int64_t step = step_at(call->attrs, n.steps, i);
        const int64_t before = step_at(call->attrs, n.steps, i - 1);
        const sonde__kernel_gemm product = {
            .m = end - first,
            .n = n.units,
            .k = n.gates,
            .a = {(const float *)call->out[1].data + (first * n.steps + step) * n.gates,
                  n.steps * n.gates, 1},
            .b = {call->in[4].data, n.units, 1},
            .c = state + first * n.units,
            .c_row = n.units};

        for (int64_t s = first; s < end; s++) {
            grad_sample(call, &n, s, step, before, state);
        }
        if (before >= 0) {
            sonde__kernel_gemm_run(&product, scratch);
        }
    }
}

static const sonde__op_kernel *const *recurrent_grad_kernels(void)
{
    static const sonde__op_kernel gemm = {.name = "gemm",
                                          .accepts = is_f32,
                                          .scratch = recurrent_grad_scratch,
                                          .parts = recurrent_parts,
                                          .run = recurrent_grad_products};
    static const sonde__op_kernel reference = {.name = "reference",
                                               .scratch = reference_scratch,
                                               .parts = recurrent_parts,
                                               .run = recurrent_grad_run};
    static const sonde__op_kernel *const kernels[] = {&gemm, &reference, NULL};

    return kernels;
}

/* Emits (N, T, K) as (N T, K). */
static sonde__op_value as_rows(const sonde__op_gradient_context *context,
                               sonde__op_value x)
{
    const sonde__op_attrs attrs = {
        .rank = 2, .dims = {-1, sonde__op_value_shape(context->graph, x)->dim[2]}};

    return sonde__op_emit(context->graph, &sonde__op_reshape, &attrs, &x, 1);
}

static sonde__op_value emit_pair(const sonde__op_gradient_context *context,
                                 const sonde__op_kind *kind, sonde__op_value a,
                                 sonde__op_value b)
{
    const sonde__op_value in[] = {a, b};

    return sonde__op_emit(context->graph, kind, NULL, in, 2);
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
    da = as_rows(context, first);
    dr = as_rows(context, first + 1);
    if (context->wanted[0]) {
        const sonde__op_value dx =
            emit_pair(context, &sonde__op_linear_grad_input, da, context->in[1]);

        context->grad_in[0] =
            sonde__op_emit_shaped(context, &sonde__op_reshape, context->in[0], &dx, 1);
    }
    if (context->wanted[1]) {
        context->grad_in[1] = emit_pair(context, &sonde__op_linear_grad_weight, da,
                                        as_rows(context, context->in[0]));
    }
    if (context->wanted[2]) {
        context->grad_in[2] = emit_pair(context, &sonde__op_linear_grad_weight, dr,
                                        as_rows(context, first + 2));
    }
    for (int i = 3; i < 5; i++) {
        if (context->wanted[i]) {
            context->grad_in[i] = sonde__op_emit(context->graph, &sonde__op_channel_sum,
                                                 NULL, i == 3 ? &da : &dr, 1);
        }
    }
}

const sonde__op_kind sonde__op_recurrent = {
    .name = "Recurrent",
    .in_min = 3,
    .in_max = 5,
    .out_count = 3,
    .out_names = {NULL, "Gates", "Cells"},
    .infer = recurrent_infer,
    .gradient = recurrent_gradient,
    .kernels = recurrent_kernels,
};

const sonde__op_kind sonde__op_recurrent_grad = {
    .name = "RecurrentGrad",
    .in_min = 5,
    .in_max = 5,
    .out_count = 3,
    .out_names = {NULL, "GradState", "Previous"},
    .infer = recurrent_grad_infer,
    .kernels = recurrent_grad_kernels,
};
