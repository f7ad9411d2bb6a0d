/*
 * parts.h - what sets of arrays and of tables share: fields, classes, and a split that is
 * drawn.
 */
#ifndef SONDE_NN_DATA_PARTS_H
#define SONDE_NN_DATA_PARTS_H

#include <sonde/nn/dataset.h>

/* How a set is split. */
typedef struct sonde__data_draw {
    sonde_nn_split split;
    double test_share; /* 0: a tenth */
    uint64_t seed;
} sonde__data_draw;

/* Appends a field over the contiguous elements of data (N, ...), borrowed. */
sonde_err sonde__dataset_add_field(sonde_nn_dataset *set, const char *name,
                                   const sonde_view *data, sonde_diag *diag);
/* Checks that all labels, `count` of them, are 0 or more, and sets the number of classes. */
sonde_err sonde__dataset_set_all_classes(sonde_nn_dataset *set, int64_t count,
                                         const char *where, sonde_diag *diag);
sonde_err sonde__dataset_check_share(double test_share, sonde_diag *diag);
/* Samples of the test set among count. */
int64_t sonde__dataset_test_count(const sonde__data_draw *draw, int64_t count);
/* The part of a set that is the split, which owns the set. Takes set, also on failure. */
sonde_err sonde__dataset_take_split(sonde_nn_dataset *set, const sonde__data_draw *draw,
                                    sonde_nn_dataset **out, sonde_diag *diag);

#endif
