/*
 * checkpoint.c - parameters, buffers, optimizer state and step counter in one safetensors file.
 *
 * Parameters and buffers have their own names; state is named after the value that an update makes
 * (Accl1___conv1.weight). Metadata: sonde.step, sonde.optimizer, and the settings that
 * a resumed run must share: sonde.batch_size and so on. Random numbers are pure
 * functions of the seed and the step, so nothing else is needed to resume bit for bit.
 * Accumulators are not saved: they are zero between steps.
 */
#include "nn/run/session_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"

#include <sonde/safetensors.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything a checkpoint holds, as views of the session's own memory. */
static size_t collect(const sonde_nn_session *session, sonde_named_view *named)
{
    const sonde_nn_model *model = session->model;
    size_t count = 0;

    for (size_t i = 0; i < sonde__graph_tensor_count(model); i++) {
        named[count++] = sonde__graph_tensor(model, i);
    }
    for (size_t i = 0; i < session->plan.state_count; i++) {
        const sonde__plan_state *state = &session->plan.states[i];

        if (!state->accumulator) {
            named[count].name = state->name;
            named[count++].view = sonde_view_of(state->shape.dtype, state->shape.rank,
                                                state->shape.dim, state->data);
        }
    }
    return count;
}

static sonde_err list(const sonde_nn_session *session, sonde_named_view **named,
                      size_t *count, sonde_diag *diag)
{
    SONDE__TRY(sonde__graph_expect(session, "session", diag));
    if (!session->compiled) {
        return sonde__fail(diag, SONDE_ESTATE, "session",
                           "a call of compile or run before", "it has not been compiled");
    }
    *named = sonde__calloc(sonde__graph_tensor_count(session->model) +
                               session->plan.state_count,
                           sizeof **named);
    if (*named == NULL) {
        return sonde__fail_nomem(diag, "a checkpoint");
    }
    *count = collect(session, *named);
    return SONDE_OK;
}

/* In the order of sonde_nn_float. */
static const char *const dtypes[] = {"float32", "bfloat16", "float16"};

static const char *optimizer_name(const sonde_nn_session *session)
{
    return session != NULL && session->training
               ? sonde_nn_optimizer_name(session->optimizer.kind)
               : "none";
}

/* The metadata of a checkpoint. */
typedef struct notes {
    sonde_metadata rows[12];
    char texts[12][32];
    size_t count;
} notes;

static void note(notes *n, const char *key, const char *text)
{
    (void)snprintf(n->texts[n->count], sizeof n->texts[0], "%s", text);
    n->rows[n->count] = (sonde_metadata){key, n->texts[n->count]};
    n->count++;
}

static void note_number(notes *n, const char *key, int64_t number)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%" PRId64, number);
    note(n, key, text);
}

static void note_settings(const sonde_nn_session *session, notes *n)
{
    const sonde_nn_options *options = &session->options;
    char text[32];

    note(n, "format", "pt");
    note_number(n, "sonde.step", session->step);
    note(n, "sonde.optimizer", optimizer_name(session));
    note_number(n, "sonde.batch_size", session->program.batch_size);
    note_number(n, "sonde.device_iterations", options->device_iterations);
    note_number(n, "sonde.gradient_accumulation", options->gradient_accumulation);
    (void)snprintf(text, sizeof text, "%" PRIu64, options->random_seed);
    note(n, "sonde.random_seed", text);
    (void)sonde__snprintf(text, sizeof text, "%.9g",
                          (double)session->optimizer.learning_rate);
    note(n, "sonde.learning_rate", text);
    if (session->epoch_calls > 0) {
        note_number(n, "sonde.epoch_calls", session->epoch_calls);
    }
    if (options->replicas > 1) {
        note_number(n, "sonde.replication_factor", options->replicas);
    }
    if (sonde_nn_ranks_count(session->ranks) > 1) {
        note_number(n, "sonde.ranks", sonde_nn_ranks_count(session->ranks));
    }
    if (options->dtype != SONDE_NN_FLOAT32) {
        note(n, "sonde.dtype", dtypes[options->dtype]);
    }
}

