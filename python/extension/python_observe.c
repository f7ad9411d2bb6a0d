/*
 * python_observe.c - what every part of a watch does: keeps threads apart, shows a value,
 * delivers findings, counts faults.
 *
 * The interpreter's lock is released while the elements of a large tensor are read. A
 * finding is queued where it is found and delivered once `lock` is free, so that a
 * callback may use the watch. A forked child sees nothing: the process that made the
 * watch is the only one that observes and writes.
 */
#include "extension/python_watch.h"

#include <pthread.h>
#include <string.h>

enum { LARGE = 16384 }; /* elements, from which reading costs more than the lock */

typedef sonde__python_watch python_watch;

/* --- locking ------------------------------------------------------------------------ */

static unsigned generation;

static void count_fork(void)
{
    generation++;
}

bool sonde__python_count_forks(void)
{
    return pthread_atfork(NULL, NULL, count_fork) == 0;
}

unsigned sonde__python_generation(void)
{
    return generation;
}

void sonde__python_lock(python_watch *self)
{
    if (PyThread_acquire_lock(self->lock, NOWAIT_LOCK) == 0) {
        Py_BEGIN_ALLOW_THREADS(void) PyThread_acquire_lock(self->lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
}

void sonde__python_unlock(python_watch *self)
{
    PyThread_release_lock(self->lock);
}

/* Rules are called under `lock`, within the end of a step. */
static bool is_judging(const python_watch *self)
{
    return self->judging != 0 && self->judging == PyThread_get_thread_ident();
}

bool sonde__python_is_judging(const python_watch *self)
{
    sonde_diag diag;

    if (!is_judging(self)) {
        return false;
    }
    (void)sonde_diag_set(&diag, SONDE_ESTATE, "watch", NULL,
                         "a rule calls the watch that calls it");
    (void)sonde__python_raise(&diag);
    return true;
}

bool sonde__python_is_live(const python_watch *self)
{
    return self->watch != NULL && self->generation == generation && !is_judging(self);
}

bool sonde__python_is_watching(const python_watch *self)
{
    return !self->paused && sonde__python_is_live(self);
}

bool sonde__python_need_live(const python_watch *self)
{
    sonde_diag diag;

    if (sonde__python_is_live(self)) {
        return true;
    }
    if (sonde__python_is_judging(self)) {
        return false;
    }
    (void)sonde_diag_set(&diag, SONDE_ESTATE, "watch", NULL,
                         self->watch == NULL ? "it is closed"
                                             : "it belongs to the parent process");
    (void)sonde__python_raise(&diag);
    return false;
}

bool sonde__python_is_due(const python_watch *self, uint32_t slot)
{
    return slot != SONDE__PYTHON_NO_SLOT && sonde_watch_wants(self->watch, slot) != 0;
}

bool sonde__python_are_due(const python_watch *self, unsigned roles)
{
    for (; roles != 0; roles &= roles - 1) {
        if (sonde_watch_wants_role(self->watch, (sonde_role)__builtin_ctz(roles)) != 0) {
            return true;
        }
    }
    return false;
}

int sonde__python_view_of(python_watch *self, PyObject *tensor, sonde_view *view,
                          PyObject **held)
{
    PyObject *plain = NULL;

    if (sonde__python_view(tensor, view)) {
        *held = Py_NewRef(tensor);
        return 1;
    }
    plain = PyObject_CallFunctionObjArgs(self->unwrap, tensor, NULL);
    if (plain == NULL) {
        return -1;
    }
    if (plain != Py_None && sonde__python_view(plain, view)) {
        *held = plain;
        return 1;
    }
    Py_DECREF(plain);
    return 0;
}

/* vitals: may receive those of the value; *known is set if so. NULL: they are not wanted. */
static void see(python_watch *self, uint32_t slot, const sonde_view *view,
                sonde_vitals *vitals, bool *known)
{
    sonde__python_lock(self);
    if (sonde_view_count(view) < LARGE) {
        sonde_watch_see(self->watch, slot, view);
    } else {
        Py_BEGIN_ALLOW_THREADS sonde_watch_see(self->watch, slot, view);
        Py_END_ALLOW_THREADS
    }
    if (vitals != NULL) {
        *known = sonde_watch_vitals(self->watch, slot, vitals);
    }
    sonde__python_unlock(self);
}

void sonde__python_show(python_watch *self, uint32_t slot, const sonde_view *view)
{
    if (sonde__python_is_due(self, slot)) {
        see(self, slot, view, NULL, NULL);
    }
}

long sonde__python_version(PyObject *tensor)
{
    static PyObject *name;
    PyObject *version = sonde__python_attribute(tensor, &name, "_version");
    const long number = version != NULL ? PyLong_AsLong(version) : -1;

    Py_XDECREF(version);
    PyErr_Clear();
    return number;
}

/* Whether two views show the same elements in the same order. */
static bool is_same(const sonde_view *a, const sonde_view *b)
{
    const bool same_shape =
        a->rank == b->rank &&
        memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0 &&
        memcmp(a->stride, b->stride, (size_t)a->rank * sizeof a->stride[0]) == 0;

    return a->data == b->data && a->dtype == b->dtype &&
           (same_shape || (sonde_view_count(a) == sonde_view_count(b) &&
                           sonde_view_is_contiguous(a) && sonde_view_is_contiguous(b)));
}

/* Whether the last tensor that was shown is this one, and was not changed since. A
 * reference is held to it: its memory is that of no other tensor. */
static bool is_signed(const python_watch *self, const sonde_view *view, long version)
{
    const sonde__python_signed *last = &self->last_signed;

    return last->tensor != NULL && last->version == version && is_same(&last->view, view);
}

void sonde__python_forget_signed(python_watch *self)
{
    Py_CLEAR(self->last_signed.tensor);
}

void sonde__python_show_signed(python_watch *self, uint32_t slot, PyObject *tensor,
                               const sonde_view *view)
{
    enum { WORTH = 2048 }; /* elements, from which reading costs more than asking */
    const unsigned wants = sonde_watch_wants(self->watch, slot);
    const bool alone = (wants & ~(unsigned)SONDE_HOW_NORMS) == SONDE_HOW_VITALS;
    const long version = (wants & SONDE_HOW_VITALS) != 0 && self->inside > 0 &&
                                 sonde_view_count(view) >= WORTH
                             ? sonde__python_version(tensor)
                             : -1;
    sonde__python_signed now = {.version = version, .view = *view};
    bool known = false;

    if (version < 0 || self->watch == NULL) {
        sonde__python_forget_signed(self);
        sonde__python_show(self, slot, view);
        return;
    }
    if (alone && is_signed(self, view, version)) {
        now.vitals = self->last_signed.vitals; /* other threads may show more meanwhile */
        sonde__python_lock(self);
        sonde_watch_see_vitals(self->watch, slot, view, &now.vitals);
        sonde__python_unlock(self);
        return;
    }
    sonde__python_forget_signed(self);
    see(self, slot, view, &now.vitals, &known);
    if (known && self->inside > 0) {
        now.tensor = Py_NewRef(tensor);
        sonde__python_forget_signed(self);
        self->last_signed = now;
    }
}

void sonde__python_check(python_watch *self, uint32_t slot, PyObject *tensor)
{
    sonde_view view;

    if (slot == SONDE__PYTHON_NO_SLOT || !sonde_watch_checks(self->watch, slot)) {
        return;
    }
    if (sonde__python_view(tensor, &view)) {
        see(self, slot, &view, NULL, NULL);
    } else {
        self->unreadable = true;
    }
}

bool sonde__python_is_bad(const sonde_view *view)
{
    bool bad = false;

    if (sonde_view_count(view) < LARGE) {
        return sonde_watch_is_bad(view);
    }
    Py_BEGIN_ALLOW_THREADS bad = sonde_watch_is_bad(view);
    Py_END_ALLOW_THREADS return bad;
}

void sonde__python_check_view(python_watch *self, uint32_t slot, const sonde_view *view)
{
    if (self->watch != NULL) {
        see(self, slot, view, NULL, NULL);
    }
}

void sonde__python_keep(python_watch *self, uint32_t slot, const sonde_view *view)
{
    sonde__python_number *number = NULL;
    const size_t size = sonde_dtype_size(view->dtype);

    if (sonde_view_count(view) != 1 || size > sizeof number->bytes) {
        sonde__python_show(self, slot, view);
        return;
    }
    if (self->waiting_count == SONDE__PYTHON_WAITING) {
        sonde__python_show_kept(self);
    }
    number = &self->waiting[self->waiting_count++];
    number->slot = slot;
    number->view = *view;
    memcpy(number->bytes, view->data, size);
}

void sonde__python_show_kept(python_watch *self)
{
    sonde__python_number kept[SONDE__PYTHON_WAITING]; /* other threads may keep more */
    const size_t count = self->waiting_count;

    if (count == 0 || !sonde__python_is_live(self)) {
        return;
    }
    memcpy(kept, self->waiting, count * sizeof kept[0]);
    self->waiting_count = 0;
    for (size_t i = 0; i < count && self->watch != NULL; i++) {
        kept[i].view.data = kept[i].bytes;
        sonde__python_show(self, kept[i].slot, &kept[i].view);
    }
}

void sonde__python_set_cleared(sonde__python_watch *self, size_t player, bool cleared)
{
    self->cleared_count += cleared;
    self->cleared_count -= self->players[player].cleared;
    self->players[player].cleared = cleared;
}

/* --- findings and faults ------------------------------------------------------------ */

bool sonde__python_deliver(python_watch *self)
{
    PyObject *list = NULL;
    bool good = true;

    if (self->deliver == NULL || PyList_Size(self->queued) == 0) {
        return true;
    }
    list = self->queued;
    self->queued = PyList_New(0);
    good = self->queued != NULL;
    for (Py_ssize_t i = 0; good && i < PyList_Size(list); i++) {
        PyObject *result =
            PyObject_CallFunctionObjArgs(self->deliver, PyList_GetItem(list, i), NULL);

        good = result != NULL;
        Py_XDECREF(result);
    }
    Py_DECREF(list);
    return good;
}

bool sonde__python_count_fault(python_watch *self)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL, *result = NULL;

    if (self->fault == NULL) {
        return false;
    }
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL) {
        (void)PyException_SetTraceback(value, trace);
    }
    result = PyObject_CallFunctionObjArgs(self->fault, value, NULL);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    Py_XDECREF(result);
    return result != NULL;
}
