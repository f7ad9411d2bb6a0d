/*
 * compile.c - makes a session ready: runs the passes, resolves taps, starts the team. A
 * failure leaves the session unchanged.
 */
#include "nn/ranks/ranks.h"
#include "nn/run/plan_object.h"
#include "nn/run/session_state.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/log.h>

#include <stdio.h>
#include <string.h>

static const char *const pass_names[] = {"instantiate", "autodiff", "track", "accumulate",
                                         "optimize",    "prune",    "fuse",  "stage",
                                         "layout",      "plan"};

static void report_progress(const sonde_nn_session *session, size_t pass)
{
    if (session->options.on_progress != NULL) {
        session->options.on_progress(session->options.progress_user, (int)pass,
                                     (int)SONDE_COUNT_OF(pass_names) - 1);
    }
}

/* The graph passes, up to and including `last`. */
static sonde_err run_passes(const sonde_nn_session *session, sonde__plan_program *program,
                            size_t last, sonde_diag *diag)
{
    static void (*const passes[])(sonde__plan_program *) = {
        NULL,
        sonde__pass_autodiff,
        sonde__pass_track,
        sonde__pass_accumulate,
        sonde__pass_optimize,
        sonde__pass_prune,
        sonde__pass_fuse,
        sonde__pass_stage,
    };
    SONDE__TRY(sonde__plan_program_init(program, session->model, &session->options,
                                        session->training ? &session->optimizer : NULL,
                                        diag));
    program->ranks = session->ranks;
    SONDE__TRY(
        sonde__plan_take_groups(program, session->groups, session->group_count, diag));
    for (size_t i = 1; i < SONDE_COUNT_OF(passes) && i <= last; i++) {
        const bool trains = i < 5;
        const bool left_out =
            passes[i] == sonde__pass_fuse && session->options.floating_point_exceptions;

        if ((session->training || !trains) && !left_out) {
            passes[i](program);
        }
        if (program->graph.err != SONDE_OK) {
            if (diag != NULL) {
                *diag = program->graph.diag;
            }
            return program->graph.err;
        }
        report_progress(session, i);
    }
    return SONDE_OK;
}

/* --- what is observed --------------------------------------------------------------- */

static sonde_err add_tap(sonde_nn_session *session, const char *selector,
                         const sonde_schedule *schedule, unsigned how, sonde_sink *sink,
                         sonde_diag *diag)
{
    sonde_selector *what = NULL;
    sonde_tap tap = {.how = how, .where = sink};
    SONDE__TRY(sonde_selector_create(selector, &what, diag));
    tap.what = what;
    tap.when[session->mode] = *schedule;
    const sonde_err err = sonde_observer_add(session->observer, &tap, NULL, diag);
    sonde_selector_destroy(what);
    return err;
}

static sonde_err add_requests(sonde_nn_session *session, sonde_diag *diag)
{
    SONDE__TRY(sonde__session_add_anchors(session, diag));
    for (size_t i = 0; i < session->tap_count; i++) {
        const sonde__session_tap_request *request = &session->tap_requests[i];

        SONDE__TRY(add_tap(session, request->selector, &request->schedule, request->how,
                           request->sink, diag));
    }
    for (size_t i = 0; i < session->attach_count; i++) {
        const sonde__session_attach_request *request = &session->attach_requests[i];

        SONDE__TRY(
            request->attach(request->user, session->catalogue, session->observer, diag));
    }
    return SONDE_OK;
}

/* Catalogue, observer, taps; the observer is dropped again if nothing is tapped. */
static sonde_err make_observer(sonde_nn_session *session, uint32_t *id_of,
                               sonde_diag *diag)
{
    const sonde_call_shape shape = {session->options.device_iterations,
                                    session->options.gradient_accumulation,
                                    session->options.replicas};
    const bool nothing = session->anchor_count == 0 && session->tap_count == 0 &&
                         session->attach_count == 0 && session->hook == NULL &&
                         session->program.graph.print_count == 0;
    SONDE__TRY(sonde_catalogue_create(&session->catalogue, diag));
    SONDE__TRY(sonde__pass_name(&session->program, session->catalogue, id_of, diag));
    if (nothing) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde_observer_create(session->catalogue, &session->observer, diag));
    SONDE__TRY(add_requests(session, diag));
    SONDE__TRY(sonde__session_add_prints(session, id_of, diag));
    if (session->hook != NULL) {
        SONDE__TRY(sonde_hook_attach(session->hook, session->catalogue, session->mode,
                                     session->observer, diag));
    }
    SONDE__TRY(sonde_observer_bind(session->observer, &shape, diag));
    session->gate = sonde_observer_get_gate(session->observer);
    return SONDE_OK;
}

