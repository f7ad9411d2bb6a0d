/*
 * run_writer.h - writes runs for the tests of trials: simply, file by file, without
 * threads, and able to stop at any point as a process that dies does.
 *
 *     writer w;
 *     writer_begin(folder, "id", 1);                     run.json
 *     writer_open(&w, folder, 0);                        a worker
 *     id = writer_tensor(&w, "conv1.weight", "weight", SONDE_F32, 2, shape, "weights");
 *     writer_put(&w, at, id, &view, PLAIN); writer_row(...); writer_sketch(...);
 *     writer_end_step(&w, at);
 *     writer_close_segment(&w) ...                       rotation
 *     writer_state(&w, "ended", ...); writer_close(&w);
 *     writer_end(folder, "finished", 99);                end.json
 *
 * Every function asserts that the disk takes what is written.
 */
#ifndef SONDE_TESTS_TRIAL_RUN_WRITER_H
#define SONDE_TESTS_TRIAL_RUN_WRITER_H

#include "format/format.h"
#include "tensor/convert.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

enum { WRITER_HEAD = 1 << 16, WRITER_PATH = 512, WRITER_TENSORS = 64 };

typedef struct writer {
    char folder[256], names[WRITER_TENSORS][96];
    int rank;
    FILE *catalogue, *segment, *index, *stats, *sketch, *steps;
    uint64_t segment_number, stats_number, sketch_number, steps_number;
    uint64_t offset, rows, step_rows;
    uint64_t generation;
    size_t head;  /* bytes of the header of a segment */
    char *header; /* of the segment that is open, so far */
    size_t header_used, header_capacity;
    uint32_t tensors;
} writer;

static inline void writer_path(const writer *w, const char *name, char *path)
{
    (void)snprintf(path, WRITER_PATH, "%s/%s", w->folder, name);
}

static inline FILE *writer_file(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);

    assert(file != NULL);
    return file;
}

static inline void writer_text(const char *folder, const char *name, const char *text)
{
    char path[WRITER_PATH];
    FILE *file = NULL;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    file = writer_file(path, "w");
    assert(fputs(text, file) >= 0 && fclose(file) == 0);
}

static inline void writer_begin(const char *folder, int world)
{
    char text[512];

    assert(mkdir(folder, 0777) == 0 || access(folder, W_OK) == 0);
    (void)snprintf(text, sizeof text,
                   "{\"sonde_run\":1,\"id\":\"0123456789abcdef0123456789abcdef\","
                   "\"created\":\"2026-01-31T12:00:00.000000Z\",\"world\":%d,"
                   "\"program\":\"run_writer\",\"model\":\"net\",\"later\":[1]}\n",
                   world);
    writer_text(folder, "run.json", text);
}

static inline void writer_end(const char *folder, const char *reason, long long last)
{
    char text[256];

    (void)snprintf(text, sizeof text,
                   "{\"reason\":\"%s\",\"text\":\"done\","
                   "\"ended\":\"2026-01-31T12:00:09.000000Z\",\"last_step\":%lld}\n",
                   reason, last);
    writer_text(folder, "end.json", text);
}

/* --- a worker ---------------------------------------------------------------------- */

static inline FILE *writer_numbered(const writer *w, sonde__record_file_kind kind,
                                    uint64_t number)
{
    char name[SONDE__FILE_NAME], path[WRITER_PATH];

    sonde__record_file_name(name, kind, number, kind != SONDE__FILE_INDEX);
    writer_path(w, name, path);
    return writer_file(path, "w+");
}

