/*
 * DeadRelu and SaturatedActivation on layers by hand; SoftmaxMisuse: scores, probabilities
 * and log-probabilities, and what a loss makes of them.
 */
#include "rules/stream.h"

#include "base/macros.h"
#include "base/random.h"

enum { BATCH = 32, UNITS = 20, STEPS = 20 };

/* --- DeadRelu ------------------------------------------------------------------------- */

/* kind: `dead`, the number of units that give 0 from step 5 on; plus SPARSE times the
 * percentage of the others' values that are 0; plus WALKING: other units in each step. */
enum { SPARSE = 100, WALKING = 10000 };

static void relu(stream *s, int kind, int step)
{
    const int dead = kind % SPARSE;
    const double sparse = kind % WALKING / SPARSE / 100.0;
    float values[BATCH * UNITS];

    for (int i = 0; i < BATCH * UNITS; i++) {
        const int unit = kind >= WALKING ? (i + step * 7) % UNITS : i % UNITS;
        const bool zero = (unit < dead && step >= 5) ||
                          (double)sonde__uniform(5, 6, s->draws++) < sparse;

        values[i] = zero ? 0.0F : fabsf(stream_normal(s)) + 0.01F;
    }
    stream_put(s, 0, values);
    stream_put_all(s, 1, 0.0F);
}

/* --- SaturatedActivation -------------------------------------------------------------- */

/* From step 5 on its deviation is that. */
static void spread(stream *s, int deviation, int step)
{
    stream_put_normal(s, 0, 0.0, step >= 5 ? deviation : 1.0);
}

/* The input of a module, all of that value. */
static void all_at(stream *s, int value, int step)
{
    (void)step;
    stream_put_all(s, 0, (float)value);
}

/* Outputs of tanh at both ends; of a sigmoid, at both or at one. */
enum { TANH_ENDS, TANH_INSIDE, SIGMOID_ENDS, SIGMOID_END };

static void outputs(stream *s, int kind, int step)
{
    static const struct {
        float low, high, noise;
    } at[] = {[TANH_ENDS] = {-1.0F, 1.0F, 0.005F},
              [TANH_INSIDE] = {-0.9F, 0.9F, 0.02F},
              [SIGMOID_ENDS] = {0.0F, 1.0F, 0.002F},
              [SIGMOID_END] = {0.0F, 0.0F, 0.002F}};
    float values[BATCH * UNITS];

    (void)step;
    for (int k = 0; k < BATCH * UNITS; k++) {
        const float end = k % 3 == 0 ? at[kind].low : at[kind].high;

        values[k] = end * (1.0F - at[kind].noise * fabsf(stream_normal(s))) +
                    (end > 0.0F ? 0.0F : 0.001F);
    }
    stream_put(s, 1, values);
    stream_put_normal(s, 0, 0.0, 1.0);
}

/* --- SoftmaxMisuse -------------------------------------------------------------------- */

enum { SAMPLES = 16, CLASSES = 5 };

enum {
    CROSS_ENTROPY,  /* of scores */
    NLL,            /* of log-probabilities */
    TWICE,          /* cross-entropy of probabilities */
    MISSING,        /* nll of scores */
    PROBABILITIES,  /* nll of probabilities */
    OVER_THE_BATCH, /* nll of what is normalized along the batch */
    SMOOTHED        /* another loss altogether */
};

static double log_sum(const float *s, int n, int apart)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++) {
        sum += exp((double)s[i * apart]);
    }
    return log(sum);
}

/* Rows, or columns, become log-probabilities. */
static void normalize(float *s, bool rows)
{
    float copy[SAMPLES * CLASSES];

    memcpy(copy, s, sizeof copy);
    for (int i = 0; i < SAMPLES * CLASSES; i++) {
        s[i] -= (float)(rows ? log_sum(copy + i - i % CLASSES, CLASSES, 1)
                             : log_sum(copy + i % CLASSES, SAMPLES, CLASSES));
    }
}

static void heads(stream *s, int head, int step)
{
    float y[SAMPLES], x[SAMPLES * CLASSES] = {0};
    double nll = 0.0, entropy = 0.0;

    (void)step;
    stream_walk(s, x, SAMPLES * CLASSES, 2.0F);
    if (head == NLL || head == TWICE || head == PROBABILITIES || head == OVER_THE_BATCH) {
        normalize(x, head != OVER_THE_BATCH);
    }
    for (int i = 0; i < SAMPLES * CLASSES && (head == TWICE || head == PROBABILITIES);
         i++) {
        x[i] = expf(x[i]);
    }
    for (int i = 0; i < SAMPLES; i++) {
        const float *row = x + (ptrdiff_t)i * CLASSES;

        y[i] = (float)(i * 3 % CLASSES);
        nll -= (double)row[i * 3 % CLASSES] / SAMPLES;
        entropy += (log_sum(row, CLASSES, 1) - (double)row[i * 3 % CLASSES]) / SAMPLES;
    }
    stream_put(s, 0, y);
    stream_put(s, 1, x);
    stream_put_all(s, 2,
                   (float)(head == SMOOTHED                         ? 0.9 * entropy + 0.2
                           : head == CROSS_ENTROPY || head == TWICE ? entropy
                                                                    : nll));
}

