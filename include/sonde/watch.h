/*
 * watch.h - slots seen once a step: the way into Sonde for a training loop of any
 * program, a loop in C or the binding of another language.
 *
 *     create; add a slot for each tensor
 *     for each step:
 *         begin_step(mode)
 *         see(slot, view)       for each tensor, when it has its value; or see_all
 *         end_step
 *     close
 *
 * A hook configures what is recorded (<sonde/hook.h>), and rules judge while the program
 * runs (<sonde/rules.h>). Both are optional and use the watch's observer
 * (<sonde/observer.h>), to which a program may add its own taps. The vital signs of a
 * tensor are computed once a step, by sonde_vitals_of, for all of them. Raw values are
 * read only if a tap needs them at the step.
 *
 *     sonde_recorder_options run = {.size = sizeof run, .path = "runs/one"};
 *     err = sonde_hook_create(SONDE_OPTIONS(sonde_hook, .record = &run), &hook, &diag);
 *     err = sonde_watch_create(SONDE_OPTIONS(sonde_watch, .hook = hook), &watch, &diag);
 *     err = sonde_watch_add_view(watch, "fc1.weight", &view, &slot, &diag);
 *     for (...) {
 *         err = sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag);
 *         sonde_watch_see(watch, slot, &view);
 *         sonde_watch_end_step(watch);
 *     }
 *     err = sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag);
 *
 * The watch joins the schedules of the hook and of the rules; by default both follow the
 * needs of the rules (sonde_rules_default_looks, docs/rules.md). If a tensor is costly to
 * get, the program asks first whether it is due:
 *
 *     sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag);
 *     if (sonde_watch_wants_role(watch, SONDE_ROLE_ACTIVATION) != 0) {
 *         ... observe activations, or prepare to
 *     }
 *     switch (sonde_watch_wants(watch, slot)) {       SONDE_HOW_ bits, a byte load
 *     0:                         not due: no call of see is needed
 *     only _VITALS or _NORMS:    its vital signs (sonde_watch_see_vitals accepts them
 *                                if they were computed elsewhere)
 *     with SONDE_HOW_RAW ...:    its values are read
 *     }
 *
 * At a step at which its vital signs are not due, a value is still checked for NaN and
 * infinities, so that the first tensor that goes wrong is found at the right step
 * (sonde_watch_checks). If it has some, it is observed as if its vital signs were due.
 *
 * Costs. A step with no active tap: one comparison, and the recorder's end of step. A
 * tensor neither due nor checked: two byte loads and a branch (inline). A checked tensor:
 * a read from cache. A due tensor: its vital signs (near the speed of memory for float32,
 * slower for strided views) and some 100 ns for the sinks. After the first step only these
 * allocate: add, a new finding, and a step with more values for when_nan than any before.
 *
 * One thread at a time for a watch, its hook and its rules.
 */
#ifndef SONDE_WATCH_H
#define SONDE_WATCH_H

#include <sonde/options.h>
#include <sonde/hook.h>
#include <sonde/program.h>
#include <sonde/rules.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The part that sonde_watch_see reads inline; only the watch writes it. */
typedef struct sonde_watch {
    const uint8_t *wants;  /* by slot: SONDE_HOW_ bits due now; 0 outside of a step */
    const uint8_t *checks; /* by slot: 1 if it is checked but not due at this step */
} sonde_watch;

typedef struct sonde_watch_options {
    size_t size;        /* sizeof(sonde_watch_options) */
    sonde_hook *hook;   /* taken if create succeeds. NULL: record nothing */
    sonde_rules *rules; /* borrowed until close. NULL: none */
    /* Steps between the vital signs, and between the raw values, that the rules read, as
     * in sonde_rules_attach. 0: the schedule that the rules need; for rules_raw_every,
     * ten times rules_every. They do not apply to losses. */
    int64_t rules_every, rules_raw_every;
    int micro_batches, replicas; /* of a step, at most; 0: 1 */
    /*
     * By role, the steps between observations, for rules and for the hook's default
     * recording. 0: the schedule that the rules need (losses: every step); below 0: never.
     * N: vital signs at the first 20 steps of a mode and at every N-th; raw values on the
     * rules' schedule, but at most at every N-th step. Unless it is 0, values are not
     * checked for NaN at other steps.
     */
    int64_t every[SONDE_ROLE_COUNT];
} sonde_watch_options;

