/*
 * diff_state.h - the state of a comparison, shared by the files of this room. Internal.
 */
#ifndef SONDE_DIFF_DIFF_STATE_H
#define SONDE_DIFF_DIFF_STATE_H

#include "diff/side.h"

#include <sonde/diff.h>

/* The sides by number. */
enum { SONDE__DIFF_A, SONDE__DIFF_B, SONDE__DIFF_YARDSTICK, SONDE__DIFF_SIDES };

/* A tensor of A, and what the other sides call it. */
typedef struct sonde__diff_row {
    const sonde__diff_entry *entry[SONDE__DIFF_SIDES]; /* NULL: that side has none */
    sonde_role role;
    double terms[SONDE_MODE_COUNT]; /* of its sums, in each mode's program */
    sonde_diff_tensor out;
} sonde__diff_row;

struct sonde_diff {
    sonde_diff_options options; /* texts are not kept */
    sonde__diff_side side[SONDE__DIFF_SIDES];
    bool has_yardstick;
    sonde__diff_row *rows; /* as A lists them */
    size_t count;
    uint32_t *first,
        *later; /* (count) rows in the order of the first step, and of others */
    const char **only_b;
    sonde_diff_report report;
    sonde_program *program[SONDE_MODE_COUNT];
    bool begun;   /* a step was compared */
    double unit;  /* the largest unit roundoff so far */
    double terms; /* of the step's sums so far */
    double grown; /* the largest ratio of the steps before */
    double now;   /* of this step */
};

/* Sets diff->first and later: rows in the order in which a step computes their values. */
SONDE_CHECKED sonde_err sonde__diff_order(sonde_diff *diff, sonde_diag *diag);

/* Compares one tensor at one place of each side. out->kind is SONDE_DIFF_SAME if nothing
 * differs; *compared: false if the sides have no form in common there. */
SONDE_CHECKED sonde_err sonde__diff_place(sonde_diff *diff, const sonde__diff_row *row,
                                          const sonde_trial_at at[SONDE__DIFF_SIDES],
                                          sonde_difference *out, bool *compared,
                                          sonde_diag *diag);

#endif
