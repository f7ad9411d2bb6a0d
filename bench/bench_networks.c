/*
 * bench_networks.c - the training step and the compile time of a larger network.
 *
 *     bench_networks [--job examples/resnet18.yaml] [--input 3,32,32] [--batch 64]
 *                    [--threads 1] [--seconds 10] [--flops 2.13e11]
 *                    [--against bfloat16|float16|vitals]
 *
 * The network of a job file, with samples of the shape that --input says, trained on
 * random batches. Rows, after the job and the threads:
 *
 *     compile     median of five compiles
 *     arena_over_live   bytes of the plan's memory over the most that are alive at once
 *     step        median; CPU time of the process on one thread, else the wall's
 *     step_p10    the fast decile
 *     rate        floating-point operations a second in step_p10, if --flops says how
 *                 many a step has
 *
 * --against trains the network in another dtype too, step by step in turns, on the
 * process's CPU time, and adds
 *
 *     bfloat16            the fast decile of its step
 *     float32_over_bfloat16   how many times as long a step takes in float32
 *
 * --against vitals trains the same network with the vital signs of every tensor taken at
 * every step, in turns, and adds `vitals_of_all_every_step`: what that adds to the step, as
 * a share of it.
 *
 * bench/run puts the step beside PyTorch's (peer_torch.py), which runs between two runs
 * of this one.
 */
#include "support.h"

#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sonde/error.h>

enum { BATCHES = 4, COMPILES = 5, MOST_STEPS = 4096, CLASSES = 10 };

typedef struct bench {
    const char *path;
    int rank; /* of a sample, input without the batch */
    int64_t input[SONDE_MAX_DIMS - 1];
    int64_t batch;
    int threads;
    double seconds, flops;
    const char *against; /* the other dtype, "vitals", or NULL */
    bench_sink *sink;    /* of vital signs of all at every step, or NULL */
    sonde_nn_float dtype;
    sonde_nn_job *job;
    sonde_nn_model *model;
    sonde_nn_session *session;
    float *samples;
    int64_t *labels;
    double steps[MOST_STEPS];
    size_t step_count;
} bench;

static double now_of(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- the network ------------------------------------------------------------------ */

static char *read_text(const char *path, size_t *size)
{
    enum { MOST = 1 << 20 };
    char *text = bench_alloc(MOST);
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        (void)fprintf(stderr, "bench_networks: %s cannot be opened\n", path);
        exit(2);
    }
    *size = fread(text, 1, MOST - 64, file);
    (void)fclose(file);
    text[*size] = '\0';
    return text;
}

/* The job's text with another `input: [...]`. */
static char *with_input(const bench *run, char *text, size_t *size)
{
    char *const line = strstr(text, "  input: [");
    char *const end = line == NULL ? NULL : strchr(line, '\n');
    char *made = NULL, shape[256] = "";
    size_t length = 0;
    int written = 0;

    if (end == NULL) {
        (void)fprintf(stderr, "bench_networks: %s has no line `input: [...]`\n",
                      run->path);
        exit(2);
    }
    for (int i = 0; i < run->rank; i++) {
        length += (size_t)snprintf(shape + length, sizeof shape - length, "%s%lld",
                                   i == 0 ? "" : ", ", (long long)run->input[i]);
    }
    made = bench_alloc(*size + sizeof shape);
    written = snprintf(made, *size + sizeof shape, "%.*s  input: [%s]%s",
                       (int)(line - text), text, shape, end);
    *size = (size_t)written;
    sonde__free(text);
    return made;
}

static void open_network(bench *run)
{
    size_t size = 0;
    char *text = with_input(run, read_text(run->path, &size), &size);
    sonde_nn_job_info *info = NULL;
    sonde_diag diag = {0};

    bench_check(sonde_nn_job_parse(text, size, run->path, &run->job, &diag), &diag);
    sonde__free(text);
    info = sonde_nn_job_get_info(run->job);
    info->options.threads = run->threads;
    info->options.batch_size = run->batch;
    info->options.dtype = run->dtype;
    bench_check(sonde_nn_job_build(run->job, &run->model, &diag), &diag);
}

static void count_put(sonde_sink *sink, const sonde_observation *observation)
{
    (void)observation;
    ((bench_sink *)sink)->puts++;
}

