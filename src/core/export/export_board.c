/*
 * export_board.c - see export_board.h.
 *
 * Messages are encoded here, in 60 lines: protobuf-c would need a compiled schema for six
 * fields, and it packs a whole event from structures that would have to be built first.
 */
#include "export/export_board.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/point.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* --- protobuf --------------------------------------------------------------------- */

static void put(sonde__export_message *message, const void *bytes, size_t n)
{
    message->failed =
        message->failed ||
        !sonde__reserve(&message->bytes, &message->capacity, message->size + n, 1);
    if (!message->failed && n > 0) {
        memcpy(message->bytes + message->size, bytes, n);
        message->size += n;
    }
}

static void put_varint(sonde__export_message *message, uint64_t value)
{
    unsigned char bytes[10];
    size_t n = 0;

    for (; value >= 0x80; value >>= 7) {
        bytes[n++] = (unsigned char)(value | 0x80);
    }
    bytes[n++] = (unsigned char)value;
    put(message, bytes, n);
}

static void put_key(sonde__export_message *message, unsigned field, unsigned kind)
{
    put_varint(message, field << 3 | kind);
}

static void put_double(sonde__export_message *message, unsigned field, double value)
{
    put_key(message, field, FIXED64);
    put(message, &value, sizeof value);
}

static void put_float(sonde__export_message *message, unsigned field, float value)
{
    put_key(message, field, FIXED32);
    put(message, &value, sizeof value);
}

static void put_bytes(sonde__export_message *message, unsigned field, const void *bytes,
                      size_t n)
{
    put_key(message, field, BYTES);
    put_varint(message, n);
    put(message, bytes, n);
}

/* Puts a message as a field. */
static void put_message(sonde__export_message *message, unsigned field,
                        const sonde__export_message *part)
{
    message->failed = message->failed || part->failed;
    put_bytes(message, field, part->bytes, part->size);
}

static void fini(sonde__export_message *message)
{
    sonde__free(message->bytes);
    *message = (sonde__export_message){0};
}

/* --- records ---------------------------------------------------------------------- */

static uint32_t masked(const sonde__export_crc *crc, const void *bytes, size_t n)
{
    const uint32_t value = sonde__export_crc_add(crc, 0, bytes, n);

    return (value >> 15 | value << 17) + 0xa282ead8U;
}

static sonde_err write_event(sonde__export_events *events, sonde_diag *diag)
{
    const uint64_t length = events->event.size;
    const uint32_t of_length = masked(&events->crc, &length, sizeof length);

    if (events->event.failed) {
        return sonde__fail_nomem(diag, "an event");
    }
    uint32_t of_event = masked(&events->crc, events->event.bytes, events->event.size);
    (void)sonde__whole_write(&events->file, &length, sizeof length);
    (void)sonde__whole_write(&events->file, &of_length, sizeof of_length);
    (void)sonde__whole_write(&events->file, events->event.bytes, events->event.size);
    (void)sonde__whole_write(&events->file, &of_event, sizeof of_event);
    return sonde__whole_status(&events->file, diag);
}

/* Writes an event with the value in events->value. */
static sonde_err write_value(sonde__export_events *events, int64_t step, sonde_diag *diag)
{
    events->summary.size = 0;
    put_message(&events->summary, 1, &events->value);
    events->event.size = 0;
    put_double(&events->event, 1, events->wall_time);
    put_key(&events->event, 2, VARINT);
    put_varint(&events->event, (uint64_t)step);
    put_message(&events->event, 5, &events->summary);
    return write_event(events, diag);
}

sonde_err sonde__export_events_open(sonde__export_events *events, const char *path,
                                    double wall_time, sonde_diag *diag)
{
    static const char version[] = "brain.Event:2";

    *events = (sonde__export_events){.wall_time = wall_time};
    sonde__export_crc_init(&events->crc, SONDE__CRC32_C);
    SONDE__TRY(sonde__export_out_open(&events->file, path, diag));
    put_double(&events->event, 1, wall_time);
    put_bytes(&events->event, 3, version, sizeof version - 1);
    return write_event(events, diag);
}

