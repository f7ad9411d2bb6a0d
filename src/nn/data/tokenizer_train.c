/*
 * tokenizer_train.c - learning the merges of a text.
 *
 * The text's words are counted once. Each step merges the pair that occurs most often,
 * of equal ones that with the smaller tokens. Pairs wait in a heap by their counts; one
 * whose count has changed since is put back when it comes up. A pair keeps the words that
 * it was seen in, so a merge looks at these alone.
 */
#include "base/fail.h"
#include "base/given.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/data/token_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct counted_word {
    const char *text;
    size_t size;      /* of the text */
    int64_t count;    /* of the word in the text */
    uint32_t *tokens; /* length of them, in one block of all words */
    size_t length;
} counted_word;

typedef struct counted_pair {
    uint32_t left, right;
    int64_t count;
    uint32_t *words; /* that it was seen in; some twice */
    size_t word_count, word_capacity;
    bool fresh; /* not in the heap since its count rose */
} counted_pair;

typedef struct heap_entry {
    int64_t count;
    uint32_t pair;
} heap_entry;

typedef struct pair_training {
    sonde_nn_tokenizer *tok;
    counted_word *words;
    size_t word_count, word_capacity;
    sonde__table by_text;
    uint32_t *block;
    counted_pair *pairs;
    size_t pair_count, pair_capacity;
    sonde__table by_tokens;
    heap_entry *heap;
    size_t heap_count, heap_capacity;
    uint32_t *fresh; /* pairs whose counts rose in this step */
    size_t fresh_count, fresh_capacity;
} pair_training;

/* --- words ---------------------------------------------------------------------------- */

static uint64_t hash_text(const char *bytes, size_t size)
{
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a */

    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    }
    return hash ^ hash >> 32;
}

static bool is_word(const void *array, uint32_t index, const void *key)
{
    const counted_word *word = (const counted_word *)array + index;
    const counted_word *wanted = key;

    return word->size == wanted->size &&
           memcmp(word->text, wanted->text, word->size) == 0;
}

static bool count_word(pair_training *t, const char *text, size_t size)
{
    const counted_word wanted = {.text = text, .size = size, .count = 1};
    const uint64_t hash = hash_text(text, size);
    const uint32_t found =
        sonde__table_find(&t->by_text, hash, is_word, t->words, &wanted);

    if (found != SONDE__TABLE_NONE) {
        t->words[found].count++;
        return true;
    }
    if (!sonde__table_reserve(&t->by_text) ||
        !sonde__reserve(&t->words, &t->word_capacity, t->word_count + 1,
                        sizeof *t->words)) {
        return false;
    }
    sonde__table_add(&t->by_text, hash, (uint32_t)t->word_count);
    t->words[t->word_count++] = wanted;
    return true;
}

/* Counts the words, and writes them as the tokens of their bytes. */
static bool count_words(pair_training *t, const char *text, size_t size)
{
    sonde__data_words *words = sonde__data_words_create(text, size);
    const char *word = NULL;
    size_t length = 0, total = 0;
    bool ok = words != NULL;

    while (ok && sonde__data_words_next(words, &word, &length)) {
        ok = count_word(t, word, length);
    }
    sonde__data_words_destroy(words);
    for (size_t i = 0; i < t->word_count; i++) {
        total += t->words[i].size;
    }
    t->block = ok ? sonde__calloc(total, sizeof *t->block) : NULL;
    for (size_t i = 0, used = 0; t->block != NULL && i < t->word_count; i++) {
        counted_word *w = &t->words[i];

        w->tokens = t->block + used;
        w->length = w->size;
        used += w->size;
        for (size_t k = 0; k < w->size; k++) {
            w->tokens[k] = t->tok->byte_token[(unsigned char)w->text[k]];
        }
    }
    return t->block != NULL;
}

/* --- pairs ---------------------------------------------------------------------------- */

static bool is_pair(const void *array, uint32_t index, const void *key)
{
    const counted_pair *pair = (const counted_pair *)array + index;
    const counted_pair *wanted = key;

    return pair->left == wanted->left && pair->right == wanted->right;
}

