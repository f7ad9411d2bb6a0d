/*
 * hook.h - configures which tensors of a program are recorded, and when.
 *
 * A hook is a configuration that becomes taps on a producer's observer, and the run that
 * they record into. Two producers take one:
 *   - a program with a loop of its own gives it to a watch (<sonde/watch.h>);
 *   - a session of Sonde's engine takes it before compile (sonde_nn_session_set).
 *
 * It is configured in C, by a file in JSON or YAML (docs/recording.md), or by smdebug's
 * configuration file as it is. A tensor belongs to every collection that matches it. It
 * is saved if any of them is due (<sonde/schedule.h>): its raw value once, and all of
 * their reductions.
 *
 * Unless no_vitals is set, the hook also records vital signs: those of losses at every
 * step, and those of every tensor with a role at the steps at which the default rules
 * need them (sonde_rules_default_looks), with the raw values of small tensors if the
 * program does not choose the values to save. With vitals_every: only those of weights,
 * biases, gradients and updates, at every vitals_every-th training step. Sonde's engine
 * also records those of a gradient that is not finite, at any step.
 *
 * One thread records. Cost of a step: <sonde/observer.h>; a recorded value is copied into
 * the recorder's ring. when_nan costs, at every step, a pass over each tensor that it
 * selects and a copy of each tensor of the collection, because a value is overwritten
 * before another one becomes NaN.
 */
#ifndef SONDE_HOOK_H
#define SONDE_HOOK_H

#include <sonde/options.h>
#include <sonde/observer.h>
#include <sonde/program.h>
#include <sonde/recorder.h>
#include <sonde/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_hook sonde_hook;

/* --- configuration ---------------------------------------------------------------- */

typedef struct sonde_hook_options {
    size_t size;                          /* sizeof(sonde_hook_options) */
    const sonde_recorder_options *record; /* path and others; NULL: the defaults */
    bool save_all;                        /* save every tensor */
    bool dry_run;                         /* write no files */
    bool no_vitals;       /* only the vital signs that collections ask for */
    int64_t vitals_every; /* 0: as the default rules need */
    const char *include;  /* a selector: its tensors are saved on the hook's schedule */
} sonde_hook_options;

/* Creates a hook from options, which are copied. Writes nothing before the first step. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_create(const sonde_hook_options *options,
                                                    sonde_hook **out, sonde_diag *diag);
/* Creates a hook from a file: Sonde's JSON or YAML, or smdebug's JSON. options (may be
 * NULL) override the file. Unknown key: SONDE_EINVAL with file, line and nearest key. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_load(const char *file,
                                                  const sonde_hook_options *options,
                                                  sonde_hook **out, sonde_diag *diag);

/* As sonde_hook_load, from memory; diagnostics use name. section (may be NULL) is the
 * top-level key whose value is the configuration, for a part of a larger file. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_parse(const char *text, size_t size,
                                                   const char *name, const char *section,
                                                   const sonde_hook_options *options,
                                                   sonde_hook **out, sonde_diag *diag);

/* More of a configuration, before the first step; later SONDE_ESTATE. text: a part of a
 * file, in YAML or JSON, without options of the run: schedules, reductions, collections.
 * A hook has at most 64 collections. After an error the parts before it stay: close the
 * hook.
 *
 *     every: 100
 *     collections: {mine: {include: [fc1.*], reductions: [mean, norms], train: {every: 10}}}
 */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_configure(sonde_hook *hook, const char *text,
                                                       sonde_diag *diag);

/* --- scalars ---------------------------------------------------------------------- */

/* Records a number as the tensor scalar/<name>, on any schedule. Between steps the number
 * belongs to the previous step; before the first step, to the first. A second value
 * within a step is that of the next micro-batch. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_scalar(sonde_hook *hook, const char *name,
                                                    double value, sonde_diag *diag);
/* Sets the number of the next step of a mode, for a program that resumes from a
 * checkpoint. Numbers only increase. If the hook resumes a run (record.resume) that is
 * not open yet, the first call (if record.resume_step is 0), or the call for mode global,
 * sets the step at which the run resumes (<sonde/recorder.h>, resume_step), and the other
 * modes follow. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_resume_at(sonde_hook *hook, sonde_mode mode,
                                                       int64_t step, sonde_diag *diag);

/* --- producers that have an observer ---------------------------------------------- */

/*
 * Adds the hook's taps for steps of a mode (train, eval or predict) to an observer that is
 * not bound yet. Several observers may share a hook, one after the other: tensors of the
 * same name are one tensor of the run. The first attach ends configuration; attach a
 * training session first if the configuration names tensors that only training has. The
 * hook must outlive the observer's last step; catalogue is borrowed until then.
 * sonde_observer_extend adds the tensors that are declared later.
 *
 * Order of calls: open once, then for each step next_step, the observer's own calls,
 * step_done.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_attach(sonde_hook *hook,
                                                    const sonde_catalogue *catalogue,
                                                    sonde_mode mode,
                                                    sonde_observer *observer,
                                                    sonde_diag *diag);
/* Opens the run if it is not open. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_open(sonde_hook *hook, sonde_diag *diag);
/* Starts a step of at->mode and sets the step counts of *at; that of the mode is at least
 * at_least, the producer's own count. */
SONDE_API void sonde_hook_next_step(sonde_hook *hook, int64_t at_least,
                                    sonde_coordinate *at);
/* Records the program of the steps of the current one's mode (<sonde/program.h>), whatever the
 * hook saves, unless it is the one in force. SONDE_ESTATE: no step is on; SONDE_EINVAL: of
 * another mode. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_program(sonde_hook *hook,
                                                     const sonde_program *program,
                                                     sonde_diag *diag);
/* Ends the step; readers of the run see it from here on. */
SONDE_API void sonde_hook_step_done(sonde_hook *hook);

/* --- the end ---------------------------------------------------------------------- */

/* Returns the folder of the run, borrowed; NULL in a dry run. For a run in a store,
 * s3://..., the folder from which its files are sent. */
SONDE_API const char *sonde_hook_path(const sonde_hook *hook);
/* Writes what is left, closes all files with the end of the run (end.json), and frees the
 * hook in any case. What fails is retried for wait_seconds. Accepts NULL. A run that was
 * never opened leaves no files. text may be NULL. SONDE_EIO if anything was lost; diag says
 * how much and why. SONDE_EINVAL for an unknown reason: the run is closed as failed. */
SONDE_API sonde_err sonde_hook_close(sonde_hook *hook, sonde_run_end reason,
                                     const char *text, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
