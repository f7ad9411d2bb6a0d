/*
 * ls_runs.h - the runs in a folder.
 */
#ifndef SONDE_CLI_LS_RUNS_H
#define SONDE_CLI_LS_RUNS_H

#include "cli/cli_run.h"

/* Prints a line for each run in a folder, sorted by name; or only names, or one JSON
 * object. Opens each of them. False: there is none, and nothing was printed. */
bool cli_ls_runs(const char *folder, bool names, bool json);

#endif
