/*
 * print.c - the sink that prints.
 *
 * A text is made whole in a buffer that prepare sized for the largest tensor, and goes
 * out by one fwrite under the stream's lock: on an unbuffered stream (stderr) one write
 * of the system. Tensors that cannot be printed are counted, with one message.
 */
#include <sonde/error.h>
#include <sonde/print.h>

#include "base/fail.h"
#include "base/memory.h"
#include "base/given.h"

#include <sonde/log.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sonde_printer {
    sonde_sink sink; /* first */
    sonde_print_options options;
    FILE *stream;
    char **titles; /* by id; NULL: the tensor's name */
    size_t title_capacity;
    sonde_text text;
    uint64_t lost;
};

static const char between[] = ": ";

static const char *title_of(const sonde_printer *printer, uint32_t id,
                            const sonde_tensor_info *info)
{
    return id < printer->title_capacity && printer->titles[id] != NULL
               ? printer->titles[id]
               : info->name;
}

/* Bytes for `title: VALUE` and a newline; SIZE_MAX if too many to count. */
static size_t needed(const char *title, sonde_dtype dtype, int rank, const int64_t *shape,
                     const sonde_print_options *options)
{
    size_t length = sonde_format_bound(dtype, rank, shape, options);

    if (length == SIZE_MAX ||
        __builtin_add_overflow(length, strlen(title) + sizeof between, &length)) {
        return SIZE_MAX;
    }
    return length;
}

static sonde_err prepare(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                         unsigned how, const sonde_call_shape *shape, sonde_diag *diag)
{
    sonde_printer *printer = (sonde_printer *)sink;
    const size_t length = needed(title_of(printer, id, info), info->dtype, info->rank,
                                 info->shape, &printer->options);

    (void)how;
    (void)shape;
    return sonde_text_reserve(&printer->text, length) == SONDE_OK
               ? SONDE_OK
               : sonde__fail_nomem(diag, "text to print");
}

static void lose(sonde_printer *printer, const char *title, const char *why)
{
    if (printer->lost++ == 0) {
        sonde_log(SONDE_LOG_ERROR, "observe", "'%s' is not printed: %s", title, why);
    }
}

static void add(sonde_text *text, const char *bytes, size_t length)
{
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
}

static void put(sonde_sink *sink, const sonde_observation *seen)
{
    sonde_printer *printer = (sonde_printer *)sink;
    const sonde_view *view = seen->view;
    const char *title = title_of(printer, seen->id, seen->info);
    const size_t length =
        needed(title, view->dtype, view->rank, view->shape, &printer->options);
    sonde_text *text = &printer->text;

    if (length >= text->capacity) {
        lose(printer, title, "it is larger than it was declared");
        return;
    }
    text->length = 0;
    add(text, title, strlen(title));
    add(text, between, strlen(between));
    if (sonde_format_tensor(view, &printer->options, text->length, text) != SONDE_OK) {
        lose(printer, title, "out of memory"); /* the bound excludes it */
        return;
    }
    add(text, "\n", 1);
    flockfile(printer->stream);
    const bool written =
        fwrite(text->data, 1, text->length, printer->stream) == text->length &&
        fflush(printer->stream) == 0;
    funlockfile(printer->stream);
    if (!written) {
        lose(printer, title, "the stream cannot be written");
    }
}

sonde_err sonde_printer_create(const sonde_print_options *options, FILE *stream,
                               sonde_printer **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, out);
    sonde_print_options taken = sonde_print_options_default();

    if (options != NULL) {
        SONDE__TAKE(sonde_print_options, &taken, options, diag);
    }
    SONDE__TRY(sonde_print_options_check(&taken, diag));
    sonde_printer *printer = sonde__calloc(1, sizeof *printer);
    if (printer == NULL) {
        return sonde__fail_nomem(diag, "a printer");
    }
    printer->sink = (sonde_sink){.prepare = prepare, .put = put};
    printer->options = taken;
    printer->stream = stream != NULL ? stream : stderr;
    *out = printer;
    return SONDE_OK;
}

void sonde_printer_destroy(sonde_printer *printer)
{
    if (printer == NULL) {
        return;
    }
    for (size_t i = 0; i < printer->title_capacity; i++) {
        sonde__free(printer->titles[i]);
    }
    sonde__free(printer->titles);
    sonde_text_fini(&printer->text);
    sonde__free(printer);
}

sonde_err sonde_printer_title(sonde_printer *printer, uint32_t id, const char *title,
                              sonde_diag *diag)
{
    SONDE__NEEDS(diag, printer, title);
    const size_t had = printer->title_capacity;
    char *copy = sonde__strdup(title);

    if (copy == NULL || !sonde__reserve(&printer->titles, &printer->title_capacity,
                                        (size_t)id + 1, sizeof(char *))) {
        sonde__free(copy);
        return sonde__fail_nomem(diag, "a title");
    }
    for (size_t i = had; i < printer->title_capacity; i++) {
        printer->titles[i] = NULL;
    }
    sonde__free(printer->titles[id]);
    printer->titles[id] = copy;
    return SONDE_OK;
}

sonde_sink *sonde_printer_sink(sonde_printer *printer)
{
    return &printer->sink;
}

uint64_t sonde_printer_lost(const sonde_printer *printer)
{
    if (printer == NULL) {
        return 0;
    }
    return printer->lost;
}
