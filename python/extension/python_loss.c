/*
 * python_loss.c - the function in place of torch.autograd.backward, which shows the loss of
 * the step that is on.
 *
 * Each place in the program that calls backward has a loss of its own name, or several,
 * which python/sonde/loss_places.py tells apart: it is asked at the first LOOKS passes of a
 * place and, where several come in one step, until it has found that they are of one loss.
 * A place is a code object and the number of an instruction in it.
 */
#include "extension/python_watch.h"

enum { LOOKS = 16 };
/* Backward passes of a step, since an optimizer stepped, at which the hooks are told; 10
 * where no optimizer is known, for gradients are accumulated over more. */
enum { MANY = 100, MANY_ALONE = 10 };

struct sonde__python_loss {
    PyObject *code; /* a reference */
    long instruction;
    uint32_t slot;   /* of the only loss of the place, or the last one */
    uint64_t step;   /* of the last pass, by sonde__python_watch.steps */
    unsigned passes; /* up to LOOKS */
    bool again;      /* a step had several */
    bool known;      /* they are of one loss */
};

/* --- losses ------------------------------------------------------------------------- */

/* The place in the program; it is added when it is new. NULL: an exception is set. */
static sonde__python_loss *find_place(sonde__python_watch *watch, PyObject *code,
                                      long instruction)
{
    const size_t count = watch->loss_count;

    for (size_t i = 0; i < count; i++) {
        if (watch->losses[i].code == code &&
            watch->losses[i].instruction == instruction) {
            return &watch->losses[i];
        }
    }
    if (count == watch->loss_capacity) {
        const size_t capacity = count == 0 ? 4 : 2 * count;
        sonde__python_loss *losses =
            PyMem_Realloc(watch->losses, capacity * sizeof *losses);

        if (losses == NULL) {
            (void)PyErr_NoMemory();
            return NULL;
        }
        watch->losses = losses;
        watch->loss_capacity = capacity;
    }
    watch->losses[watch->loss_count++] =
        (sonde__python_loss){.code = Py_NewRef(code), .instruction = instruction};
    return &watch->losses[count];
}

/* Asks the hooks which loss of its place this is: its slot, and whether that is known for
 * good. readable: the tensor, or what stands for it in host memory. */
static bool ask(const sonde__python_watch *watch, PyObject *frame, PyObject *tensor,
                PyObject *readable, bool again, uint32_t *slot, bool *known)
{
    PyObject *found = PyObject_CallMethod(watch->hooks, "find_loss", "OOOO", frame,
                                          tensor, readable, again ? Py_True : Py_False);
    unsigned int number = 0;
    int good = 0, yes = 0;

    good = found != NULL && PyArg_ParseTuple(found, "Ip", &number, &yes);
    Py_XDECREF(found);
    *slot = (uint32_t)number;
    *known = yes != 0;
    return good;
}

/* The slot of the loss of a pass of a place. The hooks run Python's code: it may call
 * backward on this watch, and move the places. */
static bool find_loss(sonde__python_watch *watch, PyObject *code, long instruction,
                      PyObject *frame, PyObject *tensor, PyObject *readable,
                      uint32_t *slot)
{
    sonde__python_loss *place = find_place(watch, code, instruction);
    bool again = false, known = false;

    if (place == NULL) {
        return false;
    }
    again = place->passes > 0 && place->step == watch->steps;
    place->again = place->again || again;
    place->step = watch->steps;
    *slot = place->slot;
    if (place->known || (place->passes == LOOKS && !place->again)) {
        return true;
    }
    if (!ask(watch, frame, tensor, readable, again, slot, &known)) {
        return false;
    }
    place = find_place(watch, code, instruction);
    if (place != NULL) {
        place->slot = *slot;
        place->known = known;
        place->passes += place->passes < LOOKS;
    }
    return place != NULL;
}

