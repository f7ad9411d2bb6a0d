/*
 * record_run.c - run.json, state.json and end.json; new runs and resumed ones.
 *
 * The first of several workers writes run.json; the others find it and join, each with a
 * new folder of its own.
 */
#include "record/writer.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/json.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static int ranks(const sonde_recorder_options *options)
{
    return options->world > 0 ? options->world : 1;
}

/* failed: the errno of a backend. */
static sonde_err fail(sonde_diag *diag, const sonde_recorder_options *options, int failed,
                      const char *what)
{
    if (failed == EBUSY) {
        return sonde__fail(diag, SONDE_EBUSY, options->path,
                           "one process for each worker of a run",
                           "another process writes it");
    }
    if (failed == ENOTDIR) {
        return sonde__fail(diag, SONDE_EEXIST, options->path, "a folder",
                           "there is a file of that name");
    }
    errno = failed;
    return sonde__fail_errno(diag, options->path, what);
}

/* Ends a file of one JSON object. */
static void seal(sonde_text *text)
{
    sonde_text_add(text, "\n");
    if (sonde_text_reserve(text, text->length + SONDE__SEAL) == SONDE_OK &&
        !text->failed) {
        text->length = sonde__record_seal(text->data, text->length);
    }
}

/* --- run.json --------------------------------------------------------------------- */

/* The save schedules on one line, freed with free(). */
static sonde_err compact(const char *save, char **out, sonde_diag *diag)
{
    bool no_memory = false;
    json_t *object =
        sonde__json_read(save, strlen(save), JSON_REJECT_DUPLICATES, NULL, &no_memory);
    char *text = json_is_object(object) ? json_dumps(object, JSON_COMPACT) : NULL;
    const sonde_err err = text != NULL ? SONDE_OK
                          : no_memory || json_is_object(object)
                              ? sonde__fail_nomem(diag, "save")
                              : sonde__fail(diag, SONDE_EINVAL, "save", "a JSON object",
                                            "text of another kind");

    json_decref(object);
    *out = text;
    return err;
}

static sonde_err print_run(sonde__record_writer *writer,
                           const sonde_recorder_options *options, sonde_text *text,
                           sonde_diag *diag)
{
    const char *const strings[][2] = {{"program", options->program},
                                      {"model", options->model},
                                      {"graph", options->graph}};
    sonde_json json = {.text = text};
    unsigned char lot[16];
    char date[SONDE__DATE_TEXT], *save = NULL;

    if (getrandom(lot, sizeof lot, 0) != (ssize_t)sizeof lot) {
        return sonde__fail_errno(diag, options->path, "no random numbers for its id");
    }
    for (size_t i = 0; i < sizeof lot; i++) {
        (void)snprintf(writer->id + 2 * i, 3, "%02x", (unsigned)lot[i]);
    }
    sonde_json_object(&json, NULL);
    sonde_json_int(&json, "sonde_run", SONDE__FORMAT_VERSION);
    sonde_json_string(&json, "id", writer->id);
    sonde_json_string(&json, "created", sonde__date_text(date));
    sonde_json_int(&json, "world", ranks(options));
    for (size_t i = 0; i < SONDE_COUNT_OF(strings); i++) {
        if (strings[i][1] != NULL) {
            sonde_json_string(&json, strings[i][0], strings[i][1]);
        }
    }
    if (options->save != NULL) {
        SONDE__TRY(compact(options->save, &save, diag));
        sonde_json_raw(&json, "save", save);
        free(save);
    }
    sonde_json_end(&json);
    seal(text);
    return text->failed ? sonde__fail_nomem(diag, "run.json") : SONDE_OK;
}

