/*
 * demo.c - `sonde demo`: trains a network that goes wrong, has the rules say what they find while
 * it does, records it, and explains.
 */
#include "cli/demo.h"

#include <sonde/rules.h>

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 3072, SHOWN = 3 };

typedef struct demo_values {
    const char *record, *output_uri, *rule_type, *data, *rules;
    int64_t seed, threads;
    double learning_rate;
    bool fixed, quiet;
} demo_values;

typedef struct showing {
    const demo_values *asked;
    const demo *of;
    const demo_side *side;
    char run[PATH_SIZE], other[PATH_SIZE + 8]; /* other: the second of a pair */
    sonde_rules *rules;                        /* NULL: nobody judges */
    int epoch; /* of a network that is evaluated behind each; 0: it is not */
    size_t findings;
    bool as_told; /* the rules said what the demo is there for */
} showing;

/* --- which, and where to ---------------------------------------------------------- */

static const demo *find_demo(const char *name)
{
    for (size_t i = 0; i < cli_demo_count; i++) {
        if (strcmp(name, cli_demos[i].name) == 0) {
            return &cli_demos[i];
        }
    }
    return NULL;
}

static int fail_name(const char *name)
{
    enum { MOST = 64 };
    const char *names[MOST], *nearest = NULL;
    size_t count = 0;

    for (; count < cli_demo_count && count < MOST; count++) {
        names[count] = cli_demos[count].name;
    }
    nearest = sonde_diag_nearest(name, names, count);
    return cli_fail_text("unknown demo '%s' (expected %s)", name,
                         nearest != NULL ? nearest : "one that 'sonde demo list' lists");
}

/* The folder asked for, without slashes at its end; else the first of its name that is free. */
static sonde_err choose_run(showing *of, sonde_diag *diag)
{
    const demo_values *asked = of->asked;
    const char *told = asked->record != NULL ? asked->record : asked->output_uri;
    const char *fixed = asked->fixed ? "-fixed" : "";
    int length = 0;

    if (told != NULL) {
        length = snprintf(of->run, sizeof of->run, "%s", told);
    } else {
        length =
            snprintf(of->run, sizeof of->run, "sonde-demo/%s%s", of->of->name, fixed);
        for (int i = 2; access(of->run, F_OK) == 0; i++) {
            length = snprintf(of->run, sizeof of->run, "sonde-demo/%s%s-%d", of->of->name,
                              fixed, i);
        }
    }
    if (length < 0 || (size_t)length >= sizeof of->run) {
        *diag = (sonde_diag){
            .err = SONDE_EINVAL, .where = "--record", .found = "a path that is too long"};
        return SONDE_EINVAL;
    }
    while (length > 1 && of->run[length - 1] == '/') {
        of->run[--length] = '\0';
    }
    (void)snprintf(of->other, sizeof of->other, "%s-other", of->run);
    return SONDE_OK;
}

/* --- telling ---------------------------------------------------------------------- */

/* A text under a heading, in lines of at most 88 letters. */
static void tell_lines(const char *heading, const char *text)
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

static void introduce(const showing *of)
{
    const demo *it = of->of;

    if (of->asked->quiet) {
        return;
    }
    (void)printf("%s%s\n", it->name, of->asked->fixed ? ", put right" : "");
    tell_lines("what", it->what);
    tell_lines("why", it->why);
    tell_lines("repair", it->repair);
    if (it->rule != NULL) {
        tell_lines("rule", it->rule);
    }
}

/* As it is found, a line; of a rule the first few. */
static void on_finding(void *user, const sonde_finding *finding, bool again)
{
    const showing *of = user;
    size_t count = 0, same = 0;
    const sonde_finding *all = sonde_rules_findings(of->rules, &count);

    if (again || of->asked->quiet) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        same += strcmp(all[i].rule, finding->rule) == 0;
    }
    if (same > SHOWN + 1) {
        return;
    }
    if (of->epoch > 0) {
        (void)printf("  epoch %2d: found: ", of->epoch);
    } else {
        (void)printf("  step %4lld: found: ", (long long)finding->step);
    }
    if (same == SHOWN + 1) {
        (void)printf("more of %s, not shown one by one\n", finding->rule);
    } else {
        (void)printf("%s%s%s\n", finding->rule, finding->tensor[0] != '\0' ? " in " : "",
                     finding->tensor);
    }
    (void)fflush(stdout);
}

static void tell_finding(const sonde_finding *finding)
{
    (void)printf("\n  %s  %s\n", finding->rule, finding->tensor);
    (void)printf("          at step %lld", (long long)finding->step);
    if (finding->steps > 1) {
        (void)printf(", and up to %lld", (long long)finding->last_step);
    }
    (void)printf("\n");
    tell_lines("", finding->message);
    tell_lines("  try", finding->advice);
}

