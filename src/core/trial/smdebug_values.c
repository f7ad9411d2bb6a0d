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
#include "trial/smdebug.h"

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

const char *const sonde__smdebug_reductions[SONDE__SMDEBUG_REDUCTIONS] = {
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
    unsigned char head[SONDE__SMDEBUG_EVENT_HEAD];
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

/* saved: by reduction; NaN: not saved, or a NaN in the tensor, which makes the same row. */

static double first_of(double a, double b)
{
    return isnan(a) ? b : a;
}

/* The number of elements that sums and means imply; 0: they do not. smdebug drops the
 * shape of a tensor of which it saves reductions alone. */
static uint64_t implied_count(const double *saved)
{
    const double quotients[] = {
        saved[L1] / saved[ABS_MEAN], saved[ABS_SUM] / saved[ABS_MEAN],
        saved[ABS_L1] / saved[ABS_MEAN], saved[SUM] / saved[MEAN]};

    for (size_t i = 0; i < SONDE_COUNT_OF(quotients); i++) {
        const double n = quotients[i];

        /* rounded sums of both signs may cancel: then the quotient is no whole number */
        if (n > 0.5 && n < 1e15 && fabs(n - floor(n + 0.5)) < 0.1) {
            return (uint64_t)floor(n + 0.5);
        }
    }
    return 0;
}

static bool all_zero(const double *saved)
{
    static const int magnitudes[] = {ABS_MAX, ABS_MEAN, ABS_SUM, L1, L2, ABS_L1, ABS_L2};
    bool zero = saved[MIN] == 0.0 && saved[MAX] == 0.0;

    for (size_t i = 0; i < SONDE_COUNT_OF(magnitudes); i++) {
        zero = zero || saved[magnitudes[i]] == 0.0;
    }
    return zero;
}

/* Vital signs from what was saved of a tensor of count elements (0: not known). */
static void fill_row(const double *saved, uint64_t count, sonde__record_stats_row *row)
{
    const bool known = count > 0, ends = !isnan(saved[MIN]) && !isnan(saved[MAX]);
    const double n = known ? (double)count : 1.0, unknown = (double)NAN;
    const double l1 = first_of(first_of(saved[L1], saved[ABS_SUM]), saved[ABS_L1]);
    const double l2 = first_of(saved[L2], saved[ABS_L2]);
    const double largest = ends ? fmax(fabs(saved[MIN]), fabs(saved[MAX])) : unknown;

    row->count = known ? count : 1;
    row->min = saved[MIN];
    row->max = saved[MAX];
    row->abs_min = saved[ABS_MIN];
    row->abs_max = first_of(saved[ABS_MAX], largest);
    row->mean = first_of(saved[MEAN], known ? saved[SUM] / n : unknown);
    row->sum = first_of(saved[SUM], known ? row->mean * n : unknown);
    row->m2 = first_of(saved[VARIANCE], saved[STD] * saved[STD]) * n;
    row->l1 = !isnan(saved[ABS_MEAN]) && (!known || isnan(l1)) ? saved[ABS_MEAN] * n : l1;
    row->sumsq = isnan(l2) ? row->m2 + n * row->mean * row->mean : l2 * l2;
    if (all_zero(saved)) {
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
    sonde__smdebug *smdebug = trial->smdebug;
    const sonde__smdebug_group *group = &smdebug->groups[row];
    double saved[SONDE__SMDEBUG_REDUCTIONS];

    smdebug->row = (sonde__record_stats_row){.tensor = group->tensor};
    for (int i = 0; i < SONDE__SMDEBUG_REDUCTIONS; i++) {
        saved[i] = (double)NAN;
    }
    for (uint32_t i = 0; i < group->count; i++) {
        const sonde__smdebug_record *record = &smdebug->records[group->first + i];

        SONDE__TRY(
            read_number(trial, worker, group, record, &saved[record->reduction], diag));
        count_non_finite(saved[record->reduction], &smdebug->row);
    }
    const uint64_t count = elements_of(info_of(trial, group->tensor));

    fill_row(saved, count > 0 ? count : implied_count(saved), &smdebug->row);
    *out = &smdebug->row;
    return SONDE_OK;
}

/* === records ======================================================================== */

/*
 * TFRecord framing and the few messages of protobuf inside it.
 *
 *     Event        1 wall_time, 5 summary
 *     Summary      1 value (repeated)
 *     Value        1 tag, 8 tensor
 *     TensorProto  1 dtype, 2 tensor_shape, 4 tensor_content, 8 string_val (repeated)
 *     Shape        2 dim (repeated);  Dim  1 size
 *
 * Other fields are skipped. If a single field is repeated the last one counts, as
 * protobuf requires. A parser of its own, as these 60 lines read views in place:
 * protobuf-c would copy every tensor.
 */
enum { HEAD = 12, FOOT = 4, STRINGS = 7 /* TensorFlow's dtype */ };

/* The masked checksum of "0x12345678", which smdebug writes after every payload. */
#define CONSTANT_FOOT 0x062DC0B3U

/* --- framing ---------------------------------------------------------------------- */

uint32_t sonde__smdebug_crc32c(const void *bytes, size_t size)
{
    const unsigned char *byte = bytes;
    uint32_t table[256], crc = UINT32_MAX;

    for (uint32_t i = 0; i < 256; i++) {
        uint32_t entry = i;

        for (int bit = 0; bit < 8; bit++) {
            entry = entry >> 1 ^ ((entry & 1) != 0 ? 0x82F63B78U : 0);
        }
        table[i] = entry;
    }
    for (size_t i = 0; i < size; i++) {
        crc = crc >> 8 ^ table[(crc ^ byte[i]) & 255];
    }
    return ~crc;
}

uint32_t sonde__smdebug_masked_crc32c(const void *bytes, size_t size)
{
    const uint32_t crc = sonde__smdebug_crc32c(bytes, size);

    return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

sonde_err sonde__smdebug_event_unwrap(const unsigned char *bytes, size_t size,
                                      const char *title, const unsigned char **payload,
                                      size_t *payload_size, sonde_diag *diag)
{
    uint64_t length = 0;
    uint32_t crc = 0;

    if (size < HEAD + FOOT) {
        return sonde__fail(diag, SONDE_EFORMAT, title, "a TFRecord", "%zu bytes", size);
    }
    memcpy(&length, bytes, sizeof length);
    memcpy(&crc, bytes + sizeof length, sizeof crc);
    if (crc != sonde__smdebug_masked_crc32c(bytes, sizeof length)) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "the checksum of the record's length is wrong");
    }
    if (length != size - HEAD - FOOT) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "a record of %llu bytes where the index has %zu",
                           (unsigned long long)length, size - HEAD - FOOT);
    }
    memcpy(&crc, bytes + HEAD + length, sizeof crc);
    if (crc != CONSTANT_FOOT &&
        crc != sonde__smdebug_masked_crc32c(bytes + HEAD, (size_t)length)) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "the checksum after the record is wrong");
    }
    *payload = bytes + HEAD;
    *payload_size = (size_t)length;
    return SONDE_OK;
}

