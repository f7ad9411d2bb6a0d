/*
 * rule_model_structure.c - ModelStructure: the network is not built as its parts say.
 *
 * Judged is the program of a training step. Fires when
 *     dropped, linear, drawn, kept   what layers make is not used as it should be
 *                               (program_results.c)
 *     built      forward builds a layer each time it is called: its weights are drawn anew
 *                and never trained; or dropout, which eval() does not switch off
 *     repeated   a container holds one layer, which has weights, several times: they share
 *                the weights (a warning)
 *     dropout    drops all values; or nine tenths of them (a note); or those of the
 *                predictions (a warning)
 *     momentum   the statistics of batch norm never change, for their momentum is 0 (a
 *                warning); or they are those of the last batch alone (a note)
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"

#include "base/number.h"

#include <string.h>

#define HIGH 0.9 /* of dropout's p and of a momentum */

typedef struct structure {
    bool shown;
} structure;

static bool is_dropout(const sonde_program_module *module)
{
    return sonde__strcasestr(module->kind, "dropout") != NULL;
}

/* --- built ---------------------------------------------------------------------------- */

/* The first parameter of a module that backward reaches and no optimizer holds. */
static const sonde_program_parameter *find_reached(const sonde_program *program,
                                                   size_t module)
{
    for (size_t i = 0; i < program->parameter_count; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];

        if (parameter->module == (int)module && parameter->reached &&
            parameter->optimizer < 0) {
            return parameter;
        }
    }
    return NULL;
}

static void judge_built(sonde_rule_run *run, const sonde_program *program, size_t i)
{
    const sonde_program_module *module = &program->modules[i];
    const bool drops = is_dropout(module) && module->training &&
                       sonde_attribute_number(module->attributes, "p", 0.5) > 0.0;
    sonde__builtin_text line;

    if (module->registered || !module->called ||
        sonde_attribute_number(module->attributes, "built", 0.0) <= 0.0) {
        return;
    }
    if (find_reached(program, i) != NULL &&
        sonde_rule_found_at(run, "", module->place, SONDE_SEVERITY_ERROR, "built", 1.0,
                            0.0)) {
        sonde_rule_say(
            run, "Build the layer once, in __init__.",
            "forward builds this %.40s%s each time: its weights are drawn anew "
            "at every step, and no optimizer holds them.",
            module->kind, sonde__builtin_walk_line(program, module->place, &line));
    } else if (drops && sonde_rule_found_at(run, "", module->place, SONDE_SEVERITY_ERROR,
                                            "built", 1.0, 0.0)) {
        sonde_rule_say(
            run, "Build it in __init__, or call F.dropout(x, p, self.training).",
            "forward builds this %.40s%s each time, in training mode: eval() of "
            "the model does not switch it off.",
            module->kind, sonde__builtin_walk_line(program, module->place, &line));
    }
}

/* --- repeated ------------------------------------------------------------------------- */

static bool has_parameters(const sonde_program *program, const char *name)
{
    const size_t length = strlen(name);

    for (size_t i = 0; i < program->parameter_count; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];
        const char *owner =
            parameter->module >= 0 ? program->modules[parameter->module].name : "";

        if (strncmp(owner, name, length) == 0 && parameter->requires_grad &&
            parameter->used && (owner[length] == '\0' || owner[length] == '.')) {
            return true;
        }
    }
    return false;
}

static void judge_repeated(sonde_rule_run *run, const sonde_program *program,
                           const sonde_program_module *module)
{
    const double times = sonde_attribute_number(module->attributes, "repeated", 1.0);
    sonde__builtin_text line;

    if (times > 1.0 && module->registered && module->called &&
        has_parameters(program, module->name) &&
        sonde_rule_found_at(run, "", module->place, SONDE_SEVERITY_NOTE, "repeated",
                            times, 1.0)) {
        sonde_rule_say(
            run,
            "Build one for each place: [Layer() for _ in range(n)], not [layer] * n. If "
            "they share weights on purpose, call one layer in a loop.",
            "'%.60s', a %.40s%s, stands %g times in one container: these layers share one "
            "set of weights.",
            module->name, module->kind,
            sonde__builtin_walk_line(program, module->place, &line), times);
    }
}

/* --- settings ------------------------------------------------------------------------- */

static void judge_dropout(sonde_rule_run *run, const sonde_program *program,
                          const sonde_program_node *node)
{
    const double p = sonde_attribute_number(node->attributes, "p", 0.5);
    const char *tensor =
        node->output_count > 0 ? program->values[node->outputs[0]].tensor : "";
    sonde__builtin_text line;

    if (!sonde__builtin_walk_is(node->op, "dropout dropout1d dropout2d dropout3d "
                                          "alpha_dropout feature_alpha_dropout") ||
        sonde_attribute_number(node->attributes, "training", 0.0) <= 0.0 || p < HIGH) {
        return;
    }
    if (sonde_rule_found_at(run, tensor, node->place,
                            p >= 1.0 ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE, "p", p,
                            HIGH)) {
        sonde_rule_say(run, "p is the share that is dropped, not the one that is kept.",
                       "%s%s drops %.4g of all values.", node->op,
                       sonde__builtin_walk_line(program, node->place, &line), p);
    }
}

