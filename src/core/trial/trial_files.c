/*
 * trial_files.c - see trial_files.h.
 */
#include "trial/trial_files.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "storage/store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <stdarg.h>
#include <sys/mman.h>

#if defined(SONDE_STRESS) && SONDE_STRESS
enum { PIECE = 23 };
#else
enum { PIECE = 1 << 20 };
#endif
enum { MOST_SMALL = 1 << 26 };

const char *sonde__trial_path(const char *folder, const char *name, char *path)
{
    (void)snprintf(path, SONDE__PATH, "%s/%s", folder, name);
    return path;
}

sonde_err sonde__trial_read_at(int fd, void *bytes, size_t most, uint64_t offset,
                               size_t *count, const char *path, sonde_diag *diag)
{
    size_t got = 0;

    while (got < most) {
        const ssize_t n =
            pread(fd, (unsigned char *)bytes + got, most - got, (off_t)(offset + got));

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return sonde__fail_errno(diag, path, "cannot be read");
        }
        if (n == 0) {
            break;
        }
        got += (size_t)n;
    }
    *count = got;
    return SONDE_OK;
}

bool sonde__trial_scratch_reserve(sonde__trial_scratch *scratch, size_t size)
{
    if (size <= scratch->capacity) {
        return true;
    }
    sonde__free(scratch->bytes);
    scratch->capacity = 0;
    scratch->bytes = sonde__malloc_aligned(SONDE__ALIGN, size);
    if (scratch->bytes == NULL) {
        return false;
    }
    scratch->capacity = size;
    return true;
}

static sonde_err open_regular(const char *path, int *out, uint64_t *size,
                              sonde_diag *diag)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return sonde__fail_errno(diag, path, "cannot be opened");
    }
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        (void)close(fd);
        return sonde__fail(diag, SONDE_EFORMAT, path, "a regular file",
                           "a file of another kind");
    }
    *out = fd;
    *size = (uint64_t)about.st_size;
    return SONDE_OK;
}

sonde_err sonde__trial_read_small(sonde__trial_scratch *buffer, const char *path,
                                  size_t *size, sonde_diag *diag)
{
    uint64_t length = 0;
    int fd = -1;
    SONDE__TRY(open_regular(path, &fd, &length, diag));
    sonde_err err = SONDE_OK;
    if (length > MOST_SMALL) {
        err = sonde__fail(diag, SONDE_EFORMAT, path, "at most 64 MiB",
                          "a file of %llu bytes", (unsigned long long)length);
    } else if (!sonde__trial_scratch_reserve(buffer, (size_t)length + 1)) {
        err = sonde__fail_nomem(diag, path);
    } else {
        err =
            sonde__trial_read_at(fd, buffer->bytes, (size_t)length, 0, size, path, diag);
    }
    (void)close(fd);
    if (err != SONDE_OK) {
        return err;
    }
    buffer->bytes[*size] = '\0';
    return SONDE_OK;
}

/* --- lines ------------------------------------------------------------------------ */

/* Bytes of a file that were read and not yet passed on as lines. */
typedef struct line_reader {
    sonde__trial_damage_list *damage;
    sonde__trial_progress *progress;
    const char *where;
    sonde__trial_line_fn *line;
    void *user;
    char *bytes;
    size_t capacity, held;
    uint64_t skipped; /* bytes of a line that is too long */
} line_reader;

static sonde_err give_line(line_reader *reader, char *text, size_t length)
{
    sonde__trial_progress *progress = reader->progress;
    sonde_err err = SONDE_OK;

    progress->line++;
    if (reader->skipped + length + 1 > SONDE__MOST_LINE) {
        sonde__trial_damage_in(reader->damage, &progress->bad, reader->where,
                               "line %llu is longer than 64 KiB",
                               (unsigned long long)progress->line);
    } else {
        text[length] = '\0';
        err = reader->line(reader->user, text, length);
    }
    if (err != SONDE_OK) {
        progress->line--;
        return err;
    }
    progress->offset += reader->skipped + length + 1;
    reader->skipped = 0;
    return SONDE_OK;
}

