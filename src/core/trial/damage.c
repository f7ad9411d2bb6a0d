/*
 * damage.c - see damage.h.
 */
#include "trial/damage.h"
#include "base/memory.h"
#include "base/point.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
