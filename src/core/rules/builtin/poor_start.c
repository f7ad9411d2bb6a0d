/*
 * poor_start.c - PoorWeightInitialization, of the whole network: the first loss is far above that
 * of predictions which do not look at the inputs, so the untrained network is sure of wrong
 * classes. Training may mend that, at the cost of its first steps, or end where nothing is made
 * of the inputs; the loss falls in both cases.
 *
 * Healthy losses that begin there: scores that the program multiplies by a number (margins on a
 * sphere), masks, and classes with weights are not judged; weights that are a table of vectors as
 * well, or normal numbers of deviation 1 by hand, are a note if training goes well.
 */
#include "rules/builtin/poor.h"
#include "rules/builtin/program_walk.h"
#include "rules/standard.h"

#include "base/number.h"

#include <string.h>

#define TIMES 5.0       /* the loss of even predictions */
#define LOUD_INPUT 10.0 /* root mean square */
#define LOUD_LAYER 8.0  /* gain */
#define PLAIN_LOW 0.7
#define PLAIN_HIGH 1.5
#define BETWEEN                                                                          \
    SONDE__WALK_VIEWS " " SONDE__WALK_PLAIN " log_softmax softmax sigmoid log add"

SONDE__TERMS(excused, NOTE, WARNING, WARNING, NOTE, NOTE);

/* The operation that gives the scores of a loss. */
static const sonde_program_node *scores_of(const sonde_program *program, int predictions)
{
    int value = predictions;

    return value >= 0 ? sonde__builtin_walk_up(program, &value, BETWEEN) : NULL;
}

/* Whether the weights of the last layer are drawn for another use, or by hand. */
static bool is_excused(sonde_rule_run *run, const sonde_program *program,
                       const sonde_program_node *last)
{
    const int weight = sonde__builtin_walk_operand(last, 1);
    const sonde_vitals *v = sonde__builtin_poor_vitals(run, program, weight);
    const double rms = v != NULL ? sonde__builtin_rms(v) : 0.0;
    bool table = false;

    for (size_t i = 0; i < program->node_count && weight >= 0; i++) {
        const sonde_program_node *node = &program->nodes[i];

        for (size_t k = 0; k < node->input_count; k++) {
            table = table || (node->inputs[k] == weight && node != last &&
                              strcmp(node->op, "embedding") == 0);
        }
    }
    return table ||
           (rms > PLAIN_LOW && rms < PLAIN_HIGH && strcmp(last->op, "linear") != 0);
}

/* The largest of the network's inputs, if it is far above 1. */
static const sonde_rule_tensor *loud_input(sonde_rule_run *run, int data)
{
    const sonde_rule_tensor *found = NULL;
    double most = LOUD_INPUT;

    SONDE__EACH_FINITE (run, t, data) {
        const double rms = sonde__builtin_rms(t->vitals);

        found = rms > most ? t : found;
        most = fmax(most, rms);
    }
    return found;
}

/* The tensor that the finding is about, and why. size: of text. */
static const sonde_rule_tensor *cause_of(sonde_rule_run *run, int data,
                                         const sonde__builtin_poor_survey *survey,
                                         char *text, size_t size)
{
    const sonde_rule_tensor *input = loud_input(run, data);

    if (input != NULL) {
        (void)sonde__snprintf(text, size,
                              "the root mean square of the network's inputs is %.3g",
                              sonde__builtin_rms(input->vitals));
        return input;
    }
    if (survey->loudest != NULL && survey->gain > LOUD_LAYER) {
        (void)sonde__snprintf(text, size,
                              "the initial weights here are %.3g times 1 / sqrt(inputs)",
                              sqrt(survey->gain));
        return survey->loudest;
    }
    (void)sonde__snprintf(text, size, "the untrained network is sure of wrong classes");
    return NULL;
}

void sonde__builtin_poor_start(sonde_rule_run *run, int data, double first,
                               const sonde__builtin_poor_survey *survey)
{
    const sonde_program *program =
        sonde_rule_program(run, (sonde_mode)sonde_rule_at(run)->mode);
    const sonde_program_loss *loss =
        program != NULL ? sonde__rules_only_loss(program) : NULL;
    const double even = loss != NULL ? sonde__rules_standard(program) : 0.0;
    const sonde_program_node *last =
        loss != NULL && even > 0.0 ? scores_of(program, loss->predictions) : NULL;
    char why[96];

    if (last == NULL || !(first > TIMES * even) || sonde__rule_loss_may_rise(run) ||
        !sonde__builtin_walk_is(last->op, "linear matmul addmm mm bmm conv1d conv2d "
                                          "conv3d")) {
        return;
    }
    const sonde_rule_tensor *t = cause_of(run, data, survey, why, sizeof why);
    sonde__rule_report(
        run, t, is_excused(run, program, last) ? &excused : SONDE__SURE(WARNING), "mean",
        first, TIMES * even,
        "Scale the inputs to about -1 to 1, and initialize the last layers "
        "with smaller weights.",
        "The first loss is %.4g, %.3g times that of even predictions "
        "(%.4g): %s.",
        first, first / even, even, why);
}
