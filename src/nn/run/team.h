/*
 * team.h - a few threads that walk through a plan together.
 *
 * The caller is member 0; the others sleep between runs and spin at barriers within one,
 * since steps are microseconds long. After a while of spinning a waiting member yields its
 * processor, so a busy machine slows a team down but never stops it.
 */
#ifndef SONDE_NN_RUN_TEAM_H
#define SONDE_NN_RUN_TEAM_H

#include <sonde/error.h>

typedef struct sonde__session_team sonde__session_team;

/* threads >= 2. SONDE_EIO if the system has no thread left. */
sonde_err sonde__session_team_create(int threads, sonde__session_team **out);
void sonde__session_team_destroy(sonde__session_team *team); /* joins; NULL is fine */

/* Calls job(user, member) on every member, the caller included; returns when all are done. */
void sonde__session_team_run(sonde__session_team *team,
                             void (*job)(void *user, int member), void *user);
/* Within a job: no member passes before all have arrived. Memory written before it is
 * seen after it. */
void sonde__session_team_barrier(sonde__session_team *team);

#endif
