/*
 * ops_harness.h - runs one kernel of one op on plain data, whatever layouts it wants.
 *
 * Memory that a kernel must not rely on is poisoned with 0xFF bytes (NaN in every float
 * dtype): lanes past N, outputs before the run, scratch. Blocks have exactly the size
 * that the contract gives, so AddressSanitizer sees a step past the end.
 */
#ifndef SONDE_TESTS_NN_OPS_HARNESS_H
#define SONDE_TESTS_NN_OPS_HARNESS_H

#include "base/memory.h"
#include "cmocka_all.h"

#include "nn/ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIVE = SONDE__LIVE_COUNT };

/* An op to be run: data of in[] is plain. */
typedef struct op_run {
    const sonde__op_kind *kind;
    sonde__op_attrs attrs;
    int in_count;
    sonde__operand in[SONDE__MAX_OPERANDS];
    sonde__op_shape out[SONDE__MAX_OPERANDS]; /* by infer_run */
    float live[MAX_LIVE];
} op_run;

void *poisoned_block(size_t size);

size_t plain_bytes(const sonde__op_shape *shape);

/* --- layouts, spelled out a second time --------------------------------------------- */

int64_t harness_samples(const sonde__op_shape *shape);

int64_t harness_inner(const sonde__op_shape *shape);

int64_t harness_place(const sonde__op_shape *shape, sonde__op_layout layout, int64_t n,
                      int64_t k);

int64_t harness_count(const sonde__op_shape *shape, sonde__op_layout layout);

/* Copies every element between a plain block and a block in a layout. */
void harness_copy(const sonde__op_shape *shape, sonde__op_layout layout, void *laid,
                  void *plain, bool to_plain);

/* A new block that holds plain's elements in a layout. */
void *harness_lay(const sonde__operand *plain, sonde__op_layout layout);

/* --- running ------------------------------------------------------------------------ */

sonde_err infer_run(op_run *run, sonde_diag *diag);

const sonde__op_kernel *reference_of(const sonde__op_kind *kind);

/* Whether a kernel takes the op, given what is known before layouts are. */
bool kernel_accepts(const op_run *run, const sonde__op_kernel *kernel);

typedef struct run_options {
    sonde__op_layout any; /* what ANY stands for */
    int parts;            /* at most; the kernel may want fewer */
    bool leave_out;       /* optional outputs are not given */
} run_options;

sonde__op_layout layout_for(sonde__op_layout layout, const run_options *options);

void lay_operands(const op_run *run, const sonde__op_kernel *kernel,
                  const run_options *options, sonde__op_call *call);

/*
 * Runs a kernel. out[i] gets a new plain block of the i-th output, NULL if it was not
 * given; the caller frees them.
 */
void run_kernel(const op_run *run, const sonde__op_kernel *kernel,
                const run_options *options, void *out[]);

#endif
