/*
 * cmd_predict.c - `sonde predict`: classifies images with saved weights, or continues a
 * text.
 *
 * The image is transformed to match the data set: resized, and made gray or RGB as the
 * model takes it. The named data sets have dark backgrounds: for their models, images
 * with a light one are inverted.
 */
#include "base/fail.h"
#include "cli/cli_job.h"
#include "cli/run_reading.h"

#include <sonde/nn/evaluator.h>
#include <sonde/nn/job.h>
#include <sonde/nn/session.h>
#include <sonde/nn/dataset.h>
#include <sonde/plot.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct predict_values {
    const char *model, *weights, *data, *picture;
    const char *prompt;
    int64_t top, threshold, length, seed;
    double temperature;
    bool no_invert, json;
} predict_values;

typedef struct prediction {
    const predict_values *asked;
    sonde_nn_job *job;
    const sonde_nn_job_info *info;
    sonde_nn_model *model;
    sonde_nn_session *session;
    sonde_nn_dataset *folder; /* of images, for the names of its classes; NULL: none */
    sonde_nn_dataset *image;
    sonde_nn_pipeline *pipeline;
    float *input;
    char tokenizer[CLI_TOKENIZER_PATH];
} prediction;

/* The name of a class, or its number if the data set does not name it. */
static const char *class_name(const prediction *run, int64_t label, char *buf,
                              size_t size)
{
    const char *const *names = sonde_nn_dataset_class_names(run->info->data_name);
    const char *name =
        run->folder != NULL ? sonde_nn_dataset_class_name(run->folder, label) : "";

    if (names != NULL && label < SONDE_NN_KNOWN_CLASSES) {
        return names[label];
    }
    (void)snprintf(buf, size, "%lld", (long long)label);
    return name[0] != '\0' ? name : buf;
}

static sonde_err make_pipeline(prediction *run, sonde_diag *diag)
{
    const sonde_nn_job_info *info = run->info;
    const int64_t channels = info->sample_rank == 3 ? info->sample_shape[0] : 0;
    sonde_nn_transform list[6];
    size_t count = 0;

    if (channels != 1 && channels != 3) {
        return sonde_diag_set(diag, SONDE_ESHAPE, "predict",
                              "samples of (1, H, W) or (3, H, W)",
                              "the model does not accept images");
    }
    list[count++] = (sonde_nn_transform){.kind = SONDE_NN_RESIZE,
                                         .height = (int)info->sample_shape[1],
                                         .width = (int)info->sample_shape[2],
                                         .filter = SONDE_NN_BICUBIC};
    list[count++] = channels == 1 ? (sonde_nn_transform){.kind = SONDE_NN_GRAYSCALE}
                                  : (sonde_nn_transform){.kind = SONDE_NN_RGB};
    if (channels == 1 && !run->asked->no_invert &&
        (info->data_name[0] != '\0' || run->asked->threshold != CLI_NOT_GIVEN)) {
        list[count++] =
            (sonde_nn_transform){.kind = SONDE_NN_INVERT_IF_LIGHT,
                                 .threshold = run->asked->threshold != CLI_NOT_GIVEN
                                                  ? (int)run->asked->threshold
                                                  : 200};
    }
    list[count++] = (sonde_nn_transform){.kind = SONDE_NN_TO_FLOAT};
    list[count++] = sonde_nn_job_normalize(run->job);
    return sonde_nn_pipeline_create(list, count, sonde_nn_dataset_get_traits(run->image),
                                    &run->pipeline, diag);
}

static sonde_err transform(prediction *run, sonde_nn_sample *sample, sonde_diag *diag)
{
    const size_t scratch = sonde_nn_pipeline_get_info(run->pipeline).scratch;
    void *room = scratch > 0 ? aligned_alloc(16, (scratch + 15) / 16 * 16) : NULL;
    sonde_err err = SONDE_OK;

    run->input = aligned_alloc(
        64, (sonde_nn_pipeline_get_info(run->pipeline).bytes + 63) / 64 * 64);
    if (run->input == NULL || (scratch > 0 && room == NULL)) {
        err = diag->err = SONDE_ENOMEM;
        goto done;
    }
    SONDE__TRY_DONE(sonde_nn_dataset_get(run->image, 0, NULL, sample, diag));
    err = sonde_nn_pipeline_run(run->pipeline, sample, 0, 0, 0, room, run->input, diag);

done:
    free(room);
    return err;
}