/* Passes on the complete lines held. */
static sonde_err give_lines(line_reader *reader)
{
    size_t offset = 0;
    sonde_err err = SONDE_OK;

    while (offset < reader->held) {
        char *const text = reader->bytes + offset;
        const char *const end = memchr(text, '\n', reader->held - offset);

        if (end == NULL) {
            break;
        }
        err = give_line(reader, text, (size_t)(end - text));
        offset += (size_t)(end - text) + 1;
        if (err != SONDE_OK) {
            break;
        }
    }
    reader->held -= offset;
    memmove(reader->bytes, reader->bytes + offset, reader->held);
    return err;
}

static sonde_err read_pieces(line_reader *reader, int fd, const char *path,
                             sonde_diag *diag)
{
    for (;;) {
        const size_t room = SONDE_MIN(reader->capacity - reader->held, (size_t)PIECE);
        const uint64_t offset = reader->progress->offset + reader->skipped + reader->held;
        size_t count = 0;

        if (room == 0 && reader->capacity <= SONDE__MOST_LINE) {
            return SONDE_OK; /* it grew meanwhile: next time */
        }
        if (room == 0) {
            reader->skipped += reader->held;
            reader->held = 0;
            continue;
        }
        sonde_err err = sonde__trial_read_at(fd, reader->bytes + reader->held, room,
                                             offset, &count, path, diag);
        reader->progress->pieces++;
        if (err != SONDE_OK || count == 0) {
            return err;
        }
        reader->held += count;
        SONDE__TRY(give_lines(reader));
    }
}

/* Whether there are new bytes. */
static bool has_grown(sonde__trial_damage_list *damage, sonde__trial_progress *progress,
                      const char *where, uint64_t size)
{
    if (size < progress->offset) {
        sonde__trial_damage(damage, where, "%llu bytes long, where %llu had been read",
                            (unsigned long long)size,
                            (unsigned long long)progress->offset);
        progress->offset = progress->size = size;
        return false;
    }
    return size != progress->size;
}

static sonde_err read_opened(line_reader *reader, int fd, uint64_t size, const char *path,
                             sonde_diag *diag)
{
    sonde__trial_progress *progress = reader->progress;

    reader->capacity = (size_t)SONDE_MIN(size - SONDE_MIN(size, progress->offset) + 1,
                                         (uint64_t)(PIECE + SONDE__MOST_LINE));
    reader->bytes = sonde__malloc(reader->capacity + 1);
    if (reader->bytes == NULL) {
        return sonde__fail_nomem(diag, path);
    }
    sonde_err err = read_pieces(reader, fd, path, diag);
    sonde__free(reader->bytes);
    if (err != SONDE_OK) {
        return err;
    }
    progress->size = progress->offset + reader->skipped + reader->held;
    return SONDE_OK;
}

sonde_err sonde__trial_read_lines(sonde__trial_damage_list *damage,
                                  sonde__trial_progress *progress, const char *path,
                                  const char *where, sonde__trial_line_fn *line,
                                  void *user, bool *found, sonde_diag *diag)
{
    line_reader reader = {.damage = damage,
                          .progress = progress,
                          .where = where,
                          .line = line,
                          .user = user};
    struct stat about;
    sonde_diag why = {0};
    uint64_t size = 0;
    int fd = -1;
    sonde_err err = SONDE_OK;

    *found = stat(path, &about) == 0;
    if (!*found || !has_grown(damage, progress, where, (uint64_t)about.st_size)) {
        return SONDE_OK;
    }
    SONDE__TRY_GO(open_regular(path, &fd, &size, &why));
    err = read_opened(&reader, fd, size, path, &why);
    (void)close(fd);
    sonde__trial_damage_flush(damage, &progress->bad, where);
    if (err != SONDE_OK) {
        goto error;
    }
    return SONDE_OK;

error:
    if (err == SONDE_EBUSY) {
        progress->size = progress->offset;
        return SONDE_OK;
    }
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, path);
    }
    progress->size = (uint64_t)about.st_size; /* noted once, until it changes */
    sonde__trial_damage(damage, where, "%s", why.found);
    return SONDE_OK;
}

/* --- numbered files --------------------------------------------------------------- */

