/*
 * finding_file.h - RUN/findings/<rule>.jsonl: appending a finding that the file does not
 * hold. Internal.
 *
 * What a file holds is remembered, so that a finding costs a read of what was appended
 * since the one before, by this process or another. A file that became shorter, or that
 * another one replaced, is read anew, its last 64 MiB at most.
 */
#ifndef SONDE_RULES_FINDING_FILE_H
#define SONDE_RULES_FINDING_FILE_H

#include <sonde/rules.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct sonde__rule_file_memory sonde__rule_file_memory;

/* Start with a zeroed one. */
typedef struct sonde__rule_finding_files {
    sonde__rule_file_memory *files;
    size_t count, capacity;
} sonde__rule_finding_files;

void sonde__rule_finding_files_fini(sonde__rule_finding_files *files);

/* The longest text of a finding that can be appended. */
size_t sonde__rule_finding_room(void);

/* text: as sonde_finding_json has it. Several processes may append, one at a time. False,
 * with errno: it is not written, or not sent to the store. */
bool sonde__rule_finding_append(sonde__rule_finding_files *files, const char *folder,
                                const sonde_finding *finding, const char *text,
                                size_t length);

#endif
