/*
 * Rules that are scripts: what one can read and say, scripts that are no rules, and
 * those that go wrong at work or reach for what they may not have.
 */
#include "rules/user.h"
#include "base/macros.h"
#include "rules/engine.h"

#include <fcntl.h>
#include <sys/stat.h>

static char folder[] = "/tmp/sonde_lua_XXXXXX", script[64], text[256];

/* The fields that a rule must have, before those of a test. */
#define HEAD                                                                             \
    "local rule = {name = 'Try', summary = 's', condition = 'c', advice = 'a',\n"        \
    "  needs = {{what = 'w'}},\n"
#define ALL "function rule.wants(ctx, t) return true end\n"
#define STEP(body) HEAD "}\n" ALL "function rule.step(ctx)\n" body "\nend\nreturn rule\n"

static const char *with(const char *parameters)
{
    (void)snprintf(text, sizeof text, "%s%s%s", script, parameters[0] != '\0' ? ":" : "",
                   parameters);
    return text;
}

static void open_script(stream *s, const char *source, const char *parameters)
{
    user_write(script, source);
    stream_open(s, with(parameters));
}

/* --- loading ---------------------------------------------------------------------- */

static const struct {
    const char *source, *where, *found;
} no_rules[] = {
    {"", "", "the script returns nothing (expected a rule: a table)"},
    {"return 7", "", "the script returns number"},
    {"return {", ":1", "unexpected symbol near <eof>"},
    {"\n\nlocal x = y.z", ":3", "attempt to index a nil value (global 'y')"},
    {"\x1bLua\x54", "", "attempt to load a binary chunk"},
    {"return {}", "", "rule: name is missing (expected a text)"},
    {"return {name = 7}", "", "rule: name is number (expected a text)"},
    {"return {name = 'a\\0b'}", "", "name holds a zero byte"},
    {"return {nam = 'x'}", "", "a rule has no field 'nam' (expected name)"},
    {"return {name = '1x', summary = 's', condition = 'c', advice = 'a', needs = "
     "{{what = 'w'}}, wants = print}",
     "", "its name is invalid (expected a letter"},
    {"return {name = 'DeadRelu', summary = 's', condition = 'c', advice = 'a', needs "
     "= {{what = 'w'}}, wants = print}",
     "", "a built-in rule has this name"},
    {HEAD "} rule.needs = nil return rule", "", "it has no needs"},
    {HEAD "} return rule", "", "it selects no tensors"},
    {HEAD "} rule.needs = nil rule.program = 7 return rule", "",
     "program is a number (expected a function)"},
    {HEAD "step = 7}" ALL "return rule", "", "step is a number (expected a function)"},
    {HEAD "modes = 'trian'}" ALL "return rule", "",
     "mode 'trian' (expected one of train, eval, predict)"},
    {HEAD "} rule.needs[1].how = 'vital'" ALL "return rule", "",
     "how 'vital' (expected one of values, vitals, sketch, hash)"},
    {HEAD "} rule.needs[1].how = 'values'" ALL "return rule", "",
     "it needs more than vital signs (expected a function observe)"},
    {HEAD "params = {7}}" ALL "return rule", "", "params[1] is a number"},
    {HEAD "params = {{name = 'x'}}}" ALL "return rule", "", "params[1]: help is missing"},
    {HEAD "params = {{name = 'x', help = 'h', defualt = 1}}}" ALL "return rule", "",
     "params[1] has no field 'defualt' (expected default)"},
    {HEAD "params = {{name = 'x', help = 'h', default = {}}}}" ALL "return rule", "",
     "params[1]: default is a table"},
    {HEAD "params = {{name = 'x', help = 'h', kind = 'rael'}}}" ALL "return rule", "",
     "kind 'rael' (expected one of real, count"},
    {HEAD "params = {{name = 'x', help = 'h', default = 7, most = 3}}}" ALL "return rule",
     "", "'7' (expected a whole number from 0 to 3)"},
    {HEAD "params = {{name = 'x', help = 'h', default = '(', kind = 'regex'}}}" ALL
          "return rule",
     "", "("},
    {HEAD "} function rule.init(ctx)\nerror('no init')\nend\n" ALL "return rule", ":4",
     "no init"},
    {"while true do end", ":1", "more than 50000000 instructions in one call"},
    {"local function f() return f() + 1 end return f()", ":1", "stack overflow"},
    {"return ('x'):rep(1 << 40)", "", "resulting string too large"},
    {"local t = {} while true do t[#t + 1] = ('x'):rep(1 << 20) .. #t end", "",
     "it exceeds its memory limit"},
    {"error({})", "", "an error value that is not a text"},
    {"io.open('x')", ":1", "global 'io'"},
    {"os.time()", ":1", "global 'os'"},
    {"require 'x'", ":1", "global 'require'"},
    {"debug.sethook()", ":1", "global 'debug'"},
    {"package.path = ''", ":1", "global 'package'"},
    {"for k in next, {} do end", ":1", "attempt to call a nil value"},
    {"assert(utf8.char(228) == 'ä')", "", "the script returns nothing"},
    {"load('return 1')", ":1", "global 'load'"},
    {"collectgarbage('stop')", ":1", "global 'collectgarbage'"},
    {"string.dump(print)", ":1", "field 'dump'"},
    {"math.randomseed(7)", ":1", "field 'randomseed'"},
    {"coroutine.wrap(print)", ":1", "global 'coroutine'"},
};

