/*
 * cmd_demo.c - `sonde demo`: trains a network that goes wrong, records it, and prints
 * what the rules find and why.
 */
#include "cli/cli_findings.h"
#include "cli/run_reading.h"
#include "base/fail.h"
#include "cli/demo.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 3072, SHOWN = 3 };

typedef struct demo_values {
    const char *record, *hook_type, *data, *rules;
    int64_t seed, threads;
    double learning_rate;
    bool fixed, quiet;
} demo_values;

typedef struct showing {
    const demo_values *asked;
    const cli_demo_file *file;
    sonde_nn_job *job;
    const sonde_nn_demo *demo;
    char run[PATH_SIZE], other[PATH_SIZE + 8]; /* other: the second of a pair */
    sonde_rules *rules;                        /* NULL: no judging */
    sonde_trial *trial;                        /* judged after training; NULL: none */
    cli_finding_log printed;
    size_t findings;
    bool as_expected; /* the rules found what the demo is for */
    bool lacked;      /* its rule lacked data */
} showing;

/* --- which, and where to ---------------------------------------------------------- */

static const cli_demo_file *find_demo(const char *name)
{
    for (size_t i = 0; cli_demo_files[i].name != NULL; i++) {
        if (strcmp(name, cli_demo_files[i].name) == 0) {
            return &cli_demo_files[i];
        }
    }
    return NULL;
}

static int fail_name(const char *name)
{
    enum { MOST = 64 };
    const char *names[MOST], *nearest = NULL;
    size_t count = 0;

    for (; cli_demo_files[count].name != NULL && count < MOST; count++) {
        names[count] = cli_demo_files[count].name;
    }
    nearest = sonde_diag_nearest(name, names, count);
    return cli_fail_text("unknown demo '%s' (expected %s)", name,
                         nearest != NULL ? nearest : "one that 'sonde demo list' lists");
}

/* The folder on the command line, without slashes at its end; else the first free one. */
static sonde_err choose_run(showing *show, sonde_diag *diag)
{
    const demo_values *values = show->asked;
    const char *given = values->record;
    const char *fixed = values->fixed ? "-fixed" : "";
    int length = 0;

    if (given != NULL) {
        length = snprintf(show->run, sizeof show->run, "%s", given);
    } else {
        length = snprintf(show->run, sizeof show->run, "sonde-demo/%s%s",
                          show->file->name, fixed);
        for (int i = 2; access(show->run, F_OK) == 0; i++) {
            length = snprintf(show->run, sizeof show->run, "sonde-demo/%s%s-%d",
                              show->file->name, fixed, i);
        }
    }
    if (length < 0 || (size_t)length >= sizeof show->run) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--record", NULL,
                              "a path that is too long");
    }
    while (length > 1 && show->run[length - 1] == '/') {
        show->run[--length] = '\0';
    }
    (void)snprintf(show->other, sizeof show->other, "%s-other", show->run);
    return SONDE_OK;
}

/* --- printing ---------------------------------------------------------------------- */

/* A text beside a heading, in lines of at most 88 letters. */
static void print_lines(const char *heading, const char *text)
{
    enum { INDENT = 10, WIDTH = 78 };

    (void)printf("  %-*s", INDENT - 2, heading);
    while (*text != '\0') {
        size_t length = strlen(text);

        if (length > WIDTH) {
            length = WIDTH;
            while (length > 1 && text[length] != ' ') {
                length--;
            }
        }
        (void)printf("%.*s\n", (int)length, text);
        text += length;
        text += strspn(text, " ");
        if (*text != '\0') {
            (void)printf("%*s", INDENT, "");
        }
    }
}

static void introduce(const showing *show)
{
    const sonde_nn_demo *it = show->demo;

    if (show->asked->quiet) {
        return;
    }
    (void)printf("%s%s\n", show->file->name, show->asked->fixed ? ", repaired" : "");
    print_lines("what", it->what);
    print_lines("why", it->why);
    print_lines("repair", it->repair);
    if (it->rule != NULL) {
        print_lines("rule", it->rule);
    }
}

/* A line for each finding, of a rule for the first few; of the demo's own rule also for those
 * that follow from others. */
