/*
 * kept.c - findings that a run holds from earlier judging.
 */
#include "cli/kept.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct ids {
    uint64_t *items;
    size_t count, capacity;
} ids;

static bool has(const ids *of, uint64_t id)
{
    for (size_t i = 0; i < of->count; i++) {
        if (of->items[i] == id) {
            return true;
        }
    }
    return false;
}

/* Each once. */
static bool add(ids *to, uint64_t id)
{
    if (has(to, id)) {
        return true;
    }
    if (to->count == to->capacity) {
        const size_t capacity = to->capacity > 0 ? 2 * to->capacity : 64;
        uint64_t *grown = realloc(to->items, capacity * sizeof *grown);

        if (grown == NULL) {
            return false;
        }
        to->items = grown;
        to->capacity = capacity;
    }
    to->items[to->count++] = id;
    return true;
}

/* The ids at the beginnings of the lines of a file, if there is one. */
static bool read_file(const char *path, ids *to)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t size = 0;
    uint64_t id = 0;
    bool good = true;

    if (file == NULL) {
        return true;
    }
    while (good && getline(&line, &size, file) > 0) {
        if (sscanf(line, "{\"id\":\"%16" SCNx64 "\"", &id) == 1) {
            good = add(to, id);
        }
    }
    free(line);
    (void)fclose(file);
    return good;
}

size_t cli_kept_findings(const char *run, sonde_rules *rules)
{
    size_t count = 0, more = 0;
    const sonde_finding *found = sonde_rules_findings(rules, &count);
    ids now = {0}, kept = {0};
    bool good = true;

    for (size_t i = 0; i < count && good; i++) {
        good = add(&now, found[i].id);
    }
    for (size_t i = 0; i < sonde_rules_count(rules) && good; i++) {
        sonde_rule_account account;
        char path[4096];

        sonde_rules_account(rules, i, &account);
        (void)snprintf(path, sizeof path, "%s/findings/%s.jsonl", run,
                       account.rule->name);
        good = read_file(path, &kept);
    }
    for (size_t i = 0; i < kept.count && good; i++) {
        more += !has(&now, kept.items[i]);
    }
    free(now.items);
    free(kept.items);
    return more;
}
