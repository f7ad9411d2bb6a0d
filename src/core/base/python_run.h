/*
 * python_run.h - runs a module of the Python package sonde as a program. Internal.
 *
 * Formats that only Python users have (ONNX, Parquet, tokenizer.json and others) are read
 * and written in Python, by modules that take file names as arguments.
 */
#ifndef SONDE_BASE_PYTHON_RUN_H
#define SONDE_BASE_PYTHON_RUN_H

#include <sonde/error.h>

/*
 * Runs `python3 -m sonde.<module> argument ...` and waits until it ends. arguments ends with
 * NULL. The interpreter is $SONDE_PYTHON, or python3 of the PATH; the package is the one
 * beside this library, or else the interpreter's own. Standard output is this process's.
 *
 * On failure diag holds the error that the module raised (sonde/command.py), or says what
 * is missing: the interpreter, the package, or a package that the module needs. Lines that
 * a successful module writes to standard error become warnings of the log.
 */
SONDE_API SONDE_CHECKED sonde_err sonde__python_run(const char *module,
                                                    const char *const *arguments,
                                                    sonde_diag *diag);

/* Asked about every 100 ms: an error that ask returns, with diag filled in, ends Python. */
typedef struct sonde__python_stop {
    sonde_err (*ask)(void *user, sonde_diag *diag);
    void *user;
} sonde__python_stop;

/* The same; stop NULL: waits however long it takes. */
SONDE_API SONDE_CHECKED sonde_err sonde__python_run_until(const char *module,
                                                          const char *const *arguments,
                                                          const sonde__python_stop *stop,
                                                          sonde_diag *diag);

#endif
