/*
 * The same run judged in its own process, live from a thread beside it, and afterwards:
 * the same findings with the same ids; files of findings; bad rules and parameters.
 * tsan: yes
 */
#include "rules/sources.h"
#include "base/macros.h"
#include "base/random.h"

#include "alloc_failure.h"
#include "record/record_sink.h"
#include "rules/engine.h"

#include <sonde/recorder.h>

#include <pthread.h>
#include <unistd.h>

enum { STEPS = 40, N = 12, BAD = 17 };
enum { WEIGHT, GRADIENT, LAST, TENSORS };

static const char *const names[TENSORS] = {"fc1.weight", "Gradient___fc1.weight",
                                           "Gradient___fc2.weight"};

/* A producer whose first gradient becomes tiny, and whose last turns NaN in the end. */
typedef struct producer {
    sonde_catalogue *catalogue;
    sonde_observer *observer;
    sonde_recorder *recorder;
    const char *path;
    int64_t other_at; /* step at which the weight has another value; -1: none */
} producer;

static void producer_open(producer *self, const char *path, sonde_rules *rules)
{
    const sonde_recorder_options options = {.size = sizeof options, .path = path};
    const sonde_call_shape shape = {1, 1, 1};
    sonde_tap tap = {.how = SONDE_HOW_RAW | SONDE_HOW_VITALS};
    sonde_selector *all = NULL;
    sonde_diag diag = {0};

    *self = (producer){.path = path, .other_at = -1};
    ok(sonde_catalogue_create(&self->catalogue, &diag), &diag);
    for (int i = 0; i < TENSORS; i++) {
        const sonde_tensor_info info = {
            .name = names[i],
            .role = i == WEIGHT ? SONDE_ROLE_WEIGHT : SONDE_ROLE_GRADIENT,
            .pass = i == WEIGHT ? SONDE_PASS_NONE : SONDE_PASS_BACKWARD,
            .dtype = SONDE_F32,
            .rank = 2,
            .shape = {3, 4},
            .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        ok(sonde_catalogue_declare(self->catalogue, &info, &id, &diag), &diag);
    }
    ok(sonde__recorder_create(&options, self->catalogue, &self->recorder, &diag), &diag);
    ok(sonde_observer_create(self->catalogue, &self->observer, &diag), &diag);
    ok(sonde_selector_create("@all", &all, &diag), &diag);
    tap.what = all;
    tap.when[SONDE_MODE_TRAIN] = sonde_schedule_every(1);
    tap.where = sonde__recorder_sink(self->recorder);
    ok(sonde_observer_add(self->observer, &tap, NULL, &diag), &diag);
    sonde_selector_destroy(all);
    if (rules != NULL) {
        ok(sonde_rules_attach(rules, self->catalogue, self->observer, 1, 1, &diag),
           &diag);
    }
    ok(sonde_observer_bind(self->observer, &shape, &diag), &diag);
}

static void produce(producer *self, int64_t step)
{
    const sonde_coordinate at = {.global_step = step, .mode_step = step};
    const sonde_observer_gate *gate = sonde_observer_get_gate(self->observer);
    const int64_t shape[2] = {3, 4};

    if (!sonde_observer_begin_step(self->observer, gate, &at)) {
        return;
    }
    for (uint32_t id = 0; id < TENSORS; id++) {
        float values[N];
        const sonde_view view = sonde_view_of(SONDE_F32, 2, shape, values);

        for (int i = 0; i < N; i++) {
            const float tiny = id == GRADIENT && step >= BAD ? 1e-8F : 1.0F;

            values[i] = tiny * sonde__normal(3, id, (uint64_t)(step * N + i));
        }
        if (id == WEIGHT && step == self->other_at) {
            values[3] += 0.5F;
        }
        if (id == LAST && step == STEPS - 1) {
            values[5] = NAN;
        }
        sonde_observer_observe(self->observer, id, &view, NULL, 0, 0);
    }
    sonde_observer_end_step(self->observer);
}

static void producer_close(producer *self)
{
    sonde_diag diag = {0};

    ok(sonde__recorder_close(self->recorder, SONDE_RUN_FINISHED, NULL, &diag), &diag);
    sonde_observer_destroy(self->observer);
    sonde_catalogue_destroy(self->catalogue);
}

static sonde_rules *make_rules(void)
{
    static const char *const rules[] = {"VanishingGradient", "NonFinite",
                                        "ExplodingTensor", "FrozenParameter",
                                        "WeightUpdateRatio:large_threshold=1.2"};
    sonde_rules *made = NULL;
    sonde_diag diag = {0};

    ok(sonde_rules_create(&made, &diag), &diag);
    for (size_t i = 0; i < SONDE_COUNT_OF(rules); i++) {
        ok(sonde_rules_add(made, rules[i], &diag), &diag);
    }
    return made;
}

static void same_findings(sonde_rules *a, sonde_rules *b)
{
    size_t count = 0, others = 0;
    const sonde_finding *all = sonde_rules_findings(a, &count);
    const sonde_finding *other = sonde_rules_findings(b, &others);

    assert_int_equal(count, others);
    for (size_t i = 0; i < count; i++) {
        char line[4096], other_line[4096];

        (void)sonde_finding_json(&all[i], line, sizeof line);
        (void)sonde_finding_json(&other[i], other_line, sizeof other_line);
        assert_string_equal(line, other_line);
    }
}

static void judge(sonde_rules *rules, const char *path, bool follow)
{
    const sonde_rules_pace pace = {.follow = follow, .stall = 30};
    sonde_trial *trial = NULL;
    sonde_diag diag = {0};

    ok(sonde_trial_open(path, NULL, &trial, &diag), &diag);
    ok(sonde_rules_judge(rules, trial, &pace, &diag), &diag);
    sonde_trial_close(trial);
}

/* Its findings of the steps before end into its files. */
static void judge_up_to(const char *path, int64_t end)
{
    const sonde_rules_pace pace = {.end = end};
    sonde_rules *rules = make_rules();
    sonde_trial *trial = NULL;
    size_t count = 0;
    sonde_diag diag = {0};

    ok(sonde_rules_write_to(rules, path, &diag), &diag);
    ok(sonde_trial_open(path, NULL, &trial, &diag), &diag);
    ok(sonde_rules_judge(rules, trial, &pace, &diag), &diag);
    (void)sonde_rules_findings(rules, &count);
    assert_true(count > 0);
    sonde_trial_close(trial);
    sonde_rules_destroy(rules);
}

static void *produce_slowly(void *arg)
{
    producer *self = arg;

    for (int64_t step = 0; step < STEPS; step++) {
        produce(self, step);
        (void)usleep(2000);
    }
    producer_close(self);
    return NULL;
}

static int lines_of(const char *path)
{
    FILE *file = fopen(path, "r");
    int lines = 0, c = 0;

    assert_non_null(file);
    while ((c = fgetc(file)) != EOF) {
        lines += c == '\n';
    }
    (void)fclose(file);
    return lines;
}

static void three_ways_find_the_same(void **state)
{
    char folder[] = "/tmp/sonde_rules_XXXXXX", path[64], file[160];
    sonde_rules *inside = make_rules(), *beside = make_rules(), *later = make_rules();
    sonde_rules *again = make_rules();
    pthread_t thread;
    producer self;
    size_t count = 0;
    const sonde_finding *found = NULL;
    int lines = 0;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/run", folder);
    producer_open(&self, path, inside);
    assert_int_equal(pthread_create(&thread, NULL, produce_slowly, &self), 0);
    judge(beside, path, true);
    (void)pthread_join(thread, NULL);
    sonde_rules_finish(inside);

    ok(sonde_rules_write_to(later, path, NULL), &(sonde_diag){0});
    judge(later, path, false);
    found = sonde_rules_findings(later, &count);
    assert_true(count >= 4);
    assert_string_equal(found[0].rule, "WeightUpdateRatio");
    same_findings(later, inside);
    same_findings(later, beside);

    (void)snprintf(file, sizeof file, "%s/findings/VanishingGradient.jsonl", path);
    lines = lines_of(file);
    assert_int_equal(lines, 2); /* when it was found, and how long it lasted */
    ok(sonde_rules_write_to(again, path, NULL), &(sonde_diag){0});
    judge(again, path, false);
    assert_int_equal(lines_of(file), lines);
    judge_up_to(path, STEPS - 5); /* it lasted less long there, which is no news */
    assert_int_equal(lines_of(file), lines);
    sonde_rules_destroy(inside);
    sonde_rules_destroy(beside);
    sonde_rules_destroy(later);
    sonde_rules_destroy(again);
    stream_remove(folder);
}

/* The same producer twice, and once with another value at one step. */
static void runs_that_differ_are_found(void **state)
{
    char folder[] = "/tmp/sonde_rules_XXXXXX", path[3][64], text[160];

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 3; i++) {
        producer self;

        (void)snprintf(path[i], sizeof path[i], "%s/run%d", folder, i);
        producer_open(&self, path[i], NULL);
        self.other_at = i == 2 ? 8 : -1;
        for (int64_t step = 0; step < STEPS; step++) {
            produce(&self, step);
        }
        producer_close(&self);
    }
    for (int i = 1; i < 3; i++) {
        sonde_rules *rules = NULL;
        size_t count = 0;
        const sonde_finding *finding = NULL;
        sonde_diag diag = {0};

        (void)snprintf(text, sizeof text, "SimilarAcrossRuns:other_trial=%s", path[0]);
        ok(sonde_rules_create(&rules, &diag), &diag);
        ok(sonde_rules_add(rules, text, &diag), &diag);
        judge(rules, path[i], false);
        finding = sonde_rules_findings(rules, &count);
        assert_int_equal(count, i - 1);
        if (i == 2) {
            assert_string_equal(finding[0].tensor, names[WEIGHT]);
            assert_int_equal(finding[0].step, 8);
            assert_int_equal(finding[0].steps, 1);
        }
        sonde_rules_destroy(rules);
    }
    stream_remove(folder);
}

