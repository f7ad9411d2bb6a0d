/*
 * cards.c - a card for each rule that found something.
 */
#include "report/compose.h"
#include "base/macros.h"
#include "report/curve.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <sonde/error.h>

static void draw_place(sonde__report *report, const sonde_finding *finding)
{
    sonde_text *page = &report->page;
    const uint32_t id = sonde__report_tensor(report, finding);
    const sonde_tensor_info *info =
        id != SONDE_NO_TENSOR ? sonde_catalogue_info(report->catalogue, id) : NULL;

    if (finding->tensor[0] == '\0') {
        sonde_text_format(page, "the run as a whole");
        return;
    }
    sonde_text_format(page, "<code>");
    sonde__report_html_text(page, finding->tensor);
    sonde_text_format(page, "</code>");
    if (info != NULL) {
        char shape[128];

        sonde_text_format(page, " <small>%s ", sonde_role_name(info->role));
        sonde__report_html_text(
            page, sonde_shape_text(info->rank, info->shape, shape, sizeof shape));
        if (info->module[0] != '\0') {
            sonde_text_format(page, ", module ");
            sonde__report_html_text(page, info->module);
        }
        sonde_text_format(page, "</small>");
    }
}

static void draw_time(sonde__report *report, const sonde_finding *finding)
{
    sonde_text *page = &report->page;

    sonde_text_format(page, "step ");
    sonde__report_html_count(page, (uint64_t)SONDE_MAX(finding->step, 0));
    if (finding->mode != SONDE_MODE_GLOBAL && finding->mode_step != finding->step) {
        sonde_text_format(page, " <small>of %s: %lld</small>",
                          sonde_mode_name(finding->mode), (long long)finding->mode_step);
    }
    if (finding->steps > 1) {
        sonde_text_format(page, ", and at ");
        sonde__report_html_count(page, finding->steps - 1);
        sonde_text_format(page, " more, up to ");
        sonde__report_html_count(page, (uint64_t)SONDE_MAX(finding->last_step, 0));
    }
}

/* "percent_equal" as "percent equal". */
static void draw_words(sonde_text *page, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        const char letter[2] = {*p == '_' ? ' ' : *p, '\0'};

        sonde__report_html_text(page, letter);
    }
}

/* "1.2e-9 against a threshold of 1e-7: 83 times below". */
static void draw_size(sonde__report *report, const sonde_finding *finding)
{
    sonde_text *page = &report->page;
    const double value = finding->value, threshold = finding->threshold;
    const double times = value > threshold ? value / threshold : threshold / value;

    draw_words(page, finding->statistic);
    sonde_text_format(page, " ");
    sonde__report_html_number(page, value, 4);
    sonde_text_format(page, " <small>threshold ");
    sonde__report_html_number(page, threshold, 4);
    if (value > 0.0 && threshold > 0.0 && isfinite(times) && times >= 1.95) {
        sonde_text_format(page, ": ");
        sonde__report_html_number(page, floor(times + 0.5), 4);
        sonde_text_format(page, " times %s", value > threshold ? "above" : "below");
    }
    sonde_text_format(page, "</small>");
}

/* One row of the list of places, behind the first. */
static sonde_err draw_row(sonde__report *report, const sonde_finding *finding,
                          sonde_diag *diag)
{
    sonde_text *page = &report->page;
    const uint32_t id = sonde__report_tensor(report, finding);
    sonde_err err = SONDE_OK;

    sonde_text_format(page, "<tr><td>");
    draw_place(report, finding);
    sonde_text_format(page, "</td><td class=\"n\">");
    sonde__report_html_count(page, (uint64_t)SONDE_MAX(finding->step, 0));
    sonde_text_format(page, "</td><td class=\"n\">");
    sonde__report_html_count(page, finding->steps);
    sonde_text_format(page, "</td><td class=\"n\">");
    sonde__report_html_number(page, finding->value, 4);
    sonde_text_format(page, "</td><td>");
    if (id != SONDE_NO_TENSOR && report->any_step) {
        bool same = false;
        const sonde__report_quantity quantity = sonde__report_quantity_of(
            finding->statistic, sonde_catalogue_info(report->catalogue, id)->role, &same);
        sonde__report_track track;

        err = sonde__report_track_read(report->trial, id, SONDE_MODE_GLOBAL, &quantity,
                                       report->begin, report->end, 60, &track, diag);
        if (err == SONDE_OK) {
            sonde__report_spark_draw(page, &track);
        }
    }
    sonde_text_format(page, "</td></tr>\n");
    return err;
}

