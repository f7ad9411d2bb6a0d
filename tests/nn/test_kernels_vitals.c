/*
 * The vital signs that kernels tell of outputs, kept or not: those of the values, but for
 * the order of sums; the same bits in any number of parts, whatever is kept, and with
 * AVX2 and AVX-512, whose values are the same. test_kernels_linear.c and
 * test_kernels_update.c have those of updates.
 */
#include "nn/kernels_check.h"
#include "base/cpu.h"
#include "base/macros.h"
#include "base/random.h"
#include "nn/vitals_near.h"

#include "nn/kernels/fast.h"
#include "nn/ops/ops.h"

DEFINE_PICK(relu_kernel, CONV2D_RELU, 1)
DEFINE_PICK(pool_kernel, CONV2D_RELU_POOL, 0)
DEFINE_PICK(gradient_kernel, POOL_RELU_CONV_GRAD, 0)
DEFINE_PICK(linear_kernel, LINEAR_RELU, 0)

/* --- what is told ------------------------------------------------------------------- */

/* Outputs whose vital signs the kernel tells if so much is kept. */
static unsigned told_of(const op_run *run, const sonde__op_kernel *kernel,
                        unsigned wanted)
{
    sonde__op_call call = {.attrs = &run->attrs,
                           .in_count = run->in_count,
                           .out_count = run->kind->out_count};
    unsigned told = 0;

    memcpy(call.in, run->in, sizeof call.in);
    for (int i = 0; i < call.out_count; i++) {
        const bool kept = (run->kind->optional_out & ~wanted & 1U << i) == 0;

        if (sonde__op_tells_out(kernel, &call, i) &&
            (kept || (kernel->vitals_kept >> i & 1U) == 0)) {
            told |= 1U << i;
        }
    }
    return told;
}

static sonde_vitals vitals_of_output(const op_run *run, int i, void *data)
{
    const sonde_view view =
        sonde_view_of(run->out[i].dtype, run->out[i].rank, run->out[i].dim, data);
    sonde_vitals vitals;

    sonde_vitals_of(&view, &vitals);
    return vitals;
}

/* Everything kept and in one part, against the values; then all other ways against that.
 */
static void check_kernel(const op_run *run, const sonde__op_kernel *kernel,
                         sonde_vitals *first)
{
    const unsigned most = told_of(run, kernel, ALL);
    void *out[SONDE__MAX_OPERANDS];

    run_told(run, kernel, 1, ALL, out, most, first);
    for (int i = 0; i < run->kind->out_count; i++) {
        if ((most >> i & 1U) != 0) {
            const sonde_vitals want = vitals_of_output(run, i, out[i]);

            if (!vitals_near(&want, &first[i])) {
                fail_msg("%s, output %d: mean %.17g, expected %.17g; l1 %.17g, "
                         "expected %.17g; zeros %d, expected %d",
                         run->kind->name, i, first[i].mean, want.mean, first[i].l1,
                         want.l1, (int)first[i].zero, (int)want.zero);
            }
        }
    }
    free_outputs(out, run->kind->out_count);
    for (unsigned wanted = 0; wanted < 1U << run->kind->out_count; wanted++) {
        const unsigned told = told_of(run, kernel, wanted);
        const int parts = 1 + (int)(wanted % MAX_PARTS);
        sonde_vitals got[SONDE__MAX_OPERANDS];

        if ((wanted & ~run->kind->optional_out) != 0 || told == 0) {
            continue;
        }
        run_told(run, kernel, parts, wanted, out, told, got);
        for (int i = 0; i < run->kind->out_count; i++) {
            if ((told >> i & 1U) != 0) {
                assert_memory_equal(&got[i], &first[i], sizeof got[i]);
            }
        }
        free_outputs(out, run->kind->out_count);
    }
}

/* Frees the inputs. Returns what is told. */
static unsigned check_told(op_run *run, pick which)
{
    sonde_vitals vitals[SONDE__AVX512 + 1][SONDE__MAX_OPERANDS];
    unsigned told = 0;

    infer(run);
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__op_kernel *kernel = picked((sonde__isa)isa, which);

        check_kernel(run, kernel, vitals[isa]);
        told = told_of(run, kernel, ALL);
        for (int i = 0; isa == (int)SONDE__AVX512 && i < run->kind->out_count; i++) {
            if ((told >> i & 1U) != 0) {
                assert_memory_equal(&vitals[SONDE__AVX512][i], &vitals[SONDE__AVX2][i],
                                    sizeof(sonde_vitals));
            }
        }
    }
    free_inputs(run);
    return told;
}

/* --- a layer and its ReLU ----------------------------------------------------------- */

typedef struct layer_case {
    int64_t n, c, h, w, o, k, groups, padding;
    bool pool; /* whether the pooled kernel tells */
} layer_case;

static const layer_case layers[] = {
    {16, 1, 28, 28, 5, 3, 1, 0, true}, {16, 5, 13, 13, 12, 5, 1, 0, false},
    {17, 2, 6, 8, 13, 3, 1, 0, true},  {3, 4, 6, 6, 6, 3, 2, 0, true},
    {33, 2, 12, 40, 4, 1, 1, 0, true}, {2, 3, 6, 6, 4, 3, 1, 1, false},
    {5, 1, 7, 8, 2, 3, 1, 0, false},
};

