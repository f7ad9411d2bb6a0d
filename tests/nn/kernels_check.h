/*
 * kernels_check.h - the fast kernels of an op against its scalar reference, on every
 * instruction set of this processor and in one to three parts.
 *
 *     op_run run = {.kind = ..., .attrs = ...};
 *     add_random(&run, DIMS(n, c, h, w));
 *     check(&run, pick, tolerance);            infers, compares, frees the inputs
 */
#ifndef SONDE_TESTS_NN_KERNELS_CHECK_H
#define SONDE_TESTS_NN_KERNELS_CHECK_H

#include "base/cpu.h"
#include "base/macros.h"
#include "base/random.h"
#include "nn/ops_harness.h"

#include "nn/kernels/fast.h"
#include "nn/ops/ops.h"

#include <float.h>

enum { MAX_PARTS = 3, ALL = 0xFF };

/* --- running ------------------------------------------------------------------------ */

static inline float *random_floats(size_t count, uint64_t seed)
{
    float *data = poisoned_block(count * sizeof *data);

    for (size_t i = 0; i < count; i++) {
        data[i] = 2.0F * sonde__uniform(seed, 3, i) - 1.0F;
    }
    return data;
}

static inline void add_input(op_run *run, int rank, const int64_t *dim, void *data,
                             sonde_dtype dtype)
{
    sonde__operand *in = &run->in[run->in_count++];

    in->shape = (sonde__op_shape){.dtype = dtype, .rank = rank};
    memcpy(in->shape.dim, dim, (size_t)rank * sizeof *dim);
    in->data = data;
}

#define DIMS(...)                                                                        \
    (int)SONDE_COUNT_OF(((int64_t[]){__VA_ARGS__})), (int64_t[])                         \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }

static inline sonde__operand plain(const sonde__op_shape *shape, void *data)
{
    return (sonde__operand){*shape, SONDE__PLAIN, data};
}

static inline size_t count_of(int rank, const int64_t *dim)
{
    size_t count = 1;

    for (int i = 0; i < rank; i++) {
        count *= (size_t)dim[i];
    }
    return count;
}

/* An input of random numbers, different for each. */
static inline void add_random(op_run *run, int rank, const int64_t *dim)
{
    add_input(run, rank, dim,
              random_floats(count_of(rank, dim), (uint64_t)(run->in_count + 1)),
              SONDE_F32);
}

static inline void set_dims(op_run *run, int rank, const int64_t *dim)
{
    memcpy(run->attrs.shape.dims, dim, (size_t)rank * sizeof *dim);
    run->attrs.shape.rank = rank;
}

static inline void infer(op_run *run)
{
    sonde_diag diag = {0};

    if (infer_run(run, &diag) != SONDE_OK) {
        fail_msg("%s: %s", run->kind->name, diag.found);
    }
}

static inline void free_inputs(op_run *run)
{
    for (int i = 0; i < run->in_count; i++) {
        free(run->in[i].data);
    }
}

/* Runs a kernel in exactly so many parts, last first, however little there is to do. Of
 * the optional outputs those in `wanted` are given. out[i] is a new plain block or NULL.
 * told (may be NULL): for the vital signs of the outputs in `asked`.
 */
static inline void run_told(const op_run *run, const sonde__op_kernel *kernel, int parts,
                            unsigned wanted, void *out[], unsigned asked,
                            sonde_vitals *told)
{
    const run_options options = {.any = SONDE__LANES};
    sonde__op_call call = {.attrs = &run->attrs,
                           .in_count = run->in_count,
                           .out_count = run->kind->out_count};

    assert_true(kernel_accepts(run, kernel));
    lay_operands(run, kernel, &options, &call);
    for (int i = 0; i < call.out_count; i++) {
        if ((run->kind->optional_out & ~wanted) >> i & 1u) {
            free(call.out[i].data);
            call.out[i].data = NULL;
        }
        if (told != NULL && (asked >> i & 1u) != 0) {
            call.out_vitals[i] = &told[i];
        }
    }
    if (kernel->scratch != NULL) {
        call.scratch = poisoned_block(kernel->scratch(&call, parts));
    }
    for (int part = parts - 1; part >= 0; part--) {
        kernel->run(&call, part, parts);
    }
    if (told != NULL && parts > 1) {
        kernel->finish(&call, parts);
    }
    for (int i = 0; i < call.out_count; i++) {
        out[i] =
            call.out[i].data == NULL ? NULL : poisoned_block(plain_bytes(&run->out[i]));
        if (out[i] != NULL) {
            harness_copy(&run->out[i], call.out[i].layout, call.out[i].data, out[i],
                         true);
        }
        free(call.out[i].data);
    }
    for (int i = 0; i < run->in_count; i++) {
        free(call.in[i].data);
    }
    free(call.scratch);
}

