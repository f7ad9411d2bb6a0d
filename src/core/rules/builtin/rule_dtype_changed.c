/*
 * DtypeChanged - the dtype of a tensor changes.
 *
 * Opt-in, since it needs raw values, of which it only reads the dtype.
 */
#include "rules/builtin/builtin.h"

typedef struct tensor_memory {
    sonde_dtype dtype;
    bool has;
} tensor_memory;

static const sonde_rule_need needs[] = {
    {"tensors", SONDE_HOW_RAW, false, SONDE__ANY, SONDE__SELDOM}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    return sonde__builtin_is_own(info, id) && info->role != SONDE_ROLE_SCALAR
               ? 0
               : SONDE_RULE_IGNORE;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    tensor_memory *memory = tensor->memory;

    if (memory->has && memory->dtype != seen->view->dtype &&
        sonde_rule_found(run, sonde__builtin_index(run, tensor), SONDE_SEVERITY_WARNING,
                         "dtype", (double)seen->view->dtype, (double)memory->dtype)) {
        sonde_rule_say(run, NULL, "Its dtype changed from %s to %s.",
                       sonde_dtype_name(memory->dtype),
                       sonde_dtype_name(seen->view->dtype));
    }
    *memory = (tensor_memory){seen->view->dtype, true};
}

const sonde_rule sonde__builtin_dtype_changed = {
    .abi = SONDE_RULE_ABI,
    .name = "DtypeChanged",
    .summary = "a tensor's dtype changes during the run",
    .condition = "A raw value has a different dtype from the previous one.",
    .advice = "Look for a cast, or for mixed precision that is switched on or off during "
              "the run.",
    SONDE_RULE_NEEDS(needs),
    .by_name_only = true, /* reads what is large */
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .observe = observe,
};
