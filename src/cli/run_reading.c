/*
 * run_reading.c - see run_reading.h.
 */
#include "cli/run_reading.h"
#include "base/fail.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

sonde_err cli_fail_memory(sonde_diag *diag)
{
    return sonde_diag_set(diag, SONDE_ENOMEM, "", "", "out of memory");
}

/* --- options ---------------------------------------------------------------------- */

/* Digits up to end; false if there is anything else, or too many. */
static bool parse_step(const char *text, const char *end, int64_t *step)
{
    char *stop = NULL;

    if (text == end || *text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    *step = strtoll(text, &stop, 10);
    return stop == end && errno == 0 && *step < INT64_MAX;
}

static sonde_err parse_steps(const char *text, cli_range *range, sonde_diag *diag)
{
    const char *end = text + strlen(text);
    const char *colon = strchr(text, ':');
    bool good = false;

    if (colon == NULL) {
        good = parse_step(text, end, &range->begin);
        range->end = good ? range->begin + 1 : 0;
    } else {
        good = (colon == text || parse_step(text, colon, &range->begin)) &&
               (colon + 1 == end || parse_step(colon + 1, end, &range->end));
        good = good && (colon + 1 == end || range->end > range->begin);
    }
    return good ? SONDE_OK
                : sonde_diag_set(diag, SONDE_EINVAL, "--steps",
                                 "A:B (without B), A:, :B or A", "'%s'", text);
}

static sonde_err parse_mode(const char *text, sonde_mode *mode, sonde_diag *diag)
{
    for (int m = 0; m < SONDE_MODE_COUNT; m++) {
        if (strcasecmp(text, sonde_mode_name((sonde_mode)m)) == 0) {
            *mode = (sonde_mode)m;
            return SONDE_OK;
        }
    }
    return sonde_diag_set(diag, SONDE_EINVAL, "--mode", "train, eval, predict or global",
                          "'%s'", text);
}

sonde_err cli_range_parse(const char *mode, const char *steps, int64_t worker,
                          cli_range *range, sonde_diag *diag)
{
    cli_range parsed = {.mode = SONDE_MODE_GLOBAL,
                        .worker = worker == CLI_NOT_GIVEN ? -1 : (int)worker};

    SONDE__TRY(mode != NULL ? parse_mode(mode, &parsed.mode, diag) : SONDE_OK);
    SONDE__TRY(steps != NULL ? parse_steps(steps, &parsed, diag) : SONDE_OK);
    *range = parsed;
    return SONDE_OK;
}

/* Fails if there are too many statistics, or this one already. */
static sonde_err check_new(const cli_stats *stats, const char *name, sonde_diag *diag)
{
    if (stats->count == CLI_STATS_MOST) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--stat", "fewer", "more than 40");
    }
    for (size_t i = 0; i < stats->count; i++) {
        if (strcmp(stats->item[i].name, name) == 0) {
            return sonde_diag_set(diag, SONDE_EINVAL, "--stat", "each once",
                                  "'%s' appears twice", name);
        }
    }
    return SONDE_OK;
}

sonde_err cli_stats_parse(const char *text, const char *usual, cli_stats *stats,
                          sonde_diag *diag)
{
    const char *item = text != NULL ? text : usual;

    stats->count = 0;
    for (;;) {
        const size_t length = strcspn(item, ",");
        char name[64];
        sonde_reduction reduction;
        sonde_err err = SONDE_OK;

        (void)snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), item);
        err = sonde_reduction_parse(name, &reduction, diag);
        if (err != SONDE_OK) {
            (void)snprintf(diag->where, sizeof diag->where, "--stat");
            return err;
        }
        SONDE__TRY(check_new(stats, reduction.name, diag));
        stats->item[stats->count++] = reduction;
        if (item[length] == '\0') {
            return SONDE_OK;
        }
        item += length + 1;
    }
}

unsigned cli_stats_evidence(const cli_stats *stats)
{
    unsigned how = 0;

    for (size_t i = 0; i < stats->count; i++) {
        how |= sonde_reduction_evidence(&stats->item[i]);
    }
    return how;
}

const char *cli_reduced_text(const sonde_reduction *reduction, const sonde_reduced *value,
                             char *buf, size_t size)
{
    if (value->how == 0) {
        (void)snprintf(buf, size, "-");
    } else if (reduction->kind == SONDE_REDUCTION_HASH) {
        (void)snprintf(buf, size, "%016" PRIx64, value->hash);
    } else {
        (void)snprintf(buf, size, "%.7g", value->number);
    }
    return buf;
}

/* --- tensors and steps ------------------------------------------------------------ */

