/*
 * control.h - requests to a running loop: stop, or save a checkpoint.
 *
 * A rule, another thread or another process asks; the run loop takes requests between
 * steps:
 *
 *     same process:   sonde_control_ask    \
 *                                           run loop: sonde_control_take
 *     other process:  sonde_control_send   /
 *
 * A request of another process is a line in RUN/control.jsonl (docs/format.md). The loop
 * reads that file at most every 50 ms, so between steps take costs an atomic load and one
 * reading of the clock.
 *
 * A session with a control (sonde_nn_session_attach_control) takes requests by itself.
 */
#ifndef SONDE_CONTROL_H
#define SONDE_CONTROL_H

#include <stdbool.h>

#include <sonde/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_request_kind {
    SONDE_REQUEST_STOP = 0,      /* end cleanly after the current step */
    SONDE_REQUEST_CHECKPOINT = 1 /* save all that resuming needs */
} sonde_request_kind;

typedef enum sonde_request_by { SONDE_BY_USER = 0, SONDE_BY_RULE = 1 } sonde_request_by;

enum { SONDE_REQUEST_TEXT = 512 };

typedef struct sonde_request {
    sonde_request_kind kind;
    sonde_request_by by;
    char text[SONDE_REQUEST_TEXT]; /* who and why, one line for people */
} sonde_request;

typedef struct sonde_control sonde_control;

/* run: the run's folder, for requests of other processes; it need not exist yet. NULL:
 * requests of this process only. Requests already in the folder are old and are ignored.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_control_create(const char *run,
                                                       sonde_control **out,
                                                       sonde_diag *diag);
SONDE_API void sonde_control_destroy(sonde_control *control);

/* Any thread, any time. Of several requests of a kind before a take, the first is kept.
 */
SONDE_API void sonde_control_ask(sonde_control *control, sonde_request_kind kind,
                                 sonde_request_by by, const char *text);
/* Takes the next request, a checkpoint before a stop; false if there is none. Only from
 * the thread of the run loop. */
SONDE_API bool sonde_control_take(sonde_control *control, sonde_request *request);

/* Asks the run in a folder. SONDE_ENOTFOUND: no run there; SONDE_ESTATE: the run has
 * ended. */
SONDE_API SONDE_CHECKED sonde_err sonde_control_send(const char *run,
                                                     sonde_request_kind kind,
                                                     sonde_request_by by,
                                                     const char *text, sonde_diag *diag);
SONDE_API const char *sonde_request_kind_name(sonde_request_kind kind); /* "stop" */

#ifdef __cplusplus
}
#endif

#endif
