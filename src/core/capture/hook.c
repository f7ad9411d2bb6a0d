/*
 * hook.c - the life of a hook: configured, opened, its steps and scalars, closed.
 */
#include "capture/hook_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "storage/store.h"
#include "base/options.h"
#include "record/record_sink.h"

#include <sonde/log.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- making ----------------------------------------------------------------------- */

/* Our copies of the strings that options point to. */
static sonde_err copy_texts(sonde_hook *hook, sonde_diag *diag)
{
    sonde_recorder_options *record = &hook->record;
    const char **const texts[] = {
        &record->path,  &record->resume, &record->program,      &record->model,
        &record->graph, &record->save,   &hook->options.include};

    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        if (*texts[i] == NULL) {
            continue;
        }
        hook->texts[i] = sonde__strdup(*texts[i]);
        if (hook->texts[i] == NULL) {
            return sonde__fail_nomem(diag, "a hook");
        }
        *texts[i] = hook->texts[i];
    }
    return SONDE_OK;
}

static sonde_err check_options(const sonde_hook_options *options, sonde_diag *diag)
{
    if (options->record->path == NULL && !options->dry_run) {
        return sonde__fail(diag, SONDE_EINVAL, "hook: path", "a folder, or dry_run",
                           "no path for the run");
    }
    if (options->vitals_every < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "hook: vitals_every", "1 or more",
                           "%" PRId64, options->vitals_every);
    }
    return SONDE_OK;
}

/* The collections that are saved from the start, and those that the options add. */
static sonde_err add_defaults(sonde_hook *hook, sonde_diag *diag)
{
    static const char *const names[] = {"weights", "biases", "gradients", "losses"};
    sonde__observe_setup *setup = &hook->setup;

    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        SONDE__TRY(sonde__observe_add(setup, names[i], false, diag));
    }
    if (hook->options.save_all) {
        SONDE__TRY(sonde__observe_add(setup, "all", true, diag));
    }
    if (hook->options.include == NULL) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__observe_add(setup, "default", true, diag));
    return sonde__observe_include(setup, "default", hook->options.include, diag);
}

static void destroy(sonde_hook *hook)
{
    sonde__hook_detach_all(hook);
    sonde__observe_forget(&hook->setup);
    for (size_t i = 0; i < SONDE_COUNT_OF(hook->texts); i++) {
        sonde__free(hook->texts[i]);
    }
    sonde__free(hook->spool);
    sonde_catalogue_destroy(hook->catalogue);
    sonde__record_sink_fini(&hook->dry);
    sonde__free(hook->tensors);
    sonde__free(hook->held.items);
    sonde__free(hook->held.bytes);
    sonde__free(hook->early);
    sonde__free(hook->sketch);
    sonde__free(hook);
}

sonde_err sonde_hook_create(const sonde_hook_options *given, sonde_hook **out,
                            sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "options, out", given, out);
    sonde_hook_options taken;
    sonde_recorder_options record;
    const sonde_hook_options *const options = &taken;
    SONDE__TAKE(sonde_hook_options, &taken, given, diag);
    SONDE__TAKE(sonde_recorder_options, &record, taken.record, diag);
    taken.record = &record;
    SONDE__TRY(check_options(options, diag));
    sonde_err err = SONDE_OK;

    sonde_hook *hook = sonde__calloc(1, sizeof *hook);
    if (hook == NULL) {
        return sonde__fail_nomem(diag, "a hook");
    }
    hook->record = record;
    hook->options = *options;
    hook->options.record = &hook->record;
    hook->setup.vitals_every = options->vitals_every > 0 ? options->vitals_every : 10;
    hook->setup.looks = options->vitals_every == 0;
    hook->setup.no_vitals = options->no_vitals;
    sonde__record_sink_init(&hook->dry, NULL);
    hook->sink = &hook->dry;
    sonde__observe_unset_layers(hook->setup.layers);
    SONDE__TRY_GO(copy_texts(hook, diag));
    if (sonde__store_is_address(hook->record.path)) {
        SONDE__TRY_GO(sonde__store_spool_folder(hook->record.path, &hook->spool, diag));
    }
    SONDE__TRY_GO(sonde_catalogue_create(&hook->catalogue, diag));
    SONDE__TRY_GO(add_defaults(hook, diag));
    *out = hook;
    return SONDE_OK;

