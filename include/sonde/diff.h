/*
 * diff.h - the first difference between two runs, and what differs after it.
 *
 * Compares what both sides have: two runs (or directories of smdebug) step by step, as
 * their modes count, and tensor by tensor in the order in which a step computes them; or
 * two sets of weights (a safetensors file, or a folder of them). Where a value is recorded
 * on both sides, its hashes are compared first, then its elements; where only statistics
 * are, those.
 *
 * Which differences rounding explains: two sums of n terms that are added in another order
 * differ by about u sqrt(n) times their size, u being the unit roundoff (2^-24 for
 * float32); see Higham and Mary 2019, "A new approach to probabilistic rounding error
 * analysis". Along a step, n is the number of terms of all sums so far, from the program
 * of the step. So at the first step
 *
 *     rms(a - b) / rms(a) <= 8 u sqrt(n)
 *
 * and later, as training makes small differences grow, at most 100 times the largest ratio
 * of the steps before. u is that of the coarsest dtype met so far. Look for another
 * cause of a difference beyond that. The factors 8 and 100 are a choice, tried with runs of
 * one machine; between machines or devices, a yardstick or a tolerance says more.
 *
 * Threads: one at a time for each sonde_diff.
 */
#ifndef SONDE_DIFF_H
#define SONDE_DIFF_H

#include <sonde/options.h>
#include <sonde/program.h>
#include <sonde/reduction.h>
#include <sonde/tap.h>
#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_diff sonde_diff;

typedef struct sonde_diff_options {
    size_t size;           /* sizeof(sonde_diff_options) */
    const char *yardstick; /* a third run or set like B, of which it is known that it is
                              right: a difference is explained that is at most 3 times
                              that between A and it; NULL: none */
    const char *selector;  /* tensors of A; NULL: all */
    const char *rename; /* PCRE2 expression: names of B and of the yardstick are changed
                              where it matches ... */
    const char *to;     /* ... to this, with $1 ... for its groups */
    const char *table;  /* path of a file with lines "NAME-IN-A NAME-IN-B", used before
                          rename; NULL: none */
    unsigned modes;     /* steps of these modes, bits 1 << mode; 0: of all */
    int64_t begin, end; /* steps begin ... end - 1; end 0: no end */
    bool tolerance;     /* true: an element may differ by atol + rtol |a|, instead of what
                              rounding explains */
    double rtol, atol;
    int threads; /* 0: as many as there are processors, at most 8 */
} sonde_diff_options;

typedef enum sonde_diff_kind {
    SONDE_DIFF_SAME = 0,     /* the same bits; for statistics, the same numbers */
    SONDE_DIFF_ROUNDING = 1, /* within what rounding explains, or within the tolerance */
    SONDE_DIFF_BEYOND = 2,   /* more than that, or another NaN, or an integer */
    SONDE_DIFF_SHAPE = 3     /* other shapes that no transpose and no shards explain */
} sonde_diff_kind;
enum { SONDE_DIFF_KINDS = 4 };
/* "same", "rounding", "beyond", "shape"; "?" for no kind. */
SONDE_API const char *sonde_diff_kind_name(sonde_diff_kind kind);

/* One tensor at one step that is not the same. Texts are borrowed until close. */
typedef struct sonde_difference {
    sonde_diff_kind kind;
    const char *name, *other; /* in A and in B */
    sonde_mode mode;
    int64_t step; /* as the mode counts; files: 0 */
    int worker, micro_batch, replica;
    unsigned how;              /* what was compared: SONDE_HOW_RAW, or _VITALS */
    sonde_view a_form, b_form; /* dtypes and shapes; without data */
    bool transposed;           /* B has it with its two dimensions exchanged */
    int shards;                /* number of parts that were put together; 1: none */
    uint64_t count;            /* elements */
    uint64_t differing;        /* of them; of statistics: 0 */
    uint64_t nonfinite;        /* elements that are NaN or infinite in one only */
    double largest;            /* |a - b| over elements that are finite in both */
    int64_t at;                /* the element of it, row-major; -1: of statistics */
    double a, b;               /* its values; of statistics, the norms */
    double relative;           /* rms(a - b) / rms(a); of statistics, a lower bound */
    double explained;          /* such a ratio that rounding explains */
    sonde_place place;         /* line of the program of A; file "" if it is not known */
} sonde_difference;

/* A tensor of A over all steps, in the order of a step. */
typedef struct sonde_diff_tensor {
    const char *name, *other; /* other NULL: B has no such tensor */
    uint64_t compared;        /* places (steps, workers, micro-batches) */
    uint64_t counts[SONDE_DIFF_KINDS];
    int64_t first, last;   /* global steps of A at which it differs; -1: none */
    int64_t beyond;        /* the first at which rounding does not explain it; -1 */
    double relative;       /* the largest one */
    int64_t relative_step; /* where */
} sonde_diff_tensor;

typedef struct sonde_diff_report {
    bool files;              /* two sets of weights, not runs */
    uint64_t steps;          /* compared; files: 1 */
    uint64_t only_a, only_b; /* steps that one of them alone has */
    uint64_t tensors;        /* of both */
    uint64_t tensors_only_a, tensors_only_b;
    uint64_t places;         /* compared */
    uint64_t not_comparable; /* tensors of both without one place and form in common */
    uint64_t counts[SONDE_DIFF_KINDS];
    uint64_t bytes;   /* of values compared, both sides; by hash alone: also */
    uint64_t by_hash; /* places that equal hashes settled */
} sonde_diff_report;

/*
 * Opens both sides and pairs their tensors. options may be NULL. SONDE_ENOTFOUND: a path,
 * or no tensor in common; the diagnostic names some of each side. SONDE_EINVAL: options, a
 * run compared with files. SONDE_EFORMAT: a file is damaged, or a line of the table.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_diff_open(const char *a, const char *b,
                                                  const sonde_diff_options *options,
                                                  sonde_diff **out, sonde_diag *diag);
SONDE_API void sonde_diff_close(sonde_diff *diff);

/*
 * Compares everything, once. seen (may be NULL) is called for each difference, in order of
 * steps and within a step; it returns false to end the comparison. Values that cannot be
 * read end it with their error. Memory: the indexes of the runs, and a window of the files.
 */
SONDE_API SONDE_CHECKED sonde_err
sonde_diff_run(sonde_diff *diff, bool (*seen)(void *user, const sonde_difference *one),
               void *user, sonde_diag *diag);
SONDE_API void sonde_diff_describe(const sonde_diff *diff, sonde_diff_report *report);
/* The i-th tensor of A. False: there are fewer. Borrowed until close. */
SONDE_API bool sonde_diff_tensor_get(const sonde_diff *diff, size_t i,
                                     sonde_diff_tensor *out);
/* The name of the i-th tensor that only B has, as B calls it. NULL: there are fewer. */
SONDE_API const char *sonde_diff_only_b(const sonde_diff *diff, size_t i);

#ifdef __cplusplus
}
#endif

#endif
