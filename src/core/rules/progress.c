/*
 * progress.c - whether the losses of training fall.
 *
 * A verdict is given at every SHORT steps after the mark and at the end of the run.
 * Training goes well if the loss is below the first losses of the run by FALLEN of them and
 * by a few standard errors, and not above the level at the mark. It must be as far below the
 * standard, which is what the loss is without the inputs, if this is known and less: a loss that
 * begins far above it falls to it at once. The loss rises if it is
 * above that level by RISEN of it. It stands still if it has fallen by less than SLIGHT,
 * or by less than FALLEN and two standard errors, LONG steps after the mark: a larger fall
 * that noise may explain says nothing.
 *
 * Training that went well may go badly later: it relapses if the mean of SHORT losses is
 * above the lowest such mean by half of what the loss had fallen by until then, and by a
 * few standard errors, at LASTING such means in a row.
 */
#include "rules/progress.h"

#include "base/macros.h"
#include "base/memory.h"

#include <math.h>

#define FALLEN 0.1
#define RISEN 0.25
#define SLIGHT 0.02
#define SURE 3.0 /* standard errors */
#define JUMPS                                                                            \
    3.0          /* the first loss is the level if another of the first is so far above */
#define BACK 1.1 /* after an event */
#define LOST 0.5
enum { LEAST = 3, LASTING = 2 };

static double first_level(const sonde__rules_progress *progress);
static double mean_of_last(const sonde__rules_progress *progress, uint64_t n,
                           double *error);

/* Takes the mean of the last SHORT losses. */
static void take_mean(sonde__rules_progress *progress)
{
    double error = 0.0;
    const double mean = mean_of_last(progress, SONDE__RULES_SHORT, &error);
    const double first = first_level(progress), gained = first - progress->lowest;
    const double lost = mean - progress->lowest;
    const bool relapsed = progress->count > SONDE__RULES_SHORT &&
                          gained > FALLEN * fabs(first) && lost > LOST * gained &&
                          lost > SURE * error;

    progress->relapsed = relapsed ? progress->relapsed + 1 : 0;
    progress->lowest =
        progress->count > SONDE__RULES_SHORT ? fmin(progress->lowest, mean) : mean;
}

void sonde__rules_progress_take(sonde__rules_progress *progress, double loss)
{
    if (!isfinite(loss)) {
        progress->bad++;
        progress->bad_row++;
        return;
    }
    progress->bad_row = 0;
    if (progress->count > 0) {
        progress->crosses =
            progress->crosses || (loss < 0.0) != (progress->first[0] < 0.0);
    }
    if (progress->count < SONDE__RULES_FIRST) {
        progress->first[progress->count] = loss;
    }
    progress->recent[progress->count++ % SONDE__RULES_KEPT] = loss;
    if (progress->count % SONDE__RULES_SHORT == 0) {
        take_mean(progress);
    }
}

/* Mean of the last n losses, n at most KEPT; *error is its standard error, NaN for one. */
static double mean_of_last(const sonde__rules_progress *progress, uint64_t n,
                           double *error)
{
    double sum = 0.0, squares = 0.0, mean = 0.0;

    for (uint64_t i = 1; i <= n; i++) {
        sum += progress->recent[(progress->count - i) % SONDE__RULES_KEPT];
    }
    mean = sum / (double)n;
    for (uint64_t i = 1; i <= n; i++) {
        const double d =
            progress->recent[(progress->count - i) % SONDE__RULES_KEPT] - mean;

        squares += d * d;
    }
    *error = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : (double)NAN;
    return mean;
}

/* The level of the first losses: the first one alone if others are far above it. */
static double first_level(const sonde__rules_progress *progress)
{
    const uint64_t n = SONDE_MIN(progress->count, (uint64_t)SONDE__RULES_FIRST);
    const double first = progress->first[0];
    double sum = 0.0;

    for (uint64_t i = 0; i < n; i++) {
        if (progress->first[i] > first + (JUMPS - 1.0) * fabs(first)) {
            return first;
        }
        sum += progress->first[i];
    }
    return sum / (double)n;
}

