/*
 * export_run.c - the formats of exports, and the call. A new format is a file with its
 * writer and one row here, under its number in sonde_export_kind.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "export/export_arrays.h"
#include "export/export_board.h"
#include "export/export_file.h"
#include "export/export_text.h"
#include "export/export_walk.h"
#include "base/given.h"
#include "base/point.h"

static sonde_err write_csv(sonde__export *work, const char *path, sonde_diag *diag)
{
    return work->options->values
               ? sonde__export_elements(work, SONDE_EXPORT_CSV, path, diag)
               : sonde__export_rows(work, SONDE_EXPORT_CSV, path, diag);
}

static sonde_err write_jsonl(sonde__export *work, const char *path, sonde_diag *diag)
{
    return work->options->values
               ? sonde__export_elements(work, SONDE_EXPORT_JSONL, path, diag)
               : sonde__export_rows(work, SONDE_EXPORT_JSONL, path, diag);
}

static const struct {
    const char *name;
    sonde_err (*write)(sonde__export *work, const char *path, sonde_diag *diag);
    bool values; /* options.values applies to it */
} kinds[] = {
    [SONDE_EXPORT_TENSORBOARD] = {"tensorboard", sonde__export_tensorboard, false},
    [SONDE_EXPORT_NPZ] = {"npz", sonde__export_npz, false},
    [SONDE_EXPORT_SAFETENSORS] = {"safetensors", sonde__export_safetensors, false},
    [SONDE_EXPORT_CSV] = {"csv", write_csv, true},
    [SONDE_EXPORT_JSONL] = {"jsonl", write_jsonl, true},
};

sonde_err sonde_export_kind_parse(const char *text, sonde_export_kind *kind,
                                  sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, kind);
    for (size_t i = 0; i < SONDE_COUNT_OF(kinds); i++) {
        if (sonde__strcasecmp(text, kinds[i].name) == 0) {
            *kind = (sonde_export_kind)i;
            return SONDE_OK;
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, NULL, SONDE_EXPORT_NAMES,
                       "unknown format '%s'", text);
}

sonde_err sonde_trial_export(sonde_trial *trial, sonde_export_kind kind, const char *path,
                             const sonde_export_options *options,
                             sonde_export_report *report, sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial, path);
    sonde_export_options taken = sonde_export_options_default();
    sonde_export_report counted = {0};
    sonde__export work = {.trial = trial, .options = &taken, .report = &counted};
    sonde_run_info info;

    if (options != NULL) {
        SONDE__TAKE(sonde_export_options, &taken, options, diag);
    }
    SONDE__TRY(sonde__export_out_free_place(path, diag));
    SONDE__TRY(sonde__export_check(trial, work.options, diag));
    if ((size_t)kind >= SONDE_COUNT_OF(kinds)) {
        return sonde__fail(diag, SONDE_EINVAL, "kind", "a kind of export", "%d",
                           (int)kind);
    }
    if (work.options->values && !kinds[kind].values) {
        return sonde__fail(diag, SONDE_EINVAL, "values", "csv or jsonl",
                           "values in place of statistics, which only those have");
    }
    sonde_trial_describe(trial, &info);
    work.many_workers = info.world > 1 || info.workers > 1;
    SONDE__TRY(kinds[kind].write(&work, path, diag));
    if (report != NULL) {
        *report = counted;
    }
    return SONDE_OK;
}
