/*
 * job.c - reading a job: its sections, their keys, their defaults.
 *
 * Order: parse the tree, read the sections into the info, build the model once to check its
 * layers, so that every mistake is found, with its line, before anything is loaded.
 */
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

void sonde_nn_job_destroy(sonde_nn_job *job)
{
    if (job == NULL) {
        return;
    }
    sonde__yaml_destroy(job->root);
    sonde__yaml_destroy(job->builtin);
    sonde__free(job->taps);
    sonde__free(job->record);
    sonde__free(job->name);
    sonde__free(job);
}

sonde_nn_job_info *sonde_nn_job_get_info(sonde_nn_job *job)
{
    return &job->info;
}

size_t sonde_nn_job_tap_count(const sonde_nn_job *job)
{
    return job->tap_count;
}

const sonde_nn_job_tap *sonde_nn_job_get_tap(const sonde_nn_job *job, size_t i)
{
    return &job->taps[i];
}

/* --- sections --------------------------------------------------------------------- */

static sonde_err read_data(const sonde__yaml_reader *reader, const sonde__yaml *section,
                           sonde_nn_job_info *info)
{
    static const char *const keys[] = {"name", "path", "mean", "std", "validation"};
    sonde_err err = SONDE_OK;

    if (section->kind == SONDE__YAML_SCALAR) {
        info->data_name = section->text;
        return SONDE_OK;
    }
    err = sonde__yaml_check_keys(reader, section, keys, SONDE_COUNT_OF(keys));
    if (err == SONDE_OK) {
        err = sonde__yaml_text(reader, section, "name", &info->data_name);
    }
    if (err == SONDE_OK) {
        err = sonde__yaml_text(reader, section, "path", &info->data_path);
    }
    if (err == SONDE_OK) {
        err = sonde__yaml_float(reader, section, "mean", &info->mean);
    }
    if (err == SONDE_OK) {
        err = sonde__yaml_float(reader, section, "std", &info->std);
    }
    if (err == SONDE_OK && info->std <= 0.0F) {
        err = sonde__yaml_fail(reader, section, SONDE_EINVAL, "std > 0", "std is %g",
                               (double)info->std);
    }
    if (err == SONDE_OK) {
        err = sonde__yaml_float(reader, section, "validation", &info->validation);
    }
    if (err == SONDE_OK && !(info->validation >= 0.0F && info->validation < 1.0F)) {
        err = sonde__yaml_fail(reader, section, SONDE_EINVAL, "a share, below 1",
                               "validation is %g", (double)info->validation);
    }
    return err;
}

static sonde_err read_optimizer_kind(const sonde__yaml_reader *reader,
                                     const sonde__yaml *section,
                                     sonde_nn_optimizer *optimizer)
{
    const char *kind = NULL; /* not given: values are replaced one by one */
    sonde_err err = sonde__yaml_text(reader, section, "kind", &kind);

    if (err != SONDE_OK || kind == NULL) {
        return err;
    }
    if (strcmp(kind, "sgd") == 0) {
        *optimizer = sonde_nn_optimizer_sgd(0.01F, 0.0F);
    } else if (strcmp(kind, "adam") == 0) {
        *optimizer = sonde_nn_optimizer_adam(0.001F);
    } else if (strcmp(kind, "adamw") == 0) {
        *optimizer = sonde_nn_optimizer_adamw(0.001F);
    } else {
        err = sonde__yaml_fail(reader, section, SONDE_EINVAL, "sgd, adam or adamw",
                               "unknown optimizer '%s'", kind);
    }
    return err;
}

