/*
 * record_resume.c - where a resumed run continues.
 *
 * Resuming finds the global step at which the run continues, from which on older records
 * are superseded, and the next step of each mode. Valid steps are read from the files of
 * steps, which recovery has closed: of each generation those below the first step of
 * every later one.
 */
#include "record/writer.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
         (end = memchr(line, '\n', size - (size_t)(line - text))) != NULL;
         line = end + 1) {
        err = take_generation(past, line, (size_t)(end - line));
        if (err != SONDE_OK) {
            break;
        }
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

    sonde__record_file_name(name, SONDE__FILE_STEPS, number, false);
    int failed =
        backend->ops->load(backend, history_path(past, name, path), &text, &size);
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
 * The global step of a mode's step. A step without a row is counted back from the next
 * one with a row, or else on from the last row: a step of another mode has a row
 * between.
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
    sonde__record_generation line = {
        .number = last + 1, .step = begin, .time = sonde__date()};

    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        line.first[kind] = sonde__record_number(writer, (sonde__record_file_kind)kind);
    }
    char path[SONDE__FILE_NAME * 2], text[SONDE__GENERATION_ROOM];
    int failed = ENOMEM;

    sonde_text_put(&past->lines, text,
                   sonde__record_seal(text, sonde__record_generation_print(&line, text)));
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

    uint64_t files = past->count;

    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        files += sonde__record_number(writer, (sonde__record_file_kind)kind);
    }
    return files == 0;
}

sonde_err sonde__record_run_resume(sonde__record_writer *writer,
                                   const sonde_recorder_options *options,
                                   sonde_diag *diag)
{
    history past = {.writer = writer, .where = options->path, .diag = diag};
    sonde_err err = read_generations(&past);

    int64_t begin = 0;

    if (err != SONDE_OK) {
        goto error;
    }
    for (uint64_t n = 0; n < sonde__record_number(writer, SONDE__FILE_STEPS); n++) {
        SONDE__TRY_GO(read_steps(&past, n));
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