static bool is_about(const demo *of, const sonde_finding *finding)
{
    return of->rule != NULL && strcmp(finding->rule, of->rule) == 0;
}

/* How many findings other rules have: "NonFinite (1), LossSpike (1)". */
static void tell_others(const demo *of, const sonde_finding *all, size_t count)
{
    const char *before = "\nAlso found:";

    for (size_t i = 0; i < count; i++) {
        size_t same = 0;
        bool told = is_about(of, &all[i]) || of->rule == NULL;

        for (size_t k = 0; k < count; k++) {
            told = told || (k < i && strcmp(all[k].rule, all[i].rule) == 0);
            same += strcmp(all[k].rule, all[i].rule) == 0;
        }
        if (!told) {
            (void)printf("%s %s (%zu)", before, all[i].rule, same);
            before = ",";
        }
    }
    if (before[0] == ',') {
        (void)printf("\n");
    }
}

static void tell_findings(showing *of, const sonde_finding *all, size_t count)
{
    const bool healthy = of->of->rule == NULL || of->asked->fixed;
    size_t shown = 0, about = 0;
    bool named = of->of->tensor == NULL;

    for (size_t i = 0; i < count; i++) {
        if (is_about(of->of, &all[i]) || healthy) {
            about++;
            named = named || strcmp(all[i].tensor, of->of->tensor) == 0;
        }
    }
    of->findings = count;
    of->as_told = healthy ? count == 0 : about > 0 && named;
    (void)printf("\n%s\n", count == 0   ? "The rules found nothing."
                           : about == 0 ? "The rules did not find what they should."
                           : about == 1 ? "The rules found it."
                                        : "The rules found it, in several tensors:");
    for (size_t i = 0; i < count && shown < SHOWN; i++) {
        if (is_about(of->of, &all[i]) || healthy) {
            tell_finding(&all[i]);
            shown++;
        }
    }
    if (about > shown) {
        (void)printf("\n  and %zu more of it\n", about - shown);
    }
    tell_others(of->of, all, count);
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

static void tell_next(const showing *of)
{
    const demo *it = of->of;
    const bool pair = it->pair;
    char picture[PATH_SIZE + 8], report[PATH_SIZE + 8];

    if (of->asked->quiet) {
        return;
    }
    (void)snprintf(picture, sizeof picture, "%s.png", of->run);
    (void)snprintf(report, sizeof report, "%s.html", of->run);
    (void)printf("\nGo on with:\n");
    put_command((const char *const[]){"rules", of->run, "--report", report,
                                      pair ? "--other" : NULL, of->other, NULL});
    if (it->rule != NULL) {
        put_command((const char *const[]){"rules", of->run, "--rule", it->rule,
                                          pair ? "--other" : NULL, of->other, NULL});
        put_command((const char *const[]){"rules", "show", it->rule, NULL});
    }
    put_command((const char *const[]){"plot", of->run, it->look, "-o", picture,
                                      it->statistic != NULL ? "--stat" : NULL,
                                      it->statistic, NULL});
    if (it->rule != NULL && !of->asked->fixed) {
        put_command((const char *const[]){"demo", it->name, "--fixed", NULL});
    }
}

/* --- doing ------------------------------------------------------------------------ */

/* SimilarAcrossRuns with the other run, whose commas are escaped. */
static sonde_err add_comparison(const showing *of, sonde_rules *rules, sonde_diag *diag)
{
    char text[2 * PATH_SIZE + 64] = "SimilarAcrossRuns:other_trial=";
    size_t at = strlen(text);

    for (const char *p = of->other; *p != '\0'; p++) {
        if (*p == ',') {
            text[at++] = '\\';
        }
        text[at++] = *p;
    }
    text[at] = '\0';
    return sonde_rules_add(rules, text, diag);
}

static sonde_err open_rules(showing *of, sonde_diag *diag)
{
    sonde_err err = sonde_rules_create(&of->rules, diag);

    err = err == SONDE_OK ? sonde_rules_add_defaults(of->rules, diag) : err;
    err = err == SONDE_OK && of->of->pair ? add_comparison(of, of->rules, diag) : err;
    err = err == SONDE_OK ? sonde_rules_write_to(of->rules, of->run, diag) : err;
    if (err == SONDE_OK) {
        sonde_rules_on_finding(of->rules, on_finding, of);
    }
    return err;
}

/* Of a pair, the other run comes first, for the one that is judged to be compared with it. */
static sonde_err train(showing *of, bool judged, sonde_diag *diag)
{
    const demo_values *asked = of->asked;
    demo_options options = {.run = of->run,
                            .data = asked->data,
                            .seed = asked->seed != CLI_NOT_GIVEN ? asked->seed : 0,
                            .threads = asked->threads,
                            .learning_rate = asked->learning_rate,
                            .quiet = asked->quiet};
    sonde_err err = SONDE_OK;

    if (of->of->pair) {
        demo_options other = options;

        other.run = of->other;
        other.seed += of->side->seeds;
        if (!asked->quiet) {
            (void)printf("\nTraining the run to compare with; recorded in %s\n",
                         of->other);
        }
        err = cli_demo_train(of->of, of->side, &other, diag);
    }
    if (err == SONDE_OK && judged) {
        err = open_rules(of, diag);
    }
    if (err == SONDE_OK && !asked->quiet) {
        (void)printf("\nTraining%s; recorded in %s\n",
                     judged ? ", judged as it goes" : "", of->run);
        (void)fflush(stdout);
    }
    options.rules = of->rules;
    options.epoch = &of->epoch;
    return err == SONDE_OK ? cli_demo_train(of->of, of->side, &options, diag) : err;
}

static void conclude(showing *of)
{
    size_t count = 0;
    const sonde_finding *all = NULL;

    sonde_rules_finish(of->rules);
    all = sonde_rules_findings(of->rules, &count);
    tell_findings(of, all, count);
}

static int run_demo(const void *values, int argc, char **argv)
{
    const demo_values *asked = values;
    const char *name = argc > 0 ? argv[0] : asked->rule_type;
    const bool judged = asked->rules == NULL || strcmp(asked->rules, "none") != 0;
    showing of = {.asked = asked, .as_told = true};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (name == NULL) {
        return cli_fail_text("demo: no name (expected one that 'sonde demo list' lists)");
    }
    if (asked->rules != NULL && judged && strcmp(asked->rules, "default") != 0) {
        return cli_fail_text("--rules: '%s' (expected default or none)", asked->rules);
    }
    of.of = find_demo(name);
    if (of.of == NULL) {
        return fail_name(name);
    }
    of.side = asked->fixed ? &of.of->right : &of.of->wrong;
    cli_catch_interrupt();
    err = choose_run(&of, &diag);
    if (err == SONDE_OK) {
        introduce(&of);
        err = train(&of, judged, &diag);
    }
    if (err == SONDE_OK && judged) {
        conclude(&of);
    }
    sonde_rules_destroy(of.rules);
    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    tell_next(&of);
    return of.as_told ? CLI_OK : CLI_VERDICT;
}

static int run_list(const void *values, int argc, char **argv)
{
    (void)values;
    (void)argc;
    (void)argv;
    for (size_t i = 0; i < cli_demo_count; i++) {
        (void)printf("%-24s %s\n", cli_demos[i].name, cli_demos[i].what);
    }
    return CLI_OK;
}

#define OPTION(name, letter, kind, argument, field, help)                                \
    {                                                                                    \
        name, letter, kind, argument, help, offsetof(demo_values, field)                 \
    }

static const cli_option demo_options_table[] = {
    OPTION("fixed", 'f', CLI_FLAG, NULL, fixed, "train the network that was put right"),
    OPTION("record", 'o', CLI_TEXT, "RUN", record,
           "the new folder to record in (sonde-demo/NAME)"),
    OPTION("rules", 'r', CLI_TEXT, "default|none", rules,
           "judge it by all rules, or not at all"),
    OPTION("data", 'd', CLI_TEXT, "FOLDER", data,
           "MNIST or Fashion-MNIST, instead of drawn garments"),
    OPTION("seed", 's', CLI_SEED, "N", seed, "other initial weights, another order (0)"),
    OPTION("learning-rate", 'l', CLI_REAL, "X", learning_rate, "instead of the demo's"),
    OPTION("threads", 't', CLI_COUNT, "N", threads, "at most; 0: as many as pay"),
    OPTION("quiet", 'q', CLI_FLAG, NULL, quiet, "only what the rules find"),
    OPTION("output-uri", 0, CLI_TEXT, "RUN", output_uri, "as --record"),
    OPTION("rule_type", 0, CLI_TEXT, "NAME", rule_type, "as NAME"),
};

const cli_command cli_demo = {
    .name = "demo",
    .arguments = "NAME",
    .summary = "train a network that goes wrong, and see the rules find it",
    .details =
        "Seconds each, with no network and no data of yours. The run stays, to be "
        "looked\n"
        "at; the last lines say how. The status is 0 if the rules said what they "
        "should:\n"
        "of a network that goes wrong its fault, of one put right (--fixed) nothing.",
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
    .details = "One line a demo: its name and what goes wrong.",
    .most = 0,
    .run = run_list,
};
