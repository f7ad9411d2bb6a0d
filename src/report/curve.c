/*
 * curve.c - see curve.h.
 *
 * The drawing is 1000 x 100 units, stretched by the browser; lines keep their width
 * (vector-effect). Labels are spans placed by percent, so they keep their size.
 *
 *     +-- frame ---------------------------+
 *     | ys | area: svg, tags over it       |
 *     |    +-------------------------------|
 *     |    | xs                            |
 *     +------------------------------------+
 */
#include "report/curve.h"
#include "base/macros.h"

#include "plot/axes.h"
#include "plot/ticks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#define WIDE 1000.0
#define HIGH 100.0
#define LOG_FROM 50.0 /* ratio of largest to least from which an axis is logarithmic */

typedef struct scale {
    double low, high; /* of the axis; positive if log */
    bool log;
    bool zero; /* log: 0 lies at the bottom, below low */
} scale;

/* --- scales ------------------------------------------------------------------------- */

/* What the lines and the threshold need. */
static scale choose(const sonde__report_curve *curve)
{
    double low = (double)INFINITY, high = -(double)INFINITY, least = (double)INFINITY;
    const double top = curve->from >= 0 ? 0.16 : 0.06; /* room for the finding's tag */
    scale to = {0};
    bool negative = false;

    for (size_t i = 0; i < curve->line_count; i++) {
        const sonde__report_track *track = curve->lines[i].track;

        low = fmin(low, track->low);
        high = fmax(high, track->high);
        least = fmin(least, track->least);
        negative = negative || track->negative;
        to.zero = to.zero || track->zero;
    }
    if (isfinite(curve->threshold)) {
        low = fmin(low, curve->threshold);
        high = fmax(high, curve->threshold);
        least = curve->threshold > 0.0 ? fmin(least, curve->threshold) : least;
        negative = negative || curve->threshold < 0.0;
    }
    to.log = !negative && isfinite(least) && high / least > LOG_FROM;
    if (to.log) {
        to.low = fmax(least / pow(high / least, 0.06), 1e-300);
        to.high = fmin(high * pow(high / least, top), 1e300);
        return to;
    }
    sonde__plot_range_widen(&low, &high);
    to.low = low - 0.06 * (high - low);
    to.high = high + top * (high - low);
    to.low = low >= 0.0 && to.low < 0.0 ? 0.0 : to.low;
    to.zero = false;
    return to;
}

/* From 0 (top) to 100. On a logarithmic axis with zeros the lowest tenth is theirs. */
static double place(const scale *by, double value)
{
    const double room = by->zero ? 0.9 * HIGH : HIGH;
    double share = 0.0;

    if (!by->log) {
        return HIGH * (1.0 - (value - by->low) / (by->high - by->low));
    }
    if (!(value > 0.0)) {
        return HIGH - 2.0;
    }
    share = (log(value) - log(by->low)) / (log(by->high) - log(by->low));
    return room * (1.0 - fmin(fmax(share, 0.0), 1.0));
}

/* --- lines -------------------------------------------------------------------------- */

/* "L12,34", with as few digits as show: nothing is drawn for a point where the pen is. */
static void point(sonde_text *page, bool *pen, double x, double y, double at[2])
{
    const double round_x = floor(x * 10.0 + 0.5) / 10.0;
    const double round_y = floor(y * 10.0 + 0.5) / 10.0;

    if (*pen && fabs(round_x - at[0]) < 0.05 && fabs(round_y - at[1]) < 0.05) {
        return;
    }
    sonde_text_format(page, "%c%g %g", *pen ? 'L' : 'M', round_x, round_y);
    *pen = true;
    at[0] = round_x;
    at[1] = round_y;
}

