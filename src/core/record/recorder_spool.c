/*
 * recorder_spool.c - where a recorder writes: a folder, or the spool of an address of a
 * store; and the spools that a dead process left.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"
#include "record/recorder_state.h"
#include "base/options.h"
#include "record/record_sink.h"

#include <sonde/text.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STORED_SECONDS = 5, PATH = 4096 };

#define SLOW 5.0 /* seconds that one system call may take on a busy disk */

static bool has_room(void *user)
{
    return sonde__store_spool_has_room(user);
}

/* --- opening a spool ---------------------------------------------------------------- */

/* A spool that is opened by a thread of its own: a system call on its folder may hang. */
typedef struct opening {
    char *url;
    sonde__store_writer place;
    sonde__store_progress progress;
    sonde__store_spool *spool;
    sonde_err err;
    sonde_diag diag;
    atomic_int leaving; /* SONDE__STAYS ... */
} opening;

static void free_opening(opening *self)
{
    if (self != NULL) {
        sonde__free(self->url);
        sonde__free(self);
    }
}

static void *open_it(void *user)
{
    opening *const self = user;

    self->err =
        sonde__store_spool_open(self->url, &self->place, &self->spool, &self->diag);
    if (atomic_exchange(&self->leaving, SONDE__ENDED) == SONDE__LEFT) {
        if (self->err == SONDE_OK) {
            sonde__store_spool_close(self->spool);
        }
        free_opening(self);
    }
    return NULL;
}

/* Waits for the thread. False if it does nothing for so long, and no request to the store
 * is under way: then the thread is left alone, and frees self. */
static bool wait_for_spool(opening *self, pthread_t thread, double most)
{
    static const struct timespec nap = {.tv_nsec = 2000000};
    uint64_t turns = 0;
    double since = sonde__now();

    while (atomic_load(&self->leaving) == SONDE__STAYS) {
        const uint64_t now_turns = atomic_load(&self->progress.turns);

        if (now_turns != turns || atomic_load(&self->progress.asking) > 0) {
            turns = now_turns;
            since = sonde__now();
        } else if (sonde__now() - since > most &&
                   atomic_exchange(&self->leaving, SONDE__LEFT) == SONDE__STAYS) {
            (void)pthread_detach(thread);
            return false;
        }
        (void)nanosleep(&nap, NULL);
    }
    (void)pthread_join(thread, NULL);
    return true;
}

static sonde_err start_opening(opening *self, pthread_t *thread, sonde_diag *diag)
{
    sigset_t all, before;

    (void)sigfillset(&all); /* the program handles signals */
    int failed = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (failed == 0) {
        failed = pthread_create(thread, NULL, open_it, self);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return failed == 0
               ? SONDE_OK
               : sonde__fail(diag, failed == EAGAIN ? SONDE_ENOMEM : SONDE_EIO, self->url,
                             NULL, "no thread can be started: %s", strerror(failed));
}

sonde_err sonde__recorder_open_spool(const char *url, const sonde__store_writer *place,
                                     double most, sonde__store_spool **out,
                                     sonde_diag *diag)
{
    opening *self = sonde__calloc(1, sizeof *self);
    pthread_t thread;
    sonde_err err = SONDE_OK;

    if (self == NULL || (self->url = sonde__strdup(url)) == NULL) {
        err = sonde__fail_nomem(diag, url);
        goto done;
    }
    self->place = *place;
    self->place.progress = &self->progress;
    SONDE__TRY_DONE(start_opening(self, &thread, diag));
    if (!wait_for_spool(self, thread, most)) {
        return sonde__fail(diag, SONDE_EIO, url, "a disk that answers",
                           "a system call on its spool has hung for %g s", most);
    }
    err = self->err;
    if (err == SONDE_OK) {
        *out = self->spool;
    } else if (diag != NULL) {
        *diag = self->diag;
    }

done:
    free_opening(self);
    return err;
}

/* --- creating ----------------------------------------------------------------------- */

/* A recorder in the spool of an address; segments are closed sooner, since only closed
 * files reach the store. */
static sonde_err create_stored(const sonde_recorder_options *options,
                               const sonde_catalogue *catalogue, sonde_recorder **out,
                               sonde_diag *diag)
{
    const sonde__store_writer place = {.rank = options->rank,
                                       .world = SONDE_MAX(options->world, 1),
                                       .resumes = options->resume != NULL};
    sonde_recorder_options local = *options;
    sonde__record_backend *backend = NULL;
    sonde__store_spool *spool = NULL;
    sonde_recorder *recorder = NULL;
    const double wait =
        options->wait_seconds > 0.0 ? options->wait_seconds : SONDE__RECORD_WAIT;
    sonde_err err =
        sonde__recorder_open_spool(options->path, &place, wait + SLOW, &spool, diag);

    local.segment_seconds =
        options->segment_seconds > 0.0 ? options->segment_seconds : STORED_SECONDS;
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY_GO(
        sonde__record_backend_local(sonde__store_spool_path(spool), &backend, diag));
    sonde__record_backend_limit(backend, has_room, spool);
    SONDE__TRY_GO(sonde__recorder_create_on(&local, catalogue, backend, &recorder, diag));
    SONDE__TRY_GO(sonde__store_spool_start(spool, recorder->writer.run,
                                           recorder->writer.run_size, diag));
    recorder->spool = spool;
    *out = recorder;
    return SONDE_OK;

error:
    (void)sonde__recorder_close(recorder, SONDE_RUN_FAILED, NULL, NULL);
    sonde__store_spool_close(spool);
    return err;
}

sonde_err sonde__recorder_create(const sonde_recorder_options *given,
                                 const sonde_catalogue *catalogue, sonde_recorder **out,
                                 sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "options, catalogue, out", given, catalogue, out);
    sonde_recorder_options taken;
    const sonde_recorder_options *const options = &taken;
    SONDE__TAKE(sonde_recorder_options, &taken, given, diag);
    sonde__record_backend *backend = NULL;
    SONDE__TRY(sonde__recorder_check(options, diag));
    if (sonde__store_is_address(options->path)) {
        return create_stored(options, catalogue, out, diag);
    }
    SONDE__TRY(sonde__record_backend_local(options->path, &backend, diag));
    return sonde__recorder_create_on(options, catalogue, backend, out, diag);
}

