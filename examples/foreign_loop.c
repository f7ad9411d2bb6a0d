/*
 * foreign_loop.c - a program with its own training loop, recorded with libsonde alone.
 *
 *     foreign_loop RUN [STEPS [CONFIG]]
 *
 * A network of two layers learns by hand-written gradient descent which of two rings a point lies on.
 * RUN is the folder to record to; CONFIG is a hook's configuration (YAML, JSON or smdebug's JSON),
 * which may select any of the tensors declared below.
 *
 * The program creates a hook and declares its tensors once. In its loop it marks where a step begins
 * and ends, and passes each value to the hook. The configuration decides what is saved, when, and in
 * which form.
 */
#include <sonde/hook.h>

#include <math.h>
#include <string.h>

#include "example.h"

enum { POINTS = 64, HIDDEN = 16 };

/* Weights, or their gradients. */
typedef struct layers {
    float w1[HIDDEN][2], b1[HIDDEN], w2[HIDDEN], b2;
} layers;

static float x[POINTS][2], label[POINTS], hidden[POINTS][HIDDEN], output[POINTS], loss;
static layers net, grad;
static sonde_diag diag;

/* --- the network -------------------------------------------------------------------- */

static float uniform(void) /* -1 ... 1; the same numbers on every machine */
{
    static uint32_t state = 1;

    state = state * 1664525U + 1013904223U;
    return (float)(state >> 8) / (float)(1 << 23) - 1.0F;
}

/* Points on a ring of radius 1/2 (label 0) or 1 (label 1), and some noise. */
static void draw_points(void)
{
    for (int i = 0; i < POINTS; i++) {
        const float angle = 3.14159265F * uniform();
        const float radius = (i % 2 == 0 ? 0.5F : 1.0F) + 0.1F * uniform();

        x[i][0] = radius * cosf(angle);
        x[i][1] = radius * sinf(angle);
        label[i] = (float)(i % 2);
    }
}

/* relu(x w1 + b1) w2 + b2, sigmoid, cross-entropy. */
static void forward(void)
{
    loss = 0.0F;
    for (int i = 0; i < POINTS; i++) {
        float sum = net.b2;

        for (int j = 0; j < HIDDEN; j++) {
            const float *w = net.w1[j];

            hidden[i][j] = fmaxf(x[i][0] * w[0] + x[i][1] * w[1] + net.b1[j], 0.0F);
            sum += hidden[i][j] * net.w2[j];
        }
        output[i] = 1.0F / (1.0F + expf(-sum));
        loss += (fmaxf(sum, 0.0F) - sum * label[i] + log1pf(expf(-fabsf(sum)))) /
                (float)POINTS;
    }
}

static void backward(void)
{
    memset(&grad, 0, sizeof grad);
    for (int i = 0; i < POINTS; i++) {
        const float error = (output[i] - label[i]) / (float)POINTS;

        grad.b2 += error;
        for (int j = 0; j < HIDDEN; j++) {
            const float back = hidden[i][j] > 0.0F ? error * net.w2[j] : 0.0F;

            grad.w2[j] += error * hidden[i][j];
            grad.b1[j] += back;
            grad.w1[j][0] += back * x[i][0];
            grad.w1[j][1] += back * x[i][1];
        }
    }
}

static void update(void)
{
    float *w = (float *)&net; /* one number after the other */
    const float *g = (const float *)&grad;

    for (size_t i = 0; i < sizeof net / sizeof *w; i++) {
        w[i] -= 0.5F * g[i];
    }
}

/* --- recording ---------------------------------------------------------------------- */

/* Under the names by which they are recorded; their roles follow from the names. */
static const struct tensor {
    const char *name;
    void *data;
    int rank;
    int64_t shape[2];
} tensors[] = {{"fc1.weight", net.w1, 2, {HIDDEN, 2}},
               {"fc1.bias", net.b1, 1, {HIDDEN}},
               {"fc2.weight", net.w2, 2, {1, HIDDEN}},
               {"fc2.bias", &net.b2, 1, {1}},
               {"relu_output_0", hidden, 2, {POINTS, HIDDEN}},
               {"sigmoid_output_0", output, 1, {POINTS}},
               {"loss", &loss, 0, {0}},
               {"gradient/fc1.weight", grad.w1, 2, {HIDDEN, 2}},
               {"gradient/fc1.bias", grad.b1, 1, {HIDDEN}},
               {"gradient/fc2.weight", grad.w2, 2, {1, HIDDEN}},
               {"gradient/fc2.bias", &grad.b2, 1, {1}}};
enum { WEIGHTS = 0, OUTPUTS = 4, GRADIENTS = 7, END = 11 };

static sonde_view views[END];
static uint32_t ids[END];

static void record(sonde_hook *hook, int from, int end)
{
    for (int i = from; i < end; i++) {
        sonde_hook_record(hook, sonde_hook_get_gate(hook), ids[i], &views[i]);
    }
}

int main(int argc, char **argv)
{
    const long steps = argc > 2 ? strtol(argv[2], NULL, 10) : 1000;
    const sonde_hook_options options = {
        .record = {.path = argc > 1 ? argv[1] : "foreign-run",
                   .program = "foreign_loop"}};
    sonde_hook *hook = NULL;

    TRY(argc > 3 ? sonde_hook_load(argv[3], &options, &hook, &diag)
                 : sonde_hook_create(&options, &hook, &diag));
    for (int i = 0; i < END; i++) {
        const struct tensor *t = &tensors[i];

        views[i] = sonde_view_of(SONDE_F32, t->rank, t->shape, t->data);
        TRY(sonde_hook_declare_view(hook, t->name, &views[i], &ids[i], &diag));
    }
    for (int j = 0; j < HIDDEN; j++) {
        net.w1[j][0] = uniform();
        net.w1[j][1] = uniform();
        net.w2[j] = 0.5F * uniform();
    }
    for (long step = 0; step < steps; step++) {
        TRY(sonde_hook_begin_step(hook, &diag));
        draw_points();
        record(hook, WEIGHTS, OUTPUTS);
        forward();
        record(hook, OUTPUTS, GRADIENTS);
        backward();
        record(hook, GRADIENTS, END);
        update();
        sonde_hook_end_step(hook);
    }
    (void)printf("loss after %ld steps: %.4f\n", steps, (double)loss);
    TRY(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, &diag));
    return 0;
}
