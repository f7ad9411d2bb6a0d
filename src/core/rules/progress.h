/*
 * progress.h - whether training goes well, by its own measure: the losses of its steps.
 *
 * Takes the loss of each training step: that of the objective, or the sum of several
 * losses of which none is the objective. A mark keeps the level before something; the
 * verdict compares the losses since with it, by their own noise.
 *
 * Not every loss is meant to fall: those of two players, of policies and of bootstrapped
 * values are not. A program declares such a loss (SONDE_NOTE_FREE, the collection
 * free_losses), or its operations show it (program_free_losses.c). Else it is known by being
 * one of several without a total or, as a fallback, by the words of its name, or by inputs or
 * layers that only such programs have (rewards; a critic). It never says that training goes
 * badly, unless it is no longer finite.
 */
#ifndef SONDE_RULES_PROGRESS_H
#define SONDE_RULES_PROGRESS_H

#include <sonde/export.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SONDE__RULES_KEPT = 64, /* losses */
    SONDE__RULES_FIRST = 5  /* that make a level */
};

typedef struct sonde__rules_loss {
    uint32_t id;
    bool whole;    /* it is the objective */
    bool free;     /* its name says that it need not fall */
    bool declared; /* ... or the program does */
    bool seen;     /* at a step of training */
} sonde__rules_loss;

typedef struct sonde__rules_progress {
    double recent[SONDE__RULES_KEPT]; /* a ring */
    double first[SONDE__RULES_FIRST];
    uint64_t count;  /* finite losses taken */
    uint64_t bad;    /* steps whose loss was not finite */
    bool whole;      /* the losses taken are those of the objective */
    bool parts;      /* several are seen, of which none is the objective */
    bool free;       /* it need not fall: the program or its inputs say so */
    const char *why; /* that is so, as a clause; NULL: it must fall, as far as is known */
    bool named;      /* ... or the name of one that was seen does */
    bool crosses;    /* it has been on both sides of 0 */
    double
        standard; /* the loss of predictions that are not made of the inputs; 0: unknown */
    double lowest;     /* mean of SHORT losses in a row, of those so far */
    uint64_t relapsed; /* such means, in a row, at which half of the fall is lost */
    uint64_t bad_row;  /* steps in a row whose loss was not finite */
    sonde__rules_loss *losses; /* those of training */
    size_t loss_count, loss_capacity;
    uint32_t *signs; /* inputs and layers of programs whose losses need not fall */
    size_t sign_count, sign_capacity;
} sonde__rules_progress;

/* A moment: the level of the losses so far. */
typedef struct sonde__rules_progress_mark {
    double level, error; /* error: standard error of the level; NaN: of one loss */
    uint64_t count, bad;
    double slight; /* the share of the first losses by which a loss that falls falls, over
                      SONDE__RULES_LONG steps; 0: 2 % */
} sonde__rules_progress_mark;

typedef enum sonde__rules_verdict {
    SONDE__RULES_OPEN,  /* too early to say */
    SONDE__RULES_WELL,  /* the loss falls (after an event: is as it was) */
    SONDE__RULES_ILL,   /* the loss rises, or is no longer finite */
    SONDE__RULES_STILL, /* it does neither, over SONDE__RULES_LONG steps */
    SONDE__RULES_NONE   /* there is no loss, or it need not fall */
} sonde__rules_verdict;

enum { SONDE__RULES_SHORT = 10, SONDE__RULES_LONG = 40 };

/* A finite or other loss of a step. */
SONDE_API void sonde__rules_progress_take(sonde__rules_progress *progress, double loss);
/* The level now. event: that of the last steps alone; else the lower one of the first and
 * of the last steps. */
SONDE_API sonde__rules_progress_mark
sonde__rules_progress_level(const sonde__rules_progress *progress, bool event);
/* What the losses since the mark say, the last KEPT of them at most. A mark before any loss
 * has the level of the first ones. ended: no more will come. */
SONDE_API sonde__rules_verdict sonde__rules_progress_since(
    const sonde__rules_progress *progress, const sonde__rules_progress_mark *mark,
    bool event, bool ended);
/* Whether a loss that had fallen has lost half of that, for a while, or is no longer
 * finite. */
bool sonde__rules_progress_is_relapsed(const sonde__rules_progress *progress);
void sonde__rules_progress_fini(sonde__rules_progress *progress);

#endif
