"""Where sonde.watch sees tensors in programs with several optimizers, with hooks of their own, or
that call the parts of a model.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import contextlib
import io
import os
import sys
import weakref

from harness import check, folder, main, program

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
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


def batches(shape, count):
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        yield torch.randn(shape, generator=generator), \
            torch.randint(4, (shape[0],), generator=generator)


@program
def norms_between_full_looks():
    """Between the steps of full vital signs, what norms lack is NaN."""
    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), 0.01)
    rows = []
    with sonde.watch(model, sgd, on_finding=None) as watch:
        for x, y in batches((8, 20), 56):
            sgd.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            sgd.step()
            rows.append(watch.vitals("0.weight"))
    full, row = rows[3], rows[55]
    check(f"full: {full}", full.zero == 0 and isinstance(full.zero, int) and full.m2 > 0)
    check(f"norms: {row}", row.count == 640 and row.nan == 0 and row.l2 > 0 and
          row.abs_max > 0 and all(map(numpy.isnan, (
              row.zero, row.min, row.max, row.abs_min, row.m2, row.l1, row.std))))


class Handed(nn.Module):
    """Modules that hand their tensors on: as they are, as a view, changed in place."""

    def __init__(self):
        super().__init__()
        self.flat, self.first, self.relu = nn.Flatten(), nn.Linear(64, 128), nn.ReLU()
        self.second, self.tanh, self.last = nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 4)

    def forward(self, x):
        self.shown = {"input": x.numpy().copy(), "flat_output_0": x.numpy().copy()}
        y = self.relu(self.note("relu_input_0", self.first(self.flat(x))))
        y = self.second(self.note("relu_output_0", y))
        self.note("second_output_0", y)
        y.mul_(3)
        self.note("tanh_input_0", y)
        y = self.tanh(y)
        self.note("tanh_output_0", y)
        return self.last(y.t().t())

    def note(self, name, tensor):
        self.shown[name] = tensor.detach().numpy().copy()
        return tensor


@program
def what_is_handed_on():
    """A tensor that several modules show has the vital signs of what it holds each time, also
    where PyTorch reuses its memory for the next one."""
    torch.manual_seed(1)
    model = Handed()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    run = folder("handed")
    with sonde.watch(model, sgd, run=run, every=1, on_finding=None) as watch:
        for step in range(4):
            sgd.zero_grad(set_to_none=True)
            with torch.set_grad_enabled(True):
                nn.functional.cross_entropy(model(torch.randn(64, 8, 8)),
                                            torch.arange(64) % 4).backward()
            for name, value in model.shown.items():
                row, exact = watch.vitals(name), value.astype(numpy.float64)
                check(f"step {step}: {name}: {row}", row is not None and
                      row.count == exact.size and row.max == exact.max() and
                      row.min == exact.min() and row.zero == (exact == 0).sum() and
                      numpy.isclose(row.l2, numpy.sqrt((exact ** 2).sum()), rtol=1e-12))
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            sgd.step()
            for name, p in model.named_parameters():
                row = watch.vitals("update/" + name)
                moved = (p.detach() - before[name]).double()
                check(f"step {step}: update of {name}: {row}", row is not None and
                      row.count == moved.numel() and row.max == moved.max() and
                      row.min == moved.min() and
                      numpy.isclose(row.l2, moved.norm().item(), rtol=1e-12))


@program
def states_in_another_order():
    """An optimizer's state is that of its parameter, whatever the order in which it came."""
    torch.manual_seed(1)
    model = mlp()
    parameters = dict(model.named_parameters())
    frozen = parameters["0.weight"].requires_grad_(False)
    order = [frozen] + [p for p in reversed(list(model.parameters())) if p is not frozen]
    sgd = torch.optim.SGD(order, 0.05, momentum=0.9)
    with sonde.watch(model, sgd, every=1, on_finding=None) as watch:
        for x, y in batches((8, 20), 3):
            sgd.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            sgd.step()
        for name, p in parameters.items():
            row = None if p is frozen else watch.vitals(name + ".momentum_buffer")
            check(f"{name}: {row}", p is frozen or row is not None and
                  row.abs_max == sgd.state[p]["momentum_buffer"].abs().max().double())


@program
def own_tensors():
    """What a program shows itself is recorded at every step, whatever its role and `save`."""
    for number, save in enumerate((None, 2)):
        run = folder(f"own{number}")
        with sonde.watch(run=run, rules=None, save=save) as watch:
            for step in range(4):
                watch.record("mine", torch.full((3,), float(step)))
                watch.step_end()
        means = sonde.open(run).series("mine", "mean", mode="train")["mean"].tolist()
        check(f"save={save}: {means}", means == [0, 1, 2, 3])


