/*
 * A watch: vital signs to the bit, from memory and from the run; the findings of rules
 * beside those of the run; late slots, micro-batches, updates, views with strides;
 * memory.
 */
#include "capture/hook_state.h"
#include "cmocka_all.h"

#include "alloc_failure.h"
#include "run_folder.h"
#include "base/macros.h"
#include "base/random.h"

#include <sonde/error.h>
#include <sonde/trial.h>
#include <sonde/watch.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sonde_err add_all(sonde_watch *watch, const sonde_tensor_info *infos, size_t count,
                         uint32_t *slots, sonde_diag *into)
{
    sonde_err err = SONDE_OK;

    for (size_t i = 0; i < count && err == SONDE_OK; i++) {
        err = sonde_watch_add(watch, &infos[i], &slots[i], into);
    }
    return err;
}

static sonde_watch *watch_of(sonde_hook *hook, sonde_rules *rules)
{
    const sonde_watch_options options = {
        .size = sizeof options, .hook = hook, .rules = rules, .rules_every = 1};
    sonde_watch *watch = NULL;

    must(sonde_watch_create(&options, &watch, &diag));
    return watch;
}

static sonde_hook *hook_of(bool dry)
{
    const sonde_hook_options options = {
        .size = sizeof options,
        .record =
            SONDE_OPTIONS(sonde_recorder, .path = run, .when_full = SONDE_WHEN_FULL_WAIT),
        .dry_run = dry,
        .save_all = true,
        .vitals_every = 1};
    sonde_save_config config = sonde_save_config_unset();
    sonde_hook *hook = NULL;

    config.every = 1;
    must(sonde_hook_create(&options, &hook, &diag));
    must(sonde__observe_save(&hook->setup, NULL, -1, &config, &diag));
    must(sonde__observe_reduce(
        &hook->setup, "all",
        &(sonde_reduction_config){.stats = 1, .histogram = true, .save_raw_tensor = true},
        &diag));
    return hook;
}

static void begin(sonde_watch *watch)
{
    must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
}

