/*
 * A row as a line of CSV and of JSON lines, to the letter.
 */
#include "cmocka_all.h"

#include <sonde/export_run.h>

#include <math.h>

enum { ROW_STATS = 6 };

/* A row's text, of reductions first ... first + count - 1 of x. */
static void add_row_text(sonde_export_kind kind, const double x[3], size_t first,
                         size_t count, sonde_text *text)
{
    static const char *const names[ROW_STATS] = {"count", "mean", "max",
                                                 "min",   "p50",  "hash"};
    sonde_reduction stats[ROW_STATS];
    sonde_reduced values[ROW_STATS];
    const int64_t shape = 3;
    const sonde_view view = sonde_view_of(SONDE_F64, 1, &shape, (void *)(uintptr_t)x);
    sonde_export_row row = {.tensor = "a,\"b\"\n",
                            .worker = 3,
                            .step = 12,
                            .mode = SONDE_MODE_EVAL,
                            .mode_step = 2,
                            .time = first == 1 ? 0 : INT64_C(1769860800012345678),
                            .values = values + first};

    for (size_t i = 0; i < ROW_STATS; i++) {
        assert_int_equal(sonde_reduction_parse(names[i], &stats[i], NULL), SONDE_OK);
        if (x != NULL) {
            assert_int_equal(sonde_reduce(&stats[i], &view, &values[i], NULL), SONDE_OK);
        }
    }
    if (first == 4) { /* a median that cannot be had */
        values[4].how = 0;
        values[5].hash = UINT64_C(0xABC);
    }
    assert_int_equal(sonde_export_row_text(kind, x != NULL ? &row : NULL, stats + first,
                                           count, text, NULL),
                     SONDE_OK);
}

static void rows_are_exact_text(void **state)
{
    sonde_text text = {0};
    sonde_diag diag = {0};

    (void)state;
    add_row_text(SONDE_EXPORT_CSV, NULL, 0, 4, &text);
    add_row_text(SONDE_EXPORT_CSV, (double[]){0.1, -INFINITY, 0.2}, 0, 4, &text);
    assert_string_equal(
        text.data, "step,mode,mode_step,worker,time,tensor,count,mean,max,min\n"
                   "12,eval,2,3,1769860800.012345,\"a,\"\"b\"\"\n\",3,-inf,0.2,-inf\n");
    text.length = 0;
    add_row_text(SONDE_EXPORT_JSONL, (double[]){0.1, 1.0 / 3.0, 0.2}, 2, 2, &text);
    add_row_text(SONDE_EXPORT_JSONL, (double[]){(double)NAN, 1.0, 0.2}, 1, 1, &text);
    assert_string_equal(
        text.data,
        "{\"step\":12,\"mode\":\"eval\",\"mode_step\":2,\"worker\":3,"
        "\"time\":1769860800.012345,"
        "\"tensor\":\"a,\\\"b\\\"\\u000a\",\"max\":0.3333333333333333,\"min\":0.1}\n"
        "{\"step\":12,\"mode\":\"eval\",\"mode_step\":2,\"worker\":3,"
        "\"time\":null,"
        "\"tensor\":\"a,\\\"b\\\"\\u000a\",\"mean\":\"NaN\"}\n");
    text.length = 0;
    add_row_text(SONDE_EXPORT_CSV, (double[]){1.0, 2.0, 3.0}, 4, 2, &text);
    add_row_text(SONDE_EXPORT_JSONL, (double[]){1.0, 2.0, 3.0}, 4, 2, &text);
    assert_string_equal(
        text.data, "12,eval,2,3,1769860800.012345,\"a,\"\"b\"\"\n\",,0000000000000abc\n"
                   "{\"step\":12,\"mode\":\"eval\",\"mode_step\":2,\"worker\":3,"
                   "\"time\":1769860800.012345,"
                   "\"tensor\":\"a,\\\"b\\\"\\u000a\",\"p50\":null,"
                   "\"hash\":\"0000000000000abc\"}\n");
    assert_int_equal(sonde_export_row_text(SONDE_EXPORT_NPZ, NULL, NULL, 0, &text, &diag),
                     SONDE_EINVAL);
    sonde_text_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_exact_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
