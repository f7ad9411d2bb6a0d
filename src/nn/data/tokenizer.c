/*
 * tokenizer.c - the tables of a tokenizer, the words of a text, and its tokens.
 *
 * A word's pairs wait in a heap by the place of their merge, and of equal ones the first
 * in the word; merging two neighbours adds the pairs that this makes. Entries that no
 * longer hold are dropped when they come up.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "nn/data/token_state.h"
#include "base/fail.h"
#include "base/given.h"
#include "base/macros.h"
#include "base/memory.h"

#include <pcre2.h>
#include <string.h>

/* --- tables --------------------------------------------------------------------------- */

static uint64_t hash_bytes(const char *bytes, size_t size)
{
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a */

    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    }
    return hash ^ hash >> 32;
}

static uint64_t hash_pair(uint32_t left, uint32_t right)
{
    uint64_t x = ((uint64_t)left << 32 | right) + 0x9E3779B97F4A7C15u; /* splitmix64 */

    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static bool is_piece(const void *array, uint32_t index, const void *key)
{
    const sonde__data_piece *piece = (const sonde__data_piece *)array + index;
    const sonde__data_piece *wanted = key;

    return piece->size == wanted->size &&
           memcmp(piece->bytes, wanted->bytes, piece->size) == 0;
}

static bool is_merge(const void *array, uint32_t index, const void *key)
{
    const sonde__data_merge *merge = (const sonde__data_merge *)array + index;
    const sonde__data_merge *wanted = key;

    return merge->left == wanted->left && merge->right == wanted->right;
}

sonde_nn_tokenizer *sonde__data_token_create(void)
{
    return sonde__calloc(1, sizeof(sonde_nn_tokenizer));
}

void sonde_nn_tokenizer_destroy(sonde_nn_tokenizer *tok)
{
    if (tok == NULL) {
        return;
    }
    for (size_t i = 0; i < tok->count; i++) {
        sonde__free(tok->pieces[i].bytes);
    }
    sonde__free(tok->pieces);
    sonde__free(tok->merges);
    sonde__table_fini(&tok->by_bytes);
    sonde__table_fini(&tok->by_pair);
    sonde__free(tok);
}

bool sonde__data_token_add(sonde_nn_tokenizer *tok, size_t id, const char *bytes,
                           size_t size)
{
    const size_t before = tok->count;

    if (!sonde__table_reserve(&tok->by_bytes) ||
        !sonde__reserve(&tok->pieces, &tok->piece_capacity, SONDE_MAX(before, id + 1),
                        sizeof *tok->pieces)) {
        return false;
    }
    for (; tok->count < id + 1; tok->count++) {
        tok->pieces[tok->count] = (sonde__data_piece){.size = 0};
    }
    tok->pieces[id].bytes = sonde__strndup(bytes, size);
    if (tok->pieces[id].bytes == NULL) {
        return false;
    }
    tok->pieces[id].size = size;
    if (size == 1) {
        tok->byte_token[(unsigned char)bytes[0]] = (uint32_t)id;
    }
    sonde__table_add(&tok->by_bytes, hash_bytes(bytes, size), (uint32_t)id);
    return true;
}

uint32_t sonde__data_token_find(const sonde_nn_tokenizer *tok, const char *bytes,
                                size_t size)
{
    sonde__data_piece wanted = {.size = size};
    uint32_t found = 0;

    memcpy(&wanted.bytes, &bytes, sizeof bytes); /* it is only read */
    found = sonde__table_find(&tok->by_bytes, hash_bytes(bytes, size), is_piece,
                              tok->pieces, &wanted);
    return found == SONDE__TABLE_NONE ? UINT32_MAX : found;
}

bool sonde__data_token_merge(sonde_nn_tokenizer *tok, sonde__data_merge merge)
{
    if (!sonde__table_reserve(&tok->by_pair) ||
        !sonde__reserve(&tok->merges, &tok->merge_capacity, tok->merge_count + 1,
                        sizeof *tok->merges)) {
        return false;
    }
    tok->merges[tok->merge_count] = merge;
    sonde__table_add(&tok->by_pair, hash_pair(merge.left, merge.right),
                     (uint32_t)tok->merge_count);
    tok->merge_count++;
    return true;
}

uint32_t sonde__data_token_rank(const sonde_nn_tokenizer *tok, uint32_t left,
                                uint32_t right)
{
    const sonde__data_merge wanted = {.left = left, .right = right};
    const uint32_t found = sonde__table_find(&tok->by_pair, hash_pair(left, right),
                                             is_merge, tok->merges, &wanted);

    return found == SONDE__TABLE_NONE ? UINT32_MAX : found;
}

int64_t sonde_nn_tokenizer_size(const sonde_nn_tokenizer *tok)
{
    return tok != NULL ? (int64_t)tok->count : 0;
}

const char *sonde_nn_tokenizer_token(const sonde_nn_tokenizer *tok, int64_t id,
                                     size_t *size)
{
    if (tok == NULL || size == NULL || id < 0 || id >= (int64_t)tok->count) {
        return NULL;
    }
    *size = tok->pieces[id].size;
    return tok->pieces[id].bytes;
}

/* --- bytes as characters -------------------------------------------------------------- */

static bool is_seen(uint32_t byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
           (byte >= 0xAE && byte <= 0xFF);
}

uint32_t sonde__data_token_shown(unsigned char byte)
{
    uint32_t hidden = 0;

    for (uint32_t b = 0; b < byte; b++) {
        hidden += is_seen(b) ? 0 : 1;
    }
    return is_seen(byte) ? byte : 256 + hidden;
}

int sonde__data_token_byte(uint32_t character)
{
    uint32_t hidden = 256;

    for (uint32_t b = 0; b < 256; b++) {
        const uint32_t shown = is_seen(b) ? b : hidden++;

        if (shown == character) {
            return (int)b;
        }
    }
    return -1;
}

/* --- words ---------------------------------------------------------------------------- */

/* GPT-2's, with Unicode's white space; bytes that are no UTF-8 are between the matches. */
#define WHITE "\\p{Z}\\t-\\r\\x{85}"
static const char pattern[] =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+|"
    " ?[^" WHITE "\\p{L}\\p{N}]+|[" WHITE "]+(?![^" WHITE "])|[" WHITE "]+";

struct sonde__data_words {
    const char *text;
    size_t size, next;
    size_t first, last; /* of the match that was found; first >= next */
    pcre2_general_context *memory;
    pcre2_code *code;
    pcre2_match_data *match;
};

static void *allocate(PCRE2_SIZE size, void *user)
{
    (void)user;
    return sonde__malloc(size);
}

static void release(void *block, void *user)
{
    (void)user;
    sonde__free(block);
}

void sonde__data_words_destroy(sonde__data_words *words)
{
    if (words == NULL) {
        return;
    }
    pcre2_match_data_free(words->match);
    pcre2_code_free(words->code);
    pcre2_general_context_free(words->memory);
    sonde__free(words);
}

sonde__data_words *sonde__data_words_create(const char *text, size_t size)
{
    sonde__data_words *words = sonde__calloc(1, sizeof *words);
    pcre2_compile_context *compile = NULL;
    int code = 0;
    PCRE2_SIZE place = 0;

    if (words == NULL) {
        return NULL;
    }
    *words = (sonde__data_words){.text = text, .size = size};
    words->memory = pcre2_general_context_create(allocate, release, NULL);
    if (words->memory != NULL) {
        compile = pcre2_compile_context_create(words->memory);
    }
    if (compile != NULL) {
        words->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF,
                                    &code, &place, compile);
    }
    if (words->code != NULL) {
        words->match = pcre2_match_data_create(1, words->memory);
    }
    pcre2_compile_context_free(compile);
    if (words->match == NULL) {
        sonde__data_words_destroy(words);
        return NULL;
    }
    return words;
}

