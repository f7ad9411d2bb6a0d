/*
 * frozen_program.c - FrozenParameter, by the program of a training step: which parameters
 * an optimizer holds, which ones the operations read, and which ones backward reaches.
 *
 *     not held      backward reaches parameters that no optimizer holds, of layers that the
 *                   model does not know (kept in a plain list), or that are used after some
 *                   that are held. Where a majority is not held, or only the first layers
 *                   are not, this may be meant; unless they are a whole model and there is
 *                   an optimizer for each, or backward reaches none that are held
 *     not reached   an optimizer steps, and backward reaches none of its parameters
 *     cut off       a parameter that an optimizer holds is used, and its way to the loss
 *                   has an operation that passes no gradient (detach, no_grad)
 *     not used      no operation reads a parameter that an optimizer holds
 *     no loss       operations of the user's own read it, and the graph of no loss has it
 *     lost          a weight never had a gradient, and the bias of the same layer has one: what
 *                   backward computes does not arrive
 *
 * What the graph does not show (custom functions, gradients that are set by hand) the
 * gradients do: the last five are reported where no gradient was seen, at once, after CUT
 * and, the last three, after UNUSED looks.
 */
#include "rules/builtin/frozen.h"
#include "rules/builtin/program_walk.h"
#include "rules/context.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { CUT = 3, UNUSED = 20 };

/* The tensor of a parameter; *hint: where to look first, one after the last. */
static sonde__builtin_frozen_memory *memory_of(sonde_rule_run *run, const char *name,
                                               size_t *hint)
{
    const size_t count = sonde__builtin_count(run);

    for (size_t i = 0; i < count; i++) {
        const size_t at = (*hint + i) % count;
        sonde_rule_tensor *t = sonde__builtin_at(run, at);

        if (t->need == SONDE__FROZEN_PARAMETERS &&
            strcmp(sonde_rule_info(run, t->id)->name, name) == 0) {
            *hint = at + 1;
            return t->memory;
        }
    }
    return NULL;
}

const sonde_program_parameter *sonde__builtin_frozen_known(const sonde_rule_run *run,
                                                           const sonde_rule_tensor *t)
{
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);
    const char *name = sonde_rule_info(run, t->id)->name;

    for (size_t i = 0; program != NULL && i < program->parameter_count; i++) {
        if (strcmp(program->parameters[i].name, name) == 0) {
            return &program->parameters[i];
        }
    }
    return NULL;
}

static bool steps(const sonde_program *program, int optimizer)
{
    for (size_t i = 0; i < program->event_count; i++) {
        if (program->events[i].kind == SONDE_EVENT_STEP &&
            program->events[i].optimizer == optimizer) {
            return true;
        }
    }
    return false;
}

static bool is_registered(const sonde_program *program,
                          const sonde_program_parameter *parameter)
{
    return parameter->module < 0 || program->modules[parameter->module].registered;
}

/* --- not held ------------------------------------------------------------------------- */

