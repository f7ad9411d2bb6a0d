/*
 * python_call.c - what sees the calls of modules.
 *
 * torch.nn.Module.__call__ calls self._compiled_call_impl in place of self._call_impl if
 * that is not None. While a watch has hooks, torch.nn.Module has an object of the type
 * Calls in this place: a descriptor, which gives None for a module that nothing wants to
 * see, and else an object that calls _call_impl and shows what it returned. No module has
 * a hook then, which would cost a few microseconds in Python at every call. A module with
 * a _compiled_call_impl of its own (Module.compile) is not seen; what is compiled with a
 * module (torch.compile) does not call it.
 */
#include "extension/python_watch.h"

typedef struct calls {
    PyObject_HEAD PyObject *watches; /* a list */
    PyObject *is_compiling;          /* torch.compiler.is_compiling */
} calls;

/* A call of a module. */
typedef struct call {
    PyObject_HEAD calls *owner; /* a reference */
    PyObject *module;           /* a reference */
} call;

static PyTypeObject *call_type;

/* --- the call ----------------------------------------------------------------------- */

static sonde__python_watch *watch_at(const calls *self, Py_ssize_t i)
{
    return (sonde__python_watch *)PyList_GetItem(self->watches, i);
}

/* The place of a module in a watch that sees its calls now, or module_count. */
static size_t find(const sonde__python_watch *watch, PyObject *module)
{
    const size_t index = sonde__python_is_watching(watch) && watch->hooks != NULL
                             ? sonde__python_find_module(watch, module)
                             : watch->module_count;

    if (index < watch->module_count &&
        ((watch->modules[index].declared && watch->shows_modules) ||
         sonde__python_is_root(watch, index))) {
        return index;
    }
    return watch->module_count;
}

/* Before a call. False: an exception is set. */
static bool begin(const calls *self, PyObject *module, PyObject *arguments)
{
    for (Py_ssize_t i = 0; i < PyList_Size(self->watches); i++) {
        sonde__python_watch *watch = watch_at(self, i);
        const size_t index = find(watch, module);

        if (index < watch->module_count && sonde__python_is_root(watch, index)) {
            Py_INCREF((PyObject *)watch);
            const bool good = sonde__python_begin_root(watch, index, module, arguments) ||
                              sonde__python_count_fault(watch);
            Py_DECREF((PyObject *)watch);
            if (!good) {
                return false;
            }
        }
    }
    return true;
}

static bool end_one(sonde__python_watch *watch, size_t index, PyObject *module,
                    PyObject *arguments, PyObject *result)
{
    bool good = true;

    if (result != NULL && watch->modules[index].declared && watch->shows_modules) {
        good = sonde__python_see_module(watch, index, arguments, result);
    }
    if (index < watch->module_count && sonde__python_is_root(watch, index)) {
        if (watch->inside == 1) {
            good = sonde__python_program_tell(watch, "returned", module,
                                              result != NULL ? result : Py_None) &&
                   good;
        }
        good = sonde__python_end_root(watch) && good;
    }
    return good || sonde__python_count_fault(watch);
}

/* After a call that returned result, or NULL. */
static bool end(const calls *self, PyObject *module, PyObject *arguments,
                PyObject *result)
{
    for (Py_ssize_t i = 0; i < PyList_Size(self->watches); i++) {
        sonde__python_watch *watch = watch_at(self, i);
        const size_t index = find(watch, module);

        if (index < watch->module_count) {
            Py_INCREF((PyObject *)watch);
            const bool good = end_one(watch, index, module, arguments, result);
            Py_DECREF((PyObject *)watch);
            if (!good) {
                return false;
            }
        }
    }
    return true;
}

/* Whether a module is traced for a compiler, which is no call. -1: an exception is set. */
static int is_compiling(const calls *self)
{
    PyObject *answer = PyObject_CallObject(self->is_compiling, NULL);
    const int yes = answer != NULL ? PyObject_IsTrue(answer) : -1;

    Py_XDECREF(answer);
    return yes;
}

