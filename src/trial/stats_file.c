/*
 * stats_file.c - rows of vital signs to items.
 *
 * Every row is read once here and its check looked at; later a row is one address in the
 * mapped file. A damaged head does no harm: what rows are is known, and their checks tell
 * whether they are.
 */
#include "trial/trial_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(SONDE_STRESS) && SONDE_STRESS
enum { ROWS = 2 };
#else
enum { ROWS = 2048 };
#endif

typedef struct context {
    sonde_trial *trial;
    sonde__worker *worker;
    sonde__file *file;
    const char *path, *where;
    sonde_diag *diag;
} context;

/* --- the head --------------------------------------------------------------------- */

/* Whether two texts are the same but for blanks, up to and with a closing bracket. */
static bool same_list(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a == ' ') {
            a++;
        }
        while (*b == ' ') {
            b++;
        }
        if (*a != *b || *a == '\0') {
            return false;
        }
        if (*a == ']') {
            return true;
        }
    }
}

bool sonde__stats_head_read(const char *head, size_t size, uint64_t *rows)
{
    char given[SONDE__STATS_HEAD + 1], wanted[SONDE__STATS_HEAD + 1];
    const char *list = NULL, *shape = NULL;

    if (size < SONDE__STATS_HEAD) {
        return false;
    }
    memcpy(given, head, SONDE__STATS_HEAD);
    sonde__stats_head(wanted, 0);
    given[SONDE__STATS_HEAD] = wanted[SONDE__STATS_HEAD] = '\0';
    /* Magic, version and length of what follows: ten bytes that never differ. */
    if (memcmp(given, wanted, 10) != 0 ||
        memchr(given + 10, '\0', SONDE__STATS_HEAD - 10)) {
        return false;
    }
    list = strchr(given + 10, '[');
    shape = strstr(given + 10, "'shape'");
    shape = shape != NULL ? strchr(shape, '(') : NULL;
    if (list == NULL || shape == NULL || !same_list(list, strchr(wanted + 10, '[')) ||
        strstr(given + 10, "'fortran_order': False") == NULL) {
        return false;
    }
    *rows = 0;
    for (shape++; *shape >= '0' && *shape <= '9'; shape++) {
        if (__builtin_mul_overflow(*rows, (uint64_t)10, rows) ||
            __builtin_add_overflow(*rows, (uint64_t)(*shape - '0'), rows)) {
            return false;
        }
    }
    return *shape == ',' && shape[-1] != '(';
}

