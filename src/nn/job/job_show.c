/*
 * job_show.c - all options of a job as text: YAML, or JSON on one line. What it prints can
 * be read again as a job's sections, to the same values. The text of a plan is its job with
 * the plan's model, and without the section record, since its run exists already:
 *
 *     model: {saved: fashion_cnn, target: 0, positions: [], inputs: [left, right], axis: 1,
 *             classes: 10}
 *     data: ...
 *
 * A job with tokens also has there the text of its tokenizer.json, as `tokenizer`.
 *
 * An option without a value is left out: a text or a list that is empty, a number or a flag
 * of the sections record and rules that was not given. A model of its own layers, and
 * `observe`, are printed as they were read; collections of `record`, and `demo`, are not.
 */
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/number.h"

#include <sonde/nn/job.h>
#include <sonde/nn/plan.h>
#include <sonde/nn/dataset.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    FILE *stream;
    bool json, plan;
    const char *section; /* that is open; NULL: none */
    bool first;          /* nothing stands in it yet */
} writer;

static void write_text(const writer *w, const char *text)
{
    (void)fputc('"', w->stream);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            (void)fprintf(w->stream, "\\%c", *text);
        } else if ((unsigned char)*text < 0x20) {
            (void)fprintf(w->stream, "\\u%04x", (unsigned)(unsigned char)*text);
        } else {
            (void)fputc(*text, w->stream);
        }
    }
    (void)fputc('"', w->stream);
}

/* Whether JSON has the text as it is: a number, true or false. */
static bool is_bare(const char *text)
{
    const char *first = text + (*text == '-');
    char *end = NULL;

    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        return true;
    }
    (void)sonde__strtod(text, &end);
    return *first >= '0' && *first <= '9' &&
           (first[0] != '0' || first[1] == '\0' || first[1] == '.') && *end == '\0' &&
           strspn(first, "0123456789.eE+-") == strlen(first) && end[-1] != '.';
}

/* A part of the job as it was read, on one line, which is YAML and JSON. */
static void write_tree(const writer *w, const sonde__yaml *node)
{
    const bool map = node->kind == SONDE__YAML_MAP;

    if (node->kind == SONDE__YAML_SCALAR) {
        if (is_bare(node->text)) {
            (void)fputs(node->text, w->stream);
        } else {
            write_text(w, node->text);
        }
        return;
    }
    (void)fputc(map ? '{' : '[', w->stream);
    for (size_t i = 0; i < node->count; i++) {
        (void)fputs(i > 0 ? ", " : "", w->stream);
        if (map) {
            write_text(w, node->children[i]->key);
            (void)fputs(": ", w->stream);
        }
        write_tree(w, node->children[i]);
    }
    (void)fputc(map ? '}' : ']', w->stream);
}

/* The model: the name of a built-in one, or what the job says. */
static void write_model(const writer *w, const sonde_nn_job *job)
{
    const char *name = job->info.model_name;

    (void)fputs(w->json ? "{\"model\": " : "model: ", w->stream);
    if (name[0] != '\0') {
        write_text(w, name);
    } else {
        write_tree(w, job->model);
    }
    (void)fputs(w->json ? "" : "\n", w->stream);
}

static void write_observe(const writer *w, const sonde_nn_job *job)
{
    const sonde__yaml *observe = sonde__yaml_get(job->root, "observe");

    if (observe != NULL) {
        (void)fputs(w->json ? ", \"observe\": " : "observe: ", w->stream);
        write_tree(w, observe);
        (void)fputs(w->json ? "" : "\n", w->stream);
    }
    (void)fputs(w->json ? ", " : "", w->stream);
}

/* The tokenizer as a text, so that a plan needs neither its file nor the text of which it
 * was learnt. */
