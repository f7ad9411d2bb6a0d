/*
 * test_watch_program.c - the programs that a watch is shown are recorded, once for each
 * that begins to hold, whatever is saved, and read from the run.
 */
#include "cmocka_all.h"
#include "alloc_failure.h"
#include "run_folder.h"
#include "program/program_sample.h"

#include <sonde/error.h>
#include <sonde/trial.h>
#include <sonde/watch.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A watch whose hook saves nothing; it waits for its writer so long, 0: as long as needed. */
static sonde_err open_watch(bool resumed, double wait_seconds, sonde_watch **watch)
{
    const sonde_recorder_options record = {.size = sizeof record,
                                           .path = run,
                                           .resume = resumed ? SONDE_RESUME_ANY : NULL,
                                           .resume_step = SONDE_RESUME_BEHIND,
                                           .wait_seconds = wait_seconds};
    const sonde_hook_options options = {
        .size = sizeof options, .record = &record, .no_vitals = true};
    sonde_watch_options watched = {.size = sizeof watched};
    sonde_err err = sonde_hook_create(&options, &watched.hook, &diag);

    if (err == SONDE_OK) {
        err = sonde_watch_create(&watched, watch, &diag);
    }
    if (err != SONDE_OK) {
        (void)sonde_hook_close(watched.hook, SONDE_RUN_FAILED, NULL, NULL);
    }
    return err;
}

static void close_watch(sonde_watch *watch)
{
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
}

static void begin(sonde_watch *watch, sonde_mode mode)
{
    must(sonde_watch_begin_step(watch, mode, &diag));
}

/* A step with the sample's program, its loss at a line; line 0: without one. */
static void step(sonde_watch *watch, sonde_mode mode, int line)
{
    program_sample sample;

    sample_init(&sample);
    sample.program.mode = mode;
    sample.nodes[3].place.line = line;
    begin(watch, mode);
    if (line > 0) {
        must(sonde_watch_program(watch, &sample.program, &diag));
    }
    sonde_watch_end_step(watch);
}

/* The line of the loss in the program in force at a step; -1: there is none. */
static int line_at(sonde_trial *trial, sonde_mode mode, int64_t at)
{
    sonde_program *program = NULL;
    const sonde_err err = sonde_trial_program(trial, mode, at, &program, &diag);

    if (err == SONDE_ENOTFOUND) {
        return -1;
    }
    must(err);
    const int line = sonde_program_place_of(program, "loss").line;
    assert_int_equal(program->mode, mode);
    sonde_program_destroy(program);
    return line;
}

static size_t count_values(sonde_trial *trial, const char *name)
{
    int64_t *steps = NULL;
    size_t count = 0;
    uint32_t id = 0;

    must(sonde_catalogue_find(sonde_trial_catalogue(trial), name, &id, &diag));
    assert_int_equal(sonde_catalogue_info(sonde_trial_catalogue(trial), id)->role,
                     SONDE_ROLE_PROGRAM);
    must(
        sonde_trial_tensor_steps(trial, id, SONDE_MODE_GLOBAL, 0, &steps, &count, &diag));
    sonde_release(steps);
    return count;
}

static void each_program_is_recorded_once(void **state)
{
    sonde_watch *watch = NULL;
    sonde_trial *trial = NULL;

    (void)state;
    must(open_watch(false, 0, &watch));
    step(watch, SONDE_MODE_TRAIN, 0);
    step(watch, SONDE_MODE_TRAIN, 41);
    step(watch, SONDE_MODE_TRAIN, 41);
    step(watch, SONDE_MODE_EVAL, 50);
    step(watch, SONDE_MODE_TRAIN, 1000); /* its text is longer */
    step(watch, SONDE_MODE_TRAIN, 1000);
    step(watch, SONDE_MODE_TRAIN, 41); /* holds again */
    step(watch, SONDE_MODE_TRAIN, 0);
    close_watch(watch);
    must(sonde_trial_open(run, NULL, &trial, &diag));
    assert_int_equal(count_values(trial, "program/train"), 3);
    assert_int_equal(count_values(trial, "program/eval"), 1);
    assert_int_equal(line_at(trial, SONDE_MODE_TRAIN, 0), -1);
    assert_int_equal(line_at(trial, SONDE_MODE_TRAIN, 1), 41);
    assert_int_equal(line_at(trial, SONDE_MODE_TRAIN, 2), 41);
    assert_int_equal(line_at(trial, SONDE_MODE_TRAIN, 3), 1000);
    assert_int_equal(line_at(trial, SONDE_MODE_TRAIN, 4), 1000);
    assert_int_equal(line_at(trial, SONDE_MODE_TRAIN, 5), 41);
    assert_int_equal(line_at(trial, SONDE_MODE_TRAIN, -1), 41);
    assert_int_equal(line_at(trial, SONDE_MODE_EVAL, -1), 50);
    assert_int_equal(line_at(trial, SONDE_MODE_PREDICT, -1), -1);
    sonde_trial_close(trial);
}