/* --- inputs ------------------------------------------------------------------------- */

/* Numbers the inputs that the plan reads 0, 1, 2 ... and remembers their shapes. */
static sonde_err make_inputs(sonde_nn_session *session, sonde_diag *diag)
{
    const sonde__op_graph *graph = &session->program.graph;
    const int64_t repeats = sonde__session_flat_count(&session->options);
    sonde__plan *plan = &session->plan;
    const size_t most = graph->input_count;

    session->input_shapes = sonde__calloc(most, sizeof *session->input_shapes);
    session->input_names = sonde__calloc(most, sizeof *session->input_names);
    if (session->input_shapes == NULL || session->input_names == NULL) {
        return sonde__fail_nomem(diag, "the inputs");
    }
    session->input_count = 0;
    for (size_t i = 0; i < most; i++) {
        const sonde__graph_node_value *value = &graph->values[graph->inputs[i]];
        const int position = (int)session->input_count;
        bool used = false;

        for (size_t b = 0; b < plan->buffer_count; b++) {
            sonde__plan_buffer *buffer = &plan->buffers[b];

            if (buffer->place == SONDE__IN_INPUT && buffer->value == graph->inputs[i]) {
                used = true;
                buffer->index = position;
            }
        }
        if (!used) {
            continue;
        }
        session->input_names[position] =
            session->model->graph.values[session->model->graph.inputs[i]].name;
        session->input_shapes[position] = value->shape;
        session->input_shapes[position].dim[0] *= repeats;
        session->input_count++;
    }
    return SONDE_OK;
}

/* --- compile ------------------------------------------------------------------------ */

static void release_replicas(sonde_nn_session *session)
{
    for (int r = 1; r < session->replica_count; r++) {
        sonde__plan_fini(&session->replicas[r].own);
    }
    sonde__free(session->replicas);
    sonde__free(session->stage);
    session->stage = NULL;
    session->stages = 0;
    session->replicas = NULL;
    session->replica_count = 0;
}

void sonde__session_release(sonde_nn_session *session)
{
    sonde__session_team_destroy(session->team);
    release_replicas(session);
    sonde__plan_fini(&session->plan);
    sonde_observer_destroy(session->observer);
    sonde__session_release_sinks(session);
    sonde_catalogue_destroy(session->catalogue);
    sonde__plan_program_fini(&session->program);
    sonde__free(session->input_shapes);
    sonde__free(session->input_names);
    session->team = NULL;
    session->observer = NULL;
    session->gate = NULL;
    session->catalogue = NULL;
    session->input_shapes = NULL;
    session->input_names = NULL;
    session->compiled = session->described = false;
}

static sonde_err make_first_plan(sonde_nn_session *session, const uint32_t *id_of,
                                 const sonde__plan_device *device, sonde_diag *diag)
{
    const sonde__plan_program *program = &session->program;
    SONDE__TRY(
        sonde__pass_layout(program, id_of, session->observer, &session->plan, diag));
    report_progress(session, SONDE_COUNT_OF(pass_names) - 2);
    SONDE__TRY(make_inputs(session, diag));
    return sonde__pass_plan(program, id_of, session->observer, device, &session->plan,
                            diag);
}

/* The plan of a replica after the first: the same steps and buffers in memory of its
 * own. */
