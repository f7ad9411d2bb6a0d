/*
 * session.c - a session's life before and between runs: creation, checks of inputs,
 * calls, and requests, which are served between calls. compile.c makes it ready and
 * execute.c runs it.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/memory.h"
#include "nn/ranks/ranks.h"
#include "nn/run/session_state.h"
#include "base/options.h"

#include <sonde/log.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <math.h>

/* === inputs ========================================================================= */

/* Of what the leading dimension of an input is the product, if it is of several and it
 * alone is wrong. */
static void explain_batch(const sonde_nn_session *session, const sonde__op_shape *want,
                          const sonde_view *have, char *text, size_t size)
{
    const sonde_nn_options *options = &session->options;
    bool others = want->rank == have->rank;

    for (int i = 1; others && i < want->rank; i++) {
        others = want->dim[i] == have->shape[i];
    }
    if (others && sonde__session_flat_count(options) > 1) {
        (void)snprintf(text, size,
                       ": batch_size %" PRId64
                       " of device_iterations %d, gradient_accumulation %d, replicas %d",
                       session->program.batch_size, options->device_iterations,
                       options->gradient_accumulation, options->replicas);
    }
}

static sonde_err check_shape(const sonde_nn_session *session, const char *name,
                             const sonde__op_shape *want, const sonde_view *have,
                             sonde_diag *diag)
{
    char expected[256], found[96];
    bool same = want->rank == have->rank;

    for (int i = 0; same && i < want->rank; i++) {
        same = want->dim[i] == have->shape[i];
    }
    if (same) {
        return SONDE_OK;
    }
    (void)sonde_shape_text(want->rank, want->dim, expected, sizeof expected);
    (void)sonde_shape_text(have->rank, have->shape, found, sizeof found);
    explain_batch(session, want, have, expected + strlen(expected),
                  sizeof expected - strlen(expected));
    return sonde__fail(diag, SONDE_ESHAPE, name, expected, "shape mismatch: got %s",
                       found);
}

static sonde_err check_view(const sonde_nn_session *session, size_t i,
                            const sonde_view *view, sonde_diag *diag)
{
    const char *name = session->input_names[i];
    const sonde__op_shape *want = &session->input_shapes[i];

    if (view->data == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, name, "a pointer", "data is NULL");
    }
    if (view->rank < 0 || view->rank > SONDE_MAX_DIMS) {
        return sonde__fail(diag, SONDE_ESHAPE, name, NULL, "a view of rank %d",
                           view->rank);
    }
    if (view->dtype != want->dtype) {
        return sonde__fail(diag, SONDE_EDTYPE, name, sonde_dtype_name(want->dtype),
                           "dtype mismatch: got %s", sonde_dtype_name(view->dtype));
    }
    if (!sonde_view_is_contiguous(view)) {
        return sonde__fail(diag, SONDE_EINVAL, name, "a contiguous tensor",
                           "the view has gaps or another order");
    }
    return check_shape(session, name, want, view, diag);
}

static sonde_err check_targets(const sonde_nn_session *session,
                               const sonde__plan_target *target, const sonde_view *view,
                               sonde_diag *diag)
{
    const sonde__op_ids *ids = &target->ids;
    const char *name = session->input_names[target->input];
    const int64_t count = sonde_view_count(view);
    const int64_t each =
        view->rank > 0 && view->shape[0] > 0 ? count / view->shape[0] : 1;
    const int64_t *numbers = view->data;
    int64_t outside = -1;
    char expected[64];

    for (int64_t i = 0; i < count && outside < 0; i++) {
        const bool ignored = ids->ignores && numbers[i] == ids->ignored;

        if (!ignored && (numbers[i] < 0 || numbers[i] >= ids->count)) {
            outside = i;
        }
    }
    if (outside < 0) {
        return SONDE_OK;
    }
    (void)snprintf(expected, sizeof expected, "0 to %lld", (long long)ids->count - 1);
    if (each <= 1) {
        return sonde__fail(diag, SONDE_ERANGE, name, expected, "%s %lld is %lld",
                           ids->what, (long long)outside, (long long)numbers[outside]);
    }
    return sonde__fail(diag, SONDE_ERANGE, name, expected,
                       "%s %lld at sample %lld, position %lld", ids->what,
                       (long long)numbers[outside], (long long)(outside / each),
                       (long long)(outside % each));
}

