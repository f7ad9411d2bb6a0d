/*
 * LossSpike - the loss jumps up and does not come back.
 *
 * Fires when the loss has been above `factor` times the median of the 32 observed steps before
 * the jump, and above their largest, for `patience` observed training steps on end. A spike that
 * recovers sooner is let be. Evidence: vital signs of losses.
 */
#include "rules/builtin.h"
#include "rules/spikes.h"

typedef struct spike {
    double factor;
    int64_t patience, least;
} spike;

typedef struct memory {
    sonde__recent before; /* steps that were not above */
    int64_t above;
    double jumped_to;
} memory;

static const sonde_rule_param params[] = {
    {"factor", SONDE_RULE_REAL, "2", 1, 1e300, "times the median before the jump",
     offsetof(spike, factor), false},
    {"patience", SONDE_RULE_COUNT, "15", 1, 1e9, "observed steps that it stays up",
     offsetof(spike, patience), false},
    {"least", SONDE_RULE_COUNT, "5", 1, 32, "observed steps before it judges",
     offsetof(spike, least), false},
};
static const sonde_rule_need needs[] = {{"losses", SONDE_HOW_VITALS, false, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    return info->role == SONDE_ROLE_LOSS && sonde__is_own(info, id) ? 0
                                                                    : SONDE_RULE_IGNORE;
}

static void step(sonde_rule_run *run)
{
    const spike *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;
        memory *of = tensors[i].memory;
        double loss = 0.0, limit = 0.0;

        if (v == NULL || sonde__finite(v) == 0) {
            continue;
        }
        loss = v->mean;
        if (loss > of->before.ceiling) { /* else not above the largest of them */
            limit = fmax(state->factor * sonde__recent_median(&of->before),
                         of->before.ceiling);
        }
        if (of->before.count < state->least || limit <= 0.0 || loss <= limit) {
            sonde__recent_take(&of->before, loss);
            of->above = 0;
            continue;
        }
        of->jumped_to = of->above++ == 0 ? loss : of->jumped_to;
        if (of->above >= state->patience &&
            sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "mean", loss, limit)) {
            sonde_rule_say(
                run, NULL,
                "It jumped from about %.4g to %.4g %lld observed steps ago and "
                "has not come back (now %.4g).",
                sonde__recent_median(&of->before), of->jumped_to,
                (long long)of->above - 1, loss);
        }
    }
}

const sonde_rule sonde__loss_spike = {
    .abi = SONDE_RULE_ABI,
    .name = "LossSpike",
    .summary = "the loss jumps up and does not come back",
    .condition =
        "The loss stays above `factor` times the median before it jumped, and above the "
        "largest then, for `patience` observed steps.",
    .advice =
        "Lower the learning rate or clip gradients, and go on from a checkpoint before "
        "the jump.",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = SONDE__TRAIN,
    .state_size = sizeof(spike),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .step = step,
};
