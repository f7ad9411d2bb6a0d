/*
 * A rule of a file, in C and in Lua, in the process that trains, live and afterwards: the
 * same findings with the same ids, of vital signs, raw values, sketches and hashes.
 * tsan: yes
 */
#include "record/record_sink.h"
#include "rules/sources.h"
#include "base/random.h"
#include "rules/user.h"

#include <sonde/recorder.h>

#include <pthread.h>

enum { STEPS = 30, TENSORS = 4, ROWS = 3, COLUMNS = 4 };

static const struct {
    const char *name;
    sonde_role role;
    sonde_dtype dtype;
} tensors[TENSORS] = {{"fc1.weight", SONDE_ROLE_WEIGHT, SONDE_F32},
                      {"Gradient___fc1.weight", SONDE_ROLE_GRADIENT, SONDE_F32},
                      {"Gradient___fc2.weight", SONDE_ROLE_GRADIENT, SONDE_F64},
                      {"labels", SONDE_ROLE_INPUT, SONDE_I64}};

/* In Lua what MirrorVitals and MirrorValues are in C, as far as a double goes. */
static const char lua_rule[] =
    "local rule = {name = 'MirrorLua', summary = 's', condition = 'c', advice = 'a',\n"
    "  params = {{name = 'limit', help = 'h', default = 5.0}},\n"
    "  needs = {{what = 'values', how = {'vitals', 'values', 'sketch', 'hash'},\n"
    "            every = 1}}, modes = 'train'}\n"
    "function rule.wants(ctx, t) return not t.same_as end\n"
    "function rule.observe(ctx, t, seen)\n"
    "  local sum = 0\n"
    "  if seen.values then\n"
    "    for i = 1, #seen.values do sum = sum + i * seen.values[i] end\n"
    "  end\n"
    "  if not (sum < ctx.params.limit) then\n"
    "    ctx:found{tensor = t, statistic = 'sum', value = sum, threshold = "
    "ctx.params.limit,\n"
    "              message = string.format('Sum %.17g.', sum)}\n"
    "  end\n"
    "  t.memory.hash = (t.memory.hash or 0) ~ (seen.hash or 0)\n"
    "end\n"
    "function rule.step(ctx)\n"
    "  for _, t in ipairs(ctx.tensors) do\n"
    "    if t.vitals and (ctx.any_bad or t.vitals.mean > 0.3) then\n"
    "      ctx:found{statistic = t.name, value = t.vitals.mean, threshold = 0.3,\n"
    "                severity = 'note', message = 'm'}\n"
    "    end\n"
    "  end\n"
    "end\n"
    "function rule.finish(ctx)\n"
    "  local all = 0\n"
    "  for _, t in pairs(ctx.tensors) do all = all ~ t.memory.hash end\n"
    "  ctx:lacked(string.format('%x', all))\n"
    "end\n"
    "return rule\n";

static char folder[] = "/tmp/sonde_user_XXXXXX", run[64], lua_path[64];

/* --- a run ------------------------------------------------------------------------ */

typedef struct producer {
    sonde_catalogue *catalogue;
    sonde_observer *observer;
    sonde_recorder *recorder;
} producer;

static void producer_open(producer *self, sonde_rules *inside)
{
    const sonde_recorder_options options = {.size = sizeof options, .path = run};
    const sonde_call_shape shape = {1, 1, 1};
    static const char *const mine[] = {"mine"};
    sonde_tap tap = {.how = SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_SKETCH};
    sonde_selector *all = NULL;
    sonde_diag diag = {0};

    *self = (producer){0};
    ok(sonde_catalogue_create(&self->catalogue, &diag), &diag);
    for (int i = 0; i < TENSORS; i++) {
        const sonde_tensor_info info = {.name = tensors[i].name,
                                        .role = tensors[i].role,
                                        .dtype = tensors[i].dtype,
                                        .rank = 2,
                                        .shape = {ROWS, COLUMNS},
                                        .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        ok(sonde_catalogue_declare(self->catalogue, &info, &id, &diag), &diag);
    }
    ok(sonde__recorder_create(&options, self->catalogue, &self->recorder, &diag), &diag);
    ok(sonde__recorder_collections(self->recorder, 3, mine, 1, &diag), &diag);
    ok(sonde_observer_create(self->catalogue, &self->observer, &diag), &diag);
    ok(sonde_selector_create("@all", &all, &diag), &diag);
    tap.what = all;
    tap.when[SONDE_MODE_TRAIN] = sonde_schedule_every(1);
    tap.where = sonde__recorder_sink(self->recorder);
    ok(sonde_observer_add(self->observer, &tap, NULL, &diag), &diag);
    sonde_selector_destroy(all);
    ok(sonde_rules_attach(inside, self->catalogue, self->observer, 1, 1, &diag), &diag);
    ok(sonde_observer_bind(self->observer, &shape, &diag), &diag);
}

/* Columns first: the views are strided. */
static void produce(producer *self, int64_t step)
{
    const sonde_coordinate at = {.global_step = step, .mode_step = step};
    const sonde_observer_gate *gate = sonde_observer_get_gate(self->observer);
    const int64_t shape[2] = {ROWS, COLUMNS};

    if (!sonde_observer_begin_step(self->observer, gate, &at)) {
        return;
    }
    for (uint32_t id = 0; id < TENSORS; id++) {
        double room[ROWS * COLUMNS];
        sonde_view view = sonde_view_of(tensors[id].dtype, 2, shape, room);

        view.stride[0] = 1;
        view.stride[1] = ROWS;
        for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++) {
            const int64_t index[2] = {i / COLUMNS, i % COLUMNS};
            const float value =
                sonde__normal(5, id, (uint64_t)(step * ROWS * COLUMNS + i));

            sonde_element_set(view.dtype, sonde_view_at(&view, index),
                              step == STEPS - 1 && id == 1 && i == 5 ? (double)NAN
                                                                     : (double)value);
        }
        sonde_observer_observe(self->observer, id, &view, NULL, 0, 0);
    }
    sonde_observer_end_step(self->observer);
}

