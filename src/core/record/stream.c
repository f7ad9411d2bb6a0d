/*
 * stream.c - files of a head and items.
 */
#include "record/stream.h"

#include "base/clock.h"
#include "record/measure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

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
    int failed = sonde__record_claim(stream->backend, path, &stream->file);
    if (failed != 0) {
        return failed;
    }
    stream->file->small = stream->kind == SONDE__FILE_OTHER;
    failed = ops->append(stream->file, head, size);
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
    int failed = stream->file == NULL ? open_file(stream) : trim(stream);
    if (failed != 0) {
        return failed;
    }
    failed = ops->append(stream->file, waiting->data, waiting->length);
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
    failed = ops->sync(stream->file);
    if (failed != 0) {
        return failed;
    }
    failed = sonde__record_measure(stream->file, stream->kind, stream->number, line);
    if (failed != 0) {
        return failed;
    }
    failed =
        ops->publish(stream->file, file_name(stream, true, part_path, sizeof part_path),
                     file_name(stream, false, path, sizeof path));
    if (failed != 0) {
        return failed;
    }
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
