/*
 * python_graph.c - builds a network of the engine, op by op.
 *
 * A value is a whole number, as sonde_nn_value. Every call that fails raises; the graph is
 * of no use after that.
 */
#include "extension/python_graph.h"

#include <sonde/nn/model.h>

#include <string.h>

enum { MOST_SETTINGS = 8, MOST_VALUES = 40 };

static PyObject *graph_type;

static sonde_nn_model *model_of(PyObject *object)
{
    return ((sonde__python_graph *)object)->model;
}

/* The value as a number, or the model's error. */
static PyObject *answer(PyObject *self, sonde_nn_value value)
{
    sonde_diag diag = {0};

    if (sonde_nn_model_status(model_of(self), &diag) != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    return PyLong_FromUnsignedLong(value);
}

static PyObject *graph_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    sonde__python_graph *self = NULL;
    sonde_diag diag = {0};

    (void)keywords;
    if (!PyArg_ParseTuple(arguments, ":Graph")) {
        return NULL;
    }
    self = (sonde__python_graph *)allocate(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->tensors = PyList_New(0);
    if (self->tensors == NULL) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    if (sonde_nn_model_create(&self->model, &diag) != SONDE_OK) {
        Py_DECREF((PyObject *)self);
        return sonde__python_raise(&diag);
    }
    return (PyObject *)self;
}

static void graph_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    sonde_nn_model_destroy(model_of(object));
    Py_XDECREF(((sonde__python_graph *)object)->tensors);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* --- inputs and tensors ------------------------------------------------------------- */

PyDoc_STRVAR(input_doc,
             "input(like)\n--\n\n"
             "An input with the dtype and shape of a tensor, one micro-batch.");

static PyObject *graph_input(PyObject *self, PyObject *like)
{
    sonde_view view;

    if (!sonde__python_view(like, &view)) {
        return sonde__python_bad_value("input", "a tensor in this process's memory",
                                       "an object without readable elements");
    }
    return answer(self,
                  sonde_nn_input(model_of(self), view.dtype, view.rank, view.shape));
}

/* An entry of the list of tensors. */
static PyObject *kept_tensor(PyObject *tensor, void *address, const char *name)
{
    return Py_BuildValue("ONs", tensor, PyLong_FromVoidPtr(address), name);
}

PyDoc_STRVAR(tensor_doc,
             "tensor(name, tensor, trained, frozen)\n--\n\n"
             "A tensor of the model in place: a parameter that the optimizer updates "
             "(trained), one that it leaves as it is (trained and frozen), or a buffer. "
             "It must be contiguous and aligned to 64 bytes, and is kept alive.");

static PyObject *graph_tensor(PyObject *self, PyObject *arguments)
{
    sonde_nn_model *model = model_of(self);
    const char *name = NULL;
    PyObject *tensor = NULL, *entry = NULL;
    int trained = 0, frozen = 0;
    sonde_view view;
    sonde_nn_value value = 0;

    if (!PyArg_ParseTuple(arguments, "sOpp:tensor", &name, &tensor, &trained, &frozen)) {
        return NULL;
    }
    if (!sonde__python_view(tensor, &view)) {
        return sonde__python_bad_value(name, "a tensor in this process's memory",
                                       "an object without readable elements");
    }
    entry = kept_tensor(tensor, view.data, name);
    if (entry == NULL ||
        PyList_Append(((sonde__python_graph *)self)->tensors, entry) != 0) {
        Py_XDECREF(entry);
        return NULL;
    }
    Py_DECREF(entry);
    value = sonde_nn_tensor(model, name,
                            trained == 0     ? SONDE_ROLE_BUFFER
                            : view.rank == 1 ? SONDE_ROLE_BIAS
                                             : SONDE_ROLE_WEIGHT,
                            &view);
    if (value != 0 && trained != 0) {
        sonde_nn_parameter_leave_out(
            model, sonde_nn_model_get_info(model).parameter_count - 1, frozen != 0);
    }
    return answer(self, value);
}

/* --- ops ---------------------------------------------------------------------------- */

/* The numbers or the word of a setting; borrowed from `value`. */
static bool read_setting(PyObject *value, sonde_nn_setting *setting)
{
    if (value == Py_None) {
        setting->word = "none";
        return true;
    }
    if (PyUnicode_Check(value)) {
        setting->word = PyUnicode_AsUTF8AndSize(value, NULL);
        return setting->word != NULL;
    }
    if (!PyTuple_Check(value)) {
        setting->values[0] = PyFloat_AsDouble(value);
        setting->count = 1;
        return PyErr_Occurred() == NULL;
    }
    setting->count = (int)PyTuple_Size(value);
    if (setting->count < 1 || setting->count > SONDE_MAX_DIMS) {
        (void)sonde__python_bad_value(setting->key, "1 to 8 numbers", "another count");
        return false;
    }
    for (int i = 0; i < setting->count; i++) {
        setting->values[i] = PyFloat_AsDouble(PyTuple_GetItem(value, i));
    }
    return PyErr_Occurred() == NULL;
}

static bool read_settings(PyObject *given, sonde_nn_setting *settings, size_t *count)
{
    PyObject *key = NULL, *value = NULL;
    Py_ssize_t place = 0;

    *count = 0;
    while (PyDict_Next(given, &place, &key, &value) != 0) {
        sonde_nn_setting *setting = &settings[*count];

        if (*count == MOST_SETTINGS) {
            (void)sonde__python_bad_value("settings", "at most 8", "more");
            return false;
        }
        *setting = (sonde_nn_setting){.key = PyUnicode_AsUTF8AndSize(key, NULL)};
        if (setting->key == NULL || !read_setting(value, setting)) {
            return false;
        }
        (*count)++;
    }
    return true;
}

static bool read_values(PyObject *given, sonde_nn_value *values, size_t *count)
{
    *count = (size_t)PyTuple_Size(given);
    if (*count > MOST_VALUES) {
        (void)sonde__python_bad_value("values", "at most 40", "more");
        return false;
    }
    for (size_t i = 0; i < *count; i++) {
        values[i] =
            (sonde_nn_value)PyLong_AsUnsignedLong(PyTuple_GetItem(given, (Py_ssize_t)i));
    }
    return PyErr_Occurred() == NULL;
}

PyDoc_STRVAR(function_doc,
             "function(module, kind, values, settings)\n--\n\n"
             "An op of <sonde/nn/model.h> over a tuple of values. settings: a dict of "
             "numbers, tuples of numbers, or words. Returns the value of its result.");

static PyObject *graph_function(PyObject *self, PyObject *arguments)
{
    const char *module = NULL, *kind = NULL;
    PyObject *given = NULL, *keys = NULL;
    sonde_nn_setting settings[MOST_SETTINGS];
    sonde_nn_value values[MOST_VALUES];
    size_t setting_count = 0, count = 0;

    if (!PyArg_ParseTuple(arguments, "ssO!O!:function", &module, &kind, &PyTuple_Type,
                          &given, &PyDict_Type, &keys) ||
        !read_values(given, values, &count) ||
        !read_settings(keys, settings, &setting_count)) {
        return NULL;
    }
    return answer(self, sonde_nn_function(model_of(self), module, kind, values, count,
                                          settings, setting_count));
}

/* --- what is marked ----------------------------------------------------------------- */

static PyObject *marked(PyObject *self)
{
    PyObject *good = answer(self, 0);

    Py_XDECREF(good);
    return good != NULL ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(dtype_doc,
             "dtype(name)\n--\n\n"
             "Products of the ops from here on: float32, bfloat16 or float16.");

static PyObject *graph_dtype(PyObject *self, PyObject *given)
{
    const char *name = PyUnicode_AsUTF8AndSize(given, NULL);
    sonde_dtype dtype = SONDE_F32;
    sonde_diag diag = {0};

    if (name == NULL) {
        return NULL;
    }
    if (sonde_dtype_parse(name, &dtype, &diag) != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    sonde_nn_begin_dtype(model_of(self), dtype);
    return marked(self);
}

PyDoc_STRVAR(block_doc, "block(name)\n--\n\n"
                        "The ops from here on belong to a block, a stage of a pipeline.");

static PyObject *graph_block(PyObject *self, PyObject *given)
{
    const char *name = PyUnicode_AsUTF8AndSize(given, NULL);

    if (name == NULL) {
        return NULL;
    }
    sonde_nn_begin_block(model_of(self), name);
    return marked(self);
}

PyDoc_STRVAR(module_output_doc, "module_output(module, value)\n--\n\n"
                                "Names the value <module>_output_<k>.");

static PyObject *graph_module_output(PyObject *self, PyObject *arguments)
{
    const char *module = NULL;
    unsigned value = 0;

    if (!PyArg_ParseTuple(arguments, "sI:module_output", &module, &value)) {
        return NULL;
    }
    sonde_nn_module_output(model_of(self), module, value);
    return marked(self);
}

PyDoc_STRVAR(output_doc, "output(value)\n--\n\nSessions return the value.");

static PyObject *graph_output(PyObject *self, PyObject *value)
{
    const unsigned long number = PyLong_AsUnsignedLong(value);

    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    sonde_nn_output(model_of(self), (sonde_nn_value)number);
    return marked(self);
}

PyDoc_STRVAR(loss_doc, "loss(value)\n--\n\nTraining minimizes the value.");

static PyObject *graph_loss(PyObject *self, PyObject *value)
{
    const unsigned long number = PyLong_AsUnsignedLong(value);

    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    sonde_nn_loss(model_of(self), (sonde_nn_value)number);
    return marked(self);
}

PyDoc_STRVAR(print_doc,
             "print(value, title, gradient, layout)\n--\n\n"
             "The same value, printed to standard error whenever it is computed. title "
             "'': its name. layout: (summarize_threshold, edge_items, max_line_width, "
             "digits, float_format, separator, open_bracket, close_bracket).");

static PyObject *graph_print(PyObject *self, PyObject *arguments)
{
    sonde_print_options options;
    const char *title = NULL;
    unsigned value = 0;
    int gradient = 0;
    PyObject *layout = NULL;

    if (!PyArg_ParseTuple(arguments, "IspO!:print", &value, &title, &gradient,
                          &PyTuple_Type, &layout) ||
        !sonde__python_read_layout(layout, &options)) {
        return NULL;
    }
    return answer(self,
                  sonde_nn_print(model_of(self), value, title[0] != '\0' ? title : NULL,
                                 gradient != 0, &options));
}

PyDoc_STRVAR(shape_doc, "shape(value)\n--\n\nThe shape of a value, as a tuple.");

static PyObject *graph_shape(PyObject *self, PyObject *value)
{
    const unsigned long number = PyLong_AsUnsignedLong(value);
    const int64_t *shape = NULL;
    PyObject *made = NULL;
    int rank = 0;

    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    shape = sonde_nn_value_shape(model_of(self), (sonde_nn_value)number, &rank);
    made = PyTuple_New(shape != NULL ? rank : 0);
    for (int i = 0; made != NULL && shape != NULL && i < rank; i++) {
        if (PyTuple_SetItem(made, i, PyLong_FromLongLong(shape[i])) != 0) {
            Py_CLEAR(made);
        }
    }
    return made;
}

/* Whether a tensor is that of an entry, where it was. */
static bool is_in_place(PyObject *tensor, PyObject *entry)
{
    const void *address = PyLong_AsVoidPtr(PyTuple_GetItem(entry, 1));
    sonde_view now, then;

    return sonde__python_view(tensor, &now) &&
           sonde__python_view(PyTuple_GetItem(entry, 0), &then) && now.data == address &&
           then.data == address && now.dtype == then.dtype &&
           sonde_view_same_shape(&now, &then) && sonde_view_is_contiguous(&now);
}

PyDoc_STRVAR(
    moved_doc,
    "moved(tensors)\n--\n\n"
    "Compares a tuple of tensors with those that the graph reads, in the order of the "
    "calls of tensor. Returns the place of the first one that lies elsewhere in memory, "
    "has another shape or order, or whose memory the program has given up; or -1.");

static PyObject *graph_moved(PyObject *self, PyObject *tensors)
{
    PyObject *kept = ((sonde__python_graph *)self)->tensors;
    const Py_ssize_t count = PyTuple_Check(tensors) ? PyTuple_Size(tensors) : -1;

    if (count != PyList_Size(kept)) {
        return sonde__python_bad_value("moved", "a tensor for each of the graph's",
                                       "another count");
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!is_in_place(PyTuple_GetItem(tensors, i), PyList_GetItem(kept, i))) {
            return PyLong_FromSsize_t(i);
        }
    }
    return PyLong_FromLong(-1);
}

PyDoc_STRVAR(move_doc,
             "move(place, tensor)\n--\n\n"
             "The graph's tensor at a place lies elsewhere: sessions have to be "
             "made again.");

static PyObject *graph_move(PyObject *self, PyObject *arguments)
{
    sonde__python_graph *graph = (sonde__python_graph *)self;
    PyObject *tensor = NULL, *entry = NULL;
    const char *name = NULL;
    Py_ssize_t place = 0;
    sonde_diag diag = {0};
    sonde_view view;

    if (!PyArg_ParseTuple(arguments, "nO:move", &place, &tensor)) {
        return NULL;
    }
    entry = PyList_GetItem(graph->tensors, place); /* borrowed */
    if (entry == NULL) {
        return NULL;
    }
    name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(entry, 2), NULL);
    if (!sonde__python_view(tensor, &view)) {
        return sonde__python_bad_value(name, "a tensor in this process's memory",
                                       "an object without readable elements");
    }
    graph->moves++;
    if (sonde_nn_tensor_move(graph->model, name, &view, &diag) != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    entry = kept_tensor(tensor, view.data, name);
    if (entry == NULL || PyList_SetItem(graph->tensors, place, entry) != 0) {
        return NULL;
    }
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(
    session_doc,
    "session(training, options, optimizer, anchors)\n--\n\n"
    "A compiled session. options: (D, G, R, sum, mode, period, seed, threads, folder of "
    "the plan cache or None, execution, floating-point exceptions[, batch]); optimizer: (name, "
    "{number: value}) or None; anchors: a tuple of (name, tensor, mode, period).");

static PyMethodDef methods[] = {
    {"input", graph_input, METH_O, input_doc},
    {"tensor", graph_tensor, METH_VARARGS, tensor_doc},
    {"function", graph_function, METH_VARARGS, function_doc},
    {"dtype", graph_dtype, METH_O, dtype_doc},
    {"block", graph_block, METH_O, block_doc},
    {"module_output", graph_module_output, METH_VARARGS, module_output_doc},
    {"output", graph_output, METH_O, output_doc},
    {"loss", graph_loss, METH_O, loss_doc},
    {"print", graph_print, METH_VARARGS, print_doc},
    {"shape", graph_shape, METH_O, shape_doc},
    {"moved", graph_moved, METH_O, moved_doc},
    {"move", graph_move, METH_VARARGS, move_doc},
    {"name", sonde__python_graph_name, METH_VARARGS,
     "name(value, module, name, role, also)\n--\n\n"
     "Gives a value a module, a name (None: no name) and a role; also: one name more."},
    {"name_of", sonde__python_graph_name_of, METH_O,
     "name_of(value)\n--\n\nThe name of a value, or None."},
    {"dtype_of", sonde__python_graph_dtype_of, METH_O,
     "dtype_of(value)\n--\n\nThe dtype of a value: \"float32\"."},
    {"describe", sonde__python_graph_describe, METH_NOARGS,
     "describe()\n--\n\nThe graph as JSON (sonde_nn_model_describe)."},
    {"weights", sonde__python_graph_weights, METH_O,
     "weights(path)\n--\n\nSaves parameters and buffers as safetensors."},
    {"plan", sonde__python_graph_plan, METH_VARARGS,
     "plan(path, batch, text)\n--\n\n"
     "Saves a plan of a session for inference, with a text of the caller's."},
    {"session", sonde__python_new_session, METH_VARARGS, session_doc},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)graph_new},
    {Py_tp_dealloc, (void *)graph_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "sonde._sonde.Graph",
    .basicsize = sizeof(sonde__python_graph),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

bool sonde__python_add_graph(PyObject *module)
{
    return sonde__python_add_type(module, &spec, &graph_type);
}
