/*
 * frozen_cut_off.c - FrozenParameter: a weight never had a gradient and never changed.
 *
 * Fires when, after `idle` comparisons a weight has never changed and never had a
 * gradient other than 0, while others are trained. Where the loss need not
 * fall, after three times as many, or at the end: players take turns, and a
 * policy may be updated by hand after many steps of its critic.
 *
 * A weight that is cut off is a warning if trained weights
 * precede it, few weights are like it, and none of them is of another module
 * (layers that adapters train around are frozen on purpose) or the table of an embedding
 * (of sines, or trained elsewhere), and its module has an output where those of others are
 * seen (a head may not be used). It is a warning wherever it stands if its gradient is
 * declared, which is so for parameters that require one, unless a whole module of several
 * weights is like it (a teacher, a backbone without gradients). All others are one note.
 *
 * Of a weight after trained ones, tensors may not tell whether it is cut off on purpose:
 *     leaf      its module's output has no gradient, where those of others have one:
 *               nothing that is trained uses it (a pooler, the last residual)
 *     declared  its gradient is not declared, and no output of any module is seen: it was
 *               never meant to be trained
 * Such a weight is a note as long as training does not go badly, then a warning. A weight
 * whose gradient is not declared and whose elements differ and are all 0 or more was not
 * drawn, but is a table of constants: a note.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_vitals.h"
#include "rules/builtin/frozen.h"
#include "rules/context.h"
#include "rules/suspicion.h"

#include <stdio.h>
#include <string.h>

static const sonde__rule_terms unused = {
    SONDE__TERMS(NOTE, WARNING, NOTE, NOTE, WARNING)};

static bool is_cut_off(sonde_rule_run *run, const sonde_rule_tensor *tensor)
{
    const sonde__builtin_frozen_memory *memory = tensor->memory;

    return sonde__builtin_frozen_is_weight(run, tensor) && memory->has_before &&
           !memory->moved && !memory->pulled;
}

/* True if every weight of the module whose name is the first characters of that of tensor
 * i, and more than one, is cut off: a teacher, or a copy for targets. */
static bool is_part(sonde_rule_run *run, size_t i, size_t length)
{
    size_t members = 0;
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    const char *name = sonde_rule_info(run, tensors[i].id)->name;

    SONDE__EACH (run, k) {
        const char *other = sonde_rule_info(run, tensors[k].id)->name;

        if (sonde__builtin_frozen_is_weight(run, &tensors[k]) &&
            strncmp(other, name, length + 1) == 0) {
            members++;
            if (!is_cut_off(run, &tensors[k])) {
                return false;
            }
        }
    }
    return members > 1;
}

/* ... of its outermost module. */
static bool is_whole_part(sonde_rule_run *run, size_t i)
{
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    return is_part(run, i, strcspn(sonde_rule_info(run, tensors[i].id)->name, "./"));
}

/* ... of any module that it is in. */
static bool is_some_part(sonde_rule_run *run, size_t i)
{
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    const char *name = sonde_rule_info(run, tensors[i].id)->name;

    for (const char *dot = strpbrk(name, "./"); dot != NULL;
         dot = strpbrk(dot + 1, "./")) {
        if (is_part(run, i, (size_t)(dot - name))) {
            return true;
        }
    }
    return false;
}

static bool ends_in_weight(const char *name)
{
    const size_t length = strlen(name);

    return length >= 6 && strcmp(name + length - 6, "weight") == 0;
}

/* Whether the module of a weight computes something: YES if an output of it is known,
 * NO if only outputs of others are; the network itself may. */
typedef enum use { NO, PERHAPS, YES } use;

/* True if a name is that of an output of the module whose name has that length. */
static bool is_output(const char *name, const char *module, size_t length)
{
    return strncmp(name, module, length) == 0 &&
           strncmp(name + length, "_output", 7) == 0;
}

/* *alone: no output of any module is seen; *leaf: outputs of others have gradients, that
 * of this module has none. */
static use find_use(const sonde_rule_run *run, const sonde_tensor_info *info, bool *alone,
                    bool *leaf)
{
    const sonde_catalogue *catalogue = sonde__rule_catalogue(run);
    const char *dot = strrchr(info->name, '.');
    const size_t length = dot != NULL ? (size_t)(dot - info->name) : 0;
    bool any = false, own = false, pulls = false, pulled = false;

    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *other = sonde_catalogue_info(catalogue, id);

        if (other->role == SONDE_ROLE_OUTPUT || other->role == SONDE_ROLE_ACTIVATION) {
            any = true;
            own = own || is_output(other->name, info->name, length);
        } else if (other->role == SONDE_ROLE_ACTIVATION_GRADIENT) {
            const sonde__builtin_span span = sonde__builtin_parameter_of(other->name);

            pulls = true;
            pulled =
                pulled || (span.text != NULL && is_output(span.text, info->name, length));
        }
    }
    *alone = !any;
    *leaf = own && pulls && !pulled;
    return own ? YES : !any || dot == NULL ? PERHAPS : NO;
}

/* Whether nothing that is trained uses the outputs of the module of a weight that is after
 * trained ones. */
