/*
 * onnx_value.c - values of the model and of its shadow: parameters and buffers from
 * initialisers, ops, shapes, and names.
 */
#include "nn/onnx/onnx_value.h"
#include "base/memory.h"
#include "nn/graph/layer.h"
#include "nn/onnx/onnx_names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const sonde__onnx_pair none = {0, 0};

/* --- tensors of the model -------------------------------------------------------------------- */

/* Whether a name of a tensor is free: no value of the file, no other tensor has it. */
static bool is_free(const sonde__onnx_import *import, const char *name)
{
    const sonde_nn_model *model = import->model;

    if (sonde__names_find(&import->names, name) != SONDE__NO_NAME) {
        return false;
    }
    for (size_t i = 0; i < sonde__graph_tensor_count(model); i++) {
        if (strcmp(sonde__graph_tensor_name(model, i), name) == 0) {
            return false;
        }
    }
    return true;
}

bool sonde__onnx_is_free(const sonde__onnx_node *node, const char *suffix)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s.%s", node->module, suffix);
    return is_free(node->import, path);
}

/* A tensor of both models, whose memory is the model's; *data for the caller to fill. */
static sonde__onnx_pair add_tensor(sonde__onnx_node *node, const char *name,
                                   const sonde__op_shape *shape, sonde_role role,
                                   void **data)
{
    sonde__onnx_import *import = node->import;
    sonde__op_graph *graph = &import->model->graph;
    const char *outer = graph->module;
    sonde__onnx_pair made = none;
    sonde_diag diag = {0};

    graph->module = node->module;
    made.model = sonde__graph_add_tensor(import->model, name, shape, role,
                                         (sonde__graph_param){.given = true});
    graph->module = outer;
    if (made.model == 0) {
        const sonde_err err = sonde_nn_model_status(import->model, &diag);

        (void)sonde__onnx_refuse(node, err, diag.expected, "'%s': %s", name, diag.found);
        return none;
    }
    *data = role == SONDE_ROLE_BUFFER
                ? import->model->buffers[import->model->buffer_count - 1].data
                : import->model->params[import->model->param_count - 1].data;
    if (import->shadow != NULL) {
        made.shadow = sonde__graph_add_tensor(
            import->shadow, sonde__graph_string(&import->shadow->graph, "%s", name),
            shape, role, (sonde__graph_param){.borrowed = true, .data = *data});
    }
    return made;
}

/* The name of a parameter: the file's, or, if an exporter made that up, the module's. */
static const char *tensor_name(sonde__onnx_node *node, const char *given,
                               const char *suffix)
{
    const bool own = suffix == NULL || !sonde__onnx_name_generated(given);
    char path[512];

    if (own || (node->module[0] == '\0' && is_free(node->import, suffix))) {
        return sonde__onnx_name_keep(node->import, own ? given : suffix);
    }
    (void)snprintf(path, sizeof path, "%s.%s", node->module, suffix);
    for (size_t k = 2; !is_free(node->import, path); k++) { /* of another call */
        (void)snprintf(path, sizeof path, "%s.%s-%zu", node->module, suffix, k);
    }
    return sonde__graph_string(&node->import->model->graph, "%s", path);
}

static sonde_role parameter_role(const char *name, int rank, sonde_role asked)
{
    const size_t length = strlen(name);

    if (asked != SONDE_ROLE_ACTIVATION) {
        return asked;
    }
    return rank <= 1 && length >= 4 && strcmp(name + length - 4, "bias") == 0
               ? SONDE_ROLE_BIAS
               : SONDE_ROLE_WEIGHT;
}

static void fill(const sonde__onnx_tensor *tensor, float *data)
{
    if (tensor->raw != NULL && tensor->type == SONDE__ONNX_FLOAT) {
        memcpy(data, tensor->raw, tensor->count * sizeof *data);
        return;
    }
    for (size_t i = 0; i < tensor->count; i++) {
        data[i] = (float)sonde__onnx_tensor_number(tensor, i);
    }
}