/* The pair of two tokens, made if need be; UINT32_MAX: out of memory. */
static uint32_t have_pair(pair_training *t, uint32_t left, uint32_t right)
{
    const counted_pair wanted = {.left = left, .right = right};
    const uint64_t key = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    const uint64_t hash = key ^ key >> 29;
    const uint32_t found =
        sonde__table_find(&t->by_tokens, hash, is_pair, t->pairs, &wanted);

    if (found != SONDE__TABLE_NONE) {
        return found;
    }
    if (!sonde__table_reserve(&t->by_tokens) ||
        !sonde__reserve(&t->pairs, &t->pair_capacity, t->pair_count + 1,
                        sizeof *t->pairs)) {
        return UINT32_MAX;
    }
    sonde__table_add(&t->by_tokens, hash, (uint32_t)t->pair_count);
    t->pairs[t->pair_count] = wanted;
    return (uint32_t)t->pair_count++;
}

/* A pair of a word comes (sign 1) or goes (-1). */
static bool change_pair(pair_training *t, uint32_t left, uint32_t right, size_t word,
                        int sign)
{
    const uint32_t index = have_pair(t, left, right);
    counted_pair *pair = index != UINT32_MAX ? &t->pairs[index] : NULL;

    if (pair == NULL) {
        return false;
    }
    pair->count += sign * t->words[word].count;
    if (sign < 0) {
        return true;
    }
    if (pair->word_count == 0 || pair->words[pair->word_count - 1] != word) {
        if (!sonde__reserve(&pair->words, &pair->word_capacity, pair->word_count + 1,
                            sizeof *pair->words)) {
            return false;
        }
        pair->words[pair->word_count++] = (uint32_t)word;
    }
    if (!pair->fresh) {
        if (!sonde__reserve(&t->fresh, &t->fresh_capacity, t->fresh_count + 1,
                            sizeof *t->fresh)) {
            return false;
        }
        pair->fresh = true;
        t->fresh[t->fresh_count++] = index;
    }
    return true;
}

/* --- the heap --------------------------------------------------------------------------- */

static bool comes_before(const pair_training *t, const heap_entry *a, const heap_entry *b)
{
    const counted_pair *p = &t->pairs[a->pair], *q = &t->pairs[b->pair];

    if (a->count != b->count) {
        return a->count > b->count;
    }
    return p->left < q->left || (p->left == q->left && p->right < q->right);
}

static bool push(pair_training *t, heap_entry entry)
{
    size_t i = t->heap_count;

    if (!sonde__reserve(&t->heap, &t->heap_capacity, i + 1, sizeof *t->heap)) {
        return false;
    }
    t->heap_count++;
    for (; i > 0 && comes_before(t, &entry, &t->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        t->heap[i] = t->heap[(i - 1) / 2];
    }
    t->heap[i] = entry;
    return true;
}

static heap_entry pop(pair_training *t)
{
    const heap_entry top = t->heap[0], last = t->heap[--t->heap_count];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child + 1 < t->heap_count &&
            comes_before(t, &t->heap[child + 1], &t->heap[child])) {
            child++;
        }
        if (child >= t->heap_count || !comes_before(t, &t->heap[child], &last)) {
            break;
        }
        t->heap[i] = t->heap[child];
        i = child;
    }
    t->heap[i] = last;
    return top;
}

/* Puts the pairs whose counts rose into the heap. */
static bool push_fresh(pair_training *t)
{
    for (size_t i = 0; i < t->fresh_count; i++) {
        counted_pair *pair = &t->pairs[t->fresh[i]];

        pair->fresh = false;
        if (pair->count > 0 && !push(t, (heap_entry){pair->count, t->fresh[i]})) {
            return false;
        }
    }
    t->fresh_count = 0;
    return true;
}

/* The pair that occurs most often; false: none does. */
static bool take_best(pair_training *t, uint32_t *best, bool *ok)
{
    while (t->heap_count > 0) {
        const heap_entry top = pop(t);
        const int64_t count = t->pairs[top.pair].count;

        if (count == top.count) {
            *best = top.pair;
            return count > 0;
        }
        if (count > 0 && !push(t, (heap_entry){count, top.pair})) {
            *ok = false;
            return false;
        }
    }
    return false;
}

/* --- merging ---------------------------------------------------------------------------- */