/* Reads run.json, as far as a writer needs it. */
static sonde_err read_run(sonde__record_writer *writer,
                          const sonde_recorder_options *options, const char *id,
                          sonde_diag *diag)
{
    char *text = NULL;
    json_t *object = NULL;
    bool no_memory = false;
    sonde_err err = SONDE_OK;
    const int failed = writer->backend->ops->load(writer->backend, SONDE__RUN_FILE, &text,
                                                  &writer->run_size);

    if (failed != 0) {
        return fail(diag, options, failed, "no run to resume: run.json");
    }
    sonde__free(writer->run);
    writer->run = text;
    object =
        sonde__json_read(text, strlen(text), JSON_REJECT_DUPLICATES, NULL, &no_memory);
    if (no_memory) {
        return sonde__fail_nomem(diag, options->path);
    }
    const json_int_t version = json_integer_value(json_object_get(object, "sonde_run"));
    const json_t *const world = json_object_get(object, "world");
    const char *const found = json_string_value(json_object_get(object, "id"));

    if (version < 1 || found == NULL) {
        err = sonde__fail(diag, SONDE_EFORMAT, options->path, "sonde_run and id",
                          "run.json is damaged or of another kind");
    } else if (version > SONDE__FORMAT_VERSION) {
        err = sonde__fail(diag, SONDE_EUNSUPPORTED, options->path, "format 1",
                          "a run of format %lld", (long long)version);
    } else if (id != NULL && strcmp(id, found) != 0) {
        err = sonde__fail(diag, SONDE_EINVAL, options->path, found, "its id is not '%s'",
                          id);
    } else if (options->world >= 0 &&
               (world != NULL ? json_integer_value(world) : 1) != ranks(options)) {
        err = sonde__fail(diag, SONDE_EINVAL, options->path, "as many workers as it has",
                          "a world of %d, not %lld", ranks(options),
                          world != NULL ? (long long)json_integer_value(world) : 1LL);
    }
    if (found != NULL) {
        (void)snprintf(writer->id, sizeof writer->id, "%s", found);
    }
    json_decref(object);
    return err;
}

/* --- state.json ------------------------------------------------------------------- */

static uint64_t both(const _Atomic uint64_t *now, const _Atomic uint64_t *before)
{
    return atomic_load_explicit(now, memory_order_relaxed) +
           atomic_load_explicit(before, memory_order_relaxed);
}

static void print_state(const sonde__record_writer *writer, bool running,
                        sonde_text *text)
{
    const sonde__record_counters *now = &writer->counters, *before = &writer->before;
    sonde__record_ring_head *const head = writer->ring->shared;
    const int64_t last =
        SONDE_MAX(atomic_load_explicit(&now->last_step, memory_order_relaxed),
                  atomic_load_explicit(&before->last_step, memory_order_relaxed));
    sonde_json json = {.text = text};
    char date[SONDE__DATE_TEXT];

    sonde_json_object(&json, NULL);
    sonde_json_string(&json, "status", running ? "running" : "ended");
    sonde_json_int(&json, "pid", writer->pid);
    sonde_json_string(&json, "host", writer->host);
    sonde_json_string(&json, "heartbeat",
                      writer->heartbeat[0] != '\0' ? writer->heartbeat
                                                   : sonde__date_text(date));
    sonde_json_int(&json, "last_step", last);
    sonde_json_uint(&json, "segment", writer->segment.number);
    sonde_json_uint(&json, "stats", sonde__record_number(writer, SONDE__FILE_STATS));
    sonde_json_uint(&json, "sketch", sonde__record_number(writer, SONDE__FILE_SKETCH));
    sonde_json_uint(&json, "steps", sonde__record_number(writer, SONDE__FILE_STEPS));
    sonde_json_uint(&json, "files", writer->files.count);
    sonde_json_string(&json, "run", writer->id);
    sonde_json_int(&json, "worker", writer->segment.rank);
    sonde_json_uint(&json, "generation", writer->generation);
    sonde_json_uint(&json, "records", both(&now->records, &before->records));
    sonde_json_uint(&json, "bytes", both(&now->bytes, &before->bytes));
    sonde_json_uint(
        &json, "rows",
        both(&now->items[SONDE__STREAM_ROWS], &before->items[SONDE__STREAM_ROWS]));
    sonde_json_uint(&json, "sketches",
                    both(&now->items[SONDE__STREAM_SKETCHES],
                         &before->items[SONDE__STREAM_SKETCHES]));
    sonde_json_uint(&json, "put",
                    atomic_load_explicit(&head->put, memory_order_relaxed) +
                        writer->put_before);
    sonde_json_object(&json, "lost");
    sonde_json_uint(&json, "ring_full",
                    atomic_load_explicit(&head->full, memory_order_relaxed) +
                        writer->ring_full_before);
    sonde_json_uint(&json, "disk_full", both(&now->disk_full, &before->disk_full));
    sonde_json_uint(&json, "io_error",
                    both(&now->io_error, &before->io_error) +
                        atomic_load_explicit(&head->refused, memory_order_relaxed));
    sonde_json_end(&json);
    sonde_json_end(&json);
    seal(text);
}