/* ago: seconds since the heartbeat. */
static inline void writer_state(const writer *w, const char *status, long pid,
                                const char *host, double ago, long lost)
{
    char text[512], when[64];
    const time_t beat = time(NULL) - (time_t)ago;
    struct tm utc;

    (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S.500000Z", gmtime_r(&beat, &utc));
    (void)snprintf(text, sizeof text,
                   "{\"status\":\"%s\",\"pid\":%ld,\"host\":\"%s\",\"heartbeat\":\"%s\","
                   "\"last_step\":-1,\"segment\":0,\"stats\":0,\"sketch\":0,\"steps\":0,"
                   "\"generation\":0,\"records\":0,\"bytes\":0,\"rows\":0,"
                   "\"lost\":{\"ring_full\":%ld,\"disk_full\":0,\"io_error\":1}}\n",
                   status, pid, host, when, lost);
    writer_text(w->folder, "state.json", text);
}

/* A worker that is alive: this process. */
static inline void writer_alive(const writer *w)
{
    char host[256] = "";

    assert(gethostname(host, sizeof host - 1) == 0);
    writer_state(w, "running", (long)getpid(), host, 0, 0);
}

static inline void writer_begin_segment(writer *w)
{
    const uint64_t length = w->head;
    char *blank = malloc(w->head);

    assert(blank != NULL);
    memset(blank, ' ', w->head);
    w->segment = writer_numbered(w, SONDE__FILE_SEGMENT, w->segment_number);
    w->index = writer_numbered(w, SONDE__FILE_INDEX, w->segment_number);
    assert(fwrite(&length, 8, 1, w->segment) == 1 &&
           fwrite(blank, w->head, 1, w->segment) == 1 && fflush(w->segment) == 0);
    free(blank);
    w->offset = 0;
    w->header_used = 0;
}

/* A part of vital signs or steps, its head as of none. */
static inline FILE *writer_begin_rows(const writer *w, sonde__record_file_kind kind,
                                      uint64_t number)
{
    char head[SONDE__MOST_HEAD];
    const size_t size = sonde__record_file_head(kind, 0, head);
    FILE *file = writer_numbered(w, kind, number);

    assert(fwrite(head, size, 1, file) == 1 && fflush(file) == 0);
    return file;
}

static inline void writer_begin_stats(writer *w)
{
    w->stats = writer_begin_rows(w, SONDE__FILE_STATS, w->stats_number);
    w->rows = 0;
}

static inline void writer_begin_steps(writer *w)
{
    w->steps = writer_begin_rows(w, SONDE__FILE_STEPS, w->steps_number);
    w->step_rows = 0;
}

static inline void writer_begin_sketch(writer *w)
{
    static const char head[SONDE__SKETCH_HEAD] = SONDE__SKETCH_MAGIC;

    w->sketch = writer_numbered(w, SONDE__FILE_SKETCH, w->sketch_number);
    assert(fwrite(head, sizeof head, 1, w->sketch) == 1 && fflush(w->sketch) == 0);
}

/* head: bytes for a segment's header; 0: 64 KiB. */
static inline void writer_open_at(writer *w, const char *run, int rank, size_t head,
                                  uint64_t first)
{
    char path[WRITER_PATH], name[SONDE__FILE_NAME];

    *w = (writer){.rank = rank,
                  .head = head != 0 ? head : WRITER_HEAD,
                  .segment_number = first,
                  .stats_number = first,
                  .sketch_number = first,
                  .steps_number = first};
    sonde__record_worker_folder(name, rank);
    (void)snprintf(w->folder, sizeof w->folder, "%.200s/%.50s", run, name);
    (void)mkdir(w->folder, 0777);
    writer_path(w, "catalogue.jsonl", path);
    w->catalogue = writer_file(path, "a");
    writer_begin_segment(w);
    writer_begin_stats(w);
    writer_begin_sketch(w);
    writer_begin_steps(w);
}

static inline void writer_open(writer *w, const char *run, int rank)
{
    writer_open_at(w, run, rank, 0, 0);
}

/* same_as: "", or ",\"same_as\":ID" of an alias. */
static inline uint32_t writer_declare(writer *w, const char *name, const char *role,
                                      sonde_dtype dtype, int rank, const int64_t *shape,
                                      const char *same_as, const char *collection)
{
    char dims[256] = "";
    const uint32_t id = w->tensors++;

    assert(id < WRITER_TENSORS);
    (void)snprintf(w->names[id], sizeof w->names[id], "%s", name);
    for (int d = 0; d < rank; d++) {
        (void)snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%s%lld",
                       d > 0 ? "," : "", (long long)shape[d]);
    }
    assert(
        fprintf(w->catalogue,
                "{\"id\":%u,\"name\":\"%s\",\"role\":\"%s\",\"module\":\"\",\"op\":\"\","
                "\"pass\":\"none\",\"dtype\":\"%s\",\"shape\":[%s]%s,"
                "\"collections\":[\"%s\"],\"note\":\"\"}\n",
                id, name, role, sonde_dtype_name(dtype), dims, same_as, collection) > 0 &&
        fflush(w->catalogue) == 0);
    return id;
}

static inline uint32_t writer_tensor(writer *w, const char *name, const char *role,
                                     sonde_dtype dtype, int rank, const int64_t *shape,
                                     const char *collection)
{
    return writer_declare(w, name, role, dtype, rank, shape, "", collection);
}

/* --- values ------------------------------------------------------------------------ */

static inline sonde_coordinate writer_at(sonde_mode mode, int64_t global, int64_t step)
{
    return (sonde_coordinate){.mode = mode, .global_step = global, .mode_step = step};
}

static inline void writer_line(writer *w, const sonde__record_index_line *line)
{
    char text[SONDE__INDEX_ROOM];
    const size_t size = sonde__record_index_print(line, text);

    assert(fwrite(text, size, 1, w->index) == 1 && fflush(w->index) == 0);
}

static inline void writer_key(writer *w, const sonde__record_index_line *line)
{
    char key[512], shape[256] = "";
    const bool packed = line->packing != SONDE__PACKED_NOT;
    size_t size = 0;

    for (int d = 0; d < line->rank; d++) {
        (void)snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld",
                       d > 0 ? "," : "", (long long)line->shape[d]);
    }
    if (packed) {
        (void)snprintf(shape, sizeof shape, "%llu", (unsigned long long)line->bytes);
    }
    size = (size_t)snprintf(key, sizeof key, "\"%010lld/%s/%s", (long long)line->step,
                            sonde_mode_name(line->mode), w->names[line->tensor]);
    if (line->micro_batch != 0 || line->replica != 0) {
        size += (size_t)snprintf(key + size, sizeof key - size, "@%u.%u",
                                 line->micro_batch, line->replica);
    }
    size += (size_t)snprintf(key + size, sizeof key - size,
                             "\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":"
                             "[%llu,%llu]},",
                             packed ? "U8" : sonde__dtype_short_name(line->dtype), shape,
                             (unsigned long long)line->offset,
                             (unsigned long long)(line->offset + line->bytes));
    if (w->header_used + size > w->header_capacity) {
        w->header_capacity = (w->header_used + size) * 2;
        w->header = realloc(w->header, w->header_capacity);
        assert(w->header != NULL);
    }
    memcpy(w->header + w->header_used, key, size);
    w->header_used += size;
}