static sonde_err draw_others(sonde__report *report, const sonde__report_group_kind *group,
                             sonde_diag *diag)
{
    sonde_text *page = &report->page;
    const size_t shown = SONDE_MIN(group->count, report->options.places);
    sonde_err err = SONDE_OK;

    if (group->count < 2) {
        return SONDE_OK;
    }
    if (shown > 1) {
        sonde_text_format(page,
                          "<div class=\"wide\"><table><thead><tr><th>and in</th>"
                          "<th class=\"n\">from step</th><th class=\"n\">steps</th>"
                          "<th class=\"n\">value</th><th>over the run</th></tr></thead>"
                          "<tbody>\n");
    }
    for (size_t i = 1; err == SONDE_OK && i < shown; i++) {
        err = draw_row(report, &report->findings[group->member[i]], diag);
    }
    if (shown > 1) {
        sonde_text_format(page, "</tbody></table></div>\n");
    }
    if (group->count > shown) {
        sonde_text_format(page, "<p class=\"more\">and ");
        sonde__report_html_count(page, group->count - shown);
        sonde_text_format(page, " more, up to step ");
        sonde__report_html_count(page, (uint64_t)SONDE_MAX(group->to, 0));
        sonde_text_format(page, "</p>\n");
    }
    return err;
}

static void draw_what(sonde__report *report, const sonde__report_group_kind *group,
                      const sonde_finding *finding)
{
    sonde_text *page = &report->page;

    if (group->rule != NULL) {
        sonde_text_format(page, "<p class=\"summary\">");
        sonde__report_html_text(page, group->rule->summary);
        sonde_text_format(page, "</p>\n");
    }
    sonde_text_format(page, "<dl class=\"facts\"><div><dt>Where</dt><dd>");
    draw_place(report, finding);
    sonde_text_format(page, "</dd></div><div><dt>When</dt><dd>");
    draw_time(report, finding);
    sonde_text_format(page, "</dd></div><div><dt>How bad</dt><dd>");
    draw_size(report, finding);
    sonde_text_format(page, "</dd></div></dl>\n<p class=\"message\">");
    sonde__report_html_text(page, finding->message);
    sonde_text_format(page, "</p>\n");
}

static sonde_err draw_card(sonde__report *report, size_t i, sonde_diag *diag)
{
    const sonde__report_group_kind *group = &report->groups[i];
    const sonde_finding *finding = &report->findings[group->member[0]];
    const uint32_t tensor = sonde__report_tensor(report, finding);
    const uint32_t id = tensor != SONDE_NO_TENSOR ? tensor : sonde__report_loss(report);
    const char *severity = sonde_severity_name(group->worst);
    sonde_text *page = &report->page;
    sonde_err err = SONDE_OK;

    sonde_text_format(
        page,
        "<article class=\"card %s\" id=\"r%zu\"><h3><span class=\"badge %s\">%s"
        "</span> ",
        severity, i, severity, severity);
    sonde__report_html_text(page, group->name);
    sonde_text_format(page, "</h3>\n");
    draw_what(report, group, finding);
    if (id != SONDE_NO_TENSOR && report->any_step) {
        err = sonde__report_figure(report, id, finding, diag);
    }
    sonde_text_format(page, "<p class=\"advice\"><b>What to try</b> ");
    sonde__report_html_text(page, finding->advice);
    sonde_text_format(page, "</p>\n");
    err = err == SONDE_OK ? draw_others(report, group, diag) : err;
    if (group->rule != NULL) {
        sonde_text_format(page, "<details><summary>When this rule fires</summary><p>");
        sonde__report_html_text(page, group->rule->condition);
        sonde_text_format(page, "</p></details>\n");
    }
    sonde_text_format(page, "</article>\n");
    return err;
}

sonde_err sonde__report_cards(sonde__report *report, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (report->group_count > 0) {
        sonde_text_format(&report->page, "<h2 class=\"part\">What was found</h2>\n");
    }
    for (size_t i = 0; err == SONDE_OK && i < report->group_count; i++) {
        err = draw_card(report, i, diag);
    }
    return err;
}
