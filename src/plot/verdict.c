/*
 * verdict.c - the first half of the page: the verdict, when each finding began, the loss,
 * and a card for each rule with findings.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "plot/report.h"

#include <sonde/error.h>

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* A step as a count. */
static uint64_t step_count(int64_t step)
{
    return (uint64_t)SONDE_MAX(step, 0);
}

/* "12 rules judged steps 0 to 99; 3 rules had no data (no labels)." */
static void draw_scope(sonde__report *report, const sonde_verdict *verdict)
{
    sonde_text *page = &report->page;

    sonde__report_put(page, "%c judged", verdict->rules, "rule");
    if (verdict->steps > 0) {
        sonde__report_put(page, " steps %n to %n", step_count(verdict->first_step),
                          step_count(verdict->last_step));
    }
    if (verdict->lacking > 0) {
        sonde__report_put(page, "; <a href=\"#rules\">%c had no data</a>",
                          verdict->lacking, "rule");
    }
    if (verdict->lacking > 0 && verdict->lacked[0] != '\0') {
        sonde__report_put(page, " (%e)", verdict->lacked);
    }
    sonde_text_add(page, ".");
    if (verdict->free_losses[0] != '\0') {
        sonde__report_put(page, " Losses need not fall (%e).", verdict->free_losses);
    }
}

/* The earliest cause, and what follows from it. */
static void draw_lead(sonde__report *report, const sonde_verdict *verdict)
{
    const sonde_finding *first = verdict->headline;
    sonde_text *page = &report->page;
    char when[96], where[1024];

    (void)sonde_finding_when(first, when, sizeof when);
    sonde__report_put(page, "<p class=\"lead\">Look first at %e", when);
    if (first->tensor[0] != '\0') {
        sonde__report_put(page, ", <code>%e</code>", first->tensor);
    }
    sonde__report_put(page, "%e", sonde_finding_where(first, where, sizeof where));
    sonde__report_put(page, ": <a href=\"#r0\">%e</a>", first->rule);
    if (verdict->after > 0) {
        sonde__report_put(page, "; %c follow%s from it", verdict->after, "more finding",
                          verdict->after == 1 ? "s" : "");
    }
    sonde_text_add(page, "</p>");
}

static void draw_verdict(sonde__report *report, const sonde_verdict *verdict)
{
    static const char *const classes[] = {"unknown", "sound", "warning", "error"};
    static const char *const heads[] = {"Not judged", "Nothing found", "Doubtful",
                                        "Wrong"};
    sonde_text *page = &report->page;

    sonde__report_put(page, "<section class=\"verdict %s\"><h2>%s</h2>",
                      classes[verdict->word], heads[verdict->word]);
    if (verdict->headline != NULL) {
        draw_lead(report, verdict);
    }
    sonde_text_add(page, "<p>");
    if (verdict->word == SONDE_VERDICT_NOT_JUDGED) {
        sonde_text_add(
            page,
            "The run has no data that a rule needs; <a href=\"#rules\">the list of rules"
            "</a> says which.");
    } else {
        if (report->count > 0) {
            sonde__report_put(page, "%c of %c. ", report->count, "finding",
                              report->group_count, "rule");
        }
        draw_scope(report, verdict);
    }
    sonde_text_add(page, "</p>");
}

void sonde__report_verdict(sonde__report *report)
{
    const sonde_verdict verdict = sonde_rules_verdict(report->rules);

    draw_verdict(report, &verdict);
    if (report->info.status != SONDE_RUN_ENDED) {
        const bool foreign = report->info.foreign;

        sonde__report_put(&report->page, "<p class=\"state\">%s</p>",
                          report->info.status == SONDE_RUN_RUNNING
                              ? "The run is still being recorded; this page shows its "
                                "state so far."
                          : foreign ? "No end was written, and no step for long: the "
                                      "program has gone, or writes very rarely."
                                    : "The recording stopped without an end: the program "
                                      "crashed or was killed.");
    }
    sonde_text_add(&report->page, "</section>\n");
}

/* --- when --------------------------------------------------------------------------- */

static double place(const sonde__report *report, int64_t step)
{
    return 100.0 * (double)(step - report->begin) /
           ((double)(report->end - report->begin) + 1.0);
}

