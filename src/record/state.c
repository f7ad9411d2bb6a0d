/*
 * state.c - state.json: what a worker says of itself.
 */
#include "record/writer.h"
#include "base/macros.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static uint64_t both(const _Atomic uint64_t *now, const _Atomic uint64_t *before)
{
    return atomic_load_explicit(now, memory_order_relaxed) +
           atomic_load_explicit(before, memory_order_relaxed);
}

static void add_number(sonde__record_text *text, const char *key, uint64_t value)
{
    sonde__record_text_format(text, ",\"%s\":%llu", key, (unsigned long long)value);
}

static void print_state(const sonde__record_writer *writer, bool running,
                        sonde__record_text *text)
{
    const sonde__record_counters *now = &writer->counters, *before = &writer->before;
    const int64_t last =
        SONDE_MAX(atomic_load_explicit(&now->last_step, memory_order_relaxed),
                  atomic_load_explicit(&before->last_step, memory_order_relaxed));

    sonde__record_text_format(text, "{\"status\":\"%s\",\"pid\":%ld",
                              running ? "running" : "ended", (long)getpid());
    sonde__record_text_member(text, "host", writer->host);
    sonde__record_text_add(text, ",\"heartbeat\":\"");
    sonde__record_text_moment(text);
    sonde__record_text_format(text, "\",\"last_step\":%lld", (long long)last);
    add_number(text, "segment", writer->segment.number);
    add_number(text, "stats", writer->stats.number);
    add_number(text, "sketch", writer->sketches.number);
    add_number(text, "steps", writer->steps.number);
    add_number(text, "generation", writer->generation);
    add_number(text, "records", both(&now->records, &before->records));
    add_number(text, "bytes", both(&now->bytes, &before->bytes));
    add_number(text, "rows", both(&now->rows, &before->rows));
    sonde__record_text_format(
        text, ",\"lost\":{\"ring_full\":%llu",
        (unsigned long long)(atomic_load_explicit(&writer->ring_full,
                                                  memory_order_relaxed) +
                             writer->ring_full_before));
    add_number(text, "disk_full", both(&now->disk_full, &before->disk_full));
    add_number(text, "io_error",
               both(&now->io_error, &before->io_error) +
                   atomic_load_explicit(&writer->refused, memory_order_relaxed));
    sonde__record_text_add(text, "}}\n");
}

int sonde__record_writer_beat(sonde__record_writer *writer, bool running)
{
    sonde__record_text text = {0};
    char path[SONDE__FILE_NAME * 2];
    int failed = ENOMEM;

    (void)snprintf(path, sizeof path, "%s/%s", writer->folder, SONDE__STATE_FILE);
    print_state(writer, running, &text);
    if (!text.failed) {
        failed = writer->backend->ops->replace(writer->backend, path, text.start,
                                               text.used, false, !running);
    }
    sonde__record_text_fini(&text);
    if (failed == 0) {
        writer->changed = false;
    }
    return failed;
}
