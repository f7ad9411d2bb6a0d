/*
 * hosted.c - the functions of a rule that runs in a host: evidence goes out, findings come in.
 *
 * The engine cannot tell it from a built-in rule: it is asked what it wants, is given the
 * evidence of a step, and answers before the step is over. What goes wrong in the host switches
 * the rule off, with a finding about it.
 */
#include "rules/user/hosted.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SEND_AT = 1 << 20, PARAMS_TEXT = 16384 };

static const sonde__user_hosted *hosted_of(const sonde_rule_run *run)
{
    return (const sonde__user_hosted *)run->rule;
}

/* --- when it goes wrong ----------------------------------------------------------- */

static void give_up(sonde_rule_run *run)
{
    sonde__user_hosted_state *state = run->state;

    sonde__user_host_stop(state->host);
    state->host = NULL;
}

/* doing: "at step 12". */
static void lost(sonde_rule_run *run, sonde_err err, const char *doing)
{
    sonde__user_hosted_state *state = run->state;
    char fate[128];

    (void)sonde__user_host_fate(state->host, err, fate, sizeof fate);
    give_up(run);
    sonde_rule_fail(run, "it %s %s", fate, doing);
}

/* --- findings --------------------------------------------------------------------- */

static const char *keep(sonde__user_hosted_state *state, const char *text)
{
    const uint32_t id =
        text != NULL ? sonde__names_intern(&state->texts, text) : SONDE__NO_NAME;

    return id != SONDE__NO_NAME ? state->texts.text[id] : NULL;
}

/* False if the message is no finding. */
static bool take_finding(sonde_rule_run *run, sonde__user_message *message)
{
    sonde__user_hosted_state *state = run->state;
    const int64_t at = sonde__user_take_i64(message);
    const uint32_t severity = sonde__user_take_u32(message);
    const double value = sonde__user_take_f64(message);
    const double threshold = sonde__user_take_f64(message);
    const char *statistic = keep(state, sonde__user_need_text(message));
    const char *said = sonde__user_need_text(message);
    const char *advice = sonde__user_take_text(message);
    const size_t i = at < 0 ? SONDE_RULE_WHOLE_RUN : (size_t)at;

    if (message->bad || severity > SONDE_SEVERITY_ERROR ||
        (i != SONDE_RULE_WHOLE_RUN && i >= run->count)) {
        return false;
    }
    if (sonde_rule_found(run, i, (sonde_severity)severity,
                         statistic != NULL ? statistic : "", value, threshold)) {
        sonde_rule_say(run, keep(state, advice), "%s", said);
    }
    return true;
}

/* Sends what was written, and takes findings until the host is done with it. */
static void exchange(sonde_rule_run *run, const char *doing)
{
    sonde__user_hosted_state *state = run->state;
    sonde__user_message answer = {0};
    sonde_err err = sonde__user_host_ask(state->host, &answer);

    while (err == SONDE_OK && answer.kind == SONDE__WIRE_FOUND) {
        err = take_finding(run, &answer)
                  ? sonde__user_wire_take(sonde__user_host_wire(state->host), &answer)
                  : SONDE_EFORMAT;
    }
    if (err == SONDE_OK && answer.kind == SONDE__WIRE_DONE) {
        const char *lacked = sonde__user_need_text(&answer);

        sonde_rule_lacked(run, "%s", lacked);
    } else if (err == SONDE_OK && answer.kind == SONDE__WIRE_FAILED) {
        char text[SONDE__MESSAGE];

        (void)snprintf(text, sizeof text, "%s", sonde__user_need_text(&answer));
        give_up(run);
        sonde_rule_fail(run, "%s", text);
    } else {
        lost(run, err == SONDE_OK ? SONDE_EFORMAT : err, doing);
    }
}

/* --- evidence --------------------------------------------------------------------- */

static void put_coordinate(sonde__user_wire *wire, const sonde_coordinate *at)
{
    sonde__user_wire_put_bytes(wire, at, sizeof *at);
}

