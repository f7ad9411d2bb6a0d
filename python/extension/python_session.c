/*
 * python_session.c - a compiled network that Python calls.
 *
 * A call borrows the memory of its tensors, computes without the interpreter's lock, and
 * copies what it returns into tensors that Python made.
 */
#include "extension/python_graph.h"
#include "extension/python_watch.h"

#include <sonde/nn/session.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TENSORS = 64 };

typedef struct session_object {
    PyObject_HEAD sonde_nn_session *session;
    PyObject *graph;   /* a reference: the session borrows its model */
    PyObject *options; /* a reference: the session borrows the name of a folder */
    sonde_nn_optimizer optimizer;
    sonde_nn_optimizer *groups; /* of so many, named group1, group2 ... */
    int group_count;
    unsigned moves;      /* of the graph, when it was opened */
    unsigned generation; /* sonde__python_generation() of its process */
    bool threaded;       /* it has threads of its own, which a fork does not copy */
    bool running;        /* a call computes; others are refused */
    FILE *prints;        /* of the model, in memory until the call ends */
    char *printed;
    size_t printed_size;
} session_object;

static PyTypeObject *session_type;

static PyObject *done(sonde_err err, const sonde_diag *diag)
{
    return err == SONDE_OK ? Py_NewRef(Py_None) : sonde__python_raise(diag);
}

/* False with an exception: a call is computing in another thread. */
static bool is_free(const session_object *self)
{
    sonde_diag diag = {0};

    if (!self->running) {
        return true;
    }
    (void)sonde_diag_set(&diag, SONDE_EBUSY, "session", "one thread at a time",
                         "a call is running");
    (void)sonde__python_raise(&diag);
    return false;
}

/* Whether its threads are those of a process from which this one was forked. */
static bool is_forked(const session_object *self)
{
    return self->threaded && self->generation != sonde__python_generation();
}

/* False with an exception: tensors of the graph have moved since it was opened, or its
 * threads are in another process. */
static bool is_current(const session_object *self)
{
    sonde_diag diag = {0};

    if (is_forked(self)) {
        (void)sonde_diag_set(&diag, SONDE_ESTATE, "session",
                             "a model that is wrapped in this process, or one thread",
                             "this process was forked after the compilation");
    } else if (self->moves != ((sonde__python_graph *)self->graph)->moves) {
        (void)sonde_diag_set(&diag, SONDE_ESTATE, "session", "a new session",
                             "tensors of the graph have moved");
    } else {
        return true;
    }
    (void)sonde__python_raise(&diag);
    return false;
}

/* --- making ------------------------------------------------------------------------- */

/* Writes a number of an optimizer by its name in <sonde/nn/optimizer.h>. */
static bool set_number(sonde_nn_optimizer *optimizer, const char *name, double number)
{
    const struct {
        const char *name;
        float *number;
        bool *flag;
    } fields[] = {
        {"learning_rate", &optimizer->learning_rate, NULL},
        {"weight_decay", &optimizer->weight_decay, NULL},
        {"momentum", &optimizer->momentum, NULL},
        {"dampening", &optimizer->dampening, NULL},
        {"nesterov", NULL, &optimizer->nesterov},
        {"beta1", &optimizer->beta1, NULL},
        {"beta2", &optimizer->beta2, NULL},
        {"eps", &optimizer->eps, NULL},
        {"alpha", &optimizer->alpha, NULL},
        {"centered", NULL, &optimizer->centered},
        {"tf_variant", NULL, &optimizer->tf_variant},
        {"lr_decay", &optimizer->lr_decay, NULL},
        {"initial_accumulator_value", &optimizer->initial_accumulator_value, NULL},
        {"max_weight_norm", &optimizer->max_weight_norm, NULL},
        {"no_bias_correction", NULL, &optimizer->no_bias_correction},
        {"clip_norm", &optimizer->clip_norm, NULL},
        {"loss_scaling", &optimizer->loss_scaling, NULL},
        {"automatic_loss_scaling", NULL, &optimizer->automatic_loss_scaling},
    };

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(fields[i].name, name) != 0) {
            continue;
        }
        if (fields[i].flag != NULL) {
            *fields[i].flag = number != 0.0;
        } else {
            *fields[i].number = (float)number;
        }
        return true;
    }
    (void)sonde__python_bad_value(name, "a number of <sonde/nn/optimizer.h>",
                                  "another name");
    return false;
}

