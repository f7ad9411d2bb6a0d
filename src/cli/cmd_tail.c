/*
 * cmd_tail.c - `sonde tail`: a line for each step of a run, which may still be written.
 *
 * Following polls: every 25 ms the trial checks whether its files have grown, which takes
 * a few microseconds if not. A step is printed when all workers have ended it.
 */
#include "cli/run_reading.h"
#include "base/fail.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

enum { POLL_MS = 25, USUAL_LINES = 10 };

typedef struct tail_values {
    const char *stats, *mode;
    int64_t lines, worker;
    bool follow, json, time;
} tail_values;

typedef struct tail {
    const tail_values *asked;
    const char *selector; /* NULL: losses and scalars */
    sonde_trial *trial;
    cli_range range;
    cli_stats stats;
    uint32_t *ids; /* selected from a catalogue of known tensors */
    size_t id_count;
    uint32_t known;
    int64_t printed; /* the last step; -1: none */
    size_t went_back;
    size_t left_out;
} tail;

/* --- tensors ---------------------------------------------------------------------- */

/* Resolves again when there are new tensors. A name unknown in a live run may still
 * come. */
static sonde_err select_tensors(tail *t, bool live, sonde_diag *diag)
{
    const uint32_t count = sonde_catalogue_count(sonde_trial_catalogue(t->trial));
    const char *text = t->selector != NULL ? t->selector : "@loss,@scalar";
    uint32_t *ids = NULL;
    size_t id_count = 0;
    sonde_err err = SONDE_OK;

    if (count == t->known && count > 0) {
        return SONDE_OK;
    }
    err = cli_resolve(t->trial, text, &ids, &id_count, diag);
    if (err == SONDE_ENOTFOUND && live && t->asked->follow && count == 0) {
        return SONDE_OK;
    }
    if (err != SONDE_OK) {
        return err;
    }
    sonde_release(t->ids);
    t->ids = ids;
    t->id_count = id_count;
    t->known = count;
    return SONDE_OK;
}

/* --- a line ----------------------------------------------------------------------- */

static void print_value(const tail *t, const char *name, const sonde_reduction *reduction,
                        const sonde_reduced *value)
{
    char text[64];

    if (!t->asked->json) {
        (void)printf("  %s ", name);
        if (reduction->kind == SONDE_REDUCTION_HASH) {
            (void)printf("%s", cli_reduced_text(reduction, value, text, sizeof text));
        } else {
            (void)printf("%.6g", value->number);
        }
        return;
    }
    if (reduction->kind == SONDE_REDUCTION_HASH) {
        sonde_json_string(cli_json(), name,
                          cli_reduced_text(reduction, value, text, sizeof text));
    } else {
        sonde_json_real(cli_json(), name, value->number);
    }
}

/* Prints a tensor at a step: a single number itself, otherwise its statistics. */
static sonde_err print_tensor(tail *t, uint32_t id, int64_t step, sonde_diag *diag)
{
    const sonde_tensor_info *info =
        sonde_catalogue_info(sonde_trial_catalogue(t->trial), id);
    const sonde_trial_at place = {.mode = t->range.mode,
                                  .step = step,
                                  .worker = t->range.worker,
                                  .micro_batch = -1,
                                  .replica = -1};
    const sonde_reduction itself = sonde_reduction_of_stat(SONDE_STAT_MEAN);
    const bool whole = cli_is_number(info);
    const unsigned has = sonde_trial_has(t->trial, id, &place);

    for (size_t i = 0; i < (whole ? 1 : t->stats.count); i++) {
        const sonde_reduction *reduction = whole ? &itself : &t->stats.item[i];
        char text[SONDE_DIAG_LINE];
        sonde_reduced value;
        sonde_err err = SONDE_OK;

        if ((has & sonde_reduction_evidence(reduction)) == 0) {
            continue;
        }
        err = sonde_trial_reduce(t->trial, id, &place, reduction, &value, diag);
        if (err == SONDE_EFORMAT ||
            err == SONDE_EUNSUPPORTED) { /* continue with the others */
            cli_left_out(&t->left_out, sonde_diag_line(diag, text, sizeof text));
            return SONDE_OK;
        }
        if (err != SONDE_OK) {
            return err;
        }
        (void)snprintf(text, sizeof text, "%s%s%s", info->name, whole ? "" : "/",
                       whole ? "" : reduction->name);
        print_value(t, text, reduction, &value);
    }
    return SONDE_OK;
}

