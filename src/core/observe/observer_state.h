/*
 * observer_state.h - the internals of an observer: taps.c adds taps, observer.c runs
 * them.
 *
 * Bind makes one list of all tensors that taps selected, sorted by tensor:
 *
 *     first[t] ... first[t + 1]   entries of tensor t: (tap, id as selected), in the
 *                                 order in which taps were added, aliases ascending
 *     wants[t]                    union of how over the taps due now; 0 between steps
 *
 * extend appends the ids of new tensors to the taps and their entries to the list. The
 * observer resolves taps that have a selector of their own. It calls the owners of the
 * other taps (a hook, rules), which add their taps again for the new ids: a tap with the
 * same sink, schedules and how gets them.
 */
#ifndef SONDE_OBSERVE_OBSERVER_STATE_H
#define SONDE_OBSERVE_OBSERVER_STATE_H

#include "observe/attach.h"
#include "tensor/evidence.h"

typedef struct sonde__observe_tap {
    /* by mode: no step from `from` to next - 1 is due, and next is; none if from > next */
    int64_t from[SONDE_MODE_COUNT], next[SONDE_MODE_COUNT];
    sonde_selector *what; /* NULL: its ids were given */
    uint32_t *ids;        /* as selected, ascending */
    uint32_t *tensors;    /* by index of ids: the tensor; for an alias, its own */
    size_t count, capacity;
    size_t listed;  /* of these, in the observer's lists */
    size_t wanted;  /* of these, seen by the step that is on, or was */
    unsigned roles; /* bit r: a tensor of it has role r */
    sonde_schedule when[SONDE_MODE_COUNT];
    int64_t *steps[SONDE_MODE_COUNT]; /* the steps of the schedules, owned */
    unsigned how;
    uint32_t sink; /* index */
    bool due;      /* at the current step */
    bool waits;    /* due, except while a step is computed again */
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
    uint8_t role_wants[SONDE_ROLE_COUNT]; /* by role: the same over its tensors */
    size_t *first;
    sonde__observe_entry *entries;
    uint8_t *sink_due;
    size_t list_capacity, entry_capacity, due_capacity; /* of wants, ever, first; ... */
    sonde_sketch *sketch;                               /* if any tap asks for one */
    sonde_coordinate at;                                /* of the current step */
    sonde_call_shape shape;
    bool bound, stepping, global, extending;
    bool complained; /* about an invalid view */
};

/* Sets the gates after bind (observer.c). */
void sonde__observer_open(sonde_observer *observer);

#endif
