/*
 * test_ops_infer.c - shape rules complete attrs, and nothing that they let through makes
 * a reference step out of its operands.
 */
#include "nn/ops_harness.h"
#include <stdio.h>
#include "base/random.h"

/* Shapes: F(2, 3) is float32 (2, 3), T(I64, 2) int64 (2). */
#define T(type, ...)                                                                     \
    {                                                                                    \
        .dtype = SONDE_##type,                                                           \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dim = {             \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }
#define F(...) T(F32, __VA_ARGS__)

/* --- what is let through runs ------------------------------------------------------- */

static uint64_t drawn;

static int64_t draw(int64_t bound)
{
    return (int64_t)sonde__below(11, 0, drawn++, (uint64_t)bound);
}

static sonde__op_shape random_shape(void)
{
    static const int64_t extents[] = {1, 1, 2, 2, 2, 3, 4, 0};
    static const sonde_dtype dtypes[] = {SONDE_F32, SONDE_F32, SONDE_F32, SONDE_F32,
                                         SONDE_F32, SONDE_F64, SONDE_I64, SONDE_U8};
    static const int ranks[] = {0, 1, 2, 2, 3, 4, 4, 5};
    sonde__op_shape shape = {.dtype = dtypes[draw(8)], .rank = ranks[draw(8)]};

    for (int i = 0; i < shape.rank; i++) {
        shape.dim[i] = extents[draw(8)];
    }
    return shape;
}

/* Small numbers for every field of the kind's attrs. */
static sonde__op_attrs random_attrs(const sonde__op_kind *kind)
{
    sonde__op_attrs attrs = {0};

    for (size_t i = 0; i < kind->fields->count; i++) {
        const sonde__packed_field *field = &kind->fields->fields[i];
        char *member = (char *)&attrs + field->offset;

        for (int k = 0; k < field->count; k++) {
            switch (field->kind) {
            case SONDE__PACKED_LONG:
                ((int64_t *)(void *)member)[k] = draw(5) - (draw(4) == 0 ? 2 : 0);
                break;
            case SONDE__PACKED_WORD:
                ((int32_t *)(void *)member)[k] = (int32_t)draw(8) - 2;
                break;
            case SONDE__PACKED_REAL:
                ((float *)(void *)member)[k] = (float)draw(3);
                break;
            case SONDE__PACKED_BOOL:
                ((bool *)member)[k] = draw(2) == 0;
                break;
            }
        }
    }
    return attrs;
}

/* An op with operands that are all alike half of the time, so that rules let some
 * through. */
static op_run random_run(const sonde__op_kind *kind)
{
    op_run run = {.kind = kind,
                  .attrs = random_attrs(kind),
                  .in_count = kind->in_min + (int)draw(kind->in_max - kind->in_min + 1),
                  .live = {0.1f, 0.9f, 0.0f, 0.1f, 0.0f, 1.0f, 0.0f}};
    const bool alike = draw(2) == 0;

    for (int i = 0; i < run.in_count; i++) {
        run.in[i].shape = alike && i > 0 ? run.in[0].shape : random_shape();
    }
    return run;
}

/* Inputs full of 0xFF: NaN, targets of -1, winners beyond every window. */
static bool run_if_let_through(op_run *run)
{
    const run_options plainly = {.any = SONDE__PLAIN, .parts = 1};
    void *out[SONDE__MAX_OPERANDS] = {NULL};

    if (infer_run(run, NULL) != SONDE_OK) {
        return false;
    }
    for (int i = 0; i < run->in_count; i++) {
        run->in[i].data = poisoned_block(plain_bytes(&run->in[i].shape));
    }
    run_kernel(run, reference_of(run->kind), &plainly, out);
    for (int i = 0; i < run->kind->out_count; i++) {
        free(out[i]);
    }
    for (int i = 0; i < run->in_count; i++) {
        free(run->in[i].data);
    }
    return true;
}

/* AddressSanitizer is the judge; here only that enough kinds got as far as running. */
static void whatever_is_let_through_runs(void **state)
{
    int kinds_run = 0;

    (void)state;
    for (size_t i = 0; sonde__op_kinds[i] != NULL; i++) {
        int runs = 0;

        for (int attempt = 0; attempt < 4000; attempt++) {
            op_run run = random_run(sonde__op_kinds[i]);

            runs += run_if_let_through(&run) ? 1 : 0;
        }
        kinds_run += runs > 0 ? 1 : 0;
    }
    assert_true(kinds_run >= 28);
}

/* --- optional operands, normalized attrs -------------------------------------------- */

static void attrs_are_completed(void **state)
{
    op_run reshape = {.kind = &sonde__op_reshape,
                      .attrs = {.shape = {.rank = 3, .dims = {0, -1, 2}}},
                      .in_count = 1,
                      .in = {{.shape = F(3, 4, 5)}}};
    op_run softmax = {.kind = &sonde__op_softmax,
                      .attrs = {.along = {.axis = -1}},
                      .in_count = 1,
                      .in = {{.shape = F(3, 4, 5)}}};
    op_run reduce = {
        .kind = &sonde__op_reduce, .in_count = 1, .in = {{.shape = F(3, 4)}}};

    (void)state;
    assert_int_equal(infer_run(&reshape, NULL), SONDE_OK);
    assert_int_equal(reshape.attrs.shape.dims[0], 3);
    assert_int_equal(reshape.attrs.shape.dims[1], 10);
    assert_int_equal(infer_run(&softmax, NULL), SONDE_OK);
    assert_int_equal(softmax.attrs.along.axis, 2);
    assert_int_equal(infer_run(&reduce, NULL), SONDE_OK);
    assert_int_equal(reduce.attrs.reduce.axes, 3);
    assert_int_equal(reduce.out[0].rank, 0);
}

static void sgd_without_momentum_has_an_empty_buffer(void **state)
{
    op_run sgd = {.kind = &sonde__op_sgd,
                  .in_count = 2,
                  .in = {{.shape = F(3, 4)}, {.shape = F(3, 4)}}};

    (void)state;
    assert_int_equal(infer_run(&sgd, NULL), SONDE_OK);
    assert_int_equal(sonde__op_shape_count(&sgd.out[1]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_is_let_through_runs),
        cmocka_unit_test(attrs_are_completed),
        cmocka_unit_test(sgd_without_momentum_has_an_empty_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
