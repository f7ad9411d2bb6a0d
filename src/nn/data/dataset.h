/*
 * dataset.h - what a data set is inside.
 *
 * Three kinds: samples side by side in memory (data), one image file each (files), or some of
 * another set (whole). The first two may own their data and labels or borrow them.
 */
#ifndef SONDE_NN_DATA_DATASET_H
#define SONDE_NN_DATA_DATASET_H

#include "base/macros.h"
#include "nn/data/image.h"

#include <sonde/nn/dataset.h>

typedef struct sonde__data_image_file {
    char *path;
    sonde__data_image_info info;
} sonde__data_image_file;

struct sonde_nn_dataset {
    sonde_nn_dataset_traits traits;
    const unsigned char *data;     /* (count, shape...); NULL with files */
    size_t sample_bytes;           /* the largest, if they vary */
    const int64_t *labels;         /* (count) or NULL */
    sonde__data_image_file *files; /* count entries or NULL */
    size_t file_capacity;
    size_t file_bytes;             /* the largest file */
    const sonde_nn_dataset *whole; /* of a part: the set it is of; NULL otherwise */
    int64_t *chosen;               /* (count): its samples there, ascending */
    void *owned_data;
    int64_t *owned_labels;
    size_t label_capacity;
    char **names; /* class names, with traits.class_names an alias */
    size_t name_capacity;
    char *source;
};

/* Begins to bring a sample into cache; of large ones the beginning, the rest comes by
 * itself. */
static inline void sonde__dataset_prefetch(const sonde_nn_dataset *set, int64_t index)
{
    enum { LINE = 64, MOST = 2048 };
    const size_t bytes = SONDE_MIN(set->sample_bytes, (size_t)MOST);

    for (; set->whole != NULL; set = set->whole) {
        index = set->chosen[index];
    }
    if (set->files == NULL) {
        const unsigned char *sample = set->data + (size_t)index * set->sample_bytes;

        for (size_t at = 0; at < bytes; at += LINE) {
            __builtin_prefetch(sample + at);
        }
    }
}

/* Copies the path or word that a set came from. */
sonde_err sonde__dataset_set_source(sonde_nn_dataset *set, const char *source,
                                    sonde_diag *diag);
/* Count, shape and dtype from data (N, ...), whose elements must be contiguous. */
sonde_err sonde__dataset_set_data(sonde_nn_dataset *set, const sonde_view *data,
                                  const char *where, sonde_diag *diag);
/* Takes the labels in set->labels for what they are: checks them against the options
 * (which may be NULL), settles the number of classes and copies their names. */
sonde_err sonde__dataset_set_classes(sonde_nn_dataset *set,
                                     const sonde_nn_dataset_options *options,
                                     const char *where, sonde_diag *diag);
/* One more class name. */
sonde_err sonde__dataset_add_name(sonde_nn_dataset *set, const char *name,
                                  sonde_diag *diag);

#endif
