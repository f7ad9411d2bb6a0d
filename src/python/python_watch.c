/*
 * python_watch.c - the type _sonde.Watch: sonde_watch (<sonde/watch.h>) with its hook and
 * rules, for a program in Python.
 *
 *     create; add slots and parameters
 *     for each step: begin, see and see_parameters, end
 *     close
 *
 * Parameters are read where their module keeps them, in its dictionary, at every step: a
 * parameter that is replaced is seen, and none is kept alive by the watch.
 *
 * The interpreter's lock is released while elements are read. `lock` keeps threads of
 * the program apart. A finding is queued where it is found and delivered once the lock
 * is free, so that a callback may use the watch. A forked child sees nothing: the
 * process that made the watch is the only one that observes and writes.
 */
#include "python/python_api.h"

#include <sonde/watch.h>

#include <string.h>
#include <unistd.h>

/* What see_parameters shows; slots that a tap wants raw are shown besides. */
enum { SEE_WEIGHTS = 1, SEE_GRADIENTS = 2, SEE_UPDATES = 4, KINDS = 3 };

#define NO_SLOT UINT32_MAX

typedef struct parameter {
    PyObject *owner, *key; /* the dictionary of its module, and its key there */
    uint32_t slots[KINDS]; /* weight, gradient, update; or NO_SLOT */
} parameter;

typedef struct python_watch {
    PyObject_HEAD sonde_watch *watch; /* NULL: closed */
    sonde_rules *rules;               /* NULL: none */
    PyThread_type_lock lock;
    pid_t process;
    bool recording;
    char *path;        /* of the run, while findings are not written to it; or NULL */
    PyObject *unwrap;  /* called with a tensor that has no readable memory */
    PyObject *queued;  /* findings to deliver */
    PyObject *deliver; /* called with a finding; or NULL */
    PyObject *gradient_name;
    parameter *parameters;
    size_t count, capacity;
    /* of one see_parameters, KINDS * capacity each */
    sonde_view *views;
    uint32_t *seen;
    PyObject **held;
} python_watch;

/* --- locking ------------------------------------------------------------------------ */

