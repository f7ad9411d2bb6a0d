/*
 * rules.h - judging a run: many rules, one pass, findings.
 *
 *     create; add the rules; then one of
 *       - sonde_rules_judge: a trial, ended or being written
 *       - sonde_rules_attach: the observer of a running session or loop
 *       - begin, put, end_step, finish: whoever has the evidence in his hands
 *     findings, explain; destroy
 *
 * Every step is read once, whatever the number of rules. What a rule is: <sonde/rule.h>.
 *
 * One thread at a time. After the first step nothing is allocated but for a finding.
 */
#ifndef SONDE_RULES_H
#define SONDE_RULES_H

#include <sonde/observer.h>
#include <sonde/rule.h>
#include <sonde/trial.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- the built-in ones ------------------------------------------------------------ */

/* The i-th, by name; NULL behind the last. */
SONDE_API const sonde_rule *sonde_rule_at_index(size_t i);
/* Any case. Unknown: SONDE_ENOTFOUND with the nearest names. */
SONDE_API SONDE_CHECKED sonde_err sonde_rule_by_name(const char *name,
                                                     const sonde_rule **rule,
                                                     sonde_diag *diag);
SONDE_API const char *sonde_severity_name(sonde_severity severity); /* "warning" */

/* --- rules of users, in files ----------------------------------------------------- */

/*
 * A file of rules: a shared object that exports SONDE_RULE_PLUGIN of <sonde/rule.h>, or a script
 * in Lua whose name ends in ".lua". Neither ever runs in the calling process: a program,
 * sonde-rule-host, is started for each rule at work, is given its evidence and sends findings
 * back. If the rule crashes or exceeds a limit, it is switched off with a finding about it. The
 * program lies in the folder "sonde" beside libsonde, or where SONDE_RULE_HOST says.
 *
 * Cost: some milliseconds to start one; at a step that concerns it, a copy of its evidence and
 * a switch to another process and back, some tens of microseconds.
 */
typedef struct sonde_rule_limits {
    double seconds;  /* of processor time for a step; 0: 2. Ten times that by the clock */
    uint64_t memory; /* bytes, of a rule in Lua; 0: 256 MB */
    uint64_t instructions; /* of Lua, for a call of a rule's function; 0: 50 million */
} sonde_rule_limits;

typedef struct sonde_rule_file sonde_rule_file;

/* Reads the file and checks its rules. limits may be NULL. Errors name what is wrong: another
 * interface version (SONDE_EUNSUPPORTED), no table of rules, a row that cannot be, a rule with
 * the name of another, a script's line. */
SONDE_API SONDE_CHECKED sonde_err sonde_rule_file_open(const char *path,
                                                       const sonde_rule_limits *limits,
                                                       sonde_rule_file **out,
                                                       sonde_diag *diag);
/* The i-th, to be shown; NULL behind the last. Borrowed until the file is closed. */
SONDE_API const sonde_rule *sonde_rule_file_at(const sonde_rule_file *file, size_t i);
/* NULL is fine. */
SONDE_API void sonde_rule_file_close(sonde_rule_file *file);

/* --- findings --------------------------------------------------------------------- */

/*
 * Something is wrong. One for a rule and a tensor: it lasts, or comes again. id is the XXH3 of
 * rule, tensor and first step: the same, whoever judges the run and when.
 */
typedef struct sonde_finding {
    uint64_t id;
    const char *rule;
    sonde_severity severity;
    const char *tensor; /* "" for the run as a whole */
    sonde_mode mode;
    int64_t step;      /* global, at which it was found first */
    int64_t mode_step; /* the same, within the mode */
    int64_t last_step; /* global, at which it held last */
    uint64_t steps;    /* how many looked at had it */
    const char *statistic;
    double value, threshold; /* at the first step */
    const char *message, *advice;
} sonde_finding;

/* The finding as one JSON object without a newline, as in findings/<rule>.jsonl. Returns the
 * length that it has; buf gets what fits, NUL-terminated. */
SONDE_API size_t sonde_finding_json(const sonde_finding *finding, char *buf, size_t size);

/* --- rules at work ---------------------------------------------------------------- */

typedef struct sonde_rules sonde_rules;

SONDE_API SONDE_CHECKED sonde_err sonde_rules_create(sonde_rules **out, sonde_diag *diag);
/* Destroys what sonde_rules_attach made as well: not before the observer's last step. */
SONDE_API void sonde_rules_destroy(sonde_rules *rules);

/*
 * Adds one: "VanishingGradient", or with parameters "VanishingGradient:threshold=1e-6,patience=2"
 * (a comma within a value is written "\,"). Or the path of a file of rules, with a "/" in it or
 * ".so" or ".lua" at its end, with parameters if it holds a single rule. An unknown parameter: SONDE_EINVAL with the nearest; a
 * value that cannot be: SONDE_EINVAL with the range. The same rule may be added again, with other
 * parameters.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_add(sonde_rules *rules, const char *text,
                                                  sonde_diag *diag);
/* The same of a rule in hand (borrowed until destroy), parameters as above or NULL. */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_add_rule(sonde_rules *rules,
                                                       const sonde_rule *rule,
                                                       const char *params,
                                                       sonde_diag *diag);
