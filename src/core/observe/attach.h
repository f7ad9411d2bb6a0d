/*
 * attach.h - what a hook, rules and a watch share. They put taps on the observer of a
 * producer, count its steps, and know its tensors by ids of their own.
 */
#ifndef SONDE_OBSERVE_ATTACH_H
#define SONDE_OBSERVE_ATTACH_H

#include <sonde/observer.h>

/* --- taps by id (taps.c, observer.c) ------------------------------------------------ */

/* sonde_observer_add for given ids: ascending, without duplicates, copied; the list may
 * be empty. The tap's selector only names it in errors. Its global schedule holds only at
 * steps of mode global. */
SONDE_API sonde_err sonde__observer_add_ids(sonde_observer *observer,
                                            const sonde_tap *tap, const uint32_t *ids,
                                            size_t count, sonde_diag *diag);

/* sonde_observer_extend calls extend with the first new id. It adds the taps for the new
 * ids as before bind. */
sonde_err sonde__observer_on_extend(sonde_observer *observer,
                                    sonde_err (*extend)(void *user, uint32_t first_id,
                                                        sonde_diag *diag),
                                    void *user, sonde_diag *diag);

/* Whether steps of a mode have taps with when_bad, of vital signs. */
bool sonde__observer_when_bad_in(const sonde_observer *observer, sonde_mode mode);

/* What is due now of any tensor of a role: SONDE_HOW_ bits. */
unsigned sonde__observer_role_wants(const sonde_observer *observer, sonde_role role);

/* After an extension, while a step is on: new tensors are due at it like others. place: the
 * step's. Whether anything is due. */
bool sonde__observer_due_too(sonde_observer *observer, const sonde_coordinate *place);
/* Drops the current step: no sink sees its end. */
void sonde__observer_drop_step(sonde_observer *observer);

/* --- schedules of rules under a program's own (schedule.c) -------------------------- */

/* `every` of a role, in a program's words: 0 changes nothing, below 0 means never. Vital
 * signs come at the first steps and as often as it says; the rest as often as rules need
 * it, and not more often than it says. */
void sonde__observe_thin(sonde_schedule *when, int64_t every, bool vitals);
/* `every` of all rules: the first steps, and as often as it says. */
sonde_schedule sonde__observe_judged(int64_t every);

/* --- steps (taps.c) --------------------------------------------------------------- */

/* The numbers of the next steps; that of SONDE_MODE_GLOBAL counts the steps of all modes. */
typedef struct sonde__observe_steps {
    int64_t next[SONDE_MODE_COUNT];
} sonde__observe_steps;

/* Takes the next step of a mode; its number within the mode is at_least or more. */
sonde_coordinate sonde__observe_take_step(sonde__observe_steps *steps, sonde_mode mode,
                                          int64_t at_least);

/* --- ids (taps.c) ----------------------------------------------------------------- */

/* From the ids of a producer's catalogue to those of one's own. */
typedef struct sonde__observe_map {
    uint32_t *ids; /* owned */
    size_t capacity;
    const sonde_catalogue *from, *to;
    /* Declares a tensor that `to` lacks; id: the producer's. */
    sonde_err (*declare)(void *user, const sonde_tensor_info *info, uint32_t id,
                         uint32_t *mapped, sonde_diag *diag);
} sonde__observe_map;

/* Maps a tensor to that of the same name. Declares it if there is none: an alias after its
 * tensor, and with that tensor's dtype and shape, since another producer's batches may
 * have another size. */
sonde_err sonde__observe_map_add(sonde__observe_map *map, uint32_t id, void *user,
                                 sonde_diag *diag);
/* Room for all tensors of the producer. */
bool sonde__observe_map_reserve(sonde__observe_map *map);
/* The id of exactly that name, or SONDE_NO_TENSOR. */
SONDE_API uint32_t sonde__catalogue_named(const sonde_catalogue *catalogue,
                                          const char *name);

#endif
