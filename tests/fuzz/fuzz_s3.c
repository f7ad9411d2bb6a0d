/*
 * fuzz_s3.c - what S3 reads from others, from any bytes. The first byte says which:
 *
 *     p ~/.aws/config and credentials   j keys in JSON   t a time   else an answer in XML
 */
#include "run_folder.h"

#include "base/memory.h"
#include "store/s3/keys.h"
#include "store/s3/objects.h"
#include "store/s3/profile.h"
#include "store/s3/http.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_profile(const char *text, size_t size)
{
    static const char *const keys[] = {"region", "s3.addressing_style", "source_profile"};

    if (fuzz_begin()) {
        char path[128];

        (void)snprintf(path, sizeof path, "%s/config", fuzz_folder);
        (void)setenv("AWS_CONFIG_FILE", path, 1);
        (void)setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    }
    fuzz_write("config", text, size);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char *value = sonde__s3_profile_value("default", keys[i]);

        expect(value == NULL || strlen(value) <= size);
        sonde__free(value);
    }
    sonde__free(sonde__s3_region("default"));
    sonde__free(sonde__s3_endpoint("default", "s3"));
    (void)sonde__s3_profile_exists("a");
}

static void read_keys(const char *text, size_t size)
{
    sonde__s3_keys keys = {0};
    sonde_diag diag = {0};
    sonde_text json = {0};

    sonde_text_put(&json, text, size);
    const sonde_err err = sonde__s3_keys_take_json(&keys, &json, "Token", "here", &diag);

    expect(err == SONDE_OK ? keys.key != NULL && keys.secret != NULL
                           : diag.found[0] != '\0');
    sonde_text_fini(&json);
    sonde__s3_keys_fini(&keys);
}

static void read_answer(char *text)
{
    static const char *const tags[] = {"Key", "ETag", "Code", "Message"};

    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        const char *place = text;
        char value[16];

        while (sonde__s3_xml(&place, tags[i], value, sizeof value)) {
            expect(memchr(value, '\0', sizeof value) != NULL);
            sonde__s3_unescape(value);
        }
    }
    sonde__s3_unescape(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char kind = size > 0 ? (char)data[0] : '\0';
    const size_t left = size > 0 ? size - 1 : 0;
    char *text = malloc(left + 1);

    expect(text != NULL);
    if (left > 0) {
        memcpy(text, data + 1, left);
    }
    text[left] = '\0';
    if (kind == 'p') {
        read_profile(text, left);
    } else if (kind == 'j') {
        read_keys(text, left);
    } else if (kind == 't') {
        const double time = sonde__s3_time(text);

        expect(time == time); /* not NaN */
    } else {
        read_answer(text);
    }
    free(text);
    return 0;
}