/* Position of the first operation that reads each parameter; node_count: none. */
static size_t *first_reads(sonde_rule_run *run, const sonde_program *program)
{
    size_t *reads = sonde__calloc(program->parameter_count + 1, sizeof *reads);

    if (reads == NULL) {
        sonde_rule_fail(run, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < program->parameter_count; i++) {
        reads[i] = program->node_count;
    }
    for (size_t i = program->node_count; i-- > 0;) {
        for (size_t k = 0; k < program->nodes[i].input_count; k++) {
            const int value = program->nodes[i].inputs[k];

            if (value >= 0 && program->values[value].parameter >= 0) {
                reads[program->values[value].parameter] = i;
            }
        }
    }
    return reads;
}

/* Parameters that backward reaches and no optimizer holds. */
typedef struct unheld {
    const sonde_program_parameter *first;
    size_t count;
    int64_t elements;
} unheld;

static void add(unheld *to, const sonde_program_parameter *parameter)
{
    to->first = to->first != NULL ? to->first : parameter;
    to->count++;
    to->elements += parameter->count;
}

/* Whether a layer that the model does not know is kept by one that it knows, which calls it: its
 * name is the path to it. One that forward builds has the name of its kind (ModelStructure); a
 * model of its own, a copy for targets, say, is called by none. */
static bool is_kept_aside(const sonde_program *program,
                          const sonde_program_parameter *parameter)
{
    const sonde_program_module *module = &program->modules[parameter->module];

    return strcmp(module->name, module->kind) != 0 && module->called &&
           sonde_attribute_number(module->attributes, "within", 0.0) > 0.0 &&
           sonde_attribute_number(module->attributes, "built", 0.0) <= 0.0;
}

/* Why parameters are not held. */
typedef enum reason { ASIDE, LATE, LEFT, STILL, PLAYER, INSTEAD } reason;

static void report_unheld(sonde_rule_run *run, const sonde_program *program,
                          const unheld *them, reason why, sonde_severity severity)
{
    static const struct {
        const char *before, *after;
    } texts[] = {
        [ASIDE] = {"no optimizer holds", ": the model does not know the layer, which a "
                                         "plain list, dictionary or attribute keeps"},
        [LATE] = {"no optimizer holds", ": no step changes what is used here, unlike "
                                        "those used before and after"},
        [LEFT] = {"no optimizer holds", " any more"},
        [STILL] = {"no step changes",
                   ": the optimizer that holds this has never stepped"},
        [PLAYER] = {"no optimizer holds", ": all optimizers hold parameters of others"},
        [INSTEAD] = {"no optimizer holds",
                     ", and no gradient reaches what the optimizers hold"}};
    const sonde_program_parameter *first = them->first;
    char others[64] = "";

    if (them->count > 1) {
        (void)snprintf(others, sizeof others, " and %zu other parameter%s",
                       them->count - 1, them->count > 2 ? "s" : "");
    }
    if (sonde_rule_found_at(run, first->name,
                            sonde_program_place_of(program, first->name), severity,
                            "parameters", (double)them->count, 0.0)) {
        sonde_rule_say(
            run,
            why == ASIDE ? "Keep the layers in nn.ModuleList or nn.ModuleDict, and build "
                           "the optimizer after them."
            : why == STILL
                ? "Call the step of this optimizer after each backward pass."
                : "Give the optimizer these parameters: build it after the last "
                  "change of the model.",
            "A gradient reaches it%s (%lld elements), but %s %s%s.", others,
            (long long)them->elements, texts[why].before, them->count > 1 ? "them" : "it",
            texts[why].after);
    }
}

static bool is_unheld(const sonde_program_parameter *parameter)
{
    return parameter->optimizer < 0 && parameter->requires_grad && parameter->reached &&
           parameter->used;
}

/* Whether a module is a whole model, one of several. */
static bool is_player(const sonde_program_module *module)
{
    return module->registered && module->name[0] != '\0' &&
           strchr(module->name, '.') == NULL;
}

static bool is_within(const sonde_program *program,
                      const sonde_program_parameter *parameter,
                      const sonde_program_module *player)
{
    const char *name =
        parameter->module >= 0 ? program->modules[parameter->module].name : "";
    const size_t length = strlen(player->name);

    return strncmp(name, player->name, length) == 0 &&
           (name[length] == '\0' || name[length] == '.');
}

/* A whole model of several, of which no optimizer holds a parameter. */
static void judge_player(sonde_rule_run *run, const sonde_program *program,
                         const sonde_program_module *player)
{
    unheld all = {0};

    for (size_t i = 0; i < program->parameter_count; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];

        if (is_within(program, parameter, player)) {
            if (!is_unheld(parameter)) {
                return;
            }
            add(&all, parameter);
        }
    }
    if (all.count > 0) {
        report_unheld(run, program, &all, PLAYER, SONDE_SEVERITY_ERROR);
    }
}

static void judge_players(sonde_rule_run *run, const sonde_program *program)
{
    size_t players = 0;

    for (size_t i = 0; i < program->module_count; i++) {
        if (program->modules[i].registered && program->modules[i].name[0] == '\0') {
            return;
        }
        players += is_player(&program->modules[i]);
    }
    for (size_t i = 0;
         i < program->module_count && players > 1 && program->optimizer_count >= players;
         i++) {
        if (is_player(&program->modules[i])) {
            judge_player(run, program, &program->modules[i]);
        }
    }
}

