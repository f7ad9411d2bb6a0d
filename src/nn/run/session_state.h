/*
 * session_state.h - the inside of a session, and the executor that loops over its plan.
 */
#ifndef SONDE_NN_RUN_SESSION_STATE_H
#define SONDE_NN_RUN_SESSION_STATE_H

#include "nn/compile/compile.h"
#include "nn/run/team.h"

#include <sonde/nn/session.h>

#include <pthread.h>

/* Requests made before compile, which resolves them. */
typedef struct sonde__session_anchor_request {
    char *user_name, *tensor_name;
    sonde_anchor_mode mode;
    int period;
} sonde__session_anchor_request;

typedef struct sonde__session_tap_request {
    char *selector;
    sonde_schedule schedule;
    int64_t *steps; /* the schedule's own copy */
    unsigned how;
    sonde_sink *sink;
} sonde__session_tap_request;

typedef struct sonde__session_attach_request {
    sonde_nn_attach attach;
    void *user;
} sonde__session_attach_request;

/* A call of the device loop, which all threads share. Member 0 writes it, between
 * meetings of all. */
typedef struct device_call {
    sonde_nn_session *session;
    const sonde_view *inputs;
    sonde__session_meeting *all; /* NULL: the caller runs everything alone */
    int lanes, width;            /* groups of threads, and threads of each */
    int iteration;
    bool due;            /* something is observed at this step */
    bool again;          /* the forward pass is computed once more */
    bool bad;            /* a value that is not finite was reported */
    bool traps, trapped; /* every op is checked; one has made a NaN or an infinity */
    bool skips;          /* the updates are left out: a gradient is not finite */
    bool alone;          /* a rank has ended: the step has no updates and is not done */
    unsigned stage_base; /* counts of stages when the step begins */
} device_call;

/* A plan being run: a replica's micro-batches, or the updates. */
typedef struct execution {
    device_call *call;
    sonde__plan *plan;
    sonde__session_meeting *team; /* NULL: one thread runs it */
    sonde_coordinate at;
    sonde__session_word *turns; /* of observing; NULL: there is one replica */
    unsigned ticket;            /* the replica's next turn */
    double loss_sum;            /* of the call's micro-batches */
} execution;

/* Counts of micro-batches that a stage of a replica has done. */
typedef struct sonde__session_stage {
    sonde__session_word forward, backward;
    bool bad_loss; /* of a micro-batch of the step; in the last stage */
} sonde__session_stage;

typedef struct sonde__session_replica {
    execution run;
    sonde__session_meeting meeting; /* of the threads of its lane */
    sonde__session_word turns;      /* in the first: of all that observe */
    sonde__plan own;                /* empty in the first, which runs the session's */
} sonde__session_replica;

/* The first number that is not finite: see trap.c. */
typedef struct sonde__session_trap {
    bool found, given; /* given: it was so before the op read it */
    const char *op, *module, *tensor;
    int64_t element, count, step;
    int micro_batch, replica;
    double value;
} sonde__session_trap;

enum { SONDE__LATENCY_BUCKETS = 42 * 32 };

/* See session.c; seconds. */
typedef struct sonde__session_latency {
    int64_t calls;
    double least, most, sum;
    int64_t counts[SONDE__LATENCY_BUCKETS];
} sonde__session_latency;

struct sonde_nn_session {
    sonde_nn_model *model; /* borrowed */
    sonde_nn_options options;
    sonde_nn_optimizer optimizer;
    sonde_nn_group *groups; /* with numbers of their own */
    size_t group_count, group_capacity;
    bool training, compiled;
    bool described; /* its program was shown to those that observe */
    sonde_mode mode;
    int64_t epoch_calls; /* 0: not known */
    sonde__session_anchor_request *anchor_requests;
    size_t anchor_count, anchor_capacity;
    sonde__session_tap_request *tap_requests;
    size_t tap_count, tap_capacity;
    sonde__session_attach_request *attach_requests;
    size_t attach_count, attach_capacity;
    sonde_hook *hook;       /* borrowed; NULL: nothing is recorded */
    FILE *print_stream;     /* borrowed; NULL: stderr */
    sonde_nn_ranks *ranks;  /* borrowed; NULL: this process alone */
    sonde_control *control; /* borrowed; NULL: no requests */
    char *checkpoints;      /* folder of requested checkpoints; NULL: none */
    sonde_request stop;     /* if stopped */
    bool stopped;

    /* made by compile */
    sonde__plan_program program; /* kept for its names */
    sonde_catalogue *catalogue;
    sonde_observer *observer; /* NULL if nothing is tapped */
    const sonde_observer_gate *gate;
    sonde_anchors *anchors;
    sonde_catalogue *output_catalogue; /* of "0", "1" ...: what a call returns */
    sonde_observer *output_observer;
    sonde_anchors *outputs;
    sonde_printer **printers;
    size_t printer_count;
    sonde__plan plan;
    sonde__session_replica *replicas; /* copies of the plan: (replicas, slots) */
    int replica_count;                /* of them that are made */
    int slots;                        /* micro-batches of a replica in a pipeline; 1 */
    int stages;                       /* of a pipeline; 0: there is none */
    struct sonde__session_stage
        *stage;                    /* (replicas, stages); NULL: no threads of theirs */
    execution updating;            /* the part of the updates */
    pthread_mutex_t output_lock;   /* with several replicas: of output_observer */
    int lanes, width;              /* of the team */
    sonde__session_team *team;     /* NULL: one thread */
    sonde__session_pace pace;      /* whether the team is faster at present */
    sonde__op_shape *input_shapes; /* of a whole call, in the order of run's inputs */
    const char **input_names;      /* borrowed from the model */
    size_t input_count;
    double compile_seconds;

