/*
 * job_layers.h - a job's model under construction: the values so far and the layers to come.
 */
#ifndef SONDE_NN_JOB_JOB_LAYERS_H
#define SONDE_NN_JOB_JOB_LAYERS_H

#include "nn/job/job.h"

/* A layer's name and output, for `from`. */
typedef struct made {
    const char *name;
    sonde_nn_value value;
} made;

typedef struct job_builder {
    sonde__yaml_reader reader;
    sonde_nn_model *model;
    made *values;
    size_t count, capacity;
    sonde_nn_value current; /* output of the layer before */
} job_builder;

/* Keeps a value that `from` may name and the next layer reads. */
sonde_err sonde__job_remember(job_builder *b, const char *name, sonde_nn_value value);
/* The model's own error, with the line of the entry that made it. */
sonde_err sonde__job_check(const job_builder *b, const sonde__yaml *entry);
/* All layers of a list. */
sonde_err sonde__job_layers(job_builder *b, const sonde__yaml *section);

#endif
