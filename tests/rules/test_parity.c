/*
 * The same program judged in its process, live from a thread beside it, and afterwards,
 * by all rules that need not be told anything, whatever names its tensors are recorded
 * under, in whatever order they come, however seldom: the same findings to the letter.
 * tsan: yes
 */
#include "rules/sources.h"

#include "base/random.h"
#include "record/record_sink.h"

#include <sonde/error.h>
#include <sonde/recorder.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

enum {
    STEPS = 120,
    ROWS = 8,
    COLUMNS = 6,
    LAYERS = 5,
    EVAL_EVERY = 5,
    LATE = 7,
    SHRUNK = 20
};
enum { INPUT, INPUT_AGAIN, RELU, RELU_AGAIN, LABELS, LABELS_AGAIN, LOSS, WEIGHTS };
enum { GRADIENTS = WEIGHTS + LAYERS, TENSORS = GRADIENTS + LAYERS };
/* The first layer has no gradient at first: it comes after all others. */
enum { THAWED = GRADIENTS };

static const struct {
    const char *name;
    sonde_role role;
    sonde_pass pass;
    sonde_dtype dtype;
    int rank;
    uint32_t same_as;
} firsts[WEIGHTS] = {
    {"input", SONDE_ROLE_INPUT, SONDE_PASS_NONE, SONDE_F32, 2, SONDE_NO_TENSOR},
    {"fc1_input_0", SONDE_ROLE_INPUT, SONDE_PASS_NONE, SONDE_F32, 2, INPUT},
    {"relu_output_0", SONDE_ROLE_OUTPUT, SONDE_PASS_FORWARD, SONDE_F32, 2,
     SONDE_NO_TENSOR},
    {"fc2_input_0", SONDE_ROLE_INPUT, SONDE_PASS_FORWARD, SONDE_F32, 2, RELU},
    {"labels", SONDE_ROLE_INPUT, SONDE_PASS_NONE, SONDE_I64, 1, SONDE_NO_TENSOR},
    {"loss_input_1", SONDE_ROLE_INPUT, SONDE_PASS_NONE, SONDE_I64, 1, LABELS},
    {"loss_output_0", SONDE_ROLE_LOSS, SONDE_PASS_FORWARD, SONDE_F32, 0, SONDE_NO_TENSOR},
};

static char folder[] = "/tmp/sonde_parity_XXXXXX", run[64];

/* --- the program ------------------------------------------------------------------ */

/* What a tap records, of which tensors. */
typedef struct recorded {
    const char *what;
    unsigned how;
    int64_t every;
} recorded;

typedef struct program {
    sonde_catalogue *catalogue;
    sonde_observer *observer;
    sonde_recorder *recorder;
} program;

static void declare(program *self, const char *name, sonde_role role, sonde_pass pass,
                    sonde_dtype dtype, int rank, uint32_t same_as)
{
    const sonde_tensor_info info = {
        .name = name,
        .op = strncmp(name, "relu", 4) == 0 ? "Relu" : "",
        .role = role,
        .pass = pass,
        .dtype = dtype,
        .rank = rank,
        .shape = {rank > 0 ? ROWS : 0, rank > 1 ? COLUMNS : 0},
        .same_as = same_as};
    uint32_t id = 0;
    sonde_diag diag = {0};

    ok(sonde_catalogue_declare(self->catalogue, &info, &id, &diag), &diag);
}

static void declare_all(program *self)
{
    for (int i = 0; i < WEIGHTS; i++) {
        declare(self, firsts[i].name, firsts[i].role, firsts[i].pass, firsts[i].dtype,
                firsts[i].rank, firsts[i].same_as);
    }
    for (int i = 0; i < 2 * LAYERS; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "%sfc%d.weight",
                       i < LAYERS ? "" : "Gradient___", i % LAYERS + 1);
        declare(self, name, i < LAYERS ? SONDE_ROLE_WEIGHT : SONDE_ROLE_GRADIENT,
                i < LAYERS ? SONDE_PASS_NONE : SONDE_PASS_BACKWARD, SONDE_F32, 2,
                SONDE_NO_TENSOR);
    }
}

