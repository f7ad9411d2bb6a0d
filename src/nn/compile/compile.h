/*
 * compile.h - from a model to a plan: the passes, in their order.
 *
 *     instantiate   a copy of the forward graph for the micro-batch
 *     autodiff      gradients as values              (training)
 *     accumulate    their sums over micro-batches    (G > 1)
 *     optimise      updates as values                (training)
 *     prune         removes unused ops
 *     fuse          neighbours become one op, same bits
 *     name          the catalogue: everything that can be observed
 *     layout        a kernel for every op, reorders between kernels
 *     plan          one block of memory by lifetimes, threads, taps
 *
 * A program is what the passes up to `fuse` work on.
 */
#ifndef SONDE_NN_COMPILE_COMPILE_H
#define SONDE_NN_COMPILE_COMPILE_H

#include <stdio.h>

#include <sonde/nn/session.h>

#include "nn/compile/plan.h"
#include "nn/graph/graph.h"

/* A parameter on its way to its update. */
typedef struct sonde__plan_trained {
    sonde__op_value param;
    sonde__op_value gradient; /* of a micro-batch; 0: the loss does not depend on it */
    sonde__op_value
        summed; /* over the micro-batches of a step; gradient if there is one */
} sonde__plan_trained;

typedef struct sonde__plan_program {
    sonde__op_graph graph;
    const sonde_nn_model *model;
    const sonde_nn_options *options;
    const sonde_nn_optimizer *optimizer; /* NULL: inference */
    sonde__op_value *gradient_of;        /* by value id of the forward graph; 0: none */
    int64_t batch_size;                  /* samples of a micro-batch */
    size_t forward_values;
    sonde__plan_trained *trained; /* one for each of the model's parameters */
    size_t micro_ops;             /* ops before this index run for every micro-batch */
} sonde__plan_program;

sonde_err sonde__plan_program_init(sonde__plan_program *program,
                                   const sonde_nn_model *model,
                                   const sonde_nn_options *options,
                                   const sonde_nn_optimizer *optimizer, sonde_diag *diag);
void sonde__plan_program_fini(sonde__plan_program *program);

/* Each leaves the graph's error set on failure. */
void sonde__pass_autodiff(sonde__plan_program *program);
void sonde__pass_accumulate(sonde__plan_program *program);
void sonde__pass_optimise(sonde__plan_program *program);
void sonde__pass_prune(sonde__plan_program *program);
void sonde__pass_fuse(sonde__plan_program *program);

/* Declares every named value; id_of (by value id, value_count entries) gets the tensor ids,
 * SONDE_NO_TENSOR where a value has no name. */
sonde_err sonde__pass_name(const sonde__plan_program *program, sonde_catalogue *catalogue,
                           uint32_t *id_of, sonde_diag *diag);

/* Steps and buffers, with kernels and layouts chosen; nothing placed yet. observer (may
 * be NULL) decides which values must exist in memory. */
sonde_err sonde__pass_layout(const sonde__plan_program *program, const uint32_t *id_of,
                             const sonde_observer *observer, sonde__plan *plan,
                             sonde_diag *diag);
/* Places buffers, allocates the block, binds taps. */
sonde_err sonde__pass_plan(const sonde__plan_program *program, const uint32_t *id_of,
                           const sonde_observer *observer, int max_threads,
                           sonde__plan *plan, sonde_diag *diag);
/* The last part of it: which tensor is shown after which step. */
sonde_err sonde__plan_bind_taps(const sonde__plan_program *program, const uint32_t *id_of,
                                const sonde_observer *observer, sonde__plan *plan,
                                sonde_diag *diag);

/* --- helpers of the passes ---------------------------------------------------------- */

/* How many live ops read a value. */
size_t sonde__plan_use_count(const sonde__op_graph *graph, sonde__op_value value);
/* The index of the live op that makes a value; SIZE_MAX if none does. */
size_t sonde__plan_producer(const sonde__op_graph *graph, sonde__op_value value);

/* The graph as text, one op a line. */
void sonde__plan_dump_graph(const sonde__op_graph *graph, FILE *stream);
void sonde__plan_dump_plan(const sonde__plan *plan, FILE *stream);

#endif
