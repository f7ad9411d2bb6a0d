/*
 * header_name.c - names of tensors from the headers of closed segments, where a catalogue has
 * been lost.
 *
 *     <step, ten digits>/<mode>/<name>        and behind the name perhaps
 *         @<micro-batch>.<replica>            which the index line tells
 *         #<n>                                of a value that was recorded again: not used
 */
#include "trial/trial_state.h"
#include "base/memory.h"

#include <sonde/safetensors.h>

#include <stdio.h>
#include <string.h>

/* The key of the value at that offset; NULL if there is none. */
static const char *key_at(const sonde_safetensors *file, uint64_t offset, uint64_t bytes)
{
    const sonde_view *first = sonde_safetensors_view(file, 0);

    for (size_t i = 0; i < sonde_safetensors_count(file); i++) {
        const sonde_view *view = sonde_safetensors_view(file, i);
        const ptrdiff_t at =
            (const unsigned char *)view->data - (const unsigned char *)first->data;

        if (at == (ptrdiff_t)offset &&
            (uint64_t)sonde_view_count(view) * sonde_dtype_size(view->dtype) == bytes) {
            return sonde_safetensors_name(file, i);
        }
    }
    return NULL;
}

/* Whether a key ends in "#" and digits. */
static bool is_repeated(const char *key)
{
    size_t at = strlen(key);

    while (at > 0 && key[at - 1] >= '0' && key[at - 1] <= '9') {
        at--;
    }
    return at > 0 && key[at - 1] == '#' && key[at] != '\0';
}

/* Where text stands at the end of key; NULL if it does not. */
static const char *end_of(const char *key, const char *text)
{
    const size_t length = strlen(key), tail = strlen(text);

    return length >= tail && strcmp(key + length - tail, text) == 0 ? key + length - tail
                                                                    : NULL;
}

static char *name_of(const char *key, const sonde__record_index_line *line)
{
    char start[64], tail[64] = "";
    const int n = snprintf(start, sizeof start, "%010lld/%s/", (long long)line->step,
                           sonde_mode_name(line->mode));
    const char *end = NULL;

    if (line->micro_batch != 0 || line->replica != 0) {
        (void)snprintf(tail, sizeof tail, "@%lu.%lu", (unsigned long)line->micro_batch,
                       (unsigned long)line->replica);
    }
    end = end_of(key, tail);
    if (n < 0 || strncmp(key, start, (size_t)n) != 0 || end == NULL || end <= key + n ||
        is_repeated(key)) {
        return NULL;
    }
    return sonde__strndup(key + n, (size_t)(end - key) - (size_t)n);
}

char *sonde__trial_name_in_header(const sonde_trial *trial,
                                  const sonde__trial_worker *worker,
                                  const sonde__trial_file *segment,
                                  const sonde__record_index_line *line)
{
    char name[SONDE__FILE_NAME], path[SONDE__PATH];
    sonde_safetensors *file = NULL;
    const char *key = NULL;
    char *found = NULL;

    sonde__record_file_name(name, SONDE__FILE_SEGMENT, segment->number, false);
    if (!segment->closed ||
        sonde_safetensors_open(sonde__trial_path(trial, worker, name, path), &file,
                               NULL) != SONDE_OK) {
        return NULL;
    }
    key = key_at(file, line->offset, line->bytes);
    found = key != NULL ? name_of(key, line) : NULL;
    sonde_safetensors_destroy(file);
    return found;
}
