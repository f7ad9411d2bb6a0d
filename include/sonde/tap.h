/*
 * tap.h - a tap: what to observe, when, how, and where it goes.
 *
 *     what   a selector over the catalogue's names
 *     when   a schedule, one per mode
 *     how    raw values, vital signs, sketch, hash, or several of them
 *     where  a sink
 *
 * Anchors, printing, queues and recording are sinks; a new one needs no change elsewhere.
 *
 * Threads: a sink is called on its producer's thread.
 */
#ifndef SONDE_TAP_H
#define SONDE_TAP_H

#include <sonde/catalogue.h>
#include <sonde/reduction.h>
#include <sonde/schedule.h>
#include <sonde/selector.h>
#include <sonde/sketch.h>
#include <sonde/stats.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_mode {
    SONDE_MODE_TRAIN = 0,
    SONDE_MODE_EVAL = 1,
    SONDE_MODE_PREDICT = 2,
    SONDE_MODE_GLOBAL = 3 /* steps of all modes, in one count */
} sonde_mode;
enum { SONDE_MODE_COUNT = 4 };
SONDE_API const char *sonde_mode_name(sonde_mode mode); /* "train" ... */

/*
 * How often a step repeats inside: a call is `iterations` steps of `micro_batches`
 * forward (and backward) passes on each of `replicas` copies. Flat order of observations
 * of a tensor within a call: k = (iteration * micro_batches + micro_batch) * replicas +
 * replica.
 */
typedef struct sonde_call_shape {
    int iterations;    /* D: steps a call */
    int micro_batches; /* G: 1 but when gradients are accumulated */
    int replicas;      /* R */
} sonde_call_shape;

/* Where in a run an observation was made. All counts start at 0. Steps of mode global
 * are for programs that do not distinguish modes: their mode_step is the global step. */
typedef struct sonde_coordinate {
    sonde_mode mode;
    int64_t global_step; /* over all modes */
    int64_t mode_step;   /* within the mode */
    int iteration;       /* of the call, 0 ... iterations - 1 */
    int micro_batch;     /* of the step */
    int replica;
} sonde_coordinate;

/* One value, as a sink receives it. Everything is borrowed for the duration of the call.
 */
typedef struct sonde_observation {
    uint32_t id;                   /* as selected: the alias, where an alias was */
    const sonde_tensor_info *info; /* of id */
    sonde_coordinate at;
    unsigned how;           /* SONDE_HOW_ bits of the tap */
    const sonde_view *view; /* always; may be strided; its data is undefined if the tap
                               asks for vital signs or norms alone */
    const sonde_vitals *vitals; /* if the tap asks for them, or for norms: then the norms
                                   alone; else NULL */
    const sonde_sketch *sketch; /* likewise */
    uint64_t hash;              /* likewise, else 0 */
} sonde_observation;

/*
 * Where observations go. Embed this as the first member of your own struct. All
 * functions except put may be NULL. All are called on the producer's thread. put must
 * not allocate and cannot fail: a sink counts and reports its own losses.
 */
typedef struct sonde_sink sonde_sink;
struct sonde_program;
struct sonde_sink {
    /* In bind, and in extend for new tensors: once for every tensor of every tap that
     * ends here. Allocate here. An error is a configuration error. */
    sonde_err (*prepare)(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                         unsigned how, const sonde_call_shape *shape, sonde_diag *diag);
    void (*begin_call)(sonde_sink *sink);
    void (*put)(sonde_sink *sink, const sonde_observation *observation);
    void (*end_step)(sonde_sink *sink, const sonde_coordinate *at);
    void (*destroy)(sonde_sink *sink);
    /* The program of the steps of a mode from this one on (<sonde/program.h>), in a step:
     * for sinks that read it. Borrowed for the call. It may allocate. */
    void (*program)(sonde_sink *sink, const sonde_coordinate *at,
                    const struct sonde_program *program);
};

typedef struct sonde_tap {
    const sonde_selector *what;            /* borrowed while adding */
    sonde_schedule when[SONDE_MODE_COUNT]; /* by mode; a zeroed schedule is never due */
    unsigned how;                          /* SONDE_HOW_ bits, at least one */
    sonde_sink *where;                     /* borrowed until the observer is destroyed */
    /* Besides `when`: also at a step of training that goes wrong. Gradients that hold
     * NaN or infinities give their vital signs; Sonde's engine notices them while it
     * applies them, at no measurable cost. If the loss is not finite, the tap gets all
     * its tensors: the engine computes the step up to the loss once more. Other
     * producers call sonde_observer_observe_bad and sonde_observer_look_again. */
    bool when_bad;
} sonde_tap;

#ifdef __cplusplus
}
#endif

#endif
