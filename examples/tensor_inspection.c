/*
 * tensor_inspection.c - gradients and activations of a small network on MNIST, read from
 * outfeed queues and summarized at the end of every epoch.
 *
 *     tensor_inspection [--model-type Sequential|Model] [--no-pipelining]
 *                       [--use-gradient-accumulation] [--outfeed-pre-accumulated-gradients]
 *                       [--epochs N] [--steps-per-epoch N] [--steps-per-execution N]
 *                       [--gradients-filters TEXT ...] [--activations-filters TEXT ...]
 *                       [--data FOLDER]
 *
 * Steps are batches of 32, as Keras counts them. With pipelining (the default) the
 * network has three layers in two stages, each on a thread of its own, and gradients are
 * summed over four batches before they are applied; without, it has two layers, and sums
 * gradients on request. The filter "none" selects everything. An execution is one
 * call of the session: fewer steps per call need less memory and change nothing else.
 * Without --data, the program looks for MNIST where `sonde data fetch mnist` puts it.
 */
#include <sonde/sonde.h>
#include <sonde/nn.h>

#include <math.h>
#include <string.h>
#include <strings.h>

#include "example.h"

enum { BATCH = 32, PIXELS = 28 * 28, CLASSES = 10, ACCUMULATION = 4, SEED = 42 };
enum { MOST_FILTERS = 16 };

static sonde_diag diag;

/* --- arguments -------------------------------------------------------------------- */

typedef struct filters {
    const char *texts[MOST_FILTERS];
    size_t count;
} filters;

typedef struct arguments {
    const char *model_type, *data;
    bool no_pipelining, use_gradient_accumulation, outfeed_pre_accumulated_gradients;
    long epochs, steps_per_epoch, steps_per_execution;
    filters gradients_filters, activations_filters;
} arguments;

static _Noreturn void refuse(const char *what, const char *found, const char *expected)
{
    (void)fprintf(stderr, "error: %s: %s (expected %s)\n", what, found, expected);
    exit(2);
}

static const char *take_text(char **argv, int argc, int *i)
{
    if (*i + 1 >= argc) {
        refuse(argv[*i], "no value after it", "a value");
    }
    return argv[++*i];
}

static long take_count(char **argv, int argc, int *i)
{
    const char *name = argv[*i], *text = take_text(argv, argc, i);
    char *end = NULL;
    const long value = strtol(text, &end, 10);

    if (end == text || *end != '\0' || value < 1 || value > 1000000) {
        refuse(name, text, "a number from 1 to 1000000");
    }
    return value;
}

/* All texts up to the next option; "none" alone is no filter. */
static filters take_filters(char **argv, int argc, int *i)
{
    const char *name = argv[*i];
    filters taken = {0};

    while (*i + 1 < argc && strncmp(argv[*i + 1], "--", 2) != 0) {
        if (taken.count == MOST_FILTERS) {
            refuse(name, "too many", "at most 16 filters");
        }
        taken.texts[taken.count++] = argv[++*i];
    }
    if (taken.count == 0) {
        refuse(name, "nothing after it", "filters, or none");
    }
    if (taken.count == 1 && strcasecmp(taken.texts[0], "none") == 0) {
        taken.count = 0;
    }
    return taken;
}

static void check_arguments(arguments *a)
{
    if (strcmp(a->model_type, "Sequential") != 0 && strcmp(a->model_type, "Model") != 0) {
        refuse("--model-type", a->model_type, "Sequential or Model");
    }
    if (!a->no_pipelining) {
        a->use_gradient_accumulation = true;
    }
    if (a->steps_per_execution == 0) {
        a->steps_per_execution = a->steps_per_epoch;
    }
    if (a->steps_per_epoch % a->steps_per_execution != 0) {
        refuse("--steps-per-execution", "it does not divide the steps of an epoch",
               "a divisor");
    }
    if (a->use_gradient_accumulation && a->steps_per_execution % ACCUMULATION != 0) {
        refuse("--steps-per-execution", "gradients are accumulated over 4 steps",
               "a multiple of 4");
    }
}

