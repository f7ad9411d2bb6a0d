"""What docs/python.md and the docstrings say of each public call, called once.

Needs the release build's package (SONDE_BUILD), numpy and PyTorch; without: skipped (77).
"""
import array
import ast
import contextlib
import inspect
import io
import math
import os
import sys

from harness import check, folder, main, program, raises

PACKAGE = os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python")
sys.path.insert(0, PACKAGE)
try:
    import numpy
    import torch
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)


def model():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    return net, torch.optim.SGD(net.parameters(), 0.1)


def step(net, optimizer):
    optimizer.zero_grad()
    loss = net(torch.ones(5, 4)).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


@contextlib.contextmanager
def watched(name=None, **options):
    net, optimizer = model()
    run = folder(name) if name else None
    options.setdefault("rules", None)
    with sonde.watch(net, optimizer, run=run, **options) as watch:
        yield net, optimizer, watch


@program
def pauses():
    for every in (None, 1):
        with watched("pauses", every=every, rules="NonFinite") as (net, optimizer, watch):
            for number in range(3):
                step(net, optimizer)
            watch.pause()
            with torch.no_grad():
                kept = net[0].weight.clone()
                net[0].weight.fill_(math.nan)
            step(net, optimizer)  # observed by nobody: no finding, no step
            watch.record("mine", array.array("f", [1.0]))
            watch.scalar("rate", 1.0)
            check("a pause has no steps", watch.step == 2 and not watch.findings)
            watch.pause()
            torch.manual_seed(0)
            for layer in net:
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
            watch.resume()
            watch.resume()
            step(net, optimizer)
            check("a step after a pause is the next one", watch.step == 3)
            check("and is observed", watch.vitals("0.weight") is not None)
            net[0].weight.data[:] = math.nan
            step(net, optimizer)
            check("rules judge after a pause", watch.findings and watch.findings[0].step == 4)
            watch.on_finding = None
        run = sonde.open(watch.path)
        check("a run without the pause", list(run.steps("train")) == [0, 1, 2, 3, 4])
        check("nothing is shown in a pause",
              not {"mine", "scalar/rate"} & {info.name for info in run.tensors()})
    del kept


@program
def paused_within_a_step():
    with watched(every=1) as (net, optimizer, watch):
        net(torch.ones(5, 4)).sum().backward()
        watch.pause()  # ends the step
        optimizer.step()
        watch.resume()
        step(net, optimizer)
        check("the step after it", watch.step == 1)
    watch.pause()
    watch.resume()
    check("calls after close do nothing", watch.step == -1 and watch.vitals("0.weight") is None)
    watch.forward_begins(net), watch.forward_ends(), watch.remove(), watch.close()


@program
def norms_only():
    """Beyond the first looks, weights have norms alone."""
    with watched("norms", rules="default", on_finding=None) as (net, optimizer, watch):
        for number in range(58):
            step(net, optimizer)
            seen = watch.vitals("0.weight")
            weight = net[0].weight.detach().double()
            check("norms are at every step", seen is not None)
            check("l2", math.isclose(seen.l2, float(weight.norm()), rel_tol=1e-4))
            check("mean", math.isclose(seen.mean, float(weight.mean()), abs_tol=1e-6))
            check("abs_max", seen.abs_max == float(weight.abs().max()))
            check("count", seen.count == 12 and seen.finite == 12)
            lacking = (seen.zero, seen.min, seen.max, seen.abs_min, seen.m2, seen.l1, seen.std)
            alone = math.isnan(seen.zero)
            check("NaN for what norms lack", all(map(math.isnan, lacking)) == alone and
                  any(map(math.isnan, lacking)) == alone)
            check(f"full vital signs first, norms later: {number}", alone == (number >= 50))
            check("the repr is one", "Vitals(count=12" in repr(seen))
    run = sonde.open(watch.path)
    steps = list(run.steps("train", "0.weight"))
    check("norms alone are not recorded", steps == list(range(51)))  # step 50 has raw values
    raises(sonde.NotFoundError, "0.weight", run.vitals, "0.weight", 55, mode="train")
    check("-1 is the last one", run.vitals("0.weight", -1, mode="train") ==
          run.vitals("0.weight", 50, mode="train"))