error:
    destroy(hook);
    return err;
}

const char *sonde_hook_path(const sonde_hook *hook)
{
    if (hook == NULL) {
        return NULL;
    }
    return hook->options.dry_run ? NULL
           : hook->spool != NULL ? hook->spool
                                 : hook->record.path;
}

sonde_recorder *sonde__hook_recorder(sonde_hook *hook)
{
    if (hook == NULL) {
        return NULL;
    }
    return hook->recorder;
}

/* --- configuration ---------------------------------------------------------------- */

/* Whether any collection keeps sketches. */
static bool has_sketches(const sonde__observe_setup *setup)
{
    for (size_t i = 0; i < setup->collection_count; i++) {
        if (setup->collections[i].saved &&
            (setup->collections[i].how & SONDE_HOW_SKETCH) != 0) {
            return true;
        }
    }
    return false;
}

sonde_err sonde__hook_settle(sonde_hook *hook, sonde_diag *diag)
{
    SONDE__TRY(sonde__observe_settle(&hook->setup, diag));
    if (hook->sketch == NULL && has_sketches(&hook->setup)) {
        hook->sketch = sonde__malloc(sizeof *hook->sketch);
        return hook->sketch != NULL ? SONDE_OK : sonde__fail_nomem(diag, "a sketch");
    }
    return SONDE_OK;
}

/* --- tensors of the run ----------------------------------------------------------- */

/* Prepares the sink for a tensor, and gives the recorder its collections. */
static sonde_err prepare_tensor(sonde_hook *hook, uint32_t id, sonde_diag *diag)
{
    static const sonde_call_shape shape = {1, 1, 1};
    const sonde__observe_member *in = &hook->tensors[id].in;
    const char *names[SONDE__MOST_COLLECTIONS];
    size_t count = 0;

    if (in->member != 0 || in->vital != 0) {
        SONDE__TRY(hook->sink->sink.prepare(&hook->sink->sink, id,
                                            sonde_catalogue_info(hook->catalogue, id),
                                            SONDE_HOW_RAW, &shape, diag));
    }
    for (uint64_t sets = in->member; sets != 0; sets &= sets - 1) {
        names[count++] = hook->setup.collections[__builtin_ctzll(sets)].name;
    }
    return count > 0 && hook->recorder != NULL
               ? sonde__recorder_collections(hook->recorder, id, names, count, diag)
               : SONDE_OK;
}

sonde_err sonde__hook_add_tensor(sonde_hook *hook, const sonde_tensor_info *info,
                                 const sonde__observe_member *member, uint32_t *id,
                                 sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(hook->catalogue);

    if (!sonde__reserve(&hook->tensors, &hook->tensor_capacity, (size_t)count + 1,
                        sizeof *hook->tensors)) {
        return sonde__fail_nomem(diag, "a tensor of a hook");
    }
    SONDE__TRY(sonde_catalogue_declare(hook->catalogue, info, id, diag));
    hook->tensors[*id] = (sonde__hook_tensor){.in = *member, .step = -1};
    return hook->open ? prepare_tensor(hook, *id, diag) : SONDE_OK;
}

/* --- the run ---------------------------------------------------------------------- */

