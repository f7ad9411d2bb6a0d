/*
 * dataset.h - labelled samples by index.
 *
 * A data set is a map from 0 ... count - 1 to a sample (an array of uint8 or float32) and
 * a label. It comes from a pair of IDX files, a folder of images with one sub-folder a
 * class, one image file, arrays in memory, or another set, of which it is a part; and two
 * public sets and one drawn one are found by name. What can be wrong with it is found when it
 * is opened: truncated and
 * foreign files, counts that differ, labels out of range, image headers that do not fit.
 * Only the pixel data of images in a folder is read later, sample by sample.
 *
 * After opening a data set never changes, so any number of threads may read it.
 */
#ifndef SONDE_NN_DATASET_H
#define SONDE_NN_DATASET_H

#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_dataset sonde_nn_dataset;

typedef enum sonde_nn_split { SONDE_NN_TRAIN = 0, SONDE_NN_TEST = 1 } sonde_nn_split;

enum { SONDE_NN_SAMPLE_DIMS = 3, SONDE_NN_NO_LABEL = -1 };

/* What all samples have in common; strings are borrowed until the set is destroyed. */
typedef struct sonde_nn_dataset_traits {
    int64_t count;
    sonde_dtype dtype; /* SONDE_U8 or SONDE_F32 */
    int rank;          /* 3 for images: (C, H, W), also for IDX (N, H, W) with C = 1 */
    int64_t shape[SONDE_NN_SAMPLE_DIMS]; /* of one sample; the largest if they vary */
    bool varied_size; /* images differ in height or width: a resize or crop is needed */
    bool varied_channels; /* grey and colour are mixed: greyscale or rgb is needed */
    bool has_labels;      /* if not, every label is SONDE_NN_NO_LABEL */
    int64_t classes;      /* labels are 0 ... classes - 1; 0 without labels */
    const char *const *class_names; /* classes entries, or NULL */
    const char *source;             /* where it came from: a path, or "memory" */
} sonde_nn_dataset_traits;

typedef struct sonde_nn_sample {
    const void *data; /* row-major; borrowed: from the set, or from scratch */
    int64_t shape[SONDE_NN_SAMPLE_DIMS]; /* rank entries */
    int64_t label;
} sonde_nn_sample;

/* --- opening ------------------------------------------------------------------------ */

/* Not set (zero): found from the data. Strings are copied. */
typedef struct sonde_nn_dataset_options {
    int64_t classes;                /* labels must be below; 0: the largest label + 1 */
    const char *const *class_names; /* classes entries */
} sonde_nn_dataset_options;

/*
 * A pair of IDX files, plain or gzipped: images (N, ...) with one to three dimensions a
 * sample, labels (N) of any integer dtype; labels may be NULL, and so may options. uint8
 * stays as it is, all other dtypes become float32. SONDE_ESHAPE if the counts differ,
 * SONDE_ERANGE for a label out of range (index, value and range in diag).
 * Cost: both arrays are read into memory.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_open_idx(
    const char *images, const char *labels, const sonde_nn_dataset_options *options,
    sonde_nn_dataset **out, sonde_diag *diag);

/*
 * A folder whose sub-folders are the classes, in the order of their names; in them *.png,
 * *.jpg and *.jpeg files in the order of theirs. Hidden files and others are passed over.
 * Opening reads the headers of all images; get reads and decodes one.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_open_folder(const char *path,
                                                               sonde_nn_dataset **out,
                                                               sonde_diag *diag);

/* One PNG or JPEG file: one sample without a label, decoded at once. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_open_image(const char *path,
                                                              sonde_nn_dataset **out,
                                                              sonde_diag *diag);

/*
 * Contiguous arrays in memory, borrowed until destroy: data (N, ...) of uint8 or float32
 * with one to three dimensions a sample (two: an image, shape (1, H, W)), labels (N) of
 * int64 or NULL. Errors as in open_idx.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_from_memory(
    const sonde_view *data, const sonde_view *labels,
    const sonde_nn_dataset_options *options, sonde_nn_dataset **out, sonde_diag *diag);

/*
 * A set known by name: "fashion-mnist", "mnist", or "fashion-synth" (what sonde_nn_synth
 * draws). Looked for, as train-images-idx3-ubyte and so on with or without .gz, in
 *     dir and dir/<name>                   if dir is not NULL: there and nowhere else
 *     $SONDE_DATA and $SONDE_DATA/<name>   if set
 *     the cache, see sonde_nn_data_cache
 * SONDE_ENOTFOUND lists the places and the commands that help; an unknown name lists the
 * nearest known one.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_open_named(const char *name,
                                                              sonde_nn_split split,
                                                              const char *dir,
                                                              sonde_nn_dataset **out,
                                                              sonde_diag *diag);
/* The known names, in order; NULL from the first index that is none. */
SONDE_API const char *sonde_nn_dataset_name(size_t index);
/* The names of a known set's ten classes, without opening it; NULL for an unknown set. */
SONDE_API const char *const *sonde_nn_dataset_class_names(const char *name);

