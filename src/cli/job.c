/*
 * job.c - jobs, data and evaluation for the commands that need them.
 */
#include "cli/job.h"

#include <sonde/nn/fetch.h>
#include <sonde/nn/synth.h>
#include <sonde/plot.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool ends_with(const char *text, const char *ending)
{
    const size_t length = strlen(text), tail = strlen(ending);

    return length >= tail && strcmp(text + length - tail, ending) == 0;
}

sonde_err cli_job_open(const char *text, sonde_nn_job **out, sonde_diag *diag)
{
    if (text == NULL) {
        return sonde_nn_job_builtin("fashion_cnn", out, diag);
    }
    if (ends_with(text, ".yaml") || ends_with(text, ".yml") || ends_with(text, ".json") ||
        (strchr(text, '/') != NULL && access(text, F_OK) == 0)) {
        return sonde_nn_job_load(text, out, diag);
    }
    return sonde_nn_job_builtin(text, out, diag);
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
    const sonde_nn_fetch_options options = {.progress = on_fetch, .user = &progress};
    sonde_err err = SONDE_OK;

    cli_progress_begin(&progress, "fetching", "B", 0, quiet);
    err = sonde_nn_data_fetch(name, dir, &options, diag);
    cli_progress_end(&progress);
    return err;
}

/* The stand-in, in the cache: drawn once. */
static sonde_err draw_stand_in(const char *name, sonde_diag *diag)
{
    const sonde_nn_synth_options synth = {.seed = 0};
    sonde_nn_dataset *test = NULL;
    char path[4096];
    sonde_err err = sonde_nn_data_cache(name, path, sizeof path, diag);

    /* the test set is written last */
    if (err == SONDE_OK &&
        sonde_nn_dataset_open_named(name, SONDE_NN_TEST, path, &test, NULL) == SONDE_OK) {
        sonde_nn_dataset_destroy(test);
        return SONDE_OK;
    }
    return err == SONDE_OK ? sonde_nn_synth(path, &synth, diag) : err;
}

/* Fetched into the cache, or drawn there; *name is then what to open. What came of it holds
 * for both splits of a run. */
static sonde_err provide(const char **name, bool quiet, sonde_diag *diag)
{
    static bool stands_in;
    sonde_diag fetching = {0};
    char path[4096], line[SONDE_DIAG_LINE];
    sonde_err err = sonde_nn_data_cache(*name, path, sizeof path, diag);

    if (err == SONDE_OK && !stands_in) {
        if (fetch(*name, path, quiet, &fetching) == SONDE_OK) {
            return SONDE_OK;
        }
        if (fetching.err == SONDE_EINTERRUPTED) {
            *diag = fetching;
            return SONDE_EINTERRUPTED;
        }
        cli_warn("%s cannot be fetched (%s); a drawn stand-in is used, 'fashion-synth': "
                 "accuracy on it says nothing about %s",
                 *name, sonde_diag_line(&fetching, line, sizeof line), *name);
        stands_in = true;
        err = draw_stand_in("fashion-synth", diag);
    }
    *name = "fashion-synth";
    return err;
}

static sonde_err check_samples(const sonde_nn_job_info *info, const sonde_nn_dataset *set,
                               sonde_diag *diag)
{
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(set);
    bool same = traits->rank == info->sample_rank && !traits->varied_size;

    for (int i = 0; same && i < traits->rank; i++) {
        same = traits->shape[i] == info->sample_shape[i];
    }
    *diag = (sonde_diag){.err = same ? SONDE_ERANGE : SONDE_ESHAPE};
    (void)snprintf(diag->where, sizeof diag->where, "%s", traits->source);
    if (!same) {
        (void)snprintf(diag->found, sizeof diag->found, "samples of ");
        (void)sonde_shape_text(traits->rank, traits->shape, diag->found + 11,
                               sizeof diag->found - 11);
        (void)sonde_shape_text(info->sample_rank, info->sample_shape, diag->expected,
                               sizeof diag->expected);
        return SONDE_ESHAPE;
    }
    if (traits->classes > info->classes) {
        (void)snprintf(diag->found, sizeof diag->found, "%lld classes",
                       (long long)traits->classes);
        (void)snprintf(diag->expected, sizeof diag->expected, "at most the model's %lld",
                       (long long)info->classes);
        return SONDE_ERANGE;
    }
    return SONDE_OK;
}

/* A folder that is no known set: train and test sub-folders of images, if there are any. */
static sonde_err open_folder(const char *path, sonde_nn_split split,
                             sonde_nn_dataset **out, sonde_diag *diag)
{
    char part[4096];
    const sonde_err err = cli_join(path, split == SONDE_NN_TRAIN ? "train" : "test", part,
                                   sizeof part, diag);

    if (err != SONDE_OK) {
        return err;
    }
    return sonde_nn_dataset_open_folder(access(part, F_OK) == 0 ? part : path, out, diag);
}

