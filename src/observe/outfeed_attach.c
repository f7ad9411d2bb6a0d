/*
 * outfeed_attach.c - an outfeed queue meets the names of a producer: keys, filters, columns,
 * and the taps that attach adds.
 */
#include "observe/outfeed_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/names.h"

#include "observe/tensor_names.h"

#include <sonde/log.h>

#include <stdio.h>
#include <string.h>

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
        return sonde__fail(diag, SONDE_EEXIST, where, "a key of its own",
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

/* Another id for a column's tensor: the observer was made anew. */
static sonde_err move_column(sonde_outfeed *queue, size_t index, uint32_t id,
                             sonde_diag *diag)
{
    sonde__outfeed_column *column = &queue->columns[index];
    size_t *link = NULL;

    if (!reserve_id(queue, id)) {
        return sonde__fail_nomem(diag, "an outfeed queue");
    }
    link = &queue->by_id[column->id];
    while (*link != index) {
        link = &queue->columns[*link].next;
    }
    *link = column->next;
    column->id = id;
    column->next = queue->by_id[id];
    queue->by_id[id] = index;
    return SONDE_OK;
}

sonde_err sonde__outfeed_adopt(sonde_outfeed *queue, uint32_t id,
                               const sonde_tensor_info *info, sonde_diag *diag)
{
    char *key = NULL;
    uint32_t known = SONDE__NO_NAME;
    sonde_err err = SONDE_OK;

    for (size_t i = id < queue->id_capacity ? queue->by_id[id] : SONDE__NO_COLUMN;
         i != SONDE__NO_COLUMN; i = queue->columns[i].next) {
        if (strcmp(queue->columns[i].tensor, info->name) == 0) {
            return SONDE_OK;
        }
    }
    key = default_key(info->name);
    if (key == NULL) {
        return sonde__fail_nomem(diag, "an outfeed queue");
    }
    known = sonde__names_find(&queue->keys, key);
    if (known != SONDE__NO_NAME &&
        strcmp(queue->columns[known].tensor, info->name) == 0) {
        err = move_column(queue, known, id, diag);
    } else if (passes(queue, key)) {
        err = add_column(queue, id, info, key, diag);
    }
    sonde__free(key);
    return err;
}

/* --- attaching -------------------------------------------------------------------- */

static bool is_parameter(const sonde_tensor_info *info, uint32_t id)
{
    return info->same_as == id &&
           (info->role == SONDE_ROLE_WEIGHT || info->role == SONDE_ROLE_BIAS);
}

/* All names, so that one is found by a hash: a name's id here is that of the catalogue. */
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
static uint32_t find_gradient(const sonde__names *names, const char *of,
                              sonde_outfeed_gradients mode)
{
    char name[SONDE_DIAG_LINE];
    uint32_t id = SONDE__NO_NAME;

    if (mode == SONDE_OUTFEED_BEFORE_APPLY) {
        (void)snprintf(name, sizeof name, "Accum___%s", of);
        id = sonde__names_find(names, name);
    }
    if (id == SONDE__NO_NAME) {
        (void)snprintf(name, sizeof name, "Gradient___%s", of);
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

    for (uint32_t p = sonde_catalogue_count(catalogue); p-- > 0 && err == SONDE_OK;) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, p);
        const uint32_t id = is_parameter(info, p)
                                ? find_gradient(&names, info->name, mode)
                                : SONDE_NO_TENSOR;

        if (id != SONDE_NO_TENSOR) {
            found++;
            err = admit(queue, id, sonde_catalogue_info(catalogue, id), NULL, diag);
        }
    }
    sonde__names_fini(&names);
    if (err == SONDE_OK && found == 0) {
        return sonde__fail(diag, SONDE_ENOTFOUND,
                           sonde__outfeed_where(queue, where, sizeof where),
                           "what trains", "no parameter has a gradient");
    }
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
    sonde_err err = sonde__selector_create_exact(tensor, &selector, diag);

    if (err != SONDE_OK) {
        return err;
    }
    tap.what = selector;
    for (int mode = 0; mode < SONDE_MODE_GLOBAL; mode++) {
        tap.when[mode] = queue->when;
    }
    err = sonde_observer_add(observer, &tap, NULL, diag);
    sonde_selector_destroy(selector);
    return err;
}

sonde_err sonde_outfeed_attach(sonde_outfeed *queue, const sonde_catalogue *catalogue,
                               sonde_observer *observer, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    sonde__outfeed_clear(queue);
    for (size_t i = 0; i < queue->request_count && err == SONDE_OK; i++) {
        const sonde__outfeed_request *request = &queue->requests[i];

        err = request->tensor != NULL
                  ? resolve_tensor(queue, catalogue, request, diag)
                  : resolve_gradients(queue, catalogue, request->gradients, diag);
    }
    for (size_t i = 0; i < queue->column_count && err == SONDE_OK; i++) {
        if (queue->columns[i].next == SONDE__NO_COLUMN) { /* each tensor once */
            err = add_tap(queue, queue->columns[i].tensor, observer, diag);
        }
    }
    if (err == SONDE_OK && queue->request_count > 0 && queue->column_count == 0) {
        sonde_log(SONDE_LOG_WARNING, "observe", "outfeed '%s': no key passes its filters",
                  queue->name);
    }
    if (err != SONDE_OK) {
        sonde__outfeed_clear(queue);
    }
    return err;
}
