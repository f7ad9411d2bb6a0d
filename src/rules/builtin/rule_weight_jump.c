/*
 * WeightJump - most weights jump in one step.
 *
 * d is |w - w'|2 of a weight from one step to the next, and D the largest d before, over
 * the whole run. A weight is judged after `least` steps at which it moved. Fires when the
 * median of d / D over the judged weights is above `factor`, and names the weight that
 * jumped most. A schedule that warms up or restarts does not come near: it has moved the
 * weights as far before. Weights of another time or another run that are loaded over
 * those in training do this, and so does a learning rate that is suddenly much higher.
 *
 * Evidence: raw weights of consecutive steps; SAMPLE elements of each, evenly spread.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_values.h"

#include "base/fail.h"
#include "base/memory.h"

#include <math.h>

enum { SAMPLE = 256, MOST_WEIGHTS = 256 };

typedef struct weight_jump {
    double factor;
    int64_t least;
} weight_jump;

typedef struct tensor_memory {
    float *before;
    size_t count;
    int64_t last, moves; /* steps at which it moved */
    double now, largest; /* d; negative: none at this step */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REAL(weight_jump, factor, "10", 1, 1e300,
                "multiple of the largest step that a weight took before"),
    SONDE__COUNT(weight_jump, least, "10", 1, 1e9,
                 "steps of a weight before it is judged"),
};
static const sonde_rule_need needs[] = {
    {"weights", SONDE_HOW_RAW, false, SONDE__WEIGHTS, SONDE__IN_PAIRS}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    return info->role == SONDE_ROLE_WEIGHT && info->rank >= 2 &&
                   sonde__builtin_is_own(info, id)
               ? 0
               : SONDE_RULE_IGNORE;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    size_t count = 0;
    tensor_memory *memory = sonde_rule_tensors(run, &count)[i].memory;

    memory->now = -1.0;
    memory->before = sonde__calloc(SAMPLE, sizeof *memory->before);
    return memory->before != NULL ? SONDE_OK : sonde__fail_nomem(diag, "WeightJump");
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    tensor_memory *memory = tensor->memory;
    double values[SAMPLE], change = 0.0;
    size_t count = 0;
    int64_t since = 0;

    if (seen->view == NULL || seen->at.micro_batch != 0 || seen->at.replica != 0) {
        return;
    }
    since = memory->last > 0 ? seen->at.mode_step + 1 - memory->last : 0;
    count = sonde__builtin_sample(seen->view, SAMPLE, values);
    for (size_t i = 0; i < count; i++) {
        const double d = values[i] - (double)memory->before[i];

        change += d * d;
        memory->before[i] = (float)values[i];
    }
    (void)run;
    memory->now = since == 1 && count == memory->count ? sqrt(change) : -1.0;
    memory->count = count;
    memory->last = seen->at.mode_step + 1;
}

static void step(sonde_rule_run *run)
{
    const weight_jump *state = sonde_rule_state(run);
    size_t count = 0, judged = 0, farthest = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    double ratios[MOST_WEIGHTS], most = 0.0;

    for (size_t i = 0; i < count; i++) {
        tensor_memory *memory = tensors[i].memory;
        const double now = memory->now;

        memory->now = -1.0;
        if (!(now >= 0.0) || !isfinite(now)) {
            continue;
        }
        if (memory->moves >= state->least && judged < MOST_WEIGHTS) {
            const double ratio = now / memory->largest;

            farthest = ratio > most ? i : farthest;
            most = fmax(most, ratio);
            ratios[judged++] = ratio;
        }
        memory->moves += now > 0.0;
        memory->largest = fmax(memory->largest, now);
    }
    if (judged == 0) {
        return;
    }
    sonde__builtin_sort(ratios, judged);
    if (ratios[judged / 2] > state->factor &&
        sonde_rule_found(run, farthest, SONDE_SEVERITY_ERROR, "step", most,
                         state->factor)) {
        sonde_rule_say(run, NULL,
                       "Most weights moved by %.3g times their largest step before; this "
                       "one by %.3g times.",
                       ratios[judged / 2], most);
    }
}

static void destroy(sonde_rule_run *run)
{
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        sonde__free(((tensor_memory *)tensors[i].memory)->before);
    }
}

const sonde_rule sonde__builtin_weight_jump = {
    SONDE__RULE("WeightJump", weight_jump),
    .summary = "most weights jump in one step",
    .condition = "In one step, most weights move by more than `factor` times their "
                 "largest step before.",
    .advice = "Check whether weights of another checkpoint or run were loaded; else "
              "lower the learning rate.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .bind = bind,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};
