/*
 * poor.h - what the parts of PoorWeightInitialization have in common.
 *
 *     rule_poor_weight_initialization.c   the weights of the first step, and the steps
 *     poor_layers.c                       growth and death, from layer to layer
 *     poor_loss.c                         a loss that does not change
 */
#ifndef SONDE_RULES_BUILTIN_POOR_H
#define SONDE_RULES_BUILTIN_POOR_H

#include <sonde/rule.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The needs. */
enum {
    SONDE__POOR_INPUTS,
    SONDE__POOR_LOSSES,
    SONDE__POOR_GRADIENTS,
    SONDE__POOR_WEIGHTS,
    SONDE__POOR_DATA
};
enum { SONDE__POOR_LOSSES_AVERAGED = 5 };

typedef struct sonde__builtin_poor {
    const char *activation_inputs_regex;
    double threshold, distribution_range;
    int64_t patience, steps;
    int64_t seen, heard; /* steps with inputs of activations; with a loss */
    bool narrow;         /* some gradient is narrow at this step */
    bool looked;         /* at the weights of the first step */
    bool dying;          /* some layer does, at the first steps */
    double first_loss;   /* mean of the first ones */
    double last_loss;    /* mean of the last ones, decaying */
    int64_t losses;      /* steps with a finite one, whatever the rest */
    bool whole;          /* one of them is the loss of the run */
} sonde__builtin_poor;

typedef struct sonde__builtin_poor_memory {
    double variance; /* at this step */
    bool scores;     /* the input of the loss */
    int64_t looked, grew, shrank;
    double worst; /* ratio to the previous layer, the least extreme of the steps */
    double loss;
    int64_t still; /* steps in a row without a change of the loss */
    double moved;  /* the largest change in them, relative */
    bool stuck;    /* it stood still for `patience` steps, nearly */
} sonde__builtin_poor_memory;

/* Compares the variance of each layer with that of the previous one. True if any was
 * seen. */
bool sonde__builtin_poor_compare_layers(const sonde__builtin_poor *state,
                                        sonde_rule_tensor *tensors, size_t count);
/* Reports layers that grow (grown) or die. */
void sonde__builtin_poor_judge_layers(sonde_rule_run *run,
                                      const sonde_rule_tensor *tensors, size_t count,
                                      bool grown);
void sonde__builtin_poor_judge_losses(sonde_rule_run *run,
                                      const sonde_rule_tensor *tensors, size_t count);
/* Takes the mean of the losses of this step. */
void sonde__builtin_poor_take_loss(sonde__builtin_poor *state, sonde_rule_run *run,
                                   const sonde_rule_tensor *tensors, size_t count);
/* Reports losses that stood still at first and have not moved since. */
void sonde__builtin_poor_judge_stuck(sonde_rule_run *run);
/* A loss that was the same at first has moved. */
void sonde__builtin_poor_withdraw_moved(sonde_rule_run *run,
                                        const sonde_rule_tensor *tensors, size_t count);

#endif
