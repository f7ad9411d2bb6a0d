/*
 * run_file.c - see trial_state.h.
 */
#include "trial/trial_state.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/recorder.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WORLD = 1 << 20 };

sonde_err sonde__trial_load_object(sonde_trial *trial, const char *where, bool *found,
                                   json_t **object, sonde_diag *diag)
{
    char path[SONDE__PATH];
    sonde_diag why = {0};
    json_error_t error;
    size_t size = 0;
    bool no_memory = false;
    const sonde_err err = sonde__trial_read_small(
        &trial->buffer, sonde__trial_path(trial->path, where, path), &size, &why);

    *object = NULL;
    *found = err != SONDE_ENOTFOUND;
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, path);
    }
    if (err != SONDE_OK) {
        if (*found) {
            sonde__trial_damage(&trial->damage, where, "%s", why.found);
        }
        return SONDE_OK;
    }
    *object =
        sonde__json_read((const char *)trial->buffer.bytes, size, 0, &error, &no_memory);
    if (no_memory) {
        return sonde__fail_nomem(diag, path);
    }
    if (sonde__record_seal_broken((const char *)trial->buffer.bytes, size) ||
        (json_object_get(*object, "run") != NULL && /* of the writers that seal */
         json_object_get(*object, "check") == NULL)) {
        sonde__trial_damage(&trial->damage, where, "it does not match its checksum");
    } else if (size > 0 && trial->buffer.bytes[size - 1] != '\n' &&
               json_object_get(*object, "check") != NULL) {
        sonde__trial_damage(&trial->damage, where, "its last newline is missing");
    }
    if (!json_is_object(*object)) {
        sonde__trial_damage(&trial->damage, where, "not a JSON object: %s",
                            *object == NULL ? error.text : "something else");
        json_decref(*object);
        *object = NULL;
    }
    return SONDE_OK;
}

/* Replaces *text by the string under key, if there is one. False: out of memory. */
static bool take_string(const json_t *object, const char *key, char **text)
{
    const char *value = json_string_value(json_object_get(object, key));

    if (value == NULL || (*text != NULL && strcmp(*text, value) == 0)) {
        return true;
    }
    char *copy = sonde__strdup(value);
    if (copy == NULL) {
        return false;
    }
    sonde__free(*text);
    *text = copy;
    return true;
}

static int64_t take_integer(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);

    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

/* --- run.json --------------------------------------------------------------------- */

static sonde_err read_version(sonde_trial *trial, const json_t *run, const char *path,
                              sonde_diag *diag)
{
    const int64_t version = take_integer(run, "sonde_run", -1);

    if (version > SONDE__FORMAT_VERSION) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, path, "version 1",
                           "a run of format version %lld", (long long)version);
    }
    if (version < 1) {
        sonde__trial_damage(&trial->damage, SONDE__RUN_FILE, "no usable \"sonde_run\"");
    }
    return SONDE_OK;
}

static sonde_err read_run(sonde_trial *trial, const json_t *run, const char *path,
                          sonde_diag *diag)
{
    const int64_t world = take_integer(run, "world", 1);
    SONDE__TRY(read_version(trial, run, path, diag));
    if (world < 1 || world > MOST_WORLD) {
        sonde__trial_damage(&trial->damage, SONDE__RUN_FILE, "\"world\" is %lld",
                            (long long)world);
    } else {
        trial->world = (int)world;
    }
    trial->run_sealed = json_object_get(run, "check") != NULL;
    if (!take_string(run, "id", &trial->id) ||
        !take_string(run, "program", &trial->program) ||
        !take_string(run, "model", &trial->model) ||
        !take_string(run, "created", &trial->created)) {
        return sonde__fail_nomem(diag, path);
    }
    return SONDE_OK;
}

sonde_err sonde__trial_run_read(sonde_trial *trial, bool *found, sonde_diag *diag)
{
    char path[SONDE__PATH];
    json_t *run = NULL;
    sonde_err err = sonde__trial_load_object(trial, SONDE__RUN_FILE, found, &run, diag);

    if (run != NULL) {
        err = read_run(trial, run, sonde__trial_path(trial->path, SONDE__RUN_FILE, path),
                       diag);
    }
    json_decref(run);
    return err;
}

/* --- times ------------------------------------------------------------------------ */

