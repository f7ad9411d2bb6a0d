/*
 * fashion_cnn.c - a small convolutional network on Fashion-MNIST: train, save, evaluate,
 * draw the confusion matrix, load, classify an image of your own.
 *
 *     fashion_cnn [DATA_FOLDER] [IMAGE]
 *
 * Without DATA_FOLDER the program looks for the data where `sonde data fetch
 * fashion-mnist` puts it. It writes sample_images.png, classifier.safetensors,
 * confusion_matrix.png and transformed.png into the current folder.
 */
#include <sonde/nn.h>
#include <sonde/plot.h>

#include <string.h>

#include "example.h"

enum { BATCH = 16, EVAL_BATCH = 32, EPOCHS = 5, SEED = 42 };

static sonde_diag diag;
static const float half = 0.5F;

/* Three kinds of layers: with parameters, without, and the loss, which is part of the
 * model. */
static sonde_nn_model *build_model(void)
{
    sonde_nn_model *model = NULL;
    TRY(sonde_nn_model_create(&model, &diag));

    sonde_nn_value x = sonde_nn_input(model, SONDE_F32, 4, (int64_t[]){BATCH, 1, 28, 28});
    sonde_nn_value labels = sonde_nn_input(model, SONDE_I64, 1, (int64_t[]){BATCH});

    x = sonde_nn_conv2d(
        model, "conv1", x,
        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 5, .kernel_size = {3, 3}));
    x = sonde_nn_relu(model, "relu", x);
    x = sonde_nn_max_pool2d(model, "pool", x,
                            SONDE_OPTIONS(sonde_nn_pool2d, .kernel_size = {2, 2}));
    x = sonde_nn_conv2d(
        model, "conv2", x,
        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 12, .kernel_size = {5, 5}));
    x = sonde_nn_relu(model, "relu", x);
    x = sonde_nn_group_norm(model, "norm", x,
                            SONDE_OPTIONS(sonde_nn_group_norm, .num_groups = 3));
    x = sonde_nn_flatten(model, NULL, x, 1);
    x = sonde_nn_linear(model, "fc1", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 100));
    x = sonde_nn_relu(model, "relu", x);
    x = sonde_nn_linear(model, "fc2", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 10));
    x = sonde_nn_log_softmax(model, "log_softmax", x, 1);
    sonde_nn_output(model, x);
    sonde_nn_loss(model, sonde_nn_nll_loss(model, "loss", x, labels));
    TRY(sonde_nn_model_status(model, &diag));
    sonde_nn_model_initialize(model, SEED);
    return model;
}

static sonde_nn_loader *load(const sonde_nn_dataset *set, int64_t batch, bool shuffle)
{
    const sonde_nn_transform transforms[] = {
        {.kind = SONDE_NN_TO_FLOAT},
        {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {half}, .std = {half}}};
    sonde_nn_loader *loader = NULL;

    TRY(sonde_nn_loader_create(
        set,
        SONDE_OPTIONS(sonde_nn_loader, .batch = batch, .shuffle = shuffle, .seed = SEED,
                      .workers = 1, .transforms = transforms, .transform_count = 2),
        &loader, &diag));
    return loader;
}

static void draw_samples(const sonde_nn_dataset *set)
{
    enum { COUNT = 15 };
    static unsigned char pixels[COUNT][28 * 28];
    const char *labels[COUNT];
    sonde_images_plot plot = {.labels = labels, .columns = 5};

    for (int64_t i = 0; i < COUNT; i++) {
        sonde_nn_sample sample;
        TRY(sonde_nn_dataset_get(set, i, NULL, &sample, &diag));
        memcpy(pixels[i], sample.data, sizeof pixels[i]);
        labels[i] = sonde_nn_dataset_class_name(set, sample.label);
    }
    plot.images = sonde_view_of(SONDE_U8, 3, (int64_t[]){COUNT, 28, 28}, pixels);
    TRY(sonde_plot_images("sample_images.png", &plot, &diag));
}

static sonde_err print_epoch(void *user, const sonde_nn_epoch *epoch, sonde_diag *why)
{
    (void)user;
    (void)why;
    (void)printf("epoch %d: loss %.4f\n", epoch->number + 1, epoch->loss);
    return SONDE_OK;
}

static void draw_score(void *user, const sonde_nn_score *score,
                       const sonde_nn_confusion *matrix)
{
    sonde_confusion_plot plot = {.classes = user};

    (void)printf("Eval accuracy: %.2f%%\n", 100.0 * score->accuracy);
    plot.counts =
        sonde_view_of(SONDE_U64, 2, (int64_t[]){10, 10},
                      (void *)(uintptr_t)sonde_nn_confusion_get_info(matrix).counts);
    TRY(sonde_plot_confusion("confusion_matrix.png", &plot, &diag));
}

