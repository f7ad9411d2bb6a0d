/*
 * FrozenParameter, UnfrozenParameter and WeightUpdateRatio on a small network that is
 * trained by hand: w -= rate * g.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { LAYERS = 3, N = 60, STEPS = 25 };

/* --- a network of three layers -------------------------------------------------------- */

enum {
    FREEZES,
    FROZEN,
    BACKBONE,
    UNFREEZES,
    CHOSEN,
    TRAINED,
    BOLD,
    TIMID,
    LARGE,
    WARMS_UP,
    TOO_SMALL,
    FROM_ZERO
};

/* The rate of one layer is `before`, and from step `from` on `after`; all others' 0.01. */
static const struct {
    int without; /* the layer that has no gradient, but perhaps decay; -1: none */
    int layer;
    float before, after;
    int from;
} nets[] = {[FREEZES] = {-1, 1, 0.01F, 0.0F, 5},  [FROZEN] = {-1, 2, 0.0F, 0.0F, 0},
            [BACKBONE] = {0, 0, 0.0F, 0.0F, 0},   [UNFREEZES] = {0, 0, 0.0F, 0.01F, 5},
            [CHOSEN] = {-1, 1, 0.0F, 0.01F, 7},   [TRAINED] = {-1, 0, 0.01F, 0.01F, 0},
            [BOLD] = {-1, 1, 0.01F, 100.0F, 8},   [TIMID] = {-1, 1, 0.01F, 1e-5F, 8},
            [LARGE] = {-1, 1, 0.01F, 0.5F, 8},    [WARMS_UP] = {-1, 0, 0.0F, 0.01F, 5},
            [TOO_SMALL] = {-1, 0, 1e-4F, 0, 100}, [FROM_ZERO] = {-1, 0, 0, 0, 0}};

static float rate_of(int kind, int layer, int step)
{
    const float its = step >= nets[kind].from ? nets[kind].after : nets[kind].before;

    return kind == FROM_ZERO                               ? 1e-6F * (float)pow(2.0, step)
           : layer == nets[kind].layer || kind >= WARMS_UP ? its
                                                           : 0.01F;
}

static void net(stream *s, int kind, int step)
{
    const int without = nets[kind].without;

    for (int i = 0; i < LAYERS && step == 0; i++) {
        stream_walk(s, s->values[i], N, 0.1F);
    }
    for (int j = 0; j < N && step == 0; j++) {
        s->values[0][j] = kind == TOO_SMALL   ? 1000.0F
                          : kind == FROM_ZERO ? 0.0F
                                              : s->values[0][j];
    }
    for (int i = 0; i < LAYERS; i++) {
        float *w = s->values[i], g[N];

        for (int j = 0; j < N; j++) {
            g[j] = i == without ? w[j]
                                : (kind == FROM_ZERO ? 0.01F : 0.1F) * stream_normal(s);
            w[j] -= rate_of(kind, i, step) * g[j];
        }
        stream_put(s, (uint32_t)i, w);
        if (i != without) {
            stream_put(s, (uint32_t)(LAYERS + i - (without >= 0)), g);
        }
    }
}

/* --- weights that stay, or follow ----------------------------------------------------- */

/* The optimizer goes on, with copies; a moment that stays says that it does not. */
static void copies(stream *s, int goes_on, int step)
{
    stream_put_all(s, 0, 0.5F);
    stream_put_normal(s, 1, 0.0, 0.1);
    stream_put_all(s, 2, goes_on ? 0.1F * (float)step : 0.1F);
}

/* Trained weights, and one, with the id 3, that never has a gradient. */
static void cut_off(stream *s, int kind, int step)
{
    (void)kind;
    for (uint32_t i = 0; i < 3; i++) {
        stream_put_all(s, 2 * i + (i > 0), 0.5F + 0.01F * (float)step);
        stream_put_normal(s, 2 * i + (i > 0) + 1, 0.0, 0.1);
    }
    stream_put_all(s, 2, 0.5F);
}

