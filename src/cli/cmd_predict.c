/*
 * cmd_predict.c - `sonde predict`: classifies images with saved weights.
 *
 * The image is transformed to match the data set: resized, made grey, and inverted if its
 * background is light.
 */
#include "cli/cli_job.h"
#include "cli/cli_run.h"

#include <sonde/nn/metrics.h>
#include <sonde/nn/session.h>
#include <sonde/plot.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct predict_values {
    const char *model, *weights, *picture;
    int64_t top, threshold;
    bool no_invert, json;
} predict_values;

/* The name of a class, or its number if the data set is unknown. */
static const char *class_name(const sonde_nn_job_info *info, int64_t label, char *buf,
                              size_t size)
{
    const char *const *names = sonde_nn_dataset_class_names(info->data_name);

    (void)snprintf(buf, size, "%lld", (long long)label);
    return names != NULL ? names[label] : buf;
}

typedef struct prediction {
    const predict_values *asked;
    const sonde_nn_job_info *info;
    sonde_nn_session *session;
    sonde_nn_dataset *image;
    sonde_nn_pipeline *pipeline;
    float *input;
} prediction;

static sonde_err make_pipeline(prediction *run, sonde_diag *diag)
{
    const sonde_nn_job_info *info = run->info;
    sonde_nn_transform list[6];
    size_t count = 0;

    if (info->sample_rank != 3 || info->sample_shape[0] != 1) {
        return sonde_diag_set(diag, SONDE_ESHAPE, "predict", "samples of (1, H, W)",
                              "the model does not take grey images");
    }
    list[count++] = sonde_nn_resize((int)info->sample_shape[1],
                                    (int)info->sample_shape[2], SONDE_NN_BICUBIC);
    list[count++] = sonde_nn_greyscale();
    if (!run->asked->no_invert) {
        list[count++] = sonde_nn_invert_if_light(
            run->asked->threshold != CLI_NOT_GIVEN ? (int)run->asked->threshold : 200);
    }
    list[count++] = sonde_nn_to_float();
    list[count++] = sonde_nn_normalise(1, &info->mean, &info->std);
    return sonde_nn_pipeline_create(list, count, sonde_nn_dataset_get_traits(run->image),
                                    &run->pipeline, diag);
}

static sonde_err transform(prediction *run, sonde_nn_sample *sample, sonde_diag *diag)
{
    const size_t scratch = sonde_nn_pipeline_scratch(run->pipeline);
    void *room = scratch > 0 ? aligned_alloc(16, (scratch + 15) / 16 * 16) : NULL;
    sonde_err err = sonde_nn_dataset_get(run->image, 0, NULL, sample, diag);

    run->input =
        aligned_alloc(64, (sonde_nn_pipeline_bytes(run->pipeline) + 63) / 64 * 64);
    if (err != SONDE_OK) {
        goto done;
    }
    if (run->input == NULL || (scratch > 0 && room == NULL)) {
        err = diag->err = SONDE_ENOMEM;
    }
    if (err != SONDE_OK) {
        goto done;
    }
    err = sonde_nn_pipeline_run(run->pipeline, sample, 0, 0, 0, room, run->input, diag);

done:
    free(room);
    return err;
}

static sonde_err draw(const prediction *run, const sonde_nn_sample *sample,
                      const char *title, sonde_diag *diag)
{
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(run->image);
    sonde_plot_panel panels[2] = {{.title = "Before"}, {.title = "After"}};
    const sonde_panels_plot plot = {
        .page = {.title = title}, .panels = panels, .count = 2, .arrows = true};
    void *pixels = NULL;

    memcpy(&pixels, &sample->data, sizeof pixels);
    panels[0].image = sonde_view_of(traits->dtype, traits->rank, sample->shape, pixels);
    panels[1].image = sonde_view_of(SONDE_F32, 3, run->info->sample_shape, run->input);
    panels[0].colours = panels[1].colours = SONDE_COLOURS_GREY;
    return sonde_plot_panels(run->asked->picture, &plot, diag);
}

/* Classes in descending order of score. */
static void print_scores(const prediction *run, const sonde_view *scores,
                         const char *path)
{
    const float *score = scores->data;
    const int64_t classes = run->info->classes;
    const int64_t best = sonde_nn_argmax(SONDE_F32, score, classes, 1);
    int64_t top = run->asked->top != CLI_NOT_GIVEN ? run->asked->top : 3;
    double total = 0.0, bar = INFINITY;
    sonde_json *const json = cli_json();
    char name[24];

    if (run->asked->json) {
        sonde_json_object(json, NULL);
        sonde_json_string(json, "image", path);
    }
    if (best < 0) {
        if (run->asked->json) {
            sonde_json_string(json, "class", NULL);
            sonde_json_end(json);
            cli_json_print("\n");
        } else {
            (void)printf("%s: the output of the model is NaN\n", path);
        }
        return;
    }
    for (int64_t i = 0; i < classes; i++) { /* log-probabilities or logits */
        total += exp((double)score[i] - (double)score[best]);
    }
    if (run->asked->json) {
        sonde_json_int(json, "label", best);
        sonde_json_string(json, "class", class_name(run->info, best, name, sizeof name));
        sonde_json_format(json, "probability", "%.6f", 1.0 / total);
        sonde_json_end(json);
        cli_json_print("\n");
        return;
    }
    (void)printf("%s: %s\n", path, class_name(run->info, best, name, sizeof name));
    for (top = top < classes ? top : classes; top > 0; top--) {
        int64_t next = -1;

        for (int64_t i = 0; i < classes; i++) {
            if ((double)score[i] < bar && (next < 0 || score[i] > score[next])) {
                next = i;
            }
        }
        if (next < 0) {
            break;
        }
        bar = (double)score[next];
        (void)printf("  %-12s %5.1f%%\n", class_name(run->info, next, name, sizeof name),
                     100.0 * exp(bar - (double)score[best]) / total);
    }
}

