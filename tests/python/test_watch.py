"""sonde.watch on programs of PyTorch: what it sees, and that it changes nothing.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import copy
import gc
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import weakref

from harness import FOLDER, check, folder, main, program, raises

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

def mlp():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(),
                         nn.Linear(32, 4))


def cnn():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
                         nn.MaxPool2d(2), nn.Dropout(0.1), nn.Flatten(), nn.Linear(36, 4)
                         ).to(memory_format=torch.channels_last)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8, sparse=True)
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens):
        out, _ = self.lstm(self.embed(tokens))
        return {"scores": self.head(out[:, -1]), "hidden": [out]}


def batches(shape, count, tokens=False):
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        x = torch.randint(12, shape, generator=generator) if tokens else \
            torch.randn(shape, generator=generator)
        yield x, torch.randint(4, (shape[0],), generator=generator)


def train(make, shape, watch=None, steps=30, tokens=False, autocast=False, optimizer=None,
          accumulate=1):
    """(weights after training, the watch) of a program; watch: what sonde.watch gets."""
    torch.manual_seed(0)
    model = make()
    sgd = optimizer(model) if optimizer else torch.optim.SGD(model.parameters(), 0.05,
                                                             momentum=0.9)
    seen = sonde.watch(model, sgd, on_finding=None, **watch) if watch is not None else None
    for i, (x, y) in enumerate(batches(shape, steps * accumulate, tokens)):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            out = model(x)
            out = out["scores"] if isinstance(out, dict) else out
            loss = nn.functional.cross_entropy(out.float(), y) / accumulate
        loss.backward()
        if i % accumulate == accumulate - 1:
            sgd.step()
            sgd.zero_grad()
    if seen is not None:
        seen.close()
    return [value.detach().clone() for value in model.state_dict().values()], seen


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


# --- looking changes nothing --------------------------------------------------------------

@program
def bits():
    for name, make, shape, more in (
            ("mlp", mlp, (16, 20), {}), ("cnn", cnn, (8, 1, 8, 8), {}),
            ("bf16", mlp, (16, 20), {"autocast": True}),
            ("accumulated", mlp, (16, 20), {"accumulate": 3}),
            ("lstm", Recurrent, (8, 5), {"tokens": True})):
        torch.manual_seed(1)
        bare, _ = train(make, shape, **more)
        for label, watch in (("judged", {}), ("default", {"run": folder("bits")}),
                             ("all", {"run": folder("all"), "every": 1, "save": 1})):
            torch.manual_seed(1)
            weights, _ = train(make, shape, watch, **more)
            check(f"{name}, {label}: the same bits", same(bare, weights))


@program
def nothing_stays():
    model = mlp()
    sgd = torch.optim.Adam(model.parameters())
    backward = torch.autograd.backward
    watch = sonde.watch(model, sgd, on_finding=None, every=1)
    refs = []
    for x, y in batches((8, 20), 4):
        out = model(x)
        refs.append(weakref.ref(out))
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        sgd.step()
        del out, loss
    check("no activation is kept", all(ref() is None for ref in refs))
    copied = copy.deepcopy(model)
    torch.save(model, io.BytesIO())
    copied(torch.zeros(2, 20)).sum().backward()
    step = watch.step
    check("a copy is not watched", watch.step == step)
    watch.remove()
    from torch.nn.modules import module as torch_module
    check("no hook is left", not model._forward_hooks and not model._forward_pre_hooks and
          not sgd._optimizer_step_pre_hooks and not sgd._optimizer_step_post_hooks and
          not torch_module._global_forward_hooks and torch.autograd.backward is backward)
    watch.close()
    ref = weakref.ref(model[0].weight)
    del model, sgd, copied, watch
    gc.collect()
    check("no parameter is kept", ref() is None)


def resident():
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@program
def memory_stays():
    """A thousand steps of which everything is seen take no more memory than the first ones:
    of 512 KiB that a step makes, none is kept."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4))
    sgd = torch.optim.SGD(model.parameters(), 0.01)
    batch = torch.randn(256, 64), torch.randint(4, (256,))
    with sonde.watch(model, sgd, on_finding=None, every=1):
        for step in range(1200):
            if step == 200:
                gc.collect()
                before = resident()
            sgd.zero_grad()
            nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
            sgd.step()
    gc.collect()
    check(f"memory after 1,000 steps: {resident() - before} bytes more",
          resident() - before < 16 * 2**20)


