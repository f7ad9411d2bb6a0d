/*
 * cmd_train.c - `sonde train`: trains a job with a trainer, prints its events, draws
 * pictures.
 */
#include "cli/cli_findings.h"
#include "base/fail.h"
#include "cli/cli_job.h"
#include "cli/run_reading.h"

#include <sonde/nn/job.h>
#include <sonde/nn/ranks.h>
#include <sonde/print.h>

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { ROWS = 80 }; /* room for the options of the library's table */

/* What the command line gives for a row of that table. */
typedef struct given {
    const char *text;
    bool flag;
    cli_list list;
} given;

typedef struct train_values {
    given rows[ROWS];
    const char *out, *resume;
    cli_list print;
    bool no_eval, no_pictures, json, quiet, print_options;
} train_values;

typedef struct training {
    const train_values *asked;
    train_values muted;    /* of a rank after the first, which prints for all */
    sonde_nn_ranks *ranks; /* NULL: one process */
    sonde_nn_job *job;
    sonde_nn_trainer *trainer;
    sonde_printer *printer;
    const char *out;
    bool silent; /* no progress, no lines for people */
    cli_progress progress;
    bool drawing; /* the progress */
    char title[48], note[48];
    int64_t calls; /* done */
    bool saved_model, saved_checkpoint;
    cli_list pictures; /* that were drawn */
    cli_curve losses, evaluations;
    cli_finding_log findings;
} training;

/* --- progress --------------------------------------------------------------------- */

static void end_progress(training *run)
{
    if (run->drawing) {
        cli_progress_end(&run->progress);
        run->drawing = false;
    }
}

static void begin_progress(training *run, const char *title, int64_t total)
{
    end_progress(run);
    cli_progress_begin(&run->progress, title, "samples", total, run->silent);
    run->drawing = true;
}

/* --- events ----------------------------------------------------------------------- */

/* The samples that evaluations take, unless it is the whole test set. */
static void on_begin(void *user, const sonde_nn_trainer_plan *plan)
{
    const training *run = user;
    char some[32], all[32];

    if (plan->eval_set == NULL || run->silent) {
        return;
    }
    (void)cli_commas((uint64_t)plan->eval_all, all);
    if (plan->eval_samples < plan->eval_all) {
        (void)printf("epochs are evaluated on %s of %s %s samples (--eval-samples)\n",
                     cli_commas((uint64_t)plan->eval_samples, some), all,
                     strcmp(plan->eval_set, "val") == 0 ? "held-out" : "test");
    } else if (strcmp(plan->eval_set, "val") == 0) {
        (void)printf("epochs are evaluated on %s held-out samples\n", all);
    }
    (void)fflush(stdout);
}

static void on_epoch_begin(void *user, const sonde_nn_epoch *epoch)
{
    training *run = user;

    (void)snprintf(run->title, sizeof run->title, "epoch %d/%d", epoch->number + 1,
                   epoch->count);
    run->note[0] = '\0';
    begin_progress(run, run->title, epoch->samples);
}

static sonde_err on_step(void *user, const sonde_nn_step *step, sonde_diag *diag)
{
    training *run = user;

    if (run->progress.terminal && (step->call & 63) == 0) {
        (void)snprintf(run->note, sizeof run->note, "loss %.4f", step->mean);
    }
    cli_progress_update(&run->progress, step->samples, run->note);
    run->calls = step->call + 1;
    return cli_curve_add(&run->losses, (double)step->call, step->loss, diag);
}

static void on_evaluating(void *user, int64_t done, int64_t total)
{
    training *run = user;

    if (!run->drawing || run->progress.title == run->title) {
        begin_progress(run, "evaluating", total);
    }
    cli_progress_update(&run->progress, done, NULL);
    if (done == total) {
        end_progress(run);
    }
}

