/*
 * compile.h - from a model to a plan: the passes, in their order.
 *
 *     instantiate   a copy of the forward graph for the micro-batch, its products in
 *                   bfloat16 or float16 if the options or a layer say so (autocast.c)
 *     autodiff      gradients as values              (training)
 *     track         buffers brought up to date       (training)
 *     accumulate    their sums over micro-batches    (G > 1)
 *                   and over replicas                (R > 1)
 *     optimize      updates as values                (training)
 *     prune         removes unused ops
 *     fuse          neighbors become one op, same bits
 *     stage         in the order of a pipeline's stages   (blocks)
 *     name          the catalogue: everything that can be observed
 *     layout        a kernel for every op, reorders between kernels
 *     plan          one block of memory by lifetimes, threads, taps
 *
 * A program is what the passes up to `stage` work on.
 */
#ifndef SONDE_NN_COMPILE_COMPILE_H
#define SONDE_NN_COMPILE_COMPILE_H

#include "base/memory.h"
#include "nn/graph/graph.h"

#include <sonde/nn/session.h>
#include <sonde/observer.h>

#include <stdio.h>

/* --- the plan ----------------------------------------------------------------------- */

/*
 * A flat list of steps over one block of memory: what a session runs. Immutable once
 * made, except for the pointers to the caller's inputs and to wanted vital signs, which
 * the executor sets.
 *
 *     steps   [ micro-batch: forward, backward, accumulate | update ]
 *              0                                micro_steps   step_count
 *
 * With G = 1 and R = 1 everything is in the first part, updates included, as early as
 * their weights are free.
 *
 * With R > 1 every replica has a plan of its own, with the same steps over an arena,
 * accumulators and buffers of its own; parameters and the optimizer's state are those of
 * the first replica, whose plan alone runs the second part.
 */

typedef enum sonde__plan_place {
    SONDE__IN_ARENA = 0,
    SONDE__IN_INPUT = 1, /* of the caller; moves with every micro-batch */
    SONDE__IN_PARAM = 2,
    SONDE__IN_STATE = 3,
    SONDE__IN_BUFFER = 4, /* of the model */
    SONDE__IN_HYPER = 5   /* a number of the optimizer */
} sonde__plan_place;

/* Memory of one value in one layout. */
typedef struct sonde__plan_buffer {
    sonde__op_value value;
    sonde__op_shape shape;
    sonde__op_layout layout;
    sonde__plan_place place;
    int index;       /* of the input, parameter, state or buffer */
    size_t bytes;    /* layout padding included */
    size_t offset;   /* in the arena */
    int first, last; /* steps that write it first and read it last */
    void *data;      /* NULL for an input */
} sonde__plan_buffer;

/* A tensor to be shown to the observer once a step is done. */
typedef struct sonde__plan_showing {
    uint32_t id;
    int buffer;      /* -1: only its vital signs exist */
    sonde_view view; /* PLAIN; its data is NULL where that is known only while running */
    int vitals_in, vitals_out; /* operand whose vital signs the kernel gives; -1: none */
    int slot; /* of the plan's vitals; names of the same elements share one */
} sonde__plan_showing;

typedef struct sonde__plan_step {
    const sonde__op_kind *kind;
    const sonde__op_kernel *kernel;
    sonde__op_attrs attrs;
    sonde__op_call call; /* ready to run except for inputs */
    int in_buffer[SONDE__MAX_OPERANDS];
    int out_buffer[SONDE__MAX_OPERANDS]; /* -1: not kept */
    sonde__op_value in_value[SONDE__MAX_OPERANDS];
    sonde__op_value out_value[SONDE__MAX_OPERANDS];
    int parts;
    size_t scratch_bytes;
    int first_showing, showing_count;
    unsigned watched; /* bit k: output k exists only to be shown */
    bool fuses;       /* the kernel provides vital signs of a value that is shown */
    bool update;
    uint32_t gradient; /* of an update: the tensor it reports as bad, see call.bad */
    const char *module;
} sonde__plan_step;

