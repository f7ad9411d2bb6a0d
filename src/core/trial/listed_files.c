/*
 * listed_files.c - see trial_state.h.
 */
#include "trial/trial_state.h"
#include "base/memory.h"
#include "base/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 18 };

typedef struct line_reader {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const char *where;
    sonde_diag *diag;
} line_reader;

/* --- one file --------------------------------------------------------------------- */

static int read_piece(void *user, uint64_t offset, void *bytes, size_t size, size_t *got)
{
    errno = EIO;
    return sonde__trial_read_at(*(const int *)user, bytes, size, offset, got, "", NULL) !=
                   SONDE_OK
               ? errno
               : 0;
}

/* The catalogue and the generations, which later writers append to. */
static bool grows(const sonde__record_listed *line)
{
    uint64_t number = 0;
    bool part = false;

    return sonde__record_file_parse(line->name, &number, &part) == SONDE__FILE_OTHER;
}

static bool is_segment(const sonde__record_listed *line)
{
    uint64_t number = 0;
    bool part = false;

    return sonde__record_file_parse(line->name, &number, &part) == SONDE__FILE_SEGMENT;
}

static sonde_err check_hash(const line_reader *reader, const sonde__record_listed *line,
                            int fd, const char *where)
{
    sonde__trial_scratch *const buffer = &reader->trial->buffer;
    uint64_t hash = 0;

    if (!sonde__trial_scratch_reserve(buffer, PIECE)) {
        return sonde__fail_nomem(reader->diag, where);
    }
    const int failed = sonde__record_listed_hash(read_piece, &fd, line->covered,
                                                 buffer->bytes, PIECE, &hash);
    if (failed != 0) {
        sonde__trial_damage(&reader->trial->damage, where, "cannot be read: %s",
                            strerror(failed));
    } else if (hash != line->hash &&
               !sonde__trial_damage_has(&reader->trial->damage, where)) {
        sonde__trial_damage(&reader->trial->damage, where,
                            "%s differs from what was written (" SONDE__FILES_FILE ")",
                            is_segment(line) ? "its header" : "it");
    }
    return SONDE_OK;
}

static sonde_err check_open_file(const line_reader *reader,
                                 const sonde__record_listed *line, int fd,
                                 const char *where)
{
    const sonde_trial *trial = reader->trial;
    struct stat about = {0};
    uint64_t size = 0;

    if (fstat(fd, &about) == 0) {
        size = (uint64_t)about.st_size;
    }
    if (size < line->size || (size > line->size && !grows(line))) {
        if (sonde__trial_damage_has(&reader->trial->damage, where)) {
            return SONDE_OK;
        }
        sonde__trial_damage(&reader->trial->damage, where,
                            "%llu bytes, where " SONDE__FILES_FILE " says %llu",
                            (unsigned long long)size, (unsigned long long)line->size);
        return SONDE_OK;
    }
    return is_segment(line) && !trial->everything ? SONDE_OK
                                                  : check_hash(reader, line, fd, where);
}

/* Whether the worker writes no more. */
static bool is_over(const line_reader *reader)
{
    return reader->trial->ended || reader->worker->said_ended || reader->worker->crashed;
}

static sonde_err check_file(const line_reader *reader, const sonde__record_listed *line)
{
    sonde_trial *const trial = reader->trial;
    char path[SONDE__PATH], where[SONDE__PATH];
    sonde_diag why = {0};

    (void)sonde__trial_path(reader->worker->path, line->name, path);
    (void)sonde__trial_path(reader->worker->name, line->name, where);
    if (trial->copy != NULL && is_segment(line)) {
        if (!trial->everything) { /* its bytes come when they are asked for */
            return SONDE_OK;
        }
        if (sonde__store_fetch(path, 0, UINT64_MAX, &why) != SONDE_OK) {
            sonde__trial_damage(&trial->damage, where, "%s", why.found);
            return SONDE_OK;
        }
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && trial->copy != NULL && !is_over(reader)) {
        return SONDE_EBUSY; /* it is on its way to the store */
    }
    if (fd < 0) {
        sonde__trial_damage(&trial->damage, where,
                            "in " SONDE__FILES_FILE ", but cannot be opened: %s",
                            strerror(errno));
        return SONDE_OK;
    }
    sonde_err err = check_open_file(reader, line, fd, where);
    (void)close(fd);
    return err;
}

