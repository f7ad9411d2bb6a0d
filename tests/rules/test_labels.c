/*
 * The rules that look at labels: ClassImbalance, Confusion, LabelNoise.
 */
#include "rules/stream.h"
#include "base/macros.h"
#include "base/random.h"

enum { BATCH = 40, CLASSES = 4, STEPS = 100 };

typedef struct classes {
    stream s;
    uint32_t labels, predictions, loss, gradient;
} classes;

static void classes_open(classes *c, const char *rule)
{
    stream_open(&c->s, rule);
    c->labels = stream_declare(&c->s, "batch_labels", SONDE_ROLE_INPUT, BATCH, 0);
    c->predictions =
        stream_declare(&c->s, "loss_input_0", SONDE_ROLE_OUTPUT, BATCH, CLASSES);
    c->loss = stream_declare(&c->s, "loss_output_0", SONDE_ROLE_LOSS, 0, 0);
    c->gradient =
        stream_declare(&c->s, "Gradient___w", SONDE_ROLE_GRADIENT, BATCH, CLASSES);
    stream_begin(&c->s);
}

/* Every rare-th label is of class 3, the others even; class `missed` is taken for class
 * 0 if miss says so. */
static void classes_step(classes *c, int rare, int missed, double miss, double loss)
{
    float labels[BATCH], scores[BATCH * CLASSES] = {0};

    for (int i = 0; i < BATCH; i++) {
        const int n = (int)c->s.at.mode_step * BATCH + i;
        const int label = n % rare == 0 ? 3 : n % 3;
        const bool wrong =
            label == missed && (double)sonde__uniform(8, 9, c->s.draws++) < miss;

        labels[i] = (float)label;
        scores[i * CLASSES + (wrong ? 0 : label)] = 1.0F;
    }
    stream_put(&c->s, c->labels, labels);
    stream_put(&c->s, c->predictions, scores);
    stream_put_all(&c->s, c->loss, (float)loss);
    stream_end(&c->s);
}

static void rare_and_missed_classes_are_found(void **state)
{
    static const struct {
        int rare, missed;
        double miss;
        const char *statistic; /* NULL: nothing is found */
    } cases[] = {{4, 1, 0.1, NULL},
                 {121, 1, 0.0, "imbalance"},
                 {4, 2, 0.9, "misprediction"}}; /* within 3 stretches of 500 */
    ;

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        classes c;

        classes_open(&c, i == 2 ? "ClassImbalance:patience=3" : "ClassImbalance");
        for (int step = 0; step < STEPS; step++) {
            classes_step(&c, cases[i].rare, cases[i].missed, cases[i].miss, 1.0);
        }
        if (cases[i].statistic == NULL) {
            stream_expect_clean(&c.s);
        } else {
            assert_string_equal(stream_expect(&c.s, "", 38).statistic,
                                cases[i].statistic);
        }
        stream_close(&c.s);
    }
}

/* With smdebug's parameters, the first 500 labels suffice, and no class has an excuse. */
static void smdebugs_samples_are_judged_at_once(void **state)
{
    classes c;

    (void)state;
    classes_open(&c, "ClassImbalance:samples=500");
    for (int step = 0; step < STEPS; step++) {
        classes_step(&c, 4, 2, 0.9, 1.0);
    }
    assert_string_equal(stream_expect(&c.s, "", 12).statistic, "misprediction");
    stream_close(&c.s);
}

static void classes_taken_for_others_are_found(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        classes c;

        classes_open(&c, "Confusion");
        c.s.at.mode = SONDE_MODE_EVAL;
        for (int step = 0; step < STEPS; step++) {
            classes_step(&c, 4, 1, bad ? 0.3 : 0.05, 1.0);
        }
        if (bad) {
            (void)stream_expect(&c.s, "", STEPS - 1);
        } else {
            stream_expect_clean(&c.s);
        }
        stream_close(&c.s);
    }
}

/* Of class 1, 30 % are taken for class 0: 0.757 of an even share are right. */
static void shares_of_confusion_are_the_given_ones(void **state)
{
    static const struct {
        const char *rule, *statistic;
    } cases[] = {
        {"Confusion:max_off_diag=0.5", "diagonal"},
        {"Confusion:min_diag=0.5", "off_diagonal"},
        {"Confusion:min_diag=0.5,max_off_diag=0.5", NULL},
        {"Confusion:min_diag=0.5,max_off_diag=0.5,category_no=5", "diagonal"},
        {"Confusion:predictions=other", NULL}, /* nothing else is taken for them */
        {"Confusion:labels=other", NULL},
        {"Confusion:min_diag=0.5,predictions=loss_input", "off_diagonal"},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        classes c;

        classes_open(&c, cases[i].rule);
        c.s.at.mode = SONDE_MODE_EVAL;
        for (int step = 0; step < STEPS; step++) {
            classes_step(&c, 4, 1, 0.3, 1.0);
        }
        sonde_rules_finish(c.s.rules);
        assert_int_equal(stream_count(&c.s), cases[i].statistic != NULL);
        if (cases[i].statistic != NULL) {
            assert_string_equal(stream_found(&c.s, "")->statistic, cases[i].statistic);
        }
        stream_close(&c.s);
    }
}

static void a_loss_at_the_entropy_is_found(void **state)
{
    (void)state;
    for (int bad = 0; bad < 3; bad++) { /* 2: so few samples prove nothing */
        classes c;

        classes_open(&c, bad == 2 ? "LabelNoise:samples=5000" : "LabelNoise");
        for (int step = 0; step < STEPS; step++) {
            const double noise = 0.02 * (double)stream_normal(&c.s);
            const double fresh = 1.386 * exp(-step / 3000.0); /* slow, but it learns */

            classes_step(&c, 4, 1, 0.0, (bad ? 1.386 : fresh) + noise);
        }
        if (bad == 1) {
            (void)stream_expect(&c.s, "loss_output_0", 94);
        } else {
            stream_expect_clean(&c.s);
        }
        stream_close(&c.s);
    }
}

/* The loss stands at the entropy because nothing moves yet: gradients of one batch and
 * the next have a common part, of that share; or because nothing flows: they are 0. */
static void a_network_that_has_not_begun_is_not_label_noise(void **state)
{
    static const struct {
        double share, noise;
    } cases[] = {{0.0, 1.0}, {0.7, 1.0}, {0.0, 0.0}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        classes c;

        classes_open(&c, "LabelNoise");
        for (int step = 0; step < STEPS; step++) {
            float gradient[BATCH * CLASSES];

            for (int k = 0; k < BATCH * CLASSES; k++) {
                gradient[k] = (float)(cases[i].share * cos(k) +
                                      cases[i].noise * (double)stream_normal(&c.s));
            }
            stream_put(&c.s, c.gradient, gradient);
            classes_step(&c, 4, 1, 0.0, 1.387 + 0.002 * (double)stream_normal(&c.s));
        }
        if (i == 0) {
            (void)stream_expect(&c.s, "loss_output_0", 94);
        } else {
            stream_expect_clean(&c.s);
        }
        stream_close(&c.s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rare_and_missed_classes_are_found),
        cmocka_unit_test(smdebugs_samples_are_judged_at_once),
        cmocka_unit_test(classes_taken_for_others_are_found),
        cmocka_unit_test(shares_of_confusion_are_the_given_ones),
        cmocka_unit_test(a_loss_at_the_entropy_is_found),
        cmocka_unit_test(a_network_that_has_not_begun_is_not_label_noise),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
