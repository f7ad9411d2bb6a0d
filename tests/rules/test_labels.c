/*
 * The rules that look at labels: ClassImbalance, Confusion, LabelNoise.
 */
#include "rules/stream.h"

#include "base/macros.h"
#include "base/random.h"

enum { BATCH = 40, CLASSES = 4, STEPS = 100 };

/* Every rare-th label is of class 3, the others even; class `missed` is taken for class
 * 0 if miss says so. */
static void put_classes(stream *s, int rare, int missed, double miss, double loss)
{
    float labels[BATCH], scores[BATCH * CLASSES] = {0};

    for (int i = 0; i < BATCH; i++) {
        const int n = (int)s->at.mode_step * BATCH + i;
        const int label = n % rare == 0 ? 3 : n % 3;
        const bool wrong =
            label == missed && (double)sonde__uniform(8, 9, s->draws++) < miss;

        labels[i] = (float)label;
        scores[i * CLASSES + (wrong ? 0 : label)] = 1.0F;
    }
    stream_put(s, 0, labels);
    stream_put(s, 1, scores);
    stream_put_all(s, 2, (float)loss);
}

enum { USUAL, RARE, MISSED };

static void imbalance(stream *s, int kind, int step)
{
    (void)step;
    put_classes(s, kind == RARE ? 121 : 4, kind == MISSED ? 2 : 1,
                kind == USUAL    ? 0.1
                : kind == MISSED ? 0.9
                                 : 0.0,
                1.0);
}

/* Of class 1, so many percent are taken for class 0. */
static void confusion(stream *s, int percent, int step)
{
    (void)step;
    s->at.mode = SONDE_MODE_EVAL;
    put_classes(s, 4, 1, percent / 100.0, 1.0);
}

static void noise(stream *s, int stays, int step)
{
    const double by = 0.02 * (double)stream_normal(s);
    const double fresh = 1.386 * exp(-step / 3000.0); /* slow, but it learns */

    put_classes(s, 4, 1, 0.0, (stays ? 1.386 : fresh) + by);
}

/* Labels drawn at random, most of class 0: the loss of a step is that of their frequencies, of
 * which the network knows so many percent less. */
static void drawn(stream *s, int percent, int step)
{
    float labels[BATCH];
    double loss = 0.0;

    (void)step;
    for (int i = 0; i < BATCH; i++) {
        const double at = (double)sonde__uniform(8, 9, s->draws++);

        labels[i] = (float)(at < 0.7 ? 0 : at < 0.8 ? 1 : at < 0.9 ? 2 : 3);
        loss -= log(at < 0.7 ? 0.7 : 0.1) / BATCH;
    }
    stream_put(s, 0, labels);
    stream_put_all(
        s, 2, (float)(loss * (1.0 - percent / 100.0) + 0.004 * (double)stream_normal(s)));
}

/* The loss stands at the entropy because nothing moves yet: gradients of one batch and
 * the next have a common part, of that share; or because nothing flows: they are 0. */
enum { NOISE, COMMON, NOTHING };

static void not_begun(stream *s, int kind, int step)
{
    float gradient[BATCH * CLASSES];

    (void)step;
    for (int k = 0; k < BATCH * CLASSES; k++) {
        gradient[k] = (float)((kind == COMMON ? 0.7 : 0.0) * cos(k) +
                              (kind == NOTHING ? 0.0 : 1.0) * (double)stream_normal(s));
    }
    stream_put(s, 3, gradient);
    put_classes(s, 4, 1, 0.0, 1.387 + 0.002 * (double)stream_normal(s));
}

#define CLASSIFIER                                                                       \
    "input batch_labels 40, output loss_input_0 40 4, loss loss_output_0, "              \
    "gradient Gradient___w 40 4"

static const stream_case cases[] = {
    {"classes as usual", "ClassImbalance", CLASSIFIER, imbalance, USUAL, STEPS},
    {"a class is rare", "ClassImbalance", CLASSIFIER, imbalance, RARE, STEPS, FOUND, "",
     12, "imbalance"},
    /* within 3 stretches of 500 */
    {"a class is missed", "ClassImbalance:patience=3", CLASSIFIER, imbalance, MISSED,
     STEPS, FOUND, "", 38, "misprediction"},
    /* with smdebug's parameters, the first 500 labels suffice, and no class has an excuse */
    {"smdebug's samples are judged at once", "ClassImbalance:samples=500", CLASSIFIER,
     imbalance, MISSED, STEPS, FOUND, "", 12, "misprediction"},
    {"few are taken for others", "Confusion", CLASSIFIER, confusion, 5, STEPS},
    {"many are taken for others", "Confusion", CLASSIFIER, confusion, 30, STEPS, FOUND,
     "", STEPS - 1},
    /* of 30 %: 0.757 of an even share are right */
    {"the diagonal", "Confusion:max_off_diag=0.5", CLASSIFIER, confusion, 30, STEPS,
     FOUND, "", STEPS - 1, "diagonal"},
    {"beside the diagonal", "Confusion:min_diag=0.5", CLASSIFIER, confusion, 30, STEPS,
     FOUND, "", STEPS - 1, "off_diagonal"},
    {"both limits", "Confusion:min_diag=0.5,max_off_diag=0.5", CLASSIFIER, confusion, 30,
     STEPS, SILENT},
    {"a fifth category", "Confusion:min_diag=0.5,max_off_diag=0.5,category_no=5",
     CLASSIFIER, confusion, 30, STEPS, FOUND, "", STEPS - 1, "diagonal"},
    /* nothing else is taken for them */
    {"other predictions", "Confusion:predictions=other", CLASSIFIER, confusion, 30, STEPS,
     SILENT},
    {"other labels", "Confusion:labels=other", CLASSIFIER, confusion, 30, STEPS, SILENT},
    {"named predictions", "Confusion:min_diag=0.5,predictions=loss_input", CLASSIFIER,
     confusion, 30, STEPS, FOUND, "", STEPS - 1, "off_diagonal"},
    {"a loss falls slowly", "LabelNoise", CLASSIFIER, noise, 0, STEPS},
    {"a loss stays at the entropy", "LabelNoise", CLASSIFIER, noise, 1, STEPS, FOUND,
     "loss_output_0", 94},
    {"labels differ from batch to batch by chance", "LabelNoise", CLASSIFIER, drawn, 0,
     STEPS, FOUND, "loss_output_0", 94},
    {"labels differ by chance, and some is learned", "LabelNoise", CLASSIFIER, drawn, 4,
     STEPS},
    {"few samples prove nothing", "LabelNoise:samples=5000", CLASSIFIER, noise, 1, STEPS},
    {"gradients are noise", "LabelNoise", CLASSIFIER, not_begun, NOISE, STEPS, FOUND,
     "loss_output_0", 94},
    {"gradients have a common part", "LabelNoise", CLASSIFIER, not_begun, COMMON, STEPS},
    {"gradients are 0", "LabelNoise", CLASSIFIER, not_begun, NOTHING, STEPS},
};

int main(void)
{
    return stream_main(cases, SONDE_COUNT_OF(cases), NULL, 0);
}
