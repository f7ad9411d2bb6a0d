/*
 * format.h - the run directory's format (docs/format.md): constants, structs and
 * functions that the writer and the readers share. Internal.
 *
 * Nothing here opens a file or allocates. Structs are laid out as in files: Sonde runs on
 * little-endian machines.
 */
#ifndef SONDE_RECORD_FORMAT_H
#define SONDE_RECORD_FORMAT_H

#include <sonde/sketch.h>
#include <sonde/stats.h>
#include <sonde/tap.h>

#define SONDE__FORMAT_VERSION 1

/* In the run folder. */
#define SONDE__RUN_FILE "run.json"
#define SONDE__END_FILE "end.json"
/* In a worker's folder. */
#define SONDE__CATALOGUE_FILE "catalogue.jsonl"
#define SONDE__STATE_FILE "state.json"
#define SONDE__FILES_FILE "files.jsonl"             /* one line per closed file */
#define SONDE__GENERATIONS_FILE "generations.jsonl" /* after the first resume */
#define SONDE__LOCK_FILE "lock"                     /* flock by the writing process */
#define SONDE__RING_FILE "ring"                     /* of a writer that runs, or died */

enum {
    SONDE__MOST_NAME = 4096,   /* bytes of a tensor's name */
    SONDE__MOST_LINE = 65536,  /* bytes of an index or catalogue line, newline included */
    SONDE__STATS_HEAD = 1024,  /* bytes before the first row of a stats file */
    SONDE__STATS_ROW = 144,    /* bytes of a row */
    SONDE__SKETCH_HEAD = 16,   /* bytes before the first record of a sketch file */
    SONDE__SKETCH_FIXED = 80,  /* bytes of a sketch record before its bins */
    SONDE__STEPS_HEAD = 256,   /* bytes before the first row of a steps file */
    SONDE__STEPS_ROW = 32,     /* bytes of a row */
    SONDE__MOST_HEAD = 1024,   /* bytes of the longest head */
    SONDE__HEARTBEAT = 5,      /* seconds between two state files of a running worker */
    SONDE__CRASHED_AFTER = 15, /* seconds without a heartbeat */
    SONDE__FILE_NAME = 64      /* room for any name below */
};

/* --- checksums of text -------------------------------------------------------------- */

enum { SONDE__SEAL = 20 }; /* bytes that a seal adds */
/* Adds "check" as the last key of a JSON object that ends in a newline; text has room for
 * SONDE__SEAL more bytes. Returns the new length. */
SONDE_API size_t sonde__record_seal(char *text, size_t length);
/* True if a JSON object, perhaps with a newline after it, has a "check" that is not its
 * own. */
SONDE_API bool sonde__record_seal_broken(const char *text, size_t length);

/* The number "n" of a line of findings; 0: none. */
uint64_t sonde__record_line_number(const char *text, size_t length);

/* --- numbered files --------------------------------------------------------------- */

typedef enum sonde__record_file_kind {
    SONDE__FILE_SEGMENT = 0, /* seg-00000041.safetensors */
    SONDE__FILE_INDEX = 1,   /* seg-00000041.jsonl; never a .part */
    SONDE__FILE_STATS = 2,   /* stats-00000007.npy */
    SONDE__FILE_SKETCH = 3,  /* sketch-00000007.bin */
    SONDE__FILE_STEPS = 4,   /* steps-00000007.npy */
    SONDE__FILE_OTHER = 5    /* any other name */
} sonde__record_file_kind;

/* Writes "w0003" to name, which has SONDE__FILE_NAME bytes. */
SONDE_API void sonde__record_worker_folder(char *name, int rank);
/* The rank of a worker's folder; -1 for any other name. */
SONDE_API int sonde__record_worker_of_folder(const char *name);
/* Writes the name of a closed file, or of its .part, within the worker's folder. */
SONDE_API void sonde__record_file_name(char *name, sonde__record_file_kind kind,
                                       uint64_t number, bool part);
