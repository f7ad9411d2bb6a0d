/*
 * sink.c - rules inside the process that they judge: sinks for the observer's taps.
 *
 * Tensors of which the same is wanted share a tap, and each tap has a sink of its own that lets
 * through what its tap asked for. What rules need at every step comes at every interval-th, and
 * the vital signs of what is not finite at any step at which the producer notices; what
 * costs more, raw values above all, at every raw_interval-th. All sinks of a step have their
 * values before the first is told that it ends, which is when rules are evaluated.
 */
#include "rules/engine.h"

#include <stdio.h>
#include <string.h>

enum { HOWS = 16, SLOWER = 10, NAMES_A_TAP = 200, MODES = SONDE_MODE_GLOBAL };

typedef struct sonde__rules_sink {
    sonde_sink sink; /* first */
    sonde_rules *rules;
    unsigned how;
} rules_sink;

static void sink_put(sonde_sink *sink, const sonde_observation *seen)
{
    const rules_sink *of = (rules_sink *)sink;
    sonde_observation part = *seen;

    part.view = (seen->how & SONDE_HOW_RAW) ? seen->view : NULL;
    part.vitals = (seen->how & SONDE_HOW_VITALS) ? seen->vitals : NULL;
    sonde_rules_put(of->rules, &part);
}

static void sink_end_step(sonde_sink *sink, const sonde_coordinate *at)
{
    const rules_sink *of = (rules_sink *)sink;

    if (of->rules->any) { /* not told by another sink already */
        sonde_rules_end_step(of->rules, at);
    }
}

void sonde__rules_free_sink(sonde_rules *rules)
{
    sonde__free(rules->sink);
}

/* What rules want of every tensor in a mode: at every step, and beyond that now and then. */
static void collect(const sonde_rules *rules, int mode, uint8_t *each, uint8_t *rest)
{
    memset(each, 0, rules->slot_count);
    memset(rest, 0, rules->slot_count);
    for (size_t i = 0; i < rules->count; i++) {
        const sonde_rule_run *run = rules->runs[i];

        if (run->rule->modes != 0 && (run->rule->modes >> mode & 1U) == 0) {
            continue;
        }
        for (size_t j = 0; j < run->count; j++) {
            const sonde_rule_need *need = &run->rule->needs[run->tensors[j].need];
            const unsigned now =
                need->how & (need->each_step ? ~0U : (unsigned)SONDE_HOW_VITALS);

            each[run->tensors[j].id] |= (uint8_t)now;
            rest[run->tensors[j].id] |= (uint8_t)(need->how & ~now);
        }
    }
    for (size_t id = 0; id < rules->slot_count; id++) {
        rest[id] &= (uint8_t)~each[id];
    }
}

/* An expression for exactly the names of tensors *from and on with that how; *from moves on.
 * New; NULL with *any true: out of memory. */
static char *expression(const sonde_rules *rules, const uint8_t *hows, unsigned how,
                        size_t *from, bool *any)
{
    size_t size = sizeof "^(?:)$", used = 0, names = 0, to = *from;
    char *text = NULL;

    for (; to < rules->slot_count && names < NAMES_A_TAP; to++) {
        if (hows[to] == how) {
            size +=
                strlen(sonde_catalogue_info(rules->catalogue, (uint32_t)to)->name) + 5;
            names++;
        }
    }
    *any = names > 0;
    text = names > 0 ? sonde__malloc(size) : NULL;
    if (text == NULL) {
        *from = to;
        return NULL;
    }
    used = (size_t)snprintf(text, size, "^(?:");
    for (size_t id = *from, n = 0; id < to; id++) {
        if (hows[id] == how) {
            used += (size_t)snprintf(
                text + used, size - used, "%s\\Q%s\\E", n++ > 0 ? "|" : "",
                sonde_catalogue_info(rules->catalogue, (uint32_t)id)->name);
        }
    }
    (void)snprintf(text + used, size - used, ")$");
    *from = to;
    return text;
}

static sonde_err add_tap(sonde_observer *observer, const char *text, int mode,
                         int64_t interval, rules_sink *sink, sonde_diag *diag)
{
    sonde_tap tap = {.how = sink->how, .where = &sink->sink};
    sonde_selector *what = NULL;
    sonde_err err = sonde_selector_create_regex(text, &what, diag);

    if (err != SONDE_OK) {
        return err;
    }
    tap.what = what;
    tap.when[mode] = sonde_schedule_every(interval);
    tap.when_bad =
        mode == SONDE_MODE_TRAIN && interval > 1 && (sink->how & SONDE_HOW_VITALS) != 0;
    err = sonde_observer_add(observer, &tap, NULL, diag);
    sonde_selector_destroy(what);
    return err;
}

/* Taps for the tensors whose hows are not 0. */
static sonde_err add_taps(sonde_rules *rules, sonde_observer *observer,
                          const uint8_t *hows, int mode, int64_t interval,
                          sonde_diag *diag)
{
    for (unsigned how = 1; how < HOWS; how++) {
        for (size_t from = 0; from < rules->slot_count;) {
            bool any = false;
            char *text = expression(rules, hows, how, &from, &any);
            sonde_err err = SONDE_OK;

            if (!any) {
                break;
            }
            err = text == NULL
                      ? sonde__fail_nomem(diag, "the taps of rules")
                      : add_tap(observer, text, mode, interval, &rules->sink[how], diag);
            sonde__free(text);
            if (err != SONDE_OK) {
                return err;
            }
        }
    }
    return SONDE_OK;
}

sonde_err sonde_rules_attach(sonde_rules *rules, const sonde_catalogue *catalogue,
                             sonde_observer *observer, int64_t interval,
                             int64_t raw_interval, sonde_diag *diag)
{
    const int64_t every = interval > 0 ? interval : 1;
    const int64_t slower = raw_interval > 0 ? raw_interval : SLOWER * every;
    sonde_err err = sonde_rules_begin(rules, catalogue, NULL, NULL, diag);
    uint8_t *each = NULL, *rest = NULL;

    if (err != SONDE_OK) {
        return err;
    }
    rules->sink = sonde__calloc(HOWS, sizeof *rules->sink);
    each = sonde__malloc(rules->slot_count);
    rest = sonde__malloc(rules->slot_count);
    if (rules->sink == NULL || each == NULL || rest == NULL) {
        err = sonde__fail_nomem(diag, "the taps of rules");
        goto done;
    }
    for (unsigned how = 0; how < HOWS; how++) {
        rules->sink[how] =
            (rules_sink){{.put = sink_put, .end_step = sink_end_step}, rules, how};
    }
    for (int mode = 0; mode < MODES && err == SONDE_OK; mode++) {
        collect(rules, mode, each, rest);
        err = add_taps(rules, observer, each, mode, every, diag);
        if (err == SONDE_OK) {
            err = add_taps(rules, observer, rest, mode, slower, diag);
        }
    }
done:
    sonde__free(each);
    sonde__free(rest);
    return err;
}