@program
def shows():
    with watched("shows", every=1, save=1) as (net, optimizer, watch):
        check("before the first step", watch.step == -1)
        raises(sonde.BadValueError, "expected train, eval, predict", watch.mode("test").__enter__)
        with watch.mode("predict"):
            net(torch.ones(5, 4))
        step(net, optimizer)
        net(torch.ones(5, 4))
        check("loss returns what it was given", watch.loss(2.5, "critic", falls=False) == 2.5)
        raises(sonde.BadValueError, "role: 'weigth' (expected weight, ", watch.record, "x",
               torch.ones(2), "weigth")
        watch.record("mine", torch.arange(3.0), "activation")
        watch.scalar("lr", 0.5)
        watch.step_end()
        check("the step that is on or the last one", watch.step == 2)
        check("repr", repr(watch).startswith("Watch('") and "step 2" in repr(watch))
    check("repr after close", "closed, 0 findings" in repr(watch))
    run = sonde.open(watch.path)
    check("modes", list(run.steps("predict")) == [0] and list(run.steps("train")) == [0, 1])
    check("global", list(run.steps()) == [0, 1, 2])
    check("a role of one's own", run.tensors("mine")[0].role == "activation")
    check("a scalar", run.vitals("scalar/lr", mode="train").mean == 0.5)
    check("a loss that need not fall", run.tensors("critic")[0].note == "need not fall")
    check("value", list(run.value("0.weight", 1, mode="train").shape) == [3, 4])
    raises(ValueError, "read-only", run.value("0.weight", 1, mode="train").__setitem__, 0, 1.0)
    check("id and status", len(run.id) == 32 and run.status == "ended" and run.last_step == 2)
    check("info", {"status", "id", "program", "model", "world", "last_step", "records", "bytes",
                   "rows", "lost"} <= set(run.info))
    check("refresh of an ended run", run.refresh() is False)
    check("follow", list(run.follow()) == [0, 1, 2] and list(run.follow(mode="train")) == [0, 1])
    check("steps of a tensor", list(run.steps("global", "critic")) == [2])
    frame = run.series("0.*", ("mean", "l2"), begin=1, end=2)
    check("a frame", len(frame) == 1 and set(frame.columns) ==
          {"step", "0.weight mean", "0.weight l2", "0.bias mean", "0.bias l2"})
    check("one tensor", set(run.series("0.bias", "mean").columns) == {"step", "mean"})
    check("a window", list(sonde.open(watch.path, begin=1, end=2).steps()) == [1])
    check("no findings", run.findings() == [])


@program
def errors():
    run = folder("errors")
    try:
        sonde.open(run)
    except sonde.NotFoundError as problem:
        check("a LookupError, with where and found", isinstance(problem, LookupError) and
              isinstance(problem, sonde.SondeError) and problem.code == "SONDE_ENOTFOUND" and
              run in problem.where and problem.found and isinstance(problem.expected, str))
    for kind, base in (("BadValueError", ValueError), ("StorageError", OSError),
                       ("StateError", RuntimeError), ("NotFoundError", LookupError)):
        check(kind, issubclass(getattr(sonde, kind), (base,)) and
              issubclass(getattr(sonde, kind), sonde.SondeError))
    raises(sonde.BadValueError, "every: unknown kind 'weigths'", sonde.watch, every={"weigths": 1})
    raises(sonde.BadValueError, "0 for never", sonde.watch, every={"weights": -1})
    raises(sonde.BadValueError, "save: 1.5", sonde.watch, run=run, save=1.5)
    raises(sonde.BadValueError, "on_finding: 'print'", sonde.watch, on_finding="print")
    raises(sonde.BadValueError, "rank: 2 (expected 0 to 1)", sonde.watch, rank=2, world=2)
    raises(sonde.BadValueError, "VanishingGradient", sonde.watch, rules="VanishingGradient:patienc=1")
    raises(sonde.NotFoundError, "unknown rule 'NoSuchRule'", sonde.watch, rules="NoSuchRule")
    check("nothing is made by a call that fails", not os.path.exists(run))


