"""The programs of a run through Python: recorded, read, and as the places of findings.

Needs the release build's package (SONDE_BUILD). Without it or without NumPy: skipped (77).
"""
import json
import os
import sys

from harness import check, folder, main, program, raises

PACKAGE = os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python")
sys.path.insert(0, PACKAGE)
try:
    import numpy
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)


def text_of(line, mode="train"):
    return json.dumps({
        "program": 1, "producer": "test", "mode": mode, "root": "/srv/x", "complete": True,
        "files": ["/srv/x/net.py"],
        "values": [{"kind": "parameter", "dtype": "float32", "shape": [4], "tensor": "fc.weight",
                    "parameter": 0, "requires_grad": True}, {"dtype": "float32"}],
        "nodes": [{"op": "linear", "inputs": [0], "outputs": [1], "place": [0, line]}],
        "parameters": [{"name": "fc.weight", "count": 4}]})


@program
def programs_are_recorded_and_read():
    run = folder("programs")
    watch = sonde.watch(run=run, rules="NonFinite")
    weight = numpy.ones(4, dtype=numpy.float32)
    slot = watch._core.add("fc.weight", 0, weight, "fc", "Linear", 0)
    for step in range(4):
        watch._core.begin(0)
        weight[0] = numpy.nan if step == 3 else 1.0
        watch._core.see(slot, weight)
        if step in (1, 3):
            watch._core.program(text_of(10 + step))
        watch._core.end()
    live = watch.findings
    watch.close()
    check("a finding has its line", [one.place for one in live] == ["net.py:13"])
    check("and prints it", "fc.weight (net.py:13) at" in str(live[0]))
    read = sonde.open(run)
    check("before the first program", read.program("train", 0) is None)
    check("in force", read.program(step=2)["nodes"][0]["place"] == [0, 11])
    check("the last", read.program()["nodes"][0]["place"] == [0, 13])
    check("of no mode", read.program("eval") is None)
    check("a key that is left out", "gap" not in read.program())
    check("later judging gives the line", [one.place for one in read.judge("NonFinite")]
          == ["net.py:13"])
    check("as the findings on disk", [one.place for one in read.findings()] == ["net.py:13"])


@program
def programs_that_cannot_be_are_refused():
    watch = sonde.watch(run=folder("refused"), rules="NonFinite")
    raises(sonde.StateError, "no step is on", watch._core.program, text_of(1))
    watch._core.begin(0)
    raises(sonde.StorageError, "JSON", watch._core.program, "{")
    raises(ValueError, "mode eval", watch._core.program, text_of(1, "eval"))
    raises(TypeError, "str", watch._core.program, 3)
    watch._core.program(text_of(1))
    watch._core.end()
    watch.close()


main()