int sonde__record_writer_beat(sonde__record_writer *writer, bool running)
{
    sonde_text text = {0};
    char path[SONDE__FILE_NAME * 2];
    int failed = ENOMEM;

    (void)snprintf(path, sizeof path, "%s/%s", writer->folder, SONDE__STATE_FILE);
    print_state(writer, running, &text);
    if (!text.failed) {
        failed = writer->backend->ops->replace(writer->backend, path, text.data,
                                               text.length, false, !running);
    }
    sonde_text_fini(&text);
    if (failed == 0) {
        writer->changed = false;
    }
    return failed;
}

/* --- a new run -------------------------------------------------------------------- */

typedef struct contents {
    bool foreign; /* something that is neither a worker's folder nor run.json */
    bool ended;
} contents;

static void look_at(void *user, const char *name)
{
    contents *const seen = user;

    if (strcmp(name, SONDE__END_FILE) == 0) {
        seen->ended = true;
    } else if (strcmp(name, SONDE__RUN_FILE) != 0 &&
               sonde__record_worker_of_folder(name) < 0 &&
               strncmp(name, SONDE__RUN_FILE, strlen(SONDE__RUN_FILE)) != 0) {
        seen->foreign = true;
    }
}

static sonde_err taken(sonde_diag *diag, const sonde_recorder_options *options,
                       const char *what)
{
    return sonde__fail(diag, SONDE_EEXIST, options->path,
                       "a path that is new, or an empty folder", "%s", what);
}

/* run.json exists already: of a worker of the same job? */
static sonde_err join_run(sonde__record_writer *writer,
                          const sonde_recorder_options *options, sonde_diag *diag)
{
    if (ranks(options) == 1) {
        return taken(diag, options, "a run is there already");
    }
    return read_run(writer, options, NULL, diag);
}

static sonde_err begin_new(sonde__record_writer *writer,
                           const sonde_recorder_options *options, sonde_diag *diag)
{
    sonde__record_backend *const backend = writer->backend;
    sonde_text text = {0};
    contents seen = {0};
    bool made = false;
    sonde_err err = print_run(writer, options, &text, diag);

    writer->run = text.data;
    writer->run_size = text.length;
    if (err != SONDE_OK) {
        return err;
    }
    int failed = backend->ops->make_folder(backend, "", &writer->made_run_folder);
    sonde__record_writer_note(writer);
    if (failed == 0) {
        failed = backend->ops->list(backend, "", look_at, &seen);
    }
    if (failed != 0) {
        return fail(diag, options, failed, "cannot be made");
    }
    if (seen.ended || seen.foreign) {
        return taken(diag, options,
                     seen.ended ? "a run is there already" : "the folder is not empty");
    }
    failed = backend->ops->replace(backend, SONDE__RUN_FILE, writer->run,
                                   writer->run_size, true, true);
    sonde__record_writer_note(writer);
    writer->made_run = failed == 0;
    if (failed == EEXIST) {
        err = join_run(writer, options, diag);
    } else if (failed != 0) {
        err = fail(diag, options, failed, "run.json cannot be written");
    }
    if (err != SONDE_OK) {
        return err;
    }
    failed = backend->ops->make_folder(backend, writer->folder, &made);
    writer->made_worker = made;
    if (failed == 0 && !made) {
        return taken(diag, options, "a worker of this rank is there already");
    }
    if (failed == 0) {
        failed = backend->ops->lock(backend, writer->folder);
    }
    if (failed == 0) {
        failed = sonde__record_writer_beat(writer, true);
    }
    return failed == 0
               ? SONDE_OK
               : fail(diag, options, failed, "the worker's folder cannot be used");
}

/* --- going on --------------------------------------------------------------------- */

