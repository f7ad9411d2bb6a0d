/*
 * dataset.h - labeled samples by index.
 *
 * A data set maps 0 ... count - 1 to a sample (an array of uint8 or float32) and a label.
 * It comes from files of the kinds below, arrays in memory, or a larger set that it is a
 * part of:
 *
 *     sonde_nn_dataset_open("train.npz", NULL, &set, &diag);
 *     sonde_nn_dataset_open(NULL, SONDE_OPTIONS(sonde_nn_dataset, .name = "mnist"), &set, &diag);
 *
 * Opening reports all faults: truncated and foreign
 * files, different counts, labels out of range, bad image headers. Only the pixels of
 * images in a folder are read later, sample by sample.
 *
 * An open data set never changes, so any number of threads may read it.
 */
#ifndef SONDE_NN_DATASET_H
#define SONDE_NN_DATASET_H

#include <sonde/error.h>
#include <sonde/options.h>
#include <sonde/tensor.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* === tokenizers ====================================================================== */

/*
 * Byte-pair tokens of texts, as GPT-2 has them.
 *
 * A text is cut into words (a letter sequence, a number, signs, each with the blank before
 * it), a word into bytes, and pairs of neighbors become one token, in the order of the
 * merges (Sennrich, Haddow and Birch, 2016; Radford et al., 2019). Every sequence of
 * bytes has tokens, and the tokens give it back.
 *
 * Python makes the tokens, with the package tokenizers (pip install 'sonde[tokenizers]'); a
 * function that needs it starts $SONDE_PYTHON, or python3, which takes about a quarter of a
 * second. SONDE_ENOTFOUND: no Python, or no such package; diag has the command to install it.
 *
 * A tokenizer never changes, so any number of threads may use it.
 */

typedef struct sonde_nn_tokenizer sonde_nn_tokenizer;

enum { SONDE_NN_TOKENS_MAX = 1 << 20 };

/* Learns the merges of a text until there are `vocabulary` tokens (256 to
 * SONDE_NN_TOKENS_MAX, the 256 bytes among them), or no pair is left. Cost: about the text's
 * different words in memory. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_tokenizer_train(const char *text, size_t size,
                                                           int64_t vocabulary,
                                                           sonde_nn_tokenizer **out,
                                                           sonde_diag *diag);
/*
 * Hugging Face's tokenizer.json, or a folder with it, or with vocab.json and merges.txt.
 * SONDE_EFORMAT: no such file, or a vocabulary without all bytes, or a merge of unknown
 * tokens. SONDE_EUNSUPPORTED: a tokenizer of another kind than GPT-2's.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_tokenizer_open(const char *path,
                                                          sonde_nn_tokenizer **out,
                                                          sonde_diag *diag);
/* The text of a tokenizer.json; the same errors. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_tokenizer_parse(const char *text, size_t size,
                                                           sonde_nn_tokenizer **out,
                                                           sonde_diag *diag);
/* That text, *size bytes of it, borrowed until destroy. */
SONDE_API const char *sonde_nn_tokenizer_json(const sonde_nn_tokenizer *tok,
                                              size_t *size);
/* NULL is fine. */
SONDE_API void sonde_nn_tokenizer_destroy(sonde_nn_tokenizer *tok);

/* Tokens are 0 ... size - 1. */
SONDE_API int64_t sonde_nn_tokenizer_size(const sonde_nn_tokenizer *tok);
/* The bytes of a token, *size of them, borrowed; NULL: there is no such token. */
SONDE_API const char *sonde_nn_tokenizer_token(const sonde_nn_tokenizer *tok, int64_t id,
                                               size_t *size);
/* The tokens of a text: *count of them, of at most size, into tokens. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_tokenizer_encode(const sonde_nn_tokenizer *tok,
                                                            const char *text, size_t size,
                                                            int64_t *tokens,
                                                            size_t *count,
                                                            sonde_diag *diag);

typedef struct sonde_nn_dataset sonde_nn_dataset;

typedef enum sonde_nn_split { SONDE_NN_TRAIN = 0, SONDE_NN_TEST = 1 } sonde_nn_split;

enum { SONDE_NN_SAMPLE_DIMS = 3, SONDE_NN_NO_LABEL = -1, SONDE_NN_FIELDS = 6 };

/* An array that each sample has besides its data: a further input, or a target of numbers.
 */
typedef struct sonde_nn_field {
    const char *name;
    sonde_dtype dtype; /* SONDE_F32 or SONDE_I64 */
    int rank;
    int64_t shape[SONDE_NN_SAMPLE_DIMS]; /* of one sample */
} sonde_nn_field;

