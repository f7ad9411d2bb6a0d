/*
 * test_ops_edges.c - ops at the edges of what they take: int64 that a double cannot hold,
 * elements that are alike, ids far out of range, queries without keys, and a padding_idx
 * that is no row.
 */
#include "engine.h"
#include "nn/ops_harness.h"
#include "base/macros.h"
#include "nn/ops/layer_row.h"

#include <sonde/nn/model.h>

static const sonde__op_kind *kind_named(const char *name)
{
    size_t i = 0;

    while (sonde__op_kinds[i] != NULL && strcmp(sonde__op_kinds[i]->name, name) != 0) {
        i++;
    }
    assert_non_null(sonde__op_kinds[i]);
    return sonde__op_kinds[i];
}

static void add_operand(op_run *run, sonde_dtype dtype, int rank, const int64_t *dim,
                        void *data)
{
    sonde__operand *in = &run->in[run->in_count++];

    in->shape = (sonde__op_shape){.dtype = dtype, .rank = rank};
    memcpy(in->shape.dim, dim, (size_t)rank * sizeof *dim);
    in->data = data;
}

#define ADD(run, dtype, data, ...)                                                       \
    add_operand((run), (dtype),                                                          \
                (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),               \
                (int64_t[]){__VA_ARGS__}, (data))

/* Kernel number k of the op's list; false: there is none, or it does not take this. */
static bool run_nth(op_run *run, int k, void *out[])
{
    const run_options options = {.any = SONDE__PLAIN, .parts = 1};
    const sonde__op_kernel *kernel = sonde__op_kernel_of(run->kind, NULL, (size_t)k);

    must(infer_run(run, &engine_diag));
    if (kernel == NULL || !kernel_accepts(run, kernel)) {
        return false;
    }
    run_kernel(run, kernel, &options, out);
    return true;
}

/* --- comparisons -------------------------------------------------------------------------- */

static void int64_is_compared_exactly(void **state)
{
    enum { COUNT = 4 };
    static const uint8_t expected[][COUNT] = {
        {0, 0, 1, 0}, {1, 1, 0, 1}, {0, 1, 0, 0},
        {0, 1, 1, 0}, {1, 0, 0, 1}, {1, 0, 1, 1},
    };
    int64_t a[COUNT] = {INT64_MAX, INT64_MIN, -7, (INT64_C(1) << 53) + 1};
    int64_t b[COUNT] = {INT64_MAX - 1, INT64_MAX, -7, INT64_C(1) << 53};

    (void)state;
    for (int choice = 0; choice < (int)SONDE_COUNT_OF(expected); choice++) {
        op_run run = {.kind = kind_named("Compare"),
                      .attrs = {.choose = {.comparison = choice}}};
        void *out[SONDE__MAX_OPERANDS] = {NULL};

        ADD(&run, SONDE_I64, a, COUNT);
        ADD(&run, SONDE_I64, b, COUNT);
        assert_true(run_nth(&run, 0, out));
        assert_memory_equal(out[0], expected[choice], COUNT);
        free(out[0]);
    }
}

/* --- extremes ----------------------------------------------------------------------------- */

/* Of (2, N, 2) over the middle: all alike, one NaN among them, one largest, two largest. A
 * search through all elements for each that is alike would take minutes. */
static void the_gradient_of_an_extreme_is_shared(void **state)
{
    enum { N = 1 << 16 };
    static float x[2][N][2];
    float y[4] = {0.0F, NAN, 3.0F, 5.0F}, dy[4] = {1.0F, 2.0F, 4.0F, 8.0F};
    op_run run = {.kind = kind_named("ExtremeGrad"), .attrs = {.reduce = {.axes = 2}}};
    void *out[SONDE__MAX_OPERANDS] = {NULL};
    const float *dx = NULL;

    (void)state;
    x[0][7][1] = NAN;
    x[1][N - 1][0] = 3.0F;
    x[1][0][1] = x[1][9][1] = 5.0F;
    ADD(&run, SONDE_F32, dy, 2, 2);
    ADD(&run, SONDE_F32, x, 2, N, 2);
    ADD(&run, SONDE_F32, y, 2, 2);
    assert_true(run_nth(&run, 0, out));
    dx = out[0];
    for (int i = 0; i < N; i++) {
        assert_float_equal(dx[2 * i], 1.0F / N, 0.0F);
        assert_float_equal(dx[2 * i + 1], i == 7 ? 2.0F : 0.0F, 0.0F);
        assert_float_equal(dx[2 * (N + i)], i == N - 1 ? 4.0F : 0.0F, 0.0F);
        assert_float_equal(dx[2 * (N + i) + 1], i == 0 || i == 9 ? 4.0F : 0.0F, 0.0F);
    }
    free(out[0]);
}

