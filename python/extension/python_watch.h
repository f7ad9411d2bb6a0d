/*
 * python_watch.h - a watch, as the files of _sonde.Watch share it.
 *
 *     python_watch.c      the type: life, slots, what was seen
 *     python_step.c       when a step begins and ends
 *     python_parameter.c  parameters, their gradients, updates and optimizer state
 *     python_call.c       calls of modules, in place of torch.nn.Module._compiled_call_impl
 *     python_modules.c    which modules are watched
 *     python_forward.c    inputs and outputs of modules, and their gradients
 *     python_program.c    which steps python/sonde/program records
 *     python_late.c       checks of these that wait for the loss
 *     python_loss.c       losses, in place of torch.autograd.backward
 *     python_hook.c       the objects that PyTorch calls
 *     python_device.c     values on another device, which arrive later
 *     python_observe.c    what all of these do: lock, show a value, count a fault
 *
 * All functions need the interpreter's lock; those that return false or NULL have set an
 * exception.
 */
#ifndef SONDE_PYTHON_WATCH_H
#define SONDE_PYTHON_WATCH_H

#include "extension/python_api.h"

#include <sonde/watch.h>

/* What sonde__python_see_parameters shows. */
enum {
    SONDE__PYTHON_WEIGHTS = 1,
    SONDE__PYTHON_GRADIENTS = 2,
    SONDE__PYTHON_UPDATES = 4,
    SONDE__PYTHON_BUFFERS = 8
};

#define SONDE__PYTHON_NO_SLOT UINT32_MAX /* it has none, or cannot be observed */

typedef struct sonde__python_parameter sonde__python_parameter;
typedef struct sonde__python_module sonde__python_module;
typedef struct sonde__python_loss sonde__python_loss;
typedef struct sonde__python_late sonde__python_late;

/* A copy of a loss, which is shown with the gradients of its step: between the two, the
 * backward pass takes the caches. */
typedef struct sonde__python_number {
    uint32_t slot;
    sonde_view view; /* its data are bytes */
    unsigned char bytes[16];
} sonde__python_number;

enum { SONDE__PYTHON_WAITING = 4 }; /* numbers that wait, at most */

/* The last tensor that a module showed, while a root's forward is on: where the next module
 * shows the same memory, unchanged, its vital signs are known. */
typedef struct sonde__python_signed {
    PyObject *tensor; /* a reference; NULL: none */
    long version;
    sonde_view view;
    sonde_vitals vitals;
} sonde__python_signed;

/* An optimizer at the step that is on; player 0 has the parameters that none holds. */
typedef struct sonde__python_player {
    bool stepped;
    bool shown;   /* its gradients were */
    bool cleared; /* at its last step they were not there, though a backward pass ran */
    bool looked;  /* cleared: they were shown after a backward pass of this step */
    bool early;   /* they were shown before they were clipped */
} sonde__python_player;

enum { SONDE__PYTHON_OUTLINES = 32, SONDE__PYTHON_NOTES = 32 };

/* What python_program.c keeps; arrays are by mode. */
typedef struct sonde__python_programs {
    uint64_t outline[SONDE_MODE_COUNT]; /* of the step that is on, or is to come */
    uint64_t known[SONDE__PYTHON_OUTLINES];
    size_t forgotten;   /* outlines that others took the place of */
    uint64_t steps;     /* of all modes */
    uint64_t next_late; /* from this one on more may; 0: not all places are taken */
    uint64_t late_until, distance;
    uint64_t last[SONDE_MODE_COUNT]; /* event of the step; of several alike one counts */
    size_t known_count;
    unsigned recorded[SONDE_MODE_COUNT]; /* steps */
    bool wanted[SONDE_MODE_COUNT];       /* the next step is recorded */
    bool on;                             /* the step that is on is recorded */
    bool asked;                          /* by it: the next one of its mode is, too */
    bool evaluated[2]; /* since the last step of training; [1]: with gradients */
    uint64_t notes[SONDE__PYTHON_NOTES]; /* outlines after each event since then */
    size_t note_count;
    bool looking;                       /* the step that is on shows some of these */
    uint32_t *slots;                    /* of tensors that are known from the program */
    size_t slot_count, evaluated_count; /* the first ones are losses of evaluations */
    bool looks_always;                  /* when they are due, and not more seldom */
    uint64_t begun[SONDE_MODE_COUNT];   /* steps; of others than training: since the last
                                           one of that */
    uint64_t
        compare_at; /* the step of training at whose beginning replicas are compared */
} sonde__python_programs;