static void scripts_that_are_no_rules(void **state)
{
    const sonde_rule_limits limits = {.seconds = 30};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(no_rules); i++) {
        char where[80];
        sonde_rules *rules = NULL;
        sonde_diag diag = {0};
        char line[SONDE_DIAG_LINE];

        user_write(script, no_rules[i].source);
        (void)snprintf(where, sizeof where, "%s%s", script, no_rules[i].where);
        assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
        sonde_rules_set_limits(rules, &limits);
        assert_int_not_equal(sonde_rules_add(rules, script, &diag), SONDE_OK);
        (void)sonde_diag_line(&diag, line, sizeof line);
        if (strstr(line, no_rules[i].found) == NULL ||
            (no_rules[i].where[0] != '\0' && strcmp(diag.where, where) != 0)) {
            fail_msg("%s\nsays: %s\nnot: %s: %s", no_rules[i].source, line, where,
                     no_rules[i].found);
        }
        sonde_rules_destroy(rules);
    }
}

/* --- at work ---------------------------------------------------------------------- */

static const struct {
    const char *source, *says;
} faults[] = {
    {STEP("local x = ctx.nothing.at"),
     "try.lua:6: attempt to index a nil value (field 'nothing')"},
    {STEP("ctx:found{}"), "try.lua:6: found: statistic is missing (expected a text)"},
    {STEP("ctx:found{statistic = 'x', message = 'm', value = 'v', threshold = 1}"),
     "try.lua:6: found: value is string (expected a number)"},
    {STEP("ctx:found{severity = 'bad', statistic = 'x'}"),
     "found: severity 'bad' (expected note, warning or error)"},
    {STEP("ctx:found{tensor = {}, statistic = 'x'}"),
     "found: tensor is not in ctx.tensors"},
    {STEP("return ctx.tensors[1].vitals.meen"),
     "no vital sign is called 'meen' (expected mean)"},
    {STEP("ctx:fail('no more')"), "try.lua:6: no more"},
    {STEP("while true do end"), "try.lua:6: more than 50000000 instructions"},
    {STEP("while true do pcall(function() while true do end end) end"),
     "more than 50000000 instructions"},
    {STEP("local t = {} while true do t[#t + 1] = {} end"),
     "it exceeds its memory limit"},
    {STEP("local s = ('a'):rep(40) local at = s:find(('.-'):rep(40) .. 'b')"),
     "try.lua:6: a pattern that could match 40 bytes in too many ways"},
    {STEP("local s = ('a'):rep(1 << 20) local at = s:find(s .. 'b', 1, true)"),
     "try.lua:6: a pattern that could match 1048576 bytes in too many ways"},
    {STEP("setmetatable({}, {__gc = function() while true do end end})"),
     "try.lua:6: a rule has no finalizers: __gc"},
    {STEP("table.move({}, 1, 1 << 60, 2)"),
     "try.lua:6: more than 10000000 elements to move"},
    {STEP("error('x' .. #(''):rep(1 << 60))"), "try.lua:6: x0"},
    {STEP("local s = ('x'):rep(1 << 22) while true do local t = s .. s end"),
     "more than 0.05 s of processor time"},
    {HEAD "}\nfunction rule.wants() return 2 end\nreturn rule",
     "wants returned 2 for 'w' (expected true, false or a number from 1 to 1)"},
    {HEAD "}\nfunction rule.wants(ctx)\nctx:found{}\nend\nreturn rule",
     "try.lua:5: found may only be called in observe, program, step, idle and finish"},
    {HEAD "} local keep\n" ALL "function rule.step(ctx)\n"
          "if keep then return keep.mean end keep = ctx.tensors[1].vitals end\n"
          "function rule.finish() return keep.mean end return rule",
     "vital signs are only valid during the step they belong to"},
    {HEAD "}\n" ALL "function rule.finish(ctx)\nerror('late')\nend\nreturn rule",
     "try.lua:6: late"},
};

