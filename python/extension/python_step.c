/*
 * python_step.c - when a step begins and ends.
 *
 * A step of training begins with the forward pass of a root in training mode with
 * gradients enabled, and ends when every optimizer has stepped; several backward passes
 * before that are micro-batches of one step. A forward pass in evaluation mode, or without
 * gradients, is a step of mode eval; it lasts until the next step, so that its loss belongs
 * to it. The weights of the first step of training are those before it. What is due, the
 * watch decides; a slot that is not costs a byte load.
 */
#include "extension/python_watch.h"

#include <string.h>
#include <unistd.h>

enum { MOST_TURNS = 2000 };

/* Roles of what is seen once an optimizer has stepped. */
static const unsigned AFTER = 1U << SONDE_ROLE_WEIGHT | 1U << SONDE_ROLE_BIAS |
                              1U << SONDE_ROLE_BUFFER | 1U << SONDE_ROLE_UPDATE |
                              1U << SONDE_ROLE_OPTIMIZER;

/* --- begin and end ------------------------------------------------------------------ */

/* Whether outputs of modules are checked at the step that is on. */
static bool are_checked(const sonde__python_watch *self)
{
    return !self->unreadable &&
           (sonde_watch_checks_role(self->watch, SONDE_ROLE_ACTIVATION) ||
            sonde_watch_checks_role(self->watch, SONDE_ROLE_OUTPUT));
}

/* The first step opens the run, into which findings are written. */
static sonde_err begin_step(sonde__python_watch *self, int mode, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    Py_BEGIN_ALLOW_THREADS err =
        sonde_watch_begin_step(self->watch, (sonde_mode)mode, diag);
    Py_END_ALLOW_THREADS if (err != SONDE_OK || self->path == NULL)
    {
        return err;
    }
    if (self->rules != NULL) {
        err = sonde_rules_write_to(self->rules, self->path, diag);
        if (err != SONDE_OK) {
            return err;
        }
    }
    PyMem_Free(self->path);
    self->path = NULL;
    return SONDE_OK;
}

static bool begin(sonde__python_watch *self, int mode)
{
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (!sonde__python_need_live(self)) {
        return false;
    }
    sonde__python_show_kept(self);
    if (self->device != NULL &&
        (!sonde__python_poll(self) || !sonde__python_deliver(self))) {
        return false;
    }
    if (self->watch == NULL) {
        return true; /* closed by on_finding */
    }
    sonde__python_lock(self);
    err = begin_step(self, mode, &diag);
    sonde__python_unlock(self);
    if (err != SONDE_OK) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    self->mode = mode;
    self->was_bad = false;
    if (mode == SONDE_MODE_TRAIN && self->players != NULL && self->optimizer_count == 0) {
        sonde__python_note_versions(self);
    }
    self->steps++;
    self->thread = PyThread_get_thread_ident();
    self->started = true;
    self->weighs = mode == SONDE_MODE_TRAIN && !self->weighed;
    self->weighed = self->weighed || self->weighs;
    return (!self->weighs || sonde__python_see_parameters(self, SONDE__PYTHON_WEIGHTS)) &&
           sonde__python_program_begin(self, mode);
}

bool sonde__python_begin(sonde__python_watch *self, int mode)
{
    const unsigned long outer = self->turning;

    self->turning = PyThread_get_thread_ident();
    const bool good = begin(self, mode);
    self->turning = outer;
    return good;
}

/* The forward pass is over. */
static void hide_modules(sonde__python_watch *self)
{
    self->shows_modules = false;
    self->inside = 0;
    self->root_input = NULL;
    Py_CLEAR(self->last_output);
    Py_CLEAR(self->last_checked);
    sonde__python_forget_signed(self);
}

/* Ends the step for the rules and the recorder; on a device, leaves it. */
static bool judge(sonde__python_watch *self)
{
    if (self->device != NULL) {
        sonde__python_forget_named(self);
        return sonde__python_leave(self) && sonde__python_poll(self);
    }
    sonde__python_lock(self);
    sonde__python_forget_named(self);
    Py_BEGIN_ALLOW_THREADS sonde_watch_end_step(self->watch);
    Py_END_ALLOW_THREADS sonde__python_unlock(self);
    return true;
}

/* What a step says of the optimizers ends with it. */
static void forget_players(sonde__python_watch *self)
{
    for (size_t i = 0; self->players != NULL && i <= self->optimizer_count; i++) {
        self->players[i] = (sonde__python_player){.cleared = self->players[i].cleared};
    }
    self->stepped_count = 0;
    self->went_back = false;
    self->passes = 0;
    self->endless = false;
}

