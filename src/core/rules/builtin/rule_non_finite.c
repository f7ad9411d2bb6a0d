/*
 * rule_non_finite.c - rules about NaN and infinities.
 */
#include "rules/builtin/builtin.h"
#include "rules/context.h"

#include "base/macros.h"

#include <stdio.h>
#include <string.h>

/* --- what both rules do --------------------------------------------------------------- */

typedef struct tensor_memory {
    bool masks;        /* it held -Inf at a step without bad values that are sure */
    bool bad;          /* at this step, and not by construction */
    uint64_t infinite; /* a buffer: infinities of the first step on; 0: it has changed */
} tensor_memory;

/* Marks the tensors that are bad at this step. A buffer that is infinite by construction,
 * such as the bound of a constraint, is not: it holds infinities, and no NaN, from the first
 * step on, and always as many. started: an earlier step was judged. */
static void mark_bad(sonde_rule_run *run, bool started)
{
    SONDE__EACH (run, t) {
        tensor_memory *memory = t->memory;
        const sonde_vitals *v = t->vitals;

        memory->bad = v != NULL && sonde__builtin_bad(v) > 0;
        if (memory->bad) {
            const uint64_t now = v->pos_inf + v->neg_inf;

            if (!started && sonde_rule_info(run, t->id)->role == SONDE_ROLE_BUFFER) {
                memory->infinite = now;
            }
            if (v->nan > 0 || now != memory->infinite) {
                memory->infinite = 0; /* for good */
            }
            memory->bad = memory->infinite == 0;
        }
    }
}

/* Whether a tensor may hold -Inf on purpose (a mask of attention, scores that are masked, a
 * logarithm of 0) and has no other bad value. */
static bool only_minus_infinite(const sonde_tensor_info *info, const sonde_vitals *v)
{
    enum { MASKED = SONDE__ACTIVATIONS | SONDE__BUFFERS | 1U << SONDE_ROLE_OTHER };

    return v->nan == 0 && v->pos_inf == 0 && (MASKED >> info->role & 1U) != 0;
}

/* Whether gradients of this step are not finite, and everything else is, parameters
 * included: the update was skipped, as a scaler of mixed precision does on purpose. MAYBE:
 * no parameter is seen at this step. */
typedef enum skip { SKIP_NO, SKIP_MAYBE, SKIP_YES } skip;

static skip was_skipped(sonde_rule_run *run)
{
    bool gradients = false, parameters = false;

    SONDE__EACH (run, t) {
        const sonde_role role = sonde_rule_info(run, t->id)->role;
        const sonde_vitals *v = t->vitals;

        if (v == NULL || (role == SONDE_ROLE_BUFFER && v->nan == 0)) {
            continue;
        }
        if (role == SONDE_ROLE_GRADIENT || role == SONDE_ROLE_ACTIVATION_GRADIENT) {
            gradients = gradients || sonde__builtin_bad(v) > 0;
        } else if (sonde__builtin_bad(v) > 0 &&
                   !only_minus_infinite(sonde_rule_info(run, t->id), v)) {
            return SKIP_NO;
        } else {
            parameters = parameters || (SONDE__PARAMETERS >> role & 1U) != 0;
        }
    }
    return !gradients ? SKIP_NO : parameters ? SKIP_YES : SKIP_MAYBE;
}

/* An update with such gradients spoils the parameters, and the next loss. */
SONDE__TERMS(perhaps, NOTE, ERROR, ERROR, ERROR, ERROR, .event = true);
static const sonde__rule_terms *const bad_terms[] = {[SKIP_NO] = SONDE__SURE(ERROR),
                                                     [SKIP_MAYBE] = &perhaps,
                                                     [SKIP_YES] = SONDE__SURE(NOTE)};

enum { BAD_TEXT = 128 };

/* "1 of 8 values is NaN", "3 of 8 values are NaN, 1 is +Inf". Returns text. */
static const char *bad_text(const sonde_vitals *v, char text[BAD_TEXT])
{
    const struct {
        uint64_t count;
        const char *name;
    } kinds[] = {{v->nan, "NaN"}, {v->pos_inf, "+Inf"}, {v->neg_inf, "-Inf"}};
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < SONDE_COUNT_OF(kinds); i++) {
        const char *verb = kinds[i].count == 1 ? "is" : "are";

        if (kinds[i].count == 0) {
            continue;
        }
        if (used == 0) {
            (void)snprintf(text, BAD_TEXT, "%llu of %llu values %s %s",
                           (unsigned long long)kinds[i].count,
                           (unsigned long long)v->count, verb, kinds[i].name);
        } else {
            (void)snprintf(text + used, BAD_TEXT - used, ", %llu %s %s",
                           (unsigned long long)kinds[i].count, verb, kinds[i].name);
        }
        used = strlen(text);
    }
    return text;
}

