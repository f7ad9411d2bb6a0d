/*
 * cmd_diff.c - `sonde diff`: the first difference between two runs or two sets of weights,
 * and what differs after it.
 */
#include "cli/run_reading.h"
#include "base/fail.h"

#include <sonde/diff.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 20, TEXT = 160 };

typedef struct diff_values {
    const char *tensors, *steps, *mode, *yardstick, *rename, *to, *table;
    double rtol, atol;
    bool json, all, rounding;
} diff_values;

/* A difference that is kept: sonde_difference borrows its texts. */
typedef struct kept {
    bool any;
    sonde_difference one;
    char place[TEXT];
} kept;

typedef struct diff_run {
    sonde_diff *diff;
    kept first, beyond;
} diff_run;

/* --- options -------------------------------------------------------------------------- */

static sonde_err read_options(const diff_values *values, sonde_diff_options *options,
                              sonde_diag *diag)
{
    cli_range range;
    SONDE__TRY(cli_range_parse(values->mode, values->steps, CLI_NOT_GIVEN, &range, diag));
    *options = (sonde_diff_options){
        .size = sizeof *options,
        .yardstick = values->yardstick,
        .selector = values->tensors,
        .rename = values->rename,
        .to = values->to,
        .table = values->table,
        .modes = range.mode == SONDE_MODE_GLOBAL ? 0 : 1U << range.mode,
        .begin = range.begin,
        .end = range.end,
        .tolerance = !isnan(values->rtol) || !isnan(values->atol),
        .rtol = isnan(values->rtol) ? 0.0 : values->rtol,
        .atol = isnan(values->atol) ? 0.0 : values->atol,
    };
    if ((values->to != NULL) != (values->rename != NULL)) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--rename", "--rename and --to, both",
                              "one of them");
    }
    return SONDE_OK;
}

/* --- comparing ------------------------------------------------------------------------ */

static void keep(kept *where, const sonde_difference *one)
{
    if (where->any) {
        return;
    }
    where->any = true;
    where->one = *one;
    if (one->place.file != NULL && one->place.file[0] != '\0') {
        const char *const slash = strrchr(one->place.file, '/');

        (void)snprintf(where->place, sizeof where->place, " (%.120s:%d)",
                       slash != NULL ? slash + 1 : one->place.file, one->place.line);
    }
}

static bool note(void *user, const sonde_difference *one)
{
    diff_run *const run = user;

    keep(&run->first, one);
    if (one->kind != SONDE_DIFF_ROUNDING) {
        keep(&run->beyond, one);
    }
    return !cli_interrupted();
}

/* --- text ----------------------------------------------------------------------------- */

static const char *where_text(const kept *found, char *text, size_t size)
{
    const sonde_difference *const one = &found->one;
    char worker[32] = "", micro[40] = "";

    if (one->worker > 0) {
        (void)snprintf(worker, sizeof worker, ", worker %d", one->worker);
    }
    if (one->micro_batch > 0) {
        (void)snprintf(micro, sizeof micro, ", micro-batch %d", one->micro_batch);
    }
    (void)snprintf(text, size, "%s step %" PRId64 "%s%s, ", sonde_mode_name(one->mode),
                   one->step, worker, micro);
    return text;
}

static void index_text(const sonde_difference *one, char *text, size_t size)
{
    int64_t rest = one->at, index[SONDE_MAX_DIMS];
    size_t length = (size_t)snprintf(text, size, "[");

    for (int d = one->a_form.rank - 1; d >= 0; d--) {
        index[d] = one->a_form.shape[d] > 0 ? rest % one->a_form.shape[d] : 0;
        rest = one->a_form.shape[d] > 0 ? rest / one->a_form.shape[d] : 0;
    }
    for (int d = 0; d < one->a_form.rank && length < size; d++) {
        length += (size_t)snprintf(text + length, size - length, "%s%" PRId64,
                                   d > 0 ? ", " : "", index[d]);
    }
    if (length < size) {
        (void)snprintf(text + length, size - length, "]");
    }
}

