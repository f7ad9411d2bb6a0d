/*
 * damage.c - the list of what could not be read.
 *
 * A file of a million damaged lines must not make a million strings: of each file the first
 * few are kept, and of the whole run the first few hundred.
 */
#include "trial/trial_state.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>

enum { MOST_IN_FILE = 5, MOST = 256, TEXT = 512 };

static void keep(sonde_trial *trial, const char *text)
{
    char *copy = NULL;

    if (trial->told != NULL) {
        trial->told(trial->told_user, text);
    }
    if (trial->damage_count >= MOST ||
        !sonde__reserve(&trial->damage, &trial->damage_capacity, trial->damage_count + 2,
                        sizeof *trial->damage) ||
        (copy = sonde__strdup(text)) == NULL) {
        trial->damage_more++;
        return;
    }
    trial->damage[trial->damage_count++] = copy;
}

__attribute__((format(printf, 3, 0))) static void
note(sonde_trial *trial, const char *where, const char *found, va_list args)
{
    char text[TEXT];
    const int n = snprintf(text, sizeof text, "%s: ", where);

    if (n >= 0 && (size_t)n < sizeof text) {
        (void)vsnprintf(text + n, sizeof text - (size_t)n, found, args);
    }
    keep(trial, text);
    trial->changed = true;
}

void sonde__trial_damage(sonde_trial *trial, const char *where, const char *found, ...)
{
    va_list args;

    trial->damaged++;
    va_start(args, found);
    note(trial, where, found, args);
    va_end(args);
}

void sonde__trial_torn(sonde_trial *trial, const char *where, const char *found, ...)
{
    va_list args;

    trial->torn++;
    va_start(args, found);
    note(trial, where, found, args);
    va_end(args);
}

void sonde__trial_damage_in(sonde_trial *trial, sonde__trial_progress *in,
                            const char *where, const char *found, ...)
{
    va_list args;

    trial->damaged++;
    in->bad++;
    if (in->bad > MOST_IN_FILE && trial->told == NULL) {
        return;
    }
    va_start(args, found);
    note(trial, where, found, args);
    va_end(args);
}

void sonde__trial_damage_flush(sonde_trial *trial, sonde__trial_progress *in,
                               const char *where)
{
    if (in->bad > MOST_IN_FILE && trial->told == NULL) {
        char text[TEXT];

        (void)snprintf(text, sizeof text, "%s: and %lu more like these", where,
                       (unsigned long)(in->bad - MOST_IN_FILE));
        keep(trial, text);
    }
    in->bad = 0;
}

const char *sonde_trial_damage(const sonde_trial *trial, size_t i)
{
    static const char more[] = "and more that is damaged than is listed here";

    if (i < trial->damage_count) {
        return trial->damage[i];
    }
    return i == trial->damage_count && trial->damage_more > 0 ? more : NULL;
}
