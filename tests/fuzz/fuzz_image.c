/*
 * fuzz_image.c - PNG and JPEG from any bytes. Headers that promise more than 2^20 samples
 * are only probed: filling them takes time and shows nothing new.
 */
#include "nn/data/image.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const sonde__data_bytes bytes = {data, size, "fuzz"};
    sonde__data_image_info info = {0};
    sonde_nn_image image = {0};
    sonde_diag diag = {0};
    const sonde_err err = sonde__data_image_probe(&bytes, &info, &diag);

    if (err != SONDE_OK || (int64_t)info.width * info.height * info.channels > 1 << 20) {
        return 0;
    }
    if (sonde_nn_image_parse(data, size, "fuzz", &image, &diag) == SONDE_OK) {
        const size_t count =
            (size_t)image.channels * (size_t)image.height * (size_t)image.width;
        unsigned sum = 0;

        for (size_t i = 0; i < count; i++) {
            sum += image.pixels[i];
        }
        if (image.width != info.width || (count == 0 && sum == 0)) {
            abort();
        }
    } else if (image.pixels != NULL || diag.found[0] == '\0') {
        abort();
    }
    sonde_nn_image_fini(&image);
    return 0;
}
