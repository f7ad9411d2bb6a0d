/*
 * session.h - a model compiled for one purpose, and run.
 *
 * Order of calls
 *     create; anchors, taps, prints, a hook; compile; run, run, run ...; destroy
 *
 * A training session holds the optimiser's state and changes the model's parameters in
 * place; an inference session uses the same parameters. Between calls of run nothing of the
 * session runs. After compile nothing is allocated.
 *
 * One call of a training session is D steps; a step is one weight update and takes G
 * micro-batches. One call of an inference session is D steps of one micro-batch each.
 */
#ifndef SONDE_NN_SESSION_H
#define SONDE_NN_SESSION_H

#include <stdio.h>

#include <sonde/nn/model.h>
#include <sonde/nn/optimizer.h>
#include <sonde/nn/options.h>
#include <sonde/control.h>
#include <sonde/hook.h>
#include <sonde/observer.h>
#include <sonde/outfeed.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_session sonde_nn_session;

/* model is borrowed until destroy; options (NULL: defaults) and optimizer are copied. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_training_session(
    sonde_nn_model *model, const sonde_nn_options *options,
    const sonde_nn_optimizer *optimizer, sonde_nn_session **out, sonde_diag *diag);
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_inference_session(sonde_nn_model *model, const sonde_nn_options *options,
                           sonde_nn_session **out, sonde_diag *diag);
SONDE_API void sonde_nn_session_destroy(sonde_nn_session *session);

/* --- before compile; afterwards SONDE_ESTATE ---------------------------------------- */

SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_set_options(
    sonde_nn_session *session, const sonde_nn_options *options, sonde_diag *diag);
/* Keeps a tensor's value under a name of yours, see anchor.h. mode DEFAULT: the session's
 * output mode and period. Unknown tensors are found by compile. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_anchor(sonde_nn_session *session,
                                                          const char *user_name,
                                                          const char *tensor_name,
                                                          sonde_anchor_mode mode,
                                                          int period, sonde_diag *diag);
/* Any tap, resolved by compile. selector is written as selector.h says. sink is borrowed
 * until destroy. The schedule holds for the session's own mode. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_tap(sonde_nn_session *session,
                                                       const char *selector,
                                                       const sonde_schedule *schedule,
                                                       unsigned how, sonde_sink *sink,
                                                       sonde_diag *diag);
/* An outfeed queue, attached by compile. Borrowed until destroy; one session at a time. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_outfeed(sonde_nn_session *session,
                                                           sonde_outfeed *queue,
                                                           sonde_diag *diag);
/* For other code that adds taps: compile calls attach with the names of this session and its
 * observer, before the observer is bound, and returns attach's error. user is borrowed until
 * destroy. */
typedef sonde_err (*sonde_nn_attach)(void *user, const sonde_catalogue *catalogue,
                                     sonde_observer *observer, sonde_diag *diag);
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_attach(sonde_nn_session *session,
                                                          sonde_nn_attach attach,
                                                          void *user, sonde_diag *diag);
/* The hook records the session. Sessions for training, evaluation and prediction that share a hook
 * are one run: global steps count over all of them, and each mode's steps continue from session to
 * session. hook is borrowed until the session's last run; NULL: none. The first run opens the
 * hook's run and returns its errors. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_attach_hook(sonde_nn_session *session,
                                                               sonde_hook *hook,
                                                               sonde_diag *diag);
/*
 * The session obeys requests (<sonde/control.h>) at the beginning of every call of run. After a
 * stop, this and every further call of run returns SONDE_EINTERRUPTED with the request's text and
 * runs nothing. A checkpoint is saved as <checkpoints>/step-<ten digits>.safetensors; the folder is
 * created if necessary, errors are logged, and training continues. control is borrowed until
 * destroy; NULL: none, and a stop is cleared. Any time between calls of run.
 */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_session_attach_control(sonde_nn_session *session, sonde_control *control,
                                const char *checkpoints, sonde_diag *diag);
/* The mode of the session's steps; training sessions start as TRAIN, others as EVAL. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_set_mode(sonde_nn_session *session,
                                                            sonde_mode mode,
                                                            sonde_diag *diag);

/* --- compile ------------------------------------------------------------------------ */

/* Takes milliseconds and finds all configuration errors. On failure the session may get other
 * options and be compiled again. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_compile(sonde_nn_session *session,
                                                           sonde_diag *diag);

/* Names and metadata of everything that can be observed; borrowed; NULL before compile. */
SONDE_API const sonde_catalogue *
sonde_nn_session_catalogue(const sonde_nn_session *session);

typedef struct sonde_nn_session_info {
    size_t arena_bytes;  /* of all values, reused over their lives */
    size_t largest_live; /* the most bytes alive at once: a floor for the arena */
    size_t state_bytes;  /* of the optimiser and of accumulated gradients */
    size_t op_count;     /* executed per step */
    int threads;         /* of the plan */
    double compile_seconds;
    int64_t batch_size;    /* of a micro-batch */
    int device_iterations; /* D and G, the environment included */
    int gradient_accumulation;
    int64_t combined_batch; /* samples a call: batch_size D G R */
} sonde_nn_session_info;
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_describe(
    const sonde_nn_session *session, sonde_nn_session_info *info, sonde_diag *diag);

/* Prints the graph after a pass: "autodiff", "accumulate", "optimise", "prune", "fuse",
 * "layout", "plan". Compiles first if necessary. Unknown pass:
 * SONDE_EINVAL with the list. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_dump(sonde_nn_session *session,
                                                        const char *pass, FILE *stream,
                                                        sonde_diag *diag);

/* --- run ---------------------------------------------------------------------------- */

/*
 * One call. inputs has one view for each of the model's inputs that the session needs, in
 * order (an inference session needs no target), with leading dimension batch_size D G R and
 * contiguous; borrowed for the call. Compiles first if necessary. A wrong count, shape, dtype
 * or a target outside its classes is an error with expected and found, and nothing runs.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_run(sonde_nn_session *session,
                                                       const sonde_view *inputs,
                                                       size_t count, sonde_diag *diag);
/* Output i of the last call by the session's mode, borrowed until the next; outputs in the
 * order marked, then (training) the loss. */
SONDE_API size_t sonde_nn_session_output_count(const sonde_nn_session *session);
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_output(const sonde_nn_session *session,
                                                          size_t i, sonde_view *view,
                                                          sonde_diag *diag);
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_session_anchored(const sonde_nn_session *session, const char *user_name,
                          sonde_view *view, sonde_diag *diag);
/* Obeys requests at once, without a call of run. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_heed(sonde_nn_session *session,
                                                        sonde_diag *diag);
/* The request that stopped the session; NULL if none did. */
SONDE_API const sonde_request *sonde_nn_session_stopped(const sonde_nn_session *session);
/* Steps done so far; the next step has this number. */
SONDE_API int64_t sonde_nn_session_step(const sonde_nn_session *session);

/* Takes effect at the next call. After compile only the learning rate may change: otherwise
 * SONDE_ESTATE naming the field. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_set_optimizer(
    sonde_nn_session *session, const sonde_nn_optimizer *optimizer, sonde_diag *diag);

/* Parameters, optimiser state and step counters in one safetensors file; a run resumed from
 * it equals an uninterrupted one bit for bit. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_save(const sonde_nn_session *session,
                                                        const char *path,
                                                        sonde_diag *diag);
SONDE_API SONDE_CHECKED sonde_err sonde_nn_session_load(sonde_nn_session *session,
                                                        const char *path,
                                                        sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
