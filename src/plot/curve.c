/*
 * curve.c - the text of a page; a number of a tensor over the steps, reduced to columns
 * and drawn as a curve.
 *
 * The drawing is 1000 x 100 units, stretched by the browser; lines keep their width
 * (vector-effect). Labels are spans placed by per cent, so they keep their size.
 *
 *     +-- frame ---------------------------+
 *     | ys | area: svg, with tags over it  |
 *     |    +-------------------------------|
 *     |    | xs                            |
 *     +------------------------------------+
 */
#include "plot/report.h"
#include "base/macros.h"
#include "base/utf8.h"
#include "plot/axes.h"

#include <sonde/error.h>

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

/* === text =========================================================================== */

/* Bytes of the character at text; 0 if it is malformed or a control character. */
static size_t letter(const char *text)
{
    const unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];
    const bool control =
        first < 0x20 || first == 0x7f || (first == 0xc2 && second < 0xa0);

    return control ? 0 : sonde__utf8_length(text);
}

static void put_text(sonde_text *page, const char *text)
{
    static const struct {
        char letter;
        const char *text;
    } escapes[] = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};

    for (const char *p = text; *p != '\0';) {
        const size_t size = letter(p);
        const char *escape = size == 0 ? SONDE__REPLACEMENT : NULL;

        for (size_t i = 0; i < SONDE_COUNT_OF(escapes); i++) {
            escape = *p == escapes[i].letter ? escapes[i].text : escape;
        }
        if (escape != NULL) {
            sonde_text_add(page, escape);
        } else {
            sonde_text_put(page, p, size);
        }
        p += size > 0 ? size : 1;
    }
}

static void put_number(sonde_text *page, double value, int digits)
{
    char text[64];

    if (isnan(value)) {
        sonde_text_add(page, "NaN");
    } else if (isinf(value)) {
        sonde_text_add(page, value > 0.0 ? "∞" : "−∞");
    } else {
        const char *shown = sonde__plot_short_number(value, digits, text, sizeof text);
        const char *exponent = strchr(shown, 'e');

        if (exponent != NULL) { /* 1e-7, not 1e-07; 1e9, not 1e+09 */
            sonde_text_put(page, shown, (size_t)(exponent - shown));
            sonde_text_format(page, "e%ld", strtol(exponent + 1, NULL, 10));
        } else {
            sonde_text_add(page, shown);
        }
    }
}

/* One directive of a template; takes its values from args. */
static void put_value(sonde_text *page, char directive, va_list *args)
{
    char text[64];
    uint64_t count = 0;

    switch (directive) {
    case 'e':
        put_text(page, va_arg(*args, const char *));
        break;
    case 's':
        sonde_text_add(page, va_arg(*args, const char *));
        break;
    case 'd':
        sonde_text_format(page, "%" PRId64, va_arg(*args, int64_t));
        break;
    case 'n':
        count = va_arg(*args, uint64_t);
        sonde_text_add(page, sonde__plot_grouped(count, text, sizeof text));
        break;
    case 'c':
        count = va_arg(*args, uint64_t);
        sonde_text_format(page, "%s %s%s", sonde__plot_grouped(count, text, sizeof text),
                          va_arg(*args, const char *), count == 1 ? "" : "s");
        break;
    case 'f':
        sonde_text_format(page, "%.1f", va_arg(*args, double));
        break;
    case 'g':
        put_number(page, va_arg(*args, double), 4);
        break;
    case 'h':
        put_number(page, va_arg(*args, double), 3);
        break;
    default:
        sonde_text_put(page, &directive, 1);
        break;
    }
}

void sonde__report_put(sonde_text *page, const char *template, ...)
{
    va_list args;

    va_start(args, template);
    for (const char *p = template; *p != '\0';) {
        const size_t plain = strcspn(p, "%");

        sonde_text_put(page, p, plain);
        p += plain;
        if (p[0] == '%' && p[1] != '\0') {
            put_value(page, p[1], &args);
            p += 2;
        }
    }
    va_end(args);
}