sonde_err sonde__export_events_scalar(sonde__export_events *events, const char *tag,
                                      int64_t step, double value, sonde_diag *diag)
{
    events->value.size = 0;
    put_bytes(&events->value, 1, tag, strlen(tag));
    put_float(&events->value, 2, (float)value);
    return write_value(events, step, diag);
}

/* --- histograms ------------------------------------------------------------------- */

static void put_bucket(sonde__export_events *events, double limit, uint64_t count)
{
    const double many = (double)count;

    put(&events->limits, &limit, sizeof limit);
    put(&events->counts, &many, sizeof many);
}

/* An empty bucket up to where the next begins, if there is a gap. The first begins at the
 * minimum, whatever its limit. */
static void put_gap(sonde__export_events *events, double last, double next)
{
    if (events->limits.size > 0 && last < next) {
        put_bucket(events, next, 0);
    }
}

/*
 * A bucket reaches from the limit before (exclusive) to its own. The bins of a sketch
 * have gaps between them, which are empty buckets:
 *
 *     -upper ... -lower   ...   0   ...   lower ... upper
 */
static void put_buckets(sonde__export_events *events, const sonde_sketch *sketch)
{
    double lower = 0.0, upper = 0.0, last = 0.0;

    for (int bin = SONDE_SKETCH_BINS - 1; bin >= 0; bin--) {
        if (sketch->negative[bin] > 0) {
            sonde_sketch_bounds(bin, &lower, &upper);
            put_gap(events, last, -upper);
            put_bucket(events, -lower, sketch->negative[bin]);
            last = -lower;
        }
    }
    if (sketch->zero > 0) {
        put_gap(events, last, -DBL_MIN);
        put_bucket(events, 0.0, sketch->zero);
        last = 0.0;
    }
    for (int bin = 0; bin < SONDE_SKETCH_BINS; bin++) {
        if (sketch->positive[bin] > 0) {
            sonde_sketch_bounds(bin, &lower, &upper);
            put_gap(events, last, lower);
            put_bucket(events, upper, sketch->positive[bin]);
            last = upper;
        }
    }
}

sonde_err sonde__export_events_histogram(sonde__export_events *events, const char *tag,
                                         int64_t step, const sonde_vitals *vitals,
                                         const sonde_sketch *sketch, sonde_diag *diag)
{
    sonde__export_message *message = &events->histogram;
    const uint64_t finite =
        vitals->count - vitals->nan - vitals->pos_inf - vitals->neg_inf;

    message->size = events->limits.size = events->counts.size = 0;
    put_double(message, 1, finite > 0 ? vitals->min : 0.0);
    put_double(message, 2, finite > 0 ? vitals->max : 0.0);
    put_double(message, 3, (double)finite);
    put_double(message, 4, vitals->sum);
    put_double(message, 5, vitals->sumsq);
    put_buckets(events, sketch);
    put_message(message, 6, &events->limits);
    put_message(message, 7, &events->counts);
    events->value.size = 0;
    put_bytes(&events->value, 1, tag, strlen(tag));
    put_message(&events->value, 5, message);
    return write_value(events, step, diag);
}

/* --- closing ---------------------------------------------------------------------- */

void sonde__export_events_abandon(sonde__export_events *events)
{
    sonde__export_message *const messages[] = {&events->event,  &events->summary,
                                               &events->value,  &events->histogram,
                                               &events->limits, &events->counts};

    sonde__whole_close(&events->file);
    for (size_t i = 0; i < SONDE_COUNT_OF(messages); i++) {
        fini(messages[i]);
    }
}

sonde_err sonde__export_events_close(sonde__export_events *events, sonde_diag *diag)
{
    const sonde_err err = sonde__export_out_close(&events->file, diag);

    sonde__export_events_abandon(events);
    return err;
}

/* --- the folder ------------------------------------------------------------------- */

static const sonde_stat usual_stats[] = {
    SONDE_STAT_MEAN, SONDE_STAT_STD, SONDE_STAT_MIN,
    SONDE_STAT_MAX,  SONDE_STAT_L2,  SONDE_STAT_NONFINITE,
};

typedef struct stream {
    sonde__export_events events;
    bool open;
} stream;

typedef struct board_writer {
    sonde__export *work;
    const char *folder; /* where it is made */
    const char *worker; /* before the mode's name; "" in a run of one worker */
    double created;     /* seconds since 1970 */
    stream streams[SONDE_MODE_COUNT]; /* of the current worker */
    sonde_sketch *sketch;
    sonde_text tag;
    unsigned char *seen; /* by id */
} board_writer;