/* The index line of a value at the end of the segment. */
static inline sonde__record_index_line
writer_describe(const writer *w, sonde_coordinate at, uint32_t id, const sonde_view *view)
{
    sonde__record_index_line line = {
        .mode = at.mode,
        .step = at.global_step,
        .mode_step = at.mode_step,
        .tensor = id,
        .micro_batch = (uint32_t)at.micro_batch,
        .replica = (uint32_t)at.replica,
        .offset = w->offset,
        .bytes = (uint64_t)sonde_view_count(view) * sonde_dtype_size(view->dtype),
        .dtype = view->dtype,
        .rank = view->rank,
    };

    memcpy(line.shape, view->shape, sizeof line.shape);
    line.hash = XXH3_64bits(view->data, line.bytes);
    return line;
}

static inline void *writer_pack(sonde__record_index_line *line, const sonde_view *view,
                                sonde__record_packing packing)
{
    const size_t size = sonde_dtype_size(view->dtype), count = line->bytes / size;
    const size_t room = ZSTD_compressBound(line->bytes);
    unsigned char *planes = malloc(line->bytes + 1), *packed = malloc(room);

    assert(planes != NULL && packed != NULL);
    memcpy(planes, view->data, line->bytes);
    for (size_t i = 0; packing == SONDE__PACKED_ZSTD_SHUFFLE && i < line->bytes; i++) {
        planes[i % size * count + i / size] = ((const unsigned char *)view->data)[i];
    }
    line->packing = packing;
    line->bytes = ZSTD_compress(packed, room, planes, line->bytes, 1);
    assert(!ZSTD_isError(line->bytes));
    free(planes);
    return packed;
}

static inline void writer_put(writer *w, sonde_coordinate at, uint32_t id,
                              const sonde_view *view, sonde__record_packing packing)
{
    sonde__record_index_line line = writer_describe(w, at, id, view);
    void *packed =
        packing != SONDE__PACKED_NOT ? writer_pack(&line, view, packing) : NULL;
    const void *bytes = packed != NULL ? packed : view->data;

    assert(line.bytes == 0 || fwrite(bytes, line.bytes, 1, w->segment) == 1);
    assert(fflush(w->segment) == 0);
    free(packed);
    writer_key(w, &line);
    writer_line(w, &line);
    w->offset += line.bytes;
}

static inline void writer_row(writer *w, sonde_coordinate at, uint32_t id,
                              const sonde_vitals *vitals)
{
    sonde__record_stats_row row = {
        .step = at.global_step,
        .mode_step = at.mode_step,
        .tensor = id,
        .micro_batch = (uint32_t)at.micro_batch,
        .replica = (uint16_t)at.replica,
        .mode = (uint8_t)at.mode,
    };

    sonde__record_stats_of_vitals(&row, vitals);
    row.check = sonde__record_stats_check(&row);
    assert(fwrite(&row, sizeof row, 1, w->stats) == 1 && fflush(w->stats) == 0);
    w->rows++;
}

static inline void writer_sketch(writer *w, sonde_coordinate at, uint32_t id,
                                 const sonde_sketch *sketch)
{
    const size_t size = sonde__record_sketch_size(sketch);
    sonde__record_sketch_record *record = calloc(1, size);

    assert(record != NULL);
    sonde__record_sketch_encode(sketch, record);
    record->step = at.global_step;
    record->mode_step = at.mode_step;
    record->tensor = id;
    record->micro_batch = (uint32_t)at.micro_batch;
    record->replica = (uint16_t)at.replica;
    record->mode = (uint8_t)at.mode;
    record->check = sonde__record_sketch_check(record);
    assert(fwrite(record, size, 1, w->sketch) == 1 && fflush(w->sketch) == 0);
    free(record);
}

/* When a step of a written run ended: a second after the one before, of 2026-01-31. */
static inline int64_t writer_time(int64_t global)
{
    return (INT64_C(1769860800) + global) * 1000000000 + 5000000;
}

static inline void writer_end_step(writer *w, sonde_coordinate at)
{
    sonde__record_step_row row = {.step = at.global_step,
                                  .mode_step = at.mode_step,
                                  .time = writer_time(at.global_step),
                                  .mode = (uint32_t)at.mode};

    row.check = sonde__record_step_check(&row);
    assert(fwrite(&row, sizeof row, 1, w->steps) == 1 && fflush(w->steps) == 0);
    w->step_rows++;
}

#include "trial/run_writer_close.h" /* closing, rotating, going on */

#endif
