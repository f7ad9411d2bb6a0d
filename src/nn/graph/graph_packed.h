/*
 * graph_packed.h - a model as bytes, and the model that bytes describe. Internal.
 *
 * The bytes hold what a builder made: values and ops in order of creation, names,
 * modules, blocks, prints, and of each parameter and buffer how it is drawn, and its
 * values if they were given (or all, on request). Reading emits every op anew: its shape
 * rule checks it. Memory of parameters is not drawn when its values are in the bytes.
 */
#ifndef SONDE_NN_GRAPH_GRAPH_PACKED_H
#define SONDE_NN_GRAPH_GRAPH_PACKED_H

#include "base/packed.h"
#include "nn/graph/graph.h"

/* The attrs of an op of a kind. */
void sonde__graph_pack_attrs(sonde__packer *out, const sonde__op_kind *kind,
                             const sonde__op_attrs *attrs);

/* The kind of a name; NULL: none. */
const sonde__op_kind *sonde__graph_find_kind(const char *name);

void sonde__graph_pack(sonde__packer *out, const sonde_nn_model *model, bool weights);
/* A new model. SONDE_EFORMAT, ENOTFOUND (an op), or what a shape rule says. where is that
 * of diagnostics. Parameters without values are drawn from seed. */
sonde_err sonde__graph_unpack(sonde__unpacker *in, const char *where, uint64_t seed,
                              sonde_nn_model **out, sonde_diag *diag);

#endif
