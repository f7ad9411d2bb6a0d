/*
 * UnfrozenParameter - a frozen parameter changes.
 *
 * Judges the parameters that tensor_regex selects, and fires at their first change.
 * Without it, judges parameters that look frozen, because neither a gradient nor an
 * update of them is among the tensors while others have one, and fires after `patience`
 * changes. A factor common to all values is an error: weight decay is applied to frozen
 * parameters. Any other change is a note, since no optimiser makes it without a gradient:
 * the program does, for a codebook, a centre or a moving average. It counts if more than
 * half of all parameters are trained, and no trained parameter has the same shape and the
 * same last parts of its name: copies of a model, or of a part of it, are meant to follow
 * it. Evidence: vital signs of parameters.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"

#include <math.h>
#include <string.h>

typedef struct unfrozen {
    const char *tensor_regex;
    int64_t patience;
    size_t parameters, trained, linked;
} unfrozen;

enum { PARAMETERS = 0, SIGNS = 1, STATES = 2, REGEX = 0 };

typedef struct tensor_memory {
    sonde_vitals before;
    bool has_before, trained, chosen;
    bool copy;               /* a trained parameter is its twin */
    size_t sign, held;       /* of a parameter: its gradient or update; its state */
    int64_t changes, shrunk; /* of all changes, those by a common factor */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REGEX(unfrozen, tensor_regex, NULL,
                 "regular expressions that select frozen parameters (default: those "
                 "without a gradient)"),
    SONDE__COUNT(unfrozen, patience, "2", 1, 1e9,
                 "changes of a parameter that only looks frozen before the rule fires"),
};
static const sonde_rule_need needs[] = {
    {"parameters", SONDE_HOW_VITALS, false, SONDE__PARAMETERS, SONDE__AT_TIMES},
    {"gradients or updates", SONDE_HOW_VITALS, true, SONDE__GRADIENTS | SONDE__UPDATES,
     SONDE__AT_TIMES},
    {"optimiser values", SONDE_HOW_VITALS, true, SONDE__STATE, SONDE__AT_TIMES}};

/* Whether the names end in the same parts: two of them, or all of the shorter name. */
static bool ends_alike(const char *a, const char *b)
{
    size_t i = strlen(a), k = strlen(b);
    int parts = 0;

    while (i > 0 && k > 0 && a[i - 1] == b[k - 1]) {
        i--;
        k--;
        parts += a[i] == '.' || a[i] == '/';
    }
    return parts >= 2 || ((i == 0 || k == 0) && parts >= 1);
}

static bool same_shape(const sonde_tensor_info *a, const sonde_tensor_info *b)
{
    return a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

/* Finds the untrained parameters that have a trained twin. */
static void find_copies(sonde_rule_run *run)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;
        const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);

        memory->copy = false;
        for (size_t k = 0; k < count && tensors[i].need == PARAMETERS &&
                           !memory->trained && !memory->copy;
             k++) {
            const sonde_tensor_info *other = sonde_rule_info(run, tensors[k].id);

            memory->copy = tensors[k].need == PARAMETERS &&
                           ((const tensor_memory *)tensors[k].memory)->trained &&
                           same_shape(info, other) && ends_alike(info->name, other->name);
        }
    }
}

/* Finds the parameters that are trained, by the names of their gradients. */
static void find_trained(sonde_rule_run *run)
{
    unfrozen *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    sonde__builtin_link(run, PARAMETERS, SIGNS, NULL, offsetof(tensor_memory, sign));
    sonde__builtin_link(run, PARAMETERS, STATES, NULL, offsetof(tensor_memory, held));
    state->linked = count;
    state->parameters = state->trained = 0;
    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;

        if (tensors[i].need == PARAMETERS) {
            memory->trained = memory->sign != SIZE_MAX || memory->held != SIZE_MAX;
            memory->chosen = sonde_rule_matches(run, REGEX, tensors[i].id);
            state->parameters++;
            state->trained += memory->trained;
        }
    }
    find_copies(run);
}

/* A few values may shrink by the same factor by chance. */
enum { ENOUGH = 8 };

/* True if all values were multiplied by the same factor of 0.5 ... 1: weight decay. The
 * sums are of float32 values, each rounded once. */
static bool shrank(const sonde_vitals *now, const sonde_vitals *before)
{
    const double by = now->l1 / before->l1;

    return now->count >= ENOUGH && by > 0.5 && by < 1.0 && before->l1 > 0.0 &&
           fabs(now->abs_max - by * before->abs_max) < 1e-6 * before->abs_max &&
           fabs(now->sumsq - by * by * before->sumsq) < 1e-6 * before->sumsq;
}

static void step(sonde_rule_run *run)
{
    unfrozen *state = sonde_rule_state(run);
    const bool chosen = state->tensor_regex != NULL;
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (state->linked != count) {
        find_trained(run);
    }
    const bool most = 2 * state->trained > state->parameters;

    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;
        const sonde_vitals *now = tensors[i].vitals;
        const bool frozen =
            chosen ? memory->chosen : state->trained > 0 && !memory->trained;
        bool changed = false, shrunk = false;

        if (tensors[i].need != PARAMETERS || !frozen || now == NULL) {
            continue;
        }
        changed = memory->has_before && !sonde__builtin_same_vitals(now, &memory->before);
        shrunk = changed && shrank(now, &memory->before);
        changed = changed && (chosen || (most && !memory->copy) || shrunk);
        memory->changes += changed;
        memory->shrunk += shrunk;
        memory->before = *now;
        memory->has_before = true;
        if (changed && memory->changes >= (chosen ? 1 : state->patience) &&
            sonde_rule_found(run, i,
                             chosen || memory->shrunk == memory->changes
                                 ? SONDE_SEVERITY_ERROR
                                 : SONDE_SEVERITY_NOTE,
                             "changes", (double)memory->changes, 0.0)) {
            sonde_rule_say(
                run, NULL, "It changes although it %s%s.",
                chosen ? "should be frozen" : "has no gradient and no update",
                chosen || memory->shrunk == memory->changes
                    ? ""
                    : ", not as weight decay would change it: the program may set it");
        }
    }
}

const sonde_rule sonde__builtin_unfrozen_parameter = {
    SONDE__RULE("UnfrozenParameter", unfrozen),
    .summary = "a frozen parameter changes",
    .condition =
        "A parameter that `tensor_regex` selects changes; or, without it, all values of a parameter without a gradient shrink by the same factor, as by weight decay. A note where it changes otherwise, while most parameters have a gradient and no trained parameter is its twin by shape and name: the program may set it.",
    .advice = "Check whether weight decay or momentum applies to it; remove it from the "
              "optimiser.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = sonde__builtin_wants_role,
    .step = step,
};
