/*
 * A hook on an observer of somebody's own: taps, aliases, several observers, step counts,
 * what is held, memory that runs out.
 */
#include "capture/journal.h"

#include "alloc_failure.h"
#include "observe/network.h"

#include <math.h>

/* A producer that has an observer: each tensor of the network at every step, its values
 * its id, but for one that may be NaN. */
typedef struct producer {
    sonde_catalogue *catalogue;
    sonde_observer *observer;
    sonde_hook *hook;
    sonde_mode mode;
    int micro_batches;
} producer;

static sonde_err produce(producer *out, sonde_hook *hook, sonde_mode mode,
                         int micro_batches, sonde_diag *diag)
{
    const sonde_call_shape shape = {1, micro_batches, 1};
    sonde_err err = SONDE_OK;

    *out = (producer){.hook = hook, .mode = mode, .micro_batches = micro_batches};
    out->catalogue = net_create();
    err = out->catalogue != NULL ? SONDE_OK : SONDE_ENOMEM;
    if (err == SONDE_OK) {
        err = sonde_observer_create(out->catalogue, &out->observer, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_hook_attach(hook, out->catalogue, mode, out->observer, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_observer_bind(out->observer, &shape, diag);
    }
    return err == SONDE_OK ? sonde_hook_open(hook, diag) : err;
}

static void drop(producer *source)
{
    sonde_observer_destroy(source->observer);
    sonde_catalogue_destroy(source->catalogue);
}

static void show(const producer *source, uint32_t id, int micro_batch, double first)
{
    const sonde_tensor_info *info = sonde_catalogue_info(source->catalogue, id);
    unsigned char bytes[1024] = {0};
    const sonde_view view = sonde_view_of(info->dtype, info->rank, info->shape, bytes);

    assert_true((size_t)sonde_view_count(&view) * sonde_dtype_size(info->dtype) <=
                sizeof bytes);
    sonde_element_set(info->dtype, bytes, first);
    sonde_observer_observe(source->observer, id, &view, NULL, micro_batch, 0);
}

static void step(producer *source, int64_t at_least, uint32_t bad)
{
    const sonde_observer_gate *gate = sonde_observer_get_gate(source->observer);
    sonde_coordinate at = {.mode = source->mode};
    bool due = false;

    sonde_hook_next_step(source->hook, at_least, &at);
    due = sonde_observer_begin_step(source->observer, gate, &at);
    for (int g = 0; g < source->micro_batches && due; g++) {
        for (uint32_t id = 0; id < NET_COUNT; id++) {
            if (sonde_catalogue_info(source->catalogue, id)->same_as == id &&
                sonde_observer_wants(gate, id) != 0) {
                show(source, id, g,
                     id == bad ? (double)NAN : 100.0 * (double)g + (double)id);
            }
        }
    }
    if (due) {
        sonde_observer_end_step(source->observer);
    }
    sonde_hook_step_done(source->hook);
}

enum { GOOD = NET_COUNT };

static void test_aliases(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    producer source;
    uint32_t alias = 0, tensor = 0;

    (void)state;
    save(hook, NULL, -1, every(2));
    assert_int_equal(sonde__observe_add_asked(&hook->setup, "inputs", NULL), SONDE_OK);
    assert_int_equal(produce(&source, hook, SONDE_MODE_TRAIN, 1, NULL), SONDE_OK);
    for (int i = 0; i < 3; i++) {
        step(&source, 0, GOOD);
    }
    assert_steps("fc1_input_0", 'r', SONDE_MODE_TRAIN, "0 2 ");
    assert_steps("relu_output_0", 'r', SONDE_MODE_TRAIN, "");
    assert_steps("input", 'r', SONDE_MODE_TRAIN, "0 2 ");
    /* the recorder knows whose name it is, and which of both will come */
    assert_int_equal(sonde_catalogue_find(journal.catalogue, "fc1_input_0", &alias, NULL),
                     SONDE_OK);
    assert_int_equal(
        sonde_catalogue_find(journal.catalogue, "relu_output_0", &tensor, NULL),
        SONDE_OK);
    assert_int_equal(sonde_catalogue_info(journal.catalogue, alias)->same_as, tensor);
    assert_true(journal.expected[alias] && !journal.expected[tensor]);
    drop(&source);
    finish(hook);
}

/* Two producers, each with ids of its own: the run has one of each name. */
static void test_two(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    producer train, eval;
    size_t known = 0;

    (void)state;
    save(hook, NULL, -1, every(1));
    assert_int_equal(produce(&train, hook, SONDE_MODE_TRAIN, 1, NULL), SONDE_OK);
    step(&train, 7, GOOD); /* the producer's own count is ahead */
    known = sonde_catalogue_count(journal.catalogue);
    assert_int_equal(produce(&eval, hook, SONDE_MODE_EVAL, 2, NULL), SONDE_OK);
    assert_int_equal(sonde_catalogue_count(journal.catalogue), known);
    step(&eval, 0, GOOD);
    step(&train, 0, GOOD);
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "7 8 ");
    assert_steps("fc1.weight", 'r', SONDE_MODE_EVAL, "0 0 ");
    assert_int_equal(hook->at.global_step, 2);
    assert_int_equal(journal_count('e'), 3);
    drop(&train);
    drop(&eval);
    finish(hook);
}

/* What is held is let go with its own values and micro-batches, and only once. */
static void test_held(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    sonde_save_config config = every(3);
    producer source;
    size_t seen = 0;

    (void)state;
    config.when_nan = "@losses";
    save(hook, "weights", -1, config);
    include(hook, "mine", "fc1.weight, input");
    save(hook, "mine", -1, config);
    assert_int_equal(produce(&source, hook, SONDE_MODE_TRAIN, 2, NULL), SONDE_OK);
    for (int i = 0; i < 3; i++) {
        step(&source, 0, i == 1 ? NET_LOSS : GOOD);
    }
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 0 1 1 ");
    assert_steps("input", 'r', SONDE_MODE_TRAIN, "0 0 1 1 ");
    assert_steps("fc1.bias", 'r', SONDE_MODE_TRAIN, "0 0 "); /* of biases */
    for (size_t i = 0; i < journal.count; i++) {
        const journal_entry *entry = &journal.entries[i];

        if (entry->kind == 'r' && entry->at.mode_step == 1) {
            const sonde_tensor_info *info =
                sonde_catalogue_info(journal.catalogue, entry->id);
            uint32_t id = 0;

            assert_int_equal(
                sonde_catalogue_find(source.catalogue, info->name, &id, NULL), SONDE_OK);
            assert_true(entry->value ==
                        100.0 * (double)entry->at.micro_batch + (double)id);
            seen++;
        }
    }
    assert_int_equal(seen, 2 * 3); /* two weights and the input, in two micro-batches */
    drop(&source);
    finish(hook);
}

/* Nothing is ever due: the producer pays for no tap. */
static void test_never(void **state)
{
    sonde_hook *hook = hook_of(SONDE_OPTIONS(sonde_hook, .no_vitals = true));
    sonde_save_config off = sonde_save_config_unset();
    producer source;

    (void)state;
    off.end_step = 0;
    save(hook, NULL, SONDE_MODE_TRAIN, off);
    assert_int_equal(produce(&source, hook, SONDE_MODE_TRAIN, 1, NULL), SONDE_OK);
    for (uint32_t id = 0; id < NET_COUNT; id++) {
        assert_int_equal(sonde_observer_ever_wants(source.observer, id), 0);
    }
    step(&source, 0, GOOD);
    assert_int_equal(journal.count, 1);
    drop(&source);
    finish(hook);
}

static sonde_err make_all(void)
{
    sonde_save_config config = every(2);
    sonde_hook *hook = NULL;
    producer source = {0};
    sonde_err err = sonde_hook_create(
        SONDE_OPTIONS(sonde_hook, .dry_run = true, .save_all = true), &hook, NULL);

    config.when_nan = "@all";
    if (err == SONDE_OK) {
        err = sonde__observe_save(&hook->setup, NULL, -1, &config, NULL);
    }
    if (err == SONDE_OK) {
        err = produce(&source, hook, SONDE_MODE_TRAIN, 2, NULL);
    }
    drop(&source);
    (void)sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, NULL);
    return err;
}