double sonde__trial_seconds(const char *text)
{
    struct tm when = {0};
    double fraction = 0.0;
    const char *rest = text != NULL ? strptime(text, "%Y-%m-%dT%H:%M:%S", &when) : NULL;

    if (rest == NULL) {
        return -1.0;
    }
    if (*rest == '.') {
        char *end = NULL;
        const unsigned long digits = strtoul(rest + 1, &end, 10);

        fraction = (double)digits;
        for (const char *c = rest + 1; c < end; c++) {
            fraction /= 10.0;
        }
    }
    return (double)timegm(&when) + fraction;
}

/* --- end.json --------------------------------------------------------------------- */

/* Notes a file that another run has left here. */
static bool is_other_run(sonde_trial *trial, const json_t *object, const char *where)
{
    const char *const run = json_string_value(json_object_get(object, "run"));

    if (run == NULL || trial->id == NULL || strcmp(run, trial->id) == 0) {
        return false;
    }
    sonde__trial_damage(&trial->damage, where, "of another run (%.64s)", run);
    return true;
}

sonde_err sonde__trial_end_read(sonde_trial *trial, sonde_diag *diag)
{
    char path[SONDE__PATH];
    bool found = false;
    json_t *end = NULL;
    struct stat about;
    const bool is_there =
        stat(sonde__trial_path(trial->path, SONDE__END_FILE, path), &about) == 0;

    if (trial->ended && !is_there) { /* the run was resumed */
        trial->ended = false;
        trial->changed = true;
    }
    if (trial->ended || !is_there) {
        return SONDE_OK;
    }
    sonde_err err = sonde__trial_load_object(trial, SONDE__END_FILE, &found, &end, diag);
    if (err != SONDE_OK || !found) {
        goto error;
    }
    if (end != NULL && (!take_string(end, "reason", &trial->end_reason) ||
                        !take_string(end, "text", &trial->end_text))) {
        err = sonde__fail_nomem(diag, path);
        goto error;
    }
    (void)is_other_run(trial, end, SONDE__END_FILE);
    trial->end_sealed = json_object_get(end, "check") != NULL;
    trial->ended = trial->changed = true; /* even if the file is damaged */
    trial->ended_at =
        sonde__trial_seconds(json_string_value(json_object_get(end, "ended")));
error:
    json_decref(end);
    return err;
}

/* --- state.json ------------------------------------------------------------------- */

