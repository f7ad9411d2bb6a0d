/*
 * evaluator.c - see evaluator.h.
 */
#include "nn/train/train_state.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/options.h"

#include <math.h>
#include <string.h>

/* Elements that a view may not be written through. */
static sonde_view const_view(sonde_dtype dtype, int rank, const int64_t *shape,
                             const void *data)
{
    sonde_view view = sonde_view_of(dtype, rank, shape, NULL);

    memcpy(&view.data, &data, sizeof data);
    return view;
}

size_t sonde__train_batch_views(const sonde_nn_loader *loader,
                                const sonde_nn_batch *batch,
                                sonde_view inputs[SONDE_NN_FEED_INPUTS])
{
    const sonde_nn_loader_info info = sonde_nn_loader_get_info(loader);
    const sonde_nn_dataset_traits *traits = info.traits;
    int64_t shape[SONDE_MAX_DIMS] = {batch->count};
    size_t count = 1;

    memcpy(shape + 1, info.shape, sizeof info.shape);
    inputs[0] = sonde_view_of(info.dtype, info.rank + 1, shape, batch->data);
    for (size_t i = 0; i < traits->field_count; i++) {
        const sonde_nn_field *field = &traits->fields[i];

        memcpy(shape + 1, field->shape, sizeof field->shape);
        inputs[count++] =
            const_view(field->dtype, field->rank + 1, shape, batch->fields[i]);
    }
    if (!traits->has_target) {
        shape[1] = batch->label_length;
        inputs[count++] =
            const_view(SONDE_I64, shape[1] > 0 ? 2 : 1, shape, batch->labels);
    }
    return count;
}

enum { SEED = 0 }; /* draws the samples of a partial evaluation, the same in every run */

/* Of a column of numbers: its targets about the first of them, and what is left of them. */
typedef struct fit_sums {
    double first, sum, squares, residual;
} fit_sums;

struct sonde_nn_evaluator {
    sonde_nn_evaluator_options options;
    sonde_nn_options session; /* the sessions' */
    sonde_nn_model *model;
    sonde_nn_loader *loader;
    sonde_nn_loader *own_loader;    /* the same, if the evaluator made it */
    sonde_nn_dataset *part;         /* of the set; NULL: all of it */
    sonde_nn_session *whole, *rest; /* for whole batches, and for a smaller last one */
    sonde_nn_confusion *matrix;     /* NULL: the model has no classes */
    sonde_nn_job_target target;
    int class_axis;          /* of tokens */
    sonde__train_mean error; /* of elements, without classes; of tokens: right ones */
    sonde__train_mean loss;
    size_t loss_output; /* SIZE_MAX: none */
    int64_t batch;
    int64_t samples; /* of the last run, without classes */
    uint64_t runs;
    fit_sums *sums; /* (columns) of a target of numbers, or NULL */
    int64_t columns;
};

/* --- setting up ------------------------------------------------------------------- */

static sonde_err make_session(const sonde_nn_evaluator *evaluator, int64_t batch,
                              sonde_nn_session **out, sonde_diag *diag)
{
    const sonde_nn_evaluator_options *options = &evaluator->options;
    sonde_nn_options session = evaluator->session;

    session.batch_size = batch;
    SONDE__TRY(sonde_nn_session_create(evaluator->model, &session, NULL, out, diag));
    SONDE__TRY(sonde_nn_session_set(*out,
                                    SONDE_OPTIONS(sonde_nn_session, .hook = options->hook,
                                                  .attach = options->attach,
                                                  .user = options->attach_user),
                                    diag));
    return sonde_nn_session_compile(*out, diag);
}

/* Columns of the scores: classes. */
static sonde_err make_matrix(sonde_nn_evaluator *evaluator, sonde_diag *diag)
{
    int rank = 0;
    const int64_t *shape = sonde_nn_value_shape(
        evaluator->model, sonde_nn_model_output(evaluator->model, 0), &rank);

    if (shape == NULL || rank != 2) {
        return sonde__fail(diag, SONDE_ESHAPE, "evaluation", "(N, classes)",
                           "the first output has %d dimensions", rank);
    }
    return sonde_nn_confusion_create(shape[1], &evaluator->matrix, diag);
}

/* A sum for each number of the output. */
static sonde_err make_sums(sonde_nn_evaluator *evaluator, sonde_diag *diag)
{
    int rank = 0;
    const int64_t *shape = sonde_nn_value_shape(
        evaluator->model, sonde_nn_model_output(evaluator->model, 0), &rank);

    evaluator->columns = 1;
    for (int i = 1; shape != NULL && i < rank; i++) {
        evaluator->columns *= shape[i];
    }
    evaluator->sums = sonde__calloc((size_t)evaluator->columns, sizeof *evaluator->sums);
    return evaluator->sums != NULL ? SONDE_OK : sonde__fail_nomem(diag, "sums of errors");
}