static bool read_numbers(PyObject *numbers, sonde_nn_optimizer *optimizer)
{
    PyObject *key = NULL, *value = NULL;
    Py_ssize_t place = 0;

    while (PyDict_Next(numbers, &place, &key, &value) != 0) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        const double number = PyFloat_AsDouble(value);

        if (name == NULL || PyErr_Occurred() != NULL ||
            !set_number(optimizer, name, number)) {
            return false;
        }
    }
    return true;
}

/* groups: a borrowed tuple of (selector, numbers). */
static bool read_optimizer(PyObject *given, sonde_nn_optimizer *optimizer,
                           PyObject **groups)
{
    PyObject *numbers = NULL;
    const char *kind = NULL;

    if (!PyArg_ParseTuple(given, "sO!O!", &kind, &PyDict_Type, &numbers, &PyTuple_Type,
                          groups)) {
        return false;
    }
    for (int i = SONDE_NN_SGD; i <= SONDE_NN_LAMB; i++) {
        if (strcmp(sonde_nn_optimizer_name((sonde_nn_optimizer_kind)i), kind) == 0) {
            *optimizer = sonde_nn_optimizer_default((sonde_nn_optimizer_kind)i, 0.0F);
        }
    }
    return read_numbers(numbers, optimizer);
}

static void name_group(int i, char name[32])
{
    (void)snprintf(name, 32, "group%d", i + 1);
}

/* Group i of the session: what its dictionary lacks is the default's kind's. */
static bool add_group(session_object *self, PyObject *given, int i)
{
    sonde_nn_optimizer *numbers = &self->groups[i];
    sonde_nn_group group = {.name = NULL};
    PyObject *dictionary = NULL;
    char name[32];
    sonde_diag diag = {0};

    *numbers = sonde_nn_optimizer_default(self->optimizer.kind, 0.0F);
    if (!PyArg_ParseTuple(given, "sO!", &group.params, &PyDict_Type, &dictionary) ||
        !read_numbers(dictionary, numbers)) {
        return false;
    }
    name_group(i, name);
    group.name = name;
    group.optimizer = *numbers;
    if (sonde_nn_session_add_group(self->session, &group, &diag) != SONDE_OK) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    return true;
}

static bool add_groups(session_object *self, PyObject *groups)
{
    const int count = groups != NULL ? (int)PyTuple_Size(groups) : 0;

    self->groups = PyMem_Calloc((size_t)count + 1, sizeof *self->groups);
    if (self->groups == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    self->group_count = count;
    for (int i = 0; i < count; i++) {
        if (!add_group(self, PyTuple_GetItem(groups, i), i)) {
            return false;
        }
    }
    return true;
}

static bool add_anchors(session_object *self, PyObject *anchors)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(anchors); i++) {
        const char *name = NULL, *tensor = NULL;
        int mode = 0, period = 0;
        sonde_diag diag = {0};

        if (!PyArg_ParseTuple(PyTuple_GetItem(anchors, i), "ssii", &name, &tensor, &mode,
                              &period)) {
            return false;
        }
        if (sonde_nn_session_anchor(self->session, name, tensor, (sonde_anchor_mode)mode,
                                    period, &diag) != SONDE_OK) {
            (void)sonde__python_raise(&diag);
            return false;
        }
    }
    return true;
}

static bool read_options(session_object *self, PyObject *given, sonde_nn_options *options)
{
    int sum = 0, mode = 0, execution = 0, exceptions = 0, batch = 0;
    unsigned long long seed = 0;

    sonde_nn_options_init(options);
    if (!PyArg_ParseTuple(given, "iiipiiKizip|i", &options->device_iterations,
                          &options->gradient_accumulation, &options->replicas, &sum,
                          &mode, &options->output_period, &seed, &options->threads,
                          &options->plan_cache, &execution, &exceptions, &batch)) {
        return false;
    }
    options->execution = (sonde_nn_execution)execution;
    options->floating_point_exceptions = exceptions != 0;
    options->reduction = sum != 0 ? SONDE_NN_REDUCTION_SUM : SONDE_NN_REDUCTION_MEAN;
    options->output_mode = (sonde_anchor_mode)mode;
    options->random_seed = seed;
    self->threaded = options->threads != 1;
    if (batch > 0) {
        options->batch_size = batch;
    }
    options->fixed_batch = true; /* the program feeds what it was written for */
    return true;
}

