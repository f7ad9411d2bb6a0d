/*
 * parquet.c - the footer of a Parquet file; see parquet.h.
 *
 *     | PAR1 | pages ... | metadata (Thrift) | its size, u32 | PAR1 |
 *
 * All numbers of the metadata are checked against the file before they are used.
 */
#include "nn/data/parquet.h"
#include "base/fail.h"
#include "base/memory.h"
#include "nn/data/thrift.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TAIL = 8, NESTED_DEPTH = 32, COLUMNS_MAX = 65536 };

/* An element of the schema, which is a tree in depth-first order. */
typedef struct schema_element {
    const unsigned char *name;
    size_t name_size;
    int64_t type, length, repetition, children, converted, scale;
    int logical; /* the field of LogicalType that is set; 0: none */
    bool logical_unsigned;
} schema_element;

enum { REQUIRED = 0, OPTIONAL = 1 };

/* Of ConvertedType, and of LogicalType. */
enum { CONVERTED_UTF8 = 0, CONVERTED_ENUM = 4, CONVERTED_DECIMAL = 5 };
enum { CONVERTED_UINT8 = 11, CONVERTED_UINT64 = 14, CONVERTED_JSON = 19 };
enum { CONVERTED_BSON = 20, CONVERTED_INTERVAL = 21 };
enum { LOGICAL_DECIMAL = 5, LOGICAL_BSON = 13, LOGICAL_UUID = 14, LOGICAL_FLOAT16 = 15 };

typedef struct reading {
    sonde__data_parquet *file;
    sonde__data_thrift in;
    schema_element *schema;
    size_t elements;
    sonde_diag *diag;
} reading;

static sonde_err fail_damaged(const reading *r, const char *what)
{
    return sonde__fail(r->diag, SONDE_EFORMAT, r->file->name, "a whole Parquet file",
                       "%s", what);
}

/* --- the schema --------------------------------------------------------------------- */

static void read_decimal(sonde__data_thrift *in, schema_element *element)
{
    sonde__data_thrift_field field = {0};

    while (sonde__data_thrift_next(in, &field)) {
        if (field.id == 1) {
            element->scale = sonde__data_thrift_int(in, &field);
        } else {
            sonde__data_thrift_skip(in, &field);
        }
    }
}

static void read_integer(sonde__data_thrift *in, schema_element *element)
{
    sonde__data_thrift_field field = {0};

    while (sonde__data_thrift_next(in, &field)) {
        if (field.id == 2) {
            element->logical_unsigned = !sonde__data_thrift_bool(in, &field);
        } else {
            sonde__data_thrift_skip(in, &field);
        }
    }
}

static void read_logical(sonde__data_thrift *in, schema_element *element)
{
    enum { INTEGER = 10 };
    sonde__data_thrift_field field = {0};

    while (sonde__data_thrift_next(in, &field)) {
        element->logical = field.id;
        if (field.id == LOGICAL_DECIMAL && sonde__data_thrift_struct(in, &field)) {
            read_decimal(in, element);
        } else if (field.id == INTEGER && sonde__data_thrift_struct(in, &field)) {
            read_integer(in, element);
        } else {
            sonde__data_thrift_skip(in, &field);
        }
    }
}

static void read_element(sonde__data_thrift *in, schema_element *element)
{
    sonde__data_thrift_field field = {0};

    *element = (schema_element){.type = -1, .converted = -1};
    while (sonde__data_thrift_next(in, &field)) {
        switch (field.id) {
        case 1:
            element->type = sonde__data_thrift_int(in, &field);
            break;
        case 2:
            element->length = sonde__data_thrift_int(in, &field);
            break;
        case 3:
            element->repetition = sonde__data_thrift_int(in, &field);
            break;
        case 4:
            element->name = sonde__data_thrift_bytes(in, &field, &element->name_size);
            break;
        case 5:
            element->children = sonde__data_thrift_int(in, &field);
            break;
        case 6:
            element->converted = sonde__data_thrift_int(in, &field);
            break;
        case 7:
            element->scale = sonde__data_thrift_int(in, &field);
            break;
        case 10:
            if (sonde__data_thrift_struct(in, &field)) {
                read_logical(in, element);
            }
            break;
        default:
            sonde__data_thrift_skip(in, &field);
        }
    }
}

static sonde_err read_schema(reading *r, const sonde__data_thrift_field *list)
{
    sonde__data_thrift_field element = {0};

    if (r->schema != NULL) {
        return fail_damaged(r, "a second schema");
    }
    r->elements = sonde__data_thrift_list(&r->in, list, &element);
    r->schema = sonde__calloc(r->elements, sizeof *r->schema);
    if (r->schema == NULL) {
        return sonde__fail_nomem(r->diag, "the schema of a table");
    }
    for (size_t i = 0; i < r->elements && !r->in.broken; i++) {
        if (sonde__data_thrift_struct(&r->in, &element)) {
            read_element(&r->in, &r->schema[i]);
        }
    }
    return SONDE_OK;
}