/* Creates a watch. With options NULL it has neither hook nor rules; add taps to its
 * observer. */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_create(const sonde_watch_options *options,
                                                     sonde_watch **out, sonde_diag *diag);
/*
 * Ends the current step, finishes the rules, closes the hook as sonde_hook_close does,
 * and frees the watch, also if it returns an error. text and watch may be NULL. The rules
 * keep their findings.
 */
SONDE_API sonde_err sonde_watch_close(sonde_watch *watch, sonde_run_end reason,
                                      const char *text, sonde_diag *diag);

/* --- slots ------------------------------------------------------------------------ */

/*
 * Adds a tensor at any time; *slot counts from 0. With info->role SONDE_ROLE_OTHER the
 * tensor gets the role of its name (docs/recording.md). same_as is ignored: each slot is
 * recorded under its own name. Strings are copied. A slot that is added within a step is
 * observed at that step. The shape of a view may differ from info->shape. A name in use:
 * SONDE_EEXIST; other errors are those of sonde_catalogue_declare and
 * sonde_observer_extend. All memory of the slot is allocated here, or by the first
 * begin_step.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_add(sonde_watch *watch,
                                                  const sonde_tensor_info *info,
                                                  uint32_t *slot, sonde_diag *diag);
/* As sonde_watch_add, with the dtype and shape of a view, whose data is not read, and the
 * role of the name. */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_add_view(sonde_watch *watch,
                                                       const char *name,
                                                       const sonde_view *view,
                                                       uint32_t *slot, sonde_diag *diag);
/*
 * Adds the update of a slot's tensor: "update/<its name>", role update, its shape,
 * float64 for float64 and float32 for other floating dtypes (else SONDE_EDTYPE).
 * (In Sonde's engine, UpdatedVar___W has the role update and is the value after the
 * update.) Pass the tensor itself to this slot twice a step: before the optimizer changes
 * it, when the watch copies it, and after, when the watch observes the difference, after
 * minus before. Memory: one copy. Cost when it is not due: that of any slot, twice.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_add_update(sonde_watch *watch,
                                                         uint32_t parameter,
                                                         uint32_t *slot,
                                                         sonde_diag *diag);
/* Gives a slot's tensor a second name, under which it can be selected and read too. Pass
 * its values only to the slot. */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_add_alias(sonde_watch *watch, uint32_t slot,
                                                        const char *name,
                                                        sonde_diag *diag);
/* Returns the catalogue, in which the slot is the id of its tensor; borrowed until
 * close. */
SONDE_API const sonde_catalogue *sonde_watch_catalogue(const sonde_watch *watch);
/* Returns the observer, borrowed until close. Add your own taps before the first step.
 * Each step is a call of one iteration; other counts are those of the options. */
SONDE_API sonde_observer *sonde_watch_observer(sonde_watch *watch);

/* --- steps ------------------------------------------------------------------------ */

/*
 * Starts the next step of a mode; ends the current step. A program that does not
 * distinguish modes passes SONDE_MODE_GLOBAL for all steps. The first call ends
 * configuration and opens the run: it returns the errors of sonde_hook_attach,
 * sonde_rules_attach and sonde_hook_open. After an error there is no current step.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_begin_step(sonde_watch *watch,
                                                         sonde_mode mode,
                                                         sonde_diag *diag);
/* Returns the forms of a slot that are due at this step, as SONDE_HOW_ bits; 0: none, or
 * outside of a step. */
SONDE_API inline unsigned sonde_watch_wants(const sonde_watch *watch, uint32_t slot)
{
    return watch->wants[slot];
}
/*
 * Returns whether see checks the slot for NaN and infinities at this step although it is
 * not due. Values are checked if the schedule is that of the rules
 * (sonde_watch_options.every and rules_every are 0). Updates are not checked: their
 * weights are. Do not copy a value from another device only for this check.
 */
SONDE_API inline bool sonde_watch_checks(const sonde_watch *watch, uint32_t slot)
{
    return watch->checks[slot] != 0;
}
/* Returns whether a value contains NaN or an infinity: for a program that makes the check
 * itself, and calls see only for bad values. */
