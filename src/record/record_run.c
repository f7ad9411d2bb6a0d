/*
 * run.c - run.json and end.json, new runs and runs that are continued.
 *
 * Of several workers whoever comes first writes run.json; the others find it and join, each
 * with a folder of its own that must be new.
 */
#include "record/record_run.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/json.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static int ranks(const sonde_recorder_options *options)
{
    return options->world > 0 ? options->world : 1;
}

/* With the errno of a backend. */
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

/* --- run.json --------------------------------------------------------------------- */

/* The save schedules, as one line; NULL if they are no JSON object. Freed with free. */
static char *compact(const char *save)
{
    json_t *object = json_loads(save, JSON_REJECT_DUPLICATES, NULL);
    char *text = json_is_object(object) ? json_dumps(object, JSON_COMPACT) : NULL;

    json_decref(object);
    return text;
}

static sonde_err print_run(const sonde_recorder_options *options, sonde_text *text,
                           sonde_diag *diag)
{
    const char *const strings[][2] = {{"program", options->program},
                                      {"model", options->model},
                                      {"graph", options->graph}};
    sonde_json json = {.text = text};
    unsigned char lot[16];
    char id[2 * sizeof lot + 1], date[SONDE__DATE_TEXT], *save = NULL;

    if (getrandom(lot, sizeof lot, 0) != (ssize_t)sizeof lot) {
        return sonde__fail_errno(diag, options->path, "no random numbers for its id");
    }
    for (size_t i = 0; i < sizeof lot; i++) {
        (void)snprintf(id + 2 * i, 3, "%02x", (unsigned)lot[i]);
    }
    sonde_json_object(&json, NULL);
    sonde_json_int(&json, "sonde_run", SONDE__FORMAT_VERSION);
    sonde_json_string(&json, "id", id);
    sonde_json_string(&json, "created", sonde__date_text(date));
    sonde_json_int(&json, "world", ranks(options));
    for (size_t i = 0; i < SONDE_COUNT_OF(strings); i++) {
        if (strings[i][1] != NULL) {
            sonde_json_string(&json, strings[i][0], strings[i][1]);
        }
    }
    if (options->save != NULL) {
        save = compact(options->save);
        if (save == NULL) {
            return sonde__fail(diag, SONDE_EINVAL, "save", "a JSON object",
                               "text of another kind");
        }
        sonde_json_raw(&json, "save", save);
        free(save);
    }
    sonde_json_end(&json);
    sonde_text_add(text, "\n");
    return text->failed ? sonde__fail_nomem(diag, "run.json") : SONDE_OK;
}

/* What run.json says, as far as a writer must know. */
static sonde_err read_run(sonde__record_writer *writer,
                          const sonde_recorder_options *options, const char *id,
                          sonde_diag *diag)
{
    char *text = NULL;
    json_t *object = NULL;
    sonde_err err = SONDE_OK;
    const int failed = writer->backend->ops->load(writer->backend, SONDE__RUN_FILE, &text,
                                                  &writer->run_size);

    if (failed != 0) {
        return fail(diag, options, failed, "no run to go on with: run.json");
    }
    sonde__free(writer->run);
    writer->run = text;
    object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
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
    } else if ((world != NULL ? json_integer_value(world) : 1) != ranks(options)) {
        err = sonde__fail(diag, SONDE_EINVAL, options->path, "as many workers as it has",
                          "a world of %d, not %lld", ranks(options),
                          world != NULL ? (long long)json_integer_value(world) : 1LL);
    }
    json_decref(object);
    return err;
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

/* run.json is there already: by a worker of the same job? */
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
    sonde_err err = print_run(options, &text, diag);
    int failed = 0;

    writer->run = text.data;
    writer->run_size = text.length;
    if (err != SONDE_OK) {
        return err;
    }
    failed = backend->ops->make_folder(backend, "", &writer->made_run_folder);
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

