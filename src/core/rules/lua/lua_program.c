/*
 * lua_program.c - a program (<sonde/program.h>) as tables of a script. The fields are those
 * of the structs; indices count from 1, and 0 is none.
 */
#include "rules/lua/lua_rule.h"

#include <math.h>
#include <string.h>

/* --- fields of the table on top ------------------------------------------------------- */

static void set_text(lua_State *L, const char *key, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, key);
}

static void set_flag(lua_State *L, const char *key, bool flag)
{
    lua_pushboolean(L, flag);
    lua_setfield(L, -2, key);
}

static void set_index(lua_State *L, const char *key, int index)
{
    lua_pushinteger(L, (lua_Integer)index + 1);
    lua_setfield(L, -2, key);
}

static void set_indices(lua_State *L, const char *key, const int *indices, size_t count)
{
    lua_createtable(L, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        lua_pushinteger(L, (lua_Integer)indices[i] + 1);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, key);
}

/* {file =, line =, text = "train.py:41"}; nil if it is unknown. */
static void set_place(lua_State *L, const sonde_program *program, sonde_place place)
{
    char text[4200];

    if (place.file[0] == '\0') {
        return;
    }
    lua_createtable(L, 0, 3);
    set_text(L, "file", place.file);
    lua_pushinteger(L, place.line);
    lua_setfield(L, -2, "line");
    set_text(L, "text", sonde_program_place_text(program, place, text, sizeof text));
    lua_setfield(L, -2, "place");
}

/* By name: a boolean, a number, or a text. */
static void set_attributes(lua_State *L, const char *key,
                           sonde_program_attributes attributes)
{
    lua_createtable(L, 0, (int)attributes.count);
    for (size_t i = 0; i < attributes.count; i++) {
        const sonde_program_attribute *row = &attributes.rows[i];
        const bool truth =
            strcmp(row->text, "true") == 0 || strcmp(row->text, "false") == 0;

        if (truth) {
            lua_pushboolean(L, row->text[0] == 't');
        } else if (!isnan(row->number)) {
            lua_pushnumber(L, row->number);
        } else {
            lua_pushstring(L, row->text);
        }
        lua_setfield(L, -2, row->name);
    }
    lua_setfield(L, -2, key);
}

/* --- rows: each fills the table on top -------------------------------------------------- */

static void set_value(lua_State *L, const sonde_program *program, size_t i)
{
    static const char *const kinds[] = {"computed", "input", "parameter", "buffer",
                                        "constant"};
    const sonde_program_value *value = &program->values[i];

    set_text(L, "kind", kinds[value->kind]);
    set_text(L, "dtype", sonde_dtype_name(value->dtype));
    set_text(L, "tensor", value->tensor);
    lua_createtable(L, value->rank, 0);
    for (int k = 0; k < value->rank; k++) {
        lua_pushinteger(L, value->shape[k]);
        lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "shape");
    set_index(L, "node", value->node);
    set_index(L, "parameter", value->parameter);
    set_flag(L, "requires_grad", value->requires_grad);
}

static void set_node(lua_State *L, const sonde_program *program, size_t i)
{
    const sonde_program_node *node = &program->nodes[i];

    set_text(L, "op", node->op);
    set_attributes(L, "attributes", node->attributes);
    set_indices(L, "inputs", node->inputs, node->input_count);
    set_indices(L, "outputs", node->outputs, node->output_count);
    set_index(L, "module", node->module);
    set_place(L, program, node->place);
}

static void set_module(lua_State *L, const sonde_program *program, size_t i)
{
    const sonde_program_module *module = &program->modules[i];

    set_text(L, "name", module->name);
    set_text(L, "kind", module->kind);
    set_attributes(L, "attributes", module->attributes);
    set_flag(L, "registered", module->registered);
    set_flag(L, "called", module->called);
    set_flag(L, "training", module->training);
    set_place(L, program, module->place);
}

static void set_parameter(lua_State *L, const sonde_program *program, size_t i)
{
    const sonde_program_parameter *parameter = &program->parameters[i];

    set_text(L, "name", parameter->name);
    set_index(L, "module", parameter->module);
    lua_pushinteger(L, parameter->count);
    lua_setfield(L, -2, "count");
    set_flag(L, "requires_grad", parameter->requires_grad);
    set_index(L, "optimizer", parameter->optimizer);
    set_flag(L, "used", parameter->used);
    set_flag(L, "reached", parameter->reached);
}

static void set_optimizer(lua_State *L, const sonde_program *program, size_t i)
{
    const sonde_program_optimizer *optimizer = &program->optimizers[i];

    set_text(L, "name", optimizer->name);
    set_text(L, "kind", optimizer->kind);
    set_attributes(L, "attributes", optimizer->attributes);
}

static void set_event(lua_State *L, const sonde_program *program, size_t i)
{
    const sonde_program_event *event = &program->events[i];

    set_text(L, "event", sonde_event_name(event->kind));
    set_index(L, "module", event->module);
    set_index(L, "value", event->value);
    set_index(L, "node", event->node);
    set_index(L, "optimizer", event->optimizer);
    set_flag(L, "training", event->training);
    set_flag(L, "grad", event->grad);
    set_flag(L, "autocast", event->autocast);
    set_attributes(L, "attributes", event->attributes);
    set_place(L, program, event->place);
}

static void set_loss(lua_State *L, const sonde_program *program, size_t i)
{
    const sonde_program_loss *loss = &program->losses[i];

    set_index(L, "node", loss->node);
    set_index(L, "value", loss->value);
    set_index(L, "predictions", loss->predictions);
    set_index(L, "targets", loss->targets);
    set_index(L, "backward", loss->backward);
}

/* --- the whole ---------------------------------------------------------------------------- */

static void set_list(lua_State *L, const char *key, const sonde_program *program,
                     size_t count,
                     void (*set_row)(lua_State *, const sonde_program *, size_t))
{
    lua_createtable(L, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        lua_createtable(L, 0, 8);
        set_row(L, program, i);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, key);
}

void lua_push_program(lua_State *L, const sonde_program *program)
{
    lua_createtable(L, 0, 13);
    set_text(L, "producer", program->producer);
    set_text(L, "mode", sonde_mode_name(program->mode));
    set_text(L, "root", program->root);
    set_flag(L, "complete", program->complete);
    set_text(L, "gap", program->gap);
    set_list(L, "values", program, program->value_count, set_value);
    set_list(L, "nodes", program, program->node_count, set_node);
    set_list(L, "modules", program, program->module_count, set_module);
    set_list(L, "parameters", program, program->parameter_count, set_parameter);
    set_list(L, "optimizers", program, program->optimizer_count, set_optimizer);
    set_list(L, "events", program, program->event_count, set_event);
    set_list(L, "losses", program, program->loss_count, set_loss);
    set_attributes(L, "facts", program->facts);
}
