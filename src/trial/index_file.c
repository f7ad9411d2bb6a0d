/*
 * index_file.c - index lines to items.
 *
 * A value counts only if its extent lies inside its segment, so of every segment the length
 * is looked at, and the eight bytes that say where its data begin; nothing else of it. Both
 * may grow while they are read: the length that counts is one from after the line was read.
 */
#include "trial/trial_state.h"
#include "base/fail.h"
#include "base/memory.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct context {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const char *where;
    sonde_diag *diag;
    sonde__trial_file *segment; /* of the index that is being read */
    uint64_t looked; /* at the segment: behind which piece of the index; 0: not yet */
} context;

static void bad_line(const context *of, const char *found)
{
    sonde__trial_damage_in(of->trial, &of->worker->index, of->where, "line %llu: %s",
                           (unsigned long long)of->worker->index.line, found);
}

/* --- segments --------------------------------------------------------------------- */

static sonde_err read_head(sonde__trial_file *segment, int fd, const char *path,
                           sonde_diag *diag)
{
    struct stat about = {0};
    uint64_t length = 0;
    size_t count = 0;
    sonde_err err = SONDE_OK;

    if (fstat(fd, &about) != 0) {
        return sonde__fail_errno(diag, path, "cannot be examined");
    }
    segment->size = (uint64_t)about.st_size;
    if (segment->head > 0) {
        return SONDE_OK;
    }
    err = sonde__trial_read_at(fd, &length, sizeof length, 0, &count, path, diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (count < sizeof length || length > segment->size - sizeof length) {
        return sonde__fail(diag, SONDE_EFORMAT, path, NULL,
                           "its header of %llu bytes does not fit into its %llu bytes",
                           (unsigned long long)length, (unsigned long long)segment->size);
    }
    segment->head = sizeof length + length;
    return SONDE_OK;
}

/* Looks at the segment as it is now. What is wrong with it is told once. */
static void look(context *of)
{
    sonde__trial_file *segment = of->segment;
    char path[SONDE__PATH];
    sonde_diag why = {0};
    sonde_err err = SONDE_OK;
    const int fd =
        sonde__trial_file_open(of->trial, of->worker, SONDE__FILE_SEGMENT, segment, path);

    of->looked = of->worker->index.pieces;
    if (fd < 0) {
        err = sonde__fail_errno(&why, path, "cannot be opened");
    } else {
        err = read_head(segment, fd, path, &why);
        (void)close(fd);
    }
    if (err != SONDE_OK && !segment->broken) {
        segment->broken = true;
        sonde__trial_damage(of->trial, of->worker->name, "segment %08llu: %s",
                            (unsigned long long)segment->number, why.found);
    }
}

/* What is wrong with the extent of a line; NULL if nothing is. */
static const char *check_extent(context *of, const sonde__record_index_line *line)
{
    const sonde__trial_file *segment = of->segment;
    const uint64_t end = line->offset + line->bytes;

    if (of->looked != of->worker->index.pieces &&
        (segment->head == 0 || end > segment->size - segment->head)) {
        look(of);
    }
    if (segment->broken || segment->head == 0) {
        return "its segment cannot be read";
    }
    return end > segment->size - segment->head ? "it points behind the end of its segment"
                                               : NULL;
}

/* --- lines ------------------------------------------------------------------------ */

/* No zstd frame holds more than this many times its own bytes. */
#define MOST_PACKED 65536

static uint64_t value_bytes(const sonde__record_index_line *line)
{
    uint64_t bytes = sonde_dtype_size(line->dtype);

    for (int d = 0; d < line->rank; d++) {
        bytes *= (uint64_t)line->shape[d]; /* the parser saw that it is representable */
    }
    return bytes;
}

static const char *check_value(context *of, const sonde__record_index_line *line)
{
    if (line->replica > UINT16_MAX || line->micro_batch > INT32_MAX) {
        return "its replica is beyond 65535, or its micro-batch beyond 2^31";
    }
    if (line->packing != SONDE__PACKED_NOT &&
        value_bytes(line) / MOST_PACKED > line->bytes) {
        return "its shape is larger than what its bytes can hold";
    }
    return check_extent(of, line);
}

static sonde_err find_form(const context *of, const sonde__record_index_line *line,
                           uint32_t tensor, uint32_t *out)
{
    sonde__trial_worker *worker = of->worker;
    sonde__trial_form form = {.dtype = (uint8_t)line->dtype,
                              .rank = (uint8_t)line->rank,
                              .packing = (uint8_t)line->packing};

    if (tensor >= worker->guess_count) {
        if (!sonde__reserve(&worker->guess, &worker->guess_capacity, (size_t)tensor + 1,
                            sizeof *worker->guess)) {
            return sonde__fail_nomem(of->diag, "the index of a run");
        }
        while (worker->guess_count <= tensor) {
            worker->guess[worker->guess_count++] = SONDE__NONE;
        }
    }
    memcpy(form.shape, line->shape, (size_t)line->rank * sizeof form.shape[0]);
    *out = sonde__trial_forms_intern(&of->trial->forms, &form, worker->guess[tensor]);
    worker->guess[tensor] = *out;
    return *out != SONDE__NONE ? SONDE_OK
                               : sonde__fail_nomem(of->diag, "the index of a run");
}

static sonde_err take_value(const context *of, const sonde__record_index_line *line,
                            uint32_t step)
{
    sonde__trial_raw_item item = {
        .item = {.step = step,
                 .micro_batch = line->micro_batch,
                 .replica = (uint16_t)line->replica},
        .offset = line->offset,
        .bytes = line->bytes,
        .hash = line->hash,
        .segment = (uint32_t)(of->segment - of->worker->files[SONDE__RAW].items),
    };
    sonde_err err = SONDE_OK;

    err = sonde__trial_worker_tensor(of->trial, of->worker, line->tensor, line,
                                     of->segment, &item.item.tensor, of->diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (item.item.tensor == SONDE__NONE) {
        bad_line(of, "no catalogue declares its tensor");
        return SONDE_OK;
    }
    err = find_form(of, line, item.item.tensor, &item.form);
    if (err == SONDE_OK) {
        err = sonde__trial_worker_add(of->trial, of->worker, SONDE__RAW, &item.item,
                                      of->diag);
    }
    if (err == SONDE_OK) {
        of->trial->bytes += value_bytes(line);
    }
    return err;
}

static sonde_err take_line(void *user, char *text, size_t length)
{
    context *of = user;
    sonde__record_index_line line;
    const char *wrong = NULL;
    uint32_t step = 0;

    if (!sonde__record_index_parse(text, length, &line) || line.step < 0 ||
        line.mode_step < 0) {
        bad_line(of, "not an index line");
        return SONDE_OK;
    }
    if (!sonde__trial_counts(of->trial, of->worker, line.step)) {
        return SONDE_OK;
    }
    wrong = check_value(of, &line);
    if (wrong != NULL) {
        bad_line(of, wrong);
        return SONDE_OK;
    }
    step = sonde__trial_steps_intern(&of->trial->steps, line.step, line.mode,
                                     line.mode_step);
    if (step == SONDE__NONE) {
        return sonde__fail_nomem(of->diag, "the steps of a run");
    }
    return take_value(of, &line, step);
}

/* --- files ------------------------------------------------------------------------ */

/* The index being read, as far as it has come. */
static sonde_err read_on(sonde_trial *trial, sonde__trial_worker *worker,
                         sonde_diag *diag)
{
    char name[SONDE__FILE_NAME], path[SONDE__PATH], where[SONDE__PATH];
    context of = {trial, worker, where, diag, NULL, 0};
    bool found = false;

    of.segment = sonde__trial_file_of(&worker->files[SONDE__RAW], worker->index.number);
    if (of.segment == NULL) {
        return sonde__fail_nomem(diag, "the segments of a run");
    }
    sonde__trial_worker_limit(worker, SONDE__FILE_INDEX, worker->index.number);
    sonde__record_file_name(name, SONDE__FILE_INDEX, worker->index.number, false);
    return sonde__trial_read_lines(
        trial, &worker->index, sonde__trial_path(trial, worker, name, path),
        sonde__trial_where(worker, name, where), take_line, &of, &found, diag);
}

sonde_err sonde__trial_index_read(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag)
{
    for (;;) {
        uint64_t next = 0;
        const bool more = sonde__trial_progress_peek(trial, worker, &worker->index,
                                                     SONDE__FILE_INDEX, &next);
        sonde_err err = worker->index.begun ? read_on(trial, worker, diag) : SONDE_OK;

        if (err == SONDE_OK && more) {
            err = sonde__trial_progress_move(trial, worker, &worker->index,
                                             SONDE__FILE_INDEX, next, diag);
        }
        if (err != SONDE_OK || !more) {
            return err;
        }
    }
}
