"""Rules written in Python: in process and over runs the same findings; faults of a rule.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import os
import signal
import subprocess
import sys
import textwrap
import threading

from harness import check, folder, main, program, raises

PACKAGE = os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python")
sys.path.insert(0, PACKAGE)
try:
    import numpy
    import torch
    from torch import nn
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)


class LossJump(sonde.Rule):
    """The loss is far above its best."""
    condition = "The loss is above `factor` times its smallest value so far."
    advice = "Lower the learning rate."
    needs = {"what": "losses", "roles": "loss", "every": 1}
    modes = "train"

    def __init__(self, factor=10.0):
        self.factor, self.best = factor, float("inf")

    def step(self):
        for tensor in self.tensors:
            if tensor.vitals is not None:
                self.best = min(self.best, tensor.vitals.mean)
                if tensor.vitals.mean > self.factor * self.best:
                    self.found(tensor, statistic="loss", value=tensor.vitals.mean,
                               threshold=self.factor * self.best, severity="error",
                               message=f"It is {tensor.vitals.mean:.3g}.")


class Everything(sonde.Rule):
    """Looks at all kinds of evidence."""
    needs = ({"what": "weights", "how": ["values", "hash"], "roles": "weight"},
             {"what": "gradients", "how": "sketch", "roles": ["gradient"], "optional": True},
             {"what": "losses", "roles": "loss"})

    def __init__(self):
        self.seen, self.calls, self.vitals = [], [], {}

    def init(self):
        self.calls.append("init")

    def observe(self, tensor, seen):
        self.seen.append((tensor.name, self.at, seen))

    def step(self):
        self.calls.append(self.at)
        self.vitals.update({t.name: t.vitals for t in self.tensors if t.vitals})

    def finish(self):
        self.calls.append("finish")
        self.found(message="the end", severity="note")


def train(rules, run=None, steps=12, every=1, on_step=None, bad_at=8, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    sgd = torch.optim.SGD(model.parameters(), 0.05)
    watch = sonde.watch(model, sgd, run=run, rules=rules, every=every,
                        **{"on_finding": None, **options})
    x, y = torch.randn(16, 6), torch.randn(16, 2)
    for i in range(steps):
        sgd.zero_grad()
        loss = nn.functional.mse_loss(model(x), y) * (1000 if i == bad_at else 1)
        loss.backward()
        if i == bad_at:
            sgd.zero_grad()
        sgd.step()
        if on_step:
            on_step(watch)
    return model, watch


@program
def in_process_and_over_a_run():
    run = folder("rule")
    model, watch = train(["default", LossJump(factor=5)], run=run)
    during = [f for f in watch.findings if f.rule == "LossJump"]
    watch.close()
    after = [f for f in sonde.open(run).judge(["default", LossJump(factor=5)])
             if f.rule == "LossJump"]
    check(f"one finding: {during}", len(during) == 1 and during[0].tensor == "loss" and
          during[0].step == 8 and during[0].severity == "error" and
          during[0].advice == "Lower the learning rate." and during[0].statistic == "loss")
    check(f"over the run the same: {after}", after == during)
    check("it is stored with the run",
          [f.id for f in sonde.open(run).findings() if f.rule == "LossJump"] == [during[0].id])
    check("without the fault nothing is found",
          not sonde.open(run).judge(LossJump(factor=5000.0)))
    bare, bare_watch = train(None)
    bare_watch.close()
    check("the weights are those of an unwatched program", all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(),
                                          bare.state_dict().values())))


class EachStep(sonde.Rule):
    needs = None

    def __init__(self):
        self.steps = []

    def step(self):
        self.steps.append(self.at.step)


@program
def without_needs():
    each, run = EachStep(), folder("each")
    train("LossSpike", run=run, steps=30)[1].close()
    sonde.open(run).judge(each)
    check(f"called at every step: {each.steps}", each.steps == list(range(30)))
    each.steps = []
    sonde.open(run, begin=3, end=9).judge(each)
    check(f"of those that were opened: {each.steps}", each.steps == list(range(3, 9)))
    raises(sonde.BadValueError, "EachStep needs no tensor", train, [EachStep()])


@program
def evidence():
    rule, run = Everything(), folder("evidence")
    model, watch = train([rule], run=run, save=1, steps=30)
    watch.close()
    names = {t.name for t in rule.tensors}
    check(f"wanted by role: {names}", names == {"0.weight", "2.weight", "gradient/0.weight",
                                                "gradient/2.weight", "gradient/0.bias",
                                                "gradient/2.bias", "loss"})
    values = [seen for name, _, seen in rule.seen if name == "0.weight"]
    check("values are arrays, copies", values[0].values.shape == (8, 6) and
          values[0].values.dtype == numpy.float32 and
          not numpy.array_equal(values[0].values, values[-1].values))
    trial = sonde.open(run)
    check("the values of the step", all(
        numpy.array_equal(seen.values, trial.value("0.weight", at.mode_step, mode=at.mode))
        for name, at, seen in rule.seen if name == "0.weight"))
    check("a hash", values[0].hash != 0 and values[0].hash != values[-1].hash)
    sketches = [seen.sketch for name, _, seen in rule.seen if name == "gradient/0.weight"]
    check("sketches", sketches and sketches[0].count == 48 and sketches[0].nan == 0 and
          sketches[0].quantile(0.0) != sketches[0].quantile(1.0))
    check("vital signs", rule.vitals["loss"].count == 1)
    check(f"looked at seldom: {len(values)}", len(values) < 30)
    check("the order of calls", rule.calls[0] == "init" and rule.calls[-1] == "finish" and
          rule.calls[1] == (0, "train", 0))
    check("a finding of the whole run", [(f.tensor, f.message) for f in watch.findings] ==
          [("", "the end")])
    again = Everything()
    trial.judge(again)
    check("over the run the same evidence", again.vitals.keys() == rule.vitals.keys() and
          again.vitals["loss"] == rule.vitals["loss"])


@program
def a_rule_that_raises():
    class Bad(LossJump):
        def step(self):
            if self.at.step == 3:
                raise KeyError("no such thing")

    for name, wrong in (("step", Bad()), ("wants", LossJump()), ("init", LossJump()),
                        ("exit", LossJump()), ("text", LossJump())):
        if name == "wants":
            wrong.wants = lambda tensor: 1 / 0
        elif name == "init":
            wrong.init = lambda: [][1]
        elif name == "exit":
            wrong.step = lambda: sys.exit(3)
        elif name == "text":
            wrong.step = lambda: wrong.found(message="\udc80 bad", severity="terrible")
        model, watch = train(["LossSpike", wrong, LossJump(5)])
        watch.close()
        own = [f for f in watch.findings if f.rule in ("Bad", "LossJump")]
        off = [f for f in own if "switched off" in f.message]
        check(f"{name}: said once: {own}", len(off) == 1 and "test_rules.py, line" in
              off[0].message and off[0].severity == "warning")
        check(f"{name}: the next rule goes on", any(f.severity == "error" for f in own))
        check(f"{name}: training was not disturbed", watch.faults == 0 and
              all(p.isfinite().all() for p in model.parameters()))
    found = [f.message for f in sonde_of(Bad())]
    check(f"the message: {found}", any("KeyError: 'no such thing' (test_rules.py, line" in m
                                       for m in found))


def sonde_of(rule):
    _, watch = train([rule])
    watch.close()
    return watch.findings


@program
def the_watch_within_a_rule():
    class Greedy(LossJump):
        problems = []

        def step(self):
            for call in (lambda: self.watch.vitals("loss"), lambda: self.watch.findings,
                         lambda: self.watch.close(), lambda: self.watch.pause()):
                try:
                    call()
                except sonde.StateError as problem:
                    self.problems.append(str(problem))
            self.model(torch.zeros(1, 6)).sum().backward()  # is not observed

    rule = Greedy()
    rule.model = nn.Linear(6, 1)

    def on_step(watch):
        rule.watch = watch

    torch.manual_seed(0)
    sgd = torch.optim.SGD(rule.model.parameters(), 0.1)
    rule.watch = watch = sonde.watch(rule.model, sgd, rules=[rule], on_finding=None)
    for _ in range(3):
        rule.model(torch.randn(4, 6)).sum().backward()
        sgd.step()
    check("no step of its own", watch.step == 2)
    watch.close()
    check(f"refused: {set(rule.problems)}", len(rule.problems) >= 9 and
          all("a rule calls the watch" in text for text in rule.problems))


@program
def bad_rules():
    class Unnamed(LossJump):
        name = "two words"

    class Taken(LossJump):
        name = "NonFinite"

    class Needless(sonde.Rule):
        pass

    class Odd(LossJump):
        needs = {"what": "losses", "roles": "losses"}

    class Often(LossJump):
        needs = {"every": -1}

    class Extra(LossJump):
        needs = {"which": "losses"}

    class Modes(LossJump):
        modes = "training"

    model = nn.Linear(2, 1)
    for rule, text in ((Unnamed(), "two words"), (Taken(), "NonFinite"),
                       (Needless(), "needs nothing"), (Odd(), "activation_gradient"),
                       (Often(), "number of steps"), (Extra(), "'which'"),
                       (Modes(), "'training'"), (LossJump, "objects of"), (3, "names of rules")):
        raises(sonde.BadValueError, text, sonde.watch, model, rules=[rule])
    rule = LossJump()
    with sonde.watch(model, rules=[rule], on_finding=None):
        raises(sonde.StateError, "judges another run", sonde.watch, nn.Linear(2, 1), rules=[rule])
    sonde.watch(model, rules=[rule], on_finding=None).close()  # and then again
    check("no watch is left by those that failed", not sonde.watching._open)


@program
def threads_and_interrupts():
    def loop(made):
        _, watch = train([LossJump(50)], steps=40)
        watch.close()
        made.append([(f.rule, f.step) for f in watch.findings])

    made = []
    threads = [threading.Thread(target=loop, args=(made,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(f"watches of three threads: {made}", made == [[("LossJump", 8)]] * 3)

    code = textwrap.dedent("""
        import os, signal, sys, time
        sys.path.insert(0, sys.argv[1])
        import torch, sonde
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may ignore it
        class Stop(sonde.Rule):
            needs = {"what": "losses", "roles": "loss"}
            def step(self):
                if self.at.step == 2:
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(60)
        model = torch.nn.Linear(2, 1)
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        watch = sonde.watch(model, sgd, run=sys.argv[2], rules=[Stop()])
        for i in range(100):
            model(torch.ones(1, 2)).sum().backward()
            sgd.step()
    """)
    run = folder("interrupt")
    done = subprocess.run([sys.executable, "-c", code, os.path.abspath(PACKAGE), run],
                          capture_output=True, text=True, check=False)
    check(f"Ctrl-C within a rule ends the program: {done.stderr[-300:]}",
          done.returncode == -signal.SIGINT and "KeyboardInterrupt" in done.stderr and
          sonde.open(run).info["end_reason"] == "interrupted")


def rule_of_the_page(name):
    """A class of docs/own_rules.md as it stands."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    with open(os.path.join(root, "docs", "own_rules.md"), encoding="utf-8") as file:
        blocks = file.read().split("## In Python")[1].split("```python")[1:]
    code = next(block.split("```")[0] for block in blocks if f"class {name}(" in block)
    names = {"sonde": sonde}
    exec(code, names)  # pylint: disable=exec-used
    return names[name]