/* The properties of all samples; strings are borrowed until the set is destroyed. */
typedef struct sonde_nn_dataset_traits {
    int64_t count;
    sonde_dtype dtype; /* SONDE_U8 or SONDE_F32; of text SONDE_I64 */
    int rank;          /* 3 for images: (C, H, W), also for IDX (N, H, W) with C = 1 */
    int64_t shape[SONDE_NN_SAMPLE_DIMS]; /* of one sample; the largest if they vary */
    bool varied_size; /* images differ in height or width: they need a resize or crop */
    bool varied_channels; /* gray and color are mixed: they need grayscale or rgb */
    bool has_labels;      /* false: every label is SONDE_NN_NO_LABEL */
    int64_t classes;      /* labels are 0 ... classes - 1; 0 without labels */
    const char *const *class_names; /* classes entries, or NULL */
    const char *source;             /* its origin: a path, or "memory" */
    int64_t label_length; /* labels of a sample: 0 for one, else one a position */
    size_t field_count;
    sonde_nn_field fields[SONDE_NN_FIELDS]; /* field_count entries */
    bool has_target; /* the last field is the target; then there are no labels */
    bool ready;      /* no pixels: a job's mean and std do not apply to the data */
    size_t scratch;  /* bytes that get needs; 0: all samples are in memory */
} sonde_nn_dataset_traits;

typedef struct sonde_nn_sample {
    const void *data; /* row-major; borrowed: from the set, or from scratch */
    int64_t shape[SONDE_NN_SAMPLE_DIMS]; /* rank entries */
    int64_t label;
    const int64_t *labels; /* traits.label_length entries; NULL: there is one */
    const void *fields[SONDE_NN_FIELDS]; /* traits.field_count, borrowed from the set */
} sonde_nn_sample;

/* --- opening ------------------------------------------------------------------------ */

typedef enum sonde_nn_data_kind {
    /* By the path: a table, arrays, an image, or a folder of images; without a path, NAMED
     * or MEMORY. */
    SONDE_NN_DATA_ANY = 0,

    /*
     * A set by name: "fashion-mnist", "mnist", or "fashion-synth" (drawn by sonde_nn_synth).
     * Its files, train-images-idx3-ubyte and so on with or without .gz, are searched in
     *     path and path/<name>                 if there is a path, and only there
     *     $SONDE_DATA and $SONDE_DATA/<name>   if set
     *     the cache, see sonde_nn_data_cache
     * SONDE_ENOTFOUND: diag lists the places and the commands that help, or the nearest
     * known name.
     */
    SONDE_NN_DATA_NAMED = 1,

    /*
     * A pair of IDX files, plain or gzipped: path has images (N, ...) with one to three
     * dimensions a sample, label_path labels (N) of any integer dtype. uint8 is kept, all
     * other dtypes become float32. SONDE_ESHAPE: the counts differ. SONDE_ERANGE: a label
     * out of range (index, value and range in diag). Cost: both arrays are read into memory.
     */
    SONDE_NN_DATA_IDX = 2,

    /*
     * A folder whose sub-folders are the classes, sorted by name, with *.png, *.jpg and
     * *.jpeg files, sorted by name. Hidden and other files are skipped. Opening reads the
     * headers of all images; get reads and decodes one image.
     */
    SONDE_NN_DATA_FOLDER = 3,

    /*
     * The folder train or test in path, each as FOLDER. The classes are the sub-folders of
     * both, sorted by name, so that a label has one meaning; a class may be missing in one
     * of them. SONDE_ENOTFOUND: path has no such folder.
     */
    SONDE_NN_DATA_SPLIT = 4,

    /* One PNG or JPEG file: one sample without a label, decoded at once. */
    SONDE_NN_DATA_IMAGE = 5,

    /*
     * Text, plain or gzipped, as tokens, bytes or those of a tokenizer, packed: sample i
     * holds length int64 tokens that follow those of sample i - 1, and as labels the token
     * after each. path is a file that holds both splits, or a folder with train.txt and
     * test.txt, or with input.txt, which holds both. The classes are the tokens.
     * SONDE_ERANGE: too short for one sample. SONDE_ENOTFOUND: the folder has no such file.
     * Cost: 8 bytes of memory a byte of text.
     */
    SONDE_NN_DATA_TEXT = 6,

    /* The same over `count` bytes (1 to 2^28) of sentences that a grammar draws from the
     * seed: a stand-in for text, of about 4.1 bits a byte by frequencies alone. */
    SONDE_NN_DATA_TEXT_SYNTH = 7,

    /*
     * Arrays by name: a file .npz, .npy or .safetensors, a folder of .npy files, or a folder
     * with train.npz and test.npz (or .safetensors). Of an array x the splits are x_train
     * and x_test, or train_x and test_x; without them, the test set is drawn. Data that is
     * uint8 stays so (pixels), all other becomes float32, or int64 if it is ids; (N) is one
     * number a sample. A target of classes is integers, (N), or (N, T) for a class at each
     * of T positions; numbers are the last field. Nothing is unpickled. SONDE_ENOTFOUND: no
     * such array; diag lists those that there are. SONDE_ESHAPE: the counts differ.
     * SONDE_EDTYPE: classes that are not integers. Cost: files are mapped; arrays that are
     * packed, unaligned, in Fortran's order or of another dtype are copied.
     */
    SONDE_NN_DATA_ARRAYS = 8,

    /*
     * A table in CSV (RFC 4180, UTF-8, a point in numbers; .tsv has tabs; either gzipped)
     * whose first line names the columns, or in Parquet, or a folder with train.csv and
     * test.csv. Samples are (F) float32. A column of numbers is one of the F, brought to mean
     * 0 and spread 1; a column with other texts is categories, a 0 or 1 for each, in order of
     * their bytes. Means, spreads and categories are those of the training rows. A missing
     * number (an empty cell, NA, N/A, NaN, nan, null, NULL, None, ?) is the mean; a missing
     * category, or one that the training rows lack, is all zeros. Classes are whole numbers
     * from 0, or texts, which then name them; numbers are a field (N, 1). Columns without a
     * name are left out. SONDE_EFORMAT: text that is no CSV, a line of another length, a
     * missing target (diag has line and column). SONDE_ENOTFOUND: no such column; diag lists
     * those that there are. SONDE_ERANGE: more than 256 categories. Cost: the file in memory,
     * and 8 bytes a cell while it is read.
     *
     * Python reads Apache Parquet (.parquet), with the package pyarrow: booleans, numbers,
     * decimals, dates and times are numbers, strings categories, NaN and null missing; nested
     * columns are left out, with a warning. SONDE_ENOTFOUND: no Python, or no pyarrow.
     */
    SONDE_NN_DATA_TABLE = 9,

    /* Contiguous arrays in memory, borrowed until destroy: data (N, ...) of uint8 or float32
     * with one to three dimensions a sample (two: an image, shape (1, H, W)), labels (N) of
     * int64 or NULL. Errors as of IDX. */
    SONDE_NN_DATA_MEMORY = 10,

    /*
     * Synthetic data, to time a network: `count` samples (1 to 2^24) of standard normal
     * numbers, ids and labels that are all equally likely, by the seed. SONDE_ERANGE,
     * SONDE_ESHAPE, SONDE_EINVAL: options out of range. Cost: all samples are in memory.
     */
    SONDE_NN_DATA_SYNTH = 11
} sonde_nn_data_kind;

