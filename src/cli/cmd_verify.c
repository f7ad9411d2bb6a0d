/*
 * verify.c - `sonde verify`: every hash of a run, and what its writer lost.
 */
#include "cli/cli_run.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct verify_values {
    bool json, quiet;
} verify_values;

/* Lines go to a stream: stdout, or text that stands in a JSON list in the end. */
typedef struct telling {
    FILE *stream;
    bool json;
    size_t count;
} telling;

static void tell(void *user, const char *text)
{
    telling *to = user;

    if (to->json) {
        (void)fputs(to->count > 0 ? ", " : "", to->stream);
        cli_json_string(to->stream, text);
    } else {
        (void)fprintf(to->stream, "%s\n", text);
    }
    to->count++;
}

static void print_report(const sonde_verify_report *report)
{
    char bytes[32];

    (void)printf(
        "%" PRIu64 " values (%s), %" PRIu64 " vital signs, %" PRIu64 " sketches: ",
        report->records, cli_bytes_text((double)report->bytes, bytes, sizeof bytes),
        report->rows, report->sketches);
    if (report->damaged == 0) {
        (void)puts("all as they were written");
    } else {
        (void)printf("right; %" PRIu64 " damaged\n", report->damaged);
    }
    if (report->crashed) {
        (void)printf("the run crashed: %" PRIu64 " records were cut off as they were "
                     "written, everything before is there\n",
                     report->torn);
    } else if (report->torn > 0) {
        (void)printf("%" PRIu64 " records are cut off\n", report->torn);
    }
    if (report->resumed) {
        (void)printf("the run was gone on with: %" PRIu64
                     " of these count no more, as later ones took their place\n",
                     report->superseded);
    }
    if (report->lost > 0) {
        (void)printf("the writer lost %" PRIu64 " records before they were written\n",
                     report->lost);
    }
    if (!report->ended && !report->crashed) {
        (void)puts("the run is being written");
    }
}

static void print_report_json(const sonde_verify_report *report, const char *told)
{
    (void)printf(
        "{\"told\": [%s], \"records\": %" PRIu64 ", \"bytes\": %" PRIu64
        ", \"rows\": %" PRIu64 ", \"sketches\": %" PRIu64 ", \"damaged\": %" PRIu64
        ", \"torn\": %" PRIu64 ", \"lost\": %" PRIu64
        ", \"ended\": %s, \"crashed\": %s, \"resumed\": %s, \"superseded\": %" PRIu64
        "}\n",
        told, report->records, report->bytes, report->rows, report->sketches,
        report->damaged, report->torn, report->lost, report->ended ? "true" : "false",
        report->crashed ? "true" : "false", report->resumed ? "true" : "false",
        report->superseded);
}

static int run_verify(const void *values, int argc, char **argv)
{
    const verify_values *asked = values;
    char *told = NULL;
    size_t size = 0;
    telling to = {.stream = asked->json ? open_memstream(&told, &size) : stdout,
                  .json = asked->json};
    sonde_verify_report report = {0};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    (void)argc;
    if (to.stream == NULL) {
        return cli_fail_text("verify: out of memory");
    }
    err = sonde_trial_verify(argv[0], &report, asked->quiet ? NULL : tell, &to, &diag);
    if (asked->json) {
        (void)fclose(to.stream);
    }
    if (err == SONDE_OK && asked->json) {
        print_report_json(&report, told);
    } else if (err == SONDE_OK && !asked->quiet) {
        print_report(&report);
    }
    free(told);
    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    return report.damaged > 0 ? CLI_VERDICT : CLI_OK;
}

static const cli_option verify_options[] = {
    {"json", 0, CLI_FLAG, NULL, "one JSON object on stdout",
     offsetof(verify_values, json)},
    {"quiet", 'q', CLI_FLAG, NULL, "say nothing: the exit code tells",
     offsetof(verify_values, quiet)},
};

const cli_command cli_verify = {
    .name = "verify",
    .arguments = "RUN",
    .summary = "check every hash of a run, and say what a crash cost",
    .details =
        "Reads everything. Names what is damaged, one line for each, and then counts.\n"
        "Exit code 0 if nothing is damaged: also of a run that crashed, or is being "
        "written.\n1 if something is.",
    .examples = "  sonde verify runs/first",
    .options = verify_options,
    .option_count = CLI_COUNT_OF(verify_options),
    .least = 1,
    .most = 1,
    .values_size = sizeof(verify_values),
    .run = run_verify,
};
