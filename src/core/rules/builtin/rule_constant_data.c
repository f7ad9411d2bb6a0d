/*
 * ConstantData - the data do not tell samples apart.
 *
 * Fires when
 *     input     all inputs of a step of training are one number, the same at `patience`
 *               observed steps in a row. Inputs of a single element are not judged, nor is
 *               one of several while another one varies: a mask, a state to begin with;
 *     targets   all floating-point targets of all losses from which an optimizer gets its
 *               gradients are one number, over `samples` targets and TIMES observed steps.
 *               The program shows these losses. Judged are losses of probabilities and
 *               squares whose predictions a layer makes that this optimizer trains: a
 *               generator wants its critic to say one thing, but the critic itself must
 *               learn two. Residuals, which an equation drives to 0, are not made by a
 *               layer.
 * Evidence: vital signs of inputs and targets.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"

#include <string.h>

enum { INPUTS, TARGETS, TIMES = 10 };
#define JUDGED                                                                           \
    "binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss "            \
    "smooth_l1_loss huber_loss"
#define SAME SONDE__WALK_VIEWS " to clone detach"
#define THROUGH SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN " sigmoid tanh softmax relu index"
#define LAYERS                                                                           \
    "linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d "            \
    "conv_transpose3d"

typedef struct constant {
    int64_t patience, samples;
    int64_t held; /* observed steps in a row at which all inputs were as before */
} constant;

typedef struct constant_memory {
    double value; /* of all elements, so far */
    int64_t count, times;
    bool varies;
} constant_memory;

static const sonde_rule_param constant_params[] = {
    SONDE__COUNT(constant, patience, "5", 1, 1e9,
                 "number of observed steps in a row at which the inputs are one number"),
    SONDE__COUNT(constant, samples, "500", 1, 1e12,
                 "number of targets that must be equal"),
};
static const sonde_rule_need constant_needs[] = {
    {"inputs", SONDE_HOW_VITALS, true, SONDE__INPUTS, SONDE__SELDOM},
    {"targets", SONDE_HOW_VITALS, true, SONDE__INPUTS, SONDE__SELDOM}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__builtin_is_input(info, id) || info->dtype == SONDE_BOOL) {
        return SONDE_RULE_IGNORE;
    }
    return !sonde__builtin_is_target(info)     ? INPUTS
           : sonde_dtype_is_float(info->dtype) ? TARGETS
                                               : SONDE_RULE_IGNORE;
}

/* Whether the elements of a tensor are one number at this step, and were before. */
static bool holds(const sonde_rule_tensor *t)
{
    constant_memory *memory = t->memory;
    const sonde_vitals *v = t->vitals;
    const bool same = sonde__builtin_is_finite(v) && v->min == v->max &&
                      (memory->times == 0 || memory->value == v->min);

    memory->value = v->min;
    memory->count += (int64_t)v->count;
    memory->times++;
    memory->varies = memory->varies || !same;
    return same;
}

/* --- inputs --------------------------------------------------------------------------- */

/* The line that makes the input, or calls the model with it. */
static sonde_place place_of(const sonde_program *program, const char *tensor)
{
    int value = sonde_program_find(program, tensor);
    const sonde_program_node *maker =
        sonde__builtin_walk_up(program, &value, SONDE__WALK_VIEWS " to");
    const sonde_program_event *pass =
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_FORWARD);

    return maker != NULL  ? maker->place
           : pass != NULL ? pass->place
                          : (sonde_place){"", 0};
}

static void report_input(sonde_rule_run *run, const constant *state, size_t i)
{
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);
    const sonde_rule_tensor *t = sonde__builtin_at(run, i);
    const char *name = sonde_rule_info(run, t->id)->name;
    const sonde_vitals *v = t->vitals;
    const bool first =
        program == NULL
            ? sonde_rule_found(run, i, SONDE_SEVERITY_ERROR, "range", 0.0, 0.0)
            : sonde_rule_found_at(run, name, place_of(program, name),
                                  SONDE_SEVERITY_ERROR, "range", 0.0, 0.0);

    if (first) {
        sonde_rule_say(run, "Check how the input is read and scaled.",
                       "Each of its %lld elements is %.6g, at each of %lld steps: the "
                       "samples do not differ, and nothing can be learned from them.",
                       (long long)v->count, v->min, (long long)state->held);
    }
}

/* Whether an input is the targets of a loss, which the model computes itself. */
static bool are_targets(const sonde_program *program, const char *tensor)
{
    if (program == NULL) {
        return false;
    }
    int value = sonde_program_find(program, tensor);

    (void)sonde__builtin_walk_up(program, &value, SAME);
    for (size_t i = 0; value >= 0 && i < program->loss_count; i++) {
        int targets = program->losses[i].targets;

        (void)sonde__builtin_walk_up(program, &targets, SAME);
        if (targets == value && program->losses[i].predictions != targets) {
            return true;
        }
    }
    return false;
}

