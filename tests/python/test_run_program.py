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
    check("the verdict has the line", "NonFinite in fc.weight (net.py:13) at"
          in watch._core.verdict()[1])
    watch.close()
    check("a finding has its line", [one.place for one in live] == ["net.py:13"])
    check("and prints it", "NonFinite in fc.weight (net.py:13) at" in str(live[0]))
    check("in a notebook too",
          "</b> fc.weight (net.py:13) <i>" in live[0]._repr_html_())
    read = sonde.open(run)
    check("before the first program", read.program("train", 0) is None)
    check("in force", read.program(step=2)["nodes"][0]["place"] == [0, 11])
    check("the last", read.program()["nodes"][0]["place"] == [0, 13])
    check("of no mode", read.program("eval") is None)
    check("a key that is left out", "gap" not in read.program())
    check("later judging gives the line", [one.place for one in read.judge("NonFinite")]
          == ["net.py:13"])
    check("as the findings on disk", [one.place for one in read.findings()] == ["net.py:13"])


class Linear(sonde.Rule):
    """Names the lines of linear operations; reads programs alone."""
    advice = "None is needed."

    def __init__(self):
        self.shown = []

    def program(self, program):
        self.shown.append((self.at, program["mode"]))
        for node in program["nodes"]:
            if node["op"] == "linear":
                value = program["values"][node["inputs"][0]]
                self.found(value["tensor"], place=node["place"], value=2.0, statistic="inputs",
                           severity="note", message="A layer.")


class Wrong(Linear):
    """Gives what is no place."""

    def program(self, program):
        self.found("fc.weight", place=[7, 1], message="No.")


class Nameless(Linear):
    """Gives a name without a place."""

    def program(self, program):
        self.found("fc.weight", message="No.")


def record_two(run, rules):
    watch = sonde.watch(run=run, rules=rules, on_finding=None)
    slot = watch._core.add("fc.weight", 0, numpy.ones(4, numpy.float32), "fc", "Linear", 0)
    for step in range(4):
        watch._core.begin(0)
        watch._core.see(slot, numpy.ones(4, numpy.float32))
        if step in (0, 2):
            watch._core.program(text_of(10 + step))
        watch._core.end()
    watch.close()
    return watch


@program
def rules_in_python_read_programs():
    run, live, later = folder("rules"), Linear(), Linear()
    watch = record_two(run, [live])
    found = [(one.rule, one.tensor, one.place, one.step, one.severity, one.value)
             for one in watch.findings]
    check("a finding for each line", found == [
        ("Linear", "fc.weight", "net.py:10", 0, "note", 2.0),
        ("Linear", "fc.weight", "net.py:12", 2, "note", 2.0)])
    check("called at the steps with a new one", live.shown == [
        ((0, "train", 0), "train"), ((2, "train", 2), "train")])
    check("over the run the same", [one.id for one in sonde.open(run).judge([later])]
          == [one.id for one in watch.findings] and later.shown == live.shown)
    for rule, text in (Wrong, "expected the place of a row"), (Nameless, "self.tensors, or a"):
        fault = record_two(folder(rule.__name__), [rule()]).findings
        check(f"{rule.__name__} is switched off", len(fault) == 1 and text in fault[0].message)
    plain = type("Plain", (sonde.Rule,), {"step": lambda self: None})
    raises(ValueError, "or a method 'program'", sonde.watch, run=None, rules=[plain()])


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
