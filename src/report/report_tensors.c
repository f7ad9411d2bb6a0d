/*
 * tensors.c - the tensors of the run, a line each.
 */
#include "report/compose.h"
#include "base/fail.h"
#include "base/memory.h"
#include "report/curve.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <sonde/error.h>

enum { SPARK_COLUMNS = 60 };

typedef struct table {
    size_t *findings; /* by id: how many it has */
    bool *shown;      /* by id */
    uint64_t *hashes; /* of the lines drawn */
    size_t drawn;
    size_t known; /* left out, since a line like it is there */
} table;

/* How many findings each tensor has; by id. */
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

/* A tensor of its own, or another name of one that has findings by that name. */
static bool is_candidate(const sonde__report *report, const size_t *findings, uint32_t id)
{
    return sonde_catalogue_info(report->catalogue, id)->same_as == id || findings[id] > 0;
}

/* Which are shown, in the run's order: those with findings before all others. */
static size_t choose(const sonde__report *report, const size_t *findings, bool *shown)
{
    const uint32_t count = sonde_catalogue_count(report->catalogue);
    size_t chosen = 0;

    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t id = 0; id < count && chosen < report->options.tensors; id++) {
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

    sonde_text_format(page, "<td><code>");
    sonde__report_html_text(page, info->name);
    sonde_text_format(page, "</code></td><td>%s</td><td class=\"n\">",
                      info->role == SONDE_ROLE_ACTIVATION_GRADIENT
                          ? "gradient"
                          : sonde_role_name(info->role));
    sonde__report_html_text(
        page, sonde_shape_text(info->rank, info->shape, shape, sizeof shape));
    sonde_text_format(page, "</td>");
}

/* FNV-1a over what a line shows: equal for names of the same values. */
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

/* Values that pass from one place to the next go by several names; one is enough. */
static bool is_known(table *of, const sonde_tensor_info *info,
                     const sonde__report_track *track)
{
    const uint64_t hash = hash_of(track);
    const bool passes =
        info->role == SONDE_ROLE_INPUT || info->role == SONDE_ROLE_OUTPUT ||
        info->role == SONDE_ROLE_ACTIVATION || info->role == SONDE_ROLE_UPDATE;

    for (size_t i = 0; passes && i < of->drawn; i++) {
        if (of->hashes[i] == hash) {
            return true;
        }
    }
    of->hashes[of->drawn++] = hash;
    return false;
}

static void draw_cells(sonde_text *page, const sonde__report_track *track)
{
    sonde_text_format(page, "<td>");
    sonde__report_spark_draw(page, track);
    sonde_text_format(page, "</td><td class=\"n\">");
    if (track->low <= track->high) {
        sonde__report_html_number(page, track->low, 3);
        sonde_text_format(page, " … ");
        sonde__report_html_number(page, track->high, 3);
    }
    sonde_text_format(page, "</td><td class=\"n\">");
    if (track->bad > 0) {
        sonde_text_format(page, "<em>NaN, ∞ at ");
        sonde__report_html_count(page, track->bad);
        sonde_text_format(page, "</em>");
    } else if (isfinite(track->last)) {
        sonde__report_html_number(page, track->last, 3);
    }
    sonde_text_format(page, "</td></tr>\n");
}

static sonde_err draw_row(sonde__report *report, table *of, uint32_t id, sonde_diag *diag)
{
    const sonde_tensor_info *info = sonde_catalogue_info(report->catalogue, id);
    const sonde__report_quantity quantity = sonde__report_quantity_usual(info->role);
    sonde__report_track track;
    const sonde_err err =
        sonde__report_track_read(report->trial, id, SONDE_MODE_GLOBAL, &quantity,
                                 report->begin, report->end, SPARK_COLUMNS, &track, diag);

    if (err != SONDE_OK || (track.steps == 0 && of->findings[id] == 0)) {
        return err;
    }
    if (is_known(of, info, &track) && of->findings[id] == 0) {
        of->known++;
        return SONDE_OK;
    }
    sonde_text_format(&report->page, "<tr%s>",
                      of->findings[id] > 0 ? " class=\"found\"" : "");
    draw_name(report, info);
    draw_cells(&report->page, &track);
    return SONDE_OK;
}

static sonde_err draw_table(sonde__report *report, table *of, sonde_diag *diag)
{
    sonde_text *page = &report->page;
    sonde_err err = SONDE_OK;

    sonde_text_format(
        page, "<div class=\"wide\"><table><thead><tr><th>tensor</th><th>role</th>"
              "<th class=\"n\">shape</th><th>over the run</th>"
              "<th class=\"n\">from … to</th><th class=\"n\">last</th></tr></thead>"
              "<tbody>\n");
    for (uint32_t id = 0;
         err == SONDE_OK && id < sonde_catalogue_count(report->catalogue); id++) {
        if (of->shown[id]) {
            err = draw_row(report, of, id, diag);
        }
    }
    sonde_text_format(page, "</tbody></table></div>\n");
    return err;
}

static void draw_rest(sonde__report *report, const table *of, size_t chosen)
{
    sonde_text *page = &report->page;
    size_t all = 0;

    for (uint32_t id = 0; id < sonde_catalogue_count(report->catalogue); id++) {
        all += is_candidate(report, of->findings, id);
    }
    if (all > chosen) {
        sonde_text_format(page, "<p class=\"more\">and ");
        sonde__report_html_count(page, all - chosen);
        sonde_text_format(page, " more without findings</p>\n");
    }
    if (of->known > 0) {
        sonde_text_format(page, "<p class=\"more\">and ");
        sonde__report_html_count(page, of->known);
        sonde_text_format(page, " that %s the same values as one above</p>\n",
                          of->known == 1 ? "has" : "have");
    }
}

sonde_err sonde__report_tensors(sonde__report *report, sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(report->catalogue);
    table of = {.findings = count_findings(report),
                .shown = sonde__calloc(count + 1, sizeof *of.shown),
                .hashes = sonde__calloc(count + 1, sizeof *of.hashes)};
    sonde_err err = SONDE_OK;

    if (of.findings == NULL || of.shown == NULL || of.hashes == NULL) {
        err = sonde__fail_nomem(diag, "the tensors of a report");
    } else if (report->any_step && count > 0) {
        const size_t chosen = choose(report, of.findings, of.shown);

        sonde_text_format(
            &report->page,
            "<section class=\"card\"><h2>The tensors</h2><p class=\"summary\">The "
            "root mean square of each, of losses and numbers the value itself.</p>\n");
        err = draw_table(report, &of, diag);
        draw_rest(report, &of, chosen);
        sonde_text_format(&report->page, "</section>\n");
    }
    sonde__free(of.findings);
    sonde__free(of.shown);
    sonde__free(of.hashes);
    return err;
}