static sonde_err open_recorder(sonde_hook *hook, sonde_diag *diag)
{
    sonde_recorder_options options = hook->record;
    int64_t next[SONDE_MODE_COUNT];
    char *save = options.save == NULL ? sonde__observe_setup_json(&hook->setup) : NULL;

    if (options.save == NULL && save == NULL) {
        return sonde__fail_nomem(diag, "the configuration of a hook");
    }
    options.save = options.save != NULL ? options.save : save;
    if (options.graph == NULL && hook->graph[0] != '\0') {
        options.graph = hook->graph;
    }
    sonde_err err =
        sonde__recorder_create(&options, hook->catalogue, &hook->recorder, diag);
    free(save);
    if (err != SONDE_OK) {
        return err;
    }
    if (options.resume != NULL) {
        sonde__recorder_next(hook->recorder, next);
        for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
            hook->steps.next[mode] = SONDE_MAX(hook->steps.next[mode], next[mode]);
        }
    }
    return SONDE_OK;
}

/* The collections of the scalars that were given before configuration ended. */
static sonde_err place_scalars(sonde_hook *hook, sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(hook->catalogue);
    sonde_err err = SONDE_OK;

    if (hook->early_count == 0) {
        return SONDE_OK;
    }
    sonde__observe_member *members = sonde__calloc(count, sizeof *members);
    if (members == NULL) {
        return sonde__fail_nomem(diag, "the scalars of a hook");
    }
    for (size_t i = 0; i < hook->early_count; i++) {
        const uint32_t id = hook->early[i].id;

        SONDE__TRY_GO(sonde__observe_members(&hook->setup, hook->catalogue, id, id + 1,
                                             false, members, diag));
        hook->tensors[id].in = members[id];
    }
error:
    sonde__free(members);
    return err;
}

sonde_err sonde_hook_open(sonde_hook *hook, sonde_diag *diag)
{
    SONDE__NEEDS(diag, hook);

    if (hook->open) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__hook_settle(hook, diag));
    SONDE__TRY(place_scalars(hook, diag));
    if (!hook->options.dry_run && hook->recorder == NULL) {
        SONDE__TRY(open_recorder(hook, diag));
    }
    hook->sink = hook->recorder != NULL
                     ? (sonde__record_sink *)(void *)sonde__recorder_sink(hook->recorder)
                     : &hook->dry;
    for (uint32_t id = 0; id < sonde_catalogue_count(hook->catalogue); id++) {
        SONDE__TRY(prepare_tensor(hook, id, diag));
    }
    hook->open = true;
    return SONDE_OK;
}

sonde_err sonde_hook_close(sonde_hook *hook, sonde_run_end reason, const char *text,
                           sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (hook == NULL) {
        return SONDE_OK;
    }
    if (hook->stepping) {
        sonde_hook_step_done(hook);
    }
    if (hook->open && hook->options.dry_run) {
        sonde_log(SONDE_LOG_INFO, "hook",
                  "dry run: %" PRIu64 " values of %" PRIu64 " bytes, %" PRIu64
                  " rows of vital signs and %" PRIu64 " sketches in %" PRId64 " steps",
                  hook->dry.values, hook->dry.bytes, hook->dry.rows, hook->dry.sketches,
                  hook->steps.next[SONDE_MODE_GLOBAL]);
    }
    if (hook->open) {
        sonde__observe_warn_unmatched(&hook->setup);
    }
    if (hook->recorder != NULL) {
        err = sonde__recorder_close(hook->recorder, reason, text, diag);
    }
    destroy(hook);
    return err;
}

/* --- steps ------------------------------------------------------------------------ */

static void put_scalar(sonde_hook *hook, uint32_t id, double value);

sonde_err sonde_hook_resume_at(sonde_hook *hook, sonde_mode mode, int64_t step,
                               sonde_diag *diag)
{
    SONDE__NEEDS(diag, hook);
    if ((unsigned)mode >= SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, "hook", "a sonde_mode", "mode %d",
                           (int)mode);
    }
    if (step < hook->steps.next[mode]) {
        return sonde__fail(diag, SONDE_EINVAL, "hook", "a later step",
                           "step %" PRId64 " of mode %s, whose next step is %" PRId64,
                           step, sonde_mode_name(mode), hook->steps.next[mode]);
    }
    if (!hook->open && hook->record.resume != NULL &&
        (hook->record.resume_step == SONDE_RESUME_BEHIND || mode == SONDE_MODE_GLOBAL)) {
        hook->record.resume_mode = mode;
        hook->record.resume_step = step > 0 ? step : SONDE_RESUME_ANEW;
    }
    hook->steps.next[mode] = step;
    return SONDE_OK;
}

