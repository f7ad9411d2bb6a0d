/*
 * fuzz_safetensors.c - any bytes as a safetensors file. What opens must be readable to
 * the last element and findable under its name; what does not must say why.
 */

#include "tensor/convert.h"

#include <sonde/error.h>
#include <sonde/safetensors.h>
#include <sonde/sketch.h>
#include <sonde/stats.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool good)
{
    if (!good) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static sonde_sketch sketch;
    sonde_safetensors *file = NULL;
    sonde_diag diag = {0};
    const sonde_err err = sonde__safetensors_parse(data, size, "input", &file, &diag);
    size_t bytes = 0;

    if (err != SONDE_OK) {
        expect(file == NULL && diag.err == err && diag.found[0] != '\0');
        return 0;
    }
    for (size_t i = 0; i < sonde_safetensors_count(file); i++) {
        const sonde_view *view = sonde_safetensors_view(file, i);
        const size_t count = (size_t)sonde_view_count(view);
        sonde_vitals vitals;

        expect(sonde_safetensors_find(file, sonde_safetensors_name(file, i)) == view);
        sonde_vitals_of(view, &vitals);
        sonde_sketch_init(&sketch);
        sonde_sketch_add(&sketch, view);
        expect(vitals.count == count && sketch.count == count &&
               vitals.nan == sketch.nan);
        bytes += count * sonde_dtype_size(view->dtype);
    }
    (void)sonde_safetensors_metadata(file, "format");
    expect(bytes <= size);
    sonde_safetensors_destroy(file);
    return 0;
}
