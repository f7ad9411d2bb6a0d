/*
 * findings.c - findings: made from what rules report, written as JSON, passed to the
 * callback and appended to files.
 */
#include "rules/engine.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "storage/store.h"

#include <sonde/json.h>
#include <sonde/log.h>
#include <sonde/text.h>

#include <xxhash.h>

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *sonde_severity_name(sonde_severity severity)
{
    static const char *const names[] = {"note", "warning", "error"};
    const size_t i = (size_t)severity;

    return i < SONDE_COUNT_OF(names) ? names[i] : "?";
}

/* --- making ------------------------------------------------------------------------- */

/* XXH3 of "rule\0tensor\0", of "file:line\0" if the rule gave a place, and the step,
 * little-endian. */
static uint64_t finding_id(const char *rule, const char *tensor, const sonde_place *place,
                           int64_t step)
{
    char line[16];

    XXH3_state_t *state = XXH3_createState();

    if (state == NULL) {
        return XXH3_64bits(tensor, strlen(tensor)) ^ (uint64_t)step;
    }
    (void)XXH3_64bits_reset(state);
    (void)XXH3_64bits_update(state, rule, strlen(rule) + 1);
    (void)XXH3_64bits_update(state, tensor, strlen(tensor) + 1);
    if (place != NULL) {
        (void)snprintf(line, sizeof line, ":%d", place->line);
        (void)XXH3_64bits_update(state, place->file, strlen(place->file));
        (void)XXH3_64bits_update(state, line, strlen(line) + 1);
    }
    (void)XXH3_64bits_update(state, &step, sizeof step);
    const uint64_t id = XXH3_64bits_digest(state);
    (void)XXH3_freeState(state);
    return id;
}

void sonde__rules_hold_again(const sonde_rules *rules, sonde__rule_found *found)
{
    const int64_t step = rules->at.global_step;

    if (found->finding.last_step != step) {
        found->finding.last_step = step;
        found->finding.steps++;
    }
}

static void free_found(sonde__rule_found *found)
{
    if (found != NULL) {
        sonde__free(found->tensor);
        sonde__free(found->file);
        sonde__free(found);
    }
}

void sonde__rule_raise(sonde_rules *rules, sonde__rule_found *found,
                       sonde_severity severity)
{
    sonde_finding *finding = &found->finding;

    finding->raised_from = finding->severity;
    finding->raised_step = rules->at.global_step;
    finding->resolved_step = 0;
    finding->severity = severity;
    found->well = 0;
    found->news = rules->news = true;
}

bool sonde__rule_keep_found(sonde_rules *rules, sonde__rule_found *found)
{
    if (!sonde__reserve(&rules->found, &rules->found_capacity, rules->found_count + 1,
                        sizeof(void *))) {
        return false;
    }
    rules->found[rules->found_count++] = found;
    found->run->findings++;
    return true;
}

/* A finding among the findings or, waits, among the suspicions. */
static sonde__rule_found *new_found(sonde_rule_run *run, const char *tensor, bool waits)
{
    sonde_rules *rules = run->rules;
    sonde__rule_found *found = sonde__calloc(1, sizeof *found);
    bool kept = false;

    if (found != NULL) {
        found->run = run;
        found->tensor = sonde__strdup(tensor);
    }
    if (found != NULL && found->tensor != NULL) {
        kept = waits ? sonde__reserve(&rules->waiting, &rules->waiting_capacity,
                                      rules->waiting_count + 1, sizeof(void *))
                     : sonde__rule_keep_found(rules, found);
    }
    if (!kept) {
        free_found(found);
        rules->forgot = true;
        sonde_log(SONDE_LOG_ERROR, "rules", "%s found something at '%s': out of memory",
                  run->rule->name, tensor);
        return NULL;
    }
    if (waits) {
        rules->waiting[rules->waiting_count++] = found;
    } else {
        found->kept = true;
    }
    return found;
}

