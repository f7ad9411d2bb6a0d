/*
 * job_layers.h - what the files that read the model section of a job share: job_model.c
 * (inputs and loss), job_layers.c (the list of layers and their kinds).
 */
#ifndef SONDE_NN_JOB_JOB_LAYERS_H
#define SONDE_NN_JOB_JOB_LAYERS_H

#include "nn/job/job.h"

/* A layer's name and output, for `from`. */
typedef struct sonde__job_value {
    const char *name;
    sonde_nn_value value;
} sonde__job_value;

typedef struct sonde__job_layer_kind sonde__job_layer_kind;

typedef struct sonde__job_builder {
    sonde__yaml_reader reader;
    sonde_nn_model *model;
    sonde__job_value *values;
    size_t count, capacity;
    sonde_nn_value current;            /* output of the layer before */
    const sonde__job_layer_kind *kind; /* of the layer at hand */
    size_t given;                      /* inputs of the layer at hand */
    size_t built;                      /* layers so far */
    bool one_sample;                   /* of sonde_nn_job_info */
    int class_axis;                    /* of the loss */
} sonde__job_builder;

enum { SONDE__JOB_MAX_KINDS = 256 };

struct sonde__job_layer_kind {
    const char *name;
    const char *keys[9]; /* besides name and from */
    int inputs;
    /* in has `inputs` values. Reads what is left of the entry; returns an error of
     * reading; errors of building stick in the model. NULL: a group of layers. */
    sonde_err (*build)(sonde__job_builder *b, const sonde__yaml *entry, const char *name,
                       const sonde_nn_value *in, sonde_nn_value *out);
    const sonde__op_layer *row; /* or NULL */
};

/* The kind of a name; false: unknown. */
bool sonde__job_find_kind(const char *name, sonde__job_layer_kind *kind);
/* The names of all kinds of layers; returns their count. */
size_t sonde__job_list_kinds(const char *names[SONDE__JOB_MAX_KINDS]);

/* Builds the layers of the section `model`. */
sonde_err sonde__job_build_layers(sonde__job_builder *b, const sonde__yaml *model);
/* A value that later entries find by name, and the input of the next layer. */
sonde_err sonde__job_remember(sonde__job_builder *b, const char *name,
                              sonde_nn_value value);
/* The model's own error, with the line of the entry that made it. */
sonde_err sonde__job_check_layer(const sonde__job_builder *b, const sonde__yaml *entry);

#endif
