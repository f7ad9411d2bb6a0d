"""Reads a run directory, from docs/format.md alone: shares nothing with the C library.

    run = Run(path)
    run.records      every raw value that counts: dicts with worker, step, mode, mode_step, name,
                     micro_batch, replica, dtype, shape, and bytes() that checks the hash
    run.rows         vital signs, as numpy structured rows with a worker and a name
    run.sketches     likewise
    run.ended_steps  {worker: {global step that was ended: when, in ns since 1970}}
    run.superseded   how many records do not count, of a run that was gone on with

Of records of one place (worker, step, tensor, micro-batch, replica) the last stays.
"""
import glob
import json
import os
import re
import struct

import numpy
import xxhash
import zstandard

ROW = numpy.dtype(
    [("step", "<i8"), ("mode_step", "<i8"), ("tensor", "<u4"), ("micro_batch", "<u4"),
     ("replica", "<u2"), ("mode", "<u1"), ("reserved", "<u1"), ("check", "<u4")] +
    [(name, "<u8") for name in ("count", "nan", "pos_inf", "neg_inf", "zero")] +
    [(name, "<f8") for name in ("min", "max", "abs_min", "abs_max", "mean", "m2", "l1",
                                "sumsq", "sum")])
STEP = numpy.dtype([("step", "<i8"), ("mode_step", "<i8"), ("time", "<i8"), ("mode", "<u4"),
                    ("check", "<u4")])
MODES = ["train", "eval", "predict", "global"]
SIZES = {"BOOL": 1, "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2,
         "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8,
         "C128": 16}
LINE = re.compile(
    rb'\{"s":(\d+),"m":"(train|eval|predict|global)","k":(\d+),"t":(\d+),"b":(\d+),"r":(\d+),'
    rb'"o":(\d+),"n":(\d+),"d":"(\w+)","h":"([0-9a-f]{16})","p":\[([\d,]*)\]'
    rb'(?:,"z":"(zstd(?:\+shuffle)?)")?(?:,"check":"([0-9a-f]{8})")?\}')
KINDS = {"seg": "segment", "stats": "stats", "sketch": "sketch", "steps": "steps"}


def complete_lines(path):
    with open(path, "rb") as file:
        return file.read().split(b"\n")[:-1]


def is_checked(line, check):
    """Whether a line has no check, or the right one: of the text before the check's comma."""
    text = line[:line.rindex(b',"check"')] if check else b""
    return check is None or \
        xxhash.xxh3_64_intdigest(text) & 0xFFFFFFFF == int(check, 16)


