/*
 * Plug-ins that cannot be loaded, and rules that go wrong at work: in every way, in every
 * function. The judging process survives and continues with the other rules. tsan: yes
 */
#include "rules/user.h"
#include "base/macros.h"

#include "alloc_failure.h"

#include <pthread.h>

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
        {20, SONDE_EFORMAT, "reading it crashed with signal 11"},
        {22, SONDE_EINVAL, "'-1' (expected a finite number from 0 to 10)"},
        {23, SONDE_EINVAL, "parameter 'limit' is invalid (expected a help text)"},
        {24, SONDE_EINVAL, "rule Bad: summary (expected a text"},
        {25, SONDE_EINVAL, "parameters or needs"},
        {26, SONDE_EINVAL, "parameters or needs"},
        {27, SONDE_EINVAL, "its modes (expected a bit for each mode)"},
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
                 "Faulty", "unknown parameter 'who' (expected how, in, at)");
    user_refused(user_plugin("mirror", "limit=1", text, sizeof text), SONDE_EINVAL,
                 "mirror.so", "parameters for a file of 2 rules");
}

static void a_missing_host_is_told(void **state)
{
    char text[4096];

    (void)state;
    (void)user_plugin("faulty", NULL, text, sizeof text);
    assert_int_equal(setenv("SONDE_RULE_HOST", "/nowhere/host", 1), 0);
    user_refused(text, SONDE_ENOTFOUND, "/nowhere/host",
                 "cannot be started: No such file");
    assert_int_equal(setenv("SONDE_RULE_HOST", "/bin/true", 1), 0);
    user_refused(text, SONDE_EFORMAT, text, "ended its process with status 0");
    assert_int_equal(unsetenv("SONDE_RULE_HOST"), 0);
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

static void limited_open(stream *s, const char *text, double seconds)
{
    const sonde_rule_limits limits = {.seconds = seconds};

    stream_open(s, "ExplodingTensor");
    sonde_rules_set_limits(s->rules, &limits);
    user_add(s, text);
}

/* Steps with one tensor, whose value is NaN at the last; the rule is given it too. */
static void work(stream *s, uint32_t id)
{
    for (int i = 0; i < STEPS; i++) {
        stream_put_all(s, id, i == STEPS - 1 ? NAN : 1.0F);
        stream_end(s);
        sonde_rules_idle(s->rules, 0.5);
    }
}

static const struct {
    const char *how, *in, *says;
    int64_t step;
} faults[] = {
    {"segv", "step", "it crashed with signal 11 (Segmentation fault) at step 3", 3},
    {"fpe", "step", "it crashed with signal 8 (Floating point exception) at step 3", 3},
    {"abort", "step", "it crashed with signal 6 (Aborted) at step 3", 3},
    {"stack", "step", "it crashed with signal 11 (Segmentation fault) at step 3", 3},
#if !defined(__SANITIZE_THREAD__)      /* whose allocator lets it pass */
    {"heap", "step", " at step 3", 3}, /* a sanitizer would have it end otherwise */
#endif
    {"loop", "step", "it took longer than 0.5 s at step 3", 3},
    {"sleep", "step", "it did not answer for 2 s at step 3", 3},
    {"exit", "step", "it ended its process with status 7 at step 3", 3},
    {"close", "step", " at step 3", 3},
    {"scribble", "step", "it has corrupted its memory at step 3", 3},
    {"fail", "step", "no more of 7", 3},
    {"segv", "observe", "it crashed with signal 11 (Segmentation fault) at step 3", 3},
    {"loop", "observe", "it took longer than 0.5 s at step 3", 3},
    {"fail", "observe", "no more of 7", 3},
    {"abort", "wants", "signal 6 (Aborted) when asked whether it wants 'w'", 0},
    {"loop", "wants", "longer than 0.5 s when asked whether it wants 'w'", 0},
    {"fail", "wants", "no more of 7", 0},
    {"segv", "idle", "(Segmentation fault) while the run was idle", 0},
    {"segv", "finish", "(Segmentation fault) at the end of the run", STEPS - 1},
    {"exit", "finish", "with status 7 at the end of the run", STEPS - 1},
};

/* A loop that gets little of a busy machine's processors reaches the limit of the time
 * that it may take to answer first. */
static bool says(const char *message, const char *how, const char *what)
{
    return strstr(message, what) != NULL ||
           (strcmp(how, "loop") == 0 &&
            strstr(message, "it did not answer for 5 s") != NULL);
}

static void what_goes_wrong_is_a_finding_about_the_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(faults); i++) {
        char parameters[64], text[4096];
        stream s;
        uint32_t id = 0;
        const sonde_finding *found = NULL;

        (void)snprintf(parameters, sizeof parameters, "how=%s,in=%s", faults[i].how,
                       faults[i].in);
        limited_open(&s, user_plugin("faulty", parameters, text, sizeof text),
                     strcmp(faults[i].how, "loop") == 0    ? 0.5
                     : strcmp(faults[i].how, "sleep") == 0 ? 0.2
                                                           : 20);
        id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, VALUES, 0);
        stream_begin(&s);
        work(&s, id);
        sonde_rules_finish(s.rules);

        found = stream_found(&s, "");
        if (found == NULL || !says(found->message, faults[i].how, faults[i].says)) {
            fail_msg("%s: %s", text, found != NULL ? found->message : "nothing found");
            return;
        }
        assert_string_equal(found->rule, "Faulty");
        assert_int_equal(found->step, faults[i].step);
        assert_non_null(stream_found(&s, "w")); /* the other rule went on */
        assert_int_equal(stream_count(&s), 2);
        stream_close(&s);
    }
}

