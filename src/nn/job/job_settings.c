/*
 * job_settings.c - the keys of a layer that is a row of src/nn/ops.
 */
#include "nn/job/job.h"

#include <string.h>

/* PyTorch's None. */
static bool is_none(const sonde__yaml *node)
{
    return node->kind == SONDE__YAML_SCALAR &&
           (strcmp(node->text, "none") == 0 || strcmp(node->text, "null") == 0);
}

/* The value of one key of a row; *given: it is there. */
static sonde_err read_setting(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                              const sonde__op_field *field, sonde_nn_setting *setting,
                              bool *given)
{
    int64_t numbers[SONDE_MAX_DIMS] = {0};
    size_t count = 0;
    float number = 0.0F;
    bool flag = false;
    sonde_err err = SONDE_OK;

    *given = sonde__yaml_get(entry, field->key) != NULL;
    if (!*given) {
        return SONDE_OK;
    }
    *setting = (sonde_nn_setting){.key = field->key, .count = 1};
    switch (field->kind) {
    case SONDE__FIELD_WORD:
        return sonde__yaml_text(reader, entry, field->key, &setting->word);
    case SONDE__FIELD_FLAG:
        err = sonde__yaml_bool(reader, entry, field->key, &flag);
        setting->values[0] = flag ? 1.0 : 0.0;
        return err;
    case SONDE__FIELD_NUMBER:
        if (field->may_be_none && is_none(sonde__yaml_get(entry, field->key))) {
            setting->word = "none";
            return SONDE_OK;
        }
        err = sonde__yaml_float(reader, entry, field->key, &number);
        setting->values[0] = (double)number;
        return err;
    case SONDE__FIELD_WHOLE:
    case SONDE__FIELD_AXIS:
    case SONDE__FIELD_PAIR:
    case SONDE__FIELD_TRIPLE:
    case SONDE__FIELD_DIMS:
        break;
    }
    err = sonde__yaml_ints(reader, entry, field->key, numbers, SONDE_MAX_DIMS, &count);
    setting->count = (int)count;
    for (size_t i = 0; i < count; i++) {
        setting->values[i] = (double)numbers[i];
    }
    return err;
}

sonde_err sonde__job_read_settings(const sonde__yaml_reader *reader,
                                   const sonde__yaml *entry, const sonde__op_layer *row,
                                   sonde_nn_setting settings[SONDE__MAX_FIELDS],
                                   size_t *count)
{
    *count = 0;
    for (int i = 0; i < sonde__op_field_count(row); i++) {
        bool given = false;
        const sonde_err err =
            read_setting(reader, entry, &row->fields[i], &settings[*count], &given);

        if (err != SONDE_OK) {
            return err;
        }
        *count += given ? 1 : 0;
    }
    return SONDE_OK;
}
