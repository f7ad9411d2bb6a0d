/*
 * OptimizerState on an Adam by hand, and UpdateSpike.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { N = 60, STEPS = 30, AT = 10, LAYERS = 8 };

enum { RIGHT, SWAPPED, STUCK, NEGATIVE, CORRUPT, CLIPPED };

/* An Adam of one weight: its gradient, moments and step. From step AT on it is wrong. */
static void adam(stream *s, int kind, int step)
{
    const bool wrong = step >= AT;
    const float b1 = wrong && kind == SWAPPED ? 0.999F : 0.9F;
    const float b2 = wrong && kind == SWAPPED ? 0.9F : 0.999F;
    const float clipped = kind == CLIPPED ? 0.1F + 0.4F * fabsf(stream_normal(s)) : 1.0F;
    float *w = s->values[0], *m = s->values[1], *v = s->values[2], *t = s->values[3];
    float seen[N];

    *t += wrong && kind == STUCK ? 0.0F : 1.0F;
    for (int i = 0; i < N; i++) {
        float g = 0.0F;

        seen[i] = 0.05F + 0.1F * stream_normal(s);
        g = clipped * seen[i]; /* what is used is not what is seen */
        m[i] = b1 * m[i] + (1.0F - b1) * g;
        v[i] = b2 * v[i] + (1.0F - b2) * g * g;
        w[i] -= 0.01F * m[i];
    }
    v[7] = step == AT && kind == NEGATIVE ? -v[7] : v[7];
    m[7] = step == AT && kind == CORRUPT ? 1e30F : m[7];
    stream_put(s, 1, seen);
    stream_put(s, 2, m);
    stream_put(s, 3, v);
    stream_put_all(s, 4, *t);
    stream_put(s, 0, w);
}

/* A weight that walks, and one of whose elements jumps at a step; a loss, if there is one,
 * falls, or rises from there on; an output, if there is one, is infinite before. */
enum {
    CALM,
    ONE_JUMPS,
    ALL_JUMP,
    ONE_SHRINKS,
    FROM_ZERO,
    LOSS_FALLS,
    LOSS_RISES,
    NO_CAUSE,
    CAUSE
};

static void jumps(stream *s, int kind, int step)
{
    float *w = s->values[0];
    const bool at = step == AT;

    if (step == 0 && kind != FROM_ZERO) {
        stream_walk(s, w, N, 0.1F);
    }
    stream_walk(s, w, N, 0.001F);
    for (int i = 0; i < N && kind == ALL_JUMP && at; i++) {
        w[i] *= 5.0F;
    }
    w[9] = at && kind == ONE_SHRINKS                                     ? 0.0F
           : at && kind != CALM && kind != ALL_JUMP && kind != FROM_ZERO ? 1.5F
                                                                         : w[9];
    stream_put(s, 0, w);
    if (kind == LOSS_FALLS || kind == LOSS_RISES) {
        stream_put_all(
            s, 1,
            kind == LOSS_RISES && step > AT ? 9.0F : 2.0F * expf(-0.02F * (float)step));
    } else if (kind >= NO_CAUSE) {
        stream_put_all(s, 1, kind == CAUSE && step == AT - 1 ? INFINITY : 1.0F);
    }
}

/* After an error that may explain it a jump is a note, and names that error. */
static void a_jump_with_a_cause_is_a_note(void **state)
{
    (void)state;
    for (int kind = NO_CAUSE; kind <= CAUSE; kind++) {
        const sonde_finding *jump = NULL;
        stream s;

        stream_open(&s, "UpdateSpike|ExplodingTensor");
        (void)stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 6, 10);
        (void)stream_declare(&s, "fc_output_0", SONDE_ROLE_OUTPUT, 4, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            jumps(&s, kind, step);
            stream_end(&s);
        }
        jump = stream_found(&s, "fc.weight");
        assert_non_null(jump);
        assert_int_equal(jump->severity,
                         kind == CAUSE ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_ERROR);
        assert_true(jump->because_of ==
                    (kind == CAUSE ? stream_found(&s, "fc_output_0")->id : 0));
        stream_close(&s);
    }
}

/* Of 20 steps at once a drift is 20 times as large. */
static void drifts(stream *s, int flipped, int step)
{
    float *w = s->values[0];

    if (step == 0) {
        stream_walk(s, w, N, 0.02F);
    }
    w[3] += step < 20 ? 0.01F : 0.02F;
    w[3] = flipped && step == 155 ? 1e20F : w[3];
    if (step < 20 || step % 20 == 0) {
        stream_put(s, 0, w);
    }
}

/* kind: the step of the jump; negative: of a large one. */
static void small_jump(stream *s, int kind, int step)
{
    float *w = s->values[0];

    if (step == 0) {
        stream_walk(s, w, N, 0.01F);
    }
    stream_walk(s, w, N, 1e-4F);
    w[9] = step == abs(kind) ? (kind < 0 ? 1.5F : 0.06F) : w[9];
    stream_put(s, 0, w);
}

/* Second moments of another definition, at first of most parameters and then of all; or of
 * one parameter only. kind: how many; negative: the loss rises. */
static void other_moments(stream *s, int kind, int step)
{
    for (int i = 0; i < LAYERS; i++) {
        /* half of them follow one step later */
        const bool beyond = i < abs(kind) && (step > 0 || i < LAYERS / 2);

        stream_put_all(s, (uint32_t)(3 * i + 2), 0.1F);
        stream_put_all(s, (uint32_t)(3 * i + 3), beyond ? 1e-7F : 0.01F);
    }
    stream_put_all(s, 0, expf(-0.03F * (float)(kind < 0 ? -step : step)));
}

