/*
 * VanishingGradient on gradients by hand: those that vanish and those that do not.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { LAYERS = 6, STEPS = 30 };

enum {
    HEALTHY,
    TINY_FROM_4,
    ZERO_FROM_10,
    ALL_TINY,
    ALL_TINIER,
    ALL_ZERO,
    ALL_TINY_FROM_5,
    ALL_TINIER_FROM_5,
    ALL_ZERO_FROM_5,
    ALL_ZERO_FROM_10,
    TINY_ONCE,
    SIGMOID,
    FROZEN,
    LEARNT_OUT,
    FROM_NOTHING,
    SMALL_BATCHES,
    UNUSED,
    FADES,
    ALL_BEFORE
};

/* The deviation of the gradient of a layer; 0: exactly zero. */
static double scale_of(int kind, int layer, int step)
{
    switch (kind) {
    case HEALTHY:
        return 1e-2 * pow(3.0, layer - LAYERS) / (step + 1);
    case TINY_FROM_4:
        return layer == 2 && step >= 4 ? 1e-9 : 1e-3;
    case ZERO_FROM_10:
        return layer == 1 && step >= 10 ? 0.0 : 1e-3;
    case ALL_TINY:
        return 1e-9;
    case ALL_TINIER:
        return 1e-20;
    case ALL_ZERO:
        return 0.0;
    case ALL_TINY_FROM_5:
        return step >= 5 ? 1e-9 : 1e-3;
    case ALL_TINIER_FROM_5:
        return step >= 5 ? 1e-20 : 1e-3;
    case ALL_ZERO_FROM_5:
        return step >= 5 ? 0.0 : 1e-3;
    case ALL_ZERO_FROM_10:
        return step >= 10 ? 0.0 : 1e-3;
    case TINY_ONCE:
        return layer == 3 && step == 7 ? 1e-8 : 1e-3;
    case SIGMOID:
        return 0.1 * pow(0.1, LAYERS - 1 - layer);
    case FROZEN:
        return layer == 0 ? 0.0 : 1e-3;
    case LEARNT_OUT:
        return 1e-2 * pow(0.1, step);
    case FROM_NOTHING:
        return layer == 0 ? 1e-10 * pow(3.0, step) : 1e-3;
    case SMALL_BATCHES:
        return layer == 0 && step % 5 < 2 ? 1e-10 : 1e-3;
    default: /* a layer between others is small, with or without those before it */
        return layer == 2                        ? (kind == FADES && step < 4 ? 1e-3
                                                    : step % 4 == 3           ? 0.0
                                                                              : 1e-9)
               : layer < 2 && kind == ALL_BEFORE ? 1e-9
                                                 : 1e-2;
    }
}

static void gradients(stream *s, int kind, int step)
{
    for (int i = 0; i < LAYERS; i++) {
        stream_put_normal(s, (uint32_t)i, 0.0, scale_of(kind, i, step));
    }
}

/* Gradients are 0 at once, but so is the loss. */
static void learnt(stream *s, int kind, int step)
{
    stream_put_all(s, LAYERS, step >= 10 ? 1e-6F : 2.3F);
    gradients(s, kind, step);
}

static void rows(stream *s, int kind, int step)
{
    float values[4096] = {0};

    (void)kind;
    values[step] = 1e-4F; /* a mean of 2.4e-8 */
    stream_put(s, 0, values);
    stream_put_normal(s, 1, 0.0, 1e-2);
}

static void weights(stream *s, int kind, int step)
{
    (void)kind;
    (void)step;
    stream_put_normal(s, 0, 0.0, 1.0);
}

#define RULE "VanishingGradient"
#define NET "6*gradient Gradient___fc#.weight 10 20"

/* The loss falls all the same. */
static void gradients_and_fall(stream *s, int kind, int step)
{
    gradients(s, kind, step);
    stream_put_all(s, LAYERS, 2.0F + 3.0F / (1.0F + 0.2F * (float)step));
}

