/*
 * gate.h - a store on which the n-th call hangs until it is let go, or fails.
 */
#ifndef SONDE_TESTS_RECORD_GATE_H
#define SONDE_TESTS_RECORD_GATE_H

#include "base/clock.h"
#include "record/run_dir.h"

#include "record/recorder_state.h"
#include "record/record_sink.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

static struct {
    const sonde__record_backend_ops *real;
    sonde__record_backend_ops ops;
    atomic_int calls, at; /* of the calls, the one that hangs or fails; 0: none */
    atomic_bool hangs, forever;
    atomic_int error; /* what it and, if forever, all later ones return */
    atomic_int destroyed;
} gate;

static inline void gate_nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* The errno of this call. */
static inline int gate_pass(void)
{
    const int n = atomic_fetch_add(&gate.calls, 1) + 1, at = atomic_load(&gate.at);

    while (n == at && atomic_load(&gate.hangs)) {
        gate_nap();
    }
    return at > 0 && (n == at || (n > at && atomic_load(&gate.forever)))
               ? atomic_load(&gate.error)
               : 0;
}

#define GATE(call)                                                                       \
    const int failed = gate_pass();                                                      \
    return failed != 0 ? failed : gate.real->call

static inline int gate_make_folder(sonde__record_backend *backend, const char *name,
                                   bool *made)
{
    GATE(make_folder(backend, name, made));
}

static inline int gate_list(sonde__record_backend *backend, const char *name,
                            sonde__record_backend_seen seen, void *user)
{
    GATE(list(backend, name, seen, user));
}

static inline int gate_replace(sonde__record_backend *backend, const char *name,
                               const void *bytes, size_t size, bool once, bool sync)
{
    GATE(replace(backend, name, bytes, size, once, sync));
}

static inline int gate_load(sonde__record_backend *backend, const char *name,
                            char **bytes, size_t *size)
{
    GATE(load(backend, name, bytes, size));
}

static inline int gate_remove(sonde__record_backend *backend, const char *name)
{
    GATE(remove(backend, name));
}

static inline int gate_lock(sonde__record_backend *backend, const char *folder)
{
    GATE(lock(backend, folder));
}

static inline int gate_create(sonde__record_backend *backend, const char *name,
                              sonde__record_file **out)
{
    GATE(create(backend, name, out));
}

static inline int gate_open(sonde__record_backend *backend, const char *name,
                            sonde__record_file **out)
{
    GATE(open(backend, name, out));
}

/* One that fails has written nothing. */
static inline int gate_settle(sonde__record_file *file)
{
    const uint64_t before = file->end;
    const int failed = gate_pass(), real_failed = gate.real->settle(file);

    if (failed != 0 && file->end > before) {
        assert_int_equal(gate.real->truncate(file, before), 0);
    }
    return failed != 0 ? failed : real_failed;
}

static inline int gate_write_at(sonde__record_file *file, uint64_t offset,
                                const void *bytes, size_t size)
{
    GATE(write_at(file, offset, bytes, size));
}

static inline int gate_read_at(sonde__record_file *file, uint64_t offset, void *bytes,
                               size_t size, size_t *got)
{
    GATE(read_at(file, offset, bytes, size, got));
}

static inline int gate_truncate(sonde__record_file *file, uint64_t size)
{
    GATE(truncate(file, size));
}

static inline int gate_sync(sonde__record_file *file)
{
    GATE(sync(file));
}

static inline int gate_publish(sonde__record_file *file, const char *old_name,
                               const char *new_name)
{
    GATE(publish(file, old_name, new_name));
}

static inline void gate_destroy(sonde__record_backend *backend)
{
    gate.real->destroy(backend);
    (void)atomic_fetch_add(&gate.destroyed, 1);
}

/* All is well. */
static inline void gate_reset(void)
{
    atomic_store(&gate.calls, 0);
    atomic_store(&gate.at, 0);
    atomic_store(&gate.hangs, false);
    atomic_store(&gate.forever, false);
    atomic_store(&gate.error, 0);
    atomic_store(&gate.destroyed, 0);
}

static inline sonde_err gate_recorder(const sonde_recorder_options *options,
                                      const sonde_catalogue *catalogue,
                                      sonde_recorder **out, sonde_diag *diag)
{
    sonde__record_backend *backend = NULL;

    assert_int_equal(sonde__record_backend_local(options->path, &backend, NULL),
                     SONDE_OK);
    gate.real = backend->ops;
    gate.ops = *backend->ops;
    gate.ops.destroy = gate_destroy;
    gate.ops.make_folder = gate_make_folder;
    gate.ops.list = gate_list;
    gate.ops.replace = gate_replace;
    gate.ops.load = gate_load;
    gate.ops.remove = gate_remove;
    gate.ops.lock = gate_lock;
    gate.ops.create = gate_create;
    gate.ops.open = gate_open;
    gate.ops.settle = gate_settle;
    gate.ops.write_at = gate_write_at;
    gate.ops.read_at = gate_read_at;
    gate.ops.truncate = gate_truncate;
    gate.ops.sync = gate_sync;
    gate.ops.publish = gate_publish;
    backend->ops = &gate.ops;
    backend->slow = 0.0;
    return sonde__recorder_create_on(options, catalogue, backend, out, diag);
}

#endif
