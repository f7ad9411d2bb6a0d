/*
 * stream.h - evidence by hand: tensors are declared, given values at steps, and rules
 * judge. A table of cases says what each rule makes of such evidence.
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

enum { STREAM_MOST = 8192, STREAM_VALUES = 8 };

typedef struct stream {
    sonde_catalogue *catalogue;
    sonde_rules *rules;
    sonde_coordinate at;
    uint64_t draws;                 /* of random numbers */
    const char *module, *op, *note; /* of what is declared next; NULL: none */
    bool loses;                     /* training goes badly: stream_open_losing */
    uint32_t loss;                  /* ... and its loss rises */
    float values[STREAM_VALUES][STREAM_MOST]; /* of a case; 0 at first */
} stream;

/* text: a rule with parameters. */
void stream_open(stream *s, const char *text);
/* With a loss that rises at each step, and so confirms what a rule suspects. */
void stream_open_losing(stream *s, const char *text);

void stream_close(stream *s);

/* A tensor of rows x columns float32; columns 0: of one dimension; rows 0: a scalar. */
uint32_t stream_declare(stream *s, const char *name, sonde_role role, int64_t rows,
                        int64_t columns);

/* The tensors of stream_case.tensors. */
void stream_declare_all(stream *s, const char *text);

void stream_begin(stream *s);

/* The values of a tensor at this step: vital signs and raw values. */
void stream_put(stream *s, uint32_t id, const float *values);

/* One hashed value, of a replica. */
void stream_put_hash(stream *s, uint32_t id, uint64_t hash, int replica);

float stream_normal(stream *s);

/* Removes a folder with all that is in it. */
void stream_remove(const char *folder);

/* Adds normal values of that deviation to the first `count` values; stream_put_walk: of a
 * tensor, and puts them. */
void stream_walk(stream *s, float *values, int count, float deviation);
void stream_put_walk(stream *s, uint32_t id, float *values, float deviation);

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

/* --- tables of cases ------------------------------------------------------------------- */

/* What is expected of all findings at the end. */
typedef enum stream_outcome {
    CLEAN,  /* there is none, and the rule had what it needs */
    SILENT, /* there is none */
    FOUND,
    NOTED, /* this is the highest severity */
    WARNED,
    FAILED
} stream_outcome;

typedef struct stream_case {
    const char *name, *rule; /* rule: with parameters; several are separated by '|' */
    /* The role, the name, rows, columns, =op and @module of each, "weight w 16 4, output
     * a_output_0 8 =Relu @a"; "3*weight fc#.weight 4 4 + bias fc#.bias 4" is three of
     * both. Ids count from 0. */
    const char *tensors;
    void (*step)(stream *s, int kind, int step); /* puts the values of a step */
    int kind, steps;
    stream_outcome outcome;
    const char *about;     /* the tensor of the only finding; NULL: of any */
    int64_t at;            /* ... and its step */
    const char *statistic; /* ... and this, or a part of its message; !: not that */
    size_t findings;       /* if there are more than that one */
    uint64_t lasts;        /* the steps of the one; 0: any */
    double above, below;   /* its value; 0: any */
    bool losing;           /* as stream_open_losing */
    const char *lacks;     /* it did not judge, for a reason in which this is a part */
} stream_case;

/* What a case does not say is 0. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* Runs the cases, each a test of its own, and then the other tests. */
int stream_main(const stream_case *cases, size_t count, const struct CMUnitTest *others,
                size_t more);

#endif
