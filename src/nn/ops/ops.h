/*
 * ops.h - the op table: the contract between the ops and the rest of the engine.
 *
 * An op family lives in one file (conv2d.c, pool.c, linear.c ...): its shape rule, its
 * gradient, its scalar reference kernel and its rows in the table. Its fast kernels are
 * in nn/kernels/ (conv2d_kernels.c), compiled once per instruction set.
 *
 * What a kernel sees is in nn/kernels/call.h.
 */
#ifndef SONDE_NN_OPS_OPS_H
#define SONDE_NN_OPS_OPS_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include "base/packed.h"
#include "nn/kernels/call.h"

#include <sonde/error.h>
#include <sonde/tensor.h>

#if defined(__GNUC__)
#pragma GCC visibility push(default) /* for tests, which link the shared library */
#endif

/* --- the table ---------------------------------------------------------------------- */

/* The graph as gradients and layers see it: what they may call, which nn/graph hands them as
 * the graph's first member. Values are ids, 0 is "none". */
typedef struct sonde__op_graph sonde__op_graph;
typedef uint32_t sonde__op_value;

typedef struct sonde__op_kind sonde__op_kind;

/* What an int64 operand holds: numbers below count. */
typedef struct sonde__op_ids {
    const char *what; /* "label", "token id" */
    int64_t count;
    bool ignores; /* and `ignored`, whatever count is */
    int64_t ignored;
} sonde__op_ids;

/* Everything a gradient rule may look at and do. emit returns the first output's id (0 on
 * failure, which the graph remembers); further outputs have the ids after it. */
typedef struct sonde__op_gradient_context {
    sonde__op_graph *graph;
    const sonde__op_attrs *attrs;
    const sonde__op_value *in;       /* of the forward op */
    const sonde__op_value *out;      /* likewise */
    const sonde__op_value *grad_out; /* gradient of each output; 0 where none flows */
    const bool *wanted;              /* per input: whether its gradient is needed */
    sonde__op_value *grad_in;        /* to fill, per input; 0 means no gradient */
} sonde__op_gradient_context;

typedef struct sonde__op_graph_calls {
    sonde__op_value (*emit)(sonde__op_graph *graph, const sonde__op_kind *kind,
                            const sonde__op_attrs *attrs, const sonde__op_value *in,
                            int in_count);
    const sonde__op_shape *(*shape)(const sonde__op_graph *graph, sonde__op_value value);
} sonde__op_graph_calls;

static inline sonde__op_value sonde__op_emit(sonde__op_graph *graph,
                                             const sonde__op_kind *kind,
                                             const sonde__op_attrs *attrs,
                                             const sonde__op_value *in, int in_count)
{
    const sonde__op_graph_calls *const *calls = (const void *)graph;

    return (*calls)->emit(graph, kind, attrs, in, in_count);
}

static inline const sonde__op_shape *sonde__op_value_shape(const sonde__op_graph *graph,
                                                           sonde__op_value value)
{
    const sonde__op_graph_calls *const *calls = (const void *)graph;

    return (*calls)->shape(graph, value);
}

/* What an op does with bfloat16 and float16. sonde__plan_autocast gives it what it takes. */
typedef enum sonde__op_halves {
    SONDE__HALVES_REFUSED = 0, /* its inputs are float32 */
    SONDE__HALVES_TAKEN = 1,   /* in gradients; of a forward op its inputs are float32 */
    SONDE__HALVES_KEPT = 2,    /* its outputs have the dtype of its inputs */
    SONDE__HALVES_LED = 4,     /* those of the first input, which alone is a half */
    SONDE__HALVES_MADE = 3     /* a product: attrs.half rounds its inputs and outputs */
} sonde__op_halves;

/* The fields of a family of attrs. */
typedef struct sonde__op_fields {
    const sonde__packed_field *fields;
    size_t count;
} sonde__op_fields;

#define SONDE__ATTR_EXTERN(family, LIST)                                                 \
    extern const sonde__op_fields sonde__op_fields_##family;
