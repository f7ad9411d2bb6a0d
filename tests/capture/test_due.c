/*
 * When a watch wants its slots: as the rules need, as the program says, for roles without
 * slots; vital signs that the program computes; replicas, aliases and late slots under
 * rules.
 */
#include "cmocka_all.h"

#include "base/macros.h"

#include <sonde/error.h>
#include <sonde/watch.h>

#include <stdio.h>
#include <string.h>

enum { WEIGHT, GRADIENT, LOSS, OUTPUT, SLOTS };

static const struct {
    const char *name;
    sonde_role role;
} tensors[SLOTS] = {{"fc1.weight", SONDE_ROLE_WEIGHT},
                    {"gradient/fc1.weight", SONDE_ROLE_GRADIENT},
                    {"loss", SONDE_ROLE_LOSS},
                    {"fc1_output_0", SONDE_ROLE_OUTPUT}};

static sonde_diag diag;
static float values[64];

static void must(sonde_err err)
{
    char line[SONDE_DIAG_LINE];

    if (err != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
}

static sonde_view view_of_slot(int slot)
{
    static const int64_t shape[2] = {8, 8};

    return sonde_view_of(SONDE_F32, slot == LOSS ? 0 : 2, shape, values);
}

static sonde_rules *rules_of(const char *list)
{
    sonde_rules *rules = NULL;

    must(sonde_rules_create(&rules, &diag));
    must(sonde_rules_add_list(rules, list, &diag));
    return rules;
}

static sonde_watch *watch_of(const sonde_watch_options *options)
{
    sonde_watch *watch = NULL;

    must(sonde_watch_create(options, &watch, &diag));
    for (int i = 0; i < SLOTS; i++) {
        const sonde_view view = view_of_slot(i);
        sonde_tensor_info info = {.name = tensors[i].name,
                                  .role = tensors[i].role,
                                  .dtype = view.dtype,
                                  .rank = view.rank};
        uint32_t slot = 0;

        memcpy(info.shape, view.shape, sizeof info.shape);
        must(sonde_watch_add(watch, &info, &slot, &diag));
        assert_int_equal(slot, i);
    }
    return watch;
}

static void begin(sonde_watch *watch, sonde_mode mode)
{
    must(sonde_watch_begin_step(watch, mode, &diag));
}

static void close_watch(sonde_watch *watch, sonde_rules *rules)
{
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    sonde_rules_destroy(rules);
}

/* A slot is wanted exactly when its role's schedule says so, which only these rules
 * fill. */
static void slots_are_due_as_rules_need(void **state)
{
    sonde_rules *rules = rules_of("WeightUpdateRatio,NonFinite,LossSpike");
    sonde_watch *watch = watch_of(SONDE_OPTIONS(sonde_watch, .rules = rules));
    sonde_rules_looks looks[SLOTS];

    (void)state;
    for (int i = 0; i < SLOTS; i++) {
        looks[i] = sonde_rules_looks_of_role(rules, tensors[i].role, SONDE_MODE_TRAIN);
    }
    assert_int_equal(sonde_watch_wants_role(watch, SONDE_ROLE_LOSS), 0); /* no step */
    for (int64_t step = 0; step < 320; step++) {
        begin(watch, SONDE_MODE_TRAIN);
        for (uint32_t i = 0; i < SLOTS; i++) {
            const bool vitals =
                           sonde_schedule_due(&looks[i].when[SONDE_FORM_VITALS], step),
                       raw = sonde_schedule_due(&looks[i].when[SONDE_FORM_RAW], step),
                       norms = sonde_schedule_due(&looks[i].when[SONDE_FORM_NORMS], step);
            const unsigned wanted = (vitals ? SONDE_HOW_VITALS : 0U) |
                                    (raw ? SONDE_HOW_RAW : 0U) |
                                    (norms ? SONDE_HOW_NORMS : 0U);

            assert_int_equal(sonde_watch_wants(watch, i), wanted);
            assert_int_equal(sonde_watch_wants_role(watch, tensors[i].role), wanted);
        }
        assert_int_equal(sonde_watch_wants(watch, GRADIENT) & SONDE_HOW_RAW, 0);
        sonde_watch_end_step(watch);
        assert_int_equal(sonde_watch_wants(watch, LOSS), 0);
    }
    close_watch(watch, rules);
}

/* The program's own steps win: 0 is as the rules need, below 0 never. Raw values come no
 * more often than it says; losses at every step if it does not say. */
static void the_program_says_how_often(void **state)
{
    sonde_rules *rules = rules_of("default");
    sonde_watch_options options = {.size = sizeof options, .rules = rules};
    sonde_watch *watch = NULL;

    (void)state;
    options.every[SONDE_ROLE_WEIGHT] = 300;
    options.every[SONDE_ROLE_GRADIENT] = 1;
    options.every[SONDE_ROLE_OUTPUT] = -1;
    options.every[SONDE_ROLE_ACTIVATION] = -1;
    options.every[SONDE_ROLE_LOSS] = 100;
    watch = watch_of(&options);
    for (int64_t step = 0; step < 650; step++) {
        const bool first = step < 20;
        unsigned weight = 0;

        begin(watch, SONDE_MODE_TRAIN);
        weight = sonde_watch_wants(watch, WEIGHT);
        assert_int_equal((weight & SONDE_HOW_VITALS) != 0, first || step % 300 == 0);
        assert_int_equal((weight & SONDE_HOW_RAW) != 0, first || step % 300 < 2);
        assert_true((sonde_watch_wants(watch, GRADIENT) & SONDE_HOW_VITALS) != 0);
        assert_int_equal((sonde_watch_wants(watch, GRADIENT) & SONDE_HOW_RAW) != 0,
                         first || step % 100 < 6);
        assert_int_equal((sonde_watch_wants(watch, LOSS) & SONDE_HOW_VITALS) != 0,
                         first || step % 100 == 0);
        assert_int_equal(sonde_watch_wants(watch, OUTPUT), 0);
        assert_int_equal(sonde_watch_wants_role(watch, SONDE_ROLE_ACTIVATION), 0);
    }
    close_watch(watch, rules);
}

/* Steps between looks for all tensors: the first 50 and each 30th; raw values ten times as
 * seldom, except for a rule that compares neighboring steps; losses at every step. */
static void one_number_holds_for_all_tensors(void **state)
{
    static const char *const lists[] = {"SymmetricUnits", "WeightUpdateRatio"};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(lists); i++) {
        sonde_rules *rules = rules_of(lists[i]);
        sonde_watch *watch =
            watch_of(SONDE_OPTIONS(sonde_watch, .rules = rules, .rules_every = 30));

        for (int64_t step = 0; step < 320; step++) {
            const bool due = step < 50 || step % 30 == 0;
            unsigned weight = 0;

            begin(watch, SONDE_MODE_TRAIN);
            weight = sonde_watch_wants(watch, WEIGHT);
            assert_int_equal((weight & SONDE_HOW_VITALS) != 0, due);
            assert_int_equal((weight & SONDE_HOW_RAW) != 0,
                             i == 0 ? step % 300 == 0 : due);
            assert_true((sonde_watch_wants(watch, LOSS) & SONDE_HOW_VITALS) != 0);
        }
        close_watch(watch, rules);
    }
}

