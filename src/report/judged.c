/*
 * judged.c - what the page ends with: which rules judged, and what the run was.
 */
#include "report/compose.h"
#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* --- rules -------------------------------------------------------------------------- */

static void draw_rule(sonde__report *report, const sonde_rule_account *account)
{
    sonde_text *page = &report->page;

    sonde_text_format(page, "<li><b>");
    sonde__report_html_text(page, account->rule->name);
    sonde_text_format(page, "</b> <span>");
    if (!account->judged) {
        sonde__report_html_text(page, account->lacked);
    } else {
        sonde__report_html_count(page, account->tensors);
        sonde_text_format(page, " %s at ", account->tensors == 1 ? "tensor" : "tensors");
        sonde__report_html_count(page, account->steps);
        sonde_text_format(page, " %s", account->steps == 1 ? "step" : "steps");
    }
    sonde_text_format(page, "</span>");
    if (account->findings > 0) {
        sonde_text_format(page, " <em>");
        sonde__report_html_count(page, account->findings);
        sonde_text_format(page, " %s</em>",
                          account->findings == 1 ? "finding" : "findings");
    }
    sonde_text_format(page, "</li>\n");
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

void sonde__report_judged(sonde__report *report)
{
    sonde_text_format(&report->page,
                      "<section class=\"card\" id=\"rules\"><h2>The rules</h2>\n");
    draw_rules(report, true, "Judged");
    draw_rules(report, false, "Could not judge: their silence means nothing");
    sonde_text_format(&report->page, "</section>\n");
}

/* --- the run ------------------------------------------------------------------------ */

static void draw_fact(sonde__report *report, const char *name, const char *text)
{
    if (text[0] != '\0') {
        sonde_text_format(&report->page, "<div><dt>%s</dt><dd>", name);
        sonde__report_html_text(&report->page, text);
        sonde_text_format(&report->page, "</dd></div>\n");
    }
}

static void draw_count(sonde__report *report, const char *name, uint64_t count)
{
    if (count > 0) {
        sonde_text_format(&report->page, "<div><dt>%s</dt><dd>", name);
        sonde__report_html_count(&report->page, count);
        sonde_text_format(&report->page, "</dd></div>\n");
    }
}

/* "2026-01-31T12:00:00.000000Z" as "2026-01-31 12:00:00 UTC". */
static void draw_begin(sonde__report *report)
{
    const char *created = report->info.created;
    char text[64];

    if (strlen(created) >= 19 && created[10] == 'T') {
        (void)snprintf(text, sizeof text, "%.10s %.8s UTC", created, created + 11);
        draw_fact(report, "Begun", text);
    } else {
        draw_fact(report, "Begun", created);
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
        (void)snprintf(text, sizeof text, "%.1f s", seconds);
    } else {
        const long long whole = (long long)seconds;

        (void)snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600,
                       whole / 60 % 60, whole % 60);
    }
    draw_fact(report, "Duration", text);
}

static void draw_end(sonde__report *report)
{
    static const char *const states[] = {"still running", "ended", "its writer has gone"};
    const sonde_run_info *info = &report->info;

    draw_fact(report, "State",
              info->end_reason[0] != '\0' ? info->end_reason : states[info->status]);
    draw_fact(report, "It said", info->end_text);
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

void sonde__report_facts(sonde__report *report)
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