static op_run layer_run(const layer_case *c, const sonde__op_kind *kind)
{
    op_run run = {.kind = kind,
                  .attrs = {.window = {.stride = {1, 1},
                                       .padding = {c->padding, c->padding},
                                       .dilation = {1, 1},
                                       .groups = c->groups}}};

    add_random(&run, DIMS(c->n, c->c, c->h, c->w));
    add_random(&run, DIMS(c->o, c->c / c->groups, c->k, c->k));
    add_random(&run, DIMS(c->o));
    return run;
}

/* Inputs that sums do not tell all of: no NaN, then with; hardly any deviation; a bias
 * that leaves no negative value; zeros everywhere. */
static void alter(op_run *run, int kind)
{
    float *x = run->in[0].data, *b = run->in[2].data;
    const size_t count = plain_bytes(&run->in[0].shape) / sizeof *x;
    const size_t outputs = plain_bytes(&run->in[2].shape) / sizeof *b;

    if (kind == 1) {
        put_oddities(run, true);
    } else if (kind == 2) {
        put_oddities(run, false);
    } else if (kind == 3 || kind == 5) {
        for (size_t i = 0; i < count; i++) {
            x[i] = kind == 3 ? 1e-4F * x[i] : 0.0F;
        }
    }
    for (size_t i = 0; i < outputs && kind >= 3; i++) {
        b[i] = kind == 5 ? 0.0F : kind == 4 ? 100.0F + b[i] : 1.0F;
    }
}

static void layers_and_their_relu(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(layers); i++) {
        for (int kind = 0; kind < 6; kind++) {
            op_run relu = layer_run(&layers[i], &sonde__op_conv2d_relu);
            op_run pool = layer_run(&layers[i], &sonde__op_conv2d_relu_pool);

            alter(&relu, kind);
            alter(&pool, kind);
            assert_int_equal(check_told(&relu, relu_kernel), 3);
            assert_int_equal(check_told(&pool, pool_kernel), layers[i].pool ? 3 : 0);
        }
    }
}

static void linear_layers_and_their_relu(void **state)
{
    static const int64_t sizes[][3] = {{16, 20, 33}, {37, 5, 7}, {100, 40, 300}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(sizes); i++) {
        for (int kind = 0; kind < 6; kind++) {
            op_run run = {.kind = &sonde__op_linear_relu};

            add_random(&run, DIMS(sizes[i][0], sizes[i][1]));
            add_random(&run, DIMS(sizes[i][2], sizes[i][1]));
            add_random(&run, DIMS(sizes[i][2]));
            alter(&run, kind);
            assert_int_equal(check_told(&run, linear_kernel), 3);
        }
    }
}

/* --- the gradient that a pool spreads ----------------------------------------------- */

static op_run gradient_run(const layer_case *c)
{
    const int64_t ph = (c->h - c->k + 1) / 2, pw = (c->w - c->k + 1) / 2;
    op_run run = {
        .kind = &sonde__op_pool_relu_conv_grad,
        .attrs = {.window = {.stride = {1, 1}, .dilation = {1, 1}, .groups = c->groups}}};
    const size_t count = (size_t)(c->n * c->o * ph * pw);
    uint8_t *index = poisoned_block(count);

    for (size_t i = 0; i < count; i++) {
        index[i] = (uint8_t)sonde__below(5, 1, i, 4);
    }
    add_random(&run, DIMS(c->n, c->o, ph, pw));
    add_input(&run, DIMS(c->n, c->o, ph, pw), index, SONDE_U8);
    add_random(&run, DIMS(c->n, c->o, ph, pw));
    add_random(&run, DIMS(c->n, c->c, c->h, c->w));
    set_dims(&run, DIMS(c->o, c->c / c->groups, c->k, c->k));
    return run;
}

/* To the bit: dy in LANES, as it is and behind the gate, and zeros. */
static void expect_spread(const op_run *run, const sonde_vitals *told)
{
    const sonde__op_shape *shape = &run->in[0].shape;
    const int64_t inner = shape->dim[1] * shape->dim[2] * shape->dim[3];
    const int64_t count = (int64_t)(plain_bytes(&run->out[0]) / sizeof(float));
    float *dy = run->in[0].data;
    const float *y = run->in[2].data;
    sonde_vitals want = vitals_in_lanes(SONDE_F32, shape->dim[0], inner, dy);

    want = vitals_and_zeros(want, count);
    assert_memory_equal(&told[0], &want, sizeof want);
    for (int64_t i = 0; i < shape->dim[0] * inner; i++) {
        dy[i] = y[i] <= 0.0F ? 0.0F : dy[i];
    }
    want = vitals_in_lanes(SONDE_F32, shape->dim[0], inner, dy);
    want = vitals_and_zeros(want, count);
    assert_memory_equal(&told[1], &want, sizeof want);
}

static void gradients_that_a_pool_spreads(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(layers); i++) {
        for (int kind = 0; kind < 3 && layers[i].padding == 0; kind++) {
            op_run run = gradient_run(&layers[i]), again = gradient_run(&layers[i]);
            sonde_vitals told[SONDE__MAX_OPERANDS];
            void *out[SONDE__MAX_OPERANDS];

            if (kind > 0) {
                put_oddities(&run, kind == 1);
                put_oddities(&again, kind == 1);
            }
            assert_int_equal(check_told(&run, gradient_kernel), 3);
            infer(&again);
            run_told(&again, picked(sonde__cpu_isa(), gradient_kernel), 2, 0, out, 3,
                     told);
            free_outputs(out, again.kind->out_count);
            expect_spread(&again, told);
            free_inputs(&again);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_and_their_relu),
        cmocka_unit_test(linear_layers_and_their_relu),
        cmocka_unit_test(gradients_that_a_pool_spreads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