@program
def a_dropped_model():
    model = mlp()
    watch = sonde.watch(model, torch.optim.SGD(model.parameters(), 0.1), on_finding=None)
    ref = weakref.ref(model[0].weight)
    del model
    gc.collect()
    check("a watch keeps no model alive", ref() is None)
    watch.close()


# --- what is seen ---------------------------------------------------------------------------

@program
def names_roles_values():
    run = folder("names")
    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    with sonde.watch(model, sgd, run=run, every=1, save=1, on_finding=None):
        for x, y in batches((8, 20), 3):
            sgd.zero_grad()
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            gradient = model[0].weight.grad.clone()
            sgd.step()
    trial = sonde.open(run)
    roles = {info.name: info.role for info in trial.tensors("@all")}
    expected = {"0.weight": "weight", "0.bias": "bias", "gradient/0.weight": "gradient",
                "update/0.weight": "update", "input": "input", "1_output_0": "activation",
                "1_input_0": "activation", "gradient/1_output_0": "activation_gradient",
                "loss": "loss", "0.weight.momentum_buffer": "optimizer"}
    check(f"names and roles: {roles}", expected.items() <= roles.items())
    check("module and op", [(t.module, t.op) for t in trial.tensors("1_output_0")] ==
          [("1", "ReLU")])
    check("the last gradient", numpy.array_equal(trial.value("gradient/0.weight"),
                                                 gradient.numpy()))
    check("the last weight", numpy.array_equal(trial.value("0.weight"),
                                               model[0].weight.detach().numpy()))
    check("the last loss", trial.value("loss") == loss.item())
    vitals = trial.vitals("gradient/0.weight")
    check("vital signs", vitals.count == 640 and
          abs(vitals.l2 - gradient.double().norm().item()) < 1e-12)
    frame = trial.series("gradient/*.weight", ["l2", "max"], mode="train")
    check(f"a series: {frame}", len(frame) == 3 and "gradient/2.weight max" in frame.columns)
    check("steps", trial.steps("train").tolist() == [0, 1, 2] and trial.status == "ended")


@program
def schedules():
    run = folder("schedules")
    train(mlp, (8, 20), {"run": run}, steps=75)
    trial = sonde.open(run)
    steps = {name: len(trial.series(name, mode="train"))
             for name in ("loss", "gradient/0.weight", "0.weight", "1_output_0")}
    check(f"the default: {steps}", steps["loss"] == 75 and steps["gradient/0.weight"] == 75 and
          53 <= steps["0.weight"] < 65 and steps["1_output_0"] == 21)