sonde_err sonde__session_check_inputs(const sonde_nn_session *session,
                                      const sonde_view *inputs, size_t count,
                                      sonde_diag *diag)
{
    if (inputs == NULL && count > 0) {
        return sonde__graph_expect(inputs, "inputs", diag);
    }
    if (count != session->input_count) {
        return sonde__fail(diag, SONDE_EINVAL, "inputs", NULL,
                           "number of inputs mismatch: expected %zu but got %zu",
                           session->input_count, count);
    }
    for (size_t i = 0; i < count; i++) {
        SONDE__TRY(check_view(session, i, &inputs[i], diag));
    }
    for (size_t i = 0; inputs != NULL && i < session->plan.target_count; i++) {
        const sonde__plan_target *target = &session->plan.targets[i];

        SONDE__TRY(check_targets(session, target, &inputs[target->input], diag));
    }
    return SONDE_OK;
}

sonde_err sonde_nn_session_create(sonde_nn_model *model, const sonde_nn_options *options,
                                  const sonde_nn_optimizer *optimizer,
                                  sonde_nn_session **out, sonde_diag *diag)
{
    sonde_nn_session *session = NULL;
    sonde_nn_options taken;
    SONDE__TRY(sonde_nn_model_status(model, diag));
    SONDE__TRY(sonde__graph_expect(out, "out", diag));
    if (optimizer != NULL) {
        SONDE__TRY(sonde_nn_optimizer_check(optimizer, diag));
    }
    sonde_nn_options_init(&taken);
    if (options != NULL) {
        SONDE__TAKE(sonde_nn_options, &taken, options, diag);
    }
    session = sonde__calloc(1, sizeof *session);
    if (session == NULL) {
        return sonde__fail_nomem(diag, "a session");
    }
    session->model = model;
    session->training = optimizer != NULL;
    session->mode = session->training ? SONDE_MODE_TRAIN : SONDE_MODE_EVAL;
    if (optimizer != NULL) {
        session->optimizer = *optimizer;
    }
    session->options = taken;
    (void)pthread_mutex_init(&session->output_lock, NULL);
    *out = session;
    return SONDE_OK;
}

void sonde_nn_session_destroy(sonde_nn_session *session)
{
    if (session == NULL) {
        return;
    }
    sonde__session_release(session);
    for (size_t i = 0; i < session->anchor_count; i++) {
        sonde__free(session->anchor_requests[i].user_name);
        sonde__free(session->anchor_requests[i].tensor_name);
    }
    for (size_t i = 0; i < session->tap_count; i++) {
        sonde__free(session->tap_requests[i].selector);
        sonde__free(session->tap_requests[i].steps);
    }
    sonde__free(session->anchor_requests);
    sonde__free(session->tap_requests);
    sonde__free(session->attach_requests);
    sonde__free(session->checkpoints);
    sonde__session_free_groups(session);
    (void)pthread_mutex_destroy(&session->output_lock);
    sonde__free(session);
}

/* --- before compile ----------------------------------------------------------------- */

/* Neither NULL nor compiled; nor is `given`, which `what` names, NULL. */
static sonde_err check_open(const sonde_nn_session *session, const void *given,
                            const char *what, sonde_diag *diag)
{
    SONDE__TRY(sonde__graph_expect(session, "session", diag));
    if (!session->compiled) {
        return sonde__graph_expect(given, what, diag);
    }
    return sonde__fail(diag, SONDE_ESTATE, what, "it before compile",
                       "the session is compiled and its options are frozen");
}

