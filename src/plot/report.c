/*
 * report.c - the page as a whole, and its second half: the tensors, the rules, the run.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/whole_file.h"
#include "plot/axes.h"
#include "plot/report.h"

#include <sonde/error.h>
#include <sonde/plot.h>

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 200 }; /* that are shown */

/* --- findings by rule --------------------------------------------------------------- */

static sonde__report_group *group_of(sonde__report *report, const sonde_finding *finding)
{
    for (size_t i = 0; i < report->group_count; i++) {
        if (strcmp(report->groups[i].name, finding->rule) == 0) {
            return &report->groups[i];
        }
    }
    report->groups[report->group_count] =
        (sonde__report_group){.name = finding->rule,
                              .worst = finding->severity,
                              .first = finding->step,
                              .last = finding->last_step,
                              .because_of = finding->because_of};
    return &report->groups[report->group_count++];
}

static const sonde_rule *rule_of(const sonde_rules *rules, const char *name)
{
    for (size_t i = 0; i < sonde_rules_count(rules); i++) {
        sonde_rule_account account;

        sonde_rules_account(rules, i, &account);
        if (strcmp(account.rule->name, name) == 0) {
            return account.rule;
        }
    }
    return NULL;
}

/* A value is better known as the output of a module than as the input of the next one. */
static bool is_input(const sonde__report *report, const sonde_finding *finding)
{
    const uint32_t id = sonde__report_tensor(report, finding);
    const sonde_tensor_info *info =
        id != SONDE_NO_TENSOR ? sonde_catalogue_info(report->catalogue, id) : NULL;

    return info != NULL && info->module[0] != '\0' &&
           (info->role == SONDE_ROLE_INPUT || (info->role == SONDE_ROLE_ACTIVATION &&
                                               strstr(info->name, "_input_") != NULL));
}

/* Moves the earliest finding to the front: the card begins with it. */
static void choose_lead(const sonde__report *report, const sonde__report_group *group)
{
    size_t best = 0, member = 0;

    for (size_t i = 1; i < group->count; i++) {
        const sonde_finding *a = &report->findings[group->member[i]];
        const sonde_finding *b = &report->findings[group->member[best]];

        if (a->step < b->step ||
            (a->step == b->step && is_input(report, b) && !is_input(report, a))) {
            best = i;
        }
    }
    member = group->member[best];
    memmove(group->member + 1, group->member, best * sizeof *group->member);
    group->member[0] = member;
}

/* Rules in the order of their first findings. */
static sonde_err group_findings(sonde__report *report, sonde_diag *diag)
{
    size_t used = 0;

    const sonde_finding *found = sonde_rules_findings(report->rules, &report->count);

    report->findings = sonde__calloc(report->count + 1, sizeof *report->findings);
    report->groups = sonde__calloc(report->count + 1, sizeof *report->groups);
    report->members = sonde__calloc(report->count + 1, sizeof *report->members);
    if (report->findings == NULL || report->groups == NULL || report->members == NULL) {
        return sonde__fail_nomem(diag, "a report");
    }
    if (report->count > 0) {
        memcpy(report->findings, found, report->count * sizeof *found);
    }
    if (!sonde_findings_sort(report->findings, report->count)) {
        return sonde__fail_nomem(diag, "a report");
    }
    for (size_t i = 0; i < report->count; i++) {
        const sonde_finding *finding = &report->findings[i];
        sonde__report_group *group = group_of(report, finding);

        group->count++;
        group->worst = SONDE_MAX(group->worst, finding->severity);
        group->first = SONDE_MIN(group->first, finding->step);
        group->last = SONDE_MAX(group->last, finding->last_step);
        group->because_of =
            group->because_of == finding->because_of ? group->because_of : 0;
    }
    for (size_t i = 0; i < report->group_count; i++) {
        sonde__report_group *group = &report->groups[i];

        group->rule = rule_of(report->rules, group->name);
        group->member = report->members + used;
        for (size_t k = 0; k < report->count; k++) {
            if (strcmp(report->findings[k].rule, group->name) == 0) {
                report->members[used++] = k;
            }
        }
        choose_lead(report, group);
    }
    return SONDE_OK;
}

