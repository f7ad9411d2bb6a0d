/*
 * python_device.c - values on another device: their vital signs are computed there and
 * arrive some steps later (python/sonde/device.py).
 *
 * The object `device` of a watch takes every value of a step in order. At its end the
 * step is left (sonde_watch_leave_step), and once its rows are in this machine's memory,
 * between two other steps, the watch returns to it, shows them and lets the rules judge.
 */
#include "extension/python_watch.h"

PyObject *sonde__python_set_device(PyObject *watch, PyObject *device)
{
    sonde__python_watch *self = (sonde__python_watch *)watch;

    Py_XDECREF(self->device);
    self->device = device != Py_None ? Py_NewRef(device) : NULL;
    Py_RETURN_NONE;
}

/* --- a step on the device ----------------------------------------------------------- */

static bool done(PyObject *result)
{
    Py_XDECREF(result);
    return result != NULL;
}

int sonde__python_put_off(sonde__python_watch *self, uint32_t slot, PyObject *tensor,
                          sonde__python_part part)
{
    const unsigned wants = sonde_watch_wants(self->watch, slot);

    if (self->device == NULL) {
        return 0;
    }
    return done(PyObject_CallMethod(self->device, "take", "IIOi", (unsigned)slot, wants,
                                    tensor, (int)part))
               ? 1
               : -1;
}

bool sonde__python_compute(sonde__python_watch *self, size_t player)
{
    const bool back = self->went_back && self->players != NULL && player > 0;

    return self->device == NULL ||
           done(PyObject_CallMethod(
               self->device, "compute", "nO", (Py_ssize_t)(back ? player : 0),
               back && self->players[player].looked ? Py_True : Py_False));
}

bool sonde__python_leave(sonde__python_watch *self)
{
    const sonde_coordinate at = sonde_watch_where(self->watch);
    const bool good =
        done(PyObject_CallMethod(self->device, "end", "iLL", (int)at.mode,
                                 (long long)at.global_step, (long long)at.mode_step));

    sonde__python_lock(self);
    if (self->watch != NULL) {
        sonde_watch_leave_step(self->watch);
    }
    sonde__python_unlock(self);
    return good;
}

bool sonde__python_poll(sonde__python_watch *self)
{
    return self->device == NULL || done(PyObject_CallMethod(self->device, "poll", NULL));
}

/* --- a step that returns ------------------------------------------------------------ */

/* The dtype and shape of a tensor whose memory is elsewhere. */
static bool read_view(const char *dtype, PyObject *shape, sonde_view *view)
{
    sonde_diag diag = {0};
    const Py_ssize_t rank = PyTuple_Size(shape);

    *view = (sonde_view){0};
    if (rank < 0 || rank > SONDE_MAX_DIMS) {
        (void)sonde__python_bad_value("shape", "at most 8 dimensions", "more");
        return false;
    }
    if (sonde_dtype_parse(dtype, &view->dtype, &diag) != SONDE_OK) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    view->rank = (int)rank;
    for (int64_t i = rank - 1, stride = 1; i >= 0; i--) {
        view->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, (Py_ssize_t)i));
        view->stride[i] = stride;
        stride *= view->shape[i];
    }
    return PyErr_Occurred() == NULL;
}

/* (full, count, nan, pos_inf, neg_inf, zero, min ... sum) */
static bool read_signs(PyObject *row, sonde_vitals *v)
{
    double counts[5];
    int full = 0;

    if (!PyArg_ParseTuple(row, "pdddddddddddddd", &full, &counts[0], &counts[1],
                          &counts[2], &counts[3], &counts[4], &v->min, &v->max,
                          &v->abs_min, &v->abs_max, &v->mean, &v->m2, &v->l1, &v->sumsq,
                          &v->sum)) {
        return false;
    }
    v->count = (uint64_t)counts[0];
    v->nan = (uint64_t)counts[1];
    v->pos_inf = (uint64_t)counts[2];
    v->neg_inf = (uint64_t)counts[3];
    v->zero = (uint64_t)counts[4];
    if (full == 0) {
        sonde_norms_keep(v);
    }
    return true;
}

/* (slot, dtype, shape, signs, value): the vital signs, or the value itself. */
static bool see_row(sonde__python_watch *self, PyObject *row)
{
    PyObject *shape = NULL, *signs = NULL, *value = NULL;
    const char *dtype = NULL;
    unsigned slot = 0;
    sonde_vitals vitals;
    sonde_view view;

    if (!PyArg_ParseTuple(row, "IsO!OO", &slot, &dtype, &PyTuple_Type, &shape, &signs,
                          &value)) {
        return false;
    }
    if (signs == Py_None) {
        if (sonde__python_view(value, &view)) {
            sonde_watch_see(self->watch, slot, &view);
        }
        return true;
    }
    if (!read_view(dtype, shape, &view) || !read_signs(signs, &vitals)) {
        return false;
    }
    sonde_watch_see_vitals(self->watch, slot, &view, &vitals);
    return true;
}

static bool see_scalar(sonde__python_watch *self, PyObject *scalar)
{
    const char *name = NULL;
    sonde_diag diag = {0};
    double value = 0.0;

    if (!PyArg_ParseTuple(scalar, "sd", &name, &value)) {
        return false;
    }
    if (sonde_watch_scalar(self->watch, name, value, &diag) != SONDE_OK) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    return true;
}

PyObject *sonde__python_return_to(PyObject *watch, PyObject *arguments)
{
    sonde__python_watch *self = (sonde__python_watch *)watch;
    PyObject *rows = NULL, *scalars = NULL;
    long long global_step = 0, mode_step = 0;
    sonde_coordinate at = {0};
    int mode = 0;
    bool good = true;

    if (!PyArg_ParseTuple(arguments, "iLLO!O!", &mode, &global_step, &mode_step,
                          &PyList_Type, &rows, &PyList_Type, &scalars) ||
        !sonde__python_need_live(self)) {
        return NULL;
    }
    at.mode = (sonde_mode)mode;
    at.global_step = global_step;
    at.mode_step = mode_step;
    sonde__python_lock(self);
    sonde_watch_return_to(self->watch, &at);
    for (Py_ssize_t i = 0; good && i < PyList_Size(rows); i++) {
        good = see_row(self, PyList_GetItem(rows, i));
    }
    for (Py_ssize_t i = 0; good && i < PyList_Size(scalars); i++) {
        good = see_scalar(self, PyList_GetItem(scalars, i));
    }
    Py_BEGIN_ALLOW_THREADS sonde_watch_end_step(self->watch);
    Py_END_ALLOW_THREADS sonde__python_unlock(self);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyObject *sonde__python_note_cleared(PyObject *watch, PyObject *arguments)
{
    sonde__python_watch *self = (sonde__python_watch *)watch;
    Py_ssize_t player = 0;
    int cleared = 0;

    if (!PyArg_ParseTuple(arguments, "np", &player, &cleared)) {
        return NULL;
    }
    if (self->players != NULL && player >= 0 && (size_t)player <= self->optimizer_count) {
        sonde__python_set_cleared(self, (size_t)player, cleared != 0);
    }
    Py_RETURN_NONE;
}
