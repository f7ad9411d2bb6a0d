/*
 * job.c - reading a job: its sections, their keys, their defaults.
 *
 * Order: parse the tree, read the sections into the info, build the model once to check
 * its layers, so that every mistake is found, with its line, before anything is loaded.
 */
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/rules.h>
#include <sonde/nn/job.h>
#include <sonde/nn/plan.h>

#include <stdio.h>
#include <string.h>

void sonde_nn_job_destroy(sonde_nn_job *job)
{
    if (job == NULL) {
        return;
    }
    sonde_nn_plan_destroy(job->plan);
    sonde_nn_plan_destroy(job->translated);
    sonde__yaml_destroy(job->root);
    sonde__yaml_destroy(job->builtin);
    sonde__free(job->taps);
    sonde__free(job->balanced);
    sonde__job_tokens_destroy(job);
    for (size_t i = 0; i < SONDE_NN_FIELDS; i++) {
        sonde__free(job->input_names[i]);
    }
    sonde__free(job->record);
    sonde__free(job->name);
    sonde__free(job);
}

sonde_nn_job_info *sonde_nn_job_get_info(sonde_nn_job *job)
{
    return &job->info;
}

/* --- sections --------------------------------------------------------------------- */

static sonde_err read_data(const sonde__yaml_reader *reader, const sonde__yaml *section,
                           sonde_nn_job *job)
{
    sonde_nn_job_info *info = &job->info;

    if (section->kind == SONDE__YAML_SCALAR) {
        info->data_name = section->text;
        return SONDE_OK;
    }
    const sonde_err err = sonde__job_read_options(reader, section, info);

    return err != SONDE_OK ? err : sonde__job_read_augment(reader, section, info);
}

static sonde_err read_optimizer(const sonde__yaml_reader *reader,
                                const sonde__yaml *section, sonde_nn_job *job)
{
    sonde_nn_job_info *info = &job->info;
    sonde_diag diag = {0};
    SONDE__TRY(sonde__job_read_options(reader, section, info));
    if (sonde_nn_optimizer_check(&info->optimizer, &diag) != SONDE_OK) {
        return sonde__yaml_fail(reader, section, SONDE_EINVAL, diag.expected, "%s is %s",
                                diag.where, diag.found);
    }
    return sonde__job_read_groups(reader, section, job);
}

static sonde_err read_tap(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                          sonde_nn_job_tap *tap)
{
    static const char *const keys[] = {"tensors", "every", "start", "end", "print"};
    const struct {
        const char *key;
        int64_t least;
        int64_t *value;
    } numbers[] = {
        {"every", 1, &tap->every}, {"start", 0, &tap->start}, {"end", 0, &tap->end}};
    bool print = true;
    SONDE__TRY(sonde__yaml_check_keys(reader, entry, keys, SONDE_COUNT_OF(keys)));
    *tap = (sonde_nn_job_tap){.every = 1};
    SONDE__TRY(sonde__yaml_text(reader, entry, "tensors", &tap->tensors));
    for (size_t i = 0; i < SONDE_COUNT_OF(numbers); i++) {
        SONDE__TRY(sonde__yaml_int(reader, entry, numbers[i].key, numbers[i].least,
                                   INT64_MAX, numbers[i].value));
    }
    SONDE__TRY(sonde__yaml_bool(reader, entry, "print", &print));
    if (!print) {
        return sonde__yaml_fail(reader, sonde__yaml_get(entry, "print"), SONDE_EINVAL,
                                "true: use the section record to save without printing",
                                "print is false");
    }
    return tap->tensors != NULL
               ? SONDE_OK
               : sonde__yaml_fail(reader, entry, SONDE_EINVAL, "tensors: a selector",
                                  "an entry of observe has no tensors");
}

static sonde_err read_observe(const sonde__yaml_reader *reader,
                              const sonde__yaml *section, sonde_nn_job *job)
{
    if (section->kind != SONDE__YAML_LIST) {
        return sonde__yaml_fail(reader, section, SONDE_EINVAL, "a list",
                                "observe is not a list");
    }
    sonde__free(job->taps); /* of a built-in job */
    job->info.tap_count = 0;
    job->info.taps = job->taps = sonde__calloc(section->count, sizeof *job->taps);
    if (job->taps == NULL) {
        return sonde__fail_nomem(reader->diag, "a job");
    }
    for (size_t i = 0; i < section->count; i++) {
        SONDE__TRY(
            read_tap(reader, section->children[i], &job->taps[job->info.tap_count++]));
    }
    return SONDE_OK;
}

