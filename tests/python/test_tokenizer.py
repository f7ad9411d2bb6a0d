"""Our byte-pair tokens against Hugging Face's tokenizers: vocabularies that both train, and
the tokens of texts with the files of either.

usage: test_tokenizer.py [PATH_TO_libsonde_nn.so]
The library is looked for below SONDE_BUILD if it is not named. Without it, or without the
package tokenizers: skipped (77). Prints "N passed, N failed"; exit status 1 if one failed.
"""
import ctypes
import os
import random
import sys
import tempfile

results = {True: 0, False: 0}


def check(what, good):
    results[bool(good)] += 1
    if not good:
        print("FAILED:", what)


class Ours:
    """A tokenizer of the library."""

    def __init__(self, library, handle):
        self.shared, self.handle = library, handle

    @classmethod
    def train(cls, library, text, vocabulary):
        handle, data = ctypes.c_void_p(), text.encode()
        assert library.sonde_nn_tokenizer_train(data, ctypes.c_size_t(len(data)), ctypes.c_int64(vocabulary),
                                                ctypes.byref(handle), None) == 0
        return cls(library, handle)

    @classmethod
    def open(cls, library, path):
        handle = ctypes.c_void_p()
        assert library.sonde_nn_tokenizer_open(path.encode(), ctypes.byref(handle), None) == 0
        return cls(library, handle)

    def save(self, path):
        assert self.shared.sonde_nn_tokenizer_save(self.handle, path.encode(), None) == 0

    def encode(self, text):
        data, count = text.encode(), ctypes.c_size_t()
        tokens = (ctypes.c_int64 * (len(data) + 1))()
        assert self.shared.sonde_nn_tokenizer_encode(self.handle, data, ctypes.c_size_t(len(data)), tokens,
                                                      ctypes.byref(count), None) == 0
        return tokens[:count.value]


def words(random_, count):
    """Text of letters of several scripts, numbers, signs and blanks."""
    kinds = ["abcdefgh", "éàüß", "東京大阪", "0123456789", ".,;:!?'\"()", " \n\t\u00a0", "😀🎉", "'s't're"]
    made = []
    for _ in range(count):
        kind = random_.choice(kinds)
        made.append("".join(random_.choice(kind) for _ in range(random_.randint(1, 5))) + random_.choice(["", " "]))
    return "".join(made)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "lib",
                                                              "libsonde_nn.so")
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    except ImportError:
        print("tokenizers is not installed: skipped")
        return 77
    if not os.path.exists(path):
        print(f"{path} is not there: skipped")
        return 77
    library = ctypes.CDLL(path)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(6):
            random_ = random.Random(seed)
            corpus, size = words(random_, 3000), random_.randint(260, 900)
            theirs = Tokenizer(models.BPE())
            theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            theirs.train_from_iterator([corpus], trainers.BpeTrainer(
                vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
            ours = Ours.train(library, corpus, size)
            ours.save(os.path.join(folder, "ours.json"))
            theirs.save(os.path.join(folder, "theirs.json"))
            read = Tokenizer.from_file(os.path.join(folder, "ours.json"))
            check(f"seed {seed}: one vocabulary", read.get_vocab() == theirs.get_vocab())
            opened = Ours.open(library, os.path.join(folder, "theirs.json"))
            for i in range(40):
                text = words(random_, 20)
                wanted = theirs.encode(text).ids
                check(f"seed {seed}, text {i}: trained", ours.encode(text) == wanted)
                check(f"seed {seed}, text {i}: their file", opened.encode(text) == wanted)
                check(f"seed {seed}, text {i}: our file", read.encode(text).ids == wanted)
    print(f"{results[True]} passed, {results[False]} failed")
    return 1 if results[False] else 0


sys.exit(main())
