/*
 * job_data.c - a job's data: its data sets, and the loader with its transforms.
 */
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/macros.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Samples must have the model's shape, and no more classes than it has, if any. */
static sonde_err check_samples(const sonde_nn_job_info *info, const sonde_nn_dataset *set,
                               sonde_diag *diag)
{
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(set);
    bool same = traits->rank == info->sample_rank && !traits->varied_size;
    char found[96], expected[96];

    for (int i = 0; same && i < traits->rank; i++) {
        same = traits->shape[i] == info->sample_shape[i];
    }
    if (!same) {
        (void)sonde_shape_text(traits->rank, traits->shape, found, sizeof found);
        (void)sonde_shape_text(info->sample_rank, info->sample_shape, expected,
                               sizeof expected);
        return sonde__fail(diag, SONDE_ESHAPE, traits->source, expected, "samples of %s",
                           found);
    }
    if (info->classes > 0 && traits->classes > info->classes) {
        (void)snprintf(expected, sizeof expected, "at most the model's %lld",
                       (long long)info->classes);
        return sonde__fail(diag, SONDE_ERANGE, traits->source, expected, "%lld classes",
                           (long long)traits->classes);
    }
    return SONDE_OK;
}

enum { DRAWN_BYTES = 400 * 1000 };
static const char drawn_text[] = "text-synth";

/* Text for a model of tokens: a file, a folder, or drawn. */
static sonde_err open_text(const sonde_nn_job_info *info, sonde_nn_split split,
                           sonde_nn_dataset **out, sonde_diag *diag)
{
    const sonde_nn_text_options options = {
        .size = sizeof options, .length = info->sample_shape[0], .split = split};

    if (info->sample_rank != 1 || info->target_rank != 1 ||
        info->target_shape[0] != info->sample_shape[0]) {
        return sonde__fail(diag, SONDE_ESHAPE, "data", "input: [T], target: [T]",
                           "text needs a model of T tokens and T targets");
    }
    if (info->data_path[0] != '\0') {
        return sonde_nn_dataset_open_text(info->data_path, &options, out, diag);
    }
    if (strcmp(info->data_name, drawn_text) == 0) {
        return sonde_nn_dataset_draw_text(0, DRAWN_BYTES, &options, out, diag);
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, "data",
                       "data: {path: FILE.txt} or {name: text-synth}",
                       info->data_name[0] != '\0' ? "no text '%s'" : "%sno text is named",
                       info->data_name);
}

/* Whether it has a folder train or test: if not, its sub-folders are the classes. */
static bool is_split(const char *path)
{
    return sonde_nn_dataset_has_split(path, SONDE_NN_TRAIN) ||
           sonde_nn_dataset_has_split(path, SONDE_NN_TEST);
}

/* A folder that is no known set. */
static sonde_err open_folder(const char *path, sonde_nn_split split,
                             sonde_nn_dataset **out, sonde_diag *diag)
{
    if (sonde_nn_dataset_is_cifar10(path, split)) {
        return sonde_nn_dataset_open_cifar10(path, split, out, diag);
    }
    return is_split(path) ? sonde_nn_dataset_open_split(path, split, out, diag)
                          : sonde_nn_dataset_open_folder(path, out, diag);
}

/* Whether a folder has the files of MNIST, or of a set like it. */
static bool holds_idx(const char *path)
{
    static const char *const files[] = {
        "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte",
        "t10k-images-idx3-ubyte.gz"};
    char file[4096];

    for (size_t i = 0; i < SONDE_COUNT_OF(files); i++) {
        (void)snprintf(file, sizeof file, "%s/%s", path, files[i]);
        if (access(file, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* The name of a job's data. Without one, a folder of IDX files is the known set that it is
 * called after (mnist/), or else mnist. */
static const char *name_of(const sonde_nn_job_info *info)
{
    const char *path = info->data_path, *name = NULL;
    size_t end = strlen(path);

    if (info->data_name[0] != '\0' || path[0] == '\0' || !holds_idx(path)) {
        return info->data_name;
    }
    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    for (size_t i = 0; (name = sonde_nn_dataset_name(i)) != NULL; i++) {
        const size_t length = strlen(name);

        if (end >= length && strncmp(path + end - length, name, length) == 0 &&
            (end == length || path[end - length - 1] == '/')) {
            return name;
        }
    }
    return "mnist";
}

bool sonde_nn_job_has_test(const sonde_nn_job *job)
{
    if (job == NULL) {
        return false;
    }
    const sonde_nn_job_info *info = &job->info;

    return info->input_dtype == SONDE_I64 || name_of(info)[0] != '\0' ||
           info->data_path[0] == '\0' ||
           sonde_nn_dataset_has_split(info->data_path, SONDE_NN_TEST) ||
           sonde_nn_dataset_is_cifar10(info->data_path, SONDE_NN_TEST);
}

sonde_err sonde_nn_job_open_data(const sonde_nn_job *job, sonde_nn_split split,
                                 sonde_nn_dataset **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, out);
    const sonde_nn_job_info *info = &job->info;
    const char *path = info->data_path[0] != '\0' ? info->data_path : NULL;
    sonde_nn_dataset *set = NULL;
    sonde_err err = SONDE_OK;

    if ((unsigned)split > SONDE_NN_TEST) {
        return sonde__fail(diag, SONDE_EINVAL, "data", "a sonde_nn_split", "split %d",
                           (int)split);
    }
    if (info->input_dtype == SONDE_I64) {
        err = open_text(info, split, &set, diag);
    } else if (name_of(info)[0] != '\0') {
        err = sonde_nn_dataset_open_named(name_of(info), split, path, &set, diag);
    } else if (path != NULL) {
        err = open_folder(path, split, &set, diag);
    } else {
        err =
            sonde__fail(diag, SONDE_EINVAL, "data", "data: {name: ...}, or --data FOLDER",
                        "the job names no data set");
    }
    if (err != SONDE_OK) {
        goto error;
    }
    err = check_samples(info, set, diag);
    if (err != SONDE_OK) {
        goto error;
    }
    *out = set;
    return SONDE_OK;

error:
    sonde_nn_dataset_destroy(set);
    return err;
}

sonde_err sonde_nn_job_loader(const sonde_nn_job *job, const sonde_nn_dataset *set,
                              int64_t batch, bool shuffle, sonde_nn_loader **out,
                              sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, out, set);
    const sonde_nn_job_info *info = &job->info;
    const bool tokens = info->input_dtype == SONDE_I64;
    const sonde_nn_transform transforms[] = {
        sonde_nn_to_float(), sonde_nn_normalise(1, &info->mean, &info->std)};
    const sonde_nn_loader_options options = {.size = sizeof options,
                                             .batch = batch,
                                             .shuffle = shuffle,
                                             .seed = info->seed,
                                             .keep_last = !shuffle,
                                             .workers = 1,
                                             .transforms = transforms,
                                             .transform_count = tokens ? 0 : 2};

    return sonde_nn_loader_create(set, &options, out, diag);
}
