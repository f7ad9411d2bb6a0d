/*
 * safetensors_tool.h - our safetensors from the command line, for the check against
 * another implementation (tests/python/test_safetensors.py):
 *
 *     write OUT       a file with every dtype, values 0, 1, 2 ... in shape (2, 3)
 *     copy IN OUT     what IN holds, written again
 *     list IN         a line per tensor: name, dtype, shape, elements
 */
#ifndef SONDE_TESTS_SAFETENSORS_TOOL_H
#define SONDE_TESTS_SAFETENSORS_TOOL_H

#include <sonde/safetensors.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int report(const sonde_diag *diag)
{
    char line[SONDE_DIAG_LINE];

    (void)fprintf(stderr, "error: %s\n", sonde_diag_line(diag, line, sizeof line));
    return 2;
}

static int tool_write(const char *out)
{
    static _Alignas(16) unsigned char data[SONDE_DTYPE_COUNT][6 * 16];
    static const int64_t shape[] = {2, 3};
    sonde_named_view tensors[SONDE_DTYPE_COUNT];
    const sonde_metadata metadata[] = {{"format", "pt"}, {"who", "\"sonde\" \xC3\xA9"}};
    sonde_diag diag = {0};

    for (int d = 0; d < SONDE_DTYPE_COUNT; d++) {
        for (size_t i = 0; i < 6; i++) {
            sonde_element_set((sonde_dtype)d,
                              data[d] + i * sonde_dtype_size((sonde_dtype)d), (double)i);
        }
        tensors[d].name = sonde_dtype_name((sonde_dtype)d);
        tensors[d].view = sonde_view_of((sonde_dtype)d, 2, shape, data[d]);
    }
    /* All but complex128, the last, which is no dtype of safetensors. */
    return sonde_safetensors_write(out, tensors, SONDE_C128, metadata, 2, &diag) ==
                   SONDE_OK
               ? 0
               : report(&diag);
}

static int tool_copy(const char *in, const char *out)
{
    sonde_safetensors *file = NULL;
    sonde_named_view *tensors = NULL;
    sonde_diag diag = {0};
    sonde_err err = sonde_safetensors_open(in, &file, &diag);

    if (err != SONDE_OK) {
        return report(&diag);
    }
    tensors = calloc(sonde_safetensors_count(file) + 1, sizeof *tensors);
    for (size_t i = 0; tensors != NULL && i < sonde_safetensors_count(file); i++) {
        tensors[i].name = sonde_safetensors_name(file, i);
        tensors[i].view = *sonde_safetensors_view(file, i);
    }
    err = tensors == NULL
              ? SONDE_ENOMEM
              : sonde_safetensors_write(out, tensors, sonde_safetensors_count(file), NULL,
                                        0, &diag);
    free(tensors);
    sonde_safetensors_destroy(file);
    return err == SONDE_OK ? 0 : report(&diag);
}

static int tool_list(const char *in)
{
    sonde_safetensors *file = NULL;
    sonde_diag diag = {0};

    if (sonde_safetensors_open(in, &file, &diag) != SONDE_OK) {
        return report(&diag);
    }
    for (size_t i = 0; i < sonde_safetensors_count(file); i++) {
        const sonde_view *view = sonde_safetensors_view(file, i);
        char shape[256];

        (void)printf("%s\t%s\t%s\t", sonde_safetensors_name(file, i),
                     sonde_dtype_name(view->dtype),
                     sonde_shape_text(view->rank, view->shape, shape, sizeof shape));
        for (int64_t k = 0; k < sonde_view_count(view); k++) {
            (void)printf("%.17g ",
                         sonde_element_get(
                             view->dtype, (const unsigned char *)view->data +
                                              (size_t)k * sonde_dtype_size(view->dtype)));
        }
        (void)printf("\n");
    }
    sonde_safetensors_destroy(file);
    return 0;
}

static int use_as_tool(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "write") == 0) {
        return tool_write(argv[2]);
    }
    if (argc == 4 && strcmp(argv[1], "copy") == 0) {
        return tool_copy(argv[2], argv[3]);
    }
    if (argc == 3 && strcmp(argv[1], "list") == 0) {
        return tool_list(argv[2]);
    }
    (void)fprintf(stderr, "usage: write OUT | copy IN OUT | list IN\n");
    return 2;
}

#endif
