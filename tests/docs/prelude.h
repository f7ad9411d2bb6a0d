/*
 * prelude.h - what the C fragments on the pages take for granted: the public headers,
 * and the objects that they name.
 */
#include <sonde/hook.h>
#include <sonde/nn/session.h>
#include <sonde/nn/trainer.h>
#include <sonde/outfeed.h>
#include <sonde/watch.h>

#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-function"

static sonde_diag diag;
static float gradient[16 * 2];
static sonde_hook *hook;
static sonde_hook_options options;
static sonde_nn_session *session, *training, *evaluation;
static sonde_nn_model *model;
static sonde_nn_loader *loader, *test_loader;
static sonde_outfeed_batch batch;
static sonde_text text;
static int epoch;

static void train_step(void)
{
    static int count;

    count++;
    for (int i = 0; i < 16 * 2; i++) { /* as of another batch each time */
        gradient[i] = 0.01F * (float)((7 * i + 5 * count * count) % 11 - 5);
    }
}

static sonde_err print_epoch(void *user, const sonde_nn_epoch *trained, sonde_diag *why)
{
    (void)user;
    (void)trained;
    (void)why;
    return SONDE_OK;
}
