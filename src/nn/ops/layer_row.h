/*
 * layer_row.h - layers as rows: what sonde_nn_layer, job files and the page of layers
 * read.
 *
 * A line in a file in src/nn/ops that begins with
 *
 *     SONDE__LAYER(<name>,
 *
 * adds a layer; the build finds it. The row has the layer's keys and where their values
 * go in the attrs of its op; nothing else names the layer.
 */
#ifndef SONDE_NN_OPS_LAYER_ROW_H
#define SONDE_NN_OPS_LAYER_ROW_H

#include "nn/ops/ops.h"

#include <sonde/catalogue.h>

typedef enum sonde__op_field_kind {
    SONDE__FIELD_NUMBER = 0, /* float */
    SONDE__FIELD_WHOLE = 1,  /* int64_t */
    SONDE__FIELD_PAIR = 2,   /* int64_t[2]: (height, width), or one number for both */
    SONDE__FIELD_FLAG = 3,   /* bool */
    SONDE__FIELD_AXIS = 4,   /* int */
    SONDE__FIELD_WORD = 5,   /* int: the place of the word in `words` */
    SONDE__FIELD_DIMS = 6,   /* dims and rank of a family that has them */
    SONDE__FIELD_TRIPLE =
        7 /* int64_t[3], h, w, d: (depth, height, width), or one number */
} sonde__op_field_kind;

/* A key of a layer. */
typedef struct sonde__op_field {
    const char *key; /* PyTorch's name of the parameter */
    sonde__op_field_kind kind;
    size_t offset;      /* in sonde__op_attrs */
    double fallback;    /* without the key; NaN: the key is required */
    double least, most; /* of numbers, both allowed */
    const char
        *fallback_text;   /* for the page, where the number does not say it; or NULL */
    const char *words[6]; /* NULL where there are fewer */
    bool may_be_none;     /* of a number: the word none, which is stored as NaN */
} sonde__op_field;

/* A tensor that belongs to a layer: a parameter, or a buffer that the op updates. */
typedef struct sonde__op_param {
    const char *suffix; /* "weight" */
    sonde_role role;    /* WEIGHT, BIAS or BUFFER */
    int rank;
    int64_t dim[SONDE_MAX_DIMS];
    float bound, constant; /* drawn uniform in +-bound, or with bound 0 this constant */
    bool counts;           /* a buffer that is an int64 */
    float spread;          /* not 0: drawn normal with this standard deviation */
    int64_t blank_first, blank; /* so many elements from there begin at zero */
} sonde__op_param;

enum { SONDE__MAX_FIELDS = 8, SONDE__MAX_PARAMS = 32 };

/* What a layer of several ops is built with. */
typedef struct sonde__op_builder {
    const sonde__op_graph *graph;
    void *layer; /* of emit's implementation */
    /* Emits an op of the layer, under its name; 0 on failure, which the graph remembers. */
    sonde__op_value (*emit)(const struct sonde__op_builder *builder,
                            const sonde__op_kind *kind, const sonde__op_attrs *attrs,
                            const sonde__op_value *in, int count);
    sonde_diag *diag; /* fill it and return 0 where inputs or keys cannot be */
} sonde__op_builder;

struct sonde__op_layer {
    const char *name; /* PyTorch's, as in torch.nn.functional */
    const sonde__op_kind *kind;
    int inputs; /* that the caller gives */
    sonde__op_field fields[SONDE__MAX_FIELDS];
    const char *help; /* for the page: an equation */
    /* The tensors of the layer, which follow its inputs; returns their count. x: the
     * shape of the first input. A shape that cannot be: 0 of them, and the shape rule
     * fails. NULL: none. */
    int (*params)(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                  sonde__op_param params[SONDE__MAX_PARAMS]);
    /* The op makes one loss an element; attrs.reduction says what becomes of them. */
    bool reduces;
    int optional;                  /* inputs after `inputs` that may be left out */
    const sonde__op_attrs *preset; /* attrs that no key sets; NULL: zeros */
    /* Emits the layer's ops, given its inputs (0: left out) and, after all of them, its
     * tensors; returns the output. NULL: the layer is one op of `kind`. */
    sonde__op_value (*build)(const sonde__op_builder *builder, sonde__op_attrs *attrs,
                             const sonde__op_value *in);
};

/* A row of the table of layers: PyTorch's name, the kind sonde__op_<op>, the inputs that the
 * caller gives, the text for the page, and the other fields. */
