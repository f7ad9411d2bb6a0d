/*
 * cells.h - what commands print in JSON: cells, which make an object or a part of one.
 *
 *     CLI_LINE(cli_text("event", "epoch"), cli_int("epoch", 3));
 *
 * prints {"event": "epoch", "epoch": 3}. A cell that does not apply is cli_none().
 */
#ifndef SONDE_CLI_CELLS_H
#define SONDE_CLI_CELLS_H

#include <sonde/json.h>

#include <math.h>

#include "cli/cli.h"

typedef enum cli_cell_kind {
    CLI_NONE = 0, /* is not printed */
    CLI_STRING,
    CLI_WHOLE,  /* int64_t */
    CLI_NUMBER, /* uint64_t */
    CLI_TRUTH,
    CLI_EXACT, /* double; NaN and infinities are strings */
    CLI_SHORT, /* double with so many digits; null if it is not finite */
    CLI_FIXED, /* the same, of digits after the point */
    CLI_RAW,   /* JSON */
    CLI_SHAPE  /* a list of int64_t */
} cli_cell_kind;

typedef struct cli_cell {
    const char *key;
    cli_cell_kind kind;
    const char *text; /* a string, or JSON */
    int64_t whole;    /* or the length of a shape */
    uint64_t number;
    double real;
    int digits;
    const int64_t *shape;
} cli_cell;

static inline cli_cell cli_none(void)
{
    return (cli_cell){.kind = CLI_NONE};
}

static inline cli_cell cli_text(const char *key, const char *text)
{
    return (cli_cell){.key = key, .kind = CLI_STRING, .text = text};
}

static inline cli_cell cli_int(const char *key, int64_t value)
{
    return (cli_cell){.key = key, .kind = CLI_WHOLE, .whole = value};
}

static inline cli_cell cli_uint(const char *key, uint64_t value)
{
    return (cli_cell){.key = key, .kind = CLI_NUMBER, .number = value};
}

static inline cli_cell cli_bool(const char *key, bool value)
{
    return (cli_cell){.key = key, .kind = CLI_TRUTH, .number = value};
}

static inline cli_cell cli_exact(const char *key, double value)
{
    return (cli_cell){.key = key, .kind = CLI_EXACT, .real = value};
}

static inline cli_cell cli_real(const char *key, int digits, double value)
{
    return (cli_cell){.key = key, .kind = CLI_SHORT, .digits = digits, .real = value};
}

static inline cli_cell cli_fixed(const char *key, int digits, double value)
{
    return (cli_cell){.key = key, .kind = CLI_FIXED, .digits = digits, .real = value};
}

/* A time in ns as seconds since 1970; 0: not known. */
static inline cli_cell cli_time(const char *key, int64_t time)
{
    return cli_fixed(key, 6, time > 0 ? 1e-9 * (double)time : (double)NAN);
}

static inline cli_cell cli_raw(const char *key, const char *json)
{
    return (cli_cell){.key = key, .kind = CLI_RAW, .text = json};
}

static inline cli_cell cli_shape(int rank, const int64_t *shape)
{
    return (cli_cell){.key = "shape", .kind = CLI_SHAPE, .whole = rank, .shape = shape};
}

/* The members of an object that is open. */
void cli_put_cells(sonde_json *json, const cli_cell *cells, size_t count);
/* An object on a line of its own. */
void cli_print_cells(const cli_cell *cells, size_t count);

#define CLI_CELLS(...)                                                                   \
    (const cli_cell[]){__VA_ARGS__}, sizeof((cli_cell[]){__VA_ARGS__}) / sizeof(cli_cell)
#define CLI_PUT(json, ...) cli_put_cells(json, CLI_CELLS(__VA_ARGS__))
#define CLI_LINE(...) cli_print_cells(CLI_CELLS(__VA_ARGS__))

/* The writer of JSON for stdout, with blanks after ',' and ':'. */
sonde_json *cli_json(void);
/* Prints what has been written so far, and end. */
void cli_json_print(const char *end);
/* A list of strings; text gives them by number, NULL at the end. */
void cli_json_texts(sonde_json *json, const char *key,
                    const char *(*text)(const void *from, size_t i), const void *from);

#endif
