/*
 * verdict.c - what the page begins with: is the run well, and when did what begin.
 */
#include "report/compose.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "report/curve.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <sonde/error.h>

typedef struct tally {
    size_t of[3];                   /* findings, by severity */
    size_t judged, silent, tensors; /* rules; the most tensors that one looked at */
} tally;

static tally count_all(const sonde__report *report)
{
    tally all = {0};

    for (size_t i = 0; i < report->count; i++) {
        all.of[report->findings[i].severity]++;
    }
    for (size_t i = 0; i < sonde_rules_count(report->rules); i++) {
        sonde_rule_account account;

        sonde_rules_account(report->rules, i, &account);
        all.judged += account.judged;
        all.silent += !account.judged;
        all.tensors = SONDE_MAX(all.tensors, account.tensors);
    }
    return all;
}

static void draw_number(sonde_text *page, size_t count, const char *one, const char *many)
{
    sonde__report_html_count(page, count);
    sonde_text_format(page, " %s", count == 1 ? one : many);
}

/* "12 rules judged up to 40 tensors over steps 0 to 99". */
static void draw_scope(sonde__report *report, const tally *all)
{
    sonde_text *page = &report->page;

    draw_number(page, all->judged, "rule", "rules");
    sonde_text_format(page, " judged");
    if (report->any_step) {
        sonde_text_format(page, " steps ");
        sonde__report_html_count(page, (uint64_t)report->begin);
        sonde_text_format(page, " to ");
        sonde__report_html_count(page, (uint64_t)report->end);
    }
    if (all->silent > 0) {
        sonde_text_format(page, "; <a href=\"#rules\">");
        draw_number(page, all->silent, "rule", "rules");
        sonde_text_format(page, " could not</a>, for want of evidence");
    }
    sonde_text_format(page, ".");
}

static void draw_sound(sonde__report *report, const tally *all)
{
    sonde_text *page = &report->page;
    const bool nothing = all->judged == 0;

    sonde_text_format(page, "<section class=\"verdict %s\"><h2>%s</h2><p>",
                      nothing ? "unknown" : "sound",
                      nothing ? "Nothing could be judged" : "Nothing is wrong");
    if (nothing) {
        sonde_text_format(
            page, "The run has nothing of what the rules need; <a href=\"#rules\">below"
                  "</a> stands what that is.");
    } else {
        draw_scope(report, all);
    }
    sonde_text_format(page, "</p>");
}

static void draw_wrong(sonde__report *report, const tally *all)
{
    static const char *const heads[] = {"The run is sound, with a remark",
                                        "The run will probably be poor",
                                        "The run is broken"};
    static const char *const classes[] = {"note", "warning", "error"};
    const int worst = all->of[SONDE_SEVERITY_ERROR] > 0     ? 2
                      : all->of[SONDE_SEVERITY_WARNING] > 0 ? 1
                                                            : 0;
    const sonde__report_group_kind *group = &report->groups[0];
    const sonde_finding *first = &report->findings[group->member[0]];
    sonde_text *page = &report->page;

    sonde_text_format(page, "<section class=\"verdict %s\"><h2>%s</h2><p class=\"lead\">",
                      classes[worst], heads[worst]);
    sonde_text_format(page, "Look first at step ");
    sonde__report_html_count(page, (uint64_t)SONDE_MAX(group->from, 0));
    if (first->tensor[0] != '\0') {
        sonde_text_format(page, ", <code>");
        sonde__report_html_text(page, first->tensor);
        sonde_text_format(page, "</code>");
    }
    sonde_text_format(page, ": <a href=\"#r0\">");
    sonde__report_html_text(page, group->name);
    sonde_text_format(page, "</a></p><p>");
    draw_number(page, report->count, "finding", "findings");
    sonde_text_format(page, " of ");
    draw_number(page, report->group_count, "rule", "rules");
    sonde_text_format(page, ". ");
    draw_scope(report, all);
    sonde_text_format(page, "</p>");
}

