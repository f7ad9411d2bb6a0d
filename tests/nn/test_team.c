/*
 * test_team.c - threads that walk through a plan together: all run each job once, and
 * none passes a barrier before all have come. tsan: yes
 */
#include "engine.h"

#include "base/cpu.h"
#include "base/macros.h"
#include "nn/run/team.h"

#include <math.h>
#include <time.h>

/* Batches large enough for a team: several parts in most steps, observed and not, many
 * calls, and pauses in which members fall asleep. */

static void build(engine_net *net, int64_t batch)
{
    sonde_nn_value x = 0, target = 0;

    *net = (engine_net){.rank = 1, .sample = {300}, .classes = 10, .batch = batch};
    x = engine_inputs(net, &target);
    x = sonde_nn_linear(net->model, "fc1", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 256));
    x = sonde_nn_relu(net->model, "relu", x);
    x = sonde_nn_linear(net->model, "fc2", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 128));
    x = sonde_nn_relu(net->model, "relu", x);
    x = sonde_nn_linear(net->model, "fc3", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 10));
    engine_finish(net, x, sonde_nn_cross_entropy(net->model, "loss", x, target, NULL));
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
    options.device_iterations = 2;
    options.threads = threads;
    must(sonde_nn_session_create(net.model, &options, &sgd, &session, &engine_diag));
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

            /* no more members than processors: they would wait for each other */
            assert_int_equal(used, SONDE_MIN(threads, sonde__cpu_count()));
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
        options.threads = 4;
        must(sonde_nn_session_create(net.model, &options, &engine_sgd, &session,
                                     &engine_diag));
        must(sonde_nn_session_compile(session, &engine_diag));
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
    }
}

/* --- the team itself, with more members than processors ------------------------------ */

enum { MOST_MEMBERS = 5, ROUNDS = 300 };

typedef struct walk {
    sonde__session_team *team;
    int threads;
    int at[MOST_MEMBERS]; /* each member's round; written by it alone */
    bool apart;           /* a member was a round ahead; written by member 0 */
} walk;

static void walk_rounds(void *user, int member)
{
    walk *path = user;

    for (int round = 0; round < ROUNDS; round++) {
        path->at[member]++;
        sonde__session_team_barrier(path->team);
        for (int i = 0; member == 0 && i < path->threads; i++) {
            path->apart = path->apart || path->at[i] != path->at[0];
        }
        sonde__session_team_barrier(path->team);
    }
}

static void members_meet_at_barriers(void **state)
{
    const struct timespec pause = {.tv_nsec = 2000000};

    (void)state;
    for (int threads = 2; threads <= MOST_MEMBERS; threads++) {
        walk path = {.threads = threads};

        assert_int_equal(sonde__session_team_create(threads, &path.team), SONDE_OK);
        for (int run = 1; run <= 3; run++) {
            sonde__session_team_run(path.team, walk_rounds, &path);
            for (int i = 0; i < threads; i++) {
                assert_int_equal(path.at[i], run * ROUNDS);
            }
            (void)nanosleep(&pause, NULL); /* members fall asleep */
        }
        assert_false(path.apart);
        sonde__session_team_destroy(path.team);
    }
}

/* --- pace --------------------------------------------------------------------------- */

/* Seconds that `steps` steps take at costs alone and together, from the pace at hand. */
static double paced(sonde__session_pace *pace, int steps, double alone, double together)
{
    double spent = 0.0;

    for (int i = 0; i < steps; i++) {
        const double cost = sonde__session_pace_together(pace) ? together : alone;

        spent += cost;
        sonde__session_pace_took(pace, cost);
    }
    return spent;
}

/* 10 s of steps at each cost of one thread, whatever the team's. */
static void a_pace_finds_the_faster_kind(void **state)
{
    static const double costs[] = {5e-5, 3e-4, 4e-3, 0.05};
    static const double ratios[] = {0.55, 0.9, 1.1, 2.0, 10.0, 35.0};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(costs); i++) {
        for (size_t k = 0; k < SONDE_COUNT_OF(ratios); k++) {
            const int steps = (int)(10.0 / costs[i]);
            const double best = fmin(ratios[k], 1.0) * costs[i] * steps;
            /* FIRST_STEPS and the trials of long steps at the worst ratio */
            const double first = 24.0 * ratios[k] * costs[i];
            sonde__session_pace pace;

            sonde__session_pace_init(&pace);
            assert_true(paced(&pace, steps, costs[i], ratios[k] * costs[i]) <
                        1.3 * best + first);
        }
    }
}

/* A competitor comes: the team becomes ten times slower than one thread. And leaves. */
static void a_pace_follows_the_machine(void **state)
{
    sonde__session_pace pace;

    (void)state;
    sonde__session_pace_init(&pace);
    (void)paced(&pace, 50000, 3e-4, 1.6e-4);
    assert_true(paced(&pace, 20000, 6e-4, 60e-4) < 1.3 * 20000 * 6e-4);
    assert_true(paced(&pace, 50000, 3e-4, 1.6e-4) < 1.3 * 50000 * 1.6e-4);
}

/* Half a second beside a competitor: a step of the team takes a hundred times as long. */
static void a_short_run_pays_for_few_trials(void **state)
{
    double spent = 0.0;
    int steps = 0;
    sonde__session_pace pace;

    (void)state;
    sonde__session_pace_init(&pace);
    for (; spent < 0.5; steps++) {
        spent += paced(&pace, 1, 6e-4, 60e-3);
    }
    assert_true(spent < 2.0 * steps * 6e-4);
    for (; spent < 3.0; steps++) {
        spent += paced(&pace, 1, 6e-4, 60e-3);
    }
    assert_true(spent < 1.15 * steps * 6e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_run_pays_for_few_trials),
        cmocka_unit_test(members_meet_at_barriers),
        cmocka_unit_test(a_pace_finds_the_faster_kind),
        cmocka_unit_test(a_pace_follows_the_machine),
        cmocka_unit_test(a_team_computes_what_one_thread_does),
        cmocka_unit_test(a_team_that_never_ran_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
