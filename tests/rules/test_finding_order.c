/*
 * Which finding follows from which, and the order of findings for people: causes, what
 * broke first, consequences, the hardware, notes.
 */
#include "alloc_failure.h"
#include "rules/program_cases.h"

#include "base/macros.h"

#include <sonde/rules.h>

static sonde_finding make(const char *rule, sonde_severity severity, int64_t step)
{
    return (sonde_finding){.rule = rule, .severity = severity, .step = step};
}

static void causes_come_before_consequences(void **state)
{
    sonde_finding all[] = {make("UpdateSpike", SONDE_SEVERITY_ERROR, 20),
                           make("LossNotDecreasing", SONDE_SEVERITY_WARNING, 10),
                           make("DeadRelu", SONDE_SEVERITY_NOTE, 3),
                           make("VanishingGradient", SONDE_SEVERITY_ERROR, 34),
                           make("WeightUpdateRatio", SONDE_SEVERITY_ERROR, 21)};
    static const char *const order[] = {"WeightUpdateRatio", "VanishingGradient",
                                        "LossNotDecreasing", "UpdateSpike", "DeadRelu"};

    (void)state;
    assert_int_equal(sonde_findings_first(all, SONDE_COUNT_OF(all)), 4);
    assert_true(sonde_findings_sort(all, SONDE_COUNT_OF(all)));
    for (size_t i = 0; i < SONDE_COUNT_OF(order); i++) {
        assert_string_equal(all[i].rule, order[i]);
    }
}

/* A jump before all else is what broke first; one that comes later is a consequence. */
static void a_jump_that_comes_first_broke_first(void **state)
{
    (void)state;
    for (int64_t step = 100; step <= 300; step += 200) {
        sonde_finding all[] = {
            make("SaturatedActivation", SONDE_SEVERITY_ERROR, 200),
            make("LossNotDecreasing", SONDE_SEVERITY_WARNING, 50),
            make("LossSpike", SONDE_SEVERITY_ERROR, step),
        };

        assert_string_equal(all[sonde_findings_first(all, SONDE_COUNT_OF(all))].rule,
                            step < 200 ? "LossSpike" : "SaturatedActivation");
    }
}

/* What follows from another finding is no cause, whatever its rule. */
static void what_follows_comes_after_its_cause(void **state)
{
    sonde_finding all[] = {make("ExplodingTensor", SONDE_SEVERITY_ERROR, 17),
                           make("FrozenParameter", SONDE_SEVERITY_ERROR, 30),
                           make("NonFinite", SONDE_SEVERITY_ERROR, 17),
                           make("InputRange", SONDE_SEVERITY_WARNING, 0)};
    static const char *const order[] = {"InputRange", "NonFinite", "ExplodingTensor",
                                        "FrozenParameter"};

    (void)state;
    all[2].id = all[0].because_of = all[1].because_of = 5;
    assert_true(sonde_findings_sort(all, SONDE_COUNT_OF(all)));
    for (size_t i = 0; i < SONDE_COUNT_OF(order); i++) {
        assert_string_equal(all[i].rule, order[i]);
    }
    assert_true(sonde_findings_sort(NULL, 0));
    assert_int_equal(sonde_findings_first(NULL, 0), 0);
}

/* Without memory, sort changes nothing and the JSON is empty. */
static void memory_that_runs_out_is_reported(void **state)
{
    sonde_finding all[] = {make("UpdateSpike", SONDE_SEVERITY_ERROR, 20),
                           make("WeightUpdateRatio", SONDE_SEVERITY_ERROR, 21)};
    char line[4096] = "x";
    bool sorted = false;
    size_t length = 0;

    (void)state;
    for (size_t n = 0; !sorted; n++) {
        alloc_failure_begin(n);
        sorted = sonde_findings_sort(all, SONDE_COUNT_OF(all));
        assert_int_equal(alloc_failure_end(), 0);
        assert_true(n > 0 || !sorted);
        assert_string_equal(all[0].rule, sorted ? "WeightUpdateRatio" : "UpdateSpike");
    }
    all[0].tensor = all[0].statistic = all[0].message = all[0].advice = "text";
    for (size_t n = 0; length == 0; n++) {
        alloc_failure_begin(n);
        length = sonde_finding_json(&all[0], line, sizeof line);
        assert_int_equal(alloc_failure_end(), 0);
        assert_true(length == strlen(line)); /* 0: the text is empty */
        assert_true(n > 0 || length == 0);
    }
    assert_int_equal(sonde_finding_json(&all[0], line, 10), length);
    assert_int_equal(strlen(line), 9);
    assert_int_equal(sonde_finding_json(&all[0], line, 0), length);
    assert_int_equal(strlen(line), 9);
}

/* --- causes, where findings are made ------------------------------------------------ */

enum { STEPS = 20, BAD = 5, GOOD = 8 };

typedef struct reported {
    uint64_t ids[64];
    size_t count;
} reported;