sonde_err sonde_nn_session_save(const sonde_nn_session *session, const char *path,
                                sonde_diag *diag)
{
    sonde_named_view *named = NULL;
    size_t count = 0;
    notes n = {.count = 0};
    SONDE__TRY(sonde__graph_expect(path, "path", diag));
    SONDE__TRY(list(session, &named, &count, diag));
    note_settings(session, &n);
    const sonde_err err =
        sonde_safetensors_write(path, named, count, n.rows, n.count, diag);
    sonde__free(named);
    return err;
}

/* --- metadata ----------------------------------------------------------------------- */

enum { STEPS_MOST_LOG2 = 48 }; /* more steps than any run has, and products fit int64_t */

/* A count; false if it is missing or none. */
static bool read_count(const sonde_safetensors *file, const char *key, int64_t *count)
{
    const char *text = sonde_safetensors_metadata(file, key);
    char *end = NULL;

    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    *count = strtoll(text, &end, 10);
    return *end == '\0' && errno == 0;
}

/* A seed, which has all bits of an uint64_t. */
static bool read_seed(const sonde_safetensors *file, uint64_t *seed)
{
    const char *text = sonde_safetensors_metadata(file, "sonde.random_seed");
    char *end = NULL;

    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    *seed = strtoull(text, &end, 10);
    return *end == '\0' && errno == 0;
}

/* float32 is not written. */
static sonde_nn_float read_dtype(const sonde_safetensors *file)
{
    const char *text = sonde_safetensors_metadata(file, "sonde.dtype");

    for (int i = 0; text != NULL && i < (int)SONDE_COUNT_OF(dtypes); i++) {
        if (strcmp(text, dtypes[i]) == 0) {
            return (sonde_nn_float)i;
        }
    }
    return SONDE_NN_FLOAT32;
}

static sonde_err read_info(const sonde_safetensors *file, const char *path,
                           sonde_nn_checkpoint_info *info, sonde_diag *diag)
{
    const char *step = sonde_safetensors_metadata(file, "sonde.step");
    const char *rate = sonde_safetensors_metadata(file, "sonde.learning_rate");
    sonde_nn_checkpoint_info read = {0};

    if (step == NULL || sonde_safetensors_metadata(file, "sonde.optimizer") == NULL) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "a checkpoint.safetensors",
                           "it is no checkpoint: it lacks %s",
                           step == NULL ? "sonde.step" : "sonde.optimizer");
    }
    if (!read_count(file, "sonde.step", &read.step) ||
        read.step > (INT64_C(1) << STEPS_MOST_LOG2)) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "a count of steps",
                           "sonde.step is '%s'", step);
    }
    read.settings =
        read_count(file, "sonde.batch_size", &read.batch_size) &&
        read_count(file, "sonde.device_iterations", &read.device_iterations) &&
        read_count(file, "sonde.gradient_accumulation", &read.gradient_accumulation) &&
        read_seed(file, &read.random_seed) && rate != NULL;
    if (read.settings) {
        read.learning_rate = sonde__strtof(rate, NULL);
    }
    if (!read_count(file, "sonde.epoch_calls", &read.epoch_calls)) {
        read.epoch_calls = 0;
    }
    if (!read_count(file, "sonde.replication_factor", &read.replicas)) {
        read.replicas = 1;
    }
    if (!read_count(file, "sonde.ranks", &read.ranks)) {
        read.ranks = 1;
    }
    read.dtype = read_dtype(file);
    *info = read;
    return SONDE_OK;
}

sonde_err sonde_nn_checkpoint_describe(const char *path, sonde_nn_checkpoint_info *info,
                                       sonde_diag *diag)
{
    sonde_safetensors *file = NULL;
    SONDE__TRY(sonde_safetensors_open(path, &file, diag));
    const sonde_err err = read_info(file, path, info, diag);
    sonde_safetensors_destroy(file);
    return err;
}

/* --- loading ------------------------------------------------------------------------ */

/* Whether the file has everything, in the right shapes, for the same optimizer. */
static sonde_err check(const sonde_nn_session *session, const sonde_safetensors *file,
                       const char *path, const sonde_named_view *named, size_t count,
                       int64_t *step, sonde_diag *diag)
{
    const char *optimizer = sonde_safetensors_metadata(file, "sonde.optimizer");
    sonde_nn_checkpoint_info info;
    SONDE__TRY(read_info(file, path, &info, diag));
    if (session->training && strcmp(optimizer, optimizer_name(session)) != 0) {
        return sonde__fail(diag, SONDE_EINVAL, path, optimizer_name(session),
                           "it was made with optimizer %s", optimizer);
    }
    *step = info.step;
    return sonde__graph_check_stored(file, path, named, count, false, diag);
}