static void enter(python_watch *self)
{
    if (PyThread_acquire_lock(self->lock, NOWAIT_LOCK) == 0) {
        Py_BEGIN_ALLOW_THREADS(void) PyThread_acquire_lock(self->lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
}

static void leave(python_watch *self)
{
    PyThread_release_lock(self->lock);
}

/* Whether this process may use the watch: it is open, and not a copy after a fork. */
static bool is_live(const python_watch *self)
{
    return self->watch != NULL && getpid() == self->process;
}

static bool need_live(const python_watch *self)
{
    sonde_diag diag;

    if (is_live(self)) {
        return true;
    }
    (void)sonde_diag_set(&diag, SONDE_ESTATE, "watch", NULL,
                         self->watch == NULL ? "it is closed"
                                             : "it belongs to the parent process");
    (void)sonde__python_raise(&diag);
    return false;
}

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

/* Calls `deliver` with each queued finding. False: it raised. */
static bool deliver(python_watch *self)
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

/* --- life --------------------------------------------------------------------------- */

typedef struct creation {
    const char *config; /* JSON of a hook, or NULL */
    const char *path, *resume, *rules;
    int rank, world;
    long long rules_every, rules_raw_every;
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

static bool create_rules(python_watch *self, const char *list)
{
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (list == NULL) {
        return true;
    }
    err = sonde_rules_create(&self->rules, &diag);
    if (err == SONDE_OK) {
        err = sonde_rules_add_list(self->rules, list, &diag);
    }
    if (err != SONDE_OK) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    sonde_rules_on_finding(self->rules, on_finding, self);
    return true;
}

static bool create_watch(python_watch *self, const creation *wanted)
{
    sonde_watch_options options = {.size = sizeof options,
                                   .rules_every = wanted->rules_every,
                                   .rules_raw_every = wanted->rules_raw_every};
    sonde_diag diag = {0};

    if (!create_rules(self, wanted->rules) || !create_hook(wanted, &options.hook)) {
        return false;
    }
    options.rules = self->rules;
    if (sonde_watch_create(&options, &self->watch, &diag) != SONDE_OK) {
        (void)sonde_hook_close(options.hook, SONDE_RUN_FAILED, NULL, NULL);
        (void)sonde__python_raise(&diag);
        return false;
    }
    self->recording = options.hook != NULL;
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

static PyObject *watch_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    creation wanted = {.world = 1};
    PyObject *unwrap = NULL, *call = Py_None;
    python_watch *self = NULL;

    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "zzziizLLOO", &wanted.path, &wanted.config,
                          &wanted.rules, &wanted.rank, &wanted.world, &wanted.resume,
                          &wanted.rules_every, &wanted.rules_raw_every, &unwrap, &call)) {
        return NULL;
    }
    self = (python_watch *)allocate(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->process = getpid();
    self->unwrap = Py_NewRef(unwrap);
    self->deliver = call != Py_None ? Py_NewRef(call) : NULL;
    self->queued = PyList_New(0);
    self->gradient_name = PyUnicode_InternFromString("grad");
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL || self->queued == NULL || self->gradient_name == NULL ||
        !set_path(self, wanted.path) || !create_watch(self, &wanted)) {
        if (PyErr_Occurred() == NULL) {
            (void)PyErr_NoMemory();
        }
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static void forget_parameters(python_watch *self)
{
    const size_t count = self->count;

    self->count = 0;
    for (size_t i = 0; i < count; i++) {
        Py_CLEAR(self->parameters[i].owner);
        Py_CLEAR(self->parameters[i].key);
    }
}

/* Frees the watch. In a forked child only the memory of Python is freed. */
static sonde_err shut(python_watch *self, sonde_run_end reason, const char *text,
                      sonde_diag *diag)
{
    sonde_watch *watch = self->watch;
    sonde_err err = SONDE_OK;

    self->watch = NULL;
    if (watch != NULL && getpid() == self->process) {
        Py_BEGIN_ALLOW_THREADS err = sonde_watch_close(watch, reason, text, diag);
        Py_END_ALLOW_THREADS
    }
    return err;
}

static void watch_dealloc(PyObject *object)
{
    python_watch *self = (python_watch *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    Py_CLEAR(self->deliver);
    (void)shut(self, SONDE_RUN_FAILED, "the watch was dropped without close", NULL);
    if (getpid() == self->process) {
        sonde_rules_destroy(self->rules);
    }
    forget_parameters(self);
    PyMem_Free(self->parameters);
    PyMem_Free(self->views);
    PyMem_Free(self->seen);
    PyMem_Free(self->held);
    PyMem_Free(self->path);
    Py_XDECREF(self->unwrap);
    Py_XDECREF(self->queued);
    Py_XDECREF(self->gradient_name);
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

    if (!PyArg_ParseTuple(arguments, "iz", &reason, &text)) {
        return NULL;
    }
    enter(self);
    err = shut(self, (sonde_run_end)reason, text, &diag);
    forget_parameters(self);
    leave(self);
    if (!deliver(self)) {
        return NULL;
    }
    Py_CLEAR(self->deliver); /* it may refer to an object that holds this one */
    return err != SONDE_OK ? sonde__python_raise(&diag) : Py_NewRef(Py_None);
}

/* --- slots -------------------------------------------------------------------------- */

PyDoc_STRVAR(add_doc,
             "add(name, role, tensor, module, op, pass_)\n--\n\n"
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

    if (!PyArg_ParseTuple(arguments, "siOssi", &info.name, &role, &tensor, &info.module,
                          &info.op, &pass) ||
        !need_live(self)) {
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
    enter(self);
    err = sonde_watch_add(self->watch, &info, &slot, &diag);
    leave(self);
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

    if (PyErr_Occurred() != NULL || !need_live(self)) {
        return NULL;
    }
    enter(self);
    err = sonde_watch_add_update(self->watch, (uint32_t)weight, &slot, &diag);
    leave(self);
    return err != SONDE_OK ? sonde__python_raise(&diag) : PyLong_FromUnsignedLong(slot);
}

static bool reserve(python_watch *self)
{
    const size_t capacity = self->capacity == 0 ? 16 : 2 * self->capacity;
    parameter *parameters =
        PyMem_Realloc(self->parameters, capacity * sizeof *self->parameters);
    sonde_view *views = NULL;
    uint32_t *seen = NULL;
    PyObject **held = NULL;

    if (parameters != NULL) {
        self->parameters = parameters;
        views = PyMem_Realloc(self->views, KINDS * capacity * sizeof *self->views);
    }
    if (views != NULL) {
        self->views = views;
        seen = PyMem_Realloc(self->seen, KINDS * capacity * sizeof *self->seen);
    }
    if (seen != NULL) {
        self->seen = seen;
        held = PyMem_Realloc(self->held, KINDS * capacity * sizeof *self->held);
    }
    if (held == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    self->held = held;
    self->capacity = capacity;
    return true;
}

PyDoc_STRVAR(add_parameter_doc,
             "add_parameter(owner, key, weight, gradient, update)\n--\n\n"
             "see_parameters reads owner[key] and its .grad for these slots; -1: none.");

static PyObject *watch_add_parameter(PyObject *object, PyObject *arguments)
{
    python_watch *self = (python_watch *)object;
    PyObject *owner = NULL, *key = NULL;
    int slots[KINDS] = {-1, -1, -1};

    if (!PyArg_ParseTuple(arguments, "O!Oiii", &PyDict_Type, &owner, &key, &slots[0],
                          &slots[1], &slots[2]) ||
        !need_live(self)) {
        return NULL;
    }
    if (self->count == self->capacity && !reserve(self)) {
        return NULL;
    }
    self->parameters[self->count] =
        (parameter){.owner = Py_NewRef(owner), .key = Py_NewRef(key)};
    for (int i = 0; i < KINDS; i++) {
        self->parameters[self->count].slots[i] =
            slots[i] < 0 ? NO_SLOT : (uint32_t)slots[i];
    }
    self->count++;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(forget_doc, "forget_parameters()\n--\n\nDrops what add_parameter added.");

static PyObject *watch_forget(PyObject *object, PyObject *unused)
{
    (void)unused;
    enter((python_watch *)object);
    forget_parameters((python_watch *)object);
    leave((python_watch *)object);
    Py_RETURN_NONE;
}

/* --- values ------------------------------------------------------------------------- */

/* Whether a slot is to be shown: a tap wants it, and it is due, or a raw value or a
 * sketch is wanted of it. */
static bool is_wanted(const python_watch *self, uint32_t slot, bool due)
{
    const unsigned wants = slot != NO_SLOT ? self->watch->wants[slot] : 0;

    return wants != 0 && (due || (wants & (SONDE_HOW_RAW | SONDE_HOW_SKETCH)) != 0);
}

/*
 * A view of a tensor; *held becomes a reference to what keeps its memory. Tensors
 * without readable memory go through `unwrap`, which returns another object or None. 1:
 * viewed, 0: there is nothing to see, -1: an exception is set.
 */
static int view_of(python_watch *self, PyObject *tensor, sonde_view *view,
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

/* Takes up one tensor at place n of the arrays. */
static int gather(python_watch *self, PyObject *tensor, uint32_t slot, size_t *n)
{
    const int found = view_of(self, tensor, &self->views[*n], &self->held[*n]);

    if (found == 1) {
        self->seen[(*n)++] = slot;
    }
    return found < 0 ? -1 : 0;
}

/* kinds: what this moment of the step may show; due: of them, what is due. */
static int gather_parameter(python_watch *self, const parameter *from, int kinds, int due,
                            size_t *n)
{
    const bool weight = (kinds & SEE_WEIGHTS) != 0 &&
                        is_wanted(self, from->slots[0], (due & SEE_WEIGHTS) != 0);
    const bool gradient = (kinds & SEE_GRADIENTS) != 0 &&
                          is_wanted(self, from->slots[1], (due & SEE_GRADIENTS) != 0);
    const bool update =
        (kinds & due & SEE_UPDATES) != 0 && is_wanted(self, from->slots[2], true);
    PyObject *value = NULL, *grad = NULL;
    int result = 0;

    if (!weight && !gradient && !update) {
        return 0;
    }
    value = PyDict_GetItemWithError(from->owner, from->key);
    if (value == NULL || value == Py_None) {
        return PyErr_Occurred() != NULL ? -1 : 0;
    }
    if (gradient) {
        grad = PyObject_GetAttr(value, self->gradient_name);
        result = grad == NULL      ? -1
                 : grad != Py_None ? gather(self, grad, from->slots[1], n)
                                   : 0;
        Py_XDECREF(grad); /* `held` keeps it */
    }
    if (result == 0 && weight) {
        result = gather(self, value, from->slots[0], n);
    }
    if (result == 0 && update) {
        result = gather(self, value, from->slots[2], n);
    }
    return result;
}

PyDoc_STRVAR(
    see_parameters_doc,
    "see_parameters(kinds, due)\n--\n\n"
    "Shows weights (1), gradients (2) and updates (4) of the parameters: of these "
    "kinds those that are due, or whose raw value is wanted.");

static PyObject *watch_see_parameters(PyObject *object, PyObject *arguments)
{
    python_watch *self = (python_watch *)object;
    size_t n = 0;
    int kinds = 0, due = 0, result = 0;

    if (!PyArg_ParseTuple(arguments, "ii", &kinds, &due)) {
        return NULL;
    }
    if (!is_live(self)) {
        Py_RETURN_NONE;
    }
    enter(self);
    for (size_t i = 0; result == 0 && i < self->count; i++) {
        result = gather_parameter(self, &self->parameters[i], kinds, due, &n);
    }
    if (n > 0) {
        Py_BEGIN_ALLOW_THREADS sonde_watch_see_all(self->watch, self->seen, self->views,
                                                   n);
        Py_END_ALLOW_THREADS
    }
    leave(self);
    for (size_t i = 0; i < n; i++) {
        Py_DECREF(self->held[i]);
    }
    return result == 0 ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(see_doc, "see(slot, tensor, due)\n--\n\n"
                      "Shows a tensor, if due or if its raw value is wanted.");

static PyObject *watch_see(PyObject *object, PyObject *arguments)
{
    python_watch *self = (python_watch *)object;
    PyObject *tensor = NULL, *held = NULL;
    unsigned int slot = 0;
    int due = 0, found = 0;
    sonde_view view;

    if (!PyArg_ParseTuple(arguments, "IOp", &slot, &tensor, &due)) {
        return NULL;
    }
    if (!is_live(self) ||
        slot >= sonde_catalogue_count(sonde_watch_catalogue(self->watch)) ||
        !is_wanted(self, slot, due != 0)) {
        Py_RETURN_NONE;
    }
    found = view_of(self, tensor, &view, &held);
    if (found == 1) {
        enter(self);
        Py_BEGIN_ALLOW_THREADS sonde_watch_see(self->watch, slot, &view);
        Py_END_ALLOW_THREADS leave(self);
        Py_DECREF(held);
    }
    return found < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(scalar_doc, "scalar(name, value)\n--\n\nRecords a number as scalar/<name>.");

static PyObject *watch_scalar(PyObject *object, PyObject *arguments)
{
    python_watch *self = (python_watch *)object;
    const char *name = NULL;
    sonde_diag diag = {0};
    double value = 0;
    sonde_err err = SONDE_OK;

    if (!PyArg_ParseTuple(arguments, "sd", &name, &value) || !need_live(self)) {
        return NULL;
    }
    enter(self);
    err = sonde_watch_scalar(self->watch, name, value, &diag);
    leave(self);
    return err != SONDE_OK ? sonde__python_raise(&diag) : Py_NewRef(Py_None);
}

/* --- steps -------------------------------------------------------------------------- */

PyDoc_STRVAR(begin_doc,
             "begin(mode)\n--\n\n"
             "Begins a step; returns its number within the mode. Mode: 0 train, "
             "1 eval, 2 predict, 3 global.");

static PyObject *watch_begin(PyObject *object, PyObject *argument)
{
    python_watch *self = (python_watch *)object;
    const long mode = PyLong_AsLong(argument);
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (PyErr_Occurred() != NULL || !need_live(self)) {
        return NULL;
    }
    enter(self);
    Py_BEGIN_ALLOW_THREADS err =
        sonde_watch_begin_step(self->watch, (sonde_mode)mode, &diag);
    if (err == SONDE_OK && self->rules != NULL && self->path != NULL) {
        err = sonde_rules_write_to(self->rules, self->path, &diag);
    }
    Py_END_ALLOW_THREADS if (err == SONDE_OK)
    {
        PyMem_Free(self->path);
        self->path = NULL;
    }
    leave(self);
    return err != SONDE_OK
               ? sonde__python_raise(&diag)
               : PyLong_FromLongLong(sonde_watch_where(self->watch).mode_step);
}

PyDoc_STRVAR(end_doc, "end()\n--\n\n"
                      "Ends the step; rules judge it, and findings are delivered.");

static PyObject *watch_end(PyObject *object, PyObject *unused)
{
    python_watch *self = (python_watch *)object;

    (void)unused;
    if (!is_live(self)) {
        Py_RETURN_NONE;
    }
    enter(self);
    Py_BEGIN_ALLOW_THREADS sonde_watch_end_step(self->watch);
    Py_END_ALLOW_THREADS leave(self);
    return deliver(self) ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(where_doc, "where()\n--\n\n(mode, global step, step of the mode).");

static PyObject *watch_where(PyObject *object, PyObject *unused)
{
    const python_watch *self = (const python_watch *)object;
    sonde_coordinate where;

    (void)unused;
    if (!need_live(self)) {
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
    sonde_err err = SONDE_OK;
    bool known = false;

    if (!need_live(self)) {
        return NULL;
    }
    bytes = PyUnicode_AsUTF8String(argument);
    if (bytes == NULL) {
        return NULL;
    }
    enter(self);
    err = sonde_catalogue_find(sonde_watch_catalogue(self->watch),
                               PyBytes_AsString(bytes), &slot, &diag);
    known = err == SONDE_OK && sonde_watch_vitals(self->watch, slot, &vitals);
    leave(self);
    Py_DECREF(bytes);
    if (err != SONDE_OK) {
        return sonde__python_raise(&diag);
    }
    return known ? sonde__python_vitals(&vitals) : Py_NewRef(Py_None);
}

PyDoc_STRVAR(findings_doc, "findings()\n--\n\nAll findings so far, as tuples.");

static PyObject *watch_findings(PyObject *object, PyObject *unused)
{
    python_watch *self = (python_watch *)object;
    PyObject *list = NULL;

    (void)unused;
    if (self->rules == NULL || getpid() != self->process) {
        return PyList_New(0);
    }
    enter(self);
    list = sonde__python_findings(self->rules);
    leave(self);
    return list;
}

PyDoc_STRVAR(judged_doc, "judged()\n--\n\n(rules that had their data, steps judged).");

static PyObject *watch_judged(PyObject *object, PyObject *unused)
{
    python_watch *self = (python_watch *)object;
    unsigned long long judged = 0, steps = 0;

    (void)unused;
    if (self->rules == NULL || getpid() != self->process) {
        return Py_BuildValue("(KK)", 0ULL, 0ULL);
    }
    enter(self);
    steps = sonde_rules_steps(self->rules);
    for (size_t i = 0; i < sonde_rules_count(self->rules); i++) {
        sonde_rule_account account;

        sonde_rules_account(self->rules, i, &account);
        judged += account.judged && account.steps > 0 ? 1 : 0;
    }
    leave(self);
    return Py_BuildValue("(KK)", judged, steps);
}

/* --- the type ----------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"add", watch_add, METH_VARARGS, add_doc},
    {"add_update", watch_add_update, METH_O, add_update_doc},
    {"add_parameter", watch_add_parameter, METH_VARARGS, add_parameter_doc},
    {"forget_parameters", watch_forget, METH_NOARGS, forget_doc},
    {"begin", watch_begin, METH_O, begin_doc},
    {"see", watch_see, METH_VARARGS, see_doc},
    {"see_parameters", watch_see_parameters, METH_VARARGS, see_parameters_doc},
    {"scalar", watch_scalar, METH_VARARGS, scalar_doc},
    {"end", watch_end, METH_NOARGS, end_doc},
    {"where", watch_where, METH_NOARGS, where_doc},
    {"vitals", watch_vitals, METH_O, vitals_doc},
    {"findings", watch_findings, METH_NOARGS, findings_doc},
    {"judged", watch_judged, METH_NOARGS, judged_doc},
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
    return sonde__python_add_type(module, &spec, NULL);
}
