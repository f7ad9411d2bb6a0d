/* program_walk.c - see program_walk.h. */
#include "rules/builtin/program_walk.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

bool sonde__builtin_walk_is(const char *word, const char *words)
{
    const size_t length = strlen(word);

    for (const char *next = words; length > 0 && *next != '\0';) {
        const size_t span = strcspn(next, " ");

        if (span == length && strncmp(next, word, length) == 0) {
            return true;
        }
        next += span + (next[span] == ' ');
    }
    return false;
}

/* --- upward ------------------------------------------------------------------------- */

int sonde__builtin_walk_operand(const sonde_program_node *node, size_t i)
{
    return i < node->input_count ? node->inputs[i] : -1;
}

int sonde__builtin_walk_first(const sonde_program_node *node)
{
    for (size_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] >= 0) {
            return node->inputs[i];
        }
    }
    return -1;
}

const sonde_program_node *sonde__builtin_walk_maker(const sonde_program *program,
                                                    int value)
{
    const int node = value >= 0 ? program->values[value].node : -1;

    return node >= 0 ? &program->nodes[node] : NULL;
}

const sonde_program_node *sonde__builtin_walk_up(const sonde_program *program, int *value,
                                                 const char *through)
{
    const sonde_program_node *maker = sonde__builtin_walk_maker(program, *value);

    for (size_t left = program->node_count; maker != NULL && left > 0; left--) {
        const int before = sonde__builtin_walk_first(maker);

        if (before < 0 || !sonde__builtin_walk_is(maker->op, through)) {
            break;
        }
        *value = before;
        maker = sonde__builtin_walk_maker(program, before);
    }
    return maker;
}

bool sonde__builtin_walk_same_shape(const sonde_program_value *a,
                                    const sonde_program_value *b)
{
    return a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

int sonde__builtin_walk_dim(const sonde_program_node *node, int rank)
{
    const double dim = sonde_attribute_number(node->attributes, "dim", (double)rank);

    return dim >= 0.0 && dim < (double)rank    ? (int)dim
           : dim < 0.0 && dim >= -(double)rank ? (int)dim + rank
                                               : -1;
}

/* --- marks -------------------------------------------------------------------------- */

bool *sonde__builtin_walk_marks(sonde_rule_run *run, const sonde_program *program)
{
    bool *marks = sonde__calloc(program->value_count + 1, sizeof *marks);

    if (marks == NULL) {
        sonde_rule_fail(run, "out of memory");
    }
    return marks;
}

static bool any_marked(const bool *marks, const int *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (values[i] >= 0 && marks[values[i]]) {
            return true;
        }
    }
    return false;
}

void sonde__builtin_walk_above(const sonde_program *program, bool *marks,
                               bool by_gradient)
{
    for (size_t i = program->node_count; i-- > 0;) {
        const sonde_program_node *node = &program->nodes[i];

        if (any_marked(marks, node->outputs, node->output_count)) {
            for (size_t k = 0; k < node->input_count; k++) {
                const int value = node->inputs[k];

                if (value >= 0) {
                    marks[value] = marks[value] || !by_gradient ||
                                   program->values[value].requires_grad;
                }
            }
        }
    }
}

void sonde__builtin_walk_below(const sonde_program *program, bool *marks,
                               bool by_gradient)
{
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (any_marked(marks, node->inputs, node->input_count)) {
            for (size_t k = 0; k < node->output_count; k++) {
                const int value = node->outputs[k];

                marks[value] =
                    marks[value] || !by_gradient || program->values[value].requires_grad;
            }
        }
    }
}

bool sonde__builtin_walk_objectives(const sonde_program *program, bool *marks)
{
    bool any = false;

    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];

        if (event->kind == SONDE_EVENT_BACKWARD && event->value >= 0) {
            marks[event->value] = any = true;
        }
    }
    for (size_t i = 0; i < program->loss_count && !any; i++) {
        const int value = program->losses[i].value;

        if (value >= 0 && program->values[value].requires_grad) {
            marks[value] = true;
        }
    }
    for (size_t i = 0; i < program->value_count && !any; i++) {
        any = marks[i];
    }
    return any;
}

/* --- events ------------------------------------------------------------------------- */

const sonde_program_event *sonde__builtin_walk_event(const sonde_program *program,
                                                     size_t i, sonde_event_kind kind)
{
    for (; i < program->event_count; i++) {
        if (program->events[i].kind == kind) {
            return &program->events[i];
        }
    }
    return NULL;
}

bool sonde__builtin_walk_clears(const sonde_program *program,
                                const sonde_program_event *event, int optimizer,
                                bool by_model)
{
    return event->kind == SONDE_EVENT_ZERO_GRAD &&
           (event->optimizer == optimizer ||
            (event->optimizer < 0 && (by_model || program->optimizer_count == 1)));
}

bool sonde__builtin_walk_calls_back(const sonde_program *program)
{
    for (size_t i = 0; i < program->optimizer_count; i++) {
        if (strcmp(program->optimizers[i].kind, "LBFGS") == 0 ||
            strstr(program->optimizers[i].kind, "SAM") != NULL) {
            return true;
        }
    }
    return false;
}

bool sonde__builtin_walk_is_said(sonde_place *said, sonde_place place)
{
    const bool is = said->file != NULL && place.line > 0 && said->line == place.line &&
                    strcmp(said->file, place.file) == 0;

    *said = place;
    return is;
}

/* --- texts -------------------------------------------------------------------------- */

const char *sonde__builtin_walk_line(const sonde_program *program, sonde_place place,
                                     sonde__builtin_text *text)
{
    char line[SONDE__WALK_TEXT - 4];

    text->text[0] = '\0';
    if (sonde_program_place_text(program, place, line, sizeof line)[0] != '\0') {
        (void)snprintf(text->text, sizeof text->text, " at %s", line);
    }
    return text->text;
}

const char *sonde__builtin_walk_shape(const sonde_program *program, int value,
                                      sonde__builtin_text *text)
{
    const sonde_program_value *row = &program->values[value];

    return sonde_shape_text(row->rank, row->shape, text->text, sizeof text->text);
}

const char *sonde__builtin_walk_tensor(const sonde_program *program, int value,
                                       int otherwise)
{
    for (size_t left = program->node_count + 1; value >= 0 && left > 0; left--) {
        const sonde_program_node *maker = sonde__builtin_walk_maker(program, value);

        if (program->values[value].tensor[0] != '\0') {
            return program->values[value].tensor;
        }
        value = maker != NULL && sonde__builtin_walk_is(maker->op, SONDE__WALK_VIEWS)
                    ? sonde__builtin_walk_first(maker)
                    : -1;
    }
    return otherwise >= 0 ? program->values[otherwise].tensor : "";
}