/* Opens the initialiser of a slot, which must have floats. */
static bool open_initial(sonde__onnx_node *node, const sonde__onnx_slot *slot,
                         sonde__onnx_tensor *tensor)
{
    sonde_diag diag = {0};
    const sonde_err err = sonde__onnx_tensor_open(node->import->file, slot->initial,
                                                  slot->name, tensor, &diag);

    if (err != SONDE_OK) {
        return sonde__onnx_refuse(node, err, diag.expected, "'%s': %s", slot->name,
                                  diag.found);
    }
    if (tensor->count == 0 || !sonde__onnx_tensor_is_float(tensor)) {
        sonde__onnx_tensor_close(tensor);
        return sonde__onnx_refuse(node, tensor->count == 0 ? SONDE_ESHAPE : SONDE_EDTYPE,
                                  "a tensor of float32", "'%s' is %s", slot->name,
                                  tensor->count == 0 ? "empty" : "of integers");
    }
    return true;
}

static sonde__onnx_pair make_parameter(sonde__onnx_node *node,
                                       const sonde__onnx_slot *slot, sonde_role role)
{
    sonde__onnx_tensor tensor;
    sonde__op_shape shape = {.dtype = SONDE_F32};
    sonde__onnx_pair made = none;
    const char *name = NULL;
    void *data = NULL;

    if (!open_initial(node, slot, &tensor)) {
        return none;
    }
    shape.rank = tensor.rank;
    memcpy(shape.dim, tensor.dim, sizeof shape.dim);
    role = parameter_role(slot->name, tensor.rank, role);
    name = tensor_name(node, slot->name, role == SONDE_ROLE_BIAS ? "bias" : NULL);
    made = name != NULL ? add_tensor(node, name, &shape, role, &data) : none;
    if (made.model != 0) {
        fill(&tensor, data);
    }
    sonde__onnx_tensor_close(&tensor);
    return made;
}

sonde__onnx_pair sonde__onnx_arrange(sonde__onnx_node *node, size_t i,
                                     const sonde__onnx_arrangement *arrangement)
{
    const sonde__onnx_slot *slot = sonde__onnx_input(node, i);
    sonde__op_shape shape = {.dtype = SONDE_F32, .rank = arrangement->rank};
    sonde__onnx_tensor tensor;
    sonde__onnx_pair made = none;
    const char *name = NULL;
    void *data = NULL;

    if (slot == NULL || slot->initial == NULL || !open_initial(node, slot, &tensor)) {
        if (node->import->err == SONDE_OK) {
            (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "an initializer",
                                     "its input %zu is computed", i);
        }
        return none;
    }
    memcpy(shape.dim, arrangement->dim, sizeof shape.dim);
    name = tensor_name(node, sonde__onnx_name_generated(slot->name) ? slot->name : "/",
                       arrangement->suffix);
    made = name != NULL ? add_tensor(node, name, &shape, arrangement->role, &data) : none;
    for (size_t k = 0; made.model != 0 && k < (size_t)sonde__op_shape_count(&shape);
         k++) {
        const size_t place = arrangement->place(arrangement->user, k);

        ((float *)data)[k] = place < tensor.count
                                 ? (float)sonde__onnx_tensor_number(&tensor, place)
                                 : 0.0F;
    }
    sonde__onnx_tensor_close(&tensor);
    node->owns = true;
    return made;
}

sonde__onnx_pair sonde__onnx_buffer(sonde__onnx_node *node, const char *suffix,
                                    sonde_dtype dtype, int rank, const int64_t *dim,
                                    double number)
{
    sonde__op_shape shape = {.dtype = dtype, .rank = rank};
    const char *name = NULL;
    sonde__onnx_pair made = none;
    void *data = NULL;

    for (int i = 0; i < rank; i++) {
        shape.dim[i] = dim[i];
    }
    name = tensor_name(node, "/", suffix);
    made = name != NULL ? add_tensor(node, name, &shape, SONDE_ROLE_BUFFER, &data) : none;
    for (size_t k = 0; made.model != 0 && k < (size_t)sonde__op_shape_count(&shape);
         k++) {
        if (dtype == SONDE_I64) {
            ((int64_t *)data)[k] = sonde__onnx_integer(number);
        } else {
            ((float *)data)[k] = (float)number;
        }
    }
    return made;
}

