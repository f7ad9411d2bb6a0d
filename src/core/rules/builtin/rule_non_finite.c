/*
 * NonFinite - names the first tensor, in execution order, that became NaN or infinite.
 *
 * The order within a step is: inputs, forward pass, loss, backward pass, update, and
 * parameters last, because their value at a step is the one after its update. Gradients
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
 * construction. It is a note if only gradients are bad and the parameters are not, after the update: a
 * scaler of mixed precision skips such updates on purpose. Evidence: vital signs.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "base/macros.h"
#include "rules/context.h"

#include <string.h>

typedef struct non_finite {
    int64_t open; /* index of the tensor whose bad steps continue; -1: none */
    bool started; /* a step was judged */
    bool skipped; /* at these steps only gradients were bad, as far as is seen */
} non_finite;

typedef struct tensor_memory {
    bool masks;     /* it had -Inf at a good step */
    uint64_t given; /* see sonde__builtin_is_given */
    bool bad;       /* at this step, and not by construction */
} tensor_memory;

static const sonde_rule_need needs[] = {
    {"tensors", SONDE_HOW_NORMS, false, SONDE__NOT_BACKWARD, SONDE__SELDOM},
    {"gradients of activations", SONDE_HOW_NORMS, true, SONDE__BACKWARD, SONDE__RARELY}};

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    non_finite *state = sonde_rule_state(run);

    (void)diag;
    state->open = -1;
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
        break;
    }
    return 5;
}

static bool only_minus_infinite(const sonde_tensor_info *info, const sonde_vitals *v)
{
    return v->nan == 0 && v->pos_inf == 0 && sonde__builtin_may_be_masked(info);
}

/* True if a bad value is certainly a fault. Sets *masked if an input has -Inf. */
static bool is_sure(sonde_rule_run *run, bool *masked)
{
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    bool sure = false;

    *masked = false;
    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;
        const tensor_memory *memory = tensors[i].memory;

        if (v != NULL && memory->bad) {
            const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);

            sure = sure || !only_minus_infinite(info, v);
            *masked =
                *masked || (only_minus_infinite(info, v) &&
                            (rank_of(info) == 0 || info->role == SONDE_ROLE_BUFFER));
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

/* Where the forward pass has the outputs of a module; -1: they are not seen. */
static int64_t place_of(sonde_rule_run *run, const char *module)
{
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    int64_t place = -1;

    SONDE__EACH (run, i) {
        const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);

        if (info->pass == SONDE_PASS_FORWARD && info->role != SONDE_ROLE_LOSS &&
            info->module != NULL && strcmp(info->module, module) == 0) {
            place = SONDE_MAX(place, (int64_t)tensors[i].id);
        }
    }
    return place;
}

/* The earlier one in the backward pass of another gradient and a listed one. */
static int64_t earlier_gradient(sonde_rule_run *run, int64_t other, int64_t listed)
{
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    const sonde_tensor_info *a = sonde_rule_info(run, tensors[other].id);
    const sonde_tensor_info *b = sonde_rule_info(run, tensors[listed].id);
    int64_t first = -1, second = -1;

    if (a->module != NULL && b->module != NULL) {
        first = place_of(run, a->module);
        second = place_of(run, b->module);
    }
    return first >= 0 && second > first ? listed : other;
}

/* The first bad tensor of the step, else -1. Sets *others to the number of other bad
 * tensors. */
