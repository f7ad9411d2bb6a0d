/*
 * put.c - the producer's side: tensors, values, statistics and ends of steps go into the
 * ring; and the sink that does so for taps.
 *
 * Nothing here fails for the producer. Values that cannot be recorded are counted: the
 * ring is full, or the value is invalid (an id outside the catalogue, a view without a
 * dtype), which is also logged once.
 *
 * The writer learns of a tensor before its first value. Expected tensors are listed
 * together, in the order of their ids: readers know only the order of the catalogue's
 * file, and so get the program's.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/memory.h"
#include "record/recorder_state.h"

#include "tensor/convert.h"
#include "tensor/evidence.h"
#include "record/record_sink.h"

#include <sonde/log.h>

#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* --- copying past the cache ------------------------------------------------------- */

/*
 * As memcpy, for bytes that this thread will not read again; a later release store makes
 * them visible. A plain copy into a ring larger than the caches would read every line of
 * the ring first and evict the data of the next operation. The writer reads them from
 * memory, on another core.
 */
#if defined(__x86_64__)
enum {
    LINE = 64,       /* bytes that leave the write-combining buffer as one */
    LEAST = 2 * 1024 /* below, the fence costs more than the cache loses */
};

static void copy_past_cache(void *target, const void *source, size_t bytes)
{
    const size_t head = (size_t)(-(uintptr_t)target & (LINE - 1));
    unsigned char *out = target;
    const unsigned char *in = source;

    if (bytes < LEAST) {
        memcpy(target, source, bytes);
        return;
    }
    memcpy(out, in, head);
    out += head;
    in += head;
    bytes -= head;
    for (; bytes >= LINE; bytes -= LINE, out += LINE, in += LINE) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)in);
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(in + 16));
        const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(in + 32));
        const __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(in + 48));

        _mm_stream_si128((__m128i *)(void *)out, a);
        _mm_stream_si128((__m128i *)(void *)(out + 16), b);
        _mm_stream_si128((__m128i *)(void *)(out + 32), c);
        _mm_stream_si128((__m128i *)(void *)(out + 48), d);
    }
    memcpy(out, in, bytes);
    _mm_sfence(); /* such stores are not ordered by a release */
}

#else

static void copy_past_cache(void *target, const void *source, size_t bytes)
{
    memcpy(target, source, bytes);
}

#endif

/* --- room ------------------------------------------------------------------------- */

/* True if the writer has stood still since a wait that lasted too long. */
static bool is_stuck(sonde_recorder *recorder)
{
    return recorder->stuck_at == sonde__record_ring_tail(&recorder->ring);
}

/* False once the wait has lasted too long. */
static bool wait_on(sonde_recorder *recorder, double began)
{
    const uint64_t tail = sonde__record_ring_tail(&recorder->ring);

    /* a writer that can still act makes room by itself after wait_seconds */
    if (sonde__now() - began > recorder->writer.wait_seconds + SONDE__RECORD_STANDSTILL) {
        recorder->stuck_at = tail;
        return false;
    }
    sonde__record_ring_wait(&recorder->ring, tail);
    return true;
}

/* NULL if there is none within wait_seconds: the writer's system call hangs. */
static void *wait_for_room(sonde_recorder *recorder, uint32_t kind, size_t size)
{
    const double began = sonde__now();
    void *room = NULL;

    if (is_stuck(recorder)) {
        return NULL;
    }
    (void)atomic_fetch_add_explicit(&recorder->waits, 1, memory_order_relaxed);
    do {
        room = sonde__record_ring_reserve(&recorder->ring, kind, size);
    } while (room == NULL && wait_on(recorder, began));
    atomic_store_explicit(&recorder->waited,
                          atomic_load_explicit(&recorder->waited, memory_order_relaxed) +
                              sonde__now() - began,
                          memory_order_relaxed);
    return room;
}

