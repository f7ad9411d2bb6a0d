/*
 * test_waiting.c - waiting for steps that a writer makes meanwhile.
 */
#include "trial/run_folder.h"

#include "base/clock.h"

#include <stddef.h>
#include <stdint.h>
#include <pthread.h>

#include <sonde/error.h>

typedef struct late_writer {
    writer w;
    double wrote_at; /* the end of step 5 */
} late_writer;

static void *write_late(void *argument)
{
    late_writer *late = argument;

    for (int64_t s = 0; s < 8; s++) {
        (void)usleep(20000);
        known_step(&late->w, known_at(s));
        if (s == 5) {
            late->wrote_at = sonde__now();
        }
    }
    return NULL;
}

static void waiting_ends_when_the_step_is_there(void **state)
{
    static const int64_t wanted[] = {2, 5}, beyond[] = {8};
    sonde_trial *trial = NULL;
    late_writer late = {.wrote_at = 0};
    pthread_t thread;
    double seen = 0.0;
    sonde_diag diag = {0};

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&late.w, test_run, 0);
    writer_alive(&late.w);
    known_declare(&late.w);
    trial = trial_opened(test_run);
    assert_int_equal(
        sonde_trial_wait_for_steps(trial, wanted, 2, SONDE_MODE_GLOBAL, 0.01, &diag),
        SONDE_ETIMEOUT);
    assert_int_equal(pthread_create(&thread, NULL, write_late, &late), 0);
    assert_int_equal(
        sonde_trial_wait_for_steps(trial, wanted, 2, SONDE_MODE_GLOBAL, 60, &diag),
        SONDE_OK);
    seen = sonde__now();
    assert_known(trial, 2, 5, -1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(seen - late.wrote_at < 30.0); /* usually a few milliseconds */
    assert_int_equal(
        sonde_trial_wait_for_steps(trial, beyond, 1, SONDE_MODE_GLOBAL, 0.02, &diag),
        SONDE_ETIMEOUT);
    writer_close(&late.w);
    writer_end(test_run, "finished", 7);
    assert_int_equal(
        sonde_trial_wait_for_steps(trial, beyond, 1, SONDE_MODE_GLOBAL, -1, &diag),
        SONDE_EEND);
    assert_non_null(strstr(diag.found, "ended"));
    sonde_trial_close(trial);
}

static void a_step_without_anything_never_comes(void **state)
{
    static const int64_t wanted[] = {1};
    sonde_trial *trial = NULL;
    sonde_diag diag = {0};
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_alive(&w);
    known_declare(&w);
    known_step(&w, writer_at(SONDE_MODE_TRAIN, 0, 0));
    writer_end_step(&w, writer_at(SONDE_MODE_TRAIN, 1, 1));
    trial = trial_opened(test_run);
    assert_int_equal(
        sonde_trial_wait_for_steps(trial, wanted, 1, SONDE_MODE_TRAIN, -1, &diag),
        SONDE_ENOTFOUND);
    assert_non_null(strstr(diag.found, "nothing was saved at train step 1"));
    sonde_trial_close(trial);
    writer_drop(&w);
}

#define ON_ITS_OWN(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ITS_OWN(waiting_ends_when_the_step_is_there),
        ON_ITS_OWN(a_step_without_anything_never_comes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
