/*
 * EvalNondeterminism - the same input gives another output in evaluation.
 *
 * Inputs and outputs of evaluation (or prediction) steps are remembered by their hashes until a
 * step of another mode comes between. Fires for an output that is not what it was for the same inputs. Dropout
 * that is on, or batch norm that still learns, does this. Evidence: hashes of inputs and outputs;
 * only an input that is evaluated twice can tell.
 */
#include "rules/builtin.h"

#include <string.h>

enum { INPUTS = 0, OUTPUTS = 1, REMEMBERED = 1024 };

typedef struct nondeterminism {
    uint64_t inputs; /* of this step, mixed */
    bool again;      /* some input came twice */
    sonde_mode mode;
    int64_t others; /* steps of other modes so far */
} nondeterminism;

typedef struct memory {
    uint64_t input[REMEMBERED],
        output[REMEMBERED]; /* of an output, by hash of the inputs */
    uint64_t hash;          /* of this step, mixed */
    bool seen;
} memory;

static const sonde_rule_need needs[] = {{"inputs", SONDE_HOW_HASH, false, true},
                                        {"outputs", SONDE_HOW_HASH, false, true}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__is_own(info, id)) {
        return SONDE_RULE_IGNORE;
    }
    return info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE ? INPUTS
           : info->role == SONDE_ROLE_OUTPUT                               ? OUTPUTS
                                             : SONDE_RULE_IGNORE;
}

static void forget(sonde_rule_run *run)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        memory *of = tensors[i].memory;

        memset(of->input, 0, sizeof of->input);
    }
}

static uint64_t mixed(uint64_t into, uint64_t hash)
{
    return (into ^ hash) * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    nondeterminism *state = sonde_rule_state(run);
    memory *of = tensor->memory;

    if (tensor->need == INPUTS) {
        state->inputs = mixed(state->inputs, seen->hash);
    } else {
        of->hash = mixed(of->hash, seen->hash);
        of->seen = true;
    }
}

static void judge(sonde_rule_run *run, size_t i, memory *of)
{
    nondeterminism *state = sonde_rule_state(run);
    const size_t at = state->inputs % REMEMBERED;
    const bool again = of->input[at] == state->inputs;

    state->again = state->again || again;
    if (again && of->output[at] != of->hash &&
        sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "hash", 1.0, 0.0)) {
        sonde_rule_say(
            run, NULL,
            "For inputs that were evaluated before, without training since, it "
            "now has other values.");
    }
    of->input[at] = state->inputs;
    of->output[at] = of->hash;
}

static void step(sonde_rule_run *run)
{
    nondeterminism *state = sonde_rule_state(run);
    const sonde_coordinate *at = sonde_rule_at(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (state->mode != at->mode || state->others != at->global_step - at->mode_step) {
        forget(run);
        state->mode = at->mode;
        state->others = at->global_step - at->mode_step;
    }
    for (size_t i = 0; i < count; i++) {
        memory *of = tensors[i].memory;

        if (of->seen && state->inputs != 0) {
            judge(run, i, of);
        }
        of->seen = false;
        of->hash = 0;
    }
    state->inputs = 0;
}

static void finish(sonde_rule_run *run)
{
    const nondeterminism *state = sonde_rule_state(run);

    if (!state->again) {
        sonde_rule_lacked(run, "no input was evaluated twice with the same weights");
    }
}

const sonde_rule sonde__eval_nondeterminism = {
    .abi = SONDE_RULE_ABI,
    .name = "EvalNondeterminism",
    .summary = "the same input gives another output in evaluation",
    .condition =
        "In evaluation steps without training between them, equal inputs have outputs "
        "that differ.",
    .advice = "Switch the model to evaluation: dropout off, batch norm with its running "
              "statistics.",
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = 1U << SONDE_MODE_EVAL | 1U << SONDE_MODE_PREDICT,
    .by_name_only = true, /* reads what is large */
    .state_size = sizeof(nondeterminism),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .observe = observe,
    .step = step,
    .finish = finish,
};
