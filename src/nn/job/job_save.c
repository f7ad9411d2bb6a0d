/*
 * job_save.c - jobs in plans: a plan's text is its job, all options with their values, and
 * its model is the plan's.
 *
 *     model: {saved: fashion_cnn, target: 0, positions: [], axis: 1, classes: 10}
 *     data: ...
 *
 * The section record is left out, since its run exists already.
 */
#include "base/fail.h"
#include "nn/job/job.h"

#include <sonde/nn/plan.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_model(FILE *stream, const sonde_nn_job_info *info)
{
    (void)fprintf(stream, "model:\n  saved: \"%s\"\n  target: %d\n", info->model_name,
                  (int)info->target);
    if (info->target_rank > 0) {
        (void)fputs("  positions: [", stream);
        for (int i = 0; i < info->target_rank; i++) {
            (void)fprintf(stream, "%s%" PRId64, i > 0 ? ", " : "", info->target_shape[i]);
        }
        (void)fputs("]\n", stream);
    }
    (void)fprintf(stream, "  axis: %d\n  classes: %" PRId64 "\n", info->class_axis,
                  info->classes);
}

/* What sonde_nn_job_print prints of a job without the section record; to be freed. */
static sonde_err print_job(const sonde_nn_job *job, char **text, sonde_diag *diag)
{
    sonde_nn_job bare = *job;
    size_t size = 0;
    FILE *stream = open_memstream(text, &size);
    sonde_err err = SONDE_OK;

    if (stream == NULL) {
        return sonde__fail_nomem(diag, "a job");
    }
    bare.info.record = (sonde_nn_job_record){.path = "", .config = ""};
    err = sonde_nn_job_print(&bare, false, stream, diag);
    if (fclose(stream) != 0 && err == SONDE_OK) {
        err = sonde__fail_nomem(diag, "a job");
    }
    if (err != SONDE_OK) {
        free(*text);
    }
    return err;
}

/* The same with the plan's model, instead of the first line, which is the job's. */
static sonde_err write_job(const sonde_nn_job *job, char **text, sonde_diag *diag)
{
    char *printed = NULL;
    const char *rest = NULL;
    size_t size = 0;
    FILE *stream = NULL;
    sonde_err err = print_job(job, &printed, diag);

    if (err != SONDE_OK) {
        return err;
    }
    stream = open_memstream(text, &size);
    if (stream == NULL) {
        free(printed);
        return sonde__fail_nomem(diag, "a job");
    }
    write_model(stream, &job->info);
    rest = strchr(printed, '\n');
    (void)fputs(rest != NULL ? rest + 1 : "", stream);
    free(printed);
    if (fclose(stream) != 0) {
        free(*text);
        return sonde__fail_nomem(diag, "a job");
    }
    return SONDE_OK;
}

sonde_err sonde_nn_job_save_plan(const sonde_nn_job *job, sonde_nn_session *session,
                                 const char *path, bool weights, sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, session, path);
    char *text = NULL;
    sonde_err err = SONDE_OK;

    if (job->info.input_count > 1) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, path, "a model of one input",
                           "the job has %zu inputs", job->info.input_count);
    }
    if (!weights && sonde_nn_job_is_balanced(job)) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, path,
                           "a list of weights, or weights of a training",
                           "the job's loss takes its weights from the training set");
    }
    err = write_job(job, &text, diag);
    if (err == SONDE_OK) {
        const sonde_nn_plan_options options = {
            .size = sizeof options, .weights = weights, .text = text};

        err = sonde_nn_plan_save(session, path, &options, diag);
        free(text);
    }
    return err;
}