static const stream_case cases[] = {
    {"healthy gradients", RULE, NET, gradients, HEALTHY, STEPS},
    {"a tiny one, after the patience", "vanishinggradient", NET, gradients, TINY_FROM_4,
     STEPS, FOUND, "Gradient___fc2.weight", 6, .lasts = STEPS - 6},
    {"one becomes 0", RULE, NET, gradients, ZERO_FROM_10, STEPS, FOUND,
     "Gradient___fc1.weight", 12},
    /* from the first step on, and from one step to the next */
    {"all are tiny", RULE, NET, gradients, ALL_TINY, STEPS, FOUND,
     "Gradient___fc1.weight", 2, .findings = LAYERS},
    {"all are tinier", RULE, NET, gradients, ALL_TINIER, STEPS, FOUND,
     "Gradient___fc1.weight", 2, .findings = LAYERS},
    {"all are 0", RULE, NET, gradients, ALL_ZERO, STEPS, FOUND, "Gradient___fc1.weight",
     2, .findings = LAYERS},
    {"all become tiny", RULE, NET, gradients, ALL_TINY_FROM_5, STEPS, FOUND,
     "Gradient___fc1.weight", 7, .findings = LAYERS},
    {"all become tinier", RULE, NET, gradients, ALL_TINIER_FROM_5, STEPS, FOUND,
     "Gradient___fc1.weight", 7, .findings = LAYERS},
    {"all become 0", RULE, NET, gradients, ALL_ZERO_FROM_5, STEPS, FOUND,
     "Gradient___fc1.weight", 7, .findings = LAYERS},
    {"all become 0 with the loss", RULE, NET ", loss loss", learnt, ALL_ZERO_FROM_10,
     STEPS},
    /* as smdebug documents it: any gradient, at any step */
    {"smdebug's condition", "VanishingGradient:smdebug=true", NET, gradients, TINY_ONCE,
     STEPS, FOUND, "Gradient___fc3.weight", 7},
    {"smdebug's threshold", "VanishingGradient:threshold=1e-6", NET, gradients, TINY_ONCE,
     STEPS, FOUND, "Gradient___fc3.weight", 7},
    {"smdebug's threshold with patience", "VanishingGradient:threshold=1e-6,patience=3",
     NET, gradients, TINY_ONCE, STEPS},
    {"a deep sigmoid net vanishes on the way", RULE, NET, gradients, SIGMOID, STEPS,
     FOUND, "Gradient___fc0.weight", 2},
    {"exactly 0 from the start", RULE, NET, gradients, FROZEN, STEPS, FAILED,
     "Gradient___fc0.weight", 19, "exactly 0"},
    {"exactly 0 although the loss falls", RULE, NET ", loss loss", gradients_and_fall,
     FROZEN, 100, FAILED, "Gradient___fc0.weight", 19, "exactly 0"},
    {"gradients while the loss falls", RULE, NET ", loss loss", gradients_and_fall,
     SMALL_BATCHES, 100},
    {"learnt out step by step", RULE, NET, gradients, LEARNT_OUT, STEPS},
    {"growing from nothing", RULE, NET, gradients, FROM_NOTHING, STEPS},
    {"small now and then", RULE, NET, gradients, SMALL_BATCHES, STEPS},
    {"a branch that the data do not use", RULE, NET, gradients, UNUSED, STEPS, NOTED},
    {"a layer between others fades", RULE, NET, gradients, FADES, STEPS, FAILED},
    {"a layer and all before it", RULE, NET, gradients, ALL_BEFORE, STEPS, FAILED},
    {"rows that no batch touches", "VanishingGradient:profile=0",
     "gradient Gradient___table.weight 4096 1, gradient Gradient___fc.weight 10 10", rows,
     0, STEPS},
    {"without gradients it says so", RULE, "weight fc.weight 4 4", weights, 0, 1, SILENT,
     .lacks = "the run has no gradients"},
};

int main(void)
{
    return stream_main(cases, SONDE_COUNT_OF(cases), NULL, 0);
}
