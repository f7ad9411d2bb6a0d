/*
 * python_hook.c - the objects that PyTorch calls.
 *
 * A hook that fails passes its exception to the watch, which counts it; it raises what is
 * the program's (Watch._fault). Otherwise a hook returns None.
 */
#include "extension/python_watch.h"

struct hook_object {
    PyObject_HEAD sonde__python_watch *watch; /* a reference */
    sonde__python_hook hook;
};

static PyTypeObject *hook_type;

static PyObject *hook_call(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    const struct hook_object *called = (const struct hook_object *)object;

    (void)keywords;
    if (!sonde__python_is_watching(called->watch) ||
        called->hook.act(called->watch, &called->hook, arguments) ||
        sonde__python_count_fault(called->watch)) {
        Py_RETURN_NONE;
    }
    return NULL;
}

static void hook_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    Py_DECREF((PyObject *)((struct hook_object *)object)->watch);
    release(object);
    Py_DECREF((PyObject *)type);
}

PyObject *sonde__python_new_hook(sonde__python_watch *watch, sonde__python_action *act,
                                 sonde__python_hook **hook)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(hook_type, Py_tp_alloc);
    struct hook_object *object = (struct hook_object *)allocate(hook_type, 0);

    if (object == NULL) {
        return NULL;
    }
    Py_INCREF((PyObject *)watch);
    object->watch = watch;
    object->hook.act = act;
    if (hook != NULL) {
        *hook = &object->hook;
    }
    return (PyObject *)object;
}

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)hook_dealloc},
    {Py_tp_call, (void *)hook_call},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "sonde._sonde.Hook",
    .basicsize = sizeof(struct hook_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

bool sonde__python_add_hook(PyObject *module)
{
    return sonde__python_add_type(module, &spec, (PyObject **)&hook_type);
}
