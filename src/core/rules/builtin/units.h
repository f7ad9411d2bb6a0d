/*
 * units.h - counts the units of a layer that lie outside a range for (nearly) all
 * samples, and for how many steps in a row; for DeadRelu and SaturatedActivation.
 *
 * A unit is an index of dimension 1: a neuron of (N, units), or a channel of (N,
 * channels, ...), whose samples are all batch entries and places. Single places of an
 * image would not do: those at its border see the same background in every sample.
 */
#ifndef SONDE_RULES_BUILTIN_UNITS_H
#define SONDE_RULES_BUILTIN_UNITS_H

#include <sonde/rule.h>

/* In fewer samples, a unit that reacts to one in twenty can easily see none. */
enum { SONDE__LEAST_SAMPLES = 64 };

typedef struct sonde__builtin_units {
    int64_t count;     /* of units */
    uint32_t *outside; /* by unit: samples outside at this step */
    uint32_t *streak;  /* by unit: steps in a row */
    int64_t samples;   /* per unit at this step */
    bool seen;         /* at this step */
} sonde__builtin_units;

/* Allocates for a tensor of that shape; false if out of memory. */
bool sonde__builtin_units_make(sonde__builtin_units *units, int rank,
                               const int64_t *shape);
void sonde__builtin_units_free(sonde__builtin_units *units);
/* Counts the elements below low or above high. Ignores tensors without a batch. False if
 * out of memory. Cost: one pass. */
bool sonde__builtin_units_take(sonde__builtin_units *units, const sonde_view *view,
                               double low, double high);
/* The same of a view of which no element is outside. Cost: none. */
void sonde__builtin_units_pass(sonde__builtin_units *units, const sonde_view *view);
/*
 * Ends the step. A unit counts if at least `percent` of its samples were outside. Returns
 * the percentage of units that counted at each of the last `patience` steps with this
 * layer, and at as many more as it takes to have SONDE__LEAST_SAMPLES samples; -1 if the
 * step had none. If there are fewer samples outside than `layer` percent of the units
 * need, all streaks restart.
 */
double sonde__builtin_units_end(sonde__builtin_units *units, double percent, double layer,
                                int64_t patience);

#endif