sonde_err cli_data_open(const sonde_nn_job_info *info, const char *dir,
                        sonde_nn_split split, bool quiet, sonde_nn_dataset **out,
                        sonde_diag *diag)
{
    const char *name = info->data_name;
    const bool everywhere = dir == NULL || strcmp(dir, "auto") == 0;
    const char *place = everywhere ? NULL : dir;
    sonde_err err = SONDE_OK;

    if (info->data_path[0] != '\0' && everywhere) {
        err = name[0] != '\0'
                  ? sonde_nn_dataset_open_named(name, split, info->data_path, out, diag)
                  : open_folder(info->data_path, split, out, diag);
    } else if (name[0] == '\0') {
        *diag = (sonde_diag){.err = SONDE_EINVAL,
                             .where = "data",
                             .found = "the job names no data set",
                             .expected = "data: {name: ...}, or --data FOLDER"};
        err = place != NULL ? open_folder(place, split, out, diag) : SONDE_EINVAL;
    } else {
        err = sonde_nn_dataset_open_named(name, split, place, out, diag);
        if (err == SONDE_ENOTFOUND && everywhere) {
            err = provide(&name, quiet, diag);
            if (err == SONDE_OK) {
                err = sonde_nn_dataset_open_named(name, split, NULL, out, diag);
            }
        }
    }
    if (err == SONDE_OK) {
        err = check_samples(info, *out, diag);
        if (err != SONDE_OK) {
            sonde_nn_dataset_destroy(*out);
            *out = NULL;
        }
    }
    return err;
}

sonde_err cli_loader_create(const sonde_nn_job_info *info, const sonde_nn_dataset *set,
                            int64_t batch, bool shuffle, int workers,
                            sonde_nn_loader **out, sonde_diag *diag)
{
    const sonde_nn_transform transforms[] = {
        sonde_nn_to_float(), sonde_nn_normalise(1, &info->mean, &info->std)};
    const sonde_nn_loader_options options = {.batch = batch,
                                             .shuffle = shuffle,
                                             .seed = info->seed,
                                             .keep_last = !shuffle,
                                             .workers = workers,
                                             .transforms = transforms,
                                             .transform_count = 2};

    return sonde_nn_loader_create(set, &options, out, diag);
}

void cli_batch_views(const sonde_nn_job_info *info, const sonde_nn_batch *batch,
                     sonde_view inputs[2])
{
    int64_t shape[SONDE_MAX_DIMS] = {batch->count};

    memcpy(shape + 1, info->sample_shape, (size_t)info->sample_rank * sizeof *shape);
    inputs[0] = sonde_view_of(SONDE_F32, info->sample_rank + 1, shape, batch->data);
    inputs[1] = sonde_view_of(SONDE_I64, 1, shape, NULL);
    memcpy(&inputs[1].data, &batch->labels, sizeof batch->labels);
}

/* --- evaluating ------------------------------------------------------------------- */

typedef struct evaluation {
    const sonde_nn_job_info *info;
    sonde_nn_session *session;
    sonde_nn_loader *loader;
    sonde_nn_confusion *matrix;
    float *filled; /* room for one whole batch, for the last one */
    size_t sample; /* floats of one sample */
    int64_t batch;
} evaluation;

static sonde_err evaluate_batch(evaluation *run, sonde_nn_batch *batch, sonde_diag *diag)
{
    const int64_t count = batch->count;
    sonde_view inputs[2], scores, labels;
    sonde_err err = SONDE_OK;

    if (count < run->batch) {
        memset(run->filled, 0, (size_t)run->batch * run->sample * sizeof *run->filled);
        memcpy(run->filled, batch->data,
               (size_t)count * run->sample * sizeof *run->filled);
        batch->data = run->filled;
        batch->count = run->batch;
    }
    cli_batch_views(run->info, batch, inputs);
    err = sonde_nn_session_run(run->session, inputs, 1, diag);
    if (err == SONDE_OK) {
        err = sonde_nn_session_output(run->session, 0, &scores, diag);
    }
    if (err == SONDE_OK) {
        labels = sonde_view_of(SONDE_I64, 1, &count, inputs[1].data);
        scores.shape[0] = count;
        err = sonde_nn_confusion_update(run->matrix, &scores, &labels, diag);
    }
    return err;
}

