"""Byte-pair tokens for the command, by the package tokenizers.

    python -m sonde.tokens train FOLDER SIZE    learns SIZE tokens from FOLDER/text
    python -m sonde.tokens open FOLDER PATH     reads a tokenizer.json, or a folder with it,
                                                or with vocab.json and merges.txt
    python -m sonde.tokens parse FOLDER         reads FOLDER/tokenizer.json
    python -m sonde.tokens encode FOLDER        FOLDER/text by FOLDER/tokenizer.json

The first three write the arrays json.npy (the text of tokenizer.json), bytes.npy (all tokens,
one after the other) and ends.npy (where each ends), encode writes tokens.npy.
"""

import json
import os
import re

from sonde import command

try:
    import numpy
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError as error:
    missing = error.name
else:
    missing = None

# GPT-2's files show a byte as its character if it can be seen, others as 256, 257 ...
_SEEN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_BYTES = {chr(byte): byte for byte in _SEEN}
_BYTES |= {chr(256 + i): byte for i, byte in enumerate(b for b in range(256) if b not in _SEEN)}


def _over_bytes(model):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train(text: bytes, size: int):
    """A tokenizer with at most size tokens, the 256 bytes among them."""
    tokenizer = _over_bytes(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text.decode("utf-8", "ignore")], trainer)
    return tokenizer


def read(text: str, name: str):
    """The tokenizer of a tokenizer.json, which must be a byte-pair encoding over bytes."""
    try:
        spec = json.loads(text)
    except ValueError:
        raise command.Fault("SONDE_EFORMAT", name, "no JSON", "JSON") from None
    model = spec.get("model") if isinstance(spec, dict) else None
    if not isinstance(model, dict):
        raise command.Fault("SONDE_EFORMAT", name, "it has no model", "a tokenizer.json")
    if model.get("type", "BPE") != "BPE" or model.get("byte_fallback") or spec.get("normalizer") \
            or "ByteLevel" not in json.dumps(spec.get("pre_tokenizer")):
        raise command.Fault("SONDE_EUNSUPPORTED", name, "a tokenizer of another kind",
                            "byte pairs over bytes (BPE, ByteLevel), as GPT-2 has them")
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:
        raise command.Fault("SONDE_EFORMAT", name, str(error), "a tokenizer.json") from None
    for character, byte in _BYTES.items():
        if tokenizer.token_to_id(character) is None:
            raise command.Fault("SONDE_EFORMAT", name, f"no token for byte {byte}", "all bytes")
    return tokenizer


def open_path(path: str):
    """The tokenizer of a file or a folder."""
    if not os.path.isdir(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            return read(file.read(), path)
    names = [os.path.join(path, name) for name in ("tokenizer.json", "vocab.json", "merges.txt")]
    if os.path.exists(names[0]):
        return open_path(names[0])
    if not os.path.exists(names[1]) or not os.path.exists(names[2]):
        raise command.Fault("SONDE_ENOTFOUND", path, "the folder has no tokenizer",
                            "tokenizer.json, or vocab.json and merges.txt")
    try:
        tokenizer = _over_bytes(models.BPE.from_file(names[1], names[2]))
    except Exception as error:
        raise command.Fault("SONDE_EFORMAT", names[1], str(error), "a vocabulary") from None
    return read(tokenizer.to_str(), path)


def encode(tokenizer, text: bytes) -> list[int]:
    """The tokens of any bytes; those that are no UTF-8 are tokens of their own."""
    tokens = []
    for piece in re.split("([\udc80-\udcff])", text.decode("utf-8", "surrogateescape")):
        if piece and "\udc80" <= piece <= "\udcff":
            character = next(c for c, byte in _BYTES.items() if byte == ord(piece) - 0xdc00)
            tokens.append(tokenizer.token_to_id(character))
        else:
            tokens += tokenizer.encode(piece, add_special_tokens=False).ids
    return tokens


def _token_bytes(tokenizer) -> list[bytes]:
    """The bytes of each token; none where there is no token."""
    added = tokenizer.get_added_tokens_decoder()
    texts = [b""] * (max(tokenizer.get_vocab().values()) + 1)
    for text, token in tokenizer.get_vocab().items():
        texts[token] = text.encode() if token in added else bytes(_BYTES[c] for c in text)
    return texts


def _write(folder: str, tokenizer) -> None:
    texts = _token_bytes(tokenizer)
    arrays = {"json": numpy.frombuffer(tokenizer.to_str().encode(), numpy.uint8),
              "bytes": numpy.frombuffer(b"".join(texts), numpy.uint8),
              "ends": numpy.cumsum([len(text) for text in texts], dtype=numpy.int64)}
    for name, array in arrays.items():
        numpy.save(os.path.join(folder, name + ".npy"), array)


def main(arguments: list[str]) -> None:
    if missing:
        command.needs(missing, "tokenizers")
    verb, folder, *rest = arguments

    def content(name):
        with open(os.path.join(folder, name), "rb") as file:
            return file.read()

    if verb == "train":
        _write(folder, train(content("text"), int(rest[0])))
    elif verb == "open":
        _write(folder, open_path(rest[0]))
    else:
        tokenizer = read(content("tokenizer.json").decode("utf-8", "replace"), "tokenizer.json")
        if verb == "parse":
            _write(folder, tokenizer)
        else:
            numpy.save(os.path.join(folder, "tokens.npy"),
                       numpy.array(encode(tokenizer, content("text")), numpy.int64))


if __name__ == "__main__":
    command.run(main)