int64_t sonde__smdebug_event_time(const unsigned char head[SONDE__SMDEBUG_EVENT_HEAD])
{
    enum { WALL_TIME = 1 << 3 | 1 /* a field of 8 bytes */ };
    double seconds = 0.0;

    memcpy(&seconds, head + HEAD + 1, sizeof seconds);
    return head[HEAD] == WALL_TIME && isfinite(seconds) && seconds > 0.0 && seconds < 9e9
               ? (int64_t)(seconds * 1e9)
               : 0;
}

/* --- protobuf --------------------------------------------------------------------- */

typedef struct message {
    const unsigned char *next, *end;
} message;

/* One field. number or, of wire type 2, bytes. */
typedef struct field {
    uint64_t id;
    unsigned wire;
    uint64_t number;
    message bytes;
} field;

static bool take_varint(message *bytes, uint64_t *out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        unsigned char byte = 0;

        if (bytes->next == bytes->end) {
            return false;
        }
        byte = *bytes->next++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool take_bytes(message *bytes, uint64_t count, message *out)
{
    if (count > (uint64_t)(bytes->end - bytes->next)) {
        return false;
    }
    *out = (message){bytes->next, bytes->next + count};
    bytes->next += count;
    return true;
}

/* The next field; false if there is none that is whole. */
static bool take_field(message *bytes, field *out)
{
    uint64_t key = 0, length = 0;

    if (!take_varint(bytes, &key)) {
        return false;
    }
    *out = (field){.id = key >> 3, .wire = (unsigned)(key & 7)};
    switch (out->wire) {
    case 0:
        return take_varint(bytes, &out->number);
    case 1:
        return take_bytes(bytes, 8, &out->bytes);
    case 2:
        return take_varint(bytes, &length) && take_bytes(bytes, length, &out->bytes);
    case 5:
        return take_bytes(bytes, 4, &out->bytes);
    default: /* groups, which are obsolete */
        return false;
    }
}

static bool is_bytes(const field *one, uint64_t id)
{
    return one->id == id && one->wire == 2;
}

/* --- tensors ---------------------------------------------------------------------- */

/* TensorFlow's numbers of the dtypes that Sonde has. */
static bool find_dtype(uint64_t number, sonde_dtype *dtype)
{
    static const struct {
        uint64_t number;
        sonde_dtype dtype;
    } known[] = {
        {1, SONDE_F32},   {2, SONDE_F64},  {3, SONDE_I32},   {4, SONDE_U8},
        {5, SONDE_I16},   {6, SONDE_I8},   {9, SONDE_I64},   {10, SONDE_BOOL},
        {14, SONDE_BF16}, {17, SONDE_U16}, {19, SONDE_F16},  {22, SONDE_U32},
        {23, SONDE_U64},  {8, SONDE_C64},  {18, SONDE_C128},
    };

    for (size_t i = 0; i < SONDE_COUNT_OF(known); i++) {
        if (known[i].number == number) {
            *dtype = known[i].dtype;
            return true;
        }
    }
    return false;
}

typedef struct tensor {
    uint64_t dtype;
    size_t rank; /* as written; only the first SONDE_MAX_DIMS extents are kept */
    int64_t shape[SONDE_MAX_DIMS];
    message content;
} tensor;

static bool read_extent(message bytes, int64_t *extent)
{
    field next;

    *extent = 0; /* as protobuf leaves out zeros */
    while (bytes.next < bytes.end) {
        if (!take_field(&bytes, &next)) {
            return false;
        }
        if (next.id == 1 && next.wire == 0) {
            *extent = (int64_t)next.number;
        }
    }
    return *extent >= 0;
}

static bool read_shape(message bytes, tensor *out)
{
    field next;

    while (bytes.next < bytes.end) {
        int64_t extent = 0;

        if (!take_field(&bytes, &next)) {
            return false;
        }
        if (!is_bytes(&next, 2)) {
            continue;
        }
        if (!read_extent(next.bytes, &extent)) {
            return false;
        }
        if (out->rank < SONDE_MAX_DIMS) {
            out->shape[out->rank] = extent;
        }
        out->rank++;
    }
    return true;
}

static bool read_tensor(message bytes, tensor *out)
{
    field next;

    *out = (tensor){.content = {bytes.end, bytes.end}};
    while (bytes.next < bytes.end) {
        if (!take_field(&bytes, &next)) {
            return false;
        }
        if (next.id == 1 && next.wire == 0) {
            out->dtype = next.number;
        } else if (is_bytes(&next, 2)) {
            out->rank = 0;
            if (!read_shape(next.bytes, out)) {
                return false;
            }
        } else if (is_bytes(&next, 4)) {
            out->content = next.bytes;
        } else if (is_bytes(&next, 8) && out->dtype == 0) {
            out->dtype = STRINGS; /* smdebug leaves it out */
        }
    }
    return true;
}

/* *bytes: what the elements take; false if no memory holds them. */
static bool measure(const tensor *read, sonde_dtype dtype, uint64_t *bytes)
{
    int64_t product = (int64_t)sonde_dtype_size(dtype), reach = product;

    for (size_t d = 0; d < read->rank; d++) {
        if (__builtin_mul_overflow(reach, SONDE_MAX(read->shape[d], 1), &reach)) {
            return false;
        }
        product *= read->shape[d];
    }
    *bytes = (uint64_t)product;
    return true;
}

static sonde_err make_view(const tensor *read, const char *title, sonde_view *view,
                           sonde_diag *diag)
{
    const uint64_t content = (uint64_t)(read->content.end - read->content.next);
    sonde_dtype dtype = SONDE_F32;
    uint64_t bytes = 0;

    if (!find_dtype(read->dtype, &dtype)) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, title, "a dtype of Sonde's",
                           "TensorFlow's dtype %llu%s", (unsigned long long)read->dtype,
                           read->dtype == STRINGS ? ", strings" : "");
    }
    if (read->rank > SONDE_MAX_DIMS) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, title, "at most 8", "%zu dimensions",
                           read->rank);
    }
    if (!measure(read, dtype, &bytes) || bytes != content) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "%llu bytes of content, which its shape does not make",
                           (unsigned long long)content);
    }
    *view = sonde_view_of(dtype, (int)read->rank, read->shape,
                          (void *)(uintptr_t)read->content.next);
    return SONDE_OK;
}

