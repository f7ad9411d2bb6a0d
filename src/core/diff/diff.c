/*
 * diff.c - opening and pairing two sides, the order of a step, walking over the steps.
 */
#include "diff/diff_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/options.h"
#include "diff/rounding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *sonde_diff_kind_name(sonde_diff_kind kind)
{
    static const char *const names[SONDE_DIFF_KINDS] = {"same", "rounding", "beyond",
                                                        "shape"};

    return (unsigned)kind < SONDE_DIFF_KINDS ? names[kind] : "?";
}

/* --- pairing -------------------------------------------------------------------------- */

/* The names of A as a catalogue: a run's own, or one made of files, which *own is then. */
static sonde_err catalogue_of(const sonde__diff_side *side, sonde_catalogue **own,
                              const sonde_catalogue **out, sonde_diag *diag)
{
    *own = NULL;
    if (side->trial != NULL) {
        *out = sonde_trial_catalogue(side->trial);
        return SONDE_OK;
    }
    SONDE__TRY(sonde_catalogue_create(own, diag));
    *out = *own;
    for (size_t i = 0; i < side->count; i++) {
        const sonde_view *const view = &side->parts[side->entries[i].part].view;
        sonde_tensor_info info = {.name = side->entries[i].name,
                                  .role = SONDE_ROLE_WEIGHT,
                                  .dtype = view->dtype,
                                  .rank = view->rank,
                                  .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        memcpy(info.shape, view->shape, sizeof info.shape);
        SONDE__TRY(sonde_catalogue_declare(*own, &info, &id, diag));
    }
    return SONDE_OK;
}

static const sonde__diff_entry *entry_of(const sonde__diff_side *side, const char *name)
{
    return sonde__diff_side_find(side, name);
}

static void add_row(sonde_diff *diff, const sonde_tensor_info *info)
{
    sonde__diff_row *const row = &diff->rows[diff->count];

    row->entry[SONDE__DIFF_A] = entry_of(&diff->side[SONDE__DIFF_A], info->name);
    if (row->entry[SONDE__DIFF_A] == NULL) {
        return; /* a second name, a text */
    }
    row->entry[SONDE__DIFF_B] = entry_of(&diff->side[SONDE__DIFF_B], info->name);
    row->entry[SONDE__DIFF_YARDSTICK] =
        diff->has_yardstick ? entry_of(&diff->side[SONDE__DIFF_YARDSTICK], info->name)
                            : NULL;
    row->role = info->role;
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        row->terms[mode] = sonde__diff_terms(NULL, info);
    }
    row->out = (sonde_diff_tensor){.name = row->entry[SONDE__DIFF_A]->name,
                                   .other = row->entry[SONDE__DIFF_B] != NULL
                                                ? row->entry[SONDE__DIFF_B]->name
                                                : NULL,
                                   .first = -1,
                                   .last = -1,
                                   .beyond = -1,
                                   .relative_step = -1};
    diff->report.tensors += row->out.other != NULL;
    diff->report.tensors_only_a += row->out.other == NULL;
    diff->count++;
}

static sonde_err choose(sonde_diff *diff, const sonde_diff_options *options,
                        const sonde_catalogue *catalogue, sonde_diag *diag)
{
    sonde_selector *selector = NULL;
    uint32_t *ids = NULL;
    size_t count = 0;
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(sonde_selector_create(
        options->selector != NULL ? options->selector : "@all", &selector, diag));
    SONDE__TRY_DONE(sonde_selector_resolve(selector, catalogue, &ids, &count, diag));
    diff->rows = sonde__calloc(count + 1, sizeof *diff->rows);
    if (diff->rows == NULL) {
        err = sonde__fail_nomem(diag, "a comparison");
        goto done;
    }
    for (size_t i = 0; i < count; i++) {
        add_row(diff, sonde_catalogue_info(catalogue, ids[i]));
    }
done:
    sonde_release(ids);
    sonde_selector_destroy(selector);
    return err;
}

static sonde_err list_only_b(sonde_diff *diff, sonde_diag *diag)
{
    const sonde__diff_side *const b = &diff->side[SONDE__DIFF_B];

    diff->only_b = sonde__calloc(b->count + 1, sizeof *diff->only_b);
    for (size_t i = 0; diff->only_b != NULL && i < b->count; i++) {
        if (entry_of(&diff->side[SONDE__DIFF_A], b->entries[i].known) == NULL) {
            diff->only_b[diff->report.tensors_only_b++] = b->entries[i].name;
        }
    }
    return diff->only_b != NULL ? SONDE_OK : sonde__fail_nomem(diag, "a comparison");
}

/* "fc1.weight, fc1.bias, ..." */
static const char *some_names(const sonde__diff_side *side, char *text, size_t size)
{
    size_t length = 0;

    text[0] = '\0';
    for (size_t i = 0; i < side->count && i < 3 && length < size; i++) {
        length += (size_t)snprintf(text + length, size - length, "%s'%.60s'",
                                   i > 0 ? ", " : "", side->entries[i].known);
    }
    return text;
}

