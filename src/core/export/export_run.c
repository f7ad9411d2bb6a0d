/*
 * export_run.c - the kinds of export, and the start of Python.
 */
#include "base/fail.h"
#include "base/options.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/python_run.h"
#include "export/export.h"

#include <sonde/text.h>

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
    const char *name;
    bool rows;   /* statistics in rows */
    bool values; /* options.values applies to it */
    bool python; /* makes it of what is written here */
} kinds[] = {
    [SONDE_EXPORT_TENSORBOARD] = {"tensorboard", .rows = true, .python = true},
    [SONDE_EXPORT_NPZ] = {"npz", .python = true},
    [SONDE_EXPORT_SAFETENSORS] = {"safetensors"},
    [SONDE_EXPORT_CSV] = {"csv", .rows = true, .values = true},
    [SONDE_EXPORT_JSONL] = {"jsonl", .rows = true, .values = true},
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

/* --- writing ---------------------------------------------------------------------- */

static sonde_err write_kind(sonde__export *work, sonde_export_kind kind, const char *path,
                            sonde_diag *diag)
{
    return !kinds[kind].rows
               ? sonde__export_safetensors(work, path, !kinds[kind].python, diag)
           : work->options->values ? sonde__export_elements(work, kind, path, diag)
                                   : sonde__export_rows(work, kind, path, diag);
}

static int remove_one(const char *path, const struct stat *status, int kind,
                      struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

static sonde_err ask(void *user, sonde_diag *diag)
{
    const sonde__export *work = user;

    return sonde__export_progress(work->options, 0, 0, diag);
}

/* Writes what Python makes the format of, in a temporary folder beside path. */
static sonde_err write_by_python(sonde__export *work, sonde_export_kind kind,
                                 const char *path, sonde_diag *diag)
{
    const sonde__python_stop stop = {.ask = ask, .user = work};
    sonde_text source = {0}, made = {0};
    char *folder = NULL;
    sonde_err err = SONDE_OK;

    SONDE__TRY(sonde__folder_beside(path, &folder, diag));
    sonde_text_format(&source, "%s/source", folder);
    sonde_text_format(&made, "%s/out", folder);
    if (source.failed || made.failed) {
        err = sonde__fail_nomem(diag, "a file name");
        goto error;
    }
    const char *const arguments[] = {kinds[kind].name, source.data, made.data, NULL};

    SONDE__TRY_GO(write_kind(work, kind, source.data, diag));
    SONDE__TRY_GO(sonde__python_run_until("exports", arguments, &stop, diag));
    SONDE__TRY_GO(ask(work, diag));
    err = sonde__publish(made.data, path, SONDE__KEEP, diag);
error:
    if (err != SONDE_OK && diag != NULL && strstr(diag->where, folder) == diag->where) {
        (void)snprintf(diag->where, sizeof diag->where, "%s", path);
    }
    (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    sonde__free(folder);
    sonde_text_fini(&source);
    sonde_text_fini(&made);
    return err;
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
    SONDE__TRY(sonde__export_check_free(path, diag));
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
    SONDE__TRY(kinds[kind].python ? write_by_python(&work, kind, path, diag)
                                  : write_kind(&work, kind, path, diag));
    if (report != NULL) {
        *report = counted;
    }
    return SONDE_OK;
}
