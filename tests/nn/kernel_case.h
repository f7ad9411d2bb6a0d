/*
 * kernel_case.h - running one kernel on tensors given row-major, in the layouts it wants:
 * operands end at a page that must not be touched, lanes past N are NaN, and every number
 * of parts has to give the same bits.
 *
 *     kernel_case c;
 *     case_init(&c, &attrs, live);
 *     case_in(&c, x, 2, n, k);          row-major, or NULL: not given
 *     case_out(&c, y, 2, n, o);         row-major results; NULL: not wanted
 *     case_run(&c, kernel, parts);
 *
 * An output that shares its memory with an input is named by case_alias. Nothing frees
 * the pages of operands before the process ends but case_run itself.
 */
#ifndef SONDE_TESTS_KERNEL_CASE_H
#define SONDE_TESTS_KERNEL_CASE_H

#include "base/cpu.h"
#include "base/random.h"
#include "cmocka_all.h"
#include "nn/kernels/fast.h"
#include "nn/ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct kernel_case {
    sonde__op_call call;
    const float *in[SONDE__MAX_OPERANDS];
    float *out[SONDE__MAX_OPERANDS];
    int alias[SONDE__MAX_OPERANDS]; /* output i is input alias[i] - 1 */
    sonde_vitals
        *again; /* where the kernel's `again` puts those of output 1; NULL: not run */
} kernel_case;

/* A block that ends where memory ends. */
typedef struct guarded {
    void *pages, *data;
    size_t mapped;
} guarded;

static inline guarded guarded_alloc(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t whole = (bytes + page - 1) / page * page;
    guarded g = {.mapped = whole + page};

    g.pages =
        mmap(NULL, g.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.pages != MAP_FAILED);
    assert_int_equal(mprotect((char *)g.pages + whole, page, PROT_NONE), 0);
    g.data = (char *)g.pages + whole - bytes;
    return g;
}

static inline void guarded_free(guarded g)
{
    assert_int_equal(munmap(g.pages, g.mapped), 0);
}

static inline void case_init(kernel_case *c, const sonde__op_attrs *attrs,
                             const float *live)
{
    memset(c, 0, sizeof *c);
    c->call.attrs = attrs;
    c->call.live = live;
}

static inline sonde__op_shape case_shape(int rank, int64_t d0, int64_t d1)
{
    const sonde__op_shape shape = {
        SONDE_F32, rank, {rank > 0 ? d0 : 0, rank > 1 ? d1 : 0}};

    return shape;
}

static inline void case_in(kernel_case *c, const float *data, int rank, int64_t d0,
                           int64_t d1)
{
    c->call.in[c->call.in_count].shape = case_shape(rank, d0, d1);
    c->in[c->call.in_count++] = data;
}

static inline void case_out(kernel_case *c, float *data, int rank, int64_t d0, int64_t d1)
{
    c->call.out[c->call.out_count].shape = case_shape(rank, d0, d1);
    c->out[c->call.out_count++] = data;
}

/* The last output is input i, updated in place. */
static inline void case_alias(kernel_case *c, int i)
{
    c->alias[c->call.out_count - 1] = i + 1;
}

/* Where element (n, k) of a matrix lies: ops.h's drawings, once more. */
static inline int64_t case_at(const sonde__operand *o, int64_t n, int64_t k)
{
    const int64_t rows = o->shape.rank > 0 ? o->shape.dim[0] : 1;
    const int64_t cols = o->shape.rank > 1 ? o->shape.dim[1] : 1;

    switch (o->layout) {
    case SONDE__LANES:
        return n / 16 * cols * 16 + k * 16 + n % 16;
    case SONDE__PANELS:
        return k / 32 * rows * 32 + n * 32 + k % 32;
    case SONDE__PLAIN:
    case SONDE__ANY:
        break;
    }
    return n * cols + k;
}