/* A weight after trained ones that never has a gradient. */
enum { DRAWN = 0, CONSTANTS = 1, /* 0, 1, 2 ... */ LOSING = 2 };

static void unused(stream *s, int kind, int step)
{
    float *w = s->values[0];

    for (int j = 0; j < N && step == 0; j++) {
        w[j] = kind & CONSTANTS ? (float)j : stream_normal(s);
    }
    for (uint32_t i = 0; i < 4; i++) {
        if (i == 2) {
            stream_put(s, i, w);
        } else {
            stream_put_all(s, i, 0.5F + 0.01F * (float)step);
            stream_put_normal(s, 4 + i - (i > 2), 0.0, 0.1);
        }
    }
    stream_put_all(s, 7, 2.0F + (kind & LOSING ? 0.2F : -0.02F) * (float)step);
}

/* Copies that follow a model as a moving average are as many as its parameters. BOTH: the
 * model's only decay. */
enum { FOLLOWS, DECAYS, BOTH };

static void average(stream *s, int kind, int step)
{
    float *w = s->values[0], *c = s->values[1];

    for (int i = 0; i < N && step == 0; i++) {
        w[i] = c[i] = stream_normal(s);
    }
    for (int i = 0; i < N; i++) {
        w[i] = kind == BOTH ? 0.99F * w[i] : w[i] + 0.01F * stream_normal(s);
        c[i] = kind == DECAYS ? 0.999F * c[i] : 0.9F * c[i] + 0.1F * w[i];
    }
    stream_put(s, 0, w);
    stream_put(s, 2, c);
    stream_put_normal(s, 1, 0.0, 0.1);
}

/* --- updates -------------------------------------------------------------------------- */

enum { STAYS, FALLS };
enum {
    BOLD_FALLS,
    LESS_STAYS,
    LESS_FALLS,
    USUAL_STAYS,
    SLOW_SEEN_20,
    FAST_SEEN_5,
    LEAST_STAYS,
    LITTLE_STAYS,
    SOME_STAYS,
    SOME_FALLS,
    LEAST_FALLS,
    LEAST_LATER
};

/* Weights that change by `change` of themselves a step from step `from` on, and the loss.
 * They are seen at the first ten steps and then at each step that `every` divides; with
 * more than 1 they change the same way at every step, so that changes add up. */
static const struct {
    double change;
    int from, loss, every;
} updates[] = {
    [BOLD_FALLS] = {0.3, 10, FALLS, 1},    [LESS_STAYS] = {0.12, 10, STAYS, 1},
    [LESS_FALLS] = {0.12, 10, FALLS, 1},   [USUAL_STAYS] = {0.01, 0, STAYS, 1},
    [SLOW_SEEN_20] = {0.03, 0, STAYS, 20}, [FAST_SEEN_5] = {0.9, 30, STAYS, 5},
    [LEAST_STAYS] = {5e-6, 0, STAYS, 1},   [LITTLE_STAYS] = {2e-5, 0, STAYS, 1},
    [SOME_STAYS] = {1e-4, 0, STAYS, 1},    [SOME_FALLS] = {1e-4, 0, FALLS, 1},
    [LEAST_FALLS] = {5e-6, 0, FALLS, 1},   [LEAST_LATER] = {5e-6, 20, STAYS, 1}};

static void update(stream *s, int kind, int step)
{
    float *w = s->values[0];
    const double by = step >= updates[kind].from ? updates[kind].change : 0.01;
    const int every = updates[kind].every;

    for (int i = 0; i < N; i++) {
        w[i] = step > 0 ? w[i] : i % 2 ? 1.0F : -1.0F;
        w[i] *= 1.0F + (float)((i % 4 < 2) == (every == 1 && step % 2) ? by : -by);
    }
    if (step < 10 || step % every == 0) {
        stream_put(s, 0, w);
    }
    stream_put_all(s, 1,
                   (float)(updates[kind].loss == FALLS ? 2.0 * exp(-0.05 * step)
                                                       : 2.0 + 0.01 * (step % 3)));
}