/* Fields that the kind has no use for are ignored. Zero fields are defaults. Strings and
 * arrays are borrowed for the call. */
typedef struct sonde_nn_dataset_options {
    size_t size; /* sizeof(sonde_nn_dataset_options) */
    sonde_nn_data_kind kind;
    sonde_nn_split split;
    double
        test_share; /* TEXT, ARRAYS, TABLE that are not split: of the samples; 0: a tenth.
                        * Of a text it is the end; other samples are drawn by the seed */
    uint64_t seed;

    /* NAMED, IDX, MEMORY */
    const char *name;
    const char *label_path; /* NULL: no labels */
    const sonde_view *data, *labels;
    int64_t classes;                /* labels must be below; 0: the largest label + 1 */
    const char *const *class_names; /* classes entries, or NULL */

    /* ARRAYS, TABLE */
    const char *const
        *inputs;        /* input_count names of arrays or columns; the first array is
                                * the data */
    size_t input_count; /* 0: x, X, data, input, inputs, images, image or features; of
                                * a table all columns but the target */
    bool ids[SONDE_NN_FIELDS]; /* that array becomes int64, else float32 */
    const char
        *target;   /* NULL: y, Y, target, targets, label, labels or class; "": none */
    bool numbers;  /* the target is float32 numbers, not classes; of SYNTH too */
    bool matrices; /* samples (H, W) stay so; else they become (1, H, W) */
    bool no_standardize; /* numbers of a table stay as they are */

    /* TEXT, TEXT_SYNTH */
    int64_t length;                      /* tokens a sample; 1 to 2^20 */
    const sonde_nn_tokenizer *tokenizer; /* NULL: bytes */

    /* SYNTH, TEXT_SYNTH */
    int64_t count;
    size_t field_count;                     /* at least 1; the first is the data */
    sonde_nn_field fields[SONDE_NN_FIELDS]; /* inputs to draw */
    sonde_nn_field
        target_field; /* shape of labels, rank 0 for one a sample, or of numbers */
    int64_t id_count; /* int64 inputs are 0 ... id_count - 1; 0: 1. Labels are 0 ...
                                  * classes - 1; classes 0: there are none */
} sonde_nn_dataset_options;

/* path: of a file or folder; NULL for kinds that need none. options may be NULL. */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_dataset_open(const char *path, const sonde_nn_dataset_options *options,
                      sonde_nn_dataset **out, sonde_diag *diag);
