/*
 * file_list.c - see file_list.h.
 */
#include "record/file_list.h"

#include "base/memory.h"
#include "record/measure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
        int failed = 0;

        sonde__record_file_name(name, kind, number, false);
        failed = add_file(list, name, kind, number, &size);
        if (failed != 0) {
            return failed;
        }
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
    failed = ops->open(stream->backend, path, &stream->file);
    if (failed != 0) {
        return failed;
    }
    stream->file->small = true;
    return stream->file->end > stream->end ? ops->truncate(stream->file, stream->end) : 0;
}
