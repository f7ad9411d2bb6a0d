/*
 * test_plan_cache.c - the cache of plans: by what they are, shared, bounded, and repaired
 * where it is damaged.
 */
#include "engine.h"

#include <sonde/log.h>
#include <sonde/nn/plan.h>

#include "nn/run/session_state.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], cache[96];

static void empty_cache(void)
{
    DIR *dir = opendir(cache);
    const struct dirent *entry = NULL;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir != NULL) {
        assert_int_equal(closedir(dir), 0);
    }
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sonde-plans-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(cache, sizeof cache, "%s/cache", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    empty_cache();
    (void)rmdir(cache);
    return rmdir(folder);
}

/* Files of the cache; the name of one of them. */
static size_t cached(char *name, size_t size)
{
    DIR *dir = opendir(cache);
    const struct dirent *entry = NULL;
    size_t count = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(name, size, "%s/%s", cache, entry->d_name);
            count++;
        }
    }
    if (dir != NULL) {
        assert_int_equal(closedir(dir), 0);
    }
    return count;
}

/* Compiles and runs a step; whether the places came from the cache. */
static bool compile_cached(engine_builder build, int64_t batch, const char *where)
{
    engine_net net;
    sonde_nn_session *session = NULL;
    sonde_nn_options options;
    bool known = false;

    build(&net, batch);
    sonde_nn_options_init(&options);
    options.threads = 1;
    options.plan_cache = where;
    must(sonde_nn_session_create(net.model, &options, &engine_sgd, &session,
                                 &engine_diag));
    engine_train(&net, session, 1);
    known = session->plan.known;
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    return known;
}

static int warnings;
static char warned[512];

static void count_warnings(void *user, sonde_log_level level, const char *room,
                           const char *text)
{
    (void)user;
    (void)room;
    if (level == SONDE_LOG_WARNING) {
        warnings++;
        (void)snprintf(warned, sizeof warned, "%s", text);
    }
}

static void plans_are_cached_by_what_they_are(void **state)
{
    char name[512];

    (void)state;
    empty_cache();
    assert_false(compile_cached(engine_cnn, 4, cache));
    assert_true(compile_cached(engine_cnn, 4, cache));
    assert_int_equal(cached(name, sizeof name), 1);
    assert_false(compile_cached(engine_cnn, 5, cache));
    assert_false(compile_cached(engine_mlp, 4, cache));
    assert_true(compile_cached(engine_cnn, 5, cache));
    assert_true(compile_cached(engine_mlp, 4, cache));
    assert_int_equal(cached(name, sizeof name), 3);
    assert_false(compile_cached(engine_cnn, 4, NULL));
    assert_false(compile_cached(engine_cnn, 4, ""));
}

/* Only where it is asked for. */
static void the_users_cache_is_found(void **state)
{
    char name[512];

    (void)state;
    empty_cache();
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    (void)snprintf(cache, sizeof cache, "%s/sonde/plans", folder);
    assert_false(compile_cached(engine_mlp, 4, NULL));
    assert_int_equal(cached(name, sizeof name), 0);
    assert_false(compile_cached(engine_mlp, 4, "default"));
    assert_int_equal(cached(name, sizeof name), 1);
    empty_cache();
    assert_int_equal(rmdir(cache), 0);
    (void)snprintf(cache, sizeof cache, "%s/sonde", folder);
    assert_int_equal(rmdir(cache), 0);
    (void)snprintf(cache, sizeof cache, "%s/cache", folder);
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(setenv("SONDE_PLAN_CACHE", cache, 1), 0);
    assert_false(compile_cached(engine_mlp, 4, NULL));
    assert_true(compile_cached(engine_mlp, 4, NULL));
    assert_int_equal(unsetenv("SONDE_PLAN_CACHE"), 0);
}

/* What a file holds, or puts that there. */
static size_t exchange(const char *path, unsigned char *bytes, size_t size, bool put)
{
    FILE *stream = fopen(path, put ? "wbe" : "rbe");
    size_t done = 0;

    assert_non_null(stream);
    done = put ? fwrite(bytes, 1, size, stream) : fread(bytes, 1, size, stream);
    assert_int_equal(fclose(stream), 0);
    return done;
}

