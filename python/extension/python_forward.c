/*
 * python_forward.c - inputs and outputs of modules, and the gradients of the outputs.
 *
 * A module is known by its address and a weak reference. Its tensors are numbered from 0
 * in each forward pass of a root: a module that is called again counts on. A tensor's slot
 * is declared when it is seen first. A container returns the tensor that its last module
 * returned: it is shown once; as the output of a root, which has its own role, once more.
 *
 * Module 0 is the program itself: its inputs are those of the roots.
 */
#include "extension/python_watch.h"

#include <string.h>

/* --- tensors ------------------------------------------------------------------------ */

static sonde__python_shown *find_tensor(sonde__python_watch *self, size_t index,
                                        sonde__python_way way, size_t number)
{
    sonde__python_module *module = &self->modules[index];
    const size_t capacity = module->capacity[way];

    if (number >= capacity) {
        const size_t grown = capacity == 0 ? 1 : 2 * capacity;
        sonde__python_shown *tensors =
            PyMem_Realloc(module->tensors[way], grown * sizeof *tensors);

        if (tensors == NULL) {
            return (sonde__python_shown *)(void *)PyErr_NoMemory();
        }
        memset(tensors + capacity, 0, (grown - capacity) * sizeof *tensors);
        module->tensors[way] = tensors;
        module->capacity[way] = grown;
    }
    return &module->tensors[way][number];
}

/* Asks the hooks for a slot. -1: an exception is set, or there is none. */
static long declare(sonde__python_watch *self, const char *method, size_t index,
                    size_t number, PyObject *tensor)
{
    PyObject *made = PyObject_CallMethod(self->hooks, method, "nnO", (Py_ssize_t)index,
                                         (Py_ssize_t)number, tensor);
    const long slot = made != NULL ? PyLong_AsLong(made) : -1;

    Py_XDECREF(made);
    return slot;
}

/* --- gradients ------------------------------------------------------------------------ */

static bool see_gradient(sonde__python_watch *self, size_t index, size_t number,
                         PyObject *gradient)
{
    sonde__python_shown *shown = NULL;
    PyObject *held = NULL;
    sonde_view view;
    int found = 0;

    if (self->hooks == NULL || self->mode < 0 || index >= self->module_count ||
        number >= self->modules[index].capacity[SONDE__PYTHON_OUTPUT]) {
        return true;
    }
    shown = &self->modules[index].tensors[SONDE__PYTHON_OUTPUT][number];
    if (!shown->gradient_known) {
        long slot = -1;

        shown->gradient_known = true; /* not declared again if that fails */
        shown->gradient_slot = SONDE__PYTHON_NO_SLOT;
        slot = declare(self, "declare_gradient", index, number, gradient);
        if (PyErr_Occurred() != NULL) {
            return false;
        }
        shown = &self->modules[index].tensors[SONDE__PYTHON_OUTPUT][number];
        shown->gradient_slot = slot >= 0 ? (uint32_t)slot : SONDE__PYTHON_NO_SLOT;
    }
    if (!sonde__python_is_due(self, shown->gradient_slot)) {
        return true;
    }
    found =
        sonde__python_put_off(self, shown->gradient_slot, gradient, SONDE__PYTHON_ALONE);
    if (found != 0) {
        return found > 0;
    }
    found = sonde__python_view_of(self, gradient, &view, &held);
    if (found == 1) {
        sonde__python_show(self, shown->gradient_slot, &view);
        Py_DECREF(held);
    }
    return found >= 0;
}

/* The hook of an output's gradient: (gradients,). */
static bool on_gradient(sonde__python_watch *self, const sonde__python_hook *hook,
                        PyObject *arguments)
{
    PyObject *gradients = PyTuple_GetItem(arguments, 0);
    PyObject *gradient = NULL;

    if (gradients == NULL || !PyTuple_Check(gradients) ||
        hook->place >= PyTuple_Size(gradients)) {
        return gradients != NULL;
    }
    gradient = PyTuple_GetItem(gradients, hook->place);
    return gradient == Py_None ||
           see_gradient(self, hook->module, hook->number, gradient);
}