/* FILE.png; of several images FILE-1.png, FILE-2.png and so on. */
static sonde_err picture_path(const prediction *run, int number, char *path, size_t size,
                              sonde_diag *diag)
{
    const char *asked = run->asked->picture;
    const char *slash = strrchr(asked, '/'), *dot = strrchr(asked, '.');
    const bool ends = dot != NULL && (slash == NULL || dot > slash);
    const int stem = (int)(ends ? (size_t)(dot - asked) : strlen(asked));
    const int length =
        number > 0 ? snprintf(path, size, "%.*s-%d%s", stem, asked, number, asked + stem)
                   : snprintf(path, size, "%s", asked);

    return length >= 0 && (size_t)length < size
               ? SONDE_OK
               : sonde_diag_set(diag, SONDE_EINVAL, "--picture", "a shorter path",
                                "is too long");
}

/* number: of the image, from 1; 0: the only one. */
static sonde_err draw(const prediction *run, const sonde_nn_sample *sample,
                      const char *title, int number, sonde_diag *diag)
{
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(run->image);
    sonde_plot_panel panels[2] = {{.title = "Before"}, {.title = "After"}};
    const sonde_panels_plot plot = {
        .page = {.title = title}, .panels = panels, .count = 2, .arrows = true};
    char path[4096];
    void *pixels = NULL;
    SONDE__TRY(picture_path(run, number, path, sizeof path, diag));
    memcpy(&pixels, &sample->data, sizeof pixels);
    panels[0].image = sonde_view_of(traits->dtype, traits->rank, sample->shape, pixels);
    panels[1].image = sonde_view_of(SONDE_F32, 3, run->info->sample_shape, run->input);
    panels[0].colors = panels[1].colors = SONDE_COLORS_GRAY;
    return sonde_plot_panels(path, &plot, diag);
}

/* --- scores ----------------------------------------------------------------------- */

/* The class after `last` in descending order of score, and of equal scores in their
 * order; last -1: the first. -1: none is left. */
static int64_t next_class(const float *score, int64_t classes, int64_t last)
{
    int64_t next = -1;

    for (int64_t i = 0; i < classes; i++) {
        const bool due =
            last < 0 || score[i] < score[last] || (score[i] == score[last] && i > last);

        if (due && (next < 0 || score[i] > score[next])) {
            next = i;
        }
    }
    return next;
}

/* The scores of an image: the best class (-1: the output is NaN), and the sum of all
 * exponentials, relative to the best. */
typedef struct ranking {
    const float *score; /* (classes), log-probabilities or logits */
    int64_t classes, best, top;
    double total;
} ranking;

static double probability(const ranking *ranked, int64_t label)
{
    const double best = (double)ranked->score[ranked->best];

    return exp((double)ranked->score[label] - best) / ranked->total;
}

static void print_class(const prediction *run, const ranking *ranked, int64_t label)
{
    char name[24];

    CLI_PUT(cli_json(), cli_int("label", label),
            cli_text("class", class_name(run, label, name, sizeof name)),
            cli_fixed("probability", 6, probability(ranked, label)));
}

static void print_json(const prediction *run, const char *path, const ranking *ranked)
{
    const bool listed = run->asked->top != CLI_NOT_GIVEN && ranked->best >= 0;
    sonde_json *const json = cli_json();

    sonde_json_object(json, NULL);
    sonde_json_string(json, "image", path);
    if (ranked->best < 0) {
        sonde_json_string(json, "class", NULL);
    } else {
        print_class(run, ranked, ranked->best);
    }
    if (listed) {
        int64_t label = next_class(ranked->score, ranked->classes, -1);

        sonde_json_list(json, "top");
        for (int64_t k = 0; label >= 0 && k < ranked->top; k++) {
            sonde_json_object(json, NULL);
            print_class(run, ranked, label);
            sonde_json_end(json);
            label = next_class(ranked->score, ranked->classes, label);
        }
        sonde_json_end(json);
    }
    sonde_json_end(json);
    cli_json_print("\n");
}