static void a_resumed_run_has_the_programs_of_both_parts(void **state)
{
    sonde_watch *watch = NULL;
    sonde_trial *trial = NULL;

    (void)state;
    must(open_watch(false, 0, &watch));
    step(watch, SONDE_MODE_TRAIN, 41);
    step(watch, SONDE_MODE_TRAIN, 42);
    close_watch(watch);
    must(open_watch(true, 0, &watch));
    step(watch, SONDE_MODE_TRAIN, 0);
    step(watch, SONDE_MODE_TRAIN, 42); /* recorded again: the writer is another one */
    step(watch, SONDE_MODE_TRAIN, 12345);
    close_watch(watch);
    must(sonde_trial_open(run, NULL, &trial, &diag));
    assert_int_equal(count_values(trial, "program/train"), 4);
    assert_int_equal(line_at(trial, SONDE_MODE_TRAIN, 0), 41);
    assert_int_equal(line_at(trial, SONDE_MODE_TRAIN, 2), 42);
    assert_int_equal(line_at(trial, SONDE_MODE_TRAIN, -1), 12345);
    sonde_trial_close(trial);
}

static void programs_that_cannot_be_are_refused(void **state)
{
    program_sample sample;
    sonde_watch *watch = NULL;

    (void)state;
    sample_init(&sample);
    must(open_watch(false, 0, &watch));
    assert_int_equal(sonde_watch_program(watch, &sample.program, &diag), SONDE_ESTATE);
    begin(watch, SONDE_MODE_EVAL);
    assert_int_equal(sonde_watch_program(watch, &sample.program, &diag), SONDE_EINVAL);
    assert_string_equal(diag.found, "a program of mode train");
    assert_string_equal(diag.expected, "eval");
    begin(watch, SONDE_MODE_TRAIN);
    sample.nodes[1].module = 99;
    assert_int_equal(sonde_watch_program(watch, &sample.program, &diag), SONDE_EINVAL);
    sample.nodes[1].module = 0;
    must(sonde_watch_program(watch, &sample.program, &diag));
    must(sonde_watch_program(watch, &sample.program, &diag)); /* it holds already */
    sample.nodes[1].module = 1;
    assert_int_equal(sonde_watch_program(watch, &sample.program, &diag), SONDE_ESTATE);
    close_watch(watch);
}

static void a_watch_without_hook_takes_programs(void **state)
{
    const sonde_watch_options options = {.size = sizeof options};
    sonde_watch *watch = NULL;

    (void)state;
    must(sonde_watch_create(&options, &watch, &diag));
    step(watch, SONDE_MODE_TRAIN, 41);
    close_watch(watch);
}

static void a_program_without_memory_is_shown_again(void **state)
{
    const sonde_watch_options options = {.size = sizeof options};
    sonde_err err = SONDE_ENOMEM;
    program_sample sample;

    (void)state;
    sample_init(&sample);
    for (size_t n = 0; err != SONDE_OK; n++) {
        sonde_watch *watch = NULL;

        must(sonde_watch_create(&options, &watch, &diag));
        begin(watch, SONDE_MODE_TRAIN);
        alloc_failure_begin(n);
        err = sonde_watch_program(watch, &sample.program, &diag);
        (void)alloc_failure_end();
        assert_true(n > 0 || err != SONDE_OK);
        if (err != SONDE_OK) {
            assert_int_equal(err, SONDE_ENOMEM);
            must(sonde_watch_program(watch, &sample.program, &diag));
        }
        close_watch(watch);
    }
}

