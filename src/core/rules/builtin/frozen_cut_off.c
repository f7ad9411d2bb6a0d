/*
 * frozen_cut_off.c - FrozenParameter: a weight never had a gradient and never changed.
 *
 * Fires when, after `idle` comparisons, a weight has never changed and never had a gradient
 * other than 0, while others are trained. If the loss need not fall, it fires after three
 * times as many, or at the end: players take turns, and a policy may be updated by hand
 * after many steps of its critic.
 *
 * A weight that is cut off is a warning if trained weights
 * precede it, few weights are like it, and none of them is of another module
 * (layers that adapters train around are frozen on purpose) or the table of an embedding
 * (of sines, or trained elsewhere), and its module has an output if others do (a head may
 * be unused). It is a warning at any place if its gradient is declared, as for parameters
 * that require one, unless a whole module of several weights is like it (a teacher, a
 * backbone without gradients). All others are one note, except those of which the program
 * shows that they require no gradient and that no optimizer holds them.
 *
 * A weight of which the program says that an optimizer holds it (SONDE_NOTE_HELD) is not
 * frozen on purpose: a warning in place of that note; if none of the weights of its optimizer
 * ever had a gradient, an error. The first such weight stands for all of its optimizer.
 *
 * A weight after trained ones may be cut off on purpose, and tensors cannot always show it:
 *     leaf      its module's output has no gradient, where those of others have one:
 *               nothing that is trained uses it (a pooler, the last residual)
 *     declared  its gradient is not declared, and no output of any module is seen: it was
 *               never meant to be trained
 * Such a weight is a note as long as training does not go badly, then a warning. A weight
 * The recurrent weight of the reverse direction of a bidirectional layer that is trained is
 * no such weight: it has no effect where only the last output is read. Nor are the weights of
 * one direction of such a layer while those of the other are trained: one note. A weight
 * whose gradient is not declared and whose elements differ and are all 0 or more was not
 * drawn, but is a table of constants: a note.
 */
#include "rules/builtin/frozen.h"
#include "rules/context.h"

#include <stdio.h>
#include <string.h>

SONDE__TERMS(unused, NOTE, WARNING, NOTE, NOTE, WARNING);

/* Whether it is the recurrent weight of a reverse direction that is trained: it has no effect
 * where only the last output is read. */
static bool takes_one_step(sonde_rule_run *run, const sonde_rule_tensor *tensor)
{
    const char *name = sonde_rule_info(run, tensor->id)->name, *dot = strrchr(name, '.');
    const size_t module = dot != NULL ? (size_t)(dot - name) + 1 : 0;

    if (!sonde__builtin_is_reverse_recurrence(name)) {
        return false;
    }
    SONDE__EACH_OF (run, t, SONDE__FROZEN_PARAMETERS) {
        const char *other = sonde_rule_info(run, t->id)->name;

        if (strncmp(other, name, module) == 0 && strstr(other, "weight_ih_l") != NULL &&
            strstr(other, "_reverse") != NULL &&
            ((const sonde__builtin_frozen_memory *)t->memory)->pulled) {
            return true;
        }
    }
    return false;
}

/* Whether it is a weight of one direction of a bidirectional layer of which the other one is
 * trained: what is read is that one's. */
static bool is_other_direction(sonde_rule_run *run, const sonde_rule_tensor *tensor)
{
    static const char end[] = "_reverse";
    const char *name = sonde_rule_info(run, tensor->id)->name;
    const size_t length = strlen(name), tail = sizeof end - 1;
    const bool reverse = length > tail && strcmp(name + length - tail, end) == 0;
    const size_t base = reverse ? length - tail : length;

    if (strstr(name, "weight_ih_l") == NULL && strstr(name, "weight_hh_l") == NULL) {
        return false;
    }
    SONDE__EACH_OF (run, t, SONDE__FROZEN_PARAMETERS) {
        const char *other = sonde_rule_info(run, t->id)->name;

        if (strncmp(other, name, base) == 0 &&
            strcmp(other + base, reverse ? "" : end) == 0 &&
            ((const sonde__builtin_frozen_memory *)t->memory)->pulled) {
            return true;
        }
    }
    return false;
}

