/*
 * test_recorder_run.c - the files of a run as a whole, options, and what makes no sense.
 */
#include "record/run_dir.h"
#include "base/macros.h"
#include "record/record_sink.h"

#include <math.h>
#include <pthread.h>

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));

    assert_non_null(text);
    return text;
}

/* --- run.json, state.json, end.json ----------------------------------------------- */

static void the_run_says_what_it_is(void **state)
{
    static const char *const reasons[] = {"finished", "interrupted", "failed", "rule"};
    char path[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(1, 4);
    json_t *run = NULL, *end = NULL;
    const sonde_recorder_options options = {.size = sizeof options,
                                            .path = run_path(path, "says"),
                                            .program = "a \"program\"",
                                            .model = "net",
                                            .graph = "0123456789abcdef",
                                            .save = " { \"every\" : 10 } "};
    float x[4] = {0};
    const int64_t shape = 4;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    const sonde_coordinate at = run_at(41);

    (void)state;
    for (int reason = 0; reason < 4; reason++) {
        sonde_recorder *recorder = NULL;

        run_remove(path);
        recorder = run_create(&options, catalogue);
        run = run_json(path, "run.json");
        assert_int_equal(json_integer_value(json_object_get(run, "sonde_run")), 1);
        assert_int_equal(json_integer_value(json_object_get(run, "world")), 1);
        assert_string_equal(text_of(run, "program"), options.program);
        assert_string_equal(text_of(run, "model"), "net");
        assert_string_equal(text_of(run, "graph"), options.graph);
        assert_int_equal(strlen(text_of(run, "created")),
                         strlen("2026-01-31T12:00:00.000000Z"));
        assert_int_equal(
            json_integer_value(json_object_get(json_object_get(run, "save"), "every")),
            10);
        json_decref(run);
        assert_int_equal(strspn(run_id(path, id), "0123456789abcdef"), 32);
        run = run_json(path, "w0000/state.json");
        assert_string_equal(text_of(run, "status"), "running");
        assert_int_equal(json_integer_value(json_object_get(run, "pid")), getpid());
        assert_int_equal(json_integer_value(json_object_get(run, "last_step")), -1);
        json_decref(run);
        assert_false(run_has(path, "end.json"));
        sonde__recorder_put(recorder, 0, &at, &view);
        sonde__recorder_end_step(recorder, &at);
        assert_int_equal(
            sonde__recorder_close(recorder, (sonde_run_end)reason, "so \"be\" it", NULL),
            SONDE_OK);
        end = run_json(path, "end.json");
        assert_string_equal(text_of(end, "reason"), reasons[reason]);
        assert_string_equal(text_of(end, "text"), "so \"be\" it");
        assert_int_equal(json_integer_value(json_object_get(end, "last_step")), 41);
        json_decref(end);
        run = run_json(path, "w0000/state.json");
        assert_string_equal(text_of(run, "status"), "ended");
        assert_int_equal(json_integer_value(json_object_get(run, "records")), 1);
        assert_int_equal(json_integer_value(json_object_get(run, "bytes")), 16);
        assert_int_equal(json_integer_value(json_object_get(run, "segment")), 1);
        json_decref(run);
    }
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

typedef struct opener {
    const char *path;
    const sonde_catalogue *catalogue;
    sonde_recorder *recorder;
    sonde_err err;
} opener;

static void *open_run(void *user)
{
    opener *const one = user;

    one->err = sonde__recorder_create(
        SONDE_OPTIONS(sonde_recorder, .path = one->path, .ring_bytes = 64 * 1024),
        one->catalogue, &one->recorder, NULL);
    return NULL;
}

/* Threads of one process that open the same new run: one succeeds, the others hear that
 * a run is there. */
static void one_of_many_threads_opens_a_run(void **state)
{
    enum { THREADS = 6, ROUNDS = 12 };
    char path[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(1, 4);

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        opener openers[THREADS];
        pthread_t threads[THREADS];
        int opened = 0;

        (void)run_path(path, "threads");
        for (int i = 0; i < THREADS; i++) {
            openers[i] = (opener){.path = path, .catalogue = catalogue};
            assert_int_equal(pthread_create(&threads[i], NULL, open_run, &openers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            opened += openers[i].err == SONDE_OK;
            assert_true(openers[i].err == SONDE_OK || openers[i].err == SONDE_EEXIST);
        }
        assert_int_equal(opened, 1);
        assert_int_equal(strspn(run_id(path, id), "0123456789abcdef"), 32);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(sonde__recorder_close(openers[i].recorder,
                                                   SONDE_RUN_FINISHED, NULL, NULL),
                             SONDE_OK);
        }
    }
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* --- what makes no sense ---------------------------------------------------------- */

static void senseless_puts_are_counted(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, 4);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "bad")), catalogue);
    float x[4] = {0};
    const int64_t shape = 4;
    const sonde_view good = sonde_view_of(SONDE_F32, 1, &shape, x);
    sonde_view bad = good;
    sonde_coordinate at = run_at(0);
    sonde_recorder_stats stats;
    sonde_diag diag = {0};

    (void)state;
    sonde__recorder_put(recorder, 1, &at, &good);
    bad.dtype = (sonde_dtype)99;
    sonde__recorder_put(recorder, 0, &at, &bad);
    bad = good;
    bad.rank = 9;
    sonde__recorder_put(recorder, 0, &at, &bad);
    bad = good;
    bad.shape[0] = -1;
    sonde__recorder_put(recorder, 0, &at, &bad);
    at.micro_batch = -1;
    sonde__recorder_put(recorder, 0, &at, &good);
    at.micro_batch = 0;
    at.replica = 65536;
    sonde__recorder_put(recorder, 0, &at, &good);
    at.replica = 0;
    at.mode = (sonde_mode)7;
    sonde__recorder_put(recorder, 0, &at, &good);
    sonde__recorder_end_step(recorder, &at);
    at.mode = SONDE_MODE_TRAIN;
    sonde__recorder_put(recorder, 0, &at, &good);
    assert_true(sonde__recorder_drain(recorder, 60));
    sonde__recorder_get_stats(recorder, &stats);
    assert_int_equal(stats.records, 1);
    assert_int_equal(stats.lost_io_error, 7);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", &diag),
                     SONDE_EIO);
    assert_non_null(strstr(diag.found, "7 to other errors"));
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void an_unknown_reason_is_an_error(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, 4);
    sonde_diag diag = {0};
    json_t *end = NULL;
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "reason")), catalogue);

    (void)state;
    assert_int_equal(sonde__recorder_close(recorder, (sonde_run_end)4, NULL, &diag),
                     SONDE_EINVAL);
    assert_non_null(strstr(diag.found, "closed as failed, not as 4"));
    end = run_json(path, "end.json"); /* but the run is closed */
    assert_string_equal(text_of(end, "reason"), "failed");
    json_decref(end);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void every_mistake_of_options_is_named(void **state)
{
    char path[RUN_PATH], file[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, 4);
    const char *const free_path = run_path(path, "options");
    const sonde_recorder_options bad[] = {
        {.path = NULL},
        {.path = ""},
        {.path = free_path, .rank = 1},
        {.path = free_path, .rank = -1},
        {.path = free_path, .world = -1},
        {.path = free_path, .segment_seconds = -1.0},
        {.path = free_path, .segment_seconds = NAN},
        {.path = free_path, .when_full = (sonde_when_full)3},
        {.path = free_path, .graph = "xyz"},
        {.path = free_path, .save = "[1]"},
        {.path = free_path, .save = "{"},
        {.path = free_path, .resume = "0123"},
        {.path = free_path, .resume = "0123456789abcdef0123456789abcdef"},
        {.path = "s3://"},
    };
    sonde_recorder *recorder = NULL;

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(bad); i++) {
        const sonde_err wanted = i == 12 ? SONDE_ENOTFOUND : SONDE_EINVAL;
        sonde_recorder_options given = bad[i];
        sonde_diag diag = {0};

        given.size = sizeof given;
        assert_int_equal(sonde__recorder_create(&given, catalogue, &recorder, &diag),
                         wanted);
        assert_int_equal(diag.err, wanted);
        assert_true(diag.found[0] != '\0');
        assert_null(recorder);
        assert_int_equal(access(path, F_OK), -1); /* nothing half-made */
    }
    /* A path that is a file, a folder with something in it, a run. */
    assert_int_equal(mkdir(path, 0777), 0);
    (void)fclose(fopen(run_file(file, path, "thing"), "w"));
    assert_int_equal(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = file),
                                            catalogue, &recorder, NULL),
                     SONDE_EEXIST);
    assert_int_equal(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path),
                                            catalogue, &recorder, NULL),
                     SONDE_EEXIST);
    assert_true(run_has(path, "thing"));
    assert_false(run_has(path, "run.json"));
    assert_int_equal(unlink(file), 0);
    recorder =
        run_create(SONDE_OPTIONS(sonde_recorder, .path = path), catalogue); /* empty */
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    recorder = NULL;
    assert_int_equal(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path),
                                            catalogue, &recorder, NULL),
                     SONDE_EEXIST);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void names_that_are_too_long_are_refused(void **state)
{
    char path[RUN_PATH];
    char *name = calloc(1, SONDE__MOST_NAME + 2);
    const int64_t shape = 1;
    sonde_catalogue *catalogue = run_catalogue(1, 1);
    sonde_recorder *recorder = NULL;
    float x = 1.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, &x);
    const sonde_coordinate at = run_at(0);
    run_content content = {0};
    uint32_t id = 0;

    (void)state;
    assert_non_null(name);
    recorder = run_create(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "long")),
                          catalogue);
    memset(name, '"', SONDE__MOST_NAME); /* which is longer still in JSON */
    id = run_declare(catalogue, name, SONDE_F32, 1, &shape);
    sonde__recorder_put(recorder, id, &at, &view);
    name[0] = '\1';
    name[SONDE__MOST_NAME] = 'x';
    id = run_declare(catalogue, name, SONDE_F32, 1, &shape);
    sonde__recorder_put(recorder, id, &at, &view);
    sonde__recorder_put(recorder, 0, &at, &view);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_EIO);
    run_read(path, 0, &content);
    assert_int_equal(content.values, 2);
    run_remove(path);
    recorder = NULL;
    assert_int_equal(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path),
                                            catalogue, &recorder, NULL),
                     SONDE_EINVAL);
    free(name);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* --- several workers -------------------------------------------------------------- */

