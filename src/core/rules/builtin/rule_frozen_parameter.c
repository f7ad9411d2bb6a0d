/*
 * FrozenParameter - a parameter that should be trained does not change.
 *
 * Fires when the vital signs of a parameter stay the same to the bit, and
 *     alone     at `patience` comparisons of observed steps in a row its gradient is not 0
 *               and other parameters change: the optimiser lacks it. Or no parameter
 *               changes, although the optimiser's state for this one (moments, step
 *               counter) does: the optimiser holds stale copies.
 *     idle      no parameter changes for `idle` comparisons in a row, or IDLE_AFTER if all
 *               of the first ones changed something, although gradients are not 0: they
 *               are cleared or clipped away before the update, or the optimiser holds
 *               other tensors. Gradients below ENDED times the largest so far do not
 *               count: training has converged. Where they have grown to SUMMED times
 *               those at the beginning of the rest, they are summed for a later update,
 *               and the parameters may rest twice as long.
 *               Or gradients, which were seen at all of the first IDLE_AFTER comparisons or
 *               more, are not seen any more, for as long.
 *     cut off   after `idle` comparisons a weight has never changed and never had a
 *               gradient other than 0, while others are trained. Where the loss need not
 *               fall, after three times as many, or at the end: players take turns, and a
 *               policy may be updated by hand after many steps of its critic.
 * A parameter whose expected change is below its precision is ignored. L is the median,
 * over the parameters that changed, of |change of sum a step| / |sum of gradient|, which
 * is the learning rate of plain SGD; L max|g| must be above 1e-6 max|w|. A parameter, or a
 * network, that has rested before has to rest three times as long: gradients may be
 * accumulated over steps, and players may take turns.
 *
 * Layers may be frozen on purpose. The finding is a note, not an error, where the rule
 * cannot distinguish this from a mistake: the optimiser's state for the parameter changes
 * (its learning rate is 0); or the parameters without a change are the first layers, at
 * least two or half of them. A weight that is cut off is a warning if trained weights
 * precede it, few weights are like it, and none of them is of another module
 * (layers that adapters train around are frozen on purpose) or the table of an embedding
 * (of sines, or trained elsewhere), and its module has an output where those of others are
 * seen (a head may not be used). It is a warning wherever it stands if its gradient is
 * declared, which is so for parameters that require one, unless a whole module of several
 * weights is like it (a teacher, a backbone without gradients). All others are one note.
 *
 * Of a weight after trained ones, tensors may not tell whether it is cut off on purpose:
 *     leaf      its module's output has no gradient, where those of others have one:
 *               nothing that is trained uses it (a pooler, the last residual)
 *     declared  its gradient is not declared, and no output of any module is seen: it was
 *               never meant to be trained
 * Such a weight is a note as long as training does not go badly, then a warning. A weight
 * whose gradient is not declared and whose elements differ and are all 0 or more was not
 * drawn, but is a table of constants: a note.
 *
 * Evidence: vital signs of parameters, of their gradients and of the optimiser's values;
 * losses, if there are any.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/engine.h"
#include "rules/suspicion.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARAMETERS = 0, GRADIENTS = 1, STATE = 2, LOSSES = 3, MOST_RATES = 64 };
enum { IDLE_AFTER = 10 }; /* comparisons */
enum { TURNS = 3 };       /* times `idle` */
#define ENDED 1e-4
#define SUMMED 3.0
static const sonde__rule_terms unused = {.well = SONDE_SEVERITY_NOTE,
                                         .ill = SONDE_SEVERITY_WARNING,
                                         .still = SONDE_SEVERITY_NOTE,
                                         .untold = SONDE_SEVERITY_NOTE,
                                         .alone = SONDE_SEVERITY_WARNING};

typedef struct frozen {
    int64_t patience, idle;
    size_t linked;               /* number of tensors when parameters were linked */
    int64_t compared, changed;   /* comparisons; of them, with any change */
    int64_t idle_now, idle_most; /* comparisons in a row without a change */
    size_t weights, still,
        first_moving; /* weights; that never changed; the first other */
    bool looked;      /* for weights that are cut off */
    bool pulls;       /* a gradient of a parameter has been seen */
    int64_t led;      /* first comparisons at which gradients were seen */
    int64_t bare;  /* last comparisons in a row without a change and without gradients */
    bool reported; /* idle, of parameter: */
    size_t idlest;
    double largest; /* |element| of all gradients so far */
    double resting; /* the same, at the first step of this rest */
} frozen;

