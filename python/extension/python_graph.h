/*
 * python_graph.h - the engine's networks and sessions as Python objects, which
 * python/compat/poptorch drives.
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

#endif
