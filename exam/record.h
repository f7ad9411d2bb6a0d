/*
 * record.h - a run recorded as rules look at it inside the process: vital signs of
 * everything at every step, raw values at every tenth, and those that rules ask for at
 * each step. So what is found afterwards has to be what was found at once, with the same
 * ids.
 */
#ifndef SONDE_BENCH_FAULTS_RECORD_H
#define SONDE_BENCH_FAULTS_RECORD_H

#include "faults.h"
#include "record/record_sink.h"

#include <sonde/recorder.h>

/* Records what a hook records by default instead, and nobody follows the run. */
extern bool faults_record_defaults;

/* Before the observer is bound. The rules write into the run what they find, and others
 * follow it from a thread of their own. */
sonde_recorder *faults_record(const char *path, const sonde_catalogue *catalogue,
                              sonde_observer *observer, sonde_rules *rules);
void faults_record_end(sonde_recorder *recorder); /* NULL is fine */
/* Judges what lies in path anew, and compares: how many findings of the process, of
 * those who followed and of this have no twin in the others. */
size_t faults_record_compare(const char *path, sonde_rules *rules);
/* The rules after they judged what lies in path. */
sonde_rules *faults_record_judge(const char *path);
void faults_record_remove(const char *path);

#endif
