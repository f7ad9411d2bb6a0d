/*
 * kept.h - findings that a run holds already.
 */
#ifndef SONDE_CLI_KEPT_H
#define SONDE_CLI_KEPT_H

#include "cli/cli.h"

#include <sonde/rules.h>

/* How many findings of these rules are in RUN/findings that the rules have not found. */
size_t cli_kept_findings(const char *run, sonde_rules *rules);

#endif
