/*
 * watch_program.c - a watch is shown the program of its step, as a struct or as text.
 */
#include <sonde/watch.h>

#include "base/fail.h"
#include "capture/hook_state.h"
#include "program/program_parts.h"

sonde_err sonde_watch_program(sonde_watch *face, const sonde_program *program,
                              sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "watch, program", face, program);
    sonde_program *copy = NULL;
    sonde_text text = {0};
    const sonde_err err = sonde__program_take(program, &copy, &text, diag);

    if (err != SONDE_OK) {
        sonde_text_fini(&text);
        return err;
    }
    return sonde__watch_show_program(face, copy, &text, diag);
}

sonde_err sonde_watch_program_text(sonde_watch *face, const char *text, size_t length,
                                   sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "watch, text", face, text);
    sonde_program *program = NULL;
    sonde_text own = {0};
    const sonde_err err = sonde__program_read(text, length, &program, &own, diag);

    return err != SONDE_OK ? err : sonde__watch_show_program(face, program, &own, diag);
}
