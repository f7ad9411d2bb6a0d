/*
 * stream.c - files of a head and items; measuring a closed file, and its line in
 * files.jsonl.
 */
#include "base/fail.h"
#include "record/stream.h"
#include "base/clock.h"
#include "base/memory.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void sonde__record_stream_init(sonde__record_stream *stream,
                               sonde__record_backend *backend, const char *folder,
                               sonde__record_file_kind kind)
{
    *stream = (sonde__record_stream){.backend = backend, .kind = kind};
    (void)snprintf(stream->folder, sizeof stream->folder, "%s", folder);
}

void sonde__record_stream_init_lines(sonde__record_stream *stream,
                                     sonde__record_backend *backend, const char *folder,
                                     const char *name)
{
    sonde__record_stream_init(stream, backend, folder, SONDE__FILE_OTHER);
    stream->name = name;
}

void sonde__record_stream_fini(sonde__record_stream *stream)
{
    sonde__record_stream_abandon(stream);
    sonde_text_fini(&stream->waiting);
}

bool sonde__record_stream_add(sonde__record_stream *stream, const void *item, size_t size)
{
    sonde_text_put(&stream->waiting, item, size);
    if (stream->waiting.failed) {
        stream->waiting.failed = false;
        return false;
    }
    return true;
}

static const char *file_name(const sonde__record_stream *stream, bool part, char *path,
                             size_t size)
{
    char name[SONDE__FILE_NAME];

    if (stream->kind != SONDE__FILE_OTHER) {
        sonde__record_file_name(name, stream->kind, stream->number, part);
    }
    (void)snprintf(path, size, "%s/%s", stream->folder,
                   stream->kind != SONDE__FILE_OTHER ? name : stream->name);
    return path;
}

static int open_file(sonde__record_stream *stream)
{
    const sonde__record_backend_ops *ops = stream->backend->ops;
    char path[SONDE__FILE_NAME * 2], head[SONDE__MOST_HEAD];
    const size_t size = sonde__record_file_head(stream->kind, 0, head);

    (void)file_name(stream, true, path, sizeof path);
    SONDE__TRY_ERRNO(sonde__record_claim(stream->backend, path, &stream->file));
    stream->file->small = stream->kind == SONDE__FILE_OTHER;
    int failed = ops->append(stream->file, head, size);
    if (failed == 0) {
        failed = ops->settle(stream->file);
    }
    if (failed != 0) {
        goto error;
    }
    stream->end = size;
    stream->items = 0;
    stream->longer = false;
    stream->opened = sonde__now();
    return 0;

error:
    (void)ops->remove(stream->backend, path);
    sonde__record_stream_abandon(stream);
    return failed;
}

/* The length of the item at the start of n bytes; 0 if it is not whole. */
static size_t item_length(const sonde__record_stream *stream, const char *item, size_t n)
{
    const char *newline = NULL;
    uint32_t length = 0;

    switch (stream->kind) {
    case SONDE__FILE_STATS:
        return n >= SONDE__STATS_ROW ? SONDE__STATS_ROW : 0;
    case SONDE__FILE_STEPS:
        return n >= SONDE__STEPS_ROW ? SONDE__STEPS_ROW : 0;
    case SONDE__FILE_SKETCH:
        if (n >= sizeof length) {
            memcpy(&length, item, sizeof length);
        }
        return length <= n ? length : 0;
    case SONDE__FILE_SEGMENT:
    case SONDE__FILE_INDEX:
    case SONDE__FILE_OTHER:
    default:
        newline = n > 0 ? memchr(item, '\n', n) : NULL;
        return newline != NULL ? (size_t)(newline - item) + 1 : 0;
    }
}

/* Bytes of the whole items within n bytes; *items is their number. */
static size_t whole(const sonde__record_stream *stream, size_t n, uint64_t *items)
{
    size_t end = 0, next = 0;

    *items = 0;
    while ((next = item_length(stream, stream->waiting.data + end, n - end)) > 0) {
        end += next;
        (*items)++;
    }
    return end;
}

/* A file without half an item at its end. */
static int trim(sonde__record_stream *stream)
{
    return stream->longer ? sonde__record_trim(stream->file, stream->end, &stream->longer)
                          : 0;
}

int sonde__record_stream_commit(sonde__record_stream *stream, uint64_t *gained)
{
    const sonde__record_backend_ops *ops = stream->backend->ops;
    sonde_text *waiting = &stream->waiting;

    *gained = 0;
    if (waiting->length == 0) {
        return 0;
    }
    SONDE__TRY_ERRNO(stream->file == NULL ? open_file(stream) : trim(stream));
    int failed = ops->append(stream->file, waiting->data, waiting->length);
    if (failed == 0) {
        failed = ops->settle(stream->file);
    }
    const size_t got = whole(stream, (size_t)(stream->file->end - stream->end), gained);
    memmove(waiting->data, waiting->data + got, waiting->length - got);
    waiting->length -= got;
    stream->end += got;
    stream->items += *gained;
    if (failed != 0) {
        (void)sonde__record_trim(stream->file, stream->end, &stream->longer);
    }
    return failed;
}

