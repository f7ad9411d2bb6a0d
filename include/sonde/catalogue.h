/*
 * catalogue.h - the names and metadata of every tensor that can be observed.
 *
 * A producer of tensors (Sonde's engine, or any C program) declares each tensor once and
 * gets a dense id; from then on only ids are passed. A tensor may have several names: an
 * alias (`fc1_input_0`) is an entry of its own that points to the tensor whose value it
 * shares (`relu_output_0`). Declaring costs a hash; nothing here is used while training.
 *
 * One thread at a time. Strings are copied.
 */
#ifndef SONDE_CATALOGUE_H
#define SONDE_CATALOGUE_H

#include <sonde/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a tensor is to its network; the built-in collections are these. */
typedef enum sonde_role {
    SONDE_ROLE_WEIGHT = 0,
    SONDE_ROLE_BIAS = 1,
    SONDE_ROLE_BUFFER = 2,    /* running statistics and the like */
    SONDE_ROLE_GRADIENT = 3,  /* of a parameter */
    SONDE_ROLE_UPDATE = 4,    /* UpdatedVar___W: a parameter's value after its update;
                                 update/W of a watch: the difference */
    SONDE_ROLE_OPTIMIZER = 5, /* momentum, second moment, step counter */
    SONDE_ROLE_LOSS = 6,
    SONDE_ROLE_INPUT = 7,      /* of the session, or of a module */
    SONDE_ROLE_OUTPUT = 8,     /* of a module or of the session */
    SONDE_ROLE_ACTIVATION = 9, /* a value inside a module */
    SONDE_ROLE_ACTIVATION_GRADIENT = 10,
    SONDE_ROLE_SCALAR = 11, /* a number that the user records */
    SONDE_ROLE_OTHER = 12,
    SONDE_ROLE_PROGRAM = 13 /* the text of a program (<sonde/program.h>) */
} sonde_role;
enum { SONDE_ROLE_COUNT = 14 };
/* "weight", "activation_gradient" ...; "?" for no role. */
SONDE_API const char *sonde_role_name(sonde_role role);

typedef enum sonde_pass {
    SONDE_PASS_NONE = 0, /* not computed in a pass: inputs, parameters */
    SONDE_PASS_FORWARD = 1,
    SONDE_PASS_BACKWARD = 2,
    SONDE_PASS_UPDATE = 3
} sonde_pass;
SONDE_API const char *sonde_pass_name(sonde_pass pass); /* "forward" ... */

typedef struct sonde_tensor_info {
    const char *name;
    const char *module; /* dotted path, "" for the root */
    const char *op;     /* "Conv2d", "SGD" ...; "" if nothing computes it */
    sonde_role role;
    sonde_pass pass;
    sonde_dtype dtype;
    int rank;
    int64_t shape[SONDE_MAX_DIMS]; /* of one micro-batch */
    uint32_t same_as; /* the tensor an alias shares its value with, else its own id */
    const char *note; /* what the value means where its name does not say it, or "" */
    bool shared;      /* one value for all replicas, observed as replica 0's */
} sonde_tensor_info;

#define SONDE_NO_TENSOR UINT32_MAX
/* How the note of a tensor begins of which each worker holds a part of its own: its values
 * are not those of the other workers. */
#define SONDE_NOTE_SHARD "local shard"
/* How the note of a loss begins that is not meant to fall: that of a player, of a critic,
 * minus a reward. Rules do not conclude from it that training goes badly, unless it is not
 * finite. */
#define SONDE_NOTE_FREE "need not fall"
/* How the note of a gradient begins whose parameter the program gave to an optimizer, which
 * the rest of the note tells from others: such a parameter is not frozen on purpose. */
#define SONDE_NOTE_HELD "for optimizer"

typedef struct sonde_catalogue sonde_catalogue;

SONDE_API SONDE_CHECKED sonde_err sonde_catalogue_create(sonde_catalogue **out,
                                                         sonde_diag *diag);
SONDE_API void sonde_catalogue_destroy(sonde_catalogue *catalogue);

/*
 * Adds a tensor; *id counts from 0. With info->same_as SONDE_NO_TENSOR it is a tensor of
 * its own, else an alias of a declared id, of the same dtype and shape (an alias of an
 * alias points to the tensor). A name that is taken: SONDE_EEXIST; no name, or an
 * unknown role or pass: SONDE_EINVAL; SONDE_EDTYPE, SONDE_ESHAPE and SONDE_ERANGE for
 * the rest. NULL for module, op or note means "".
 */
SONDE_API SONDE_CHECKED sonde_err sonde_catalogue_declare(sonde_catalogue *catalogue,
                                                          const sonde_tensor_info *info,
                                                          uint32_t *id, sonde_diag *diag);
SONDE_API uint32_t sonde_catalogue_count(const sonde_catalogue *catalogue);
/* Borrowed until the next declare. NULL: no such id. */
SONDE_API const sonde_tensor_info *sonde_catalogue_info(const sonde_catalogue *catalogue,
                                                        uint32_t id);
/*
 * Finds a name as a user writes it: exact; or with a leading "model." (also after a
 * gradient's prefix: Gradient___model.fc1.bias) that no module has; or `<module>_output`
 * for `<module>_output_0` (and `_input`). Unknown: SONDE_ENOTFOUND with the nearest
 * names.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_catalogue_find(const sonde_catalogue *catalogue,
                                                       const char *name, uint32_t *id,
                                                       sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