/*
 * Where data set name is kept: <base>/data/<name> with base $SONDE_CACHE, else
 * $XDG_CACHE_HOME/sonde, else $HOME/.cache/sonde. SONDE_ENOTFOUND if none of the three is
 * set, SONDE_EINVAL if it does not fit.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_data_cache(const char *name, char *path,
                                                      size_t size, sonde_diag *diag);

/*
 * Some samples of a set, and all its others: *part has count of them, drawn by seed, *rest (may
 * be NULL: not wanted) those that are left. Both keep the order of the set and borrow it until
 * they are destroyed; the same seed always draws the same. SONDE_ERANGE unless count is at least
 * 1 and at most the set's, below it if rest is wanted. Cost: 8 bytes a sample.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_split(const sonde_nn_dataset *set,
                                                         int64_t count, uint64_t seed,
                                                         sonde_nn_dataset **part,
                                                         sonde_nn_dataset **rest,
                                                         sonde_diag *diag);

SONDE_API void sonde_nn_dataset_destroy(sonde_nn_dataset *set);

/* --- reading ------------------------------------------------------------------------ */

SONDE_API const sonde_nn_dataset_traits *
sonde_nn_dataset_get_traits(const sonde_nn_dataset *set);
/* The name of a class, or "" if it has none. */
SONDE_API const char *sonde_nn_dataset_class_name(const sonde_nn_dataset *set,
                                                  int64_t label);
/* Bytes of scratch that get needs: 0 when all samples are in memory. */
SONDE_API size_t sonde_nn_dataset_scratch(const sonde_nn_dataset *set);
/*
 * Sample index. scratch (aligned to 16) may be NULL when none is needed; the sample is
 * borrowed until the set is destroyed or scratch is used again. SONDE_ERANGE for an index
 * out of range; in image folders also the errors of sonde_nn_image_load, and
 * SONDE_EFORMAT if the file is not what it was at opening. Cost: an address, or reading
 * and decoding.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_get(const sonde_nn_dataset *set,
                                                       int64_t index, void *scratch,
                                                       sonde_nn_sample *out,
                                                       sonde_diag *diag);
/* The label alone; SONDE_NN_NO_LABEL without labels. index must be in range (asserted).
 */
SONDE_API int64_t sonde_nn_dataset_label(const sonde_nn_dataset *set, int64_t index);
/* Where a sample came from: its file in a folder, else the source. Borrowed. */
SONDE_API const char *sonde_nn_dataset_where(const sonde_nn_dataset *set, int64_t index);

/* --- describing --------------------------------------------------------------------- */

/* What a look at every sample tells. Pixels of uint8 sets are taken as x / 255. */
typedef struct sonde_nn_dataset_info {
    int64_t channels;          /* entries of mean and std: 1 to 4; more: 1, over all */
    double mean[4], std[4];    /* by channel; of the population */
    double min, max;           /* over all */
    uint64_t bytes;            /* of all samples */
    int64_t smallest, largest; /* samples of the rarest and the commonest class */
} sonde_nn_dataset_info;

/*
 * class_counts has traits.classes entries and may be NULL. Cost: reads every sample, in
 * order, once. Non-finite values of float32 sets make mean and std NaN.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_describe(const sonde_nn_dataset *set,
                                                            sonde_nn_dataset_info *info,
                                                            int64_t *class_counts,
                                                            sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