static void print_head(const tail *t, int64_t global, sonde_mode mode, int64_t mode_step)
{
    char moment[32];
    int64_t time = 0;
    const bool timed = sonde_trial_step_time(t->trial, SONDE_MODE_GLOBAL, global,
                                             t->range.worker, &time);

    if (t->asked->json) {
        sonde_json_object(cli_json(), NULL);
        CLI_PUT(cli_json(), cli_int("step", global),
                cli_text("mode", sonde_mode_name(mode)), cli_int("mode_step", mode_step),
                timed ? cli_time("time", time) : cli_none());
        return;
    }
    if (timed && t->asked->time) {
        (void)printf("%s  ", cli_moment_text(time, moment, sizeof moment));
    }
    (void)printf("step %" PRId64 "  %s %" PRId64, global, sonde_mode_name(mode),
                 mode_step);
}

static void end_line(const tail *t)
{
    if (t->asked->json) {
        sonde_json_end(cli_json());
        cli_json_print("\n");
    } else {
        (void)putchar('\n');
    }
}

static sonde_err print_step(tail *t, int64_t step, sonde_diag *diag)
{
    sonde_mode mode = t->range.mode;
    int64_t mode_step = step, global = step;

    if (mode == SONDE_MODE_GLOBAL) {
        (void)sonde_trial_mode_step(t->trial, step, &mode, &mode_step);
    } else {
        (void)sonde_trial_global_step(t->trial, mode, step, &global);
    }
    print_head(t, global, mode, mode_step);
    for (size_t i = 0; i < t->id_count; i++) {
        const sonde_err err = print_tensor(t, t->ids[i], step, diag);

        if (err != SONDE_OK) {
            end_line(t);
            return err;
        }
    }
    end_line(t);
    t->printed = step;
    return SONDE_OK;
}

/* Goes back to a printed step if the run was resumed from it. */
static sonde_err go_back(tail *t, sonde_diag *diag)
{
    const sonde_mode mode = t->range.mode;
    int64_t global = 0, step = 0, there = 0;

    if (!sonde_trial_went_back(t->trial, &t->went_back, &global)) {
        return SONDE_OK;
    }
    step = global;
    if (mode != SONDE_MODE_GLOBAL) { /* the first step of the mode from there on */
        size_t count = 0;
        const int64_t *steps = NULL;
        SONDE__TRY(cli_steps(t->trial, mode, true, &steps, &count, diag));
        step = count > 0 ? steps[count - 1] + 1 : 0;
        while (count > 0 &&
               sonde_trial_global_step(t->trial, mode, steps[count - 1], &there) &&
               there >= global) {
            step = steps[--count];
        }
    }
    if (step <= t->printed) {
        (void)printf(t->asked->json ? "{\"resumed\": %" PRId64 "}\n"
                                    : "resumed from step %" PRId64
                                      ": lines above from that step on are superseded\n",
                     global);
        t->printed = step - 1;
    }
    return SONDE_OK;
}

/* Prints the complete steps not yet printed; the first time, only the last few. */
static sonde_err print_new(tail *t, bool first, sonde_diag *diag)
{
    const int64_t lines = t->asked->lines;
    const size_t most = lines == CLI_NOT_GIVEN ? USUAL_LINES : (size_t)lines;
    size_t count = 0, low = 0;
    const int64_t *steps = NULL;
    SONDE__TRY(cli_steps(t->trial, t->range.mode, false, &steps, &count, diag));
    size_t high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (steps[middle] <= t->printed) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (first && count > most) {
        low = count - most;
    }
    if (first && low > 0) {
        t->printed = steps[low - 1];
    }
    for (size_t i = low; i < count && !cli_interrupted(); i++) {
        SONDE__TRY(print_step(t, steps[i], diag));
    }
    (void)fflush(stdout);
    return SONDE_OK;
}

