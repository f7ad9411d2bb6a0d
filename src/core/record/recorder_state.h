/*
 * recorder_state.h - the recorder's struct. Internal.
 *
 *     recorder.c      create and close
 *     recorder_spool.c  in a folder, or in the spool of a store
 *     put.c           tensors, values and steps into the ring: the producer's thread
 *     writer.c        from the ring into files: the writer's thread
 */
#ifndef SONDE_RECORD_RECORDER_STATE_H
#define SONDE_RECORD_RECORDER_STATE_H

#include "record/writer.h"
#include "record/record_sink.h"
#include "storage/store.h"

/* What the writer knows about a tensor. */
enum {
    SONDE__UNKNOWN = 0,
    SONDE__EXPECTED = 1, /* announced by sonde__recorder_expect */
    SONDE__LISTED = 2
};

/* The collections of a tensor: names, each with its NUL. */
typedef struct sonde__record_collected {
    char *text;
    uint32_t count, length;
} sonde__record_collected;

struct sonde_recorder {
    sonde__record_sink sink;
    sonde_recorder_options options; /* strings are ours */
    const sonde_catalogue *catalogue;

    /* The producer's alone: */
    uint8_t *states; /* by id, up to state_count: SONDE__UNKNOWN ... */
    size_t state_count;
    size_t expected;                    /* of them */
    sonde__record_collected *collected; /* by id */
    size_t collected_count, collected_capacity;
    bool complained;
    uint64_t stuck_at;      /* the ring's tail when a wait lasted too long; UINT64_MAX */
    bool anything;          /* was put since the last end of a step */
    bool has_quiet;         /* nothing was put at the last step that ended, which is */
    sonde_coordinate quiet; /* not written yet */

    /* Set by the exit handler, and in a forked child: nothing is recorded any more. */
    bool closed;
    bool forked;                     /* in a child: the run is the parent's */
    bool is_over;                    /* the writer has been stopped */
    bool is_left;                    /* but a system call held it: nothing may be freed */
    sonde_recorder *previous, *next; /* of all open ones (recorder.c) */
    _Atomic(pthread_t) producer;     /* the thread that ended the last step */

    /* For sonde__recorder_get_stats: */
    _Atomic uint64_t waits;
    _Atomic double waited;

    sonde__record_ring ring;
    sonde__record_writer writer;
    sonde__store_spool *spool; /* takes the files to a store; NULL: they stay */
};

/* True if a put waits when the ring is full. */
static inline bool sonde__recorder_waits(const sonde_recorder *recorder, bool raw)
{
    return recorder->options.when_full == SONDE_WHEN_FULL_WAIT ||
           (recorder->options.when_full == SONDE_WHEN_FULL_DEFAULT && raw);
}
/* Room in the ring. NULL if there is none: now, or if waits for wait_seconds. */
void *sonde__recorder_reserve(sonde_recorder *recorder, uint32_t kind, size_t size,
                              bool waits);
/* Counts a record lost to a full ring; and one that is invalid. */
void sonde__recorder_lose_full(sonde_recorder *recorder);
void sonde__recorder_refuse(sonde_recorder *recorder, const char *what, unsigned long id);
/* Writes the end of the last step if it had no puts. */
void sonde__recorder_end_quiet(sonde_recorder *recorder);
/* Lists the tensor (its id is below the catalogue's count) for the writer, after the
 * expected ones. False: not now (counted as lost to a full ring), or never (refused). */
bool sonde__recorder_list(sonde_recorder *recorder, uint32_t id, bool waits);
/* Enters the recorder in the list that the exit handler closes, and leaves it. */
void sonde__recorder_enter(sonde_recorder *recorder);
void sonde__recorder_leave(sonde_recorder *recorder);
/* Stops the writer. False: a system call hangs (writer.h). */
bool sonde__recorder_stop(sonde_recorder *recorder, sonde_run_end reason,
                          const char *text);
/* SONDE_EINVAL if a name is too long. */
sonde_err sonde__recorder_check_name(const char *name, sonde_diag *diag);
/* A recorder on a given store, which is taken even if it fails. The options are not
 * checked. */
SONDE_API SONDE_CHECKED sonde_err sonde__recorder_create_on(
    const sonde_recorder_options *options, const sonde_catalogue *catalogue,
    sonde__record_backend *backend, sonde_recorder **out, sonde_diag *diag);

/* The spool of an address, opened by a thread of its own. SONDE_EIO: a system call on its
 * folder has hung for most seconds. */
SONDE_API SONDE_CHECKED sonde_err
sonde__recorder_open_spool(const char *url, const sonde__store_writer *place, double most,
                           sonde__store_spool **out, sonde_diag *diag);

/* --- recorder.c, for recorder_spool.c ----------------------------------------------- */

SONDE_CHECKED sonde_err sonde__recorder_check(const sonde_recorder_options *options,
                                              sonde_diag *diag);
SONDE_CHECKED sonde_err sonde__recorder_recover_folder(const char *path, int rank,
                                                       uint64_t *records,
                                                       sonde_diag *diag);

#endif