void sonde_hook_next_step(sonde_hook *hook, int64_t at_least, sonde_coordinate *at)
{
    if (hook == NULL || at == NULL) {
        return;
    }
    if (hook->stepping) {
        sonde_hook_step_done(hook);
    }
    hook->at = sonde__observe_take_step(&hook->steps, at->mode, at_least);
    hook->stepping = true;
    hook->begun = true;
    for (size_t i = 0; i < hook->early_count; i++) {
        put_scalar(hook, hook->early[i].id, hook->early[i].value);
    }
    hook->early_count = 0;
    at->global_step = hook->at.global_step;
    at->mode_step = hook->at.mode_step;
}

void sonde_hook_step_done(sonde_hook *hook)
{
    if (hook == NULL) {
        return;
    }
    if (!hook->stepping) {
        return;
    }
    hook->sink->sink.end_step(&hook->sink->sink, &hook->at);
    hook->stepping = false;
    sonde__hook_drop_held(hook);
}

void sonde__hook_leave_step(sonde_hook *hook)
{
    if (hook != NULL) {
        hook->stepping = false;
        sonde__hook_drop_held(hook);
    }
}

void sonde__hook_return_to(sonde_hook *hook, const sonde_coordinate *at)
{
    if (hook != NULL) {
        hook->at = *at;
        hook->stepping = true;
    }
}

/* --- scalars ---------------------------------------------------------------------- */

static void put_scalar(sonde_hook *hook, uint32_t id, double value)
{
    const sonde_view view = sonde_view_of(SONDE_F64, 0, NULL, &value);
    sonde__hook_tensor *tensor = &hook->tensors[id];
    sonde_vitals vitals;
    sonde_observation observation = {
        .id = id,
        .info = sonde_catalogue_info(hook->catalogue, id),
        .at = hook->at,
        .how = SONDE_HOW_RAW | (hook->setup.no_vitals ? 0U : (unsigned)SONDE_HOW_VITALS),
        .view = &view,
        .vitals = &vitals};

    if (tensor->step != hook->at.global_step) {
        tensor->step = hook->at.global_step;
        tensor->count = 0;
    }
    observation.at.micro_batch = (int)tensor->count++;
    sonde_vitals_of(&view, &vitals);
    hook->sink->sink.put(&hook->sink->sink, &observation);
}

/* Finds the collections of a scalar of an open run, and prepares the sink for it. */
static sonde_err join_scalar(sonde_hook *hook, uint32_t id, sonde_diag *diag)
{
    sonde__observe_member *members = sonde__calloc((size_t)id + 1, sizeof *members);
    sonde_err err = SONDE_OK;

    if (members == NULL) {
        return sonde__fail_nomem(diag, "a scalar");
    }
    SONDE__TRY_GO(sonde__observe_members(&hook->setup, hook->catalogue, id, id + 1, false,
                                         members, diag));
    hook->tensors[id].in = members[id];
    err = prepare_tensor(hook, id, diag);
error:
    sonde__free(members);
    return err;
}

/* Declares a scalar. Its collections are known once configuration has ended. */
static sonde_err declare_scalar(sonde_hook *hook, const char *name, uint32_t *id,
                                sonde_diag *diag)
{
    const sonde_tensor_info info = {.name = name,
                                    .role = SONDE_ROLE_SCALAR,
                                    .dtype = SONDE_F64,
                                    .same_as = SONDE_NO_TENSOR};
    const sonde__observe_member nothing = {0};
    uint32_t added = 0;
    SONDE__TRY(sonde__hook_add_tensor(hook, &info, &nothing, &added, diag));
    if (hook->open) {
        SONDE__TRY(join_scalar(hook, added, diag));
    }
    *id = added;
    return SONDE_OK;
}

