/*
 * DtypeMismatch - values have a type in which they lose what training needs.
 *
 * Judged is the program of a training step. Fires when
 *     unscaled   backward passes through float16, and no gradient scaler has scaled its
 *                loss: small gradients become 0. bfloat16 needs none. A loss that the
 *                program multiplies by a number itself counts as scaled;
 *     eps        Adam and its like hold float16 parameters, and their eps is 0 in float16:
 *                an element without a gradient becomes NaN;
 *     cut        floating targets have become integers, and floats again: fractions are
 *                lost;
 *     single     a layer computes in float32, and nearly all others in half precision:
 *                autocast does not reach it. A note: right for a layer that is kept precise
 *                on purpose. Not judged are layers whose input the program converts.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"

#include "base/memory.h"

#define LAYERS                                                                           \
    "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "    \
    "matmul bilinear"
#define ADAMS "Adam AdamW Adamax NAdam RAdam RMSprop Adagrad Adadelta"
#define TINY 2.98e-8 /* half of the smallest float16 above 0: it is rounded to 0 */
enum { HALVES = 3 }; /* layers in half precision for each one in float32 */

typedef struct dtypes {
    bool shown;
} dtypes;

static bool is_half(const sonde_program *program, int value)
{
    const sonde_dtype dtype = program->values[value].dtype;

    return dtype == SONDE_F16 || dtype == SONDE_BF16;
}

/* Whether an operation is a layer of which the objective is made. */
static bool is_layer(const sonde_program *program, const sonde_program_node *node,
                     const bool *marks)
{
    return node->output_count > 0 && marks[node->outputs[0]] &&
           program->values[node->outputs[0]].requires_grad &&
           sonde__builtin_walk_is(node->op, LAYERS);
}

/* --- unscaled ------------------------------------------------------------------------- */

/* Whether the loss of a backward pass is multiplied by a number above 1. */
static bool is_scaled(const sonde_program *program, const sonde_program_event *backward)
{
    int value = backward->value;
    const sonde_program_node *made =
        sonde__builtin_walk_up(program, &value, "to clone div mean");

    return sonde_attribute_number(backward->attributes, "scale", 1.0) > 1.0 ||
           (made != NULL && sonde__builtin_walk_is(made->op, "mul"));
}

static void judge_unscaled(sonde_rule_run *run, const sonde_program *program,
                           const bool *marks)
{
    const sonde_program_event *backward =
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_BACKWARD);
    sonde__builtin_text layer, line;

    if (backward == NULL || backward->value < 0 || is_scaled(program, backward) ||
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_STEP) == NULL) {
        return;
    }
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (!is_layer(program, node, marks) ||
            program->values[node->outputs[0]].dtype != SONDE_F16) {
            continue;
        }
        if (sonde_rule_found_at(run, "", backward->place, SONDE_SEVERITY_WARNING, "scale",
                                1.0, 2.0)) {
            sonde_rule_say(
                run, "Use torch.amp.GradScaler, or bfloat16.",
                "%s%s and other layers compute in float16, and backward%s is called on a "
                "loss that is not scaled: gradients below 6e-8 become 0.",
                node->op, sonde__builtin_walk_line(program, node->place, &layer),
                sonde__builtin_walk_line(program, backward->place, &line));
        }
        return;
    }
}

/* --- eps ------------------------------------------------------------------------------ */

static void judge_eps(sonde_rule_run *run, const sonde_program *program)
{
    for (size_t i = 0; i < program->value_count; i++) {
        const sonde_program_value *value = &program->values[i];
        const int held =
            value->parameter >= 0 ? program->parameters[value->parameter].optimizer : -1;

        if (held < 0 || value->dtype != SONDE_F16) {
            continue;
        }
        const sonde_program_optimizer *optimizer = &program->optimizers[held];
        const double eps = sonde_attribute_number(optimizer->attributes, "eps", 1.0);
        if (sonde__builtin_walk_is(optimizer->kind, ADAMS) && eps < TINY &&
            sonde_rule_found_at(run, value->tensor,
                                sonde_program_place_of(program, value->tensor),
                                SONDE_SEVERITY_ERROR, "eps", eps, TINY)) {
            sonde_rule_say(
                run, "Keep the parameters in float32 and use autocast, or pass eps=1e-4.",
                "%s updates float16 parameters, and its eps of %g is 0 in float16: an "
                "element without a gradient is divided by 0.",
                optimizer->kind, eps);
            return;
        }
    }
}

/* --- cut ------------------------------------------------------------------------------ */