/* --- ExplodingTensor --------------------------------------------------------------- */

/*
 * ExplodingTensor - a tensor contains a NaN or, unless only_nan is set, an infinity.
 *
 * Judges all tensors, or those that collection_names and tensor_regex select, with one
 * finding for each. NonFinite names the first one. Infinities may be intended: an
 * activation, an input or a buffer that holds no other bad value than -Inf is accepted
 * while no tensor is bad otherwise, and later if it held -Inf at such a step (a mask of
 * attention and the scores that it masks). Gradients that are not finite are a note if all
 * other tensors of the step are finite, including the parameters after the update: the
 * update was skipped, and the scale of the loss is too high. A buffer that is infinite from
 * its first look on and never changes is so by construction, and is not judged unless the
 * user selects it. A parameter with an element above HUGE_WEIGHT is on its way to infinity, or a
 * bit of its exponent has flipped: an error, too.
 * Evidence: vital signs.
 */

#define HUGE_WEIGHT 1e20

typedef struct exploding {
    const char *collection_names, *tensor_regex;
    bool only_nan;
    bool started; /* a step was judged */
} exploding;

static const sonde_rule_param exploding_params[] = {
    SONDE__CHOSEN(exploding),
    SONDE__FLAG(exploding, only_nan, "false", "accept infinities"),
};
static const sonde_rule_need exploding_needs[] = {
    {"tensors", SONDE_HOW_NORMS, false, SONDE__NOT_BACKWARD, SONDE__SELDOM},
    {"gradients of activations", SONDE_HOW_NORMS, true, SONDE__BACKWARD, SONDE__RARELY}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_wants_any(run, info, id);

    return need == 0 && info->role == SONDE_ROLE_ACTIVATION_GRADIENT ? 1 : need;
}

/* Whether a tensor holds -Inf and no other bad value, and may do so. */
static bool is_masked(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    return t->vitals->neg_inf > 0 &&
           only_minus_infinite(sonde_rule_info(run, t->id), t->vitals);
}

/* Whether a tensor of the step is bad in a way that is never intended. */
static bool any_sure(sonde_rule_run *run)
{
    mark_bad(run, ((const exploding *)sonde_rule_state(run))->started);
    SONDE__EACH (run, t) {
        if (((const tensor_memory *)t->memory)->bad && !is_masked(run, t)) {
            return true;
        }
    }
    return false;
}

static void judge(sonde_rule_run *run, const sonde_rule_tensor *t, skip skipped)
{
    const exploding *state = sonde_rule_state(run);
    sonde_vitals counted = *t->vitals;
    char text[BAD_TEXT];

    if (state->only_nan) {
        counted.pos_inf = counted.neg_inf = 0;
    }
    const uint64_t bad = sonde__builtin_bad(&counted);
    const bool parameter =
        (SONDE__PARAMETERS >> sonde_rule_info(run, t->id)->role & 1U) != 0;

    if (bad == 0 && parameter && counted.abs_max > HUGE_WEIGHT) {
        sonde__rule_report(
            run, t, SONDE__SURE(ERROR), "abs_max", counted.abs_max, HUGE_WEIGHT,
            "Lower the learning rate. If one element alone is so large, "
            "check the checkpoint and the memory of the machine.",
            "An element is %.3g: no trained parameter is so large.", counted.abs_max);
    }
    if (bad > 0) {
        sonde__rule_report(run, t, bad_terms[skipped], "nonfinite", (double)bad, 0.0,
                           NULL, "%s.", bad_text(&counted, text));
    }
}

static bool any_huge(sonde_rule_run *run)
{
    SONDE__EACH (run, t) {
        if (t->vitals != NULL && t->vitals->abs_max > HUGE_WEIGHT) {
            return true;
        }
    }
    return false;
}

static void exploding_step(sonde_rule_run *run)
{
    exploding *state = sonde_rule_state(run);
    const bool chosen = state->collection_names != NULL || state->tensor_regex != NULL;

    if (sonde_rule_any_bad(run) || any_huge(run)) {
        const bool sure = any_sure(run);
        const skip skipped = chosen ? SKIP_NO : was_skipped(run);

        SONDE__EACH (run, t) {
            tensor_memory *memory = t->memory;

            if (t->vitals == NULL ||
                (!chosen && !memory->bad && t->vitals->abs_max <= HUGE_WEIGHT)) {
                continue;
            }
            if (!chosen && memory->bad && is_masked(run, t)) {
                memory->masks = memory->masks || !sure;
                if (memory->masks) {
                    continue;
                }
            }
            judge(run, t, skipped);
        }
    }
    state->started = true;
}

