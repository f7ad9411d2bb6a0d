/*
 * recover.c - takes what is left in the ring of a dead writer, and closes the files that
 * it left open.
 *
 * A .part keeps the values that its index points to and that lie within the file; the
 * rest is cut off. Values whose index lines are damaged (by a disk; a crash does not do
 * that) stay as "damaged" entries of the header, so that the file is covered without a
 * gap. Readers verify the hashes.
 */
#include "record/writer.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/names.h"
#include "base/clock.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sonde/log.h>

enum { LARGEST_HEADER = 100 * 1000 * 1000 /* of safetensors */ };

typedef struct found_file {
    sonde__record_file_kind kind;
    uint64_t number;
    bool part;
} found_file;

typedef struct found_files {
    found_file *files; /* sorted by kind, number, and then closed ones first */
    size_t count, capacity;
    bool failed;
} found_files;

typedef struct recovery {
    sonde__record_writer *writer;
    const char *where;
    sonde_diag *diag;
    uint64_t records, bytes;
    uint64_t items[SONDE__FILE_OTHER]; /* by kind: rows, sketches, steps */
    uint64_t next[SONDE__FILE_OTHER];  /* by kind: one more than the last number kept */
    uint64_t beyond[SONDE__MARKS];     /* items from the numbers of the ring's mark on */
    int failed;                        /* the last errno of the store */
} recovery;

static void note(void *user, const char *name)
{
    found_files *const found = user;
    found_file file = {0};

    file.kind = sonde__record_file_parse(name, &file.number, &file.part);
    if (file.kind == SONDE__FILE_OTHER) {
        return;
    }
    if (!sonde__reserve(&found->files, &found->capacity, found->count + 1,
                        sizeof *found->files)) {
        found->failed = true;
        return;
    }
    found->files[found->count++] = file;
}

static int in_order(const void *left, const void *right)
{
    const found_file *a = left, *b = right;

    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    if (a->number != b->number) {
        return a->number < b->number ? -1 : 1;
    }
    return a->part - b->part;
}

static bool is_there(const found_files *found, sonde__record_file_kind kind,
                     uint64_t number, bool part)
{
    const found_file file = {kind, number, part};

    return found->count > 0 && bsearch(&file, found->files, found->count,
                                       sizeof *found->files, in_order) != NULL;
}

static const char *path_of(const recovery *r, sonde__record_file_kind kind,
                           uint64_t number, bool part, char *path)
{
    char name[SONDE__FILE_NAME];

    sonde__record_file_name(name, kind, number, part);
    (void)snprintf(path, SONDE__FILE_NAME * 2, "%s/%s", r->writer->folder, name);
    return path;
}

static sonde_err fail(recovery *r, int failed, const char *path)
{
    char where[256];

    r->failed = failed;
    if (failed == ENOMEM) {
        return sonde__fail_nomem(r->diag, "recovering a run");
    }
    (void)snprintf(where, sizeof where, "%s/%s", r->where, path);
    errno = failed;
    return sonde__fail_errno(r->diag, where, "cannot be recovered");
}

/* Keeps a closed file of that number with its items. */
static void stays(recovery *r, sonde__record_file_kind kind, uint64_t number,
                  uint64_t items)
{
    const int mark = kind < SONDE__FILE_STATS
                         ? SONDE__MARK_VALUES
                         : (int)(SONDE__MARK_ROWS + (kind - SONDE__FILE_STATS));

    if (number >= r->writer->mark.number[mark]) {
        r->beyond[mark] += items;
    }
    r->next[kind] = SONDE_MAX(r->next[kind], number + 1);
}

/* --- segments --------------------------------------------------------------------- */

/* What the lines of an index cover of a segment. */
typedef struct replay {
    uint64_t size;    /* of the data in the file; UINT64_MAX: unknown */
    uint64_t end;     /* of the valid data */
    size_t index_end; /* of the valid lines */
    uint64_t values;
    bool full; /* the header has no room */
} replay;

