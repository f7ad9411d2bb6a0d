/*
 * program_modes.c - TrainEvalMode and EvalNondeterminism, by the program: in which mode
 * the model and its layers are called, and what their calls are for.
 *
 *     training     an optimizer steps on gradients of a forward pass in evaluation mode,
 *                  and the model has dropout or batch norm. (Adversarial examples, saliency
 *                  and pictures that are optimized need such gradients too, but no
 *                  optimizer of the model's parameters.)
 *     evaluation   a forward pass without gradients, of which a loss or predicted classes
 *                  are taken, runs in training mode, and the model has dropout or batch norm
 *     functional   a forward pass in evaluation mode calls dropout as a function that does
 *                  not know the mode
 */
#include "rules/builtin/program_walk.h"
#include "rules/context.h"

#include "base/number.h"

#include <string.h>

/* A layer that does something else in training than in evaluation. */
static bool has_modes(const sonde_program_module *module)
{
    if (sonde__strcasestr(module->kind, "dropout") != NULL) {
        return sonde_attribute_number(module->attributes, "p", 0.0) > 0.0;
    }
    return sonde__strcasestr(module->kind, "batchnorm") != NULL;
}

/* The first layer with modes that is in that mode, and was called or, idle, need not have
 * been; *count: all of them. */
static const sonde_program_module *find_layer(const sonde_program *program, bool training,
                                              bool idle, size_t *count)
{
    const sonde_program_module *found = NULL;

    *count = 0;
    for (size_t i = 0; i < program->module_count; i++) {
        const sonde_program_module *module = &program->modules[i];

        if (has_modes(module) && module->registered && module->training == training &&
            (idle || module->called)) {
            found = found != NULL ? found : module;
            ++*count;
        }
    }
    return found;
}

static const char *output_of(const sonde_program *program,
                             const sonde_program_module *module,
                             char tensor[SONDE__WALK_TEXT])
{
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->module >= 0 && &program->modules[node->module] == module &&
            node->output_count > 0 &&
            program->values[node->outputs[0]].tensor[0] != '\0') {
            return program->values[node->outputs[0]].tensor;
        }
    }
    (void)sonde__snprintf(tensor, SONDE__WALK_TEXT, "%.80s_output_0", module->name);
    return tensor;
}

/* --- training in evaluation mode ------------------------------------------------------ */

/* The forward pass in evaluation mode with gradients, if there is one and the same root is
 * not called in training mode too. */
static const sonde_program_event *find_pass(const sonde_program *program)
{
    const sonde_program_event *found = NULL;

    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];

        if (event->kind == SONDE_EVENT_FORWARD && event->training) {
            return NULL;
        }
        if (event->kind == SONDE_EVENT_FORWARD && event->grad && found == NULL) {
            found = event;
        }
    }
    return found;
}

static bool has_trained(const sonde_program *program, bool idle)
{
    for (size_t i = 0; i < program->parameter_count; i++) {
        if (program->parameters[i].optimizer >= 0 &&
            (idle || program->parameters[i].used)) {
            return true;
        }
    }
    return false;
}

/* The pass of evaluation whose gradients a step of training takes: it has no forward pass
 * of its own, and the model is in evaluation mode. NULL: it is not so. */
static const sonde_program_event *find_evaluation(const sonde_program *program)
{
    const sonde_program_event *event = NULL;

    if (program->node_count > 0 || !program->complete || program->module_count == 0 ||
        program->modules[0].training ||
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_FORWARD) != NULL) {
        return NULL;
    }
    for (size_t i = 0; i < program->event_count; i++) {
        if (program->events[i].kind == SONDE_EVENT_EVALUATION &&
            program->events[i].grad) {
            event = &program->events[i];
        } else if (program->events[i].kind == SONDE_EVENT_BATCH && event != NULL) {
            /* an evaluation that needs no gradients, and keeps them: that of the step came
             * after it */
            return sonde__builtin_walk_event(program, i, SONDE_EVENT_STEP);
        }
    }
    return event;
}