class Worker:
    def __init__(self, folder, number):
        self.folder, self.number = folder, number
        self.damage = []
        self.records, self.rows, self.sketches, self.ended = [], [], [], {}
        self.superseded = self.superseded_steps = 0
        with open(os.path.join(folder, "state.json"), encoding="utf-8") as file:
            self.state = json.load(file)
        self.names, self.same_as = {}, {}
        for line in complete_lines(os.path.join(folder, "catalogue.jsonl")):
            entry = json.loads(line)
            self.names[entry["id"]] = entry["name"]
            self.same_as[entry["name"]] = self.names[entry.get("same_as", entry["id"])]
        generations = os.path.join(folder, "generations.jsonl")
        self.generations = [json.loads(line) for line in complete_lines(generations)] \
            if os.path.exists(generations) else []
        for path in self.numbered("steps"):
            self.read_steps(path)
        for index in sorted(glob.glob(os.path.join(folder, "seg-*.jsonl"))):
            self.read_segment(index)
        for path in self.numbered("stats"):
            self.read_rows(path)
        for path in self.numbered("sketch"):
            self.read_sketches(path)

    def numbered(self, stem):
        return sorted(path for path in glob.glob(os.path.join(self.folder, stem + "-*"))
                      if path.endswith((".part", ".npy", ".bin")))

    def limit(self, path):
        """Global steps of a file from here on are superseded."""
        stem, number = re.match(r"([a-z]+)-(\d+)", os.path.basename(path)).groups()
        later = [g["step"] for g in self.generations if g[KINDS[stem]] > int(number)]
        return min(later, default=float("inf"))

    def keep(self, to, record, limit):
        if record["step"] < limit:
            to.append(record)
        else:
            self.superseded += 1

    def checked(self, path, head, dtype):
        """Rows of a file whose check is right."""
        with open(path, "rb") as file:
            start, data = file.read(head), file.read()
        assert start[:8] == b"\x93NUMPY\x01\x00" and start[head - 1:] == b"\n"
        rows = numpy.frombuffer(data[:len(data) // dtype.itemsize * dtype.itemsize],
                                dtype=dtype)
        for row in rows:
            blank = row.copy()
            blank["check"] = 0
            if xxhash.xxh3_64_intdigest(blank.tobytes()) & 0xFFFFFFFF == row["check"]:
                yield row
            else:
                self.damage.append(path)

    # --- steps --------------------------------------------------------------------------

    def read_steps(self, path):
        for row in self.checked(path, 256, STEP):
            if row["step"] >= self.limit(path):
                self.superseded_steps += 1
            else:
                self.ended.setdefault(int(row["step"]), int(row["time"]))

    # --- segments -----------------------------------------------------------------------

    def read_segment(self, index):
        stem = index[:-len(".jsonl")]
        path = next(p for p in (stem + ".part", stem + ".safetensors") if os.path.exists(p))
        with open(path, "rb") as file:
            start = 8 + struct.unpack("<Q", file.read(8))[0]
        size = os.path.getsize(path)
        for line in complete_lines(index):
            found = LINE.fullmatch(line)
            if not found or start + int(found[7]) + int(found[8]) > size or \
                    not is_checked(line, found[13]):
                self.damage.append(line)
                continue
            step, mode, mode_step, tensor, micro, replica, offset, stored, dtype, digest, \
                shape, packing, _ = found.groups()
            self.keep(self.records, {
                "worker": self.number, "step": int(step), "mode": mode.decode(),
                "mode_step": int(mode_step), "name": self.names[int(tensor)],
                "micro_batch": int(micro), "replica": int(replica), "dtype": dtype.decode(),
                "shape": [int(n) for n in shape.split(b",")] if shape else [],
                "hash": digest.decode(), "path": path, "at": start + int(offset),
                "stored": int(stored), "packing": packing.decode() if packing else None}, self.limit(index))

    # --- vital signs and sketches ----------------------------------------------------------

    def read_rows(self, path):
        for row in self.checked(path, 1024, ROW):
            self.keep(self.rows, self.place(row["step"], row["mode"], row["mode_step"],
                                            row["tensor"], row["micro_batch"],
                                            row["replica"], {"row": row}), self.limit(path))

    def read_sketches(self, path):
        with open(path, "rb") as file:
            data = file.read()
        assert data[:16] == b"SONDESK1" + bytes(8)
        at = 16
        while at + 80 <= len(data):
            length, check = struct.unpack_from("<II", data, at)
            if at + length > len(data):
                break
            record = data[at:at + 4] + bytes(4) + data[at + 8:at + length]
            if xxhash.xxh3_64_intdigest(record) & 0xFFFFFFFF != check:
                self.damage.append(path)
            step, mode_step, tensor, micro, replica, mode, _, bins = struct.unpack_from(
                "<qqIIHBBI", record, 8)
            counts = struct.unpack_from("<5Q", record, 40)
            histogram = {}
            for i in range(bins):
                number, count = struct.unpack_from("<iI", record, 80 + 8 * i)
                histogram[str(number)] = histogram.get(str(number), 0) + count
            self.keep(self.sketches,
                      self.place(step, mode, mode_step, tensor, micro, replica,
                                 {"counts": list(counts), "bins": histogram}),
                      self.limit(path))
            at += length

    def place(self, step, mode, mode_step, tensor, micro, replica, more):
        return {"worker": self.number, "step": int(step), "mode": MODES[mode],
                "mode_step": int(mode_step), "name": self.names[int(tensor)],
                "micro_batch": int(micro), "replica": int(replica), **more}


def value_of(record):
    """The bytes of a raw value, unpacked; an AssertionError if their hash is wrong."""
    with open(record["path"], "rb") as file:
        file.seek(record["at"])
        data = file.read(record["stored"])
    size = SIZES[record["dtype"]]
    count = int(numpy.prod(record["shape"], dtype=numpy.int64))
    if record["packing"]:
        data = zstandard.ZstdDecompressor().decompress(data, max_output_size=count * size)
    if record["packing"] == "zstd+shuffle":
        data = numpy.frombuffer(data, numpy.uint8).reshape(size, count).T.tobytes()
    assert len(data) == count * size, record
    assert xxhash.xxh3_64_hexdigest(data) == record["hash"], record
    return data


def last_of_each(records):
    """Drops what later records of the same worker overrule."""
    kept = {}
    for record in records:
        kept[record["worker"], record["step"], record["name"], record["micro_batch"],
             record["replica"]] = record
    return list(kept.values())


class Run:
    def __init__(self, path):
        with open(os.path.join(path, "run.json"), encoding="utf-8") as file:
            self.about = json.load(file)
        assert self.about["sonde_run"] == 1
        self.ended = os.path.exists(os.path.join(path, "end.json"))
        self.workers = [Worker(folder, int(os.path.basename(folder)[1:]))
                        for folder in sorted(glob.glob(os.path.join(path, "w[0-9]*")))]
        self.all_records = [r for worker in self.workers for r in worker.records]
        self.records = last_of_each(self.all_records)
        self.rows = last_of_each(r for worker in self.workers for r in worker.rows)
        self.sketches = last_of_each(r for worker in self.workers for r in worker.sketches)
        self.superseded = sum(worker.superseded for worker in self.workers)
        self.superseded_steps = sum(worker.superseded_steps for worker in self.workers)
        self.ended_steps = {worker.number: worker.ended for worker in self.workers}
