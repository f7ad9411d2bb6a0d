/*
 * watch_late.c - steps whose values arrive later.
 */
#include <sonde/watch.h>

#include "capture/hook_state.h"
#include "observe/observer_state.h"
#include "capture/watch_state.h"

void sonde_watch_leave_step(sonde_watch *face)
{
    sonde__watch *on = (sonde__watch *)(void *)face; /* its first member */

    if (face == NULL || !on->stepping) {
        return;
    }
    sonde__observer_drop_step(on->observer);
    sonde__hook_leave_step(on->hook);
    on->stepping = false;
    on->due = false;
    sonde__watch_set_checks(on);
}

void sonde_watch_return_to(sonde_watch *face, const sonde_coordinate *at)
{
    sonde__watch *on = (sonde__watch *)(void *)face;

    if (face == NULL || at == NULL || (unsigned)at->mode >= SONDE_MODE_COUNT ||
        !on->open) {
        return;
    }
    sonde_watch_leave_step(face);
    on->at = *at;
    sonde__hook_return_to(on->hook, at);
    if (on->calls) {
        sonde_observer_begin_call(on->observer);
    }
    on->stepping = true;
    on->due = sonde_observer_begin_due(on->observer, at);
    sonde__watch_set_checks(on);
}