static sonde_err evaluate_all(evaluation *run, bool quiet, sonde_diag *diag)
{
    cli_progress progress;
    int64_t done = 0;
    sonde_err err = SONDE_OK;

    cli_progress_begin(&progress, "evaluating", "samples",
                       sonde_nn_loader_samples(run->loader), quiet);
    sonde_nn_loader_start_epoch(run->loader, 0);
    while (err == SONDE_OK) {
        sonde_nn_batch batch;

        err = sonde_nn_loader_next(run->loader, &batch, diag);
        if (err != SONDE_OK || batch.count == 0) {
            break;
        }
        done += batch.count;
        err = evaluate_batch(run, &batch, diag);
        cli_progress_update(&progress, done, NULL);
        if (err == SONDE_OK && cli_interrupted()) {
            err = diag->err = SONDE_EINTERRUPTED;
        }
    }
    cli_progress_end(&progress);
    return err;
}

sonde_err cli_evaluate(const sonde_nn_job_info *info, sonde_nn_model *model,
                       const sonde_nn_dataset *set, sonde_hook *hook, cli_judge *judge,
                       bool quiet, sonde_nn_confusion **out, sonde_diag *diag)
{
    evaluation run = {.info = info, .batch = info->eval_batch_size, .sample = 1};
    sonde_nn_options options = info->options;
    sonde_err err = SONDE_OK;

    for (int i = 0; i < info->sample_rank; i++) {
        run.sample *= (size_t)info->sample_shape[i];
    }
    options.on_progress = NULL;
    options.device_iterations = 1;
    options.gradient_accumulation = 1;
    options.output_mode = SONDE_ANCHOR_ALL;
    sonde_nn_batch_size(&options, run.batch);
    run.filled = malloc((size_t)run.batch * run.sample * sizeof *run.filled);
    if (run.filled == NULL) {
        *diag = (sonde_diag){.err = SONDE_ENOMEM, .found = "out of memory"};
        return SONDE_ENOMEM;
    }
    err = sonde_nn_inference_session(model, &options, &run.session, diag);
    if (err == SONDE_OK) {
        err = sonde_nn_session_attach_hook(run.session, hook, diag);
    }
    if (err == SONDE_OK && judge != NULL) {
        err = cli_judge_attach(judge, run.session, diag);
    }
    if (err == SONDE_OK) {
        err = cli_loader_create(info, set, run.batch, false, 1, &run.loader, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_confusion_create(info->classes, &run.matrix, diag);
    }
    if (err == SONDE_OK) {
        err = evaluate_all(&run, quiet, diag);
    }
    sonde_nn_loader_destroy(run.loader);
    sonde_nn_session_destroy(run.session);
    free(run.filled);
    if (err != SONDE_OK) {
        sonde_nn_confusion_destroy(run.matrix);
        return err;
    }
    *out = run.matrix;
    return SONDE_OK;
}

void cli_print_scores(const sonde_nn_confusion *matrix, const sonde_nn_dataset *set,
                      bool per_class)
{
    const int64_t classes = sonde_nn_confusion_classes(matrix);

    (void)printf("Eval accuracy: %.2f%%\n", 100.0 * sonde_nn_confusion_accuracy(matrix));
    if (sonde_nn_confusion_nan_rows(matrix) > 0) {
        (void)printf("%llu predictions were NaN and count as wrong\n",
                     (unsigned long long)sonde_nn_confusion_nan_rows(matrix));
    }
    if (per_class) {
        (void)printf("%-12s %9s %9s %9s %9s\n", "class", "samples", "precision", "recall",
                     "f1");
    }
    for (int64_t i = 0; per_class && i < classes; i++) {
        const sonde_nn_class_scores scores = sonde_nn_confusion_class(matrix, i);
        char number[24];
        const char *name = sonde_nn_dataset_class_name(set, i);

        (void)snprintf(number, sizeof number, "%lld", (long long)i);
        (void)printf("%-12s %9llu %8.1f%% %8.1f%% %8.1f%%\n",
                     name[0] != '\0' ? name : number, (unsigned long long)scores.support,
                     100.0 * scores.precision, 100.0 * scores.recall, 100.0 * scores.f1);
    }
}

sonde_err cli_draw_confusion(const char *path, const sonde_nn_confusion *matrix,
                             const sonde_nn_dataset *set, const char *title,
                             sonde_diag *diag)
{
    const int64_t classes = sonde_nn_confusion_classes(matrix);
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(set);
    const uint64_t *counts = sonde_nn_confusion_counts(matrix);
    sonde_confusion_plot plot = {.page = {.title = title}};

    plot.counts = sonde_view_of(SONDE_U64, 2, (int64_t[]){classes, classes}, NULL);
    memcpy(&plot.counts.data, &counts, sizeof counts);
    plot.classes = traits->classes == classes ? traits->class_names : NULL;
    return sonde_plot_confusion(path, &plot, diag);
}