static void judge_targets(sonde_rule_run *run, const sonde_program *program, size_t i)
{
    int value = program->losses[i].targets;
    sonde__builtin_text line;

    if (value < 0 || !sonde_dtype_is_float(program->values[value].dtype)) {
        return;
    }
    for (size_t left = program->node_count; left > 0; left--) {
        const sonde_program_node *made = sonde__builtin_walk_up(
            program, &value, SONDE__WALK_VIEWS " clone detach contiguous div mul");
        const int before = made != NULL && sonde__builtin_walk_is(made->op, "to")
                               ? sonde__builtin_walk_first(made)
                               : -1;

        if (before < 0) {
            return;
        }
        if (!sonde_dtype_is_float(program->values[value].dtype) &&
            sonde_dtype_is_float(program->values[before].dtype)) {
            if (sonde_rule_found_at(
                    run,
                    sonde__builtin_walk_tensor(program, program->losses[i].targets, -1),
                    made->place, SONDE_SEVERITY_WARNING, "fractions", 0.0, 1.0)) {
                sonde_rule_say(
                    run, "Leave the targets of a regression as floats.",
                    "Targets are converted from %s to %s%s, and become floats again: "
                    "their fractions are lost.",
                    sonde_dtype_name(program->values[before].dtype),
                    sonde_dtype_name(program->values[value].dtype),
                    sonde__builtin_walk_line(program, made->place, &line));
            }
            return;
        }
        value = before;
    }
}

/* --- single --------------------------------------------------------------------------- */

/* Whether the program converts an operand itself, or half precision does not reach it. */
static bool is_converted(const sonde_program *program, const sonde_program_node *node)
{
    for (size_t i = 0; i < node->input_count && i < 2; i++) {
        int value = node->inputs[i];
        const sonde_program_node *made =
            sonde__builtin_walk_up(program, &value, SONDE__WALK_VIEWS " detach dropout");

        if (made != NULL && sonde__builtin_walk_is(made->op, "to")) {
            return true;
        }
    }
    return false;
}

static void judge_single(sonde_rule_run *run, const sonde_program *program,
                         const bool *marks)
{
    const sonde_program_node *single = NULL;
    size_t halves = 0, singles = 0;
    sonde__builtin_text line;

    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (!is_layer(program, node, marks) || node->module < 0) {
            continue;
        }
        if (is_half(program, node->outputs[0])) {
            halves++;
        } else if (!is_converted(program, node)) {
            singles++;
            single = single != NULL ? single : node;
        }
    }
    if (single == NULL || halves < HALVES * singles ||
        !sonde_rule_found_at(run, program->values[single->outputs[0]].tensor,
                             single->place, SONDE_SEVERITY_NOTE, "layers",
                             (double)singles, 0.0)) {
        return;
    }
    sonde_rule_say(run,
                   "This is right for a layer that is kept precise. Else call it under "
                   "autocast.",
                   "%s%s computes in float32, and %zu other layers in half precision: "
                   "autocast does not reach it.",
                   single->op, sonde__builtin_walk_line(program, single->place, &line),
                   halves);
}

/* --- the rule ------------------------------------------------------------------------- */

static void judge(sonde_rule_run *run, const sonde_program *program)
{
    dtypes *state = sonde_rule_state(run);

    if (!sonde__builtin_walk_trains(program)) {
        return;
    }
    state->shown = true;
    judge_eps(run, program);
    for (size_t i = 0; i < program->loss_count; i++) {
        judge_targets(run, program, i);
    }
    bool *marks = sonde__builtin_walk_marks(run, program);
    if (marks != NULL && sonde__builtin_walk_objectives(program, marks)) {
        sonde__builtin_walk_above(program, marks, true);
        judge_unscaled(run, program, marks);
        judge_single(run, program, marks);
    }
    sonde__free(marks);
}

static void finish(sonde_rule_run *run)
{
    const dtypes *state = sonde_rule_state(run);

    if (!state->shown) {
        sonde_rule_lacked(run, "the run has no program of a training step");
    }
}

const sonde_rule sonde__builtin_dtype_mismatch = {
    .abi = SONDE_RULE_ABI,
    .name = "DtypeMismatch",
    .summary = "values have a type in which they lose what training needs",
    .condition =
        "In the program of a training step, one of these holds: (1) backward passes through float16 and no scaler scales the loss (a warning); "
        "(2) Adam or one of its kind holds float16 parameters, and its eps is 0 in float16; "
        "(3) floating targets are converted to integers and back (a warning); "
        "(4) a layer computes in float32 although most others compute in half precision (a note).",
    .advice =
        "Keep parameters in float32, use autocast for the whole forward pass, and a "
        "gradient scaler with float16.",
    .modes = SONDE__TRAIN,
    .state_size = sizeof(dtypes),
    .finish = finish,
    .program = judge,
};