/* The elements in row-major order, one behind the other. */
static void put_view(sonde__user_wire *wire, const sonde_view *view)
{
    const size_t size = (size_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);
    void *room = NULL;

    sonde__user_wire_put_u32(wire, (uint32_t)view->dtype);
    sonde__user_wire_put_u32(wire, (uint32_t)view->rank);
    sonde__user_wire_put_bytes(wire, view->shape, sizeof view->shape);
    room = sonde__user_wire_room(wire, size);
    if (room != NULL) {
        const sonde_view to = sonde_view_of(view->dtype, view->rank, view->shape, room);

        if (sonde_view_copy(&to, view, NULL) != SONDE_OK) { /* same shape and dtype */
            memset(room, 0, size);
        }
    }
}

static void at_step(const sonde_rule_run *run, char *buf, size_t size)
{
    (void)snprintf(buf, size, "at step %lld", (long long)sonde_rule_at(run)->global_step);
}

/* Without vital signs: these go with the step, merged. */
static void hosted_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                           const sonde_observation *seen)
{
    sonde__user_hosted_state *state = run->state;
    sonde__user_wire *wire = NULL;
    char doing[64];
    sonde_err err = SONDE_OK;

    if (state->host == NULL) {
        return;
    }
    wire = sonde__user_host_wire(state->host);
    sonde__user_wire_begin(wire, SONDE__WIRE_PUT);
    sonde__user_wire_put_u32(wire, tensor->id);
    sonde__user_wire_put_u32(wire, (seen->view != NULL ? SONDE_HOW_RAW : 0U) |
                                       (seen->sketch != NULL ? SONDE_HOW_SKETCH : 0U));
    put_coordinate(wire, &seen->at);
    sonde__user_wire_put_i64(wire, (int64_t)seen->hash);
    if (seen->sketch != NULL) {
        sonde__user_wire_put_bytes(wire, seen->sketch, sizeof *seen->sketch);
    }
    if (seen->view != NULL) {
        put_view(wire, seen->view);
    }
    err = sonde__user_wire_end(wire);
    if (err == SONDE_OK && wire->out_used >= SEND_AT) {
        err = sonde__user_wire_flush(wire);
    }
    if (err != SONDE_OK) {
        at_step(run, doing, sizeof doing);
        lost(run, err, doing);
    }
}

static void hosted_step(sonde_rule_run *run)
{
    sonde__user_hosted_state *state = run->state;
    sonde__user_wire *wire = NULL;
    char doing[64];
    sonde_err err = SONDE_OK;

    if (state->host == NULL) {
        return;
    }
    wire = sonde__user_host_wire(state->host);
    sonde__user_wire_begin(wire, SONDE__WIRE_STEP);
    put_coordinate(wire, sonde_rule_at(run));
    sonde__user_wire_put_i64(wire, (int64_t)run->rules->bad);
    for (size_t i = 0; i < run->count; i++) {
        const sonde_rule_tensor *tensor = &run->tensors[i];

        if (tensor->vitals != NULL) {
            sonde__user_wire_put_u32(wire, tensor->id);
            sonde__user_wire_put_bytes(wire, tensor->vitals, sizeof *tensor->vitals);
        }
    }
    sonde__user_wire_put_u32(wire, SONDE_NO_TENSOR);
    err = sonde__user_wire_end(wire);
    at_step(run, doing, sizeof doing);
    if (err == SONDE_OK) {
        exchange(run, doing);
    } else {
        lost(run, err, doing);
    }
}

static void hosted_idle(sonde_rule_run *run, double seconds)
{
    sonde__user_hosted_state *state = run->state;

    if (state->host != NULL) {
        sonde__user_wire *wire = sonde__user_host_wire(state->host);

        sonde__user_wire_begin(wire, SONDE__WIRE_IDLE);
        sonde__user_wire_put_f64(wire, seconds);
        if (sonde__user_wire_end(wire) == SONDE_OK) {
            exchange(run, "while the run stood still");
        }
    }
}

static void hosted_finish(sonde_rule_run *run)
{
    sonde__user_hosted_state *state = run->state;

    if (state->host != NULL) {
        sonde__user_wire *wire = sonde__user_host_wire(state->host);

        sonde__user_wire_begin(wire, SONDE__WIRE_FINISH);
        if (sonde__user_wire_end(wire) == SONDE_OK) {
            exchange(run, "at the end of the run");
        }
    }
}

