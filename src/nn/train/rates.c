/*
 * rates.c - how learning rates change while a trainer runs: schedules, and groups of
 * parameters with schedules of their own.
 */
#include "nn/train/train_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"

#include <sonde/nn/job.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "STEP=RATE" into entry i of the table. */
static bool read_table_entry(const char *text, sonde_nn_rate *rate, int i)
{
    char *end = NULL;

    errno = 0;
    rate->table_step[i] = strtoll(text, &end, 10);
    if (end == text || *end != '=' || errno != 0) {
        return false;
    }
    text = end + 1;
    rate->table_rate[i] = sonde__strtod(text, &end);
    return end != text && *end == '\0';
}

/* The number that an option has if it is not set. */
static double standard_of(const char *name)
{
    const sonde_nn_option *row = NULL;

    for (size_t i = 0; (row = sonde_nn_option_at(i)) != NULL; i++) {
        if (strcmp(row->name, name) == 0) {
            return sonde__strtod(row->standard, NULL);
        }
    }
    return 0.0;
}

/* Refuses what is set for another schedule than the job's. */
static sonde_err check_schedule(const sonde_nn_rate *rate,
                                const sonde_nn_job_texts *rates, sonde_diag *diag)
{
    const struct {
        const char *name, *schedule;
        bool set;
        sonde_nn_rate_kind kind;
    } own[] = {
        {"schedule_every", "step", (double)rate->every != standard_of("schedule_every"),
         SONDE_NN_RATE_STEP},
        {"gamma", "step", rate->gamma != standard_of("gamma"), SONDE_NN_RATE_STEP},
        {"schedule_end", "cosine", rate->end != standard_of("schedule_end"),
         SONDE_NN_RATE_COSINE},
        {"rates", "table", rates->count > 0, SONDE_NN_RATE_TABLE},
    };
    static const char *const kinds[] = {"constant", "step", "cosine", "one_cycle",
                                        "table"};

    for (size_t i = 0; i < SONDE_COUNT_OF(own); i++) {
        if (own[i].set && rate->kind != own[i].kind) {
            return sonde__fail(diag, SONDE_EINVAL, own[i].name, NULL,
                               "a parameter of the schedule %s, not of %s",
                               own[i].schedule, kinds[rate->kind]);
        }
    }
    return SONDE_OK;
}

/* A schedule of a job, with its table. */
static sonde_err take_job_rate(const sonde_nn_rate *given,
                               const sonde_nn_job_texts *texts, sonde_nn_rate *rate,
                               sonde_diag *diag)
{
    SONDE__TRY(check_schedule(given, texts, diag));
    *rate = *given;
    for (size_t i = 0; i < texts->count; i++) {
        if (i == SONDE_NN_RATE_MOST || !read_table_entry(texts->text[i], rate, (int)i)) {
            return sonde__fail(diag, SONDE_EINVAL, "rates", "STEP=RATE, at most 32",
                               "'%s'", texts->text[i]);
        }
        rate->table_count = (int)i + 1;
    }
    if (rate->kind == SONDE_NN_RATE_TABLE && rate->table_count == 0) {
        return sonde__fail(diag, SONDE_EINVAL, "rates", "STEP=RATE",
                           "the schedule table has none");
    }
    return SONDE_OK;
}

static bool changes(const sonde_nn_rate *rate)
{
    return rate->kind != SONDE_NN_RATE_CONSTANT || rate->warmup > 0;
}

sonde_err sonde__train_take_rate(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const sonde_nn_job_info *info =
        trainer->job != NULL ? sonde_nn_job_get_info(trainer->job) : NULL;

    if (info != NULL) {
        SONDE__TRY(take_job_rate(&info->schedule, &info->rates, &trainer->rate, diag));
    } else if (trainer->options.rate != NULL) {
        trainer->rate = *trainer->options.rate;
    }
    trainer->scheduled = changes(&trainer->rate);
    return trainer->scheduled ? sonde_nn_rate_check(&trainer->rate, diag) : SONDE_OK;
}

/* --- groups --------------------------------------------------------------------------- */

