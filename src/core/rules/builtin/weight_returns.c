/* weight_returns.c - see its header. */
#include "rules/builtin/weight_returns.h"

#include <string.h>

enum {
    FEW = SONDE__RETURNS_FEW,
    KEPT = SONDE__RETURNS_KEPT,
    NUMBERS = SONDE__RETURNS_NUMBERS,
    ELEMENTS = 4096,
    PER_PART = 3,
    LEAST = 8,  /* steps back */
    FIRST = 5,  /* steps that a new training begins with */
    MOVES = 20, /* steps of a parameter before it is judged */
    TOGETHER = 2
};
#define NEAR 0.25 /* of a jump */

bool sonde__builtin_returns_wants(sonde__builtin_returns *returns,
                                  const sonde_tensor_info *info)
{
    const size_t length = strcspn(info->name, "./");
    const bool same = length < sizeof returns->prefix &&
                      strncmp(returns->prefix, info->name, length) == 0 &&
                      returns->prefix[length] == '\0';

    if (returns->wanted >= FEW || info->shape[0] < 2 || info->shape[0] > ELEMENTS ||
        (same && returns->same >= PER_PART)) {
        return false;
    }
    returns->same = same ? returns->same + 1 : 1;
    memset(returns->prefix, 0, sizeof returns->prefix);
    memcpy(returns->prefix, info->name,
           length < sizeof returns->prefix ? length : sizeof returns->prefix - 1);
    returns->wanted++;
    return true;
}

/* Takes the numbers of a parameter at this step; false: it was not seen at the step before,
 * too. */
static bool take(sonde_rule_run *run, sonde__builtin_returns *returns, size_t i,
                 const sonde_vitals *v)
{
    const double now[NUMBERS] = {v->sum, v->sumsq, v->l1};
    const int64_t steps = sonde__builtin_steps_since(run, &returns->few[i].last);

    for (int k = 0; k < NUMBERS; k++) {
        returns->few[i].change[k] = fabs(now[k] - returns->few[i].now[k]);
        returns->few[i].now[k] = now[k];
    }
    return steps == 1;
}

/* How many times its largest change before a parameter's second largest number has changed. */
static double jump_of(const sonde__builtin_returns *returns, size_t i)
{
    double most = 0.0, second = 0.0;

    for (int k = 0; k < NUMBERS; k++) {
        const double before = returns->few[i].most[k];
        const double ratio = before > 0.0 ? returns->few[i].change[k] / before : 0.0;

        second = fmax(second, fmin(ratio, most));
        most = fmax(most, ratio);
    }
    return second;
}

/* How far the parameters that jumped are from their values at a kept step, as a part of their
 * jumps; the largest of all numbers that jumped. */
static double distance_to(const sonde__builtin_returns *returns, const bool *jumped,
                          size_t kept)
{
    double most = 0.0;

    for (size_t i = 0; i < FEW; i++) {
        for (int k = 0; jumped[i] && k < NUMBERS; k++) {
            const double distance =
                fabs(returns->few[i].now[k] - (double)returns->kept[kept][i][k]);
            const bool far =
                returns->few[i].change[k] > SONDE__RETURNS_FAR * returns->few[i].most[k];

            most = far ? fmax(most, distance / returns->few[i].change[k]) : most;
        }
    }
    return most;
}

/* The kept step to which the parameters have returned; -1: none. */
static int64_t find_step(const sonde__builtin_returns *returns, const bool *jumped,
                         int64_t now)
{
    double nearest = NEAR;
    int64_t found = -1;

    for (size_t kept = 0; kept < returns->count; kept++) {
        const double distance = distance_to(returns, jumped, kept);

        if (returns->step[kept] + LEAST <= now && distance < nearest) {
            nearest = distance;
            found = returns->step[kept];
        }
    }
    return found;
}

static void keep(sonde__builtin_returns *returns, int64_t now)
{
    returns->stride = returns->stride > 0 ? returns->stride : 1;
    if (returns->count > 0 && now < returns->step[returns->count - 1] + returns->stride) {
        return;
    }
    if (returns->count == KEPT) {
        for (size_t n = 0; n < KEPT / 2; n++) {
            memmove(returns->kept[n], returns->kept[2 * n], sizeof returns->kept[n]);
            returns->step[n] = returns->step[2 * n];
        }
        returns->count = KEPT / 2;
        returns->stride *= 2;
    }
    for (size_t i = 0; i < FEW; i++) {
        for (int k = 0; k < NUMBERS; k++) {
            returns->kept[returns->count][i][k] = (float)returns->few[i].now[k];
        }
    }
    returns->step[returns->count++] = now;
}

/* The changes of this step are those before, from the next one on. */
static void learn(sonde__builtin_returns *returns, size_t i)
{
    bool moved = false;

    for (int k = 0; k < NUMBERS; k++) {
        moved = moved || returns->few[i].change[k] > 0.0;
        returns->few[i].most[k] =
            fmax(returns->few[i].most[k], returns->few[i].change[k]);
    }
    returns->few[i].moves += moved;
}

int64_t sonde__builtin_returns_take(sonde_rule_run *run, sonde__builtin_returns *returns,
                                    int need, size_t *farthest, double *most)
{
    const int64_t now = sonde_rule_at(run)->mode_step;
    bool jumped[FEW] = {false}, seen[FEW] = {false}, any = false;
    size_t i = 0, together = 0;
    int64_t old = -1;

    SONDE__EACH_OF (run, t, need) {
        if (i == FEW) {
            break;
        }
        seen[i] = sonde__builtin_is_finite(t->vitals) && take(run, returns, i, t->vitals);
        if (seen[i]) {
            const double ratio =
                returns->few[i].moves >= MOVES ? jump_of(returns, i) : 0.0;

            jumped[i] = ratio > SONDE__RETURNS_FAR;
            together += jumped[i];
            *farthest = ratio > *most ? sonde__builtin_index(run, t) : *farthest;
            *most = fmax(*most, ratio);
        }
        any = any || t->vitals != NULL;
        i++;
    }
    if (together >= TOGETHER) {
        old = find_step(returns, jumped, now);
    }
    for (i = 0; i < FEW; i++) {
        if (seen[i]) {
            learn(returns, i);
        }
    }
    if (any) {
        keep(returns, now);
    }
    return old >= FIRST ? old : -1;
}