    int64_t step;    /* the next one's number */
    double loss_sum; /* of the last call's micro-batches, in a session for training */
    int64_t loss_count;
    sonde__session_trap trap; /* of the last call */
    sonde__session_latency latency;
};

/* The environment's values override the options'. */
/* The environment's. gradient_accumulation is one of training alone. */
sonde_err sonde__session_options_override(sonde_nn_options *options, bool training,
                                          sonde_diag *diag);
sonde_err sonde__session_options_check(const sonde_nn_options *options, bool training,
                                       sonde_diag *diag);
/* The numbers an update kernel reads, in the order of ops.h. */
void sonde__session_optimizer_live(const sonde_nn_optimizer *optimizer, float scale,
                                   bool first, float live[SONDE__LIVE_COUNT]);
/* SONDE_ESTATE: a number that is fixed by compile differs. */
sonde_err sonde__session_optimizer_may_become(const sonde_nn_session *session,
                                              const sonde_nn_optimizer *now,
                                              const sonde_nn_optimizer *next,
                                              sonde_diag *diag);

/* session_groups.c: writes what updates read, and named numbers show, at the coming step. */
void sonde__session_set_live(const sonde_nn_session *session);
/* Once compiled: the loss scale of the first step, if it is automatic. */
void sonde__session_begin_scaling(const sonde_nn_session *session);
void sonde__session_free_groups(sonde_nn_session *session);
sonde_err sonde__session_set_group(sonde_nn_session *session, const char *name,
                                   const sonde_nn_optimizer *optimizer, sonde_diag *diag);
sonde_err sonde__session_set_default(sonde_nn_session *session,
                                     const sonde_nn_optimizer *optimizer,
                                     sonde_diag *diag);

/* Count, shapes, dtypes, contiguity, and that targets are classes. */
sonde_err sonde__session_check_inputs(const sonde_nn_session *session,
                                      const sonde_view *inputs, size_t count,
                                      sonde_diag *diag);
/* Compiles the session unless it is compiled. */
sonde_err sonde__session_ready(sonde_nn_session *session, sonde_diag *diag);
/* Everything that compile made; the session can be compiled again. */
void sonde__session_release(sonde_nn_session *session);

/* observe.c: shows the program of the session's steps to those that observe, at the first step
 * at which anything is due. What fails is logged. */
void sonde__session_describe(sonde_nn_session *session, const sonde_coordinate *at);
/* observe.c: the faces on taps that a session offers. */
sonde_err sonde__session_add_anchors(sonde_nn_session *session, sonde_diag *diag);
sonde_err sonde__session_add_prints(sonde_nn_session *session, const uint32_t *id_of,
                                    sonde_diag *diag);
sonde_err sonde__session_make_outputs(sonde_nn_session *session, sonde_diag *diag);
void sonde__session_outputs_begin_call(sonde_nn_session *session);
void sonde__session_outputs_begin_step(sonde_nn_session *session,
                                       const sonde_coordinate *place);
void sonde__session_outputs_put(execution *run);
void sonde__session_outputs_end_step(sonde_nn_session *session);
/* The mean loss of the call, summed in the order of replicas. */
void sonde__session_outputs_end_call(sonde_nn_session *session);
void sonde__session_release_sinks(sonde_nn_session *session);

/* Looks at what step i of the plan has made. */
void sonde__session_check_step(const execution *run, size_t i);
sonde_err sonde__session_trap_error(const sonde_nn_session *session, sonde_diag *diag);
void sonde__session_latency_add(sonde__session_latency *latency, double seconds);
sonde_nn_latency sonde__session_latency_get(const sonde__session_latency *latency);

/* session_ranks.c: every rank ends a step with the buffers of rank 0. */
void sonde__session_share_buffers(const sonde_nn_session *session);
/* Adds the gradients of all ranks for the plan's ops RankSum. False: a rank has ended. */
bool sonde__session_sum_ranks(const sonde_nn_session *session);

/* All steps of one call; fewer if session->trap is found, or a rank has ended. */
void sonde__session_execute(sonde_nn_session *session, const sonde_view *inputs);

/* A replica's run: of a pipeline, that of its first slot. */
static inline execution *sonde__session_run(const sonde_nn_session *session, int replica)
{
    return &session->replicas[replica * session->slots].run;
}
/* Where a PLAIN buffer's value lies at the micro-batch: in the plan, or in the caller's
 * input. */
void *sonde__session_buffer_data(const execution *run, const sonde__plan_buffer *buffer);
/* Micro-batches of a call. */
static inline int64_t sonde__session_flat_count(const sonde_nn_options *options)
{
    return (int64_t)options->device_iterations * options->gradient_accumulation *
           options->replicas;
}
/* The micro-batch's place in the flat order of a call. */
size_t sonde__session_flat(const sonde_nn_session *session,
                           const sonde_coordinate *place);

/* session_show.c. Member 0 calls them; sonde__session_is_bad any member. */
void sonde__session_show(execution *run, int first, int count); /* of the plan */
/* Asks a kernel for the wanted vital signs of its operands. */
void sonde__session_ask_vitals(const execution *run, sonde__plan_step *step, bool ask);
/* Whether an update that several parts have run, or member 0 alone, found its gradient
 * bad: then all members come to the same answer, else only member 0 may ask. */
bool sonde__session_is_bad(const sonde__plan_step *step, int parts, int member);
bool sonde__session_is_finite(const sonde__operand *operand);
/* Reports the vital signs of the gradient before it is overwritten. */
void sonde__session_tell_bad(const execution *run, sonde__plan_step *step);
/* Has the outputs computed that exist only to be shown, or leaves them out. */
void sonde__session_set_watched(const execution *run);

#endif
