/*
 * pictures.h - the pictures of a training.
 */
#ifndef SONDE_CLI_PICTURES_H
#define SONDE_CLI_PICTURES_H

#include <sonde/nn/dataset.h>
#include <sonde/nn/metrics.h>

#include "cli/cli.h"

/* What there is to be drawn; borrowed. */
typedef struct cli_pictures {
    const char *out; /* folder */
    const sonde_nn_dataset *train, *test;
    float *losses; /* of every call */
    size_t loss_count;
    const sonde_nn_confusion *matrix; /* NULL: none */
} cli_pictures;

/* samples.png if the set holds images, loss.png, confusion.png. */
sonde_err cli_draw_pictures(const cli_pictures *run, sonde_diag *diag);

#endif
