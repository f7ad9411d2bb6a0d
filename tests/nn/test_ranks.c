/*
 * test_ranks.c - ranks compute what as many replicas give, and end well when one of them
 * does not answer. Alone: what needs no other rank; the rest when mpirun starts several
 * (tests/cli/test_mpirun.sh).
 */
#include "engine.h"

#include "base/macros.h"
#include "nn/ranks/ranks.h"
#include "nn/ops/ops.h"

#include <sonde/control.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sonde_nn_ranks *ranks; /* NULL: alone */
static bool tired;

static bool is_tired(void *user)
{
    (void)user;
    return tired;
}

/* --- alone -------------------------------------------------------------------------- */

static void one_process_needs_no_ranks(void **state)
{
    double values[] = {1.5, -2.0};
    bool any = true;

    (void)state;
    (void)unsetenv("OMPI_COMM_WORLD_SIZE");
    (void)unsetenv("PMI_SIZE");
    assert_int_equal(sonde_nn_ranks_started(), 1);
    (void)setenv("PMI_SIZE", "4", 1);
    assert_int_equal(sonde_nn_ranks_started(), 4);
    (void)setenv("PMI_SIZE", "many", 1);
    assert_int_equal(sonde_nn_ranks_started(), 1);
    (void)unsetenv("PMI_SIZE");
    assert_int_equal(sonde_nn_ranks_rank(NULL), 0);
    assert_int_equal(sonde_nn_ranks_count(NULL), 1);
    must(sonde_nn_ranks_sum(NULL, values, 2, &engine_diag));
    assert_true(values[0] == 1.5 && values[1] == -2.0);
    must(sonde_nn_ranks_first(NULL, NULL, values, sizeof *values, &any, &engine_diag));
    assert_true(!any && values[0] == 1.5);
    must(sonde_nn_ranks_first(NULL, &values[1], values, sizeof *values, &any,
                              &engine_diag));
    assert_true(any && values[0] == -2.0);
    expect_err(SONDE_EINVAL,
               sonde_nn_ranks_first(NULL, NULL, NULL, 1, &any, &engine_diag));
    sonde_nn_ranks_leave(NULL, true);
    expect_err(SONDE_EINVAL, sonde_nn_ranks_join(NULL, NULL, NULL, &engine_diag));
    assert_int_equal(sonde__ranks_processors(NULL, 8), 8);
}

static void a_session_takes_ranks_before_compile(void **state)
{
    sonde_nn_session *session = NULL;
    sonde_nn_session_info info;
    engine_net net;

    (void)state;
    engine_mlp(&net, 4);
    expect_err(
        SONDE_EINVAL,
        sonde_nn_session_set(NULL, SONDE_OPTIONS(sonde_nn_session, .ranks = (void *)&net),
                             &engine_diag));
    must(sonde_nn_session_create(net.model, NULL, NULL, &session, &engine_diag));
    expect_err(SONDE_EINVAL,
               sonde_nn_session_set(
                   session, SONDE_OPTIONS(sonde_nn_session, .ranks = (void *)&net),
                   &engine_diag));
    expect_line("ranks: a session for inference (expected a session for training)");
    sonde_nn_session_destroy(session);
    must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session, &engine_diag));
    must(sonde_nn_session_share(session, &engine_diag)); /* compiles, and that is all */
    must(sonde_nn_session_describe(session, &info, &engine_diag));
    assert_int_equal(info.ranks, 1);
    expect_err(SONDE_ESTATE,
               sonde_nn_session_set(
                   session, SONDE_OPTIONS(sonde_nn_session, .ranks = (void *)&net),
                   &engine_diag));
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

/* The op takes the sum that the executor has made, or its operand. */
static void a_sum_over_one_rank_is_its_operand(void **state)
{
    static const float own[3] = {1.0F, NAN, -0.0F}, all[3] = {4.0F, INFINITY, 2.0F};
    const sonde__op_shape shape = {.dtype = SONDE_F32, .rank = 1, .dim = {3}};
    float out[3], in[3];
    sonde__op_call call = {.in_count = 1, .out_count = 1};

    (void)state;
    memcpy(in, own, sizeof in);
    call.in[0] = (sonde__operand){shape, SONDE__PLAIN, in};
    call.out[0] = (sonde__operand){shape, SONDE__PLAIN, out};
    sonde__op_rank_sum.reference.run(&call, 0, 1);
    assert_same_bits(out, own, 3);
    call.summed = all;
    sonde__op_rank_sum.reference.run(&call, 0, 1);
    assert_same_bits(out, all, 3);
}

