/*
 * observer.h - passes the tensors of a producer to the sinks of taps.
 *
 * Order of calls
 *     create, add taps, bind                     configuration errors are found here
 *     for every call:
 *         begin_call
 *         for every step:
 *             begin_step, and if it returns true:
 *                 for every tensor, when its value is computed:
 *                     wants(id), and if it is not 0: observe(id, view)
 *                 end_step
 *
 * Costs: a step at which nothing is due is one comparison (sonde_observer_begin_step,
 * inline); a tensor that no tap wants is one byte read (sonde_observer_wants, inline).
 * After bind only extend allocates. The observer resolves aliases: a producer asks for
 * and observes a tensor under its own id only.
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

/* The part that a producer reads inline; only the observer writes it. */
typedef struct sonde_observer_gate {
    /* By mode, the first step at which a tap is due; INT64_MIN (call begin_due) if global
     * schedules are in use and steps of other modes came in between. */
    int64_t next_due[SONDE_MODE_COUNT];
    const uint8_t *wants; /* by tensor id: SONDE_HOW_ bits due at this step */
    bool looks_again;     /* a tap has when_bad */
} sonde_observer_gate;

/* Creates an observer; catalogue is borrowed until destroy. */
SONDE_API SONDE_CHECKED sonde_err sonde_observer_create(const sonde_catalogue *catalogue,
                                                        sonde_observer **out,
                                                        sonde_diag *diag);
/* Frees the observer, but not the sinks. */
SONDE_API void sonde_observer_destroy(sonde_observer *observer);

/*
 * Adds a tap and resolves it against the present catalogue; the tap and its schedules are
 * copied. Several taps may select the same tensor and have the same sink. *matched (may
 * be NULL) is the number of selected tensors; 0 is also logged as a warning.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_observer_add(sonde_observer *observer,
                                                     const sonde_tap *tap,
                                                     size_t *matched, sonde_diag *diag);
/* Ends configuration: prepares every sink for its tensors. After it, add fails. */
SONDE_API SONDE_CHECKED sonde_err sonde_observer_bind(sonde_observer *observer,
                                                      const sonde_call_shape *shape,
                                                      sonde_diag *diag);
/*
 * Adds tensors that were added to the catalogue after bind. Every tap that selects some of
 * them by a pattern, a collection or a module observes them from now on, and its sink
 * prepares for them; an attached hook and attached rules add them as well. Call it
 * between steps or within a step; in a step, call begin_step once more to observe the new
 * tensors. After an error the observer is unchanged, and the call may be repeated. Before
 * bind: SONDE_ESTATE. All memory is allocated here. Cost: proportional to the tensors of
 * all taps.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_observer_extend(sonde_observer *observer,
                                                        sonde_diag *diag);
/* Returns the forms in which any tap, at any step of any mode, wants this tensor (by its
 * own id, aliases included), as SONDE_HOW_ bits; for planning memory. Valid after
 * bind. */
SONDE_API unsigned sonde_observer_ever_wants(const sonde_observer *observer, uint32_t id);

SONDE_API const sonde_observer_gate *
sonde_observer_get_gate(const sonde_observer *observer);

SONDE_API void sonde_observer_begin_call(sonde_observer *observer);
/* The part of begin_step that is not inline: returns whether a tap is due. */
SONDE_API bool sonde_observer_begin_due(sonde_observer *observer,
                                        const sonde_coordinate *at);

/*
 * Starts a step; at->iteration is set, at->micro_batch and replica are ignored. Steps of a
 * mode come in ascending order. Returns true if a tap is due; then, and only then, end_step
 * must follow. The next call or step drops a step that was not ended (an aborted call).
 */
SONDE_API inline bool sonde_observer_begin_step(sonde_observer *observer,
                                                const sonde_observer_gate *gate,
                                                const sonde_coordinate *at)
{
    return at->mode_step >= gate->next_due[at->mode] &&
           sonde_observer_begin_due(observer, at);
}

/* Shows all sinks that read programs (sonde_sink.program) that of the steps of at->mode from
 * this one on, within a due step. */
SONDE_API void sonde_observer_program(sonde_observer *observer,
                                      const sonde_coordinate *at,
                                      const struct sonde_program *program);
/* Whether any sink reads programs. */
SONDE_API bool sonde_observer_reads_programs(const sonde_observer *observer);

/* Returns the forms of tensor id that are due at this step, as SONDE_HOW_ bits; 0: none.
 * Valid only within a due step. */
SONDE_API inline unsigned sonde_observer_wants(const sonde_observer_gate *gate,
                                               uint32_t id)
{
    return gate->wants[id];
}

/*
 * Passes one value of a due tensor. view is borrowed for the call and may be strided.
 * vitals may be NULL; a producer that has computed them already saves a pass. They equal
 * those of sonde_vitals_of except for the order of summation, which is the producer's
 * and the same at every step.
 */
SONDE_API void sonde_observer_observe(sonde_observer *observer, uint32_t id,
                                      const sonde_view *view, const sonde_vitals *vitals,
                                      int micro_batch, int replica);
/*
 * Passes the vital signs of a tensor with NaN or infinities to the taps with
 * sonde_tap.when_bad that are not due at this step; at any step, due or not. end_step
 * must follow. The view's data is not read.
 */
SONDE_API void sonde_observer_observe_bad(sonde_observer *observer,
                                          const sonde_coordinate *at, uint32_t id,
                                          const sonde_view *view,
                                          const sonde_vitals *vitals);
/* Returns whether any tap with when_bad selects a tensor (by its own id, aliases
 * included). Valid after bind. */
SONDE_API bool sonde_observer_when_bad(const sonde_observer *observer, uint32_t id);
SONDE_API void sonde_observer_end_step(sonde_observer *observer);

/*
 * For a producer that can repeat a step that went wrong (begun at `at`, due or not).
 * True: the taps with when_bad that were not due at the step are due now, and no others
 * are, until look_on; end_step must follow. look_on ends the repetition: all taps of the
 * step are due again.
 */
SONDE_API bool sonde_observer_look_again(sonde_observer *observer,
                                         const sonde_coordinate *at);
SONDE_API void sonde_observer_look_on(sonde_observer *observer);

#ifdef __cplusplus
}
#endif

#endif
