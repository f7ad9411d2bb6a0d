/*
 * DuplicateBatch - the same batch again, or on two replicas.
 *
 * Fires when an input is the same, bit for bit, as at the training step before (the very step
 * before: a few batches in a fixed order come again and again), or on another replica at the same
 * step. Inputs that have never changed are let be: whoever trains on one
 * batch, or feeds a constant, means it. Inputs of fewer than 32 elements and of integers or bools
 * are not looked at: they may well be alike. Evidence: hashes of inputs, else their vital signs.
 */
#include "rules/builtin/builtin.h"

typedef struct memory {
    sonde_vitals before;
    bool changed, hashed;
    uint64_t hash,
        hash_before; /* of the first value of the step, and of the step before */
    int64_t hash_step, last;
    int replica;
} memory;

static const sonde_rule_need needs[] = {
    {"inputs", SONDE_HOW_VITALS | SONDE_HOW_HASH, false, true}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    int64_t count = 1;

    (void)run;
    for (int i = 0; i < info->rank; i++) {
        count *= info->shape[i];
    }
    return info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE &&
                   sonde__builtin_is_own(info, id) && sonde_dtype_is_float(info->dtype) &&
                   count >= 32
               ? 0
               : SONDE_RULE_IGNORE;
}

static size_t index_of(sonde_rule_run *run, const sonde_rule_tensor *tensor)
{
    size_t count = 0;

    return (size_t)(tensor - sonde_rule_tensors(run, &count));
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    memory *of = tensor->memory;

    if (seen->hash == 0) {
        return;
    }
    if (!of->hashed || of->hash_step != seen->at.global_step) {
        of->hash_before = of->hash;
        of->hash = seen->hash;
        of->hash_step = seen->at.global_step;
        of->replica = seen->at.replica;
        of->hashed = true;
    } else if (seen->at.micro_batch == 0 && seen->at.replica != of->replica &&
               seen->hash == of->hash &&
               sonde_rule_found(run, index_of(run, tensor), SONDE_SEVERITY_ERROR, "hash",
                                1.0, 0.0)) {
        sonde_rule_say(run, NULL, "Replicas %d and %d have the same batch.", of->replica,
                       seen->at.replica);
    }
}

static void step(sonde_rule_run *run)
{
    const int64_t now = sonde_rule_at(run)->global_step;
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        memory *of = tensors[i].memory;
        const sonde_vitals *v = tensors[i].vitals;
        const bool by_hash = of->hashed && of->hash_step == now;
        const bool by_vitals = !of->hashed && v != NULL;
        const bool follows =
            (by_hash || by_vitals) && sonde__builtin_steps_since(run, &of->last) == 1;
        const bool same =
            follows && (by_hash ? of->hash == of->hash_before
                                : sonde__builtin_same_vitals(v, &of->before));

        if (same && of->changed &&
            sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "hash", 1.0, 0.0)) {
            sonde_rule_say(run, NULL, "It is the batch of the step before, bit for bit.");
        }
        of->changed = of->changed || (follows && !same);
        if (v != NULL) {
            of->before = *v;
        }
    }
}

const sonde_rule sonde__builtin_duplicate_batch = {
    .abi = SONDE_RULE_ABI,
    .name = "DuplicateBatch",
    .summary = "the same batch comes again, or on two replicas",
    .condition =
        "An input that has changed before is the same as at the training step before, or "
        "as on another replica.",
    .advice = "Look at the loader: its shuffling, its workers' seeds, how it is sharded.",
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(memory),
    .wants = wants,
    .observe = observe,
    .step = step,
};
