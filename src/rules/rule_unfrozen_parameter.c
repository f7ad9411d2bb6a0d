/*
 * UnfrozenParameter - a parameter changes that should not.
 *
 * Of the parameters that tensor_regex selects: at the first change. Without it, of parameters
 * that look frozen: neither gradient nor update of it is among the tensors while those of at
 * least half of all parameters are; at `patience` changes. Weight decay that forgets what is
 * frozen does this. Evidence: vital signs of parameters.
 */
#include "rules/builtin.h"

typedef struct unfrozen {
    const char *tensor_regex;
    int64_t patience;
    size_t parameters, trained;
} unfrozen;

enum { PARAMETERS = 0, SIGNS = 1, REGEX = 0 };

typedef struct memory {
    sonde_vitals before;
    bool has_before, trained, chosen;
    int64_t changes;
} memory;

static const sonde_rule_param params[] = {
    {"tensor_regex", SONDE_RULE_REGEX, NULL, 0, 0,
     "expressions that select frozen parameters (default: those without a gradient)",
     offsetof(unfrozen, tensor_regex), false},
    {"patience", SONDE_RULE_COUNT, "2", 1, 1e9, "changes of those that only look frozen",
     offsetof(unfrozen, patience), false},
};
static const sonde_rule_need needs[] = {
    {"vital signs of parameters", SONDE_HOW_VITALS, false, false},
    {"gradients and updates, by their names", SONDE_HOW_VITALS, true, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__is_own(info, id)) {
        return SONDE_RULE_IGNORE;
    }
    return info->role == SONDE_ROLE_WEIGHT || info->role == SONDE_ROLE_BIAS ? PARAMETERS
           : info->role == SONDE_ROLE_GRADIENT || info->role == SONDE_ROLE_UPDATE ||
                   info->role == SONDE_ROLE_OPTIMIZER
               ? SIGNS
               : SONDE_RULE_IGNORE;
}

static void mark_trained(unfrozen *state, memory *of)
{
    state->trained += !of->trained;
    of->trained = true;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    static const char *const prefixes[] = {"Gradient___", "UpdatedVar___", "Accl1___"};
    unfrozen *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const char *name = sonde_rule_info(run, tensors[i].id)->name;
    memory *of = tensors[i].memory;

    (void)diag;
    if (tensors[i].need == PARAMETERS) {
        state->parameters++;
        of->chosen = sonde_rule_matches(run, REGEX, tensors[i].id);
        for (size_t j = 0; j < SONDE__COUNT_OF(prefixes); j++) {
            if (sonde_rule_find(run, prefixes[j], name) != SIZE_MAX) {
                mark_trained(state, of);
            }
        }
    } else if (sonde__parameter_of(name) != NULL) {
        const size_t parameter = sonde_rule_find(run, "", sonde__parameter_of(name));

        if (parameter != SIZE_MAX && tensors[parameter].need == PARAMETERS) {
            mark_trained(state, tensors[parameter].memory);
        }
    }
    return SONDE_OK;
}

static void step(sonde_rule_run *run)
{
    const unfrozen *state = sonde_rule_state(run);
    const bool told = state->tensor_regex != NULL;
    const bool guess = !told && 2 * state->trained >= state->parameters;
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        memory *of = tensors[i].memory;
        const sonde_vitals *now = tensors[i].vitals;
        const bool frozen = told ? of->chosen : guess && !of->trained;
        bool changed = false;

        if (tensors[i].need != PARAMETERS || !frozen || now == NULL) {
            continue;
        }
        changed = of->has_before && !sonde__same_vitals(now, &of->before);
        of->changes += changed;
        of->before = *now;
        of->has_before = true;
        if (changed && of->changes >= (told ? 1 : state->patience) &&
            sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "changes", (double)of->changes,
                             0.0)) {
            sonde_rule_say(
                run, NULL, "It changes%s.",
                told ? " although it is to be frozen"
                     : " although nothing of it is trained: it has no gradient");
        }
    }
}

const sonde_rule sonde__unfrozen_parameter = {
    .abi = SONDE_RULE_ABI,
    .name = "UnfrozenParameter",
    .summary = "a frozen parameter changes",
    .condition =
        "A parameter selected by `tensor_regex`, or one that has no gradient while most "
        "have, changes.",
    .advice =
        "See whether weight decay or momentum reaches it: take it out of the optimiser.",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = SONDE__TRAIN,
    .state_size = sizeof(unfrozen),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .bind = bind,
    .step = step,
};