/* Adds the header's entry of a value, and of bytes before it that no line covers. */
static void replay_value(recovery *r, const sonde__record_index_line *line,
                         sonde__record_header *header, replay *tally)
{
    const sonde__names *names = &r->writer->tensors.names;

    if (line->tensor >= names->count || line->offset < tally->end ||
        line->bytes > tally->size || line->offset > tally->size - line->bytes) {
        return;
    }
    if (header != NULL) {
        sonde__record_header_keep(header);
        tally->full = tally->full ||
                      (line->offset > tally->end &&
                       !sonde__record_header_add_gap(header, tally->end,
                                                     line->offset - tally->end)) ||
                      !sonde__record_header_add(header, line, names->text[line->tensor]);
    }
    tally->end = line->offset + line->bytes;
    tally->values++;
}

/* All lines of an index; header may be NULL. Counts what it finds. */
static void replay_index(recovery *r, const char *text, size_t size,
                         sonde__record_header *header, replay *tally)
{
    const char *next = text, *newline = NULL;

    while ((newline = memchr(next, '\n', size - (size_t)(next - text))) != NULL) {
        const uint64_t before = tally->values;
        sonde__record_index_line line;
        const bool good =
            sonde__record_index_parse(next, (size_t)(newline - next), &line);

        next = newline + 1;
        if (good) {
            replay_value(r, &line, header, tally);
        }
        if (tally->values > before) {
            int64_t payload = (int64_t)sonde_dtype_size(line.dtype);

            for (int d = 0; d < line.rank; d++) {
                payload *= line.shape[d];
            }
            r->records++;
            r->bytes += (uint64_t)payload;
            tally->index_end = (size_t)(next - text);
        }
    }
}

/* Counts the values of a closed segment. */
static sonde_err count_segment(recovery *r, uint64_t number)
{
    sonde__record_backend *const backend = r->writer->backend;
    replay tally = {.size = UINT64_MAX};
    char path[SONDE__FILE_NAME * 2], *text = NULL;
    size_t size = 0;
    const int failed = backend->ops->load(
        backend, path_of(r, SONDE__FILE_INDEX, number, false, path), &text, &size);

    if (failed != 0) {
        return fail(r, failed, path);
    }
    replay_index(r, text, size, NULL, &tally);
    sonde__free(text);
    stays(r, SONDE__FILE_SEGMENT, number, tally.values);
    return SONDE_OK;
}

/* An index without a segment, or with one that is empty. */
static sonde_err remove_segment(recovery *r, uint64_t number)
{
    sonde__record_backend *const backend = r->writer->backend;
    char path[SONDE__FILE_NAME * 2];
    int failed =
        backend->ops->remove(backend, path_of(r, SONDE__FILE_INDEX, number, false, path));

    if (failed == 0 || failed == ENOENT) {
        failed = backend->ops->remove(
            backend, path_of(r, SONDE__FILE_SEGMENT, number, true, path));
    }
    return failed == 0 || failed == ENOENT ? SONDE_OK : fail(r, failed, path);
}

/* The room of the head, and whether the file has it; 0 if not. */
static int read_room(sonde__record_file *data, size_t *room)
{
    uint64_t length = 0;
    size_t got = 0;
    const int failed = data->ops->read_at(data, 0, &length, sizeof length, &got);

    *room = 0;
    if (failed == 0 && got == sizeof length && length <= LARGEST_HEADER &&
        length + SONDE__HEADER_LENGTH <= data->end) {
        *room = (size_t)length + SONDE__HEADER_LENGTH;
    }
    return failed;
}

/* Header, length and index of a segment are set and synced. */
static int write_segment(sonde__record_file *data, sonde__record_file *index,
                         sonde__record_header *header, const replay *tally)
{
    const sonde__record_backend_ops *ops = data->ops;
    int failed = ops->truncate(data, header->room + tally->end);

    sonde__record_header_finish(header);
    if (failed == 0) {
        failed = ops->write_at(data, 0, header->text, header->room);
    }
    if (failed == 0) {
        failed = ops->truncate(index, tally->index_end);
    }
    if (failed == 0) {
        failed = ops->sync(data);
    }
    if (failed == 0) {
        failed = ops->sync(index);
    }
    return failed;
}