/* --- constants as values ------------------------------------------------------------------- */

static bool is_even(const sonde__onnx_constant *known)
{
    for (size_t i = 1; i < known->count; i++) {
        if (known->items[i].base != known->items[0].base) {
            return false;
        }
    }
    return known->count > 0;
}

sonde__onnx_pair sonde__onnx_fill(sonde__onnx_node *node, double number)
{
    const sonde_nn_setting settings[] = {SONDE__ONNX_SET("value", number),
                                         SONDE__ONNX_SET("shape", 1)};

    return sonde__onnx_emit(node, "fill", NULL, 0, settings, 2);
}

/* The elements of a constant in a buffer. */
static sonde__onnx_pair keep_constant(sonde__onnx_node *node,
                                      const sonde__onnx_slot *slot)
{
    const sonde__onnx_constant *known = slot->constant;
    const bool whole = sonde__onnx_is_whole_type(known->type);
    sonde__op_shape shape = {.dtype = known->type == SONDE__ONNX_BOOL ? SONDE_BOOL
                                      : whole                         ? SONDE_I64
                                                                      : SONDE_F32,
                             .rank = known->rank};
    const char *name = sonde__onnx_name_keep(node->import, slot->name);
    sonde__onnx_pair made = none;
    void *data = NULL;

    for (int i = 0; i < known->rank; i++) {
        shape.dim[i] = (int64_t)known->dim[i].base;
    }
    if (known->count == 0) {
        (void)sonde__onnx_refuse(node, SONDE_ESHAPE, "at least 1 element",
                                 "'%s' is empty", slot->name);
        return none;
    }
    made = name != NULL ? add_tensor(node, name, &shape, SONDE_ROLE_BUFFER, &data) : none;
    for (size_t i = 0; made.model != 0 && i < known->count; i++) {
        const double number = known->items[i].base;

        if (shape.dtype == SONDE_BOOL) {
            ((uint8_t *)data)[i] = number != 0.0;
        } else if (whole) {
            ((int64_t *)data)[i] = sonde__onnx_integer(number);
        } else {
            ((float *)data)[i] = (float)number;
        }
    }
    return made;
}

/* A value of bool that has the batch as dimension `batch` of `rank`, the others 1. */
static sonde__onnx_pair batch_of_bool(sonde__onnx_node *node, int rank, int batch)
{
    const sonde__onnx_import *import = node->import;
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}}, want[SONDE_MAX_DIMS] = {{0}};
    sonde__onnx_pair x = {import->model->graph.inputs[0], 0}, twice[2];
    int own = 0;

    if (import->shadow != NULL) {
        x.shadow = import->shadow->graph.inputs[0];
    }
    own = sonde__onnx_shape(node, x, dims);
    for (int i = 1; i < own && x.model != 0; i++) {
        const sonde_nn_setting first[] = {SONDE__ONNX_SET("dim", i),
                                          SONDE__ONNX_SET("end", 1)};

        x = sonde__onnx_emit(node, "slice", &x, 1, first, 2);
    }
    for (int i = 0; i < rank; i++) {
        want[i].base = 1.0;
    }
    want[batch] = dims[0];
    x = x.model != 0 ? sonde__onnx_reshape(node, x, rank, want) : none;
    if (x.model == 0 || sonde__onnx_dtype(node, x) != SONDE_F32) {
        return x;
    }
    twice[0] = twice[1] = x;
    return sonde__onnx_emit(node, "eq", twice, 2, NULL, 0);
}

