/*
 * test_data_loader.c - batches and their order against a plain account of what they
 * should be, with any number of workers; restarts and errors.
 *
 * tsan: yes
 */
#include "nn/data_loader.h"

#include <math.h>
#include <stdatomic.h>
#include <time.h>

static void without_shuffling_samples_come_in_order(void **state)
{
    int64_t seen[MOST];

    (void)state;
    for (int workers = 0; workers <= 3; workers++) {
        const sonde_nn_loader_options options = {
            .size = sizeof options, .batch = 8, .workers = workers};
        sonde_nn_loader *loader = loader_of(set_of(1003), &options);

        assert_int_equal(sonde_nn_loader_get_info(loader).batches, 125);
        assert_int_equal(sonde_nn_loader_get_info(loader).samples, 1000);
        for (uint64_t epoch = 0; epoch < 4; epoch++) {
            sonde_nn_loader_start_epoch(loader, epoch);
            assert_int_equal(read_epoch(loader, INT64_MAX, 8, seen), 1000);
            for (int64_t i = 0; i < 1000; i++) {
                assert_int_equal(seen[i], i);
            }
        }
        assert_int_equal(sonde_nn_loader_get_stats(loader).batches, 500);
        sonde_nn_loader_destroy(loader);
    }
}

/* The same seed gives the same order whatever the number of workers and the buffers. */
static void order_depends_on_seed_and_epoch_alone(void **state)
{
    static int64_t first[5][MOST], seen[MOST];
    static const int64_t prefetch[] = {0, 1, 4, 100};

    (void)state;
    for (int run = 0; run < 8; run++) {
        const sonde_nn_loader_options options = {.size = sizeof options,
                                                 .batch = 7,
                                                 .shuffle = true,
                                                 .seed = 11,
                                                 .keep_last = true,
                                                 .workers = run / 2,
                                                 .prefetch = prefetch[run % 4]};
        sonde_nn_loader *loader = loader_of(set_of(500), &options);

        assert_int_equal(sonde_nn_loader_get_info(loader).batches, 72);
        for (uint64_t epoch = 0; epoch < 5; epoch++) {
            sonde_nn_loader_start_epoch(loader, epoch);
            assert_int_equal(read_epoch(loader, INT64_MAX, 7, seen), 500);
            assert_true(is_permutation(seen, 500));
            if (run == 0) {
                memcpy(first[epoch], seen, sizeof seen);
            } else {
                assert_memory_equal(seen, first[epoch], 500 * sizeof *seen);
            }
        }
        sonde_nn_loader_destroy(loader);
    }
    assert_memory_not_equal(first[0], first[1], 500 * sizeof **first);
    {
        const sonde_nn_loader_options other = {.size = sizeof other,
                                               .batch = 7,
                                               .shuffle = true,
                                               .seed = 12,
                                               .keep_last = true};
        sonde_nn_loader *loader = loader_of(set_of(500), &other);

        assert_int_equal(read_epoch(loader, INT64_MAX, 7, seen), 500);
        assert_memory_not_equal(first[0], seen, 500 * sizeof *seen);
        sonde_nn_loader_destroy(loader);
    }
}

static void the_end_lasts_until_the_next_epoch(void **state)
{
    int64_t seen[MOST];
    sonde_nn_batch b = {0};

    (void)state;
    for (int workers = 0; workers <= 1; workers++) {
        const sonde_nn_loader_options options = {
            .size = sizeof options, .batch = 4, .workers = workers};
        sonde_nn_loader *loader = loader_of(set_of(10), &options);

        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            sonde_nn_loader_start_epoch(loader, epoch);
            sonde_nn_loader_start_epoch(loader, epoch); /* nothing was read: no effect */
            assert_int_equal(read_epoch(loader, INT64_MAX, 4, seen), 8);
            for (int i = 0; i < 3; i++) {
                assert_int_equal(sonde_nn_loader_next(loader, &b, NULL), SONDE_OK);
                assert_int_equal(b.count, 0);
                assert_int_equal(b.number, 2);
            }
        }
        sonde_nn_loader_destroy(loader);
    }
}

