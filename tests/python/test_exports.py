"""What a run is to other people's readers: its own files, and its exports.

tests/trial/run_tool.h tells what is in the run; every element is computed here again.

    NumPy         npz exports, and the vital signs of the run as they lie
    safetensors   exports, and the closed segments of the run as they lie
    TensorBoard   event files, by its own loader (which checks every checksum) and accumulator
    DuckDB        JSON lines and CSV, and the index and catalogue of the run as they lie

Looks for sonde and tests_export in SONDE_BIN. Without them or a reader: skipped (77).
"""
import csv
import glob
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings

warnings.simplefilter("ignore")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
try:
    import duckdb
    import numpy
    from safetensors import safe_open
    from tensorboard.backend.event_processing import event_accumulator, event_file_loader
except ImportError as problem:
    print(problem)
    sys.exit(77)

results = {True: 0, False: 0}
#          name                       dtype      shape         raw every, steps of training
TENSORS = [("loss", "float32", (), 1),
           ("conv1.weight", "float32", (5, 1, 3, 3), 5),
           ("Gradient___conv1.weight", "float32", (5, 1, 3, 3), 10),
           ("fc.bias", "bfloat16", (4,), 10),
           ("act", "float16", (2, 3), 10),
           ("counter", "int64", (2,), 10),
           ("mask", "bool", (3,), 10),
           ('scalar/"odd", é', "float64", (), 10)]


def check(what, good):
    results[bool(good)] += 1
    if not good:
        print("FAILED:", what)


def steps(blocks):
    """(global step, mode, step of the mode), in order."""
    count = {"train": 0, "eval": 0}
    for step in range(12 * blocks):
        mode = "train" if step % 12 < 10 else "eval"
        yield step, mode, count[mode]
        count[mode] += 1


def value(tensor, step, mode, mode_step, micro_batch=0, rank=0):
    """The elements as the run has them; bfloat16 as float32."""
    _, dtype, shape, _ = TENSORS[tensor]
    i = numpy.arange(math.prod(shape))
    x = ((7 * i + 3 * step + 11 * tensor + 5 * micro_batch + 13 * rank) % 19 - 9) / 8.0
    if tensor == 2 and mode == "train" and mode_step == 20:
        x[:3] = [math.nan, math.inf, 0]
    x = 8 * x if dtype == "int64" else x > 0 if dtype == "bool" else x
    return x.astype("float32" if dtype == "bfloat16" else dtype).reshape(shape)


def raw_values(blocks, rank=0):
    """{key: elements} of everything that is recorded raw."""
    found = {}
    for step, mode, mode_step in steps(blocks):
        for t, (name, _, _, every) in enumerate(TENSORS):
            if mode_step % every or (mode == "eval" and t != 0):
                continue
            for b in range(2 if name == "act" else 1):
                key = f"{step:010d}/{mode}/{name}" + ("@1.0" if b else "")
                found[key] = value(t, step, mode, mode_step, b, rank)
    return found


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and numpy.array_equal(
        a, b, equal_nan=a.dtype.kind == "f")


class Tools:
    def __init__(self, folder):
        self.bin = os.environ.get("SONDE_BIN", "build/release/bin")
        self.folder = folder

    def run(self, program, *args):
        done = subprocess.run([os.path.join(self.bin, program), *args], capture_output=True,
                              text=True)
        check(f"{program} {' '.join(args)}: {done.stderr}", done.returncode == 0)
        return done.stdout

    def make(self, name, *options):
        path = os.path.join(self.folder, name)
        self.run("tests_export", "test_export", "make", path, *options)
        return path

    def export(self, run, kind, *more):
        path = f"{run}.{kind}{len(os.listdir(self.folder))}"
        self.run("sonde", "export", run, path, *more, "--format", kind, "--quiet")
        return path


# --- raw values -------------------------------------------------------------------------

def npz(tools, run, blocks):
    wanted = raw_values(blocks)
    with numpy.load(tools.export(run, "npz")) as archive:
        check("npz: its keys", set(archive.files) == set(wanted))
        for key, elements in wanted.items():
            check(f"npz: {key}", key in archive and same(archive[key], elements))


def read_safetensors(path):
    """{key: elements}; bfloat16, which NumPy has not, from its bytes."""
    found = {}
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(length))
        data = file.read()
    with safe_open(path, framework="numpy") as file:
        for key in file.keys():
            if head[key]["dtype"] == "BF16":
                begin, end = head[key]["data_offsets"]
                bits = numpy.frombuffer(data[begin:end], "<u2").astype("<u4") << 16
                found[key] = bits.view("<f4").reshape(head[key]["shape"])
            else:
                found[key] = file.get_tensor(key)
        return found, file.metadata()


