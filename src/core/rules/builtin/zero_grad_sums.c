/*
 * zero_grad_sums.c - MissingZeroGrad: whether the gradients of the last steps look like sums
 * of fresh ones. The names are those of rule_missing_zero_grad.c.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/zero_grad.h"

#include <math.h>

enum { OFTEN = 8, WINDOW = 16, EARLY = 12 };
#define NOISE 0.02
#define OPPOSED (-0.25)
#define SMOOTH 0.95
#define LIKE 0.7
#define MORE_LIKE 0.85
#define LESS_LIKE 0.45
#define NEARLY_ALL 95.0
#define ABOVE 1.5
#define FRESH 0.3

double sonde__builtin_zero_grad_percent_summed(const sonde__builtin_zero_grad *state,
                                               const sonde_rule_tensor *tensors,
                                               size_t count)
{
    size_t judged = 0, summed = 0;

    for (size_t i = 0; i < count; i++) {
        const sonde__builtin_zero_grad_memory *memory = tensors[i].memory;
        double sum = 0.0;

        for (int64_t k = 0;
             k < state->patience && tensors[i].need == SONDE__ZERO_GRAD_GRADIENTS; k++) {
            sum += memory->last[k];
        }
        if (tensors[i].need == SONDE__ZERO_GRAD_GRADIENTS && isfinite(sum)) {
            judged++;
            summed += sum > -NOISE * (double)state->patience;
        }
    }
    return judged > 0 ? 100.0 * (double)summed / (double)judged : 0.0;
}

bool sonde__builtin_zero_grad_are_sums(const sonde__builtin_zero_grad *state)
{
    const int64_t n = state->patience;
    const sonde__builtin_zero_grad_norms *first = &state->last[state->streak % n];
    const sonde__builtin_zero_grad_norms *last = &state->last[(state->streak - 1) % n];
    double along = 0.0, least = 1.0, mean = 0.0, slope = 0.0, weights = 0.0;

    for (int64_t k = 0; k < n; k++) {
        const sonde__builtin_zero_grad_norms *at = &state->last[(state->streak + k) % n];
        const double place = (double)k - 0.5 * (double)(n - 1);

        mean += log(at->fresh) / (double)n;
        slope += place * log(at->fresh);
        weights += place * place;
        if (k > 0) { /* the first one uses an f from before the streak */
            along += at->along;
            least = fmin(least, at->along);
        }
    }
    return along > 0.0 && least > OPPOSED && least < SMOOTH &&
           mean < log(4.0 / 3.0 * first->before) &&
           slope / weights < 0.5 * log(last->now / first->before) / (double)n;
}

bool sonde__builtin_zero_grad_is_clear(const sonde__builtin_zero_grad *state,
                                       double percent)
{
    const int64_t n = state->patience;
    const sonde__builtin_zero_grad_norms *first = &state->last[state->streak % n];
    const sonde__builtin_zero_grad_norms *last = &state->last[(state->streak - 1) % n];
    const double like = percent > NEARLY_ALL     ? LESS_LIKE
                        : state->streak <= EARLY ? LIKE
                                                 : MORE_LIKE;
    double fresh = 0.0;

    for (int64_t k = 0; k < n; k++) {
        fresh += state->last[k].fresh / (double)n;
    }
    return fresh > like * first->before &&
           last->now > ABOVE * fmax(state->largest, first->before);
}

bool sonde__builtin_zero_grad_holds_often(uint32_t held)
{
    int count = 0;

    for (int i = 0; i < WINDOW; i++) {
        count += (held >> i & 1U) != 0;
    }
    return count >= OFTEN;
}

bool sonde__builtin_zero_grad_is_smooth(const sonde__builtin_zero_grad *state)
{
    return state->from_start && state->fresh < FRESH;
}

void sonde__builtin_zero_grad_take_step(sonde__builtin_zero_grad *state,
                                        sonde_rule_tensor *tensors, size_t count)
{
    const int64_t place = state->streak++ % state->patience;
    sonde__builtin_zero_grad_norms *at = &state->last[place];

    at->fresh = sqrt(state->at.fresh);
    at->now = sqrt(state->at.now);
    at->before = sqrt(state->at.before);
    at->along = state->at.along / (at->fresh * state->fresh_before);
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].need == SONDE__ZERO_GRAD_GRADIENTS) {
            sonde__builtin_zero_grad_memory *memory = tensors[i].memory;

            memory->last[place] = memory->cosine;
            memory->cosine = (double)NAN;
        }
    }
}
