/*
 * python_late.c - checks of module tensors for NaN and infinities that wait for the loss.
 *
 * Between looks, every large tensor of the forward pass would have to be read. NaN and
 * infinities that matter reach the loss, and most tensors still exist then: the graph of
 * the backward pass, or the program, keeps them. They are known by weak references; if
 * the loss is finite, none is read. What the first such step found of a tensor when
 * backward() was called settles how it is checked from then on:
 *
 *     KEPT   it existed: it is read if the loss is not finite
 *     AGAIN  it did not, but its module's input did, and the module computes the same from
 *            that again, without other effects (Hooks.again): so it is, if need be
 *     NOW    neither: it is read when the module returns
 *
 * Small tensors, and those that are changed in place later, are read when the module
 * returns. One of these that is bad has all before it read first: the order is that of
 * the forward pass.
 */
#include "extension/python_watch.h"

enum { SMALL = 4096, MOST = 1 << 16 }; /* elements; tensors of a step that wait */

struct sonde__python_late {
    PyObject *ref;   /* weak: the tensor */
    PyObject *input; /* weak: the first tensor that its module got; or NULL */
    long version;    /* of the tensor: changes in place count it up */
    size_t module, number;
    sonde__python_way way;
    bool repeats; /* its module may make it of the input again */
    bool settled; /* backward() was called since */
};

/* --- the list ------------------------------------------------------------------------- */

static void free_late(sonde__python_late *late, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        Py_XDECREF(late[i].ref);
        Py_XDECREF(late[i].input);
    }
    PyMem_Free(late);
}

void sonde__python_forget_late(sonde__python_watch *self)
{
    for (size_t i = 0; i < self->late_count; i++) {
        Py_XDECREF(self->late[i].ref);
        Py_XDECREF(self->late[i].input);
    }
    self->late_count = 0;
}

void sonde__python_free_late(sonde__python_watch *self)
{
    sonde__python_late *late = self->late;
    const size_t count = self->late_count;

    self->late = NULL;
    self->late_count = self->late_capacity = 0;
    free_late(late, count);
}

static bool reserve(sonde__python_watch *self)
{
    const size_t capacity = self->late_capacity == 0 ? 32 : 2 * self->late_capacity;
    sonde__python_late *late = NULL;

    if (self->late_count < self->late_capacity) {
        return true;
    }
    late = capacity <= MOST ? PyMem_Realloc(self->late, capacity * sizeof *late) : NULL;
    if (late != NULL) {
        self->late = late;
        self->late_capacity = capacity;
    }
    return late != NULL;
}

/* The object of a weak reference, a new reference, or NULL. */
static PyObject *alive(PyObject *ref)
{
    PyObject *object = ref != NULL ? PyWeakref_GetObject(ref) : NULL;

    return object != NULL && object != Py_None ? Py_NewRef(object) : NULL;
}

/* Whether the module that is shown got a tensor of that dtype: what autocast made it
 * compute would come out otherwise the next time. */
static bool keeps_dtype(const sonde__python_watch *self, sonde_dtype dtype)
{
    sonde_view view;

    return self->first_input != NULL && sonde__python_view(self->first_input, &view) &&
           view.dtype == dtype;
}

/* Enters a tensor in the list. False: it cannot wait; no exception is set. */
static bool enter(sonde__python_watch *self, size_t module, sonde__python_way way,
                  size_t number, PyObject *tensor, bool kept, sonde_dtype dtype)
{
    sonde__python_late entry = {.module = module, .way = way, .number = number};

    entry.version = reserve(self) ? sonde__python_version(tensor) : -1;
    entry.ref = entry.version >= 0 ? PyWeakref_NewRef(tensor, NULL) : NULL;
    if (entry.ref != NULL && way == SONDE__PYTHON_OUTPUT && self->first_input != NULL) {
        entry.repeats = !kept && keeps_dtype(self, dtype);
        entry.input = PyWeakref_NewRef(self->first_input, NULL);
    }
    PyErr_Clear();
    if (entry.ref == NULL) {
        return false;
    }
    self->late[self->late_count++] = entry;
    return true;
}

bool sonde__python_check_late(sonde__python_watch *self, size_t module,
                              sonde__python_way way, size_t number, PyObject *tensor,
                              const sonde_view *view)
{
    const sonde__python_when when = self->modules[module].tensors[way][number].when;

    if (self->mode != SONDE_MODE_TRAIN || when == SONDE__PYTHON_NOW ||
        sonde_view_count(view) <= SMALL) {
        return false;
    }
    return enter(self, module, way, number, tensor, when == SONDE__PYTHON_KEPT,
                 view->dtype) &&
           when != SONDE__PYTHON_UNKNOWN;
}

/* --- settling ------------------------------------------------------------------------- */

