/*
 * test_plan.c - the plan's memory: no two values that live at once overlap, little is
 * lost, nothing is allocated while it runs; and its results are those of the interpreter.
 */
#include "alloc_failure.h"
#include "base/macros.h"
#include "base/memory.h"
#include "interpreter.h"

#include <sonde/nn/job.h>

#include "nn/run/session_state.h"

static const engine_builder builders[] = {engine_cnn, engine_mlp, engine_branches};

typedef struct setting {
    bool training;
    int accumulation, threads;
    const char *tapped; /* NULL: nothing */
    unsigned how;
    sonde_nn_optimizer optimizer;
} setting;

/* batch 0: as the model was built. */
static sonde_nn_session *compile(sonde_nn_model *model, int64_t batch, const setting *s,
                                 engine_sink *sink)
{
    const sonde_schedule always = sonde_schedule_every(1);
    sonde_nn_session *session = NULL;
    sonde_nn_options options;

    sonde_nn_options_init(&options);
    options.batch_size = batch;
    options.gradient_accumulation = s->accumulation;
    options.threads = s->threads;
    must(s->training
             ? sonde_nn_session_create(model, &options, &s->optimizer, &session,
                                       &engine_diag)
             : sonde_nn_session_create(model, &options, NULL, &session, &engine_diag));
    if (s->tapped != NULL) {
        must(sonde_nn_session_tap(session, s->tapped, &always, s->how, &sink->sink,
                                  &engine_diag));
    }
    must(sonde_nn_session_compile(session, &engine_diag));
    return session;
}

/* --- memory ------------------------------------------------------------------------- */

/* A stretch of the arena and the steps during which it is somebody's. */
typedef struct life {
    size_t offset, bytes;
    int first, last;
    const char *what;
} life;

static void extend(life *l, int step)
{
    l->first = step < l->first ? step : l->first;
    l->last = step > l->last ? step : l->last;
}

/* Lives found anew from the steps, what they show, and what a session returns. */
static life *lives_of(const sonde__plan *plan, size_t *count)
{
    life *lives = calloc(plan->buffer_count + plan->step_count, sizeof *lives);

    assert_non_null(lives);
    *count = plan->buffer_count + plan->step_count;
    for (size_t i = 0; i < plan->buffer_count; i++) {
        lives[i] = (life){plan->buffers[i].offset, plan->buffers[i].bytes, INT32_MAX, -1,
                          "value"};
    }
    for (size_t i = 0; i < plan->step_count; i++) {
        const sonde__plan_step *step = &plan->steps[i];

        for (int k = 0; k < SONDE__MAX_OPERANDS; k++) {
            if (step->in_buffer[k] >= 0) {
                extend(&lives[step->in_buffer[k]], (int)i);
            }
            if (step->out_buffer[k] >= 0) {
                extend(&lives[step->out_buffer[k]], (int)i);
            }
        }
        for (int k = step->first_showing; k < step->first_showing + step->showing_count;
             k++) {
            if (plan->showings[k].buffer >= 0) {
                extend(&lives[plan->showings[k].buffer], (int)i);
            }
        }
        lives[plan->buffer_count + i] =
            (life){step->scratch_bytes > 0
                       ? (size_t)((const unsigned char *)step->call.scratch - plan->arena)
                       : 0,
                   step->scratch_bytes, (int)i, (int)i, "scratch"};
    }
    for (size_t i = 0; i < plan->output_count; i++) {
        extend(&lives[plan->outputs[i].buffer], (int)plan->step_count - 1);
    }
    for (size_t i = 0; i < plan->buffer_count; i++) {
        if (plan->buffers[i].place != SONDE__IN_ARENA) {
            lives[i].bytes = 0;
        }
    }
    return lives;
}

static void expect_apart(const sonde__plan *plan)
{
    size_t count = 0, most = 0;
    life *lives = lives_of(plan, &count);

    for (size_t i = 0; i < count; i++) {
        assert_true(lives[i].bytes == 0 || lives[i].offset % SONDE__ALIGN == 0);
        assert_true(lives[i].bytes == 0 || lives[i].last < 0 ||
                    lives[i].offset + lives[i].bytes <= plan->arena_bytes);
        for (size_t k = 0; k < i; k++) {
            const life *a = &lives[i], *b = &lives[k];

            if (a->first <= b->last && b->first <= a->last &&
                a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes) {
                fail_msg(
                    "%s at %zu+%zu (steps %d to %d) overlaps %s at %zu+%zu (%d to %d)",
                    a->what, a->offset, a->bytes, a->first, a->last, b->what, b->offset,
                    b->bytes, b->first, b->last);
            }
        }
    }
    for (int step = 0; step < (int)plan->step_count; step++) {
        size_t alive = 0;

        for (size_t i = 0; i < count; i++) {
            alive +=
                lives[i].first <= step && step <= lives[i].last
                    ? (lives[i].bytes + SONDE__ALIGN - 1) / SONDE__ALIGN * SONDE__ALIGN
                    : 0;
        }
        most = alive > most ? alive : most;
    }
    assert_int_equal(plan->largest_live, most);
    free(lives);
}

