/*
 * fuzz_program.c - any bytes as the text of a program: one that is read is written and
 * read again as the same, and every tensor has a place.
 */
#include <sonde/alloc.h>
#include <sonde/error.h>
#include <sonde/program.h>

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const sonde_program *program)
{
    sonde_program *again = NULL;
    char *text = NULL;
    size_t length = 0;

    if (sonde_program_text(program, &text, &length, NULL) != SONDE_OK ||
        sonde_program_read(text, length, &again, NULL) != SONDE_OK ||
        again->digest != program->digest) {
        abort();
    }
    sonde_release(text);
    sonde_program_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sonde_program *program = NULL;
    sonde_diag diag = {0};
    char line[64];

    if (sonde_program_read((const char *)data, size, &program, &diag) != SONDE_OK) {
        if (diag.found[0] == '\0') {
            abort();
        }
        return 0;
    }
    for (size_t i = 0; i < program->value_count && i < 16; i++) {
        const sonde_place place =
            sonde_program_place_of(program, program->values[i].tensor);

        (void)sonde_program_place_text(program, place, line, sizeof line);
    }
    check_again(program);
    sonde_program_destroy(program);
    return 0;
}
