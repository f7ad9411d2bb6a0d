/*
 * serve.c - answers the messages of the process that judges: evidence goes to an engine
 * with one rule, findings go back.
 */
#include "rule_host/host.h"
#include "base/fail.h"
#include "base/memory.h"
#include "rules/user/hosted.h"

#include <stdio.h>
#include <string.h>
#include <sys/time.h>

/* What was sent of a finding. */
typedef struct sent_finding {
    int64_t tensor; /* index; -1: about the run */
    uint64_t steps; /* its steps when it was last sent; 0: not sent */
} sent_finding;

typedef struct host_server {
    sonde__user_wire wire;
    sonde_rule_limits limits;
    rule_source source;
    sonde_catalogue *catalogue;
    sonde_rules *rules;
    sent_finding *sent; /* by finding */
    size_t sent_count, sent_capacity;
    const char *collections; /* of the tensor being declared, each followed by a comma */
} host_server;

/* --- limits ------------------------------------------------------------------------- */

static void set_timer(int which, double seconds)
{
    const time_t whole = (time_t)seconds;
    const struct itimerval timer = {
        .it_value = {whole, (suseconds_t)((seconds - (double)whole) * 1e6)}};

    (void)setitimer((__itimer_which_t)which, &timer, NULL);
}

/*
 * Limits the time until the answer. The limit is in processor time, since a busy machine
 * is no fault of the rule: SIGPROF ends the process, and the program recognises it. The
 * second timer ends a rule that sleeps if the program has ended.
 */
static void begin_limits(const host_server *server)
{
    set_timer(ITIMER_PROF, server->limits.seconds);
    set_timer(ITIMER_REAL, SONDE__RULE_PATIENCE * server->limits.seconds + 1.0);
}

static void end_limits(void)
{
    set_timer(ITIMER_PROF, 0);
    set_timer(ITIMER_REAL, 0);
}

/* --- answers ------------------------------------------------------------------------ */

static sonde_err answer_error(host_server *server, const sonde_diag *diag)
{
    sonde__user_wire_begin(&server->wire, SONDE__WIRE_ERROR);
    sonde__user_wire_put_u32(&server->wire, (uint32_t)diag->err);
    sonde__user_wire_put_text(&server->wire, diag->where);
    sonde__user_wire_put_text(&server->wire, diag->found);
    sonde__user_wire_put_text(&server->wire, diag->expected);
    return sonde__user_wire_end(&server->wire);
}

static sonde_err answer_done(host_server *server)
{
    sonde__user_wire_begin(&server->wire, SONDE__WIRE_DONE);
    sonde__user_wire_put_text(
        &server->wire, server->rules->count > 0 ? server->rules->runs[0]->lacked : "");
    return sonde__user_wire_end(&server->wire);
}

static int64_t tensor_of(const sonde_rule_run *run, const sonde__rule_found *found)
{
    for (size_t i = 0; i < run->count; i++) {
        if (run->tensor_findings[i] == found) {
            return (int64_t)i;
        }
    }
    return -1;
}

/* The texts of a finding are sent once; later messages only say that it still holds. */
static sonde_err answer_finding(host_server *server, size_t i)
{
    const sonde_rule_run *run = server->rules->runs[0];
    const sonde_finding *finding = &server->rules->found[i]->finding;
    const bool again = server->sent[i].steps > 0;

    sonde__user_wire_begin(&server->wire, SONDE__WIRE_FOUND);
    sonde__user_wire_put_i64(&server->wire, server->sent[i].tensor);
    sonde__user_wire_put_u32(&server->wire, (uint32_t)finding->severity);
    sonde__user_wire_put_f64(&server->wire, finding->value);
    sonde__user_wire_put_f64(&server->wire, finding->threshold);
    sonde__user_wire_put_text(&server->wire, again ? "" : finding->statistic);
    sonde__user_wire_put_text(&server->wire, again ? "" : finding->message);
    sonde__user_wire_put_text(&server->wire, again || finding->advice == run->rule->advice
                                                 ? NULL
                                                 : finding->advice);
    server->sent[i].steps = finding->steps;
    return sonde__user_wire_end(&server->wire);
}

