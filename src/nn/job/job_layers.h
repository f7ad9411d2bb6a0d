/*
 * job_layers.h - a job's model being built: what is made so far, and the layers behind it.
 */
#ifndef SONDE_NN_JOB_JOB_LAYERS_H
#define SONDE_NN_JOB_JOB_LAYERS_H

#include "nn/job/job.h"

/* What the layers made so far are called, for `from`. */
typedef struct made {
    const char *name;
    sonde_nn_value value;
} made;

typedef struct job_builder {
    sonde__yaml_reader reader;
    sonde_nn_model *model;
    made *values;
    size_t count, capacity;
    sonde_nn_value current; /* what the layer before made */
} job_builder;

/* What `from` may name, and what the next layer reads. */
sonde_err sonde__job_remember(job_builder *b, const char *name, sonde_nn_value value);
/* The model's own error, with the line of the entry that made it. */
sonde_err sonde__job_check(const job_builder *b, const sonde__yaml *entry);
/* All layers of a list. */
sonde_err sonde__job_layers(job_builder *b, const sonde__yaml *section);

#endif
