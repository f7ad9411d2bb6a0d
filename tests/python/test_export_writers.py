"""What sonde/exports.py writes from files made here: npz and TensorBoard, byte by byte.

Needs Python alone; with NumPy, it reads the npz files too. Prints "N passed, N failed".
"""
import contextlib
import errno
import glob
import io
import json
import os
import pathlib
import resource
import struct
import sys
import types
import zipfile

from harness import check, folder, main, program, raises

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python" / "sonde"
if "sonde" not in sys.modules:  # without the extension
    sys.modules["sonde"] = types.ModuleType("sonde")
    sys.modules["sonde"].__path__ = [str(PACKAGE)]
from sonde import command, exports  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None


def place(name):
    path = folder(name)
    os.makedirs(path)
    return path


def safetensors(path, values):
    """values: name -> (dtype, shape, bytes)."""
    header, data = {"__metadata__": {"sonde_run": "1"}}, b""
    for name, (dtype, shape, value) in values.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(value)]}
        data += value
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def rows(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def row(name, step, mode="train"):
    return {"folder": name, "mode": mode, "mode_step": step, "seconds": 5.0, "tensor": "loss",
            "value": 0.5}


ABOUT = {"created": "2026-01-31T12:00:00+00:00", "statistics": []}


def masked(data):
    """Bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events(path):
    """The events of a file; every checksum is compared."""
    with open(path, "rb") as file:
        data = file.read()
    found, at = [], 0
    while at < len(data):
        length, head = struct.unpack_from("<QI", data, at)
        event = data[at + 12:at + 12 + length]
        check("checksum of a length", head == masked(data[at:at + 8]))
        check("checksum of an event",
              struct.unpack_from("<I", data, at + 12 + length)[0] == masked(event))
        found.append(event)
        at += 16 + length
    return found


@program
def npz():
    at = place("npz")
    values = {"wide": ("BF16", [2], b"\x80\x3f\x00\xc0"), "code": ("F8_E4M3", [3], b"\x01\x7f\xff"),
              "yes": ("BOOL", [2], b"\x01\x00"), "one": ("F64", [], struct.pack("<d", 2.5)),
              "none": ("F32", [0, 3], b"")}
    safetensors(f"{at}/in", values)
    exports.write_npz(f"{at}/in", f"{at}/out.npz")
    want = {"wide": struct.pack("<2f", 1, -2)}
    with zipfile.ZipFile(f"{at}/out.npz") as archive:
        check("names", archive.namelist() == [f"{name}.npy" for name in values])
        for name, (_, _, value) in values.items():
            whole = archive.read(f"{name}.npy")
            length = struct.unpack_from("<H", whole, 8)[0]
            check(f"{name}: bytes", whole[10 + length:] == want.get(name, value))
            check(f"{name}: aligned", (10 + length) % 64 == 0)
    if numpy is not None:
        with numpy.load(f"{at}/out.npz") as loaded:
            check("bfloat16", loaded["wide"].tolist() == [1, -2] and loaded["wide"].dtype == "float32")
            check("float8", loaded["code"].tolist() == [1, 127, 255])
            check("bool", loaded["yes"].tolist() == [True, False])
            check("scalar", loaded["one"].shape == () and loaded["one"] == 2.5)
            check("empty", loaded["none"].shape == (0, 3))


@program
def numbers():
    check("one byte", exports._varint(127) == b"\x7f")
    check("two bytes", exports._varint(300) == b"\xac\x02")
    check("ten bytes", exports._varint(-1) == b"\xff" * 9 + b"\x01")
    for data in (b"", b"a", b"123456789"):
        check(f"checksum of {data}", exports._masked(data) == struct.pack("<I", masked(data)))


@program
def sources_without_rows():
    at = place("nothing")
    open(f"{at}/in", "wb").close()
    for write in (exports.write_npz, exports.write_board):
        raises(command.Fault, "is empty", write, f"{at}/in", f"{at}/out")
    rows(f"{at}/head", [ABOUT])
    exports.write_board(f"{at}/head", f"{at}/board")
    check("a folder without files", os.listdir(f"{at}/board") == [])


@program
def many_folders():
    at = place("many")
    count = 150
    rows(f"{at}/in", [ABOUT] + [row(f"w{i:04d}", step) for step in range(2) for i in range(count)])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(128, hard), hard))
    try:
        exports.write_board(f"{at}/in", f"{at}/board")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    paths = glob.glob(f"{at}/board/*/events*")
    check("all folders", len(paths) == count)
    check("a head and two steps each", all(len(events(path)) == 3 for path in paths[:5]))
    check("the same sizes", len({os.path.getsize(path) for path in paths}) == 1)


class Full(io.BytesIO):
    """A file on a full disk."""

    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fileno(self):
        return 0


@program
def a_full_disk():
    at = place("full")
    safetensors(f"{at}/values", {"one": ("U8", [1], b"\x01")})
    rows(f"{at}/rows", [ABOUT, row("", 1)])
    exports.open = lambda path, mode="r", **more: (
        Full() if mode in ("wb", "ab") else open(path, mode, **more))
    try:
        raises(command.Fault, f"{at}/out.npz: cannot be written: No space left", exports.write_npz,
               f"{at}/values", f"{at}/out.npz")
        raises(command.Fault, "sonde: cannot be written: No space left", exports.write_board,
               f"{at}/rows", f"{at}/board")
    finally:
        del exports.open


@program
def an_error_in_the_rows_closes_the_files():
    at = place("bad")
    rows(f"{at}/in", [ABOUT, row("", 1)])
    with open(f"{at}/in", "a", encoding="utf-8") as file:
        file.write("{\n")
    before = len(os.listdir("/proc/self/fd"))
    with contextlib.suppress(ValueError):
        exports.write_board(f"{at}/in", f"{at}/board")
    check("no file stays open", len(os.listdir("/proc/self/fd")) == before)


main()