static void on_finding(void *user, const sonde_finding *finding, bool again)
{
    reported *seen = user;

    if (again) {
        return;
    }
    for (size_t i = 0; i < seen->count && finding->because_of != 0; i++) {
        if (seen->ids[i] == finding->because_of) {
            seen->ids[seen->count++] = finding->id;
            return;
        }
    }
    assert_int_equal(finding->because_of, 0); /* its cause was reported before it */
    seen->ids[seen->count++] = finding->id;
}

/* A NaN in an activation at step BAD reaches all parameters; with `again`, all values are
 * good from step GOOD on, and another rule fires later. */
static void run_with_nan(stream *s, reported *seen, bool again)
{
    uint32_t ids[8];
    sonde_diag diag = {0};

    stream_open(s, "ExplodingTensor");
    assert_int_equal(sonde_rules_add(s->rules, "NonFinite", &diag), SONDE_OK);
    assert_int_equal(sonde_rules_add(s->rules, "AllZero:tensor_regex=late", &diag),
                     SONDE_OK);
    sonde_rules_on_finding(s->rules, on_finding, seen);
    for (int i = 0; i < 6; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "fc%d.weight", i);
        ids[i] = stream_declare(s, name, SONDE_ROLE_WEIGHT, 4, 0);
    }
    ids[6] = stream_declare(s, "relu_output_0", SONDE_ROLE_ACTIVATION, 4, 0);
    ids[7] = stream_declare(s, "late", SONDE_ROLE_OTHER, 4, 0);
    stream_begin(s);
    for (int step = 0; step < STEPS; step++) {
        const bool bad = step >= BAD && !(again && step >= GOOD);

        for (int i = 0; i < 7; i++) {
            stream_put_all(s, ids[i], bad ? NAN : 0.5F);
        }
        stream_put_all(s, ids[7], step < STEPS - 2 ? 1.0F : 0.0F);
        stream_end(s);
    }
    sonde_rules_finish(s->rules);
}

static void findings_name_the_source_of_a_nan(void **state)
{
    const sonde_finding *all = NULL, *source = NULL;
    reported seen = {0};
    size_t count = 0;
    char line[2048], cause[64];
    stream s;

    (void)state;
    run_with_nan(&s, &seen, false);
    all = sonde_rules_findings(s.rules, &count);
    assert_int_equal(count, 9); /* one source, seven tensors, one that begins later */
    assert_int_equal(seen.count, count);
    source = &all[0]; /* although ExplodingTensor judges first */
    assert_string_equal(source->rule, "NonFinite");
    assert_string_equal(source->tensor, "relu_output_0");
    assert_int_equal(source->because_of, 0);
    (void)snprintf(cause, sizeof cause, "\"because_of\":\"%016llx\"",
                   (unsigned long long)source->id);
    for (size_t i = 1; i < count; i++) {
        assert_int_equal(all[i].because_of, source->id);
        assert_true(sonde_finding_json(&all[i], line, sizeof line) < sizeof line);
        assert_non_null(strstr(line, cause));
    }
    assert_true(sonde_finding_json(source, line, sizeof line) < sizeof line);
    assert_non_null(strstr(line, "\"because_of\":null"));
    stream_close(&s);
}

/* A NaN that has gone explains nothing that begins later. */
static void a_nan_that_has_gone_is_no_cause(void **state)
{
    const sonde_finding *late = NULL;
    reported seen = {0};
    stream s;

    (void)state;
    run_with_nan(&s, &seen, true);
    late = stream_found(&s, "late");
    assert_non_null(late);
    assert_int_equal(late->because_of, 0);
    assert_int_not_equal(stream_found(&s, "fc3.weight")->because_of, 0);
    stream_close(&s);
}

/* Of gradients that are 0 from the start, the others follow from the one nearest to the
 * loss. */
static void gradients_of_0_have_one_cause(void **state)
{
    uint32_t ids[3];
    stream s;

    (void)state;
    stream_open(&s, "VanishingGradient");
    for (int i = 0; i < 3; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "gradient/fc%d.weight", i);
        ids[i] = stream_declare(&s, name, SONDE_ROLE_GRADIENT, 4, 4);
    }
    stream_begin(&s);
    for (int step = 0; step < 2 * STEPS; step++) {
        for (int i = 0; i < 3; i++) {
            stream_put_all(&s, ids[i], i < 2 ? 0.0F : 0.5F);
        }
        stream_end(&s);
    }
    sonde_rules_finish(s.rules);
    const sonde_finding *root = stream_found(&s, "gradient/fc1.weight");
    const sonde_finding *other = stream_found(&s, "gradient/fc0.weight");
    assert_non_null(root);
    assert_non_null(other);
    assert_int_equal(root->because_of, 0);
    assert_int_equal(other->because_of, root->id);
    stream_close(&s);
}