uint64_t sonde__record_stream_drop(sonde__record_stream *stream)
{
    uint64_t items = 0;

    if (stream->waiting.length > 0) {
        (void)whole(stream, stream->waiting.length, &items);
        stream->waiting.length = 0;
    }
    return items;
}

int sonde__record_stream_close(sonde__record_stream *stream, sonde__record_listed *line)
{
    const sonde__record_backend_ops *ops = stream->backend->ops;
    char part_path[SONDE__FILE_NAME * 2], path[SONDE__FILE_NAME * 2],
        head[SONDE__MOST_HEAD];
    const size_t size = sonde__record_file_head(stream->kind, stream->items, head);

    if (stream->file == NULL) {
        return 0;
    }
    int failed = trim(stream);
    if (failed == 0) {
        failed = ops->write_at(stream->file, 0, head, size);
    }
    if (failed != 0) {
        return failed;
    }
    SONDE__TRY_ERRNO(ops->sync(stream->file));
    SONDE__TRY_ERRNO(
        sonde__record_measure(stream->file, stream->kind, stream->number, line));
    SONDE__TRY_ERRNO(ops->publish(stream->file,
                                  file_name(stream, true, part_path, sizeof part_path),
                                  file_name(stream, false, path, sizeof path)));
    sonde__record_stream_abandon(stream);
    stream->number++;
    return 0;
}

void sonde__record_stream_abandon(sonde__record_stream *stream)
{
    if (stream->file != NULL) {
        stream->file->ops->close(stream->file);
        stream->file = NULL;
    }
}

/* --- measure ----------------------------------------------------------------------- */

enum { PIECE = 256 * 1024 };

static int read_piece(void *user, uint64_t offset, void *bytes, size_t size, size_t *got)
{
    sonde__record_file *const file = user;

    return file->ops->read_at(file, offset, bytes, size, got);
}

static int measure_head(sonde__record_file *file, uint64_t *head)
{
    uint64_t length = 0;
    size_t got = 0;
    const int failed = file->ops->read_at(file, 0, &length, sizeof length, &got);

    *head = failed == 0 && got == sizeof length && length <= file->end - sizeof length
                ? sizeof length + length
                : 0;
    return failed;
}

int sonde__record_measure(sonde__record_file *file, sonde__record_file_kind kind,
                          uint64_t number, sonde__record_listed *line)
{
    void *const piece = sonde__malloc(PIECE);
    int failed = piece == NULL ? ENOMEM : 0;

    if (kind != SONDE__FILE_OTHER) {
        sonde__record_file_name(line->name, kind, number, false);
    }
    line->size = line->covered = file->end;
    if (failed == 0 && kind == SONDE__FILE_SEGMENT) {
        failed = measure_head(file, &line->covered);
    }
    if (failed == 0) {
        failed = sonde__record_listed_hash(read_piece, file, line->covered, piece, PIECE,
                                           &line->hash);
    }
    sonde__free(piece);
    return failed;
}

/* --- file list --------------------------------------------------------------------- */

void sonde__record_file_list_init(sonde__record_file_list *list,
                                  sonde__record_backend *backend, const char *folder)
{
    *list = (sonde__record_file_list){0};
    sonde__record_stream_init_lines(&list->lines, backend, folder, SONDE__FILES_FILE);
}

void sonde__record_file_list_fini(sonde__record_file_list *list)
{
    sonde__record_stream_fini(&list->lines);
}

/* --- one file ----------------------------------------------------------------------- */

bool sonde__record_file_list_reserve(sonde__record_file_list *list, size_t lines)
{
    sonde_text *const text = &list->lines.waiting;

    return sonde_text_reserve(text, text->length + lines * SONDE__LISTED_ROOM) ==
           SONDE_OK;
}

void sonde__record_file_list_put(sonde__record_file_list *list,
                                 const sonde__record_listed *line)
{
    char text[SONDE__LISTED_ROOM];
    uint64_t number = 0;
    bool part = false;
    const sonde__record_file_kind kind =
        sonde__record_file_parse(line->name, &number, &part);

    (void)sonde__record_stream_add(&list->lines, text,
                                   sonde__record_listed_print(line, text));
    if (kind != SONDE__FILE_OTHER) {
        list->next[kind] = number + 1;
    }
}

/* Adds the line of a file; none if it is not there, or not numbered and no longer than
 * *size, its bytes. A numbered one may be empty: the index of a segment whose values were
 * lost. */
static int add_file(sonde__record_file_list *list, const char *name,
                    sonde__record_file_kind kind, uint64_t number, uint64_t *size)
{
    sonde__record_backend *const backend = list->lines.backend;
    char path[SONDE__FILE_NAME * 2];
    sonde__record_listed line = {0};
    sonde__record_file *file = NULL;

    if (!sonde__record_file_list_reserve(list, 1)) {
        return ENOMEM;
    }
    (void)snprintf(path, sizeof path, "%s/%s", list->lines.folder, name);
    (void)snprintf(line.name, sizeof line.name, "%s", name);
    int failed = backend->ops->open(backend, path, &file);
    if (failed != 0) {
        return failed == ENOENT ? 0 : failed;
    }
    const bool wanted = kind != SONDE__FILE_OTHER || file->end > *size;
    failed = wanted ? sonde__record_measure(file, kind, number, &line) : 0;
    backend->ops->close(file);
    if (failed != 0 || !wanted) {
        return failed;
    }
    sonde__record_file_list_put(list, &line);
    *size = line.size;
    return 0;
}

