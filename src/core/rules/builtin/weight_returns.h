/*
 * weight_returns.h - for WeightJump: parameters that return in one step to the values of an
 * earlier one, as when an old copy is put back.
 *
 * At each step, three numbers of each of a few small parameters are kept (sum, sum of squares,
 * sum of magnitudes), for KEPT steps at most: of a longer run, of every second, fourth ...
 * step. A parameter jumps if two of its numbers change by more than FAR times their largest
 * change before. Parameters return if at least two jump, and one of the kept steps at least
 * LEAST steps back is nearer to each number of these than NEAR times its jump. The first steps are
 * left out: a training that begins anew (for a new fold, after a search for a rate) returns to
 * them on purpose.
 */
#ifndef SONDE_RULES_BUILTIN_WEIGHT_RETURNS_H
#define SONDE_RULES_BUILTIN_WEIGHT_RETURNS_H

#include "rules/builtin/builtin.h"

enum { SONDE__RETURNS_FEW = 8, SONDE__RETURNS_KEPT = 128, SONDE__RETURNS_NUMBERS = 3 };
#define SONDE__RETURNS_FAR 2.5

typedef struct sonde__builtin_returns {
    size_t wanted;
    char prefix[16]; /* of the last wanted one, and how many have it */
    size_t same;
    /* By parameter, in the order of the rule's tensors. */
    struct {
        double now[SONDE__RETURNS_NUMBERS];
        double change[SONDE__RETURNS_NUMBERS]; /* from the step before to this one */
        double most[SONDE__RETURNS_NUMBERS];   /* the largest one before */
        int64_t moves;                         /* steps at which it changed */
        int64_t last;                          /* see sonde__builtin_steps_since */
    } few[SONDE__RETURNS_FEW];
    float kept[SONDE__RETURNS_KEPT][SONDE__RETURNS_FEW][SONDE__RETURNS_NUMBERS];
    int64_t step[SONDE__RETURNS_KEPT];
    size_t count;
    int64_t stride; /* steps between those that are kept; 0: 1 */
} sonde__builtin_returns;

/* Whether a vector of parameters is one of the few: small, and not of a part of the network
 * that has some already. */
bool sonde__builtin_returns_wants(sonde__builtin_returns *returns,
                                  const sonde_tensor_info *info);
/* Takes a step; need: that of the few. Returns the step to whose values they have returned,
 * and the index of the tensor that jumped most and by how much; -1: to none. */
int64_t sonde__builtin_returns_take(sonde_rule_run *run, sonde__builtin_returns *returns,
                                    int need, size_t *farthest, double *most);

#endif
