/*
 * python_graph.h - the engine's networks and sessions as Python objects, which
 * python/compat/poptorch and sonde.onnx drive.
 */
#ifndef SONDE_PYTHON_GRAPH_H
#define SONDE_PYTHON_GRAPH_H

#include "extension/python_api.h"

#include <sonde/nn/model.h>

/* sonde._sonde.Graph: a model and the tensors whose memory it borrows. */
typedef struct sonde__python_graph {
    PyObject_HEAD sonde_nn_model *model;
    PyObject *tensors; /* a list of (tensor, address, name): kept alive */
    unsigned moves;    /* sessions that were opened before the last one must not run */
} sonde__python_graph;

/* A new session of a graph; arguments as in the docstring of Graph.session. */
PyObject *sonde__python_new_session(PyObject *graph, PyObject *arguments);

/* python_network.c: methods of a graph, as their docstrings say. */
PyObject *sonde__python_graph_name(PyObject *graph, PyObject *arguments);
PyObject *sonde__python_graph_name_of(PyObject *graph, PyObject *value);
PyObject *sonde__python_graph_dtype_of(PyObject *graph, PyObject *value);
PyObject *sonde__python_graph_describe(PyObject *graph, PyObject *unused);
PyObject *sonde__python_graph_weights(PyObject *graph, PyObject *path);
PyObject *sonde__python_graph_plan(PyObject *graph, PyObject *arguments);

#endif