bool sonde__data_words_next(sonde__data_words *words, const char **word, size_t *size)
{
    if (words->next == words->size) {
        return false;
    }
    if (words->last <= words->next) {
        const int found = pcre2_match(words->code, (PCRE2_SPTR)words->text, words->size,
                                      words->next, 0, words->match, NULL);
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(words->match);

        words->first = found > 0 ? ends[0] : words->size;
        words->last = found > 0 ? ends[1] : words->size;
    }
    *word = words->text + words->next;
    *size = (words->first > words->next ? words->first : words->last) - words->next;
    words->next += *size;
    return true;
}

/* --- the tokens of a word --------------------------------------------------------------- */

/* A token of a word, among those that are left. */
typedef struct word_symbol {
    uint32_t token;       /* UINT32_MAX: it was merged into the one before */
    size_t before, after; /* SIZE_MAX: none */
} word_symbol;

typedef struct word_pair {
    uint32_t rank;
    uint32_t left, right; /* tokens, when it was added */
    size_t place;
} word_pair;

/* Room for words; grows. */
typedef struct word_room {
    word_symbol *symbols;
    size_t symbol_capacity;
    word_pair *heap;
    size_t heap_count, heap_capacity;
} word_room;

static bool comes_before(const word_pair *a, const word_pair *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->place < b->place);
}

static bool push(word_room *room, word_pair pair)
{
    size_t i = room->heap_count;

    if (!sonde__reserve(&room->heap, &room->heap_capacity, i + 1, sizeof *room->heap)) {
        return false;
    }
    room->heap_count++;
    for (; i > 0 && comes_before(&pair, &room->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        room->heap[i] = room->heap[(i - 1) / 2];
    }
    room->heap[i] = pair;
    return true;
}

static word_pair pop(word_room *room)
{
    const word_pair top = room->heap[0], last = room->heap[--room->heap_count];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child + 1 < room->heap_count &&
            comes_before(&room->heap[child + 1], &room->heap[child])) {
            child++;
        }
        if (child >= room->heap_count || !comes_before(&room->heap[child], &last)) {
            break;
        }
        room->heap[i] = room->heap[child];
        i = child;
    }
    room->heap[i] = last;
    return top;
}