static sonde_err set_up(sonde_nn_evaluator *evaluator, sonde_nn_loader *loader,
                        sonde_diag *diag)
{
    const int64_t count = sonde_nn_loader_get_info(loader).samples;

    evaluator->loader = loader;
    evaluator->batch = sonde_nn_loader_get_info(loader).batch;
    evaluator->batch = count < evaluator->batch ? count : evaluator->batch;
    SONDE__TRY(make_session(evaluator, evaluator->batch, &evaluator->whole, diag));
    if (evaluator->target == SONDE_NN_TARGET_CLASS ||
        evaluator->target == SONDE_NN_TARGET_ONE_HOT) {
        SONDE__TRY(make_matrix(evaluator, diag));
    }
    if (evaluator->target == SONDE_NN_TARGET_VALUES) {
        SONDE__TRY(make_sums(evaluator, diag));
    }
    if (count % evaluator->batch != 0) {
        SONDE__TRY(
            make_session(evaluator, count % evaluator->batch, &evaluator->rest, diag));
    }
    return SONDE_OK;
}

static sonde_err make(sonde_nn_model *model, const sonde_nn_evaluator_options *options,
                      sonde_nn_evaluator **out, sonde_diag *diag)
{
    sonde_nn_options session;
    sonde_nn_options_init(&session);
    if (options->session != NULL) {
        SONDE__TAKE(sonde_nn_options, &session, options->session, diag);
    }
    sonde_nn_evaluator *const evaluator = sonde__calloc(1, sizeof *evaluator);
    if (evaluator == NULL) {
        (void)sonde__fail_nomem(diag, "an evaluation");
        return SONDE_ENOMEM; /* not 0, as compilers see */
    }
    evaluator->model = model;
    evaluator->loss_output = sonde_nn_output_loss(model);
    evaluator->options = *options;
    evaluator->session = session;
    evaluator->session.on_progress = NULL;
    evaluator->session.device_iterations = 1;
    evaluator->session.gradient_accumulation = 1;
    evaluator->session.replicas = 1;
    evaluator->session.output_mode = SONDE_ANCHOR_ALL;
    evaluator->session.fixed_batch = true;
    *out = evaluator;
    return SONDE_OK;
}

static sonde_err finish_create(sonde_nn_evaluator *evaluator, sonde_nn_loader *loader,
                               sonde_nn_evaluator **out, sonde_diag *diag)
{
    const sonde_err err = set_up(evaluator, loader, diag);

    if (err != SONDE_OK) {
        sonde_nn_evaluator_destroy(evaluator);
        return err;
    }
    *out = evaluator;
    return SONDE_OK;
}

static sonde_err create_for_job(sonde_nn_job *job, sonde_nn_model *model,
                                const sonde_nn_evaluator_options *options,
                                sonde_nn_evaluator **out, sonde_diag *diag)
{
    const sonde_nn_dataset *const set = options->set;
    SONDE__NEEDS(diag, set);
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    const int64_t most = options->most;
    const int64_t all = sonde_nn_dataset_get_traits(set)->count;
    const int64_t count = most > 0 && most < all ? most : all;
    const int64_t batches = (count + info->eval_batch_size - 1) / info->eval_batch_size;
    sonde_err err = SONDE_OK;
    sonde_nn_evaluator *evaluator = NULL;
    if (count < 1) {
        return sonde__fail(diag, SONDE_EINVAL, sonde_nn_dataset_get_traits(set)->source,
                           "a sample or more", "no samples to evaluate on");
    }
    SONDE__TRY(make(model, options, &evaluator, diag));
    evaluator->target = info->target;
    evaluator->class_axis = info->class_axis;
    if (evaluator->options.session == NULL) {
        evaluator->session.threads = info->options.threads;
    }
    if (count < all) {
        SONDE__TRY_GO(
            sonde_nn_dataset_split(set, count, SEED, &evaluator->part, NULL, diag));
    }
    SONDE__TRY_GO(sonde_nn_job_loader(
        job, evaluator->part != NULL ? evaluator->part : set,
        (count + batches - 1) / batches, false, &evaluator->own_loader, diag));
    return finish_create(evaluator, evaluator->own_loader, out, diag);

error:
    sonde_nn_evaluator_destroy(evaluator);
    return err;
}

sonde_err sonde_nn_evaluator_create(sonde_nn_job *job, sonde_nn_model *model,
                                    const sonde_nn_evaluator_options *options,
                                    sonde_nn_evaluator **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, model, options, out);
    sonde_nn_evaluator_options taken;
    sonde_nn_evaluator *evaluator = NULL;
    SONDE__TAKE(sonde_nn_evaluator_options, &taken, options, diag);
    if (job != NULL) {
        return create_for_job(job, model, &taken, out, diag);
    }
    sonde_nn_loader *const loader = taken.loader;
    SONDE__NEEDS(diag, loader);
    SONDE__TRY(make(model, &taken, &evaluator, diag));
    return finish_create(evaluator, loader, out, diag);
}

