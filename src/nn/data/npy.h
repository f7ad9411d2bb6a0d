/*
 * npy.h - one array of NumPy's format .npy, in memory.
 *
 *     byte 0 ... 5   \x93NUMPY
 *     byte 6, 7      version: 1, 2 or 3, and 0
 *     then           length of the header: 2 bytes (version 1) or 4, least first
 *     then           the header, a literal of Python:
 *                    {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *     then           the elements
 *
 * (numpy.lib.format.) Arrays of Python objects, texts and records are refused; nothing is
 * unpickled.
 */
#ifndef SONDE_NN_DATA_NPY_H
#define SONDE_NN_DATA_NPY_H

#include <stddef.h>

#include <sonde/tensor.h>

/*
 * The array in size bytes: a view of their elements, with strides if it is in Fortran's
 * order; they may be unaligned. SONDE_EFORMAT: no such array, or fewer or more elements than
 * its header says. SONDE_EUNSUPPORTED: another byte order or dtype, or too many
 * dimensions. name is for diagnostics.
 */
SONDE_API SONDE_CHECKED sonde_err sonde__data_npy_parse(const void *bytes, size_t size,
                                                        const char *name, sonde_view *out,
                                                        sonde_diag *diag);

#endif