/* --- cases ---------------------------------------------------------------------------- */

#define RELU "output relu_output_0 32 20, gradient Gradient___relu_output_0 4"
#define DEAD FOUND, "relu_output_0", 7
#define SATURATED "SaturatedActivation"
#define TANH "input tanh_input_0 32 20"
#define SIGMOID "input sigmoid_input_0 32 20"
#define ACTIVATION(op)                                                                   \
    "input act_input_0 32 20 @act, output act_output_0 32 20 =" op " @act"
#define HEAD "input batch_labels 16, output loss_input_0 16 5, loss loss_output_0"

static const stream_case cases[] = {
    {"three quarters are dead after the patience", "DeadRelu", RELU, relu,
     15 + 30 * SPARSE, STEPS, DEAD, "75 % of its units"},
    {"less than half of the layer", "DeadRelu", RELU, relu, 9 + 50 * SPARSE, STEPS},
    {"a very sparse layer", "DeadRelu", RELU, relu, 95 * SPARSE, STEPS},
    {"other units in each step", "DeadRelu", RELU, relu, 11 + 20 * SPARSE + WALKING,
     STEPS},
    /* vital signs tell that most layers live; at the limit, units are counted */
    {"8 of 20", "DeadRelu", RELU, relu, 8, STEPS},
    {"9 of 20", "DeadRelu", RELU, relu, 9, STEPS},
    {"10 of 20", "DeadRelu", RELU, relu, 10, STEPS},
    {"11 of 20", "DeadRelu", RELU, relu, 11, STEPS, DEAD},
    {"12 of 20", "DeadRelu", RELU, relu, 12, STEPS, DEAD},
    {"a deviation of 1", SATURATED, TANH, spread, 1, STEPS},
    {"a deviation of 3000", SATURATED, TANH, spread, 3000, STEPS, FOUND, "tanh_input_0",
     7},
    {"a deviation of 8", SATURATED, TANH, spread, 8, STEPS},
    {"tanh at 14", SATURATED, TANH, all_at, 14, STEPS, FOUND, "tanh_input_0", 2},
    {"tanh may be at 15", SATURATED ":threshold_tanh_max=15", TANH, all_at, 14, STEPS},
    {"tanh may be at -3", SATURATED ":threshold_tanh_min=-3", TANH, all_at, -4, STEPS,
     FOUND, "tanh_input_0", 2},
    {"a sigmoid may be at 13", SATURATED ":threshold_sigmoid_max=13", SIGMOID, all_at, 14,
     STEPS, FOUND, "sigmoid_input_0", 2},
    {"a sigmoid at -14", SATURATED, SIGMOID, all_at, -14, STEPS},
    {"a sigmoid may be at -13", SATURATED ":threshold_sigmoid_min=-13", SIGMOID, all_at,
     -14, STEPS, FOUND, "sigmoid_input_0", 2},
    {"all of a layer may be", SATURATED ":threshold_layer=100", TANH, all_at, 14, STEPS},
    /* of a module with a name of its own, whose output's op says what it is */
    {"an op of tanh", SATURATED, ACTIVATION("Tanh"), all_at, 14, STEPS, FOUND,
     "act_input_0", 2},
    {"an op of a sigmoid", SATURATED, ACTIVATION("Sigmoid"), all_at, 14, STEPS},
    {"another op", SATURATED, ACTIVATION("Add"), all_at, 14, STEPS, SILENT},
    {"tanh at both ends", SATURATED, TANH ", output tanh2_output_0 32 20", outputs,
     TANH_ENDS, STEPS, FOUND, "tanh2_output_0", 2},
    {"tanh inside", SATURATED, TANH ", output tanh2_output_0 32 20", outputs, TANH_INSIDE,
     STEPS},
    {"a sigmoid at both ends", SATURATED, TANH ", output sigmoid_output_0 32 20", outputs,
     SIGMOID_ENDS, STEPS, FOUND, "sigmoid_output_0", 2},
    {"a sigmoid at one end", SATURATED, TANH ", output sigmoid_output_0 32 20", outputs,
     SIGMOID_END, STEPS},
    {"cross-entropy of scores", "SoftmaxMisuse", HEAD, heads, CROSS_ENTROPY, 4},
    {"nll of log-probabilities", "SoftmaxMisuse", HEAD, heads, NLL, 4},
    {"cross-entropy of probabilities", "SoftmaxMisuse", HEAD, heads, TWICE, 4, FOUND,
     "loss_input_0", 1, "loss_floor"},
    {"nll of scores", "SoftmaxMisuse", HEAD, heads, MISSING, 4, FOUND, "loss_input_0", 1,
     "do not add up to 1"},
    {"nll of probabilities", "SoftmaxMisuse", HEAD, heads, PROBABILITIES, 4, FOUND,
     "loss_input_0", 1, "do not add up to 1"},
    {"nll of what is normalized along the batch", "SoftmaxMisuse", HEAD, heads,
     OVER_THE_BATCH, 4, WARNED, "loss_input_0", 1},
    {"another loss", "SoftmaxMisuse", HEAD, heads, SMOOTHED, 4},
};

int main(void)
{
    return stream_main(cases, SONDE_COUNT_OF(cases), NULL, 0);
}
