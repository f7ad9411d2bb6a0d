/*
 * onnx_tensor.c - the elements of a TensorProto: raw bytes, a list of numbers, or a piece
 * of another file, which must lie in the model's folder or below it.
 */
#include "nn/onnx/onnx_file.h"
#include "base/fail.h"
#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Where a type's elements lie if they are not raw. */
typedef enum list_kind { NO_LIST, FLOATS, INT32S, INT64S, DOUBLES, UINT64S } list_kind;

static const struct {
    const char *name;
    size_t size; /* of an element; 0: not read */
    list_kind list;
    bool real;
} types[] = {
    [SONDE__ONNX_FLOAT] = {"float32", 4, FLOATS, true},
    [SONDE__ONNX_UINT8] = {"uint8", 1, INT32S, false},
    [SONDE__ONNX_INT8] = {"int8", 1, INT32S, false},
    [SONDE__ONNX_UINT16] = {"uint16", 2, INT32S, false},
    [SONDE__ONNX_INT16] = {"int16", 2, INT32S, false},
    [SONDE__ONNX_INT32] = {"int32", 4, INT32S, false},
    [SONDE__ONNX_INT64] = {"int64", 8, INT64S, false},
    [8] = {"string", 0, NO_LIST, false},
    [SONDE__ONNX_BOOL] = {"bool", 1, INT32S, false},
    [SONDE__ONNX_FLOAT16] = {"float16", 2, INT32S, true},
    [SONDE__ONNX_DOUBLE] = {"float64", 8, DOUBLES, true},
    [SONDE__ONNX_UINT32] = {"uint32", 4, UINT64S, false},
    [SONDE__ONNX_UINT64] = {"uint64", 8, UINT64S, false},
    [14] = {"complex64", 0, NO_LIST, false},
    [15] = {"complex128", 0, NO_LIST, false},
    [SONDE__ONNX_BFLOAT16] = {"bfloat16", 2, INT32S, true},
};

enum { TYPES = sizeof types / sizeof types[0] };

const char *sonde__onnx_type_name(int type)
{
    return type > 0 && type < TYPES && types[type].name != NULL ? types[type].name
                                                                : "an unknown type";
}

bool sonde__onnx_tensor_is_float(const sonde__onnx_tensor *tensor)
{
    return types[tensor->type].real;
}

/* --- the numbers of a tensor ------------------------------------------------------------ */

static sonde_err read_dims(const SondeOnnx__TensorProto *proto, const char *where,
                           sonde__onnx_tensor *tensor, sonde_diag *diag)
{
    if (proto->data_type <= 0 || proto->data_type >= TYPES ||
        types[proto->data_type].size == 0) {
        return sonde__fail(diag, SONDE_EDTYPE, where, "float32, int64 or another number",
                           "a tensor of %s (%d)", sonde__onnx_type_name(proto->data_type),
                           proto->data_type);
    }
    if (proto->n_dims > SONDE_MAX_DIMS) {
        return sonde__fail(diag, SONDE_ESHAPE, where, "at most 8", "%zu dimensions",
                           proto->n_dims);
    }
    tensor->type = proto->data_type;
    tensor->rank = (int)proto->n_dims;
    tensor->count = 1;
    for (int i = 0; i < tensor->rank; i++) {
        tensor->dim[i] = proto->dims[i];
        if (proto->dims[i] < 0) {
            return sonde__fail(diag, SONDE_ESHAPE, where, "0 or more",
                               "dimension %d is %lld", i, (long long)proto->dims[i]);
        }
        if (!sonde__mul(tensor->count, (size_t)proto->dims[i], &tensor->count)) {
            return sonde__fail(diag, SONDE_ESHAPE, where, NULL,
                               "a tensor of more elements than any machine has");
        }
    }
    return SONDE_OK;
}

static size_t list_length(const SondeOnnx__TensorProto *proto, list_kind list)
{
    switch (list) {
    case FLOATS:
        return proto->n_float_data;
    case INT32S:
        return proto->n_int32_data;
    case INT64S:
        return proto->n_int64_data;
    case DOUBLES:
        return proto->n_double_data;
    case UINT64S:
        return proto->n_uint64_data;
    case NO_LIST:
        break;
    }
    return 0;
}

static sonde_err expect_amount(size_t found, size_t wanted, const char *what,
                               const char *where, const sonde__onnx_tensor *tensor,
                               sonde_diag *diag)
{
    char shape[96], expected[48];

    if (found == wanted) {
        return SONDE_OK;
    }
    (void)sonde_shape_text(tensor->rank, tensor->dim, shape, sizeof shape);
    (void)snprintf(expected, sizeof expected, "%zu", wanted);
    return sonde__fail(diag, SONDE_ESHAPE, where, expected,
                       "a tensor of %s %s with %zu %s",
                       sonde__onnx_type_name(tensor->type), shape, found, what);
}

