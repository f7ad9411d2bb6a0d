/*
 * layer_row.c - finding layers and keys by name, and putting values of keys into attrs.
 */
#include "nn/ops/layer_row.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const sonde__op_layer *sonde__op_find_layer(const char *name)
{
    for (size_t i = 0; sonde__op_layers[i] != NULL; i++) {
        if (strcmp(sonde__op_layers[i]->name, name) == 0) {
            return sonde__op_layers[i];
        }
    }
    return NULL;
}

const char *sonde__op_nearest_layer(const char *name)
{
    enum { MOST = 256 };
    const char *names[MOST];
    size_t count = 0;

    while (count < MOST && sonde__op_layers[count] != NULL) {
        names[count] = sonde__op_layers[count]->name;
        count++;
    }
    return sonde_diag_nearest(name, names, count);
}

int sonde__op_field_count(const sonde__op_layer *layer)
{
    int count = 0;

    while (count < SONDE__MAX_FIELDS && layer->fields[count].key != NULL) {
        count++;
    }
    return count;
}

const sonde__op_field *sonde__op_find_field(const sonde__op_layer *layer, const char *key)
{
    for (int i = 0; i < sonde__op_field_count(layer); i++) {
        if (strcmp(layer->fields[i].key, key) == 0) {
            return &layer->fields[i];
        }
    }
    return NULL;
}

/* --- values --------------------------------------------------------------------------- */

/* Writes what has been checked. */
static void put(const sonde__op_field *field, sonde__op_attrs *attrs,
                const double *values, int count)
{
    char *member = (char *)attrs + field->offset;
    int64_t pair[2], triple[3];

    switch (field->kind) {
    case SONDE__FIELD_NUMBER:
        memcpy(member, &(float){(float)values[0]}, sizeof(float));
        break;
    case SONDE__FIELD_WHOLE:
        memcpy(member, &(int64_t){(int64_t)values[0]}, sizeof(int64_t));
        break;
    case SONDE__FIELD_PAIR:
        pair[0] = (int64_t)values[0];
        pair[1] = (int64_t)values[count - 1];
        memcpy(member, pair, sizeof pair);
        break;
    case SONDE__FIELD_TRIPLE:
        for (int i = 0; i < 3; i++) {
            triple[i] = (int64_t)values[count == 3 ? (i + 1) % 3 : 0];
        }
        memcpy(member, triple, sizeof triple);
        break;
    case SONDE__FIELD_FLAG:
        memcpy(member, &(bool){values[0] != 0.0}, sizeof(bool));
        break;
    case SONDE__FIELD_AXIS:
    case SONDE__FIELD_WORD:
        memcpy(member, &(int){(int)values[0]}, sizeof(int));
        break;
    case SONDE__FIELD_DIMS:
        attrs->shape.rank = count;
        for (int i = 0; i < count; i++) {
            attrs->shape.dims[i] = (int64_t)values[i];
        }
        break;
    }
}

void sonde__op_set_defaults(const sonde__op_layer *layer, sonde__op_attrs *attrs)
{
    for (int i = 0; i < sonde__op_field_count(layer); i++) {
        const sonde__op_field *field = &layer->fields[i];

        if (!isnan(field->fallback)) {
            put(field, attrs, &field->fallback, field->kind == SONDE__FIELD_DIMS ? 0 : 1);
        }
    }
}

static int most_values(const sonde__op_field *field)
{
    return field->kind == SONDE__FIELD_DIMS     ? SONDE_MAX_DIMS
           : field->kind == SONDE__FIELD_TRIPLE ? 3
           : field->kind == SONDE__FIELD_PAIR   ? 2
                                                : 1;
}

sonde_err sonde__op_set_field(const sonde__op_field *field, sonde__op_attrs *attrs,
                              const double *values, int count, sonde_diag *diag)
{
    const bool whole =
        field->kind != SONDE__FIELD_NUMBER && field->kind != SONDE__FIELD_WORD;
    const bool flag = field->kind == SONDE__FIELD_FLAG;
    const double least = flag ? 0.0 : field->least, most = flag ? 1.0 : field->most;
    char range[64];

    if (field->kind == SONDE__FIELD_WORD || count < 1 || count > most_values(field) ||
        (field->kind == SONDE__FIELD_TRIPLE && count == 2)) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, NULL, "%s has %d numbers",
                           field->key, count);
    }
    for (int i = 0; i < count; i++) {
        if (values[i] >= least && values[i] <= most &&
            (!whole || values[i] == floor(values[i]))) {
            continue;
        }
        (void)sonde__snprintf(range, sizeof range,
                              whole ? "a whole number from %.15g to %.15g" : "%g to %g",
                              least, most);
        return sonde__fail(diag, SONDE_EINVAL, NULL, range, "%s is %g", field->key,
                           values[i]);
    }
    put(field, attrs, values, count);
    return SONDE_OK;
}

sonde_err sonde__op_set_word(const sonde__op_field *field, sonde__op_attrs *attrs,
                             const char *word, sonde_diag *diag)
{
    char all[128] = "";

    if (field->may_be_none && strcmp(word, "none") == 0) {
        put(field, attrs, &(double){(double)NAN}, 1);
        return SONDE_OK;
    }
    for (int i = 0; field->kind == SONDE__FIELD_WORD &&
                    i < (int)SONDE_COUNT_OF(field->words) && field->words[i] != NULL;
         i++) {
        const size_t length = strlen(all);

        if (strcmp(word, field->words[i]) == 0) {
            put(field, attrs, &(double){(double)i}, 1);
            return SONDE_OK;
        }
        (void)snprintf(all + length, sizeof all - length, "%s%s", i > 0 ? ", " : "",
                       field->words[i]);
    }
    return sonde__fail(diag, SONDE_EINVAL, NULL,
                       all[0] != '\0'       ? all
                       : field->may_be_none ? "a number or none"
                                            : "a number",
                       "%s is '%s'", field->key, word);
}

/* --- building ------------------------------------------------------------------------- */

sonde__op_value sonde__op_build(const sonde__op_builder *builder,
                                const sonde__op_kind *kind, const sonde__op_attrs *attrs,
                                const sonde__op_value *in, int count)
{
    for (int i = 0; i < count; i++) {
        if (in[i] == 0) {
            return 0;
        }
    }
    return builder->emit(builder, kind, attrs, in, count);
}
