/*
 * outfeed.c - an outfeed queue: options and requests, the columns and taps that attach
 * makes of them, and the table of a batch.
 *
 * Numbers in the table have six decimals; NaN and infinities are " nan", " inf" and
 * "-inf" (four characters); a shape of one dimension is "(500,)".
 */
#include <sonde/log.h>
#include <sonde/error.h>
#include <sonde/outfeed.h>
#include <sonde/stats.h>

#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/names.h"
#include "observe/outfeed_state.h"
#include "observe/tensor_names.h"
#include "base/options.h"
#include "base/number.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* --- creating --------------------------------------------------------------------- */

static sonde_err check_options(const sonde_outfeed_options *options, sonde_diag *diag)
{
    if (options->rows < 1) {
        return sonde__fail(diag, SONDE_EINVAL, "rows", "1 or more", "%lld",
                           (long long)options->rows);
    }
    if ((unsigned)options->when_full > SONDE_OUTFEED_ERROR) {
        return sonde__fail(diag, SONDE_EINVAL, "when_full", "a sonde_outfeed_full", "%d",
                           (int)options->when_full);
    }
    if ((unsigned)options->per > SONDE_OUTFEED_MICRO_BATCH) {
        return sonde__fail(diag, SONDE_EINVAL, "per", "a sonde_outfeed_per", "%d",
                           (int)options->per);
    }
    if (options->one_thread && options->when_full == SONDE_OUTFEED_BLOCK) {
        return sonde__fail(diag, SONDE_EINVAL, "one_thread",
                           "another when_full: no other thread makes room",
                           "a queue of one thread that blocks when it is full");
    }
    for (size_t i = 0; i < options->filter_count; i++) {
        if (options->filters == NULL || options->filters[i] == NULL) {
            return sonde__fail(diag, SONDE_EINVAL, "filters", "a text",
                               "filter %zu is NULL", i);
        }
    }
    return options->when != NULL ? sonde_schedule_check(options->when, diag) : SONDE_OK;
}

static bool copy_texts(sonde_outfeed *queue, const sonde_outfeed_options *options)
{
    queue->name = sonde__strdup(options->name != NULL ? options->name : "outfeed");
    queue->filters = sonde__calloc(options->filter_count, sizeof *queue->filters);
    if (queue->name == NULL || queue->filters == NULL) {
        return false;
    }
    for (size_t i = 0; i < options->filter_count; i++) {
        queue->filters[i] = sonde__strdup(options->filters[i]);
        if (queue->filters[i] == NULL) {
            return false;
        }
        queue->filter_count++;
    }
    return true;
}

static void free_texts(sonde_outfeed *queue)
{
    for (size_t i = 0; i < queue->filter_count; i++) {
        sonde__free(queue->filters[i]);
    }
    sonde__free(queue->filters);
    sonde__free(queue->name);
}

/* The clock of timed waits must not jump. */
static void init_threads(sonde_outfeed *queue)
{
    pthread_condattr_t steady;

    (void)pthread_condattr_init(&steady);
    (void)pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&queue->lock, NULL);
    (void)pthread_cond_init(&queue->room, NULL);
    (void)pthread_cond_init(&queue->filled, &steady);
    (void)pthread_condattr_destroy(&steady);
}

sonde_err sonde_outfeed_create(const sonde_outfeed_options *given, sonde_outfeed **out,
                               sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "options, out", given, out);
    sonde_outfeed_options taken;
    const sonde_outfeed_options *const options = &taken;
    SONDE__TAKE(sonde_outfeed_options, &taken, given, diag);
    SONDE__TRY(check_options(options, diag));
    sonde_outfeed *queue = sonde__calloc(1, sizeof *queue);
    if (queue == NULL) {
        return sonde__fail_nomem(diag, "an outfeed queue");
    }
    queue->options = *options;
    queue->when = options->when != NULL ? *options->when : sonde_schedule_every(1);
    sonde__outfeed_sink_init(&queue->sink);
    if (!copy_texts(queue, options)) {
        free_texts(queue);
        sonde__free(queue);
        return sonde__fail_nomem(diag, "an outfeed queue");
    }
    sonde__names_init(&queue->keys);
    init_threads(queue);
    *out = queue;
    return SONDE_OK;
}