void sonde__python_name_loss(sonde__python_watch *self, PyObject *tensor)
{
    if (self->named == NULL) {
        self->named = PyList_New(0);
    }
    if (self->named == NULL || PyList_Append(self->named, tensor) != 0) {
        PyErr_Clear(); /* without memory the loss is also seen at its backward() */
    }
}

void sonde__python_forget_named(sonde__python_watch *self)
{
    if (self->named != NULL && PyList_Size(self->named) > 0 &&
        PyList_SetSlice(self->named, 0, PyList_Size(self->named), NULL) != 0) {
        PyErr_Clear();
    }
}

static bool is_named(const sonde__python_watch *self, const PyObject *tensor)
{
    const Py_ssize_t count = self->named == NULL ? 0 : PyList_Size(self->named);

    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyList_GetItem(self->named, i) == tensor) {
            return true;
        }
    }
    return false;
}

void sonde__python_free_losses(sonde__python_watch *self)
{
    Py_CLEAR(self->named);
    for (size_t i = 0; i < self->loss_count; i++) {
        Py_DECREF(self->losses[i].code);
    }
    PyMem_Free(self->losses);
    self->losses = NULL;
    self->loss_count = self->loss_capacity = 0;
}

/* --- backward ----------------------------------------------------------------------- */

typedef struct backward {
    PyObject_HEAD PyObject *plain; /* torch.autograd.backward */
    PyObject
        *methods; /* a tuple: the code of torch.Tensor.backward, which calls it, and of
                          what calls that in its turn */
    PyObject *watches; /* a list */
    bool scaled; /* a loss may have been scaled, and know the one that it was made of */
} backward;

/* The caller's frame, code and instruction; Tensor.backward is not a caller. */
static bool find_caller(const backward *self, PyObject **frame, PyObject **code,
                        long *instruction)
{
    PyObject *number = NULL;

    *instruction = 0;
    *frame = (PyObject *)PyEval_GetFrame();
    if (*frame == NULL) { /* called by a program in C */
        *frame = Py_NewRef(Py_None);
        *code = Py_NewRef(self->plain);
        return true;
    }
    Py_INCREF(*frame);
    *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)*frame);
    while (PySequence_Contains(self->methods, *code) == 1) {
        PyObject *outer = PyObject_GetAttrString(*frame, "f_back");

        if (outer == NULL || outer == Py_None) {
            Py_XDECREF(outer);
            break;
        }
        Py_DECREF(*frame);
        Py_DECREF(*code);
        *frame = outer;
        *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)outer);
    }
    number = PyObject_GetAttrString(*frame, "f_lasti");
    *instruction = number != NULL ? PyLong_AsLong(number) : 0;
    Py_XDECREF(number);
    if (PyErr_Occurred() != NULL) {
        Py_CLEAR(*frame);
        Py_CLEAR(*code);
        return false;
    }
    return true;
}

/* Whether a tensor has one element; if it has no readable memory, as it says itself. */
static bool is_scalar(PyObject *tensor)
{
    PyObject *count = NULL;
    sonde_view view;
    long elements = 0;

    if (sonde__python_view(tensor, &view)) {
        return sonde_view_count(&view) == 1;
    }
    count = PyObject_CallMethod(tensor, "numel", NULL);
    elements = count != NULL ? PyLong_AsLong(count) : 0;
    Py_XDECREF(count);
    PyErr_Clear();
    return elements == 1;
}

/* The loss before a GradScaler scaled it; else the tensor. A new reference. */
static PyObject *unscaled(const backward *self, PyObject *tensor)
{
    PyObject *loss = self->scaled ? PyObject_GetAttrString(tensor, "_sonde_loss") : NULL;

    if (loss == NULL) {
        PyErr_Clear();
        return Py_NewRef(tensor);
    }
    return loss;
}

