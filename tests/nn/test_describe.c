/*
 * test_describe.c - the program of a session: its operations, loss and events, shown once to
 * the sinks that read programs; a hook's misuse.
 */
#include "engine.h"
#include "alloc_failure.h"

#include "nn/compile/describe.h"
#include "nn/run/session_state.h"

#include <sonde/hook.h>
#include <sonde/program.h>

/* A sink that reads programs. */
typedef struct reader {
    sonde_sink sink; /* first */
    sonde_program *program;
    int64_t step;
    int shown;
} reader;

static void put(sonde_sink *sink, const sonde_observation *observation)
{
    (void)sink, (void)observation;
}

static void take(sonde_sink *sink, const sonde_coordinate *at,
                 const sonde_program *program)
{
    reader *self = (reader *)sink;

    self->shown++;
    self->step = at->mode_step;
    sonde_program_destroy(self->program);
    must(sonde_program_copy(program, &self->program, &engine_diag));
}

static sonde_nn_session *open_session(const engine_net *net, bool training,
                                      const sonde_nn_optimizer *optimizer, reader *sink)
{
    const sonde_schedule always = sonde_schedule_every(1);
    sonde_nn_session *session = NULL;

    *sink = (reader){.sink = {.put = put, .program = take}, .step = -1};
    must(sonde_nn_session_create(net->model, NULL, training ? optimizer : NULL, &session,
                                 &engine_diag));
    must(sonde_nn_session_tap(session, "*", &always, SONDE_HOW_VITALS, &sink->sink,
                              &engine_diag));
    return session;
}

static void close_session(engine_net *net, sonde_nn_session *session, reader *sink)
{
    sonde_nn_session_destroy(session);
    sonde_program_destroy(sink->program);
    engine_net_fini(net);
}

/* The index of the first node of an op. */
static int node_of(const sonde_program *program, const char *op)
{
    for (size_t i = 0; i < program->node_count; i++) {
        if (strcmp(program->nodes[i].op, op) == 0) {
            return (int)i;
        }
    }
    fail_msg("no operation %s", op);
    return -1;
}

static void expect_events(const sonde_program *program, const char *wanted)
{
    char found[256] = "";

    for (size_t i = 0; i < program->event_count; i++) {
        const size_t used = strlen(found);

        (void)snprintf(found + used, sizeof found - used, "%s ",
                       sonde_event_name(program->events[i].kind));
    }
    assert_string_equal(found, wanted);
}

static void training_is_described_once(void **state)
{
    sonde_nn_optimizer optimizer = engine_sgd;
    sonde_nn_session *session = NULL;
    engine_net net;
    reader sink;

    (void)state;
    optimizer.clip_norm = 1.0F;
    engine_cnn(&net, 4);
    session = open_session(&net, true, &optimizer, &sink);
    engine_train(&net, session, 1);
    engine_train(&net, session, 2);
    assert_int_equal(sink.shown, 1);
    assert_int_equal(sink.step, 0);
    const sonde_program *program = sink.program;
    const int linear = node_of(program, "linear"), loss = node_of(program, "nll_loss");
    const sonde_program_loss *row = &program->losses[0];

    assert_int_equal(program->mode, SONDE_MODE_TRAIN);
    assert_true(program->complete);
    assert_string_equal(program->producer, "sonde_nn");
    assert_true(linear < loss && node_of(program, "conv2d") < node_of(program, "relu"));
    assert_int_equal(program->nodes[linear].input_count, 3);
    assert_int_equal(program->loss_count, 1);
    assert_int_equal(row->node, loss);
    assert_int_equal(row->predictions, program->nodes[loss].inputs[0]);
    assert_int_equal(program->values[row->targets].kind, SONDE_VALUE_INPUT);
    assert_int_equal(program->events[row->backward].kind, SONDE_EVENT_BACKWARD);
    assert_true(program->values[row->value].requires_grad);
    expect_events(program, "zero_grad forward loss backward clip step ");
    assert_string_equal(program->optimizers[0].kind, "SGD");
    assert_true(program->parameter_count > 0);
    for (size_t i = 0; i < program->parameter_count; i++) {
        assert_true(program->parameters[i].used && program->parameters[i].reached);
        assert_int_equal(program->parameters[i].optimizer, 0);
    }
    close_session(&net, session, &sink);
}

/* The cross-entropy is one operation, as in PyTorch; a parameter that the optimizer leaves out
 * has its gradient. */
static void layers_are_described_as_in_pytorch(void **state)
{
    sonde_nn_session *session = NULL;
    engine_net net;
    reader sink;

    (void)state;
    engine_mlp(&net, 4);
    sonde_nn_parameter_leave_out(net.model, 0, true);
    session = open_session(&net, true, &engine_sgd, &sink);
    engine_train(&net, session, 1);
    const sonde_program *program = sink.program;
    const sonde_program_node *loss = &program->nodes[node_of(program, "cross_entropy")];

    assert_int_equal(program->losses[0].predictions, loss->inputs[0]);
    assert_string_equal(program->nodes[program->values[loss->inputs[0]].node].op,
                        "linear");
    assert_string_equal(program->modules[loss->module].kind, "CrossEntropyLoss");
    assert_string_equal(sonde_attribute_text(loss->attributes, "reduction"), "mean");
    for (size_t i = 0; i < program->node_count; i++) {
        assert_string_not_equal(program->nodes[i].op, "log_softmax");
    }
    assert_int_equal(program->parameters[0].optimizer, -1);
    assert_true(program->parameters[0].requires_grad && program->parameters[0].reached);
    assert_int_equal(program->parameters[1].optimizer, 0);
    close_session(&net, session, &sink);
}