/* Bit for bit: the struct has no padding. */
static void assert_same_vitals(const sonde_vitals *a, const sonde_vitals *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

/* --- values ------------------------------------------------------------------------- */

enum { ROWS = 37, COLUMNS = 53 };

/* Contiguous, transposed, every second column, empty, and numbers that are not finite. */
static size_t make_views(float *data, sonde_view views[5])
{
    const int64_t whole[2] = {ROWS, COLUMNS}, turned[2] = {COLUMNS, ROWS},
                  half[2] = {ROWS, COLUMNS / 2}, none[2] = {0, COLUMNS};

    for (int i = 0; i < ROWS * COLUMNS; i++) {
        data[i] = sonde__normal(7, 0, (uint64_t)i);
    }
    data[5] = NAN;
    data[6] = -INFINITY;
    views[0] = sonde_view_of(SONDE_F32, 2, whole, data);
    views[1] = sonde_view_of(SONDE_F32, 2, turned, data);
    views[1].stride[0] = views[0].stride[1];
    views[1].stride[1] = views[0].stride[0];
    views[2] = sonde_view_of(SONDE_F32, 2, half, data);
    views[2].stride[0] = views[0].stride[0];
    views[2].stride[1] = 2 * views[0].stride[1];
    views[3] = sonde_view_of(SONDE_F32, 2, none, data);
    views[4] = sonde_view_of(SONDE_F16, 2, whole, data);
    return 5;
}

static void values_are_those_of_vitals_of(void **state)
{
    float *data = malloc(ROWS * COLUMNS * sizeof *data);
    sonde_watch *watch = watch_of(hook_of(false), NULL);
    sonde_trial *trial = NULL;
    sonde_view views[5];
    uint32_t slots[6] = {0};
    const size_t count = make_views(data, views);

    (void)state;
    for (uint32_t i = 0; i < count; i++) {
        char name[16];

        (void)snprintf(name, sizeof name, "t%lu.weight", (unsigned long)i);
        must(sonde_watch_add_view(watch, name, &views[i], &slots[i], &diag));
        assert_int_equal(slots[i], i);
    }
    slots[5] = 1000; /* not a slot */
    views[4].data = data;
    for (int step = 0; step < 3; step++) {
        begin(watch);
        if (step == 1) {
            sonde_watch_see_all(watch, slots, views, count);
        }
        for (size_t i = 0; i < count && step != 1; i++) {
            sonde_watch_see(watch, slots[i], &views[i]);
        }
        for (uint32_t i = 0; i < count; i++) {
            sonde_vitals vitals, expected;

            assert_true(sonde_watch_vitals(watch, slots[i], &vitals));
            sonde_vitals_of(&views[i], &expected);
            assert_same_vitals(&vitals, &expected);
        }
        sonde_watch_end_step(watch);
        assert_false(sonde_watch_vitals(watch, slots[5], &(sonde_vitals){0}));
    }
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    must(sonde_trial_open(run, NULL, &trial, &diag));
    for (uint32_t i = 0; i < count; i++) {
        const sonde_trial_at at = {.mode = SONDE_MODE_TRAIN, .step = 1};
        sonde_vitals kept, expected;

        must(sonde_trial_vitals(trial, i, &at, &kept, &diag));
        sonde_vitals_of(&views[i], &expected);
        assert_same_vitals(&kept, &expected);
    }
    sonde_trial_close(trial);
    free(data);
}

/* --- rules -------------------------------------------------------------------------- */

/* A network that stops learning: its gradients vanish, then a weight is NaN. */
static void play(sonde_watch *watch, int steps)
{
    static const char *const names[] = {"fc1.weight", "gradient/fc1.weight", "fc2.weight",
                                        "gradient/fc2.weight", "loss"};
    float values[5][64];
    sonde_view views[5];
    uint32_t slots[5];

    for (size_t i = 0; i < 5; i++) {
        const int64_t shape[1] = {64};

        views[i] = sonde_view_of(SONDE_F32, i < 4 ? 1 : 0, shape, values[i]);
        must(sonde_watch_add_view(watch, names[i], &views[i], &slots[i], &diag));
    }
    for (int step = 0; step < steps; step++) {
        for (uint64_t i = 0; i < 5; i++) {
            for (uint64_t k = 0; k < 64; k++) {
                values[i][k] = sonde__normal(i, (uint64_t)step * (i % 2), k);
                values[i][k] *= i % 2 == 1 && step > 10 ? 0.0F : 1.0F;
            }
        }
        values[4][0] = step < 40 ? 1.0F / (float)(step + 1) : NAN;
        values[2][3] = step < 40 ? values[2][3] : INFINITY;
        begin(watch);
        sonde_watch_see_all(watch, slots, views, 5);
        sonde_watch_end_step(watch);
    }
}

static char *text_of(sonde_rules *rules)
{
    size_t count = 0, used = 0;
    const sonde_finding *findings = sonde_rules_findings(rules, &count);
    char *text = calloc(count + 1, 4096);

    assert_non_null(text);
    for (size_t i = 0; i < count; i++) {
        used += sonde_finding_json(&findings[i], text + used, 4096);
        text[used++] = '\n';
    }
    return text;
}

/* The same to the letter, whether the program judges or the run is judged. */
static void findings_are_those_of_the_run(void **state)
{
    sonde_rules *rules = NULL, *later = NULL;
    sonde_trial *trial = NULL;
    sonde_watch *watch = NULL;
    char *now = NULL, *then = NULL;

    (void)state;
    must(sonde_rules_create(&rules, &diag));
    must(sonde_rules_add_defaults(rules, &diag));
    watch = watch_of(hook_of(false), rules);
    play(watch, 60);
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    must(sonde_rules_create(&later, &diag));
    must(sonde_rules_add_defaults(later, &diag));
    must(sonde_trial_open(run, NULL, &trial, &diag));
    must(sonde_rules_judge(later, trial, NULL, &diag));
    now = text_of(rules);
    then = text_of(later);
    assert_non_null(strstr(now, "NonFinite"));
    assert_string_equal(now, then);
    free(now), free(then);
    sonde_trial_close(trial);
    sonde_rules_destroy(rules);
    sonde_rules_destroy(later);
}

/* Without a hook, and with a slot that comes when the rules are at work. */
static void rules_take_up_late_slots(void **state)
{
    sonde_rules *rules = NULL;
    sonde_watch *watch = NULL;
    float value = 1.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    uint32_t loss = 0, late = 0;
    size_t count = 0;

    (void)state;
    must(sonde_rules_create(&rules, &diag));
    must(sonde_rules_add(rules, "NonFinite", &diag));
    watch = watch_of(NULL, rules);
    must(sonde_watch_add_view(watch, "loss", &view, &loss, &diag));
    for (int step = 0; step < 3; step++) {
        begin(watch);
        sonde_watch_see(watch, loss, &view);
        if (step == 1) {
            must(sonde_watch_add_view(watch, "fc1.weight", &view, &late, &diag));
        }
        value = step == 2 ? NAN : 1.0F;
        if (step >= 1) {
            sonde_watch_see(watch, late, &view);
        }
        value = 1.0F;
        sonde_watch_end_step(watch);
    }
    must(sonde_watch_scalar(watch, "lr", 0.1, &diag)); /* nothing records it */
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    assert_int_equal(sonde_rules_findings(rules, &count)[0].step, 2);
    assert_int_equal(count, 1);
    assert_string_equal(sonde_rules_findings(rules, &count)[0].tensor, "fc1.weight");
    sonde_rules_destroy(rules);
}

/* --- taps of one's own -------------------------------------------------------------- */

enum { MOST = 64 };

typedef struct notes {
    sonde_sink sink; /* first */
    struct {
        uint32_t id;
        sonde_coordinate at;
        double first;
    } seen[MOST];
    size_t count;
} notes;

static void note(sonde_sink *sink, const sonde_observation *observation)
{
    notes *to = (notes *)sink;

    assert_true(to->count < MOST);
    to->seen[to->count].id = observation->id;
    to->seen[to->count].at = observation->at;
    to->seen[to->count].first =
        sonde_element_get(observation->view->dtype, observation->view->data);
    to->count++;
}

static void tap(sonde_watch *watch, notes *to, const char *what, int64_t every)
{
    sonde_tap made = {.how = SONDE_HOW_RAW, .where = &to->sink};
    sonde_selector *selector = NULL;

    *to = (notes){.sink = {.put = note}};
    must(sonde_selector_create(what, &selector, &diag));
    made.what = selector;
    made.when[SONDE_MODE_TRAIN] = sonde_schedule_every(every);
    must(sonde_observer_add(sonde_watch_observer(watch), &made, NULL, &diag));
    sonde_selector_destroy(selector);
}

static void micro_batches_and_modes(void **state)
{
    sonde_watch *watch = watch_of(NULL, NULL);
    float value = 0.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    uint32_t slot = 0;
    notes kept;

    (void)state;
    must(sonde_watch_add_view(watch, "w", &view, &slot, &diag));
    tap(watch, &kept, "*", 2);
    sonde_watch_see(watch, slot, &view); /* no step is on */
    for (int step = 0; step < 3; step++) {
        must(sonde_watch_begin_step(watch, SONDE_MODE_EVAL, &diag));
        sonde_watch_see(watch, slot, &view);
        begin(watch); /* ends the step of evaluation */
        for (int i = 0; i < 3; i++) {
            value = (float)(10 * step + i);
            sonde_watch_see(watch, slot, &view);
        }
        assert_int_equal(sonde_watch_where(watch).global_step, 2 * step + 1);
        assert_false(sonde_watch_vitals(watch, slot, &(sonde_vitals){0}));
        sonde_watch_end_step(watch);
        sonde_watch_see(watch, slot, &view);
    }
    assert_int_equal(kept.count, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(kept.seen[i].at.mode_step, 2 * (i / 3));
        assert_int_equal(kept.seen[i].at.micro_batch, i % 3);
        assert_true(kept.seen[i].first == 20.0 * (i / 3) + i % 3);
    }
    begin(watch);
    begin(watch); /* step 4, at which the tap is due */
    assert_int_not_equal(sonde_watch_wants(watch, slot), 0);
    assert_int_equal(sonde_watch_begin_step(watch, (sonde_mode)9, &diag), SONDE_EINVAL);
    assert_int_equal(sonde_watch_wants(watch, slot), 0); /* no step is on */
    sonde_watch_see(watch, slot, &view);
    assert_int_equal(kept.count, 6);
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
}

static sonde_call_shape prepared;

static sonde_err note_shape(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                            unsigned how, const sonde_call_shape *shape, sonde_diag *why)
{
    (void)sink, (void)id, (void)info, (void)how, (void)why;
    prepared = *shape;
    return SONDE_OK;
}

/* A slot keeps its own name, and copies it; a number that is not a slot is skipped; the
 * sinks get the counts of the options. */
static void slots_stand_alone(void **state)
{
    char name[] = "fc1.weight", second[] = "fc2.weight";
    float value = 2.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    const sonde_tensor_info infos[2] = {
        {.name = name, .dtype = SONDE_F32, .role = SONDE_ROLE_OTHER},
        {.name = second, .dtype = SONDE_F32, .role = SONDE_ROLE_OTHER}};
    const sonde_view views[2] = {view, view};
    const sonde_tensor_info *info = NULL;
    sonde_watch *watch = NULL;
    uint32_t slots[2] = {9, 9}, shown[2] = {1000, 1};
    notes kept;

    (void)state;
    must(sonde_watch_create(SONDE_OPTIONS(sonde_watch, .micro_batches = 3, .replicas = 2),
                            &watch, &diag));
    must(add_all(watch, infos, 2, slots, &diag));
    assert_true(slots[0] == 0 && slots[1] == 1);
    name[0] = second[0] = 'x';
    info = sonde_catalogue_info(sonde_watch_catalogue(watch), 1); /* same_as was 0 */
    assert_string_equal(info->name, "fc2.weight");
    assert_int_equal(info->same_as, 1);
    assert_int_equal(info->role, SONDE_ROLE_WEIGHT);
    tap(watch, &kept, "*", 1);
    kept.sink.prepare = note_shape;
    begin(watch);
    assert_int_equal(prepared.iterations, 1);
    assert_int_equal(prepared.micro_batches, 3);
    assert_int_equal(prepared.replicas, 2);
    sonde_watch_see_all(watch, shown, views, 2);
    assert_int_equal(kept.count, 1);
    assert_int_equal(kept.seen[0].id, 1);
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
}

/* A slot that is added within a step is seen at that step, and updates have the width of
 * float32 or float64. */
static void a_late_slot_is_seen_at_its_step(void **state)
{
    static const sonde_dtype dtypes[][2] = {{SONDE_F64, SONDE_F64},
                                            {SONDE_F32, SONDE_F32},
                                            {SONDE_F16, SONDE_F32},
                                            {SONDE_BF16, SONDE_F32}};
    sonde_watch *watch = watch_of(NULL, NULL);
    double value = 2.0;
    sonde_view view = sonde_view_of(SONDE_F64, 0, NULL, &value);
    uint32_t slot = 0, update = 0;
    notes kept;

    (void)state;
    must(sonde_watch_add_view(watch, "loss", &view, &slot, &diag));
    tap(watch, &kept, "*", 1);
    begin(watch);
    for (size_t i = 0; i < SONDE_COUNT_OF(dtypes); i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "t%zu.weight", i);
        view.dtype = dtypes[i][0];
        must(sonde_watch_add_view(watch, name, &view, &slot, &diag));
        must(sonde_watch_add_update(watch, slot, &update, &diag));
        assert_int_equal(
            sonde_catalogue_info(sonde_watch_catalogue(watch), update)->dtype,
            dtypes[i][1]);
        sonde_watch_see(watch, slot, &view);
        assert_int_equal(kept.count, i + 1);
        assert_int_equal(kept.seen[i].id, slot);
    }
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
}

