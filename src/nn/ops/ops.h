/*
 * ops.h - the op table: the contract between the ops and the rest of the engine.
 *
 * An op family lives in one file (conv2d.c, pool.c, linear.c ...): its shape rule, its
 * gradient, its scalar reference kernel and its rows in the table. Its fast kernels are
 * in nn/kernels/ (conv2d_kernels.c), compiled once per instruction set.
 *
 * A kernel is a function of operands only: it allocates nothing, keeps nothing and prints
 * nothing. The executor calls it once per thread with (part, parts); a kernel divides its
 * output among the parts, never a sum, so results do not depend on the number of threads.
 */
#ifndef SONDE_NN_OPS_OPS_H
#define SONDE_NN_OPS_OPS_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include <sonde/error.h>
#include <sonde/stats.h>
#include <sonde/tensor.h>

#if defined(__GNUC__)
#pragma GCC visibility push(default) /* for tests, which link the shared library */
#endif

/* --- layouts ------------------------------------------------------------------------ */

/*
 * The memory layout of a value of shape (N, inner ...).
 *
 *   PLAIN   row-major.
 *   LANES   [ceil(N / 16)][inner, row-major][16]: 16 samples side by side, one vector a
 *           pixel. Lanes past N hold unspecified numbers and never reach a valid lane, a
 *           weight gradient or a loss.
 *   PANELS  of a matrix (N, K): [ceil(K / 32)][N][32], columns past K zero. The weight
 *           gradient of a linear layer reads it.
 */
typedef enum sonde__op_layout {
    SONDE__PLAIN = 0,
    SONDE__LANES = 1,
    SONDE__PANELS = 2,
    SONDE__ANY = 3 /* of a kernel: that of the first operand, for all operands */
} sonde__op_layout;

enum { SONDE__LANE_WIDTH = 16, SONDE__PANEL_WIDTH = 32 };

/* --- operands and calls ------------------------------------------------------------- */

typedef struct sonde__op_shape {
    sonde_dtype dtype;
    int rank;
    int64_t dim[SONDE_MAX_DIMS];
} sonde__op_shape;

int64_t sonde__op_shape_count(const sonde__op_shape *shape);
/* Elements in memory, padding of the layout included. */
int64_t sonde__op_layout_count(const sonde__op_shape *shape, sonde__op_layout layout);

/* What ops are parametrised by; each family uses the fields that its comment names. */
typedef struct sonde__op_attrs {
    int64_t kernel[3], stride[3], padding[3], dilation[3]; /* of windows: (h, w, d) */
    int64_t groups;               /* conv2d, group_norm; one_hot: classes */
    int64_t dims[SONDE_MAX_DIMS]; /* reshape: target (-1: inferred, 0: copied); transpose:
                                     permutation; gradients: the shape to give back */
    int rank;                     /* entries of dims used */
    int axis;          /* softmax, log_softmax; flatten: the first dim folded */
    uint32_t axes;     /* reduce: bit mask */
    bool keep_dims;    /* reduce */
    bool mean;         /* reduce, nll: mean instead of sum */
    float eps;         /* group_norm; adam */
    bool relu;         /* a fused ReLU follows the op */
    bool affine, bias; /* of a layer: whether it has weights, and a bias */
    float scale;       /* accumulate, scale */
    float number[2];   /* numbers of pointwise ops, in the order of the layer's keys */
    int choice;        /* of variants: gelu's approximation */
    uint64_t stream;   /* of an op that draws: its own stream of random numbers */
    int reduction;     /* of a layer that is a loss, see layer_row.h */
    bool include_pad;  /* avg_pool2d: the padding counts as elements */
    bool track;        /* batch_norm: it has running statistics */
    bool causal;       /* attention: a query sees no later key */
    bool bare;         /* of an update: weight decay does not apply */
    int group;         /* of an update: the group of its parameter, 0 the default */
    bool scaled;       /* fill: times the loss scale, which is live */
    bool training;     /* set by emit: the op is part of a session for training */
    /* Of a product: the dtype to which its operands are rounded, SONDE_BF16 or SONDE_F16;
     * 0: they are not. Of a layer: also SONDE_F32, against the session's dtype. */
    sonde_dtype half;
    bool wide; /* of a product with half: its output is float32 */
} sonde__op_attrs;

enum { SONDE__MAX_OPERANDS = 10 };

/* Places in `live`, after those of the update ops. */
enum {
    SONDE__LIVE_CLIP_VALUE = 8,
    SONDE__LIVE_CLIP_NORM = 9,
    SONDE__LIVE_SCALE = 10, /* of gradients: 1 / G for the mean over micro-batches,
                             divided by the loss scale */
    SONDE__LIVE_LOSS_SCALE = 11,
    SONDE__LIVE_COUNT = 12
};