static bool is_still(sonde_rule_run *run, const sonde_rule_tensor *tensor)
{
    const sonde__builtin_frozen_memory *memory = tensor->memory;

    return sonde__builtin_frozen_is_weight(run, tensor) && memory->has_before &&
           !memory->told && !memory->moved && !memory->pulled &&
           !takes_one_step(run, tensor);
}

static bool is_cut_off(sonde_rule_run *run, const sonde_rule_tensor *tensor)
{
    return is_still(run, tensor) && !is_other_direction(run, tensor);
}

/* True if every weight of the module whose name is the first characters of that of a
 * tensor, and more than one, is cut off: a teacher, or a copy for targets. */
static bool is_part(sonde_rule_run *run, const char *name, size_t length)
{
    size_t members = 0;

    SONDE__EACH (run, t) {
        if (sonde__builtin_frozen_is_weight(run, t) &&
            strncmp(sonde_rule_info(run, t->id)->name, name, length + 1) == 0) {
            members++;
            if (!is_cut_off(run, t)) {
                return false;
            }
        }
    }
    return members > 1;
}

/* ... of its outermost module. */
static bool is_whole_part(sonde_rule_run *run, const char *name)
{
    return is_part(run, name, strcspn(name, "./"));
}

/* ... of any module that it is in. */
static bool is_some_part(sonde_rule_run *run, const char *name)
{
    for (const char *dot = strpbrk(name, "./"); dot != NULL;
         dot = strpbrk(dot + 1, "./")) {
        if (is_part(run, name, (size_t)(dot - name))) {
            return true;
        }
    }
    return false;
}

/* What outputs tell of a weight's module. */
typedef struct use {
    bool own;    /* an output of it is known */
    bool absent; /* ... only outputs of others are; the network itself may have none */
    bool alone;  /* no output of any module is known */
    bool leaf;   /* outputs of others have gradients, that of this module has none */
} use;

/* True if a name is that of an output of the module whose name has that length. */
static bool is_output(const char *name, const char *module, size_t length)
{
    return strncmp(name, module, length) == 0 &&
           strncmp(name + length, "_output", 7) == 0;
}

static use find_use(const sonde_rule_run *run, const char *name)
{
    const sonde_catalogue *catalogue = sonde__rule_catalogue(run);
    const char *dot = strrchr(name, '.');
    const size_t length = dot != NULL ? (size_t)(dot - name) : 0;
    bool any = false, own = false, pulls = false, pulled = false;

    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *other = sonde_catalogue_info(catalogue, id);

        if (other->role == SONDE_ROLE_OUTPUT || other->role == SONDE_ROLE_ACTIVATION) {
            any = true;
            own = own || is_output(other->name, name, length);
        } else if (other->role == SONDE_ROLE_ACTIVATION_GRADIENT) {
            const char *output = sonde__builtin_parameter_of(other->name).text;

            pulls = true;
            pulled = pulled || (output != NULL && is_output(output, name, length));
        }
    }
    return (use){.own = own,
                 .absent = !own && any && dot != NULL,
                 .alone = !any,
                 .leaf = own && pulls && !pulled};
}

/* True if the weights that are cut off belong to one module; those after trained ones whose
 * outputs nothing that is trained uses do not count. */
static bool is_one_module(sonde_rule_run *run)
{
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    const char *first = NULL;
    size_t length = 0;

    SONDE__EACH (run, t) {
        const char *name = sonde_rule_info(run, t->id)->name;

        if (!is_cut_off(run, t) || is_whole_part(run, name) ||
            (t > state->first_moving && find_use(run, name).leaf)) {
            continue;
        }
        if (first == NULL) {
            const char *end = strrchr(name, '.');

            first = name;
            length = end != NULL ? (size_t)(end - name) + 1 : strlen(name) + 1;
        } else if (strncmp(name, first, length) != 0) {
            return false;
        }
    }
    return true;
}

/* How a weight is cut off. */
typedef enum cut_off {
    MAY_BE_MEANT,
    AFTER,  /* a trained layer */
    ASKED,  /* it requires a gradient, and is used */
    UNUSED, /* perhaps */
    HELD,   /* by an optimizer, which trains others */
    BARREN, /* ... which trains nothing */
    ONE_WAY /* only the other direction of its layer is read */
} cut_off;

