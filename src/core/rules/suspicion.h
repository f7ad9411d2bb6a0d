/*
 * suspicion.h - findings that wait for training.
 *
 * A ratio, an initial state or a jump may be unusual and work: a healthy program is one
 * whose loss improves. A rule that sees such a thing suspects it. The suspicion is a
 * finding that is not passed on yet; its step is the one at which it was raised. It ends
 * in one of these ways, all decided here, at the end of a training step:
 *
 *     the rule clears it        the tensor has recovered: nothing is reported
 *     training goes well        as terms.well says: nothing, or a note, say
 *     training goes badly       terms.ill
 *     the loss stands still     terms.still
 *     the loss does not tell    terms.untold: there are several without a total, it need
 *                               not fall, or the run ends too soon
 *     no loss is seen           terms.alone once the state has lasted: it is all the
 *                               evidence there is; terms.untold where a loss need not fall
 *
 * progress.h says what "well", "badly" and "still" are.
 *
 * A finding that came of a suspicion is a state. It rises to terms.ill if training, which
 * went well, goes badly while its condition holds, and an event that is no error yet is
 * judged again when it happens again. A finding is resolved once the tensor has recovered,
 * or training goes well after all; it stays a finding. A note about what does no harm is
 * resolved from the start.
 */
#ifndef SONDE_RULES_SUSPICION_H
#define SONDE_RULES_SUSPICION_H

#include <sonde/rule.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As a severity: nothing is reported. */
#define SONDE__WITHDRAWN (-1)

typedef struct sonde__rule_terms {
    int64_t looks; /* reports until it can be confirmed; 0: the first is enough */
    bool event;    /* something that happened to training, not its state: after it, the
                      loss should be as before */
    bool sure;     /* it does not wait: its severity is `well` */
    int well, ill, still, untold, alone; /* severities, or SONDE__WITHDRAWN */
    double slight;                       /* see sonde__rules_progress_mark */
} sonde__rule_terms;

/* Terms of the five severities, and other fields:
 * SONDE__TERMS(too_fast, NOTE, ERROR, ERROR, NOTE, NOTHING, .looks = 3). */
enum {
    SONDE__TERM_NOTHING = SONDE__WITHDRAWN,
    SONDE__TERM_NOTE = SONDE_SEVERITY_NOTE,
    SONDE__TERM_WARNING = SONDE_SEVERITY_WARNING,
    SONDE__TERM_ERROR = SONDE_SEVERITY_ERROR
};
#define SONDE__TERMS(name, good, bad, stands, unknown, ...)                              \
    static const sonde__rule_terms name = {.well = SONDE__TERM_##good,                   \
                                           .ill = SONDE__TERM_##bad,                     \
                                           .still = SONDE__TERM_##stands,                \
                                           .untold = SONDE__TERM_##unknown,              \
                                           .alone = SONDE__TERM_##__VA_ARGS__}
/* Terms of what is sure: SONDE__SURE(ERROR). */
extern const sonde__rule_terms sonde__rule_sure[SONDE_SEVERITY_ERROR + 1];
#define SONDE__SURE(severity) (&sonde__rule_sure[SONDE_SEVERITY_##severity])

/* The condition holds at this step for a tensor of the rule (NULL: for the run), as
 * sonde_rule_found has it: true the first time, and when the severity rises. Then
 * sonde_rule_say must follow. terms: borrowed until the run ends. */
bool sonde__rule_holds(sonde_rule_run *run, const sonde_rule_tensor *t,
                       const sonde__rule_terms *terms, const char *statistic,
                       double value, double threshold);
/* sonde__rule_holds and, if that is true, sonde_rule_say. advice NULL: that of the rule. */
bool sonde__rule_report(sonde_rule_run *run, const sonde_rule_tensor *t,
                        const sonde__rule_terms *terms, const char *statistic,
                        double value, double threshold, const char *advice,
                        const char *fmt, ...) SONDE_PRINTF(8, 9);
/* The condition was looked at and does not hold: at a few looks in a row, a suspicion that
 * waits is withdrawn, and a finding resolved. */
void sonde__rule_clear(sonde_rule_run *run, const sonde_rule_tensor *t);
/* A suspicion of the tensor, if there is one, becomes a finding. */
void sonde__rule_confirm(sonde_rule_run *run, const sonde_rule_tensor *t,
                         sonde_severity severity);
/* A suspicion of the tensor is withdrawn, if there is one. */
void sonde__rule_withdraw(sonde_rule_run *run, const sonde_rule_tensor *t);
/* The finding of the tensor, which is made at this step, began at an earlier one. */
void sonde__rule_date(sonde_rule_run *run, const sonde_rule_tensor *t,
                      const sonde_coordinate *at);
/* A finding of the tensor is resolved, until its condition holds again. */
void sonde__rule_resolve(sonde_rule_run *run, const sonde_rule_tensor *t);
/* Whether a suspicion of the tensor waits, and is no finding yet. */
bool sonde__rule_suspects(const sonde_rule_run *run, const sonde_rule_tensor *t);
/* Whether a loss need not fall in this run, or none is the objective. */
bool sonde__rule_loss_is_free(const sonde_rule_run *run);
/* For sonde_rule.program: losses of this run need not fall, for a reason (a constant; NULL:
 * that is not said; the first one counts). The program is no evidence of what the rule
 * judges. */
void sonde__rule_free_losses(sonde_rule_run *run, const char *why);
/* Whether the program shows or declares that losses need not fall. */
bool sonde__rule_loss_may_rise(const sonde_rule_run *run);
/* Whether losses are meant to fall: none of that, and no name of a loss says otherwise. */
bool sonde__rule_loss_falls(const sonde_rule_run *run);

#endif