/* --- following -------------------------------------------------------------------- */

static void pause_poll(void)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};

    (void)nanosleep(&pause, NULL);
}

/* Prints what is new in the run. */
static sonde_err print_changes(tail *t, bool first, bool live, sonde_diag *diag)
{
    SONDE__TRY(select_tensors(t, live, diag));
    SONDE__TRY(go_back(t, diag));
    return print_new(t, first, diag);
}

static sonde_err follow(tail *t, sonde_run_info *info, sonde_diag *diag)
{
    bool first = true, changed = true, live = true;

    for (;;) {
        SONDE__TRY(first ? SONDE_OK : sonde_trial_refresh(t->trial, &changed, diag));
        sonde_trial_describe(t->trial, info);
        live = info->status == SONDE_RUN_RUNNING;
        SONDE__TRY(changed ? print_changes(t, first, live, diag) : SONDE_OK);
        if (!t->asked->follow || !live || cli_interrupted() || ferror(stdout) != 0) {
            return SONDE_OK;
        }
        first = false;
        pause_poll();
    }
}

static sonde_err start(tail *t, const char *run, sonde_diag *diag)
{
    SONDE__TRY(cli_stats_parse(t->asked->stats, "mean,std,min,max", &t->stats, diag));
    SONDE__TRY(cli_range_parse(t->asked->mode, NULL, t->asked->worker, &t->range, diag));
    return sonde_trial_open(run, NULL, &t->trial, diag);
}

static int run_tail(const void *values, int argc, char **argv)
{
    tail t = {.asked = values, .selector = argc > 1 ? argv[1] : NULL, .printed = -1};
    sonde_run_info info = {0};
    sonde_diag diag = {0};
    sonde_err err = start(&t, argv[0], &diag);
    int code = CLI_OK;

    if (err != SONDE_OK) {
        code = cli_fail(&diag);
        goto done;
    }
    cli_catch_interrupt();
    err = follow(&t, &info, &diag);
    if (err != SONDE_OK) {
        code = cli_fail(&diag);
    } else if (cli_interrupted()) {
        code = CLI_INTERRUPTED;
    } else if (t.asked->follow && cli_warn_crashed(t.trial, argv[0])) {
        code = CLI_VERDICT;
    } else {
        code = cli_left_out_end(t.left_out);
    }

done:
    sonde_release(t.ids);
    sonde_trial_close(t.trial);
    return code;
}

#define OPTION(...) CLI_OPTION(tail_values, __VA_ARGS__)

static const cli_option tail_options[] = {
    OPTION("follow", 'f', CLI_FLAG, NULL, follow, "print new steps until the run ends"),
    OPTION("lines", 'n', CLI_COUNT, "N", lines, "start with the last N steps (10)"),
    OPTION("stat", 0, CLI_TEXT, "STAT[,STAT...]", stats,
           "print these statistics of larger tensors (mean,std,min,max)"),
    OPTION("mode", 'm', CLI_TEXT, "MODE", mode,
           "read the steps of train, eval or predict (global: all modes)"),
    OPTION("worker", 'w', CLI_COUNT, "RANK", worker,
           "read this worker (default: the first that has the tensor)"),
    OPTION("time", 0, CLI_FLAG, NULL, time, "start each line with the time of its step"),
    OPTION("format", 0, CLI_FORMAT, "text|json", json,
           "print text, or one JSON object per line (text)"),
};

const cli_command cli_tail = {
    .name = "tail",
    .arguments = "RUN [TENSORS]",
    .summary = "print a line for each step of a run, also while it is written",
    .details =
        "TENSORS is a selector; without it, losses and scalars are printed. With --follow the\n"
        "exit code is 0 when the run has ended, and 1 if its writer disappeared before "
        "that." CLI_STATISTICS,
    .examples = "  sonde tail runs/first --follow\n"
                "  sonde tail runs/first 'Gradient___*.weight' --stat l2 --lines 100",
    .options = tail_options,
    .option_count = CLI_COUNT_OF(tail_options),
    .least = 1,
    .most = 2,
    .values_size = sizeof(tail_values),
    .run = run_tail,
};
