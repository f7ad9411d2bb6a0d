/*
 * test_compress.c - compressed values come back, are smaller where that can be, and are
 * stored as they are where it cannot.
 */
#include "record/run_dir.h"
#include "base/random.h"

#include "record/record_tensors.h"
#include "record/record_sink.h"

enum { FLOATS = 20000, STEPS = 150 };

typedef struct seen {
    float *x; /* of each tensor */
    uint64_t stored[4], packed[4], shuffled[4];
} seen;

static void make(float *x, uint32_t id, int64_t step)
{
    for (size_t i = 0; i < FLOATS; i++) {
        const float drawn = sonde__normal(id, (uint64_t)step, i);

        switch (id) {
        case 0: /* weights */
            x[i] = drawn * 0.01F;
            break;
        case 1: /* behind a ReLU that is nearly dead */
            x[i] = drawn > 2.0F ? drawn : 0.0F;
            break;
        case 2: { /* noise, whose every bit is drawn */
            const uint32_t bits =
                (uint32_t)sonde__below(id, (uint64_t)step, i, (uint64_t)1 << 32);

            memcpy(&x[i], &bits, sizeof bits);
            break;
        }
        default: /* noise, and then nothing */
            x[i] = step < STEPS / 2 ? drawn : 0.0F;
            break;
        }
    }
}

static void check(void *user, const sonde__record_index_line *line, const void *bytes,
                  size_t size)
{
    seen *const all = user;

    assert_int_equal(size, FLOATS * sizeof(float));
    make(all->x, line->tensor, line->step);
    assert_memory_equal(bytes, all->x, size);
    all->stored[line->tensor] += line->bytes;
    all->packed[line->tensor] += line->packing != SONDE__PACKED_NOT;
    all->shuffled[line->tensor] += line->packing == SONDE__PACKED_ZSTD_SHUFFLE;
}

static void values_are_smaller_and_come_back(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(4, FLOATS);
    sonde_recorder *recorder =
        run_create(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "compress"),
                                 .compress = true, .segment_bytes = 4 << 20),
                   catalogue);
    float *const x = calloc(FLOATS, sizeof *x);
    seen all = {.x = x};
    run_content content = {.value = check, .user = &all};
    const uint64_t plain = (uint64_t)STEPS * FLOATS * sizeof *x;

    (void)state;
    assert_non_null(x);
    for (int64_t step = 0; step < STEPS; step++) {
        for (uint32_t id = 0; id < 4; id++) {
            const sonde_coordinate at = run_at(step);
            const int64_t shape = FLOATS;
            const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);

            make(x, id, step);
            sonde__recorder_put(recorder, id, &at, &view);
        }
    }
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    run_read(path, 0, &content);
    assert_int_equal(content.values, STEPS * 4);
    assert_int_equal(content.bytes, 4 * plain);
    for (int id = 0; id < 4; id++) {
        print_message("tensor %d: %.2f, %llu shuffled\n", id,
                      (double)plain / (double)all.stored[id],
                      (unsigned long long)all.shuffled[id]);
    }
    assert_int_equal(all.shuffled[0], STEPS);
    assert_true(all.stored[0] < plain * 9 / 10);
    assert_int_equal(all.packed[1], STEPS);
    assert_true(all.stored[1] < plain / 4);
    assert_int_equal(all.packed[2], 0); /* and then stored as it is */
    assert_int_equal(all.stored[2], plain);
    assert_true(all.packed[3] > 0);
    free(x);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void shuffling_puts_first_bytes_first(void **state)
{
    static const unsigned char from[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const unsigned char by_four[] = {1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12};
    static const unsigned char by_two[] = {1, 3, 5, 7, 9, 11, 2, 4, 6, 8, 10, 12};
    unsigned char to[sizeof from];

    (void)state;
    sonde__record_shuffle(from, 3, 4, to);
    assert_memory_equal(to, by_four, sizeof to);
    sonde__record_shuffle(from, 6, 2, to);
    assert_memory_equal(to, by_two, sizeof to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_smaller_and_come_back),
        cmocka_unit_test(shuffling_puts_first_bytes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
