/*
 * measure.c - see measure.h.
 */
#include "record/measure.h"

#include "base/memory.h"

#include <errno.h>

enum { PIECE = 256 * 1024 };

static int read_piece(void *user, uint64_t offset, void *bytes, size_t size, size_t *got)
{
    sonde__record_file *const file = user;

    return file->ops->read_at(file, offset, bytes, size, got);
}

static int measure_head(sonde__record_file *file, uint64_t *head)
{
    uint64_t length = 0;
    size_t got = 0;
    const int failed = file->ops->read_at(file, 0, &length, sizeof length, &got);

    *head = failed == 0 && got == sizeof length && length <= file->end - sizeof length
                ? sizeof length + length
                : 0;
    return failed;
}

int sonde__record_measure(sonde__record_file *file, sonde__record_file_kind kind,
                          uint64_t number, sonde__record_listed *line)
{
    void *const piece = sonde__malloc(PIECE);
    int failed = piece == NULL ? ENOMEM : 0;

    if (kind != SONDE__FILE_OTHER) {
        sonde__record_file_name(line->name, kind, number, false);
    }
    line->size = line->covered = file->end;
    if (failed == 0 && kind == SONDE__FILE_SEGMENT) {
        failed = measure_head(file, &line->covered);
    }
    if (failed == 0) {
        failed = sonde__record_listed_hash(read_piece, file, line->covered, piece, PIECE,
                                           &line->hash);
    }
    sonde__free(piece);
    return failed;
}
