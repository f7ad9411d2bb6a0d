/*
 * cli_job.c - see cli_job.h.
 */
#include "base/fail.h"
#include "cli/cli_job.h"
#include "cli/run_reading.h"

#include <sonde/nn/dataset.h>
#include <sonde/nn/job.h>
#include <sonde/plot.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool ends_with(const char *text, const char *ending)
{
    const size_t length = strlen(text), tail = strlen(ending);

    return length >= tail && strcmp(text + length - tail, ending) == 0;
}

static bool is_job(const char *text)
{
    return ends_with(text, ".yaml") || ends_with(text, ".yml") ||
           ends_with(text, ".onnx") || ends_with(text, ".plan");
}

bool cli_job_is_plan(const char *argument)
{
    return ends_with(argument, ".plan");
}

const char *cli_job_built_in(const char *text)
{
    const char *name = NULL;

    for (size_t i = 0; (name = sonde_nn_job_builtin_name(i)) != NULL; i++) {
        if (strcmp(name, text != NULL ? text : "fashion_cnn") == 0) {
            return name;
        }
    }
    return NULL;
}

sonde_err cli_job_check_file(const char *argument, const char *what, sonde_diag *diag)
{
    char expected[160];

    if (cli_job_built_in(argument) == NULL || access(argument, F_OK) == 0) {
        return SONDE_OK;
    }
    (void)snprintf(expected, sizeof expected, "%s; --model %.60s names the model", what,
                   argument);
    return sonde_diag_set(diag, SONDE_EINVAL, argument, expected, "is a model");
}

sonde_err cli_job_open(const char *text, sonde_nn_job **out, sonde_diag *diag)
{
    if (text == NULL) {
        return sonde_nn_job_builtin("fashion_cnn", out, diag);
    }
    if (ends_with(text, ".safetensors")) {
        return sonde_diag_set(diag, SONDE_EINVAL, text,
                              "a model; --weights names weights", "is a file of weights");
    }
    if (is_job(text) || ends_with(text, ".json") ||
        (strchr(text, '/') != NULL && access(text, F_OK) == 0)) {
        return sonde_nn_job_load(text, out, diag);
    }
    return sonde_nn_job_builtin(text, out, diag);
}

