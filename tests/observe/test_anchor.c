/*
 * test_anchor.c - what anchors keep, for every mode, shape of call and dtype.
 */
#include "cmocka_all.h"

#include "base/macros.h"
#include "base/random.h"
#include "observe/accumulate.h"
#include "observe/network.h"
#include "observe/session.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>

#include <sonde/error.h>

/* --- the reference's vectors ------------------------------------------------------ */

typedef struct vector {
    int d, g, r;
    sonde_anchor_mode mode;
    int period;
    bool training, axes;
    int rank_in;
    int64_t shape_in[2];
    int rank_out;
    int64_t shape_out[4];
    float values[8]; /* expected; the input is 1, 2, 3 ... */
} vector;

#define ONE_TO_8                                                                         \
    {                                                                                    \
        1, 2, 3, 4, 5, 6, 7, 8                                                           \
    }

static const vector vectors[] = {
    /* Identity in inference, scalars 1 ... 8, D = 8. */
    {8, 1, 1, SONDE_ANCHOR_ALL, 0, false, false, 0, {0}, 1, {8}, ONE_TO_8},
    {8, 1, 1, SONDE_ANCHOR_EVERYN, 4, false, false, 0, {0}, 1, {2}, {4, 8}},
    {8, 1, 1, SONDE_ANCHOR_FINAL, 0, false, false, 0, {0}, 0, {0}, {8}},
    {8, 1, 1, SONDE_ANCHOR_SUM, 0, false, false, 0, {0}, 0, {0}, {36}},
    {8, 1, 1, SONDE_ANCHOR_MEAN, 0, false, false, 0, {0}, 0, {0}, {4.5f}},
    {8, 1, 1, SONDE_ANCHOR_DEFAULT, 0, false, false, 0, {0}, 1, {8}, ONE_TO_8},
    /* Rows of two, D = 4. */
    {4, 1, 1, SONDE_ANCHOR_EVERYN, 2, false, false, 1, {2}, 1, {4}, {3, 4, 7, 8}},
    {4, 1, 1, SONDE_ANCHOR_EVERYN, 2, false, true, 1, {2}, 2, {2, 2}, {3, 4, 7, 8}},
    {4, 1, 1, SONDE_ANCHOR_FINAL, 0, false, false, 1, {2}, 1, {2}, {7, 8}},
    {4, 1, 1, SONDE_ANCHOR_SUM, 0, false, false, 1, {2}, 1, {2}, {16, 20}},
    {4, 1, 1, SONDE_ANCHOR_MEAN, 0, false, false, 1, {2}, 1, {2}, {4, 5}},
    /* D = 1: every mode gives the input. */
    {1, 1, 1, SONDE_ANCHOR_ALL, 0, false, false, 1, {2}, 1, {2}, {1, 2}},
    {1, 1, 1, SONDE_ANCHOR_EVERYN, 1, false, false, 1, {2}, 1, {2}, {1, 2}},
    {1, 1, 1, SONDE_ANCHOR_FINAL, 0, false, false, 1, {2}, 1, {2}, {1, 2}},
    {1, 1, 1, SONDE_ANCHOR_SUM, 0, false, false, 1, {2}, 1, {2}, {1, 2}},
    {1, 1, 1, SONDE_ANCHOR_MEAN, 0, false, false, 1, {2}, 1, {2}, {1, 2}},
    {1, 1, 1, SONDE_ANCHOR_ALL, 0, false, true, 1, {2}, 1, {2}, {1, 2}},
    {1, 1, 1, SONDE_ANCHOR_ALL, 0, false, false, 0, {0}, 0, {0}, {1}},
    /* R = 2, D = 4, a scalar per replica: rows are iterations, columns replicas. */
    {4, 1, 2, SONDE_ANCHOR_ALL, 0, false, false, 0, {0}, 1, {8}, ONE_TO_8},
    {4, 1, 2, SONDE_ANCHOR_ALL, 0, false, true, 0, {0}, 2, {4, 2}, ONE_TO_8},
    {4, 1, 2, SONDE_ANCHOR_EVERYN, 2, false, false, 0, {0}, 1, {4}, {3, 4, 7, 8}},
    {4, 1, 2, SONDE_ANCHOR_EVERYN, 2, false, true, 0, {0}, 2, {2, 2}, {3, 4, 7, 8}},
    {4, 1, 2, SONDE_ANCHOR_FINAL, 0, false, false, 0, {0}, 1, {2}, {7, 8}},
    {4, 1, 2, SONDE_ANCHOR_SUM, 0, false, false, 0, {0}, 1, {2}, {16, 20}},
    {4, 1, 2, SONDE_ANCHOR_MEAN, 0, false, false, 0, {0}, 1, {2}, {4, 5}},
    {4, 1, 2, SONDE_ANCHOR_SUM, 0, false, true, 0, {0}, 1, {2}, {16, 20}},
    /* Training, D = 2, G = 2, rows of two. */
    {2, 2, 1, SONDE_ANCHOR_ALL, 0, true, true, 1, {2}, 3, {2, 2, 2}, ONE_TO_8},
    {2, 2, 1, SONDE_ANCHOR_ALL, 0, true, false, 1, {2}, 1, {8}, ONE_TO_8},
    {2, 2, 1, SONDE_ANCHOR_EVERYN, 2, true, true, 1, {2}, 2, {2, 2}, {3, 4, 7, 8}},
    {2, 2, 1, SONDE_ANCHOR_EVERYN, 2, true, false, 1, {2}, 1, {4}, {3, 4, 7, 8}},
    {2, 2, 1, SONDE_ANCHOR_FINAL, 0, true, false, 1, {2}, 1, {2}, {7, 8}},
    {2, 2, 1, SONDE_ANCHOR_SUM, 0, true, false, 1, {2}, 1, {2}, {16, 20}},
    {2, 2, 1, SONDE_ANCHOR_MEAN, 0, true, false, 1, {2}, 1, {2}, {4, 5}},
    {2, 2, 1, SONDE_ANCHOR_DEFAULT, 0, true, false, 1, {2}, 1, {2}, {7, 8}},
    {1, 2, 1, SONDE_ANCHOR_SUM, 0, true, false, 1, {2}, 1, {2}, {4, 6}},
    {1, 2, 1, SONDE_ANCHOR_FINAL, 0, true, false, 1, {2}, 1, {2}, {3, 4}},
    {2, 1, 1, SONDE_ANCHOR_SUM, 0, true, false, 1, {2}, 1, {2}, {4, 6}},
    {2, 1, 1, SONDE_ANCHOR_FINAL, 0, true, false, 1, {2}, 1, {2}, {3, 4}},
    /* (B, C) concatenates on B, and is not touched beyond; D, G and R together. */
    {2, 1, 1, SONDE_ANCHOR_ALL, 0, true, false, 2, {1, 2}, 2, {2, 2}, {1, 2, 3, 4}},
    {2, 1, 2, SONDE_ANCHOR_FINAL, 0, true, false, 2, {1, 2}, 2, {2, 2}, {5, 6, 7, 8}},
    {2, 1, 2, SONDE_ANCHOR_SUM, 0, true, true, 2, {1, 2}, 3, {2, 1, 2}, {6, 8, 10, 12}},
    {2, 2, 2, SONDE_ANCHOR_ALL, 0, true, true, 0, {0}, 3, {2, 2, 2}, ONE_TO_8},
    {2, 2, 2, SONDE_ANCHOR_EVERYN, 2, true, true, 0, {0}, 3, {1, 2, 2}, {3, 4, 7, 8}},
};