def safetensors(tools, run, blocks):
    wanted = raw_values(blocks)
    segments = {}
    for path in sorted(glob.glob(run + "/w0000/seg-*.safetensors")):
        part, metadata = read_safetensors(path)
        check("segment: metadata", metadata["sonde_run"] == "1")
        segments.update(part)
    exported, metadata = read_safetensors(tools.export(run, "safetensors"))
    check("safetensors: metadata", metadata["model"] == "small")
    for what, found in (("segment", segments), ("safetensors", exported)):
        check(f"{what}: its keys", set(found) == set(wanted))
        for key, elements in wanted.items():
            check(f"{what}: {key}", key in found and same(found[key], elements))


# --- statistics -------------------------------------------------------------------------

def vital_signs(run, blocks):
    """The rows of the run itself, mapped."""
    paths = sorted(glob.glob(run + "/w0000/stats-*.npy"))
    rows = numpy.concatenate([numpy.load(path, mmap_mode="r") for path in paths])
    check("stats: how many", len(rows) == 2 * 10 * blocks)
    for row in rows:
        x = value(row["tensor"], row["step"], "train", row["mode_step"]).astype("float64")
        finite = x[numpy.isfinite(x)]
        check(f"stats: tensor {row['tensor']} at step {row['step']}",
              row["count"] == x.size and row["nan"] == numpy.isnan(x).sum() and
              row["zero"] == (x == 0).sum() and row["max"] == finite.max() and
              row["abs_max"] == abs(finite).max() and row["l1"] == abs(finite).sum() and
              abs(row["mean"] - finite.mean()) < 1e-15 and
              abs(row["m2"] - finite.var() * finite.size) < 1e-13)


def statistics_of(tensor, step, mode, mode_step):
    parts = range(2 if TENSORS[tensor][0] == "act" else 1)
    return numpy.concatenate([value(tensor, step, mode, mode_step, b).ravel().astype("float64")
                              for b in parts])


def lines(tools, run, blocks):
    """JSON lines and CSV, by DuckDB alone; NaN is a string in one and nan in the other."""
    paths = {kind: tools.export(run, kind) for kind in ("jsonl", "csv")}
    readers = {"jsonl": f"read_json('{paths['jsonl']}', format='newline_delimited')",
               "csv": f"read_csv('{paths['csv']}')"}
    for kind, reader in readers.items():
        rows = duckdb.sql(f"SELECT step, mode, mode_step, worker, tensor, count::BIGINT,"
                          f" mean::DOUBLE, std::DOUBLE, max::DOUBLE, nan::BIGINT, zero::BIGINT"
                          f" FROM {reader} ORDER BY tensor, step").fetchall()
        check(f"{kind}: how many rows", len(rows) == 48 * blocks // 4 + 20 * blocks + 5 * blocks)
        names = [name for name, _, _, _ in TENSORS]
        for step, mode, mode_step, worker, tensor, count, mean, std, most, nan, zero in rows:
            x = statistics_of(names.index(tensor), step, mode, mode_step)
            wanted = (x.mean(), x.std(), x.max()) if not numpy.isnan(x).any() else 3 * (math.nan,)
            close = all(math.isnan(a) and math.isnan(b) or abs(a - b) < 1e-14
                        for a, b in zip((mean, std, most), wanted))
            check(f"{kind}: {tensor} at {step}", close and worker == 0 and count == x.size and
                  nan == numpy.isnan(x).sum() and zero == (x == 0).sum())


def index(run, blocks, packed):
    """The run's own lines: which step of which tensor is how large, where it is not packed."""
    wanted = {(step, name): math.prod(shape) for t, (name, _, shape, every) in enumerate(TENSORS)
              for step, mode, mode_step in steps(blocks)
              if mode_step % every == 0 and (mode == "train" or t == 0)}
    rows = duckdb.sql(
        f"SELECT i.s, c.name, i.n, i.p, c.dtype FROM"
        f" read_json('{run}/w0000/seg-*.jsonl', format='newline_delimited',"
        f" columns={{s: 'BIGINT', t: 'BIGINT', b: 'BIGINT', n: 'BIGINT', p: 'BIGINT[]'}}) i"
        f" JOIN read_json('{run}/w0000/catalogue.jsonl', format='newline_delimited') c"
        f" ON i.t = c.id WHERE i.b = 0").fetchall()
    check("index: how many", len(rows) == len(wanted))
    size = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "bool": 1, "float64": 8}
    for step, name, length, shape, dtype in rows:
        check(f"index: {name} at {step}", math.prod(shape) == wanted.get((step, name)) and
              (packed or length == math.prod(shape) * size[dtype]))


# --- TensorBoard ------------------------------------------------------------------------

def board_events(path):
    """Every record, its checksums looked at by TensorBoard."""
    files = glob.glob(path + "/*tfevents*")
    events = list(event_file_loader.EventFileLoader(files[0]).Load())
    check("board: a version first", events[0].file_version == "brain.Event:2")
    return len(events) - 1


def times_of(run, mode):
    """{step of the mode: seconds since 1970}, of the run's own files."""
    rows = numpy.concatenate([numpy.load(path)
                              for path in sorted(glob.glob(run + "/w0000/steps-*.npy"))])
    rows = rows[rows["mode"] == ("train", "eval").index(mode)]
    return dict(zip(rows["mode_step"].tolist(), (rows["time"] / 1e9).tolist()))


