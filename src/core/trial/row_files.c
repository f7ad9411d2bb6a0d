/*
 * row_files.c - rows and records, which a writer may be appending, to items.
 *
 * Every row is read once here and its check verified; afterwards a row is an address in
 * the mapped file. A damaged head does no harm: the place of the first row is known, and
 * each row has a check of its own. The length of a sketch record is in the record; if it
 * is damaged, the next record with a right check is searched for, eight bytes at a time.
 */
#include "trial/trial_state.h"
#include "base/memory.h"
#include "base/fail.h"
#include "base/macros.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(SONDE_STRESS) && SONDE_STRESS
enum { PIECE = 24 };
#else
enum { PIECE = 1 << 20 };
#endif
enum { MOST_RECORD = 1 << 22, MOST_ROOM = 1 << 23 /* twice the longest record */ };

typedef struct row_reader row_reader;

/*
 * Takes the items among count bytes, which lie at progress->offset in the file and are
 * aligned as it is, and moves progress->offset after each. at_end: these are the last
 * bytes of a file that grows no more.
 */
typedef sonde_err take_fn(row_reader *reader, const unsigned char *bytes, size_t count,
                          bool at_end);

struct row_reader {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    take_fn *take;
    sonde__trial_progress *progress;
    sonde__trial_file_list *files;
    sonde__trial_file *file;
    const char *path, *where;
    sonde_diag *diag;
    bool over; /* the file grows no more */
    bool lost; /* sketches: searching for the next record */
};

/* Notes a defect of "row" or "record at" n. */
static void note_bad(const row_reader *reader, const char *what, uint64_t n,
                     const char *found)
{
    sonde__trial_damage_in(&reader->trial->damage, &reader->progress->bad, reader->where,
                           "%s %llu: %s", what, (unsigned long long)n, found);
}

/* --- heads ------------------------------------------------------------------------ */

/* Whether two texts are equal up to the first closing bracket, blanks aside. */
static bool same_list(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a == ' ') {
            a++;
        }
        while (*b == ' ') {
            b++;
        }
        if (*a != *b || *a == '\0') {
            return false;
        }
        if (*a == ']') {
            return true;
        }
    }
}

/* The digits up to a comma. */
static bool read_count(const char *digits, uint64_t *count)
{
    const char *const first = digits;

    *count = 0;
    for (; *digits >= '0' && *digits <= '9'; digits++) {
        if (__builtin_mul_overflow(*count, (uint64_t)10, count) ||
            __builtin_add_overflow(*count, (uint64_t)(*digits - '0'), count)) {
            return false;
        }
    }
    return *digits == ',' && digits > first;
}

bool sonde__trial_head_read(sonde__record_file_kind kind, const char *head, size_t size,
                            uint64_t *items)
{
    char given[SONDE__MOST_HEAD + 1], wanted[SONDE__MOST_HEAD + 1];
    const size_t length = sonde__record_file_head(kind, 0, wanted);
    const char *list = NULL, *shape = NULL;

    if (size < length) {
        return false;
    }
    if (kind == SONDE__FILE_SKETCH) {
        return memcmp(head, wanted, length) == 0;
    }
    memcpy(given, head, length);
    given[length] = wanted[length] = '\0';
    /* Magic, version and length: ten bytes that never differ. */
    if (memcmp(given, wanted, 10) != 0 || memchr(given + 10, '\0', length - 10) != NULL) {
        return false;
    }
    list = strchr(given + 10, '[');
    shape = strstr(given + 10, "'shape'");
    shape = shape != NULL ? strchr(shape, '(') : NULL;
    return list != NULL && shape != NULL && same_list(list, strchr(wanted + 10, '[')) &&
           strstr(given + 10, "'fortran_order': False") != NULL &&
           read_count(shape + 1, items);
}

/* Checks the head of a file, and in a closed one the number of rows that it gives. */
static sonde_err look_at_head(const row_reader *reader, int fd)
{
    static const char *const names[] = {[SONDE__FILE_STATS] = "vital signs",
                                        [SONDE__FILE_SKETCH] = "sketches",
                                        [SONDE__FILE_STEPS] = "steps"};
    const uint64_t row =
        reader->files->kind == SONDE__FILE_STATS ? SONDE__STATS_ROW : SONDE__STEPS_ROW;
    char head[SONDE__MOST_HEAD];
    const size_t length = sonde__record_file_head(reader->files->kind, 0, head);
    const uint64_t there = (reader->file->size - length) / row;
    uint64_t items = there;
    size_t count = 0;
    SONDE__TRY(
        sonde__trial_read_at(fd, head, length, 0, &count, reader->path, reader->diag));
    if (!sonde__trial_head_read(reader->files->kind, head, count, &items)) {
        sonde__trial_damage(&reader->trial->damage, reader->where,
                            "its head is not that of %s", names[reader->files->kind]);
    } else if (reader->file->closed && items != there) {
        sonde__trial_damage(&reader->trial->damage, reader->where,
                            "%llu rows, where its head says %llu",
                            (unsigned long long)there, (unsigned long long)items);
    }
    reader->file->head = reader->progress->offset = length;
    return SONDE_OK;
}

