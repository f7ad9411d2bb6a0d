/*
 * test_json_memory.c - memory that runs out within the reader of JSON: opening and
 * verifying a run report it, and show neither damage nor other texts than those of the
 * files.
 */
#include "trial/run_folder.h"

#include <sonde/error.h>
#include <sonde/trial.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static long left; /* requests that still succeed; one fails */
static bool failed;

static void *allocate(size_t size)
{
    if (left-- == 0) {
        failed = true;
        return NULL;
    }
    return malloc(size);
}

enum { SHIFTS = 6 };
#define LETTERS "\\u00e9\\u00e9\\u00e9\\u00e9"

static void write_run(void)
{
    writer w;

    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_state(&w, "running", getpid(), "another machine", 0, 0);
    known_declare(&w);
    /* The buffer of jansson's lexer grows at its 16th, 32nd ... byte, which is lost if it
     * cannot: each byte of an escape once. */
    for (int i = 0; i < SHIFTS; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "%.*s%s", i, "shifts", LETTERS LETTERS);
        (void)writer_tensor(&w, name, "bias", SONDE_F32, 0, NULL, "biases");
    }
    known_step(&w, writer_at(SONDE_MODE_TRAIN, 0, 0));
    writer_drop(&w);
}

/* With the n-th request failing. False: there were not as many. */
static bool open_and_verify(long n, const char *id)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;
    sonde_diag diag = {0};
    sonde_verify_report report = {0};
    sonde_err err = SONDE_OK;

    left = n;
    failed = false;
    err = sonde_trial_open(test_run, NULL, &trial, &diag);
    if (err == SONDE_OK) {
        sonde_trial_describe(trial, &info);
        assert_string_equal(info.id, id);
        assert_int_equal(sonde_catalogue_count(sonde_trial_catalogue(trial)),
                         KNOWN_TENSORS + SHIFTS);
        assert_int_equal(count_damage(trial), 0);
    }
    sonde_trial_close(trial);
    if (err == SONDE_OK) {
        err = sonde_trial_verify(test_run, &report, NULL, NULL, &diag);
        assert_true(err != SONDE_OK || report.damaged == 0);
    }
    assert_int_equal(err, failed ? SONDE_ENOMEM : SONDE_OK);
    return failed;
}

static void a_request_that_fails_is_reported(void **state)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;
    char id[64];

    (void)state;
    write_run();
    left = -1;
    trial = trial_opened(test_run);
    sonde_trial_describe(trial, &info);
    (void)snprintf(id, sizeof id, "%s", info.id);
    sonde_trial_close(trial);
    for (long n = 0; open_and_verify(n, id); n++) {
        assert_true(n < 100000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_that_fails_is_reported, folder_make,
                                        folder_remove),
    };

    json_set_alloc_funcs(allocate, free); /* before any JSON is read */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
