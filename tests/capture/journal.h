/*
 * journal.h - the witness of a dry run, which remembers what would be recorded, for the
 * tests of hooks; and a small program with a loop of its own.
 */
#ifndef SONDE_TESTS_HOOK_JOURNAL_H
#define SONDE_TESTS_HOOK_JOURNAL_H

#include "cmocka_all.h"

#include "capture/hook_state.h"

#include <sonde/log.h>
#include <sonde/watch.h>

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
    sonde_sink sink; /* first: the witness of a dry run */
    journal_entry entries[JOURNAL_MOST];
    size_t count;
    const sonde_catalogue *catalogue; /* of the run */
    bool expected[JOURNAL_TENSORS];
    sonde_watch *watch; /* a loop of its own with the hook made last */
    sonde_mode mode;    /* of its steps */
    char log[8192];     /* warnings and errors, a line each */
} journal;

/* The path of a run that cannot be opened: a folder with other files. */
#define REFUSED SONDE_TEST_DIR

static inline void journal_note(char kind, uint32_t id, const sonde_coordinate *at,
                                double value)
{
    assert_true(journal.count < JOURNAL_MOST);
    journal.entries[journal.count++] = (journal_entry){kind, id, *at, value};
}

static inline sonde_err journal_prepare(sonde_sink *sink, uint32_t id,
                                        const sonde_tensor_info *info, unsigned how,
                                        const sonde_call_shape *shape, sonde_diag *diag)
{
    (void)sink, (void)info, (void)how, (void)shape, (void)diag;
    assert_true(id < JOURNAL_TENSORS);
    journal.expected[id] = true;
    return SONDE_OK;
}

static inline void journal_put(sonde_sink *sink, const sonde_observation *observation)
{
    const sonde_view *view = observation->view;

    (void)sink;
    if ((observation->how & SONDE_HOW_RAW) != 0) {
        journal_note('r', observation->id, &observation->at,
                     sonde_view_count(view) > 0
                         ? sonde_element_get(view->dtype, view->data)
                         : 0.0);
    }
    if ((observation->how & SONDE_HOW_VITALS) != 0) {
        journal_note('v', observation->id, &observation->at, observation->vitals->mean);
    }
    if ((observation->how & SONDE_HOW_SKETCH) != 0) {
        journal_note('s', observation->id, &observation->at,
                     (double)observation->sketch->count);
    }
}

static inline void journal_end_step(sonde_sink *sink, const sonde_coordinate *at)
{
    (void)sink;
    journal_note('e', 0, at, 0.0);
}

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
    journal.sink = (sonde_sink){
        .prepare = journal_prepare, .put = journal_put, .end_step = journal_end_step};
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

/* What the hook records goes to the journal, and its loop is the journal's watch. */
static inline void listen_to(sonde_hook *hook)
{
    hook->dry.witness = &journal.sink;
    journal.catalogue = hook->catalogue;
    assert_int_equal(sonde_watch_create(SONDE_OPTIONS(sonde_watch, .hook = hook),
                                        &journal.watch, NULL),
                     SONDE_OK);
}

/* A hook into the journal: a dry run. */
static inline sonde_hook *hook_of(const sonde_hook_options *options)
{
    sonde_hook_options own =
        options != NULL ? *options
                        : (sonde_hook_options){.size = sizeof(sonde_hook_options)};
    sonde_hook *hook = NULL;
    const sonde_recorder_options *usual = SONDE_OPTIONS(sonde_recorder, .path = "run");

    own.record = own.record != NULL ? own.record : usual;
    own.dry_run = strcmp(own.record->path, REFUSED) != 0;
    assert_int_equal(sonde_hook_create(&own, &hook, NULL), SONDE_OK);
    listen_to(hook);
    return hook;
}

static inline uint32_t declare(sonde_hook *hook, const char *name, int64_t size)
{
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &size, NULL);
    uint32_t id = SONDE_NO_TENSOR;

    (void)hook;
    assert_int_equal(sonde_watch_add_view(journal.watch, name, &view, &id, NULL),
                     SONDE_OK);
    return id;
}

static inline void record(sonde_hook *hook, uint32_t id, float value)
{
    float values[3] = {value, value, value};
    const int64_t shape[1] = {3};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, values);

    (void)hook;
    sonde_watch_see(journal.watch, id, &view);
}

static inline void set_mode(sonde_hook *hook, sonde_mode mode)
{
    (void)hook;
    journal.mode = mode;
}

static inline sonde_err begin_step(sonde_hook *hook, sonde_diag *diag)
{
    hook->options.dry_run = strcmp(hook->options.record->path, REFUSED) != 0;
    return sonde_watch_begin_step(journal.watch, journal.mode, diag);
}

static inline void begin(sonde_hook *hook)
{
    assert_int_equal(begin_step(hook, NULL), SONDE_OK);
}

static inline void end_step(sonde_hook *hook)
{
    (void)hook;
    sonde_watch_end_step(journal.watch);
}

/* The collections of a tensor of the run: "weights,all". */
static inline const char *collections_by_id(const sonde_hook *hook, uint32_t id)
{
    static char text[128];
    size_t used = 0;

    text[0] = '\0';
    for (uint64_t sets = id != SONDE_NO_TENSOR ? hook->tensors[id].in.member : 0;
         sets != 0; sets &= sets - 1) {
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? "," : "",
                             hook->setup.collections[__builtin_ctzll(sets)].name);
    }
    return text;
}

/* The same of a slot. */
static inline const char *collections_of(const sonde_hook *hook, uint32_t slot)
{
    const sonde_catalogue *catalogue = sonde_watch_catalogue(journal.watch);

    return collections_by_id(
        hook, sonde__catalogue_named(hook->catalogue,
                                     sonde_catalogue_info(catalogue, slot)->name));
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
    assert_int_equal(sonde__observe_save(&hook->setup, collection, mode, &config, NULL),
                     SONDE_OK);
}

static inline void include(sonde_hook *hook, const char *collection, const char *selector)
{
    assert_int_equal(sonde__observe_add_asked(&hook->setup, collection, NULL), SONDE_OK);
    assert_int_equal(sonde__observe_include(&hook->setup, collection, selector, NULL),
                     SONDE_OK);
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
static inline void run_steps(sonde_hook *hook, const five *net, int steps)
{
    for (int i = 0; i < steps; i++) {
        begin(hook);
        record(hook, net->weight, 1.0F);
        record(hook, net->bias, 2.0F);
        record(hook, net->output, 3.0F);
        record(hook, net->loss, 4.0F);
        record(hook, net->gradient, 5.0F);
        end_step(hook);
    }
}

/* Closes the hook, with its watch if it has one. */
static inline sonde_err close_loop(sonde_hook *hook)
{
    sonde_watch *watch = journal.watch;

    journal.watch = NULL;
    return watch != NULL ? sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, NULL)
                         : sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, NULL);
}

static inline void finish(sonde_hook *hook)
{
    assert_int_equal(close_loop(hook), SONDE_OK);
    sonde_log_set_sink(NULL, NULL);
}

#endif
