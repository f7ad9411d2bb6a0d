/*
 * python_tensor.c - the memory of a Python object as a view.
 *
 * A tensor type offers DLPack's exchange table in a class attribute; the tables of the
 * last types seen (torch.Tensor and torch.nn.Parameter, in practice) are remembered. A
 * tensor of PyTorch before 2.10 has none, and is asked for its address, dtype, shape and
 * strides. Other objects are read through the buffer protocol.
 */
#include "extension/dlpack.h"
#include "extension/python_api.h"

#include <string.h>

/* --- dtypes ------------------------------------------------------------------------- */

static bool find_dtype(const dlpack_tensor *tensor, sonde_dtype *dtype)
{
    static const struct {
        uint8_t code, bits;
        sonde_dtype dtype;
    } dtypes[] = {
        {DLPACK_FLOAT, 32, SONDE_F32},
        {DLPACK_BFLOAT, 16, SONDE_BF16},
        {DLPACK_FLOAT, 16, SONDE_F16},
        {DLPACK_FLOAT, 64, SONDE_F64},
        {DLPACK_INT, 64, SONDE_I64},
        {DLPACK_INT, 32, SONDE_I32},
        {DLPACK_INT, 16, SONDE_I16},
        {DLPACK_INT, 8, SONDE_I8},
        {DLPACK_UINT, 8, SONDE_U8},
        {DLPACK_UINT, 16, SONDE_U16},
        {DLPACK_UINT, 32, SONDE_U32},
        {DLPACK_UINT, 64, SONDE_U64},
        {DLPACK_BOOL, 8, SONDE_BOOL},
        {DLPACK_COMPLEX, 64, SONDE_C64},
        {DLPACK_COMPLEX, 128, SONDE_C128},
        {DLPACK_FLOAT8_E4M3FN, 8, SONDE_F8_E4M3},
        {DLPACK_FLOAT8_E5M2, 8, SONDE_F8_E5M2},
    };

    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (dtypes[i].code == tensor->dtype.code &&
            dtypes[i].bits == tensor->dtype.bits && tensor->dtype.lanes == 1) {
            *dtype = dtypes[i].dtype;
            return true;
        }
    }
    return false;
}

/* --- DLPack ------------------------------------------------------------------------- */

typedef struct known_type {
    PyTypeObject *type; /* a reference */
    const dlpack_table *table;
    bool tells; /* no table, but it has data_ptr() */
} known_type;

enum { KNOWN = 4 };
static known_type known[KNOWN]; /* the last one first; under the interpreter's lock */

/* Whether a type computes its operations itself (__torch_dispatch__): then its memory is
 * not where the exchange table says. A distributed tensor has the address of an element
 * in a storage that is not there. */
static bool is_wrapper(PyTypeObject *type)
{
    PyObject *dispatch = PyObject_GetAttrString((PyObject *)type, "__torch_dispatch__");
    const bool own = dispatch != NULL && PyCFunction_GetFunction(dispatch) == NULL;

    PyErr_Clear();
    Py_XDECREF(dispatch);
    return own;
}

static bool has_attribute(PyTypeObject *type, const char *name)
{
    PyObject *found = PyObject_GetAttrString((PyObject *)type, name);

    PyErr_Clear();
    Py_XDECREF(found);
    return found != NULL;
}

/* How a type is read: its exchange table is NULL if it has none of a version that we
 * read. */
static known_type find_type(PyTypeObject *type)
{
    const dlpack_header *header = NULL;
    PyObject *capsule = NULL;
    bool wrapper = false;

    for (size_t i = 0; i < KNOWN; i++) {
        if (known[i].type == type) {
            return known[i];
        }
    }
    wrapper = is_wrapper(type);
    if (!wrapper) {
        capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    }
    if (capsule != NULL) {
        header = PyCapsule_GetPointer(capsule, DLPACK_CAPSULE);
        Py_DECREF(capsule); /* the table is static data of its library */
    }
    PyErr_Clear();
    while (header != NULL && header->major != DLPACK_MAJOR) {
        header = header->previous;
    }
    Py_XDECREF((PyObject *)known[KNOWN - 1].type);
    memmove(&known[1], &known[0], (KNOWN - 1) * sizeof known[0]);
    known[0] =
        (known_type){(PyTypeObject *)Py_NewRef((PyObject *)type),
                     (const dlpack_table *)(const void *)header,
                     header == NULL && !wrapper && has_attribute(type, "data_ptr") &&
                         has_attribute(type, "is_cpu")};
    return known[0];
}