static sonde_err make_own_plan(const sonde_nn_session *session, const uint32_t *id_of,
                               const sonde__plan_device *device, sonde__plan *plan,
                               sonde_diag *diag)
{
    SONDE__TRY(
        sonde__pass_layout(&session->program, id_of, session->observer, plan, diag));
    for (size_t i = 0; i < plan->buffer_count; i++) {
        plan->buffers[i].index = session->plan.buffers[i].index;
    }
    return sonde__pass_plan(&session->program, id_of, session->observer, device, plan,
                            diag);
}

/* Plans of a replica: one for each micro-batch that is in its pipeline at a time. */
static int count_slots(const sonde_nn_session *session, const sonde__plan_device *device)
{
    const bool pipelined = session->stages > 0 &&
                           session->options.execution == SONDE_NN_PIPELINED &&
                           device->threads >= session->stages * device->replicas;

    return pipelined ? session->stages : 1;
}

/* The stages of a session for training; more than one thread may run them. */
static sonde_err check_stages(const sonde_nn_session *session, sonde_diag *diag)
{
    const sonde_nn_options *options = &session->options;
    char expected[96];

    if (session->stages == 0) {
        return SONDE_OK;
    }
    if (options->execution == SONDE_NN_PIPELINED &&
        options->gradient_accumulation < session->stages) {
        (void)snprintf(expected, sizeof expected, "at least %d, the stages of a pipeline",
                       session->stages);
        return sonde__fail(diag, SONDE_EINVAL, "gradient_accumulation", expected, "%d",
                           options->gradient_accumulation);
    }
    return SONDE_OK;
}

/* A thread for each stage of each replica, if there are as many. */
static bool make_stages(sonde_nn_session *session, const sonde__plan_device *device)
{
    const int count = session->stages * device->replicas;

    if (count == 0 || device->threads < count) {
        return true;
    }
    session->stage = sonde__malloc_aligned(64, (size_t)count * sizeof *session->stage);
    for (int i = 0; session->stage != NULL && i < count; i++) {
        sonde__session_turns_init(&session->stage[i].forward, count);
        sonde__session_turns_init(&session->stage[i].backward, count);
        session->stage[i].bad_loss = false;
    }
    return session->stage != NULL;
}

/* Copy i: slot i % slots of replica i / slots. */
static sonde_err make_copy(sonde_nn_session *session, const uint32_t *id_of,
                           sonde__plan_device *device, int i, sonde_diag *diag)
{
    sonde__session_replica *copy = &session->replicas[i];

    memset(&copy->own, 0, sizeof copy->own);
    copy->run =
        (execution){.plan = i == 0 ? &session->plan : &copy->own,
                    .turns = device->replicas > 1 ? &session->replicas[0].turns : NULL};
    session->replica_count = i + 1;
    device->replica = i / session->slots;
    device->slot = i % session->slots;
    device->first = device->slot > 0 ? sonde__session_run(session, device->replica)->plan
                                     : &session->plan;
    return i == 0 ? SONDE_OK : make_own_plan(session, id_of, device, &copy->own, diag);
}

static sonde_err make_replicas(sonde_nn_session *session, const uint32_t *id_of,
                               sonde__plan_device *device, sonde_diag *diag)
{
    const int replicas = device->replicas, slots = count_slots(session, device);
    const size_t copies = (size_t)replicas * (size_t)slots;
    sonde__plan **plans = sonde__calloc((size_t)replicas, sizeof(sonde__plan *));
    sonde_err err = SONDE_OK;

    session->slots = slots;
    session->replicas = sonde__malloc_aligned(64, copies * sizeof *session->replicas);
    if (session->replicas == NULL || plans == NULL) {
        sonde__free(plans);
        return sonde__fail_nomem(diag, "the replicas");
    }
    for (int i = 0; err == SONDE_OK && i < replicas * slots; i++) {
        err = make_copy(session, id_of, device, i, diag);
    }
    for (int r = 0; err == SONDE_OK && r < replicas; r++) {
        plans[r] = sonde__session_run(session, r)->plan;
    }
    session->updating = (execution){.plan = &session->plan};
    if (err == SONDE_OK && replicas > 1) {
        err = sonde__plan_join_replicas(plans, replicas, diag);
    }
    sonde__free(plans);
    return err;
}