static void print_scores(const prediction *run, const sonde_view *scores,
                         const char *path)
{
    const int64_t classes = run->info->classes;
    ranking ranked = {.score = scores->data,
                      .classes = classes,
                      .best = sonde_nn_argmax(SONDE_F32, scores->data, classes, 1),
                      .top = run->asked->top != CLI_NOT_GIVEN ? run->asked->top : 3};
    char name[24], line[CLI_CLASS], where[CLI_SHOWN_PATH];

    for (int64_t i = 0; ranked.best >= 0 && i < classes; i++) {
        ranked.total += exp((double)ranked.score[i] - (double)ranked.score[ranked.best]);
    }
    if (run->asked->json) {
        print_json(run, path, &ranked);
        return;
    }
    if (ranked.best < 0) {
        (void)printf("%s: the output of the model is NaN\n",
                     cli_one_line(path, where, sizeof where));
        return;
    }
    (void)printf(
        "%s: %s\n", cli_one_line(path, where, sizeof where),
        cli_one_line(class_name(run, ranked.best, name, sizeof name), line, sizeof line));
    for (int64_t i = next_class(ranked.score, classes, -1), k = 0;
         i >= 0 && k < ranked.top; i = next_class(ranked.score, classes, i), k++) {
        const char *shown =
            cli_one_line(class_name(run, i, name, sizeof name), line, sizeof line);

        (void)printf("  %-*s %5.1f%%\n", cli_field(shown, 12), shown,
                     100.0 * probability(&ranked, i));
    }
}

/* --- images ----------------------------------------------------------------------- */

static sonde_err predict_image(prediction *run, const char *path, int number,
                               sonde_diag *diag)
{
    sonde_nn_sample sample;
    sonde_view input, scores;
    int64_t shape[4] = {1};
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(sonde_nn_dataset_open(
        path, SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_IMAGE), &run->image,
        diag));
    SONDE__TRY_DONE(make_pipeline(run, diag));
    SONDE__TRY_DONE(transform(run, &sample, diag));
    memcpy(shape + 1, run->info->sample_shape, 3 * sizeof *shape);
    input = sonde_view_of(SONDE_F32, 4, shape, run->input);
    SONDE__TRY_DONE(sonde_nn_session_run(run->session, &input, 1, diag));
    SONDE__TRY_DONE(sonde_nn_session_output(run->session, 0, &scores, diag));
    print_scores(run, &scores, path);
    if (run->asked->picture != NULL) {
        err = draw(run, &sample, path, number, diag);
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

static sonde_err set_up(prediction *run, sonde_diag *diag)
{
    const predict_values *values = run->asked;
    sonde_nn_options options;
    SONDE__TRY(cli_job_open(values->model, &run->job, diag));
    SONDE__TRY(sonde_nn_job_set_environment(run->job, diag));
    sonde_nn_job_info *info = sonde_nn_job_get_info(run->job);
    info->one_sample = true;
    if (values->data != NULL) {
        info->data_path = values->data;
    }
    run->info = info;
    if (values->prompt != NULL && info->target != SONDE_NN_TARGET_TOKENS) {
        return sonde_diag_set(diag, SONDE_EINVAL, values->model,
                              "a model of tokens, as gpt", "it does not continue a text");
    }
    if (values->prompt == NULL && info->target == SONDE_NN_TARGET_TOKENS) {
        return sonde_diag_set(diag, SONDE_EINVAL, values->model, "--prompt TEXT",
                              "the model continues a text");
    }
    if (info->classes == 0) {
        return sonde_diag_set(diag, SONDE_EINVAL, values->model, "a model with classes",
                              "it has none");
    }
    SONDE__TRY(cli_tokenizer_find(run->job, values->weights, run->tokenizer, diag));
    SONDE__TRY(sonde_nn_job_build(run->job, &run->model, diag));
    SONDE__TRY(
        cli_weights_load(run->job, run->model, values->weights, values->model, diag));
    if (values->prompt != NULL) {
        return SONDE_OK;
    }
    if (info->data_name[0] == '\0' && info->data_path[0] != '\0' &&
        sonde_nn_job_open_data(run->job, SONDE_NN_TRAIN, &run->folder, diag) !=
            SONDE_OK) {
        char line[SONDE_DIAG_LINE];

        cli_warn("the names of the classes are not known: %s",
                 sonde_diag_line(diag, line, sizeof line));
        *diag = (sonde_diag){0};
    }
    sonde_nn_options_init(&options);
    options.batch_size = 1;
    options.fixed_batch = true;
    options.threads = info->options.threads;
    options.plan_cache = info->options.plan_cache;
    SONDE__TRY(sonde_nn_session_create(run->model, &options, NULL, &run->session, diag));
    return sonde_nn_session_set(
        run->session, SONDE_OPTIONS(sonde_nn_session, .mode = SONDE_MODE_PREDICT), diag);
}

/* A file that cannot be read does not end the others. */
static int predict_all(prediction *run, int count, char **paths)
{
    int code = CLI_OK;

    for (int i = 0; i < count && !cli_interrupted(); i++) {
        sonde_diag diag = {0};

        if (predict_image(run, paths[i], count > 1 ? i + 1 : 0, &diag) != SONDE_OK) {
            (void)fflush(stdout);
            code = cli_fail(&diag);
        }
    }
    return cli_interrupted() ? CLI_INTERRUPTED : code;
}

/* --- text ------------------------------------------------------------------------- */

/* Prints a token of the continuation; of JSON it is kept for the end. */
typedef struct predicted_text {
    const sonde_nn_tokenizer *tokenizer; /* NULL: a token is a byte */
    bool kept;
    char *text; /* that is kept; ends with a NUL */
    size_t size, capacity;
    bool failed; /* out of memory */
} predicted_text;

static void keep(predicted_text *predicted, const char *bytes, size_t size)
{
    const size_t needed = predicted->size + size + 1;

    if (needed > predicted->capacity) {
        char *larger = realloc(predicted->text, 2 * needed);

        predicted->failed = larger == NULL;
        if (predicted->failed) {
            return;
        }
        predicted->text = larger;
        predicted->capacity = 2 * needed;
    }
    memcpy(predicted->text + predicted->size, bytes, size);
    predicted->size += size;
    predicted->text[predicted->size] = '\0';
}

static void print_bytes(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const char byte = bytes[i];

        (void)fputc(byte >= ' ' || byte == '\n' || byte == '\t' || (byte & 0x80) != 0
                        ? byte
                        : '?',
                    stdout);
    }
    (void)fflush(stdout);
}

