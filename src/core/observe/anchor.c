/*
 * anchor.c - the sink that keeps values: names, taps, places, retrieval.
 *
 * Anchors of one tensor share one tap, as a list of slots. A slot's block holds the n
 * values as they are returned. A value goes to its place by its coordinates, so the
 * order in which replicas deliver does not matter. Values are counted: a missing value
 * is an error at retrieval, never an old number.
 */
#include <sonde/error.h>
#include <sonde/anchor.h>
#include <sonde/log.h>

#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "observe/accumulate.h"
#include "observe/tensor_names.h"
#include "base/options.h"
#include "base/number.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct anchor_slot {
    char *name, *tensor;
    sonde_anchor_mode mode; /* never DEFAULT */
    int period;             /* 1 but with EVERYN */
    uint32_t id;
    size_t next; /* of the same id */
    /* From prepare on: */
    sonde_view value;     /* dtype and shape of one value */
    sonde_view kept;      /* the returned view; the slot owns its data */
    size_t value_size;    /* bytes */
    sonde_call_shape run; /* as it counts for this tensor */
    int64_t expected;     /* values a call */
    bool prepared, once;  /* once: a value a step, not a micro-batch */
    /* Of this call: */
    int64_t arrived, foreign; /* values taken; values of another shape, dtype or place */
    bool called, divided;
} anchor_slot;

static const char *anchor_where(const char *name, char *buf, size_t size)
{
    (void)snprintf(buf, size, "anchor '%.200s'", name);
    return buf;
}

/* --- preparing -------------------------------------------------------------------- */

static sonde_err check_slot(const anchor_slot *slot, const char *where, sonde_diag *diag)
{
    const bool adds = slot->mode == SONDE_ANCHOR_SUM || slot->mode == SONDE_ANCHOR_MEAN;
    const sonde_dtype dtype = slot->value.dtype;
    char expected[64];

    if (slot->period > slot->run.iterations) {
        (void)snprintf(expected, sizeof expected, "1 to %d", slot->run.iterations);
        return sonde__fail(diag, SONDE_EINVAL, where, expected,
                           "period %d is more than the iterations of a call, %d",
                           slot->period, slot->run.iterations);
    }
    if (slot->run.iterations % slot->period != 0) {
        (void)snprintf(expected, sizeof expected, "a divisor of %d",
                       slot->run.iterations);
        return sonde__fail(diag, SONDE_EINVAL, where, expected,
                           "period %d does not divide the iterations of a call, %d",
                           slot->period, slot->run.iterations);
    }
    if (adds && dtype == SONDE_BOOL) {
        return sonde__fail(diag, SONDE_EDTYPE, where, "mode final, everyn or all",
                           "mode %s of a bool tensor",
                           sonde_anchor_mode_name(slot->mode));
    }
    if (slot->mode == SONDE_ANCHOR_MEAN && !sonde_dtype_is_float(dtype) &&
        !sonde_dtype_is_complex(dtype)) {
        return sonde__fail(diag, SONDE_EDTYPE, where, "mode sum", "mode mean of %s",
                           sonde_dtype_name(dtype));
    }
    return SONDE_OK;
}

static int64_t micro_batches(const anchor_slot *slot)
{
    return (int64_t)slot->run.iterations * slot->run.micro_batches;
}

/* How many values are kept. */
static int64_t kept_count(const anchor_slot *slot)
{
    const bool one = slot->mode != SONDE_ANCHOR_ALL && slot->mode != SONDE_ANCHOR_EVERYN;

    return (one ? 1 : micro_batches(slot) / slot->period) * slot->run.replicas;
}

