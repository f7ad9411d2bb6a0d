/*
 * finding_file.c - see finding_file.h.
 */
#include "rules/finding_file.h"

#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/table.h"
#include "base/whole_file.h"
#include "format/format.h"
#include "storage/store.h"

#include <sonde/json.h>
#include <sonde/text.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LINE_ROOM = 8192,
    NUMBER_ROOM = 32,
    MOST = 1 << 26 /* bytes read of a file */,
    PATH_ROOM = 4096
};

/* What lines say of a finding: the highest severity, and of the lines with that one the
 * most steps and whether it is resolved. */
typedef struct said {
    uint64_t id, steps;
    uint8_t severity;
    bool resolved;
} said;

struct sonde__rule_file_memory {
    char *rule;
    dev_t device;
    ino_t inode;
    off_t read;    /* up to here, the end of a line */
    uint64_t last; /* number of the last line before */
    sonde__table ids;
    said *findings;
    size_t count, capacity;
};

static void forget(sonde__rule_file_memory *file)
{
    char *const rule = file->rule;

    sonde__table_fini(&file->ids);
    sonde__free(file->findings);
    *file = (sonde__rule_file_memory){.rule = rule};
}

void sonde__rule_finding_files_fini(sonde__rule_finding_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        forget(&files->files[i]);
        sonde__free(files->files[i].rule);
    }
    sonde__free(files->files);
    *files = (sonde__rule_finding_files){0};
}

size_t sonde__rule_finding_room(void)
{
    return LINE_ROOM - NUMBER_ROOM - SONDE__SEAL;
}

/* The memory of a rule's file; NULL if memory runs out. */
static sonde__rule_file_memory *find_file(sonde__rule_finding_files *files,
                                          const char *rule)
{
    for (size_t i = 0; i < files->count; i++) {
        if (strcmp(files->files[i].rule, rule) == 0) {
            return &files->files[i];
        }
    }
    char *name = sonde__strdup(rule);
    if (name == NULL || !sonde__reserve(&files->files, &files->capacity, files->count + 1,
                                        sizeof *files->files)) {
        sonde__free(name);
        return NULL;
    }
    files->files[files->count] = (sonde__rule_file_memory){.rule = name};
    return &files->files[files->count++];
}

/* --- what a file holds --------------------------------------------------------------- */

/* What follows a key in a line; NULL: the line does not have it. */
static const char *after_key(const char *line, size_t size, const char *key)
{
    const char *place = memmem(line, size, key, strlen(key));

    return place != NULL ? place + strlen(key) : NULL;
}

static bool has_id(const void *array, uint32_t index, const void *key)
{
    return ((const said *)array)[index].id == *(const uint64_t *)key;
}

/* Reads what a line says; false: it is not about a finding. */
static bool parse(const char *line, size_t size, said *out)
{
    static const char begin[] = "{\"id\":\"";
    const size_t head = sizeof begin - 1;
    const char *steps = after_key(line, size, ",\"steps\":");
    const char *severity = after_key(line, size, "\"severity\":\"");
    char id[17];

    if (size < head + sizeof id || memcmp(line, begin, head) != 0 || steps == NULL ||
        severity == NULL) {
        return false;
    }
    memcpy(id, line + head, sizeof id - 1);
    id[sizeof id - 1] = '\0';
    *out = (said){.id = strtoull(id, NULL, 16),
                  .steps = strtoull(steps, NULL, 10),
                  .resolved = after_key(line, size, "\"resolved_step\":") != NULL};
    out->severity = (uint8_t)(*severity == 'n'   ? SONDE_SEVERITY_NOTE
                              : *severity == 'w' ? SONDE_SEVERITY_WARNING
                                                 : SONDE_SEVERITY_ERROR);
    return true;
}

/* Takes up a line; false if memory runs out. */
static bool remember(sonde__rule_file_memory *file, const char *line, size_t size)
{
    said new;

    if (!parse(line, size, &new)) {
        return true;
    }
    if (!sonde__reserve(&file->findings, &file->capacity, file->count + 1,
                        sizeof *file->findings) ||
        !sonde__table_reserve(&file->ids)) {
        return false;
    }
    const uint32_t place =
        sonde__table_find(&file->ids, new.id, has_id, file->findings, &new.id);
    if (place == SONDE__TABLE_NONE) {
        sonde__table_add(&file->ids, new.id, (uint32_t)file->count);
        file->findings[file->count++] = new;
    } else {
        said *known = &file->findings[place];

        if (new.severity > known->severity ||
            (new.severity == known->severity &&new.steps >= known->steps &&new.resolved >=
                                 known->resolved)) {
            *known = new;
        }
    }
    return true;
}

