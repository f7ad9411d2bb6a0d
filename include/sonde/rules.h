/*
 * rules.h - judging a run: many rules, one pass, findings.
 *
 *     create; add the rules; then one of
 *       - sonde_rules_judge: a trial, ended or being written
 *       - sonde_rules_attach: the observer of a running session or loop
 *     findings, account; destroy
 *
 * Steps of mode global are those of a program without modes: they count as training,
 * unless the run has steps of mode train.
 *
 * Every step is read once, however many rules there are. <sonde/rule.h> describes a rule.
 *
 * One thread at a time. After the first step only a finding allocates memory.
 */
#ifndef SONDE_RULES_H
#define SONDE_RULES_H

#include <sonde/observer.h>
#include <sonde/rule.h>
#include <sonde/trial.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- built-in rules ----------------------------------------------------------------- */

/* The i-th rule in the order of names; NULL after the last. */
SONDE_API const sonde_rule *sonde_rule_at_index(size_t i);
/* In any case. SONDE_ENOTFOUND, with the nearest names, if there is none. */
SONDE_API SONDE_CHECKED sonde_err sonde_rule_by_name(const char *name,
                                                     const sonde_rule **rule,
                                                     sonde_diag *diag);
SONDE_API const char *sonde_severity_name(sonde_severity severity); /* "warning" */

/* --- rules of users, in files ------------------------------------------------------- */

/*
 * A file of rules is a shared object that exports SONDE_RULE_PLUGIN of <sonde/rule.h>, or
 * a script in Lua whose name ends in ".lua". Both run in the calling process. A shared
 * object is trusted code: if it crashes, the process does. A script runs under limits; if
 * it has an error or exceeds one of them, the rule is switched off, with a finding about
 * it. Scripts need sonde-lua.so in the folder "sonde" beside libsonde.
 */
/* Limits of a rule in Lua; of each call of a function of the script. */
typedef struct sonde_rule_limits {
    double seconds;        /* processor time of a call; 0: 2 */
    uint64_t memory;       /* bytes; 0: 256 MB */
    uint64_t instructions; /* of a call; 0: 50 million */
} sonde_rule_limits;

typedef struct sonde_rule_file sonde_rule_file;

/* Reads the file and checks its rules. limits may be NULL. Errors: SONDE_EUNSUPPORTED for
 * another interface version; no table of rules, an invalid row, a name that is taken; for
 * a script, the line. */
SONDE_API SONDE_CHECKED sonde_err sonde_rule_file_open(const char *path,
                                                       const sonde_rule_limits *limits,
                                                       sonde_rule_file **out,
                                                       sonde_diag *diag);
/* The i-th rule, to show it; NULL after the last. Borrowed until the file is closed. */
SONDE_API const sonde_rule *sonde_rule_file_at(const sonde_rule_file *file, size_t i);
/* Accepts NULL. */
SONDE_API void sonde_rule_file_close(sonde_rule_file *file);

/* --- findings ----------------------------------------------------------------------- */

/*
 * Something that is wrong. There is one finding for a rule and a tensor; it can last, or
 * recur. Its severity can rise: a note becomes a warning or an error if training, which
 * went well, goes badly later. It never falls; once training goes well again, or the
 * tensor has recovered, a warning or an error is resolved. id is the XXH3 of rule, tensor,
 * first step and the line that a rule gave, so it does not depend on who judges the run, or when.
 *
 * because_of groups findings with one cause: where a value is not finite, what begins
 * while it lasts follows from the finding of NonFinite that names its source. A rule that
 * takes an earlier finding for the explanation of its own names that one. A cause has no
 * cause itself.
 */
typedef struct sonde_finding {
    uint64_t id;
    const char *rule;
    sonde_severity severity;
    const char *tensor; /* "" for the whole run */
    sonde_mode mode;
    int64_t step;      /* global, at which the condition held first */
    int64_t mode_step; /* the same step, within the mode */
    int64_t last_step; /* global, at which the condition held last */
    uint64_t steps;    /* observed steps at which the condition held */
    const char *statistic;
    double value, threshold; /* at the first step, or when the rule raised it */
    const char *message, *advice;
    uint64_t
        because_of; /* the id of the finding that it follows from; 0: none is known */
    sonde_severity raised_from; /* the severity before it rose */
    int64_t raised_step;        /* global, at which it rose; 0: it never did */
    int64_t resolved_step;      /* global, since which it is resolved; 0: it is not */
    /* The line of the user's program, relative to its root; file "": unknown. */
    sonde_place place;
} sonde_finding;

/* The finding as one JSON object without a newline, as in findings/<rule>.jsonl. Returns
 * its length, 0 if memory runs out; buf gets as much as fits, NUL-terminated. */
SONDE_API size_t sonde_finding_json(const sonde_finding *finding, char *buf, size_t size);

/*
 * The order in which people should read findings: by step, causes before the signs that
 * show only later and doubts about the hardware; then what follows from others, notes, and
 * what is resolved. sort reorders in place; false if memory runs out. first returns the
 * index of the one to look at first; 0 of an empty list.
 */
