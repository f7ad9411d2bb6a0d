/*
 * latency.c - how long calls of run took: counts by duration, 32 to an octave, so that a
 * percentile is known to 3 %.
 */
#include "nn/run/session_state.h"

#include <math.h>

enum { SHARES = 32, SHARES_LOG2 = 5, LONGEST_LOG2 = 45 }; /* ns; 2^45 are ten hours */

static size_t bucket_of(uint64_t ns)
{
    int log2 = SHARES_LOG2;

    if (ns < SHARES) {
        return (size_t)ns;
    }
    ns = ns < (UINT64_C(1) << LONGEST_LOG2) ? ns : (UINT64_C(1) << LONGEST_LOG2) - 1;
    log2 = 63 - __builtin_clzll(ns);
    return (size_t)(log2 - SHARES_LOG2 + 1) * SHARES +
           (size_t)(ns >> (log2 - SHARES_LOG2)) - SHARES;
}

/* The middle of a bucket, in seconds. */
static double duration_of(size_t bucket)
{
    const int octave = (int)(bucket / SHARES);
    const double share = (double)(bucket % SHARES);

    return 1e-9 * (octave == 0 ? share : ldexp(SHARES + share + 0.5, octave - 1));
}

void sonde__session_latency_add(sonde__session_latency *latency, double seconds)
{
    const double ns = seconds > 0.0 ? seconds * 1e9 : 0.0;

    latency->least = latency->calls == 0 ? seconds : fmin(latency->least, seconds);
    latency->most = fmax(latency->most, seconds);
    latency->sum += seconds;
    latency->calls++;
    latency->counts[bucket_of((uint64_t)ns)]++;
}

/* The duration that a share of the calls did not exceed. */
static double percentile(const sonde__session_latency *latency, double share)
{
    const int64_t wanted = (int64_t)ceil(share * (double)latency->calls);
    int64_t count = 0;

    for (size_t i = 0; i < SONDE__LATENCY_BUCKETS; i++) {
        count += latency->counts[i];
        if (count >= wanted) {
            return fmin(fmax(duration_of(i), latency->least), latency->most);
        }
    }
    return latency->most;
}

sonde_nn_latency sonde__session_latency_get(const sonde__session_latency *latency)
{
    if (latency->calls == 0) {
        return (sonde_nn_latency){.calls = 0};
    }
    return (sonde_nn_latency){.calls = latency->calls,
                              .minimum = latency->least,
                              .mean = latency->sum / (double)latency->calls,
                              .median = percentile(latency, 0.5),
                              .p90 = percentile(latency, 0.9),
                              .p99 = percentile(latency, 0.99),
                              .maximum = latency->most};
}
