/*
 * team.h - a few threads that walk through a plan together.
 *
 * The caller is member 0; the others sleep between runs and spin at barriers within one,
 * since steps are microseconds long. After a while of spinning a waiting member yields
 * its processor, so a busy machine slows a team down but never stops it.
 */
#ifndef SONDE_NN_RUN_TEAM_H
#define SONDE_NN_RUN_TEAM_H

#include <sonde/error.h>

#include <stdbool.h>

typedef struct sonde__session_team sonde__session_team;

/* threads >= 2. SONDE_EIO if the system has no thread left. */
sonde_err sonde__session_team_create(int threads, sonde__session_team **out);
void sonde__session_team_destroy(sonde__session_team *team); /* joins; NULL is fine */

/* Calls job(user, member) on every member, the caller included; returns when all are
 * done. */
void sonde__session_team_run(sonde__session_team *team,
                             void (*job)(void *user, int member), void *user);
/* Within a job: no member passes before all have arrived. Memory written before it is
 * seen after it. */
void sonde__session_team_barrier(sonde__session_team *team);

/* --- pace --------------------------------------------------------------------------- */

/*
 * Finds by trying whether a team is faster than one thread.
 *
 * Steps are microseconds long, so a member that the system has put to sleep costs the
 * others more time than it saves: on a busy machine one thread alone is many times faster
 * than two. Results do not depend on the number of threads, so each call may choose anew:
 * a few calls of one kind, a few of the other, then many of the faster, and again.
 */
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