/* An output that exists only to be shown: left out at steps at which no observer wants
 * it. */
typedef struct sonde__plan_watched {
    int step, operand;
} sonde__plan_watched;

/* A value that shares another's buffer under its own shape: a reshape, an identity. */
typedef struct sonde__plan_seen_as {
    sonde__op_value value;
    int buffer;
} sonde__plan_seen_as;

/* An output of a session: a PLAIN buffer, under the shape of the value, which may be a
 * view. */
typedef struct sonde__plan_returned {
    int buffer;
    sonde__op_shape shape;
} sonde__plan_returned;

/* An operand that points into the caller's input. */
typedef struct sonde__plan_patch {
    int step, operand, input;
} sonde__plan_patch;

/* An int64 input whose elements must be classes or the like. */
typedef struct sonde__plan_target {
    int input;
    sonde__op_ids ids;
} sonde__plan_target;

/* State of the optimizer, or an accumulator: kept between steps and in checkpoints. */
typedef struct sonde__plan_state {
    const char *name; /* of the value that the update makes */
    sonde__op_shape shape;
    float *data;
    bool accumulator; /* zeroed when a step begins */
} sonde__plan_state;

/* Places of the numbers that updates share in a plan's `hyper`; the learning rates of the
 * groups follow, the default's first. */
enum {
    SONDE__HYPER_STEP = 0, /* int64 */
    SONDE__HYPER_CLIP_NORM = 1,
    SONDE__HYPER_LOSS_SCALE = 2,
    SONDE__HYPER_RATES = 3
};

/* Automatic loss scaling: between `gate`, the first update, and `last`, the op that moves
 * the scale, steps are left out where *found is not 0. */
typedef struct sonde__plan_scaler {
    const float *found;
    float *scale, *skipped; /* NULL: the scale is fixed */
    size_t gate, last;
} sonde__plan_scaler;

/* A hash of what the places of a plan depend on (plan.c). */
typedef struct sonde__plan_key {
    uint64_t low, high;
} sonde__plan_key;

/* Where the buffers of a plan lie, and then the scratch of its steps: offsets in the arena.
 * Read from a file, they are checked before they are used. */
typedef struct sonde__plan_places {
    sonde__plan_key key;
    size_t steps, count; /* count: buffers and steps */
    uint64_t *offset;
    uint64_t arena_bytes;
} sonde__plan_places;

/* Where the pass plan asks for places. */
typedef struct sonde__plan_lookup {
    const void *context; /* goes into the key, besides the plan */
    size_t context_size;
    /* NULL: unknown. Borrowed until the end of the pass. */
    const sonde__plan_places *(*find)(void *user, const sonde__plan_key *key);
    void *user;
} sonde__plan_lookup;

typedef struct sonde__plan {
    sonde__plan_key key; /* zeros: not computed */
    bool known;          /* its places were */
    sonde__plan_step *steps;
    size_t step_count, step_capacity;
    size_t micro_steps;
    size_t ranked, summed; /* sums over ranks: the first step, and the first after them,
                              from which updates begin; 0: none */
    sonde__plan_buffer *buffers;
    size_t buffer_count, buffer_capacity;
    sonde__plan_seen_as *views;
    size_t view_count, view_capacity;
    sonde__plan_showing *showings; /* after steps, in their order */
    size_t showing_count, showing_capacity;
    int first_start, start_count; /* showings when a micro-batch starts: inputs */
    int first_end, end_count; /* when one ends, before an update that is not yet due */
    sonde__plan_returned *outputs; /* alive at the end of a micro-batch */
    size_t output_count;
    sonde__plan_watched *watched;
    size_t watched_count, watched_capacity;
    bool watching; /* some of them are being computed just now */
    sonde__plan_patch *patches;
    size_t patch_count, patch_capacity;
    sonde__plan_target *targets;
    size_t target_count, target_capacity;
    sonde__plan_state *states;
    size_t state_count;
    sonde_vitals *vitals; /* slots of showings, at most one for each */
    uint8_t *bad;         /* updates' reports about their gradients, an entry a part */
    /* Numbers of the optimizer (ops.h): for each group, and for each without weight
     * decay. All replicas read the first one's. */
    float (*live)[SONDE__LIVE_COUNT];
    int64_t *hyper; /* what named hyper-parameters show; an int64 or a float each */
    sonde__plan_scaler scaler;
    sonde__op_draw draw; /* of the micro-batch at hand */
    unsigned char *arena;
    size_t arena_bytes, largest_live, state_bytes;
    float *state_block;
    void *show_scratch; /* a value reordered to PLAIN before it is shown */
    int replica, slot;
    void *buffer_block;         /* the model's buffers, of replicas after the first */
    const void **replica_block; /* where the replicas have what is summed over them */
    float *rank_block;          /* what is summed over ranks, one after the other */
    int64_t rank_count;         /* floats of it; scratch of the sum follows */
    size_t *segments;           /* first step of each, and the end; NULL: no stages */
    int threads;                /* that pay for the steps of a micro-batch */
    int most_parts;             /* of any step */
} sonde__plan;

