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

#include <stdio.h>

#include <sonde/nn/model.h>
#include <sonde/nn/optimizer.h>
#include <sonde/nn/options.h>
#include <sonde/nn/ranks.h>
#include <sonde/control.h>
#include <sonde/hook.h>
#include <sonde/observer.h>
#include <sonde/outfeed.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_session sonde_nn_session;

/* Create a session. model is borrowed until destroy; options (NULL: defaults) and
 * optimizer are copied. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_training_session(
    sonde_nn_model *model, const sonde_nn_options *options,
    const sonde_nn_optimizer *optimizer, sonde_nn_session **out, sonde_diag *diag);
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_inference_session(sonde_nn_model *model, const sonde_nn_options *options,
                           sonde_nn_session **out, sonde_diag *diag);
SONDE_API void sonde_nn_session_destroy(sonde_nn_session *session);

/* --- before compile; afterwards SONDE_ESTATE ---------------------------------------- */

/* Replaces all options. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_set_options(
    sonde_nn_session *session, const sonde_nn_options *options, sonde_diag *diag);
/* Keeps a tensor's values under user_name (anchor.h). mode DEFAULT: the session's output
 * mode and period. An unknown tensor is an error of compile. */
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
/* Adds an outfeed queue, which compile attaches. Borrowed until destroy; a queue serves
 * one session at a time. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_outfeed(sonde_nn_session *session,
                                                           sonde_outfeed *queue,
                                                           sonde_diag *diag);
/* For code that adds its own taps: compile calls attach with the catalogue of this
 * session and its observer, before the observer is bound, and returns attach's error.
 * user is borrowed until destroy. */
typedef sonde_err (*sonde_nn_attach)(void *user, const sonde_catalogue *catalogue,
                                     sonde_observer *observer, sonde_diag *diag);
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_attach(sonde_nn_session *session,
                                                          sonde_nn_attach attach,
                                                          void *user, sonde_diag *diag);
/* Records the session as the hook configures. Sessions for training, evaluation and
 * prediction that share a hook are one run: global steps count over all of them, and the
 * steps of a mode continue from session to session. hook is borrowed until the session's
 * last run; NULL: none. The first call of run opens the hook's run and returns its
 * errors. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_attach_hook(sonde_nn_session *session,
                                                               sonde_hook *hook,
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
/*
 * Trains together with the sessions of all ranks: each rank has its own samples, and all
 * gradients make one update. Results equal those of as many replicas. Only
 * sonde_nn_session_heed serves requests of a control, because all ranks must run the same
 * steps. Once a rank has ended, run returns SONDE_EIO; that step is not done, and no rank
 * that learns of it makes its update. ranks is borrowed until destroy. SONDE_EINVAL: the
 * session is for inference.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_attach_ranks(sonde_nn_session *session,
                                                                sonde_nn_ranks *ranks,
                                                                sonde_diag *diag);
/* Sets the mode of this session's steps; the default is TRAIN for training sessions,
 * otherwise EVAL. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_set_mode(sonde_nn_session *session,
                                                            sonde_mode mode,
                                                            sonde_diag *diag);

/* Sets the stream of the model's prints; NULL: stderr. stream is borrowed until
 * destroy. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_print_to(sonde_nn_session *session,
                                                            FILE *stream,
                                                            sonde_diag *diag);

/* --- compile ------------------------------------------------------------------------ */

/* Compiles the session and reports all configuration errors. After a failure, destroy the
 * session, or change its options and compile again. Cost: milliseconds. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_compile(sonde_nn_session *session,
                                                           sonde_diag *diag);

/* Returns names and metadata of all tensors that can be observed, borrowed; NULL before
 * compile. */
SONDE_API const sonde_catalogue *
sonde_nn_session_catalogue(const sonde_nn_session *session);

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
    int replication_factor;
    int ranks;                     /* that train together; 1: only this process */
    sonde_anchor_mode output_mode; /* after them, too */
    int64_t combined_batch;        /* samples a call in this rank: batch_size D G R */
} sonde_nn_session_info;
/* Describes a compiled session. SONDE_ESTATE: it is not compiled. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_describe(
    const sonde_nn_session *session, sonde_nn_session_info *info, sonde_diag *diag);

/* Prints the graph after a pass: "instantiate", "autodiff", "track", "accumulate", "optimise", "prune",
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
/* Return the number of outputs, and output i of the last call in the session's output
 * mode, borrowed until the next call. Outputs come in the order of sonde_nn_output, then
 * in training the loss. SONDE_ESTATE: no call was run. SONDE_ERANGE: no output i. */
SONDE_API size_t sonde_nn_session_output_count(const sonde_nn_session *session);
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
/* Durations of calls of run since compile, in seconds; percentiles to 3 %. */
typedef struct sonde_nn_latency {
    int64_t calls; /* 0: the other fields are 0 */
    double minimum, mean, median, p90, p99, maximum;
} sonde_nn_latency;
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_get_latency(
    const sonde_nn_session *session, sonde_nn_latency *latency, sonde_diag *diag);
/* Serves requests without a call of run, for loops that must react at once. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_heed(sonde_nn_session *session,
                                                        sonde_diag *diag);
/* Returns the request that stopped the session; NULL if none did. */
SONDE_API const sonde_request *sonde_nn_session_stopped(const sonde_nn_session *session);
/* Returns the number of steps done, which is the number of the next step. */
SONDE_API int64_t sonde_nn_session_step(const sonde_nn_session *session);

/* Changes the learning rate and a fixed loss scale from the next call on. SONDE_ESTATE:
 * another field differs from the compiled one; diag names it. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_set_optimizer(
    sonde_nn_session *session, const sonde_nn_optimizer *optimizer, sonde_diag *diag);

/* As sonde_nn_session_set_optimizer, for a group. SONDE_ENOTFOUND: no group has this
 * name. */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_session_set_group(sonde_nn_session *session, const char *name,
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

/* Sets the number of calls of an epoch, for checkpoints; 0 (the default): not known. */
SONDE_API void sonde_nn_session_set_epoch_calls(sonde_nn_session *session, int64_t calls);

/* The description of the session that saved a checkpoint. */
typedef struct sonde_nn_checkpoint_info {
    int64_t step;
    bool settings; /* false: the file lacks the fields below */
    int64_t batch_size, device_iterations, gradient_accumulation, replication_factor;
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
