/*
 * vanishing_layers.c - VanishingGradient: the gradients of one step, from layer to layer, and the
 * finding's text.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/vanishing.h"

#include <math.h>

double sonde__builtin_vanishing_take_means(sonde_rule_tensor *tensors, size_t count)
{
    double largest = 0.0;

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;
        sonde__builtin_vanishing_memory *memory = tensors[i].memory;

        memory->seen = tensors[i].need == SONDE__VANISHING_GRADIENTS && v != NULL &&
                       sonde__builtin_bad(v) == 0 && v->count > 0 &&
                       !isnan(v->l1); /* NaN: smdebug saved other statistics */
        if (memory->seen) {
            const uint64_t n = sonde__builtin_nonzero(v);

            memory->now = n > 0 ? v->l1 / (double)n : 0.0;
            memory->alive = memory->alive || n > 0;
            largest = memory->now > largest ? memory->now : largest;
        }
    }
    return largest;
}

size_t sonde__builtin_vanishing_vanished_on_the_way(const sonde_rule_tensor *tensors,
                                                    size_t count, double share)
{
    size_t layers = 0, down = 0, up = 0, first = count, last = count;
    double before = 0.0;

    for (size_t i = 0; i < count; i++) {
        const sonde__builtin_vanishing_memory *memory = tensors[i].memory;

        if (!memory->weight || !memory->seen || memory->now <= 0.0) {
            continue;
        }
        if (layers > 0) {
            down += memory->now < before;
            up += memory->now > before;
        } else {
            first = i;
        }
        before = memory->now;
        last = i;
        layers++;
    }
    if (layers < SONDE__VANISHING_LEAST_LAYERS) {
        return count;
    }
    if (4 * down >= 3 * (layers - 1) &&
        before <
            share *
                ((const sonde__builtin_vanishing_memory *)tensors[first].memory)->now) {
        return last;
    }
    if (4 * up >= 3 * (layers - 1) &&
        ((const sonde__builtin_vanishing_memory *)tensors[first].memory)->now <
            share * before) {
        return first;
    }
    return count;
}

bool sonde__builtin_vanishing_is_branch(const sonde__builtin_vanishing *state,
                                        const sonde_rule_tensor *tensors, size_t count,
                                        size_t i, double largest)
{
    const double least = fmax(state->threshold, state->relative * largest);
    bool before = false, after = false;

    if (((const sonde__builtin_vanishing_memory *)tensors[i].memory)->mattered) {
        return false;
    }
    for (size_t k = 0; k < count && !(before && after); k++) {
        const sonde__builtin_vanishing_memory *other = tensors[k].memory;

        if (other->weight && other->seen && other->now >= least) {
            before = before || k < i;
            after = after || k > i;
        }
    }
    return before && after;
}

void sonde__builtin_vanishing_report(sonde_rule_run *run,
                                     const sonde__builtin_vanishing_memory *memory,
                                     double largest, bool on_the_way)
{
    const sonde__builtin_vanishing *state = sonde_rule_state(run);

    if (state->all) {
        sonde_rule_say(run,
                       "Look for dead units or saturated activations after it: lower "
                       "the learning rate, and check the loss and what is detached.",
                       "The gradients of all parameters have vanished: the mean of "
                       "|gradient| is %.3g here and nowhere above %.3g, so nothing "
                       "learns.",
                       memory->now, largest);
    } else if (memory->now <= 0.0) {
        sonde_rule_say(run,
                       "Look for dead units after it: lower the learning rate, or use a "
                       "leaky activation.",
                       "All elements of the gradient have become exactly 0, while the "
                       "mean of another is %.3g: this parameter no longer learns.",
                       largest);
    } else if (on_the_way) {
        sonde_rule_say(run, NULL,
                       "From the output to this layer the mean of |gradient| shrinks to "
                       "%.2g times its value (here %.3g): the first layers hardly learn.",
                       memory->now / largest, memory->now);
    } else {
        sonde_rule_say(run, NULL,
                       "The mean of |gradient| is %.3g, while the largest of this step "
                       "is %.3g: this parameter hardly learns.",
                       memory->now, largest);
    }
}