/* --- what a dead process left ------------------------------------------------------- */

/* Whether the state of a worker says that its run has ended. */
static bool has_ended(const char *folder, int rank)
{
    char path[PATH];
    bool ended = false, no_memory = false;

    (void)snprintf(path, sizeof path, "%s/w%04d/" SONDE__STATE_FILE, folder, rank);
    json_t *state = sonde__json_read_file(path, &no_memory);
    const char *status = json_string_value(json_object_get(state, "status"));
    ended = status != NULL && strcmp(status, "ended") == 0;
    json_decref(state);
    return ended;
}

static sonde_err recover_stored(const char *url, int rank, uint64_t *records,
                                sonde_diag *diag)
{
    const sonde__store_writer place = {
        .rank = rank, .world = 1, .resumes = true, .sends = true};
    sonde__store_spool *spool = NULL;
    char path[PATH], *folder = NULL;
    SONDE__TRY(sonde__store_spool_folder(url, &folder, diag));
    sonde_err err = SONDE_OK;
    (void)snprintf(path, sizeof path, "%s/w%04d", folder, rank);
    bool left = access(path, F_OK) == 0;
    sonde__free(folder);
    if (!left) {
        return sonde__fail(diag, SONDE_ENOTFOUND, url, "a run that this machine wrote",
                           "nothing of worker %d is left on this machine", rank);
    }
    SONDE__TRY(
        sonde__recorder_open_spool(url, &place, SONDE__RECORD_WAIT + SLOW, &spool, diag));
    *records = 0;
    if (!has_ended(sonde__store_spool_path(spool), rank)) {
        err = sonde__recorder_recover_folder(sonde__store_spool_path(spool), rank,
                                             records, diag);
    }
    if (err != SONDE_OK) {
        goto done;
    }
    SONDE__TRY_DONE(sonde__store_spool_start(spool, NULL, 0, diag));
    err = sonde__store_spool_finish(spool, diag);

done:
    sonde__store_spool_close(spool);
    return err;
}

sonde_err sonde_recorder_recover(const char *path, int rank, uint64_t *records,
                                 sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, records);
    return sonde__store_is_address(path)
               ? recover_stored(path, rank, records, diag)
               : sonde__recorder_recover_folder(path, rank, records, diag);
}

/* Files and bytes of a folder of a worker, without those that stay. */
static void count_files(const char *folder, sonde_spool *spool)
{
    DIR *open = opendir(folder);
    const struct dirent *entry = NULL;
    struct stat about;

    while (open != NULL && (entry = readdir(open)) != NULL) {
        const bool sent = entry->d_name[0] != '.' &&
                          strcmp(entry->d_name, SONDE__LOCK_FILE) != 0 &&
                          fstatat(dirfd(open), entry->d_name, &about, 0) == 0;

        if (sent && S_ISREG(about.st_mode)) {
            spool->files++;
            spool->bytes += (uint64_t)about.st_blocks * 512;
        }
    }
    if (open != NULL) {
        (void)closedir(open);
    }
}

/* Whether a process holds the lock of the worker. */
static bool is_locked(const char *folder)
{
    char path[PATH + 16];
    bool locked = false;

    (void)snprintf(path, sizeof path, "%s/" SONDE__LOCK_FILE, folder);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        locked = flock(fd, LOCK_EX | LOCK_NB) != 0;
        (void)close(fd);
    }
    return locked;
}

typedef struct spool_list {
    sonde_spool_seen *seen;
    void *user;
} spool_list;

static void see_spool(void *user, const char *url, const char *folder,
                      const char *endpoint)
{
    const spool_list *list = user;
    char path[PATH];
    const struct dirent *entry = NULL;

    (void)snprintf(path, sizeof path, "%s/run", folder);
    DIR *run = opendir(path);
    while (run != NULL && (entry = readdir(run)) != NULL) {
        sonde_spool spool = {.path = url, .folder = folder, .endpoint = endpoint};
        char *end = NULL;

        spool.rank = (int)strtol(entry->d_name + 1, &end, 10);
        if (entry->d_name[0] != 'w' || end == entry->d_name + 1 || *end != '\0') {
            continue;
        }
        (void)snprintf(path, sizeof path, "%s/run/%s", folder, entry->d_name);
        spool.in_use = is_locked(path);
        count_files(path, &spool);
        list->seen(list->user, &spool);
    }
    if (run != NULL) {
        (void)closedir(run);
    }
}

sonde_err sonde_recorder_spools(sonde_spool_seen *seen, void *user, sonde_diag *diag)
{
    SONDE__NEEDS_FUNCTION(diag, seen);
    spool_list list = {seen, user};

    return sonde__store_spools(see_spool, &list, diag);
}
