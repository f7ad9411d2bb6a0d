/*
 * fuzz_control.c - any bytes as a line of control.jsonl.
 */
#include "control/control.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sonde_request request = {0};
    sonde_diag diag = {0};

    if (sonde__control_parse((const char *)data, size, &request, &diag) != SONDE_OK) {
        if (diag.found[0] == '\0') {
            abort();
        }
        return 0;
    }
    if ((request.kind != SONDE_REQUEST_STOP &&
         request.kind != SONDE_REQUEST_CHECKPOINT) ||
        memchr(request.text, '\0', sizeof request.text) == NULL ||
        strpbrk(request.text, "\n\r\x1b") != NULL) {
        abort();
    }
    return 0;
}