static void print_shapes(const sonde_difference *one)
{
    char a[128], b[128];

    (void)printf("  %s %s in A, %s %s in B\n", sonde_dtype_name(one->a_form.dtype),
                 sonde_shape_text(one->a_form.rank, one->a_form.shape, a, sizeof a),
                 sonde_dtype_name(one->b_form.dtype),
                 sonde_shape_text(one->b_form.rank, one->b_form.shape, b, sizeof b));
}

static void print_elements(const sonde_difference *one)
{
    char differing[32], count[32], index[200];

    (void)printf("  %s of %s elements differ", cli_commas(one->differing, differing),
                 cli_commas(one->count, count));
    if (one->nonfinite > 0) {
        (void)printf(", %s of them NaN or infinite on one side only",
                     cli_commas(one->nonfinite, differing));
    }
    if (one->at >= 0) {
        index_text(one, index, sizeof index);
        (void)printf(", most at %s: %.9g and %.9g", index, one->a, one->b);
    }
    (void)putchar('\n');
}

static void print_statistics(const sonde_difference *one)
{
    (void)printf("  values are not recorded on both sides; their statistics differ "
                 "(l2 %.9g and %.9g)\n",
                 one->a, one->b);
}

static void print_ratio(const sonde_difference *one, bool tolerance)
{
    (void)printf("  rms of the difference over rms of A: %s%.3g",
                 one->how == SONDE_HOW_VITALS ? "at least " : "", one->relative);
    if (!tolerance) {
        (void)printf("; rounding explains %.3g", one->explained);
    }
    (void)putchar('\n');
}

static void print_found(const char *title, const kept *found, bool files, bool tolerance)
{
    const sonde_difference *const one = &found->one;
    char where[TEXT];

    (void)printf("%s: %s%s%s", title, files ? "" : where_text(found, where, sizeof where),
                 one->name, found->place);
    if (strcmp(one->name, one->other) != 0) {
        (void)printf(" (in B: %s)", one->other);
    }
    if (one->transposed) {
        (void)printf(", transposed");
    }
    if (one->shards > 1) {
        (void)printf(", put together from %d parts", one->shards);
    }
    (void)putchar('\n');
    if (one->a_form.dtype != one->b_form.dtype || one->kind == SONDE_DIFF_SHAPE) {
        print_shapes(one);
    }
    if (one->kind == SONDE_DIFF_SHAPE) {
        return;
    }
    if (one->how == SONDE_HOW_VITALS) {
        print_statistics(one);
    } else {
        print_elements(one);
    }
    print_ratio(one, tolerance);
}

typedef struct row_list {
    sonde_diff_tensor *rows;
    size_t count;
} row_list;

static int by_first(const void *a, const void *b)
{
    const sonde_diff_tensor *const x = a, *const y = b;
    const int first = (x->first > y->first) - (x->first < y->first);

    /* Equal first steps: in the order of a step, which compared is used for here. */
    return first != 0 ? first : (x->compared > y->compared) - (x->compared < y->compared);
}

/* The tensors that differ, by the first step at which they do. Out of memory: none. */
static row_list list_rows(const sonde_diff *diff)
{
    row_list list = {0};
    sonde_diff_tensor row;
    size_t all = 0;

    while (sonde_diff_tensor_get(diff, all, &row)) {
        all++;
    }
    list.rows = calloc(all + 1, sizeof *list.rows);
    for (size_t i = 0; list.rows != NULL && i < all; i++) {
        if (sonde_diff_tensor_get(diff, i, &row) && row.first >= 0) {
            row.compared = i;
            list.rows[list.count++] = row;
        }
    }
    if (list.count > 0) {
        qsort(list.rows, list.count, sizeof *list.rows, by_first);
    }
    return list;
}

static void print_row(const sonde_diff_tensor *row, bool files)
{
    char beyond[24] = "-";

    if (files) {
        (void)printf("%-*s %14.3g%s\n", cli_field(row->name, 40), row->name,
                     row->relative, row->beyond < 0 ? "  rounding" : "");
        return;
    }
    if (row->beyond >= 0) {
        (void)snprintf(beyond, sizeof beyond, "%" PRId64, row->beyond);
    }
    (void)printf("%-*s %10" PRId64 " %10" PRId64 " %11s %13.3g %9" PRId64 "\n",
                 cli_field(row->name, 40), row->name, row->first, row->last, beyond,
                 row->relative, row->relative_step);
}

