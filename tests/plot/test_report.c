/*
 * test_report.c - the page of a run: a small one to the byte, names that are markup, a
 * thousand findings, a hundred thousand steps, runs that are live or empty, memory and
 * disks that fail.
 */
#include "cmocka_all.h"

#include "alloc_failure.h"
#include "plot/report.h"

#include <sonde/watch.h>
#include <sonde/plot.h>

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- a run, recorded as any program would ------------------------------------------- */

static char folder[64], home[4096];
static sonde_diag diag;

#define must(call)                                                                       \
    do {                                                                                 \
        if ((call) != SONDE_OK) {                                                        \
            fail_msg("%s: %s: %s", #call, diag.where, diag.found);                       \
        }                                                                                \
    } while (0)

static int remove_entry(const char *path, const struct stat *about, int type,
                        struct FTW *walk)
{
    (void)about;
    (void)type;
    (void)walk;
    return remove(path);
}

/* Paths of the run are on the page: they must not change from test to test. */
static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sonde-report-XXXXXX");
    return getcwd(home, sizeof home) == NULL || mkdtemp(folder) == NULL ||
           chdir(folder) != 0;
}

static int tear_down(void **state)
{
    (void)state;
    return chdir(home) != 0 || nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0;
}

static sonde_watch *record(const char *run, const char *model)
{
    const sonde_hook_options options = {
        .size = sizeof options,
        .record = SONDE_OPTIONS(sonde_recorder, .path = run, .program = "test_report",
                                .model = model, .when_full = SONDE_WHEN_FULL_WAIT),
        .vitals_every = 1};
    sonde_hook *hook = NULL;
    sonde_watch *watch = NULL;

    must(sonde_hook_create(&options, &hook, &diag));
    must(sonde_watch_create(SONDE_OPTIONS(sonde_watch, .hook = hook), &watch, &diag));
    return watch;
}

static uint32_t declare(sonde_watch *watch, const char *name, sonde_role role,
                        int64_t count)
{
    const sonde_tensor_info info = {.name = name,
                                    .role = role,
                                    .dtype = SONDE_F32,
                                    .rank = count > 1 ? 1 : 0,
                                    .shape = {count},
                                    .same_as = SONDE_NO_TENSOR};
    uint32_t id = 0;

    must(sonde_watch_add(watch, &info, &id, &diag));
    return id;
}

/* All elements are the same. */
static void put(sonde_watch *watch, uint32_t id, int64_t count, float value)
{
    float values[8];
    const sonde_view view = sonde_view_of(SONDE_F32, count > 1 ? 1 : 0, &count, values);

    for (int i = 0; i < 8; i++) {
        values[i] = value;
    }
    sonde_watch_see(watch, id, &view);
}

static void end(sonde_watch *watch)
{
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
}

/* --- its page ----------------------------------------------------------------------- */

static char *read_page(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long size = 0;

    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size = ftell(file);
    rewind(file);
    text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), (size_t)size);
    text[size] = '\0';
    (void)fclose(file);
    return text;
}

typedef struct judged {
    sonde_trial *trial;
    sonde_rules *rules;
} judged;

/* rule NULL: all that need not be told anything. */
static judged judge(const char *run, const char *rule)
{
    judged outcome = {0};

    must(sonde_trial_open(run, NULL, &outcome.trial, &diag));
    must(sonde_rules_create(&outcome.rules, &diag));
    if (rule != NULL) {
        must(sonde_rules_add(outcome.rules, rule, &diag));
    } else {
        must(sonde_rules_add_defaults(outcome.rules, &diag));
    }
    must(sonde_rules_judge(outcome.rules, outcome.trial, NULL, &diag));
    return outcome;
}

static void forget(judged outcome)
{
    sonde_rules_destroy(outcome.rules);
    sonde_trial_close(outcome.trial);
}

static char *page_of(const char *run, const char *rule)
{
    const judged outcome = judge(run, rule);

    must(sonde_report_write("page.html", outcome.trial, outcome.rules, &diag));
    forget(outcome);
    return read_page("page.html");
}

static void expect_text(const char *page, const char *text)
{
    if (strstr(page, text) == NULL) {
        fail_msg("the page has no '%s'", text);
    }
}

static void expect_no_text(const char *page, const char *text)
{
    if (strstr(page, text) != NULL) {
        fail_msg("the page has '%s'", text);
    }
}

static size_t count_text(const char *page, const char *text)
{
    size_t count = 0;

    for (const char *p = page; (p = strstr(p, text)) != NULL; p++) {
        count++;
    }
    return count;
}

/* Takes out the line that begins so: what no two recordings share. */
static void cut_line(char *page, const char *beginning)
{
    char *line = strstr(page, beginning), *behind = NULL;

    assert_non_null(line);
    behind = strchr(line, '\n') + 1;
    memmove(line, behind, strlen(behind) + 1);
}

/* --- tests -------------------------------------------------------------------------- */

/* A loss that falls, a gradient that dies at step 20, a weight that turns NaN at step
 * 30. */