bool sonde__trial_progress_list(sonde__trial_progress *progress, uint64_t number)
{
    if (!sonde__reserve(&progress->listed, &progress->listed_capacity,
                        progress->listed_count + 1, sizeof *progress->listed)) {
        return false;
    }
    progress->listed[progress->listed_count++] = number;
    return true;
}

static int ascending(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

void sonde__trial_progress_sort(sonde__trial_progress *progress)
{
    if (progress->listed_count > 0) {
        qsort(progress->listed, progress->listed_count, sizeof *progress->listed,
              ascending);
    }
}

void sonde__trial_progress_fini(sonde__trial_progress *progress)
{
    sonde__free(progress->listed);
    *progress = (sonde__trial_progress){0};
}

bool sonde__trial_has_file(const char *folder, sonde__record_file_kind kind,
                           uint64_t number)
{
    /* the file may be renamed between two looks */
    for (int i = 0; i < 3; i++) {
        char name[SONDE__FILE_NAME], path[SONDE__PATH];
        struct stat about;

        sonde__record_file_name(name, kind, number, kind != SONDE__FILE_INDEX && i != 1);
        if (stat(sonde__trial_path(folder, name, path), &about) == 0) {
            return true;
        }
    }
    return false;
}

bool sonde__trial_progress_peek(const char *folder, const sonde__trial_progress *progress,
                                sonde__record_file_kind kind, uint64_t *next)
{
    const uint64_t wanted = progress->begun ? progress->number + 1 : 0;

    if (progress->listed_at < progress->listed_count &&
        progress->listed[progress->listed_at] == wanted) {
        *next = wanted;
        return true;
    }
    if (sonde__trial_has_file(folder, kind, wanted)) {
        *next = wanted;
        return true;
    }
    if (progress->listed_at < progress->listed_count) {
        *next = progress->listed[progress->listed_at];
        return true;
    }
    return false;
}

static const char *kind_stem(sonde__record_file_kind kind)
{
    return kind == SONDE__FILE_INDEX   ? "index seg-"
           : kind == SONDE__FILE_STATS ? "stats-"
           : kind == SONDE__FILE_STEPS ? "steps-"
                                       : "sketch-";
}

void sonde__trial_progress_end(sonde__trial_damage_list *damage,
                               sonde__trial_progress *progress, const char *where)
{
    if (progress->begun && !progress->end_reported && progress->size > progress->offset) {
        sonde__trial_torn(damage, where, "the last %llu bytes are torn",
                          (unsigned long long)(progress->size - progress->offset));
        progress->end_reported = true;
    }
}

void sonde__trial_progress_move(sonde__trial_damage_list *damage, const char *worker,
                                sonde__trial_progress *progress,
                                sonde__record_file_kind kind, uint64_t next)
{
    const uint64_t wanted = progress->begun ? progress->number + 1 : 0;
    char name[SONDE__FILE_NAME], where[SONDE__PATH];

    if (progress->begun) {
        sonde__record_file_name(name, kind, progress->number, false);
        sonde__trial_progress_end(damage, progress,
                                  sonde__trial_path(worker, name, where));
    }
    if (next != wanted) {
        sonde__trial_damage(damage, worker, "%s%08llu to %08llu missing", kind_stem(kind),
                            (unsigned long long)wanted, (unsigned long long)(next - 1));
    }
    progress->number = next;
    progress->begun = true;
    progress->offset = progress->line = progress->size = 0;
    progress->bad = 0;
    progress->end_reported = false;
    while (progress->listed_at < progress->listed_count &&
           progress->listed[progress->listed_at] <= next) {
        progress->listed_at++;
    }
}

/* --- damage ------------------------------------------------------------------------ */

enum { MOST_IN_FILE = 5, MOST = 256, TEXT = 512 };

void sonde__trial_damage_fini(sonde__trial_damage_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        sonde__free(list->lines[i]);
    }
    sonde__free(list->lines);
    *list = (sonde__trial_damage_list){0};
}