sonde_err sonde_nn_session_anchor(sonde_nn_session *session, const char *user_name,
                                  const char *tensor_name, sonde_anchor_mode mode,
                                  int period, sonde_diag *diag)
{
    sonde__session_anchor_request request = {.mode = mode, .period = period};
    SONDE__TRY(check_open(session, user_name,
                          user_name != NULL ? user_name : "anchor name", diag));
    SONDE__TRY(sonde__graph_expect(tensor_name, user_name, diag));
    if ((unsigned)mode > SONDE_ANCHOR_MEAN) {
        char where[160];

        (void)snprintf(where, sizeof where, "anchor '%s'", user_name);
        return sonde__fail(diag, SONDE_EINVAL, where, "a sonde_anchor_mode", "mode %d",
                           (int)mode);
    }
    for (size_t i = 0; i < session->anchor_count; i++) {
        if (user_name != NULL &&
            strcmp(session->anchor_requests[i].user_name, user_name) == 0) {
            return sonde__fail(diag, SONDE_EEXIST, user_name, "an unused name",
                               "an anchor has this name already");
        }
    }
    request.user_name = sonde__strdup(user_name);
    request.tensor_name = sonde__strdup(tensor_name);
    if (request.user_name == NULL || request.tensor_name == NULL ||
        !sonde__reserve(&session->anchor_requests, &session->anchor_capacity,
                        session->anchor_count + 1, sizeof request)) {
        sonde__free(request.user_name);
        sonde__free(request.tensor_name);
        return sonde__fail_nomem(diag, "an anchor");
    }
    session->anchor_requests[session->anchor_count++] = request;
    return SONDE_OK;
}

sonde_err sonde_nn_session_tap(sonde_nn_session *session, const char *selector,
                               const sonde_schedule *schedule, unsigned how,
                               sonde_sink *sink, sonde_diag *diag)
{
    sonde__session_tap_request request = {.how = how, .sink = sink};
    SONDE__TRY(
        check_open(session, selector, selector != NULL ? selector : "selector", diag));
    SONDE__TRY(sonde__graph_expect(schedule, "schedule", diag));
    request.schedule = *schedule;
    SONDE__TRY(sonde_schedule_check(schedule, diag));
    SONDE__TRY(sonde__graph_expect(sink, "sink", diag));
    request.selector = sonde__strdup(selector);
    request.steps = sonde__calloc(schedule->step_count, sizeof *request.steps);
    if (request.selector == NULL || request.steps == NULL ||
        !sonde__reserve(&session->tap_requests, &session->tap_capacity,
                        session->tap_count + 1, sizeof request)) {
        sonde__free(request.selector);
        sonde__free(request.steps);
        return sonde__fail_nomem(diag, "a tap");
    }
    if (schedule->step_count > 0) {
        memcpy(request.steps, schedule->steps,
               schedule->step_count * sizeof *request.steps);
    }
    request.schedule.steps = request.steps;
    session->tap_requests[session->tap_count++] = request;
    return SONDE_OK;
}

static sonde_err add_attach(sonde_nn_session *session, sonde_nn_attach attach, void *user,
                            sonde_diag *diag)
{
    if (!sonde__reserve(&session->attach_requests, &session->attach_capacity,
                        session->attach_count + 1, sizeof *session->attach_requests)) {
        return sonde__fail_nomem(diag, "what is attached");
    }
    session->attach_requests[session->attach_count++] =
        (sonde__session_attach_request){attach, user};
    return SONDE_OK;
}

static sonde_err attach_outfeed(void *user, const sonde_catalogue *catalogue,
                                sonde_observer *observer, sonde_diag *diag)
{
    return sonde_outfeed_attach(user, catalogue, observer, diag);
}