static sonde_err write_tokenizer(const writer *w, const sonde_nn_job *job,
                                 sonde_diag *diag)
{
    const sonde_nn_tokenizer *tokenizer = NULL;
    size_t size = 0;

    SONDE__TRY(sonde_nn_job_tokenizer(job, &tokenizer, diag));
    if (tokenizer == NULL) {
        return SONDE_OK;
    }
    const char *json = sonde_nn_tokenizer_json(tokenizer, &size);
    char *text = sonde__strndup(json, size);

    if (text == NULL) {
        return sonde__fail_nomem(diag, "a job");
    }
    (void)fputs("  tokenizer: ", w->stream);
    write_text(w, text);
    (void)fputc('\n', w->stream);
    sonde__free(text);
    return SONDE_OK;
}

/* The model of a plan: what its graph does not say. */
static sonde_err write_saved_model(const writer *w, const sonde_nn_job *job,
                                   sonde_diag *diag)
{
    const sonde_nn_job_info *info = &job->info;
    FILE *stream = w->stream;

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
        write_text(w, info->inputs[i].name);
        (void)fputs(i + 1 == info->input_count ? "]\n" : "", stream);
    }
    (void)fprintf(stream, "  axis: %d\n  classes: %" PRId64 "\n", info->class_axis,
                  info->classes);
    return write_tokenizer(w, job, diag);
}

static void begin_section(writer *w, const char *name)
{
    if (w->section != NULL && strcmp(w->section, name) == 0) {
        return;
    }
    if (w->json) {
        (void)fprintf(w->stream, "%s\"%s\": {", w->section != NULL ? "}, " : "", name);
    } else {
        (void)fprintf(w->stream, "%s:\n", name);
    }
    w->section = name;
    w->first = true;
}

static void begin_value(writer *w, const char *section, const char *key)
{
    begin_section(w, section);
    if (w->json) {
        (void)fprintf(w->stream, "%s\"%s\": ", w->first ? "" : ", ", key);
    } else {
        (void)fprintf(w->stream, "  %s: ", key);
    }
    w->first = false;
}

static void end_value(const writer *w)
{
    if (!w->json) {
        (void)fputc('\n', w->stream);
    }
}

/* The shortest decimal that is this float again. */
static void write_real(const writer *w, double value, bool narrow)
{
    char text[40];

    for (int digits = 6; digits <= 17; digits++) {
        (void)sonde__snprintf(text, sizeof text, "%.*g", digits, value);
        if (narrow ? sonde__strtof(text, NULL) == (float)value
                   : sonde__strtod(text, NULL) == value) {
            break;
        }
    }
    (void)fputs(text, w->stream);
}

static double real_of(const sonde_nn_option *row, const void *field)
{
    float narrow = 0.0F;
    double wide = 0.0;

    if (row->size == sizeof narrow) {
        memcpy(&narrow, field, sizeof narrow);
        return (double)narrow;
    }
    memcpy(&wide, field, sizeof wide);
    return wide;
}

