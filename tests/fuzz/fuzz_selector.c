/*
 * fuzz_selector.c - any bytes as a selector's text, resolved against a small catalogue.
 */
#include <sonde/selector.h>

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static sonde_catalogue *make_catalogue(void)
{
    static const sonde_tensor_info tensors[] = {
        {.name = "fc1.weight", .module = "fc1", .same_as = SONDE_NO_TENSOR},
        {.name = "fc1.bias",
         .module = "fc1",
         .role = SONDE_ROLE_BIAS,
         .same_as = SONDE_NO_TENSOR},
        {.name = "Gradient___a.b.fc1.weight",
         .module = "a.b.fc1",
         .role = SONDE_ROLE_GRADIENT,
         .same_as = SONDE_NO_TENSOR},
        {.name = "fc1_output_0", .role = SONDE_ROLE_OUTPUT, .same_as = SONDE_NO_TENSOR},
        {.name = "fc2_input_0", .role = SONDE_ROLE_INPUT, .same_as = 3},
        {.name = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,b*[?]", .same_as = SONDE_NO_TENSOR},
    };
    sonde_catalogue *catalogue = NULL;
    uint32_t id = 0;

    if (sonde_catalogue_create(&catalogue, NULL) != SONDE_OK) {
        abort();
    }
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        if (sonde_catalogue_declare(catalogue, &tensors[i], &id, NULL) != SONDE_OK) {
            abort();
        }
    }
    return catalogue;
}

/* Ascending, each once, none beyond the catalogue. */
static void check_ids(const uint32_t *ids, size_t count, uint32_t declared)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= declared || (i > 0 && ids[i] <= ids[i - 1])) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sonde_catalogue *catalogue = make_catalogue();
    sonde_selector *selector = NULL;
    sonde_diag diag = {0};
    char *text = malloc(size + 1);
    uint32_t *ids = NULL;
    size_t count = 0;

    if (text == NULL) {
        abort();
    }
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    if (sonde_selector_create(text, &selector, &diag) != SONDE_OK) {
        if (diag.found[0] == '\0') {
            abort();
        }
    } else if (sonde_selector_resolve(selector, catalogue, &ids, &count, &diag) ==
               SONDE_OK) {
        check_ids(ids, count, sonde_catalogue_count(catalogue));
        sonde_release(ids);
    } else if (diag.found[0] == '\0') {
        abort();
    }
    sonde_selector_destroy(selector);
    sonde_catalogue_destroy(catalogue);
    free(text);
    return 0;
}
