/*
 * What rules meet in other people's programs: masks of attention, layers frozen on purpose
 * and by mistake, gradients that never reach the weights, several losses, smooth losses;
 * WeightJump, LossSign and TrainEvalMode; batches that are not shuffled; targets of a
 * regression that inputs say nothing about.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { LAYERS = 4, POLICY = LAYERS - 1, STEPS = 80 };

static void masked(stream *s, int bad, int step)
{
    const float values[4] = {0.1F, -INFINITY, 0.2F, 0.3F};

    stream_put(s, 0, values);
    stream_put(s, 1, values);
    stream_put_all(s, 2, bad && step == 7 ? NAN : 0.5F);
}

/* --- layers that stay ----------------------------------------------------------------- */

enum { ONE_CUT, TWO_CUT, ALL_STAY, ALL_STAY_LATER, THREE_STAY, LAST_STAYS };

/* Layers first ... last stay as they are; with their gradients, if any are `pulled`. */
static const struct {
    int first, last;
    bool pulled;
    int from;
} stays[] = {[ONE_CUT] = {1, 1, false, 0},   [TWO_CUT] = {0, 1, false, 0},
             [ALL_STAY] = {0, 3, true, 0},   [ALL_STAY_LATER] = {0, 3, true, 40},
             [THREE_STAY] = {0, 2, true, 0}, [LAST_STAYS] = {3, 3, true, 0}};

static void train(stream *s, int kind, int step)
{
    for (int i = 0; i < LAYERS; i++) {
        const bool stay =
            i >= stays[kind].first && i <= stays[kind].last && step >= stays[kind].from;
        float *w = &s->values[0][i];

        *w = step == 0 ? 1.0F : *w;
        *w -= stay ? 0.0F : 0.01F;
        stream_put_all(s, (uint32_t)i, *w);
        if (stays[kind].pulled || !stay) {
            stream_put_all(s, (uint32_t)(LAYERS + i), 1.0F + 0.1F * stream_normal(s));
        }
    }
}

/* A policy that is updated by hand after 40 steps of its critic, or never. */
static void policy(stream *s, int cut, int step)
{
    for (uint32_t i = 0; i < POLICY; i++) {
        stream_put_all(s, i, 1.0F + 0.01F * (float)step);
        stream_put_all(s, LAYERS + i, 1.0F + 0.1F * stream_normal(s));
    }
    stream_put_all(s, POLICY, 1.0F + (cut ? 0.0F : 0.01F * (float)(step / 40)));
}

/* --- losses --------------------------------------------------------------------------- */

/* A loss that rises from 0.1 to 0.5; weights that move as before, or jump. */
static void spike(stream *s, int jumps, int step)
{
    float *w = s->values[0];

    *w += step == 40 && jumps ? 1.0F : 0.01F;
    stream_put_all(s, 0, (step > 40 ? 0.5F : 0.1F) + 0.01F * stream_normal(s));
    stream_put_all(s, 1, 1.0F + *w);
}

/* A smooth loss whose gradient grows a little at each step, in parts that agree. */
static void smooth(stream *s, int kind, int step)
{
    float *g = s->values[0];

    (void)kind;
    if (step == 0) {
        stream_walk(s, g, 16, 1.0F);
    }
    for (int i = 0; i < 16; i++) {
        g[i] += 0.2F * (i % 2 == 0 ? 1.0F : -1.0F) + 0.05F * stream_normal(s);
    }
    stream_put(s, 0, g);
}

/* --- the weights of another time, and the sign of the loss ---------------------------- */

static void jump(stream *s, int bad, int step)
{
    float *w = s->values[0];

    *w = step == 0 ? 1.0F : *w;
    *w -= 0.01F * (1.0F - (float)(step % 40) / 40.0F); /* a rate that restarts at 40 */
    *w = bad && step == 60 ? 1.0F : *w;
    for (uint32_t i = 0; i < 3; i++) {
        stream_put_all(s, i, *w * (float)(i + 1));
    }
}

enum { RUNAWAY, LIKELIHOOD, DENSITY };

static void below_zero(stream *s, int kind, int step)
{
    const float gone = 1.0F - expf(-0.05F * (float)step);

    stream_put_all(s, 0,
                   kind == RUNAWAY      ? -expf(0.08F * (float)step)
                   : kind == LIKELIHOOD ? 2.0F - 6.0F * gone
                                        : -1.0F - 4.0F * gone);
}

/* --- training and evaluation mode ----------------------------------------------------- */

enum { AS_IT_SHOULD_BE, ON_IN_EVALUATION, OFF_AFTERWARDS };

/* Ten steps of training, four of evaluation, ten of training. */
static void modes(stream *s, int kind, int step)
{
    const bool evaluates = step >= 10 && step < 14;
    const bool on =
        evaluates ? kind == ON_IN_EVALUATION : step < 10 || kind != OFF_AFTERWARDS;
    const float in[4] = {1.0F, 2.0F, 3.0F, 4.0F + (float)step};
    const float dropped[4] = {2.0F, 0.0F, 6.0F, 0.0F};

    s->at.mode = evaluates ? SONDE_MODE_EVAL : SONDE_MODE_TRAIN;
    s->at.mode_step = evaluates ? step - 10 : step < 10 ? step : step - 4;
    stream_put(s, 1, in);
    stream_put(s, 0, on ? dropped : in);
    stream_put_all(s, 2, on && !evaluates ? 0.1F * (float)step : 0.9F);
}

/* --- data --------------------------------------------------------------------------------- */

