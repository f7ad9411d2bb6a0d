"""How fast `sonde diff` compares two sets of weights, beside cmp and NumPy, in GB/s of both files.

    bench_diff.py [--sonde build/release/bin/sonde] [--megabytes 1024] [--times 5]

The files are in the page cache. `same`: every byte is equal. `rounding`: each element may differ in its last bits.
Prints `name, number, unit`; rates are of whole commands, each the best of several that take turns.
"""

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import numpy

TENSORS = 64


def write(path, values):
    """A safetensors file of one float32 array, cut into tensors."""
    parts = numpy.array_split(values, TENSORS)
    header, at = {}, 0
    for i, part in enumerate(parts):
        header[f"layers.{i}.weight"] = {"dtype": "F32", "shape": [len(part)], "data_offsets": [at, at + part.nbytes]}
        at += part.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        values.tofile(file)


def run(command, expected):
    before = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    took = time.perf_counter() - before
    if done.returncode != expected:
        sys.exit(f"{command[0]}: status {done.returncode}, not {expected}")
    return took


def by_numpy(a, b):
    """What a script does: both files read, and compared by elements."""
    before = time.perf_counter()
    x, y = numpy.fromfile(a, numpy.uint8), numpy.fromfile(b, numpy.uint8)
    if not numpy.array_equal(x, y):
        x, y = x[-len(x) // 8 * 8:].view(numpy.float32), y[-len(y) // 8 * 8:].view(numpy.float32)
        numpy.abs(x - y).max()
    return time.perf_counter() - before


def measure(title, a, b, code, sonde, times):
    ways = {"diff": lambda: run([sonde, "diff", a, b], code), "numpy": lambda: by_numpy(a, b)}
    if code == 0:  # else it ends at the first byte
        ways["cmp"] = lambda: run(["cmp", "-s", a, b], code)
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(times):
        for name, way in ways.items():
            best[name] = min(best[name], way())
    size = 2e-9 * os.path.getsize(a)
    for name, took in best.items():
        print(f"diff_{title}_{name}, {size / took:.2f}, GB/s")
    for name in ways.keys() - {"diff"}:
        print(f"diff_{title}_over_{name}, {best[name] / best['diff']:.2f}, ratio")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sonde", default="build/release/bin/sonde")
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    folder = tempfile.mkdtemp()
    try:
        a, same, near = (os.path.join(folder, name + ".safetensors") for name in ("a", "same", "near"))
        values = numpy.random.default_rng(0).standard_normal(options.megabytes << 18, numpy.float32)
        write(a, values)
        write(same, values)
        write(near, values * numpy.float32(1 + 2**-22))
        measure("same", a, same, 0, options.sonde, options.times)
        measure("rounding", a, near, 1, options.sonde, options.times)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