const sonde_rule sonde__builtin_exploding_tensor = {
    SONDE__RULE("ExplodingTensor", exploding),
    .summary = "a tensor holds NaN or infinite values",
    .condition =
        "A tensor contains NaN or, unless `only_nan` is set, an infinity; or an element of a parameter is above 1e20. "
        "The rule accepts -Inf in activations, inputs and buffers (attention masks) while no tensor is bad otherwise. It also accepts a buffer whose number of infinities is the same since the first step. "
        "Gradients of a skipped update are a note: the parameters stay finite or, if none is observed at that step, the next losses do.",
    .advice = "Lower the learning rate or clip gradients. NonFinite names the first "
              "tensor that became NaN or infinite.",
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .step = exploding_step,
};

/* --- NonFinite --------------------------------------------------------------------- */

/*
 * NonFinite - names the first tensor, in execution order, that became NaN or infinite.
 *
 * The order within a step is: inputs, forward pass, loss, backward pass, update, and
 * parameters last, because their value at a step is the one after its update; but first
 * if fewer of their values are bad than of their gradients: no update has made them so.
 * Gradients
 * of parameters that a watch or a hook lists in the order of the model count from the
 * last one; the outputs of modules tell where a gradient of an output is among them. -Inf in an
 * activation, an input or a buffer counts only if another tensor of the step is bad,
 * because masks and log-probabilities use it. Then it does not count in a tensor that
 * had -Inf at a good step, nor if an input or a buffer of the step has it: there it is
 * intended, and the finding names the tensor that went wrong because of it (for example
 * a row that is entirely masked). There is one finding for each tensor that was the
 * first of a step; bad steps that follow without a good one in between belong to it.
 * Where all gradients of the step are bad, and nothing before them, clipping may have
 * spread it before they were seen; the finding says so.
 * A buffer that is infinite from its first look on, and never changes, is so by
 * construction. The finding is a note if gradients are bad and the parameters after the
 * update are not: a scaler of mixed precision skips such updates. Evidence: vital signs.
 */

typedef struct non_finite {
    size_t open;  /* index of the tensor whose bad steps continue; SIZE_MAX: none */
    bool started; /* a step was judged */
    bool skipped; /* at these steps only gradients were bad, as far as is seen */
} non_finite;

static const sonde_rule_need non_finite_needs[] = {
    {"tensors", SONDE_HOW_NORMS, false, SONDE__NOT_BACKWARD, SONDE__SELDOM},
    {"gradients of activations", SONDE_HOW_NORMS, true, SONDE__BACKWARD, SONDE__RARELY}};

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    (void)diag;
    ((non_finite *)sonde_rule_state(run))->open = SIZE_MAX;
    return SONDE_OK;
}

enum { BACKWARD = 3 }; /* a rank */

/* A smaller rank is earlier; within a rank sonde__rule_is_earlier decides. */
static int rank_of(const sonde_tensor_info *info)
{
    if (info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE) {
        return 0;
    }
    switch (info->pass) {
    case SONDE_PASS_FORWARD:
        return info->role == SONDE_ROLE_LOSS ? 2 : 1;
    case SONDE_PASS_BACKWARD:
        return BACKWARD;
    case SONDE_PASS_UPDATE:
        return 4;
    case SONDE_PASS_NONE:
        break;
    }
    switch (info->role) {
    case SONDE_ROLE_OUTPUT:
    case SONDE_ROLE_ACTIVATION:
        return 1;
    case SONDE_ROLE_LOSS:
    case SONDE_ROLE_SCALAR:
        return 2;
    case SONDE_ROLE_GRADIENT:
    case SONDE_ROLE_ACTIVATION_GRADIENT:
        return BACKWARD;
    case SONDE_ROLE_UPDATE:
    case SONDE_ROLE_OPTIMIZER:
        return 4;
    case SONDE_ROLE_INPUT:
        return 0;
    case SONDE_ROLE_WEIGHT:
    case SONDE_ROLE_BIAS:
    case SONDE_ROLE_BUFFER:
    case SONDE_ROLE_OTHER:
    case SONDE_ROLE_PROGRAM:
        break;
    }
    return 5;
}

