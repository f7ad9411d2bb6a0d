/*
 * Plug-ins that cannot be loaded, and rules that give up: a finding about the rule, while
 * the other rules continue. tsan: yes
 */
#include "rules/user.h"
#include "base/macros.h"

#include "alloc_failure.h"
#include "rules/engine.h"

enum { STEPS = 7, VALUES = 4 };

/* --- loading ---------------------------------------------------------------------- */

static void bad_tables_are_refused(void **state)
{
    static const struct {
        int bad;
        sonde_err err;
        const char *found;
    } cases[] = {
        {1, SONDE_EUNSUPPORTED,
         "built for rule interface 99 (expected rule interface 2)"},
        {2, SONDE_EUNSUPPORTED, "the size of its rows is 8 bytes (expected "},
        {3, SONDE_EFORMAT, "no symbol sonde_rule_plugin_table"},
        {4, SONDE_EINVAL, "rule ?: it has no name"},
        {5, SONDE_EINVAL, "rule Bad: the size of its state (expected at most 256 MB)"},
        {6, SONDE_EINVAL,
         "parameter 'limit' is invalid (expected an offset inside the state)"},
        {7, SONDE_EEXIST, "rule deadrelu: a built-in rule has this name"},
        {8, SONDE_EEXIST, "rule Bad occurs twice"},
        {9, SONDE_EINVAL, "rule 2 is NULL"},
        {10, SONDE_EINVAL, "need 1 is invalid (expected SONDE_HOW_ bits)"},
        {11, SONDE_EINVAL, "it needs more than vital signs (expected a function"},
        {12, SONDE_EINVAL, "a table of 0 rules"},
        {13, SONDE_EINVAL, "a table of 1 rules without address"},
        {14, SONDE_EINVAL,
         "rule ?: its name is invalid (expected a letter, then letters"},
        {15, SONDE_EINVAL, "it selects no tensors (expected a function wants)"},
        {16, SONDE_EUNSUPPORTED, "rule 1 has rule interface 3 (expected .abi = "},
        {17, SONDE_EFORMAT, "undefined symbol: nobody_has_this"},
        {18, SONDE_EINVAL, "parameter 'Limit' occurs twice"},
        {19, SONDE_EINVAL, "parameter 'limit' is invalid (expected an offset"},
        {22, SONDE_EINVAL, "'-1' (expected a finite number from 0 to 10)"},
        {23, SONDE_EINVAL, "parameter 'limit' is invalid (expected a help text)"},
        {24, SONDE_EINVAL, "rule Bad: summary (expected a text"},
        {25, SONDE_EINVAL, "parameters or needs"},
        {26, SONDE_EINVAL, "parameters or needs"},
        {20, SONDE_EINVAL, "its modes (expected a bit for each mode)"},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        char name[32], path[4096];

        (void)snprintf(name, sizeof name, "bad_%d", cases[i].bad);
        (void)user_plugin(name, NULL, path, sizeof path);
        user_refused(path, cases[i].err, cases[i].bad == 22 ? "Bad:limit" : path,
                     cases[i].found);
    }
}

static void other_files_are_refused(void **state)
{
    char folder[] = "/tmp/sonde_user_XXXXXX", path[64], text[4096];

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/text.so", folder);
    user_refused(path, SONDE_ENOTFOUND, path, "cannot be read: No such file");
    user_write(path, "no shared object at all\n");
    user_refused(path, SONDE_EFORMAT, path, "(expected a shared object)");
    user_refused(folder, SONDE_EFORMAT, folder, "(expected a shared object)");
    user_refused("nosuch.so", SONDE_ENOTFOUND, "nosuch.so", "No such file");
    (void)unlink(path);
    (void)rmdir(folder);
    user_refused(user_plugin("faulty", "who=x", text, sizeof text), SONDE_EINVAL,
                 "Faulty", "unknown parameter 'who' (expected in, at)");
    user_refused(user_plugin("mirror", "limit=1", text, sizeof text), SONDE_EINVAL,
                 "mirror.so", "parameters for a file of 2 rules");
}