/* === the tensors ==================================================================== */

enum { SPARK_COLUMNS = 60 };

typedef struct table {
    size_t *findings; /* by id: their number */
    bool *shown;      /* by id */
    uint64_t *hashes; /* of the lines drawn */
    size_t drawn;
    size_t known; /* omitted: a line above shows the same values */
} table;

/* The number of findings of each tensor, by id. */
static size_t *count_findings(const sonde__report *report)
{
    size_t *counts =
        sonde__calloc(sonde_catalogue_count(report->catalogue) + 1, sizeof *counts);

    for (size_t i = 0; counts != NULL && i < report->count; i++) {
        const uint32_t id = sonde__report_tensor(report, &report->findings[i]);

        if (id != SONDE_NO_TENSOR) {
            counts[id]++;
        }
    }
    return counts;
}

/* True for a tensor, and for an alias that has findings under its own name. */
static bool is_candidate(const sonde__report *report, const size_t *findings, uint32_t id)
{
    return sonde_catalogue_info(report->catalogue, id)->same_as == id || findings[id] > 0;
}

/* Chooses the tensors to show, in the run's order: first those with findings. */
static size_t choose_tensors(const sonde__report *report, const size_t *findings,
                             bool *shown)
{
    const uint32_t count = sonde_catalogue_count(report->catalogue);
    size_t chosen = 0;

    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t id = 0; id < count && chosen < TENSORS; id++) {
            if (!shown[id] && is_candidate(report, findings, id) &&
                (findings[id] > 0) == (turn == 0)) {
                shown[id] = true;
                chosen++;
            }
        }
    }
    return chosen;
}

static void draw_name(sonde__report *report, const sonde_tensor_info *info)
{
    sonde_text *page = &report->page;
    char shape[128];

    sonde__report_put(
        page, "<td><code>%e</code></td><td>%s</td><td class=\"n\">%e</td>", info->name,
        info->role == SONDE_ROLE_ACTIVATION_GRADIENT ? "gradient"
                                                     : sonde_role_name(info->role),
        sonde_shape_text(info->rank, info->shape, shape, sizeof shape));
}

/* FNV-1a over the numbers of a line: equal for two names of the same values. */
static uint64_t hash_of(const sonde__report_track *track)
{
    uint64_t hash = 14695981039346656037U;

    for (int i = 0; i < track->count; i++) {
        const double shown[] = {track->column[i].low, track->column[i].high,
                                track->column[i].last, track->column[i].bad};
        unsigned char bytes[sizeof shown];

        memcpy(bytes, shown, sizeof shown);
        for (size_t k = 0; k < sizeof bytes; k++) {
            hash = (hash ^ bytes[k]) * 1099511628211U;
        }
    }
    return hash;
}

/* A value that passes from module to module has several names; one line is enough. */
static bool is_known(table *tensors, const sonde_tensor_info *info,
                     const sonde__report_track *track)
{
    const uint64_t hash = hash_of(track);
    const bool passes =
        info->role == SONDE_ROLE_INPUT || info->role == SONDE_ROLE_OUTPUT ||
        info->role == SONDE_ROLE_ACTIVATION || info->role == SONDE_ROLE_UPDATE;

    for (size_t i = 0; passes && i < tensors->drawn; i++) {
        if (tensors->hashes[i] == hash) {
            return true;
        }
    }
    tensors->hashes[tensors->drawn++] = hash;
    return false;
}

static void draw_cells(sonde_text *page, const sonde__report_track *track)
{
    sonde_text_format(page, "<td>");
    sonde__report_spark_draw(page, track);
    sonde_text_add(page, "</td><td class=\"n\">");
    if (track->low <= track->high) {
        sonde__report_put(page, "%h … %h", track->low, track->high);
    }
    sonde_text_add(page, "</td><td class=\"n\">");
    if (track->bad > 0) {
        sonde__report_put(page, "<em>NaN, ∞ at %n</em>", track->bad);
    } else if (isfinite(track->last)) {
        sonde__report_put(page, "%h", track->last);
    }
    sonde_text_add(page, "</td></tr>\n");
}

