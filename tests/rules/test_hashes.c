/*
 * The rules that compare values bit for bit: DuplicateBatch, ReplicaDivergence,
 * EvalNondeterminism; and DtypeChanged, InputRange.
 */
#include "rules/stream.h"

#include "base/macros.h"
#include "rules/engine.h"

enum { N = 64, STEPS = 12 };

enum { EPOCHS, ONE_BATCH, STUCK, STUCK_VITALS };

static void again(stream *s, int kind, int step)
{
    const uint64_t batch = (uint64_t)(kind == EPOCHS      ? step % 5
                                      : kind == ONE_BATCH ? 0
                                                          : SONDE_MIN(step, 6));

    if (kind == STUCK_VITALS) {
        stream_put_all(s, 0, (float)batch); /* vital signs alone */
    } else {
        stream_put_hash(s, 0, 1000 + batch, 0);
    }
}

/* Chance repeats what has few possible values, beside an input that differs or alone. */
enum { RARE_FLAGS, SEQUENCES, FLAGS, SAME_SEQUENCE, SAME_BATCH };

static void by_chance(stream *s, int kind, int step)
{
    const bool alone = kind == SEQUENCES || kind == SAME_SEQUENCE;
    const int drawn = step * step / 5 % 8;

    if (kind == RARE_FLAGS) {
        const float flags[N] = {
            [3] = step % 7 == 0 ? 1.0F : 0.0F, [4] = step % 11 == 0 ? 1.0F : 0.0F};

        stream_put(s, 0, flags);
    } else {
        const int batch = kind == SEQUENCES       ? drawn
                          : kind == SAME_SEQUENCE ? (step > 40 ? 9 : drawn)
                          : kind == FLAGS         ? step - step % 9 / 8
                                                  : SONDE_MIN(step, 40);

        stream_put_hash(s, 0, 100 + (uint64_t)batch, 0);
    }
    if (!alone) {
        stream_put_hash(s, 1, 1000 + (uint64_t)step, 0);
    }
}

/* All data at each step, in another order: their hashes differ, their sums by rounding, and
 * now and then not at all. */
static void another_order(stream *s, int kind, int step)
{
    float *a = s->values[0], *b = s->values[1];

    (void)kind;
    if (step == 0) {
        stream_walk(s, a, N, 1.0F);
        a[0] *= 1e6F;
        for (int i = 0; i < N; i++) {
            b[N - 1 - i] = a[i];
        }
    }
    stream_put(s, 0, s->values[step < STEPS ? step % 2 : 0]);
    if (step < STEPS) {
        stream_put_hash(s, 0, 1000 + (uint64_t)step, 0);
    }
}

/* Looked at every fifth step, five batches in a fixed order are the same one each time. */
static void fifth_steps(stream *s, int hashed, int step)
{
    if (step >= 10 && step % 5 != 0) {
        return;
    }
    if (hashed) {
        stream_put_hash(s, 0, 1000 + (uint64_t)step % 5, 0);
    } else {
        stream_put_all(s, 0, (float)(step % 5));
    }
}

static void two_replicas(stream *s, int kind, int step)
{
    (void)kind;
    stream_put_hash(s, 0, 10 + 2 * (uint64_t)step, 0);
    stream_put_hash(s, 0, 10 + 2 * (uint64_t)step + (step < 4), 1);
}

static void replicas_part(stream *s, int bad, int step)
{
    for (int r = 0; r < 2; r++) {
        stream_put_hash(s, 0, 7 + (uint64_t)step, r);
        stream_put_hash(s, 1, 9 + (uint64_t)(step + (bad && step >= 3 ? r : 0)), r);
    }
}

/* Replicas of worker w count from 1024 w: people read the number of the worker. */
static const struct {
    int a, b;
    const char *batch, *weight;
} workers[] = {
    {0, 3, "Replicas 0 and 3 have the same batch.",
     "Replicas 0 and 3 have different values."},
    {0, 1024, "Workers 0 and 1 have the same batch.",
     "Workers 0 and 1 have different values."},
    {2049, 2051, "Replicas 1 and 3 have the same batch.",
     "Replicas 1 and 3 have different values."},
    {1, 1024, "Replica 1 of worker 0 and replica 0 of worker 1 have the same batch.",
     "Replica 1 of worker 0 and replica 0 of worker 1 have different values."},
};

static void workers_are_named_as_workers(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(workers); i++) {
        stream s;

        stream_open(&s, "DuplicateBatch|ReplicaDivergence");
        (void)stream_declare(&s, "input", SONDE_ROLE_INPUT, 8, 8);
        (void)stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 8, 8);
        stream_begin(&s);
        stream_put_hash(&s, 0, 5, workers[i].a);
        stream_put_hash(&s, 0, 5, workers[i].b);
        stream_put_hash(&s, 1, 6, workers[i].a);
        stream_put_hash(&s, 1, 7, workers[i].b);
        stream_end(&s);
        assert_string_equal(stream_found(&s, "input")->message, workers[i].batch);
        assert_string_equal(stream_found(&s, "fc.weight")->message, workers[i].weight);
        stream_close(&s);
    }
}

/* Two evaluations after each other. */
enum { OTHER_ORDER, OTHER_OUTPUTS, TRAINED_BETWEEN, NOT_CALLED };