def board_times(board, run, mode):
    """Events have the time of their step."""
    times = times_of(run, mode)
    events = board.Scalars("loss")
    check(f"board: times of {mode}", len(times) == len(events) and
          all(abs(event.wall_time - times[event.step]) < 1e-6 for event in events))
    check(f"board: times of {mode} ascend", sorted(times.values()) == list(times.values()))


def board_scalars(board, mode, blocks):
    names = {"mean": numpy.mean, "std": numpy.std, "min": numpy.min, "max": numpy.max,
             "l2": numpy.linalg.norm, "nonfinite": lambda x: (~numpy.isfinite(x)).sum()}
    count = 0
    for t, (name, _, shape, every) in enumerate(TENSORS):
        every = 1 if "conv1" in name else every
        due = [s for s in steps(blocks) if s[1] == mode and s[2] % every == 0 and
               (mode == "train" or t == 0)]
        for stat, function in names.items() if shape else (("", numpy.mean),):
            tag = name + ("/" + stat if stat else "")
            found = board.Scalars(tag) if due else []
            check(f"board: steps of {mode} {tag}", [e.step for e in found] == [s[2] for s in due])
            for event, (step, _, mode_step) in zip(found, due):
                with numpy.errstate(invalid="ignore"):
                    x = statistics_of(t, step, mode, mode_step)
                    wanted = function(x) if stat == "nonfinite" or not numpy.isnan(x).any() \
                        else math.nan
                check(f"board: {tag} at {mode} {mode_step}",
                      math.isnan(wanted) and math.isnan(event.value) or
                      abs(event.value - wanted) < 1e-6)
            count += len(found)
    return count


def board_histograms(board, blocks):
    """Buckets add up, and each holds what numpy finds between its limits."""
    count = 0
    for t, (name, _, shape, every) in enumerate(TENSORS):
        every = 5 if "conv1" in name else every
        due = [s for s in steps(blocks) if s[1] == "train" and s[2] % every == 0] if shape else []
        found = board.Histograms(name) if shape else []
        check(f"board: steps of histograms of {name}",
              [e.step for e in found] == [s[2] for s in due])
        for event, (step, mode, mode_step) in zip(found, due):
            x = statistics_of(t, step, mode, mode_step)
            x = x[numpy.isfinite(x)]
            histogram = event.histogram_value
            limits = numpy.array(histogram.bucket_limit)
            # a bin of the sketch holds its lower magnitude, a bucket its upper limit
            inside = numpy.searchsorted(limits, x * (1 + 1e-9), side="left")
            counts = numpy.bincount(inside, minlength=len(limits))
            check(f"board: histogram of {name} at {mode_step}",
                  histogram.num == x.size and histogram.min == x.min() and
                  histogram.max == x.max() and histogram.sum == x.sum() and
                  histogram.sum_squares == (x * x).sum() and
                  numpy.array_equal(counts, histogram.bucket))
        count += len(found)
    return count


def tensorboard(tools, run, blocks):
    path = tools.export(run, "tensorboard")
    check("board: a folder a mode", sorted(os.listdir(path)) == ["eval", "train"])
    for mode in ("train", "eval"):
        board = event_accumulator.EventAccumulator(
            os.path.join(path, mode), size_guidance={"scalars": 0, "histograms": 0})
        board.Reload()
        board_times(board, run, mode)
        count = board_scalars(board, mode, blocks)
        if mode == "train":
            count += board_histograms(board, blocks)
        check(f"board: all events of {mode}", count == board_events(os.path.join(path, mode)))


def two_workers(tools):
    run = tools.make("two", "world=2", "rank=1")
    tools.make("two", "world=2")
    wanted = {f"w{rank:04d}/{key}": elements for rank in (0, 1)
              for key, elements in raw_values(4, rank).items()}
    with numpy.load(tools.export(run, "npz")) as archive:
        check("two: its keys", set(archive.files) == set(wanted))
        for key, elements in wanted.items():
            check(f"two: {key}", same(archive[key], elements))
    with open(tools.export(run, "csv", "loss"), newline="", encoding="utf-8") as file:
        check("two: rows of both", [row["worker"] for row in csv.DictReader(file)] ==
              48 * ["0"] + 48 * ["1"])


def main():
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(folder)
        if not os.path.exists(os.path.join(tools.bin, "tests_export")):
            print(f"{tools.bin} has no tests_export")
            return 77
        for name, blocks, options in (("plain", 4, ()), ("packed", 8, ("compress=1",))):
            run = tools.make(name, f"blocks={blocks}", *options)
            npz(tools, run, blocks)
            if not options:  # packed segments hold zstd frames
                safetensors(tools, run, blocks)
            vital_signs(run, blocks)
            lines(tools, run, blocks)
            index(run, blocks, bool(options))
            tensorboard(tools, run, blocks)
        two_workers(tools)
    print("%d passed, %d failed" % (results[True], results[False]))
    return 1 if results[False] else 0


sys.exit(main())
