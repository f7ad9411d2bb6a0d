/*
 * resume.c - where a command that trains goes on.
 */
#include "cli/cli_resume.h"

#include <sonde/safetensors.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The step in a checkpoint's metadata. That everything else is there is seen when it is loaded. */
static sonde_err read_step(const char *path, int64_t *step, sonde_diag *diag)
{
    sonde_safetensors *file = NULL;
    const char *text = NULL;
    char *end = NULL;
    sonde_err err = sonde_safetensors_open(path, &file, diag);

    if (err != SONDE_OK) {
        return err;
    }
    text = sonde_safetensors_metadata(file, "sonde.step");
    *step = text != NULL ? strtoll(text, &end, 10) : -1;
    if (text == NULL || end == text || *end != '\0' || *step < 0) {
        *diag = (sonde_diag){.err = SONDE_EFORMAT,
                             .found = "it is no checkpoint: it lacks sonde.step"};
        (void)snprintf(diag->where, sizeof diag->where, "%.255s", path);
        (void)snprintf(diag->expected, sizeof diag->expected,
                       "a checkpoint.safetensors of sonde train");
        err = SONDE_EFORMAT;
    }
    sonde_safetensors_destroy(file);
    return err;
}

sonde_err cli_resume_find(const char *text, const char *out, cli_resume *resume,
                          sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    *resume = (cli_resume){.given = text != NULL};
    if (text == NULL) {
        return SONDE_OK;
    }
    if (text[0] != '\0') {
        (void)snprintf(resume->path, sizeof resume->path, "%s", text);
    } else {
        err = cli_join(out, "checkpoint.safetensors", resume->path, sizeof resume->path,
                       diag);
        if (err == SONDE_OK && access(resume->path, F_OK) != 0) {
            cli_warn("%s: there is no checkpoint yet; training begins at its first step",
                     resume->path);
            resume->path[0] = '\0';
        }
    }
    return err == SONDE_OK && resume->path[0] != '\0'
               ? read_step(resume->path, &resume->step, diag)
               : err;
}

cli_record cli_resume_record(const cli_record *asked, const cli_resume *resume)
{
    cli_record record = *asked;

    record.resume = resume->given ? resume : NULL;
    return record;
}