@program
def findings_everywhere():
    told = []
    net, optimizer = model()
    with sonde.watch(net, optimizer, run=folder("told"), on_finding=told.append) as watch:
        step(net, optimizer)
        net[2].weight.data[0] = math.inf
        step(net, optimizer)
    check("a function gets each finding", told and isinstance(told[0], sonde.Finding))
    first = told[0]
    check(f"its place: {first.place}", first.place.startswith("test_calls.py:"))
    check("str", str(first).startswith(
        f"{first.severity}: {first.rule} in {first.tensor} ({first.place}) at step "))
    check("kept after close", watch.findings and watch.findings[0].id == first.id)
    run = sonde.open(watch.path)
    stored, anew = run.findings(), run.judge("default")
    check("stored with the run", {f.id for f in stored} == {f.id for f in watch.findings})
    check("by step", [f.step for f in stored] == sorted(f.step for f in stored))
    check("judged anew", {(f.rule, f.tensor) for f in anew} & {(first.rule, first.tensor)})
    check("html", first.rule in run._repr_html_() and first.rule in first._repr_html_())

    class Summary:
        summary = {}

    class Tags:
        tags = {}

        def set_tag(self, run_id, name, text):
            self.tags[run_id, name] = text

    sonde.sinks.wandb(Summary)(first)
    check("wandb", Summary.summary == {f"sonde/{first.rule}/{first.tensor}": str(first)})
    sonde.sinks.mlflow(Tags(), "7")(first)
    check("mlflow", Tags.tags == {("7", f"sonde.{first.rule}.{first.tensor}"): str(first)})

    net, optimizer = model()
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        watch = sonde.watch(net, optimizer, on_finding="raise")
        net[0].weight.data[0, 0] = math.nan
        raises(sonde.FindingError, "NonFinite", step, net, optimizer)
        watch.close()
    check("it is printed too", "error: NonFinite" in text.getvalue())
    net, optimizer = model()
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        with sonde.watch(net, optimizer, on_finding=None) as watch:
            net[0].weight.data[0, 0] = math.nan
            step(net, optimizer)
    check("None prints nothing", text.getvalue() == "" and watch.findings)


@program
def removed():
    net, optimizer = model()
    with sonde.watch(net, optimizer, run=folder("removed"), rules=None, save=1) as watch:
        step(net, optimizer)
        watch.remove()
        step(net, optimizer)
        check("nothing is seen after remove", watch.step == 0)
        watch.record("mine", numpy.ones(2), "weight")
        watch.step_end()
        check("the run stays open", watch.step == 1)
    check("both", list(sonde.open(watch.path).steps("train")) == [0, 1])


@program
def stubs():
    """The stub of the C core names what is there, with as many arguments."""
    core = sys.modules["sonde._sonde"]
    with open(os.path.join(os.path.dirname(sonde.__file__), "_sonde.pyi"), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    named = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    check("all names", set(named) == {name for name in vars(core) if name[0] != "_"})
    for name, node in named.items():
        there = getattr(core, name)
        if isinstance(node, ast.FunctionDef):
            check(f"{name}: a docstring", bool(there.__doc__))
            continue
        methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        for method in methods:
            check(f"{name}.{method}", hasattr(there, method) or method == "__buffer__")
        if not issubclass(there, BaseException):
            found = {key for key in vars(there) if key[0] != "_"}
            fields = {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
            check(f"{name}: {found ^ (set(methods) | fields)}", found - fields <= set(methods))
        for method, item in methods.items():
            try:
                signature = inspect.signature(getattr(there, method))
            except (AttributeError, TypeError, ValueError):
                continue
            wanted = len(item.args.posonlyargs) + len(item.args.args)
            given = [one for one in signature.parameters.values()
                     if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
            check(f"{name}.{method}{signature}", method[0] == "_" or len(given) in (wanted, wanted - 1))


main()