static void on_finding(void *user, const sonde_finding *finding, int epoch)
{
    showing *show = user;
    cli_finding_share share = CLI_FINDING_NONE;
    sonde_finding counted = *finding;
    char where[1024];

    if (show->asked->quiet) {
        return;
    }
    if (show->demo->rule != NULL && strcmp(show->demo->rule, finding->rule) == 0) {
        counted.because_of = 0;
    }
    share = cli_finding_count(&show->printed, &counted);
    if (share == CLI_FINDING_NONE) {
        return;
    }
    if (epoch > 0) {
        (void)printf("  epoch %2d: found: ", epoch);
    } else {
        (void)printf("  step %4lld: found: ", (long long)finding->step);
    }
    if (share == CLI_FINDING_MORE) {
        (void)printf("further findings of %s are not printed one by one\n",
                     finding->rule);
    } else {
        (void)printf("%s%s%s%s\n", finding->rule,
                     finding->tensor[0] != '\0' ? " in " : "", finding->tensor,
                     sonde_finding_where(finding, where, sizeof where));
    }
    (void)fflush(stdout);
}

static void print_finding(const sonde_finding *finding)
{
    char where[1024];

    (void)printf("\n  %s  %s%s\n", finding->rule, finding->tensor,
                 sonde_finding_where(finding, where, sizeof where));
    if (finding->steps > 1) {
        (void)printf("          steps %lld-%lld\n", (long long)finding->step,
                     (long long)finding->last_step);
    } else {
        (void)printf("          step %lld\n", (long long)finding->step);
    }
    print_lines("", finding->message);
    print_lines("  try", finding->advice);
}

static bool is_about(const sonde_nn_demo *demo, const sonde_finding *finding)
{
    return demo->rule != NULL && strcmp(finding->rule, demo->rule) == 0;
}

/* How many findings other rules have: "NonFinite (1), LossSpike (1)". */
static void print_others(const sonde_nn_demo *demo, const sonde_finding *all,
                         size_t count)
{
    const char *before = "\nAlso found:";

    for (size_t i = 0; i < count; i++) {
        size_t same = 0;
        bool known = is_about(demo, &all[i]) || demo->rule == NULL;

        for (size_t k = 0; k < count; k++) {
            known = known || (k < i && strcmp(all[k].rule, all[i].rule) == 0);
            same += strcmp(all[k].rule, all[i].rule) == 0;
        }
        if (!known) {
            (void)printf("%s %s (%zu)", before, all[i].rule, same);
            before = ",";
        }
    }
    if (before[0] == ',') {
        (void)printf("\n");
    }
}

/* Whether the record has the tensor that the demo names; true without --hook-type. */
static bool has_tensor(const showing *show)
{
    uint32_t id = 0;

    return show->trial == NULL ||
           sonde_catalogue_find(sonde_trial_catalogue(show->trial), show->demo->tensor,
                                &id, NULL) == SONDE_OK;
}

/* Why the demo's rule found nothing in the record of a hook type. */
static void print_lacked(showing *show)
{
    for (size_t i = 0; i < sonde_rules_count(show->rules); i++) {
        sonde_rule_account account;

        sonde_rules_account(show->rules, i, &account);
        if (strcmp(account.rule->name, show->demo->rule) != 0) {
            continue;
        }
        show->lacked = true;
        if (account.judged) {
            (void)printf("%s judged %zu tensors at %llu steps; '--hook-type %s' records "
                         "too little of them.\n",
                         account.rule->name, account.tensors,
                         (unsigned long long)account.steps, show->asked->hook_type);
        } else {
            (void)printf("%s did not judge (%s): '--hook-type %s' does not record what "
                         "it needs.\n",
                         account.rule->name, account.lacked, show->asked->hook_type);
        }
    }
}

static void print_findings(showing *show, const sonde_finding *all, size_t count)
{
    const bool healthy = show->demo->rule == NULL || show->asked->fixed;
    size_t shown = 0, about = 0;
    bool named = show->demo->tensor == NULL || !has_tensor(show);

    for (size_t i = 0; i < count; i++) {
        if (is_about(show->demo, &all[i]) || healthy) {
            about++;
            named = named || strcmp(all[i].tensor, show->demo->tensor) == 0;
        }
    }
    show->findings = count;
    show->as_expected = healthy ? count == 0 : about > 0 && named;
    (void)printf("\n%s\n", count == 0   ? "The rules found nothing."
                           : about == 0 ? "The rules did not find the expected fault."
                           : about == 1 ? "The rules found it."
                                        : "The rules found it, in several tensors:");
    if (about == 0 && !healthy && show->trial != NULL) {
        print_lacked(show);
    } else if (!healthy && show->demo->tensor != NULL && !has_tensor(show)) {
        (void)printf(
            "'--hook-type %s' does not record %s: the findings are about other tensors.\n",
            show->asked->hook_type, show->demo->tensor);
    }
    for (size_t i = 0; i < count && shown < SHOWN; i++) {
        if (is_about(show->demo, &all[i]) || healthy) {
            print_finding(&all[i]);
            shown++;
        }
    }
    if (about > shown) {
        (void)printf("\n  and %zu more\n", about - shown);
    }
    print_others(show->demo, all, count);
}