/* Whether the parameters of this step are those before its update, or no update was made:
 * one with these gradients would have spoiled as many of their values. */
static bool are_before_update(sonde_rule_run *run)
{
    uint64_t gradients = 0, parameters = 0;
    size_t gradient_count = 0, parameter_count = 0;

    SONDE__EACH (run, t) {
        const sonde_role role = sonde_rule_info(run, t->id)->role;

        if (t->vitals != NULL && role == SONDE_ROLE_GRADIENT) {
            gradients += sonde__builtin_bad(t->vitals);
            gradient_count++;
        } else if (t->vitals != NULL && (SONDE__PARAMETERS >> role & 1U) != 0) {
            parameters += sonde__builtin_bad(t->vitals);
            parameter_count++;
        }
    }
    return parameter_count >= gradient_count && gradients > parameters;
}

/* True if a bad value is certainly a fault. Sets *masked if an input has -Inf. */
static bool is_sure(sonde_rule_run *run, bool *masked)
{
    bool sure = false;

    SONDE__EACH (run, t) {
        const sonde_tensor_info *info = sonde_rule_info(run, t->id);

        if (!((const tensor_memory *)t->memory)->bad) {
            continue;
        }
        if (!only_minus_infinite(info, t->vitals)) {
            sure = true;
        } else if (rank_of(info) == 0 || info->role == SONDE_ROLE_BUFFER) {
            *masked = true;
        }
    }
    return sure;
}

/* Gradients that a hook or a watch lists in the order of the parameters, which is about
 * the reverse of the backward pass. */
static bool is_listed(const sonde_tensor_info *info)
{
    return info->role == SONDE_ROLE_GRADIENT &&
           strncmp(info->name, "gradient/", strlen("gradient/")) == 0;
}

/* Where the forward pass has the outputs of a gradient's module; -1: they are not seen. */
static int64_t place_of(sonde_rule_run *run, const sonde_rule_tensor *gradient)
{
    const char *module = sonde_rule_info(run, gradient->id)->module;
    int64_t place = -1;

    SONDE__EACH (run, t) {
        const sonde_tensor_info *info = sonde_rule_info(run, t->id);

        if (info->pass == SONDE_PASS_FORWARD && info->role != SONDE_ROLE_LOSS &&
            strcmp(info->module, module) == 0) {
            place = SONDE_MAX(place, (int64_t)t->id);
        }
    }
    return place;
}

/* The first bad tensor of the step, else NULL. Sets *others to the number of other bad
 * tensors. */
static const sonde_rule_tensor *first_bad(sonde_rule_run *run, size_t *others)
{
    const sonde_rule_tensor *first = NULL, *listed = NULL;
    int first_rank = 0;
    bool masked = false;
    size_t bad = 0;

    const bool before = are_before_update(run);
    mark_bad(run, ((const non_finite *)sonde_rule_state(run))->started);
    const bool sure = is_sure(run, &masked);
    SONDE__EACH (run, t) {
        tensor_memory *memory = t->memory;
        const sonde_tensor_info *info = sonde_rule_info(run, t->id);
        const bool is_parameter = (SONDE__PARAMETERS >> info->role & 1U) != 0;
        const int rank = before && is_parameter ? 0 : rank_of(info);

        if (!memory->bad) {
            continue;
        }
        memory->masks = memory->masks || !sure;
        bad++;
        if (only_minus_infinite(info, t->vitals) && (memory->masks || masked)) {
            continue;
        }
        if (is_listed(info)) {
            listed = listed == NULL || t->id > listed->id ? t : listed;
        } else if (first == NULL || rank < first_rank ||
                   (rank == first_rank &&
                    sonde__rule_is_earlier(run, t->id, first->id))) {
            first = t;
            first_rank = rank;
        }
    }
    *others = bad > 0 ? bad - 1 : 0;
    if (listed != NULL && (first == NULL || first_rank > BACKWARD)) {
        first = listed;
    } else if (listed != NULL && first_rank == BACKWARD) {
        const int64_t place = place_of(run, first);

        first = place >= 0 && place_of(run, listed) > place ? listed : first;
    }
    return sure ? first : NULL;
}

/* Whether the first bad tensor is the gradient of a parameter and all others of the step
 * are bad, too: clipping by their norm multiplies all by one number. */
