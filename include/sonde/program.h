/*
 * program.h - the program of a step: the operations, with the lines of the user's source
 * that called them, and the events of a step in their order.
 *
 * Tensors show that something is wrong; the program shows why. A producer describes what
 * its steps do: once for each mode, and again whenever the sequence of events changes. The
 * description is recorded in the run (docs/program.md gives its JSON text) and passed to
 * the rules that read it (sonde_rule.program).
 *
 *     sonde_program described = {.size = sizeof described, .producer = "loop", ...};
 *     err = sonde_watch_program(watch, &described, &diag);     (<sonde/watch.h>)
 *
 * or, from a recorded run:
 *
 *     err = sonde_trial_program(trial, SONDE_MODE_TRAIN, -1, &program, &diag);
 *     for (size_t i = 0; i < program->node_count; i++) { ... program->nodes[i] ... }
 *     sonde_program_destroy(program);
 *
 * A program is plain arrays. Those that a function of Sonde returns are one block of
 * memory, which sonde_program_destroy frees; all strings in them are NUL-terminated and
 * never NULL. In a program that you declare, NULL means "". Indices are checked when the
 * program is copied, read or shown to a watch; -1 stands for none.
 *
 * Threads: calls share nothing.
 */
#ifndef SONDE_PROGRAM_H
#define SONDE_PROGRAM_H

#include <sonde/tap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A line of the user's source. file is as the producer knows it (a path), "" if unknown;
 * line counts from 1, 0 if unknown. */
typedef struct sonde_place {
    const char *file;
    int line;
} sonde_place;

/* An attribute of an operation, a module, an optimizer or an event: "dim", "reduction". */
typedef struct sonde_program_attribute {
    const char *name;
    const char *text; /* "mean", "0.1", "true", "[2, 3]" */
    double number;    /* its value if it is a number (true is 1, false 0); else NaN */
} sonde_program_attribute;

typedef struct sonde_program_attributes {
    const sonde_program_attribute *rows;
    size_t count;
} sonde_program_attributes;

/* What a value is where no operation of the step makes it. */
typedef enum sonde_value_kind {
    SONDE_VALUE_COMPUTED = 0,  /* a node makes it */
    SONDE_VALUE_INPUT = 1,     /* data: passed to the model or to an operation */
    SONDE_VALUE_PARAMETER = 2, /* of a module; sonde_program_value.parameter */
    SONDE_VALUE_BUFFER = 3,    /* running statistics and the like */
    SONDE_VALUE_CONSTANT = 4   /* created in the step: zeros, a mask, arange */
} sonde_value_kind;

/* A tensor of the step. */
typedef struct sonde_program_value {
    sonde_value_kind kind;
    sonde_dtype dtype;
    int rank;
    int64_t shape[SONDE_MAX_DIMS];
    const char *tensor; /* name under which it is observed, or "" */
    int node;           /* the node that makes it; -1: none */
    int parameter;      /* index into parameters; -1: it is not one */
    bool requires_grad; /* gradients flow through it */
} sonde_program_value;

/* An operation. op is a name of docs/program.md: "linear", "cross_entropy", "softmax". */
typedef struct sonde_program_node {
    const char *op;
    sonde_program_attributes attributes;
    const int
        *inputs; /* indices of values, in the order of the operation's arguments; -1:
                          an argument that is no tensor or is absent */
    size_t input_count;
    const int *outputs;
    size_t output_count;
    int module; /* index into modules: the innermost that called it; -1: none */
    sonde_place place;
} sonde_program_node;

/* A module (layer) of the model, whether or not the step called it. */
typedef struct sonde_program_module {
    const char *name;                    /* dotted path; "" for the root */
    const char *kind;                    /* class: "Conv2d" */
    sonde_program_attributes attributes; /* "p", "momentum", "eps" ... */
    bool registered; /* it belongs to the watched model. False: the program called it, but
                        the model does not know it (a layer in a plain list) */
    bool called;     /* in this step */
    bool training;   /* its mode when it was called last, or else now */
    sonde_place place; /* of its first call; file "" if it was not called */
} sonde_program_module;

typedef struct sonde_program_parameter {
    const char *name; /* as the tensor of its values is observed: "fc1.weight" */
    int module;       /* that owns it; -1: none */
    int64_t count;    /* elements */
    bool requires_grad;
    int optimizer; /* index of the optimizer that holds it; -1: none does */
    bool used;     /* an operation of the step reads it */
    bool reached;  /* a backward pass of the step reaches it through the graph */
} sonde_program_parameter;

typedef struct sonde_program_optimizer {
    const char *name;                    /* "optimizer", "optimizer_2" */
    const char *kind;                    /* "SGD", "AdamW" */
    sonde_program_attributes attributes; /* "lr", "weight_decay" ... of its first group */
} sonde_program_optimizer;