/* What is set; NULL: nothing. */
static const char *find_set(const sonde_nn_session_options *options)
{
    return options->options != NULL            ? "options"
           : options->mode != SONDE_MODE_TRAIN ? "mode"
           : options->attach != NULL           ? "attach"
           : options->outfeed != NULL          ? "outfeed"
           : options->hook != NULL             ? "hook"
           : options->ranks != NULL            ? "ranks"
           : options->prints != NULL           ? "prints"
                                               : NULL;
}

static sonde_err check_set(const sonde_nn_session *session,
                           const sonde_nn_session_options *options, sonde_diag *diag)
{
    const char *what = find_set(options);

    if (options->epoch_calls < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "epoch_calls", "0 or more", "%lld",
                           (long long)options->epoch_calls);
    }
    if (what == NULL) {
        return SONDE_OK;
    }
    SONDE__TRY(check_open(session, session, what, diag));
    if ((unsigned)options->mode >= SONDE_MODE_GLOBAL) {
        return sonde__fail(diag, SONDE_EINVAL, "mode", "train, eval or predict", "%d",
                           (int)options->mode);
    }
    return options->ranks == NULL || session->training
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EINVAL, "ranks", "a session for training",
                             "a session for inference");
}

sonde_err sonde_nn_session_set(sonde_nn_session *session,
                               const sonde_nn_session_options *given, sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "session, options", session, given);
    sonde_nn_session_options options;
    sonde_nn_options taken = session->options;
    SONDE__TAKE(sonde_nn_session_options, &options, given, diag);
    SONDE__TRY(check_set(session, &options, diag));
    if (options.options != NULL) {
        SONDE__TAKE(sonde_nn_options, &taken, options.options, diag);
    }
    if (options.attach != NULL) {
        SONDE__TRY(add_attach(session, options.attach, options.user, diag));
    }
    if (options.outfeed != NULL) {
        const sonde_err err = add_attach(session, attach_outfeed, options.outfeed, diag);

        if (err != SONDE_OK) {
            session->attach_count -= options.attach != NULL ? 1 : 0;
            return err;
        }
    }
    session->options = taken;
    session->mode = options.mode != SONDE_MODE_TRAIN ? options.mode : session->mode;
    session->hook = options.hook != NULL ? options.hook : session->hook;
    session->ranks = options.ranks != NULL ? options.ranks : session->ranks;
    session->print_stream =
        options.prints != NULL ? options.prints : session->print_stream;
    if (options.epoch_calls > 0) {
        session->epoch_calls = options.epoch_calls;
    }
    return SONDE_OK;
}

/* --- after it ----------------------------------------------------------------------- */

static sonde_err check_compiled(const sonde_nn_session *session, sonde_diag *diag)
{
    SONDE__TRY(sonde__graph_expect(session, "session", diag));
    if (session->compiled) {
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_ESTATE, "session", "a call of compile or run before",
                       "it has not been compiled");
}

const sonde_catalogue *sonde_nn_session_catalogue(const sonde_nn_session *session)
{
    return session != NULL && session->compiled ? session->catalogue : NULL;
}

int64_t sonde_nn_session_step(const sonde_nn_session *session)
{
    return session != NULL ? session->step : 0;
}

static size_t count_state_bytes(const sonde_nn_session *session)
{
    size_t bytes = session->plan.state_bytes;

    for (int r = 1; r < session->replica_count; r++) {
        bytes += session->replicas[r].own.state_bytes;
    }
    return bytes;
}