static void updates_are_differences(void **state)
{
    sonde_watch *watch = watch_of(NULL, NULL);
    float values[4] = {1.0F, 2.0F, 3.0F, 4.0F};
    int whole = 3;
    const int64_t shape[1] = {4}, two[1] = {2};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, values),
                     other = sonde_view_of(SONDE_F32, 1, two, values),
                     number = sonde_view_of(SONDE_I32, 0, NULL, &whole);
    uint32_t weight = 0, integer = 0, update = 0;
    notes kept;

    (void)state;
    must(sonde_watch_add_view(watch, "w", &view, &weight, &diag));
    must(sonde_watch_add_view(watch, "n", &number, &integer, &diag));
    must(sonde_watch_add_update(watch, weight, &update, &diag));
    assert_int_equal(sonde_watch_add_update(watch, integer, &update, &diag),
                     SONDE_EDTYPE);
    assert_int_equal(sonde_watch_add_update(watch, 99, &update, &diag), SONDE_ERANGE);
    assert_int_equal(sonde_watch_add_update(watch, weight, &update, &diag), SONDE_EEXIST);
    assert_int_equal(sonde_catalogue_info(sonde_watch_catalogue(watch), update)->role,
                     SONDE_ROLE_UPDATE);
    tap(watch, &kept, "update/*", 2);
    for (int step = 0; step < 5; step++) {
        begin(watch);
        sonde_watch_see(watch, update, &view);
        values[0] += 0.5F * (float)(step + 1);
        if (step != 4) {
            sonde_watch_see(watch, update, step == 2 ? &other : &view);
        }
        sonde_watch_end_step(watch);
    }
    assert_int_equal(kept.count, 1); /* 2: another shape; 4: seen only once */
    assert_true(kept.seen[0].first == 0.5);
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
}

