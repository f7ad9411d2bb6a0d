/*
 * engine.h - small networks, batches and sinks for the tests of graph, compile and run.
 *
 * Networks are built twice where two runs are compared: equal seeds give equal weights.
 * Batches are pure functions of a seed.
 */
#ifndef SONDE_TESTS_NN_ENGINE_H
#define SONDE_TESTS_NN_ENGINE_H

#include "cmocka_all.h"

#include "base/random.h"
#include "nn/vitals_near.h"

#include <sonde/error.h>
#include <sonde/nn/session.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- asserting ---------------------------------------------------------------------- */

extern sonde_diag engine_diag;
extern const sonde_nn_optimizer engine_sgd; /* a learning rate of 0.01 */

void engine_expect(sonde_err err, sonde_err want, const char *text, const char *file,
                   int line);

/* Of a compiled session. */
size_t engine_output_count(const sonde_nn_session *session);

/* The call must give this error; its diag parameter is &engine_diag. */
#define expect_err(want, call)                                                           \
    do {                                                                                 \
        memset(&engine_diag, 0, sizeof engine_diag);                                     \
        engine_expect((call), (want), #call, __FILE__, __LINE__);                        \
    } while (0)
#define must(call) expect_err(SONDE_OK, call)

void engine_expect_line(const char *want, const char *file, int line);
/* The last diag, as a user reads it. */
#define expect_line(want) engine_expect_line((want), __FILE__, __LINE__)

/* --- networks ----------------------------------------------------------------------- */

typedef struct engine_net {
    sonde_nn_model *model;
    int rank; /* of a sample */
    int64_t sample[4];
    int64_t classes, batch;
} engine_net;

typedef void (*engine_builder)(engine_net *net, int64_t batch);

sonde_nn_value engine_inputs(engine_net *net, sonde_nn_value *target);

void engine_finish(engine_net *net, sonde_nn_value output, sonde_nn_value loss);

/* Every fusion of the compiler applies to it: convolution, ReLU and pool; convolution and
 * ReLU; linear and ReLU; linear gradients and SGD. */
void engine_cnn(engine_net *net, int64_t batch);

void engine_mlp(engine_net *net, int64_t batch);

/* Branches, values used several times, functions without a name, a module called twice,
 * scopes, views, a print. */
void engine_branches(engine_net *net, int64_t batch);

void engine_net_fini(engine_net *net);

/* --- batches ------------------------------------------------------------------------ */

typedef struct engine_batch {
    float *samples;
    int64_t *targets;
    sonde_view views[2];
} engine_batch;

void engine_batch_init(engine_batch *batch, const engine_net *net, int64_t count,
                       uint64_t seed);

void engine_batch_fini(engine_batch *batch);

/* One call of a training session on the batch of a seed. */
void engine_train(const engine_net *net, sonde_nn_session *session, uint64_t seed);

/* --- weights ------------------------------------------------------------------------ */

size_t engine_weight_count(const sonde_nn_model *model);

/* All parameters one after the other, a new block. */
float *engine_weights(const sonde_nn_model *model);

/* Puts back what engine_weights returned. */
void engine_set_weights(const sonde_nn_model *model, const float *from);

float *engine_parameter(const sonde_nn_model *model, const char *name, size_t *count);

/* Bits, so that NaN equals NaN and 0 is not -0. */
#define assert_same_bits(a, b, count)                                                    \
    assert_memory_equal((a), (b), (size_t)(count) * sizeof *(a))

/* --- a sink that remembers all ------------------------------------------------------ */

typedef struct engine_seen {
    char name[160];
    sonde_coordinate at;
    sonde_tensor_info info; /* strings not to be used */
    int64_t count;
    void *data; /* contiguous copy; NULL if no raw value was wanted */
    bool has_vitals;
    sonde_vitals vitals;
} engine_seen;

typedef struct engine_sink {
    sonde_sink sink;
    bool raw; /* whether the tap wants raw values */
    engine_seen *seen;
    size_t count, capacity;
} engine_sink;

void engine_put(sonde_sink *sink, const sonde_observation *observation);

void engine_sink_init(engine_sink *self, bool raw);

void engine_sink_clear(engine_sink *self);

void engine_sink_fini(engine_sink *self);

/* What was seen of a name at a micro-batch of a step; the test fails if nothing was. */
const engine_seen *engine_find(const engine_sink *self, const char *name, int64_t step,
                               int micro_batch);

/* Of a gradient that a 2 x 2 max-pool spread: those of what it spread, and zeros. */
sonde_vitals engine_spread_vitals(const sonde_tensor_info *info, const float *x);

/* Whether vital signs are those of a value's elements. Bit for bit, in one of the orders
 * in which the engine takes values over a batch; but for the order of sums in the forward
 * pass, where kernels have orders of their own (test_kernels_vitals.c). */
bool engine_vitals_agree(const sonde_tensor_info *info, void *data,
                         const sonde_vitals *vitals);

/* Layers of PyTorch's names: of one input without keys, of two; over dimensions (count 0:
 * all); with dimensions in another order. */
sonde_nn_value engine_apply(sonde_nn_model *m, const char *kind, const char *name,
                            sonde_nn_value x);
sonde_nn_value engine_mul(sonde_nn_model *m, const char *name, sonde_nn_value a,
                          sonde_nn_value b);
sonde_nn_value engine_reduce(sonde_nn_model *m, const char *kind, const char *name,
                             sonde_nn_value x, const int *dims, int count, bool keep);
sonde_nn_value engine_permute(sonde_nn_model *m, const char *name, sonde_nn_value x,
                              const int *dims);

/* Every tensor at every step into a sink. */
void engine_tap_all(sonde_nn_session *session, unsigned how, engine_sink *sink);

#endif