/* Counts the leaves below an element, and passes them; false: the tree is not whole. */
/* NOLINTNEXTLINE(misc-no-recursion): NESTED_DEPTH bounds it */
static bool pass_element(reading *r, size_t *next, int depth)
{
    const int64_t children = *next < r->elements ? r->schema[*next].children : 0;

    if (*next >= r->elements || depth > NESTED_DEPTH || children < 0) {
        return false;
    }
    (*next)++;
    r->file->leaves += children == 0 ? 1 : 0;
    for (int64_t i = 0; i < children; i++) {
        if (!pass_element(r, next, depth + 1)) {
            return false;
        }
    }
    return true;
}

static const char *find_refusal(const schema_element *element)
{
    if (element->children > 0) {
        return "is nested";
    }
    if (element->repetition != REQUIRED && element->repetition != OPTIONAL) {
        return "has several values a row";
    }
    if (element->type == SONDE__PARQUET_INT96) {
        return "is of 96-bit timestamps";
    }
    if (element->logical == LOGICAL_BSON || element->converted == CONVERTED_BSON) {
        return "is BSON";
    }
    if (element->type == SONDE__PARQUET_FIXED && element->logical != LOGICAL_DECIMAL &&
        element->logical != LOGICAL_FLOAT16 && element->converted != CONVERTED_DECIMAL) {
        return element->logical == LOGICAL_UUID ? "is of UUIDs" : "is of binary values";
    }
    return NULL;
}

/* What the values of a leaf are. */
static bool describe_column(const schema_element *element,
                            sonde__data_parquet_column *column)
{
    enum { SCALE_MAX = 76, LENGTH_MAX = 1 << 20 };
    const bool bytes = element->type == SONDE__PARQUET_BYTES;

    column->refusal = find_refusal(element);
    if (column->refusal != NULL) {
        return true;
    }
    column->type = (sonde__data_parquet_type)element->type;
    column->length = (size_t)element->length;
    column->optional = element->repetition == OPTIONAL;
    column->is_unsigned =
        element->logical_unsigned ||
        (element->converted >= CONVERTED_UINT8 && element->converted <= CONVERTED_UINT64);
    column->decimal =
        element->logical == LOGICAL_DECIMAL || element->converted == CONVERTED_DECIMAL;
    column->half =
        element->logical == LOGICAL_FLOAT16 && element->type == SONDE__PARQUET_FIXED;
    column->scale = column->decimal ? (int)element->scale : 0;
    column->text = bytes && !column->decimal;
    return element->type >= 0 && element->type < SONDE__PARQUET_TYPES &&
           element->scale >= 0 && element->scale <= SCALE_MAX &&
           (element->type != SONDE__PARQUET_FIXED ||
            (element->length >= 1 && element->length <= LENGTH_MAX)) &&
           (!column->half || element->length == 2);
}

static sonde_err add_column(reading *r, const schema_element *element, size_t leaf)
{
    sonde__data_parquet *file = r->file;
    sonde__data_parquet_column column = {.leaf = leaf};

    if (element->name == NULL || !describe_column(element, &column)) {
        return fail_damaged(r, "a damaged schema");
    }
    if (file->count == COLUMNS_MAX) {
        return sonde__fail(r->diag, SONDE_ERANGE, file->name, NULL,
                           "more than %d columns", COLUMNS_MAX);
    }
    if (memchr(element->name, 0, element->name_size) != NULL) {
        return fail_damaged(r, "a zero byte in the name of a column");
    }
    if (!sonde__reserve(&file->columns, &file->capacity, file->count + 1,
                        sizeof *file->columns)) {
        return sonde__fail_nomem(r->diag, "a table");
    }
    column.name = sonde__strndup((const char *)element->name, element->name_size);
    if (column.name == NULL) {
        return sonde__fail_nomem(r->diag, "a table");
    }
    file->columns[file->count++] = column;
    return SONDE_OK;
}

/* The columns are the children of the first element. */
static sonde_err make_columns(reading *r)
{
    const int64_t columns = r->elements > 0 ? r->schema[0].children : 0;
    size_t next = 1;
    sonde_err err = SONDE_OK;

    for (int64_t i = 0; i < columns && err == SONDE_OK; i++) {
        const size_t first = next, leaf = r->file->leaves;

        err = pass_element(r, &next, 0) ? add_column(r, &r->schema[first], leaf)
                                        : fail_damaged(r, "a damaged schema");
    }
    if (err == SONDE_OK && (next != r->elements || columns == 0)) {
        return fail_damaged(r, "a damaged schema");
    }
    return err;
}