static sonde_err find_scalar(sonde_hook *hook, const char *name, uint32_t *id,
                             sonde_diag *diag)
{
    const size_t size = strlen(name) + sizeof "scalar/";
    char *full = sonde__malloc(size);
    sonde_err err = SONDE_OK;

    if (full == NULL) {
        return sonde__fail_nomem(diag, "a scalar");
    }
    (void)snprintf(full, size, "scalar/%s", name);
    *id = sonde__catalogue_named(hook->catalogue, full);
    if (*id == SONDE_NO_TENSOR) {
        err = declare_scalar(hook, full, id, diag);
    }
    sonde__free(full);
    return err;
}

sonde_err sonde_hook_scalar(sonde_hook *hook, const char *name, double value,
                            sonde_diag *diag)
{
    SONDE__NEEDS(diag, hook, name);
    if (name[0] == '\0') {
        return sonde__fail(diag, SONDE_EINVAL, "scalar", "a name", "an empty name");
    }
    uint32_t id = 0;
    SONDE__TRY(find_scalar(hook, name, &id, diag));
    if (!hook->begun) {
        if (!sonde__reserve(&hook->early, &hook->early_capacity, hook->early_count + 1,
                            sizeof *hook->early)) {
            return sonde__fail_nomem(diag, "a scalar");
        }
        hook->early[hook->early_count++] = (sonde__hook_early){id, value};
        return SONDE_OK;
    }
    put_scalar(hook, id, value);
    if (!hook->stepping) { /* closes its step once more */
        hook->sink->sink.end_step(&hook->sink->sink, &hook->at);
    }
    return SONDE_OK;
}

/* --- options ---------------------------------------------------------------------- */

sonde_err sonde__hook_options_over(sonde__hook_said *said,
                                   const sonde_hook_options *given, sonde_diag *diag)
{
    sonde_hook_options over, *hook = &said->hook;
    sonde_recorder_options over_record, *record = &said->record;
    SONDE__TAKE(sonde_hook_options, &over, given, diag);
    SONDE__TAKE(sonde_recorder_options, &over_record, over.record, diag);
    const struct {
        const char **field, *given;
    } texts[] = {
        {&record->path, over_record.path},       {&record->resume, over_record.resume},
        {&record->program, over_record.program}, {&record->model, over_record.model},
        {&record->graph, over_record.graph},     {&record->save, over_record.save}};

    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        *texts[i].field = texts[i].given != NULL ? texts[i].given : *texts[i].field;
    }
    record->rank = over_record.rank;
    record->world = over_record.world;
    record->ring_bytes =
        over_record.ring_bytes != 0 ? over_record.ring_bytes : record->ring_bytes;
    record->segment_bytes = over_record.segment_bytes != 0 ? over_record.segment_bytes
                                                           : record->segment_bytes;
    record->segment_seconds = over_record.segment_seconds > 0.0
                                  ? over_record.segment_seconds
                                  : record->segment_seconds;
    record->wait_seconds =
        over_record.wait_seconds > 0.0 ? over_record.wait_seconds : record->wait_seconds;
    record->when_full = over_record.when_full != SONDE_WHEN_FULL_DEFAULT
                            ? over_record.when_full
                            : record->when_full;
    record->compress = record->compress || over_record.compress;
    hook->save_all = hook->save_all || over.save_all;
    hook->dry_run = hook->dry_run || over.dry_run;
    hook->no_vitals = hook->no_vitals || over.no_vitals;
    hook->vitals_every = over.vitals_every != 0 ? over.vitals_every : hook->vitals_every;
    hook->include = over.include;
    hook->size = sizeof *hook;
    record->size = sizeof *record;
    hook->record = record;
    return SONDE_OK;
}