/* Seconds of "2026-01-31T12:00:00.000000Z"; the present time for any other text. */
static double parse_time(const char *created)
{
    struct tm when = {0};
    const char *rest = strptime(created, "%Y-%m-%dT%H:%M:%S", &when);

    return rest != NULL ? (double)timegm(&when) : (double)time(NULL);
}

static sonde_err open_stream(board_writer *board, sonde_mode mode, sonde_diag *diag)
{
    const size_t size = strlen(board->folder) + strlen(board->worker) + 96;
    char *path = sonde__malloc(size);
    sonde_err err = SONDE_OK;
    int used = 0;

    if (path == NULL) {
        return sonde__fail_nomem(diag, "a file name");
    }
    used = snprintf(path, size, "%s/%s%s%s", board->folder, board->worker,
                    board->worker[0] != '\0' ? "-" : "", sonde_mode_name(mode));
    if (mkdir(path, 0777) != 0) {
        err = sonde__fail_errno(diag, path, "cannot be written");
        goto error;
    }
    (void)sonde__snprintf(path + used, size - (size_t)used,
                          "/events.out.tfevents.%010.0f.sonde", board->created);
    board->streams[mode].open = true;
    err = sonde__export_events_open(&board->streams[mode].events, path, board->created,
                                    diag);
error:
    sonde__free(path);
    return err;
}

/* "tensor" or "tensor/statistic". */
static sonde_err make_tag(board_writer *board, const char *tensor, const char *stat,
                          sonde_diag *diag)
{
    const size_t size = strlen(tensor) + strlen(stat) + 2;

    if (sonde_text_reserve(&board->tag, size) != SONDE_OK) {
        return sonde__fail_nomem(diag, "a tag");
    }
    (void)snprintf(board->tag.data, size, "%s%s%s", tensor, stat[0] != '\0' ? "/" : "",
                   stat);
    return SONDE_OK;
}

static sonde_err put_scalar(board_writer *board, const sonde_export_row *row,
                            const char *stat_name, double value, sonde_diag *diag)
{
    SONDE__TRY(make_tag(board, row->tensor, stat_name, diag));
    SONDE__TRY(sonde__export_events_scalar(&board->streams[row->mode].events,
                                           board->tag.data, row->mode_step, value, diag));
    board->work->report->scalars++;
    return SONDE_OK;
}

static sonde_err put_histogram(board_writer *board, const sonde_export_row *row,
                               sonde_diag *diag)
{
    const sonde_trial_at place = {.mode = SONDE_MODE_GLOBAL,
                                  .step = row->step,
                                  .worker = row->worker,
                                  .micro_batch = -1,
                                  .replica = -1};
    sonde_diag why = {0};
    sonde_err err = SONDE_OK;

    if ((sonde_trial_has(board->work->trial, row->id, &place) &
         (SONDE_HOW_RAW | SONDE_HOW_SKETCH)) == 0) {
        return SONDE_OK;
    }
    err = sonde_trial_sketch(board->work->trial, row->id, &place, board->sketch, &why);
    if (err != SONDE_OK) {
        if (sonde__export_left_out(board->work, err, &why)) {
            return SONDE_OK;
        }
        if (diag != NULL) {
            *diag = why;
        }
        return err;
    }
    SONDE__TRY(make_tag(board, row->tensor, "", diag));
    err =
        sonde__export_events_histogram(&board->streams[row->mode].events, board->tag.data,
                                       row->mode_step, row->vitals, board->sketch, diag);
    if (err != SONDE_OK) {
        return err;
    }
    board->work->report->histograms++;
    return SONDE_OK;
}

static bool is_scalar(const board_writer *board, uint32_t id)
{
    const sonde_tensor_info *info =
        sonde_catalogue_info(sonde_trial_catalogue(board->work->trial), id);
    const sonde_view shape = sonde_view_of(info->dtype, info->rank, info->shape, NULL);

    return sonde_view_count(&shape) == 1;
}

