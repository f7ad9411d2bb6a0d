/*
 * The fast kernels of the linear layer, updates, element-wise ops and reorders against
 * the scalar references, on every instruction set of this processor, in one to three
 * parts.
 */
#include "kernel_case.h"

#include "nn/ops/fast_linear.h"

#include <float.h>

/* N, K, O: full and partial blocks, tiles and panels, and sums in several chunks. */
static const int64_t shapes[][3] = {
    {1, 1, 1},    {16, 32, 12},  {15, 17, 13},  {17, 31, 5},
    {32, 64, 24}, {33, 33, 25},  {47, 50, 10},  {64, 15, 61},
    {100, 16, 7}, {7, 1100, 26}, {40, 1030, 3}, {2070, 37, 14},
    {16, 100, 1}, {3, 5, 1100},  {150, 49, 30}, {2060, 3, 2},
};
enum { MAX_PARTS = 3 };

/* --- every kernel of a list, on every instruction set
 * ------------------------------------- */

typedef void (*check_fn)(const sonde__kernel *kernel, const void *argument);

static void each_kernel(sonde__fast_op op, check_fn check, const void *argument)
{
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__kernel *const *list = sonde__fast_kernels_of((sonde__isa)isa, op);

        assert_non_null(list[0]);
        for (; *list != NULL; list++) {
            check(*list, argument);
        }
    }
}

/* An op with in[0] and in[1] row-major and one output, against its reference. */
typedef struct op_case {
    const sonde__op_kind *kind;
    kernel_case base;
    int out;          /* the output that is compared */
    size_t count;     /* of its elements */
    double tolerance; /* absolute */
} op_case;

static void check_op(const sonde__kernel *kernel, const void *argument)
{
    const op_case *op = argument;
    float *expected = case_random(op->count, 1), *got[MAX_PARTS + 1] = {NULL};
    kernel_case c = op->base;

    c.out[op->out] = expected;
    case_run(&c, case_reference(op->kind), 1);
    for (int parts = 1; parts <= MAX_PARTS; parts++) {
        got[parts] = case_random(op->count, 2);
        c.out[op->out] = got[parts];
        case_run(&c, kernel, parts);
        assert_close(got[parts], expected, op->count, op->tolerance);
        assert_same_bits(got[parts], got[1], op->count);
    }
    for (int parts = 1; parts <= MAX_PARTS; parts++) {
        free(got[parts]);
    }
    free(expected);
}

/* Products of numbers below 1, `depth` of them: each rounding is at most half an epsilon
 * of a partial sum, of the order of sqrt(depth). */
static double sum_tolerance(int64_t depth)
{
    return (double)FLT_EPSILON * (double)(depth + 8);
}

/* --- matrices
 * -------------------------------------------------------------------------------- */

typedef struct matrices {
    int64_t n, k, o;
    float *x, *w, *b, *dy;
} matrices;

static matrices matrices_of(const int64_t shape[3])
{
    const int64_t n = shape[0], k = shape[1], o = shape[2];
    const matrices m = {n,
                        k,
                        o,
                        case_random((size_t)(n * k), 11),
                        case_random((size_t)(o * k), 12),
                        case_random((size_t)o, 13),
                        case_random((size_t)(n * o), 14)};

    return m;
}

static void matrices_free(matrices m)
{
    free(m.x), free(m.w), free(m.b), free(m.dy);
}

/* NaN and infinities somewhere in all of them. */
static void spoil(const matrices *m)
{
    m->x[m->n * m->k / 2] = NAN;
    m->x[m->n * m->k - 1] = INFINITY;
    m->w[m->o * m->k / 3] = INFINITY;
    m->w[m->o * m->k - 1] = -INFINITY;
    m->dy[m->n * m->o / 2] = NAN;
    m->dy[0] = -INFINITY;
}