static void print_table(const sonde_diff *diff, bool files, bool all)
{
    const row_list list = list_rows(diff);
    const size_t shown = all || list.count < MOST_ROWS ? list.count : MOST_ROWS;

    if (list.count > 0) {
        (void)printf("\n%-40s %s\n", "tensor",
                     files ? " largest ratio"
                           : "first step  last step unexplained largest ratio   at step");
    }
    for (size_t i = 0; i < shown; i++) {
        print_row(&list.rows[i], files);
    }
    if (shown < list.count) {
        (void)printf("... and %zu more (--all)\n", list.count - shown);
    }
    free(list.rows);
}

static void print_names(const char *title, const char *names[], size_t count,
                        uint64_t all)
{
    if (all == 0) {
        return;
    }
    (void)printf("%s %" PRIu64 ":", title, all);
    for (size_t i = 0; i < count; i++) {
        (void)printf("%s %s", i > 0 ? "," : "", names[i]);
    }
    (void)printf("%s\n", all > count ? ", ..." : "");
}

static void print_missing(const sonde_diff *diff, const sonde_diff_report *report)
{
    enum { SHOWN = 5 };
    const char *a[SHOWN], *b[SHOWN];
    size_t in_a = 0, in_b = 0;
    sonde_diff_tensor row;

    for (size_t i = 0; in_a < SHOWN && sonde_diff_tensor_get(diff, i, &row); i++) {
        if (row.other == NULL) {
            a[in_a++] = row.name;
        }
    }
    while (in_b < SHOWN && sonde_diff_only_b(diff, in_b) != NULL) {
        b[in_b] = sonde_diff_only_b(diff, in_b);
        in_b++;
    }
    print_names("tensors only in A:", a, in_a, report->tensors_only_a);
    print_names("tensors only in B:", b, in_b, report->tensors_only_b);
    if (report->only_a + report->only_b > 0) {
        (void)printf("steps only in A: %" PRIu64 ", only in B: %" PRIu64 "\n",
                     report->only_a, report->only_b);
    }
    if (report->not_comparable > 0) {
        (void)printf("%" PRIu64
                     " tensors of both have no step with a form of evidence in "
                     "common\n",
                     report->not_comparable);
    }
}

static const char *conclusion(const sonde_diff_report *report)
{
    if (report->counts[SONDE_DIFF_BEYOND] + report->counts[SONDE_DIFF_SHAPE] > 0) {
        return "They differ.";
    }
    if (report->counts[SONDE_DIFF_ROUNDING] > 0) {
        return "They differ by no more than rounding or the tolerance explains.";
    }
    return "Nothing differs.";
}

static void print_text(const diff_run *run, const diff_values *values)
{
    const bool tolerance = !isnan(values->rtol) || !isnan(values->atol);
    sonde_diff_report report;
    char places[32], hashes[32];

    sonde_diff_describe(run->diff, &report);
    const bool files = report.files;
    if (run->first.any) {
        print_found("first difference", &run->first, files, tolerance);
    }
    if (run->beyond.any && run->first.one.kind == SONDE_DIFF_ROUNDING) {
        print_found("first beyond rounding", &run->beyond, files, tolerance);
    }
    print_table(run->diff, files, values->all);
    if (run->first.any) {
        (void)putchar('\n');
    }
    print_missing(run->diff, &report);
    (void)printf("compared: %s values of %" PRIu64 " tensors",
                 cli_commas(report.places, places),
                 report.tensors - report.not_comparable);
    if (!files) {
        (void)printf(" at %" PRIu64 " steps, %s by their hashes", report.steps,
                     cli_commas(report.by_hash, hashes));
    }
    (void)printf("\n%s\n", conclusion(&report));
}

/* --- JSON ----------------------------------------------------------------------------- */

