/*
 * train_peak_avx2.c - the loop of train_peak.h for one instruction set.
 */
#define TRAIN_PEAK train_peak_avx2

#include "train_peak_kernels.h"
