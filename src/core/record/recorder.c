/*
 * recorder.c - creates and closes recorders.
 *
 * create allocates everything before it touches the disk: a failure leaves no partial
 * run.
 */
#include "record/recorder_state.h"
#include "base/log_lock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/whole_file.h"
#include "record/writer.h"
#include "record/record_sink.h"

#include <sonde/log.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <pthread.h>
#include <stdlib.h>

enum {
    RING = 64 * 1024 * 1024,
    MOST_RING = 256 * 1024 * 1024, /* the largest default */
    SEGMENT = 64 * 1024 * 1024,
    SECONDS = 30,
    STATES = 64 * 1024, /* tensors before the table grows */
    SCRATCH = 1024 * 1024
};

static int ranks(const sonde_recorder_options *options)
{
    return options->world > 0 ? options->world : 1;
}

/* --- options ---------------------------------------------------------------------- */

static bool is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

sonde_err sonde__recorder_check(const sonde_recorder_options *options, sonde_diag *diag)
{
    const int world = ranks(options);

    if (options->path == NULL || options->path[0] == '\0') {
        return sonde__fail(diag, SONDE_EINVAL, "path", "a folder for the run",
                           "no path is given");
    }
    if (sonde__check_home(options->path, diag) != SONDE_OK) {
        return SONDE_EINVAL;
    }
    if (options->world < 0 || options->rank < 0 || options->rank >= world) {
        return sonde__fail(diag, SONDE_EINVAL, "rank", "0 to world - 1",
                           "rank %d of a world of %d", options->rank, options->world);
    }
    if (!(options->segment_seconds >= 0.0) || isinf(options->segment_seconds)) {
        return sonde__fail(diag, SONDE_EINVAL, "segment_seconds",
                           "seconds, or 0 for 30 of them", "%g",
                           options->segment_seconds);
    }
    if (!(options->wait_seconds >= 0.0)) {
        return sonde__fail(diag, SONDE_EINVAL, "wait_seconds",
                           "seconds, or 0 for 30 of them", "%g", options->wait_seconds);
    }
    if ((unsigned)options->when_full > SONDE_WHEN_FULL_DROP) {
        return sonde__fail(diag, SONDE_EINVAL, "when_full", "a sonde_when_full", "%d",
                           (int)options->when_full);
    }
    if (options->resume != NULL && strcmp(options->resume, SONDE_RESUME_ANY) != 0 &&
        !is_hex(options->resume, 32)) {
        return sonde__fail(diag, SONDE_EINVAL, "resume",
                           "a run's id, 32 hexadecimal digits, or any", "'%.64s'",
                           options->resume);
    }
    if (options->resume_step < SONDE_RESUME_ANEW ||
        (unsigned)options->resume_mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, "resume_step", "a step of a mode",
                           "step %lld of mode %d", (long long)options->resume_step,
                           (int)options->resume_mode);
    }
    if (options->graph != NULL && !is_hex(options->graph, 16)) {
        return sonde__fail(diag, SONDE_EINVAL, "graph", "16 hexadecimal digits",
                           "'%.64s'", options->graph);
    }
    return SONDE_OK;
}

/* The strings of options, copied in place. */
static bool copy_strings(sonde_recorder_options *options)
{
    const char **const strings[] = {&options->path,  &options->resume, &options->program,
                                    &options->model, &options->graph,  &options->save};
    bool good = true;

    for (size_t i = 0; i < SONDE_COUNT_OF(strings); i++) {
        if (*strings[i] != NULL) {
            *strings[i] = good ? sonde__strdup(*strings[i]) : NULL;
            good = good && *strings[i] != NULL;
        }
    }
    return good;
}

static void free_strings(sonde_recorder_options *options)
{
    const char *const strings[] = {options->path,  options->resume, options->program,
                                   options->model, options->graph,  options->save};

    for (size_t i = 0; i < SONDE_COUNT_OF(strings); i++) {
        sonde__free((void *)(uintptr_t)strings[i]); /* ours, whatever their type says */
    }
}

/* Bytes of the ring: as asked, but such that the largest tensor of the catalogue finds
 * room, within reason. */
