/*
 * fuzz_csv.c - the cells of a CSV table from any bytes. Each cell is a string within the
 * text, and every record has the columns of the header.
 */
#include "nn/data/files.h"

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
    sonde__data_csv csv = {.name = "fuzz", .text = malloc(size + 1), .size = size};
    sonde_diag diag = {0};

    expect(csv.text != NULL);
    if (size > 0) {
        memcpy(csv.text, data, size);
    }
    if (sonde__data_csv_parse(&csv, '\0', &diag) == SONDE_OK) {
        expect(csv.columns > 0 && csv.cell_count == csv.rows * csv.columns);
        for (size_t i = 0; i < csv.cell_count; i++) {
            const char *cell = csv.cells[i];

            expect(cell >= csv.text && cell + strlen(cell) <= csv.text + size);
            (void)sonde__data_csv_quoted(&csv, cell);
        }
        for (size_t i = 1; i < csv.rows; i++) {
            expect(csv.lines[i] > csv.lines[i - 1]);
        }
    } else {
        expect(diag.found[0] != '\0');
    }
    sonde__data_csv_fini(&csv);
    return 0;
}
