/*
 * test_checkpoint.c - a run that goes on from a file equals one that was never
 * interrupted; files that do not fit are refused and change nothing.
 */
#include "engine.h"
#include "base/macros.h"

#include <sonde/safetensors.h>

#include <unistd.h>

static char folder[64], file[96], other[96];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sonde-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(file, sizeof file, "%s/a.safetensors", folder);
    (void)snprintf(other, sizeof other, "%s/b.safetensors", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(file);
    (void)unlink(other);
    return rmdir(folder);
}

static sonde_nn_session *session_of(engine_net *net, engine_builder build,
                                    const sonde_nn_optimizer *optimizer, int accumulation)
{
    sonde_nn_session *session = NULL;
    sonde_nn_options options;

    build(net, 4);
    sonde_nn_options_init(&options);
    options.device_iterations = 2;
    options.gradient_accumulation = accumulation;
    must(
        sonde_nn_session_create(net->model, &options, optimizer, &session, &engine_diag));
    return session;
}

static void expect_same_run(engine_builder build, const sonde_nn_optimizer *optimizer,
                            int accumulation)
{
    engine_net whole, first, second;
    sonde_nn_session *a = session_of(&whole, build, optimizer, accumulation);
    sonde_nn_session *b = session_of(&first, build, optimizer, accumulation);
    sonde_nn_session *c = session_of(&second, build, optimizer, accumulation);
    float *want = NULL, *have = NULL;

    for (uint64_t i = 0; i < 6; i++) {
        engine_train(&whole, a, i);
    }
    for (uint64_t i = 0; i < 3; i++) {
        engine_train(&first, b, i);
    }
    must(sonde_nn_session_save(b, file, &engine_diag));
    engine_train(&first, b, 99); /* what comes after does not reach the file */
    sonde_nn_model_initialize(second.model, 1234);
    must(sonde_nn_session_load(c, file, &engine_diag));
    assert_int_equal(sonde_nn_session_step(c), 6);
    for (uint64_t i = 3; i < 6; i++) {
        engine_train(&second, c, i);
    }
    assert_int_equal(sonde_nn_session_step(c), sonde_nn_session_step(a));
    want = engine_weights(whole.model);
    have = engine_weights(second.model);
    assert_same_bits(have, want, engine_weight_count(whole.model));
    free(want);
    free(have);

    /* the state too: one more step of each, and the files are the same */
    must(sonde_nn_session_save(a, file, &engine_diag));
    must(sonde_nn_session_save(c, other, &engine_diag));
    {
        sonde_safetensors *one = NULL, *two = NULL;

        must(sonde_safetensors_open(file, &one, &engine_diag));
        must(sonde_safetensors_open(other, &two, &engine_diag));
        assert_int_equal(sonde_safetensors_count(one), sonde_safetensors_count(two));
        assert_true(sonde_safetensors_count(one) >=
                    sonde_nn_model_get_info(whole.model).parameter_count);
        for (size_t i = 0; i < sonde_safetensors_count(one); i++) {
            const char *name = sonde_safetensors_name(one, i);
            const sonde_view *x = sonde_safetensors_find(one, name);
            const sonde_view *y = sonde_safetensors_find(two, name);

            assert_non_null(y);
            assert_memory_equal(x->data, y->data,
                                (size_t)sonde_view_count(x) * sonde_dtype_size(x->dtype));
        }
        sonde_safetensors_destroy(one);
        sonde_safetensors_destroy(two);
    }
    sonde_nn_session_destroy(a);
    sonde_nn_session_destroy(b);
    sonde_nn_session_destroy(c);
    engine_net_fini(&whole);
    engine_net_fini(&first);
    engine_net_fini(&second);
}

