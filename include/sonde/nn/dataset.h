/*
 * dataset.h - labelled samples by index.
 *
 * A data set maps 0 ... count - 1 to a sample (an array of uint8 or float32) and a label.
 * It comes from a pair of IDX files, a folder of images with one sub-folder a class, an
 * image file, arrays in memory, or a larger set that it is a part of. Two public sets and
 * a synthetic one are found by name. Opening reports all faults: truncated and foreign
 * files, different counts, labels out of range, bad image headers. Only the pixels of
 * images in a folder are read later, sample by sample.
 *
 * An open data set never changes, so any number of threads may read it.
 */
#ifndef SONDE_NN_DATASET_H
#define SONDE_NN_DATASET_H

#include <sonde/options.h>
#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_dataset sonde_nn_dataset;

typedef enum sonde_nn_split { SONDE_NN_TRAIN = 0, SONDE_NN_TEST = 1 } sonde_nn_split;

enum { SONDE_NN_SAMPLE_DIMS = 3, SONDE_NN_NO_LABEL = -1 };

/* The properties of all samples; strings are borrowed until the set is destroyed. */
typedef struct sonde_nn_dataset_traits {
    int64_t count;
    sonde_dtype dtype; /* SONDE_U8 or SONDE_F32; of text SONDE_I64 */
    int rank;          /* 3 for images: (C, H, W), also for IDX (N, H, W) with C = 1 */
    int64_t shape[SONDE_NN_SAMPLE_DIMS]; /* of one sample; the largest if they vary */
    bool varied_size; /* images differ in height or width: they need a resize or crop */
    bool varied_channels; /* grey and colour are mixed: they need greyscale or rgb */
    bool has_labels;      /* false: every label is SONDE_NN_NO_LABEL */
    int64_t classes;      /* labels are 0 ... classes - 1; 0 without labels */
    const char *const *class_names; /* classes entries, or NULL */
    const char *source;             /* its origin: a path, or "memory" */
    int64_t label_length; /* labels of a sample: 0 for one, else one a position */
} sonde_nn_dataset_traits;

typedef struct sonde_nn_sample {
    const void *data; /* row-major; borrowed: from the set, or from scratch */
    int64_t shape[SONDE_NN_SAMPLE_DIMS]; /* rank entries */
    int64_t label;
    const int64_t *labels; /* traits.label_length entries; NULL: there is one */
} sonde_nn_sample;

/* --- opening ------------------------------------------------------------------------ */

/* Zero fields are derived from the data. Strings are copied. */
typedef struct sonde_nn_dataset_options {
    size_t size;                    /* sizeof(sonde_nn_dataset_options) */
    int64_t classes;                /* labels must be below; 0: the largest label + 1 */
    const char *const *class_names; /* classes entries */
} sonde_nn_dataset_options;

/*
 * A pair of IDX files, plain or gzipped: images (N, ...) with one to three dimensions a
 * sample, labels (N) of any integer dtype. labels and options may be NULL. uint8 is kept,
 * all other dtypes become float32. SONDE_ESHAPE: the counts differ. SONDE_ERANGE: a label
 * out of range (index, value and range in diag).
 * Cost: both arrays are read into memory.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_open_idx(
    const char *images, const char *labels, const sonde_nn_dataset_options *options,
    sonde_nn_dataset **out, sonde_diag *diag);

/*
 * A folder whose sub-folders are the classes, sorted by name, with *.png, *.jpg and
 * *.jpeg files, sorted by name. Hidden and other files are skipped. Opening reads the
 * headers of all images; get reads and decodes one image.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_open_folder(const char *path,
                                                               sonde_nn_dataset **out,
                                                               sonde_diag *diag);

/*
 * The folder train or test in path, each as open_folder takes it. The classes are the
 * sub-folders of both, sorted by name, so that a label has one meaning; a class may be
 * missing in one of them. SONDE_ENOTFOUND: path has no such folder.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_open_split(const char *path,
                                                              sonde_nn_split split,
                                                              sonde_nn_dataset **out,
                                                              sonde_diag *diag);
/* Whether path has that folder. */
SONDE_API bool sonde_nn_dataset_has_split(const char *path, sonde_nn_split split);

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
 * CIFAR-10 in its binary form: data_batch_1.bin ... data_batch_5.bin in folder, of which
 * those that are there are read, or test_batch.bin; each may be gzipped. Samples are (3,
 * 32, 32). SONDE_ENOTFOUND: no such file. SONDE_EFORMAT: a file ends within a record.
 * SONDE_ERANGE: a label above 9. Cost: the files are read into memory.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_open_cifar10(const char *folder,
                                                                sonde_nn_split split,
                                                                sonde_nn_dataset **out,
                                                                sonde_diag *diag);
/* Whether folder has such a file of the split. */
SONDE_API bool sonde_nn_dataset_is_cifar10(const char *folder, sonde_nn_split split);

