/*
 * fuzz_image.c - PNG and JPEG from any bytes. Headers that promise more than 2^20 samples
 * are only probed: filling them takes time and shows nothing new.
 */
#include "nn/data/pixels.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const sonde__data_bytes bytes = {data, size, "fuzz"};
    sonde__data_image_info info = {0};
    sonde_diag diag = {0};
    const sonde_err err = sonde__data_image_probe(&bytes, &info, &diag);

    if (err != SONDE_OK || (int64_t)info.width * info.height * info.channels > 1 << 20) {
        return 0;
    }
    uint8_t *pixels = calloc(sonde__data_image_size(&info), 1);

    if (pixels == NULL ||
        (sonde__data_image_read(&bytes, &info, pixels, &diag) != SONDE_OK &&
         diag.found[0] == '\0')) {
        abort();
    }
    free(pixels);
    return 0;
}
