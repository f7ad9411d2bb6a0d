/*
 * output.h - the kind of file that a path asks for, and bytes that grow.
 */
#ifndef SONDE_PLOT_OUTPUT_H
#define SONDE_PLOT_OUTPUT_H

#include "base/base.h"

typedef enum sonde__plot_kind { SONDE__PLOT_PNG, SONDE__PLOT_SVG } sonde__plot_kind;

sonde_err sonde__plot_kind_of(const char *path, sonde__plot_kind *kind, sonde_diag *diag);

/* Bytes that grow; full once memory was out, later bytes are dropped. */
typedef struct sonde__bytes {
    unsigned char *data;
    size_t size, capacity;
    bool full;
} sonde__bytes;

void sonde__bytes_fini(sonde__bytes *bytes);
void sonde__bytes_add(sonde__bytes *bytes, const void *data, size_t size);
void sonde__bytes_add_text(sonde__bytes *bytes, const char *text);

#endif
