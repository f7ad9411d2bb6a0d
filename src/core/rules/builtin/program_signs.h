/*
 * program_signs.h - whether the objective rises or falls with a value, by the operations
 * that lie between: sums, differences, factors and functions that rise.
 */
#ifndef SONDE_RULES_BUILTIN_PROGRAM_SIGNS_H
#define SONDE_RULES_BUILTIN_PROGRAM_SIGNS_H

#include <sonde/program.h>
#include <sonde/rule.h>

typedef enum sonde__builtin_sign {
    SONDE__SIGN_UNKNOWN = 0, /* the objective is not made of it, or it is not known how */
    SONDE__SIGN_RISES = 1,
    SONDE__SIGN_FALLS = -1,
    SONDE__SIGN_BOTH = 2 /* by one way it rises, by another it falls */
} sonde__builtin_sign;

/* Fills in the signs of all values; those of objectives are set before. */
void sonde__builtin_signs_follow(const sonde_program *program,
                                 sonde__builtin_sign *signs);

/* LossSign: all losses that an objective is made of enter it with the wrong sign. */
void sonde__builtin_sign_program(sonde_rule_run *run, const sonde_program *program);
/* LossSign: two players that want the same of a discriminator. */
void sonde__builtin_player_program(sonde_rule_run *run, const sonde_program *program);

#endif