static bool take(void *user, int64_t token)
{
    predicted_text *predicted = user;
    const char byte = (char)(unsigned char)token;
    size_t size = 1;
    const char *bytes = predicted->tokenizer != NULL
                            ? sonde_nn_tokenizer_token(predicted->tokenizer, token, &size)
                            : &byte;

    if (bytes == NULL) { /* one that was never learnt */
        bytes = "?";
        size = 1;
    }
    if (predicted->kept) {
        keep(predicted, bytes, size);
    } else {
        print_bytes(bytes, size);
    }
    return !predicted->failed && !cli_interrupted();
}

/* The text may hold zero bytes, which a string of C cannot. */
static void quote(sonde_text *out, const predicted_text *predicted)
{
    sonde_text_add(out, "\"");
    for (size_t i = 0; i < predicted->size; i += strlen(predicted->text + i) + 1) {
        sonde_json_escape(out, predicted->text + i);
        if (i + strlen(predicted->text + i) < predicted->size) {
            sonde_text_add(out, "\\u0000");
        }
    }
    sonde_text_add(out, "\"");
}

static void print_text_json(const char *prompt, const predicted_text *predicted)
{
    sonde_text text = {0};

    quote(&text, predicted);
    CLI_LINE(cli_text("prompt", prompt),
             cli_raw("text", text.failed ? "null" : text.data));
    sonde_text_fini(&text);
}
/* Prints the prompt and what follows, token by token; in JSON one object at the end. */
static sonde_err generate(const prediction *run, sonde_diag *diag)
{
    const predict_values *values = run->asked;
    const char *prompt = values->prompt;
    const size_t length = strlen(prompt);
    predicted_text predicted = {.kept = values->json};
    size_t count = length;
    const sonde_nn_generate_options options = {
        .size = sizeof options,
        .count = values->length != CLI_NOT_GIVEN ? values->length : 200,
        .temperature = isnan(values->temperature) ? 0.8F : (float)values->temperature,
        .seed = values->seed != CLI_NOT_GIVEN ? (uint64_t)values->seed : 0,
        .take = take,
        .user = &predicted};
    int64_t *tokens = calloc(length + 1, sizeof *tokens);
    sonde_err err = SONDE_OK;

    if (tokens == NULL) {
        err = diag->err = SONDE_ENOMEM;
        goto done;
    }
    for (size_t i = 0; i < length; i++) {
        tokens[i] = (unsigned char)prompt[i];
    }
    SONDE__TRY_DONE(sonde_nn_job_tokenizer(run->job, &predicted.tokenizer, diag));
    if (predicted.tokenizer != NULL) {
        SONDE__TRY_DONE(sonde_nn_tokenizer_encode(predicted.tokenizer, prompt, length,
                                                  tokens, &count, diag));
    }
    if (!values->json) {
        (void)fputs(prompt, stdout);
    }
    err = sonde_nn_generate(run->model, tokens, (int64_t)count, &options, diag);
    if (err == SONDE_OK && predicted.failed) {
        err = diag->err = SONDE_ENOMEM;
    }
    if (!values->json) {
        (void)fputc('\n', stdout);
    } else if (err == SONDE_OK) {
        print_text_json(prompt, &predicted);
    }

done:
    free(tokens);
    free(predicted.text);
    return err;
}

