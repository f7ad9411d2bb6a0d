/*
 * onnx_file.h - an ONNX file as its messages (onnx.proto), and the tensors in it.
 *
 * The messages are protobuf-c's, made from onnx.proto. No message of that page holds itself,
 * so reading does not recurse, and memory is limited to some multiple of the file's size.
 */
#ifndef SONDE_NN_ONNX_ONNX_FILE_H
#define SONDE_NN_ONNX_ONNX_FILE_H

#include <onnx.pb-c.h>

#include <sonde/error.h>
#include <sonde/tensor.h>

/* TensorProto.DataType */
enum {
    SONDE__ONNX_FLOAT = 1,
    SONDE__ONNX_UINT8 = 2,
    SONDE__ONNX_INT8 = 3,
    SONDE__ONNX_UINT16 = 4,
    SONDE__ONNX_INT16 = 5,
    SONDE__ONNX_INT32 = 6,
    SONDE__ONNX_INT64 = 7,
    SONDE__ONNX_BOOL = 9,
    SONDE__ONNX_FLOAT16 = 10,
    SONDE__ONNX_DOUBLE = 11,
    SONDE__ONNX_UINT32 = 12,
    SONDE__ONNX_UINT64 = 13,
    SONDE__ONNX_BFLOAT16 = 16
};

/* AttributeProto.AttributeType */
enum {
    SONDE__ONNX_A_FLOAT = 1,
    SONDE__ONNX_A_INT = 2,
    SONDE__ONNX_A_STRING = 3,
    SONDE__ONNX_A_TENSOR = 4,
    SONDE__ONNX_A_GRAPH = 5,
    SONDE__ONNX_A_FLOATS = 6,
    SONDE__ONNX_A_INTS = 7
};

/* How much of an unpacked model there may be, and whether it ran out. */
typedef struct sonde__onnx_budget {
    size_t left;
    bool spent, failed; /* the limit; the system's memory */
} sonde__onnx_budget;

typedef struct sonde__onnx_file {
    char *path;   /* for messages */
    char *folder; /* of external data; NULL: there is none */
    SondeOnnx__ModelProto *model;
    sonde__onnx_budget budget;
    ProtobufCAllocator allocator;
} sonde__onnx_file;

/* A file of at most 2 GiB. The file has a graph. */
sonde_err sonde__onnx_load(const char *path, sonde__onnx_file **out, sonde_diag *diag);
/* The same from memory; folder NULL: external data is refused. */
sonde_err sonde__onnx_parse(const void *bytes, size_t size, const char *name,
                            const char *folder, sonde__onnx_file **out, sonde_diag *diag);
void sonde__onnx_close(sonde__onnx_file *file);

/* The elements of a tensor, wherever they are. */
typedef struct sonde__onnx_tensor {
    const SondeOnnx__TensorProto *proto;
    int type; /* SONDE__ONNX_FLOAT ... */
    int rank;
    int64_t dim[SONDE_MAX_DIMS];
    size_t count;
    const unsigned char *raw; /* little-endian, or NULL: in a list of the message */
    unsigned char *owned;     /* raw, if it was read from another file */
} sonde__onnx_tensor;

/* "float32" and so on; "type 8" for others. */
const char *sonde__onnx_type_name(int type);
/* Dims, type and count of a tensor, which are checked against each other; external data is
 * read. where: what the tensor is, for messages. Close it afterwards. */
sonde_err sonde__onnx_tensor_open(const sonde__onnx_file *file,
                                  const SondeOnnx__TensorProto *proto, const char *where,
                                  sonde__onnx_tensor *tensor, sonde_diag *diag);
void sonde__onnx_tensor_close(sonde__onnx_tensor *tensor);
/* Element i as a number; integers beyond 2^53 are rounded. */
double sonde__onnx_tensor_number(const sonde__onnx_tensor *tensor, size_t i);
bool sonde__onnx_tensor_is_float(const sonde__onnx_tensor *tensor);

/* Text of a file, for a message: control characters, quotes and bytes that are not UTF-8 as
 * \xHH, at most size - 1 bytes. Returns buf. */
const char *sonde__onnx_text(const char *text, char *buf, size_t size);
enum { SONDE__ONNX_TEXT = 96 };

/* A node's name, or its first output's, as text for a message. Returns buf. */
const char *sonde__onnx_node_name(const SondeOnnx__NodeProto *node, char *buf,
                                  size_t size);

#endif
