/*
 * standard.h - what a loss is if nothing is made of the inputs: the standard by which training
 * goes well or not, as far as the program of a step tells it.
 */
#ifndef SONDE_RULES_STANDARD_H
#define SONDE_RULES_STANDARD_H

#include <sonde/program.h>

/* The loss of even predictions, where the only objective of a training step is the mean of a
 * cross-entropy: ln of the number of classes, or ln 2. 0: unknown. */
double sonde__rules_standard(const sonde_program *program);
/* The loss of the program that is its only objective; NULL: there is none, or it is a part. */
const sonde_program_loss *sonde__rules_only_loss(const sonde_program *program);

#endif
