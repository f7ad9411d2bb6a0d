/*
 * units.h - what DeadRelu and SaturatedActivation share: which units of a layer lie
 * outside a range for (nearly) all samples, for how many steps on end.
 *
 * A unit is an index of dimension 1: a neuron of (N, units), a channel of (N, channels,
 * ...), whose samples are all batch entries and places. Single places of an image would
 * not do: at its border they see the same background in every sample.
 */
#ifndef SONDE_RULES_BUILTIN_UNITS_H
#define SONDE_RULES_BUILTIN_UNITS_H

#include <sonde/rule.h>

/* Of fewer, a unit that reacts to one in twenty may well miss all. */
enum { SONDE__LEAST_SAMPLES = 64 };

typedef struct sonde__builtin_units {
    int64_t count;     /* of units */
    uint32_t *outside; /* by unit: samples of this step */
    uint32_t *streak;  /* by unit: steps on end */
    int64_t samples;   /* of a unit at this step */
    bool seen;         /* at this step */
} sonde__builtin_units;

/* Room for a tensor of that shape; false: out of memory. */
bool sonde__builtin_units_make(sonde__builtin_units *units, int rank,
                               const int64_t *shape);
void sonde__builtin_units_free(sonde__builtin_units *units);
/* Counts the elements below low or above high. Tensors without a batch are passed over.
 * false: out of memory. Cost: one pass. */
bool sonde__builtin_units_take(sonde__builtin_units *units, const sonde_view *view,
                               double low, double high);
/*
 * Ends the step: a unit counts if at least `percent` of its samples were outside. Returns
 * the percentage of units that counted at each of the last `patience` steps at which the
 * layer was seen, of as many more as it takes to have seen SONDE__LEAST_SAMPLES; -1 if it
 * was not. If the samples outside are fewer than `layer` percent of units need, all begin
 * anew.
 */
double sonde__builtin_units_end(sonde__builtin_units *units, double percent, double layer,
                                int64_t patience);

#endif
