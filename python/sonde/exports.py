"""Runs for NumPy and TensorBoard, from what `sonde export` writes first.

    python -m sonde.exports npz VALUES.safetensors OUT.npz
    python -m sonde.exports tensorboard ROWS.jsonl OUT       a folder for tensorboard --logdir

Needs nothing but Python. An npz file is a zip file of .npy files, stored. A board has one file
of events for each mode (of each worker): TFRecords, each an Event of
tensorflow/core/util/event.proto:

    u64 length | u32 masked CRC-32C of it | Event | u32 masked CRC-32C of the Event

    Event          1 wall_time double  2 step int64  3 file_version string  5 summary
    Summary        1 value;  Value  1 tag string  2 simple_value float  5 histo
    HistogramProto 1 min 2 max 3 num 4 sum 5 sum_squares double
                   6 bucket_limit 7 bucket: packed double
"""

import collections
import contextlib
import datetime
import functools
import json
import math
import os
import struct
import time
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO

from sonde import command

BLOCK = 1 << 20
MOST_OPEN = 64  # files of events

# NumPy has neither bfloat16 nor float8: the one becomes float32, the others stay codes
NPY = {"BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4",
       "I32": "<i4", "U64": "<u8", "I64": "<i8", "F16": "<f2", "BF16": "<f4", "F32": "<f4",
       "F64": "<f8", "F8_E4M3": "|u1", "F8_E5M2": "|u1", "C64": "<c8", "C128": "<c16"}


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    """Errors of writing, which have no file name, name the path."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise command.Fault("SONDE_EIO", path, f"cannot be written: {error.strerror}") from error


def _empty(source: str) -> command.Fault:
    return command.Fault("SONDE_EFORMAT", source, "is empty")


# --- npz -----------------------------------------------------------------------------------

def _npy_head(dtype: str, shape: list[int]) -> bytes:
    """Magic, version 1.0, length, and a dictionary padded to a multiple of 64 bytes."""
    text = f"{{'descr': '{NPY[dtype]}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("ascii")


def _widened(block: bytes) -> bytes:
    """bfloat16 as float32: two bytes of zeros before each."""
    wide = bytearray(2 * len(block))
    wide[2::4], wide[3::4] = block[0::2], block[1::2]
    return bytes(wide)


def write_npz(source: str, out: str) -> None:
    """Turns a safetensors file into an npz file, with the same names in the same order."""
    with _writing(out), open(source, "rb") as values, open(out, "wb") as file:
        head = values.read(8)
        if not head:
            raise _empty(source)
        length = int.from_bytes(head, "little")
        entries = json.loads(values.read(length))
        entries.pop("__metadata__", None)
        with zipfile.ZipFile(file, "w") as archive:
            for name, entry in entries.items():
                begin, end = entry["data_offsets"]
                narrow = entry["dtype"] == "BF16"
                info = zipfile.ZipInfo(name + ".npy")  # of 1980-01-01: same values, same bytes
                info.external_attr = 0o644 << 16
                info.file_size = (end - begin) * (2 if narrow else 1) + BLOCK
                values.seek(8 + length + begin)
                with archive.open(info, "w") as member:
                    member.write(_npy_head(entry["dtype"], entry["shape"]))
                    for at in range(begin, end, BLOCK):
                        block = values.read(min(BLOCK, end - at))
                        member.write(_widened(block) if narrow else block)
        _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


# --- TensorBoard ---------------------------------------------------------------------------

@functools.cache
def _crc_tables() -> tuple[list[int], list[int]]:
    """The CRC-32C of one byte, and of two, the first one in the lower half."""
    one = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        one.append(byte)
    two = [one[(one[low] ^ high) & 255] ^ one[low] >> 8 for high in range(256)
           for low in range(256)]
    return one, two


def _masked(data: bytes) -> bytes:
    """The CRC-32C of data as TFRecords have it."""
    one, two = _crc_tables()
    crc = 0xFFFFFFFF
    for pair in struct.unpack_from(f"<{len(data) // 2}H", data):
        crc = two[(crc ^ pair) & 0xFFFF] ^ crc >> 16
    if len(data) % 2:
        crc = one[(crc ^ data[-1]) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@functools.cache
def _record_head(length: int) -> bytes:
    data = struct.pack("<Q", length)
    return data + _masked(data)


def _varint(number: int) -> bytes:
    parts = bytearray()
    number &= 0xFFFFFFFFFFFFFFFF  # a negative int64 has ten bytes
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _part(field: int, data: bytes) -> bytes:
    return bytes((field << 3 | 2,)) + _varint(len(data)) + data


def _double(field: int, value: float) -> bytes:
    return bytes((field << 3 | 1,)) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    """Rounded to float32, which is what TensorBoard keeps."""
    try:
        data = struct.pack("<f", value)
    except OverflowError:
        data = struct.pack("<f", math.copysign(math.inf, value))
    return bytes((field << 3 | 5,)) + data


def _histogram(row: dict[str, Any]) -> bytes:
    """A bucket reaches from the limit before (exclusive) to its own: gaps are empty ones."""
    limits: list[float] = []
    counts: list[int] = []
    for lower, upper, count in row["bins"]:
        if limits and limits[-1] < lower:
            limits.append(lower)
            counts.append(0)
        limits.append(upper)
        counts.append(count)
    numbers = (row["min"], row["max"], row["count"], row["sum"], row["sumsq"])
    return b"".join(_double(i + 1, float(x)) for i, x in enumerate(numbers)) + \
        _part(6, struct.pack(f"<{len(limits)}d", *limits)) + \
        _part(7, struct.pack(f"<{len(counts)}d", *counts))


class Board(contextlib.ExitStack):
    """The files of events, made when a row needs them; the last MOST_OPEN used stay open."""

    def __init__(self, folder: str, created: float) -> None:
        super().__init__()
        self.folder, self.created = folder, created
        self.made: set[str] = set()
        self.open: collections.OrderedDict[str, BinaryIO] = collections.OrderedDict()
        self.callback(self._leave)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name,
                            f"events.out.tfevents.{self.created:010.0f}.sonde")

    def file(self, name: str) -> BinaryIO:
        if name in self.open:
            self.open.move_to_end(name)
            return self.open[name]
        if len(self.open) == MOST_OPEN:
            self._close(next(iter(self.open)))
        new = name not in self.made
        if new:
            os.makedirs(os.path.join(self.folder, name))
        self.open[name] = open(self.path(name), "wb" if new else "ab")
        if new:
            self.made.add(name)
            self._put(name, _double(1, self.created) + _part(3, b"brain.Event:2"))
        return self.open[name]

    def _put(self, name: str, event: bytes) -> None:
        with _writing(self.path(name)):
            self.file(name).write(b"".join((_record_head(len(event)), event, _masked(event))))

    def add(self, row: dict[str, Any], tag: str, value: bytes) -> None:
        name = row["folder"] + ("-" if row["folder"] else "") + row["mode"]
        value = _part(1, tag.encode("utf-8", "surrogateescape")) + value
        self._put(name,
                  _double(1, row["seconds"] or self.created) + b"\x10" + _varint(row["mode_step"]) +
                  _part(5, _part(1, value)))

    def _close(self, name: str) -> None:
        with _writing(self.path(name)), self.open.pop(name) as file:
            _sync(file)

    def finish(self) -> None:
        """Writes all out."""
        while self.open:
            self._close(next(iter(self.open)))

    def _leave(self) -> None:
        """After an error: closes what is still open, and nothing more."""
        for file in self.open.values():
            with contextlib.suppress(OSError):
                file.close()


def _seconds(created: str) -> float:
    """Since 1970, of "2026-01-31T12:00:00.000000Z"; now for any other text."""
    try:
        return math.floor(datetime.datetime.fromisoformat(created).timestamp())
    except ValueError:
        return time.time()


def write_board(source: str, out: str) -> None:
    """Turns JSON lines into a folder for TensorBoard."""
    with open(source, encoding="utf-8", errors="surrogateescape") as lines:
        first = next(lines, None)
        if first is None:
            raise _empty(source)
        about = json.loads(first)
        os.makedirs(out, exist_ok=True)
        with Board(out, _seconds(about["created"])) as board:
            for line in lines:
                _add_row(board, json.loads(line), about["statistics"])
            board.finish()


def _add_row(board: Board, row: dict[str, Any], statistics: list[str]) -> None:
    if "value" in row:
        board.add(row, row["tensor"], _float(2, float(row["value"])))
        return
    for name in statistics:
        if row[name] is not None:
            board.add(row, f"{row['tensor']}/{name}", _float(2, float(row[name])))
    if "histogram" in row:
        board.add(row, row["tensor"], _part(5, _histogram(row["histogram"])))


def main(arguments: list[str]) -> None:
    writers = {"npz": write_npz, "tensorboard": write_board}
    if len(arguments) != 3 or arguments[0] not in writers:
        raise command.Fault("SONDE_EINVAL", "sonde.exports", f"arguments {arguments}",
                            "npz VALUES OUT, or tensorboard ROWS OUT")
    writers[arguments[0]](*arguments[1:])


if __name__ == "__main__":
    command.run(main)