/* === curves ========================================================================= */

/* --- quantities --------------------------------------------------------------------- */

static const char *label_of(sonde_stat stat)
{
    static const char *const labels[SONDE_STAT_ENTRIES] = {
        [SONDE_STAT_MEAN] = "mean",
        [SONDE_STAT_ABS_MEAN] = "mean of |x|",
        [SONDE_STAT_ABS_MAX] = "largest |x|",
        [SONDE_STAT_LINF] = "largest |x|",
        [SONDE_STAT_L1] = "sum of |x|",
        [SONDE_STAT_L2] = "norm",
        [SONDE_STAT_VARIANCE] = "variance",
        [SONDE_STAT_ABS_VARIANCE] = "variance of |x|",
        [SONDE_STAT_ABS_STD] = "standard deviation of |x|",
        [SONDE_STAT_STD] = "standard deviation"};

    return labels[stat] != NULL ? labels[stat] : sonde_stat_name(stat);
}

static sonde__report_quantity of_stat(sonde_stat stat)
{
    return (sonde__report_quantity){SONDE__QUANTITY_STAT, stat, label_of(stat)};
}

static const sonde__report_quantity rms = {SONDE__QUANTITY_RMS, SONDE_STAT_L2,
                                           "root mean square"};
static const sonde__report_quantity zeros = {SONDE__QUANTITY_ZERO_PERCENT,
                                             SONDE_STAT_ZERO, "values that are 0, %"};

sonde__report_quantity sonde__report_quantity_usual(sonde_role role)
{
    return role == SONDE_ROLE_LOSS || role == SONDE_ROLE_SCALAR ? of_stat(SONDE_STAT_MEAN)
                                                                : rms;
}

sonde__report_quantity sonde__report_quantity_of(const char *statistic, sonde_role role,
                                                 bool *same)
{
    /* statistics of rules that are not vital signs, and the ones that show them */
    static const struct {
        const char *name;
        sonde_stat stat;
    } near[] = {{"variance_ratio", SONDE_STAT_VARIANCE},
                {"percent_saturated", SONDE_STAT_ABS_MEAN},
                {"percent_equal", SONDE_STAT_STD},
                {"l1_difference", SONDE_STAT_L1},
                {"nonfinite", SONDE_STAT_ABS_MAX},
                {"update_ratio", SONDE_STAT_L2},
                {"steps_unchanged", SONDE_STAT_L2},
                {"changes", SONDE_STAT_L2}};
    sonde_stat stat = SONDE_STAT_MEAN;

    *same = strcmp(statistic, "rms") == 0 || strcmp(statistic, "zero_percent") == 0;
    if (strcmp(statistic, "rms") == 0) {
        return rms;
    }
    if (*same || strcmp(statistic, "percent_inactive") == 0) {
        return zeros;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(near); i++) {
        if (strcmp(statistic, near[i].name) == 0) {
            return of_stat(near[i].stat);
        }
    }
    *same = sonde_stat_parse(statistic, &stat, NULL) == SONDE_OK;
    return *same ? of_stat(stat) : sonde__report_quantity_usual(role);
}

/* The number; NaN if no element is finite. */
static double value_of(const sonde_vitals *vitals, const sonde__report_quantity *quantity)
{
    sonde_vitals finite = *vitals;

    finite.count -= vitals->nan + vitals->pos_inf + vitals->neg_inf;
    finite.nan = finite.pos_inf = finite.neg_inf = 0;
    if (finite.count == 0) {
        return NAN;
    }
    switch (quantity->kind) {
    case SONDE__QUANTITY_RMS:
        return sqrt(finite.sumsq / (double)finite.count);
    case SONDE__QUANTITY_ZERO_PERCENT:
        return sonde_vitals_are_norms(&finite)
                   ? (double)NAN
                   : 100.0 * (double)finite.zero / (double)finite.count;
    case SONDE__QUANTITY_STAT:
        break;
    }
    return sonde_vitals_get(&finite, quantity->stat);
}