/* --- ids ---------------------------------------------------------------------------------- */

static void ids_out_of_range_touch_no_row(void **state)
{
    int64_t ids[4] = {INT64_MIN, 1, INT64_MAX, 3};
    float w[6] = {1, 2, 3, 4, 5, 6}, dy[8] = {1, 1, 2, 3, 1, 1, 1, 1};

    (void)state;
    for (int k = 0; k < 2; k++) { /* fast, and the reference */
        op_run forward = {.kind = kind_named("Embedding")};
        op_run back = {.kind = kind_named("EmbeddingGrad"),
                       .attrs = {.shape = {.rank = 2, .dims = {3, 2}}}};
        void *y[SONDE__MAX_OPERANDS] = {NULL}, *dw[SONDE__MAX_OPERANDS] = {NULL};

        ADD(&forward, SONDE_I64, ids, 4);
        ADD(&forward, SONDE_F32, w, 3, 2);
        assert_true(run_nth(&forward, k, y));
        ADD(&back, SONDE_F32, dy, 4, 2);
        ADD(&back, SONDE_I64, ids, 4);
        assert_true(run_nth(&back, k, dw));
        for (int i = 0; i < 8; i++) {
            const float got = ((float *)y[0])[i];

            assert_true(i / 2 == 1 ? got == w[i] : isnan(got));
        }
        assert_memory_equal(dw[0], ((float[6]){0, 0, 2, 3, 0, 0}), 6 * sizeof(float));
        free(y[0]);
        free(dw[0]);
    }
}

static void padding_idx_is_a_row(void **state)
{
    static const struct {
        double row;
        const char *line;
    } mistakes[] = {
        {5.0, "table: padding_idx is 5 (expected a row of the table)"},
        {1e7, "table: padding_idx is 10000000 (expected a row of the table)"},
        {1.5, "table: padding_idx is 1.5 (expected a whole number from 0 to 10000000)"},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(mistakes); i++) {
        const sonde_nn_setting settings[] = {
            {.key = "num_embeddings", .values = {5}},
            {.key = "embedding_dim", .values = {3}},
            {.key = "padding_idx", .values = {mistakes[i].row}}};
        sonde_nn_model *model = NULL;
        sonde_nn_value ids = 0;

        must(sonde_nn_model_create(&model, &engine_diag));
        ids = sonde_nn_input(model, SONDE_I64, 2, (const int64_t[]){1, 4});
        assert_int_equal(
            sonde_nn_layer(model, "embedding", "table", &ids, 1, settings, 3), 0);
        expect_err(SONDE_EINVAL, sonde_nn_model_status(model, &engine_diag));
        expect_line(mistakes[i].line);
        sonde_nn_model_destroy(model);
    }
}

/* A layer without a name is known by its kind. */
static void a_key_is_refused_by_the_kind_of_a_layer(void **state)
{
    const sonde_nn_setting step = {.key = "step", .values = {0}},
                           unknown = {.key = "stop", .values = {1}};
    const struct {
        const sonde_nn_setting *setting;
        const char *kind, *line;
    } mistakes[] = {
        {&step, "slice",
         "slice: step is 0 (expected a whole number from 1 to 1000000000)"},
        {&unknown, "slice", "slice: slice has no key 'stop'"},
        {&unknown, "argmax", "argmax: argmax has no key 'stop'"},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(mistakes); i++) {
        sonde_nn_model *model = NULL;
        sonde_nn_value x = 0;

        must(sonde_nn_model_create(&model, &engine_diag));
        x = sonde_nn_input(model, SONDE_F32, 2, (const int64_t[]){1, 4});
        assert_int_equal(
            sonde_nn_layer(model, mistakes[i].kind, NULL, &x, 1, mistakes[i].setting, 1),
            0);
        expect_err(SONDE_EINVAL, sonde_nn_model_status(model, &engine_diag));
        expect_line(mistakes[i].line);
        sonde_nn_model_destroy(model);
    }
}