static void print_epoch_json(const sonde_nn_epoch *epoch, double rate)
{
    sonde_json *const json = cli_json();

    sonde_json_object(json, NULL);
    CLI_PUT(json, cli_text("event", "epoch"), cli_int("epoch", epoch->number + 1),
            cli_int("step", epoch->step), cli_real("loss", 9, epoch->loss));
    if (epoch->eval_set != NULL) {
        CLI_PUT(json, cli_text("eval_set", epoch->eval_set));
        cli_put_score(json, "eval_", &epoch->score);
    }
    CLI_PUT(json, cli_fixed("seconds", 6, epoch->seconds),
            cli_fixed("samples_per_second", 1, rate));
    sonde_json_end(json);
    cli_json_print("\n");
}

static sonde_err on_epoch_end(void *user, const sonde_nn_epoch *epoch, sonde_diag *diag)
{
    training *run = user;
    const char *set = epoch->eval_set;
    const double rate =
        epoch->seconds > 0.0 ? (double)epoch->samples / epoch->seconds : 0.0;

    end_progress(run);
    if (run->asked->json) {
        print_epoch_json(epoch, rate);
    } else if (!run->asked->quiet) {
        (void)printf("epoch %d/%d: loss %.4f", epoch->number + 1, epoch->count,
                     epoch->loss);
        if (set != NULL) {
            (void)printf(", %s loss %.4f, %s ", set, epoch->score.loss, set);
            (void)(epoch->score.tokens
                       ? printf("perplexity %.3f, accuracy %.2f%%",
                                epoch->score.perplexity, 100.0 * epoch->score.accuracy)
                   : epoch->score.classes
                       ? printf("accuracy %.2f%%", 100.0 * epoch->score.accuracy)
                       : printf("mean absolute error %.4f", epoch->score.error));
            if (!isnan(epoch->score.r2)) {
                (void)printf(", R2 %.4f", epoch->score.r2);
            }
        }
        (void)printf(", %.2f s, %.0f samples/s\n", epoch->seconds, rate);
    }
    (void)fflush(stdout);
    return set == NULL ? SONDE_OK
                       : cli_curve_add(&run->evaluations, (double)(run->calls - 1),
                                       epoch->score.loss, diag);
}

static void on_finding(void *user, const sonde_finding *finding, int epoch)
{
    training *run = user;

    cli_finding_log_put(&run->findings, finding, epoch);
}

static void on_acted(void *user, const sonde_finding *finding)
{
    (void)user;
    (void)finding;
    cli_log_omit_finding(false);
}

static void on_stopped(void *user, const sonde_request *request, int64_t step)
{
    training *run = user;

    end_progress(run);
    if (sonde_nn_ranks_rank(run->ranks) > 0) {
        return; /* the first has said it, and saved */
    }
    if (request == NULL) {
        cli_warn(
            "interrupted at step %lld; resume with --resume %s/checkpoint.safetensors",
            (long long)step, run->out);
        return;
    }
    if (run->asked->json) {
        CLI_LINE(cli_text("event", "stopped"), cli_int("step", step),
                 cli_text("by", request->by == SONDE_BY_RULE ? "rule" : "user"),
                 cli_text("text", request->text));
    }
    cli_warn("stopped after %lld step%s: %.*s; resume with --resume "
             "%s/checkpoint.safetensors",
             (long long)step, step == 1 ? "" : "s", cli_sentence(request->text),
             request->text, run->out);
}

static void on_checkpoint(void *user, const char *path, int64_t step)
{
    training *run = user;

    (void)path;
    (void)step;
    run->saved_checkpoint = true;
}

static void on_saved(void *user, const char *path)
{
    training *run = user;

    (void)path;
    run->saved_model = true;
}

/* Of the final score: the samples held out of training if the data has no test set. */
static const sonde_nn_dataset *scored_set(const training *run, const char **name)
{
    const sonde_nn_dataset *test = sonde_nn_trainer_get_info(run->trainer).test;

    *name = test != NULL ? "test" : "val";
    return test != NULL ? test : sonde_nn_trainer_get_info(run->trainer).train;
}