static arguments parse(int argc, char **argv)
{
    arguments a = {.model_type = "Sequential",
                   .epochs = 3,
                   .steps_per_epoch = 500,
                   .gradients_filters = {{"Dense_128"}, 1}};

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--model-type") == 0) {
            a.model_type = take_text(argv, argc, &i);
        } else if (strcmp(argv[i], "--data") == 0) {
            a.data = take_text(argv, argc, &i);
        } else if (strcmp(argv[i], "--no-pipelining") == 0) {
            a.no_pipelining = true;
        } else if (strcmp(argv[i], "--use-gradient-accumulation") == 0) {
            a.use_gradient_accumulation = true;
        } else if (strcmp(argv[i], "--outfeed-pre-accumulated-gradients") == 0) {
            a.outfeed_pre_accumulated_gradients = true;
        } else if (strcmp(argv[i], "--epochs") == 0) {
            a.epochs = take_count(argv, argc, &i);
        } else if (strcmp(argv[i], "--steps-per-epoch") == 0) {
            a.steps_per_epoch = take_count(argv, argc, &i);
        } else if (strcmp(argv[i], "--steps-per-execution") == 0) {
            a.steps_per_execution = take_count(argv, argc, &i);
        } else if (strcmp(argv[i], "--gradients-filters") == 0) {
            a.gradients_filters = take_filters(argv, argc, &i);
        } else if (strcmp(argv[i], "--activations-filters") == 0) {
            a.activations_filters = take_filters(argv, argc, &i);
        } else {
            refuse(argv[i], "unknown", "the options at the top of the source");
        }
    }
    check_arguments(&a);
    return a;
}

/* --- the model -------------------------------------------------------------------- */

typedef struct layer {
    int stage; /* of the pipeline */
    int64_t width;
    const char *dense, *activation; /* names */
} layer;

/* A list of layers, each fed by the one before; the last one's activation is a softmax.
 */
static sonde_nn_value build_sequential(sonde_nn_model *model, sonde_nn_value x,
                                       bool pipelined)
{
    static const layer layers[] = {{0, 256, "Dense_256", "Dense_256_acts"},
                                   {1, 128, "Dense_128", "Dense_128_acts"},
                                   {1, CLASSES, "Dense_10", NULL}};

    for (size_t i = pipelined ? 0 : 1; i < sizeof layers / sizeof layers[0]; i++) {
        if (pipelined) {
            sonde_nn_begin_block(model, layers[i].stage == 0 ? "stage 0" : "stage 1");
        }
        x = sonde_nn_linear(
            model, layers[i].dense, x,
            SONDE_OPTIONS(sonde_nn_linear, .out_features = layers[i].width));
        if (layers[i].activation != NULL) {
            x = sonde_nn_relu(model, layers[i].activation, x);
        }
    }
    return x;
}

/* The same by hand: a layer's value is a variable, free to go several ways. */
static sonde_nn_value build_functional(sonde_nn_model *model, sonde_nn_value x,
                                       bool pipelined)
{
    sonde_nn_value hidden = x, activations = 0;

    if (pipelined) {
        sonde_nn_begin_block(model, "stage 0");
        hidden = sonde_nn_linear(model, "Dense_256", x,
                                 SONDE_OPTIONS(sonde_nn_linear, .out_features = 256));
        hidden = sonde_nn_relu(model, "Dense_256_acts", hidden);
        sonde_nn_begin_block(model, "stage 1");
    }
    activations = sonde_nn_linear(model, "Dense_128", hidden,
                                  SONDE_OPTIONS(sonde_nn_linear, .out_features = 128));
    activations = sonde_nn_relu(model, "Dense_128_acts", activations);
    return sonde_nn_linear(model, "Dense_10", activations,
                           SONDE_OPTIONS(sonde_nn_linear, .out_features = CLASSES));
}

/* As Keras begins: weights uniform within sqrt(6 / (fan in + fan out)) (Glorot and Bengio
 * 2010), biases 0. The model draws its weights (out, in) within 1 / sqrt(fan in). */
static void initialize(sonde_nn_model *model)
{
    sonde_nn_model_initialize(model, SEED);
    for (size_t p = 0; p < sonde_nn_model_get_info(model).parameter_count; p++) {
        const sonde_view view = sonde_nn_parameter(model, p).view;
        const double in = (double)view.shape[view.rank - 1], out = (double)view.shape[0];
        const double scale = view.rank == 2 ? sqrt(6.0 / (in + out)) * sqrt(in) : 0.0;
        float *values = view.data;

        for (int64_t i = 0; i < sonde_view_count(&view); i++) {
            values[i] *= (float)scale;
        }
    }
}