/* What happens in a step, in order. */
typedef enum sonde_event_kind {
    SONDE_EVENT_BATCH = 0,    /* the loader returned a batch */
    SONDE_EVENT_FORWARD = 1,  /* the model, or a root of it, was called: module */
    SONDE_EVENT_LOSS = 2,     /* a loss was computed: value, and node if it is known */
    SONDE_EVENT_BACKWARD = 3, /* value: the loss; attributes: docs/program.md */
    SONDE_EVENT_UNSCALE = 4,  /* gradients are divided by a gradient scaler's scale */
    SONDE_EVENT_CLIP = 5,     /* gradients are clipped; attributes max_norm, value */
    SONDE_EVENT_STEP = 6,     /* an optimizer changes parameters: optimizer */
    SONDE_EVENT_ZERO_GRAD =
        7, /* gradients are cleared: optimizer, or -1 (by the model) */
    SONDE_EVENT_SCHEDULER = 8, /* a learning-rate scheduler stepped */
    SONDE_EVENT_MODE = 9,      /* the model's mode was set: training */
    SONDE_EVENT_EVALUATION =
        10 /* an evaluation pass took place here, between two steps */
} sonde_event_kind;
enum { SONDE_EVENT_COUNT = 11 };
/* "batch", "forward" ...; "?" for no event. */
SONDE_API const char *sonde_event_name(sonde_event_kind kind);

typedef struct sonde_program_event {
    sonde_event_kind kind;
    int module, value, node, optimizer; /* -1: does not apply or unknown */
    bool training; /* FORWARD, MODE: the module was in training mode */
    bool grad;     /* FORWARD, LOSS: gradients were enabled */
    bool autocast; /* FORWARD, LOSS: under autocast */
    sonde_program_attributes attributes;
    sonde_place place;
} sonde_program_event;

/* A loss of the step: the operation that compares predictions with targets. A loss that is
 * a sum of several has a row for each term, and backward's value is the sum. */
typedef struct sonde_program_loss {
    int node;        /* the operation: cross_entropy, mse_loss ..., or the last operation
                        of a loss written by hand */
    int value;       /* its result */
    int predictions; /* values; -1: unknown */
    int targets;
    int backward; /* index of the event whose backward pass contains it; -1: none */
} sonde_program_loss;

typedef struct sonde_program {
    size_t size;          /* sizeof(sonde_program) */
    const char *producer; /* "pytorch", "sonde_nn", "onnx", or your program's name */
    sonde_mode mode;
    const char *root; /* folder that files of places may be shown relative to, or "" */
    const sonde_program_value *values;
    size_t value_count;
    const sonde_program_node *nodes; /* in the order of execution */
    size_t node_count;
    const sonde_program_module *modules; /* module 0 is the first root */
    size_t module_count;
    const sonde_program_parameter *parameters;
    size_t parameter_count;
    const sonde_program_optimizer *optimizers;
    size_t optimizer_count;
    const sonde_program_event *events;
    size_t event_count;
    const sonde_program_loss *losses;
    size_t loss_count;
    /* What else the producer found out about the data of the step: "labels_min" ...
     * (docs/program.md). */
    sonde_program_attributes facts;
    bool complete; /* every operation of the step is a node */
    const char
        *gap; /* why it is not complete, for people: "the model is compiled"; or "" */
    uint64_t
        digest; /* XXH3 of its text without this field; ignored in a declared program */
} sonde_program;

/* --- creating ----------------------------------------------------------------------- */

/* Checks a declared program and copies it into one block. SONDE_EINVAL: an index outside
 * its array, an unknown kind, a rank; the diagnostic names the row. Linear in its size. */
SONDE_API SONDE_CHECKED sonde_err sonde_program_copy(const sonde_program *program,
                                                     sonde_program **out,
                                                     sonde_diag *diag);
/* Reads the JSON text of docs/program.md; length bytes, no NUL needed. SONDE_EFORMAT with
 * the place in the text. Unknown keys are ignored. */
SONDE_API SONDE_CHECKED sonde_err sonde_program_read(const char *text, size_t length,
                                                     sonde_program **out,
                                                     sonde_diag *diag);
/* Writes the text: *text is new, NUL-terminated; free it with sonde_release. */
SONDE_API SONDE_CHECKED sonde_err sonde_program_text(const sonde_program *program,
                                                     char **text, size_t *length,
                                                     sonde_diag *diag);
/* Accepts NULL. Only for programs that a function of Sonde returned. */
SONDE_API void sonde_program_destroy(sonde_program *program);

/* --- reading -------------------------------------------------------------------------- */

/* The attribute of a name: its text, or "" if there is none. */
SONDE_API const char *sonde_attribute_text(sonde_program_attributes attributes,
                                           const char *name);
/* The same as a number; `otherwise` if there is none or it is no number. */
SONDE_API double sonde_attribute_number(sonde_program_attributes attributes,
                                        const char *name, double otherwise);
/* The value that is observed under a tensor's name; -1: none. Linear in values. */
SONDE_API int sonde_program_find(const sonde_program *program, const char *tensor);
/*
 * The place in the program of an observed tensor: the line of the operation that
 * made it; for a parameter, its gradient or its update, of the first operation that reads
 * it; for a module's output, of the last operation in it, or of its first call. file is ""
 * if the program does not know. The strings are the program's.
 */
SONDE_API sonde_place sonde_program_place_of(const sonde_program *program,
                                             const char *tensor);
/* "train.py:41": the file relative to root if it lies below it; "" for no place. Returns
 * buf. */
SONDE_API const char *sonde_program_place_text(const sonde_program *program,
                                               sonde_place place, char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
