/*
 * ls_runs.h - the runs in a folder.
 */
#ifndef SONDE_CLI_LS_RUNS_H
#define SONDE_CLI_LS_RUNS_H

#include "cli/cli_run.h"

/* Prints a line for each run that lies in the folder itself, by name; or names alone, or one
 * JSON object. False, and nothing is printed, if there is none. Cost: opens each of them. */
bool cli_ls_runs(const char *folder, bool names, bool json);

#endif