@program
def what_default_rules_need():
    """The input is the program's, as rules know it, and slow weights are compared."""
    def judged(scale, rate, notes=False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
        adam = torch.optim.Adam(model.parameters(), rate)
        with sonde.watch(model, adam, on_finding=None) as watch:
            for _ in range(60):
                x = scale * torch.randn(32, 10)
                adam.zero_grad()
                nn.functional.mse_loss(model(x), x[:, :1] / scale).backward()
                adam.step()
        return {f.rule for f in watch.findings if notes or f.severity != "note"}

    # InputRange is a note while the loss falls.
    healthy, far, slow = judged(1, 2e-3), judged(200, 2e-3, True), judged(1, 6e-8)
    check(f"a healthy program: {healthy}", not healthy)
    check(f"an input that is not normalized: {far}", "InputRange" in far)
    check(f"a rate that is far too small: {slow}", "WeightUpdateRatio" in slow)


@program
def players_with_losses_of_their_own():
    run = folder("players")
    made, seen = nn.Linear(4, 4), nn.Linear(4, 1)
    ours, theirs = (torch.optim.SGD(m.parameters(), 0.1) for m in (made, seen))

    def go_back(loss):
        loss.backward()  # one line for both

    with sonde.watch([made, seen], [ours, theirs], run=run, on_finding=None) as watch:
        for _ in range(5):
            x = torch.randn(8, 4)
            theirs.zero_grad()
            go_back(watch.loss(seen(made(x).detach()).mean() - seen(x).mean(), "d_score",
                               falls=False))
            theirs.step()
            ours.zero_grad()
            go_back(watch.loss(-seen(made(x)).mean(), "g_score", falls=False))
            ours.step()
    losses = {info.name: info.note for info in sonde.open(run).tensors() if info.role == "loss"}
    check(f"each player's loss has its name, and need not fall: {losses}",
          losses == {"d_score": "need not fall", "g_score": "need not fall"})


@program
def a_holder_without_forward():
    run = folder("holder")
    players = nn.ModuleDict({"g": nn.Linear(4, 8), "d": nn.Linear(8, 1)})
    sgd = torch.optim.SGD(players.parameters(), 0.1)
    with sonde.watch(players, sgd, run=run, every=1, on_finding=None) as watch:
        for _ in range(3):
            sgd.zero_grad()
            players["d"](players["g"](torch.randn(6, 4))).mean().backward()
            sgd.step()
    trial = sonde.open(run)
    names = {info.name for info in trial.tensors()}
    check(f"the parts of a holder are seen: {names}", watch.faults == 0 and trial.last_step == 2 and
          {"loss", "g.weight", "g_output_0", "gradient/d_output_0"} <= names)
    run = folder("fiftieth")
    train(mlp, (8, 20), {"run": run, "every": 50}, steps=75)
    trial = sonde.open(run)
    steps = {name: trial.series(name, mode="train")["step"].tolist()
             for name in ("loss", "gradient/0.weight", "0.weight", "1_output_0")}
    check(f"every 50th, losses too: {steps}", all(
        [step for step in seen if step >= 20] == [50] for seen in steps.values()))


@program
def ends_of_steps():
    """A step that needs nothing of what its optimizer does is judged before that."""
    model = mlp()

    class Fails(torch.optim.SGD):
        def step(self, closure=None):
            if fails:
                raise RuntimeError("no step")
            return super().step(closure)

    fails, found = False, []
    sgd = Fails(model.parameters(), 0.1)
    watch = sonde.watch(model, sgd, on_finding=lambda finding: found.append(
        (watch.step, finding.rule, [p.grad is not None for p in model.parameters()])),
        every={"weights": 0, "updates": 0, "activations": 0, "buffers": 0, "optimizer": 0})
    for step, (x, y) in enumerate(batches((8, 20), 6)):
        sgd.zero_grad()
        loss = nn.functional.cross_entropy(model(x * (numpy.nan if step == 5 else 1)), y)
        loss.backward()
        check("a loss is known at once", numpy.array_equal(
            watch.vitals("loss").sum, loss.item()) or step == 5)
        fails = step == 3
        try:
            sgd.step()
        except RuntimeError:
            check("it fails at step 3", step == 3)
        check("the step is the one of the batch", watch.step == step)
        check("the gradients of the step are known",
              watch.vitals("gradient/0.weight").count == 640)
    check(f"a finding at its step: {found}", found and found[0][:2] == (5, "NonFinite"))
    watch.close()


@program
def accumulation_and_evaluation():
    run = folder("accumulation")
    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    with sonde.watch(model, sgd, run=run, on_finding=None):
        for i, (x, y) in enumerate(batches((8, 20), 12)):
            (nn.functional.cross_entropy(model(x), y) / 4).backward()
            if i % 4 == 3:
                sgd.step()
                sgd.zero_grad()
                model.eval()
                with torch.no_grad():
                    model(x)
                    model(x)
                model.train()
    trial = sonde.open(run)
    check("accumulated batches are one step", trial.steps("train").tolist() == [0, 1, 2])
    check("evaluation steps", len(trial.steps("eval")) == 6)
    check("micro-batches", trial.vitals("loss", 0, mode="train").count == 4)


@program
def several_optimizers():
    run = folder("gan")
    torch.manual_seed(0)
    maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
    first = torch.optim.Adam(judge.parameters())
    second = torch.optim.Adam(maker.parameters())
    with sonde.watch({"maker": maker, "judge": judge}, [first, second], run=run,
                     on_finding=None):
        for _ in range(5):
            fake = maker(torch.randn(6, 4))
            first.zero_grad()
            judge(fake.detach()).mean().backward()
            first.step()
            second.zero_grad()
            (-judge(fake)).mean().backward()
            second.step()
    trial = sonde.open(run)
    names = {info.name for info in trial.tensors("@all")}
    check("a step of both", trial.steps("train").tolist() == [0, 1, 2, 3, 4])
    check("two losses", {"loss", "loss_1", "maker.weight", "gradient/judge.weight"} <= names)


@program
def closures_and_scalers():
    run = folder("lbfgs")
    model = nn.Linear(4, 1)
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def closure():
        lbfgs.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    with sonde.watch(model, lbfgs, run=run, on_finding=None):
        for _ in range(4):
            lbfgs.step(closure)
    trial = sonde.open(run)
    check("a closure's steps", len(trial.steps("train")) == 4)
    check("a closure's gradients", len(trial.series("gradient/weight", mode="train")) == 4)

    for given in (True, False):  # the scaler may be given, or not
        run = folder("scaler")
        model = nn.Linear(4, 1)
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        other = torch.amp.GradScaler("cpu")
        losses = []
        with sonde.watch(model, sgd, run=run, on_finding=None,
                         **({"scaler": scaler} if given else {})):
            for i in range(4):
                sgd.zero_grad()
                loss = nn.functional.mse_loss(model(x), y) * (float("inf") if i == 2 else 1.0)
                losses.append(loss.item())
                scaler.scale(loss).backward()
                other.scale(loss.detach())
                scaler.step(sgd)
                scaler.update()
        trial = sonde.open(run)
        check("a skipped step ends", trial.steps("train").tolist() == [0, 1, 2, 3])
        check("a skipped step says so",
              trial.steps("train", "scalar/skipped_step").tolist() == [2])
        found = trial.series("loss", ["mean", "pos_inf"], mode="train")
        check(f"the loss before scaling: {found['mean']}", numpy.allclose(
            found["mean"][[0, 1, 3]], [losses[0], losses[1], losses[3]]) and
            found["pos_inf"].tolist() == [0, 0, 1, 0])
    check("the scaler is as it was", not hasattr(torch.amp.GradScaler.update, "_sonde"))

    class Own(torch.amp.GradScaler):
        def scale(self, outputs):
            return super().scale(outputs) * 1.0

    run, scaler = folder("own"), Own("cpu", init_scale=1024.0)
    with sonde.watch(model, sgd, run=run, on_finding=None, scaler=scaler):
        loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()
    check("a scaler of another class", abs(sonde.open(run).series("loss")["mean"][0] -
                                           loss.item()) < 1e-6)
    check("is as it was", "scale" not in vars(scaler) and "update" not in vars(scaler))


@program
def kinds_of_models():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(20, 20)
            self.tied = nn.Linear(20, 20)
            self.tied.weight = self.one.weight
            self.frozen = nn.Linear(20, 4).requires_grad_(False)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen += 1
            x = torch.utils.checkpoint.checkpoint(self.one, x, use_reentrant=False)
            return self.frozen(self.tied(torch.relu(x)))

    run = folder("odd")
    train(Odd, (8, 20), {"run": run, "every": 1}, steps=3,
          optimizer=lambda m: torch.optim.SGD([p for p in m.parameters() if p.requires_grad],
                                              0.1))
    names = {info.name for info in sonde.open(run).tensors("@all")}
    check(f"tied, frozen, buffers, recomputed: {sorted(names)}",
          {"one.weight", "tied.bias", "frozen.weight", "seen", "one_output_0"} <= names and
          not {"tied.weight", "gradient/frozen.weight", "one_output_1"} & names)

    run = folder("lstm")
    train(Recurrent, (8, 5), {"run": run, "every": 1}, steps=3, tokens=True)
    trial = sonde.open(run)
    names = {info.name for info in trial.tensors("@all")}
    check("modules that return tuples and dictionaries",
          {"lstm_output_0", "lstm_output_2", "lstm.weight_hh_l0"} <= names)
    check("a sparse gradient", trial.vitals("gradient/embed.weight").count > 0)

    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.filter = nn.Parameter(torch.ones(11, dtype=torch.complex64))
            self.last = nn.Linear(20, 4)

        def forward(self, x):
            return self.last(torch.fft.irfft(torch.fft.rfft(x) * self.filter, 20))

    bare, _ = train(Spectral, (8, 20), steps=3)
    run = folder("complex")
    weights, _ = train(Spectral, (8, 20), {"run": run, "every": 1}, steps=3)
    trial = sonde.open(run)
    check("complex parameters: their sizes, and no updates", same(bare, weights) and
          trial.vitals("filter", 0).count == 11 and
          trial.vitals("gradient/filter", 0).abs_max > 0 and
          {i.name for i in trial.tensors() if i.role == "update"} ==
          {"update/last.weight", "update/last.bias"})

    torch.manual_seed(0)
    bare, _ = train(lambda: torch.compile(mlp(), backend="aot_eager"), (8, 20), steps=4)
    run = folder("compiled")
    weights, _ = train(lambda: torch.compile(mlp(), backend="aot_eager"), (8, 20), {"run": run},
                       steps=4)
    trial = sonde.open(run)
    check("a compiled model", same(bare, weights) and
          trial.steps("train", "gradient/0.weight").tolist() == [0, 1, 2, 3] and
          trial.steps("train", "loss").tolist() == [0, 1, 2, 3])


# --- judging --------------------------------------------------------------------------------

@program
def findings():
    class Bad(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(20, 16), nn.Linear(16, 4)
            self.count = 0

        def forward(self, x):
            self.count += 1
            hidden = self.one(x)
            return self.two(torch.log(hidden) if self.count == 6 else torch.relu(hidden))

    found = []
    torch.manual_seed(0)
    model = Bad()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    run = folder("findings")
    watch = sonde.watch(model, sgd, run=run, on_finding=found.append)
    for i, (x, y) in enumerate(batches((8, 20), 8)):
        sgd.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        sgd.step()
        if i == 5:
            check("found before the next step", any(f.step == 5 for f in found))
    watch.close()
    first = [f for f in found if f.rule == "NonFinite"]
    check(f"the first tensor that went wrong: {first}",
          first and first[0].tensor == "two_input_0" and first[0].step == 5)
    stored = sonde.open(run).findings()
    check("stored with the run", {f.id for f in stored} >= {f.id for f in found} and
          first[0]._replace(last_step=0, steps=0) in
          [f._replace(last_step=0, steps=0) for f in stored])
    check("judged again", "NonFinite" in [f.rule for f in sonde.open(run).judge("NonFinite")])
    check("a card", "NonFinite" in first[0]._repr_html_())
    stored = sonde.open(run).findings()
    check(f"the cause comes first: {stored[0]}", stored[0].id == first[0].id and
          stored[0].because_of is None)
    card = sonde.open(run)._repr_html_()
    check("a card of the run: the cause, and one of those that follow",
          0 < card.find("<b>NonFinite</b>") < card.find("<b>ExplodingTensor</b>") and
          card.count("<b>ExplodingTensor</b>") == 1 and "more like it" in card)

    torch.manual_seed(0)
    model = Bad()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    errors = io.StringIO()
    steps, sys.stderr = 0, errors
    try:
        with sonde.watch(model, sgd, on_finding="raise") as watch:
            first = watch.verdict
            for x, y in batches((8, 20), 8):
                sgd.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                steps += 1
                sgd.step()
    except sonde.FindingError as problem:
        check("a finding stops the program at its step", steps == 6 and
              problem.finding.severity == "error")
    finally:
        sys.stderr = sys.__stderr__
    check("the verdict", errors.getvalue().splitlines()[-1].startswith("sonde: wrong: "))
    check("... as a word", (first, watch.verdict) == ("not judged", "wrong"))


@program
def the_first_bad_tensor():
    """An infinity that starts between looks at activations is found where it starts: in what
    a layer returns, or in what a block makes of it at that step only."""
    class Line(nn.Linear):
        def forward(self, x):
            x, self.count = super().forward(x), getattr(self, "count", -1) + 1
            return x * (float("inf") if self.name == where and self.count == 33 else 1.0)

    class Block(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.line, self.name, self.count = Line(20, 20), name, -1
            self.line.name = name + ".line"

        def forward(self, x):
            x, self.count = self.line(x), self.count + 1
            return x * float("inf") if self.name == where and self.count == 33 else x

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.three = Block("one"), Block("two"), Block("three")
            self.drop, self.head = nn.Dropout(0.1), nn.Linear(20, 4)

        def forward(self, x):
            for block in (self.one, self.two, self.three):
                x = torch.tanh(x) + block(self.drop(x))
            return self.head(x)

    def first(run=None, every=None, judge=False):
        weights, watch = train(Deep, (8, 20), {"run": run, "every": every}, steps=40)
        findings = sonde.open(run).judge() if judge else watch.findings
        return [(f.tensor, f.step) for f in findings if f.rule == "NonFinite"][:1]

    where = "two.line"
    check("a layer", first() == [("two.line_output_0", 33)])
    check("recorded", first(folder("first_bad")) == [("two.line_output_0", 33)])
    check("judged later",
          first(folder("first_bad"), None, True) == [("two.line_output_0", 33)])
    check("not if the program says how often",
          first(None, {"activations": 50})[0][0] != "two.line_output_0")
    where = "two"
    check("a block", first() == [("two_output_0", 33)])


@program
def the_first_bad_gradient():
    """The backward pass goes from the last module to the first."""
    class Spoil(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, spoils):
            ctx.spoils = spoils
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * (float("nan") if ctx.spoils else 1.0), None

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.zero, self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, spoils):
            return self.two(Spoil.apply(self.one(self.zero(x).tanh()), spoils).tanh())

    for step, name in ((5, "gradient/one_output_0"), (33, "gradient/one.bias")):
        run, model = folder("spoiled"), Deep()
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        with sonde.watch(model, sgd, run=run, on_finding=None) as watch:
            for i in range(step + 1):
                sgd.zero_grad()
                model(torch.randn(8, 4), i == step).square().mean().backward()
                sgd.step()
        for found in (watch.findings, sonde.open(run).judge()):
            bad = [(f.tensor, f.step) for f in found if f.rule == "NonFinite"]
            check(f"first at step {step}: {bad}", bad == [(name, step)])


@program
def faults():
    """What cannot be observed is counted, and the program goes on with the same numbers."""
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.out = nn.Identity(), nn.Linear(2, 2)

        def forward(self, x):
            return self.out(self.wide(x.reshape(1, 1, 1, 1, 1, 1, 1, -1, 2)).reshape(-1, 2))

    torch.manual_seed(0)
    model = Deep()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    errors, sys.stderr = sys.stderr, io.StringIO()
    try:
        with sonde.watch(model, sgd) as watch:
            for _ in range(3):
                sgd.zero_grad()
                model(torch.ones(4, 2)).sum().backward()
                sgd.step()
        said = sys.stderr.getvalue()
    finally:
        sys.stderr = errors
    check(f"a tensor of rank 9 is said: {said}", watch.faults == 1 and "not observed" in said)

    def unhappy(finding):
        raise KeyError(finding.rule)

    model = nn.Linear(2, 2)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    watch = sonde.watch(model, sgd, on_finding=unhappy)
    model(torch.tensor([[1.0, float("nan")]])).sum().backward()
    raises(KeyError, "", sgd.step)
    watch.on_finding = None
    watch.close()
    model = nn.Linear(2, 2)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    with sonde.watch(model, sgd, on_finding=None):
        raises(RuntimeError, "shapes", lambda: model(torch.zeros(2, 3)))
        model(torch.zeros(2, 2)).sum().backward()
        sgd.step()


@program
def readme():
    """The three lines of README as they stand."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(root, "README.md"), encoding="utf-8") as file:
        lines = file.read().split("```python\n")[1].split("```")[0]
    model = mlp()
    names = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1),
             "loader": batches((8, 20), 1)}
    here = os.getcwd()
    place = folder("readme")
    os.makedirs(place)
    os.chdir(place)
    try:
        exec(lines, names)
        model(torch.zeros(2, 20)).sum().backward()
        names["optimizer"].step()
        names["watch"].close()
        check("README's lines record a run", sonde.open("runs/first").last_step == 0)
    finally:
        os.chdir(here)


# --- bad input ------------------------------------------------------------------------------

@program
def bad_input():
    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    wrong = sonde.BadValueError
    raises(wrong, "no parameters", lambda: sonde.watch(nn.ReLU()))
    raises(wrong, "meta", lambda: sonde.watch(nn.Linear(2, 2, device="meta")))
    raises(wrong, "none of the model's", lambda: sonde.watch(mlp(), sgd))
    raises(wrong, "torch.nn.Module", lambda: sonde.watch("model"))
    raises(wrong, "torch.optim.Optimizer", lambda: sonde.watch(model, ["sgd"]))
    raises(wrong, "unknown kind", lambda: sonde.watch(model, sgd, every={"weigths": 1}))
    raises(wrong, "number of steps", lambda: sonde.watch(model, sgd, every={"weights": -1}))
    raises(wrong, "on_finding", lambda: sonde.watch(model, sgd, on_finding="shout"))
    raises(sonde.SondeError, "VanishingGradient",
           lambda: sonde.watch(model, sgd, rules="VanishinGradient"))
    raises(wrong, "rank", lambda: sonde.watch(model, sgd, rank=3, world=2))
    raises(sonde.NotFoundError, "", lambda: sonde.open(folder("nothing")))
    with sonde.watch(model, sgd, run=folder("used"), on_finding=None) as watch:
        raises(sonde.StateError, "watched already", lambda: sonde.watch(model, sgd))
        model(torch.zeros(2, 20)).sum().backward()
        sgd.step()
        other = mlp()
        second = torch.optim.SGD(other.parameters(), 0.1)
        twice = sonde.watch(other, second, run=watch.path, on_finding=None)
        check("two runs have two folders", twice.path == watch.path + "-2")
        twice.close()
        raises(sonde.NotFoundError, "gradient/0.weight", lambda: watch.vitals("gradient/0.wight"))
    trial = sonde.open(watch.path)
    raises(sonde.NotFoundError, "", lambda: trial.value("gradient/0.weight", 7))
    raises(sonde.BadValueError, "mode", lambda: trial.steps("training"))
    raises(sonde.SondeError, "", lambda: trial.series("loss", "meen"))
    check("the model works on after all that", model(torch.zeros(2, 20)).shape == (2, 4))


# --- the end of the program -----------------------------------------------------------------

START = """
    import sys, os, signal
    sys.path.insert(0, {package!r})
    import torch, sonde
    from torch import nn
    model = nn.Linear(4, 2)
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    watch = sonde.watch(model, sgd, run={run!r})
    for i in range(5):
        sgd.zero_grad(); model(torch.randn(3, 4)).sum().backward(); sgd.step()
"""


@program
def no_verdict_without_a_start():
    """A run that cannot be opened is an error, and no verdict follows."""
    text = textwrap.dedent(START.format(package=os.path.abspath(PACKAGE), run="/proc/x"))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                          check=False)
    check(f"no verdict: {done.stderr}", done.returncode == 1 and "/proc/x" in done.stderr and
          "judged" not in done.stderr and "found" not in done.stderr)


@program
def endings():
    for name, last, reason, status in (
            ("end", "pass", "finished", 0),
            ("exception", "raise KeyError('x')", "failed", 1),
            ("exit", "sys.exit(3)", "finished", 3),
            ("ctrl-c", "os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(5)",
             "interrupted", -signal.SIGINT),
            ("term", "os.kill(os.getpid(), signal.SIGTERM); import time; time.sleep(5)",
             "interrupted", -signal.SIGTERM),
            ("fork", "\n    if os.fork() == 0: os._exit(0)\n    os.wait()", "finished", 0)):
        run = folder("ending")
        text = textwrap.dedent(START.format(package=os.path.abspath(PACKAGE), run=run)) + \
            textwrap.dedent("    " + last) + "\n"
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                              check=False)
        info = sonde.open(run).info
        check(f"{name}: {done.returncode}, {info['end_reason']}, {done.stderr[-300:]}",
              done.returncode == status and info["end_reason"] == reason and
              info["last_step"] == 4)
        check(f"{name}: the verdict: {done.stderr}", "sonde: " in done.stderr and
              ("ended with an error: KeyError: 'x'" in done.stderr) == (reason == "failed"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
