/*
 * feed.h - a producer by hand for the tests of outfeed queues: a weight "w" (2), a
 * scalar "s", their gradients, accumulated gradients and updates; every value is a
 * number that says where it comes from.
 */
#ifndef SONDE_TESTS_OBSERVE_FEED_H
#define SONDE_TESTS_OBSERVE_FEED_H

#include "cmocka_all.h"

#include "observe/network.h"

#include <sonde/error.h>
#include <sonde/log.h>
#include <sonde/observer.h>
#include <sonde/outfeed.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    FEED_W,
    FEED_S,
    FEED_OUT,
    FEED_GRAD_S,
    FEED_GRAD_W,
    FEED_ACCUM_S,
    FEED_ACCUM_W,
    FEED_UPDATED_W,
    FEED_COUNT
};

static const struct {
    const char *name;
    sonde_role role;
    sonde_pass pass;
    int rank;
} feed_tensors[FEED_COUNT] = {
    {"w", SONDE_ROLE_WEIGHT, SONDE_PASS_NONE, 1},
    {"s", SONDE_ROLE_BIAS, SONDE_PASS_NONE, 0},
    {"out", SONDE_ROLE_OUTPUT, SONDE_PASS_FORWARD, 1},
    {"Gradient___s", SONDE_ROLE_GRADIENT, SONDE_PASS_BACKWARD, 0},
    {"Gradient___w", SONDE_ROLE_GRADIENT, SONDE_PASS_BACKWARD, 1},
    {"Accum___s", SONDE_ROLE_GRADIENT, SONDE_PASS_BACKWARD, 0},
    {"Accum___w", SONDE_ROLE_GRADIENT, SONDE_PASS_BACKWARD, 1},
    {"UpdatedVar___w", SONDE_ROLE_UPDATE, SONDE_PASS_UPDATE, 1},
};

typedef struct feed {
    sonde_catalogue *catalogue;
    sonde_observer *observer;
    sonde_outfeed *queue;
    sonde_call_shape shape;
    int64_t step;
    uint32_t skip; /* a tensor that is not observed; FEED_COUNT: none */
    bool accumulates;
} feed;

static inline sonde_outfeed_options feed_options(int64_t rows, sonde_outfeed_full full,
                                                 sonde_outfeed_per per)
{
    return (sonde_outfeed_options){.size = sizeof(sonde_outfeed_options),
                                   .name = "q",
                                   .rows = rows,
                                   .when_full = full,
                                   .per = per};
}

/* Without accumulation the accumulated gradients are something else. */
static inline const char *feed_name(const feed *f, int id)
{
    if (!f->accumulates && (id == FEED_ACCUM_S || id == FEED_ACCUM_W)) {
        return id == FEED_ACCUM_S ? "unused/0" : "unused/1";
    }
    return feed_tensors[id].name;
}

/* Everything but the tensors: add them, then feed_bind. */
static inline sonde_err feed_open(feed *f, const sonde_outfeed_options *options,
                                  sonde_call_shape shape)
{
    sonde_err err = SONDE_OK;
    uint32_t id = 0;

    *f = (feed){.shape = shape, .skip = FEED_COUNT};
    f->accumulates = shape.micro_batches > 1;
    err = sonde_catalogue_create(&f->catalogue, NULL);
    for (int i = 0; i < FEED_COUNT && err == SONDE_OK; i++) {
        const sonde_tensor_info info = {.name = feed_name(f, i),
                                        .role = feed_tensors[i].role,
                                        .pass = feed_tensors[i].pass,
                                        .dtype = SONDE_F32,
                                        .rank = feed_tensors[i].rank,
                                        .shape = {2},
                                        .same_as = SONDE_NO_TENSOR};

        err = sonde_catalogue_declare(f->catalogue, &info, &id, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_observer_create(f->catalogue, &f->observer, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_outfeed_create(options, &f->queue, NULL);
    }
    return err;
}

static inline sonde_err feed_bind(feed *f, sonde_diag *diag)
{
    sonde_err err = sonde_outfeed_attach(f->queue, f->catalogue, f->observer, diag);

    if (err == SONDE_OK) {
        err = sonde_observer_bind(f->observer, &f->shape, diag);
    }
    return err;
}

static inline void feed_close(feed *f)
{
    sonde_observer_destroy(f->observer);
    sonde_outfeed_destroy(f->queue);
    sonde_catalogue_destroy(f->catalogue);
}

/* 1000 id + 100 step + 10 micro-batch + replica, and a half more in element 1. */
static inline float feed_value(uint32_t id, int64_t step, int g, int r)
{
    return (float)(1000 * (int64_t)id + 100 * step + 10 * g + r);
}

static inline void feed_observe(const feed *f, uint32_t id, int64_t step, int g, int r)
{
    float values[2] = {feed_value(id, step, g, r), feed_value(id, step, g, r) + 0.5F};
    const int64_t shape[1] = {2};
    const sonde_view view =
        sonde_view_of(SONDE_F32, feed_tensors[id].rank, shape, values);

    if (id != f->skip &&
        sonde_observer_wants(sonde_observer_get_gate(f->observer), id) != 0) {
        sonde_observer_observe(f->observer, id, &view, NULL, g, r);
    }
}

/* One step of all its micro-batches and replicas, tensors replica by replica. */
static inline void feed_step(feed *f)
{
    const int64_t step = f->step++;
    const sonde_coordinate at = {.mode_step = step, .global_step = step};

    if (!sonde_observer_begin_step(f->observer, sonde_observer_get_gate(f->observer),
                                   &at)) {
        return;
    }
    for (int g = 0; g < f->shape.micro_batches; g++) {
        const bool last = g + 1 == f->shape.micro_batches;

        for (uint32_t id = 0; id < FEED_COUNT; id++) {
            for (int r = 0; r < f->shape.replicas; r++) {
                if (id != FEED_UPDATED_W || last) {
                    feed_observe(f, id, step, g, r);
                }
            }
        }
    }
    sonde_observer_end_step(f->observer);
}

static inline void feed_steps(feed *f, int count)
{
    sonde_observer_begin_call(f->observer);
    for (int i = 0; i < count; i++) {
        feed_step(f);
    }
}

static inline sonde_outfeed_batch feed_take(feed *f)
{
    sonde_outfeed_batch batch = {0};

    assert_int_equal(sonde_outfeed_dequeue(f->queue, &batch, NULL), SONDE_OK);
    return batch;
}

static inline float feed_number(const sonde_outfed *item, int64_t i)
{
    return ((const float *)item->value.data)[i];
}

static inline void feed_expect_shape(const sonde_outfed *item, const char *key,
                                     const char *want)
{
    char text[128];

    assert_string_equal(item->key, key);
    assert_string_equal(
        sonde_shape_text(item->value.rank, item->value.shape, text, sizeof text), want);
    assert_true(sonde_view_is_contiguous(&item->value));
}

/* --- what is logged --------------------------------------------------------------- */

static int feed_warnings, feed_errors;
static char feed_message[512];

static inline void feed_keep_message(void *user, sonde_log_level level, const char *room,
                                     const char *message)
{
    (void)user;
    (void)room;
    feed_warnings += level == SONDE_LOG_WARNING;
    feed_errors += level == SONDE_LOG_ERROR;
    (void)snprintf(feed_message, sizeof feed_message, "%s", message);
}

static inline void feed_listen(void)
{
    feed_warnings = 0;
    feed_errors = 0;
    sonde_log_set_level(SONDE_LOG_INFO);
    sonde_log_set_sink(feed_keep_message, NULL);
}

#endif
