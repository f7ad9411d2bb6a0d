/*
 * python_passing.c - what a mode of torch.overrides calls in place of __torch_function__.
 *
 * It calls the function of PyTorch's that it gets, and then shows a taker the call and its
 * result. It has no frame of Python's: a warning of the function points to the line that
 * it points to without the mode.
 */
#include "extension/python_watch.h"

typedef struct passing {
    PyObject_HEAD PyObject *taker; /* NULL: calls are passed on alone */
    PyObject *known;               /* a dictionary: functions with None are not shown */
} passing;

/* Whether the taker wants to see calls of a function. */
static bool is_wanted(const passing *self, PyObject *function)
{
    PyObject *row = NULL;

    if (self->taker == NULL) {
        return false;
    }
    row = PyDict_GetItemWithError(self->known, function);
    if (row == NULL) {
        PyErr_Clear(); /* it cannot be hashed */
    }
    return row != Py_None;
}

/* Shows a call that returned. False: an exception is set. */
static bool show(const passing *self, PyObject *function, PyObject *given,
                 PyObject *options, PyObject *result)
{
    PyObject *taker = Py_NewRef(self->taker); /* it may end this */
    PyObject *named = options != NULL ? Py_NewRef(options) : PyDict_New();
    PyObject *none = named != NULL ? PyObject_CallFunctionObjArgs(taker, function, given,
                                                                  named, result, NULL)
                                   : NULL;

    Py_XDECREF(named);
    Py_DECREF(taker);
    Py_XDECREF(none);
    return none != NULL;
}

static PyObject *passing_call(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    const passing *self = (const passing *)object;
    PyObject *mode = NULL, *function = NULL, *types = NULL, *given = NULL,
             *options = NULL, *empty = NULL, *result = NULL;

    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "OOO|OO", &mode, &function, &types, &given,
                          &options)) {
        return NULL;
    }
    options = options != Py_None ? options : NULL;
    empty = given == NULL ? PyTuple_New(0) : NULL;
    given = given != NULL ? given : empty;
    if (given != NULL) {
        result = PyObject_Call(function, given, options);
    }
    if (result != NULL && is_wanted(self, function) &&
        !show(self, function, given, options, result)) {
        Py_CLEAR(result);
    }
    Py_XDECREF(empty);
    return result;
}

static PyObject *passing_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *taker = NULL, *known = NULL;
    passing *self = NULL;

    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "OO!", &taker, &PyDict_Type, &known)) {
        return NULL;
    }
    self = (passing *)allocate(type, 0);
    if (self != NULL) {
        self->taker = Py_NewRef(taker);
        self->known = Py_NewRef(known);
    }
    return (PyObject *)self;
}

static int passing_traverse(PyObject *object, visitproc visit, void *arg)
{
    const passing *self = (const passing *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->taker);
    Py_VISIT(self->known);
    return 0;
}

static int passing_clear(PyObject *object)
{
    Py_CLEAR(((passing *)object)->taker);
    return 0;
}

static void passing_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    PyObject_GC_UnTrack(object);
    Py_CLEAR(((passing *)object)->taker);
    Py_CLEAR(((passing *)object)->known);
    release(object);
    Py_DECREF((PyObject *)type);
}

PyDoc_STRVAR(stop_doc, "stop()\n--\n\nFrom now on calls are passed on alone.");

static PyObject *passing_stop(PyObject *object, PyObject *unused)
{
    (void)unused;
    (void)passing_clear(object);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"stop", passing_stop, METH_NOARGS, stop_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)passing_new},
    {Py_tp_dealloc, (void *)passing_dealloc},
    {Py_tp_traverse, (void *)passing_traverse},
    {Py_tp_clear, (void *)passing_clear},
    {Py_tp_call, (void *)passing_call},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "sonde._sonde.Passing",
    .basicsize = sizeof(passing),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

bool sonde__python_add_passing(PyObject *module)
{
    return sonde__python_add_type(module, &spec, NULL);
}
