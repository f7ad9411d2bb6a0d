/*
 * symmetric.h - what the parts of SymmetricUnits have in common.
 *
 *     rule_symmetric_units.c   judges equal rows, constant weights, zeros
 *     symmetric_rows.c         which rows are equal
 *     symmetric_links.c        other tensors of the module that explain them
 */
#ifndef SONDE_RULES_BUILTIN_SYMMETRIC_H
#define SONDE_RULES_BUILTIN_SYMMETRIC_H

#include <sonde/rule.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The needs. */
enum { SONDE__SYMMETRIC_WEIGHTS, SONDE__SYMMETRIC_GRADIENTS, SONDE__SYMMETRIC_LOSSES };

typedef struct sonde__builtin_symmetric {
    double share;
    int64_t patience, steps, looked;
    size_t linked;
    bool twins_known; /* of this step */
} sonde__builtin_symmetric;

typedef struct sonde__builtin_symmetric_row {
    uint64_t hash; /* 0: a row of zeros */
    uint32_t index;
} sonde__builtin_symmetric_row;

/* Of a tensor. */
typedef struct sonde__builtin_symmetric_memory {
    sonde__builtin_symmetric_row *rows;
    uint32_t *same;  /* the first equal row at the look before, plus 1; 0: none */
    int64_t lasting; /* looks in a row at which enough rows were equal to the same ones */
    size_t gradient;
    size_t first; /* of the weights of its module and shape; SIZE_MAX: it has no module */
    size_t bias;  /* for each of its units; SIZE_MAX: none */
    bool varies;  /* of the first: at this step the elements of one of them differ */
    bool stuck;   /* suspected as one of half of all weights */
    bool free;    /* its rows are no units */
    int64_t seen_raw, seen_vitals, zero;
    double percent; /* of this step; -1: no raw value, or too few of one magnitude */
    double equal;   /* of rows of this step, whatever their size; -1: no raw value */
    double before;  /* the sum of squares at the look before */
    int64_t moves;  /* looks at which it had changed, since it is suspected */
} sonde__builtin_symmetric_memory;

/* sonde_rule.observe: compares the rows of a weight. */
void sonde__builtin_symmetric_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                                      const sonde_observation *seen);
/* Whether the elements of a weight are equal to within a hundredth. */
bool sonde__builtin_symmetric_is_constant(const sonde_vitals *w);
/* Finds the weights of the same module and shape. */
void sonde__builtin_symmetric_link_twins(sonde_rule_run *run);
/* Finds the weights that are biases of the units of others. */
void sonde__builtin_symmetric_link_biases(sonde_rule_run *run);
/* Whether each unit of a weight has a bias of its own, and these differ. */
bool sonde__builtin_symmetric_has_biases(const sonde_rule_tensor *tensors,
                                         const sonde__builtin_symmetric_memory *memory);
/* Whether the module of a constant weight has another of the same shape whose elements
 * differ. */
bool sonde__builtin_symmetric_has_twin(sonde_rule_run *run,
                                       const sonde_rule_tensor *tensors, size_t i);

#endif