/* Trains and evaluates; the test set is evaluated once, at the end. */
static void train(sonde_nn_model *model, const sonde_nn_dataset *training,
                  const sonde_nn_dataset *test)
{
    const char *const *classes = sonde_nn_dataset_get_traits(test)->class_names;
    sonde_nn_loader *loader = load(training, BATCH, true);
    sonde_nn_loader *test_loader = load(test, EVAL_BATCH, false);
    const sonde_nn_feed feed = sonde_nn_loader_feed(loader);
    sonde_nn_trainer_options options = {.size = sizeof options,
                                        .events = {.user = (void *)(uintptr_t)classes,
                                                   .epoch_end = print_epoch,
                                                   .scored = draw_score},
                                        .model = model,
                                        .feed = &feed,
                                        .optimizer = sonde_nn_optimizer_sgd(0.001F, 0.9F),
                                        .epochs = EPOCHS,
                                        .test = test_loader};
    sonde_nn_trainer *trainer = NULL;

    TRY(sonde_nn_trainer_create(NULL, &options, &trainer, &diag));
    TRY(sonde_nn_trainer_run(trainer, &diag));
    TRY(sonde_nn_model_save(model, "classifier.safetensors", &diag));
    sonde_nn_trainer_destroy(trainer);
    sonde_nn_loader_destroy(loader);
    sonde_nn_loader_destroy(test_loader);
}

/* The image becomes like those of the data set: 28x28, gray, on black. */
static void predict(const char *path)
{
    const sonde_nn_transform transforms[] = {
        {.kind = SONDE_NN_RESIZE, .height = 28, .width = 28, .filter = SONDE_NN_BICUBIC},
        {.kind = SONDE_NN_GRAYSCALE},
        {.kind = SONDE_NN_INVERT_IF_LIGHT, .threshold = 200},
        {.kind = SONDE_NN_TO_FLOAT},
        {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {half}, .std = {half}}};
    sonde_nn_model *model = build_model();
    sonde_nn_dataset *image = NULL;
    sonde_nn_loader *loader = NULL;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    sonde_nn_sample before;
    sonde_nn_batch after;
    sonde_view predictions;

    TRY(sonde_nn_model_load(model, "classifier.safetensors", &diag));
    TRY(sonde_nn_dataset_open(
        path, SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_IMAGE), &image,
        &diag));
    TRY(sonde_nn_dataset_get(image, 0, NULL, &before, &diag));
    TRY(sonde_nn_loader_create(image,
                               SONDE_OPTIONS(sonde_nn_loader, .batch = 1,
                                             .transforms = transforms,
                                             .transform_count = 5),
                               &loader, &diag));
    TRY(sonde_nn_loader_next(loader, &after, &diag));

    sonde_nn_options_init(&options);
    options.batch_size = 1;
    TRY(sonde_nn_session_create(model, &options, NULL, &session, &diag));
    const sonde_view input =
        sonde_view_of(SONDE_F32, 4, (int64_t[]){1, 1, 28, 28}, after.data);
    TRY(sonde_nn_session_run(session, &input, 1, &diag));
    TRY(sonde_nn_session_output(session, 0, &predictions, &diag));
    (void)printf(
        "Predicted class: %s\n",
        sonde_nn_dataset_class_names(
            "fashion-mnist")[sonde_nn_argmax(SONDE_F32, predictions.data, 10, 1)]);

    const sonde_plot_panel panels[] = {
        {.title = "Original",
         .image =
             sonde_view_of(SONDE_U8, 3, before.shape, (void *)(uintptr_t)before.data)},
        {.title = "Transformed",
         .image = sonde_view_of(SONDE_F32, 3, (int64_t[]){1, 28, 28}, after.data)}};
    TRY(sonde_plot_panels(
        "transformed.png",
        &(sonde_panels_plot){.panels = panels, .count = 2, .arrows = true}, &diag));
    sonde_nn_session_destroy(session);
    sonde_nn_loader_destroy(loader);
    sonde_nn_dataset_destroy(image);
    sonde_nn_model_destroy(model);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : NULL;
    sonde_nn_dataset *training = NULL, *test = NULL;
    sonde_nn_model *model = NULL;

    TRY(sonde_nn_dataset_open(folder,
                              SONDE_OPTIONS(sonde_nn_dataset, .name = "fashion-mnist"),
                              &training, &diag));
    TRY(sonde_nn_dataset_open(
        folder,
        SONDE_OPTIONS(sonde_nn_dataset, .name = "fashion-mnist", .split = SONDE_NN_TEST),
        &test, &diag));
    draw_samples(training);

    model = build_model();
    train(model, training, test);
    if (argc > 2) {
        predict(argv[2]);
    }
    sonde_nn_model_destroy(model);
    sonde_nn_dataset_destroy(training);
    sonde_nn_dataset_destroy(test);
    return 0;
}