/* The shape of the returned view, as anchor.h defines it. */
static sonde_err shape_kept(const anchor_slot *slot, bool axes, int64_t *shape, int *rank,
                            const char *where, sonde_diag *diag)
{
    const bool one = slot->mode != SONDE_ANCHOR_ALL && slot->mode != SONDE_ANCHOR_EVERYN;
    const int64_t leading[3] = {one ? 1 : slot->run.iterations / slot->period,
                                one ? 1 : slot->run.micro_batches, slot->run.replicas};
    const int64_t n = kept_count(slot);
    const size_t bytes = (size_t)slot->value.rank * sizeof shape[0];

    *rank = 0;
    for (int i = 0; i < 3 && axes; i++) {
        if (leading[i] != 1) {
            shape[(*rank)++] = leading[i];
        }
    }
    if (*rank + slot->value.rank > SONDE_MAX_DIMS) {
        return sonde__fail(diag, SONDE_ESHAPE, where, "at most 8 dimensions",
                           "%d axes before a tensor of rank %d", *rank, slot->value.rank);
    }
    memcpy(shape + *rank, slot->value.shape, bytes);
    *rank += slot->value.rank;
    if (!axes && n > 1) {
        if (*rank == 0) {
            shape[(*rank)++] = 1;
        }
        if (__builtin_mul_overflow(shape[0], n, &shape[0])) {
            return sonde__fail(diag, SONDE_ESHAPE, where, "less",
                               "%lld values of one tensor", (long long)n);
        }
    }
    return SONDE_OK;
}

static sonde_err prepare_slot(anchor_slot *slot, const sonde_tensor_info *info, bool axes,
                              const sonde_call_shape *run, sonde_diag *diag)
{
    int64_t shape[SONDE_MAX_DIMS] = {0};
    char where[256];
    int rank = 0;
    size_t total = 0;

    (void)anchor_where(slot->name, where, sizeof where);
    slot->value = sonde_view_of(info->dtype, info->rank, info->shape, NULL);
    slot->run = *run;
    slot->once = info->pass == SONDE_PASS_UPDATE;
    if (slot->once) {
        slot->run.micro_batches = 1;
    }
    SONDE__TRY(check_slot(slot, where, diag));
    SONDE__TRY(shape_kept(slot, axes, shape, &rank, where, diag));
    slot->value_size =
        (size_t)sonde_view_count(&slot->value) * sonde_dtype_size(info->dtype);
    if (!sonde__mul(slot->value_size, (size_t)kept_count(slot), &total)) {
        return sonde__fail_nomem(diag, where);
    }
    slot->kept = sonde_view_of(info->dtype, rank, shape, sonde__calloc(total, 1));
    if (slot->kept.data == NULL) {
        return sonde__fail_nomem(diag, where);
    }
    slot->expected = slot->mode == SONDE_ANCHOR_SUM || slot->mode == SONDE_ANCHOR_MEAN
                         ? micro_batches(slot) * run->replicas
                         : kept_count(slot);
    slot->prepared = true;
    return SONDE_OK;
}

/* --- keeping ---------------------------------------------------------------------- */

/* Copies or adds a value to the place-th of those kept. Dtype and shape are right. */
static void keep(anchor_slot *slot, int64_t place, bool add, const sonde_view *view)
{
    unsigned char *data =
        (unsigned char *)slot->kept.data + (size_t)place * slot->value_size;

    if (add) {
        sonde__observe_accumulate(data, view);
        slot->arrived++;
    } else {
        sonde_view room = slot->value;

        room.data = data;
        slot->arrived += sonde_view_copy(&room, view, NULL) == SONDE_OK;
    }
}

static void take_replica(anchor_slot *slot, const sonde_observation *observation, int r)
{
    const sonde_call_shape *run = &slot->run;
    const int64_t g = slot->once ? 0 : observation->at.micro_batch;
    const int64_t k = (int64_t)observation->at.iteration * run->micro_batches + g;

    if (observation->view->dtype != slot->value.dtype ||
        !sonde_view_same_shape(observation->view, &slot->value) ||
        observation->at.iteration < 0 || observation->at.iteration >= run->iterations ||
        g < 0 || g >= run->micro_batches || r < 0 || r >= run->replicas) {
        slot->foreign++;
        return;
    }
    switch (slot->mode) {
    case SONDE_ANCHOR_ALL:
    case SONDE_ANCHOR_EVERYN:
        if ((k + 1) % slot->period == 0) {
            keep(slot, ((k + 1) / slot->period - 1) * run->replicas + r, false,
                 observation->view);
        }
        break;
    case SONDE_ANCHOR_SUM:
    case SONDE_ANCHOR_MEAN:
        keep(slot, r, k > 0, observation->view);
        break;
    case SONDE_ANCHOR_FINAL:
    case SONDE_ANCHOR_DEFAULT: /* resolved when added */
        if (k + 1 == micro_batches(slot)) {
            keep(slot, r, false, observation->view);
        }
        break;
    }
}

