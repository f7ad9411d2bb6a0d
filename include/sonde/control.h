/*
 * control.h - requests to a running job: stop, or save a checkpoint.
 *
 * Requests alone travel against the direction of the tensors. A rule, another thread or
 * another process asks; the run loop reads requests between steps:
 *
 *     asker:  sonde_control_ask   in the process       run loop:  sonde_control_take
 *             sonde_control_send  from another one, over the run's folder
 *
 * A request of another process is a line in RUN/control.jsonl (docs/format.md). The loop reads
 * the file at most every 50 ms, so a take between steps costs a load and a clock read.
 *
 * A session of Sonde's engine does all this by itself once it has a control
 * (sonde_nn_session_attach_control).
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
    SONDE_REQUEST_CHECKPOINT = 1 /* save what a resumption from here needs */
} sonde_request_kind;

typedef enum sonde_request_by { SONDE_BY_USER = 0, SONDE_BY_RULE = 1 } sonde_request_by;

enum { SONDE_REQUEST_TEXT = 512 };

typedef struct sonde_request {
    sonde_request_kind kind;
    sonde_request_by by;
    char text[SONDE_REQUEST_TEXT]; /* who and why, one line for people */
} sonde_request;

typedef struct sonde_control sonde_control;

/* run: the folder of the run that may be asked from outside, which need not be there yet; NULL: only
 * from inside. Requests that lie there already are of those who asked before, and not read. */
SONDE_API SONDE_CHECKED sonde_err sonde_control_create(const char *run,
                                                       sonde_control **out,
                                                       sonde_diag *diag);
SONDE_API void sonde_control_destroy(sonde_control *control);

/* Any thread, any time. Asked again before it is taken, the first request stays. */
SONDE_API void sonde_control_ask(sonde_control *control, sonde_request_kind kind,
                                 sonde_request_by by, const char *text);
/* The next request, if there is one: a checkpoint before a stop. One thread, the run loop's. */
SONDE_API bool sonde_control_take(sonde_control *control, sonde_request *request);

/* Asks the run in that folder. No run there: SONDE_ENOTFOUND; one that has ended: SONDE_ESTATE. */
SONDE_API SONDE_CHECKED sonde_err sonde_control_send(const char *run,
                                                     sonde_request_kind kind,
                                                     sonde_request_by by,
                                                     const char *text, sonde_diag *diag);
SONDE_API const char *sonde_request_kind_name(sonde_request_kind kind); /* "stop" */

#ifdef __cplusplus
}
#endif

#endif