/* Cut off, damaged, empty, of another graph under this name: replaced, with a warning. */
static void damaged_entries_are_replaced(void **state)
{
    static const char *const found[] = {"is cut off", "checksum", "empty",
                                        "another graph"};
    static unsigned char bytes[1 << 16], other[1 << 16];
    char name[512];
    size_t size = 0, other_size = 0;

    (void)state;
    empty_cache();
    (void)compile_cached(engine_mlp, 4, cache);
    assert_int_equal(cached(name, sizeof name), 1);
    other_size = exchange(name, other, sizeof other, false);
    empty_cache();
    (void)compile_cached(engine_cnn, 4, cache);
    assert_int_equal(cached(name, sizeof name), 1);
    size = exchange(name, bytes, sizeof bytes, false);
    sonde_log_set_sink(count_warnings, NULL);
    for (int what = 0; what < 4; what++) {
        const size_t sizes[] = {size - 5, size, 0, other_size};

        bytes[size / 2] ^= what == 1;
        (void)exchange(name, what == 3 ? other : bytes, sizes[what], true);
        bytes[size / 2] ^= what == 1;
        warnings = 0;
        assert_false(compile_cached(engine_cnn, 4, cache));
        assert_int_equal(warnings, 1);
        assert_non_null(strstr(warned, found[what]));
        assert_true(compile_cached(engine_cnn, 4, cache));
        assert_int_equal(warnings, 1);
    }
    sonde_log_set_sink(NULL, NULL);
}

/* A folder that cannot be made: a warning, and the session runs. */
static void caches_that_fail_stop_nothing(void **state)
{
    (void)state;
    sonde_log_set_sink(count_warnings, NULL);
    warnings = 0;
    assert_false(compile_cached(engine_mlp, 4, "/dev/null/plans"));
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warned, "/dev/null/plans"));
    sonde_log_set_sink(NULL, NULL);
}

static void put_old(const char *name, int64_t size, int64_t second)
{
    const struct timespec used[2] = {{second, 0}, {second, 0}};
    char path[512];
    int file = -1;

    (void)snprintf(path, sizeof path, "%s/%s", cache, name);
    file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, size), 0);
    assert_int_equal(futimens(file, used), 0);
    assert_int_equal(close(file), 0);
}

static bool is_there(const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", cache, name);
    return access(path, F_OK) == 0;
}

/* 65 MiB of old plans: those that were not used for longest go; other files stay. */
static void the_cache_is_bounded(void **state)
{
    char name[64];

    (void)state;
    empty_cache();
    (void)mkdir(cache, 0777);
    for (int i = 0; i < 65; i++) {
        (void)snprintf(name, sizeof name, "%032x.plan", (unsigned)i);
        put_old(name, 1 << 20, 1000 + i);
    }
    put_old("mine.txt", 1 << 20, 1);
    assert_false(compile_cached(engine_mlp, 4, cache));
    assert_true(is_there("mine.txt"));
    assert_false(is_there("00000000000000000000000000000000.plan"));
    assert_false(is_there("00000000000000000000000000000001.plan"));
    assert_true(is_there("00000000000000000000000000000002.plan"));
    assert_true(compile_cached(engine_mlp, 4, cache));
    empty_cache();
}

/* Processes share a cache: none sees half a file. */
static void several_share_a_cache(void **state)
{
    static const engine_builder build[] = {engine_mlp, engine_branches};
    pid_t children[4];
    char name[512];

    (void)state;
    empty_cache();
    sonde_log_set_sink(count_warnings, NULL);
    warnings = 0;
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        for (int k = 0; children[i] == 0 && k < 6; k++) {
            (void)compile_cached(build[k % 2], 4, cache);
        }
        if (children[i] == 0) {
            _exit(warnings);
        }
    }
    for (int i = 0; i < 4; i++) {
        int code = -1;

        assert_int_equal(waitpid(children[i], &code, 0), children[i]);
        assert_int_equal(code, 0);
    }
    assert_int_equal(cached(name, sizeof name), 2);
    sonde_log_set_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_cached_by_what_they_are),
        cmocka_unit_test(the_users_cache_is_found),
        cmocka_unit_test(damaged_entries_are_replaced),
        cmocka_unit_test(caches_that_fail_stop_nothing),
        cmocka_unit_test(the_cache_is_bounded),
        cmocka_unit_test(several_share_a_cache),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