static sonde_err draw_row(sonde__report *report, table *tensors, uint32_t id,
                          sonde_diag *diag)
{
    const sonde_tensor_info *info = sonde_catalogue_info(report->catalogue, id);
    const sonde__report_quantity quantity = sonde__report_quantity_usual(info->role);
    sonde__report_track track;
    const sonde_err err =
        sonde__report_track_read(report->trial, id, SONDE_MODE_GLOBAL, &quantity,
                                 report->begin, report->end, SPARK_COLUMNS, &track, diag);

    if (err != SONDE_OK || (track.steps == 0 && tensors->findings[id] == 0)) {
        return err;
    }
    if (is_known(tensors, info, &track) && tensors->findings[id] == 0) {
        tensors->known++;
        return SONDE_OK;
    }
    sonde_text_format(&report->page, "<tr%s>",
                      tensors->findings[id] > 0 ? " class=\"found\"" : "");
    draw_name(report, info);
    draw_cells(&report->page, &track);
    return SONDE_OK;
}

static sonde_err draw_table(sonde__report *report, table *tensors, sonde_diag *diag)
{
    sonde_text *page = &report->page;

    sonde_text_format(
        page, "<div class=\"wide\"><table><thead><tr><th>tensor</th><th>role</th>"
              "<th class=\"n\">shape</th><th>over the run</th>"
              "<th class=\"n\">from … to</th><th class=\"n\">last</th></tr></thead>"
              "<tbody>\n");
    for (uint32_t id = 0; id < sonde_catalogue_count(report->catalogue); id++) {
        SONDE__TRY(tensors->shown[id] ? draw_row(report, tensors, id, diag) : SONDE_OK);
    }
    sonde_text_format(page, "</tbody></table></div>\n");
    return SONDE_OK;
}

static void draw_rest(sonde__report *report, const table *tensors, size_t chosen)
{
    sonde_text *page = &report->page;
    size_t all = 0;

    for (uint32_t id = 0; id < sonde_catalogue_count(report->catalogue); id++) {
        all += is_candidate(report, tensors->findings, id);
    }
    if (all > chosen) {
        sonde__report_put(page, "<p class=\"more\">and %n more without findings</p>\n",
                          all - chosen);
    }
    if (tensors->known > 0) {
        sonde__report_put(
            page, "<p class=\"more\">and %n with the same values as one above</p>\n",
            tensors->known);
    }
}

static sonde_err draw_tensors(sonde__report *report, sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(report->catalogue);
    table tensors = {.findings = count_findings(report),
                     .shown = sonde__calloc(count + 1, sizeof *tensors.shown),
                     .hashes = sonde__calloc(count + 1, sizeof *tensors.hashes)};
    sonde_err err = SONDE_OK;

    if (tensors.findings == NULL || tensors.shown == NULL || tensors.hashes == NULL) {
        err = sonde__fail_nomem(diag, "the tensors of a report");
    } else if (report->any_step && count > 0) {
        const size_t chosen = choose_tensors(report, tensors.findings, tensors.shown);

        sonde_text_format(
            &report->page,
            "<section class=\"card\"><h2>The tensors</h2><p class=\"summary\">The "
            "root mean square of each tensor; for losses and single numbers, the value.</p>\n");
        err = draw_table(report, &tensors, diag);
        draw_rest(report, &tensors, chosen);
        sonde_text_format(&report->page, "</section>\n");
    }
    sonde__free(tensors.findings);
    sonde__free(tensors.shown);
    sonde__free(tensors.hashes);
    return err;
}

/* === the rules and the run ========================================================== */

/* --- rules -------------------------------------------------------------------------- */

