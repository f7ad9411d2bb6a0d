/*
 * train_peak_generic.c - the loop of train_peak.h for one instruction set.
 */
#define TRAIN_PEAK train_peak_generic

#include "train_peak_kernels.h"