/* --- tracks ------------------------------------------------------------------------- */

static void add_value(sonde__report_track *track, sonde__report_column *column,
                      double value)
{
    if (!column->any) {
        column->first = column->low = column->high = value;
        column->any = true;
    }
    column->low = fmin(column->low, value);
    column->high = fmax(column->high, value);
    column->last = track->last = value;
    track->low = fmin(track->low, value);
    track->high = fmax(track->high, value);
    track->zero = track->zero || !(fabs(value) > 0.0);
    track->negative = track->negative || value < 0.0;
    if (value > 0.0) {
        track->least = fmin(track->least, value);
    }
}

static void add_step(sonde__report_track *track, int64_t step, const sonde_vitals *vitals,
                     const sonde__report_quantity *quantity)
{
    /* in double: steps times columns might not fit */
    const double share =
        (double)(step - track->begin) / ((double)(track->end - track->begin) + 1.0);
    const int place = SONDE_MIN((int)(share * track->count), track->count - 1);
    const double value = value_of(vitals, quantity);
    const bool bad = vitals->nan + vitals->pos_inf + vitals->neg_inf > 0;

    track->steps++;
    track->bad += bad;
    track->column[place].bad = track->column[place].bad || bad;
    if (isfinite(value)) {
        add_value(track, &track->column[place], value);
    }
}

sonde_err sonde__report_track_read(sonde_trial *trial, uint32_t id, sonde_mode mode,
                                   const sonde__report_quantity *quantity, int64_t begin,
                                   int64_t end, int columns, sonde__report_track *track,
                                   sonde_diag *diag)
{
    int64_t *steps = NULL;
    sonde_vitals *vitals = NULL;
    size_t count = 0;
    sonde_err err = SONDE_OK;

    *track = (sonde__report_track){.begin = begin,
                                   .end = end,
                                   .count = end - begin < columns ? (int)(end - begin) + 1
                                                                  : columns,
                                   .low = (double)INFINITY,
                                   .high = -(double)INFINITY,
                                   .least = (double)INFINITY,
                                   .last = (double)NAN};
    err = sonde_trial_vitals_series(trial, id, SONDE_MODE_GLOBAL, -1, begin, end + 1,
                                    &steps, &vitals, &count, diag);
    if (err != SONDE_OK) {
        return err == SONDE_ENOMEM ? err : SONDE_OK;
    }
    for (size_t i = 0; i < count; i++) {
        sonde_mode step_mode = SONDE_MODE_GLOBAL;
        int64_t mode_step = 0;

        if (mode == SONDE_MODE_GLOBAL ||
            (sonde_trial_mode_step(trial, steps[i], &step_mode, &mode_step) &&
             step_mode == mode)) {
            add_step(track, steps[i], &vitals[i], quantity);
        }
    }
    sonde_release(steps);
    sonde_release(vitals);
    return SONDE_OK;
}

#define WIDE 1000.0
#define HIGH 100.0
#define LOG_FROM 50.0 /* ratio of largest to least from which an axis is logarithmic */

typedef struct scale {
    double low, high; /* of the axis; positive if log */
    bool log;
    bool zero; /* log: 0 lies at the bottom, below low */
} scale;

/* --- scales ------------------------------------------------------------------------- */

/* The scale that fits the lines and the threshold. */
static scale choose_scale(const sonde__report_curve *curve)
{
    double low = (double)INFINITY, high = -(double)INFINITY, least = (double)INFINITY;
    const double top = curve->first >= 0 ? 0.16 : 0.06; /* room for the finding's tag */
    scale axis = {0};
    bool negative = false;

    for (size_t i = 0; i < curve->line_count; i++) {
        const sonde__report_track *track = curve->lines[i].track;

        low = fmin(low, track->low);
        high = fmax(high, track->high);
        least = fmin(least, track->least);
        negative = negative || track->negative;
        axis.zero = axis.zero || track->zero;
    }
    if (isfinite(curve->threshold)) {
        low = fmin(low, curve->threshold);
        high = fmax(high, curve->threshold);
        least = curve->threshold > 0.0 ? fmin(least, curve->threshold) : least;
        negative = negative || curve->threshold < 0.0;
    }
    axis.log = !negative && isfinite(least) && high / least > LOG_FROM;
    if (axis.log) {
        axis.low = fmax(least / pow(high / least, 0.06), 1e-300);
        axis.high = fmin(high * pow(high / least, top), 1e300);
        return axis;
    }
    sonde__plot_range_widen(&low, &high);
    axis.low = low - 0.06 * (high - low);
    axis.high = high + top * (high - low);
    axis.low = low >= 0.0 && axis.low < 0.0 ? 0.0 : axis.low;
    axis.zero = false;
    return axis;
}