/* The gradient of an output is seen when the backward pass has it. */
static bool hook_gradient(sonde__python_watch *self, size_t index, size_t number,
                          PyObject *tensor)
{
    static PyObject *function_name, *place_name, *register_name;
    sonde__python_shown *shown = find_tensor(self, index, SONDE__PYTHON_OUTPUT, number);
    PyObject *function = NULL, *place = NULL, *add = NULL, *handle = NULL;
    bool good = false;

    if (shown == NULL ||
        (shown->gradient_known && !sonde__python_is_due(self, shown->gradient_slot))) {
        return shown != NULL;
    }
    function = sonde__python_attribute(tensor, &function_name, "grad_fn");
    if (function == NULL || function == Py_None) {
        Py_XDECREF(function);
        return function != NULL;
    }
    if (shown->hook == NULL) {
        shown->hook = sonde__python_new_hook(self, on_gradient, &shown->called);
    }
    place = sonde__python_attribute(tensor, &place_name, "output_nr");
    add = sonde__python_attribute(function, &register_name, "register_prehook");
    if (shown->hook != NULL && place != NULL && add != NULL) {
        shown->called->module = index;
        shown->called->number = number;
        shown->called->place = PyLong_AsSsize_t(place);
        handle = PyObject_CallFunctionObjArgs(add, shown->hook, NULL);
        good = handle != NULL;
    }
    Py_XDECREF(handle);
    Py_XDECREF(add);
    Py_XDECREF(place);
    Py_DECREF(function);
    return good;
}

/* --- what is due ---------------------------------------------------------------------- */

/* Whether a tensor of a module is due, or its gradient. */
static bool is_module_due(const sonde__python_watch *self,
                          const sonde__python_module *module)
{
    for (int way = 0; way < SONDE__PYTHON_WAYS; way++) {
        for (size_t i = 0; i < module->capacity[way]; i++) {
            const sonde__python_shown *shown = &module->tensors[way][i];

            if ((shown->known && sonde__python_is_due(self, shown->slot)) ||
                (shown->gradient_known &&
                 sonde__python_is_due(self, shown->gradient_slot))) {
                return true;
            }
        }
    }
    return false;
}

bool sonde__python_are_modules_due(const sonde__python_watch *self)
{
    static const unsigned roles = 1U << SONDE_ROLE_ACTIVATION | 1U << SONDE_ROLE_OUTPUT |
                                  1U << SONDE_ROLE_INPUT |
                                  1U << SONDE_ROLE_ACTIVATION_GRADIENT;
    /* tensors that are known from the program have the same roles */
    const bool any = sonde__python_are_due(self, roles);
    bool due = any && self->programs.slot_count == 0;

    for (size_t i = 0; any && !due && i < self->module_count; i++) {
        due = is_module_due(self, &self->modules[i]);
    }
    return due;
}

/* --- inputs and outputs --------------------------------------------------------------- */

static bool show(sonde__python_watch *self, size_t index, sonde__python_way way,
                 size_t number, PyObject *tensor);

/* Replaces a tensor that is kept while a root's forward is on. */
static void keep(PyObject **kept, PyObject *tensor)
{
    PyObject *before = *kept;

    *kept = Py_NewRef(tensor);
    Py_XDECREF(before);
}

/* Where the first output of a step that is not finite comes from an input that is not: shows
 * that input. No module returned it, or it had been seen: what made it lies between two. */
void sonde__python_see_input_first(sonde__python_watch *self, size_t index,
                                   PyObject *input)
{
    const bool known = self->was_bad || input == NULL || input == self->root_input ||
                       self->modules[index].shows_input ||
                       self->modules[index].next[SONDE__PYTHON_INPUT] > 0;
    sonde_view view;

    if (!known && sonde__python_is_float(input) && sonde__python_view(input, &view) &&
        sonde__python_is_bad(&view)) {
        self->was_bad = true;
        if (!show(self, index, SONDE__PYTHON_INPUT, 0, input)) {
            (void)sonde__python_count_fault(self);
        }
    }
}

