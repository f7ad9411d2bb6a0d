/*
 * python_parameter.c - parameters and buffers, their gradients, updates and optimizer
 * state.
 *
 * Parameters are read where their module keeps them, in its dictionary, at every step: a
 * parameter that is replaced is seen, and none is kept alive. Nothing is cached: an
 * exchange costs 20 ns, less than asking whether a pointer is still the same. A tensor is
 * exchanged only if a value of it is due.
 */
#include "extension/python_watch.h"

#include <string.h>

/* The slots of a parameter, and of a buffer the last one alone. */
enum { WEIGHT, GRADIENT, UPDATE, BUFFER, SLOTS };

enum { AT_ONCE = 3 }; /* slots of a parameter that one moment of a step shows, at most */

static const unsigned kinds_of[SLOTS] = {
    [WEIGHT] = SONDE__PYTHON_WEIGHTS,
    [GRADIENT] = SONDE__PYTHON_GRADIENTS,
    [UPDATE] = SONDE__PYTHON_UPDATES,
    [BUFFER] = SONDE__PYTHON_BUFFERS,
};

static const unsigned roles_of[SLOTS] = {
    [WEIGHT] = 1U << SONDE_ROLE_WEIGHT | 1U << SONDE_ROLE_BIAS,
    [GRADIENT] = 1U << SONDE_ROLE_GRADIENT,
    [UPDATE] = 1U << SONDE_ROLE_UPDATE,
    [BUFFER] = 1U << SONDE_ROLE_BUFFER,
};

/* A tensor that an optimizer keeps of a parameter, as {"exp_avg": tensor}. */
typedef struct kept {
    PyObject *key; /* a reference */
    uint32_t slot;
    struct kept *next;
} kept;

struct sonde__python_parameter {
    PyObject *owner, *key; /* the dictionary of its module, and its key there */
    uint32_t slots[SLOTS];
    size_t player; /* the optimizer that holds it */
    long version;  /* at the start of the step, where no optimizer is known */
    kept *state;
};

/* --- adding and dropping ------------------------------------------------------------ */

