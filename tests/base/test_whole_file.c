/*
 * test_whole_file.c - files that appear whole or not at all: what was there stays until
 * the new one is, links are followed, and what is no file keeps its name.
 */
#include "cmocka_all.h"
#include "base/memory.h"

#include "base/whole_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[2][128];
    static int next;

    next = 1 - next;
    (void)snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static void check_text(const char *path, const char *expected)
{
    char text[64] = "";
    FILE *file = fopen(path, "rb");

    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    assert_string_equal(text, expected);
}

static int count_entries(void)
{
    DIR *dir = opendir(folder);
    int count = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count - 2; /* . and .. */
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sonde_whole_XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void put(const char *path, const char *text)
{
    sonde_diag diag = {0};

    assert_int_equal(sonde__whole_put(path, text, strlen(text), &diag), SONDE_OK);
}

/* --- tests ------------------------------------------------------------------------ */

static void the_new_one_takes_the_place_of_the_old(void **state)
{
    sonde__whole_file file;
    sonde_diag diag = {0};

    (void)state;
    put(in_folder("a"), "old");
    assert_int_equal(sonde__whole_open(&file, in_folder("a"), &diag), SONDE_OK);
    assert_true(sonde__whole_write(&file, "new", 3));
    check_text(in_folder("a"), "old"); /* until it is committed */
    assert_int_equal(sonde__whole_commit(&file, SONDE__REPLACE, &diag), SONDE_OK);
    sonde__whole_close(&file);
    check_text(in_folder("a"), "new");
    assert_int_equal(count_entries(), 1);
}

static void without_commit_nothing_stays(void **state)
{
    sonde__whole_file file, none = {0};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde__whole_open(&file, in_folder("a"), &diag), SONDE_OK);
    assert_true(sonde__whole_write(&file, "new", 3));
    assert_int_equal(count_entries(), 1);
    sonde__whole_close(&file);
    sonde__whole_close(&none);
    assert_int_equal(count_entries(), 0);
}

static void what_is_to_be_kept_is_kept(void **state)
{
    sonde__whole_file file;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde__whole_open(&file, in_folder("a"), &diag), SONDE_OK);
    assert_true(sonde__whole_write(&file, "new", 3));
    put(in_folder("a"), "old"); /* somebody else, meanwhile */
    assert_int_equal(sonde__whole_commit(&file, SONDE__KEEP, &diag), SONDE_EEXIST);
    sonde__whole_close(&file);
    check_text(in_folder("a"), "old");
    assert_int_equal(count_entries(), 1);
}

static void links_are_followed(void **state)
{
    struct stat about;

    (void)state;
    put(in_folder("file"), "old");
    assert_int_equal(symlink("file", in_folder("link")), 0);
    put(in_folder("link"), "new");
    check_text(in_folder("file"), "new");
    assert_int_equal(lstat(in_folder("link"), &about), 0);
    assert_true(S_ISLNK(about.st_mode));
}

static void *read_pipe(void *path)
{
    check_text(path, "through");
    return NULL;
}

static void pipes_and_devices_keep_their_names(void **state)
{
    char pipe[128];
    pthread_t reader;
    struct stat about;
    sonde_diag diag = {0};

    (void)state;
    (void)snprintf(pipe, sizeof pipe, "%s", in_folder("pipe"));
    assert_int_equal(mkfifo(pipe, 0666), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_pipe, pipe), 0);
    put(pipe, "through");
    assert_int_equal(pthread_join(reader, NULL), 0);
    assert_int_equal(stat(pipe, &about), 0);
    assert_true(S_ISFIFO(about.st_mode));
    put("/dev/null", "gone");
    assert_int_equal(sonde__whole_put("/dev/full", "x", 1, &diag), SONDE_EIO);
    assert_non_null(strstr(diag.found, "No space left"));
    assert_int_equal(stat("/dev/full", &about), 0);
    assert_true(S_ISCHR(about.st_mode));
}

static void failures_leave_what_was_there(void **state)
{
    const struct rlimit small = {4, RLIM_INFINITY};
    struct rlimit before;
    sonde_diag diag = {0};

    (void)state;
    put(in_folder("a"), "old");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(sonde__whole_put(in_folder("a"), "longer", 6, &diag), SONDE_EIO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    check_text(in_folder("a"), "old");
    assert_int_equal(count_entries(), 1);
    assert_int_equal(sonde__whole_put(in_folder("no/a"), "x", 1, &diag), SONDE_ENOTFOUND);
    assert_int_equal(mkdir(in_folder("b"), 0777), 0);
    assert_int_equal(sonde__whole_put(in_folder("b"), "x", 1, &diag), SONDE_EIO);
    assert_int_equal(count_entries(), 2);
}

static void folders_are_published_whole(void **state)
{
    char *made = NULL;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde__folder_beside(in_folder("out/"), &made, &diag), SONDE_OK);
    assert_int_equal(sonde__publish(made, in_folder("out"), SONDE__KEEP, &diag),
                     SONDE_OK);
    sonde__free(made);
    assert_int_equal(access(in_folder("out"), X_OK), 0);
    assert_int_equal(count_entries(), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(the_new_one_takes_the_place_of_the_old),
        TEST(without_commit_nothing_stays),
        TEST(what_is_to_be_kept_is_kept),
        TEST(links_are_followed),
        TEST(pipes_and_devices_keep_their_names),
        TEST(failures_leave_what_was_there),
        TEST(folders_are_published_whole),
    };

    (void)signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