/* Whether the lines say as much of the finding or more: a higher severity, or the same with
 * at least as many steps, and that it is resolved if it is. */
static bool is_among(const sonde__rule_file_memory *file, const sonde_finding *finding)
{
    const uint32_t place =
        sonde__table_find(&file->ids, finding->id, has_id, file->findings, &finding->id);
    const said *known = place != SONDE__TABLE_NONE ? &file->findings[place] : NULL;

    return known != NULL &&
           (known->severity > finding->severity ||
            (known->severity == finding->severity && known->steps >= finding->steps &&
             (finding->resolved_step == 0 || known->resolved)));
}

/* What a file of findings holds. */
typedef struct written {
    bool among;    /* the finding, and as much of it */
    bool torn;     /* its last line has no end */
    uint64_t last; /* number of the last line; UINT64_MAX: it cannot be read */
} written;

/* Takes up bytes of the file: whole lines, and the number of one that has no end, in
 * *torn; 0: there is none. Lines have numbers, but for those of other programs. */
static bool take_up(sonde__rule_file_memory *file, const char *bytes, size_t size,
                    uint64_t *torn)
{
    const char *const end = bytes + size;

    *torn = 0;
    for (const char *next = bytes; next < end;) {
        const char *const newline = memchr(next, '\n', (size_t)(end - next));
        const size_t length = (size_t)((newline != NULL ? newline : end) - next);
        const uint64_t number = sonde__record_line_number(next, length);
        const uint64_t last = number > 0 ? number : file->last + 1;

        if (newline == NULL) {
            *torn = last;
            return true;
        }
        if (!remember(file, next, length)) {
            return false;
        }
        file->last = last;
        file->read += (off_t)length + 1;
        next = newline + 1;
    }
    return true;
}

/* Reads what was appended to the file. */
static written look_through(sonde__rule_file_memory *file, int fd,
                            const sonde_finding *finding)
{
    struct stat status;
    written found = {.last = UINT64_MAX};
    char *content = NULL;
    uint64_t torn = 0;

    if (fstat(fd, &status) != 0) {
        return found;
    }
    if (status.st_dev != file->device || status.st_ino != file->inode ||
        status.st_size < file->read) {
        forget(file);
        file->device = status.st_dev;
        file->inode = status.st_ino;
        file->read = SONDE_MAX(status.st_size - MOST, (off_t)0);
    }
    const size_t size = (size_t)SONDE_MIN(status.st_size - file->read, (off_t)MOST);

    if (size > 0) {
        content = sonde__malloc(size);
        if (content == NULL || pread(fd, content, size, file->read) != (ssize_t)size ||
            !take_up(file, content, size, &torn)) {
            sonde__free(content);
            forget(file); /* the lines that it holds are not known */
            return found;
        }
        sonde__free(content);
    }
    found.among = is_among(file, finding);
    found.torn = torn > 0;
    found.last = found.torn ? torn : file->last;
    return found;
}

/* --- how many lines the files have ----------------------------------------------------- */

/*
 * RUN/findings.json, so that `sonde verify` sees last lines, and files, that are missing.
 *
 *     {"lines":{"NonFinite":5,"LossSpike":2},"check":"01234567"}
 *
 * The number of a line is written after the line: a process that dies in between leaves a
 * number that is too small, and a reader that reads the numbers first finds the lines.
 * The file is replaced as a whole, under a lock of the folder of findings.
 */

/* The whole file; NULL if there is none, it is damaged, or memory ran out. */
static json_t *load_numbers(const char *folder, bool *no_memory)
{
    char path[PATH_ROOM];

    (void)snprintf(path, sizeof path, "%s.json", folder);
    return sonde__json_read_file(path, no_memory);
}

static uint64_t number_of(const json_t *numbers, const char *rule)
{
    const json_int_t number = json_integer_value(json_object_get(numbers, rule));

    return number > 0 ? (uint64_t)number : 0;
}

/* The number of the last line of a rule's file; 0: there is none. folder: RUN/findings. */
static uint64_t get_last(const char *folder, const char *rule)
{
    bool no_memory = false;
    json_t *const object = load_numbers(folder, &no_memory);
    const uint64_t number = number_of(json_object_get(object, "lines"), rule);

    json_decref(object);
    return number;
}

