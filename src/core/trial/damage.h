/*
 * damage.h - the list of what could not be read of a run. Internal.
 *
 * A file of a million damaged lines must not make a million strings: the first five of
 * each file and the first 256 of a run are kept as text, the others are counted. Noting
 * never fails: without memory a note is only counted. `where` is a path relative to the
 * run.
 */
#ifndef SONDE_TRIAL_DAMAGE_H
#define SONDE_TRIAL_DAMAGE_H

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sonde__trial_damage_list {
    char **lines;
    size_t count, capacity;
    uint64_t more;    /* notes beyond those kept */
    uint64_t damaged; /* notes of damage, and of torn ends */
    uint64_t torn;
    void (*report)(void *user, const char *text); /* called with every note, or NULL */
    void *user;
} sonde__trial_damage_list;

void sonde__trial_damage_fini(sonde__trial_damage_list *list);
void sonde__trial_damage(sonde__trial_damage_list *list, const char *where,
                         const char *found, ...) SONDE_PRINTF(3, 4);
/* Notes the torn end of a file. */
void sonde__trial_torn(sonde__trial_damage_list *list, const char *where,
                       const char *found, ...) SONDE_PRINTF(3, 4);
/* Whether damage was noted there. Costs a look at each note kept. */
bool sonde__trial_damage_has(const sonde__trial_damage_list *list, const char *where);
/* Notes one of possibly very many defects in a file. *bad counts them; the flush
 * afterwards notes how many were not kept and sets it to 0. */
void sonde__trial_damage_in(sonde__trial_damage_list *list, uint32_t *bad,
                            const char *where, const char *found, ...) SONDE_PRINTF(4, 5);
void sonde__trial_damage_flush(sonde__trial_damage_list *list, uint32_t *bad,
                               const char *where);

#endif
