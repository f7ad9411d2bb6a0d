/*
 * test_smdebug_roles.c - what smdebug's names and collections mean: statistics of tensors,
 * roles and ops, in runs that smdebug 1.0.34 wrote (make_smdebug.py).
 */
#include "trial/run_folder.h"

#include "base/macros.h"

#include <sonde/rules.h>

#include <math.h>
#include <string.h>

#define REDUCTIONS SONDE_TEST_DIR "/golden/runs/smdebug-reductions"
#define NORMS SONDE_TEST_DIR "/golden/runs/smdebug-norms"
#define COLLECTIONS SONDE_TEST_DIR "/golden/runs/smdebug-collections"

enum { NORMS_ELEMENTS = 12 };

static const sonde_tensor_info *info_of(const sonde_trial *trial, const char *name)
{
    return sonde_catalogue_info(sonde_trial_catalogue(trial), trial_id(trial, name));
}

static sonde_trial_at step_at(int64_t step)
{
    return (sonde_trial_at){.mode = SONDE_MODE_GLOBAL,
                            .step = step,
                            .worker = -1,
                            .micro_batch = -1,
                            .replica = -1};
}

static void reductions_are_statistics_of_their_tensor(void **state)
{
    sonde_trial *trial = trial_opened(REDUCTIONS);
    const uint32_t gradient = trial_id(trial, "gradient/Net_fc.weight");
    const sonde_catalogue *catalogue = sonde_trial_catalogue(trial);
    sonde_trial_at where = step_at(0);
    sonde_run_info info;
    sonde_vitals vitals;

    (void)state;
    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        assert_null(strstr(sonde_catalogue_info(catalogue, id)->name, "reductions"));
    }
    assert_int_equal(info_of(trial, "Net_fc.weight")->role, SONDE_ROLE_WEIGHT);
    assert_int_equal(info_of(trial, "gradient/Net_fc.weight")->role, SONDE_ROLE_GRADIENT);
    assert_int_equal(info_of(trial, "gradient/Net_fc.weight")->rank, 2);
    assert_int_equal(sonde_trial_has(trial, gradient, &where), SONDE_HOW_VITALS);
    assert_int_equal(sonde_trial_vitals(trial, gradient, &where, &vitals, NULL),
                     SONDE_OK);
    assert_true(sonde_vitals_get(&vitals, SONDE_STAT_MAX) >
                sonde_vitals_get(&vitals, SONDE_STAT_MIN));
    assert_true(sonde_vitals_get(&vitals, SONDE_STAT_ABS_MEAN) > 0.0);
    assert_true(isnan(sonde_vitals_get(&vitals, SONDE_STAT_SUM))); /* was not saved */
    assert_int_equal(vitals.nan, 0);
    where = step_at(1); /* all gradients are 0 */
    assert_int_equal(sonde_trial_vitals(trial, gradient, &where, &vitals, NULL),
                     SONDE_OK);
    assert_true(vitals.zero == vitals.count && vitals.l1 == 0.0);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.rows, 6);
    assert_null(sonde_trial_damage(trial, 0));
    sonde_trial_close(trial);
}

/* A sum and a mean imply the number of elements, which smdebug does not save. */
static void norms_and_a_mean_give_the_number_of_elements(void **state)
{
    sonde_trial *trial = trial_opened(NORMS);
    const sonde_trial_at where = step_at(0);
    sonde_vitals vitals;

    (void)state;
    assert_int_equal(sonde_trial_vitals(trial, trial_id(trial, "Net_fc.weight"), &where,
                                        &vitals, NULL),
                     SONDE_OK);
    assert_int_equal(vitals.count, NORMS_ELEMENTS);
    assert_true(fabs(sonde_vitals_get(&vitals, SONDE_STAT_L1) /
                         sonde_vitals_get(&vitals, SONDE_STAT_ABS_MEAN) -
                     NORMS_ELEMENTS) < 1e-4);
    assert_true(sonde_vitals_get(&vitals, SONDE_STAT_L2) >
                sonde_vitals_get(&vitals, SONDE_STAT_ABS_MEAN));
    sonde_trial_close(trial);
}

static void statistics_have_series(void **state)
{
    sonde_trial *trial = trial_opened(REDUCTIONS);
    int64_t *steps = NULL;
    sonde_vitals *vitals = NULL;
    size_t count = 0;

    (void)state;
    assert_int_equal(sonde_trial_vitals_series(trial, trial_id(trial, "Net_fc.weight"),
                                               SONDE_MODE_GLOBAL, -1, 0, 0, &steps,
                                               &vitals, &count, NULL),
                     SONDE_OK);
    assert_int_equal(count, 2);
    assert_true(vitals[0].max > 0.0 && vitals[1].max > 0.0);
    sonde_release(steps);
    sonde_release(vitals);
    sonde_trial_close(trial);
}

static void collections_give_roles(void **state)
{
    static const struct {
        const char *name;
        sonde_role role;
    } expected[] = {
        {"dense/kernel:0", SONDE_ROLE_WEIGHT},
        {"custom_variable:0", SONDE_ROLE_WEIGHT}, /* by its collection alone */
        {"loss/mul:0", SONDE_ROLE_LOSS},
        {"train-rmse", SONDE_ROLE_LOSS}, /* by the pattern of its collection */
        {"train-auc", SONDE_ROLE_OTHER},
        {"feature_importance/weight/f0", SONDE_ROLE_OTHER},
    };
    sonde_trial *trial = trial_opened(COLLECTIONS);

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(expected); i++) {
        assert_int_equal(info_of(trial, expected[i].name)->role, expected[i].role);
    }
    assert_true(sonde_trial_in_collection(trial, trial_id(trial, "train-auc"), "mine"));
    sonde_trial_close(trial);
}

static void a_relu_without_a_name_is_known_by_its_values(void **state)
{
    sonde_trial *trial = trial_opened(COLLECTIONS);

    (void)state;
    assert_string_equal(info_of(trial, "net.1_output_0")->op, "relu");
    assert_string_equal(info_of(trial, "net.2_output_0")->op, "");
    sonde_trial_close(trial);
}

static void numbers_of_features_are_judged_together(void **state)
{
    const sonde_rules_pace pace = {0};
    sonde_trial *trial = trial_opened(COLLECTIONS);
    sonde_rules *rules = NULL;
    const sonde_finding *findings = NULL;
    size_t count = 0;

    (void)state;
    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_add(rules, "FeatureImportanceOverweight", NULL),
                     SONDE_OK);
    assert_int_equal(sonde_rules_judge(rules, trial, &pace, NULL), SONDE_OK);
    findings = sonde_rules_findings(rules, &count);
    assert_int_equal(count, 1);
    assert_true(findings[0].value > 0.9); /* of the first three together */
    sonde_rules_destroy(rules);
    sonde_trial_close(trial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_are_statistics_of_their_tensor),
        cmocka_unit_test(norms_and_a_mean_give_the_number_of_elements),
        cmocka_unit_test(statistics_have_series),
        cmocka_unit_test(collections_give_roles),
        cmocka_unit_test(a_relu_without_a_name_is_known_by_its_values),
        cmocka_unit_test(numbers_of_features_are_judged_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
