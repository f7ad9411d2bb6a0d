/*
 * rename.c - names of B as names of A: by a table of pairs, or by an expression.
 */
#include "diff/side.h"
#include "base/fail.h"
#include "base/memory.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { MATCH_LIMIT = 100000, LONGEST_NAME = 4096 };

/* --- the table ---------------------------------------------------------------------- */

typedef struct pair {
    char *a, *b; /* a is in one block with b */
} pair;

typedef struct pairs {
    pair *items;
    size_t count, capacity;
} pairs;

static void free_pairs(pairs *all)
{
    for (size_t i = 0; i < all->count; i++) {
        sonde__free(all->items[i].a);
    }
    sonde__free(all->items);
    *all = (pairs){0};
}

static int by_b(const void *x, const void *y)
{
    return strcmp(((const pair *)x)->b, ((const pair *)y)->b);
}

/* Cuts the next word off a line; NULL: there is none. */
static char *word_of(char **line)
{
    char *at = *line, *word = NULL;

    while (isspace((unsigned char)*at)) {
        at++;
    }
    word = at;
    while (*at != '\0' && !isspace((unsigned char)*at)) {
        at++;
    }
    if (at == word) {
        return NULL;
    }
    *line = *at != '\0' ? at + 1 : at;
    *at = '\0';
    return word;
}

static sonde_err add_line(pairs *all, char *line, const char *where, sonde_diag *diag)
{
    char *const block = sonde__strdup(line);
    char *rest = block, *a = NULL, *b = NULL;

    if (block == NULL || !sonde__reserve(&all->items, &all->capacity, all->count + 1,
                                         sizeof *all->items)) {
        sonde__free(block);
        return sonde__fail_nomem(diag, where);
    }
    a = word_of(&rest);
    if (a == NULL || *a == '#') {
        sonde__free(block);
        return SONDE_OK;
    }
    b = word_of(&rest);
    if (b == NULL || word_of(&rest) != NULL) {
        sonde__free(block);
        return sonde__fail(diag, SONDE_EFORMAT, where, "NAME-IN-A NAME-IN-B", "'%.100s'",
                           line);
    }
    memmove(block, a, strlen(a) + 1); /* free(a) is free(block) */
    all->items[all->count++] = (pair){block, b};
    return SONDE_OK;
}

static sonde_err read_table(pairs *all, const char *path, sonde_diag *diag)
{
    FILE *const file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0, number = 0;
    sonde_err err = SONDE_OK;

    if (file == NULL) {
        return sonde__fail_errno(diag, path, "cannot be opened");
    }
    while (err == SONDE_OK && getline(&line, &room, file) >= 0) {
        char where[4200];

        (void)snprintf(where, sizeof where, "%.4096s:%zu", path, ++number);
        line[strcspn(line, "\r\n")] = '\0';
        err = add_line(all, line, where, diag);
    }
    free(line);
    if (err == SONDE_OK && ferror(file)) {
        err = sonde__fail_errno(diag, path, "cannot be read");
    }
    (void)fclose(file);
    if (err == SONDE_OK && all->count > 0) {
        qsort(all->items, all->count, sizeof *all->items, by_b);
    }
    return err;
}

static const char *look_up(const pairs *all, char *name)
{
    const pair key = {NULL, name};
    const pair *const found =
        all->count == 0 ? NULL : bsearch(&key, all->items, all->count, sizeof key, by_b);

    return found != NULL ? found->a : NULL;
}

/* --- the expression ----------------------------------------------------------------- */

static sonde_err fail_regex(int code, const char *text, sonde_diag *diag)
{
    PCRE2_UCHAR wrong[128] = "";

    (void)pcre2_get_error_message(code, wrong, sizeof wrong);
    return sonde__fail(diag, SONDE_EINVAL, "rename", NULL, "'%.200s': %s", text,
                       (const char *)wrong);
}

/* The name after all replacements. */
static sonde_err substitute(const pcre2_code *code, pcre2_match_context *limits,
                            const sonde_diff_options *options, const char *name,
                            char **known, sonde_diag *diag)
{
    PCRE2_UCHAR out[LONGEST_NAME];
    PCRE2_SIZE length = sizeof out;
    const char *const to = options->to != NULL ? options->to : "";
    const int done =
        pcre2_substitute(code, (PCRE2_SPTR)name, strlen(name), 0,
                         PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_EXTENDED, NULL,
                         limits, (PCRE2_SPTR)to, strlen(to), out, &length);

    if (done < 0) {
        return fail_regex(done, done == PCRE2_ERROR_NOMEMORY ? name : options->rename,
                          diag);
    }
    *known = sonde__strndup((const char *)out, length);
    return *known != NULL ? SONDE_OK : sonde__fail_nomem(diag, "a name");
}

static sonde_err compile(const char *text, pcre2_code **code,
                         pcre2_match_context **limits, sonde_diag *diag)
{
    int wrong = 0;
    PCRE2_SIZE at = 0;

    *code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &wrong, &at,
                          NULL);
    if (*code == NULL) {
        return fail_regex(wrong, text, diag);
    }
    *limits = pcre2_match_context_create(NULL);
    if (*limits == NULL) {
        return sonde__fail_nomem(diag, "rename");
    }
    (void)pcre2_set_match_limit(*limits, MATCH_LIMIT);
    return SONDE_OK;
}

/* --- both --------------------------------------------------------------------------- */

static sonde_err rename_all(sonde__diff_side *side, const sonde_diff_options *options,
                            const pairs *table, const pcre2_code *code,
                            pcre2_match_context *limits, sonde_diag *diag)
{
    for (size_t i = 0; i < side->count; i++) {
        sonde__diff_entry *const entry = &side->entries[i];
        const char *const given = look_up(table, entry->name);

        entry->known = entry->name;
        if (given != NULL) {
            entry->known = sonde__strdup(given);
            if (entry->known == NULL) {
                entry->known = entry->name;
                return sonde__fail_nomem(diag, "a name");
            }
        } else if (code != NULL) {
            SONDE__TRY(
                substitute(code, limits, options, entry->name, &entry->known, diag));
        }
    }
    return SONDE_OK;
}

sonde_err sonde__diff_rename(sonde__diff_side *side, const sonde_diff_options *options,
                             sonde_diag *diag)
{
    pairs table = {0};
    pcre2_code *code = NULL;
    pcre2_match_context *limits = NULL;
    sonde_err err = SONDE_OK;

    if (options != NULL && options->table != NULL) {
        SONDE__TRY_DONE(read_table(&table, options->table, diag));
    }
    if (options != NULL && options->rename != NULL) {
        SONDE__TRY_DONE(compile(options->rename, &code, &limits, diag));
    }
    err = rename_all(side, options, &table, code, limits, diag);
done:
    for (size_t i = 0; err != SONDE_OK && i < side->count;
         i++) { /* so that close frees */
        side->entries[i].known = side->entries[i].known == NULL ? side->entries[i].name
                                                                : side->entries[i].known;
    }
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
    free_pairs(&table);
    return err;
}
