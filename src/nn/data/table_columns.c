/*
 * table_columns.c - what the readers of tables share; see table_state.h.
 */
#include "base/fail.h"
#include "base/memory.h"
#include "nn/data/table_state.h"

#include <string.h>

bool sonde__data_table_ends_with(const char *path, const char *ending)
{
    const size_t length = strlen(path), tail = strlen(ending);

    return length > tail && strcmp(path + length - tail, ending) == 0;
}

sonde_err sonde__data_table_add_column(sonde__data_table *t, const char *name)
{
    if (t->count == SONDE__TABLE_COLUMNS_MAX) {
        return sonde__fail(t->diag, SONDE_ERANGE, t->path, NULL, "more than %d columns",
                           SONDE__TABLE_COLUMNS_MAX);
    }
    if (!sonde__reserve(&t->columns, &t->capacity, t->count + 1, sizeof *t->columns)) {
        return sonde__fail_nomem(t->diag, "a table");
    }
    sonde__data_table_column *column = &t->columns[t->count];
    *column = (sonde__data_table_column){.numbers = true};
    sonde__names_init(&column->texts);
    column->name = sonde__strdup(name);
    t->count += column->name != NULL ? 1 : 0;
    return column->name != NULL ? SONDE_OK : sonde__fail_nomem(t->diag, "a table");
}

sonde_err sonde__data_table_text_value(const sonde__data_table *t,
                                       sonde__data_table_column *column, const char *text,
                                       double *value)
{
    const uint32_t id = sonde__names_intern(&column->texts, text);

    *value = (double)id;
    return id != SONDE__NO_NAME ? SONDE_OK : sonde__fail_nomem(t->diag, "a table");
}

size_t sonde__data_table_find_column(const sonde__data_table *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++) {
        if (t->columns[i].name[0] != '\0' && strcmp(t->columns[i].name, name) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}
