/*
 * prelude.h - what the C fragments on the pages take for granted: the public headers, and the
 * objects that they name.
 */
#include <sonde/hook.h>
#include <sonde/nn/session.h>
#include <sonde/outfeed.h>

#pragma GCC diagnostic ignored "-Wunused-variable"

static sonde_diag diag;
static sonde_hook *hook;
static sonde_hook_options options;
static sonde_nn_session *session, *training, *evaluation;
static sonde_outfeed_batch batch;
static sonde_text text;
static int epoch;