static sonde_err predict_image(prediction *run, const char *path, sonde_diag *diag)
{
    sonde_nn_sample sample;
    sonde_view input, scores;
    int64_t shape[4] = {1};
    sonde_err err = sonde_nn_dataset_open_image(path, &run->image, diag);

    if (err != SONDE_OK) {
        goto done;
    }
    err = make_pipeline(run, diag);
    if (err != SONDE_OK) {
        goto done;
    }
    err = transform(run, &sample, diag);
    if (err != SONDE_OK) {
        goto done;
    }
    memcpy(shape + 1, run->info->sample_shape, 3 * sizeof *shape);
    input = sonde_view_of(SONDE_F32, 4, shape, run->input);
    err = sonde_nn_session_run(run->session, &input, 1, diag);
    if (err != SONDE_OK) {
        goto done;
    }
    err = sonde_nn_session_output(run->session, 0, &scores, diag);
    if (err != SONDE_OK) {
        goto done;
    }
    print_scores(run, &scores, path);
    if (run->asked->picture != NULL) {
        err = draw(run, &sample, path, diag);
    }

done:
    free(run->input);
    sonde_nn_pipeline_destroy(run->pipeline);
    sonde_nn_dataset_destroy(run->image);
    run->input = NULL;
    run->pipeline = NULL;
    run->image = NULL;
    return err;
}

static int run_predict(const void *values, int argc, char **argv)
{
    prediction run = {.asked = values};
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;
    sonde_nn_options options;
    sonde_diag diag = {0};
    sonde_err err = cli_job_open(run.asked->model, &job, &diag);

    sonde_nn_options_init(&options);
    sonde_nn_options_set_batch_size(&options, 1);
    if (err != SONDE_OK) {
        goto done;
    }
    run.info = sonde_nn_job_get_info(job);
    err = sonde_nn_job_build(job, &model, &diag);
    if (err != SONDE_OK) {
        goto done;
    }
    err = cli_weights_load(model, run.asked->weights, run.asked->model, &diag);
    if (err != SONDE_OK) {
        goto done;
    }
    err = sonde_nn_inference_session(model, &options, &run.session, &diag);
    if (err != SONDE_OK) {
        goto done;
    }
    err = sonde_nn_session_set_mode(run.session, SONDE_MODE_PREDICT, &diag);
    if (err != SONDE_OK) {
        goto done;
    }
    for (int i = 0; i < argc; i++) {
        err = predict_image(&run, argv[i], &diag);
        if (err != SONDE_OK) {
            goto done;
        }
    }

done:
    sonde_nn_session_destroy(run.session);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
    return err == SONDE_OK ? CLI_OK : cli_fail(&diag);
}

#define OPTION(name, letter, kind, argument, field, help)                                \
    {                                                                                    \
        name, letter, kind, argument, help, offsetof(predict_values, field)              \
    }

static const cli_option predict_options[] = {
    OPTION("model", 'm', CLI_TEXT, "MODEL", model,
           "built-in model or job file of the weights (fashion_cnn)"),
    OPTION("weights", 'w', CLI_TEXT, "FILE", weights,
           "saved weights (sonde-out/model.safetensors)"),
    OPTION("top", 'k', CLI_SIZE, "N", top, "print the N most likely classes (3)"),
    OPTION("threshold", 0, CLI_COUNT, "N", threshold,
           "invert images with a background lighter than N (200)"),
    OPTION("no-invert", 0, CLI_FLAG, NULL, no_invert, "do not invert light backgrounds"),
    OPTION("picture", 0, CLI_TEXT, "FILE", picture,
           "plot the image before and after its transformation"),
    OPTION("json", 0, CLI_FLAG, NULL, json, "print one JSON object per image"),
};

const cli_command cli_predict = {
    .name = "predict",
    .arguments = "IMAGE...",
    .summary = "classify PNG or JPEG images",
    .examples = "  sonde predict trousers.jpg --picture trousers.png",
    .options = predict_options,
    .option_count = CLI_COUNT_OF(predict_options),
    .least = 1,
    .most = -1,
    .values_size = sizeof(predict_values),
    .run = run_predict,
};
