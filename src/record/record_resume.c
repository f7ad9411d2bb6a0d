/*
 * resume.c - where a run goes on: from which global step on what is there is superseded,
 * and which step comes next in each mode.
 *
 * The steps that count are read from the files of steps, which recovery has closed: of each
 * generation those below the first step of every later one.
 */
#include "record/record_run.h"
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
    sonde__record_step_row *rows; /* of steps that count */
    size_t row_count, row_capacity;
} history;

static sonde_err fail(const history *of, int failed, const char *path)
{
    char where[256];

    if (failed == ENOMEM) {
        return sonde__fail_nomem(of->diag, "going on with a run");
    }
    (void)snprintf(where, sizeof where, "%s/%s", of->where, path);
    errno = failed;
    return sonde__fail_errno(of->diag, where, "cannot be gone on with");
}

static const char *path_of(const history *of, const char *name, char *path)
{
    (void)snprintf(path, SONDE__FILE_NAME * 2, "%s/%s", of->writer->folder, name);
    return path;
}

/* --- what is there ------------------------------------------------------------------ */

static sonde_err take_generation(history *of, const char *text, size_t length)
{
    if (!sonde__reserve(&of->generations, &of->capacity, of->count + 1,
                        sizeof *of->generations)) {
        return fail(of, ENOMEM, "");
    }
    if (!sonde__record_generation_parse(text, length, &of->generations[of->count])) {
        return sonde__fail(of->diag, SONDE_EFORMAT, of->where, "generations",
                           "line %zu of %s/" SONDE__GENERATIONS_FILE " is damaged",
                           of->count + 1, of->writer->folder);
    }
    of->count++;
    return SONDE_OK;
}

static sonde_err read_generations(history *of)
{
    sonde__record_backend *const backend = of->writer->backend;
    char path[SONDE__FILE_NAME * 2], *text = NULL, *end = NULL;
    size_t size = 0;
    const int failed = backend->ops->load(
        backend, path_of(of, SONDE__GENERATIONS_FILE, path), &text, &size);
    sonde_err err = SONDE_OK;

    if (failed != 0) {
        return failed == ENOENT ? SONDE_OK : fail(of, failed, path);
    }
    for (char *at = text;
         err == SONDE_OK && (end = memchr(at, '\n', size - (size_t)(at - text))) != NULL;
         at = end + 1) {
        err = take_generation(of, at, (size_t)(end - at));
        sonde_text_put(&of->lines, at, (size_t)(end + 1 - at));
    }
    sonde__free(text);
    return err;
}

/* The rows of a file of steps that count. */
static sonde_err read_steps(history *of, uint64_t number)
{
    sonde__record_backend *const backend = of->writer->backend;
    const int64_t limit = sonde__record_generation_limit(of->generations, of->count,
                                                         SONDE__FILE_STEPS, number);
    char path[SONDE__FILE_NAME * 2], name[SONDE__FILE_NAME], *text = NULL;
    size_t size = 0;
    int failed = 0;

    sonde__record_file_name(name, SONDE__FILE_STEPS, number, false);
    failed = backend->ops->load(backend, path_of(of, name, path), &text, &size);
    if (failed != 0) { /* one that is missing is a reader's to tell */
        return failed == ENOENT ? SONDE_OK : fail(of, failed, path);
    }
    for (size_t at = SONDE__STEPS_HEAD; at + SONDE__STEPS_ROW <= size && failed == 0;
         at += SONDE__STEPS_ROW) {
        sonde__record_step_row row;

        memcpy(&row, text + at, sizeof row);
        if (!sonde__record_step_valid(&row) || row.step >= limit) {
            continue;
        }
        if (sonde__reserve(&of->rows, &of->row_capacity, of->row_count + 1,
                           sizeof *of->rows)) {
            of->rows[of->row_count++] = row;
        } else {
            failed = ENOMEM;
        }
    }
    sonde__free(text);
    return failed == 0 ? SONDE_OK : fail(of, failed, path);
}