/* With axes, a D / N of 1 is left out. */
static int drop_ones(const vector *v, int64_t *shape)
{
    int rank = 0;
    const int leading = v->rank_out - v->rank_in;

    for (int i = 0; i < v->rank_out; i++) {
        if (!v->axes || i >= leading || v->shape_out[i] != 1) {
            shape[rank++] = v->shape_out[i];
        }
    }
    return rank;
}

static void the_references_vectors_come_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(vectors); i++) {
        const vector *v = &vectors[i];
        session s = session_of(SONDE_F32, v->rank_in, v->shape_in, v->d, v->g, v->r);
        sonde_anchor_options options = {.size = sizeof options,
                                        .training = v->training,
                                        .mode = SONDE_ANCHOR_DEFAULT};
        float values[16];
        int64_t shape[8];
        const int rank = drop_ones(v, shape);

        for (int k = 0; k < 16; k++) {
            values[k] = (float)(k + 1);
        }
        options.axes = v->axes;
        assert_int_equal(open_session(&s, &options, v->mode, v->period, NULL), SONDE_OK);
        run_call(&s, v->training ? SONDE_MODE_TRAIN : SONDE_MODE_PREDICT,
                 (unsigned char *)values, INT64_MAX);
        expect_view(&s, rank, shape, v->values);
        expect_view(&s, rank, shape, v->values); /* retrieving changes nothing */
        close_session(&s);
    }
}

