/*
 * index_file.c - index lines to items.
 *
 * A value counts only if its extent lies inside its segment. So a segment is examined for
 * its length, and for the eight bytes that give the start of its data. Index and segment
 * may grow while they are read: a length must be newer than the line it is compared with.
 */
#include "trial/index_file.h"
#include "base/fail.h"
#include "base/memory.h"
#include "trial/generations.h"
#include "trial/trial_catalogue.h"
#include "trial/worker.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct line_reader {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const char *where;
    sonde_diag *diag;
    sonde__trial_file *segment; /* of this index */
    uint64_t
        looked; /* piece of the index after which the segment was examined; 0: none */
} line_reader;

static void bad_line(const line_reader *reader, const char *found)
{
    sonde__trial_damage_in(
        &reader->trial->damage, &reader->worker->progress[SONDE__FILE_INDEX].bad,
        reader->where, "line %llu: %s",
        (unsigned long long)reader->worker->progress[SONDE__FILE_INDEX].line, found);
}

/* --- segments --------------------------------------------------------------------- */

static sonde_err read_head(sonde__trial_file *segment, int fd, const char *path,
                           sonde_diag *diag)
{
    struct stat about = {0};
    uint64_t length = 0;
    size_t count = 0;

    if (fstat(fd, &about) != 0) {
        return sonde__fail_errno(diag, path, "cannot be examined");
    }
    segment->size = (uint64_t)about.st_size;
    if (segment->head > 0) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__trial_read_at(fd, &length, sizeof length, 0, &count, path, diag));
    if (count < sizeof length || length > segment->size - sizeof length) {
        return sonde__fail(diag, SONDE_EFORMAT, path, NULL,
                           "its header of %llu bytes does not fit into its %llu bytes",
                           (unsigned long long)length, (unsigned long long)segment->size);
    }
    segment->head = sizeof length + length;
    return SONDE_OK;
}

/* Examines the segment as it is now. Its damage is noted once. */
static void look(line_reader *reader)
{
    sonde__trial_file *segment = reader->segment;
    char path[SONDE__PATH];
    sonde_diag why = {0};
    sonde_err err = SONDE_OK;
    const int fd = sonde__trial_file_open(&reader->worker->files[SONDE__FILE_SEGMENT],
                                          segment, path);

    reader->looked = reader->worker->progress[SONDE__FILE_INDEX].pieces;
    if (fd < 0) {
        err = sonde__fail_errno(&why, path, "cannot be opened");
    } else {
        err = read_head(segment, fd, path, &why);
        (void)close(fd);
    }
    if (err != SONDE_OK && !segment->broken) {
        segment->broken = true;
        sonde__trial_damage(&reader->trial->damage, reader->worker->name,
                            "segment %08llu: %s", (unsigned long long)segment->number,
                            why.found);
    }
}

/* The defect of a line's extent, or NULL. */
static const char *check_extent(line_reader *reader, const sonde__record_index_line *line)
{
    const sonde__trial_file *segment = reader->segment;
    const uint64_t end = line->offset + line->bytes;

    if (reader->looked != reader->worker->progress[SONDE__FILE_INDEX].pieces &&
        (segment->head == 0 || end > segment->size - segment->head)) {
        look(reader);
    }
    if (segment->broken || segment->head == 0) {
        return "its segment cannot be read";
    }
    return end > segment->size - segment->head ? "it points beyond the end of its segment"
                                               : NULL;
}

/* --- lines ------------------------------------------------------------------------ */

/* A zstd frame expands to at most this many times its own bytes. */
#define MOST_PACKED 65536

static uint64_t value_bytes(const sonde__record_index_line *line)
{
    uint64_t bytes = sonde_dtype_size(line->dtype);

    for (int d = 0; d < line->rank; d++) {
        bytes *=
            (uint64_t)line->shape[d]; /* the parser checked that it is representable */
    }
    return bytes;
}

static const char *check_value(line_reader *reader, const sonde__record_index_line *line)
{
    if (line->replica > UINT16_MAX || line->micro_batch > INT32_MAX) {
        return "its replica is beyond 65535, or its micro-batch beyond 2^31";
    }
    if (line->packing != SONDE__PACKED_NOT &&
        value_bytes(line) / MOST_PACKED > line->bytes) {
        return "its shape is larger than what its bytes can hold";
    }
    return check_extent(reader, line);
}

