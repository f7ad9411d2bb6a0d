/*
 * foreign_loop.c - a program with its own training loop, recorded with libsonde alone.
 *
 *     foreign_loop RUN [STEPS [CONFIG]]
 *
 * A network of two layers learns by hand-written gradient descent which of two rings a
 * point lies on. RUN is the folder to record to; CONFIG, a hook's configuration (YAML,
 * JSON or smdebug's JSON), says which of the tensors below are saved, and when.
 */
#include <sonde/sonde.h>

#include <math.h>
#include <string.h>

#include "example.h"

enum { POINTS = 64, HIDDEN = 16 };

static float x[POINTS][2], label[POINTS], hidden[POINTS][HIDDEN], output[POINTS], loss;
static struct layers {
    float w1[HIDDEN][2], b1[HIDDEN], w2[HIDDEN], b2;
} net, grad; /* weights and their gradients */
static sonde_diag diag;

/* --- the network -------------------------------------------------------------------- */

static float uniform(void) /* -1 ... 1; the same numbers on every machine */
{
    static uint32_t state = 1;

    return (float)((state = state * 1664525U + 1013904223U) >> 8) / (1 << 23) - 1.0F;
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
        loss += (fmaxf(sum, 0.0F) - sum * label[i] + log1pf(expf(-fabsf(sum)))) / POINTS;
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

/* --- its tensors: their roles follow from the names -------------------------------- */

static const struct {
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
enum { END = sizeof tensors / sizeof *tensors };

int main(int argc, char **argv)
{
    const long steps = argc > 2 ? strtol(argv[2], NULL, 10) : 1000;
    const sonde_hook_options options = {
        .size = sizeof options,
        .record =
            SONDE_OPTIONS(sonde_recorder, .path = argc > 1 ? argv[1] : "foreign-run",
                          .program = "foreign_loop")};
    sonde_watch_options watched = {.size = sizeof watched};
    sonde_watch *watch = NULL;
    sonde_view views[END];
    uint32_t slots[END];

    TRY(argc > 3 ? sonde_hook_load(argv[3], &options, &watched.hook, &diag)
                 : sonde_hook_create(&options, &watched.hook, &diag));
    TRY(sonde_watch_create(&watched, &watch, &diag));
    for (int i = 0; i < END; i++) {
        views[i] =
            sonde_view_of(SONDE_F32, tensors[i].rank, tensors[i].shape, tensors[i].data);
        TRY(sonde_watch_add_view(watch, tensors[i].name, &views[i], &slots[i], &diag));
    }
    for (int j = 0; j < HIDDEN; j++) {
        net.w1[j][0] = uniform();
        net.w1[j][1] = uniform();
        net.w2[j] = 0.5F * uniform();
    }
    for (long step = 0; step < steps; step++) {
        TRY(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        draw_points();
        forward();
        backward();
        sonde_watch_see_all(watch, slots, views, END);
        update();
        sonde_watch_end_step(watch);
    }
    (void)printf("loss after %ld steps: %.4f\n", steps, (double)loss);
    TRY(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    return 0;
}
