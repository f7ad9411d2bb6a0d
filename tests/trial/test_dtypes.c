/*
 * float8 and complex numbers all the way: recorded, checked, and exported as raw values.
 */
#include "tensor/convert.h"
#include "trial/run_folder.h"

#include <sonde/error.h>
#include <sonde/export_run.h>
#include <sonde/safetensors.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

enum { DTYPES = 4, COUNT = 4, MOST = 64 * 1024 };

static const sonde_dtype dtypes[DTYPES] = {SONDE_F8_E4M3, SONDE_F8_E5M2, SONDE_C64,
                                           SONDE_C128};
static const uint8_t codes[COUNT] = {0x38, 0xB8, 0x7F, 0x00}; /* e4m3: 1, -1, NaN, 0 */
static const float singles[2 * COUNT] = {1.5F, -2.0F, 0.0F,      0.1F,
                                         3.0F, 4.0F,  -INFINITY, NAN};
static const double doubles[2 * COUNT] = {1, 2, 3, 4, 5, 6, 7, 8};
static const void *const elements[DTYPES] = {codes, codes, singles, doubles};

static sonde_trial *recorded(void)
{
    static const int64_t shape[2] = {2, 2};
    const sonde_coordinate at = writer_at(SONDE_MODE_TRAIN, 0, 0);
    sonde_run_info info;
    sonde_verify_report report;
    sonde_trial *trial = NULL;
    writer w;

    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    for (uint32_t d = 0; d < DTYPES; d++) {
        const sonde_view view =
            sonde_view_of(dtypes[d], 2, shape, (void *)(uintptr_t)elements[d]);

        (void)writer_tensor(&w, sonde_dtype_name(dtypes[d]), "other", dtypes[d], 2, shape,
                            "all");
        writer_put(&w, at, d, &view, SONDE__PACKED_NOT);
    }
    writer_end_step(&w, at);
    writer_close(&w);
    assert_int_equal(sonde_trial_verify(test_run, &report, NULL, NULL, NULL), SONDE_OK);
    assert_true(report.records == DTYPES && report.damaged == 0);
    trial = trial_opened(test_run);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.records, DTYPES);
    return trial;
}

/* The file that an export makes; new. */
static unsigned char *exported(sonde_trial *trial, sonde_export_kind kind, bool values,
                               size_t *size)
{
    sonde_export_options options = sonde_export_options_default();
    unsigned char *bytes = calloc(MOST, 1);
    char path[160];
    FILE *file = NULL;

    (void)snprintf(path, sizeof path, "%s/out", test_folder);
    options.values = values;
    assert_int_equal(sonde_trial_export(trial, kind, path, &options, NULL, NULL),
                     SONDE_OK);
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_non_null(bytes);
    *size = fread(bytes, 1, MOST - 1, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(remove(path), 0);
    return bytes;
}

static void values_as_text(void **state)
{
    sonde_trial *trial = recorded();
    size_t size = 0;
    char *csv = (char *)exported(trial, SONDE_EXPORT_CSV, true, &size);
    char *json = (char *)exported(trial, SONDE_EXPORT_JSONL, true, &size);

    (void)state;
    assert_non_null(strstr(csv,
                           "0,train,0,0,1769860800.005000,float8_e4m3fn,0,0,0,1\n"
                           "0,train,0,0,1769860800.005000,float8_e4m3fn,0,0,1,-1\n"
                           "0,train,0,0,1769860800.005000,float8_e4m3fn,0,0,2,nan\n"));
    assert_non_null(strstr(csv,
                           "complex64,0,0,0,1.5-2j\n"
                           "0,train,0,0,1769860800.005000,complex64,0,0,1,0+0.1j\n"
                           "0,train,0,0,1769860800.005000,complex64,0,0,2,3+4j\n"
                           "0,train,0,0,1769860800.005000,complex64,0,0,3,-inf+nanj\n"));
    assert_non_null(strstr(json,
                           "\"tensor\":\"float8_e4m3fn\",\"micro_batch\":0,\"replica\":0,"
                           "\"dtype\":\"float8_e4m3fn\",\"shape\":[2,2],"
                           "\"values\":[1,-1,\"NaN\",0]}\n"));
    assert_non_null(strstr(json, "\"values\":[[1.5,-2],[0,0.1],[3,4],"
                                 "[\"-Infinity\",\"NaN\"]]}\n"));
    free(csv), free(json);
    sonde_trial_close(trial);
}

/* The bytes unchanged, after the header of NumPy's type. */
static void values_for_numpy(void **state)
{
    static const struct {
        const char *type;
        size_t bytes;
    } wanted[DTYPES] = {
        {"'|u1'", COUNT}, {"'|u1'", COUNT}, {"'<c8'", 32}, {"'<c16'", 64}};
    sonde_trial *trial = recorded();
    size_t size = 0;
    unsigned char *npz = exported(trial, SONDE_EXPORT_NPZ, false, &size);

    (void)state;
    for (int d = 0; d < DTYPES; d++) {
        const char *name = sonde_dtype_name(dtypes[d]);
        const unsigned char *at = memmem(npz, size, name, strlen(name)), *head = NULL;
        size_t length = 0;

        assert_non_null(at);
        head = memmem(at, size - (size_t)(at - npz), "\x93NUMPY", 6);
        assert_non_null(head);
        length = 10 + head[8] + 256U * head[9];
        assert_non_null(memmem(head, length, wanted[d].type, strlen(wanted[d].type)));
        assert_memory_equal(head + length, elements[d], wanted[d].bytes);
    }
    free(npz);
    sonde_trial_close(trial);
}

static void values_as_safetensors(void **state)
{
    sonde_trial *trial = recorded();
    size_t size = 0;
    unsigned char *bytes = exported(trial, SONDE_EXPORT_SAFETENSORS, false, &size);
    sonde_safetensors *file = NULL;

    (void)state;
    assert_int_equal(sonde__safetensors_parse(bytes, size, "out", &file, NULL), SONDE_OK);
    for (int d = 0; d < DTYPES; d++) {
        const sonde_view *view = NULL;
        char key[64];

        (void)snprintf(key, sizeof key, "0000000000/train/%s",
                       sonde_dtype_name(dtypes[d]));
        view = sonde_safetensors_find(file, key);
        assert_non_null(view);
        assert_int_equal(view->dtype, dtypes[d]);
        assert_memory_equal(view->data, elements[d], COUNT * sonde_dtype_size(dtypes[d]));
    }
    sonde_safetensors_destroy(file);
    free(bytes);
    sonde_trial_close(trial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(values_as_text, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(values_for_numpy, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(values_as_safetensors, folder_make,
                                        folder_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