static bool is_recorded(const sonde_trial *trial, const char *collection)
{
    const char *name = NULL;

    for (size_t i = 0; (name = sonde_trial_collection(trial, i)) != NULL; i++) {
        if (strcmp(name, collection) == 0) {
            return true;
        }
    }
    return false;
}

/* Keeps the ids of tensors that were in the collection when they were recorded, and those
 * that the selector (NULL: none) selects. */
static sonde_err keep_members(const sonde_trial *trial, const char *collection,
                              const sonde_selector *selector, uint32_t *ids,
                              size_t *count, sonde_diag *diag)
{
    uint32_t *own = NULL;
    size_t own_count = 0, kept = 0, next = 0;

    if (selector != NULL) {
        SONDE__TRY(sonde_selector_resolve(selector, sonde_trial_catalogue(trial), &own,
                                          &own_count, diag));
    }
    for (size_t i = 0; i < *count; i++) { /* both lists are by id */
        const bool selected = next < own_count && own[next] == ids[i];

        next += selected;
        if (selected || sonde_trial_in_collection(trial, ids[i], collection)) {
            ids[kept++] = ids[i];
        }
    }
    sonde_release(own);
    *count = kept;
    return SONDE_OK;
}

/* A selector. "@NAME" also selects the tensors that were recorded in a collection of that
 * name. */
sonde_err cli_resolve(const sonde_trial *trial, const char *text, uint32_t **ids,
                      size_t *count, sonde_diag *diag)
{
    const bool collection = text[0] == '@' && is_recorded(trial, text + 1);
    sonde_selector *selector = NULL, *all = NULL;
    sonde_err err = sonde_selector_create(text, &selector, diag);

    if (err != SONDE_OK && !(err == SONDE_EINVAL && collection)) {
        return err;
    }
    if (!collection) {
        err = sonde_selector_resolve(selector, sonde_trial_catalogue(trial), ids, count,
                                     diag);
        goto error;
    }
    SONDE__TRY_GO(sonde_selector_create("*", &all, diag));
    SONDE__TRY_GO(
        sonde_selector_resolve(all, sonde_trial_catalogue(trial), ids, count, diag));
    err = keep_members(trial, text + 1, selector, *ids, count, diag);
error:
    sonde_selector_destroy(all);
    sonde_selector_destroy(selector);
    return err;
}

sonde_err cli_select(const sonde_trial *trial, const char *text, uint32_t **ids,
                     size_t *count, sonde_diag *diag)
{
    SONDE__TRY(cli_resolve(trial, text != NULL ? text : "*", ids, count, diag));
    if (*count == 0 && text != NULL) {
        cli_warn("'%s' matches no tensor", text);
    }
    return SONDE_OK;
}

sonde_err cli_select_some(const sonde_trial *trial, const char *text, uint32_t **ids,
                          size_t *count, sonde_diag *diag)
{
    uint32_t *found = NULL;
    size_t found_count = 0;

    SONDE__TRY(cli_resolve(trial, text, &found, &found_count, diag));
    if (found_count == 0) {
        sonde_release(found);
        return sonde_diag_set(diag, SONDE_ENOTFOUND, text, "", "matches no tensor");
    }
    *ids = found;
    *count = found_count;
    return SONDE_OK;
}

sonde_export_options cli_rows(const uint32_t *ids, size_t count, const cli_range *range,
                              const cli_stats *stats, size_t *left_out)
{
    static const uint32_t none = 0; /* NULL would mean all */
    sonde_export_options options = sonde_export_options_default();

    options.ids = ids != NULL ? ids : &none;
    options.id_count = count;
    options.mode = range->mode;
    options.begin = range->begin;
    options.end = range->end;
    options.worker = range->worker;
    options.stats = stats->item;
    options.stat_count = stats->count;
    options.report_line = cli_left_out;
    options.user = left_out;
    return options;
}

bool cli_is_number(const sonde_tensor_info *info)
{
    const sonde_view shape = sonde_view_of(info->dtype, info->rank, info->shape, NULL);

    return sonde_view_count(&shape) == 1;
}

/* "no value": the kinds that are missing. */
static const char *missing_kinds(unsigned how)
{
    switch (how & ~(unsigned)SONDE_HOW_NORMS) {
    case SONDE_HOW_RAW:
        return "no value";
    case SONDE_HOW_RAW | SONDE_HOW_SKETCH:
        return "neither value nor sketch";
    case SONDE_HOW_RAW | SONDE_HOW_VITALS:
        return "neither value nor vital signs";
    case SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_SKETCH:
        return "neither value, vital signs nor sketch";
    default:
        return "nothing";
    }
}