/* Either side of the choice is x, so that it does not matter what the input holds. */
sonde__onnx_pair sonde__onnx_repeat(sonde__onnx_node *node, sonde__onnx_pair x, int rank,
                                    int batch)
{
    sonde__onnx_pair in[3] = {none, x, x};

    if (batch >= rank) {
        (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "one",
                                 "two dimensions that depend on the batch");
        return none;
    }
    in[0] = x.model != 0 ? batch_of_bool(node, rank, batch) : none;
    return sonde__onnx_emit(node, "where", in, 3, NULL, 0);
}

/* A constant of one number, spread to its dims. */
static sonde__onnx_pair spread_number(sonde__onnx_node *node,
                                      const sonde__onnx_constant *known)
{
    sonde_nn_setting settings[] = {
        SONDE__ONNX_SET("value", known->items[0].base),
        {.key = "shape", .count = known->rank > 0 ? known->rank : 1}};
    sonde__onnx_pair made = none;
    int batch = -1;

    settings[1].values[0] = 1.0;
    for (int i = 0; i < known->rank; i++) {
        const bool moves = known->dim[i].slope != 0.0;

        settings[1].values[i] =
            known->dim[i].base + known->dim[i].slope * node->import->batch;
        if (moves && node->import->shadow != NULL) {
            batch = batch < 0 ? i : known->rank;
            settings[1].values[i] = 1.0;
        }
    }
    made = sonde__onnx_emit(node, "fill", NULL, 0, settings, 2);
    return batch < 0 ? made : sonde__onnx_repeat(node, made, known->rank, batch);
}

static sonde__onnx_pair make_constant(sonde__onnx_node *node,
                                      const sonde__onnx_slot *slot)
{
    const sonde__onnx_constant *known = slot->constant;

    for (size_t i = 0; i < known->count; i++) {
        if (known->items[i].slope != 0.0) {
            (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, NULL,
                                     "'%s' depends on the batch", slot->name);
            return none;
        }
    }
    if (!sonde__onnx_is_whole_type(known->type) && is_even(known)) {
        return spread_number(node, known);
    }
    if (known->uniform && known->rank > 0) {
        (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, NULL,
                                 "'%s' is a constant of whole numbers", slot->name);
        return none;
    }
    return keep_constant(node, slot);
}

sonde__onnx_pair sonde__onnx_take(sonde__onnx_node *node, size_t i, sonde_role role)
{
    sonde__onnx_slot *slot = sonde__onnx_input(node, i);
    sonde_role own = SONDE_ROLE_INPUT;
    bool trained = false;

    if (slot == NULL) {
        (void)sonde__onnx_refuse(node, SONDE_EINVAL, NULL, "it lacks its input %zu", i);
        return none;
    }
    trained = slot->initial != NULL &&
              !sonde__onnx_is_whole_type(slot->initial->data_type) &&
              (role != SONDE_ROLE_ACTIVATION || sonde__onnx_known(node, i) == NULL);
    if (slot->value.model == 0 && trained) {
        slot->value = make_parameter(node, slot, role);
    } else if (slot->value.model == 0 && sonde__onnx_known(node, i) != NULL) {
        slot->value = make_constant(node, slot);
    }
    if (slot->value.model == 0 && node->import->err == SONDE_OK) {
        (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "a value of the network",
                                 "its input %zu, '%s', cannot be one", i, slot->name);
    }
    if (slot->value.model != 0) {
        own = sonde__graph_value(&node->import->model->graph, slot->value.model)->role;
    }
    node->owns = node->owns || own == SONDE_ROLE_WEIGHT || own == SONDE_ROLE_BIAS;
    return slot->value;
}

/* The tensor of a name in the model; {0, 0}: there is none. */
static sonde__onnx_pair find_tensor(const sonde__onnx_import *import, const char *name)
{
    const size_t params = sonde_nn_parameter_count(import->model);

    for (size_t i = 0; i < sonde__graph_tensor_count(import->model); i++) {
        if (strcmp(sonde__graph_tensor_name(import->model, i), name) == 0) {
            const sonde_nn_model *shadow = import->shadow;

            return i < params
                       ? (sonde__onnx_pair){import->model->params[i].value,
                                            shadow != NULL ? shadow->params[i].value : 0}
                       : (sonde__onnx_pair){
                             import->model->buffers[i - params].value,
                             shadow != NULL ? shadow->buffers[i - params].value : 0};
        }
    }
    return none;
}