/* A bar for each finding, the first few. */
static void draw_lane(sonde__report *report, const sonde__report_group *group)
{
    sonde_text *page = &report->page;

    sonde_text_format(page, "<span class=\"lane\">");
    for (size_t i = 0; i < group->count && i < SONDE__REPORT_PLACES; i++) {
        const sonde_finding *finding = &report->findings[group->member[i]];
        const double left = fmin(fmax(place(report, finding->step), 0.0), 100.0);
        const double right =
            fmin(fmax(place(report, finding->last_step + 1), left), 100.0);

        sonde_text_format(page, "<i class=\"%s\" style=\"left:%.1f%%;width:%.1f%%\"></i>",
                          sonde_severity_name(finding->severity), fmin(left, 99.5),
                          right - left);
    }
    sonde_text_format(page, "</span>");
}

void sonde__report_when(sonde__report *report)
{
    sonde_text *page = &report->page;

    if (report->group_count < 2 || !report->any_step) {
        return;
    }
    sonde_text_format(page,
                      "<nav class=\"when\" aria-label=\"when each finding began\">\n");
    for (size_t i = 0; i < report->group_count; i++) {
        const sonde__report_group *group = &report->groups[i];

        sonde__report_put(page, "<a href=\"#r%d\"><span class=\"name\">%e</span>",
                          (int64_t)i, group->name);
        draw_lane(report, group);
        sonde__report_put(page, "<span class=\"from\">step %d</span></a>\n",
                          group->first);
    }
    sonde_text_format(page, "</nav>\n");
}

/* --- figures ------------------------------------------------------------------------ */

/* A figure of one tensor with a finding's marks (NULL: none). A loss has a line for
 * training and one for evaluation. */
static sonde_err draw_figure(sonde__report *report, uint32_t id,
                             const sonde_finding *finding, sonde_diag *diag)
{
    const sonde_tensor_info *info = sonde_catalogue_info(report->catalogue, id);
    const bool loss = info->role == SONDE_ROLE_LOSS;
    const sonde_mode mode = loss ? SONDE_MODE_TRAIN : SONDE_MODE_GLOBAL;
    bool same = false;
    const sonde__report_quantity quantity =
        finding != NULL ? sonde__report_quantity_of(finding->statistic, info->role, &same)
                        : sonde__report_quantity_usual(info->role);
    sonde__report_track *tracks = sonde__malloc(2 * sizeof *tracks);
    sonde__report_trace lines[2] = {{tracks, "training"}, {NULL, "evaluation"}};
    sonde__report_curve curve = {.lines = lines,
                                 .line_count = 1,
                                 .label = loss ? "value" : quantity.label,
                                 .tensor = info->name,
                                 .threshold = same ? finding->threshold : (double)NAN,
                                 .first = finding != NULL ? finding->step : -1,
                                 .last = finding != NULL ? finding->last_step : -1};
    sonde_err err = SONDE_OK;

    if (tracks == NULL) {
        return sonde__fail_nomem(diag, "a curve");
    }
    lines[1].track = tracks + 1;
    SONDE__TRY_DONE(sonde__report_track_read(report->trial, id, mode, &quantity,
                                             report->begin, report->end, SONDE__COLUMNS,
                                             &tracks[0], diag));
    if (loss) {
        SONDE__TRY_DONE(sonde__report_track_read(report->trial, id, SONDE_MODE_EVAL,
                                                 &quantity, report->begin, report->end,
                                                 SONDE__COLUMNS, &tracks[1], diag));
        curve.line_count = tracks[1].steps > 0 ? 2 : 1;
    }
    if (loss && tracks[0].steps == 0) { /* the run does not record modes */
        SONDE__TRY_DONE(sonde__report_track_read(report->trial, id, SONDE_MODE_GLOBAL,
                                                 &quantity, report->begin, report->end,
                                                 SONDE__COLUMNS, &tracks[0], diag));
        curve.line_count = 1;
    }
    sonde__report_curve_draw(&report->page, &curve);
done:
    sonde__free(tracks);
    return err;
}