/* Operations with attributes, by their layers of job files. */
static void operations_have_attributes(void **state)
{
    static const struct {
        const char *layer, *op, *attribute, *text;
        sonde_nn_setting setting;
    } cases[] = {
        {"leaky_relu",
         "leaky_relu",
         "negative_slope",
         "0.25",
         {.key = "negative_slope", .count = 1, .values = {0.25}}},
        {"clamp", "clamp", "max", "2", {.key = "max", .count = 1, .values = {2.0}}},
        {"dropout",
         "dropout",
         "training",
         "false",
         {.key = "p", .count = 1, .values = {0.5}}},
        {"softmax", "softmax", "dim", "1", {.key = "dim", .count = 1, .values = {1.0}}},
        {"max_pool2d",
         "max_pool2d",
         "kernel_size",
         "[2, 2]",
         {.key = "kernel_size", .count = 2, .values = {2.0, 2.0}}},
        {"mean",
         "mean",
         "dim",
         "[2, 3]",
         {.key = "dim", .count = 2, .values = {2.0, 3.0}}},
        {"argmin", "argmin", "dim", "1", {.key = "dim", .count = 1, .values = {1.0}}},
        {"flip", "flip", "", "", {.key = "dims", .count = 1, .values = {2.0}}},
        {"logsigmoid", "logsigmoid", "", "", {0}}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t shape[] = {4, 3, 8, 8};
        sonde_nn_session *session = NULL;
        engine_net net = {0};
        sonde_program *program = NULL;
        sonde_nn_value x = 0;

        must(sonde_nn_model_create(&net.model, &engine_diag));
        x = sonde_nn_input(net.model, SONDE_F32, 4, shape);
        x = sonde_nn_layer(net.model, cases[i].layer, "layer", &x, 1, &cases[i].setting,
                           cases[i].setting.key != NULL ? 1 : 0);
        sonde_nn_output(net.model, x);
        must(sonde_nn_model_status(net.model, &engine_diag));
        must(sonde_nn_session_create(net.model, NULL, NULL, &session, &engine_diag));
        must(sonde_nn_session_compile(session, &engine_diag));
        must(sonde__plan_describe(&session->program, session->mode, &program,
                                  &engine_diag));
        const sonde_program_node *node = &program->nodes[node_of(program, cases[i].op)];
        assert_string_equal(program->modules[node->module].name, "layer");
        assert_string_equal(sonde_attribute_text(node->attributes, cases[i].attribute),
                            cases[i].text);
        sonde_program_destroy(program);
        sonde_nn_session_destroy(session);
        sonde_nn_model_destroy(net.model);
    }
}

static void inference_has_no_backward(void **state)
{
    sonde_nn_session *session = NULL;
    engine_batch batch;
    engine_net net;
    reader sink;

    (void)state;
    engine_branches(&net, 4);
    session = open_session(&net, false, NULL, &sink);
    must(sonde_nn_session_compile(session, &engine_diag));
    engine_batch_init(&batch, &net, 4, 1);
    must(sonde_nn_session_run(session, batch.views, session->input_count, &engine_diag));
    assert_int_equal(sink.shown, 1);
    expect_events(sink.program, "forward ");
    assert_false(sink.program->modules[0].training || sink.program->events[0].grad);
    assert_int_equal(sink.program->optimizer_count, 0);
    assert_int_equal(sink.program->loss_count, 0);
    engine_batch_fini(&batch);
    close_session(&net, session, &sink);
}

static void memory_may_run_out(void **state)
{
    sonde_nn_session *session = NULL;
    sonde_err err = SONDE_ENOMEM;
    engine_net net;
    reader sink;

    (void)state;
    engine_mlp(&net, 4);
    session = open_session(&net, true, &engine_sgd, &sink);
    must(sonde_nn_session_compile(session, &engine_diag));
    for (size_t i = 0; err != SONDE_OK; i++) {
        sonde_program *program = NULL;

        alloc_failure_begin(i);
        err = sonde__plan_describe(&session->program, session->mode, &program, NULL);
        sonde_program_destroy(program);
        (void)alloc_failure_end();
        assert_true(err == SONDE_OK || err == SONDE_ENOMEM);
    }
    close_session(&net, session, &sink);
}

static void calls_out_of_place(void **state)
{
    const sonde_program program = {.size = sizeof program, .mode = SONDE_MODE_TRAIN};
    const sonde_coordinate at = {.mode = SONDE_MODE_TRAIN};
    sonde_hook *hook = NULL;

    (void)state;
    assert_false(sonde_observer_reads_programs(NULL));
    sonde_observer_program(NULL, &at, &program); /* does nothing */
    must(sonde_hook_create(SONDE_OPTIONS(sonde_hook, .dry_run = true), &hook,
                           &engine_diag));
    expect_err(SONDE_ESTATE, sonde_hook_program(hook, &program, &engine_diag));
    expect_line("hook: a program: no step is on (expected a call in a step)");
    expect_err(SONDE_EINVAL, sonde_hook_program(NULL, &program, &engine_diag));
    must(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, &engine_diag));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_is_described_once),
        cmocka_unit_test(layers_are_described_as_in_pytorch),
        cmocka_unit_test(operations_have_attributes),
        cmocka_unit_test(inference_has_no_backward),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(calls_out_of_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