static void put_one(sonde_json *json, const char *key, const kept *found)
{
    const sonde_difference *const one = &found->one;
    const bool placed = one->place.file != NULL && one->place.file[0] != '\0';

    if (!found->any) {
        sonde_json_format(json, key, "null");
        return;
    }
    sonde_json_object(json, key);
    CLI_PUT(json, cli_text("kind", sonde_diff_kind_name(one->kind)),
            cli_text("tensor", one->name), cli_text("other", one->other),
            cli_text("mode", sonde_mode_name(one->mode)), cli_int("step", one->step),
            cli_int("worker", one->worker), cli_int("micro_batch", one->micro_batch),
            placed ? cli_text("file", one->place.file) : cli_none(),
            placed ? cli_int("line", one->place.line) : cli_none(),
            cli_text("evidence", one->how == SONDE_HOW_RAW ? "values" : "statistics"),
            cli_bool("transposed", one->transposed), cli_int("parts", one->shards),
            cli_uint("elements", one->count), cli_uint("differing", one->differing),
            cli_uint("nonfinite", one->nonfinite), cli_int("at", one->at),
            cli_exact("a", one->a), cli_exact("b", one->b),
            cli_exact("largest", one->largest), cli_exact("ratio", one->relative),
            cli_exact("explained", one->explained));
    sonde_json_end(json);
}

static void put_tensors(sonde_json *json, const sonde_diff *diff)
{
    sonde_diff_tensor row;

    sonde_json_list(json, "tensors_that_differ");
    for (size_t i = 0; sonde_diff_tensor_get(diff, i, &row); i++) {
        if (row.first >= 0) {
            sonde_json_lead(json, "\n  ");
            sonde_json_object(json, NULL);
            CLI_PUT(json, cli_text("tensor", row.name), cli_text("other", row.other),
                    cli_uint("compared", row.compared), cli_int("first", row.first),
                    cli_int("last", row.last), cli_int("beyond", row.beyond),
                    cli_exact("ratio", row.relative),
                    cli_int("ratio_step", row.relative_step));
            sonde_json_end(json);
        }
    }
    sonde_json_end(json);
}

static void print_json(const diff_run *run, const char *a, const char *b)
{
    sonde_json *const json = cli_json();
    sonde_diff_report report;

    sonde_diff_describe(run->diff, &report);
    sonde_json_object(json, NULL);
    CLI_PUT(json, cli_text("a", a), cli_text("b", b),
            cli_bool("same", report.counts[SONDE_DIFF_SAME] == report.places),
            cli_uint("steps", report.steps), cli_uint("steps_only_a", report.only_a),
            cli_uint("steps_only_b", report.only_b), cli_uint("tensors", report.tensors),
            cli_uint("tensors_only_a", report.tensors_only_a),
            cli_uint("tensors_only_b", report.tensors_only_b),
            cli_uint("not_comparable", report.not_comparable),
            cli_uint("places", report.places), cli_uint("by_hash", report.by_hash),
            cli_uint("rounding", report.counts[SONDE_DIFF_ROUNDING]),
            cli_uint("beyond", report.counts[SONDE_DIFF_BEYOND]),
            cli_uint("shape", report.counts[SONDE_DIFF_SHAPE]));
    put_one(json, "first", &run->first);
    put_one(json, "first_beyond", &run->beyond);
    put_tensors(json, run->diff);
    sonde_json_end(json);
    cli_json_print("\n");
}

/* --- the command ---------------------------------------------------------------------- */

/* 0: nothing that counts differs. */
static int verdict(const diff_run *run, const diff_values *values)
{
    const bool tolerated =
        values->rounding || !isnan(values->rtol) || !isnan(values->atol);
    sonde_diff_report report;

    sonde_diff_describe(run->diff, &report);
    if (report.places == 0) {
        return cli_fail_text("nothing was compared (expected a step that both have)");
    }
    const uint64_t beyond = report.counts[SONDE_DIFF_BEYOND] +
                            report.counts[SONDE_DIFF_SHAPE] + report.tensors_only_a +
                            report.tensors_only_b + report.only_a + report.only_b;
    return beyond > 0 || (!tolerated && report.counts[SONDE_DIFF_ROUNDING] > 0)
               ? CLI_VERDICT
               : CLI_OK;
}