static void draw_line(sonde_text *page, const sonde__report_track *track, const scale *by,
                      const char *class)
{
    bool pen = false;
    double at[2] = {0};

    sonde_text_format(page, "<path class=\"%s\" d=\"", class);
    for (int i = 0; i < track->count; i++) {
        const sonde__report_column *column = &track->column[i];
        const double x = WIDE * ((double)i + 0.5) / (double)track->count;

        if (column->any) {
            point(page, &pen, x, place(by, column->first), at);
            point(page, &pen, x, place(by, column->low), at);
            point(page, &pen, x, place(by, column->high), at);
            point(page, &pen, x, place(by, column->last), at);
        }
        pen = pen && !(column->bad && !column->any);
    }
    if (track->steps == 1 && pen) { /* a dot: a line of no length has round ends */
        sonde_text_format(page, "h0.1");
    }
    sonde_text_format(page, "\"/>");
}

/* Where steps have NaN or infinities: bands over the whole height. */
static void draw_bad(sonde_text *page, const sonde__report_track *track)
{
    const double width = WIDE / (double)track->count;

    for (int i = 0; i < track->count; i++) {
        int end = i;

        while (end < track->count &&
               (track->column[end].bad || (end > i && !track->column[end].any))) {
            end++;
        }
        if (end > i) {
            sonde_text_format(page,
                              "<rect class=\"bad\" x=\"%g\" y=\"0\" width=\"%g\" "
                              "height=\"100\"/>",
                              floor(i * width * 10.0) / 10.0,
                              floor((end - i) * width * 10.0) / 10.0);
            i = end;
        }
    }
}

static double place_step(const sonde__report_track *track, int64_t step)
{
    return WIDE * ((double)(step - track->begin) + 0.5) /
           ((double)(track->end - track->begin) + 1.0);
}

/* --- around ------------------------------------------------------------------------- */

static void draw_ys(sonde_text *page, const scale *by, const sonde__plot_ticks *ticks)
{
    sonde_text_format(page, "<div class=\"ys\">");
    for (int i = 0; i < ticks->count; i++) {
        sonde_text_format(page, "<span style=\"top:%.1f%%\">",
                          place(by, ticks->value[i]));
        sonde__report_html_text(page, ticks->label[i]);
        sonde_text_format(page, "</span>");
    }
    if (by->log && by->zero) {
        sonde_text_format(page, "<span style=\"top:%.1f%%\">0</span>", place(by, 0.0));
    }
    sonde_text_format(page, "</div>");
}

static void draw_xs(sonde_text *page, const sonde__report_track *track)
{
    sonde__plot_ticks ticks;

    sonde_text_format(page, "<div class=\"xs\">");
    if (track->end > track->begin) {
        sonde__plot_ticks_linear((double)track->begin, (double)track->end, 6, true,
                                 &ticks);
        for (int i = 0; i < ticks.count; i++) {
            const double x = place_step(track, (int64_t)ticks.value[i]) / WIDE * 100.0;

            sonde_text_format(page, "<span style=\"left:%.1f%%\">", x);
            sonde__report_html_text(page, ticks.label[i]);
            sonde_text_format(page, "</span>");
        }
    } else {
        sonde_text_format(page, "<span style=\"left:50%%\">%lld</span>",
                          (long long)track->begin);
    }
    sonde_text_format(page, "</div>");
}

static void draw_caption(sonde_text *page, const sonde__report_curve *curve,
                         const scale *by)
{
    static const char *const classes[] = {"key", "key second"};

    sonde_text_format(page, "<figcaption>%s of <code>", curve->label);
    sonde__report_html_text(page, curve->of);
    sonde_text_format(page, "</code>%s", by->log ? " <i>logarithmic</i>" : "");
    for (size_t i = 0; i < curve->line_count && curve->line_count > 1; i++) {
        sonde_text_format(page, " <span class=\"%s\">%s</span>", classes[i & 1U],
                          curve->lines[i].name);
    }
    for (size_t i = 0; i < curve->line_count; i++) {
        if (curve->lines[i].track->bad > 0) {
            sonde_text_format(page, " <span class=\"key bad\">NaN or infinite</span>");
            break;
        }
    }
    sonde_text_format(page, "</figcaption>");
}