/* A segment whose files are open and whose head is whole. */
static sonde_err close_segment(recovery *r, uint64_t number, sonde__record_file *data,
                               sonde__record_file *index, const char *text, size_t size,
                               size_t room)
{
    sonde__record_backend *const backend = r->writer->backend;
    char part_path[SONDE__FILE_NAME * 2], path[SONDE__FILE_NAME * 2];
    replay tally = {.size = data->end - room};
    sonde__record_header header;
    sonde_err err = sonde__record_header_init(&header, 4);
    int failed = 0;

    if (err != SONDE_OK ||
        sonde__record_header_begin(&header, room, r->writer->segment.rank) != SONDE_OK) {
        sonde__record_header_fini(&header);
        return fail(r, ENOMEM, "");
    }
    replay_index(r, text, size, &header, &tally);
    (void)path_of(r, SONDE__FILE_SEGMENT, number, true, part_path);
    if (tally.full) {
        sonde__record_header_fini(&header);
        return sonde__fail(r->diag, SONDE_EFORMAT, part_path, "room for all keys",
                           "its header has %zu bytes", room);
    }
    if (tally.index_end > 0) {
        failed = write_segment(data, index, &header, &tally);
        if (failed == 0) {
            failed = backend->ops->publish(
                data, part_path, path_of(r, SONDE__FILE_SEGMENT, number, false, path));
        }
        stays(r, SONDE__FILE_SEGMENT, number, tally.values);
    } else {
        err = remove_segment(r, number);
    }
    sonde__record_header_fini(&header);
    return failed != 0 ? fail(r, failed, part_path) : err;
}

static sonde_err recover_segment(recovery *r, uint64_t number)
{
    sonde__record_backend *const backend = r->writer->backend;
    char path[SONDE__FILE_NAME * 2], *text = NULL;
    sonde__record_file *data = NULL, *index = NULL;
    size_t size = 0, room = 0;
    sonde_err err = SONDE_OK;
    int failed = backend->ops->open(
        backend, path_of(r, SONDE__FILE_SEGMENT, number, true, path), &data);

    if (failed == 0) {
        failed = read_room(data, &room);
    }
    if (failed == 0) {
        (void)path_of(r, SONDE__FILE_INDEX, number, false, path);
        failed = backend->ops->open(backend, path, &index);
    }
    if (failed == 0) {
        failed = backend->ops->load(backend, path, &text, &size);
    }
    if (failed == ENOENT || (failed == 0 && memchr(text, '\n', size) == NULL)) {
        err = remove_segment(r, number); /* it died before the first line */
    } else if (failed != 0) {
        err = fail(r, failed, path);
    } else if (room == 0) {
        err = sonde__fail(r->diag, SONDE_EFORMAT, path, "a head as long as it says",
                          "an index beside a segment whose head is damaged");
    } else {
        err = close_segment(r, number, data, index, text, size, room);
    }
    sonde__free(text);
    backend->ops->close(data);
    backend->ops->close(index);
    return err;
}

/* --- statistics, sketches and steps ----------------------------------------------- */

/* The length of what is whole in a sketch file, and how many records that are. */
static uint64_t whole_sketches(const char *text, size_t size, uint64_t *count)
{
    size_t offset = SONDE__SKETCH_HEAD;

    *count = 0;
    while (size >= offset + SONDE__SKETCH_FIXED) {
        const sonde__record_sketch_record *record = (const void *)(text + offset);

        if (!sonde__record_sketch_valid(record, size - offset) ||
            record->check != sonde__record_sketch_check(record)) {
            break;
        }
        offset += record->length;
        (*count)++;
    }
    return *count > 0 ? offset : 0;
}