/* --- all of them -------------------------------------------------------------------- */

int sonde__record_file_list_commit(sonde__record_file_list *list)
{
    uint64_t gained = 0;
    const int failed = sonde__record_stream_commit(&list->lines, &gained);

    list->count += gained;
    return failed;
}

int sonde__record_file_list_add(sonde__record_file_list *list,
                                sonde__record_file_kind kind, uint64_t end)
{
    for (; list->next[kind] < end; list->next[kind]++) {
        const uint64_t number = list->next[kind];
        char name[SONDE__FILE_NAME];
        uint64_t size = 0;

        sonde__record_file_name(name, kind, number, false);
        SONDE__TRY_ERRNO(add_file(list, name, kind, number, &size));
        list->next[kind] = number; /* it may have no line */
    }
    return 0;
}

int sonde__record_file_list_end(sonde__record_file_list *list)
{
    int failed =
        add_file(list, SONDE__CATALOGUE_FILE, SONDE__FILE_OTHER, 0, &list->catalogue);

    if (failed == 0) {
        failed = add_file(list, SONDE__GENERATIONS_FILE, SONDE__FILE_OTHER, 0,
                          &list->generations);
    }
    if (failed == 0) {
        failed = sonde__record_file_list_commit(list);
    }
    if (failed == 0 && list->lines.file != NULL) {
        failed = list->lines.file->ops->sync(list->lines.file);
    }
    return failed;
}

/* --- a resumed run ------------------------------------------------------------------ */

static void take_line(sonde__record_file_list *list, const char *text, size_t length)
{
    sonde__record_listed line;
    uint64_t number = 0;
    bool part = false;
    sonde__record_file_kind kind = SONDE__FILE_OTHER;

    list->count++;
    if (!sonde__record_listed_parse(text, length, &line)) {
        return; /* readers report it */
    }
    kind = sonde__record_file_parse(line.name, &number, &part);
    if (kind != SONDE__FILE_OTHER) {
        list->next[kind] = number + 1;
    } else if (strcmp(line.name, SONDE__CATALOGUE_FILE) == 0) {
        list->catalogue = line.size;
    } else {
        list->generations = line.size;
    }
}

int sonde__record_file_list_restore(sonde__record_file_list *list)
{
    sonde__record_stream *const stream = &list->lines;
    const sonde__record_backend_ops *const ops = stream->backend->ops;
    char path[SONDE__FILE_NAME * 2], *text = NULL, *next = NULL, *newline = NULL;
    size_t size = 0;

    (void)snprintf(path, sizeof path, "%s/%s", stream->folder, stream->name);
    int failed = ops->load(stream->backend, path, &text, &size);
    if (failed != 0) {
        return failed == ENOENT ? 0 : failed;
    }
    for (next = text;
         (newline = memchr(next, '\n', size - (size_t)(next - text))) != NULL;
         next = newline + 1) {
        take_line(list, next, (size_t)(newline - next));
    }
    stream->end = (uint64_t)(next - text);
    sonde__free(text);
    SONDE__TRY_ERRNO(ops->open(stream->backend, path, &stream->file));
    stream->file->small = true;
    return stream->file->end > stream->end ? ops->truncate(stream->file, stream->end) : 0;
}

/* --- repeated attempts (backend.h) --------------------------------------------------- */

enum { MOST_ATTEMPTS = 9 }; /* waits of 1, 2, 4 ... 128 ms in between */

static bool is_transient(int failed)
{
    return failed == EIO || failed == EAGAIN || failed == EINTR || failed == ETIMEDOUT ||
           failed == ESTALE;
}

bool sonde__record_try_again(int *attempts, int failed)
{
    struct timespec wait = {0};

    if (!is_transient(failed) || ++*attempts >= MOST_ATTEMPTS) {
        return false;
    }
    wait.tv_nsec = 1000000L << (*attempts - 1);
    (void)nanosleep(&wait, NULL);
    return true;
}

int sonde__record_trim(sonde__record_file *file, uint64_t end, bool *longer)
{
    const int failed = file->ops->truncate(file, end);

    file->end = end;
    *longer = failed != 0;
    return failed;
}

int sonde__record_claim(sonde__record_backend *backend, const char *name,
                        sonde__record_file **out)
{
    sonde__record_file *file = NULL;
    int failed = backend->ops->create(backend, name, &file);

    if (failed != EEXIST) {
        *out = failed == 0 ? file : NULL;
        return failed;
    }
    SONDE__TRY_ERRNO(backend->ops->open(backend, name, &file));
    failed = backend->ops->truncate(file, 0);
    if (failed != 0) {
        backend->ops->close(file);
        return failed;
    }
    *out = file;
    return 0;
}
