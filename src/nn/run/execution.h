/*
 * execution.h - a call of the device loop while it runs. Internal.
 */
#ifndef SONDE_NN_RUN_EXECUTION_H
#define SONDE_NN_RUN_EXECUTION_H

#include "nn/run/session_state.h"

typedef struct execution {
    sonde_nn_session *session;
    const sonde_view *inputs;
    sonde__session_team *team; /* NULL: member 0 runs everything alone */
    sonde_coordinate at;
    bool due;   /* something is observed at this step */
    bool again; /* the forward pass is computed once more */
    bool bad;   /* a value that is not finite was reported */
} execution;

/* session_show.c. Member 0 calls them; sonde__session_is_bad any member. */
void sonde__session_show(const execution *run, int first,
                         int count); /* showings of the plan */
/* Asks a kernel for the wanted vital signs of its operands. */
void sonde__session_ask_vitals(const execution *run, sonde__plan_step *step, bool ask);
/* Whether an update that several parts have run, or member 0 alone, found its gradient
 * bad: then all members come to the same answer, else only member 0 may ask. */
bool sonde__session_is_bad(const sonde__plan_step *step, int parts, int member);
/* Reports the vital signs of the gradient before it is overwritten. */
void sonde__session_tell_bad(execution *run, sonde__plan_step *step);
/* Has the outputs computed that exist only to be shown, or leaves them out. */
void sonde__session_set_watched(const execution *run);

#endif