/* Creates and compiles; false with an exception. */
static bool open_session(session_object *self, bool training, PyObject *given,
                         PyObject *groups, PyObject *anchors)
{
    sonde_nn_model *model = ((sonde__python_graph *)self->graph)->model;
    sonde_nn_options options;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (!read_options(self, given, &options)) {
        return false;
    }
    err = training
              ? sonde_nn_session_create(model, &options, &self->optimizer, &self->session,
                                        &diag)
              : sonde_nn_session_create(model, &options, NULL, &self->session, &diag);
    if (err != SONDE_OK) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    self->prints = open_memstream(&self->printed, &self->printed_size);
    if (self->prints == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    if (sonde_nn_session_set(self->session,
                             SONDE_OPTIONS(sonde_nn_session, .prints = self->prints),
                             &diag) != SONDE_OK) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    if (!add_groups(self, groups) || !add_anchors(self, anchors)) {
        return false;
    }
    Py_BEGIN_ALLOW_THREADS;
    err = sonde_nn_session_compile(self->session, &diag);
    Py_END_ALLOW_THREADS;
    if (err != SONDE_OK) {
        (void)sonde__python_raise(&diag);
    }
    return err == SONDE_OK;
}

PyObject *sonde__python_new_session(PyObject *graph, PyObject *arguments)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(session_type, Py_tp_alloc);
    PyObject *options = NULL, *optimizer = NULL, *anchors = NULL, *groups = NULL;
    session_object *self = NULL;
    int training = 0;

    if (!PyArg_ParseTuple(arguments, "pO!OO!:session", &training, &PyTuple_Type, &options,
                          &optimizer, &PyTuple_Type, &anchors)) {
        return NULL;
    }
    self = (session_object *)allocate(session_type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->graph = Py_NewRef(graph);
    self->options = Py_NewRef(options);
    self->generation = sonde__python_generation();
    self->moves = ((sonde__python_graph *)graph)->moves;
    self->optimizer = sonde_nn_optimizer_sgd(0.01F, 0.0F);
    if ((optimizer != Py_None && !read_optimizer(optimizer, &self->optimizer, &groups)) ||
        !open_session(self, training != 0, options, groups, anchors)) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void session_dealloc(PyObject *object)
{
    session_object *self = (session_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    if (!is_forked(self)) { /* else its threads cannot be waited for */
        sonde_nn_session_destroy(self->session);
    }
    if (self->prints != NULL) {
        (void)fclose(self->prints);
    }
    free(self->printed);
    PyMem_Free(self->groups);
    Py_XDECREF(self->graph);
    Py_XDECREF(self->options);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* --- running ------------------------------------------------------------------------ */

static bool read_views(PyObject *tensors, sonde_view *views, const char *what)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(tensors); i++) {
        if (!sonde__python_view(PyTuple_GetItem(tensors, i), &views[i])) {
            (void)sonde__python_bad_value(what, "tensors in this process's memory",
                                          "an object without readable elements");
            return false;
        }
    }
    return true;
}

static sonde_err compute(sonde_nn_session *session, const sonde_view *in, size_t count,
                         const sonde_view *out, size_t out_count, sonde_diag *diag)
{
    sonde_err err = sonde_nn_session_run(session, in, count, diag);

    for (size_t i = 0; err == SONDE_OK && i < out_count; i++) {
        sonde_view view;

        err = sonde_nn_session_output(session, i, &view, diag);
        if (err == SONDE_OK) {
            err = sonde_view_copy(&out[i], &view, diag);
        }
    }
    return err;
}

/* Passes what the model printed to sys.stderr. False with an exception. */
static bool pass_prints(session_object *self)
{
    const long size = ftell(self->prints);
    PyObject *stream = NULL, *text = NULL, *result = NULL;

    if (size <= 0) {
        return true;
    }
    if (fflush(self->prints) != 0 || fseek(self->prints, 0, SEEK_SET) != 0) {
        (void)PyErr_NoMemory();
        return false;
    }
    stream = PySys_GetObject("stderr"); /* borrowed */
    if (stream == NULL || stream == Py_None) {
        return true;
    }
    text = PyUnicode_DecodeUTF8(self->printed, size, "backslashreplace");
    result = text != NULL ? PyObject_CallMethod(stream, "write", "O", text) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(result);
    return result != NULL;
}

PyDoc_STRVAR(run_doc,
             "run(inputs, outputs)\n--\n\n"
             "A call, over a tuple of contiguous tensors. The first outputs of the "
             "session are copied to a tuple of tensors of their shapes.");

static PyObject *session_run(PyObject *object, PyObject *arguments)
{
    session_object *self = (session_object *)object;
    sonde_view in[MOST_TENSORS], out[MOST_TENSORS];
    PyObject *inputs = NULL, *outputs = NULL;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (!PyArg_ParseTuple(arguments, "O!O!:run", &PyTuple_Type, &inputs, &PyTuple_Type,
                          &outputs)) {
        return NULL;
    }
    if (PyTuple_Size(inputs) > MOST_TENSORS || PyTuple_Size(outputs) > MOST_TENSORS) {
        return sonde__python_bad_value("run", "at most 64 tensors", "more");
    }
    if (!is_free(self) || !is_current(self) || !read_views(inputs, in, "inputs") ||
        !read_views(outputs, out, "outputs")) {
        return NULL;
    }
    self->running = true;
    Py_BEGIN_ALLOW_THREADS;
    err = compute(self->session, in, (size_t)PyTuple_Size(inputs), out,
                  (size_t)PyTuple_Size(outputs), &diag);
    Py_END_ALLOW_THREADS;
    self->running = false;
    return pass_prints(self) ? done(err, &diag) : NULL;
}

/* (dtype, shape): a new tuple. */
static PyObject *described(const sonde_view *view)
{
    PyObject *shape = PyTuple_New(view->rank), *made = NULL;

    for (int i = 0; shape != NULL && i < view->rank; i++) {
        if (PyTuple_SetItem(shape, i, PyLong_FromLongLong(view->shape[i])) != 0) {
            Py_CLEAR(shape);
        }
    }
    made =
        shape != NULL ? Py_BuildValue("sO", sonde_dtype_name(view->dtype), shape) : NULL;
    Py_XDECREF(shape);
    return made;
}

PyDoc_STRVAR(output_doc,
             "output(i)\n--\n\n(dtype, shape) of an output of the last call.");

static PyObject *session_output(PyObject *object, PyObject *number)
{
    const session_object *self = (const session_object *)object;
    const size_t i = PyLong_AsSize_t(number);
    sonde_diag diag = {0};
    sonde_view view;

    if (PyErr_Occurred() != NULL || !is_free(self)) {
        return NULL;
    }
    if (sonde_nn_session_output(self->session, i, &view, &diag) != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    return described(&view);
}

PyDoc_STRVAR(fetch_doc, "fetch(i, tensor)\n--\n\nCopies an output of the last call.");

static PyObject *session_fetch(PyObject *object, PyObject *arguments)
{
    const session_object *self = (const session_object *)object;
    PyObject *tensor = NULL;
    Py_ssize_t i = 0;
    sonde_diag diag = {0};
    sonde_view view, target;
    sonde_err err = SONDE_OK;

    if (!PyArg_ParseTuple(arguments, "nO:fetch", &i, &tensor) || !is_free(self)) {
        return NULL;
    }
    if (!sonde__python_view(tensor, &target)) {
        return sonde__python_bad_value("fetch", "a tensor in this process's memory",
                                       "an object without readable elements");
    }
    err = sonde_nn_session_output(self->session, (size_t)i, &view, &diag);
    if (err == SONDE_OK) {
        err = sonde_view_copy(&target, &view, &diag);
    }
    return done(err, &diag);
}

PyDoc_STRVAR(anchored_doc,
             "anchored(name, tensor)\n--\n\n"
             "(dtype, shape) of an anchor's value of the last call. tensor: None, or a "
             "tensor of that shape to copy it to.");

static PyObject *session_anchored(PyObject *object, PyObject *arguments)
{
    const session_object *self = (const session_object *)object;
    PyObject *tensor = NULL;
    const char *name = NULL;
    sonde_diag diag = {0};
    sonde_view view, target;

    if (!PyArg_ParseTuple(arguments, "sO:anchored", &name, &tensor) || !is_free(self)) {
        return NULL;
    }
    if (sonde_nn_session_anchored(self->session, name, &view, &diag) != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    if (tensor != Py_None) {
        if (!sonde__python_view(tensor, &target)) {
            return sonde__python_bad_value("anchored",
                                           "a tensor in this process's memory",
                                           "an object without readable elements");
        }
        if (sonde_view_copy(&target, &view, &diag) != SONDE_OK) {
            return sonde__python_raise(&diag);
        }
    }
    return described(&view);
}

/* --- names, rates, files ------------------------------------------------------------ */

PyDoc_STRVAR(tensors_doc,
             "tensors()\n--\n\n"
             "(name, role, pass) of all tensors that can be anchored, as a list.");

static PyObject *session_tensors(PyObject *object, PyObject *unused)
{
    const sonde_catalogue *catalogue =
        sonde_nn_session_catalogue(((session_object *)object)->session);
    PyObject *list = PyList_New(0);

    (void)unused;
    for (uint32_t id = 0; list != NULL && id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);
        PyObject *entry = Py_BuildValue("sss", info->name, sonde_role_name(info->role),
                                        sonde_pass_name(info->pass));

        if (entry == NULL || PyList_Append(list, entry) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(entry);
    }
    return list;
}

PyDoc_STRVAR(outputs_doc, "outputs()\n--\n\nHow many outputs a call has.");

static PyObject *session_outputs(PyObject *object, PyObject *unused)
{
    const sonde_nn_session *session = ((session_object *)object)->session;
    sonde_nn_session_info info;
    sonde_diag diag = {0};

    (void)unused;
    return sonde_nn_session_describe(session, &info, &diag) == SONDE_OK
               ? PyLong_FromSize_t(info.output_count)
               : sonde__python_raise(&diag);
}

PyDoc_STRVAR(set_rate_doc, "set_rate(rate, group=0)\n--\n\n"
                           "The learning rate from the next call on, of the parameters\n"
                           "of no group or of those of a group, from 1.");

static PyObject *session_set_rate(PyObject *object, PyObject *arguments)
{
    session_object *self = (session_object *)object;
    double rate = 0.0;
    int group = 0;
    char name[32];
    sonde_diag diag = {0};

    if (!PyArg_ParseTuple(arguments, "d|i:set_rate", &rate, &group) || !is_free(self)) {
        return NULL;
    }
    if (group < 0 || group > self->group_count) {
        return sonde__python_bad_value("group", "a group of the session", "another");
    }
    if (group == 0) {
        self->optimizer.learning_rate = (float)rate;
        return done(
            sonde_nn_session_set_optimizer(self->session, NULL, &self->optimizer, &diag),
            &diag);
    }
    name_group(group - 1, name);
    self->groups[group - 1].learning_rate = (float)rate;
    return done(sonde_nn_session_set_optimizer(self->session, name,
                                               &self->groups[group - 1], &diag),
                &diag);
}

PyDoc_STRVAR(save_doc, "save(path)\n--\n\n"
                       "Parameters, buffers and the optimizer's state, as safetensors.");

static PyObject *session_save(PyObject *object, PyObject *path)
{
    const session_object *self = (const session_object *)object;
    const char *text = PyUnicode_AsUTF8AndSize(path, NULL);
    sonde_diag diag = {0};

    if (text == NULL || !is_free(self)) {
        return NULL;
    }
    return done(sonde_nn_session_save(self->session, text, &diag), &diag);
}

PyDoc_STRVAR(load_doc, "load(path)\n--\n\nReads what save wrote.");

static PyObject *session_load(PyObject *object, PyObject *path)
{
    const session_object *self = (const session_object *)object;
    const char *text = PyUnicode_AsUTF8AndSize(path, NULL);
    sonde_diag diag = {0};

    if (text == NULL || !is_free(self)) {
        return NULL;
    }
    return done(sonde_nn_session_load(self->session, text, &diag), &diag);
}

static PyMethodDef methods[] = {
    {"run", session_run, METH_VARARGS, run_doc},
    {"output", session_output, METH_O, output_doc},
    {"fetch", session_fetch, METH_VARARGS, fetch_doc},
    {"outputs", session_outputs, METH_NOARGS, outputs_doc},
    {"anchored", session_anchored, METH_VARARGS, anchored_doc},
    {"tensors", session_tensors, METH_NOARGS, tensors_doc},
    {"set_rate", session_set_rate, METH_VARARGS, set_rate_doc},
    {"save", session_save, METH_O, save_doc},
    {"load", session_load, METH_O, load_doc},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)session_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "sonde._sonde.Session",
    .basicsize = sizeof(session_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

bool sonde__python_add_session(PyObject *module)
{
    return sonde__python_add_type(module, &spec, (PyObject **)&session_type);
}