static sonde_nn_model *build_model(const arguments *a)
{
    const bool sequential = strcmp(a->model_type, "Sequential") == 0;
    sonde_nn_model *model = NULL;
    TRY(sonde_nn_model_create(&model, &diag));

    sonde_nn_value x = sonde_nn_input(model, SONDE_F32, 4, (int64_t[]){BATCH, 1, 28, 28});
    sonde_nn_value labels = sonde_nn_input(model, SONDE_I64, 1, (int64_t[]){BATCH});

    x = sonde_nn_flatten(model, NULL, x, 1);
    x = sequential ? build_sequential(model, x, !a->no_pipelining)
                   : build_functional(model, x, !a->no_pipelining);
    sonde_nn_output(model, sonde_nn_softmax(model, "Dense_10_acts", x, 1));
    sonde_nn_loss(model, sonde_nn_cross_entropy(model, "loss", x, labels, NULL));
    TRY(sonde_nn_model_status(model, &diag));
    initialize(model);
    return model;
}

/* --- the queues ------------------------------------------------------------------- */

typedef struct callback {
    const char *name;
    sonde_outfeed *queue;
} callback;

static sonde_outfeed *make_queue(const char *name, long rows, sonde_outfeed_per per,
                                 const filters *let_in)
{
    sonde_outfeed *queue = NULL;

    TRY(sonde_outfeed_create(SONDE_OPTIONS(sonde_outfeed, .name = name, .rows = rows,
                                           .when_full = SONDE_OUTFEED_ERROR, .per = per,
                                           .filters = let_in->texts,
                                           .filter_count = let_in->count,
                                           .one_thread = true),
                             &queue, &diag));
    return queue;
}

/* Before they are accumulated: one of every batch. After: one of every update. */
static callback gradients_callback(const arguments *a)
{
    const bool before = a->outfeed_pre_accumulated_gradients;
    const long updates =
        a->steps_per_epoch / (a->use_gradient_accumulation ? ACCUMULATION : 1);
    callback made = {.name = "Gradients callback"};

    made.queue = make_queue("gradients", before ? a->steps_per_epoch : updates,
                            before ? SONDE_OUTFEED_MICRO_BATCH : SONDE_OUTFEED_STEP,
                            &a->gradients_filters);
    TRY(sonde_outfeed_add_gradients(
        made.queue, before ? SONDE_OUTFEED_AFTER_COMPUTE : SONDE_OUTFEED_BEFORE_APPLY,
        &diag));
    return made;
}

/* The functional model without pipelining has one layer's activations, never filtered. */
static callback activations_callback(const arguments *a)
{
    static const filters all;
    const bool several = strcmp(a->model_type, "Sequential") == 0 || !a->no_pipelining;
    callback made = {.name = several ? "Multi-layer activations callback"
                                     : "Single layer activations callback"};

    made.queue = make_queue("activations", a->steps_per_epoch, SONDE_OUTFEED_MICRO_BATCH,
                            several ? &a->activations_filters : &all);
    TRY(sonde_outfeed_add(made.queue, "Dense_128_acts_output", "Dense_128_acts", &diag));
    if (several) {
        TRY(sonde_outfeed_add(made.queue, "Dense_10_acts_output", "Dense_10_acts",
                              &diag));
    }
    return made;
}

static void on_epoch_end(const callback *called, int epoch)
{
    sonde_outfeed_batch batch;
    sonde_text text = {0};

    TRY(sonde_outfeed_dequeue(called->queue, &batch, &diag));
    TRY(sonde_outfeed_table(&batch, called->name, epoch, &text));
    (void)fputs(text.data, stdout);
    sonde_text_fini(&text);
}

/* --- training --------------------------------------------------------------------- */

/* Whole batches of 32, pass after pass over the shuffled images. */
typedef struct feed {
    sonde_nn_loader *loader;
    uint64_t pass;
    float *images;   /* (steps per execution * 32, 1, 28, 28) */
    int64_t *labels; /* (steps per execution * 32) */
} feed;

static feed open_feed(const arguments *a, const sonde_nn_dataset *set)
{
    const sonde_nn_transform to_float =
        (sonde_nn_transform){.kind = SONDE_NN_TO_FLOAT}; /* x / 255 */
    const size_t samples = (size_t)a->steps_per_execution * BATCH;
    feed opened = {.images = malloc(samples * PIXELS * sizeof(float)),
                   .labels = malloc(samples * sizeof(int64_t))};

    if (opened.images == NULL || opened.labels == NULL) {
        refuse("--steps-per-execution", "out of memory", "fewer steps");
    }
    TRY(sonde_nn_loader_create(
        set,
        SONDE_OPTIONS(sonde_nn_loader, .batch = BATCH, .shuffle = true, .seed = SEED,
                      .workers = 1, .transforms = &to_float, .transform_count = 1),
        &opened.loader, &diag));
    return opened;
}

