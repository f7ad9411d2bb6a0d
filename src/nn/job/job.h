/*
 * job.h - a job's inside: the tree it was read from and what was made of it.
 */
#ifndef SONDE_NN_JOB_JOB_H
#define SONDE_NN_JOB_JOB_H

#include <sonde/nn/job.h>
#include <sonde/print.h>

#include "base/yaml.h"
#include "nn/ops/layer_row.h"

struct sonde_nn_job {
    char *name;
    sonde__yaml *root;
    sonde__yaml *builtin;             /* the built-in job it stands on, or NULL */
    const sonde__yaml *model;         /* in one of the two */
    const char *onnx;                 /* the file that the model is, or NULL */
    struct sonde_nn_plan *translated; /* that file as a plan, or NULL */
    struct sonde_nn_plan
        *plan; /* what it was loaded from, which has its model, or NULL */
    sonde_nn_job_info info;
    /* Of a model with several inputs that comes from a file: new, or NULL. */
    char *input_names[SONDE_NN_FIELDS];
    const sonde__yaml *groups; /* of the optimizer; NULL: none */
    bool rules_set;            /* by sonde_nn_job_set: the job's own list is gone */
    sonde_nn_job_tap *taps;    /* those of info */
    sonde_nn_demo demo;
    struct sonde__job_tokens *tokens; /* what is known of them */
    float *balanced; /* (balanced_count): weights of classes; NULL: equal ones */
    size_t balanced_count;
    char *record; /* the whole text, if it has a section `record`; else NULL */
    size_t record_size;
};

/* sonde_nn_job_build, completing classes and sample shape of info. */
sonde_err sonde__job_build(const sonde_nn_job *job, sonde_nn_job_info *info,
                           sonde_nn_model **out, sonde_diag *diag);

/* job_plan.c: whether a path names a plan, by its ending or its first bytes. */
bool sonde__job_is_plan(const char *path);
/* The model of a job that was loaded from a plan. */
sonde_err sonde__job_build_plan(const sonde_nn_job *job, sonde_nn_job_info *info,
                                sonde_nn_model **out, sonde_diag *diag);

/* The first `count` inputs of a model from a file, under the names that the job keeps, else
 * those of the model, which live as long as that does. */
sonde_err sonde__job_describe_inputs(const sonde_nn_job *job, const sonde_nn_model *model,
                                     size_t count, sonde_nn_job_info *info,
                                     sonde_diag *diag);
/* Whether a text names an ONNX file, by its ending. */
bool sonde__job_is_onnx(const char *text);
/* Translates the ONNX file that a job's model names; once for a job. Errors name the file, or
 * the line of the section. */
sonde_err sonde__job_translate_onnx(const sonde__yaml_reader *reader, sonde_nn_job *job);
/* A new model of that file, with its inputs and its first output. *loss: the loss of classes
 * that fits what the file ends with. */
sonde_err sonde__job_open_onnx(const sonde__yaml_reader *reader, const sonde_nn_job *job,
                               sonde_nn_model **out, const char **loss);

/* A section whose keys are rows of the option table. */
sonde_err sonde__job_read_options(const sonde__yaml_reader *reader,
                                  const sonde__yaml *section, sonde_nn_job_info *info);
/* The text of a job's data. */
sonde_err sonde__job_open_text(const sonde_nn_job_info *info, sonde_nn_split split,
                               int64_t length, const sonde_nn_tokenizer *tokenizer,
                               sonde_nn_dataset **out, sonde_diag *diag);
/* job_tokens.c: the tokens of a text. A job is created with create and ends with destroy. */
sonde_err sonde__job_tokens_create(sonde_nn_job *job, sonde_diag *diag);
void sonde__job_tokens_destroy(sonde_nn_job *job);
/* With the tree read: finds the numbers `vocabulary` of the model's layers. */
sonde_err sonde__job_tokens_find(sonde_nn_job *job, sonde_diag *diag);
/* Before building: writes the number of tokens there. */
sonde_err sonde__job_tokens_write(const sonde_nn_job *job, sonde_diag *diag);
/* Options of tokens have changed: the tokenizer is made again when it is needed. */
void sonde__job_tokens_forget(sonde_nn_job *job);
/* The key augment of the section data. */
sonde_err sonde__job_read_augment(const sonde__yaml_reader *reader,
                                  const sonde__yaml *section, sonde_nn_job_info *info);
/* An entry of a list in a section, with `extra` keys besides the section's. */
sonde_err sonde__job_read_entry(const sonde__yaml_reader *reader,
                                const sonde__yaml *entry, const char *section,
                                const char *const *extra, size_t extra_count,
                                sonde_nn_job_info *info);
/* Whether all groups share a key of the optimizer: a group cannot have it. */
bool sonde__job_is_shared(const char *key);
/* The list `groups` of the section `optimizer`. */
sonde_err sonde__job_read_groups(const sonde__yaml_reader *reader,
                                 const sonde__yaml *section, sonde_nn_job *job);
/* The list of rules, "none" included. */
sonde_err sonde__job_read_judge(const sonde__yaml_reader *reader, const sonde__yaml *node,
                                sonde_nn_job_info *info);

/* The keys of a layer's entry that belong to its row, as sonde_nn_layer takes them. */
sonde_err sonde__job_read_settings(const sonde__yaml_reader *reader,
                                   const sonde__yaml *entry, const sonde__op_layer *row,
                                   sonde_nn_setting settings[SONDE__MAX_FIELDS],
                                   size_t *count);

/* The layer print, with its keys; errors of building stick in the model. */
sonde_err sonde__job_build_print(const sonde__yaml_reader *reader,
                                 const sonde__yaml *entry, sonde_nn_model *model,
                                 const char *name, sonde_nn_value in,
                                 sonde_nn_value *out);

/* What a loss reads. */
typedef struct sonde__job_compared {
    sonde_nn_value output, sample;
    sonde_nn_value labels; /* 0: the target is the sample */
    sonde_nn_job_target target;
    const float *balanced; /* as in the job */
    size_t balanced_count;
} sonde__job_compared;

/* Whether it has `weight: balanced`. */
bool sonde__job_loss_is_balanced(const sonde__yaml *section);
/* What the loss of the section `loss` compares the output with. */
sonde_err sonde__job_read_target(const sonde__yaml_reader *reader,
                                 const sonde__yaml *section, sonde_nn_job_target *target);
/* Builds that loss; errors of building stick in the model. *class_axis: the dimension of
 * the classes that a loss of classes reads. */
sonde_err sonde__job_build_loss(const sonde__yaml_reader *reader,
                                const sonde__yaml *section, sonde_nn_model *model,
                                const sonde__job_compared *compared, int *class_axis);

/* The section `demo`. */
sonde_err sonde__job_read_demo(const sonde__yaml_reader *reader,
                               const sonde__yaml *section, sonde_nn_demo *demo);

extern const char sonde__job_builtin_names[]; /* as an error lists them */
/* NULL for no built-in model. Accepts - for _. */
SONDE_API const char *sonde__job_builtin_text(const char *name);

#endif
