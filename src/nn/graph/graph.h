/*
 * graph.h - named values and the ops between them.
 *
 * Values and ops are kept in order of creation, which is an order of execution. Value ids
 * count from 1; 0 is none. A model owns a forward graph; compile copies it for a
 * micro-batch (sonde__graph_instantiate, ids kept) and its passes extend and rewrite the
 * copy.
 *
 * Errors stick: the first one is remembered with its diag, everything after it returns 0.
 */
#ifndef SONDE_NN_GRAPH_GRAPH_H
#define SONDE_NN_GRAPH_GRAPH_H

#include <sonde/catalogue.h>
#include <sonde/nn/model.h>
#include <sonde/safetensors.h>

#include "base/names.h"
#include "base/packed.h"
#include "nn/ops/ops.h"

/* The kind of a value without producer. */
typedef enum sonde__graph_source {
    SONDE__FROM_OP = 0,
    SONDE__FROM_INPUT = 1,  /* fed by the caller; index counts the model's inputs */
    SONDE__FROM_PARAM = 2,  /* index counts the model's parameters */
    SONDE__FROM_STATE = 3,  /* of the optimizer, or an accumulator; index counts them */
    SONDE__FROM_BUFFER = 4, /* index counts the model's buffers */
    SONDE__FROM_HYPER = 5   /* a number of the optimizer; index counts them */
} sonde__graph_source;

typedef struct sonde__graph_node_value {
    sonde__op_shape shape;
    const char *name;   /* interned; NULL: cannot be asked for */
    const char *module; /* interned */
    const char *note;   /* static or NULL */
    const char
        *op; /* static: the kind that made it, before any fusion; NULL for a leaf */
    sonde_role role;
    sonde_pass pass;
    sonde__graph_source source;
    int index; /* of the source */
} sonde__graph_node_value;

typedef struct sonde__graph_node_op {
    const sonde__op_kind *kind; /* NULL: removed */
    sonde__op_attrs given;      /* as the caller gave them */
    sonde__op_attrs attrs;      /* as the shape rule completed them */
    int in_count, out_count;
    sonde__op_value in[SONDE__MAX_OPERANDS];
    sonde__op_value out[SONDE__MAX_OPERANDS];
    const char *module; /* interned */
    sonde_pass pass;
    int stage; /* of the pipeline */
    bool late; /* on the way back: not before the loss */
} sonde__graph_node_op;

/* A further name of a value: a module's input. */
typedef struct sonde__graph_alias_entry {
    const char *name, *module; /* interned */
    sonde__op_value value;
    sonde_role role;
} sonde__graph_alias_entry;

/* A value that is printed whenever it is computed. */
typedef struct sonde__graph_print_request {
    sonde__op_value value;
    const char *title; /* interned or NULL */
    bool gradient;
    sonde_print_options options;
} sonde__graph_print_request;

enum { SONDE__MOST_STAGES = 64 };

struct sonde__op_graph {
    const sonde__op_graph_calls *calls; /* first, see ops.h */
    sonde__graph_node_value *values;    /* values[0] is none */
    size_t value_count, value_capacity;
    sonde__graph_node_op *ops;
    size_t op_count, op_capacity;
    sonde__graph_alias_entry *aliases;
    size_t alias_count, alias_capacity;
    sonde__graph_print_request *prints;
    size_t print_count, print_capacity;
    sonde__op_value *inputs; /* in order of creation */
    size_t input_count, input_capacity;
    sonde__op_value *outputs;
    size_t output_count, output_capacity;
    sonde__op_value loss;
    sonde__names strings;
    const char *module;                     /* of what is emitted now */
    sonde_pass pass;                        /* likewise */
    bool training;                          /* attrs.training of what is emitted */
    const char *stages[SONDE__MOST_STAGES]; /* names of blocks, interned */
    int stage_count;                        /* 0: there are no blocks */
    int stage;                              /* of what is emitted */
    bool late;                              /* likewise */
    sonde_dtype half; /* given.half of what is emitted, see attrs; 0: not said */
    int state_count;
    sonde_err err;
    sonde_diag diag;
};

/* SONDE_API here and below: for tests, which link the shared library. */
SONDE_API sonde_err sonde__graph_init(sonde__op_graph *graph);
SONDE_API void sonde__graph_fini(sonde__op_graph *graph);

/* Interned, borrowed until fini; NULL (and a stuck SONDE_ENOMEM) if memory is out. */
const char *sonde__graph_string(sonde__op_graph *graph, const char *fmt, ...)
    SONDE_PRINTF(2, 3);
/* Records the first error; returns 0 to be returned as a value. */
sonde__op_value sonde__graph_fail(sonde__op_graph *graph, sonde_err err,
                                  const char *where, const char *expected,
                                  const char *found, ...) SONDE_PRINTF(5, 6);
/* Takes over an error whose diag is filled. */
sonde__op_value sonde__graph_fail_diag(sonde__op_graph *graph, sonde_err err,
                                       const sonde_diag *diag);

/* false: the graph has no such value, or no machine a tensor of such a size; the error
 * sticks. */
