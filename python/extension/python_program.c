/*
 * python_program.c - which steps python/sonde/program records.
 *
 * The outline of a step is a hash of its events: the roots that are called and how, the
 * places that call backward, optimizers, what clears, clips or scales gradients; calls of
 * one root in a row are one, since a loop may make any number of them. The first
 * steps of a mode are recorded, and then, for each outline that is new, one: the step
 * itself if the events before its forward pass are new, or else the step after it.
 *
 * Between these, a step at which tensors are due that are known from the program looks for
 * them (program/observed.py). Events between two steps belong to the step of training that
 * follows.
 */
#include "extension/python_watch.h"

#include <string.h>

enum { FIRST_TRAIN = 2, FIRST_OTHER = 1, FIRST_DISTANCE = 64 };
/* A look costs up to a third of a small step: it is taken at the first steps of training, at
 * the first ones of each evaluation, and then seldom. */
enum { LOOK_FIRST = 20, LOOK_EVALUATED = 8, LOOK_EVERY = 50 };
enum { BATCH = 3 }; /* among notes: a batch arrived; it is no part of the outline */
static const uint64_t BEGUN = UINT64_C(0x62656775), EVALUATED = UINT64_C(0x6576616c),
                      NOTED = UINT64_C(0x6e6f7465);

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* Whether new outlines may take the place of known ones: at a step and the next one, at
 * distances that double, from when all places are taken. */
static bool may_forget(sonde__python_programs *programs)
{
    if (programs->distance == 0) {
        programs->distance = FIRST_DISTANCE;
        programs->next_late = programs->steps + programs->distance;
    } else if (programs->steps >= programs->next_late) {
        programs->distance *= 2;
        programs->next_late = programs->steps + programs->distance;
        programs->late_until = programs->steps + 1;
    }
    return programs->steps <= programs->late_until && programs->late_until > 0;
}

/* Adds an outline to those that are known. True: it was not, and there is room. */
static bool learn(sonde__python_programs *programs, uint64_t outline)
{
    for (size_t i = 0; i < programs->known_count; i++) {
        if (programs->known[i] == outline) {
            return false;
        }
    }
    if (programs->known_count < SONDE__PYTHON_OUTLINES) {
        programs->known[programs->known_count++] = outline;
    } else if (may_forget(programs)) {
        programs->known[programs->forgotten++ % SONDE__PYTHON_OUTLINES] = outline;
    } else {
        return false;
    }
    return true;
}

/* Calls a method of program.Programs. */
static bool tell(sonde__python_watch *self, const char *method, PyObject *a, PyObject *b)
{
    PyObject *programs = PyObject_GetAttrString(self->hooks, "programs");
    PyObject *result = NULL;

    if (programs != NULL && b != NULL) {
        result = PyObject_CallMethod(programs, method, "OO", a, b);
    } else if (programs != NULL && a != NULL) {
        result = PyObject_CallMethod(programs, method, "(O)", a);
    } else if (programs != NULL) {
        result = PyObject_CallMethod(programs, method, NULL);
    }
    Py_XDECREF(programs);
    Py_XDECREF(result);
    return result != NULL || sonde__python_count_fault(self);
}

void sonde__python_outline(sonde__python_watch *self, uint64_t event, uint64_t detail)
{
    const int mode = self->mode < 0 ? SONDE_MODE_TRAIN : self->mode;
    sonde__python_programs *programs = &self->programs;
    const uint64_t now = mix(mix(BEGUN, event), detail);

    if (now != programs->last[mode]) {
        programs->outline[mode] = mix(mix(programs->outline[mode], event), detail);
    }
    programs->last[mode] = now;
}

/* Whether the step of a mode that is to come is recorded, as far as is known. */
static bool is_wanted(const sonde__python_programs *programs, int mode)
{
    return programs->wanted[mode] ||
           programs->recorded[mode] <
               (mode == SONDE_MODE_TRAIN ? FIRST_TRAIN : FIRST_OTHER);
}

/* A batch arrived; of several in a row, the last one counts. As note. */
static uint64_t note_batch(sonde__python_watch *self)
{
    sonde__python_programs *programs = &self->programs;
    const size_t count = programs->note_count;

    if (self->mode == SONDE_MODE_TRAIN) {
        return programs->on;
    }
    if (count < SONDE__PYTHON_NOTES &&
        (count == 0 || programs->notes[count - 1] != BATCH)) {
        programs->notes[programs->note_count++] = BATCH;
    }
    return is_wanted(programs, SONDE_MODE_TRAIN) ? BATCH : 0;
}

/* An event between two steps of training, or within one. Its outline if it is new, 1 if
 * it is recorded now, else 0. */