/* --- external data ---------------------------------------------------------------------- */

typedef struct piece {
    const char *location;
    uint64_t offset, length;
    bool has_length;
} piece;

/* A number of an external entry; false: it is none. */
static bool parse_number(const char *text, uint64_t *number)
{
    char *end = NULL;

    errno = 0;
    *number = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

static sonde_err read_entries(const SondeOnnx__TensorProto *proto, const char *where,
                              piece *out, sonde_diag *diag)
{
    char text[SONDE__ONNX_TEXT];

    *out = (piece){0};
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const SondeOnnx__StringStringEntryProto *entry = proto->external_data[i];
        const char *key = entry->key != NULL ? entry->key : "";
        const char *value = entry->value != NULL ? entry->value : "";
        bool good = true;

        if (strcmp(key, "location") == 0) {
            out->location = value;
        } else if (strcmp(key, "offset") == 0) {
            good = parse_number(value, &out->offset);
        } else if (strcmp(key, "length") == 0) {
            good = parse_number(value, &out->length);
            out->has_length = true;
        }
        if (!good) {
            return sonde__fail(diag, SONDE_EFORMAT, where, "a number of bytes",
                               "external data with %s '%s'", key,
                               sonde__onnx_text(value, text, sizeof text));
        }
    }
    return out->location != NULL && out->location[0] != '\0'
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EFORMAT, where, "a location",
                             "external data of no file");
}

/* Whether a path stays in its folder, as it is written. */
static bool is_inside(const char *path)
{
    for (const char *part = path; part != NULL;) {
        const char *slash = strchr(part, '/');

        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) {
            return false;
        }
        part = slash != NULL ? slash + 1 : NULL;
    }
    return path[0] != '/';
}

/* Whether the file that a path leads to, links followed, lies in the folder. */
static bool resolves_inside(const char *folder, const char *path)
{
    char real_folder[PATH_MAX], real_path[PATH_MAX];
    const bool found =
        realpath(folder, real_folder) != NULL && realpath(path, real_path) != NULL;
    const size_t length = found ? strlen(real_folder) : 0;

    return found && strncmp(real_folder, real_path, length) == 0 &&
           (real_path[length] == '/' || strcmp(real_folder, "/") == 0);
}

static sonde_err open_external(const sonde__onnx_file *file, const piece *from,
                               const char *where, FILE **out, sonde_diag *diag)
{
    char path[PATH_MAX], text[SONDE__ONNX_TEXT];

    (void)sonde__onnx_text(from->location, text, sizeof text);
    if (file->folder == NULL) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, where, "data in the model",
                           "its data is in another file, '%s'", text);
    }
    if (!is_inside(from->location) || snprintf(path, sizeof path, "%s/%s", file->folder,
                                               from->location) >= (int)sizeof path) {
        return sonde__fail(diag, SONDE_EINVAL, where, "a file in the model's folder",
                           "its data is in '%s'", text);
    }
    *out = fopen(path, "rb");
    if (*out == NULL) {
        char found[160];

        (void)snprintf(found, sizeof found, "cannot open its data, '%s'", text);
        return sonde__fail_errno(diag, where, found);
    }
    if (!resolves_inside(file->folder, path)) {
        (void)fclose(*out);
        return sonde__fail(diag, SONDE_EINVAL, where, "a file in the model's folder",
                           "its data is in '%s', a link out of it", text);
    }
    return SONDE_OK;
}