@program
def gradients_of_players():
    """The gradients of each optimizer are those that it uses, though the backward passes of
    others leave some in its parameters too."""
    run = folder("players")
    torch.manual_seed(0)
    maker, judge = nn.Linear(4, 8), nn.Linear(8, 1)
    first = torch.optim.SGD(judge.parameters(), 0.1)
    second = torch.optim.SGD(maker.parameters(), 0.1)
    frozen = nn.Linear(1, 1)
    used = {"judge": [], "maker": []}
    with sonde.watch({"maker": maker, "judge": judge, "frozen": frozen}, [first, second], run=run,
                     every=1, save=1, on_finding=None):
        for _ in range(4):
            fake = maker(torch.randn(6, 4))
            first.zero_grad()
            frozen(judge(fake.detach())).mean().backward()
            used["judge"].append(judge.weight.grad.clone())
            first.step()
            second.zero_grad()
            (-judge(fake)).pow(2).mean().backward()
            used["maker"].append(maker.weight.grad.clone())
            second.step()
    trial = sonde.open(run)
    for name, gradients in used.items():
        tensor = f"gradient/{name}.weight"
        seen = trial.steps("train", tensor).tolist()
        check(f"{name}: its gradients: {seen}", seen == [0, 1, 2, 3] and all(
            numpy.array_equal(trial.value(tensor, step, mode="train"), gradients[step].numpy())
            for step in seen))
        check(f"{name}: once a step", trial.vitals(tensor, 2, mode="train").count ==
              gradients[0].numel())
    check("of what no optimizer holds",
          trial.steps("train", "gradient/frozen.weight").tolist() == [0, 1, 2, 3])


@program
def cleared_gradients():
    """Gradients that are cleared between backward() and the step: they are seen where they
    are, and the weights that rest are the fault."""
    def judged(clear, first=20, to_none=True, steps=60):
        torch.manual_seed(0)
        model = mlp()
        sgd = torch.optim.SGD(model.parameters(), 0.05)
        counts = []
        with sonde.watch(model, sgd, on_finding=None) as watch:
            for step, (x, y) in enumerate(batches((16, 20), steps)):
                sgd.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                if clear and step >= first:
                    sgd.zero_grad(set_to_none=to_none)
                sgd.step()
                vitals = watch.vitals("gradient/0.weight")
                counts.append((vitals.count, vitals.abs_max > 0) if vitals else None)
        return {f.rule for f in watch.findings if f.severity == "error"}, counts

    healthy, counts = judged(False)
    check(f"a healthy program: {healthy}", not healthy and set(counts) == {(640, True)})
    for to_none in (True, False):
        rules, counts = judged(True, to_none=to_none)
        check(f"cleared: {rules}, {counts[18:24]}", "FrozenParameter" in rules and
              set(counts[21:]) == {(640, True)})
    rules, _ = judged(True, first=0)
    check(f"cleared from the start: {rules}", "FrozenParameter" in rules)
    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), 0.05)
    counts = []
    with sonde.watch(model, sgd, on_finding=None) as watch:
        for step, (x, y) in enumerate(batches((16, 20), 6)):
            nn.functional.cross_entropy(model(x), y).backward()
            if step == 2:
                sgd.zero_grad()
            sgd.step()
            sgd.zero_grad()
            vitals = watch.vitals("gradient/0.weight")
            counts.append(vitals and vitals.count)
    check(f"once: {counts}", counts == [640, 640, None, 640, 640, 640])


@program
def outputs_after_hooks():
    """What a forward hook of the program makes of an output is the module's output."""
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.norm = nn.Linear(20, 20), nn.BatchNorm1d(20)

        def forward(self, x):
            return torch.relu(self.norm(self.line(x)))

    def first(layer, late):
        torch.manual_seed(0)
        model = nn.Sequential(Block(), Block(), nn.Linear(20, 4))
        sgd = torch.optim.SGD(model.parameters(), 0.05)
        count = 0

        def spoil(module, inputs, output):
            return output * (float("inf") if count == 33 else 1.0)

        where = model.get_submodule(layer)
        if not late:
            where.register_forward_hook(spoil)
        run = folder("after_hooks")
        with sonde.watch(model, sgd, run=run, on_finding=None) as watch:
            for x, y in batches((8, 20), 40):
                if late and count == 5:
                    where.register_forward_hook(spoil)
                sgd.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                sgd.step()
                count += 1
        check("no hook is left", set(where._forward_hooks.values()) <= {spoil})
        trial = sonde.open(run)
        twice = [name for name in ("0_output_1", "1_output_1", "1.line_output_1")
                 if name in {info.name for info in trial.tensors("@all")}]
        check(f"nothing is shown twice: {twice}", not twice)
        return [(f.tensor, f.step) for f in watch.findings if f.rule == "NonFinite"][:1]

    for late in (False, True):
        for layer in ("1.line", "1.norm", "1", "2"):
            found = first(layer, late)
            check(f"late {late}: {layer}: {found}", found == [(f"{layer}_output_0", 33)])


