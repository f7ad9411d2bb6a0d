/*
 * dlpack.h - the part of DLPack 1.3's C interface that reads tensors of another library
 * (https://dmlc.github.io/dlpack): the exchange table that a tensor type offers in the
 * capsule `__dlpack_c_exchange_api__`.
 */
#ifndef SONDE_DLPACK_H
#define SONDE_DLPACK_H

#include <stdint.h>

enum { DLPACK_MAJOR = 1, DLPACK_CPU = 1, DLPACK_CUDA_HOST = 3, DLPACK_ROCM_HOST = 11 };
#define DLPACK_CAPSULE "dlpack_exchange_api"

/* Kinds of elements. */
enum {
    DLPACK_INT = 0,
    DLPACK_UINT = 1,
    DLPACK_FLOAT = 2,
    DLPACK_BFLOAT = 4,
    DLPACK_COMPLEX = 5,
    DLPACK_BOOL = 6,
    DLPACK_FLOAT8_E4M3FN = 10,
    DLPACK_FLOAT8_E5M2 = 12
};

typedef struct dlpack_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t byte_offset;
} dlpack_tensor;

typedef struct dlpack_header {
    uint32_t major, minor;
    struct dlpack_header *previous; /* an older table, or NULL */
} dlpack_header;

typedef struct dlpack_table {
    dlpack_header header;
    void (*allocate)(void);
    void (*from_object)(void);
    void (*to_object)(void);
    /* Fills in a tensor that borrows the object's memory, shape and strides. 0, or -1
     * with an exception set. May be NULL. */
    int (*borrow)(void *object, dlpack_tensor *out);
    int (*stream)(int32_t device_type, int32_t device_id, void **out);
} dlpack_table;

#endif