static void rules_of_files_are_found_by_name(void **state)
{
    sonde_rules *rules = NULL;
    sonde_rule_file *file = NULL;
    sonde_diag diag = {0};
    char path[4096];

    (void)state;
    (void)user_plugin("mirror", NULL, path, sizeof path);
    assert_int_equal(sonde_rule_file_open(path, NULL, &file, &diag), SONDE_OK);
    assert_string_equal(sonde_rule_file_at(file, 0)->name, "MirrorVitals");
    assert_string_equal(sonde_rule_file_at(file, 0)->params[3].initial, "0.1");
    assert_true(sonde_rule_file_at(file, 1)->by_name_only);
    assert_null(sonde_rule_file_at(file, 2));
    sonde_rule_file_close(file);
    sonde_rule_file_close(NULL);

    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_add(rules, "MirrorValues", NULL), SONDE_ENOTFOUND);
    assert_int_equal(sonde_rules_load(rules, path, &diag), SONDE_OK);
    assert_int_equal(sonde_rules_load(rules, path, &diag), SONDE_OK); /* again: nothing */
    assert_int_equal(sonde_rules_count(rules), 0);
    assert_int_equal(sonde_rules_add(rules, "mirrorvalues", &diag), SONDE_OK);
    assert_int_equal(sonde_rules_add(rules, "MirrorVitals:limit=2,text=b", &diag),
                     SONDE_OK);
    assert_int_equal(sonde_rules_add(rules, "MirrorVitals:limit=x", &diag), SONDE_EINVAL);
    assert_int_equal(sonde_rules_count(rules), 2);
    assert_int_equal(sonde_rules_add_defaults(rules, &diag), SONDE_OK);
    sonde_rules_destroy(rules);
}

/* --- at work ---------------------------------------------------------------------- */

/* A rule that gives up is a finding about the rule; the rule beside it continues. */
static void a_rule_that_fails_is_switched_off(void **state)
{
    static const struct {
        const char *in;
        int64_t step;
    } cases[] = {{"step", 3}, {"observe", 3}, {"wants", 0}, {"idle", 0}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        char parameters[64], text[4096];
        stream s;

        (void)snprintf(parameters, sizeof parameters, "in=%s", cases[i].in);
        stream_open(&s, "ExplodingTensor");
        user_add(&s, user_plugin("faulty", parameters, text, sizeof text));
        const uint32_t id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, VALUES, 0);

        stream_begin(&s);
        for (int k = 0; k < STEPS; k++) {
            stream_put_all(&s, id, k == STEPS - 1 ? NAN : 1.0F);
            stream_end(&s);
            sonde__rules_idle(s.rules, 0.5);
        }
        sonde_rules_finish(s.rules);
        const sonde_finding *found = stream_found(&s, "");

        if (found == NULL || strstr(found->message, "no more of 7") == NULL) {
            fail_msg("%s: %s", text, found != NULL ? found->message : "nothing found");
            return;
        }
        assert_string_equal(found->rule, "Faulty");
        assert_int_equal(found->step, cases[i].step);
        assert_non_null(stream_found(&s, "w"));
        assert_int_equal(stream_count(&s), 2);
        stream_close(&s);
    }
    user_refused(user_plugin("faulty", "in=init", (char[4096]){0}, 4096), SONDE_EINVAL,
                 "faulty", "no init");
}

static void an_index_that_is_no_need_is_told(void **state)
{
    char text[4096];
    stream s;

    (void)state;
    stream_open(&s, user_plugin("bad_21", NULL, text, sizeof text));
    (void)stream_declare(&s, "w", SONDE_ROLE_WEIGHT, VALUES, 0);
    stream_begin(&s);
    assert_non_null(strstr(stream_expect(&s, "", 0).message, "wants returned 7 for 'w'"));
    stream_close(&s);
}

/* --- memory -------------------------------------------------------------- */

static void fail_each_allocation(const char *text)
{
    sonde_rule_file *file = NULL;

    assert_int_equal(sonde_rule_file_open(text, NULL, &file, NULL), SONDE_OK);
    sonde_rule_file_close(file); /* what is loaded once is loaded */
    for (size_t n = 0;; n++) {
        sonde_rules *rules = NULL;
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = sonde_rules_create(&rules, NULL);
        if (err == SONDE_OK) {
            err = sonde_rules_add(rules, text, NULL);
        }
        sonde_rules_destroy(rules);
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            assert_true(n > 5);
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
}

static void memory_that_cannot_be_had(void **state)
{
    char text[4096], folder[] = "/tmp/sonde_user_XXXXXX", script[64];

    (void)state;
    fail_each_allocation(user_plugin("mirror", NULL, text, sizeof text));
    assert_non_null(mkdtemp(folder));
    (void)snprintf(script, sizeof script, "%s/rule.lua", folder);
    user_write(script, "local t = {name = 'Try', summary = 's', condition = 'c',\n"
                       "advice = 'a', needs = {{what = 'w'}}}\n"
                       "function t.wants() return true end\nreturn t\n");
    fail_each_allocation(script);
    (void)unlink(script);
    (void)rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(rules_of_files_are_found_by_name),
        cmocka_unit_test(a_rule_that_fails_is_switched_off),
        cmocka_unit_test(an_index_that_is_no_need_is_told),
        cmocka_unit_test(memory_that_cannot_be_had),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
