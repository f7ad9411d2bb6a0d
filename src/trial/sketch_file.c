/*
 * sketch_file.c - sketch records to items.
 *
 * Records have lengths of their own. If one is damaged so that the next cannot be found, the
 * next that has a right check is looked for, eight bytes by eight.
 */
#include "trial/trial_state.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(SONDE_STRESS) && SONDE_STRESS
enum { PIECE = 24 };
#else
enum { PIECE = 1 << 20 };
#endif
enum { MOST_RECORD = 1 << 22 };

typedef struct context {
    sonde_trial *trial;
    sonde__worker *worker;
    sonde__file *file;
    const char *path, *where;
    sonde_diag *diag;
    bool over; /* nobody writes the file any more */
    bool lost; /* looking for the next record */
} context;

static void bad_record(const context *of, const char *found)
{
    sonde__damage_in(of->trial, &of->worker->sketch, of->where, "record at %llu: %s",
                     (unsigned long long)of->worker->sketch.offset, found);
}

static sonde_err take_record(const context *of, const sonde__sketch_record *record)
{
    sonde__sketch_item item = {
        .item = {.micro_batch = record->micro_batch, .replica = record->replica},
        .offset = of->worker->sketch.offset,
        .file = (uint32_t)(of->file - of->worker->files[SONDE__SKETCH].items),
        .length = record->length,
    };
    sonde_err err = SONDE_OK;

    if (!sonde__in_range(of->trial, record->step)) {
        return SONDE_OK;
    }
    err = sonde__worker_tensor(of->trial, of->worker, record->tensor, NULL, NULL,
                               &item.item.tensor, of->diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (item.item.tensor == SONDE__NONE) {
        bad_record(of, "no catalogue declares its tensor");
        return SONDE_OK;
    }
    item.item.step = sonde__steps_intern(&of->trial->steps, record->step,
                                         (sonde_mode)record->mode, record->mode_step);
    if (item.item.step == SONDE__NONE) {
        return sonde__fail_nomem(of->diag, "the steps of a run");
    }
    return sonde__worker_add(of->trial, of->worker, SONDE__SKETCH, &item.item, of->diag);
}

/* Whether these bytes are a whole and right record. Their place is aligned to 8. */
static bool is_record(const unsigned char *bytes, size_t available)
{
    const sonde__sketch_record *record = (const void *)bytes;

    return sonde__sketch_valid(record, available) && record->length <= MOST_RECORD &&
           record->step >= 0 && record->mode_step >= 0 &&
           record->micro_batch <= INT32_MAX &&
           sonde__sketch_check(record) == record->check;
}

/* Whether a record may have begun here whose end has not come yet. */
static bool is_begun(const unsigned char *bytes, size_t available)
{
    uint32_t length = 0;

    if (available < SONDE__SKETCH_FIXED) {
        return true;
    }
    memcpy(&length, bytes, sizeof length);
    return length >= SONDE__SKETCH_FIXED && length % 8 == 0 && length <= MOST_RECORD &&
           length > available;
}

/* Whether there is a whole record behind the beginning of these bytes. */
static bool has_record(const unsigned char *bytes, size_t count)
{
    for (size_t at = 8; at + SONDE__SKETCH_FIXED <= count; at += 8) {
        if (is_record(bytes + at, count - at)) {
            return true;
        }
    }
    return false;
}

/* Whether to stop before these bytes: more of them will come, or would have. at_end: these
 * are the last of a file that nobody writes any more. */
static bool is_incomplete(const context *of, const unsigned char *bytes, size_t count,
                          bool at_end)
{
    return is_begun(bytes, count) && !(at_end && (of->lost || has_record(bytes, count)));
}

/* Takes the records among count bytes; *used: how many of them are done with. */
static sonde_err take_records(context *of, const unsigned char *bytes, size_t count,
                              bool at_end, size_t *used)
{
    sonde__progress *sketch = &of->worker->sketch;
    size_t at = 0;
    sonde_err err = SONDE_OK;

    while (err == SONDE_OK && at + 8 <= count) {
        size_t step = 8;

        if (is_record(bytes + at, count - at)) {
            const sonde__sketch_record *record = (const void *)(bytes + at);

            err = take_record(of, record);
            step = record->length;
            of->lost = false;
        } else if (is_incomplete(of, bytes + at, count - at, at_end)) {
            break;
        } else if (!of->lost) {
            bad_record(of, "its check is wrong");
            of->lost = true;
        }
        if (err == SONDE_OK) {
            at += step;
            sketch->offset += step;
        }
    }
    *used = at;
    return err;
}

static sonde_err take_all(context *of, int fd)
{
    sonde__progress *sketch = &of->worker->sketch;
    sonde__scratch *buffer = &of->trial->buffer;
    size_t room = PIECE;

    for (;;) {
        size_t count = 0, used = 0;
        sonde_err err = SONDE_OK;

        if (!sonde__scratch_reserve(buffer, room)) {
            return sonde__fail_nomem(of->diag, of->path);
        }
        err = sonde__read_at(fd, buffer->bytes, room, sketch->offset, &count, of->path,
                             of->diag);
        if (err == SONDE_OK) {
            err = take_records(of, buffer->bytes, count, of->over && count < room, &used);
        }
        sketch->size = sketch->offset + (count - used);
        if (err != SONDE_OK || count < room) {
            return err;
        }
        if (used == 0) { /* a record larger than the room */
            room = SONDE_MIN(room * 2, (size_t)MOST_RECORD * 2);
        }
    }
}

/* --- files ------------------------------------------------------------------------ */

static sonde_err look_at_head(const context *of, int fd)
{
    static const char wanted[SONDE__SKETCH_HEAD] = SONDE__SKETCH_MAGIC;
    char head[SONDE__SKETCH_HEAD];
    size_t count = 0;
    const sonde_err err =
        sonde__read_at(fd, head, sizeof head, 0, &count, of->path, of->diag);

    if (err == SONDE_OK && memcmp(head, wanted, sizeof head) != 0) {
        sonde__damage(of->trial, of->where, "its head is not that of sketches");
    }
    of->file->head = SONDE__SKETCH_HEAD;
    of->worker->sketch.offset = SONDE__SKETCH_HEAD;
    return err;
}

static sonde_err read_open(context *of, int fd)
{
    struct stat about = {0};
    sonde__progress *sketch = &of->worker->sketch;
    sonde_err err = SONDE_OK;

    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        return sonde__fail(of->diag, SONDE_EFORMAT, of->path, NULL,
                           "a file of another kind");
    }
    of->file->size = (uint64_t)about.st_size;
    /* The end of a file that is over is looked at once more, with that knowledge. */
    if ((of->file->size == sketch->size && of->file->looked >= of->over) ||
        of->file->size < SONDE__SKETCH_HEAD) {
        sketch->size = of->file->size;
        return SONDE_OK;
    }
    of->file->looked = of->over;
    if (of->file->head == 0) {
        err = look_at_head(of, fd);
    }
    return err == SONDE_OK ? take_all(of, fd) : err;
}