void sonde__outfeed_clear(sonde_outfeed *queue)
{
    for (size_t i = 0; i < queue->column_count; i++) {
        sonde__outfeed_free_column(&queue->columns[i]);
    }
    sonde__names_fini(&queue->keys);
    sonde__names_init(&queue->keys);
    for (size_t id = 0; id < queue->id_capacity; id++) {
        queue->by_id[id] = SONDE__NO_COLUMN;
    }
    queue->column_count = 0;
    queue->prepared = 0;
    queue->row.open = false;
    queue->head = 0;
    queue->count = 0;
}

void sonde_outfeed_destroy(sonde_outfeed *queue)
{
    if (queue == NULL) {
        return;
    }
    sonde__outfeed_clear(queue);
    sonde__names_fini(&queue->keys);
    for (size_t i = 0; i < queue->request_count; i++) {
        sonde__free(queue->requests[i].tensor);
        sonde__free(queue->requests[i].key);
    }
    sonde__free(queue->requests);
    sonde__free(queue->columns);
    sonde__free(queue->by_id);
    sonde__free(queue->entries);
    free_texts(queue);
    (void)pthread_cond_destroy(&queue->room);
    (void)pthread_cond_destroy(&queue->filled);
    (void)pthread_mutex_destroy(&queue->lock);
    sonde__free(queue);
}

/* --- adding ----------------------------------------------------------------------- */

static sonde_err add_request(sonde_outfeed *queue, const sonde__outfeed_request *added,
                             sonde_diag *diag)
{
    char where[256];

    (void)sonde__outfeed_where(queue, where, sizeof where);
    if (queue->prepared > 0) {
        return sonde__fail(diag, SONDE_ESTATE, where, "tensors before it is bound",
                           "a tensor added to a queue in use");
    }
    if (!sonde__reserve(&queue->requests, &queue->request_capacity,
                        queue->request_count + 1, sizeof *queue->requests)) {
        return sonde__fail_nomem(diag, where);
    }
    queue->requests[queue->request_count++] = *added;
    return SONDE_OK;
}

sonde_err sonde_outfeed_add(sonde_outfeed *queue, const char *tensor, const char *key,
                            sonde_diag *diag)
{
    SONDE__NEEDS(diag, queue, tensor);
    sonde__outfeed_request added = {.tensor = sonde__strdup(tensor)};
    sonde_err err = SONDE_OK;

    if (key != NULL) {
        added.key = sonde__strdup(key);
    }
    if (added.tensor == NULL || (key != NULL && added.key == NULL)) {
        err = sonde__fail_nomem(diag, "an outfeed queue");
        goto error;
    }
    SONDE__TRY_GO(add_request(queue, &added, diag));
    return SONDE_OK;

error:
    sonde__free(added.tensor);
    sonde__free(added.key);
    return err;
}

sonde_err sonde_outfeed_add_gradients(sonde_outfeed *queue, sonde_outfeed_gradients mode,
                                      sonde_diag *diag)
{
    SONDE__NEEDS(diag, queue);
    const sonde__outfeed_request added = {.gradients = mode};
    const bool steps = queue->options.per == SONDE_OUTFEED_STEP;
    char where[256];

    (void)sonde__outfeed_where(queue, where, sizeof where);
    if ((unsigned)mode > SONDE_OUTFEED_BEFORE_APPLY) {
        return sonde__fail(diag, SONDE_EINVAL, where, "a sonde_outfeed_gradients",
                           "gradients of mode %d", (int)mode);
    }
    if (steps != (mode == SONDE_OUTFEED_BEFORE_APPLY)) {
        return sonde__fail(diag, SONDE_EINVAL, where,
                           steps ? "gradients BEFORE_APPLY" : "gradients AFTER_COMPUTE",
                           "gradients %s in a queue with a row a %s",
                           steps ? "AFTER_COMPUTE" : "BEFORE_APPLY",
                           steps ? "step" : "micro-batch");
    }
    return add_request(queue, &added, diag);
}

/* --- keys and filters ------------------------------------------------------------- */

static bool passes(const sonde_outfeed *queue, const char *key)
{
    for (size_t i = 0; i < queue->filter_count; i++) {
        if (strstr(key, queue->filters[i]) != NULL) {
            return true;
        }
    }
    return queue->filter_count == 0;
}