static void a_run_that_stalls_is_given_up(void **state)
{
    char folder[] = "/tmp/sonde_rules_XXXXXX", path[64];
    const sonde_rules_pace pace = {.follow = true, .stall = 0.1};
    sonde_rules *rules = make_rules();
    sonde_trial *trial = NULL;
    sonde_diag diag = {0};
    producer self;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/run", folder);
    producer_open(&self, path, NULL);
    for (int64_t step = 0; step < 3; step++) {
        produce(&self, step);
    }
    assert_true(sonde__recorder_drain(self.recorder, 60));
    ok(sonde_trial_open(path, NULL, &trial, &diag), &diag);
    assert_int_equal(sonde_rules_judge(rules, trial, &pace, &diag), SONDE_ETIMEOUT);
    assert_non_null(strstr(diag.found, "the last is 2"));
    sonde_trial_close(trial);
    sonde_rules_destroy(rules);
    producer_close(&self);
    stream_remove(folder);
}

static void bad_rules_are_refused(void **state)
{
    static const struct {
        const char *text, *found, *expected;
        sonde_err err;
    } cases[] = {
        {"VanishingGradent", "unknown rule 'VanishingGradent'", "VanishingGradient",
         SONDE_ENOTFOUND},
        {"VanishingGradient:treshold=1", "unknown parameter 'treshold'", "threshold",
         SONDE_EINVAL},
        {"VanishingGradient:threshold=x", "'x'", "a finite number from 0 to 1e+30",
         SONDE_EINVAL},
        {"VanishingGradient:threshold=-1", "'-1'", "a finite number from 0 to 1e+30",
         SONDE_EINVAL},
        {"VanishingGradient:patience=0", "'0'", "a whole number from 1 to 1e+09",
         SONDE_EINVAL},
        {"VanishingGradient:patience=1.5", "'1.5'", "a whole number from 1 to 1e+09",
         SONDE_EINVAL},
        {"VanishingGradient:threshold", "'threshold'", "parameter=value", SONDE_EINVAL},
        {"ExplodingTensor:only_nan=maybe", "'maybe'", "true or false", SONDE_EINVAL},
        {"ExplodingTensor:tensor_regex=(", NULL, NULL, SONDE_EINVAL},
        {"NonFinite:x=1", "unknown parameter 'x': it has none", "", SONDE_EINVAL},
        {"", "unknown rule ''", NULL, SONDE_ENOTFOUND},
    };
    sonde_rules *rules = NULL;

    (void)state;
    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        sonde_diag diag = {0};

        assert_int_equal(sonde_rules_add(rules, cases[i].text, &diag), cases[i].err);
        if (cases[i].found != NULL) {
            assert_string_equal(diag.found, cases[i].found);
        }
        if (cases[i].expected != NULL) {
            assert_string_equal(diag.expected, cases[i].expected);
        }
    }
    assert_int_equal(sonde_rules_count(rules), 0);
    sonde_rules_destroy(rules);
}

