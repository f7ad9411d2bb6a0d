/*
 * python_array.c - memory of Sonde's as an object with the buffer protocol, read-only:
 * numpy.asarray(array) copies nothing.
 */
#include "extension/python_api.h"

#include <sonde/trial.h>

#include <string.h>

typedef struct array {
    PyObject_HEAD sonde_view view;
    PyObject *owner; /* of data; NULL: none */
    bool owned;      /* data is released by sonde_release */
    Py_ssize_t shape[SONDE_MAX_DIMS], strides[SONDE_MAX_DIMS]; /* in bytes */
    Py_ssize_t bytes;
} array;

static PyObject *array_type;

static const char *format_of(sonde_dtype dtype)
{
    static const char *const formats[SONDE_DTYPE_COUNT] = {
        [SONDE_BOOL] = "?", [SONDE_U8] = "B",      [SONDE_I8] = "b",
        [SONDE_U16] = "H",  [SONDE_I16] = "h",     [SONDE_U32] = "I",
        [SONDE_I32] = "i",  [SONDE_U64] = "Q",     [SONDE_I64] = "q",
        [SONDE_F16] = "e",  [SONDE_BF16] = "H",    [SONDE_F32] = "f",
        [SONDE_F64] = "d",  [SONDE_F8_E4M3] = "B", [SONDE_F8_E5M2] = "B",
        [SONDE_C64] = "Zf", [SONDE_C128] = "Zd"};

    return formats[dtype];
}

PyObject *sonde__python_array(const sonde_view *view, PyObject *owner, bool owned)
{
    const Py_ssize_t size = (Py_ssize_t)sonde_dtype_size(view->dtype);
    PyTypeObject *type = (PyTypeObject *)array_type;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    array *made = (array *)allocate(type, 0);

    if (made == NULL) {
        if (owned) {
            sonde_release(view->data);
        }
        return NULL;
    }
    made->view = *view;
    made->owner = Py_XNewRef(owner);
    made->owned = owned;
    made->bytes = size * (Py_ssize_t)sonde_view_count(view);
    for (int i = 0; i < view->rank; i++) {
        made->shape[i] = (Py_ssize_t)view->shape[i];
        made->strides[i] = (Py_ssize_t)view->stride[i] * size;
    }
    return (PyObject *)made;
}

PyObject *sonde__python_array_copy(const sonde_view *view)
{
    const size_t bytes = (size_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);
    PyObject *block = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    sonde_view copy;
    PyObject *made = NULL;

    if (block == NULL) {
        return NULL;
    }
    copy = sonde_view_of(view->dtype, view->rank, view->shape, PyBytes_AsString(block));
    if (sonde_view_copy(&copy, view, NULL) == SONDE_OK) {
        made = sonde__python_array(&copy, block, false);
    }
    Py_DECREF(block);
    return made;
}

static void array_dealloc(PyObject *object)
{
    array *self = (array *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    if (self->owned) {
        sonde_release(self->view.data);
    }
    Py_XDECREF(self->owner);
    release(object);
    Py_DECREF((PyObject *)type);
}

static int array_getbuffer(PyObject *object, Py_buffer *buffer, int flags)
{
    array *self = (array *)object;
    const bool strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;

    if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) {
        PyErr_SetString(PyExc_BufferError, "a recorded value is read-only");
        return -1;
    }
    if (!strides && !sonde_view_is_contiguous(&self->view)) {
        PyErr_SetString(PyExc_BufferError, "the value is not contiguous");
        return -1;
    }
    *buffer = (Py_buffer){
        .buf = self->view.data,
        .obj = Py_NewRef(object),
        .len = self->bytes,
        .itemsize = (Py_ssize_t)sonde_dtype_size(self->view.dtype),
        .readonly = 1,
        .ndim = self->view.rank,
        .shape = (flags & PyBUF_ND) == PyBUF_ND ? self->shape : NULL,
        .strides = strides ? self->strides : NULL,
    };
    if ((flags & PyBUF_FORMAT) == PyBUF_FORMAT) {
        const char *format = format_of(self->view.dtype);

        /* the protocol's field is not const, but nobody writes to it */
        memcpy(&buffer->format, &format, sizeof format);
    }
    return 0;
}

static PyObject *array_dtype(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(sonde_dtype_name(((array *)object)->view.dtype));
}

static PyGetSetDef getters[] = {{"dtype", array_dtype, NULL, NULL, NULL},
                                {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)array_dealloc},
    {Py_bf_getbuffer, (void *)array_getbuffer},
    {Py_tp_getset, getters},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "sonde._sonde.Array",
    .basicsize = sizeof(array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

bool sonde__python_add_array(PyObject *module)
{
    return sonde__python_add_type(module, &spec, &array_type);
}
