/*
 * stream_file.h - the numbered files that are a head and items behind it, as they are read
 * on while somebody appends to them: vital signs, sketches, steps. Internal.
 *
 * What differs between kinds is how items are taken out of bytes.
 */
#ifndef SONDE_TRIAL_STREAM_FILE_H
#define SONDE_TRIAL_STREAM_FILE_H

#include "trial/trial_state.h"

typedef struct sonde__trial_stream_reading sonde__trial_stream_reading;

/*
 * Takes the items among count bytes, which lie at progress->offset in the file and are aligned
 * as it is; for each that is done with, progress->offset moves on. at_end: these are the last
 * bytes of a file that nobody writes any more.
 */
typedef sonde_err sonde__trial_stream_take(sonde__trial_stream_reading *of,
                                           const unsigned char *bytes, size_t count,
                                           bool at_end);

struct sonde__trial_stream_reading {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    sonde__record_file_kind kind;
    sonde__trial_stream_take *take;
    sonde__trial_progress *progress;
    sonde__trial_file *file;
    const char *path, *where;
    sonde_diag *diag;
    bool over; /* nobody writes the file any more */
    bool lost; /* of sketches: looking for the next record */
};

/* All that has come to the files of a kind. What cannot be read is damage; only want of
 * memory is an error. */
sonde_err sonde__trial_stream_read(sonde_trial *trial, sonde__trial_worker *worker,
                                   sonde__record_file_kind kind,
                                   sonde__trial_progress *progress,
                                   sonde__trial_stream_take *take, sonde_diag *diag);
/* Notes what is wrong with "row" or "record" n. */
void sonde__trial_stream_bad(const sonde__trial_stream_reading *of, const char *what,
                             uint64_t n, const char *found);

#endif