#define NET "3*weight fc#.weight 6 10, 3*gradient Gradient___fc#.weight 6 10"
#define NET_WITHOUT_0                                                                    \
    "3*weight fc#.weight 6 10, gradient Gradient___fc1.weight 6 10, "                    \
    "gradient Gradient___fc2.weight 6 10"
#define COPIES                                                                           \
    "weight fc.weight 6 10, gradient fc.weight.grad 6 10, optimizer Accl1___fc.weight 6 10"
#define WITH_GRADIENT(name) "weight " name " 6 10, gradient " name ".grad 6 10, "
#define CUT_OFF(name)                                                                    \
    WITH_GRADIENT("fc1.weight")                                                          \
    "weight " name " 6 10, " WITH_GRADIENT("fc3.weight")                                 \
        WITH_GRADIENT("fc4.weight") "output fc1_output_0 6 10"
#define UNUSED                                                                           \
    "4*weight fc#.weight 6 10, gradient gradient/fc0.weight 6 10, "                      \
    "gradient gradient/fc1.weight 6 10, gradient gradient/fc3.weight 6 10, loss loss"
#define DECLARED ", gradient gradient/fc2.weight 6 10"
#define OUTPUTS ", 4*activation fc#_output_0 6 10"
#define THEIR_GRADIENTS ", 4*activation_gradient gradient/fc#_output_0 6 10"
#define BUT_ITS                                                                          \
    ", 2*activation_gradient gradient/fc#_output_0 6 10, "                               \
    "activation_gradient gradient/fc3_output_0 6 10"
#define AVERAGE                                                                          \
    "weight fc.weight 6 10, gradient gradient/fc.weight 6 10, weight ema.fc.weight 6 10"
#define UPDATED "WeightUpdateRatio", "weight fc.weight 6 10, loss loss_output_0", update