void sonde__plan_fini(sonde__plan *plan);

/* A parameter on its way to its update. */
typedef struct sonde__plan_trained {
    sonde__op_value param;
    sonde__op_value gradient; /* of a micro-batch; 0: the loss does not depend on it */
    sonde__op_value
        summed; /* over the micro-batches of a step; gradient if there is one. After the
                   pass optimize what the update reads: it may be clipped */
} sonde__plan_trained;

typedef struct sonde__plan_program {
    sonde__op_graph graph;
    const sonde_nn_model *model;
    const sonde_nn_options *options;
    const sonde_nn_optimizer *optimizer; /* NULL: inference */
    sonde_nn_ranks *ranks;               /* that train together; NULL: this one alone */
    const sonde_nn_group *groups;        /* of so many; the default is none of them */
    size_t group_count;
    int *group_of; /* by parameter: 0 the default, else one more than in groups */
    sonde__op_value *gradient_of; /* by value id of the forward graph; 0: none */
    int64_t batch_size;           /* samples of a micro-batch */
    size_t forward_values;
    sonde__plan_trained *trained; /* one for each of the model's parameters */
    size_t micro_ops;             /* ops before this index run for every micro-batch */
} sonde__plan_program;

sonde_err sonde__plan_program_init(sonde__plan_program *program,
                                   const sonde_nn_model *model,
                                   const sonde_nn_options *options,
                                   const sonde_nn_optimizer *optimizer, sonde_diag *diag);
void sonde__plan_program_fini(sonde__plan_program *program);
/* program.c: gives every parameter to the first group that selects it. SONDE_ENOTFOUND: a
 * group that selects none. groups are borrowed. */
sonde_err sonde__plan_take_groups(sonde__plan_program *program,
                                  const sonde_nn_group *groups, size_t count,
                                  sonde_diag *diag);
/* The numbers of a group. */
const sonde_nn_optimizer *sonde__plan_optimizer(const sonde__plan_program *program,
                                                int group);

/* Each leaves the graph's error set on failure. */
void sonde__plan_autocast(sonde__plan_program *program);
void sonde__pass_autodiff(sonde__plan_program *program);
void sonde__pass_track(sonde__plan_program *program);
void sonde__pass_accumulate(sonde__plan_program *program);
void sonde__pass_optimize(sonde__plan_program *program);
void sonde__pass_prune(sonde__plan_program *program);
void sonde__pass_fuse(sonde__plan_program *program);
void sonde__pass_stage(sonde__plan_program *program);

/* Declares every named value; id_of (by value id, value_count entries) gets the tensor
 * ids, SONDE_NO_TENSOR where a value has no name. */
sonde_err sonde__pass_name(const sonde__plan_program *program, sonde_catalogue *catalogue,
                           uint32_t *id_of, sonde_diag *diag);

/* Steps and buffers, with kernels and layouts chosen; nothing placed yet. observer (may
 * be NULL) decides which values must exist in memory. */
