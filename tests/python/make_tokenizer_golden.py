"""Writes tests/golden/tokenizer with Hugging Face's tokenizers: a vocabulary trained on
corpus.txt, both kinds of files, and the tokens of texts.

usage: make_tokenizer_golden.py FOLDER
"""
import os
import sys

import numpy
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = ["the old river follows the small garden.", "  two  blanks\n\n\tand a tab ", "It's we'll they'd I'M",
         "naïve café — 東京 😀 über-größe", "x = 3.14159; y[12] += 0xFF // done", "", " ", "aaaaaaaaaaaaaaaaaaaa",
         "<|end|>the<|end|>", "line\r\nline\r\n", "\u00a0\u2003thin\u0085 end", "١٢٣ ⅷ ½"]
CORPUS = ("The old river follows the small garden, and it follows the road. Some dogs want the warm house; they need it. "
          "A letter from the teacher: \"it's cold, we'll wait\". ") * 6 + \
         "naïve cafés — größer als 12 345 €\n\tfor (i = 0; i < 10; i++) total += i;\n" * 5


def train(text, vocabulary, special=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "corpus.txt"), "w", encoding="utf-8") as file:
        file.write(CORPUS)
    plain = train(CORPUS, 400)
    plain.model.save(folder)
    special = train(CORPUS, 380, ["<|end|>"])
    special.save(os.path.join(folder, "tokenizer.json"))
    arrays = {}
    for i, text in enumerate(TEXTS):
        arrays[f"text{i:02}"] = numpy.frombuffer(text.encode(), numpy.uint8)
        arrays[f"plain{i:02}"] = numpy.array(plain.encode(text).ids, numpy.int64)
        arrays[f"special{i:02}"] = numpy.array(special.encode(text).ids, numpy.int64)
    save_file(arrays, os.path.join(folder, "texts.safetensors"))


main()
