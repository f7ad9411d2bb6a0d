/*
 * cli_pictures.c - see cli_pictures.h.
 */
#include "cli/cli_pictures.h"

#include "base/fail.h"
#include "cli/run_reading.h"

#include <sonde/plot.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

sonde_err cli_curve_add(cli_curve *curve, double x, double y, sonde_diag *diag)
{
    if (curve->count == curve->capacity) {
        const size_t capacity = curve->capacity > 0 ? 2 * curve->capacity : 1024;
        float *xs = realloc(curve->x, capacity * sizeof *xs), *ys = NULL;

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
    curve->x[curve->count] = (float)x;
    curve->y[curve->count++] = (float)y;
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
                              .colours = SONDE_COLOURS_GREY};
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

static sonde_plot_series series_of(const char *name, const cli_curve *curve, bool plain)
{
    const int64_t count = (int64_t)curve->count;

    return (sonde_plot_series){.name = name,
                               .x = sonde_view_of(SONDE_F32, 1, &count, curve->x),
                               .y = sonde_view_of(SONDE_F32, 1, &count, curve->y),
                               .plain = plain};
}

static sonde_err draw_loss(const cli_pictures *run, const char *path, sonde_diag *diag)
{
    const sonde_plot_series series[] = {series_of("training", run->losses, false),
                                        series_of("evaluation", run->evaluations, true)};
    const sonde_curves_plot plot = {.page = {.title = "Loss"},
                                    .series = series,
                                    .count = run->evaluations->count > 0 ? 2 : 1,
                                    .x_label = "Call",
                                    .y_label = "Loss",
                                    .smooth = run->losses->count > 200 ? 0.98 : 0.0};

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
        (void)printf("%" PRId64 " more outputs of the model are no classes of the data\n",
                     unused);
    }
}
