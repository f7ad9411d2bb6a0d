/*
 * poor.h - what the findings of PoorWeightInitialization have in common:
 *
 *     rule_poor_weight_initialization.c   the signal of the untrained network, and its loss
 *     poor_layers.c                       initial weights of single layers, by the program
 */
#ifndef SONDE_RULES_BUILTIN_POOR_H
#define SONDE_RULES_BUILTIN_POOR_H

#include "rules/builtin/builtin.h"

/* Judges the weights of the first step. weights: the need that they answer. False: no program
 * tells which of them are layers'. */
bool sonde__builtin_poor_layers(sonde_rule_run *run, int weights);

#endif
