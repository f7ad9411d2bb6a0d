/*
 * when_nan in a program with a loop of its own: a step is saved as a whole, whichever of
 * its tensors was first.
 */
#include "capture/journal.h"

#include <math.h>

/* Steps in which the given tensor of five is NaN at the given step. */
static void run_bad(sonde_hook *hook, const five *net, int steps, int bad_step, int bad)
{
    const uint32_t ids[5] = {net->weight, net->bias, net->output, net->loss,
                             net->gradient};

    for (int i = 0; i < steps; i++) {
        begin(hook);
        for (int k = 0; k < 5; k++) {
            record(hook, ids[k], i == bad_step && k == bad ? NAN : (float)(10 * i + k));
        }
        end_step(hook);
    }
}

static sonde_save_config watching(const char *what, int64_t interval)
{
    sonde_save_config config = every(interval);

    config.when_nan = what;
    return config;
}

/* Before, in between and after the one that is NaN: all are there, once, with their
 * values. */
static void test_whole_step(void **state)
{
    (void)state;
    for (int bad = 0; bad < 5; bad++) {
        sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
        const five net = declare_net(hook);
        size_t seen = 0;

        include(hook, "all", "@all");
        save(hook, NULL, -1, every(1000));
        save(hook, "all", -1, watching("*", 1000));
        run_bad(hook, &net, 6, 3, bad);
        assert_int_equal(journal_count('r'), 10); /* step 0, and step 3 */
        for (size_t i = 0; i < journal.count; i++) {
            const journal_entry *entry = &journal.entries[i];

            if (entry->kind == 'r' && entry->at.mode_step == 3) {
                const int k = entry->id < 2               ? (int)entry->id
                              : entry->id == net.gradient ? 4
                              : entry->id == net.output   ? 2
                                                          : 3;

                assert_true(k == bad ? isnan(entry->value)
                                     : entry->value == (double)(30 + k));
                seen |= (size_t)1 << k;
            }
        }
        assert_int_equal(seen, 31);
        finish(hook);
        assert_int_equal(journal_reset(NULL), 0);
    }
}

/* Only that collection; the others keep to their schedules. A tensor in both comes once.
 */
static void test_collection(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    const five net = declare_net(hook);

    (void)state;
    save(hook, NULL, -1, every(3));
    include(hook, "mine", "fc1.weight, relu_output_0");
    save(hook, "mine", -1, watching("loss", 4));
    run_bad(hook, &net, 7, 3, 3); /* the loss, at a step when weights are due as well */
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 3 4 6 ");
    assert_steps("relu_output_0", 'r', SONDE_MODE_TRAIN, "0 3 4 ");
    assert_steps("fc1.bias", 'r', SONDE_MODE_TRAIN, "0 3 6 ");
    run_bad(hook, &net, 7, 2, 0); /* the weight is not what it looks at */
    assert_steps("relu_output_0", 'r', SONDE_MODE_TRAIN, "0 3 4 8 12 ");
    assert_string_equal(journal.log, "");
    finish(hook);
}

/* By mode; none where "" says so; several collections that look at the same. */
static void test_modes(void **state)
{
    const sonde_reduction_config sketch = {.histogram = true};
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    const five net = declare_net(hook);

    (void)state;
    save(hook, NULL, -1, watching("re:^loss$", 1000));
    save(hook, NULL, SONDE_MODE_EVAL, watching("", 1000));
    include(hook, "sketched", "fc1.*");
    assert_int_equal(sonde__observe_reduce(&hook->setup, "sketched", &sketch, NULL),
                     SONDE_OK);
    run_bad(hook, &net, 4, 2, 3);
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 2 ");
    assert_steps("fc1.weight", 's', SONDE_MODE_TRAIN, "0 2 ");
    assert_steps("loss", 'r', SONDE_MODE_TRAIN, "0 2 ");
    set_mode(hook, SONDE_MODE_EVAL);
    run_bad(hook, &net, 4, 2, 3);
    assert_steps("fc1.weight", 'r', SONDE_MODE_EVAL, "0 ");
    finish(hook);
}

/* Infinities count; a step that is broken off by the next leaves nothing behind. */
static void test_infinity(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    const five net = declare_net(hook);

    (void)state;
    save(hook, NULL, -1, watching("@losses", 1000));
    run_bad(hook, &net, 1, -1, 0);
    begin(hook);
    record(hook, net.weight, 1.0F);
    begin(hook);
    record(hook, net.bias, 2.0F);
    record(hook, net.loss, -INFINITY);
    record(hook, net.gradient, 3.0F);
    end_step(hook);
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 ");
    assert_steps("fc1.bias", 'r', SONDE_MODE_TRAIN, "0 2 ");
    assert_steps("gradient/fc1.weight", 'r', SONDE_MODE_TRAIN, "0 2 ");
    finish(hook);
}

/* A value of which a part is recorded anyway is held for the rest of it. */
static void test_parts(void **state)
{
    const sonde_reduction_config means = {.stats = 1U << SONDE_STAT_MEAN};
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .vitals_every = 1));
    const five net = declare_net(hook);

    (void)state;
    save(hook, NULL, -1, every(1000));
    include(hook, "mine", "fc1.weight, relu_output_0");
    assert_int_equal(sonde__observe_reduce(&hook->setup, "mine", &means, NULL), SONDE_OK);
    save(hook, "mine", -1, watching("gradient*", 1000));
    run_bad(hook, &net, 3, 1, 4);
    assert_steps("fc1.weight", 'v', SONDE_MODE_TRAIN, "0 1 2 "); /* once each */
    assert_steps("relu_output_0", 'v', SONDE_MODE_TRAIN, "0 1 ");
    finish(hook);
}

/* Vital signs for one collection and norms for another are one row. */
static void test_signs_and_norms(void **state)
{
    const sonde_reduction_config means = {.stats = 1U << SONDE_STAT_MEAN};
    const sonde_reduction_config norms = {.norms = true};
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    const five net = declare_net(hook);

    (void)state;
    include(hook, "signs", "fc1.weight");
    assert_int_equal(sonde__observe_reduce(&hook->setup, "signs", &means, NULL),
                     SONDE_OK);
    save(hook, "signs", -1, watching("loss", 1000));
    include(hook, "norms", "fc1.weight");
    assert_int_equal(sonde__observe_reduce(&hook->setup, "norms", &norms, NULL),
                     SONDE_OK);
    save(hook, "norms", -1, watching("loss", 1000));
    run_bad(hook, &net, 3, 1, 3);
    assert_steps("fc1.weight", 'v', SONDE_MODE_TRAIN, "0 1 ");
    assert_int_equal(hook->sink->rows, 2);
    finish(hook);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_whole_step, journal_reset),
        cmocka_unit_test_setup(test_collection, journal_reset),
        cmocka_unit_test_setup(test_modes, journal_reset),
        cmocka_unit_test_setup(test_infinity, journal_reset),
        cmocka_unit_test_setup(test_parts, journal_reset),
        cmocka_unit_test_setup(test_signs_and_norms, journal_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
