/*
 * fuzz_idx.c - IDX arrays, plain and gzipped, from any bytes. What is read must be whole:
 * every byte of it is looked at.
 */
#include "nn/data/files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sonde__data_idx *array = NULL;
    sonde_diag diag = {0};

    if (sonde__data_idx_parse(data, size, "fuzz", &array, &diag) == SONDE_OK) {
        const sonde_view *view = sonde__data_idx_view(array);
        const uint8_t *bytes = view->data;
        const size_t count =
            (size_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);
        unsigned sum = 0;

        for (size_t i = 0; i < count; i++) {
            sum += bytes[i];
        }
        if (view->rank < 1 || (count == 0 && sum > 0)) {
            abort();
        }
    } else if (array != NULL || diag.found[0] == '\0') {
        abort();
    }
    sonde__data_idx_destroy(array);
    return 0;
}
