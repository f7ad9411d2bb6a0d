/*
 * RoundedWeights - weights of single precision hold no more than half precision.
 *
 * A weight of float32 is rounded at a look if the last SHORT bits of all of SAMPLE elements
 * are 0 (the last LONG bits: it is rounded to bfloat16), and at least DISTINCT of their
 * magnitudes differ: a grid of a few levels is meant. Fires when at least half of the
 * weights that change are rounded at `patience` looks in a row, and have changed before each: something
 * rounds them after each update, which loses what is smaller. Weights that were rounded when
 * they were loaded are not, once they are updated.
 *
 * Evidence: raw weights, SAMPLE elements of each, evenly spread.
 */
#include "rules/builtin/builtin.h"

#include <stdio.h>
#include <string.h>

enum { WEIGHTS, SAMPLE = 128, DISTINCT = 32, SHORT = 13, LONG = 16 };

typedef struct rounded {
    int64_t patience;
} rounded;

typedef struct tensor_memory {
    double before; /* a sum over the sample, by which a change is seen */
    bool seen, has_before, changed;
    int bits; /* of the sample of this look that are 0 in all; 0: it is not rounded */
    int64_t looks; /* in a row at which it had changed and was rounded */
} tensor_memory;

static const sonde_rule_param rounded_params[] = {SONDE__COUNT(
    rounded, patience, "6", 1, 1e9,
    "number of looks in a row at which a weight has changed and is rounded")};
static const sonde_rule_need rounded_needs[] = {
    {"weights of float32", SONDE_HOW_RAW, false, SONDE__WEIGHTS, SONDE__IN_PAIRS}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    return sonde__builtin_wants_role(run, info, id) == WEIGHTS && info->rank >= 2 &&
                   info->dtype == SONDE_F32
               ? WEIGHTS
               : SONDE_RULE_IGNORE;
}

static size_t distinct(double *values, size_t count)
{
    size_t found = count > 0;

    for (size_t i = 0; i < count; i++) {
        values[i] = fabs(values[i]);
    }
    sonde__builtin_sort(values, count);
    for (size_t i = 1; i < count; i++) {
        found += values[i] > values[i - 1];
    }
    return found;
}

/* How many of the last bits of all elements are 0: LONG, SHORT or 0. */
static int zero_bits(double *values, size_t count)
{
    uint32_t all = 0;

    for (size_t i = 0; i < count; i++) {
        const float value = (float)values[i];
        uint32_t bits = 0;

        memcpy(&bits, &value, sizeof bits);
        all |= bits;
    }
    if ((all & ((1U << SHORT) - 1U)) != 0 || distinct(values, count) < DISTINCT) {
        return 0;
    }
    return (all & ((1U << LONG) - 1U)) == 0 ? LONG : SHORT;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    tensor_memory *memory = tensor->memory;
    double values[SAMPLE], sum = 0.0;
    const size_t count = sonde__builtin_sample_first(observation, SAMPLE, values);

    (void)run;
    if (count == 0) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        sum += values[i] * (double)(1 + i % 7);
    }
    memory->changed =
        memory->has_before && (sum > memory->before || sum < memory->before);
    memory->before = sum;
    memory->has_before = memory->seen = true;
    memory->bits = zero_bits(values, count);
}

static void step(sonde_rule_run *run)
{
    const rounded *state = sonde_rule_state(run);
    const sonde_rule_tensor *first = NULL;
    size_t changed = 0, count = 0;

    SONDE__EACH (run, t) {
        tensor_memory *memory = t->memory;

        if (!memory->seen || !memory->changed) {
            continue;
        }
        memory->seen = false;
        memory->looks = memory->bits > 0 ? memory->looks + 1 : 0;
        changed++;
        if (memory->looks >= state->patience) {
            first = first == NULL ? t : first;
            count++;
        }
    }
    if (first == NULL || 2 * count < changed) {
        return;
    }
    const int bits = ((const tensor_memory *)first->memory)->bits;
    char others[48] = "";

    if (count > 1) {
        (void)snprintf(others, sizeof others, " and %zu other weight%s", count - 1,
                       count == 2 ? "" : "s");
    }
    sonde__rule_report(
        run, first, SONDE__SURE(WARNING), "zero_bits", bits, SHORT, NULL,
        "The last %d bits of it%s are 0 at each of %lld looks, though it is "
        "updated: it is rounded to %s after each update, and smaller "
        "updates are lost.",
        bits, others, (long long)state->patience, bits == LONG ? "bfloat16" : "float16");
}

const sonde_rule sonde__builtin_rounded_weights = {
    SONDE__RULE("RoundedWeights", rounded),
    .summary = "weights of single precision hold no more than half precision",
    .condition =
        "At `patience` observed steps in a row, the last 13 bits of at least half of the float32 weights that change are 0. Weights of fewer than 32 different sizes are not judged.",
    .advice =
        "Keep the weights that the optimizer updates in float32, and convert a copy "
        "for the forward pass (torch.autocast).",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .observe = observe,
    .step = step,
};
