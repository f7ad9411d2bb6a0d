/*
 * rule_chosen_tensors.c - rules about tensors that the user selects, or all of them.
 */
#include "rules/builtin/builtin.h"
#include "rules/context.h"

#include "base/fail.h"
#include "base/memory.h"

#include <sonde/trial.h>

/* --- AllZero ----------------------------------------------------------------------- */

/*
 * AllZero - a tensor is all zeros.
 *
 * Fires when at least `threshold` percent of the values of a tensor are 0. Judges the
 * tensors that collection_names and tensor_regex select; one of them is required.
 * Evidence: vital signs.
 */

typedef struct all_zero {
    const char *collection_names, *tensor_regex;
    double threshold;
} all_zero;

static const sonde_rule_param all_zero_params[] = {
    SONDE__CHOSEN(all_zero),
    SONDE__REAL(all_zero, threshold, "100", 0, 100,
                "smallest percentage of zeros that counts"),
};
static const sonde_rule_need all_zero_needs[] = {
    {"the selected tensors", SONDE_HOW_VITALS, false, SONDE__ANY, SONDE__OFTEN}};

static sonde_err all_zero_init(sonde_rule_run *run, sonde_diag *diag)
{
    const all_zero *state = sonde_rule_state(run);

    if (state->collection_names == NULL && state->tensor_regex == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "AllZero",
                           "collection_names or tensor_regex", "no tensors are chosen");
    }
    return SONDE_OK;
}

static int all_zero_wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)info;
    return sonde__builtin_wants_chosen(run, id, false);
}

static void all_zero_step(sonde_rule_run *run)
{
    const all_zero *state = sonde_rule_state(run);

    SONDE__EACH_SEEN (run, t, 0) {
        const sonde_vitals *v = t->vitals;
        const double share =
            v->count > 0 ? 100.0 * (double)v->zero / (double)v->count : -1.0;

        if (share >= state->threshold) {
            sonde__rule_report(run, t, SONDE__SURE(WARNING), "zero_percent", share,
                               state->threshold, NULL,
                               "%.4g %% of its %llu values are 0.", share,
                               (unsigned long long)v->count);
        }
    }
}

const sonde_rule sonde__builtin_all_zero = {
    SONDE__RULE("AllZero", all_zero),
    .summary = "a tensor is all zeros",
    .condition = "At least `threshold` % of a tensor's values are 0.",
    .advice = "For a weight, check its initialization. For an activation or a gradient, "
              "look for dead units before it or for a mask that hides everything.",
    .by_name_only = true,
    .init = all_zero_init,
    .wants = all_zero_wants,
    .step = all_zero_step,
};

/* --- DtypeChanged ------------------------------------------------------------------ */

/*
 * DtypeChanged - the dtype of a tensor changes.
 *
 * Opt-in, since it needs raw values, of which it only reads the dtype.
 */

typedef struct dtype_changed_memory {
    sonde_dtype dtype;
    bool has;
} dtype_changed_memory;

static const sonde_rule_need needs[] = {
    {"tensors", SONDE_HOW_RAW, false, SONDE__ANY, SONDE__SELDOM}};

static int dtype_changed_wants(sonde_rule_run *run, const sonde_tensor_info *info,
                               uint32_t id)
{
    (void)run;
    return sonde__builtin_is_own(info, id) && info->role != SONDE_ROLE_SCALAR
               ? 0
               : SONDE_RULE_IGNORE;
}

static void dtype_changed_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                                  const sonde_observation *observation)
{
    dtype_changed_memory *memory = tensor->memory;

    if (memory->has && memory->dtype != observation->view->dtype) {
        sonde__rule_report(
            run, tensor, SONDE__SURE(WARNING), "dtype", (double)observation->view->dtype,
            (double)memory->dtype, NULL, "Its dtype changed from %s to %s.",
            sonde_dtype_name(memory->dtype), sonde_dtype_name(observation->view->dtype));
    }
    *memory = (dtype_changed_memory){observation->view->dtype, true};
}