/* The same, of a tensor of a module that may be such an output. */
static void see_input_of(sonde__python_watch *self, size_t index, sonde__python_way way,
                         const sonde_view *view)
{
    if (way == SONDE__PYTHON_OUTPUT && !self->was_bad && sonde__python_is_bad(view)) {
        sonde__python_see_input_first(self, index, self->first_input);
    }
}

/* Checks a tensor that is not due. */
static void check(sonde__python_watch *self, size_t index, sonde__python_way way,
                  size_t number, PyObject *tensor)
{
    const uint32_t slot = self->modules[index].tensors[way][number].slot;
    const bool at_once =
        way == SONDE__PYTHON_INPUT && self->modules[index].hides_infinite;
    sonde_view view;

    if (slot == SONDE__PYTHON_NO_SLOT || !sonde_watch_checks(self->watch, slot)) {
        return;
    }
    if (!sonde__python_view(tensor, &view)) {
        self->unreadable = true;
        return;
    }
    if ((!at_once && sonde__python_check_late(self, index, way, number, tensor, &view)) ||
        !sonde__python_is_bad(&view)) {
        return;
    }
    sonde__python_look_late(self); /* what was seen before it comes first */
    if (way == SONDE__PYTHON_OUTPUT) {
        sonde__python_see_input_first(self, index, self->first_input);
    }
    self->was_bad = true;
    sonde__python_check_view(self, slot, &view);
}

static const char *const declares[SONDE__PYTHON_WAYS] = {
    [SONDE__PYTHON_INPUT] = "declare_input",
    [SONDE__PYTHON_OUTPUT] = "declare_output",
    [SONDE__PYTHON_INTEGERS] = "declare_integers"};

/* Declares a tensor at its first time, and shows it. */
static bool show(sonde__python_watch *self, size_t index, sonde__python_way way,
                 size_t number, PyObject *tensor)
{
    sonde__python_shown *shown = find_tensor(self, index, way, number);
    PyObject *held = NULL;
    sonde_view view;
    int found = 0;

    if (shown == NULL) {
        return false;
    }
    if (!shown->known) {
        long slot = -1;

        shown->known = true; /* not declared again if that fails */
        shown->slot = SONDE__PYTHON_NO_SLOT;
        if (sonde__python_view(tensor, &view)) { /* rules know it by a number before it */
            see_input_of(self, index, way, &view);
        }
        slot = declare(self, declares[way], index, number, tensor);
        if (PyErr_Occurred() != NULL) {
            return sonde__python_count_fault(self);
        }
        shown = find_tensor(self, index, way, number);
        shown->slot = slot >= 0 ? (uint32_t)slot : SONDE__PYTHON_NO_SLOT;
    }
    if (!sonde__python_is_due(self, shown->slot)) {
        sonde__python_forget_signed(self); /* it may be freed before the pass ends */
        if (way == SONDE__PYTHON_INTEGERS) {
            return true;
        }
        check(self, index, way, number, tensor);
        keep(&self->last_checked, tensor);
        return true;
    }
    found = sonde__python_put_off(self, shown->slot, tensor, SONDE__PYTHON_ALONE);
    if (found != 0) {
        return found > 0 || sonde__python_count_fault(self);
    }
    found = sonde__python_view_of(self, tensor, &view, &held);
    if (found == 1) {
        see_input_of(self, index, way, &view);
        if (held == tensor) {
            sonde__python_show_signed(self, shown->slot, tensor, &view);
        } else {
            sonde__python_show(self, shown->slot, &view);
        }
        Py_DECREF(held);
    }
    return found >= 0 || sonde__python_count_fault(self);
}

/* Whether what a module returns is the output of the program. */
static bool is_whole(const sonde__python_watch *self, size_t index)
{
    return self->inside == 1 && self->modules[index].part_of == 0 &&
           sonde__python_is_root(self, index);
}