static bool has_key(const sonde__op_layer *row, const char *key)
{
    bool found = false;

    for (int i = 0; i < sonde__op_field_count(row); i++) {
        found = found || strcmp(row->fields[i].key, key) == 0;
    }
    return found;
}

/* Every layer as a function of too few values, and of one that the model does not have:
 * an error, and no step out of the model's values. */
static void functions_of_too_few_values_are_refused(void **state)
{
    enum { MOST = 6 };

    (void)state;
    for (size_t i = 0; sonde__op_layers[i] != NULL; i++) {
        const sonde__op_layer *row = sonde__op_layers[i];

        for (size_t count = 0; count <= MOST; count++) {
            const sonde_nn_setting settings[] = {{.key = "num_heads", .values = {2}},
                                                 {.key = "nhead", .values = {2}},
                                                 {.key = "hidden_size", .values = {3}}};
            sonde_nn_value in[MOST] = {0};
            sonde_nn_model *model = NULL;
            size_t given = 0;

            while (given < SONDE_COUNT_OF(settings) &&
                   !has_key(row, settings[given].key)) {
                given++;
            }
            must(sonde_nn_model_create(&model, &engine_diag));
            for (size_t k = 0; k < count; k++) {
                in[k] = sonde_nn_input(model, SONDE_F32, 3, (const int64_t[]){2, 3, 4});
            }
            if (count > 0) {
                in[count - 1] = 1000000;
            }
            assert_int_equal(sonde_nn_function(model, "f", row->name, in, count,
                                               &settings[given],
                                               given < SONDE_COUNT_OF(settings) ? 1 : 0),
                             0);
            assert_int_not_equal(sonde_nn_model_status(model, &engine_diag), SONDE_OK);
            sonde_nn_model_destroy(model);
        }
    }
}

/* --- attention ---------------------------------------------------------------------------- */

/* A query without keys has weights 0; a score of NaN is seen by the queries that read it. */
static void a_query_without_keys_has_no_weights(void **state)
{
    float q[4] = {1, 2, 3, 4}, k[6] = {1, 0, NAN, 1, 0, 1}, v[3] = {1, 2, 3};
    uint8_t mask[6] = {0, 0, 0, 1, 0, 1}, all[6] = {1, 1, 1, 1, 1, 1};

    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool masked = i < 2;
        op_run run = {.kind = kind_named("Attention")};
        void *out[SONDE__MAX_OPERANDS] = {NULL};
        const float *y = NULL, *p = NULL;

        ADD(&run, SONDE_F32, q, 2, 2);
        ADD(&run, SONDE_F32, k, 3, 2);
        ADD(&run, SONDE_F32, v, 3, 1);
        ADD(&run, SONDE_BOOL, masked ? mask : all, 2, 3);
        assert_true(run_nth(&run, i % 2, out));
        y = out[0];
        p = out[1];
        for (int j = 0; j < 3; j++) {
            assert_true(masked ? p[j] == 0.0F : isnan(p[j]));
        }
        assert_true(masked ? y[0] == 0.0F : isnan(y[0]));
        assert_true(masked ? isfinite(y[1]) && p[4] == 0.0F : isnan(y[1]));
        free(out[0]);
        free(out[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int64_is_compared_exactly),
        cmocka_unit_test(the_gradient_of_an_extreme_is_shared),
        cmocka_unit_test(ids_out_of_range_touch_no_row),
        cmocka_unit_test(padding_idx_is_a_row),
        cmocka_unit_test(a_key_is_refused_by_the_kind_of_a_layer),
        cmocka_unit_test(functions_of_too_few_values_are_refused),
        cmocka_unit_test(a_query_without_keys_has_no_weights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
