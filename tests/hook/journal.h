/*
 * journal.h - a recorder that writes nothing but remembers what it was given, for the tests
 * of hooks; and a small program with a loop of its own.
 */
#ifndef SONDE_TESTS_HOOK_JOURNAL_H
#define SONDE_TESTS_HOOK_JOURNAL_H

#include "base/fail.h"
#include "cmocka_all.h"

#include "hook/hook_state.h"

#include <sonde/log.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOURNAL_MOST = 20000, JOURNAL_TENSORS = 512 };

typedef struct journal_entry {
    char kind; /* 'r' raw, 'v' vital signs, 's' sketch, 'e' end of step */
    uint32_t id;
    sonde_coordinate at;
    double value; /* of the first element; the mean; the count */
} journal_entry;

static struct journal {
    journal_entry entries[JOURNAL_MOST];
    size_t count;
    const sonde_catalogue *catalogue;
    char collections[JOURNAL_TENSORS][128]; /* "weights,all" */
    bool expected[JOURNAL_TENSORS];
    char save[16384];
    int opened, closed;
    sonde_run_end reason;
    int64_t next[SONDE_MODE_COUNT]; /* that a resumed run says */
    sonde_mode resume_mode;         /* where it was said to go on */
    int64_t resume_step;
    char log[8192]; /* warnings and errors, a line each */
} journal;

static inline void journal_note(char kind, uint32_t id, const sonde_coordinate *at,
                                double value)
{
    assert_true(journal.count < JOURNAL_MOST);
    journal.entries[journal.count++] = (journal_entry){kind, id, *at, value};
}

static inline sonde_err journal_create(const sonde_recorder_options *options,
                                       const sonde_catalogue *catalogue,
                                       sonde_recorder **out, sonde_diag *diag)
{
    if (strcmp(options->path, "refused") == 0) {
        return sonde__fail(diag, SONDE_EEXIST, options->path, NULL, "it is there");
    }
    (void)snprintf(journal.save, sizeof journal.save, "%s", options->save);
    journal.catalogue = catalogue;
    journal.resume_mode = options->resume_mode;
    journal.resume_step = options->resume_step;
    journal.opened++;
    *out = (sonde_recorder *)(void *)&journal;
    return SONDE_OK;
}

static inline sonde_err journal_close(sonde_recorder *recorder, sonde_run_end reason,
                                      const char *text, sonde_diag *diag)
{
    (void)recorder;
    (void)text;
    (void)diag;
    journal.closed++;
    journal.reason = reason;
    journal.catalogue = NULL;
    return SONDE_OK;
}

static inline sonde_err journal_expect(sonde_recorder *recorder, uint32_t id,
                                       sonde_diag *diag)
{
    (void)recorder;
    (void)diag;
    assert_true(id < JOURNAL_TENSORS);
    journal.expected[id] = true;
    return SONDE_OK;
}

static inline sonde_err journal_collections(sonde_recorder *recorder, uint32_t id,
                                            const char *const *names, size_t count,
                                            sonde_diag *diag)
{
    size_t used = 0;

    (void)recorder;
    (void)diag;
    assert_true(id < JOURNAL_TENSORS && count > 0);
    for (size_t i = 0; i < count; i++) {
        used += (size_t)snprintf(journal.collections[id] + used,
                                 sizeof journal.collections[id] - used, "%s%s",
                                 i > 0 ? "," : "", names[i]);
    }
    return SONDE_OK;
}

static inline void journal_put(sonde_recorder *recorder, uint32_t id,
                               const sonde_coordinate *at, const sonde_view *view)
{
    (void)recorder;
    journal_note('r', id, at,
                 sonde_view_count(view) > 0 ? sonde_element_get(view->dtype, view->data)
                                            : 0.0);
}

static inline void journal_put_vitals(sonde_recorder *recorder, uint32_t id,
                                      const sonde_coordinate *at,
                                      const sonde_vitals *vitals)
{
    (void)recorder;
    journal_note('v', id, at, vitals->mean);
}

static inline void journal_put_sketch(sonde_recorder *recorder, uint32_t id,
                                      const sonde_coordinate *at,
                                      const sonde_sketch *sketch)
{
    (void)recorder;
    journal_note('s', id, at, (double)sketch->count);
}

static inline void journal_end_step(sonde_recorder *recorder, const sonde_coordinate *at)
{
    (void)recorder;
    journal_note('e', 0, at, 0.0);
}

static inline void journal_next(const sonde_recorder *recorder,
                                int64_t next[SONDE_MODE_COUNT])
{
    (void)recorder;
    memcpy(next, journal.next, sizeof journal.next);
}

