/*
 * control.h - the parser of requests, for its fuzzer. Internal.
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
    char *path;      /* NULL: no requests of other processes */
    uint64_t offset; /* bytes read */
    double looked;   /* time of the last reading, by sonde__now */
    bool warned;     /* that the file cannot be read */
} sonde__control_file;

/* Copies text with blanks for control characters, cut to the room there is. */
void sonde__control_request_text(char copy[SONDE_REQUEST_TEXT], const char *text);

/* --- control.c ----------------------------------------------------------------------- */

sonde_err sonde__control_file_init(sonde__control_file *file, const char *run,
                                   sonde_diag *diag);
void sonde__control_file_fini(sonde__control_file *file);
/* Passes the requests of new complete lines to control. */
void sonde__control_file_read(sonde__control_file *file, sonde_control *control);
/* line: without its newline. SONDE_EFORMAT if it is not a request. */
SONDE_API sonde_err sonde__control_parse(const char *line, size_t size,
                                         sonde_request *request, sonde_diag *diag);

#endif
