/*
 * hook.h - what of a program's tensors is recorded, and when: collections, schedules,
 * reductions, modes.
 *
 * Two ways to use one:
 *   - a program with a loop of its own declares its tensors and calls begin_step, record and
 *     end_step: libsonde alone, no network code;
 *   - a session of Sonde's engine takes a hook before compile
 *     (sonde_nn_session_attach_hook), and everything goes by itself.
 *
 * Configured in C, or by a file in JSON or YAML (docs/recording.md), or by smdebug's
 * configuration file as it is. A tensor belongs to every collection that matches it; it is
 * saved if any of them is due, its raw value once and all of their reductions.
 *
 *     due(s) = s in save_steps                                      if save_steps is given
 *            = start_step <= s < end_step and s mod every == 0              otherwise
 *     or any tensor that when_nan selects held a NaN or an infinity at step s
 *
 * where s counts the steps of the mode. Later wins, field by field: hook, hook's mode,
 * collection, collection's mode; a layer that gives every, start or end and no steps
 * also puts the steps of those before it out of force.
 *
 * Vital signs are recorded beside all that (no_vitals: not): of losses at every step, of
 * weights, biases, gradients and updates at each training step that vitals_every divides; and, in
 * Sonde's engine, those of a gradient at any step at which it holds NaN or infinities.
 *
 * One producing thread. Cost of record: a tensor that is not due, one load and a branch
 * (inline); one that is, a memcpy into the recorder's ring. What when_nan costs: a pass over
 * each tensor that it selects, and a copy of each tensor of the collection, at every step,
 * because a value has gone by the time that another one turns out to be NaN.
 */
#ifndef SONDE_HOOK_H
#define SONDE_HOOK_H

#include <sonde/observer.h>
#include <sonde/recorder.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_hook sonde_hook;

/* --- configuration ---------------------------------------------------------------- */

/* What a save schedule says; a field that is SONDE_UNSET is taken from the layer before. */
#define SONDE_UNSET INT64_MIN
typedef struct sonde_save_config {
    int64_t every;      /* 500 */
    int64_t start_step; /* 0 */
    int64_t end_step;   /* exclusive; SONDE_SCHEDULE_NEVER: no end; 0 with start 0: off */
    const int64_t *save_steps; /* NULL: from the layer before */
    size_t save_step_count;
    const char *when_nan; /* a selector; "": none; NULL: from the layer before */
} sonde_save_config;
/* All fields unset. */
SONDE_API sonde_save_config sonde_save_config_unset(void);

/* Which reductions are kept; bit i is sonde_stat i. With any, raw values are dropped unless
 * save_raw_tensor. All statistics lie in one row of vital signs, so any of them brings all. */
typedef struct sonde_reduction_config {
    uint32_t stats;
    bool histogram; /* the sketch */
    bool save_raw_tensor;
    bool save_shape; /* for smdebug's sake: shapes are in the run's catalogue anyway */
} sonde_reduction_config;

typedef struct sonde_hook_options {
    sonde_recorder_options record; /* path and the rest */
    bool save_all;                 /* @all is a collection that is saved */
    bool dry_run;                  /* everything but files */
    bool no_vitals;                /* no vital signs but what is asked for */
    int64_t vitals_every;          /* 0: 10 */
    const char *include; /* a selector: its tensors are saved on the hook's schedule */
} sonde_hook_options;

/* Options are copied. Nothing is written before the first step. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_create(const sonde_hook_options *options,
                                                    sonde_hook **out, sonde_diag *diag);
/* From a file: JSON or YAML of Sonde's, or smdebug's JSON; options (may be NULL) win over
 * it. A wrong key: SONDE_EINVAL with file, line and the nearest key. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_load(const char *file,
                                                  const sonde_hook_options *options,
                                                  sonde_hook **out, sonde_diag *diag);

/* The same from memory; name stands in diagnostics. section (may be NULL) is the key of the
 * outermost map whose value is the configuration: a part of a larger file. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_parse(const char *text, size_t size,
                                                   const char *name, const char *section,
                                                   const sonde_hook_options *options,
                                                   sonde_hook **out, sonde_diag *diag);

/* --- the same in C: before the first step, afterwards SONDE_ESTATE ------------------ */

/* The schedule of all modes (mode -1) or of one, for the hook (collection NULL) or for a
 * collection, which must have been added. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_save(sonde_hook *hook,
                                                  const char *collection, int mode,
                                                  const sonde_save_config *config,
                                                  sonde_diag *diag);
SONDE_API SONDE_CHECKED sonde_err sonde_hook_reduce(sonde_hook *hook,
                                                    const char *collection,
                                                    const sonde_reduction_config *config,
                                                    sonde_diag *diag);
/* A collection that is saved; at most 64. Built-in ones (weights, biases, gradients, losses,
 * updates, optimizer_state, inputs, outputs, activations, activation_gradients, buffers,
 * scalars, all) need no includes; one that was added already stays as it is. Weights, biases,
 * gradients and losses are saved from the start. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_add_collection(sonde_hook *hook,
                                                            const char *name,
                                                            sonde_diag *diag);
/* Selectors (<sonde/selector.h>) added to, or taken from, a collection: a tensor is in it if
 * any include selects it and no exclude. A pattern that matches nothing is a warning in the
 * log, a name that does not exist an error of the first step (of attach). */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_include(sonde_hook *hook,
                                                     const char *collection,
                                                     const char *selector,
                                                     sonde_diag *diag);
