/*
 * ReplicaDivergence - a parameter differs between replicas (or workers) at the same step.
 *
 * Fires when its hash differs from that of the first replica seen at the step. A replica
 * that misses an all-reduce differs in all of its parameters, so parameters of up to
 * SMALL elements are hashed at every step, and larger ones at the steps with raw values.
 * Evidence: hashes of parameters on at least two replicas. Shards, which differ from
 * worker to worker (SONDE_NOTE_SHARD), are left out.
 */
#include "rules/builtin/builtin.h"

#include <string.h>

typedef struct divergence {
    bool compared;
} divergence;

typedef struct tensor_memory {
    uint64_t hash;
    int64_t step;
    int replica;
    bool hashed;
} tensor_memory;

enum { SMALL = 1024 };

static const sonde_rule_need needs[] = {
    {"small parameters", SONDE_HOW_HASH, true, SONDE__PARAMETERS, SONDE__OFTEN},
    {"parameters", SONDE_HOW_HASH, true, SONDE__PARAMETERS, SONDE__SELDOM}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_wants_role(run, info, id);

    if (strncmp(info->note, SONDE_NOTE_SHARD, sizeof SONDE_NOTE_SHARD - 1) == 0) {
        return SONDE_RULE_IGNORE;
    }
    return need == 0 && !sonde__builtin_is_small(info, SMALL) ? 1 : need;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    divergence *state = sonde_rule_state(run);
    tensor_memory *memory = tensor->memory;

    if (!memory->hashed || memory->step != seen->at.global_step) {
        *memory =
            (tensor_memory){seen->hash, seen->at.global_step, seen->at.replica, true};
        return;
    }
    if (seen->at.replica == memory->replica) {
        return;
    }
    state->compared = true;
    if (seen->hash != memory->hash &&
        sonde_rule_found(run, sonde__builtin_index(run, tensor), SONDE_SEVERITY_ERROR,
                         "hash", 1.0, 0.0)) {
        sonde__builtin_say_replicas(run, memory->replica, seen->at.replica,
                                    "different values");
    }
}

static void finish(sonde_rule_run *run)
{
    const divergence *state = sonde_rule_state(run);

    if (!state->compared) {
        sonde_rule_lacked(run, "no parameter was recorded on two replicas");
    }
}

const sonde_rule sonde__builtin_replica_divergence = {
    .abi = SONDE_RULE_ABI,
    .name = "ReplicaDivergence",
    .summary = "replicas have different parameters",
    .condition =
        "The hash of a parameter differs between replicas at the same step. Shards "
        "of a distributed parameter are not compared.",
    .advice = "Check that every replica takes part in the all-reduce and starts from the "
              "same values.",
    SONDE_RULE_NEEDS(needs),
    .state_size = sizeof(divergence),
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .observe = observe,
    .finish = finish,
};