void sonde_nn_evaluator_destroy(sonde_nn_evaluator *evaluator)
{
    if (evaluator == NULL) {
        return;
    }
    sonde_nn_loader_destroy(evaluator->own_loader);
    sonde_nn_session_destroy(evaluator->whole);
    sonde_nn_session_destroy(evaluator->rest);
    sonde_nn_confusion_destroy(evaluator->matrix);
    sonde_nn_dataset_destroy(evaluator->part);
    sonde__free(evaluator->sums);
    sonde__free(evaluator);
}

/* --- running ---------------------------------------------------------------------- */

/* Of `all` inputs, those that the model reads: without the target if no loss reads it. */
static size_t count_inputs(const sonde_nn_evaluator *evaluator, size_t all)
{
    return evaluator->loss_output == SIZE_MAX ||
                   evaluator->target == SONDE_NN_TARGET_INPUT
               ? all - 1
               : all;
}

/* Whether the class with the largest score of position n is `label`. NaN is none. */
static bool is_right(const float *scores, const int64_t *label, int64_t n,
                     int64_t classes, int64_t step)
{
    const float *first = scores + (n / step * classes) * step + n % step;

    return sonde_nn_argmax(SONDE_F32, first, classes, step) == label[n];
}

/* Counts the positions whose token is predicted. */
static void measure_tokens(sonde_nn_evaluator *evaluator, const sonde_view *scores,
                           const int64_t *label)
{
    const int axis = evaluator->class_axis;
    const int64_t classes = scores->shape[axis];
    const int64_t positions = sonde_view_count(scores) / classes;
    int64_t step = 1, right = 0;

    for (int i = axis + 1; i < scores->rank; i++) {
        step *= scores->shape[i];
    }
    for (int64_t n = 0; n < positions; n++) {
        right += is_right(scores->data, label, n, classes, step) ? 1 : 0;
    }
    sonde__train_mean_add(&evaluator->error, (double)right / (double)positions,
                          (double)positions);
    evaluator->samples += scores->shape[0];
}

/* Adds a batch of numbers to the error and to the sums of R2, column by column. Sums are
 * about the first target of the column, so that they lose few digits. */
static void measure_values(sonde_nn_evaluator *evaluator, const sonde_view *output,
                           const sonde_view *target)
{
    const float *have = output->data, *wanted = target->data;
    const int64_t rows = output->shape[0], columns = sonde_view_count(output) / rows;
    double error = 0.0;

    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < columns; k++) {
            fit_sums *sums = &evaluator->sums[k];
            const double y = (double)wanted[i * columns + k];
            const double off = (double)have[i * columns + k] - y;

            sums->first = evaluator->samples + i == 0 ? y : sums->first;
            sums->sum += y - sums->first;
            sums->squares += (y - sums->first) * (y - sums->first);
            sums->residual += off * off;
            error += fabs(off);
        }
    }
    sonde__train_mean_add(&evaluator->error, error / (double)(rows * columns),
                          (double)(rows * columns));
    evaluator->samples += rows;
}

/* The share of the target's variance that the output explains, over all columns. */
static double r_squared(const sonde_nn_evaluator *evaluator)
{
    const double n = (double)evaluator->samples;
    double residual = 0.0, total = 0.0;

    for (int64_t k = 0; k < evaluator->columns; k++) {
        const fit_sums *sums = &evaluator->sums[k];

        residual += sums->residual;
        total += sums->squares - sums->sum * sums->sum / n;
    }
    return evaluator->columns > 0 && n > 0.0 && total > 0.0 ? 1.0 - residual / total
                                                            : (double)NAN;
}

/* Adds a batch to the matrix, or to the mean absolute error. */
static sonde_err measure(sonde_nn_evaluator *evaluator, const sonde_view *scores,
                         const sonde_view *sampled, const sonde_view *target,
                         sonde_diag *diag)
{
    const float *have = scores->data, *sample = sampled->data;
    const int64_t *label = target->data;
    const int64_t count = sonde_view_count(scores);
    double sum = 0.0;

    if (evaluator->matrix != NULL) {
        return sonde_nn_confusion_update(evaluator->matrix, scores, target, diag);
    }
    if (evaluator->target == SONDE_NN_TARGET_TOKENS) {
        measure_tokens(evaluator, scores, label);
        return SONDE_OK;
    }
    if (evaluator->sums != NULL) {
        measure_values(evaluator, scores, target);
        return SONDE_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        sum += fabs((double)have[i] - (evaluator->target == SONDE_NN_TARGET_INPUT
                                           ? (double)sample[i]
                                           : (double)label[i]));
    }
    sonde__train_mean_add(&evaluator->error, sum / (double)count, (double)count);
    evaluator->samples += scores->shape[0];
    return SONDE_OK;
}

