/*
 * NonFinite: the tensor in which it began, whatever the order of declaration; and
 * ExplodingTensor: NaN and infinities, of all tensors and of chosen ones.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { STEPS = 8, BAD = 3, LATE = 7 };
enum { INPUT, WEIGHT, LOG, OUT, LOSS, GRADIENT, COUNT };

/* Tensors that are NaN, or minus infinity, from step BAD on: a bit for each. */
#define NAN_IN(t) (1 << (t))
#define MINUS_IN(t) (1 << (COUNT + (t)))
enum {
    FROM_LOSS = NAN_IN(LOSS) | NAN_IN(GRADIENT),
    FROM_OUT = FROM_LOSS | NAN_IN(OUT),
    FROM_LOG = FROM_OUT | NAN_IN(LOG),
    FROM_INPUT = FROM_LOG | NAN_IN(INPUT),
    PLUS_IN_LOSS = 1 << (2 * COUNT),
    BACKWARDS = 2 << (2 * COUNT), /* the loss is declared after the gradient */
    BRIEF = 4 << (2 * COUNT)
};

static void spreads(stream *s, int kind, int step)
{
    for (int t = 0; t < COUNT; t++) {
        const int id = kind & BACKWARDS && t >= LOSS ? LOSS + GRADIENT - t : t;
        const float bad = kind & NAN_IN(t)                   ? NAN
                          : kind & MINUS_IN(t)               ? -INFINITY
                          : kind & PLUS_IN_LOSS && t == LOSS ? INFINITY
                                                             : 0.25F;
        const bool at = step >= BAD && (step < 6 || !(kind & BRIEF));
        const float values[4] = {1.0F, -2.0F, 0.5F, at ? bad : 0.25F};

        stream_put(s, (uint32_t)id, values);
    }
}

/* A mask that is there from the start. */
static void masked(stream *s, int kind, int step)
{
    (void)kind;
    stream_put_all(s, LOG, -INFINITY);
    stream_put_all(s, OUT, step >= BAD ? NAN : 1.0F);
}

/* NaN in all gradients of a step, as after clipping by their norm, or in some of them. */
static void clipped(stream *s, int all, int step)
{
    for (uint32_t i = 0; i < 3; i++) {
        stream_put_all(s, i, step >= BAD && (all || i < 2) ? NAN : 0.1F);
    }
}

enum { A_NAN, AN_INFINITY, MINUS_INFINITY, LARGE };

static void explodes(stream *s, int kind, int step)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38F};
    const float values[6] = {0.1F, -3e30F, 0.0F,
                             2.0F, 1e-30F, step >= LATE ? bad[kind] : 1.0F};

    stream_put_normal(s, 0, 0.0, 1.0);
    stream_put(s, 1, values);
}

static void count_calls(void *user, const sonde_finding *finding, bool again)
{
    int *calls = user;

    assert_string_equal(finding->tensor, "w");
    assert_int_equal(finding->steps, again ? 5 : 1);
    calls[again]++;
}

static void a_finding_is_told_at_once_and_in_the_end(void **state)
{
    int calls[2] = {0};
    stream s;

    (void)state;
    stream_open(&s, "ExplodingTensor");
    sonde_rules_on_finding(s.rules, count_calls, calls);
    (void)stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 4, 0);
    stream_begin(&s);
    for (int step = 0; step < 5; step++) {
        stream_put_all(&s, 0, NAN);
        stream_end(&s);
        assert_true(calls[0] == 1 && calls[1] == 0);
    }
    sonde_rules_finish(s.rules);
    sonde_rules_finish(s.rules); /* once is enough */
    assert_true(calls[0] == 1 && calls[1] == 1);
    stream_close(&s);
}

#define UP_TO_OUT                                                                        \
    "input input 4, weight fc.weight 4, output log/Log:0 4, output out_output_0 4, "
#define NET UP_TO_OUT "loss loss_output_0 4, gradient Gradient___fc.weight 4"
#define NET_BACKWARDS UP_TO_OUT "gradient Gradient___fc.weight 4, loss loss_output_0 4"
#define GRADIENTS "3*gradient gradient/fc#.weight 4"
#define LAYER "weight fc.weight 2 3, gradient Gradient___fc.weight 2 3"
#define GRADIENT_IS_FOUND 12, FOUND, "Gradient___fc.weight", LATE, .lasts = 12 - LATE
#define WITH_WEIGHT NAN_IN(WEIGHT)