static sonde_err read_options(const sonde__yaml_reader *reader,
                              const sonde__yaml *section, sonde_nn_job *job)
{
    return sonde__job_read_options(reader, section, &job->info);
}

static sonde_err read_demo(const sonde__yaml_reader *reader, const sonde__yaml *section,
                           sonde_nn_job *job)
{
    return sonde__job_read_demo(reader, section, &job->demo);
}

/*
 *     rules: none                                   or a text, or a list, as of sonde_rules_add_list
 *     rules: {judge: default, every: 10, stop_on: [error], on_finding: [...], each: false}
 */
/* Finds mistakes: adds the rules to an engine that is not used. */
static sonde_err check_rules(const sonde__yaml_reader *reader, const sonde__yaml *node,
                             const sonde_nn_job_texts *judge)
{
    sonde_rules *rules = NULL;
    sonde_diag inner = {0};
    sonde_err err = sonde_rules_create(&rules, &inner);

    if (err != SONDE_OK) {
        goto done;
    }
    for (size_t i = 0; i < judge->count; i++) {
        SONDE__TRY_DONE(sonde_rules_add_list(rules, judge->text[i], &inner));
    }

done:
    sonde_rules_destroy(rules);
    if (err != SONDE_OK) {
        return sonde__yaml_fail(reader, node, err, inner.expected, "%s%s%s", inner.where,
                                inner.where[0] != '\0' ? ": " : "", inner.found);
    }
    return SONDE_OK;
}

static sonde_err read_rules(const sonde__yaml_reader *reader, const sonde__yaml *section,
                            sonde_nn_job *job)
{
    const bool map = section->kind == SONDE__YAML_MAP;
    const sonde__yaml *node = map ? sonde__yaml_get(section, "judge") : section;

    SONDE__TRY(map ? sonde__job_read_options(reader, section, &job->info)
                   : sonde__job_read_judge(reader, section, &job->info));
    return node != NULL ? check_rules(reader, node, &job->info.rules.judge) : SONDE_OK;
}

/* --- recording -------------------------------------------------------------------- */

sonde_err sonde_nn_job_hook(const sonde_nn_job *job, const sonde_hook_options *options,
                            sonde_hook **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, out);
    const sonde_hook_options nothing = {.size = sizeof nothing};

    return job->record != NULL
               ? sonde_hook_parse(job->record, job->record_size, job->name, "record",
                                  options, out, diag)
               : sonde_hook_create(options != NULL ? options : &nothing, out, diag);
}

/* Keeps the text that hooks are made from, and makes one, to find its mistakes. */
static sonde_err keep_record(sonde_nn_job *job, const char *text, size_t size,
                             sonde_diag *diag)
{
    const sonde_hook_options dry = {.size = sizeof dry, .dry_run = true};
    sonde_hook *hook = NULL;

    if (sonde__yaml_get(job->root, "record") == NULL) {
        return SONDE_OK;
    }
    job->record = sonde__strndup(text, size);
    if (job->record == NULL) {
        return sonde__fail_nomem(diag, "a job");
    }
    job->record_size = size;
    job->info.records = true;
    SONDE__TRY(sonde_nn_job_hook(job, &dry, &hook, diag));
    return sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, diag);
}

/* --- the whole -------------------------------------------------------------------- */

static sonde_err check_keys(const sonde__yaml_reader *reader, const sonde__yaml *root)
{
    static const char *const keys[] = {"model",   "data",   "optimizer", "options",
                                       "observe", "record", "rules",     "demo"};

    return sonde__yaml_check_keys(reader, root, keys, SONDE_COUNT_OF(keys));
}