/* What the module of an entry makes of its input again, a new reference; NULL: it does
 * not. */
static PyObject *compute_again(sonde__python_watch *self, const sonde__python_late *entry,
                               bool really)
{
    PyObject *input = entry->repeats ? alive(entry->input) : NULL;
    PyObject *module = input != NULL ? alive(self->modules[entry->module].ref) : NULL;
    PyObject *made = module != NULL && self->hooks != NULL
                         ? PyObject_CallMethod(self->hooks, "again", "OOO", module, input,
                                               really ? Py_True : Py_False)
                         : NULL;

    Py_XDECREF(module);
    Py_XDECREF(input);
    if (made == Py_None || made == NULL) {
        PyErr_Clear();
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}

static sonde__python_shown *shown_at(sonde__python_watch *self,
                                     const sonde__python_late *entry)
{
    if (entry->module >= self->module_count ||
        entry->number >= self->modules[entry->module].capacity[entry->way]) {
        return NULL;
    }
    return &self->modules[entry->module].tensors[entry->way][entry->number];
}

/* How a tensor is checked from now on. */
static sonde__python_when settled(sonde__python_watch *self,
                                  const sonde__python_late *entry,
                                  sonde__python_when before)
{
    PyObject *tensor = alive(entry->ref);
    PyObject *input = tensor == NULL && entry->repeats ? alive(entry->input) : NULL;
    PyObject *again = NULL;
    sonde__python_when when = SONDE__PYTHON_NOW;

    if (tensor != NULL) {
        when =
            sonde__python_version(tensor) == entry->version ? SONDE__PYTHON_KEPT : when;
    } else if (before == SONDE__PYTHON_AGAIN) {
        when = input != NULL ? before : when;
    } else {
        again = compute_again(self, entry, false);
        when = again != NULL ? SONDE__PYTHON_AGAIN : when;
    }
    Py_XDECREF(again);
    Py_XDECREF(input);
    Py_XDECREF(tensor);
    return when;
}

static void settle(sonde__python_watch *self, size_t i)
{
    const sonde__python_late entry = self->late[i]; /* the list may move meanwhile */
    sonde__python_shown *shown = shown_at(self, &entry);
    sonde__python_when when = SONDE__PYTHON_NOW;

    self->late[i].settled = true;
    if (shown == NULL || shown->when == SONDE__PYTHON_NOW) {
        return;
    }
    Py_INCREF(entry.ref);
    Py_XINCREF(entry.input);
    when = settled(self, &entry, shown->when);
    shown = shown_at(self, &entry);
    if (shown != NULL) {
        shown->when = when;
    }
    Py_XDECREF(entry.input);
    Py_DECREF(entry.ref);
}

/* Shows what made a tensor that is not finite, if it is the first one. */
static void see_first(sonde__python_watch *self, const sonde__python_late *entry,
                      PyObject *tensor)
{
    sonde_view view;

    if (!self->was_bad && sonde__python_view(tensor, &view) &&
        sonde__python_is_bad(&view)) {
        PyObject *input = alive(entry->input);

        sonde__python_see_input_first(self, entry->module, input);
        self->was_bad = true;
        Py_XDECREF(input);
    }
}

/* Reads a tensor that waited. */
static void look(sonde__python_watch *self, const sonde__python_late *entry)
{
    PyObject *tensor = alive(entry->ref);
    const sonde__python_shown *shown = NULL;

    if (tensor == NULL) {
        tensor = compute_again(self, entry, true);
    }
    shown = shown_at(self, entry);
    if (tensor != NULL && shown != NULL) {
        see_first(self, entry, tensor);
        shown = shown_at(self, entry);
    }
    if (tensor != NULL && shown != NULL) {
        sonde__python_check(self, shown->slot, tensor);
    }
    Py_XDECREF(tensor);
}

void sonde__python_look_late(sonde__python_watch *self)
{
    sonde__python_late *late = self->late;
    const size_t count = self->late_count;

    self->late = NULL; /* other threads may enter more */
    self->late_count = self->late_capacity = 0;
    for (size_t i = 0; i < count && self->watch != NULL; i++) {
        look(self, &late[i]);
    }
    free_late(late, count);
}

void sonde__python_settle_late(sonde__python_watch *self, bool finite)
{
    for (size_t i = 0; i < self->late_count; i++) {
        if (!self->late[i].settled) {
            settle(self, i);
        }
    }
    if (!finite) {
        sonde__python_look_late(self);
    }
}

void sonde__python_finish_late(sonde__python_watch *self)
{
    for (size_t i = 0; i < self->late_count; i++) {
        if (!self->late[i].settled) {
            sonde__python_look_late(self);
            return;
        }
    }
    sonde__python_forget_late(self);
}
