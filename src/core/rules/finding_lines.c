/*
 * finding_lines.c - see finding_lines.h.
 */
#include "rules/finding_lines.h"
#include "base/json_read.h"
#include "base/whole_file.h"
#include "format/format.h"

#include <sonde/json.h>
#include <sonde/text.h>

#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

/* The whole file; NULL if there is none, it is damaged, or memory ran out. */
static json_t *load(const char *folder, bool *no_memory)
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

uint64_t sonde__rule_lines_get(const char *folder, const char *rule)
{
    bool no_memory = false;
    json_t *const object = load(folder, &no_memory);
    const uint64_t number = number_of(json_object_get(object, "lines"), rule);

    json_decref(object);
    return number;
}

/* The file with a new number of one rule. */
static void print(sonde_text *text, json_t *numbers, const char *rule, uint64_t number)
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
static void replace(const char *folder, const sonde_text *text)
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

void sonde__rule_lines_set(const char *folder, const char *rule, uint64_t number)
{
    const int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool no_memory = false;
    sonde_text text = {0};

    if (lock >= 0) {
        (void)flock(lock, LOCK_EX); /* where there are locks */
    }
    json_t *object = load(folder, &no_memory);
    print(&text, json_object_get(object, "lines"), rule, number);
    json_decref(object);
    if (!text.failed && !no_memory) { /* else the numbers of other rules would go */
        replace(folder, &text);
    }
    sonde_text_fini(&text);
    if (lock >= 0) {
        (void)close(lock);
    }
}