static void two_evaluations(stream *s, int kind, int step)
{
    const float moved = step < 6              ? 0.0F
                        : kind == OTHER_ORDER ? 1e-6F /* of sums */
                                              : 0.01F;

    s->at.mode = SONDE_MODE_EVAL;
    s->at.global_step += kind == TRAINED_BETWEEN && step == 6;
    stream_put_hash(s, 0, 100 + (uint64_t)(step % 6), 0);
    if (kind == NOT_CALLED && step < 6) {
        return; /* another network got these inputs */
    }
    stream_put_all(s, 1, (float)(2 + step % 6) * (1.0F + moved));
}

/* Running statistics move in training, and stay in evaluation. */
static void statistics(stream *s, int bad, int step)
{
    const bool train = step % 6 < 3;

    s->at.mode = train ? SONDE_MODE_TRAIN : SONDE_MODE_EVAL;
    s->at.mode_step = step / 6 * 3 + step % 3;
    s->values[0][0] += train || bad ? 0.125F : 0.0F;
    stream_put_all(s, 0, s->values[0][0]);
}

static void dtypes(stream *s, int kind, int step)
{
    const int64_t shape[1] = {N};
    double room[N] = {0};
    const sonde_view view =
        sonde_view_of(step < 4 ? SONDE_F32 : SONDE_BF16, 1, shape, room);
    const sonde_observation observation = {
        .info = sonde_catalogue_info(s->catalogue, 0), .at = s->at, .view = &view};

    (void)kind;
    sonde__rules_put(s->rules, &observation);
}

static void pixels(stream *s, int raw, int step)
{
    (void)step;
    stream_put_normal(s, 0, raw ? 100.0 : -0.7, raw ? 60.0 : 0.9);
}

#define INPUT "input input 8 8"
#define TWO INPUT ", input other 8 8"
#define EVALUATED INPUT ", output fc_output_0 8 8"

static const stream_case cases[] = {
    {"batches come again in each epoch", "DuplicateBatch", INPUT, again, EPOCHS, STEPS},
    {"there is but one batch", "DuplicateBatch", INPUT, again, ONE_BATCH, STEPS},
    {"a batch comes again and again", "DuplicateBatch", INPUT, again, STUCK, STEPS, FOUND,
     "input", 7},
    {"a batch comes again, by vital signs", "DuplicateBatch", INPUT, again, STUCK_VITALS,
     STEPS, FOUND, "input", 7},
    {"rare flags are all 0 most of the time", "DuplicateBatch", TWO, by_chance,
     RARE_FLAGS, 5 * STEPS, SILENT},
    {"short sequences, one at a time, drawn from eight", "DuplicateBatch",
     "input input 1 64", by_chance, SEQUENCES, 5 * STEPS, SILENT},
    {"chance repeats a pattern of flags now and then", "DuplicateBatch", TWO, by_chance,
     FLAGS, 5 * STEPS, SILENT},
    {"the same sequence for the rest of the run", "DuplicateBatch", "input input 1 64",
     by_chance, SAME_SEQUENCE, 5 * STEPS, FAILED},
    {"the same batch for the rest of the run, beside noise", "DuplicateBatch", TWO,
     by_chance, SAME_BATCH, 5 * STEPS, NOTED},
    {"data in another order", "DuplicateBatch", INPUT, another_order, 0, 2 * STEPS},
    {"steps between are not forgotten, by vital signs", "DuplicateBatch", INPUT,
     fifth_steps, 0, 10 * STEPS},
    {"steps between are not forgotten", "DuplicateBatch", INPUT, fifth_steps, 1,
     10 * STEPS},
    {"a batch on two replicas", "DuplicateBatch", INPUT, two_replicas, 0, STEPS, FOUND,
     "input", 4},
    {"replicas go together", "ReplicaDivergence",
     "weight fc1.weight 8 8, weight fc2.weight 8 8", replicas_part, 0, STEPS},
    {"replicas part", "ReplicaDivergence", "weight fc1.weight 8 8, weight fc2.weight 8 8",
     replicas_part, 1, STEPS, FOUND, "fc2.weight", 3},
    {"outputs change by rounding in evaluation", "EvalNondeterminism", EVALUATED,
     two_evaluations, OTHER_ORDER, STEPS, SILENT},
    {"outputs change in evaluation", "EvalNondeterminism", EVALUATED, two_evaluations,
     OTHER_OUTPUTS, STEPS, FOUND, "fc_output_0", 6},
    {"outputs change by training", "EvalNondeterminism", EVALUATED, two_evaluations,
     TRAINED_BETWEEN, STEPS, SILENT},
    {"an output of another network", "EvalNondeterminism", EVALUATED, two_evaluations,
     NOT_CALLED, 12, SILENT},
    {"statistics stay in evaluation", "EvalNondeterminism", "buffer norm.running_mean 8",
     statistics, 0, STEPS},
    {"statistics learn in evaluation", "EvalNondeterminism", "buffer norm.running_mean 8",
     statistics, 1, STEPS, FOUND, "norm.running_mean", 5},
    {"another dtype", "DtypeChanged", "weight w 64", dtypes, 0, STEPS, FOUND, "w", 4,
     "float32"},
    {"pixels that are scaled", "InputRange", INPUT, pixels, 0, STEPS},
    {"raw pixels", "InputRange", INPUT, pixels, 1, STEPS, FOUND, "input", 0},
};

int main(void)
{
    const struct CMUnitTest others[] = {cmocka_unit_test(workers_are_named_as_workers)};

    return stream_main(cases, SONDE_COUNT_OF(cases), others, SONDE_COUNT_OF(others));
}
