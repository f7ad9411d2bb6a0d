/*
 * fuzz_stats.c - the small files of a run, from any bytes. The first byte chooses: 'n'
 * closed statistics, 'p' a part of them, 't' steps, 'g' generations, otherwise sketches.
 * If it is a capital letter, rows and records get the right check, so that the code
 * after it is reached.
 */
#include "run_folder.h"

#include "format/format.h"
#include "trial/trial_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char catalogue[] =
    "{\"id\":0,\"name\":\"a\",\"role\":\"weight\",\"dtype\":\"float32\",\"shape\":[2]}\n";

static void mend_rows(unsigned char *bytes, size_t size)
{
    for (size_t at = SONDE__STATS_HEAD; at + SONDE__STATS_ROW <= size;
         at += SONDE__STATS_ROW) {
        sonde__record_stats_row row;

        memcpy(&row, bytes + at, sizeof row);
        row.check = sonde__record_stats_check(&row);
        memcpy(bytes + at, &row, sizeof row);
    }
}

static void mend_steps(unsigned char *bytes, size_t size)
{
    for (size_t at = SONDE__STEPS_HEAD; at + SONDE__STEPS_ROW <= size;
         at += SONDE__STEPS_ROW) {
        sonde__record_step_row row;

        memcpy(&row, bytes + at, sizeof row);
        row.check = sonde__record_step_check(&row);
        memcpy(bytes + at, &row, sizeof row);
    }
}

static void mend_sketches(unsigned char *bytes, size_t size)
{
    size_t at = SONDE__SKETCH_HEAD;

    while (at + SONDE__SKETCH_FIXED <= size) {
        sonde__record_sketch_record *record = (void *)(bytes + at);

        if (!sonde__record_sketch_valid(record, size - at)) {
            break;
        }
        record->check = sonde__record_sketch_check(record);
        at += record->length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char kind = size > 0 ? (char)(data[0] | 32) : '\0';
    const bool mend = size > 0 && data[0] < 'a', is_stats = kind == 'n' || kind == 'p',
               is_steps = kind == 't', is_resumes = kind == 'g';
    const size_t left = size > 0 ? size - 1 : 0;
    unsigned char *bytes = calloc(1, left + 1);
    uint64_t rows = 0;

    expect(bytes != NULL);
    if (left > 0) {
        memcpy(bytes, data + 1, left);
    }
    if (fuzz_begin()) {
        fuzz_mkdir("w0000");
        fuzz_write("run.json", "{\"sonde_run\":1}", 15);
        fuzz_write("end.json", "{}", 2);
        fuzz_write("w0000/catalogue.jsonl", catalogue, sizeof catalogue - 1);
    }
    if (mend && is_stats) {
        mend_rows(bytes, left);
    } else if (mend && is_steps) {
        mend_steps(bytes, left);
    } else if (mend) {
        mend_sketches(bytes, left);
    }
    (void)sonde__trial_head_read(is_steps ? SONDE__FILE_STEPS : SONDE__FILE_STATS,
                                 (const char *)bytes, left, &rows);
    fuzz_write("w0000/stats-00000000.npy", bytes, kind == 'n' ? left : 0);
    fuzz_write("w0000/stats-00000001.part", bytes, kind == 'p' ? left : 0);
    fuzz_write("w0000/sketch-00000000.bin", bytes,
               is_stats || is_steps || is_resumes ? 0 : left);
    fuzz_write("w0000/steps-00000000.npy", bytes, is_steps ? left : 0);
    fuzz_write("w0000/generations.jsonl", bytes, is_resumes ? left : 0);
    fuzz_read_run();
    free(bytes);
    return 0;
}