/* --- where it goes on --------------------------------------------------------------- */

/*
 * The global step of a step of a mode. One that has no row is counted from the next that has,
 * or else from the last row of all: before a step of another mode there is a row.
 */
static int64_t global_of(const history *of, sonde_mode mode, int64_t step)
{
    int64_t last = -1, next = 0; /* row; step of the mode */

    for (size_t i = 0; i < of->row_count; i++) {
        const sonde__record_step_row *row = &of->rows[i];

        if (row->mode == (uint32_t)mode && row->mode_step >= step) {
            return SONDE_MAX(row->step - (row->mode_step - step), 0);
        }
        next = row->mode == (uint32_t)mode ? row->mode_step + 1 : next;
        last = SONDE_MAX(last, row->step);
    }
    return last + 1 + (step - next);
}

static int64_t find_begin(const history *of, const sonde_recorder_options *options)
{
    int64_t last = -1;

    if (options->resume_step == SONDE_RESUME_ANEW) {
        return 0;
    }
    if (options->resume_step == SONDE_RESUME_BEHIND) {
        for (size_t i = 0; i < of->row_count; i++) {
            last = SONDE_MAX(last, of->rows[i].step);
        }
        return last + 1;
    }
    return options->resume_mode == SONDE_MODE_GLOBAL
               ? options->resume_step
               : global_of(of, options->resume_mode, options->resume_step);
}

/* What comes next in each mode, if the run goes on at a global step. */
static void count_modes(const history *of, const sonde_recorder_options *options,
                        int64_t begin)
{
    int64_t *const next = of->writer->next;
    int64_t last = -1;

    for (size_t i = 0; i < of->row_count; i++) {
        const sonde__record_step_row *row = &of->rows[i];

        if (row->step < begin) {
            next[row->mode] = SONDE_MAX(next[row->mode], row->mode_step + 1);
            last = SONDE_MAX(last, row->step);
        }
    }
    if (options->resume_step > 0) {
        next[options->resume_mode] = options->resume_step;
    }
    next[SONDE_MODE_GLOBAL] = begin;
    atomic_init(&of->writer->before.last_step, last);
}

/* The line, before the first file that it is about. */
static sonde_err write_generation(history *of, int64_t begin)
{
    sonde__record_writer *const writer = of->writer;
    const uint64_t last = of->count > 0 ? of->generations[of->count - 1].number : 0;
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

    sonde_text_put(&of->lines, text, sonde__record_generation_print(&line, text));
    (void)path_of(of, SONDE__GENERATIONS_FILE, path);
    if (!of->lines.failed) {
        failed = writer->backend->ops->replace(writer->backend, path, of->lines.data,
                                               of->lines.length, false, true);
    }
    writer->generation = line.number;
    return failed == 0 ? SONDE_OK : fail(of, failed, path);
}

/* Of a worker that has written nothing there is nothing that could be superseded. */
static bool is_empty(const history *of)
{
    const sonde__record_writer *writer = of->writer;

    return of->count == 0 && writer->segment.number == 0 && writer->stats.number == 0 &&
           writer->sketches.number == 0 && writer->steps.number == 0;
}

sonde_err sonde__record_run_go_on(sonde__record_writer *writer,
                                  const sonde_recorder_options *options, sonde_diag *diag)
{
    history of = {.writer = writer, .where = options->path, .diag = diag};
    sonde_err err = read_generations(&of);

    for (uint64_t n = 0; n < writer->steps.number && err == SONDE_OK; n++) {
        err = read_steps(&of, n);
    }
    if (err == SONDE_OK) {
        const int64_t begin = find_begin(&of, options);

        count_modes(&of, options, begin);
        err = is_empty(&of) ? SONDE_OK : write_generation(&of, begin);
    }
    sonde__free(of.generations);
    sonde__free(of.rows);
    sonde_text_fini(&of.lines);
    return err;
}
