/*
 * job.h - a training job as text in YAML (of which JSON is a subset): model, data,
 * optimizer, options, taps, recording and rules. The options are one table (below).
 *
 *     model:
 *       input: [1, 28, 28]              # one sample, without the batch
 *       layers:
 *         - conv2d: {name: conv1, out_channels: 5, kernel_size: 3}
 *         - relu: {name: relu}
 *         - linear: {name: fc1, out_features: 100, from: relu}
 *         - log_softmax: {name: log_softmax, dim: 1}
 *       loss: {nll: {name: loss}}       # or cross_entropy, mse_loss ...
 *     data: {name: fashion-mnist, mean: 0.5, std: 0.5}
 *     optimizer: {kind: sgd, learning_rate: 0.001, momentum: 0.9,
 *                 groups: [{name: head, params: "fc*", learning_rate: 0.01}]}
 *     options: {epochs: 5, batch_size: 16, eval_batch_size: 32, seed: 0}
 *     observe:
 *       - {tensors: "Gradient___*", every: 100, print: true}
 *     record: {path: runs/first, every: 100}   # a hook's configuration
 *     rules: {judge: default, stop_on: error}          # or a list of rules, or none
 *
 * A model of several inputs names them, `inputs: {image: [1, 28, 28], place: [2]}` instead
 * of `input`, and its layers read them by `from`.
 *
 * A model of tokens says `dtype: int64` beside `input`, and `target: [64]` if its loss
 * compares a class at each of 64 positions; cross_entropy then has `dim: -1` where the
 * classes are the last dimension.
 *
 * `model: fashion_cnn` takes a built-in model by its name. A layer reads the output of
 * the layer before it, or of the layer that `from` names; add and mul read the two
 * layers of `from: [a, b]`. Errors about unknown keys name the line and the nearest key.
 *
 * One thread at a time for a job.
 */
#ifndef SONDE_NN_JOB_H
#define SONDE_NN_JOB_H

#include <sonde/hook.h>
#include <sonde/nn/loader.h>
#include <sonde/nn/model.h>
#include <sonde/nn/optimizer.h>
#include <sonde/nn/session.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One entry of `observe`: tensors that a command prints. Strings belong to the job. */
typedef struct sonde_nn_job_tap {
    const char *tensors; /* a selector */
    int64_t every;       /* 1 if not given */
    int64_t start, end;  /* 0: from the first, without end */
} sonde_nn_job_tap;

/* Texts, in order. */
enum { SONDE_NN_JOB_TEXTS = 64 };
typedef struct sonde_nn_job_texts {
    const char *text[SONDE_NN_JOB_TEXTS];
    size_t count;
} sonde_nn_job_texts;

/* The section `rules` (<sonde/rules.h>, <sonde/actions.h>). */
typedef struct sonde_nn_job_rules {
    sonde_nn_job_texts judge;   /* for sonde_rules_add_list; empty: the default rules */
    bool none;                  /* no rule judges */
    int64_t every;              /* 0: 20 */
    sonde_nn_job_texts stop_on; /* rules or severities; not checked */
    sonde_nn_job_texts on_finding; /* for sonde_actions_add; not checked */
    bool each;                     /* act on every finding, not once for a rule */
    double action_timeout;         /* seconds; 0: the defaults of actions */
} sonde_nn_job_rules;

/* What a program adds to the section `record`; zero adds nothing. */
typedef struct sonde_nn_job_record {
    const char *path;   /* the run's folder; "" */
    const char *config; /* a hook's configuration file, instead of the section; "" */
    int64_t every, vitals_every; /* steps */
    sonde_nn_job_texts include;  /* selectors */
    bool save_all, no_vitals, compress;
} sonde_nn_job_record;

enum { SONDE_NN_JOB_AUGMENT = 8 };

/* What the loss compares the output with. */
typedef enum sonde_nn_job_target {
    SONDE_NN_TARGET_CLASS = 0,   /* the label, a class: nll and cross_entropy */
    SONDE_NN_TARGET_INPUT = 1,   /* the sample: an autoencoder */
    SONDE_NN_TARGET_NUMBER = 2,  /* the label as a number, (N, 1) */
    SONDE_NN_TARGET_ONE_HOT = 3, /* (N, classes): 1 at the label, otherwise 0 */
    SONDE_NN_TARGET_TOKENS = 4,  /* a class at each position: the model has `target` */
    SONDE_NN_TARGET_VALUES = 5   /* the numbers of the data's target, as the output */
} sonde_nn_job_target;