static sonde_err add_tap(void *user, const sonde_catalogue *catalogue,
                         sonde_observer *observer, sonde_diag *diag)
{
    sonde_selector *what = NULL;
    sonde_tap tap = {.how = SONDE_HOW_VITALS, .where = &((bench_sink *)user)->sink};
    sonde_err err = sonde_selector_create("@all", &what, diag);

    (void)catalogue;
    if (err == SONDE_OK) {
        tap.what = what;
        tap.when[SONDE_MODE_TRAIN] = sonde_schedule_every(1);
        err = sonde_observer_add(observer, &tap, NULL, diag);
    }
    sonde_selector_destroy(what);
    return err;
}

/* Returns the milliseconds of a compile. */
static double open_session(bench *run)
{
    sonde_nn_job_info *info = sonde_nn_job_get_info(run->job);
    sonde_diag diag = {0};
    double start = 0.0;

    sonde_nn_session_destroy(run->session);
    run->session = NULL;
    bench_check(sonde_nn_session_create(run->model, &info->options, &info->optimizer,
                                        &run->session, &diag),
                &diag);
    if (run->sink != NULL) {
        bench_check(
            sonde_nn_session_set(
                run->session,
                SONDE_OPTIONS(sonde_nn_session, .attach = add_tap, .user = run->sink),
                &diag),
            &diag);
    }
    start = now_of(CLOCK_PROCESS_CPUTIME_ID);
    bench_check(sonde_nn_session_compile(run->session, &diag), &diag);
    return 1e3 * (now_of(CLOCK_PROCESS_CPUTIME_ID) - start);
}

static int64_t sample_count(const bench *run)
{
    int64_t count = 1;

    for (int i = 0; i < run->rank; i++) {
        count *= run->input[i];
    }
    return count;
}

static void make_batches(bench *run)
{
    const int64_t count = BATCHES * run->batch, sample = sample_count(run);

    run->samples = bench_alloc((size_t)(count * sample) * sizeof *run->samples);
    run->labels = bench_alloc((size_t)count * sizeof *run->labels);
    for (int64_t i = 0; i < count * sample; i++) {
        run->samples[i] = 2.0F * sonde__uniform(1, 7, (uint64_t)i) - 1.0F;
    }
    for (int64_t i = 0; i < count; i++) {
        run->labels[i] = (int64_t)(sonde__uniform(2, 7, (uint64_t)i) * CLASSES);
    }
}

static void step(bench *run, int64_t i)
{
    const int64_t at = i % BATCHES * run->batch;
    int64_t shape[SONDE_MAX_DIMS] = {run->batch};
    sonde_view inputs[2];
    sonde_diag diag = {0};

    memcpy(shape + 1, run->input, sizeof run->input);
    inputs[0] = sonde_view_of(SONDE_F32, run->rank + 1, shape,
                              run->samples + at * sample_count(run));
    inputs[1] = sonde_view_of(SONDE_I64, 1, &run->batch, run->labels + at);
    bench_check(sonde_nn_session_run(run->session, inputs, 2, &diag), &diag);
}

static void timed_step(bench *run, clockid_t clock)
{
    const double start = now_of(clock);

    step(run, (int64_t)run->step_count + 1);
    run->steps[run->step_count++] = 1e3 * (now_of(clock) - start);
}

/* other: NULL or another network, in turns. */
static void measure(bench *run, bench *other)
{
    const clockid_t clock =
        run->threads == 1 || other != NULL ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    const double end = now_of(CLOCK_MONOTONIC) + run->seconds;

    step(run, 0);
    if (other != NULL) {
        step(other, 0);
    }
    while (run->step_count < MOST_STEPS &&
           (run->step_count < 3 || now_of(CLOCK_MONOTONIC) < end)) {
        timed_step(run, clock);
        if (other != NULL) {
            timed_step(other, clock);
        }
    }
}

/* --- the program ------------------------------------------------------------------ */

static void row(const bench *run, const char *what, double value, const char *unit,
                const char *limit)
{
    const char *const slash = strrchr(run->path, '/');
    const char *const file = slash == NULL ? run->path : slash + 1;
    const size_t folder = strlen("networks_"); /* of bench/networks_transformer.yaml */
    const char *const base =
        strncmp(file, "networks_", folder) == 0 ? file + folder : file;
    char name[128];

    (void)snprintf(name, sizeof name, "%.*s_%dt_%s", (int)strcspn(base, "."), base,
                   run->threads, what);
    bench_row(name, value, unit, limit);
}