/* A new text: the name, or X_grad for the gradient of X. NULL if memory is out. */
static char *default_key(const char *name)
{
    static const char *const prefixes[] = {"Gradient___", "Accum___"};
    static const char suffix[] = "_grad";

    for (size_t i = 0; i < SONDE_COUNT_OF(prefixes); i++) {
        const size_t length = strlen(prefixes[i]);

        if (strncmp(name, prefixes[i], length) == 0) {
            const size_t size = strlen(name) - length + sizeof suffix;
            char *key = sonde__malloc(size);

            if (key != NULL) {
                (void)snprintf(key, size, "%s%s", name + length, suffix);
            }
            return key;
        }
    }
    return sonde__strdup(name);
}

/* Makes room for ids up to this one. */
static bool reserve_id(sonde_outfeed *queue, uint32_t id)
{
    const size_t had = queue->id_capacity;

    if (!sonde__reserve(&queue->by_id, &queue->id_capacity, (size_t)id + 1,
                        sizeof *queue->by_id)) {
        return false;
    }
    for (size_t i = had; i < queue->id_capacity; i++) {
        queue->by_id[i] = SONDE__NO_COLUMN;
    }
    return true;
}

/* The last column's place in the list of its tensor. */
static void link_column(sonde_outfeed *queue, uint32_t id)
{
    const size_t last = queue->column_count - 1;

    queue->columns[last].next = queue->by_id[id];
    queue->by_id[id] = last;
}

static sonde_err add_column(sonde_outfeed *queue, uint32_t id,
                            const sonde_tensor_info *info, const char *key,
                            sonde_diag *diag)
{
    sonde__outfeed_column added = {.id = id, .next = SONDE__NO_COLUMN};
    const uint32_t taken = sonde__names_find(&queue->keys, key);
    char where[256];

    (void)sonde__outfeed_where(queue, where, sizeof where);
    if (taken != SONDE__NO_NAME) {
        return sonde__fail(diag, SONDE_EEXIST, where, "an unused key",
                           "'%.100s' would have the key '%.100s', which '%.100s' has",
                           info->name, key, queue->columns[taken].tensor);
    }
    if (!sonde__reserve(&queue->columns, &queue->column_capacity, queue->column_count + 1,
                        sizeof *queue->columns) ||
        !sonde__reserve(&queue->entries, &queue->entry_capacity, queue->column_count + 1,
                        sizeof *queue->entries) ||
        !reserve_id(queue, id)) {
        return sonde__fail_nomem(diag, where);
    }
    added.tensor = sonde__strdup(info->name);
    if (added.tensor == NULL ||
        sonde__names_intern(&queue->keys, key) == SONDE__NO_NAME) {
        sonde__free(added.tensor);
        return sonde__fail_nomem(diag, where);
    }
    queue->columns[queue->column_count++] = added;
    link_column(queue, id);
    return SONDE_OK;
}

/* Adds a column if the filters let it in. key NULL: the default one. */
static sonde_err admit(sonde_outfeed *queue, uint32_t id, const sonde_tensor_info *info,
                       const char *key, sonde_diag *diag)
{
    char *own = key == NULL ? default_key(info->name) : NULL;
    sonde_err err = SONDE_OK;

    if (key == NULL && own == NULL) {
        return sonde__fail_nomem(diag, "an outfeed queue");
    }
    if (passes(queue, key != NULL ? key : own)) {
        err = add_column(queue, id, info, key != NULL ? key : own, diag);
    }
    sonde__free(own);
    return err;
}

/* --- attaching -------------------------------------------------------------------- */

static bool is_parameter(const sonde_tensor_info *info, uint32_t id)
{
    return info->same_as == id &&
           (info->role == SONDE_ROLE_WEIGHT || info->role == SONDE_ROLE_BIAS);
}

/* All names, so that one is found by a hash: a name's id here is that of the catalogue.
 */
static sonde_err index_names(const sonde_catalogue *catalogue, sonde__names *names,
                             sonde_diag *diag)
{
    sonde__names_init(names);
    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        if (sonde__names_intern(names, sonde_catalogue_info(catalogue, id)->name) ==
            SONDE__NO_NAME) {
            return sonde__fail_nomem(diag, "an outfeed queue");
        }
    }
    return SONDE_OK;
}