void *sonde__recorder_reserve(sonde_recorder *recorder, uint32_t kind, size_t size,
                              bool waits)
{
    void *const room = sonde__record_ring_reserve(&recorder->ring, kind, size);

    return room != NULL || !waits ? room : wait_for_room(recorder, kind, size);
}

void sonde__recorder_lose_full(sonde_recorder *recorder)
{
    if (atomic_fetch_add_explicit(&recorder->ring.shared->full, 1,
                                  memory_order_relaxed) == 0) {
        sonde_log(SONDE_LOG_WARNING, "record",
                  "records are being lost: they come faster than they can be written");
    }
}

void sonde__recorder_refuse(sonde_recorder *recorder, const char *what, unsigned long id)
{
    (void)atomic_fetch_add_explicit(&recorder->ring.shared->refused, 1,
                                    memory_order_relaxed);
    if (!recorder->complained) {
        recorder->complained = true;
        sonde_log(SONDE_LOG_ERROR, "record", "a value of tensor %lu is not recorded: %s",
                  id, what);
    }
}

/* After closed: logs once that a forked child records nothing. */
static void refuse_child(sonde_recorder *recorder)
{
    if (recorder->forked && !recorder->complained) {
        recorder->complained = true;
        sonde_log(SONDE_LOG_WARNING, "record",
                  "%s: a forked child records nothing in the run of its parent",
                  recorder->options.path);
    }
}

/* --- tensors ---------------------------------------------------------------------- */

sonde_err sonde__recorder_check_name(const char *name, sonde_diag *diag)
{
    const size_t n = strlen(name);

    if (n > SONDE__MOST_NAME) {
        return sonde__fail(diag, SONDE_EINVAL, "a tensor's name", "at most 4096 bytes",
                           "'%.40s...' has %zu", name, n);
    }
    return SONDE_OK;
}

sonde_err sonde__recorder_collections(sonde_recorder *recorder, uint32_t id,
                                      const char *const *names, size_t count,
                                      sonde_diag *diag)
{
    sonde_text text = {0};

    if (id >= sonde_catalogue_count(recorder->catalogue)) {
        return sonde__fail(diag, SONDE_ERANGE, "collections of a tensor",
                           "an id of the catalogue", "tensor %lu", (unsigned long)id);
    }
    if (id < recorder->state_count && recorder->states[id] == SONDE__LISTED) {
        return sonde__fail(diag, SONDE_ESTATE,
                           sonde_catalogue_info(recorder->catalogue, id)->name,
                           "before the first value", "its collections are recorded");
    }
    for (size_t i = 0; i < count; i++) {
        sonde_text_put(&text, names[i], strlen(names[i]) + 1);
    }
    if (text.failed || text.length > SONDE__MOST_LINE ||
        !sonde__reserve(&recorder->collected, &recorder->collected_capacity,
                        (size_t)id + 1, sizeof *recorder->collected)) {
        const bool large = !text.failed && text.length > SONDE__MOST_LINE;

        sonde_text_fini(&text);
        return large ? sonde__fail(diag, SONDE_EINVAL, "collections of a tensor",
                                   "at most 64 KiB", "%zu names", count)
                     : sonde__fail_nomem(diag, "collections of a tensor");
    }
    while (recorder->collected_count <= id) {
        recorder->collected[recorder->collected_count++] = (sonde__record_collected){0};
    }
    sonde__free(recorder->collected[id].text);
    recorder->collected[id] =
        (sonde__record_collected){text.data, (uint32_t)count, (uint32_t)text.length};
    return SONDE_OK;
}

/* Makes room for the state of a tensor. */
static bool remember(sonde_recorder *recorder, uint32_t id)
{
    size_t count = recorder->state_count;

    if (id < count) {
        return true;
    }
    while (count <= id) {
        count *= 2;
    }
    uint8_t *grown = sonde__grow(recorder->states, recorder->state_count, count);
    if (grown == NULL) {
        return false;
    }
    memset(grown + recorder->state_count, 0, count - recorder->state_count);
    recorder->states = grown;
    recorder->state_count = count;
    return true;
}