/* Parses a name within the worker's folder; *number and *part are written unless the
 * kind is SONDE__FILE_OTHER. */
SONDE_API sonde__record_file_kind sonde__record_file_parse(const char *name,
                                                           uint64_t *number, bool *part);
/* Writes the head of a closed file with so many items; returns its length, 0 for
 * segments and indexes, which have none. */
SONDE_API size_t sonde__record_file_head(sonde__record_file_kind kind, uint64_t items,
                                         char head[SONDE__MOST_HEAD]);

/* --- index lines ------------------------------------------------------------------ */

typedef enum sonde__record_packing {
    SONDE__PACKED_NOT = 0,
    SONDE__PACKED_ZSTD = 1,         /* "zstd" */
    SONDE__PACKED_ZSTD_SHUFFLE = 2, /* "zstd+shuffle" */
} sonde__record_packing;

typedef struct sonde__record_index_line {
    sonde_mode mode;
    int64_t step; /* global */
    int64_t mode_step;
    uint32_t tensor;
    uint32_t micro_batch;
    uint32_t replica;
    uint64_t offset; /* from the start of the segment's data */
    uint64_t bytes;  /* in the segment */
    uint64_t hash;   /* of the uncompressed bytes */
    sonde_dtype dtype;
    int rank;
    int64_t shape[SONDE_MAX_DIMS];
    sonde__record_packing packing;
} sonde__record_index_line;

/* Parses a line of length bytes, without its newline. False if it is not exactly of the
 * form; then *line is undefined. Checks that offset + bytes is representable and, unless
 * compressed, that bytes fits dtype and shape; does not look at files. */
SONDE_API bool sonde__record_index_parse(const char *text, size_t length,
                                         sonde__record_index_line *line);
enum { SONDE__INDEX_ROOM = 512 }; /* no index line is longer */
/* Writes the line with its newline to text, which has SONDE__INDEX_ROOM bytes; returns
 * its length. */
SONDE_API size_t sonde__record_index_print(const sonde__record_index_line *line,
                                           char *text);

/* --- vital signs ------------------------------------------------------------------ */

typedef struct sonde__record_stats_row {
    int64_t step, mode_step;
    uint32_t tensor, micro_batch;
    uint16_t replica;
    uint8_t mode, reserved;
    uint32_t check;
    uint64_t count, nan, pos_inf, neg_inf, zero;
    double min, max, abs_min, abs_max, mean, m2, l1, sumsq, sum;
} sonde__record_stats_row;
_Static_assert(sizeof(sonde__record_stats_row) == SONDE__STATS_ROW,
               "rows are laid out as in files");

/* The value of check. Costs a hash of 144 bytes. */
SONDE_API uint32_t sonde__record_stats_check(const sonde__record_stats_row *row);
SONDE_API void sonde__record_stats_to_vitals(const sonde__record_stats_row *row,
                                             sonde_vitals *vitals);
/* Sets only the statistics of a row. */
SONDE_API void sonde__record_stats_of_vitals(sonde__record_stats_row *row,
                                             const sonde_vitals *vitals);

/* --- steps ------------------------------------------------------------------------ */

/* A complete step: written after all records of the step. */
typedef struct sonde__record_step_row {
    int64_t step, mode_step;
    int64_t time; /* when it ended: ns since 1970, UTC */
    uint32_t mode;
    uint32_t check;
} sonde__record_step_row;
_Static_assert(sizeof(sonde__record_step_row) == SONDE__STEPS_ROW,
               "rows are laid out as in files");

/* The value of check. */
SONDE_API uint32_t sonde__record_step_check(const sonde__record_step_row *row);
/* True if a row's check is right and its numbers are possible. */
SONDE_API bool sonde__record_step_valid(const sonde__record_step_row *row);

/* --- generations ------------------------------------------------------------------ */