#define SONDE__LAYER(layer, op, inputs_, ...)                                            \
    const sonde__op_layer sonde__layer_##layer = {.name = #layer,                        \
                                                  .kind = &sonde__op_##op,               \
                                                  .inputs = (inputs_),                   \
                                                  .help = __VA_ARGS__}

enum { SONDE__REDUCE_MEAN = 0, SONDE__REDUCE_SUM = 1, SONDE__REDUCE_NONE = 2 };

#define SONDE__FIELD(key_, kind_, member, fallback_, least_, most_)                      \
    {                                                                                    \
        .key = (key_), .kind = (kind_), .offset = offsetof(sonde__op_attrs, member),     \
        .fallback = (fallback_), .least = (least_), .most = (most_)                      \
    }
/* A number without limits. */
#define SONDE__FIELD_ANY(key_, member, fallback_)                                        \
    SONDE__FIELD(key_, SONDE__FIELD_NUMBER, member, fallback_, -(double)INFINITY,        \
                 (double)INFINITY)
#define SONDE__FIELD_DIM(key, member, fallback)                                          \
    SONDE__FIELD(key, SONDE__FIELD_AXIS, member, fallback, -SONDE_MAX_DIMS,              \
                 SONDE_MAX_DIMS - 1)
#define SONDE__FIELD_CHOICE(key_, member, ...)                                           \
    {                                                                                    \
        .key = (key_), .kind = SONDE__FIELD_WORD,                                        \
        .offset = offsetof(sonde__op_attrs, member), .words = {                          \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }
/* The dimensions that a reduction takes away, and whether it leaves 1 of each. */
#define SONDE__FIELD_AXES                                                                \
    {                                                                                    \
        .key = "dim", .kind = SONDE__FIELD_DIMS,                                         \
        .offset = offsetof(sonde__op_attrs, reduce.dims), .least = -SONDE_MAX_DIMS,      \
        .most = SONDE_MAX_DIMS - 1, .fallback_text = "all"                               \
    }
#define SONDE__FIELD_KEEP                                                                \
    SONDE__FIELD("keepdim", SONDE__FIELD_FLAG, reduce.keep_dims, 0.0, 0, 1)
#define SONDE__FIELD_REDUCTION                                                           \
    SONDE__FIELD_CHOICE("reduction", reduction, "mean", "sum", "none")

#if defined(__GNUC__)
#pragma GCC visibility push(default) /* for tests, which link the shared library */
#endif
/* All rows, NULL-terminated, by file and in the order of each file. */
extern const sonde__op_layer *const sonde__op_layers[];
/* NULL: there is none of this name. */
const sonde__op_layer *sonde__op_find_layer(const char *name);
/* How many keys a layer has. */
int sonde__op_field_count(const sonde__op_layer *layer);
/* Every optional key of a layer gets its default; required numbers become NaN or 0. */
void sonde__op_set_defaults(const sonde__op_layer *layer, sonde__op_attrs *attrs);

/* An op over values; 0 if one of them is 0, after an error. */
sonde__op_value sonde__op_build(const sonde__op_builder *builder,
                                const sonde__op_kind *kind, const sonde__op_attrs *attrs,
                                const sonde__op_value *in, int count);
/* x in the shape of so many int64_t dimensions, -1 and 0 as Reshape has them. */
#define sonde__op_build_reshape(builder, x, rank_, ...)                                  \
    sonde__op_build(                                                                     \
        (builder), &sonde__op_reshape,                                                   \
        &(sonde__op_attrs){.shape = {.rank = (rank_), .dims = {__VA_ARGS__}}},           \
        (const sonde__op_value[]){x}, 1)
/* x w^T + b over the last dimension of x, which has two or more (linear.c); b 0: none. */
sonde__op_value sonde__op_emit_linear(const sonde__op_builder *builder, sonde__op_value x,
                                      sonde__op_value w, sonde__op_value b);

/* The name nearest to an unknown one, see sonde_diag_nearest. */
const char *sonde__op_nearest_layer(const char *name);
/* The key of a name; NULL: none. */
const sonde__op_field *sonde__op_find_field(const sonde__op_layer *layer,
                                            const char *key);
/* Sets what a key stands for; numbers, flags and axes have one value, pairs one or two.
 * SONDE_EINVAL: out of range, or another count. */
sonde_err sonde__op_set_field(const sonde__op_field *field, sonde__op_attrs *attrs,
                              const double *values, int count, sonde_diag *diag);
sonde_err sonde__op_set_word(const sonde__op_field *field, sonde__op_attrs *attrs,
                             const char *word, sonde_diag *diag);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
