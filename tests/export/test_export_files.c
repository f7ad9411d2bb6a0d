/*
 * test_export_files.c - files that appear whole or not at all.
 */
#include "export_folder.h"

#include "export/export.h"

#include <signal.h>
#include <sys/resource.h>

static void put(sonde__whole_file *file, const char *text)
{
    (void)sonde__whole_write(file, text, strlen(text));
}

static void a_file_appears_when_it_is_closed(void **state)
{
    sonde__whole_file file;
    const char *path = in_folder("whole");
    size_t size = 0;
    unsigned char *bytes = NULL;
    char big[300000];

    (void)state;
    memset(big, 'x', sizeof big);
    assert_int_equal(sonde__export_open(&file, path, NULL), SONDE_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(count_files(false), 1); /* the one beside it */
    put(&file, "headabc");
    (void)sonde__whole_write(&file, big, sizeof big);
    put(&file, "end");
    assert_int_equal(file.written, 10 + sizeof big);
    assert_int_equal(sonde__export_close(&file, NULL), SONDE_OK);
    assert_int_equal(count_files(false), 1);
    bytes = slurp(path, &size);
    assert_int_equal(size, 10 + sizeof big);
    assert_memory_equal(bytes, "headabc", 7);
    assert_memory_equal(bytes + 7, big, sizeof big);
    assert_memory_equal(bytes + size - 3, "end", 3);
    free(bytes);
    assert_int_equal(count_files(true), 1);
}

static void a_file_that_is_given_up_leaves_nothing(void **state)
{
    sonde__whole_file file;

    (void)state;
    assert_int_equal(sonde__export_open(&file, in_folder("gone"), NULL), SONDE_OK);
    put(&file, "something");
    sonde__whole_close(&file);
    assert_int_equal(count_files(false), 0);
    sonde__whole_close(&file); /* again is fine */
}

static void nothing_is_ever_replaced(void **state)
{
    sonde__whole_file file;
    sonde_diag diag = {0};
    char path[512];
    size_t size = 0;
    unsigned char *bytes = NULL;
    FILE *other = NULL;

    (void)state;
    (void)snprintf(path, sizeof path, "%s", in_folder("there"));
    assert_int_equal(symlink("nowhere", path), 0); /* even a link that leads nowhere */
    assert_int_equal(sonde__export_open(&file, path, &diag), SONDE_EEXIST);
    assert_string_equal(diag.where, path);
    assert_int_equal(unlink(path), 0);

    /* what came while we wrote stays as well */
    assert_int_equal(sonde__export_open(&file, path, NULL), SONDE_OK);
    put(&file, "ours");
    other = fopen(path, "w");
    assert_non_null(other);
    assert_true(fputs("theirs", other) >= 0 && fclose(other) == 0);
    assert_int_equal(sonde__export_close(&file, &diag), SONDE_EEXIST);
    bytes = slurp(path, &size);
    assert_int_equal(size, 6);
    assert_memory_equal(bytes, "theirs", 6);
    free(bytes);
    assert_int_equal(count_files(true), 1);
}

static void a_place_that_cannot_be_is_an_error(void **state)
{
    sonde__whole_file file;
    sonde_diag diag = {0};
    FILE *plain = fopen(in_folder("plain"), "w");

    (void)state;
    assert_non_null(plain);
    (void)fclose(plain);
    assert_int_equal(sonde__export_open(&file, in_folder("no/such"), &diag),
                     SONDE_ENOTFOUND);
    assert_non_null(strstr(diag.where, "no/such"));
    assert_int_equal(sonde__export_open(&file, in_folder("plain/x"), &diag), SONDE_EIO);
    assert_int_equal(sonde__export_open(&file, "", &diag), SONDE_EINVAL);
    assert_int_equal(count_files(true), 1);
}

/* A disk that is full, played by a limit on the size of files. */
static void a_full_disk_is_told_and_leaves_nothing(void **state)
{
    struct rlimit before, small = {0};
    sonde__whole_file file;
    sonde_diag diag = {0};
    char block[4096] = {0};
    sonde_err err = SONDE_OK;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100000;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    err = sonde__export_open(&file, in_folder("full"), NULL);
    for (int i = 0; i < 200 && err == SONDE_OK; i++) {
        (void)sonde__whole_write(&file, block, sizeof block);
    }
    if (err == SONDE_OK) {
        assert_int_equal(sonde__whole_status(&file, NULL), SONDE_EIO);
        err = sonde__export_close(&file, &diag);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(err, SONDE_EIO);
    assert_non_null(strstr(diag.where, "full"));
    assert_int_equal(count_files(false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_appears_when_it_is_closed),
        cmocka_unit_test(a_file_that_is_given_up_leaves_nothing),
        cmocka_unit_test(nothing_is_ever_replaced),
        cmocka_unit_test(a_place_that_cannot_be_is_an_error),
        cmocka_unit_test(a_full_disk_is_told_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
