/*
 * frozen.c - see frozen.h: the weights of a run, and those that never changed.
 */
#include "rules/builtin/frozen.h"
#include "rules/builtin/builtin.h"

bool sonde__builtin_frozen_is_weight(const sonde_rule_run *run,
                                     const sonde_rule_tensor *tensor)
{
    return tensor->need == SONDE__FROZEN_PARAMETERS &&
           sonde_rule_info(run, tensor->id)->rank >= 2;
}

void sonde__builtin_frozen_survey(sonde_rule_run *run)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    state->weights = state->still = 0;
    state->first_moving = SIZE_MAX;
    SONDE__EACH_OF (run, tensors, i, SONDE__FROZEN_PARAMETERS) {
        const sonde__builtin_frozen_memory *memory = tensors[i].memory;

        state->weights += sonde__builtin_frozen_is_weight(run, &tensors[i]);
        state->still +=
            sonde__builtin_frozen_is_weight(run, &tensors[i]) && !memory->moved;
        if (memory->moved && state->first_moving == SIZE_MAX) {
            state->first_moving = i;
        }
    }
}
