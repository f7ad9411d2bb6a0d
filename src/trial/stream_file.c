/*
 * stream_file.c - files of a head and items, read on.
 *
 * A damaged head does no harm: where items begin is known, and their checks tell whether they
 * are any.
 */
#include "trial/stream_file.h"
#include "base/fail.h"
#include "base/macros.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(SONDE_STRESS) && SONDE_STRESS
enum { PIECE = 24 };
#else
enum { PIECE = 1 << 20 };
#endif
enum { MOST_ROOM = 1 << 23 }; /* twice the longest item */

void sonde__trial_stream_bad(const sonde__trial_stream_reading *of, const char *what,
                             uint64_t n, const char *found)
{
    sonde__trial_damage_in(of->trial, of->progress, of->where, "%s %llu: %s", what,
                           (unsigned long long)n, found);
}

/* --- heads ------------------------------------------------------------------------ */

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

/* The digits behind "(", up to a comma. */
static bool read_count(const char *at, uint64_t *count)
{
    const char *const first = at;

    *count = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(*count, (uint64_t)10, count) ||
            __builtin_add_overflow(*count, (uint64_t)(*at - '0'), count)) {
            return false;
        }
    }
    return *at == ',' && at > first;
}

bool sonde__trial_head_read(sonde__record_file_kind kind, const char *head, size_t size,
                            uint64_t *items)
{
    char given[SONDE__MOST_HEAD + 1], wanted[SONDE__MOST_HEAD + 1];
    const size_t length = sonde__record_file_head(kind, 0, wanted);
    const char *list = NULL, *shape = NULL;

    if (size < length) {
        return false;
    }
    if (kind == SONDE__FILE_SKETCH) {
        return memcmp(head, wanted, length) == 0;
    }
    memcpy(given, head, length);
    given[length] = wanted[length] = '\0';
    /* Magic, version and length of what follows: ten bytes that never differ. */
    if (memcmp(given, wanted, 10) != 0 || memchr(given + 10, '\0', length - 10) != NULL) {
        return false;
    }
    list = strchr(given + 10, '[');
    shape = strstr(given + 10, "'shape'");
    shape = shape != NULL ? strchr(shape, '(') : NULL;
    return list != NULL && shape != NULL && same_list(list, strchr(wanted + 10, '[')) &&
           strstr(given + 10, "'fortran_order': False") != NULL &&
           read_count(shape + 1, items);
}

/* The head of a file that has been begun; a closed one must hold what it says. */
static sonde_err look_at_head(const sonde__trial_stream_reading *of, int fd)
{
    static const char *const names[] = {[SONDE__FILE_STATS] = "vital signs",
                                        [SONDE__FILE_SKETCH] = "sketches",
                                        [SONDE__FILE_STEPS] = "steps"};
    const uint64_t row =
        of->kind == SONDE__FILE_STATS ? SONDE__STATS_ROW : SONDE__STEPS_ROW;
    char head[SONDE__MOST_HEAD];
    const size_t length = sonde__record_file_head(of->kind, 0, head);
    const uint64_t there = (of->file->size - length) / row;
    uint64_t items = there;
    size_t count = 0;
    const sonde_err err =
        sonde__trial_read_at(fd, head, length, 0, &count, of->path, of->diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (!sonde__trial_head_read(of->kind, head, count, &items)) {
        sonde__trial_damage(of->trial, of->where, "its head is not that of %s",
                            names[of->kind]);
    } else if (of->file->closed && items != there) {
        sonde__trial_damage(of->trial, of->where, "%llu rows, where its head says %llu",
                            (unsigned long long)there, (unsigned long long)items);
    }
    of->file->head = of->progress->offset = length;
    return SONDE_OK;
}

/* --- items ------------------------------------------------------------------------ */

static sonde_err take_all(sonde__trial_stream_reading *of, int fd)
{
    sonde__trial_progress *progress = of->progress;
    sonde__trial_scratch *buffer = &of->trial->buffer;
    size_t room = PIECE;

    for (;;) {
        const uint64_t begin = progress->offset;
        size_t count = 0;
        sonde_err err = SONDE_OK;

        if (!sonde__trial_scratch_reserve(buffer, room)) {
            return sonde__fail_nomem(of->diag, of->path);
        }
        err = sonde__trial_read_at(fd, buffer->bytes, room, begin, &count, of->path,
                                   of->diag);
        if (err == SONDE_OK) {
            err = of->take(of, buffer->bytes, count, of->over && count < room);
            progress->size = begin + count;
        } else {
            progress->size = begin;
        }
        if (err != SONDE_OK || count < room) {
            return err;
        }
        if (progress->offset == begin) { /* an item larger than the room */
            room = SONDE_MIN(room * 2, (size_t)MOST_ROOM);
        }
    }
}

/* --- files ------------------------------------------------------------------------ */

static sonde_err read_open(sonde__trial_stream_reading *of, int fd)
{
    struct stat about = {0};
    char head[SONDE__MOST_HEAD];
    sonde_err err = SONDE_OK;

    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        return sonde__fail(of->diag, SONDE_EFORMAT, of->path, NULL,
                           "a file of another kind");
    }
    of->file->size = (uint64_t)about.st_size;
    /* The end of a file that is over is looked at once more, with that knowledge. */
    if ((of->file->size == of->progress->size && of->file->looked >= of->over) ||
        of->file->size < sonde__record_file_head(of->kind, 0, head)) {
        of->progress->size = of->file->size;
        return SONDE_OK;
    }
    of->file->looked = of->over;
    if (of->file->head == 0) {
        err = look_at_head(of, fd);
    }
    return err == SONDE_OK ? take_all(of, fd) : err;
}