SONDE__ATTRS_FAMILIES(SONDE__ATTR_EXTERN)
extern const sonde__op_fields sonde__op_fields_none;   /* of ops without attrs */
extern const sonde__op_fields sonde__op_fields_common; /* of every op */
/* Whether they begin with rank and dims, see attrs.h. */
bool sonde__op_fields_have_dims(const sonde__op_fields *table);

/* A gradient of one op. Its operands are letters: d is the gradient of the first output, a
 * digit an input, A, B ... an output; a last one that the op lacks is left out. Its outputs
 * are the gradients of inputs `to`, to + 1 ... It has the attrs of the op and, if shaped,
 * the shape of input `to` in dims. */
typedef struct sonde__op_backward {
    const sonde__op_kind *kind;
    const char *in;
    int to;
    bool shaped;
} sonde__op_backward;

struct sonde__op_kind {
    const char *name; /* "Conv2d", "Relu", "Conv2dGradWeight" */
    const sonde__op_fields *fields;
    int in_min, in_max, out_count;
    const char *out_names[SONDE__MAX_OPERANDS]; /* of outputs after the first: "Index" */
    /*
     * Shape rule: from call->in[].shape and attrs to call->out[].shape (and normalized
     * attrs: inferred dims, resolved negative axes). diag->where is the caller's to fill.
     */
    sonde_err (*infer)(sonde__op_call *call, sonde__op_attrs *attrs, sonde_diag *diag);
    /* Its gradient, if that is one op, or else a function; neither: not differentiable
     * (gradient ops, updates). */
    sonde__op_backward backward;
    void (*gradient)(const sonde__op_gradient_context *context);
    /* Emits the ops that bring the op's buffers up to date, in place, after each
     * micro-batch of a session for training; NULL: it has none. They run after the loss,
     * so that a forward pass may run twice. */
    void (*track)(sonde__op_graph *graph, const sonde__op_attrs *attrs,
                  const sonde__op_value *in, const sonde__op_value *out);
    /* The scalar reference, which accepts everything that infer accepted. */
    sonde__op_kernel reference;
    /* Kernels before it, fastest first, NULL-terminated; NULL: none. */
    const sonde__op_kernel *const *(*fast)(void);
    sonde__op_halves halves;
    const sonde__op_kernel *const *own; /* likewise, of the op's file */
    /* Likewise those for calls with bfloat16 or float16. */
    const sonde__op_kernel *const *half_kernels;
    /* Whether an operand holds numbers of a range, and which; a session refuses inputs with
     * others before it runs. NULL: no operand does. */
    bool (*ids)(const sonde__op_call *call, int operand, sonde__op_ids *ids);
    unsigned optional_out; /* bit i: output i may be left out (data NULL) if unneeded */
    /* Output i shares memory with input alias[i] - 1 and is updated in place; 0: no. */
    int alias[SONDE__MAX_OPERANDS];
};

/* Kernel i that may take a call, whose shapes are set (those of outputs may be): fastest
 * first, the reference last; NULL: there are fewer. Without a call: those for float32. */
const sonde__op_kernel *sonde__op_kernel_of(const sonde__op_kind *kind,
                                            const sonde__op_call *call, size_t i);
/* The first that accepts a call. */
const sonde__op_kernel *sonde__op_first_kernel(const sonde__op_kind *kind,
                                               const sonde__op_call *call);
bool sonde__op_has_gradient(const sonde__op_kind *kind);
void sonde__op_differentiate(const sonde__op_kind *kind,
                             const sonde__op_gradient_context *context);

/* The kinds: sonde__op_<name>, as the family's file defines it; equations and operands are in
 * its head. The build finds them, and the layers (layer_row.h), and makes this header. */
typedef struct sonde__op_layer sonde__op_layer;
#include "op_kinds.h"

/* All kinds, NULL-terminated: for tests that must not forget one. */
extern const sonde__op_kind *const sonde__op_kinds[];

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
