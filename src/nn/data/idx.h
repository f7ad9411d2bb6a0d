/*
 * idx.h - the inside of an IDX array.
 */
#ifndef SONDE_NN_DATA_IDX_H
#define SONDE_NN_DATA_IDX_H

#include <sonde/nn/idx.h>

struct sonde_nn_idx {
    sonde_view view;
    void *data; /* owned */
};

/* Returns the elements, owned by the caller; the array is empty afterwards. */
void *sonde__data_idx_take(sonde_nn_idx *array);

#endif
