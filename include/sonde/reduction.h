/*
 * reduction.h - reductions of a tensor to one number, and the records each can be
 * computed from.
 *
 * A hook saves the least that the requested reductions need, and a reader computes with
 * the same functions, so the numbers are the same bits.
 *
 *     name                               vital signs      sketch        raw value
 *     count, min, max, mean, std, l2 ... yes                            yes, the same bits
 *     median, p95, quantile:0.95                          nearly        exactly
 *     prod                                                              exactly
 *     hash                                                              exactly
 *
 * All except count, nan, pos_inf, neg_inf, zero, nonfinite and hash accept the prefix
 * `abs_` (abs_l1 is l1). l1_norm, l2_norm, linf_norm and abs_sum are aliases of l1, l2,
 * linf and l1.
 *
 * A quantile q of n elements is the element of rank ceil(q n) in ascending order (rank 1
 * for q = 0): always one of the elements, and torch.median for q = 1/2. Infinities sort
 * to the ends; with a NaN it is NaN. From a sketch its relative error is at most
 * SONDE_SKETCH_ERROR while magnitudes are within the sketch's range. prod is the product
 * in double, in row-major order. Complex numbers are reduced as their absolute values.
 * For an empty tensor prod is NaN like the rest.
 *
 * Threads: calls share nothing; any number may run at once.
 */
#ifndef SONDE_REDUCTION_H
#define SONDE_REDUCTION_H

#include <sonde/sketch.h>
#include <sonde/stats.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is recorded of a tensor: bits of sonde_tap.how and of the records of a run. */
enum {
    SONDE_HOW_RAW = 1,    /* the values */
    SONDE_HOW_VITALS = 2, /* sonde_vitals */
    SONDE_HOW_SKETCH = 4, /* sonde_sketch */
    SONDE_HOW_HASH = 8,   /* XXH3 (64 bits) of the row-major little-endian bytes */
    SONDE_HOW_NORMS = 16, /* of sonde_vitals, the norms (<sonde/stats.h>) */
    SONDE_HOW_SIGNS = 18, /* vital signs or norms: a sonde_vitals */
    SONDE_HOW_ALL = 31
};

/* These forms of evidence by number: SONDE_HOW_x is bit SONDE_FORM_x. */
enum {
    SONDE_FORM_RAW,
    SONDE_FORM_VITALS,
    SONDE_FORM_SKETCH,
    SONDE_FORM_HASH,
    SONDE_FORM_NORMS,
    SONDE_FORM_COUNT
};

/* The names of a form of evidence. */
typedef struct sonde_form {
    unsigned bit;     /* SONDE_HOW_ */
    const char *name; /* "raw values", "vital signs", "sketch", "hash", "norms" */
    const char *one;  /* of one tensor: "raw value" */
} sonde_form;
/* By SONDE_FORM_; else NULL. */
SONDE_API const sonde_form *sonde_form_get(int form);

typedef enum sonde_reduction_kind {
    SONDE_REDUCTION_STAT = 0,     /* a statistic of the vital signs */
    SONDE_REDUCTION_QUANTILE = 1, /* of the elements, or of their absolute values */
    SONDE_REDUCTION_PROD = 2,     /* likewise */
    SONDE_REDUCTION_HASH = 3 /* XXH3 (64 bits) of the row-major little-endian bytes */
} sonde_reduction_kind;

typedef struct sonde_reduction {
    char name[32]; /* as requested */
    sonde_reduction_kind kind;
    sonde_stat stat; /* of SONDE_REDUCTION_STAT */
    double q;        /* of a quantile: 0 ... 1 */
    bool absolute;   /* quantiles and products: of |x| */
} sonde_reduction;

typedef struct sonde_reduced {
    double number;
    uint64_t hash; /* of SONDE_REDUCTION_HASH, and number is 0 then */
    unsigned how;  /* its source: one SONDE_HOW_ bit; 0: not available */
} sonde_reduced;

/* Any case. Unknown: SONDE_EINVAL with the nearest name, or all of them. */
SONDE_API SONDE_CHECKED sonde_err sonde_reduction_parse(const char *text,
                                                        sonde_reduction *reduction,
                                                        sonde_diag *diag);
SONDE_API sonde_reduction sonde_reduction_of_stat(sonde_stat stat);
/* The SONDE_HOW_ bits of the records it can be computed from. */
SONDE_API unsigned sonde_reduction_evidence(const sonde_reduction *reduction);

/* From a raw value of any dtype and strides. A quantile allocates up to 16 bytes per
 * element, 64 at least (SONDE_ENOMEM); the others allocate nothing. */
SONDE_API SONDE_CHECKED sonde_err sonde_reduce(const sonde_reduction *reduction,
                                               const sonde_view *view, sonde_reduced *out,
                                               sonde_diag *diag);
/* From other records; out->how is 0 if they do not suffice. */
SONDE_API void sonde_reduce_vitals(const sonde_reduction *reduction,
                                   const sonde_vitals *vitals, sonde_reduced *out);
SONDE_API void sonde_reduce_sketch(const sonde_reduction *reduction,
                                   const sonde_sketch *sketch, sonde_reduced *out);

#ifdef __cplusplus
}
#endif

#endif
