/*
 * tensor_names.c - nearest names, glob patterns and the optional prefix "model.".
 */
#include "observe/tensor_names.h"

#include "base/fail.h"
#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* --- nearest names ---------------------------------------------------------------- */

enum { NEAREST = 3, CONTAINS = 1000 /* ranks after every edit distance */ };

/* Smaller is nearer; SIZE_MAX if the candidate was surely not meant. */
static size_t rank_of(const char *name, const char *candidate)
{
    const size_t distance = sonde__edit_distance(name, candidate);
    const size_t longer = SONDE_MAX(strlen(name), strlen(candidate));

    if (distance * 3 <= longer + 2) {
        return distance;
    }
    if (strlen(name) >= 2 && strstr(candidate, name) != NULL) {
        return CONTAINS + distance;
    }
    return SIZE_MAX;
}

static size_t list_names(const char *const *names, size_t count, char *buf, size_t size)
{
    size_t used = 0, listed = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const char *between = i == 0 ? "" : i + 1 == count ? " or " : ", ";

        if (used + strlen(between) + strlen(names[i]) >= size) {
            break;
        }
        used += (size_t)snprintf(buf + used, size - used, "%s%s", between, names[i]);
        listed++;
    }
    return listed;
}

size_t sonde__observe_nearest_names(const char *name, const void *list,
                                    sonde__observe_name_at name_at, size_t count,
                                    char *buf, size_t size)
{
    const char *best[NEAREST] = {NULL};
    size_t rank[NEAREST] = {0}, held = 0;

    for (size_t i = 0; i < count; i++) {
        const char *candidate = name_at(list, i);
        const size_t r = rank_of(name, candidate);
        size_t place = held;
        bool known = false;

        for (size_t j = 0; j < held; j++) {
            known = known || strcmp(best[j], candidate) == 0;
        }
        while (place > 0 && rank[place - 1] > r) {
            place--;
        }
        if (known || r == SIZE_MAX || place == NEAREST) {
            continue;
        }
        held = SONDE_MIN(held + 1, (size_t)NEAREST);
        for (size_t j = held - 1; j > place; j--) {
            best[j] = best[j - 1];
            rank[j] = rank[j - 1];
        }
        best[place] = candidate;
        rank[place] = r;
    }
    return list_names(best, held, buf, size);
}

/* --- globs ------------------------------------------------------------------------ */

/* One byte of a class or a literal, without its backslash; moves *p past it. */
static unsigned char take_byte(const char **p)
{
    if (**p == '\\') {
        (*p)++;
    }
    return (unsigned char)*(*p)++;
}

/* Whether byte is in the class after '[' at *p. Moves *p past ']'. */
static bool match_class(const char **p, unsigned char byte)
{
    const bool negated = **p == '!' || **p == '^';
    bool inside = false;

    if (negated) {
        (*p)++;
    }
    for (bool first = true; first || **p != ']'; first = false) {
        const unsigned char low = take_byte(p);
        unsigned char high = low;

        if ((*p)[0] == '-' && (*p)[1] != ']') {
            (*p)++;
            high = take_byte(p);
        }
        inside = inside || (low <= byte && byte <= high);
    }
    (*p)++;
    return inside != negated;
}

/* Whether the pattern at *p, neither a star nor the end, matches one byte. */
static bool match_one(const char **p, unsigned char byte)
{
    switch (**p) {
    case '?':
        (*p)++;
        return true;
    case '[':
        (*p)++;
        return match_class(p, byte);
    default:
        return take_byte(p) == byte;
    }
}

bool sonde__observe_glob_match(const char *pattern, const char *text)
{
    const char *after_star = NULL, *mark = NULL;

    while (*text != '\0') {
        const char *next = pattern;

        if (*pattern == '*') {
            after_star = ++pattern;
            mark = text;
        } else if (*pattern != '\0' && match_one(&next, (unsigned char)*text)) {
            pattern = next;
            text++;
        } else if (after_star != NULL) {
            pattern = after_star;
            text = ++mark;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

/* As match_class walks, but trusting nothing. NULL and *p behind ']', or what is wrong.
 */
static const char *check_class(const char **p)
{
    if (**p == '!' || **p == '^') {
        (*p)++;
    }
    for (bool first = true; first || **p != ']'; first = false) {
        const char *start = *p;

        if ((*p)[0] == '\0' || ((*p)[0] == '\\' && (*p)[1] == '\0')) {
            return "'[' is not closed";
        }
        unsigned char low = take_byte(p);
        if ((*p)[0] == '-' && (*p)[1] != ']') {
            (*p)++;
            if ((*p)[0] == '\0' || ((*p)[0] == '\\' && (*p)[1] == '\0')) {
                return "'[' is not closed";
            }
            if (take_byte(p) < low) {
                *p = start;
                return "the range runs backwards";
            }
        }
    }
    (*p)++;
    return NULL;
}

const char *sonde__observe_glob_check(const char *pattern, size_t *offset)
{
    const char *p = pattern;

    while (*p != '\0') {
        const char *start = p;
        const char *wrong = NULL;

        if (p[0] == '\\' && p[1] == '\0') {
            wrong = "nothing follows a backslash";
        } else if (*p == '[') {
            p++;
            wrong = check_class(&p);
        } else {
            (void)take_byte(&p);
        }
        if (wrong != NULL) {
            *offset = (size_t)((*p == '\0' ? start : p) - pattern);
            return wrong;
        }
    }
    return NULL;
}

/* --- modules ---------------------------------------------------------------------- */

size_t sonde__observe_model_prefix(const char *text)
{
    const char *behind = strstr(text, "___");

    if (strncmp(text, "model.", SONDE__MODEL_LENGTH) == 0) {
        return 0;
    }
    if (behind != NULL && strncmp(behind + 3, "model.", SONDE__MODEL_LENGTH) == 0) {
        return (size_t)(behind + 3 - text);
    }
    return SIZE_MAX;
}

bool sonde__observe_in_module(const sonde_tensor_info *info, const char *path)
{
    const size_t length = strlen(path);

    return strncmp(info->module, path, length) == 0 &&
           (info->module[length] == '\0' || info->module[length] == '.');
}
