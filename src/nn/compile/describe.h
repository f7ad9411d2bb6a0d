/*
 * describe.h - the program of a compiled model, for rules and recordings.
 */
#ifndef SONDE_NN_COMPILE_DESCRIBE_H
#define SONDE_NN_COMPILE_DESCRIBE_H

#include "nn/compile/compile.h"

#include <sonde/program.h>

/* A program that went through its passes, as <sonde/program.h> has it. *out is new; free it
 * with sonde_program_destroy. SONDE_API: for tests. */
SONDE_API sonde_err sonde__plan_describe(const sonde__plan_program *from, sonde_mode mode,
                                         sonde_program **out, sonde_diag *diag);

#endif
