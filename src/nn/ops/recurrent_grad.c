/*
 * recurrent_grad.c - the gradient of recurrent.c, whose head has the equations.
 *
 * With half, dr and the weights are rounded where they are multiplied; da and dr are of
 * that dtype, unless wide; sums over the steps are float32. Outside a GRU dr is da. It
 * may be left out.
 */
#include "nn/kernels/gemm.h"
#include "nn/kernels/rows.h"
#include "nn/ops/recurrent.h"

#include <math.h>
#include <string.h>

/* --- shapes --------------------------------------------------------------------------- */

/* dy, h, gates, cells, w_hh -> da and dr (N, T, G H), and h of the step before (N, T, H). */
static sonde_err recurrent_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                      sonde_diag *diag)
{
    const sonde__op_shape *dy = &call->in[0].shape;
    const sonde_dtype numbers = attrs->half != 0 ? SONDE_F32 : dy->dtype;
    sonde__op_shape gates, cells, w;
    sonde_dtype dtype = dy->dtype;
    sonde__op_recurrent_sizes n;

    SONDE__TRY(sonde__op_recurrent_expect_cell(attrs, diag));
    SONDE__TRY(sonde__op_expect_rank(dy, 3, "output gradient", "(N, T, H)", diag));
    SONDE__TRY(sonde__op_expect_product(attrs, dy, dy, "output gradient", &dtype, diag));
    n = sonde__op_recurrent_sizes_of(dy, attrs);
    gates = sonde__op_recurrent_sequence(dy, n.width);
    cells = *dy;
    gates.dtype = cells.dtype = numbers;
    w = (sonde__op_shape){.dtype = numbers, .rank = 2, .dim = {n.gates, n.units}};
    if (dy->dim[2] != n.units) {
        return sonde__fail(diag, SONDE_ESHAPE, NULL, "as many as units",
                           "%lld columns of %lld units", (long long)dy->dim[2],
                           (long long)n.units);
    }
    SONDE__TRY(sonde__op_expect_shape(&call->in[1].shape, dy, "output", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[2].shape, &gates, "gates", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[3].shape, &cells, "cells", diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[4].shape, &w, "weight_hh", diag));
    call->out[0].shape = call->out[1].shape = sonde__op_recurrent_sequence(dy, n.gates);
    call->out[0].shape.dtype = call->out[1].shape.dtype = dtype;
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

    if (choice == SONDE__LSTM) {
        const double t = tanh(u->cell), dc = u->dc + u->dh * y[3] * (1.0 - t * t);

        da[0] = dc * y[2] * y[0] * (1.0 - y[0]);
        da[1] = dc * u->last * y[1] * (1.0 - y[1]);
        da[2] = dc * y[0] * (1.0 - y[2] * y[2]);
        da[3] = u->dh * t * y[3] * (1.0 - y[3]);
        memcpy(dr, da, 4 * sizeof *dr);
        return dc * y[1];
    }
    if (choice == SONDE__GRU) {
        const double dn = u->dh * (1.0 - y[1]) * (1.0 - y[2] * y[2]);

        da[0] = dr[0] = dn * y[3] * y[0] * (1.0 - y[0]);
        da[1] = dr[1] = u->dh * (u->last - y[2]) * y[1] * (1.0 - y[1]);
        da[2] = dn;
        dr[2] = dn * y[0];
        return u->dh * y[1];
    }
    da[0] = dr[0] = choice == SONDE__RNN_TANH ? u->dh * (1.0 - y[0] * y[0])
                    : y[0] <= 0.0             ? 0.0
                                              : u->dh;
    return 0.0;
}

/* What the next step sends back, of each sample and unit: through W_hh, and directly. */
typedef struct carried {
    double *dh, *direct;
} carried;

static size_t carried_bytes(const sonde__op_recurrent_sizes *n)
{
    return sonde__op_recurrent_rounded((size_t)(2 * n->samples * n->units) *
                                       sizeof(double));
}

/* Where dr of a sample and a step lies: number sample * row + step * step of `operand`. */
typedef struct state_grads {
    sonde__operand operand;
    int64_t row, step;
} state_grads;

/* room: for dr of one step of all samples. */
static state_grads state_grads_of(const sonde__op_call *call,
                                  const sonde__op_recurrent_sizes *n, void *room)
{
    const bool given = call->out[1].data != NULL;

    if (given || call->attrs->recurrent.cell != SONDE__GRU) {
        return (state_grads){call->out[given ? 1 : 0], n->steps * n->gates, n->gates};
    }
    return (state_grads){{.shape = call->out[1].shape, .data = room}, n->gates, 0};
}

static size_t room_bytes(const sonde__op_call *call, const sonde__op_recurrent_sizes *n)
{
    return call->attrs->recurrent.cell == SONDE__GRU
               ? sonde__op_recurrent_rounded((size_t)(n->samples * n->gates) *
                                             sizeof(double))
               : 0;
}