#define SONDE_ADAM                                                                       \
    "weight fc.weight 6 10, gradient Gradient___fc.weight 6 10, "                        \
    "optimizer Accl1___fc.weight 6 10, optimizer Accl2___fc.weight 6 10, "               \
    "optimizer Step___fc.weight"
#define TORCH_ADAM                                                                       \
    "weight fc.weight 6 10, gradient fc.weight.grad 6 10, "                              \
    "optimizer fc.weight.exp_avg 6 10, optimizer fc.weight.exp_avg_sq 6 10, "            \
    "optimizer fc.weight.step"
#define WEIGHT "weight fc.weight 6 10"
#define ADAMS                                                                            \
    "loss loss, 8*weight fc#.weight 60 60 + optimizer fc#.weight.exp_avg 6 10 + "        \
    "optimizer fc#.weight.exp_avg_sq 6 10"

static const stream_case cases[] = {
    {"Adam", "OptimizerState", SONDE_ADAM, adam, RIGHT, STEPS},
    {"Adam's rates are swapped", "OptimizerState", SONDE_ADAM, adam, SWAPPED, STEPS,
     FOUND, "Accl1___fc.weight", AT + 2},
    {"Adam's step is stuck", "OptimizerState", SONDE_ADAM, adam, STUCK, STEPS, FOUND,
     "Step___fc.weight", AT + 2},
    {"a second moment is negative", "OptimizerState", SONDE_ADAM, adam, NEGATIVE, STEPS,
     FOUND, "Accl2___fc.weight", AT},
    {"a first moment is corrupt", "OptimizerState", SONDE_ADAM, adam, CORRUPT, STEPS,
     FOUND, "Accl1___fc.weight", AT},
    {"gradients are clipped", "OptimizerState", SONDE_ADAM, adam, CLIPPED, STEPS},
    {"PyTorch's Adam", "OptimizerState", TORCH_ADAM, adam, RIGHT, STEPS},
    {"PyTorch's rates are swapped", "OptimizerState", TORCH_ADAM, adam, SWAPPED, STEPS,
     FOUND, "fc.weight.exp_avg", AT + 2},
    {"PyTorch's step is stuck", "OptimizerState", TORCH_ADAM, adam, STUCK, STEPS, FOUND,
     "fc.weight.step", AT + 2},
    {"PyTorch's second moment is negative", "OptimizerState", TORCH_ADAM, adam, NEGATIVE,
     STEPS, FOUND, "fc.weight.exp_avg_sq", AT},
    {"PyTorch's first moment is corrupt", "OptimizerState", TORCH_ADAM, adam, CORRUPT,
     STEPS, FOUND, "fc.weight.exp_avg", AT},
    {"PyTorch's gradients are clipped", "OptimizerState", TORCH_ADAM, adam, CLIPPED,
     STEPS},
    {"calm", "UpdateSpike", WEIGHT, jumps, CALM, STEPS},
    {"one element jumps", "UpdateSpike", WEIGHT, jumps, ONE_JUMPS, STEPS, FOUND,
     "fc.weight", AT},
    {"all elements jump", "UpdateSpike", WEIGHT, jumps, ALL_JUMP, STEPS},
    {"one element becomes 0", "UpdateSpike", WEIGHT, jumps, ONE_SHRINKS, STEPS},
    {"all begin at 0", "UpdateSpike", WEIGHT, jumps, FROM_ZERO, STEPS},
    {"one jumps, and the loss goes on falling", "UpdateSpike", WEIGHT ", loss loss",
     jumps, LOSS_FALLS, AT + 60, NOTED, "fc.weight", AT},
    {"one jumps, and the loss has risen", "UpdateSpike", WEIGHT ", loss loss", jumps,
     LOSS_RISES, AT + 60, FAILED, "fc.weight", AT},
    {"steps between count", "UpdateSpike", WEIGHT, drifts, 0, 200},
    {"a bit flips between steps", "UpdateSpike", WEIGHT, drifts, 1, 200, FOUND,
     "fc.weight", 160},
    {"a small jump early", "UpdateSpike", "weight fc.bias 6 10", small_jump, 11, 50},
    {"a large jump early", "UpdateSpike", "weight fc.bias 6 10", small_jump, -11, 50,
     FOUND, "fc.bias", 11},
    {"a small jump late", "UpdateSpike", "weight fc.bias 6 10", small_jump, 40, 50, FOUND,
     "fc.bias", 40},
    {"another Adam", "OptimizerState", ADAMS, other_moments, 8, 60, NOTED, .findings = 1},
    {"another Adam, and the loss rises", "OptimizerState", ADAMS, other_moments, -8, 60,
     FAILED, .findings = 1},
    {"one other moment", "OptimizerState", ADAMS, other_moments, 1, 60, FAILED,
     .findings = 1},
    {"no other moment", "OptimizerState", ADAMS, other_moments, 0, 60, SILENT},
};

int main(void)
{
    const struct CMUnitTest others[] = {cmocka_unit_test(a_jump_with_a_cause_is_a_note)};

    return stream_main(cases, SONDE_COUNT_OF(cases), others, SONDE_COUNT_OF(others));
}
