/*
 * EvalNondeterminism - the same input gives different outputs in evaluation.
 *
 * The rule remembers evaluation (or prediction) steps by the hash of their inputs until a
 * step of another mode comes. Fires for
 *     an output whose sum, or sum of magnitudes, differs for the same inputs by more than
 *     APART times the latter: dropout is on. (Sums in another order, as some processors
 *     take them, differ by far less.) a buffer that changes between two such steps, if
 *     its name says that it holds statistics: batch norm still learns. Other buffers
 *     (counters, caches) are a note.
 *
 * Evidence: hashes of inputs; vital signs of outputs and buffers. Needs an input that is
 * evaluated twice, or a buffer.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"

#include <math.h>
#include <string.h>

enum { INPUTS = 0, OUTPUTS = 1, BUFFERS = 2, REMEMBERED = 1024 };
#define APART 1e-4

typedef struct nondeterminism {
    uint64_t inputs;           /* combined hash of this step */
    uint64_t kept[REMEMBERED]; /* of steps before */
    bool again, buffers;       /* an input was evaluated twice; a buffer was seen twice */
    sonde_mode mode;
    int64_t others; /* steps of other modes so far */
} nondeterminism;

typedef struct tensor_memory {
    union {
        struct {
            double l1[REMEMBERED],
                sum[REMEMBERED]; /* of an output, by hash of the inputs */
        } output;
        sonde_vitals before; /* of a buffer */
    } as;
    bool has_before;
} tensor_memory;

static const sonde_rule_need needs[] = {
    {"inputs", SONDE_HOW_HASH, true, SONDE__INPUTS, SONDE__EACH_STEP},
    {"outputs", SONDE_HOW_VITALS, true, SONDE__OUTPUTS, SONDE__OFTEN},
    {"buffers", SONDE_HOW_VITALS, true, SONDE__BUFFERS, SONDE__OFTEN}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__builtin_is_own(info, id)) {
        return SONDE_RULE_IGNORE;
    }
    return info->role == SONDE_ROLE_INPUT && info->pass == SONDE_PASS_NONE ? INPUTS
           : info->role == SONDE_ROLE_OUTPUT                               ? OUTPUTS
           : info->role == SONDE_ROLE_BUFFER                               ? BUFFERS
                                             : SONDE_RULE_IGNORE;
}

static void forget(sonde_rule_run *run)
{
    nondeterminism *state = sonde_rule_state(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    memset(state->kept, 0, sizeof state->kept);
    SONDE__EACH (run, i) {
        ((tensor_memory *)tensors[i].memory)->has_before = false;
    }
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    nondeterminism *state = sonde_rule_state(run);

    if (tensor->need == INPUTS) {
        state->inputs = (state->inputs ^ seen->hash) * UINT64_C(0x9E3779B97F4A7C15) + 1;
    }
}

static void judge_output(sonde_rule_run *run, size_t i, tensor_memory *memory,
                         const sonde_vitals *v, bool again)
{
    const nondeterminism *state = sonde_rule_state(run);
    const size_t at = state->inputs % REMEMBERED;
    double *l1 = &memory->as.output.l1[at], *sum = &memory->as.output.sum[at];
    const double apart = fmax(fabs(v->l1 - *l1), fabs(v->sum - *sum));

    if (again && !(apart <= APART * *l1) && sonde__builtin_bad(v) == 0 &&
        sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "sum_difference", apart,
                         APART * *l1)) {
        sonde_rule_say(run, NULL,
                       "The same inputs now give other values, although no training "
                       "happened in between: magnitudes sum to %.6g instead of %.6g.",
                       v->l1, *l1);
    }
    *l1 = v->l1;
    *sum = v->sum;
}

static void judge_buffer(sonde_rule_run *run, size_t i, tensor_memory *memory,
                         const sonde_vitals *v)
{
    nondeterminism *state = sonde_rule_state(run);

    const uint32_t id = sonde__builtin_tensors(run)[i].id;
    const bool statistic = sonde__builtin_is_statistic(sonde_rule_info(run, id));

    state->buffers = state->buffers || memory->has_before;
    if (memory->has_before && !sonde__builtin_same_vitals(v, &memory->as.before) &&
        sonde_rule_found(run, i, statistic ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE,
                         "mean", v->mean, memory->as.before.mean)) {
        sonde_rule_say(run, NULL,
                       "It changes from one evaluation step to the next: results depend "
                       "on earlier evaluation steps, and evaluation affects training.");
    }
    memory->as.before = *v;
    memory->has_before = true;
}

static void step(sonde_rule_run *run)
{
    nondeterminism *state = sonde_rule_state(run);
    const sonde_coordinate *at = sonde_rule_at(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    uint64_t *kept = &state->kept[state->inputs % REMEMBERED];

    if (state->mode != at->mode || state->others != at->global_step - at->mode_step) {
        forget(run);
        state->mode = at->mode;
        state->others = at->global_step - at->mode_step;
    }
    bool again = state->inputs != 0 && *kept == state->inputs;
    state->again = state->again || again;
    SONDE__EACH (run, i) {
        const sonde_vitals *v = tensors[i].vitals;

        if (tensors[i].need == OUTPUTS && v != NULL && state->inputs != 0) {
            judge_output(run, i, tensors[i].memory, v, again);
        } else if (tensors[i].need == BUFFERS && v != NULL) {
            judge_buffer(run, i, tensors[i].memory, v);
        }
    }
    *kept = state->inputs;
    state->inputs = 0;
}

static void finish(sonde_rule_run *run)
{
    const nondeterminism *state = sonde_rule_state(run);

    if (!state->again && !state->buffers) {
        sonde_rule_lacked(run, "no input was evaluated twice with the same weights");
    }
}

const sonde_rule sonde__builtin_eval_nondeterminism = {
    .abi = SONDE_RULE_ABI,
    .name = "EvalNondeterminism",
    .summary = "the same input gives different outputs in evaluation",
    .condition =
        "In evaluation steps without training in between, equal inputs give different outputs, or a buffer changes (a note unless its name says that it holds statistics).",
    .advice = "Switch the model to evaluation mode: dropout off, batch norm with its "
              "running statistics.",
    SONDE_RULE_NEEDS(needs),
    .modes = 1U << SONDE_MODE_EVAL | 1U << SONDE_MODE_PREDICT,
    .state_size = sizeof(nondeterminism),
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .observe = observe,
    .step = step,
    .finish = finish,
};