sonde_err sonde__report_loss_curve(sonde__report *report, sonde_diag *diag)
{
    const uint32_t id = sonde__report_loss(report);
    sonde_err err = SONDE_OK;

    if (id == SONDE_NO_TENSOR || !report->any_step) {
        return SONDE_OK;
    }
    sonde_text_format(&report->page, "<section class=\"card\"><h2>The loss</h2>\n");
    err = draw_figure(report, id, NULL, diag);
    sonde_text_format(&report->page, "</section>\n");
    return err;
}

static void draw_where(sonde__report *report, const sonde_finding *finding)
{
    sonde_text *page = &report->page;
    const uint32_t id = sonde__report_tensor(report, finding);
    const sonde_tensor_info *info =
        id != SONDE_NO_TENSOR ? sonde_catalogue_info(report->catalogue, id) : NULL;
    char where[1024];

    (void)sonde_finding_where(finding, where, sizeof where);
    if (finding->tensor[0] == '\0') {
        sonde__report_put(page, "the whole run%e", where);
        return;
    }
    sonde__report_put(page, "<code>%e</code>%e", finding->tensor, where);
    if (info != NULL) {
        char shape[128];

        (void)sonde_shape_text(info->rank, info->shape, shape, sizeof shape);
        sonde__report_put(page, " <small>%s %e%s%e</small>", sonde_role_name(info->role),
                          shape, info->module[0] != '\0' ? ", module " : "",
                          info->module);
    }
}

static void draw_time(sonde__report *report, const sonde_finding *finding)
{
    sonde_text *page = &report->page;

    char when[96];

    (void)sonde_finding_when(finding, when, sizeof when);
    sonde__report_put(page, "%e", when);
    if (finding->steps > 1) {
        sonde__report_put(page, " and %n more, up to step %n", finding->steps - 1,
                          step_count(finding->last_step));
    }
}

/* "percent_equal" as "percent equal". */
static void draw_words(sonde_text *page, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        const char letter[2] = {*p == '_' ? ' ' : *p, '\0'};

        sonde__report_put(page, "%e", letter);
    }
}

/* "1.2e-9 against a threshold of 1e-7: 83 times below". */
static void draw_size(sonde__report *report, const sonde_finding *finding)
{
    sonde_text *page = &report->page;
    const double value = finding->value, threshold = finding->threshold;
    const double times = value > threshold ? value / threshold : threshold / value;

    draw_words(page, finding->statistic);
    sonde__report_put(page, " %g <small>threshold %g", value, threshold);
    if (value > 0.0 && threshold > 0.0 && isfinite(times) && times >= 1.95) {
        sonde__report_put(page, ": %g times %s", floor(times + 0.5),
                          value > threshold ? "above" : "below");
    }
    sonde_text_add(page, "</small>");
}

/* One row of the list of places after the first. */
static sonde_err draw_row(sonde__report *report, const sonde_finding *finding,
                          sonde_diag *diag)
{
    sonde_text *page = &report->page;
    const uint32_t id = sonde__report_tensor(report, finding);

    sonde_text_format(page, "<tr><td>");
    draw_where(report, finding);
    sonde__report_put(page,
                      "</td><td class=\"n\">%n</td><td class=\"n\">%n</td>"
                      "<td class=\"n\">%g</td><td>",
                      step_count(finding->step), finding->steps, finding->value);
    if (id != SONDE_NO_TENSOR && report->any_step) {
        bool same = false;
        const sonde__report_quantity quantity = sonde__report_quantity_of(
            finding->statistic, sonde_catalogue_info(report->catalogue, id)->role, &same);
        sonde__report_track track;

        SONDE__TRY(sonde__report_track_read(report->trial, id, SONDE_MODE_GLOBAL,
                                            &quantity, report->begin, report->end, 60,
                                            &track, diag));
        sonde__report_spark_draw(page, &track);
    }
    sonde_text_format(page, "</td></tr>\n");
    return SONDE_OK;
}

