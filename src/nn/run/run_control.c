/*
 * run_control.c - how a session serves requests: between calls of run, never within one.
 */
#include "nn/run/session_state.h"
#include "base/fail.h"
#include "base/memory.h"

#include <sonde/log.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH = 4096 };

sonde_err sonde_nn_session_attach_control(sonde_nn_session *session,
                                          sonde_control *control, const char *checkpoints,
                                          sonde_diag *diag)
{
    char *folder = NULL;

    if (checkpoints != NULL && strlen(checkpoints) + 64 > PATH) {
        return sonde__fail(diag, SONDE_EINVAL, "checkpoints", "a shorter path",
                           "a path of %zu bytes", strlen(checkpoints));
    }
    if (checkpoints != NULL) {
        folder = sonde__strdup(checkpoints);
        if (folder == NULL) {
            return sonde__fail_nomem(diag, "a control");
        }
    }
    sonde__free(session->checkpoints);
    session->checkpoints = folder;
    session->control = control;
    session->stopped = false;
    return SONDE_OK;
}

const sonde_request *sonde_nn_session_stopped(const sonde_nn_session *session)
{
    return session->stopped ? &session->stop : NULL;
}

/* A checkpoint that cannot be saved is reported, and training continues. */
static void save_checkpoint(const sonde_nn_session *session, const sonde_request *request)
{
    char path[PATH], line[SONDE_DIAG_LINE];
    sonde_diag diag = {0};

    if (session->checkpoints == NULL) {
        sonde_log(SONDE_LOG_WARNING, "control",
                  "a checkpoint was asked for (%s), and there is no folder for it",
                  request->text);
        return;
    }
    if (mkdir(session->checkpoints, 0777) != 0 && errno != EEXIST) {
        sonde_log(SONDE_LOG_WARNING, "control", "%s: cannot create the folder: %s",
                  session->checkpoints, strerror(errno));
        return;
    }
    (void)snprintf(path, sizeof path, "%s/step-%010" PRId64 ".safetensors",
                   session->checkpoints, session->step);
    if (sonde_nn_session_save(session, path, &diag) != SONDE_OK) {
        sonde_log(SONDE_LOG_WARNING, "control", "no checkpoint: %s",
                  sonde_diag_line(&diag, line, sizeof line));
        return;
    }
    sonde_log(SONDE_LOG_INFO, "control", "checkpoint %s: %s", path, request->text);
}

sonde_err sonde_nn_session_heed(sonde_nn_session *session, sonde_diag *diag)
{
    sonde_request request;

    while (!session->stopped && session->control != NULL &&
           sonde_control_take(session->control, &request)) {
        if (request.kind == SONDE_REQUEST_CHECKPOINT) {
            save_checkpoint(session, &request);
        } else {
            session->stop = request;
            session->stopped = true;
        }
    }
    return session->stopped ? sonde__fail(diag, SONDE_EINTERRUPTED, "control", NULL, "%s",
                                          session->stop.text)
                            : SONDE_OK;
}