sonde_err sonde_nn_session_describe(const sonde_nn_session *session,
                                    sonde_nn_session_info *info, sonde_diag *diag)
{
    const sonde_nn_options *options = NULL;
    SONDE__TRY(check_compiled(session, diag));
    SONDE__TRY(sonde__graph_expect(info, "info", diag));
    options = &session->options;
    *info = (sonde_nn_session_info){
        .arena_bytes = session->plan.arena_bytes * (size_t)options->replicas,
        .largest_live = session->plan.largest_live * (size_t)options->replicas,
        .state_bytes = count_state_bytes(session),
        .op_count = session->plan.step_count,
        .threads = session->lanes * session->width,
        .compile_seconds = session->compile_seconds,
        .batch_size = session->program.batch_size,
        .device_iterations = options->device_iterations,
        .gradient_accumulation = options->gradient_accumulation,
        .replicas = options->replicas,
        .ranks = sonde_nn_ranks_count(session->ranks),
        .output_mode = options->output_mode,
        .combined_batch = session->program.batch_size * options->device_iterations *
                          options->gradient_accumulation * options->replicas,
        .output_count = session->plan.output_count,
        .latency = sonde__session_latency_get(&session->latency)};
    return SONDE_OK;
}

sonde_err sonde_nn_session_set_optimizer(sonde_nn_session *session, const char *group,
                                         const sonde_nn_optimizer *optimizer,
                                         sonde_diag *diag)
{
    SONDE__NEEDS(diag, session, optimizer);
    SONDE__TRY(sonde_nn_optimizer_check(optimizer, diag));
    if (!session->training) {
        return sonde__fail(diag, SONDE_ESTATE, "optimizer", "a training session",
                           "this session infers");
    }
    if (group != NULL) {
        return sonde__session_set_group(session, group, optimizer, diag);
    }
    return sonde__session_set_default(session, optimizer, diag);
}

sonde_err sonde_nn_session_run(sonde_nn_session *session, const sonde_view *inputs,
                               size_t count, sonde_diag *diag)
{
    SONDE__TRY(sonde__session_ready(session, diag));
    SONDE__TRY(sonde__session_check_inputs(session, inputs, count, diag));
    if (session->control != NULL && session->ranks == NULL) {
        SONDE__TRY(sonde_nn_session_heed(session, diag));
    }
    if (session->hook != NULL) {
        SONDE__TRY(sonde_hook_open(session->hook, diag));
    }
    const double started = sonde__now();
    sonde__session_execute(session, inputs);
    sonde__session_latency_add(&session->latency, sonde__now() - started);
    return session->trap.found ? sonde__session_trap_error(session, diag)
                               : sonde__ranks_fault(session->ranks, diag);
}

/* === requests ======================================================================= */

enum { PATH = 4096 };

sonde_err sonde_nn_session_attach_control(sonde_nn_session *session,
                                          sonde_control *control, const char *checkpoints,
                                          sonde_diag *diag)
{
    char *folder = NULL;
    SONDE__TRY(sonde__graph_expect(session, "session", diag));
    if (checkpoints != NULL && strlen(checkpoints) + 64 > PATH) {
        return sonde__fail(diag, SONDE_EINVAL, "checkpoints", "a shorter path",
                           "a path of %zu bytes", strlen(checkpoints));
    }
    if (checkpoints != NULL) {
        folder = sonde__strdup(checkpoints);
        if (folder == NULL) {
            return sonde__fail_nomem(diag, "a control");
        }
    }
    sonde__free(session->checkpoints);
    session->checkpoints = folder;
    session->control = control;
    session->stopped = false;
    return SONDE_OK;
}

const sonde_request *sonde_nn_session_stopped(const sonde_nn_session *session)
{
    return session != NULL && session->stopped ? &session->stop : NULL;
}

/* A checkpoint that cannot be saved is reported, and training continues. */
static void save_checkpoint(const sonde_nn_session *session, const sonde_request *request)
{
    char path[PATH], line[SONDE_DIAG_LINE];
    sonde_diag diag = {0};

    if (session->checkpoints == NULL) {
        sonde_log(SONDE_LOG_WARNING, "control",
                  "a checkpoint was requested (%s), but there is no folder for it",
                  request->text);
        return;
    }
    if (mkdir(session->checkpoints, 0777) != 0 && errno != EEXIST) {
        sonde_log(SONDE_LOG_WARNING, "control", "%s: cannot create the folder: %s",
                  session->checkpoints, strerror(errno));
        return;
    }
    (void)snprintf(path, sizeof path, "%s/step-%010" PRId64 ".safetensors",
                   session->checkpoints, session->step);
    if (sonde_nn_session_save(session, path, &diag) != SONDE_OK) {
        sonde_log(SONDE_LOG_WARNING, "control", "no checkpoint: %s",
                  sonde_diag_line(&diag, line, sizeof line));
        return;
    }
    sonde_log(SONDE_LOG_INFO, "control", "checkpoint %s: %s", path, request->text);
}

