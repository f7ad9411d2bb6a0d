/*
 * program_sample.h - the program of a step of a small network: fc1, relu, fc2 and
 * cross_entropy, with its events. Tests change a row and look at what follows.
 */
#ifndef SONDE_TESTS_PROGRAM_SAMPLE_H
#define SONDE_TESTS_PROGRAM_SAMPLE_H

#include <sonde/program.h>

#include <math.h>

enum {
    SAMPLE_VALUES = 7,
    SAMPLE_NODES = 4,
    SAMPLE_MODULES = 3,
    SAMPLE_PARAMETERS = 2,
    SAMPLE_EVENTS = 5
};

/* Its rows, which a test may change; program points to them. */
typedef struct program_sample {
    sonde_program_value values[SAMPLE_VALUES];
    sonde_program_node nodes[SAMPLE_NODES];
    sonde_program_module modules[SAMPLE_MODULES];
    sonde_program_parameter parameters[SAMPLE_PARAMETERS];
    sonde_program_optimizer optimizers[1];
    sonde_program_event events[SAMPLE_EVENTS];
    sonde_program_loss losses[1];
    sonde_program program;
} program_sample;

/* Fills a sample. */
void sample_init(program_sample *sample);

#endif
