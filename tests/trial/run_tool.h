/*
 * run_tool.h - a small run whose every element is known, for the tests of exports and of
 * the commands that read runs; also as a tool:
 *
 *     make RUN [world=2] [rank=1] [blocks=4] [pause=5] [compress=1] [crash=1] [resume=20]
 *
 * resume=N resumes the existing run at that global step. A block is ten steps of
 * training and two of evaluation. Element i of tensor t at global step s in micro-batch
 * b is ((7 i + 3 s + 11 t + 5 b + 13 rank) mod 19 - 9) / 8: exact in every floating
 * dtype; integers are eight times that, a bool is whether it is above 0.
 *
 *     t  name                      dtype     shape         recorded
 *     0  loss                      float32   ()            raw, every step, also eval
 *     1  conv1.weight              float32   (5, 1, 3, 3)  raw every 5th step, vital signs
 *                                                          every step of training
 *     2  Gradient___conv1.weight   float32   (5, 1, 3, 3)  raw every 10th, sketch every 5th,
 *                                                          vital signs every step
 *     3  fc.bias                   bfloat16  (4)           raw every 10th
 *     4  act                       float16   (2, 3)        raw every 10th, two micro-batches
 *     5  counter                   int64     (2)           raw every 10th
 *     6  mask                      bool      (3)           raw every 10th
 *     7  scalar/"odd", é           float64   ()            raw every 10th
 *
 * Tensors 1 and 3 are in the collection "mine". ("every 10th" counts steps of training.)
 * At training step 20 the gradient's elements 0, 1 and 2 are NaN, +Inf and 0.
 */
#ifndef SONDE_TESTS_RUN_TOOL_H
#define SONDE_TESTS_RUN_TOOL_H

#include "record/record_sink.h"
#include <sonde/recorder.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RUN_TRAIN = 10, RUN_EVAL = 2, RUN_TENSORS = 8, RUN_MOST_ELEMENTS = 45 };

typedef struct run_shape {
    const char *name;
    sonde_role role;
    sonde_dtype dtype;
    int rank;
    int64_t shape[4];
    int raw, vitals, sketch; /* every so many steps of training; 0: never */
    int micro_batches;
} run_shape;

static const run_shape run_tensors[RUN_TENSORS] = {
    {"loss", SONDE_ROLE_LOSS, SONDE_F32, 0, {0}, 1, 0, 0, 1},
    {"conv1.weight", SONDE_ROLE_WEIGHT, SONDE_F32, 4, {5, 1, 3, 3}, 5, 1, 0, 1},
    {"Gradient___conv1.weight",
     SONDE_ROLE_GRADIENT,
     SONDE_F32,
     4,
     {5, 1, 3, 3},
     10,
     1,
     5,
     1},
    {"fc.bias", SONDE_ROLE_BIAS, SONDE_BF16, 1, {4}, 10, 0, 0, 1},
    {"act", SONDE_ROLE_ACTIVATION, SONDE_F16, 2, {2, 3}, 10, 0, 0, 2},
    {"counter", SONDE_ROLE_BUFFER, SONDE_I64, 1, {2}, 10, 0, 0, 1},
    {"mask", SONDE_ROLE_BUFFER, SONDE_BOOL, 1, {3}, 10, 0, 0, 1},
    {"scalar/\"odd\", \xC3\xA9", SONDE_ROLE_SCALAR, SONDE_F64, 0, {0}, 10, 0, 0, 1},
};

typedef struct run_options {
    int world, rank, blocks, pause; /* milliseconds after each step */
    int compress, crash, resume;    /* resume 0: a new run */
    int hold;                       /* before this step, until there is a file RUN.go */
} run_options;

static inline double run_element(int tensor, int64_t step, int micro_batch, int rank,
                                 int64_t i)
{
    const int64_t seed = 7 * i + 3 * step + 11 * tensor + 5 * micro_batch + 13 * rank;

    return (double)(seed % 19 - 9) / 8.0;
}

