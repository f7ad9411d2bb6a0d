/*
 * TrainEvalMode - dropout or batch norm is in the wrong mode.
 *
 * Fires when
 *     evaluation   at `patience` evaluation steps in a row the output of a dropout layer
 *                  differs from its input: dropout is on; or
 *     training     at `patience` training steps in a row, after an evaluation, the output
 *                  of a dropout layer equals its input, which it did not before: dropout
 *                  stays off; or
 *     statistics   after an evaluation, a buffer that changed at every training step
 *                  before stays the same to the bit at `patience` training steps in a
 *                  row, if its name says that it holds statistics: batch norm no longer
 *                  learns them. Other buffers (a temperature that is lowered) are a note.
 * Layers that were never in training mode, or never left it, are not judged: batch norm
 * may be frozen on purpose.
 *
 * A dropout layer is known by its op or by "drop" in its name; its input is the tensor
 * <module>_input_0, else the output of the same shape that is declared before it. The two
 * are compared by their sums. Evidence: vital signs of outputs, inputs and buffers.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "base/point.h"

#include <math.h>
#include <string.h>

enum { DROPOUTS = 0, OTHERS = 1, BUFFERS = 2 };
#define EQUAL 1e-6

typedef struct modes {
    int64_t patience;
    size_t linked;
    bool evaluated;
} modes;

typedef struct tensor_memory {
    size_t input;        /* of a dropout layer; SIZE_MAX: not known */
    int64_t on, off;     /* steps in a row: on in evaluation, off in training */
    int64_t was_on;      /* training steps before the first evaluation */
    sonde_vitals before; /* of a buffer, at the last training step */
    bool has_before;
    int64_t changed, same; /* training steps: before the evaluation; in a row after */
    bool steady;           /* did not change at some step before the evaluation */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__COUNT(modes, patience, "3", 1, 1e9, "observed steps in a row"),
};
static const sonde_rule_need needs[] = {
    {"outputs of dropout layers", SONDE_HOW_VITALS, true, SONDE__OUTPUTS, SONDE__SELDOM},
    {"their inputs", SONDE_HOW_VITALS, true, SONDE__ACTIVATIONS, SONDE__SELDOM},
    {"buffers", SONDE_HOW_VITALS, true, SONDE__BUFFERS, SONDE__OFTEN}};

static bool is_dropout(const sonde_tensor_info *info)
{
    const size_t length = strlen(info->name);

    return info->role == SONDE_ROLE_OUTPUT && info->pass != SONDE_PASS_BACKWARD &&
           (sonde__strncasecmp(info->op, "dropout", 7) == 0 ||
            (info->op[0] == '\0' && sonde__strcasestr(info->name, "drop") != NULL &&
             length > 9 && strcmp(info->name + length - 9, "_output_0") == 0));
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__builtin_is_own(info, id) || info->pass == SONDE_PASS_BACKWARD) {
        return SONDE_RULE_IGNORE;
    }
    return is_dropout(info) ? DROPOUTS
           : info->role == SONDE_ROLE_OUTPUT ||
                   (info->role == SONDE_ROLE_INPUT &&
                    sonde__strcasestr(info->name, "drop") != NULL)
               ? OTHERS
           : info->role == SONDE_ROLE_BUFFER ? BUFFERS
                                             : SONDE_RULE_IGNORE;
}

/* --- which tensor goes into a dropout layer -------------------------------------------- */

