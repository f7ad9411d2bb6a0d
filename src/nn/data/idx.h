/*
 * idx.h - IDX arrays as the rest of the room sees them.
 */
#ifndef SONDE_NN_DATA_IDX_H
#define SONDE_NN_DATA_IDX_H

#include <sonde/nn/idx.h>

struct sonde_nn_idx {
    sonde_view view;
    void *data; /* owned */
};

/* Hands the elements over: the caller frees them, the array is empty afterwards. */
void *sonde__data_idx_take(sonde_nn_idx *array);

#endif