static const stream_case cases[] = {
    {"a layer is frozen by mistake", "FrozenParameter", NET, net, FREEZES, STEPS, FOUND,
     "fc1.weight", 6},
    {"a layer is frozen from the start", "FrozenParameter", NET, net, FROZEN, STEPS,
     FOUND, "fc2.weight", 2},
    {"a backbone has no gradients", "FrozenParameter", NET_WITHOUT_0, net, BACKBONE,
     STEPS},
    {"a rate warms up from 0", "FrozenParameter", NET, net, WARMS_UP, STEPS},
    {"changes are too small for float32", "FrozenParameter", NET, net, TOO_SMALL, STEPS},
    /* gradients of several steps are summed first */
    {"an optimizer waits", "FrozenParameter", COPIES, copies, 0, STEPS},
    {"an optimizer holds copies", "FrozenParameter", COPIES, copies, 1, STEPS, FOUND,
     "fc.weight", 2},
    {"a weight of the network itself is used", "FrozenParameter:idle=10",
     CUT_OFF("gate_weight"), cut_off, 0, STEPS, WARNED},
    {"a weight of a module that is not seen", "FrozenParameter:idle=10",
     CUT_OFF("head.weight"), cut_off, 0, STEPS, NOTED},
    {"BERT's pooler", "FrozenParameter:idle=10", UNUSED DECLARED OUTPUTS BUT_ITS, unused,
     DRAWN, STEPS, NOTED, "fc2.weight", 10},
    {"BERT's pooler, and the loss rises", "FrozenParameter:idle=10",
     UNUSED DECLARED OUTPUTS BUT_ITS, unused, LOSING, STEPS, WARNED, "fc2.weight", 10},
    {"a weight is cut off", "FrozenParameter:idle=10",
     UNUSED DECLARED OUTPUTS THEIR_GRADIENTS, unused, DRAWN, STEPS, WARNED, "fc2.weight",
     10},
    {"a weight is frozen", "FrozenParameter:idle=10", UNUSED OUTPUTS THEIR_GRADIENTS,
     unused, DRAWN, STEPS, WARNED, "fc2.weight", 10},
    {"a weight lacks its gradient", "FrozenParameter:idle=10", UNUSED DECLARED, unused,
     DRAWN, STEPS, WARNED, "fc2.weight", 10},
    {"a weight is not to be trained", "FrozenParameter:idle=10", UNUSED, unused, DRAWN,
     STEPS, NOTED, "fc2.weight", 10},
    {"it is not trained, and the loss rises", "FrozenParameter:idle=10", UNUSED, unused,
     LOSING, STEPS, WARNED, "fc2.weight", 10},
    {"it has constants, and the loss rises", "FrozenParameter:idle=10", UNUSED, unused,
     CONSTANTS | LOSING, STEPS, NOTED, "fc2.weight", 10},
    {"a frozen layer changes", "UnfrozenParameter", NET_WITHOUT_0, net, UNFREEZES, STEPS,
     FOUND, "fc0.weight", 6},
    {"a layer that is named changes", "UnfrozenParameter:tensor_regex=fc1", NET, net,
     CHOSEN, STEPS, FOUND, "fc1.weight", 7},
    {"a frozen layer stays", "UnfrozenParameter", NET_WITHOUT_0, net, BACKBONE, STEPS},
    {"a trained layer changes", "UnfrozenParameter", NET, net, TRAINED, STEPS},
    {"a copy follows as an average", "UnfrozenParameter", AVERAGE, average, FOLLOWS,
     STEPS},
    {"a copy of what decays follows", "UnfrozenParameter", AVERAGE, average, BOTH, STEPS,
     SILENT},
    {"a copy decays", "UnfrozenParameter", AVERAGE, average, DECAYS, STEPS, FOUND,
     "ema.fc.weight", 2},
    {"bold updates", UPDATED, BOLD_FALLS, 40, FOUND, "fc.weight", 12},
    {"large updates have to pay", UPDATED, LESS_STAYS, 40, FOUND, "fc.weight", 25},
    {"large updates pay", UPDATED, LESS_FALLS, 40},
    {"usual updates", UPDATED, USUAL_STAYS, 60},
    {"steps between add up", UPDATED, SLOW_SEEN_20, 120},
    {"bold updates between", UPDATED, FAST_SEEN_5, 120, FOUND},
    {"a rate teaches nothing", UPDATED, LEAST_STAYS, 60, WARNED, "fc.weight", 40},
    {"a rate teaches little", UPDATED, LITTLE_STAYS, 60, WARNED, "fc.weight", 40},
    {"a low rate, too early to say", UPDATED, SOME_STAYS, 60, NOTED, "fc.weight", 40},
    {"a low rate, or a trained network that is tuned further", UPDATED, SOME_STAYS, 120,
     NOTED, "fc.weight", 40},
    {"a low rate teaches", UPDATED, SOME_FALLS, 120},
    {"the lowest rate teaches", UPDATED, LEAST_FALLS, 60},
    {"a schedule ends", UPDATED, LEAST_LATER, 60},
    {"updates out of proportion", "WeightUpdateRatio", NET, net, BOLD, STEPS, FOUND,
     "fc1.weight", 8, .above = 10.0},
    {"ten small updates on end",
     "WeightUpdateRatio:small_threshold=1e-4,small_patience=10", NET, net, TIMID, STEPS,
     FOUND, "fc1.weight", 17, .below = 1e-4},
    {"a small update, as smdebug's", "WeightUpdateRatio:small_threshold=1e-4", NET, net,
     TIMID, STEPS, FOUND, "fc1.weight", 8, .below = 1e-4},
    {"large updates of one layer", "WeightUpdateRatio", NET, net, LARGE, STEPS},
    {"a weight rises from 0", "WeightUpdateRatio", NET, net, FROM_ZERO, STEPS},
};

int main(void)
{
    return stream_main(cases, SONDE_COUNT_OF(cases), NULL, 0);
}