static inline void run_parts(const op_run *run, const sonde__op_kernel *kernel, int parts,
                             unsigned wanted, void *out[])
{
    run_told(run, kernel, parts, wanted, out, 0, NULL);
}

static inline void free_outputs(void *out[], int count)
{
    for (int i = 0; i < count; i++) {
        free(out[i]);
    }
}

/* --- comparing ---------------------------------------------------------------------- */

/* NaN with NaN, infinities and close numbers alike. */
static inline void assert_close(const op_run *run, int i, const void *got,
                                const void *expected, double tolerance)
{
    const size_t count = plain_bytes(&run->out[i]) / sonde_dtype_size(run->out[i].dtype);

    for (size_t k = 0; k < count; k++) {
        const sonde_dtype dtype = run->out[i].dtype;
        const size_t at = k * sonde_dtype_size(dtype);
        const double a = sonde_element_get(dtype, (const char *)got + at);
        const double b = sonde_element_get(dtype, (const char *)expected + at);

        if (isnan(b) ? !isnan(a) : isinf(b) ? a != b : !(fabs(a - b) <= tolerance)) {
            fail_msg("%s, output %d, element %zu is %.9g, expected %.9g +- %.2g",
                     run->kind->name, i, k, a, b, tolerance);
        }
    }
}

static inline void assert_same_bytes(const op_run *run, int i, const void *got,
                                     const void *expected, const char *what)
{
    if (memcmp(got, expected, plain_bytes(&run->out[i])) != 0) {
        fail_msg("%s, output %d: bits differ %s", run->kind->name, i, what);
    }
}

/* Which kernel of a list. */
typedef struct pick {
    sonde__kernel_fast_op op;
    int place;
} pick;

#define DEFINE_PICK(name, op, place) static const pick name = {SONDE__FAST_##op, place};
#define KERNEL(isa, op, place) sonde__kernel_fast_kernels_of(isa, SONDE__FAST_##op)[place]

static inline const sonde__op_kernel *picked(sonde__isa isa, pick which)
{
    return sonde__kernel_fast_kernels_of(isa, which.op)[which.place];
}

/* Every instruction set's kernel against the reference, and parts against each other.
 * Frees the inputs. */
static inline void check(op_run *run, pick which, double tolerance)
{
    void *expected[SONDE__MAX_OPERANDS];

    infer(run);
    run_kernel(run, reference_of(run->kind), &(run_options){.parts = 1}, expected);
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__op_kernel *kernel = picked((sonde__isa)isa, which);
        void *whole[SONDE__MAX_OPERANDS], *got[SONDE__MAX_OPERANDS];

        run_parts(run, kernel, 1, ALL, whole);
        for (int i = 0; i < run->kind->out_count; i++) {
            assert_close(run, i, whole[i], expected[i], tolerance);
        }
        for (int parts = 2; parts <= MAX_PARTS; parts++) {
            run_parts(run, kernel, parts, ALL, got);
            for (int i = 0; i < run->kind->out_count; i++) {
                assert_same_bytes(run, i, got[i], whole[i], "with the number of parts");
            }
            free_outputs(got, run->kind->out_count);
        }
        free_outputs(whole, run->kind->out_count);
    }
    free_outputs(expected, run->kind->out_count);
    free_inputs(run);
}

/* Sums of `depth` products of numbers below 1: each rounding is at most half an epsilon
 * of a partial sum, which is of the order of sqrt(depth). */
static inline double sum_tolerance(int64_t depth)
{
    return (double)FLT_EPSILON *
           (8.0 + sqrt((double)depth) * (4.0 + sqrt((double)depth) / 8));
}

/* NaN and infinities in the first two float inputs of a run. */
static inline void spoil(op_run *run)
{
    for (int i = 0; i < 2 && i < run->in_count; i++) {
        float *data = run->in[i].data;
        const size_t count = plain_bytes(&run->in[i].shape) / sizeof *data;

        if (run->in[i].shape.dtype == SONDE_F32) {
            data[count / 2] = i == 0 ? NAN : INFINITY;
            data[count - 1] = -INFINITY;
            data[0] = INFINITY;
        }
    }
}

/* Numbers that ReLU and max-pool tell apart by their sign or not at all; NaN and Inf
 * among them unless `tame`. */
static inline void put_oddities(op_run *run, bool tame)
{
    static const float odd[] = {0.0F, -0.0F, 1.0F, -1.0F, -INFINITY, INFINITY, NAN};
    const size_t most = SONDE_COUNT_OF(odd) - (tame ? 2 : 0);
    float *x = run->in[0].data;
    const size_t count = plain_bytes(&run->in[0].shape) / sizeof *x;

    for (size_t i = 0; i < count; i++) {
        x[i] = odd[sonde__below(11, 5, i, most)];
    }
}

#endif