/* The values of a job; strings belong to it. */
typedef struct sonde_nn_job_info {
    const char *model_name; /* of a built-in model, else "" */
    const char *data_name;  /* "fashion-mnist", "mnist" ...; "" if a path is given */
    const char *data_path;  /* of a data set's folder, or "" */
    float mean, std;        /* of the normalization */
    sonde_nn_optimizer optimizer;
    sonde_nn_options options;       /* of its sessions, the batch size among them */
    const char *data_target;        /* the array or column that is the target; "" */
    sonde_nn_job_texts data_inputs; /* arrays that are the inputs; none: as the model's */
    float test_share;               /* of data without a test set; 0: a tenth */
    int64_t split_seed;             /* draws that test set */
    int64_t synthetic;              /* samples to draw instead of the data; 0: none are */
    bool no_standardize;   /* columns of a table are not brought to mean 0 and spread 1 */
    int tokens;            /* of text: 0 bytes, 1 byte pairs */
    int64_t vocabulary;    /* of byte pairs that are learnt; 0: 512 */
    const char *tokenizer; /* a file or folder that has them; "" */
    sonde_nn_transform augment[SONDE_NN_JOB_AUGMENT]; /* of training samples, in order */
    size_t augment_count;
    sonde_nn_transform
        normalize;           /* by channel, instead of mean and std; channels 0: no */
    int64_t loader_workers;  /* threads that load samples; -1: automatic */
    float validation;        /* share of the training samples to hold out; 0: none */
    int64_t eval_batch_size; /* at most */
    int64_t eval_every;      /* epochs; 0: no evaluation between epochs */
    int64_t eval_samples;    /* of an evaluation between epochs, at most; 0: all */
    int epochs;
    uint64_t seed;
    int rank,
        world; /* of several trainings, the one that shuffled samples are for; 0 and 1
                        (or 0): all samples */
    int64_t classes; /* columns of the model's output; 0: it has no classes */
    bool one_sample; /* build leaves out a last softmax over the batch */
    int sample_rank;
    int64_t sample_shape[SONDE_MAX_DIMS]; /* without the batch */
    sonde_nn_job_rules rules;
    sonde_nn_job_record record;
    sonde_nn_job_target target;
    sonde_nn_rate schedule;   /* of the learning rate; a trainer sets its total */
    sonde_nn_job_texts rates; /* "STEP=RATE", the table of the rate; not checked */
    sonde_dtype input_dtype;  /* of samples: SONDE_F32, or SONDE_I64 for tokens */
    int class_axis;           /* dimension of the classes in the model's output */
    int target_rank;          /* labels, or values, of a sample; 0: one label */
    int64_t target_shape[SONDE_MAX_DIMS];
    size_t input_count;                     /* of the model, without the target */
    sonde_nn_field inputs[SONDE_NN_FIELDS]; /* the first as in sample_shape */
    const sonde_nn_job_tap *taps;           /* tap_count entries of `observe` */
    size_t tap_count;
    size_t group_count; /* of parameters, for sonde_nn_job_get_group */
    bool records;       /* the job has a section `record` */
    bool has_weights;   /* it was loaded from a plan with weights */
    bool balanced;      /* its loss has `weight: balanced` */
} sonde_nn_job_info;

/* An entry of `groups` in the section `optimizer`: the numbers that it lacks are the
 * section's. Strings belong to the job. */
typedef struct sonde_nn_job_group {
    const char *name, *params;
    sonde_nn_optimizer optimizer;
    bool scheduled; /* it has keys of a schedule; else the section's applies */
    sonde_nn_rate schedule;
    sonde_nn_job_texts rates; /* as in sonde_nn_job_info */
} sonde_nn_job_group;

typedef struct sonde_nn_job sonde_nn_job;