typedef struct sonde__operand {
    sonde__op_shape shape;
    sonde__op_layout layout;
    void *data; /* NULL: an optional input not given, or an output not needed */
} sonde__operand;

/* What random numbers of a call depend on besides its op. */
typedef struct sonde__op_draw {
    uint64_t seed;
    uint64_t micro_batch; /* counted over the steps of a session and those it resumes */
    bool training;
} sonde__op_draw;

typedef struct sonde__op_call {
    const sonde__op_attrs *attrs;
    int in_count, out_count;
    sonde__operand in[SONDE__MAX_OPERANDS];
    sonde__operand out[SONDE__MAX_OPERANDS];
    void *scratch; /* as large as the kernel's scratch function says, 64-byte aligned */
    const float
        *live; /* numbers that change between calls (learning rate ...), or NULL */
    const sonde__op_draw *draw; /* NULL: as in inference */
    /* Receives the vital signs of an operand that the kernel reads or writes anyway;
     * NULL: not wanted. Set only where sonde__op_tells_in or sonde__op_tells_out is
     * true; parts is 1 then, unless the kernel has finish. */
    sonde_vitals *in_vitals[SONDE__MAX_OPERANDS];
    sonde_vitals *out_vitals[SONDE__MAX_OPERANDS];
    /* Bit k: of these, only the norms are wanted; a kernel may fill in the rest. */
    unsigned norms_in, norms_out;
    /* Updates: each part reports 1 if its share of the gradient has NaN or infinities,
     * else 0; NULL: not wanted. */
    uint8_t *bad;
    /* replica_sum: where each replica has in[0]; NULL: there is one replica. */
    const void *const *replicas;
    const float *summed; /* rank_sum: the sum over the ranks; NULL: there is one rank */
} sonde__op_call;

/* The report of a part, cleared; NULL: not wanted. */
static inline uint8_t *sonde__op_part_bad(const sonde__op_call *call, int part)
{
    if (call->bad == NULL) {
        return NULL;
    }
    call->bad[part] = 0;
    return &call->bad[part];
}

/* Whether only norms are wanted of the outputs with a bit, where anything is. */
static inline bool sonde__op_wants_norms(const sonde__op_call *call, unsigned outputs)
{
    unsigned wanted = 0;

    for (int k = 0; k < SONDE__MAX_OPERANDS; k++) {
        wanted |= call->out_vitals[k] != NULL ? 1U << (unsigned)k : 0U;
    }
    return (wanted & outputs & ~call->norms_out) == 0;
}

/* part is 0 ... parts - 1. Different parts may run at once. */
typedef void (*sonde__op_kernel_fn)(const sonde__op_call *call, int part, int parts);

typedef struct sonde__op_kernel {
    const char *name; /* "lanes", "reference": for dumps */
    /* True if this kernel can do the call (shapes and attrs are set, layouts and data are
     * not). NULL: always. */
    bool (*accepts)(const sonde__op_call *call);
    sonde__op_layout in[SONDE__MAX_OPERANDS]; /* unnamed ones are PLAIN */
    sonde__op_layout out[SONDE__MAX_OPERANDS];
    size_t (*scratch)(const sonde__op_call *call, int parts); /* bytes; NULL: none */
    /* The number of parts worth dividing the call into, at most max; NULL: 1. */
    int (*parts)(const sonde__op_call *call, int max);
    /* Bit k: the kernel fills in_vitals[k] or out_vitals[k], whether or not that output
     * is kept: see operand_vitals.h for the order of sums. */
    unsigned vitals_in, vitals_out;
    unsigned (*tells)(
        const sonde__op_call *call); /* more bits of vitals_out, by shapes */
    unsigned vitals_kept;            /* of those bits: only while the output is kept */
    sonde__op_kernel_fn run;
    /* One thread runs it when all parts are done, if parts is not 1 and vital signs are
     * wanted; NULL: vital signs need parts to be 1. */
    void (*finish)(const sonde__op_call *call, int parts);
    /* An update that computes its gradient itself: fills the wanted vital signs of the
     * gradient, after run and in one thread, and changes nothing else. NULL: the
     * gradient is an input. */
    void (*again)(const sonde__op_call *call);
} sonde__op_kernel;

/* True if a kernel provides the vital signs of an operand of a call (shapes are set). */
static inline bool sonde__op_tells_in(const sonde__op_kernel *kernel, int operand)
{
    return (kernel->vitals_in >> (unsigned)operand & 1U) != 0;
}

static inline bool sonde__op_tells_out(const sonde__op_kernel *kernel,
                                       const sonde__op_call *call, int operand)
{
    const unsigned more = kernel->tells == NULL ? 0 : kernel->tells(call);

    return ((kernel->vitals_out | more) >> (unsigned)operand & 1U) != 0;
}

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

static inline bool sonde__op_is_half(sonde_dtype dtype)
{
    return dtype == SONDE_BF16 || dtype == SONDE_F16;
}

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