/* --- together ----------------------------------------------------------------------- */

enum { BATCH = 6, CALLS = 4 };

static void drop(engine_net *net, int64_t batch)
{
    sonde_nn_value x = 0, target = 0;

    *net = (engine_net){.rank = 1, .sample = {40}, .classes = 10, .batch = batch};
    x = engine_inputs(net, &target);
    x = sonde_nn_linear(net->model, "fc1", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 64));
    x = sonde_nn_layer(net->model, "batch_norm", "bn", &x, 1, NULL, 0);
    x = sonde_nn_layer(net->model, "dropout", "drop", &x, 1, NULL, 0);
    x = sonde_nn_linear(net->model, "fc2", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 10));
    engine_finish(net, x, sonde_nn_cross_entropy(net->model, "loss", x, target, NULL));
}

typedef struct how {
    engine_builder build;
    int iterations, accumulation, replicas;
    float clip_norm;
    float loss_scaling;
} how;

static sonde_nn_session *open_session(const engine_net *net, const how *h, int replicas,
                                      sonde_nn_ranks *with)
{
    sonde_nn_optimizer optimizer = sonde_nn_optimizer_default(SONDE_NN_ADAM, 0.01F);
    sonde_nn_session *session = NULL;
    sonde_nn_options options;

    optimizer.clip_norm = h->clip_norm;
    optimizer.automatic_loss_scaling = h->loss_scaling > 0.0F;
    sonde_nn_options_init(&options);
    options.device_iterations = h->iterations;
    options.gradient_accumulation = h->accumulation;
    options.replicas = replicas;
    must(sonde_nn_session_create(net->model, &options, &optimizer, &session,
                                 &engine_diag));
    must(sonde_nn_session_set(session, SONDE_OPTIONS(sonde_nn_session, .ranks = with),
                              &engine_diag));
    return session;
}

/* This rank's micro-batches of a batch for all: in each of D G turns, R of each rank. */
static void take_share(const engine_batch *all, const how *h, size_t sample,
                       size_t target, engine_batch *own)
{
    const int rank = sonde_nn_ranks_rank(ranks), count = sonde_nn_ranks_count(ranks);
    const size_t block = (size_t)h->replicas * BATCH;

    for (int k = 0; k < h->iterations * h->accumulation; k++) {
        const size_t from = (size_t)(k * count + rank) * block, to = (size_t)k * block;

        memcpy(own->samples + to * sample, all->samples + from * sample,
               block * sample * sizeof(float));
        memcpy(own->targets + to * target, all->targets + from * target,
               block * target * sizeof(int64_t));
    }
}

static void train_share(const engine_net *net, const how *h, sonde_nn_session *session,
                        uint64_t seed)
{
    const int64_t turns = (int64_t)h->iterations * h->accumulation * h->replicas * BATCH;
    engine_batch all, own;
    size_t sample = 1;

    for (int i = 0; i < net->rank; i++) {
        sample *= (size_t)net->sample[i];
    }
    engine_batch_init(&all, net, turns * sonde_nn_ranks_count(ranks), seed);
    engine_batch_init(&own, net, turns, seed);
    take_share(&all, h, sample, 1, &own);
    must(sonde_nn_session_run(session, own.views, 2, &engine_diag));
    engine_batch_fini(&all);
    engine_batch_fini(&own);
}