/* Zero fields are defaults, but for length. */
typedef struct sonde_nn_text_options {
    size_t size;          /* sizeof(sonde_nn_text_options) */
    int64_t length;       /* tokens a sample; 1 to 2^20 */
    sonde_nn_split split; /* of a text that holds both */
    double test_share;    /* of it, at its end; 0: a tenth */
} sonde_nn_text_options;

/*
 * Text, plain or gzipped, as byte tokens: sample i holds length int64 tokens that follow
 * those of sample i - 1, and as labels the token after each. path is a file that holds
 * both splits, or a folder with train.txt and test.txt, or with input.txt, which holds
 * both. The classes are the 256 bytes. SONDE_ERANGE: too short for one sample.
 * SONDE_ENOTFOUND: the folder has no such file. Cost: 8 bytes of memory a byte of text.
 */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_dataset_open_text(const char *path, const sonde_nn_text_options *options,
                           sonde_nn_dataset **out, sonde_diag *diag);
/* The same over so many bytes (1 to 2^28) of sentences that a grammar draws from the seed:
 * a stand-in for text, of about 4.1 bits a byte by frequencies alone. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_draw_text(
    uint64_t seed, int64_t bytes, const sonde_nn_text_options *options,
    sonde_nn_dataset **out, sonde_diag *diag);

/*
 * A set by name: "fashion-mnist", "mnist", or "fashion-synth" (drawn by sonde_nn_synth).
 * Its files, train-images-idx3-ubyte and so on with or without .gz, are searched in
 *     dir and dir/<name>                   if dir is not NULL, and only there
 *     $SONDE_DATA and $SONDE_DATA/<name>   if set
 *     the cache, see sonde_nn_data_cache
 * SONDE_ENOTFOUND: diag lists the places and the commands that help, or the nearest known
 * name.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_open_named(const char *name,
                                                              sonde_nn_split split,
                                                              const char *dir,
                                                              sonde_nn_dataset **out,
                                                              sonde_diag *diag);
/* The known names, in order; NULL past the last one. */
SONDE_API const char *sonde_nn_dataset_name(size_t index);
enum { SONDE_NN_KNOWN_CLASSES = 10 }; /* of each known set */
/* The names of a known set's classes, without opening it; NULL for an unknown set. */
SONDE_API const char *const *sonde_nn_dataset_class_names(const char *name);

/*
 * The cache folder of a data set: <base>/data/<name> with base $SONDE_CACHE, else
 * $XDG_CACHE_HOME/sonde, else $HOME/.cache/sonde. SONDE_ENOTFOUND: none of the three is
 * set. SONDE_EINVAL: path is too small.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_data_cache(const char *name, char *path,
                                                      size_t size, sonde_diag *diag);

/*
 * Splits a set: *part has count samples drawn by seed, *rest (NULL: not wanted) the
 * others. Both keep the order of the set and borrow it until they are destroyed; one seed
 * always draws the same samples. SONDE_ERANGE: count is below 1 or above the set's, or
 * equal to it if rest is wanted. Cost: 8 bytes a sample.
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
 * Sample index. scratch (aligned to 16) may be NULL if none is needed; the sample is
 * borrowed until the set is destroyed or scratch is used again. SONDE_ERANGE: index out
 * of range. Image folders: also the errors of sonde_nn_image_load, and SONDE_EFORMAT if
 * the file has changed since opening. Cost: an address, or reading and decoding a file.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_get(const sonde_nn_dataset *set,
                                                       int64_t index, void *scratch,
                                                       sonde_nn_sample *out,
                                                       sonde_diag *diag);
/* The label only, of a set with several a sample the first; SONDE_NN_NO_LABEL without
 * labels or outside of the set. */
SONDE_API int64_t sonde_nn_dataset_label(const sonde_nn_dataset *set, int64_t index);
/* The origin of a sample: its file in a folder, else the source. Borrowed. */
SONDE_API const char *sonde_nn_dataset_where(const sonde_nn_dataset *set, int64_t index);

/* --- describing --------------------------------------------------------------------- */

/* Statistics over every sample. Pixels of uint8 sets count as x / 255. */
typedef struct sonde_nn_dataset_info {
    int64_t channels;          /* entries of mean and std; 1, over all, if above 4 */
    double mean[4], std[4];    /* by channel; of the population */
    double min, max;           /* over all finite values */
    uint64_t bytes;            /* of all samples */
    int64_t smallest, largest; /* samples of the rarest and the commonest class */
} sonde_nn_dataset_info;

/*
 * class_counts has traits.classes entries and may be NULL. Cost: reads every sample, in
 * order, once. Non-finite values of a channel make its mean and std NaN.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_describe(const sonde_nn_dataset *set,
                                                            sonde_nn_dataset_info *info,
                                                            int64_t *class_counts,
                                                            sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
