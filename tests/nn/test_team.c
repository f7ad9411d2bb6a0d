/*
 * test_team.c - threads that walk through a plan together: all run each job once, and
 * nobody passes a barrier before all have come. tsan: yes
 */
#include "engine.h"

/* Batches large enough for a team: several parts in most steps, observed and not, many
 * calls, and pauses in which members fall asleep. */
#include <math.h>
#include <time.h>

static void build(engine_net *net, int64_t batch)
{
    sonde_nn_value x = 0, target = 0;

    *net = (engine_net){.rank = 1, .sample = {300}, .classes = 10, .batch = batch};
    x = engine_inputs(net, &target);
    x = sonde_nn_linear(net->model, "fc1", x, &(sonde_nn_linear_options){.out = 256});
    x = sonde_nn_relu(net->model, "relu", x);
    x = sonde_nn_linear(net->model, "fc2", x, &(sonde_nn_linear_options){.out = 128});
    x = sonde_nn_relu(net->model, "relu", x);
    x = sonde_nn_linear(net->model, "fc3", x, &(sonde_nn_linear_options){.out = 10});
    engine_finish(net, x, sonde_nn_cross_entropy(net->model, "loss", x, target));
}

static float *train(int threads, int calls, bool sleepy, int *used)
{
    const struct timespec pause = {.tv_nsec = 3000000};
    const sonde_schedule second = sonde_schedule_every(2);
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.05F, 0.9F);
    engine_net net;
    engine_sink sink;
    sonde_nn_session *session = NULL;
    sonde_nn_session_info info;
    sonde_nn_options options;
    float *weights = NULL;

    build(&net, 48);
    engine_sink_init(&sink, false);
    sonde_nn_options_init(&options);
    sonde_nn_options_set_threads(sonde_nn_options_set_device_iterations(&options, 2),
                                 threads);
    must(sonde_nn_training_session(net.model, &options, &sgd, &session, &engine_diag));
    must(sonde_nn_session_tap(session, "*", &second, SONDE_HOW_VITALS, &sink.sink,
                              &engine_diag));
    for (int i = 0; i < calls; i++) {
        engine_train(&net, session, (uint64_t)i);
        if (sleepy) {
            (void)nanosleep(&pause, NULL);
        }
    }
    must(sonde_nn_session_describe(session, &info, &engine_diag));
    *used = info.threads;
    weights = engine_weights(net.model);
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
    return weights;
}

static void a_team_computes_what_one_thread_does(void **state)
{
    enum { COUNT = 300 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10 };
    int used = 0;
    float *want = train(1, 6, false, &used);

    (void)state;
    assert_int_equal(used, 1);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(isfinite(want[i]));
    }
    for (int threads = 2; threads <= 4; threads++) {
        for (int sleepy = 0; sleepy < 2; sleepy++) {
            float *have = train(threads, 6, sleepy == 1, &used);

            assert_in_range(used, 2, threads); /* else this tests nothing */
            assert_same_bits(have, want, COUNT);
            free(have);
        }
    }
    free(want);
}

/* Teams come and go without having run. */
static void a_team_that_never_ran_ends(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        engine_net net;
        sonde_nn_session *session = NULL;
        sonde_nn_options options;

        build(&net, 48);
        sonde_nn_options_init(&options);
        sonde_nn_options_set_threads(&options, 4);
        must(
            sonde_nn_training_session(net.model, &options, NULL, &session, &engine_diag));
        must(sonde_nn_session_compile(session, &engine_diag));
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_team_computes_what_one_thread_does),
        cmocka_unit_test(a_team_that_never_ran_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
