/*
 * test_ops_table.c - the table of op kinds, the layouts, and reorder between them; what a
 * loss does with targets out of range.
 */
#include "nn/ops_harness.h"
#include "base/macros.h"

/* --- the table ---------------------------------------------------------------------- */

static void rows_are_complete(void **state)
{
    (void)state;
    for (size_t i = 0; sonde__op_kinds[i] != NULL; i++) {
        const sonde__op_kind *kind = sonde__op_kinds[i];

        assert_non_null(kind->name);
        assert_non_null(kind->infer);
        assert_in_range(kind->out_count, 1, SONDE__MAX_OPERANDS);
        assert_true(kind->in_min <= kind->in_max && kind->in_max <= SONDE__MAX_OPERANDS);
        for (int k = 1; k < kind->out_count; k++) {
            assert_non_null(kind->out_names[k]);
        }
        for (int k = 0; k < kind->out_count; k++) {
            assert_in_range(kind->alias[k], 0, kind->in_max);
        }
        assert_int_equal(kind->optional_out >> kind->out_count, 0);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(kind->name, sonde__op_kinds[k]->name);
        }
    }
}

static void lists_end_with_a_reference_that_takes_everything(void **state)
{
    (void)state;
    for (size_t i = 0; sonde__op_kinds[i] != NULL; i++) {
        const sonde__op_kind *kind = sonde__op_kinds[i];
        const sonde__op_kernel *reference = reference_of(kind), *kernel = NULL;

        assert_string_equal(reference->name, "reference");
        assert_null(reference->accepts);
        for (int k = 0; k < SONDE__MAX_OPERANDS; k++) {
            assert_int_equal(reference->in[k], SONDE__PLAIN);
            assert_int_equal(reference->out[k], SONDE__PLAIN);
        }
        for (size_t n = 0; (kernel = sonde__op_kernel_of(kind, NULL, n)) != NULL; n++) {
            assert_non_null(kernel->name);
            assert_non_null(kernel->run);
        }
    }
}

/* --- layouts ------------------------------------------------------------------------ */

static const sonde__op_shape shapes[] = {
    {.dtype = SONDE_F32, .rank = 2, .dim = {17, 33}},
    {.dtype = SONDE_F32, .rank = 4, .dim = {16, 3, 4, 5}},
    {.dtype = SONDE_F64, .rank = 3, .dim = {5, 2, 32}},
    {.dtype = SONDE_U8, .rank = 4, .dim = {33, 2, 3, 1}},
    {.dtype = SONDE_F32, .rank = 1, .dim = {3}},
    {.dtype = SONDE_I64, .rank = 0},
};
static const sonde__op_layout layouts[] = {SONDE__PLAIN, SONDE__LANES, SONDE__PANELS};

static void layouts_have_room_for_their_padding(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(shapes); i++) {
        for (size_t k = 0; k < SONDE_COUNT_OF(layouts); k++) {
            assert_int_equal(sonde__op_layout_count(&shapes[i], layouts[k]),
                             harness_count(&shapes[i], layouts[k]));
        }
    }
    assert_int_equal(sonde__op_layout_count(&shapes[0], SONDE__LANES), 32 * 33);
    assert_int_equal(sonde__op_layout_count(&shapes[0], SONDE__PANELS), 17 * 64);
    assert_int_equal(sonde__op_shape_count(&shapes[5]), 1);
}

/* Elements numbered in row-major order, each byte told apart. */
static sonde__operand numbered(const sonde__op_shape *shape)
{
    sonde__operand operand = {.shape = *shape, .layout = SONDE__PLAIN};
    const size_t bytes = plain_bytes(shape);

    operand.data = poisoned_block(bytes);
    for (size_t i = 0; i < bytes; i++) {
        ((unsigned char *)operand.data)[i] = (unsigned char)(i * 7 + i / 251);
    }
    return operand;
}