bool sonde__graph_has_value(sonde__op_graph *graph, const char *where,
                            sonde__op_value value);
bool sonde__graph_check_size(sonde__op_graph *graph, const char *where,
                             const sonde__op_shape *shape);

/* A value without producer. */
SONDE_API sonde__op_value sonde__graph_leaf(sonde__op_graph *graph,
                                            const sonde__op_shape *shape,
                                            sonde__graph_source source, int index,
                                            const char *name, sonde_role role);
bool sonde__graph_alias(sonde__op_graph *graph, const char *name, sonde__op_value value,
                        sonde_role role);
bool sonde__graph_push(sonde__op_graph *graph, sonde__op_value **array, size_t *count,
                       size_t *capacity, sonde__op_value value);
static inline sonde__graph_node_value *sonde__graph_value(const sonde__op_graph *graph,
                                                          sonde__op_value value)
{
    return &graph->values[value];
}

/* Appends an op whose outputs exist, with the shapes that its inputs now give them. */
bool sonde__graph_append(sonde__op_graph *graph, const sonde__graph_node_op *op);

/* A copy for another micro-batch (0: the same), with the same value ids, for training or
 * for inference. Leading dimensions of inputs are replaced and every shape is inferred
 * again. */
sonde_err sonde__graph_instantiate(const sonde__op_graph *source, int64_t batch_size,
                                   bool training, sonde__op_graph *copy,
                                   sonde_diag *diag);

/* --- the model ---------------------------------------------------------------------- */

/*
 * A tensor that belongs to the model: a parameter, which has a gradient and which the
 * optimizer updates, or a buffer, which an op keeps by its own rule (sonde__op_kind has
 * `track`). Both have PyTorch's names, are saved, loaded and shown.
 */
typedef struct sonde__graph_param {
    sonde__op_value value;
    void *data; /* float32; buffers: the dtype of the value */
    size_t count;
    float bound; /* drawn uniform in +-bound; 0: filled with `constant` */
    float constant;
    float spread;              /* not 0: drawn normal with this standard deviation */
    size_t blank_first, blank; /* so many elements from there begin at zero */
    bool left_out;             /* not the optimizer's */
    bool given;                /* it has values of the caller's: initialize keeps them */
    bool borrowed;             /* data is the caller's: neither drawn nor freed */
} sonde__graph_param;

/* How often a module was called, and what its next values are called. */
typedef struct sonde__graph_module_calls {
    const char *name; /* interned */
    int inputs, outputs;
} sonde__graph_module_calls;

struct sonde_nn_model {
    sonde__op_graph graph;
    sonde__graph_param *params;
    size_t param_count, param_capacity;
    sonde__graph_param *buffers;
    size_t buffer_count, buffer_capacity;
    sonde__graph_module_calls *calls;
    size_t call_count, call_capacity;
};

/* SONDE_EINVAL with `what` if a pointer that a caller must give is NULL. */
sonde_err sonde__graph_expect(const void *pointer, const char *what, sonde_diag *diag);
/* The shape of a value; rank 0 if there is no model or no such value. */
const sonde__op_shape *sonde__graph_shape(const sonde_nn_model *model,
                                          sonde_nn_value value);
/* Parameters, then buffers: what a file of the model holds. */
size_t sonde__graph_tensor_count(const sonde_nn_model *model);
sonde_named_view sonde__graph_tensor(const sonde_nn_model *model, size_t i);
/* Full path of a layer's module inside the current scope; "" at the root for NULL. */
const char *sonde__graph_module_path(sonde_nn_model *model, const char *name);

/* --- files ------------------------------------------------------------------------------- */

/*
 * Whether file, opened from path, has the wanted tensors in their shapes; exact: and no others.
 * Names all missing tensors, or all unknown ones, as far as they fit into a diagnosis.
 * SONDE_ENOTFOUND, SONDE_ESHAPE, SONDE_EINVAL (unknown tensors).
 */
sonde_err sonde__graph_check_stored(const sonde_safetensors *file, const char *path,
                                    const sonde_named_view *wanted, size_t count,
                                    bool exact, sonde_diag *diag);

/*
 * A model as bytes: values and ops in order of creation, names, modules, blocks, prints, and
 * of each parameter and buffer how it is drawn, and its values if they were given (or all, on
 * request). Reading emits every op anew: its shape rule checks it. Memory of parameters is
 * not drawn when its values are in the bytes.
 */

/* The attrs of an op of a kind. */
void sonde__graph_pack_attrs(sonde__packer *out, const sonde__op_kind *kind,
                             const sonde__op_attrs *attrs);

/* The kind of a name; NULL: none. */
const sonde__op_kind *sonde__graph_find_kind(const char *name);

void sonde__graph_pack(sonde__packer *out, const sonde_nn_model *model, bool weights);
/* A new model. SONDE_EFORMAT, ENOTFOUND (an op), or what a shape rule says. where is that
 * of diagnostics. Parameters without values are drawn from seed. */
sonde_err sonde__graph_unpack(sonde__unpacker *in, const char *where, uint64_t seed,
                              sonde_nn_model **out, sonde_diag *diag);

#endif
