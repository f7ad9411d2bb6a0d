/*
 * shared_object.h - a part of Sonde in a shared object of its own, loaded when it is needed.
 *
 * Such an object lies in the folder "sonde" beside the library that needs it, and gives a
 * table of functions.
 */
#ifndef SONDE_BASE_SHARED_OBJECT_H
#define SONDE_BASE_SHARED_OBJECT_H

#include <sonde/export.h>

#include <stddef.h>

/* The address of `table` in the object "sonde/<name>" beside the library that `inside`
 * points into. NULL: fault says why. The object is never unloaded. Call once. */
SONDE_API const void *sonde__object_table(const void *inside, const char *name,
                                          const char *table, char *fault, size_t size);

#endif