static int continue_text(const prediction *run)
{
    sonde_diag diag = {0};

    if (generate(run, &diag) != SONDE_OK) {
        return cli_fail(&diag);
    }
    return cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
}

static int run_predict(const void *values, int argc, char **argv)
{
    const char *const image = "an image, or --prompt TEXT";
    predict_values asked = *(const predict_values *)values;
    prediction run = {.asked = &asked};
    sonde_diag diag = {0};
    int code = CLI_OK;

    if (argc > 0 && asked.model == NULL && cli_job_is_plan(argv[0])) {
        asked.model = argv[0];
        argc--;
        argv++;
    }

    for (int i = 0; i < argc; i++) {
        if (cli_job_check_file(argv[i], image, &diag) != SONDE_OK) {
            return cli_fail(&diag);
        }
    }

    if ((run.asked->prompt != NULL) != (argc == 0)) {
        return cli_fail_text("predict needs images, or --prompt TEXT");
    }
    cli_catch_interrupt();
    code = set_up(&run, &diag) != SONDE_OK ? cli_fail(&diag)
           : run.asked->prompt != NULL     ? continue_text(&run)
                                           : predict_all(&run, argc, argv);
    sonde_nn_session_destroy(run.session);
    sonde_nn_dataset_destroy(run.folder);
    sonde_nn_model_destroy(run.model);
    sonde_nn_job_destroy(run.job);
    return code;
}

#define OPTION(...) CLI_OPTION(predict_values, __VA_ARGS__)

static const cli_option predict_options[] = {
    OPTION("model", 0, CLI_TEXT, "MODEL", model,
           "use this built-in model, job file or ONNX file (fashion_cnn)"),
    OPTION("weights", 0, CLI_TEXT, "FILE", weights,
           "load these weights (sonde-out/model.safetensors)"),
    OPTION("data", 'd', CLI_TEXT, "FOLDER", data,
           "read the names of classes from this folder of images (default: the job's)"),
    OPTION("top", 'k', CLI_SIZE, "N", top,
           "print the N most likely classes (3; in JSON 1)"),
    OPTION("invert-above", 0, CLI_COUNT, "N", threshold,
           "invert images whose background is lighter than N (200)"),
    OPTION("no-invert", 0, CLI_FLAG, NULL, no_invert, "do not invert light backgrounds"),
    OPTION("picture", 0, CLI_TEXT, "FILE", picture,
           "draw the image before and after its transformation; several: "
           "FILE-1, FILE-2 ..."),
    OPTION("prompt", 0, CLI_TEXT, "TEXT", prompt,
           "continue this text with a language model"),
    OPTION("length", 0, CLI_SIZE, "N", length, "add N tokens to the prompt (200)"),
    OPTION("temperature", 0, CLI_REAL, "X", temperature,
           "draw tokens at this temperature (0.8); 0: the likeliest token"),
    OPTION("seed", 0, CLI_SEED, "N", seed, "seed the random numbers (0)"),
    OPTION("format", 0, CLI_FORMAT, "text|json", json,
           "print text, or one JSON object per line (text)"),
};

const cli_command cli_predict = {
    .name = "predict",
    .arguments = "[FILE.plan] [IMAGE...]",
    .summary = "classify PNG or JPEG images, or continue a text",
    .examples = "  sonde predict trousers.jpg --picture trousers.png\n"
                "  sonde predict --model gpt --prompt \"the old \" --temperature 0.5",
    .options = predict_options,
    .option_count = CLI_COUNT_OF(predict_options),
    .least = 0,
    .most = -1,
    .values_size = sizeof(predict_values),
    .run = run_predict,
};
