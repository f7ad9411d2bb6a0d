/*
 * evaluator.h - how well a model does on a data set, as often as needed.
 *
 *     create, which compiles; run, run ...; score; destroy
 *
 * An evaluator uses the model's parameters and changes nothing of the model. Every
 * sample that the loader delivers counts once: a smaller last batch has a plan of its
 * own.
 *
 * One thread at a time for an evaluator and its model.
 */
#ifndef SONDE_NN_EVALUATOR_H
#define SONDE_NN_EVALUATOR_H

#include <sonde/options.h>
#include <sonde/nn/job.h>
#include <sonde/nn/loader.h>
#include <sonde/nn/session.h>
#include <sonde/tensor.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* === metrics ========================================================================= */

/*
 * Accuracy, confusion matrix and per-class scores of a classifier.
 *
 * A confusion matrix counts the predictions for samples of each class over any number of
 * batches; accuracy and per-class scores follow from it. The prediction of a row of
 * scores (logits or log-probabilities) is its largest entry, the first of equals. A row
 * with a NaN predicts nothing: it counts as wrong, and is also counted separately.
 *
 * One thread at a time for a matrix.
 */

typedef struct sonde_nn_confusion sonde_nn_confusion;

SONDE_API SONDE_CHECKED sonde_err sonde_nn_confusion_create(int64_t classes,
                                                            sonde_nn_confusion **out,
                                                            sonde_diag *diag);
SONDE_API void sonde_nn_confusion_destroy(sonde_nn_confusion *matrix);
/* Sets all counts to 0. */
SONDE_API void sonde_nn_confusion_reset(sonde_nn_confusion *matrix);
/*
 * Counts a batch: scores (N, classes) of any float dtype, labels (N) of any integer
 * dtype, any strides. After SONDE_ESHAPE, SONDE_EDTYPE or SONDE_ERANGE (a label out of
 * range) no row is counted. Nothing is allocated.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_confusion_update(sonde_nn_confusion *matrix,
                                                            const sonde_view *scores,
                                                            const sonde_view *labels,
                                                            sonde_diag *diag);
enum { SONDE_NN_NAN_ROW = -1 }; /* the prediction of a row with a NaN */
/* The prediction of one row of n scores at stride elements: as above. */
SONDE_API int64_t sonde_nn_argmax(sonde_dtype dtype, const void *row, int64_t n,
                                  int64_t stride);

typedef struct sonde_nn_confusion_info {
    int64_t classes;
    const uint64_t
        *counts; /* (classes, classes): labels, predictions; borrowed until destroy */
    uint64_t total, nan_rows; /* samples */
    double accuracy;          /* correct / total; NaN if nothing is counted */
} sonde_nn_confusion_info;

SONDE_API sonde_nn_confusion_info
sonde_nn_confusion_get_info(const sonde_nn_confusion *matrix);

/* Scores of one class. A quotient with denominator 0 is 0. */
typedef struct sonde_nn_class_scores {
    uint64_t support;  /* samples of this class, NaN rows included */
    uint64_t nan_rows; /* of them */
    double precision;  /* correctly predicted / predicted */
    double recall;     /* correctly predicted / support */
    double f1;         /* harmonic mean of the two */
} sonde_nn_class_scores;

SONDE_API sonde_nn_class_scores sonde_nn_confusion_class(const sonde_nn_confusion *matrix,
                                                         int64_t label);

typedef struct sonde_nn_evaluator sonde_nn_evaluator;

typedef struct sonde_nn_evaluator_options {
    size_t size;                     /* sizeof(sonde_nn_evaluator_options) */
    const sonde_nn_options *session; /* copied; NULL: the defaults. Its batch size, device
                                        iterations and accumulation are ignored */
    sonde_hook *hook;                /* records the evaluation; borrowed; NULL: none */
    sonde_nn_attach attach;          /* called when a session compiles; NULL: nothing */
    void *attach_user;
    /* Called after every batch; false ends the run with SONDE_EINTERRUPTED. NULL: none.
     */
    bool (*progress)(void *user, int64_t done, int64_t total);
    void *progress_user;

    sonde_nn_loader *loader; /* without a job: the samples; borrowed until destroy */

    /* For a job: */
    const sonde_nn_dataset *set; /* the samples; borrowed until destroy */
    int64_t most;                /* of them, always the same ones; 0: all */
} sonde_nn_evaluator_options;

/*
 * The model's first output holds the scores, (N, classes); its first input takes the
 * samples, the second the labels. The evaluator adds the model's loss to its outputs
 * (sonde_nn_output_loss) and averages it; without a loss, score.loss is NaN. model is
 * borrowed until destroy.
 *
 * A job (NULL: none) brings its transforms and options along; model is one that
 * sonde_nn_job_build made. The batches have at most the job's eval_batch_size samples and are
 * nearly equal, so that the mean of their losses is nearly that of the samples. A job whose
 * target is the sample or a number has no matrix and no accuracy, but a mean absolute error.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_evaluator_create(
    sonde_nn_job *job, sonde_nn_model *model, const sonde_nn_evaluator_options *options,
    sonde_nn_evaluator **out, sonde_diag *diag);
/* NULL is fine. */
SONDE_API void sonde_nn_evaluator_destroy(sonde_nn_evaluator *evaluator);

/* Clears the last result and evaluates the whole set once. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_evaluator_run(sonde_nn_evaluator *evaluator,
                                                         sonde_diag *diag);

typedef struct sonde_nn_score {
    double loss;     /* mean over the samples; NaN if any batch's loss is not finite */
    double accuracy; /* NaN: the model has no classes */
    int64_t samples;
    bool classes; /* the model has classes: accuracy counts, else error */
    double error; /* mean absolute difference of output and target, else NaN */
    bool
        tokens; /* the target is a token at each position: accuracy and perplexity count */
    double perplexity; /* exp(loss) */
    double
        r2; /* of a target of numbers: the share of its variance, over all columns, that
                  the output explains, 1 at best; else NaN */
    const sonde_nn_confusion
        *matrix; /* borrowed until destroy; the next run changes it. NULL: the
                                       * model has no classes */
} sonde_nn_score;

/* The last run's. */
SONDE_API sonde_nn_score sonde_nn_evaluator_score(const sonde_nn_evaluator *evaluator);
/* --- continuing a text -------------------------------------------------------------- */

typedef struct sonde_nn_generate_options {
    size_t size;       /* sizeof(sonde_nn_generate_options) */
    int64_t count;     /* of tokens to generate; at least 1 */
    float temperature; /* divides the scores before they are probabilities; 0: always the
                          likeliest token */
    uint64_t seed;
    /* Called with each token; false ends the generation. NULL: none. */
    bool (*take)(void *user, int64_t token);
    void *user;
} sonde_nn_generate_options;

/*
 * Continues a prompt with a causal model whose first input is int64 tokens (N, T) and whose
 * first output is their scores (N, T, tokens): each token is drawn from the scores at the
 * last one, of which the model sees the last T. The same seed draws the same tokens.
 * SONDE_ERANGE: a token of the prompt is out of range. SONDE_ESTATE: the scores are NaN.
 */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_generate(sonde_nn_model *model, const int64_t *prompt, int64_t prompt_count,
                  const sonde_nn_generate_options *options, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
