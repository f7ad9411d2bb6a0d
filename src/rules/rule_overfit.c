/*
 * Overfit - the loss of evaluation leaves that of training behind.
 *
 * A round is a stretch of training steps with the evaluation that follows it. Fires when for
 * `patience` rounds on end
 *     (mean evaluation loss - mean training loss) / mean training loss > ratio_threshold
 * and, unless rising is 0, the evaluation loss is more than that share above its best so far: a
 * network that is only better at what it has seen, and still getting better at the rest, is well.
 *
 * Evidence: vital signs of losses, in training and evaluation steps.
 */
#include "rules/builtin.h"
#include "rules/phases.h"

typedef struct overfit {
    const char *tensor_regex;
    int64_t start_step, patience;
    double ratio_threshold, rising;
} overfit;

typedef struct memory {
    sonde__phases phases;
    double best;
    int64_t bad;
} memory;

static const sonde_rule_param params[] = {
    {"tensor_regex", SONDE_RULE_REGEX, NULL, 0, 0,
     "expressions that select losses (default: the loss tensors)",
     offsetof(overfit, tensor_regex), false},
    {"start_step", SONDE_RULE_COUNT, "0", 0, 1e18, "global step to begin at",
     offsetof(overfit, start_step), false},
    {"patience", SONDE_RULE_COUNT, "1", 1, 1e9, "rounds on end",
     offsetof(overfit, patience), false},
    {"ratio_threshold", SONDE_RULE_REAL, "0.1", 0, 1e9,
     "share by which evaluation may be worse", offsetof(overfit, ratio_threshold), false},
    {"rising", SONDE_RULE_REAL, "0.05", 0, 1e9,
     "share by which evaluation must be above its best; 0: need not",
     offsetof(overfit, rising), false},
};
static const sonde_rule_need needs[] = {{"losses", SONDE_HOW_VITALS, false, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    return sonde__wants_chosen(run, id,
                               info->role == SONDE_ROLE_LOSS && sonde__is_own(info, id));
}

static void judge(sonde_rule_run *run, size_t i, memory *of)
{
    const overfit *state = sonde_rule_state(run);
    const double train = of->phases.train_mean, eval = of->phases.eval_mean;
    const double ratio = (eval - train) / train;
    const bool first = of->phases.rounds == 1;
    const bool rising =
        state->rising <= 0.0 || (!first && eval > of->best * (1.0 + state->rising));

    of->best = first ? eval : fmin(of->best, eval);
    of->bad = train > 0.0 && ratio > state->ratio_threshold && rising ? of->bad + 1 : 0;
    if (of->bad >= state->patience &&
        sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "loss_ratio", ratio,
                         state->ratio_threshold)) {
        sonde_rule_say(run, NULL,
                       "Evaluation has a mean loss of %.4g (its best was %.4g), training "
                       "of %.4g: what is learnt now holds for the training data only.",
                       eval, of->best, train);
    }
}

static void step(sonde_rule_run *run)
{
    const overfit *state = sonde_rule_state(run);
    const sonde_coordinate *at = sonde_rule_at(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count && at->global_step >= state->start_step; i++) {
        const sonde_vitals *v = tensors[i].vitals;
        memory *of = tensors[i].memory;

        if (v != NULL && v->count > 0 && sonde__bad(v) == 0 &&
            sonde__phases_take(&of->phases, at, v->mean)) {
            judge(run, i, of);
        }
    }
}

static void finish(sonde_rule_run *run)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    int64_t rounds = 0;

    for (size_t i = 0; i < count; i++) {
        memory *of = tensors[i].memory;

        if (sonde__phases_end(&of->phases)) {
            judge(run, i, of);
        }
        rounds += of->phases.rounds;
    }
    sonde__phases_lacked(run, rounds);
}

const sonde_rule sonde__overfit = {
    .abi = SONDE_RULE_ABI,
    .name = "Overfit",
    .summary = "evaluation gets worse while training gets better",
    .condition = "For `patience` rounds the mean evaluation loss is `ratio_threshold` "
                 "above the mean "
                 "training loss, and `rising` above its own best.",
    .advice =
        "Stop at the best evaluation; use more data, augmentation, dropout or weight "
        "decay, or a smaller network.",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = SONDE__TRAIN | 1U << SONDE_MODE_EVAL,
    .state_size = sizeof(overfit),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .step = step,
    .finish = finish,
};