static void on_scored(void *user, const sonde_nn_score *score,
                      const sonde_nn_confusion *matrix)
{
    training *run = user;
    const char *name = NULL;
    const sonde_nn_dataset *set = scored_set(run, &name);

    end_progress(run);
    if (run->asked->json) {
        sonde_json *const json = cli_json();

        sonde_json_object(json, NULL);
        CLI_PUT(json, cli_text("event", "eval"), cli_text("eval_set", name));
        cli_put_score(json, "", score);
        sonde_json_end(json);
        cli_json_print("\n");
    } else if (sonde_nn_ranks_rank(run->ranks) == 0) {
        cli_print_scores(score, matrix, set, run->asked->quiet);
    }
}

static sonde_err open_data(void *user, sonde_nn_split split, sonde_nn_dataset **out,
                           sonde_diag *diag)
{
    const training *run = user;
    const sonde_nn_job_info *info = sonde_nn_job_get_info(run->job);
    const char *asked = info->data_name;
    SONDE__TRY(cli_data_open(run->job, split, run->asked->quiet, out, diag));
    if (run->asked->json && strcmp(info->data_name, asked) != 0) {
        CLI_LINE(cli_text("event", "stand_in"), cli_text("data", info->data_name),
                 cli_text("stands_for", asked));
    }
    return SONDE_OK;
}

/* --- setting up ------------------------------------------------------------------- */

/* An option that the library names, as the flag that the user gave. */
static sonde_err name_flag(sonde_err err, sonde_diag *diag)
{
    const sonde_nn_option *row = NULL;

    for (size_t i = 0; err != SONDE_OK && (row = sonde_nn_option_at(i)) != NULL; i++) {
        if (strcmp(diag->where, row->name) == 0) {
            size_t used =
                (size_t)snprintf(diag->where, sizeof diag->where, "--%s", row->name);

            while (used-- > 0) {
                diag->where[used] = diag->where[used] == '_' ? '-' : diag->where[used];
            }
            break;
        }
    }
    return err;
}

static sonde_err set_option(const training *run, const sonde_nn_option *row,
                            const given *value, sonde_diag *diag)
{
    const char *text = value->flag ? "true" : value->text;

    if (text != NULL) {
        return sonde_nn_job_set(run->job, row->name, text, diag);
    }
    for (size_t i = 0; i < value->list.count; i++) {
        SONDE__TRY(sonde_nn_job_set(run->job, row->name, value->list.text[i], diag));
    }
    return SONDE_OK;
}

static sonde_err set_options(const training *run, sonde_diag *diag)
{
    const sonde_nn_option *row = NULL;

    for (size_t i = 0; (row = sonde_nn_option_at(i)) != NULL; i++) {
        SONDE__TRY(set_option(run, row, &run->asked->rows[i], diag));
    }
    return SONDE_OK;
}

static sonde_err make_trainer(training *run, const char *job, sonde_diag *diag)
{
    const train_values *values = run->asked;
    const sonde_nn_trainer_options options = {
        .size = sizeof options,
        .events = {.user = run,
                   .begin = on_begin,
                   .epoch_begin = on_epoch_begin,
                   .step = on_step,
                   .evaluating = on_evaluating,
                   .epoch_end = on_epoch_end,
                   .checkpoint = on_checkpoint,
                   .saved = on_saved,
                   .finding = on_finding,
                   .acted = on_acted,
                   .stopped = on_stopped,
                   .scored = on_scored,
                   .warning = cli_on_warning,
                   .interrupted = cli_is_interrupted},
        .out = run->out,
        .resume = values->resume,
        .no_evaluation = values->no_eval,
        .ranks = run->ranks,
        .program = "sonde train",
        .run_model = cli_job_built_in(job),
        .open_data = open_data};

    SONDE__TRY(sonde_nn_trainer_create(run->job, &options, &run->trainer, diag));
    if (sonde_nn_trainer_get_info(run->trainer).actions != NULL) {
        cli_actions_log();
    }
    return SONDE_OK;
}

