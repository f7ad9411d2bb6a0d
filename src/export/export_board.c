/*
 * export_board.c - a run as TensorBoard sees it: a folder with a folder for each mode (of
 * each worker), which holds one event file.
 *
 *     OUT/train/events.out.tfevents.1769860800.sonde
 *     OUT/w0001-train/...                              of several workers
 *
 * All of it is made in a folder beside OUT, which then takes its name.
 */
#include "export/export_events.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "export/export_walk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const sonde_stat usual_stats[] = {
    SONDE_STAT_MEAN, SONDE_STAT_STD, SONDE_STAT_MIN,
    SONDE_STAT_MAX,  SONDE_STAT_L2,  SONDE_STAT_NONFINITE,
};

typedef struct stream {
    sonde__export_events events;
    bool open;
} stream;

typedef struct board {
    sonde__export *work;
    const char *folder;               /* where it is made */
    const char *worker;               /* before the mode's name; "" of one worker */
    double created;                   /* seconds since 1970 */
    stream streams[SONDE_MODE_COUNT]; /* of the worker of the moment */
    sonde_sketch *sketch;
    sonde_text tag;
    unsigned char *seen; /* by id */
} board;

/* "2026-01-31T12:00:00.000000Z"; the present if it is nothing like that. */
static double seconds_of(const char *created)
{
    struct tm when = {0};
    const char *rest = strptime(created, "%Y-%m-%dT%H:%M:%S", &when);

    return rest != NULL ? (double)timegm(&when) : (double)time(NULL);
}

static sonde_err open_stream(board *to, sonde_mode mode, sonde_diag *diag)
{
    const size_t size = strlen(to->folder) + strlen(to->worker) + 96;
    char *path = sonde__malloc(size);
    sonde_err err = SONDE_OK;
    int used = 0;

    if (path == NULL) {
        return sonde__fail_nomem(diag, "a file name");
    }
    used = snprintf(path, size, "%s/%s%s%s", to->folder, to->worker,
                    to->worker[0] != '\0' ? "-" : "", sonde_mode_name(mode));
    if (mkdir(path, 0777) != 0) {
        err = sonde__fail_errno(diag, path, "cannot be written");
    }
    if (err == SONDE_OK) {
        (void)snprintf(path + used, size - (size_t)used,
                       "/events.out.tfevents.%010.0f.sonde", to->created);
        to->streams[mode].open = true;
        err =
            sonde__export_events_open(&to->streams[mode].events, path, to->created, diag);
    }
    sonde__free(path);
    return err;
}

/* "tensor" or "tensor/statistic". */
static sonde_err make_tag(board *to, const char *tensor, const char *stat,
                          sonde_diag *diag)
{
    const size_t size = strlen(tensor) + strlen(stat) + 2;

    if (sonde_text_reserve(&to->tag, size) != SONDE_OK) {
        return sonde__fail_nomem(diag, "a tag");
    }
    (void)snprintf(to->tag.data, size, "%s%s%s", tensor, stat[0] != '\0' ? "/" : "",
                   stat);
    return SONDE_OK;
}

static sonde_err put_scalar(board *to, const sonde_export_row *row, const char *stat_name,
                            double value, sonde_diag *diag)
{
    sonde_err err = make_tag(to, row->tensor, stat_name, diag);

    if (err == SONDE_OK) {
        err = sonde__export_events_scalar(&to->streams[row->mode].events, to->tag.data,
                                          row->mode_step, value, diag);
    }
    to->work->report->scalars += err == SONDE_OK;
    return err;
}

static sonde_err put_histogram(board *to, const sonde_export_row *row, sonde_diag *diag)
{
    const sonde_trial_at at = {.mode = SONDE_MODE_GLOBAL,
                               .step = row->step,
                               .worker = row->worker,
                               .micro_batch = -1,
                               .replica = -1};
    sonde_diag why = {0};
    sonde_err err = SONDE_OK;

    if ((sonde_trial_has(to->work->trial, row->id, &at) &
         (SONDE_HOW_RAW | SONDE_HOW_SKETCH)) == 0) {
        return SONDE_OK;
    }
    err = sonde_trial_sketch(to->work->trial, row->id, &at, to->sketch, &why);
    if (err != SONDE_OK) {
        if (sonde__export_left_out(to->work, err, &why)) {
            return SONDE_OK;
        }
        if (diag != NULL) {
            *diag = why;
        }
        return err;
    }
    err = make_tag(to, row->tensor, "", diag);
    if (err == SONDE_OK) {
        err =
            sonde__export_events_histogram(&to->streams[row->mode].events, to->tag.data,
                                           row->mode_step, row->vitals, to->sketch, diag);
    }
    to->work->report->histograms += err == SONDE_OK;
    return err;
}