SONDE_API bool sonde_findings_sort(sonde_finding *findings, size_t count);
SONDE_API size_t sonde_findings_first(const sonde_finding *findings, size_t count);

/* --- rules at work ------------------------------------------------------------------ */

typedef struct sonde_rules sonde_rules;

SONDE_API SONDE_CHECKED sonde_err sonde_rules_create(sonde_rules **out, sonde_diag *diag);
/* Also destroys what sonde_rules_attach created, so call it after the observer's last
 * step. */
SONDE_API void sonde_rules_destroy(sonde_rules *rules);

/*
 * Adds a rule: "VanishingGradient", or with parameters
 * "VanishingGradient:threshold=1e-6,patience=2" (write a comma within a value as "\,").
 * Or a file of rules: a path that contains "/" or ends in ".so" or ".lua"; parameters are
 * allowed if it holds a single rule. SONDE_EINVAL for an unknown parameter (with the
 * nearest name) and for an invalid value (with the range). A rule may be added several
 * times, with different parameters.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_add(sonde_rules *rules, const char *text,
                                                  sonde_diag *diag);
/* Adds a rule by its row (borrowed until destroy); params as above, or NULL. */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_add_rule(sonde_rules *rules,
                                                       const sonde_rule *rule,
                                                       const char *params,
                                                       sonde_diag *diag);
/* Limits for the rules of files that are loaded later; NULL: the defaults. */
SONDE_API void sonde_rules_set_limits(sonde_rules *rules,
                                      const sonde_rule_limits *limits);
/* Makes the rules of a file known by their names and adds them to the defaults. Loading
 * the same file again does nothing. */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_load(sonde_rules *rules, const char *path,
                                                   sonde_diag *diag);
/* Adds a comma-separated list of rules as above; "default" stands for the default rules.
 * An item that can only be a parameter ("patience=2") belongs to the rule before it. */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_add_list(sonde_rules *rules,
                                                       const char *text,
                                                       sonde_diag *diag);
/* Adds all built-in and loaded rules that are not opt-in. */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_add_defaults(sonde_rules *rules,
                                                           sonde_diag *diag);
SONDE_API size_t sonde_rules_count(const sonde_rules *rules);
/* Steps so far with evidence for any rule. */
SONDE_API uint64_t sonde_rules_steps(const sonde_rules *rules);
/* The first and last global step that the rules were shown, with evidence or without;
 * false: there is none. */
SONDE_API bool sonde_rules_window(const sonde_rules *rules, int64_t *first,
                                  int64_t *last);

/* Called for every finding at the end of its first step, causes before what follows from
 * them; at the end of the step at which its severity rises (raised_step is not 0); and once
 * more at finish if it lasted or is resolved (again is true). The finding is borrowed for
 * the call. */
typedef void (*sonde_on_finding)(void *user, const sonde_finding *finding, bool again);
SONDE_API void sonde_rules_on_finding(sonde_rules *rules, sonde_on_finding call,
                                      void *user);
/*
 * Appends findings to <run>/findings/<rule>.jsonl from now on, one write per line. A line
 * that is there already is not written again. A failure to write is logged, as a warning,
 * at the first finding that is not written, and does not stop the rules; later findings
 * are tried again in a folder, and not in a store.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_write_to(sonde_rules *rules,
                                                       const char *run, sonde_diag *diag);

/* Copies of the findings so far, by the step in which they were found and within it causes
 * first: borrowed until the next step. NULL with a count of 0: there are none, or memory has
 * run out. */
SONDE_API const sonde_finding *sonde_rules_findings(sonde_rules *rules, size_t *count);

/* What a rule has done. */
typedef struct sonde_rule_account {
    const sonde_rule *rule;
    size_t tensors;   /* that it looks at */
    uint64_t steps;   /* at which it had evidence in a mode that it judges */
    size_t findings;  /* that it reported */
    bool judged;      /* it had the data it needs, at a step at least: no findings means
                         no fault */
    char lacked[512]; /* the data that was missing, or "" */
} sonde_rule_account;
/* Of the i-th rule that was added. */
SONDE_API void sonde_rules_account(const sonde_rules *rules, size_t i,
                                   sonde_rule_account *account);

/* The run has ended: rules report what they can only know then. */
SONDE_API void sonde_rules_finish(sonde_rules *rules);

/* --- the verdict -------------------------------------------------------------------- */

/* What all findings say. A finding stands until it is resolved. */
typedef enum sonde_verdict_word {
    SONDE_VERDICT_NOT_JUDGED = 0, /* no rule had the data it needs */
    SONDE_VERDICT_NOTHING = 1,    /* no finding stands */
    SONDE_VERDICT_DOUBTFUL = 2,   /* a warning or a note stands, and no error */
    SONDE_VERDICT_WRONG = 3       /* an error stands */
} sonde_verdict_word;
/* "not judged", "nothing found", "doubtful", "wrong" */
SONDE_API const char *sonde_verdict_name(sonde_verdict_word word);