/* --- lines ------------------------------------------------------------------------ */

static uint64_t *listed_size(sonde__trial_worker *worker,
                             const sonde__record_listed *line)
{
    return strcmp(line->name, SONDE__CATALOGUE_FILE) == 0 ? &worker->listed_catalogue
                                                          : &worker->listed_generations;
}

static sonde_err take_line(void *user, char *text, size_t length)
{
    const line_reader *reader = user;
    sonde__trial_worker *const worker = reader->worker;
    sonde__record_listed line;
    uint64_t number = 0;
    bool part = false;
    sonde__record_file_kind kind = SONDE__FILE_OTHER;

    if (!sonde__record_listed_parse(text, length, &line)) {
        sonde__trial_damage_in(&reader->trial->damage, &worker->listed.bad, reader->where,
                               "line %llu: not a line of a file",
                               (unsigned long long)worker->listed.line);
        return SONDE_OK;
    }
    kind = sonde__record_file_parse(line.name, &number, &part);
    SONDE__TRY(check_file(reader, &line));
    if (kind != SONDE__FILE_OTHER ? number != worker->listed_next[kind]
                                  : line.size <= *listed_size(worker, &line)) {
        sonde__trial_damage_in(&reader->trial->damage, &worker->listed.bad, reader->where,
                               "line %llu: %s does not follow the lines before it",
                               (unsigned long long)worker->listed.line, line.name);
    }
    if (kind != SONDE__FILE_OTHER) {
        worker->listed_next[kind] = number + 1;
    } else {
        *listed_size(worker, &line) = line.size;
    }
    return SONDE_OK;
}

/* --- the list as a whole ---------------------------------------------------------- */

/* Notes files that exist and that the list lacks. */
static void check_unlisted(sonde_trial *trial, const sonde__trial_worker *worker)
{
    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        const sonde__trial_progress *const progress = &worker->progress[kind];
        char name[SONDE__FILE_NAME], where[SONDE__PATH];
        uint64_t number = progress->number;

        if (progress->listed_count > 0 &&
            (!progress->begun || progress->listed[progress->listed_count - 1] > number)) {
            number = progress->listed[progress->listed_count - 1];
        } else if (!progress->begun) {
            continue;
        }
        if (number >= worker->listed_next[kind] &&
            sonde__trial_has_file(worker->path, (sonde__record_file_kind)kind, number)) {
            sonde__record_file_name(name, (sonde__record_file_kind)kind, number, false);
            sonde__trial_damage(&trial->damage,
                                sonde__trial_path(worker->name, name, where),
                                "not in " SONDE__FILES_FILE);
        }
    }
}

static void check_catalogue(sonde_trial *trial, const sonde__trial_worker *worker)
{
    char path[SONDE__PATH], where[SONDE__PATH];
    struct stat about;

    (void)sonde__trial_path(worker->path, SONDE__CATALOGUE_FILE, path);
    if (stat(path, &about) == 0 && (uint64_t)about.st_size > worker->listed_catalogue) {
        sonde__trial_damage(
            &trial->damage, sonde__trial_path(worker->name, SONDE__CATALOGUE_FILE, where),
            "%lld bytes, where " SONDE__FILES_FILE " says %llu", (long long)about.st_size,
            (unsigned long long)worker->listed_catalogue);
    }
}

/* A writer that keeps a list seals these files; run.json may be of an older one. */
static void check_seals(sonde_trial *trial, const sonde__trial_worker *worker)
{
    if (worker->generation_count == 0 && !trial->run_sealed &&
        !sonde__trial_damage_has(&trial->damage, SONDE__RUN_FILE)) {
        sonde__trial_damage(&trial->damage, SONDE__RUN_FILE, "its checksum is missing");
    }
    if (trial->ended && !trial->end_sealed &&
        !sonde__trial_damage_has(&trial->damage, SONDE__END_FILE)) {
        sonde__trial_damage(&trial->damage, SONDE__END_FILE, "its checksum is missing");
    }
}

