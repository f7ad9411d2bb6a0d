/*
 * heat.h - how the magnitudes of a tensor move over the steps of a run, as a picture.
 */
#ifndef SONDE_CLI_HEAT_H
#define SONDE_CLI_HEAT_H

#include <sonde/plot.h>

#include "cli/cli_run.h"

/* A column for each step of the range that has a sketch or a value, at most 1000, evenly
 * chosen. The page's note is written here. *left_out counts what cannot be read. */
sonde_err cli_draw_heat(sonde_trial *trial, uint32_t id, const cli_range *range,
                        const char *x_label, const sonde_plot_page *page,
                        size_t *left_out, const char *path, sonde_diag *diag);

#endif