/* The pair that begins at a place, if the two are merged. */
static bool consider(const sonde_nn_tokenizer *tok, word_room *room, size_t place)
{
    const size_t after = place != SIZE_MAX ? room->symbols[place].after : SIZE_MAX;
    word_pair pair = {.place = place};

    if (after == SIZE_MAX) {
        return true;
    }
    pair.left = room->symbols[place].token;
    pair.right = room->symbols[after].token;
    pair.rank = sonde__data_token_rank(tok, pair.left, pair.right);
    return pair.rank == UINT32_MAX || push(room, pair);
}

/* Merges a pair, if it is still there. */
static bool merge(const sonde_nn_tokenizer *tok, word_room *room, const word_pair *pair)
{
    word_symbol *left = &room->symbols[pair->place], *right = NULL;

    if (left->token != pair->left || left->after == SIZE_MAX ||
        room->symbols[left->after].token != pair->right) {
        return true;
    }
    right = &room->symbols[left->after];
    left->token = tok->merges[pair->rank].whole;
    right->token = UINT32_MAX;
    left->after = right->after;
    if (left->after != SIZE_MAX) {
        room->symbols[left->after].before = pair->place;
    }
    return consider(tok, room, left->before) && consider(tok, room, pair->place);
}

static bool encode_word(const sonde_nn_tokenizer *tok, word_room *room, const char *word,
                        size_t size, int64_t *tokens, size_t *count)
{
    bool room_left = sonde__reserve(&room->symbols, &room->symbol_capacity, size,
                                    sizeof *room->symbols);

    for (size_t i = 0; room_left && i < size; i++) {
        room->symbols[i] =
            (word_symbol){tok->byte_token[(unsigned char)word[i]],
                          i > 0 ? i - 1 : SIZE_MAX, i + 1 < size ? i + 1 : SIZE_MAX};
    }
    for (size_t i = 0; room_left && i < size; i++) {
        room_left = consider(tok, room, i);
    }
    while (room_left && room->heap_count > 0) {
        const word_pair pair = pop(room);

        room_left = merge(tok, room, &pair);
    }
    for (size_t i = 0; room_left && i != SIZE_MAX; i = room->symbols[i].after) {
        tokens[(*count)++] = room->symbols[i].token;
    }
    return room_left;
}

/* The first added token in a text, of several there the longest; UINT32_MAX: none. */
static uint32_t find_added(const sonde_nn_tokenizer *tok, const char *text, size_t size,
                           size_t *place)
{
    uint32_t best = UINT32_MAX;

    *place = size;
    for (size_t i = 0; tok->added > 0 && i < tok->count; i++) {
        const sonde__data_piece *piece = &tok->pieces[i];
        const char *found =
            piece->added ? memmem(text, size, piece->bytes, piece->size) : NULL;
        const size_t at = found != NULL ? (size_t)(found - text) : size;

        if (at < *place || (at == *place && at < size && best != UINT32_MAX &&
                            piece->size > tok->pieces[best].size)) {
            *place = at;
            best = (uint32_t)i;
        }
    }
    return best;
}

/* A text without added tokens. */
static bool encode_words(const sonde_nn_tokenizer *tok, word_room *room, const char *text,
                         size_t size, int64_t *tokens, size_t *count)
{
    sonde__data_words *words = sonde__data_words_create(text, size);
    const char *word = NULL;
    size_t length = 0;
    bool ok = words != NULL;

    while (ok && sonde__data_words_next(words, &word, &length)) {
        ok = encode_word(tok, room, word, length, tokens, count);
    }
    sonde__data_words_destroy(words);
    return ok;
}

sonde_err sonde_nn_tokenizer_encode(const sonde_nn_tokenizer *tok, const char *text,
                                    size_t size, int64_t *tokens, size_t *count,
                                    sonde_diag *diag)
{
    SONDE__NEEDS(diag, tok, text, tokens, count);
    word_room room = {.heap_count = 0};
    size_t made = 0;
    bool ok = true;

    for (size_t next = 0; ok && next < size;) {
        size_t place = 0;
        const uint32_t added = find_added(tok, text + next, size - next, &place);

        if (place > 0) {
            ok = encode_words(tok, &room, text + next, place, tokens, &made);
        }
        next += place;
        if (ok && added != UINT32_MAX) {
            tokens[made++] = added;
            next += tok->pieces[added].size;
        }
    }
    sonde__free(room.symbols);
    sonde__free(room.heap);
    *count = made;
    return ok ? SONDE_OK : sonde__fail_nomem(diag, "tokens");
}
