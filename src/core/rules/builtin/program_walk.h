/*
 * program_walk.h - ways through the program of a step, for rules that read it:
 *
 *     upward     from a value to the operation that made it, through views and operations
 *                that change no value
 *     marks      all values that a loss is made of; all that are made of a parameter
 *     lines      of operations, for messages
 *
 * The functions that rows point to (sonde_rule.program) are listed at the end:
 *
 *     program_softmax.c     SoftmaxMisuse: what a loss gets
 *     program_masks.c       SoftmaxMisuse: masks of padding
 *     program_broadcast.c   LossBroadcast: shapes
 *     program_heads.c       BatchMixing: heads and positions of attention
 *     program_modes.c       TrainEvalMode, EvalNondeterminism: modes
 *     program_free_losses.c rules on losses: whether these need not fall
 *     program_optimizers.c  OptimizerState: settings
 *     program_results.c     ModelStructure: what operations make and nothing reads
 */
#ifndef SONDE_RULES_BUILTIN_PROGRAM_WALK_H
#define SONDE_RULES_BUILTIN_PROGRAM_WALK_H

#include <sonde/program.h>
#include <sonde/rule.h>

#include <stdbool.h>
#include <stddef.h>

/* Whether a word is one of several, which blanks separate. */
bool sonde__builtin_walk_is(const char *word, const char *words);

/* Whether steps of the program train. */
static inline bool sonde__builtin_walk_trains(const sonde_program *program)
{
    return program->mode == SONDE_MODE_TRAIN || program->mode == SONDE_MODE_GLOBAL;
}

/* --- upward ------------------------------------------------------------------------- */

/* The value of an operand; -1: there is none. */
int sonde__builtin_walk_operand(const sonde_program_node *node, size_t i);
/* The first operand that is a tensor; -1: there is none. */
int sonde__builtin_walk_first(const sonde_program_node *node);
/* The operation that makes a value; NULL: none does, or the value is -1. */
const sonde_program_node *sonde__builtin_walk_maker(const sonde_program *program,
                                                    int value);
/* Views: other shapes of the same elements. Plain: the same elements, or nearly. */
#define SONDE__WALK_VIEWS "reshape squeeze unsqueeze transpose contiguous"
#define SONDE__WALK_PLAIN "contiguous to clone dropout clamp identity alias requires_grad"
/* Walks from *value up through operations of these names, by their first operands. Returns
 * the operation that makes the value at which it ends, or NULL; *value: that value. */
const sonde_program_node *sonde__builtin_walk_up(const sonde_program *program, int *value,
                                                 const char *through);
bool sonde__builtin_walk_same_shape(const sonde_program_value *a,
                                    const sonde_program_value *b);
/* Dimension `dim` of an operation on a value, from 0; -1: it does not tell. */
int sonde__builtin_walk_dim(const sonde_program_node *node, int rank);

/* --- marks -------------------------------------------------------------------------- */

/* A byte a value; free with sonde__free. NULL: memory ran out, and the rule has failed. */
bool *sonde__builtin_walk_marks(sonde_rule_run *run, const sonde_program *program);
/* Marks all values that marked ones are made of, or that are made of marked ones;
 * by_gradient: as far as gradients flow. */
void sonde__builtin_walk_above(const sonde_program *program, bool *marks,
                               bool by_gradient);
void sonde__builtin_walk_below(const sonde_program *program, bool *marks,
                               bool by_gradient);
/* Marks what backward is called on, or, if it is not called, the losses that need
 * gradients; false: there is none. */
bool sonde__builtin_walk_objectives(const sonde_program *program, bool *marks);

/* --- events ------------------------------------------------------------------------- */

/* The first event of a kind from index i on; NULL: there is none. */
const sonde_program_event *sonde__builtin_walk_event(const sonde_program *program,
                                                     size_t i, sonde_event_kind kind);

/* Whether an event clears the gradients that an optimizer steps on. by_model: also one that
 * clears those of a model while there are several optimizers. */
bool sonde__builtin_walk_clears(const sonde_program *program,
                                const sonde_program_event *event, int optimizer,
                                bool by_model);
/* Whether an optimizer calls the program itself, as LBFGS and SAM do. */
bool sonde__builtin_walk_calls_back(const sonde_program *program);

/* Whether a line, which is known, is that of *said; *said becomes it. Layers that are built
 * alike have a fault at one line, and it is said once. */
bool sonde__builtin_walk_is_said(sonde_place *said, sonde_place place);

/* --- texts -------------------------------------------------------------------------- */

enum { SONDE__WALK_TEXT = 96 };
typedef struct sonde__builtin_text {
    char text[SONDE__WALK_TEXT];
} sonde__builtin_text;

/* " at train.py:41"; "" if the place is unknown. */
const char *sonde__builtin_walk_line(const sonde_program *program, sonde_place place,
                                     sonde__builtin_text *text);
/* "(64, 10)" of a value. */
const char *sonde__builtin_walk_shape(const sonde_program *program, int value,
                                      sonde__builtin_text *text);
/* The tensor of a value, or of those that it is a view of, or of `otherwise`. */
const char *sonde__builtin_walk_tensor(const sonde_program *program, int value,
                                       int otherwise);

/* --- functions of rows -------------------------------------------------------------- */

void sonde__builtin_softmax_program(sonde_rule_run *run, const sonde_program *program);
/* used: values that the objective is made of. */
void sonde__builtin_mask_program(sonde_rule_run *run, const sonde_program *program,
                                 const bool *used);
void sonde__builtin_broadcast_program(sonde_rule_run *run, const sonde_program *program);
/* learned: values that gradients of the objective flow through. */
void sonde__builtin_heads_program(sonde_rule_run *run, const sonde_program *program,
                                  const bool *learned);
void sonde__builtin_mode_program(sonde_rule_run *run, const sonde_program *program);
void sonde__builtin_free_losses(sonde_rule_run *run, const sonde_program *program);
void sonde__builtin_eval_program(sonde_rule_run *run, const sonde_program *program);
void sonde__builtin_optimizer_program(sonde_rule_run *run, const sonde_program *program);
void sonde__builtin_results_program(sonde_rule_run *run, const sonde_program *program);
/* Whether an optimizer of the program (NULL: none) has swapped betas, which that reports. */
bool sonde__builtin_optimizer_is_swapped(const sonde_program *program);

#endif