/* What the last writer had lost. */
static void restore_losses(sonde__record_writer *writer)
{
    char path[SONDE__FILE_NAME * 2], *text = NULL;
    size_t size = 0;
    json_t *state = NULL, *lost = NULL;

    (void)snprintf(path, sizeof path, "%s/%s", writer->folder, SONDE__STATE_FILE);
    if (writer->backend->ops->load(writer->backend, path, &text, &size) != 0) {
        return;
    }
    state = json_loads(text, 0, NULL);
    lost = json_object_get(state, "lost");
    writer->ring_full_before =
        (uint64_t)json_integer_value(json_object_get(lost, "ring_full"));
    atomic_init(&writer->before.disk_full,
                (uint64_t)json_integer_value(json_object_get(lost, "disk_full")));
    atomic_init(&writer->before.io_error,
                (uint64_t)json_integer_value(json_object_get(lost, "io_error")));
    json_decref(state);
    sonde__free(text);
}

static sonde_err begin_again(sonde__record_writer *writer,
                             const sonde_recorder_options *options, sonde_diag *diag)
{
    sonde__record_backend *const backend = writer->backend;
    const bool any = strcmp(options->resume, SONDE_RESUME_ANY) == 0;
    bool made = false;
    sonde_err err = read_run(writer, options, any ? NULL : options->resume, diag);
    int failed = 0;

    if (err != SONDE_OK) {
        return err;
    }
    failed = backend->ops->make_folder(backend, writer->folder, &made);
    if (failed == 0) {
        failed = backend->ops->lock(backend, writer->folder);
    }
    if (failed != 0) {
        return fail(diag, options, failed, "the worker's folder cannot be used");
    }
    err = sonde__record_tensors_restore(&writer->tensors, options->path, diag);
    if (err == SONDE_OK) {
        err = sonde__record_run_recover(writer, options->path, diag);
    }
    if (err == SONDE_OK) {
        err = sonde__record_run_go_on(writer, options, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    restore_losses(writer);
    if (options->rank == 0) {
        failed = backend->ops->remove(backend, SONDE__END_FILE);
        failed = failed == ENOENT ? 0 : failed;
    }
    if (failed == 0) {
        failed = sonde__record_writer_beat(writer, true);
    }
    return failed == 0
               ? SONDE_OK
               : fail(diag, options, failed, "the worker's folder cannot be used");
}

/* Whether there is a run.json, or cannot be told to be none. */
static bool has_run(sonde__record_writer *writer)
{
    char *text = NULL;
    size_t size = 0;
    const int failed =
        writer->backend->ops->load(writer->backend, SONDE__RUN_FILE, &text, &size);

    sonde__free(text);
    return failed != ENOENT;
}

sonde_err sonde__record_run_begin(sonde__record_writer *writer,
                                  const sonde_recorder_options *options, sonde_diag *diag)
{
    writer->goes_on = options->resume != NULL &&
                      (strcmp(options->resume, SONDE_RESUME_ANY) != 0 || has_run(writer));
    return writer->goes_on ? begin_again(writer, options, diag)
                           : begin_new(writer, options, diag);
}

void sonde__record_run_undo(sonde__record_writer *writer)
{
    static const char *const files[] = {SONDE__STATE_FILE, SONDE__LOCK_FILE};
    sonde__record_backend *const backend = writer->backend;
    char path[SONDE__FILE_NAME * 2];

    if (writer->goes_on || backend == NULL) {
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

int sonde__record_run_end(sonde__record_writer *writer, sonde_run_end reason,
                          const char *text)
{
    static const char *const reasons[] = {"finished", "interrupted", "failed", "rule"};
    const sonde__record_counters *now = &writer->counters, *before = &writer->before;
    const size_t which = (size_t)reason;
    sonde_text end = {0};
    sonde_json json = {.text = &end};
    char date[SONDE__DATE_TEXT];
    int failed = ENOMEM;

    sonde_json_object(&json, NULL);
    sonde_json_string(&json, "reason",
                      which < SONDE_COUNT_OF(reasons) ? reasons[which] : "failed");
    sonde_json_string(&json, "text", text != NULL ? text : "");
    sonde_json_string(&json, "ended", sonde__date_text(date));
    sonde_json_int(
        &json, "last_step",
        SONDE_MAX(atomic_load(&now->last_step), atomic_load(&before->last_step)));
    sonde_json_end(&json);
    sonde_text_add(&end, "\n");
    if (!end.failed) {
        failed = writer->backend->ops->replace(writer->backend, SONDE__END_FILE, end.data,
                                               end.length, false, true);
    }
    sonde_text_fini(&end);
    return failed;
}