static char *put_string(char *out, const char *text)
{
    const size_t n = strlen(text) + 1;

    memcpy(out, text, n);
    return out + n;
}

static void fill(sonde__record_tensor_message *message, uint32_t id,
                 const sonde_tensor_info *info, const sonde__record_collected *collected)
{
    char *out = message->text;

    message->id = id;
    message->same_as = info->same_as;
    message->role = info->role;
    message->pass = info->pass;
    message->dtype = info->dtype;
    message->rank = info->rank;
    memcpy(message->shape, info->shape, sizeof message->shape);
    out = put_string(put_string(out, info->name), info->module);
    out = put_string(put_string(out, info->op), info->note);
    message->collections = collected->count;
    if (collected->length > 0) {
        memcpy(out, collected->text, collected->length);
        out += collected->length;
    }
    message->length = (uint32_t)(out - message->text);
}

typedef enum listing { LISTED, LISTED_LATER, LISTED_NEVER } listing;

/* Lists a tensor; an alias after its original. */
static listing list_tensor(sonde_recorder *recorder, uint32_t id, bool waits)
{
    const sonde_tensor_info *info = sonde_catalogue_info(recorder->catalogue, id);
    const sonde__record_collected none = {0};
    const sonde__record_collected *collected =
        id < recorder->collected_count ? &recorder->collected[id] : &none;
    const size_t size = sizeof(sonde__record_tensor_message) + strlen(info->name) +
                        strlen(info->module) + strlen(info->op) + strlen(info->note) + 4 +
                        collected->length;

    if (id < recorder->state_count && recorder->states[id] == SONDE__LISTED) {
        return LISTED;
    }
    if (size > sonde__record_ring_most(&recorder->ring) || !remember(recorder, id)) {
        return LISTED_NEVER;
    }
    if (info->same_as != id &&
        list_tensor(recorder, info->same_as, waits) == LISTED_LATER) {
        return LISTED_LATER;
    }
    sonde__record_tensor_message *message =
        sonde__recorder_reserve(recorder, SONDE__MESSAGE_TENSOR, size, waits);
    if (message == NULL) {
        return LISTED_LATER;
    }
    fill(message, id, info, collected);
    sonde__record_ring_commit(&recorder->ring);
    recorder->states[id] = SONDE__LISTED;
    return LISTED;
}

/* Lists all expected tensors; one that finds no room is listed at its first value. */
static void list_expected(sonde_recorder *recorder)
{
    const bool waits = sonde__recorder_waits(recorder, true);

    for (uint32_t id = 0; recorder->expected > 0 && id < recorder->state_count; id++) {
        if (recorder->states[id] == SONDE__EXPECTED) {
            recorder->states[id] = SONDE__UNKNOWN;
            recorder->expected--;
            (void)list_tensor(recorder, id, waits);
        }
    }
}

bool sonde__recorder_list(sonde_recorder *recorder, uint32_t id, bool waits)
{
    listing listed = LISTED;

    list_expected(recorder);
    listed = list_tensor(recorder, id, waits);
    if (listed == LISTED_NEVER) {
        sonde__recorder_refuse(recorder, "no room for its catalogue line", id);
    } else if (listed == LISTED_LATER) {
        sonde__recorder_lose_full(recorder);
    }
    return listed == LISTED;
}

sonde_err sonde__recorder_expect(sonde_recorder *recorder, uint32_t id, sonde_diag *diag)
{
    uint32_t also = SONDE_NO_TENSOR; /* the original of an alias */

    if (id >= sonde_catalogue_count(recorder->catalogue)) {
        return sonde__fail(diag, SONDE_ERANGE, "a tensor that is expected",
                           "an id of the catalogue", "tensor %lu", (unsigned long)id);
    }
    if (!remember(recorder, id)) {
        return sonde__fail_nomem(diag, "the tensors of a recorder");
    }
    if (recorder->states[id] == SONDE__UNKNOWN) {
        recorder->states[id] = SONDE__EXPECTED;
        recorder->expected++;
    }
    also = sonde_catalogue_info(recorder->catalogue, id)->same_as;
    return also != id ? sonde__recorder_expect(recorder, also, diag) : SONDE_OK;
}