/* Breaking off anywhere and going to any epoch gives that epoch from its beginning. */
static void breaking_off_restarts_cleanly(void **state)
{
    static int64_t whole[6][MOST], seen[MOST];
    sonde_nn_loader_options options = {
        .size = sizeof options, .batch = 3, .shuffle = true, .seed = 2};
    sonde_nn_loader *loader = loader_of(set_of(100), &options);
    uint32_t dice = 1;

    (void)state;
    for (uint64_t epoch = 0; epoch < 6; epoch++) {
        sonde_nn_loader_start_epoch(loader, epoch);
        assert_int_equal(read_epoch(loader, INT64_MAX, 3, whole[epoch]), 99);
    }
    sonde_nn_loader_destroy(loader);
    for (options.workers = 0; options.workers <= 2; options.workers++) {
        options.prefetch = options.workers * 5;
        loader = loader_of(set_of(100), &options);
        for (int i = 0; i < 300; i++) {
            const uint64_t epoch = (dice = dice * 1664525u + 1013904223u) >> 24 & 3;
            const int64_t batches = (dice = dice * 1664525u + 1013904223u) >> 24 & 63;
            int64_t count = 0;

            sonde_nn_loader_start_epoch(loader, epoch);
            count = read_epoch(loader, batches, 3, seen);
            assert_int_equal(count, 3 * (batches < 33 ? batches : 33));
            assert_memory_equal(seen, whole[epoch], (size_t)count * sizeof *seen);
        }
        sonde_nn_loader_destroy(loader);
    }
}

/* Loaders are built and thrown away with their workers in any state. */
static void loaders_may_go_at_any_time(void **state)
{
    int64_t seen[MOST];

    (void)state;
    for (int i = 0; i < 200; i++) {
        const sonde_nn_loader_options options = {.size = sizeof options,
                                                 .batch = 5,
                                                 .shuffle = true,
                                                 .workers = 1 + i % 3,
                                                 .prefetch = 1 + i % 7};
        sonde_nn_loader *loader = loader_of(set_of(60), &options);

        (void)read_epoch(loader, i % 13, 5, seen);
        sonde_nn_loader_destroy(loader);
    }
    sonde_nn_loader_destroy(NULL);
}

/* A batch lies still until the next next, however far ahead the workers are. */
static void borrowed_batches_lie_still(void **state)
{
    const sonde_nn_loader_options options = {
        .size = sizeof options, .batch = 16, .workers = 2, .prefetch = 3};
    sonde_nn_loader *loader = loader_of(set_of(2000), &options);
    sonde_nn_batch b = {0};

    (void)state;
    for (int n = 0; n < 40; n++) {
        const struct timespec moment = {0, 1000000};

        assert_int_equal(sonde_nn_loader_next(loader, &b, NULL), SONDE_OK);
        (void)nanosleep(&moment, NULL);
        for (int64_t i = 0; i < b.count; i++) {
            assert_int_equal(b.labels[i], n * 16 + i);
            assert_memory_equal((uint8_t *)b.data + i * SAMPLE, plain.pixels[n * 16 + i],
                                SAMPLE);
        }
        memset(b.data, 0xEE, (size_t)b.count * SAMPLE); /* ours to write to */
    }
    sonde_nn_loader_destroy(loader);
}

/* --- transforms, errors ------------------------------------------------------------- */

