/*
 * record_run.c - run.json, state.json and end.json; new runs and resumed ones.
 *
 * The first of several workers writes run.json; the others find it and join, each with a new
 * folder of its own.
 *
 * Resuming finds the global step at which the run continues, from which on older records are
 * superseded, and the next step of each mode. Valid steps are read from the files of steps,
 * which recovery has closed: of each generation those below the first step of every later
 * one.
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

/* --- run.json --------------------------------------------------------------------- */

/* The save schedules on one line, freed with free(); NULL if they are not a JSON object. */
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

/* Reads run.json, as far as a writer needs it. */
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
        return fail(diag, options, failed, "no run to resume: run.json");
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
    const int64_t last =
        SONDE_MAX(atomic_load_explicit(&now->last_step, memory_order_relaxed),
                  atomic_load_explicit(&before->last_step, memory_order_relaxed));
    sonde_json json = {.text = text};
    char date[SONDE__DATE_TEXT];

    sonde_json_object(&json, NULL);
    sonde_json_string(&json, "status", running ? "running" : "ended");
    sonde_json_int(&json, "pid", getpid());
    sonde_json_string(&json, "host", writer->host);
    sonde_json_string(&json, "heartbeat", sonde__date_text(date));
    sonde_json_int(&json, "last_step", last);
    sonde_json_uint(&json, "segment", writer->segment.number);
    sonde_json_uint(&json, "stats", writer->stats.number);
    sonde_json_uint(&json, "sketch", writer->sketches.number);
    sonde_json_uint(&json, "steps", writer->steps.number);
    sonde_json_uint(&json, "generation", writer->generation);
    sonde_json_uint(&json, "records", both(&now->records, &before->records));
    sonde_json_uint(&json, "bytes", both(&now->bytes, &before->bytes));
    sonde_json_uint(&json, "rows", both(&now->rows, &before->rows));
    sonde_json_object(&json, "lost");
    sonde_json_uint(&json, "ring_full",
                    atomic_load_explicit(&writer->ring_full, memory_order_relaxed) +
                        writer->ring_full_before);
    sonde_json_uint(&json, "disk_full", both(&now->disk_full, &before->disk_full));
    sonde_json_uint(&json, "io_error",
                    both(&now->io_error, &before->io_error) +
                        atomic_load_explicit(&writer->refused, memory_order_relaxed));
    sonde_json_end(&json);
    sonde_json_end(&json);
    sonde_text_add(text, "\n");
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

/* The losses of the last writer. */
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

/* Finds where the recovered run continues, and adds the line of its generation. */
static sonde_err resume(sonde__record_writer *writer,
                        const sonde_recorder_options *options, sonde_diag *diag);

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
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__record_run_recover(writer, options->path, diag);
    if (err != SONDE_OK) {
        return err;
    }
    err = resume(writer, options, diag);
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
    sonde_json_end(&json);
    sonde_text_add(&end, "\n");
    if (!end.failed) {
        failed = writer->backend->ops->replace(writer->backend, SONDE__END_FILE, end.data,
                                               end.length, false, true);
    }
    sonde_text_fini(&end);
    return failed;
}

/* --- resuming --------------------------------------------------------------------- */

typedef struct history {
    sonde__record_writer *writer;
    const char *where;
    sonde_diag *diag;
    sonde__record_generation *generations;
    size_t count, capacity;
    sonde_text lines;             /* of generations.jsonl */
    sonde__record_step_row *rows; /* of valid steps */
    size_t row_count, row_capacity;
} history;

static sonde_err resume_failed(const history *past, int failed, const char *path)
{
    char where[256];

    if (failed == ENOMEM) {
        return sonde__fail_nomem(past->diag, "resuming a run");
    }
    (void)snprintf(where, sizeof where, "%s/%s", past->where, path);
    errno = failed;
    return sonde__fail_errno(past->diag, where, "cannot be resumed");
}

static const char *history_path(const history *past, const char *name, char *path)
{
    (void)snprintf(path, SONDE__FILE_NAME * 2, "%s/%s", past->writer->folder, name);
    return path;
}

/* --- what is there ------------------------------------------------------------------ */

static sonde_err take_generation(history *past, const char *text, size_t length)
{
    if (!sonde__reserve(&past->generations, &past->capacity, past->count + 1,
                        sizeof *past->generations)) {
        return resume_failed(past, ENOMEM, "");
    }
    if (!sonde__record_generation_parse(text, length, &past->generations[past->count])) {
        return sonde__fail(past->diag, SONDE_EFORMAT, past->where, "generations",
                           "line %zu of %s/" SONDE__GENERATIONS_FILE " is damaged",
                           past->count + 1, past->writer->folder);
    }
    past->count++;
    return SONDE_OK;
}

static sonde_err read_generations(history *past)
{
    sonde__record_backend *const backend = past->writer->backend;
    char path[SONDE__FILE_NAME * 2], *text = NULL, *end = NULL;
    size_t size = 0;
    const int failed = backend->ops->load(
        backend, history_path(past, SONDE__GENERATIONS_FILE, path), &text, &size);
    sonde_err err = SONDE_OK;

    if (failed != 0) {
        return failed == ENOENT ? SONDE_OK : resume_failed(past, failed, path);
    }
    for (char *line = text;
         err == SONDE_OK &&
         (end = memchr(line, '\n', size - (size_t)(line - text))) != NULL;
         line = end + 1) {
        err = take_generation(past, line, (size_t)(end - line));
        sonde_text_put(&past->lines, line, (size_t)(end + 1 - line));
    }
    sonde__free(text);
    return err;
}

