/*
 * cmd_verify.c - `sonde verify`: checks every hash of a run and reports damage and losses.
 */
#include "cli/cli_run.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct verify_values {
    bool json, quiet;
} verify_values;

/* Where lines go: stdout, or a text that becomes a JSON list. */
typedef struct line_sink {
    FILE *stream;
    bool json;
    size_t count;
} line_sink;

static void print_line(void *user, const char *text)
{
    line_sink *sink = user;

    if (sink->json) {
        (void)fputs(sink->count > 0 ? ", " : "", sink->stream);
        cli_json_string(sink->stream, text);
    } else {
        (void)fprintf(sink->stream, "%s\n", text);
    }
    sink->count++;
}

static void print_report(const sonde_verify_report *report)
{
    char bytes[32];

    (void)printf(
        "%" PRIu64 " values (%s), %" PRIu64 " vital signs, %" PRIu64 " sketches: ",
        report->records, cli_bytes_text((double)report->bytes, bytes, sizeof bytes),
        report->rows, report->sketches);
    if (report->damaged == 0) {
        (void)puts("no damage");
    } else {
        (void)printf("intact; %" PRIu64 " damaged\n", report->damaged);
    }
    if (report->crashed) {
        (void)printf("the run crashed: %" PRIu64 " records were cut off while being "
                     "written; all earlier ones are complete\n",
                     report->torn);
    } else if (report->torn > 0) {
        (void)printf("%" PRIu64 " records are cut off\n", report->torn);
    }
    if (report->resumed) {
        (void)printf("the run was resumed: %" PRIu64 " of these are superseded\n",
                     report->superseded);
    }
    if (report->lost > 0) {
        (void)printf("the writer lost %" PRIu64 " records before writing them\n",
                     report->lost);
    }
    if (!report->ended && !report->crashed) {
        (void)puts("the run is still being written");
    }
}

static void print_report_json(const sonde_verify_report *report, const char *lines)
{
    (void)printf(
        "{\"messages\": [%s], \"records\": %" PRIu64 ", \"bytes\": %" PRIu64
        ", \"rows\": %" PRIu64 ", \"sketches\": %" PRIu64 ", \"damaged\": %" PRIu64
        ", \"torn\": %" PRIu64 ", \"lost\": %" PRIu64
        ", \"ended\": %s, \"crashed\": %s, \"resumed\": %s, \"superseded\": %" PRIu64
        "}\n",
        lines, report->records, report->bytes, report->rows, report->sketches,
        report->damaged, report->torn, report->lost, report->ended ? "true" : "false",
        report->crashed ? "true" : "false", report->resumed ? "true" : "false",
        report->superseded);
}

static int run_verify(const void *values, int argc, char **argv)
{
    const verify_values *asked = values;
    char *lines = NULL;
    size_t size = 0;
    line_sink sink = {.stream = asked->json ? open_memstream(&lines, &size) : stdout,
                      .json = asked->json};
    sonde_verify_report report = {0};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    (void)argc;
    if (sink.stream == NULL) {
        return cli_fail_text("verify: out of memory");
    }
    err = sonde_trial_verify(argv[0], &report, asked->quiet ? NULL : print_line, &sink,
                             &diag);
    if (asked->json) {
        (void)fclose(sink.stream);
    }
    if (err == SONDE_OK && asked->json) {
        print_report_json(&report, lines);
    } else if (err == SONDE_OK && !asked->quiet) {
        print_report(&report);
    }
    free(lines);
    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    return report.damaged > 0 ? CLI_VERDICT : CLI_OK;
}

static const cli_option verify_options[] = {
    {"json", 0, CLI_FLAG, NULL, "print one JSON object", offsetof(verify_values, json)},
    {"quiet", 'q', CLI_FLAG, NULL, "print nothing; the exit code is the result",
     offsetof(verify_values, quiet)},
};

const cli_command cli_verify = {
    .name = "verify",
    .arguments = "RUN",
    .summary = "check every hash of a run and report damage",
    .details =
        "Reads the whole run and prints one line for each damaged part, then the totals.\n"
        "The exit code is 0 without damage, also if the run crashed or is still being\n"
        "written; with damage it is 1.",
    .examples = "  sonde verify runs/first",
    .options = verify_options,
    .option_count = CLI_COUNT_OF(verify_options),
    .least = 1,
    .most = 1,
    .values_size = sizeof(verify_values),
    .run = run_verify,
};
