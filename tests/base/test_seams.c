/*
 * test_seams.c - what a user can put in place of ours: the allocator, the log's stream,
 * the instruction set.
 */
#include "cmocka_all.h"

#include "base/cpu.h"
#include "base/memory.h"

#include <sonde/alloc.h>
#include <sonde/log.h>
#include <sonde/stats.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct counts {
    size_t taken, returned;
} counts;

static void *counted_alloc(void *user, size_t align, size_t size)
{
    assert_true(size > 0 && align > 0 && (align & (align - 1)) == 0);
    ((counts *)user)->taken++;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void counted_free(void *user, void *ptr)
{
    assert_non_null(ptr);
    ((counts *)user)->returned++;
    free(ptr);
}

static void every_block_comes_through_the_seam(void **state)
{
    counts seen = {0};
    const sonde_allocator ours = {counted_alloc, counted_free, &seen};
    char *text = NULL;
    void *block = NULL;

    (void)state;
    sonde_set_allocator(&ours);
    text = sonde__strdup("conv1.weight");
    block = sonde__malloc_aligned(SONDE__ALIGN, 5);
    assert_string_equal(text, "conv1.weight");
    assert_int_equal((uintptr_t)block % SONDE__ALIGN, 0);
    sonde__free(block);
    sonde__free(text);
    sonde__free(NULL);
    sonde__free(sonde__malloc(0));
    unsigned char *zeros = sonde_allocate_zeros(4096, 3);
    assert_int_equal((uintptr_t)zeros % 4096, 0);
    assert_true(zeros[0] == 0 && zeros[1] == 0 && zeros[2] == 0);
    sonde_release(zeros);
    sonde_release(sonde_allocate(16, 0));
    sonde_release(NULL);
    sonde_set_allocator(NULL);
    assert_int_equal(seen.taken, 5);
    assert_int_equal(seen.returned, 5);
    sonde__free(sonde__malloc(1));
    assert_int_equal(seen.taken, 5);
}

/* Large blocks of zeros are pages that are given back; the ends of a block are not. */
static void zeros_are_zeros(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, (2 << 20) - 1, 2 << 20, (6 << 20) + 77};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t align = 64; align <= 2 << 20; align *= 32768) {
            unsigned char *used = sonde__malloc_aligned(align, sizes[i]);
            unsigned char *block = NULL;
            size_t wrong = 0;

            assert_non_null(used);
            memset(used, 0xA5, sizes[i]);
            sonde__free(used);
            block = sonde__calloc_aligned(align, sizes[i]);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % align, 0);
            for (size_t k = 0; k < sizes[i]; k++) {
                wrong += block[k] != 0;
            }
            assert_int_equal(wrong, 0);
            sonde__free(block);
        }
    }
}

static void log_lines_have_their_form(void **state)
{
    char line[256] = "";
    FILE *const stream = tmpfile();

    (void)state;
    assert_non_null(stream);
    sonde_log_set_level(SONDE_LOG_INFO);
    assert_int_equal(sonde_log_get_level(), SONDE_LOG_INFO);
    assert_false(sonde_log_enabled(SONDE_LOG_ERROR)); /* nobody listens */
    sonde_log_to_stream(stream);
    assert_true(sonde_log_enabled(SONDE_LOG_INFO));
    assert_false(sonde_log_enabled(SONDE_LOG_DEBUG));
    sonde_log(SONDE_LOG_DEBUG, "data", "too quiet");
    sonde_log(SONDE_LOG_INFO, "data", "%d images", 60000);
    sonde_log_set_sink(NULL, NULL);
    rewind(stream);
    assert_non_null(fgets(line, sizeof line, stream));
    /* [HH:MM:SS.mmm] first, whatever the time */
    assert_int_equal(strlen(line), strlen("[HH:MM:SS.mmm] [data] [info] 60000 images\n"));
    assert_string_equal(line + strlen("[HH:MM:SS.mmm] "), "[data] [info] 60000 images\n");
    assert_null(fgets(line, sizeof line, stream));
    (void)fclose(stream);
}

