/*
 * run_folder.h - a folder for the runs of a test, and calls that must succeed.
 */
#ifndef SONDE_TESTS_RUN_FOLDER_H
#define SONDE_TESTS_RUN_FOLDER_H

#include "cmocka_all.h"

#include <sonde/error.h>

#include <stdio.h>
#include <stdlib.h>

static sonde_diag diag;          /* of the last call */
static char folder[32], run[64]; /* `run` is a path in `folder` that is not there yet */

static inline void must(sonde_err err)
{
    char line[SONDE_DIAG_LINE];

    if (err != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
}

static inline int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sonde-test-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(run, sizeof run, "%s/run", folder);
    return 0;
}

static inline int remove_folder(void **state)
{
    char command[64];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

#endif