static sonde_err find_layout(const line_reader *reader,
                             const sonde__record_index_line *line, uint32_t tensor,
                             uint32_t *out)
{
    sonde__trial_worker *worker = reader->worker;
    sonde__trial_layout layout = {.dtype = (uint8_t)line->dtype,
                                  .rank = (uint8_t)line->rank,
                                  .packing = (uint8_t)line->packing};

    if (tensor >= worker->layout_count) {
        if (!sonde__reserve(&worker->layouts, &worker->layout_capacity,
                            (size_t)tensor + 1, sizeof *worker->layouts)) {
            return sonde__fail_nomem(reader->diag, "the index of a run");
        }
        while (worker->layout_count <= tensor) {
            worker->layouts[worker->layout_count++] = SONDE__NONE;
        }
    }
    memcpy(layout.shape, line->shape, (size_t)line->rank * sizeof layout.shape[0]);
    *out = sonde__trial_layouts_intern(&reader->trial->layouts, &layout,
                                       worker->layouts[tensor]);
    worker->layouts[tensor] = *out;
    return *out != SONDE__NONE ? SONDE_OK
                               : sonde__fail_nomem(reader->diag, "the index of a run");
}

static sonde_err take_value(const line_reader *reader,
                            const sonde__record_index_line *line, uint32_t step)
{
    sonde__trial_raw_item item = {
        .item = {.step = step,
                 .micro_batch = line->micro_batch,
                 .replica = (uint16_t)line->replica},
        .offset = line->offset,
        .bytes = line->bytes,
        .hash = line->hash,
        .segment = (uint32_t)(reader->segment -
                              reader->worker->files[SONDE__FILE_SEGMENT].items),
    };

    SONDE__TRY(sonde__trial_worker_tensor(reader->trial, reader->worker, line->tensor,
                                          line, reader->segment, &item.item.tensor,
                                          reader->diag));
    if (item.item.tensor == SONDE__NONE) {
        bad_line(reader, "no catalogue declares its tensor");
        return SONDE_OK;
    }
    SONDE__TRY(find_layout(reader, line, item.item.tensor, &item.layout));
    SONDE__TRY(sonde__trial_worker_add(reader->trial, reader->worker, SONDE__RAW,
                                       &item.item, reader->diag));
    reader->trial->bytes += value_bytes(line);
    return SONDE_OK;
}

static sonde_err take_line(void *user, char *text, size_t length)
{
    line_reader *reader = user;
    sonde__record_index_line line;
    uint32_t step = 0;

    if (!sonde__record_index_parse(text, length, &line) || line.step < 0 ||
        line.mode_step < 0) {
        bad_line(reader, "not an index line");
        return SONDE_OK;
    }
    if (!sonde__trial_counts(reader->trial, reader->worker, line.step)) {
        return SONDE_OK;
    }
    const char *wrong = check_value(reader, &line);
    if (wrong != NULL) {
        bad_line(reader, wrong);
        return SONDE_OK;
    }
    step = sonde__trial_steps_intern(&reader->trial->steps, line.step, line.mode,
                                     line.mode_step);
    if (step == SONDE__NONE) {
        return sonde__fail_nomem(reader->diag, "the steps of a run");
    }
    return take_value(reader, &line, step);
}

/* --- files ------------------------------------------------------------------------ */

static sonde_err read_on(sonde_trial *trial, sonde__trial_worker *worker,
                         sonde__record_file_kind kind, sonde_diag *diag)
{
    char name[SONDE__FILE_NAME], path[SONDE__PATH], where[SONDE__PATH];
    sonde__trial_progress *progress = &worker->progress[kind];
    line_reader reader = {trial, worker, where, diag, NULL, 0};
    bool found = false;

    reader.segment =
        sonde__trial_file_numbered(&worker->files[SONDE__FILE_SEGMENT], progress->number);
    if (reader.segment == NULL) {
        return sonde__fail_nomem(diag, "the segments of a run");
    }
    sonde__record_file_name(name, kind, progress->number, false);
    return sonde__trial_read_lines(
        &trial->damage, progress, sonde__trial_path(worker->path, name, path),
        sonde__trial_path(worker->name, name, where), take_line, &reader, &found, diag);
}

sonde_err sonde__trial_index_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag)
{
    return sonde__trial_read_files(trial, worker, SONDE__FILE_INDEX, read_on, diag);
}