sonde__onnx_pair sonde__onnx_take_own(sonde__onnx_node *node, size_t i, sonde_role role,
                                      const char *suffix)
{
    enum { MOST = 1024 }; /* elements of what torch's exporter writes once */
    sonde__onnx_slot *slot = sonde__onnx_input(node, i);
    const SondeOnnx__TensorProto *tensor = slot != NULL ? slot->initial : NULL;
    sonde__onnx_slot own;
    char path[512];
    sonde__onnx_pair made = none;

    if (tensor == NULL || tensor->n_dims != 1 || tensor->dims[0] > MOST ||
        node->module[0] == '\0' || slot->value.model == 0 ||
        strcmp(slot->owner != NULL ? slot->owner : "", node->module) == 0) {
        made = sonde__onnx_take(node, i, role);
        if (slot != NULL && slot->owner == NULL) {
            slot->owner = node->module;
        }
        if (made.model == 0 || tensor == NULL || role != SONDE_ROLE_BUFFER ||
            sonde__graph_value(&node->import->model->graph, made.model)->role == role) {
            return made;
        }
    }
    (void)snprintf(path, sizeof path, "%s.%s", node->module, suffix);
    made = find_tensor(node->import, path);
    if (made.model != 0) {
        return made;
    }
    own = *slot;
    own.name = path;
    made = make_parameter(node, &own, role);
    node->owns = node->owns || role != SONDE_ROLE_BUFFER;
    return made;
}

/* --- shapes ------------------------------------------------------------------------------ */

int sonde__onnx_shape(const sonde__onnx_node *node, sonde__onnx_pair value,
                      sonde__onnx_number dim[SONDE_MAX_DIMS])
{
    const sonde__onnx_import *import = node->import;
    const sonde__op_shape *shape = sonde__graph_shape(import->model, value.model);
    const sonde__op_shape *other =
        import->shadow != NULL ? sonde__graph_shape(import->shadow, value.shadow) : shape;

    for (int i = 0; i < shape->rank; i++) {
        const double slope = (double)(other->dim[i] - shape->dim[i]);

        dim[i] =
            (sonde__onnx_number){(double)shape->dim[i] - slope * import->batch, slope};
    }
    return shape->rank;
}

sonde_dtype sonde__onnx_dtype(const sonde__onnx_node *node, sonde__onnx_pair value)
{
    return sonde__graph_shape(node->import->model, value.model)->dtype;
}

/* --- ops ------------------------------------------------------------------------------------ */

/* The ops that a value's name is not free for cannot be asked for by name. */
static void hide_clashes(sonde__onnx_import *import, size_t first)
{
    sonde__op_graph *graph = &import->model->graph;

    for (size_t v = first; v < graph->value_count; v++) {
        if (graph->values[v].source == SONDE__FROM_OP && graph->values[v].name != NULL &&
            sonde__names_find(&import->names, graph->values[v].name) != SONDE__NO_NAME) {
            graph->values[v].name = NULL;
        }
    }
}

/* The shadow cannot follow: the file is for its batch alone. */
static bool lose_shadow(sonde__onnx_node *node, const sonde_diag *diag)
{
    sonde__onnx_import *import = node->import;

    if (import->open_batch) {
        return sonde__onnx_refuse(node, diag->err, diag->expected,
                                  "not for every batch: %s", diag->found);
    }
    sonde_nn_model_destroy(import->shadow);
    import->shadow = NULL;
    return true;
}

