/*
 * SimilarAcrossRuns - a tensor differs from the same tensor of another run at the same
 * step.
 *
 * other_trial is the other run. Judges the tensors that collection_names and tensor_regex
 * select, else all. Fires when the vital signs of both at a step of the same mode differ,
 * by a relative difference of more than rtol in any sum or extreme. Tensors and steps
 * that the other run does not have are left out. Evidence: vital signs of both runs.
 */
#include "rules/builtin/builtin.h"
#include "rules/context.h"

#include <sonde/trial.h>

#include <math.h>

typedef struct similar {
    const char *collection_names, *tensor_regex, *other_trial;
    double rtol;
    sonde_trial *other;
    int64_t compared;
} similar;

typedef struct tensor_memory {
    uint32_t other; /* id there */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__CHOSEN(similar),
    {"other_trial", SONDE_RULE_TEXT, NULL, 0, 0, "the run to compare with",
     offsetof(similar, other_trial), true},
    SONDE__REAL(similar, rtol, "0", 0, 1e9, "largest acceptable relative difference"),
};
static const sonde_rule_need needs[] = {
    {"tensors", SONDE_HOW_VITALS, false, SONDE__ANY, SONDE__OFTEN}};

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    similar *state = sonde_rule_state(run);

    return sonde_trial_open(state->other_trial, NULL, &state->other, diag);
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const similar *state = sonde_rule_state(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    tensor_memory *memory = tensors[i].memory;

    (void)diag;
    if (sonde_catalogue_find(sonde_trial_catalogue(state->other),
                             sonde_rule_info(run, tensors[i].id)->name, &memory->other,
                             NULL) != SONDE_OK) {
        memory->other = SONDE_NO_TENSOR;
    }
    return SONDE_OK;
}

static bool close_enough(const similar *state, double a, double b)
{
    return a == b || fabs(a - b) <= state->rtol * fmax(fabs(a), fabs(b));
}

static bool alike(const similar *state, const sonde_vitals *a, const sonde_vitals *b)
{
    return a->count == b->count && a->nan == b->nan && a->pos_inf == b->pos_inf &&
           a->neg_inf == b->neg_inf && close_enough(state, a->min, b->min) &&
           close_enough(state, a->max, b->max) && close_enough(state, a->l1, b->l1) &&
           close_enough(state, a->sumsq, b->sumsq);
}

static void step(sonde_rule_run *run)
{
    similar *state = sonde_rule_state(run);
    const sonde_coordinate *at = sonde_rule_at(run);
    const sonde_trial_at where = {sonde__rule_mode(run), at->mode_step, -1, -1, -1};
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const tensor_memory *memory = tensors[i].memory;
        const sonde_vitals *v = tensors[i].vitals;
        sonde_vitals other;

        if (v == NULL || memory->other == SONDE_NO_TENSOR ||
            sonde_trial_vitals(state->other, memory->other, &where, &other, NULL) !=
                SONDE_OK ||
            sonde_vitals_are_norms(&other)) {
            continue;
        }
        state->compared++;
        if (!alike(state, v, &other) &&
            sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "l1_difference",
                             fabs(v->l1 - other.l1), state->rtol)) {
            sonde_rule_say(
                run, NULL,
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

static void destroy(sonde_rule_run *run)
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
    .tensor_size = sizeof(tensor_memory),
    .init = init,
    .wants = sonde__builtin_wants_any,
    .bind = bind,
    .step = step,
    .finish = finish,
    .destroy = destroy,
};