static sonde_err read_on(sonde_trial *trial, sonde__worker *worker, sonde_diag *diag)
{
    char name[SONDE__FILE_NAME], path[SONDE__PATH], where[SONDE__PATH];
    sonde_diag why = {0};
    context of = {
        .trial = trial, .worker = worker, .path = path, .where = where, .diag = &why};
    sonde_err err = SONDE_OK;
    int fd = -1;

    of.file = sonde__file_of(&worker->files[SONDE__SKETCH], worker->sketch.number);
    if (of.file == NULL) {
        return sonde__fail_nomem(diag, "the files of a run");
    }
    fd = sonde__file_open(trial, worker, SONDE__FILE_SKETCH, of.file, path);
    of.over = of.file->closed || trial->ended || worker->said_ended || worker->crashed;
    sonde__file_name(name, SONDE__FILE_SKETCH, worker->sketch.number, !of.file->closed);
    (void)sonde__trial_where(worker, name, where);
    if (fd < 0) {
        err = sonde__fail_errno(&why, path, "cannot be opened");
    } else {
        err = read_open(&of, fd);
        (void)close(fd);
    }
    sonde__damage_flush(trial, &worker->sketch, where);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, path);
    }
    if (err != SONDE_OK && !of.file->broken) {
        of.file->broken = true;
        sonde__damage(trial, where, "%s", why.found);
    }
    return SONDE_OK;
}

sonde_err sonde__sketches_read(sonde_trial *trial, sonde__worker *worker,
                               sonde_diag *diag)
{
    for (;;) {
        uint64_t next = 0;
        const bool more = sonde__progress_peek(trial, worker, &worker->sketch,
                                               SONDE__FILE_SKETCH, &next);
        const sonde_err err =
            worker->sketch.begun ? read_on(trial, worker, diag) : SONDE_OK;

        if (err != SONDE_OK || !more) {
            return err;
        }
        sonde__progress_move(trial, worker, &worker->sketch, SONDE__FILE_SKETCH, next);
    }
}