/* SONDE_EFORMAT for text that is not YAML, SONDE_EINVAL for wrong keys and values;
 * diag->where is "file:line". An ONNX file or a plan is a job, too. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_load(const char *path, sonde_nn_job **out,
                                                    sonde_diag *diag);
/* The same from memory; name stands in diagnostics. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_parse(const char *text, size_t size,
                                                     const char *name, sonde_nn_job **out,
                                                     sonde_diag *diag);
/* A job made of a built-in model and its usual data and options: fashion_cnn, gpt,
 * lstm, mnist_mlp, mnist_mlp_small. Unknown: SONDE_ENOTFOUND with the list. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_builtin(const char *name,
                                                       sonde_nn_job **out,
                                                       sonde_diag *diag);
/* The name of built-in job i; NULL after the last. Static. */
SONDE_API const char *sonde_nn_job_builtin_name(size_t i);
SONDE_API void sonde_nn_job_destroy(sonde_nn_job *job);

/* Borrowed until destroy; may be changed before building. */
SONDE_API sonde_nn_job_info *sonde_nn_job_get_info(sonde_nn_job *job);

/* The model, `observe` and all options with a value, section by section, as YAML or as one
 * line of JSON: a job with the same model and options. Collections of the section record,
 * and the section demo, are left out. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_print(const sonde_nn_job *job, bool json,
                                                     FILE *stream, sonde_diag *diag);
/* Group i, over what the info holds now. SONDE_EINVAL: its numbers are out of range. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_get_group(const sonde_nn_job *job,
                                                         size_t i,
                                                         sonde_nn_job_group *group,
                                                         sonde_diag *diag);

/* A new hook that the section `record` describes (docs/recording.md). options (may be NULL) override the section; without one they
 * describe the hook alone. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_hook(const sonde_nn_job *job,
                                                    const sonde_hook_options *options,
                                                    sonde_hook **out, sonde_diag *diag);

/* A new model of the job's layers, for any batch size, initialized by info->seed. Inputs:
 * samples, then int64 labels, unless the target is the sample; one output; the loss. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_build(const sonde_nn_job *job,
                                                     sonde_nn_model **out,
                                                     sonde_diag *diag);

/*
 * A session's plan (<sonde/nn/plan.h>) with the job's options and data, without its section
 * record. sonde_nn_job_load reads it as a job, whose model is the one that was saved:
 * weights and all, or drawn from the job's seed.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_save_plan(const sonde_nn_job *job,
                                                         sonde_nn_session *session,
                                                         const char *path, bool weights,
                                                         sonde_diag *diag);

/* A split of the job's data, in data_path or where its name is looked for
 * (SONDE_NN_DATA_NAMED). The samples have the model's shape. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_open_data(const sonde_nn_job *job,
                                                         sonde_nn_split split,
                                                         sonde_nn_dataset **out,
                                                         sonde_diag *diag);
/* False: the data is a folder of images without a folder test. Without a folder train
 * either, both splits are all of its images. */
SONDE_API bool sonde_nn_job_has_test(const sonde_nn_job *job);
/* The transform that normalizes the job's pixels, by channel or by mean and std. */
SONDE_API sonde_nn_transform sonde_nn_job_normalize(const sonde_nn_job *job);
/* Weights the classes of a job that is balanced by the labels of its training set: a class with n of
 * the N labels gets N / (classes n), and 0 without labels. Models built before have equal
 * weights. A trainer does this itself. SONDE_EINVAL: the set has no classes. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_balance(sonde_nn_job *job,
                                                       const sonde_nn_dataset *set,
                                                       sonde_diag *diag);
/* The tokenizer of a job whose data is text in byte pairs: that of its file, or one that is
 * trained on the training split, once. *out NULL: tokens are bytes. Borrowed until the job
 * is destroyed. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_tokenizer(const sonde_nn_job *job,
                                                         const sonde_nn_tokenizer **out,
                                                         sonde_diag *diag);
/* A loader of set with the job's transforms and seed. batch is the combined batch; with
 * shuffle, a smaller last one is dropped and samples are augmented. set is borrowed until the loader's destroy. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_loader(const sonde_nn_job *job,
                                                      const sonde_nn_dataset *set,
                                                      int64_t batch, bool shuffle,
                                                      sonde_nn_loader **out,
                                                      sonde_diag *diag);

/* === options of a training =========================================================== */

/*
 * The options of a training: one table for job files, commands and the
 * environment.
 *
 * Each row is a key of a job's section, a flag of `sonde train` (the name with dashes:
 * --batch-size) and, if the row allows it, an environment variable (SONDE_BATCH_SIZE).
 * Later wins: default, built-in job, job file, sonde_nn_job_set, environment.
 *
 * The table is constant: any number of threads may read it.
 */