/* Parameters that a gradient reaches and no optimizer holds, while what is held has none. */
static void judge_instead(sonde_rule_run *run, const sonde_program *program)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);
    unheld all = {0};
    size_t held = 0, hint = 0;

    for (size_t i = 0; i < program->parameter_count; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];
        const sonde__builtin_frozen_memory *memory =
            memory_of(run, parameter->name, &hint);

        if (is_unheld(parameter) && is_registered(program, parameter)) {
            add(&all, parameter);
        } else if (parameter->optimizer >= 0) {
            if (parameter->reached || (memory != NULL && memory->pulled)) {
                return;
            }
            held += steps(program, parameter->optimizer);
        }
    }
    if (held > 0 && all.count > 0) {
        state->explained = true;
        report_unheld(run, program, &all, INSTEAD, SONDE_SEVERITY_ERROR);
    }
}

/* Notes which parameters optimizers hold, and which of these step. */
static void note_holders(sonde_rule_run *run, const sonde_program *program)
{
    size_t hint = 0;

    for (size_t i = 0; i < program->parameter_count; i++) {
        const int optimizer = program->parameters[i].optimizer;
        sonde__builtin_frozen_memory *memory =
            optimizer >= 0 ? memory_of(run, program->parameters[i].name, &hint) : NULL;

        if (memory != NULL) {
            memory->held = true;
            memory->stepped = memory->stepped || steps(program, optimizer);
        }
    }
}

static int64_t find_held(const sonde_program *program, const size_t *reads, size_t *first)
{
    int64_t held = 0;

    *first = program->node_count;
    for (size_t i = 0; i < program->parameter_count; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];

        if (parameter->optimizer >= 0 && parameter->reached) {
            held += parameter->count;
            *first = reads[i] < *first ? reads[i] : *first;
        }
    }
    return held;
}

static void judge_unheld(sonde_rule_run *run, const sonde_program *program,
                         const size_t *reads)
{
    size_t first_held, hint = 0;
    unheld aside = {0}, late = {0};
    const int64_t held = find_held(program, reads, &first_held);
    reason why = LATE;

    for (size_t i = 0; i < program->parameter_count && held > 0; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];

        if (parameter->optimizer >= 0 || !parameter->requires_grad ||
            !parameter->reached || reads[i] == program->node_count) {
            continue;
        }
        if (!is_registered(program, parameter)) {
            if (is_kept_aside(program, parameter)) {
                add(&aside, parameter);
            }
        } else if (reads[i] > first_held) {
            sonde__builtin_frozen_memory *memory = memory_of(run, parameter->name, &hint);

            add(&late, parameter);
            if (memory != NULL) {
                memory->told = true;
                why = !memory->held ? why : memory->stepped ? LEFT : STILL;
            }
        }
    }
    if (aside.count > 0) {
        report_unheld(run, program, &aside, ASIDE, SONDE_SEVERITY_ERROR);
    }
    if (late.count > 0) {
        report_unheld(run, program, &late, why,
                      late.elements > held && why == LATE ? SONDE_SEVERITY_NOTE
                                                          : SONDE_SEVERITY_ERROR);
    }
}

void sonde__builtin_frozen_program(sonde_rule_run *run, const sonde_program *program)
{
    if (!sonde__builtin_walk_trains(program) || program->optimizer_count == 0 ||
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_STEP) == NULL ||
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_BACKWARD) == NULL) {
        return;
    }
    sonde__rule_judged_program(run);
    note_holders(run, program);
    size_t *reads = first_reads(run, program);
    if (reads != NULL) {
        judge_unheld(run, program, reads);
        judge_players(run, program);
    }
    sonde__free(reads);
}

/* --- not reached ---------------------------------------------------------------------- */

/* Whether no gradient is known of a parameter. memory: of its tensor; may be NULL. */
static bool is_missed(const sonde_program_parameter *parameter,
                      const sonde__builtin_frozen_memory *memory)
{
    return parameter->requires_grad && !parameter->reached &&
           (memory == NULL || !memory->pulled);
}