/* --- items ------------------------------------------------------------------------ */

static sonde_err take_all(row_reader *reader, int fd)
{
    sonde__trial_progress *progress = reader->progress;
    sonde__trial_scratch *buffer = &reader->trial->buffer;
    size_t room = PIECE;

    for (;;) {
        const uint64_t begin = progress->offset;
        size_t count = 0;

        if (!sonde__trial_scratch_reserve(buffer, room)) {
            return sonde__fail_nomem(reader->diag, reader->path);
        }
        sonde_err err = sonde__trial_read_at(fd, buffer->bytes, room, begin, &count,
                                             reader->path, reader->diag);
        if (err != SONDE_OK) {
            progress->size = begin;
            return err;
        }
        err = reader->take(reader, buffer->bytes, count, reader->over && count < room);
        /* what memory was lacking for is read again, though the file does not grow */
        progress->size = err == SONDE_OK ? begin + count : progress->offset;
        if (err != SONDE_OK || count < room) {
            return err;
        }
        if (progress->offset == begin) { /* an item larger than the room */
            room = SONDE_MIN(room * 2, (size_t)MOST_ROOM);
        }
    }
}

/* --- one file --------------------------------------------------------------------- */

static sonde_err read_open(row_reader *reader, int fd)
{
    struct stat about = {0};
    char head[SONDE__MOST_HEAD];
    sonde_err err = SONDE_OK;

    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        return sonde__fail(reader->diag, SONDE_EFORMAT, reader->path, NULL,
                           "a file of another kind");
    }
    reader->file->size = (uint64_t)about.st_size;
    /* Once a file grows no more, its end is read once more. */
    if ((reader->file->size == reader->progress->size &&
         reader->file->looked >= reader->over) ||
        reader->file->size < sonde__record_file_head(reader->files->kind, 0, head)) {
        reader->progress->size = reader->file->size;
        return SONDE_OK;
    }
    reader->file->looked = reader->over;
    if (reader->file->head == 0) {
        err = look_at_head(reader, fd);
    }
    return err != SONDE_OK ? err : take_all(reader, fd);
}

/* --- steps ------------------------------------------------------------------------ */

static sonde_err take_step_row(const row_reader *reader,
                               const sonde__record_step_row *row)
{
    sonde__trial_worker *worker = reader->worker;
    uint32_t step = 0;

    if (!sonde__record_step_valid(row)) {
        note_bad(reader, "row",
                 (reader->progress->offset - SONDE__STEPS_HEAD) / SONDE__STEPS_ROW,
                 "its check is wrong");
        return SONDE_OK;
    }
    if (row->step >= worker->limit) {
        worker->superseded_steps++;
        return SONDE_OK;
    }
    worker->last_ended = SONDE_MAX(worker->last_ended, row->step);
    reader->trial->changed = true;
    if (!sonde__trial_in_range(reader->trial, row->step)) {
        return SONDE_OK;
    }
    step = sonde__trial_steps_intern(&reader->trial->steps, row->step,
                                     (sonde_mode)row->mode, row->mode_step);
    return step != SONDE__NONE &&
                   sonde__trial_worker_ended(reader->trial, worker, step, row->time)
               ? SONDE_OK
               : sonde__fail_nomem(reader->diag, "the steps of a run");
}

static sonde_err take_step_rows(row_reader *reader, const unsigned char *bytes,
                                size_t count, bool at_end)
{
    (void)at_end;
    for (size_t offset = 0; offset + SONDE__STEPS_ROW <= count;
         offset += SONDE__STEPS_ROW) {
        SONDE__TRY(take_step_row(reader, (const void *)(bytes + offset)));
        reader->progress->offset += SONDE__STEPS_ROW;
    }
    return SONDE_OK;
}

/* --- vital signs ------------------------------------------------------------------ */

static void bad_row(const row_reader *reader, const char *found)
{
    note_bad(reader, "row",
             (reader->progress->offset - SONDE__STATS_HEAD) / SONDE__STATS_ROW, found);
}