static int run_diff(const void *given, int argc, char **argv)
{
    const diff_values *const values = given;
    sonde_diff_options options;
    diff_run run = {0};
    sonde_diag diag = {0};
    int code = CLI_OK;

    (void)argc;
    cli_catch_interrupt();
    sonde_err err = read_options(values, &options, &diag);
    err = err == SONDE_OK ? sonde_diff_open(argv[0], argv[1], &options, &run.diff, &diag)
                          : err;
    err = err == SONDE_OK ? sonde_diff_run(run.diff, note, &run, &diag) : err;
    if (err == SONDE_OK && cli_interrupted()) {
        err = diag.err = SONDE_EINTERRUPTED;
    }
    if (err != SONDE_OK) {
        code = cli_fail(&diag);
    } else {
        code = verdict(&run, values);
        if (code != CLI_ERROR && values->json) {
            print_json(&run, argv[0], argv[1]);
        } else if (code != CLI_ERROR) {
            print_text(&run, values);
        }
    }
    sonde_diff_close(run.diff);
    return code;
}

#define OPTION(...) CLI_OPTION(diff_values, __VA_ARGS__)

static const cli_option diff_options[] = {
    OPTION("tensors", 0, CLI_TEXT, "TENSORS", tensors,
           "compare only these tensors (a selector, over the names of A)"),
    OPTION("steps", 0, CLI_TEXT, "A:B", steps,
           "compare only steps A to B - 1; also A:, :B or A"),
    OPTION("mode", 'm', CLI_TEXT, "MODE", mode,
           "compare only the steps of train, eval or predict"),
    OPTION("rtol", 0, CLI_REAL, "NUMBER", rtol,
           "let an element differ by NUMBER times A's, instead of by rounding"),
    OPTION("atol", 0, CLI_REAL, "NUMBER", atol, "and by NUMBER beside it"),
    OPTION("rounding", 0, CLI_FLAG, NULL, rounding,
           "exit with 0 if rounding explains all that differs"),
    OPTION("yardstick", 0, CLI_TEXT, "PATH", yardstick,
           "a third run that is known to be right: what differs no more than 3 times\n"
           "as it does from A is explained"),
    OPTION("rename", 0, CLI_TEXT, "REGEX", rename,
           "change names of B where this expression (PCRE2) matches ..."),
    OPTION("to", 0, CLI_TEXT, "TEXT", to, "... to this, with $1 for its first group"),
    OPTION("table", 0, CLI_TEXT, "FILE", table,
           "lines 'NAME-IN-A NAME-IN-B' of tensors with other names"),
    OPTION("all", 'a', CLI_FLAG, NULL, all, "print all tensors that differ (20)"),
    OPTION("format", 0, CLI_FORMAT, "FORMAT", json, "print text or json (text)"),
};

const cli_command cli_diff = {
    .name = "diff",
    .arguments = "A B",
    .summary = "find the first difference between two runs or two sets of weights",
    .details =
        "A and B are runs (or directories of smdebug), or safetensors files or folders of\n"
        "them. Steps are compared as their modes count them, and tensors in the order in\n"
        "which a step computes them: by hash, then by their elements, or by statistics where\n"
        "values are not recorded. Parts that workers or files hold are put together, and\n"
        "transposed matrices are recognised.\n\n"
        "A difference is rounding if its size relative to A is at most 8 u sqrt(n), with the\n"
        "dtype's unit roundoff u and the n terms of the sums of the step so far; at later\n"
        "steps, at most 100 times that of the steps before. --rtol and --atol replace this.\n"
        "'unexplained' is the first step at which neither explains it.\n\n"
        "Exit code: 0 nothing differs, 1 something does, 2 an error.",
    .examples = "  sonde diff runs/first runs/second\n"
                "  sonde diff runs/cpu runs/gpu --rounding\n"
                "  sonde diff a.safetensors b.safetensors --rename '^model\\.' --to ''",
    .options = diff_options,
    .option_count = CLI_COUNT_OF(diff_options),
    .least = 2,
    .most = 2,
    .values_size = sizeof(diff_values),
    .run = run_diff,
};