/* "at step 13", "at steps 5 to 9", with the mode before it if it is one. */
static const char *range_text(const cli_range *range, char *buf, size_t size)
{
    const bool global = range->mode == SONDE_MODE_GLOBAL;
    const char *mode = global ? "" : sonde_mode_name(range->mode);
    const char *space = global ? "" : " ";

    if (range->end == 0) {
        (void)snprintf(buf, size, "from %s%sstep %" PRId64 " on", mode, space,
                       range->begin);
    } else if (range->end == range->begin + 1) {
        (void)snprintf(buf, size, "at %s%sstep %" PRId64, mode, space, range->begin);
    } else {
        (void)snprintf(buf, size, "at %s%ssteps %" PRId64 " to %" PRId64, mode, space,
                       range->begin, range->end - 1);
    }
    return buf;
}

sonde_err cli_fail_nothing(sonde_trial *trial, uint32_t id, const cli_range *range,
                           unsigned how, sonde_diag *diag)
{
    const char *name = sonde_catalogue_info(sonde_trial_catalogue(trial), id)->name;
    const char *what = missing_kinds(how);
    char where[96];
    int64_t *steps = NULL;
    size_t count = 0, after = 0;
    sonde_err err = SONDE_OK;

    SONDE__TRY(
        sonde_trial_tensor_steps(trial, id, range->mode, how, &steps, &count, diag));
    (void)range_text(range, where, sizeof where);
    while (after < count && steps[after] < range->begin) {
        after++;
    }
    if (count == 0) {
        err = sonde_diag_set(diag, SONDE_ENOTFOUND, name, "",
                             "%s was saved at any %sstep", what,
                             range->mode == SONDE_MODE_GLOBAL  ? ""
                             : range->mode == SONDE_MODE_TRAIN ? "train "
                             : range->mode == SONDE_MODE_EVAL  ? "eval "
                                                               : "predict ");
    } else if (after < count && steps[after] == range->begin) {
        err = sonde_diag_set(diag, SONDE_ENOTFOUND, name, "",
                             "%s was saved %s by this worker, micro-batch or replica",
                             what, where);
    } else if (after == 0 || after == count) {
        err = sonde_diag_set(diag, SONDE_ENOTFOUND, name, "",
                             "%s was saved %s; the %s is step %" PRId64, what, where,
                             after == 0 ? "first" : "last",
                             steps[after == 0 ? 0 : count - 1]);
    } else {
        err = sonde_diag_set(diag, SONDE_ENOTFOUND, name, "",
                             "%s was saved %s; the nearest are %" PRId64 " and %" PRId64,
                             what, where, steps[after - 1], steps[after]);
    }
    sonde_release(steps);
    return err;
}

sonde_err cli_last_step(sonde_trial *trial, uint32_t id, const cli_range *range,
                        unsigned how, int64_t *step, sonde_diag *diag)
{
    int64_t *steps = NULL;
    size_t count = 0;

    SONDE__TRY(
        sonde_trial_tensor_steps(trial, id, range->mode, how, &steps, &count, diag));
    if (count > 0) {
        *step = steps[count - 1];
    }
    sonde_release(steps);
    return count > 0 ? SONDE_OK : cli_fail_nothing(trial, id, range, how, diag);
}

/* --- printing ---------------------------------------------------------------------- */

const char *cli_step_text(sonde_trial *trial, sonde_mode mode, int64_t step, char *buf,
                          size_t size)
{
    sonde_mode own = mode;
    int64_t own_step = step, global = step;

    if (mode == SONDE_MODE_GLOBAL) {
        (void)sonde_trial_mode_step(trial, step, &own, &own_step);
    } else {
        (void)sonde_trial_global_step(trial, mode, step, &global);
    }
    if (own == SONDE_MODE_GLOBAL) {
        (void)snprintf(buf, size, "step %" PRId64, global);
    } else {
        (void)snprintf(buf, size, "step %" PRId64 " (%s %" PRId64 ")", global,
                       sonde_mode_name(own), own_step);
    }
    return buf;
}

const char *cli_status_name(sonde_run_status status)
{
    switch (status) {
    case SONDE_RUN_RUNNING:
        return "running";
    case SONDE_RUN_ENDED:
        return "ended";
    case SONDE_RUN_CRASHED:
        return "crashed";
    }
    return "?";
}

int cli_field(const char *text, int columns)
{
    int more = 0;

    for (; *text != '\0'; text++) {
        more += ((unsigned char)*text & 0xC0) == 0x80; /* not the first of a letter */
    }
    return columns + more;
}

int cli_letters(const char *text)
{
    return (int)strlen(text) - cli_field(text, 0);
}

enum { MOST_LEFT_OUT = 10 };

void cli_left_out(void *user, const char *text)
{
    size_t *count = user;

    if ((*count)++ < MOST_LEFT_OUT) {
        cli_warn("left out: %s", text);
    }
}