static void judge_inputs(sonde_rule_run *run)
{
    constant *state = sonde_rule_state(run);
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);
    size_t first = SIZE_MAX;
    bool all = true;

    SONDE__EACH_SEEN (run, t, INPUTS) {
        const char *name = sonde_rule_info(run, t->id)->name;
        const bool same = holds(t);
        const bool state_of_zeros = same && t->vitals->zero == t->vitals->count &&
                                    strncmp(name, "input/", 6) == 0;

        if (state_of_zeros || (!same && are_targets(program, name))) {
            continue; /* a recurrent layer begins with zeros */
        }
        all = same && all;
        if (first == SIZE_MAX && t->vitals->count > 1) {
            first = sonde__builtin_index(run, t);
        }
    }
    if (first == SIZE_MAX) {
        return;
    }
    state->held = all ? state->held + 1 : 0;
    if (state->held >= state->patience) {
        report_input(run, state, first);
    }
}

/* --- targets -------------------------------------------------------------------------- */

/* The optimizer that steps after a backward pass; -1: none does. */
static int stepped_after(const sonde_program *program, int backward)
{
    const sonde_program_event *step =
        backward >= 0
            ? sonde__builtin_walk_event(program, (size_t)backward, SONDE_EVENT_STEP)
            : NULL;

    return step != NULL ? step->optimizer : -1;
}

/* Whether a layer that an optimizer trains makes the predictions of a loss. */
static bool makes(const sonde_program *program, const sonde_program_loss *loss,
                  int optimizer)
{
    int value = loss->predictions;
    const sonde_program_node *layer = sonde__builtin_walk_up(program, &value, THROUGH);
    const int weight = layer != NULL && sonde__builtin_walk_is(layer->op, LAYERS)
                           ? sonde__builtin_walk_operand(layer, 1)
                           : -1;
    const int parameter = weight >= 0 ? program->values[weight].parameter : -1;

    return parameter >= 0 && program->parameters[parameter].optimizer == optimizer;
}

/* What is known of the targets of a loss, if it is judged; NULL: nothing. */
static const constant_memory *targets_of(sonde_rule_run *run,
                                         const sonde_program *program,
                                         const sonde_program_loss *loss)
{
    if (loss->node < 0 || loss->predictions < 0 || loss->targets < 0 ||
        !sonde__builtin_walk_is(program->nodes[loss->node].op, JUDGED)) {
        return NULL;
    }
    SONDE__EACH_OF (run, t, TARGETS) {
        if (strcmp(sonde_rule_info(run, t->id)->name,
                   program->values[loss->targets].tensor) == 0) {
            const constant_memory *memory = t->memory;

            return memory->times > 0 ? memory : NULL;
        }
    }
    return NULL;
}

/* The losses of an optimizer, whose targets are all one number. */
static void judge_optimizer(sonde_rule_run *run, const sonde_program *program,
                            int optimizer)
{
    const constant *state = sonde_rule_state(run);
    const sonde_program_loss *last = NULL;
    int64_t count = 0, losses = 0;
    double value = 0.0;

    for (size_t i = 0; i < program->loss_count; i++) {
        const sonde_program_loss *loss = &program->losses[i];

        if (stepped_after(program, loss->backward) != optimizer) {
            continue;
        }
        const constant_memory *memory = targets_of(run, program, loss);
        if (memory == NULL || memory->varies || memory->times < TIMES ||
            !makes(program, loss, optimizer) ||
            (last != NULL && memory->value != value)) {
            return;
        }
        value = memory->value;
        count += memory->count;
        last = loss;
        losses++;
    }
    if (last == NULL || count < state->samples) {
        return;
    }
    sonde__builtin_text line;
    const sonde_program_node *node = &program->nodes[last->node];
    if (sonde_rule_found_at(
            run, sonde__builtin_walk_tensor(program, last->targets, last->value),
            node->place, SONDE_SEVERITY_WARNING, "targets", value, 0.0)) {
        sonde_rule_say(
            run, "Check the targets: they must tell samples apart.",
            "All %lld targets of %s%s%s are %.6g: %s learns to answer so whatever the "
            "input is.",
            (long long)count, node->op,
            sonde__builtin_walk_line(program, node->place, &line),
            losses > 1 ? " and of the other losses of this optimizer" : "", value,
            losses > 1 ? "what it trains" : "the network");
    }
}

static void judge_targets(sonde_rule_run *run)
{
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);
    bool any = false;

    SONDE__EACH_SEEN (run, t, TARGETS) {
        any = holds(t) || any;
    }
    for (size_t i = 0; any && program != NULL && i < program->optimizer_count; i++) {
        judge_optimizer(run, program, (int)i);
    }
}

static void step(sonde_rule_run *run)
{
    judge_inputs(run);
    judge_targets(run);
}

const sonde_rule sonde__builtin_constant_data = {
    SONDE__RULE("ConstantData", constant),
    .summary = "all inputs are one number, or all targets are",
    .condition =
        "Either (1) all inputs of a training step are one number, the same at `patience` observed steps in a row, or "
        "(2) all floating-point targets of the losses that train a network are one number, over `samples` of them. (2) is a warning.",
    .advice = "Check how the data are read.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(constant_memory),
    .wants = wants,
    .step = step,
};
