/*
 * job_print.c - how a layer `print` of a job prints.
 */
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/macros.h"

#include <string.h>

/* Text of at most 7 bytes; what is there stays if the key is missing. */
static sonde_err read_short_text(const sonde__yaml_reader *reader,
                                 const sonde__yaml *entry, const char *key, char *to,
                                 size_t size)
{
    const char *text = NULL;
    const sonde_err err = sonde__yaml_text(reader, entry, key, &text);

    if (err != SONDE_OK || text == NULL) {
        return err;
    }
    if (strlen(text) >= size) {
        return sonde__yaml_fail(reader, sonde__yaml_get(entry, key), SONDE_EINVAL,
                                "at most 7 characters", "%s is '%s'", key, text);
    }
    memcpy(to, text, strlen(text) + 1);
    return SONDE_OK;
}

static sonde_err read_float_format(const sonde__yaml_reader *reader,
                                   const sonde__yaml *entry, sonde_float_format *format)
{
    const char *text = NULL;
    sonde_diag diag = {0};
    sonde_err err = sonde__yaml_text(reader, entry, "float_format", &text);

    if (err != SONDE_OK || text == NULL) {
        return err;
    }
    err = sonde_float_format_parse(text, format, &diag);
    if (err != SONDE_OK) {
        return sonde__yaml_fail(reader, sonde__yaml_get(entry, "float_format"), err,
                                diag.expected, "float_format is '%s'", text);
    }
    return SONDE_OK;
}

/* Keys that are missing leave their options as they are. */
static sonde_err read_print(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                            sonde_print_options *options)
{
    struct {
        const char *key;
        int64_t most, value;
        int *to; /* NULL: the threshold */
    } numbers[] = {
        {"summarise_threshold", INT64_MAX, options->summarise_threshold, NULL},
        {"edge_items", INT32_MAX, options->edge_items, &options->edge_items},
        {"max_line_width", INT32_MAX, options->max_line_width, &options->max_line_width},
        {"digits", 17, options->digits, &options->digits}};
    const struct {
        const char *key;
        char *to;
    } texts[] = {{"separator", options->separator},
                 {"open_bracket", options->open_bracket},
                 {"close_bracket", options->close_bracket}};
    SONDE__TRY(read_float_format(reader, entry, &options->float_format));
    for (size_t i = 0; i < SONDE_COUNT_OF(numbers); i++) {
        SONDE__TRY(sonde__yaml_int(reader, entry, numbers[i].key, 0, numbers[i].most,
                                   &numbers[i].value));
        if (numbers[i].to != NULL) {
            *numbers[i].to = (int)numbers[i].value;
        }
    }
    options->summarise_threshold = numbers[0].value;
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        SONDE__TRY(read_short_text(reader, entry, texts[i].key, texts[i].to,
                                   sizeof options->separator));
    }
    return SONDE_OK;
}

sonde_err sonde__job_build_print(const sonde__yaml_reader *reader,
                                 const sonde__yaml *entry, sonde_nn_model *model,
                                 const char *name, sonde_nn_value in, sonde_nn_value *out)
{
    sonde_print_options options = sonde_print_options_default();
    bool gradient = true;
    SONDE__TRY(sonde__yaml_bool(reader, entry, "gradient", &gradient));
    SONDE__TRY(read_print(reader, entry, &options));
    *out = sonde_nn_print(model, in, name, gradient, &options);
    return SONDE_OK;
}