static bool reserve(sonde__python_watch *self)
{
    const size_t capacity =
        self->parameter_capacity == 0 ? 16 : 2 * self->parameter_capacity;
    sonde__python_parameter *parameters =
        PyMem_Realloc(self->parameters, capacity * sizeof *self->parameters);
    sonde_view *views = NULL;
    uint32_t *seen = NULL;
    PyObject **held = NULL;

    if (parameters != NULL) {
        self->parameters = parameters;
        views = PyMem_Realloc(self->views, AT_ONCE * capacity * sizeof *self->views);
    }
    if (views != NULL) {
        self->views = views;
        seen = PyMem_Realloc(self->seen, AT_ONCE * capacity * sizeof *self->seen);
    }
    if (seen != NULL) {
        self->seen = seen;
        held = PyMem_Realloc(self->held, AT_ONCE * capacity * sizeof *self->held);
    }
    if (held == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    self->held = held;
    self->parameter_capacity = capacity;
    return true;
}

PyObject *sonde__python_add_parameter(PyObject *watch, PyObject *arguments)
{
    sonde__python_watch *self = (sonde__python_watch *)watch;
    sonde__python_parameter *added = NULL;
    PyObject *owner = NULL, *key = NULL;
    int slots[SLOTS] = {-1, -1, -1, -1};
    Py_ssize_t player = 0;

    if (!PyArg_ParseTuple(arguments, "O!Oiiii|n", &PyDict_Type, &owner, &key,
                          &slots[WEIGHT], &slots[GRADIENT], &slots[UPDATE],
                          &slots[BUFFER], &player) ||
        !sonde__python_need_live(self)) {
        return NULL;
    }
    if (self->parameter_count == self->parameter_capacity && !reserve(self)) {
        return NULL;
    }
    added = &self->parameters[self->parameter_count];
    *added = (sonde__python_parameter){
        .owner = Py_NewRef(owner), .key = Py_NewRef(key), .player = (size_t)player};
    for (int i = 0; i < SLOTS; i++) {
        added->slots[i] = slots[i] < 0 ? SONDE__PYTHON_NO_SLOT : (uint32_t)slots[i];
    }
    return PyLong_FromSize_t(self->parameter_count++);
}

PyObject *sonde__python_set_holder(PyObject *watch, PyObject *arguments)
{
    sonde__python_watch *self = (sonde__python_watch *)watch;
    Py_ssize_t index = 0, player = 0;

    if (!PyArg_ParseTuple(arguments, "nn", &index, &player)) {
        return NULL;
    }
    if (index >= 0 && (size_t)index < self->parameter_count && player >= 0) {
        self->parameters[index].player = (size_t)player;
    }
    Py_RETURN_NONE;
}

void sonde__python_forget_parameters(sonde__python_watch *self)
{
    const size_t count = self->parameter_count;

    self->parameter_count = 0;
    for (size_t i = 0; i < count; i++) {
        kept *state = self->parameters[i].state;

        self->parameters[i].state = NULL;
        while (state != NULL) {
            kept *next = state->next;

            Py_DECREF(state->key);
            PyMem_Free(state);
            state = next;
        }
        Py_CLEAR(self->parameters[i].owner);
        Py_CLEAR(self->parameters[i].key);
    }
}

void sonde__python_free_parameters(sonde__python_watch *self)
{
    sonde__python_forget_parameters(self);
    PyMem_Free(self->parameters);
    PyMem_Free(self->views);
    PyMem_Free(self->seen);
    PyMem_Free(self->held);
}

/* --- seeing ------------------------------------------------------------------------- */

/* Takes up one tensor at place n of the arrays, or hands it to its device. */
static bool gather(sonde__python_watch *self, PyObject *tensor, uint32_t slot, int kind,
                   size_t *n)
{
    int found = 0;

    if (self->device != NULL) {
        return sonde__python_put_off(self, slot, tensor,
                                     kind == UPDATE ? SONDE__PYTHON_CHANGING
                                                    : SONDE__PYTHON_OF_MANY) > 0;
    }
    found = sonde__python_view_of(self, tensor, &self->views[*n], &self->held[*n]);
    if (found == 1) {
        self->seen[(*n)++] = slot;
    }
    return found >= 0;
}

static bool gather_gradient(sonde__python_watch *self, PyObject *parameter, uint32_t slot,
                            size_t *n)
{
    static PyObject *name;
    PyObject *gradient = sonde__python_attribute(parameter, &name, "grad");
    const bool good = gradient != NULL &&
                      (gradient == Py_None || gather(self, gradient, slot, GRADIENT, n));

    Py_XDECREF(gradient); /* `held` keeps it */
    return good;
}

static bool gather_parameter(sonde__python_watch *self,
                             const sonde__python_parameter *parameter, unsigned kinds,
                             size_t *n)
{
    PyObject *value = NULL;
    bool good = true;

    for (int i = 0; good && i < SLOTS; i++) {
        const uint32_t slot = parameter->slots[i];

        if ((kinds & kinds_of[i]) == 0 || !sonde__python_is_due(self, slot)) {
            continue;
        }
        if (value == NULL) {
            value = PyDict_GetItemWithError(parameter->owner, parameter->key);
            if (value == NULL || value == Py_None) {
                return PyErr_Occurred() == NULL;
            }
        }
        good = i == GRADIENT ? gather_gradient(self, value, slot, n)
                             : gather(self, value, slot, i, n);
    }
    return good;
}

/* Shows n gathered values; on a device, computes them. */
static bool show_gathered(sonde__python_watch *self, size_t n)
{
    if (n > 0) {
        Py_BEGIN_ALLOW_THREADS sonde_watch_see_all(self->watch, self->seen, self->views,
                                                   n);
        Py_END_ALLOW_THREADS
    }
    return sonde__python_compute(self, 0);
}

static void release_gathered(sonde__python_watch *self, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        Py_DECREF(self->held[i]);
    }
}

bool sonde__python_see_parameters(sonde__python_watch *self, unsigned kinds)
{
    size_t n = 0;
    bool good = true;

    if (!sonde__python_is_live(self)) {
        return true;
    }
    sonde__python_show_kept(self);
    for (int i = 0; i < SLOTS; i++) {
        kinds &= sonde__python_are_due(self, roles_of[i]) ? ~0U : ~kinds_of[i];
    }
    if (kinds == 0) {
        return true;
    }
    sonde__python_lock(self);
    for (size_t i = 0; good && i < self->parameter_count; i++) {
        good = gather_parameter(self, &self->parameters[i], kinds, &n);
    }
    good = show_gathered(self, n) && good;
    sonde__python_unlock(self);
    release_gathered(self, n);
    return good;
}

/* --- changes by the program itself -------------------------------------------------- */

/* How often a parameter that has a gradient was changed in place; -1: it has none. */
static long version_of(const sonde__python_parameter *parameter)
{
    PyObject *value = parameter->slots[GRADIENT] != SONDE__PYTHON_NO_SLOT
                          ? PyDict_GetItemWithError(parameter->owner, parameter->key)
                          : NULL;

    PyErr_Clear();
    return value != NULL ? sonde__python_version(value) : -1;
}