/* state.json of the last writer, to be freed; *state is NULL if there is none. */
static sonde_err load_state(sonde__record_writer *writer,
                            const sonde_recorder_options *options, json_t **state,
                            sonde_diag *diag)
{
    char path[SONDE__FILE_NAME * 2], *text = NULL;
    size_t size = 0;
    bool no_memory = false;

    (void)snprintf(path, sizeof path, "%s/%s", writer->folder, SONDE__STATE_FILE);
    const int failed = writer->backend->ops->load(writer->backend, path, &text, &size);
    *state = NULL;
    if (failed != 0) {
        return failed == ENOENT
                   ? SONDE_OK
                   : fail(diag, options, failed, "state.json cannot be read");
    }
    *state = sonde__json_read(text, strlen(text), 0, NULL, &no_memory);
    sonde__free(text);
    return no_memory ? sonde__fail_nomem(diag, options->path) : SONDE_OK;
}

/* The losses of the last writer. */
static sonde_err restore_losses(sonde__record_writer *writer,
                                const sonde_recorder_options *options, sonde_diag *diag)
{
    json_t *state = NULL, *lost = NULL;
    const sonde_err err = load_state(writer, options, &state, diag);

    if (err != SONDE_OK || state == NULL) {
        sonde__record_salvage_settle(writer);
        return err;
    }
    lost = json_object_get(state, "lost");
    writer->ring_full_before =
        (uint64_t)json_integer_value(json_object_get(lost, "ring_full"));
    atomic_init(&writer->before.disk_full,
                (uint64_t)json_integer_value(json_object_get(lost, "disk_full")));
    atomic_init(&writer->before.io_error,
                (uint64_t)json_integer_value(json_object_get(lost, "io_error")));
    const char *host = json_string_value(json_object_get(state, "host"));
    json_int_t put = json_integer_value(json_object_get(state, "put"));
    /* its ring was in memory, or is damaged; on another machine it may be whole, and the
     * records in its spool are superseded */
    if (host != NULL && strcmp(host, writer->host) == 0 && put > 0) {
        writer->put_before = (uint64_t)put;
    }
    json_decref(state);
    sonde__record_salvage_settle(writer);
    return SONDE_OK;
}

/* Writes the end.json that a writer owed when it died while it closed the run. */
static sonde_err end_for(sonde__record_writer *writer,
                         const sonde_recorder_options *options, uint32_t reason,
                         sonde_diag *diag)
{
    char *text = NULL;
    size_t size = 0;

    if (!writer->ends || writer->backend->ops->load(writer->backend, SONDE__END_FILE,
                                                    &text, &size) != ENOENT) {
        sonde__free(text);
        return SONDE_OK;
    }
    writer->reason = (sonde_run_end)reason;
    const int failed = sonde__record_run_end(writer);
    return failed == 0 ? SONDE_OK
                       : fail(diag, options, failed, "end.json cannot be written");
}

static sonde_err restore_list(sonde__record_writer *writer,
                              const sonde_recorder_options *options, sonde_diag *diag)
{
    int failed = 0, attempts = 0;

    do {
        sonde__record_file_list_fini(&writer->files);
        sonde__record_file_list_init(&writer->files, writer->backend, writer->folder);
        failed = sonde__record_file_list_restore(&writer->files);
    } while (sonde__record_try_again(&attempts, failed));
    return failed == 0 ? SONDE_OK
                       : fail(diag, options, failed,
                              "the list of its files (" SONDE__FILES_FILE ")");
}

static int add_closed(sonde__record_writer *writer)
{
    for (int i = 0; i < SONDE__FILE_OTHER; i++) {
        const sonde__record_file_kind kind = (sonde__record_file_kind)i;

        sonde__record_writer_note(writer);
        SONDE__TRY_ERRNO(sonde__record_file_list_add(&writer->files, kind,
                                                     sonde__record_number(writer, kind)));
    }
    return sonde__record_file_list_commit(&writer->files);
}

static sonde_err list_closed(sonde__record_writer *writer,
                             const sonde_recorder_options *options, sonde_diag *diag)
{
    int failed = 0, attempts = 0;

    do {
        failed = add_closed(writer);
    } while (sonde__record_try_again(&attempts, failed));
    return failed == 0 ? SONDE_OK
                       : fail(diag, options, failed,
                              "the list of its files (" SONDE__FILES_FILE ")");
}

