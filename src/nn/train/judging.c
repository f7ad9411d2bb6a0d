/*
 * judging.c - a trainer's rules, the actions on findings, and the verdict.
 *
 * Vital signs of everything make a small network's step a third to a half longer. Rules
 * look as seldom as they can (sonde_rules_looks_of_role), unless the program says how
 * often.
 */
#include "nn/train/train_state.h"
#include "base/fail.h"

#include <stdio.h>
#include <string.h>

enum { WAIT_SECONDS = 15 };

/* --- findings ----------------------------------------------------------------------- */

static void on_finding(void *user, const sonde_finding *finding, bool again)
{
    sonde_nn_trainer *trainer = user;
    const sonde_nn_trainer_events *events = &trainer->options.events;

    if (again) {
        return;
    }
    if (events->finding != NULL) {
        events->finding(events->user, finding, trainer->epoch);
    }
    if (trainer->actions != NULL) {
        sonde_actions_take(trainer->actions, finding);
    }
    if (events->acted != NULL) {
        events->acted(events->user, finding);
    }
}

/* --- opening ------------------------------------------------------------------------ */

static sonde_err make_rules(sonde_nn_trainer *trainer, const sonde_nn_job_rules *rules,
                            sonde_diag *diag)
{
    SONDE__TRY(sonde_rules_create(&trainer->own_rules, diag));
    trainer->rules = trainer->own_rules;
    if (rules->judge.count == 0) {
        SONDE__TRY(sonde_rules_add_defaults(trainer->rules, diag));
    }
    for (size_t i = 0; i < rules->judge.count; i++) {
        SONDE__TRY(sonde_rules_add_list(trainer->rules, rules->judge.text[i], diag));
    }
    return SONDE_OK;
}

static sonde_err add_stop(sonde_actions *actions, const char *when, sonde_diag *diag)
{
    char text[256];

    if (strchr(when, '=') != NULL || when[0] == '\0' || strlen(when) > 200) {
        return sonde__fail(diag, SONDE_EINVAL, "stop_on", "a rule, error, warning or any",
                           "'%.200s'", when);
    }
    (void)snprintf(text, sizeof text, "%s=stop", when);
    return sonde_actions_add(actions, text, diag);
}

static sonde_err make_actions(sonde_nn_trainer *trainer, const sonde_nn_job_rules *rules,
                              sonde_diag *diag)
{
    const sonde_actions_options options = {.size = sizeof options,
                                           .control = trainer->control,
                                           .each = rules->each,
                                           .command_seconds = rules->action_timeout,
                                           .webhook_seconds = rules->action_timeout};

    if (rules->stop_on.count + rules->on_finding.count == 0) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde_actions_create(&options, &trainer->actions, diag));
    for (size_t i = 0; i < rules->on_finding.count; i++) {
        SONDE__TRY(sonde_actions_add(trainer->actions, rules->on_finding.text[i], diag));
    }
    for (size_t i = 0; i < rules->stop_on.count; i++) {
        SONDE__TRY(add_stop(trainer->actions, rules->stop_on.text[i], diag));
    }
    if (trainer->rules == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "rules",
                           "rules, or neither stop_on nor on_finding",
                           "no rule judges, so no finding can cause an action");
    }
    return sonde_actions_check(trainer->actions, trainer->rules, diag);
}

sonde_err sonde__train_judging_open(sonde_nn_trainer *trainer, const char *path,
                                    sonde_diag *diag)
{
    const sonde_nn_trainer_options *options = &trainer->options;
    const sonde_nn_job_rules *rules =
        trainer->job != NULL ? &sonde_nn_job_get_info(trainer->job)->rules : NULL;
    trainer->rules = options->rules;
    trainer->rules_every = options->rules_every;
    trainer->rules_raw_every = options->rules_raw_every;
    SONDE__TRY(sonde_control_create(path, &trainer->control, diag));
    if (trainer->rules == NULL && rules != NULL) {
        trainer->rules_every = rules->every;
        if (!rules->none) {
            SONDE__TRY(make_rules(trainer, rules, diag));
        }
    }
    if (trainer->rules != NULL && path != NULL) {
        SONDE__TRY(sonde_rules_write_to(trainer->rules, path, diag));
    }
    if (rules != NULL) {
        SONDE__TRY(make_actions(trainer, rules, diag));
    }
    if (trainer->rules != NULL) {
        sonde_rules_on_finding(trainer->rules, on_finding, trainer);
    }
    return SONDE_OK;
}

sonde_err sonde__train_judging_attach(void *user, const sonde_catalogue *catalogue,
                                      sonde_observer *observer, sonde_diag *diag)
{
    const sonde_nn_trainer *trainer = user;

    return sonde_rules_attach(trainer->rules, catalogue, observer, trainer->rules_every,
                              trainer->rules_raw_every, diag);
}

void sonde__train_judging_close(sonde_nn_trainer *trainer)
{
    if (trainer->actions != NULL &&
        !sonde_actions_finish(trainer->actions, WAIT_SECONDS)) {
        sonde_actions_stats stats;

        sonde_actions_get_stats(trainer->actions, &stats);
        sonde__train_warn(trainer, "actions: %llu done, %llu failed, %llu lost",
                          (unsigned long long)stats.done,
                          (unsigned long long)stats.failed,
                          (unsigned long long)stats.lost);
    }
    sonde_actions_destroy(trainer->actions);
    if (trainer->rules != NULL) {
        sonde_rules_on_finding(trainer->rules, NULL, NULL);
    }
    sonde_rules_destroy(trainer->own_rules);
    sonde_control_destroy(trainer->control);
}

/* --- the verdict -------------------------------------------------------------------- */

bool sonde_nn_trainer_verdict(const sonde_nn_trainer *trainer, sonde_verdict *verdict)
{
    if (trainer == NULL || verdict == NULL || trainer->rules == NULL) {
        return false;
    }
    *verdict = sonde_rules_verdict(trainer->rules);
    return true;
}
