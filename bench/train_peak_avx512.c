/*
 * train_peak_avx512.c - the loop of train_peak.h for one instruction set.
 */
#define TRAIN_PEAK train_peak_avx512

#include "train_peak_kernels.h"