sonde_err sonde__pass_layout(const sonde__plan_program *program, const uint32_t *id_of,
                             const sonde_observer *observer, sonde__plan *plan,
                             sonde_diag *diag);
/* Where a plan runs. */
typedef struct sonde__plan_device {
    /* The plan that has what is shared: the first replica's, of a slot > 0 its replica's
     * first; NULL: this is it. */
    const sonde__plan *first;
    int replica;
    int slot; /* > 0: of another micro-batch in a pipeline; it shares all but the arena */
    int replicas;
    int threads;                      /* at most, for all replicas */
    const sonde__plan_lookup *lookup; /* of places; NULL: they are found anew */
} sonde__plan_device;

/* Places buffers, allocates the block, binds taps. */
sonde_err sonde__pass_plan(const sonde__plan_program *program, const uint32_t *id_of,
                           const sonde_observer *observer,
                           const sonde__plan_device *device, sonde__plan *plan,
                           sonde_diag *diag);
/* arena.c, which that pass calls once it knows how much scratch each step needs. */
sonde_err sonde__plan_make_arena(const sonde__plan_device *device, sonde__plan *plan,
                                 sonde_diag *diag);
/* False: memory is out. */
bool sonde__plan_set_key(const sonde__plan_program *program,
                         const sonde__plan_lookup *lookup, sonde__plan *plan);
/* Pages of unspecified content, or of zeros; large ones cost nothing before they are
 * touched. */
void *sonde__plan_take_pages(size_t bytes, bool zeros);
/* Once all replicas have plans: the first one's sums over replicas read them. */
sonde_err sonde__plan_join_replicas(sonde__plan *const *plans, int count,
                                    sonde_diag *diag);
/* Brings a later replica's buffers of the model to the first one's values. */
void sonde__plan_take_buffers(const sonde__plan *plan, const sonde_nn_model *model);
/* The last part of it: which tensor is shown after which step. */
sonde_err sonde__plan_bind_taps(const sonde__plan_program *program, const uint32_t *id_of,
                                const sonde_observer *observer, sonde__plan *plan,
                                sonde_diag *diag);

/* --- helpers of the passes ---------------------------------------------------------- */

static inline size_t sonde__plan_aligned(size_t bytes)
{
    return (bytes + SONDE__ALIGN - 1) / SONDE__ALIGN * SONDE__ALIGN;
}

/* Whether updates have a part of their own, after all micro-batches. */
static inline bool sonde__plan_splits(const sonde__plan_program *program)
{
    return program->options->gradient_accumulation > 1 ||
           program->options->replicas > 1 || sonde_nn_ranks_count(program->ranks) > 1;
}

static inline bool sonde__plan_scales(const sonde__plan_program *program)
{
    return program->optimizer != NULL && (program->optimizer->loss_scaling != 0.0F ||
                                          program->optimizer->automatic_loss_scaling);
}

/* Whether updates follow all gradients: a step may be left out if one is not finite. */
static inline bool sonde__plan_updates_apart(const sonde__plan_program *program)
{
    return sonde__plan_splits(program) ||
           (program->optimizer != NULL && program->optimizer->automatic_loss_scaling);
}

/* Whether micro-batches go through stages: in training with blocks. */
static inline bool sonde__plan_has_stages(const sonde__plan_program *program)
{
    return program->optimizer != NULL && program->graph.stage_count > 1 &&
           program->options->execution != SONDE_NN_SEQUENTIAL;
}
/* The segment of an op, 0 ... 2 stages - 1. */
int sonde__plan_segment(const sonde__op_graph *graph, const sonde__graph_node_op *op);

/* How many live ops read a value. */
size_t sonde__plan_use_count(const sonde__op_graph *graph, sonde__op_value value);
/* The index of the live op that makes a value; SIZE_MAX if none does. */
size_t sonde__plan_producer(const sonde__op_graph *graph, sonde__op_value value);

/* The graph as text, one op a line. */
void sonde__plan_dump_graph(const sonde__op_graph *graph, FILE *stream);
void sonde__plan_dump_plan(const sonde__plan *plan, FILE *stream);

#endif
