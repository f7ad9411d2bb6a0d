/*
 * plot_output.h - the kind of a picture file, by its path, and growing bytes.
 */
#ifndef SONDE_PLOT_PLOT_OUTPUT_H
#define SONDE_PLOT_PLOT_OUTPUT_H

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>

typedef enum sonde__plot_kind { SONDE__PLOT_PNG, SONDE__PLOT_SVG } sonde__plot_kind;

sonde_err sonde__plot_kind_of(const char *path, sonde__plot_kind *kind, sonde_diag *diag);

/* Growing bytes. full: memory ran out; later bytes are dropped. */
typedef struct sonde__plot_bytes {
    unsigned char *data;
    size_t size, capacity;
    bool full;
} sonde__plot_bytes;

void sonde__plot_bytes_fini(sonde__plot_bytes *bytes);
void sonde__plot_bytes_add(sonde__plot_bytes *bytes, const void *data, size_t size);
void sonde__plot_bytes_add_text(sonde__plot_bytes *bytes, const char *text);

#endif
