/*
 * team.h - a few threads that walk through a plan together.
 *
 * The caller is member 0. A waiting member spins for about as long as a sleep and a wake
 * cost, since steps are microseconds long, and then sleeps, so that its processor is free
 * for the members that it waits for. A team with more members than processors does not
 * spin.
 */
#ifndef SONDE_NN_RUN_TEAM_H
#define SONDE_NN_RUN_TEAM_H

#include <sonde/error.h>

#include <stdatomic.h>
#include <stdbool.h>

typedef struct sonde__session_team sonde__session_team;

/* A number that threads wait for. */
typedef struct sonde__session_word {
    _Alignas(64) atomic_uint value;
    _Alignas(64) atomic_int sleeping; /* threads in the kernel */
    int spins;
} sonde__session_word;

/* Where so many threads wait for each other: a barrier. */
typedef struct sonde__session_meeting {
    sonde__session_word generation; /* counts meetings */
    _Alignas(64) atomic_int arrived;
    int threads;
} sonde__session_meeting;

/* SONDE_API here and below: for tests, which link the shared library. */

/* threads >= 2. SONDE_EIO if the system has no thread left. */
SONDE_API sonde_err sonde__session_team_create(int threads, sonde__session_team **out);
/* Joins the threads. NULL is fine. */
SONDE_API void sonde__session_team_destroy(sonde__session_team *team);

/* Calls job(user, member) on every member, the caller included; returns when all are
 * done. */
SONDE_API void sonde__session_team_run(sonde__session_team *team,
                                       void (*job)(void *user, int member), void *user);
/* Within a job: no member passes before all have arrived. Memory written before it is
 * seen after it. */
SONDE_API void sonde__session_team_barrier(sonde__session_team *team);

/* The same barrier, for code that does not have the team. */
sonde__session_meeting *sonde__session_team_meeting(sonde__session_team *team);

/* A meeting of some members of a team that has `all`. Its memory is the caller's, aligned
 * to 64 bytes. */
void sonde__session_meeting_init(sonde__session_meeting *meeting, int threads, int all);
/* No thread returns before all of the meeting have called. Memory written before it is
 * seen after it. */
void sonde__session_meet(sonde__session_meeting *meeting);

/* Turns, numbered from 0: a thread waits for its own, and passes it on. Memory written in
 * a turn is seen in the next. */
void sonde__session_turns_init(sonde__session_word *turns, int all);
/* The turn at hand. */
unsigned sonde__session_turn_now(const sonde__session_word *turns);
void sonde__session_turn_await(sonde__session_word *turns, unsigned ticket);
/* Returns when the count has reached `least`, of counts that differ by less than 2^31. */
void sonde__session_count_await(sonde__session_word *count, unsigned least);
void sonde__session_turn_pass(sonde__session_word *turns);

/* --- pace --------------------------------------------------------------------------- */

/*
 * Finds by trying whether a team is faster than one thread.
 *
 * Steps are microseconds long, so a member that the system has put to sleep costs the
 * others more time than it saves: on a busy machine one thread alone is many times faster
 * than two. Results do not depend on the number of threads, so each step may choose anew:
 * a stretch of one kind, a short trial of the other, then the faster one. A stretch that
 * its trial confirms makes the next one longer. A stretch that becomes slow ends early,
 * and so does a trial that is slow: on a busy machine one step of it may take as long as
 * a hundred of the other kind.
 */
typedef struct sonde__session_pace {
    bool together;   /* the kind of the steps of this stretch */
    bool trying;     /* a trial: short */
    int warming;     /* first steps, not measured: caches fill, threads wake */
    int done;        /* measured steps of the stretch */
    double spent;    /* seconds of those */
    double window;   /* seconds of the latest of those */
    int window_done; /* count of the latest */
    int steps;       /* of the stretch, measured or not */
    double total;    /* seconds of those */
    double stretch;  /* seconds of the next stretch */
    double mean[2];  /* seconds a step, alone and together, when last measured */
} sonde__session_pace;

SONDE_API void sonde__session_pace_init(sonde__session_pace *pace);
/* Whether the coming step is the team's. */
static inline bool sonde__session_pace_together(const sonde__session_pace *pace)
{
    return pace->together;
}
/* Records how long the step took. */
SONDE_API void sonde__session_pace_took(sonde__session_pace *pace, double seconds);

#endif
