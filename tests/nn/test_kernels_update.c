/*
 * The fast kernels of updates, element-wise ops and reorders against the scalar
 * references, on every instruction set of this processor, in one to three parts.
 */
#include "kernel_case.h"
#include "base/macros.h"

/* --- updates ------------------------------------------------------------------------ */

enum { MOST = 3 * 4096 + 37, STATES = 3 };

typedef struct update_case {
    const sonde__op_kind *kind;
    const float *live;
    size_t count;
    float *in[1 + STATES]; /* w, g, then states */
    int states;
} update_case;

/* in: w, g, states; out: w, states; and one number in place behind them for Adam. */
static void run_update(const update_case *u, const sonde__op_kernel *kernel, int parts,
                       float *const out[], sonde_vitals *vitals, uint8_t *bad)
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
    c.call.bad = bad;
    case_run(&c, kernel, parts);
    assert_true(u->kind != &sonde__op_adam || stepped == step + 1.0F);
}

/* The kernel reports a gradient that is not finite, with and without vital signs; the
 * other results stay the same. */
static void check_bad(const update_case *u, const sonde__op_kernel *kernel,
                      float *const wanted[], int parts, sonde_vitals *vitals)
{
    const bool is_bad = case_has_bad(u->in[1], u->count);
    uint8_t bad[MAX_PARTS];
    float *got[STATES];

    memset(bad, 0xFF, sizeof bad);
    for (int i = 0; i < STATES; i++) {
        got[i] = case_random(u->count, 4);
    }
    run_update(u, kernel, parts, got, vitals, bad);
    assert_int_equal(case_is_bad(bad, parts), is_bad);
    for (int i = 0; i <= u->states; i++) {
        assert_same_bits(got[i], wanted[i], u->count);
    }
    for (int i = 0; i < STATES; i++) {
        free(got[i]);
    }
}

static void check_update(const sonde__op_kernel *kernel, const void *argument)
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
    run_update(u, case_reference(u->kind), 1, expected, NULL, NULL);
    check_bad(u, case_reference(u->kind), expected, 1, NULL);
    run_update(u, kernel, 1, got, vitals, NULL);
    for (int i = 0; i <= u->states; i++) {
        assert_close(got[i], expected[i], u->count, 4e-6);
        assert_same_vitals(&vitals[i], got[i], u->count);
    }
    assert_same_vitals(&vitals[STATES], u->in[1], u->count);
    for (int parts = 1; parts <= most; parts++) {
        check_bad(u, kernel, got, parts, NULL);
        check_bad(u, kernel, got, parts, vitals);
        run_update(u, kernel, parts, again, vitals, NULL);
        for (int i = 0; i <= u->states; i++) {
            assert_same_bits(again[i], got[i], u->count);
            assert_same_vitals(&vitals[i], got[i], u->count);
        }
        assert_same_vitals(&vitals[STATES], u->in[1], u->count);
    }
    for (int i = 0; i < STATES; i++) {
        free(expected[i]), free(got[i]), free(again[i]);
    }
}

static void each_update(sonde__kernel_fast_op op, const sonde__op_kind *kind,
                        const float *live, int states)
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
        u.in[1][counts[c] - 1] =
            counts[c] % 2 == 0 ? -INFINITY : NAN; /* the last alone */
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

/* --- element-wise ------------------------------------------------------------------- */

static void test_elementwise(void **state)
{
    static const struct {
        sonde__kernel_fast_op fast;
        const sonde__op_kind *kind;
        int inputs;
    } ops[] = {{SONDE__FAST_RELU, &sonde__op_relu, 1},
               {SONDE__FAST_RELU_GRAD, &sonde__op_relu_grad, 2},
               {SONDE__FAST_ADD, &sonde__op_add, 2},
               {SONDE__FAST_SCALE, &sonde__op_scale, 1},
               {SONDE__FAST_ACCUMULATE, &sonde__op_accumulate, 2}};
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {16, 16}, {129, 7}};
    const sonde__op_attrs attrs = {.fill = {.value = 0.3F}};

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
    const sonde__op_kernel *add =
        sonde__kernel_fast_kernels_of(sonde__cpu_isa(), SONDE__FAST_ADD)[0];
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

/* --- reorder ------------------------------------------------------------------------ */

/* From and to are set in the row, as the reorder's own row names no layouts. */
static void check_reorder(const sonde__op_kernel *kernel, const void *argument)
{
    const op_case *op = argument;

    for (int pair = 0; pair < 9; pair++) {
        const sonde__op_layout layouts[] = {SONDE__PLAIN, SONDE__LANES, SONDE__PANELS};
        float *got = case_random(op->count, 5);
        sonde__op_kernel row = *kernel;
        kernel_case c = op->base;
        sonde__op_call raw = c.call;
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
        count = sonde__op_layout_count(&raw.out[0].shape, row.out[0]);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_add_declines_broadcasts),
        cmocka_unit_test(test_reorder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