void sonde__python_note_versions(sonde__python_watch *self)
{
    for (size_t i = 0; i < self->parameter_count; i++) {
        self->parameters[i].version = version_of(&self->parameters[i]);
    }
}

bool sonde__python_have_moved(const sonde__python_watch *self)
{
    for (size_t i = 0; i < self->parameter_count; i++) {
        if (version_of(&self->parameters[i]) != self->parameters[i].version) {
            return true;
        }
    }
    return false;
}

/* --- gradients ---------------------------------------------------------------------- */

/* Which gradients: of a player, and of those that no optimizer holds; of all. */
enum { ALL_PLAYERS = -1 };

static bool is_chosen(const sonde__python_watch *self, size_t player, Py_ssize_t chosen)
{
    if (player > self->optimizer_count) {
        return false;
    }
    return chosen != ALL_PLAYERS && player != 0 ? player == (size_t)chosen
                                                : !self->players[player].shown;
}

static bool gather_gradients(sonde__python_watch *self, Py_ssize_t chosen, size_t *n)
{
    bool good = true;

    for (size_t i = 0; good && self->players != NULL && i < self->parameter_count; i++) {
        if (is_chosen(self, self->parameters[i].player, chosen)) {
            good =
                gather_parameter(self, &self->parameters[i], SONDE__PYTHON_GRADIENTS, n);
        }
    }
    return good;
}

/* Whether the gradients that are gathered are all 0: they were cleared. known: their
 * vital signs are in memory. */
static bool are_zero(const sonde__python_watch *self, size_t n, bool known)
{
    sonde_vitals vitals;

    for (size_t i = 0; i < n; i++) {
        if (!known) {
            sonde_vitals_of(&self->views[i], &vitals);
        } else if (!sonde_watch_vitals(self->watch, self->seen[i], &vitals)) {
            return false;
        }
        if (sonde_vitals_are_norms(&vitals)
                ? vitals.abs_max > 0.0 || vitals.nan + vitals.pos_inf + vitals.neg_inf > 0
                : vitals.zero != vitals.count) {
            return false;
        }
    }
    return true;
}

/* Shows n gathered gradients, unless they were cleared before the step. */
static bool show_gradients(sonde__python_watch *self, size_t player, size_t n)
{
    const bool cleared =
        self->players != NULL && self->players[player].looked && are_zero(self, n, false);
    const bool good = cleared || show_gathered(self, n);

    if (self->players != NULL && self->went_back) {
        sonde__python_set_cleared(self, player, cleared || are_zero(self, n, true));
    }
    return good;
}

bool sonde__python_see_gradients(sonde__python_watch *self, size_t player)
{
    size_t n = 0;
    bool good = true;

    if (!sonde__python_is_live(self) || self->players == NULL) {
        return true;
    }
    sonde__python_show_kept(self);
    if (!sonde__python_are_due(self, roles_of[GRADIENT]) || self->players[player].early) {
        return true;
    }
    sonde__python_lock(self);
    good = gather_gradients(self, (Py_ssize_t)player, &n);
    if (self->device != NULL) {
        good = good && sonde__python_compute(self, player);
    } else {
        good = show_gradients(self, player, n) && good;
    }
    if (self->players != NULL) {
        self->players[player].shown = self->players[0].shown = true;
    }
    sonde__python_unlock(self);
    release_gathered(self, n);
    return good;
}

bool sonde__python_see_all_gradients(sonde__python_watch *self)
{
    size_t n = 0;
    bool good = true;

    if (!sonde__python_is_live(self) ||
        !sonde__python_are_due(self, roles_of[GRADIENT])) {
        return true;
    }
    sonde__python_show_kept(self);
    sonde__python_lock(self);
    good = gather_gradients(self, ALL_PLAYERS, &n);
    good = show_gathered(self, n) && good;
    sonde__python_unlock(self);
    release_gathered(self, n);
    return good;
}

bool sonde__python_see_cleared(sonde__python_watch *self)
{
    size_t n = 0;
    bool good = true;

    if (!sonde__python_is_live(self) ||
        !sonde__python_are_due(self, roles_of[GRADIENT])) {
        return true;
    }
    sonde__python_lock(self);
    for (size_t i = 0; good && self->players != NULL && i < self->parameter_count; i++) {
        const size_t player = self->parameters[i].player;

        if (player <= self->optimizer_count && self->players[player].cleared &&
            !self->players[player].stepped) {
            self->players[player].looked = true;
            good =
                gather_parameter(self, &self->parameters[i], SONDE__PYTHON_GRADIENTS, &n);
        }
    }
    good = show_gathered(self, n) && good;
    sonde__python_unlock(self);
    release_gathered(self, n);
    return good;
}