static void tap(const program *self, const recorded *asked)
{
    sonde_tap added = {.how = asked->how, .where = sonde__recorder_sink(self->recorder)};
    sonde_selector *what = NULL;
    sonde_diag diag = {0};

    ok(sonde_selector_create(asked->what, &what, &diag), &diag);
    added.what = what;
    added.when[SONDE_MODE_TRAIN] = sonde_schedule_every(asked->every);
    added.when[SONDE_MODE_EVAL] = sonde_schedule_every(asked->every);
    ok(sonde_observer_add(self->observer, &added, NULL, &diag), &diag);
    sonde_selector_destroy(what);
}

/* inside sees everything at every step; the run has what is asked for, up to a NULL. */
static void program_open(program *self, const recorded *asked, sonde_rules *inside)
{
    const sonde_recorder_options options = {
        .size = sizeof options, .path = run, .when_full = SONDE_WHEN_FULL_WAIT};
    const sonde_call_shape shape = {1, 1, 1};
    sonde_diag diag = {0};

    *self = (program){0};
    ok(sonde_catalogue_create(&self->catalogue, &diag), &diag);
    declare_all(self);
    ok(sonde__recorder_create(&options, self->catalogue, &self->recorder, &diag), &diag);
    ok(sonde_observer_create(self->catalogue, &self->observer, &diag), &diag);
    for (; asked->what != NULL; asked++) {
        tap(self, asked);
    }
    ok(sonde_rules_attach(inside, self->catalogue, self->observer, 1, 1, &diag), &diag);
    ok(sonde_observer_bind(self->observer, &shape, &diag), &diag);
}

/* The same batch again late in the run, units that die, a loss that rises in evaluation
 * and is missing now and then, gradients that shrink from layer to layer, and a NaN at
 * the end. */
static float value_of(uint32_t id, int64_t step, int i)
{
    const int64_t drawn = id == INPUT && step > STEPS / 2 ? STEPS / 2 : step;
    const float x = sonde__normal(11, id, (uint64_t)(drawn * ROWS * COLUMNS + i));

    if (id == RELU) {
        return i % COLUMNS < 4 && step > 5 ? 0.0F : fmaxf(x, 0.0F);
    }
    if (id == LOSS) {
        return 1.0F +
               (step % EVAL_EVERY == EVAL_EVERY - 1 ? 0.05F : -0.01F) * (float)step;
    }
    if (id >= GRADIENTS) {
        const int behind = step >= SHRUNK ? LAYERS - 1 - (int)(id - GRADIENTS) : 0;

        return step == STEPS - 2 && id == GRADIENTS + 1 && i == 3
                   ? NAN
                   : x * powf(0.05F, (float)behind);
    }
    return id >= WEIGHTS
               ? sonde__normal(12, id, (uint64_t)i) * (1.0F + 1e-3F * (float)step)
               : x;
}

static bool is_shown(uint32_t id, int64_t step, sonde_mode mode)
{
    return !(id == THAWED && step < LATE) && !(id == LOSS && step % 7 == 3) &&
           (mode == SONDE_MODE_TRAIN || id < WEIGHTS);
}

static void show(const program *self, uint32_t id, int64_t step)
{
    const sonde_tensor_info *info = sonde_catalogue_info(self->catalogue, id);
    float values[ROWS * COLUMNS];
    int64_t labels[ROWS];
    sonde_view view = sonde_view_of(info->dtype, info->rank, info->shape, values);

    for (int i = 0; i < (int)sonde_view_count(&view); i++) {
        if (id == LABELS) {
            labels[i] = (step + i) % 50 == 0;
        } else {
            values[i] = value_of(id, step, i);
        }
    }
    view.data = id == LABELS ? (void *)labels : (void *)values;
    sonde_observer_observe(self->observer, id, &view, NULL, 0, 0);
}

static void step(const program *self, int64_t global)
{
    const bool evaluates = global % EVAL_EVERY == EVAL_EVERY - 1;
    const sonde_coordinate at = {.mode = evaluates ? SONDE_MODE_EVAL : SONDE_MODE_TRAIN,
                                 .global_step = global,
                                 .mode_step = evaluates ? global / EVAL_EVERY
                                                        : global - global / EVAL_EVERY};

    if (!sonde_observer_begin_step(self->observer,
                                   sonde_observer_get_gate(self->observer), &at)) {
        return;
    }
    for (uint32_t id = 0; id < TENSORS; id++) {
        if (sonde_catalogue_info(self->catalogue, id)->same_as == id &&
            is_shown(id, global, at.mode)) {
            show(self, id, global);
        }
    }
    sonde_observer_end_step(self->observer);
}