/* A role without slots is asked of the schedule, so that a program can decide whether to
 * catch its tensors at all; a slot that is added then is seen at once. */
static void a_role_without_slots_can_be_asked(void **state)
{
    sonde_rules *rules = rules_of("NonFinite,DeadRelu");
    sonde_watch *watch = watch_of(SONDE_OPTIONS(sonde_watch, .rules = rules));
    sonde_tensor_info info = {.name = "relu_output_0",
                              .role = SONDE_ROLE_ACTIVATION,
                              .dtype = SONDE_F32,
                              .rank = 1,
                              .shape = {64}};
    uint32_t slot = 0;

    (void)state;
    for (int64_t step = 0; step < 101; step++) {
        begin(watch, SONDE_MODE_TRAIN);
        assert_int_equal(sonde_watch_wants_role(watch, SONDE_ROLE_ACTIVATION) != 0,
                         step < 20 || step % 50 == 0);
        sonde_watch_end_step(watch);
    }
    begin(watch, SONDE_MODE_TRAIN);
    assert_int_equal(sonde_watch_wants_role(watch, SONDE_ROLE_ACTIVATION), 0);
    sonde_watch_end_step(watch);
    for (int64_t step = 102; step <= 150; step++) {
        begin(watch, SONDE_MODE_TRAIN);
    }
    must(sonde_watch_add(watch, &info, &slot, &diag));
    assert_true((sonde_watch_wants(watch, slot) & SONDE_HOW_VITALS) != 0);
    assert_int_equal(sonde_watch_wants_role(watch, SONDE_ROLE_ACTIVATION),
                     sonde_watch_wants(watch, slot));
    close_watch(watch, rules);
}