static sonde_err read_sections(const sonde__yaml_reader *reader, const sonde__yaml *root,
                               sonde_nn_job *job)
{
    static const struct {
        const char *name;
        sonde_err (*read)(const sonde__yaml_reader *reader, const sonde__yaml *section,
                          sonde_nn_job *job);
    } sections[] = {{"data", read_data},       {"optimizer", read_optimizer},
                    {"options", read_options}, {"observe", read_observe},
                    {"demo", read_demo},       {"rules", read_rules}};

    SONDE__TRY(check_keys(reader, root));
    for (size_t i = 0; i < SONDE_COUNT_OF(sections); i++) {
        const sonde__yaml *section = sonde__yaml_get(root, sections[i].name);

        if (section != NULL) {
            SONDE__TRY(sections[i].read(reader, section, job));
        }
    }
    return SONDE_OK;
}

/* A job whose model is a name stands on the built-in job of that name. */
static sonde_err read_model_section(const sonde__yaml_reader *reader, sonde_nn_job *job)
{
    const sonde__yaml *model = sonde__yaml_get(job->root, "model");
    const char *text = NULL;
    sonde__yaml_reader builtin = {NULL, reader->diag};

    if (model == NULL && job->root->kind == SONDE__YAML_MAP) {
        SONDE__TRY(check_keys(reader, job->root)); /* it may be misspelt */
    }
    if (model == NULL) {
        return sonde__yaml_fail(reader, job->root, SONDE_EINVAL,
                                "model: a name or layers", "the job has no model");
    }
    if (job->plan != NULL) {
        job->model = model;
        return SONDE_OK;
    }
    if (model->kind != SONDE__YAML_SCALAR) {
        job->model = model;
        return sonde__yaml_text(reader, model, "onnx", &job->onnx);
    }
    if (sonde__job_is_onnx(model->text)) {
        job->model = model;
        job->onnx = model->text;
        return SONDE_OK;
    }
    text = sonde__job_builtin_text(model->text);
    if (text == NULL) {
        return sonde__yaml_fail(reader, model, SONDE_ENOTFOUND, sonde__job_builtin_names,
                                "unknown model '%s'", model->text);
    }
    job->info.model_name = model->text;
    builtin.name = model->text;
    SONDE__TRY(
        sonde__yaml_parse(text, strlen(text), model->text, &job->builtin, reader->diag));
    job->model = sonde__yaml_get(job->builtin, "model");
    return read_sections(&builtin, job->builtin, job);
}

/* Names of inputs that live in the model. */
static sonde_err keep_names(sonde_nn_job *job, sonde_diag *diag)
{
    for (size_t i = 0; job->info.input_count > 1 && i < job->info.input_count; i++) {
        if (job->input_names[i] == NULL) {
            job->input_names[i] = sonde__strdup(job->info.inputs[i].name);
        }
        if (job->input_names[i] == NULL) {
            return sonde__fail_nomem(diag, "a job");
        }
        job->info.inputs[i].name = job->input_names[i];
    }
    return SONDE_OK;
}

/* Builds the model once, to find its mistakes and to complete the info. */
static sonde_err check_model(sonde_nn_job *job, sonde_diag *diag)
{
    const sonde__yaml_reader reader = {job->name, diag};
    sonde_nn_model *model = NULL;

    if (job->onnx != NULL) {
        SONDE__TRY(sonde__job_translate_onnx(&reader, job));
    }
    sonde_err err = sonde__job_build(job, &job->info, &model, diag);

    if (err == SONDE_OK && job->onnx != NULL) {
        err = keep_names(job, diag);
    }
    sonde_nn_model_destroy(model);
    return err;
}

/* Those of the option table, and what no option sets. */
static sonde_err set_defaults(sonde_nn_job *job, sonde_diag *diag)
{
    const sonde_nn_option *row = NULL;

    job->info = (sonde_nn_job_info){.model_name = "",
                                    .data_name = "",
                                    .data_path = "",
                                    .data_target = "",
                                    .tokenizer = "",
                                    .record = {.path = "", .config = ""},
                                    .optimizer = sonde_nn_optimizer_sgd(0.01F, 0.0F)};
    sonde_nn_options_init(&job->info.options);
    for (size_t i = 0; (row = sonde_nn_option_at(i)) != NULL; i++) {
        if (row->standard == NULL) {
            continue;
        }
        SONDE__TRY(sonde_nn_job_set(job, row->name, row->standard, diag));
    }
    return SONDE_OK;
}