typedef struct tensor_memory {
    size_t gradient, state; /* of a parameter: indices of its tensors */
    sonde_vitals before;
    bool has_before, same;
    bool meant;              /* it may be frozen on purpose */
    bool moved, pulled;      /* has ever changed; its gradient was ever not 0 */
    int64_t steps;           /* comparisons in a row at which it was the same */
    int64_t rest, rest_most; /* the same, whatever its gradient; the most that ended */
    int64_t last;            /* step of the last comparison */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__COUNT(frozen, patience, "2", 1, 1e9,
                 "comparisons in a row of a parameter whose gradient is not 0"),
    SONDE__COUNT(frozen, idle, "40", 1, 1e9,
                 "comparisons in a row without any change, or without a gradient"),
};
static const sonde_rule_need needs[] = {
    {"parameters", SONDE_HOW_VITALS, false, SONDE__PARAMETERS, SONDE__CLOSELY},
    {"gradients", SONDE_HOW_VITALS, false, SONDE__GRADIENTS, SONDE__CLOSELY},
    {"optimiser values", SONDE_HOW_VITALS, true, SONDE__STATE, SONDE__AT_TIMES},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__builtin_is_own(info, id)) {
        return SONDE_RULE_IGNORE;
    }
    return sonde__builtin_is_parameter(info)    ? PARAMETERS
           : sonde__builtin_is_gradient(info)   ? GRADIENTS
           : info->role == SONDE_ROLE_OPTIMIZER ? STATE
           : info->role == SONDE_ROLE_LOSS      ? LOSSES
                                                : SONDE_RULE_IGNORE;
}

/* The learning rate of plain SGD by the change of a parameter. A gradient may sum to 0,
 * as that of the last layer of a classifier does: then a lower bound. */
static double rate_of(const sonde_vitals *now, const sonde_vitals *before,
                      const sonde_vitals *g)
{
    return fabs(g->sum) > 1e-3 * g->l1 ? fabs(now->sum - before->sum) / fabs(g->sum)
                                       : fabs(now->l1 - before->l1) / g->l1;
}

/* Compares all tensors but gradients with their last values. Returns L of the file
 * header, 0 if no parameter changed. */
static double compare(sonde_rule_run *run, sonde_rule_tensor *tensors, size_t count)
{
    double rates[MOST_RATES];
    size_t changed = 0;

    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;
        const sonde_vitals *now = tensors[i].vitals, *g = NULL;

        double steps = 0.0;

        if (tensors[i].need == GRADIENTS || tensors[i].need == LOSSES || now == NULL) {
            continue;
        }
        steps = (double)sonde__builtin_steps_since(run, &memory->last);
        memory->same =
            memory->has_before && sonde__builtin_same_vitals(now, &memory->before);
        g = tensors[i].need == PARAMETERS && memory->gradient != SIZE_MAX
                ? tensors[memory->gradient].vitals
                : NULL;
        if (memory->has_before && !memory->same && g != NULL && changed < MOST_RATES &&
            g->l1 > 0.0) {
            rates[changed++] = rate_of(now, &memory->before, g) / fmax(steps, 1.0);
        }
    }
    if (changed == 0) {
        return 0.0;
    }
    sonde__builtin_sort(rates, changed);
    return rates[changed / 2];
}

/* True if the optimiser's state for this parameter has changed. */
static bool state_changes(const sonde_rule_tensor *tensors, const tensor_memory *memory)
{
    const tensor_memory *state =
        memory->state != SIZE_MAX ? tensors[memory->state].memory : NULL;

    return state != NULL && tensors[memory->state].vitals != NULL && state->has_before &&
           !state->same;
}

/* --- alone -------------------------------------------------------------------------- */

static bool is_weight(sonde_rule_run *run, const sonde_rule_tensor *tensor)
{
    return tensor->need == PARAMETERS && sonde_rule_info(run, tensor->id)->rank >= 2;
}

/* Counts the weights that never changed, and finds the first parameter that did. */
static void survey(sonde_rule_run *run)
{
    frozen *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    state->weights = state->still = 0;
    state->first_moving = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        const tensor_memory *memory = tensors[i].memory;

        if (tensors[i].need != PARAMETERS) {
            continue;
        }
        state->weights += is_weight(run, &tensors[i]);
        state->still += is_weight(run, &tensors[i]) && !memory->moved;
        if (memory->moved && state->first_moving == SIZE_MAX) {
            state->first_moving = i;
        }
    }
}