static void a_resumed_run_equals_an_uninterrupted_one(void **state)
{
    static const engine_builder builders[] = {engine_cnn, engine_mlp, engine_branches};
    sonde_nn_optimizer optimizers[] = {sonde_nn_optimizer_sgd(0.1F, 0.0F),
                                       sonde_nn_optimizer_sgd(0.1F, 0.9F),
                                       sonde_nn_optimizer_sgd(0.1F, 0.9F),
                                       sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F),
                                       sonde_nn_optimizer_default(SONDE_NN_ADAMW, 0.01F)};

    (void)state;
    optimizers[1].dampening = 0.5F; /* the first step is another than those behind it */
    optimizers[2].nesterov = true;
    for (size_t i = 0; i < SONDE_COUNT_OF(optimizers); i++) {
        for (size_t k = 0; k < SONDE_COUNT_OF(builders); k++) {
            expect_same_run(builders[k], &optimizers[i], 1);
        }
        expect_same_run(engine_mlp, &optimizers[i], 3);
    }
}

static void a_checkpoint_holds_parameters_and_state_under_their_names(void **state)
{
    static const char *const names[] = {"fc1.weight",         "fc1.bias",
                                        "fc2.weight",         "fc2.bias",
                                        "Accl1___fc1.weight", "Accl2___fc1.weight",
                                        "Step___fc1.weight",  "Accl1___fc2.bias",
                                        "Accl2___fc2.bias",   "Step___fc2.bias"};
    const sonde_nn_optimizer adam = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F);
    engine_net net;
    sonde_nn_session *session = session_of(&net, engine_mlp, &adam, 2);
    sonde_nn_checkpoint_info info;
    sonde_safetensors *saved = NULL;

    (void)state;
    engine_train(&net, session, 0);
    must(sonde_nn_session_save(session, file, &engine_diag));
    must(sonde_safetensors_open(file, &saved, &engine_diag));
    assert_int_equal(sonde_safetensors_count(saved), 4 + 3 * 4); /* and no accumulator */
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        assert_non_null(sonde_safetensors_find(saved, names[i]));
    }
    assert_true(
        *(const float *)sonde_safetensors_find(saved, "Step___fc1.weight")->data == 2.0F);
    assert_string_equal(sonde_safetensors_metadata(saved, "sonde.step"), "2");
    assert_string_equal(sonde_safetensors_metadata(saved, "sonde.optimizer"), "adam");
    assert_string_equal(sonde_safetensors_metadata(saved, "format"), "pt");
    must(sonde_nn_checkpoint_describe(file, &info, &engine_diag));
    assert_true(info.settings);
    assert_int_equal(info.step, 2);
    assert_true(info.batch_size > 0 && info.device_iterations > 0);
    assert_true(info.learning_rate > 0.0F);
    assert_int_equal(info.epoch_calls, 0);
    sonde_safetensors_destroy(saved);
    must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .epoch_calls = 25),
                              &engine_diag));
    expect_err(SONDE_EINVAL,
               sonde_nn_session_set(session,
                                    SONDE_OPTIONS(sonde_nn_session, .epoch_calls = -1),
                                    &engine_diag));
    must(sonde_nn_session_save(session, file, &engine_diag));
    must(sonde_nn_checkpoint_describe(file, &info, &engine_diag));
    assert_int_equal(info.epoch_calls, 25);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

