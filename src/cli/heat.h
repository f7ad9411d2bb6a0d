/*
 * heat.h - a heat map of the magnitudes of a tensor over the steps of a run.
 */
#ifndef SONDE_CLI_HEAT_H
#define SONDE_CLI_HEAT_H

#include <sonde/plot.h>

#include "cli/cli_run.h"

/* Draws a column for each step of the range with a sketch or a value, at most 1000,
 * evenly spaced. Sets the page's note. *left_out counts unreadable steps. */
sonde_err cli_draw_heat(sonde_trial *trial, uint32_t id, const cli_range *range,
                        const char *x_label, const sonde_plot_page *page,
                        size_t *left_out, const char *path, sonde_diag *diag);

#endif
