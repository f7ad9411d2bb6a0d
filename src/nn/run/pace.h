/*
 * pace.h - whether a team of threads is faster than one thread, found by trying.
 *
 * Steps are microseconds long, so a member that the system has put to sleep costs the
 * others more time than it saves: on a busy machine one thread alone is many times faster
 * than two. Results do not depend on the number of threads, so each call may choose anew:
 * a few calls of one kind, a few of the other, then many of the faster, and again.
 */
#ifndef SONDE_NN_RUN_PACE_H
#define SONDE_NN_RUN_PACE_H

#include <stdbool.h>

typedef struct sonde__session_pace {
    bool fixed;    /* always together */
    bool together; /* what the calls of this stretch are */
    bool trying;   /* a short stretch of the slower kind */
    int warming; /* calls that come first and are not measured: caches fill, threads wake */
    int left;    /* calls of the stretch still to come */
    int done;    /* calls of it so far */
    double spent;   /* seconds of those */
    double mean[2]; /* seconds a call, alone and together, when last measured */
} sonde__session_pace;

void sonde__session_pace_init(sonde__session_pace *pace, bool fixed);
/* Whether the coming call is the team's. */
static inline bool sonde__session_pace_together(const sonde__session_pace *pace)
{
    return pace->fixed || pace->together;
}
/* How long the call took. */
void sonde__session_pace_took(sonde__session_pace *pace, double seconds);

#endif
