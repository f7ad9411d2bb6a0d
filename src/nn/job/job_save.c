/*
 * job_save.c - jobs in plans: a plan's text is its job, all options with their values, and
 * its model is the plan's.
 *
 *     model: {saved: fashion_cnn, target: 0, positions: [], inputs: [left, right], axis: 1,
 *             classes: 10}
 *     data: ...
 *
 * A job with tokens also has there the text of its tokenizer.json, as `tokenizer`. The
 * section record is left out, since its run exists already.
 */
#include "base/fail.h"
#include "nn/job/job.h"

#include <sonde/nn/plan.h>
#include <sonde/nn/tokenizer.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In quotes, as JSON has them. */
static void write_text(FILE *stream, const char *text)
{
    (void)fputc('"', stream);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            (void)fprintf(stream, "\\%c", *text);
        } else if ((unsigned char)*text < 0x20) {
            (void)fprintf(stream, "\\u%04x", (unsigned)(unsigned char)*text);
        } else {
            (void)fputc(*text, stream);
        }
    }
    (void)fputc('"', stream);
}

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
    for (size_t i = 0; info->input_count > 1 && i < info->input_count; i++) {
        (void)fputs(i == 0 ? "  inputs: [" : ", ", stream);
        write_text(stream, info->inputs[i].name);
        (void)fputs(i + 1 == info->input_count ? "]\n" : "", stream);
    }
    (void)fprintf(stream, "  axis: %d\n  classes: %" PRId64 "\n", info->class_axis,
                  info->classes);
}

/* The tokenizer as a text, so that a plan needs neither its file nor the text of which it
 * was learnt. */
static sonde_err write_tokenizer(FILE *stream, const sonde_nn_job *job, sonde_diag *diag)
{
    const sonde_nn_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t size = 0;
    sonde_err err = sonde_nn_job_tokenizer(job, &tokenizer, diag);

    if (err != SONDE_OK || tokenizer == NULL) {
        return err;
    }
    FILE *printed = open_memstream(&text, &size);
    err = printed != NULL ? sonde_nn_tokenizer_print(tokenizer, printed, diag)
                          : sonde__fail_nomem(diag, "a job");
    if (printed != NULL && fclose(printed) != 0 && err == SONDE_OK) {
        err = sonde__fail_nomem(diag, "a job");
    }
    if (err == SONDE_OK) {
        (void)fputs("  tokenizer: ", stream);
        write_text(stream, text);
        (void)fputc('\n', stream);
    }
    free(text);
    return err;
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
    size_t size = 0;
    sonde_err err = print_job(job, &printed, diag);

    if (err != SONDE_OK) {
        return err;
    }
    FILE *stream = open_memstream(text, &size);
    if (stream == NULL) {
        free(printed);
        return sonde__fail_nomem(diag, "a job");
    }
    write_model(stream, &job->info);
    err = write_tokenizer(stream, job, diag);
    const char *rest = strchr(printed, '\n');
    (void)fputs(rest != NULL ? rest + 1 : "", stream);
    free(printed);
    if (fclose(stream) != 0 && err == SONDE_OK) {
        err = sonde__fail_nomem(diag, "a job");
    }
    if (err != SONDE_OK) {
        free(*text);
    }
    return err;
}

sonde_err sonde_nn_job_save_plan(const sonde_nn_job *job, sonde_nn_session *session,
                                 const char *path, bool weights, sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, session, path);
    char *text = NULL;
    sonde_err err = SONDE_OK;

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