static void judge_training(sonde_rule_run *run, const sonde_program *program)
{
    const sonde_program_event *evaluation = find_evaluation(program);
    const bool idle = evaluation != NULL;
    const sonde_program_event *pass = idle ? evaluation : find_pass(program);
    const sonde_program_event *step =
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_STEP);
    size_t count = 0;
    const sonde_program_module *layer = find_layer(program, false, idle, &count);
    char tensor[SONDE__WALK_TEXT];
    sonde__builtin_text forward, stepped;

    if (pass == NULL || step == NULL || layer == NULL || !has_trained(program, idle)) {
        return;
    }
    if (sonde_rule_found_at(run, output_of(program, layer, tensor), pass->place,
                            SONDE_SEVERITY_ERROR, "layers", (double)count, 0.0)) {
        sonde_rule_say(
            run, "Call the model's train() before training, and again after evaluation.",
            "The model is called in evaluation mode%s, and %s%s updates it by the gradients "
            "of that: %s '%.60s'%s not do what it does in training.",
            sonde__builtin_walk_line(
                program, pass != step ? pass->place : (sonde_place){"", 0}, &forward),
            step->optimizer >= 0 ? program->optimizers[step->optimizer].kind
                                 : "the optimizer",
            sonde__builtin_walk_line(program, step->place, &stepped), layer->kind,
            layer->name, count > 1 ? " and others do" : " does");
    }
}

/* --- evaluation in training mode ------------------------------------------------------ */

/* Whether what the model returns is measured: a loss, or predicted classes. */
static bool is_measured(const sonde_program *program)
{
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->module < 0 && sonde__builtin_walk_is(node->op, "argmax topk eq")) {
            return true;
        }
    }
    return program->loss_count > 0;
}

static void judge_evaluation(sonde_rule_run *run, const sonde_program *program)
{
    const sonde_program_event *pass =
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_FORWARD);
    size_t count = 0;
    const sonde_program_module *layer = find_layer(program, true, false, &count);
    char tensor[SONDE__WALK_TEXT];
    sonde__builtin_text line;

    if (pass == NULL || !pass->training || pass->grad || layer == NULL ||
        !is_measured(program)) {
        return;
    }
    if (sonde_rule_found_at(run, output_of(program, layer, tensor), pass->place,
                            SONDE_SEVERITY_ERROR, "layers", (double)count, 0.0)) {
        const bool drops = sonde__strcasestr(layer->kind, "dropout") != NULL;

        sonde_rule_say(
            run, "Call the model's eval() before evaluation, and train() after it.",
            "The model is evaluated in training mode%s: %s '%.60s'%s still %s.",
            sonde__builtin_walk_line(program, pass->place, &line), layer->kind,
            layer->name, count > 1 ? " and others" : "",
            drops ? "drops values at random"
                  : "normalizes by the batch and learns its statistics");
    }
}

void sonde__builtin_mode_program(sonde_rule_run *run, const sonde_program *program)
{
    if (sonde__builtin_walk_trains(program)) {
        judge_training(run, program);
    } else {
        judge_evaluation(run, program);
    }
}

/* --- functional dropout --------------------------------------------------------------- */

/* Whether an operation drops values although the layer that calls it is in evaluation. */
static bool drops(const sonde_program *program, const sonde_program_node *node)
{
    const sonde_program_module *module =
        node->module >= 0 ? &program->modules[node->module] : NULL;
    const bool layer =
        module != NULL && sonde__strcasestr(module->kind, "dropout") != NULL;

    if (layer && module->training) {
        return false; /* switched on by itself: many samples of one prediction */
    }
    if (sonde__builtin_walk_is(node->op, "dropout dropout1d dropout2d dropout3d "
                                         "alpha_dropout feature_alpha_dropout")) {
        return sonde_attribute_number(node->attributes, "training", 0.0) > 0.0 &&
               sonde_attribute_number(node->attributes, "p", 0.5) > 0.0;
    }
    return sonde__builtin_walk_is(node->op, "scaled_dot_product_attention") &&
           sonde_attribute_number(node->attributes, "dropout_p", 0.0) > 0.0;
}

void sonde__builtin_eval_program(sonde_rule_run *run, const sonde_program *program)
{
    const sonde_program_event *pass =
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_FORWARD);

    if (sonde__builtin_walk_trains(program) || pass == NULL || pass->training) {
        return;
    }
    sonde__rule_judged_program(run);
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        const bool attention =
            sonde__builtin_walk_is(node->op, "scaled_dot_product_attention");
        sonde__builtin_text line;

        if (node->output_count > 0 && drops(program, node) &&
            sonde_rule_found_at(run, program->values[node->outputs[0]].tensor,
                                node->place, SONDE_SEVERITY_ERROR, "p",
                                sonde_attribute_number(
                                    node->attributes, attention ? "dropout_p" : "p", 0.5),
                                0.0)) {
            sonde_rule_say(
                run,
                attention ? "Pass dropout_p=p if self.training else 0.0."
                          : "Pass training=self.training, or use nn.Dropout.",
                "%s%s drops values although the model is in evaluation mode: as "
                "a function it does not know the mode.",
                node->op, sonde__builtin_walk_line(program, node->place, &line));
        }
    }
}