/* --- the row groups ----------------------------------------------------------------- */

static void read_chunk_traits(sonde__data_thrift *in, sonde__data_parquet_chunk *chunk)
{
    sonde__data_thrift_field field = {0};
    int64_t data = 0, dictionary = 0, size = 0;

    while (sonde__data_thrift_next(in, &field)) {
        switch (field.id) {
        case 1: {
            const int64_t type = sonde__data_thrift_int(in, &field);

            chunk->type = type >= 0 && type < SONDE__PARQUET_TYPES
                              ? (sonde__data_parquet_type)type
                              : SONDE__PARQUET_TYPES;
            break;
        }
        case 4:
            chunk->codec = (int)(uint8_t)sonde__data_thrift_int(in, &field);
            break;
        case 5:
            chunk->values = sonde__data_thrift_int(in, &field);
            break;
        case 7:
            size = sonde__data_thrift_int(in, &field);
            break;
        case 9:
            data = sonde__data_thrift_int(in, &field);
            break;
        case 11:
            dictionary = sonde__data_thrift_int(in, &field);
            break;
        default:
            sonde__data_thrift_skip(in, &field);
        }
    }
    if (dictionary > 0 && dictionary < data) {
        data = dictionary;
    }
    in->broken = in->broken || data < 0 || size < 0;
    chunk->start = in->broken ? 0 : (size_t)data;
    chunk->size = in->broken ? 0 : (size_t)size;
}

static void read_chunk(sonde__data_thrift *in, sonde__data_parquet_chunk *chunk)
{
    sonde__data_thrift_field field = {0};
    bool plain = false;

    *chunk = (sonde__data_parquet_chunk){.type = SONDE__PARQUET_TYPES};
    while (sonde__data_thrift_next(in, &field)) {
        plain = plain || field.id == 3;
        chunk->encrypted = chunk->encrypted || field.id == 8;
        chunk->outside = chunk->outside || field.id == 1;
        if (field.id == 3 && sonde__data_thrift_struct(in, &field)) {
            read_chunk_traits(in, chunk);
        } else {
            sonde__data_thrift_skip(in, &field);
        }
    }
    in->broken = in->broken || (!plain && !chunk->encrypted);
}

static sonde_err read_group(reading *r, sonde__data_parquet_chunk *chunks, int64_t *rows)
{
    sonde__data_thrift_field field = {0}, element = {0};
    bool found = false;

    *rows = -1;
    while (sonde__data_thrift_next(&r->in, &field)) {
        if (field.id == 3) {
            *rows = sonde__data_thrift_int(&r->in, &field);
        } else if (field.id == 1 && !found) {
            found = sonde__data_thrift_list(&r->in, &field, &element) == r->file->leaves;
            for (size_t i = 0; found && i < r->file->leaves && !r->in.broken; i++) {
                if (sonde__data_thrift_struct(&r->in, &element)) {
                    read_chunk(&r->in, &chunks[i]);
                }
            }
            r->in.broken = r->in.broken || !found;
        } else {
            sonde__data_thrift_skip(&r->in, &field);
        }
    }
    return r->in.broken || !found || *rows < 0 ? fail_damaged(r, "a damaged row group")
                                               : SONDE_OK;
}

static sonde_err read_groups(reading *r, const sonde__data_thrift_field *list)
{
    sonde__data_parquet *file = r->file;
    sonde__data_thrift_field element = {0};
    size_t chunks = 0;
    sonde_err err = SONDE_OK;

    if (r->schema == NULL || file->groups > 0) {
        return fail_damaged(r, "row groups without a schema");
    }
    SONDE__TRY(r->in.broken ? SONDE_OK : make_columns(r));
    file->groups = sonde__data_thrift_list(&r->in, list, &element);
    /* a chunk takes more than a byte */
    if (!sonde__mul(file->groups, file->leaves, &chunks) || chunks > file->size) {
        return fail_damaged(r, "a damaged list of row groups");
    }
    file->chunks = sonde__calloc(chunks, sizeof *file->chunks);
    file->group_rows = sonde__calloc(file->groups, sizeof *file->group_rows);
    if (file->chunks == NULL || file->group_rows == NULL) {
        return sonde__fail_nomem(r->diag, "the row groups of a table");
    }
    for (size_t i = 0; i < file->groups && err == SONDE_OK; i++) {
        err = sonde__data_thrift_struct(&r->in, &element)
                  ? read_group(r, file->chunks + i * file->leaves, &file->group_rows[i])
                  : fail_damaged(r, "a damaged list of row groups");
    }
    return err;
}

