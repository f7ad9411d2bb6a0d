/*
 * series.c - numbers that rules follow from step to step.
 */
#include "rules/builtin/series.h"

#include "base/macros.h"
#include "rules/builtin/builtin.h"

#include <math.h>
#include <string.h>

/* --- recent values ------------------------------------------------------------------ */

static size_t kept(const sonde__builtin_recent *recent)
{
    return (size_t)SONDE_MIN(recent->count, (int64_t)SONDE__RECENT);
}

double sonde__builtin_recent_quantile(const sonde__builtin_recent *recent, double part)
{
    double sorted[SONDE__RECENT];
    const size_t count = kept(recent);

    memcpy(sorted, recent->value, sizeof sorted);
    sonde__builtin_sort(sorted, count);
    return count > 0 ? sorted[(size_t)(part * (double)count)] : 0.0;
}

double sonde__builtin_recent_median(const sonde__builtin_recent *recent)
{
    return sonde__builtin_recent_quantile(recent, 0.5);
}

bool sonde__builtin_recent_exceeds(const sonde__builtin_recent *recent, double factor,
                                   double value)
{
    const int count = (int)kept(recent);
    int below = 0;

    for (int i = 0; i < count; i++) {
        below += factor * recent->value[i] < value;
    }
    return below > count / 2;
}

void sonde__builtin_recent_take(sonde__builtin_recent *recent, double value)
{
    recent->value[recent->count++ % SONDE__RECENT] = value;
}

/* --- rounds of training and evaluation ---------------------------------------------- */

bool sonde__builtin_phases_end(sonde__builtin_phases *phases)
{
    if (phases->trained == 0 || phases->evaluated == 0) {
        return false;
    }
    phases->train_mean = phases->train / (double)phases->trained;
    phases->eval_mean = phases->eval / (double)phases->evaluated;
    phases->eval_error = sqrt(fmax(phases->eval_sq / (double)phases->evaluated -
                                       phases->eval_mean * phases->eval_mean,
                                   0.0) /
                              (double)SONDE_MAX(phases->evaluated - 1, 1));
    phases->rounds++;
    phases->train = phases->eval = phases->eval_sq = 0.0;
    phases->trained = phases->evaluated = 0;
    return true;
}

bool sonde__builtin_phases_take(sonde__builtin_phases *phases,
                                const sonde_coordinate *where, double loss)
{
    bool ended = false;

    if (where->mode == SONDE_MODE_TRAIN) {
        ended = phases->evaluated > 0 && sonde__builtin_phases_end(phases);
        phases->train += loss;
        phases->trained++;
    } else if (where->mode == SONDE_MODE_EVAL) {
        phases->eval += loss;
        phases->eval_sq += loss * loss;
        phases->evaluated++;
    }
    return ended;
}

void sonde__builtin_phases_lacked(sonde_rule_run *run, int64_t rounds, int64_t needed)
{
    if (rounds == 0) {
        sonde_rule_lacked(run, "no losses of both training and evaluation were recorded");
    } else if (rounds < needed) {
        sonde_rule_lacked(run,
                          "%lld of the %lld evaluations between training that it needs",
                          (long long)rounds, (long long)needed);
    }
}