/* others: how many, if it stands for others. */
static void report(sonde_rule_run *run, const sonde_rule_tensor *t, size_t others,
                   cut_off how)
{
    static const struct {
        const sonde__rule_terms *terms;
        const char *text;
    } kinds[] = {
        [MAY_BE_MEANT] = {SONDE__SURE(NOTE),
                          "That is right for layers that are frozen on purpose."},
        [AFTER] = {SONDE__SURE(WARNING), "Layers before it are trained."},
        [ASKED] = {SONDE__SURE(WARNING),
                   "It requires a gradient, and other layers are trained."},
        [UNUSED] = {&unused,
                    "That is right if nothing that is trained uses its layer, or "
                    "if it is frozen on purpose."},
        [HELD] = {SONDE__SURE(WARNING),
                  "An optimizer holds it, and trains other layers."},
        [BARREN] = {SONDE__SURE(ERROR), "The optimizer that holds it trains nothing: no "
                                        "loss reaches its weights."},
        [ONE_WAY] = {SONDE__SURE(NOTE), "Only the other direction of this bidirectional "
                                        "layer is read, as by the last of its states."}};
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    char and_others[64] = "";

    ((sonde__builtin_frozen_memory *)t->memory)->cut = true;
    if (others > 0) {
        (void)snprintf(and_others, sizeof and_others, " and %zu other weight%s", others,
                       others == 1 ? "" : "s");
    }
    sonde__rule_report(run, t, kinds[how].terms, "steps_without_gradient",
                       (double)state->compared, (double)state->idle,
                       "Check that it requires a gradient, and that nothing (detach, "
                       "item, numpy, no_grad) cuts it off from the loss.",
                       "It%s never had a gradient and never changed. %s", and_others,
                       kinds[how].text);
}

/* True if these are no weights that were drawn: none is below 0, and they differ. */
static bool is_table_of_constants(const sonde_vitals *w)
{
    enum { LEAST = 8 };

    return w->count >= LEAST && w->min >= 0.0 && w->max > w->min;
}

/* few: the weights that are cut off are few, and of one module. */
static cut_off how_cut_off(sonde_rule_run *run, const sonde_rule_tensor *t, bool few)
{
    static const char end[] = "weight";
    const sonde__builtin_frozen *state = sonde_rule_state(run);
    const sonde_tensor_info *info = sonde_rule_info(run, t->id);
    const sonde__builtin_frozen_memory *memory = t->memory;
    const bool undeclared = memory->gradient == SIZE_MAX, after = t > state->first_moving;
    const use used = find_use(run, info->name);
    const size_t length = strlen(info->name);
    cut_off how = MAY_BE_MEANT;

    if (length < sizeof end - 1 ||
        strcmp(info->name + length - (sizeof end - 1), end) != 0 ||
        sonde__builtin_is_table(run, info) || used.absent ||
        (undeclared && is_table_of_constants(&memory->before))) {
        return MAY_BE_MEANT;
    }
    if (few && after && !is_whole_part(run, info->name)) {
        how = AFTER;
    } else if (used.own && !is_some_part(run, info->name) && !undeclared) {
        how = ASKED;
    }
    return how != MAY_BE_MEANT && after &&
                   (used.leaf || (used.alone && state->pulls && undeclared))
               ? UNUSED
               : how;
}

/* The note that names the optimizer of a weight; NULL: there is none. */
static const char *holder_of(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const sonde__builtin_frozen_memory *memory = t->memory;

    if (t->need != SONDE__FROZEN_PARAMETERS || memory->gradient == SIZE_MAX) {
        return NULL;
    }
    const sonde_rule_tensor *gradient = sonde__builtin_at(run, memory->gradient);
    const char *note = sonde_rule_info(run, gradient->id)->note;

    return strncmp(note, SONDE_NOTE_HELD, sizeof SONDE_NOTE_HELD - 1) == 0 ? note : NULL;
}

/* The weights that an optimizer holds and that are cut off, but not reported one by one. */
typedef struct held {
    const sonde_rule_tensor *first;
    size_t cut, others; /* of these; of its other weights */
} held;

static held survey_holder(sonde_rule_run *run, const char *holder, bool few)
{
    held its = {0};

    SONDE__EACH (run, t) {
        const char *other = holder_of(run, t);

        if (other == NULL || strcmp(other, holder) != 0 ||
            !sonde__builtin_frozen_is_weight(run, t)) {
            continue;
        }
        if (is_cut_off(run, t) && how_cut_off(run, t, few) == MAY_BE_MEANT) {
            its.first = its.first == NULL ? t : its.first;
            its.cut++;
        } else {
            its.others++;
        }
    }
    return its;
}