sonde__rules_progress_mark
sonde__rules_progress_level(const sonde__rules_progress *progress, bool event)
{
    sonde__rules_progress_mark mark = {.count = progress->count, .bad = progress->bad};
    const uint64_t n = SONDE_MIN(progress->count, (uint64_t)SONDE__RULES_FIRST);

    mark.error = (double)NAN;
    if (n > 0) {
        mark.level = mean_of_last(progress, n, &mark.error);
        if (!event) {
            mark.level = fmin(mark.level, first_level(progress));
        }
    }
    return mark;
}

/* Compares the last of `since` losses with the level. */
static sonde__rules_verdict compare(const sonde__rules_progress *progress,
                                    const sonde__rules_progress_mark *mark, bool event,
                                    uint64_t since)
{
    const uint64_t n =
        SONDE_MIN(SONDE_MAX(since / 3, (uint64_t)LEAST), (uint64_t)SONDE__RULES_KEPT);
    double error = 0.0;
    const double now = mean_of_last(progress, n, &error);
    const double spread = error * sqrt((double)n);
    const uint64_t firsts = mark->count == 0 ? (uint64_t)SONDE__RULES_FIRST : 1;
    const double before =
        isnan(mark->error) ? spread / sqrt((double)firsts) : fmin(mark->error, spread);
    const double both = sqrt(error * error + before * before);
    const double rise = now - mark->level, size = fabs(mark->level);
    const double start = first_level(progress), one = progress->first[0];
    /* a leap of the next losses does not raise the level */
    const double first = start > one + 2.0 * spread ? one : start;
    const double fall = first - now;
    const bool hurt = rise > fmax((BACK - 1.0) * size, 2.0 * both);
    /* what was lost at the start and is regained does not show that inputs are used */
    const double base =
        progress->standard > 0.0 ? fmin(first, progress->standard) : first;

    if (!hurt &&
        (event || (base - now > SURE * both && base - now > FALLEN * fabs(base)))) {
        return SONDE__RULES_WELL;
    }
    if (rise > SURE * both && rise > RISEN * size) {
        return SONDE__RULES_ILL;
    }
    if (since >= SONDE__RULES_LONG && !progress->crosses &&
        fall < fmax(fmax(SLIGHT, mark->slight) * fabs(first),
                    fmin(2.0 * both, FALLEN * fabs(first)))) {
        return SONDE__RULES_STILL;
    }
    return SONDE__RULES_OPEN;
}

sonde__rules_verdict sonde__rules_progress_since(const sonde__rules_progress *progress,
                                                 const sonde__rules_progress_mark *mark,
                                                 bool event, bool ended)
{
    const uint64_t since = progress->count - mark->count;
    sonde__rules_progress_mark start = *mark;
    sonde__rules_verdict verdict = SONDE__RULES_OPEN;

    if (progress->bad > mark->bad) {
        return SONDE__RULES_ILL;
    }
    if (ended ? since < LEAST : since == 0 || since % SONDE__RULES_SHORT != 0) {
        return ended ? SONDE__RULES_NONE : SONDE__RULES_OPEN;
    }
    if (mark->count == 0) {
        start.level = first_level(progress);
    }
    verdict = compare(progress, &start, event, since);
    if (verdict == SONDE__RULES_ILL || verdict == SONDE__RULES_STILL) {
        verdict = !progress->free && !progress->named && !progress->parts ? verdict
                  : since < SONDE__RULES_LONG ? SONDE__RULES_OPEN
                                              : SONDE__RULES_NONE;
    }
    return verdict == SONDE__RULES_OPEN && (since >= SONDE__RULES_LONG || ended)
               ? SONDE__RULES_NONE
               : verdict;
}

bool sonde__rules_progress_is_relapsed(const sonde__rules_progress *progress)
{
    const bool falls = !progress->free && !progress->named && !progress->parts;

    return progress->bad_row >= LEAST || (falls && progress->relapsed >= LASTING);
}

void sonde__rules_progress_fini(sonde__rules_progress *progress)
{
    sonde__free(progress->losses);
    sonde__free(progress->signs);
    progress->losses = NULL;
    progress->signs = NULL;
}
