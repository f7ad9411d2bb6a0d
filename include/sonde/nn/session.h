/*
 * session.h - compiles a model for training or inference, and runs it.
 *
 * Order of calls
 *     create; anchors, taps, prints, a hook; compile; run, run, run ...; destroy
 *
 * A training session owns the optimizer's state and changes the model's parameters in
 * place; an inference session uses the same parameters. A session is idle between calls
 * of run. After compile nothing is allocated.
 *
 * One call of a training session is D steps; a step is one weight update, computed from G
 * micro-batches on each of R replicas. One call of an inference session is D steps of one
 * micro-batch on each replica.
 *
 * One thread at a time for a session and its model.
 */
#ifndef SONDE_NN_SESSION_H
#define SONDE_NN_SESSION_H

#include <sonde/anchor.h>
#include <sonde/control.h>
#include <sonde/export.h>
#include <sonde/hook.h>
#include <sonde/nn/model.h>
#include <sonde/nn/optimizer.h>
#include <sonde/nn/ranks.h>
#include <sonde/observer.h>
#include <sonde/outfeed.h>
#include <sonde/tap.h>

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* === options of a session ============================================================ */

/*
 * How a session compiles and runs, in the words of PopTorch.
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
    int replicas; /* R: copies of the network, each with threads of its own and
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

/* Fills in the defaults; NULL does nothing. */
#define sonde_nn_options_init(options)                                                   \
    sonde_nn_options_fill((options), sizeof(sonde_nn_options))
SONDE_API void sonde_nn_options_fill(sonde_nn_options *options, size_t size);

typedef struct sonde_nn_session sonde_nn_session;

/* model is borrowed until destroy; options (NULL: defaults) and optimizer (NULL: a session for
 * inference) are copied. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_create(
    sonde_nn_model *model, const sonde_nn_options *options,
    const sonde_nn_optimizer *optimizer, sonde_nn_session **out, sonde_diag *diag);
SONDE_API void sonde_nn_session_destroy(sonde_nn_session *session);

/* --- before compile; afterwards SONDE_ESTATE ---------------------------------------- */

/* For code that adds its own taps: compile calls attach with the catalogue of this
 * session and its observer, before the observer is bound, and returns attach's error. */
typedef sonde_err (*sonde_nn_attach)(void *user, const sonde_catalogue *catalogue,
                                     sonde_observer *observer, sonde_diag *diag);

/* What a session works with. Zero fields change nothing; all pointers but options are
 * borrowed until destroy. */
typedef struct sonde_nn_session_options {
    size_t size;                     /* sizeof(sonde_nn_session_options) */
    const sonde_nn_options *options; /* instead of those before; copied */
    sonde_mode
        mode; /* of the session's steps: EVAL or PREDICT. By default TRAIN of a session
                      * for training, else EVAL */
    sonde_nn_attach attach; /* besides those before; with user */
    void *user;
    sonde_outfeed *outfeed; /* besides those before; in one session at a time */
    /* Records the session as configured in the hook. Sessions for training, evaluation and
     * prediction that share a hook are one run: global steps count over all of them, and the
     * steps of a mode continue from session to session. The first call of run opens the
     * hook's run and returns its errors. */
    sonde_hook *hook;
    /*
     * Trains together with the sessions of all ranks: each takes samples of its own, and one
     * update is made of the gradients of all. Numbers are those of as many replicas. Requests
     * of a control are heeded by sonde_nn_session_heed alone, because all ranks must take the
     * same steps. run returns SONDE_EIO once a rank has ended; that step is not done, and its
     * update is made by no rank that hears of it. SONDE_EINVAL: the session is for inference.
     */
    sonde_nn_ranks *ranks;
    FILE *prints;        /* where prints of the model go, instead of stderr */
    int64_t epoch_calls; /* of an epoch, for checkpoints; after compile too */
} sonde_nn_session_options;

SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_set(
    sonde_nn_session *session, const sonde_nn_session_options *options, sonde_diag *diag);