static void scripts_that_go_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(faults); i++) {
        stream s;
        uint32_t id = 0;
        const sonde_finding *finding = NULL;
        sonde_rule_limits limits = {.memory = 16 << 20};

        user_write(script, faults[i].source);
        stream_open(&s, "ExplodingTensor");
        limits.seconds = strstr(faults[i].says, "processor") != NULL ? 0.05 : 30;
        sonde_rules_set_limits(s.rules, &limits);
        user_add(&s, script);
        id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 4, 0);
        stream_begin(&s);
        stream_put_all(&s, id, 1.0F);
        stream_end(&s);
        stream_put_all(&s, id, NAN);
        stream_end(&s);
        sonde_rules_finish(s.rules);
        finding = stream_found(&s, "");
        if (finding == NULL || strstr(finding->message, faults[i].says) == NULL) {
            fail_msg("%s\nsays: %s\nnot: %s", faults[i].source,
                     finding != NULL ? finding->message : "nothing", faults[i].says);
            return;
        }
        assert_string_equal(finding->rule, "Try");
        assert_non_null(stream_found(&s, "w"));
        stream_close(&s);
    }
}

/* Limits hold for the files that are loaded later; NULL: the defaults. */
static void limits_are_of_later_files(void **state)
{
    static const char *const names[] = {"First", "Second"};
    const sonde_rule_limits narrow = {.instructions = 1000, .seconds = 30},
                            wide = {.seconds = 30}; /* for a busy machine */
    stream s;
    uint32_t id = 0;
    const sonde_finding *finding = NULL;

    (void)state;
    stream_open(&s, "ExplodingTensor");
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        char path[96], source[512];

        (void)snprintf(path, sizeof path, "%s/%s.lua", folder, names[i]);
        (void)snprintf(source, sizeof source,
                       HEAD "}\nrule.name = '%s'\n" ALL
                            "function rule.step(ctx) for i = 1, 100000 do end end\n"
                            "return rule\n",
                       names[i]);
        user_write(path, source);
        sonde_rules_set_limits(s.rules, NULL);
        assert_true(s.rules->limits.instructions == 0 && s.rules->limits.memory == 0 &&
                    s.rules->limits.seconds == 0); /* the defaults */
        sonde_rules_set_limits(s.rules, i == 0 ? &narrow : &wide);
        user_add(&s, path);
        (void)unlink(path);
    }
    id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 4, 0);
    stream_begin(&s);
    stream_put_all(&s, id, 1.0F);
    stream_end(&s);
    sonde_rules_finish(s.rules);
    finding = stream_found(&s, "");
    assert_int_equal(stream_count(&s), 1);
    assert_string_equal(finding->rule, "First");
    assert_non_null(strstr(finding->message, "more than 1000 instructions"));
    stream_close(&s);
}

/* Every vital sign, by name, against those of C. */
static void vital_signs_are_those_of_c(void **state)
{
    const float values[4] = {-1.5F, 0.0F, 4.0F, INFINITY};
    static const char source[] =
        HEAD "params = {{name = 'sign', help = 'h', default = 'mean'}}}\n" ALL
             "function rule.step(ctx)\n"
             "local t = ctx.tensors[1]\n"
             "ctx:found{tensor = t, statistic = ctx.params.sign, message = 'm',\n"
             "  value = t.vitals[ctx.params.sign], threshold = 0}\n"
             "end\nreturn rule\n";
    sonde_view view = sonde_view_of(SONDE_F32, 1, (const int64_t[]){4}, NULL);
    float copy[4];
    sonde_vitals v;

    (void)state;
    memcpy(copy, values, sizeof copy);
    view.data = copy;
    sonde_vitals_of(&view, &v);
    {
        const struct {
            const char *name;
            double value;
        } signs[] = {
            {"count", 4},
            {"nan", 0},
            {"pos_inf", 1},
            {"neg_inf", 0},
            {"zero", 1},
            {"min", v.min},
            {"max", v.max},
            {"abs_min", v.abs_min},
            {"mean", v.mean},
            {"m2", v.m2},
            {"l1", v.l1},
            {"abs_max", v.abs_max},
            {"sumsq", v.sumsq},
            {"sum", v.sum},
            {"finite", 3},
            {"nonfinite", 1},
            {"abs_mean", 5.5 / 3},
            {"variance", v.m2 / 3},
            {"l2", sqrt(v.sumsq)},
            {"std", sqrt(v.m2 / 3)},
            {"rms", sqrt(v.sumsq / 3)},
        };

        for (size_t i = 0; i < SONDE_COUNT_OF(signs); i++) {
            stream s;
            uint32_t id = 0;
            char parameters[64];
            sonde_finding finding;

            (void)snprintf(parameters, sizeof parameters, "sign=%s", signs[i].name);
            open_script(&s, source, parameters);
            id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 4, 0);
            stream_begin(&s);
            stream_put(&s, id, values);
            stream_end(&s);
            finding = stream_expect(&s, "w", 0);
            assert_string_equal(finding.statistic, signs[i].name);
            assert_true(finding.value == signs[i].value);
            stream_close(&s);
        }
    }
}

