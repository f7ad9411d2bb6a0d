/*
 * ExplodingTensor - a tensor contains a NaN or, unless only_nan is set, an infinity.
 *
 * Judges all tensors, or those that collection_names and tensor_regex select, with one
 * finding for each. NonFinite names the first one. Infinities may be intended: an
 * activation, an input or a buffer that holds no other bad value than -Inf is accepted
 * while no tensor is bad otherwise, and later if it held -Inf at such a step (a mask of
 * attention and the scores that it masks). Gradients that are not finite at a step whose
 * other tensors are, the parameters after the update included, are a note: the update was
 * skipped, and the scale of the loss is too high. Tensors that the user selects are all
 * judged. So are buffers, but for those that are infinite from their first look on and
 * never change: they are so by construction.
 * Evidence: vital signs.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"

typedef struct exploding {
    const char *collection_names, *tensor_regex;
    bool only_nan;
    bool started; /* a step was judged */
} exploding;

typedef struct tensor_memory {
    bool masks;     /* it held -Inf while no tensor was bad */
    bool intended;  /* at this step: infinite by construction */
    uint64_t given; /* see sonde__builtin_is_given */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__CHOSEN(exploding),
    SONDE__FLAG(exploding, only_nan, "false", "accept infinities"),
};
static const sonde_rule_need needs[] = {
    {"tensors", SONDE_HOW_NORMS, false, SONDE__NOT_BACKWARD, SONDE__SELDOM},
    {"gradients of activations", SONDE_HOW_NORMS, true, SONDE__BACKWARD, SONDE__RARELY}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_wants_any(run, info, id);

    return need == 0 && info->role == SONDE_ROLE_ACTIVATION_GRADIENT ? 1 : need;
}

/* Whether a tensor holds -Inf and no other bad value, and may do so. */
static bool is_masked(sonde_rule_run *run, const sonde_rule_tensor *tensor)
{
    const sonde_vitals *v = tensor->vitals;

    return v->neg_inf > 0 && v->nan == 0 && v->pos_inf == 0 &&
           sonde__builtin_may_be_masked(sonde_rule_info(run, tensor->id));
}

/* Whether a tensor of the step is bad in a way that is never intended. */
static bool any_sure(sonde_rule_run *run)
{
    const exploding *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;

        tensor_memory *memory = tensors[i].memory;

        memory->intended = v != NULL && v->nan + v->pos_inf + v->neg_inf > 0 &&
                           sonde__builtin_is_given(sonde_rule_info(run, tensors[i].id), v,
                                                   state->started, &memory->given);
    }
    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;
        const tensor_memory *memory = tensors[i].memory;

        if (v != NULL && v->nan + v->pos_inf + v->neg_inf > 0 && !memory->intended &&
            !is_masked(run, &tensors[i])) {
            return true;
        }
    }
    return false;
}

static void judge(sonde_rule_run *run, size_t i, const sonde_vitals *v,
                  sonde__builtin_skip skip)
{
    const exploding *state = sonde_rule_state(run);
    sonde_vitals counted = *v;
    char text[SONDE__BAD_TEXT];

    if (state->only_nan) {
        counted.pos_inf = counted.neg_inf = 0;
    }
    if (sonde__builtin_bad(&counted) > 0 &&
        sonde__builtin_found_bad(run, i, skip, (double)sonde__builtin_bad(&counted))) {
        sonde_rule_say(run, NULL, "%s.", sonde__builtin_bad_text(&counted, text));
    }
}

static void step(sonde_rule_run *run)
{
    exploding *state = sonde_rule_state(run);
    const bool chosen = state->collection_names != NULL || state->tensor_regex != NULL;
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    const bool any = sonde_rule_any_bad(run);
    const bool sure = any && any_sure(run);
    const sonde__builtin_skip skip =
        any && !chosen ? sonde__builtin_was_skipped(run) : SONDE__SKIP_NO;

    for (size_t i = 0; i < count && any; i++) {
        tensor_memory *memory = tensors[i].memory;

        if (tensors[i].vitals == NULL || (!chosen && memory->intended)) {
            continue;
        }
        if (!chosen && is_masked(run, &tensors[i])) {
            memory->masks = memory->masks || !sure;
            if (memory->masks) {
                continue;
            }
        }
        judge(run, i, tensors[i].vitals, skip);
    }
    state->started = true;
}

const sonde_rule sonde__builtin_exploding_tensor = {
    SONDE__RULE("ExplodingTensor", exploding),
    .summary = "a tensor holds NaN or infinite values",
    .condition =
        "A tensor contains a NaN or, unless `only_nan` is set, an infinity. -Inf in activations, inputs and buffers (masks of attention) is accepted while no tensor is bad otherwise. So are buffers that hold as many infinities from the first step on. A note for gradients of an update that was skipped: parameters stay finite or, where none is seen at that step, the next losses do.",
    .advice = "Lower the learning rate or clip gradients. NonFinite names the first "
              "tensor that became NaN or infinite.",
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .step = step,
};