static bool end(sonde__python_watch *self)
{
    unsigned kinds = SONDE__PYTHON_BUFFERS | (self->weighs ? 0 : SONDE__PYTHON_WEIGHTS);
    const bool judged = self->judged;
    bool good = true, recorded = true;

    if (self->mode < 0 || !sonde__python_is_live(self)) {
        return true;
    }
    hide_modules(self);
    if (self->late_count > 0) {
        sonde__python_finish_late(self);
    }
    if (self->mode == SONDE_MODE_TRAIN) {
        kinds |= SONDE__PYTHON_UPDATES;
    }
    if (!judged) {
        good = sonde__python_see_parameters(self, kinds);
    }
    recorded = sonde__python_program_end(self);
    forget_players(self);
    self->mode = -1;
    self->judged = false;
    if (good && !judged) {
        good = judge(self);
    }
    return good && recorded && sonde__python_deliver(self);
}

bool sonde__python_end(sonde__python_watch *self)
{
    const unsigned long outer = self->turning;

    self->turning = PyThread_get_thread_ident();
    const bool good = end(self);
    self->turning = outer;
    return good;
}

/* --- forward ------------------------------------------------------------------------ */

/* Whether a forward pass of this mode ends the step that is on: a program without an
 * optimizer of PyTorch's has changed its parameters after a backward pass. */
static bool ends_before(const sonde__python_watch *self, int mode)
{
    return self->mode != SONDE_MODE_TRAIN || mode != self->mode || self->judged ||
           self->endless ||
           (self->went_back && self->players != NULL && self->optimizer_count == 0 &&
            sonde__python_have_moved(self));
}

/* The mode of a forward pass without gradients of a model in training mode: of another
 * thread than that of the steps, it belongs to none (-1). */
static int mode_without_gradients(const sonde__python_watch *self)
{
    return !self->started || self->thread == PyThread_get_thread_ident() ? SONDE_MODE_EVAL
                                                                         : -1;
}

int sonde__python_keeps_gradients(const sonde__python_watch *self)
{
    static PyObject *name;
    PyObject *asked = sonde__python_attribute(self->hooks, &name, "is_grad_enabled");
    PyObject *enabled = asked != NULL ? PyObject_CallObject(asked, NULL) : NULL;
    const int yes = enabled != NULL ? PyObject_IsTrue(enabled) : -1;

    Py_XDECREF(asked);
    Py_XDECREF(enabled);
    return yes;
}

/* The mode of a forward pass: -1: it belongs to no step, -2: an exception is set. */
static int mode_of(const sonde__python_watch *self, PyObject *root)
{
    static PyObject *training_name;
    PyObject *training = NULL;
    int yes = 0;

    if (self->given_mode >= 0) {
        return self->given_mode;
    }
    training = sonde__python_attribute(root, &training_name, "training");
    yes = training != NULL ? PyObject_IsTrue(training) : -1;
    Py_XDECREF(training);
    if (yes <= 0) {
        return yes < 0 ? -2 : SONDE_MODE_EVAL;
    }
    yes = sonde__python_keeps_gradients(self);
    return yes < 0 ? -2 : yes > 0 ? SONDE_MODE_TRAIN : mode_without_gradients(self);
}

/* Another thread begins or ends a step, and runs Python meanwhile: a step of training waits
 * for it, at most MOST_TURNS ms. False: the forward pass belongs to no step. */
static bool takes_turn(sonde__python_watch *self, int mode)
{
    const unsigned long thread = PyThread_get_thread_ident();

    if (mode == SONDE_MODE_TRAIN && self->mode != mode) {
        self->thread =
            thread; /* passes of other threads belong to no step from here on */
    }
    for (int i = 0; self->turning != 0 && self->turning != thread; i++) {
        if (mode != SONDE_MODE_TRAIN || i == MOST_TURNS) {
            return false;
        }
        Py_BEGIN_ALLOW_THREADS(void) usleep(1000);
        Py_END_ALLOW_THREADS
    }
    return true;
}

bool sonde__python_begin_root(sonde__python_watch *self, size_t index, PyObject *root,
                              PyObject *inputs)
{
    const int mode = mode_of(self, root);
    const bool is_taken_over = mode == SONDE_MODE_TRAIN && self->mode != mode &&
                               self->thread != PyThread_get_thread_ident();

    if (index < self->module_count) {
        self->modules[index].was_called = true;
    }
    if (mode < 0 || (mode != SONDE_MODE_TRAIN && self->mode == SONDE_MODE_TRAIN)) {
        return mode > -2; /* an evaluation between backward and step is not observed */
    }
    if (!takes_turn(self, mode)) {
        return true;
    }
    if ((self->inside == 0 || is_taken_over) && ends_before(self, mode) &&
        !sonde__python_end(self)) {
        return false;
    }
    if (self->hooks == NULL) {
        return true; /* closed by on_finding */
    }
    if (self->mode < 0 && !sonde__python_begin(self, mode)) {
        return false;
    }
    if (self->inside++ == 0) {
        sonde__python_outline(self, SONDE__PYTHON_FORWARD, index);
        if (!sonde__python_program_tell(self, "forward", root, inputs)) {
            return false;
        }
    }
    self->only_checks = !sonde__python_are_modules_due(self);
    if (self->only_checks && !are_checked(self)) {
        return true;
    }
    if (self->inside == 1) {
        sonde__python_restart_modules(self);
    }
    self->shows_modules =
        index >= self->module_count || !self->modules[index].is_compiled;
    return !self->shows_modules || sonde__python_see_inputs(self, inputs);
}

