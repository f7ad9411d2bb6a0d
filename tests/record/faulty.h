/*
 * faulty.h - a store that fails when it is told to, and the values that the tests of
 * faults record in it.
 */
#ifndef SONDE_TESTS_RECORD_FAULTY_H
#define SONDE_TESTS_RECORD_FAULTY_H

#include "base/clock.h"
#include "record/run_dir.h"

#include "record/recorder_state.h"
#include "record/record_sink.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

enum { FLOATS = 1000, BYTES = FLOATS * 4 };

static inline void put(sonde_recorder *recorder, int64_t step)
{
    float x[FLOATS];
    const int64_t shape = FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    const sonde_coordinate at = run_at(step);
    sonde_vitals vitals;

    for (int i = 0; i < FLOATS; i++) {
        x[i] = (float)(step + i);
    }
    sonde_vitals_of(&view, &vitals);
    sonde__recorder_put(recorder, 0, &at, &view);
    sonde__recorder_put_vitals(recorder, 0, &at, &vitals);
    sonde__recorder_end_step(recorder, &at);
}

static inline void nap(double seconds)
{
    const struct timespec time = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)(1e9 * (seconds - (int)seconds))};

    (void)nanosleep(&time, NULL);
}

/* --- a store that fails when told to ---------------------------------------------- */

static struct {
    const sonde__record_backend_ops *real;
    sonde__record_backend_ops ops;
    atomic_int fault;        /* errno of what writes; 0: all is well */
    atomic_int settle_after; /* bytes that still go in before the fault shows */
    atomic_bool slow;
    atomic_bool sync_fails;
    atomic_bool hangs; /* a settle does not return */
    atomic_bool destroyed;
    atomic_int one_in; /* the n-th call from now on fails; 0: none */
    atomic_int faults; /* so many operations have failed */
} faulty;

static inline int failing(void)
{
    const int fault = atomic_load(&faulty.fault);

    if (fault != 0) {
        (void)atomic_fetch_add(&faulty.faults, 1);
    }
    return fault;
}

/* EIO for the one call that shall fail. */
static inline int failing_once(void)
{
    const int fault = failing();

    if (fault != 0 || atomic_load(&faulty.one_in) == 0) {
        return fault;
    }
    return atomic_fetch_sub(&faulty.one_in, 1) == 1 ? EIO : 0;
}

static inline int faulty_truncate(sonde__record_file *file, uint64_t size)
{
    const int fault = failing_once();

    return fault != 0 ? fault : faulty.real->truncate(file, size);
}

static inline int faulty_write_at(sonde__record_file *file, uint64_t offset,
                                  const void *bytes, size_t size)
{
    const int fault = failing_once();

    return fault != 0 ? fault : faulty.real->write_at(file, offset, bytes, size);
}

static inline int faulty_publish(sonde__record_file *file, const char *old_name,
                                 const char *new_name)
{
    const int fault = failing_once();

    return fault != 0 ? fault : faulty.real->publish(file, old_name, new_name);
}

static inline int faulty_create(sonde__record_backend *backend, const char *name,
                                sonde__record_file **out)
{
    const int fault = failing_once();

    return fault != 0 ? fault : faulty.real->create(backend, name, out);
}

/* Some of the bytes get in, as on a disk that becomes full. */
static inline int faulty_settle(sonde__record_file *file)
{
    const uint64_t before = file->end;
    const uint64_t most = before + (uint64_t)atomic_load(&faulty.settle_after);
    int failed = 0;

    if (atomic_load(&faulty.slow)) {
        nap(0.005);
    }
    while (atomic_load(&faulty.hangs)) {
        nap(0.005);
    }
    failed = faulty.real->settle(file);
    if (failed != 0 || failing_once() == 0) {
        return failed;
    }
    if (file->end > most) {
        assert_int_equal(faulty.real->truncate(file, most), 0);
    }
    return atomic_load(&faulty.fault) != 0 ? atomic_load(&faulty.fault) : EIO;
}

static inline int faulty_sync(sonde__record_file *file)
{
    if (atomic_load(&faulty.sync_fails)) {
        (void)atomic_fetch_add(&faulty.faults, 1);
        return EIO;
    }
    return failing_once() != 0 ? EIO : faulty.real->sync(file);
}

static inline int faulty_replace(sonde__record_backend *backend, const char *name,
                                 const void *bytes, size_t size, bool once, bool sync)
{
    const int fault = failing_once();

    return fault != 0 ? fault
                      : faulty.real->replace(backend, name, bytes, size, once, sync);
}

static inline void faulty_destroy(sonde__record_backend *backend)
{
    faulty.real->destroy(backend);
    atomic_store(&faulty.destroyed, true);
}

static inline sonde_recorder *create_faulty(const sonde_recorder_options *options,
                                            const sonde_catalogue *catalogue)
{
    sonde__record_backend *backend = NULL;
    sonde_recorder *recorder = NULL;

    assert_int_equal(sonde__record_backend_local(options->path, &backend, NULL),
                     SONDE_OK);
    faulty.real = backend->ops;
    faulty.ops = *backend->ops;
    faulty.ops.destroy = faulty_destroy;
    faulty.ops.create = faulty_create;
    faulty.ops.settle = faulty_settle;
    faulty.ops.sync = faulty_sync;
    faulty.ops.replace = faulty_replace;
    faulty.ops.truncate = faulty_truncate;
    faulty.ops.write_at = faulty_write_at;
    faulty.ops.publish = faulty_publish;
    backend->ops = &faulty.ops;
    atomic_store(&faulty.fault, 0);
    atomic_store(&faulty.settle_after, 0);
    atomic_store(&faulty.slow, false);
    atomic_store(&faulty.sync_fails, false);
    atomic_store(&faulty.hangs, false);
    atomic_store(&faulty.destroyed, false);
    atomic_store(&faulty.one_in, 0);
    atomic_store(&faulty.faults, 0);
    assert_int_equal(
        sonde__recorder_create_on(options, catalogue, backend, &recorder, NULL),
        SONDE_OK);
    return recorder;
}

static inline void wait_for_faults(int count)
{
    const double until = sonde__now() + 60.0;

    while (atomic_load(&faulty.faults) < count && sonde__now() < until) {
        nap(0.005);
    }
    assert_true(atomic_load(&faulty.faults) >= count);
}

#endif
