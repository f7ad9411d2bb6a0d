/*
 * test_data_ranks.c - how several processes share a data set.
 */
#include "nn/data_loader.h"

static void ranks_share_without_the_rest(void **state)
{
    enum { COUNT = 101, BATCH = 4, WORLD = 3, SHARE = 32 };
    static int64_t seen[WORLD][MOST];
    int times[COUNT] = {0};

    (void)state;
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        for (int rank = 0; rank < WORLD; rank++) {
            const sonde_nn_loader_options options = {.size = sizeof options,
                                                     .batch = BATCH,
                                                     .workers = rank,
                                                     .rank = rank,
                                                     .world = WORLD};
            sonde_nn_loader *loader = loader_of(set_of(COUNT), &options);

            sonde_nn_loader_start_epoch(loader, epoch);
            assert_int_equal(sonde_nn_loader_get_info(loader).samples, SHARE);
            assert_int_equal(read_epoch(loader, INT64_MAX, BATCH, seen[rank]), SHARE);
            for (int i = 0; i < SHARE; i++) { /* one block each, in order */
                assert_int_equal(seen[rank][i],
                                 rank * SHARE + i +
                                     (epoch == 1 ? COUNT - WORLD * SHARE : 0));
                times[seen[rank][i]]++;
            }
            sonde_nn_loader_destroy(loader);
        }
    }
    for (int i = 0; i < COUNT; i++) { /* two epochs use everything */
        assert_in_range(times[i], 1, 2);
    }
}

static void ranks_share_with_the_rest(void **state)
{
    static int64_t seen[MOST], all[MOST];
    int64_t count = 0;

    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        const sonde_nn_loader_options options = {.size = sizeof options,
                                                 .batch = 6,
                                                 .shuffle = true,
                                                 .seed = 3,
                                                 .keep_last = true,
                                                 .rank = rank,
                                                 .world = 4};
        sonde_nn_loader *loader = loader_of(set_of(102), &options);
        const int64_t share = rank < 2 ? 26 : 25;

        sonde_nn_loader_start_epoch(loader, 1);
        assert_int_equal(sonde_nn_loader_get_info(loader).samples, share);
        assert_int_equal(sonde_nn_loader_get_info(loader).batches, 5);
        assert_int_equal(read_epoch(loader, INT64_MAX, 6, seen), share);
        memcpy(all + count, seen, (size_t)share * sizeof *seen);
        count += share;
        sonde_nn_loader_destroy(loader);
    }
    assert_int_equal(count, 102);
    assert_true(is_permutation(all, 102));
}

static int tear_down(void **state)
{
    (void)state;
    sonde_nn_dataset_destroy(plain.set);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_without_the_rest),
        cmocka_unit_test(ranks_share_with_the_rest),
    };

    return cmocka_run_group_tests(tests, NULL, tear_down);
}
