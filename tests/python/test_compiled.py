"""Everyday mistakes in models that torch.compile has compiled: found as in models that are not.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import os
import sys
import warnings

from harness import check, main, program
from program_text import texts_of

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    import torch._dynamo
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

warnings.filterwarnings("ignore")


def line(mark):
    """The number of the line of this file that has a mark."""
    with open(__file__, encoding="utf-8") as file:
        return next(i for i, text in enumerate(file, 1) if text.rstrip().endswith(f"# LINE {mark}"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Dropout(0.1)
        self.last = nn.Linear(16, 3)
        self.parts = []

    def hidden(self, x):
        return self.drop(F.relu(self.norm(self.first(x))))

    def forward(self, x):
        return self.last(self.hidden(x))


class Softmax(Net):
    def forward(self, x):
        return F.softmax(super().forward(x), dim=1)  # LINE softmax


class OverTheBatch(Net):
    def forward(self, x):
        return F.log_softmax(super().forward(x), dim=0)  # LINE batch


class Dropout(Net):
    def forward(self, x):
        return self.last(F.dropout(self.hidden(x), 0.2))  # LINE dropout


class Detached(Net):
    def forward(self, x):
        return self.last(self.hidden(x).detach())  # LINE detach


class InAList(Net):
    def __init__(self):
        super().__init__()
        self.parts = [nn.Linear(16, 16)]

    def forward(self, x):
        return self.last(self.parts[0](self.hidden(x)))  # LINE list


class InTwoGraphs(Net):
    def forward(self, x):
        h = self.hidden(x)
        torch._dynamo.graph_break()
        return F.softmax(self.last(h), dim=1)  # LINE second


class Chunks(Net):
    def forward(self, x):
        low, high = self.hidden(x).chunk(2, dim=1)
        return self.last(torch.cat([high, low], 1))


def train(kind, loss_of=F.cross_entropy, watched=True, backend="eager", steps=40):
    """The watch, the programs, and the weights."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # as in a program of its own
    torch.manual_seed(0)
    net = kind()
    model = torch.compile(net, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    watch = sonde.watch(model, optimizer, on_finding=None) if watched else None
    found = texts_of(watch) if watched else []
    for step in range(steps):
        model.train()
        x = torch.randn(32, 5)
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                model(x)
    if watched:
        watch.close()
        check(f"{kind.__name__}: no fault", watch.faults == 0)
    return watch, found, [*(p.detach() for p in net.parameters()), torch.get_rng_state()]


def finds(kind, rule, mark, loss_of=F.cross_entropy):
    watch, found, _ = train(kind, loss_of)
    shown = [f"{f.rule} {f.severity} {f.place} {f.message}" for f in watch.findings]
    check(f"{kind.__name__}: {rule} at line {line(mark)}: {shown}", any(
        f.rule == rule and f.severity == "error" and f"{f.place}".endswith(f":{line(mark)}")
        for f in watch.findings))
    check(f"{kind.__name__}: the program is whole: {[text.gap for _, text in found]}",
          all(text.complete for _, text in found))


@program
def as_it_should_be():
    for kind in (Net, Chunks):
        watch, found, weights = train(kind, backend="aot_eager")
        check(f"nothing is found: {watch.findings}", watch.verdict == "nothing found" and
              not watch.findings)
        check(f"all of it is known: {[text.gap for _, text in found]}",
              all(text.complete and text.facts["compiled"] for _, text in found))
        plain = train(kind, watched=False, backend="aot_eager")[2]
        check("the same bits", all(map(torch.equal, weights, plain)))
    compiler = torch._dynamo.output_graph.OutputGraph.call_user_compiler
    check("nothing is left", compiler.__module__ == "torch._dynamo.output_graph")


@program
def mistakes():
    finds(Softmax, "SoftmaxMisuse", "softmax")
    finds(OverTheBatch, "SoftmaxMisuse", "batch", F.nll_loss)
    finds(Dropout, "EvalNondeterminism", "dropout")
    finds(Detached, "FrozenParameter", "detach")
    finds(InAList, "FrozenParameter", "list")
    finds(InTwoGraphs, "SoftmaxMisuse", "second")


@program
def what_is_not_known():
    """A compiler that cannot be asked: the call is one operation, and the program says so."""
    from torch._dynamo.output_graph import OutputGraph
    plain = OutputGraph.call_user_compiler
    OutputGraph.call_user_compiler = lambda self, module, *rest: plain(self, module, *rest)
    try:
        whole = OutputGraph.call_user_compiler
        train(Net, steps=3)
        check("the program's own is left", OutputGraph.call_user_compiler is whole)
    finally:
        OutputGraph.call_user_compiler = plain
    from sonde.program import compiled
    kept, compiled.Graph = compiled.Graph, None
    try:
        _, found, _ = train(Softmax, steps=3)
    finally:
        compiled.Graph = kept
    check(f"it says so: {[text.gap for _, text in found]}", found and all(
        text.gap == "the model is compiled" and "call" in text.ops() for _, text in found))


main()
