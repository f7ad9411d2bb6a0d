/*
 * hook_program.c - a hook records programs: once for each that begins to hold, whatever
 * its configuration saves.
 */
#include "capture/hook_state.h"
#include "program/program_parts.h"

#include "base/fail.h"

#include <inttypes.h>
#include <stdio.h>

/* Declares the tensor of a mode's programs, with the shape of its first text. */
static sonde_err declare(sonde_hook *hook, const char *name, size_t length, uint32_t *id,
                         sonde_diag *diag)
{
    static const sonde_call_shape shape = {1, 1, 1};
    const sonde__observe_member nothing = {0};
    const sonde_tensor_info info = {.name = name,
                                    .role = SONDE_ROLE_PROGRAM,
                                    .dtype = SONDE_U8,
                                    .rank = 1,
                                    .shape = {(int64_t)length},
                                    .same_as = SONDE_NO_TENSOR};

    *id = sonde__catalogue_named(hook->catalogue, name);
    if (*id == SONDE_NO_TENSOR) {
        SONDE__TRY(sonde__hook_add_tensor(hook, &info, &nothing, id, diag));
    }
    if (sonde_catalogue_info(hook->catalogue, *id)->role != SONDE_ROLE_PROGRAM) {
        return sonde__fail(diag, SONDE_EEXIST, name, "a name for programs alone",
                           "another tensor has it");
    }
    return hook->sink->sink.prepare(&hook->sink->sink, *id,
                                    sonde_catalogue_info(hook->catalogue, *id),
                                    SONDE_HOW_RAW, &shape, diag);
}

sonde_err sonde__hook_program(sonde_hook *hook, const sonde_coordinate *at,
                              uint64_t digest, const char *text, size_t length,
                              sonde_diag *diag)
{
    const int64_t size = (int64_t)length;
    const sonde_view view = sonde_view_of(SONDE_U8, 1, &size, (void *)(uintptr_t)text);
    char name[32];
    uint32_t id = 0;

    if (hook->programs[at->mode] == digest) {
        return SONDE_OK;
    }
    (void)snprintf(name, sizeof name, "program/%s", sonde_mode_name(at->mode));
    SONDE__TRY(declare(hook, name, length, &id, diag));
    if (sonde__record_sink_done(hook->sink, id, at) != 0) {
        return sonde__fail(diag, SONDE_ESTATE, name, "one for each step",
                           "a second program of step %" PRId64, at->mode_step);
    }
    const sonde_observation observation = {.id = id,
                                           .info =
                                               sonde_catalogue_info(hook->catalogue, id),
                                           .at = *at,
                                           .how = SONDE_HOW_RAW,
                                           .view = &view};
    hook->sink->sink.put(&hook->sink->sink, &observation);
    hook->programs[at->mode] = digest;
    return SONDE_OK;
}

sonde_err sonde_hook_program(sonde_hook *hook, const sonde_program *program,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, hook, program);
    sonde_program *copy = NULL;
    sonde_text text = {0};
    sonde_err err = SONDE_OK;

    if (!hook->open || !hook->stepping) {
        return sonde__fail(diag, SONDE_ESTATE, "hook: a program", "a call in a step",
                           "no step is on");
    }
    if (program->mode != hook->at.mode) {
        return sonde__fail(diag, SONDE_EINVAL, "hook: a program",
                           sonde_mode_name(hook->at.mode), "a program of mode %s",
                           sonde_mode_name(program->mode));
    }
    err = sonde__program_take(program, &copy, &text, diag);
    if (err == SONDE_OK) {
        err = sonde__hook_program(hook, &hook->at, copy->digest, text.data, text.length,
                                  diag);
    }
    sonde_program_destroy(copy);
    sonde_text_fini(&text);
    return err;
}