static int64_t count_of(const sonde_nn_option *row, const void *field)
{
    int narrow = 0;
    int64_t wide = 0;

    if (row->size == sizeof narrow) {
        memcpy(&narrow, field, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, field, sizeof wide);
    return wide;
}

/* Word i of words parted by '|'. */
static void write_choice(const writer *w, const char *words, int64_t i)
{
    char text[32];

    for (; i > 0; i--) {
        words += strcspn(words, "|") + 1;
    }
    const size_t length = strcspn(words, "|");
    (void)snprintf(text, sizeof text, "%.*s", (int)length, words);
    write_text(w, text);
}

static void write_texts(const writer *w, const sonde_nn_job_texts *texts)
{
    (void)fputc('[', w->stream);
    for (size_t i = 0; i < texts->count; i++) {
        (void)fputs(i > 0 ? ", " : "", w->stream);
        write_text(w, texts->text[i]);
    }
    (void)fputc(']', w->stream);
}

static bool has_value(const sonde_nn_option *row, const void *field)
{
    switch (row->kind) {
    case SONDE_NN_OPTION_COUNT:
        return count_of(row, field) >= row->least;
    case SONDE_NN_OPTION_REAL:
        return isinf(row->least_real) || real_of(row, field) >= row->least_real;
    case SONDE_NN_OPTION_TEXT: {
        const char *text = NULL;

        memcpy(&text, field, sizeof text);
        return text != NULL && text[0] != '\0';
    }
    case SONDE_NN_OPTION_TEXTS:
        return ((const sonde_nn_job_texts *)field)->count > 0;
    case SONDE_NN_OPTION_FLAG: /* a section record would record */
        return *(const bool *)field || (strcmp(row->section, "record") != 0 &&
                                        strcmp(row->section, "rules") != 0);
    case SONDE_NN_OPTION_CHOICE:
        break;
    }
    return true;
}

static void write_value(const writer *w, const sonde_nn_option *row, const void *field)
{
    switch (row->kind) {
    case SONDE_NN_OPTION_FLAG:
        (void)fputs(*(const bool *)field ? "true" : "false", w->stream);
        break;
    case SONDE_NN_OPTION_COUNT:
        (void)fprintf(w->stream, "%" PRId64, count_of(row, field));
        break;
    case SONDE_NN_OPTION_REAL:
        write_real(w, real_of(row, field), row->size == sizeof(float));
        break;
    case SONDE_NN_OPTION_TEXT: {
        const char *text = NULL;

        memcpy(&text, field, sizeof text);
        write_text(w, text);
        break;
    }
    case SONDE_NN_OPTION_TEXTS:
        write_texts(w, field);
        break;
    case SONDE_NN_OPTION_CHOICE:
        write_choice(w, row->value, count_of(row, field));
        break;
    }
}

/* The numbers of a group that groups may have of their own. */
static void write_group(const writer *w, const sonde_nn_job_group *group)
{
    sonde_nn_job_info info = {.optimizer = group->optimizer,
                              .schedule = group->schedule,
                              .rates = group->rates};
    const sonde_nn_option *row = NULL;

    (void)fputs("{\"name\": ", w->stream);
    write_text(w, group->name);
    (void)fputs(", \"params\": ", w->stream);
    write_text(w, group->params);
    for (size_t i = 0; (row = sonde_nn_option_at(i)) != NULL; i++) {
        const void *field = (const char *)&info + row->offset;
        const bool of_schedule =
            row->standard != NULL || row->kind == SONDE_NN_OPTION_TEXTS;

        if (strcmp(row->section, "optimizer") == 0 && !sonde__job_is_shared(row->key) &&
            (group->scheduled || !of_schedule) && has_value(row, field)) {
            (void)fprintf(w->stream, ", \"%s\": ", row->key);
            write_value(w, row, field);
        }
    }
    (void)fputc('}', w->stream);
}

static sonde_err write_groups(writer *w, const sonde_nn_job *job, sonde_diag *diag)
{
    const size_t count = job->info.group_count;

    if (count == 0) {
        return SONDE_OK;
    }
    begin_value(w, "optimizer", "groups");
    (void)fputc('[', w->stream);
    for (size_t i = 0; i < count; i++) {
        sonde_nn_job_group group;
        SONDE__TRY(sonde_nn_job_get_group(job, i, &group, diag));
        (void)fputs(i > 0 ? ", " : "", w->stream);
        write_group(w, &group);
    }
    (void)fputc(']', w->stream);
    end_value(w);
    return SONDE_OK;
}

/* Numbers by channel. */
static void write_channels(const writer *w, const char *key, const float *numbers,
                           int count)
{
    (void)fprintf(w->stream, "\"%s\": [", key);
    for (int i = 0; i < count; i++) {
        (void)fputs(i > 0 ? ", " : "", w->stream);
        write_real(w, (double)numbers[i], true);
    }
    (void)fputc(']', w->stream);
}

static void write_transform(const writer *w, const sonde_nn_transform *transform)
{
    if (transform->kind == SONDE_NN_RANDOM_CROP) {
        (void)fprintf(w->stream,
                      "{\"random_crop\": {\"size\": [%d, %d], \"padding\": %d}}",
                      transform->height, transform->width, transform->padding);
    } else if (transform->kind == SONDE_NN_NORMALIZE) {
        (void)fputs("{\"normalize\": {", w->stream);
        write_channels(w, "mean", transform->mean, transform->channels);
        (void)fputs(", ", w->stream);
        write_channels(w, "std", transform->std, transform->channels);
        (void)fputs("}}", w->stream);
    } else {
        (void)fprintf(w->stream, "{\"random_%s_flip\": {\"p\": ",
                      transform->kind == SONDE_NN_FLIP ? "horizontal" : "vertical");
        write_real(w, (double)transform->probability, true);
        (void)fputs("}}", w->stream);
    }
}

/* The list augment, at the end of the section data. */
static void write_augment(writer *w, const sonde_nn_job_info *info)
{
    const bool normalizes = info->normalize.channels > 0;

    if (info->augment_count == 0 && !normalizes) {
        return;
    }
    begin_value(w, "data", "augment");
    (void)fputc('[', w->stream);
    for (size_t i = 0; i < info->augment_count; i++) {
        (void)fputs(i > 0 ? ", " : "", w->stream);
        write_transform(w, &info->augment[i]);
    }
    if (normalizes) {
        (void)fputs(info->augment_count > 0 ? ", " : "", w->stream);
        write_transform(w, &info->normalize);
    }
    (void)fputc(']', w->stream);
    end_value(w);
}

static sonde_err write_job(writer *w, const sonde_nn_job *job, sonde_diag *diag)
{
    const sonde_nn_option *row = NULL;

    if (w->plan) {
        SONDE__TRY(write_saved_model(w, job, diag));
    } else {
        write_model(w, job);
    }
    write_observe(w, job);
    for (size_t i = 0; (row = sonde_nn_option_at(i)) != NULL; i++) {
        const void *field = (const char *)&job->info + row->offset;
        const bool no_rules = field == &job->info.rules.judge && job->info.rules.none;

        if (w->section != NULL && strcmp(w->section, "optimizer") == 0 &&
            strcmp(row->section, "optimizer") != 0) {
            SONDE__TRY(write_groups(w, job, diag));
        }
        if (w->section != NULL && strcmp(w->section, "data") == 0 &&
            strcmp(row->section, "data") != 0) {
            write_augment(w, &job->info);
        }
        if (row->key == NULL || (!no_rules && !has_value(row, field)) ||
            (w->plan && strcmp(row->section, "record") == 0)) {
            continue;
        }
        begin_value(w, row->section, row->key);
        if (no_rules) {
            write_text(w, "none");
        } else {
            write_value(w, row, field);
        }
        end_value(w);
    }
    (void)fputs(w->json ? "}}\n" : "", w->stream);
    return SONDE_OK;
}

sonde_err sonde_nn_job_print(const sonde_nn_job *job, bool json, FILE *stream,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, stream);
    writer w = {.stream = stream, .json = json};

    SONDE__TRY(write_job(&w, job, diag));
    return ferror(stream) != 0
               ? sonde__fail(diag, SONDE_EIO, "options", NULL, "they cannot be written")
               : SONDE_OK;
}

sonde_err sonde_nn_job_save_plan(const sonde_nn_job *job, sonde_nn_session *session,
                                 const char *path, bool weights, sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, session, path);
    char *text = NULL;
    size_t size = 0;

    if (!weights && job->info.balanced) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, path,
                           "a list of weights, or weights of a training",
                           "the weights of the job's loss come from the training set");
    }
    writer w = {.stream = open_memstream(&text, &size), .plan = true};
    if (w.stream == NULL) {
        return sonde__fail_nomem(diag, "a job");
    }
    sonde_err err = write_job(&w, job, diag);
    if (fclose(w.stream) != 0 && err == SONDE_OK) {
        err = sonde__fail_nomem(diag, "a job");
    }
    if (err == SONDE_OK) {
        err = sonde_nn_plan_save(
            session, path,
            &(sonde_nn_plan_options){
                .size = sizeof(sonde_nn_plan_options), .weights = weights, .text = text},
            diag);
    }
    free(text);
    return err;
}