static sonde_err draw_others(sonde__report *report, const sonde__report_group *group,
                             sonde_diag *diag)
{
    sonde_text *page = &report->page;
    const size_t most = group->because_of != 0 ? 1 : SONDE__REPORT_PLACES;
    const size_t shown = SONDE_MIN(group->count, most);

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
    for (size_t i = 1; i < shown; i++) {
        SONDE__TRY(draw_row(report, &report->findings[group->member[i]], diag));
    }
    if (shown > 1) {
        sonde_text_format(page, "</tbody></table></div>\n");
    }
    if (group->count > shown) {
        sonde__report_put(page, "<p class=\"more\">and %n more, up to step %n</p>\n",
                          group->count - shown, step_count(group->last));
    }
    return SONDE_OK;
}

/* "Because of: NonFinite in relu3_output_0", with a link to that card. */
static void draw_cause(sonde__report *report, const sonde_finding *finding)
{
    sonde_text *page = &report->page;

    for (size_t i = 0; finding->because_of != 0 && i < report->group_count; i++) {
        const sonde__report_group *group = &report->groups[i];

        for (size_t k = 0; k < group->count; k++) {
            const sonde_finding *cause = &report->findings[group->member[k]];

            if (cause->id != finding->because_of) {
                continue;
            }
            sonde__report_put(page,
                              "<div><dt>Because of</dt><dd><a href=\"#r%d\">%e</a> in ",
                              (int64_t)i, cause->rule);
            draw_where(report, cause);
            sonde_text_add(page, "</dd></div>");
        }
    }
}

static void draw_what(sonde__report *report, const sonde__report_group *group,
                      const sonde_finding *finding)
{
    sonde_text *page = &report->page;

    if (group->rule != NULL) {
        sonde__report_put(page, "<p class=\"summary\">%e</p>\n", group->rule->summary);
    }
    sonde_text_format(page, "<dl class=\"facts\"><div><dt>Where</dt><dd>");
    draw_where(report, finding);
    sonde_text_format(page, "</dd></div><div><dt>When</dt><dd>");
    draw_time(report, finding);
    sonde_text_format(page, "</dd></div><div><dt>How bad</dt><dd>");
    draw_size(report, finding);
    sonde_text_format(page, "</dd></div>");
    draw_cause(report, finding);
    sonde__report_put(page, "</dl>\n<p class=\"message\">%e", finding->message);
    if (finding->raised_step > 0) {
        sonde__report_put(page, " It was a %s until step %d.",
                          sonde_severity_name(finding->raised_from),
                          finding->raised_step);
    }
    if (finding->resolved_step > 0) {
        sonde__report_put(page, " It is resolved since step %d.", finding->resolved_step);
    }
    sonde_text_add(page, "</p>\n");
}

static sonde_err draw_card(sonde__report *report, size_t i, sonde_diag *diag)
{
    const sonde__report_group *group = &report->groups[i];
    const sonde_finding *finding = &report->findings[group->member[0]];
    const uint32_t tensor = sonde__report_tensor(report, finding);
    const uint32_t id = tensor != SONDE_NO_TENSOR ? tensor : sonde__report_loss(report);
    const char *severity = sonde_severity_name(group->worst);
    sonde_text *page = &report->page;

    sonde__report_put(page,
                      "<article class=\"card %s\" id=\"r%d\"><h3><span class=\"badge "
                      "%s\">%s</span> %e</h3>\n",
                      severity, (int64_t)i, severity, severity, group->name);
    draw_what(report, group, finding);
    if (id != SONDE_NO_TENSOR && report->any_step) {
        SONDE__TRY(draw_figure(report, id, finding, diag));
    }
    sonde__report_put(page, "<p class=\"advice\"><b>What to try</b> %e</p>\n",
                      finding->advice);
    SONDE__TRY(draw_others(report, group, diag));
    if (group->rule != NULL) {
        sonde__report_put(
            page, "<details><summary>When this rule fires</summary><p>%e</p></details>\n",
            group->rule->condition);
    }
    sonde_text_format(page, "</article>\n");
    return SONDE_OK;
}

sonde_err sonde__report_cards(sonde__report *report, sonde_diag *diag)
{
    if (report->group_count > 0) {
        sonde_text_format(&report->page, "<h2 class=\"part\">What was found</h2>\n");
    }
    for (size_t i = 0; i < report->group_count; i++) {
        SONDE__TRY(draw_card(report, i, diag));
    }
    return SONDE_OK;
}