static void test_memory(void **state)
{
    (void)state;
    for (size_t n = 0;; n++) {
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = make_all();
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            assert_true(n > 100);
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
}

/* After bind, a step takes no memory, also where everything is held. */
static void test_no_memory_in_steps(void **state)
{
    sonde_hook *hook =
        hook_of(SONDE_OPTIONS(sonde_hook, .dry_run = true, .save_all = true));
    sonde_save_config config = every(2);
    producer source;

    (void)state;
    config.when_nan = "@losses";
    save(hook, NULL, -1, config);
    assert_int_equal(produce(&source, hook, SONDE_MODE_TRAIN, 3, NULL), SONDE_OK);
    alloc_failure_begin(0);
    for (int i = 0; i < 6; i++) {
        step(&source, 0, i == 3 ? NET_LOSS : GOOD);
    }
    assert_int_equal(alloc_failure_count, 0);
    (void)alloc_failure_end();
    assert_true(hook->dry.values > 0);
    drop(&source);
    finish(hook);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_aliases, journal_reset),
        cmocka_unit_test_setup(test_two, journal_reset),
        cmocka_unit_test_setup(test_held, journal_reset),
        cmocka_unit_test_setup(test_never, journal_reset),
        cmocka_unit_test_setup(test_memory, journal_reset),
        cmocka_unit_test_setup(test_no_memory_in_steps, journal_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