/* Predictions of which values are dropped. */
static void judge_predictions(sonde_rule_run *run, const sonde_program *program)
{
    sonde__builtin_text line;

    for (size_t i = 0; i < program->loss_count; i++) {
        const sonde_program_loss *loss = &program->losses[i];
        int value = loss->predictions;
        const sonde_program_node *maker =
            sonde__builtin_walk_up(program, &value, SONDE__WALK_VIEWS " to clone");

        if (loss->backward >= 0 && loss->targets >= 0 && maker != NULL &&
            sonde__builtin_walk_is(maker->op, "dropout") && value >= 0 &&
            program->values[value].requires_grad &&
            sonde_attribute_number(maker->attributes, "training", 0.0) > 0.0 &&
            sonde_attribute_number(maker->attributes, "p", 0.5) > 0.0 &&
            sonde_rule_found_at(
                run, program->values[value].tensor, maker->place, SONDE_SEVERITY_WARNING,
                "p", sonde_attribute_number(maker->attributes, "p", 0.5), 0.0)) {
            sonde_rule_say(run, "Put dropout before the last layer.",
                           "%s%s sets predictions to 0 at random: the loss gets them.",
                           maker->op,
                           sonde__builtin_walk_line(program, maker->place, &line));
        }
    }
}

static void judge_momentum(sonde_rule_run *run, const sonde_program *program,
                           const sonde_program_node *node, sonde_place *said)
{
    const sonde_program_module *module =
        node->module >= 0 ? &program->modules[node->module] : NULL;
    sonde__builtin_text line;

    if (module == NULL || !sonde__builtin_walk_is(node->op, "batch_norm") ||
        !module->training || node->output_count == 0 ||
        sonde_attribute_number(module->attributes, "track_running_stats", 0.0) <= 0.0) {
        return;
    }
    const double momentum =
        sonde_attribute_number(module->attributes, "momentum", (double)NAN);
    const bool none = momentum <= 0.0;
    if ((none || momentum >= HIGH) && !sonde__builtin_walk_is_said(said, node->place) &&
        sonde_rule_found_at(run, program->values[node->outputs[0]].tensor, node->place,
                            none ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_NOTE,
                            "momentum", momentum, none ? 0.0 : HIGH)) {
        sonde_rule_say(run,
                       "PyTorch's momentum is the share of the new batch: 0.1 is usual, "
                       "which other libraries write as 0.9.",
                       none ? "The momentum of %s '%.60s'%s is 0: its statistics, which "
                              "evaluation uses, never change."
                            : "The momentum of %s '%.60s'%s makes its statistics, which "
                              "evaluation uses, those of the last batch.",
                       module->kind, module->name,
                       sonde__builtin_walk_line(program, node->place, &line));
    }
}

/* --- the rule ------------------------------------------------------------------------- */

static void judge(sonde_rule_run *run, const sonde_program *program)
{
    structure *state = sonde_rule_state(run);
    sonde_place said = {NULL, 0};

    if (!sonde__builtin_walk_trains(program) ||
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_BACKWARD) == NULL) {
        return;
    }
    state->shown = true;
    for (size_t i = 0; i < program->module_count; i++) {
        judge_built(run, program, i);
        judge_repeated(run, program, &program->modules[i]);
    }
    for (size_t i = 0; i < program->node_count; i++) {
        judge_dropout(run, program, &program->nodes[i]);
        judge_momentum(run, program, &program->nodes[i], &said);
    }
    judge_predictions(run, program);
    if (program->complete) {
        sonde__builtin_results_program(run, program);
    }
}

static void finish(sonde_rule_run *run)
{
    const structure *state = sonde_rule_state(run);

    if (!state->shown) {
        sonde_rule_lacked(run, "the run has no program of a training step");
    }
}

const sonde_rule sonde__builtin_model_structure = {
    .abi = SONDE_RULE_ABI,
    .name = "ModelStructure",
    .summary = "layers are not built or connected as they seem to be meant",
    .condition =
        "In the program of a training step, one of these holds: (1) nothing reads what an activation, dropout, a normalization or a block makes, and what it was given goes on in its place; "
        "(2) a linear layer or convolution reads the result of another one with no activation between, and the module that has both has an activation that is never called, or all layers of a network, three or more, are like that; "
        "(3) random numbers of the shape or the distribution that an encoder gives go into a layer in place of its result, which no layer reads; "
        "(4) forward builds a layer with weights, or dropout in training mode, each time; (5) a container holds one layer with weights several times; "
        "(6) dropout drops all values, or those of the predictions; (7) the momentum of batch norm is 0; (8) a recurrent cell is called several times with one state. (2), (5), dropped predictions and (7) are warnings. "
        "Dropout of 0.9 or more and a momentum of 0.9 or more are notes.",
    .advice = "Compare what forward calls with what __init__ builds.",
    .modes = SONDE__TRAIN,
    .state_size = sizeof(structure),
    .finish = finish,
    .program = judge,
};
