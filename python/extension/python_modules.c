/*
 * python_modules.c - the modules that a watch knows: the roots, whose calls are forward
 * passes of the program, and the modules in them.
 *
 * A module is known by its address and a weak reference, through a table of addresses:
 * every call of a module in the process asks for it.
 */
#include "extension/python_watch.h"

#include <string.h>

static size_t hash(const sonde__python_watch *self, const void *address)
{
    const uint64_t mixed = (uint64_t)(uintptr_t)address * UINT64_C(0x9E3779B97F4A7C15);

    return (size_t)(mixed >> 32) & (self->table_capacity - 1);
}

static void enter(sonde__python_watch *self, size_t index, const void *address)
{
    size_t place = hash(self, address);

    while (self->module_table[place] != 0) {
        place = (place + 1) & (self->table_capacity - 1);
    }
    self->module_table[place] = (uint32_t)(index + 1);
}

/* The address of a module, or NULL. */
static PyObject *module_at(const sonde__python_watch *self, size_t index)
{
    PyObject *ref = self->modules[index].ref;

    return ref != NULL ? PyWeakref_GetObject(ref) : NULL;
}

/* Room for one more module, in a table that is half full at most. */
static bool reserve(sonde__python_watch *self)
{
    const size_t capacity = self->module_capacity == 0 ? 16 : 2 * self->module_capacity;
    sonde__python_module *modules = NULL;
    uint32_t *table = NULL;

    if (self->module_count < self->module_capacity) {
        return true;
    }
    modules = PyMem_Realloc(self->modules, capacity * sizeof *modules);
    if (modules != NULL) {
        self->modules = modules;
        table = PyMem_Calloc(2 * capacity, sizeof *table);
    }
    if (table == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    PyMem_Free(self->module_table);
    self->module_table = table;
    self->table_capacity = 2 * capacity;
    self->module_capacity = capacity;
    for (size_t i = 0; i < self->module_count; i++) {
        PyObject *module = module_at(self, i);

        if (module != NULL && module != Py_None) {
            enter(self, i, module);
        }
    }
    return true;
}

size_t sonde__python_find_module(const sonde__python_watch *self, PyObject *module)
{
    if (self->table_capacity == 0) {
        return self->module_count;
    }
    for (size_t place = hash(self, module); self->module_table[place] != 0;
         place = (place + 1) & (self->table_capacity - 1)) {
        const size_t index = self->module_table[place] - 1;

        if (module_at(self, index) == module) {
            return index;
        }
    }
    return self->module_count;
}

/* Adds a module, or the program: None. */
static bool add(sonde__python_watch *self, PyObject *module)
{
    sonde__python_module added = {0};

    if (!reserve(self)) {
        return false;
    }
    if (module != Py_None) {
        added.ref = PyWeakref_NewRef(module, NULL);
        if (added.ref == NULL) {
            return false;
        }
        enter(self, self->module_count, module);
    }
    self->modules[self->module_count++] = added;
    return true;
}

PyObject *sonde__python_add_module(PyObject *watch, PyObject *arguments)
{
    sonde__python_watch *self = (sonde__python_watch *)watch;
    PyObject *module = NULL;
    sonde__python_module *added = NULL;
    int shows_input = 0, keeps_finite = 0, hides_infinite = 0;

    if (!PyArg_ParseTuple(arguments, "Op|pp", &module, &shows_input, &keeps_finite,
                          &hides_infinite) ||
        !add(self, module)) {
        return NULL;
    }
    added = &self->modules[self->module_count - 1];
    added->declared = true;
    added->shows_input = shows_input != 0;
    added->keeps_finite = keeps_finite != 0;
    added->hides_infinite = hides_infinite != 0;
    return PyLong_FromSize_t(self->module_count - 1);
}

PyObject *sonde__python_add_root(PyObject *watch, PyObject *arguments)
{
    sonde__python_watch *self = (sonde__python_watch *)watch;
    PyObject *module = NULL;
    Py_ssize_t part_of = 0;
    size_t index = 0;
    int compiled = 0;

    if (!PyArg_ParseTuple(arguments, "Op|n", &module, &compiled, &part_of)) {
        return NULL;
    }
    index = sonde__python_find_module(self, module);
    if (index == self->module_count && !add(self, module)) {
        return NULL;
    }
    self->modules[index].is_compiled = compiled != 0;
    if (!self->modules[index].is_root || part_of == 0) {
        self->modules[index].part_of = (size_t)part_of;
    }
    self->modules[index].is_root = true;
    return PyLong_FromSize_t(index);
}

/* Whether Module.compile was called for a root: then its calls do not come here. */
static bool is_compiled(const sonde__python_watch *self, size_t index)
{
    static PyObject *dict_name;
    PyObject *module = module_at(self, index);
    PyObject *dict =
        module != NULL ? sonde__python_attribute(module, &dict_name, "__dict__") : NULL;
    const bool yes = dict != NULL && PyDict_Check(dict) &&
                     PyDict_GetItemString(dict, "_compiled_call_impl") != NULL;

    PyErr_Clear();
    Py_XDECREF(dict);
    return yes;
}

bool sonde__python_is_root(const sonde__python_watch *self, size_t index)
{
    const sonde__python_module *module = &self->modules[index];
    const size_t whole = module->part_of;

    return module->is_root &&
           (whole == 0 || whole >= self->module_count ||
            (!self->modules[whole].was_called && !is_compiled(self, whole)));
}

void sonde__python_free_modules(sonde__python_watch *self)
{
    const size_t count = self->module_count;

    self->module_count = 0;
    self->table_capacity = 0;
    for (size_t i = 0; i < count; i++) {
        sonde__python_module *module = &self->modules[i];

        Py_CLEAR(module->ref);
        for (int way = 0; way < SONDE__PYTHON_WAYS; way++) {
            for (size_t k = 0; k < module->capacity[way]; k++) {
                Py_CLEAR(module->tensors[way][k].hook);
            }
            PyMem_Free(module->tensors[way]);
        }
    }
    sonde__python_free_late(self);
    Py_CLEAR(self->last_output);
    Py_CLEAR(self->last_checked);
    sonde__python_forget_signed(self);
    PyMem_Free(self->module_table);
    PyMem_Free(self->modules);
    self->module_table = NULL;
    self->modules = NULL;
    self->module_capacity = 0;
}

void sonde__python_restart_modules(sonde__python_watch *self)
{
    for (size_t i = 0; i < self->module_count; i++) {
        memset(self->modules[i].next, 0, sizeof self->modules[i].next);
    }
}