static void refusals(void **state)
{
    const sonde_tensor_info info = {.name = "w", .dtype = SONDE_F32};
    sonde_hook *hook = hook_of(true);
    sonde_watch *watch = watch_of(hook, NULL);
    uint32_t slot = 7;

    (void)state;
    must(sonde__observe_add_asked(&hook->setup, "mine", &diag));
    must(sonde__observe_include(&hook->setup, "mine", "missing", &diag));
    must(sonde_watch_add(watch, &info, &slot, &diag));
    slot = 7;
    assert_int_equal(sonde_watch_add(watch, &info, &slot, &diag), SONDE_EEXIST);
    assert_int_equal(slot, 7);
    assert_int_equal(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag),
                     SONDE_ENOTFOUND);
    sonde_watch_end_step(watch); /* none is on */
    must(sonde_watch_close(watch, SONDE_RUN_FAILED, NULL, &diag));
    must(sonde_watch_close(NULL, SONDE_RUN_FAILED, NULL, &diag));
}

/* --- memory ------------------------------------------------------------------------- */

static void a_step_allocates_nothing(void **state)
{
    sonde_rules *rules = NULL;
    sonde_watch *watch = NULL;
    float values[64] = {1.0F, 2.0F};
    const int64_t shape[1] = {64};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, values),
                     loss = sonde_view_of(SONDE_F32, 0, NULL, values);
    uint32_t slots[3];

    (void)state;
    must(sonde_rules_create(&rules, &diag));
    must(sonde_rules_add_list(rules, "NonFinite,ExplodingTensor", &diag));
    watch = watch_of(hook_of(true), rules);
    must(sonde_watch_add_view(watch, "fc1.weight", &view, &slots[0], &diag));
    must(sonde_watch_add_view(watch, "loss", &loss, &slots[1], &diag));
    must(sonde_watch_add_update(watch, slots[0], &slots[2], &diag));
    for (int step = 0; step < 20; step++) {
        if (step == 1) {
            alloc_failure_begin(0);
        }
        begin(watch);
        sonde_watch_see(watch, slots[2], &view);
        sonde_watch_see(watch, slots[0], &view);
        sonde_watch_see(watch, slots[0], &view);
        values[1] += 1.0F;
        sonde_watch_see(watch, slots[2], &view);
        sonde_watch_see(watch, slots[1], &loss);
        sonde_watch_end_step(watch);
    }
    assert_int_equal(alloc_failure_count, 0);
    (void)alloc_failure_end();
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    sonde_rules_destroy(rules);
}

