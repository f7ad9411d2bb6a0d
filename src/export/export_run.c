/*
 * export_run.c - exports: what is asked for, and who writes it.
 */
#include "export/export_file.h"
#include "base/fail.h"
#include "base/macros.h"
#include "export/export_walk.h"

#include <string.h>
#include <strings.h>

static const char *const kind_names[] = {
    [SONDE_EXPORT_TENSORBOARD] = "tensorboard",
    [SONDE_EXPORT_NPZ] = "npz",
    [SONDE_EXPORT_SAFETENSORS] = "safetensors",
    [SONDE_EXPORT_CSV] = "csv",
    [SONDE_EXPORT_JSONL] = "jsonl",
};

sonde_err sonde_export_kind_parse(const char *text, sonde_export_kind *kind,
                                  sonde_diag *diag)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(kind_names); i++) {
        if (strcasecmp(text, kind_names[i]) == 0) {
            *kind = (sonde_export_kind)i;
            return SONDE_OK;
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, NULL,
                       "tensorboard, npz, safetensors, csv or jsonl",
                       "unknown format '%s'", text);
}

sonde_export_options sonde_export_options_default(void)
{
    return (sonde_export_options){.mode = SONDE_MODE_GLOBAL, .worker = -1};
}

/* --- what the exports share ------------------------------------------------------- */

sonde_err sonde__export_check(const sonde_trial *trial,
                              const sonde_export_options *options, sonde_diag *diag)
{
    const uint32_t known = sonde_catalogue_count(sonde_trial_catalogue(trial));

    if ((unsigned)options->mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, "mode", "a mode", "%d",
                           (int)options->mode);
    }
    if (options->begin < 0 || options->end < 0 ||
        (options->end != 0 && options->end <= options->begin)) {
        return sonde__fail(diag, SONDE_EINVAL, "steps", "0 <= first < end",
                           "%lld to %lld", (long long)options->begin,
                           (long long)options->end);
    }
    if (options->elements < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "elements", "0 or more", "%lld",
                           (long long)options->elements);
    }
    for (size_t i = 0; options->ids != NULL && i < options->id_count; i++) {
        if (options->ids[i] >= known) {
            return sonde__fail(diag, SONDE_ERANGE, "tensors", NULL,
                               "id %u in a catalogue of %u", options->ids[i], known);
        }
    }
    return SONDE_OK;
}

sonde_err sonde__export_go_on(const sonde_export_options *options, uint64_t done,
                              uint64_t total, sonde_diag *diag)
{
    if (options->progress == NULL || options->progress(options->user, done, total)) {
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_EINTERRUPTED, "export", NULL, "stopped");
}

bool sonde__export_left_out(sonde__export *work, sonde_err err, const sonde_diag *why)
{
    char line[SONDE_DIAG_LINE];

    if (err != SONDE_EFORMAT && err != SONDE_EUNSUPPORTED && err != SONDE_EIO) {
        return false;
    }
    work->report->left_out++;
    if (work->options->told != NULL) {
        work->options->told(work->options->user, sonde_diag_line(why, line, sizeof line));
    }
    return true;
}

bool sonde__export_has_step(const sonde_export_options *options,
                            const sonde_coordinate *at)
{
    const bool global = options->mode == SONDE_MODE_GLOBAL;
    const int64_t step = global ? at->global_step : at->mode_step;

    return (global || at->mode == options->mode) && step >= options->begin &&
           (options->end == 0 || step < options->end);
}

/* --- the call --------------------------------------------------------------------- */

static sonde_err write_kind(sonde__export *work, sonde_export_kind kind, const char *path,
                            sonde_diag *diag)
{
    switch (kind) {
    case SONDE_EXPORT_TENSORBOARD:
        return sonde__export_tensorboard(work, path, diag);
    case SONDE_EXPORT_NPZ:
        return sonde__export_npz(work, path, diag);
    case SONDE_EXPORT_SAFETENSORS:
        return sonde__export_safetensors(work, path, diag);
    case SONDE_EXPORT_CSV:
    case SONDE_EXPORT_JSONL:
        return work->options->values ? sonde__export_elements(work, kind, path, diag)
                                     : sonde__export_rows(work, kind, path, diag);
    }
    return sonde__fail(diag, SONDE_EINVAL, "kind", "a kind of export", "%d", (int)kind);
}

sonde_err sonde_trial_export(sonde_trial *trial, sonde_export_kind kind, const char *path,
                             const sonde_export_options *options,
                             sonde_export_report *report, sonde_diag *diag)
{
    const sonde_export_options usual = sonde_export_options_default();
    sonde_export_report counted = {0};
    sonde__export work = {.trial = trial,
                          .options = options != NULL ? options : &usual,
                          .report = &counted};
    sonde_run_info info;
    sonde_err err = sonde__export_out_free_place(path, diag);

    if (err == SONDE_OK) {
        err = sonde__export_check(trial, work.options, diag);
    }
    if (err == SONDE_OK && work.options->values && kind != SONDE_EXPORT_CSV &&
        kind != SONDE_EXPORT_JSONL) {
        err = sonde__fail(diag, SONDE_EINVAL, "values", "csv or jsonl",
                          "values in place of statistics, which only those have");
    }
    if (err == SONDE_OK) {
        sonde_trial_describe(trial, &info);
        work.many_workers = info.world > 1 || info.workers > 1;
        err = write_kind(&work, kind, path, diag);
    }
    if (err == SONDE_OK && report != NULL) {
        *report = counted;
    }
    return err;
}