static bool parse_input(bench *run, const char *text)
{
    char *end = NULL;

    for (run->rank = 0; run->rank < SONDE_MAX_DIMS - 1; text = end + 1) {
        run->input[run->rank] = strtoll(text, &end, 10);
        if (end == text || run->input[run->rank++] < 1) {
            return false;
        }
        if (*end != ',') {
            break;
        }
    }
    return *end == '\0';
}

static bool parse(bench *run, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--job") == 0) {
            run->path = argv[i + 1];
        } else if (strcmp(argv[i], "--input") == 0) {
            if (!parse_input(run, argv[i + 1])) {
                return false;
            }
        } else if (strcmp(argv[i], "--batch") == 0) {
            run->batch = strtoll(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--threads") == 0) {
            run->threads = (int)strtol(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--seconds") == 0) {
            run->seconds = strtod(argv[i + 1], NULL);
        } else if (strcmp(argv[i], "--against") == 0) {
            run->against = argv[i + 1];
            if (strcmp(run->against, "bfloat16") != 0 &&
                strcmp(run->against, "float16") != 0 &&
                strcmp(run->against, "vitals") != 0) {
                return false;
            }
        } else if (strcmp(argv[i], "--flops") == 0) {
            run->flops = strtod(argv[i + 1], NULL);
        } else {
            return false;
        }
    }
    return argc % 2 == 1 && run->batch > 0 && run->threads >= 0 && run->seconds > 0.0;
}

/* The same network and batches in the other dtype, or observed. */
static void open_other(const bench *run, bench *other)
{
    static bench_sink sink = {.sink = {.put = count_put}};

    *other = *run;
    other->session = NULL;
    if (strcmp(run->against, "vitals") == 0) {
        other->sink = &sink;
    } else {
        other->dtype =
            strcmp(run->against, "float16") == 0 ? SONDE_NN_FLOAT16 : SONDE_NN_BFLOAT16;
    }
    open_network(other);
    (void)open_session(other);
}

static void close_network(bench *run)
{
    sonde_nn_session_destroy(run->session);
    sonde_nn_model_destroy(run->model);
    sonde_nn_job_destroy(run->job);
}

/* The plan's memory. */
static void report_memory(const bench *run)
{
    sonde_nn_session_info info;
    sonde_diag diag = {0};

    bench_check(sonde_nn_session_describe(run->session, &info, &diag), &diag);
    row(run, "arena_over_live", (double)info.arena_bytes / (double)info.largest_live,
        "ratio", "<=1.2");
}

int main(int argc, char **argv)
{
    static bench run = {.path = "examples/resnet18.yaml",
                        .rank = 3,
                        .input = {3, 32, 32},
                        .batch = 64,
                        .threads = 1,
                        .seconds = 10.0,
                        .flops = 2.13e11};
    static bench other;
    double compiles[COMPILES], fast = 0.0;

    if (!parse(&run, argc, argv)) {
        (void)fprintf(stderr, "usage: bench_networks [--job FILE] [--input D,D,...] "
                              "[--batch N] [--threads N] [--seconds S] [--flops F] "
                              "[--against bfloat16|float16|vitals]\n");
        return 2;
    }
    open_network(&run);
    make_batches(&run);
    for (int i = 0; i < COMPILES; i++) {
        compiles[i] = open_session(&run);
    }
    if (run.against != NULL) {
        open_other(&run, &other);
    }
    measure(&run, run.against != NULL ? &other : NULL);
    bench_header();
    row(&run, "compile", bench_quantile(compiles, COMPILES, 0.5), "ms", "<=50");
    report_memory(&run);
    row(&run, "step", bench_quantile(run.steps, run.step_count, 0.5), "ms", "");
    fast = bench_quantile(run.steps, run.step_count, 0.1);
    row(&run, "step_p10", fast, "ms", "");
    if (run.flops > 0.0) {
        row(&run, "rate", run.flops / fast * 1e-6, "GF/s", "");
    }
    if (other.sink != NULL) {
        row(&run, "vitals_of_all_every_step",
            bench_quantile(other.steps, other.step_count, 0.1) / fast - 1.0, "ratio",
            "<=0.04");
    } else if (run.against != NULL) {
        const double halved = bench_quantile(other.steps, other.step_count, 0.1);
        char name[64];

        row(&run, run.against, halved, "ms", "");
        (void)snprintf(name, sizeof name, "float32_over_%s", run.against);
        row(&run, name, fast / halved, "ratio",
            strcmp(run.against, "bfloat16") == 0 ? ">=2" : "");
    }
    close_network(&run);
    close_network(&other);
    sonde__free(run.samples);
    sonde__free(run.labels);
    return 0;
}
