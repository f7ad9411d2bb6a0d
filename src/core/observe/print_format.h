/*
 * print_format.h - the layout of printed tensors and of single numbers.
 */
#ifndef SONDE_OBSERVE_PRINT_FORMAT_H
#define SONDE_OBSERVE_PRINT_FORMAT_H

#include <sonde/print.h>

/* How every number of one tensor is written. */
typedef struct sonde__observe_cell_style {
    sonde_dtype dtype;
    sonde_float_format format; /* AUTO until it is decided */
    int digits;
    int decimals; /* of fixed */
    size_t width; /* to pad to; 0: unaligned */
} sonde__observe_cell_style;

enum {
    SONDE__CELL = 760 /* bytes for the longest number: see sonde__observe_cell_bound */
};

/* What the numbers to be shown are like. Start with a zeroed one. */
typedef struct sonde__observe_cell_survey {
    double largest;  /* magnitude of a finite one */
    double smallest; /* of one that is not zero; 0 for none */
} sonde__observe_cell_survey;

SONDE_API void sonde__observe_cell_look(sonde__observe_cell_survey *survey,
                                        sonde_dtype dtype, const void *element);
/* The style that options and survey give, width 0. */
SONDE_API sonde__observe_cell_style
sonde__observe_cell_decide(const sonde__observe_cell_survey *survey, sonde_dtype dtype,
                           const sonde_print_options *options);
/* Writes one number, unpadded; returns its length. The element need not be aligned. */
SONDE_API size_t sonde__observe_cell_write(const sonde__observe_cell_style *style,
                                           const void *element, char buf[SONDE__CELL]);
/* No number of this dtype is longer under these options. */
SONDE_API size_t sonde__observe_cell_bound(sonde_dtype dtype,
                                           const sonde_print_options *options);

/* No tensor of this dtype and shape needs more bytes than this; SIZE_MAX if that cannot
 * be counted. In proportion to the elements shown. */
SONDE_API size_t sonde__observe_format_bound(sonde_dtype dtype, int rank,
                                             const int64_t *shape,
                                             const sonde_print_options *options);

#endif
