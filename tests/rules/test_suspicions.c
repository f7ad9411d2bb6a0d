/*
 * Findings that wait for training: what is unusual is an error where the loss rises or
 * stands still, a note where the loss cannot tell, and less where training goes well or
 * the tensor recovers.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { ROWS = 32, COLUMNS = 8, N = ROWS * COLUMNS, STEPS = 60 };

/* What the losses, of id 1, do; PARTS and REWARDS have another tensor, of id 2. */
enum {
    FALLS,
    STANDS,
    RISES,
    PARTS,
    REWARDS,
    BREAKS,
    LEAPS, /* it jumps at first, returns to its first value, and stands there */
    COURSES,
    VARIANT = 16 /* of the tensor that is judged */
};

static void put_losses(stream *s, int kind, int step)
{
    const int course = kind % VARIANT;
    const double noise = 0.02 * (double)stream_normal(s);
    const double value = course == FALLS   ? 2.0 * exp(-0.03 * step)
                         : course == RISES ? 2.0 * exp(0.05 * step)
                         : course == LEAPS && step > 0 && step < 5 ? 5.0
                                                                   : 2.0;

    stream_put_all(s, 1, course == BREAKS && step > 20 ? NAN : (float)(value + noise));
    if (course == PARTS || course == REWARDS) {
        stream_put_all(s, 2, 1.0F);
    }
}

/* A layer all of whose units are dead, or nearly all; or which are awake from step 8 on. */
enum { SIX = VARIANT, RECOVERS = 2 * VARIANT };

static void dead(stream *s, int kind, int step)
{
    const int units = kind / VARIANT == 1 ? 6 : COLUMNS;
    float values[N];

    for (int i = 0; i < N; i++) {
        values[i] = i % COLUMNS < units && !(kind >= RECOVERS && step >= 8) ? 0.0F : 1.0F;
    }
    stream_put(s, 0, values);
    put_losses(s, kind, step);
}

/* Weights that multiply the variance of their inputs by 320. */
static void loud(stream *s, int kind, int step)
{
    stream_put_normal(s, 0, 0.0, 3.2);
    put_losses(s, kind, step);
}

/* A constant scale beside nothing, whose rows move as one, or part. */
enum { PART = VARIANT };

static void constant(stream *s, int kind, int step)
{
    float *w = s->values[0];

    for (int i = 0; i < N && step == 0; i++) {
        w[i] = -3.0F;
    }
    stream_put(s, 0, w);
    put_losses(s, kind, step);
    for (int i = 0; i < N; i++) {
        w[i] += kind >= PART ? 0.05F * stream_normal(s) : 0.001F * (float)(i % COLUMNS);
    }
}

/* Gradients that overflow at a step at which no parameter is seen. */
static void overflow(stream *s, int kind, int step)
{
    put_losses(s, kind, step);
    stream_put_all(s, 0, step == 20 ? INFINITY : 0.1F);
    if (step % 8 == 0) {
        stream_put_normal(s, 2, 0.0, 0.1);
    }
}

/* A loss that falls by that many percent of its value; more: of a deviation in percent. */
enum { NOISE = 128 };

static void falls(stream *s, int kind, int step)
{
    stream_put_all(s, 0,
                   (float)(2.0 - 0.02 * (kind % NOISE) * fmin(step / 50.0, 1.0) +
                           0.01 * (kind / NOISE) * (double)stream_normal(s)));
}

/* Few samples: labels of four classes, and a cross-entropy a little above their entropy. */
static void near_entropy(stream *s, int learns, int step)
{
    float classes[32];

    for (int i = 0; i < 32; i++) {
        const float drawn = stream_normal(s);

        classes[i] = drawn < -0.6745F  ? 0.0F
                     : drawn < 0.0F    ? 1.0F
                     : drawn < 0.6745F ? 2.0F
                                       : 3.0F;
    }
    stream_put(s, 0, classes);
    stream_put_all(s, 1,
                   (float)(log(4.0) * (learns ? exp(-0.01 * step) : 1.015) +
                           0.05 * (double)stream_normal(s)));
}