static const sonde__recorder_calls journal_calls = {
    .create = journal_create,
    .close = journal_close,
    .expect = journal_expect,
    .collections = journal_collections,
    .put = journal_put,
    .put_vitals = journal_put_vitals,
    .put_sketch = journal_put_sketch,
    .end_step = journal_end_step,
    .next = journal_next,
};

static inline void journal_listen(void *user, sonde_log_level level, const char *room,
                                  const char *message)
{
    (void)user;
    if (level >= SONDE_LOG_WARNING && strcmp(room, "hook") == 0) {
        const size_t used = strlen(journal.log);

        (void)snprintf(journal.log + used, sizeof journal.log - used, "%s\n", message);
    }
}

/* A setup function for each test. */
static inline int journal_reset(void **state)
{
    (void)state;
    memset(&journal, 0, sizeof journal);
    sonde_log_set_level(SONDE_LOG_WARNING);
    sonde_log_set_sink(journal_listen, NULL);
    return 0;
}

/* --- asking ----------------------------------------------------------------------- */

/* The steps of the mode at which a kind of entry of a tensor stands: "0 10 20 ". */
static inline const char *journal_steps(const char *name, char kind, sonde_mode mode)
{
    static char text[4096];
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < journal.count; i++) {
        const journal_entry *entry = &journal.entries[i];

        if (entry->kind == kind && entry->at.mode == mode &&
            strcmp(sonde_catalogue_info(journal.catalogue, entry->id)->name, name) == 0) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%lld ",
                                     (long long)entry->at.mode_step);
        }
    }
    return text;
}

static inline size_t journal_count(char kind)
{
    size_t count = 0;

    for (size_t i = 0; i < journal.count; i++) {
        count += journal.entries[i].kind == kind;
    }
    return count;
}

#define assert_steps(name, kind, mode, steps)                                            \
    assert_string_equal(journal_steps(name, kind, mode), steps)

/* --- a program -------------------------------------------------------------------- */

/* A hook into the journal. */
static inline sonde_hook *hook_of(const sonde_hook_options *options)
{
    sonde_hook_options own = options != NULL ? *options : (sonde_hook_options){0};
    sonde_hook *hook = NULL;

    own.record.path = own.record.path != NULL ? own.record.path : "run";
    assert_int_equal(sonde_hook_create(&own, &hook, NULL), SONDE_OK);
    sonde__hook_set_recorder(hook, &journal_calls);
    return hook;
}

static inline uint32_t declare(sonde_hook *hook, const char *name, int64_t size)
{
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &size, NULL);
    uint32_t id = SONDE_NO_TENSOR;

    assert_int_equal(sonde_hook_declare_view(hook, name, &view, &id, NULL), SONDE_OK);
    return id;
}

static inline void record(sonde_hook *hook, uint32_t id, float value)
{
    float values[3] = {value, value, value};
    const int64_t shape[1] = {3};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, values);

    sonde_hook_record(hook, sonde_hook_get_gate(hook), id, &view);
}

static inline void begin(sonde_hook *hook)
{
    assert_int_equal(sonde_hook_begin_step(hook, NULL), SONDE_OK);
}

static inline sonde_save_config every(int64_t interval)
{
    sonde_save_config config = sonde_save_config_unset();

    config.every = interval;
    return config;
}

static inline void save(sonde_hook *hook, const char *collection, int mode,
                        sonde_save_config config)
{
    assert_int_equal(sonde_hook_save(hook, collection, mode, &config, NULL), SONDE_OK);
}

static inline void include(sonde_hook *hook, const char *collection, const char *selector)
{
    assert_int_equal(sonde_hook_add_collection(hook, collection, NULL), SONDE_OK);
    assert_int_equal(sonde_hook_include(hook, collection, selector, NULL), SONDE_OK);
}

/* The five tensors that the loops below record at every step, in this order. */
typedef struct five {
    uint32_t weight, bias, gradient, output, loss;
} five;

static inline five declare_net(sonde_hook *hook)
{
    return (five){declare(hook, "fc1.weight", 3), declare(hook, "fc1.bias", 3),
                  declare(hook, "gradient/fc1.weight", 3),
                  declare(hook, "relu_output_0", 3), declare(hook, "loss", 3)};
}

/* Steps of the mode that is on. */
static inline void run_steps(sonde_hook *hook, const five *of, int steps)
{
    for (int i = 0; i < steps; i++) {
        begin(hook);
        record(hook, of->weight, 1.0F);
        record(hook, of->bias, 2.0F);
        record(hook, of->output, 3.0F);
        record(hook, of->loss, 4.0F);
        record(hook, of->gradient, 5.0F);
        sonde_hook_end_step(hook);
    }
}

static inline void finish(sonde_hook *hook)
{
    assert_int_equal(sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, NULL), SONDE_OK);
    sonde_log_set_sink(NULL, NULL);
}

#endif