/* What replicas share is the value of each. */
static void take(anchor_slot *slot, const sonde_observation *observation)
{
    if (!observation->info->shared) {
        take_replica(slot, observation, observation->at.replica);
    }
    for (int r = 0; observation->info->shared && r < slot->run.replicas; r++) {
        take_replica(slot, observation, r);
    }
}

#define NO_SLOT SIZE_MAX

struct sonde_anchors {
    sonde_sink sink; /* first */
    sonde_anchor_options options;
    anchor_slot *slots;
    size_t count, capacity;
    size_t *by_id; /* first slot of each tensor; from attach on */
};

/* --- modes ------------------------------------------------------------------------ */

static const char *const mode_names[] = {"final", "everyn",  "all",
                                         "sum",   "default", "mean"};

const char *sonde_anchor_mode_name(sonde_anchor_mode mode)
{
    const size_t i = (size_t)mode;

    return i < SONDE_COUNT_OF(mode_names) ? mode_names[i] : "?";
}

sonde_err sonde_anchor_mode_parse(const char *text, sonde_anchor_mode *mode,
                                  sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, mode);
    for (size_t i = 0; i < SONDE_COUNT_OF(mode_names); i++) {
        if (sonde__strcasecmp(text, mode_names[i]) == 0) {
            *mode = (sonde_anchor_mode)i;
            return SONDE_OK;
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, "output mode",
                       "final, everyn, all, sum, default or mean", "unknown mode '%s'",
                       text);
}

static sonde_err check_mode(const char *where, sonde_anchor_mode mode, int period,
                            sonde_diag *diag)
{
    if ((size_t)mode >= SONDE_COUNT_OF(mode_names)) {
        return sonde__fail(diag, SONDE_EINVAL, where, "a sonde_anchor_mode", "mode %d",
                           (int)mode);
    }
    if (mode == SONDE_ANCHOR_EVERYN && period < 1) {
        return sonde__fail(diag, SONDE_EINVAL, where, "1 or more",
                           "period %d of mode everyn", period);
    }
    return SONDE_OK;
}

/* --- building --------------------------------------------------------------------- */

static void begin_call(sonde_sink *sink);
static void put(sonde_sink *sink, const sonde_observation *observation);
static sonde_err prepare(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                         unsigned how, const sonde_call_shape *shape, sonde_diag *diag);

sonde_err sonde_anchors_create(const sonde_anchor_options *given, sonde_anchors **out,
                               sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "options, out", given, out);
    sonde_anchor_options taken;
    const sonde_anchor_options *const options = &taken;
    SONDE__TAKE(sonde_anchor_options, &taken, given, diag);
    SONDE__TRY(check_mode("outputs", options->mode, options->period, diag));
    sonde_anchors *anchors = sonde__calloc(1, sizeof *anchors);
    if (anchors == NULL) {
        return sonde__fail_nomem(diag, "anchors");
    }
    anchors->sink =
        (sonde_sink){.prepare = prepare, .begin_call = begin_call, .put = put};
    anchors->options = *options;
    if (options->mode == SONDE_ANCHOR_DEFAULT) {
        anchors->options.mode = options->training ? SONDE_ANCHOR_FINAL : SONDE_ANCHOR_ALL;
    }
    *out = anchors;
    return SONDE_OK;
}

void sonde_anchors_destroy(sonde_anchors *anchors)
{
    if (anchors == NULL) {
        return;
    }
    for (size_t i = 0; i < anchors->count; i++) {
        sonde__free(anchors->slots[i].name);
        sonde__free(anchors->slots[i].tensor);
        sonde__free(anchors->slots[i].kept.data);
    }
    sonde__free(anchors->slots);
    sonde__free(anchors->by_id);
    sonde__free(anchors);
}

static anchor_slot *find(const sonde_anchors *anchors, const char *name)
{
    for (size_t i = 0; i < anchors->count; i++) {
        if (strcmp(anchors->slots[i].name, name) == 0) {
            return &anchors->slots[i];
        }
    }
    return NULL;
}

static sonde_err add_slot(sonde_anchors *anchors, const anchor_slot *slot,
                          const char *name, const char *tensor, sonde_diag *diag)
{
    anchor_slot added = *slot;

    if (!sonde__reserve(&anchors->slots, &anchors->capacity, anchors->count + 1,
                        sizeof(anchor_slot))) {
        return sonde__fail_nomem(diag, "an anchor");
    }
    added.name = sonde__strdup(name);
    added.tensor = sonde__strdup(tensor);
    if (added.name == NULL || added.tensor == NULL) {
        sonde__free(added.name);
        sonde__free(added.tensor);
        return sonde__fail_nomem(diag, "an anchor");
    }
    anchors->slots[anchors->count++] = added;
    return SONDE_OK;
}

