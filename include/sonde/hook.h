/*
 * hook.h - which tensors of a program are recorded, and when.
 *
 * A hook is a configuration that becomes taps on a producer's observer, and the run that
 * they record into. Two producers take one:
 *   - a program with a loop of its own gives it to a watch (<sonde/watch.h>);
 *   - a session of Sonde's engine takes it before compile (sonde_nn_session_attach_hook).
 *
 * It is configured in C, by a file in JSON or YAML (docs/recording.md), or by smdebug's
 * configuration file as it is. A tensor belongs to every collection that matches it. It
 * is saved if any of them is due (<sonde/save_config.h>): its raw value once, and all of
 * their reductions.
 *
 * Vital signs are recorded as well, unless no_vitals: those of losses at every step, and
 * what the default rules need of every tensor with a role, when they need it
 * (sonde_rules_default_looks): its vital signs, and its raw value if it is small and the
 * program does not say which values are saved. If vitals_every is given: instead, the
 * vital signs of weights, biases, gradients and updates at each training step that it
 * divides. And, in Sonde's engine, those of a gradient at any step at which it is not
 * finite.
 *
 * One producing thread. Cost at a step: <sonde/observer.h>; a value that is recorded is
 * copied into the recorder's ring. when_nan costs, at every step, a pass over each
 * tensor that it selects and a copy of each tensor of the collection, because a value is
 * gone when another one turns out to be NaN.
 */
#ifndef SONDE_HOOK_H
#define SONDE_HOOK_H

#include <sonde/options.h>
#include <sonde/observer.h>
#include <sonde/recorder.h>
#include <sonde/save_config.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_hook sonde_hook;

/* --- configuration ---------------------------------------------------------------- */

typedef struct sonde_hook_options {
    size_t size;                          /* sizeof(sonde_hook_options) */
    const sonde_recorder_options *record; /* path and the rest; NULL: the defaults */
    bool save_all;                        /* @all is a collection that is saved */
    bool dry_run;                         /* everything except files */
    bool no_vitals;       /* only the vital signs that collections ask for */
    int64_t vitals_every; /* 0: as the default rules need */
    const char *include;  /* a selector: its tensors are saved on the hook's schedule */
} sonde_hook_options;

/* Options are copied. Nothing is written before the first step. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_create(const sonde_hook_options *options,
                                                    sonde_hook **out, sonde_diag *diag);
/* From a file: JSON or YAML of Sonde's, or smdebug's JSON; options (may be NULL) win over
 * it. A wrong key: SONDE_EINVAL with file, line and the nearest key. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_load(const char *file,
                                                  const sonde_hook_options *options,
                                                  sonde_hook **out, sonde_diag *diag);

/* The same from memory; name is used in diagnostics. section (may be NULL) is the key of
 * the outermost map whose value is the configuration: a part of a larger file. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_parse(const char *text, size_t size,
                                                   const char *name, const char *section,
                                                   const sonde_hook_options *options,
                                                   sonde_hook **out, sonde_diag *diag);

/* More of a configuration, before the first step; later SONDE_ESTATE. text: a part of a
 * file, in YAML or JSON, without options of the run: schedules, reductions, collections.
 * After an error the parts before it stay: close the hook.
 *
 *     every: 100
 *     collections: {mine: {include: [fc1.*], reductions: mean,norms, train: {every: 10}}}
 */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_configure(sonde_hook *hook, const char *text,
                                                       sonde_diag *diag);

/* --- scalars ---------------------------------------------------------------------- */

/* A number, as the tensor scalar/<name>, at every step it is given, whatever is
 * scheduled. Between steps it belongs to the step before; before the first step, to the
 * first. A second value within a step counts as the next micro-batch. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_scalar(sonde_hook *hook, const char *name,
                                                    double value, sonde_diag *diag);
/* The next step of a mode has this number: for a program that resumes from a checkpoint.
 * Only forward. If the hook resumes a run (record.resume) that is not open yet, the
 * first call (if record.resume_step is 0), or that of mode global, says where
 * (<sonde/recorder.h>, resume_step), and the other modes follow. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_go_on(sonde_hook *hook, sonde_mode mode,
                                                   int64_t step, sonde_diag *diag);

/* --- producers that have an observer ---------------------------------------------- */

/*
 * Before the observer is bound: adds the hook's taps for steps of a mode (train, eval or
 * predict). Several observers may share a hook, one after the other: tensors of the same
 * name are one tensor of the run. The first attach ends configuration; attach a training
 * session first if the configuration names tensors that only training has. The hook must
 * outlive the observer's last step; catalogue is borrowed until then.
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
/* Begins a step of at->mode and fills in the step counts of *at; that of the mode is at
 * least the producer's own count. */
SONDE_API void sonde_hook_next_step(sonde_hook *hook, int64_t at_least,
                                    sonde_coordinate *at);
SONDE_API void sonde_hook_step_done(sonde_hook *hook);

/* --- the end ---------------------------------------------------------------------- */

/* The folder of the run; borrowed. NULL in a dry run. For a run in a store, s3://..., the
 * folder from which its files are sent. */
SONDE_API const char *sonde_hook_path(const sonde_hook *hook);
/* NULL before the first step and in a dry run. */
SONDE_API sonde_recorder *sonde_hook_recorder(sonde_hook *hook);
/* As sonde_recorder_close; frees the hook. Accepts NULL. A run that was never opened
 * leaves nothing behind. */
SONDE_API sonde_err sonde_hook_close(sonde_hook *hook, sonde_run_end reason,
                                     const char *text, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