static void transforms_do_not_depend_on_workers(void **state)
{
    static const float mean = 0.25f, std = 0.5f;
    const sonde_nn_transform list[] = {
        {.kind = SONDE_NN_RANDOM_CROP, .height = 2, .width = 2, .padding = 1},
        {.kind = SONDE_NN_FLIP, .probability = 0.5f},
        {.kind = SONDE_NN_TO_FLOAT},
        {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {mean}, .std = {std}}};
    static float first[200 * 4];

    (void)state;
    for (int workers = 0; workers <= 3; workers++) {
        const sonde_nn_loader_options options = {.size = sizeof options,
                                                 .batch = 10,
                                                 .shuffle = true,
                                                 .seed = 5,
                                                 .workers = workers,
                                                 .transforms = list,
                                                 .transform_count = 4};
        sonde_nn_loader *loader = loader_of(set_of(200), &options);
        sonde_nn_batch b = {0};

        assert_int_equal(sonde_nn_loader_get_info(loader).dtype, SONDE_F32);
        assert_int_equal(sonde_nn_loader_get_info(loader).rank, 3);
        assert_int_equal(sonde_nn_loader_get_info(loader).shape[1], 2);
        for (int n = 0; n < 20; n++) {
            assert_int_equal(sonde_nn_loader_next(loader, &b, NULL), SONDE_OK);
            if (workers == 0) {
                memcpy(first + n * 40, b.data, 40 * sizeof *first);
            } else {
                assert_memory_equal(first + n * 40, b.data, 40 * sizeof *first);
            }
        }
        sonde_nn_loader_destroy(loader);
    }
}

/* Twelve images in two classes; the sixth is damaged behind its header. */
static sonde_nn_dataset *damaged_folder(void)
{
    sonde_nn_dataset *set = NULL;
    unsigned char *bytes = NULL;
    size_t size = 0;

    assert_int_equal(mkdir(data_path("images"), 0777), 0);
    assert_int_equal(mkdir(data_path("images/a"), 0777), 0);
    for (int i = 0; i < 12; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "images/a/%02d.png", i);
        data_write_png(data_path(name), 3, 8, 8, i);
    }
    bytes = data_read(data_path("images/a/05.png"), &size);
    bytes[size - 30] ^= 0x55;
    data_write(data_path("images/a/05.png"), bytes, size);
    free(bytes);
    assert_int_equal(sonde_nn_dataset_open(
                         data_path("images"),
                         SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_FOLDER),
                         &set, NULL),
                     SONDE_OK);
    return set;
}

static void a_broken_image_is_told_in_its_turn(void **state)
{
    sonde_nn_dataset *set = damaged_folder();

    (void)state;
    for (int workers = 0; workers <= 2; workers++) {
        const sonde_nn_loader_options options = {
            .size = sizeof options, .batch = 2, .workers = workers};
        sonde_nn_loader *loader = loader_of(set, &options);

        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            sonde_nn_batch b = {0};
            sonde_diag diag = {0};

            sonde_nn_loader_start_epoch(loader, epoch);
            for (int n = 0; n < 2; n++) {
                assert_int_equal(sonde_nn_loader_next(loader, &b, &diag), SONDE_OK);
                assert_int_equal(((const uint8_t *)b.data)[0], n * 2);
            }
            for (int n = 0; n < 2; n++) {
                assert_int_equal(sonde_nn_loader_next(loader, &b, &diag), SONDE_EFORMAT);
                assert_non_null(strstr(diag.where, "images/a/05.png"));
                assert_non_null(strstr(diag.found, "corrupt PNG"));
            }
        }
        sonde_nn_loader_destroy(loader);
    }
    sonde_nn_dataset_destroy(set);
}

static void expect_refusal(const sonde_nn_loader_options *options, sonde_err err,
                           const char *words)
{
    sonde_nn_loader *loader = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    assert_int_equal(sonde_nn_loader_create(plain.set, options, &loader, &diag), err);
    assert_null(loader);
    if (strstr(sonde_diag_line(&diag, line, sizeof line), words) == NULL) {
        fail_msg("'%s' lacks '%s'", line, words);
    }
}

