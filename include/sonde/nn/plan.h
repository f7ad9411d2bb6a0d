/*
 * plan.h - a compiled session in a file, and the session that the file holds.
 *
 *     err = sonde_nn_plan_save(session, "model.plan", &options, &diag);
 *
 *     err = sonde_nn_plan_load("model.plan", &plan, &diag);
 *     err = sonde_nn_plan_model(plan, 0, &model, &diag);
 *     err = sonde_nn_plan_session(plan, model, &session, &diag);
 *     err = sonde_nn_session_run(session, inputs, count, &diag);
 *
 * The file has the model (its ops and the names of everything in it), the session's
 * options, optimizer, groups and anchors, the kernel of every step and the place of every
 * buffer, and on request the values of the parameters. Taps are not in it, for a sink is
 * the program's; a session with the same taps as the one saved finds its places in the
 * file, one with others is compiled anew.
 *
 * Nothing of the file is run unchecked: shape rules check every op, and a place is used
 * only for the steps that the compiler makes here too. So results are those of a session
 * that was never saved, bit for bit.
 *
 * A file is refused with one line that says which of these it is: no plan, of another
 * format, of another version of the library, for another processor, cut off, damaged.
 *
 * A plan is constant: any number of threads may use one.
 */
#ifndef SONDE_NN_PLAN_H
#define SONDE_NN_PLAN_H

#include <sonde/nn/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_plan_options {
    size_t size;      /* sizeof(sonde_nn_plan_options) */
    bool weights;     /* all parameters and buffers as they are now; otherwise only those
                     that a program gave, as an ONNX file does: a seed draws the others */
    const char *text; /* of the program's, kept as it is; NULL: none */
} sonde_nn_plan_options;

/* Compiles the session unless it is compiled, and writes its plan: at any moment there is
 * the old file or the new one. options NULL: the defaults. SONDE_EINVAL: a name or a title
 * has control characters, or more than 511 bytes. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_plan_save(sonde_nn_session *session,
                                                     const char *path,
                                                     const sonde_nn_plan_options *options,
                                                     sonde_diag *diag);

/* SONDE_EFORMAT: no plan, cut off, or damaged; SONDE_EUNSUPPORTED: of another format,
 * version or processor. Cost: one reading of the file. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_plan_load(const char *path,
                                                     sonde_nn_plan **out,
                                                     sonde_diag *diag);
/* Not before the sessions that use it are compiled or destroyed. */
SONDE_API void sonde_nn_plan_destroy(sonde_nn_plan *plan);

typedef struct sonde_nn_plan_info {
    bool training;                /* of the session that was saved */
    bool weights;                 /* all values of the model are in the file */
    const char *text;             /* the program's; "": none. Borrowed until destroy */
    sonde_nn_options options;     /* of that session, as the environment left them */
    sonde_nn_optimizer optimizer; /* of a session for training, else zeros */
    size_t op_count;              /* steps of the plan */
    size_t arena_bytes;
} sonde_nn_plan_info;
SONDE_API SONDE_CHECKED sonde_err sonde_nn_plan_describe(const sonde_nn_plan *plan,
                                                         sonde_nn_plan_info *info,
                                                         sonde_diag *diag);

/* A new model with the names, values and blocks of the saved one. Parameters that have no
 * values in the file are drawn from seed, as sonde_nn_model_initialize draws them. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_plan_model(const sonde_nn_plan *plan,
                                                      uint64_t seed, sonde_nn_model **out,
                                                      sonde_diag *diag);

/* A new session like the one that was saved, not compiled yet: for taps, a hook, a
 * control. model is of sonde_nn_plan_model and borrowed until destroy; plan is borrowed
 * until compile. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_plan_session(const sonde_nn_plan *plan,
                                                        sonde_nn_model *model,
                                                        sonde_nn_session **out,
                                                        sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
