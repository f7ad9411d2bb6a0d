/*
 * program_cases.h - tables of cases for rules that read programs: the texts of programs,
 * one a step, and what a rule makes of them.
 */
#ifndef SONDE_TESTS_RULES_PROGRAM_CASES_H
#define SONDE_TESTS_RULES_PROGRAM_CASES_H

#include "rules/stream.h"

enum { PROGRAM_STEPS = 4 };

typedef struct program_case {
    const char *name, *rule;
    /* Of the first steps, as JSON with ' for ", from "mode" on; NULL: as before. */
    const char *programs[PROGRAM_STEPS];
    const char *tensors;               /* as stream_case.tensors; NULL: none */
    void (*step)(stream *s, int step); /* puts the values of a step; NULL: none */
    int steps;                         /* 0: as many as programs */
    stream_outcome outcome;
    const char *about;   /* the tensor of the finding */
    int line;            /* its line */
    const char *message; /* a part of its message */
} program_case;

/* Shows a program, of the current step on. text: as program_case.programs. */
void stream_program(stream *s, const char *text);

/* Runs the cases, each a test of its own. */
int program_main(const program_case *cases, size_t count);

#endif
