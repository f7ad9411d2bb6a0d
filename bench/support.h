/*
 * support.h - what the benchmarks of training share: built-in jobs with their data in
 * memory, networks with a tap that only counts, quantiles, and rows of results.
 *
 *     bench_batches batches;
 *     bench_network net;
 *     bench_batches_make(&batches, "fashion_cnn", 16384, false);
 *     bench_network_make(&net, "fashion_cnn", 1, NULL);
 *     for (int64_t i = 0; i < steps; i++) {
 *         bench_network_step(&net, &batches, i);
 *     }
 *     bench_network_free(&net); bench_batches_free(&batches);
 *
 * A benchmark has nobody to hand an error to: whatever fails is printed and ends the
 * program with status 2.
 */
#ifndef SONDE_BENCH_SUPPORT_H
#define SONDE_BENCH_SUPPORT_H

#include <sonde/hook.h>
#include <sonde/nn/job.h>
#include <sonde/nn/session.h>
#include <sonde/schedule.h>
#include <sonde/tap.h>

/* Prints the diagnosis and ends the program if err is one. */
void bench_check(sonde_err err, const sonde_diag *diag);
/* Memory that is there, or the end; on huge pages where the system gives them. */
void *bench_alloc(size_t size);

/* --- data ------------------------------------------------------------------------- */

/* Consecutive batches of a job, normalized as the job says, in the data set's order. */
typedef struct bench_batches {
    float *samples;        /* (count, batch, ...) */
    int64_t *labels;       /* (count, batch) */
    int64_t count;         /* of batches */
    int64_t batch, sample; /* samples of a batch, numbers of a sample */
    int rank;
    int64_t shape[SONDE_MAX_DIMS]; /* of one batch of samples */
    bool drawn;                    /* garments drawn for want of the job's own data */
} bench_batches;

/* As many whole batches as samples hold. The job's data set if it is found (SONDE_DATA or
 * the cache) and drawn is false, else drawn garments. */
void bench_batches_make(bench_batches *out, const char *job, int64_t samples, bool drawn);
/* The two inputs of batch i, counted round and round. */
void bench_batches_views(const bench_batches *batches, int64_t i, sonde_view inputs[2]);
void bench_batches_free(bench_batches *batches);

/* --- networks --------------------------------------------------------------------- */

/* A sink that looks at nothing and counts. */
typedef struct bench_sink {
    sonde_sink sink;
    uint64_t puts;
} bench_sink;

typedef struct bench_tap {
    const char *selector;
    sonde_schedule when;
    unsigned how;
    bool when_bad;
} bench_tap;

/* A built-in job's network, compiled for training. Do not move it: the session points at
 * the sink. */
typedef struct bench_network {
    sonde_nn_job *job;
    sonde_nn_model *model;
    sonde_nn_session *session;
    bench_sink sink;
} bench_network;

/* tap may be NULL. Weights as after the job's seed. */
void bench_network_make(bench_network *out, const char *job, int threads,
                        const bench_tap *tap);
/* The same with whatever attach adds to its observer. */
void bench_network_attach(bench_network *out, const char *job, int threads,
                          sonde_nn_attach attach, void *user);
/* The same with a hook. */
void bench_network_hook(bench_network *out, const char *job, int threads,
                        sonde_hook *hook);
/* One step of batch i. */
void bench_network_step(bench_network *network, const bench_batches *batches, int64_t i);
/* Of the last step. */
float bench_network_loss(const bench_network *network);
void bench_network_free(bench_network *network);

/* --- results ---------------------------------------------------------------------- */

/* The q-quantile (0 ... 1) of values, which it sorts; between two of them, interpolated.
 */
double bench_quantile(double *values, size_t count, double q);

/* A line `name,value,unit,limit,verdict`. limit is "<=x" or ">=x", and verdict then "met"
 * or "missed"; "" sets none, and the verdict says "context". */
void bench_row(const char *name, double value, const char *unit, const char *limit);
void bench_header(void);

#endif