/* A value of the summary: whether it is whole, and has the tag. */
static bool read_value(message bytes, const char *tag, bool *named, message *found)
{
    const size_t length = strlen(tag);
    field next;

    *named = false;
    *found = (message){bytes.end, bytes.end};
    while (bytes.next < bytes.end) {
        if (!take_field(&bytes, &next)) {
            return false;
        }
        if (is_bytes(&next, 1)) {
            *named = (size_t)(next.bytes.end - next.bytes.next) == length &&
                     memcmp(next.bytes.next, tag, length) == 0;
        } else if (is_bytes(&next, 8)) {
            *found = next.bytes;
        }
    }
    return true;
}

/* The TensorProto of that tag. */
static bool find_tensor(message event, const char *tag, bool *named, message *found)
{
    field next, inner;

    while (event.next < event.end) {
        if (!take_field(&event, &next)) {
            return false;
        }
        while (is_bytes(&next, 5) && next.bytes.next < next.bytes.end) {
            if (!take_field(&next.bytes, &inner)) {
                return false;
            }
            if (is_bytes(&inner, 1) && !*named &&
                !read_value(inner.bytes, tag, named, found)) {
                return false;
            }
        }
    }
    return true;
}

sonde_err sonde__smdebug_event_tensor(const unsigned char *payload, size_t size,
                                      const char *tag, const char *title,
                                      sonde_view *view, sonde_diag *diag)
{
    message found = {NULL, NULL};
    bool named = false;
    tensor read;

    if (!find_tensor((message){payload, payload + size}, tag, &named, &found)) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "the record is not a protobuf Event");
    }
    if (!named) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "the record is of another tensor");
    }
    if (!read_tensor(found, &read)) {
        return sonde__fail(diag, SONDE_EFORMAT, title, NULL,
                           "the record's tensor is damaged");
    }
    return make_view(&read, title, view, diag);
}