bool sonde__python_end_root(sonde__python_watch *self)
{
    if (self->inside > 0 && --self->inside == 0) {
        hide_modules(self);
    }
    return true;
}

bool sonde__python_before_root(sonde__python_watch *self, const sonde__python_hook *hook,
                               PyObject *arguments)
{
    PyObject *root = NULL, *inputs = NULL;

    (void)hook;
    if (self->hooks == NULL ||
        PyArg_UnpackTuple(arguments, "before_root", 2, 2, &root, &inputs) == 0) {
        return self->hooks == NULL;
    }
    return sonde__python_begin_root(self, sonde__python_find_module(self, root), root,
                                    inputs);
}

bool sonde__python_after_root(sonde__python_watch *self, const sonde__python_hook *hook,
                              PyObject *arguments)
{
    (void)hook;
    (void)arguments;
    return sonde__python_end_root(self);
}

/* --- the optimizer ------------------------------------------------------------------ */

/* Whether step was called with a closure, which computes the gradients within it. */
static bool has_closure(PyObject *optimizer, PyObject *arguments, PyObject *options)
{
    PyObject *closure =
        PyDict_Size(options) > 0 ? PyDict_GetItemString(options, "closure") : NULL;
    const Py_ssize_t count = PyTuple_Size(arguments);
    const Py_ssize_t first =
        count > 0 && PyTuple_GetItem(arguments, 0) == optimizer ? 1 : 0;

    return (closure != NULL && closure != Py_None) ||
           (count > first && PyTuple_GetItem(arguments, first) != Py_None);
}

/* Shows what is due before an optimizer steps. If nothing is due after that, the step ends
 * here, while the rules' data are in the caches; findings are delivered at its end. */
static bool see_before_step(sonde__python_watch *self, size_t player, bool closure)
{
    if ((self->stepped_count == 0 &&
         !sonde__python_see_parameters(self, SONDE__PYTHON_UPDATES)) ||
        (!closure && !sonde__python_see_gradients(self, player))) {
        return false;
    }
    if (!closure && self->optimizer_count == 1 && self->late_count > 0) {
        sonde__python_finish_late(self);
    }
    if (!closure && self->optimizer_count == 1 && !self->programs.on &&
        sonde__python_is_live(self) && !sonde__python_are_due(self, AFTER)) {
        self->judged = true;
        return judge(self);
    }
    return true;
}

bool sonde__python_before_step(sonde__python_watch *self, const sonde__python_hook *hook,
                               PyObject *arguments)
{
    PyObject *optimizer = NULL, *given = NULL, *options = NULL;

    if (!PyArg_ParseTuple(arguments, "OO!O!", &optimizer, &PyTuple_Type, &given,
                          &PyDict_Type, &options)) {
        return false;
    }
    if (self->players != NULL && self->players[hook->number].stepped &&
        !sonde__python_end(self)) {
        return false; /* it steps again before another one did */
    }
    if (self->hooks == NULL) {
        return true; /* closed by on_finding */
    }
    if (self->mode != SONDE_MODE_TRAIN &&
        !(sonde__python_end(self) &&
          (self->hooks == NULL || sonde__python_begin(self, SONDE_MODE_TRAIN)))) {
        return false;
    }
    if (self->hooks == NULL) {
        return true;
    }
    sonde__python_outline(self, SONDE__PYTHON_STEP, hook->number);
    return self->judged ||
           (see_before_step(self, hook->number, has_closure(optimizer, given, options)) &&
            sonde__python_program_tell(self, "step", optimizer, NULL));
}

bool sonde__python_after_step(sonde__python_watch *self, const sonde__python_hook *hook,
                              PyObject *arguments)
{
    PyObject *optimizer = NULL, *given = NULL, *options = NULL;

    if (!PyArg_ParseTuple(arguments, "OO!O!", &optimizer, &PyTuple_Type, &given,
                          &PyDict_Type, &options)) {
        return false;
    }
    if (self->mode != SONDE_MODE_TRAIN || self->players == NULL) {
        return true;
    }
    if (!sonde__python_program_tell(self, "stepped", NULL, NULL)) {
        return false;
    }
    self->stepped_count += !self->players[hook->number].stepped;
    self->players[hook->number].stepped = true;
    self->passes = 0;
    if (sonde__python_are_due(self, 1U << SONDE_ROLE_OPTIMIZER) &&
        !sonde__python_see_state(self, optimizer)) {
        return false;
    }
    if (has_closure(optimizer, given, options) &&
        !sonde__python_see_gradients(self, hook->number)) {
        return false;
    }
    return self->stepped_count < self->optimizer_count || sonde__python_end(self);
}
