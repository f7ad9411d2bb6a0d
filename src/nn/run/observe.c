/*
 * observe.c - the faces on taps that a session offers: anchors, prints, and its outputs.
 *
 * Outputs are anchors too, over a catalogue of their own ("0", "1" ...), fed at the end
 * of every micro-batch whatever is tapped.
 */
#include "nn/compile/describe.h"
#include "nn/run/session_state.h"
#include "base/fail.h"
#include "base/memory.h"

#include <sonde/log.h>

#include <stdio.h>

/* --- the program ---------------------------------------------------------------------- */

void sonde__session_describe(sonde_nn_session *session, const sonde_coordinate *at)
{
    char line[SONDE_DIAG_LINE];
    sonde_program *program = NULL;
    sonde_diag diag = {0};

    session->described = true;
    if (session->hook == NULL && !sonde_observer_reads_programs(session->observer)) {
        return;
    }
    sonde_err err =
        sonde__plan_describe(&session->program, session->mode, &program, &diag);
    if (err == SONDE_OK) {
        sonde_observer_program(session->observer, at, program);
    }
    if (err == SONDE_OK && session->hook != NULL) {
        err = sonde_hook_program(session->hook, program, &diag);
    }
    if (err != SONDE_OK) {
        sonde_log(SONDE_LOG_WARNING, "session", "its program is not recorded: %s",
                  sonde_diag_line(&diag, line, sizeof line));
    }
    sonde_program_destroy(program);
}

static sonde_anchor_options anchor_options(const sonde_nn_session *session)
{
    return (sonde_anchor_options){.size = sizeof(sonde_anchor_options),
                                  .training = session->training,
                                  .mode = session->options.output_mode,
                                  .period = session->options.output_period};
}

/* --- anchors ------------------------------------------------------------------------ */

/*
 * With G > 1 or R > 1 a parameter is observed at every micro-batch, before the update. Its
 * final value is the one after the update, which has an unused name.
 */
static const char *final_name(const sonde_nn_session *session, const char *tensor,
                              sonde_anchor_mode mode, char *buf, size_t size)
{
    uint32_t id = 0;

    if (!session->training || !sonde__plan_splits(&session->program) ||
        mode != SONDE_ANCHOR_FINAL ||
        sonde_catalogue_find(session->catalogue, tensor, &id, NULL) != SONDE_OK) {
        return tensor;
    }
    const sonde_tensor_info *info = sonde_catalogue_info(session->catalogue, id);
    if (info->role != SONDE_ROLE_WEIGHT && info->role != SONDE_ROLE_BIAS) {
        return tensor;
    }
    (void)snprintf(buf, size, "UpdatedVar___%s", info->name);
    /* a parameter that is not the optimizer's has no other */
    return sonde_catalogue_find(session->catalogue, buf, &id, NULL) == SONDE_OK ? buf
                                                                                : tensor;
}

sonde_err sonde__session_add_anchors(sonde_nn_session *session, sonde_diag *diag)
{
    const sonde_anchor_options options = anchor_options(session);
    SONDE__TRY(sonde_anchors_create(&options, &session->anchors, diag));
    for (size_t i = 0; i < session->anchor_count; i++) {
        const sonde__session_anchor_request *request = &session->anchor_requests[i];
        sonde_anchor_mode mode =
            request->mode == SONDE_ANCHOR_DEFAULT ? options.mode : request->mode;
        char name[560];

        if (mode == SONDE_ANCHOR_DEFAULT) {
            mode = session->training ? SONDE_ANCHOR_FINAL : SONDE_ANCHOR_ALL;
        }
        SONDE__TRY(sonde_anchors_add(
            session->anchors, request->user_name,
            final_name(session, request->tensor_name, mode, name, sizeof name),
            request->mode, request->period, diag));
    }
    return sonde_anchors_attach(session->anchors, session->catalogue, session->observer,
                                diag);
}

sonde_err sonde_nn_session_anchored(const sonde_nn_session *session,
                                    const char *user_name, sonde_view *view,
                                    sonde_diag *diag)
{
    SONDE__TRY(sonde__graph_expect(session, "session", diag));
    if (user_name == NULL || view == NULL) {
        return sonde__graph_expect(NULL, user_name == NULL ? "anchor name" : "view",
                                   diag);
    }
    if (session->anchors == NULL) {
        return sonde__fail(diag, SONDE_ENOTFOUND, user_name, "an anchor, before compile",
                           "this session has no anchors");
    }
    return sonde_anchors_get(session->anchors, user_name, view, diag);
}

/* --- outputs ------------------------------------------------------------------------ */