/* A writer that resumed the run: a line of generations.jsonl. */
typedef struct sonde__record_generation {
    uint64_t number; /* 1, 2, ...; the first writer is 0 and has no line */
    int64_t step;    /* the first global step it writes */
    int64_t time;    /* when it began: ns since 1970, UTC */
    uint64_t first[SONDE__FILE_OTHER]; /* by kind: number of its first file */
} sonde__record_generation;

enum { SONDE__GENERATION_ROOM = 288 }; /* no line is longer */
/* Parse and print a line, as for the index. */
SONDE_API bool sonde__record_generation_parse(const char *text, size_t length,
                                              sonde__record_generation *line);
SONDE_API size_t sonde__record_generation_print(const sonde__record_generation *line,
                                                char *text);
/* The first global step that is superseded in a file; INT64_MAX: none. Generations in the
 * order of their file. */
SONDE_API int64_t
sonde__record_generation_limit(const sonde__record_generation *generations, size_t count,
                               sonde__record_file_kind kind, uint64_t number);

/* --- the list of files ------------------------------------------------------------ */

/* A line of files.jsonl. */
typedef struct sonde__record_listed {
    char name[SONDE__FILE_NAME];
    uint64_t size;    /* bytes of the file */
    uint64_t covered; /* bytes from its start on that hash covers */
    uint64_t hash;
} sonde__record_listed;

enum { SONDE__LISTED_ROOM = 192 }; /* no line is longer */
/* Parse and print a line with its checksum, as for the index. The name is that of a
 * closed file, of the catalogue or of the generations. */
SONDE_API bool sonde__record_listed_parse(const char *text, size_t length,
                                          sonde__record_listed *line);
SONDE_API size_t sonde__record_listed_print(const sonde__record_listed *line, char *text);
/* Reads size bytes, or fewer at the end of the file. Returns an errno. */
typedef int sonde__record_read_fn(void *user, uint64_t offset, void *bytes, size_t size,
                                  size_t *got);
/* The hash of a file's first covered bytes, read piece by piece into room bytes at piece.
 * Returns an errno; ENODATA if the file is shorter. */
int sonde__record_listed_hash(sonde__record_read_fn *read, void *user, uint64_t covered,
                              void *piece, size_t room, uint64_t *hash);

/* --- sketches --------------------------------------------------------------------- */

#define SONDE__SKETCH_MAGIC "SONDESK1" /* and eight zero bytes */

typedef struct sonde__record_sketch_record {
    uint32_t length, check;
    int64_t step, mode_step;
    uint32_t tensor, micro_batch;
    uint16_t replica;
    uint8_t mode, reserved;
    uint32_t bins;
    uint64_t count, nan, pos_inf, neg_inf, zero;
} sonde__record_sketch_record;
_Static_assert(sizeof(sonde__record_sketch_record) == SONDE__SKETCH_FIXED, "as in files");

typedef struct sonde__record_sketch_bin {
    int32_t bin;
    uint32_t count;
} sonde__record_sketch_bin;

/* Bytes of the record that holds a sketch. */
SONDE_API size_t sonde__record_sketch_size(const sonde_sketch *sketch);
/* Sets length, bins and counts of record and the bins after it: sonde__record_sketch_size
 * bytes, aligned to 8. The caller sets the rest of the head, check last. */
SONDE_API void sonde__record_sketch_encode(const sonde_sketch *sketch,
                                           sonde__record_sketch_record *record);
/* The value of check of a record of record->length bytes. */
SONDE_API uint32_t sonde__record_sketch_check(const sonde__record_sketch_record *record);
/* True if a record, complete in memory, follows the format: its length, and the number,
 * order and range of its bins. Does not verify check. */
SONDE_API bool sonde__record_sketch_valid(const sonde__record_sketch_record *record,
                                          size_t available);
/* record is valid. */
SONDE_API void sonde__record_sketch_decode(const sonde__record_sketch_record *record,
                                           sonde_sketch *sketch);

#endif
