/*
 * smdebug_values.c - values and statistics from smdebug's event files, when they are
 * asked for; see smdebug.c.
 *
 * Saved reductions are numbers, one a record. As vital signs they have gaps: what was not
 * saved is NaN, except where it follows (a largest magnitude of 0 means zeros only). The
 * number of elements is that of the shape; if no shape was saved, that which a sum and a
 * mean imply; else it is 1, and l1 is then the mean magnitude where that was saved.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "trial/smdebug_event.h"
#include "trial/smdebug_state.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MIN,
    MAX,
    MEAN,
    STD,
    VARIANCE,
    SUM,
    PROD,
    L1,
    L2,
    ABS_MIN,
    ABS_MAX,
    ABS_MEAN,
    ABS_STD,
    ABS_VARIANCE,
    ABS_SUM,
    ABS_PROD,
    ABS_L1,
    ABS_L2
};

const char *const sonde__smdebug_reductions[SONDE__IMPORT_REDUCTIONS] = {
    [MIN] = "min",
    [MAX] = "max",
    [MEAN] = "mean",
    [STD] = "std",
    [VARIANCE] = "variance",
    [SUM] = "sum",
    [PROD] = "prod",
    [L1] = "l1",
    [L2] = "l2",
    [ABS_MIN] = "abs_min",
    [ABS_MAX] = "abs_max",
    [ABS_MEAN] = "abs_mean",
    [ABS_STD] = "abs_std",
    [ABS_VARIANCE] = "abs_variance",
    [ABS_SUM] = "abs_sum",
    [ABS_PROD] = "abs_prod",
    [ABS_L1] = "abs_l1",
    [ABS_L2] = "abs_l2",
};

/* --- event files ------------------------------------------------------------------ */

const char *sonde__smdebug_event_name(const sonde__trial_worker *worker, int64_t step,
                                      char *name)
{
    (void)snprintf(name, SONDE__PATH, "events/%012lld/%012lld_%s.tfevents",
                   (long long)step, (long long)step, worker->name);
    return name;
}