@program
def late_checks():
    """Between looks, large tensors are checked once the loss is not finite: those that the
    graph or the program keeps, those that a layer computes again, and at once what neither has;
    and where backward() is not called, at the optimizer's step."""
    class Spoil(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def forward(self, x):
            x = x * 1.0
            if bad == self.name:
                with torch.no_grad():
                    x.view(-1)[777] = float("nan")
            return x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.kept, self.two = nn.Linear(40, 96), Spoil("kept"), nn.Linear(96, 96)
            self.lost, self.bend, self.three = Spoil("lost"), nn.Tanh(), nn.Linear(96, 96)
            self.inside = nn.ReLU(inplace=True)
            self.head = nn.Linear(96, 4)

        def forward(self, x):
            x = self.two(self.kept(torch.tanh(self.one(x))))
            x = self.inside(self.three(self.lost(self.bend(x)) + 1.0))
            return self.head(x)

    def first(fault, plain):
        nonlocal bad
        torch.manual_seed(0)
        model, bad = Net(), None
        sgd = torch.optim.SGD(model.parameters(), 0.05)
        with sonde.watch(model, sgd, on_finding=None) as watch:
            for step, (x, y) in enumerate(batches((64, 40), 36)):
                bad = fault if step == 33 else None
                if bad in ("one", "two", "three"):
                    with torch.no_grad():
                        # of an infinity, tanh makes 1: its module's input is read at once
                        model.get_submodule(bad).weight[3, 4] = \
                            float("inf" if bad == "two" else "nan")
                if bad == "input":
                    x[20, 30] = float("nan")
                loss = nn.functional.cross_entropy(model(x), y)
                if plain:
                    for p, g in zip(model.parameters(),
                                    torch.autograd.grad(loss, model.parameters())):
                        p.grad = g
                else:
                    sgd.zero_grad()
                    loss.backward()
                sgd.step()
            kept = weakref.ref(x)
        del x, loss
        check("nothing is kept alive", kept() is None)
        return [(f.tensor, f.step) for f in watch.findings if f.rule == "NonFinite"][:1]

    bad = None
    check("healthy", first(None, False) == [])
    for fault in ("input", "one", "kept", "two", "lost", "three"):
        name = fault if fault == "input" else f"{fault}_output_0"
        found = first(fault, False)
        check(f"{fault}: {found}", found == [(name, 33)])
    for fault in ("kept", "lost"):
        found = first(fault, True)
        check(f"without backward(): {fault}: {found}", found == [(f"{fault}_output_0", 33)])


@program
def parts_of_a_model():
    """A program may call the parts of a model, and never the model."""
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 1)])
            self.head = nn.Linear(1, 1)

        def forward(self, x):
            return self.head(self.parts[1](self.parts[0](x)))

    for whole in (False, True):
        run = folder("parts")
        model = Holder()
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        with sonde.watch(model, sgd, run=run, every=1, on_finding=None) as watch:
            for _ in range(3):
                sgd.zero_grad()
                x = torch.randn(6, 4)
                (model(x) if whole else model.head(model.parts[1](model.parts[0](x)))
                 ).mean().backward()
                sgd.step()
            hooked = len(model.head._forward_hooks) + len(model.head._forward_pre_hooks)
        trial = sonde.open(run)
        names = {info.name for info in trial.tensors("@all")}
        check(f"whole {whole}: {names}", watch.faults == 0 and trial.last_step == 2 and
              {"loss", "parts.0_output_0", "head_output_0", "gradient/parts.1_output_0"} <= names
              and not {"head_output_1", "input/1"} & names)
        check(f"whole {whole}: hooks of a part", hooked == 0)
        check("no hook is left", not model._forward_pre_hooks and not model._forward_hooks and
              not model.head._forward_pre_hooks)


class Wrapper(torch.optim.Optimizer):
    """Steps for another optimizer, and is one only by its class."""

    def __init__(self, inner):
        self.inner = inner

    param_groups = property(lambda self: self.inner.param_groups)

    def step(self, closure=None):
        return self.inner.step(closure)