static sonde_err read_job_group(const sonde_nn_trainer *trainer, size_t i,
                                sonde__train_group *group, const char **params,
                                sonde_diag *diag)
{
    sonde_nn_job_group given;
    SONDE__TRY(sonde_nn_job_get_group(trainer->job, i, &given, diag));
    *params = given.params;
    *group = (sonde__train_group){
        .name = given.name, .optimizer = given.optimizer, .own = given.scheduled};
    return given.scheduled
               ? take_job_rate(&given.schedule, &given.rates, &group->rate, diag)
               : SONDE_OK;
}

static sonde__train_group read_given_group(const sonde_nn_group *group,
                                           const char **params)
{
    *params = group->params;
    return (sonde__train_group){
        .name = group->name,
        .optimizer = group->optimizer,
        .own = group->rate != NULL,
        .rate = group->rate != NULL ? *group->rate : (sonde_nn_rate){.total = 0}};
}

sonde_err sonde__train_add_groups(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const size_t count = trainer->job != NULL
                             ? sonde_nn_job_get_info(trainer->job)->group_count
                             : trainer->options.group_count;

    trainer->groups = sonde__calloc(count, sizeof *trainer->groups);
    if (trainer->groups == NULL) {
        return sonde__fail_nomem(diag, "the groups");
    }
    for (size_t i = 0; i < count; i++) {
        sonde__train_group *group = &trainer->groups[i];
        sonde_nn_group given = {.name = NULL};

        if (trainer->job != NULL) {
            SONDE__TRY(read_job_group(trainer, i, group, &given.params, diag));
        } else {
            *group = read_given_group(&trainer->options.groups[i], &given.params);
        }
        if (group->own) {
            SONDE__TRY(sonde_nn_rate_check(&group->rate, diag));
        }
        given.name = group->name;
        given.optimizer = group->optimizer;
        SONDE__TRY(sonde_nn_session_add_group(trainer->session, &given, diag));
        if (group->own && changes(&group->rate)) {
            trainer->scheduled = true;
        }
    }
    trainer->group_count = count;
    return SONDE_OK;
}

/* --- while training ------------------------------------------------------------------- */

void sonde__train_set_total(sonde_nn_trainer *trainer, int64_t steps)
{
    sonde_nn_rate *rate = &trainer->rate;

    rate->total = rate->total == 0 ? steps : rate->total;
    for (size_t i = 0; i < trainer->group_count; i++) {
        rate = &trainer->groups[i].rate;
        rate->total = rate->total == 0 ? steps : rate->total;
    }
}

/* A table of the default's holds rates of the default: a group keeps its share of them. */
static double group_rate(const sonde_nn_trainer *trainer, const sonde__train_group *group,
                         int64_t step)
{
    const sonde_nn_rate *rate = group->own ? &group->rate : &trainer->rate;
    const double all = (double)trainer->optimizer.learning_rate;
    const double base = (double)group->optimizer.learning_rate;

    return !group->own && rate->kind == SONDE_NN_RATE_TABLE && all > 0.0
               ? sonde_nn_rate_at(rate, all, step) * base / all
               : sonde_nn_rate_at(rate, base, step);
}

sonde_err sonde__train_set_rates(const sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const int64_t step = sonde_nn_session_step(trainer->session);
    sonde_nn_optimizer now = trainer->optimizer;
    sonde_err err = SONDE_OK;

    if (!trainer->scheduled) {
        return SONDE_OK;
    }
    now.learning_rate = (float)sonde_nn_rate_at(
        &trainer->rate, (double)trainer->optimizer.learning_rate, step);
    err = sonde_nn_session_set_optimizer(trainer->session, NULL, &now, diag);
    for (size_t i = 0; err == SONDE_OK && i < trainer->group_count; i++) {
        const sonde__train_group *group = &trainer->groups[i];

        now = group->optimizer;
        now.learning_rate = (float)group_rate(trainer, group, step);
        err = sonde_nn_session_set_optimizer(trainer->session, group->name, &now, diag);
    }
    return err;
}
