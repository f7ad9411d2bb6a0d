/*
 * files.h - the files that data sets are read from: whole, or as arrays and tables. Internal.
 */
#ifndef SONDE_NN_DATA_FILES_H
#define SONDE_NN_DATA_FILES_H

#include <sonde/error.h>
#include <sonde/nn/dataset.h>
#include <sonde/tensor.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* === input ========================================================================= */

/*
 * Files of data in memory: read whole, unzipped if they are gzipped, and written.
 *
 * The first two bytes of a file, not its name, show whether it is gzipped. Consecutive gzip
 * members are one content, as for gunzip.
 */

typedef struct sonde__data_input {
    const char *name;     /* borrowed; the path, for diagnostics */
    unsigned char *bytes; /* owned; size of them, and room for one more */
    size_t size, capacity;
    bool unzipped;
} sonde__data_input;

/* Reads all of a file. raw: as it is. SONDE_EFORMAT: no file, a corrupt gzip stream (diag
 * has the place of its member), or other bytes after it. After an error nothing is left to
 * free. */
sonde_err sonde__data_input_read(sonde__data_input *input, const char *path, bool raw,
                                 sonde_diag *diag);
/* The same of bytes in memory, which are copied. */
sonde_err sonde__data_input_copy(sonde__data_input *input, const void *bytes, size_t size,
                                 const char *name, sonde_diag *diag);
void sonde__data_input_fini(sonde__data_input *input);

/* Writes a file, gzipped (level 1: fast) if gzip is set, whole or not at all. */
sonde_err sonde__data_write(const char *path, const void *bytes, size_t size, bool gzip,
                            sonde_diag *diag);
/* Makes a folder and those that it is in; those that exist are fine. */
sonde_err sonde__data_make_folders(const char *path, sonde_diag *diag);

/* fetch.c: a file of an address. */
typedef struct sonde__data_remote_file {
    const char *url;
    const char *sha256; /* 64 hexadecimal digits, or NULL: unchecked */
    bool of_content;    /* the digest is of the unzipped content */
} sonde__data_remote_file;

SONDE_API SONDE_CHECKED sonde_err
sonde__data_fetch_file(const sonde__data_remote_file *file, const char *path,
                       const sonde_nn_fetch_options *options, sonde_diag *diag);

/* === idx =========================================================================== */

/*
 * Single arrays in IDX files, the format of MNIST, plain or gzipped.
 *
 *     byte 0, 1   zero
 *     byte 2      dtype: 08 uint8, 09 int8, 0B int16, 0C int32, 0D float32, 0E float64
 *     byte 3      number of dimensions n
 *     then        n sizes, 32 bits, most significant byte first
 *     then        the elements, row-major, most significant byte first
 *
 * (Y. LeCun, "The MNIST database of handwritten digits".) The first two bytes of a file,
 * not its name, show whether it is gzipped.
 */

/* An array in memory, in the machine's byte order. */
typedef struct sonde__data_idx {
    sonde_view view;
    void *data; /* owned */
} sonde__data_idx;

/*
 * Reads the whole array. SONDE_EFORMAT: no IDX file, truncated, bytes after the array, or
 * a corrupt gzip stream (diag names the file and the offset). SONDE_EUNSUPPORTED: more
 * than SONDE_MAX_DIMS dimensions. An array larger than the file can hold is refused
 * before memory is allocated. Cost: one read of the file.
 */
SONDE_API SONDE_CHECKED sonde_err sonde__data_idx_load(const char *path,
                                                       sonde__data_idx **out,
                                                       sonde_diag *diag);
/* The same from memory; diag shows name instead of a path. bytes is borrowed for the
 * call. */
SONDE_API SONDE_CHECKED sonde_err sonde__data_idx_parse(const void *bytes, size_t size,
                                                        const char *name,
                                                        sonde__data_idx **out,
                                                        sonde_diag *diag);
SONDE_API void sonde__data_idx_destroy(sonde__data_idx *array);
/* A contiguous view; borrowed until destroy. */
SONDE_API const sonde_view *sonde__data_idx_view(const sonde__data_idx *array);

/*
 * Writes a view as an IDX file, gzipped (level 1: fast) if gzip is set: to a temporary
 * file that is renamed when complete, so a reader never sees a partial file.
 * SONDE_EDTYPE: IDX has no such dtype. SONDE_EINVAL: a scalar, or a size over 2^32 - 1.
 */
SONDE_API SONDE_CHECKED sonde_err sonde__data_idx_write(const char *path,
                                                        const sonde_view *view, bool gzip,
                                                        sonde_diag *diag);

/* Returns the elements, owned by the caller; the array is empty afterwards. */
void *sonde__data_idx_take(sonde__data_idx *array);

/* === csv =========================================================================== */

/*
 * A CSV table (RFC 4180) in memory as a grid of strings.
 *
 * A cell may be in quotes; two quotes in it are one, and it may hold line ends. Blanks
 * around a cell without quotes are dropped, as are empty lines and a byte order mark. Cells
 * become strings within the text: a cell costs a pointer.
 */

enum { SONDE__CSV_WHERE = 220 };

typedef struct sonde__data_csv {
    const char *name; /* borrowed; for diagnostics */
    char *text;       /* owned; size bytes, and one more */
    size_t size;
    char **cells;         /* (rows, columns); the first row is the header */
    size_t rows, columns; /* the header among them */
    size_t cell_count, cell_capacity;
    int64_t *lines; /* (rows): where each begins, from 1 */
    size_t line_capacity;
} sonde__data_csv;