sonde_err cli_weights_load(sonde_nn_job *job, sonde_nn_model *model, const char *path,
                           const char *text, sonde_diag *diag)
{
    const char *file = path != NULL ? path : "sonde-out/model.safetensors";
    sonde_err err = SONDE_OK;

    if (path == NULL && ((text != NULL && ends_with(text, ".onnx")) ||
                         sonde_nn_job_get_info(job)->has_weights)) {
        return SONDE_OK; /* it has its own */
    }
    err = sonde_nn_model_load(model, file, diag);
    if ((err == SONDE_ENOTFOUND && access(file, F_OK) == 0) || err == SONDE_ESHAPE) {
        char other[64] = "weights";

        if (diag->expected[0] != '\0') {
            (void)snprintf(other, sizeof other, "%.60s", diag->expected);
        }
        (void)snprintf(diag->expected, sizeof diag->expected, "%s of the model %.60s",
                       other, text != NULL ? text : "fashion_cnn");
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

sonde_err cli_fetch(const char *name, const char *folder, const char *mirror,
                    const char *title, bool quiet, sonde_diag *diag)
{
    cli_progress progress;
    const sonde_nn_fetch_options options = {.size = sizeof options,
                                            .mirror = mirror,
                                            .progress = on_fetch,
                                            .user = &progress};

    cli_progress_begin(&progress, title, "B", 0, quiet);
    const sonde_err err = sonde_nn_data_fetch(name, folder, &options, diag);

    cli_progress_end(&progress);
    return err;
}

static const char stand_in[] = "fashion-synth";

/* The stand-in, in the cache: drawn once. */
static sonde_err draw_stand_in(const char *name, sonde_diag *diag)
{
    const sonde_nn_synth_options synth = {.size = sizeof synth, .seed = 0};
    sonde_nn_dataset *test = NULL;
    char path[4096];

    SONDE__TRY(sonde_nn_data_cache(name, path, sizeof path, diag));
    /* the test set is written last */
    if (sonde_nn_dataset_open(
            path, SONDE_OPTIONS(sonde_nn_dataset, .name = name, .split = SONDE_NN_TEST),
            &test, NULL) == SONDE_OK) {
        sonde_nn_dataset_destroy(test);
        return SONDE_OK;
    }
    return sonde_nn_synth(path, &synth, diag);
}

/* Fetched into the cache, or drawn there: then the job names the stand-in, for both
 * splits. */
static sonde_err provide(sonde_nn_job_info *info, bool quiet, sonde_diag *diag)
{
    const char *name = info->data_name;
    sonde_diag fetching = {0};
    char path[4096], line[SONDE_DIAG_LINE];
    sonde_err err = SONDE_OK;

    if (strcmp(name, stand_in) == 0) {
        return draw_stand_in(name, diag);
    }
    err = sonde_nn_data_cache(name, path, sizeof path, diag);
    if (err != SONDE_OK ||
        cli_fetch(name, path, NULL, "fetching", quiet, &fetching) == SONDE_OK) {
        return err;
    }
    if (fetching.err == SONDE_EINTERRUPTED) {
        *diag = fetching;
        return SONDE_EINTERRUPTED;
    }
    cli_warn("%s cannot be fetched (%s); a drawn stand-in is used, '%s': "
             "accuracy on it does not apply to %s",
             name, sonde_diag_line(&fetching, line, sizeof line), stand_in, name);
    info->data_name = stand_in;
    return draw_stand_in(stand_in, diag);
}

sonde_err cli_data_open(sonde_nn_job *job, sonde_nn_split split, bool quiet,
                        sonde_nn_dataset **out, sonde_diag *diag)
{
    sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    sonde_err err = SONDE_OK;

    if (strcmp(info->data_path, "auto") == 0) {
        info->data_path = "";
    }
    err = sonde_nn_job_open_data(job, split, out, diag);
    if (err != SONDE_ENOTFOUND || info->data_path[0] != '\0' ||
        sonde_nn_dataset_class_names(info->data_name) == NULL) {
        return err; /* an unknown name is not fetched */
    }
    SONDE__TRY(provide(info, quiet, diag));
    return sonde_nn_job_open_data(job, split, out, diag);
}

sonde_err cli_tokenizer_find(sonde_nn_job *job, const char *weights,
                             char path[CLI_TOKENIZER_PATH], sonde_diag *diag)
{
    const sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    const char *file = weights != NULL ? weights : "sonde-out/model.safetensors";
    const char *slash = strrchr(file, '/');
    const int folder = slash != NULL ? (int)(slash - file) + 1 : 0;
    const int length =
        snprintf(path, CLI_TOKENIZER_PATH, "%.*stokenizer.json", folder, file);

    if (info->input_dtype != SONDE_I64 || info->tokenizer[0] != '\0' || length < 0 ||
        length >= CLI_TOKENIZER_PATH || access(path, R_OK) != 0) {
        return SONDE_OK;
    }
    return sonde_nn_job_set(job, "tokenizer", path, diag);
}

/* --- pictures ---------------------------------------------------------------------- */

sonde_err cli_curve_add(cli_curve *curve, double x, double y, sonde_diag *diag)
{
    if (curve->count == curve->capacity) {
        const size_t capacity = curve->capacity > 0 ? 2 * curve->capacity : 1024;
        double *xs = realloc(curve->x, capacity * sizeof *xs), *ys = NULL;

        if (xs == NULL) {
            return cli_fail_memory(diag);
        }
        curve->x = xs;
        ys = realloc(curve->y, capacity * sizeof *ys);
        if (ys == NULL) {
            return cli_fail_memory(diag);
        }
        curve->y = ys;
        curve->capacity = capacity;
    }
    curve->x[curve->count] = x;
    curve->y[curve->count++] = y;
    return SONDE_OK;
}

void cli_curve_free(cli_curve *curve)
{
    free(curve->x);
    free(curve->y);
    *curve = (cli_curve){0};
}

/* The first samples of the training set under their labels. */
static sonde_err draw_samples(const cli_pictures *run, const char *path, sonde_diag *diag)
{
    enum { COUNT = 15 };
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(run->train);
    const char *labels[COUNT];
    const int64_t count = traits->count < COUNT ? traits->count : COUNT;
    size_t bytes = sonde_dtype_size(traits->dtype);
    const size_t scratch = sonde_nn_dataset_get_traits(run->train)->scratch;
    unsigned char *pixels = NULL, *room = NULL;
    int64_t shape[4] = {count};
    sonde_images_plot plot = {.page = {.title = "Training samples"},
                              .labels = labels,
                              .colors = SONDE_COLORS_GRAY};
    sonde_err err = SONDE_OK;

    for (int i = 0; i < traits->rank; i++) {
        bytes *= (size_t)traits->shape[i];
        shape[i + 1] = traits->shape[i];
    }
    pixels = malloc((size_t)count * bytes);
    room = scratch > 0 ? aligned_alloc(16, (scratch + 15) / 16 * 16) : NULL;
    if (pixels == NULL || (scratch > 0 && room == NULL)) {
        err = diag->err = SONDE_ENOMEM;
        goto done;
    }
    for (int64_t i = 0; i < count; i++) {
        sonde_nn_sample sample;

        SONDE__TRY_DONE(sonde_nn_dataset_get(run->train, i, room, &sample, diag));
        memcpy(pixels + (size_t)i * bytes, sample.data, bytes);
        labels[i] = sonde_nn_dataset_class_name(run->train, sample.label);
    }
    plot.images = sonde_view_of(traits->dtype, traits->rank + 1, shape, pixels);
    err = sonde_plot_images(path, &plot, diag);

done:
    free(pixels);
    free(room);
    return err;
}

sonde_plot_series cli_curve_series(const char *name, const cli_curve *curve)
{
    const int64_t count = (int64_t)curve->count;

    return (sonde_plot_series){.name = name,
                               .x = sonde_view_of(SONDE_F64, 1, &count, curve->x),
                               .y = sonde_view_of(SONDE_F64, 1, &count, curve->y)};
}

static sonde_err draw_loss(const cli_pictures *run, const char *path, sonde_diag *diag)
{
    sonde_plot_series series[] = {cli_curve_series("training", run->losses),
                                  cli_curve_series("evaluation", run->evaluations)};
    const sonde_curves_plot plot = {.page = {.title = "Loss"},
                                    .series = series,
                                    .count = run->evaluations->count > 0 ? 2 : 1,
                                    .x_label = "Call",
                                    .y_label = "Loss",
                                    .smooth = run->losses->count > 200 ? 0.98 : 0.0};

    series[1].plain = true;
    return sonde_plot_curves(path, &plot, diag);
}

sonde_err cli_draw_confusion(const char *path, const sonde_nn_confusion *matrix,
                             const sonde_nn_dataset *set, const char *title,
                             sonde_diag *diag)
{
    const int64_t classes = sonde_nn_confusion_get_info(matrix).classes;
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(set);
    const uint64_t *counts = sonde_nn_confusion_get_info(matrix).counts;
    sonde_confusion_plot plot = {.page = {.title = title}};

    plot.counts = sonde_view_of(SONDE_U64, 2, (int64_t[]){classes, classes}, NULL);
    memcpy(&plot.counts.data, &counts, sizeof counts);
    plot.classes = traits->classes == classes ? traits->class_names : NULL;
    return sonde_plot_confusion(path, &plot, diag);
}

static sonde_err draw_matrix(const cli_pictures *run, const char *path, sonde_diag *diag)
{
    return cli_draw_confusion(path, run->matrix,
                              run->test != NULL ? run->test : run->train,
                              "Confusion matrix", diag);
}

typedef struct picture {
    const char *name;
    bool due;
    sonde_err (*draw)(const cli_pictures *run, const char *path, sonde_diag *diag);
} picture;

static sonde_err draw(const cli_pictures *run, const picture *one, sonde_diag *diag)
{
    char path[4096];

    SONDE__TRY(cli_join(run->out, one->name, path, sizeof path, diag));
    return one->draw(run, path, diag);
}

/* A picture that cannot be drawn is a warning. */
void cli_draw_pictures(const cli_pictures *run, cli_list *drawn)
{
    const picture pictures[] = {
        {"samples.png", sonde_nn_dataset_get_traits(run->train)->rank == 3, draw_samples},
        {"loss.png", run->losses->count > 0, draw_loss},
        {"confusion.png", run->matrix != NULL, draw_matrix}};

    for (size_t i = 0; i < CLI_COUNT_OF(pictures); i++) {
        char line[SONDE_DIAG_LINE];
        sonde_diag diag = {0};

        if (!pictures[i].due) {
            continue;
        }
        if (draw(run, &pictures[i], &diag) != SONDE_OK) {
            cli_warn("no %s: %s", pictures[i].name,
                     sonde_diag_line(&diag, line, sizeof line));
            continue;
        }
        drawn->text[drawn->count++] = pictures[i].name;
    }
}

/* --- scores ----------------------------------------------------------------------- */

void cli_put_score(sonde_json *json, const char *prefix, const sonde_nn_score *score)
{
    const bool shares = score->classes || score->tokens;
    const cli_cell cells[] = {
        cli_real("loss", 9, score->loss),
        score->tokens ? cli_real("perplexity", 9, score->perplexity) : cli_none(),
        shares ? cli_real("accuracy", 9, score->accuracy)
               : cli_real("error", 9, score->error),
        isnan(score->r2) ? cli_none() : cli_real("r2", 9, score->r2),
        cli_int("samples", score->samples)};

    for (size_t i = 0; i < CLI_COUNT_OF(cells); i++) {
        cli_cell cell = cells[i];
        char key[32];

        (void)snprintf(key, sizeof key, "%s%s", prefix, cell.key != NULL ? cell.key : "");
        cell.key = key;
        cli_put_cells(json, &cell, 1);
    }
}

void cli_print_scores(const sonde_nn_score *score, const sonde_nn_confusion *matrix,
                      const sonde_nn_dataset *set, bool brief)
{
    const int64_t classes = sonde_nn_confusion_get_info(matrix).classes;
    const int64_t known = sonde_nn_dataset_get_traits(set)->classes;
    int64_t unused = 0; /* outputs of the model for which the data has no class */

    if (score->tokens) {
        (void)printf("Eval loss: %.4f\nEval perplexity: %.3f, %.3f bits a token\n"
                     "Eval accuracy: %.2f%%\n",
                     score->loss, score->perplexity, score->loss / log(2.0),
                     100.0 * score->accuracy);
        return;
    }
    if (!score->classes) {
        (void)printf("Eval loss: %.6g\nEval mean absolute error: %.6g\n", score->loss,
                     score->error);
        if (!isnan(score->r2)) {
            (void)printf("Eval R2: %.4f\n", score->r2);
        }
        return;
    }
    if (!brief) {
        (void)printf("Eval loss: %.4f\n", score->loss);
    }
    (void)printf("Eval accuracy: %.2f%%\n", 100.0 * score->accuracy);
    if (sonde_nn_confusion_get_info(matrix).nan_rows > 0) {
        (void)printf("%llu predictions were NaN and count as wrong\n",
                     (unsigned long long)sonde_nn_confusion_get_info(matrix).nan_rows);
    }
    if (!brief) {
        (void)printf("%-12s %9s %9s %9s %9s\n", "class", "samples", "precision", "recall",
                     "f1");
    }
    for (int64_t i = 0; !brief && i < classes; i++) {
        const sonde_nn_class_scores scores = sonde_nn_confusion_class(matrix, i);
        char number[24], line[CLI_CLASS];
        const char *name =
            cli_one_line(sonde_nn_dataset_class_name(set, i), line, sizeof line);

        if (i >= known && scores.support == 0) {
            unused++;
            continue;
        }
        (void)snprintf(number, sizeof number, "%lld", (long long)i);
        name = name[0] != '\0' ? name : number;
        (void)printf("%-*s %9llu %8.1f%% %8.1f%% %8.1f%%\n", cli_field(name, 12), name,
                     (unsigned long long)scores.support, 100.0 * scores.precision,
                     100.0 * scores.recall, 100.0 * scores.f1);
    }
    if (unused > 0) {
        (void)printf("%" PRId64
                     " more outputs of the model are not classes of the data\n",
                     unused);
    }
}
