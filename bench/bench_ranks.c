/*
 * bench_ranks.c - what two processes over MPI gain against one.
 *
 *     mpirun -n 2 bench_ranks [seconds]     of each measurement; 4 if not given
 *
 * The CNN of Fashion-MNIST, 256 samples a rank, one thread a rank. Turns of the first rank
 * alone, while the other sleeps, and of both alternate; the row is the ratio of samples a
 * second, of the fastest steps and of the median turns.
 */
#include "support.h"

#include "base/clock.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/nn/ranks.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS = 12, BATCH = 256 };

typedef struct network {
    sonde_nn_model *model;
    sonde_nn_session *session;
    sonde_view inputs[2];
} network;

static void make(network *net, sonde_nn_job *job, const bench_batches *batches,
                 sonde_nn_ranks *ranks)
{
    sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    int64_t shape[SONDE_MAX_DIMS];
    sonde_nn_options options = info->options;
    sonde_diag diag = {0};

    options.batch_size = BATCH;
    options.threads = 1;
    bench_check(sonde_nn_job_build(job, &net->model, &diag), &diag);
    bench_check(sonde_nn_session_create(net->model, &options, &info->optimizer,
                                        &net->session, &diag),
                &diag);
    bench_check(sonde_nn_session_set(
                    net->session, SONDE_OPTIONS(sonde_nn_session, .ranks = ranks), &diag),
                &diag);
    bench_check(sonde_nn_session_share(net->session, &diag), &diag);
    memcpy(shape, batches->shape, sizeof shape);
    shape[0] = BATCH;
    net->inputs[0] = sonde_view_of(SONDE_F32, batches->rank, shape, batches->samples);
    net->inputs[1] = sonde_view_of(SONDE_I64, 1, shape, batches->labels);
}

/* Seconds of a step: the fastest one's, and the mean's. */
static void run(network *net, int steps, double *fastest, double *mean)
{
    const double started = sonde__now();
    sonde_diag diag = {0};

    for (int i = 0; i < steps; i++) {
        const double begun = sonde__now();

        bench_check(sonde_nn_session_run(net->session, net->inputs, 2, &diag), &diag);
        *fastest = fmin(*fastest, sonde__now() - begun);
    }
    *mean = (sonde__now() - started) / steps;
}

static void rest(double seconds)
{
    const struct timespec time = {(time_t)seconds, (long)(1e9 * fmod(seconds, 1.0))};

    (void)nanosleep(&time, NULL);
}

/* Steps of a turn: the first rank's choice. */
static int agree(sonde_nn_ranks *ranks, double steps)
{
    sonde_diag diag = {0};

    steps = sonde_nn_ranks_rank(ranks) == 0 ? steps : 0.0;
    bench_check(sonde_nn_ranks_sum(ranks, &steps, 1, &diag), &diag);
    return (int)steps;
}

static void measure(sonde_nn_ranks *ranks, network *one, network *both, double seconds)
{
    const bool first = sonde_nn_ranks_rank(ranks) == 0;
    double alone = INFINITY, together = INFINITY, a = 0.0, b = 0.0, ratios[TURNS];
    int steps = 20;

    run(one, steps, &alone, &a);
    steps = SONDE_MAX(5, agree(ranks, seconds / TURNS / alone));
    for (int i = 0; i < TURNS; i++) {
        if (first) {
            run(one, steps, &alone, &a);
        } else {
            rest(1.2 * seconds / TURNS);
        }
        (void)agree(ranks, 0.0);
        run(both, steps, &together, &b);
        ratios[i] = sonde_nn_ranks_count(ranks) * a / b;
    }
    if (first) {
        bench_header();
        bench_row("ranks_2_over_1", sonde_nn_ranks_count(ranks) * alone / together,
                  "ratio", ">=1.8");
        bench_row("ranks_2_over_1_median", bench_quantile(ratios, TURNS, 0.5), "ratio",
                  "");
        bench_row("ranks_2_over_1_step", 1e3 * together, "ms", "");
    }
}

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? atof(argv[1]) : 4.0;
    network one, both;
    bench_batches batches;
    sonde_nn_ranks *ranks = NULL;
    sonde_nn_job *job = NULL;
    sonde_diag diag = {0};

    if (!(seconds > 0.0) || sonde_nn_ranks_started() == 1) {
        (void)fprintf(stderr, "usage: mpirun -n 2 bench_ranks [seconds]\n");
        return 2;
    }
    bench_check(sonde_nn_ranks_join(NULL, NULL, &ranks, &diag), &diag);
    bench_batches_make(&batches, "fashion_cnn", BATCH, true);
    bench_check(sonde_nn_job_builtin("fashion_cnn", &job, &diag), &diag);
    make(&one, job, &batches, NULL);
    make(&both, job, &batches, ranks);
    measure(ranks, &one, &both, seconds);
    sonde_nn_session_destroy(one.session);
    sonde_nn_session_destroy(both.session);
    sonde_nn_model_destroy(one.model);
    sonde_nn_model_destroy(both.model);
    sonde_nn_job_destroy(job);
    bench_batches_free(&batches);
    sonde_nn_ranks_leave(ranks, true);
    return 0;
}
