/*
 * dataset_text.c - text as a data set of tokens: from a file, or drawn by a grammar.
 *
 * A text of n tokens is (n - 1) / length samples that follow one another: sample i holds
 * the tokens i length ... (i + 1) length - 1, and its labels are the tokens after each.
 *
 * The drawn text has sentences of four kinds over some two hundred words. Subject and verb
 * agree, and a second sentence takes up the subject of the first as it or they, so a
 * model gains by looking back. It depends on the seed alone.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"
#include "nn/data/dataset.h"
#include "nn/data/files.h"

#include <sonde/text.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { VOCABULARY = 256, PATH_SIZE = SONDE__DATA_PATH };

/* --- tokens --------------------------------------------------------------------------- */

/* The part of a text that is the split. */
static void cut_split(const sonde_nn_dataset_options *options, size_t *first,
                      size_t *size)
{
    const double share = options->test_share > 0.0 ? options->test_share : 0.1;
    const size_t train = (size_t)((double)*size * (1.0 - share));

    *first = options->split == SONDE_NN_TEST ? train : 0;
    *size = options->split == SONDE_NN_TEST ? *size - train : train;
}

static sonde_err check_length(const sonde_nn_dataset_options *options, sonde_diag *diag)
{
    if (options->length < 1 || options->length > (1 << 20)) {
        return sonde__fail(diag, SONDE_EINVAL, "length", "1 to 1048576",
                           "%" PRId64 " tokens a sample", options->length);
    }
    return SONDE_OK;
}

/* The tokens of the set's text, which become its data and labels. */
static sonde_err fill(sonde_nn_dataset *set, const char *bytes, size_t size,
                      const sonde_nn_dataset_options *options, const char *source,
                      sonde_diag *diag)
{
    const sonde_nn_tokenizer *tokenizer = options->tokenizer;
    int64_t *tokens = sonde__calloc(size, sizeof *tokens);
    size_t count = size;

    set->owned_data = tokens;
    if (tokens == NULL) {
        return sonde__fail_nomem(diag, "a text");
    }
    if (tokenizer != NULL) {
        SONDE__TRY(
            sonde_nn_tokenizer_encode(tokenizer, bytes, size, tokens, &count, diag));
    }
    for (size_t i = 0; tokenizer == NULL && i < size; i++) {
        tokens[i] = (unsigned char)bytes[i];
    }
    if (count < 2 || (int64_t)(count - 1) / options->length < 1) {
        return sonde__fail(diag, SONDE_ERANGE, source,
                           tokenizer != NULL ? "more tokens than a sample has"
                                             : "more bytes than a sample has tokens",
                           "%zu %s of text for samples of %" PRId64 " tokens", count,
                           tokenizer != NULL ? "tokens" : "bytes", options->length);
    }
    set->data = (const unsigned char *)tokens;
    set->labels = tokens + 1;
    set->sample_bytes = (size_t)options->length * sizeof *tokens;
    set->traits = (sonde_nn_dataset_traits){
        .count = (int64_t)(count - 1) / options->length,
        .dtype = SONDE_I64,
        .rank = 1,
        .shape = {options->length},
        .has_labels = true,
        .classes = tokenizer != NULL ? sonde_nn_tokenizer_size(tokenizer) : VOCABULARY,
        .label_length = options->length};
    return sonde__dataset_set_source(set, source, diag);
}

/* --- files ---------------------------------------------------------------------------- */

/* The file of a split in a folder; *whole: it holds both splits. */
static sonde_err find_file(const sonde__data_opening *o, char path[PATH_SIZE],
                           bool *whole)
{
    static const char *const ending = ".txt";
    const char *split = sonde__data_split_names[o->options->split];

    *whole = false;
    if (sonde__data_find_split(o->path, o->options->split, &ending, 1, path)) {
        return SONDE_OK;
    }
    *whole = true;
    (void)snprintf(path, PATH_SIZE, "%s/input.txt", o->path);
    return sonde__data_is_file(path)
               ? SONDE_OK
               : sonde__fail(
                     o->diag, SONDE_ENOTFOUND, o->path,
                     "a text file, or a folder with train.txt and test.txt, or input.txt",
                     "no %s.txt", split);
}