/* Each replica has threads of its own if there are as many. */
static sonde_err make_team(sonde_nn_session *session, const sonde__plan_device *device,
                           sonde_diag *diag)
{
    int threads = 1;

    if (!make_stages(session, device)) {
        return sonde__fail_nomem(diag, "the stages");
    }
    session->lanes = session->stage != NULL
                         ? session->stages * device->replicas
                         : SONDE_MIN(device->replicas, device->threads);
    session->width = session->stages > 0 ? 1 : session->plan.threads;
    threads = session->lanes * session->width;
    for (int r = 0; r < session->replica_count; r++) {
        sonde__session_meeting_init(&session->replicas[r].meeting, session->width,
                                    threads);
    }
    sonde__session_turns_init(&session->replicas[0].turns, threads);
    sonde__session_pace_init(&session->pace);
    if (threads == 1) {
        return SONDE_OK;
    }
    return sonde__session_team_create(threads, &session->team) == SONDE_OK
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EIO, "threads", "fewer threads",
                             "cannot start %d", threads);
}

/* Whether the plan that the caller gave is that of this session. */
static sonde_err check_plan(const sonde_nn_session *session, sonde_diag *diag)
{
    const sonde_nn_plan *given = session->options.plan;
    char line[SONDE_DIAG_LINE];
    sonde_diag other = {0};
    sonde_err err = SONDE_OK;

    if (given == NULL || session->plan.known) {
        return SONDE_OK;
    }
    err = sonde__session_plan_other(given, session, &other);
    if (session->options.plan_only) {
        if (diag != NULL) {
            *diag = other;
        }
        return err;
    }
    sonde_log(SONDE_LOG_INFO, "compile", "%s; it is compiled again",
              sonde_diag_line(&other, line, sizeof line));
    return SONDE_OK;
}

static sonde_err make_plan(sonde_nn_session *session, const uint32_t *id_of,
                           const sonde__plan_lookup *lookup, sonde_diag *diag)
{
    const int processors = sonde__ranks_processors(session->ranks, sonde__cpu_count());
    const int threads = session->options.threads > 0
                            ? SONDE_MIN(session->options.threads, processors)
                            : processors;
    sonde__plan_device device = {.replicas = session->options.replicas,
                                 .threads = threads};

    session->stages = sonde__plan_has_stages(&session->program)
                          ? session->program.graph.stage_count
                          : 0;
    SONDE__TRY(check_stages(session, diag));
    if (session->stages > 0) { /* one for each, though some may share a processor */
        const int most = SONDE_MAX(session->options.threads, threads);
        const int needed = session->stages * device.replicas;

        device.threads = most >= needed ? needed : SONDE_MIN(threads, device.replicas);
    }
    device.lookup = lookup->find != NULL ? lookup : NULL;
    SONDE__TRY(make_first_plan(session, id_of, &device, diag));
    SONDE__TRY(check_plan(session, diag));
    SONDE__TRY(make_replicas(session, id_of, &device, diag));
    SONDE__TRY(make_team(session, &device, diag));
    return sonde__session_make_outputs(session, diag);
}

