/*
 * rounding.h - what rounding explains: terms of the sums of a step, unit roundoffs.
 * Internal.
 */
#ifndef SONDE_DIFF_ROUNDING_H
#define SONDE_DIFF_ROUNDING_H

#include <sonde/catalogue.h>
#include <sonde/program.h>
#include <sonde/tensor.h>

/* Half the distance from 1 to the next number of a floating dtype; 0 for others. */
double sonde__diff_unit(sonde_dtype dtype);

/* The terms of the longest sum that gives an element of a tensor, from the program of the
 * step (NULL: not known): the inner dimension of a matrix product, the positions over
 * which a weight's gradient is added. */
double sonde__diff_terms(const sonde_program *program, const sonde_tensor_info *info);

#endif