/* The newest call replaces the value, sums and counters included. */
static void every_call_starts_anew(void **state)
{
    static const sonde_anchor_mode modes[] = {SONDE_ANCHOR_FINAL, SONDE_ANCHOR_EVERYN,
                                              SONDE_ANCHOR_ALL, SONDE_ANCHOR_SUM,
                                              SONDE_ANCHOR_MEAN};
    static const float first[5][2] = {{4}, {2, 4}, {1, 2}, {10}, {2.5f}};
    static const float second[5][2] = {{40}, {20, 40}, {10, 20}, {100}, {25}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(modes); i++) {
        session s = session_of(SONDE_F32, 0, NULL, 4, 1, 1);
        const sonde_anchor_options options = {
            .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
        float a[4] = {1, 2, 3, 4}, b[4] = {10, 20, 30, 40};
        sonde_view got = {0};

        assert_int_equal(open_session(&s, &options, modes[i], 2, NULL), SONDE_OK);
        run_call(&s, SONDE_MODE_TRAIN, (unsigned char *)a, INT64_MAX);
        assert_int_equal(sonde_anchors_get(s.anchors, "a", &got, NULL), SONDE_OK);
        assert_memory_equal(got.data, first[i],
                            sizeof(float) * (i == 1 || i == 2 ? 2 : 1));
        run_call(&s, SONDE_MODE_TRAIN, (unsigned char *)b, INT64_MAX);
        assert_int_equal(sonde_anchors_get(s.anchors, "a", &got, NULL), SONDE_OK);
        assert_memory_equal(got.data, second[i],
                            sizeof(float) * (i == 1 || i == 2 ? 2 : 1));
        close_session(&s);
    }
}

/* A tensor of the update pass has one value a step, whichever micro-batch it comes with.
 */
static void updates_count_once_a_step(void **state)
{
    const sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    const int64_t shape[1] = {2};
    static const float expected[2] = {1, 3};
    session s = session_of(SONDE_F32, 0, NULL, 2, 3, 1);
    float values[2] = {1, 3};

    (void)state;
    s.info.pass = SONDE_PASS_UPDATE;
    assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_ALL, 0, NULL), SONDE_OK);
    sonde_observer_begin_call(s.observer);
    for (int d = 0; d < 2; d++) {
        const sonde_coordinate at = {.mode_step = d, .global_step = d, .iteration = d};
        const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &values[d]);

        assert_true(sonde_observer_begin_step(s.observer,
                                              sonde_observer_get_gate(s.observer), &at));
        sonde_observer_observe(s.observer, 0, &view, NULL, 2, 0);
        sonde_observer_end_step(s.observer);
    }
    expect_view(&s, 1, shape, expected);
    close_session(&s);
}

