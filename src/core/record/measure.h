/*
 * measure.h - the line of a file in files.jsonl. Internal.
 */
#ifndef SONDE_RECORD_MEASURE_H
#define SONDE_RECORD_MEASURE_H

#include "record/backend.h"
#include "format/format.h"

/* Sets all of line for a complete file that is or becomes a closed one. The hash of a
 * segment covers its head, since its values have hashes of their own; covered 0: it has
 * no whole head. Costs a reading of the covered bytes. Returns an errno. */
int sonde__record_measure(sonde__record_file *file, sonde__record_file_kind kind,
                          uint64_t number, sonde__record_listed *line);

#endif