static uint64_t note(sonde__python_watch *self, uint64_t event, uint64_t detail)
{
    sonde__python_programs *programs = &self->programs;
    uint64_t *outline = &programs->outline[SONDE_MODE_TRAIN];

    *outline = mix(mix(*outline, event), detail);
    programs->last[SONDE_MODE_TRAIN] = 0;
    if (self->mode == SONDE_MODE_TRAIN) {
        return programs->on;
    }
    if (programs->note_count < SONDE__PYTHON_NOTES) {
        programs->notes[programs->note_count++] = *outline;
    }
    return learn(programs, mix(*outline, NOTED)) ? *outline | 2U : 0;
}

/* An evaluation: the first one with gradients and the first one without, after a step of
 * training. */
static bool note_evaluation(sonde__python_watch *self)
{
    const int grad = sonde__python_keeps_gradients(self);
    PyObject *kind = NULL, *number = NULL;
    uint64_t outline = 0;
    bool good = grad >= 0;

    if (grad < 0 || self->programs.evaluated[grad]) {
        return good;
    }
    outline = note(self, EVALUATED, (uint64_t)grad);
    self->programs.evaluated[grad] = true;
    if (outline > 1) {
        kind = PyUnicode_FromString("evaluation");
        number = PyLong_FromUnsignedLongLong(outline);
        good = kind != NULL && number != NULL && tell(self, "remember", kind, number);
        Py_XDECREF(number);
        Py_XDECREF(kind);
    }
    return good;
}

/* Whether the step that begins is one at which this looks; the program may have said how
 * often its activations are observed. */
static bool looks_at(const sonde__python_programs *programs, int mode)
{
    const uint64_t step = programs->begun[mode];

    return programs->looks_always || step % LOOK_EVERY == 0 ||
           step < (mode == SONDE_MODE_TRAIN ? LOOK_FIRST : LOOK_EVALUATED);
}

/* Whether tensors that are known from the program are due at the step that begins. */
static bool is_any_due(const sonde__python_watch *self, int mode)
{
    const sonde__python_programs *programs = &self->programs;

    if (!looks_at(programs, mode)) {
        return false;
    }
    for (size_t i = mode == SONDE_MODE_TRAIN ? programs->evaluated_count : 0;
         i < programs->slot_count; i++) {
        if (sonde__python_is_due(self, programs->slots[i])) {
            return true;
        }
    }
    return false;
}

/* The number of a step among those of its mode, for program.Programs. */
static PyObject *step_of(const sonde__python_watch *self, int mode)
{
    return PyLong_FromUnsignedLongLong(self->programs.begun[mode]);
}

static bool look(sonde__python_watch *self, int mode)
{
    PyObject *number = PyLong_FromLong(mode), *step = step_of(self, mode);
    bool good = false;

    self->programs.looking = true;
    good = number != NULL && step != NULL && tell(self, "look", number, step);
    Py_XDECREF(step);
    Py_XDECREF(number);
    return good;
}

PyObject *sonde__python_look_for(PyObject *watch, PyObject *arguments)
{
    sonde__python_programs *programs = &((sonde__python_watch *)watch)->programs;
    const size_t count = programs->slot_count;
    uint32_t *slots = NULL;
    unsigned int slot = 0;
    int evaluated = 0, always = 0;

    if (!PyArg_ParseTuple(arguments, "Ipp", &slot, &evaluated, &always)) {
        return NULL;
    }
    slots = PyMem_Realloc(programs->slots, (count + 1) * sizeof *slots);
    if (slots == NULL) {
        return PyErr_NoMemory();
    }
    slots[count] = slot;
    if (evaluated != 0) {
        slots[count] = slots[programs->evaluated_count];
        slots[programs->evaluated_count++] = slot;
    }
    programs->slots = slots;
    programs->slot_count++;
    programs->looks_always = always != 0;
    Py_RETURN_NONE;
}

/* Begins a recording, with the events since the step before. */
static bool record(sonde__python_watch *self, int mode)
{
    sonde__python_programs *programs = &self->programs;
    const size_t count = mode == SONDE_MODE_TRAIN ? programs->note_count : 0;
    PyObject *notes = PyList_New(0), *number = PyLong_FromLong(mode);
    PyObject *step = step_of(self, mode);
    bool good = notes != NULL && number != NULL && step != NULL &&
                PyList_Append(notes, step) == 0;

    for (size_t i = 0; good && i < count; i++) {
        PyObject *one = PyLong_FromUnsignedLongLong(programs->notes[i] | 2U);

        good = one != NULL && PyList_Append(notes, one) == 0;
        Py_XDECREF(one);
    }
    programs->on = true;
    good = good && tell(self, "begin", number, notes);
    Py_XDECREF(step);
    Py_XDECREF(notes);
    Py_XDECREF(number);
    return good;
}

