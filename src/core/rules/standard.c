/* standard.c - see standard.h. */
#include "rules/standard.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

const sonde_program_loss *sonde__rules_only_loss(const sonde_program *program)
{
    const sonde_program_loss *found = NULL;
    size_t passes = 0;

    for (size_t i = 0; i < program->event_count; i++) {
        const sonde_program_event *event = &program->events[i];

        if (event->kind != SONDE_EVENT_BACKWARD) {
            continue;
        }
        passes++;
        for (size_t k = 0; k < program->loss_count; k++) {
            if (event->value >= 0 && program->losses[k].value == event->value) {
                found = &program->losses[k];
            }
        }
    }
    return passes == 1 ? found : NULL;
}

double sonde__rules_standard(const sonde_program *program)
{
    const sonde_program_loss *loss = sonde__rules_only_loss(program);

    if (loss == NULL || loss->node < 0 || loss->predictions < 0) {
        return 0.0;
    }
    const sonde_program_node *node = &program->nodes[loss->node];
    const sonde_program_value *scores = &program->values[loss->predictions];
    const char *reduction = sonde_attribute_text(node->attributes, "reduction");
    const bool binary = strcmp(node->op, "binary_cross_entropy") == 0 ||
                        strcmp(node->op, "binary_cross_entropy_with_logits") == 0;
    const bool classes =
        strcmp(node->op, "cross_entropy") == 0 || strcmp(node->op, "nll_loss") == 0;
    const int64_t count = scores->rank > 0 ? scores->shape[scores->rank > 1 ? 1 : 0] : 0;

    if ((reduction[0] != '\0' && strcmp(reduction, "mean") != 0) ||
        sonde_attribute_text(node->attributes, "weight")[0] != '\0' ||
        sonde_attribute_text(node->attributes, "pos_weight")[0] != '\0') {
        return 0.0;
    }
    return binary ? log(2.0) : classes && count > 1 ? log((double)count) : 0.0;
}