/* 0 (top) to 100. A logarithmic axis with zeros reserves its lowest tenth for them. */
static double place(const scale *axis, double value)
{
    const double room = axis->zero ? 0.9 * HIGH : HIGH;

    if (!axis->log) {
        return HIGH * (1.0 - (value - axis->low) / (axis->high - axis->low));
    }
    if (!(value > 0.0)) {
        return HIGH - 2.0;
    }
    const double share =
        (log(value) - log(axis->low)) / (log(axis->high) - log(axis->low));
    return room * (1.0 - fmin(fmax(share, 0.0), 1.0));
}

/* --- lines -------------------------------------------------------------------------- */

/* "L12 34", rounded to what is visible; a point where the pen already is adds nothing. */
static void point(sonde_text *page, bool *pen, double x, double y, double last[2])
{
    const double round_x = floor(x * 10.0 + 0.5) / 10.0;
    const double round_y = floor(y * 10.0 + 0.5) / 10.0;

    if (*pen && fabs(round_x - last[0]) < 0.05 && fabs(round_y - last[1]) < 0.05) {
        return;
    }
    sonde_text_format(page, "%c%g %g", *pen ? 'L' : 'M', round_x, round_y);
    *pen = true;
    last[0] = round_x;
    last[1] = round_y;
}

static void draw_line(sonde_text *page, const sonde__report_track *track,
                      const scale *axis, const char *class)
{
    bool pen = false;
    double last[2] = {0};

    sonde_text_format(page, "<path class=\"%s\" d=\"", class);
    for (int i = 0; i < track->count; i++) {
        const sonde__report_column *column = &track->column[i];
        const double x = WIDE * ((double)i + 0.5) / (double)track->count;

        if (column->any) {
            point(page, &pen, x, place(axis, column->first), last);
            point(page, &pen, x, place(axis, column->low), last);
            point(page, &pen, x, place(axis, column->high), last);
            point(page, &pen, x, place(axis, column->last), last);
        }
        pen = pen && !(column->bad && !column->any);
    }
    if (track->steps == 1 && pen) { /* a dot: a line without length has round ends */
        sonde_text_format(page, "h0.1");
    }
    sonde_text_format(page, "\"/>");
}

/* Bands over the whole height where steps have NaN or infinities. */
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

static void draw_ys(sonde_text *page, const scale *axis, const sonde__plot_ticks *ticks)
{
    sonde_text_format(page, "<div class=\"ys\">");
    for (int i = 0; i < ticks->count; i++) {
        sonde__report_put(page, "<span style=\"top:%f%%\">%e</span>",
                          place(axis, ticks->value[i]), ticks->label[i]);
    }
    if (axis->log && axis->zero) {
        sonde_text_format(page, "<span style=\"top:%.1f%%\">0</span>", place(axis, 0.0));
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

            sonde__report_put(page, "<span style=\"left:%f%%\">%e</span>", x,
                              ticks.label[i]);
        }
    } else {
        sonde_text_format(page, "<span style=\"left:50%%\">%lld</span>",
                          (long long)track->begin);
    }
    sonde_text_format(page, "</div>");
}