/* --- what other programs have by construction ------------------------------------------ */

/* A bound that is infinite from the first step on; or one that becomes so. */
static void bound(stream *s, int becomes, int step)
{
    stream_put_all(s, 0, becomes && step < 10 ? 1.0F : INFINITY);
    stream_put_all(s, 1, 0.1F * (float)step);
}

/* A grid of knots beside weights that are trained: it is no layer of units. */
static void grid(stream *s, int trained, int step)
{
    float w[N];

    for (int i = 0; i < N; i++) {
        w[i] =
            0.3F * ((float)(i % COLUMNS) - 3.0F) + (trained ? 0.01F * (float)step : 0.0F);
    }
    stream_put(s, 0, w);
    stream_put_normal(s, 1, 0.0, 1.0);
    stream_put_normal(s, 2, 0.0, 1.0);
    if (trained) {
        stream_put_all(s, 3, 0.1F);
    }
}

static void sigmoid_input(stream *s, int kind, int step)
{
    (void)kind;
    (void)step;
    stream_put_normal(s, 0, 0.5, 2.0);
}

/* Many gradients that jump at one step. */
static void all_spike(stream *s, int kind, int step)
{
    (void)kind;
    for (uint32_t i = 0; i < 6; i++) {
        stream_put_normal(s, i, 0.0, step < 20 ? 0.1 : 5e3 * (i + 1));
    }
}

#define ONE(outcome) outcome, .findings = 1
#define DEAD(kind, losses)                                                               \
    "DeadRelu", "activation relu_output_0 32 8, loss " losses, dead, kind, STEPS
#define LOUD(kind, losses)                                                               \
    "PoorWeightInitialization", "weight fc.weight 8 32, loss " losses, loud, kind, STEPS
#define CONSTANT(kind)                                                                   \
    "SymmetricUnits", "weight spread.weight 32 8, loss loss", constant, kind, STEPS
#define OVERFLOW                                                                         \
    "gradient gradient/fc.weight 32 8, loss loss, weight fc.weight 32 8", overflow
#define LOSS(name) "LossNotDecreasing", "loss " name ", loss other_loss", falls
#define BOUND "buffer noise.upper_bound, weight noise.raw 1 1", bound
#define GRID                                                                             \
    "weight act.grid 32 8, weight act.coef 32 8, gradient gradient/act.coef 32 8, "      \
    "gradient gradient/act.grid 32 8"