static const setting settings[] = {
    {.training = true,
     .accumulation = 1,
     .threads = 1,
     .optimizer = {.learning_rate = 0.1F}},
    {.training = true,
     .accumulation = 1,
     .threads = 3,
     .tapped = "*",
     .how = SONDE_HOW_RAW,
     .optimizer = {.learning_rate = 0.1F, .momentum = 0.9F}},
    {.training = true,
     .accumulation = 2,
     .threads = 1,
     .tapped = "*",
     .how = SONDE_HOW_VITALS,
     .optimizer = {SONDE_NN_ADAM, .learning_rate = 0.1F, .beta1 = 0.9F, .beta2 = 0.999F}},
    {.training = false, .accumulation = 1, .threads = 1},
    {.training = false,
     .accumulation = 1,
     .threads = 2,
     .tapped = "*",
     .how = SONDE_HOW_RAW},
};

static void living_values_do_not_overlap(void **state)
{
    static const int64_t batches[] = {1, 16, 33};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(builders) * SONDE_COUNT_OF(settings); i++) {
        for (size_t b = 0; b < 3; b++) {
            engine_net net;
            engine_sink sink;
            sonde_nn_session *session = NULL;

            builders[i % 3](&net, batches[b]);
            engine_sink_init(&sink, false);
            session = compile(net.model, 0, &settings[i / 3], &sink);
            expect_apart(&session->plan);
            sonde_nn_session_destroy(session);
            engine_sink_fini(&sink);
            engine_net_fini(&net);
        }
    }
}

/* At their own batch sizes, which allocates 20 MB at most. */
static void built_in_models_waste_little(void **state)
{
    (void)state;
    for (size_t i = 0; sonde_nn_job_builtin_name(i) != NULL; i++) {
        sonde_nn_job *job = NULL;
        sonde_nn_model *model = NULL;

        must(sonde_nn_job_builtin(sonde_nn_job_builtin_name(i), &job, &engine_diag));
        must(sonde_nn_job_build(job, &model, &engine_diag));
        for (size_t k = 0; k < SONDE_COUNT_OF(settings); k++) {
            engine_sink sink;
            sonde_nn_session *session = NULL;
            sonde_nn_session_info info;

            engine_sink_init(&sink, false);
            session = compile(model, sonde_nn_job_get_info(job)->options.batch_size,
                              &settings[k], &sink);
            must(sonde_nn_session_describe(session, &info, &engine_diag));
            assert_int_equal(info.arena_bytes, session->plan.arena_bytes);
            if ((double)info.arena_bytes > 1.2 * (double)info.largest_live) {
                fail_msg("%s: arena %zu, largest live %zu", sonde_nn_job_builtin_name(i),
                         info.arena_bytes, info.largest_live);
            }
            expect_apart(&session->plan);
            sonde_nn_session_destroy(session);
            engine_sink_fini(&sink);
        }
        sonde_nn_model_destroy(model);
        sonde_nn_job_destroy(job);
    }
}

/* --- results ------------------------------------------------------------------------ */

/* A convolution's lanes under another leading dimension: two samples become one, one two.
 */
static void build_views(engine_net *net, int64_t batch)
{
    sonde_nn_value x = 0, y = 0, target = 0;
    sonde_nn_model *m = NULL;

    *net = (engine_net){.rank = 3, .sample = {2, 4, 4}, .classes = 3, .batch = batch};
    x = engine_inputs(net, &target);
    m = net->model;
    x = sonde_nn_conv2d(m, "conv", x,
                        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 4,
                                      .kernel_size = {3}, .padding = {1, 1}));
    x = sonde_nn_relu(m, "relu", x);
    y = sonde_nn_reshape(m, "halved", x, 2, (const int64_t[]){-1, 32}); /* (2 N, 32) */
    y = sonde_nn_reshape(m, "back", y, 4, (const int64_t[]){-1, 4, 4, 4});
    y = sonde_nn_add(m, "sum", y, x);
    y = sonde_nn_flatten(m, "flat", y, 1);
    y = sonde_nn_reshape(m, "column", y, 2, (const int64_t[]){-1, 1});
    y = sonde_nn_reshape(m, "rows", y, 2, (const int64_t[]){-1, 64});
    y = sonde_nn_linear(m, "fc", y, SONDE_OPTIONS(sonde_nn_linear, .out_features = 3));
    engine_finish(net, y, sonde_nn_cross_entropy(m, "loss", y, target, NULL));
}