static sonde_err read_optimizer(const sonde__yaml_reader *reader,
                                const sonde__yaml *section, sonde_nn_optimizer *optimizer)
{
    static const char *const keys[] = {"kind",     "learning_rate", "weight_decay",
                                       "momentum", "dampening",     "nesterov",
                                       "beta1",    "beta2",         "eps"};
    const struct {
        const char *key;
        float *to;
    } numbers[] = {{"learning_rate", &optimizer->learning_rate},
                   {"weight_decay", &optimizer->weight_decay},
                   {"momentum", &optimizer->momentum},
                   {"dampening", &optimizer->dampening},
                   {"beta1", &optimizer->beta1},
                   {"beta2", &optimizer->beta2},
                   {"eps", &optimizer->eps}};
    sonde_err err = sonde__yaml_check_keys(reader, section, keys, SONDE_COUNT_OF(keys));
    sonde_diag diag = {0};

    if (err == SONDE_OK) {
        err = read_optimizer_kind(reader, section, optimizer);
    }
    for (size_t i = 0; err == SONDE_OK && i < SONDE_COUNT_OF(numbers); i++) {
        err = sonde__yaml_float(reader, section, numbers[i].key, numbers[i].to);
    }
    if (err == SONDE_OK) {
        err = sonde__yaml_bool(reader, section, "nesterov", &optimizer->nesterov);
    }
    if (err == SONDE_OK && sonde_nn_optimizer_check(optimizer, &diag) != SONDE_OK) {
        err = sonde__yaml_fail(reader, section, SONDE_EINVAL, diag.expected, "%s is %s",
                               diag.where, diag.found);
    }
    return err;
}

static sonde_err read_options(const sonde__yaml_reader *reader,
                              const sonde__yaml *section, sonde_nn_job_info *info)
{
    static const char *const keys[] = {
        "epochs",       "batch_size", "eval_batch_size",   "eval_every",
        "eval_samples", "seed",       "device_iterations", "gradient_accumulation",
        "threads",      "reduction"};
    int64_t epochs = info->epochs, seed = (int64_t)info->seed;
    int64_t iterations = info->options.device_iterations;
    int64_t accumulation = info->options.gradient_accumulation;
    int64_t threads = info->options.threads;
    const char *reduction =
        info->options.reduction == SONDE_NN_REDUCTION_SUM ? "sum" : "mean";
    const struct {
        const char *key;
        int64_t lower, upper;
        int64_t *to;
    } numbers[] = {{"epochs", 0, 1000000, &epochs},
                   {"batch_size", 1, 1 << 20, &info->batch_size},
                   {"eval_batch_size", 1, 1 << 20, &info->eval_batch_size},
                   {"eval_every", 0, 1000000, &info->eval_every},
                   {"eval_samples", 0, INT64_MAX, &info->eval_samples},
                   {"seed", 0, INT64_MAX, &seed},
                   {"device_iterations", 1, 1 << 20, &iterations},
                   {"gradient_accumulation", 1, 1 << 20, &accumulation},
                   {"threads", 0, 1024, &threads}};
    sonde_err err = sonde__yaml_check_keys(reader, section, keys, SONDE_COUNT_OF(keys));

    for (size_t i = 0; err == SONDE_OK && i < SONDE_COUNT_OF(numbers); i++) {
        err = sonde__yaml_int(reader, section, numbers[i].key, numbers[i].lower,
                              numbers[i].upper, numbers[i].to);
    }
    if (err == SONDE_OK) {
        err = sonde__yaml_text(reader, section, "reduction", &reduction);
    }
    if (err == SONDE_OK && strcmp(reduction, "mean") != 0 &&
        strcmp(reduction, "sum") != 0) {
        err = sonde__yaml_fail(reader, section, SONDE_EINVAL, "mean or sum",
                               "reduction is '%s'", reduction);
    }
    info->epochs = (int)epochs;
    info->seed = (uint64_t)seed;
    info->options.random_seed = (uint64_t)seed;
    info->options.device_iterations = (int)iterations;
    info->options.gradient_accumulation = (int)accumulation;
    info->options.threads = (int)threads;
    info->options.reduction =
        strcmp(reduction, "sum") == 0 ? SONDE_NN_REDUCTION_SUM : SONDE_NN_REDUCTION_MEAN;
    return err;
}

static sonde_err read_tap(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                          sonde_nn_job_tap *tap)
{
    static const char *const keys[] = {"tensors", "every", "start", "end", "print"};
    sonde_err err = sonde__yaml_check_keys(reader, entry, keys, SONDE_COUNT_OF(keys));

    *tap = (sonde_nn_job_tap){.every = 1, .print = true};
    if (err == SONDE_OK) {
        err = sonde__yaml_text(reader, entry, "tensors", &tap->tensors);
    }
    if (err == SONDE_OK) {
        err = sonde__yaml_int(reader, entry, "every", 1, INT64_MAX, &tap->every);
    }
    if (err == SONDE_OK) {
        err = sonde__yaml_int(reader, entry, "start", 0, INT64_MAX, &tap->start);
    }
    if (err == SONDE_OK) {
        err = sonde__yaml_int(reader, entry, "end", 0, INT64_MAX, &tap->end);
    }
    if (err == SONDE_OK) {
        err = sonde__yaml_bool(reader, entry, "print", &tap->print);
    }
    if (err == SONDE_OK && tap->tensors == NULL) {
        err = sonde__yaml_fail(reader, entry, SONDE_EINVAL, "tensors: a selector",
                               "an entry of observe says no tensors");
    }
    return err;
}

