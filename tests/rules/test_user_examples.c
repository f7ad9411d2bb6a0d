/*
 * The rules to copy in examples/rules: built by the command that they show, each finds
 * what it is for at its step and is silent where nothing is wrong.
 */
#include "rules/user.h"

static char folder[] = "/tmp/sonde_examples_XXXXXX";

/* Copies the examples and runs the line "cc ..." of the one in C. */
static bool build(void)
{
    char script[4096];

    (void)snprintf(
        script, sizeof script,
        "cd %s && root=$(cd " SONDE_TEST_DIR
        "/.. && pwd) && cp $root/examples/rules/* . &&"
        "printf 'Name: sonde\\nDescription: -\\nVersion: 0\\nCflags: -I%%s/include\\n' "
        "$root >sonde.pc && export PKG_CONFIG_PATH=$PWD &&"
        "sed -n 's/^ [*]  *\\(cc .*\\)$/\\1/p' outlier_element.c >line &&"
        "[ $(wc -l <line) -eq 1 ] && sh -e line",
        folder);
    return system(script) == 0;
}

static void open_example(stream *s, const char *name)
{
    char text[128];

    (void)snprintf(text, sizeof text, "%s/%s", folder, name);
    stream_open(s, text);
}

/* A weight of which one element is hit at that step; -1: never. */
static void run_outlier(int64_t hit)
{
    stream s;
    uint32_t id = 0, other = 0;

    open_example(&s, "outlier_element.so:factor=20");
    other = stream_declare(&s, "fc1.weight", SONDE_ROLE_WEIGHT, 40, 30);
    id = stream_declare(&s, "fc2.weight", SONDE_ROLE_WEIGHT, 40, 30);
    stream_begin(&s);
    for (int64_t step = 0; step < 12; step++) {
        float values[40 * 30];

        for (int i = 0; i < 40 * 30; i++) {
            values[i] = stream_normal(&s);
        }
        values[7] = step == hit ? 1e9F : values[7];
        stream_put(&s, id, values);
        stream_put_normal(&s, other, 0.0, 1.0);
        stream_end(&s);
    }
    if (hit >= 0) {
        const sonde_finding finding = stream_expect(&s, "fc2.weight", hit);

        assert_string_equal(finding.rule, "OutlierElement");
        assert_true(finding.value > 20);
    } else {
        stream_expect_clean(&s);
    }
    stream_close(&s);
}

static void an_element_that_outgrows_the_rest(void **state)
{
    (void)state;
    run_outlier(7);
    run_outlier(-1);
}

/* An activation whose spread falls by so much from step 12 on. */
static void run_quiet(double spread)
{
    stream s;
    uint32_t id = 0;

    open_example(&s, "quiet_layer.lua");
    id = stream_declare(&s, "relu", SONDE_ROLE_ACTIVATION, 20, 30);
    stream_begin(&s);
    for (int64_t step = 0; step < 30; step++) {
        stream_put_normal(&s, id, 0.5, step < 12 ? 1.0 : spread);
        stream_end(&s);
    }
    if (spread < 0.05) {
        assert_string_equal(stream_expect(&s, "relu", 14).rule, "QuietLayer");
    } else {
        stream_expect_clean(&s);
    }
    stream_close(&s);
}

static void a_layer_that_falls_silent(void **state)
{
    (void)state;
    run_quiet(0.01);
    run_quiet(0.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_element_that_outgrows_the_rest),
        cmocka_unit_test(a_layer_that_falls_silent),
    };
    int failed = 1;

    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    if (build()) {
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    stream_remove(folder);
    return failed;
}
