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
 * A hook says what is recorded (<sonde/hook.h>), rules judge while the program runs
 * (<sonde/rules.h>); both are optional and hang on the watch's one observer
 * (<sonde/observer.h>), to which a program may add taps of its own. The vital signs of a
 * tensor are computed once a step, by sonde_vitals_of, for all of them. Raw values are
 * read only if a tap that is due asks for them.
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
 * The watch decides what is due: the schedules of the hook and of the rules are joined,
 * and by default both are what the rules need (sonde_rules_default_looks,
 * docs/rules.md). A program for which a tensor is costly to get asks first:
 *
 *     sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag);
 *     if (sonde_watch_wants_role(watch, SONDE_ROLE_ACTIVATION) != 0) {
 *         ... install what catches activations, or catch them
 *     }
 *     switch (sonde_watch_wants(watch, slot)) {       SONDE_HOW_ bits, a byte load
 *     0:                         not due: no call of see is needed
 *     only _VITALS or _NORMS:    its vital signs (sonde_watch_see_vitals takes them, if
 *                                they were computed elsewhere)
 *     with SONDE_HOW_RAW ...:    its values are read
 *     }
 *
 * A value whose vital signs are not due is still checked for NaN and infinities, so that
 * the first tensor that goes wrong is found at its own step, whenever that is
 * (sonde_watch_checks). One that has some is observed, as if its vital signs were due.
 *
 * Cost: a step with no active tap, one comparison and the recorder's end of step; a
 * tensor that is neither due nor checked, two byte loads and a branch (inline); one that
 * is checked, a read at the speed of the cache it is in; one that is due, its vital
 * signs (near the speed of memory for float32, slower for strided views) and some 100 ns
 * for the sinks. After the first step nothing is allocated, but by add, a new finding,
 * and a step that holds more values for when_nan than any before.
 *
 * One thread at a time for a watch, its hook and its rules.
 */
#ifndef SONDE_WATCH_H
#define SONDE_WATCH_H

#include <sonde/options.h>
#include <sonde/hook.h>
#include <sonde/rules.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The part that see reads without a call; the watch alone writes it. */
typedef struct sonde_watch {
    const uint8_t *wants;  /* by slot: SONDE_HOW_ bits due now; 0 outside of a step */
    const uint8_t *checks; /* by slot: 1 if it is checked at this step though not due */
} sonde_watch;

typedef struct sonde_watch_options {
    size_t size;        /* sizeof(sonde_watch_options) */
    sonde_hook *hook;   /* what is recorded; taken if create succeeds. NULL: nothing */
    sonde_rules *rules; /* borrowed until close. NULL: none */
    /* Steps between the rules' looks at vital signs and at raw values, as in
     * sonde_rules_attach; 0: as often as the rules need, and ten times as many. They do
     * not hold for losses. */
    int64_t rules_every, rules_raw_every;
    int micro_batches, replicas; /* of a step, at most; 0: 1 */
    /*
     * By role, the program's own steps between looks, for rules and for what a hook
     * records in any case: 0: as the rules need; below 0: never. Vital signs then come at
     * the first 20 steps of a mode and at each step that it divides; raw values as often
     * as rules need them, and not more often than that. Unless it is 0, values are not
     * checked at the steps between. For losses, 0 is every step.
     */
    int64_t every[SONDE_ROLE_COUNT];
} sonde_watch_options;

/* options may be NULL: for taps of one's own. */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_create(const sonde_watch_options *options,
                                                     sonde_watch **out, sonde_diag *diag);
/*
 * Ends a step that is on, finishes the rules, closes the hook as sonde_hook_close does,
 * and frees the watch, whatever it returns. text may be NULL, and so may watch. The
 * findings stay with the rules.
 */
SONDE_API sonde_err sonde_watch_close(sonde_watch *watch, sonde_run_end reason,
                                      const char *text, sonde_diag *diag);

/* --- slots ------------------------------------------------------------------------ */

/*
 * Adds a tensor; *slot counts from 0. info->role SONDE_ROLE_OTHER takes the role that
 * the name suggests (docs/recording.md); same_as is ignored: each slot is recorded under
 * its own name. Strings are copied. At any time; a slot that is added within a step is
 * seen at that step. A batch may have another size than info->shape: a view says what it
 * is. A name that is taken: SONDE_EEXIST; other errors are those of
 * sonde_catalogue_declare and sonde_observer_extend. All memory of the slot is allocated
 * here, or by the first begin_step.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_add(sonde_watch *watch,
                                                  const sonde_tensor_info *info,
                                                  uint32_t *slot, sonde_diag *diag);
/* The same with the dtype and shape of a view, whose data is not read, and the role that
 * the name suggests. */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_add_view(sonde_watch *watch,
                                                       const char *name,
                                                       const sonde_view *view,
                                                       uint32_t *slot, sonde_diag *diag);
/*
 * Adds the update of a slot's tensor: "update/<its name>", role update, its shape,
 * float64 for float64 and float32 for other floating dtypes (else SONDE_EDTYPE).
 * (Sonde's engine gives role update to UpdatedVar___W, which is the value after the
 * update.) Show the tensor itself to this slot twice a step: before the optimizer
 * changes it, which keeps a copy, and after, which observes the difference, after minus
 * before. Memory: one copy. Cost when it is not due: that of any slot, twice.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_add_update(sonde_watch *watch,
                                                         uint32_t parameter,
                                                         uint32_t *slot,
                                                         sonde_diag *diag);
/* Gives a slot's tensor a second name, under which it is selected and recorded as well;
 * show the slot alone. */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_add_alias(sonde_watch *watch, uint32_t slot,
                                                        const char *name,
                                                        sonde_diag *diag);