static void draw_rule(sonde__report *report, const sonde_rule_account *account)
{
    sonde_text *page = &report->page;

    sonde__report_put(page, "<li><b>%e</b> <span>", account->rule->name);
    if (account->judged) {
        sonde__report_put(page, "%c at %c", account->tensors, "tensor", account->steps,
                          "step");
    } else {
        sonde__report_put(page, "%e", account->lacked);
    }
    sonde_text_add(page, "</span>");
    if (account->findings > 0) {
        sonde__report_put(page, " <em>%c</em>", account->findings, "finding");
    }
    sonde_text_add(page, "</li>\n");
}

static void draw_rules(sonde__report *report, bool judged, const char *head)
{
    bool any = false;

    for (size_t i = 0; i < sonde_rules_count(report->rules); i++) {
        sonde_rule_account account;

        sonde_rules_account(report->rules, i, &account);
        if (account.judged != judged) {
            continue;
        }
        if (!any) {
            sonde_text_format(&report->page, "<h3>%s</h3><ul class=\"rules\">\n", head);
        }
        any = true;
        draw_rule(report, &account);
    }
    sonde_text_format(&report->page, "%s", any ? "</ul>\n" : "");
}

static void draw_judged(sonde__report *report)
{
    sonde_text_format(&report->page,
                      "<section class=\"card\" id=\"rules\"><h2>The rules</h2>\n");
    draw_rules(report, true, "Judged");
    draw_rules(report, false, "Not judged: the run lacks the data they need");
    sonde_text_format(&report->page, "</section>\n");
}

/* --- the run ------------------------------------------------------------------------ */

static void draw_fact(sonde__report *report, const char *name, const char *text)
{
    if (text[0] != '\0') {
        sonde__report_put(&report->page, "<div><dt>%s</dt><dd>%e</dd></div>\n", name,
                          text);
    }
}

static void draw_count(sonde__report *report, const char *name, uint64_t count)
{
    if (count > 0) {
        sonde__report_put(&report->page, "<div><dt>%s</dt><dd>%n</dd></div>\n", name,
                          count);
    }
}

/* "2026-01-31T12:00:00.000000Z" as "2026-01-31 12:00:00 UTC". */
static void draw_begin(sonde__report *report)
{
    const char *created = report->info.created;
    char text[64];

    if (strlen(created) >= 19 && created[10] == 'T') {
        (void)snprintf(text, sizeof text, "%.10s %.8s UTC", created, created + 11);
        draw_fact(report, "Started", text);
    } else {
        draw_fact(report, "Started", created);
    }
}

static void draw_duration(sonde__report *report)
{
    const double seconds = report->info.seconds;
    char text[64];

    if (seconds < 0.0 || seconds >= 1e12) {
        return;
    }
    if (seconds < 60.0) {
        (void)sonde__snprintf(text, sizeof text, "%.1f s", seconds);
    } else {
        const long long whole = (long long)seconds;

        (void)snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600,
                       whole / 60 % 60, whole % 60);
    }
    draw_fact(report, "Duration", text);
}

static void draw_end(sonde__report *report)
{
    static const char *const states[] = {"still running", "ended",
                                         "stopped without an end"};
    const sonde_run_info *info = &report->info;

    draw_fact(report, "State",
              info->end_reason[0] != '\0' ? info->end_reason : states[info->status]);
    draw_fact(report, "Reason given", info->end_text);
}

static void draw_steps(sonde__report *report)
{
    static const sonde_mode modes[] = {SONDE_MODE_TRAIN, SONDE_MODE_EVAL,
                                       SONDE_MODE_PREDICT};
    static const char *const names[] = {"Training steps", "Evaluation steps",
                                        "Prediction steps"};

    if (report->any_step) {
        char text[64];

        (void)snprintf(text, sizeof text, "%lld to %lld", (long long)report->begin,
                       (long long)report->end);
        draw_fact(report, "Global steps", text);
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(modes); i++) {
        size_t count = 0;

        (void)sonde_trial_steps(report->trial, modes[i], true, &count);
        draw_count(report, names[i], count);
    }
}