static sonde_err answer_failed(host_server *server)
{
    sonde__user_wire_begin(&server->wire, SONDE__WIRE_FAILED);
    sonde__user_wire_put_text(&server->wire, server->rules->runs[0]->lacked);
    return sonde__user_wire_end(&server->wire);
}

/* Sends the findings since the last time, and whether the rule failed. */
static sonde_err answer_findings(host_server *server)
{
    const sonde_rule_run *run = server->rules->runs[0];
    const size_t count = server->rules->found_count;
    if (!sonde__reserve(&server->sent, &server->sent_capacity, count,
                        sizeof *server->sent)) {
        return SONDE_ENOMEM;
    }
    for (; server->sent_count < count; server->sent_count++) {
        server->sent[server->sent_count] = (sent_finding){
            .tensor = tensor_of(run, server->rules->found[server->sent_count])};
    }
    for (size_t i = 0; i < count; i++) {
        const bool about_failure =
            run->failed && run->run_finding == server->rules->found[i];

        if (server->rules->found[i]->finding.steps > server->sent[i].steps &&
            !about_failure) {
            SONDE__TRY(answer_finding(server, i));
        }
    }
    return run->failed ? answer_failed(server) : answer_done(server);
}

/* --- questions ---------------------------------------------------------------------- */

static bool is_script(const char *path)
{
    const size_t length = strlen(path);

    return length > 4 && strcmp(path + length - 4, ".lua") == 0;
}

static sonde_err handle_open(host_server *server, sonde__user_message *message)
{
    const uint32_t protocol = sonde__user_take_u32(message);
    const char *path = sonde__user_need_text(message);
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    sonde__user_take_into(message, &server->limits, sizeof server->limits);
    if (message->bad || protocol != SONDE__WIRE_PROTOCOL ||
        server->source.close != NULL) {
        return SONDE_EFORMAT;
    }
    begin_limits(server);
    err = is_script(path) ? lua_open(path, &server->limits, &server->source, &diag)
                          : plugin_open(path, &server->source, &diag);
    if (err != SONDE_OK) {
        return answer_error(server, &diag);
    }
    sonde__user_wire_begin(&server->wire, SONDE__WIRE_RULES);
    sonde__user_wire_put_u32(&server->wire, (uint32_t)server->source.count);
    for (size_t i = 0; i < server->source.count; i++) {
        sonde__user_rule_describe(&server->wire, server->source.rules[i]);
    }
    return sonde__user_wire_end(&server->wire);
}

static const sonde_rule *rule_named(const host_server *server, const char *name)
{
    for (size_t i = 0; i < server->source.count; i++) {
        if (strcmp(server->source.rules[i]->name, name) == 0) {
            return server->source.rules[i];
        }
    }
    return NULL;
}

static sonde_err handle_setup(host_server *server, sonde__user_message *message)
{
    const sonde_rule *rule = rule_named(server, sonde__user_need_text(message));
    const char *params = sonde__user_need_text(message);
    sonde_diag diag = {0};

    if (message->bad || server->rules != NULL) {
        return SONDE_EFORMAT;
    }
    if (rule == NULL) {
        (void)sonde__fail(&diag, SONDE_ENOTFOUND, NULL, NULL,
                          "the file has changed and no longer has the rule");
        return answer_error(server, &diag);
    }
    if (sonde_catalogue_create(&server->catalogue, &diag) != SONDE_OK ||
        sonde_rules_create(&server->rules, &diag) != SONDE_OK ||
        sonde_rules_add_rule(server->rules, rule, params, &diag) != SONDE_OK) {
        return answer_error(server, &diag);
    }
    server->rules->has_training = true; /* the modes that arrive are those that count */
    return answer_done(server);
}