/* A word as a shell takes it. */
static void put_word(const char *word)
{
    if (word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                          "_-./@=:+,")] == '\0' &&
        word[0] != '\0') {
        (void)printf("%s", word);
        return;
    }
    (void)putchar('\'');
    for (const char *p = word; *p != '\0'; p++) {
        if (*p == '\'') {
            (void)printf("'\\''");
        } else {
            (void)putchar(*p);
        }
    }
    (void)putchar('\'');
}

/* A command line that can be pasted; words to NULL. */
static void put_command(const char *const *words)
{
    (void)printf("  ");
    put_word(program_invocation_name);
    for (; *words != NULL; words++) {
        (void)putchar(' ');
        put_word(*words);
    }
    (void)putchar('\n');
}

static void print_next(const showing *show)
{
    const sonde_nn_demo *it = show->demo;
    const bool pair = it->pair;
    /* pictures go to this machine */
    const char *beside =
        strncmp(show->run, "s3://", 5) == 0 ? show->file->name : show->run;
    char picture[PATH_SIZE + 8], report[PATH_SIZE + 8];

    if (show->asked->quiet) {
        return;
    }
    (void)snprintf(picture, sizeof picture, "%s.png", beside);
    (void)snprintf(report, sizeof report, "%s.html", beside);
    (void)printf("\nNext steps:\n");
    put_command((const char *const[]){"rules", show->run, "--report", report,
                                      pair ? "--other" : NULL, show->other, NULL});
    if (it->rule != NULL) {
        put_command((const char *const[]){"rules", show->run, "--rules", it->rule,
                                          pair ? "--other" : NULL, show->other, NULL});
        put_command((const char *const[]){"rules", "show", it->rule, NULL});
    }
    put_command((const char *const[]){"plot", show->run, it->plot, "-o", picture,
                                      it->statistic != NULL ? "--stat" : NULL,
                                      it->statistic, NULL});
    if (it->rule != NULL && !show->asked->fixed) {
        put_command((const char *const[]){"demo", show->file->name, "--fixed", NULL});
    }
}

/* --- doing ------------------------------------------------------------------------ */

/* SimilarAcrossRuns with the other run, whose commas are escaped. */
static sonde_err add_comparison(const showing *show, sonde_rules *rules, sonde_diag *diag)
{
    sonde_text text = {0};

    sonde_text_add(&text, "SimilarAcrossRuns:other_trial=");
    cli_add_value(&text, show->other);
    const sonde_err err =
        text.failed ? cli_fail_memory(diag) : sonde_rules_add(rules, text.data, diag);

    sonde_text_fini(&text);
    return err;
}

static sonde_err open_rules(showing *show, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    SONDE__TRY(sonde_rules_create(&show->rules, diag));
    err = sonde_rules_add_defaults(show->rules, diag);
    if (err != SONDE_OK || !show->demo->pair) {
        return err;
    }
    return add_comparison(show, show->rules, diag);
}

/* Of a pair, the other run comes first, for the one that is judged to be compared with
 * it. */
static sonde_err train(showing *show, bool judged, sonde_diag *diag)
{
    const demo_values *values = show->asked;
    cli_demo_options options = {.run = show->run,
                                .data = values->data,
                                .fixed = values->fixed,
                                .hook_type = values->hook_type,
                                .seed = values->seed != CLI_NOT_GIVEN ? values->seed : 0,
                                .threads = values->threads,
                                .learning_rate = values->learning_rate,
                                .quiet = values->quiet};

    if (show->demo->pair) {
        cli_demo_options other = options;

        other.run = show->other;
        other.seed += show->demo->seeds;
        if (!values->quiet) {
            (void)printf("\nTraining the run to compare with; recorded in %s\n",
                         show->other);
        }
        SONDE__TRY(cli_demo_train(show->file, &other, diag));
    }
    SONDE__TRY(judged ? open_rules(show, diag) : SONDE_OK);
    if (!values->quiet) {
        (void)printf("\nTraining%s; recorded in %s\n",
                     show->rules == NULL         ? ""
                     : values->hook_type != NULL ? ", judged afterwards"
                                                 : ", judged at every step",
                     show->run);
        (void)fflush(stdout);
    }
    options.rules = values->hook_type == NULL ? show->rules : NULL;
    options.on_finding = on_finding;
    options.user = show;
    return cli_demo_train(show->file, &options, diag);
}

/* Rules see what the hook recorded. */
static sonde_err judge_record(showing *show, sonde_diag *diag)
{
    const sonde_rules_pace pace = {0};
    SONDE__TRY(sonde_trial_open(show->run, NULL, &show->trial, diag));
    SONDE__TRY(sonde_rules_write_to(show->rules, show->run, diag));
    return sonde_rules_judge(show->rules, show->trial, &pace, diag);
}