typedef struct sonde__python_watch {
    PyObject_HEAD sonde_watch *watch; /* NULL: closed */
    sonde_rules *rules;               /* NULL: none */
    sonde__python_rules *own_rules;   /* in Python; NULL: none */
    unsigned long judging;            /* the thread on which one of them is called; 0 */
    PyThread_type_lock lock;          /* keeps threads of the program apart */
    unsigned generation;              /* sonde__python_generation() of its process */
    bool paused, started;             /* started: a step has begun */
    char *path;        /* of the run, while findings are not written to it; or NULL */
    PyObject *unwrap;  /* called with a tensor that has no readable memory */
    PyObject *fault;   /* called with an exception; raises it or counts it */
    PyObject *deliver; /* called with a finding; or NULL */
    PyObject *queued;  /* findings to deliver */
    PyObject *hooks;   /* torch_hooks.Hooks while hooks are installed; or NULL */
    PyObject *device;  /* device.Device: steps are left and continued; or NULL */

    /* python_step.c */
    int given_mode;        /* of steps; -1: as the model says */
    int mode;              /* of the step that is on; -1: none */
    uint64_t steps;        /* that have begun */
    unsigned long thread;  /* on which that step began, or one of training begins */
    unsigned long turning; /* the thread that begins or ends a step; 0: none does */
    bool judged;           /* it was ended before its optimizer stepped */
    bool weighed;          /* a step of training has begun, which showed the weights */
    bool weighs;           /* it is the one that is on */
    int inside;            /* forward passes of roots that are on */
    size_t optimizer_count, stepped_count;
    sonde__python_player *players; /* optimizer_count + 1; NULL: no hooks */
    size_t cleared_count;          /* of these, those that are cleared */
    bool went_back;                /* a backward pass of this step has begun */
    unsigned passes;               /* backward passes since an optimizer stepped */
    bool endless; /* none will end this step: the next pass begins another */

    /* python_parameter.c */
    sonde__python_parameter *parameters;
    size_t parameter_count, parameter_capacity;
    sonde_view *views; /* of one see_parameters */
    uint32_t *seen;
    PyObject **held;

    /* python_forward.c */
    sonde__python_module *modules;
    size_t module_count, module_capacity;
    uint32_t *module_table; /* places in modules, plus 1, by the hash of their address */
    size_t table_capacity;  /* a power of 2, or 0 */
    PyObject *last_output;  /* while a root's forward is on, or NULL */
    PyObject *last_checked; /* likewise: it was checked, or follows from one that was */
    sonde__python_signed last_signed;
    PyObject *root_input; /* likewise, borrowed: the first that the root got; or NULL */
    bool was_bad;         /* a module's tensor of this step was not finite */
    bool only_checks;     /* nothing of modules is due at this step */
    bool shows_modules;   /* modules are being shown */
    bool unreadable;      /* a module's tensor is on another device: none is checked */

    /* python_late.c */
    sonde__python_late *late;
    size_t late_count, late_capacity;
    PyObject *first_input; /* borrowed: of the module that is being shown; or NULL */

    /* python_loss.c */
    sonde__python_loss *losses;
    size_t loss_count, loss_capacity;
    sonde__python_number waiting[SONDE__PYTHON_WAITING];
    size_t waiting_count;
    PyObject *named; /* a list: losses of this step that the program showed; or NULL */

    /* python_program.c */
    sonde__python_programs programs;
} sonde__python_watch;

/* --- hooks -------------------------------------------------------------------------- */

typedef struct sonde__python_hook sonde__python_hook;
/* What a hook does, with the arguments of its call. */
typedef bool sonde__python_action(sonde__python_watch *watch,
                                  const sonde__python_hook *hook, PyObject *arguments);

struct sonde__python_hook {
    sonde__python_action *act;
    /* of the gradient of a module's output */
    size_t module;
    size_t number;    /* of the output; of an optimizer: from 1 */
    Py_ssize_t place; /* among the gradients of its function */
};