static void close_feed(feed *closed)
{
    sonde_nn_loader_destroy(closed->loader);
    free(closed->images);
    free(closed->labels);
}

static void next_batch(feed *from, long place)
{
    sonde_nn_batch batch;

    TRY(sonde_nn_loader_next(from->loader, &batch, &diag));
    if (batch.count == 0) {
        sonde_nn_loader_start_epoch(from->loader, ++from->pass);
        TRY(sonde_nn_loader_next(from->loader, &batch, &diag));
    }
    memcpy(from->images + place * BATCH * PIXELS, batch.data,
           BATCH * PIXELS * sizeof(float));
    memcpy(from->labels + place * BATCH, batch.labels, BATCH * sizeof(int64_t));
}

/* Returns the mean loss. */
static double train_epoch(const arguments *a, sonde_nn_session *session, feed *from)
{
    const long executions = a->steps_per_epoch / a->steps_per_execution;
    const int64_t samples = a->steps_per_execution * BATCH;
    const sonde_view inputs[] = {
        sonde_view_of(SONDE_F32, 4, (int64_t[]){samples, 1, 28, 28}, from->images),
        sonde_view_of(SONDE_I64, 1, (int64_t[]){samples}, from->labels)};
    double total = 0.0;
    sonde_view loss;

    for (long e = 0; e < executions; e++) {
        for (long i = 0; i < a->steps_per_execution; i++) {
            next_batch(from, i);
        }
        TRY(sonde_nn_session_run(session, inputs, 2, &diag));
        TRY(sonde_nn_session_output(session, 1, &loss, &diag));
        total += (double)*(const float *)loss.data;
    }
    return total / (double)executions;
}

static sonde_nn_session *make_session(const arguments *a, sonde_nn_model *model,
                                      const callback *callbacks)
{
    const int accumulation = a->use_gradient_accumulation ? ACCUMULATION : 1;
    const sonde_nn_optimizer sgd = sonde_nn_optimizer_sgd(0.01F, 0.0F);
    sonde_nn_session *session = NULL;
    sonde_nn_options options;

    sonde_nn_options_init(&options);
    options.reduction = SONDE_NN_REDUCTION_SUM; /* an update takes what the queue shows */
    options.gradient_accumulation = accumulation;
    options.device_iterations = (int)(a->steps_per_execution / accumulation);
    options.output_mode = SONDE_ANCHOR_MEAN;
    options.output_period = 1;
    /* a batch of 32 is little to share, but each stage has a thread */
    options.threads = a->no_pipelining ? 1 : 2;
    TRY(sonde_nn_session_create(model, &options, &sgd, &session, &diag));
    for (int i = 0; i < 2; i++) {
        TRY(sonde_nn_session_set(
            session, SONDE_OPTIONS(sonde_nn_session, .outfeed = callbacks[i].queue),
            &diag));
    }
    TRY(sonde_nn_session_compile(session, &diag));
    return session;
}

int main(int argc, char **argv)
{
    const arguments a = parse(argc, argv);
    const callback callbacks[] = {gradients_callback(&a), activations_callback(&a)};
    sonde_nn_dataset *set = NULL;
    sonde_nn_model *model = build_model(&a);
    sonde_nn_session *session = NULL;

    sonde_log_to_stream(stderr); /* warnings, such as of filters that leave nothing */
    TRY(sonde_nn_dataset_open(a.data, SONDE_OPTIONS(sonde_nn_dataset, .name = "mnist"),
                              &set, &diag));
    session = make_session(&a, model, callbacks);
    feed from = open_feed(&a, set);

    for (int epoch = 1; epoch <= a.epochs; epoch++) {
        const double loss = train_epoch(&a, session, &from);

        (void)printf("Epoch %d/%ld\n%ld/%ld - loss: %.4f\n", epoch, a.epochs,
                     a.steps_per_epoch, a.steps_per_epoch, loss);
        on_epoch_end(&callbacks[0], epoch);
        on_epoch_end(&callbacks[1], epoch);
    }
    close_feed(&from);
    sonde_nn_session_destroy(session);
    sonde_nn_dataset_destroy(set);
    sonde_nn_model_destroy(model);
    sonde_outfeed_destroy(callbacks[0].queue);
    sonde_outfeed_destroy(callbacks[1].queue);
    return 0;
}