static sonde_err read_observe(const sonde__yaml_reader *reader,
                              const sonde__yaml *section, sonde_nn_job *job)
{
    sonde_err err = SONDE_OK;

    if (section->kind != SONDE__YAML_LIST) {
        return sonde__yaml_fail(reader, section, SONDE_EINVAL, "a list",
                                "observe is no list");
    }
    job->taps = sonde__calloc(section->count, sizeof *job->taps);
    if (job->taps == NULL) {
        return sonde__fail_nomem(reader->diag, "a job");
    }
    for (size_t i = 0; err == SONDE_OK && i < section->count; i++) {
        err = read_tap(reader, section->children[i], &job->taps[job->tap_count++]);
    }
    return err;
}

/* --- recording -------------------------------------------------------------------- */

bool sonde_nn_job_records(const sonde_nn_job *job)
{
    return job->record != NULL;
}

sonde_err sonde_nn_job_hook(const sonde_nn_job *job, const sonde_hook_options *options,
                            sonde_hook **out, sonde_diag *diag)
{
    const sonde_hook_options nothing = {0};

    return job->record != NULL
               ? sonde_hook_parse(job->record, job->record_size, job->name, "record",
                                  options, out, diag)
               : sonde_hook_create(options != NULL ? options : &nothing, out, diag);
}

/* Keeps the text that hooks are made from, and makes one, to find its mistakes. */
static sonde_err keep_record(sonde_nn_job *job, const char *text, size_t size,
                             sonde_diag *diag)
{
    const sonde_hook_options dry = {.dry_run = true};
    sonde_hook *hook = NULL;
    sonde_err err = SONDE_OK;

    if (sonde__yaml_get(job->root, "record") == NULL) {
        return SONDE_OK;
    }
    job->record = sonde__strndup(text, size);
    if (job->record == NULL) {
        return sonde__fail_nomem(diag, "a job");
    }
    job->record_size = size;
    err = sonde_nn_job_hook(job, &dry, &hook, diag);
    return err == SONDE_OK ? sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, diag) : err;
}

/* --- the whole -------------------------------------------------------------------- */

static sonde_err read_sections(const sonde__yaml_reader *reader, const sonde__yaml *root,
                               sonde_nn_job *job)
{
    static const char *const keys[] = {"model",   "data",   "optimizer", "options",
                                       "observe", "record", "rules"};
    sonde_err err = sonde__yaml_check_keys(reader, root, keys, SONDE_COUNT_OF(keys));
    const sonde__yaml *section = NULL;

    if (err == SONDE_OK && (section = sonde__yaml_get(root, "data")) != NULL) {
        err = read_data(reader, section, &job->info);
    }
    if (err == SONDE_OK && (section = sonde__yaml_get(root, "optimizer")) != NULL) {
        err = read_optimizer(reader, section, &job->info.optimizer);
    }
    if (err == SONDE_OK && (section = sonde__yaml_get(root, "options")) != NULL) {
        err = read_options(reader, section, &job->info);
    }
    if (err == SONDE_OK && (section = sonde__yaml_get(root, "observe")) != NULL) {
        err = read_observe(reader, section, job);
    }
    if (err == SONDE_OK && (section = sonde__yaml_get(root, "rules")) != NULL) {
        err = sonde__job_read_rules(reader, section, &job->rules);
    }
    return err;
}

