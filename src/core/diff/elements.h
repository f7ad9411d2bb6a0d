/*
 * elements.h - how the elements of two tensors differ. Internal.
 *
 * First all bytes are compared; only where they differ, the elements are. Contiguous
 * tensors are cut into slices, which threads share; the sums of the slices are added in
 * their order, so the result does not depend on the number of threads. A slice of a mapped
 * file is given back to the system when it was read.
 */
#ifndef SONDE_DIFF_ELEMENTS_H
#define SONDE_DIFF_ELEMENTS_H

#include <sonde/error.h>
#include <sonde/tensor.h>

#include <stdbool.h>
#include <stdint.h>

/* A tensor to compare; mapped: its data is a read-only mapping of a file. */
typedef struct sonde__diff_operand {
    sonde_view view;
    bool mapped;
} sonde__diff_operand;

typedef struct sonde__diff_tolerance {
    double rtol, atol; /* an element is beyond if |a - b| > atol + rtol |a| */
} sonde__diff_tolerance;

/* Sums over pairs of elements. */
typedef struct sonde__diff_elements {
    uint64_t count;
    uint64_t differing; /* pairs of other values; of integers, of other bits */
    uint64_t bits;      /* 1 if any bit differs */
    uint64_t
        nonfinite;   /* pairs of which one is NaN, or infinite, and the other is not so */
    uint64_t beyond; /* pairs beyond the tolerance */
    double largest;  /* |a - b|, both finite */
    int64_t at;      /* its index, row-major; -1: none */
    double a, b;     /* its values */
    double squares;  /* sum of (a - b)^2 */
    double size;     /* sum of a^2 */
    double peak;     /* max |a| */
} sonde__diff_elements;

void sonde__diff_elements_init(sonde__diff_elements *sum);
/* sum := sum + part, whose elements begin at index first of the whole. */
void sonde__diff_elements_add(sonde__diff_elements *sum, const sonde__diff_elements *part,
                              int64_t first);

/* Whether all bits are the same. The views have one shape and one dtype. */
bool sonde__diff_same_bits(const sonde__diff_operand *a, const sonde__diff_operand *b,
                           int threads);
/* Compares the elements of views of one shape. SONDE_ENOMEM. */
SONDE_CHECKED sonde_err sonde__diff_compare(const sonde__diff_operand *a,
                                            const sonde__diff_operand *b,
                                            sonde__diff_tolerance tolerance, int threads,
                                            sonde__diff_elements *out, sonde_diag *diag);

#endif