/* What a path is by its ending, and a folder by its files: ARRAYS, TABLE, IMAGE, SPLIT or
 * FOLDER; ANY: something else, or nothing. */
SONDE_API sonde_nn_data_kind sonde_nn_data_kind_at(const char *path);

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
/*
 * Sample index. scratch (traits.scratch bytes, aligned to 16) may be NULL if none is needed; the sample is
 * borrowed until the set is destroyed or scratch is used again. SONDE_ERANGE: index out
 * of range. Image folders: SONDE_EFORMAT if a file is damaged or
 * has changed since opening. Cost: an address, or reading and decoding a file.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_dataset_get(const sonde_nn_dataset *set,
                                                       int64_t index, void *scratch,
                                                       sonde_nn_sample *out,
                                                       sonde_diag *diag);
/* The label only, of a set with several a sample the first; SONDE_NN_NO_LABEL without
 * labels or outside of the set. */
SONDE_API int64_t sonde_nn_dataset_label(const sonde_nn_dataset *set, int64_t index);

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

/* --- what is in a file --------------------------------------------------------------- */

typedef enum sonde_nn_part_kind {
    SONDE_NN_PART_NUMBERS = 0, /* a column */
    SONDE_NN_PART_TEXTS = 1,   /* a column of categories */
    SONDE_NN_PART_ARRAY = 2
} sonde_nn_part_kind;

typedef struct sonde_nn_part {
    char *name;
    sonde_nn_part_kind kind;
    sonde_dtype dtype; /* of an array */
    int rank;          /* of a column 1 */
    int64_t shape[SONDE_MAX_DIMS];
    int64_t missing;                    /* of a column; of an array, NaN */
    int64_t different;                  /* texts */
    double mean, std, minimum, maximum; /* of numbers that are not missing, of the
                                         * population; of an array with NaN, NaN */
} sonde_nn_part;

typedef struct sonde_nn_contents {
    sonde_nn_part *parts;
    size_t count, capacity;
} sonde_nn_contents;

/*
 * The columns of a table, as the kind TABLE reads it, or the arrays of a file or a folder, as
 * ARRAYS does, with their statistics. Of a folder with a table of each split: that
 * split's. Errors as theirs. Cost: reads all values; an array is copied as float32.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_contents_open(const char *path,
                                                         sonde_nn_split split,
                                                         sonde_nn_contents **out,
                                                         sonde_diag *diag);
SONDE_API void sonde_nn_contents_destroy(sonde_nn_contents *contents);

/* === downloads ======================================================================= */

/*
 * Downloads the public data sets from their published addresses.
 *
 * libcurl is loaded by the first download, not linked: programs that never download need
 * no libcurl. A download goes to <file>.part, is resumed after an interruption (HTTP
 * Range), checked against the digest in the table, and renamed. Complete files are
 * checked and kept.
 *
 * Threads: any number of downloads may run at once, of different files.
 */

/* Called a few times a second, and once at the end of each file. total is 0 while
 * unknown. Return false to stop: the fetch ends with SONDE_EINTERRUPTED and can be
 * resumed. */
typedef bool (*sonde_nn_progress)(void *user, const char *file, uint64_t done,
                                  uint64_t total);

typedef struct sonde_nn_fetch_options {
    size_t size;        /* sizeof(sonde_nn_fetch_options) */
    const char *mirror; /* "http://host/folder" instead of the published address */
    sonde_nn_progress progress; /* may be NULL */
    void *user;                 /* borrowed, for progress */
} sonde_nn_fetch_options;

/*
 * Downloads the four files of "fashion-mnist" or "mnist" into dir, which is created if
 * missing; NULL: sonde_nn_data_cache. options may be NULL. SONDE_ENOTFOUND: an unknown
 * name or a 404. SONDE_EIO: the network fails. SONDE_EFORMAT: a wrong digest (found and
 * expected in diag; the file is removed). SONDE_EUNSUPPORTED: libcurl is not installed
 * (diag names the package).
 */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_data_fetch(const char *name, const char *dir,
                    const sonde_nn_fetch_options *options, sonde_diag *diag);

/* === the synthetic set =============================================================== */

/*
 * A synthetic substitute for Fashion-MNIST, for machines without a network.
 *
 * Ten classes of garments in the order and with the names of Fashion-MNIST, 28 x 28 gray
 * on black, drawn from outlines whose cut, pose, size, cloth and light vary from sample
 * to sample. Similar classes overlap on purpose (a shirt is nearly a coat): a network
 * learns them, but not to 100 %. Sample i of a split depends only on (seed, split, i) and
 * the platform's math library.
 *
 * Threads: calls share nothing; two may not write one folder at once.
 */

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
 * Writes the four IDX.gz files that sonde_nn_dataset_open reads as "fashion-synth"
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