static void draw_damage(sonde__report *report)
{
    enum { MOST = 5 };
    const char *text = NULL;
    size_t count = 0;

    while (sonde_trial_damage(report->trial, count) != NULL) {
        count++;
    }
    for (size_t i = 0; i < count && i < MOST; i++) {
        text = sonde_trial_damage(report->trial, i);
        draw_fact(report, "Damaged", text);
    }
    if (count > MOST) {
        draw_count(report, "Damaged, more", count - MOST);
    }
}

static void draw_facts(sonde__report *report)
{
    const sonde_run_info *info = &report->info;

    sonde_text_format(&report->page,
                      "<section class=\"card\"><h2>The run</h2>\n<dl class=\"facts\">\n");
    draw_fact(report, "Model", info->model);
    draw_fact(report, "Program", info->program);
    draw_fact(report, "Recorded in", info->path);
    draw_begin(report);
    draw_duration(report);
    draw_end(report);
    draw_steps(report);
    if (info->workers > 1) {
        draw_count(report, "Workers", (uint64_t)info->workers);
    }
    draw_count(report, "Vital signs", info->rows);
    draw_count(report, "Raw values", info->records);
    draw_count(report, "Lost while recording", info->lost);
    draw_damage(report);
    sonde_text_format(&report->page, "</dl></section>\n");
}

/* === the page ======================================================================= */

static const char *name_of(const sonde__report *report)
{
    if (report->info.model[0] != '\0') {
        return report->info.model;
    }
    const char *slash = strrchr(report->info.path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : report->info.path;
}

static void draw_head(sonde__report *report)
{
    sonde_text *page = &report->page;

    sonde_text_format(
        page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width, "
              "initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light "
              "dark\">\n<meta http-equiv=\"Content-Security-Policy\" "
              "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>");
    sonde__report_put(page, "%e – Sonde</title>\n<style>\n", name_of(report));
    for (size_t i = 0; sonde__report_style[i] != NULL; i++) {
        sonde_text_add(page, sonde__report_style[i]);
    }
    sonde__report_put(page,
                      "</style>\n</head>\n<body>\n<header><p class=\"kind\">Sonde report"
                      "</p><h1>%e</h1></header>\n<main>\n",
                      name_of(report));
}

static sonde_err draw_page(sonde__report *report, sonde_diag *diag)
{
    draw_head(report);
    sonde__report_verdict(report);
    sonde__report_when(report);
    SONDE__TRY(sonde__report_loss_curve(report, diag));
    SONDE__TRY(sonde__report_cards(report, diag));
    SONDE__TRY(draw_tensors(report, diag));
    draw_judged(report);
    draw_facts(report);
    sonde_text_format(&report->page, "</main>\n</body>\n</html>\n");
    return report->page.failed ? sonde__fail_nomem(diag, "a report") : SONDE_OK;
}

/* Also lists the steps of all modes, which then stay in memory. */
static sonde_err find_steps(sonde__report *report, sonde_diag *diag)
{
    size_t count = 0;
    const int64_t *steps = NULL;

    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) { /* the global steps are last */
        steps = sonde_trial_steps(report->trial, (sonde_mode)mode, true, &count);
        if (steps == NULL) {
            return sonde__fail_nomem(diag, "the steps of a report");
        }
    }
    report->any_step = count > 0;
    report->begin = count > 0 ? steps[0] : 0;
    report->end = count > 0 ? steps[count - 1] : 0;
    return SONDE_OK;
}

sonde_err sonde_report_write(const char *path, sonde_trial *trial, sonde_rules *rules,
                             sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, trial, rules);
    sonde__report report = {
        .trial = trial, .catalogue = sonde_trial_catalogue(trial), .rules = rules};
    sonde_err err = SONDE_OK;

    sonde_trial_describe(trial, &report.info);
    SONDE__TRY_DONE(find_steps(&report, diag));
    SONDE__TRY_DONE(group_findings(&report, diag));
    SONDE__TRY_DONE(draw_page(&report, diag));
    err = sonde__whole_put(path, report.page.data, report.page.length, diag);
done:
    sonde_text_fini(&report.page);
    sonde__free(report.findings);
    sonde__free(report.groups);
    sonde__free(report.members);
    return err;
}