static void draw_caption(sonde_text *page, const sonde__report_curve *curve,
                         const scale *axis)
{
    static const char *const classes[] = {"key", "key second"};

    sonde__report_put(page, "<figcaption>%s of <code>%e</code>%s", curve->label,
                      curve->tensor, axis->log ? " <i>logarithmic</i>" : "");
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

/* Marks the steps at which the finding held, and the first of them. */
static void draw_held(sonde_text *page, const sonde__report_curve *curve)
{
    const sonde__report_track *track = curve->lines[0].track;
    const double left = place_step(track, curve->first);
    const double right = place_step(track, SONDE_MAX(curve->last, curve->first));

    if (right > left) {
        sonde_text_format(page,
                          "<rect class=\"held\" x=\"%.1f\" y=\"0\" width=\"%.1f\" "
                          "height=\"100\"/>",
                          left, right - left);
    }
    sonde_text_format(page, "<path class=\"at\" d=\"M%.1f 0V100\"/>", left);
}

static void draw_tags(sonde_text *page, const sonde__report_curve *curve,
                      const scale *axis)
{
    if (curve->first >= 0) {
        const double x = place_step(curve->lines[0].track, curve->first) / WIDE * 100.0;

        sonde_text_format(
            page, "<span class=\"tag at%s\" style=\"left:%.1f%%\">step %lld</span>",
            x > 60.0 ? " before" : "", x, (long long)curve->first);
    }
    if (isfinite(curve->threshold)) {
        const double y = place(axis, curve->threshold);

        sonde__report_put(
            page, "<span class=\"tag limit%s\" style=\"top:%f%%\">threshold %g</span>",
            y < 20.0 ? " under" : "", y, curve->threshold);
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
    scale axis;

    if (!has_values(curve)) {
        return;
    }
    axis = choose_scale(curve);
    if (axis.log) {
        sonde__plot_ticks_log(axis.low, axis.high, 5, &ticks);
    } else {
        sonde__plot_ticks_linear(axis.low, axis.high, 4, false, &ticks);
    }
    sonde_text_format(page, "<figure class=\"curve\">");
    draw_caption(page, curve, &axis);
    sonde_text_format(page, "<div class=\"frame\">");
    draw_ys(page, &axis, &ticks);
    sonde_text_format(page, "<div class=\"area\"><svg viewBox=\"0 0 1000 100\" "
                            "preserveAspectRatio=\"none\" aria-hidden=\"true\">");
    if (curve->first >= 0) {
        draw_held(page, curve);
    }
    for (size_t i = 0; i < curve->line_count; i++) {
        draw_bad(page, curve->lines[i].track);
    }
    sonde_text_format(page, "<path class=\"grid\" d=\"");
    for (int i = 0; i < ticks.count; i++) {
        sonde_text_format(page, "M0 %.1fH1000", place(&axis, ticks.value[i]));
    }
    sonde_text_format(page, "\"/>");
    if (isfinite(curve->threshold)) {
        sonde_text_format(page, "<path class=\"limit\" d=\"M0 %.1fH1000\"/>",
                          place(&axis, curve->threshold));
    }
    for (size_t i = curve->line_count; i-- > 0;) {
        draw_line(page, curve->lines[i].track, &axis, i == 0 ? "line" : "line second");
    }
    sonde_text_format(page, "</svg>");
    draw_tags(page, curve, &axis);
    sonde_text_format(page, "</div>");
    draw_xs(page, curve->lines[0].track);
    sonde_text_format(page, "</div></figure>\n");
}

void sonde__report_spark_draw(sonde_text *page, const sonde__report_track *track)
{
    const sonde__report_trace line = {.track = track};
    const sonde__report_curve curve = {
        .lines = &line, .line_count = 1, .threshold = (double)NAN, .first = -1};
    scale axis;

    sonde_text_format(page, "<svg class=\"spark\" viewBox=\"0 0 1000 100\" "
                            "preserveAspectRatio=\"none\" aria-hidden=\"true\">");
    draw_bad(page, track);
    if (track->low <= track->high) {
        axis = choose_scale(&curve);
        draw_line(page, track, &axis, "line");
    }
    sonde_text_format(page, "</svg>");
}