/* The valid rows of a file of steps. */
static sonde_err read_steps(history *past, uint64_t number)
{
    sonde__record_backend *const backend = past->writer->backend;
    const int64_t limit = sonde__record_generation_limit(past->generations, past->count,
                                                         SONDE__FILE_STEPS, number);
    char path[SONDE__FILE_NAME * 2], name[SONDE__FILE_NAME], *text = NULL;
    size_t size = 0;
    int failed = 0;

    sonde__record_file_name(name, SONDE__FILE_STEPS, number, false);
    failed = backend->ops->load(backend, history_path(past, name, path), &text, &size);
    if (failed != 0) { /* readers report a missing file */
        return failed == ENOENT ? SONDE_OK : resume_failed(past, failed, path);
    }
    for (size_t offset = SONDE__STEPS_HEAD;
         offset + SONDE__STEPS_ROW <= size && failed == 0; offset += SONDE__STEPS_ROW) {
        sonde__record_step_row row;

        memcpy(&row, text + offset, sizeof row);
        if (!sonde__record_step_valid(&row) || row.step >= limit) {
            continue;
        }
        if (sonde__reserve(&past->rows, &past->row_capacity, past->row_count + 1,
                           sizeof *past->rows)) {
            past->rows[past->row_count++] = row;
        } else {
            failed = ENOMEM;
        }
    }
    sonde__free(text);
    return failed == 0 ? SONDE_OK : resume_failed(past, failed, path);
}

/* --- where it continues ------------------------------------------------------------- */

/*
 * The global step of a mode's step. A step without a row is counted back from the next one
 * with a row, or else on from the last row: a step of another mode has a row between.
 */
static int64_t global_of(const history *past, sonde_mode mode, int64_t step)
{
    int64_t last = -1, next = 0; /* row; step of the mode */

    for (size_t i = 0; i < past->row_count; i++) {
        const sonde__record_step_row *row = &past->rows[i];

        if (row->mode == (uint32_t)mode && row->mode_step >= step) {
            return SONDE_MAX(row->step - (row->mode_step - step), 0);
        }
        next = row->mode == (uint32_t)mode ? row->mode_step + 1 : next;
        last = SONDE_MAX(last, row->step);
    }
    return last + 1 + (step - next);
}

static int64_t find_begin(const history *past, const sonde_recorder_options *options)
{
    int64_t last = -1;

    if (options->resume_step == SONDE_RESUME_ANEW) {
        return 0;
    }
    if (options->resume_step == SONDE_RESUME_BEHIND) {
        for (size_t i = 0; i < past->row_count; i++) {
            last = SONDE_MAX(last, past->rows[i].step);
        }
        return last + 1;
    }
    return options->resume_mode == SONDE_MODE_GLOBAL
               ? options->resume_step
               : global_of(past, options->resume_mode, options->resume_step);
}

/* The next step of each mode, if the run continues at a global step. */
static void count_modes(const history *past, const sonde_recorder_options *options,
                        int64_t begin)
{
    int64_t *const next = past->writer->next;
    int64_t last = -1;

    for (size_t i = 0; i < past->row_count; i++) {
        const sonde__record_step_row *row = &past->rows[i];

        if (row->step < begin) {
            next[row->mode] = SONDE_MAX(next[row->mode], row->mode_step + 1);
            last = SONDE_MAX(last, row->step);
        }
    }
    if (options->resume_step > 0) {
        next[options->resume_mode] = options->resume_step;
    }
    next[SONDE_MODE_GLOBAL] = begin;
    atomic_init(&past->writer->before.last_step, last);
}

/* Written before the first file of the generation. */
static sonde_err write_generation(history *past, int64_t begin)
{
    sonde__record_writer *const writer = past->writer;
    const uint64_t last = past->count > 0 ? past->generations[past->count - 1].number : 0;
    const sonde__record_generation line = {
        .number = last + 1,
        .step = begin,
        .time = sonde__date(),
        .first = {[SONDE__FILE_SEGMENT] = writer->segment.number,
                  [SONDE__FILE_INDEX] = writer->segment.number,
                  [SONDE__FILE_STATS] = writer->stats.number,
                  [SONDE__FILE_SKETCH] = writer->sketches.number,
                  [SONDE__FILE_STEPS] = writer->steps.number}};
    char path[SONDE__FILE_NAME * 2], text[SONDE__GENERATION_ROOM];
    int failed = ENOMEM;

    sonde_text_put(&past->lines, text, sonde__record_generation_print(&line, text));
    (void)history_path(past, SONDE__GENERATIONS_FILE, path);
    if (!past->lines.failed) {
        failed = writer->backend->ops->replace(writer->backend, path, past->lines.data,
                                               past->lines.length, false, true);
    }
    writer->generation = line.number;
    return failed == 0 ? SONDE_OK : resume_failed(past, failed, path);
}

/* A worker that has written nothing has nothing to supersede. */
static bool is_empty(const history *past)
{
    const sonde__record_writer *writer = past->writer;

    return past->count == 0 && writer->segment.number == 0 && writer->stats.number == 0 &&
           writer->sketches.number == 0 && writer->steps.number == 0;
}

static sonde_err resume(sonde__record_writer *writer,
                        const sonde_recorder_options *options, sonde_diag *diag)
{
    history past = {.writer = writer, .where = options->path, .diag = diag};
    sonde_err err = read_generations(&past);

    int64_t begin = 0;

    for (uint64_t n = 0; n < writer->steps.number && err == SONDE_OK; n++) {
        err = read_steps(&past, n);
    }
    if (err != SONDE_OK) {
        goto error;
    }
    begin = find_begin(&past, options);
    count_modes(&past, options, begin);
    err = is_empty(&past) ? SONDE_OK : write_generation(&past, begin);

error:
    sonde__free(past.generations);
    sonde__free(past.rows);
    sonde_text_fini(&past.lines);
    return err;
}
