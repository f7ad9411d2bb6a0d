/*
 * call.h - what a kernel sees: layouts, operands, attributes, the call, and the kernel itself.
 *
 * A kernel is a function of operands only: it allocates nothing, keeps nothing and prints
 * nothing. The executor calls it once per thread with (part, parts); a kernel divides its
 * output among the parts, never a sum, so results do not depend on the number of threads.
 * Which op a kernel belongs to is the table's business (nn/ops/ops.h).
 */
#ifndef SONDE_NN_KERNELS_CALL_H
#define SONDE_NN_KERNELS_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nn/kernels/attrs.h"

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

/* Product of dims first ... last - 1. */
static inline int64_t sonde__op_dims_product(const sonde__op_shape *shape, int first,
                                             int last)
{
    int64_t product = 1;

    for (int i = first; i < last; i++) {
        product *= shape->dim[i];
    }
    return product;
}

int64_t sonde__op_shape_count(const sonde__op_shape *shape);
/* Elements in memory, padding of the layout included. */
int64_t sonde__op_layout_count(const sonde__op_shape *shape, sonde__op_layout layout);

/* The position of element k of sample n in a layout. */
int64_t sonde__op_layout_at(const sonde__op_shape *shape, sonde__op_layout layout,
                            int64_t n, int64_t k);

/* bfloat16 or float16. */
static inline bool sonde__op_is_half(sonde_dtype dtype)
{
    return dtype == SONDE_BF16 || dtype == SONDE_F16;
}

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

/* The next `count` things of memory that begins at `start`, whole cache lines; *used grows.
 * start NULL: NULL, so that one function measures memory and lays it out. */
static inline void *sonde__op_take(char *start, size_t *used, int64_t count, size_t size)
{
    void *const place = start == NULL ? NULL : start + *used;

    *used += ((size_t)count * size + 63) / 64 * 64;
    return place;
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
     * is kept: see below for the order of sums. */
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

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

/* --- vital signs of operands --------------------------------------------------------- */

/*
 * Vital signs of the values that ops make, and the order of their sums.
 *
 * A value is taken as it lies in memory: those of sonde_vitals_of of its elements in that
 * order, lanes past N left out. PLAIN values, all parameters among them, thus have the
 * very bits of sonde_vitals_of; values in LANES those of the elements in the order [N /
 * 16][inner] [16]. A value that a fused kernel does not keep is derived from one it
 * keeps: the gradient that a max-pool spreads is the pool's gradient, and zeros.
 *
 * None of this depends on threads, on the instruction set or on other taps.
 */

/* Whether sonde__kernel_operand_vitals takes such a value: anything PLAIN, float32 and
 * uint8 in LANES. */
bool sonde__kernel_has_operand_vitals(sonde_dtype dtype, sonde__op_layout layout);
/* norms: the norms alone. */
void sonde__kernel_operand_vitals(const sonde__operand *operand, bool norms,
                                  sonde_vitals *vitals);

/* to[i] = gate[i] <= 0 ? 0 : x[i] of n elements, n a multiple of 16. */
typedef void sonde__kernel_gate_fn(const float *x, const float *gate, size_t n,
                                   float *target);
/* Of a float32 in LANES, gated by a value in LANES. */
void sonde__kernel_gated_vitals(const sonde__operand *x, const float *gate,
                                sonde__kernel_gate_fn *apply, bool norms,
                                sonde_vitals *vitals);

/* Of a value of `count` elements that consists of the elements vitals describe, and
 * zeros. */
void sonde__kernel_pad_vitals(sonde_vitals *vitals, int64_t count);

#endif