/* --- tensors ---------------------------------------------------------------------- */

static bool append(sonde__user_hosted_state *state, const char *text, size_t length)
{
    const size_t used = state->collections != NULL ? strlen(state->collections) : 0;

    if (!sonde__reserve(&state->collections, &state->capacity, used + length + 2, 1)) {
        return false;
    }
    memcpy(state->collections + used, text, length);
    memcpy(state->collections + used + length, ",", 2);
    return true;
}

/* Those that parameters name and the tensor belongs to, each with a comma behind it. */
static const char *collections_of(sonde_rule_run *run, uint32_t id)
{
    const sonde_rules *rules = run->rules;
    sonde__user_hosted_state *state = run->state;

    if (state->collections != NULL) {
        state->collections[0] = '\0';
    }
    for (size_t i = 0; i < run->rule->param_count && rules->in_collection != NULL; i++) {
        const char *p = run->texts[i];

        if (run->rule->params[i].kind != SONDE_RULE_COLLECTIONS || p == NULL) {
            continue;
        }
        while (*p != '\0') {
            const size_t length = strcspn(p, ",");
            char name[128];

            (void)snprintf(name, sizeof name, "%.*s", (int)length, p);
            if (rules->in_collection(rules->collection_user, id, name) &&
                !append(state, p, length)) {
                return NULL;
            }
            p += length;
            p += strspn(p, ", ");
        }
    }
    return state->collections != NULL ? state->collections : "";
}

static void put_tensor(sonde__user_wire *wire, const sonde_tensor_info *info, uint32_t id)
{
    sonde__user_wire_put_u32(wire, id);
    sonde__user_wire_put_text(wire, info->name);
    sonde__user_wire_put_text(wire, info->module);
    sonde__user_wire_put_text(wire, info->op);
    sonde__user_wire_put_text(wire, info->note);
    sonde__user_wire_put_u32(wire, (uint32_t)info->role);
    sonde__user_wire_put_u32(wire, (uint32_t)info->pass);
    sonde__user_wire_put_u32(wire, (uint32_t)info->dtype);
    sonde__user_wire_put_u32(wire, (uint32_t)info->rank);
    sonde__user_wire_put_bytes(wire, info->shape, sizeof info->shape);
    sonde__user_wire_put_u32(wire, info->same_as);
}

static int hosted_wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    sonde__user_hosted_state *state = run->state;
    sonde__user_message answer = {0};
    sonde__user_wire *wire = NULL;
    char doing[256];
    int64_t need = SONDE_RULE_IGNORE;
    sonde_err err = SONDE_OK;

    if (state->host == NULL) {
        return SONDE_RULE_IGNORE;
    }
    wire = sonde__user_host_wire(state->host);
    sonde__user_wire_begin(wire, SONDE__WIRE_DECLARE);
    put_tensor(wire, info, id);
    sonde__user_wire_put_text(wire, collections_of(run, id));
    err = sonde__user_wire_end(wire);
    if (err == SONDE_OK) {
        err = sonde__user_host_ask(state->host, &answer);
    }
    (void)snprintf(doing, sizeof doing, "when asked whether it wants '%s'", info->name);
    if (err == SONDE_OK && answer.kind == SONDE__WIRE_ERROR) {
        sonde_diag why = {0};
        char line[SONDE_DIAG_LINE];

        (void)sonde__user_host_error(&answer, hosted_of(run)->path, &why);
        give_up(run);
        sonde_rule_fail(run, "%s", sonde_diag_line(&why, line, sizeof line));
        return SONDE_RULE_IGNORE;
    }
    need = err == SONDE_OK ? sonde__user_take_i64(&answer) : SONDE_RULE_IGNORE;
    if (err == SONDE_OK &&
        (answer.kind != SONDE__WIRE_NEED || answer.bad || need < SONDE_RULE_IGNORE ||
         need >= (int64_t)run->rule->need_count)) {
        err = SONDE_EFORMAT;
    }
    if (err != SONDE_OK) {
        lost(run, err, doing);
        return SONDE_RULE_IGNORE;
    }
    return (int)need;
}

/* --- beginning and ending --------------------------------------------------------- */