static PyObject *call_module(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static PyObject *name;
    PyObject *method = sonde__python_attribute(module, &name, "_call_impl");
    PyObject *result = method != NULL ? PyObject_Call(method, arguments, keywords) : NULL;

    Py_XDECREF(method);
    return result;
}

/* Whether the module is a root of a watch. */
static bool is_any_root(const calls *self, PyObject *module)
{
    for (Py_ssize_t i = 0; i < PyList_Size(self->watches); i++) {
        const sonde__python_watch *watch = watch_at(self, i);
        const size_t index = find(watch, module);

        if (index < watch->module_count && sonde__python_is_root(watch, index)) {
            return true;
        }
    }
    return false;
}

/* Ends a forward pass that raised an exception, which stays set. */
static void end_failed(const calls *self, PyObject *module, PyObject *arguments)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL;

    PyErr_Fetch(&type, &value, &trace);
    if (!end(self, module, arguments, NULL)) {
        PyErr_Clear();
    }
    PyErr_Restore(type, value, trace);
}

static PyObject *call_call(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    const call *self = (const call *)object;
    const calls *owner = self->owner;
    PyObject *result = NULL;

    if (is_any_root(owner, self->module)) {
        const int compiling = is_compiling(owner);

        if (compiling != 0) {
            return compiling < 0 ? NULL : call_module(self->module, arguments, keywords);
        }
        if (!begin(owner, self->module, arguments)) {
            return NULL;
        }
    }
    result = call_module(self->module, arguments, keywords);
    if (result == NULL) {
        end_failed(owner, self->module, arguments);
    } else if (!end(owner, self->module, arguments, result)) {
        Py_CLEAR(result);
    }
    return result;
}

static void call_dealloc(PyObject *object)
{
    call *self = (call *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    Py_DECREF((PyObject *)self->owner);
    Py_DECREF(self->module);
    release(object);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot call_slots[] = {
    {Py_tp_dealloc, (void *)call_dealloc},
    {Py_tp_call, (void *)call_call},
    {0, NULL},
};

static PyType_Spec call_spec = {
    .name = "sonde._sonde.Call",
    .basicsize = sizeof(call),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = call_slots,
};

/* --- the descriptor ----------------------------------------------------------------- */

static PyObject *calls_get(PyObject *object, PyObject *module, PyObject *type)
{
    const calls *self = (const calls *)object;
    call *made = NULL;
    bool wanted = false;

    (void)type;
    for (Py_ssize_t i = 0; module != NULL && !wanted && i < PyList_Size(self->watches);
         i++) {
        const sonde__python_watch *watch = watch_at(self, i);

        wanted = find(watch, module) < watch->module_count;
    }
    if (!wanted) {
        return Py_NewRef(Py_None);
    }
    made = PyObject_New(call, call_type);
    if (made != NULL) {
        made->owner = (calls *)Py_NewRef(object);
        made->module = Py_NewRef(module);
    }
    return (PyObject *)made;
}

static PyObject *calls_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *watches = NULL, *is_compiling_function = NULL;
    calls *self = NULL;

    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "O!O", &PyList_Type, &watches,
                          &is_compiling_function)) {
        return NULL;
    }
    self = (calls *)allocate(type, 0);
    if (self != NULL) {
        self->watches = Py_NewRef(watches);
        self->is_compiling = Py_NewRef(is_compiling_function);
    }
    return (PyObject *)self;
}

static void calls_dealloc(PyObject *object)
{
    calls *self = (calls *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    Py_XDECREF(self->watches);
    Py_XDECREF(self->is_compiling);
    release(object);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot calls_slots[] = {
    {Py_tp_new, (void *)calls_new},
    {Py_tp_dealloc, (void *)calls_dealloc},
    {Py_tp_descr_get, (void *)calls_get},
    {0, NULL},
};

static PyType_Spec calls_spec = {
    .name = "sonde._sonde.Calls",
    .basicsize = sizeof(calls),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = calls_slots,
};

bool sonde__python_add_calls(PyObject *module)
{
    return sonde__python_add_type(module, &call_spec, (PyObject **)&call_type) &&
           sonde__python_add_type(module, &calls_spec, NULL);
}