static int open_events(const sonde_trial *trial, const sonde__trial_worker *worker,
                       const sonde__trial_file *file, char *path)
{
    char name[SONDE__PATH];

    (void)sonde__trial_path(trial->path,
                            file->name != NULL ? file->name
                                               : sonde__smdebug_event_name(
                                                     worker, (int64_t)file->number, name),
                            path);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Reads a record to trial->value. */
static sonde_err read_record(sonde_trial *trial, const sonde__trial_worker *worker,
                             const sonde__trial_file *file, uint64_t offset,
                             uint64_t bytes, sonde_diag *diag)
{
    char path[SONDE__PATH];
    size_t count = 0;
    sonde_err err = SONDE_OK;
    const int fd = open_events(trial, worker, file, path);

    if (fd < 0) {
        return sonde__fail_errno(diag, path, "cannot be opened");
    }
    if (lseek(fd, 0, SEEK_END) < (off_t)(offset + bytes)) {
        err =
            sonde__fail(diag, SONDE_EFORMAT, path, NULL, "cut off: no %llu bytes at %llu",
                        (unsigned long long)bytes, (unsigned long long)offset);
        goto error;
    }
    if (!sonde__trial_scratch_reserve(&trial->value, (size_t)bytes)) {
        err = sonde__fail_nomem(diag, path);
        goto error;
    }
    SONDE__TRY_GO(sonde__trial_read_at(fd, trial->value.bytes, (size_t)bytes, offset,
                                       &count, path, diag));
    if (count < bytes) {
        err = sonde__fail(diag, SONDE_EFORMAT, path, NULL, "cut off at %llu",
                          (unsigned long long)(offset + count));
    }
error:
    (void)close(fd);
    return err;
}

int64_t sonde__smdebug_read_time(const sonde_trial *trial,
                                 const sonde__trial_worker *worker,
                                 const sonde__trial_file *file, uint64_t offset)
{
    unsigned char head[SONDE__IMPORT_EVENT_HEAD];
    char path[SONDE__PATH];
    int64_t time = 0;
    const int fd = open_events(trial, worker, file, path);

    if (fd >= 0) {
        if (pread(fd, head, sizeof head, (off_t)offset) == (ssize_t)sizeof head) {
            time = sonde__smdebug_event_time(head);
        }
        (void)close(fd);
    }
    return time;
}

sonde_err sonde__smdebug_read_tensor(sonde_trial *trial,
                                     const sonde__trial_worker *worker,
                                     const sonde__trial_file *file, uint64_t offset,
                                     uint64_t bytes, const char *tag, sonde_view *view,
                                     sonde_diag *diag)
{
    const unsigned char *payload = NULL;
    char title[256];
    size_t size = 0;
    SONDE__TRY(read_record(trial, worker, file, offset, bytes, diag));
    (void)snprintf(title, sizeof title, "%s: '%.128s' at step %llu", worker->name, tag,
                   (unsigned long long)file->number);
    SONDE__TRY(sonde__smdebug_event_unwrap(trial->value.bytes, (size_t)bytes, title,
                                           &payload, &size, diag));
    return sonde__smdebug_event_tensor(payload, size, tag, title, view, diag);
}

void sonde__smdebug_ahead(const sonde_trial *trial, const sonde__trial_worker *worker,
                          const sonde__trial_file *file, uint64_t offset, uint64_t count)
{
    char path[SONDE__PATH];
    const int fd = open_events(trial, worker, file, path);

    if (fd >= 0) {
        (void)posix_fadvise(fd, (off_t)offset, (off_t)count, POSIX_FADV_WILLNEED);
        (void)close(fd);
    }
}

/* --- groups ----------------------------------------------------------------------- */

static const sonde_tensor_info *info_of(const sonde_trial *trial, uint32_t tensor)
{
    return sonde_catalogue_info(trial->catalogue, tensor);
}

/* The one number of a record. */
static sonde_err read_number(sonde_trial *trial, const sonde__trial_worker *worker,
                             const sonde__smdebug_group *group,
                             const sonde__smdebug_record *record, double *number,
                             sonde_diag *diag)
{
    const sonde__trial_file *file =
        &worker->files[SONDE__FILE_SEGMENT].items[group->segment];
    const char *name = info_of(trial, record->tensor)->name;
    char tag[SONDE__MOST_NAME + 64];
    sonde_view view;
    uint64_t element = 0;

    (void)snprintf(
        tag, sizeof tag, "%s%s%s%s", record->reduction >= 0 ? "smdebug/reductions/" : "",
        record->reduction >= 0 ? sonde__smdebug_reductions[record->reduction] : "",
        record->reduction >= 0 ? "/" : "", name);
    SONDE__TRY(sonde__smdebug_read_tensor(trial, worker, file, record->offset,
                                          record->bytes, tag, &view, diag));
    if (sonde_view_count(&view) != 1 || sonde_dtype_size(view.dtype) > sizeof element) {
        return sonde__fail(diag, SONDE_EFORMAT, tag, "one number",
                           "a value of another shape");
    }
    memcpy(&element, view.data, sonde_dtype_size(view.dtype));
    *number = sonde_element_get(view.dtype, &element);
    return SONDE_OK;
}

sonde_err sonde__smdebug_value(sonde_trial *trial, sonde__trial_worker *worker,
                               const sonde__trial_raw_item *item, sonde_view *view,
                               sonde_diag *diag)
{
    return sonde__smdebug_read_tensor(
        trial, worker, &worker->files[SONDE__FILE_SEGMENT].items[item->segment],
        item->offset, item->bytes, info_of(trial, item->item.tensor)->name, view, diag);
}

/* --- statistics ------------------------------------------------------------------- */

/* The first that was saved; NaN: none. */
static double first_of(const double *saved, const bool *has, int a, int b)
{
    return has[a] ? saved[a] : has[b] ? saved[b] : (double)NAN;
}

/* The number of elements that sums and means imply; 0: they do not. smdebug drops the
 * shape of a tensor of which it saves reductions alone. */
static uint64_t implied_count(const double *saved, const bool *has)
{
    static const struct {
        int sum, mean;
    } pairs[] = {{L1, ABS_MEAN}, {ABS_SUM, ABS_MEAN}, {ABS_L1, ABS_MEAN}, {SUM, MEAN}};

    for (size_t i = 0; i < SONDE_COUNT_OF(pairs); i++) {
        const double n = has[pairs[i].sum] && has[pairs[i].mean]
                             ? saved[pairs[i].sum] / saved[pairs[i].mean]
                             : 0.0;

        /* rounded sums of both signs may cancel: then the quotient is no whole number */
        if (n > 0.5 && n < 1e15 && fabs(n - floor(n + 0.5)) < 0.1) {
            return (uint64_t)floor(n + 0.5);
        }
    }
    return 0;
}

static bool all_zero(const double *saved, const bool *has)
{
    static const int magnitudes[] = {ABS_MAX, ABS_MEAN, ABS_SUM, L1, L2, ABS_L1, ABS_L2};

    for (size_t i = 0; i < SONDE_COUNT_OF(magnitudes); i++) {
        if (has[magnitudes[i]] && saved[magnitudes[i]] == 0.0) {
            return true;
        }
    }
    return has[MIN] && has[MAX] && saved[MIN] == 0.0 && saved[MAX] == 0.0;
}

/* Vital signs from what was saved of a tensor of count elements (0: not known). */
static void fill_row(const double *saved, const bool *has, uint64_t count,
                     sonde__record_stats_row *row)
{
    const double n = count > 0 ? (double)count : 1.0;
    const double variance = has[VARIANCE] ? saved[VARIANCE]
                            : has[STD]    ? saved[STD] * saved[STD]
                                          : (double)NAN;
    double l1 = first_of(saved, has, L1, ABS_SUM);
    double l2 = first_of(saved, has, L2, ABS_L2);

    l1 = isnan(l1) && has[ABS_L1] ? saved[ABS_L1] : l1;
    row->count = count > 0 ? count : 1;
    row->min = has[MIN] ? saved[MIN] : (double)NAN;
    row->max = has[MAX] ? saved[MAX] : (double)NAN;
    row->abs_min = has[ABS_MIN] ? saved[ABS_MIN] : (double)NAN;
    row->abs_max = has[ABS_MAX]           ? saved[ABS_MAX]
                   : has[MIN] && has[MAX] ? fmax(fabs(saved[MIN]), fabs(saved[MAX]))
                                          : (double)NAN;
    row->mean = has[MEAN]               ? saved[MEAN]
                : has[SUM] && count > 0 ? saved[SUM] / n
                                        : (double)NAN;
    row->sum = has[SUM] ? saved[SUM] : count > 0 ? row->mean * n : (double)NAN;
    row->m2 = variance * n;
    row->l1 = has[ABS_MEAN] && (count == 0 || isnan(l1)) ? saved[ABS_MEAN] * n : l1;
    row->sumsq = isnan(l2) ? row->m2 + n * row->mean * row->mean : l2 * l2;
    if (all_zero(saved, has)) {
        row->zero = row->count;
        row->min = row->max = row->abs_min = row->abs_max = row->mean = row->m2 = 0.0;
        row->l1 = row->sumsq = row->sum = 0.0;
    }
}

static uint64_t elements_of(const sonde_tensor_info *info)
{
    const sonde_view shape = sonde_view_of(info->dtype, info->rank, info->shape, NULL);

    return info->note[0] != '\0' ? 0 : (uint64_t)sonde_view_count(&shape);
}

/* A NaN or infinity in the tensor shows in its statistics. */
static void count_non_finite(double saved, sonde__record_stats_row *row)
{
    row->nan = isnan(saved) ? 1 : row->nan;
    row->pos_inf = isinf(saved) && saved > 0.0 ? 1 : row->pos_inf;
    row->neg_inf = isinf(saved) && saved < 0.0 ? 1 : row->neg_inf;
}

sonde_err sonde__smdebug_row(sonde_trial *trial, sonde__trial_worker *worker,
                             uint32_t row, const sonde__record_stats_row **out,
                             sonde_diag *diag)
{
    sonde__smdebug_smdebug *smdebug = trial->foreign;
    const sonde__smdebug_group *group = &smdebug->groups[row];
    double saved[SONDE__IMPORT_REDUCTIONS] = {0};
    bool has[SONDE__IMPORT_REDUCTIONS] = {false};
    uint64_t count = 0;

    smdebug->row = (sonde__record_stats_row){.tensor = group->tensor};
    for (uint32_t i = 0; i < group->count; i++) {
        const sonde__smdebug_record *record = &smdebug->records[group->first + i];
        const sonde_err err =
            read_number(trial, worker, group, record, &saved[record->reduction], diag);

        if (err != SONDE_OK) {
            return err;
        }
        has[record->reduction] = true;
        count_non_finite(saved[record->reduction], &smdebug->row);
    }
    count = elements_of(info_of(trial, group->tensor));
    fill_row(saved, has, count > 0 ? count : implied_count(saved, has), &smdebug->row);
    *out = &smdebug->row;
    return SONDE_OK;
}