static void expect_interpreted(const interpreter *in, const engine_seen *seen)
{
    const sonde__op_value value = interpreter_find(in, seen->name);

    if (value == 0 || seen->info.dtype != SONDE_F32) {
        return;
    }
    for (size_t i = 0; i < in->graph->op_count; i++) {
        for (int k = 1; k < in->graph->ops[i].out_count; k++) {
            if (in->graph->ops[i].out[k] == value) {
                return; /* what a norm keeps for its gradient */
            }
        }
    }
    for (int64_t i = 0; i < seen->count; i++) {
        const double have = (double)((const float *)seen->data)[i],
                     want = in->values[value][i];

        /* a hundred products of magnitude 1 in float */
        if (!(fabs(have - want) <= 1e-5 * (1.0 + fabs(want)))) {
            fail_msg("%s[%d] of batch %d: %.9g, not %.9g", seen->name, (int)i,
                     (int)seen->info.shape[0], have, want);
        }
    }
}

static void values_are_the_interpreters(void **state)
{
    static const engine_builder all[] = {engine_cnn, engine_mlp, engine_branches,
                                         build_views};
    static const int64_t batches[] = {1, 5, 16, 17, 32};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(all) * SONDE_COUNT_OF(batches); i++) {
        for (int training = 0; training < 2; training++) {
            const setting s = {.training = training == 1,
                               .accumulation = 1,
                               .threads = 1 + (int)(i % 3),
                               .tapped = "*",
                               .how = SONDE_HOW_RAW};
            engine_net net;
            engine_batch batch;
            engine_sink sink;
            interpreter in;
            sonde_nn_session *session = NULL;
            size_t compared = 0;

            all[i / SONDE_COUNT_OF(batches)](&net, batches[i % SONDE_COUNT_OF(batches)]);
            engine_batch_init(&batch, &net, net.batch, i);
            engine_sink_init(&sink, true);
            interpreter_init(&in, net.model, batch.views);
            interpreter_run(&in);
            session = compile(net.model, 0, &s, &sink);
            must(sonde_nn_session_run(session, batch.views, s.training ? 2 : 1,
                                      &engine_diag));
            for (size_t k = 0; k < sink.count; k++) {
                expect_interpreted(&in, &sink.seen[k]);
                compared += interpreter_find(&in, sink.seen[k].name) != 0;
            }
            assert_in_range(compared, 6, 100);
            sonde_nn_session_destroy(session);
            interpreter_fini(&in);
            engine_sink_fini(&sink);
            engine_batch_fini(&batch);
            engine_net_fini(&net);
        }
    }
}

/* --- allocating --------------------------------------------------------------------- */

static void put_nothing(sonde_sink *sink, const sonde_observation *observation)
{
    (void)sink;
    (void)observation;
}

static void running_allocates_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(builders) * SONDE_COUNT_OF(settings); i++) {
        const setting *s = &settings[i / 3];
        engine_net net;
        engine_batch batch;
        engine_sink sink = {.sink = {.put = put_nothing}};
        sonde_nn_session *session = NULL;
        sonde_nn_options options;
        sonde_view view;

        builders[i % 3](&net, 17);
        engine_batch_init(&batch, &net, (int64_t)17 * 3 * s->accumulation, 1);
        alloc_failure_begin(SIZE_MAX);
        sonde_nn_options_init(&options);
        options.device_iterations = 3;
        options.gradient_accumulation = s->accumulation;
        options.threads = s->threads;
        options.output_mode = SONDE_ANCHOR_MEAN;
        options.output_period = 1;
        must(s->training ? sonde_nn_session_create(net.model, &options, &s->optimizer,
                                                   &session, &engine_diag)
                         : sonde_nn_session_create(net.model, &options, NULL, &session,
                                                   &engine_diag));
        if (s->tapped != NULL) {
            const sonde_schedule always = sonde_schedule_every(1);

            must(sonde_nn_session_tap(session, "*", &always,
                                      s->how | SONDE_HOW_SKETCH | SONDE_HOW_HASH,
                                      &sink.sink, &engine_diag));
            must(sonde_nn_session_anchor(session, "x", "input", SONDE_ANCHOR_ALL, 1,
                                         &engine_diag));
        }
        must(sonde_nn_session_compile(session, &engine_diag));
        assert_true(alloc_failure_count > 0);
        alloc_failure_count = 0;
        for (int call = 0; call < 3; call++) {
            must(sonde_nn_session_run(session, batch.views, s->training ? 2 : 1,
                                      &engine_diag));
            must(sonde_nn_session_output(session, 0, &view, &engine_diag));
        }
        assert_int_equal(alloc_failure_count, 0);
        sonde_nn_session_destroy(session);
        assert_int_equal(alloc_failure_end(), 0);
        engine_batch_fini(&batch);
        engine_net_fini(&net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(living_values_do_not_overlap),
        cmocka_unit_test(built_in_models_waste_little),
        cmocka_unit_test(values_are_the_interpreters),
        cmocka_unit_test(running_allocates_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