const sonde_rule sonde__builtin_dtype_changed = {
    .abi = SONDE_RULE_ABI,
    .name = "DtypeChanged",
    .summary = "a tensor's dtype changes during the run",
    .condition =
        "The dtype of a tensor's raw values differs from that at the previous observed step.",
    .advice = "Look for a cast, or for mixed precision that is switched on or off during "
              "the run.",
    SONDE_RULE_NEEDS(needs),
    .by_name_only = true, /* reads what is large */
    .tensor_size = sizeof(dtype_changed_memory),
    .wants = dtype_changed_wants,
    .observe = dtype_changed_observe,
};

/* --- SimilarAcrossRuns ------------------------------------------------------------- */

/*
 * SimilarAcrossRuns - a tensor differs from the same tensor of another run at the same
 * step.
 *
 * other_trial is the other run. Judges the tensors that collection_names and tensor_regex
 * select, else all. Fires when the vital signs of both at a step of the same mode differ,
 * by a relative difference of more than rtol in any sum or extreme. Tensors and steps
 * that the other run does not have are left out. Evidence: vital signs of both runs.
 */

typedef struct similar {
    const char *collection_names, *tensor_regex, *other_trial;
    double rtol;
    sonde_trial *other;
    int64_t compared;
} similar;

typedef struct similar_memory {
    uint32_t other; /* id there */
} similar_memory;

static const sonde_rule_param similar_params[] = {
    SONDE__CHOSEN(similar),
    {"other_trial", SONDE_RULE_TEXT, NULL, 0, 0, "the run to compare with",
     offsetof(similar, other_trial), true},
    SONDE__REAL(similar, rtol, "0", 0, 1e9,
                "largest acceptable relative difference of two values"),
};
static const sonde_rule_need similar_needs[] = {
    {"tensors", SONDE_HOW_VITALS, false, SONDE__ANY, SONDE__OFTEN}};

static sonde_err similar_init(sonde_rule_run *run, sonde_diag *diag)
{
    similar *state = sonde_rule_state(run);

    return sonde_trial_open(state->other_trial, NULL, &state->other, diag);
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const similar *state = sonde_rule_state(run);
    const sonde_rule_tensor *t = sonde__builtin_at(run, i);
    similar_memory *memory = t->memory;

    (void)diag;
    if (sonde_catalogue_find(sonde_trial_catalogue(state->other),
                             sonde_rule_info(run, t->id)->name, &memory->other,
                             NULL) != SONDE_OK) {
        memory->other = SONDE_NO_TENSOR;
    }
    return SONDE_OK;
}

static bool similar_close_enough(const similar *state, double a, double b)
{
    return a == b || fabs(a - b) <= state->rtol * fmax(fabs(a), fabs(b));
}

static bool alike(const similar *state, const sonde_vitals *a, const sonde_vitals *b)
{
    return a->count == b->count && a->nan == b->nan && a->pos_inf == b->pos_inf &&
           a->neg_inf == b->neg_inf && similar_close_enough(state, a->min, b->min) &&
           similar_close_enough(state, a->max, b->max) &&
           similar_close_enough(state, a->l1, b->l1) &&
           similar_close_enough(state, a->sumsq, b->sumsq);
}

static void similar_step(sonde_rule_run *run)
{
    similar *state = sonde_rule_state(run);
    const sonde_coordinate *at = sonde_rule_at(run);
    const sonde_trial_at where = {sonde__rule_mode(run), at->mode_step, -1, -1, -1};

    SONDE__EACH (run, t) {
        const similar_memory *memory = t->memory;
        const sonde_vitals *v = t->vitals;
        sonde_vitals other;

        if (v == NULL || memory->other == SONDE_NO_TENSOR ||
            sonde_trial_vitals(state->other, memory->other, &where, &other, NULL) !=
                SONDE_OK ||
            sonde_vitals_are_norms(&other)) {
            continue;
        }
        state->compared++;
        if (!alike(state, v, &other)) {
            sonde__rule_report(
                run, t, SONDE__SURE(WARNING), "l1_difference", fabs(v->l1 - other.l1),
                state->rtol, NULL,
                "It differs from the other run: |x| sums to %.8g here and to %.8g there.",
                v->l1, other.l1);
        }
    }
}

static void finish(sonde_rule_run *run)
{
    const similar *state = sonde_rule_state(run);

    if (state->compared == 0) {
        sonde_rule_lacked(run, "the runs have no tensor at a step in common");
    }
}