/* The tensor that carries a parameter's gradient; SONDE_NO_TENSOR if it has none. */
static uint32_t find_gradient(const sonde__names *names, const char *parameter,
                              sonde_outfeed_gradients mode)
{
    char name[SONDE_DIAG_LINE];
    uint32_t id = SONDE__NO_NAME;

    if (mode == SONDE_OUTFEED_BEFORE_APPLY) {
        (void)snprintf(name, sizeof name, "Accum___%s", parameter);
        id = sonde__names_find(names, name);
    }
    if (id == SONDE__NO_NAME) {
        (void)snprintf(name, sizeof name, "Gradient___%s", parameter);
        id = sonde__names_find(names, name);
    }
    return id != SONDE__NO_NAME ? id : SONDE_NO_TENSOR;
}

static sonde_err resolve_gradients(sonde_outfeed *queue, const sonde_catalogue *catalogue,
                                   sonde_outfeed_gradients mode, sonde_diag *diag)
{
    sonde__names names;
    size_t found = 0;
    char where[256];
    sonde_err err = index_names(catalogue, &names, diag);

    if (err != SONDE_OK) {
        goto error;
    }
    for (uint32_t p = sonde_catalogue_count(catalogue); p-- > 0;) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, p);
        const uint32_t id = is_parameter(info, p)
                                ? find_gradient(&names, info->name, mode)
                                : SONDE_NO_TENSOR;

        if (id != SONDE_NO_TENSOR) {
            found++;
            SONDE__TRY_GO(
                admit(queue, id, sonde_catalogue_info(catalogue, id), NULL, diag));
        }
    }
    if (found == 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND,
                          sonde__outfeed_where(queue, where, sizeof where),
                          "parameters that are trained", "no parameter has a gradient");
    }
error:
    sonde__names_fini(&names);
    return err;
}

static sonde_err resolve_tensor(sonde_outfeed *queue, const sonde_catalogue *catalogue,
                                const sonde__outfeed_request *request, sonde_diag *diag)
{
    sonde_diag found = {0};
    char where[256];
    uint32_t id = 0;
    const sonde_err err = sonde_catalogue_find(catalogue, request->tensor, &id, &found);

    if (err != SONDE_OK) {
        return sonde__fail(diag, err, sonde__outfeed_where(queue, where, sizeof where),
                           found.expected, "%s", found.found);
    }
    return admit(queue, id, sonde_catalogue_info(catalogue, id), request->key, diag);
}

static sonde_err add_tap(sonde_outfeed *queue, const char *tensor,
                         sonde_observer *observer, sonde_diag *diag)
{
    sonde_tap tap = {.how = SONDE_HOW_RAW, .where = &queue->sink};
    sonde_selector *selector = NULL;
    SONDE__TRY(sonde__selector_create_exact(tensor, &selector, diag));
    tap.what = selector;
    for (int mode = 0; mode < SONDE_MODE_GLOBAL; mode++) {
        tap.when[mode] = queue->when;
    }
    sonde_err err = sonde_observer_add(observer, &tap, NULL, diag);
    sonde_selector_destroy(selector);
    return err;
}

sonde_err sonde_outfeed_attach(sonde_outfeed *queue, const sonde_catalogue *catalogue,
                               sonde_observer *observer, sonde_diag *diag)
{
    SONDE__NEEDS(diag, queue, observer, catalogue);
    sonde_err err = SONDE_OK;

    sonde__outfeed_clear(queue);
    for (size_t i = 0; i < queue->request_count; i++) {
        const sonde__outfeed_request *request = &queue->requests[i];

        SONDE__TRY_GO(
            request->tensor != NULL
                ? resolve_tensor(queue, catalogue, request, diag)
                : resolve_gradients(queue, catalogue, request->gradients, diag));
    }
    for (size_t i = 0; i < queue->column_count; i++) {
        if (queue->columns[i].next == SONDE__NO_COLUMN) { /* each tensor once */
            SONDE__TRY_GO(add_tap(queue, queue->columns[i].tensor, observer, diag));
        }
    }
    if (queue->request_count > 0 && queue->column_count == 0) {
        sonde_log(SONDE_LOG_WARNING, "observe", "outfeed '%s': no key passes its filters",
                  queue->name);
    }
    return SONDE_OK;

error:
    sonde__outfeed_clear(queue);
    return err;
}