/* Whether parameter i may be frozen on purpose. */
static bool may_be_meant(sonde_rule_run *run, size_t i)
{
    frozen *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const tensor_memory *memory = tensors[i].memory;

    if (state_changes(tensors, memory)) {
        return true;
    }
    survey(run);
    return !memory->moved && i < state->first_moving &&
           (state->still >= 2 || 2 * state->still >= state->weights);
}

static void judge(sonde_rule_run *run, size_t i, tensor_memory *memory,
                  const sonde_vitals *g, bool others)
{
    const frozen *state = sonde_rule_state(run);
    sonde_severity severity = SONDE_SEVERITY_ERROR;

    if (memory->steps < state->patience || memory->steps <= 3 * memory->rest_most) {
        return;
    }
    if (memory->meant || (others && may_be_meant(run, i))) {
        memory->meant = true; /* also once layers before it are trained */
        severity = SONDE_SEVERITY_NOTE;
    }
    if (sonde_rule_found(run, i, severity, "steps_unchanged", (double)memory->steps,
                         (double)state->patience)) {
        sonde_rule_say(run, NULL,
                       "It has a gradient (mean %.3g) but does not change, %s%s.",
                       g->l1 / (double)g->count,
                       others ? "while other parameters do"
                              : "and neither does any other parameter, while the "
                                "optimiser's state does",
                       severity == SONDE_SEVERITY_NOTE
                           ? "; if it is frozen on purpose, its gradient is not needed"
                           : "");
    }
}

/* Judges parameter i; rate is L of the file header. */
static void judge_alone(sonde_rule_run *run, size_t i, double rate)
{
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    tensor_memory *memory = tensors[i].memory;
    const sonde_vitals *now = tensors[i].vitals;
    const sonde_vitals *g =
        memory->gradient != SIZE_MAX ? tensors[memory->gradient].vitals : NULL;
    const bool stuck = memory->same && g != NULL && sonde__builtin_nonzero(g) > 0 &&
                       sonde__builtin_bad(g) == 0 && sonde__builtin_bad(now) == 0 &&
                       (rate > 0.0 ? rate * g->abs_max > 1e-6 * now->abs_max
                                   : state_changes(tensors, memory));

    memory->steps = stuck ? memory->steps + 1 : 0;
    if (g != NULL) {
        memory->pulled = memory->pulled || sonde__builtin_nonzero(g) > 0;
        judge(run, i, memory, g, rate > 0.0);
    }
}

/* --- idle --------------------------------------------------------------------------- */

static void report_idle(sonde_rule_run *run, int64_t needed)
{
    const frozen *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const tensor_memory *memory = tensors[state->idlest].memory;
    const sonde_vitals *g = tensors[memory->gradient].vitals;

    if (sonde_rule_found(run, state->idlest, SONDE_SEVERITY_ERROR, "steps_unchanged",
                         (double)state->idle_now, (double)needed)) {
        sonde_rule_say(run,
                       "Check that the optimiser holds these parameters and is called, "
                       "that gradients are not cleared or clipped away before it is, and "
                       "that the learning rate is not 0.",
                       "No parameter changed at the last %lld observed steps, although "
                       "there are gradients; that of this one is the largest (%.3g).",
                       (long long)state->idle_now, g->abs_max);
    }
}

/* Judges a comparison at which nothing changed and no gradient was seen. */
static void judge_bare(sonde_rule_run *run)
{
    frozen *state = sonde_rule_state(run);

    state->bare++;
    if (state->bare >= IDLE_AFTER && state->led >= IDLE_AFTER && state->idle_most == 0 &&
        sonde_rule_found(run, state->idlest, SONDE_SEVERITY_ERROR, "steps_unchanged",
                         (double)state->bare, (double)IDLE_AFTER)) {
        sonde_rule_say(run,
                       "Check that gradients are not cleared between the backward pass "
                       "and the optimiser's step, and that it is called.",
                       "No parameter changed at the last %lld observed steps, and none "
                       "had a gradient, as all of them had before.",
                       (long long)state->bare);
    }
}