/* Taps for --print's selectors and for the job's entries of `observe`. */
static sonde_err add_prints(training *run, sonde_diag *diag)
{
    const cli_list *list = &run->asked->print;
    const size_t taps = sonde_nn_job_get_info(run->job)->tap_count;
    const sonde_schedule always = sonde_schedule_every(1);
    sonde_nn_session *session = sonde_nn_trainer_get_info(run->trainer).session;

    if (taps + list->count == 0) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde_printer_create(NULL, NULL, &run->printer, diag));
    for (size_t i = 0; i < list->count; i++) {
        SONDE__TRY(sonde_nn_session_tap(session, list->text[i], &always, SONDE_HOW_RAW,
                                        sonde_printer_sink(run->printer), diag));
    }
    for (size_t i = 0; i < taps; i++) {
        const sonde_nn_job_tap *tap = &sonde_nn_job_get_info(run->job)->taps[i];
        const sonde_schedule schedule = {
            .every = tap->every, .start = tap->start, .end = tap->end};

        SONDE__TRY(sonde_nn_session_tap(session, tap->tensors, &schedule, SONDE_HOW_RAW,
                                        sonde_printer_sink(run->printer), diag));
    }
    return SONDE_OK;
}

/* Processes that mpirun has started train together; the first one prints and draws. */
static sonde_err join_ranks(training *run, sonde_diag *diag)
{
    if (sonde_nn_ranks_started() == 1) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde_nn_ranks_join(cli_is_interrupted, NULL, &run->ranks, diag));
    cli_set_rank(sonde_nn_ranks_rank(run->ranks));
    if (sonde_nn_ranks_rank(run->ranks) == 0) {
        return SONDE_OK;
    }
    run->muted = *run->asked;
    run->muted.quiet = run->muted.no_pictures = true;
    run->muted.json = run->findings.json = false;
    run->asked = &run->muted;
    run->silent = true;
    return SONDE_OK;
}

/* The job after its flags. */
static sonde_err open_job(training *run, const char *job, sonde_diag *diag)
{
    const sonde_err err = cli_job_open(job, &run->job, diag);

    return err == SONDE_OK ? set_options(run, diag) : err;
}

static sonde_err set_up(training *run, const char *job, sonde_diag *diag)
{
    SONDE__TRY(join_ranks(run, diag));
    SONDE__TRY(open_job(run, job, diag));
    SONDE__TRY(cli_make_folder(run->out, diag));
    sonde_nn_job_get_info(run->job)->options.on_progress =
        run->silent ? NULL : cli_compile_progress;
    SONDE__TRY(make_trainer(run, job, diag));
    return add_prints(run, diag);
}

/* --- running ---------------------------------------------------------------------- */

static void draw_pictures(training *run)
{
    const cli_pictures pictures = {.out = run->out,
                                   .train = sonde_nn_trainer_get_info(run->trainer).train,
                                   .test = sonde_nn_trainer_get_info(run->trainer).test,
                                   .losses = &run->losses,
                                   .evaluations = &run->evaluations,
                                   .matrix =
                                       sonde_nn_trainer_get_info(run->trainer).matrix};

    cli_draw_pictures(&pictures, &run->pictures);
}

static void print_saved(const training *run)
{
    const bool any = run->saved_model || run->saved_checkpoint || run->pictures.count > 0;
    const char *separator = ": ";

    if (!any) {
        return;
    }
    (void)printf("Saved to %s", run->out);
    if (run->saved_model) {
        (void)printf("%smodel.safetensors", separator);
        separator = ", ";
    }
    if (run->saved_checkpoint) {
        (void)printf("%scheckpoint.safetensors", separator);
        separator = ", ";
    }
    for (size_t i = 0; i < run->pictures.count; i++) {
        (void)printf("%s%s", separator, run->pictures.text[i]);
        separator = ", ";
    }
    (void)printf("\n");
}

