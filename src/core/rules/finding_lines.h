/*
 * finding_lines.h - how many lines the files of findings have: RUN/findings.json, so that
 * `sonde verify` sees last lines, and files, that are missing. Internal.
 *
 *     {"lines":{"NonFinite":5,"LossSpike":2},"check":"01234567"}
 *
 * The number of a line is written after the line: a process that dies in between leaves a
 * number that is too small, and a reader that reads the numbers first finds the lines.
 * The file is replaced as a whole, under a lock of the folder of findings.
 */
#ifndef SONDE_RULES_FINDING_LINES_H
#define SONDE_RULES_FINDING_LINES_H

#include <stdint.h>

/* The number of the last line of a rule's file; 0: there is none. folder: RUN/findings. */
uint64_t sonde__rule_lines_get(const char *folder, const char *rule);
/* A failure is not reported: the number is too small until the next line. */
void sonde__rule_lines_set(const char *folder, const char *rule, uint64_t number);

#endif