static sonde_err put_row(void *user, const sonde_export_row *row, sonde_diag *diag)
{
    board_writer *board = user;

    board->work->report->tensors += board->seen[row->id] == 0;
    board->seen[row->id] = 1;
    if (!board->streams[row->mode].open) {
        SONDE__TRY(open_stream(board, row->mode, diag));
    }
    board->streams[row->mode].events.wall_time =
        row->time > 0 ? 1e-9 * (double)row->time : board->created;
    if (is_scalar(board, row->id) && row->vitals != NULL) {
        return put_scalar(board, row, "", sonde_vitals_get(row->vitals, SONDE_STAT_MEAN),
                          diag);
    }
    for (size_t i = 0; i < board->work->stat_count; i++) {
        if (row->values[i].how == 0) {
            continue;
        }
        SONDE__TRY(put_scalar(board, row, board->work->stats[i].name,
                              row->values[i].number, diag));
    }
    return row->vitals != NULL && !sonde_vitals_are_norms(row->vitals)
               ? put_histogram(board, row, diag)
               : SONDE_OK;
}

/* Publishes the files in the folder, or abandons them after an error. */
static sonde_err close_streams(board_writer *board, sonde_err err, sonde_diag *diag)
{
    for (int m = 0; m < SONDE_MODE_COUNT; m++) {
        stream *one = &board->streams[m];

        if (one->open && err == SONDE_OK) {
            err = sonde__export_events_close(&one->events, diag);
        } else if (one->open) {
            sonde__export_events_abandon(&one->events);
        }
        *one = (stream){.open = false};
    }
    return err;
}

static sonde_err write_workers(board_writer *board, sonde_diag *diag)
{
    sonde__export *work = board->work;
    const sonde_export_options *asked = work->options;
    sonde_export_options options = *asked;
    sonde_err err = SONDE_OK;

    work->options = &options; /* of one worker after the other */

    for (size_t i = 0; sonde_trial_worker(work->trial, i) >= 0; i++) {
        options.worker = sonde_trial_worker(work->trial, i);
        if (asked->worker >= 0 && options.worker != asked->worker) {
            continue;
        }
        board->worker = work->many_workers ? sonde_trial_worker_name(work->trial, i) : "";
        err = sonde__export_walk(work, false, put_row, board, diag);
        err = close_streams(board, err, diag);
        if (err != SONDE_OK) {
            break;
        }
    }
    work->options = asked;
    return err;
}

static sonde_err make_board(board_writer *board, const char *path, sonde_diag *diag)
{
    const size_t tensors =
        sonde_catalogue_count(sonde_trial_catalogue(board->work->trial));

    board->sketch = sonde__malloc(sizeof *board->sketch);
    board->seen = sonde__calloc(tensors + 1, 1);
    if (board->sketch == NULL || board->seen == NULL) {
        return sonde__fail_nomem(diag, "an export");
    }
    SONDE__TRY(write_workers(board, diag));
    if (board->work->report->scalars == 0) {
        return sonde__fail(diag, SONDE_ENOTFOUND, path, NULL,
                           "nothing of these tensors and steps was recorded");
    }
    return sonde__publish(board->folder, path, SONDE__KEEP, diag);
}

sonde_err sonde__export_tensorboard(sonde__export *work, const char *path,
                                    sonde_diag *diag)
{
    sonde_run_info info;
    board_writer board = {.work = work};
    char *folder = NULL;
    sonde_err err = SONDE_OK;

    sonde__export_choose(work, usual_stats, SONDE_COUNT_OF(usual_stats));
    for (size_t i = 0; i < work->stat_count; i++) {
        if (work->stats[i].kind == SONDE_REDUCTION_HASH) {
            return sonde__fail(diag, SONDE_EINVAL, work->stats[i].name,
                               "a statistic that is a number", "a scalar of TensorBoard");
        }
    }
    SONDE__TRY(sonde__export_out_free_place(path, diag));
    SONDE__TRY(sonde__folder_beside(path, &folder, diag));
    sonde_trial_describe(work->trial, &info);
    board.created = parse_time(info.created);
    board.folder = folder;
    err = make_board(&board, path, diag);
    if (err != SONDE_OK) {
        sonde__export_out_remove_folder(folder);
    }
    sonde__free(folder);
    sonde__free(board.sketch);
    sonde__free(board.seen);
    sonde_text_fini(&board.tag);
    return err;
}