/* What --print-options prints: the job's, after its flags and the environment. */
static sonde_err print_options(training *run, const char *job, sonde_diag *diag)
{
    SONDE__TRY(open_job(run, job, diag));
    SONDE__TRY(sonde_nn_job_set_environment(run->job, diag));
    return sonde_nn_job_print(run->job, run->asked->json, stdout, diag);
}

/* How long the calls of the training session took. */
static void print_latency(const training *run)
{
    sonde_nn_session_info info;
    sonde_diag diag;

    if (sonde_nn_session_describe(sonde_nn_trainer_get_info(run->trainer).session, &info,
                                  &diag) != SONDE_OK) {
        return;
    }
    CLI_LINE(cli_text("event", "latency"), cli_int("calls", info.latency.calls),
             cli_fixed("minimum", 9, info.latency.minimum),
             cli_fixed("mean", 9, info.latency.mean),
             cli_fixed("median", 9, info.latency.median),
             cli_fixed("p90", 9, info.latency.p90), cli_fixed("p99", 9, info.latency.p99),
             cli_fixed("maximum", 9, info.latency.maximum));
}

static sonde_err train(training *run, const char *job, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    if (run->asked->print_options) {
        return name_flag(print_options(run, job, diag), diag);
    }
    err = set_up(run, job, diag);

    if (err != SONDE_OK) {
        return name_flag(err, diag);
    }
    err = sonde_nn_trainer_run(run->trainer, diag);
    end_progress(run);
    if (err != SONDE_OK) {
        return name_flag(err, diag);
    }
    if (run->asked->json) {
        print_latency(run);
    }
    if (sonde_nn_ranks_rank(run->ranks) == 0) {
        cli_print_verdict(run->trainer, run->asked->json);
    }
    if (!run->asked->no_pictures) {
        draw_pictures(run);
    }
    if (!run->silent) {
        print_saved(run);
    }
    return SONDE_OK;
}

static int run_train(const void *values, int argc, char **argv)
{
    const train_values *asked = values;
    training run = {.asked = asked,
                    .out = asked->out != NULL ? asked->out : "sonde-out",
                    .silent = asked->quiet || asked->json,
                    .findings = {.json = asked->json}};
    const sonde_request *stopped = NULL;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;
    int code = CLI_OK;

    cli_catch_interrupt();
    err = train(&run, argc > 0 ? argv[0] : NULL, &diag);
    stopped = run.trainer != NULL ? sonde_nn_trainer_get_info(run.trainer).stopped : NULL;
    if (err != SONDE_OK) {
        goto done;
    }
    if (stopped != NULL) {
        code = stopped->by == SONDE_BY_RULE ? CLI_VERDICT : CLI_INTERRUPTED;
    }

done:
    sonde_nn_trainer_destroy(run.trainer);
    sonde_nn_ranks_leave(run.ranks, err == SONDE_OK);
    sonde_printer_destroy(run.printer);
    sonde_nn_job_destroy(run.job);
    cli_curve_free(&run.losses);
    cli_curve_free(&run.evaluations);
    return err == SONDE_OK ? code : cli_fail(&diag);
}

/* --- options ---------------------------------------------------------------------- */

#define OPTION(...) CLI_OPTION(train_values, __VA_ARGS__)

/* clang-format off */
static const cli_option own_options[] = {
    OPTION("out", 'o', CLI_TEXT, "FOLDER", out, "write the model, the checkpoint and pictures to this folder (sonde-out)"),
    OPTION("resume", 0, CLI_MAYBE, "[FILE]", resume, "resume from a checkpoint (default: the one in --out) and continue its run"),
    OPTION("print", 'p', CLI_LIST, "TENSORS", print, "print these tensors at every step to stderr; repeatable"),
    OPTION("no-eval", 0, CLI_FLAG, NULL, no_eval, "do not evaluate"),
    OPTION("no-pictures", 0, CLI_FLAG, NULL, no_pictures, "do not draw pictures"),
    OPTION("print-options", 0, CLI_FLAG, NULL, print_options, "print all options as YAML, or JSON with --format json, and do not train"),
    OPTION("format", 0, CLI_FORMAT, "text|json", json, "print text, or one JSON object per line (text)"),
    OPTION("quiet", 'q', CLI_FLAG, NULL, quiet, "print only the result and errors"),
};
/* clang-format on */

