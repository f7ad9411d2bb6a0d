/*
 * UnfrozenParameter - a frozen parameter changes.
 *
 * Judges the parameters that tensor_regex selects, and fires at their first change.
 * Without it, judges parameters that look frozen, because neither a gradient nor an
 * update of them is among the tensors while others have one, and fires after `patience`
 * changes. A factor common to all values is an error: weight decay is applied to frozen
 * parameters. Any other change is a note, since no optimizer makes it without a gradient:
 * the program does, for a codebook, a center or a moving average. It counts if more than
 * half of all parameters are trained, and no trained parameter has the same shape and the
 * same last parts of its name: copies of a model, or of a part of it, are meant to follow
 * it. Evidence: vital signs of parameters.
 */
#include "rules/builtin/builtin.h"

#include "base/macros.h"

#include <string.h>

typedef struct unfrozen {
    const char *tensor_regex;
    int64_t patience;
    size_t parameters, trained, linked;
} unfrozen;

/* ENOUGH: a few values may shrink by the same factor by chance. */
enum { PARAMETERS = 0, SIGNS = 1, STATES = 2, REGEX = 0, ENOUGH = 8 };

typedef struct tensor_memory {
    sonde_vitals before;
    bool has_before, trained, chosen;
    size_t twin;             /* a trained parameter that it copies; SIZE_MAX: none */
    bool shrinks;            /* a common factor made its last change */
    size_t sign, held;       /* of a parameter: its gradient or update; its state */
    int64_t changes, shrunk; /* of all changes, those by a common factor */
} tensor_memory;

static const sonde_rule_param unfrozen_params[] = {
    SONDE__REGEX(unfrozen, tensor_regex, NULL,
                 "regular expressions that select frozen parameters (default: those "
                 "without a gradient)"),
    SONDE__COUNT(
        unfrozen, patience, "2", 1, 1e9,
        "number of changes before the rule fires, for a parameter that only looks frozen"),
};
static const sonde_rule_need unfrozen_needs[] = {
    {"parameters", SONDE_HOW_VITALS, false, SONDE__PARAMETERS, SONDE__AT_TIMES},
    {"gradients or updates", SONDE_HOW_VITALS, true, SONDE__GRADIENTS | SONDE__UPDATES,
     SONDE__AT_TIMES},
    {"optimizer values", SONDE_HOW_VITALS, true, SONDE__STATE, SONDE__AT_TIMES}};

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

/* Finds the untrained parameters that have a trained twin. */
static void find_copies(sonde_rule_run *run)
{
    SONDE__EACH_OF (run, t, PARAMETERS) {
        tensor_memory *memory = t->memory;
        const sonde_tensor_info *info = sonde_rule_info(run, t->id);

        memory->twin = SIZE_MAX;
        SONDE__EACH_OF (run, twin, PARAMETERS) {
            const sonde_tensor_info *other = sonde_rule_info(run, twin->id);

            if (memory->trained || memory->twin != SIZE_MAX) {
                break;
            }
            if (((const tensor_memory *)twin->memory)->trained &&
                sonde__builtin_same_shape(info, other) &&
                ends_alike(info->name, other->name)) {
                memory->twin = sonde__builtin_index(run, twin);
            }
        }
    }
}

static const sonde__builtin_link links[] = {
    {PARAMETERS, SIGNS, offsetof(tensor_memory, sign), NULL},
    {PARAMETERS, STATES, offsetof(tensor_memory, held), NULL}};

/* Finds the parameters that are trained: those with a gradient, an update or a state. */
static void find_trained(sonde_rule_run *run)
{
    unfrozen *state = sonde_rule_state(run);

    state->parameters = state->trained = 0;
    SONDE__EACH_OF (run, t, PARAMETERS) {
        tensor_memory *memory = t->memory;

        memory->trained = memory->sign != SIZE_MAX || memory->held != SIZE_MAX;
        memory->chosen = sonde_rule_matches(run, REGEX, t->id);
        state->parameters++;
        state->trained += memory->trained;
    }
    find_copies(run);
}

/* True if all values were multiplied by the same factor of 0.5 ... 1: weight decay. The
 * sums are of float32 values, each rounded once. */
static bool shrank(const sonde_vitals *now, const sonde_vitals *before)
{
    const double by = now->l1 / before->l1;

    return now->count >= ENOUGH && by > 0.5 && by < 1.0 && before->l1 > 0.0 &&
           fabs(now->abs_max - by * before->abs_max) < 1e-6 * before->abs_max &&
           fabs(now->sumsq - by * by * before->sumsq) < 1e-6 * before->sumsq;
}

/* Notes whether a parameter changed; by a common factor: shrinks. */
static bool take(const sonde_rule_tensor *t)
{
    tensor_memory *memory = t->memory;
    const bool any =
        memory->has_before && !sonde__builtin_same_vitals(t->vitals, &memory->before);

    memory->shrinks = any ? shrank(t->vitals, &memory->before) : memory->shrinks;
    memory->before = *t->vitals;
    memory->has_before = true;
    return any;
}

/* Whether a change counts: that of a copy does if it shrinks and its original does not, whose
 * average it may follow. */
static bool counts(sonde_rule_run *run, const tensor_memory *memory, bool chosen,
                   bool most)
{
    const tensor_memory *twin =
        memory->twin != SIZE_MAX ? sonde__builtin_at(run, memory->twin)->memory : NULL;

    return chosen ||
           (twin == NULL ? most || memory->shrinks : memory->shrinks && !twin->shrinks);
}

static void judge(sonde_rule_run *run, const sonde_rule_tensor *t, bool chosen)
{
    const unfrozen *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;

    memory->changes++;
    memory->shrunk += memory->shrinks;
    const bool sure = chosen || memory->shrunk == memory->changes;
    if (memory->changes >= (chosen ? 1 : state->patience)) {
        sonde__rule_report(
            run, t, sure ? SONDE__SURE(ERROR) : SONDE__SURE(NOTE), "changes",
            (double)memory->changes, 0.0, NULL, "It changes although it %s%s.",
            chosen ? "should be frozen" : "has no gradient and no update",
            sure ? "" : ", not as weight decay would change it: the program may set it");
    }
}

static void step(sonde_rule_run *run)
{
    unfrozen *state = sonde_rule_state(run);
    const bool chosen = state->tensor_regex != NULL;

    if (sonde__builtin_relink(run, &state->linked, links, SONDE_COUNT_OF(links))) {
        find_trained(run);
    }
    const bool most = 2 * state->trained > state->parameters;

    SONDE__EACH_SEEN (run, t, PARAMETERS) {
        const tensor_memory *memory = t->memory;
        const bool any = take(t);

        if (any && (chosen ? memory->chosen : state->trained > 0 && !memory->trained) &&
            counts(run, memory, chosen, most)) {
            judge(run, t, chosen);
        }
    }
}

const sonde_rule sonde__builtin_unfrozen_parameter = {
    SONDE__RULE("UnfrozenParameter", unfrozen),
    .summary = "a frozen parameter changes",
    .condition =
        "A parameter that `tensor_regex` selects changes. Without `tensor_regex`, all values of a parameter without a gradient shrink by the same factor, as weight decay makes them. "
        "Any other change of a parameter without a gradient is a note, because the program may set it. This note requires that most parameters have a gradient and that no trained parameter has the same shape and a matching name.",
    .advice = "Check whether weight decay or momentum applies to it; remove it from the "
              "optimizer.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = sonde__builtin_wants_role,
    .step = step,
};