typedef struct sonde_verdict {
    sonde_verdict_word word;
    const sonde_finding *headline; /* the earliest cause that stands, borrowed until the
                                      next step; NULL: none */
    size_t after;                  /* findings that stand and follow from it */
    size_t standing[SONDE_SEVERITY_ERROR + 1]; /* findings, by severity */
    size_t others[SONDE_SEVERITY_ERROR + 1];   /* of these, causes beside the headline */
    size_t following;                          /* of these, those that follow */
    size_t resolved;                           /* findings that do not stand */
    size_t rules;                              /* that had the data they need */
    size_t lacking;                            /* that had not */
    uint64_t steps;                            /* with evidence */
    int64_t first_step, last_step;             /* global, that the rules were shown */
    char lacked[256]; /* what most rules without data lacked: "no labels, no images" */
    /* Why losses are not judged by whether they fall, as a clause ("they are of several
     * players"), a constant; "": they are. */
    const char *free_losses;
} sonde_verdict;

/* Zeros for NULL. Cost: a pass over rules and findings. */
SONDE_API sonde_verdict sonde_rules_verdict(const sonde_rules *rules);
/* The verdict as a line without a newline: the word, then the headline and what follows
 * from it, or by how many rules nothing was found and what others lacked. Returns its
 * length, 0 if memory runs out; buf gets as much as fits, NUL-terminated. */
SONDE_API size_t sonde_verdict_text(const sonde_verdict *verdict, char *buf, size_t size);
/* When a finding began, in the same way: "training step 105 (step 305)"; "step 305" where
 * the two are the same, and in programs without modes. */
SONDE_API size_t sonde_finding_when(const sonde_finding *finding, char *buf, size_t size);
/* The line of a finding as it is written after its tensor: " (train.py:41)"; "" if it is
 * unknown. Returns buf. */
SONDE_API const char *sonde_finding_where(const sonde_finding *finding, char *buf,
                                          size_t size);

/* --- when rules look ---------------------------------------------------------------- */

/* When a tensor is looked at in a mode; a zeroed schedule: never. */
typedef struct sonde_rules_looks {
    sonde_schedule when[SONDE_FORM_COUNT]; /* by form of evidence */
} sonde_rules_looks;

/*
 * The schedule of a role: the needs of all rules (sonde_rule_need) that look at tensors
 * of the role at steps of the mode, joined (sonde_schedule_join). A tensor is looked at as
 * often as its role, or less often: not every rule wants every tensor. rules NULL: the
 * default rules. Cost: one pass over the needs.
 */
SONDE_API sonde_rules_looks sonde_rules_looks_of_role(const sonde_rules *rules,
                                                      sonde_role role, sonde_mode mode);

/*
 * The schedules of the default rules for the tensors first ... count - 1 of a catalogue:
 * looks[(id - first) * SONDE_MODE_COUNT + mode]. A hook records this evidence by default.
 * every: a program's own steps between looks, by role, as in sonde_watch_options; or
 * NULL.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_default_looks(
    const sonde_catalogue *catalogue, uint32_t first, const int64_t *every,
    sonde_rules_looks *looks, sonde_diag *diag);

/* --- evidence from this process ----------------------------------------------------- */

/*
 * Before the observer is bound: adds the taps that the rules need. Losses come at every
 * step. Other evidence of a tensor comes as often as the rules that look at it need it,
 * if `every` is 0. Else vital signs come at the first 50 steps of a mode and at each step
 * that `every` divides, and raw values, for rules that need them, at each step that
 * raw_every divides (0: ten times `every`), or with vital signs for rules that compare
 * neighboring steps. Vital signs come as well at a step whose loss is not finite
 * (sonde_tap.when_bad). Rules are evaluated when a step ends, before the next begins. A
 * recorded run gives the same findings if the same values were recorded.
 *
 * May be called for several observers, whose steps come one after another: their tensors
 * are one where their names are. catalogue is borrowed until the observer's last step,
 * and rules must outlive it. sonde_observer_extend adds tensors that are declared later.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_attach(sonde_rules *rules,
                                                     const sonde_catalogue *catalogue,
                                                     sonde_observer *observer,
                                                     int64_t every, int64_t raw_every,
                                                     sonde_diag *diag);

/* --- evidence from a trial ---------------------------------------------------------- */

typedef struct sonde_rules_pace {
    bool follow;  /* continue until the run ends */
    double stall; /* give up after so many seconds without a new step; 0: 1800 */
    bool (*stop)(void *user); /* called between steps; true stops; may be NULL */
    void *user;
    int64_t begin, end; /* global steps begin ... end - 1; end 0: all */
} sonde_rules_pace;

/*
 * Reads the trial once, to its end, and calls finish. pace may be NULL.
 * SONDE_EINTERRUPTED if stopped; SONDE_ETIMEOUT if the run neither grew nor ended.
 * Findings are kept in both cases.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_rules_judge(sonde_rules *rules,
                                                    sonde_trial *trial,
                                                    const sonde_rules_pace *pace,
                                                    sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
