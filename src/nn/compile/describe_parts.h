/*
 * describe_parts.h - what a node of a described program is made of (describe.c), in the words of
 * docs/program.md (describe_ops.c).
 */
#ifndef SONDE_NN_COMPILE_DESCRIBE_PARTS_H
#define SONDE_NN_COMPILE_DESCRIBE_PARTS_H

#include "nn/graph/graph.h"

#include <sonde/program.h>

enum { SONDE__DESCRIBE_ATTRIBUTES = 5, SONDE__DESCRIBE_TEXT = 40 };

typedef struct sonde__plan_attributes {
    sonde_program_attribute row[SONDE__DESCRIBE_ATTRIBUTES];
    char text[SONDE__DESCRIBE_ATTRIBUTES][SONDE__DESCRIBE_TEXT];
    size_t count;
} sonde__plan_attributes;

/* Further attributes than there is room for are left out, and so is a number that is not
 * finite. The rows point into *to. */
void sonde__plan_describe_number(sonde__plan_attributes *to, const char *name,
                                 double value);
void sonde__plan_describe_op(const sonde__op_graph *graph, const sonde__graph_node_op *op,
                             sonde__plan_attributes *to);
void sonde__plan_describe_name(const sonde__op_graph *graph,
                               const sonde__graph_node_op *op, char *name, size_t size);
/* How much an operation says of what its module is: a loss 3, views and the like 1. */
int sonde__plan_describe_rank(const sonde__op_kind *kind);

#endif