static bool in_collection(const void *user, uint32_t id, const char *collection)
{
    const host_server *server = user;
    const size_t length = strlen(collection);

    (void)id;
    for (const char *p = server->collections; *p != '\0'; p += strcspn(p, ",") + 1) {
        if (strncmp(p, collection, length) == 0 && p[length] == ',') {
            return true;
        }
    }
    return false;
}

static void take_tensor(sonde__user_message *message, uint32_t *id,
                        sonde_tensor_info *info)
{
    *id = sonde__user_take_u32(message);
    info->name = sonde__user_need_text(message);
    info->module = sonde__user_need_text(message);
    info->op = sonde__user_need_text(message);
    info->note = sonde__user_need_text(message);
    info->role = (sonde_role)sonde__user_take_u32(message);
    info->pass = (sonde_pass)sonde__user_take_u32(message);
    info->dtype = (sonde_dtype)sonde__user_take_u32(message);
    info->rank = (int)sonde__user_take_u32(message);
    sonde__user_take_into(message, info->shape, sizeof info->shape);
    info->same_as = sonde__user_take_u32(message);
    if (info->same_as == *id) {
        info->same_as = SONDE_NO_TENSOR;
    }
}

static sonde_err handle_declare(host_server *server, sonde__user_message *message)
{
    sonde_tensor_info info = {0};
    uint32_t id = 0, given = 0;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    take_tensor(message, &given, &info);
    server->collections = sonde__user_need_text(message);
    if (message->bad || server->rules == NULL || server->rules->count == 0) {
        return SONDE_EFORMAT;
    }
    sonde_rule_run *run = server->rules->runs[0];
    const size_t before = run->count;
    if (sonde_catalogue_declare(server->catalogue, &info, &id, &diag) != SONDE_OK) {
        return answer_error(server, &diag);
    }
    if (id != given) {
        (void)sonde__fail(&diag, SONDE_ESTATE, info.name, NULL, "tensors out of order");
        return answer_error(server, &diag);
    }
    err = server->rules->catalogue == NULL
              ? sonde_rules_begin(server->rules, server->catalogue, in_collection, server,
                                  &diag)
              : sonde_rules_refresh(server->rules, &diag);
    if (err != SONDE_OK) {
        return answer_error(server, &diag);
    }
    if (run->failed) {
        (void)sonde__fail(&diag, SONDE_EINVAL, NULL, NULL, "%s", run->lacked);
        return answer_error(server, &diag);
    }
    sonde__user_wire_begin(&server->wire, SONDE__WIRE_NEED);
    sonde__user_wire_put_i64(&server->wire, run->count > before
                                                ? run->tensors[before].need
                                                : SONDE_RULE_IGNORE);
    return sonde__user_wire_end(&server->wire);
}

static bool take_view(sonde__user_message *message, sonde_view *view)
{
    const sonde_dtype dtype = (sonde_dtype)sonde__user_take_u32(message);
    const uint32_t rank = sonde__user_take_u32(message);
    int64_t shape[SONDE_MAX_DIMS];

    sonde__user_take_into(message, shape, sizeof shape);
    if (message->bad || rank > SONDE_MAX_DIMS) {
        return false;
    }
    *view = sonde_view_of(dtype, (int)rank, shape, NULL);
    const void *data = sonde__user_take_room(message, (size_t)sonde_view_count(view) *
                                                          sonde_dtype_size(dtype));
    memcpy(&view->data, &data, sizeof data); /* a view's data is not const */
    return !message->bad;
}

static sonde_err handle_put(host_server *server, sonde__user_message *message)
{
    static sonde_sketch sketch; /* too large for a stack */
    sonde_observation seen = {0};
    sonde_view view;

    seen.id = sonde__user_take_u32(message);
    seen.how = sonde__user_take_u32(message);
    sonde__user_take_into(message, &seen.at, sizeof seen.at);
    seen.hash = (uint64_t)sonde__user_take_i64(message);
    if (seen.how & SONDE_HOW_SKETCH) {
        sonde__user_take_into(message, &sketch, sizeof sketch);
        seen.sketch = &sketch;
    }
    if (seen.how & SONDE_HOW_RAW) {
        if (!take_view(message, &view)) {
            return SONDE_EFORMAT;
        }
        seen.view = &view;
    }
    if (message->bad || server->rules == NULL || seen.id >= server->rules->slot_count) {
        return SONDE_EFORMAT;
    }
    seen.info = sonde_catalogue_info(server->catalogue, seen.id);
    sonde_rules_put(server->rules, &seen);
    return SONDE_OK;
}