/* Vital signs of the program reach the rules where they are all that is wanted. */
static void vital_signs_may_be_given(void **state)
{
    sonde_rules *rules = rules_of("NonFinite");
    sonde_watch *watch = watch_of(SONDE_OPTIONS(sonde_watch, .rules = rules));
    sonde_view view = view_of_slot(OUTPUT);
    sonde_vitals vitals, back;
    size_t count = 0;

    (void)state;
    values[3] = (float)(0.0 / (double)values[0]); /* values are 0: a NaN */
    sonde_vitals_of(&view, &vitals);
    values[3] = 0.0F;
    view.data = NULL;
    begin(watch, SONDE_MODE_TRAIN);
    sonde_watch_see_vitals(watch, OUTPUT, &view, &vitals);
    sonde_watch_see_vitals(watch, SLOTS, &view, &vitals);
    sonde_watch_see_vitals(watch, OUTPUT, &view, NULL);
    sonde_watch_see_vitals(NULL, OUTPUT, &view, &vitals);
    assert_true(sonde_watch_vitals(watch, OUTPUT, &back));
    assert_memory_equal(&vitals, &back, sizeof back);
    sonde_watch_end_step(watch);
    assert_string_equal(sonde_rules_findings(rules, &count)[0].tensor, "fc1_output_0");
    assert_int_equal(count, 1);
    close_watch(watch, rules);
}

/* Shows a step whose gradient is NaN at step 3, and ends it. */
static void show_step(sonde_watch *watch, int64_t step)
{
    sonde_view view = view_of_slot(GRADIENT);
    sonde_vitals vitals;

    values[0] = step == 3 ? (float)(0.0 / (double)values[1]) : 1.0F; /* values are 0 */
    sonde_vitals_of(&view, &vitals);
    values[0] = 0.0F;
    view.data = NULL;
    sonde_watch_see_vitals(watch, GRADIENT, &view, &vitals);
    sonde_watch_end_step(watch);
}

/* Steps that are left, and continued two steps later, are judged under their own numbers,
 * and the steps in between are due as ever. */
static void steps_may_be_late(void **state)
{
    enum { LAG = 2, STEPS = 9 };
    sonde_rules *rules = rules_of("NonFinite");
    sonde_watch *watch = watch_of(SONDE_OPTIONS(sonde_watch, .rules = rules));
    sonde_coordinate left[STEPS];
    const sonde_finding *finding = NULL;
    size_t count = 0;

    (void)state;
    sonde_watch_leave_step(NULL);
    sonde_watch_return_to(NULL, NULL);
    sonde_watch_return_to(watch, &(sonde_coordinate){0}); /* no step has begun */
    for (int64_t step = 0; step < STEPS; step++) {
        begin(watch, SONDE_MODE_TRAIN);
        assert_true(sonde_watch_wants(watch, GRADIENT) != 0);
        left[step] = sonde_watch_where(watch);
        assert_int_equal(left[step].global_step, step);
        sonde_watch_leave_step(watch);
        sonde_watch_leave_step(watch);
        assert_int_equal(sonde_watch_wants(watch, GRADIENT), 0);
        (void)sonde_rules_findings(rules, &count);
        assert_int_equal(count, step > 3 + LAG);
        if (step >= LAG) {
            sonde_watch_return_to(watch, &left[step - LAG]);
            show_step(watch, step - LAG);
        }
    }
    for (int64_t step = STEPS - LAG; step < STEPS; step++) {
        sonde_watch_return_to(watch, &left[step]);
        show_step(watch, step);
    }
    finding = sonde_rules_findings(rules, &count);
    assert_int_equal(count, 1);
    assert_string_equal(finding->tensor, "gradient/fc1.weight");
    assert_int_equal(finding->step, 3);
    assert_int_equal(sonde_rules_steps(rules), STEPS);
    close_watch(watch, rules);
}