@program
def wrapped_optimizers():
    model = mlp()
    wrapper = Wrapper(torch.optim.SGD(model.parameters(), 0.1))
    run = folder("wrapper")
    with sonde.watch(model, wrapper, run=run, every=1, on_finding=None):
        for _ in range(3):
            wrapper.inner.zero_grad()
            model(torch.randn(6, 20)).mean().backward()
            wrapper.step()
    trial = sonde.open(run)
    check("a wrapped optimizer", trial.last_step == 2 and
          "update/0.weight" in {info.name for info in trial.tensors("@all")})
    try:
        sonde.watch(model, Wrapper(None), run=None)
        check("a wrapper of nothing", False)
    except sonde.BadValueError as error:
        check(f"a wrapper of nothing: {error}", "Optimizer.__init__" in str(error))


@program
def a_nan_that_clipping_spreads():
    """Clipping makes NaN of all gradients: NonFinite names the one in which it began. The
    gradients of another optimizer, which are not clipped, are seen as ever. PyTorch 2.6 and later."""
    if not hasattr(nn.utils.clip_grad, "_clip_grads_with_norm_"):
        return
    step = 0

    def spoil(gradient):
        return gradient.masked_fill(torch.eye(32, dtype=torch.bool), float("nan")) \
            if step == 5 else gradient

    for scaled in (False, True):
        body, head = mlp(), nn.Linear(4, 2)
        model = nn.ModuleDict({"body": body, "head": head})
        body[2].weight.register_hook(spoil)
        optimizers = [torch.optim.SGD(one.parameters(), 0.01) for one in (body, head)]
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=scaled)
        clip = nn.utils.clip_grad.clip_grad_norm_
        with sonde.watch(model, optimizers, on_finding=None) as watch:
            for step in range(7):
                for one in optimizers:
                    one.zero_grad()
                scaler.scale(head(body(torch.randn(8, 20))).square().mean()).backward()
                scaler.unscale_(optimizers[0])
                clip((p for p in body.parameters()), 1.0)
                for one in optimizers:
                    scaler.step(one)
                scaler.update()
        first = watch.findings[0]
        check(f"it began in the third layer, scaled: {scaled}: {first}", watch.faults == 0 and
              (first.rule, first.tensor, first.mode_step) ==
              ("NonFinite", "gradient/body.2.weight", 5))
    check("clip_grad_norm_ is PyTorch's again",
          not hasattr(nn.utils.clip_grad._clip_grads_with_norm_, "_sonde"))


@program
def what_follows_is_counted():
    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), sonde.watch(model, sgd) as watch:
        for step in range(4):
            x = torch.randn(8, 20)
            x[0, 0] = float("nan") if step == 2 else 0
            sgd.zero_grad()
            model(x).square().mean().backward()
            sgd.step()
    verdict = printed.getvalue().splitlines()[-1]
    loud = [f for f in watch.findings if f.severity != "note"]
    follow = sum(f.because_of is not None for f in loud)
    check(f"{follow} of {len(loud)} follow: {verdict}", 0 < follow < len(loud) and
          "sonde: wrong: NonFinite in input (test_watch_hooks.py:" in verdict and
          ") at step 2: " in verdict and
          f"; {follow} more findings follow from it" in verdict)


@program
def inputs_of_integers():
    """Tokens are an input, and a batch of them that comes again is found."""
    run = folder("tokens")

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(50, 8), nn.Linear(9, 50)

        def forward(self, parts):
            tokens, places, scale = parts["tokens"], parts["places"], parts["scale"]
            return self.out(torch.cat([self.embed(tokens).mean(1), scale + 0 * places], 1))

    model = Words()
    adam = torch.optim.Adam(model.parameters(), 1e-2)
    with sonde.watch(model, adam, run=run, on_finding=None) as watch:
        for step in range(30):
            if step < 20:
                tokens = torch.randint(0, 50, (16, 12))
            adam.zero_grad()
            given = {"tokens": tokens, "places": torch.arange(16)[:, None],
                     "scale": torch.randn(16, 1)}
            nn.functional.cross_entropy(model(given), tokens[:, 0]).backward()
            adam.step()
    roles = {info.name: (info.role, info.dtype) for info in sonde.open(run).tensors()}
    check(f"tokens and places beside numbers: {roles}", watch.faults == 0 and
          roles["input_ids"] == roles["input_ids/1"] == ("input", "int64") and
          roles["input"] == ("input", "float32"))

    sgd = torch.optim.SGD(model.parameters(), 1e-2)
    model.forward = lambda tokens: model.out(nn.functional.pad(model.embed(tokens).mean(1), (0, 1)))
    with sonde.watch(model, sgd, on_finding=None) as watch:
        for step in range(30):
            if step < 20:
                tokens = torch.randint(0, 50, (16, 12))
            sgd.zero_grad()
            nn.functional.cross_entropy(model(tokens), tokens[:, 0]).backward()
            sgd.step()
    found = [(f.tensor, f.step) for f in watch.findings if f.rule == "DuplicateBatch"]
    check(f"the same tokens again: {found}", found == [("input_ids", 20)])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
