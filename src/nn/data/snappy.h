/*
 * snappy.h - unpacks Snappy's raw format (google/snappy, format_description.txt).
 */
#ifndef SONDE_NN_DATA_SNAPPY_H
#define SONDE_NN_DATA_SNAPPY_H

#include <stdbool.h>
#include <stddef.h>

#include <sonde/export.h>

/* False: the bytes are damaged, or do not make exactly out_size bytes. */
SONDE_API bool sonde__data_snappy_unpack(const unsigned char *packed, size_t size,
                                         unsigned char *out, size_t out_size);

#endif