static void lists_of_rules_are_read(void **state)
{
    static const struct {
        const char *text;
        size_t count; /* 0: the default rules */
    } cases[] = {
        {"VanishingGradient,patience=2,NonFinite", 2},
        {"VanishingGradient:threshold=1e-6,patience=2", 1},
        {"NonFinite,NonFinite", 2},
        {"ExplodingTensor:tensor_regex=a\\,b,only_nan=YES", 1},
        {"ExplodingTensor:only_nan=no,ExplodingTensor:only_nan=1", 2},
        {"default", 0},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        sonde_rules *rules = NULL;
        sonde_diag diag = {0};
        size_t defaults = 0;

        assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
        ok(sonde_rules_add_list(rules, cases[i].text, &diag), &diag);
        for (size_t k = 0; sonde_rule_at_index(k) != NULL; k++) {
            defaults += !sonde_rule_at_index(k)->by_name_only;
        }
        assert_int_equal(sonde_rules_count(rules),
                         cases[i].count > 0 ? cases[i].count : defaults);
        sonde_rules_destroy(rules);
    }
}

static bool stop_at_third(void *user)
{
    return ++*(int *)user == 3;
}

static void judging_can_be_stopped(void **state)
{
    char folder[] = "/tmp/sonde_rules_XXXXXX", path[64];
    int calls = 0;
    const sonde_rules_pace pace = {.stop = stop_at_third, .user = &calls};
    sonde_rules *rules = make_rules();
    sonde_trial *trial = NULL;
    int64_t first = -1, last = -1;
    sonde_diag diag = {0};
    producer self;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/run", folder);
    producer_open(&self, path, NULL);
    for (int64_t step = 0; step < 5; step++) {
        produce(&self, step);
    }
    producer_close(&self);
    ok(sonde_trial_open(path, NULL, &trial, &diag), &diag);
    assert_int_equal(sonde_rules_judge(rules, trial, &pace, &diag), SONDE_EINTERRUPTED);
    assert_true(sonde_rules_window(rules, &first, &last));
    assert_true(first == 0 && last == 1);
    assert_int_equal(sonde_rules_write_to(rules, NULL, &diag), SONDE_EINVAL);
    sonde_trial_close(trial);
    sonde_rules_destroy(rules);
    stream_remove(folder);
}