static bool is_scalar(const board *to, uint32_t id)
{
    const sonde_tensor_info *info =
        sonde_catalogue_info(sonde_trial_catalogue(to->work->trial), id);
    const sonde_view shape = sonde_view_of(info->dtype, info->rank, info->shape, NULL);

    return sonde_view_count(&shape) == 1;
}

static sonde_err put_row(void *user, const sonde_export_row *row, sonde_diag *diag)
{
    board *to = user;
    sonde_err err = SONDE_OK;

    to->work->report->tensors += to->seen[row->id] == 0;
    to->seen[row->id] = 1;
    if (!to->streams[row->mode].open) {
        err = open_stream(to, row->mode, diag);
    }
    to->streams[row->mode].events.wall_time =
        row->time > 0 ? 1e-9 * (double)row->time : to->created;
    if (err == SONDE_OK && is_scalar(to, row->id) && row->vitals != NULL) {
        return put_scalar(to, row, "", sonde_vitals_get(row->vitals, SONDE_STAT_MEAN),
                          diag);
    }
    for (size_t i = 0; err == SONDE_OK && i < to->work->stat_count; i++) {
        const sonde_reduction *what = &to->work->stats[i];

        if (row->values[i].how != 0) {
            err = put_scalar(to, row, what->name, row->values[i].number, diag);
        }
    }
    return err == SONDE_OK && row->vitals != NULL ? put_histogram(to, row, diag) : err;
}

/* Publishes the files within the folder, or gives them up. */
static sonde_err close_streams(board *to, sonde_err err, sonde_diag *diag)
{
    for (int m = 0; m < SONDE_MODE_COUNT; m++) {
        stream *one = &to->streams[m];

        if (one->open && err == SONDE_OK) {
            err = sonde__export_events_close(&one->events, diag);
        } else if (one->open) {
            sonde__export_events_abandon(&one->events);
        }
        *one = (stream){.open = false};
    }
    return err;
}

static sonde_err write_workers(board *to, sonde_diag *diag)
{
    sonde__export *work = to->work;
    const sonde_export_options *asked = work->options;
    sonde_export_options options = *asked;
    sonde_err err = SONDE_OK;

    work->options = &options; /* of one worker after the other */

    for (size_t i = 0; err == SONDE_OK && sonde_trial_worker(work->trial, i) >= 0; i++) {
        options.worker = sonde_trial_worker(work->trial, i);
        if (asked->worker >= 0 && options.worker != asked->worker) {
            continue;
        }
        to->worker = work->many_workers ? sonde_trial_worker_name(work->trial, i) : "";
        err = sonde__export_walk(work, false, put_row, to, diag);
        err = close_streams(to, err, diag);
    }
    work->options = asked;
    return err;
}

static sonde_err make_board(board *to, const char *path, sonde_diag *diag)
{
    const size_t tensors = sonde_catalogue_count(sonde_trial_catalogue(to->work->trial));
    sonde_err err = SONDE_OK;

    to->sketch = sonde__malloc(sizeof *to->sketch);
    to->seen = sonde__calloc(tensors + 1, 1);
    if (to->sketch == NULL || to->seen == NULL) {
        return sonde__fail_nomem(diag, "an export");
    }
    err = write_workers(to, diag);
    if (err == SONDE_OK && to->work->report->scalars == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, path, NULL,
                          "nothing of these tensors and steps was recorded");
    }
    return err == SONDE_OK ? sonde__publish(to->folder, path, SONDE__KEEP, diag) : err;
}

sonde_err sonde__export_tensorboard(sonde__export *work, const char *path,
                                    sonde_diag *diag)
{
    sonde_run_info info;
    board to = {.work = work};
    char *folder = NULL;
    sonde_err err = SONDE_OK;

    sonde__export_choose(work, usual_stats, SONDE_COUNT_OF(usual_stats));
    for (size_t i = 0; i < work->stat_count; i++) {
        if (work->stats[i].kind == SONDE_REDUCTION_HASH) {
            return sonde__fail(diag, SONDE_EINVAL, work->stats[i].name,
                               "a statistic that is a number", "a scalar of TensorBoard");
        }
    }
    err = sonde__export_out_free_place(path, diag);
    if (err != SONDE_OK) {
        return err;
    }
    err = sonde__folder_beside(path, &folder, diag);
    if (err != SONDE_OK) {
        return err;
    }
    sonde_trial_describe(work->trial, &info);
    to.created = seconds_of(info.created);
    to.folder = folder;
    err = make_board(&to, path, diag);
    if (err != SONDE_OK) {
        sonde__export_out_remove_folder(folder);
    }
    sonde__free(folder);
    sonde__free(to.sketch);
    sonde__free(to.seen);
    sonde_text_fini(&to.tag);
    return err;
}
