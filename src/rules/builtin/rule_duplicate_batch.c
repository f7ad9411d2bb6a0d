/*
 * DuplicateBatch - a batch is repeated, or two replicas get the same batch.
 *
 * Fires when an input is the same, bit for bit, as at the previous training step (not at
 * earlier ones: a few batches in a fixed order recur), or as on another replica at the
 * same step. Inputs that have never changed are ignored: training on one batch, or with
 * a constant input, is intended. Inputs of fewer than 32 elements and of bools are
 * ignored too: they can be equal by chance. So can integers, such as positions: they
 * count only where every input of the step that has ever changed is the same.
 *
 * Some programs use each batch several times on purpose (several updates for a rollout of
 * a policy, data that are loaded slowly): a note, as long as a batch is not repeated more
 * often than the first one of the run was. Evidence: hashes of inputs at both steps, else
 * their vital signs.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"

typedef struct tensor_memory {
    sonde_vitals before;
    bool changed, hashed;
    bool had_hash, had_vitals; /* at the step before */
    uint64_t hash,
        hash_before; /* of the first value of the step, and of the step before */
    int64_t hash_step, last;
    bool compared, same; /* at this step */
    int64_t repeats;     /* of this batch so far */
    int64_t first;       /* of the first batch of the run */
    int replica;
} tensor_memory;

#define BATCH_PAIRS                                                                      \
    {                                                                                    \
        .first = 50, .every = 20, .row = 2, .row_every = 20                              \
    }
static const sonde_rule_need needs[] = {
    {"inputs", SONDE_HOW_VITALS | SONDE_HOW_HASH, false, SONDE__INPUTS, BATCH_PAIRS}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    int64_t count = 1;

    (void)run;
    for (int i = 0; i < info->rank; i++) {
        count *= info->shape[i];
    }
    return info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE &&
                   sonde__builtin_is_own(info, id) && info->dtype != SONDE_BOOL &&
                   count >= 32
               ? 0
               : SONDE_RULE_IGNORE;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    tensor_memory *memory = tensor->memory;

    if (seen->hash == 0) {
        return;
    }
    if (!memory->hashed || memory->hash_step != seen->at.global_step) {
        memory->hash_before = memory->hash;
        memory->hash = seen->hash;
        memory->hash_step = seen->at.global_step;
        memory->replica = seen->at.replica;
        memory->hashed = true;
    } else if (sonde_dtype_is_float(seen->info->dtype) && seen->at.micro_batch == 0 &&
               seen->at.replica != memory->replica && seen->hash == memory->hash &&
               sonde_rule_found(run, sonde__builtin_index(run, tensor),
                                SONDE_SEVERITY_ERROR, "hash", 1.0, 0.0)) {
        sonde__builtin_say_replicas(run, memory->replica, seen->at.replica,
                                    "the same batch");
    }
}

/* Compares an input with that of the previous step. */
static void compare(sonde_rule_run *run, sonde_rule_tensor *tensor)
{
    const int64_t now = sonde_rule_at(run)->global_step;
    tensor_memory *memory = tensor->memory;
    const sonde_vitals *v = tensor->vitals;
    const bool has_hash = memory->hashed && memory->hash_step == now;
    const bool by_hash = has_hash && memory->had_hash;
    const bool by_vitals = v != NULL && memory->had_vitals;
    const bool next =
        (has_hash || v != NULL) && sonde__builtin_steps_since(run, &memory->last) == 1;

    memory->compared = next && (by_hash || by_vitals);
    memory->same =
        memory->compared && (by_hash ? memory->hash == memory->hash_before
                                     : sonde__builtin_same_vitals(v, &memory->before));
    if (has_hash || v != NULL) {
        memory->had_hash = has_hash;
        memory->had_vitals = v != NULL;
    }
}

static void report(sonde_rule_run *run, size_t i, bool meant)
{
    if (sonde_rule_found(run, i, meant ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_ERROR,
                         "hash", 1.0, 0.0)) {
        sonde_rule_say(run, NULL, "It is bit for bit the batch of the previous step%s.",
                       meant ? ", as often as the first batch of the run was" : "");
    }
}

static void step(sonde_rule_run *run)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    bool all = true;

    for (size_t i = 0; i < count; i++) {
        const tensor_memory *memory = tensors[i].memory;

        compare(run, &tensors[i]);
        all = all && (!memory->compared || !memory->changed || memory->same);
    }
    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;
        const bool real =
            sonde_dtype_is_float(sonde_rule_info(run, tensors[i].id)->dtype);

        memory->repeats = memory->same ? memory->repeats + 1 : 0;
        memory->first += memory->same && !memory->changed;
        if (memory->same && memory->changed && (real || all)) {
            report(run, i, memory->repeats <= memory->first);
        }
        memory->changed = memory->changed || (memory->compared && !memory->same);
        if (tensors[i].vitals != NULL) {
            memory->before = *tensors[i].vitals;
        }
    }
}

const sonde_rule sonde__builtin_duplicate_batch = {
    .abi = SONDE_RULE_ABI,
    .name = "DuplicateBatch",
    .summary = "a batch is repeated, or two replicas get the same batch",
    .condition =
        "An input that has changed before is the same as at the previous training step or as on another replica. A note if it is repeated no more often than the first batch of the run was.",
    .advice = "Check the loader: shuffling, the seeds of its workers, and sharding.",
    SONDE_RULE_NEEDS(needs),
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .observe = observe,
    .step = step,
};