/*
 * Finds the cells of csv->text. delimiter 0: a comma, or a semicolon if the first line has
 * one and no comma. SONDE_EFORMAT: text that is not UTF-8, a zero byte, a quote without an
 * end, records of different lengths; diag has the line and the column.
 */
SONDE_API SONDE_CHECKED sonde_err sonde__data_csv_parse(sonde__data_csv *csv,
                                                        char delimiter, sonde_diag *diag);
/* Frees the text too. A zeroed one is fine. */
SONDE_API void sonde__data_csv_fini(sonde__data_csv *csv);

/* Whether the cell was in quotes. */
static inline bool sonde__data_csv_quoted(const sonde__data_csv *csv, const char *cell)
{
    return cell > csv->text && cell[-1] == '"';
}

/* "table.csv:3: column 2 (y)", columns from 1; name may be NULL. Returns out. */
const char *sonde__data_csv_where(const sonde__data_csv *csv, int64_t line, size_t column,
                                  const char *name, char out[SONDE__CSV_WHERE]);

/* === npy =========================================================================== */

/*
 * One array of NumPy's format .npy, in memory.
 *
 *     byte 0 ... 5   \x93NUMPY
 *     byte 6, 7      version: 1, 2 or 3, and 0
 *     then           length of the header: 2 bytes (version 1) or 4, least first
 *     then           the header, a literal of Python:
 *                    {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *     then           the elements
 *
 * (numpy.lib.format.) Arrays of Python objects, texts and records are refused; nothing is
 * unpickled.
 */

/*
 * The array in size bytes: a view of their elements, with strides if it is in Fortran's
 * order; they may be unaligned. SONDE_EFORMAT: no such array, or fewer or more elements than
 * its header says. SONDE_EUNSUPPORTED: another byte order or dtype, or too many
 * dimensions. name is for diagnostics.
 */
SONDE_API SONDE_CHECKED sonde_err sonde__data_npy_parse(const void *bytes, size_t size,
                                                        const char *name, sonde_view *out,
                                                        sonde_diag *diag);

/* === zip =========================================================================== */

/*
 * The members of a ZIP archive in memory, as NumPy writes one (.npz).
 *
 *     | local header | name | extra | bytes | ... | directory: an entry a member | end |
 *
 * Members are stored or deflated; sizes may be those of ZIP64. Encrypted members, other
 * methods and archives in several parts are refused. (PKWARE, APPNOTE.TXT 6.3.)
 */

enum { SONDE__ZIP_NAME = 256 };

typedef struct sonde__data_zip {
    const unsigned char *bytes; /* borrowed */
    size_t size;
    const char *name; /* borrowed; for diagnostics */
    size_t next;      /* of the directory */
    uint64_t left;    /* members */
} sonde__data_zip;

typedef struct sonde__data_zip_member {
    char name[SONDE__ZIP_NAME];
    const unsigned char *packed; /* in the archive */
    size_t packed_size, size;
    uint32_t crc;
    bool deflated;
} sonde__data_zip_member;

/* Finds the directory. SONDE_EFORMAT: there is none, or it is not whole. */
SONDE_CHECKED sonde_err sonde__data_zip_open(sonde__data_zip *zip, const void *bytes,
                                             size_t size, const char *name,
                                             sonde_diag *diag);
/* The next member; *more false: there is none. */
SONDE_CHECKED sonde_err sonde__data_zip_next(sonde__data_zip *zip,
                                             sonde__data_zip_member *member, bool *more,
                                             sonde_diag *diag);
/* Its bytes: in the archive if it is stored, else a new block in *owned, for the caller to
 * free. Their checksum is right. */
SONDE_CHECKED sonde_err sonde__data_zip_read(const sonde__data_zip *zip,
                                             const sonde__data_zip_member *member,
                                             const unsigned char **bytes, void **owned,
                                             sonde_diag *diag);

/* === arrays ======================================================================== */

/*
 * Named arrays on disk: a file .npy, .npz or .safetensors, or a folder of .npy
 * files, which are named after them. The files are mapped: an array that is not packed
 * costs no memory. Files must not be truncated while they are open.
 */

typedef struct sonde__data_arrays sonde__data_arrays;

/* Whether a path's ending is .npy, .npz or .safetensors. */
bool sonde__data_is_arrays(const char *path);

/* SONDE_EFORMAT: a damaged file (diag names it). SONDE_ENOTFOUND: a folder without .npy
 * files. */
SONDE_CHECKED sonde_err sonde__data_arrays_open(const char *path,
                                                sonde__data_arrays **out,
                                                sonde_diag *diag);
/* The arrays of an .npz in memory, borrowed until destroy. */
SONDE_API SONDE_CHECKED sonde_err sonde__data_arrays_parse(const void *bytes, size_t size,
                                                           const char *name,
                                                           sonde__data_arrays **out,
                                                           sonde_diag *diag);
/* NULL is fine. */
SONDE_API void sonde__data_arrays_destroy(sonde__data_arrays *arrays);

SONDE_API size_t sonde__data_arrays_count(const sonde__data_arrays *arrays);
/* Borrowed until destroy. Elements may be unaligned, and have any strides. */
SONDE_API const char *sonde__data_arrays_name(const sonde__data_arrays *arrays, size_t i);
SONDE_API const sonde_view *sonde__data_arrays_view(const sonde__data_arrays *arrays,
                                                    size_t i);
/* NULL: there is no such array. */
SONDE_API const sonde_view *sonde__data_arrays_find(const sonde__data_arrays *arrays,
                                                    const char *name);

#endif