/* A new object to call; *hook (may be NULL) is its part to fill in. */
PyObject *sonde__python_new_hook(sonde__python_watch *watch, sonde__python_action *act,
                                 sonde__python_hook **hook);

/* --- the watch ---------------------------------------------------------------------- */

/* Lets generation count. False: no memory. */
bool sonde__python_count_forks(void);
/* Counts the forks between the process that loaded the module and this one. */
unsigned sonde__python_generation(void);
/* Whether the caller may use the watch: it is open, not a copy after a fork, and this is
 * no call from one of its own rules. */
bool sonde__python_is_live(const sonde__python_watch *self);
/* Raises StateError, and is true, in a call from a rule of the watch. */
bool sonde__python_is_judging(const sonde__python_watch *self);
/* The same, raising StateError. */
bool sonde__python_need_live(const sonde__python_watch *self);
/* Whether anything is observed now. */
bool sonde__python_is_watching(const sonde__python_watch *self);
void sonde__python_lock(sonde__python_watch *self);
void sonde__python_unlock(sonde__python_watch *self);
/* Calls `deliver` with each queued finding. */
bool sonde__python_deliver(sonde__python_watch *self);
/* Passes the exception that is set to `fault`. False: it is raised. */
bool sonde__python_count_fault(sonde__python_watch *self);

/*
 * A view of a tensor; *held becomes a reference to what keeps its memory. Tensors
 * without readable memory go through `unwrap`, which returns another object or None. 1:
 * viewed, 0: there is nothing to see, -1: an exception is set.
 */
int sonde__python_view_of(sonde__python_watch *self, PyObject *tensor, sonde_view *view,
                          PyObject **held);
/* Whether a slot is due at the step that is on. */
bool sonde__python_is_due(const sonde__python_watch *self, uint32_t slot);
/* Whether tensors of any of the roles, a bit each, are due at the step that is on. */
bool sonde__python_are_due(const sonde__python_watch *self, unsigned roles);
/* Checks a value that is not due for NaN and infinities, if it is in readable memory. */
void sonde__python_check(sonde__python_watch *self, uint32_t slot, PyObject *tensor);
/* Whether a value has NaN or infinities. */
bool sonde__python_is_bad(const sonde_view *view);
/* The same check, of a view. */
void sonde__python_check_view(sonde__python_watch *self, uint32_t slot,
                              const sonde_view *view);
/* Shows one value. */
void sonde__python_show(sonde__python_watch *self, uint32_t slot, const sonde_view *view);
/* Shows a module's tensor; reads nothing if the last one was the same. */
void sonde__python_show_signed(sonde__python_watch *self, uint32_t slot, PyObject *tensor,
                               const sonde_view *view);
void sonde__python_forget_signed(sonde__python_watch *self);
/* How often a tensor was changed in place, as PyTorch counts; -1: it does not say. */
long sonde__python_version(PyObject *tensor);
/* Keeps a value of one element until sonde__python_show_kept; shows any other. */
void sonde__python_keep(sonde__python_watch *self, uint32_t slot, const sonde_view *view);
void sonde__python_show_kept(sonde__python_watch *self);

/* --- another device ----------------------------------------------------------------- */

/* What a value is: shown once, or an update's tensor before or after the step; of many
 * that are computed together, or of one alone. */
typedef enum sonde__python_part {
    SONDE__PYTHON_ALONE,
    SONDE__PYTHON_OF_MANY,
    SONDE__PYTHON_CHANGING
} sonde__python_part;

PyObject *sonde__python_set_device(PyObject *watch, PyObject *device);
/* Hands a value that is due to the device. 1: it has it, 0: the watch has no device, -1:
 * an exception is set. */
int sonde__python_put_off(sonde__python_watch *self, uint32_t slot, PyObject *tensor,
                          sonde__python_part part);
/* The values of many are complete; of a player (not 0): its gradients, which it may have
 * cleared. */
bool sonde__python_compute(sonde__python_watch *self, size_t player);
/* Ends the step that is on, on the device. */
bool sonde__python_leave(sonde__python_watch *self);
/* Returns to the steps whose rows have arrived. */
bool sonde__python_poll(sonde__python_watch *self);
PyObject *sonde__python_return_to(PyObject *watch, PyObject *arguments);
PyObject *sonde__python_note_cleared(PyObject *watch, PyObject *arguments);