/* Keeps a tensor's value under a name of yours, see anchor.h. mode DEFAULT: the session's
 * output mode and period. Unknown tensors are found by compile. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_anchor(sonde_nn_session *session,
                                                          const char *user_name,
                                                          const char *tensor_name,
                                                          sonde_anchor_mode mode,
                                                          int period, sonde_diag *diag);
/* Adds a tap, resolved by compile. selector.h describes the selector. sink is borrowed
 * until destroy. The schedule applies to the session's mode. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_tap(sonde_nn_session *session,
                                                       const char *selector,
                                                       const sonde_schedule *schedule,
                                                       unsigned how, sonde_sink *sink,
                                                       sonde_diag *diag);
/* Adds a group of parameters with different optimizer numbers; group is copied. A
 * parameter belongs to the first group, in order of adding, that selects it. At most
 * SONDE_NN_GROUPS_MOST groups. compile refuses a group that selects no parameter
 * (SONDE_ENOTFOUND). SONDE_EINVAL: numbers out of range, or no name or selector.
 * SONDE_EEXIST: another group has the name. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_add_group(sonde_nn_session *session,
                                                             const sonde_nn_group *group,
                                                             sonde_diag *diag);
/*
 * Serves requests (<sonde/control.h>) at the start of every call of run. After a stop
 * request, this and all later calls of run return SONDE_EINTERRUPTED with the request's
 * text and run nothing. A checkpoint is saved as <checkpoints>/step-<ten
 * digits>.safetensors in a folder that is created if missing; its errors are logged, and
 * training continues. control is borrowed until destroy; NULL: none, and a stop is
 * cleared. May be called between any calls of run.
 */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_session_attach_control(sonde_nn_session *session, sonde_control *control,
                                const char *checkpoints, sonde_diag *diag);
/* --- compile ------------------------------------------------------------------------ */

/* Compiles the session and reports all configuration errors. After a failure, destroy the
 * session, or change its options and compile again. Cost: milliseconds. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_compile(sonde_nn_session *session,
                                                           sonde_diag *diag);

/* Returns names and metadata of all tensors that can be observed, borrowed; NULL before
 * compile. */
SONDE_API const sonde_catalogue *
sonde_nn_session_catalogue(const sonde_nn_session *session);

/* Durations of calls of run since compile, in seconds; percentiles to 3 %. */
typedef struct sonde_nn_latency {
    int64_t calls; /* 0: all else is 0 */
    double minimum, mean, median, p90, p99, maximum;
} sonde_nn_latency;

typedef struct sonde_nn_session_info {
    size_t arena_bytes;  /* of all values of all replicas, reused over their lives */
    size_t largest_live; /* the most bytes alive at once: a floor for the arena */
    size_t state_bytes;  /* of the optimizer and of accumulated gradients */
    size_t op_count;     /* executed a step */
    int threads;         /* of all replicas */
    double compile_seconds;
    int64_t batch_size;    /* of a micro-batch */
    int device_iterations; /* D, G and R, after the environment's overrides */
    int gradient_accumulation;
    int replicas;
    int ranks;                     /* that train together; 1: this process alone */
    sonde_anchor_mode output_mode; /* after them, too */
    int64_t combined_batch;        /* samples a call in this rank: batch_size D G R */
    size_t output_count; /* of a call, with the loss of a session for training */
    sonde_nn_latency latency;
} sonde_nn_session_info;
/* Describes a compiled session. SONDE_ESTATE: it is not compiled. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_describe(
    const sonde_nn_session *session, sonde_nn_session_info *info, sonde_diag *diag);

/* Prints the graph after a pass: "instantiate", "autodiff", "track", "accumulate", "optimize", "prune",
 * "fuse", "stage", "layout", "plan". The last two compile the session first unless it is compiled. Unknown
 * pass: SONDE_EINVAL with the list. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_dump(sonde_nn_session *session,
                                                        const char *pass, FILE *stream,
                                                        sonde_diag *diag);

/* --- run ---------------------------------------------------------------------------- */