enum { BEYOND_NAME = 5 /* how much wider its column is than the longest key */ };

static sonde_err append(sonde_text *text, const char *format, ...) SONDE_PRINTF(2, 3);

static sonde_err append(sonde_text *text, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    int length = sonde__vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (length < 0) {
        return SONDE_EINVAL;
    }
    SONDE__TRY(sonde_text_reserve(text, text->length + (size_t)length));
    va_start(list, format);
    (void)sonde__vsnprintf(text->data + text->length, (size_t)length + 1, format, list);
    va_end(list);
    text->length += (size_t)length;
    return SONDE_OK;
}

/* Columns that a key takes: characters of UTF-8, not bytes. */
static int key_width(const char *key)
{
    int width = 0;

    for (; *key != '\0'; key++) {
        width += ((unsigned char)*key & 0xC0) != 0x80;
    }
    return width;
}

static int widest_key(const sonde_outfeed_batch *batch)
{
    int widest = 0;

    for (size_t i = 0; i < batch->count; i++) {
        widest = SONDE_MAX(widest, key_width(batch->entries[i].key));
    }
    return widest;
}

static sonde_err append_keys(const sonde_outfeed_batch *batch, sonde_text *text)
{
    for (size_t i = 0; i < batch->count; i++) {
        const sonde_view *value = &batch->entries[i].value;
        char shape[192];

        (void)sonde_shape_text(value->rank, value->shape, shape, sizeof shape);
        if (value->rank == 1) {
            (void)snprintf(shape, sizeof shape, "(%lld,)", (long long)value->shape[0]);
        }
        SONDE__TRY(append(text, "key: %s shape: %s\n", batch->entries[i].key, shape));
    }
    return SONDE_OK;
}

typedef char number[48];

static const char *number_text(double value, number buf)
{
    if (isnan(value)) {
        return " nan";
    }
    if (isinf(value)) {
        return value > 0.0 ? " inf" : "-inf";
    }
    (void)sonde__snprintf(buf, sizeof(number), "%4.6f", value);
    return buf;
}

static sonde_err append_row(size_t index, const sonde_outfed *entry, int name_width,
                            sonde_text *text)
{
    static const sonde_stat columns[] = {SONDE_STAT_MEAN, SONDE_STAT_STD, SONDE_STAT_MIN,
                                         SONDE_STAT_MAX};
    const int blanks = name_width - key_width(entry->key);
    sonde_vitals vitals;
    number buf;
    SONDE__TRY(append(text, "%-5zu %s%*s", index, entry->key, blanks, ""));
    sonde_vitals_of(&entry->value, &vitals);
    for (size_t i = 0; i < SONDE_COUNT_OF(columns); i++) {
        SONDE__TRY(append(text, " %-12s",
                          number_text(sonde_vitals_get(&vitals, columns[i]), buf)));
    }
    return append(text, " %-7s %-7s\n", vitals.nan > 0 ? "True" : "False",
                  vitals.pos_inf + vitals.neg_inf > 0 ? "True" : "False");
}

sonde_err sonde_outfeed_table(const sonde_outfeed_batch *batch, const char *title,
                              int epoch, sonde_text *text)
{
    SONDE__NEEDS(NULL, batch, text);
    const int name_width = widest_key(batch) + BEYOND_NAME;
    SONDE__TRY(append(text, "\n%s\n", title));
    if (batch->count == 0 || batch->rows == 0) {
        return append(text, "No data enqueued\n");
    }
    SONDE__TRY(append_keys(batch, text));
    SONDE__TRY(append(text,
                      "Epoch %d - Summary Stats\n"
                      "%-5s %-*s %-12s %-12s %-12s %-12s %-7s %-7s\n",
                      epoch, "Index", name_width, "Name", "Mean", "Std", "Minimum",
                      "Maximum", "NaNs", "infs"));
    for (size_t i = 0; i < batch->count; i++) {
        SONDE__TRY(append_row(i, &batch->entries[i], name_width, text));
    }
    return SONDE_OK;
}