static bool view_dlpack(const dlpack_tensor *tensor, sonde_view *view)
{
    const bool host = tensor->device_type == DLPACK_CPU ||
                      tensor->device_type == DLPACK_CUDA_HOST ||
                      tensor->device_type == DLPACK_ROCM_HOST;
    int64_t count = 1, stride = 1;

    if (!host || tensor->ndim < 0 || tensor->ndim > SONDE_MAX_DIMS ||
        !find_dtype(tensor, &view->dtype)) {
        return false;
    }
    view->rank = tensor->ndim;
    for (int i = view->rank - 1; i >= 0; i--) {
        view->shape[i] = tensor->shape[i];
        view->stride[i] = tensor->strides != NULL ? tensor->strides[i] : stride;
        stride *= tensor->shape[i];
        count *= tensor->shape[i];
    }
    view->data = tensor->data != NULL ? (char *)tensor->data + tensor->byte_offset : NULL;
    return view->data != NULL || count == 0;
}

/* --- asking --------------------------------------------------------------------------- */

/* Whether a tensor says that it is in this machine's memory. */
static bool is_on_host(PyObject *object)
{
    PyObject *answer = PyObject_GetAttrString(object, "is_cpu");

    Py_XDECREF(answer);
    return answer == Py_True;
}

/* The dtype of an object whose text is "torch.float32", say. */
static bool ask_dtype(PyObject *object, sonde_dtype *dtype)
{
    static PyObject *last; /* a reference: there are few dtypes, and they live for good */
    static sonde_dtype last_dtype;
    PyObject *found = PyObject_GetAttrString(object, "dtype");
    PyObject *text = NULL, *bytes = NULL;
    const char *name = NULL;
    bool good = found != NULL && found == last;

    if (!good && found != NULL) {
        text = PyObject_Str(found);
        bytes = text != NULL ? PyUnicode_AsUTF8String(text) : NULL;
        name = bytes != NULL ? PyBytes_AsString(bytes) : NULL;
        good = name != NULL && strncmp(name, "torch.", 6) == 0 &&
               sonde_dtype_parse(name + 6, &last_dtype, NULL) == SONDE_OK;
        Py_XDECREF(last);
        last = good ? Py_NewRef(found) : NULL;
    }
    *dtype = last_dtype;
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(found);
    return good;
}

static bool read_numbers(PyObject *tuple, int64_t *numbers, int *count)
{
    const Py_ssize_t size =
        tuple != NULL && PyTuple_Check(tuple) ? PyTuple_Size(tuple) : SONDE_MAX_DIMS + 1;

    for (Py_ssize_t i = 0; size <= SONDE_MAX_DIMS && i < size; i++) {
        numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    }
    Py_XDECREF(tuple);
    *count = (int)size;
    return size <= SONDE_MAX_DIMS && PyErr_Occurred() == NULL;
}

static bool view_told(PyObject *object, sonde_view *view)
{
    PyObject *address = NULL;
    int strides = 0;
    bool good =
        is_on_host(object) && ask_dtype(object, &view->dtype) &&
        read_numbers(PyObject_GetAttrString(object, "shape"), view->shape, &view->rank) &&
        read_numbers(PyObject_CallMethod(object, "stride", NULL), view->stride,
                     &strides) &&
        strides == view->rank;

    if (good) { /* a tensor without strided memory raises */
        address = PyObject_CallMethod(object, "data_ptr", NULL);
        view->data = address != NULL ? PyLong_AsVoidPtr(address) : NULL;
        good = address != NULL && (view->data != NULL || sonde_view_count(view) == 0);
        Py_XDECREF(address);
    }
    PyErr_Clear();
    return good;
}

/* --- the buffer protocol ------------------------------------------------------------ */