/* Its place is unknown if memory runs out. */
static void set_place(sonde__rule_found *found, const char *file, int line)
{
    found->file = file[0] != '\0' ? sonde__strdup(file) : NULL;
    found->finding.place =
        found->file != NULL ? (sonde_place){found->file, line} : (sonde_place){"", 0};
}

/* The place of its tensor, if a program in force knows it. */
static void find_place(const sonde_rules *rules, sonde__rule_found *found)
{
    const sonde_program *program = NULL;
    const sonde_place place = sonde__rules_place_of(rules, found->tensor, &program);
    char file[4096];

    (void)sonde_program_place_text(program, (sonde_place){place.file, 0}, file,
                                   sizeof file);
    set_place(found, file, place.line);
}

/* A finding, about to be spoken of; NULL if memory runs out. place: given by the rule; or
 * NULL. */
static sonde__rule_found *make(sonde_rule_run *run, const char *tensor,
                               const sonde_place *place, sonde_severity severity,
                               const char *statistic, bool waits)
{
    const sonde_coordinate *at = &run->rules->at;
    sonde__rule_found *found = new_found(run, tensor, waits);

    if (found == NULL) {
        return NULL;
    }
    found->finding = (sonde_finding){
        .id = finding_id(run->rule->name, tensor, place, at->global_step),
        .rule = run->rule->name,
        .severity = severity,
        .tensor = found->tensor,
        .mode = run->rules->mode,
        .step = at->global_step,
        .mode_step = at->mode_step,
        .last_step = at->global_step,
        .steps = 1,
        .statistic = statistic,
        .message = found->message,
        .advice = run->rule->advice,
    };
    if (place != NULL) {
        set_place(found, place->file, place->line);
    } else {
        find_place(run->rules, found);
    }
    run->speaking = found;
    return found;
}

bool sonde__rule_make_found(sonde_rule_run *run, size_t i, sonde_severity severity,
                            const char *statistic, double value, double threshold,
                            bool waits)
{
    sonde__rule_found **place =
        i == SONDE_RULE_WHOLE_RUN ? &run->run_finding : &run->tensor_findings[i];
    const char *tensor =
        i == SONDE_RULE_WHOLE_RUN ? "" : sonde_rule_info(run, run->tensors[i].id)->name;
    sonde__rule_found *found = make(run, tensor, NULL, severity, statistic, waits);

    if (found == NULL) {
        return false;
    }
    found->finding.value = value;
    found->finding.threshold = threshold;
    *place = found;
    return true;
}

bool sonde__rule_make_placed(sonde_rule_run *run, const char *tensor, sonde_place place,
                             sonde_severity severity, const char *statistic, double value,
                             double threshold)
{
    if (!sonde__reserve(&run->placed, &run->placed_capacity, run->placed_count + 1,
                        sizeof(void *))) {
        run->rules->forgot = true;
        return false;
    }
    sonde__rule_found *found = make(run, tensor, &place, severity, statistic, false);

    if (found == NULL) {
        return false;
    }
    found->certain = true;
    found->finding.value = value;
    found->finding.threshold = threshold;
    run->placed[run->placed_count++] = found;
    return true;
}

void sonde__rule_vsay(sonde_rule_run *run, const char *advice, const char *fmt,
                      va_list args)
{
    sonde__rule_found *found = run->speaking;

    (void)sonde__vsnprintf(found->message, sizeof found->message, fmt, args);
    if (advice != NULL) {
        found->finding.advice = advice;
    }
    run->speaking = NULL;
}

void sonde__rule_date(sonde_rule_run *run, const sonde_rule_tensor *t,
                      const sonde_coordinate *at)
{
    sonde__rule_found *found =
        t != NULL ? run->tensor_findings[t - run->tensors] : run->run_finding;

    if (found != NULL && found->finding.step == run->rules->at.global_step) {
        found->finding.step = at->global_step;
        found->finding.mode_step = at->mode_step;
        found->finding.id =
            finding_id(run->rule->name, found->finding.tensor, NULL, at->global_step);
    }
}

