/*
 * plot_output.h - the kind of a picture file, by its path.
 */
#ifndef SONDE_PLOT_PLOT_OUTPUT_H
#define SONDE_PLOT_PLOT_OUTPUT_H

#include <sonde/error.h>

typedef enum sonde__plot_kind { SONDE__PLOT_PNG, SONDE__PLOT_SVG } sonde__plot_kind;

sonde_err sonde__plot_kind_of(const char *path, sonde__plot_kind *kind, sonde_diag *diag);

#endif