static void conclude(showing *show)
{
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(show->rules, &count);

    print_findings(show, all, count);
}

static int run_demo(const void *values, int argc, char **argv)
{
    const demo_values *asked = values;
    const char *name = argc > 0 ? argv[0] : NULL;
    const bool judged = asked->rules == NULL || strcmp(asked->rules, "none") != 0;
    showing show = {.asked = asked, .as_expected = true};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (name == NULL) {
        return cli_fail_text("demo: no name (expected one that 'sonde demo list' lists)");
    }
    if (asked->rules != NULL && judged && strcmp(asked->rules, "default") != 0) {
        return cli_fail_text("--rules: '%s' (expected default or none)", asked->rules);
    }
    show.file = find_demo(name);
    if (show.file == NULL) {
        return fail_name(name);
    }
    cli_catch_interrupt();
    err = cli_demo_open(show.file, asked->fixed, asked->hook_type, &show.job, &diag);
    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    show.demo = sonde_nn_job_get_demo(show.job);
    SONDE__TRY_DONE(choose_run(&show, &diag));
    introduce(&show);
    SONDE__TRY_DONE(train(&show, judged, &diag));
    if (judged && asked->hook_type != NULL) {
        SONDE__TRY_DONE(judge_record(&show, &diag));
    }
    if (judged) {
        conclude(&show);
    }
    print_next(&show);

done:
    sonde_rules_destroy(show.rules);
    sonde_trial_close(show.trial);
    sonde_nn_job_destroy(show.job);
    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    return show.as_expected ? CLI_OK : show.lacked ? CLI_LACKED : CLI_VERDICT;
}

static int run_list(const void *values, int argc, char **argv)
{
    sonde_diag diag = {0};

    (void)values;
    (void)argc;
    (void)argv;
    for (size_t i = 0; cli_demo_files[i].name != NULL; i++) {
        sonde_nn_job *job = NULL;

        if (cli_demo_open(&cli_demo_files[i], false, NULL, &job, &diag) != SONDE_OK) {
            return cli_fail(&diag);
        }
        (void)printf("%-24s %s\n", cli_demo_files[i].name,
                     sonde_nn_job_get_demo(job)->what);
        sonde_nn_job_destroy(job);
    }
    return CLI_OK;
}

#define OPTION(...) CLI_OPTION(demo_values, __VA_ARGS__)

static const cli_option demo_options_table[] = {
    OPTION("fixed", 0, CLI_FLAG, NULL, fixed, "train the repaired network"),
    OPTION("record", 0, CLI_TEXT, "RUN", record,
           "record in this new folder (sonde-demo/NAME)"),
    OPTION("hook-type", 0, CLI_TEXT, "TYPE", hook_type,
           "judge only what this hook records: weights-bias-gradients, "
           "module-input-output or saveall"),
    OPTION("rules", 'r', CLI_TEXT, "default|none", rules,
           "judge by the default rules, or not at all"),
    OPTION("data", 'd', CLI_TEXT, "FOLDER", data,
           "train on MNIST or Fashion-MNIST in this folder, not on drawn garments"),
    OPTION("seed", 's', CLI_SEED, "N", seed,
           "seed the initial weights and the order of samples (0)"),
    OPTION("learning-rate", 'l', CLI_REAL, "X", learning_rate,
           "train with this learning rate (default: the demo's)"),
    OPTION("threads", 't', CLI_COUNT, "N", threads,
           "use at most N threads; 0: automatic"),
    OPTION("quiet", 'q', CLI_FLAG, NULL, quiet, "print only what the rules find"),
};

const cli_command cli_demo = {
    .name = "demo",
    .arguments = "NAME",
    .summary = "train a network that fails, and see the rules find the fault",
    .details =
        "Each demo takes seconds and needs no download. The run\n"
        "is kept; the last lines show commands to inspect it. The exit code is 0 if\n"
        "the rules found the expected fault and, with --fixed, nothing; 3 if\n"
        "--hook-type records too little for the rule of the demo.",
    .examples = "  sonde demo list\n"
                "  sonde demo vanishing_grad --record ./demo_vg/\n"
                "  sonde demo vanishing_grad --fixed",
    .options = demo_options_table,
    .option_count = CLI_COUNT_OF(demo_options_table),
    .most = 1,
    .values_size = sizeof(demo_values),
    .run = run_demo,
};

const cli_command cli_demo_list = {
    .name = "demo list",
    .arguments = "",
    .summary = "list the demos",
    .details = "Prints one line for each demo: its name and its fault.",
    .most = 0,
    .run = run_list,
};