/* The elements of a tensor at a step; as many as its shape has. */
static inline sonde_view run_view(int tensor, const sonde_coordinate *at, int rank,
                                  unsigned char *room)
{
    const run_shape *t = &run_tensors[tensor];
    const sonde_view view = sonde_view_of(t->dtype, t->rank, t->shape, room);
    const size_t size = sonde_dtype_size(t->dtype);

    for (int64_t i = 0; i < sonde_view_count(&view); i++) {
        double x = run_element(tensor, at->global_step, at->micro_batch, rank, i);

        if (tensor == 2 && at->mode == SONDE_MODE_TRAIN && at->mode_step == 20 && i < 3) {
            x = i == 0 ? (double)NAN : i == 1 ? (double)INFINITY : 0.0;
        }
        x = t->dtype == SONDE_I64 ? 8.0 * x : t->dtype == SONDE_BOOL ? x > 0.0 : x;
        sonde_element_set(t->dtype, room + (size_t)i * size, x);
    }
    return view;
}

static inline bool run_is_due(int every, const sonde_coordinate *at)
{
    return every > 0 && at->mode_step % every == 0;
}

static inline void run_put(sonde_recorder *recorder, int tensor, sonde_coordinate at,
                           int rank)
{
    const run_shape *t = &run_tensors[tensor];
    _Alignas(8) unsigned char room[RUN_MOST_ELEMENTS * 8];
    static sonde_sketch sketch;
    sonde_vitals vitals;

    if (at.mode != SONDE_MODE_TRAIN && tensor != 0) {
        return;
    }
    for (at.micro_batch = 0; at.micro_batch < t->micro_batches; at.micro_batch++) {
        const sonde_view view = run_view(tensor, &at, rank, room);

        if (run_is_due(t->raw, &at)) {
            sonde__recorder_put(recorder, (uint32_t)tensor, &at, &view);
        }
        if (run_is_due(t->vitals, &at)) {
            sonde_vitals_of(&view, &vitals);
            sonde__recorder_put_vitals(recorder, (uint32_t)tensor, &at, &vitals);
        }
        if (run_is_due(t->sketch, &at)) {
            sonde_sketch_init(&sketch);
            sonde_sketch_add(&sketch, &view);
            sonde__recorder_put_sketch(recorder, (uint32_t)tensor, &at, &sketch);
        }
    }
}

static inline void run_pause(int milliseconds)
{
    const struct timespec pause = {.tv_sec = milliseconds / 1000,
                                   .tv_nsec = milliseconds % 1000 * 1000000L};

    if (milliseconds > 0) {
        (void)nanosleep(&pause, NULL);
    }
}

/* For two minutes at most. */
static inline void run_hold(const char *path)
{
    char name[512];

    (void)snprintf(name, sizeof name, "%s.go", path);
    for (int i = 0; i < 12000 && access(name, F_OK) != 0; i++) {
        run_pause(10);
    }
}

static inline void run_steps(sonde_recorder *recorder, const char *path,
                             const run_options *options)
{
    sonde_coordinate at = {.global_step = 0};
    int64_t steps[SONDE_MODE_COUNT] = {0};

    for (int block = 0; block < options->blocks; block++) {
        for (int k = 0; k < RUN_TRAIN + RUN_EVAL; k++) {
            at.mode = k < RUN_TRAIN ? SONDE_MODE_TRAIN : SONDE_MODE_EVAL;
            at.mode_step = steps[at.mode]++;
            if (options->hold > 0 && at.global_step == options->hold) {
                run_hold(path);
            }
            if (at.global_step >= options->resume) {
                for (int t = 0; t < RUN_TENSORS; t++) {
                    run_put(recorder, t, at, options->rank);
                }
                sonde__recorder_end_step(recorder, &at);
                run_pause(options->pause);
            }
            at.global_step++;
        }
    }
}

