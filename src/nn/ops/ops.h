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

struct sonde__op_kind {
    const char *name; /* "Conv2d", "Relu", "Conv2dGradWeight" */
    int in_min, in_max, out_count;
    const char *out_names[SONDE__MAX_OPERANDS]; /* of outputs after the first: "Index" */
    /*
     * Shape rule: from call->in[].shape and attrs to call->out[].shape (and normalised
     * attrs: inferred dims, resolved negative axes). diag->where is the caller's to fill.
     */
    sonde_err (*infer)(sonde__op_call *call, sonde__op_attrs *attrs, sonde_diag *diag);
    /* NULL: not differentiable (gradient ops, updates). */
    void (*gradient)(const sonde__op_gradient_context *context);
    /* Emits the ops that bring the op's buffers up to date, in place, after each
     * micro-batch of a session for training; NULL: it has none. They run after the loss,
     * so that a forward pass may run twice. */
    void (*track)(sonde__op_graph *graph, const sonde__op_attrs *attrs,
                  const sonde__op_value *in, const sonde__op_value *out);
    /* Kernels, fastest first, NULL-terminated; the last is the scalar reference and
     * accepts everything that infer accepted. */
    const sonde__op_kernel *const *(*kernels)(void);
    sonde__op_halves halves;
    /* Those for calls with bfloat16 or float16, likewise; NULL: the reference alone. */
    const sonde__op_kernel *const *(*half_kernels)(void);
    /* Whether an operand holds numbers of a range, and which; a session refuses inputs with
     * others before it runs. NULL: no operand does. */
    bool (*ids)(const sonde__op_call *call, int operand, sonde__op_ids *ids);
    unsigned optional_out; /* bit i: output i may be left out (data NULL) if unneeded */
    /* Output i shares memory with input alias[i] - 1 and is updated in place; 0: no. */
    int alias[SONDE__MAX_OPERANDS];
};

/* The kernels that may take a call, whose shapes are set (those of outputs may be): fastest
 * first, NULL-terminated, the reference last. */
const sonde__op_kernel *const *sonde__op_kernels_for(const sonde__op_kind *kind,
                                                     const sonde__op_call *call);

/* Forward */
extern const sonde__op_kind
    sonde__op_conv2d; /* x (N,C,H,W), w (O,C/g,kh,kw), b? (O) → y */
extern const sonde__op_kind sonde__op_max_pool2d; /* x → y, index u8 within the window */
extern const sonde__op_kind sonde__op_linear;  /* x (N,K), w (O,K), b? (O) → y (N,O) */
extern const sonde__op_kind sonde__op_relu;    /* x → y */
extern const sonde__op_kind sonde__op_sigmoid; /* x → y */
extern const sonde__op_kind sonde__op_tanh;    /* x → y */
extern const sonde__op_kind
    sonde__op_group_norm; /* x, gamma?, beta? → y, mean, rstd (N,g) */
extern const sonde__op_kind sonde__op_batch_norm;  /* see batch_norm.c */
extern const sonde__op_kind sonde__op_reshape;     /* x → y */
extern const sonde__op_kind sonde__op_transpose;   /* x → y */
extern const sonde__op_kind sonde__op_softmax;     /* x → y, along axis */
extern const sonde__op_kind sonde__op_log_softmax; /* x → y, along axis */
extern const sonde__op_kind sonde__op_nll; /* logp (N,C), target i64 (N) → loss () */
extern const sonde__op_kind
    sonde__op_nll_weighted;                    /* logp, target, weight? (C) → loss () */
extern const sonde__op_kind sonde__op_number;  /* labels i64 (N) → (N, 1) */
extern const sonde__op_kind sonde__op_one_hot; /* labels i64 (N) → (N, C) */
extern const sonde__op_kind sonde__op_add;     /* a, b → a + b, broadcast as PyTorch */
extern const sonde__op_kind sonde__op_mul;     /* a, b → a * b */
extern const sonde__op_kind sonde__op_channel_add; /* x (N, C, ...), b (C) → x + b */
extern const sonde__op_kind sonde__op_reduce;      /* x → sum or mean over axes */
extern const sonde__op_kind sonde__op_identity;    /* x → x: a place to print */
extern const sonde__op_kind sonde__op_matmul;      /* a, b → a b, see matmul.c */
extern const sonde__op_kind sonde__op_cast; /* x → x in another dtype, see cast.c */
/* Backward */
extern const sonde__op_kind
    sonde__op_conv2d_grad_input; /* dy, w → dx; dims: shape of x */
extern const sonde__op_kind
    sonde__op_conv2d_grad_weight;                  /* dy, x → dw; dims: shape of w */