/* The bytes of the valid items of a file, and their number. */
static int measure(recovery *r, sonde__record_file_kind kind, const char *path,
                   uint64_t *end, uint64_t *items)
{
    sonde__record_backend *const backend = r->writer->backend;
    const uint64_t row = kind == SONDE__FILE_STATS ? SONDE__STATS_ROW : SONDE__STEPS_ROW;
    char head[SONDE__MOST_HEAD];
    const uint64_t first = sonde__record_file_head(kind, 0, head);
    sonde__record_file *file = NULL;
    char *text = NULL;
    size_t size = 0;
    int failed = 0;

    *end = *items = 0;
    if (kind == SONDE__FILE_SKETCH) {
        failed = backend->ops->load(backend, path, &text, &size);
        if (failed == 0) {
            *end = whole_sketches(text, size, items);
            sonde__free(text);
        }
        return failed;
    }
    failed = backend->ops->open(backend, path, &file);
    if (failed == 0 && file->end > first) {
        *items = (file->end - first) / row;
        *end = *items > 0 ? first + *items * row : 0;
    }
    backend->ops->close(file);
    return failed;
}

static sonde_err count_stream(recovery *r, sonde__record_file_kind kind, uint64_t number)
{
    char path[SONDE__FILE_NAME * 2];
    uint64_t end = 0, items = 0;
    const int failed =
        measure(r, kind, path_of(r, kind, number, false, path), &end, &items);

    if (failed != 0) {
        return fail(r, failed, path);
    }
    stays(r, kind, number, items);
    r->items[kind] += items;
    return SONDE_OK;
}

static sonde_err recover_stream(recovery *r, sonde__record_file_kind kind,
                                uint64_t number)
{
    sonde__record_backend *const backend = r->writer->backend;
    char part_path[SONDE__FILE_NAME * 2], path[SONDE__FILE_NAME * 2];
    char head[SONDE__MOST_HEAD];
    sonde__record_file *file = NULL;
    uint64_t end = 0, items = 0;
    int failed =
        measure(r, kind, path_of(r, kind, number, true, part_path), &end, &items);

    if (failed == 0 && items == 0) {
        failed = backend->ops->remove(backend, part_path);
        return failed == 0 ? SONDE_OK : fail(r, failed, part_path);
    }
    if (failed == 0) {
        failed = backend->ops->open(backend, part_path, &file);
    }
    if (failed == 0) {
        failed = backend->ops->truncate(file, end);
    }
    if (failed == 0) {
        failed = backend->ops->write_at(file, 0, head,
                                        sonde__record_file_head(kind, items, head));
    }
    if (failed == 0) {
        failed = backend->ops->sync(file);
    }
    if (failed == 0) {
        failed =
            backend->ops->publish(file, part_path, path_of(r, kind, number, false, path));
    }
    backend->ops->close(file);
    stays(r, kind, number, items);
    r->items[kind] += items;
    return failed == 0 ? SONDE_OK : fail(r, failed, part_path);
}

/* --- all of it -------------------------------------------------------------------- */

static sonde_err recover_file(recovery *r, const found_files *found,
                              const found_file *file)
{
    const uint64_t number = file->number;

    switch (file->kind) {
    case SONDE__FILE_SEGMENT:
        return file->part ? recover_segment(r, number) : count_segment(r, number);
    case SONDE__FILE_INDEX: /* with its segment; alone it is good for nothing */
        return is_there(found, SONDE__FILE_SEGMENT, number, false) ||
                       is_there(found, SONDE__FILE_SEGMENT, number, true)
                   ? SONDE_OK
                   : remove_segment(r, number);
    case SONDE__FILE_STATS:
    case SONDE__FILE_SKETCH:
    case SONDE__FILE_STEPS:
        return file->part ? recover_stream(r, file->kind, number)
                          : count_stream(r, file->kind, number);
    case SONDE__FILE_OTHER:
    default:
        return SONDE_OK;
    }
}

