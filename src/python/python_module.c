/*
 * python_module.c - the extension module sonde._sonde.
 */
#include "python/python_api.h"

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

static PyMethodDef functions[] = {{"vitals_of", vitals_of, METH_O, vitals_doc},
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
          sonde__python_add_watch(module) && sonde__python_add_hook(module) &&
          sonde__python_add_backward(module) && sonde__python_add_trial(module))) {
        Py_CLEAR(module);
    }
    return module;
}