static double now_seconds(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool has_process(int64_t pid)
{
    return pid > 0 && pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

typedef enum lock_state { LOCK_UNKNOWN, LOCK_FREE, LOCK_HELD } lock_state;

/* Whether a process holds the lock: of this machine, whatever its namespace of process
 * numbers; of another one only if the file system shares locks. */
static lock_state look_at_lock(const sonde__trial_worker *worker)
{
    char path[SONDE__PATH];
    const int lock = open(sonde__trial_path(worker->path, SONDE__LOCK_FILE, path),
                          O_RDONLY | O_CLOEXEC);
    lock_state state = LOCK_UNKNOWN;

    if (lock < 0) {
        return LOCK_UNKNOWN;
    }
    if (flock(lock, LOCK_SH | LOCK_NB) == 0) {
        state = LOCK_FREE;
    } else if (errno == EWOULDBLOCK) {
        state = LOCK_HELD;
    }
    (void)close(lock);
    return state;
}

static bool is_here(const sonde_trial *trial, const json_t *state)
{
    const char *host = json_string_value(json_object_get(state, "host"));

    return host != NULL && strcmp(host, trial->host) == 0;
}

/* Whether the heartbeat is old. Once this reader has seen it grow, by its own clock: that
 * of the writer's machine may be wrong, or be set. */
static bool is_old(sonde__trial_worker *worker, const json_t *state)
{
    const double beat =
        sonde__trial_seconds(json_string_value(json_object_get(state, "heartbeat")));
    const double now = sonde__now();

    if (beat != worker->beat || worker->beat_at <= 0.0) {
        worker->beats = worker->beat_at > 0.0 && beat > worker->beat;
        worker->beat = beat;
        worker->beat_at = now;
    }
    return now - worker->beat_at > SONDE__CRASHED_AFTER ||
           (!worker->beats && now_seconds() - beat > SONDE__CRASHED_AFTER);
}

static bool is_crashed(const sonde_trial *trial, sonde__trial_worker *worker,
                       const json_t *state)
{
    const bool old = is_old(worker, state);
    const bool here = is_here(trial, state);
    const bool runs = here && has_process(take_integer(state, "pid", 0));

    switch (look_at_lock(worker)) {
    case LOCK_HELD: /* perhaps stopped, or waiting for a disk */
        return false;
    case LOCK_FREE: /* a process of that number may be another one by now */
        return old || (here && !runs);
    case LOCK_UNKNOWN:
    default:
        return old && !runs;
    }
}

/* Without a state: whether the last write is too long ago. */
static bool is_silent(const sonde__trial_worker *worker)
{
    static const char *const names[] = {".", SONDE__CATALOGUE_FILE};
    char path[SONDE__PATH], name[SONDE__FILE_NAME];
    struct stat about;
    double latest = 0.0;

    sonde__record_file_name(name, SONDE__FILE_INDEX,
                            worker->progress[SONDE__FILE_INDEX].number, false);
    for (size_t i = 0; i <= SONDE_COUNT_OF(names); i++) {
        const char *file = i < SONDE_COUNT_OF(names) ? names[i] : name;

        if (stat(sonde__trial_path(worker->path, file, path), &about) == 0) {
            latest = SONDE_MAX(latest, (double)about.st_mtim.tv_sec);
        }
    }
    return now_seconds() - latest > SONDE__CRASHED_AFTER;
}

static uint64_t count_lost(const json_t *state)
{
    const json_t *lost = json_object_get(state, "lost");
    const char *cause = NULL;
    json_t *count = NULL;
    uint64_t all = 0;

    json_object_foreach((json_t *)(uintptr_t)lost, cause, count)
    {
        all += json_is_integer(count) && json_integer_value(count) > 0
                   ? (uint64_t)json_integer_value(count)
                   : 0;
    }
    return all;
}

/* Another process may recover the ring just now: its files are read afterwards. */
static sonde_err recover_in_turn(const sonde_trial *trial, sonde__trial_worker *worker,
                                 uint64_t *records, sonde_diag *diag)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    const int most = worker->waited ? 0 : 200; /* once: it may be a living writer */
    sonde_err err = sonde_recorder_recover(trial->path, worker->rank, records, diag);

    worker->waited = true;
    for (int i = 0; i < most && err == SONDE_EBUSY; i++) {
        (void)nanosleep(&pause, NULL);
        err = sonde_recorder_recover(trial->path, worker->rank, records, diag);
    }
    return err;
}

/*
 * Lets the records that a dead writer left in its ring be written into the files, before
 * they are read. True if that changed state.json.
 */
static bool recover_ring(sonde_trial *trial, sonde__trial_worker *worker, bool here)
{
    char path[SONDE__PATH], where[SONDE__PATH];
    uint64_t records = 0;
    sonde_diag why = {0};

    if (worker->no_ring ||
        access(sonde__trial_path(worker->path, SONDE__RING_FILE, path), F_OK) != 0) {
        return false;
    }
    (void)sonde__trial_path(worker->name, SONDE__RING_FILE, where);
    if (!here) {
        worker->no_ring = true;
        sonde__trial_torn(&trial->damage, where,
                          "its last records are recovered on the machine of the writer");
        return false;
    }
    sonde_err err = recover_in_turn(trial, worker, &records, &why);
    if (err == SONDE_EBUSY) {
        return false;
    }
    worker->no_ring = true;
    if (err != SONDE_OK) {
        sonde__trial_damage(&trial->damage, where,
                            "the last records cannot be recovered: %s", why.found);
    }
    return err == SONDE_OK;
}

static void check_owner(sonde_trial *trial, sonde__trial_worker *worker,
                        const json_t *state)
{
    char where[SONDE__PATH];
    const int64_t rank = take_integer(state, "worker", worker->rank);

    (void)sonde__trial_path(worker->name, SONDE__STATE_FILE, where);
    if (worker->no_match) {
        return;
    }
    worker->no_match = is_other_run(trial, state, where);
    if (!worker->no_match && rank != worker->rank) {
        worker->no_match = true;
        sonde__trial_damage(&trial->damage, where, "of another worker (%lld)",
                            (long long)rank);
    }
}

/* end.json is written right after the last state.json of worker 0. */
static void check_end(sonde_trial *trial, sonde__trial_worker *worker,
                      const json_t *state)
{
    const double beat =
        sonde__trial_seconds(json_string_value(json_object_get(state, "heartbeat")));
    const bool has_left = is_here(trial, state)
                              ? look_at_lock(worker) == LOCK_FREE ||
                                    !has_process(take_integer(state, "pid", 0))
                              : now_seconds() - beat > SONDE__CRASHED_AFTER;
    char path[SONDE__PATH];

    if (trial->ended || worker->rank != 0 || !worker->said_ended ||
        worker->file_count < 0 || worker->no_end || !has_left ||
        access(sonde__trial_path(trial->path, SONDE__END_FILE, path), F_OK) == 0) {
        return;
    }
    worker->no_end = true;
    sonde__trial_torn(&trial->damage, SONDE__END_FILE,
                      "missing, though worker 0 has ended");
}

/* The process that state.json names is gone, but a process holds the lock: it recovers
 * the run, or is a writer in another namespace. */
static bool is_left(const sonde_trial *trial, const sonde__trial_worker *worker,
                    const json_t *state)
{
    return is_here(trial, state) && !has_process(take_integer(state, "pid", 0)) &&
           look_at_lock(worker) == LOCK_HELD;
}

static void take_state(sonde_trial *trial, sonde__trial_worker *worker,
                       const json_t *state)
{
    const char *status = json_string_value(json_object_get(state, "status"));

    worker->said_ended = status != NULL && strcmp(status, "ended") == 0;
    worker->crashed = !worker->said_ended && is_crashed(trial, worker, state);
    worker->lost = count_lost(state);
    worker->put = take_integer(state, "put", -1);
    worker->file_count = take_integer(state, "files", -1);
    worker->generation = take_integer(state, "generation", 0);
    check_owner(trial, worker, state);
    check_end(trial, worker, state);
}

sonde_err sonde__trial_state_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag)
{
    char where[SONDE__PATH];
    const bool ended = worker->said_ended, crashed = worker->crashed;
    bool found = false;
    json_t *state = NULL;

    (void)sonde__trial_path(worker->name, SONDE__STATE_FILE, where);
    if (worker->no_state) { /* it was damaged, which was noted */
        worker->crashed = !worker->said_ended && is_silent(worker);
        return SONDE_OK;
    }
    SONDE__TRY(sonde__trial_load_object(trial, where, &found, &state, diag));
    worker->no_state = found && state == NULL;
    if (state != NULL) {
        take_state(trial, worker, state);
        if ((worker->said_ended || worker->crashed || is_left(trial, worker, state)) &&
            recover_ring(trial, worker, is_here(trial, state))) {
            json_decref(state);
            SONDE__TRY(sonde__trial_load_object(trial, where, &found, &state, diag));
            take_state(trial, worker, state);
        }
        json_decref(state);
    } else {
        worker->crashed = is_silent(worker);
    }
    if (ended != worker->said_ended || crashed != worker->crashed) {
        trial->changed = true;
    }
    return SONDE_OK;
}