void sonde_rule_say(sonde_rule_run *run, const char *advice, const char *fmt, ...)
{
    va_list args;

    if (run == NULL || run->speaking == NULL || fmt == NULL) {
        return;
    }
    va_start(args, fmt);
    sonde__rule_vsay(run, advice, fmt, args);
    va_end(args);
}

void sonde_rule_lacked(sonde_rule_run *run, const char *fmt, ...)
{
    if (run == NULL || fmt == NULL) {
        return;
    }
    va_list args;

    va_start(args, fmt);
    (void)sonde__vsnprintf(run->lacked, sizeof run->lacked, fmt, args);
    va_end(args);
}

void sonde__rules_free_found(sonde_rules *rules)
{
    for (size_t i = 0; i < rules->waiting_count; i++) {
        if (!rules->waiting[i]->kept) {
            free_found(rules->waiting[i]);
        }
    }
    for (size_t i = 0; i < rules->found_count; i++) {
        free_found(rules->found[i]);
    }
    sonde__free(rules->found);
    sonde__free(rules->waiting);
}

const sonde_finding *sonde_rules_findings(sonde_rules *rules, size_t *count)
{
    if (rules == NULL || count == NULL) {
        return NULL;
    }
    *count = 0;
    if (!sonde__reserve(&rules->copies, &rules->copy_capacity, rules->found_count,
                        sizeof *rules->copies)) {
        return NULL;
    }
    for (size_t i = 0; i < rules->found_count; i++) {
        rules->copies[i] = rules->found[i]->finding;
    }
    *count = rules->found_count;
    return rules->copies;
}

/* --- JSON --------------------------------------------------------------------------- */

static void put_real(sonde_json *json, const char *key, double value)
{
    if (isfinite(value)) {
        sonde_json_format(json, key, "%.10g", value);
    } else {
        sonde_json_real(json, key, value);
    }
}

static void put_id(sonde_json *json, const char *key, uint64_t id)
{
    if (id == 0) {
        sonde_json_string(json, key, NULL);
    } else {
        sonde_json_format(json, key, "\"%016llx\"", (unsigned long long)id);
    }
}

/* "train.py:41"; nothing if it is unknown. */
static void put_place(sonde_json *json, sonde_place place)
{
    char text[4200];

    if (place.file != NULL && place.file[0] != '\0') {
        sonde_json_string(json, "place",
                          sonde_program_place_text(NULL, place, text, sizeof text));
    }
}

size_t sonde_finding_json(const sonde_finding *finding, char *buf, size_t size)
{
    if (finding == NULL || buf == NULL) {
        return 0;
    }
    sonde_text text = {0};
    sonde_json json = {.text = &text};
    size_t length = 0;

    sonde_json_object(&json, NULL);
    put_id(&json, "id", finding->id);
    sonde_json_string(&json, "rule", finding->rule);
    sonde_json_string(&json, "severity", sonde_severity_name(finding->severity));
    sonde_json_string(&json, "tensor", finding->tensor);
    sonde_json_string(&json, "mode", sonde_mode_name(finding->mode));
    sonde_json_int(&json, "step", finding->step);
    sonde_json_int(&json, "mode_step", finding->mode_step);
    sonde_json_int(&json, "last_step", finding->last_step);
    sonde_json_uint(&json, "steps", finding->steps);
    sonde_json_string(&json, "statistic", finding->statistic);
    put_real(&json, "value", finding->value);
    put_real(&json, "threshold", finding->threshold);
    sonde_json_string(&json, "message", finding->message);
    sonde_json_string(&json, "advice", finding->advice);
    put_place(&json, finding->place);
    put_id(&json, "because_of", finding->because_of);
    if (finding->raised_step > 0) {
        sonde_json_string(&json, "raised_from",
                          sonde_severity_name(finding->raised_from));
        sonde_json_int(&json, "raised_step", finding->raised_step);
    }
    if (finding->resolved_step > 0) {
        sonde_json_int(&json, "resolved_step", finding->resolved_step);
    }
    sonde_json_end(&json);
    length = text.failed ? 0 : text.length;
    if (size > 0) {
        (void)snprintf(buf, size, "%s", length > 0 ? text.data : "");
    }
    sonde_text_fini(&text);
    return length;
}

