/*
 * LossSign - the loss has the wrong sign: training makes the network worse.
 *
 * Judges the only loss of a run, or the total. Fires when
 *     classes   the loss is below 0 at `patience` observed steps in a row, while integer
 *               labels are among the inputs: a cross-entropy is never below 0; or
 *     runaway   every loss so far was below 0, and over three windows of `window` steps
 *               its mean falls faster and faster, each time by at least half of its
 *               size, to below RUNAWAY times the first losses. A likelihood may be below
 *               0 and fall, but not like this.
 * A loss that has been below 0 from the first step on is a note, after three windows:
 * densities and rewards may do that. Evidence: vital signs of losses.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/labels.h"

#include <math.h>

enum { LOSSES = 0, LABELS = 1, LABELS_REGEX = 0, WINDOWS = 3 };
#define RUNAWAY 5.0
#define FASTER 1.5

typedef struct loss_sign {
    const char *labels_regex;
    int64_t patience, window;
    bool labelled;
} loss_sign;

typedef struct tensor_memory {
    int64_t seen, below; /* losses; in a row below 0 */
    double first;        /* of the first window's start */
    double sum, means[WINDOWS];
    int64_t in_window, windows;
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REGEX(loss_sign, labels_regex, ".*labels",
                 "regular expressions that select labels"),
    SONDE__COUNT(loss_sign, patience, "3", 1, 1e9, "observed steps in a row"),
    SONDE__COUNT(loss_sign, window, "10", 1, 1e9, "observed steps that are averaged"),
};
static const sonde_rule_need needs[] = {
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP},
    {"labels", SONDE_HOW_VITALS, true, SONDE__INPUTS, SONDE__OFTEN}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    if (sonde__builtin_is_loss(info, id)) {
        return LOSSES;
    }
    return info->pass == SONDE_PASS_NONE && !sonde_dtype_is_float(info->dtype) &&
                   (sonde_rule_matches(run, LABELS_REGEX, id) ||
                    sonde__builtin_looks_like_labels(info, id))
               ? LABELS
               : SONDE_RULE_IGNORE;
}

static void judge_classes(sonde_rule_run *run, size_t i, const tensor_memory *memory,
                          double loss)
{
    const loss_sign *state = sonde_rule_state(run);

    if (state->labelled && memory->below >= state->patience &&
        sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "mean", loss, 0.0)) {
        sonde_rule_say(run, NULL,
                       "It is %.4g, but the loss of a classifier is never below 0.",
                       loss);
    }
}

static void judge_windows(sonde_rule_run *run, size_t i, const tensor_memory *memory)
{
    const double *m = memory->means;
    const bool runs_away = m[2] < FASTER * m[1] && m[1] < FASTER * m[0] &&
                           m[1] - m[2] > m[0] - m[1] && m[2] < RUNAWAY * memory->first;

    if (memory->windows < WINDOWS || memory->below < memory->seen) {
        return;
    }
    if (runs_away && sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "mean", m[2],
                                      RUNAWAY * memory->first)) {
        sonde_rule_say(run, NULL,
                       "It was below 0 from the first step on and falls faster and "
                       "faster, from %.4g to %.4g: nothing bounds it.",
                       memory->first, m[2]);
    }
}

/* At the end, if nothing else was found. */
static void judge_note(sonde_rule_run *run, size_t i, const tensor_memory *memory)
{
    if (memory->windows >= WINDOWS && memory->below == memory->seen &&
        sonde_rule_found(run, i, SONDE_SEVERITY_NOTE, "mean", memory->means[WINDOWS - 1],
                         0.0)) {
        sonde_rule_say(run, NULL,
                       "It was below 0 at every step (%.4g at first, %.4g at last), "
                       "which is right for a density or a reward.",
                       memory->first, memory->means[WINDOWS - 1]);
    }
}

static void take(sonde_rule_run *run, size_t i, tensor_memory *memory, double loss)
{
    const loss_sign *state = sonde_rule_state(run);

    memory->first = memory->seen == 0 ? loss : memory->first;
    memory->seen++;
    memory->below = loss < 0.0 ? memory->below + 1 : 0;
    judge_classes(run, i, memory, loss);
    memory->sum += loss;
    if (++memory->in_window >= state->window) {
        memory->means[0] = memory->means[1];
        memory->means[1] = memory->means[2];
        memory->means[2] = memory->sum / (double)memory->in_window;
        memory->windows++;
        memory->sum = 0.0;
        memory->in_window = 0;
        judge_windows(run, i, memory);
    }
}

static void step(sonde_rule_run *run)
{
    loss_sign *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        state->labelled =
            state->labelled || (tensors[i].need == LABELS && tensors[i].vitals != NULL);
    }
    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].need == LOSSES ? tensors[i].vitals : NULL;

        if (v != NULL && v->count > 0 && sonde__builtin_bad(v) == 0 &&
            sonde__builtin_loss_kind(run, tensors[i].id) == SONDE__LOSS_WHOLE) {
            take(run, i, tensors[i].memory, v->mean);
        }
    }
}

static void finish(sonde_rule_run *run)
{
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        if (tensors[i].need == LOSSES) {
            judge_note(run, i, tensors[i].memory);
        }
    }
}

const sonde_rule sonde__builtin_loss_sign = {
    SONDE__RULE("LossSign", loss_sign),
    .summary = "the loss has the wrong sign",
    .condition =
        "The loss of a run with integer labels is below 0 at `patience` observed "
        "steps in a row; or a loss that was always below 0 falls faster and "
        "faster, to five times its first value. A note at the end of a run whose "
        "loss was always below 0.",
    .advice = "Minimise the loss itself, not its negative; check the sign of each term.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .step = step,
    .finish = finish,
};