SONDE_API bool sonde_watch_is_bad(const sonde_view *view);
/* Returns whether see checks values of any slot of a role. Cost: one test. */
SONDE_API bool sonde_watch_checks_role(const sonde_watch *watch, sonde_role role);
/*
 * Returns the forms that are due at this step for any slot of the role, as SONDE_HOW_
 * bits. While the role has no slot: all bits if the rules' schedule for it is due.
 */
SONDE_API unsigned sonde_watch_wants_role(sonde_watch *watch, sonde_role role);
/* The part of sonde_watch_see that is not inline. */
SONDE_API void sonde_watch_see_due(sonde_watch *watch, uint32_t slot,
                                   const sonde_view *view);
/*
 * Observes the value of a slot at this step; does nothing outside of a step. slot is one
 * that add returned. view is borrowed for the call and may have any strides and shape. A
 * second value of a slot within a step is its next micro-batch.
 */
SONDE_API inline void sonde_watch_see(sonde_watch *watch, uint32_t slot,
                                      const sonde_view *view)
{
    if ((watch->wants[slot] | watch->checks[slot]) != 0) {
        sonde_watch_see_due(watch, slot, view);
    }
}
/* As sonde_watch_see, for a micro-batch and a replica, each below its count in the
 * options. */
SONDE_API void sonde_watch_see_replica(sonde_watch *watch, uint32_t slot,
                                       const sonde_view *view, int micro_batch,
                                       int replica);
/* As sonde_watch_see for slots[i] and views[i], i < count, in order. A number that is not
 * a slot is skipped. */
SONDE_API void sonde_watch_see_all(sonde_watch *watch, const uint32_t *slots,
                                   const sonde_view *views, size_t count);
/*
 * Observes vital signs of a slot that the program computed, for example on another
 * device. view has the dtype and shape; its data is not read. Call it only if
 * sonde_watch_wants returns no bits other than SONDE_HOW_VITALS and SONDE_HOW_NORMS (for
 * SONDE_HOW_NORMS alone, norms are enough). Otherwise the call is ignored, unless the slot
 * is only checked at this step and the vital signs count NaN or infinities. For the slot
 * of an update, pass the vital signs and the dtype of the difference.
 */
SONDE_API void sonde_watch_see_vitals(sonde_watch *watch, uint32_t slot,
                                      const sonde_view *view, const sonde_vitals *vitals);
/* Records a number as sonde_hook_scalar does; does nothing without a hook. */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_scalar(sonde_watch *watch, const char *name,
                                                     double value, sonde_diag *diag);
/*
 * From the current step on, this is the program of its mode (<sonde/program.h>): the hook
 * records its text as the tensor program/<mode>, whatever is saved, and the rules read it.
 * A program that holds already does nothing. SONDE_ESTATE: outside of a step, or the step
 * has another program already; SONDE_EINVAL: it is of another mode than the step. Cost: a
 * few milliseconds for 1,000 operations; call it when the steps change.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_program(sonde_watch *watch,
                                                      const sonde_program *program,
                                                      sonde_diag *diag);

/* The same of a program's text (docs/program.md), as sonde_program_read reads it. Errors of
 * both. Cost: half of that of the two calls. */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_program_text(sonde_watch *watch,
                                                           const char *text,
                                                           size_t length,
                                                           sonde_diag *diag);
/* Ends the step: the rules judge it, and readers of the run see it. */
SONDE_API void sonde_watch_end_step(sonde_watch *watch);
/*
 * For values that arrive some steps later, for example from another device. Instead of
 * end_step, leave_step suspends the current step (sonde_watch_where) without judging it.
 * When its values have arrived, return_to continues it, between two other steps: pass the
 * values with see, see_vitals and scalar, and end it with end_step. The steps after a
 * suspended one must be suspended too. Continue suspended steps in order, each once.
 * return_to suspends the current step.
 */
SONDE_API void sonde_watch_leave_step(sonde_watch *watch);
SONDE_API void sonde_watch_return_to(sonde_watch *watch, const sonde_coordinate *at);

/* Returns the position of the current step, or else of the last one, in the run. */
SONDE_API sonde_coordinate sonde_watch_where(const sonde_watch *watch);
/* Gets the vital signs of the last value of a slot at that step, or its norms if only they
 * were due. Returns false if neither was due, or the slot was not observed. */
SONDE_API bool sonde_watch_vitals(const sonde_watch *watch, uint32_t slot,
                                  sonde_vitals *vitals);

#ifdef __cplusplus
}
#endif

#endif