/* --- the whole ---------------------------------------------------------------------- */

static sonde_err read_footer(reading *r)
{
    sonde__data_thrift_field field = {0};
    bool groups = false;
    sonde_err err = SONDE_OK;

    r->file->rows = -1;
    while (err == SONDE_OK && sonde__data_thrift_next(&r->in, &field)) {
        switch (field.id) {
        case 2:
            err = read_schema(r, &field);
            break;
        case 3:
            r->file->rows = sonde__data_thrift_int(&r->in, &field);
            break;
        case 4:
            groups = true;
            err = read_groups(r, &field);
            break;
        default:
            sonde__data_thrift_skip(&r->in, &field);
        }
    }
    if (err == SONDE_OK && (r->in.broken || !groups || r->file->rows < 0)) {
        return fail_damaged(r, "damaged metadata");
    }
    return err;
}

/* Checks that the chunks are in the file, and as many rows in the groups as in the table. */
static sonde_err check_groups(const reading *r, size_t end)
{
    const sonde__data_parquet *file = r->file;
    uint64_t rows = 0;

    for (size_t i = 0; i < file->groups; i++) {
        rows += (uint64_t)file->group_rows[i];
        if (rows > (uint64_t)file->rows) {
            break;
        }
        /* without rows there are no pages, and their places may be 0 */
        for (size_t k = 0; k < file->leaves && file->group_rows[i] > 0; k++) {
            const sonde__data_parquet_chunk *chunk = &file->chunks[i * file->leaves + k];

            if (!chunk->encrypted && !chunk->outside &&
                (chunk->start < 4 || chunk->start > end ||
                 chunk->size > end - chunk->start)) {
                return fail_damaged(r, "a column outside of the file");
            }
        }
    }
    return rows == (uint64_t)file->rows
               ? SONDE_OK
               : fail_damaged(r, "row groups of another number of rows than the table");
}

/* What cannot be read in any row group. */
static void refuse_columns(const reading *r)
{
    const sonde__data_parquet *file = r->file;

    for (size_t i = 0; i < file->count; i++) {
        sonde__data_parquet_column *column = &file->columns[i];

        for (size_t k = 0; k < file->groups && column->refusal == NULL; k++) {
            const sonde__data_parquet_chunk *chunk =
                &file->chunks[k * file->leaves + column->leaf];

            column->refusal = chunk->encrypted ? "is encrypted"
                              : chunk->outside ? "is in another file"
                                               : NULL;
        }
    }
}

static bool is_mark(const unsigned char *bytes, const char *mark)
{
    return memcmp(bytes, mark, 4) == 0;
}

sonde_err sonde__data_parquet_open(sonde__data_parquet *file, const void *bytes,
                                   size_t size, const char *name, sonde_diag *diag)
{
    const unsigned char *first = bytes, *tail = first + size - (size < TAIL ? 0 : TAIL);
    reading r = {.file = file, .diag = diag};
    sonde_err err = SONDE_OK;

    *file = (sonde__data_parquet){.bytes = bytes, .size = size, .name = name};
    if (size < 4 || (!is_mark(first, "PAR1") && !is_mark(first, "PARE"))) {
        return sonde__fail(diag, SONDE_EFORMAT, name, "PAR1 at its start", "not Parquet");
    }
    if (size < TAIL + 4 || (!is_mark(tail + 4, "PAR1") && !is_mark(tail + 4, "PARE"))) {
        return sonde__fail(diag, SONDE_EFORMAT, name, "PAR1 at its end",
                           "the Parquet file is cut short");
    }
    if (is_mark(first, "PARE") || is_mark(tail + 4, "PARE")) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, name, "a file without encryption",
                           "the Parquet file is encrypted");
    }
    const size_t footer = (size_t)tail[0] | (size_t)tail[1] << 8 | (size_t)tail[2] << 16 |
                          (size_t)tail[3] << 24;
    if (footer > size - TAIL - 4) {
        return fail_damaged(&r, "metadata longer than the file");
    }
    r.in = (sonde__data_thrift){.next = tail - footer, .end = tail};
    err = read_footer(&r);
    if (err == SONDE_OK) {
        err = check_groups(&r, size - TAIL - footer);
    }
    if (err == SONDE_OK) {
        refuse_columns(&r);
    }
    sonde__free(r.schema);
    return err;
}

void sonde__data_parquet_close(sonde__data_parquet *file)
{
    for (size_t i = 0; i < file->count; i++) {
        sonde__free(file->columns[i].name);
    }
    sonde__free(file->columns);
    sonde__free(file->chunks);
    sonde__free(file->group_rows);
    *file = (sonde__data_parquet){0};
}