/* A value as the host's own reading of parameters takes it; false if it is too long. */
static bool write_param(const sonde_rule_run *run, size_t i, char *buf, size_t size)
{
    const sonde_rule_param *param = &run->rule->params[i];
    const char *field = (const char *)run->state + param->offset;
    size_t used = 0;

    if (param->kind == SONDE_RULE_REAL) {
        double value = 0;

        memcpy(&value, field, sizeof value);
        return isnan(value) ||
               (size_t)snprintf(buf, size, "%s=%.17g,", param->name, value) < size;
    }
    if (param->kind == SONDE_RULE_COUNT) {
        int64_t value = 0;

        memcpy(&value, field, sizeof value);
        return value == INT64_MIN || (size_t)snprintf(buf, size, "%s=%lld,", param->name,
                                                      (long long)value) < size;
    }
    if (param->kind == SONDE_RULE_FLAG) {
        return (size_t)snprintf(buf, size, "%s=%d,", param->name, field[0] != 0) < size;
    }
    if (run->texts[i] == NULL) {
        return true;
    }
    used = (size_t)snprintf(buf, size, "%s=", param->name);
    for (const char *p = run->texts[i]; *p != '\0' && used + 3 < size; p++) {
        if (*p == ',') {
            buf[used++] = '\\';
        }
        buf[used++] = *p;
    }
    if (used + 3 >= size) {
        return false;
    }
    memcpy(buf + used, ",", 2);
    return true;
}

static sonde_err write_params(const sonde_rule_run *run, char *text, size_t size,
                              sonde_diag *diag)
{
    text[0] = '\0';
    for (size_t i = 0; i < run->rule->param_count; i++) {
        const size_t used = strlen(text);

        if (!write_param(run, i, text + used, size - used)) {
            return sonde__fail(diag, SONDE_EINVAL, run->rule->name, "shorter parameters",
                               "parameters of more than %d bytes", PARAMS_TEXT);
        }
    }
    return SONDE_OK;
}

static sonde_err hosted_init(sonde_rule_run *run, sonde_diag *diag)
{
    const sonde__user_hosted *hosted = hosted_of(run);
    sonde__user_hosted_state *state = run->state;
    char params[PARAMS_TEXT], fate[128];
    sonde__user_message answer = {0};
    sonde__user_wire *wire = NULL;
    sonde_err err = write_params(run, params, sizeof params, diag);

    sonde__names_init(&state->texts);
    if (err == SONDE_OK) {
        err = sonde__user_host_start(hosted->path, hosted->limits, &state->host, &answer,
                                     diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    wire = sonde__user_host_wire(state->host);
    sonde__user_wire_begin(wire, SONDE__WIRE_SETUP);
    sonde__user_wire_put_text(wire, run->rule->name);
    sonde__user_wire_put_text(wire, params);
    err = sonde__user_wire_end(wire);
    if (err == SONDE_OK) {
        err = sonde__user_host_ask(state->host, &answer);
    }
    if (err == SONDE_OK && answer.kind == SONDE__WIRE_ERROR) {
        return sonde__user_host_error(&answer, hosted->path, diag);
    }
    if (err == SONDE_OK && answer.kind == SONDE__WIRE_DONE) {
        return SONDE_OK;
    }
    err = err == SONDE_OK ? SONDE_EFORMAT : err;
    return sonde__fail(diag, err == SONDE_ENOMEM ? err : SONDE_EINVAL, hosted->path, NULL,
                       "rule %s: in its init it %s", run->rule->name,
                       sonde__user_host_fate(state->host, err, fate, sizeof fate));
}

static void hosted_destroy(sonde_rule_run *run)
{
    sonde__user_hosted_state *state = run->state;

    sonde__user_host_stop(state->host);
    sonde__names_fini(&state->texts);
    sonde__free(state->collections);
}

void sonde__user_hosted_functions(sonde_rule *rule)
{
    rule->init = hosted_init;
    rule->wants = hosted_wants;
    rule->observe = hosted_observe;
    rule->step = hosted_step;
    rule->idle = hosted_idle;
    rule->finish = hosted_finish;
    rule->destroy = hosted_destroy;
}