static void keep(sonde__trial_damage_list *list, const char *text)
{
    char *copy = NULL;

    if (list->report != NULL) {
        list->report(list->user, text);
    }
    if (list->count >= MOST ||
        !sonde__reserve(&list->lines, &list->capacity, list->count + 2,
                        sizeof *list->lines) ||
        (copy = sonde__strdup(text)) == NULL) {
        list->more++;
        return;
    }
    list->lines[list->count++] = copy;
}

__attribute__((format(printf, 3, 0))) static void
note(sonde__trial_damage_list *list, const char *where, const char *found, va_list args)
{
    char text[TEXT];
    const int n = snprintf(text, sizeof text, "%s: ", where);

    if (n >= 0 && (size_t)n < sizeof text) {
        (void)sonde__vsnprintf(text + n, sizeof text - (size_t)n, found, args);
    }
    keep(list, text);
}

void sonde__trial_damage(sonde__trial_damage_list *list, const char *where,
                         const char *found, ...)
{
    va_list args;

    list->damaged++;
    va_start(args, found);
    note(list, where, found, args);
    va_end(args);
}

void sonde__trial_torn(sonde__trial_damage_list *list, const char *where,
                       const char *found, ...)
{
    va_list args;

    list->torn++;
    va_start(args, found);
    note(list, where, found, args);
    va_end(args);
}

bool sonde__trial_damage_has(const sonde__trial_damage_list *list, const char *where)
{
    const size_t length = strlen(where);

    for (size_t i = 0; i < list->count; i++) {
        if (strncmp(list->lines[i], where, length) == 0 &&
            list->lines[i][length] == ':') {
            return true;
        }
    }
    return false;
}

void sonde__trial_damage_in(sonde__trial_damage_list *list, uint32_t *bad,
                            const char *where, const char *found, ...)
{
    va_list args;

    list->damaged++;
    ++*bad;
    if (*bad > MOST_IN_FILE && list->report == NULL) {
        return;
    }
    va_start(args, found);
    note(list, where, found, args);
    va_end(args);
}

void sonde__trial_damage_flush(sonde__trial_damage_list *list, uint32_t *bad,
                               const char *where)
{
    if (*bad > MOST_IN_FILE && list->report == NULL) {
        char text[TEXT];

        (void)snprintf(text, sizeof text, "%s: and %lu more like these", where,
                       (unsigned long)(*bad - MOST_IN_FILE));
        keep(list, text);
    }
    *bad = 0;
}

/* --- mapping ----------------------------------------------------------------------- */

/* A part is mapped with this much room to grow into, so that few mappings pile up. */
#define ROOM ((uint64_t)64 << 20)

sonde__trial_file *sonde__trial_file_numbered(sonde__trial_file_list *list,
                                              uint64_t number)
{
    if (list->count > 0 && list->items[list->count - 1].number == number) {
        return &list->items[list->count - 1];
    }
    if (list->count >= UINT32_MAX - 1 ||
        !sonde__reserve(&list->items, &list->capacity, list->count + 1,
                        sizeof *list->items)) {
        return NULL;
    }
    list->items[list->count] = (sonde__trial_file){.number = number};
    return &list->items[list->count++];
}

static void unmap(sonde__trial_mapping *mapping)
{
    while (mapping != NULL) {
        sonde__trial_mapping *before = mapping->before;

        (void)munmap((void *)(uintptr_t)mapping->base, mapping->size);
        sonde__free(mapping);
        mapping = before;
    }
}

void sonde__trial_file_list_fini(sonde__trial_file_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        unmap(list->items[i].mapping);
        sonde__free(list->items[i].name);
    }
    sonde__free(list->items);
    list->items = NULL;
    list->count = list->capacity = 0;
}

/* The two names take turns: the file may be renamed between two looks. */
int sonde__trial_file_open(const sonde__trial_file_list *list, sonde__trial_file *file,
                           char *path)
{
    for (int i = 0; i < 3; i++) {
        const bool part = !file->closed && i != 1;
        char name[SONDE__FILE_NAME];

        sonde__record_file_name(name, list->kind, file->number, part);
        int fd = open(sonde__trial_path(list->folder, name, path),
                      O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0) {
            file->closed = !part;
            return fd;
        }
        if (errno != ENOENT) {
            return -1;
        }
    }
    return -1;
}