/* Parameters and buffers after a few calls, of ranks (or of replicas in this process). */
static float *train(const how *h, bool together, size_t *count)
{
    const int replicas = h->replicas * (together ? 1 : sonde_nn_ranks_count(ranks));
    sonde_nn_session *session = NULL;
    float *weights = NULL;
    engine_net net;

    h->build(&net, BATCH);
    session = open_session(&net, h, replicas, together ? ranks : NULL);
    must(sonde_nn_session_share(session, &engine_diag));
    for (int i = 0; i < CALLS; i++) {
        if (together) {
            train_share(&net, h, session, (uint64_t)i);
        } else {
            engine_train(&net, session, (uint64_t)i);
        }
    }
    assert_int_equal(sonde_nn_session_step(session), CALLS * h->iterations);
    *count = engine_weight_count(net.model);
    weights = engine_weights(net.model);
    for (size_t i = 0; i < sonde_nn_model_get_info(net.model).buffer_count; i++) {
        const sonde_view view = sonde_nn_buffer(net.model, i).view;
        const size_t floats = (size_t)sonde_view_count(&view) *
                              sonde_dtype_size(view.dtype) / sizeof(float);

        weights = realloc(weights, (*count + floats) * sizeof *weights);
        assert_non_null(weights);
        memcpy(weights + *count, view.data, floats * sizeof *weights);
        *count += floats;
    }
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    return weights;
}

/* Bits of all ranks are alike. */
static void expect_alike(const float *weights, size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits = 0;

        memcpy(&bits, &weights[i], sizeof bits);
        sum = sum * 31 + bits;
    }
    must(sonde__ranks_agree(ranks, sum, "the weights", &engine_diag));
}

static void ranks_equal_replicas(void **state)
{
    static const how ways[] = {{engine_cnn, 1, 1, 1, 0.0F, 0.0F},
                               {engine_mlp, 2, 1, 1, 0.1F, 0.0F},
                               {drop, 3, 1, 1, 0.0F, 0.0F},
                               {engine_branches, 1, 1, 1, 0.0F, 1.0F}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(ways); i++) {
        size_t count = 0, same = 0;
        float *many = train(&ways[i], true, &count);
        float *one = train(&ways[i], false, &same);

        assert_int_equal(count, same);
        assert_same_bits(many, one, count);
        expect_alike(many, count);
        free(many);
        free(one);
    }
}

/* With more copies in each rank, or accumulation, only the order of additions differs. */
static void ranks_of_replicas_differ_by_rounding(void **state)
{
    static const how ways[] = {{engine_mlp, 1, 1, 2, 0.0F, 0.0F},
                               {engine_cnn, 2, 3, 1, 0.0F, 0.0F},
                               {engine_cnn, 1, 2, 2, 0.5F, 0.0F}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(ways); i++) {
        size_t count = 0;
        float *many = train(&ways[i], true, &count);
        float *one = train(&ways[i], false, &count);

        expect_alike(many, count);
        for (size_t k = 0; k < count; k++) {
            assert_true(fabsf(many[k] - one[k]) <= 2e-3F);
        }
        free(many);
        free(one);
    }
}

/* What a rank sees of its gradients is its own; the sum is everyone's. */
static void gradients_have_names(void **state)
{
    static const how way = {engine_mlp, 1, 1, 2, 0.0F, 0.0F};
    sonde_nn_session *session = NULL;
    engine_sink sink;
    engine_net net;

    (void)state;
    engine_mlp(&net, BATCH);
    engine_sink_init(&sink, true);
    session = open_session(&net, &way, way.replicas, ranks);
    engine_tap_all(session, SONDE_HOW_RAW, &sink);
    train_share(&net, &way, session, 0);
    for (size_t i = 0; i < sink.count; i++) {
        assert_true(sink.seen[i].at.replica < way.replicas);
    }
    (void)engine_find(&sink, "ReplicaGradient___fc1.weight", 0, 0);
    {
        const engine_seen *sum =
            engine_find(&sink, "FinalReducedGradient___fc1.weight", 0, 0);
        const engine_seen *here =
            engine_find(&sink, "ReplicaGradient___fc1.weight", 0, 0);

        expect_alike(sum->data, (size_t)sum->count);
        assert_true(memcmp(sum->data, here->data, (size_t)sum->count * 4) != 0);
    }
    sonde_nn_session_destroy(session);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
}

