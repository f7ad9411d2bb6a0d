/*
 * report.c - the page as a whole: what the parts share, its frame, its file.
 */
#include "base/whole_file.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "report/compose.h"

#include <sonde/error.h>
#include <sonde/report.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 8, TENSORS = 200 };

/* --- findings by rule --------------------------------------------------------------- */

static sonde__report_group_kind *group_of(sonde__report *report,
                                          const sonde_finding *finding)
{
    for (size_t i = 0; i < report->group_count; i++) {
        if (strcmp(report->groups[i].name, finding->rule) == 0) {
            return &report->groups[i];
        }
    }
    report->groups[report->group_count] =
        (sonde__report_group_kind){.name = finding->rule,
                                   .worst = finding->severity,
                                   .from = finding->step,
                                   .to = finding->last_step};
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

static int by_weight(const void *a, const void *b)
{
    const sonde__report_group_kind *x = a, *y = b;

    if (x->worst != y->worst) {
        return x->worst > y->worst ? -1 : 1;
    }
    if (x->from != y->from) {
        return x->from < y->from ? -1 : 1;
    }
    if (x->count != y->count) { /* who names one tensor says more than who names all */
        return x->count < y->count ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

/* A value is better known as what a module puts out than as what the next one takes in. */
static bool is_input(const sonde__report *report, const sonde_finding *finding)
{
    const uint32_t id = sonde__report_tensor(report, finding);
    const sonde_tensor_info *info =
        id != SONDE_NO_TENSOR ? sonde_catalogue_info(report->catalogue, id) : NULL;

    return info != NULL && info->role == SONDE_ROLE_INPUT && info->module[0] != '\0';
}

/* The finding that a card begins with goes to the front: the first in time. */
static void choose_lead(const sonde__report *report,
                        const sonde__report_group_kind *group)
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

sonde_err sonde__report_group(sonde__report *report, sonde_diag *diag)
{
    size_t at = 0;

    report->findings = sonde_rules_findings(report->rules, &report->count);
    report->groups = sonde__calloc(report->count + 1, sizeof *report->groups);
    report->members = sonde__calloc(report->count + 1, sizeof *report->members);
    if (report->groups == NULL || report->members == NULL) {
        return sonde__fail_nomem(diag, "a report");
    }
    for (size_t i = 0; i < report->count; i++) {
        const sonde_finding *finding = &report->findings[i];
        sonde__report_group_kind *group = group_of(report, finding);

        group->count++;
        group->worst = SONDE_MAX(group->worst, finding->severity);
        group->from = SONDE_MIN(group->from, finding->step);
        group->to = SONDE_MAX(group->to, finding->last_step);
    }
    qsort(report->groups, report->group_count, sizeof *report->groups, by_weight);
    for (size_t i = 0; i < report->group_count; i++) {
        sonde__report_group_kind *group = &report->groups[i];

        group->rule = rule_of(report->rules, group->name);
        group->member = report->members + at;
        for (size_t k = 0; k < report->count; k++) {
            if (strcmp(report->findings[k].rule, group->name) == 0) {
                report->members[at++] = k;
            }
        }
        choose_lead(report, group);
    }
    return SONDE_OK;
}

uint32_t sonde__report_tensor(const sonde__report *report, const sonde_finding *finding)
{
    uint32_t id = SONDE_NO_TENSOR;

    if (finding->tensor[0] == '\0' ||
        sonde_catalogue_find(report->catalogue, finding->tensor, &id, NULL) != SONDE_OK) {
        return SONDE_NO_TENSOR;
    }
    return id;
}

uint32_t sonde__report_loss(const sonde__report *report)
{
    for (uint32_t id = 0; id < sonde_catalogue_count(report->catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(report->catalogue, id);

        if (info->role == SONDE_ROLE_LOSS && info->same_as == id) {
            return id;
        }
    }
    return SONDE_NO_TENSOR;
}

/* --- the frame ---------------------------------------------------------------------- */

static const char *name_of(const sonde__report *report)
{
    const char *slash = NULL;

    if (report->options.title != NULL) {
        return report->options.title;
    }
    if (report->info.model[0] != '\0') {
        return report->info.model;
    }
    slash = strrchr(report->info.path, '/');
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
    sonde__report_html_text(page, name_of(report));
    sonde_text_format(page, " – Sonde</title>\n<style>\n");
    for (size_t i = 0; sonde__report_style[i] != NULL; i++) {
        sonde_text_add(page, sonde__report_style[i]);
    }
    sonde_text_format(page,
                      "</style>\n</head>\n<body>\n<header><p class=\"kind\">Sonde report"
                      "</p><h1>");
    sonde__report_html_text(page, name_of(report));
    sonde_text_format(page, "</h1></header>\n<main>\n");
}

static sonde_err draw(sonde__report *report, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    draw_head(report);
    sonde__report_verdict(report);
    sonde__report_when(report);
    err = sonde__report_loss_curve(report, diag);
    err = err == SONDE_OK ? sonde__report_cards(report, diag) : err;
    err = err == SONDE_OK ? sonde__report_tensors(report, diag) : err;
    if (err == SONDE_OK) {
        sonde__report_judged(report);
        sonde__report_facts(report);
        sonde_text_format(&report->page, "</main>\n</body>\n</html>\n");
    }
    return err == SONDE_OK && report->page.failed ? sonde__fail_nomem(diag, "a report")
                                                  : err;
}

static void find_steps(sonde__report *report)
{
    size_t count = 0;
    const int64_t *steps =
        sonde_trial_steps(report->trial, SONDE_MODE_GLOBAL, true, &count);

    report->any_step = count > 0;
    report->begin = count > 0 ? steps[0] : 0;
    report->end = count > 0 ? steps[count - 1] : 0;
}

sonde_err sonde_report_write(const char *path, sonde_trial *trial, sonde_rules *rules,
                             const sonde_report_options *options, sonde_diag *diag)
{
    sonde__report report = {.trial = trial,
                            .catalogue = sonde_trial_catalogue(trial),
                            .rules = rules,
                            .options =
                                options != NULL ? *options : (sonde_report_options){0}};
    sonde_err err = SONDE_OK;

    report.options.places = report.options.places > 0 ? report.options.places : PLACES;
    report.options.tensors =
        report.options.tensors > 0 ? report.options.tensors : TENSORS;
    sonde_trial_describe(trial, &report.info);
    find_steps(&report);
    err = sonde__report_group(&report, diag);
    err = err == SONDE_OK ? draw(&report, diag) : err;
    err = err == SONDE_OK
              ? sonde__whole_put(path, report.page.data, report.page.length, diag)
              : err;
    sonde_text_fini(&report.page);
    sonde__free(report.groups);
    sonde__free(report.members);
    return err;
}
