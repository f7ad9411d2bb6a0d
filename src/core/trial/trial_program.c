/*
 * trial_program.c - the programs of a run: the values of the tensors program/<mode>.
 */
#include <sonde/trial.h>

#include "base/fail.h"

#include <stdio.h>

/* The last of the steps, ascending, that is no later than `step`; -1: there is none. */
static int64_t last_until(const int64_t *steps, size_t count, int64_t step)
{
    while (count > 0 && step >= 0 && steps[count - 1] > step) {
        count--;
    }
    return count > 0 ? steps[count - 1] : -1;
}

static sonde_err fail_none(sonde_mode mode, sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_ENOTFOUND, "program",
                       "a run whose writer described its steps",
                       "no program of mode %s up to this step", sonde_mode_name(mode));
}

sonde_err sonde_trial_program(sonde_trial *trial, sonde_mode mode, int64_t step,
                              sonde_program **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial, out);
    sonde_trial_at at = {.mode = mode, .worker = -1};
    int64_t *steps = NULL;
    size_t count = 0;
    sonde_view view;
    char name[32];
    uint32_t id = 0;

    if ((unsigned)mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, "program", "a sonde_mode", "mode %d",
                           (int)mode);
    }
    (void)snprintf(name, sizeof name, "program/%s", sonde_mode_name(mode));
    if (sonde_catalogue_find(sonde_trial_catalogue(trial), name, &id, NULL) != SONDE_OK) {
        return fail_none(mode, diag);
    }
    SONDE__TRY(
        sonde_trial_tensor_steps(trial, id, mode, SONDE_HOW_RAW, &steps, &count, diag));
    at.step = last_until(steps, count, step);
    sonde_release(steps);
    if (count == 0) {
        return sonde__fail(
            diag, SONDE_EFORMAT, name,
            "a run whose programs can be read; 'sonde verify' lists damage",
            "the run declares it, but has no value of it");
    }
    if (at.step < 0) {
        return fail_none(mode, diag);
    }
    SONDE__TRY(sonde_trial_value(trial, id, &at, &view, diag));
    return sonde_program_read(view.data, (size_t)sonde_view_count(&view), out, diag);
}