static sonde_err read_external(const sonde__onnx_file *file, const char *where,
                               size_t bytes, sonde__onnx_tensor *tensor, sonde_diag *diag)
{
    piece from = {0};
    struct stat info;
    FILE *stream = NULL;
    sonde_err err = read_entries(tensor->proto, where, &from, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (from.has_length) {
        err = expect_amount(from.length, bytes, "bytes", where, tensor, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(open_external(file, &from, where, &stream, diag));
    if (fstat(fileno(stream), &info) != 0 || !S_ISREG(info.st_mode) ||
        from.offset > (uint64_t)info.st_size ||
        bytes > (uint64_t)info.st_size - from.offset) {
        err = sonde__fail(diag, SONDE_EFORMAT, where, NULL,
                          "its data, '%s', ends before byte %llu", from.location,
                          (unsigned long long)from.offset + bytes);
        goto done;
    }
    tensor->owned = sonde__malloc(bytes);
    if (tensor->owned == NULL) {
        err = sonde__fail_nomem(diag, "a tensor");
        goto done;
    }
    if (fseeko(stream, (off_t)from.offset, SEEK_SET) != 0 ||
        fread(tensor->owned, 1, bytes, stream) != bytes) {
        err = sonde__fail_errno(diag, where, "cannot read its data");
    }
    tensor->raw = tensor->owned;

done:
    (void)fclose(stream);
    return err;
}

/* --- the whole -------------------------------------------------------------------------- */

sonde_err sonde__onnx_tensor_open(const sonde__onnx_file *file,
                                  const SondeOnnx__TensorProto *proto, const char *where,
                                  sonde__onnx_tensor *tensor, sonde_diag *diag)
{
    size_t bytes = 0;
    sonde_err err = SONDE_OK;

    *tensor = (sonde__onnx_tensor){.proto = proto};
    if (proto->segment != NULL) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, where, "a whole tensor",
                           "a segment of a tensor");
    }
    SONDE__TRY(read_dims(proto, where, tensor, diag));
    if (!sonde__mul(tensor->count, types[tensor->type].size, &bytes)) {
        return sonde__fail(diag, SONDE_ESHAPE, where, NULL,
                           "a tensor of more elements than any machine has");
    }
    if (proto->data_location == 1) {
        err = read_external(file, where, bytes, tensor, diag);
        if (err != SONDE_OK) {
            sonde__onnx_tensor_close(tensor);
        }
        return err;
    }
    if (proto->has_raw_data) {
        tensor->raw = proto->raw_data.data;
        return expect_amount(proto->raw_data.len, bytes, "bytes", where, tensor, diag);
    }
    return expect_amount(list_length(proto, types[tensor->type].list), tensor->count,
                         "elements", where, tensor, diag);
}

void sonde__onnx_tensor_close(sonde__onnx_tensor *tensor)
{
    sonde__free(tensor->owned);
    *tensor = (sonde__onnx_tensor){0};
}

/* --- elements ----------------------------------------------------------------------------- */

static float half_number(uint16_t bits)
{
    float number = 0.0F;
    const uint32_t sign = (uint32_t)(bits & 0x8000U) << 16U;
    uint32_t exponent = (bits >> 10U) & 31U, fraction = bits & 1023U, word = 0;

    if (exponent == 0 && fraction != 0) { /* below 2^-14 */
        exponent = 1;
        while ((fraction & 1024U) == 0) {
            fraction <<= 1U;
            exponent--;
        }
        fraction &= 1023U;
        word = sign | ((exponent + 112U) << 23U) | (fraction << 13U);
    } else if (exponent == 31) {
        word = sign | 0x7F800000U | (fraction << 13U);
    } else if (exponent == 0) {
        word = sign;
    } else {
        word = sign | ((exponent + 112U) << 23U) | (fraction << 13U);
    }
    memcpy(&number, &word, sizeof number);
    return number;
}

static double short_number(int type, uint16_t bits)
{
    const uint32_t word = (uint32_t)bits << 16U;
    float number = 0.0F;

    if (type == SONDE__ONNX_FLOAT16) {
        return (double)half_number(bits);
    }
    memcpy(&number, &word, sizeof number);
    return (double)number;
}

static double raw_number(const sonde__onnx_tensor *tensor, size_t i)
{
    const size_t size = types[tensor->type].size;
    const unsigned char *place = tensor->raw + i * size;
    uint64_t word = 0;
    float number = 0.0F;
    double wide = 0.0;

    memcpy(&word, place, size); /* little-endian, as this machine is */
    switch (tensor->type) {
    case SONDE__ONNX_FLOAT:
        memcpy(&number, place, sizeof number);
        return (double)number;
    case SONDE__ONNX_DOUBLE:
        memcpy(&wide, place, sizeof wide);
        return wide;
    case SONDE__ONNX_FLOAT16:
    case SONDE__ONNX_BFLOAT16:
        return short_number(tensor->type, (uint16_t)word);
    case SONDE__ONNX_INT8:
        return (double)(int8_t)word;
    case SONDE__ONNX_INT16:
        return (double)(int16_t)word;
    case SONDE__ONNX_INT32:
        return (double)(int32_t)word;
    case SONDE__ONNX_INT64:
        return (double)(int64_t)word;
    case SONDE__ONNX_BOOL:
        return word != 0 ? 1.0 : 0.0;
    default:
        return (double)word;
    }
}

double sonde__onnx_tensor_number(const sonde__onnx_tensor *tensor, size_t i)
{
    const SondeOnnx__TensorProto *proto = tensor->proto;

    if (tensor->raw != NULL) {
        return raw_number(tensor, i);
    }
    switch (types[tensor->type].list) {
    case FLOATS:
        return (double)proto->float_data[i];
    case INT32S:
        return tensor->type == SONDE__ONNX_FLOAT16 || tensor->type == SONDE__ONNX_BFLOAT16
                   ? short_number(tensor->type, (uint16_t)proto->int32_data[i])
                   : (double)proto->int32_data[i];
    case INT64S:
        return (double)proto->int64_data[i];
    case DOUBLES:
        return proto->double_data[i];
    case UINT64S:
        return (double)proto->uint64_data[i];
    case NO_LIST:
        break;
    }
    return 0.0;
}
