/*
 * python_network.c - names, dtypes and files of a graph: what sonde.onnx needs besides the
 * ops.
 */
#include "extension/python_graph.h"

#include <sonde/nn/model.h>
#include <sonde/nn/plan.h>

static sonde_nn_model *model_of(PyObject *graph)
{
    return ((sonde__python_graph *)graph)->model;
}

/* None, or the error of the model or of a call. */
static PyObject *done(PyObject *graph, sonde_err err, sonde_diag *diag)
{
    if (err == SONDE_OK) {
        err = sonde_nn_model_status(model_of(graph), diag);
    }
    return err == SONDE_OK ? Py_NewRef(Py_None) : sonde__python_raise(diag);
}

PyObject *sonde__python_graph_name(PyObject *graph, PyObject *arguments)
{
    const char *module = NULL, *name = NULL;
    unsigned value = 0;
    int role = 0, also = 0;
    sonde_diag diag = {0};

    if (!PyArg_ParseTuple(arguments, "Iszip:name", &value, &module, &name, &role,
                          &also)) {
        return NULL;
    }
    if (role < 0 || role >= SONDE_ROLE_COUNT) {
        return sonde__python_bad_value("role", "a role of a tensor", "another number");
    }
    sonde_nn_name_value(model_of(graph), value, module, name, (sonde_role)role,
                        also != 0);
    return done(graph, SONDE_OK, &diag);
}

PyObject *sonde__python_graph_name_of(PyObject *graph, PyObject *value)
{
    const unsigned long number = PyLong_AsUnsignedLong(value);

    return PyErr_Occurred() == NULL
               ? Py_BuildValue(
                     "z", sonde_nn_value_describe(model_of(graph), (sonde_nn_value)number)
                              .name)
               : NULL;
}

PyObject *sonde__python_graph_dtype_of(PyObject *graph, PyObject *value)
{
    const unsigned long number = PyLong_AsUnsignedLong(value);

    return PyErr_Occurred() == NULL
               ? Py_BuildValue(
                     "s", sonde_dtype_name(sonde_nn_value_describe(model_of(graph),
                                                                   (sonde_nn_value)number)
                                               .dtype))
               : NULL;
}

PyObject *sonde__python_graph_describe(PyObject *graph, PyObject *unused)
{
    sonde_text text = {0};
    sonde_diag diag = {0};
    const sonde_err err = sonde_nn_model_describe(model_of(graph), &text, &diag);
    PyObject *made = err == SONDE_OK
                         ? PyUnicode_FromStringAndSize(text.data, (Py_ssize_t)text.length)
                         : sonde__python_raise(&diag);

    (void)unused;
    sonde_text_fini(&text);
    return made;
}

PyObject *sonde__python_graph_weights(PyObject *graph, PyObject *path)
{
    const char *name = PyUnicode_AsUTF8AndSize(path, NULL);
    sonde_diag diag = {0};

    return name != NULL
               ? done(graph, sonde_nn_model_save(model_of(graph), name, &diag), &diag)
               : NULL;
}

PyObject *sonde__python_graph_plan(PyObject *graph, PyObject *arguments)
{
    sonde_nn_plan_options saving = {.size = sizeof saving};
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    const char *path = NULL;
    int batch = 0;
    sonde_diag diag = {0};

    if (!PyArg_ParseTuple(arguments, "sis:plan", &path, &batch, &saving.text)) {
        return NULL;
    }
    sonde_nn_options_init(&options);
    options.batch_size = batch;
    sonde_err err =
        sonde_nn_session_create(model_of(graph), &options, NULL, &session, &diag);

    if (err == SONDE_OK) {
        err = sonde_nn_plan_save(session, path, &saving, &diag);
    }
    sonde_nn_session_destroy(session);
    return done(graph, err, &diag);
}