/* What goes wrong before the first step, or when all is over. */
static void what_goes_wrong_beside_the_run(void **state)
{
    char text[4096];
    stream s;
    uint32_t id = 0;

    (void)state;
    user_refused(user_plugin("faulty", "in=init", text, sizeof text), SONDE_EINVAL,
                 "faulty.so", "its init crashed with signal 11");
    limited_open(&s, user_plugin("faulty", "in=destroy,how=loop", text, sizeof text),
                 0.3);
    id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, VALUES, 0);
    stream_begin(&s);
    work(&s, id);
    (void)stream_expect(&s, "w", STEPS - 1);
    stream_close(&s); /* ends */
}

/* More than a socket holds, for a host that has gone. */
static void nobody_reads_any_more(void **state)
{
    char text[4096];
    stream s;
    uint32_t id = 0;

    (void)state;
    limited_open(&s, user_plugin("faulty", "in=observe,how=exit,at=0", text, sizeof text),
                 20);
    id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, STREAM_MOST, 0);
    stream_begin(&s);
    for (int i = 0; i < 200; i++) {
        stream_put_all(&s, id, 1.0F);
    }
    stream_end(&s);
    assert_non_null(strstr(stream_expect(&s, "", 0).message, "with status 7"));
    stream_close(&s);
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

/* --- threads, memory -------------------------------------------------------------- */

static void *judge_alone(void *arg)
{
    char text[4096];
    stream s;
    uint32_t id = 0;

    stream_open(&s, user_plugin("faulty", arg, text, sizeof text));
    id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, VALUES, 0);
    stream_begin(&s);
    work(&s, id);
    sonde_rules_finish(s.rules);
    assert_int_equal(stream_count(&s), 1);
    stream_close(&s);
    return NULL;
}

static void hosts_of_several_threads(void **state)
{
    static char how[][32] = {"how=segv", "how=abort", "how=exit", "in=finish"};
    pthread_t threads[SONDE_COUNT_OF(how)];

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(how); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, judge_alone, how[i]), 0);
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(how); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static void memory_that_cannot_be_had(void **state)
{
    char text[4096];

    (void)state;
    (void)user_plugin("mirror", NULL, text, sizeof text);
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
            assert_true(n > 20);
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(a_missing_host_is_told),
        cmocka_unit_test(rules_of_files_are_found_by_name),
        cmocka_unit_test(what_goes_wrong_is_a_finding_about_the_rule),
        cmocka_unit_test(what_goes_wrong_beside_the_run),
        cmocka_unit_test(nobody_reads_any_more),
        cmocka_unit_test(an_index_that_is_no_need_is_told),
        cmocka_unit_test(hosts_of_several_threads),
        cmocka_unit_test(memory_that_cannot_be_had),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
