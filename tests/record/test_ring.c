/*
 * test_ring.c - the ring against a plain queue, alone and between two threads.
 */
#include "cmocka_all.h"

#include "base/clock.h"
#include "base/random.h"
#include "record/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sonde/error.h>

enum { SMALLEST = 64 * 1024 };

/* A block whose bytes follow from its number. */
typedef struct numbered {
    sonde__record_block block;
    uint64_t number, bytes;
    unsigned char data[];
} numbered;

static size_t size_of(uint64_t number)
{
    const uint64_t most = SMALLEST / 4 - sizeof(numbered);

    return (size_t)(number % 11 == 0 ? most : sonde__below(5, 0, number, most / 16));
}

static bool try_put(sonde__record_ring *ring, uint64_t number)
{
    const size_t bytes = size_of(number);
    numbered *to = sonde__record_ring_reserve(ring, 1, sizeof *to + bytes);

    if (to == NULL) {
        return false;
    }
    to->number = number;
    to->bytes = bytes;
    memset(to->data, (int)(number & 255), bytes);
    sonde__record_ring_commit(ring);
    return true;
}

static void check(const sonde__record_block *block, uint64_t number)
{
    const numbered *from = (const void *)block;

    assert_int_equal((uintptr_t)block % SONDE__RING_LINE, 0);
    assert_int_equal(block->kind, 1);
    assert_int_equal(from->number, number);
    assert_int_equal(from->bytes, size_of(number));
    for (size_t i = 0; i < from->bytes; i++) {
        if (from->data[i] != (number & 255)) {
            fail_msg("block %llu, byte %zu", (unsigned long long)number, i);
        }
    }
}

/* --- one thread, against a queue -------------------------------------------------- */

static void it_is_a_queue(void **state)
{
    sonde__record_ring ring;
    uint64_t put = 0, got = 0, released = 0, refused = 0;

    (void)state;
    assert_int_equal(sonde__record_ring_init(&ring, 1), SONDE_OK);
    assert_int_equal(ring.size, SMALLEST);
    for (uint64_t step = 0; step < 200000; step++) {
        switch (sonde__below(9, 0, step, 5)) {
        case 0:
        case 1: /* what there is room for goes in; an empty ring takes anything */
            if (try_put(&ring, put)) {
                put++;
            } else {
                assert_true(put > released);
                refused++;
            }
            break;
        case 2:
        case 3: {
            sonde__record_block *block = sonde__record_ring_next(&ring);

            assert_int_equal(block != NULL, put > got);
            if (block != NULL && sonde__below(9, 1, step, 4) == 0) {
                sonde__record_ring_back(&ring, block);
            } else if (block != NULL) {
                check(block, got++);
            }
            break;
        }
        default:
            sonde__record_ring_release(&ring);
            released = got;
            assert_int_equal(sonde__record_ring_fill(&ring) == 0, put == got);
            break;
        }
    }
    assert_true(put > 20000 && refused > 1000);
    sonde__record_ring_fini(&ring);
}

/* However the blocks lie, half a ring has room for one of a quarter. */
static void a_quarter_finds_room_in_half_a_ring(void **state)
{
    sonde__record_ring ring;

    (void)state;
    for (size_t before = 0; before < SMALLEST / SONDE__RING_LINE; before += 3) {
        assert_int_equal(sonde__record_ring_init(&ring, SMALLEST), SONDE_OK);
        for (size_t i = 0; i < before; i++) {
            assert_non_null(sonde__record_ring_reserve(&ring, 1, 1));
            sonde__record_ring_commit(&ring);
            (void)sonde__record_ring_next(&ring);
            sonde__record_ring_release(&ring);
        }
        while (sonde__record_ring_fill(&ring) < SMALLEST / 2) {
            assert_non_null(sonde__record_ring_reserve(&ring, 1, 1));
            sonde__record_ring_commit(&ring);
        }
        assert_non_null(
            sonde__record_ring_reserve(&ring, 1, sonde__record_ring_most(&ring)));
        sonde__record_ring_fini(&ring);
    }
}

static void what_never_fits_is_refused(void **state)
{
    sonde__record_ring ring;

    (void)state;
    assert_int_equal(sonde__record_ring_init(&ring, SMALLEST), SONDE_OK);
    assert_null(sonde__record_ring_reserve(&ring, 1, SMALLEST + 1));
    assert_non_null(sonde__record_ring_reserve(&ring, 1, SMALLEST));
    sonde__record_ring_fini(&ring);
    assert_int_equal(sonde__record_ring_init(&ring, SIZE_MAX), SONDE_ENOMEM);
}

/* --- two threads ------------------------------------------------------------------ */

enum { BLOCKS = 30000 };