static void record_small(const char *run)
{
    sonde_watch *watch = record(run, "small");
    const uint32_t loss = declare(watch, "loss", SONDE_ROLE_LOSS, 1);
    const uint32_t weight = declare(watch, "fc.weight", SONDE_ROLE_WEIGHT, 8);
    const uint32_t gradient =
        declare(watch, "Gradient___fc.weight", SONDE_ROLE_GRADIENT, 8);

    for (int step = 0; step < 40; step++) {
        must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        put(watch, gradient, 8, step < 20 ? 0.5F / (float)(step + 1) : 0.0F);
        put(watch, weight, 8, step < 30 ? 1.0F + (float)step : NAN);
        put(watch, loss, 1, 4.0F / (float)(step + 1));
        sonde_watch_end_step(watch);
    }
    end(watch);
}

/* tests/golden/report/small.html; what is written to small.html.new when they differ is
 * to be looked at, and to be copied there if it is right. */
static void a_small_run_to_the_byte(void **state)
{
    char *page = NULL, *again = NULL, *golden = NULL;
    char path[4096];

    (void)state;
    record_small("run");
    page = page_of("run", NULL);
    again = page_of("run", NULL);
    assert_string_equal(page, again);
    cut_line(page, "<div><dt>Started</dt>");
    cut_line(page, "<div><dt>Duration</dt>");
    (void)snprintf(path, sizeof path, "%s/golden/report/small.html", SONDE_TEST_DIR);
    if (access(path, F_OK) == 0) {
        golden = read_page(path);
    }
    if (golden == NULL || strcmp(page, golden) != 0) {
        char other[4200];
        FILE *file = NULL;

        (void)snprintf(other, sizeof other, "%s/small.html.new", home);
        file = fopen(other, "wb");
        assert_non_null(file);
        assert_int_equal(fputs(page, file) >= 0, 1);
        (void)fclose(file);
        fail_msg("the page is not %s but %s", path, other);
    }
    free(golden);
    free(page);
    free(again);
}

static void names_are_text(void **state)
{
    sonde_watch *watch = record("run", "<b>model</b> & \"co\"");
    const uint32_t evil =
        declare(watch, "<script>alert('x')</script>&", SONDE_ROLE_WEIGHT, 8);
    const uint32_t bytes = declare(
        watch, "no UTF-8: \xff\xc0\xaf\xed\xa0\x80\x01 \xc3\xa9", SONDE_ROLE_WEIGHT, 8);
    char *page = NULL;

    (void)state;
    for (int step = 0; step < 3; step++) {
        must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        put(watch, evil, 8, INFINITY);
        put(watch, bytes, 8, NAN);
        sonde_watch_end_step(watch);
    }
    end(watch);
    page = page_of("run", "ExplodingTensor");
    expect_no_text(page, "<script");
    expect_no_text(page, "<b>model");
    expect_text(page, "<title>&lt;b&gt;model&lt;/b&gt; &amp; &quot;co&quot; ");
    expect_text(page,
                "<code>&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;</code>");
    for (const char *p = page; *p != '\0'; p++) {
        assert_true((unsigned char)*p >= 0x20 || *p == '\n');
        assert_true((unsigned char)*p != 0xff && (unsigned char)*p != 0xc0);
    }
    free(page);
}

static void silence_is_told_from_health(void **state)
{
    sonde_watch *watch = record("run", NULL);
    const uint32_t loss = declare(watch, "loss", SONDE_ROLE_LOSS, 1);
    char *page = NULL;

    (void)state;
    for (int step = 0; step < 30; step++) {
        must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        put(watch, loss, 1, 2.0F - 0.01F * (float)step);
        sonde_watch_end_step(watch);
    }
    end(watch);
    page = page_of("run", NULL);
    expect_text(page, "<h2>Nothing found</h2>");
    expect_text(page, "<title>run ");
    expect_text(page, "Not judged: the run lacks the data they need");
    expect_no_text(page, "What was found");
    free(page);
    page = page_of("run", "DeadRelu");
    expect_text(page, "<h2>Not judged</h2>");
    free(page);
}

static void a_thousand_findings_are_counted_and_few_are_told(void **state)
{
    enum { TENSORS = 1000 };
    sonde_watch *watch = record("run", NULL);
    char *page = NULL, name[32];

    (void)state;
    for (int i = 0; i < TENSORS; i++) {
        (void)snprintf(name, sizeof name, "w%d.weight", i);
        (void)declare(watch, name, SONDE_ROLE_WEIGHT, 8);
    }
    for (int step = 0; step < 2; step++) {
        must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        for (uint32_t id = 0; id < TENSORS; id++) {
            put(watch, id, 8, NAN);
        }
        sonde_watch_end_step(watch);
    }
    end(watch);
    page = page_of("run", "ExplodingTensor");
    expect_text(page, "<h2>Wrong</h2>");
    expect_text(page, "and 992 more, up to step 1");
    assert_int_equal(count_text(page, "<article"), 1);
    expect_text(page, "and 800 more without findings");
    assert_true(strlen(page) < 200000);
    free(page);
}

