/*
 * fuzz_parquet.c - tables in Parquet from any bytes. Each column that has no refusal passes
 * its rows in order, as many as the table has, or an error with a reason.
 */
#include "nn/data/parquet.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool right)
{
    if (!right) {
        abort();
    }
}

typedef struct passing {
    const sonde__data_parquet_column *column;
    int64_t rows;
} passing;

static sonde_err take(void *user, int64_t row, const sonde__data_parquet_value *value,
                      sonde_diag *diag)
{
    passing *passed = user;

    (void)diag;
    expect(row == passed->rows++);
    expect(value->missing || !passed->column->text || strlen(value->text) < 1U << 30);
    return SONDE_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { ROWS_MAX = 20000 }; /* a few bytes may claim any number */
    sonde__data_parquet file;
    sonde_diag diag = {0};
    sonde_err err = sonde__data_parquet_open(&file, data, size, "fuzz", &diag);

    expect(err == SONDE_OK || diag.found[0] != '\0');
    for (size_t i = 0; err == SONDE_OK && i < file.count && file.rows <= ROWS_MAX; i++) {
        passing passed = {.column = &file.columns[i]};
        sonde_err read = SONDE_OK;

        diag = (sonde_diag){0};
        read = sonde__data_parquet_read(&file, i, take, &passed, &diag);
        expect(read == SONDE_OK ? passed.rows == file.rows : diag.found[0] != '\0');
        expect(passed.rows <= file.rows);
    }
    sonde__data_parquet_close(&file);
    return 0;
}