static inline void case_move(const sonde__operand *o, const float *from, float *to)
{
    const int64_t rows = o->shape.rank > 0 ? o->shape.dim[0] : 1;
    const int64_t cols = o->shape.rank > 1 ? o->shape.dim[1] : 1;

    for (int64_t n = 0; n < rows; n++) {
        for (int64_t k = 0; k < cols; k++) {
            if (from != NULL) {
                ((float *)o->data)[case_at(o, n, k)] = from[n * cols + k];
            } else {
                to[n * cols + k] = ((float *)o->data)[case_at(o, n, k)];
            }
        }
    }
}

/* Memory for an operand: lanes past N are NaN, columns of panels past K zeros. */
static inline guarded case_place(sonde__operand *o)
{
    const int64_t count = sonde__op_layout_count(&o->shape, o->layout);
    const guarded g = guarded_alloc((size_t)count * sizeof(float));

    o->data = g.data;
    for (int64_t i = 0; i < count; i++) {
        ((float *)o->data)[i] = o->layout == SONDE__PANELS ? 0.0F : NAN;
    }
    return g;
}

/* Runs all parts, last first, and brings the results to row-major. */
static inline void case_run(kernel_case *c, const sonde__op_kernel *kernel, int parts)
{
    sonde__op_call *call = &c->call;
    guarded in[SONDE__MAX_OPERANDS] = {{0}}, out[SONDE__MAX_OPERANDS] = {{0}};
    guarded scratch = {0};
    size_t bytes = 0;

    assert_true(kernel->accepts == NULL || kernel->accepts(call));
    for (int i = 0; i < call->in_count; i++) {
        call->in[i].layout = kernel->in[i] == SONDE__ANY ? SONDE__PLAIN : kernel->in[i];
        call->in[i].data = NULL;
        if (c->in[i] != NULL) {
            in[i] = case_place(&call->in[i]);
            case_move(&call->in[i], c->in[i], NULL);
        }
    }
    for (int i = 0; i < call->out_count; i++) {
        call->out[i].layout =
            kernel->out[i] == SONDE__ANY ? SONDE__PLAIN : kernel->out[i];
        call->out[i].data = NULL;
        if (c->alias[i] > 0) {
            call->out[i].data = call->in[c->alias[i] - 1].data;
        } else if (c->out[i] != NULL) {
            out[i] = case_place(&call->out[i]);
        }
    }
    bytes = kernel->scratch == NULL ? 0 : kernel->scratch(call, parts);
    scratch = guarded_alloc((bytes + 63) / 64 * 64);
    memset(scratch.data, 0xFF, bytes); /* NaN */
    call->scratch = bytes == 0 ? NULL : scratch.data;
    for (int part = parts - 1; part >= 0; part--) {
        kernel->run(call, part, parts);
    }
    if (kernel->finish != NULL && parts > 1) {
        kernel->finish(call, parts);
    }
    if (c->again != NULL) {
        sonde_vitals *const kept[] = {call->out_vitals[0], call->out_vitals[1],
                                      call->out_vitals[2]};

        call->out_vitals[0] = call->out_vitals[2] = NULL;
        call->out_vitals[1] = c->again;
        call->norms_out = 0;
        kernel->again(call);
        memcpy(call->out_vitals, kept, sizeof kept);
    }
    for (int i = 0; i < call->out_count; i++) {
        if (c->out[i] != NULL) {
            case_move(&call->out[i], NULL, c->out[i]);
        }
        if (out[i].pages != NULL) {
            guarded_free(out[i]);
        }
    }
    for (int i = 0; i < call->in_count; i++) {
        if (in[i].pages != NULL) {
            guarded_free(in[i]);
        }
    }
    guarded_free(scratch);
}

/* Whether any of the parts that ran told of a bad gradient. */
static inline bool case_is_bad(const uint8_t *bad, int parts)
{
    bool any = false;

    for (int i = 0; i < parts; i++) {
        assert_true(bad[i] <= 1);
        any = any || bad[i] != 0;
    }
    return any;
}

static inline bool case_has_bad(const float *x, size_t count)
{
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        any = any || !isfinite(x[i]);
    }
    return any;
}

/* The scalar reference of a kind: the last in its list. */
static inline const sonde__op_kernel *case_reference(const sonde__op_kind *kind)
{
    return &kind->reference;
}

