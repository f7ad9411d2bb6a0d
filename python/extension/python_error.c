/*
 * python_error.c - diagnostics as exceptions.
 *
 *     SondeError
 *       NotFoundError (LookupError)    a name, step or file that does not exist
 *       BadValueError (ValueError)     an argument, an option, a shape or a dtype
 *       StorageError (OSError)         reading or writing failed, or a file is damaged
 *       StateError (RuntimeError)      a call out of order, something in use, interrupted
 */
#include "extension/python_api.h"

#include <string.h>

typedef enum kind {
    KIND_BASE,
    KIND_NOT_FOUND,
    KIND_VALUE,
    KIND_STORAGE,
    KIND_STATE,
    KINDS
} kind;

static PyObject *classes[KINDS];

static kind kind_of(sonde_err err)
{
    static const struct {
        sonde_err err;
        kind what;
    } kinds[] = {
        {SONDE_ENOTFOUND, KIND_NOT_FOUND}, {SONDE_EINVAL, KIND_VALUE},
        {SONDE_ESHAPE, KIND_VALUE},        {SONDE_EDTYPE, KIND_VALUE},
        {SONDE_ERANGE, KIND_VALUE},        {SONDE_EEXIST, KIND_VALUE},
        {SONDE_EIO, KIND_STORAGE},         {SONDE_EFORMAT, KIND_STORAGE},
        {SONDE_ESTATE, KIND_STATE},        {SONDE_EBUSY, KIND_STATE},
        {SONDE_EINTERRUPTED, KIND_STATE},  {SONDE_ETIMEOUT, KIND_STATE},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (kinds[i].err == err) {
            return kinds[i].what;
        }
    }
    return KIND_BASE;
}

static bool add_class(PyObject *module, kind what, const char *name, PyObject *also)
{
    char whole[64];
    PyObject *bases = NULL;

    (void)PyOS_snprintf(whole, sizeof whole, "sonde.%s", name);
    bases = also != NULL ? PyTuple_Pack(2, classes[KIND_BASE], also) : NULL;
    if (also != NULL && bases == NULL) {
        return false;
    }
    classes[what] = PyErr_NewException(whole, bases, NULL);
    Py_XDECREF(bases);
    return classes[what] != NULL &&
           PyModule_AddObjectRef(module, name, classes[what]) == 0;
}

bool sonde__python_add_errors(PyObject *module)
{
    return add_class(module, KIND_BASE, "SondeError", NULL) &&
           add_class(module, KIND_NOT_FOUND, "NotFoundError", PyExc_LookupError) &&
           add_class(module, KIND_VALUE, "BadValueError", PyExc_ValueError) &&
           add_class(module, KIND_STORAGE, "StorageError", PyExc_OSError) &&
           add_class(module, KIND_STATE, "StateError", PyExc_RuntimeError);
}

/* Text that need not be UTF-8. */
static bool set_text(PyObject *object, const char *name, const char *text)
{
    PyObject *value =
        PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
    const bool good = value != NULL && PyObject_SetAttrString(object, name, value) == 0;

    Py_XDECREF(value);
    return good;
}

PyObject *sonde__python_raise(const sonde_diag *diag)
{
    PyObject *type = classes[kind_of(diag->err)];
    PyObject *line = NULL, *exception = NULL;
    char buffer[SONDE_DIAG_LINE];

    if (diag->err == SONDE_ENOMEM) {
        return PyErr_NoMemory();
    }
    (void)sonde_diag_line(diag, buffer, sizeof buffer);
    line = PyUnicode_DecodeUTF8(buffer, (Py_ssize_t)strlen(buffer), "backslashreplace");
    exception = line != NULL ? PyObject_CallFunctionObjArgs(type, line, NULL) : NULL;
    Py_XDECREF(line);
    if (exception != NULL && set_text(exception, "code", sonde_err_name(diag->err)) &&
        set_text(exception, "where", diag->where) &&
        set_text(exception, "found", diag->found) &&
        set_text(exception, "expected", diag->expected)) {
        PyErr_SetObject(type, exception);
    }
    Py_XDECREF(exception);
    return NULL;
}

PyObject *sonde__python_bad_value(const char *where, const char *expected,
                                  const char *found)
{
    sonde_diag diag = {0};

    (void)sonde_diag_set(&diag, SONDE_EINVAL, where, expected, "%s", found);
    return sonde__python_raise(&diag);
}