static void a_seed_has_all_bits(void **state)
{
    sonde_nn_checkpoint_info info;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    engine_net net;

    (void)state;
    engine_mlp(&net, 2);
    sonde_nn_options_init(&options);
    options.random_seed = UINT64_MAX - 1;
    must(sonde_nn_session_create(net.model, &options, &engine_sgd, &session,
                                 &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    must(sonde_nn_session_save(session, file, &engine_diag));
    must(sonde_nn_checkpoint_describe(file, &info, &engine_diag));
    assert_true(info.settings);
    assert_true(info.random_seed == UINT64_MAX - 1);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

/* An inference session takes the weights of a checkpoint and leaves the rest. */
static void inference_loads_what_training_saved(void **state)
{
    const sonde_nn_optimizer adam = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F);
    engine_net net, fresh;
    sonde_nn_session *training = session_of(&net, engine_cnn, &adam, 1),
                     *inference = NULL;
    float *want = NULL, *have = NULL;

    (void)state;
    engine_train(&net, training, 0);
    must(sonde_nn_session_save(training, file, &engine_diag));
    engine_cnn(&fresh, 4);
    must(sonde_nn_session_create(fresh.model, NULL, NULL, &inference, &engine_diag));
    must(sonde_nn_session_load(inference, file, &engine_diag));
    want = engine_weights(net.model);
    have = engine_weights(fresh.model);
    assert_same_bits(want, have, engine_weight_count(net.model));
    free(want);
    free(have);
    sonde_nn_session_destroy(training);
    sonde_nn_session_destroy(inference);
    engine_net_fini(&net);
    engine_net_fini(&fresh);
}

/* --- from session to session -------------------------------------------------------- */

static sonde_nn_session *session_on(const engine_net *net,
                                    const sonde_nn_optimizer *optimizer, int iterations,
                                    int accumulation)
{
    sonde_nn_session *session = NULL;
    sonde_nn_options options;

    sonde_nn_options_init(&options);
    options.device_iterations = iterations;
    options.gradient_accumulation = accumulation;
    must(
        sonde_nn_session_create(net->model, &options, optimizer, &session, &engine_diag));
    return session;
}

/* Three steps in one session are one in the first and two in the next. */
static void state_is_carried_without_a_file(void **state)
{
    sonde_nn_optimizer optimizers[] = {sonde_nn_optimizer_sgd(0.1F, 0.9F),
                                       sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F)};

    (void)state;
    optimizers[1].automatic_loss_scaling = true;
    for (size_t i = 0; i < SONDE_COUNT_OF(optimizers); i++) {
        engine_net whole, parts;
        sonde_nn_session *a = session_of(&whole, engine_mlp, &optimizers[i], 1);
        sonde_nn_session *b = session_of(&parts, engine_mlp, &optimizers[i], 1),
                         *c = NULL;
        float *want = NULL, *have = NULL;

        for (uint64_t k = 0; k < 4; k++) {
            engine_train(&whole, a, k);
        }
        engine_train(&parts, b, 0);
        engine_train(&parts, b, 1);
        c = session_on(&parts, &optimizers[i], 2, 1);
        must(sonde_nn_session_carry(c, b, &engine_diag));
        sonde_nn_session_destroy(b);
        assert_int_equal(sonde_nn_session_step(c), 4);
        engine_train(&parts, c, 2);
        engine_train(&parts, c, 3);
        want = engine_weights(whole.model);
        have = engine_weights(parts.model);
        assert_same_bits(have, want, engine_weight_count(whole.model));
        free(want);
        free(have);
        sonde_nn_session_destroy(a);
        sonde_nn_session_destroy(c);
        engine_net_fini(&whole);
        engine_net_fini(&parts);
    }
}

static void what_cannot_be_carried_is_refused(void **state)
{
    const sonde_nn_optimizer adam = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F);
    const sonde_nn_optimizer plain = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.9F);
    engine_net net, fresh;
    sonde_nn_session *a = session_of(&net, engine_mlp, &adam, 1);
    sonde_nn_session *b = session_of(&fresh, engine_mlp, &adam, 1);
    sonde_nn_session *c = session_on(&net, &sgd, 1, 3), *inference = NULL;
    sonde_nn_session *d = session_on(&net, &plain, 1, 1);

    (void)state;
    must(sonde_nn_session_create(net.model, NULL, NULL, &inference, &engine_diag));
    expect_err(SONDE_ESTATE, sonde_nn_session_carry(b, a, &engine_diag));
    engine_train(&net, a, 0);
    expect_err(SONDE_EINVAL, sonde_nn_session_carry(a, a, &engine_diag));
    expect_line("session: one session (expected two sessions of one model)");
    expect_err(SONDE_EINVAL, sonde_nn_session_carry(b, a, &engine_diag));
    expect_line("session: two models (expected two sessions of one model)");
    expect_err(SONDE_EINVAL, sonde_nn_session_carry(c, a, &engine_diag));
    expect_line("session: optimizer sgd (expected adam)");
    expect_err(SONDE_EINVAL, sonde_nn_session_carry(inference, a, &engine_diag));
    expect_err(SONDE_EINVAL, sonde_nn_session_carry(d, c, &engine_diag));
    assert_string_equal(engine_diag.where, "session");
    sonde_nn_session_destroy(a);
    sonde_nn_session_destroy(b);
    sonde_nn_session_destroy(c);
    sonde_nn_session_destroy(d);
    sonde_nn_session_destroy(inference);
    engine_net_fini(&net);
    engine_net_fini(&fresh);
}