/* Once the worker writes no more. */
static void check_list(sonde_trial *trial, sonde__trial_worker *worker)
{
    const uint64_t lines = worker->listed.line;
    char where[SONDE__PATH];

    if (worker->list_checked || worker->no_state) {
        return;
    }
    worker->list_checked = true;
    if (worker->file_count < 0) { /* a run without a list, or without the file */
        if (lines > 0) {
            sonde__trial_damage(&trial->damage,
                                sonde__trial_path(worker->name, SONDE__STATE_FILE, where),
                                "missing, or older than " SONDE__FILES_FILE);
        }
        return;
    }
    check_seals(trial, worker);
    /* In a store, state.json may be ahead of the other files. */
    if (worker->said_ended
            ? lines != (uint64_t)worker->file_count
            : trial->copy == NULL && lines < (uint64_t)worker->file_count) {
        sonde__trial_damage(
            &trial->damage, sonde__trial_path(worker->name, SONDE__FILES_FILE, where),
            "%llu lines, where " SONDE__STATE_FILE " counts %llu",
            (unsigned long long)lines, (unsigned long long)worker->file_count);
    }
    if (worker->said_ended ? worker->generation != (int64_t)worker->generation_count
                           : worker->generation > (int64_t)worker->generation_count) {
        sonde__trial_damage(
            &trial->damage,
            sonde__trial_path(worker->name, SONDE__GENERATIONS_FILE, where),
            "%zu lines, where " SONDE__STATE_FILE " says %lld", worker->generation_count,
            (long long)worker->generation);
    }
    if (worker->said_ended) {
        check_unlisted(trial, worker);
        check_catalogue(trial, worker);
    }
}

sonde_err sonde__trial_listed_read(sonde_trial *trial, sonde__trial_worker *worker,
                                   sonde_diag *diag)
{
    char path[SONDE__PATH], where[SONDE__PATH];
    line_reader reader = {trial, worker, where, diag};
    bool found = false;

    (void)sonde__trial_path(worker->path, SONDE__FILES_FILE, path);
    (void)sonde__trial_path(worker->name, SONDE__FILES_FILE, where);
    SONDE__TRY(sonde__trial_read_lines(&trial->damage, &worker->listed, path, where,
                                       take_line, &reader, &found, diag));
    if (is_over(&reader)) {
        check_list(trial, worker);
    } else {
        worker->list_checked = false;
    }
    return SONDE_OK;
}

/* --- generations ------------------------------------------------------------------- */

typedef struct generation_reader {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const char *where;
    sonde_diag *diag;
} generation_reader;

/* Sets worker->limit for a file. */
static void set_limit(sonde__trial_worker *worker, sonde__record_file_kind kind,
                      uint64_t number)
{
    worker->limit = sonde__record_generation_limit(
        worker->generations, worker->generation_count, kind, number);
}

bool sonde__trial_counts(const sonde_trial *trial, sonde__trial_worker *worker,
                         int64_t global)
{
    if (!sonde__trial_in_range(trial, global)) {
        return false;
    }
    if (global < worker->limit) {
        return true;
    }
    worker->superseded++;
    return trial->everything;
}

/* --- removing what is superseded -------------------------------------------------- */

static void subtract_bytes(void *user, const sonde__trial_item *item)
{
    sonde_trial *trial = user;
    const sonde__trial_raw_item *raw = (const void *)item;
    const sonde__trial_layout *layout = &trial->layouts.items[raw->layout];
    const sonde_view view =
        sonde_view_of((sonde_dtype)layout->dtype, layout->rank, layout->shape, NULL);

    trial->bytes -= (uint64_t)sonde_view_count(&view) * sonde_dtype_size(view.dtype);
}

static void remove_ends(sonde_trial *trial, sonde__trial_worker *worker, int64_t global)
{
    for (size_t i = 0; i < worker->ended_count; i++) {
        sonde__trial_step *step = &trial->steps.items[i];

        if (worker->ended[i] != 0 && step->global >= global) {
            worker->ended[i] = 0;
            worker->superseded_steps++;
            step->ended--;
        }
    }
    worker->last_ended = global - 1; /* earlier steps have passed, for any writer */
}