static void check_forward(const matrices *m, const float *bias)
{
    op_case op = {.kind = &sonde__op_linear,
                  .count = (size_t)(m->n * m->o),
                  .tolerance = sum_tolerance(m->k)};

    case_init(&op.base, NULL, NULL);
    case_in(&op.base, m->x, 2, m->n, m->k);
    case_in(&op.base, m->w, 2, m->o, m->k);
    case_in(&op.base, bias, 1, m->o, 0);
    case_out(&op.base, NULL, 2, m->n, m->o);
    each_kernel(SONDE__FAST_LINEAR, check_op, &op);
    op.kind = &sonde__op_linear_relu;
    op.out = 1;
    case_out(&op.base, NULL, 2, m->n, m->o);
    each_kernel(SONDE__FAST_LINEAR_RELU, check_op, &op);
}

static void check_gradients(const matrices *m)
{
    op_case op = {.kind = &sonde__op_linear_grad_input,
                  .count = (size_t)(m->n * m->k),
                  .tolerance = sum_tolerance(m->o)};

    case_init(&op.base, NULL, NULL);
    case_in(&op.base, m->dy, 2, m->n, m->o);
    case_in(&op.base, m->w, 2, m->o, m->k);
    case_out(&op.base, NULL, 2, m->n, m->k);
    each_kernel(SONDE__FAST_LINEAR_GRAD_INPUT, check_op, &op);

    op.kind = &sonde__op_linear_grad_weight;
    op.count = (size_t)(m->o * m->k);
    op.tolerance = sum_tolerance(m->n);
    case_init(&op.base, NULL, NULL);
    case_in(&op.base, m->dy, 2, m->n, m->o);
    case_in(&op.base, m->x, 2, m->n, m->k);
    case_out(&op.base, NULL, 2, m->o, m->k);
    each_kernel(SONDE__FAST_LINEAR_GRAD_WEIGHT, check_op, &op);

    op.kind = &sonde__op_channel_sum;
    op.count = (size_t)m->o;
    case_init(&op.base, NULL, NULL);
    case_in(&op.base, m->dy, 2, m->n, m->o);
    case_out(&op.base, NULL, 1, m->o, 0);
    each_kernel(SONDE__FAST_LINEAR_CHANNEL_SUM, check_op, &op);
}

static void test_products(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(shapes); i++) {
        const matrices m = matrices_of(shapes[i]);

        check_forward(&m, i % 2 == 0 ? m.b : NULL);
        check_gradients(&m);
        matrices_free(m);
    }
}

static void test_nan_and_infinity_propagate(void **state)
{
    static const int64_t few[][3] = {{33, 50, 26}, {5, 1030, 14}, {2070, 9, 3}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(few); i++) {
        const matrices m = matrices_of(few[i]);

        spoil(&m);
        check_forward(&m, m.b);
        check_gradients(&m);
        matrices_free(m);
    }
}

/* --- fused: the bits of the members
 * ------------------------------------------------------- */

/* linear_relu gives the bits of linear and relu, whether or not the former is kept. */
static void test_linear_relu_is_its_members(void **state)
{
    (void)state;
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const matrices m = matrices_of((const int64_t[]){37, 1090, 23});
        const size_t count = (size_t)(m.n * m.o);
        float *y = case_random(count, 1), *pre = case_random(count, 2);
        float *fused = case_random(count, 3), *alone = case_random(count, 4);
        kernel_case c;

        case_init(&c, NULL, NULL);
        case_in(&c, m.x, 2, m.n, m.k);
        case_in(&c, m.w, 2, m.o, m.k);
        case_in(&c, m.b, 1, m.o, 0);
        case_out(&c, y, 2, m.n, m.o);
        case_run(&c, sonde__fast_kernels_of((sonde__isa)isa, SONDE__FAST_LINEAR)[0], 1);
        c.out[0] = pre;
        case_out(&c, fused, 2, m.n, m.o);
        case_run(&c, sonde__fast_kernels_of((sonde__isa)isa, SONDE__FAST_LINEAR_RELU)[0],
                 1);
        c.out[0] = NULL;
        c.out[1] = alone;
        case_run(&c, sonde__fast_kernels_of((sonde__isa)isa, SONDE__FAST_LINEAR_RELU)[1],
                 2);
        assert_same_bits(pre, y, count);
        for (size_t i = 0; i < count; i++) {
            y[i] = y[i] < 0.0F ? 0.0F : y[i];
        }
        assert_same_bits(fused, y, count);
        assert_same_bits(alone, y, count);
        free(y), free(pre), free(fused), free(alone);
        matrices_free(m);
    }
}

