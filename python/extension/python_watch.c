/*
 * python_watch.c - the type _sonde.Watch: sonde_watch (<sonde/watch.h>) with its hook and
 * rules, for a program in Python.
 *
 *     create; add slots, parameters and modules
 *     attach hooks, which keep the steps (python_step.c); or for each step: begin, see, end
 *     close
 */
#include "extension/python_watch.h"

#include <string.h>

typedef sonde__python_watch python_watch;

/* --- findings ----------------------------------------------------------------------- */

static void on_finding(void *user, const sonde_finding *finding, bool again)
{
    python_watch *self = user;
    PyGILState_STATE state;
    PyObject *tuple = NULL;

    if (again || self->deliver == NULL) {
        return;
    }
    state = PyGILState_Ensure();
    tuple = sonde__python_finding(finding);
    if (tuple == NULL || PyList_Append(self->queued, tuple) != 0) {
        PyErr_WriteUnraisable(NULL);
    }
    Py_XDECREF(tuple);
    PyGILState_Release(state);
}

/* --- life --------------------------------------------------------------------------- */

typedef struct creation {
    const char *config; /* JSON of a hook, or NULL */
    const char *path, *resume, *rules;
    PyObject *judges; /* rules in Python: a tuple */
    int rank, world;
    int64_t every[SONDE_ROLE_COUNT]; /* as in sonde_watch_options */
} creation;

static bool create_hook(const creation *wanted, sonde_hook **hook)
{
    const sonde_hook_options options = {
        .size = sizeof options,
        .record = SONDE_OPTIONS(sonde_recorder, .path = wanted->path,
                                .rank = wanted->rank, .world = wanted->world,
                                .resume = wanted->resume, .program = "sonde.watch")};
    const char *const config = wanted->config != NULL ? wanted->config : "{}";
    sonde_diag diag = {0};

    if (wanted->path != NULL && sonde_hook_parse(config, strlen(config), "save", NULL,
                                                 &options, hook, &diag) != SONDE_OK) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    return true;
}

static bool create_rules(python_watch *self, const creation *wanted)
{
    sonde_diag diag = {0};

    if (wanted->rules == NULL && PyTuple_Size(wanted->judges) == 0) {
        return true;
    }
    if (sonde_rules_create(&self->rules, &diag) != SONDE_OK ||
        (wanted->rules != NULL &&
         sonde_rules_add_list(self->rules, wanted->rules, &diag) != SONDE_OK)) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    sonde_rules_on_finding(self->rules, on_finding, self);
    return sonde__python_add_rules(self->rules, wanted->judges, &self->judging,
                                   &self->own_rules);
}

static bool create_watch(python_watch *self, const creation *wanted)
{
    sonde_watch_options options = {.size = sizeof options};
    sonde_diag diag = {0};

    if (!create_rules(self, wanted) || !create_hook(wanted, &options.hook)) {
        return false;
    }
    options.rules = self->rules;
    memcpy(options.every, wanted->every, sizeof options.every);
    if (sonde_watch_create(&options, &self->watch, &diag) != SONDE_OK) {
        (void)sonde_hook_close(options.hook, SONDE_RUN_FAILED, NULL, NULL);
        (void)sonde__python_raise(&diag);
        return false;
    }
    return true;
}

