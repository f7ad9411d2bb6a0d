/*
 * log_lock.h - holds the sink of the log over a fork. Internal.
 *
 * The mutex of the sink belongs to a thread that a forked child lacks, if that thread logs
 * at the moment of the fork. Take it last before the fork; release it in both processes.
 * A sink that forks holds it already: then these do nothing.
 */
#ifndef SONDE_BASE_LOG_LOCK_H
#define SONDE_BASE_LOG_LOCK_H

void sonde__log_hold(void);
void sonde__log_release(void);

#endif