sonde_err sonde__data_open_text(sonde__data_opening *o)
{
    char file[PATH_SIZE];
    bool whole = true;
    sonde__data_input input;
    SONDE__TRY(check_length(o->options, o->diag));
    (void)snprintf(file, sizeof file, "%s", o->path);
    if (sonde__data_is_folder(o->path)) {
        SONDE__TRY(find_file(o, file, &whole));
    }
    SONDE__TRY(sonde__data_input_read(&input, file, false, o->diag));
    size_t first = 0, size = input.size;

    if (whole) {
        cut_split(o->options, &first, &size);
    }
    const sonde_err err =
        fill(o->set, (const char *)input.bytes + first, size, o->options, file, o->diag);

    sonde__data_input_fini(&input);
    return err;
}

/* --- drawing -------------------------------------------------------------------------- */

static const char *const nouns[] = {
    "dog",   "cat",    "river", "house",  "teacher", "farmer", "stone", "garden",
    "ship",  "cloud",  "road",  "letter", "window",  "bird",   "child", "king",
    "horse", "bridge", "tree",  "lamp",   "book",    "market", "song",  "winter"};
static const char *const plurals[] = {
    "dogs",    "cats",    "rivers",   "houses",  "teachers", "farmers",
    "stones",  "gardens", "ships",    "clouds",  "roads",    "letters",
    "windows", "birds",   "children", "kings",   "horses",   "bridges",
    "trees",   "lamps",   "books",    "markets", "songs",    "winters"};
static const char *const adjectives[] = {"small",  "old",   "red",   "quiet", "heavy",
                                         "bright", "young", "brown", "slow",  "empty",
                                         "green",  "warm",  "long",  "cold",  "broken"};
static const char *const verbs[] = {"see",   "find",     "follow", "leave", "want",
                                    "know",  "remember", "need",   "move",  "cover",
                                    "paint", "answer",   "open",   "hide"};
static const char *const places[] = {"near", "behind",  "under",  "above",
                                     "with", "without", "before", "after"};

typedef struct writer {
    sonde_text text;
    uint64_t seed, drawn;
} writer;

static uint64_t draw(writer *w, uint64_t bound)
{
    return sonde__below(w->seed, 0x7e87, w->drawn++, bound);
}

static void say(writer *w, const char *word)
{
    sonde_text_add(&w->text, word);
}

#define SAY_ANY(w, words) say((w), (words)[draw((w), SONDE_COUNT_OF(words))])

static void say_thing(writer *w, bool many)
{
    say(w, draw(w, 2) == 0 ? "the " : many ? "some " : "a ");
    if (draw(w, 5) < 2) {
        SAY_ANY(w, adjectives);
        say(w, " ");
    }
    if (many) {
        SAY_ANY(w, plurals);
    } else {
        SAY_ANY(w, nouns);
    }
}

static void say_rest(writer *w, bool many)
{
    say(w, " ");
    SAY_ANY(w, verbs);
    say(w, many ? " " : "s ");
    say_thing(w, draw(w, 3) == 0);
    if (draw(w, 3) == 0) {
        say(w, " ");
        SAY_ANY(w, places);
        say(w, " ");
        say_thing(w, draw(w, 4) == 0);
    }
}

static void say_sentence(writer *w)
{
    const bool many = draw(w, 3) == 0;

    say_thing(w, many);
    say_rest(w, many);
    if (draw(w, 3) == 0) {
        say(w, ", and ");
        say(w, many ? "they" : "it");
        say_rest(w, many);
    }
    say(w, draw(w, 6) == 0 ? ".\n" : ". ");
}

sonde_err sonde__data_draw_text(sonde__data_opening *o)
{
    writer w = {.seed = o->options->seed};
    size_t first = 0, size = (size_t)o->options->count;
    SONDE__TRY(check_length(o->options, o->diag));
    if (o->options->count < 1 || o->options->count > (1 << 28)) {
        return sonde__fail(o->diag, SONDE_EINVAL, "count", "1 to 268435456",
                           "a text of %" PRId64 " bytes", o->options->count);
    }
    while (!w.text.failed && w.text.length < size) {
        say_sentence(&w);
    }
    cut_split(o->options, &first, &size);
    const sonde_err err = w.text.failed ? sonde__fail_nomem(o->diag, "a text")
                                        : fill(o->set, w.text.data + first, size,
                                               o->options, "drawn text", o->diag);

    sonde_text_fini(&w.text);
    return err;
}
