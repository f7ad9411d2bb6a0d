"""Reading a run from Python: opening a million records, a value, a series of 100,000 points.

    bench_read.py [--folder DIR]     where the run is written and removed again

Prints `name, number, unit`; each is the best of several, from the page cache.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time

import numpy

import sonde

STEPS, TENSORS = 100_000, 10


def write(path):
    """A run of a million records: vital signs at each step, raw values at every 1,000th."""
    value = numpy.arange(64, dtype=numpy.float32)
    with sonde.watch(run=path, rules=None, every=1, save=1000) as watch:
        for _ in range(STEPS):
            for i in range(TENSORS):
                watch.record(f"tensor{i}", value, "weight")
            watch.step_end()


def best(function, times):
    least = float("inf")
    for _ in range(times):
        before = time.process_time()
        function()
        least = min(least, time.process_time() - before)
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", default=None)
    folder = tempfile.mkdtemp(dir=parser.parse_args().folder)
    path = os.path.join(folder, "run")
    try:
        write(path)
        run = sonde.open(path)
        rows = run.info["rows"] + run.info["records"]
        print(f"python_open_1m, {best(lambda: sonde.open(path), 5):.3f}, s   # {rows} records")
        value = best(lambda: run.value("tensor3", 50_000), 2000)
        print(f"python_value, {1e6 * value:.1f}, us")
        series = best(lambda: run.series("tensor3", "l2"), 10)
        print(f"python_series_100k, {1e3 * series:.1f}, ms   # {len(run.series('tensor3'))} points")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
