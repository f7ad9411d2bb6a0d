/*
 * tokenizer.h - byte-pair tokens of texts, as GPT-2 has them.
 *
 * A text is cut into words (a letter sequence, a number, signs, each with the blank before
 * it), a word into bytes, and pairs of neighbours become one token, in the order of the
 * merges (Sennrich, Haddow and Birch, 2016; Radford et al., 2019). Every sequence of
 * bytes has tokens, and the tokens give it back.
 *
 * Python makes the tokens, with the package tokenizers (pip install 'sonde[tokenizers]'); a
 * function that needs it starts $SONDE_PYTHON, or python3, which takes about a quarter of a
 * second. SONDE_ENOTFOUND: no Python, or no such package; diag has the command to install it.
 *
 * A tokenizer never changes, so any number of threads may use it.
 */
#ifndef SONDE_NN_TOKENIZER_H
#define SONDE_NN_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include <sonde/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_tokenizer sonde_nn_tokenizer;

enum { SONDE_NN_TOKENS_MAX = 1 << 20 };

/* Learns the merges of a text until there are `vocabulary` tokens (256 to
 * SONDE_NN_TOKENS_MAX, the 256 bytes among them), or no pair is left. Cost: about the text's
 * different words in memory. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_tokenizer_train(const char *text, size_t size,
                                                           int64_t vocabulary,
                                                           sonde_nn_tokenizer **out,
                                                           sonde_diag *diag);
/*
 * Hugging Face's tokenizer.json, or a folder with it, or with vocab.json and merges.txt.
 * SONDE_EFORMAT: no such file, or a vocabulary without all bytes, or a merge of unknown
 * tokens. SONDE_EUNSUPPORTED: a tokenizer of another kind than GPT-2's.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_tokenizer_open(const char *path,
                                                          sonde_nn_tokenizer **out,
                                                          sonde_diag *diag);
/* The text of a tokenizer.json; the same errors. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_tokenizer_parse(const char *text, size_t size,
                                                           sonde_nn_tokenizer **out,
                                                           sonde_diag *diag);
/* That text, *size bytes of it, borrowed until destroy. */
SONDE_API const char *sonde_nn_tokenizer_json(const sonde_nn_tokenizer *tok,
                                              size_t *size);
/* NULL is fine. */
SONDE_API void sonde_nn_tokenizer_destroy(sonde_nn_tokenizer *tok);

/* Tokens are 0 ... size - 1. */
SONDE_API int64_t sonde_nn_tokenizer_size(const sonde_nn_tokenizer *tok);
/* The bytes of a token, *size of them, borrowed; NULL: there is no such token. */
SONDE_API const char *sonde_nn_tokenizer_token(const sonde_nn_tokenizer *tok, int64_t id,
                                               size_t *size);
/* The tokens of a text: *count of them, of at most size, into tokens. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_tokenizer_encode(const sonde_nn_tokenizer *tok,
                                                            const char *text, size_t size,
                                                            int64_t *tokens,
                                                            size_t *count,
                                                            sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