@program
def the_page_reads_programs():
    """The page's rule that reads programs fires where an activation is missing, and only there; in
    process and over the run, at the line."""
    rule = rule_of_the_page("LinearAfterLinear")
    with open(__file__, encoding="utf-8") as file:
        source = file.readlines()
    for name, between in (("bare", []), ("sound", [torch.nn.ReLU()])):
        model = torch.nn.Sequential(torch.nn.Linear(3, 8), *between, torch.nn.Linear(8, 1))
        sgd = torch.optim.SGD(model.parameters(), lr=0.01)
        run = folder(f"linear_{name}")
        watch = sonde.watch(model, sgd, run=run, rules=[rule()], on_finding=lambda finding: None)
        for _ in range(3):
            sgd.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()  # the line
            sgd.step()
        watch.close()
        live, later = watch.findings, sonde.open(run).judge([rule()])
        line = 1 + next(i for i, text in enumerate(source)
                        if "model(torch.randn(4, 3))" in text)
        wanted = [] if between else [("LinearAfterLinear", "1_output_0", 0, f"test_rules.py:{line}",
                                      "Nothing is between it and 0.")]
        for found in (live, later):
            found = [(f.rule, f.tensor, f.step, os.path.basename(f.place), f.message) for f in found]
            check(f"{name}: {found}", found == wanted)


@program
def the_page():
    """The class of docs/own_rules.md as it stands, in process and over the run."""
    names = {"LossJump": rule_of_the_page("LossJump")}
    run = folder("page")
    _, watch = train([names["LossJump"](factor=5)], run=run)
    watch.close()
    found = [(f.rule, f.tensor, f.step) for f in watch.findings]
    check(f"the page's rule: {found}", found == [("LossJump", "loss", 8)])
    check("over the run", [f.id for f in sonde.open(run).judge([names["LossJump"](5)])] ==
          [f.id for f in watch.findings])


@program
def nothing_stays():
    import gc
    import weakref
    rule = LossJump(5)
    _, watch = train([rule], run=folder("stays"))
    watch.close()
    ref = weakref.ref(rule)
    del rule
    gc.collect()
    check("a closed watch keeps no rule", ref() is None or watch._judges)
    del watch
    gc.collect()
    check("no rule is kept", ref() is None)


main()