static size_t ring_size(const sonde_recorder *recorder)
{
    const size_t asked = recorder->options.ring_bytes;
    size_t size = asked > 0 ? asked : RING;

    for (uint32_t id = 0; id < sonde_catalogue_count(recorder->catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(recorder->catalogue, id);
        size_t bytes = sonde_dtype_size(info->dtype);

        for (int d = 0; d < info->rank; d++) {
            if (!sonde__mul(bytes, (size_t)info->shape[d], &bytes)) {
                bytes = MOST_RING;
            }
        }
        if (bytes <= MOST_RING / 4 - sizeof(sonde__record_value_message)) {
            size = SONDE_MAX(size, (bytes + sizeof(sonde__record_value_message)) * 4);
        }
    }
    return size;
}

/* --- making ----------------------------------------------------------------------- */

static void destroy(sonde_recorder *recorder)
{
    if (recorder == NULL) {
        return;
    }
    sonde__record_writer_fini(&recorder->writer);
    sonde__record_ring_fini(&recorder->ring);
    for (size_t i = 0; i < recorder->collected_count; i++) {
        sonde__free(recorder->collected[i].text);
    }
    sonde__free(recorder->collected);
    sonde__record_sink_fini(&recorder->sink);
    sonde__free(recorder->states);
    free_strings(&recorder->options);
    sonde__free(recorder);
}

/* Called by the writer's thread once the system call that held it has returned. */
static void abandoned(void *user)
{
    destroy(user);
}

static sonde_err set_up_writer(sonde_recorder *recorder, sonde_diag *diag)
{
    const sonde_recorder_options *options = &recorder->options;
    sonde__record_writer *const writer = &recorder->writer;

    writer->ring = &recorder->ring;
    writer->segment_bytes = options->segment_bytes > 0 ? options->segment_bytes : SEGMENT;
    writer->segment_seconds =
        options->segment_seconds > 0.0 ? options->segment_seconds : SECONDS;
    writer->wait_seconds =
        options->wait_seconds > 0.0 ? options->wait_seconds : SONDE__RECORD_WAIT;
    writer->ends = options->rank == 0;
    writer->left = abandoned;
    writer->user = recorder;
    sonde__record_worker_folder(writer->folder, options->rank);
    sonde__record_tensors_init(&writer->tensors, writer->backend, writer->folder);
    for (int i = 0; i < SONDE__STREAMS; i++) {
        sonde__record_stream_init(&writer->streams[i], writer->backend, writer->folder,
                                  (sonde__record_file_kind)(SONDE__FILE_STATS + i));
    }
    sonde__record_file_list_init(&writer->files, writer->backend, writer->folder);
    writer->scratch.start = sonde__malloc(SCRATCH);
    writer->scratch.size = SCRATCH;
    if (writer->scratch.start == NULL ||
        sonde__record_segment_init(&writer->segment, writer->backend, writer->folder,
                                   options->rank) != SONDE_OK ||
        (options->compress &&
         sonde__record_compressor_init(&writer->compressor) != SONDE_OK)) {
        return sonde__fail_nomem(diag, "a recorder");
    }
    return SONDE_OK;
}

static sonde_err set_up(sonde_recorder *recorder, sonde_diag *diag)
{
    const sonde_catalogue *catalogue = recorder->catalogue;
    const uint32_t count = sonde_catalogue_count(catalogue);

    for (uint32_t id = 0; id < count; id++) {
        SONDE__TRY(
            sonde__recorder_check_name(sonde_catalogue_info(catalogue, id)->name, diag));
    }
    sonde__record_sink_init(&recorder->sink, recorder);
    recorder->state_count = SONDE_MAX((size_t)count * 2, STATES);
    recorder->states = sonde__calloc(recorder->state_count, 1);
    if (recorder->states == NULL ||
        sonde__record_ring_init(&recorder->ring, ring_size(recorder)) != SONDE_OK) {
        return sonde__fail_nomem(diag, "a recorder");
    }
    return set_up_writer(recorder, diag);
}

/* Moves the ring into the worker's folder, where it outlives the process. */
static void keep_ring(sonde_recorder *recorder)
{
    sonde__record_writer *const writer = &recorder->writer;
    const sonde__record_backend_ops *const ops = writer->backend->ops;
    const sonde__record_ring_past past = {.mark = sonde__record_take_checkpoint(writer),
                                          .put = writer->put_before,
                                          .full = writer->ring_full_before};
    char name[SONDE__FILE_NAME * 2];
    int failed = ENOTSUP, attempts = 0;

    (void)snprintf(name, sizeof name, "%s/%s", writer->folder, SONDE__RING_FILE);
    while (ops->place != NULL) {
        failed =
            sonde__record_ring_keep(&recorder->ring, ops->place(writer->backend, name),
                                    writer->id, recorder->options.rank, &past);
        if (!sonde__record_try_again(&attempts, failed)) {
            break;
        }
    }
    if (failed != 0) {
        sonde_log(
            SONDE_LOG_WARNING, "record",
            "%s: there is no file for the ring (%s): a process that is killed loses "
            "its last records",
            recorder->options.path, strerror(failed));
    }
}

/* By the writer's thread: a new run leaves nothing. */
static void undo(void *user)
{
    sonde_recorder *const recorder = user;

    sonde__record_ring_remove(&recorder->ring);
    sonde__record_run_undo(&recorder->writer);
}

/* By the writer's thread: the files. */
static sonde_err begin(void *user, sonde_diag *diag)
{
    sonde_recorder *const recorder = user;
    const sonde_err err =
        sonde__record_run_begin(&recorder->writer, &recorder->options, diag);

    if (err != SONDE_OK) {
        undo(recorder);
        return err;
    }
    keep_ring(recorder);
    return SONDE_OK;
}

/* By the writer's thread: what a dead one left. */
static sonde_err salvage(void *user, sonde_diag *diag)
{
    sonde_recorder *const recorder = user;

    return sonde__record_run_salvage(&recorder->writer, &recorder->options, diag);
}

sonde_err sonde__recorder_create_on(const sonde_recorder_options *options,
                                    const sonde_catalogue *catalogue,
                                    sonde__record_backend *backend, sonde_recorder **out,
                                    sonde_diag *diag)
{
    sonde_recorder *recorder = sonde__calloc(1, sizeof *recorder);
    bool is_left = false;

    if (recorder == NULL) {
        backend->ops->destroy(backend);
        return sonde__fail_nomem(diag, "a recorder");
    }
    sonde_err err = sonde__record_writer_init(&recorder->writer);
    recorder->writer.backend = backend;
    recorder->writer.begin = begin;
    recorder->writer.undo = undo;
    recorder->options = *options;
    recorder->catalogue = catalogue;
    recorder->stuck_at = UINT64_MAX;
    if (!copy_strings(&recorder->options) || err != SONDE_OK) {
        err = sonde__fail_nomem(diag, "a recorder");
        goto error;
    }
    SONDE__TRY_GO(set_up(recorder, diag));
    SONDE__TRY_GO(sonde__record_writer_start(&recorder->writer, recorder->options.path,
                                             &is_left, diag));
    sonde__recorder_enter(recorder);
    *out = recorder;
    return SONDE_OK;

error:
    if (!is_left) { /* else it is the thread's */
        destroy(recorder);
    }
    return err;
}

sonde_err sonde__recorder_recover_folder(const char *path, int rank, uint64_t *records,
                                         sonde_diag *diag)
{
    sonde_recorder *recorder = sonde__calloc(1, sizeof *recorder);
    bool is_left = false;

    if (recorder == NULL) {
        return sonde__fail_nomem(diag, "a recorder");
    }
    sonde_err err = sonde__record_writer_init(&recorder->writer);
    recorder->writer.begin = salvage;
    recorder->writer.only_begins = true;
    recorder->options = (sonde_recorder_options){
        .size = sizeof(sonde_recorder_options), .rank = rank, .world = -1};
    recorder->options.path = sonde__strdup(path);
    SONDE__TRY_GO(
        err != SONDE_OK || recorder->options.path == NULL ||
                sonde__record_ring_init(&recorder->ring, 1) != SONDE_OK
            ? sonde__fail_nomem(diag, "a recorder")
            : sonde__record_backend_local(path, &recorder->writer.backend, diag));
    SONDE__TRY_GO(set_up_writer(recorder, diag));
    err = sonde__record_writer_start(&recorder->writer, path, &is_left, diag);
    if (!is_left) {
        *records = recorder->writer.salvaged;
    }

error:
    if (!is_left) { /* else it is the thread's */
        destroy(recorder);
    }
    return err;
}

/* --- ending ----------------------------------------------------------------------- */

void sonde__recorder_get_stats(const sonde_recorder *recorder,
                               sonde_recorder_stats *stats)
{
    if (recorder == NULL || stats == NULL) {
        return;
    }
    const sonde__record_writer *writer = &recorder->writer;
    const sonde__record_counters *counters = &writer->counters;

    *stats = (sonde_recorder_stats){
        .records = atomic_load_explicit(&counters->records, memory_order_relaxed),
        .bytes = atomic_load_explicit(&counters->bytes, memory_order_relaxed),
        .rows = atomic_load_explicit(&counters->items[SONDE__STREAM_ROWS],
                                     memory_order_relaxed),
        .sketches = atomic_load_explicit(&counters->items[SONDE__STREAM_SKETCHES],
                                         memory_order_relaxed),
        .lost_ring_full =
            atomic_load_explicit(&recorder->ring.shared->full, memory_order_relaxed),
        .lost_disk_full =
            atomic_load_explicit(&counters->disk_full, memory_order_relaxed),
        .lost_io_error =
            atomic_load_explicit(&counters->io_error, memory_order_relaxed) +
            atomic_load_explicit(&recorder->ring.shared->refused, memory_order_relaxed),
        .waits = atomic_load_explicit(&recorder->waits, memory_order_relaxed),
        .waited_seconds = atomic_load_explicit(&recorder->waited, memory_order_relaxed),
        .last_step = atomic_load_explicit(&counters->last_step, memory_order_relaxed),
    };
}

void sonde__recorder_next(const sonde_recorder *recorder, int64_t next[SONDE_MODE_COUNT])
{
    memcpy(next, recorder->writer.next, sizeof recorder->writer.next);
}

static sonde_err judge(const sonde_recorder *recorder, sonde_run_end reason,
                       sonde_diag *diag)
{
    const int end_failed = recorder->writer.end_fault;
    sonde_recorder_stats stats;

    if (recorder->forked) {
        return SONDE_OK; /* the run is the parent's */
    }

    sonde__recorder_get_stats(recorder, &stats);
    if (stats.lost_ring_full + stats.lost_disk_full + stats.lost_io_error > 0) {
        return sonde__fail(
            diag, SONDE_EIO, recorder->options.path, "none",
            "%llu records were lost to a full ring, %llu to a full disk, "
            "%llu to other errors; %llu were written",
            (unsigned long long)stats.lost_ring_full,
            (unsigned long long)stats.lost_disk_full,
            (unsigned long long)stats.lost_io_error,
            (unsigned long long)(stats.records + stats.rows + stats.sketches));
    }
    if (end_failed != 0) {
        errno = end_failed;
        (void)sonde__fail_errno(diag, recorder->options.path, "cannot be closed");
        return SONDE_EIO;
    }
    if ((unsigned)reason > SONDE_RUN_STOPPED_BY_RULE) {
        return sonde__fail(diag, SONDE_EINVAL, recorder->options.path, "a sonde_run_end",
                           "the run is closed as failed, not as %d", (int)reason);
    }
    return SONDE_OK;
}

sonde_err sonde__recorder_close(sonde_recorder *recorder, sonde_run_end reason,
                                const char *text, sonde_diag *diag)
{
    char path[256];
    sonde__store_spool *spool = NULL;
    bool is_left = false;

    if (recorder == NULL) {
        return SONDE_OK;
    }
    sonde__recorder_leave(recorder);
    is_left = recorder->is_left;
    (void)snprintf(path, sizeof path, "%s", recorder->options.path);
    const double waited = recorder->writer.wait_seconds;
    if (!recorder->is_over) {
        sonde__recorder_end_quiet(recorder);
        is_left = !sonde__recorder_stop(recorder, reason, text);
    }
    if (is_left) { /* it is the thread's now, and its spool */
        return sonde__fail(diag, SONDE_EIO, path, "a disk that answers",
                           "records are not written: a system call has hung for %g s",
                           waited);
    }
    sonde_err err = judge(recorder, reason, diag);
    spool = recorder->spool;
    destroy(recorder);
    if (spool != NULL) {
        const sonde_err sent =
            sonde__store_spool_finish(spool, err != SONDE_OK ? NULL : diag);

        err = err != SONDE_OK ? err : sent;
        sonde__store_spool_close(spool);
    }
    return err;
}

/* --- recorder exit ----------------------------------------------------------------- */

/* Recorders that are open when the program exits, or forks.
 *
 * exit and a return from main close all recorders as interrupted. close may still be
 * called afterwards, by another exit handler. A forked child has the recorders of its
 * parent, but neither their threads nor a right to their files: it records nothing in
 * them, and may close them, which frees its memory. It gives up its part of the lock of
 * the folder, so that the lock ends with the parent. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sonde_recorder *first;

bool sonde__recorder_stop(sonde_recorder *recorder, sonde_run_end reason,
                          const char *text)
{
    sonde__record_writer *const writer = &recorder->writer;

    if (writer->started && writer->text == NULL) {
        writer->reason = reason;
        writer->text = text != NULL ? sonde__strdup(text) : NULL;
    }
    return sonde__record_writer_stop(writer);
}

/* The program may still call close. */
static void keep(void *user)
{
    (void)user;
}

static void close_all(void)
{
    (void)pthread_mutex_lock(&lock);
    for (sonde_recorder *r = first; r != NULL; r = r->next) {
        if (!r->is_over) {
            if (pthread_equal(atomic_load(&r->producer), pthread_self()) != 0) {
                sonde__recorder_end_quiet(r);
            }
            r->closed = true;
            r->is_over = true;
            r->writer.left = keep;
            r->is_left = !sonde__recorder_stop(
                r, SONDE_RUN_INTERRUPTED, "the program ended without closing the run");
            if (!r->is_left && r->spool != NULL) {
                (void)sonde__store_spool_finish(r->spool, NULL);
            }
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

static void before_fork(void)
{
    (void)pthread_mutex_lock(&lock);
    sonde__log_hold();
}

static void after_fork(void)
{
    sonde__log_release();
    (void)pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    sonde__log_release();
    for (sonde_recorder *r = first; r != NULL; r = r->next) {
        r->closed = true;
        r->forked = true;
        r->complained = false;
        r->is_over = true;
        r->is_left = false;
        r->writer.started = false;
        r->spool = NULL; /* its threads are the parent's */
        sonde__record_ring_renew(&r->ring);
        r->writer.backend->ops->unlock(r->writer.backend);
    }
    (void)pthread_mutex_unlock(&lock);
}

static void set_up_exit(void)
{
    (void)pthread_atfork(before_fork, after_fork, in_child);
    (void)atexit(close_all);
}

void sonde__recorder_enter(sonde_recorder *recorder)
{
    (void)pthread_once(&once, set_up_exit);
    (void)pthread_mutex_lock(&lock);
    atomic_store(&recorder->producer, pthread_self());
    recorder->next = first;
    if (first != NULL) {
        first->previous = recorder;
    }
    first = recorder;
    (void)pthread_mutex_unlock(&lock);
}

void sonde__recorder_leave(sonde_recorder *recorder)
{
    (void)pthread_mutex_lock(&lock);
    if (recorder->next != NULL) {
        recorder->next->previous = recorder->previous;
    }
    if (recorder->previous != NULL) {
        recorder->previous->next = recorder->next;
    } else if (first == recorder) {
        first = recorder->next;
    }
    (void)pthread_mutex_unlock(&lock);
}