/* Judges the step as a whole. */
static void judge_idle(sonde_rule_run *run)
{
    frozen *state = sonde_rule_state(run);
    size_t count = 0, most = SIZE_MAX;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    bool any = false, changed = false, shown = false, ended = false, summed = false;
    int64_t needed = state->idle;

    for (size_t i = 0; i < count; i++) {
        const tensor_memory *memory = tensors[i].memory;
        const sonde_vitals *g = NULL;

        if (tensors[i].need != PARAMETERS || tensors[i].vitals == NULL) {
            continue;
        }
        any = any || memory->has_before;
        g = memory->gradient != SIZE_MAX ? tensors[memory->gradient].vitals : NULL;
        shown = shown || g != NULL;
        /* a copy that follows the weights, as a teacher does, has no gradient */
        changed = changed || (memory->has_before && !memory->same &&
                              (memory->gradient != SIZE_MAX || !state->pulls));
        if (g != NULL && sonde__builtin_nonzero(g) > 0 && sonde__builtin_bad(g) == 0 &&
            (most == SIZE_MAX ||
             g->abs_max > tensors[((tensor_memory *)tensors[most].memory)->gradient]
                              .vitals->abs_max)) {
            most = i;
        }
    }
    state->pulls = state->pulls || most != SIZE_MAX;
    state->compared += any;
    state->changed += changed;
    state->led += any && most != SIZE_MAX && state->led + 1 == state->compared;
    if (any && !changed && !shown && state->led > 0) {
        judge_bare(run);
        return;
    }
    state->bare = any ? 0 : state->bare;
    if (most != SIZE_MAX) {
        const tensor_memory *memory = tensors[most].memory;

        state->idlest = state->reported ? state->idlest : most;
        const double now = tensors[memory->gradient].vitals->abs_max;

        state->largest = fmax(state->largest, now);
        state->resting = state->idle_now == 0 ? now : state->resting;
        summed = now > SUMMED * state->resting;
        ended = now < ENDED * state->largest;
    }
    if (!any || changed || most == SIZE_MAX || ended) {
        state->idle_most = changed && state->idle_now > state->idle_most
                               ? state->idle_now
                               : state->idle_most;
        state->idle_now = changed ? 0 : state->idle_now;
        return;
    }
    state->idle_now++;
    if (state->idle_most == 0 && state->changed >= IDLE_AFTER && needed > IDLE_AFTER) {
        needed = IDLE_AFTER;
    }
    needed *= summed ? 2 : 1;
    if (state->idle_now >= needed && state->idle_now > 3 * state->idle_most) {
        state->reported = true;
        report_idle(run, needed);
    }
}

/* --- cut off ------------------------------------------------------------------------ */

static bool is_cut_off(sonde_rule_run *run, const sonde_rule_tensor *tensor)
{
    const tensor_memory *memory = tensor->memory;

    return is_weight(run, tensor) && memory->has_before && !memory->moved &&
           !memory->pulled;
}

/* True if every weight of the module whose name is the first characters of that of tensor
 * i, and more than one, is cut off: a teacher, or a copy for targets. */
static bool is_part(sonde_rule_run *run, size_t i, size_t length)
{
    size_t count = 0, members = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const char *name = sonde_rule_info(run, tensors[i].id)->name;

    for (size_t k = 0; k < count; k++) {
        const char *other = sonde_rule_info(run, tensors[k].id)->name;

        if (is_weight(run, &tensors[k]) && strncmp(other, name, length + 1) == 0) {
            members++;
            if (!is_cut_off(run, &tensors[k])) {
                return false;
            }
        }
    }
    return members > 1;
}

/* ... of its outermost module. */
static bool is_whole_part(sonde_rule_run *run, size_t i)
{
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    return is_part(run, i, strcspn(sonde_rule_info(run, tensors[i].id)->name, "./"));
}

/* ... of any module that it is in. */
static bool is_some_part(sonde_rule_run *run, size_t i)
{
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const char *name = sonde_rule_info(run, tensors[i].id)->name;

    for (const char *dot = strpbrk(name, "./"); dot != NULL;
         dot = strpbrk(dot + 1, "./")) {
        if (is_part(run, i, (size_t)(dot - name))) {
            return true;
        }
    }
    return false;
}

static bool ends_in_weight(const char *name)
{
    const size_t length = strlen(name);

    return length >= 6 && strcmp(name + length - 6, "weight") == 0;
}

/* Whether the module of a weight computes something: YES if an output of it is known,
 * NO if only outputs of others are; the network itself may. */
typedef enum use { NO, PERHAPS, YES } use;

/* True if a name is that of an output of the module whose name has that length. */
static bool is_output(const char *name, const char *module, size_t length)
{
    return strncmp(name, module, length) == 0 &&
           strncmp(name + length, "_output", 7) == 0;
}