/* Unit j of a sample at a step: stores da and dr, and what goes on directly. */
static void grad_unit(const sonde__op_call *call, const sonde__op_recurrent_sizes *n,
                      const carried *carry, const state_grads *states, int64_t sample,
                      int64_t step, int64_t before, int64_t j)
{
    const int64_t at = sample * n->steps + step, own = sample * n->units + j;
    const int64_t past = sample * n->steps + before, u = n->units;
    const bool is_lstm = call->attrs->recurrent.cell == SONDE__LSTM;
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
    carry->direct[own] = unit_grad(call->attrs->recurrent.cell, &now, da, dr);
    for (int64_t g = 0; g < n->gates / u; g++) {
        sonde__op_store(&call->out[0], at * n->gates + g * u + j, da[g]);
        sonde__op_store(&states->operand,
                        sample * states->row + step * states->step + g * u + j, dr[g]);
    }
    sonde__op_store(&call->out[2], at * u + j,
                    before >= 0 ? sonde__op_load(&call->in[1], past * u + j) : 0.0);
}

/* dh of the step before, from dr of a step: dr W_hh. */
static void carry_back(const sonde__op_call *call, const sonde__op_recurrent_sizes *n,
                       const carried *carry, const state_grads *states, int64_t sample,
                       int64_t step)
{
    const int64_t at = sample * states->row + step * states->step;

    for (int64_t j = 0; j < n->units; j++) {
        double sum = 0.0;

        for (int64_t k = 0; k < n->gates; k++) {
            sum += sonde__op_rounded(call, sonde__op_load(&states->operand, at + k)) *
                   sonde__op_load_rounded(call, 4, k * n->units + j);
        }
        carry->dh[sample * n->units + j] = sum;
    }
}

static carried clear_carried(const sonde__op_call *call,
                             const sonde__op_recurrent_sizes *n, int64_t first,
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
    const sonde__op_recurrent_sizes n =
        sonde__op_recurrent_sizes_of(&call->in[0].shape, call->attrs);
    const int64_t first = n.samples * part / parts, end = n.samples * (part + 1) / parts;
    const carried carry = clear_carried(call, &n, first, end);
    const state_grads states =
        state_grads_of(call, &n, (char *)call->scratch + carried_bytes(&n));

    for (int64_t s = first; s < end; s++) {
        for (int64_t i = n.steps; i-- > 0;) {
            const int64_t step = sonde__op_recurrent_step(call->attrs, n.steps, i);
            const int64_t before = sonde__op_recurrent_step(call->attrs, n.steps, i - 1);

            for (int64_t j = 0; j < n.units; j++) {
                grad_unit(call, &n, &carry, &states, s, step, before, j);
            }
            carry_back(call, &n, &carry, &states, s, step);
        }
    }
}

static size_t reference_scratch(const sonde__op_call *call, int parts)
{
    const sonde__op_recurrent_sizes n =
        sonde__op_recurrent_sizes_of(&call->in[0].shape, call->attrs);

    (void)parts;
    return carried_bytes(&n) + room_bytes(call, &n);
}

/* --- gradient over the shared product -------------------------------------------------- */

/* A step of a sample in float32: the same equations as unit_grad's, over all units. */
typedef struct grad_step {
    int64_t units;
    const float *y, *cell, *last, *dy; /* last NULL: zeros, before the first step */
    float *dh, *direct;                /* from the next step; direct: to the one before */
    float *da, *dr;
} grad_step;

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

/* What a part uses: dh and what goes back directly, of all samples; rows that are of 16 bits
 * as float32; W_hh packed; and what the product uses. */
typedef struct memory {
    float *state, *rooms; /* rooms: dy, last, da, dr */
    char *packed, *product;
    state_grads states;
} memory;

static size_t lay_out(const sonde__op_call *call, const sonde__op_recurrent_sizes *n,
                      memory *into, char *start)
{
    const size_t state =
        sonde__op_recurrent_rounded((size_t)(2 * n->samples * n->units) * sizeof(float));
    const size_t rooms = sonde__op_recurrent_rounded(
        (size_t)(2 * n->units + 2 * n->gates) * sizeof(float));
    const size_t packed = sonde__kernel_half_gemm_packed(n->gates, n->units);

    if (into != NULL) {
        into->state = (float *)(void *)start;
        into->rooms = (float *)(void *)(start + state);
        into->packed = start + state + rooms;
        into->states = state_grads_of(call, n, into->packed + packed);
        into->product = into->packed + packed + room_bytes(call, n);
    }
    return state + rooms + packed + room_bytes(call, n) +
           sonde__op_recurrent_scratch(call->attrs, n->samples, n->gates);
}