static int64_t first_bad(sonde_rule_run *run, size_t *others)
{
    size_t bad = 0;
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    int64_t first = -1, listed = -1;
    int first_rank = 0;
    bool masked = false;
    const bool started = ((const non_finite *)sonde_rule_state(run))->started;

    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;
        tensor_memory *memory = tensors[i].memory;

        memory->bad = v != NULL && sonde__builtin_bad(v) > 0 &&
                      !sonde__builtin_is_given(sonde_rule_info(run, tensors[i].id), v,
                                               started, &memory->given);
    }
    const bool sure = is_sure(run, &masked);
    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;
        tensor_memory *memory = tensors[i].memory;

        if (v != NULL && memory->bad) {
            const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);
            const int rank = rank_of(info);

            memory->masks = memory->masks || !sure;
            bad++;
            if (only_minus_infinite(info, v) && (memory->masks || masked)) {
                continue;
            }
            if (is_listed(info)) {
                listed = listed < 0 || tensors[i].id > tensors[listed].id ? (int64_t)i
                                                                          : listed;
                continue;
            }
            if (first < 0 || rank < first_rank ||
                (rank == first_rank &&
                 sonde__rule_is_earlier(run, tensors[i].id, tensors[first].id))) {
                first = (int64_t)i;
                first_rank = rank;
            }
        }
    }
    *others = bad > 0 ? bad - 1 : 0;
    if (listed >= 0 && (first < 0 || first_rank > BACKWARD)) {
        first = listed;
    } else if (listed >= 0 && first_rank == BACKWARD) {
        first = earlier_gradient(run, first, listed);
    }
    return sure ? first : -1;
}

/* Whether the first bad tensor is the gradient of a parameter and all others of the step
 * are bad, too: clipping by their norm multiplies all by one number. */
static bool may_be_spread(sonde_rule_run *run, size_t first)
{
    size_t gradients = 0;
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    if (sonde_rule_info(run, tensors[first].id)->role != SONDE_ROLE_GRADIENT) {
        return false;
    }
    SONDE__EACH (run, i) {
        const tensor_memory *memory = tensors[i].memory;
        const sonde_role role = sonde_rule_info(run, tensors[i].id)->role;

        if (tensors[i].vitals == NULL || role != SONDE_ROLE_GRADIENT) {
            continue;
        }
        if (!memory->bad) {
            return false;
        }
        gradients++;
    }
    return gradients > 1;
}

static void step(sonde_rule_run *run)
{
    non_finite *state = sonde_rule_state(run);
    size_t others = 0, count = 0;
    const int64_t first = sonde_rule_any_bad(run) ? first_bad(run, &others) : -1;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    sonde__builtin_skip skip = SONDE__SKIP_NO;

    state->started = true;
    if (first < 0) {
        state->open = -1;
        return;
    }
    skip = sonde__builtin_was_skipped(run);
    if (state->open < 0 || (state->skipped && skip == SONDE__SKIP_NO)) {
        state->open = first;
        state->skipped = skip == SONDE__SKIP_YES;
    }
    const sonde_vitals *v = tensors[state->open].vitals;
    if (sonde__builtin_found_bad(run, (size_t)state->open, skip,
                                 v != NULL ? (double)sonde__builtin_bad(v) : 0.0) &&
        v != NULL) {
        char bad[SONDE__BAD_TEXT];

        sonde_rule_say(run, NULL,
                       "It is the first tensor of the step that is not finite: %s%s.",
                       sonde__builtin_bad_text(v, bad),
                       others == 0 ? ""
                       : may_be_spread(run, (size_t)state->open)
                           ? "; all gradients of the step are bad: if they are clipped "
                             "by their norm, it may have begun in another one"
                           : "; other tensors follow");
    }
}

const sonde_rule sonde__builtin_non_finite = {
    .abi = SONDE_RULE_ABI,
    .name = "NonFinite",
    .summary = "names the tensor in which NaN or infinity first appeared",
    .condition =
        "A value is NaN or infinite. The finding names the first such tensor of the step in execution order. A note for gradients of an update that was skipped: parameters stay finite or, where none is seen at that step, the next losses do. Silent for a buffer that holds as many infinities from the first step on.",
    .advice = "Check the operation that computes it: a log or square root of a value "
              "that is not positive, a division by zero, an exp that overflows, or a "
              "learning rate that is too high.",
    SONDE_RULE_NEEDS(needs),
    .state_size = sizeof(non_finite),
    .tensor_size = sizeof(tensor_memory),
    .init = init,
    .wants = sonde__builtin_wants_role,
    .step = step,
};