static sonde_err take_batch(sonde_nn_evaluator *evaluator, const sonde_nn_batch *batch,
                            sonde_diag *diag)
{
    const bool lossy = evaluator->loss_output != SIZE_MAX;
    sonde_nn_session *session =
        batch->count == evaluator->batch ? evaluator->whole : evaluator->rest;
    sonde_view inputs[SONDE_NN_FEED_INPUTS], scores, loss;

    const size_t count = sonde__train_batch_views(evaluator->loader, batch, inputs);
    SONDE__TRY(
        sonde_nn_session_run(session, inputs, count_inputs(evaluator, count), diag));
    SONDE__TRY(sonde_nn_session_output(session, 0, &scores, diag));
    SONDE__TRY(measure(evaluator, &scores, &inputs[0], &inputs[count - 1], diag));
    if (!lossy) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde_nn_session_output(session, evaluator->loss_output, &loss, diag));
    sonde__train_mean_add(&evaluator->loss, (double)*(const float *)loss.data,
                          (double)batch->count);
    return SONDE_OK;
}

sonde_err sonde_nn_evaluator_run(sonde_nn_evaluator *evaluator, sonde_diag *diag)
{
    SONDE__NEEDS(diag, evaluator);
    const sonde_nn_evaluator_options *options = &evaluator->options;
    const int64_t total = sonde_nn_loader_get_info(evaluator->loader).samples;
    int64_t done = 0;

    sonde_nn_confusion_reset(evaluator->matrix);
    evaluator->loss = evaluator->error = (sonde__train_mean){0};
    evaluator->samples = 0;
    if (evaluator->sums != NULL) {
        memset(evaluator->sums, 0, (size_t)evaluator->columns * sizeof *evaluator->sums);
    }
    sonde_nn_loader_start_epoch(evaluator->loader, evaluator->runs++);
    for (;;) {
        sonde_nn_batch batch;

        SONDE__TRY(sonde_nn_loader_next(evaluator->loader, &batch, diag));
        if (batch.count == 0) {
            return SONDE_OK;
        }
        SONDE__TRY(take_batch(evaluator, &batch, diag));
        done += batch.count;
        if (options->progress != NULL &&
            !options->progress(options->progress_user, done, total)) {
            return sonde__fail(diag, SONDE_EINTERRUPTED, "", NULL, "%s", "");
        }
    }
}

sonde_nn_score sonde_nn_evaluator_score(const sonde_nn_evaluator *evaluator)
{
    if (evaluator == NULL) {
        return (sonde_nn_score){0};
    }
    if (evaluator->target == SONDE_NN_TARGET_TOKENS) {
        const double loss = sonde__train_mean_get(&evaluator->loss);

        return (sonde_nn_score){.loss = loss,
                                .tokens = true,
                                .accuracy = sonde__train_mean_get(&evaluator->error),
                                .samples = evaluator->samples,
                                .error = (double)NAN,
                                .r2 = (double)NAN,
                                .perplexity = exp(loss)};
    }
    if (evaluator->matrix == NULL) {
        return (sonde_nn_score){.loss = sonde__train_mean_get(&evaluator->loss),
                                .accuracy = (double)NAN,
                                .samples = evaluator->samples,
                                .error = sonde__train_mean_get(&evaluator->error),
                                .r2 = r_squared(evaluator)};
    }
    return (sonde_nn_score){
        .loss = sonde__train_mean_get(&evaluator->loss),
        .classes = true,
        .matrix = evaluator->matrix,
        .error = (double)NAN,
        .r2 = (double)NAN,
        .accuracy = sonde_nn_confusion_get_info(evaluator->matrix).accuracy,
        .samples = (int64_t)sonde_nn_confusion_get_info(evaluator->matrix).total};
}

/* --- means -------------------------------------------------------------------------- */

void sonde__train_mean_add(sonde__train_mean *mean, double value, double weight)
{
    const double x = value * weight;
    const double sum = mean->sum + x;

    if (!isfinite(x)) {
        mean->nonfinite++;
        return;
    }
    mean->rest +=
        fabs(mean->sum) >= fabs(x) ? (mean->sum - sum) + x : (x - sum) + mean->sum;
    mean->sum = sum;
    mean->weight += weight;
}

double sonde__train_mean_get(const sonde__train_mean *mean)
{
    if (mean->nonfinite > 0 || mean->weight == 0.0) {
        return (double)NAN;
    }
    return (mean->sum + mean->rest) / mean->weight;
}