/* Lists the tensors that can be observed, and the ops in the order they run. */
static void log_names(const sonde_nn_session *session)
{
    const sonde__plan *plan = &session->plan;
    char shape[96];

    if (!sonde_log_enabled(SONDE_LOG_DEBUG)) {
        return;
    }
    for (uint32_t id = 0; id < sonde_catalogue_count(session->catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(session->catalogue, id);

        sonde_log(SONDE_LOG_DEBUG, "compile", "tensor %s %s%s, %s", info->name,
                  sonde_dtype_name(info->dtype),
                  sonde_shape_text(info->rank, info->shape, shape, sizeof shape),
                  sonde_role_name(info->role));
    }
    for (size_t i = 0; i < plan->step_count; i++) {
        const sonde__plan_step *step = &plan->steps[i];
        const char *made = session->program.graph.values[step->out_value[0]].name;

        sonde_log(SONDE_LOG_DEBUG, "compile", "op %zu %s/%s%s%s%s%s", i, step->kind->name,
                  step->kernel->name, step->module[0] != '\0' ? " in " : "", step->module,
                  made != NULL ? ": " : "", made != NULL ? made : "");
    }
}

/* The options, as the environment leaves them, and whether they can be. */
static sonde_err settle_options(sonde_nn_session *session, sonde_diag *diag)
{
    SONDE__TRY(sonde__cpu_isa_check(diag));
    SONDE__TRY(
        sonde__session_options_override(&session->options, session->training, diag));
    return sonde__session_options_check(&session->options, session->training, diag);
}

sonde_err sonde_nn_session_compile(sonde_nn_session *session, sonde_diag *diag)
{
    const double started = sonde__now();
    uint32_t *id_of = NULL;
    sonde__session_plan_search search = {0};
    sonde_err err = SONDE_OK;
    SONDE__TRY(sonde__graph_expect(session, "session", diag));
    if (session->compiled) {
        sonde_log(SONDE_LOG_WARNING, "compile", "the session is compiled already");
        return SONDE_OK;
    }
    SONDE__TRY(settle_options(session, diag));
    if (session->options.floating_point_exceptions) {
        session->options.threads = 1;
    }
    memset(&session->latency, 0, sizeof session->latency);
    SONDE__TRY_GO(run_passes(session, &session->program, SIZE_MAX, diag));
    id_of = sonde__calloc(session->program.graph.value_count, sizeof *id_of);
    if (id_of == NULL) {
        err = sonde__fail_nomem(diag, "the names");
        goto error;
    }
    SONDE__TRY_GO(make_observer(session, id_of, diag));
    SONDE__TRY_GO(sonde__session_plan_search_begin(&search, session, diag));
    SONDE__TRY_GO(make_plan(session, id_of, &search.lookup, diag));
    sonde__free(id_of);
    sonde__session_begin_scaling(session);
    report_progress(session, SONDE_COUNT_OF(pass_names) - 1);
    session->compiled = true;
    sonde__session_plan_search_end(&search);
    session->compile_seconds = sonde__now() - started;
    sonde_log(SONDE_LOG_DEBUG, "compile",
              "%zu steps, arena %zu bytes, %d threads, %.2f ms", session->plan.step_count,
              session->plan.arena_bytes, session->lanes * session->width,
              1e3 * session->compile_seconds);
    log_names(session);
    return SONDE_OK;

error:
    sonde__session_plan_search_end(&search);
    sonde__free(id_of);
    sonde__session_release(session);
    return err;
}

sonde_err sonde__session_ready(sonde_nn_session *session, sonde_diag *diag)
{
    SONDE__TRY(sonde__graph_expect(session, "session", diag));
    return session->compiled ? SONDE_OK : sonde_nn_session_compile(session, diag);
}

sonde_err sonde_nn_session_dump(sonde_nn_session *session, const char *pass, FILE *stream,
                                sonde_diag *diag)
{
    sonde__plan_program program = {0};
    size_t last = 0;
    sonde_err err = SONDE_OK;
    SONDE__TRY(sonde__graph_expect(session, "session", diag));
    if (pass == NULL || stream == NULL) {
        return sonde__graph_expect(NULL, pass == NULL ? "pass" : "stream", diag);
    }
    while (last < SONDE_COUNT_OF(pass_names) && strcmp(pass_names[last], pass) != 0) {
        last++;
    }
    if (last == SONDE_COUNT_OF(pass_names)) {
        return sonde__fail(
            diag, SONDE_EINVAL, "dump",
            "instantiate, autodiff, track, accumulate, optimize, prune, fuse, stage, "
            "layout or plan",
            "unknown pass '%s'", pass);
    }
    if (last + 2 >= SONDE_COUNT_OF(pass_names)) {
        SONDE__TRY(sonde__session_ready(session, diag));
        sonde__plan_dump_plan(&session->plan, stream);
        return SONDE_OK;
    }
    SONDE__TRY(sonde__session_options_check(&session->options, session->training, diag));
    SONDE__TRY_GO(run_passes(session, &program, last, diag));
    sonde__plan_dump_graph(&program.graph, stream);
error:
    sonde__plan_program_fini(&program);
    return err;
}
