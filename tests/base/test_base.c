/*
 * test_base.c - failing, allocating, interning, arenas and random numbers.
 */
#include "cmocka_all.h"

#include "base/memory.h"
#include "base/fail.h"
#include "base/names.h"
#include "base/random.h"

#include <sonde/error.h>
#include <sonde/log.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static void diag_line_has_its_parts(void **state)
{
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    (void)state;
    assert_int_equal(
        sonde__fail(&diag, SONDE_EINVAL, "job.yaml:3", "lr", "unknown key '%s'", "lrr"),
        SONDE_EINVAL);
    assert_string_equal(sonde_diag_line(&diag, line, sizeof line),
                        "job.yaml:3: unknown key 'lrr' (expected lr)");
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    assert_int_equal(sonde_diag_set(&diag, SONDE_EIO, NULL, NULL, "%s", line), SONDE_EIO);
    assert_string_equal(diag.where, "");
    assert_string_equal(diag.expected, "");
    assert_int_equal(strlen(diag.found), sizeof diag.found - 1);
    assert_int_equal(sonde_diag_set(NULL, SONDE_EIO, "x", "y", "z"), SONDE_EIO);
    assert_string_equal(sonde_err_name(SONDE_EINTERRUPTED), "SONDE_EINTERRUPTED");
    assert_string_equal(sonde_err_name((sonde_err)99), "SONDE_E?");
}

static void nearest_name_is_the_one_meant(void **state)
{
    static const char *const names[] = {"conv1.weight", "conv1.bias", "fc1.weight"};
    static const char *const options[] = {"momentum", "learning_rate", "epochs"};

    (void)state;
    assert_string_equal(sonde_diag_nearest("lr", options, 3), "learning_rate");
    assert_null(sonde_diag_nearest("ly", options, 3));
    assert_string_equal(sonde_diag_nearest("conv1.wieght", names, 3), "conv1.weight");
    assert_string_equal(sonde_diag_nearest("fc1.weigh", names, 3), "fc1.weight");
    assert_null(sonde_diag_nearest("zzzzzzzzzz", names, 3));
    assert_int_equal(sonde__edit_distance("kitten", "sitting"), 3);
}

static void names_get_dense_ids(void **state)
{
    sonde__names names;
    char text[32];

    (void)state;
    sonde__names_init(&names);
    assert_int_equal(sonde__names_find(&names, "x"), SONDE__NO_NAME);
    for (uint32_t i = 0; i < 1000; i++) {
        (void)snprintf(text, sizeof text, "name%u", i);
        assert_int_equal(sonde__names_intern(&names, text), i);
    }
    assert_int_equal(sonde__names_intern(&names, "name77"), 77);
    assert_int_equal(sonde__names_find(&names, "name999"), 999);
    assert_string_equal(names.text[5], "name5");
    sonde__names_fini(&names);
}

static void arena_measures_what_it_places(void **state)
{
    sonde__arena measure = {0}, place;

    (void)state;
    assert_null(sonde__arena_take(&measure, 8, 5));
    assert_null(sonde__arena_take(&measure, 64, 100));
    assert_int_equal(measure.used, 164);
    assert_int_equal(sonde__arena_init(&place, measure.used), SONDE_OK);
    assert_ptr_equal(sonde__arena_take(&place, 8, 5), place.base);
    assert_ptr_equal(sonde__arena_take(&place, 64, 100), place.base + 64);
    sonde__arena_fini(&place);
}

/* Known answers of Philox4x32-10, from the authors' Random123 distribution
 * (kat_vectors). */
static void philox_gives_the_known_answers(void **state)
{
    uint32_t out[4];

    (void)state;
    sonde__philox(0, 0, 0, out);
    assert_int_equal(out[0], 0x6627e8d5u);
    assert_int_equal(out[1], 0xe169c58du);
    assert_int_equal(out[2], 0xbc57ac4cu);
    assert_int_equal(out[3], 0x9b00dbd8u);
    sonde__philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, out);
    assert_int_equal(out[0], 0x408f276du);
    assert_int_equal(out[1], 0x41c83b0eu);
    assert_int_equal(out[2], 0xa20bc7c6u);
    assert_int_equal(out[3], 0x6d5451fdu);
}

static void random_numbers_stay_in_range(void **state)
{
    uint32_t order[100];
    bool seen[100] = {false};
    double mean = 0.0, square = 0.0;

    (void)state;
    sonde__permute(42, 1, 100, order);
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(order[i] < 100 && !seen[order[i]]);
        seen[order[i]] = true;
    }
    for (uint64_t i = 0; i < 100000; i++) {
        const double u = (double)sonde__uniform(7, 0, i);
        const double n = (double)sonde__normal(7, 1, i);

        assert_true(u >= 0.0 && u < 1.0);
        assert_true(sonde__below(7, 2, i, 10) < 10);
        mean += u;
        square += n * n;
    }
    assert_true(mean / 1e5 > 0.495 && mean / 1e5 < 0.505);
    assert_true(square / 1e5 > 0.98 && square / 1e5 < 1.02);
}

static int log_calls;

static void count_line(void *user, sonde_log_level level, const char *room,
                       const char *text)
{
    (void)user;
    log_calls++;
    assert_int_equal(level, SONDE_LOG_WARNING);
    assert_string_equal(room, "base");
    assert_string_equal(text, "three: 3");
    sonde_log(SONDE_LOG_ERROR, "base", "of a sink: dropped");
}

static void log_respects_level_and_sink(void **state)
{
    sonde_log_level level = SONDE_LOG_OFF;
    sonde_diag diag = {0};

    (void)state;
    sonde_log_set_level(SONDE_LOG_WARNING);
    sonde_log(SONDE_LOG_ERROR, "base", "nobody listens");
    sonde_log_set_sink(count_line, NULL);
    sonde_log(SONDE_LOG_INFO, "base", "too quiet");
    sonde_log(SONDE_LOG_WARNING, "base", "three: %d", 3);
    sonde_log_set_sink(NULL, NULL);
    assert_int_equal(log_calls, 1);
    assert_int_equal(sonde_log_level_parse("Error", &level, NULL), SONDE_OK);
    assert_int_equal(level, SONDE_LOG_ERROR);
    assert_int_equal(sonde_log_level_parse("loud", &level, &diag), SONDE_EINVAL);
    assert_non_null(strstr(diag.found, "loud"));
    assert_string_equal(diag.expected, "debug, info, warning, error, critical or off");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(diag_line_has_its_parts),
        cmocka_unit_test(nearest_name_is_the_one_meant),
        cmocka_unit_test(names_get_dense_ids),
        cmocka_unit_test(arena_measures_what_it_places),
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(random_numbers_stay_in_range),
        cmocka_unit_test(log_respects_level_and_sink),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
