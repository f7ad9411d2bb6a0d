/*
 * program_samples.h - which dimension of each value of a program counts the samples of the
 * batch, for rules that judge whether samples stay apart.
 *
 *     input (64, 1, 28, 28)      ALONG dimension 0
 *     reshape to (64, 784)       ALONG 0
 *     transpose to (784, 64)     ALONG 1
 *     reshape to (64, 784)       CUT: a row holds parts of several samples
 *
 * Samples are found in the inputs by the targets of the first loss and by what the loader
 * says of its batches, and are followed through the operations. Where that fails, values are
 * LOST, and nothing is said about them.
 */
#ifndef SONDE_RULES_BUILTIN_PROGRAM_SAMPLES_H
#define SONDE_RULES_BUILTIN_PROGRAM_SAMPLES_H

#include <sonde/program.h>
#include <sonde/rule.h>

#include <stdbool.h>

typedef enum sonde__builtin_samples_kind {
    SONDE__SAMPLES_NONE = 0,  /* it does not depend on the input */
    SONDE__SAMPLES_ALONG = 1, /* dimension dim counts them */
    SONDE__SAMPLES_LOST = 2,  /* unknown */
    SONDE__SAMPLES_CUT = 3    /* node took samples apart, or mixed them */
} sonde__builtin_samples_kind;

/* Of a value. ALONG: index i of the dimension is (o * samples + sample) * inner + k, with o
 * below outer and k below inner. */
typedef struct sonde__builtin_samples {
    sonde__builtin_samples_kind kind;
    int dim, node;
    int64_t outer, inner;
    bool sure;  /* the targets or the loader show that these are samples */
    bool moved; /* CUT: elements have changed places since */
} sonde__builtin_samples;

/* A row for each value; free with sonde__free. NULL: memory ran out, and the rule has
 * failed. Linear in the program. */
sonde__builtin_samples *sonde__builtin_samples_follow(sonde_rule_run *run,
                                                      const sonde_program *program);
/* The first loss that has predictions and targets; NULL: there is none. */
const sonde_program_loss *sonde__builtin_samples_loss(const sonde_program *program);
/* The reduced or normalized dimension of an operation on a value is that of its samples. */
bool sonde__builtin_samples_is_over(const sonde_program *program,
                                    const sonde__builtin_samples *samples,
                                    const sonde_program_node *node);
/* Whether a loader shuffles the samples: they are no steps of a sequence. */
bool sonde__builtin_samples_are_shuffled(const sonde_program *program);

#endif