/* Hands the loss to the device. root: as below. */
static bool put_off_loss(const backward *self, sonde__python_watch *watch,
                         PyObject *tensor, PyObject *root)
{
    PyObject *frame = NULL, *code = NULL;
    uint32_t slot = SONDE__PYTHON_NO_SLOT;
    long instruction = 0;
    bool good = false;

    if (find_caller(self, &frame, &code, &instruction)) {
        sonde__python_outline(watch, SONDE__PYTHON_BACKWARD,
                              (uintptr_t)code + (uintptr_t)instruction);
        good = find_loss(watch, code, instruction, frame, root, tensor, &slot) &&
               (!sonde__python_is_due(watch, slot) ||
                sonde__python_put_off(watch, slot, tensor, SONDE__PYTHON_ALONE) > 0);
        Py_DECREF(frame);
        Py_DECREF(code);
    }
    return good;
}

/* Shows the loss of the step that is on. root: what backward is called on: the tensor, or
 * the one that a GradScaler made of it. */
static bool show_loss(const backward *self, sonde__python_watch *watch, PyObject *tensor,
                      PyObject *root)
{
    PyObject *frame = NULL, *code = NULL, *held = NULL;
    uint32_t slot = SONDE__PYTHON_NO_SLOT;
    long instruction = 0;
    sonde_view view;
    bool good = false;
    int viewed = 0;

    if (!sonde__python_are_due(watch, 1U << SONDE_ROLE_LOSS) || !is_scalar(tensor)) {
        return true;
    }
    if (watch->device != NULL) {
        return is_named(watch, tensor) || put_off_loss(self, watch, tensor, root);
    }
    viewed = sonde__python_view_of(watch, tensor, &view, &held);
    if (viewed <= 0) {
        return viewed == 0;
    }
    sonde__python_settle_late(watch, !sonde_watch_is_bad(&view));
    if (is_named(watch, tensor)) { /* the program has shown it, under its own name */
        Py_DECREF(held);
        return true;
    }
    if (find_caller(self, &frame, &code, &instruction)) {
        sonde__python_outline(watch, SONDE__PYTHON_BACKWARD,
                              (uintptr_t)code + (uintptr_t)instruction);
        good = find_loss(watch, code, instruction, frame, root, held, &slot);
        if (good) {
            sonde__python_keep(watch, slot, &view);
        }
        Py_DECREF(frame);
        Py_DECREF(code);
    }
    Py_DECREF(held);
    return good;
}

static bool is_in_step(const sonde__python_watch *watch)
{
    return sonde__python_is_watching(watch) && watch->mode == SONDE_MODE_TRAIN &&
           watch->hooks != NULL;
}

/* Whether a step is on that began on this thread: then the loss is none of the watches
 * whose step another thread began. */
static bool is_from_here(const backward *self)
{
    const unsigned long thread = PyThread_get_thread_ident();

    for (Py_ssize_t i = 0; i < PyList_Size(self->watches); i++) {
        const sonde__python_watch *watch =
            (const sonde__python_watch *)PyList_GetItem(self->watches, i);

        if (is_in_step(watch) && watch->thread == thread) {
            return true;
        }
    }
    return false;
}

/* Tells the hooks of a step that does not end. */
static bool count_pass(sonde__python_watch *watch)
{
    PyObject *done = NULL;

    watch->passes++;
    if (watch->passes != (watch->optimizer_count == 0 ? MANY_ALONE : MANY)) {
        return true;
    }
    done = PyObject_CallMethod(watch->hooks, "never_steps", "I", watch->passes);
    watch->endless = done == Py_True;
    Py_XDECREF(done);
    return done != NULL;
}