/* Replicas may deliver in any order, and values may be strided. */
static void places_come_from_coordinates(void **state)
{
    const sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    const int64_t in[1] = {2}, out[1] = {8};
    static const float expected[8] = ONE_TO_8;
    session s = session_of(SONDE_F32, 1, in, 2, 1, 2);
    float values[2][2][3] = {{{1, 0, 2}, {3, 0, 4}}, {{5, 0, 6}, {7, 0, 8}}};

    (void)state;
    assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_ALL, 0, NULL), SONDE_OK);
    sonde_observer_begin_call(s.observer);
    for (int d = 0; d < 2; d++) {
        const sonde_coordinate at = {.mode_step = d, .global_step = d, .iteration = d};

        assert_true(sonde_observer_begin_step(s.observer,
                                              sonde_observer_get_gate(s.observer), &at));
        for (int r = 1; r >= 0; r--) {
            sonde_view view = sonde_view_of(SONDE_F32, 1, in, values[d][r]);

            view.stride[0] = 2;
            sonde_observer_observe(s.observer, 0, &view, NULL, 0, r);
        }
        sonde_observer_end_step(s.observer);
    }
    expect_view(&s, 1, out, expected);
    close_session(&s);
}

/* --- dtypes ----------------------------------------------------------------------- */

/* Sum of D values of every dtype, against the same addition element by element. */
static void sums_are_made_in_the_tensors_dtype(void **state)
{
    (void)state;
    for (int dtype = SONDE_U8; dtype < SONDE_DTYPE_COUNT; dtype++) {
        const sonde_anchor_options options = {
            .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
        const int64_t shape[2] = {3, 700};
        session s = session_of((sonde_dtype)dtype, 2, shape, 3, 1, 1);
        const size_t size = sonde_dtype_size((sonde_dtype)dtype);
        unsigned char *values = calloc(3 * 2100, size);
        sonde_view got = {0};

        for (size_t i = 0; i < (size_t)3 * 2100; i++) {
            const double v = (double)sonde__below(5, (uint64_t)dtype, i, 60) / 3.0;

            sonde_element_set((sonde_dtype)dtype, values + i * size, v);
        }
        assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_SUM, 0, NULL), SONDE_OK);
        run_call(&s, SONDE_MODE_TRAIN, values, INT64_MAX);
        assert_int_equal(sonde_anchors_get(s.anchors, "a", &got, NULL), SONDE_OK);
        for (size_t i = 0; i < 2100; i++) {
            uint64_t sum[2] = {0};

            memcpy(sum, values + i * size, size);
            for (size_t d = 1; d < 3; d++) {
                const double a = sonde_element_get((sonde_dtype)dtype, sum);
                const double b =
                    sonde_element_get((sonde_dtype)dtype, values + (d * 2100 + i) * size);

                sonde_element_set((sonde_dtype)dtype, sum, a + b);
            }
            assert_memory_equal((unsigned char *)got.data + i * size, sum, size);
        }
        close_session(&s);
        free(values);
    }
}

static void sums_of_strided_views_are_the_same(void **state)
{
    static float values[40][50], sum[50 * 40], expected[50 * 40];
    const int64_t shape[2] = {50, 40};
    sonde_view turned = sonde_view_of(SONDE_F32, 2, shape, values);

    (void)state;
    turned.stride[0] = 1;
    turned.stride[1] = 50;
    for (int i = 0; i < 50; i++) {
        for (int j = 0; j < 40; j++) {
            values[j][i] = (float)(i * 100 + j);
            sum[i * 40 + j] = 0.5f;
            expected[i * 40 + j] = values[j][i] + 0.5f;
        }
    }
    sonde__observe_accumulate(sum, &turned);
    assert_memory_equal(sum, expected, sizeof sum);
}

static void integers_wrap(void **state)
{
    const sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    session s = session_of(SONDE_I8, 0, NULL, 2, 1, 1);
    signed char values[2] = {100, 100};
    static const float expected[1] = {-56};

    (void)state;
    assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_SUM, 0, NULL), SONDE_OK);
    run_call(&s, SONDE_MODE_TRAIN, (unsigned char *)values, INT64_MAX);
    expect_view(&s, 0, NULL, expected);
    close_session(&s);
}

