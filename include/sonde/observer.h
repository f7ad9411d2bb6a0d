/*
 * observer.h - stands between a producer of tensors and the sinks.
 *
 * Order of calls
 *     create, add taps, bind                     configuration errors are found here
 *     for every call:
 *         begin_call
 *         for every step:
 *             begin_step, and if it returns true:
 *                 for every tensor, when it has its value:
 *                     wants(id), and if it is not 0: observe(id, view)
 *                 end_step
 *
 * Costs: a step at which nothing is due is one comparison (sonde_observer_begin_step,
 * inline); a tensor that nobody wants is one byte read (sonde_observer_wants, inline).
 * After bind, nothing is allocated. Aliases are the observer's business: a producer asks
 * for and observes a tensor under its own id only.
 *
 * One observer serves one producing thread.
 */
#ifndef SONDE_OBSERVER_H
#define SONDE_OBSERVER_H

#include <sonde/tap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_observer sonde_observer;

/* The part a producer reads without a call. Written by the observer only. */
typedef struct sonde_observer_gate {
    /* First step with anything due, by mode; or, where global schedules are about and
     * other modes have run since, so that nobody knows, INT64_MIN: ask. */
    int64_t next_due[SONDE_MODE_COUNT];
    const uint8_t *wants; /* by tensor id: SONDE_HOW_ bits due at this step */
    bool looks_again;     /* some tap has when_bad */
} sonde_observer_gate;

/* catalogue is borrowed until destroy. */
SONDE_API SONDE_CHECKED sonde_err sonde_observer_create(const sonde_catalogue *catalogue,
                                                        sonde_observer **out,
                                                        sonde_diag *diag);
/* Does not destroy the sinks. */
SONDE_API void sonde_observer_destroy(sonde_observer *observer);

/*
 * Resolves the tap against the catalogue as it is now; the tap and its schedules are
 * copied. Several taps may want the same tensor and end in the same sink. *matched (may
 * be NULL) is the number of tensors selected; 0 is also logged as a warning.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_observer_add(sonde_observer *observer,
                                                     const sonde_tap *tap,
                                                     size_t *matched, sonde_diag *diag);
/* Ends configuration: prepares every sink for its tensors. After it, add fails. */
SONDE_API SONDE_CHECKED sonde_err sonde_observer_bind(sonde_observer *observer,
                                                      const sonde_call_shape *shape,
                                                      sonde_diag *diag);
/*
 * Tensors were added to the catalogue after bind. Every tap that selects some of them by a
 * pattern, a collection or a module observes them from now on, and its sink prepares them;
 * a hook and rules that are attached add them as well. Between steps, or within one: call
 * begin_step once more to observe the new tensors at that step. An error leaves the
 * observer as it was before the call, and the call may be repeated. Before bind:
 * SONDE_ESTATE. All memory is allocated here. Cost: proportional to the tensors of all taps.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_observer_extend(sonde_observer *observer,
                                                        sonde_diag *diag);
/* Whether any tap, at any step of any mode, wants this tensor (by its own id, aliases
 * counted in): SONDE_HOW_ bits. For memory planning. Valid after bind. */
SONDE_API unsigned sonde_observer_ever_wants(const sonde_observer *observer, uint32_t id);

SONDE_API const sonde_observer_gate *
sonde_observer_get_gate(const sonde_observer *observer);

SONDE_API void sonde_observer_begin_call(sonde_observer *observer);
/* The slow half of begin_step: true if anything is due. */
SONDE_API bool sonde_observer_begin_due(sonde_observer *observer,
                                        const sonde_coordinate *at);

/*
 * At the start of a step; at->iteration is set, at->micro_batch and replica are not
 * looked at. Steps of a mode come in ascending order. True: something is due; then, and
 * only then, end_step must follow. A step that was not ended (a call broken off) is
 * forgotten by the next call or step.
 */
static inline bool sonde_observer_begin_step(sonde_observer *observer,
                                             const sonde_observer_gate *gate,
                                             const sonde_coordinate *at)
{
    return at->mode_step >= gate->next_due[at->mode] &&
           sonde_observer_begin_due(observer, at);
}

/* SONDE_HOW_ bits wanted of tensor id at this step, 0 for none. Within a due step only.
 */
static inline unsigned sonde_observer_wants(const sonde_observer_gate *gate, uint32_t id)
{
    return gate->wants[id];
}

/*
 * Passes one value of a wanted tensor. view is borrowed for the call and may be strided.
 * vitals may be NULL; a producer that has computed them already saves a pass. They equal
 * those of sonde_vitals_of except for the order of summation, which the producer chooses
 * and keeps at every step, whatever is observed.
 */
SONDE_API void sonde_observer_observe(sonde_observer *observer, uint32_t id,
                                      const sonde_view *view, const sonde_vitals *vitals,
                                      int micro_batch, int replica);
/*
 * Passes the vital signs of a tensor with NaN or infinities to the taps that ask for them
 * (sonde_tap.when_bad) and are not due at this step, which need not be a due one. end_step
 * must follow. The view's data is not read.
 */
SONDE_API void sonde_observer_observe_bad(sonde_observer *observer,
                                          const sonde_coordinate *at, uint32_t id,
                                          const sonde_view *view,
                                          const sonde_vitals *vitals);
/* Whether any tap asks for that of a tensor (by its own id, aliases counted in). Valid after
 * bind. */
SONDE_API bool sonde_observer_when_bad(const sonde_observer *observer, uint32_t id);
SONDE_API void sonde_observer_end_step(sonde_observer *observer);

/*
 * For a producer that can repeat what it has computed of a step (begun at `at`, whether anything
 * was due or not), because it went wrong. True: taps with when_bad were not due; they are now, and
 * nothing else is, until look_on; and end_step must follow. look_on: what has been repeated is
 * over, and all taps of the step are due again.
 */
SONDE_API bool sonde_observer_look_again(sonde_observer *observer,
                                         const sonde_coordinate *at);
SONDE_API void sonde_observer_look_on(sonde_observer *observer);

#ifdef __cplusplus
}
#endif

#endif