/* The head of a file that has been begun; a closed one must hold as many rows as it says. */
static sonde_err look_at_head(const context *of, int fd)
{
    char head[SONDE__STATS_HEAD];
    const uint64_t there = (of->file->size - SONDE__STATS_HEAD) / SONDE__STATS_ROW;
    uint64_t rows = 0;
    size_t count = 0;
    const sonde_err err =
        sonde__read_at(fd, head, sizeof head, 0, &count, of->path, of->diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (!sonde__stats_head_read(head, count, &rows)) {
        sonde__damage(of->trial, of->where, "its head is not that of vital signs");
    } else if (of->file->closed && rows != there) {
        sonde__damage(of->trial, of->where, "%llu rows, where its head says %llu",
                      (unsigned long long)there, (unsigned long long)rows);
    }
    of->file->head = SONDE__STATS_HEAD;
    of->worker->stats.offset = SONDE__STATS_HEAD;
    return SONDE_OK;
}

/* --- rows ------------------------------------------------------------------------- */

static void bad_row(const context *of, uint64_t row, const char *found)
{
    sonde__damage_in(of->trial, &of->worker->stats, of->where, "row %llu: %s",
                     (unsigned long long)row, found);
}

static sonde_err take_row(const context *of, const sonde__stats_row *row, uint64_t at)
{
    sonde__row_item item = {
        .item = {.micro_batch = row->micro_batch, .replica = row->replica},
        .row = of->worker->stats_rows,
    };
    sonde_err err = SONDE_OK;

    if (sonde__stats_check(row) != row->check || row->mode >= SONDE_MODE_COUNT ||
        row->step < 0 || row->mode_step < 0 || row->micro_batch > INT32_MAX) {
        bad_row(of, at, "its check is wrong");
        return SONDE_OK;
    }
    if (!sonde__in_range(of->trial, row->step)) {
        return SONDE_OK;
    }
    err = sonde__worker_tensor(of->trial, of->worker, row->tensor, NULL, NULL,
                               &item.item.tensor, of->diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (item.item.tensor == SONDE__NONE) {
        bad_row(of, at, "no catalogue declares its tensor");
        return SONDE_OK;
    }
    item.item.step = sonde__steps_intern(&of->trial->steps, row->step,
                                         (sonde_mode)row->mode, row->mode_step);
    if (item.item.step == SONDE__NONE) {
        return sonde__fail_nomem(of->diag, "the steps of a run");
    }
    return sonde__worker_add(of->trial, of->worker, SONDE__VITALS, &item.item, of->diag);
}

static sonde_err take_rows(const context *of, int fd)
{
    sonde__stats_row *rows = NULL;
    sonde__progress *stats = &of->worker->stats;

    if (!sonde__scratch_reserve(&of->trial->buffer, (size_t)ROWS * SONDE__STATS_ROW)) {
        return sonde__fail_nomem(of->diag, of->path);
    }
    rows = (void *)of->trial->buffer.bytes;
    for (;;) {
        size_t count = 0;
        sonde_err err = sonde__read_at(fd, rows, (size_t)ROWS * SONDE__STATS_ROW,
                                       stats->offset, &count, of->path, of->diag);

        if (err != SONDE_OK || count < SONDE__STATS_ROW) {
            stats->size = stats->offset + (err == SONDE_OK ? count : 0);
            return err;
        }
        for (size_t i = 0; i < count / SONDE__STATS_ROW; i++) {
            if (of->worker->stats_rows >= SONDE__NONE - 1) {
                return sonde__fail_nomem(of->diag, "more rows than can be counted");
            }
            err = take_row(of, &rows[i],
                           (stats->offset - SONDE__STATS_HEAD) / SONDE__STATS_ROW);
            if (err != SONDE_OK) {
                return err;
            }
            stats->offset += SONDE__STATS_ROW;
            of->worker->stats_rows++;
        }
    }
}

/* --- files ------------------------------------------------------------------------ */

static sonde_err read_open(const context *of, int fd)
{
    struct stat about = {0};
    sonde__progress *stats = &of->worker->stats;
    sonde_err err = SONDE_OK;

    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        return sonde__fail(of->diag, SONDE_EFORMAT, of->path, NULL,
                           "a file of another kind");
    }
    of->file->size = (uint64_t)about.st_size;
    if (of->file->size == stats->size || of->file->size < SONDE__STATS_HEAD) {
        stats->size = of->file->size;
        return SONDE_OK;
    }
    if (of->file->head == 0) {
        err = look_at_head(of, fd);
    }
    return err == SONDE_OK ? take_rows(of, fd) : err;
}

static sonde_err read_on(sonde_trial *trial, sonde__worker *worker, sonde_diag *diag)
{
    char name[SONDE__FILE_NAME], path[SONDE__PATH], where[SONDE__PATH];
    sonde_diag why = {0};
    context of = {trial, worker, NULL, path, where, &why};
    sonde_err err = SONDE_OK;
    int fd = -1;

    of.file = sonde__file_of(&worker->files[SONDE__VITALS], worker->stats.number);
    if (of.file == NULL) {
        return sonde__fail_nomem(diag, "the files of a run");
    }
    if (of.file->head == 0) {
        of.file->first = worker->stats_rows;
    }
    fd = sonde__file_open(trial, worker, SONDE__FILE_STATS, of.file, path);
    sonde__file_name(name, SONDE__FILE_STATS, worker->stats.number, !of.file->closed);
    (void)sonde__trial_where(worker, name, where);
    if (fd < 0) {
        err = sonde__fail_errno(&why, path, "cannot be opened");
    } else {
        err = read_open(&of, fd);
        (void)close(fd);
    }
    sonde__damage_flush(trial, &worker->stats, where);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, path);
    }
    if (err != SONDE_OK && !of.file->broken) {
        of.file->broken = true;
        sonde__damage(trial, where, "%s", why.found);
    }
    return SONDE_OK;
}

sonde_err sonde__stats_read(sonde_trial *trial, sonde__worker *worker, sonde_diag *diag)
{
    for (;;) {
        uint64_t next = 0;
        const bool more =
            sonde__progress_peek(trial, worker, &worker->stats, SONDE__FILE_STATS, &next);
        const sonde_err err =
            worker->stats.begun ? read_on(trial, worker, diag) : SONDE_OK;

        if (err != SONDE_OK || !more) {
            return err;
        }
        sonde__progress_move(trial, worker, &worker->stats, SONDE__FILE_STATS, next);
    }
}
