/*
 * test_threads.c - one object, one thread: threads with objects of their own share
 * nothing. tsan: yes
 */
#include "cmocka_all.h"

#include <sonde/hook.h>
#include <sonde/print.h>
#include <sonde/recorder.h>
#include <sonde/rules.h>
#include <sonde/trial.h>
#include <sonde/watch.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 2, STEPS = 20, SIZE = 64 };

typedef struct work {
    pthread_t thread;
    char path[64];
    const float *shared; /* read by all */
    uint64_t steps;      /* judged */
    double mean;         /* of the last step, as it was recorded */
    sonde_diag diag;
    bool done;
} work;

#define TRY(call)                                                                        \
    do {                                                                                 \
        if ((call) != SONDE_OK) {                                                        \
            return NULL;                                                                 \
        }                                                                                \
    } while (0)

/* A loop with observer, rules and recorder, read again afterwards. */
static void *run(void *user)
{
    work *own = user;
    const int64_t shape[1] = {SIZE};
    float values[SIZE] = {0};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, values);
    const sonde_view shared =
        sonde_view_of(SONDE_F32, 1, shape, (void *)(uintptr_t)own->shared);
    const sonde_recorder_options record = {.size = sizeof record, .path = own->path};
    const sonde_hook_options options = {
        .size = sizeof options, .record = &record, .save_all = true};
    const sonde_print_options print = sonde_print_options_default();
    const sonde_trial_at last = {.mode = SONDE_MODE_TRAIN, .step = STEPS - 1};
    sonde_watch_options watched = {.size = sizeof watched};
    sonde_watch *watch = NULL;
    sonde_trial *trial = NULL;
    sonde_vitals vitals;
    sonde_text text = {0};
    uint32_t slots[2], id = 0;

    TRY(sonde_rules_create(&watched.rules, &own->diag));
    TRY(sonde_rules_add_defaults(watched.rules, &own->diag));
    TRY(sonde_hook_create(&options, &watched.hook, &own->diag));
    TRY(sonde_watch_create(&watched, &watch, &own->diag));
    TRY(sonde_watch_add_view(watch, "fc.weight", &view, &slots[0], &own->diag));
    TRY(sonde_watch_add_view(watch, "shared", &shared, &slots[1], &own->diag));
    for (int step = 0; step < STEPS; step++) {
        values[0] += 1.0F;
        TRY(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &own->diag));
        sonde_watch_see(watch, slots[0], &view);
        sonde_watch_see(watch, slots[1], &shared);
        sonde_watch_end_step(watch);
    }
    TRY(sonde_format_tensor(&view, &print, 0, &text));
    sonde_text_fini(&text);
    TRY(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &own->diag));
    own->steps = sonde_rules_steps(watched.rules);
    sonde_rules_destroy(watched.rules);
    TRY(sonde_trial_open(own->path, NULL, &trial, &own->diag));
    TRY(sonde_catalogue_find(sonde_trial_catalogue(trial), "fc.weight", &id, &own->diag));
    TRY(sonde_trial_vitals(trial, id, &last, &vitals, &own->diag));
    own->mean = vitals.mean;
    sonde_trial_close(trial);
    own->done = true;
    return NULL;
}

static void objects_of_two_threads_share_nothing(void **state)
{
    char folder[] = "/tmp/threadsXXXXXX", command[64];
    float shared[SIZE] = {1.0F};
    work works[THREADS] = {0};

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < THREADS; i++) {
        works[i].shared = shared;
        (void)snprintf(works[i].path, sizeof works[i].path, "%s/%d", folder, i);
        assert_int_equal(pthread_create(&works[i].thread, NULL, run, &works[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(works[i].thread, NULL), 0);
        assert_string_equal(works[i].diag.found, "");
        assert_true(works[i].done);
        assert_int_equal(works[i].steps, STEPS);
        assert_true(works[i].mean == (double)STEPS / SIZE);
    }
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_of_two_threads_share_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