/* --- values ----------------------------------------------------------------------- */

/* False if nothing of this tensor can be recorded at this place; lists the tensor. */
static bool admit(sonde_recorder *recorder, uint32_t id, const sonde_coordinate *where,
                  bool waits)
{
    const bool listed =
        id < recorder->state_count && recorder->states[id] == SONDE__LISTED;
    _Atomic uint64_t *const handed_over = &recorder->ring.shared->put;

    if (recorder->closed) {
        refuse_child(recorder);
        return false;
    }
    atomic_store_explicit(handed_over,
                          atomic_load_explicit(handed_over, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    if (!listed && id >= sonde_catalogue_count(recorder->catalogue)) {
        sonde__recorder_refuse(recorder, "the catalogue has no such tensor", id);
        return false;
    }
    if ((unsigned)where->mode >= SONDE_MODE_COUNT || where->micro_batch < 0 ||
        where->replica < 0 || where->replica > UINT16_MAX) {
        sonde__recorder_refuse(recorder, "its coordinate is invalid", id);
        return false;
    }
    recorder->anything = true;
    return listed || sonde__recorder_list(recorder, id, waits);
}

/* Bytes of a view's elements; false if the view is invalid. */
static bool measure(const sonde_view *view, size_t *bytes)
{
    size_t n = sonde_dtype_size(view->dtype);

    if (n == 0 || view->rank < 0 || view->rank > SONDE_MAX_DIMS) {
        return false;
    }
    for (int d = 0; d < view->rank; d++) {
        if (view->shape[d] < 0 || !sonde__mul(n, (size_t)view->shape[d], &n)) {
            return false;
        }
    }
    *bytes = n;
    return n == 0 || view->data != NULL;
}

static void pack(unsigned char *out, const sonde_view *view, size_t bytes)
{
    sonde__tensor_cursor cursor;
    const void *elements = NULL;
    size_t n = 0;

    if (sonde_view_is_contiguous(view)) {
        if (bytes > 0) {
            copy_past_cache(out, view->data, bytes);
        }
        return;
    }
    sonde__tensor_cursor_init(&cursor, view);
    while ((n = sonde__tensor_cursor_take(&cursor, cursor.left, out, &elements)) > 0) {
        out += n * cursor.size; /* gathered in place: strided views are not direct */
    }
}

static void describe(sonde__record_value_message *message, uint32_t id,
                     const sonde_coordinate *where, const sonde_view *view, size_t bytes)
{
    sonde__record_index_line *const line = &message->line;

    line->mode = where->mode;
    line->step = where->global_step;
    line->mode_step = where->mode_step;
    line->tensor = id;
    line->micro_batch = (uint32_t)where->micro_batch;
    line->replica = (uint32_t)where->replica;
    line->bytes = bytes;
    line->dtype = view->dtype;
    line->rank = view->rank;
    memcpy(line->shape, view->shape, sizeof line->shape);
    line->packing = SONDE__PACKED_NOT;
    message->far = NULL;
}

/* A value too large for the ring goes into a block of its own, one at a time. */
static void *put_aside(sonde_recorder *recorder, const sonde_view *view, size_t bytes,
                       bool waits)
{
    sonde__record_writer *const writer = &recorder->writer;
    const double began = sonde__now();

    while (atomic_load_explicit(&writer->far_away, memory_order_acquire)) {
        if (!waits || is_stuck(recorder) ||
            atomic_load_explicit(&writer->gave_up, memory_order_acquire) ||
            !wait_on(recorder, began)) {
            return NULL;
        }
    }
    unsigned char *aside = sonde__record_ring_large(&recorder->ring, bytes);
    if (aside != NULL) {
        pack(aside, view, bytes);
    }
    return aside;
}

void sonde__recorder_put(sonde_recorder *recorder, uint32_t id,
                         const sonde_coordinate *where, const sonde_view *view)
{
    if (recorder == NULL || where == NULL || view == NULL) {
        return;
    }
    const bool waits = sonde__recorder_waits(recorder, true);
    sonde__record_value_message *message = NULL;
    size_t bytes = 0, size = sizeof *message;
    void *far = NULL;

    if (!admit(recorder, id, where, waits)) {
        return;
    }
    if (!measure(view, &bytes)) {
        sonde__recorder_refuse(recorder, "it has no dtype or no shape", id);
        return;
    }
    if (bytes > sonde__record_ring_most(&recorder->ring) - sizeof *message) {
        far = put_aside(recorder, view, bytes, waits);
        if (far == NULL) {
            sonde__recorder_lose_full(recorder);
            return;
        }
    } else {
        size += bytes;
    }
    message = sonde__recorder_reserve(recorder, SONDE__MESSAGE_VALUE, size, waits);
    if (message == NULL) {
        sonde__recorder_lose_full(recorder);
        return;
    }
    describe(message, id, where, view, bytes);
    if (far != NULL) {
        message->far = far;
        atomic_store_explicit(&recorder->writer.far_away, true, memory_order_relaxed);
    } else {
        pack(message->bytes, view, bytes);
    }
    sonde__record_ring_commit(&recorder->ring);
}

/* --- statistics ------------------------------------------------------------------- */

void sonde__recorder_put_vitals(sonde_recorder *recorder, uint32_t id,
                                const sonde_coordinate *where, const sonde_vitals *vitals)
{
    if (recorder == NULL || where == NULL || vitals == NULL) {
        return;
    }
    const bool waits = sonde__recorder_waits(recorder, false);
    sonde__record_vitals_message *message = NULL;

    if (!admit(recorder, id, where, waits)) {
        return;
    }
    message =
        sonde__recorder_reserve(recorder, SONDE__MESSAGE_VITALS, sizeof *message, waits);
    if (message == NULL) {
        sonde__recorder_lose_full(recorder);
        return;
    }
    message->row.step = where->global_step;
    message->row.mode_step = where->mode_step;
    message->row.tensor = id;
    message->row.micro_batch = (uint32_t)where->micro_batch;
    message->row.replica = (uint16_t)where->replica;
    message->row.mode = (uint8_t)where->mode;
    message->row.reserved = 0;
    sonde__record_stats_of_vitals(&message->row, vitals);
    sonde__record_ring_commit(&recorder->ring);
}

void sonde__recorder_put_sketch(sonde_recorder *recorder, uint32_t id,
                                const sonde_coordinate *where, const sonde_sketch *sketch)
{
    if (recorder == NULL || where == NULL || sketch == NULL) {
        return;
    }
    const bool waits = sonde__recorder_waits(recorder, false);
    const size_t size = offsetof(sonde__record_sketch_message, record) +
                        sonde__record_sketch_size(sketch);
    sonde__record_sketch_message *message = NULL;

    if (!admit(recorder, id, where, waits)) {
        return;
    }
    if (size <= sonde__record_ring_most(&recorder->ring)) {
        message = sonde__recorder_reserve(recorder, SONDE__MESSAGE_SKETCH, size, waits);
    }
    if (message == NULL) {
        sonde__recorder_lose_full(recorder);
        return;
    }
    message->record.step = where->global_step;
    message->record.mode_step = where->mode_step;
    message->record.tensor = id;
    message->record.micro_batch = (uint32_t)where->micro_batch;
    message->record.replica = (uint16_t)where->replica;
    message->record.mode = (uint8_t)where->mode;
    message->record.reserved = 0;
    sonde__record_sketch_encode(sketch, &message->record);
    sonde__record_ring_commit(&recorder->ring);
}

/* --- steps ------------------------------------------------------------------------ */

static void put_end(sonde_recorder *recorder, const sonde_coordinate *where)
{
    const bool waits = recorder->options.when_full != SONDE_WHEN_FULL_DROP;
    sonde__record_end_message *const message =
        sonde__recorder_reserve(recorder, SONDE__MESSAGE_END, sizeof *message, waits);

    if (message == NULL) {
        return; /* the end of the next step implies this one */
    }
    message->row = (sonde__record_step_row){
        .step = where->global_step,
        .mode_step = where->mode_step,
        .time = sonde__date(),
        .mode = (uint32_t)where->mode,
    };
    sonde__record_ring_commit(&recorder->ring);
}

void sonde__recorder_end_quiet(sonde_recorder *recorder)
{
    if (recorder->has_quiet) {
        put_end(recorder, &recorder->quiet);
        recorder->has_quiet = false;
    }
}

void sonde__recorder_end_step(sonde_recorder *recorder, const sonde_coordinate *where)
{
    if (recorder == NULL || where == NULL) {
        return;
    }
    if (recorder->closed) {
        refuse_child(recorder);
        return;
    }
    if ((unsigned)where->mode >= SONDE_MODE_COUNT) {
        return;
    }
    if (recorder->has_quiet && recorder->quiet.mode != where->mode) {
        sonde__recorder_end_quiet(recorder);
    }
    atomic_store_explicit(&recorder->producer, pthread_self(), memory_order_relaxed);
    recorder->has_quiet = !recorder->anything && recorder->options.world <= 1;
    recorder->anything = false;
    if (recorder->has_quiet) {
        recorder->quiet = *where;
    } else {
        put_end(recorder, where);
    }
}

bool sonde__recorder_drain(sonde_recorder *recorder, double seconds)
{
    if (recorder == NULL) {
        return false;
    }
    const double until = sonde__now() + seconds;

    if (recorder->forked) {
        return false;
    }
    for (;;) {
        const uint64_t tail = sonde__record_ring_tail(&recorder->ring);

        if (sonde__record_ring_fill(&recorder->ring) == 0) {
            return true;
        }
        if (sonde__now() >= until) {
            return false;
        }
        sonde__record_ring_wait(&recorder->ring, tail);
    }
}

/* --- the end of taps (record_sink.h) ------------------------------------------------ */

static sonde__record_sink *self(sonde_sink *sink)
{
    return (sonde__record_sink *)(void *)sink; /* its first member */
}

static sonde_err prepare_sink(sonde_sink *sink, uint32_t id,
                              const sonde_tensor_info *info, unsigned how,
                              const sonde_call_shape *shape, sonde_diag *diag)
{
    sonde__record_sink *own = self(sink);

    if (sonde__evidence_to_store(how, 0) == 0) {
        return sonde__fail(diag, SONDE_EINVAL, info->name,
                           "raw values, vital signs or a sketch",
                           "a tap that gives a recorder hashes alone");
    }
    if (shape->replicas > UINT16_MAX) {
        return sonde__fail(diag, SONDE_ERANGE, info->name, "at most 65535", "%d replicas",
                           shape->replicas);
    }
    if (!sonde__reserve(&own->shown, &own->shown_capacity, (size_t)id + 1,
                        sizeof *own->shown)) {
        return sonde__fail_nomem(diag, "what a recorder is shown");
    }
    while (own->shown_count <= id) {
        own->shown[own->shown_count++] = (sonde__record_shown){0};
    }
    SONDE__TRY(sonde__recorder_check_name(info->name, diag));
    if (own->recorder != NULL) {
        SONDE__TRY(sonde__recorder_expect(own->recorder, id, diag));
    }
    return own->witness != NULL && own->witness->prepare != NULL
               ? own->witness->prepare(own->witness, id, info, how, shape, diag)
               : SONDE_OK;
}

/* A call that is broken off and made again shows its values again: they are new. */
static void begin_sink_call(sonde_sink *sink)
{
    self(sink)->round++;
}

static bool is_shown(const sonde__record_sink *sink, uint32_t id,
                     const sonde_coordinate *where)
{
    const sonde__record_shown *shown = &sink->shown[id];

    return shown->round == sink->round && shown->step == where->global_step &&
           shown->micro_batch == where->micro_batch && shown->replica == where->replica;
}

unsigned sonde__record_sink_done(const sonde__record_sink *sink, uint32_t id,
                                 const sonde_coordinate *where)
{
    return id < sink->shown_count && is_shown(sink, id, where) ? sink->shown[id].how : 0;
}

/* The observation is not copied: its fields were stored a moment ago, one by one, and
 * wide loads of them would wait until all stores before are in the cache, those of the
 * value recorded last included. */
static void give(sonde__record_sink *sink, uint32_t id, const sonde_observation *seen,
                 unsigned how)
{
    sonde_recorder *const recorder = sink->recorder; /* NULL does nothing below */

    for (unsigned left = how; left != 0; left &= left - 1) {
        switch (sonde__evidence_forms[__builtin_ctz(left)].store) {
        case SONDE__STORE_VALUE:
            sink->values++;
            sink->bytes += (uint64_t)sonde_view_count(seen->view) *
                           sonde_dtype_size(seen->view->dtype);
            sonde__recorder_put(recorder, id, &seen->at, seen->view);
            break;
        case SONDE__STORE_ROW:
            sink->rows += seen->vitals != NULL;
            sonde__recorder_put_vitals(recorder, id, &seen->at, seen->vitals);
            break;
        case SONDE__STORE_SKETCH:
            sink->sketches += seen->sketch != NULL;
            sonde__recorder_put_sketch(recorder, id, &seen->at, seen->sketch);
            break;
        case SONDE__STORE_NOT:
        case SONDE__STORES:
        default:
            break;
        }
    }
    if (how != 0 && sink->witness != NULL) {
        sonde_observation part = *seen;

        part.id = id;
        part.how = how;
        sink->witness->put(sink->witness, &part);
    }
}

void sonde__record_sink_put(sonde__record_sink *sink,
                            const sonde_observation *observation, unsigned how)
{
    give(sink, observation->id, observation, how);
}

void sonde__record_sink_take(sonde__record_sink *sink, uint32_t id,
                             const sonde_observation *observation)
{
    unsigned how = 0;

    if (id < sink->shown_count) { /* else it was never prepared */
        sonde__record_shown *shown = &sink->shown[id];

        if (!is_shown(sink, id, &observation->at)) {
            shown->round = sink->round;
            shown->step = observation->at.global_step;
            shown->micro_batch = observation->at.micro_batch;
            shown->replica = observation->at.replica;
            shown->how = 0;
        }
        how = sonde__evidence_to_store(observation->how, shown->how);
        shown->how |= how;
    } else {
        how = sonde__evidence_to_store(observation->how, 0);
    }
    give(sink, id, observation, how);
}

static void put_in_sink(sonde_sink *sink, const sonde_observation *observation)
{
    sonde__record_sink_take(self(sink), observation->id, observation);
}

static void end_sink_step(sonde_sink *sink, const sonde_coordinate *at)
{
    sonde__record_sink *own = self(sink);

    own->round++;
    if (own->recorder != NULL) {
        sonde__recorder_end_step(own->recorder, at);
    }
    if (own->witness != NULL && own->witness->end_step != NULL) {
        own->witness->end_step(own->witness, at);
    }
}

void sonde__record_sink_init(sonde__record_sink *sink, sonde_recorder *recorder)
{
    *sink = (sonde__record_sink){.sink = {.prepare = prepare_sink,
                                          .begin_call = begin_sink_call,
                                          .put = put_in_sink,
                                          .end_step = end_sink_step},
                                 .recorder = recorder,
                                 .round = 1};
}

void sonde__record_sink_fini(sonde__record_sink *sink)
{
    sonde__free(sink->shown);
}

sonde_sink *sonde__recorder_sink(sonde_recorder *recorder)
{
    return &recorder->sink.sink;
}