sonde_err sonde_anchors_add(sonde_anchors *anchors, const char *name, const char *tensor,
                            sonde_anchor_mode mode, int period, sonde_diag *diag)
{
    SONDE__NEEDS(diag, anchors, name, tensor);
    if (name[0] == '\0') {
        return sonde__fail(diag, SONDE_EINVAL, "anchor", "a name", "an empty name");
    }
    anchor_slot added = {.mode = mode, .period = period, .next = NO_SLOT};
    char where[256];
    SONDE__TRY(check_mode(anchor_where(name, where, sizeof where), mode, period, diag));
    if (anchors->by_id != NULL) {
        return sonde__fail(diag, SONDE_ESTATE, where, "anchors before attach",
                           "an anchor added after attach");
    }
    if (find(anchors, name) != NULL) {
        return sonde__fail(diag, SONDE_EEXIST, where, "an unused name",
                           "another anchor has this name");
    }
    if (mode == SONDE_ANCHOR_DEFAULT) {
        added.mode = anchors->options.mode;
        added.period = anchors->options.period;
    } else if (mode != SONDE_ANCHOR_EVERYN && period > 1) {
        sonde_log(SONDE_LOG_INFO, "observe", "%s: mode %s ignores period %d", where,
                  sonde_anchor_mode_name(mode), period);
    }
    if (added.mode != SONDE_ANCHOR_EVERYN) {
        added.period = 1;
    }
    return add_slot(anchors, &added, name, tensor, diag);
}

static sonde_err add_tap(sonde_anchors *anchors, const char *tensor,
                         sonde_observer *observer, sonde_diag *diag)
{
    sonde_tap tap = {.how = SONDE_HOW_RAW, .where = &anchors->sink};
    sonde_selector *selector = NULL;
    SONDE__TRY(sonde__selector_create_exact(tensor, &selector, diag));
    tap.what = selector;
    if (anchors->options.training) {
        tap.when[SONDE_MODE_TRAIN] = sonde_schedule_every(1);
    } else {
        tap.when[SONDE_MODE_EVAL] = sonde_schedule_every(1);
        tap.when[SONDE_MODE_PREDICT] = sonde_schedule_every(1);
    }
    sonde_err err = sonde_observer_add(observer, &tap, NULL, diag);
    sonde_selector_destroy(selector);
    return err;
}

/* "unknown tensor 'x'", with the anchor in front. */
static sonde_err find_tensor(const sonde_catalogue *catalogue, anchor_slot *slot,
                             sonde_diag *diag)
{
    sonde_diag found = {0};
    char where[256];
    const sonde_err err =
        sonde_catalogue_find(catalogue, slot->tensor, &slot->id, &found);

    if (err != SONDE_OK) {
        return sonde__fail(diag, err, anchor_where(slot->name, where, sizeof where),
                           found.expected, "%s", found.found);
    }
    return SONDE_OK;
}

sonde_err sonde_anchors_attach(sonde_anchors *anchors, const sonde_catalogue *catalogue,
                               sonde_observer *observer, sonde_diag *diag)
{
    SONDE__NEEDS(diag, anchors, observer, catalogue);
    const size_t declared = sonde_catalogue_count(catalogue);

    if (anchors->by_id != NULL) {
        return sonde__fail(diag, SONDE_ESTATE, "anchors", "one attach",
                           "attached already");
    }
    for (size_t i = 0; i < anchors->count; i++) {
        SONDE__TRY(find_tensor(catalogue, &anchors->slots[i], diag));
    }
    anchors->by_id = sonde__calloc(declared, sizeof *anchors->by_id);
    if (anchors->by_id == NULL) {
        return sonde__fail_nomem(diag, "anchors");
    }
    for (size_t id = 0; id < declared; id++) {
        anchors->by_id[id] = NO_SLOT;
    }
    for (size_t i = 0; i < anchors->count; i++) {
        anchor_slot *slot = &anchors->slots[i];
        const bool first = anchors->by_id[slot->id] == NO_SLOT;

        slot->next = anchors->by_id[slot->id];
        anchors->by_id[slot->id] = i;
        if (first) {
            SONDE__TRY(add_tap(anchors, sonde_catalogue_info(catalogue, slot->id)->name,
                               observer, diag));
        }
    }
    return SONDE_OK;
}