extern const sonde__op_kind sonde__op_channel_sum; /* dy (N,C,...) → (C): bias gradient */
extern const sonde__op_kind sonde__op_max_pool2d_grad; /* dy, index → dx; dims: of x */
extern const sonde__op_kind
    sonde__op_linear_grad_input; /* dy (N,O), w (O,K) → dx (N,K) */
extern const sonde__op_kind
    sonde__op_linear_grad_weight;                   /* dy (N,O), x (N,K) → dw (O,K) */
extern const sonde__op_kind sonde__op_relu_grad;    /* dy, y → y <= 0 ? 0 : dy */
extern const sonde__op_kind sonde__op_sigmoid_grad; /* dy, y → dy y (1 - y) */
extern const sonde__op_kind sonde__op_tanh_grad;    /* dy, y → dy (1 - y^2) */
extern const sonde__op_kind sonde__op_group_norm_grad; /* dy, x, mean, rstd, gamma? → dx,
                                                             dgamma (C), dbeta (C) */
extern const sonde__op_kind sonde__op_softmax_grad;    /* dy, y → dx */
extern const sonde__op_kind sonde__op_log_softmax_grad; /* dy, y → dx */
extern const sonde__op_kind sonde__op_nll_grad;  /* dloss (), target → dlogp; dims */
extern const sonde__op_kind sonde__op_broadcast; /* x → x expanded to dims */
extern const sonde__op_kind sonde__op_scale;     /* x → scale * x */
extern const sonde__op_kind sonde__op_fill;      /* → a tensor of dims full of scale */
/* Update. in[0] is updated in place and is out[0]; state likewise. `live` is documented
 * at each op. Equations: PyTorch's, see optimizer.h. */
extern const sonde__op_kind sonde__op_accumulate;  /* acc, g → acc + g */
extern const sonde__op_kind sonde__op_replica_sum; /* g → its sum over the replicas */
extern const sonde__op_kind sonde__op_rank_sum;    /* g → its sum over the ranks */
extern const sonde__op_kind sonde__op_sgd;  /* w, g, v? → w, v?  live: lr, momentum,
                                                     dampening, weight decay, nesterov (0, 1),
                                                     gradient scale, first step (0, 1) */
extern const sonde__op_kind sonde__op_adam; /* w, g, m, v, step () → the same without g.
                                                     live: lr, beta1, beta2, eps, weight decay,
                                                     decoupled (0 Adam, 1 AdamW), scale */
extern const sonde__op_kind
    sonde__op_rmsprop; /* w, g, v, mean?, momentum? → the same without g */
extern const sonde__op_kind sonde__op_adagrad; /* w, g, v, step () → without g */
extern const sonde__op_kind sonde__op_lamb;    /* w, g, m, v, step () → without g */
/* Before an update: clip_gradients.c. */
extern const sonde__op_kind sonde__op_clip_value;    /* g → y */
extern const sonde__op_kind sonde__op_gradient_norm; /* g, norm () ? → norm () */
extern const sonde__op_kind sonde__op_clip_norm;     /* g, norm () → y */
/* loss_scale.c. */
extern const sonde__op_kind
    sonde__op_found_inf; /* g, before () ? → 1 if one is not finite, else 0 */
extern const sonde__op_kind
    sonde__op_loss_scale; /* found, scale, tracker, skipped → the last three */
/* Between layouts; put in by the layout pass, named after nothing. */
extern const sonde__op_kind sonde__op_reorder; /* x → x in another layout */

/* Fused: put in by the fuse pass; every member's value is an output that may be NULL. */
extern const sonde__op_kind
    sonde__op_conv2d_relu_pool; /* x, w, b? → conv?, relu?, y, index */
extern const sonde__op_kind sonde__op_conv2d_relu; /* x, w, b? → conv?, y */
extern const sonde__op_kind sonde__op_linear_relu; /* x, w, b? → linear?, y */
extern const sonde__op_kind
    sonde__op_batch_norm_relu; /* as BatchNorm → norm?, mean?, var?, y */
extern const sonde__op_kind
    sonde__op_pool_relu_conv_grad; /* dy, index, pool y, x → drelu?,
                                                              dconv?, dw, db?; dims: of w */
/* A weight gradient whose rows are used up by the update while in cache: rows of dw
 * are computed into a small buffer (or into dw, if the whole of it is observed) and
 * fed to SGD at once; the arithmetic is that of the two ops one after the other. live:
 * as SGD. */
extern const sonde__op_kind
    sonde__op_linear_grad_weight_sgd; /* w, dy, x, v? → w, dw?, v? */

/* All kinds, NULL-terminated: for tests that must not forget one. */
extern const sonde__op_kind *const sonde__op_kinds[];

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