/* --- reporting ------------------------------------------------------------------------ */

sonde_err sonde_rules_write_to(sonde_rules *rules, const char *run, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rules, run);
    const bool remote = sonde__store_is_address(run);
    const char *place = remote ? sonde__store_copy_at(run) : run;
    const size_t size = (place != NULL ? strlen(place) : 0) + sizeof "/findings";

    if (place == NULL) {
        return sonde__fail(diag, SONDE_ESTATE, run, "an open trial of the run",
                           "findings go to a store by way of a trial");
    }
    char *folder = sonde__malloc(size);
    if (folder == NULL) {
        return sonde__fail_nomem(diag, "findings");
    }
    (void)snprintf(folder, size, "%s/findings", place);
    sonde__free(rules->folder);
    sonde__rule_finding_files_fini(&rules->finding_files);
    rules->folder = folder;
    rules->folder_failed = false;
    rules->folder_is_copy = remote;
    return SONDE_OK;
}

enum { LINE_ROOM = 8192 };

static void write_line(sonde_rules *rules, const sonde_finding *finding)
{
    char line[LINE_ROOM];
    const size_t most = SONDE_MIN(sizeof line, sonde__rule_finding_room());
    const size_t length = sonde_finding_json(finding, line, most);

    if (length == 0 || length >= most) {
        sonde_log(SONDE_LOG_WARNING, "rules", "a finding of %s cannot be written: %s",
                  finding->rule, length == 0 ? "out of memory" : "it is too long");
        return;
    }
    if (sonde__rule_finding_append(&rules->finding_files, rules->folder, finding, line,
                                   length)) {
        rules->folder_failed = false;
    } else if (!rules->folder_failed) {
        rules->folder_failed = true;
        sonde_log(SONDE_LOG_WARNING, "rules", "%s: findings cannot be written: %s",
                  rules->folder, strerror(errno));
    }
}

/* Each finding is tried, since a disk may be full for a while; but a store that does not
 * answer is asked once, since that takes long. */
static bool is_tried(const sonde_rules *rules)
{
    return rules->folder != NULL && !(rules->folder_failed && rules->folder_is_copy);
}

static void report(sonde_rules *rules, const sonde__rule_found *found, bool again)
{
    if (is_tried(rules)) {
        write_line(rules, &found->finding);
    }
    if (rules->on_finding != NULL) {
        rules->on_finding(rules->on_user, &found->finding, again);
    }
}

/* Reports once more the findings that have risen. */
static void report_news(sonde_rules *rules)
{
    for (size_t i = 0; rules->news && i < rules->reported; i++) {
        if (rules->found[i]->news) {
            rules->found[i]->news = false;
            report(rules, rules->found[i], false);
        }
    }
    rules->news = false;
}

void sonde__rules_report_new(sonde_rules *rules)
{
    report_news(rules);
    if (rules->reported == rules->found_count) {
        return;
    }
    sonde__rules_set_causes(rules);
    while (rules->reported < rules->found_count) {
        rules->found[rules->reported]->news = false;
        report(rules, rules->found[rules->reported++], false);
    }
}

void sonde__rules_report_again(sonde_rules *rules)
{
    for (size_t i = 0; i < rules->found_count; i++) {
        if (rules->found[i]->finding.steps > 1 ||
            rules->found[i]->finding.resolved_step > 0) {
            report(rules, rules->found[i], true);
        }
    }
}

void sonde_rules_on_finding(sonde_rules *rules, sonde_on_finding call, void *user)
{
    if (rules == NULL) {
        return;
    }
    rules->on_finding = call;
    rules->on_user = user;
}

const sonde_tensor_info *sonde_rule_info(const sonde_rule_run *run, uint32_t id)
{
    return run != NULL ? sonde_catalogue_info(run->rules->catalogue, id) : NULL;
}
