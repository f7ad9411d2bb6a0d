/*
 * example.h - what the examples have in common: ending with a message when something
 * fails.
 */
#ifndef SONDE_EXAMPLES_EXAMPLE_H
#define SONDE_EXAMPLES_EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>

#include <sonde/error.h>

/* Runs a fallible call that fills `diag`; on failure tells what was wrong and exits. */
#define TRY(call)                                                                        \
    do {                                                                                 \
        if ((call) != SONDE_OK) {                                                        \
            char try_line[SONDE_DIAG_LINE];                                              \
            (void)fprintf(stderr, "error: %s\n",                                         \
                          sonde_diag_line(&diag, try_line, sizeof try_line));            \
            exit(2);                                                                     \
        }                                                                                \
    } while (0)

#endif