/* *alone: no output of any module is seen; *leaf: outputs of others have gradients, that
 * of this module has none. */
static use find_use(const sonde_rule_run *run, const sonde_tensor_info *info, bool *alone,
                    bool *leaf)
{
    const sonde_catalogue *catalogue = run->rules->catalogue;
    const char *dot = strrchr(info->name, '.');
    const size_t length = dot != NULL ? (size_t)(dot - info->name) : 0;
    bool any = false, own = false, pulls = false, pulled = false;

    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *other = sonde_catalogue_info(catalogue, id);

        if (other->role == SONDE_ROLE_OUTPUT || other->role == SONDE_ROLE_ACTIVATION) {
            any = true;
            own = own || is_output(other->name, info->name, length);
        } else if (other->role == SONDE_ROLE_ACTIVATION_GRADIENT) {
            const sonde__builtin_span span = sonde__builtin_parameter_of(other->name);

            pulls = true;
            pulled =
                pulled || (span.text != NULL && is_output(span.text, info->name, length));
        }
    }
    *alone = !any;
    *leaf = own && pulls && !pulled;
    return own ? YES : !any || dot == NULL ? PERHAPS : NO;
}

/* Whether nothing that is trained uses the outputs of the module of a weight that is after
 * trained ones. */
static bool is_leaf(sonde_rule_run *run, size_t i)
{
    const frozen *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    bool alone = false, leaf = false;

    if (i > state->first_moving) {
        (void)find_use(run, sonde_rule_info(run, tensors[i].id), &alone, &leaf);
    }
    return leaf;
}

/* True if the weights that are cut off belong to one module; leaves do not count. */
static bool is_one_module(sonde_rule_run *run)
{
    size_t count = 0, first = SIZE_MAX, length = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const char *name = sonde_rule_info(run, tensors[i].id)->name;

        if (!is_cut_off(run, &tensors[i]) || is_whole_part(run, i) || is_leaf(run, i)) {
            continue;
        }
        if (first == SIZE_MAX) {
            const char *end = strrchr(name, '.');

            first = i;
            length = end != NULL ? (size_t)(end - name) + 1 : strlen(name) + 1;
        } else if (strncmp(name, sonde_rule_info(run, tensors[first].id)->name, length) !=
                   0) {
            return false;
        }
    }
    return true;
}

/* How a weight is cut off. */
typedef enum cut_off {
    MAY_BE_MEANT,
    AFTER, /* a trained layer */
    ASKED, /* it requires a gradient, and is used */
    UNUSED /* perhaps */
} cut_off;

static void report_cut_off(sonde_rule_run *run, size_t i, size_t cut, cut_off how)
{
    static const char *const texts[] = {
        [MAY_BE_MEANT] = "That is right if they are frozen on purpose.",
        [AFTER] = "Layers before it are trained.",
        [ASKED] = "It requires a gradient, and other layers are trained.",
        [UNUSED] = "That is right if nothing that is trained uses its layer, or if it is "
                   "frozen on purpose."};
    const frozen *state = sonde_rule_state(run);
    const double compared = (double)state->compared, idle = (double)state->idle;
    const sonde_severity severity =
        how == MAY_BE_MEANT ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_WARNING;
    char others[64] = "";

    if (how == MAY_BE_MEANT) {
        (void)snprintf(others, sizeof others, " and %zu other weights", cut - 1);
    }
    if (how == UNUSED ? sonde__rule_suspect(run, i, &unused, "steps_without_gradient",
                                            compared, idle)
                      : sonde_rule_found(run, i, severity, "steps_without_gradient",
                                         compared, idle)) {
        sonde_rule_say(run,
                       "Check that it requires a gradient, and that nothing (detach, "
                       "item, numpy, no_grad) cuts it off from the loss.",
                       "It%s never had a gradient and never changed. %s", others,
                       texts[how]);
    }
}

/* True if these are no weights that were drawn: none is below 0, and they differ. */
static bool is_table_of_constants(const sonde_vitals *w)
{
    enum { LEAST = 8 };

    return w->count >= LEAST && w->min >= 0.0 && w->max > w->min;
}

