/*
 * fuzz_index.c - the text files of a run, from any bytes. The first byte says which:
 *
 *     c catalogue.jsonl   r run.json   s state.json   e end.json   f files.jsonl
 *     n findings.json     l a file of findings         q control.jsonl   else an index
 *
 * A line that is taken for an index line is written again to the same bytes. The run that
 * the file belongs to is read to its end.
 */
#include "run_folder.h"

#include "format/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char catalogue[] =
    "{\"id\":0,\"name\":\"a\",\"role\":\"weight\",\"dtype\":\"float32\",\"shape\":[2]}\n"
    "{\"id\":1,\"name\":\"b\",\"role\":\"bias\",\"dtype\":\"uint8\",\"shape\":[]}\n";
static const char run[] = "{\"sonde_run\":1,\"id\":\"x\",\"world\":1}";
static const char state[] = "{\"status\":\"ended\"}";

/* A segment with 256 bytes of data after a header of 8. */
static void write_segment(void)
{
    unsigned char bytes[8 + 8 + 256] = {8};

    memset(bytes + 8, ' ', 8);
    for (size_t i = 16; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)i;
    }
    fuzz_write("w0000/seg-00000000.part", bytes, sizeof bytes);
}

static void check_lines(const char *text, size_t size)
{
    while (size > 0) {
        const char *end = memchr(text, '\n', size);
        const size_t length = end != NULL ? (size_t)(end - text) : size;
        char again[SONDE__INDEX_ROOM];
        sonde__record_index_line line;

        if (sonde__record_index_parse(text, length, &line)) {
            expect(sonde__record_index_print(&line, again) == length + 1);
            expect(memcmp(text, again, length) == 0);
        }
        size -= end != NULL ? length + 1 : length;
        text += end != NULL ? length + 1 : length;
    }
}

static const char *file_of(char kind)
{
    switch (kind) {
    case 'c':
        return "w0000/catalogue.jsonl";
    case 'r':
        return "run.json";
    case 's':
        return "w0000/state.json";
    case 'e':
        return "end.json";
    case 'f':
        return "w0000/files.jsonl";
    case 'n':
        return "findings.json";
    case 'l':
        return "findings/NonFinite.jsonl";
    case 'q':
        return "control.jsonl";
    default:
        return "w0000/seg-00000000.jsonl";
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char kind = size > 0 ? (char)data[0] : '\0';
    const char *rest = size > 0 ? (const char *)data + 1 : "";
    const size_t left = size > 0 ? size - 1 : 0;
    const char *const file = file_of(kind);

    if (fuzz_begin()) {
        fuzz_mkdir("w0000");
        fuzz_mkdir("findings");
        write_segment();
    }
    fuzz_write("w0000/catalogue.jsonl", catalogue, sizeof catalogue - 1);
    fuzz_write("run.json", run, sizeof run - 1);
    fuzz_write("w0000/state.json", state, sizeof state - 1);
    fuzz_write("w0000/seg-00000000.jsonl", "", 0);
    fuzz_write("end.json", "{}", 2);
    fuzz_write("w0000/files.jsonl", "", 0);
    fuzz_write("findings.json", "{}", 2);
    fuzz_write("findings/NonFinite.jsonl", "", 0);
    fuzz_write("control.jsonl", "", 0);
    if (strcmp(file, "w0000/seg-00000000.jsonl") == 0) {
        check_lines(rest, left);
    }
    fuzz_write(file, rest, left);
    fuzz_read_run();
    return 0;
}