void sonde__report_verdict(sonde__report *report)
{
    const tally all = count_all(report);

    if (report->count == 0) {
        draw_sound(report, &all);
    } else {
        draw_wrong(report, &all);
    }
    if (report->info.status == SONDE_RUN_RUNNING) {
        sonde_text_format(&report->page,
                          "<p class=\"state\">The run is still being recorded: this "
                          "is how it stood.</p>");
    } else if (report->info.status == SONDE_RUN_CRASHED) {
        sonde_text_format(&report->page,
                          "<p class=\"state\">Its writer has gone without a word: "
                          "the run did not end by itself.</p>");
    }
    sonde_text_format(&report->page, "</section>\n");
}

/* --- when --------------------------------------------------------------------------- */

static double place(const sonde__report *report, int64_t step)
{
    return 100.0 * (double)(step - report->begin) /
           ((double)(report->end - report->begin) + 1.0);
}

/* A bar for each finding, the first few. */
static void draw_lane(sonde__report *report, const sonde__report_group_kind *group)
{
    sonde_text *page = &report->page;

    sonde_text_format(page, "<span class=\"lane\">");
    for (size_t i = 0; i < group->count && i < report->options.places; i++) {
        const sonde_finding *finding = &report->findings[group->member[i]];
        const double from = fmin(fmax(place(report, finding->step), 0.0), 100.0);
        const double to = fmin(fmax(place(report, finding->last_step + 1), from), 100.0);

        sonde_text_format(page, "<i class=\"%s\" style=\"left:%.1f%%;width:%.1f%%\"></i>",
                          sonde_severity_name(finding->severity), fmin(from, 99.5),
                          to - from);
    }
    sonde_text_format(page, "</span>");
}

void sonde__report_when(sonde__report *report)
{
    sonde_text *page = &report->page;

    if (report->group_count < 2 || !report->any_step) {
        return;
    }
    sonde_text_format(page, "<nav class=\"when\" aria-label=\"what began when\">\n");
    for (size_t i = 0; i < report->group_count; i++) {
        const sonde__report_group_kind *group = &report->groups[i];

        sonde_text_format(page, "<a href=\"#r%zu\"><span class=\"name\">", i);
        sonde__report_html_text(page, group->name);
        sonde_text_format(page, "</span>");
        draw_lane(report, group);
        sonde_text_format(page, "<span class=\"from\">step %lld</span></a>\n",
                          (long long)group->from);
    }
    sonde_text_format(page, "</nav>\n");
}

/* --- figures ------------------------------------------------------------------------ */

sonde_err sonde__report_figure(sonde__report *report, uint32_t id,
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
                                 .of = info->name,
                                 .threshold = same ? finding->threshold : (double)NAN,
                                 .from = finding != NULL ? finding->step : -1,
                                 .to = finding != NULL ? finding->last_step : -1};
    sonde_err err = SONDE_OK;

    if (tracks == NULL) {
        return sonde__fail_nomem(diag, "a curve");
    }
    lines[1].track = tracks + 1;
    err = sonde__report_track_read(report->trial, id, mode, &quantity, report->begin,
                                   report->end, SONDE__COLUMNS, &tracks[0], diag);
    if (err == SONDE_OK && loss) {
        err = sonde__report_track_read(report->trial, id, SONDE_MODE_EVAL, &quantity,
                                       report->begin, report->end, SONDE__COLUMNS,
                                       &tracks[1], diag);
        curve.line_count = err == SONDE_OK && tracks[1].steps > 0 ? 2 : 1;
    }
    if (err == SONDE_OK && loss && tracks[0].steps == 0) { /* modes are not told apart */
        err = sonde__report_track_read(report->trial, id, SONDE_MODE_GLOBAL, &quantity,
                                       report->begin, report->end, SONDE__COLUMNS,
                                       &tracks[0], diag);
        curve.line_count = 1;
    }
    if (err == SONDE_OK) {
        sonde__report_curve_draw(&report->page, &curve);
    }
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
    err = sonde__report_figure(report, id, NULL, diag);
    sonde_text_format(&report->page, "</section>\n");
    return err;
}
