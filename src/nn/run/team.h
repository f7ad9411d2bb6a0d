/*
 * team.h - a few threads that walk through a plan together.
 *
 * The caller is member 0; the others sleep between runs and spin at barriers within one,
 * since steps are microseconds long. After a while of spinning a waiting member yields its
 * processor, so a busy machine slows a team down but never stops it.
 */
#ifndef SONDE_NN_RUN_TEAM_H
#define SONDE_NN_RUN_TEAM_H

#include "base/base.h"

typedef struct sonde__team sonde__team;

/* threads >= 2. SONDE_EIO if the system has no thread left. */
sonde_err sonde__team_create(int threads, sonde__team **out);
void sonde__team_destroy(sonde__team *team); /* joins; NULL is fine */

/* Calls job(user, member) on every member, the caller included; returns when all are done. */
void sonde__team_run(sonde__team *team, void (*job)(void *user, int member), void *user);
/* Within a job: nobody passes before all have come. Memory written before is seen behind. */
void sonde__team_barrier(sonde__team *team);

#endif
