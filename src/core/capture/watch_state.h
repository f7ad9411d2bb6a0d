/*
 * watch_state.h - a watch, as watch.c and watch_late.c share it.
 */
#ifndef SONDE_WATCH_STATE_H
#define SONDE_WATCH_STATE_H

#include <sonde/watch.h>

#include "capture/watch_update.h"

typedef struct sonde__watch_slot {
    bool added;
    int64_t step; /* global, of the last value that was due */
    int count;    /* values at that step */
    bool known;   /* vitals are of that step */
    sonde_vitals vitals;
    sonde__watch_update *update; /* NULL: not an update */
} sonde__watch_slot;

typedef struct sonde__watch {
    sonde_watch face; /* first */
    sonde_hook *hook;
    sonde_rules *rules;
    int64_t rules_every, rules_raw_every, every[SONDE_ROLE_COUNT];
    sonde_catalogue *catalogue;
    sonde_observer *observer;
    const sonde_observer_gate *gate;
    sonde__watch_slot *slots; /* by id */
    size_t capacity;
    uint8_t *zeros;
    uint8_t *checks; /* by id: 1 if it is checked at a step where it is not due */
    size_t zero_capacity, check_capacity;
    bool checking[SONDE_MODE_COUNT];   /* the mode has steps at which it matters */
    unsigned checked_roles;            /* bit r: slots of role r are checked */
    bool attached, ruled, bound, open; /* completed parts of the first step */
    sonde_call_shape shape;
    bool complained; /* of an invalid value */
    bool calls;      /* the program's own taps expect begin_call */
    bool stepping, due;
    int64_t next_global, next_step[SONDE_MODE_COUNT];
    sonde_coordinate at;
    unsigned roles; /* bit r: there are slots of role r */
    /* The next step of a mode, plus 1, at which the rules' own schedule for a role is due;
     * 0: not known. */
    int64_t next_look[SONDE_ROLE_COUNT][SONDE_MODE_COUNT];
} sonde__watch;

/* Sets where see looks up what is checked at this step. */
void sonde__watch_set_checks(sonde__watch *on);

#endif