SONDE_API SONDE_CHECKED sonde_err sonde_hook_exclude(sonde_hook *hook,
                                                     const char *collection,
                                                     const char *selector,
                                                     sonde_diag *diag);
/* The inputs and outputs of a module: <module>_input_0, <module>_output_0 and so on. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_add_module(sonde_hook *hook,
                                                        const char *collection,
                                                        const char *module, bool inputs,
                                                        bool outputs, sonde_diag *diag);
/* A collection that is not to be saved after all. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_remove_collection(sonde_hook *hook,
                                                               const char *name,
                                                               sonde_diag *diag);

/* --- a loop of one's own ---------------------------------------------------------- */

/* Declares a tensor; its role by what info says, or, with SONDE_ROLE_OTHER, by its name
 * (docs/recording.md). Any time, once a name; *id counts from 0. One that is declared within
 * a step is recorded at that step already. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_declare(sonde_hook *hook,
                                                     const sonde_tensor_info *info,
                                                     uint32_t *id, sonde_diag *diag);
/* The same of a tensor with the dtype and shape of a view, whose data is not looked at; its
 * role by its name. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_declare_view(sonde_hook *hook,
                                                          const char *name,
                                                          const sonde_view *view,
                                                          uint32_t *id, sonde_diag *diag);
/* The mode of the steps that follow; train at first. In mode global the step is the global
 * step. */
SONDE_API void sonde_hook_set_mode(sonde_hook *hook, sonde_mode mode);
/* The next step of a mode has this number, where a program goes on from a checkpoint. Only
 * forward. Of a hook that goes on with a run (record.resume), before it opens: the first call,
 * or that of mode global, says where (<sonde/recorder.h>, resume_step), and the other modes
 * follow by themselves. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_go_on(sonde_hook *hook, sonde_mode mode,
                                                   int64_t step, sonde_diag *diag);
/* The next step of the mode; ends one that is still on. The first one ends configuration and
 * opens the run: its errors are those of the run. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_begin_step(sonde_hook *hook,
                                                        sonde_diag *diag);
SONDE_API void sonde_hook_end_step(sonde_hook *hook);

/* The part that record reads without a call. Written by the hook only. */
typedef struct sonde_hook_gate {
    const uint8_t *due; /* by id: whether anything of it is wanted at this step */
} sonde_hook_gate;
SONDE_API const sonde_hook_gate *sonde_hook_get_gate(const sonde_hook *hook);
/* The slow half of record. */
SONDE_API void sonde_hook_record_due(sonde_hook *hook, uint32_t id,
                                     const sonde_view *view);

/* A value of tensor id, as declare gave it, at this step; outside of a step, nothing. Any
 * strides, any shape; copied. Given again within a step it counts as the next micro-batch. */
static inline void sonde_hook_record(sonde_hook *hook, const sonde_hook_gate *gate,
                                     uint32_t id, const sonde_view *view)
{
    if (gate->due[id]) {
        sonde_hook_record_due(hook, id, view);
    }
}
/* A number, as the tensor scalar/<name>, at every step it is given, whatever is scheduled.
 * Between steps it belongs to the one before, before the first to that one. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_scalar(sonde_hook *hook, const char *name,
                                                    double value, sonde_diag *diag);

/* --- producers that have an observer, as Sonde's engine ----------------------------- */

/*
 * Before the observer is bound: adds the taps that do what the hook says at steps of a mode.
 * Several observers may share a hook, one after the other: their tensors are one in the run
 * where their names are. The first attach ends configuration; names that only a training
 * session has need that to be attached first. The hook must outlive the observer's last
 * step. Order of calls: open once, then for each step next_step, the observer's own calls,
 * step_done.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_attach(sonde_hook *hook,
                                                    const sonde_catalogue *catalogue,
                                                    sonde_mode mode,
                                                    sonde_observer *observer,
                                                    sonde_diag *diag);
/* Opens the run if it is not open. */
SONDE_API SONDE_CHECKED sonde_err sonde_hook_open(sonde_hook *hook, sonde_diag *diag);
/* Begins a step of at->mode and fills the step counts of *at; the mode's is at least the
 * producer's own count. */
SONDE_API void sonde_hook_next_step(sonde_hook *hook, int64_t at_least,
                                    sonde_coordinate *at);
SONDE_API void sonde_hook_step_done(sonde_hook *hook);

/* --- the end ---------------------------------------------------------------------- */

/* Where the run goes; borrowed. NULL in a dry run. */
SONDE_API const char *sonde_hook_path(const sonde_hook *hook);
/* NULL before the first step and in a dry run. */
SONDE_API sonde_recorder *sonde_hook_recorder(sonde_hook *hook);
/* As sonde_recorder_close; frees the hook. NULL is fine. A run that was never opened leaves
 * nothing behind. */
SONDE_API sonde_err sonde_hook_close(sonde_hook *hook, sonde_run_end reason,
                                     const char *text, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
