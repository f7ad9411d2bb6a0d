/*
 * side.h - one side of a comparison: a run, or safetensors files, as tensors with names
 * and values at places. Internal.
 */
#ifndef SONDE_DIFF_SIDE_H
#define SONDE_DIFF_SIDE_H

#include "base/table.h"
#include "diff/elements.h"

#include <sonde/diff.h>
#include <sonde/safetensors.h>
#include <sonde/trial.h>

typedef struct sonde__diff_entry {
    char *name;  /* as the side calls it */
    char *known; /* as A calls it; of A: the same pointer */
    uint32_t id; /* run: in its catalogue */
    size_t part; /* files: the first of its parts in side.parts */
    size_t part_count;
} sonde__diff_entry;

/* A value at a place: one part, or one of each worker or file that has one. */
typedef struct sonde__diff_value {
    const sonde__diff_operand *part; /* borrowed from the side, or own */
    size_t count;
    sonde__diff_operand
        *own; /* (count), or NULL; of those that are not mapped, the data too */
} sonde__diff_value;

typedef struct sonde__diff_side {
    const char *path;
    sonde_trial *trial; /* NULL: files */
    sonde_safetensors **files;
    size_t file_count;
    sonde__diff_operand *parts; /* files: of all tensors, those of one side by side */
    size_t part_count;
    sonde__diff_entry *entries;
    size_t count;
    sonde__table table; /* from known names to entries */
} sonde__diff_side;

/* Opens a path. rename: of options, or NULL for A. */
SONDE_CHECKED sonde_err sonde__diff_side_open(sonde__diff_side *side, const char *path,
                                              const sonde_diff_options *rename,
                                              sonde_diag *diag);
/* Sets the known names of all entries: from the table's lines, then by the expression; for
 * NULL their own. */
SONDE_CHECKED sonde_err sonde__diff_rename(sonde__diff_side *side,
                                           const sonde_diff_options *options,
                                           sonde_diag *diag);
void sonde__diff_side_close(sonde__diff_side *side);
/* The entry of a name of A; NULL: none. */
const sonde__diff_entry *sonde__diff_side_find(const sonde__diff_side *side,
                                               const char *known);

/*
 * Gets the value of an entry: for files all its parts; for a run that of where->worker, or
 * for worker -1 of all workers. SONDE_ENOTFOUND: there is none. Free it with value_fini.
 */
SONDE_CHECKED sonde_err sonde__diff_value_get(const sonde__diff_side *side,
                                              const sonde__diff_entry *entry,
                                              const sonde_trial_at *where,
                                              sonde__diff_value *value, sonde_diag *diag);
void sonde__diff_value_fini(sonde__diff_value *value);

#endif