static sonde_err map(sonde__trial_file *file, int fd, const struct stat *about,
                     const char *path, sonde_diag *diag)
{
    const uint64_t size = (uint64_t)about->st_size;
    const uint64_t length = file->closed ? size : size + SONDE_MAX(size, ROOM);

    sonde__trial_mapping *mapping = sonde__malloc(sizeof *mapping);
    if (mapping == NULL) {
        return sonde__fail_nomem(diag, path);
    }
    void *base = mmap(NULL, (size_t)length, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        sonde__free(mapping);
        return sonde__fail_errno(diag, path, "cannot be mapped");
    }
    *mapping = (sonde__trial_mapping){base, (size_t)length, (uint64_t)about->st_ino,
                                      file->mapping};
    file->mapping = mapping;
    return SONDE_OK;
}

/* Whether the mapping suffices, and the file was looked at for this question. */
static bool is_ready(const sonde__trial_file *file, uint64_t question, uint64_t offset,
                     uint64_t count)
{
    return file->question == question && file->mapping != NULL &&
           file->mapping->size >= offset && file->size >= offset &&
           SONDE_MIN(file->size, (uint64_t)file->mapping->size) - offset >= count;
}

/* Brings the bytes in if the file is a copy of one in a store. */
static sonde_err fetch(const sonde__trial_file_list *list, const sonde__trial_file *file,
                       uint64_t offset, uint64_t count, sonde_diag *diag)
{
    char name[SONDE__FILE_NAME], path[SONDE__PATH];

    sonde__record_file_name(name, list->kind, file->number, false);
    return sonde__store_fetch(sonde__trial_path(list->folder, name, path), offset, count,
                              diag);
}

/*
 * Opens the file to see that it is still as long as before: touching a mapping beyond the
 * end of its file kills the process.
 */
sonde_err sonde__trial_file_map(const sonde__trial_file_list *list,
                                sonde__trial_file *file, uint64_t question,
                                uint64_t offset, uint64_t count,
                                const unsigned char **bytes, sonde_diag *diag)
{
    char path[SONDE__PATH];
    struct stat about = {0};
    uint64_t end = 0;
    sonde_err err = SONDE_OK;

    if (sonde__store_has_copies()) {
        SONDE__TRY(fetch(list, file, offset, count, diag));
    }
    if (is_ready(file, question, offset, count)) {
        *bytes = file->mapping->base + offset;
        return SONDE_OK;
    }
    const int fd = sonde__trial_file_open(list, file, path);
    if (fd < 0) {
        return sonde__fail_errno(diag, path, "cannot be opened");
    }
    if (fstat(fd, &about) != 0) {
        err = sonde__fail_errno(diag, path, "cannot be examined");
    } else if (__builtin_add_overflow(offset, count, &end) ||
               end > (uint64_t)about.st_size) {
        err = sonde__fail(diag, SONDE_EFORMAT, path, NULL,
                          "cut off: %lld bytes, where %llu are needed",
                          (long long)about.st_size, (unsigned long long)end);
    } else if (end > 0 && (file->mapping == NULL || file->mapping->size < end ||
                           file->mapping->node != (uint64_t)about.st_ino)) {
        err = map(file, fd, &about, path, diag);
    }
    (void)close(fd);
    if (err != SONDE_OK) {
        return err;
    }
    *bytes = end > 0 ? file->mapping->base + offset : (const unsigned char *)"";
    file->question = question;
    file->size = (uint64_t)about.st_size;
    return SONDE_OK;
}

void sonde__trial_file_ahead(const sonde__trial_file_list *list, sonde__trial_file *file,
                             uint64_t question, uint64_t offset, uint64_t count)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const unsigned char *bytes = NULL;

    if (sonde__trial_file_map(list, file, question, file->head + offset, count, &bytes,
                              NULL) != SONDE_OK) {
        return; /* reading it reports why */
    }
    const uintptr_t begin = (uintptr_t)bytes / page * page;
    (void)madvise((void *)begin, (size_t)((uintptr_t)bytes + count - begin),
                  MADV_WILLNEED);
}
