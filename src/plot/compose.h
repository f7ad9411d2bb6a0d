/*
 * compose.h - the parts of the page, and the data that they share.
 */
#ifndef SONDE_REPORT_COMPOSE_H
#define SONDE_REPORT_COMPOSE_H

#include "plot/html.h"

#include <sonde/error.h>
#include <sonde/plot.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The findings of one rule; each group is a card. */
typedef struct sonde__report_group {
    const char *name;       /* of the rule */
    const sonde_rule *rule; /* NULL: the rule did not judge this run */
    size_t *member;         /* (count) indices into findings, in their order */
    size_t count;
    sonde_severity worst;
    int64_t first, last; /* steps, over all of them */
    uint64_t because_of; /* the finding that all follow from; 0: there is none */
} sonde__report_group;

typedef struct sonde__report {
    sonde_text page;
    sonde_report_options options; /* with defaults */
    sonde_trial *trial;
    const sonde_catalogue *catalogue;
    sonde_rules *rules;
    sonde_run_info info;
    const sonde_finding *findings;
    size_t count;
    sonde__report_group *groups; /* worst first, then by step */
    size_t group_count;
    size_t *members;    /* of all groups */
    bool any_step;      /* false: there is nothing to draw */
    int64_t begin, end; /* the axis of all curves: global steps */
} sonde__report;

/* The tensor of a finding; SONDE_NO_TENSOR: the run as a whole. */
uint32_t sonde__report_tensor(const sonde__report *report, const sonde_finding *finding);
/* A training loss; SONDE_NO_TENSOR: the run has none. */
uint32_t sonde__report_loss(const sonde__report *report);

/* The parts of verdict.c, from top to bottom; each writes its own heading. */
void sonde__report_verdict(sonde__report *report);
void sonde__report_when(sonde__report *report);
sonde_err sonde__report_loss_curve(sonde__report *report, sonde_diag *diag);
sonde_err sonde__report_cards(sonde__report *report, sonde_diag *diag);
#endif