static const stream_case cases[] = {
    {"dead units, and the loss falls", DEAD(FALLS, "loss"), ONE(NOTED)},
    {"dead units, and the loss stands", DEAD(STANDS, "loss"), ONE(FAILED)},
    {"dead units, and the loss rises", DEAD(RISES, "loss"), ONE(FAILED)},
    {"dead units, and parts of losses", DEAD(PARTS, "first_loss, loss second_loss"),
     ONE(NOTED)},
    {"dead units, and rewards", DEAD(REWARDS, "loss, input rewards 32"), ONE(NOTED)},
    {"dead units, and the loss breaks", DEAD(BREAKS, "loss"), ONE(FAILED)},
    {"dead units, and the loss leaps", DEAD(LEAPS, "loss"), ONE(FAILED)},
    {"they recover, and the loss falls", DEAD(RECOVERS + FALLS, "loss"), SILENT},
    {"they recover, and the loss stands", DEAD(RECOVERS + STANDS, "loss"), SILENT},
    {"they recover, and the loss rises", DEAD(RECOVERS + RISES, "loss"), SILENT},
    {"they recover, and parts of losses",
     DEAD(RECOVERS + PARTS, "first_loss, loss second_loss"), SILENT},
    {"they recover, and rewards", DEAD(RECOVERS + REWARDS, "loss, input rewards 32"),
     SILENT},
    {"they recover, and the loss breaks", DEAD(RECOVERS + BREAKS, "loss"), SILENT},
    {"they recover, and the loss leaps", DEAD(RECOVERS + LEAPS, "loss"), SILENT},
    {"most are dead, and the loss falls", DEAD(SIX + FALLS, "loss"), ONE(NOTED)},
    {"most are dead, and the loss stands", DEAD(SIX + STANDS, "loss"), ONE(NOTED)},
    {"large weights, and the loss falls", LOUD(FALLS, "loss"), ONE(NOTED)},
    {"large weights, and the loss stands", LOUD(STANDS, "loss"), ONE(WARNED)},
    {"large weights, and the loss rises", LOUD(RISES, "loss"), ONE(WARNED)},
    {"large weights, and parts of losses", LOUD(PARTS, "first_loss, loss second_loss"),
     ONE(NOTED)},
    {"large weights, and rewards", LOUD(REWARDS, "loss, input rewards 32"), ONE(NOTED)},
    {"large weights, and the loss breaks", LOUD(BREAKS, "loss"), ONE(WARNED)},
    {"large weights, and the loss leaps", LOUD(LEAPS, "loss"), ONE(WARNED)},
    {"units part, and the loss stands", CONSTANT(PART + STANDS), SILENT},
    {"units part, and the loss falls", CONSTANT(PART + FALLS), SILENT},
    {"units move as one, and the loss falls", CONSTANT(FALLS), ONE(FAILED)},
    {"units move as one, and the loss stands", CONSTANT(STANDS), ONE(FAILED)},
    {"NonFinite: an overflow", "NonFinite", OVERFLOW, STANDS, STEPS, NOTED,
     "gradient/fc.weight", 20},
    {"ExplodingTensor: an overflow", "ExplodingTensor", OVERFLOW, STANDS, STEPS, NOTED,
     "gradient/fc.weight", 20},
    {"NonFinite: an overflow, and the next losses break", "NonFinite", OVERFLOW, BREAKS,
     STEPS, FAILED, "gradient/fc.weight", 20},
    {"ExplodingTensor: an overflow, and the next losses break", "ExplodingTensor",
     OVERFLOW, BREAKS, STEPS, FAILED, "gradient/fc.weight", 20, .findings = 2},
    {"a loss does not move", LOSS("loss"), 5 * NOISE, 120, ONE(NOTED)},
    {"a loss hardly moves", LOSS("loss"), 2 * NOISE + 3, 120, ONE(NOTED)},
    {"a loss falls by a fifth", LOSS("loss"), 5 * NOISE + 20, 120, SILENT},
    {"a loss is noise", LOSS("loss"), 150 * NOISE, 120, SILENT},
    {"a part of a loss does not move", LOSS("part_loss"), 5 * NOISE, 120, SILENT},
    {"a loss is near the entropy", "LabelNoise", "input labels 32, loss loss",
     near_entropy, 0, 110, ONE(NOTED)},
    {"a loss falls from the entropy", "LabelNoise", "input labels 32, loss loss",
     near_entropy, 1, 110, SILENT},
    {"NonFinite: a bound is infinite", "NonFinite", BOUND, 0, 20, SILENT},
    {"ExplodingTensor: a bound is infinite", "ExplodingTensor", BOUND, 0, 20, SILENT},
    {"NonFinite: a bound becomes infinite", "NonFinite", BOUND, 1, 20, ONE(FAILED)},
    {"ExplodingTensor: a bound becomes infinite", "ExplodingTensor", BOUND, 1, 20,
     ONE(FAILED)},
    {"what is not trained may be alike", "SymmetricUnits", GRID, grid, 0, STEPS, SILENT,
     .losing = true},
    {"what is trained may not", "SymmetricUnits", GRID, grid, 1, STEPS, ONE(FAILED),
     .losing = true},
    /* declared with the op of its module, it is not its output */
    {"the input of a sigmoid has no slope", "SaturatedActivation",
     "activation scale_input_0 32 8 =Sigmoid", sigmoid_input, 0, STEPS, SILENT,
     .losing = true},
    {"a spike of all is one finding", "GradientSpike",
     "6*gradient gradient/fc#.weight 32 8", all_spike, 0, 40, ONE(FAILED),
     .losing = true},
};

int main(void)
{
    return stream_main(cases, SONDE_COUNT_OF(cases), NULL, 0);
}
