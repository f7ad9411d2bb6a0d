/*
 * SymmetricUnits - units of a layer have the same weights, and so learn the same.
 *
 * Judges weights (units, ...) of at least two units, at their first `steps` observed
 * steps. Fires when
 *     rows      at least `share` percent of the rows equal another row that is not all 0.
 *               Rows of one magnitude (an update by the sign of the gradient, from 0) meet
 *               by chance: they have to equal the same row at `patience` looks in a row.
 *               Rows of fewer than eight elements do so for many steps and are not judged;
 *               or
 *     constant  the standard deviation of the elements is less than a hundredth of their
 *               mean (random weights have a mean near 0). Updates move elements apart, so
 *               this shows at the first step. Weights of a normalisation, and others whose
 *               names say that they scale channels, begin at 1 on purpose, and so does the
 *               scale of random weights beside a weight of the same shape in its module; or
 *     zero      the weight and its gradient are all 0: at once if that holds for half of
 *               all weights, else after `patience` steps. The last layer of a residual
 *               branch, or a head, may begin at 0: its gradient is not 0, or, where both
 *               are 0, not for long. Without gradients, a weight has `patience` steps to
 *               leave 0.
 * Units of a weight of more than two dimensions may have inputs of their own. Where the
 * module has biases of as many dimensions that agree in all but the last, and these
 * differ, units are not symmetric, whatever their weights.
 * A weight without a gradient, where others have one, is frozen and not judged.
 *
 * Evidence: raw weights for rows; vital signs of weights and gradients for the rest.
 */
#include "base/macros.h"
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/symmetric.h"
#include "rules/context.h"
#include "rules/suspicion.h"

#include "base/fail.h"
#include "base/memory.h"
#include "base/point.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LASTING = 4, MOVES = 3 };
static const sonde__rule_terms alike_units = {
    SONDE__TERMS(NOTHING, ERROR, ERROR, NOTE, NOTE)};
/* Half of all weights are 0 and get no gradient. */
static const sonde__rule_terms zero_units = {
    SONDE__TERMS(NOTHING, ERROR, ERROR, NOTE, ERROR)};
/* Rows of a parameter that is no layer's: of samples, slots, codes. */
static const sonde__rule_terms alike_rows = {
    SONDE__TERMS(NOTHING, NOTE, NOTE, NOTE, NOTE)};

static const sonde_rule_param params[] = {
    SONDE__REAL(sonde__builtin_symmetric, share, "50", 0, 100,
                "smallest percentage of equal rows that counts"),
    SONDE__COUNT(sonde__builtin_symmetric, patience, "5", 1, 1e9,
                 "observed steps for which a weight may be all zeros"),
    SONDE__COUNT(sonde__builtin_symmetric, steps, "20", 1, 1e18,
                 "observed steps, from the start, that are judged"),
};
static const sonde_rule_need needs[] = {
    {"weights", SONDE_HOW_VITALS | SONDE_HOW_RAW, false, SONDE__WEIGHTS, SONDE__SELDOM},
    {"gradients", SONDE_HOW_VITALS, true, SONDE__GRADIENTS, SONDE__AT_TIMES},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_wants_role(run, info, id);

    return need == SONDE__SYMMETRIC_LOSSES || (info->rank >= 2 && info->shape[0] >= 2)
               ? need
               : SONDE_RULE_IGNORE;
}

/* Whether rows of a weight are units: it is in a module, or its name says that it is a
 * layer's. Others hold samples, slots, codes. */
static bool is_of_layer(const sonde_tensor_info *info)
{
    static const char *const words[] = {"w",    "kernel", "proj",   "layer", "fc",
                                        "conv", "dense",  "linear", "hidden"};

    for (size_t i = 0; i < SONDE_COUNT_OF(words); i++) {
        if (sonde__strcasestr(info->name, words[i]) != NULL) {
            return true;
        }
    }
    return strchr(info->name, '.') != NULL;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    sonde__builtin_symmetric_memory *memory = tensors[i].memory;

    const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);

    memory->percent = memory->equal = -1.0;
    if (tensors[i].need != SONDE__SYMMETRIC_WEIGHTS) {
        return SONDE_OK;
    }
    memory->free = !is_of_layer(info);
    memory->rows = sonde__calloc((size_t)info->shape[0], sizeof *memory->rows);
    memory->same = sonde__calloc((size_t)info->shape[0], sizeof *memory->same);
    return memory->rows != NULL && memory->same != NULL
               ? SONDE_OK
               : sonde__fail_nomem(diag, "SymmetricUnits");
}

/* The number of weights that are 0 with a gradient of 0. Sets *trained to the number that
 * have a gradient. */
static size_t count_stuck(const sonde_rule_tensor *tensors, size_t count, size_t *trained)
{
    size_t stuck = 0;

    *trained = 0;
    for (size_t i = 0; i < count; i++) {
        const sonde__builtin_symmetric_memory *memory = tensors[i].memory;
        const sonde_vitals *w =
            tensors[i].need == SONDE__SYMMETRIC_WEIGHTS ? tensors[i].vitals : NULL;
        const sonde_vitals *g = w != NULL && memory->gradient != SIZE_MAX
                                    ? tensors[memory->gradient].vitals
                                    : NULL;

        *trained += g != NULL;
        stuck += g != NULL && w->zero == w->count && g->zero == g->count;
    }
    return stuck;
}

/* True if vital signs show that all units are equal; most: half of all weights are stuck.
 * */
