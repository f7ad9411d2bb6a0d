/*
 * fuzz_npz.c - NumPy's arrays from any bytes: an archive .npz, or a single array if the
 * bytes begin as one. What is read must be whole: every element of it is looked at.
 */
#include "nn/data/files.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at(const sonde_view *view)
{
    const int64_t count = sonde_view_count(view);
    double *numbers = count >= 0 && count < 1 << 20
                          ? malloc(((size_t)count + 1) * sizeof *numbers)
                          : NULL;

    if (numbers != NULL) {
        const sonde_view copy =
            sonde_view_of(SONDE_F64, view->rank, view->shape, numbers);

        if (sonde_view_copy(&copy, view, NULL) != SONDE_OK) {
            abort();
        }
    }
    free(numbers);
}

static void expect_found(const sonde_diag *diag)
{
    if (diag->found[0] == '\0') {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sonde__data_arrays *arrays = NULL;
    sonde_diag diag = {0};
    sonde_view view;

    if (size > 0 && data[0] == 0x93) {
        if (sonde__data_npy_parse(data, size, "fuzz", &view, &diag) == SONDE_OK) {
            look_at(&view);
        } else {
            expect_found(&diag);
        }
        return 0;
    }
    if (sonde__data_arrays_parse(data, size, "fuzz", &arrays, &diag) != SONDE_OK) {
        expect_found(&diag);
        return 0;
    }
    for (size_t i = 0; i < sonde__data_arrays_count(arrays); i++) {
        if (sonde__data_arrays_find(arrays, sonde__data_arrays_name(arrays, i)) == NULL) {
            abort();
        }
        look_at(sonde__data_arrays_view(arrays, i));
    }
    sonde__data_arrays_destroy(arrays);
    return 0;
}