/* Merges left and right in a word, from its beginning. */
static bool merge_word(pair_training *t, size_t word, uint32_t left, uint32_t right,
                       uint32_t whole)
{
    counted_word *w = &t->words[word];
    size_t kept = 0;
    bool ok = true;

    for (size_t i = 0; i < w->length && ok; i++) {
        const bool here =
            w->tokens[i] == left && i + 1 < w->length && w->tokens[i + 1] == right;

        if (here && kept > 0) {
            ok = change_pair(t, w->tokens[kept - 1], left, word, -1) &&
                 change_pair(t, w->tokens[kept - 1], whole, word, 1);
        }
        if (here && i + 2 < w->length) {
            ok = ok && change_pair(t, right, w->tokens[i + 2], word, -1) &&
                 change_pair(t, whole, w->tokens[i + 2], word, 1);
        }
        w->tokens[kept++] = here ? whole : w->tokens[i];
        i += here ? 1 : 0;
    }
    w->length = kept;
    return ok;
}

/* Adds the merge of a pair and its token. */
static bool merge_pair(pair_training *t, uint32_t best)
{
    sonde_nn_tokenizer *tok = t->tok;
    const uint32_t left = t->pairs[best].left, right = t->pairs[best].right;
    const sonde__data_piece *a = &tok->pieces[left], *b = &tok->pieces[right];
    const size_t size = a->size + b->size, words = t->pairs[best].word_count;
    char *bytes = sonde__malloc(size);
    uint32_t whole = UINT32_MAX;
    bool ok = bytes != NULL;

    if (ok) {
        memcpy(bytes, a->bytes, a->size);
        memcpy(bytes + a->size, b->bytes, b->size);
        whole = sonde__data_token_find(tok, bytes, size);
    }
    if (ok && whole == UINT32_MAX) {
        whole = (uint32_t)tok->count;
        ok = sonde__data_token_add(tok, whole, bytes, size);
    }
    sonde__free(bytes);
    ok = ok && sonde__data_token_merge(tok, (sonde__data_merge){left, right, whole});
    for (size_t i = 0; i < words && ok; i++) { /* pairs may move as they grow */
        ok = merge_word(t, t->pairs[best].words[i], left, right, whole);
    }
    t->pairs[best].count = 0;
    return ok && push_fresh(t);
}

static bool add_bytes(sonde_nn_tokenizer *tok)
{
    size_t next = 0;

    for (uint32_t character = 0; character < 512; character++) {
        const int byte = sonde__data_token_byte(character);

        if (byte >= 0) {
            const char text = (char)(unsigned char)byte;

            if (!sonde__data_token_add(tok, next++, &text, 1)) {
                return false;
            }
        }
    }
    return true;
}

static bool learn(pair_training *t, const char *text, size_t size, int64_t vocabulary)
{
    uint32_t best = 0;
    bool ok = add_bytes(t->tok) && count_words(t, text, size);

    for (size_t w = 0; w < t->word_count && ok; w++) {
        for (size_t i = 0; i + 1 < t->words[w].length && ok; i++) {
            ok = change_pair(t, t->words[w].tokens[i], t->words[w].tokens[i + 1], w, 1);
        }
    }
    ok = ok && push_fresh(t);
    while (ok && (int64_t)t->tok->count < vocabulary && take_best(t, &best, &ok)) {
        ok = merge_pair(t, best);
    }
    return ok;
}

static void fini(pair_training *t)
{
    for (size_t i = 0; i < t->pair_count; i++) {
        sonde__free(t->pairs[i].words);
    }
    sonde__free(t->pairs);
    sonde__free(t->words);
    sonde__free(t->block);
    sonde__free(t->heap);
    sonde__free(t->fresh);
    sonde__table_fini(&t->by_text);
    sonde__table_fini(&t->by_tokens);
}

sonde_err sonde_nn_tokenizer_train(const char *text, size_t size, int64_t vocabulary,
                                   sonde_nn_tokenizer **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, out);
    pair_training t = {.tok = NULL};

    if (vocabulary < 256 || vocabulary > SONDE_NN_TOKENS_MAX) {
        return sonde__fail(diag, SONDE_EINVAL, "vocabulary", "256 to 1048576",
                           "%" PRId64 " tokens", vocabulary);
    }
    t.tok = sonde__data_token_create();
    const bool ok = t.tok != NULL && learn(&t, text, size, vocabulary);
    fini(&t);
    if (!ok) {
        sonde_nn_tokenizer_destroy(t.tok);
        return sonde__fail_nomem(diag, "a tokenizer");
    }
    *out = t.tok;
    return SONDE_OK;
}