static bool alike(sonde_rule_run *run, const sonde_rule_tensor *tensors, size_t i,
                  bool gradients, bool most)
{
    const sonde__builtin_symmetric *state = sonde_rule_state(run);
    sonde__builtin_symmetric_memory *memory = tensors[i].memory;
    const sonde_vitals *w = tensors[i].vitals;
    const sonde_vitals *g =
        memory->gradient != SIZE_MAX ? tensors[memory->gradient].vitals : NULL;

    if (w->count < 2 || sonde__builtin_bad(w) > 0 || (gradients && g == NULL)) {
        return false; /* or frozen */
    }
    if (w->zero == w->count) {
        memory->zero = g == NULL || g->zero == g->count ? memory->zero + 1 : 0;
        return (most && memory->zero > 0) || memory->zero >= state->patience;
    }
    memory->zero = 0;
    return sonde__builtin_symmetric_is_constant(w) &&
           !sonde__builtin_is_scale(run, sonde_rule_info(run, tensors[i].id));
}

/* Follows a suspicion: rows that stay equal while the weight moves are sure to be a fault;
 * rows that part, of elements that are no longer alike, are none. Else the loss decides.
 * equal: percent of equal rows; -1: unknown. */
static void follow(sonde_rule_run *run, size_t i, sonde__builtin_symmetric_memory *memory,
                   const sonde_vitals *v, double equal)
{
    const sonde__builtin_symmetric *state = sonde_rule_state(run);
    const bool zero = v != NULL && v->zero == v->count;

    memory->moves += v != NULL && v->sumsq != memory->before;
    memory->before = v != NULL ? v->sumsq : memory->before;
    if (memory->stuck) {
        return; /* it will leave 0: whether that was in time, the loss says */
    }
    if (memory->lasting >= LASTING && memory->moves >= MOVES) {
        sonde__rule_confirm(run, i,
                            memory->free ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_ERROR);
    } else if (equal >= 0.0 && equal < state->share && !(zero && memory->zero > 0) &&
               (v == NULL || !sonde__builtin_symmetric_is_constant(v))) {
        sonde__rule_clear(run, i);
    }
}

static void step(sonde_rule_run *run)
{
    sonde__builtin_symmetric *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    size_t trained = 0, stuck = 0;

    if (state->linked != count) {
        sonde__builtin_link(run, SONDE__SYMMETRIC_WEIGHTS, SONDE__SYMMETRIC_GRADIENTS,
                            NULL, offsetof(sonde__builtin_symmetric_memory, gradient));
        sonde__builtin_symmetric_link_twins(run);
        sonde__builtin_symmetric_link_biases(run);
        state->linked = count;
    }
    state->twins_known = false;
    if (state->looked >= state->steps && sonde__rule_only_losses(run) &&
        !sonde__rule_any_waits(run)) {
        return; /* no suspicion is followed */
    }
    stuck = state->looked++ < state->steps ? count_stuck(tensors, count, &trained) : 0;
    const bool most = stuck > 0 && 2 * stuck >= trained;

    for (size_t i = 0; i < count; i++) {
        sonde__builtin_symmetric_memory *memory = tensors[i].memory;
        const sonde_vitals *v = tensors[i].vitals;
        const double equal = memory->equal;
        double percent = memory->percent;

        memory->percent = memory->equal = -1.0;
        if (tensors[i].need != SONDE__SYMMETRIC_WEIGHTS) {
            continue;
        }
        if (trained > 0 &&
            (memory->gradient == SIZE_MAX || tensors[memory->gradient].vitals == NULL)) {
            memory->seen_vitals += v != NULL; /* it is frozen */
            sonde__rule_withdraw(run, i);
            continue;
        }
        if (v != NULL && memory->seen_vitals < state->steps) {
            memory->seen_vitals++;
            percent = alike(run, tensors, i, trained > 0, most) ? 100.0 : percent;
        }
        if (sonde__builtin_symmetric_has_biases(tensors, memory)) {
            sonde__rule_withdraw(run, i);
        } else if (sonde__rule_suspects(run, i)) {
            follow(run, i, memory, v, equal);
        } else if (percent >= state->share && percent > 0.0 &&
                   !(v != NULL && sonde__builtin_symmetric_is_constant(v) &&
                     sonde__builtin_symmetric_has_twin(run, tensors, i)) &&
                   sonde__rule_suspect(run, i,
                                       memory->free               ? &alike_rows
                                       : most && memory->zero > 0 ? &zero_units
                                                                  : &alike_units,
                                       "percent_equal", percent, state->share)) {
            memory->stuck = most && memory->zero > 0;
            sonde_rule_say(run, NULL,
                           "%.3g %% of its units have the same weights as another "
                           "unit%s: they compute and learn the same.",
                           percent,
                           memory->zero > 0 ? " (all 0, without a gradient)" : "");
        }
    }
}

static void destroy(sonde_rule_run *run)
{
    sonde__builtin_free_each(run, offsetof(sonde__builtin_symmetric_memory, rows));
    sonde__builtin_free_each(run, offsetof(sonde__builtin_symmetric_memory, same));
}

const sonde_rule sonde__builtin_symmetric_units = {
    SONDE__RULE("SymmetricUnits", sonde__builtin_symmetric),
    .summary = "units of a layer have the same weights",
    .condition =
        "At least `share` % of the rows of a weight, of 8 or more elements, equal another row that is not 0; or all elements are equal to within a hundredth, unless the module has another weight of that shape; or the weight and its gradient are 0. It waits for training: nothing where training goes well or rows part; an error where rows stay equal while the weight moves. A note for a parameter of no module whose name is not that of a layer: its rows may be samples. Silent for a weight without a gradient where others have one, and for units of which each has a bias of its own (of as many dimensions) where these differ.",
    .advice = "Draw the initial weights at random: units that start equal stay equal.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(sonde__builtin_symmetric_memory),
    .wants = wants,
    .bind = bind,
    .observe = sonde__builtin_symmetric_observe,
    .step = step,
    .destroy = destroy,
};