static void *train(void *arg)
{
    const program *self = arg;
    sonde_diag diag = {0};

    for (int64_t global = 0; global < STEPS; global++) {
        step(self, global);
        (void)usleep(1000);
    }
    ok(sonde__recorder_close(self->recorder, SONDE_RUN_FINISHED, NULL, &diag), &diag);
    return NULL;
}

/* --- three ways ------------------------------------------------------------------- */

static sonde_rules *all_rules(void)
{
    sonde_rules *rules = NULL;
    sonde_diag diag = {0};

    ok(sonde_rules_create(&rules, &diag), &diag);
    ok(sonde_rules_add_defaults(rules, &diag), &diag);
    return rules;
}

static void *judge_live(void *arg)
{
    return sources_judge(arg, run, true);
}

static bool has(sonde_rules *rules, const char *rule, const char *tensor)
{
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(rules, &count);
    bool found = false;

    for (size_t i = 0; i < count; i++) {
        found = found ||
                (strcmp(all[i].rule, rule) == 0 && strcmp(all[i].tensor, tensor) == 0);
    }
    return found;
}

static void three_ways(const recorded *asked)
{
    sonde_rules *inside = all_rules(), *live = all_rules();
    pthread_t trains, follows;
    program self;

    stream_remove(run);
    program_open(&self, asked, inside);
    assert_int_equal(pthread_create(&trains, NULL, train, &self), 0);
    assert_int_equal(pthread_create(&follows, NULL, judge_live, live), 0);
    (void)pthread_join(trains, NULL);
    (void)pthread_join(follows, NULL);
    sonde_rules_finish(inside);
    assert_true(has(inside, "VanishingGradient", "Gradient___fc1.weight"));
    assert_true(has(inside, "DuplicateBatch", "input"));
    assert_true(has(inside, "NonFinite", "Gradient___fc2.weight"));
    assert_true(has(inside, "DeadRelu", "relu_output_0"));
    assert_true(has(inside, "Overfit", "loss_output_0"));
    assert_true(has(inside, "ClassImbalance", ""));
    sources_same(inside, sources_judge(all_rules(), run, false), false, 5);
    sources_same(live, sources_judge(all_rules(), run, false), false, 5);
    sonde_observer_destroy(self.observer);
    sonde_catalogue_destroy(self.catalogue);
}

enum { ALL = SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_SKETCH };
#define OWN "@loss,@weights,@gradients"

static void under_their_own_names(void **state)
{
    static const recorded asked[] = {{"@all", ALL, 1}, {0}};

    (void)state;
    three_ways(asked);
}

static void under_all_names(void **state)
{
    static const recorded asked[] = {{"*", ALL, 1}, {0}};

    (void)state;
    three_ways(asked);
}

static void under_other_names(void **state)
{
    static const recorded asked[] = {
        {OWN ",fc1_input_0,fc2_input_0,loss_input_1", ALL, 1}, {0}};

    (void)state;
    three_ways(asked);
}

/* One name at some steps, the other at all; vital signs under one, values under the
 * other. */
static void under_names_that_take_turns(void **state)
{
    static const recorded asked[] = {{OWN, ALL, 1},
                                     {"input,relu_output_0", ALL, 3},
                                     {"fc1_input_0,fc2_input_0", ALL, 1},
                                     {"labels", SONDE_HOW_VITALS, 1},
                                     {"loss_input_1", SONDE_HOW_RAW, 1},
                                     {0}};

    (void)state;
    three_ways(asked);
}

/* Vital signs are made from the values where there are none. */
static void by_values_alone(void **state)
{
    static const recorded asked[] = {
        {"@all", SONDE_HOW_RAW, 1}, {"@gradients,@loss", SONDE_HOW_VITALS, 4}, {0}};

    (void)state;
    three_ways(asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(under_their_own_names),
        cmocka_unit_test(under_all_names),
        cmocka_unit_test(under_other_names),
        cmocka_unit_test(under_names_that_take_turns),
        cmocka_unit_test(by_values_alone),
    };
    int failed = 0;

    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    (void)snprintf(run, sizeof run, "%s/run", folder);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    stream_remove(folder);
    return failed;
}
