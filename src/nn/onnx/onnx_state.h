/*
 * onnx_state.h - an ONNX graph while it is translated.
 *
 * Every op has a row in a table (onnx_ops.h) with a function over a node. The function
 * either computes, at import, a constant from constants, or emits ops of ours by
 * sonde_nn_function, whose kinds are what poptorch's translation of PyTorch's graphs uses
 * too.
 *
 * The batch. A model of ours has a leading dimension that a session chooses later. A file
 * may fix it, name it, and compute with it. So the graph is built twice side by side, in
 * the model and in a shadow of it, whose batches differ by one: a dimension of n and m
 * elements there is base + slope N, with slope m - n. Numbers that a file computes from
 * shapes are kept in that form.
 */
#ifndef SONDE_NN_ONNX_ONNX_STATE_H
#define SONDE_NN_ONNX_ONNX_STATE_H

#include "nn/graph/graph.h"
#include "nn/onnx/onnx_file.h"

/* base + slope N, for a batch of N. */
typedef struct sonde__onnx_number {
    double base, slope;
} sonde__onnx_number;

/* A tensor whose numbers are known at import. */
typedef struct sonde__onnx_constant {
    int type; /* SONDE__ONNX_FLOAT ...; folding knows floats and integers */
    int rank;
    sonde__onnx_number dim[SONDE_MAX_DIMS];
    bool uniform; /* items[0] stands for all; dims may then depend on the batch */
    size_t count; /* of items */
    sonde__onnx_number items[];
} sonde__onnx_constant;

/* A value of the model and of its shadow. */
typedef struct sonde__onnx_pair {
    sonde_nn_value model, shadow; /* 0: none */
} sonde__onnx_pair;

/* A named value of the file. */
typedef struct sonde__onnx_slot {
    const char *name;
    const SondeOnnx__TensorProto *initial; /* or NULL */
    size_t producer;    /* a node's index + 1; 0: an input, an initialiser, nothing */
    bool ready, leaves; /* computed; another module reads it */
    sonde__onnx_constant *constant; /* or NULL; owned */
    sonde__onnx_pair value;
    const char *owner;       /* the module of the node that read it first */
    sonde__onnx_pair turned; /* an initialiser's transpose as a parameter */
} sonde__onnx_slot;

typedef struct sonde__onnx_entry {
    const SondeOnnx__NodeProto *proto;
    const char *module; /* interned in the model */
} sonde__onnx_entry;

typedef struct sonde__onnx_import {
    const sonde__onnx_file *file;
    sonde_nn_model *model, *shadow; /* shadow NULL: the batch is fixed */
    bool open_batch;                /* the file names it; else it has a number */
    bool one_output;                /* the first output alone is wanted */
    double batch;                   /* of the model */
    int64_t opset;
    sonde__names names; /* of slots, by id */
    sonde__onnx_slot *slots;
    size_t slot_count;
    sonde__onnx_entry *nodes;        /* in the order of the file */
    struct sonde__onnx_fused *fused; /* nodes that are none of the file's */
    sonde_err err;
    sonde_diag *diag;
} sonde__onnx_import;

enum { SONDE__ONNX_MOST = 16 }; /* inputs of a node, but for Concat's and its like */

/* A node that is translated. */
typedef struct sonde__onnx_node {
    sonde__onnx_import *import;
    const SondeOnnx__NodeProto *proto;
    const char *module;
    size_t first; /* value that the node may make */
    bool owns;    /* it has read a parameter */
} sonde__onnx_node;

/* --- errors ------------------------------------------------------------------------- */

/* Records the first error, of the file; false, to be returned. */
bool sonde__onnx_refuse_file(sonde__onnx_import *import, sonde_err err,
                             const char *expected, const char *found, ...)
    SONDE_PRINTF(4, 5);
/* Likewise at the node. */
bool sonde__onnx_refuse(const sonde__onnx_node *node, sonde_err err, const char *expected,
                        const char *found, ...) SONDE_PRINTF(4, 5);
bool sonde__onnx_no_memory(sonde__onnx_import *import);

#ifdef __clang_analyzer__ /* which sees one file */
#define sonde__onnx_refuse_file(...) ((void)sonde__onnx_refuse_file(__VA_ARGS__), false)
#define sonde__onnx_refuse(...) ((void)sonde__onnx_refuse(__VA_ARGS__), false)
#define sonde__onnx_no_memory(import) ((void)sonde__onnx_no_memory(import), false)
#endif

#endif