/* --- status ----------------------------------------------------------------------- */

static sonde_run_status status_of(const sonde_trial *trial)
{
    int ended = 0, crashed = 0;

    for (size_t i = 0; i < trial->worker_count; i++) {
        ended += trial->workers[i]->said_ended;
        crashed += trial->workers[i]->crashed;
    }
    if (trial->ended || (ended > 0 && ended >= trial->world)) {
        return SONDE_RUN_ENDED;
    }
    return crashed > 0 && ended + crashed == (int)trial->worker_count ? SONDE_RUN_CRASHED
                                                                      : SONDE_RUN_RUNNING;
}

/* The last step that has a row: what a crashed writer wrote after it is a part of a
 * step. */
static int64_t last_ended_by_any(const sonde_trial *trial)
{
    int64_t last = -1;

    for (size_t i = 0; i < trial->worker_count; i++) {
        last = SONDE_MAX(last, trial->workers[i]->last_ended);
    }
    return last;
}

/* The last step that every worker which may still write has ended. */
static int64_t last_of_all(const sonde_trial *trial)
{
    int64_t last = INT64_MAX;

    if (trial->status == SONDE_RUN_CRASHED && trial->smdebug == NULL) {
        return last_ended_by_any(trial);
    }
    if (trial->status != SONDE_RUN_RUNNING) {
        return last;
    }
    if (trial->worker_count < (size_t)trial->world) {
        return -1;
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        const sonde__trial_worker *worker = trial->workers[i];

        if (!worker->said_ended && !worker->crashed) {
            last = SONDE_MIN(last, worker->last_ended);
        }
    }
    return last;
}

void sonde__trial_update_status(sonde_trial *trial)
{
    const sonde_run_status status = status_of(trial);

    if (status != trial->status) {
        trial->status = status;
        trial->changed = true;
    }
    trial->last_complete = last_of_all(trial);
}
