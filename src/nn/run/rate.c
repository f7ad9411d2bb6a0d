/*
 * rate.c - learning-rate schedules: see optimizer.h.
 */
#include <sonde/nn/optimizer.h>

#include "base/fail.h"
#include "base/macros.h"

#include <math.h>

static double between(double from, double to, double share)
{
    return to + (from - to) / 2.0 * (1.0 + cos(acos(-1.0) * share));
}

/* Of torch's OneCycleLR with its defaults: up over 30 % of the steps, down over the rest. */
static double one_cycle(double most, double step, double total)
{
    const double first = most / 25.0, last = first / 1e4;
    const double top = 0.3 * total - 1.0, end = total - 1.0;

    return step <= top ? between(first, most, step / top)
                       : between(most, last, (step - top) / (end - top));
}

static double table_rate(const sonde_nn_rate *rate, double base, int64_t step)
{
    for (int i = 0; i < rate->table_count && step >= rate->table_step[i]; i++) {
        base = rate->table_rate[i];
    }
    return base;
}

double sonde_nn_rate_at(const sonde_nn_rate *rate, double base, int64_t number)
{
    const int64_t step = SONDE_MAX(number, 0);
    const int64_t warm = rate != NULL ? rate->warmup : 0;
    const double at = (double)(step - warm);
    const double total =
        rate != NULL && rate->total > warm ? (double)(rate->total - warm) : 1.0;

    if (rate == NULL) {
        return base;
    }
    if (step < warm) {
        return base * (double)(step + 1) / (double)warm;
    }
    switch (rate->kind) {
    case SONDE_NN_RATE_STEP:
        return base * pow(rate->gamma, floor(at / (double)rate->every));
    case SONDE_NN_RATE_COSINE:
        return between(base, base * rate->end, fmin(at / total, 1.0));
    case SONDE_NN_RATE_ONE_CYCLE:
        return total > 4.0 ? one_cycle(base, fmin(at, total - 1.0), total) : base;
    case SONDE_NN_RATE_TABLE:
        return table_rate(rate, base, step);
    case SONDE_NN_RATE_CONSTANT:
        break;
    }
    return base;
}

sonde_err sonde_nn_rate_check(const sonde_nn_rate *rate, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rate);
    if ((unsigned)rate->kind > SONDE_NN_RATE_TABLE) {
        return sonde__fail(diag, SONDE_EINVAL, "schedule",
                           "constant, step, cosine, one_cycle or table", "%d",
                           (int)rate->kind);
    }
    if (rate->warmup < 0 || rate->total < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "schedule", "steps >= 0", "%lld",
                           (long long)(rate->warmup < 0 ? rate->warmup : rate->total));
    }
    if (rate->kind == SONDE_NN_RATE_STEP &&
        (rate->every < 1 || !(rate->gamma >= 0.0) || isinf(rate->gamma))) {
        return sonde__fail(diag, SONDE_EINVAL, "schedule",
                           "every at least 1 step, a finite gamma >= 0",
                           "every %lld, gamma %g", (long long)rate->every, rate->gamma);
    }
    if (rate->kind == SONDE_NN_RATE_COSINE && !(rate->end >= 0.0 && rate->end <= 1.0)) {
        return sonde__fail(diag, SONDE_EINVAL, "schedule", "an end of 0 to 1", "%g",
                           rate->end);
    }
    if (rate->table_count < 0 || rate->table_count > SONDE_NN_RATE_MOST) {
        return sonde__fail(diag, SONDE_EINVAL, "schedule", "0 to 32 entries", "%d",
                           rate->table_count);
    }
    for (int i = 0; i < rate->table_count; i++) {
        const bool later = i == 0 || rate->table_step[i] > rate->table_step[i - 1];

        if (!later || rate->table_step[i] < 0 || !(rate->table_rate[i] >= 0.0) ||
            isinf(rate->table_rate[i])) {
            return sonde__fail(diag, SONDE_EINVAL, "schedule",
                               "growing steps, finite rates >= 0", "step %lld, rate %g",
                               (long long)rate->table_step[i], rate->table_rate[i]);
        }
    }
    return SONDE_OK;
}