/* ctx and tensors, as a script sees them; what is wrong comes back as the message. */
static const char everything[] =
    "local rule = {name = 'Try', summary = 's', condition = 'c', advice = 'a',\n"
    "  params = {{name = 'real', help = 'h', default = 0.1},\n"
    "            {name = 'count', help = 'h', default = 3},\n"
    "            {name = 'flag', help = 'h', default = true},\n"
    "            {name = 'which', help = 'h', default = '^w,^b', kind = 'regex'},\n"
    "            {name = 'nothing', help = 'h', kind = 'real'}},\n"
    "  needs = {{what = 'w'}, {what = 'b', how = {'values', 'sketch'}, optional = true,\n"
    "           every = 1}}, modes = {'train', 'eval'}}\n"
    "local steps, order = 0, {}\n"
    "local function check(what, is, should)\n"
    "  if is ~= should then error(what .. ': ' .. tostring(is), 2) end\n"
    "end\n"
    "function rule.init(ctx)\n"
    "  check('real', ctx.params.real, 0.1) check('count', ctx.params.count, 9)\n"
    "  check('flag', ctx.params.flag, true) check('which', ctx.params.which, '^w,^b')\n"
    "  check('nothing', ctx.params.nothing, nil)\n"
    "  check('type', math.type(ctx.params.count), 'integer')\n"
    "end\n"
    "function rule.wants(ctx, t)\n"
    "  local selected, given = ctx:selects(t) check('given', given, true)\n"
    "  if t.name == 'x' then check('x', selected, false) return false end\n"
    "  return t.role == 'bias' and 2 or 1\n"
    "end\n"
    "function rule.observe(ctx, t, seen)\n"
    "  check('name', t.name, 'b') check('#', #seen.values, 6)\n"
    "  check('1', seen.values[1], 0.5) check('6', seen.values[6], 5.5)\n"
    "  check('shape', seen.shape[1] .. 'x' .. seen.shape[2], '2x3')\n"
    "  check('hash', seen.hash, nil) check('sketch', seen.sketch, nil)\n"
    "  check('0', pcall(function() return seen.values[0] end), false)\n"
    "  check('7', select(2, pcall(function() return seen.values[7] "
    "end)):match('values.*'),\n"
    "        'values[7] is out of range (there are 6)')\n"
    "  check('micro', seen.micro_batch, 0) t.memory.seen = (t.memory.seen or 0) + 1\n"
    "end\n"
    "function rule.step(ctx)\n"
    "  steps = steps + 1\n"
    "  check('step', ctx.step, steps - 1) check('mode', ctx.mode, 'train')\n"
    "  check('bad', ctx.any_bad, false) check('two', #ctx.tensors, 2)\n"
    "  local w, b = ctx.tensors[1], ctx:tensor('b')\n"
    "  check('none', ctx:tensor('x'), nil) check('index', b.index, 2)\n"
    "  check('need', b.need, 2) check('dtype', w.dtype, 'float32')\n"
    "  check('seen', b.memory.seen, steps) check('b.vitals', b.vitals, nil)\n"
    "  for k, v in pairs({z = 1, a = 2, [3] = 3, [1] = 4, [b] = 5, [w] = 6}) do\n"
    "    order[#order + 1] = v\n"
    "  end\n"
    "  check('order', table.concat(order), ('432165'):rep(steps))\n"
    "  check('random', math.random(1000000), ({%d, %d})[steps] or -1)\n"
    "end\n"
    "function rule.finish(ctx)\n"
    "  check('steps', steps, 2)\n"
    "  ctx:lacked('something')\n"
    "  ctx:found{statistic = 'end', value = steps, threshold = 0/0, severity = 'note',\n"
    "            message = 'all went well', advice = 'none'}\n"
    "end\n"
    "return rule\n";

