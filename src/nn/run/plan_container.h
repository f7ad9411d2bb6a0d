/*
 * plan_container.h - the file that a plan is: a checked header, then sections. Internal.
 *
 *      0  8  "SONDEPLN"
 *      8  4  format, 1
 *     12  4  zero
 *     16  8  bytes of the file
 *     24 16  XXH3, 128 bits, of all bytes after it
 *     40     u32 tag, u32 zero, u64 bytes, the bytes: a section, any number of times
 *
 * Sections: HEAD (version of the library, instruction set), PLAC (places), MODL (the
 * model), SESS (the session), TEXT. All numbers are little-endian.
 */
#ifndef SONDE_NN_RUN_PLAN_CONTAINER_H
#define SONDE_NN_RUN_PLAN_CONTAINER_H

#include "base/packed.h"
#include "nn/compile/compile.h"

typedef enum sonde__session_plan_section {
    SONDE__PLAN_HEAD = 0,
    SONDE__PLAN_PLACES = 1,
    SONDE__PLAN_MODEL = 2,
    SONDE__PLAN_SESSION = 3,
    SONDE__PLAN_TEXT = 4,
    SONDE__PLAN_SECTIONS = 5
} sonde__session_plan_section;

/* --- writing ------------------------------------------------------------------------ */

/* Begins a file; HEAD is written. */
void sonde__session_plan_container_begin(sonde__packer *out);
/* Begins a section; returns what end wants. */
size_t sonde__session_plan_section_begin(sonde__packer *out,
                                         sonde__session_plan_section section);
void sonde__session_plan_section_end(sonde__packer *out, size_t begun);
/* Fills in the size and the hash. */
void sonde__session_plan_container_end(sonde__packer *out);

void sonde__session_plan_places_pack(sonde__packer *out, const sonde__plan *plan);

/* --- reading ------------------------------------------------------------------------ */

typedef struct sonde__session_plan_container {
    sonde__unpacker section[SONDE__PLAN_SECTIONS]; /* bytes NULL: it is not there */
} sonde__session_plan_container;

/* Checks everything but the insides of sections. name stands in diagnostics. */
sonde_err sonde__session_plan_container_read(const void *bytes, size_t size,
                                             const char *name,
                                             sonde__session_plan_container *container,
                                             sonde_diag *diag);

/* New places; SONDE_EFORMAT. */
sonde_err sonde__session_plan_places_unpack(sonde__unpacker in, const char *name,
                                            sonde__plan_places **out, sonde_diag *diag);
void sonde__session_plan_places_destroy(sonde__plan_places *places);

/* A whole file as new bytes; *size is written. SONDE_EFORMAT: larger than 16 GiB. */
sonde_err sonde__session_plan_file_read(const char *path, unsigned char **bytes,
                                        size_t *size, sonde_diag *diag);

#endif