/* --- as a sink -------------------------------------------------------------------- */

static sonde_err prepare(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                         unsigned how, const sonde_call_shape *shape, sonde_diag *diag)
{
    sonde_anchors *anchors = (sonde_anchors *)sink;

    (void)how;
    for (size_t i = anchors->by_id[id]; i != NO_SLOT; i = anchors->slots[i].next) {
        SONDE__TRY(
            prepare_slot(&anchors->slots[i], info, anchors->options.axes, shape, diag));
    }
    return SONDE_OK;
}

static void begin_call(sonde_sink *sink)
{
    sonde_anchors *anchors = (sonde_anchors *)sink;

    for (size_t i = 0; i < anchors->count; i++) {
        anchor_slot *slot = &anchors->slots[i];

        slot->arrived = 0;
        slot->foreign = 0;
        slot->divided = false;
        slot->called = true;
    }
}

static void put(sonde_sink *sink, const sonde_observation *observation)
{
    sonde_anchors *anchors = (sonde_anchors *)sink;

    for (size_t i = anchors->by_id[observation->id]; i != NO_SLOT;
         i = anchors->slots[i].next) {
        take(&anchors->slots[i], observation);
    }
}

/* --- retrieving ------------------------------------------------------------------- */

const char *sonde_anchors_name(const sonde_anchors *anchors, size_t i)
{
    if (anchors == NULL || i >= anchors->count) {
        return NULL;
    }
    return anchors->slots[i].name;
}

static const char *name_at(const void *list, size_t i)
{
    const sonde_anchors *anchors = list;

    return anchors->slots[i].name;
}

static sonde_err fail_unknown(const sonde_anchors *anchors, const char *name,
                              sonde_diag *diag)
{
    char near[SONDE__NEAREST_TEXT], expected[SONDE__NEAREST_TEXT + 24];

    if (sonde__observe_nearest_names(name, anchors, name_at, anchors->count, near,
                                     sizeof near) > 0) {
        (void)snprintf(expected, sizeof expected, "a name such as %s", near);
    } else {
        (void)snprintf(expected, sizeof expected, "one of the %zu names added",
                       anchors->count);
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, NULL, expected, "unknown anchor '%s'",
                       name);
}

static sonde_err check_complete(const anchor_slot *slot, sonde_diag *diag)
{
    char where[256], text[160];

    (void)anchor_where(slot->name, where, sizeof where);
    if (!slot->prepared || !slot->called) {
        return sonde__fail(diag, SONDE_ESTATE, where, "a call first", "no value yet");
    }
    if (slot->foreign > 0) {
        (void)snprintf(text, sizeof text, "%s ", sonde_dtype_name(slot->value.dtype));
        (void)sonde_shape_text(slot->value.rank, slot->value.shape, text + strlen(text),
                               sizeof text - strlen(text));
        return sonde__fail(diag, SONDE_ESHAPE, where, text,
                           "%lld values of another dtype, shape or place in the call",
                           (long long)slot->foreign);
    }
    if (slot->arrived != slot->expected) {
        (void)snprintf(text, sizeof text, "%lld", (long long)slot->expected);
        return sonde__fail(diag, SONDE_ESTATE, where, text,
                           "the last call gave %lld values", (long long)slot->arrived);
    }
    return SONDE_OK;
}

sonde_err sonde_anchors_get(sonde_anchors *anchors, const char *name, sonde_view *out,
                            sonde_diag *diag)
{
    SONDE__NEEDS(diag, anchors, out, name);
    anchor_slot *slot = find(anchors, name);

    if (slot == NULL) {
        return fail_unknown(anchors, name, diag);
    }
    SONDE__TRY(check_complete(slot, diag));
    if (slot->mode == SONDE_ANCHOR_MEAN && !slot->divided) {
        sonde__observe_divide(slot->kept.dtype, slot->kept.data,
                              sonde_view_count(&slot->kept), micro_batches(slot));
        slot->divided = true;
    }
    *out = slot->kept;
    return SONDE_OK;
}
