/*
 * pictures.h - the pictures of a training.
 */
#ifndef SONDE_CLI_CLI_PICTURES_H
#define SONDE_CLI_CLI_PICTURES_H

#include <sonde/nn/dataset.h>
#include <sonde/nn/metrics.h>

#include "cli/cli.h"

/* Points of a curve. {0} has none. */
typedef struct cli_curve {
    float *x, *y;
    size_t count, capacity;
} cli_curve;

sonde_err cli_curve_add(cli_curve *curve, double x, double y, sonde_diag *diag);
void cli_curve_free(cli_curve *curve);

/* What there is to be drawn; borrowed. */
typedef struct cli_pictures {
    const char *out; /* folder */
    const sonde_nn_dataset *train, *test;
    const cli_curve *losses;          /* of every call, whose number is x */
    const cli_curve *evaluations;     /* their losses, at the calls they came behind */
    const sonde_nn_confusion *matrix; /* NULL: none */
} cli_pictures;

/* samples.png if the set holds images, loss.png, confusion.png. */
sonde_err cli_draw_pictures(const cli_pictures *run, sonde_diag *diag);

#endif
