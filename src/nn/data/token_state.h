/*
 * token_state.h - the inside of a tokenizer.
 */
#ifndef SONDE_NN_DATA_TOKEN_STATE_H
#define SONDE_NN_DATA_TOKEN_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/table.h"

#include <sonde/nn/tokenizer.h>

typedef struct sonde__data_piece {
    char *bytes; /* size of them, and a NUL; NULL: there is no such token */
    size_t size;
    bool added; /* found in a text as it is, before words are cut */
} sonde__data_piece;

/* Two neighbours that become one token. */
typedef struct sonde__data_merge {
    uint32_t left, right, whole;
} sonde__data_merge;

struct sonde_nn_tokenizer {
    sonde__data_piece *pieces; /* by token */
    size_t count, piece_capacity;
    sonde__table by_bytes;     /* of pieces */
    sonde__data_merge *merges; /* in their order */
    size_t merge_count, merge_capacity;
    sonde__table by_pair; /* of merges */
    uint32_t byte_token[256];
    size_t added; /* pieces that are */
};

/* An empty tokenizer; NULL: out of memory. */
sonde_nn_tokenizer *sonde__data_token_create(void);
/* Adds a token of these bytes, with this number; false: out of memory. */
bool sonde__data_token_add(sonde_nn_tokenizer *tok, size_t id, const char *bytes,
                           size_t size);
/* The token of these bytes; UINT32_MAX: none. */
uint32_t sonde__data_token_find(const sonde_nn_tokenizer *tok, const char *bytes,
                                size_t size);
/* Adds the next merge; false: out of memory. */
bool sonde__data_token_merge(sonde_nn_tokenizer *tok, sonde__data_merge merge);
/* The place of a merge; UINT32_MAX: the two are not merged. */
uint32_t sonde__data_token_rank(const sonde_nn_tokenizer *tok, uint32_t left,
                                uint32_t right);

/* --- bytes as characters ---------------------------------------------------------------- */

/* GPT-2's files show byte b as the character b if it can be seen, and the others as 256,
 * 257 ... in their order. */
uint32_t sonde__data_token_shown(unsigned char byte);
/* The byte of a character; -1: none. */
int sonde__data_token_byte(uint32_t character);

/* --- words ------------------------------------------------------------------------------ */

/* Cuts a text into words. */
typedef struct sonde__data_words sonde__data_words;
/* NULL: out of memory. */
sonde__data_words *sonde__data_words_create(const char *text, size_t size);
/* The next word; false: there is none. */
bool sonde__data_words_next(sonde__data_words *words, const char **word, size_t *size);
void sonde__data_words_destroy(sonde__data_words *words);

#endif
