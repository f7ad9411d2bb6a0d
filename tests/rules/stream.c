/* stream.c - the helpers that stream.h declares. */
#include "rules/stream.h"

void stream_open(stream *s, const char *text)
{
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    memset(s, 0, sizeof *s);
    assert_int_equal(sonde_catalogue_create(&s->catalogue, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_create(&s->rules, NULL), SONDE_OK);
    if (sonde_rules_add(s->rules, text, &diag) != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
}

void stream_open_losing(stream *s, const char *text)
{
    stream_open(s, text);
    s->loses = true;
    s->loss = stream_declare(s, "loss", SONDE_ROLE_LOSS, 0, 0);
}

void stream_close(stream *s)
{
    sonde_rules_destroy(s->rules);
    sonde_catalogue_destroy(s->catalogue);
}

uint32_t stream_declare(stream *s, const char *name, sonde_role role, int64_t rows,
                        int64_t columns)
{
    sonde_tensor_info info = {.name = name,
                              .module = s->module,
                              .op = s->op,
                              .role = role,
                              .dtype = SONDE_F32,
                              .rank = rows == 0      ? 0
                                      : columns == 0 ? 1
                                                     : 2,
                              .shape = {rows, columns},
                              .same_as = SONDE_NO_TENSOR};
    uint32_t id = 0;

    info.pass = role == SONDE_ROLE_GRADIENT ? SONDE_PASS_BACKWARD
                : role == SONDE_ROLE_WEIGHT || role == SONDE_ROLE_INPUT
                    ? SONDE_PASS_NONE
                    : SONDE_PASS_FORWARD;
    assert_int_equal(sonde_catalogue_declare(s->catalogue, &info, &id, NULL), SONDE_OK);
    return id;
}

void stream_begin(stream *s)
{
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    if (sonde_rules_begin(s->rules, s->catalogue, NULL, NULL, &diag) != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
}

void stream_put(stream *s, uint32_t id, const float *values)
{
    const sonde_tensor_info *info = sonde_catalogue_info(s->catalogue, id);
    float copy[STREAM_MOST];
    sonde_view view = sonde_view_of(SONDE_F32, info->rank, info->shape, copy);
    sonde_vitals vitals;
    sonde_observation seen = {
        .id = id, .info = info, .at = s->at, .view = &view, .vitals = &vitals};

    memcpy(copy, values, (size_t)sonde_view_count(&view) * sizeof *copy);
    sonde_vitals_of(&view, &vitals);
    sonde_rules_put(s->rules, &seen);
}

float stream_normal(stream *s)
{
    return sonde__normal(1, 2, s->draws++);
}

void stream_put_normal(stream *s, uint32_t id, double mean, double deviation)
{
    const sonde_tensor_info *info = sonde_catalogue_info(s->catalogue, id);
    float values[STREAM_MOST];
    int64_t count = 1;

    for (int i = 0; i < info->rank; i++) {
        count *= info->shape[i];
    }
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)(mean + deviation * (double)stream_normal(s));
    }
    stream_put(s, id, values);
}

void stream_put_all(stream *s, uint32_t id, float value)
{
    float values[STREAM_MOST];

    for (size_t i = 0; i < STREAM_MOST; i++) {
        values[i] = value;
    }
    stream_put(s, id, values);
}

void stream_end(stream *s)
{
    if (s->loses) {
        stream_put_all(s, s->loss, powf(1.2F, (float)s->at.mode_step));
    }
    sonde_rules_end_step(s->rules, &s->at);
    s->at.global_step++;
    s->at.mode_step++;
}

size_t stream_count(stream *s)
{
    size_t count = 0;

    (void)sonde_rules_findings(s->rules, &count);
    return count;
}

const sonde_finding *stream_found(stream *s, const char *tensor)
{
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(s->rules, &count);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(all[i].tensor, tensor) == 0) {
            return &all[i];
        }
    }
    return NULL;
}

sonde_finding stream_expect(stream *s, const char *tensor, int64_t step)
{
    const sonde_finding *found = NULL;

    sonde_rules_finish(s->rules);
    found = stream_found(s, tensor);
    if (found == NULL) {
        fail_msg("nothing found about '%s'; findings: %zu", tensor, stream_count(s));
        return (sonde_finding){0};
    }
    assert_int_equal(found->step, step);
    assert_int_equal(stream_count(s), 1);
    assert_true(found->message[0] != '\0' && found->advice[0] != '\0');
    return *found;
}

void stream_expect_clean(stream *s)
{
    sonde_rule_account account;
    size_t count = 0;
    const sonde_finding *all = NULL;

    sonde_rules_finish(s->rules);
    all = sonde_rules_findings(s->rules, &count);
    if (count > 0) {
        fail_msg("found at step %lld: %s: %s", (long long)all[0].step, all[0].tensor,
                 all[0].message);
    }
    sonde_rules_account(s->rules, 0, &account);
    if (!account.judged) {
        fail_msg("it did not judge: %s", account.lacked);
    }
}