static void judge_optimizer(sonde_rule_run *run, const sonde_program *program,
                            int optimizer)
{
    const sonde_program_event *backward =
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_BACKWARD);
    const sonde_program_parameter *first = NULL;
    size_t count = 0, hint = 0;
    sonde__builtin_text line;

    for (size_t i = 0; i < program->parameter_count; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];

        if (parameter->optimizer == optimizer) {
            if (!is_missed(parameter, memory_of(run, parameter->name, &hint))) {
                return;
            }
            first = first != NULL ? first : parameter;
            count++;
        }
    }
    if (first == NULL || backward == NULL || !steps(program, optimizer)) {
        return;
    }
    if (sonde_rule_found_at(run, first->name, backward->place, SONDE_SEVERITY_ERROR,
                            "parameters_reached", 0.0, 1.0)) {
        sonde_rule_say(
            run,
            "Check that the loss is computed from the model's outputs, and that nothing "
            "(detach, item, numpy, no_grad) cuts them off.",
            "Backward%s reaches none of the %zu parameters that %s '%.40s' holds: its steps "
            "change nothing.",
            sonde__builtin_walk_line(program, backward->place, &line), count,
            program->optimizers[optimizer].kind, program->optimizers[optimizer].name);
    }
    hint = 0;
    for (size_t i = 0; i < program->parameter_count; i++) {
        sonde__builtin_frozen_memory *memory =
            program->parameters[i].optimizer == optimizer
                ? memory_of(run, program->parameters[i].name, &hint)
                : NULL;

        if (memory != NULL) {
            memory->told = true;
        }
    }
}

/* --- cut off -------------------------------------------------------------------------- */

/* The operation on the way from a parameter to the objectives that passes no gradient on;
 * NULL: there is no such way, or not found. below, above: room for marks. */
static const sonde_program_node *find_cut(const sonde_program *program, int parameter,
                                          bool *below, const bool *above)
{
    memset(below, 0, program->value_count * sizeof *below);
    for (size_t i = 0; i < program->value_count; i++) {
        below[i] = program->values[i].parameter == parameter;
    }
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        bool flows = false;

        for (size_t k = 0; k < node->input_count; k++) {
            flows = flows || (node->inputs[k] >= 0 && below[node->inputs[k]]);
        }
        for (size_t k = 0; k < node->output_count && flows; k++) {
            const sonde_program_value *value = &program->values[node->outputs[k]];

            if (above[node->outputs[k]] && !value->requires_grad &&
                sonde_dtype_is_float(value->dtype)) {
                return node;
            }
            below[node->outputs[k]] = value->requires_grad;
        }
    }
    return NULL;
}

static void report_cut(sonde_rule_run *run, const sonde_program *program,
                       const sonde_program_parameter *first, size_t count,
                       const sonde_program_node *cut)
{
    const bool detach = sonde__builtin_walk_is(cut->op, "detach");
    const bool sure = detach && program->optimizer_count == 1; /* no other player's */
    char others[64] = "";
    sonde__builtin_text line;

    if (count > 1) {
        (void)snprintf(others, sizeof others, " and %zu other parameter%s", count - 1,
                       count > 2 ? "s" : "");
    }
    if (sonde_rule_found_at(run, first->name, cut->place,
                            sure ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_WARNING,
                            "parameters_reached", 0.0, 1.0)) {
        sonde_rule_say(
            run,
            "Let the gradient pass, or, if this is meant, do not give these "
            "parameters to the optimizer.",
            "An optimizer holds it%s, but no gradient arrives: %s%s%s cuts the "
            "way to the loss.",
            others, cut->op, detach ? "" : " without gradients",
            sonde__builtin_walk_line(program, cut->place, &line));
    }
}

static void judge_cut(sonde_rule_run *run, const sonde_program *program, bool *below,
                      const bool *above)
{
    const sonde_program_parameter *first = NULL;
    const sonde_program_node *cut = NULL;
    size_t count = 0, hint = 0;

    for (size_t i = 0; i < program->parameter_count; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];
        sonde__builtin_frozen_memory *memory = memory_of(run, parameter->name, &hint);

        if (parameter->optimizer < 0 || !parameter->used || memory == NULL ||
            memory->told || !is_missed(parameter, memory) ||
            !steps(program, parameter->optimizer)) {
            continue;
        }
        const sonde_program_node *here = find_cut(program, (int)i, below, above);
        if (here == NULL || (cut != NULL && here != cut)) {
            continue;
        }
        cut = here;
        first = first != NULL ? first : parameter;
        memory->told = true;
        count++;
    }
    if (cut != NULL) {
        report_cut(run, program, first, count, cut);
    }
}

static void judge_cuts(sonde_rule_run *run, const sonde_program *program)
{
    bool *below = sonde__builtin_walk_marks(run, program);
    bool *above = below != NULL ? sonde__builtin_walk_marks(run, program) : NULL;

    if (above != NULL && sonde__builtin_walk_objectives(program, above)) {
        sonde__builtin_walk_above(program, above, false);
        judge_cut(run, program, below, above);
    }
    sonde__free(below);
    sonde__free(above);
}

