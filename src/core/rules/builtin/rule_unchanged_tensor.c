/*
 * UnchangedTensor - a tensor is the same at the last num_steps observed steps.
 *
 * Two raw values are the same if |a - b| <= atol + rtol |b| for all elements (equal_nan:
 * NaN equals NaN). If only vital signs were recorded, two values are the same if all
 * counts, extremes and sums are equal to the bit. Judges the tensors that
 * collection_names and tensor_regex select, else weights. Opt-in, since frozen weights
 * may stay the same.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_values.h"
#include "rules/builtin/builtin_vitals.h"

#include "base/memory.h"

#include <math.h>

typedef struct unchanged {
    const char *collection_names, *tensor_regex;
    int64_t num_steps;
    double rtol, atol;
    bool equal_nan;
} unchanged;

typedef struct tensor_memory {
    sonde_vitals vitals;
    bool has_vitals;
    int64_t same_vitals, same_raw; /* steps in a row */
    double *raw;                   /* the last one, row-major */
    int64_t raw_count, raw_step;
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__CHOSEN(unchanged),
    SONDE__COUNT(unchanged, num_steps, "3", 2, 1e9,
                 "observed steps with the same values"),
    SONDE__REAL(unchanged, rtol, "1e-5", 0, 1e30, "relative tolerance"),
    SONDE__REAL(unchanged, atol, "1e-8", 0, 1e30, "absolute tolerance"),
    SONDE__FLAG(unchanged, equal_nan, "false", "treat NaN as equal to NaN"),
};
static const sonde_rule_need needs[] = {{"the selected tensors",
                                         SONDE_HOW_VITALS | SONDE_HOW_RAW, false,
                                         SONDE__ANY, SONDE__OFTEN}};

static bool close_enough(const unchanged *state, double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return state->equal_nan && isnan(a) && isnan(b);
    }
    return a == b || fabs(a - b) <= state->atol + state->rtol * fabs(b);
}

/* Compares the values with the last ones, and keeps them. */
static bool take(const unchanged *state, tensor_memory *memory, const sonde_view *view)
{
    sonde__builtin_reader reader;
    double values[SONDE__CHUNK];
    int64_t at = 0;
    bool same = true;

    sonde__builtin_reader_init(&reader, view);
    for (size_t n = sonde__builtin_reader_take(&reader, values); n > 0;
         n = sonde__builtin_reader_take(&reader, values)) {
        for (size_t i = 0; i < n; i++, at++) {
            same = same && close_enough(state, memory->raw[at], values[i]);
            memory->raw[at] = values[i];
        }
    }
    return same;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    const unchanged *state = sonde_rule_state(run);
    tensor_memory *memory = tensor->memory;
    const int64_t count = seen->view != NULL ? sonde_view_count(seen->view) : 0;
    const bool first = memory->raw == NULL || memory->raw_count != count;

    if (count == 0 || seen->at.micro_batch != 0 || seen->at.replica != 0) {
        return;
    }
    if (first) {
        sonde__free(memory->raw);
        memory->raw = sonde__calloc((size_t)count, sizeof *memory->raw);
        memory->raw_count = count;
        if (memory->raw == NULL) {
            sonde_rule_fail(run, "out of memory for %lld values", (long long)count);
            return;
        }
    }
    memory->same_raw =
        take(state, memory, seen->view) && !first ? memory->same_raw + 1 : 1;
    memory->raw_step = seen->at.global_step;
}

static void step(sonde_rule_run *run)
{
    const unchanged *state = sonde_rule_state(run);
    const int64_t now = sonde_rule_at(run)->global_step;
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;
        tensor_memory *memory = tensors[i].memory;
        const bool raw = memory->raw != NULL && memory->raw_step == now;
        int64_t same = raw ? memory->same_raw : 0;

        if (v != NULL) {
            const bool as_before =
                memory->has_vitals && sonde__builtin_same_vitals(v, &memory->vitals);

            memory->same_vitals = as_before ? memory->same_vitals + 1 : 1;
            memory->vitals = *v;
            memory->has_vitals = true;
            same = raw ? same : memory->same_vitals;
        }
        if (same >= state->num_steps &&
            sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "steps_unchanged",
                             (double)same, (double)state->num_steps)) {
            sonde_rule_say(run, NULL,
                           "It had the same values at the last %lld observed steps.",
                           (long long)same);
        }
    }
}

static void destroy(sonde_rule_run *run)
{
    sonde__builtin_free_each(run, offsetof(tensor_memory, raw));
}

const sonde_rule sonde__builtin_unchanged_tensor = {
    SONDE__RULE("UnchangedTensor", unchanged),
    .summary = "a tensor does not change from step to step",
    .condition = "The values of the last `num_steps` observed steps are within `atol` + "
                 "`rtol` |b| of each other.",
    .advice = "For a weight, check that the optimiser holds it and that its learning "
              "rate is not 0.",
    .by_name_only = true,
    .tensor_size = sizeof(tensor_memory),
    .wants = sonde__builtin_wants_weight,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};
