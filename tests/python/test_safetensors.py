"""Our safetensors against another implementation, in both directions and for every dtype.

usage: test_safetensors.py [PATH_TO_tests_tensor]
The program is looked for in SONDE_BIN if it is not named. Needs the Python packages safetensors, torch and numpy. Prints "N passed, N failed";
exit status 1 if one failed.
"""
import ctypes
import os
import subprocess
import sys
import tempfile

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

DTYPES = {
    "bool": torch.bool, "uint8": torch.uint8, "int8": torch.int8,
    "uint16": torch.uint16, "int16": torch.int16, "uint32": torch.uint32,
    "int32": torch.int32, "uint64": torch.uint64, "int64": torch.int64,
    "float16": torch.float16, "bfloat16": torch.bfloat16,
    "float32": torch.float32, "float64": torch.float64,
    "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2,
    "complex64": torch.complex64,
}
FLOAT8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
results = {True: 0, False: 0}


def check(what, good):
    results[bool(good)] += 1
    if not good:
        print("FAILED:", what)


def run(tool, *args):
    return subprocess.run([tool, "test_safetensors", *args], capture_output=True, text=True)


def same(a, b):
    """Same dtype, shape and bits (NaN included)."""
    return (a.dtype == b.dtype and a.shape == b.shape and
            torch.equal(a.contiguous().view(torch.uint8) if a.dim() else
                        a.reshape(1).view(torch.uint8),
                        b.contiguous().view(torch.uint8) if b.dim() else
                        b.reshape(1).view(torch.uint8)))


def ours_by_theirs(tool, folder):
    """What we write, they read."""
    path = os.path.join(folder, "ours.safetensors")
    done = run(tool, "write", path)
    check("write: " + done.stderr, done.returncode == 0)
    loaded = load_file(path)
    check("16 tensors", set(loaded) == set(DTYPES))
    for name, dtype in DTYPES.items():
        values = torch.tensor([0, 1, 2, 3, 4, 5]).reshape(2, 3).to(dtype)
        check("ours by torch: " + name, same(loaded[name], values))
    with safe_open(path, framework="pt") as file:
        check("metadata", file.metadata() == {"format": "pt", "who": '"sonde" é'})


def make_tensors():
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for name, dtype in DTYPES.items():
        values = torch.randn(5, 7, generator=generator) * 40
        values = values.abs() if name.startswith("uint") else values
        tensors["layer." + name] = values.to(dtype)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(3, 0)
    tensors["deep"] = torch.arange(24.0).reshape(1, 2, 1, 3, 1, 4)
    tensors["odd name/with \"quotes\" \\ and é"] = torch.tensor([1], dtype=torch.int8)
    tensors["special"] = torch.tensor(
        [float("nan"), float("inf"), -float("inf"), -0.0, 1e-45])
    return tensors


def theirs_by_ours(tool, folder):
    """What they write, we read, list and write again; they read that."""
    path = os.path.join(folder, "theirs.safetensors")
    again = os.path.join(folder, "again.safetensors")
    tensors = make_tensors()
    save_file(tensors, path, metadata={"format": "pt"})
    done = run(tool, "copy", path, again)
    check("copy: " + done.stderr, done.returncode == 0)
    loaded = load_file(again)
    check("all tensors", set(loaded) == set(tensors))
    for name, values in tensors.items():
        check("theirs by ours: " + name, same(loaded[name], values))
    lines = {line.split("\t")[0]: line.split("\t")
             for line in run(tool, "list", path).stdout.splitlines()}
    for name, dtype in DTYPES.items():
        line = lines["layer." + name]
        values = numpy.array([float(v) for v in line[3].split()])
        wanted = tensors["layer." + name]  # of complex numbers, the absolute values
        wanted = (wanted.to(torch.complex128).abs() if dtype.is_complex else
                  wanted.to(torch.float64)).numpy().ravel()
        check("listed: " + name, line[1] == name and line[2] == "(5, 7)" and
              numpy.allclose(values, wanted, rtol=1e-15 if dtype.is_complex else 0, atol=0))


def float8(tool, folder):
    """All 256 codes, and float32 of every exponent, against torch's."""
    library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(tool)), "..", "lib", "private",
                                       "libsonde.so"))
    bits = torch.randint(-2**31, 2**31, (100000,), dtype=torch.int64,
                         generator=torch.Generator().manual_seed(2)).to(torch.int32)
    small = torch.arange(-1000, 1000) / 7.0
    singles = torch.cat([bits.view(torch.float32), small, small / 4096, small * 30])
    for name, dtype in FLOAT8.items():
        codes = torch.arange(256, dtype=torch.uint8).view(dtype)
        path = os.path.join(folder, name + ".safetensors")
        save_file({"codes": codes}, path)
        listed = run(tool, "list", path).stdout.split("\t")[3].split()
        check(name + " decoded", numpy.array_equal(
            numpy.array([float(v) for v in listed]), codes.to(torch.float64).numpy(),
            equal_nan=True))
        encode = getattr(library, "sonde__dtype_f32_to_f8_" + name)
        encode.argtypes, encode.restype = [ctypes.c_float], ctypes.c_uint8
        ours = torch.tensor([encode(x) for x in singles.tolist()], dtype=torch.uint8)
        theirs = singles.to(dtype)
        if name == "e4m3":  # what is too large: NaN, where this torch saturates
            theirs = torch.where(singles.abs() > 464, torch.tensor([0x7F], dtype=torch.uint8),
                                 theirs.view(torch.uint8)).view(dtype)
        nan = theirs.to(torch.float32).isnan()
        check(name + " encoded", torch.equal(ours[~nan], theirs.view(torch.uint8)[~nan]) and
              bool(ours.view(dtype).to(torch.float32).isnan()[nan].all()))


def unknown_to_them(folder):
    """complex128 has no name in safetensors: their reader says so, whatever else is there."""
    path = os.path.join(folder, "c128.safetensors")
    head = b'{"z":{"dtype":"C128","shape":[1],"data_offsets":[0,16]}}'
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head + bytes(16))
    try:
        load_file(path)
        check("they read C128 now: tell docs/format.md", False)
    except Exception:  # whatever kind it is
        check("they refuse C128", True)


def damage(tool, folder):
    """A file that they would not open, we do not open either."""
    path = os.path.join(folder, "good.safetensors")
    bad = os.path.join(folder, "bad.safetensors")
    save_file({"w": torch.arange(4.0)}, path)
    with open(path, "rb") as file:
        good = file.read()
    for what, data in {"short": good[:-1], "long": good + b"x", "length": b"\xff" * 8,
                       "empty": b"", "json": good[:8] + b"x" + good[9:]}.items():
        with open(bad, "wb") as file:
            file.write(data)
        try:
            load_file(bad)
            check("they refuse: " + what, False)
        except Exception:  # whatever kind it is
            check("they refuse: " + what, True)
        done = run(tool, "list", bad)
        check("we refuse: " + what, done.returncode == 2 and
              done.stderr.startswith("error: ") and done.stderr.count("\n") == 1)


def main():
    tool = (sys.argv[1] if len(sys.argv) == 2 else
            os.path.join(os.environ.get("SONDE_BIN", "build/release/bin"),
                         "tests_tensor"))
    with tempfile.TemporaryDirectory() as folder:
        ours_by_theirs(tool, folder)
        theirs_by_ours(tool, folder)
        float8(tool, folder)
        unknown_to_them(folder)
        damage(tool, folder)
    print("%d passed, %d failed" % (results[True], results[False]))
    return 1 if results[False] else 0


sys.exit(main())