/* --- the state of optimizers -------------------------------------------------------- */

/* The slot of a tensor in an optimizer's state; the hooks declare a new one. */
static kept *find_state(sonde__python_watch *self, size_t index, PyObject *key,
                        PyObject *tensor, PyObject *optimizer)
{
    PyObject *made = NULL;
    long slot = 0;
    kept *state = self->parameters[index].state;

    for (; state != NULL; state = state->next) {
        if (state->key == key) {
            return state;
        }
    }
    state = PyMem_Calloc(1, sizeof *state);
    if (state == NULL) {
        return (kept *)(void *)PyErr_NoMemory();
    }
    *state = (kept){Py_NewRef(key), SONDE__PYTHON_NO_SLOT, self->parameters[index].state};
    self->parameters[index].state = state; /* not declared again if that fails */
    made = PyObject_CallMethod(self->hooks, "declare_state", "nOOO", (Py_ssize_t)index,
                               key, tensor, optimizer);
    slot = made != NULL ? PyLong_AsLong(made) : -1;
    Py_XDECREF(made);
    if (slot >= 0) {
        state->slot = (uint32_t)slot;
    }
    return PyErr_Occurred() == NULL ? state : NULL;
}

static bool see_item(sonde__python_watch *self, size_t index, PyObject *key,
                     PyObject *value, PyObject *optimizer)
{
    PyObject *held = NULL;
    const kept *state = NULL;
    sonde_view view;
    int found = 0;

    if (!sonde__python_is_float(value)) {
        return true;
    }
    state = find_state(self, index, key, value, optimizer);
    if (state == NULL) {
        return false;
    }
    if (!sonde__python_is_due(self, state->slot)) {
        return true;
    }
    found = sonde__python_put_off(self, state->slot, value, SONDE__PYTHON_OF_MANY);
    if (found != 0) {
        return found > 0;
    }
    found = sonde__python_view_of(self, value, &view, &held);
    if (found == 1) {
        sonde__python_show(self, state->slot, &view);
        Py_DECREF(held);
    }
    return found >= 0;
}

/* What an optimizer keeps of a parameter: states[parameter], a new reference, or NULL. Its
 * states lie mostly in the order of parameters: *next is where the one after the last that
 * was found is. Asking for a key calls Python, for the hash of a tensor. */
static PyObject *state_of(PyObject *states, PyObject *parameter, Py_ssize_t *next)
{
    Py_ssize_t place = *next;
    PyObject *key = NULL, *state = NULL;

    if (PyDict_Next(states, &place, &key, &state) && key == parameter) {
        *next = place;
    } else {
        state = PyDict_GetItemWithError(states, parameter);
    }
    return state != NULL ? Py_NewRef(state) : NULL;
}

/* Shows the tensors of a parameter's state. Meanwhile a dictionary may change: what is
 * shown is held. */
static bool see_items(sonde__python_watch *self, size_t index, PyObject *state,
                      PyObject *optimizer)
{
    PyObject *key = NULL, *value = NULL;
    Py_ssize_t place = 0;
    bool good = true;

    while (good && PyDict_Next(state, &place, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        good = see_item(self, index, key, value, optimizer);
        Py_DECREF(key);
        Py_DECREF(value);
    }
    return good;
}

bool sonde__python_see_state(sonde__python_watch *self, PyObject *optimizer)
{
    PyObject *states = PyObject_GetAttrString(optimizer, "state");
    Py_ssize_t next = 0;
    bool good = states != NULL;

    for (size_t i = 0; good && PyDict_Check(states) && i < self->parameter_count; i++) {
        PyObject *value =
            PyDict_GetItemWithError(self->parameters[i].owner, self->parameters[i].key);
        PyObject *state =
            value != NULL && value != Py_None &&
                    self->parameters[i].slots[BUFFER] == SONDE__PYTHON_NO_SLOT
                ? state_of(states, value, &next)
                : NULL;

        good = PyErr_Occurred() == NULL && (state == NULL || !PyDict_Check(state) ||
                                            see_items(self, i, state, optimizer));
        Py_XDECREF(state);
    }
    Py_XDECREF(states);
    return good && sonde__python_compute(self, 0);
}