static bool buffer_dtype(const Py_buffer *buffer, sonde_dtype *dtype)
{
    static const struct {
        char letter;
        Py_ssize_t size;
        sonde_dtype dtype;
    } formats[] = {
        {'f', 4, SONDE_F32}, {'d', 8, SONDE_F64},  {'e', 2, SONDE_F16},
        {'q', 8, SONDE_I64}, {'l', 8, SONDE_I64},  {'i', 4, SONDE_I32},
        {'h', 2, SONDE_I16}, {'b', 1, SONDE_I8},   {'B', 1, SONDE_U8},
        {'H', 2, SONDE_U16}, {'I', 4, SONDE_U32},  {'L', 8, SONDE_U64},
        {'Q', 8, SONDE_U64}, {'?', 1, SONDE_BOOL},
    };
    const char *format = buffer->format != NULL ? buffer->format : "B";

    format += *format == '<' || *format == '=' || *format == '@' ? 1 : 0;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (format[0] == formats[i].letter && format[1] == '\0' &&
            buffer->itemsize == formats[i].size) {
            *dtype = formats[i].dtype;
            return true;
        }
    }
    if (strcmp(format, "Zf") == 0 || strcmp(format, "Zd") == 0) {
        *dtype = format[1] == 'f' ? SONDE_C64 : SONDE_C128;
        return true;
    }
    return false;
}

static bool view_buffer(PyObject *object, sonde_view *view)
{
    Py_buffer buffer;
    bool good = false;

    if (PyObject_GetBuffer(object, &buffer, PyBUF_RECORDS_RO) != 0) {
        PyErr_Clear();
        return false;
    }
    good = buffer.ndim <= SONDE_MAX_DIMS && buffer_dtype(&buffer, &view->dtype);
    view->rank = buffer.ndim;
    for (int i = 0; good && i < buffer.ndim; i++) {
        good = buffer.strides[i] % buffer.itemsize == 0;
        view->shape[i] = buffer.shape[i];
        view->stride[i] = buffer.strides[i] / buffer.itemsize;
    }
    view->data = buffer.buf;
    PyBuffer_Release(&buffer); /* the object, which the caller holds, keeps its memory */
    return good;
}

bool sonde__python_view(PyObject *object, sonde_view *view)
{
    const known_type type = find_type(Py_TYPE(object));
    dlpack_tensor tensor = {0};

    if (type.tells) {
        return view_told(object, view);
    }
    if (type.table == NULL || type.table->borrow == NULL) {
        return view_buffer(object, view);
    }
    if (type.table->borrow(object, &tensor) != 0) {
        PyErr_Clear();
        return false;
    }
    return view_dlpack(&tensor, view);
}

/* --- kinds of objects --------------------------------------------------------------- */

static PyTypeObject *tensor_type;

void sonde__python_set_tensor_type(PyObject *type)
{
    Py_XINCREF(type);
    Py_XDECREF((PyObject *)tensor_type);
    tensor_type = (PyTypeObject *)type;
}

bool sonde__python_is_tensor(PyObject *object)
{
    return tensor_type != NULL && PyType_IsSubtype(Py_TYPE(object), tensor_type) != 0;
}

bool sonde__python_is_integer(PyObject *object)
{
    sonde_view view;

    return sonde__python_is_tensor(object) && sonde__python_view(object, &view) &&
           !sonde_dtype_is_float(view.dtype) && view.dtype != SONDE_C64 &&
           view.dtype != SONDE_C128 && view.dtype != SONDE_BOOL;
}

bool sonde__python_is_float(PyObject *object)
{
    static const char *const questions[] = {"is_floating_point", "is_complex"};
    sonde_view view;
    bool yes = false;

    if (!sonde__python_is_tensor(object)) {
        return false;
    }
    if (sonde__python_view(object, &view)) {
        return sonde_dtype_is_float(view.dtype) || view.dtype == SONDE_C64 ||
               view.dtype == SONDE_C128;
    }
    for (size_t i = 0; !yes && i < sizeof questions / sizeof questions[0]; i++) {
        PyObject *answer = PyObject_CallMethod(object, questions[i], NULL);

        yes = answer == Py_True;
        Py_XDECREF(answer);
        PyErr_Clear();
    }
    return yes;
}
