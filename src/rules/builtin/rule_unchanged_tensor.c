/*
 * UnchangedTensor - a tensor is the same at the last num_steps observed steps.
 *
 * Two raw values are the same if |a - b| <= atol + rtol |b| for all elements (NaN equal to NaN
 * if equal_nan). Where only vital signs were recorded, two are the same if all of their counts,
 * extremes and sums are, to the bit. The tensors are those that collection_names and
 * tensor_regex select, else weights; since frozen ones may well stay the same, it runs only when
 * it is named.
 */
#include "rules/builtin/builtin.h"

#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct unchanged {
    const char *collection_names, *tensor_regex;
    int64_t num_steps;
    double rtol, atol;
    bool equal_nan;
} unchanged;

typedef struct memory {
    sonde_vitals vitals;
    bool has_vitals;
    int64_t same_vitals, same_raw; /* steps on end */
    double *raw;                   /* the last one, row-major */
    int64_t raw_count, raw_step;
} memory;

static const sonde_rule_param params[] = {
    SONDE__CHOSEN(unchanged),
    {"num_steps", SONDE_RULE_COUNT, "3", 2, 1e9, "observed steps that are the same",
     offsetof(unchanged, num_steps), false},
    {"rtol", SONDE_RULE_REAL, "1e-5", 0, 1e30, "relative tolerance",
     offsetof(unchanged, rtol), false},
    {"atol", SONDE_RULE_REAL, "1e-8", 0, 1e30, "absolute tolerance",
     offsetof(unchanged, atol), false},
    {"equal_nan", SONDE_RULE_FLAG, "false", 0, 0, "NaN equals NaN",
     offsetof(unchanged, equal_nan), false},
};
static const sonde_rule_need needs[] = {
    {"values of the tensors chosen", SONDE_HOW_VITALS | SONDE_HOW_RAW, false, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    return sonde__builtin_wants_chosen(
        run, id, info->role == SONDE_ROLE_WEIGHT && sonde__builtin_is_own(info, id));
}

static bool close_enough(const unchanged *state, double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return state->equal_nan && isnan(a) && isnan(b);
    }
    return a == b || fabs(a - b) <= state->atol + state->rtol * fabs(b);
}

/* Compares with what is kept, and keeps it. */
static bool take(const unchanged *state, memory *of, const sonde_view *view)
{
    sonde__builtin_reader reader;
    double values[SONDE__CHUNK];
    int64_t at = 0;
    bool same = true;

    sonde__builtin_reader_init(&reader, view);
    for (size_t n = sonde__builtin_reader_take(&reader, values); n > 0;
         n = sonde__builtin_reader_take(&reader, values)) {
        for (size_t i = 0; i < n; i++, at++) {
            same = same && close_enough(state, of->raw[at], values[i]);
            of->raw[at] = values[i];
        }
    }
    return same;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    const unchanged *state = sonde_rule_state(run);
    memory *of = tensor->memory;
    const int64_t count = seen->view != NULL ? sonde_view_count(seen->view) : 0;
    const bool first = of->raw == NULL || of->raw_count != count;

    if (count == 0 || seen->at.micro_batch != 0 || seen->at.replica != 0) {
        return;
    }
    if (first) {
        sonde__free(of->raw);
        of->raw = sonde__calloc((size_t)count, sizeof *of->raw);
        of->raw_count = count;
        if (of->raw == NULL) {
            sonde_rule_fail(run, "out of memory for %lld values", (long long)count);
            return;
        }
    }
    of->same_raw = take(state, of, seen->view) && !first ? of->same_raw + 1 : 1;
    of->raw_step = seen->at.global_step;
}

static void step(sonde_rule_run *run)
{
    const unchanged *state = sonde_rule_state(run);
    const int64_t now = sonde_rule_at(run)->global_step;
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;
        memory *of = tensors[i].memory;
        const bool raw = of->raw != NULL && of->raw_step == now;
        int64_t same = raw ? of->same_raw : 0;

        if (v != NULL) {
            const bool as_before =
                of->has_vitals && sonde__builtin_same_vitals(v, &of->vitals);

            of->same_vitals = as_before ? of->same_vitals + 1 : 1;
            of->vitals = *v;
            of->has_vitals = true;
            same = raw ? same : of->same_vitals;
        }
        if (same >= state->num_steps &&
            sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "steps_unchanged",
                             (double)same, (double)state->num_steps)) {
            sonde_rule_say(run, NULL, "It was the same at the last %lld observed steps.",
                           (long long)same);
        }
    }
}

static void destroy(sonde_rule_run *run)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        sonde__free(((memory *)tensors[i].memory)->raw);
    }
}

const sonde_rule sonde__builtin_unchanged_tensor = {
    .abi = SONDE_RULE_ABI,
    .name = "UnchangedTensor",
    .summary = "a tensor stays the same from step to step",
    .condition = "The values of the last `num_steps` observed steps are within "
                 "atol + rtol |b| of each other.",
    .advice =
        "A weight: see whether the optimiser has it and its learning rate is not 0.",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .by_name_only = true,
    .state_size = sizeof(unchanged),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};