static inline sonde_err run_declare(sonde_catalogue **catalogue, sonde_diag *diag)
{
    sonde_err err = sonde_catalogue_create(catalogue, diag);

    for (int t = 0; err == SONDE_OK && t < RUN_TENSORS; t++) {
        sonde_tensor_info info = {.name = run_tensors[t].name,
                                  .role = run_tensors[t].role,
                                  .module = t == 1 ? "conv1" : "",
                                  .dtype = run_tensors[t].dtype,
                                  .rank = run_tensors[t].rank,
                                  .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        memcpy(info.shape, run_tensors[t].shape, sizeof run_tensors[t].shape);
        err = sonde_catalogue_declare(*catalogue, &info, &id, diag);
    }
    return err;
}

/* The id in run.json; "" if there is none. */
static inline void run_find_id(const char *path, char id[33])
{
    char name[512], text[512] = "";
    const char *at = NULL;
    FILE *file = NULL;

    (void)snprintf(name, sizeof name, "%s/run.json", path);
    file = fopen(name, "r");
    if (file != NULL) {
        (void)!fgets(text, sizeof text, file);
        (void)fclose(file);
    }
    at = strstr(text, "\"id\":\"");
    (void)snprintf(id, 33, "%s", at != NULL ? at + 6 : "");
}

/* Records the run. With crash, the process ends as if it had been killed. */
static inline sonde_err run_make(const char *path, const run_options *asked,
                                 sonde_diag *diag)
{
    char id[33];
    const sonde_recorder_options options = {.size = sizeof options,
                                            .path = path,
                                            .rank = asked->rank,
                                            .world = asked->world,
                                            .resume = asked->resume > 0 ? id : NULL,
                                            .resume_mode = SONDE_MODE_GLOBAL,
                                            .resume_step = asked->resume,
                                            .compress = asked->compress != 0,
                                            .program = "the tests",
                                            .model = "small"};
    sonde_catalogue *catalogue = NULL;
    sonde_recorder *recorder = NULL;
    sonde_err err = run_declare(&catalogue, diag);

    run_find_id(path, id);
    if (err == SONDE_OK) {
        err = sonde__recorder_create(&options, catalogue, &recorder, diag);
    }
    for (uint32_t t = 1; err == SONDE_OK && t < 4; t += 2) {
        static const char *const mine[] = {"mine"};

        err = sonde__recorder_collections(recorder, t, mine, 1, diag);
    }
    if (err == SONDE_OK) {
        run_steps(recorder, path, asked);
        if (asked->crash != 0) {
            (void)sonde__recorder_drain(recorder, 60.0);
            _exit(0);
        }
        err = sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "as planned", diag);
    }
    sonde_catalogue_destroy(catalogue);
    return err;
}

/* "key=number" into an option; false if it is none. */
static inline bool run_option(run_options *options, const char *text)
{
    const struct {
        const char *key;
        int *value;
    } known[] = {{"world=", &options->world},       {"rank=", &options->rank},
                 {"blocks=", &options->blocks},     {"pause=", &options->pause},
                 {"compress=", &options->compress}, {"crash=", &options->crash},
                 {"resume=", &options->resume},     {"hold=", &options->hold}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strncmp(text, known[i].key, strlen(known[i].key)) == 0) {
            *known[i].value = (int)strtol(text + strlen(known[i].key), NULL, 10);
            return true;
        }
    }
    return false;
}

static inline int run_as_tool(int argc, char **argv)
{
    run_options options = {.world = 1, .blocks = 4};
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    if (argc < 3 || strcmp(argv[1], "make") != 0) {
        (void)fprintf(stderr, "usage: %s make RUN [KEY=NUMBER]...\n", argv[0]);
        return 2;
    }
    for (int i = 3; i < argc; i++) {
        if (!run_option(&options, argv[i])) {
            (void)fprintf(stderr, "unknown option %s\n", argv[i]);
            return 2;
        }
    }
    if (run_make(argv[2], &options, &diag) != SONDE_OK) {
        (void)fprintf(stderr, "error: %s\n", sonde_diag_line(&diag, line, sizeof line));
        return 2;
    }
    return 0;
}

#endif