static bool compare(sonde__python_watch *self)
{
    PyObject *step = step_of(self, SONDE_MODE_TRAIN);
    const bool good = step != NULL && tell(self, "compare", step, NULL);

    Py_XDECREF(step);
    return good;
}

PyObject *sonde__python_compare_at(PyObject *watch, PyObject *step)
{
    const unsigned long long at = PyLong_AsUnsignedLongLong(step);

    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    ((sonde__python_watch *)watch)->programs.compare_at = at;
    Py_RETURN_NONE;
}

bool sonde__python_program_begin(sonde__python_watch *self, int mode)
{
    sonde__python_programs *programs = &self->programs;
    bool good = true;

    if (self->hooks == NULL) {
        return true;
    }
    if (mode != SONDE_MODE_TRAIN && !(programs->evaluated[0] && programs->evaluated[1])) {
        good = note_evaluation(self);
    }
    programs->wanted[mode] =
        learn(programs, mix(programs->outline[mode] + (uint64_t)mode, BEGUN)) ||
        is_wanted(programs, mode);
    if (good && programs->wanted[mode]) {
        good = record(self, mode);
    } else if (good && is_any_due(self, mode)) {
        good = look(self, mode);
    }
    if (good && mode == SONDE_MODE_TRAIN &&
        programs->begun[mode] >= programs->compare_at) {
        good = compare(self);
    }
    programs->begun[mode]++;
    programs->steps++;
    if (mode == SONDE_MODE_TRAIN) {
        memset(programs->evaluated, 0, sizeof programs->evaluated);
        programs->note_count = 0;
        memset(programs->begun + SONDE_MODE_TRAIN + 1, 0,
               sizeof programs->begun - sizeof programs->begun[0]);
    }
    return good;
}

bool sonde__python_program_end(sonde__python_watch *self)
{
    sonde__python_programs *programs = &self->programs;
    const int mode = self->mode;
    const bool was_on = programs->on;
    const uint64_t outline = programs->outline[mode] + (uint64_t)mode;
    const bool is_new = learn(programs, outline);
    const bool was_told = was_on || programs->looking;

    programs->outline[mode] = programs->last[mode] = 0;
    programs->on = programs->looking = false;
    programs->wanted[mode] = (is_new && !was_on) || programs->asked;
    programs->asked = false;
    programs->recorded[mode] += was_on;
    return !was_told || self->hooks == NULL ||
           tell(self, "end",
                mode == SONDE_MODE_TRAIN && is_wanted(programs, mode) ? Py_True
                                                                      : Py_False,
                NULL);
}

bool sonde__python_program_tell(sonde__python_watch *self, const char *method,
                                PyObject *subject, PyObject *more)
{
    return (!self->programs.on && !self->programs.looking) || self->hooks == NULL ||
           tell(self, method, subject, more);
}

bool sonde__python_program_drop(sonde__python_watch *self)
{
    PyMem_Free(self->programs.slots);
    self->programs = (sonde__python_programs){0};
    return self->hooks == NULL || tell(self, "drop", NULL, NULL);
}

PyObject *sonde__python_record_next(PyObject *watch, PyObject *unused)
{
    (void)unused;
    ((sonde__python_watch *)watch)->programs.asked = true;
    Py_RETURN_NONE;
}

PyObject *sonde__python_record_program(PyObject *watch, PyObject *text)
{
    sonde__python_watch *self = (sonde__python_watch *)watch;
    sonde_diag diag = {0};
    Py_ssize_t length = 0;
    const char *data = NULL;
    sonde_err err = SONDE_OK;

    if (!PyUnicode_Check(text)) {
        return PyErr_Format(PyExc_TypeError, "program: %R (expected a str)", text);
    }
    data = PyUnicode_AsUTF8AndSize(text, &length);
    if (data == NULL || !sonde__python_need_live(self)) {
        return NULL;
    }
    sonde__python_lock(self);
    err = sonde_watch_program_text(self->watch, data, (size_t)length, &diag);
    sonde__python_unlock(self);
    return err != SONDE_OK ? sonde__python_raise(&diag) : Py_NewRef(Py_None);
}

PyObject *sonde__python_note(PyObject *watch, PyObject *arguments)
{
    sonde__python_watch *self = (sonde__python_watch *)watch;
    const char *kind = NULL;
    unsigned int number = 0;
    uint64_t outline = 0;

    if (!PyArg_ParseTuple(arguments, "sI", &kind, &number)) {
        return NULL;
    }
    if (sonde__python_is_watching(self) && self->hooks != NULL) {
        outline = strcmp(kind, "batch") == 0
                      ? note_batch(self)
                      : note(self, (uint64_t)(unsigned char)kind[0] << 8 | strlen(kind),
                             number);
    }
    return PyLong_FromUnsignedLongLong(outline);
}
