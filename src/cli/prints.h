/*
 * prints.h - tensors that a command prints at every step.
 */
#ifndef SONDE_CLI_PRINTS_H
#define SONDE_CLI_PRINTS_H

#include <sonde/nn/job.h>
#include <sonde/nn/session.h>
#include <sonde/print.h>

#include "cli/cli.h"

/*
 * Taps for --print's selectors and for those of the job's taps that print. *printer stays NULL if
 * there are none; it is to be destroyed behind the session, even after an error.
 */
sonde_err cli_prints_open(const cli_list *asked, sonde_nn_job *job,
                          sonde_nn_session *session, sonde_printer **printer,
                          sonde_diag *diag);

#endif