sonde_err sonde_nn_session_load(sonde_nn_session *session, const char *path,
                                sonde_diag *diag)
{
    sonde_safetensors *file = NULL;
    sonde_named_view *named = NULL;
    size_t count = 0;
    int64_t step = 0;
    sonde_err err = SONDE_OK;
    SONDE__TRY(sonde__graph_expect(path, "path", diag));
    SONDE__TRY(sonde__session_ready(session, diag));
    SONDE__TRY(list(session, &named, &count, diag));
    SONDE__TRY_GO(sonde_safetensors_open(path, &file, diag));
    SONDE__TRY_GO(check(session, file, path, named, count, &step, diag));
    for (size_t i = 0; i < count; i++) {
        SONDE__TRY_GO(sonde_view_copy(&named[i].view,
                                      sonde_safetensors_find(file, named[i].name), diag));
    }
    session->step = step;
error:
    sonde_safetensors_destroy(file);
    sonde__free(named);
    return err;
}

/* === from session to session ======================================================= */

/*
 * The optimizer's state from one session of a model to the next, in memory.
 */

/* The state with a name that outlives a step; NULL: there is none. */
static const sonde__plan_state *find_state(const sonde_nn_session *session,
                                           const char *name)
{
    const sonde__plan *plan = &session->plan;

    for (size_t i = 0; i < plan->state_count; i++) {
        if (!plan->states[i].accumulator && strcmp(plan->states[i].name, name) == 0) {
            return &plan->states[i];
        }
    }
    return NULL;
}

/* Whether every state of `next` is one of `last`, and the other way round. */
static sonde_err check_states(const sonde_nn_session *next, const sonde_nn_session *last,
                              sonde_diag *diag)
{
    for (size_t i = 0; i < next->plan.state_count; i++) {
        const sonde__plan_state *state = &next->plan.states[i];

        if (!state->accumulator && find_state(last, state->name) == NULL) {
            return sonde__fail(
                diag, SONDE_EINVAL, "session",
                "the same optimizer, with the same numbers fixed by compile",
                "the other session has no '%s'", state->name);
        }
    }
    return SONDE_OK;
}

static sonde_err check_pair(const sonde_nn_session *session, const sonde_nn_session *last,
                            sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (!session->training || !last->training) {
        return sonde__fail(diag, SONDE_EINVAL, "session", "two sessions for training",
                           "a session for inference");
    }
    if (!last->compiled) {
        return sonde__fail(diag, SONDE_ESTATE, "session",
                           "a call of compile or run before",
                           "the other session has not been compiled");
    }
    if (session->model != last->model || session == last) {
        return sonde__fail(diag, SONDE_EINVAL, "session", "two sessions of one model",
                           session == last ? "one session" : "two models");
    }
    if (session->optimizer.kind != last->optimizer.kind) {
        return sonde__fail(diag, SONDE_EINVAL, "session",
                           sonde_nn_optimizer_name(last->optimizer.kind), "optimizer %s",
                           sonde_nn_optimizer_name(session->optimizer.kind));
    }
    err = check_states(session, last, diag);
    return err == SONDE_OK ? check_states(last, session, diag) : err;
}

sonde_err sonde_nn_session_carry(sonde_nn_session *session, const sonde_nn_session *last,
                                 sonde_diag *diag)
{
    SONDE__NEEDS(diag, session, last);
    SONDE__TRY(sonde__session_ready(session, diag));
    SONDE__TRY(check_pair(session, last, diag));
    for (size_t i = 0; i < session->plan.state_count; i++) {
        const sonde__plan_state *state = &session->plan.states[i];
        const sonde__plan_state *found =
            state->accumulator ? NULL : find_state(last, state->name);

        if (found != NULL) {
            memcpy(state->data, found->data,
                   (size_t)sonde__op_shape_count(&state->shape) * sizeof *state->data);
        }
    }
    session->step = last->step;
    return SONDE_OK;
}
