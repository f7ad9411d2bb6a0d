/*
 * sketch.h - ranked elements of a sketch, for reductions. Internal.
 */
#ifndef SONDE_TENSOR_SKETCH_H
#define SONDE_TENSOR_SKETCH_H

#include <sonde/sketch.h>

#include <stdbool.h>

/* The finite element of a rank, counted from 1 in ascending order of the elements or of
 * their absolute values: the middle of its bin. NaN if there is none. */
double sonde__sketch_ranked(const sonde_sketch *sketch, uint64_t rank, bool absolute);

#endif
