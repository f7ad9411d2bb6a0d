/*
 * job.c - jobs and data for the commands that need them.
 */
#include "cli/cli_job.h"

#include <sonde/nn/fetch.h>
#include <sonde/nn/synth.h>

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

sonde_err cli_weights_load(sonde_nn_model *model, const char *path, const char *text,
                           sonde_diag *diag)
{
    const char *file = path != NULL ? path : "sonde-out/model.safetensors";
    const sonde_err err = sonde_nn_model_load(model, file, diag);

    if ((err == SONDE_ENOTFOUND && access(file, F_OK) == 0) || err == SONDE_ESHAPE) {
        char other[64] = "weights";

        if (diag->expected[0] != '\0') {
            (void)snprintf(other, sizeof other, "%.60s", diag->expected);
        }
        (void)snprintf(diag->expected, sizeof diag->expected,
                       "%s of %.60s; --model says of which", other,
                       text != NULL ? text : "fashion_cnn");
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