sonde_err sonde_nn_session_heed(sonde_nn_session *session, sonde_diag *diag)
{
    sonde_request request;
    SONDE__TRY(sonde__graph_expect(session, "session", diag));
    while (!session->stopped && session->control != NULL &&
           sonde_control_take(session->control, &request)) {
        if (request.kind == SONDE_REQUEST_CHECKPOINT) {
            if (request.by == SONDE_BY_RULE || sonde_nn_ranks_rank(session->ranks) == 0) {
                save_checkpoint(session, &request); /* a user asks all ranks */
            }
        } else {
            session->stop = request;
            session->stopped = true;
        }
    }
    return session->stopped ? sonde__fail(diag, SONDE_EINTERRUPTED, "control", NULL, "%s",
                                          session->stop.text)
                            : SONDE_OK;
}

/* === durations of calls ============================================================ */

/*
 * How long calls of run took: counts by duration, 32 to an octave, so that a
 * percentile is known to 3 %.
 */

enum { SHARES = 32, SHARES_LOG2 = 5, LONGEST_LOG2 = 45 }; /* ns; 2^45 are ten hours */

static size_t bucket_of(uint64_t ns)
{
    int log2 = SHARES_LOG2;

    if (ns < SHARES) {
        return (size_t)ns;
    }
    ns = ns < (UINT64_C(1) << LONGEST_LOG2) ? ns : (UINT64_C(1) << LONGEST_LOG2) - 1;
    log2 = 63 - __builtin_clzll(ns);
    return (size_t)(log2 - SHARES_LOG2 + 1) * SHARES +
           (size_t)(ns >> (log2 - SHARES_LOG2)) - SHARES;
}

/* The middle of a bucket, in seconds. */
static double duration_of(size_t bucket)
{
    const int octave = (int)(bucket / SHARES);
    const double share = (double)(bucket % SHARES);

    return 1e-9 * (octave == 0 ? share : ldexp(SHARES + share + 0.5, octave - 1));
}

void sonde__session_latency_add(sonde__session_latency *latency, double seconds)
{
    const double ns = seconds > 0.0 ? seconds * 1e9 : 0.0;

    latency->least = latency->calls == 0 ? seconds : fmin(latency->least, seconds);
    latency->most = fmax(latency->most, seconds);
    latency->sum += seconds;
    latency->calls++;
    latency->counts[bucket_of((uint64_t)ns)]++;
}

/* The duration that a share of the calls did not exceed. */
static double percentile(const sonde__session_latency *latency, double share)
{
    const int64_t wanted = (int64_t)ceil(share * (double)latency->calls);
    int64_t count = 0;

    for (size_t i = 0; i < SONDE__LATENCY_BUCKETS; i++) {
        count += latency->counts[i];
        if (count >= wanted) {
            return fmin(fmax(duration_of(i), latency->least), latency->most);
        }
    }
    return latency->most;
}

sonde_nn_latency sonde__session_latency_get(const sonde__session_latency *latency)
{
    if (latency->calls == 0) {
        return (sonde_nn_latency){.calls = 0};
    }
    return (sonde_nn_latency){.calls = latency->calls,
                              .minimum = latency->least,
                              .mean = latency->sum / (double)latency->calls,
                              .median = percentile(latency, 0.5),
                              .p90 = percentile(latency, 0.9),
                              .p99 = percentile(latency, 0.99),
                              .maximum = latency->most};
}