/* Vital signs arrive merged over the micro-batches of the step. */
static sonde_err put_vitals(host_server *server, sonde__user_message *message,
                            const sonde_coordinate *place)
{
    sonde_vitals vitals;
    sonde_observation seen = {.at = *place, .how = SONDE_HOW_VITALS, .vitals = &vitals};

    for (;;) {
        seen.id = sonde__user_take_u32(message);
        if (message->bad || seen.id == SONDE_NO_TENSOR) {
            return message->bad ? SONDE_EFORMAT : SONDE_OK;
        }
        sonde__user_take_into(message, &vitals, sizeof vitals);
        if (message->bad || seen.id >= sonde_catalogue_count(server->catalogue)) {
            return SONDE_EFORMAT;
        }
        seen.info = sonde_catalogue_info(server->catalogue, seen.id);
        sonde_rules_put(server->rules, &seen);
    }
}

static sonde_err handle_step(host_server *server, sonde__user_message *message)
{
    sonde_coordinate place;

    sonde__user_take_into(message, &place, sizeof place);
    uint64_t bad = (uint64_t)sonde__user_take_i64(message);
    if (server->rules == NULL || server->rules->count == 0) {
        return SONDE_EFORMAT;
    }
    SONDE__TRY(put_vitals(server, message, &place));
    server->rules->bad = bad; /* of all tensors, not only those of this rule */
    sonde_rules_end_step(server->rules, &place);
    return answer_findings(server);
}

static sonde_err handle(host_server *server, sonde__user_message *message)
{
    switch (message->kind) {
    case SONDE__WIRE_OPEN:
        return handle_open(server, message);
    case SONDE__WIRE_SETUP:
        return handle_setup(server, message);
    case SONDE__WIRE_DECLARE:
        return handle_declare(server, message);
    case SONDE__WIRE_PUT:
        return handle_put(server, message);
    case SONDE__WIRE_STEP:
        return handle_step(server, message);
    case SONDE__WIRE_IDLE:
    case SONDE__WIRE_FINISH:
        if (server->rules == NULL || server->rules->count == 0) {
            return SONDE_EFORMAT;
        }
        if (message->kind == SONDE__WIRE_FINISH) {
            sonde_rules_finish(server->rules);
        } else {
            sonde_rules_idle(server->rules, sonde__user_take_f64(message));
        }
        return answer_findings(server);
    default:
        return SONDE_EFORMAT;
    }
}

/* Takes one question and answers it; SONDE_EEND: there is none left. */
static sonde_err serve_one(host_server *server)
{
    sonde__user_message message = {0};
    sonde_err err = sonde__user_wire_take(&server->wire, &message);

    if (err != SONDE_OK) {
        return err;
    }
    begin_limits(server); /* no limits before OPEN */
    err = handle(server, &message);
    end_limits();
    return err != SONDE_OK ? err : sonde__user_wire_flush(&server->wire);
}

int serve(int fd)
{
    host_server server = {0};
    sonde_err err = SONDE_OK;

    sonde__user_wire_init(&server.wire, fd, 0, 0);
    do {
        err = serve_one(&server);
    } while (err == SONDE_OK);
    begin_limits(&server);
    sonde_rules_destroy(server.rules);
    sonde_catalogue_destroy(server.catalogue);
    if (server.source.close != NULL) {
        server.source.close(&server.source);
    }
    sonde__free(server.sent);
    sonde__user_wire_fini(&server.wire);
    return err == SONDE_EEND ? 0 : 3;
}