static size_t recurrent_grad_scratch(const sonde__op_call *call, int parts)
{
    const sonde__op_recurrent_sizes n =
        sonde__op_recurrent_sizes_of(&call->in[0].shape, call->attrs);

    return lay_out(call, &n, NULL, NULL) * (size_t)parts;
}

/* One sample. */
static void grad_sample(const sonde__op_call *call, const sonde__op_recurrent_sizes *n,
                        int64_t sample, int64_t step, int64_t before, const memory *m)
{
    const int64_t at = sample * n->steps + step, past = sample * n->steps + before;
    const int64_t u = n->units;
    const bool is_lstm = call->attrs->recurrent.cell == SONDE__LSTM;
    const sonde__operand *const source = &call->in[is_lstm ? 3 : 1];
    const sonde__operand *const states = &m->states.operand;
    const int64_t place = sample * m->states.row + step * m->states.step;
    void *const previous = sonde__op_recurrent_place(&call->out[2], at * u);
    const size_t size = (size_t)u * sonde_dtype_size(call->out[2].shape.dtype);
    const grad_step s = {
        .units = u,
        .y = (const float *)call->in[2].data + at * n->width,
        .cell = (const float *)call->in[3].data + at * u,
        .last = before < 0
                    ? NULL
                    : sonde__op_recurrent_floats(source, past * u, u, m->rooms + u),
        .dy = sonde__op_recurrent_floats(&call->in[0], at * u, u, m->rooms),
        .dh = m->state + sample * u,
        .direct = m->state + (n->samples + sample) * u,
        .da = sonde__op_recurrent_room(&call->out[0], at * n->gates, m->rooms + 2 * u),
        .dr = sonde__op_recurrent_room(states, place, m->rooms + 2 * u + n->gates)};

    if (is_lstm) {
        sonde__kernel_rows()->lstm_grad(&(sonde__kernel_lstm_step){s.y, s.cell, s.last,
                                                                   s.dy, s.dh, s.direct,
                                                                   s.da, s.dr},
                                        n->units);
    } else if (call->attrs->recurrent.cell == SONDE__GRU) {
        step_of_gru(&s);
    } else {
        step_of_rnn(&s, call->attrs->recurrent.cell == SONDE__RNN_RELU);
    }
    sonde__op_recurrent_keep(&call->out[0], at * n->gates, n->gates, s.da);
    sonde__op_recurrent_keep(states, place, n->gates, s.dr);
    if (before < 0) {
        memset(previous, 0, size);
    } else {
        memcpy(previous, sonde__op_recurrent_place(&call->in[1], past * u), size);
    }
}

static void recurrent_grad_products(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_recurrent_sizes n =
        sonde__op_recurrent_sizes_of(&call->in[0].shape, call->attrs);
    const int64_t first = n.samples * part / parts, end = n.samples * (part + 1) / parts;
    sonde__kernel_half_gemm product = {
        .dtype = call->attrs->half,
        .n = n.units,
        .k = n.gates,
        .b = sonde__op_recurrent_matrix(&call->in[4], 0, n.units, 1),
        .c_dtype = SONDE_F32,
        .c_row = n.units,
        .packs = true};
    memory m;

    (void)lay_out(call, &n, &m,
                  (char *)call->scratch + lay_out(call, &n, NULL, NULL) * (size_t)part);
    product.packed = m.packed;
    sonde__kernel_half_gemm_run(&product, m.product);
    product.packs = false;
    product.m = end - first;
    product.c = m.state + first * n.units;
    memset(m.state, 0, (size_t)(2 * n.samples * n.units) * sizeof *m.state);
    for (int64_t i = n.steps; i-- > 0;) {
        const int64_t step = sonde__op_recurrent_step(call->attrs, n.steps, i);
        const int64_t before = sonde__op_recurrent_step(call->attrs, n.steps, i - 1);

        for (int64_t s = first; s < end; s++) {
            grad_sample(call, &n, s, step, before, &m);
        }
        product.a = sonde__op_recurrent_matrix(
            &m.states.operand, first * m.states.row + step * m.states.step, m.states.row,
            1);
        if (before >= 0) {
            sonde__kernel_half_gemm_run(&product, m.product);
        }
    }
}

#define PRODUCTS(name)                                                                   \
    SONDE__KERNEL(name, recurrent_grad_products, .accepts = sonde__op_recurrent_is_f32,  \
                  .scratch = recurrent_grad_scratch, .parts = sonde__op_recurrent_parts)

SONDE__OP(recurrent_grad, "RecurrentGrad", recurrent, 5, 5, 3,
          .out_names = {NULL, "GradState", "Previous"}, .infer = recurrent_grad_infer,
          SONDE__REFERENCE(recurrent_grad_run, .scratch = reference_scratch,
                           .parts = sonde__op_recurrent_parts),
          .own = PRODUCTS("gemm"), .halves = SONDE__HALVES_MADE,
          .half_kernels = PRODUCTS("half"), .optional_out = 1u << 1);
