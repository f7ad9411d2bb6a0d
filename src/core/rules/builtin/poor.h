/*
 * poor.h - what the findings of PoorWeightInitialization have in common:
 *
 *     rule_poor_weight_initialization.c   the signal of the untrained network, and its loss
 *     poor_layers.c                       initial weights of single layers, by the program
 *     poor_start.c                        the first loss
 */
#ifndef SONDE_RULES_BUILTIN_POOR_H
#define SONDE_RULES_BUILTIN_POOR_H

#include "rules/builtin/builtin.h"

/* What was seen of the weights of the first step. */
typedef struct sonde__builtin_poor_survey {
    const sonde_rule_tensor *loudest; /* NULL: none was judged */
    double gain;                      /* of that: its mean square times its inputs */
    size_t told;                      /* findings */
} sonde__builtin_poor_survey;

/* Judges the weights of the first step. weights: the need that they answer. False: no program
 * tells which of them are layers'. */
bool sonde__builtin_poor_layers(sonde_rule_run *run, int weights,
                                sonde__builtin_poor_survey *survey);
/* Judges the first loss by that of predictions that do not look at inputs. data: the need that
 * inputs of the network answer. */
void sonde__builtin_poor_start(sonde_rule_run *run, int data, double first,
                               const sonde__builtin_poor_survey *survey);
/* Vital signs of a value at this step, if it is observed. */
const sonde_vitals *sonde__builtin_poor_vitals(sonde_rule_run *run,
                                               const sonde_program *program, int value);

/* Whether the values of a tensor are those of a layer, as far as the program tells: no mask, no
 * logarithm and no constant has a part in them. program NULL: none is known. */
bool sonde__builtin_poor_is_of_layer(const sonde_program *program, const char *tensor);
/* Fills in the operation that scales a tensor by a number after its layer, to end a message; ""
 * if there is none. size: of text. */
void sonde__builtin_poor_scale(const sonde_program *program, const char *tensor,
                               char *text, size_t size);

#endif