/* NaN with NaN, infinities and close numbers alike. */
static inline void assert_close(const float *got, const float *expected, size_t count,
                                double tolerance)
{
    for (size_t i = 0; i < count; i++) {
        const double a = (double)got[i], b = (double)expected[i];

        if (isnan(b) ? !isnan(a) : isinf(b) ? a != b : !(fabs(a - b) <= tolerance)) {
            fail_msg("element %zu is %.9g, expected %.9g +- %.2g", i, a, b, tolerance);
        }
    }
}

static inline void assert_same_bits(const float *got, const float *expected, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &expected[i], sizeof *got) != 0) {
            fail_msg("element %zu is %a, expected %a", i, (double)got[i],
                     (double)expected[i]);
        }
    }
}

/* count numbers in [-1, 1), different for every seed. */
static inline float *case_random(size_t count, uint64_t seed)
{
    float *data = malloc((count + 1) * sizeof *data);

    assert_non_null(data);
    for (size_t i = 0; i < count; i++) {
        data[i] = 2.0F * sonde__uniform(seed, 7, i) - 1.0F;
    }
    return data;
}

enum { MAX_PARTS = 3 };

/* --- every kernel of a list, on every instruction set ------------------------------- */

typedef void (*check_fn)(const sonde__op_kernel *kernel, const void *argument);

static inline void each_kernel(sonde__kernel_fast_op op, check_fn check,
                               const void *argument)
{
    for (int isa = SONDE__GENERIC; isa <= (int)sonde__cpu_isa(); isa++) {
        const sonde__op_kernel *const *list =
            sonde__kernel_fast_kernels_of((sonde__isa)isa, op);

        assert_non_null(list[0]);
        for (; *list != NULL; list++) {
            check(*list, argument);
        }
    }
}

/* An op with in[0] and in[1] row-major and one output, against its reference. */
typedef struct op_case {
    const sonde__op_kind *kind;
    kernel_case base;
    int out;          /* the output that is compared */
    size_t count;     /* of its elements */
    double tolerance; /* absolute */
} op_case;

static inline void check_op(const sonde__op_kernel *kernel, const void *argument)
{
    const op_case *op = argument;
    float *expected = case_random(op->count, 1), *got[MAX_PARTS + 1] = {NULL};
    kernel_case c = op->base;

    c.out[op->out] = expected;
    case_run(&c, case_reference(op->kind), 1);
    for (int parts = 1; parts <= MAX_PARTS; parts++) {
        got[parts] = case_random(op->count, 2);
        c.out[op->out] = got[parts];
        case_run(&c, kernel, parts);
        assert_close(got[parts], expected, op->count, op->tolerance);
        assert_same_bits(got[parts], got[1], op->count);
    }
    for (int parts = 1; parts <= MAX_PARTS; parts++) {
        free(got[parts]);
    }
    free(expected);
}

/* --- vital signs and rules ---------------------------------------------------------- */

/* live of SGD: lr, momentum, dampening, decay, nesterov, scale, first. */
static const float sgd_rules[][7] = {
    {0.1F, 0.9F, 0.0F, 0.0F, 0.0F, 1.0F, 0.0F},
    {0.1F, 0.9F, 0.0F, 0.0F, 0.0F, 1.0F, 1.0F},
    {0.1F, 0.0F, 0.0F, 0.0F, 0.0F, 0.5F, 0.0F},
    {0.1F, 0.9F, 0.3F, 0.01F, 0.0F, 1.0F, 0.0F},
    {0.1F, 0.9F, 0.0F, 0.01F, 1.0F, 0.25F, 0.0F},
};

static inline sonde_vitals vitals_of(float *data, size_t count)
{
    const int64_t shape[] = {(int64_t)count};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, data);
    sonde_vitals vitals;

    sonde_vitals_of(&view, &vitals);
    return vitals;
}

static inline void assert_same_vitals(const sonde_vitals *got, float *data, size_t count)
{
    const sonde_vitals expected = vitals_of(data, count);

    assert_memory_equal(got, &expected, sizeof expected);
}

#endif
