/*
 * resume.h - where a command that trains goes on: the checkpoint, its step, its part of a run.
 */
#ifndef SONDE_CLI_CLI_RESUME_H
#define SONDE_CLI_CLI_RESUME_H

#include "cli/record.h"

/* As --resume says; all 0 where it is not given. */
struct cli_resume {
    char path[4096]; /* of the checkpoint; "": none, so from the beginning */
    int64_t step;    /* of training, the next */
    bool given;
};

/*
 * text: what --resume was given; "" for the checkpoint in the folder out, if there is one (where
 * not, *resume begins at step 0, and that is warned of); NULL: not given. A checkpoint is looked
 * at and not loaded.
 */
sonde_err cli_resume_find(const char *text, const char *out, cli_resume *resume,
                          sonde_diag *diag);
/* A recording that goes on with it, where resume is given: with the run that is in its folder,
 * if one is. resume is borrowed. */
cli_record cli_resume_record(const cli_record *asked, const cli_resume *resume);

#endif
