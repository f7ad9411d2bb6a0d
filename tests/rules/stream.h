/*
 * stream.h - evidence by hand: tensors are declared, given values at steps, and rules
 * judge.
 */
#ifndef SONDE_TESTS_RULES_STREAM_H
#define SONDE_TESTS_RULES_STREAM_H

#include "cmocka_all.h"

#include "base/random.h"

#include <sonde/error.h>
#include <sonde/rules.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_MOST = 8192 };

typedef struct stream {
    sonde_catalogue *catalogue;
    sonde_rules *rules;
    sonde_coordinate at;
    uint64_t draws;          /* of random numbers */
    const char *module, *op; /* of what is declared next; NULL: none */
    bool loses;              /* training goes badly: stream_open_losing */
    uint32_t loss;           /* ... and its loss rises */
} stream;

/* text: a rule with parameters. */
void stream_open(stream *s, const char *text);
/* With a loss that rises at each step, and so confirms what a rule suspects. */
void stream_open_losing(stream *s, const char *text);

void stream_close(stream *s);

/* A tensor of rows x columns float32; columns 0: of one dimension; rows 0: a scalar. */
uint32_t stream_declare(stream *s, const char *name, sonde_role role, int64_t rows,
                        int64_t columns);

void stream_begin(stream *s);

/* The values of a tensor at this step: vital signs and raw values. */
void stream_put(stream *s, uint32_t id, const float *values);

float stream_normal(stream *s);

/* Normal values of that mean and deviation. */
void stream_put_normal(stream *s, uint32_t id, double mean, double deviation);

void stream_put_all(stream *s, uint32_t id, float value);

/* Ends the step; the next one is of the same mode. */
void stream_end(stream *s);

size_t stream_count(stream *s);

/* The finding about a tensor ("": about the run); NULL if there is none. */
const sonde_finding *stream_found(stream *s, const char *tensor);

/* Finishes; exactly that one finding was found, first at that step. Its texts live until
 * close. */
sonde_finding stream_expect(stream *s, const char *tensor, int64_t step);

/* Finishes; nothing was found, and the rule had what it needs. */
void stream_expect_clean(stream *s);

#endif