/* Two replicas whose weights part at step 3; a second name of the weight, and one that
 * comes late, are judged as well. */
static void replicas_that_part_are_found(void **state)
{
    sonde_rules *rules = rules_of("ReplicaDivergence,NonFinite");
    sonde_watch *watch =
        watch_of(SONDE_OPTIONS(sonde_watch, .rules = rules, .replicas = 2));
    const sonde_finding *finding = NULL;
    sonde_view view = view_of_slot(WEIGHT);
    uint32_t late = 0;
    size_t count = 0;

    (void)state;
    must(sonde_watch_add_alias(watch, WEIGHT, "tied.weight", &diag));
    for (int step = 0; step < 6; step++) {
        begin(watch, SONDE_MODE_TRAIN);
        if (step == 2) {
            must(sonde_watch_add_view(watch, "late.weight", &view, &late, &diag));
        }
        for (int replica = 0; replica < 2; replica++) {
            values[0] = step >= 3 ? (float)replica : 0.0F;
            sonde_watch_see_replica(watch, WEIGHT, &view, 0, replica);
            values[0] = step >= 4 ? (float)replica : 0.0F;
            if (step >= 2) {
                sonde_watch_see_replica(watch, late, &view, 0, replica);
            }
        }
        values[0] = 0.0F;
        sonde_watch_end_step(watch);
    }
    finding = sonde_rules_findings(rules, &count);
    assert_int_equal(count, 2);
    assert_string_equal(finding[0].rule, "ReplicaDivergence");
    assert_string_equal(finding[0].tensor, "fc1.weight");
    assert_string_equal(finding[0].message, "Replicas 0 and 1 have different values.");
    assert_int_equal(finding[0].step, 3);
    assert_string_equal(finding[1].tensor, "late.weight");
    assert_int_equal(finding[1].step, 4);
    close_watch(watch, rules);
}

/* Every default rule declares the roles of the tensors that it wants: a tensor has no look
 * that its role lacks. */
static void check_roles(const char *name, sonde_role role, bool whole, int rank)
{
    const sonde_tensor_info info = {.name = name,
                                    .role = role,
                                    .dtype = whole ? SONDE_I64 : SONDE_F32,
                                    .rank = rank,
                                    .shape = {64, 8},
                                    .same_as = SONDE_NO_TENSOR};
    sonde_rules_looks looks[SONDE_MODE_COUNT];
    sonde_catalogue *catalogue = NULL;
    uint32_t id = 0;

    memset(looks, 1, sizeof looks); /* which is written, not joined */
    must(sonde_catalogue_create(&catalogue, &diag));
    must(sonde_catalogue_declare(catalogue, &info, &id, &diag));
    must(sonde_rules_default_looks(catalogue, 0, NULL, looks, &diag));
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        const sonde_rules_looks all = sonde_rules_looks_of_role(NULL, role,
                                                                (sonde_mode)mode),
                                *own = &looks[mode];
        sonde_rules_looks both;

        for (int form = 0; form < SONDE_FORM_COUNT; form++) {
            both.when[form] = sonde_schedule_join(&all.when[form], &own->when[form]);
        }
        if (memcmp(&both, &all, sizeof both) != 0) {
            fail_msg("'%s' of role %s is wanted more often than its role", name,
                     sonde_role_name(role));
        }
    }
    sonde_catalogue_destroy(catalogue);
}