/* live of SGD: lr, momentum, dampening, decay, nesterov, scale, first. */
static const float sgd_rules[][7] = {
    {0.1F, 0.9F, 0.0F, 0.0F, 0.0F, 1.0F, 0.0F},
    {0.1F, 0.9F, 0.0F, 0.0F, 0.0F, 1.0F, 1.0F},
    {0.1F, 0.0F, 0.0F, 0.0F, 0.0F, 0.5F, 0.0F},
    {0.1F, 0.9F, 0.3F, 0.01F, 0.0F, 1.0F, 0.0F},
    {0.1F, 0.9F, 0.0F, 0.01F, 1.0F, 0.25F, 0.0F},
};

/* What an update of one array wants and gives; v NULL: no momentum. */
typedef struct update {
    float *w, *v;
    sonde_vitals w_vitals, g_vitals, v_vitals;
} update;

static sonde_vitals vitals_of(float *data, size_t count)
{
    const int64_t shape[] = {(int64_t)count};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, data);
    sonde_vitals vitals;

    sonde_vitals_of(&view, &vitals);
    return vitals;
}

static void assert_same_vitals(const sonde_vitals *got, float *data, size_t count)
{
    const sonde_vitals expected = vitals_of(data, count);

    assert_memory_equal(got, &expected, sizeof expected);
}

static float *copy_of(const float *data, size_t count)
{
    float *copy = malloc((count + 1) * sizeof *copy);

    assert_non_null(copy);
    memcpy(copy, data, count * sizeof *copy);
    return copy;
}

typedef struct sgd_fused_case {
    const matrices *m;
    const float *live;
    sonde__isa isa;
} sgd_fused_case;

static void check_sgd_fused(const sonde__kernel *fused, const sgd_fused_case *f,
                            int parts, bool keep_dw, bool vitals)
{
    const matrices *m = f->m;
    const size_t count = (size_t)(m->o * m->k);
    float *dw = case_random(count, 1), *v0 = case_random(count, 2);
    float *w = copy_of(m->w, count), *v = copy_of(v0, count);
    float *fused_dw = case_random(count, 3), *fused_w = case_random(count, 4);
    float *fused_v = case_random(count, 5);
    sonde_vitals signs[3];
    kernel_case c;

    case_init(&c, NULL, NULL);
    case_in(&c, m->dy, 2, m->n, m->o);
    case_in(&c, m->x, 2, m->n, m->k);
    case_out(&c, dw, 2, m->o, m->k);
    case_run(&c, sonde__fast_kernels_of(f->isa, SONDE__FAST_LINEAR_GRAD_WEIGHT)[0], 1);
    case_init(&c, NULL, f->live);
    case_in(&c, m->w, 2, m->o, m->k);
    case_in(&c, dw, 2, m->o, m->k);
    case_in(&c, v0, 2, m->o, m->k);
    case_out(&c, w, 2, m->o, m->k);
    case_alias(&c, 0);
    case_out(&c, v, 2, m->o, m->k);
    case_alias(&c, 2);
    case_run(&c, sonde__fast_kernels_of(f->isa, SONDE__FAST_SGD)[0], 1);

    case_init(&c, NULL, f->live);
    case_in(&c, m->w, 2, m->o, m->k);
    case_in(&c, m->dy, 2, m->n, m->o);
    case_in(&c, m->x, 2, m->n, m->k);
    case_in(&c, v0, 2, m->o, m->k);
    case_out(&c, fused_w, 2, m->o, m->k);
    case_alias(&c, 0);
    case_out(&c, keep_dw ? fused_dw : NULL, 2, m->o, m->k);
    case_out(&c, fused_v, 2, m->o, m->k);
    case_alias(&c, 3);
    for (int i = 0; i < 3; i++) {
        c.call.out_vitals[i] = vitals ? &signs[i] : NULL;
    }
    case_run(&c, fused, parts);
    assert_same_bits(fused_w, w, count);
    assert_same_bits(fused_v, v, count);
    if (keep_dw) {
        assert_same_bits(fused_dw, dw, count);
    }
    if (vitals) {
        assert_same_vitals(&signs[0], w, count);
        assert_same_vitals(&signs[1], dw, count);
        assert_same_vitals(&signs[2], v, count);
    }
    free(dw), free(v0), free(w), free(v), free(fused_dw), free(fused_w), free(fused_v);
}