/* The catalogue of the slots, in which a slot is its own id. Borrowed until close. */
SONDE_API const sonde_catalogue *sonde_watch_catalogue(const sonde_watch *watch);
/* The observer, for taps of one's own: add them before the first step. Each step is a
 * call of one iteration; other counts are those of the options. Borrowed until close. */
SONDE_API sonde_observer *sonde_watch_observer(sonde_watch *watch);

/* --- steps ------------------------------------------------------------------------ */

/*
 * The next step of a mode; ends a step that is on. A program that does not distinguish
 * modes passes SONDE_MODE_GLOBAL for all steps. The first call ends configuration and
 * opens the run: it returns the errors of sonde_hook_attach, sonde_rules_attach and
 * sonde_hook_open. After an error no step is on.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_begin_step(sonde_watch *watch,
                                                         sonde_mode mode,
                                                         sonde_diag *diag);
/* What is due of a slot at this step: SONDE_HOW_ bits; 0: nothing, or no step is on. */
SONDE_API inline unsigned sonde_watch_wants(const sonde_watch *watch, uint32_t slot)
{
    return watch->wants[slot];
}
/*
 * Whether see checks a value of a slot at this step that is not due: between the looks of
 * rules or of what a hook records in any case, if they come as the rules need
 * (sonde_watch_options.every and rules_every are 0). It is not worth a copy from another
 * device. Updates are not checked: their weights are.
 */
SONDE_API inline bool sonde_watch_checks(const sonde_watch *watch, uint32_t slot)
{
    return watch->checks[slot] != 0;
}
/* Whether that check finds NaN or an infinity in a value: for a program that can put the
 * check off, and needs no call of see where it finds none. */
SONDE_API bool sonde_watch_is_bad(const sonde_view *view);
/* Whether see checks values of any slot of a role. Cost: one test. */
SONDE_API bool sonde_watch_checks_role(const sonde_watch *watch, sonde_role role);
/*
 * What is due at this step of any tensor of the role: SONDE_HOW_ bits of the slots that it
 * has, or, while it has none, all bits if the rules' schedule for the role is due.
 */
SONDE_API unsigned sonde_watch_wants_role(sonde_watch *watch, sonde_role role);
/* The slow half of see. */
SONDE_API void sonde_watch_see_due(sonde_watch *watch, uint32_t slot,
                                   const sonde_view *view);
/*
 * The value of a slot at this step; outside of a step, nothing. slot is one that add
 * returned. view is borrowed for the call; any strides and any shape. A slot that is seen
 * again within a step has its next micro-batch.
 */
SONDE_API inline void sonde_watch_see(sonde_watch *watch, uint32_t slot,
                                      const sonde_view *view)
{
    if ((watch->wants[slot] | watch->checks[slot]) != 0) {
        sonde_watch_see_due(watch, slot, view);
    }
}
/* The value of a micro-batch and replica, each below its count in the options. */
SONDE_API void sonde_watch_see_replica(sonde_watch *watch, uint32_t slot,
                                       const sonde_view *view, int micro_batch,
                                       int replica);
/* The same for slots[i] and views[i], i < count, in this order: one call of C for a whole
 * step. A number that is not a slot is skipped. */
SONDE_API void sonde_watch_see_all(sonde_watch *watch, const uint32_t *slots,
                                   const sonde_view *views, size_t count);
/*
 * The vital signs of a slot at this step, computed by the program: on another device, for
 * example. view gives dtype and shape; its data is not read, so use it only where
 * sonde_watch_wants has no bit but SONDE_HOW_VITALS and SONDE_HOW_NORMS (norms will do
 * for the latter alone). It is ignored elsewhere, unless the slot is checked at this step,
 * is not due, and has NaN or infinities. For the slot of an update they are those of the
 * difference, and view gives its dtype.
 */
SONDE_API void sonde_watch_see_vitals(sonde_watch *watch, uint32_t slot,
                                      const sonde_view *view, const sonde_vitals *vitals);
/* As sonde_hook_scalar; without a hook, nothing. */
SONDE_API SONDE_CHECKED sonde_err sonde_watch_scalar(sonde_watch *watch, const char *name,
                                                     double value, sonde_diag *diag);
SONDE_API void sonde_watch_end_step(sonde_watch *watch);
/*
 * For values that arrive some steps later, from another device: leave_step, in place of
 * end_step, leaves the step that is on (sonde_watch_where) without judging it; when its
 * values are there, return_to continues it, between two other steps: see, see_vitals
 * and scalar show them, and end_step ends it. The steps after one that was left are left
 * as well, and continued in order, each once; return_to leaves a step that is on.
 */
SONDE_API void sonde_watch_leave_step(sonde_watch *watch);
SONDE_API void sonde_watch_return_to(sonde_watch *watch, const sonde_coordinate *at);

/* Where the step that is on, or else the last one, is in the run. */
SONDE_API sonde_coordinate sonde_watch_where(const sonde_watch *watch);
/* The vital signs of the last value of a slot at that step, or its norms if they alone
 * were due. False if neither was, or the slot was not seen. */
SONDE_API bool sonde_watch_vitals(const sonde_watch *watch, uint32_t slot,
                                  sonde_vitals *vitals);

#ifdef __cplusplus
}
#endif

#endif
