/*
 * foreign_loop.c - a program with a training loop of its own, recorded: no engine of Sonde's,
 * only libsonde.
 *
 *     foreign_loop RUN [STEPS [CONFIG]]
 *
 * A network of two layers learns by hand-written gradient descent which of two rings a point
 * lies on. RUN is the folder to record to; CONFIG is a hook's configuration (YAML, JSON or
 * smdebug's JSON), which may want anything that is declared below.
 *
 * What a program has to do: make a hook, declare its tensors once, and in its loop say where
 * a step begins and ends and hand over each value when it has it. What is saved, when, and
 * as what is the configuration's business.
 */
#include <sonde/hook.h>

#include <math.h>

#include "example.h"

enum { POINTS = 64, HIDDEN = 16 };

static sonde_diag diag;

/* Everything a step computes. */
typedef struct network {
    float x[POINTS][2], label[POINTS];
    float w1[HIDDEN][2], b1[HIDDEN], w2[HIDDEN], b2;
    float hidden[POINTS][HIDDEN], output[POINTS];
    float grad_w1[HIDDEN][2], grad_b1[HIDDEN], grad_w2[HIDDEN], grad_b2;
    float loss;
} network;

/* A tensor under the name by which it is recorded; its role follows from the name. */
typedef struct tensor {
    const char *name;
    sonde_view view;
    uint32_t id;
} tensor;

enum {
    W1,
    B1,
    W2,
    B2,
    HIDDEN_OUT,
    OUTPUT,
    LOSS,
    GRAD_W1,
    GRAD_B1,
    GRAD_W2,
    GRAD_B2,
    COUNT
};

/* --- the network -------------------------------------------------------------------- */

static float uniform(void) /* -1 ... 1; the same numbers on every machine */
{
    static uint32_t state = 1;

    state = state * 1664525U + 1013904223U;
    return (float)(state >> 8) / (float)(1 << 23) - 1.0F;
}

static void initialise(network *net)
{
    for (int j = 0; j < HIDDEN; j++) {
        net->w1[j][0] = uniform();
        net->w1[j][1] = uniform();
        net->w2[j] = 0.5F * uniform();
    }
}

/* Points on a ring of radius 1/2 (label 0) or 1 (label 1), and some noise. */
static void draw_points(network *net)
{
    for (int i = 0; i < POINTS; i++) {
        const float angle = 3.14159265F * uniform();
        const float radius = (i % 2 == 0 ? 0.5F : 1.0F) + 0.1F * uniform();

        net->x[i][0] = radius * cosf(angle);
        net->x[i][1] = radius * sinf(angle);
        net->label[i] = (float)(i % 2);
    }
}

/* relu(x w1 + b1) w2 + b2, sigmoid, cross-entropy. */
static void forward(network *net)
{
    net->loss = 0.0F;
    for (int i = 0; i < POINTS; i++) {
        float sum = net->b2;

        for (int j = 0; j < HIDDEN; j++) {
            const float *w = net->w1[j], *x = net->x[i];

            net->hidden[i][j] = fmaxf(x[0] * w[0] + x[1] * w[1] + net->b1[j], 0.0F);
            sum += net->hidden[i][j] * net->w2[j];
        }
        net->output[i] = 1.0F / (1.0F + expf(-sum));
        net->loss +=
            (fmaxf(sum, 0.0F) - sum * net->label[i] + log1pf(expf(-fabsf(sum)))) /
            (float)POINTS;
    }
}

static void backward(network *net)
{
    net->grad_b2 = 0.0F;
    for (int j = 0; j < HIDDEN; j++) {
        net->grad_w1[j][0] = net->grad_w1[j][1] = net->grad_b1[j] = net->grad_w2[j] =
            0.0F;
    }
    for (int i = 0; i < POINTS; i++) {
        const float error = (net->output[i] - net->label[i]) / (float)POINTS;

        net->grad_b2 += error;
        for (int j = 0; j < HIDDEN; j++) {
            const float back = net->hidden[i][j] > 0.0F ? error * net->w2[j] : 0.0F;

            net->grad_w2[j] += error * net->hidden[i][j];
            net->grad_b1[j] += back;
            net->grad_w1[j][0] += back * net->x[i][0];
            net->grad_w1[j][1] += back * net->x[i][1];
        }
    }
}

