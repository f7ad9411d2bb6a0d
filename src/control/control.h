/*
 * control.h - a control from inside, and the file between processes.
 */
#ifndef SONDE_CONTROL_CONTROL_H
#define SONDE_CONTROL_CONTROL_H

#include <sonde/error.h>
#include <sonde/control.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SONDE__CONTROL_FILE "control.jsonl"
enum { SONDE__CONTROL_KINDS = 2, SONDE__CONTROL_LINE = 4096 };

/* How far RUN/control.jsonl has been read. */
typedef struct sonde__control_file {
    char *path; /* NULL: nobody asks from outside */
    uint64_t at;
    double looked; /* when, in seconds of sonde__now */
    bool told;     /* that it cannot be read */
} sonde__control_file;

/* Copies text, control characters as blanks, cut where it is too long. */
void sonde__control_request_text(char to[SONDE_REQUEST_TEXT], const char *text);

/* --- file.c ----------------------------------------------------------------------- */

sonde_err sonde__control_file_init(sonde__control_file *file, const char *run,
                                   sonde_diag *diag);
void sonde__control_file_fini(sonde__control_file *file);
/* Asks control for what whole lines have come since. */
void sonde__control_file_read(sonde__control_file *file, sonde_control *control);
/* A line without its newline. SONDE_EFORMAT if it is no request. */
SONDE_API sonde_err sonde__control_parse(const char *line, size_t size,
                                         sonde_request *request, sonde_diag *diag);

#endif