/* The choice is made once, so this is the first that asks in this program. */
static void instruction_set_is_capped(void **state)
{
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(setenv("SONDE_ISA", "generic", 1), 0);
    assert_string_equal(sonde__isa_name(), "generic");
    assert_int_equal(sonde__cpu_isa(), SONDE__GENERIC);
    assert_int_equal(sonde__cpu_half(), SONDE__HALF_BY_FLOAT);
    assert_string_equal(sonde__half_name(), "float32 units");
    assert_int_equal(setenv("SONDE_ISA", "avx512", 1), 0);
    assert_string_equal(sonde__isa_name(), "generic");
    assert_int_equal(sonde_isa_check(&diag), SONDE_OK);
    assert_int_equal(setenv("SONDE_ISA", "amx_bf16", 1), 0);
    assert_int_equal(sonde_isa_check(&diag), SONDE_OK);
    assert_int_equal(setenv("SONDE_ISA", "bogus", 1), 0);
    assert_int_equal(sonde_isa_check(&diag), SONDE_EINVAL);
    assert_string_equal(diag.where, "SONDE_ISA");
    assert_int_equal(unsetenv("SONDE_ISA"), 0);
    assert_true(sonde__cpu_count() >= 1);
}

static void write_line(const char *folder, const char *name, const char *line)
{
    char path[256];
    FILE *file = NULL;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(line, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void processors_are_those_of_the_cgroup(void **state)
{
    char mount[] = "sonde_cgroup_XXXXXX", a[64], b[64];

    (void)state;
    assert_non_null(mkdtemp(mount));
    (void)snprintf(a, sizeof a, "%s/a", mount);
    (void)snprintf(b, sizeof b, "%s/a/b", mount);
    assert_int_equal(mkdir(a, 0700), 0);
    assert_int_equal(mkdir(b, 0700), 0);
    assert_int_equal(sonde__cpu_quota(mount, "/a/b"), 0);
    write_line(b, "cpu.max", "max 100000\n");
    assert_int_equal(sonde__cpu_quota(mount, "/a/b"), 0);
    write_line(a, "cpu.max", "250000 100000\n"); /* the parent's 2.5 processors */
    assert_int_equal(sonde__cpu_quota(mount, "/a/b"), 3);
    write_line(b, "cpu.max", "100000 100000\n");
    assert_int_equal(sonde__cpu_quota(mount, "/a/b"), 1);
    assert_int_equal(sonde__cpu_quota(mount, "/a"), 3);
    write_line(a, "cpu.max", "no number\n");
    write_line(a, "cpu.cfs_quota_us", "150000\n");
    write_line(a, "cpu.cfs_period_us", "100000\n");
    assert_int_equal(sonde__cpu_quota(mount, "/a"), 2);
    write_line(a, "cpu.cfs_quota_us", "-1\n");
    assert_int_equal(sonde__cpu_quota(mount, "/a"), 0);
    assert_int_equal(sonde__cpu_quota(mount, "/"), 0);
    for (size_t i = 0; i < 2; i++) {
        static const char *const names[] = {"cpu.max", "cpu.cfs_quota_us",
                                            "cpu.cfs_period_us"};

        for (size_t k = 0; k < 3; k++) {
            char path[256];

            (void)snprintf(path, sizeof path, "%s/%s", i == 0 ? a : b, names[k]);
            (void)remove(path);
        }
    }
    assert_int_equal(rmdir(b), 0);
    assert_int_equal(rmdir(a), 0);
    assert_int_equal(rmdir(mount), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processors_are_those_of_the_cgroup),
        cmocka_unit_test(every_block_comes_through_the_seam),
        cmocka_unit_test(zeros_are_zeros),
        cmocka_unit_test(log_lines_have_their_form),
        cmocka_unit_test(instruction_set_is_capped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