static void test_grad_weight_sgd_is_its_members(void **state)
{
    static const int64_t some[][3] = {
        {32, 784, 60}, {16, 100, 10}, {50, 33, 47}, {2060, 70, 75}, {3, 1, 1}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(some); i++) {
        const matrices m = matrices_of(some[i]);

        for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
            const sonde__kernel *const *fused = sonde__fast_kernels_of(
                (sonde__isa)isa, SONDE__FAST_LINEAR_GRAD_WEIGHT_SGD);

            for (int k = 0; fused[k] != NULL; k++) {
                const sgd_fused_case f = {&m, sgd_rules[(i + (size_t)k) % 5],
                                          (sonde__isa)isa};

                check_sgd_fused(fused[k], &f, 1, k == 0, true);
                check_sgd_fused(fused[k], &f, 1, k != 0, true);
                check_sgd_fused(fused[k], &f, 3, k == 1, false);
            }
        }
        matrices_free(m);
    }
}

/* --- updates
 * ------------------------------------------------------------------------------- */

enum { MOST = 4096 + 37, STATES = 3 };

typedef struct update_case {
    const sonde__op_kind *kind;
    const float *live;
    size_t count;
    float *in[1 + STATES]; /* w, g, then states */
    int states;
} update_case;

/* in: w, g, states; out: w, states; and one number in place behind them for Adam. */
static void run_update(const update_case *u, const sonde__kernel *kernel, int parts,
                       float *const out[], sonde_vitals *vitals)
{
    const int64_t count = (int64_t)u->count;
    static const float step = 4.0F;
    float stepped = 0.0F;
    kernel_case c;

    case_init(&c, NULL, u->live);
    for (int i = 0; i < 2 + u->states; i++) {
        case_in(&c, u->in[i], 1, count, 0);
    }
    case_out(&c, out[0], 1, count, 0);
    case_alias(&c, 0);
    for (int i = 1; i <= u->states; i++) {
        case_out(&c, out[i], 1, count, 0);
        case_alias(&c, 1 + i);
    }
    if (u->kind == &sonde__op_adam) {
        case_in(&c, &step, 0, 0, 0);
        case_out(&c, &stepped, 0, 0, 0);
        case_alias(&c, 4);
    }
    for (int i = 0; vitals != NULL && i <= u->states; i++) {
        c.call.out_vitals[i] = &vitals[i];
        c.call.in_vitals[1] = &vitals[STATES];
    }
    case_run(&c, kernel, parts);
    assert_true(u->kind != &sonde__op_adam || stepped == step + 1.0F);
}

static void check_update(const sonde__kernel *kernel, const void *argument)
{
    const update_case *u = argument;
    float *expected[STATES], *got[STATES], *again[STATES];
    sonde_vitals vitals[STATES + 1];
    const int most = kernel->parts == NULL ? 1 : MAX_PARTS;

    for (int i = 0; i < STATES; i++) {
        expected[i] = case_random(u->count, 1);
        got[i] = case_random(u->count, 2);
        again[i] = case_random(u->count, 3);
    }
    run_update(u, case_reference(u->kind), 1, expected, NULL);
    run_update(u, kernel, 1, got, vitals);
    for (int i = 0; i <= u->states; i++) {
        assert_close(got[i], expected[i], u->count, 4e-6);
        assert_same_vitals(&vitals[i], got[i], u->count);
    }
    assert_same_vitals(&vitals[STATES], u->in[1], u->count);
    for (int parts = 1; parts <= most; parts++) {
        run_update(u, kernel, parts, again, NULL);
        for (int i = 0; i <= u->states; i++) {
            assert_same_bits(again[i], got[i], u->count);
        }
    }
    for (int i = 0; i < STATES; i++) {
        free(expected[i]), free(got[i]), free(again[i]);
    }
}