static void workers_share_a_run(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, 1);
    sonde_recorder *workers[3] = {NULL}, *more = NULL;
    float x = 1.0F;
    const int64_t shape = 1;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, &x);
    const sonde_coordinate at = run_at(0);
    run_content content = {0};

    (void)state;
    (void)run_path(path, "world");
    for (int i = 2; i >= 0; i--) { /* whoever comes first makes it */
        workers[i] =
            run_create(SONDE_OPTIONS(sonde_recorder, .path = path, .rank = i, .world = 3),
                       catalogue);
        sonde__recorder_put(workers[i], 0, &at, &view);
    }
    assert_int_equal(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path,
                                                          .rank = 1, .world = 3),
                                            catalogue, &more, NULL),
                     SONDE_EEXIST);
    assert_int_equal(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path,
                                                          .rank = 3, .world = 4),
                                            catalogue, &more, NULL),
                     SONDE_EINVAL);
    assert_int_equal(run_number(path, "run.json", "world"), 3);
    for (int i = 2; i >= 0; i--) {
        assert_false(run_has(path, "end.json"));
        assert_int_equal(sonde__recorder_close(workers[i], SONDE_RUN_FINISHED, "", NULL),
                         SONDE_OK);
        run_read(path, i, &content);
        assert_int_equal(content.values, 1);
    }
    assert_true(run_has(path, "end.json"));
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* Twenty steps of training, five of evaluation, three of training; values at three steps. */
static void put_sparsely(sonde_recorder *recorder)
{
    const float x[4] = {0};
    const int64_t shape = 4;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, (void *)(uintptr_t)x);

    for (int64_t step = 0; step < 28; step++) {
        sonde_coordinate at = run_at(step);

        at.mode = step >= 20 && step < 25 ? SONDE_MODE_EVAL : SONDE_MODE_TRAIN;
        if (step == 0 || step == 5 || step == 9) {
            sonde__recorder_put(recorder, 0, &at, &view);
        }
        sonde__recorder_end_step(recorder, &at);
    }
}