/* One step of 100,000 is high: the curve shows it, and is no longer than another. */
static void long_runs_keep_their_peaks(void **state)
{
    enum { STEPS = 100000, PEAK = 61803 };
    sonde_watch *watch = record("run", NULL);
    const uint32_t loss = declare(watch, "loss", SONDE_ROLE_LOSS, 1);
    const sonde__report_quantity quantity = sonde__report_quantity_usual(SONDE_ROLE_LOSS);
    sonde__report_track track;
    judged outcome = {0};
    char *page = NULL;
    int columns = 0;

    (void)state;
    for (int step = 0; step < STEPS; step++) {
        must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        put(watch, loss, 1, step == PEAK ? 1000.0F : 1.0F + (float)(step % 7));
        sonde_watch_end_step(watch);
    }
    end(watch);
    outcome = judge("run", "ExplodingTensor");
    must(sonde__report_track_read(outcome.trial, 0, SONDE_MODE_GLOBAL, &quantity, 0,
                                  STEPS - 1, SONDE__COLUMNS, &track, &diag));
    assert_int_equal(track.steps, STEPS);
    assert_true(track.high == 1000.0 && track.low == 1.0 && track.least == 1.0);
    for (int i = 0; i < track.count; i++) {
        assert_true(track.column[i].any && track.column[i].low == 1.0);
        columns += track.column[i].high > 7.0;
    }
    assert_int_equal(columns, 1);
    must(sonde_report_write("page.html", outcome.trial, outcome.rules, &diag));
    forget(outcome);
    page = read_page("page.html");
    assert_true(strlen(page) < 60000);
    free(page);
}

static void live_and_empty_runs_have_pages(void **state)
{
    sonde_watch *watch = record("run", NULL);
    const uint32_t loss = declare(watch, "loss", SONDE_ROLE_LOSS, 1);
    char *page = NULL;

    (void)state;
    must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
    put(watch, loss, 1, 1.0F);
    sonde_watch_end_step(watch);
    for (int tries = 0; tries < 500; tries++) { /* until the writer has written it */
        sonde_trial *trial = NULL;
        sonde_run_info info = {.last_step = -1};

        if (sonde_trial_open("run", NULL, &trial, NULL) == SONDE_OK) {
            sonde_trial_describe(trial, &info);
            sonde_trial_close(trial);
        }
        if (info.last_step >= 0) {
            break;
        }
        (void)usleep(10000);
    }
    page = page_of("run", NULL);
    expect_text(page, "still being recorded");
    expect_text(page, "<h2>The loss</h2>");
    free(page);
    end(watch);

    watch = record("empty", NULL);
    (void)declare(watch, "loss", SONDE_ROLE_LOSS, 1);
    must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
    end(watch);
    page = page_of("empty", NULL);
    expect_text(page, "<h2>Not judged</h2>");
    free(page);
}

static void a_page_that_cannot_be_written_is_an_error(void **state)
{
    judged outcome = {0};
    char *page = NULL, *old = NULL;

    (void)state;
    record_small("run");
    outcome = judge("run", NULL);
    assert_int_equal(
        sonde_report_write("nowhere/page.html", outcome.trial, outcome.rules, &diag),
        SONDE_ENOTFOUND);
    assert_non_null(strstr(diag.where, "nowhere/page.html"));
    assert_int_equal(sonde_report_write("run", outcome.trial, outcome.rules, &diag),
                     SONDE_EIO);
    /* an old page stays until the new one is complete */
    must(sonde_report_write("page.html", outcome.trial, outcome.rules, &diag));
    old = read_page("page.html");
    alloc_failure_begin(3);
    assert_int_equal(sonde_report_write("page.html", outcome.trial, outcome.rules, NULL),
                     SONDE_ENOMEM);
    assert_int_equal(alloc_failure_end(), 0);
    page = read_page("page.html");
    assert_string_equal(page, old);
    free(page);
    free(old);
    forget(outcome);
}

static void without_memory_nothing_is_left_behind(void **state)
{
    judged outcome = {0};
    sonde_err err = SONDE_ENOMEM;

    (void)state;
    record_small("run");
    outcome = judge("run", NULL);
    must(sonde_report_write("page.html", outcome.trial, outcome.rules,
                            &diag)); /* warms caches */
    assert_int_equal(remove("page.html"), 0);
    for (size_t n = 0; err != SONDE_OK; n++) {
        alloc_failure_begin(n);
        err = sonde_report_write("page.html", outcome.trial, outcome.rules, NULL);
        assert_int_equal(alloc_failure_end(), 0);
        if (err != SONDE_OK) {
            assert_int_equal(err, SONDE_ENOMEM);
            assert_int_not_equal(access("page.html", F_OK), 0);
        }
    }
    assert_int_equal(access("page.html", F_OK), 0);
    forget(outcome);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_small_run_to_the_byte),
        TEST(names_are_text),
        TEST(silence_is_told_from_health),
        TEST(a_thousand_findings_are_counted_and_few_are_told),
        TEST(long_runs_keep_their_peaks),
        TEST(live_and_empty_runs_have_pages),
        TEST(a_page_that_cannot_be_written_is_an_error),
        TEST(without_memory_nothing_is_left_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