/* Bytes of the padding that are not zero. */
static size_t dirty_padding(const sonde__op_shape *shape, sonde__op_layout layout,
                            const void *laid)
{
    const size_t size = sonde_dtype_size(shape->dtype);
    const size_t bytes = (size_t)harness_count(shape, layout) * size;
    char *copy = poisoned_block(bytes), *zeros = poisoned_block(plain_bytes(shape));
    size_t dirty = 0;

    memcpy(copy, laid, bytes);
    memset(zeros, 0, plain_bytes(shape));
    harness_copy(shape, layout, copy, zeros, false);
    for (size_t i = 0; i < bytes; i++) {
        dirty += copy[i] != 0 ? 1 : 0;
    }
    free(copy);
    free(zeros);
    return dirty;
}

static void expect_reorder(const sonde__op_kernel *kernel, const sonde__operand *plain,
                           sonde__op_layout from, sonde__op_layout to)
{
    const sonde__op_shape *shape = &plain->shape;
    const size_t bytes =
        (size_t)harness_count(shape, to) * sonde_dtype_size(shape->dtype);
    void *source = harness_lay(plain, from), *back = poisoned_block(plain_bytes(shape));
    void *made = poisoned_block(bytes);
    const sonde__op_call call = {.in_count = 1,
                                 .out_count = 1,
                                 .in = {{*shape, from, source}},
                                 .out = {{*shape, to, made}}};

    kernel->run(&call, 0, 1);
    harness_copy(shape, to, made, back, true);
    assert_memory_equal(back, plain->data, plain_bytes(shape));
    if (to == SONDE__PANELS) {
        assert_int_equal(dirty_padding(shape, to, made), 0);
    }
    free(source);
    free(back);
    free(made);
}

static void reorder_goes_between_all_layouts(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(shapes); i++) {
        sonde__operand plain = numbered(&shapes[i]);

        for (size_t from = 0; from < SONDE_COUNT_OF(layouts); from++) {
            for (size_t to = 0; to < SONDE_COUNT_OF(layouts); to++) {
                expect_reorder(reference_of(&sonde__op_reorder), &plain, layouts[from],
                               layouts[to]);
            }
        }
        free(plain.data);
    }
}

/* --- targets ------------------------------------------------------------------------ */

/* PyTorch raises an error here. Targets are checked before they get to a step; the op has
 * to survive them, and must not hide them. */
static void targets_out_of_range_make_nan(void **state)
{
    static const int64_t outside[] = {3, -1, INT64_MAX, INT64_MIN, -100};
    const run_options plainly = {.any = SONDE__PLAIN, .parts = 1};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(outside); i++) {
        float logp[6] = {-1, -2, -3, -4, -5, -6}, dloss = 1.0f;
        int64_t target[2] = {1, outside[i]};
        const sonde__operand targets = {
            .shape = {.dtype = SONDE_I64, .rank = 1, .dim = {2}}, .data = target};
        op_run loss = {.kind = &sonde__op_nll,
                       .in_count = 2,
                       .in = {{.shape = {.dtype = SONDE_F32, .rank = 2, .dim = {2, 3}},
                               .data = logp},
                              targets}};
        op_run gradient = {
            .kind = &sonde__op_nll_grad,
            .attrs = {.loss = {.rank = 2, .dims = {2, 3}}},
            .in_count = 2,
            .in = {{.shape = {.dtype = SONDE_F32}, .data = &dloss}, targets}};
        void *value = NULL, *dlogp = NULL;

        assert_int_equal(infer_run(&loss, NULL), SONDE_OK);
        assert_int_equal(infer_run(&gradient, NULL), SONDE_OK);
        run_kernel(&loss, reference_of(loss.kind), &plainly, &value);
        run_kernel(&gradient, reference_of(gradient.kind), &plainly, &dlogp);
        assert_true(isnan(*(float *)value));
        for (int k = 0; k < 3; k++) {
            assert_true(((float *)dlogp)[k] == (k == 1 ? -1.0f : 0.0f));
            assert_true(isnan(((float *)dlogp)[3 + k]));
        }
        free(value);
        free(dlogp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(lists_end_with_a_reference_that_takes_everything),
        cmocka_unit_test(layouts_have_room_for_their_padding),
        cmocka_unit_test(reorder_goes_between_all_layouts),
        cmocka_unit_test(targets_out_of_range_make_nan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
