/*
 * job_layer_kinds.c - the kinds of layers of a job by name: the rows of src/nn/ops
 * (layer_row.h), and three that are no ops.
 */
#include "nn/job/job_layers.h"
#include "base/fail.h"
#include "base/macros.h"

#include <string.h>

static sonde_err build_print(sonde__job_builder *b, const sonde__yaml *entry,
                             const char *name, const sonde_nn_value *in,
                             sonde_nn_value *out)
{
    return sonde__job_build_print(&b->reader, entry, b->model, name, in[0], out);
}

/* Begins a block and hands its input on. */
static sonde_err build_block(sonde__job_builder *b, const sonde__yaml *entry,
                             const char *name, const sonde_nn_value *in,
                             sonde_nn_value *out)
{
    (void)entry;
    sonde_nn_begin_block(b->model, name);
    *out = in[0];
    return SONDE_OK;
}

static const sonde__job_layer_kind own_kinds[] = {
    {"print",
     {"gradient", "summarise_threshold", "edge_items", "max_line_width", "digits",
      "float_format", "separator", "open_bracket", "close_bracket"},
     1,
     .build = build_print},
    {"block", {NULL}, 1, .build = build_block},
    {"layers", {"times", "layers"}, 1, .build = NULL}, /* a group: job_layers.c */
};

static sonde_err build_row(sonde__job_builder *b, const sonde__yaml *entry,
                           const char *name, const sonde_nn_value *in,
                           sonde_nn_value *out)
{
    const sonde__op_layer *row = b->kind->row;
    sonde_nn_setting settings[SONDE__MAX_FIELDS];
    size_t count = 0;

    SONDE__TRY(sonde__job_read_settings(&b->reader, entry, row, settings, &count));
    *out = sonde_nn_layer(b->model, row->name, name, in, b->given, settings, count);
    return SONDE_OK;
}

size_t sonde__job_list_kinds(const char *names[SONDE__JOB_MAX_KINDS])
{
    size_t count = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(own_kinds); i++) {
        names[count++] = own_kinds[i].name;
    }
    for (size_t i = 0; sonde__op_layers[i] != NULL && count < SONDE__JOB_MAX_KINDS; i++) {
        names[count++] = sonde__op_layers[i]->name;
    }
    return count;
}

bool sonde__job_find_kind(const char *name, sonde__job_layer_kind *kind)
{
    const sonde__op_layer *row = sonde__op_find_layer(name);

    for (size_t i = 0; i < SONDE_COUNT_OF(own_kinds); i++) {
        if (strcmp(name, own_kinds[i].name) == 0) {
            *kind = own_kinds[i];
            return true;
        }
    }
    if (row == NULL) {
        return false;
    }
    *kind = (sonde__job_layer_kind){
        .name = row->name, .inputs = row->inputs, .build = build_row, .row = row};
    for (int i = 0; i < sonde__op_field_count(row); i++) {
        kind->keys[i] = row->fields[i].key;
    }
    return true;
}
