/*
 * state.c - state.json: what a worker says of itself.
 */
#include "record/writer.h"
#include "base/clock.h"
#include "base/macros.h"

#include <sonde/json.h>

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static uint64_t both(const _Atomic uint64_t *now, const _Atomic uint64_t *before)
{
    return atomic_load_explicit(now, memory_order_relaxed) +
           atomic_load_explicit(before, memory_order_relaxed);
}

static void print_state(const sonde__record_writer *writer, bool running,
                        sonde_text *text)
{
    const sonde__record_counters *now = &writer->counters, *before = &writer->before;
    const int64_t last =
        SONDE_MAX(atomic_load_explicit(&now->last_step, memory_order_relaxed),
                  atomic_load_explicit(&before->last_step, memory_order_relaxed));
    sonde_json json = {.text = text};
    char date[SONDE__DATE_TEXT];

    sonde_json_object(&json, NULL);
    sonde_json_string(&json, "status", running ? "running" : "ended");
    sonde_json_int(&json, "pid", getpid());
    sonde_json_string(&json, "host", writer->host);
    sonde_json_string(&json, "heartbeat", sonde__date_text(date));
    sonde_json_int(&json, "last_step", last);
    sonde_json_uint(&json, "segment", writer->segment.number);
    sonde_json_uint(&json, "stats", writer->stats.number);
    sonde_json_uint(&json, "sketch", writer->sketches.number);
    sonde_json_uint(&json, "steps", writer->steps.number);
    sonde_json_uint(&json, "generation", writer->generation);
    sonde_json_uint(&json, "records", both(&now->records, &before->records));
    sonde_json_uint(&json, "bytes", both(&now->bytes, &before->bytes));
    sonde_json_uint(&json, "rows", both(&now->rows, &before->rows));
    sonde_json_object(&json, "lost");
    sonde_json_uint(&json, "ring_full",
                    atomic_load_explicit(&writer->ring_full, memory_order_relaxed) +
                        writer->ring_full_before);
    sonde_json_uint(&json, "disk_full", both(&now->disk_full, &before->disk_full));
    sonde_json_uint(&json, "io_error",
                    both(&now->io_error, &before->io_error) +
                        atomic_load_explicit(&writer->refused, memory_order_relaxed));
    sonde_json_end(&json);
    sonde_json_end(&json);
    sonde_text_add(text, "\n");
}

int sonde__record_writer_beat(sonde__record_writer *writer, bool running)
{
    sonde_text text = {0};
    char path[SONDE__FILE_NAME * 2];
    int failed = ENOMEM;

    (void)snprintf(path, sizeof path, "%s/%s", writer->folder, SONDE__STATE_FILE);
    print_state(writer, running, &text);
    if (!text.failed) {
        failed = writer->backend->ops->replace(writer->backend, path, text.data,
                                               text.length, false, !running);
    }
    sonde_text_fini(&text);
    if (failed == 0) {
        writer->changed = false;
    }
    return failed;
}
