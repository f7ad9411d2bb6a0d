/*
 * poor_layers.c - PoorWeightInitialization, of single layers: the initial weights that the
 * program multiplies inputs by, and that are far too large or far too small.
 *
 * A weight's gain is its mean square times the number of inputs of a unit: about 1 or 2 for
 * every usual initialization. The program shows which parameters are such weights: not
 * tables, kernels' centers and scales, nor weights that it divides or multiplies first, as
 * spectral norm and equalized learning rates do. Whatever is normalized right afterwards, or
 * goes into a sine as Fourier features do, may have any size. Half of the layers need not be as
 * far off as a single one: the signal grows from each to the next. A table of vectors has no
 * inputs; its root mean square is about 1.
 */
#include "rules/builtin/poor.h"
#include "rules/builtin/program_walk.h"

#include "base/number.h"

#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 16, DEPTH = 5 };
#define LOUD_GAIN 400.0 /* 20 times the usual deviation */
#define LOUD_ALL 64.0   /* 8 times it, in half of the layers */
#define LOUD_TABLE 30.0 /* root mean square of an embedding */
#define QUIET_GAIN 1e-6 /* a thousandth of it */
#define AMPLIFIED 5.0   /* root mean square of outputs over that of inputs, at least */
#define LAYERS                                                                           \
    "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "    \
    "multi_head_attention_forward lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"
#define TABLES "embedding embedding_bag"
#define PRODUCTS "matmul addmm bmm baddbmm mm"
#define NORMED                                                                           \
    "batch_norm layer_norm group_norm instance_norm rms_norm local_response_norm "       \
    "normalize sin cos"
#define PASSING SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN " add"
/* These set elements whatever the layer before gives, or make large numbers of small ones. */
#define MASKING "masked_fill masked_scatter where index_put scatter log"

static bool reads(const sonde_program_node *node, int value)
{
    for (size_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == value) {
            return true;
        }
    }
    return false;
}

/* The operation that multiplies inputs by a weight; NULL: none does. */
static const sonde_program_node *reader_of(const sonde_program *program, int weight,
                                           int depth)
{
    const sonde_program_node *found = NULL;

    for (size_t i = 0; i < program->node_count && found == NULL && depth > 0; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (!reads(node, weight)) {
            continue;
        }
        if (sonde__builtin_walk_is(node->op, LAYERS " " PRODUCTS)) {
            found = node;
        } else if (node->output_count > 0 &&
                   sonde__builtin_walk_is(node->op, SONDE__WALK_VIEWS)) {
            found = reader_of(program, node->outputs[0], depth - 1);
        }
    }
    return found;
}

/* Whether a value is normalized before anything else happens to it. */
static bool is_normed(const sonde_program *program, int value, int depth)
{
    for (size_t i = 0; i < program->node_count && depth > 0; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (reads(node, value) &&
            (sonde__builtin_walk_is(node->op, NORMED) ||
             (node->output_count > 0 && sonde__builtin_walk_is(node->op, PASSING) &&
              is_normed(program, node->outputs[0], depth - 1)))) {
            return true;
        }
    }
    return false;
}

/* --- from a tensor back to its layer -------------------------------------------------- */

/* Whether an operation adds what is not trained, as masks are added. */
static bool adds_constant(const sonde_program *program, const sonde_program_node *node)
{
    const int a = sonde__builtin_walk_operand(node, 0),
              b = sonde__builtin_walk_operand(node, 1);

    return sonde__builtin_walk_is(node->op, "add sub") && a >= 0 && b >= 0 &&
           program->values[a].requires_grad != program->values[b].requires_grad;
}

/* The value that a tensor, "loss_1/predictions" too, has in the program; -1: none. */
static int value_of(const sonde_program *program, const char *tensor)
{
    const char *part = strchr(tensor, '/');
    const int value = program != NULL ? sonde_program_find(program, tensor) : -1;
    const unsigned long i =
        strncmp(tensor, "loss_", 5) == 0 ? strtoul(tensor + 5, NULL, 10) : 0;

    return value < 0 && program != NULL && part != NULL && i < program->loss_count &&
                   strncmp(tensor, "loss", 4) == 0 && strcmp(part, "/predictions") == 0
               ? program->losses[i].predictions
               : value;
}

