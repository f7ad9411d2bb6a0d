"""Runs as the C library reads them against an independent reader (read_run.py), and against
other people's: safetensors for closed segments, numpy for vital signs.

usage: test_read_run.py [PATH_TO_tests_trial]
The program is looked for in SONDE_BIN if it is not named. Prints "N passed, N failed"; exit
status 1 if one failed.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy
import xxhash
from safetensors import safe_open

import read_run

HERE = os.path.dirname(os.path.abspath(__file__))
PLACE = ("worker", "step", "mode", "mode_step", "name", "micro_batch", "replica")
STATS = ("min", "max", "abs_min", "abs_max", "mean", "m2", "l1", "sumsq", "sum")
results = {True: 0, False: 0}


def check(what, good):
    results[bool(good)] += 1
    if not good:
        print("FAILED:", what)


def dumped(tool, path):
    """{(kind, place...): object} of every line that the C library's reader printed."""
    done = subprocess.run([tool, "test_golden", "dump", path], capture_output=True, text=True)
    check("dump: " + done.stderr, done.returncode == 0)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    about = next(line for line in lines if line["kind"] == "run")
    steps = {(line["worker"], line["step"]): line["time"]
             for line in lines if line["kind"] == "step"}
    names = {line["name"]: line["same_as"] for line in lines if line["kind"] == "tensor"}
    rest = {(line["kind"], *(line[key] for key in PLACE)): line
            for line in lines if line["kind"] not in ("run", "step", "tensor")}
    check("each place once", len(rest) + len(steps) + len(names) == len(lines) - 1)
    return about, names, steps, rest


def compare(tool, path):
    about, names, steps, theirs = dumped(tool, path)
    run = read_run.Run(path)
    name = os.path.basename(path)
    check(name + ": id", about["id"] == run.about["id"])
    check(name + ": world", about["world"] == run.about["world"])
    check(name + ": workers", about["workers"] == len(run.workers))
    check(name + ": ended", about["ended"] == run.ended)
    check(name + ": names of tensors", names == {
        tensor: same_as for worker in run.workers
        for tensor, same_as in worker.same_as.items()})
    check(name + ": records", about["records"] == len(run.all_records) > 0)
    check(name + ": superseded", about["superseded"] == run.superseded and
          about["superseded_steps"] == run.superseded_steps)
    check(name + ": times of steps", steps and steps == {
        (worker, step): time for worker, ended in run.ended_steps.items()
        for step, time in ended.items()})
    check(name + ": nothing damaged", not any(worker.damage for worker in run.workers))
    ours = {("raw", *(r[key] for key in PLACE)): r for r in run.records}
    ours.update((("vitals", *(r[key] for key in PLACE)), r) for r in run.rows)
    ours.update((("sketch", *(r[key] for key in PLACE)), r) for r in run.sketches)
    check(name + ": the same places", set(ours) == set(theirs))
    for place, found in theirs.items():
        compare_record(place, ours[place], found)
    return run


def compare_record(place, ours, found):
    if place[0] == "raw":
        data = read_run.value_of(ours)
        same = (ours["dtype"] == found["dtype"] and ours["shape"] == found["shape"] and
                xxhash.xxh3_64_hexdigest(data) == found["hash"])
    elif place[0] == "vitals":
        row = ours["row"]
        counts = [int(row[key]) for key in ("count", "nan", "pos_inf", "neg_inf", "zero")]
        bits = [int(row[key].view("<u8")) for key in STATS]
        same = counts == found["counts"] and bits == found["bits"]
    else:
        same = ours["counts"] == found["counts"] and ours["bins"] == found["bins"]
    check(place, same)


def by_safetensors(run):
    """Every value of a closed segment, under its key, opened by safetensors."""
    closed = {}
    for record in run.all_records:
        if record["path"].endswith(".safetensors"):
            closed.setdefault(record["path"], []).append(record)
    check("closed segments", closed)
    for path, records in closed.items():
        with safe_open(path, framework="pt") as file:
            check(path + ": metadata", file.metadata()["sonde_run"] == "1")
            keys = set(file.keys())
            check(path + ": as many keys", len(keys) == len(records) or run.superseded)
            for record in records:
                by_key(file, keys, record)


def by_key(file, keys, record):
    key = "%010d/%s/%s" % (record["step"], record["mode"], record["name"])
    if record["micro_batch"] or record["replica"]:
        key += "@%d.%d" % (record["micro_batch"], record["replica"])
    if key not in keys:
        check("no key " + key, False)
        return
    tensor = file.get_tensor(key)
    if record["packing"]:
        check(key, str(tensor.dtype) == "torch.uint8" and
              list(tensor.shape) == [record["stored"]])
        return
    import torch
    data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    check(key, list(tensor.shape) == record["shape"] and data == read_run.value_of(record))


def by_numpy(path):
    """A closed file of statistics or of steps is mapped as it is."""
    for stem, dtype, head in (("stats", read_run.ROW, 1024), ("steps", read_run.STEP, 256)):
        files = glob.glob(os.path.join(path, "w*", stem + "-*.npy"))
        check(stem + " files", files)
        for name in files:
            rows = numpy.load(name, mmap_mode="r")
            check(name, rows.dtype == dtype and
                  os.path.getsize(name) == head + dtype.itemsize * len(rows))


def main():
    tool = (sys.argv[1] if len(sys.argv) == 2 else
            os.path.join(os.environ.get("SONDE_BIN", "build/release/bin"),
                         "tests_trial"))
    runs = os.path.join(HERE, "..", "golden", "runs")
    for name in ("v1", "v1-resumed", "v1-aliases"):
        golden = os.path.join(runs, name)
        by_safetensors(compare(tool, golden))
        by_numpy(golden)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "made")
        done = subprocess.run([tool, "test_golden", "make", path], capture_output=True, text=True)
        check("make: " + done.stderr, done.returncode == 0)
        run = compare(tool, path)
        check("some are compressed", any(r["packing"] for r in run.records))
        check("every step was ended",
              all(list(steps) == list(range(40)) for steps in run.ended_steps.values()))
        by_safetensors(run)
        by_numpy(path)
    print("%d passed, %d failed" % (results[True], results[False]))
    return 1 if results[False] else 0


sys.exit(main())