static void *produce(void *user)
{
    sonde__record_ring *ring = user;

    for (uint64_t i = 0; i < BLOCKS; i++) {
        while (!try_put(ring, i)) {
            sonde__record_ring_wait(ring, ring->tail_seen);
        }
    }
    return NULL;
}

static void nothing_is_lost_between_threads(void **state)
{
    sonde__record_ring ring;
    pthread_t producer;
    uint64_t got = 0;

    (void)state;
    assert_int_equal(sonde__record_ring_init(&ring, SMALLEST), SONDE_OK);
    assert_int_equal(pthread_create(&producer, NULL, produce, &ring), 0);
    while (got < BLOCKS) {
        sonde__record_block *block = sonde__record_ring_next(&ring);

        if (block != NULL) {
            check(block, got++);
            if (got % 7 == 0) {
                sonde__record_ring_release(&ring);
            }
        } else {
            sonde__record_ring_release(&ring);
            sonde__record_ring_sleep(&ring, SONDE__RING_NAP);
        }
    }
    assert_int_equal(pthread_join(producer, NULL), 0);
    assert_null(sonde__record_ring_next(&ring));
    sonde__record_ring_fini(&ring);
}

static void *wake_later(void *user)
{
    (void)usleep(20000);
    sonde__record_ring_wake(user);
    return NULL;
}

static void a_sleeper_is_woken(void **state)
{
    sonde__record_ring ring;
    pthread_t waker;
    double began = 0.0;

    (void)state;
    assert_int_equal(sonde__record_ring_init(&ring, SMALLEST), SONDE_OK);
    sonde__record_ring_wake(&ring);
    began = sonde__now();
    sonde__record_ring_sleep(&ring, 60.0); /* was woken before */
    assert_true(sonde__now() - began < 30.0);
    assert_int_equal(pthread_create(&waker, NULL, wake_later, &ring), 0);
    sonde__record_ring_sleep(&ring, 60.0);
    assert_true(sonde__now() - began < 30.0);
    assert_int_equal(pthread_join(waker, NULL), 0);
    began = sonde__now();
    sonde__record_ring_sleep(&ring, 0.01);
    assert_true(sonde__now() - began >= 0.009);
    sonde__record_ring_fini(&ring);
}

/* Whether the pages of so many bytes are mapped: a store to them finds nothing to do for
 * the kernel (/proc/self/pagemap). */
static bool are_mapped(int map, const unsigned char *start, size_t bytes)
{
    const off_t first = (off_t)((uintptr_t)start / SONDE__RING_PAGE);

    for (off_t i = 0; i < (off_t)(bytes / SONDE__RING_PAGE); i++) {
        uint64_t entry = 0;

        assert_int_equal(
            pread(map, &entry, sizeof entry, (first + i) * (off_t)sizeof entry),
            sizeof entry);
        if (entry >> 63 == 0) {
            return false;
        }
    }
    return true;
}

/* The pages of a file that the producer comes to next are there. */
static void pages_are_made_ahead(void **state)
{
    enum { MANY = 64 * SMALLEST, PAGE = SONDE__RING_PAGE, LEAST_AHEAD = 1024 * 1024 };
    static const char run[] = "0123456789abcdef0123456789abcdef";
    const int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    char path[] = "/tmp/sonde-ring-XXXXXX";
    const int fd = mkstemp(path);
    sonde__record_ring ring;
    sonde__record_ring_past past = {.put = 0};
    uint64_t head = 0;

    (void)state;
    if (sysconf(_SC_PAGESIZE) != PAGE || map < 0) {
        skip();
    }
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(sonde__record_ring_init(&ring, MANY), SONDE_OK);
    assert_int_equal(sonde__record_ring_keep(&ring, path, run, 0, &past), 0);
    if (madvise(ring.base, PAGE, MADV_POPULATE_WRITE) != 0) { /* an old kernel */
        sonde__record_ring_remove(&ring);
        sonde__record_ring_fini(&ring);
        skip();
    }
    for (uint64_t number = 0; head + LEAST_AHEAD < MANY; number++) {
        sonde__record_ring_populate(&ring);
        head = atomic_load(&ring.shared->head);
        assert_true(are_mapped(map, ring.base, (size_t)head + LEAST_AHEAD));
        for (int i = 0; i < 5; i++) {
            assert_true(try_put(&ring, 5 * number + (uint64_t)i));
        }
    }
    sonde__record_ring_remove(&ring);
    sonde__record_ring_fini(&ring);
    assert_int_equal(close(map), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_a_queue),
        cmocka_unit_test(a_quarter_finds_room_in_half_a_ring),
        cmocka_unit_test(what_never_fits_is_refused),
        cmocka_unit_test(nothing_is_lost_between_threads),
        cmocka_unit_test(a_sleeper_is_woken),
        cmocka_unit_test(pages_are_made_ahead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
