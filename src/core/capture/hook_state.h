/*
 * hook_state.h - a hook from inside: a configuration, the taps it becomes, and a
 * recorder.
 *
 *     hook.c         the life of a hook: configured, opened, its steps, scalars, closed
 *     hook_taps.c    taps on a producer's observer; what when_nan holds until a step ends
 *     hook_program.c   the programs of steps
 *     load.c   configuration files, Sonde's and smdebug's
 *
 * The configuration itself is observe/collections.h.
 */
#ifndef SONDE_HOOK_HOOK_STATE_H
#define SONDE_HOOK_HOOK_STATE_H

#include <sonde/error.h>
#include <sonde/hook.h>
#include <sonde/text.h>
#include <sonde/watch.h>

#include "base/yaml.h"
#include "observe/attach.h"
#include "observe/collections.h"
#include "record/record_sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sonde/catalogue.h>
#include <sonde/stats.h>
#include <sonde/tensor.h>

/* A tensor of the run, by the hook's id. */
typedef struct sonde__hook_tensor {
    sonde__observe_member in;
    int64_t step;   /* of a scalar: the global step of the last value */
    uint32_t count; /* its values at that step */
} sonde__hook_tensor;

/* A value held until the end of the step, in case a when_nan wants it. */
typedef struct sonde__hook_held {
    uint32_t id;
    sonde_coordinate at;
    uint64_t sets;   /* collections that may want it */
    unsigned done;   /* SONDE_HOW_ bits that are recorded already */
    size_t offset;   /* of its bytes */
    sonde_view view; /* contiguous; data is set when it is recorded */
} sonde__hook_held;

typedef struct sonde__hook_holding {
    sonde__hook_held *items;
    size_t count, capacity;
    unsigned char *bytes;
    size_t used, size;
    bool failed; /* memory was out; logged once */
} sonde__hook_holding;

/* A scalar that was given before the first step. */
typedef struct sonde__hook_early {
    uint32_t id;
    double value;
} sonde__hook_early;

typedef struct sonde__hook_attachment sonde__hook_attachment;

struct sonde_hook {
    sonde_hook_options options;    /* its strings are in texts; its record is the next */
    sonde_recorder_options record; /* likewise */
    char *texts[7];
    sonde__observe_setup setup;
    /* the run */
    sonde_catalogue *catalogue;
    sonde__hook_tensor *tensors; /* by id */
    size_t tensor_capacity;
    char *spool;              /* the folder of a run on its way to a store; or NULL */
    sonde_recorder *recorder; /* NULL: not open, or a dry run */
    sonde__record_sink dry;   /* of a dry run */
    sonde__record_sink *sink; /* of the recorder, or dry; from open on */
    bool open;
    bool resolved;                       /* the first tensors have their masks */
    bool watched;                        /* a watch counts its steps */
    const int64_t *role_every;           /* of the watch; NULL: the rules' schedules */
    sonde__hook_attachment *attachments; /* newest first */
    char graph[SONDE__DIGEST];           /* of what was attached first; "" */
    /* steps */
    sonde__observe_steps steps;
    sonde_coordinate at; /* of the step that is on, or of the last one */
    bool stepping, begun;
    uint64_t programs[SONDE_MODE_COUNT]; /* digests of those in force; 0: none yet */
    uint64_t
        tripped; /* collections whose when_nan saw a NaN or an infinity at this step */
    sonde__hook_holding held;
    sonde_sketch *sketch; /* scratch; NULL if no collection wants sketches */
    sonde__hook_early *early;
    size_t early_count, early_capacity;
};

/* --- hook.c ----------------------------------------------------------------------- */

/* Declares in the hook's own catalogue, with the masks of member, and prepares the sink
 * if the run is open. */
sonde_err sonde__hook_add_tensor(sonde_hook *hook, const sonde_tensor_info *info,
                                 const sonde__observe_member *member, uint32_t *id,
                                 sonde_diag *diag);
/* Ends configuration. */
sonde_err sonde__hook_settle(sonde_hook *hook, sonde_diag *diag);

/* --- watch.c ---------------------------------------------------------------------- */

/* Shows the program of the step to the hook and the rules. Takes it and its text, which both
 * are freed. */
sonde_err sonde__watch_show_program(sonde_watch *face, sonde_program *program,
                                    sonde_text *text, sonde_diag *diag);

/* --- hook_taps.c ------------------------------------------------------------------ */

/* Attaches the hook to the observer of a watch, whose steps are of any mode; mode: of the
 * first. role_every: the program's steps between looks, as in sonde_watch_options;
 * borrowed until the last step; may be NULL. */
sonde_err sonde__hook_watch(sonde_hook *hook, const sonde_catalogue *catalogue,
                            sonde_mode mode, const int64_t *role_every,
                            sonde_observer *observer, sonde_diag *diag);
/* Drops all held values at the end of a step. */
void sonde__hook_drop_held(sonde_hook *hook);
void sonde__hook_detach_all(sonde_hook *hook);
/* The step that is on is left, and continued later: sonde_watch_leave_step. Both accept
 * NULL. */
void sonde__hook_leave_step(sonde_hook *hook);
void sonde__hook_return_to(sonde_hook *hook, const sonde_coordinate *at);

/* --- hook_program.c --------------------------------------------------------------- */

/* Records the text of the program of a step of an open run as the tensor program/<mode>,
 * unless the program in force has this digest. */
sonde_err sonde__hook_program(sonde_hook *hook, const sonde_coordinate *at,
                              uint64_t digest, const char *text, size_t length,
                              sonde_diag *diag);

/* --- load.c ------------------------------------------------------- */

/* The options of a file. */
typedef struct sonde__hook_said {
    sonde_hook_options hook; /* its record is set when given is put over it */
    sonde_recorder_options record;
} sonde__hook_said;

/* Fields of given, which may be NULL, that are set replace those of a file. */
sonde_err sonde__hook_options_over(sonde__hook_said *said,
                                   const sonde_hook_options *given, sonde_diag *diag);
/* Whether a tree is smdebug's configuration, and the hook that it describes. */
bool sonde__hook_is_smdebug(const sonde__yaml *root);
sonde_err sonde__hook_from_smdebug(const sonde__yaml_reader *reader,
                                   const sonde__yaml *root,
                                   const sonde_hook_options *options, sonde_hook **out);

/* --- watch_update.c ---------------------------------------------------------------- */

/* The update of a parameter: what an optimizer's step changed, from the
 * value before it and the value after. */

typedef struct sonde__watch_update sonde__watch_update;

/* For a tensor of info's shape, and of its dtype: float32 or float64. NULL: no memory. */
sonde__watch_update *sonde__watch_update_create(const sonde_tensor_info *info);
void sonde__watch_update_destroy(sonde__watch_update *update);
/* The next value shown is the first of a step. */
void sonde__watch_update_restart(sonde__watch_update *update);
/* Keeps the first value of a parameter in a step and turns it into the update at the
 * second. Returns true once the update exists. Ignores a value of another shape than
 * declared. vitals: may receive those of the update, taken while it is in cache; *taken is
 * set if so. NULL: they are not wanted. */
bool sonde__watch_update_show(sonde__watch_update *update, const sonde_view *view,
                              sonde_vitals *vitals, bool *taken);
/* The update, contiguous. Borrowed until the next value is shown. */
const sonde_view *sonde__watch_update_value(const sonde__watch_update *update);

/* Returns the recorder, borrowed; NULL before the first step and in a dry run. */
SONDE_API sonde_recorder *sonde__hook_recorder(sonde_hook *hook);

#endif
