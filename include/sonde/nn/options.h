/*
 * options.h - how a session compiles and runs, in the words of PopTorch.
 *
 * A plain struct: sonde_nn_options_init sets the defaults.
 *
 *     sonde_nn_options options;
 *     sonde_nn_options_init(&options);
 *     options.gradient_accumulation = 4;
 *     options.device_iterations = 10;
 *
 * A session copies its options and checks them when it compiles; then they are frozen:
 * changing the session's copy fails with SONDE_ESTATE.
 *
 * When a session compiles, environment variables that are set and not empty override its
 * options: SONDE_DEVICE_ITERATIONS, SONDE_GRADIENT_ACCUMULATION, SONDE_REPLICAS,
 * SONDE_BATCH_SIZE, SONDE_THREADS, SONDE_RANDOM_SEED, SONDE_PLAN_CACHE and
 * SONDE_OUTPUT_MODE ("final", "all", "sum", "mean", "everyn").
 *
 * Plain values: any number of threads may read one.
 */
#ifndef SONDE_NN_OPTIONS_H
#define SONDE_NN_OPTIONS_H

#include <sonde/options.h>
#include <sonde/anchor.h>
#include <sonde/tap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_nn_reduction {
    SONDE_NN_REDUCTION_MEAN = 0, /* over micro-batches and replicas: as one large batch */
    SONDE_NN_REDUCTION_SUM = 1
} sonde_nn_reduction;

/* How the stages of a network with blocks (sonde_nn_begin_block) are trained. */
typedef enum sonde_nn_execution {
    SONDE_NN_PIPELINED = 0, /* several micro-batches at once, each in another stage */
    SONDE_NN_SHARDED = 1,   /* a thread for each stage, one at a time */
    SONDE_NN_SEQUENTIAL = 2 /* as if there were no blocks */
} sonde_nn_execution;

/* The dtype of products: linear layers, convolutions, matmul, attention, recurrent layers.
 * Their operands are rounded to it (to nearest, ties to even), summed in float32, and their
 * outputs have it; parameters, their gradients, norms, losses and what a session returns
 * stay float32. As torch.autocast. */
typedef enum sonde_nn_float {
    SONDE_NN_FLOAT32 = 0,
    SONDE_NN_BFLOAT16 = 1,
    SONDE_NN_FLOAT16 = 2 /* small gradients vanish: use loss scaling */
} sonde_nn_float;

typedef struct sonde_nn_options {
    size_t size;               /* sizeof(sonde_nn_options) */
    int device_iterations;     /* D: steps a call; 1 */
    int gradient_accumulation; /* G: micro-batches a step; 1, and only 1 for inference */
    int replication_factor; /* R: copies of the network, each with threads of its own and
                                  a micro-batch of its own at a time; 1 */
    sonde_nn_reduction reduction;
    uint64_t random_seed;          /* of all random numbers drawn while running */
    sonde_anchor_mode output_mode; /* DEFAULT: Final in training, All in inference */
    int output_period;             /* of EveryN */
    int64_t batch_size;            /* of a micro-batch; 0: that of the model */
    int threads; /* at most; 0: as many as are useful. Never more than processors of the
                       * affinity mask and cgroup, and one while one is faster. */
    sonde_nn_execution execution; /* PIPELINED; needs as many micro-batches as stages */
    bool fixed_batch; /* the environment sets threads, random_seed and plan_cache alone */
    /* Called after every pass of compile; may be NULL. */
    void (*on_progress)(void *user, int done, int total);
    void *progress_user;
    /* run ends with SONDE_ERANGE at the first op that makes a NaN or an infinity, and names
     * the tensor, the op, the step and the element. The step is not done; updates that came
     * before the op are. One thread, no fused ops, the same bits. */
    bool floating_point_exceptions;
    sonde_nn_float dtype;
    /* Where compile finds memory places that were found before (<sonde/nn/plan.h>): a plan
     * that was loaded, then a folder of plans, "default" being that of the user's cache. A
     * plan of another graph, or of other options, is not used; plan_only: SONDE_ESTATE says
     * what differs. All borrowed until compile; NULL: none. */
    const struct sonde_nn_plan *plan;
    bool plan_only;
    const char *plan_cache;
} sonde_nn_options;

typedef struct sonde_nn_plan sonde_nn_plan;

/* Fills in the defaults of a struct of so many bytes. */
SONDE_API void sonde_nn_options_fill(sonde_nn_options *options, size_t size);
/* The same; NULL does nothing. */
static inline void sonde_nn_options_init(sonde_nn_options *options)
{
    sonde_nn_options_fill(options, sizeof *options);
}

#ifdef __cplusplus
}
#endif

#endif