typedef enum sonde_nn_option_kind {
    SONDE_NN_OPTION_FLAG = 0,  /* true or false */
    SONDE_NN_OPTION_COUNT = 1, /* a whole number */
    SONDE_NN_OPTION_REAL = 2,  /* a finite number */
    SONDE_NN_OPTION_TEXT = 3,
    SONDE_NN_OPTION_TEXTS =
        4, /* a list; the first sonde_nn_job_set replaces or extends the job's */
    SONDE_NN_OPTION_CHOICE = 5 /* one of a few words */
} sonde_nn_option_kind;

typedef struct sonde_nn_option {
    const char *section; /* of the job: "options" */
    const char *key;     /* there; NULL: not in job files */
    const char *name;    /* "batch_size"; no two rows share one */
    char letter;         /* of the short flag; 0: none */
    bool no_environment; /* there is no variable */
    sonde_nn_option_kind kind;
    const char *value;    /* stands for the value in help, "N"; of CHOICE "mean|sum" */
    const char *standard; /* the default; NULL: none, or said by help */
    const char *help;
    int64_t least, most;      /* of COUNT */
    double least_real, below; /* of REAL: least_real <= value < below */
    const char *field;        /* of sonde_nn_job_info */
    size_t offset, size;      /* of the value there */
    const char *variable;     /* that sets it too, if its own is unset; NULL: none */
} sonde_nn_option;

/* Row i; NULL after the last. Static. */
SONDE_API const sonde_nn_option *sonde_nn_option_at(size_t i);

/* Sets an option by its name; SONDE_EINVAL with the name in diag->where and the range;
 * SONDE_ENOTFOUND: no option has this name. text is borrowed until the job is destroyed. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_set(sonde_nn_job *job, const char *name,
                                                   const char *text, sonde_diag *diag);
/* Sets what the environment sets. A trainer does this itself. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_set_environment(sonde_nn_job *job,
                                                               sonde_diag *diag);

/* === demos =========================================================================== */

/*
 * The section `demo` of a job: a network that goes wrong, why, and the repair.
 *
 *     demo:
 *       what: Most units of a layer give 0 for every sample.
 *       why: ...
 *       repair: ...
 *       rule: DeadRelu                  # finds it; without: no rule may find anything
 *       tensor: relu1_output_0          # is named by the finding; without: any
 *       plot: relu*_output_0            # worth a look
 *       statistic: zero                 # of these
 *       samples: {train: 6400, test: 500}
 *       fault: {alike: true}            # what the rest of a job cannot express
 *       fixed:                          # replaces these in the repaired job; its fault is gone
 *         optimizer: {learning_rate: 0.001}
 *
 * A job with this section trains like any other (sonde train); `sonde demo` also applies
 * samples and fault.
 *
 * Threads: those of the job (<sonde/nn/job.h>).
 */

typedef struct sonde_nn_demo {
    const char *what, *why, *repair;
    const char *rule, *tensor;    /* NULL: none; any */
    const char *plot, *statistic; /* a selector; NULL: no statistic */
    const char
        *collections;    /* of a hook's configuration, to record as well; NULL: none */
    bool pair;           /* two runs, which are compared */
    int64_t raw_every;   /* raw values for rules; 0: the command's choice */
    int64_t train, test; /* samples; test 0: no evaluation */
    /* The fault; zero: none. */
    int64_t scarce;     /* keeps every n-th sample of class 0 */
    int64_t seeds;      /* added to the seed of the second run of a pair */
    float gain;         /* factor of the initial weights */
    float decay;        /* factor of the learning rate after each step */
    bool shuffled;      /* labels belong to other samples */
    bool hole;          /* one pixel of a sample is NaN */
    bool alike;         /* the initial weights of a layer are one number */
    bool twice;         /* every batch is used for two steps */
    const char *frozen; /* module that the optimizer leaves out; NULL: none */
} sonde_nn_demo;

/* Borrowed until destroy; NULL: the job has no such section. */
SONDE_API const sonde_nn_demo *sonde_nn_job_get_demo(const sonde_nn_job *job);
/* Makes the job the repaired one. Once, before building. SONDE_ESTATE: the job has no such
 * section. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_job_fix_demo(sonde_nn_job *job,
                                                        sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
