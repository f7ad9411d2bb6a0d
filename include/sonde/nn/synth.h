/*
 * synth.h - a synthetic substitute for Fashion-MNIST, for machines without a network.
 *
 * Ten classes of garments in the order and with the names of Fashion-MNIST, 28 x 28 grey
 * on black, drawn from outlines whose cut, pose, size, cloth and light vary from sample
 * to sample. Similar classes overlap on purpose (a shirt is nearly a coat): a network
 * learns them, but not to 100 %. Sample i of a split depends only on (seed, split, i) and
 * the platform's math library.
 *
 * Threads: calls share nothing; two may not write one folder at once.
 */
#ifndef SONDE_NN_SYNTH_H
#define SONDE_NN_SYNTH_H

#include <sonde/options.h>
#include <sonde/nn/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SONDE_NN_SYNTH_SIDE = 28, SONDE_NN_SYNTH_CLASSES = 10 };

/* Draws sample index, from 0, into pixels (28, 28); returns its label. Cost: some 20 us. */
SONDE_API int sonde_nn_synth_draw(uint64_t seed, sonde_nn_split split, int64_t index,
                                  uint8_t *pixels);

typedef struct sonde_nn_synth_options {
    size_t size; /* sizeof(sonde_nn_synth_options) */
    uint64_t seed;
    int64_t train, test; /* samples; 0: 60,000 and 10,000 */
    bool (*progress)(void *user, int64_t done,
                     int64_t total); /* may be NULL; false stops */
    void *user;
} sonde_nn_synth_options;

/*
 * Writes the four IDX.gz files that sonde_nn_dataset_open_named reads as "fashion-synth"
 * into dir, which is created if missing (NULL: sonde_nn_data_cache of that name). options
 * may be NULL. SONDE_EINTERRUPTED: progress stopped it. Files appear only when complete.
 * Cost: one or two seconds.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_synth(const char *dir,
                                                 const sonde_nn_synth_options *options,
                                                 sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
