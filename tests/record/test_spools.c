/*
 * test_spools.c - what writers left on this machine of runs at addresses of a store.
 */
#include "cmocka_all.h"

#include <sonde/recorder.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct tally {
    size_t count;
    uint64_t files[2];
} tally;

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[512];
    FILE *stream = NULL;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    stream = fopen(path, "we");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static void make_folder(const char *folder, const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

static void see(void *user, const sonde_spool *spool)
{
    tally *seen = user;

    assert_string_equal(spool->path, "s3://bucket/run");
    assert_string_equal(spool->endpoint, "http://127.0.0.1:9");
    assert_in_range(spool->rank, 0, 1);
    assert_false(spool->in_use);
    seen->files[spool->rank] = spool->files;
    seen->count++;
}

static void spools_are_listed_by_worker(void **state)
{
    char root[] = "/tmp/sonde-spools.XXXXXX", command[64];
    tally seen = {0};
    uint64_t records = 0;
    sonde_diag diag = {0};

    (void)state;
    assert_non_null(mkdtemp(root));
    (void)setenv("SONDE_SPOOL", root, 1);
    make_folder(root, "a");
    make_folder(root, "a/run");
    make_folder(root, "a/run/w0000");
    make_folder(root, "a/run/w0001");
    make_folder(root, "a/run/findings");
    make_folder(root, "b");
    write_file(root, "a/address", "s3://bucket/run\nhttp://127.0.0.1:9\n");
    write_file(root, "a/run/w0000/seg-00000000.jsonl", "{}\n");
    write_file(root, "a/run/w0000/lock", "");
    assert_int_equal(sonde_recorder_spools(see, &seen, &diag), SONDE_OK);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.files[0], 1);
    assert_int_equal(seen.files[1], 0);
    assert_int_equal(sonde_recorder_recover("s3://bucket/other", 0, &records, &diag),
                     SONDE_ENOTFOUND);
    (void)snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
    seen.count = 0;
    assert_int_equal(sonde_recorder_spools(see, &seen, &diag), SONDE_OK);
    assert_int_equal(seen.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spools_are_listed_by_worker)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