/* Every allocation of creating rules and beginning fails in turn. */
static sonde_err set_up(void)
{
    sonde_catalogue *catalogue = NULL;
    sonde_rules *rules = NULL;
    sonde_diag diag = {0};
    sonde_err err = sonde_catalogue_create(&catalogue, &diag);

    for (int i = 0; i < TENSORS && err == SONDE_OK; i++) {
        const sonde_tensor_info info = {.name = names[i],
                                        .role = i == WEIGHT ? SONDE_ROLE_WEIGHT
                                                            : SONDE_ROLE_GRADIENT,
                                        .dtype = SONDE_F32,
                                        .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        err = sonde_catalogue_declare(catalogue, &info, &id, &diag);
    }
    if (err == SONDE_OK) {
        err = sonde_rules_create(&rules, &diag);
    }
    if (err == SONDE_OK) {
        err = sonde_rules_add_defaults(rules, &diag);
    }
    if (err == SONDE_OK) {
        err = sonde__rules_begin(rules, catalogue, NULL, NULL, &diag);
    }
    sonde_rules_destroy(rules);
    sonde_catalogue_destroy(catalogue);
    return err;
}

static void set_up_leaks_nothing(void **state)
{
    sonde_err err = SONDE_ENOMEM;
    size_t n = 0;

    (void)state;
    for (; err != SONDE_OK; n++) {
        alloc_failure_begin(n);
        err = set_up();
        assert_int_equal(alloc_failure_end(), 0);
        assert_true(err == SONDE_OK || err == SONDE_ENOMEM);
    }
    assert_true(n > 30);
}

#define RULES "NonFinite,FrozenParameter,VanishingGradient"

/* All requests for memory from the n-th on fail. */
static sonde_err judge_without(size_t n, const char *path, sonde_rules *whole)
{
    const sonde_rules_pace pace = {.end = 0};
    sonde_rules *rules = NULL;
    sonde_trial *trial = NULL;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;
    size_t count = 0;

    alloc_failure_begin(n);
    err = sonde_rules_create(&rules, &diag);
    if (err == SONDE_OK) {
        err = sonde_rules_add_list(rules, RULES, &diag);
    }
    if (err == SONDE_OK) {
        err = sonde_trial_open(path, NULL, &trial, &diag);
    }
    if (err == SONDE_OK) {
        err = sonde_rules_judge(rules, trial, &pace, &diag);
    }
    if (err == SONDE_OK && sonde_rules_findings(rules, &count) == NULL) {
        err = SONDE_ENOMEM; /* their copies */
    }
    if (err == SONDE_OK) { /* before memory is given back */
        same_findings(whole, rules);
        assert_int_equal(sonde_rules_steps(rules), sonde_rules_steps(whole));
    }
    sonde_trial_close(trial);
    sonde_rules_destroy(rules);
    assert_int_equal(alloc_failure_end(), 0);
    return err;
}

static void judging_without_memory_is_an_error(void **state)
{
    char folder[] = "/tmp/sonde_rules_XXXXXX", path[64];
    sonde_rules *whole = NULL;
    producer self;
    sonde_diag diag = {0};
    sonde_err err = SONDE_ENOMEM;
    size_t n = 0, count = 0;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/run", folder);
    producer_open(&self, path, NULL);
    for (int64_t step = 0; step < STEPS; step++) {
        produce(&self, step);
    }
    producer_close(&self);
    ok(sonde_rules_create(&whole, &diag), &diag);
    ok(sonde_rules_add_list(whole, RULES, &diag), &diag);
    judge(whole, path, false);
    (void)sonde_rules_findings(whole, &count); /* makes their copies */
    assert_true(count > 0);
    for (; err != SONDE_OK; n += 3) {
        err = judge_without(n, path, whole);
        assert_true(err == SONDE_OK || err == SONDE_ENOMEM);
    }
    assert_true(n > 100);
    sonde_rules_destroy(whole);
    stream_remove(folder);
}

static void ids_depend_on_what_was_found_alone(void **state)
{
    const char *const rules[] = {"ExplodingTensor", "ExplodingTensor:only_nan=true",
                                 "NonFinite"};
    uint64_t ids[3];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        stream s;
        uint32_t id = 0;

        stream_open(&s, rules[i]);
        id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 4, 0);
        stream_begin(&s);
        stream_put_all(&s, id, 1.0F);
        stream_end(&s);
        stream_put_all(&s, id, NAN);
        stream_end(&s);
        ids[i] = stream_expect(&s, "w", 1).id;
        stream_close(&s);
    }
    assert_true(ids[0] == ids[1]);
    assert_true(ids[0] != ids[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_ways_find_the_same),
        cmocka_unit_test(runs_that_differ_are_found),
        cmocka_unit_test(a_run_that_stalls_is_given_up),
        cmocka_unit_test(bad_rules_are_refused),
        cmocka_unit_test(lists_of_rules_are_read),
        cmocka_unit_test(judging_can_be_stopped),
        cmocka_unit_test(set_up_leaks_nothing),
        cmocka_unit_test(judging_without_memory_is_an_error),
        cmocka_unit_test(ids_depend_on_what_was_found_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