/* --- not used ------------------------------------------------------------------------- */

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot != NULL ? dot + 1 : name;
}

/* Whether a parameter of that size of another place of the same kind is trained: the layers of
 * an encoder are copies of one, and what is left over of the last of several blocks is not
 * read. */
static bool has_twin(const sonde_program *program,
                     const sonde_program_parameter *parameter)
{
    const sonde_program_module *own =
        parameter->module >= 0 ? &program->modules[parameter->module] : NULL;

    for (size_t i = 0; own != NULL && i < program->parameter_count; i++) {
        const sonde_program_parameter *other = &program->parameters[i];
        const sonde_program_module *module =
            other->module >= 0 ? &program->modules[other->module] : NULL;

        if (module != NULL && other->reached && other->count == parameter->count &&
            strcmp(module->kind, own->kind) == 0 &&
            strcmp(last_part(module->name), last_part(own->name)) == 0) {
            return true;
        }
    }
    return false;
}

static void judge_unused(sonde_rule_run *run, const sonde_program *program)
{
    const sonde_program_parameter *first = NULL;
    size_t count = 0, hint = 0;
    char others[64] = "";

    for (size_t i = 0; i < program->parameter_count; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];
        sonde__builtin_frozen_memory *memory = memory_of(run, parameter->name, &hint);

        if (parameter->optimizer >= 0 && !parameter->used && memory != NULL &&
            !memory->told && is_missed(parameter, memory) &&
            !has_twin(program, parameter)) {
            first = first != NULL ? first : parameter;
            memory->told = true;
            count++;
        }
    }
    if (count > 1) {
        (void)snprintf(others, sizeof others, ", nor %zu other parameter%s", count - 1,
                       count > 2 ? "s" : "");
    }
    if (first != NULL && sonde_rule_found_at(run, first->name, (sonde_place){"", 0},
                                             SONDE_SEVERITY_WARNING, "looks",
                                             (double)UNUSED, (double)UNUSED)) {
        sonde_rule_say(
            run, "Use it in forward, or remove it from the model and the optimizer.",
            "No operation of a training step reads it%s, although an optimizer "
            "holds it: it never had a gradient.",
            others);
    }
}

/* --- no loss -------------------------------------------------------------------------- */

/* Whether the line that reads a parameter is the call of a whole model: the model is of a
 * library, and may have parts that this program does not need. */
static bool is_of_library(const sonde_program *program, sonde_place place)
{
    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];

        if (event->kind == SONDE_EVENT_FORWARD && event->place.line == place.line &&
            strcmp(event->place.file, place.file) == 0) {
            return true;
        }
    }
    return place.line <= 0;
}

static void judge_lossless(sonde_rule_run *run, const sonde_program *program)
{
    const sonde_program_parameter *first = NULL;
    size_t count = 0, hint = 0;
    char others[64] = "";
    sonde__builtin_text line;

    for (size_t i = 0; i < program->parameter_count; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];
        sonde__builtin_frozen_memory *memory = memory_of(run, parameter->name, &hint);

        if (parameter->optimizer >= 0 && parameter->used && memory != NULL &&
            !memory->told && is_missed(parameter, memory) &&
            steps(program, parameter->optimizer) &&
            !is_of_library(program, sonde_program_place_of(program, parameter->name))) {
            first = first != NULL ? first : parameter;
            memory->told = true;
            count++;
        }
    }
    if (count > 1) {
        (void)snprintf(others, sizeof others, " and %zu other parameter%s", count - 1,
                       count > 2 ? "s" : "");
    }
    const sonde_place place = first != NULL ? sonde_program_place_of(program, first->name)
                                            : (sonde_place){"", 0};
    if (first != NULL &&
        sonde_rule_found_at(run, first->name, place,
                            has_twin(program, first) ? SONDE_SEVERITY_NOTE
                                                     : SONDE_SEVERITY_WARNING,
                            "looks", (double)UNUSED, (double)UNUSED)) {
        sonde_rule_say(
            run, "Add what is made of it to the loss, or leave the layer out.",
            "An optimizer holds it%s, and an operation%s reads it, but no loss is made of "
            "the result: it never had a gradient.",
            others, sonde__builtin_walk_line(program, place, &line));
    }
}

/* --- lost ----------------------------------------------------------------------------- */

