/*
 * program_parts.h - how a program is made: checked, written as text, and built from text.
 *
 *     program_copy.c     indices and kinds; a declared program becomes one of ours
 *     program_text.c     a program as JSON; its digest
 *     program_read.c     a program from JSON, in one block of memory
 *     program_places.c   attributes, tensors and lines of a program
 *
 * Every program that Sonde holds is built from text: a copy of a declared program has the
 * same numbers and strings as the one that a reader of the recorded run gets.
 */
#ifndef SONDE_PROGRAM_PROGRAM_PARTS_H
#define SONDE_PROGRAM_PROGRAM_PARTS_H

#include <sonde/program.h>
#include <sonde/text.h>

enum { SONDE__PROGRAM_VERSION = 1 };

/* NULL as "". */
static inline const char *sonde__program_string(const char *text)
{
    return text != NULL ? text : "";
}

/* program_copy.c: checks kinds, ranks and indices. code: of the error. */
sonde_err sonde__program_check(const sonde_program *program, sonde_err code,
                               sonde_diag *diag);
/* program_copy.c: sonde_program_copy, and the text, which is the caller's. */
sonde_err sonde__program_take(const sonde_program *program, sonde_program **out,
                              sonde_text *text, sonde_diag *diag);
/* program_text.c: appends the text of a program that was checked. */
sonde_err sonde__program_write(const sonde_program *program, sonde_text *text,
                               sonde_diag *diag);
/* program_text.c: of the text that write makes. */
uint64_t sonde__program_digest(const char *text, size_t length);
/* program_text.c: the number that a text is: of digits, or true or false; else NaN.
 * integer (may be NULL): whether it is one, and which. */
double sonde__program_number(const char *text, bool *is_integer, int64_t *integer);
/* program_text.c: "value", "input" ... of values[].kind. */
extern const char *const sonde__program_kinds[];
enum { SONDE__PROGRAM_KINDS = 5 };
/* program_read.c: a program from text, without its digest. */
sonde_err sonde__program_build(const char *text, size_t length, sonde_program **out,
                               sonde_diag *diag);
/* program_read.c: sonde_program_read, and the text as Sonde writes it, which is empty before
 * and the caller's on success. */
sonde_err sonde__program_read(const char *text, size_t length, sonde_program **out,
                              sonde_text *own, sonde_diag *diag);

#endif
