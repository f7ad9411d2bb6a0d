/*
 * series.h - numbers that rules follow from step to step: the recent values of one, and
 * the mean losses of alternating rounds of training and evaluation.
 */
#ifndef SONDE_RULES_BUILTIN_SERIES_H
#define SONDE_RULES_BUILTIN_SERIES_H

#include <sonde/rule.h>

#include <stdbool.h>
#include <stdint.h>

/* --- recent values ------------------------------------------------------------------ */

enum { SONDE__RECENT = 32 };

/* The last values of a number; the oldest is overwritten. */
typedef struct sonde__builtin_recent {
    double value[SONDE__RECENT];
    int64_t count; /* taken so far */
} sonde__builtin_recent;

void sonde__builtin_recent_take(sonde__builtin_recent *recent, double value);
/* Of the values that are kept; 0 if there is none. part is below 1. */
double sonde__builtin_recent_quantile(const sonde__builtin_recent *recent, double part);
double sonde__builtin_recent_median(const sonde__builtin_recent *recent);
/* Whether factor times the median is below value. Sorts nothing. */
bool sonde__builtin_recent_exceeds(const sonde__builtin_recent *recent, double factor,
                                   double value);

/* --- rounds of training and evaluation ---------------------------------------------- */

/*
 *     train train train | eval eval | train train | eval ...
 *                                   ^ a round ends: its two means are known
 */
typedef struct sonde__builtin_phases {
    double train, eval, eval_sq; /* sums of this round; of squares */
    int64_t trained, evaluated;
    double train_mean, eval_mean; /* of the round that has ended */
    double eval_error; /* the standard error of eval_mean; 0 if it is of one loss */
    int64_t rounds;
} sonde__builtin_phases;

/* Takes a loss of the current step. True if a round ended with the step before. */
bool sonde__builtin_phases_take(sonde__builtin_phases *phases,
                                const sonde_coordinate *where, double loss);
/* The end of the run: true if that ends a round. */
bool sonde__builtin_phases_end(sonde__builtin_phases *phases);
/* Reports what was missing if fewer rounds were seen than the rule needs. */
void sonde__builtin_phases_lacked(sonde_rule_run *run, int64_t rounds, int64_t needed);

#endif
