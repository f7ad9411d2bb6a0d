/*
 * data_loader.h - a data set whose samples tell which they are, and reading it by a
 * loader.
 */
#ifndef SONDE_TESTS_NN_DATA_LOADER_H
#define SONDE_TESTS_NN_DATA_LOADER_H

#include "nn/data_files.h"

#include <sonde/nn/loader.h>

enum { SAMPLE = 6, MOST = 4096 };

/* count samples of (1, 2, 3) bytes: sample i begins with i % 251, its label is i. */
typedef struct plain_set {
    uint8_t pixels[MOST][SAMPLE];
    int64_t labels[MOST];
    sonde_nn_dataset *set;
} plain_set;

static plain_set plain;

static inline sonde_nn_dataset *set_of(int64_t count)
{
    const int64_t shape[3] = {count, 2, 3};
    const sonde_view data = sonde_view_of(SONDE_U8, 3, shape, plain.pixels);
    const sonde_view labels = sonde_view_of(SONDE_I64, 1, shape, plain.labels);

    for (int64_t i = 0; i < count; i++) {
        for (int j = 0; j < SAMPLE; j++) {
            plain.pixels[i][j] = (uint8_t)(i % 251 + j);
        }
        plain.labels[i] = i;
    }
    sonde_nn_dataset_destroy(plain.set);
    assert_int_equal(sonde_nn_dataset_open(NULL,
                                           SONDE_OPTIONS(sonde_nn_dataset, .data = &data,
                                                         .labels = &labels),
                                           &plain.set, NULL),
                     SONDE_OK);
    return plain.set;
}

static inline sonde_nn_loader *loader_of(const sonde_nn_dataset *set,
                                         const sonde_nn_loader_options *options)
{
    sonde_nn_loader *loader = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    if (sonde_nn_loader_create(set, options, &loader, &diag) != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    return loader;
}

/* Reads at most batches batches, checks each against the data set, and writes down which
 * samples came. Returns how many. */
static inline int64_t read_epoch(sonde_nn_loader *loader, int64_t batches, int64_t batch,
                                 int64_t *seen)
{
    int64_t count = 0;

    for (int64_t n = 0; n < batches; n++) {
        sonde_nn_batch b = {0};

        assert_int_equal(sonde_nn_loader_next(loader, &b, NULL), SONDE_OK);
        if (b.count == 0) {
            break;
        }
        assert_int_equal(b.number, n);
        assert_true(b.count == batch ||
                    n == sonde_nn_loader_get_info(loader).batches - 1);
        for (int64_t i = 0; i < b.count; i++) {
            assert_int_equal(b.indices[i], b.labels[i]);
            assert_memory_equal((const uint8_t *)b.data + i * SAMPLE,
                                plain.pixels[b.labels[i]], SAMPLE);
            seen[count++] = b.labels[i];
        }
    }
    return count;
}

static inline bool is_permutation(const int64_t *seen, int64_t count)
{
    static bool there[MOST];

    memset(there, 0, sizeof there);
    for (int64_t i = 0; i < count; i++) {
        if (seen[i] < 0 || seen[i] >= count || there[seen[i]]) {
            return false;
        }
        there[seen[i]] = true;
    }
    return true;
}

#endif
