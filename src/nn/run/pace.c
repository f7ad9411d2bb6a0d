/*
 * pace.c - see pace.h. A stretch is short while trying and long with the faster kind.
 */
#include "nn/run/pace.h"

#include <math.h>

enum { FIRST_CALLS = 16, WARM_CALLS = 2, TRY_CALLS = 8 };
static const double stretch_seconds = 0.2;

void sonde__session_pace_init(sonde__session_pace *pace, bool fixed)
{
    *pace = (sonde__session_pace){.fixed = fixed,
                                  .together = true,
                                  .trying = true,
                                  .warming = FIRST_CALLS,
                                  .left = TRY_CALLS,
                                  .mean = {INFINITY, INFINITY}};
}

/* Enough calls to make the cost of trying the other kind small. */
static int long_stretch(double seconds_a_call)
{
    const double calls = stretch_seconds / fmax(seconds_a_call, 1e-6);

    return calls > 8 * TRY_CALLS ? (int)calls : 8 * TRY_CALLS;
}

void sonde__session_pace_took(sonde__session_pace *pace, double seconds)
{
    if (pace->fixed) {
        return;
    }
    if (pace->warming > 0) {
        pace->warming--;
        return;
    }
    pace->spent += seconds;
    pace->done++;
    if (--pace->left > 0) {
        return;
    }
    pace->mean[pace->together] = pace->spent / pace->done;
    pace->spent = 0.0;
    pace->done = 0;
    pace->warming = WARM_CALLS;
    if (!pace->trying || isinf(pace->mean[!pace->together])) { /* now the other kind */
        pace->together = !pace->together;
        pace->trying = true;
        pace->left = TRY_CALLS;
    } else { /* both are known: take the faster */
        pace->together = pace->mean[1] < pace->mean[0];
        pace->trying = false;
        pace->left = long_stretch(pace->mean[pace->together]);
    }
}