/* few: the weights that are cut off are few, and of one module. */
static cut_off how_cut_off(sonde_rule_run *run, size_t i, bool few)
{
    const frozen *state = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);
    const tensor_memory *memory = tensors[i].memory;
    const bool undeclared = memory->gradient == SIZE_MAX;
    bool alone = false, leaf = false;
    const use used = find_use(run, info, &alone, &leaf);
    cut_off how = MAY_BE_MEANT;

    if (!ends_in_weight(info->name) || sonde__builtin_is_table(run, info) || used == NO ||
        (undeclared && is_table_of_constants(&memory->before))) {
        return MAY_BE_MEANT;
    }
    if (few && i > state->first_moving && !is_whole_part(run, i)) {
        how = AFTER;
    } else if (used == YES && !is_some_part(run, i) && !undeclared) {
        how = ASKED;
    }
    if (how != MAY_BE_MEANT && i > state->first_moving &&
        (leaf || (alone && state->pulls && undeclared))) {
        how = UNUSED;
    }
    return how;
}

/* Reports the weights that are cut off; once. */
static void judge_cut_off(sonde_rule_run *run)
{
    frozen *state = sonde_rule_state(run);
    size_t count = 0, cut = 0, last = SIZE_MAX, trained = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    bool few = false, others = false;

    state->looked = true;
    survey(run);
    for (size_t i = 0; i < count; i++) {
        const tensor_memory *memory = tensors[i].memory;

        if (is_weight(run, &tensors[i]) && memory->moved && memory->pulled) {
            trained++;
        }
        cut += is_cut_off(run, &tensors[i]);
    }
    few = trained > 0 && 3 * cut <= state->weights && is_one_module(run);
    for (size_t i = 0; i < count && trained > 0; i++) {
        if (is_cut_off(run, &tensors[i])) {
            const cut_off how = how_cut_off(run, i, few);

            if (how != MAY_BE_MEANT) {
                report_cut_off(run, i, cut, how);
            } else {
                others = true;
                last = i < state->first_moving || last == SIZE_MAX ? i : last;
            }
        }
    }
    if (others) {
        report_cut_off(run, last, cut, MAY_BE_MEANT);
    }
}

/* --- steps -------------------------------------------------------------------------- */

/* Keeps the values of this step, and how long a parameter rests. */
static void keep(sonde_rule_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;

        if (tensors[i].need == GRADIENTS || tensors[i].need == LOSSES ||
            tensors[i].vitals == NULL) {
            continue;
        }
        if (memory->has_before && !memory->same) {
            memory->rest_most = memory->moved && memory->rest > memory->rest_most
                                    ? memory->rest
                                    : memory->rest_most;
            memory->moved = true;
        }
        memory->rest = memory->same ? memory->rest + 1 : 0;
        memory->before = *tensors[i].vitals;
        memory->has_before = true;
    }
}

static void step(sonde_rule_run *run)
{
    frozen *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (state->linked != count) {
        sonde__builtin_link(run, PARAMETERS, GRADIENTS, NULL,
                            offsetof(tensor_memory, gradient));
        sonde__builtin_link(run, PARAMETERS, STATE, NULL, offsetof(tensor_memory, state));
        state->linked = count;
    }
    const double rate = compare(run, tensors, count);
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].need == PARAMETERS && tensors[i].vitals != NULL) {
            judge_alone(run, i, rate);
        }
    }
    judge_idle(run);
    keep(tensors, count);
    if (state->compared >= (sonde__rule_loss_falls(run) ? 1 : TURNS) * state->idle &&
        !state->looked) {
        judge_cut_off(run);
    }
}

static void finish(sonde_rule_run *run)
{
    const frozen *state = sonde_rule_state(run);

    if (state->compared >= state->idle && !state->looked) {
        judge_cut_off(run);
    }
}

const sonde_rule sonde__builtin_frozen_parameter = {
    SONDE__RULE("FrozenParameter", frozen),
    .summary = "a parameter that should be trained does not change",
    .condition =
        "Over `patience` observed steps, a parameter stays the same to the bit although its gradient is not 0, while other parameters or the optimiser's state change; or over `idle` observed steps (10 after changes at every step) no parameter changes although there are gradients; or after `idle` observed steps a weight has had neither a gradient nor a change while others are trained (where the loss need not fall, three times as many, or at the end). A note where nothing that is trained may use the weight (its module's output has no gradient, or it was never meant to be trained) and training does not go badly, and where layers may be frozen on purpose: whole modules, and weights whose module has no output where those of others are seen; of the others, those before all trained ones whose gradient is not declared.",
    .advice = "Check that the optimiser holds this parameter itself and not an old copy, "
              "and that its learning rate is not 0.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .step = step,
    .finish = finish,
};