/* Closes the files of a dead writer, and writes what it left in its ring. */
static sonde_err recover(sonde__record_writer *writer,
                         const sonde_recorder_options *options, sonde_diag *diag)
{
    const char *const where = options->path;
    SONDE__TRY(sonde__record_salvage_find(writer, where, diag));
    SONDE__TRY(sonde__record_run_recover(writer, where, diag));
    sonde_err err = list_closed(writer, options, diag); /* before the files that follow */
    if (err != SONDE_OK) {
        return err;
    }
    if (!writer->has_mark) {
        SONDE__TRY(restore_losses(writer, options, diag));
    }
    return sonde__record_salvage_finish(writer, where, &writer->salvaged, diag);
}

/*
 * Restores the worker's tensors, closes its files and writes what a dead writer left in
 * its ring; then state.json, after which the ring is not needed. before_state is called
 * in between.
 */
static sonde_err with_old_ring(
    sonde__record_writer *writer, const sonde_recorder_options *options,
    sonde_err (*before_state)(sonde__record_writer *writer,
                              const sonde_recorder_options *options, sonde_diag *diag),
    sonde_diag *diag)
{
    sonde__record_ring *const own = writer->ring;
    sonde__record_ring old;
    bool running = true;
    int failed = 0;
    sonde_err err = sonde__record_ring_init(&old, 1);

    if (err != SONDE_OK) {
        return sonde__fail_nomem(diag, "the ring of a run");
    }
    writer->ring = &old;
    SONDE__TRY_GO(sonde__record_tensors_restore(&writer->tensors, options->path, diag));
    SONDE__TRY_GO(restore_list(writer, options, diag));
    SONDE__TRY_GO(recover(writer, options, diag));
    SONDE__TRY_GO(before_state(writer, options, diag));
    running = writer->heartbeat[0] == '\0' || atomic_load(&old.shared->closing) == 0;
    writer->ring = own;
    failed = sonde__record_writer_beat(writer, running);
    if (failed != 0) {
        err = fail(diag, options, failed, "state.json cannot be written");
        goto error;
    }
    if (!running) {
        SONDE__TRY_GO(end_for(writer, options, atomic_load(&old.shared->reason), diag));
    }
    sonde__record_ring_remove(&old);

error:
    writer->ring = own;
    sonde__record_ring_fini(&old);
    return err;
}

/* A reader that recovers the run holds the lock for a moment. */
static int wait_for_lock(sonde__record_writer *writer)
{
    int failed = 0, attempts = 0;

    do {
        failed = writer->backend->ops->lock(writer->backend, writer->folder);
    } while (failed == EBUSY && sonde__record_try_again(&attempts, EAGAIN));
    return failed;
}

static sonde_err begin_again(sonde__record_writer *writer,
                             const sonde_recorder_options *options, sonde_diag *diag)
{
    sonde__record_backend *const backend = writer->backend;
    const bool any = strcmp(options->resume, SONDE_RESUME_ANY) == 0;
    bool made = false;
    SONDE__TRY(read_run(writer, options, any ? NULL : options->resume, diag));
    int failed = backend->ops->make_folder(backend, writer->folder, &made);
    if (failed == 0) {
        failed = wait_for_lock(writer);
    }
    if (failed != 0) {
        return fail(diag, options, failed, "the worker's folder cannot be used");
    }
    sonde_err err = with_old_ring(writer, options, sonde__record_run_resume, diag);
    if (err != SONDE_OK || options->rank != 0) {
        return err;
    }
    failed = backend->ops->remove(backend, SONDE__END_FILE);
    return failed == 0 || failed == ENOENT
               ? SONDE_OK
               : fail(diag, options, failed, "end.json cannot be removed");
}

/* False only if there is certainly no run.json. */
static bool has_run(sonde__record_writer *writer)
{
    char *text = NULL;
    size_t size = 0;
    const int failed =
        writer->backend->ops->load(writer->backend, SONDE__RUN_FILE, &text, &size);

    sonde__free(text);
    return failed != ENOENT;
}