/* 2048 + 1 is 2048 in float16: rounding happens at every step, not at the end. */
static void half_precision_rounds_at_every_step(void **state)
{
    static const struct {
        sonde_dtype dtype;
        float first, mean;
    } cases[] = {{SONDE_F16, 2048.0f, 512.0f}, {SONDE_BF16, 256.0f, 64.0f}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        for (int mean = 0; mean < 2; mean++) {
            const sonde_anchor_options options = {
                .size = sizeof options, .training = false, .mode = SONDE_ANCHOR_DEFAULT};
            session s = session_of(cases[i].dtype, 0, NULL, 4, 1, 1);
            const float expected[1] = {mean ? cases[i].mean : cases[i].first};
            uint16_t values[4];

            for (int k = 0; k < 4; k++) {
                sonde_element_set(cases[i].dtype, &values[k],
                                  k == 0 ? (double)cases[i].first : 1.0);
            }
            assert_int_equal(open_session(&s, &options,
                                          mean ? SONDE_ANCHOR_MEAN : SONDE_ANCHOR_SUM, 0,
                                          NULL),
                             SONDE_OK);
            run_call(&s, SONDE_MODE_EVAL, (unsigned char *)values, INT64_MAX);
            expect_view(&s, 0, NULL, expected);
            close_session(&s);
        }
    }
}

static void nan_stays_nan(void **state)
{
    const sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    session s = session_of(SONDE_F64, 0, NULL, 3, 1, 1);
    double values[3] = {1.0, (double)NAN, 2.0};
    sonde_view got = {0};
    double mean = 0.0;

    (void)state;
    assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_MEAN, 0, NULL), SONDE_OK);
    run_call(&s, SONDE_MODE_TRAIN, (unsigned char *)values, INT64_MAX);
    assert_int_equal(sonde_anchors_get(s.anchors, "a", &got, NULL), SONDE_OK);
    memcpy(&mean, got.data, sizeof mean);
    assert_true(isnan(mean));
    close_session(&s);
}

static void empty_tensors_are_kept(void **state)
{
    const sonde_anchor_options options = {
        .size = sizeof options, .training = false, .mode = SONDE_ANCHOR_DEFAULT};
    const int64_t in[2] = {0, 3}, out[2] = {0, 3};
    session s = session_of(SONDE_F32, 2, in, 4, 1, 1);
    float none[1] = {0};

    (void)state;
    assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_ALL, 0, NULL), SONDE_OK);
    run_call(&s, SONDE_MODE_EVAL, (unsigned char *)none, INT64_MAX);
    expect_view(&s, 2, out, none);
    close_session(&s);
}

/* --- several anchors -------------------------------------------------------------- */

