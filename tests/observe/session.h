/*
 * session.h - a session of one tensor "x" with one anchor "a", for the tests of anchors.
 * Observations are fed by hand: micro-batch k of a call holds the next of the values
 * given.
 */
#ifndef SONDE_TESTS_OBSERVE_SESSION_H
#define SONDE_TESTS_OBSERVE_SESSION_H

#include "cmocka_all.h"

#include <sonde/anchor.h>

#include <string.h>

/* --- a session of one tensor ------------------------------------------------------ */

typedef struct session {
    sonde_catalogue *catalogue;
    sonde_observer *observer;
    sonde_anchors *anchors;
    sonde_tensor_info info;
    sonde_call_shape shape;
    int64_t step;
} session;

static inline session session_of(sonde_dtype dtype, int rank, const int64_t *shape, int d,
                                 int g, int r)
{
    session s = {.info = {.name = "x",
                          .role = SONDE_ROLE_OUTPUT,
                          .pass = SONDE_PASS_FORWARD,
                          .dtype = dtype,
                          .rank = rank,
                          .same_as = SONDE_NO_TENSOR},
                 .shape = {d, g, r}};

    if (rank > 0) {
        memcpy(s.info.shape, shape, (size_t)rank * sizeof shape[0]);
    }
    return s;
}

/* Opens a session with one anchor, "a", on its tensor; the error of whichever step fails.
 */
static inline sonde_err open_session(session *s, const sonde_anchor_options *options,
                                     sonde_anchor_mode mode, int period, sonde_diag *diag)
{
    uint32_t id = 0;
    sonde_err err = sonde_catalogue_create(&s->catalogue, diag);

    if (err == SONDE_OK) {
        err = sonde_catalogue_declare(s->catalogue, &s->info, &id, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_observer_create(s->catalogue, &s->observer, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_anchors_create(options, &s->anchors, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_anchors_add(s->anchors, "a", "x", mode, period, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_anchors_attach(s->anchors, s->catalogue, s->observer, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_observer_bind(s->observer, &s->shape, diag);
    }
    return err;
}

static inline void close_session(session *s)
{
    sonde_observer_destroy(s->observer);
    sonde_anchors_destroy(s->anchors);
    sonde_catalogue_destroy(s->catalogue);
}

/* A call: its values lie one after the other at data, in flat order. Stops before the
 * micro- batch of that flat index. */
static inline void run_call(session *s, sonde_mode mode, unsigned char *data,
                            int64_t stop)
{
    const sonde_observer_gate *gate = sonde_observer_get_gate(s->observer);
    sonde_view view = sonde_view_of(s->info.dtype, s->info.rank, s->info.shape, data);
    const size_t bytes =
        (size_t)sonde_view_count(&view) * sonde_dtype_size(s->info.dtype);
    int64_t k = 0;

    sonde_observer_begin_call(s->observer);
    for (int d = 0; d < s->shape.iterations; d++) {
        const sonde_coordinate at = {
            .mode = mode, .mode_step = s->step, .global_step = s->step, .iteration = d};

        s->step++;
        if (!sonde_observer_begin_step(s->observer, gate, &at)) {
            continue;
        }
        for (int g = 0; g < s->shape.micro_batches; g++) {
            for (int r = 0; r < s->shape.replicas && k < stop; r++) {
                view.data = data + (size_t)k++ * bytes;
                assert_true(sonde_observer_wants(gate, 0));
                sonde_observer_observe(s->observer, 0, &view, NULL, g, r);
            }
        }
        sonde_observer_end_step(s->observer);
    }
}

static inline void expect_view(session *s, int rank, const int64_t *shape,
                               const float *values)
{
    sonde_view got = {0};

    assert_int_equal(sonde_anchors_get(s->anchors, "a", &got, NULL), SONDE_OK);
    assert_int_equal(got.dtype, s->info.dtype);
    assert_int_equal(got.rank, rank);
    for (int i = 0; i < rank; i++) {
        assert_int_equal(got.shape[i], shape[i]);
    }
    assert_true(sonde_view_is_contiguous(&got));
    for (int64_t i = 0; i < sonde_view_count(&got); i++) {
        const unsigned char *element =
            (unsigned char *)got.data + (size_t)i * sonde_dtype_size(got.dtype);

        assert_true(sonde_element_get(got.dtype, element) == (double)values[i]);
    }
}

#endif
