/*
 * fuzz_csv.c - the cells of a CSV table from any bytes. Each cell ends with a NUL, and the
 * columns of a record count up from 1.
 */
#include "nn/data/csv.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool right)
{
    if (!right) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sonde__data_csv csv;
    sonde_diag diag = {0};
    bool more = true;
    int column = 0;
    size_t cells = 0;
    char *text = malloc(size + 1);
    sonde_err err = SONDE_OK;

    expect(text != NULL);
    if (size > 0) {
        memcpy(text, data, size);
    }
    err = sonde__data_csv_open(&csv, text, size, "fuzz", '\0', &diag);
    while (err == SONDE_OK) {
        double number = 0.0;

        err = sonde__data_csv_next(&csv, &more, &diag);
        if (err != SONDE_OK || !more) {
            break;
        }
        expect(csv.cell[csv.size] == '\0' && strlen(csv.cell) == csv.size);
        expect(csv.column == column + 1 && csv.line >= 1 && ++cells <= size + 1);
        (void)sonde__data_csv_number(&csv, &number);
        (void)sonde__data_csv_missing(&csv);
        column = csv.last ? 0 : csv.column;
    }
    expect(err == SONDE_OK || diag.found[0] != '\0');
    sonde__data_csv_close(&csv);
    free(text);
    return 0;
}