/* --- weights alone ------------------------------------------------------------------ */

static void a_model_saves_and_loads_its_weights(void **state)
{
    engine_net net, fresh, wrong;
    float *want = NULL, *have = NULL;

    (void)state;
    engine_cnn(&net, 2);
    engine_cnn(&fresh, 2);
    engine_mlp(&wrong, 2);
    sonde_nn_model_initialize(net.model, 42);
    must(sonde_nn_model_save(net.model, file, &engine_diag));
    must(sonde_nn_model_load(fresh.model, file, &engine_diag));
    want = engine_weights(net.model);
    have = engine_weights(fresh.model);
    assert_same_bits(want, have, engine_weight_count(net.model));
    free(have);
    have = engine_weights(wrong.model);
    expect_err(SONDE_ESHAPE, sonde_nn_model_load(wrong.model, file, &engine_diag));
    assert_non_null(strstr(engine_diag.found, "tensor 'fc1.weight' is (17, 36)"));
    assert_string_equal(engine_diag.expected, "(32, 24)");
    free(want);
    want = engine_weights(wrong.model);
    assert_same_bits(want, have, engine_weight_count(wrong.model));
    free(want);
    free(have);
    engine_net_fini(&net);
    engine_net_fini(&fresh);
    engine_net_fini(&wrong);
}

/* --- files that do not fit ---------------------------------------------------------- */

/* The session, its weights and its step are as before. */
static void expect_load_fails(engine_net *net, sonde_nn_session *session, sonde_err err,
                              const char *found)
{
    float *before = engine_weights(net->model), *after = NULL;
    const int64_t step = sonde_nn_session_step(session);

    expect_err(err, sonde_nn_session_load(session, file, &engine_diag));
    assert_memory_equal(engine_diag.where, file, strlen(file));
    if (strstr(engine_diag.found, found) == NULL) {
        fail_msg("'%s' is not about '%s'", engine_diag.found, found);
    }
    after = engine_weights(net->model);
    assert_same_bits(before, after, engine_weight_count(net->model));
    assert_int_equal(sonde_nn_session_step(session), step);
    free(before);
    free(after);
}

/* Copies the checkpoint in `file` but for one tensor, whose shape is turned, or which is
 * left out; or with other metadata. */
static void spoil(const char *tensor, bool turn, const char *key, const char *value)
{
    sonde_safetensors *from = NULL;
    sonde_named_view named[64];
    sonde_metadata metadata[3] = {{"sonde.step", NULL}, {"sonde.optimizer", NULL}};
    size_t count = 0, said = 0;

    must(sonde_safetensors_open(file, &from, &engine_diag));
    for (size_t i = 0; i < sonde_safetensors_count(from); i++) {
        sonde_view view = *sonde_safetensors_find(from, sonde_safetensors_name(from, i));

        if (tensor != NULL && strcmp(sonde_safetensors_name(from, i), tensor) == 0) {
            const int64_t shape[2] = {view.shape[1], view.shape[0]};

            if (!turn) {
                continue;
            }
            view = sonde_view_of(view.dtype, 2, shape, view.data);
        }
        named[count++] = (sonde_named_view){sonde_safetensors_name(from, i), view};
    }
    for (size_t i = 0; i < 2; i++) {
        metadata[said] = metadata[i];
        metadata[said].value = sonde_safetensors_metadata(from, metadata[i].key);
        if (key != NULL && strcmp(key, metadata[i].key) == 0) {
            metadata[said].value = value;
        }
        said += metadata[said].value != NULL;
    }
    must(sonde_safetensors_write(other, named, count, metadata, said, &engine_diag));
    sonde_safetensors_destroy(from);
    assert_int_equal(rename(other, file), 0);
}

