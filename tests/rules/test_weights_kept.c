/*
 * WeightJump of parameters that return to an old copy, and RoundedWeights.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { STEPS = 120, AT = 80, FALLS = 1, FIRST = 2, BEST = 4, ONE = 8, OTHER = 16 };

/* Two biases drift; at step AT they get the values of step 40, those of the first step or
 * others. The loss follows them. */
static void drift(stream *s, int kind, int step)
{
    static const int back[] = {0, 40, 1, 0};
    const int from = (kind & FIRST) != 0 ? back[2] : back[1];
    const int now = (kind & ~FALLS) != 0 && step >= AT ? step - AT + from : step;
    const double best = (kind & BEST) != 0 && step < AT && step > 45 ? 3.0 : 0.0;

    for (uint32_t i = 0; i < 2; i++) {
        float values[8];

        for (int k = 0; k < 8; k++) {
            const bool stays = i == 1 && (kind & ONE) != 0;
            const double place = stays ? (double)step : (double)now;

            values[k] =
                (float)(0.01 * place * (1.0 + 0.1 * k) + 1e-3 * sin(place * k) +
                        ((kind & OTHER) != 0 && step >= AT ? 0.3 * k - 2.0 : 0.0));
        }
        stream_put(s, i, values);
    }
    stream_put_all(s, 2, (float)(2.0 - 0.01 * now + best));
}

enum { FULL, HALF, BRAIN, LEVELS, REST };

/* Values of 16 bits; from the second step on, of so many. */
static void round_off(stream *s, int kind, int step)
{
    float values[64];

    for (int k = 0; k < 64; k++) {
        const float value =
            0.01F * (float)(k + 1) *
            (1.0F + 1e-2F * (float)(k % 5) + 0.02F * (float)(kind == REST ? 0 : step));
        uint32_t bits = 0;

        memcpy(&bits, &value, sizeof bits);
        bits &= kind == HALF                                                   ? ~0x1FFFU
                : kind == BRAIN || kind == REST || (kind == FULL && step == 0) ? ~0xFFFFU
                                                                               : ~0U;
        memcpy(&values[k], &bits, sizeof bits);
        values[k] = kind == LEVELS ? (float)(k % 4 + step) : values[k];
    }
    stream_put(s, 0, values);
}

#define BIASES "bias fc1.bias 8, bias fc2.bias 8, loss loss, weight w 4 4"
#define WEIGHT "weight w 8 8"
static const stream_case cases[] = {
    {"parameters drift", "WeightJump", BIASES, drift, FALLS, STEPS, SILENT},
    {"an old copy is put back", "WeightJump", BIASES, drift, 32, STEPS, FAILED,
     "fc1.bias", AT, .statistic = "of about"},
    {"training begins anew", "WeightJump", BIASES, drift, FIRST, STEPS, SILENT},
    {"the best weights are restored", "WeightJump", BIASES, drift, BEST, STEPS, SILENT},
    {"one of two returns", "WeightJump", BIASES, drift, ONE, STEPS, SILENT},
    {"they jump elsewhere", "WeightJump", BIASES, drift, OTHER, STEPS, SILENT},
    {"rounded at first", "RoundedWeights", WEIGHT, round_off, FULL, 20},
    {"rounded to float16", "RoundedWeights", WEIGHT, round_off, HALF, 20, WARNED, "w", 6,
     .statistic = "float16"},
    {"rounded to bfloat16", "RoundedWeights", WEIGHT, round_off, BRAIN, 20, WARNED, "w",
     6, .statistic = "bfloat16"},
    {"a few levels", "RoundedWeights", WEIGHT, round_off, LEVELS, 20},
    {"rounded, and never updated", "RoundedWeights", WEIGHT, round_off, REST, 20},
};

int main(void)
{
    return stream_main(cases, SONDE_COUNT_OF(cases), NULL, 0);
}