static bool show_losses(const backward *self, PyObject *tensors)
{
    PyObject *root = tensors;
    bool from_here = false, good = true;

    if ((PyTuple_Check(tensors) || PyList_Check(tensors)) &&
        PySequence_Size(tensors) > 0) {
        PyObject *first = PySequence_GetItem(tensors, 0);

        good = first != NULL && show_losses(self, first);
        Py_XDECREF(first);
        return good;
    }
    tensors = unscaled(self, tensors);
    from_here = is_from_here(self);
    for (Py_ssize_t i = 0; i < PyList_Size(self->watches); i++) {
        sonde__python_watch *watch =
            (sonde__python_watch *)PyList_GetItem(self->watches, i);

        if (!is_in_step(watch) ||
            (from_here && watch->thread != PyThread_get_thread_ident())) {
            continue;
        }
        watch->went_back = true;
        good = good && ((count_pass(watch) && show_loss(self, watch, tensors, root)) ||
                        sonde__python_count_fault(watch));
        good = good && sonde__python_program_tell(watch, "backward", root, NULL);
    }
    Py_DECREF(tensors);
    return good;
}

/* Once the backward pass is over: shows gradients that are cleared before their step. */
static bool look_again(const backward *self)
{
    for (Py_ssize_t i = 0; i < PyList_Size(self->watches); i++) {
        sonde__python_watch *watch =
            (sonde__python_watch *)PyList_GetItem(self->watches, i);

        if (is_in_step(watch) &&
            !sonde__python_program_tell(watch, "went_back", NULL, NULL)) {
            return false;
        }
        if (watch->cleared_count > 0 && watch->went_back && is_in_step(watch) &&
            !sonde__python_see_cleared(watch) && !sonde__python_count_fault(watch)) {
            return false;
        }
    }
    return true;
}

static PyObject *backward_call(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    const backward *self = (const backward *)object;
    PyObject *tensors =
        PyTuple_Size(arguments) > 0 ? PyTuple_GetItem(arguments, 0) : NULL;
    PyObject *result = NULL;

    if (tensors == NULL && keywords != NULL) {
        tensors = PyDict_GetItemString(keywords, "tensors");
    }
    if (tensors != NULL && !show_losses(self, tensors)) {
        return NULL;
    }
    result = PyObject_Call(self->plain, arguments, keywords);
    if (result != NULL && !look_again(self)) {
        Py_CLEAR(result);
    }
    return result;
}

static PyObject *backward_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *plain = NULL, *methods = NULL, *watches = NULL;
    backward *self = NULL;

    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "OO!O!", &plain, &PyTuple_Type, &methods,
                          &PyList_Type, &watches)) {
        return NULL;
    }
    self = (backward *)allocate(type, 0);
    if (self != NULL) {
        self->plain = Py_NewRef(plain);
        self->methods = Py_NewRef(methods);
        self->watches = Py_NewRef(watches);
    }
    return (PyObject *)self;
}

static void backward_dealloc(PyObject *object)
{
    backward *self = (backward *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    Py_XDECREF(self->plain);
    Py_XDECREF(self->methods);
    Py_XDECREF(self->watches);
    release(object);
    Py_DECREF((PyObject *)type);
}

static PyObject *get_scaled(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((const backward *)object)->scaled);
}

static int set_scaled(PyObject *object, PyObject *value, void *unused)
{
    (void)unused;
    ((backward *)object)->scaled = value != NULL && PyObject_IsTrue(value) == 1;
    return 0;
}

static PyGetSetDef backward_attributes[] = {
    {"scaled", get_scaled, set_scaled,
     PyDoc_STR(
         "Whether losses may have the attribute _sonde_loss: the one before scaling."),
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot backward_slots[] = {
    {Py_tp_getset, backward_attributes},
    {Py_tp_new, (void *)backward_new},
    {Py_tp_dealloc, (void *)backward_dealloc},
    {Py_tp_call, (void *)backward_call},
    {0, NULL},
};

static PyType_Spec backward_spec = {
    .name = "sonde._sonde.Backward",
    .basicsize = sizeof(backward),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = backward_slots,
};

bool sonde__python_add_backward(PyObject *module)
{
    return sonde__python_add_type(module, &backward_spec, NULL);
}