bool sonde__builtin_poor_is_of_layer(const sonde_program *program, const char *tensor)
{
    int value = value_of(program, tensor);

    for (int depth = 0; value >= 0 && depth < 2 * DEPTH; depth++) {
        const sonde_program_node *made = sonde__builtin_walk_maker(program, value);

        if (made == NULL || sonde__builtin_walk_is(made->op, LAYERS " " PRODUCTS)) {
            return true;
        }
        if (sonde__builtin_walk_is(made->op, MASKING) || adds_constant(program, made)) {
            return false;
        }
        value = sonde__builtin_walk_first(made);
    }
    return true;
}

void sonde__builtin_poor_scale(const sonde_program *program, const char *tensor,
                               char *text, size_t size)
{
    int value = value_of(program, tensor);
    const sonde_program_node *made =
        value >= 0 ? sonde__builtin_walk_up(program, &value,
                                            SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN)
                   : NULL;
    const double by =
        made != NULL ? sonde_attribute_number(made->attributes, "scalar", 0.0) : 0.0;
    sonde__builtin_text line;

    text[0] = '\0';
    if (made != NULL && by > 0.0 && sonde__builtin_walk_is(made->op, "div mul")) {
        (void)sonde__snprintf(text, size, "; it is %s by %g%s",
                              strcmp(made->op, "div") == 0 ? "divided" : "multiplied", by,
                              sonde__builtin_walk_line(program, made->place, &line));
    }
}

/* --- layers -------------------------------------------------------------------------- */

const sonde_vitals *sonde__builtin_poor_vitals(sonde_rule_run *run,
                                               const sonde_program *program, int value)
{
    const char *name = value >= 0 ? program->values[value].tensor : "";

    SONDE__EACH (run, t) {
        if (name[0] != '\0' && sonde__builtin_has_finite(t->vitals) &&
            strcmp(sonde_rule_info(run, t->id)->name, name) == 0) {
            return t->vitals;
        }
    }
    return NULL;
}

/* Whether the outputs of a layer, as far as they are seen, are larger than its inputs. */
static bool amplifies(sonde_rule_run *run, const sonde_program *program,
                      const sonde_program_node *node, double *out)
{
    const sonde_vitals *y =
        node->output_count > 0
            ? sonde__builtin_poor_vitals(run, program, node->outputs[0])
            : NULL;
    const sonde_vitals *x =
        sonde__builtin_poor_vitals(run, program, sonde__builtin_walk_first(node));
    const bool bounded =
        strstr(node->op, "attention") != NULL || strstr(node->op, "lstm") != NULL ||
        strstr(node->op, "gru") != NULL || strstr(node->op, "rnn") != NULL;

    *out = y != NULL && !bounded ? sonde__builtin_rms(y) : 0.0;
    return *out == 0.0 ||
           *out > AMPLIFIED * fmax(1.0, x != NULL ? sonde__builtin_rms(x) : 1.0);
}

/* The gain of a weight that a layer multiplies its inputs by; 0: it is none, or is not
 * judged. */
static double gain_of(const sonde_tensor_info *info, const sonde_vitals *v,
                      const sonde_program *program, const sonde_program_node *node)
{
    const bool one = v->m2 * 1e4 < v->mean * v->mean * (double)v->count; /* value */
    const double rms = sonde__builtin_rms(v);
    /* normal numbers of deviation 1, by hand */
    const bool plain =
        rms > 0.7 && rms < 1.5 && sonde__builtin_walk_is(node->op, PRODUCTS);

    /* what is normalized after attention has not been so before its softmax */
    const bool any_size = strstr(node->op, "attention") == NULL &&
                          node->output_count > 0 &&
                          is_normed(program, node->outputs[0], DEPTH);

    return v->count >= ELEMENTS && info->shape[0] > 0 && !one && !plain && !any_size
               ? v->sumsq / (double)info->shape[0]
               : 0.0;
}

/* The parameter of the program that has this tensor, if it is trained; -1: none. */
static int trained_value(const sonde_program *program, const char *tensor)
{
    const int value = sonde_program_find(program, tensor);
    const int p = value >= 0 ? program->values[value].parameter : -1;

    return p >= 0 && program->parameters[p].requires_grad ? value : -1;
}

