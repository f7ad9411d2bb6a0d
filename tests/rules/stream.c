/* stream.c - the helpers that stream.h declares. */
#include "rules/stream.h"

#include "base/macros.h"
#include "rules/engine.h"

#include <ftw.h>

void stream_open(stream *s, const char *text)
{
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    memset(s, 0, sizeof *s);
    assert_int_equal(sonde_catalogue_create(&s->catalogue, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_create(&s->rules, NULL), SONDE_OK);
    while (text != NULL) {
        const char *end = strchr(text, '|');
        char rule[256];

        (void)snprintf(rule, sizeof rule, "%.*s",
                       (int)(end != NULL ? (size_t)(end - text) : strlen(text)), text);
        if (sonde_rules_add(s->rules, rule, &diag) != SONDE_OK) {
            fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
        }
        text = end != NULL ? end + 1 : NULL;
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
                              .note = s->note,
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

    if (sonde__rules_begin(s->rules, s->catalogue, NULL, NULL, &diag) != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
}

void stream_put(stream *s, uint32_t id, const float *values)
{
    const sonde_tensor_info *info = sonde_catalogue_info(s->catalogue, id);
    float copy[STREAM_MOST];
    sonde_view view = sonde_view_of(SONDE_F32, info->rank, info->shape, copy);
    sonde_vitals vitals;
    sonde_observation observation = {
        .id = id, .info = info, .at = s->at, .view = &view, .vitals = &vitals};

    memcpy(copy, values, (size_t)sonde_view_count(&view) * sizeof *copy);
    sonde_vitals_of(&view, &vitals);
    sonde__rules_put(s->rules, &observation);
}

void stream_put_hash(stream *s, uint32_t id, uint64_t hash, int replica)
{
    const sonde_observation observation = {
        .id = id,
        .info = sonde_catalogue_info(s->catalogue, id),
        .at = {s->at.mode, s->at.global_step, s->at.mode_step, 0, 0, replica},
        .hash = hash};

    sonde__rules_put(s->rules, &observation);
}

float stream_normal(stream *s)
{
    return sonde__normal(1, 2, s->draws++);
}

static int remove_one(const char *path, const struct stat *status, int kind,
                      struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

void stream_remove(const char *folder)
{
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int count_of(stream *s, uint32_t id)
{
    const sonde_tensor_info *info = sonde_catalogue_info(s->catalogue, id);
    int64_t count = 1;

    for (int i = 0; i < info->rank; i++) {
        count *= info->shape[i];
    }
    return (int)count;
}

void stream_walk(stream *s, float *values, int count, float deviation)
{
    for (int i = 0; i < count; i++) {
        values[i] += deviation * stream_normal(s);
    }
}

void stream_put_walk(stream *s, uint32_t id, float *values, float deviation)
{
    stream_walk(s, values, count_of(s, id), deviation);
    stream_put(s, id, values);
}

void stream_put_normal(stream *s, uint32_t id, double mean, double deviation)
{
    float values[STREAM_MOST];
    const int count = count_of(s, id);

    for (int i = 0; i < count; i++) {
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
    sonde__rules_end_step(s->rules, &s->at);
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

/* The finding about a tensor, at a step and of so many. */
static const sonde_finding *expect_found(stream *s, const char *tensor, int64_t step,
                                         size_t count)
{
    const sonde_finding *found = NULL;

    sonde_rules_finish(s->rules);
    found = stream_found(s, tensor);
    if (found == NULL) {
        fail_msg("nothing found about '%s'; findings: %zu, about '%s'", tensor,
                 stream_count(s),
                 stream_count(s) > 0 ? sonde_rules_findings(s->rules, &count)->tensor
                                     : "");
        return NULL;
    }
    assert_int_equal(found->step, step);
    assert_int_equal(stream_count(s), count);
    assert_true(found->message[0] != '\0' && found->advice[0] != '\0');
    return found;
}

sonde_finding stream_expect(stream *s, const char *tensor, int64_t step)
{
    return *expect_found(s, tensor, step, 1);
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

/* --- tables of cases ------------------------------------------------------------------- */

static sonde_role role_of(const char *word)
{
    for (int i = 0; i < SONDE_ROLE_COUNT; i++) {
        if (strcmp(sonde_role_name((sonde_role)i), word) == 0) {
            return (sonde_role)i;
        }
    }
    fail_msg("'%s' is no role", word);
    return SONDE_ROLE_OTHER;
}

/* text, with i in place of its #. */
static const char *numbered(char *room, size_t size, const char *text, int i)
{
    const size_t length = strcspn(text, "#");

    if (text[length] == '#') {
        (void)snprintf(room, size, "%.*s%d%s", (int)length, text, i, text + length + 1);
    } else {
        (void)snprintf(room, size, "%s", text);
    }
    return room;
}

/* Declares a tensor of stream_case.tensors, of number i. */
static void declare_one(stream *s, const char *text, int i)
{
    char copy[128], name[64], module[64], *rest = NULL;
    const char *role = NULL, *pattern = NULL;
    int64_t sizes[2] = {0};
    int rank = 0;

    (void)snprintf(copy, sizeof copy, "%s", text);
    role = strtok_r(copy, " ", &rest);
    pattern = strtok_r(NULL, " ", &rest);
    s->op = s->module = NULL;
    for (char *word = NULL; (word = strtok_r(NULL, " ", &rest)) != NULL;) {
        if (*word == '=') {
            s->op = word + 1;
        } else if (*word == '@') {
            s->module = numbered(module, sizeof module, word + 1, i);
        } else {
            assert_true(rank < 2);
            sizes[rank++] = atoll(word);
        }
    }
    (void)stream_declare(s, numbered(name, sizeof name, pattern, i), role_of(role),
                         sizes[0], sizes[1]);
}

void stream_declare_all(stream *s, const char *text)
{
    char copy[512], *rest = NULL;

    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *group = strtok_r(copy, ",", &rest); group != NULL;
         group = strtok_r(NULL, ",", &rest)) {
        char *star = strchr(group, '*'), *members = NULL, *all[8];
        const int times = star != NULL ? atoi(group) : 1;
        int count = 0;

        for (char *one = strtok_r(star != NULL ? star + 1 : group, "+", &members);
             one != NULL; one = strtok_r(NULL, "+", &members)) {
            assert_true(count < 8);
            all[count++] = one;
        }
        for (int i = 0; i < times * count; i++) {
            declare_one(s, all[i % count], i / count);
        }
    }
    s->module = s->op = NULL;
}

static void expect(stream *s, const stream_case *c)
{
    static const int severities[] = {[NOTED] = SONDE_SEVERITY_NOTE,
                                     [WARNED] = SONDE_SEVERITY_WARNING,
                                     [FAILED] = SONDE_SEVERITY_ERROR};
    const sonde_finding *finding = NULL;
    size_t count = 0;
    int most = -1;

    /* a row says nothing that is not looked at */
    assert_true(c->about != NULL ||
                (c->at == 0 && c->statistic == NULL && c->lasts == 0 && c->above == 0.0 &&
                 c->below == 0.0));
    assert_true(c->outcome != CLEAN ||
                (c->about == NULL && c->lacks == NULL && c->findings == 0));
    sonde_rules_finish(s->rules);
    if (c->outcome == CLEAN) {
        stream_expect_clean(s);
        return;
    }
    if (c->about != NULL) {
        finding = expect_found(s, c->about, c->at, SONDE_MAX(c->findings, (size_t)1));
        if (c->statistic != NULL && c->statistic[0] == '!') {
            assert_null(strstr(finding->message, c->statistic + 1));
        } else if (c->statistic != NULL &&
                   strcmp(finding->statistic, c->statistic) != 0) {
            assert_non_null(strstr(finding->message, c->statistic));
        }
        assert_true(c->lasts == 0 || finding->steps == c->lasts);
        assert_true(c->lasts == 0 ||
                    finding->last_step == finding->step + (int64_t)c->lasts - 1);
        assert_true(c->above == 0.0 || finding->value > c->above);
        assert_true(c->below == 0.0 || finding->value < c->below);
    }
    finding = sonde_rules_findings(s->rules, &count);
    for (size_t i = 0; i < count; i++) {
        most = SONDE_MAX(most, (int)finding[i].severity);
    }
    if (c->lacks != NULL) {
        sonde_rule_account account;

        sonde_rules_account(s->rules, 0, &account);
        assert_false(account.judged);
        assert_true(account.lacked[0] != '\0');
        assert_non_null(strstr(account.lacked, c->lacks));
    }
    if (c->outcome == SILENT || c->findings > 0) {
        assert_int_equal(count, c->findings);
    }
    if (c->outcome == SILENT) {
        return;
    }
    if (c->outcome == FOUND) {
        assert_true(count > 0);
    } else {
        assert_int_equal(most, severities[c->outcome]);
    }
}

static void run_case(void **state)
{
    const stream_case *const *at = *state;
    const stream_case *c = *at;
    stream *s = calloc(1, sizeof *s);

    assert_non_null(s);
    stream_open(s, c->rule);
    stream_declare_all(s, c->tensors);
    s->loses = c->losing;
    s->loss = c->losing ? stream_declare(s, "loss", SONDE_ROLE_LOSS, 0, 0) : 0;
    stream_begin(s);
    for (int step = 0; step < c->steps; step++) {
        c->step(s, c->kind, step);
        stream_end(s);
    }
    expect(s, c);
    stream_close(s);
    free(s);
}

int stream_main(const stream_case *cases, size_t count, const struct CMUnitTest *others,
                size_t more)
{
    const stream_case **pointers = calloc(count + 1, sizeof *pointers);
    struct CMUnitTest *tests = calloc(count + more, sizeof *tests);
    int failed = 1;

    if (pointers != NULL && tests != NULL) {
        for (size_t i = 0; i < count; i++) {
            pointers[i] = &cases[i];
            tests[i] = (struct CMUnitTest){.name = cases[i].name,
                                           .test_func = run_case,
                                           .initial_state = &pointers[i]};
        }
        for (size_t i = 0; i < more; i++) {
            tests[count + i] = others[i];
        }
        failed = _cmocka_run_group_tests("cases", tests, count + more, NULL, NULL);
    }
    free(tests);
    free(pointers);
    return failed;
}