static bool set_path(python_watch *self, const char *path)
{
    const size_t size = path != NULL ? strlen(path) + 1 : 0;

    if (path == NULL) {
        return true;
    }
    self->path = PyMem_Malloc(size);
    if (self->path == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    memcpy(self->path, path, size);
    return true;
}

/* The intervals of the roles, in the order of sonde_role. */
static bool set_every(creation *wanted, PyObject *every)
{
    if (PyTuple_Size(every) != SONDE_ROLE_COUNT) {
        PyErr_SetString(PyExc_TypeError, "every: one number for each role");
        return false;
    }
    for (Py_ssize_t role = 0; role < SONDE_ROLE_COUNT; role++) {
        wanted->every[role] = PyLong_AsLongLong(PyTuple_GetItem(every, role));
    }
    return PyErr_Occurred() == NULL;
}

static PyObject *watch_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    creation wanted = {.world = 1};
    PyObject *every = NULL, *unwrap = NULL, *call = NULL, *fault = NULL;
    python_watch *self = NULL;

    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "zzzO!iizO!OOO", &wanted.path, &wanted.config,
                          &wanted.rules, &PyTuple_Type, &wanted.judges, &wanted.rank,
                          &wanted.world, &wanted.resume, &PyTuple_Type, &every, &unwrap,
                          &call, &fault) ||
        !set_every(&wanted, every)) {
        return NULL;
    }
    self = (python_watch *)allocate(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->generation = sonde__python_generation();
    self->mode = self->given_mode = -1;
    self->unwrap = Py_NewRef(unwrap);
    self->deliver = Py_NewRef(call);
    self->fault = Py_NewRef(fault);
    self->queued = PyList_New(0);
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL || self->queued == NULL || !set_path(self, wanted.path) ||
        !create_watch(self, &wanted)) {
        if (PyErr_Occurred() == NULL) {
            (void)PyErr_NoMemory();
        }
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

/* Frees the watch. In a forked child only the memory of Python is freed. */
static sonde_err shut(python_watch *self, sonde_run_end reason, const char *text,
                      sonde_diag *diag)
{
    sonde_watch *watch = self->watch;
    sonde_err err = SONDE_OK;

    self->watch = NULL;
    if (watch != NULL && self->generation == sonde__python_generation()) {
        Py_BEGIN_ALLOW_THREADS err = sonde_watch_close(watch, reason, text, diag);
        Py_END_ALLOW_THREADS
    }
    return err;
}

/* Drops the hooks and what they declared. */
static void drop_hooks(python_watch *self)
{
    if (self->hooks != NULL && !sonde__python_program_drop(self)) {
        PyErr_Clear();
    }
    sonde__python_forget_parameters(self);
    sonde__python_free_modules(self);
    sonde__python_free_losses(self);
    PyMem_Free(self->players);
    self->players = NULL;
    self->stepped_count = self->optimizer_count = self->cleared_count = 0;
    Py_CLEAR(self->hooks);
}

static void watch_dealloc(PyObject *object)
{
    python_watch *self = (python_watch *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    Py_CLEAR(self->deliver);
    (void)shut(self, SONDE_RUN_FAILED, "the watch was dropped without close", NULL);
    if (self->generation == sonde__python_generation()) {
        sonde_rules_destroy(self->rules);
        sonde__python_free_rules(self->own_rules);
    }
    drop_hooks(self);
    sonde__python_free_parameters(self);
    PyMem_Free(self->path);
    Py_XDECREF(self->unwrap);
    Py_XDECREF(self->device);
    Py_XDECREF(self->fault);
    Py_XDECREF(self->queued);
    if (self->lock != NULL) {
        PyThread_free_lock(self->lock);
    }
    release(object);
    Py_DECREF((PyObject *)type);
}

PyDoc_STRVAR(close_doc, "close(reason, text)\n--\n\n"
                        "Ends the run: reason as sonde_run_end. Raises StorageError if "
                        "records were lost.");

static PyObject *watch_close(PyObject *object, PyObject *arguments)
{
    python_watch *self = (python_watch *)object;
    sonde_diag diag = {0};
    const char *text = NULL;
    int reason = 0;
    sonde_err err = SONDE_OK;

    if (sonde__python_is_judging(self) ||
        !PyArg_ParseTuple(arguments, "iz", &reason, &text)) {
        return NULL;
    }
    sonde__python_show_kept(self);
    sonde__python_lock(self);
    err = shut(self, (sonde_run_end)reason, text, &diag);
    sonde__python_unlock(self);
    sonde__python_drop_rules(self->own_rules);
    drop_hooks(self);
    if (!sonde__python_deliver(self)) {
        return NULL;
    }
    Py_CLEAR(self->deliver); /* they may refer to an object that holds this one */
    Py_CLEAR(self->fault);
    Py_CLEAR(self->unwrap);
    Py_CLEAR(self->device);
    return err != SONDE_OK ? sonde__python_raise(&diag) : Py_NewRef(Py_None);
}

/* --- slots -------------------------------------------------------------------------- */

PyDoc_STRVAR(add_doc,
             "add(name, role, tensor, module, op, pass_, note)\n--\n\n"
             "Adds a tensor of the given one's dtype and shape; returns its slot.");

static PyObject *watch_add(PyObject *object, PyObject *arguments)
{
    python_watch *self = (python_watch *)object;
    sonde_tensor_info info = {0};
    sonde_diag diag = {0};
    sonde_view view;
    PyObject *tensor = NULL;
    uint32_t slot = 0;
    int role = 0, pass = 0;
    sonde_err err = SONDE_OK;

    if (!PyArg_ParseTuple(arguments, "siOssi|s", &info.name, &role, &tensor, &info.module,
                          &info.op, &pass, &info.note) ||
        !sonde__python_need_live(self)) {
        return NULL;
    }
    if (!sonde__python_view(tensor, &view)) {
        return sonde__python_bad_value(info.name,
                                       "at most 8 dimensions, in this process's memory",
                                       "an object without readable elements");
    }
    info.role = (sonde_role)role;
    info.pass = (sonde_pass)pass;
    info.dtype = view.dtype;
    info.rank = view.rank;
    memcpy(info.shape, view.shape, sizeof info.shape);
    sonde__python_lock(self);
    err = sonde_watch_add(self->watch, &info, &slot, &diag);
    sonde__python_unlock(self);
    return err != SONDE_OK ? sonde__python_raise(&diag) : PyLong_FromUnsignedLong(slot);
}

PyDoc_STRVAR(add_update_doc, "add_update(slot)\n--\n\n"
                             "Adds the update of a parameter's slot; returns its slot.");

static PyObject *watch_add_update(PyObject *object, PyObject *argument)
{
    python_watch *self = (python_watch *)object;
    const unsigned long weight = PyLong_AsUnsignedLong(argument);
    sonde_diag diag = {0};
    uint32_t slot = 0;
    sonde_err err = SONDE_OK;

    if (PyErr_Occurred() != NULL || !sonde__python_need_live(self)) {
        return NULL;
    }
    sonde__python_lock(self);
    err = sonde_watch_add_update(self->watch, (uint32_t)weight, &slot, &diag);
    sonde__python_unlock(self);
    return err != SONDE_OK ? sonde__python_raise(&diag) : PyLong_FromUnsignedLong(slot);
}

PyDoc_STRVAR(add_parameter_doc,
             "add_parameter(owner, key, weight, gradient, update, buffer, optimizer=0)\n"
             "--\n\n"
             "owner[key] and its .grad are read for these slots; -1: none. optimizer: "
             "the number of the one that holds it, from 1; 0: none.");
PyDoc_STRVAR(add_module_doc,
             "add_module(module, shows_input, keeps_finite=False, hides_infinite=False)\n"
             "--\n\n"
             "Adds a module; returns its number. The first is None: the program.");

PyDoc_STRVAR(add_root_doc,
             "add_root(module, is_compiled, part_of=0)\n--\n\n"
             "Its calls are forward passes of the program; returns its number. part_of: "
             "only until the root of this number is called.");

PyDoc_STRVAR(forget_doc, "forget_parameters()\n--\n\nDrops what add_parameter added.");

static PyObject *watch_forget(PyObject *object, PyObject *unused)
{
    (void)unused;
    sonde__python_forget_parameters((python_watch *)object);
    Py_RETURN_NONE;
}

/* --- hooks -------------------------------------------------------------------------- */

PyDoc_STRVAR(attach_doc,
             "attach(hooks, optimizers, tensor_type)\n--\n\n"
             "hooks declares what is seen first; a step ends when all of so many "
             "optimizers have stepped.");

/* So many optimizers, none of which has stepped. Where none is known, gradients are seen
 * after each backward pass. */
static bool set_players(python_watch *self, Py_ssize_t count)
{
    sonde__python_player *players = PyMem_Calloc((size_t)count + 1, sizeof *players);

    if (players == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    PyMem_Free(self->players);
    self->players = players;
    self->optimizer_count = (size_t)count;
    self->stepped_count = self->cleared_count = 0;
    if (count == 0) {
        sonde__python_set_cleared(self, 0, true);
    }
    return true;
}

static PyObject *watch_attach(PyObject *object, PyObject *arguments)
{
    python_watch *self = (python_watch *)object;
    PyObject *hooks = NULL, *tensor_type = NULL;
    Py_ssize_t count = 0;

    if (!PyArg_ParseTuple(arguments, "OnO", &hooks, &count, &tensor_type) ||
        !set_players(self, count)) {
        return NULL;
    }
    sonde__python_set_tensor_type(tensor_type);
    self->hooks = Py_NewRef(hooks);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    set_optimizers_doc,
    "set_optimizers(count, stepped)\n--\n\n"
    "From now on a step ends when all of so many optimizers have stepped; of the step "
    "that is on, the first `stepped` of them have.");

static PyObject *watch_set_optimizers(PyObject *object, PyObject *arguments)
{
    python_watch *self = (python_watch *)object;
    Py_ssize_t count = 0, stepped = 0;

    if (!PyArg_ParseTuple(arguments, "nn", &count, &stepped)) {
        return NULL;
    }
    if (self->players == NULL || count < 0 || stepped < 0 || stepped > count) {
        return sonde__python_bad_value(
            "set_optimizers", "a count, while hooks are installed", "another call");
    }
    if (!set_players(self, count)) {
        return NULL;
    }
    for (Py_ssize_t i = 1; i <= stepped; i++) {
        self->players[i].stepped = true;
    }
    self->stepped_count = (size_t)stepped;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(set_holder_doc, "set_holder(parameter, optimizer)\n--\n\n"
                             "The number of the optimizer that holds a parameter.");

PyDoc_STRVAR(detach_doc, "detach()\n--\n\nDrops the hooks and what they declared.");

static PyObject *watch_detach(PyObject *object, PyObject *unused)
{
    (void)unused;
    drop_hooks((python_watch *)object);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    hook_doc,
    "hook(name, optimizer=0)\n--\n\n"
    "An object to call: before_root, after_root, before_step or after_step, with the "
    "arguments of PyTorch's hooks. optimizer: the number of the one that steps, from 1.");

static PyObject *watch_hook(PyObject *object, PyObject *arguments)
{
    static const struct {
        const char *name;
        sonde__python_action *act;
    } actions[] = {
        {"before_root", sonde__python_before_root},
        {"after_root", sonde__python_after_root},
        {"before_step", sonde__python_before_step},
        {"after_step", sonde__python_after_step},
    };

    sonde__python_hook *hook = NULL;
    PyObject *name = NULL, *made = NULL;
    Py_ssize_t number = 0;

    if (!PyArg_ParseTuple(arguments, "U|n", &name, &number)) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (PyUnicode_CompareWithASCIIString(name, actions[i].name) == 0) {
            made = sonde__python_new_hook((python_watch *)object, actions[i].act, &hook);
            if (made != NULL) {
                hook->number = (size_t)number;
            }
            return made;
        }
    }
    return sonde__python_bad_value("hook", "the name of a hook", "another name");
}

/* --- values ------------------------------------------------------------------------- */

/* As sonde__python_view_of. */
static int show_value(python_watch *self, uint32_t slot, PyObject *tensor)
{
    PyObject *held = NULL;
    sonde_view view;
    const int found = sonde__python_view_of(self, tensor, &view, &held);

    if (found == 1) {
        sonde__python_show(self, slot, &view);
        Py_DECREF(held);
    }
    return found;
}

PyDoc_STRVAR(see_doc, "see(slot, tensor)\n--\n\nShows a tensor.");

static PyObject *watch_see(PyObject *object, PyObject *arguments)
{
    python_watch *self = (python_watch *)object;
    PyObject *tensor = NULL;
    unsigned int slot = 0;
    int found = 0;

    if (!PyArg_ParseTuple(arguments, "IO", &slot, &tensor)) {
        return NULL;
    }
    if (!sonde__python_is_live(self) ||
        slot >= sonde_catalogue_count(sonde_watch_catalogue(self->watch)) ||
        !sonde__python_is_due(self, slot)) {
        Py_RETURN_NONE;
    }
    found = sonde__python_put_off(self, slot, tensor, SONDE__PYTHON_ALONE);
    if (found == 0) {
        found = show_value(self, slot, tensor);
    }
    if (sonde_catalogue_info(sonde_watch_catalogue(self->watch), slot)->role ==
        SONDE_ROLE_LOSS) {
        sonde__python_name_loss(self, tensor);
    }
    return found < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(see_gradients_doc,
             "see_gradients()\n--\n\n"
             "Shows the gradients that are due and that this step has not shown.");

static PyObject *watch_see_gradients(PyObject *object, PyObject *unused)
{
    (void)unused;
    return sonde__python_see_all_gradients((python_watch *)object) ? Py_NewRef(Py_None)
                                                                   : NULL;
}

PyDoc_STRVAR(
    see_unclipped_doc,
    "see_unclipped(player, /)\n--\n\n"
    "Shows the gradients of an optimizer before they are clipped, and not after.");

static PyObject *watch_see_unclipped(PyObject *object, PyObject *number)
{
    python_watch *self = (python_watch *)object;
    const size_t player = PyLong_AsSize_t(number);

    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    if (self->players != NULL && player <= self->optimizer_count &&
        self->mode == SONDE_MODE_TRAIN) {
        if (!sonde__python_see_gradients(self, player)) {
            return NULL;
        }
        if (self->players != NULL) {
            self->players[player].early = true;
        }
    }
    return Py_NewRef(Py_None);
}

PyDoc_STRVAR(scalar_doc, "scalar(name, value)\n--\n\nRecords a number as scalar/<name>.");

static PyObject *watch_scalar(PyObject *object, PyObject *arguments)
{
    python_watch *self = (python_watch *)object;
    const char *name = NULL;
    sonde_diag diag = {0};
    double value = 0;
    sonde_err err = SONDE_OK;

    if (!PyArg_ParseTuple(arguments, "sd", &name, &value) ||
        !sonde__python_need_live(self)) {
        return NULL;
    }
    if (self->device != NULL) {
        PyObject *taken = PyObject_CallMethod(self->device, "scalar", "sd", name, value);

        if (taken != Py_False) {
            return taken;
        }
        Py_DECREF(taken);
    }
    sonde__python_lock(self);
    err = sonde_watch_scalar(self->watch, name, value, &diag);
    sonde__python_unlock(self);
    return err != SONDE_OK ? sonde__python_raise(&diag) : Py_NewRef(Py_None);
}

/* --- steps -------------------------------------------------------------------------- */

PyDoc_STRVAR(begin_doc, "begin(mode)\n--\n\n"
                        "Begins a step. Mode: 0 train, 1 eval, 2 predict, 3 global.");

static PyObject *watch_begin(PyObject *object, PyObject *argument)
{
    const long mode = PyLong_AsLong(argument);

    if (PyErr_Occurred() != NULL ||
        !sonde__python_begin((python_watch *)object, (int)mode)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(end_doc, "end()\n--\n\n"
                      "Shows what is seen at the end of a step, and ends it; rules judge "
                      "it, and findings are delivered.");

static PyObject *watch_end(PyObject *object, PyObject *unused)
{
    (void)unused;
    return sonde__python_end((python_watch *)object) ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(set_mode_doc, "set_mode(mode)\n--\n\n"
                           "The mode of steps from now on; -1: as the model says.");

static PyObject *watch_set_mode(PyObject *object, PyObject *argument)
{
    const long mode = PyLong_AsLong(argument);

    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    ((python_watch *)object)->given_mode = (int)mode;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(pause_doc, "pause(on)\n--\n\nObserves nothing while on.");

static PyObject *watch_pause(PyObject *object, PyObject *argument)
{
    if (sonde__python_is_judging((python_watch *)object)) {
        return NULL;
    }
    ((python_watch *)object)->paused = PyObject_IsTrue(argument) > 0;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    state_doc,
    "state()\n--\n\n"
    "(whether anything is observed now, whether a step has begun, the mode of the "
    "step that is on or -1).");

static PyObject *watch_state(PyObject *object, PyObject *unused)
{
    const python_watch *self = (const python_watch *)object;

    (void)unused;
    return Py_BuildValue("(OOi)", sonde__python_is_watching(self) ? Py_True : Py_False,
                         self->started ? Py_True : Py_False, self->mode);
}

PyDoc_STRVAR(where_doc, "where()\n--\n\n(mode, global step, step of the mode).");

static PyObject *watch_where(PyObject *object, PyObject *unused)
{
    const python_watch *self = (const python_watch *)object;
    sonde_coordinate where;

    (void)unused;
    if (!sonde__python_need_live(self)) {
        return NULL;
    }
    where = sonde_watch_where(self->watch);
    return Py_BuildValue("(sLL)", sonde_mode_name(where.mode),
                         (long long)where.global_step, (long long)where.mode_step);
}

/* --- what was seen ------------------------------------------------------------------ */

PyDoc_STRVAR(vitals_doc, "vitals(name)\n--\n\n"
                         "Vital signs of a tensor at the last step; None: not seen.");

static PyObject *watch_vitals(PyObject *object, PyObject *argument)
{
    python_watch *self = (python_watch *)object;
    PyObject *bytes = NULL;
    sonde_vitals vitals;
    sonde_diag diag = {0};
    uint32_t slot = 0;
    bool found = false, known = false;

    if (!sonde__python_need_live(self)) {
        return NULL;
    }
    bytes = PyUnicode_AsUTF8String(argument);
    if (bytes == NULL) {
        return NULL;
    }
    sonde__python_show_kept(self);
    sonde__python_lock(self);
    found = sonde_catalogue_find(sonde_watch_catalogue(self->watch),
                                 PyBytes_AsString(bytes), &slot, &diag) == SONDE_OK;
    known = found && sonde_watch_vitals(self->watch, slot, &vitals);
    sonde__python_unlock(self);
    Py_DECREF(bytes);
    if (!found) {
        return sonde__python_raise(&diag);
    }
    return known ? sonde__python_vitals(&vitals) : Py_NewRef(Py_None);
}

PyDoc_STRVAR(set_device_doc, "set_device(device)\n--\n\n"
                             "Values go to a device.Device from the next step on.");
PyDoc_STRVAR(return_to_doc,
             "return_to(mode, global_step, mode_step, rows, scalars)\n--\n\n"
             "Shows the values of a step that was left, and ends it. rows: (slot, dtype, "
             "shape, (full, count ... sum) or None, value or None).");
PyDoc_STRVAR(note_cleared_doc,
             "note_cleared(optimizer, cleared)\n--\n\n"
             "Whether the gradients of an optimizer were cleared before its step.");

PyDoc_STRVAR(record_next_doc,
             "record_next()\n--\n\nThe program of the next step is recorded.");
PyDoc_STRVAR(look_for_doc,
             "look_for(slot, evaluated, always)\n--\n\n"
             "program.Programs shows this tensor when it is due; evaluated: then alone.");
PyDoc_STRVAR(compare_at_doc,
             "compare_at(step)\n--\n\n"
             "program.Programs.compare is called when that step of training begins.");
PyDoc_STRVAR(note_doc,
             "note(kind, number)\n--\n\n"
             "What happens to gradients or a schedule belongs to the outline "
             "of a step. 0: it is known, 1: it is recorded now, else its outline.");

/* --- the type ----------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"add", watch_add, METH_VARARGS, add_doc},
    {"add_update", watch_add_update, METH_O, add_update_doc},
    {"add_parameter", sonde__python_add_parameter, METH_VARARGS, add_parameter_doc},
    {"add_module", sonde__python_add_module, METH_VARARGS, add_module_doc},
    {"add_root", sonde__python_add_root, METH_VARARGS, add_root_doc},
    {"forget_parameters", watch_forget, METH_NOARGS, forget_doc},
    {"attach", watch_attach, METH_VARARGS, attach_doc},
    {"set_optimizers", watch_set_optimizers, METH_VARARGS, set_optimizers_doc},
    {"set_holder", sonde__python_set_holder, METH_VARARGS, set_holder_doc},
    {"detach", watch_detach, METH_NOARGS, detach_doc},
    {"hook", watch_hook, METH_VARARGS, hook_doc},
    {"begin", watch_begin, METH_O, begin_doc},
    {"see", watch_see, METH_VARARGS, see_doc},
    {"see_gradients", watch_see_gradients, METH_NOARGS, see_gradients_doc},
    {"see_unclipped", watch_see_unclipped, METH_O, see_unclipped_doc},
    {"scalar", watch_scalar, METH_VARARGS, scalar_doc},
    {"end", watch_end, METH_NOARGS, end_doc},
    {"set_mode", watch_set_mode, METH_O, set_mode_doc},
    {"pause", watch_pause, METH_O, pause_doc},
    {"state", watch_state, METH_NOARGS, state_doc},
    {"where", watch_where, METH_NOARGS, where_doc},
    {"set_device", sonde__python_set_device, METH_O, set_device_doc},
    {"return_to", sonde__python_return_to, METH_VARARGS, return_to_doc},
    {"record_next", sonde__python_record_next, METH_NOARGS, record_next_doc},
    {"look_for", sonde__python_look_for, METH_VARARGS, look_for_doc},
    {"compare_at", sonde__python_compare_at, METH_O, compare_at_doc},
    {"program", sonde__python_record_program, METH_O,
     "program(text)\n--\n\nThe JSON text of the program of the step that is on."},
    {"note", sonde__python_note, METH_VARARGS, note_doc},
    {"note_cleared", sonde__python_note_cleared, METH_VARARGS, note_cleared_doc},
    {"vitals", watch_vitals, METH_O, vitals_doc},
    {"findings", sonde__python_watch_findings, METH_NOARGS,
     "findings()\n--\n\nAll findings so far, as tuples."},
    {"verdict", sonde__python_watch_verdict, METH_NOARGS,
     "verdict()\n--\n\nThe verdict so far as (word, line)."},
    {"accounts", sonde__python_watch_accounts, METH_NOARGS,
     "accounts()\n--\n\n[(rule, whether it had the data it needs, what it lacked)] so far."},
    {"close", watch_close, METH_VARARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)watch_new},
    {Py_tp_dealloc, (void *)watch_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "sonde._sonde.Watch",
    .basicsize = sizeof(python_watch),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

bool sonde__python_add_watch(PyObject *module)
{
    if (!sonde__python_count_forks()) {
        (void)PyErr_NoMemory();
        return false;
    }
    return sonde__python_add_type(module, &spec, NULL);
}
