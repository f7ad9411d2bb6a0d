/*
 * symmetric_links.c - SymmetricUnits: other tensors of a weight's module that explain why its
 * units are equal.
 *
 * Weights of a normalisation, and the scale of random weights beside a weight of the same
 * shape in its module, begin at 1 on purpose. Units of a weight of more than two dimensions
 * may have inputs of their own: where the module has biases of as many dimensions that agree
 * in all but the last, and these differ, units are not symmetric.
 */
#include "base/memory.h"
#include "base/point.h"
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/symmetric.h"
#include "rules/context.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool sonde__builtin_symmetric_is_constant(const sonde_vitals *w)
{
    return w->m2 * 1e4 < w->mean * w->mean * (double)w->count;
}

/* A weight, by the module that its name begins with. */
typedef struct member {
    const sonde_tensor_info *info;
    size_t length; /* of the module's name, with the dot */
    size_t index;
} member;

static int by_module(const void *a, const void *b)
{
    const member *x = a, *y = b;
    int order = (x->length > y->length) - (x->length < y->length);

    order = order != 0 ? order : strncmp(x->info->name, y->info->name, x->length);
    order = order != 0 ? order : x->info->rank - y->info->rank;
    return order != 0 ? order
                      : memcmp(x->info->shape, y->info->shape,
                               (size_t)x->info->rank * sizeof *x->info->shape);
}

void sonde__builtin_symmetric_link_twins(sonde_rule_run *run)
{
    size_t count = 0, used = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    member *members = sonde__calloc(count, sizeof *members);

    if (members == NULL) {
        sonde_rule_fail(run, "out of memory");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        sonde__builtin_symmetric_memory *memory = tensors[i].memory;
        const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);
        const char *dot = strrchr(info->name, '.');

        memory->first = SIZE_MAX;
        if (tensors[i].need == SONDE__SYMMETRIC_WEIGHTS && dot != NULL) {
            members[used++] = (member){info, (size_t)(dot - info->name) + 1, i};
        }
    }
    if (used > 0) {
        qsort(members, used, sizeof *members, by_module);
    }
    for (size_t i = 0, head = 0; i < used; i++) {
        head = by_module(&members[head], &members[i]) == 0 ? head : i;
        ((sonde__builtin_symmetric_memory *)tensors[members[i].index].memory)->first =
            members[head].index;
    }
    sonde__free(members);
}

/* The parts of a name such as module.matrices.3 or module.bias3: the lengths of the module
 * with its dot and of all before the number. */
typedef struct name_parts {
    size_t module, word;
} name_parts;

static name_parts split(const char *name)
{
    name_parts parts = {0, strlen(name)};

    while (parts.word > 0 && isdigit((unsigned char)name[parts.word - 1])) {
        parts.word--;
    }
    const size_t end =
        parts.word > 0 && name[parts.word - 1] == '.' ? parts.word - 1 : parts.word;
    for (parts.module = end; parts.module > 0 && name[parts.module - 1] != '.';) {
        parts.module--;
    }
    return parts;
}

/* Whether b holds a bias for each of the units of a: of the same module, number and
 * dimensions, but for the last one. */
static bool is_bias_for(const sonde_tensor_info *a, const sonde_tensor_info *b)
{
    const name_parts x = split(a->name), y = split(b->name);

    return a->rank > 2 && a->rank == b->rank && a != b &&
           memcmp(a->shape, b->shape, (size_t)(a->rank - 1) * sizeof *a->shape) == 0 &&
           x.module == y.module && strncmp(a->name, b->name, x.module) == 0 &&
           strcmp(a->name + x.word, b->name + y.word) == 0 &&
           sonde__strcasestr(b->name + y.module, "bias") != NULL;
}

void sonde__builtin_symmetric_link_biases(sonde_rule_run *run)
{
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        ((sonde__builtin_symmetric_memory *)tensors[i].memory)->bias = SIZE_MAX;
    }
    SONDE__EACH (run, k) {
        const sonde_tensor_info *info = sonde_rule_info(run, tensors[k].id);

        if (tensors[k].need != SONDE__SYMMETRIC_WEIGHTS || info->rank <= 2 ||
            sonde__strcasestr(info->name + split(info->name).module, "bias") == NULL) {
            continue;
        }
        SONDE__EACH (run, i) {
            if (tensors[i].need == SONDE__SYMMETRIC_WEIGHTS &&
                is_bias_for(sonde_rule_info(run, tensors[i].id), info)) {
                ((sonde__builtin_symmetric_memory *)tensors[i].memory)->bias = k;
            }
        }
    }
}

bool sonde__builtin_symmetric_has_biases(const sonde_rule_tensor *tensors,
                                         const sonde__builtin_symmetric_memory *memory)
{
    const sonde_vitals *v =
        memory->bias != SIZE_MAX ? tensors[memory->bias].vitals : NULL;

    return v != NULL && sonde__builtin_bad(v) == 0 && v->zero < v->count &&
           !sonde__builtin_symmetric_is_constant(v);
}

/* Notes, of this step, the modules and shapes with a weight whose elements differ. */
static void find_twins(sonde_rule_run *run)
{
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        ((sonde__builtin_symmetric_memory *)tensors[i].memory)->varies = false;
    }
    SONDE__EACH (run, i) {
        const size_t first =
            ((sonde__builtin_symmetric_memory *)tensors[i].memory)->first;

        sonde__rule_count_comparison(run);
        if (first != SIZE_MAX && tensors[i].vitals != NULL &&
            !sonde__builtin_symmetric_is_constant(tensors[i].vitals)) {
            ((sonde__builtin_symmetric_memory *)tensors[first].memory)->varies = true;
        }
    }
}

bool sonde__builtin_symmetric_has_twin(sonde_rule_run *run,
                                       const sonde_rule_tensor *tensors, size_t i)
{
    sonde__builtin_symmetric *state = sonde_rule_state(run);
    const size_t first = ((sonde__builtin_symmetric_memory *)tensors[i].memory)->first;

    if (!state->twins_known) {
        find_twins(run);
        state->twins_known = true;
    }
    return first != SIZE_MAX &&
           ((sonde__builtin_symmetric_memory *)tensors[first].memory)->varies;
}
