/*
 * gradient_histogram.c - anchors: a histogram of the magnitudes of the gradients of a
 * small network on MNIST after one epoch.
 *
 *     gradient_histogram [DATA_FOLDER]
 *
 * The histogram shows whether gradients underflow or overflow: log2 of |g| in 50 bins,
 * with zeros two below the smallest. The log-softmax of the network runs over the batch
 * (axis 0).
 */
#include <sonde/nn.h>
#include <sonde/plot.h>
#include <sonde/sonde.h>

#include "example.h"

enum { BATCH = 1000, SEED = 42, TENSORS = 6 };

static const char picture[] = "GradientHistogram.png";
static const char *const tensors[TENSORS] = {
    "Gradient___model.fc1.weight", "Gradient___model.fc3.weight",
    "Gradient___model.fc2.bias",   "Gradient___model.fc1.bias",
    "Gradient___model.fc3.bias",   "Gradient___model.fc2.weight",
};
static sonde_diag diag;

static sonde_nn_model *build_model(void)
{
    sonde_nn_model *model = NULL;
    TRY(sonde_nn_model_create(&model, &diag));

    sonde_nn_value x = sonde_nn_input(model, SONDE_F32, 4, (int64_t[]){BATCH, 1, 28, 28});
    sonde_nn_value labels = sonde_nn_input(model, SONDE_I64, 1, (int64_t[]){BATCH});

    x = sonde_nn_flatten(model, NULL, x, 1);
    x = sonde_nn_linear(model, "fc1", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 320));
    x = sonde_nn_relu(model, "relu", x);
    x = sonde_nn_linear(model, "fc2", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 100));
    x = sonde_nn_relu(model, "relu", x);
    x = sonde_nn_linear(model, "fc3", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 10));
    x = sonde_nn_log_softmax(model, "log_softmax", x, 0);
    sonde_nn_output(model, x);
    sonde_nn_loss(model, sonde_nn_nll_loss(model, "loss", x, labels));
    TRY(sonde_nn_model_status(model, &diag));
    sonde_nn_model_initialize(model, SEED);
    return model;
}

/* The names of everything that can be anchored: there after compile, before any step. */
static void print_names(const sonde_nn_session *session)
{
    const sonde_catalogue *catalogue = sonde_nn_session_catalogue(session);

    (void)printf("tensor names: [");
    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        (void)printf("%s'%s'", id > 0 ? ", " : "",
                     sonde_catalogue_info(catalogue, id)->name);
    }
    (void)printf("]\n");
}

static double train_epoch(sonde_nn_session *session, sonde_nn_loader *loader)
{
    double total_loss = 0.0;

    for (;;) {
        sonde_nn_batch batch;
        sonde_view loss;

        TRY(sonde_nn_loader_next(loader, &batch, &diag));
        if (batch.count == 0) {
            return total_loss;
        }
        const sonde_view inputs[] = {
            sonde_view_of(SONDE_F32, 4, (int64_t[]){BATCH, 1, 28, 28}, batch.data),
            sonde_view_of(SONDE_I64, 1, (int64_t[]){BATCH},
                          (void *)(uintptr_t)batch.labels)};
        TRY(sonde_nn_session_run(session, inputs, 2, &diag));
        TRY(sonde_nn_session_output(session, 1, &loss, &diag));
        total_loss += (double)*(const float *)loss.data;
    }
}

static void draw_histogram(const sonde_nn_session *session)
{
    sonde_view gradients[TENSORS];
    sonde_histogram histogram;
    uint64_t zeros = 0;

    for (size_t i = 0; i < TENSORS; i++) {
        sonde_vitals vitals;
        TRY(sonde_nn_session_anchored(session, tensors[i], &gradients[i], &diag));
        sonde_vitals_of(&gradients[i], &vitals);
        zeros += vitals.zero;
    }
    TRY(sonde_histogram_log2(gradients, TENSORS, 50, &histogram, &diag));
    TRY(sonde_plot_histogram(
        picture,
        &(sonde_histogram_plot){.page = {.title = "Gradient Histogram"},
                                .histogram = &histogram,
                                .x_label = "log2 of |gradient|",
                                .zeros = zeros},
        &diag));
    (void)printf("Saved histogram to ./%s\n", picture);
}

int main(int argc, char **argv)
{
    const float half = 0.5F;
    const sonde_nn_transform transforms[] = {
        {.kind = SONDE_NN_TO_FLOAT},
        {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {half}, .std = {half}}};
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.01F, 0.0F);
    sonde_nn_dataset *set = NULL;
    sonde_nn_loader *loader = NULL;
    sonde_nn_model *model = build_model();
    sonde_nn_session *session = NULL;

    TRY(sonde_nn_dataset_open(argc > 1 ? argv[1] : NULL,
                              SONDE_OPTIONS(sonde_nn_dataset, .name = "mnist"), &set,
                              &diag));
    TRY(sonde_nn_loader_create(
        set,
        SONDE_OPTIONS(sonde_nn_loader, .batch = BATCH, .shuffle = true, .seed = SEED,
                      .workers = 1, .transforms = transforms, .transform_count = 2),
        &loader, &diag));

    TRY(sonde_nn_session_create(model, NULL, &sgd, &session, &diag));
    for (size_t i = 0; i < TENSORS; i++) {
        TRY(sonde_nn_session_anchor(session, tensors[i], tensors[i], SONDE_ANCHOR_DEFAULT,
                                    1, &diag));
    }
    TRY(sonde_nn_session_compile(session, &diag));
    print_names(session);
    (void)printf("Loss: %.4f\n", train_epoch(session, loader));
    draw_histogram(session);

    sonde_nn_session_destroy(session);
    sonde_nn_loader_destroy(loader);
    sonde_nn_dataset_destroy(set);
    sonde_nn_model_destroy(model);
    return 0;
}