static sonde_err take_stats_row(const row_reader *reader,
                                const sonde__record_stats_row *row)
{
    sonde__trial_row_item item = {
        .item = {.micro_batch = row->micro_batch, .replica = row->replica},
        .row = reader->worker->stats_rows,
    };

    if (sonde__record_stats_check(row) != row->check || row->mode >= SONDE_MODE_COUNT ||
        row->step < 0 || row->mode_step < 0 || row->micro_batch > INT32_MAX) {
        bad_row(reader, "its check is wrong");
        return SONDE_OK;
    }
    if (!sonde__trial_counts(reader->trial, reader->worker, row->step)) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__trial_worker_tensor(reader->trial, reader->worker, row->tensor,
                                          NULL, NULL, &item.item.tensor, reader->diag));
    if (item.item.tensor == SONDE__NONE) {
        bad_row(reader, "no catalogue declares its tensor");
        return SONDE_OK;
    }
    item.item.step = sonde__trial_steps_intern(&reader->trial->steps, row->step,
                                               (sonde_mode)row->mode, row->mode_step);
    if (item.item.step == SONDE__NONE) {
        return sonde__fail_nomem(reader->diag, "the steps of a run");
    }
    return sonde__trial_worker_add(reader->trial, reader->worker,
                                   row->zero == SONDE_VITALS_ABSENT ? SONDE_FORM_NORMS
                                                                    : SONDE_FORM_VITALS,
                                   &item.item, reader->diag);
}

static sonde_err take_stats_rows(row_reader *reader, const unsigned char *bytes,
                                 size_t count, bool at_end)
{
    (void)at_end;
    for (size_t offset = 0; offset + SONDE__STATS_ROW <= count;
         offset += SONDE__STATS_ROW) {
        if (reader->worker->stats_rows >= SONDE__NONE - 1) {
            return sonde__fail_nomem(reader->diag, "more rows than can be counted");
        }
        SONDE__TRY(take_stats_row(reader, (const void *)(bytes + offset)));
        reader->progress->offset += SONDE__STATS_ROW;
        reader->worker->stats_rows++;
    }
    return SONDE_OK;
}

/* --- sketches --------------------------------------------------------------------- */

static void bad_record(const row_reader *reader, const char *found)
{
    note_bad(reader, "record at", reader->progress->offset, found);
}

static sonde_err take_record(const row_reader *reader,
                             const sonde__record_sketch_record *record)
{
    sonde__trial_sketch_item item = {
        .item = {.micro_batch = record->micro_batch, .replica = record->replica},
        .offset = reader->progress->offset,
        .file =
            (uint32_t)(reader->file - reader->worker->files[SONDE__FILE_SKETCH].items),
        .length = record->length,
    };

    if (!sonde__trial_counts(reader->trial, reader->worker, record->step)) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__trial_worker_tensor(reader->trial, reader->worker, record->tensor,
                                          NULL, NULL, &item.item.tensor, reader->diag));
    if (item.item.tensor == SONDE__NONE) {
        bad_record(reader, "no catalogue declares its tensor");
        return SONDE_OK;
    }
    item.item.step = sonde__trial_steps_intern(
        &reader->trial->steps, record->step, (sonde_mode)record->mode, record->mode_step);
    if (item.item.step == SONDE__NONE) {
        return sonde__fail_nomem(reader->diag, "the steps of a run");
    }
    return sonde__trial_worker_add(reader->trial, reader->worker, SONDE_FORM_SKETCH,
                                   &item.item, reader->diag);
}

/* Whether these bytes, aligned to 8, are a whole record with a right check. */
static bool is_record(const unsigned char *bytes, size_t available)
{
    const sonde__record_sketch_record *record = (const void *)bytes;

    return sonde__record_sketch_valid(record, available) &&
           record->length <= MOST_RECORD && record->step >= 0 && record->mode_step >= 0 &&
           record->micro_batch <= INT32_MAX &&
           sonde__record_sketch_check(record) == record->check;
}

/* Whether a record may begin here whose end is still to come. */
static bool is_begun(const unsigned char *bytes, size_t available)
{
    uint32_t length = 0;

    if (available < SONDE__SKETCH_FIXED) {
        return true;
    }
    memcpy(&length, bytes, sizeof length);
    return length >= SONDE__SKETCH_FIXED && length % 8 == 0 && length <= MOST_RECORD &&
           length > available;
}

/* Whether a whole record follows after the first of these bytes. */
static bool has_record(const unsigned char *bytes, size_t count)
{
    for (size_t offset = 8; offset + SONDE__SKETCH_FIXED <= count; offset += 8) {
        if (is_record(bytes + offset, count - offset)) {
            return true;
        }
    }
    return false;
}