/* The finding's marks: how long it held, where it began. */
static void draw_held(sonde_text *page, const sonde__report_curve *curve)
{
    const sonde__report_track *track = curve->lines[0].track;
    const double from = place_step(track, curve->from);
    const double to = place_step(track, SONDE_MAX(curve->to, curve->from));

    if (to > from) {
        sonde_text_format(page,
                          "<rect class=\"held\" x=\"%.1f\" y=\"0\" width=\"%.1f\" "
                          "height=\"100\"/>",
                          from, to - from);
    }
    sonde_text_format(page, "<path class=\"at\" d=\"M%.1f 0V100\"/>", from);
}

static void draw_tags(sonde_text *page, const sonde__report_curve *curve, const scale *by)
{
    if (curve->from >= 0) {
        const double x = place_step(curve->lines[0].track, curve->from) / WIDE * 100.0;

        sonde_text_format(
            page, "<span class=\"tag at%s\" style=\"left:%.1f%%\">step %lld</span>",
            x > 60.0 ? " before" : "", x, (long long)curve->from);
    }
    if (isfinite(curve->threshold)) {
        const double y = place(by, curve->threshold);

        sonde_text_format(page,
                          "<span class=\"tag limit%s\" style=\"top:%.1f%%\">threshold ",
                          y < 20.0 ? " under" : "", y);
        sonde__report_html_number(page, curve->threshold, 4);
        sonde_text_format(page, "</span>");
    }
}

static bool has_values(const sonde__report_curve *curve)
{
    bool any = false;

    for (size_t i = 0; i < curve->line_count; i++) {
        any = any || curve->lines[i].track->low <= curve->lines[i].track->high;
    }
    return any;
}

void sonde__report_curve_draw(sonde_text *page, const sonde__report_curve *curve)
{
    sonde__plot_ticks ticks;
    scale by;

    if (!has_values(curve)) {
        return;
    }
    by = choose(curve);
    if (by.log) {
        sonde__plot_ticks_log(by.low, by.high, 5, &ticks);
    } else {
        sonde__plot_ticks_linear(by.low, by.high, 4, false, &ticks);
    }
    sonde_text_format(page, "<figure class=\"curve\">");
    draw_caption(page, curve, &by);
    sonde_text_format(page, "<div class=\"frame\">");
    draw_ys(page, &by, &ticks);
    sonde_text_format(page, "<div class=\"area\"><svg viewBox=\"0 0 1000 100\" "
                            "preserveAspectRatio=\"none\" aria-hidden=\"true\">");
    if (curve->from >= 0) {
        draw_held(page, curve);
    }
    for (size_t i = 0; i < curve->line_count; i++) {
        draw_bad(page, curve->lines[i].track);
    }
    sonde_text_format(page, "<path class=\"grid\" d=\"");
    for (int i = 0; i < ticks.count; i++) {
        sonde_text_format(page, "M0 %.1fH1000", place(&by, ticks.value[i]));
    }
    sonde_text_format(page, "\"/>");
    if (isfinite(curve->threshold)) {
        sonde_text_format(page, "<path class=\"limit\" d=\"M0 %.1fH1000\"/>",
                          place(&by, curve->threshold));
    }
    for (size_t i = curve->line_count; i-- > 0;) {
        draw_line(page, curve->lines[i].track, &by, i == 0 ? "line" : "line second");
    }
    sonde_text_format(page, "</svg>");
    draw_tags(page, curve, &by);
    sonde_text_format(page, "</div>");
    draw_xs(page, curve->lines[0].track);
    sonde_text_format(page, "</div></figure>\n");
}

void sonde__report_spark_draw(sonde_text *page, const sonde__report_track *track)
{
    const sonde__report_trace line = {.track = track};
    const sonde__report_curve curve = {
        .lines = &line, .line_count = 1, .threshold = (double)NAN, .from = -1};
    scale by;

    sonde_text_format(page, "<svg class=\"spark\" viewBox=\"0 0 1000 100\" "
                            "preserveAspectRatio=\"none\" aria-hidden=\"true\">");
    draw_bad(page, track);
    if (track->low <= track->high) {
        by = choose(&curve);
        draw_line(page, track, &by, "line");
    }
    sonde_text_format(page, "</svg>");
}