int cli_left_out_end(size_t count)
{
    if (count > MOST_LEFT_OUT) {
        cli_warn("left out: %zu more; 'sonde verify' lists all of them",
                 count - MOST_LEFT_OUT);
    }
    return count > 0 ? CLI_VERDICT : CLI_OK;
}

int cli_columns(void)
{
    const char *text = getenv("COLUMNS");
    const long columns = text != NULL ? strtol(text, NULL, 10) : 0;
    struct winsize size = {0};

    if (columns >= 20 && columns <= 1000) {
        return (int)columns;
    }
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) {
        return size.ws_col;
    }
    return 80;
}

bool cli_is_utf8(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};

    for (size_t i = 0; i < CLI_COUNT_OF(variables); i++) {
        const char *value = getenv(variables[i]);

        if (value != NULL && value[0] != '\0') {
            return strcasestr(value, "utf-8") != NULL ||
                   strcasestr(value, "utf8") != NULL;
        }
    }
    return false;
}

size_t cli_count_damage(const sonde_trial *trial)
{
    size_t count = 0;

    while (sonde_trial_damage(trial, count) != NULL) {
        count++;
    }
    return count;
}

/* --- moments, durations and rates of steps ------------------------------------------ */

enum { RATE_STEPS = 100 };

const char *cli_moment_text(int64_t time, char *buf, size_t size)
{
    const time_t seconds = (time_t)(time / 1000000000);
    struct tm utc = {0};

    (void)gmtime_r(&seconds, &utc);
    if (strftime(buf, size, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) {
        buf[0] = '\0';
    }
    return buf;
}

const char *cli_duration_text(double seconds, char *buf, size_t size)
{
    const double whole = seconds > 0.0 ? seconds : 0.0;
    const int64_t rounded = (int64_t)(whole + 0.5);

    if (whole < 59.5) {
        (void)snprintf(buf, size, whole < 9.95 ? "%.1f s" : "%.0f s", whole);
    } else if (rounded < 3600) {
        (void)snprintf(buf, size, "%" PRId64 " min %" PRId64 " s", rounded / 60,
                       rounded % 60);
    } else if (rounded < 86400) {
        (void)snprintf(buf, size, "%" PRId64 " h %" PRId64 " min", rounded / 3600,
                       rounded % 3600 / 60);
    } else {
        (void)snprintf(buf, size, "%" PRId64 " d %" PRId64 " h", rounded / 86400,
                       rounded % 86400 / 3600);
    }
    return buf;
}

const char *cli_no_end_text(int64_t last_time, char *buf, size_t size)
{
    char age[64];

    if (last_time == 0) {
        (void)snprintf(buf, size, "no end was written");
    } else {
        (void)snprintf(buf, size, "no end was written; last change %s ago",
                       cli_duration_text(cli_age(last_time), age, sizeof age));
    }
    return buf;
}

bool cli_warn_crashed(const sonde_trial *trial, const char *path)
{
    sonde_run_info info;
    char text[128];

    sonde_trial_describe(trial, &info);
    if (info.status != SONDE_RUN_CRASHED) {
        return false;
    }
    cli_warn("%s: %s", path,
             info.foreign ? cli_no_end_text(info.last_time, text, sizeof text)
                          : "the writer disappeared without ending the run");
    return true;
}

double cli_age(int64_t time)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec - (double)time / 1e9 + (double)now.tv_nsec / 1e9;
}

sonde_err cli_steps(sonde_trial *trial, sonde_mode mode, bool incomplete,
                    const int64_t **steps, size_t *count, sonde_diag *diag)
{
    const int64_t *all = sonde_trial_steps(trial, mode, incomplete, count);

    if (all == NULL) {
        return cli_fail_memory(diag);
    }
    if (steps != NULL) {
        *steps = all;
    }
    return SONDE_OK;
}

sonde_err cli_steps_per_second(sonde_trial *trial, double *rate, sonde_diag *diag)
{
    size_t count = 0, first = 0;
    const int64_t *steps = NULL;
    int64_t began = 0, ended = 0;
    const sonde_err err =
        cli_steps(trial, SONDE_MODE_GLOBAL, false, &steps, &count, diag);

    *rate = 0.0;
    if (err != SONDE_OK || steps == NULL || count < 2) {
        return err;
    }
    first = count > RATE_STEPS ? count - 1 - RATE_STEPS : 0;
    if (!sonde_trial_step_time(trial, SONDE_MODE_GLOBAL, steps[first], -1, &began) ||
        !sonde_trial_step_time(trial, SONDE_MODE_GLOBAL, steps[count - 1], -1, &ended) ||
        ended <= began) {
        return SONDE_OK;
    }
    *rate = (double)(steps[count - 1] - steps[first]) * 1e9 / (double)(ended - began);
    return SONDE_OK;
}
