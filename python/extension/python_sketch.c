/*
 * python_sketch.c - the type _sonde.Sketch: a sketch (<sonde/sketch.h>) that a rule in
 * Python was shown.
 */
#include "extension/python_api.h"

#include <stddef.h>

typedef struct python_sketch {
    PyObject_HEAD sonde_sketch sketch;
} python_sketch;

static PyObject *sketch_type;

PyObject *sonde__python_sketch(const sonde_sketch *sketch)
{
    PyTypeObject *type = (PyTypeObject *)sketch_type;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    python_sketch *made = (python_sketch *)allocate(type, 0);

    if (made != NULL) {
        made->sketch = *sketch;
    }
    return (PyObject *)made;
}

static void sketch_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    release(object);
    Py_DECREF((PyObject *)type);
}

PyDoc_STRVAR(quantile_doc, "quantile(q)\n--\n\n"
                           "The value below which a share q of the finite elements lies; "
                           "its relative error is at most 1/8.");

static PyObject *sketch_quantile(PyObject *object, PyObject *argument)
{
    const double share = PyFloat_AsDouble(argument);

    return PyErr_Occurred() != NULL ? NULL
                                    : PyFloat_FromDouble(sonde_sketch_quantile(
                                          &((python_sketch *)object)->sketch, share));
}

static PyObject *sketch_number(PyObject *object, void *offset)
{
    const char *place =
        (const char *)&((python_sketch *)object)->sketch + (uintptr_t)offset;

    return PyLong_FromUnsignedLongLong(*(const uint64_t *)(const void *)place);
}

static PyMethodDef methods[] = {{"quantile", sketch_quantile, METH_O, quantile_doc},
                                {NULL, NULL, 0, NULL}};

/* Counts of elements. */
static PyGetSetDef getters[] = {
    {"count", sketch_number, NULL, NULL, (void *)offsetof(sonde_sketch, count)},
    {"nan", sketch_number, NULL, NULL, (void *)offsetof(sonde_sketch, nan)},
    {"pos_inf", sketch_number, NULL, NULL, (void *)offsetof(sonde_sketch, pos_inf)},
    {"neg_inf", sketch_number, NULL, NULL, (void *)offsetof(sonde_sketch, neg_inf)},
    {"zero", sketch_number, NULL, NULL, (void *)offsetof(sonde_sketch, zero)},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)sketch_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "sonde._sonde.Sketch",
    .basicsize = sizeof(python_sketch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

bool sonde__python_add_sketch(PyObject *module)
{
    return sonde__python_add_type(module, &spec, &sketch_type);
}