static sonde_err declare_output(sonde_nn_session *session, size_t i, sonde_diag *diag)
{
    const sonde__op_shape *shape = &session->plan.outputs[i].shape;
    sonde_tensor_info info = {.role = SONDE_ROLE_OUTPUT,
                              .pass = SONDE_PASS_FORWARD,
                              .dtype = shape->dtype,
                              .rank = shape->rank,
                              .same_as = SONDE_NO_TENSOR};
    char name[24];
    uint32_t id = 0;

    (void)snprintf(name, sizeof name, "%zu", i);
    info.name = name;
    for (int k = 0; k < info.rank; k++) {
        info.shape[k] = shape->dim[k];
    }
    SONDE__TRY(sonde_catalogue_declare(session->output_catalogue, &info, &id, diag));
    return sonde_anchors_add(session->outputs, name, name, SONDE_ANCHOR_DEFAULT, 1, diag);
}

sonde_err sonde__session_make_outputs(sonde_nn_session *session, sonde_diag *diag)
{
    const sonde_anchor_options options = anchor_options(session);
    const sonde_call_shape shape = {session->options.device_iterations,
                                    session->options.gradient_accumulation,
                                    session->options.replicas};
    SONDE__TRY(sonde_catalogue_create(&session->output_catalogue, diag));
    SONDE__TRY(sonde_anchors_create(&options, &session->outputs, diag));
    for (size_t i = 0; i < session->plan.output_count; i++) {
        SONDE__TRY(declare_output(session, i, diag));
    }
    SONDE__TRY(sonde_observer_create(session->output_catalogue, &session->output_observer,
                                     diag));
    SONDE__TRY(sonde_anchors_attach(session->outputs, session->output_catalogue,
                                    session->output_observer, diag));
    const sonde_err err = sonde_observer_bind(session->output_observer, &shape, diag);
    if (err == SONDE_EINVAL && diag != NULL) { /* not of an anchor with a name */
        (void)snprintf(diag->where, sizeof diag->where, "output_mode");
    }
    return err;
}

void sonde__session_outputs_begin_call(sonde_nn_session *session)
{
    session->loss_sum = 0.0;
    session->loss_count = 0;
    for (int r = 0; r < session->replica_count; r++) {
        session->replicas[r].run.loss_sum = 0.0;
    }
    sonde_observer_begin_call(session->output_observer);
}

void sonde__session_outputs_begin_step(sonde_nn_session *session,
                                       const sonde_coordinate *place)
{
    (void)sonde_observer_begin_due(session->output_observer, place);
}

void sonde__session_outputs_put(execution *run)
{
    sonde_nn_session *session = run->call->session;
    const sonde__plan *plan = run->plan;
    const bool several = session->options.replicas > 1;

    if (several) {
        (void)pthread_mutex_lock(&session->output_lock);
    }
    for (size_t i = 0; i < plan->output_count; i++) {
        const sonde__op_shape *shape = &plan->outputs[i].shape;
        const sonde__plan_buffer *buffer = &plan->buffers[plan->outputs[i].buffer];
        const sonde_view view = sonde_view_of(shape->dtype, shape->rank, shape->dim,
                                              sonde__session_buffer_data(run, buffer));

        sonde_observer_observe(session->output_observer, (uint32_t)i, &view, NULL,
                               run->at.micro_batch, run->at.replica);
    }
    if (several) {
        (void)pthread_mutex_unlock(&session->output_lock);
    }
    if (session->training) { /* the loss is the last output */
        const sonde__plan_returned *loss = &plan->outputs[plan->output_count - 1];
        const float *value =
            sonde__session_buffer_data(run, &plan->buffers[loss->buffer]);

        sonde__session_run(session, run->at.replica)->loss_sum += (double)*value;
    }
}

void sonde__session_outputs_end_call(sonde_nn_session *session)
{
    const sonde_nn_options *options = &session->options;

    for (int r = 0; r < options->replicas; r++) {
        session->loss_sum += sonde__session_run(session, r)->loss_sum;
    }
    session->loss_count = session->training
                              ? (int64_t)options->device_iterations *
                                    options->gradient_accumulation * options->replicas
                              : 0;
}

void sonde__session_outputs_end_step(sonde_nn_session *session)
{
    sonde_observer_end_step(session->output_observer);
}

sonde_err sonde_nn_session_output(const sonde_nn_session *session, size_t i,
                                  sonde_view *view, sonde_diag *diag)
{
    char name[24];
    SONDE__TRY(sonde__graph_expect(session, "session", diag));
    if (view == NULL) {
        return sonde__graph_expect(NULL, "view", diag);
    }
    if (session->outputs == NULL) {
        return sonde__fail(diag, SONDE_ESTATE, "output", "a call of run before",
                           "the session has not been compiled");
    }
    if (i >= session->plan.output_count) {
        return sonde__fail(diag, SONDE_ERANGE, "output",
                           "an output of a call that was run", "%zu of %zu", i,
                           session->plan.output_count);
    }
    (void)snprintf(name, sizeof name, "%zu", i);
    return sonde_anchors_get(session->outputs, name, view, diag);
}

