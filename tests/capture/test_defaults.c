/*
 * test_defaults.c - what a hook without a configuration records: docs/recording.md.
 *
 * A watch shows tensors of each role, one that is just small enough for raw values and one
 * that is a row too large, at 120 steps.
 */
#include "cmocka_all.h"

#include "base/macros.h"

#include <sonde/error.h>
#include <sonde/trial.h>
#include <sonde/watch.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 120, LARGEST = 256 * 1024 + 64 };

/* every: the step between later vital signs; first: as many steps before have them. small:
 * the largest size with raw values, 0: none. */
static const struct {
    const char *name;
    sonde_role role;
    int64_t first, every, small;
} kinds[] = {
    {"weight", SONDE_ROLE_WEIGHT, 50, 20, 256 * 1024},
    {"bias", SONDE_ROLE_BIAS, 50, 20, 64 * 1024},
    {"gradient", SONDE_ROLE_GRADIENT, 50, 20, 4 * 1024},
    {"input", SONDE_ROLE_INPUT, 50, 10, 64 * 1024},
    {"update", SONDE_ROLE_UPDATE, 20, 20, 0},
    {"buffer", SONDE_ROLE_BUFFER, 20, 10, 0},
    {"state", SONDE_ROLE_OPTIMIZER, 20, 20, 0},
    {"output", SONDE_ROLE_OUTPUT, 20, 50, 0}, /* raw in evaluation alone */
    {"activation", SONDE_ROLE_ACTIVATION, 20, 50, 0},
    {"slope", SONDE_ROLE_ACTIVATION_GRADIENT, 20, 100, 0},
    {"loss", SONDE_ROLE_LOSS, 0, 1, 0},
};

static sonde_diag diag;
static float values[LARGEST / sizeof(float)];

static void must(sonde_err err)
{
    char line[SONDE_DIAG_LINE];

    if (err != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
}

/* large: 64 bytes more than what has raw values. */
static sonde_view view_of_kind(size_t kind, bool large)
{
    const int64_t bytes = kinds[kind].small > 0 ? kinds[kind].small : 1024;
    const int64_t shape[1] = {(bytes + (large ? 64 : 0)) / (int64_t)sizeof(float)};

    return sonde_view_of(SONDE_F32, kinds[kind].role == SONDE_ROLE_LOSS ? 0 : 1, shape,
                         values);
}

static void name_of(size_t kind, bool large, char name[40])
{
    (void)snprintf(name, 40, "%s_%s", kinds[kind].name, large ? "large" : "small");
}

static void record(const char *run)
{
    sonde_recorder_options record = {
        .size = sizeof record, .path = run, .when_full = SONDE_WHEN_FULL_WAIT};
    sonde_hook *hook = NULL;
    sonde_watch *watch = NULL;

    must(sonde_hook_create(SONDE_OPTIONS(sonde_hook, .record = &record), &hook, &diag));
    must(sonde_watch_create(SONDE_OPTIONS(sonde_watch, .hook = hook), &watch, &diag));
    for (size_t i = 0; i < 2 * SONDE_COUNT_OF(kinds); i++) {
        const sonde_view view = view_of_kind(i / 2, i % 2 != 0);
        char name[40];
        sonde_tensor_info info = {.name = name,
                                  .role = kinds[i / 2].role,
                                  .dtype = SONDE_F32,
                                  .rank = view.rank,
                                  .shape = {view.shape[0]}};
        uint32_t slot = 0;

        name_of(i / 2, i % 2 != 0, name);
        must(sonde_watch_add(watch, &info, &slot, &diag));
        assert_int_equal(slot, i);
    }
    for (int step = 0; step < STEPS; step++) {
        must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        values[0] = (float)step;
        for (size_t i = 0; i < 2 * SONDE_COUNT_OF(kinds); i++) {
            const sonde_view view = view_of_kind(i / 2, i % 2 != 0);

            sonde_watch_see(watch, (uint32_t)i, &view);
        }
        sonde_watch_end_step(watch);
    }
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
}

static bool has(const int64_t *steps, size_t count, int64_t step)
{
    for (size_t i = 0; i < count; i++) {
        if (steps[i] == step) {
            return true;
        }
    }
    return false;
}

static void check_vitals(sonde_trial *trial, size_t kind, bool large)
{
    char name[40];
    uint32_t id = 0;
    size_t count = 0;
    int64_t *steps = NULL;

    name_of(kind, large, name);
    must(sonde_catalogue_find(sonde_trial_catalogue(trial), name, &id, &diag));
    must(sonde_trial_tensor_steps(trial, id, SONDE_MODE_TRAIN, SONDE_HOW_VITALS, &steps,
                                  &count, &diag));
    for (int64_t step = 0; step < STEPS; step++) {
        const bool promised = step < kinds[kind].first || step % kinds[kind].every == 0;

        if (promised && !has(steps, count, step)) {
            fail_msg("%s has no vital signs at step %d", name, (int)step);
        }
    }
    sonde_release(steps);
    must(sonde_trial_tensor_steps(trial, id, SONDE_MODE_TRAIN, SONDE_HOW_RAW, &steps,
                                  &count, &diag));
    if (kinds[kind].small > 0) {
        /* Every 500th step saves weights, biases and gradients of any size. */
        if ((count > 1) == large) {
            fail_msg("%s has %zu raw values", name, count);
        }
    }
    sonde_release(steps);
}

static void a_hook_records_what_the_page_says(void **state)
{
    char folder[] = "/tmp/sonde-defaults-XXXXXX", run[64], command[80];
    sonde_trial *trial = NULL;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(run, sizeof run, "%s/run", folder);
    record(run);
    must(sonde_trial_open(run, NULL, &trial, &diag));
    for (size_t kind = 0; kind < SONDE_COUNT_OF(kinds); kind++) {
        check_vitals(trial, kind, false);
        check_vitals(trial, kind, true);
    }
    sonde_trial_close(trial);
    (void)snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hook_records_what_the_page_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