static void classes(stream *s, int sorted, int step)
{
    float y[16];

    for (int i = 0; i < 16; i++) {
        y[i] = (float)(sorted ? step / 5 % 4 : i % 4);
    }
    stream_put(s, 0, y);
}

/* The squared error of a network that predicts the mean, or that is still learning. */
static void regression(stream *s, int learns, int step)
{
    const float fall = learns ? 0.5F * (float)step / 300.0F : 0.0F;

    stream_put_normal(s, 1, 3.0, 2.0);
    stream_put_all(s, 0, 4.0F - 4.0F * fall + 0.4F * stream_normal(s));
}

#define MASKED "buffer attn.mask 2 2, output attn.scores 2 2, weight fc.weight 2 2"
#define NET "4*weight fc#.weight 4 4, 4*gradient gradient/fc#.weight 4 4"
#define CRITIC                                                                           \
    "3*weight value_net#.weight 4 4, weight action_net3.weight 4 4, "                    \
    "3*gradient gradient/value_net#.weight 4 4, gradient gradient/action_net3.weight 4 4"
#define DROPOUT                                                                          \
    "output drop_output_0 2 2 =Dropout, input drop_input_0 2 2, buffer bn.running_mean 2"

static const stream_case cases[] = {
    {"masks are no explosion", "ExplodingTensor", MASKED, masked, 0, 10},
    {"NaN beside a mask explodes", "ExplodingTensor", MASKED, masked, 1, 10, FOUND,
     "fc.weight", 7},
    {"masks are finite", "NonFinite", MASKED, masked, 0, 10},
    {"NaN beside a mask is not", "NonFinite", MASKED, masked, 1, 10, FOUND, "fc.weight",
     7},
    {"a weight has no gradient", "FrozenParameter", NET, train, ONE_CUT, STEPS, WARNED,
     "fc1.weight", 40},
    /* a backbone: on purpose, or cut off by mistake */
    {"the first weights have no gradient", "FrozenParameter", NET, train, TWO_CUT, STEPS,
     NOTED, "fc1.weight", 40},
    {"a policy takes its turn", "FrozenParameter", CRITIC, policy, 0, 120},
    {"a policy has no turn", "FrozenParameter", CRITIC, policy, 1, 120, WARNED,
     "action_net3.weight", 119},
    {"gradients change nothing", "FrozenParameter", NET, train, ALL_STAY, STEPS, FAILED,
     .findings = 1},
    /* cleared before the update from there on */
    {"gradients change nothing from step 40 on", "FrozenParameter", NET, train,
     ALL_STAY_LATER, STEPS, FOUND, "fc0.weight", 49},
    {"layers are to be unfrozen later", "FrozenParameter", NET, train, THREE_STAY, STEPS,
     NOTED, .findings = 3},
    {"the last layer by itself stays", "FrozenParameter", NET, train, LAST_STAYS, STEPS,
     FAILED, "fc3.weight", 2},
    {"a loss rises as weights jump", "LossSpike", "loss loss, weight fc.weight 4 4",
     spike, 1, STEPS, FAILED, "loss", 54},
    {"a loss rises as weights move", "LossSpike", "loss loss, weight fc.weight 4 4",
     spike, 0, STEPS, NOTED, "loss", 54},
    {"the loss of one of two players rises", "LossSpike",
     "loss d_loss, weight fc.weight 4 4, loss g_loss", spike, 1, STEPS, NOTED, "d_loss",
     54},
    {"a total of two losses rises", "LossSpike",
     "loss total_loss, weight fc.weight 4 4, loss kl_loss", spike, 1, STEPS, FAILED,
     "total_loss", 54},
    {"gradients grow smoothly", "MissingZeroGrad", "gradient gradient/fc.weight 4 4",
     smooth, 0, 6},
    {"a rate restarts", "WeightJump", "3*weight fc#.weight 4 4", jump, 0, STEPS},
    {"the weights of the start come back", "WeightJump", "3*weight fc#.weight 4 4", jump,
     1, STEPS, FOUND, "fc2.weight", 60},
    {"a loss of the wrong sign runs away", "LossSign", "loss loss", below_zero, RUNAWAY,
     STEPS, FAILED, "loss", 39},
    {"a likelihood falls below 0", "LossSign", "loss loss", below_zero, LIKELIHOOD,
     STEPS},
    {"a density is below 0", "LossSign", "loss loss", below_zero, DENSITY, STEPS},
    {"modes are as they should be", "TrainEvalMode", DROPOUT, modes, AS_IT_SHOULD_BE, 24},
    {"dropout is on in evaluation", "TrainEvalMode", DROPOUT, modes, ON_IN_EVALUATION, 24,
     FAILED, "drop_output_0", 12},
    {"dropout and statistics are off after it", "TrainEvalMode", DROPOUT, modes,
     OFF_AFTERWARDS, 24, FOUND, "bn.running_mean", 17, .findings = 2},
    {"batches of all classes", "ClassImbalance", "input labels 16", classes, 0, STEPS},
    {"batches of one class", "ClassImbalance", "input labels 16", classes, 1, STEPS,
     FOUND, "", 9, "entropy"},
    {"targets of a regression are shuffled", "LabelNoise", "loss loss, input targets 64",
     regression, 0, 300, FOUND, .findings = 1},
    {"a regression learns", "LabelNoise", "loss loss, input targets 64", regression, 1,
     300},
};

int main(void)
{
    return stream_main(cases, SONDE_COUNT_OF(cases), NULL, 0);
}
