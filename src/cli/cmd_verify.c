/*
 * cmd_verify.c - `sonde verify`: checks every hash of a run and reports damage and
 * losses.
 */
#include "cli/run_reading.h"

#include <inttypes.h>

typedef struct verify_values {
    bool json, quiet;
} verify_values;

static void print_damage(void *user, const char *text)
{
    (void)user;
    (void)puts(text);
}

static void put_damage(void *user, const char *text)
{
    sonde_json_string(user, NULL, text);
}

static void print_report(const sonde_verify_report *report)
{
    char bytes[128];

    (void)printf(
        "%" PRIu64 " values (%s), %" PRIu64 " vital signs, %" PRIu64 " sketches: ",
        report->records, cli_bytes_text((double)report->bytes, bytes, sizeof bytes),
        report->rows, report->sketches);
    if (report->damaged == 0) {
        (void)puts(report->unchecked ? "all can be decoded" : "no damage");
    } else {
        (void)printf("intact; %" PRIu64 " damaged\n", report->damaged);
    }
    if (report->unchecked) {
        (void)puts(
            "smdebug writes no checksums of values: a changed value cannot be seen");
    }
    if (report->crashed && report->unchecked) {
        (void)puts(cli_no_end_text(report->last_time, bytes, sizeof bytes));
    } else if (report->crashed) {
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

static void put_report(sonde_json *json, const sonde_verify_report *report)
{
    CLI_PUT(json, cli_uint("records", report->records), cli_uint("bytes", report->bytes),
            cli_uint("rows", report->rows), cli_uint("sketches", report->sketches),
            cli_uint("damaged", report->damaged), cli_uint("torn", report->torn),
            cli_uint("lost", report->lost), cli_bool("unchecked", report->unchecked),
            cli_bool("ended", report->ended), cli_bool("crashed", report->crashed),
            cli_bool("resumed", report->resumed),
            cli_uint("superseded", report->superseded));
}

static int run_verify(const void *values, int argc, char **argv)
{
    const verify_values *asked = values;
    sonde_json *const json = cli_json();
    sonde_verify_report report = {0};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    (void)argc;
    sonde_json_object(json, NULL);
    sonde_json_list(json, "messages");
    err = sonde_trial_verify(argv[0], &report,
                             asked->quiet  ? NULL
                             : asked->json ? put_damage
                                           : print_damage,
                             json, &diag);
    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    if (asked->json) {
        sonde_json_end(json);
        put_report(json, &report);
        sonde_json_end(json);
        cli_json_print("\n");
    } else if (!asked->quiet) {
        print_report(&report);
    }
    return report.damaged > 0 ? CLI_VERDICT : CLI_OK;
}

static const cli_option verify_options[] = {
    {"format", 0, CLI_FORMAT, "text|json", "print text, or one JSON object (text)",
     offsetof(verify_values, json)},
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