static void one_worker_leaves_out_steps_without_records(void **state)
{
    for (int world = 1; world <= 2; world++) {
        char path[RUN_PATH];
        sonde_catalogue *catalogue = run_catalogue(1, 4);
        const sonde_recorder_options options = {
            .size = sizeof options, .path = run_path(path, "sparse"), .world = world};
        sonde_recorder *recorder = run_create(&options, catalogue);
        run_content content = {.last_step = -1};

        (void)state;
        put_sparsely(recorder);
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                         SONDE_OK);
        run_read(path, 0, &content);
        /* 0, 5, 9; 19 and 24 before another mode; 27, the last */
        assert_int_equal(content.ends, world == 1 ? 6 : 28);
        assert_int_equal(content.last_step, 27);
        assert_int_equal(content.values, 3);
        sonde_catalogue_destroy(catalogue);
        run_remove(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_many_threads_opens_a_run),
        cmocka_unit_test(an_unknown_reason_is_an_error),
        cmocka_unit_test(the_run_says_what_it_is),
        cmocka_unit_test(senseless_puts_are_counted),
        cmocka_unit_test(every_mistake_of_options_is_named),
        cmocka_unit_test(names_that_are_too_long_are_refused),
        cmocka_unit_test(workers_share_a_run),
        cmocka_unit_test(one_worker_leaves_out_steps_without_records),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