/* --- parameters --------------------------------------------------------------------- */

PyObject *sonde__python_add_parameter(PyObject *watch, PyObject *arguments);
/* set_holder(parameter, optimizer): who holds a parameter from now on. */
PyObject *sonde__python_set_holder(PyObject *watch, PyObject *arguments);
/* Notes how often parameters were changed in place, for the next function. */
void sonde__python_note_versions(sonde__python_watch *self);
/* Whether a parameter that has a gradient was changed in place since. */
bool sonde__python_have_moved(const sonde__python_watch *self);
/* Shows weights, updates and buffers: of the given kinds those that are wanted. */
bool sonde__python_see_parameters(sonde__python_watch *self, unsigned kinds);
/* Shows the gradients of what an optimizer holds; with those of the first at a step, the
 * gradients of what none holds. Notes whether they were cleared before the step. */
bool sonde__python_see_gradients(sonde__python_watch *self, size_t player);
/* Shows all gradients that this step has not shown. */
bool sonde__python_see_all_gradients(sonde__python_watch *self);
/* After a backward pass: shows the gradients that are cleared before their step. */
bool sonde__python_see_cleared(sonde__python_watch *self);
/* Notes whether an optimizer's gradients were cleared before it stepped. */
void sonde__python_set_cleared(sonde__python_watch *self, size_t player, bool cleared);
/* Shows what an optimizer keeps of each parameter. */
bool sonde__python_see_state(sonde__python_watch *self, PyObject *optimizer);
void sonde__python_forget_parameters(sonde__python_watch *self);
void sonde__python_free_parameters(sonde__python_watch *self);

/* --- modules ------------------------------------------------------------------------ */

typedef enum sonde__python_way {
    SONDE__PYTHON_INPUT,
    SONDE__PYTHON_OUTPUT,
    SONDE__PYTHON_INTEGERS, /* inputs of the program that are tokens, indices, classes */
    SONDE__PYTHON_WAYS
} sonde__python_way;

/* When a large tensor is checked that is not due (python_late.c). */
typedef enum sonde__python_when {
    SONDE__PYTHON_UNKNOWN, /* at once, until it is known */
    SONDE__PYTHON_NOW,
    SONDE__PYTHON_KEPT,
    SONDE__PYTHON_AGAIN
} sonde__python_when;

/* A tensor of a module. */
typedef struct sonde__python_shown {
    bool known, gradient_known; /* declared, or found impossible to observe */
    uint32_t slot, gradient_slot;
    sonde__python_when when;
    PyObject *hook; /* of its gradient; or NULL */
    sonde__python_hook *called;
} sonde__python_shown;

struct sonde__python_module {
    PyObject *ref;       /* weak; NULL: the program */
    bool declared;       /* its tensors are shown; else it is a root alone */
    bool is_root;        /* its forward pass is one of the program */
    bool is_compiled;    /* a root in which no module is seen */
    bool was_called;     /* a root */
    size_t part_of;      /* it is a root until this root is called; 0: of none */
    bool shows_input;    /* an activation that does not work in place */
    bool keeps_finite;   /* it returns one tensor, finite if the first it gets is */
    bool hides_infinite; /* what it makes of infinities is finite */
    sonde__python_shown *tensors[SONDE__PYTHON_WAYS];
    size_t capacity[SONDE__PYTHON_WAYS], next[SONDE__PYTHON_WAYS];
};

PyObject *sonde__python_add_module(PyObject *watch, PyObject *arguments);
PyObject *sonde__python_add_root(PyObject *watch, PyObject *arguments);
/* The number of a module; module_count if it is not watched. Cost: some 10 ns. */
size_t sonde__python_find_module(const sonde__python_watch *self, PyObject *module);
/* Whether a call of it is a forward pass of the program. */
bool sonde__python_is_root(const sonde__python_watch *self, size_t index);
/* The modules' tensors are counted from 0 again. */
void sonde__python_restart_modules(sonde__python_watch *self);
/* Whether a tensor of a module is due at the step that is on, as far as they are known. */
bool sonde__python_are_modules_due(const sonde__python_watch *self);
/* Shows the inputs of a root. */
bool sonde__python_see_inputs(sonde__python_watch *self, PyObject *inputs);
/* Shows what a module got and returned; inputs: a tuple. */
bool sonde__python_see_module(sonde__python_watch *self, size_t index, PyObject *inputs,
                              PyObject *output);
