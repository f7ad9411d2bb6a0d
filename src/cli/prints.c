/*
 * prints.c - tensors that a command prints at every step.
 */
#include "cli/prints.h"

sonde_err cli_prints_open(const cli_list *asked, sonde_nn_job *job,
                          sonde_nn_session *session, sonde_printer **printer,
                          sonde_diag *diag)
{
    const size_t taps = sonde_nn_job_tap_count(job);
    const sonde_schedule always = sonde_schedule_always();
    sonde_err err = SONDE_OK;

    if (taps + asked->count == 0) {
        return SONDE_OK;
    }
    err = sonde_printer_create(NULL, NULL, printer, diag);
    for (size_t i = 0; err == SONDE_OK && i < asked->count; i++) {
        err = sonde_nn_session_tap(session, asked->text[i], &always, SONDE_HOW_RAW,
                                   sonde_printer_sink(*printer), diag);
    }
    for (size_t i = 0; err == SONDE_OK && i < taps; i++) {
        const sonde_nn_job_tap *tap = sonde_nn_job_get_tap(job, i);
        const sonde_schedule schedule = {
            .every = tap->every, .start = tap->start, .end = tap->end};

        if (tap->print) {
            err = sonde_nn_session_tap(session, tap->tensors, &schedule, SONDE_HOW_RAW,
                                       sonde_printer_sink(*printer), diag);
        }
    }
    return err;
}