/* The text of a sample, which the caller frees. */
static char *text_of(const program_sample *sample, size_t *length)
{
    char *text = NULL;

    must(sonde_program_text(&sample->program, &text, length, &diag));
    return text;
}

static void texts_are_programs(void **state)
{
    program_sample sample;
    sonde_watch *watch = NULL;
    size_t length = 0;

    (void)state;
    sample_init(&sample);
    must(open_watch(false, 0, &watch));
    char *text = text_of(&sample, &length);
    assert_int_equal(sonde_watch_program_text(watch, text, length, &diag), SONDE_ESTATE);
    begin(watch, SONDE_MODE_EVAL);
    assert_int_equal(sonde_watch_program_text(watch, text, length, &diag), SONDE_EINVAL);
    begin(watch, SONDE_MODE_TRAIN);
    assert_int_equal(sonde_watch_program_text(watch, text, length - 1, &diag),
                     SONDE_EFORMAT);
    must(sonde_watch_program_text(watch, text, length, &diag));
    must(sonde_watch_program(watch, &sample.program, &diag)); /* it holds already */
    sonde_release(text);
    sample.nodes[1].module = 1;
    text = text_of(&sample, &length);
    assert_int_equal(sonde_watch_program_text(watch, text, length, &diag), SONDE_ESTATE);
    sonde_release(text);
    close_watch(watch);
}

static void a_text_without_memory_is_shown_again(void **state)
{
    const sonde_watch_options options = {.size = sizeof options};
    sonde_err err = SONDE_ENOMEM;
    program_sample sample;
    size_t length = 0;

    (void)state;
    sample_init(&sample);
    char *text = text_of(&sample, &length);
    for (size_t n = 0; err != SONDE_OK; n++) {
        sonde_watch *watch = NULL;

        must(sonde_watch_create(&options, &watch, &diag));
        begin(watch, SONDE_MODE_TRAIN);
        alloc_failure_begin(n);
        err = sonde_watch_program_text(watch, text, length, &diag);
        (void)alloc_failure_end();
        assert_true(n > 0 || err != SONDE_OK);
        if (err != SONDE_OK) {
            assert_int_equal(err, SONDE_ENOMEM);
            must(sonde_watch_program_text(watch, text, length, &diag));
        }
        close_watch(watch);
    }
    sonde_release(text);
}

/* A run with a program; its recorder has a thread, which allocates too. */
static sonde_err record_program(const sonde_program *program)
{
    sonde_watch *watch = NULL;
    sonde_err err = open_watch(false, 1e-6, &watch);

    if (err == SONDE_OK) {
        err = sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag);
        err = err == SONDE_OK ? sonde_watch_program(watch, program, &diag) : err;
        const sonde_err closed =
            sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag);
        err = err == SONDE_OK ? closed : err;
    }
    return err;
}

static void memory_that_runs_out_is_reported(void **state)
{
    sonde_err err = SONDE_ENOMEM;
    program_sample sample;
    char command[64];

    (void)state;
    sample_init(&sample);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", run);
    for (size_t n = 0; err != SONDE_OK; n++) {
        assert_int_equal(system(command), 0);
        alloc_failure_begin(n);
        err = record_program(&sample.program);
        assert_int_equal(alloc_failure_end(), 0);
        assert_true(n > 0 || err != SONDE_OK);
        assert_true(err == SONDE_OK || err == SONDE_ENOMEM ||
                    err == SONDE_EIO); /* its writer had none: lost and told */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_program_is_recorded_once, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_resumed_run_has_the_programs_of_both_parts,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(programs_that_cannot_be_are_refused, make_folder,
                                        remove_folder),
        cmocka_unit_test(a_watch_without_hook_takes_programs),
        cmocka_unit_test(a_program_without_memory_is_shown_again),
        cmocka_unit_test(texts_are_programs),
        cmocka_unit_test(a_text_without_memory_is_shown_again),
        cmocka_unit_test_setup_teardown(memory_that_runs_out_is_reported, make_folder,
                                        remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