static void similar_destroy(sonde_rule_run *run)
{
    sonde_trial_close(((similar *)sonde_rule_state(run))->other);
}

const sonde_rule sonde__builtin_similar_across_runs = {
    SONDE__RULE("SimilarAcrossRuns", similar),
    .summary = "a tensor differs from the same tensor of another run",
    .condition = "The vital signs of a tensor differ from those in `other_trial` at the "
                 "same step of the same mode.",
    .advice = "Start at the first tensor and step that differ; compare seeds, data order "
              "and versions.",
    .by_name_only = true,
    .tensor_size = sizeof(similar_memory),
    .init = similar_init,
    .wants = sonde__builtin_wants_any,
    .bind = bind,
    .step = similar_step,
    .finish = finish,
    .destroy = similar_destroy,
};

/* --- TensorVariance ---------------------------------------------------------------- */

/*
 * TensorVariance - the variance of a tensor is above max_threshold or below
 * min_threshold.
 *
 * Judges the tensors that collection_names and tensor_regex select, else weights. At
 * least one threshold is required. The variance is that of the population of finite
 * values. Evidence: vital signs.
 */

typedef struct variance_rule {
    const char *collection_names, *tensor_regex;
    double max_threshold, min_threshold;
} variance_rule;

static const sonde_rule_param variance_rule_params[] = {
    SONDE__CHOSEN(variance_rule),
    SONDE__REAL(variance_rule, max_threshold, NULL, 0, 0, "largest acceptable variance"),
    SONDE__REAL(variance_rule, min_threshold, NULL, 0, 0, "smallest acceptable variance"),
};
static const sonde_rule_need variance_rule_needs[] = {
    {"the selected tensors", SONDE_HOW_VITALS, false, SONDE__ANY, SONDE__OFTEN}};

static sonde_err variance_rule_init(sonde_rule_run *run, sonde_diag *diag)
{
    const variance_rule *state = sonde_rule_state(run);

    if (isnan(state->max_threshold) && isnan(state->min_threshold)) {
        return sonde__fail(diag, SONDE_EINVAL, "TensorVariance",
                           "max_threshold, min_threshold or both",
                           "no threshold is given");
    }
    return SONDE_OK;
}

static void variance_rule_step(sonde_rule_run *run)
{
    const variance_rule *state = sonde_rule_state(run);

    SONDE__EACH_SEEN (run, t, 0) {
        const double variance = sonde__builtin_variance(t->vitals);
        const bool large = variance > state->max_threshold;
        const double limit = large ? state->max_threshold : state->min_threshold;

        if (large || variance < state->min_threshold) {
            sonde__rule_report(run, t, SONDE__SURE(WARNING), "variance", variance, limit,
                               NULL, "Its variance is %.4g, %s the limit of %.4g.",
                               variance, large ? "above" : "below", limit);
        }
    }
}

const sonde_rule sonde__builtin_tensor_variance = {
    SONDE__RULE("TensorVariance", variance_rule),
    .summary = "the variance of a tensor is outside the given bounds",
    .condition =
        "The variance of a tensor is above `max_threshold` or below `min_threshold`.",
    .advice =
        "A large variance leads to exploding values, a small one to vanishing values: "
        "check the initialization, the normalization and the learning rate.",
    .by_name_only = true,
    .init = variance_rule_init,
    .wants = sonde__builtin_wants_weight,
    .step = variance_rule_step,
};

/* --- UnchangedTensor --------------------------------------------------------------- */

/*
 * UnchangedTensor - a tensor is the same at the last num_steps observed steps.
 *
 * Two raw values are the same if |a - b| <= atol + rtol |b| for all elements (equal_nan:
 * NaN equals NaN). If only vital signs were recorded, two values are the same if all
 * counts, extremes and sums are equal to the bit. Judges the tensors that
 * collection_names and tensor_regex select, else weights. Opt-in, since frozen weights
 * may stay the same.
 */

typedef struct unchanged {
    const char *collection_names, *tensor_regex;
    int64_t num_steps;
    double rtol, atol;
    bool equal_nan;
} unchanged;

