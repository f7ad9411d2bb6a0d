/*
 * checkpoint.c - parameters, optimiser state and step counter in one safetensors file.
 *
 * Parameters have their own names; state is named after the value that an update makes
 * (Accl1___conv1.weight). Metadata: sonde.step, sonde.optimizer. Random numbers are pure
 * functions of the seed and the step, so nothing else is needed to resume bit for bit.
 * Accumulators are not saved: they are zero between steps.
 */
#include "nn/run/session_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/safetensors.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything a checkpoint holds, as views of the session's own memory. */
static size_t collect(const sonde_nn_session *session, sonde_named_view *named)
{
    const sonde_nn_model *model = session->model;
    size_t count = 0;

    for (size_t i = 0; i < model->param_count; i++) {
        named[count].name = sonde_nn_parameter_name(model, i);
        named[count++].view = sonde_nn_parameter_view(model, i);
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
    const sonde_err err = sonde__graph_expect(session, "session", diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (!session->compiled) {
        return sonde__fail(diag, SONDE_ESTATE, "session",
                           "a call of compile or run before", "it has not been compiled");
    }
    *named = sonde__calloc(session->model->param_count + session->plan.state_count,
                           sizeof **named);
    if (*named == NULL) {
        return sonde__fail_nomem(diag, "a checkpoint");
    }
    *count = collect(session, *named);
    return SONDE_OK;
}

static const char *optimizer_name(const sonde_nn_session *session)
{
    return session != NULL && session->training
               ? sonde_nn_optimizer_name(session->optimizer.kind)
               : "none";
}

sonde_err sonde_nn_session_save(const sonde_nn_session *session, const char *path,
                                sonde_diag *diag)
{
    char step[32];
    const sonde_metadata metadata[] = {{"format", "pt"},
                                       {"sonde.step", step},
                                       {"sonde.optimizer", optimizer_name(session)}};
    sonde_named_view *named = NULL;
    size_t count = 0;
    sonde_err err = sonde__graph_expect(path, "path", diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = list(session, &named, &count, diag);
    if (err != SONDE_OK) {
        return err;
    }
    (void)snprintf(step, sizeof step, "%" PRId64, session->step);
    err = sonde_safetensors_write(path, named, count, metadata, SONDE_COUNT_OF(metadata),
                                  diag);
    sonde__free(named);
    return err;
}

/* Whether the file has everything, in the right shapes, for the same optimiser. */
static sonde_err check(const sonde_nn_session *session, const sonde_safetensors *file,
                       const char *path, const sonde_named_view *named, size_t count,
                       int64_t *step, sonde_diag *diag)
{
    const char *optimizer = sonde_safetensors_metadata(file, "sonde.optimizer");
    const char *text = sonde_safetensors_metadata(file, "sonde.step");
    char *end = NULL;

    if (optimizer == NULL || text == NULL) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "a file written by session save",
                           "it is no checkpoint: it lacks sonde.step or sonde.optimizer");
    }
    if (session->training && strcmp(optimizer, optimizer_name(session)) != 0) {
        return sonde__fail(diag, SONDE_EINVAL, path, optimizer_name(session),
                           "it was made with optimiser %s", optimizer);
    }
    *step = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || *step < 0) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "a count of steps",
                           "sonde.step is '%s'", text);
    }
    for (size_t i = 0; i < count; i++) {
        const sonde_view *have = sonde_safetensors_find(file, named[i].name);
        char found[96], expected[96];

        if (have == NULL) {
            return sonde__fail(diag, SONDE_ENOTFOUND, path, NULL, "it has no tensor '%s'",
                               named[i].name);
        }
        if (!sonde_view_same_shape(have, &named[i].view)) {
            (void)sonde_shape_text(have->rank, have->shape, found, sizeof found);
            (void)sonde_shape_text(named[i].view.rank, named[i].view.shape, expected,
                                   sizeof expected);
            return sonde__fail(diag, SONDE_ESHAPE, path, expected, "tensor '%s' is %s",
                               named[i].name, found);
        }
    }
    return SONDE_OK;
}

sonde_err sonde_nn_session_load(sonde_nn_session *session, const char *path,
                                sonde_diag *diag)
{
    sonde_safetensors *file = NULL;
    sonde_named_view *named = NULL;
    size_t count = 0;
    int64_t step = 0;
    sonde_err err = sonde__graph_expect(path, "path", diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__session_ready(session, diag);
    if (err != SONDE_OK) {
        return err;
    }
    err = list(session, &named, &count, diag);
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde_safetensors_open(path, &file, diag);
    if (err != SONDE_OK) {
        goto error;
    }
    err = check(session, file, path, named, count, &step, diag);
    if (err != SONDE_OK) {
        goto error;
    }
    for (size_t i = 0; i < count; i++) {
        err = sonde_view_copy(&named[i].view, sonde_safetensors_find(file, named[i].name),
                              diag);
        if (err != SONDE_OK) {
            goto error;
        }
    }
    session->step = step;
error:
    sonde_safetensors_destroy(file);
    sonde__free(named);
    return err;
}