/* Marks again at which steps something is saved, after items were removed. */
static void mark_saved(sonde_trial *trial, int64_t global)
{
    for (size_t i = 0; i < trial->steps.count; i++) {
        sonde__trial_step *step = &trial->steps.items[i];

        step->saved = step->saved && step->global < global;
    }
    for (size_t w = 0; w < trial->worker_count; w++) {
        for (int form = 0; form < SONDE_FORM_COUNT; form++) {
            const sonde__trial_items *items = &trial->workers[w]->items[form];

            for (size_t i = 0; i < items->block_count; i++) {
                trial->steps.items[items->blocks[i].step].saved = true;
            }
        }
    }
}

/* Removes what the worker recorded from a global step on. */
static void supersede(sonde_trial *trial, sonde__trial_worker *worker, int64_t global)
{
    for (int form = 0; form < SONDE_FORM_COUNT; form++) {
        sonde__trial_items *items = &worker->items[form];
        const uint32_t before = items->superseded;

        sonde__trial_items_supersede(items, &trial->steps, global,
                                     form == SONDE_FORM_RAW ? subtract_bytes : NULL,
                                     trial);
        worker->superseded += items->superseded - before;
    }
    remove_ends(trial, worker, global);
    mark_saved(trial, global);
    sonde__trial_steps_drop_empty(&trial->steps, global);
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        trial->lists[mode][0].valid = trial->lists[mode][1].valid = false;
    }
}

/* --- reading ---------------------------------------------------------------------- */

static sonde_err take_generation(void *user, char *text, size_t length)
{
    const generation_reader *reader = user;
    sonde__trial_worker *worker = reader->worker;
    sonde_trial *trial = reader->trial;
    sonde__record_generation line;

    if (!sonde__record_generation_parse(text, length, &line)) {
        sonde__trial_damage_in(&trial->damage, &worker->resumes.bad, reader->where,
                               "line %llu: not a generation",
                               (unsigned long long)worker->resumes.line);
        return SONDE_OK;
    }
    if (!sonde__reserve(&worker->generations, &worker->generation_capacity,
                        worker->generation_count + 1, sizeof *worker->generations) ||
        !sonde__reserve(&trial->cuts, &trial->cut_capacity, trial->cut_count + 1,
                        sizeof *trial->cuts)) {
        return sonde__fail_nomem(reader->diag, "the generations of a run");
    }
    worker->generations[worker->generation_count++] = line;
    trial->cuts[trial->cut_count++] = line.step;
    trial->changed = true;
    if (!trial->everything) {
        supersede(trial, worker, line.step);
    }
    return SONDE_OK;
}

sonde_err sonde__trial_generations_read(sonde_trial *trial, sonde__trial_worker *worker,
                                        sonde_diag *diag)
{
    char path[SONDE__PATH], where[SONDE__PATH];
    generation_reader reader = {trial, worker, where, diag};
    bool found = false;

    (void)sonde__trial_path(worker->path, SONDE__GENERATIONS_FILE, path);
    (void)sonde__trial_path(worker->name, SONDE__GENERATIONS_FILE, where);
    return sonde__trial_read_lines(&trial->damage, &worker->resumes, path, where,
                                   take_generation, &reader, &found, diag);
}

/* --- numbered files --------------------------------------------------------------- */

sonde_err sonde__trial_read_files(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde__record_file_kind kind,
                                  sonde__trial_read_fn *read_on, sonde_diag *diag)
{
    sonde__trial_progress *progress = &worker->progress[kind];

    for (;;) {
        uint64_t next = 0;
        const bool more = sonde__trial_progress_peek(worker->path, progress, kind, &next);
        sonde_err err = SONDE_OK;

        if (progress->begun) {
            set_limit(worker, kind, progress->number);
            err = read_on(trial, worker, kind, diag);
        }
        if (err != SONDE_OK || !more) {
            return err;
        }
        sonde__trial_progress_move(&trial->damage, worker->name, progress, kind, next);
        /* Written before the file: whose it is. */
        SONDE__TRY(sonde__trial_generations_read(trial, worker, diag));
    }
}
