/*
 * python_module.c - the extension module sonde._sonde.
 */
#include "extension/python_api.h"

#include <string.h>

PyDoc_STRVAR(vitals_doc, "vitals_of(tensor)\n--\n\n"
                         "The vital signs of a tensor or array, as a tuple.");

static PyObject *vitals_of(PyObject *module, PyObject *tensor)
{
    sonde_view view;
    sonde_vitals vitals;

    (void)module;
    if (!sonde__python_view(tensor, &view)) {
        return sonde__python_bad_value("vitals_of", "a tensor in this process's memory",
                                       "an object without readable elements");
    }
    sonde_vitals_of(&view, &vitals);
    return sonde__python_vitals(&vitals);
}

PyDoc_STRVAR(hash_doc, "hash_of(tensor)\n--\n\n"
                       "XXH3 (64 bits) of the elements of a tensor or array.");

static PyObject *hash_of(PyObject *module, PyObject *tensor)
{
    const sonde_reduction reduction = {.kind = SONDE_REDUCTION_HASH};
    sonde_reduced reduced = {0};
    sonde_diag diag = {0};
    sonde_view view;

    (void)module;
    if (!sonde__python_view(tensor, &view)) {
        return sonde__python_bad_value("hash_of", "a tensor in this process's memory",
                                       "an object without readable elements");
    }
    if (sonde_reduce(&reduction, &view, &reduced, &diag) != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    return PyLong_FromUnsignedLongLong(reduced.hash);
}

PyDoc_STRVAR(format_doc, "format_tensor(tensor, column, summarize_threshold, edge_items, "
                         "max_line_width, digits, float_format, separator, open_bracket, "
                         "close_bracket)\n--\n\n"
                         "A tensor as text, the first line of which starts at a column.");

/* (tensor, column, layout ...) */
static bool read_format(PyObject *arguments, PyObject **tensor, Py_ssize_t *column,
                        sonde_print_options *options)
{
    const Py_ssize_t count = PyTuple_Size(arguments);
    PyObject *first = PyTuple_GetSlice(arguments, 0, 2);
    PyObject *layout = PyTuple_GetSlice(arguments, 2, count);
    const bool good = first != NULL && layout != NULL &&
                      PyArg_ParseTuple(first, "On", tensor, column) != 0 &&
                      sonde__python_read_layout(layout, options);

    Py_XDECREF(first);
    Py_XDECREF(layout);
    return good;
}

static PyObject *format_tensor(PyObject *module, PyObject *arguments)
{
    sonde_print_options options;
    PyObject *tensor = NULL, *result = NULL;
    Py_ssize_t column = 0;
    sonde_view view;
    sonde_text text = {0};

    (void)module;
    if (!read_format(arguments, &tensor, &column, &options)) {
        return NULL;
    }
    if (!sonde__python_view(tensor, &view)) {
        return sonde__python_bad_value("format_tensor",
                                       "a tensor in this process's memory",
                                       "an object without readable elements");
    }
    if (sonde_format_tensor(&view, &options, (size_t)column, &text) != SONDE_OK) {
        result = PyErr_NoMemory();
    } else {
        result = PyUnicode_FromStringAndSize(text.data, (Py_ssize_t)text.length);
    }
    sonde_text_fini(&text);
    return result;
}

static PyMethodDef functions[] = {
    {"vitals_of", vitals_of, METH_O, vitals_doc},
    {"hash_of", hash_of, METH_O, hash_doc},
    {"format_tensor", format_tensor, METH_VARARGS, format_doc},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_sonde",
    "The C core of sonde; use the package sonde.",
    -1, /* types are process-wide, so one interpreter */
    functions,
    NULL,
    NULL,
    NULL,
    NULL};

PyMODINIT_FUNC PyInit__sonde(void);

PyMODINIT_FUNC PyInit__sonde(void)
{
    PyObject *module = PyModule_Create(&definition);

    if (module != NULL &&
        !(sonde__python_add_errors(module) && sonde__python_add_array(module) &&
          sonde__python_add_sketch(module) && sonde__python_add_watch(module) &&
          sonde__python_add_hook(module) && sonde__python_add_backward(module) &&
          sonde__python_add_calls(module) && sonde__python_add_passing(module) &&
          sonde__python_add_trial(module) && sonde__python_add_graph(module) &&
          sonde__python_add_session(module))) {
        Py_CLEAR(module);
    }
    return module;
}