static sonde_err pair(sonde_diff *diff, const sonde_diff_options *options,
                      sonde_diag *diag)
{
    const sonde_catalogue *catalogue = NULL;
    sonde_catalogue *own = NULL;
    char a[256], b[256];
    sonde_err err = catalogue_of(&diff->side[SONDE__DIFF_A], &own, &catalogue, diag);

    err = err == SONDE_OK ? choose(diff, options, catalogue, diag) : err;
    sonde_catalogue_destroy(own);
    SONDE__TRY(err);
    SONDE__TRY(list_only_b(diff, diag));
    if (diff->report.tensors == 0) {
        return sonde__fail(diag, SONDE_ENOTFOUND, diff->side[SONDE__DIFF_B].path,
                           "names in common, or --rename or --table",
                           "no tensor of the first side: it has %s; the second has %s",
                           some_names(&diff->side[SONDE__DIFF_A], a, sizeof a),
                           some_names(&diff->side[SONDE__DIFF_B], b, sizeof b));
    }
    return sonde__diff_order(diff, diag);
}

/* --- opening -------------------------------------------------------------------------- */

static sonde_err check(const sonde_diff_options *options, sonde_diag *diag)
{
    if (options->tolerance && !(options->rtol >= 0.0 && options->atol >= 0.0)) {
        return sonde__fail(diag, SONDE_EINVAL, "tolerance", "numbers >= 0",
                           "rtol %g, atol %g", options->rtol, options->atol);
    }
    if (options->begin < 0 || (options->end != 0 && options->end <= options->begin)) {
        return sonde__fail(diag, SONDE_EINVAL, "steps", "begin < end", "%lld to %lld",
                           (long long)options->begin, (long long)options->end);
    }
    if (options->threads < 0 || options->modes >= 1U << SONDE_MODE_COUNT) {
        return sonde__fail(diag, SONDE_EINVAL, "options", "threads >= 0, and modes",
                           "threads %d, modes %#x", options->threads, options->modes);
    }
    return SONDE_OK;
}

static sonde_err open_sides(sonde_diff *diff, const char *const paths[SONDE__DIFF_SIDES],
                            const sonde_diff_options *options, sonde_diag *diag)
{
    for (int i = 0; i < SONDE__DIFF_SIDES && paths[i] != NULL; i++) {
        SONDE__TRY(sonde__diff_side_open(&diff->side[i], paths[i],
                                         i == SONDE__DIFF_A ? NULL : options, diag));
        if ((diff->side[i].trial == NULL) != (diff->side[0].trial == NULL)) {
            return sonde__fail(
                diag, SONDE_EINVAL, paths[i],
                diff->side[0].trial != NULL ? "a run, as the first side is"
                                            : "safetensors files, as the "
                                              "first side is",
                "%s", diff->side[i].trial != NULL ? "a run" : "safetensors files");
        }
    }
    return pair(diff, options, diag);
}

sonde_err sonde_diff_open(const char *a, const char *b, const sonde_diff_options *options,
                          sonde_diff **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, a, b, out);
    sonde_diff_options all;
    sonde_diff *diff = NULL;

    *out = NULL;
    SONDE__TAKE(sonde_diff_options, &all, options, diag);
    SONDE__TRY(check(&all, diag));
    diff = sonde__calloc(1, sizeof *diff);
    if (diff == NULL) {
        return sonde__fail_nomem(diag, "a comparison");
    }
    diff->options = all;
    diff->has_yardstick = all.yardstick != NULL;
    if (all.threads == 0) {
        const long processors = sysconf(_SC_NPROCESSORS_ONLN);
        diff->options.threads = (int)SONDE_MAX(SONDE_MIN(processors, 8), 1);
    }
    const char *const paths[SONDE__DIFF_SIDES] = {a, b, all.yardstick};
    const sonde_err err = open_sides(diff, paths, &all, diag);
    if (err != SONDE_OK) {
        sonde_diff_close(diff);
        return err;
    }
    *out = diff;
    return SONDE_OK;
}

void sonde_diff_close(sonde_diff *diff)
{
    if (diff == NULL) {
        return;
    }
    for (int i = 0; i < SONDE__DIFF_SIDES; i++) {
        sonde__diff_side_close(&diff->side[i]);
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde_program_destroy(diff->program[mode]);
    }
    sonde__free(diff->rows);
    sonde__free(diff->first);
    sonde__free(diff->later);
    sonde__free(diff->only_b);
    sonde__free(diff);
}

/* --- what was found ------------------------------------------------------------------- */

void sonde_diff_describe(const sonde_diff *diff, sonde_diff_report *report)
{
    if (diff != NULL && report != NULL) {
        *report = diff->report;
    }
}

bool sonde_diff_tensor_get(const sonde_diff *diff, size_t i, sonde_diff_tensor *out)
{
    if (diff == NULL || out == NULL || i >= diff->count) {
        return false;
    }
    *out = diff->rows[diff->first[i]].out;
    return true;
}

const char *sonde_diff_only_b(const sonde_diff *diff, size_t i)
{
    return diff != NULL && i < diff->report.tensors_only_b ? diff->only_b[i] : NULL;
}
