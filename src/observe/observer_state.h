/*
 * observer_state.h - an observer from inside: taps.c fills it, observer.c works on it.
 *
 * At bind, the tensors that taps selected become one list sorted by tensor:
 *
 *     first[t] ... first[t + 1]   entries of tensor t: (tap, id as selected), in the
 *                                 order in which taps were added, aliases ascending
 *     wants[t]                    union of how over the taps due now; 0 between steps
 *
 * extend appends the ids of new tensors to the taps and makes the list again. Taps with a
 * selector of their own are resolved by the observer. The owners of the others (a hook,
 * rules) are called and add their taps once more, for the new ids: a tap with the same
 * sink, schedules and how takes them up.
 */
#ifndef SONDE_OBSERVE_OBSERVER_STATE_H
#define SONDE_OBSERVE_OBSERVER_STATE_H

#include <sonde/observer.h>

typedef struct sonde__observe_tap {
    sonde_selector *what; /* NULL: its ids were given */
    uint32_t *ids;        /* as selected, ascending */
    uint32_t *tensors;    /* for each the tensor that it, perhaps an alias, stands for */
    size_t count, capacity;
    size_t listed; /* of them, in the observer's lists */
    sonde_schedule when[SONDE_MODE_COUNT];
    int64_t *steps[SONDE_MODE_COUNT]; /* the steps of the schedules, owned */
    unsigned how;
    uint32_t sink; /* index */
    bool due;      /* at the step that is on */
    bool waits;    /* due there, but for what is repeated just now */
    bool when_bad;
    bool apart; /* its global schedule holds only at steps of mode global */
} sonde__observe_tap;

typedef struct sonde__observe_entry {
    uint32_t tap, id;
} sonde__observe_entry;

/* An owner of taps whose ids were given. */
typedef struct sonde__observe_owner {
    sonde_err (*extend)(void *user, uint32_t first_id, sonde_diag *diag);
    void *user;
} sonde__observe_owner;

struct sonde_observer {
    sonde_observer_gate gate;
    const sonde_catalogue *catalogue;
    sonde__observe_tap *taps;
    size_t tap_count, tap_capacity;
    sonde_sink **sinks; /* each once, in the order of their first taps */
    size_t sink_count, sink_capacity;
    sonde__observe_owner *owners;
    size_t owner_count, owner_capacity;
    /* From bind on: */
    uint32_t declared; /* tensors */
    uint8_t *wants, *ever;
    size_t *first;
    sonde__observe_entry *entries;
    uint8_t *sink_due;
    sonde_sketch *sketch; /* if any tap asks for one */
    sonde_coordinate at;  /* of the step that is on */
    sonde_call_shape shape;
    bool bound, stepping, global, extending;
    bool complained; /* of an invalid view */
};

/* sonde_observer_add of ids that were selected already: ascending, each once, copied; may
 * be none. The tap's selector only names it in errors. Its global schedule holds at steps
 * of mode global alone. */
SONDE_API sonde_err sonde__observer_add_ids(sonde_observer *observer,
                                            const sonde_tap *tap, const uint32_t *ids,
                                            size_t count, sonde_diag *diag);

/* extend is called by sonde_observer_extend with the first new id. It adds the taps for
 * the new ids as it did before bind. */
sonde_err sonde__observer_on_extend(sonde_observer *observer,
                                    sonde_err (*extend)(void *user, uint32_t first_id,
                                                        sonde_diag *diag),
                                    void *user, sonde_diag *diag);

/* Sets the gates after bind (observer.c). */
void sonde__observer_open(sonde_observer *observer);

#endif
