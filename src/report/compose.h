/*
 * compose.h - the parts of the page, and what they share.
 */
#ifndef SONDE_REPORT_COMPOSE_H
#define SONDE_REPORT_COMPOSE_H

#include "report/html.h"

#include <sonde/error.h>
#include <sonde/report.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The findings of one rule: one card. */
typedef struct sonde__report_group_kind {
    const char *name;       /* of the rule */
    const sonde_rule *rule; /* NULL: not among those that judged */
    size_t *member;         /* count indices into findings, as found */
    size_t count;
    sonde_severity worst;
    int64_t from, to; /* steps, over all of them */
} sonde__report_group_kind;

typedef struct sonde__report {
    sonde_text page;
    sonde_report_options options; /* with defaults */
    sonde_trial *trial;
    const sonde_catalogue *catalogue;
    sonde_rules *rules;
    sonde_run_info info;
    const sonde_finding *findings;
    size_t count;
    sonde__report_group_kind *groups; /* worst first, then by step */
    size_t group_count;
    size_t *members;    /* of all groups */
    bool any_step;      /* otherwise there is nothing to draw */
    int64_t begin, end; /* the axis of all curves: global steps */
} sonde__report;

/* Fills groups. */
sonde_err sonde__report_group(sonde__report *report, sonde_diag *diag);
/* What a finding is about; SONDE_NO_TENSOR: the run as a whole. */
uint32_t sonde__report_tensor(const sonde__report *report, const sonde_finding *finding);
/* A training loss; SONDE_NO_TENSOR if the run has none. */
uint32_t sonde__report_loss(const sonde__report *report);

/* The parts, from top to bottom; each after a heading of its own. */
void sonde__report_verdict(sonde__report *report);
void sonde__report_when(sonde__report *report);
sonde_err sonde__report_loss_curve(sonde__report *report, sonde_diag *diag);
sonde_err sonde__report_cards(sonde__report *report, sonde_diag *diag);
sonde_err sonde__report_tensors(sonde__report *report, sonde_diag *diag);
void sonde__report_judged(sonde__report *report);
void sonde__report_facts(sonde__report *report);

/* A figure of one tensor with a finding's marks (NULL: none). A loss has a line for training
 * and one for evaluation. */
sonde_err sonde__report_figure(sonde__report *report, uint32_t id,
                               const sonde_finding *finding, sonde_diag *diag);

/* Pieces, NULL behind the last. */
extern const char *const sonde__report_style[];

#endif
