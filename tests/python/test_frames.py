"""Series as data frames, values mapped from their file, a run read while it is written.

Needs the release build's package (SONDE_BUILD) and numpy; pandas, polars and pyarrow are tested
where they are installed.
"""
import array
import importlib
import os
import subprocess
import sys
import textwrap

from harness import check, folder, main, program, raises

PACKAGE = os.path.abspath(os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
sys.path.insert(0, PACKAGE)
try:
    import numpy
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)


def recorded(name, steps=20, size=64):
    run = folder(name)
    with sonde.watch(run=run, rules=None, save=1) as watch:
        for step in range(steps):
            watch.record("a.weight", array.array("f", [step + i for i in range(size)]), "weight")
            if step % 2 == 0:
                watch.record("b.weight", array.array("d", [0.5 * step] * 3), "weight")
            watch.step_end()
    return sonde.open(run)


@program
def frames():
    trial = recorded("frames")
    one = trial.series("a.weight", ["mean", "l2"], mode="train")
    two = trial.series("*.weight", "mean", mode="train")
    check("columns", list(one.columns) == ["step", "mean", "l2"] and
          list(two.columns) == ["step", "a.weight", "b.weight"])
    check("steps and values", one["step"].tolist() == list(range(20)) and
          one["step"].dtype == numpy.int64 and one["mean"][3] == 3 + 31.5)
    check("NaN where a tensor was not saved", numpy.isnan(two["b.weight"][1]) and
          two["b.weight"][2] == 1.0)
    for package, method, length in (("pandas", "to_pandas", len), ("polars", "to_polars", len),
                                    ("pyarrow", "to_arrow", lambda table: table.num_rows)):
        try:
            importlib.import_module(package)
        except ImportError:
            print(f"not tested: {package} is not installed")
            raises(ImportError, package, getattr(one, method))
            continue
        frame = getattr(one, method)()
        check(f"{package}: {type(frame)}", type(frame).__module__.split(".")[0] == package and
              length(frame) == 20)
        column = frame["mean"]
        values = column.to_numpy()
        check(f"{package}: the values", numpy.array_equal(values, one["mean"]))
        check(f"{package}: of two tensors", length(getattr(two, method)()) == 20)
        empty = trial.series("nothing.*")
        check(f"{package}: of none", length(getattr(empty, method)()) == 0)


@program
def mapped():
    trial = recorded("mapped", steps=5, size=1 << 16)
    value = trial.value("a.weight", 4, mode="train")
    check("a value is the file", not value.flags.owndata and not value.flags.writeable)
    with open("/proc/self/maps", encoding="utf-8") as file:
        spans = [line.split()[0].split("-") for line in file if trial.path in line]
    address = value.__array_interface__["data"][0]
    check("its memory is mapped from the run", any(
        int(first, 16) <= address < int(last, 16) for first, last in spans))
    del trial
    check("it outlives the run that was opened", value[5] == 9.0)
    raises(ValueError, "read-only", value.__setitem__, 0, 1.0)


@program
def live():
    """Steps are read while another process writes the run."""
    run = folder("live")
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(f"""
        import array, sys
        sys.path.insert(0, {PACKAGE!r})
        import sonde
        with sonde.watch(run={run!r}, rules=None, save=1) as watch:
            for step in range(12):
                watch.record("w", array.array("f", [step]), "weight")
                watch.step_end()
                print(step, flush=True)
                sys.stdin.readline()
        """)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    seen = []
    check("the writer has begun", writer.stdout.readline() == "0\n")
    writer.stdin.write("\n")  # step 0 is complete when step 1 begins to be written
    writer.stdin.flush()
    trial = sonde.open(run)
    for step in trial.follow(timeout=120):
        seen.append((int(step), float(trial.value("w", int(step))[0])))
        if writer.poll() is None and len(seen) < 12:
            try:
                writer.stdin.write("\n")
                writer.stdin.flush()
            except BrokenPipeError:
                pass
    writer.stdin.close()
    writer.wait(120)
    check(f"all steps in order: {seen}", seen == [(i, float(i)) for i in range(12)] and
          writer.returncode == 0)
    check("the run has ended", sonde.open(run).status == "ended")


main()