sonde__onnx_pair sonde__onnx_emit(sonde__onnx_node *node, const char *kind,
                                  const sonde__onnx_pair *in, size_t count,
                                  const sonde_nn_setting *settings, size_t setting_count)
{
    sonde__onnx_import *import = node->import;
    sonde_nn_value own[SONDE__ONNX_MOST * 2] = {0}, other[SONDE__ONNX_MOST * 2] = {0};
    const size_t first = import->model->graph.value_count;
    sonde__onnx_pair made = none;
    sonde_diag diag = {0};

    for (size_t i = 0; i < count; i++) {
        if (in[i].model == 0 || i >= sizeof own / sizeof own[0]) {
            return none;
        }
        own[i] = in[i].model;
        other[i] = in[i].shadow;
    }
    made.model = sonde_nn_function(import->model, node->module, kind, own, count,
                                   settings, setting_count);
    if (made.model == 0) {
        const sonde_err err = sonde_nn_model_status(import->model, &diag);

        (void)sonde__onnx_refuse(node, err, diag.expected, "%s", diag.found);
        return none;
    }
    hide_clashes(import, first);
    if (import->shadow == NULL) {
        return made;
    }
    made.shadow = sonde_nn_function(import->shadow, "", kind, other, count, settings,
                                    setting_count);
    if (made.shadow == 0 && (sonde_nn_model_status(import->shadow, &diag) == SONDE_OK ||
                             !lose_shadow(node, &diag))) {
        return none;
    }
    return made;
}

sonde__onnx_pair sonde__onnx_emit_one(sonde__onnx_node *node, const char *kind,
                                      sonde__onnx_pair in)
{
    return sonde__onnx_emit(node, kind, &in, 1, NULL, 0);
}

sonde_nn_setting sonde__onnx_setting(const char *key, const int64_t *values, size_t count)
{
    sonde_nn_setting setting = {.key = key, .count = (int)count};

    for (size_t i = 0; i < count && i < SONDE_MAX_DIMS; i++) {
        setting.values[i] = (double)values[i];
    }
    return setting;
}

sonde__onnx_pair sonde__onnx_permute(sonde__onnx_node *node, sonde__onnx_pair x, int rank,
                                     const int64_t *dims)
{
    const sonde_nn_setting setting = sonde__onnx_setting("dims", dims, (size_t)rank);
    bool same = true;

    for (int i = 0; i < rank; i++) {
        same = same && dims[i] == i;
    }
    return same ? x : sonde__onnx_emit(node, "permute", &x, 1, &setting, 1);
}

static double number_at(sonde__onnx_number number, double batch)
{
    return number.base + number.slope * batch;
}

static double product_at(const sonde__onnx_number *dim, int rank, double batch,
                         int without)
{
    double product = 1.0;

    for (int i = 0; i < rank; i++) {
        product *= i == without ? 1.0 : number_at(dim[i], batch);
    }
    return product;
}

/* The whole dims of a target that the file fixed, where x depends on the batch: the first
 * one is the batch, or a multiple of it. */
static void open_target(const sonde__onnx_import *import, const sonde__onnx_number *x,
                        int x_rank, int rank, sonde__onnx_number *dim)
{
    const double n = import->batch;
    bool open = false;

    for (int i = 0; i < rank; i++) {
        if (dim[i].slope != 0.0 || (i == 0 && dim[i].base <= 0.0)) {
            return;
        }
        open = open || dim[i].base == -1.0;
    }
    if (rank == 0 || x_rank == 0 ||
        product_at(x, x_rank, n, -1) == product_at(x, x_rank, n + 1, -1)) {
        return;
    }
    if (x[0].slope != 0.0 && number_at(x[0], n) == dim[0].base) {
        dim[0] = x[0];
    } else if (!open) {
        dim[0].base = -1.0;
    }
}

sonde__onnx_pair sonde__onnx_to(sonde__onnx_node *node, sonde__onnx_pair x,
                                sonde_dtype dtype)
{
    const sonde_nn_setting word = {.key = "dtype",
                                   .word = dtype == SONDE_F32   ? "float32"
                                           : dtype == SONDE_I64 ? "int64"
                                                                : "bool"};

    return x.model == 0 || sonde__onnx_dtype(node, x) == dtype
               ? x
               : sonde__onnx_emit(node, "to", &x, 1, &word, 1);
}