/* state.json keeps the process that it names: the dead one. */
static sonde_err keep_process(sonde__record_writer *writer,
                              const sonde_recorder_options *options, sonde_diag *diag)
{
    json_t *state = NULL;
    const char *host = NULL, *beat = NULL;
    SONDE__TRY(load_state(writer, options, &state, diag));
    (void)snprintf(writer->heartbeat, sizeof writer->heartbeat,
                   "1970-01-01T00:00:00.000000Z");
    host = json_string_value(json_object_get(state, "host"));
    beat = json_string_value(json_object_get(state, "heartbeat"));
    writer->pid = json_integer_value(json_object_get(state, "pid"));
    writer->generation =
        (uint64_t)json_integer_value(json_object_get(state, "generation"));
    const int64_t last = json_integer_value(json_object_get(state, "last_step"));
    if (host != NULL && beat != NULL) {
        (void)snprintf(writer->host, sizeof writer->host, "%s", host);
        (void)snprintf(writer->heartbeat, sizeof writer->heartbeat, "%s", beat);
    }
    if (state != NULL) {
        atomic_store(&writer->before.last_step,
                     SONDE_MAX(atomic_load(&writer->before.last_step), last));
    }
    json_decref(state);
    return SONDE_OK;
}

sonde_err sonde__record_run_salvage(sonde__record_writer *writer,
                                    const sonde_recorder_options *options,
                                    sonde_diag *diag)
{
    sonde__record_backend *const backend = writer->backend;
    char ring[SONDE__FILE_NAME * 2];
    SONDE__TRY(read_run(writer, options, NULL, diag));
    const int failed = backend->ops->lock(backend, writer->folder);
    if (failed != 0) {
        return fail(diag, options, failed, "the worker's folder cannot be used");
    }
    (void)snprintf(ring, sizeof ring, "%s/%s", writer->folder, SONDE__RING_FILE);
    if (backend->ops->place == NULL ||
        access(backend->ops->place(backend, ring), F_OK) != 0) {
        return SONDE_OK; /* another process was faster */
    }
    return with_old_ring(writer, options, keep_process, diag);
}

sonde_err sonde__record_run_begin(sonde__record_writer *writer,
                                  const sonde_recorder_options *options, sonde_diag *diag)
{
    writer->resumes = options->resume != NULL &&
                      (strcmp(options->resume, SONDE_RESUME_ANY) != 0 || has_run(writer));
    return writer->resumes ? begin_again(writer, options, diag)
                           : begin_new(writer, options, diag);
}

void sonde__record_run_undo(sonde__record_writer *writer)
{
    static const char *const files[] = {SONDE__STATE_FILE, SONDE__LOCK_FILE};
    sonde__record_backend *const backend = writer->backend;
    char path[SONDE__FILE_NAME * 2];

    if (writer->resumes || backend == NULL) {
        return;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(files) && writer->made_worker; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", writer->folder, files[i]);
        (void)backend->ops->remove(backend, path);
    }
    if (writer->made_worker) {
        (void)backend->ops->remove_folder(backend, writer->folder);
    }
    if (writer->made_run) {
        (void)backend->ops->remove(backend, SONDE__RUN_FILE);
    }
    if (writer->made_run_folder) {
        (void)backend->ops->remove_folder(backend, "");
    }
}

/* --- the end ---------------------------------------------------------------------- */

int sonde__record_run_end(sonde__record_writer *writer)
{
    static const char *const reasons[] = {"finished", "interrupted", "failed", "rule"};
    const sonde__record_counters *now = &writer->counters, *before = &writer->before;
    const size_t which = (size_t)writer->reason;
    sonde_text end = {0};
    sonde_json json = {.text = &end};
    char date[SONDE__DATE_TEXT];
    int failed = ENOMEM;

    sonde_json_object(&json, NULL);
    sonde_json_string(&json, "reason",
                      which < SONDE_COUNT_OF(reasons) ? reasons[which] : "failed");
    sonde_json_string(&json, "text", writer->text != NULL ? writer->text : "");
    sonde_json_string(&json, "ended", sonde__date_text(date));
    sonde_json_int(
        &json, "last_step",
        SONDE_MAX(atomic_load(&now->last_step), atomic_load(&before->last_step)));
    sonde_json_string(&json, "run", writer->id);
    sonde_json_end(&json);
    seal(&end);
    if (!end.failed) {
        failed = writer->backend->ops->replace(writer->backend, SONDE__END_FILE, end.data,
                                               end.length, false, true);
    }
    sonde_text_fini(&end);
    return failed;
}