static void what_does_not_fit_is_refused(void **state)
{
    char missing[128];
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.1F, 0.9F),
                             adam = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F),
                             plain = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    engine_net net, second, third;
    sonde_nn_session *session = session_of(&net, engine_mlp, &sgd, 1);
    sonde_nn_session *by_adam = session_of(&second, engine_mlp, &adam, 1);
    sonde_nn_session *without = session_of(&third, engine_mlp, &plain, 1);
    FILE *stream = NULL;

    (void)state;
    engine_train(&net, session, 0);
    engine_train(&second, by_adam, 0);
    engine_train(&third, without, 0);
    (void)unlink(file);
    expect_load_fails(&net, session, SONDE_ENOTFOUND, "No such file");

    must(sonde_nn_session_save(session, file, &engine_diag));
    expect_load_fails(&second, by_adam, SONDE_EINVAL, "it was made with optimizer sgd");
    must(sonde_nn_session_save(without, file, &engine_diag));
    expect_load_fails(&net, session, SONDE_ENOTFOUND,
                      "it has no tensor 'Accl1___fc1.weight'");

    must(sonde_nn_session_save(session, file, &engine_diag));
    spoil("fc2.weight", false, NULL, NULL);
    expect_load_fails(&net, session, SONDE_ENOTFOUND, "it has no tensor 'fc2.weight'");
    must(sonde_nn_session_save(session, file, &engine_diag));
    spoil("fc2.weight", true, NULL, NULL);
    expect_load_fails(&net, session, SONDE_ESHAPE, "tensor 'fc2.weight' is (32, 4)");
    assert_string_equal(engine_diag.expected, "(4, 32)");
    must(sonde_nn_session_save(session, file, &engine_diag));
    spoil(NULL, false, "sonde.step", "-3");
    expect_load_fails(&net, session, SONDE_EFORMAT, "sonde.step is '-3'");
    must(sonde_nn_session_save(session, file, &engine_diag));
    spoil(NULL, false, "sonde.step", NULL);
    expect_load_fails(&net, session, SONDE_EFORMAT, "it is no checkpoint");
    must(sonde_nn_model_save(net.model, file, &engine_diag));
    expect_load_fails(&net, session, SONDE_EFORMAT, "it is no checkpoint");

    must(sonde_nn_session_save(session, file, &engine_diag));
    assert_int_equal(truncate(file, 1000), 0);
    expect_load_fails(&net, session, SONDE_EFORMAT, "");
    stream = fopen(file, "w");
    assert_non_null(stream);
    (void)fputs("a shopping list\n", stream);
    assert_int_equal(fclose(stream), 0);
    expect_load_fails(&net, session, SONDE_EFORMAT, "");
    (void)snprintf(missing, sizeof missing, "%s/none/a.safetensors", folder);
    expect_err(SONDE_ENOTFOUND, sonde_nn_session_save(session, missing, &engine_diag));
    sonde_nn_session_destroy(session);
    sonde_nn_session_destroy(by_adam);
    sonde_nn_session_destroy(without);
    engine_net_fini(&net);
    engine_net_fini(&second);
    engine_net_fini(&third);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_equals_an_uninterrupted_one),
        cmocka_unit_test(a_checkpoint_holds_parameters_and_state_under_their_names),
        cmocka_unit_test(a_seed_has_all_bits),
        cmocka_unit_test(inference_loads_what_training_saved),
        cmocka_unit_test(state_is_carried_without_a_file),
        cmocka_unit_test(what_cannot_be_carried_is_refused),
        cmocka_unit_test(a_model_saves_and_loads_its_weights),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
