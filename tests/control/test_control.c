/*
 * test_control.c - requests from this process and from another, over a run's folder.
 * tsan: yes
 */
#include "cmocka_all.h"

#include "alloc_failure.h"
#include "base/macros.h"
#include "control/control.h"

#include <stdbool.h>
#include <stddef.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sonde/error.h>

static char folder[64], file[96];

static void write_file(const char *name, const char *text, const char *how)
{
    char path[96];
    FILE *to = NULL;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    to = fopen(path, how);
    assert_non_null(to);
    assert_true(fputs(text, to) >= 0);
    assert_int_equal(fclose(to), 0);
}

static int make_run(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sonde_control_XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(file, sizeof file, "%s/control.jsonl", folder);
    write_file("run.json", "{}", "w");
    return 0;
}

static int remove_run(void **state)
{
    static const char *const names[] = {"run.json", "end.json", "control.jsonl"};
    char path[96];

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

/* As soon as the file is looked at again. */
static bool take_soon(sonde_control *control, sonde_request *request)
{
    for (int i = 0; i < 200; i++) {
        if (sonde_control_take(control, request)) {
            return true;
        }
        (void)usleep(2000);
    }
    return false;
}

static void the_first_of_a_kind_stays_and_checkpoints_come_first(void **state)
{
    sonde_control *control = NULL;
    sonde_request request;

    (void)state;
    assert_int_equal(sonde_control_create(NULL, &control, NULL), SONDE_OK);
    assert_false(sonde_control_take(control, &request));
    sonde_control_ask(control, SONDE_REQUEST_STOP, SONDE_BY_RULE, "first\nline");
    sonde_control_ask(control, SONDE_REQUEST_STOP, SONDE_BY_USER, "second");
    sonde_control_ask(control, SONDE_REQUEST_CHECKPOINT, SONDE_BY_USER, NULL);
    assert_true(sonde_control_take(control, &request));
    assert_string_equal(sonde_request_kind_name(request.kind), "checkpoint");
    assert_string_equal(request.text, "");
    assert_true(sonde_control_take(control, &request));
    assert_int_equal(request.kind, SONDE_REQUEST_STOP);
    assert_int_equal(request.by, SONDE_BY_RULE);
    assert_string_equal(request.text, "first line");
    assert_false(sonde_control_take(control, &request));
    sonde_control_ask(control, SONDE_REQUEST_STOP, SONDE_BY_USER, "later");
    assert_false(sonde_control_take(control, NULL)); /* takes nothing */
    assert_true(sonde_control_take(control, &request));
    assert_string_equal(request.text, "later");
    sonde_control_destroy(control);
}

static void another_process_asks_over_the_folder(void **state)
{
    sonde_control *control = NULL;
    sonde_request request;
    char text[2000];

    (void)state;
    assert_int_equal(
        sonde_control_send(folder, SONDE_REQUEST_STOP, SONDE_BY_USER, "old", NULL),
        SONDE_OK);
    assert_int_equal(sonde_control_create(folder, &control, NULL), SONDE_OK);
    assert_false(take_soon(control, &request)); /* of those who asked before */
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(
        sonde_control_send(folder, SONDE_REQUEST_STOP, SONDE_BY_RULE, text, NULL),
        SONDE_OK);
    assert_true(take_soon(control, &request));
    assert_int_equal(request.kind, SONDE_REQUEST_STOP);
    assert_int_equal(request.by, SONDE_BY_RULE);
    assert_int_equal(strlen(request.text), SONDE_REQUEST_TEXT - 1);
    assert_false(take_soon(control, &request));
    sonde_control_destroy(control);
}

static void what_is_no_request_is_passed_over(void **state)
{
    sonde_control *control = NULL;
    sonde_request request;
    char line[SONDE__CONTROL_LINE + 100];

    (void)state;
    assert_int_equal(sonde_control_create(folder, &control, NULL), SONDE_OK);
    memset(line, 'y', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    write_file("control.jsonl", line, "w"); /* longer than any */
    write_file("control.jsonl", "\nno json\n{\"request\":\"dance\"}\n[]\n\n", "a");
    write_file("control.jsonl", "{\"request\":\"checkpoint\",\"more\":[1]}\n", "a");
    write_file("control.jsonl", "{\"request\":\"stop\",\"te", "a"); /* torn */
    assert_true(take_soon(control, &request));
    assert_int_equal(request.kind, SONDE_REQUEST_CHECKPOINT);
    assert_int_equal(request.by, SONDE_BY_USER);
    assert_false(take_soon(control, &request));
    write_file("control.jsonl", "xt\":\"whole\\u0007\"}\n", "a");
    assert_true(take_soon(control, &request));
    assert_int_equal(request.kind, SONDE_REQUEST_STOP);
    assert_string_equal(request.text, "whole ");
    sonde_control_destroy(control);
}

static void a_damaged_request_is_passed_over(void **state)
{
    sonde_control *control = NULL;
    sonde_request request;
    char line[400] = "", *text = NULL;
    FILE *written = NULL;

    (void)state;
    assert_int_equal(
        sonde_control_send(folder, SONDE_REQUEST_STOP, SONDE_BY_USER, "for good", NULL),
        SONDE_OK);
    written = fopen(file, "r");
    assert_non_null(written);
    assert_non_null(fgets(line, sizeof line, written));
    (void)fclose(written);
    assert_int_equal(sonde_control_create(folder, &control, NULL), SONDE_OK);
    text = strstr(line, "good");
    assert_non_null(text);
    text[0] = 'f';
    write_file("control.jsonl", line, "a");
    assert_false(take_soon(control, &request));
    text[0] = 'g';
    write_file("control.jsonl", line, "a");
    assert_true(take_soon(control, &request));
    assert_string_equal(request.text, "for good");
    sonde_control_destroy(control);
}

static void who_is_not_there_cannot_be_asked(void **state)
{
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(
        sonde_control_send("/nowhere", SONDE_REQUEST_STOP, SONDE_BY_USER, "", &diag),
        SONDE_ENOTFOUND);
    assert_string_equal(diag.where, "/nowhere");
    assert_int_equal(
        sonde_control_send(folder, (sonde_request_kind)2, SONDE_BY_USER, "", &diag),
        SONDE_EINVAL);
    write_file("end.json", "{}", "w");
    assert_int_equal(
        sonde_control_send(folder, SONDE_REQUEST_STOP, SONDE_BY_USER, "", &diag),
        SONDE_ESTATE);
    assert_string_equal(diag.found, "the run has ended");
    assert_int_not_equal(access(file, F_OK), 0);
}

static void a_folder_may_come_later(void **state)
{
    sonde_control *control = NULL;
    sonde_request request;

    assert_int_equal(remove_run(state), 0);
    assert_int_equal(sonde_control_create(folder, &control, NULL), SONDE_OK);
    assert_false(sonde_control_take(control, &request));
    assert_int_equal(mkdir(folder, 0700), 0);
    write_file("run.json", "{}", "w");
    assert_int_equal(
        sonde_control_send(folder, SONDE_REQUEST_STOP, SONDE_BY_USER, "soon", NULL),
        SONDE_OK);
    assert_true(take_soon(control, &request));
    assert_string_equal(request.text, "soon");
    sonde_control_destroy(control);
}

static void *ask_often(void *control)
{
    for (int i = 0; i < 1000; i++) {
        sonde_control_ask(control, SONDE_REQUEST_CHECKPOINT, SONDE_BY_RULE, "a text");
    }
    sonde_control_ask(control, SONDE_REQUEST_STOP, SONDE_BY_RULE, "the end");
    return NULL;
}

static void any_thread_may_ask(void **state)
{
    sonde_control *control = NULL;
    sonde_request request = {.kind = SONDE_REQUEST_CHECKPOINT};
    pthread_t thread;

    (void)state;
    assert_int_equal(sonde_control_create(NULL, &control, NULL), SONDE_OK);
    assert_int_equal(pthread_create(&thread, NULL, ask_often, control), 0);
    while (request.kind != SONDE_REQUEST_STOP) {
        if (sonde_control_take(control, &request)) {
            assert_string_equal(
                request.text, request.kind == SONDE_REQUEST_STOP ? "the end" : "a text");
        }
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    sonde_control_destroy(control);
}

static void memory_may_run_out(void **state)
{
    sonde_err err = SONDE_ENOMEM;

    (void)state;
    for (size_t n = 0; err != SONDE_OK; n++) {
        sonde_control *control = NULL;

        alloc_failure_begin(n);
        err = sonde_control_create(folder, &control, NULL);
        sonde_control_destroy(control);
        control = NULL;
        assert_int_equal(alloc_failure_end(), 0);
        assert_true(err == SONDE_OK || err == SONDE_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_a_kind_stays_and_checkpoints_come_first),
        cmocka_unit_test_setup_teardown(another_process_asks_over_the_folder, make_run,
                                        remove_run),
        cmocka_unit_test_setup_teardown(what_is_no_request_is_passed_over, make_run,
                                        remove_run),
        cmocka_unit_test_setup_teardown(a_damaged_request_is_passed_over, make_run,
                                        remove_run),
        cmocka_unit_test_setup_teardown(who_is_not_there_cannot_be_asked, make_run,
                                        remove_run),
        cmocka_unit_test_setup_teardown(a_folder_may_come_later, make_run, remove_run),
        cmocka_unit_test(any_thread_may_ask),
        cmocka_unit_test(memory_may_run_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