/* A job whose model is a name stands on the built-in job of that name. */
static sonde_err read_model_section(const sonde__yaml_reader *reader, sonde_nn_job *job)
{
    const sonde__yaml *model = sonde__yaml_get(job->root, "model");
    const char *text = NULL;
    sonde__yaml_reader builtin = {NULL, reader->diag};
    sonde_err err = SONDE_OK;

    if (model == NULL) {
        return sonde__yaml_fail(reader, job->root, SONDE_EINVAL,
                                "model: a name or layers", "the job says no model");
    }
    if (model->kind != SONDE__YAML_SCALAR) {
        job->model = model;
        return SONDE_OK;
    }
    text = sonde__job_builtin_text(model->text);
    if (text == NULL) {
        return sonde__yaml_fail(reader, model, SONDE_ENOTFOUND,
                                "fashion_cnn, mnist_mlp or mnist_mlp_small",
                                "unknown model '%s'", model->text);
    }
    job->info.model_name = model->text;
    builtin.name = model->text;
    err = sonde__yaml_parse(text, strlen(text), model->text, &job->builtin, reader->diag);
    if (err == SONDE_OK) {
        err = read_sections(&builtin, job->builtin, job);
        job->model = sonde__yaml_get(job->builtin, "model");
    }
    return err;
}

/* Builds the model once, to find its mistakes and to complete the info. */
static sonde_err check_model(sonde_nn_job *job, sonde_diag *diag)
{
    sonde_nn_model *model = NULL;
    const sonde_err err = sonde__job_build(job, &job->info, &model, diag);

    sonde_nn_model_destroy(model);
    return err;
}

sonde_err sonde_nn_job_parse(const char *text, size_t size, const char *name,
                             sonde_nn_job **out, sonde_diag *diag)
{
    const sonde__yaml_reader reader = {name, diag};
    sonde_nn_job *job = sonde__calloc(1, sizeof *job);
    sonde_err err = SONDE_OK;

    if (job == NULL) {
        return sonde__fail_nomem(diag, "a job");
    }
    job->info = (sonde_nn_job_info){.model_name = "",
                                    .data_name = "",
                                    .data_path = "",
                                    .mean = 0.5F,
                                    .std = 0.5F,
                                    .optimizer = sonde_nn_optimizer_sgd(0.01F, 0.0F),
                                    .batch_size = 32,
                                    .eval_batch_size = 32,
                                    .eval_every = 1,
                                    .eval_samples = SONDE_NN_JOB_EVAL_SAMPLES,
                                    .epochs = 1};
    sonde_nn_options_init(&job->info.options);
    job->name = sonde__strdup(name);
    err = job->name != NULL ? SONDE_OK : sonde__fail_nomem(diag, "a job");
    if (err == SONDE_OK) {
        err = sonde__yaml_parse(text, size, name, &job->root, diag);
    }
    if (err == SONDE_OK) {
        err = read_model_section(&reader, job);
    }
    if (err == SONDE_OK) {
        err = read_sections(&reader, job->root, job);
    }
    if (err == SONDE_OK) {
        err = keep_record(job, text, size, diag);
    }
    if (err == SONDE_OK) {
        err = check_model(job, diag);
    }
    if (err != SONDE_OK) {
        sonde_nn_job_destroy(job);
        return err;
    }
    *out = job;
    return SONDE_OK;
}

sonde_err sonde_nn_job_load(const char *path, sonde_nn_job **out, sonde_diag *diag)
{
    enum { LARGEST = 1 << 20 };
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t size = 0;
    sonde_err err = SONDE_OK;

    if (file == NULL) {
        return sonde__fail_errno(diag, path, "cannot open the job file");
    }
    text = sonde__malloc(LARGEST + 1);
    if (text == NULL) {
        err = sonde__fail_nomem(diag, "a job file");
    } else {
        size = fread(text, 1, LARGEST + 1, file);
        if (ferror(file)) {
            err = sonde__fail_errno(diag, path, "cannot read the job file");
        } else if (size > LARGEST) {
            err = sonde__fail(diag, SONDE_EINVAL, path, "at most 1 MiB",
                              "the job is too long");
        }
    }
    (void)fclose(file);
    if (err == SONDE_OK) {
        err = sonde_nn_job_parse(text, size, path, out, diag);
    }
    sonde__free(text);
    return err;
}

sonde_err sonde_nn_job_builtin(const char *name, sonde_nn_job **out, sonde_diag *diag)
{
    const char *text = sonde__job_builtin_text(name);

    if (text == NULL) {
        return sonde__fail(diag, SONDE_ENOTFOUND, name,
                           "fashion_cnn, mnist_mlp or mnist_mlp_small",
                           "no built-in model");
    }
    return sonde_nn_job_parse(text, strlen(text), name, out, diag);
}