static void impossible_options_are_refused(void **state)
{
    const sonde_nn_transform bad =
        (sonde_nn_transform){.kind = SONDE_NN_FLIP, .probability = 7.0f};

    (void)state;
    (void)set_of(10);
    expect_refusal(SONDE_OPTIONS(sonde_nn_loader, .batch = 0), SONDE_EINVAL, "batch 0");
    expect_refusal(SONDE_OPTIONS(sonde_nn_loader, .batch = 1, .workers = -1),
                   SONDE_EINVAL, "-1 workers");
    expect_refusal(SONDE_OPTIONS(sonde_nn_loader, .batch = 1, .rank = 2, .world = 2),
                   SONDE_EINVAL, "rank 2 of 2");
    expect_refusal(SONDE_OPTIONS(sonde_nn_loader, .batch = 11), SONDE_ERANGE,
                   "10 samples for batches of 11 on 1 rank");
    expect_refusal(SONDE_OPTIONS(sonde_nn_loader, .batch = 4, .world = 3), SONDE_ERANGE,
                   "10 samples for batches of 4 on 3 ranks");
    expect_refusal(SONDE_OPTIONS(sonde_nn_loader, .batch = INT64_MAX, .world = 3),
                   SONDE_ERANGE, "10 samples");
    expect_refusal(SONDE_OPTIONS(sonde_nn_loader, .batch = INT64_MAX, .keep_last = true),
                   SONDE_ENOMEM, "out of memory");
    expect_refusal(SONDE_OPTIONS(sonde_nn_loader, .batch = 1, .transforms = &bad,
                                 .transform_count = 1),
                   SONDE_EINVAL, "probability 7");
}

/* --- memory ------------------------------------------------------------------------- */

static sonde_err build(void *user)
{
    sonde_nn_loader *loader = NULL;
    const sonde_err err = sonde_nn_loader_create(plain.set, user, &loader, NULL);

    sonde_nn_loader_destroy(loader);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    sonde_nn_loader_options options = {
        .size = sizeof options, .batch = 2, .shuffle = true, .workers = 2};

    (void)state;
    (void)set_of(10);
    assert_int_equal(data_fail_allocations(build, &options), 4);
}

static atomic_long allocations;

static void *count_alloc(void *user, size_t align, size_t size)
{
    void *ptr = NULL;

    (void)user;
    (void)atomic_fetch_add(&allocations, 1);
    return posix_memalign(&ptr, align < 16 ? 16 : align, size) == 0 ? ptr : NULL;
}

static void count_free(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

static void nothing_is_allocated_after_create(void **state)
{
    static const sonde_allocator counting = {count_alloc, count_free, NULL};
    const sonde_nn_loader_options options = {
        .size = sizeof options, .batch = 4, .shuffle = true, .workers = 2};
    int64_t seen[MOST];
    sonde_nn_loader *loader = NULL;
    long before = 0;

    (void)state;
    (void)set_of(100);
    sonde_set_allocator(&counting);
    loader = loader_of(plain.set, &options);
    before = atomic_load(&allocations);
    assert_true(before > 0);
    for (uint64_t epoch = 0; epoch < 10; epoch++) {
        sonde_nn_loader_start_epoch(loader, epoch % 7);
        (void)read_epoch(loader, 3 + (int64_t)epoch * 5, 4, seen);
    }
    assert_int_equal(atomic_load(&allocations), before);
    sonde_nn_loader_destroy(loader);
    sonde_set_allocator(NULL);
}

static int tear_down(void **state)
{
    sonde_nn_dataset_destroy(plain.set);
    return data_folder_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_shuffling_samples_come_in_order),
        cmocka_unit_test(order_depends_on_seed_and_epoch_alone),
        cmocka_unit_test(the_end_lasts_until_the_next_epoch),
        cmocka_unit_test(breaking_off_restarts_cleanly),
        cmocka_unit_test(loaders_may_go_at_any_time),
        cmocka_unit_test(borrowed_batches_lie_still),
        cmocka_unit_test(transforms_do_not_depend_on_workers),
        cmocka_unit_test(a_broken_image_is_told_in_its_turn),
        cmocka_unit_test(impossible_options_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(nothing_is_allocated_after_create),
    };

    return cmocka_run_group_tests(tests, data_folder_make, tear_down);
}