static sonde_err recover_all(recovery *r, found_files *found)
{
    if (found->count > 0) {
        qsort(found->files, found->count, sizeof *found->files, in_order);
    }
    for (size_t i = 0; i < found->count; i++) {
        const recovery before = *r;
        int attempts = 0;
        sonde_err err = SONDE_OK;

        if (i > 0 && in_order(&found->files[i - 1], &found->files[i]) == 0) {
            continue; /* listed twice */
        }
        sonde__record_writer_note(r->writer);
        do {
            *r = before;
            err = recover_file(r, found, &found->files[i]);
        } while (err != SONDE_OK && sonde__record_try_again(&attempts, r->failed));
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}

sonde_err sonde__record_run_recover(sonde__record_writer *writer, const char *where,
                                    sonde_diag *diag)
{
    recovery r = {.writer = writer, .where = where, .diag = diag};
    found_files found = {0};
    const int failed =
        writer->backend->ops->list(writer->backend, writer->folder, note, &found);
    sonde_err err = SONDE_OK;

    if (failed != 0 || found.failed) {
        err = fail(&r, found.failed ? ENOMEM : failed, writer->folder);
    } else {
        err = recover_all(&r, &found);
    }
    sonde__free(found.files);
    if (err != SONDE_OK) {
        return err;
    }
    writer->segment.number = r.next[SONDE__FILE_SEGMENT];
    memcpy(writer->beyond, r.beyond, sizeof writer->beyond);
    atomic_init(&writer->before.records, r.records);
    atomic_init(&writer->before.bytes, r.bytes);
    for (int i = 0; i < SONDE__STREAMS; i++) {
        writer->streams[i].number = r.next[SONDE__FILE_STATS + i];
        atomic_init(&writer->before.items[i], r.items[SONDE__FILE_STATS + i]);
    }
    return SONDE_OK;
}

/* --- salvage ----------------------------------------------------------------------- */

/* --- whether a message is whole ------------------------------------------------------- */

static bool is_value(sonde__record_ring *ring, sonde__record_value_message *message)
{
    sonde__record_index_line *const line = &message->line;
    size_t bytes = sonde_dtype_size(line->dtype);

    if (bytes == 0 || line->rank < 0 || line->rank > SONDE_MAX_DIMS ||
        (unsigned)line->mode >= SONDE_MODE_COUNT || line->packing != SONDE__PACKED_NOT) {
        return false;
    }
    for (int d = 0; d < line->rank; d++) {
        if (line->shape[d] < 0 || !sonde__mul(bytes, (size_t)line->shape[d], &bytes)) {
            return false;
        }
    }
    if (bytes != line->bytes) {
        return false;
    }
    if (message->far == NULL) {
        return bytes <= message->block.size - sizeof *message;
    }
    message->far = sonde__record_ring_find_large(ring, bytes);
    if (message->far == NULL && ring->fault == 0) {
        line->tensor = SONDE_NO_TENSOR; /* is counted as lost */
    }
    return ring->fault == 0;
}

static bool is_tensor(const sonde__record_tensor_message *message)
{
    uint64_t ends = 0;

    if (message->length > message->block.size - sizeof *message || message->rank < 0 ||
        message->rank > SONDE_MAX_DIMS) {
        return false;
    }
    for (uint32_t i = 0; i < message->length; i++) {
        ends += message->text[i] == '\0';
    }
    return ends == (uint64_t)message->collections + 4 &&
           message->text[message->length - 1] == '\0';
}

static bool is_whole(sonde__record_ring *ring, sonde__record_block *block)
{
    static const size_t least[SONDE__MESSAGE_KINDS] = {
        [SONDE__MESSAGE_VALUE] = sizeof(sonde__record_value_message),
        [SONDE__MESSAGE_VITALS] = sizeof(sonde__record_vitals_message),
        [SONDE__MESSAGE_SKETCH] = sizeof(sonde__record_sketch_message),
        [SONDE__MESSAGE_TENSOR] = sizeof(sonde__record_tensor_message),
        [SONDE__MESSAGE_END] = sizeof(sonde__record_end_message)};
    void *const message = block;
    const size_t before = offsetof(sonde__record_sketch_message, record);

    if (block->kind >= SONDE__MESSAGE_KINDS || block->size < least[block->kind]) {
        return false;
    }
    switch ((sonde__record_message_kind)block->kind) {
    case SONDE__MESSAGE_VALUE:
        return is_value(ring, message);
    case SONDE__MESSAGE_SKETCH:
        return sonde__record_sketch_valid(
            &((sonde__record_sketch_message *)message)->record, block->size - before);
    case SONDE__MESSAGE_TENSOR:
        return is_tensor(message);
    case SONDE__MESSAGE_VITALS:
        return ((sonde__record_vitals_message *)message)->row.mode < SONDE_MODE_COUNT;
    case SONDE__MESSAGE_END:
        return ((sonde__record_end_message *)message)->row.mode < SONDE_MODE_COUNT;
    case SONDE__MESSAGE_KINDS:
    default:
        return false;
    }
}

static bool is_never(sonde__record_ring *ring, sonde__record_block *block)
{
    (void)ring;
    (void)block;
    return false;
}

/* --- opening -------------------------------------------------------------------------- */

static sonde_err fail_ring(sonde_diag *diag, const char *where, int failed)
{
    if (failed == ENOMEM) {
        return sonde__fail_nomem(diag, "the ring of a run");
    }
    errno = failed;
    return sonde__fail_errno(diag, where, "the records of its ring cannot be recovered");
}

/* Takes the losses that a ring has counted; what it refused follows in fold: checkpoints
 * of the recovery are read together with it. */
static void take_losses(sonde__record_writer *writer)
{
    sonde__record_ring_head *const head = writer->ring->shared;

    writer->ring_full_before = head->full_before + atomic_load(&head->full);
    writer->put_before = head->put_before + atomic_load(&head->put);
    atomic_init(&writer->before.disk_full, writer->mark.disk_full);
    atomic_init(&writer->before.io_error, writer->mark.io_error);
}

sonde_err sonde__record_salvage_find(sonde__record_writer *writer, const char *where,
                                     sonde_diag *diag)
{
    char name[SONDE__FILE_NAME * 2];
    int failed = 0, attempts = 0;

    writer->has_mark = false;
    (void)snprintf(name, sizeof name, "%s/%s", writer->folder, SONDE__RING_FILE);
    if (writer->backend->ops->place == NULL) {
        return SONDE_OK;
    }
    const char *path = writer->backend->ops->place(writer->backend, name);
    do {
        failed = sonde__record_ring_reopen(writer->ring, path, writer->id,
                                           writer->segment.rank, &writer->mark);
    } while (sonde__record_try_again(&attempts, failed));
    if (failed == ENOENT) {
        return SONDE_OK;
    }
    if (failed == EBADMSG) {
        sonde_log(SONDE_LOG_WARNING, "record",
                  "%s/%s is damaged and not used: it is named %s.damaged", where, name,
                  name);
        sonde__record_ring_put_away(writer->ring);
        return SONDE_OK;
    }
    if (failed != 0) {
        return fail_ring(diag, where, failed);
    }
    if (writer->ring->restarted) {
        sonde_log(SONDE_LOG_WARNING, "record",
                  "%s/%s: the machine was restarted: what it held is lost", where, name);
    }
    writer->has_mark = true;
    writer->cut = sonde__record_ring_cut(writer->ring,
                                         writer->ring->restarted ? is_never : is_whole);
    if (writer->ring->fault != 0) {
        return fail_ring(diag, where, writer->ring->fault);
    }
    take_losses(writer);
    return SONDE_OK;
}

/* --- writing -------------------------------------------------------------------------- */

static void skip_written(sonde__record_writer *writer)
{
    const sonde__record_checkpoint *const mark = &writer->mark;

    for (int i = 0; i < SONDE__MARKS; i++) {
        const uint64_t beyond =
            writer->beyond[i] > mark->items[i] ? writer->beyond[i] - mark->items[i] : 0;

        writer->written[i] = mark->written[i] + beyond;
    }
}

/* The producer's ids of tensors whose lines the catalogue has. */
static int take_ids(sonde__record_writer *writer)
{
    uint32_t value = 0;

    for (uint32_t id = 0;; id++) {
        int failed = 0, attempts = 0;

        do {
            failed = sonde__record_ring_get_id(writer->ring, id, &value);
        } while (sonde__record_try_again(&attempts, failed));
        if (failed != 0) {
            return failed == ENODATA ? 0 : failed;
        }
        if (value < writer->tensors.names.count &&
            !sonde__record_tensors_map(&writer->tensors, id, value)) {
            return ENOMEM;
        }
    }
}

/* All messages of the ring into files, which are closed. */
static int write_ring(sonde__record_writer *writer)
{
    int failed = 0, attempts = 0;
    bool any = true;

    do {
        sonde__record_writer_note(writer);
        failed = sonde__record_work(writer, sonde__now(), &any);
        attempts = failed == 0 ? 0 : attempts;
    } while ((failed == 0 && any) || sonde__record_try_again(&attempts, failed));
    if (failed != 0) {
        return failed;
    }
    attempts = 0;
    do {
        failed = sonde__record_rotate(writer, true, sonde__now());
    } while (sonde__record_try_again(&attempts, failed));
    return failed;
}

/* The counters of this process become those of an earlier one. */
static void fold(sonde__record_writer *writer)
{
    sonde__record_counters *const now = &writer->counters, *const before =
                                                               &writer->before;
    _Atomic uint64_t *const from[] = {&now->records,
                                      &now->bytes,
                                      &now->items[SONDE__STREAM_ROWS],
                                      &now->items[SONDE__STREAM_SKETCHES],
                                      &now->disk_full,
                                      &now->io_error};
    _Atomic uint64_t *const to[] = {&before->records,
                                    &before->bytes,
                                    &before->items[SONDE__STREAM_ROWS],
                                    &before->items[SONDE__STREAM_SKETCHES],
                                    &before->disk_full,
                                    &before->io_error};

    for (size_t i = 0; i < SONDE_COUNT_OF(from); i++) {
        (void)atomic_fetch_add(to[i], atomic_exchange(from[i], 0));
    }
    (void)atomic_fetch_add(&before->io_error,
                           atomic_load(&writer->ring->shared->refused));
    atomic_store(&before->last_step,
                 SONDE_MAX(atomic_load(&before->last_step), writer->newest));
    atomic_store(&now->last_step, -1);
    writer->newest = -1;
}

static uint64_t count_recorded(const sonde__record_counters *counters)
{
    return atomic_load(&counters->records) +
           atomic_load(&counters->items[SONDE__STREAM_ROWS]) +
           atomic_load(&counters->items[SONDE__STREAM_SKETCHES]);
}

void sonde__record_salvage_settle(sonde__record_writer *writer)
{
    const uint64_t known = count_recorded(&writer->before) + writer->ring_full_before +
                           atomic_load(&writer->before.disk_full) +
                           atomic_load(&writer->before.io_error);
    const uint64_t open = writer->cut > 0 ? 0 : 1; /* a put that had not returned */

    if (writer->put_before > known + open) {
        (void)atomic_fetch_add(&writer->before.io_error, writer->put_before - known);
    } else {
        writer->put_before = known;
    }
}

sonde_err sonde__record_salvage_finish(sonde__record_writer *writer, const char *where,
                                       uint64_t *records, sonde_diag *diag)
{
    const uint64_t before = count_recorded(&writer->before);

    *records = 0;
    if (!writer->has_mark) {
        return SONDE_OK;
    }
    skip_written(writer);
    int failed = take_ids(writer);
    if (failed != 0) {
        return fail_ring(diag, where, failed);
    }
    sonde__record_checkpoint_batch(writer); /* the numbers of the files are new */
    failed = write_ring(writer);
    if (failed != 0) {
        return fail_ring(diag, where, failed);
    }
    fold(writer);
    sonde__record_salvage_settle(writer);
    memset(writer->written, 0, sizeof writer->written);
    *records = count_recorded(&writer->before) - before;
    return SONDE_OK;
}