/* Rank 0's state is everyone's, also if another rank had begun elsewhere. */
static void the_first_rank_gives_its_state(void **state)
{
    static const how way = {engine_mlp, 1, 1, 1, 0.0F, 0.0F};
    sonde_nn_session *session = NULL;
    float *weights = NULL;
    engine_net net;

    (void)state;
    engine_mlp(&net, BATCH);
    weights = engine_weights(net.model);
    weights[0] += (float)sonde_nn_ranks_rank(ranks);
    engine_set_weights(net.model, weights);
    session = open_session(&net, &way, 1, ranks);
    must(sonde_nn_session_share(session, &engine_diag));
    free(weights);
    weights = engine_weights(net.model);
    expect_alike(weights, engine_weight_count(net.model));
    free(weights);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

static void sums_are_in_the_order_of_ranks(void **state)
{
    const int rank = sonde_nn_ranks_rank(ranks), count = sonde_nn_ranks_count(ranks);
    double values[300], want = 0.1;

    (void)state;
    for (int r = 1; r < count; r++) {
        want += 0.1 * (r + 1);
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(values); i++) {
        values[i] = 0.1 * (rank + 1);
    }
    must(sonde_nn_ranks_sum(ranks, values, SONDE_COUNT_OF(values), &engine_diag));
    for (size_t i = 0; i < SONDE_COUNT_OF(values); i++) {
        assert_memory_equal(&values[i], &want, sizeof want);
    }
}

/* All ranks are on this machine. */
static void ranks_share_the_processors(void **state)
{
    const int online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const int share = online / sonde_nn_ranks_count(ranks);

    (void)state;
    assert_int_equal(sonde__ranks_processors(ranks, online), SONDE_MAX(1, share));
    assert_int_equal(sonde__ranks_processors(ranks, online - 1), online - 1); /* bound */
}

/* What one rank has to say, all hear; of several, the first. */
static void all_take_the_first_that_is_given(void **state)
{
    const int rank = sonde_nn_ranks_rank(ranks), count = sonde_nn_ranks_count(ranks);
    bool any = true;
    int first = -1;

    (void)state;
    must(sonde_nn_ranks_first(ranks, NULL, &first, sizeof first, &any, &engine_diag));
    assert_false(any);
    must(sonde_nn_ranks_first(ranks, rank + 1 == count ? &rank : NULL, &first,
                              sizeof first, &any, &engine_diag));
    assert_true(any);
    assert_int_equal(first, count - 1);
    must(sonde_nn_ranks_first(ranks, rank > 0 ? &rank : NULL, &first, sizeof first, &any,
                              &engine_diag));
    assert_true(any);
    assert_int_equal(first, 1);
}

/* A checkpoint that a user asks for is the first rank's; one that a rule asks for, its. */
static void one_rank_saves_a_checkpoint_for_a_user(void **state)
{
    static const how way = {engine_mlp, 1, 1, 1, 0.0F, 0.0F};
    const int rank = sonde_nn_ranks_rank(ranks);
    char folder[] = "/tmp/sonde-ranks-XXXXXX", path[128];
    sonde_control *control = NULL;
    sonde_nn_session *session = NULL;
    engine_net net;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/step-0000000000.safetensors", folder);
    engine_mlp(&net, BATCH);
    session = open_session(&net, &way, 1, ranks);
    must(sonde_nn_session_share(session, &engine_diag));
    must(sonde_control_create(NULL, &control, &engine_diag));
    must(sonde_nn_session_attach_control(session, control, folder, &engine_diag));
    sonde_control_ask(control, SONDE_REQUEST_CHECKPOINT, SONDE_BY_USER, "a test");
    must(sonde_nn_session_heed(session, &engine_diag));
    assert_int_equal(access(path, F_OK) == 0, rank == 0);
    sonde_control_ask(control, SONDE_REQUEST_CHECKPOINT, SONDE_BY_RULE, "a test");
    must(sonde_nn_session_heed(session, &engine_diag));
    assert_int_equal(access(path, F_OK), 0);
    sonde_nn_session_destroy(session);
    sonde_control_destroy(control);
    engine_net_fini(&net);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* --- apart -------------------------------------------------------------------------- */

/* The last rank is silent; the others are interrupted and give up. Nothing is updated. */
static void a_silent_rank_is_an_error(void **state)
{
    static const how way = {engine_mlp, 2, 1, 1, 0.0F, 0.0F};
    const bool silent = sonde_nn_ranks_rank(ranks) + 1 == sonde_nn_ranks_count(ranks);
    const int64_t samples = (int64_t)way.iterations * BATCH;
    sonde_nn_session *session = NULL;
    float *before = NULL, *after = NULL;
    double one = 1.0;
    engine_batch batch;
    engine_net net;

    (void)state;
    engine_mlp(&net, BATCH);
    session = open_session(&net, &way, 1, ranks);
    must(sonde_nn_session_share(session, &engine_diag));
    if (silent) {
        (void)sleep(4);
        _exit(0); /* without leaving: it has died */
    }
    before = engine_weights(net.model);
    tired = true;
    engine_batch_init(&batch, &net, samples, 1);
    expect_err(SONDE_EIO, sonde_nn_session_run(session, batch.views, 2, &engine_diag));
    assert_non_null(strstr(engine_diag.found, "a rank has ended or does not answer"));
    assert_int_equal(sonde_nn_session_step(session), 0);
    after = engine_weights(net.model);
    assert_same_bits(before, after, engine_weight_count(net.model));
    expect_err(SONDE_EIO, sonde_nn_session_run(session, batch.views, 2, &engine_diag));
    expect_err(SONDE_EIO, sonde_nn_ranks_sum(ranks, &one, 1, &engine_diag));
    engine_batch_fini(&batch);
    free(before);
    free(after);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    sonde_nn_ranks_leave(ranks, true); /* not well: it does not wait */
    ranks = NULL;
}

static void other_networks_are_refused(void **state)
{
    static const how way = {engine_mlp, 1, 1, 1, 0.0F, 0.0F};
    const bool odd = sonde_nn_ranks_rank(ranks) == 1;
    sonde_nn_session *session = NULL;
    engine_net net;

    (void)state;
    (odd ? engine_cnn : engine_mlp)(&net, BATCH);
    session = open_session(&net, &way, 1, ranks);
    expect_err(SONDE_EINVAL, sonde_nn_session_share(session, &engine_diag));
    expect_line("mpirun: the network or its options of rank 1 differs from rank 0's "
                "(expected one training for all ranks)");
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    sonde_nn_ranks_leave(ranks, true);
    ranks = NULL;
}

int main(void)
{
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(one_process_needs_no_ranks),
        cmocka_unit_test(a_session_takes_ranks_before_compile),
        cmocka_unit_test(a_sum_over_one_rank_is_its_operand),
    };
    const struct CMUnitTest together[] = {
        cmocka_unit_test(sums_are_in_the_order_of_ranks),
        cmocka_unit_test(ranks_equal_replicas),
        cmocka_unit_test(ranks_of_replicas_differ_by_rounding),
        cmocka_unit_test(gradients_have_names),
        cmocka_unit_test(the_first_rank_gives_its_state),
        cmocka_unit_test(ranks_share_the_processors),
        cmocka_unit_test(all_take_the_first_that_is_given),
        cmocka_unit_test(one_rank_saves_a_checkpoint_for_a_user),
    };
    const struct CMUnitTest silent[] = {cmocka_unit_test(a_silent_rank_is_an_error)};
    const struct CMUnitTest odd[] = {cmocka_unit_test(other_networks_are_refused)};
    const char *last = getenv("TEST_RANKS");
    int failed = 0;

    if (sonde_nn_ranks_started() == 1) {
        return cmocka_run_group_tests(alone, NULL, NULL);
    }
    must(sonde_nn_ranks_join(is_tired, NULL, &ranks, &engine_diag));
    if (last != NULL && strcmp(last, "silent") == 0) {
        return cmocka_run_group_tests(silent, NULL, NULL);
    }
    if (last != NULL && strcmp(last, "odd") == 0) {
        return cmocka_run_group_tests(odd, NULL, NULL);
    }
    failed = cmocka_run_group_tests(together, NULL, NULL);
    sonde_nn_ranks_leave(ranks, failed == 0);
    return failed;
}