/* Takes plan (NULL: none), also after an error. */
static sonde_err parse(const char *text, size_t size, const char *name,
                       sonde_nn_plan *plan, sonde_nn_job **out, sonde_diag *diag)
{
    const sonde__yaml_reader reader = {name, diag};
    sonde_nn_job *job = sonde__calloc(1, sizeof *job);
    sonde_nn_plan_info saved;
    sonde_err err = SONDE_OK;

    if (job == NULL) {
        sonde_nn_plan_destroy(plan);
        return sonde__fail_nomem(diag, "a job");
    }
    job->plan = plan;
    job->name = sonde__strdup(name);
    SONDE__TRY_GO(job->name != NULL ? SONDE_OK : sonde__fail_nomem(diag, "a job"));
    SONDE__TRY_GO(sonde__job_tokens_create(job, diag));
    SONDE__TRY_GO(set_defaults(job, diag));
    job->info.options.plan = plan;
    SONDE__TRY_GO(sonde__yaml_parse(text, size, name, &job->root, diag));
    SONDE__TRY_GO(read_model_section(&reader, job));
    SONDE__TRY_GO(read_sections(&reader, job->root, job));
    SONDE__TRY_GO(keep_record(job, text, size, diag));
    SONDE__TRY_GO(sonde__job_tokens_find(job, diag));
    SONDE__TRY_GO(check_model(job, diag));
    job->info.has_weights = plan != NULL &&
                            sonde_nn_plan_describe(plan, &saved, NULL) == SONDE_OK &&
                            saved.weights;
    job->info.balanced = job->model->kind == SONDE__YAML_MAP &&
                         sonde__job_loss_is_balanced(sonde__yaml_get(job->model, "loss"));
    *out = job;
    return SONDE_OK;

error:
    sonde_nn_job_destroy(job);
    return err;
}

sonde_err sonde_nn_job_parse(const char *text, size_t size, const char *name,
                             sonde_nn_job **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, name, out);
    return parse(text, size, name, NULL, out, diag);
}

/* A job of an ONNX file alone. */
static sonde_err load_onnx(const char *path, sonde_nn_job **out, sonde_diag *diag)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    char text[1024], *place = text + snprintf(text, sizeof text, "model: '");

    for (; *name != '\0' && place + 4 < text + sizeof text; name++) {
        if (*name == '\'') { /* as YAML has it */
            *place++ = '\'';
        }
        *place++ = *name;
    }
    (void)snprintf(place, 3, "'");
    return sonde_nn_job_parse(text, strlen(text), path, out, diag);
}

/* A job that is the text of a plan. */
static sonde_err load_plan(const char *path, sonde_nn_job **out, sonde_diag *diag)
{
    sonde_nn_plan_info info;
    sonde_nn_plan *plan = NULL;
    sonde_err err = sonde_nn_plan_load(path, &plan, diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = sonde_nn_plan_describe(plan, &info, diag);
    if (err == SONDE_OK && info.text[0] == '\0') {
        err = sonde__fail(diag, SONDE_EINVAL, path, "a plan of sonde compile --save",
                          "the plan has no job");
    }
    if (err != SONDE_OK) {
        sonde_nn_plan_destroy(plan);
        return err;
    }
    return parse(info.text, strlen(info.text), path, plan, out, diag);
}

sonde_err sonde_nn_job_load(const char *path, sonde_nn_job **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    if (sonde__job_is_onnx(path)) {
        return load_onnx(path, out, diag);
    }
    if (sonde__job_is_plan(path)) {
        return load_plan(path, out, diag);
    }
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
        goto done;
    }
    size = fread(text, 1, LARGEST + 1, file);
    if (ferror(file)) {
        err = sonde__fail_errno(diag, path, "cannot read the job file");
        goto done;
    }
    if (size > LARGEST) {
        err =
            sonde__fail(diag, SONDE_EINVAL, path, "at most 1 MiB", "the job is too long");
        goto done;
    }
    err = sonde_nn_job_parse(text, size, path, out, diag);

done:
    (void)fclose(file);
    sonde__free(text);
    return err;
}

sonde_err sonde_nn_job_builtin(const char *name, sonde_nn_job **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, name, out);
    const char *text = sonde__job_builtin_text(name);

    if (text == NULL) {
        return sonde__fail(diag, SONDE_ENOTFOUND, name, sonde__job_builtin_names,
                           "no built-in model");
    }
    return sonde_nn_job_parse(text, strlen(text), name, out, diag);
}