static bool may_be_spread(sonde_rule_run *run, const sonde_rule_tensor *first)
{
    size_t gradients = 0;

    if (sonde_rule_info(run, first->id)->role != SONDE_ROLE_GRADIENT) {
        return false;
    }
    SONDE__EACH (run, t) {
        if (t->vitals == NULL ||
            sonde_rule_info(run, t->id)->role != SONDE_ROLE_GRADIENT) {
            continue;
        }
        if (!((const tensor_memory *)t->memory)->bad) {
            return false;
        }
        gradients++;
    }
    return gradients > 1;
}

/* Of an output of a layer that makes NaN only of NaN: the last tensor of the forward pass
 * before it that was seen, and finite; NULL: there is none, or the layer is another. */
static const sonde_tensor_info *finite_before(sonde_rule_run *run,
                                              const sonde_rule_tensor *first)
{
    static const char *const ops[] = {"Linear", "Conv1d", "Conv2d", "Conv3d"};
    const sonde_tensor_info *info = sonde_rule_info(run, first->id);
    const sonde_rule_tensor *last = NULL;

    if (info->pass != SONDE_PASS_FORWARD || first->vitals->nan == 0 ||
        first->vitals->pos_inf + first->vitals->neg_inf > 0 ||
        !sonde__builtin_has_word(info->op, ops, SONDE_COUNT_OF(ops))) {
        return NULL;
    }
    SONDE__EACH_SEEN (run, t, 0) {
        const sonde_tensor_info *other = sonde_rule_info(run, t->id);

        if (rank_of(other) == 1 && sonde__builtin_bad(t->vitals) == 0 &&
            sonde__rule_is_earlier(run, t->id, first->id) &&
            (last == NULL || sonde__rule_is_earlier(run, last->id, t->id))) {
            last = t;
        }
    }
    return last != NULL ? sonde_rule_info(run, last->id) : NULL;
}

static void say_first(sonde_rule_run *run, const sonde_rule_tensor *t, size_t others)
{
    const sonde_tensor_info *before = finite_before(run, t);
    char bad[BAD_TEXT];

    if (before != NULL) {
        sonde_rule_say(run,
                       "Look at what the program computes between the two, and at the "
                       "weights of the layer before this step.",
                       "It is the first tensor of the step that is not finite: %s%s. The "
                       "layer (%s) makes NaN only of NaN, and '%s' before it is finite.",
                       bad_text(t->vitals, bad),
                       others > 0 ? "; other tensors follow" : "",
                       sonde_rule_info(run, t->id)->op, before->name);
        return;
    }
    sonde_rule_say(run, NULL,
                   "It is the first tensor of the step that is not finite: %s%s.",
                   bad_text(t->vitals, bad),
                   others == 0 ? ""
                   : may_be_spread(run, t)
                       ? "; all gradients of the step are bad: if they are clipped "
                         "by their norm, it may have begun in another one"
                       : "; other tensors follow");
}

static void non_finite_step(sonde_rule_run *run)
{
    non_finite *state = sonde_rule_state(run);
    size_t others = 0;
    const sonde_rule_tensor *first =
        sonde_rule_any_bad(run) ? first_bad(run, &others) : NULL;

    state->started = true;
    if (first == NULL) {
        state->open = SIZE_MAX;
        return;
    }
    const skip skipped = was_skipped(run);
    if (state->open == SIZE_MAX || (state->skipped && skipped == SKIP_NO)) {
        state->open = sonde__builtin_index(run, first);
        state->skipped = skipped == SKIP_YES;
    }
    const sonde_rule_tensor *t = sonde__builtin_at(run, state->open);
    const sonde_vitals *v = t->vitals;
    if (sonde__rule_holds(run, t, bad_terms[skipped], "nonfinite",
                          v != NULL ? (double)sonde__builtin_bad(v) : 0.0, 0.0) &&
        v != NULL) {
        say_first(run, t, others);
    }
}

const sonde_rule sonde__builtin_non_finite = {
    .abi = SONDE_RULE_ABI,
    .name = "NonFinite",
    .summary = "names the tensor in which NaN or infinity first appeared",
    .condition =
        "A value is NaN or infinite. The finding names the first such tensor of the step in execution order. "
        "Gradients of a skipped update are a note: the parameters stay finite or, if none is observed at that step, the next losses do. "
        "The rule accepts a buffer whose number of infinities is the same since the first step.",
    .advice = "Check the operation that computes it: a log or square root of a value "
              "that is not positive, a division by zero, an exp that overflows, or a "
              "learning rate that is too high.",
    SONDE_RULE_NEEDS(non_finite_needs),
    .state_size = sizeof(non_finite),
    .tensor_size = sizeof(tensor_memory),
    .init = init,
    .wants = sonde__builtin_wants_role,
    .step = non_finite_step,
};