static void each_update(sonde__fast_op op, const sonde__op_kind *kind, const float *live,
                        int states)
{
    static const size_t counts[] = {1, 15, 16, 130, 4096, MOST};

    for (size_t c = 0; c < SONDE_COUNT_OF(counts); c++) {
        update_case u = {kind, live, counts[c], {NULL}, states};

        for (int i = 0; i < 2 + states; i++) {
            u.in[i] = case_random(counts[c], 20 + (uint64_t)i);
            for (size_t k = 0; i == 3 && k < counts[c]; k++) {
                u.in[i][k] = fabsf(u.in[i][k]); /* a second moment */
            }
        }
        if (counts[c] == MOST) {
            u.in[1][4000] = NAN;
            u.in[1][4100] = INFINITY;
        }
        each_kernel(op, check_update, &u);
        for (int i = 0; i < 2 + states; i++) {
            free(u.in[i]);
        }
    }
}

static void test_sgd(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(sgd_rules); i++) {
        each_update(SONDE__FAST_SGD, &sonde__op_sgd, sgd_rules[i], 1);
    }
    each_update(SONDE__FAST_SGD, &sonde__op_sgd, sgd_rules[0], 0);
}

static void test_adam(void **state)
{
    static const float rules[][7] = {
        {0.01F, 0.9F, 0.999F, 1e-3F, 0.0F, 0.0F, 1.0F},
        {0.01F, 0.9F, 0.99F, 1e-3F, 0.1F, 0.0F, 0.5F},
        {0.01F, 0.25F, 0.999F, 1e-3F, 0.1F, 1.0F, 1.0F},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(rules); i++) {
        each_update(SONDE__FAST_ADAM, &sonde__op_adam, rules[i], 2);
    }
}

/* --- element-wise
 * ---------------------------------------------------------------------------- */

static void test_elementwise(void **state)
{
    static const struct {
        sonde__fast_op fast;
        const sonde__op_kind *kind;
        int inputs;
    } ops[] = {{SONDE__FAST_RELU, &sonde__op_relu, 1},
               {SONDE__FAST_RELU_GRAD, &sonde__op_relu_grad, 2},
               {SONDE__FAST_ADD, &sonde__op_add, 2},
               {SONDE__FAST_SCALE, &sonde__op_scale, 1},
               {SONDE__FAST_ACCUMULATE, &sonde__op_accumulate, 2}};
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {16, 16}, {129, 7}};
    const sonde__attrs attrs = {.scale = 0.3F};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(ops); i++) {
        for (size_t s = 0; s < SONDE_COUNT_OF(sizes); s++) {
            const int64_t n = sizes[s][0], k = sizes[s][1];
            const size_t count = (size_t)(n * k);
            float *a = case_random(count, 1), *b = case_random(count, 2);
            op_case op = {.kind = ops[i].kind, .count = count, .tolerance = 1.2e-7};

            a[count / 2] = NAN;
            b[count / 3] = -0.0F;
            b[count - 1] = NAN;
            a[0] = count > 10 ? -INFINITY : a[0];
            case_init(&op.base, &attrs, NULL);
            case_in(&op.base, a, 2, n, k);
            if (ops[i].inputs == 2) {
                case_in(&op.base, b, 2, n, k);
            }
            case_out(&op.base, NULL, 2, n, k);
            each_kernel(ops[i].fast, check_op, &op);
            free(a), free(b);
        }
    }
}

