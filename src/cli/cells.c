/*
 * cells.c - see cells.h.
 */
#include "cli/cells.h"

#include <math.h>

/* The text that cli_json() writes into. */
static sonde_text json_text;

sonde_json *cli_json(void)
{
    static sonde_json json = {.text = &json_text, .spaced = true};

    return &json;
}

void cli_json_print(const char *end)
{
    sonde_text_add(&json_text, end);
    if (json_text.failed) {
        (void)cli_fail_text("out of memory");
        json_text.failed = false;
    } else {
        (void)fwrite(json_text.data, 1, json_text.length, stdout);
    }
    json_text.length = 0;
}

void cli_json_texts(sonde_json *json, const char *key,
                    const char *(*text)(const void *from, size_t i), const void *from)
{
    sonde_json_list(json, key);
    for (size_t i = 0; text(from, i) != NULL; i++) {
        sonde_json_string(json, NULL, text(from, i));
    }
    sonde_json_end(json);
}

static void put_cell(sonde_json *json, const cli_cell *cell)
{
    switch (cell->kind) {
    case CLI_NONE:
        break;
    case CLI_STRING:
        sonde_json_string(json, cell->key, cell->text);
        break;
    case CLI_WHOLE:
        sonde_json_int(json, cell->key, cell->whole);
        break;
    case CLI_NUMBER:
        sonde_json_uint(json, cell->key, cell->number);
        break;
    case CLI_TRUTH:
        sonde_json_bool(json, cell->key, cell->number != 0);
        break;
    case CLI_EXACT:
        sonde_json_real(json, cell->key, cell->real);
        break;
    case CLI_SHORT:
    case CLI_FIXED:
        if (!isfinite(cell->real)) {
            sonde_json_raw(json, cell->key, "null");
        } else if (cell->kind == CLI_SHORT) {
            sonde_json_format(json, cell->key, "%.*g", cell->digits, cell->real);
        } else {
            sonde_json_format(json, cell->key, "%.*f", cell->digits, cell->real);
        }
        break;
    case CLI_RAW:
        sonde_json_raw(json, cell->key, cell->text);
        break;
    case CLI_SHAPE:
        sonde_json_list(json, cell->key);
        for (int64_t i = 0; i < cell->whole; i++) {
            sonde_json_int(json, NULL, cell->shape[i]);
        }
        sonde_json_end(json);
        break;
    }
}

void cli_put_cells(sonde_json *json, const cli_cell *cells, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put_cell(json, &cells[i]);
    }
}

void cli_print_cells(const cli_cell *cells, size_t count)
{
    sonde_json_object(cli_json(), NULL);
    cli_put_cells(cli_json(), cells, count);
    sonde_json_end(cli_json());
    cli_json_print("\n");
}
