/*
 * serve.c - answering: evidence goes to an engine with one rule, findings go back.
 */
#include "rule_host/host.h"
#include "base/fail.h"
#include "base/memory.h"
#include "rules/user/hosted.h"

#include <stdio.h>
#include <string.h>
#include <sys/time.h>

/* What has been told of a finding. */
typedef struct told {
    int64_t tensor; /* index; -1: about the run */
    uint64_t steps; /* at which it had held when it was told last; 0: never told */
} told;

typedef struct server {
    sonde__user_wire wire;
    sonde_rule_limits limits;
    rule_source source;
    sonde_catalogue *catalogue;
    sonde_rules *rules;
    told *told; /* by finding */
    size_t told_count, told_capacity;
    const char *collections; /* of the tensor being declared, each with a comma behind */
} server;

/* --- limits ----------------------------------------------------------------------- */

static void set_timer(int which, double seconds)
{
    const time_t whole = (time_t)seconds;
    const struct itimerval timer = {
        .it_value = {whole, (suseconds_t)((seconds - (double)whole) * 1e6)}};

    (void)setitimer((__itimer_which_t)which, &timer, NULL);
}

/*
 * Until the answer is there. Processor time, since a busy machine is no fault of the rule: SIGPROF
 * ends the process, which the program understands. The other one is for when the program itself
 * is gone, which would end a rule that sleeps.
 */
static void begin_limits(const server *of)
{
    set_timer(ITIMER_PROF, of->limits.seconds);
    set_timer(ITIMER_REAL, SONDE__RULE_PATIENCE * of->limits.seconds + 1.0);
}

static void end_limits(void)
{
    set_timer(ITIMER_PROF, 0);
    set_timer(ITIMER_REAL, 0);
}

/* --- answers ---------------------------------------------------------------------- */

static sonde_err answer_error(server *of, const sonde_diag *diag)
{
    sonde__user_wire_begin(&of->wire, SONDE__WIRE_ERROR);
    sonde__user_wire_put_u32(&of->wire, (uint32_t)diag->err);
    sonde__user_wire_put_text(&of->wire, diag->where);
    sonde__user_wire_put_text(&of->wire, diag->found);
    sonde__user_wire_put_text(&of->wire, diag->expected);
    return sonde__user_wire_end(&of->wire);
}

static sonde_err answer_done(server *of)
{
    sonde__user_wire_begin(&of->wire, SONDE__WIRE_DONE);
    sonde__user_wire_put_text(&of->wire,
                              of->rules->count > 0 ? of->rules->runs[0]->lacked : "");
    return sonde__user_wire_end(&of->wire);
}

static int64_t tensor_of(const sonde_rule_run *run, size_t found)
{
    for (size_t i = 0; i < run->count; i++) {
        if (run->of_tensor[i] == (int64_t)found) {
            return (int64_t)i;
        }
    }
    return -1;
}

/* Texts of a finding are told once; later only that it still holds. */
static sonde_err answer_finding(server *of, size_t i)
{
    const sonde_rule_run *run = of->rules->runs[0];
    const sonde_finding *finding = &of->rules->found[i]->finding;
    const bool again = of->told[i].steps > 0;

    sonde__user_wire_begin(&of->wire, SONDE__WIRE_FOUND);
    sonde__user_wire_put_i64(&of->wire, of->told[i].tensor);
    sonde__user_wire_put_u32(&of->wire, (uint32_t)finding->severity);
    sonde__user_wire_put_f64(&of->wire, finding->value);
    sonde__user_wire_put_f64(&of->wire, finding->threshold);
    sonde__user_wire_put_text(&of->wire, again ? "" : finding->statistic);
    sonde__user_wire_put_text(&of->wire, again ? "" : finding->message);
    sonde__user_wire_put_text(&of->wire, again || finding->advice == run->rule->advice
                                             ? NULL
                                             : finding->advice);
    of->told[i].steps = finding->steps;
    return sonde__user_wire_end(&of->wire);
}

static sonde_err answer_failed(server *of)
{
    sonde__user_wire_begin(&of->wire, SONDE__WIRE_FAILED);
    sonde__user_wire_put_text(&of->wire, of->rules->runs[0]->lacked);
    return sonde__user_wire_end(&of->wire);
}