static void test_add_declines_broadcasts(void **state)
{
    const sonde__kernel *add = sonde__add_fast()[0];
    kernel_case c;

    (void)state;
    case_init(&c, NULL, NULL);
    case_in(&c, NULL, 2, 5, 4);
    case_in(&c, NULL, 1, 4, 0);
    assert_false(add->accepts(&c.call));
    c.call.in[1].shape = case_shape(2, 5, 1);
    assert_false(add->accepts(&c.call));
    c.call.in[1].shape = case_shape(2, 5, 4);
    assert_true(add->accepts(&c.call));
    c.call.in[0].shape.dtype = SONDE_F64;
    assert_false(add->accepts(&c.call));
}

/* --- reorder
 * --------------------------------------------------------------------------------- */

/* From and to are set in the row, as the reorder's own row names no layouts. */
static void check_reorder(const sonde__kernel *kernel, const void *argument)
{
    const op_case *op = argument;

    for (int pair = 0; pair < 9; pair++) {
        const sonde__layout layouts[] = {SONDE__PLAIN, SONDE__LANES, SONDE__PANELS};
        float *got = case_random(op->count, 5);
        sonde__kernel row = *kernel;
        kernel_case c = op->base;
        sonde__call raw = c.call;
        guarded in, out;
        int64_t count = 0;

        row.in[0] = layouts[pair / 3];
        row.out[0] = layouts[pair % 3];
        for (int parts = 1; parts <= MAX_PARTS; parts++) {
            c.out[0] = got;
            case_run(&c, &row, parts);
            assert_same_bits(got, c.in[0], op->count);
        }
        raw.in[0].layout = row.in[0]; /* and the padding: nothing but zeros */
        raw.out[0].layout = row.out[0];
        in = case_place(&raw.in[0]);
        out = case_place(&raw.out[0]);
        case_move(&raw.in[0], c.in[0], NULL);
        kernel->run(&raw, 0, 1);
        memset(got, 0, op->count * sizeof *got);
        case_move(&raw.out[0], got, NULL);
        count = sonde__layout_count(&raw.out[0].shape, row.out[0]);
        for (int64_t i = 0; i < count; i++) {
            assert_true(((const float *)raw.out[0].data)[i] == 0.0F);
        }
        guarded_free(in);
        guarded_free(out);
        free(got);
    }
}

static void test_reorder(void **state)
{
    static const int64_t sizes[][2] = {{1, 1},  {16, 32},  {15, 33}, {17, 16},
                                       {33, 5}, {40, 100}, {64, 64}, {100, 47}};

    (void)state;
    for (size_t s = 0; s < SONDE_COUNT_OF(sizes); s++) {
        const int64_t n = sizes[s][0], k = sizes[s][1];
        float *x = case_random((size_t)(n * k), 1);
        op_case op = {.count = (size_t)(n * k)};

        case_init(&op.base, NULL, NULL);
        case_in(&op.base, x, 2, n, k);
        case_out(&op.base, NULL, 2, n, k);
        each_kernel(SONDE__FAST_REORDER, check_reorder, &op);
        free(x);
    }
}

/* --- how many parts
 * -------------------------------------------------------------------------- */

static void test_parts(void **state)
{
    const sonde__kernel *linear = sonde__linear_fast()[0];
    kernel_case c;

    (void)state;
    case_init(&c, NULL, NULL);
    case_in(&c, NULL, 2, 32, 128);
    case_in(&c, NULL, 2, 10, 128);
    assert_int_equal(linear->parts(&c.call, 8), 1); /* 82 kFLOP */
    c.call.in[0].shape = case_shape(2, 32, 784);
    c.call.in[1].shape = case_shape(2, 256, 784);
    assert_int_equal(linear->parts(&c.call, 2), 2); /* 13 MFLOP */
    assert_int_equal(linear->parts(&c.call, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_nan_and_infinity_propagate),
        cmocka_unit_test(test_linear_relu_is_its_members),
        cmocka_unit_test(test_grad_weight_sgd_is_its_members),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_add_declines_broadcasts),
        cmocka_unit_test(test_reorder),
        cmocka_unit_test(test_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