static sonde_finding see_everything(const char *source)
{
    const float values[6] = {0.5F, 1.5F, 2.5F, 3.5F, 4.5F, 5.5F};
    stream s;
    uint32_t w = 0, b = 0;
    const sonde_finding *first = NULL;
    sonde_finding finding = {0};
    static char message[512];

    open_script(&s, source, "count=9");
    (void)stream_declare(&s, "x", SONDE_ROLE_OTHER, 4, 0);
    w = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 4, 0);
    b = stream_declare(&s, "b", SONDE_ROLE_BIAS, 2, 3);
    stream_begin(&s);
    for (int i = 0; i < 2; i++) {
        stream_put_all(&s, w, 1.0F);
        stream_put(&s, b, values);
        stream_end(&s);
    }
    sonde_rules_finish(s.rules);
    assert_int_equal(stream_count(&s), 1);
    first = stream_found(&s, "");
    if (first != NULL) {
        finding = *first;
        (void)snprintf(message, sizeof message, "%s", finding.message);
    }
    finding.message = message;
    stream_close(&s);
    return finding;
}

static void everything_can_be_read(void **state)
{
    char source[sizeof everything + 64];
    int numbers[2] = {0};
    sonde_finding finding;

    (void)state;
    /* Told by the script itself what the numbers are; they must be the same in each
     * process. */
    for (int i = 0; i < 2; i++) {
        const char *at = NULL;

        (void)snprintf(source, sizeof source, everything, numbers[0], numbers[1]);
        finding = see_everything(source);
        at = strstr(finding.message, "random: ");
        if (at == NULL) {
            fail_msg("%s", finding.message);
            return;
        }
        numbers[i] = atoi(at + strlen("random: "));
    }
    (void)snprintf(source, sizeof source, everything, numbers[0], numbers[1]);
    finding = see_everything(source);
    assert_string_equal(finding.message, "all went well");
}

static void sketches_are_read(void **state)
{
    static const char source[] = HEAD
        "}\nrule.needs[1].how = 'sketch'\n" ALL "function rule.observe(ctx, t, seen)\n"
        "  if seen.values then error('values') end\n"
        "  ctx:found{tensor = t, statistic = 'median', value = "
        "seen.sketch:quantile(0.5),\n"
        "    threshold = seen.sketch.count + seen.sketch.zero, message = 'm'}\n"
        "end\nreturn rule\n";
    const float values[4] = {1.0F, 1.0F, 1.0F, 0.0F};
    sonde_view view = sonde_view_of(SONDE_F32, 1, (const int64_t[]){4}, NULL);
    sonde_sketch sketch;
    float copy[4];
    stream s;
    sonde_observation observation = {.sketch = &sketch};
    sonde_finding finding;

    (void)state;
    memcpy(copy, values, sizeof copy);
    view.data = copy;
    sonde_sketch_init(&sketch);
    sonde_sketch_add(&sketch, &view);
    open_script(&s, source, "");
    observation.id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 4, 0);
    observation.info = sonde_catalogue_info(s.catalogue, observation.id);
    stream_begin(&s);
    sonde__rules_put(s.rules, &observation);
    stream_end(&s);
    finding = stream_expect(&s, "w", 0);
    assert_true(finding.value == sonde_sketch_quantile(&sketch, 0.5));
    assert_true(finding.threshold == 5.0);
    stream_close(&s);
}

/* A script prints to standard error, and 1 MB at most. */
static void printing_is_limited(void **state)
{
    char path[96];
    struct stat printed;
    stream s;

    (void)state;
    (void)snprintf(path, sizeof path, "%s/printed", folder);
    const int before = dup(STDERR_FILENO);
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(before >= 0 && file >= 0);
    open_script(&s, STEP("for i = 1, 100 do print(('x'):rep(100000), i) end"), "");
    const uint32_t id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, 4, 0);

    stream_begin(&s);
    assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
    stream_put_all(&s, id, 1.0F);
    stream_end(&s);
    (void)fflush(stderr);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    stream_expect_clean(&s);
    stream_close(&s);
    assert_int_equal(fstat(file, &printed), 0);
    assert_true(printed.st_size > 1000000 && printed.st_size < 1050000);
    (void)close(before);
    (void)close(file);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_that_are_no_rules),
        cmocka_unit_test(scripts_that_go_wrong),
        cmocka_unit_test(printing_is_limited),
        cmocka_unit_test(limits_are_of_later_files),
        cmocka_unit_test(vital_signs_are_those_of_c),
        cmocka_unit_test(everything_can_be_read),
        cmocka_unit_test(sketches_are_read),
    };
    int failed = 0;

    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    (void)snprintf(script, sizeof script, "%s/try.lua", folder);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(script);
    (void)rmdir(folder);
    return failed;
}