/* A spike of the gradient follows from a huge parameter of its step. */
static void a_huge_parameter_comes_before_its_spike(void **state)
{
    sonde_diag diag = {0};
    uint32_t weight = 0, gradient = 0;
    stream s;

    (void)state;
    stream_open(&s, "GradientSpike");
    assert_int_equal(sonde_rules_add(s.rules, "ExplodingTensor", &diag), SONDE_OK);
    weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 4, 4);
    gradient = stream_declare(&s, "gradient/fc.weight", SONDE_ROLE_GRADIENT, 4, 4);
    stream_begin(&s);
    for (int step = 0; step < 60; step++) {
        stream_put_all(&s, weight, step < 50 ? 0.5F : 1e37F);
        stream_put_all(&s, gradient,
                       step < 50 ? 0.1F + 0.001F * (float)(step % 7) : 1e9F);
        stream_end(&s);
    }
    sonde_rules_finish(s.rules);
    const sonde_verdict verdict = sonde_rules_verdict(s.rules);
    assert_string_equal(verdict.headline->rule, "ExplodingTensor");
    assert_true(verdict.after >= 1);
    assert_int_equal(verdict.others[SONDE_SEVERITY_ERROR], 0);
    stream_close(&s);
}

/* --- mistakes of the program --------------------------------------------------------- */

/* An optimizer's steps; left: the gradients before the backward pass were not cleared. */
#define TRAINS(left)                                                                     \
    "'mode': 'train', 'values': [{'dtype': 'float32', 'shape': [], 'requires_grad':"     \
    " true}, {'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [4],"    \
    " 'requires_grad': true}, {'dtype': 'float32', 'shape': [4], 'requires_grad': true}" \
    ", {'dtype': 'int64', 'shape': [4], 'kind': 'input'}], "                             \
    "'nodes': [{'op': 'softmax', 'attributes': {'dim': 0}, 'inputs': [1], 'outputs':"    \
    " [2], 'place': [0, 3]}, {'op': 'cross_entropy', 'inputs': [2, 3], 'outputs': [0],"  \
    " 'place': [0, 4]}], 'losses': [{'node': 1, 'value': 0, 'predictions': 2}],"         \
    "'parameters': [{'name': 'fc.weight', 'requires_grad': true, 'used': true,"          \
    " 'optimizer': 0, 'reached': true}], 'optimizers': [{'kind': 'SGD'}], 'events': ["   \
    "{'event': 'backward', 'value': 0, 'attributes': {'left': " left                     \
    "}, 'place': [0, 5]}, {'event': 'step', 'optimizer': 0, 'place': [0, 7]}]"

/* A program with a mistake, whose weight grows from step 10 on. */
static void grow_under(stream *s, const char *rule)
{
    sonde_diag diag = {0};
    uint32_t weight = 0, gradient = 0;

    stream_open(s, rule);
    assert_int_equal(sonde_rules_add(s->rules, "ExplodingTensor", &diag), SONDE_OK);
    weight = stream_declare(s, "fc.weight", SONDE_ROLE_WEIGHT, 4, 4);
    gradient = stream_declare(s, "gradient/fc.weight", SONDE_ROLE_GRADIENT, 4, 4);
    stream_begin(s);
    for (int step = 0; step < STEPS; step++) {
        if (step < 2) {
            stream_program(s, step == 0 ? TRAINS("0") : TRAINS("1"));
        }
        stream_put_all(s, weight, step < STEPS / 2 ? 0.5F : 1e37F);
        stream_put_all(s, gradient, 0.1F);
        stream_end(s);
    }
    sonde_rules_finish(s->rules);
}

/* Gradients that are not cleared explain weights that grow; two softmaxes do not. */
static void growth_follows_from_wrong_updates_alone(void **state)
{
    static const char *const rules[] = {"MissingZeroGrad", "SoftmaxMisuse"};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(rules); i++) {
        stream s;

        grow_under(&s, rules[i]);
        const sonde_finding *huge = stream_found(&s, "fc.weight");
        const sonde_verdict verdict = sonde_rules_verdict(s.rules);
        assert_non_null(huge);
        assert_string_equal(verdict.headline->rule, rules[i]);
        assert_true(huge->because_of == (i == 0 ? verdict.headline->id : 0));
        assert_int_equal(verdict.others[SONDE_SEVERITY_ERROR], i);
        stream_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causes_come_before_consequences),
        cmocka_unit_test(a_jump_that_comes_first_broke_first),
        cmocka_unit_test(memory_that_runs_out_is_reported),
        cmocka_unit_test(what_follows_comes_after_its_cause),
        cmocka_unit_test(findings_name_the_source_of_a_nan),
        cmocka_unit_test(a_nan_that_has_gone_is_no_cause),
        cmocka_unit_test(gradients_of_0_have_one_cause),
        cmocka_unit_test(a_huge_parameter_comes_before_its_spike),
        cmocka_unit_test(growth_follows_from_wrong_updates_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
