/*
 * builtin_values.c - the elements of raw values, as doubles.
 */
#include "rules/builtin/builtin_values.h"

#include "base/macros.h"

#include <stdint.h>
#include <string.h>

void sonde__builtin_reader_init(sonde__builtin_reader *reader, const sonde_view *view)
{
    reader->dtype = view->dtype;
    sonde__tensor_cursor_init(&reader->cursor, view);
}

size_t sonde__builtin_reader_take(sonde__builtin_reader *reader,
                                  double values[SONDE__CHUNK])
{
    uint64_t elements[SONDE__CHUNK];
    const void *block = NULL;
    const size_t n =
        sonde__tensor_cursor_take(&reader->cursor, SONDE__CHUNK, elements, &block);

    if (n > 0) {
        sonde__tensor_load_f64(reader->dtype, block, n, values);
    }
    return n;
}

size_t sonde__builtin_sample(const sonde_view *view, size_t most, double *out)
{
    const size_t all = (size_t)sonde_view_count(view),
                 size = sonde_dtype_size(view->dtype);
    const size_t count = SONDE_MIN(all, most);
    const size_t stride = count > 0 ? all / count : 1;
    sonde__builtin_reader reader;
    double chunk[SONDE__CHUNK];
    size_t used = 0;

    if (sonde_view_is_contiguous(view)) {
        for (size_t i = 0; i < count; i++) {
            const void *element = (const char *)view->data + i * stride * size;

            if (view->dtype == SONDE_F32) { /* may be unaligned */
                float value = 0.0F;

                memcpy(&value, element, sizeof value);
                out[i] = (double)value;
            } else {
                out[i] = sonde_element_get(view->dtype, element);
            }
        }
        return count;
    }
    sonde__builtin_reader_init(&reader, view);
    for (size_t n = 1; used < count && n > 0; used += n) {
        n = SONDE_MIN(sonde__builtin_reader_take(&reader, chunk), count - used);
        memcpy(out + used, chunk, n * sizeof *out);
    }
    return used;
}