/* The worker's list of the files of a kind. */
static sonde__trial_file_list *files_of(sonde__trial_worker *worker,
                                        sonde__record_file_kind kind)
{
    return &worker->files[kind == SONDE__FILE_STATS    ? (int)SONDE__VITALS
                          : kind == SONDE__FILE_SKETCH ? (int)SONDE__SKETCH
                                                       : (int)SONDE__STEP_FILES];
}

/* of: what the kind is; the rest is filled in here. */
static sonde_err read_on(sonde__trial_stream_reading of, sonde_diag *diag)
{
    char name[SONDE__FILE_NAME], path[SONDE__PATH], where[SONDE__PATH];
    sonde_trial *trial = of.trial;
    sonde__trial_worker *worker = of.worker;
    const uint64_t number = of.progress->number;
    sonde_diag why = {0};
    sonde_err err = SONDE_OK;
    int fd = -1;

    of.file = sonde__trial_file_of(files_of(worker, of.kind), number);
    if (of.file == NULL) {
        return sonde__fail_nomem(diag, "the files of a run");
    }
    if (of.file->head == 0) {
        of.file->first = worker->stats_rows;
    }
    of.path = path;
    of.where = where;
    of.diag = &why;
    of.lost = false;
    fd = sonde__trial_file_open(trial, worker, of.kind, of.file, path);
    of.over = of.file->closed || trial->ended || worker->said_ended || worker->crashed;
    sonde__trial_worker_limit(worker, of.kind, number);
    sonde__record_file_name(name, of.kind, number, !of.file->closed);
    (void)sonde__trial_where(worker, name, where);
    if (fd < 0) {
        err = sonde__fail_errno(&why, path, "cannot be opened");
    } else {
        err = read_open(&of, fd);
        (void)close(fd);
    }
    sonde__trial_damage_flush(trial, of.progress, where);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, path);
    }
    if (err != SONDE_OK && !of.file->broken) {
        of.file->broken = true;
        sonde__trial_damage(trial, where, "%s", why.found);
    }
    return SONDE_OK;
}

sonde_err sonde__trial_stream_read(sonde_trial *trial, sonde__trial_worker *worker,
                                   sonde__record_file_kind kind,
                                   sonde__trial_progress *progress,
                                   sonde__trial_stream_take *take, sonde_diag *diag)
{
    for (;;) {
        const sonde__trial_stream_reading of = {.trial = trial,
                                                .worker = worker,
                                                .kind = kind,
                                                .take = take,
                                                .progress = progress};
        uint64_t next = 0;
        const bool more =
            sonde__trial_progress_peek(trial, worker, progress, kind, &next);
        sonde_err err = progress->begun ? read_on(of, diag) : SONDE_OK;

        if (err == SONDE_OK && more) {
            err = sonde__trial_progress_move(trial, worker, progress, kind, next, diag);
        }
        if (err != SONDE_OK || !more) {
            return err;
        }
    }
}