static void update(network *net, float rate)
{
    for (int j = 0; j < HIDDEN; j++) {
        net->w1[j][0] -= rate * net->grad_w1[j][0];
        net->w1[j][1] -= rate * net->grad_w1[j][1];
        net->b1[j] -= rate * net->grad_b1[j];
        net->w2[j] -= rate * net->grad_w2[j];
    }
    net->b2 -= rate * net->grad_b2;
}

/* --- recording ---------------------------------------------------------------------- */

#define VECTOR(n, data) sonde_view_of(SONDE_F32, 1, (int64_t[]){n}, data)
#define MATRIX(n, m, data) sonde_view_of(SONDE_F32, 2, (int64_t[]){n, m}, data)
#define NUMBER(data) sonde_view_of(SONDE_F32, 0, NULL, data)

static void declare(sonde_hook *hook, network *net, tensor *tensors)
{
    const tensor all[COUNT] = {
        {"fc1.weight", MATRIX(HIDDEN, 2, net->w1), 0},
        {"fc1.bias", VECTOR(HIDDEN, net->b1), 0},
        {"fc2.weight", MATRIX(1, HIDDEN, net->w2), 0},
        {"fc2.bias", VECTOR(1, &net->b2), 0},
        {"relu_output_0", MATRIX(POINTS, HIDDEN, net->hidden), 0},
        {"sigmoid_output_0", VECTOR(POINTS, net->output), 0},
        {"loss", NUMBER(&net->loss), 0},
        {"gradient/fc1.weight", MATRIX(HIDDEN, 2, net->grad_w1), 0},
        {"gradient/fc1.bias", VECTOR(HIDDEN, net->grad_b1), 0},
        {"gradient/fc2.weight", MATRIX(1, HIDDEN, net->grad_w2), 0},
        {"gradient/fc2.bias", VECTOR(1, &net->grad_b2), 0}};

    for (int i = 0; i < COUNT; i++) {
        sonde_tensor_info info = {.name = all[i].name,
                                  .role = SONDE_ROLE_OTHER,
                                  .dtype = SONDE_F32,
                                  .rank = all[i].view.rank,
                                  .same_as = SONDE_NO_TENSOR};

        for (int k = 0; k < info.rank; k++) {
            info.shape[k] = all[i].view.shape[k];
        }
        tensors[i] = all[i];
        TRY(sonde_hook_declare(hook, &info, &tensors[i].id, &diag));
    }
}

static void record(sonde_hook *hook, const tensor *tensors, int from, int to)
{
    const sonde_hook_gate *gate = sonde_hook_get_gate(hook);

    for (int i = from; i <= to; i++) {
        sonde_hook_record(hook, gate, tensors[i].id, &tensors[i].view);
    }
}

int main(int argc, char **argv)
{
    static network net;
    const long steps = argc > 2 ? strtol(argv[2], NULL, 10) : 1000;
    sonde_hook_options options = {.record = {.path = argc > 1 ? argv[1] : "foreign-run",
                                             .program = "foreign_loop"}};
    tensor tensors[COUNT];
    sonde_hook *hook = NULL;

    if (argc > 3) {
        TRY(sonde_hook_load(argv[3], &options, &hook, &diag));
    } else {
        TRY(sonde_hook_create(&options, &hook, &diag));
    }
    declare(hook, &net, tensors);
    initialise(&net);
    for (long step = 0; step < steps; step++) {
        TRY(sonde_hook_begin_step(hook, &diag));
        draw_points(&net);
        record(hook, tensors, W1, B2);
        forward(&net);
        record(hook, tensors, HIDDEN_OUT, LOSS);
        backward(&net);
        record(hook, tensors, GRAD_W1, GRAD_B2);
        update(&net, 0.5F);
        sonde_hook_end_step(hook);
    }
    (void)printf("loss after %ld steps: %.4f\n", steps, (double)net.loss);
    TRY(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, &diag));
    return 0;
}