static bool same_shape(const sonde_tensor_info *a, const sonde_tensor_info *b)
{
    return a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

/* True if the names are <module>_input_0 and <module>_output_0. */
static bool is_its_input(const char *input, const char *output)
{
    const size_t length = strlen(output) - strlen("_output_0");

    return strncmp(input, output, length) == 0 && strcmp(input + length, "_input_0") == 0;
}

static size_t find_input(sonde_rule_run *run, size_t i)
{
    size_t before = SIZE_MAX;
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    const sonde_tensor_info *output = sonde_rule_info(run, tensors[i].id);

    SONDE__EACH (run, k) {
        const sonde_tensor_info *info = sonde_rule_info(run, tensors[k].id);

        if (tensors[k].need == OTHERS && same_shape(info, output)) {
            if (strlen(output->name) > 9 && is_its_input(info->name, output->name)) {
                return k;
            }
            before = k < i && info->role == SONDE_ROLE_OUTPUT ? k : before;
        }
    }
    return before;
}

/* --- judging ---------------------------------------------------------------------------- */

static bool is_off(const sonde_vitals *output, const sonde_vitals *input)
{
    return output->zero == input->zero && output->count == input->count &&
           fabs(output->l1 - input->l1) <= EQUAL * input->l1;
}

static void judge_dropout(sonde_rule_run *run, size_t i, bool training)
{
    const modes *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    tensor_memory *memory = tensors[i].memory;

    if (memory->input == SIZE_MAX || tensors[memory->input].vitals == NULL ||
        tensors[memory->input].vitals->l1 <= 0.0 ||
        sonde__builtin_bad(tensors[memory->input].vitals) > 0) {
        return; /* nothing to drop */
    }
    bool off = is_off(tensors[i].vitals, tensors[memory->input].vitals);
    if (training) {
        memory->was_on += !state->evaluated && !off;
        memory->off = state->evaluated && off ? memory->off + 1 : 0;
    } else {
        memory->on = off ? 0 : memory->on + 1;
    }
    if (training && memory->was_on >= state->patience && memory->off >= state->patience &&
        sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "steps", (double)memory->off,
                         (double)state->patience)) {
        sonde_rule_say(run, "Switch the model back to training mode after evaluation.",
                       "Since the evaluation its output equals its input in training "
                       "too: dropout is off.");
    }
    if (!training && memory->was_on >= state->patience && memory->on >= state->patience &&
        sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "steps", (double)memory->on,
                         (double)state->patience)) {
        sonde_rule_say(run, "Switch the model to evaluation mode before evaluation.",
                       "Its output differs from its input in evaluation: dropout is on.");
    }
}

static void judge_buffer(sonde_rule_run *run, size_t i)
{
    const modes *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    tensor_memory *memory = tensors[i].memory;
    const sonde_vitals *v = tensors[i].vitals;
    const bool statistic =
        sonde__builtin_is_statistic(sonde_rule_info(run, tensors[i].id));
    const bool same = memory->has_before && sonde__builtin_bad(v) == 0 &&
                      sonde__builtin_same_vitals(v, &memory->before);

    if (!state->evaluated) {
        memory->steady = memory->steady || same;
        memory->changed += memory->has_before && !same;
    } else {
        memory->same = same ? memory->same + 1 : 0;
    }
    memory->before = *v;
    memory->has_before = true;
    if (!memory->steady && memory->changed >= state->patience &&
        memory->same >= state->patience &&
        sonde_rule_found(run, i, statistic ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE,
                         "steps", (double)memory->same, (double)state->patience)) {
        sonde_rule_say(run, "Switch the model back to training mode after evaluation.",
                       "It changed at every training step before the evaluation and "
                       "stays the same since then%s.",
                       statistic ? ": the layer is in evaluation mode"
                                 : "; it may be meant to");
    }
}

static void step(sonde_rule_run *run)
{
    modes *state = sonde_rule_state(run);
    const bool training = sonde_rule_at(run)->mode == SONDE_MODE_TRAIN;
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    if (state->linked != count) {
        for (size_t i = 0; i < count; i++) {
            if (tensors[i].need == DROPOUTS) {
                ((tensor_memory *)tensors[i].memory)->input = find_input(run, i);
            }
        }
        state->linked = count;
    }
    state->evaluated = state->evaluated || !training;
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].vitals == NULL) {
            continue;
        }
        if (tensors[i].need == DROPOUTS) {
            judge_dropout(run, i, training);
        } else if (tensors[i].need == BUFFERS && training) {
            judge_buffer(run, i);
        }
    }
}

const sonde_rule sonde__builtin_train_eval_mode = {
    SONDE__RULE("TrainEvalMode", modes),
    .summary = "dropout or batch norm is in the wrong mode",
    .condition =
        "At `patience` observed steps in a row, a dropout layer changes its input in evaluation; or, after an evaluation, it no longer does in training; or a buffer that changed at every training step before the first evaluation no longer changes (a note unless its name says that it holds statistics).",
    .advice = "Call the model's train() before training and eval() before evaluation.",
    .modes = 1U << SONDE_MODE_TRAIN | 1U << SONDE_MODE_EVAL,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .step = step,
};