/* Whether these bytes are the torn beginning of a record. at_end: no more will come. */
static bool is_incomplete(const row_reader *reader, const unsigned char *bytes,
                          size_t count, bool at_end)
{
    return is_begun(bytes, count) &&
           !(at_end && (reader->lost || has_record(bytes, count)));
}

static sonde_err take_records(row_reader *reader, const unsigned char *bytes,
                              size_t count, bool at_end)
{
    size_t offset = 0;

    while (offset + 8 <= count) {
        size_t step = 8;

        if (is_record(bytes + offset, count - offset)) {
            const sonde__record_sketch_record *record = (const void *)(bytes + offset);
            SONDE__TRY(take_record(reader, record));
            step = record->length;
            reader->lost = false;
        } else if (is_incomplete(reader, bytes + offset, count - offset, at_end)) {
            break;
        } else if (!reader->lost) {
            bad_record(reader, "its check is wrong");
            reader->lost = true;
        }
        offset += step;
        reader->progress->offset += step;
    }
    return SONDE_OK;
}

/* --- files ------------------------------------------------------------------------ */

/* Reads the rest of the current file. */
static sonde_err read_on(sonde_trial *trial, sonde__trial_worker *worker,
                         sonde__record_file_kind kind, sonde_diag *diag)
{
    static take_fn *const takes[SONDE__FILE_OTHER] = {
        [SONDE__FILE_STEPS] = take_step_rows,
        [SONDE__FILE_STATS] = take_stats_rows,
        [SONDE__FILE_SKETCH] = take_records,
    };
    char name[SONDE__FILE_NAME], path[SONDE__PATH], where[SONDE__PATH];
    row_reader reader = {.trial = trial,
                         .worker = worker,
                         .take = takes[kind],
                         .progress = &worker->progress[kind],
                         .files = &worker->files[kind]};
    const uint64_t number = reader.progress->number;
    sonde_diag why = {0};
    sonde_err err = SONDE_OK;

    reader.file = sonde__trial_file_numbered(reader.files, number);
    if (reader.file == NULL) {
        return sonde__fail_nomem(diag, "the files of a run");
    }
    if (reader.file->head == 0) {
        reader.file->first = worker->stats_rows;
    }
    reader.path = path;
    reader.where = where;
    reader.diag = &why;
    reader.lost = false;
    const int fd = sonde__trial_file_open(reader.files, reader.file, path);
    reader.over =
        reader.file->closed || trial->ended || worker->said_ended || worker->crashed;
    sonde__record_file_name(name, kind, number, !reader.file->closed);
    (void)sonde__trial_path(worker->name, name, where);
    if (fd < 0) {
        err = sonde__fail_errno(&why, path, "cannot be opened");
    } else {
        err = read_open(&reader, fd);
        (void)close(fd);
    }
    sonde__trial_damage_flush(&trial->damage, &reader.progress->bad, where);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, path);
    }
    if (err != SONDE_OK && !reader.file->broken) {
        reader.file->broken = true;
        sonde__trial_damage(&trial->damage, where, "%s", why.found);
    }
    return SONDE_OK;
}

sonde_err sonde__trial_step_rows_read(sonde_trial *trial, sonde__trial_worker *worker,
                                      sonde_diag *diag)
{
    return sonde__trial_read_files(trial, worker, SONDE__FILE_STEPS, read_on, diag);
}

sonde_err sonde__trial_stats_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag)
{
    return sonde__trial_read_files(trial, worker, SONDE__FILE_STATS, read_on, diag);
}

sonde_err sonde__trial_sketches_read(sonde_trial *trial, sonde__trial_worker *worker,
                                     sonde_diag *diag)
{
    return sonde__trial_read_files(trial, worker, SONDE__FILE_SKETCH, read_on, diag);
}

/* --- index file -------------------------------------------------------------------- */

/* Index lines to items.
 *
 * A value counts only if its extent lies inside its segment. So a segment is examined for
 * its length, and for the eight bytes that give the start of its data. Index and segment
 * may grow while they are read: a length must be newer than the line it is compared with. */

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
    SONDE__TRY(sonde__trial_worker_add(reader->trial, reader->worker, SONDE_FORM_RAW,
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

static sonde_err read_lines_on(sonde_trial *trial, sonde__trial_worker *worker,
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
    return sonde__trial_read_files(trial, worker, SONDE__FILE_INDEX, read_lines_on, diag);
}