/* Three anchors of one tensor and one of its alias, each with its own mode. */
static void anchors_share_tensors(void **state)
{
    sonde_catalogue *catalogue = net_create();
    const sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    const sonde_call_shape shape = {2, 1, 1};
    const int64_t in[2] = {2, 4};
    sonde_observer *observer = NULL;
    sonde_anchors *anchors = NULL;
    sonde_view all, final, sum, alias;
    float values[8] = ONE_TO_8;
    const sonde_view view = sonde_view_of(SONDE_F32, 2, in, values);

    (void)state;
    assert_int_equal(sonde_observer_create(catalogue, &observer, NULL), SONDE_OK);
    assert_int_equal(sonde_anchors_create(&options, &anchors, NULL), SONDE_OK);
    assert_int_equal(
        sonde_anchors_add(anchors, "all", "relu_output", SONDE_ANCHOR_ALL, 0, NULL),
        SONDE_OK);
    assert_int_equal(sonde_anchors_add(anchors, "final", "model.relu_output_0",
                                       SONDE_ANCHOR_DEFAULT, 0, NULL),
                     SONDE_OK);
    assert_int_equal(
        sonde_anchors_add(anchors, "sum", "relu_output_0", SONDE_ANCHOR_SUM, 0, NULL),
        SONDE_OK);
    assert_int_equal(
        sonde_anchors_add(anchors, "alias", "fc1_input_0", SONDE_ANCHOR_ALL, 0, NULL),
        SONDE_OK);
    assert_non_null(sonde_anchors_name(anchors, 3));
    assert_null(sonde_anchors_name(anchors, 4));
    assert_string_equal(sonde_anchors_name(anchors, 1), "final");
    assert_int_equal(sonde_anchors_attach(anchors, catalogue, observer, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &shape, NULL), SONDE_OK);
    alloc_failure_begin(0); /* nothing allocates from here on */
    sonde_observer_begin_call(observer);
    for (int d = 0; d < 2; d++) {
        const sonde_coordinate at = {.mode_step = d, .global_step = d, .iteration = d};

        assert_true(
            sonde_observer_begin_step(observer, sonde_observer_get_gate(observer), &at));
        sonde_observer_observe(observer, NET_RELU_OUT, &view, NULL, 0, 0);
        sonde_observer_end_step(observer);
    }
    assert_int_equal(sonde_anchors_get(anchors, "all", &all, NULL), SONDE_OK);
    assert_int_equal(sonde_anchors_get(anchors, "final", &final, NULL), SONDE_OK);
    assert_int_equal(sonde_anchors_get(anchors, "sum", &sum, NULL), SONDE_OK);
    assert_int_equal(sonde_anchors_get(anchors, "alias", &alias, NULL), SONDE_OK);
    assert_int_equal(alloc_failure_count, 0);
    (void)alloc_failure_end();
    assert_int_equal(all.shape[0], 4);
    assert_int_equal(final.shape[0], 2);
    assert_int_equal(alias.shape[0], 4);
    assert_true(((float *)sum.data)[7] == 16.0f);
    assert_memory_equal(alias.data, all.data, 16 * sizeof(float));
    sonde_observer_destroy(observer);
    sonde_anchors_destroy(anchors);
    sonde_catalogue_destroy(catalogue);
}

/* An anchor without a mode has that of the outputs, period included. */
static void outputs_lend_their_mode(void **state)
{
    sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    session s = session_of(SONDE_F32, 0, NULL, 4, 1, 1);
    const int64_t shape[1] = {2};
    static const float expected[2] = {2, 4};
    float values[4] = {1, 2, 3, 4};

    (void)state;
    options.mode = SONDE_ANCHOR_EVERYN;
    options.period = 2;
    assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_DEFAULT, 0, NULL), SONDE_OK);
    run_call(&s, SONDE_MODE_TRAIN, (unsigned char *)values, INT64_MAX);
    expect_view(&s, 1, shape, expected);
    close_session(&s);
}

/* A training set keeps nothing of evaluation, and the other way round. */
static void modes_of_running_are_kept_apart(void **state)
{
    (void)state;
    for (int training = 0; training < 2; training++) {
        const sonde_anchor_options options = {
            .size = sizeof options, .training = training, .mode = SONDE_ANCHOR_DEFAULT};
        session s = session_of(SONDE_F32, 0, NULL, 1, 1, 1);
        float value[1] = {1};
        sonde_view got;

        assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_FINAL, 0, NULL),
                         SONDE_OK);
        run_call(&s, training ? SONDE_MODE_EVAL : SONDE_MODE_TRAIN,
                 (unsigned char *)value, INT64_MAX);
        assert_int_equal(sonde_anchors_get(s.anchors, "a", &got, NULL), SONDE_ESTATE);
        close_session(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_references_vectors_come_out),
        cmocka_unit_test(every_call_starts_anew),
        cmocka_unit_test(updates_count_once_a_step),
        cmocka_unit_test(places_come_from_coordinates),
        cmocka_unit_test(sums_are_made_in_the_tensors_dtype),
        cmocka_unit_test(sums_of_strided_views_are_the_same),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(half_precision_rounds_at_every_step),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(empty_tensors_are_kept),
        cmocka_unit_test(anchors_share_tensors),
        cmocka_unit_test(outputs_lend_their_mode),
        cmocka_unit_test(modes_of_running_are_kept_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