/* Before a module's output that is not finite: its input, if it is the cause. */
void sonde__python_see_input_first(sonde__python_watch *self, size_t index,
                                   PyObject *input);
void sonde__python_free_modules(sonde__python_watch *self);

/* --- checks that wait ---------------------------------------------------------------- */

/* Whether a check, of a tensor not due, waits until backward() is called. */
bool sonde__python_check_late(sonde__python_watch *self, size_t module,
                              sonde__python_way way, size_t number, PyObject *tensor,
                              const sonde_view *view);
/* backward() is called on a loss: checks what waits, unless the loss is finite. */
void sonde__python_settle_late(sonde__python_watch *self, bool finite);
/* Checks what waits, now. */
void sonde__python_look_late(sonde__python_watch *self);
/* The step ends: checks what waits if there are tensors among it on which backward() was
 * not called. */
void sonde__python_finish_late(sonde__python_watch *self);
void sonde__python_forget_late(sonde__python_watch *self);
void sonde__python_free_late(sonde__python_watch *self);

/* --- steps -------------------------------------------------------------------------- */

bool sonde__python_begin(sonde__python_watch *self, int mode);
/* Shows what is seen at the end of a step, and ends it, if one is on; rules judge it, and
 * findings are delivered. */
bool sonde__python_end(sonde__python_watch *self);
/* Around the forward pass of a root. */
/* Whether autograd is on: 0, 1; -1: an exception is set. */
int sonde__python_keeps_gradients(const sonde__python_watch *self);

bool sonde__python_begin_root(sonde__python_watch *self, size_t index, PyObject *root,
                              PyObject *inputs);
bool sonde__python_end_root(sonde__python_watch *self);
/* The same as hooks, (module, inputs[, output]), and around the step of an optimizer,
 * (optimizer, arguments, options). */
sonde__python_action sonde__python_before_root, sonde__python_after_root,
    sonde__python_before_step, sonde__python_after_step;

/* --- programs ----------------------------------------------------------------------- */

/* Adds an event to the outline of the step that is on. */
void sonde__python_outline(sonde__python_watch *self, uint64_t event, uint64_t detail);
enum { SONDE__PYTHON_FORWARD = 1, SONDE__PYTHON_BACKWARD, SONDE__PYTHON_STEP };
/* A step has begun, or ends: begins or ends its recording, if it is recorded. */
bool sonde__python_program_begin(sonde__python_watch *self, int mode);
bool sonde__python_program_end(sonde__python_watch *self);
/* Calls a method of program.Programs if the step is recorded; more, and both, may be NULL. */
bool sonde__python_program_tell(sonde__python_watch *self, const char *method,
                                PyObject *subject, PyObject *more);
/* Forgets everything, and a recording that is on. */
bool sonde__python_program_drop(sonde__python_watch *self);
PyObject *sonde__python_record_program(PyObject *watch, PyObject *text);
PyObject *sonde__python_note(PyObject *watch, PyObject *arguments);
PyObject *sonde__python_record_next(PyObject *watch, PyObject *unused);
PyObject *sonde__python_compare_at(PyObject *watch, PyObject *step);
PyObject *sonde__python_look_for(PyObject *watch, PyObject *arguments);

/* --- losses ------------------------------------------------------------------------- */

void sonde__python_free_losses(sonde__python_watch *self);
/* python_loss.c: the program has shown this loss of the step that is on under a name of its
 * own; a backward pass does not show it again. The tensor is held until the step ends. */
void sonde__python_name_loss(sonde__python_watch *self, PyObject *tensor);
void sonde__python_forget_named(sonde__python_watch *self);

/* python_verdict.c: methods of Watch. */
PyObject *sonde__python_watch_findings(PyObject *object, PyObject *unused);
PyObject *sonde__python_watch_verdict(PyObject *object, PyObject *unused);
PyObject *sonde__python_watch_accounts(PyObject *object, PyObject *unused);

#endif