static const stream_case cases[] = {
    {"it began in the input", "NonFinite", NET, spreads, FROM_INPUT | WITH_WEIGHT, STEPS,
     FOUND, "input", BAD},
    {"in the output after the weight", "NonFinite", NET, spreads, FROM_LOG | WITH_WEIGHT,
     STEPS, FOUND, "log/Log:0", BAD},
    {"in a later output", "NonFinite", NET, spreads, FROM_OUT | WITH_WEIGHT, STEPS, FOUND,
     "out_output_0", BAD},
    {"in the loss", "NonFinite", NET, spreads, FROM_LOSS | WITH_WEIGHT, STEPS, FOUND,
     "loss_output_0", BAD},
    {"in the gradient", "NonFinite", NET, spreads, NAN_IN(GRADIENT) | WITH_WEIGHT, STEPS,
     FOUND, "Gradient___fc.weight", BAD},
    {"backwards: in the input", "NonFinite", NET_BACKWARDS, spreads,
     BACKWARDS | FROM_INPUT | WITH_WEIGHT, STEPS, FOUND, "input", BAD},
    {"backwards: in the output after the weight", "NonFinite", NET_BACKWARDS, spreads,
     BACKWARDS | FROM_LOG | WITH_WEIGHT, STEPS, FOUND, "log/Log:0", BAD},
    {"backwards: in a later output", "NonFinite", NET_BACKWARDS, spreads,
     BACKWARDS | FROM_OUT | WITH_WEIGHT, STEPS, FOUND, "out_output_0", BAD},
    {"backwards: in the loss", "NonFinite", NET_BACKWARDS, spreads,
     BACKWARDS | FROM_LOSS | WITH_WEIGHT, STEPS, FOUND, "loss_output_0", BAD},
    {"backwards: in the gradient", "NonFinite", NET_BACKWARDS, spreads,
     BACKWARDS | NAN_IN(GRADIENT) | WITH_WEIGHT, STEPS, FOUND, "Gradient___fc.weight",
     BAD},
    {"minus infinity alone masks", "NonFinite", NET, spreads, MINUS_IN(LOG), STEPS},
    {"minus infinity before an infinite loss", "NonFinite", NET, spreads,
     MINUS_IN(LOG) | PLUS_IN_LOSS, STEPS, FOUND, "log/Log:0", BAD},
    /* what came of it is named */
    {"a mask among the inputs", "NonFinite", NET, spreads,
     MINUS_IN(INPUT) | MINUS_IN(LOG) | NAN_IN(OUT) | NAN_IN(LOSS), STEPS, FOUND,
     "out_output_0", BAD},
    {"a mask from the start", "NonFinite", NET, masked, 0, STEPS, FOUND, "out_output_0",
     BAD},
    {"a bad stretch is one finding", "NonFinite", NET, spreads, FROM_LOSS | BRIEF, STEPS,
     FOUND, "loss_output_0", BAD, .lasts = 3},
    {"clipping may have spread it", "NonFinite", GRADIENTS, clipped, 1, STEPS, FOUND,
     "gradient/fc2.weight", BAD, "clipped by their norm"},
    {"some gradients are finite", "NonFinite", GRADIENTS, clipped, 0, STEPS, FOUND,
     "gradient/fc1.weight", BAD, "!clipped by their norm"},
    {"NaN", "ExplodingTensor", LAYER, explodes, A_NAN, GRADIENT_IS_FOUND},
    {"infinity", "ExplodingTensor", LAYER, explodes, AN_INFINITY, GRADIENT_IS_FOUND},
    {"minus infinity", "ExplodingTensor", LAYER, explodes, MINUS_INFINITY,
     GRADIENT_IS_FOUND},
    {"large values", "ExplodingTensor", LAYER, explodes, LARGE, 12},
    {"only NaN lets infinities be", "ExplodingTensor:only_nan=true", LAYER, explodes,
     AN_INFINITY, 12},
    {"only NaN", "ExplodingTensor:only_nan=true", LAYER, explodes, A_NAN,
     GRADIENT_IS_FOUND},
    {"another name", "ExplodingTensor:tensor_regex=^fc\\.weight$", LAYER, explodes, A_NAN,
     12},
    {"another collection", "ExplodingTensor:collection_names=weights", LAYER, explodes,
     A_NAN, 12},
    {"its name", "ExplodingTensor:tensor_regex=nothing\\,^Grad", LAYER, explodes, A_NAN,
     GRADIENT_IS_FOUND},
    {"its collection", "ExplodingTensor:collection_names=gradients", LAYER, explodes,
     A_NAN, GRADIENT_IS_FOUND},
    {"its collection and another", "ExplodingTensor:collection_names=weights\\,gradients",
     LAYER, explodes, A_NAN, GRADIENT_IS_FOUND},
};

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(a_finding_is_told_at_once_and_in_the_end)};

    return stream_main(cases, SONDE_COUNT_OF(cases), others, SONDE_COUNT_OF(others));
}