/* Reports a weight that may be meant if it is the first of those of its optimizer. True if an
 * optimizer holds it. */
static bool report_held(sonde_rule_run *run, const sonde_rule_tensor *t, bool few)
{
    const char *holder = holder_of(run, t);

    if (holder == NULL) {
        return false;
    }
    const held its = survey_holder(run, holder, few);

    if (its.first == t) {
        report(run, t, its.cut - 1, its.others == 0 ? BARREN : HELD);
    }
    return true;
}

/* Whether the program shows that a parameter is frozen on purpose: it requires no gradient,
 * and no optimizer holds it. */
static bool is_frozen(const sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const sonde_program_parameter *known = sonde__builtin_frozen_known(run, t);

    return known != NULL && !known->requires_grad && known->optimizer < 0;
}

void sonde__builtin_frozen_resolve(sonde_rule_run *run)
{
    SONDE__EACH (run, t) {
        sonde__builtin_frozen_memory *memory = t->memory;

        if (memory->cut && memory->moved && memory->pulled) {
            memory->cut = false;
            sonde__rule_resolve(run, t);
        }
    }
}

/* Whether the values of a weight are evenly distributed about 0, as layers draw them: training
 * makes some of them larger. */
static bool is_fresh(const sonde__builtin_frozen_memory *memory)
{
    enum { LEAST = 256 };
    const sonde_vitals *w = &memory->before;

    if (!memory->has_before || w->count < LEAST || sonde__builtin_bad(w) > 0) {
        return false;
    }
    const double deviation = sqrt(w->m2 / (double)w->count);
    const double reach = w->abs_max / deviation; /* sqrt(3) */

    return fabs(w->mean) < 0.2 * deviation && reach > 1.63 && reach < 1.84;
}

void sonde__builtin_frozen_survey(sonde_rule_run *run)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);

    state->weights = state->still = state->fresh = 0;
    state->first_moving = sonde__builtin_end(run);
    SONDE__EACH_OF (run, t, SONDE__FROZEN_PARAMETERS) {
        const sonde__builtin_frozen_memory *memory = t->memory;
        const bool weight = sonde__builtin_frozen_is_weight(run, t);

        state->weights += weight;
        state->still += weight && !memory->moved;
        state->fresh += weight && !memory->moved && is_fresh(memory);
        if (memory->moved && state->first_moving == t_end) {
            state->first_moving = t;
        }
    }
}

static void judge_directions(sonde_rule_run *run)
{
    const sonde_rule_tensor *first = NULL;
    size_t count = 0;

    SONDE__EACH (run, t) {
        if (is_still(run, t) && is_other_direction(run, t)) {
            first = first != NULL ? first : t;
            count++;
        }
    }
    if (first != NULL) {
        report(run, first, count - 1, ONE_WAY);
    }
}

void sonde__builtin_frozen_judge_cut_off(sonde_rule_run *run)
{
    sonde__builtin_frozen *state = sonde_rule_state(run);
    const sonde_rule_tensor *last = NULL;
    size_t cut = 0, meant = 0, trained = 0;

    state->looked = true;
    sonde__builtin_frozen_survey(run);
    SONDE__EACH (run, t) {
        const sonde__builtin_frozen_memory *memory = t->memory;

        trained +=
            sonde__builtin_frozen_is_weight(run, t) && memory->moved && memory->pulled;
        cut += is_cut_off(run, t);
    }
    if (trained == 0) {
        return;
    }
    const bool few = 3 * cut <= state->weights && is_one_module(run);
    SONDE__EACH (run, t) {
        const cut_off how = is_cut_off(run, t) ? how_cut_off(run, t, few) : MAY_BE_MEANT;

        if (how != MAY_BE_MEANT) {
            report(run, t, 0, how);
        } else if (is_cut_off(run, t) && !report_held(run, t, few) &&
                   !is_frozen(run, t)) {
            meant++;
            last = last == NULL || t < state->first_moving ? t : last;
        }
    }
    if (last != NULL) {
        report(run, last, meant - 1, MAY_BE_MEANT);
    }
    judge_directions(run);
}