static void needs_declare_their_roles(void **state)
{
    static const struct {
        const char *name;
        sonde_role least, most; /* roles of tensors with such names */
    } names[] = {{"fc1.weight", 0, SONDE_ROLE_COUNT - 1},
                 {"fc1", 0, SONDE_ROLE_COUNT - 1},
                 {"loss", SONDE_ROLE_LOSS, SONDE_ROLE_LOSS},
                 {"labels", SONDE_ROLE_INPUT, SONDE_ROLE_INPUT},
                 {"targets", SONDE_ROLE_INPUT, SONDE_ROLE_INPUT},
                 {"loss_input_0", SONDE_ROLE_INPUT, SONDE_ROLE_ACTIVATION},
                 {"relu1_input_0", SONDE_ROLE_INPUT, SONDE_ROLE_ACTIVATION},
                 {"relu1_output_0", SONDE_ROLE_INPUT, SONDE_ROLE_ACTIVATION},
                 {"tanh1_output_0", SONDE_ROLE_INPUT, SONDE_ROLE_ACTIVATION},
                 {"drop1_output_0", SONDE_ROLE_INPUT, SONDE_ROLE_ACTIVATION}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        for (int role = (int)names[i].least; role <= (int)names[i].most; role++) {
            for (int k = 0; k < 4; k++) {
                check_roles(names[i].name, (sonde_role)role, k % 2 != 0, 1 + k / 2);
            }
        }
    }
}

/* A sink that keeps the vital signs of the last step. */
typedef struct last_vitals {
    sonde_sink sink; /* first */
    sonde_vitals vitals;
    int count;
} last_vitals;

static void keep_vitals(sonde_sink *sink, const sonde_observation *observation)
{
    ((last_vitals *)sink)->vitals = *observation->vitals;
    ((last_vitals *)sink)->count++;
}

/* Norms beside vital signs are those of the vital signs; alone, they are of one pass of
 * their own. */
static void norms_beside_vital_signs_are_theirs(void **state)
{
    static const unsigned how[2] = {SONDE_HOW_NORMS, SONDE_HOW_VITALS};
    float numbers[64];
    sonde_view view = view_of_slot(WEIGHT);
    sonde_watch *watch = watch_of(NULL);
    last_vitals kept[2] = {{.sink = {.put = keep_vitals}},
                           {.sink = {.put = keep_vitals}}};
    sonde_vitals vitals, norms, own;

    (void)state;
    for (int i = 0; i < 2; i++) {
        sonde_tap tap = {.how = how[i], .where = &kept[i].sink};
        sonde_selector *selector = NULL;

        must(sonde_selector_create("fc1.weight", &selector, &diag));
        tap.what = selector;
        tap.when[SONDE_MODE_TRAIN] = sonde_schedule_every(i + 1);
        must(sonde_observer_add(sonde_watch_observer(watch), &tap, NULL, &diag));
        sonde_selector_destroy(selector);
    }
    for (int i = 0; i < 64; i++) {
        numbers[i] = 1.0F / (float)(3 * i + 1);
    }
    view.data = numbers;
    sonde_vitals_of(&view, &vitals);
    sonde_norms_of(&view, &own);
    norms = vitals;
    sonde_norms_keep(&norms);
    assert_memory_not_equal(&own, &norms, sizeof own); /* or the test cannot tell */
    for (int step = 0; step < 4; step++) {
        must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        sonde_watch_see(watch, WEIGHT, &view);
        sonde_watch_end_step(watch);
        assert_memory_equal(&kept[0].vitals, step % 2 == 0 ? &norms : &own, sizeof own);
        assert_memory_equal(&kept[1].vitals, &vitals, sizeof vitals);
        assert_int_equal(kept[0].count, step + 1);
        assert_int_equal(kept[1].count, step / 2 + 1);
    }
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_beside_vital_signs_are_theirs),
        cmocka_unit_test(slots_are_due_as_rules_need),
        cmocka_unit_test(the_program_says_how_often),
        cmocka_unit_test(one_number_holds_for_all_tensors),
        cmocka_unit_test(a_role_without_slots_can_be_asked),
        cmocka_unit_test(vital_signs_may_be_given),
        cmocka_unit_test(steps_may_be_late),
        cmocka_unit_test(replicas_that_part_are_found),
        cmocka_unit_test(needs_declare_their_roles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