/* The file with a new number of one rule. */
static void print_numbers(sonde_text *text, json_t *numbers, const char *rule,
                          uint64_t number)
{
    sonde_json json = {.text = text};
    const char *name = NULL;
    json_t *other = NULL;

    sonde_json_object(&json, NULL);
    sonde_json_object(&json, "lines");
    json_object_foreach(numbers, name, other)
    {
        if (strcmp(name, rule) != 0 && json_integer_value(other) > 0) {
            sonde_json_uint(&json, name, (uint64_t)json_integer_value(other));
        }
    }
    sonde_json_uint(&json, rule, number);
    sonde_json_end(&json);
    sonde_json_end(&json);
    sonde_text_add(text, "\n");
    if (sonde_text_reserve(text, text->length + SONDE__SEAL) == SONDE_OK &&
        !text->failed) {
        text->length = sonde__record_seal(text->data, text->length);
    }
}

/* Without a sync: a finding is written in the thread that trains. */
static void replace_numbers(const char *folder, const sonde_text *text)
{
    char path[PATH_ROOM], other[PATH_ROOM + 32];

    (void)snprintf(path, sizeof path, "%s.json", folder);
    (void)snprintf(other, sizeof other, "%s.%ld.tmp", path, (long)getpid());
    const int fd = open(other, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return;
    }
    bool done = sonde__write_all(fd, text->data, text->length);
    done = close(fd) == 0 && done;
    if (!done || rename(other, path) != 0) {
        (void)unlink(other);
    }
}

/* A failure is not reported: the number is too small until the next line. */
static void set_last(const char *folder, const char *rule, uint64_t number)
{
    const int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool no_memory = false;
    sonde_text text = {0};

    if (lock >= 0) {
        (void)flock(lock, LOCK_EX); /* where there are locks */
    }
    json_t *object = load_numbers(folder, &no_memory);
    print_numbers(&text, json_object_get(object, "lines"), rule, number);
    json_decref(object);
    if (!text.failed && !no_memory) { /* else the numbers of other rules would go */
        replace_numbers(folder, &text);
    }
    sonde_text_fini(&text);
    if (lock >= 0) {
        (void)close(lock);
    }
}

/* --- appending ----------------------------------------------------------------------- */

/* Appends bytes, or none: on a full disk a write may be short. */
static bool write_whole(int file, const char *text, size_t length)
{
    const ssize_t done = write(file, text, length);
    const int failed = done < 0 ? errno : ENOSPC;
    struct stat status;

    if (done == (ssize_t)length) {
        return true;
    }
    if (done > 0 && fstat(file, &status) == 0 && status.st_size >= done) {
        (void)!ftruncate(file, status.st_size - done);
    }
    errno = failed;
    return false;
}

/* Appends a line, which ends in a brace, with its number and checksum. */
static bool add_line(int file, const char *line, size_t length, const written *found)
{
    char text[LINE_ROOM], number[NUMBER_ROOM] = "";

    if (found->last < UINT64_MAX) {
        (void)snprintf(number, sizeof number, ",\"n\":%" PRIu64, found->last + 1);
    }
    const int n = snprintf(text, sizeof text, "%s%.*s%s}\n", found->torn ? "\n" : "",
                           (int)length - 1, line, number);
    length =
        sonde__record_seal(text + found->torn, (size_t)n - found->torn) + found->torn;
    return write_whole(file, text, length);
}

/* To the store, if the run is in one: the lines before their number. */
static bool send_both(const char *folder, const char *path)
{
    char numbers[PATH_ROOM];

    (void)snprintf(numbers, sizeof numbers, "%s.json", folder);
    return sonde__store_send(path, NULL) == SONDE_OK &&
           (access(numbers, F_OK) != 0 || sonde__store_send(numbers, NULL) == SONDE_OK);
}

bool sonde__rule_finding_append(sonde__rule_finding_files *files, const char *folder,
                                const sonde_finding *finding, const char *text,
                                size_t length)
{
    sonde__rule_file_memory *file = find_file(files, finding->rule);
    written found = {.last = UINT64_MAX};
    char path[PATH_ROOM];

    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        return false;
    }
    if ((size_t)snprintf(path, sizeof path, "%s/%s.jsonl", folder, finding->rule) >=
        sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    const int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        return false;
    }
    (void)flock(fd, LOCK_EX); /* where there are locks */
    if (file != NULL) {
        found = look_through(file, fd, finding);
    }
    if (!found.among && found.last < UINT64_MAX) { /* last lines may be missing */
        found.last = SONDE_MAX(found.last, get_last(folder, finding->rule));
    }
    const bool done = found.among || add_line(fd, text, length, &found);
    if (done && !found.among && found.last < UINT64_MAX) {
        set_last(folder, finding->rule, found.last + 1);
    }
    if (close(fd) != 0 || !done) {
        return false;
    }
    errno = EIO;
    return send_both(folder, path);
}
