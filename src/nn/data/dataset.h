/*
 * dataset.h - the inside of a data set.
 *
 * Three kinds: contiguous samples in memory (data) or in mapped files (arrays), an image
 * file for each (files), or a part of another set (whole). The first two own or borrow
 * their data, labels and fields.
 */
#ifndef SONDE_NN_DATA_DATASET_H
#define SONDE_NN_DATA_DATASET_H

#include "base/macros.h"
#include "nn/data/files.h"
#include "nn/data/pixels.h"

#include <sonde/nn/dataset.h>
#include <sys/stat.h>

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
    size_t file_bytes;                                /* the largest file */
    const unsigned char *field_data[SONDE_NN_FIELDS]; /* (count, ...) */
    size_t field_bytes[SONDE_NN_FIELDS];              /* of a sample */
    const sonde_nn_dataset *whole; /* the set that this is a part of, or NULL */
    sonde_nn_dataset *own_whole;   /* the same, if destroy destroys it */
    int64_t *chosen;               /* (count): indices into whole, ascending */
    void *owned_data;
    void *owned_fields[SONDE_NN_FIELDS]; /* converted */
    char *field_names[SONDE_NN_FIELDS];  /* with traits.fields[i].name an alias */
    sonde__data_arrays *arrays;          /* the files of data and fields, or NULL */
    int64_t *owned_labels;
    size_t label_capacity;
    char **names; /* class names, with traits.class_names an alias */
    size_t name_capacity;
    char *source;
};

/* Prefetches a sample into cache; of a large one only the start, since the hardware
 * prefetches the rest. */
static inline void sonde__dataset_prefetch(const sonde_nn_dataset *set, int64_t index)
{
    enum { LINE = 64, MOST = 2048 };
    const size_t bytes = SONDE_MIN(set->sample_bytes, (size_t)MOST);

    for (; set->whole != NULL; set = set->whole) {
        index = set->chosen[index];
    }
    if (set->files == NULL) {
        const unsigned char *sample = set->data + (size_t)index * set->sample_bytes;

        for (size_t offset = 0; offset < bytes; offset += LINE) {
            __builtin_prefetch(sample + offset);
        }
    }
}

/* Bytes of a field of one sample. */
static inline size_t sonde__dataset_field_bytes(const sonde_nn_field *field)
{
    size_t bytes = sonde_dtype_size(field->dtype);

    for (int i = 0; i < field->rank; i++) {
        bytes *= (size_t)field->shape[i];
    }
    return bytes;
}

/* A place in scratch. */
#define SONDE__DATA_ROUND(bytes) (((bytes) + 15) / 16 * 16)

enum { SONDE__DATA_PATH = 4096 };

/* A set that is being opened. */
typedef struct sonde__data_opening {
    const char *path;
    const sonde_nn_dataset_options *options;
    sonde_nn_dataset *set; /* to fill; sonde_nn_dataset_open destroys it after an error */
    bool whole;            /* the set holds both splits: one is to be drawn */
    bool split_files;      /* ARRAYS: the file has one split */
    sonde_diag *diag;
} sonde__data_opening;

sonde_err sonde__data_open_folder(sonde__data_opening *o);
sonde_err sonde__data_open_split(sonde__data_opening *o);
sonde_err sonde__data_open_image(sonde__data_opening *o);
sonde_err sonde__data_open_text(sonde__data_opening *o);
sonde_err sonde__data_draw_text(sonde__data_opening *o);
sonde_err sonde__data_open_arrays(sonde__data_opening *o);
sonde_err sonde__data_open_table(sonde__data_opening *o);
sonde_err sonde__data_draw(sonde__data_opening *o);

/* What a path is. */
bool sonde__data_is_table(const char *path);
bool sonde__data_has_arrays(const char *path);
bool sonde__data_is_image(const char *path);
bool sonde__data_has_split(const char *path);
static inline bool sonde__data_is_folder(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* A regular one. */
static inline bool sonde__data_is_file(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* "train", "test" */
extern const char *const sonde__data_split_names[];
/* The file of a split in a folder, with the first of the endings that there is. */
bool sonde__data_find_split(const char *folder, sonde_nn_split split,
                            const char *const *endings, size_t count,
                            char path[SONDE__DATA_PATH]);

/* The origin of a sample: its file in a folder, else the source. Borrowed. */
SONDE_API const char *sonde__dataset_where(const sonde_nn_dataset *set, int64_t index);
/* Copies the origin of a set: a path or a word. */
sonde_err sonde__dataset_set_source(sonde_nn_dataset *set, const char *source,
                                    sonde_diag *diag);
/* Count, shape and dtype from data (N, ...), whose elements must be contiguous. */
sonde_err sonde__dataset_set_data(sonde_nn_dataset *set, const sonde_view *data,
                                  const char *where, sonde_diag *diag);
/* Checks set->labels against the options, sets the number of classes
 * and copies their names. */
sonde_err sonde__dataset_set_classes(sonde_nn_dataset *set,
                                     const sonde_nn_dataset_options *options,
                                     const char *where, sonde_diag *diag);
/* Appends a class name. */
sonde_err sonde__dataset_add_name(sonde_nn_dataset *set, const char *name,
                                  sonde_diag *diag);
/* Appends a field over the contiguous elements of data (N, ...), borrowed. */
sonde_err sonde__dataset_add_field(sonde_nn_dataset *set, const char *name,
                                   const sonde_view *data, sonde_diag *diag);
/* Checks that all labels, `count` of them, are 0 or more, and sets the number of classes. */
sonde_err sonde__dataset_set_all_classes(sonde_nn_dataset *set, int64_t count,
                                         const char *where, sonde_diag *diag);
/* Samples of the test set among count. */
int64_t sonde__dataset_test_count(const sonde_nn_dataset_options *draw, int64_t count);
/* The part of a set that is the split, which owns the set. Takes set, also on failure. */
sonde_err sonde__dataset_take_split(sonde_nn_dataset *set,
                                    const sonde_nn_dataset_options *draw,
                                    sonde_nn_dataset **out, sonde_diag *diag);

#endif