static void *produce_slowly(void *arg)
{
    producer *self = arg;
    sonde_diag diag = {0};

    for (int64_t step = 0; step < STEPS; step++) {
        produce(self, step);
        (void)usleep(2000);
    }
    ok(sonde__recorder_close(self->recorder, SONDE_RUN_FINISHED, NULL, &diag), &diag);
    return NULL;
}

/* --- rules ------------------------------------------------------------------------ */

/* collections: of MirrorVitals; NULL: whatever rules the file holds, as they are. */
static sonde_rules *from_file(const char *path, const char *collections)
{
    const sonde_rule_limits limits = {.seconds = 30};
    sonde_rules *rules = NULL;
    sonde_diag diag = {0};

    ok(sonde_rules_create(&rules, &diag), &diag);
    sonde_rules_set_limits(rules, &limits);
    if (collections != NULL) {
        char text[128];

        (void)snprintf(text, sizeof text, "MirrorVitals:collections=%s", collections);
        ok(sonde_rules_load(rules, path, &diag), &diag);
        ok(sonde_rules_add(rules, text, &diag), &diag);
        ok(sonde_rules_add(rules, "MirrorValues", &diag), &diag);
    } else {
        ok(sonde_rules_add(rules, path, &diag), &diag);
    }
    return rules;
}

static sonde_rules *judge(sonde_rules *rules)
{
    return sources_judge(rules, run, false);
}

static void *judge_live(void *arg)
{
    return sources_judge(arg, run, true);
}

static void same(sonde_rules *a, sonde_rules *b, size_t least)
{
    sources_same(a, b, true, least);
}

/* A run is made, judged by inside while it is, and by live from a thread beside. */
static void make_run(sonde_rules *inside, sonde_rules *live)
{
    pthread_t trains, follows;
    producer self;

    stream_remove(run);
    producer_open(&self, inside);
    assert_int_equal(pthread_create(&trains, NULL, produce_slowly, &self), 0);
    assert_int_equal(pthread_create(&follows, NULL, judge_live, live), 0);
    (void)pthread_join(trains, NULL);
    (void)pthread_join(follows, NULL);
    sonde_rules_finish(inside);
    sonde_observer_destroy(self.observer);
    sonde_catalogue_destroy(self.catalogue);
}

/* collections is NULL or of such as are the same everywhere: a process knows roles
 * alone. */
static void from_each_source(const char *path, const char *collections)
{
    sonde_rules *live = from_file(path, collections),
                *inside = from_file(path, collections);

    make_run(inside, live);
    same(inside, judge(from_file(path, collections)), 6);
    same(live, judge(from_file(path, collections)), 6);
}

static void in_c_from_each_source(void **state)
{
    char path[4096];

    (void)state;
    from_each_source(user_plugin("mirror", NULL, path, sizeof path), "gradients");
}

static void in_lua_from_each_source(void **state)
{
    (void)state;
    user_write(lua_path, lua_rule);
    from_each_source(lua_path, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_c_from_each_source),
        cmocka_unit_test(in_lua_from_each_source),
    };
    int failed = 0;

    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    (void)snprintf(run, sizeof run, "%s/run", folder);
    (void)snprintf(lua_path, sizeof lua_path, "%s/mirror.lua", folder);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    stream_remove(folder);
    return failed;
}