static bool show_tensor(sonde__python_watch *self, size_t index, sonde__python_way way,
                        PyObject *tensor)
{
    size_t number = 0;

    if (way == SONDE__PYTHON_INPUT && index == 0 && sonde__python_is_integer(tensor)) {
        return show(self, index, SONDE__PYTHON_INTEGERS,
                    self->modules[index].next[SONDE__PYTHON_INTEGERS]++, tensor);
    }
    if (!sonde__python_is_float(tensor)) {
        return true;
    }
    if (way == SONDE__PYTHON_OUTPUT && tensor == self->last_output) {
        return self->only_checks || !is_whole(self, index) ||
               show(self, index, way, self->modules[index].next[way]++, tensor);
    }
    if (way == SONDE__PYTHON_OUTPUT) {
        keep(&self->last_output, tensor);
    }
    number = self->modules[index].next[way]++;
    return show(self, index, way, number, tensor) &&
           (way == SONDE__PYTHON_INPUT || self->only_checks ||
            hook_gradient(self, index, number, tensor));
}

/* The tensors of what a module gets or returns, in order. */
static bool show_all(sonde__python_watch *self, size_t index, sonde__python_way way,
                     PyObject *value)
{
    PyObject *list = NULL;
    bool good = true;

    if (value == Py_None) {
        return true;
    }
    if (sonde__python_is_tensor(value)) {
        return show_tensor(self, index, way, value);
    }
    if (PyTuple_Check(value) && PyTuple_Size(value) == 1 &&
        sonde__python_is_tensor(PyTuple_GetItem(value, 0))) {
        return show_tensor(self, index, way, PyTuple_GetItem(value, 0));
    }
    list = PyObject_CallMethod(self->hooks, "tensors_in", "(O)", value);
    good = list != NULL;
    for (Py_ssize_t i = 0; good && i < PyList_Size(list); i++) {
        good = show_tensor(self, index, way, PyList_GetItem(list, i));
    }
    Py_XDECREF(list);
    return good;
}

bool sonde__python_see_inputs(sonde__python_watch *self, PyObject *inputs)
{
    if (self->module_count == 0 || self->hooks == NULL) {
        return true;
    }
    self->root_input = PyTuple_Check(inputs) && PyTuple_Size(inputs) > 0
                           ? PyTuple_GetItem(inputs, 0)
                           : NULL;
    self->modules[0].next[SONDE__PYTHON_INPUT] = 0;
    self->modules[0].next[SONDE__PYTHON_INTEGERS] = 0;
    return show_all(self, 0, SONDE__PYTHON_INPUT, inputs);
}

/* Whether an output need not be checked, because the input was and the module keeps it
 * finite. Counts both. */
static bool follows_checked(sonde__python_watch *self, size_t index, PyObject *inputs,
                            PyObject *output)
{
    sonde__python_module *module = &self->modules[index];

    if (!module->keeps_finite || PyTuple_Size(inputs) == 0 ||
        PyTuple_GetItem(inputs, 0) != self->last_checked ||
        !sonde__python_is_tensor(output)) {
        return false;
    }
    module->next[SONDE__PYTHON_INPUT] += module->shows_input;
    if (output != self->last_output) {
        module->next[SONDE__PYTHON_OUTPUT]++;
        keep(&self->last_output, output);
    }
    keep(&self->last_checked, output);
    return true;
}

bool sonde__python_see_module(sonde__python_watch *self, size_t index, PyObject *inputs,
                              PyObject *output)
{
    bool good = true;

    if (self->only_checks && follows_checked(self, index, inputs, output)) {
        return true;
    }
    self->first_input =
        PyTuple_Size(inputs) > 0 && sonde__python_is_tensor(PyTuple_GetItem(inputs, 0))
            ? PyTuple_GetItem(inputs, 0)
            : NULL;
    good = (!self->modules[index].shows_input ||
            show_all(self, index, SONDE__PYTHON_INPUT, inputs)) &&
           show_all(self, index, SONDE__PYTHON_OUTPUT, output);
    self->first_input = NULL;
    return good;
}
