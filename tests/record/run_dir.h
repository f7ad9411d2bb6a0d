/*
 * run_dir.h - what the tests of recording share: folders that are thrown away,
 * catalogues, and a reader that checks every record of a run against docs/format.md,
 * slowly.
 *
 * Whatever goes wrong here is an assertion of the test that runs.
 */
#ifndef SONDE_TESTS_RECORD_RUN_DIR_H
#define SONDE_TESTS_RECORD_RUN_DIR_H

#include "cmocka_all.h"

#include "base/macros.h"
#include "format/format.h"
#include "tensor/convert.h"
#include "record/record_sink.h"

#include <sonde/error.h>
#include <sonde/recorder.h>
#include <sonde/safetensors.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

enum { RUN_PATH = 512 };

/* --- folders ---------------------------------------------------------------------- */

int run_remove_one(const char *path, const struct stat *about, int kind, struct FTW *at);

void run_remove(const char *path);

/* A path in the temporary folder at which there is nothing. */
const char *run_path(char path[RUN_PATH], const char *name);

const char *run_file(char path[RUN_PATH], const char *run, const char *name);

bool run_has(const char *run, const char *name);

/* A file whole, with a NUL behind it; freed with free. NULL if there is none. */
char *run_load(const char *run, const char *name, size_t *size);

json_t *run_json(const char *run, const char *name);

int64_t run_number(const char *run, const char *file, const char *key);

const char *run_id(const char *run, char id[33]);

/* --- tensors ---------------------------------------------------------------------- */

uint32_t run_declare(sonde_catalogue *catalogue, const char *name, sonde_dtype dtype,
                     int rank, const int64_t *shape);

/* count tensors "t0" ... of n float32 each. */
sonde_catalogue *run_catalogue(int count, int64_t n);

sonde_recorder *run_create(const sonde_recorder_options *options,
                           const sonde_catalogue *catalogue);

sonde_coordinate run_at(int64_t step);

/* --- reading ---------------------------------------------------------------------- */

/* What is in a worker's folder. */
typedef struct run_content {
    uint64_t values, ends, rows, sketches;
    uint64_t closed, parts; /* files */
    uint64_t bytes;         /* of values, uncompressed */
    int64_t last_step;      /* that ended */
    int64_t first_time, last_time;
    /* Called for every value, whose bytes are uncompressed; may be NULL. */
    void (*value)(void *user, const sonde__record_index_line *line, const void *bytes,
                  size_t size);
    void (*row)(void *user, const sonde__record_stats_row *row);
    void (*sketch)(void *user, const sonde__record_sketch_record *record);
    void *user;
} run_content;

/* A value's bytes as they were put; freed with free. */
void *run_unpack(const sonde__record_index_line *line, const char *stored, size_t *size);

/* The key of a value, but for a "#1". */
void run_key(char *key, size_t size, const sonde__record_index_line *line,
             const char *name);

/* A closed segment opens as any safetensors file does, and says of value i what its line
 * says. */
void run_check_tensor(const sonde_safetensors *file, size_t i,
                      const sonde__record_index_line *line, const char *name,
                      const char *data);

void run_read_segment(const char *folder, const char *name, uint64_t number, bool part,
                      const json_t *names, run_content *content);

void run_read_stats(const char *folder, const char *name, bool part,
                    run_content *content);

void run_read_steps(const char *folder, const char *name, bool part,
                    run_content *content);

void run_read_sketches(const char *folder, const char *name, bool part,
                       run_content *content);

/* The names of a worker's tensors, by id. */
json_t *run_names(const char *folder);

/* Reads and checks all of a worker's folder, in the order of names. */
void run_read(const char *run, int rank, run_content *content);

#endif
