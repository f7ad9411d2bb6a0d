/*
 * memory_sink.h - a sink that remembers every call of it, for the tests of observers.
 */
#ifndef SONDE_TESTS_OBSERVE_MEMORY_SINK_H
#define SONDE_TESTS_OBSERVE_MEMORY_SINK_H

#include "cmocka_all.h"

#include "base/fail.h"
#include "observe/network.h"

#include <sonde/error.h>
#include <sonde/observer.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- a sink that remembers -------------------------------------------------------- */

enum { MOST = 40000 };

typedef struct record {
    int kind; /* 'p' put, 'b' begin_call, 'e' end_step */
    uint32_t id;
    int sink;
    bool vitals, sketch;
    uint64_t hash;
    sonde_coordinate at;
    double value; /* of the first element */
} record;

typedef struct journal {
    record *records;
    size_t count;
    int prepared[3][NET_COUNT]; /* by sink */
} journal;

typedef struct memory_sink {
    sonde_sink sink; /* first */
    journal *journal;
    int number;
    int fail_prepare_at; /* 0: never */
} memory_sink;

static inline void note(memory_sink *to, record entry)
{
    entry.sink = to->number;
    assert_true(to->journal->count < MOST);
    to->journal->records[to->journal->count++] = entry;
}

static inline sonde_err memory_prepare(sonde_sink *sink, uint32_t id,
                                       const sonde_tensor_info *info, unsigned how,
                                       const sonde_call_shape *shape, sonde_diag *diag)
{
    memory_sink *to = (memory_sink *)sink;

    assert_string_equal(info->name, net_tensors[id].name);
    assert_true(how != 0 && shape->iterations > 0);
    to->journal->prepared[to->number][id]++;
    if (to->fail_prepare_at == to->journal->prepared[to->number][id]) {
        return sonde__fail(diag, SONDE_EDTYPE, "sink", NULL, "not this one");
    }
    return SONDE_OK;
}

static inline void memory_begin_call(sonde_sink *sink)
{
    note((memory_sink *)sink, (record){.kind = 'b'});
}

static inline void memory_put(sonde_sink *sink, const sonde_observation *observation)
{
    const double value =
        observation->view->rank == 0 || sonde_view_count(observation->view) > 0
            ? sonde_element_get(observation->view->dtype, observation->view->data)
            : 0.0;

    assert_string_equal(observation->info->name, net_tensors[observation->id].name);
    note((memory_sink *)sink, (record){.kind = 'p',
                                       .id = observation->id,
                                       .vitals = observation->vitals != NULL,
                                       .sketch = observation->sketch != NULL,
                                       .hash = observation->hash,
                                       .at = observation->at,
                                       .value = value});
    if (observation->vitals != NULL) {
        assert_int_equal(observation->vitals->count,
                         (uint64_t)sonde_view_count(observation->view));
    }
    if (observation->sketch != NULL) {
        assert_int_equal(observation->sketch->count,
                         (uint64_t)sonde_view_count(observation->view));
    }
}

static inline void memory_end_step(sonde_sink *sink, const sonde_coordinate *at)
{
    note((memory_sink *)sink, (record){.kind = 'e', .at = *at});
}

static inline memory_sink memory_sink_of(journal *to, int number)
{
    return (memory_sink){.sink = {.prepare = memory_prepare,
                                  .begin_call = memory_begin_call,
                                  .put = memory_put,
                                  .end_step = memory_end_step},
                         .journal = to,
                         .number = number};
}

/* --- one observer with one tap ---------------------------------------------------- */

static inline sonde_err add_tap(sonde_observer *observer, const char *what,
                                const sonde_schedule *when, sonde_mode mode, unsigned how,
                                sonde_sink *sink, sonde_diag *diag)
{
    sonde_tap tap = {.how = how, .where = sink};
    sonde_selector *selector = NULL;
    sonde_err err = sonde_selector_create(what, &selector, diag);

    if (err == SONDE_OK) {
        tap.what = selector;
        tap.when[mode] = *when;
        err = sonde_observer_add(observer, &tap, NULL, diag);
    }
    sonde_selector_destroy(selector);
    return err;
}

#endif