static cli_option train_options[CLI_COUNT_OF(own_options) + ROWS];

/* The command's own options, then one for each row of the library's table. */
static void prepare_options(void)
{
    static char names[ROWS][32], helps[ROWS][160];
    const sonde_nn_option *row = NULL;

    memcpy(train_options, own_options, sizeof own_options);
    for (size_t i = 0; i < ROWS && (row = sonde_nn_option_at(i)) != NULL; i++) {
        const bool standard = row->standard != NULL && strcmp(row->standard, "0") != 0;
        const bool flag = row->kind == SONDE_NN_OPTION_FLAG;
        const bool list = row->kind == SONDE_NN_OPTION_TEXTS;
        const size_t field = flag   ? offsetof(given, flag)
                             : list ? offsetof(given, list)
                                    : offsetof(given, text);

        for (size_t k = 0; row->name[k] != '\0' && k + 1 < sizeof names[i]; k++) {
            names[i][k] = row->name[k] == '_' ? '-' : row->name[k];
        }
        (void)snprintf(helps[i], sizeof helps[i], "%s%s%s%s", row->help,
                       standard ? " (" : "", standard ? row->standard : "",
                       standard ? ")" : "");
        train_options[CLI_COUNT_OF(own_options) + i] = (cli_option){
            .name = names[i],
            .letter = row->letter,
            .kind = flag   ? CLI_FLAG
                    : list ? CLI_LIST
                           : CLI_TEXT,
            .argument = row->value,
            .help = helps[i],
            .offset = offsetof(train_values, rows) + i * sizeof(given) + field};
    }
}

const cli_command cli_train = {
    .prepare = prepare_options,
    .name = "train",
    .arguments = "[MODEL | JOB.yaml]",
    .summary = "train a network, evaluate it, judge it and draw pictures of it",
    .details =
        "MODEL is fashion_cnn (the default), autoencoder, gpt, lstm, mnist_mlp,\n"
        "mnist_mlp_small or resnet18;\n"
        "JOB.yaml describes any other network. Flags replace the values of the\n"
        "job.\n"
        "Ctrl-C and 'sonde stop' save a checkpoint and exit with code 130.\n"
        "--resume continues to the same bits as an uninterrupted run; steps\n"
        "recorded after the checkpoint are replaced. Without --resume, results of\n"
        "an earlier training in --out are kept as model.1.safetensors and so on.\n"
        "Every epoch ends with an evaluation on the test set, which does not\n"
        "change training. If you tune on these scores, hold out samples\n"
        "(--validation). The final score covers the whole test set.\n"
        "Rules check the run while it trains ('sonde rules list'). A finding\n"
        "is printed at once and, in a recorded run, kept in RUN/findings; a\n"
        "line at the end sums up. A finding matched by --stop-on stops\n"
        "training after that step; the final evaluation is skipped and the\n"
        "exit code is 1.",
    .examples = "  sonde train\n"
                "  sonde train fashion_cnn --epochs 1 --print 'Gradient___fc2.bias'\n"
                "  sonde train --record runs/first --record-every 100\n"
                "  sonde train --record runs/first --record-every 100 --resume\n"
                "  sonde train --stop-on error --on-finding 'command:notify-send Sonde'\n"
                "  sonde train job.yaml --resume sonde-out/checkpoint.safetensors",
    .options = train_options,
    .option_count = CLI_COUNT_OF(train_options),
    .most = 1,
    .values_size = sizeof(train_values),
    .run = run_train,
};