sonde_err sonde_nn_session_loss(const sonde_nn_session *session, double *loss,
                                sonde_diag *diag)
{
    SONDE__TRY(sonde__graph_expect(session, "session", diag));
    if (loss == NULL) {
        return sonde__graph_expect(NULL, "loss", diag);
    }
    if (session->loss_count == 0) {
        return sonde__fail(diag, SONDE_ESTATE, "loss", "a call of run before",
                           session->training ? "no step has run"
                                             : "a session for inference has no loss");
    }
    *loss = session->loss_sum / (double)session->loss_count;
    return SONDE_OK;
}

/* --- prints ------------------------------------------------------------------------- */

/* Taps one value into a printer under a title (NULL: its name). */
static sonde_err print_value(sonde_nn_session *session, sonde_printer *printer,
                             uint32_t id, const char *title, sonde_diag *diag)
{
    const sonde_tensor_info *info = sonde_catalogue_info(session->catalogue, id);
    sonde_selector *what = NULL;
    sonde_tap tap = {.how = SONDE_HOW_RAW, .where = sonde_printer_sink(printer)};
    sonde_err err = SONDE_OK;
    SONDE__TRY(sonde_selector_create(info->name, &what, diag));
    if (title != NULL) {
        SONDE__TRY_GO(sonde_printer_title(printer, id, title, diag));
    }
    tap.what = what;
    tap.when[session->mode] = sonde_schedule_every(1);
    err = sonde_observer_add(session->observer, &tap, NULL, diag);
error:
    sonde_selector_destroy(what);
    return err;
}

/* The name of the value that a print shows: the print has an unused name. */
static const char *printed_name(const sonde__op_graph *graph, sonde__op_value value)
{
    size_t op = sonde__plan_producer(graph, value);

    while (op != SIZE_MAX && graph->ops[op].kind == &sonde__op_identity) {
        value = graph->ops[op].in[0];
        op = sonde__plan_producer(graph, value);
    }
    return graph->values[value].name;
}

static sonde_err add_print(sonde_nn_session *session,
                           const sonde__graph_print_request *request,
                           const uint32_t *id_of, sonde_diag *diag)
{
    const sonde__op_value gradient = session->program.gradient_of[request->value];
    const char *name = printed_name(&session->program.graph, request->value);
    sonde_printer *printer = NULL;
    char title[560];
    SONDE__TRY(
        sonde_printer_create(&request->options, session->print_stream, &printer, diag));
    session->printers[session->printer_count++] = printer;
    SONDE__TRY(print_value(session, printer, id_of[request->value],
                           request->title != NULL ? request->title : name, diag));
    if (!request->gradient || gradient == 0 || id_of[gradient] == SONDE_NO_TENSOR) {
        return SONDE_OK;
    }
    if (request->title != NULL) {
        (void)snprintf(title, sizeof title, "%s_gradient", request->title);
    } else if (name != NULL) {
        (void)snprintf(title, sizeof title, "Gradient___%s", name);
    }
    return print_value(session, printer, id_of[gradient],
                       request->title != NULL || name != NULL ? title : NULL, diag);
}

sonde_err sonde__session_add_prints(sonde_nn_session *session, const uint32_t *id_of,
                                    sonde_diag *diag)
{
    const sonde__op_graph *graph = &session->program.graph;

    session->printers = sonde__calloc(graph->print_count, sizeof(sonde_printer *));
    if (session->printers == NULL) {
        return sonde__fail_nomem(diag, "prints");
    }
    for (size_t i = 0; i < graph->print_count; i++) {
        const sonde__op_value value = graph->prints[i].value;

        if (value == 0 || id_of[value] == SONDE_NO_TENSOR) {
            continue;
        }
        SONDE__TRY(add_print(session, &graph->prints[i], id_of, diag));
    }
    return SONDE_OK;
}

void sonde__session_release_sinks(sonde_nn_session *session)
{
    sonde_anchors_destroy(session->anchors);
    sonde_observer_destroy(session->output_observer);
    sonde_anchors_destroy(session->outputs);
    sonde_catalogue_destroy(session->output_catalogue);
    for (size_t i = 0; i < session->printer_count; i++) {
        sonde_printer_destroy(session->printers[i]);
    }
    sonde__free(session->printers);
    session->printers = NULL;
    session->printer_count = 0;
    session->anchors = NULL;
    session->output_observer = NULL;
    session->outputs = NULL;
    session->output_catalogue = NULL;
}