/* The memory of the bias that an operation reads beside a weight; NULL: it reads none. */
static const sonde__builtin_frozen_memory *
bias_of(sonde_rule_run *run, const sonde_program *program, const sonde_program_node *node)
{
    const int value = sonde__builtin_walk_operand(node, 2);
    const int bias = value >= 0 ? program->values[value].parameter : -1;
    size_t hint = 0;

    return bias >= 0 ? memory_of(run, program->parameters[bias].name, &hint) : NULL;
}

/* Whether values are not all 0, for certain: they are random, or inputs that differ, or a
 * trained layer makes them. */
static bool is_nonzero(sonde_rule_run *run, const sonde_program *program, int value)
{
    size_t hint = 0;

    for (size_t left = program->node_count + 1; value >= 0 && left > 0; left--) {
        const sonde_program_node *maker = sonde__builtin_walk_maker(program, value);
        const int weight = maker != NULL ? sonde__builtin_walk_operand(maker, 1) : -1;
        const int parameter = weight >= 0 ? program->values[weight].parameter : -1;

        if (parameter >= 0) {
            const sonde__builtin_frozen_memory *memory =
                memory_of(run, program->parameters[parameter].name, &hint);

            return memory != NULL && memory->pulled;
        }
        if (maker == NULL) {
            return strcmp(program->values[value].tensor, "input") == 0 &&
                   sonde_attribute_number(program->facts, "input_std", 0.0) > 0.0;
        }
        if (sonde__builtin_walk_is(maker->op, "randn rand randn_like rand_like normal")) {
            return true;
        }
        value = sonde__builtin_walk_first(maker);
    }
    return false;
}

static void judge_lost(sonde_rule_run *run, const sonde_program *program)
{
    size_t hint = 0;
    sonde__builtin_text line;

    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];
        const int value = sonde__builtin_walk_operand(node, 1);
        const int weight = value >= 0 ? program->values[value].parameter : -1;

        if (weight < 0 ||
            !sonde__builtin_walk_is(node->op, "linear conv1d conv2d conv3d") ||
            !program->parameters[weight].reached) {
            continue;
        }
        const char *name = program->parameters[weight].name;
        sonde__builtin_frozen_memory *memory = memory_of(run, name, &hint);
        const sonde__builtin_frozen_memory *bias = bias_of(run, program, node);

        if (memory != NULL && !memory->told && !memory->pulled && bias != NULL &&
            bias->pulled && memory->gradient != SIZE_MAX &&
            is_nonzero(run, program, sonde__builtin_walk_operand(node, 0)) &&
            sonde_rule_found_at(run, name, node->place, SONDE_SEVERITY_ERROR,
                                "steps_without_gradient", (double)UNUSED,
                                (double)UNUSED)) {
            memory->told = true;
            sonde_rule_say(
                run,
                "Look at what changes gradients between backward and the step: "
                "hooks, clipping, sums over processes.",
                "Its gradient has always been exactly 0, but the bias of the "
                "same %s%s has one, and its input is not 0: the gradient that "
                "backward computes is lost.",
                node->op, sonde__builtin_walk_line(program, node->place, &line));
        }
    }
}

/* --- meant ---------------------------------------------------------------------------- */

/* Parameters that need no gradient, and that no optimizer holds, are frozen on purpose. */
static void excuse(sonde_rule_run *run, const sonde_program *program)
{
    size_t hint = 0;

    for (size_t i = 0; i < program->parameter_count; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];
        sonde__builtin_frozen_memory *memory =
            parameter->requires_grad || parameter->optimizer >= 0
                ? NULL
                : memory_of(run, parameter->name, &hint);

        if (memory != NULL) {
            memory->told = true;
        }
    }
}

void sonde__builtin_frozen_judge_program(sonde_rule_run *run)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);

    if (program == NULL || state->looks >= UNUSED) {
        return;
    }
    if (state->looks++ == 0) {
        excuse(run, program);
    }
    if (state->looks == 1) {
        judge_instead(run, program);
    }
    for (int i = 0;
         (size_t)i < program->optimizer_count && state->looks == 1 && !state->explained;
         i++) {
        judge_optimizer(run, program, i);
    }
    if (state->looks == CUT && program->complete) {
        judge_cuts(run, program);
    }
    if (state->looks == UNUSED && program->complete) {
        judge_unused(run, program);
        judge_lossless(run, program);
        judge_lost(run, program);
    }
}
