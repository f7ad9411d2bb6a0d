/*
 * cli_job.c - jobs and data for the commands that need them.
 */
#include "cli/cli_job.h"
#include "base/fail.h"

#include <sonde/nn/fetch.h>
#include <sonde/nn/synth.h>

#include <sonde/nn/option.h>

#include <string.h>
#include <unistd.h>

static bool ends_with(const char *text, const char *ending)
{
    const size_t length = strlen(text), tail = strlen(ending);

    return length >= tail && strcmp(text + length - tail, ending) == 0;
}

static bool is_job(const char *text)
{
    return ends_with(text, ".yaml") || ends_with(text, ".yml") ||
           ends_with(text, ".onnx") || ends_with(text, ".plan");
}

bool cli_job_is_plan(const char *argument)
{
    return ends_with(argument, ".plan");
}

const char *cli_job_built_in(const char *text)
{
    const char *name = NULL;

    for (size_t i = 0; (name = sonde_nn_job_builtin_name(i)) != NULL; i++) {
        if (strcmp(name, text != NULL ? text : "fashion_cnn") == 0) {
            return name;
        }
    }
    return NULL;
}

sonde_err cli_job_check_file(const char *argument, const char *what, sonde_diag *diag)
{
    char expected[160];

    if (cli_job_built_in(argument) == NULL || access(argument, F_OK) == 0) {
        return SONDE_OK;
    }
    (void)snprintf(expected, sizeof expected, "%s; --model %.60s names the model", what,
                   argument);
    return sonde_diag_set(diag, SONDE_EINVAL, argument, expected, "is a model");
}

sonde_err cli_job_open(const char *text, sonde_nn_job **out, sonde_diag *diag)
{
    if (text == NULL) {
        return sonde_nn_job_builtin("fashion_cnn", out, diag);
    }
    if (ends_with(text, ".safetensors")) {
        return sonde_diag_set(diag, SONDE_EINVAL, text,
                              "a model; --weights names weights", "is a file of weights");
    }
    if (is_job(text) || ends_with(text, ".json") ||
        (strchr(text, '/') != NULL && access(text, F_OK) == 0)) {
        return sonde_nn_job_load(text, out, diag);
    }
    return sonde_nn_job_builtin(text, out, diag);
}

sonde_err cli_weights_load(const sonde_nn_job *job, sonde_nn_model *model,
                           const char *path, const char *text, sonde_diag *diag)
{
    const char *file = path != NULL ? path : "sonde-out/model.safetensors";
    sonde_err err = SONDE_OK;

    if (path == NULL &&
        ((text != NULL && ends_with(text, ".onnx")) || sonde_nn_job_has_weights(job))) {
        return SONDE_OK; /* it has its own */
    }
    err = sonde_nn_model_load(model, file, diag);
    if ((err == SONDE_ENOTFOUND && access(file, F_OK) == 0) || err == SONDE_ESHAPE) {
        char other[64] = "weights";

        if (diag->expected[0] != '\0') {
            (void)snprintf(other, sizeof other, "%.60s", diag->expected);
        }
        (void)snprintf(diag->expected, sizeof diag->expected, "%s of the model %.60s",
                       other, text != NULL ? text : "fashion_cnn");
    }
    return err;
}

/* --- data ------------------------------------------------------------------------- */

static bool on_fetch(void *user, const char *file, uint64_t done, uint64_t total)
{
    cli_progress *progress = user;

    progress->total = (int64_t)total;
    cli_progress_update(progress, (int64_t)done, file);
    return !cli_interrupted();
}

static sonde_err fetch(const char *name, const char *dir, bool quiet, sonde_diag *diag)
{
    cli_progress progress;
    const sonde_nn_fetch_options options = {
        .size = sizeof options, .progress = on_fetch, .user = &progress};
    sonde_err err = SONDE_OK;

    cli_progress_begin(&progress, "fetching", "B", 0, quiet);
    err = sonde_nn_data_fetch(name, dir, &options, diag);
    cli_progress_end(&progress);
    return err;
}

static const char stand_in[] = "fashion-synth";

/* The stand-in, in the cache: drawn once. */
static sonde_err draw_stand_in(const char *name, sonde_diag *diag)
{
    const sonde_nn_synth_options synth = {.size = sizeof synth, .seed = 0};
    sonde_nn_dataset *test = NULL;
    char path[4096];
    sonde_err err = sonde_nn_data_cache(name, path, sizeof path, diag);

    /* the test set is written last */
    if (err != SONDE_OK) {
        return err;
    }
    if (sonde_nn_dataset_open(
            path, SONDE_OPTIONS(sonde_nn_dataset, .name = name, .split = SONDE_NN_TEST),
            &test, NULL) == SONDE_OK) {
        sonde_nn_dataset_destroy(test);
        return SONDE_OK;
    }
    return sonde_nn_synth(path, &synth, diag);
}

/* Fetched into the cache, or drawn there: then the job names the stand-in, for both
 * splits. */
static sonde_err provide(sonde_nn_job_info *info, bool quiet, sonde_diag *diag)
{
    const char *name = info->data_name;
    sonde_diag fetching = {0};
    char path[4096], line[SONDE_DIAG_LINE];
    sonde_err err = SONDE_OK;

    if (strcmp(name, stand_in) == 0) {
        return draw_stand_in(name, diag);
    }
    err = sonde_nn_data_cache(name, path, sizeof path, diag);
    if (err != SONDE_OK || fetch(name, path, quiet, &fetching) == SONDE_OK) {
        return err;
    }
    if (fetching.err == SONDE_EINTERRUPTED) {
        *diag = fetching;
        return SONDE_EINTERRUPTED;
    }
    cli_warn("%s cannot be fetched (%s); a drawn stand-in is used, '%s': "
             "accuracy on it does not apply to %s",
             name, sonde_diag_line(&fetching, line, sizeof line), stand_in, name);
    info->data_name = stand_in;
    return draw_stand_in(stand_in, diag);
}

sonde_err cli_data_open(sonde_nn_job *job, sonde_nn_split split, bool quiet,
                        sonde_nn_dataset **out, sonde_diag *diag)
{
    sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    sonde_err err = SONDE_OK;

    if (strcmp(info->data_path, "auto") == 0) {
        info->data_path = "";
    }
    err = sonde_nn_job_open_data(job, split, out, diag);
    if (err != SONDE_ENOTFOUND || info->data_path[0] != '\0' ||
        sonde_nn_dataset_class_names(info->data_name) == NULL) {
        return err; /* an unknown name is not fetched */
    }
    SONDE__TRY(provide(info, quiet, diag));
    return sonde_nn_job_open_data(job, split, out, diag);
}

sonde_err cli_tokenizer_find(sonde_nn_job *job, const char *weights,
                             char path[CLI_TOKENIZER_PATH], sonde_diag *diag)
{
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    const char *file = weights != NULL ? weights : "sonde-out/model.safetensors";
    const char *slash = strrchr(file, '/');
    const int folder = slash != NULL ? (int)(slash - file) + 1 : 0;
    const int length =
        snprintf(path, CLI_TOKENIZER_PATH, "%.*stokenizer.json", folder, file);

    if (info->input_dtype != SONDE_I64 || info->tokenizer[0] != '\0' || length < 0 ||
        length >= CLI_TOKENIZER_PATH || access(path, R_OK) != 0) {
        return SONDE_OK;
    }
    return sonde_nn_job_set(job, "tokenizer", path, diag);
}