/*
 * Runs one call. inputs has one contiguous view for each of the model's inputs that the
 * session needs, in order (an inference session needs no target), with leading dimension
 * batch_size D G R; borrowed for the call. Compiles the session if it is not compiled. A
 * wrong count, shape or dtype, or a target outside its classes, is an error with expected
 * and found; then no step runs.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_run(sonde_nn_session *session,
                                                       const sonde_view *inputs,
                                                       size_t count, sonde_diag *diag);
/* Output i of the last call by the session's mode, borrowed until the next; outputs in
 * the order marked, then (training) the loss. SONDE_ESTATE: no call was run. SONDE_ERANGE:
 * there is no output i. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_output(const sonde_nn_session *session,
                                                          size_t i, sonde_view *view,
                                                          sonde_diag *diag);
/* Returns the values of an anchor in the last call, borrowed until the next call.
 * SONDE_ENOTFOUND: no anchor has this name. */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_session_anchored(const sonde_nn_session *session, const char *user_name,
                          sonde_view *view, sonde_diag *diag);
/* Returns the mean loss of all steps and micro-batches of the last call of run, in any
 * output mode. SONDE_ESTATE: before the first call, and in a session for inference. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_loss(const sonde_nn_session *session,
                                                        double *loss, sonde_diag *diag);
/* Serves requests without a call of run, for loops that must react at once. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_heed(sonde_nn_session *session,
                                                        sonde_diag *diag);
/* Returns the request that stopped the session; NULL if none did. */
SONDE_API const sonde_request *sonde_nn_session_stopped(const sonde_nn_session *session);
/* Returns the number of steps done, which is the number of the next step. */
SONDE_API int64_t sonde_nn_session_step(const sonde_nn_session *session);

/* Takes effect at the next call. group NULL: the default. SONDE_ENOTFOUND: no group has this
 * name. SONDE_ESTATE: a field other than the learning rate, or a fixed loss scale, differs from
 * the compiled one; or before compile, the default's kind from that of the groups, which take
 * over the numbers that all updates share (clip_norm ...). diag names it. */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_session_set_optimizer(sonde_nn_session *session, const char *group,
                               const sonde_nn_optimizer *optimizer, sonde_diag *diag);

/* Save and load parameters, buffers, optimizer state and step counters as one safetensors
 * file. A resumed training equals an uninterrupted one bit for bit. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_save(const sonde_nn_session *session,
                                                        const char *path,
                                                        sonde_diag *diag);
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_load(sonde_nn_session *session,
                                                        const char *path,
                                                        sonde_diag *diag);

/*
 * Copies the optimizer's state, the loss scale and the step of last, another compiled
 * training session of the same model, to session. Training continues as in one session,
 * bit for bit; options (batch, accumulation, replicas, threads, taps) may differ. Compiles
 * session if it is not compiled. last may be destroyed afterwards; a destroyed session
 * loses its optimizer state unless it was saved or carried. SONDE_EINVAL: another model,
 * kind of optimizer or set of states, or inference; then nothing has changed.
 * SONDE_ESTATE: last is not compiled. Cost: a copy of the state.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_carry(sonde_nn_session *session,
                                                         const sonde_nn_session *last,
                                                         sonde_diag *diag);

/* Copies the parameters, buffers, optimizer state and step of rank 0 to every rank; all
 * ranks must call it. Compiles the session if it is not compiled. SONDE_EINVAL: networks,
 * options or optimizers of the ranks differ. Does nothing without ranks. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_share(sonde_nn_session *session,
                                                         sonde_diag *diag);

/* What a checkpoint says of the session that saved it. */
typedef struct sonde_nn_checkpoint_info {
    int64_t step;
    bool settings; /* false: the file lacks those below */
    int64_t batch_size, device_iterations, gradient_accumulation, replicas;
    int64_t ranks;
    uint64_t random_seed;
    float learning_rate;
    int64_t epoch_calls; /* 0: not known */
    sonde_nn_float dtype;
} sonde_nn_checkpoint_info;
/* Describes a checkpoint. SONDE_EFORMAT: the file is not a checkpoint. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_checkpoint_describe(
    const char *path, sonde_nn_checkpoint_info *info, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
