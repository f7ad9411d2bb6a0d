/*
 * Healthy runs that come near an alarm, each beside the fault that it resembles.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { N = 64, ROWS = 16, COLUMNS = 16, STEPS = 120 };

/* All batches of one-hot rows have the same vital signs; hashes tell them apart, and are
 * not seen at each step. */
static void one_hot(stream *s, int kind, int step)
{
    float values[N];

    (void)kind;
    for (int i = 0; i < N; i++) {
        values[i] = i % 8 == (step * (i / 8 + 1)) % 8 ? 1.0F : 0.0F;
    }
    stream_put(s, 0, values);
    if (step < 20 || step % 20 == 0) {
        stream_put_hash(s, 0, 1000 + (uint64_t)step, 0);
    }
}

/* Within ten steps an element may outgrow the others; a flipped bit goes farther. */
static void outgrows(stream *s, int fault, int step)
{
    float w[ROWS * COLUMNS];

    for (int i = 1; i < ROWS * COLUMNS; i++) {
        w[i] = 0.1F * (float)(i % 7);
    }
    w[0] = step < 450 ? 0.8F + 1e-5F * (float)step : fault ? 4096.0F : 2.0F;
    if (step % 10 == 0) {
        stream_put(s, 0, w);
    }
}

static void equal_rows(stream *s, int kind, int step)
{
    float w[ROWS * COLUMNS], g[ROWS * COLUMNS];

    (void)kind;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        g[i] = (float)(i % COLUMNS) + 1.0F;
        w[i] = g[i] * (1.0F + 0.01F * (float)step);
    }
    stream_put(s, 0, w);
    stream_put(s, 1, g);
}

/* A loss jumps and falls again from there, as at the next task; or it stays. */
static void next_task(stream *s, int fault, int step)
{
    const double since = fault ? 0.0 : step - 60;
    const double level = step < 5 ? 3.0 : step < 60 ? 0.2 : 1.5 * exp(-since / 40.0);

    stream_put_all(s, 0, (float)(0.2 + level + 0.02 * (double)stream_normal(s)));
}

static void nearly_ended(stream *s, int kind, int step)
{
    (void)kind;
    stream_put_all(s, 0, step < 5 ? 1.0F : step < 80 ? 4e-4F : 1.2e-3F);
}

static void cosine(stream *s, int fault, int step)
{
    stream_put_all(s, 0, (fault ? -0.2F : -0.02F) * expf(0.1F * (float)step));
}

static void returns(stream *s, int fault, int step)
{
    const float level = step < 20 ? 1.4F : step < 400 ? 1.1F : fault ? 3.0F : 1.5F;

    stream_put_all(s, 0, level + 0.01F * stream_normal(s));
}

static void like_sums(stream *s, int fault, int step)
{
    float *g = s->values[0];

    for (int i = 0; i < N; i++) {
        g[i] += (float)cos(i) + 0.3F * stream_normal(s);
    }
    stream_put(s, 0, g);
    stream_put_all(s, 1, (float)step);
    stream_put_all(s, 2,
                   fault ? 2.0F + 0.1F * (float)step : 2.0F * expf(-0.03F * (float)step));
}

#define SUMS "gradient gradient/fc.weight 8 8, weight fc.weight 8 8, loss loss"

static const stream_case cases[] = {
    {"one-hot batches differ", "DuplicateBatch", "input input 8 8", one_hot, 0, STEPS},
    {"an element grows between looks", "UpdateSpike", "weight fc.weight 16 16", outgrows,
     0, 500, SILENT},
    {"a bit flips between looks", "UpdateSpike", "weight fc.weight 16 16", outgrows, 1,
     500, FAILED},
    {"rows of a disturbance of samples are no units", "SymmetricUnits",
     "weight delta 16 16, gradient gradient/delta 16 16", equal_rows, 0, STEPS, NOTED,
     .losing = true},
    {"rows of a layer are units", "SymmetricUnits",
     "weight fc.weight 16 16, gradient gradient/fc.weight 16 16", equal_rows, 0, STEPS,
     FAILED, .losing = true},
    {"a jump is the next task", "LossSpike", "loss loss", next_task, 0, STEPS, NOTED},
    {"a jump stays", "LossSpike", "loss loss", next_task, 1, STEPS, FAILED},
    {"a loss of a thousandth of the first triples", "LossSpike", "loss loss",
     nearly_ended, 0, STEPS, NOTED},
    {"a cosine falls faster and faster, to -1", "LossSign", "loss loss", cosine, 0, 40,
     SILENT},
    {"a loss falls below -1", "LossSign", "loss loss", cosine, 1, 40, FAILED},
    {"the loss of a player rises to where it began", "LossNotDecreasing", "loss loss",
     returns, 0, 600, NOTED},
    {"a loss rises farther", "LossNotDecreasing", "loss loss", returns, 1, 600, WARNED},
    {"gradients look like sums, and the loss falls", "MissingZeroGrad", SUMS, like_sums,
     0, STEPS, NOTED},
    {"gradients look like sums, and the loss rises", "MissingZeroGrad", SUMS, like_sums,
     1, STEPS, FAILED},
};

int main(void)
{
    return stream_main(cases, SONDE_COUNT_OF(cases), NULL, 0);
}
