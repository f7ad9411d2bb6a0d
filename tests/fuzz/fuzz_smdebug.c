/*
 * fuzz_smdebug.c - files of smdebug's, from any bytes. The first byte says which:
 *
 *     i an index   c collections   e an event's payload   else a whole event file
 *
 * A payload is also wrapped as a record whose checksums are right, which an index then
 * names.
 */
#include "run_folder.h"

#include "trial/smdebug.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEP "000000000003"
#define INDEX "index/000000000/" STEP "_worker_0.json"
#define EVENTS "events/" STEP "/" STEP "_worker_0.tfevents"
#define COLLECTIONS "collections/000000000/worker_0_collections.json"

static const char collections[] =
    "{\"collections\":{\"w\":{\"include_regex\":[\"^t\"],\"tensor_names\":[\"t\"]}},"
    "\"_meta\":{\"num_workers\":1}}";

static void write_index(size_t length)
{
    char text[512];
    const int n = snprintf(text, sizeof text,
                           "{\"meta\":{\"mode\":\"TRAIN\",\"mode_step\":1,"
                           "\"event_file_name\":\"" EVENTS "\"},\"tensor_payload\":["
                           "{\"tensorname\":\"t\",\"start_idx\":0,\"length\":%zu}]}",
                           length);

    fuzz_write(INDEX, text, (size_t)n);
}

static void begin(void)
{
    static const char *const folders[] = {"index",       "index/000000000",
                                          "events",      "events/" STEP,
                                          "collections", "collections/000000000"};

    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        fuzz_mkdir(folders[i]);
    }
    fuzz_write("training_job_end.ts", "", 0);
}

static void write_record(const uint8_t *payload, size_t size)
{
    const uint64_t length = size;
    unsigned char *record = malloc(size + 16);
    uint32_t crc = 0;

    expect(record != NULL);
    memcpy(record, &length, 8);
    crc = sonde__smdebug_masked_crc32c(record, 8);
    memcpy(record + 8, &crc, 4);
    if (size > 0) {
        memcpy(record + 12, payload, size);
    }
    crc = sonde__smdebug_masked_crc32c(record + 12, size);
    memcpy(record + 12 + size, &crc, 4);
    fuzz_write(EVENTS, record, size + 16);
    write_index(size + 16);
    free(record);
}

static void check_payload(const uint8_t *payload, size_t size)
{
    sonde_view view;
    sonde_diag diag = {0};
    const sonde_err err =
        sonde__smdebug_event_tensor(payload, size, "t", "x", &view, &diag);

    if (err == SONDE_OK) {
        const uint8_t *start = view.data;

        expect(start >= payload &&
               (uint64_t)sonde_view_count(&view) * sonde_dtype_size(view.dtype) <=
                   (uint64_t)(payload + size - start));
    } else {
        expect(diag.err == err && diag.found[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char kind = size > 0 ? (char)data[0] : '\0';
    const uint8_t *rest = size > 0 ? data + 1 : (const uint8_t *)"";
    const size_t left = size > 0 ? size - 1 : 0;

    if (fuzz_begin()) {
        begin();
    }
    fuzz_write(COLLECTIONS, collections, sizeof collections - 1);
    write_index(left);
    fuzz_write(EVENTS, rest, left);
    if (kind == 'i') {
        fuzz_write(INDEX, rest, left);
    } else if (kind == 'c') {
        fuzz_write(COLLECTIONS, rest, left);
    } else if (kind == 'e') {
        check_payload(rest, left);
        write_record(rest, left);
    }
    fuzz_read_run();
    return 0;
}
