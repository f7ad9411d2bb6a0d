/*
 * job_data.c - a job's data: its data sets, and the loader with its transforms.
 */
#include "nn/job/job.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/log.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a sample's array has the shape that the model wants. */
static sonde_err check_shape(const sonde_nn_dataset_traits *traits, const char *name,
                             const sonde_nn_field *field, int rank, const int64_t *wanted,
                             sonde_diag *diag)
{
    bool same = field->rank == rank;
    char text[96], shape[96], expected[140];

    for (int i = 0; same && i < field->rank; i++) {
        same = field->shape[i] == wanted[i];
    }
    if (same) {
        return SONDE_OK;
    }
    (void)sonde_shape_text(field->rank, field->shape, text, sizeof text);
    (void)sonde_shape_text(rank, wanted, shape, sizeof shape);
    (void)snprintf(expected, sizeof expected, "%s%s", shape,
                   name[0] != '\0' ? ", as the model has it" : "");
    return sonde__fail(diag, SONDE_ESHAPE, traits->source, expected, "%s%s%s of %s", name,
                       name[0] != '\0' ? ": " : "", "samples", text);
}

/* The further inputs, and a target of numbers. */
static sonde_err check_fields(const sonde_nn_job_info *info,
                              const sonde_nn_dataset_traits *traits, sonde_diag *diag)
{
    const bool values = info->target == SONDE_NN_TARGET_VALUES;
    const size_t inputs = traits->field_count - (traits->has_target ? 1 : 0);
    sonde_err err = SONDE_OK;

    if (inputs + 1 != info->input_count) {
        return sonde__fail(diag, SONDE_ESHAPE, traits->source, "as many as the model has",
                           "%zu inputs for a model of %zu", inputs + 1,
                           info->input_count);
    }
    for (size_t i = 0; i < inputs && err == SONDE_OK; i++) {
        err = check_shape(traits, traits->fields[i].name, &traits->fields[i],
                          info->inputs[i + 1].rank, info->inputs[i + 1].shape, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    if (values != traits->has_target ||
        (!values && info->target != SONDE_NN_TARGET_INPUT && !traits->has_labels)) {
        return sonde__fail(diag, SONDE_EINVAL, traits->source,
                           values ? "a target of numbers: arrays, or a table"
                                  : "data: {target: NAME}",
                           "the data has no target for the loss");
    }
    if (!values) {
        return SONDE_OK;
    }
    return check_shape(traits, "target", &traits->fields[inputs], info->target_rank,
                       info->target_shape, diag);
}

/* Samples must have the model's shape, and no more classes than it has, if any. */
static sonde_err check_samples(const sonde_nn_job_info *info, const sonde_nn_dataset *set,
                               sonde_diag *diag)
{
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(set);
    sonde_nn_field field = {.rank = traits->varied_size ? -1 : traits->rank};
    char expected[96];

    memcpy(field.shape, traits->shape, sizeof field.shape);
    if (traits->varied_size) {
        char text[96];

        (void)sonde_shape_text(traits->rank, traits->shape, text, sizeof text);
        (void)sonde_shape_text(info->sample_rank, info->sample_shape, expected,
                               sizeof expected);
        return sonde__fail(diag, SONDE_ESHAPE, traits->source, expected, "samples of %s",
                           text);
    }
    SONDE__TRY(
        check_shape(traits, "", &field, info->sample_rank, info->sample_shape, diag));
    SONDE__TRY(check_fields(info, traits, diag));
    if (info->classes > 0 && traits->classes > info->classes) {
        (void)snprintf(expected, sizeof expected, "at most the model's %lld",
                       (long long)info->classes);
        return sonde__fail(diag, SONDE_ERANGE, traits->source, expected, "%lld classes",
                           (long long)traits->classes);
    }
    return SONDE_OK;
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

static sonde_nn_data_kind kind_of(const sonde_nn_job_info *info)
{
    const char *path = info->data_path[0] != '\0' ? info->data_path : NULL;
    const sonde_nn_data_kind kind = sonde_nn_data_kind_at(path);

    if (info->synthetic > 0) {
        return SONDE_NN_DATA_SYNTH;
    }
    if (kind == SONDE_NN_DATA_ARRAYS || kind == SONDE_NN_DATA_TABLE) {
        return kind;
    }
    if (info->input_dtype == SONDE_I64) {
        return path != NULL ? SONDE_NN_DATA_TEXT : SONDE_NN_DATA_TEXT_SYNTH;
    }
    if (name_of(info)[0] != '\0') {
        return SONDE_NN_DATA_NAMED;
    }
    return path == NULL || kind == SONDE_NN_DATA_SPLIT ? kind : SONDE_NN_DATA_FOLDER;
}

bool sonde_nn_job_has_test(const sonde_nn_job *job)
{
    if (job == NULL) {
        return false;
    }
    const sonde_nn_data_kind kind = kind_of(&job->info);
    struct stat status;
    char folder[4096];

    (void)snprintf(folder, sizeof folder, "%s/test", job->info.data_path);
    return kind != SONDE_NN_DATA_FOLDER &&
           (kind != SONDE_NN_DATA_SPLIT ||
            (stat(folder, &status) == 0 && S_ISDIR(status.st_mode)));
}

/* Options that the kind of data has no use for are mistakes. */
static sonde_err check_options(const sonde_nn_job_info *info, sonde_nn_data_kind kind,
                               sonde_diag *diag)
{
    const bool text = kind == SONDE_NN_DATA_TEXT || kind == SONDE_NN_DATA_TEXT_SYNTH;
    const bool named = kind == SONDE_NN_DATA_ARRAYS || kind == SONDE_NN_DATA_TABLE;

    if (kind == SONDE_NN_DATA_SYNTH) {
        return SONDE_OK;
    }
    if (!text && (info->tokens != 0 || info->vocabulary != 0 ||
                  (info->tokenizer != NULL && info->tokenizer[0] != '\0'))) {
        return sonde__fail(diag, SONDE_EINVAL, "data", "text for a model of tokens",
                           "byte pairs (tokens, vocabulary, tokenizer) of data that is "
                           "no text");
    }
    if (!named && (info->data_inputs.count > 0 || info->data_target[0] != '\0')) {
        return sonde__fail(diag, SONDE_EINVAL, "data", "arrays or a table",
                           "inputs or a target by name of data without names");
    }
    if (text && (info->sample_rank != 1 || info->target_rank != 1 ||
                 info->target_shape[0] != info->sample_shape[0])) {
        return sonde__fail(diag, SONDE_ESHAPE, "data", "input: [T], target: [T]",
                           "text needs a model of T tokens and T targets");
    }
    if (kind == SONDE_NN_DATA_TABLE && info->input_dtype == SONDE_I64) {
        return sonde__fail(diag, SONDE_EDTYPE, info->data_path, "float32",
                           "a table for a model of int64");
    }
    if (kind == SONDE_NN_DATA_ARRAYS && info->data_inputs.count > 0 &&
        info->data_inputs.count != info->input_count) {
        return sonde__fail(diag, SONDE_EINVAL, "data", "as many as the model has",
                           "%zu inputs for a model of %zu", info->data_inputs.count,
                           info->input_count);
    }
    return kind != SONDE_NN_DATA_ANY ? SONDE_OK
                                     : sonde__fail(diag, SONDE_EINVAL, "data",
                                                   "data: {name: ...}, or --data FOLDER",
                                                   "the job names no data set");
}

/* Samples of the model's shapes, drawn at random. */
static void set_drawing(const sonde_nn_job_info *info, sonde_nn_dataset_options *options)
{
    enum { TEST_PART = 10 };
    const bool test = options->split == SONDE_NN_TEST;
    const bool tokens = info->target == SONDE_NN_TARGET_TOKENS;

    options->count =
        test ? (info->synthetic + TEST_PART - 1) / TEST_PART : info->synthetic;
    options->seed = info->seed + (test ? 1 : 0);
    options->field_count = info->input_count;
    memcpy(options->fields, info->inputs, sizeof options->fields);
    options->target_field.rank = tokens || options->numbers ? info->target_rank : 0;
    memcpy(options->target_field.shape, info->target_shape,
           sizeof options->target_field.shape);
    options->classes = info->target != SONDE_NN_TARGET_INPUT && !options->numbers
                           ? SONDE_MAX(info->classes, (int64_t)2)
                           : 0;
    options->id_count = tokens ? info->classes : 0; /* of other ids it is not known */
}

static sonde_err open_set(const sonde_nn_job *job, sonde_nn_split split,
                          sonde_nn_dataset **out, sonde_diag *diag)
{
    const sonde_nn_job_info *info = &job->info;
    const bool autoencoder = info->target == SONDE_NN_TARGET_INPUT;
    const char *names[SONDE_NN_FIELDS];
    sonde_nn_dataset_options options = {
        .size = sizeof options,
        .kind = kind_of(info),
        .split = split,
        .test_share = (double)info->test_share,
        .seed = (uint64_t)info->split_seed,
        .name = name_of(info),
        .inputs = info->data_inputs.text,
        .input_count = info->data_inputs.count,
        .target = autoencoder || info->data_target[0] == '\0' ? NULL : info->data_target,
        .numbers = info->target == SONDE_NN_TARGET_VALUES,
        .matrices = info->sample_rank == 2,
        .no_standardize = info->no_standardize,
        .length = info->sample_shape[0]};
    SONDE__TRY(check_options(info, options.kind, diag));
    options.target = autoencoder ? "" : options.target;
    for (size_t i = 0; i < info->input_count; i++) {
        options.ids[i] = info->inputs[i].dtype == SONDE_I64;
        names[i] = info->inputs[i].name;
    }
    switch ((int)options.kind) {
    case SONDE_NN_DATA_ARRAYS:
        if (options.input_count == 0 && info->input_count > 1) {
            options.inputs = names;
            options.input_count = info->input_count;
        }
        break;
    case SONDE_NN_DATA_SYNTH:
        set_drawing(info, &options);
        break;
    case SONDE_NN_DATA_TEXT:
    case SONDE_NN_DATA_TEXT_SYNTH:
        SONDE__TRY(sonde_nn_job_tokenizer(job, &options.tokenizer, diag));
        return sonde__job_open_text(info, split, options.length, options.tokenizer, out,
                                    diag);
    default:
        break;
    }
    return sonde_nn_dataset_open(info->data_path[0] != '\0' ? info->data_path : NULL,
                                 &options, out, diag);
}

/* mean and std that differ from the default ones, of data without pixels. */
static void warn_of_scale(const sonde_nn_job_info *info, const sonde_nn_dataset *set)
{
    const float usual = 0.5F;

    if (info->synthetic != 0 || !sonde_nn_dataset_get_traits(set)->ready) {
        return;
    }
    if (info->normalize.channels > 0) {
        sonde_log(SONDE_LOG_WARNING, "data",
                  "%s: normalize of augment applies to pixels and is ignored",
                  sonde_nn_dataset_get_traits(set)->source);
    } else if (info->mean != usual || info->std != usual) {
        sonde_log(SONDE_LOG_WARNING, "data",
                  "%s: mean %g and std %g are of pixels: not used",
                  sonde_nn_dataset_get_traits(set)->source, (double)info->mean,
                  (double)info->std);
    }
}

sonde_err sonde_nn_job_open_data(const sonde_nn_job *job, sonde_nn_split split,
                                 sonde_nn_dataset **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, out);
    sonde_nn_dataset *set = NULL;
    SONDE__TRY(open_set(job, split, &set, diag));
    const sonde_err err = check_samples(&job->info, set, diag);

    if (err != SONDE_OK) {
        sonde_nn_dataset_destroy(set);
        return err;
    }
    if (split == SONDE_NN_TRAIN) {
        warn_of_scale(&job->info, set);
    }
    *out = set;
    return SONDE_OK;
}

sonde_nn_transform sonde_nn_job_normalize(const sonde_nn_job *job)
{
    if (job == NULL) {
        return (sonde_nn_transform){.kind = SONDE_NN_TO_FLOAT};
    }
    return job->info.normalize.channels > 0
               ? job->info.normalize
               : (sonde_nn_transform){.kind = SONDE_NN_NORMALIZE,
                                      .channels = 1,
                                      .mean = {job->info.mean},
                                      .std = {job->info.std}};
}

/* Threads that make batches ahead. Samples in memory need one, which does not wait for
 * the consumer's thread; images of files are decoded by half of the processors. */
static int choose_workers(const sonde_nn_job_info *info, const sonde_nn_dataset *set)
{
    enum { MOST = 8 };
    const int half = (sonde__cpu_count() + 1) / 2;

    if (info->loader_workers >= 0) {
        return (int)info->loader_workers;
    }
    return sonde_nn_dataset_get_traits(set)->scratch > 0 ? SONDE_MIN(half, (int)MOST) : 1;
}

/* Augmented samples must keep the shape of the model's input. */
static sonde_err check_augmented(const sonde_nn_job_info *info,
                                 const sonde_nn_loader *loader, sonde_diag *diag)
{
    const sonde_nn_loader_info made = sonde_nn_loader_get_info(loader);
    sonde_nn_field field = {.rank = made.rank};

    memcpy(field.shape, made.shape, sizeof field.shape);
    return check_shape(made.traits, "augment", &field, info->sample_rank,
                       info->sample_shape, diag);
}

sonde_err sonde_nn_job_loader(const sonde_nn_job *job, const sonde_nn_dataset *set,
                              int64_t batch, bool shuffle, sonde_nn_loader **out,
                              sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, out, set);
    const sonde_nn_job_info *info = &job->info;
    const bool plain =
        info->input_dtype == SONDE_I64 || sonde_nn_dataset_get_traits(set)->ready;
    sonde_nn_transform transforms[SONDE_NN_JOB_AUGMENT + 2];
    size_t count = 0;
    sonde_nn_loader *loader = NULL;
    sonde_err err = SONDE_OK;

    for (size_t i = 0; shuffle && i < info->augment_count; i++) {
        transforms[count++] = info->augment[i];
    }
    if (!plain) {
        transforms[count++] = (sonde_nn_transform){.kind = SONDE_NN_TO_FLOAT};
        transforms[count++] = sonde_nn_job_normalize(job);
    }
    const sonde_nn_loader_options options = {.size = sizeof options,
                                             .batch = batch,
                                             .shuffle = shuffle,
                                             .seed = info->seed,
                                             .keep_last = !shuffle,
                                             .workers = choose_workers(info, set),
                                             .rank = shuffle ? info->rank : 0,
                                             .world = shuffle ? info->world : 1,
                                             .transforms = transforms,
                                             .transform_count = count};

    SONDE__TRY(sonde_nn_loader_create(set, &options, &loader, diag));
    err = check_augmented(info, loader, diag);
    if (err != SONDE_OK) {
        sonde_nn_loader_destroy(loader);
        return err;
    }
    *out = loader;
    return SONDE_OK;
}

/* --- balanced classes ----------------------------------------------------------------- */

/* Counts the labels of a set by class. */
static void count_labels(const sonde_nn_dataset *set, int64_t *counts)
{
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(set);

    for (int64_t i = 0; i < traits->count; i++) {
        counts[sonde_nn_dataset_label(set, i)]++;
    }
}

sonde_err sonde_nn_job_balance(sonde_nn_job *job, const sonde_nn_dataset *set,
                               sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, set);
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(set);
    const int64_t classes = SONDE_MAX(job->info.classes, traits->classes);
    int64_t *counts = NULL, present = 0;
    float *weights = NULL;

    if (!job->info.balanced) {
        return SONDE_OK;
    }
    if (!traits->has_labels || traits->label_length > 0 || classes < 1) {
        return sonde__fail(diag, SONDE_EINVAL, traits->source, "one class a sample",
                           "classes that are balanced, but samples have none");
    }
    counts = sonde__calloc((size_t)classes, sizeof *counts);
    weights = sonde__calloc((size_t)classes, sizeof *weights);
    if (counts == NULL || weights == NULL) {
        sonde__free(counts);
        sonde__free(weights);
        return sonde__fail_nomem(diag, "weights of classes");
    }
    count_labels(set, counts);
    for (int64_t c = 0; c < classes; c++) {
        present += counts[c] > 0 ? 1 : 0;
    }
    for (int64_t c = 0; c < classes; c++) {
        weights[c] =
            counts[c] > 0
                ? (float)((double)traits->count / ((double)present * (double)counts[c]))
                : 0.0F;
    }
    sonde__free(counts);
    sonde__free(job->balanced);
    job->balanced = weights;
    job->balanced_count = (size_t)classes;
    return SONDE_OK;
}