static sonde_err make_and_step(void)
{
    const sonde_hook_options options = {
        .size = sizeof options, .dry_run = true, .save_all = true};
    float value = 1.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    sonde_watch_options watched = {.size = sizeof watched};
    sonde_watch *watch = NULL;
    uint32_t slot = 0, late = 0;
    sonde_err err = sonde_hook_create(&options, &watched.hook, NULL);

    if (err == SONDE_OK) {
        err = sonde_rules_create(&watched.rules, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_rules_add(watched.rules, "NonFinite", NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_watch_create(&watched, &watch, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_watch_add_view(watch, "fc1.weight", &view, &slot, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_watch_add_update(watch, slot, &late, NULL);
    }
    if (err == SONDE_OK) {
        sonde_watch_see(watch, late, &view);
        sonde_watch_see(watch, late, &view);
        sonde_watch_see(watch, slot, &view);
        err = sonde_watch_scalar(watch, "lr", 1.0, NULL);
    }
    if (watch == NULL) {
        (void)sonde_hook_close(watched.hook, SONDE_RUN_FAILED, NULL, NULL);
    }
    (void)sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, NULL);
    sonde_rules_destroy(watched.rules);
    return err;
}

static void memory_runs_out(void **state)
{
    (void)state;
    for (size_t n = 0;; n++) {
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = make_and_step();
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            assert_true(n > 80);
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
}

/* An alias is selected and recorded under its own name; its slot alone is shown. */
static void an_alias_is_recorded(void **state)
{
    sonde_watch *watch = watch_of(hook_of(false), NULL);
    sonde_trial *trial = NULL;
    float value = 0.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    uint32_t slot = 0, id = 0;
    notes kept;

    (void)state;
    must(sonde_watch_add_view(watch, "embed.weight", &view, &slot, &diag));
    must(sonde_watch_add_alias(watch, slot, "head.weight", &diag));
    tap(watch, &kept, "head.weight", 1);
    for (int step = 0; step < 2; step++) {
        value = (float)step + 0.5F;
        begin(watch);
        sonde_watch_see(watch, slot, &view);
    }
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    assert_int_equal(kept.count, 2);
    must(sonde_trial_open(run, NULL, &trial, &diag));
    must(sonde_catalogue_find(sonde_trial_catalogue(trial), "head.weight", &id, &diag));
    assert_int_not_equal(id, slot);
    for (int step = 0; step < 2; step++) {
        const sonde_trial_at at = {.mode = SONDE_MODE_TRAIN, .step = step};
        sonde_vitals vitals;

        must(sonde_trial_vitals(trial, id, &at, &vitals, &diag));
        assert_true(vitals.mean == step + 0.5);
    }
    sonde_trial_close(trial);
}

/* What add_all added before an error stays, and the rest can be added later. */
static void an_error_keeps_the_slots_before(void **state)
{
    const sonde_tensor_info infos[3] = {
        {.name = "a.weight", .dtype = SONDE_F32},
        {.name = "b.weight", .dtype = SONDE_F32, .rank = 1, .shape = {-1}},
        {.name = "c.weight", .dtype = SONDE_F32}};
    sonde_watch *watch = watch_of(NULL, NULL);
    float value = 3.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    uint32_t slots[3] = {7, 7, 7};
    notes kept;

    (void)state;
    assert_int_equal(add_all(watch, infos, 3, slots, &diag), SONDE_ESHAPE);
    assert_int_equal(slots[0], 0);
    assert_true(slots[1] == 7 && slots[2] == 7);
    assert_int_equal(sonde_catalogue_count(sonde_watch_catalogue(watch)), 1);
    must(add_all(watch, infos + 2, 1, slots + 2, &diag));
    assert_int_equal(slots[2], 1);
    tap(watch, &kept, "*", 1);
    begin(watch);
    sonde_watch_see(watch, slots[0], &view);
    sonde_watch_see(watch, slots[2], &view);
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    assert_int_equal(kept.count, 2);
}

/* A hook that closes with an error: the step has ended, the rules have finished, and the
 * watch is freed. */
static void a_failed_close_ends_all(void **state)
{
    sonde_rules *rules = NULL;
    sonde_watch *watch = NULL;
    float value = NAN;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    const sonde_finding *finding = NULL;
    uint32_t slot = 0;
    size_t count = 0;

    (void)state;
    must(sonde_rules_create(&rules, &diag));
    must(sonde_rules_add(rules, "NonFinite", &diag));
    watch = watch_of(hook_of(false), rules);
    must(sonde_watch_add_view(watch, "fc.weight", &view, &slot, &diag));
    begin(watch);
    sonde_watch_see(watch, slot, &view);
    assert_int_equal(sonde_watch_close(watch, (sonde_run_end)99, NULL, &diag),
                     SONDE_EINVAL);
    finding = sonde_rules_findings(rules, &count);
    assert_int_equal(count, 1);
    assert_string_equal(finding->tensor, "fc.weight");
    sonde_rules_destroy(rules);
}

/* --- arguments that make no sense ------------------------------------------------------ */

static void test_null_and_garbage(void **state)
{
    static float value = 1.0F;
    sonde_watch *watch = watch_of(NULL, NULL);
    sonde_tensor_info wrong = {.name = "a", .dtype = SONDE_F32, .rank = 1, .shape = {3}};
    sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value), far = {.rank = 12};
    void (*see)(sonde_watch *, uint32_t, const sonde_view *) = sonde_watch_see;
    uint32_t slot = 0, other = 0;

    (void)state;
    assert_int_equal(sonde_watch_create(NULL, NULL, NULL), SONDE_EINVAL);
    assert_int_equal(sonde_hook_create(NULL, NULL, NULL), SONDE_EINVAL);
    assert_int_equal(sonde_watch_add(watch, NULL, &slot, NULL), SONDE_EINVAL);
    assert_int_equal(sonde_watch_add(NULL, &wrong, &slot, NULL), SONDE_EINVAL);
    assert_int_equal(sonde_watch_add_view(watch, NULL, &view, &slot, NULL), SONDE_EINVAL);
    assert_int_equal(sonde_watch_add_view(watch, "far", &far, &slot, NULL), SONDE_ESHAPE);
    wrong.dtype = (sonde_dtype)99;
    assert_int_equal(sonde_watch_add(watch, &wrong, &slot, NULL), SONDE_EDTYPE);
    wrong.dtype = SONDE_F32;
    wrong.shape[0] = -3;
    assert_int_equal(sonde_watch_add(watch, &wrong, &slot, NULL), SONDE_ESHAPE);
    wrong.shape[0] = INT64_MAX;
    assert_int_equal(sonde_watch_add(watch, &wrong, &slot, NULL), SONDE_ESHAPE);
    must(sonde_watch_add_view(watch, "loss", &view, &slot, &diag));
    assert_int_equal(sonde_watch_add_alias(watch, 77, "b", NULL), SONDE_ERANGE);
    must(sonde_watch_add_alias(watch, slot, "cost", &diag));
    assert_int_equal(sonde_watch_add_view(watch, "cost", &view, &other, NULL),
                     SONDE_EEXIST);
    assert_int_equal(sonde_watch_begin_step(NULL, SONDE_MODE_TRAIN, NULL), SONDE_EINVAL);
    must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
    sonde_watch_see_due(watch, slot, NULL);
    sonde_watch_see_due(watch, slot, &far);
    far = view;
    far.data = NULL;
    sonde_watch_see_due(watch, slot, &far);
    far.dtype = (sonde_dtype)99;
    sonde_watch_see_due(watch, slot, &far);
    sonde_watch_see_due(watch, 1000, &view);
    sonde_watch_see_replica(watch, slot, &view, 0, 5);
    sonde_watch_see_replica(watch, slot, &view, 0, 0);
    sonde_watch_see_all(watch, NULL, NULL, 3);
    see(watch, slot, &view);
    sonde_watch_end_step(watch);
    sonde_watch_end_step(NULL);
    assert_null(sonde_watch_catalogue(NULL));
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_and_garbage),
        cmocka_unit_test(an_error_keeps_the_slots_before),
        cmocka_unit_test_setup_teardown(an_alias_is_recorded, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_failed_close_ends_all, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(values_are_those_of_vitals_of, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(findings_are_those_of_the_run, make_folder,
                                        remove_folder),
        cmocka_unit_test(rules_take_up_late_slots),
        cmocka_unit_test(micro_batches_and_modes),
        cmocka_unit_test(slots_stand_alone),
        cmocka_unit_test(a_late_slot_is_seen_at_its_step),
        cmocka_unit_test(updates_are_differences),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
