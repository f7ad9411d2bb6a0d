/*
 * zip.h - the members of a ZIP archive in memory, as NumPy writes one (.npz).
 *
 *     | local header | name | extra | bytes | ... | directory: an entry a member | end |
 *
 * Members are stored or deflated; sizes may be those of ZIP64. Encrypted members, other
 * methods and archives in several parts are refused. (PKWARE, APPNOTE.TXT 6.3.)
 */
#ifndef SONDE_NN_DATA_ZIP_H
#define SONDE_NN_DATA_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/error.h>

enum { SONDE__ZIP_NAME = 256 };

typedef struct sonde__data_zip {
    const unsigned char *bytes; /* borrowed */
    size_t size;
    const char *name; /* borrowed; for diagnostics */
    size_t next;      /* of the directory */
    uint64_t left;    /* members */
} sonde__data_zip;

typedef struct sonde__data_zip_member {
    char name[SONDE__ZIP_NAME];
    const unsigned char *packed; /* in the archive */
    size_t packed_size, size;
    uint32_t crc;
    bool deflated;
} sonde__data_zip_member;

/* Finds the directory. SONDE_EFORMAT: there is none, or it is not whole. */
SONDE_CHECKED sonde_err sonde__data_zip_open(sonde__data_zip *zip, const void *bytes,
                                             size_t size, const char *name,
                                             sonde_diag *diag);
/* The next member; *more false: there is none. */
SONDE_CHECKED sonde_err sonde__data_zip_next(sonde__data_zip *zip,
                                             sonde__data_zip_member *member, bool *more,
                                             sonde_diag *diag);
/* Its bytes: in the archive if it is stored, else a new block in *owned, for the caller to
 * free. Their checksum is right. */
SONDE_CHECKED sonde_err sonde__data_zip_read(const sonde__data_zip *zip,
                                             const sonde__data_zip_member *member,
                                             const unsigned char **bytes, void **owned,
                                             sonde_diag *diag);

#endif