/* others: how many more layers are so small, or so large. */
static void report(sonde_rule_run *run, const sonde_rule_tensor *t, double gain,
                   double out, size_t others)
{
    const double usual = sqrt(gain);
    const bool loud = gain > 1.0;
    char made[64] = "", more[64] = "";

    if (out > 0.0 && loud) {
        (void)sonde__snprintf(made, sizeof made,
                              ", and the root mean square of its outputs is %.3g", out);
    }
    if (others > 0) {
        (void)sonde__snprintf(more, sizeof more, "%s those of %zu more layers are as %s",
                              made[0] != '\0' ? ";" : ", and", others,
                              loud ? "large" : "small");
    }
    sonde__rule_report(run, t, SONDE__SURE(WARNING), "gain", gain,
                       !loud        ? QUIET_GAIN
                       : others > 0 ? LOUD_ALL
                                    : LOUD_GAIN,
                       NULL,
                       "Its initial values are too %s: their root mean square is %.3g, "
                       "%.3g times 1 / sqrt(inputs)%s%s.",
                       loud ? "large" : "small", sonde__builtin_rms(t->vitals), usual,
                       made, more);
}

/* Whether a trained table of vectors has initial values that are far too large. */
static bool judge_table(sonde_rule_run *run, const sonde_rule_tensor *t,
                        const sonde_program *program, int value)
{
    const double rms = sonde__builtin_rms(t->vitals);

    for (size_t i = 0; i < program->node_count && value >= 0 && rms > LOUD_TABLE; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (reads(node, value) && sonde__builtin_walk_is(node->op, TABLES) &&
            node->output_count > 0 && !is_normed(program, node->outputs[0], DEPTH)) {
            sonde__rule_report(
                run, t, SONDE__SURE(WARNING), "rms", rms, LOUD_TABLE,
                "Initialize embeddings with a deviation of about 1 or less.",
                "Its initial values are too large: their root mean square "
                "is %.3g, and those of an embedding are usually about 1.",
                rms);
            return true;
        }
    }
    return false;
}

/* A layer's weight, as the program shows it. */
typedef struct layer {
    double gain, out;
    bool known; /* a layer multiplies inputs by it */
} layer;

static layer look(sonde_rule_run *run, const sonde_rule_tensor *t,
                  const sonde_program *program)
{
    const sonde_tensor_info *info = sonde_rule_info(run, t->id);
    const int value = trained_value(program, info->name);
    const sonde_program_node *node = value >= 0 ? reader_of(program, value, DEPTH) : NULL;
    layer found = {.known = node != NULL};

    found.gain = node != NULL ? gain_of(info, t->vitals, program, node) : 0.0;
    if (node != NULL && found.gain > LOUD_ALL &&
        !amplifies(run, program, node, &found.out)) {
        found.gain = 0.0;
    }
    return found;
}

bool sonde__builtin_poor_layers(sonde_rule_run *run, int weights,
                                sonde__builtin_poor_survey *survey)
{
    const sonde_program *program =
        sonde_rule_program(run, (sonde_mode)sonde_rule_at(run)->mode);
    const sonde_rule_tensor *smallest = NULL;
    size_t judged = 0, weighed = 0, quiet = 0, loud = 0;
    layer first = {.known = false}, most = first;

    *survey = (sonde__builtin_poor_survey){NULL, 0.0, 0};
    if (program == NULL) {
        return false;
    }
    SONDE__EACH_FINITE (run, t, weights) {
        const layer now = look(run, t, program);
        const bool soft = now.gain > 0.0 && now.gain < QUIET_GAIN;

        judged += now.known;
        weighed += now.gain > 0.0;
        quiet += soft;
        loud += now.gain > LOUD_ALL;
        if (soft && smallest == NULL) {
            smallest = t;
            first = now;
        }
        if (now.gain > most.gain) {
            most = now;
            survey->loudest = t;
        }
        if (now.gain > LOUD_GAIN) {
            report(run, t, now.gain, now.out, 0);
            survey->told++;
        }
        survey->told += judge_table(
            run, t, program, trained_value(program, sonde_rule_info(run, t->id)->name));
    }
    survey->gain = most.gain;
    if (survey->told == 0 && loud > 1 && 2 * loud >= weighed) {
        report(run, survey->loudest, most.gain, most.out, loud - 1);
        survey->told++;
    }
    if (quiet > 1 && 2 * quiet >= judged) {
        report(run, smallest, first.gain, 0.0, quiet - 1);
        survey->told++;
    }
    return true;
}