/* For rules of files that are loaded from now on. */
SONDE_API void sonde_rules_set_limits(sonde_rules *rules,
                                      const sonde_rule_limits *limits);
/* From now on the rules of this file can be added by their names, and are among the defaults.
 * Again: nothing happens. */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_load(sonde_rules *rules, const char *path,
                                                   sonde_diag *diag);
/* Several, with commas between them: "default" (the next function), and texts as above. An item that
 * can only be a parameter ("patience=2") is one of the rule before it. */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_add_list(sonde_rules *rules,
                                                       const char *text,
                                                       sonde_diag *diag);
/* All built-in and loaded ones that need not be told what to look at. */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_add_defaults(sonde_rules *rules,
                                                           sonde_diag *diag);
SONDE_API size_t sonde_rules_count(const sonde_rules *rules);
/* Steps so far with evidence for any of them. */
SONDE_API uint64_t sonde_rules_steps(const sonde_rules *rules);

/* Called for every finding, at the step that it is found at; and once more at finish for one that
 * has lasted (again true). The finding is borrowed for the call. */
typedef void (*sonde_on_finding)(void *user, const sonde_finding *finding, bool again);
SONDE_API void sonde_rules_on_finding(sonde_rules *rules, sonde_on_finding call,
                                      void *user);
/*
 * From now on findings are appended to <run>/findings/<rule>.jsonl, one write a line; one
 * whose line is there already is not written again. Trouble with the files is logged as a
 * warning, once, and stops nothing.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_write_to(sonde_rules *rules,
                                                       const char *run, sonde_diag *diag);

/* Copies of the findings so far, in the order found: borrowed until the next step. */
SONDE_API const sonde_finding *sonde_rules_findings(sonde_rules *rules, size_t *count);

/* How a rule got on. */
typedef struct sonde_rule_account {
    const sonde_rule *rule;
    size_t tensors;   /* that it looked at */
    uint64_t steps;   /* at which it had evidence */
    size_t findings;  /* of it */
    bool judged;      /* it had what it needs: its silence means something */
    char lacked[512]; /* what was missing, or "" */
} sonde_rule_account;
/* Of rule i. */
SONDE_API void sonde_rules_account(const sonde_rules *rules, size_t i,
                                   sonde_rule_account *account);

/* --- evidence by hand ------------------------------------------------------------- */

/* catalogue is borrowed until destroy and may grow between steps (then wants has to be asked
 * anew). in_collection may be NULL: then collections are the roles. */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_begin(
    sonde_rules *rules, const sonde_catalogue *catalogue,
    bool (*in_collection)(const void *user, uint32_t id, const char *collection),
    const void *user, sonde_diag *diag);
/* Looks for tensors declared since. */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_refresh(sonde_rules *rules,
                                                      sonde_diag *diag);
/* SONDE_HOW_ bits that any rule wants of a tensor. */
SONDE_API unsigned sonde_rules_wants(const sonde_rules *rules, uint32_t id);
/* Evidence of the step that end_step will end: any of view, vitals, sketch; those of several
 * micro-batches and replicas one after another. */
SONDE_API void sonde_rules_put(sonde_rules *rules, const sonde_observation *observation);
SONDE_API void sonde_rules_end_step(sonde_rules *rules, const sonde_coordinate *at);
/* Nothing new has come for so many seconds, although the run goes on. */
SONDE_API void sonde_rules_idle(sonde_rules *rules, double seconds);
/* The run is over: rules say what they can only say then. */
SONDE_API void sonde_rules_finish(sonde_rules *rules);

/* --- evidence of the process itself ----------------------------------------------- */

/*
 * Before the observer is bound: adds the taps that the rules need. Losses come at every step.
 * Other vital signs come at the first 50 steps of a mode, at each step that `every` divides
 * (0: at all), and at a step whose loss is not finite (sonde_tap.when_bad). Raw values, for
 * rules that need them, come at each step that raw_every divides (0: ten times `every`).
 * Rules are evaluated when a step ends, before the next begins. A recorded run gives the same
 * findings if the same values were recorded.
 *
 * May be called for several observers, of training and of evaluation, whose steps come one after
 * another: their tensors are one where their names are. catalogue is borrowed until the
 * observer's last step, and rules must outlive it. sonde_observer_extend adds the tensors
 * that are declared later.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_attach(sonde_rules *rules,
                                                     const sonde_catalogue *catalogue,
                                                     sonde_observer *observer,
                                                     int64_t every, int64_t raw_every,
                                                     sonde_diag *diag);

/* --- evidence of a trial ---------------------------------------------------------- */

typedef struct sonde_rules_pace {
    bool follow;  /* go on until the run ends */
    double stall; /* seconds without a new step after which it is given up; 0: 1800 */
    bool (*stop)(void *user); /* asked between steps; NULL: never */
    void *user;
    int64_t begin, end; /* global steps begin ... end - 1; end 0: all */
} sonde_rules_pace;

/*
 * Reads the trial through once and finishes. pace may be NULL. SONDE_EINTERRUPTED if stopped;
 * SONDE_ETIMEOUT if the run neither grew nor ended: what was found stays.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_judge(sonde_rules *rules,
                                                    sonde_trial *trial,
                                                    const sonde_rules_pace *pace,
                                                    sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