/* All that was found since the last time; and that the rule failed, if it did. */
static sonde_err answer_findings(server *of)
{
    const sonde_rule_run *run = of->rules->runs[0];
    const size_t count = of->rules->found_count;
    sonde_err err = SONDE_OK;

    if (!sonde__reserve(&of->told, &of->told_capacity, count, sizeof *of->told)) {
        return SONDE_ENOMEM;
    }
    for (; of->told_count < count; of->told_count++) {
        of->told[of->told_count] = (told){.tensor = tensor_of(run, of->told_count)};
    }
    for (size_t i = 0; i < count && err == SONDE_OK; i++) {
        const bool of_failure = run->failed && run->of_run == (int64_t)i;

        if (of->rules->found[i]->finding.steps > of->told[i].steps && !of_failure) {
            err = answer_finding(of, i);
        }
    }
    if (err != SONDE_OK) {
        return err;
    }
    return run->failed ? answer_failed(of) : answer_done(of);
}

/* --- questions -------------------------------------------------------------------- */

static bool is_script(const char *path)
{
    const size_t length = strlen(path);

    return length > 4 && strcmp(path + length - 4, ".lua") == 0;
}

static sonde_err handle_open(server *of, sonde__user_message *message)
{
    const uint32_t protocol = sonde__user_take_u32(message);
    const char *path = sonde__user_need_text(message);
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    sonde__user_take_into(message, &of->limits, sizeof of->limits);
    if (message->bad || protocol != SONDE__WIRE_PROTOCOL || of->source.close != NULL) {
        return SONDE_EFORMAT;
    }
    begin_limits(of);
    err = is_script(path) ? lua_open(path, &of->limits, &of->source, &diag)
                          : plugin_open(path, &of->source, &diag);
    if (err != SONDE_OK) {
        return answer_error(of, &diag);
    }
    sonde__user_wire_begin(&of->wire, SONDE__WIRE_RULES);
    sonde__user_wire_put_u32(&of->wire, (uint32_t)of->source.count);
    for (size_t i = 0; i < of->source.count; i++) {
        sonde__user_rule_describe(&of->wire, of->source.rules[i]);
    }
    return sonde__user_wire_end(&of->wire);
}

static const sonde_rule *rule_named(const server *of, const char *name)
{
    for (size_t i = 0; i < of->source.count; i++) {
        if (strcmp(of->source.rules[i]->name, name) == 0) {
            return of->source.rules[i];
        }
    }
    return NULL;
}

static sonde_err handle_setup(server *of, sonde__user_message *message)
{
    const sonde_rule *rule = rule_named(of, sonde__user_need_text(message));
    const char *params = sonde__user_need_text(message);
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (message->bad || of->rules != NULL) {
        return SONDE_EFORMAT;
    }
    if (rule == NULL) {
        (void)sonde__fail(&diag, SONDE_ENOTFOUND, NULL, NULL,
                          "the file has changed: the rule is gone");
        return answer_error(of, &diag);
    }
    err = sonde_catalogue_create(&of->catalogue, &diag);
    if (err == SONDE_OK) {
        err = sonde_rules_create(&of->rules, &diag);
    }
    if (err == SONDE_OK) {
        err = sonde_rules_add_rule(of->rules, rule, params, &diag);
    }
    return err == SONDE_OK ? answer_done(of) : answer_error(of, &diag);
}