sonde__onnx_pair sonde__onnx_reshape(sonde__onnx_node *node, sonde__onnx_pair x, int rank,
                                     const sonde__onnx_number *dim)
{
    sonde__onnx_import *import = node->import;
    sonde__onnx_number have[SONDE_MAX_DIMS] = {{0}}, want[SONDE_MAX_DIMS] = {{0}};
    const int x_rank = sonde__onnx_shape(node, x, have);
    sonde_nn_setting setting = {.key = "shape", .count = rank};
    bool same = rank == x_rank;
    int open = -1;

    if (x.model == 0 || rank > SONDE_MAX_DIMS) {
        return none;
    }
    if (rank == 0) {
        return sonde__onnx_emit(node, "reshape", &x, 1, NULL, 0);
    }
    memcpy(want, dim, (size_t)rank * sizeof *dim);
    if (import->shadow != NULL && !import->open_batch) {
        open_target(import, have, x_rank, rank, want);
    }
    for (int i = 0; i < rank; i++) {
        const bool moves = import->shadow != NULL && want[i].slope != 0.0;
        const bool kept =
            i < x_rank && have[i].base == want[i].base && have[i].slope == want[i].slope;

        same = same && kept;
        setting.values[i] = number_at(want[i], import->batch);
        if (moves || want[i].base == -1.0) {
            if (moves && kept) {
                setting.values[i] = 0.0;
            } else if (open >= 0) {
                (void)sonde__onnx_refuse(node, SONDE_EUNSUPPORTED,
                                         "one dimension that depends on the batch",
                                         "two of a shape");
                return none;
            } else {
                setting.values[i] = -1.0;
                open = i;
            }
        }
    }
    return same ? x : sonde__onnx_emit(node, "reshape", &x, 1, &setting, 1);
}

/* --- results --------------------------------------------------------------------------------- */

/* A module's output has PyTorch's name for it too. */
static bool name_output(sonde__onnx_node *node, sonde_nn_value value)
{
    sonde__op_graph *graph = &node->import->model->graph;
    const char *outer = graph->module, *name = NULL;
    bool good = true;

    if (node->module[0] == '\0') {
        return true;
    }
    name = sonde__graph_output_name(node->import->model, node->module);
    if (name == NULL) {
        return sonde__onnx_no_memory(node->import);
    }
    if (sonde__names_find(&node->import->names, name) != SONDE__NO_NAME) {
        return true;
    }
    graph->module = node->module;
    good = sonde__graph_alias(graph, name, value, SONDE_ROLE_OUTPUT);
    graph->module = outer;
    return good || sonde__onnx_no_memory(node->import);
}

bool sonde__onnx_give(sonde__onnx_node *node, size_t output, sonde__onnx_pair value)
{
    sonde__onnx_import *import = node->import;
    sonde__op_graph *graph = &import->model->graph;
    sonde__onnx_slot *slot = NULL;
    const char *name = NULL;

    if (value.model == 0) {
        return false;
    }
    if (output >= node->proto->n_output || node->proto->output[output][0] == '\0') {
        return true;
    }
    slot = &import->slots[sonde__names_find(&import->names, node->proto->output[output])];
    slot->value = value;
    slot->ready = true;
    if (value.model < node->first ||
        graph->values[value.model].source != SONDE__FROM_OP) { /* another's value */
        name = sonde__onnx_name_keep(import, slot->name);
        return (name != NULL &&
                sonde__graph_alias(graph, name, value.model, SONDE_ROLE_ACTIVATION)) ||
               sonde__onnx_no_memory(import);
    }
    if (!sonde__onnx_name_value(import, value.model, slot->name,
                                slot->leaves && node->module[0] != '\0'
                                    ? SONDE_ROLE_OUTPUT
                                    : SONDE_ROLE_ACTIVATION)) {
        return false;
    }
    return !slot->leaves || name_output(node, value.model);
}