static bool is_leaf(sonde_rule_run *run, size_t i)
{
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    bool alone = false, leaf = false;

    if (i > state->first_moving) {
        (void)find_use(run, sonde_rule_info(run, tensors[i].id), &alone, &leaf);
    }
    return leaf;
}

/* True if the weights that are cut off belong to one module; leaves do not count. */
static bool is_one_module(sonde_rule_run *run)
{
    size_t first = SIZE_MAX, length = 0;
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        const char *name = sonde_rule_info(run, tensors[i].id)->name;

        if (!is_cut_off(run, &tensors[i]) || is_whole_part(run, i) || is_leaf(run, i)) {
            continue;
        }
        if (first == SIZE_MAX) {
            const char *end = strrchr(name, '.');

            first = i;
            length = end != NULL ? (size_t)(end - name) + 1 : strlen(name) + 1;
        } else if (strncmp(name, sonde_rule_info(run, tensors[first].id)->name, length) !=
                   0) {
            return false;
        }
    }
    return true;
}

/* How a weight is cut off. */
typedef enum cut_off {
    MAY_BE_MEANT,
    AFTER, /* a trained layer */
    ASKED, /* it requires a gradient, and is used */
    UNUSED /* perhaps */
} cut_off;

static void report_cut_off(sonde_rule_run *run, size_t i, size_t cut, cut_off how)
{
    static const char *const texts[] = {
        [MAY_BE_MEANT] = "That is right if they are frozen on purpose.",
        [AFTER] = "Layers before it are trained.",
        [ASKED] = "It requires a gradient, and other layers are trained.",
        [UNUSED] = "That is right if nothing that is trained uses its layer, or if it is "
                   "frozen on purpose."};
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    const double compared = (double)state->compared, idle = (double)state->idle;
    const sonde_severity severity =
        how == MAY_BE_MEANT ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_WARNING;
    char others[64] = "";

    if (how == MAY_BE_MEANT) {
        (void)snprintf(others, sizeof others, " and %zu other weights", cut - 1);
    }
    if (how == UNUSED ? sonde__rule_suspect(run, i, &unused, "steps_without_gradient",
                                            compared, idle)
                      : sonde_rule_found(run, i, severity, "steps_without_gradient",
                                         compared, idle)) {
        sonde_rule_say(run,
                       "Check that it requires a gradient, and that nothing (detach, "
                       "item, numpy, no_grad) cuts it off from the loss.",
                       "It%s never had a gradient and never changed. %s", others,
                       texts[how]);
    }
}

/* True if these are no weights that were drawn: none is below 0, and they differ. */
static bool is_table_of_constants(const sonde_vitals *w)
{
    enum { LEAST = 8 };

    return w->count >= LEAST && w->min >= 0.0 && w->max > w->min;
}

/* few: the weights that are cut off are few, and of one module. */
static cut_off how_cut_off(sonde_rule_run *run, size_t i, bool few)
{
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    const sonde_rule_tensor *tensors = sonde__builtin_tensors(run);
    const sonde_tensor_info *info = sonde_rule_info(run, tensors[i].id);
    const sonde__builtin_frozen_memory *memory = tensors[i].memory;
    const bool undeclared = memory->gradient == SIZE_MAX;
    bool alone = false, leaf = false;
    const use used = find_use(run, info, &alone, &leaf);
    cut_off how = MAY_BE_MEANT;

    if (!ends_in_weight(info->name) || sonde__builtin_is_table(run, info) || used == NO ||
        (undeclared && is_table_of_constants(&memory->before))) {
        return MAY_BE_MEANT;
    }
    if (few && i > state->first_moving && !is_whole_part(run, i)) {
        how = AFTER;
    } else if (used == YES && !is_some_part(run, i) && !undeclared) {
        how = ASKED;
    }
    if (how != MAY_BE_MEANT && i > state->first_moving &&
        (leaf || (alone && state->pulls && undeclared))) {
        how = UNUSED;
    }
    return how;
}

void sonde__builtin_frozen_judge_cut_off(sonde_rule_run *run)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);
    size_t count = 0, cut = 0, last = SIZE_MAX, trained = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);
    bool few = false, others = false;

    state->looked = true;
    sonde__builtin_frozen_survey(run);
    for (size_t i = 0; i < count; i++) {
        const sonde__builtin_frozen_memory *memory = tensors[i].memory;

        if (sonde__builtin_frozen_is_weight(run, &tensors[i]) && memory->moved &&
            memory->pulled) {
            trained++;
        }
        cut += is_cut_off(run, &tensors[i]);
    }
    few = trained > 0 && 3 * cut <= state->weights && is_one_module(run);
    for (size_t i = 0; i < count && trained > 0; i++) {
        if (is_cut_off(run, &tensors[i])) {
            const cut_off how = how_cut_off(run, i, few);

            if (how != MAY_BE_MEANT) {
                report_cut_off(run, i, cut, how);
            } else {
                others = true;
                last = i < state->first_moving || last == SIZE_MAX ? i : last;
            }
        }
    }
    if (others) {
        report_cut_off(run, last, cut, MAY_BE_MEANT);
    }
}