static bool in_collection(const void *user, uint32_t id, const char *collection)
{
    const server *of = user;
    const size_t length = strlen(collection);

    (void)id;
    for (const char *p = of->collections; *p != '\0'; p += strcspn(p, ",") + 1) {
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

static sonde_err handle_declare(server *of, sonde__user_message *message)
{
    sonde_tensor_info info = {0};
    uint32_t id = 0, given = 0;
    sonde_diag diag = {0};
    sonde_rule_run *run = NULL;
    size_t before = 0;
    sonde_err err = SONDE_OK;

    take_tensor(message, &given, &info);
    of->collections = sonde__user_need_text(message);
    if (message->bad || of->rules == NULL || of->rules->count == 0) {
        return SONDE_EFORMAT;
    }
    run = of->rules->runs[0];
    before = run->count;
    err = sonde_catalogue_declare(of->catalogue, &info, &id, &diag);
    if (err == SONDE_OK && id != given) {
        err = sonde__fail(&diag, SONDE_ESTATE, info.name, NULL, "tensors out of order");
    }
    if (err == SONDE_OK) {
        err = of->rules->catalogue == NULL
                  ? sonde_rules_begin(of->rules, of->catalogue, in_collection, of, &diag)
                  : sonde_rules_refresh(of->rules, &diag);
    }
    if (err == SONDE_OK && run->failed) {
        err = sonde__fail(&diag, SONDE_EINVAL, NULL, NULL, "%s", run->lacked);
    }
    if (err != SONDE_OK) {
        return answer_error(of, &diag);
    }
    sonde__user_wire_begin(&of->wire, SONDE__WIRE_NEED);
    sonde__user_wire_put_i64(&of->wire, run->count > before ? run->tensors[before].need
                                                            : SONDE_RULE_IGNORE);
    return sonde__user_wire_end(&of->wire);
}

static bool take_view(sonde__user_message *message, sonde_view *view)
{
    const sonde_dtype dtype = (sonde_dtype)sonde__user_take_u32(message);
    const uint32_t rank = sonde__user_take_u32(message);
    int64_t shape[SONDE_MAX_DIMS];
    const void *data = NULL;

    sonde__user_take_into(message, shape, sizeof shape);
    if (message->bad || rank > SONDE_MAX_DIMS) {
        return false;
    }
    *view = sonde_view_of(dtype, (int)rank, shape, NULL);
    data = sonde__user_take_room(message, (size_t)sonde_view_count(view) *
                                              sonde_dtype_size(dtype));
    memcpy(&view->data, &data, sizeof data); /* a view's data is not const */
    return !message->bad;
}

static sonde_err handle_put(server *of, sonde__user_message *message)
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
    if (message->bad || of->rules == NULL || seen.id >= of->rules->slot_count) {
        return SONDE_EFORMAT;
    }
    seen.info = sonde_catalogue_info(of->catalogue, seen.id);
    sonde_rules_put(of->rules, &seen);
    return SONDE_OK;
}

/* Vital signs arrive merged over the micro-batches of the step. */
static sonde_err put_vitals(server *of, sonde__user_message *message,
                            const sonde_coordinate *at)
{
    sonde_vitals vitals;
    sonde_observation seen = {.at = *at, .how = SONDE_HOW_VITALS, .vitals = &vitals};

    for (;;) {
        seen.id = sonde__user_take_u32(message);
        if (message->bad || seen.id == SONDE_NO_TENSOR) {
            return message->bad ? SONDE_EFORMAT : SONDE_OK;
        }
        sonde__user_take_into(message, &vitals, sizeof vitals);
        if (message->bad || seen.id >= sonde_catalogue_count(of->catalogue)) {
            return SONDE_EFORMAT;
        }
        seen.info = sonde_catalogue_info(of->catalogue, seen.id);
        sonde_rules_put(of->rules, &seen);
    }
}

static sonde_err handle_step(server *of, sonde__user_message *message)
{
    sonde_coordinate at;
    uint64_t bad = 0;
    sonde_err err = SONDE_OK;

    sonde__user_take_into(message, &at, sizeof at);
    bad = (uint64_t)sonde__user_take_i64(message);
    if (of->rules == NULL || of->rules->count == 0) {
        return SONDE_EFORMAT;
    }
    err = put_vitals(of, message, &at);
    if (err != SONDE_OK) {
        return err;
    }
    of->rules->bad = bad; /* of all tensors, not only those of this rule */
    sonde_rules_end_step(of->rules, &at);
    return answer_findings(of);
}

static sonde_err handle(server *of, sonde__user_message *message)
{
    switch (message->kind) {
    case SONDE__WIRE_OPEN:
        return handle_open(of, message);
    case SONDE__WIRE_SETUP:
        return handle_setup(of, message);
    case SONDE__WIRE_DECLARE:
        return handle_declare(of, message);
    case SONDE__WIRE_PUT:
        return handle_put(of, message);
    case SONDE__WIRE_STEP:
        return handle_step(of, message);
    case SONDE__WIRE_IDLE:
    case SONDE__WIRE_FINISH:
        if (of->rules == NULL || of->rules->count == 0) {
            return SONDE_EFORMAT;
        }
        if (message->kind == SONDE__WIRE_FINISH) {
            sonde_rules_finish(of->rules);
        } else {
            sonde_rules_idle(of->rules, sonde__user_take_f64(message));
        }
        return answer_findings(of);
    default:
        return SONDE_EFORMAT;
    }
}

int serve(int fd)
{
    server of = {0};
    sonde__user_message message = {0};
    sonde_err err = SONDE_OK;

    sonde__user_wire_init(&of.wire, fd, 0, 0);
    while (err == SONDE_OK) {
        err = sonde__user_wire_take(&of.wire, &message);
        if (err == SONDE_OK) {
            begin_limits(&of); /* none before there is a file */
            err = handle(&of, &message);
            end_limits();
        }
        if (err == SONDE_OK) {
            err = sonde__user_wire_flush(&of.wire);
        }
    }
    begin_limits(&of);
    sonde_rules_destroy(of.rules);
    sonde_catalogue_destroy(of.catalogue);
    if (of.source.close != NULL) {
        of.source.close(&of.source);
    }
    sonde__free(of.told);
    sonde__user_wire_fini(&of.wire);
    return err == SONDE_EEND ? 0 : 3;
}
