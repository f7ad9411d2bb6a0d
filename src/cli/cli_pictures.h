/*
 * cli_pictures.h - the pictures and scores that a training or an evaluation leaves.
 */
#ifndef SONDE_CLI_CLI_PICTURES_H
#define SONDE_CLI_CLI_PICTURES_H

#include <sonde/nn/dataset.h>
#include <sonde/nn/evaluator.h>
#include <sonde/nn/metrics.h>

#include "cli/cli.h"
#include "cli/cells.h"

/* Points of a curve. {0} has none. */
typedef struct cli_curve {
    float *x, *y;
    size_t count, capacity;
} cli_curve;

sonde_err cli_curve_add(cli_curve *curve, double x, double y, sonde_diag *diag);
void cli_curve_free(cli_curve *curve);

/* The data of the pictures; borrowed. */
typedef struct cli_pictures {
    const char *out; /* folder */
    const sonde_nn_dataset *train, *test;
    const cli_curve *losses;          /* of every call, whose number is x */
    const cli_curve *evaluations;     /* their losses, at the calls before them */
    const sonde_nn_confusion *matrix; /* NULL: none */
} cli_pictures;

/* samples.png if the set holds images, loss.png, confusion.png: appends the names of
 * those that were drawn, and warns of others. */
void cli_draw_pictures(const cli_pictures *run, cli_list *drawn);

/* Loss, accuracy, and a line for each class; brief: the accuracy alone. */
void cli_print_scores(const sonde_nn_score *score, const sonde_nn_confusion *matrix,
                      const sonde_nn_dataset *set, bool brief);
/* The members of a score in JSON, each name after a prefix ("eval_" or ""). */
void cli_put_score(sonde_json *json, const char *prefix, const sonde_nn_score *score);
/* confusion.png (or .svg). */
sonde_err cli_draw_confusion(const char *path, const sonde_nn_confusion *matrix,
                             const sonde_nn_dataset *set, const char *title,
                             sonde_diag *diag);

#endif