typedef struct unchanged_memory {
    sonde_vitals vitals;
    bool has_vitals;
    int64_t same_vitals, same_raw; /* steps in a row */
    double *raw;                   /* the last one, row-major */
    int64_t raw_count, raw_step;
} unchanged_memory;

static const sonde_rule_param unchanged_params[] = {
    SONDE__CHOSEN(unchanged),
    SONDE__COUNT(unchanged, num_steps, "3", 2, 1e9,
                 "number of observed steps that must have the same values"),
    SONDE__REAL(unchanged, rtol, "1e-5", 0, 1e30, "relative tolerance, a factor of |b|"),
    SONDE__REAL(unchanged, atol, "1e-8", 0, 1e30,
                "absolute tolerance, added to the relative one"),
    SONDE__FLAG(unchanged, equal_nan, "false", "treat NaN as equal to NaN"),
};
static const sonde_rule_need unchanged_needs[] = {{"the selected tensors",
                                                   SONDE_HOW_VITALS | SONDE_HOW_RAW,
                                                   false, SONDE__ANY, SONDE__OFTEN}};

static bool unchanged_close_enough(const unchanged *state, double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return state->equal_nan && isnan(a) && isnan(b);
    }
    return a == b || fabs(a - b) <= state->atol + state->rtol * fabs(b);
}

/* Compares the values with the last ones, and keeps them. */
static bool take(const unchanged *state, unchanged_memory *memory, const sonde_view *view)
{
    sonde__builtin_reader reader = sonde__builtin_read(view);
    double values[SONDE__CHUNK];
    int64_t at = 0;
    bool same = true;

    for (size_t n = 0; (n = sonde__builtin_next(&reader, values)) > 0;) {
        for (size_t i = 0; i < n; i++, at++) {
            same = same && unchanged_close_enough(state, memory->raw[at], values[i]);
            memory->raw[at] = values[i];
        }
    }
    return same;
}

static void unchanged_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                              const sonde_observation *observation)
{
    const unchanged *state = sonde_rule_state(run);
    unchanged_memory *memory = tensor->memory;
    const int64_t count =
        observation->view != NULL ? sonde_view_count(observation->view) : 0;
    const bool first = memory->raw == NULL || memory->raw_count != count;

    if (count == 0 || observation->at.micro_batch != 0 || observation->at.replica != 0) {
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
        take(state, memory, observation->view) && !first ? memory->same_raw + 1 : 1;
    memory->raw_step = observation->at.global_step;
}

static void unchanged_step(sonde_rule_run *run)
{
    const unchanged *state = sonde_rule_state(run);
    const int64_t now = sonde_rule_at(run)->global_step;

    SONDE__EACH (run, t) {
        const sonde_vitals *v = t->vitals;
        unchanged_memory *memory = t->memory;
        const bool raw = memory->raw != NULL && memory->raw_step == now;
        int64_t same = raw ? memory->same_raw : 0;

        if (v != NULL) {
            memory->same_vitals =
                memory->has_vitals && sonde__builtin_same_vitals(v, &memory->vitals)
                    ? memory->same_vitals + 1
                    : 1;
            memory->vitals = *v;
            memory->has_vitals = true;
            same = raw ? same : memory->same_vitals;
        }
        if (same >= state->num_steps) {
            sonde__rule_report(run, t, SONDE__SURE(WARNING), "steps_unchanged",
                               (double)same, (double)state->num_steps, NULL,
                               "It had the same values at the last %lld observed steps.",
                               (long long)same);
        }
    }
}

static void unchanged_destroy(sonde_rule_run *run)
{
    sonde__builtin_free_each(run, offsetof(unchanged_memory, raw));
}

const sonde_rule sonde__builtin_unchanged_tensor = {
    SONDE__RULE("UnchangedTensor", unchanged),
    .summary = "a tensor does not change from step to step",
    .condition =
        "The values of the last `num_steps` observed steps differ by at most `atol` + `rtol` |b|, where b is one of them.",
    .advice = "For a weight, check that the optimizer holds it and that its learning "
              "rate is not 0.",
    .by_name_only = true,
    .tensor_size = sizeof(unchanged_memory),
    .wants = sonde__builtin_wants_weight,
    .observe = unchanged_observe,
    .step = unchanged_step,
    .destroy = unchanged_destroy,
};
