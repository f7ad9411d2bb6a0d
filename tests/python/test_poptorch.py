"""poptorch's names on Sonde: programs written for it, on PyTorch.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import contextlib
import copy
import inspect
import io
import logging
import os
import sys
import tempfile

from harness import check, main, program, raises

BUILD = os.path.abspath(os.environ.get("SONDE_BUILD", "build/release"))
PACKAGE = os.path.join(BUILD, "python")
sys.path[0:0] = [os.path.join(PACKAGE, "sonde", "compat", "poptorch"), PACKAGE]
try:
    import torch
    from torch import nn
    import poptorch
except ImportError as problem:
    print(problem)
    sys.exit(77)
from poptorch import OutputMode


class Classifier(nn.Module):
    """The network of the introduction."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 5, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(5, 12, 5)
        self.norm = nn.GroupNorm(3, 12)
        self.fc1 = nn.Linear(972, 100)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(100, 10)
        self.log_softmax = nn.LogSoftmax(dim=1)
        self.loss = nn.NLLLoss()

    def forward(self, x, labels=None):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.norm(self.relu(self.conv2(x)))
        x = torch.flatten(x, start_dim=1)
        x = self.relu(self.fc1(x))
        x = self.log_softmax(self.fc2(x))
        if self.training:
            return x, self.loss(x, labels)
        return x


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.fc1, self.relu, self.fc2 = nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        x = self.fc2(self.relu(self.fc1(x)))
        return (x, self.loss(x, labels)) if self.training else x


class Lacking(Small):
    """Has an op that the engine lacks."""

    def forward(self, x, labels=None):
        x = self.fc2(self.relu(self.fc1(x)))
        x = x + x.cummax(dim=1).values
        return (x, self.loss(x, labels)) if self.training else x


class Identity(nn.Module):
    def forward(self, x):
        return x


LINE = inspect.getsourcelines(Lacking.forward)[1] + 2


def data(count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 6, generator=generator), \
        torch.randint(3, (count,), generator=generator)


def options(d=1, g=1, r=1):
    made = poptorch.Options().deviceIterations(d).replicationFactor(r)
    made.Training.gradientAccumulation(g)
    return made


# --- what comes back --------------------------------------------------------------------------


@program
def output_modes():
    """The vectors of poptorch's own tests."""
    def outputs(mode, x, d, r=1, period=None):
        made = options(d, 1, r).outputMode(mode, period)
        return poptorch.inferenceModel(Identity(), made)(x).tolist()

    numbers = torch.arange(1.0, 9.0)
    check("All", outputs(OutputMode.All, numbers, 8) == [1, 2, 3, 4, 5, 6, 7, 8])
    check("EveryN", outputs(OutputMode.EveryN, numbers, 8, period=4) == [4, 8])
    check("Final", outputs(OutputMode.Final, numbers, 8) == [8])
    check("Sum", outputs(OutputMode.Sum, numbers, 8) == [36])
    pairs = torch.arange(1.0, 9.0)
    check("EveryN of pairs", outputs(OutputMode.EveryN, pairs, 4, period=2) == [3, 4, 7, 8])
    check("Final of pairs", outputs(OutputMode.Final, pairs, 4) == [7, 8])
    check("Sum of pairs", outputs(OutputMode.Sum, pairs, 4) == [16, 20])
    check("EveryN of replicas", outputs(OutputMode.EveryN, pairs, 4, 2, 2) == [3, 4, 7, 8])
    check("Final of replicas", outputs(OutputMode.Final, pairs, 4, 2) == [7, 8])
    check("Sum of replicas", outputs(OutputMode.Sum, pairs, 4, 2) == [16, 20])
    check("inference returns all", len(poptorch.inferenceModel(Identity(), options(4))(
        numbers)) == 8)
    x, y = data(24)
    made = options(3, 2, 2)
    output, loss = poptorch.trainingModel(Small(), made)(x, y)
    check(f"training returns the last: {output.shape} {loss.shape}",
          output.shape == (4, 3) and loss.shape == (2,))
    output, loss = poptorch.trainingModel(Small(), options(3, 2, 2).outputMode(OutputMode.All))(
        x, y)
    check("or all", output.shape == (24, 3) and loss.shape == (12,))


@program
def anchors():
    x, y = data(16)
    made = options(2, 2)
    lr = 0.1
    for short, long_name, mode, period in (
            ("all", "model.fc1.weight", OutputMode.All, None),
            ("final", "model.fc1.weight", OutputMode.Final, None),
            ("updated", "UpdatedVar___model.fc1.weight", OutputMode.All, None),
            ("accum", "Accum___model.fc1.weight", OutputMode.All, None),
            ("gradient", "Gradient___model.fc1.weight", OutputMode.All, None),
            ("second", "Gradient___fc1.weight", OutputMode.EveryN, 2),
            ("relu", "relu_output_0", OutputMode.Sum, None),
            ("back", "Gradient___fc1_output_0", None, None),
            ("momentum", "Accl1___fc2.bias", None, None),
            ("input", "input/1", OutputMode.All, None)):
        made.anchorTensor(short, long_name, mode, period)
    made.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    model = Small()
    wrapped = poptorch.trainingModel(model, made,
                                     poptorch.optim.SGD(model.parameters(), lr, momentum=0.9))
    raises(AssertionError, "No tensor with name all", wrapped.getAnchoredTensor, "all")
    before = model.fc1.weight.detach().clone()
    wrapped(x, y)
    get = {short: wrapped.getAnchoredTensor(short) for short in made.anchored_tensors}
    shape = {short: tuple(value.shape) for short, value in get.items()}
    check(f"shapes: {shape}", shape == {
        "all": (32, 6), "final": (8, 6), "updated": (32, 6), "accum": (32, 6),
        "gradient": (32, 6), "second": (16, 6), "relu": (4, 8), "back": (4, 8),
        "momentum": (3,), "input": (16,)})
    weights, sums = get["all"].view(4, 8, 6), get["accum"].view(4, 8, 6)
    gradients = get["gradient"].view(4, 8, 6)
    check("a weight is as before the update", torch.equal(weights[0], before) and
          torch.equal(weights[0], weights[1]))
    check("the final one is as after it", torch.equal(get["final"], model.fc1.weight))
    check("the sums of gradients", torch.equal(sums[1], gradients[0] + gradients[1]) and
          torch.equal(sums[0], gradients[0]))
    check("the update", torch.allclose(weights[2], weights[0] - lr * sums[1], atol=1e-6))
    check("after the update", torch.equal(get["updated"].view(4, 8, 6)[0], weights[2]))
    check("every second micro-batch", torch.equal(get["second"].view(2, 8, 6)[1], gradients[3]))
    check("an input", torch.equal(get["input"], y))
    made.anchorTensor("late", "fc2_output_0")
    wrapped(x, y)
    check("an anchor that is added later", wrapped.getAnchoredTensor("late").shape == (4, 3))
    made.anchorTensor("wrong", "Gradient___model.fc3.weight")
    raises(poptorch.Error, "not in Ir Tensors (expected one of getTensorNames(), such as "
           "Gradient___model.fc", wrapped, x, y)


@program
def names():
    model = Small()
    wrapped = poptorch.trainingModel(model)
    raises(AssertionError, "must be compiled", wrapped.getTensorNames)
    state = torch.get_rng_state()
    before = copy.deepcopy(model.state_dict())
    wrapped.compile(*data(4))
    check("compile changes no weight", all(map(torch.equal, before.values(),
                                               model.state_dict().values())))
    check("nor a random number", torch.equal(state, torch.get_rng_state()))
    found = wrapped.getTensorNames()
    for name in ("input", "input/1", "model.fc1.weight", "fc1_output_0", "loss_output_0",
                 "Gradient___model.fc2.bias", "UpdatedVar___model.fc2.weight",
                 "Gradient___relu_output_0"):
        check(f"{name} in {found}", name in found)
    check("no name twice", len(found) == len(set(found)))
    inference = poptorch.inferenceModel(model.eval())
    inference.compile(data(4)[0])
    check(f"inference: {inference.getTensorNames()}", inference.getTensorNames() == [
        "input", "fc1_output_0", "relu_output_0", "fc2_output_0", "fc1.weight", "fc1.bias",
        "fc2.weight", "fc2.bias"])
    squares = Plain(nn.MSELoss())
    wrapped = poptorch.trainingModel(squares)
    wrapped(data(4)[0], torch.zeros(4, 3))
    found = [name for name in wrapped.getTensorNames() if "loss_output" in name]
    check(f"what a loss passes on is not its output: {found}", found == [
        "loss_output_0", "Gradient___loss_output_0"])


class Plain(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.fc, self.loss = nn.Linear(6, 3), loss

    def forward(self, x, target):
        y = self.fc(x)
        return y, self.loss(y, target)


# --- the same numbers as PyTorch ------------------------------------------------------------------


def close(a, b, rtol=1e-5, atol=1e-6):
    return all(torch.allclose(x, y, rtol=rtol, atol=atol) for x, y in zip(a, b, strict=True))


def plain_steps(model, optimizer, x, y, count):
    """`count` equal micro-batches averaged before each update, in plain PyTorch."""
    for batch_x, batch_y in zip(x.chunk(2), y.chunk(2)):
        optimizer.zero_grad()
        for part_x, part_y in zip(batch_x.chunk(count), batch_y.chunk(count)):
            (model(part_x, part_y)[1] / count).backward()
        optimizer.step()
    return list(model.parameters())


@program
def like_pytorch():
    x, y = data(24)
    makers = (("SGD", poptorch.optim.SGD, torch.optim.SGD, {"lr": 0.1}),
              ("momentum", poptorch.optim.SGD, torch.optim.SGD,
               {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
              ("Adam", poptorch.optim.Adam, torch.optim.Adam, {"lr": 0.01}),
              ("AdamW", poptorch.optim.AdamW, torch.optim.AdamW, {"lr": 0.01}),
              ("RMSprop", poptorch.optim.RMSprop, torch.optim.RMSprop,
               {"lr": 0.01, "momentum": 0.5, "centered": True}),
              ("Adagrad", torch.optim.Adagrad, torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1}),
              ("LAMB", poptorch.optim.LAMB, poptorch.optim.LAMB, {"lr": 0.01}),
              ("TensorFlow's RMSprop", poptorch.optim.RMSprop, poptorch.optim.RMSprop,
               {"lr": 0.01, "momentum": 0.5, "use_tf_variant": True}))
    for name, ours, theirs, keys in makers:
        for g, r in ((1, 1), (3, 1), (2, 3)):
            model, plain = Small(), Small()
            wrapped = poptorch.trainingModel(model, options(2, g, r),
                                             ours(model.parameters(), **keys))
            wrapped(x, y)
            expected = plain_steps(plain, theirs(plain.parameters(), **keys), x, y, g * r)
            check(f"{name}, {g} x {r}", close(model.parameters(), expected))
            check(f"{name}, {g} x {r}: on the engine", wrapped._engine is not None)
    model, plain = Small(), Small()
    poptorch.trainingModel(model, options(2), poptorch.optim.SGD(
        model.parameters(), 0.1, loss_scaling=1024.0))(x, y)
    expected = plain_steps(plain, torch.optim.SGD(plain.parameters(), 0.1), x, y, 1)
    check("loss scaling changes no weight", close(model.parameters(), expected))


@program
def other_optimizers():
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    weight.grad = torch.tensor([0.5, -1.0])
    poptorch.optim.LAMB([weight], lr=0.1, weight_decay=0.0).step()
    # the first direction is (1, -1): |w| / |direction| = 5 / sqrt(2)
    moved = 0.1 * 5 / 2 ** 0.5
    check(f"LAMB: {weight}", torch.allclose(weight, torch.tensor([3 - moved, 4 + moved]),
                                            atol=1e-4))
    weight = nn.Parameter(torch.tensor([1.0]))
    weight.grad = torch.tensor([2.0])
    poptorch.optim.RMSprop([weight], lr=0.1, alpha=0.9, eps=0.0, use_tf_variant=True).step()
    # 0.9 * 1 + 0.1 * 4 = 1.3
    check(f"RMSprop of TensorFlow: {weight}", abs(weight.item() - (1 - 0.2 / 1.3 ** 0.5)) < 1e-6)
    weight = nn.Parameter(torch.zeros(2))
    model = Small()
    clipped = poptorch.optim.SGD(model.parameters(), 1.0, max_grad_norm=1e-3)
    before = [value.detach().clone() for value in model.parameters()]
    poptorch.trainingModel(model, None, clipped)(*data(4))
    moved = sum(((a - b) ** 2).sum() for a, b in zip(before, model.parameters())).sqrt()
    check(f"clipping: moved by {moved}", abs(moved - 1e-3) < 1e-5)
    raises(ValueError, "amsgrad", poptorch.optim.Adam, model.parameters(), amsgrad=True)
    raises(ValueError, "loss_scaling", poptorch.optim.SGD, model.parameters(), 0.1,
           loss_scaling=0.0)


@program
def new_rate():
    model, x, y = Small(), *data(4)
    optimizer = poptorch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    wrapped = poptorch.trainingModel(model, None, optimizer)
    wrapped(x, y)
    wrapped.setOptimizer(poptorch.optim.SGD(model.parameters(), 0.0, momentum=0.9))
    before = model.fc1.weight.detach().clone()
    wrapped(x, y)
    check("a rate of 0", torch.equal(before, model.fc1.weight))
    plain = Small()
    optimizer = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
    for rate in (0.1, 0.0, 0.05, 0.05):
        optimizer.param_groups[0].update(lr=rate, momentum=0.5 if rate == 0.05 else 0.9)
        optimizer.zero_grad()
        plain(x, y)[1].backward()
        optimizer.step()
    wrapped.setOptimizer(poptorch.optim.SGD(model.parameters(), 0.05, momentum=0.5))
    wrapped(x, y)
    wrapped(x, y)
    check("the momentum stays", close(model.parameters(), plain.parameters()))


@program
def scheduled_rate():
    model, plain = Small(), Small()
    x, y = data(4)
    ours = torch.optim.SGD(model.parameters(), 0.4)
    theirs = torch.optim.SGD(plain.parameters(), 0.4)
    wrapped = poptorch.trainingModel(model, None, ours)
    schedules = [torch.optim.lr_scheduler.StepLR(one, 1, 0.5) for one in (ours, theirs)]
    for _ in range(4):
        wrapped(x, y)
        theirs.zero_grad()
        plain(x, y)[1].backward()
        theirs.step()
        ours.step()  # has no gradients: silences the schedule
        for schedule in schedules:
            schedule.step()
    check("a schedule", close(model.parameters(), plain.parameters()) and
          wrapped._engine is not None)


@program
def state_of_optimizers():
    """Goes to PyTorch's optimizer when the model is detached, and comes from it."""
    x, y = data(4)
    for make in (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
                 lambda p: torch.optim.Adam(p, 0.01),
                 lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5, centered=True),
                 lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5),
                 lambda p: torch.optim.Adagrad(p, 0.1), lambda p: poptorch.optim.LAMB(p, 0.01)):
        model, plain = Small(), Small()
        ours, theirs = make(model.parameters()), make(plain.parameters())
        wrapped = poptorch.trainingModel(model, None, ours)
        for part in range(4):  # on the engine, in PyTorch, and again
            for _ in range(2):
                if part % 2 == 0:
                    wrapped(x, y)
                else:
                    ours.zero_grad()
                    model(x, y)[1].backward()
                    ours.step()
                theirs.zero_grad()
                plain(x, y)[1].backward()
                theirs.step()
            if part % 2 == 0:
                check("on the engine", wrapped._engine is not None)
                wrapped.destroy()
        name = type(ours).__name__
        check(f"{name}: parameters", close(model.parameters(), plain.parameters(), 1e-4, 1e-5))
        check(f"{name}: {sorted(ours.state[model.fc1.weight])}", all(torch.allclose(
            torch.as_tensor(ours.state[model.fc1.weight][key]).float(),
            torch.as_tensor(value).float(), rtol=1e-3, atol=1e-5)
            for key, value in theirs.state[plain.fc1.weight].items()
            if key in ours.state[model.fc1.weight]))


# --- compiled models in files ---------------------------------------------------------------------


@program
def saved_models():
    x, y = data(8)
    for kind, model in (("engine", Small()), ("PyTorch", Lacking())):
        optimizer = poptorch.optim.Adam(model.parameters(), 0.05)
        wrapped = poptorch.trainingModel(model, options(2), optimizer)
        raises(poptorch.Error, "not been compiled", wrapped.save, "nowhere")
        for _ in range(3):
            wrapped(x, y)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "new", "model.poptorch")
            wrapped.save(path)
            wrapped.save(os.path.join(folder, "bare"), export_model=False)
            expected = [wrapped(x, y)[1].item() for _ in range(3)]
            loaded = poptorch.load(path)
            check(f"{kind}: compiled", loaded.isCompiled() and
                  (loaded._engine is None) == (kind == "PyTorch"))
            found = [loaded(x, y)[1].item() for _ in range(3)]
            check(f"{kind}: {found} continue as {expected}", found == expected)
            check(f"{kind}: the loaded module trains", torch.equal(
                loaded.model.fc2.weight, model.fc2.weight))
            raises(AssertionError, "holds no model", poptorch.load, os.path.join(folder, "bare"))
            other = type(model)()
            again = poptorch.trainingModel(other, options(2), poptorch.optim.Adam(
                other.parameters(), 0.05))
            again.loadExecutable(os.path.join(folder, "bare"))
            check(f"{kind}: into another module", abs(again(x, y)[1].item() - expected[0]) < 1e-6)
            raises(poptorch.Error, "saved by the other", poptorch.inferenceModel(
                other).loadExecutable, path)
    with tempfile.NamedTemporaryFile() as file:
        torch.save({"a": 1}, file.name)
        raises(poptorch.Error, "no model that this version saved", poptorch.load, file.name)


@program
def late_anchors_keep_the_state():
    """A session that is compiled again continues with the momentum."""
    x, y = data(8)
    model, plain = Small(), Small()
    made = options(2)
    wrapped = poptorch.trainingModel(model, made, torch.optim.SGD(
        model.parameters(), 0.1, momentum=0.9))
    wrapped(x, y)
    made.anchorTensor("momentum", "Accl1___model.fc1.weight")
    wrapped(x, y)
    optimizer = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
    plain_steps(plain, optimizer, x, y, 1)
    plain_steps(plain, optimizer, x, y, 1)
    check("as without", close(model.parameters(), plain.parameters()))
    check("the momentum", torch.allclose(wrapped.getAnchoredTensor("momentum"),
                                         optimizer.state[plain.fc1.weight]["momentum_buffer"],
                                         atol=1e-6))


# --- what the engine lacks ------------------------------------------------------------------------


class Said:
    """What the log says while it is open."""

    def __enter__(self):
        self.lines, log = [], logging.getLogger("poptorch")
        self.handler = logging.Handler()
        self.handler.emit = lambda record: self.lines.append(record.getMessage())
        log.addHandler(self.handler)
        return self.lines

    def __exit__(self, *rest):
        logging.getLogger("poptorch").removeHandler(self.handler)


@program
def on_pytorch():
    x, y = data(8)
    model, plain = Lacking(), Lacking()
    with Said() as lines:
        wrapped = poptorch.trainingModel(model, options(2), torch.optim.SGD(model.parameters(), 0.1))
        wrapped(x, y)
        wrapped(x, y)
    check(f"said once, with the line: {lines}", len(lines) == 1 and
          f"Lacking runs on PyTorch: the engine lacks cummax.default ({__file__}:{LINE})"
          == lines[0])
    for _ in range(2):
        plain_steps(plain, torch.optim.SGD(plain.parameters(), 0.1), x, y, 1)
    check("the same numbers", close(model.parameters(), plain.parameters()))

    class Branches(Small):
        def forward(self, x, labels=None):
            if x.sum() > 0:
                x = x * 2
            return super().forward(x, labels)

    class Hooked(Small):
        def __init__(self):
            super().__init__()
            self.fc1.register_forward_hook(lambda module, inputs, output: None)

    class Own(torch.optim.SGD):
        pass

    for kind, make, expected in ((Branches, None, "torch.export: "), (Hooked, None, "hooks"),
                                 (Small, lambda model: Own(model.parameters(), 0.1), "Own")):
        model = kind()
        with Said() as lines:
            wrapped = poptorch.trainingModel(model, None, make(model) if make else None)
            loss = wrapped(x, y)[1]
        check(f"{expected}: {lines}", len(lines) == 1 and expected in lines[0] and
              wrapped._engine is None and loss.numel() == 1)
        check("the line of a branch", kind is not Branches or __file__ in lines[0])
    class Many(nn.Module):
        def forward(self, x):
            return [x * i for i in range(65)]

    with Said() as lines:
        many = poptorch.inferenceModel(Many())(x)
    check(f"65 outputs: {lines}", len(many) == 65 and "more than 64 inputs or outputs" in lines[0])
    with Said() as lines:
        poptorch.inferenceModel(Identity())(torch.ones(1, 1, 1, 1, 1, 1, 1, 1, 1))
    check(f"9 dimensions: {lines}", "lacks input" in lines[0])
    double = poptorch.inferenceModel(Identity())
    with Said() as lines:
        check("float64", double(torch.ones(4, dtype=torch.float64)).dtype is torch.float64)
    check(f"said: {lines}", "torch.float64 (expected float32" in lines[0])


@program
def shared_parameters():
    """Replaced parameters, and loaded ones, are those of the engine; tied ones are one."""
    x, y = data(4)
    model = Small()
    wrapped = poptorch.trainingModel(model, None, torch.optim.SGD(model.parameters(), 0.0))
    wrapped(x, y)
    model.fc1.weight.data = torch.zeros(8, 6)
    model.load_state_dict({**model.state_dict(), "fc2.weight": torch.zeros(3, 8)})
    output = wrapped(x, y)[0]
    check("new values", torch.allclose(output, model.fc2.bias.expand(4, 3)))
    model.fc2.bias = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    check("a new parameter", torch.allclose(wrapped(x, y)[0], torch.tensor([1.0, 2.0, 3.0])))
    model.fc2.bias = nn.Parameter(torch.zeros(1))
    raises(poptorch.Error, "fc2.bias became (1,)", wrapped, x, y)

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.into, self.out = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
            self.out.weight = self.into.weight

        def forward(self, x):
            y = self.out(self.into(x).relu())
            return y, (y * y).mean()

    model, plain = Tied(), Tied()
    wrapped = poptorch.trainingModel(model, None, torch.optim.SGD(model.parameters(), 0.1))
    wrapped(x)
    plain(x)[1].backward()
    check("a tied weight", wrapped._engine is not None and torch.allclose(
        model.out.weight, plain.out.weight - 0.1 * plain.out.weight.grad, atol=1e-6))
    check("its gradient", sum("Gradient___model." in name for name in wrapped.getTensorNames()) == 1)


# --- the programs ---------------------------------------------------------------------------------


@program
def introduction():
    """Training, saving, evaluation and a prediction, on drawn images of three classes."""
    torch.manual_seed(42)
    labels = torch.randint(3, (960,))
    images = torch.randn(960, 1, 28, 28) * 0.3
    for i, label in enumerate(labels):
        images[i, 0, 8 * label:8 * label + 8] += 1.0
    made = poptorch.Options()
    loader = poptorch.DataLoader(made, torch.utils.data.TensorDataset(images, labels),
                                 batch_size=16, shuffle=True)
    check("batches", len(loader) == 60 and loader.combinedBatchSize == 16)
    model = Classifier()
    model.train()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    wrapped = poptorch.trainingModel(model, options=made, optimizer=optimizer)
    total = 0.0
    for x, y in loader:
        _, loss = wrapped(x, y)
        total += loss
    wrapped.detachFromDevice()
    raises(poptorch.Error, "not attached", wrapped.detachFromDevice)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    model = Classifier()
    model.load_state_dict(torch.load(file))
    inference = poptorch.inferenceModel(model.eval(), options=made)
    test = poptorch.DataLoader(made, torch.utils.data.TensorDataset(images, labels),
                               batch_size=32)
    predictions, truth = [], []
    for x, y in test:
        predictions += inference(x).data.max(dim=1).indices
        truth += y
    accuracy = sum(int(a == b) for a, b in zip(predictions, truth)) / len(truth)
    check(f"accuracy {accuracy}", accuracy > 0.95)
    one = poptorch.inferenceModel(model, options=poptorch.Options())(images[:1])
    check("one image", one.shape == (1, 10) and int(one.argmax()) == int(labels[0]))
    inference.detachFromDevice()


@program
def prints():
    class Printing(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2, bias=False)
            with torch.no_grad():
                self.linear.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))

        def forward(self, x):
            y = poptorch.ipu_print_tensor(self.linear(x), "linear")
            return y, poptorch.identity_loss(y, "sum")

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        poptorch.trainingModel(Printing())(torch.tensor([[1.0, 1.0]]))
    check(f"printed: {said.getvalue()!r}", said.getvalue() ==
          "linear: (\n (3.000, 7.000)\n)\nlinear_gradient: (\n (1.000, 1.000)\n)\n")
    raises(ValueError, "must take a torch.tensor", poptorch.ipu_print_tensor, 3)
    raises(ValueError, "reduction", poptorch.identity_loss, torch.ones(2), "middle")


# --- options and loaders --------------------------------------------------------------------------


@program
def chained_options():
    made = poptorch.Options().deviceIterations(20).replicationFactor(2).randomSeed(123) \
        .useIpuModel(True)
    check(f"{made}", "device_iterations=20" in str(made) and made.random_seed == 123)
    poptorch.inferenceModel(Identity(), made)
    raises(AttributeError, "frozen", made.deviceIterations, 3)
    raises(AttributeError, "frozen", made.Training.gradientAccumulation, 3)
    made.clone().deviceIterations(3)
    raises(AttributeError, "there is no option 'deviceIteration'", getattr, made,
           "deviceIteration")
    raises(ValueError, "deviceIterations: 0", poptorch.Options().deviceIterations, 0)
    raises(ValueError, "OutputMode.Final", poptorch.Options().outputMode, "last")
    raises(AssertionError, "EveryN", poptorch.Options().outputMode, OutputMode.EveryN)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("# a comment\ndeviceIterations(4)\nTraining.gradientAccumulation(8)\n"
                   "outputMode(poptorch.OutputMode.EveryN, 2)\n")
        file.flush()
        read = poptorch.Options().loadFromFile(file.name)
        check("from a file", read.device_iterations == 4 and
              read.Training.gradient_accumulation == 8 and
              read.output_mode is OutputMode.EveryN)
        file.write("deviceIterations(\n")
        file.flush()
        raises(poptorch.ConfigFileError, "at line 5", poptorch.Options().loadFromFile, file.name)
    read = poptorch.Options().from_json('{"deviceIterations": 2, '
                                        '"outputMode": ["OutputMode.EveryN", 2]}')
    check("from JSON", read.device_iterations == 2 and read.output_mode is OutputMode.EveryN)


@program
def loaders():
    x, y = data(101)
    dataset = torch.utils.data.TensorDataset(x, y)
    made = options(5, 2, 2)
    loader = poptorch.DataLoader(made, dataset, batch_size=2)
    check("combined batches", loader.combinedBatchSize == 40 and len(loader) == 2 and
          [len(batch[1]) for batch in loader] == [40, 40])
    raises(AttributeError, "frozen", made.deviceIterations, 1)
    loader = poptorch.DataLoader(options(2), dataset,
                                 batch_sampler=[[0, 1], [2, 3], [4, 5], [6, 7]])
    check("a sampler's batches", [batch[1].tolist() for batch in loader] ==
          [y[:4].tolist(), y[4:8].tolist()])
    raises(ValueError, "poptorch.Options", poptorch.DataLoader, 3, dataset)


# --- bad input ------------------------------------------------------------------------------------


@program
def bad_input():
    x, y = data(8)
    wrapped = poptorch.trainingModel(Small(), options(3))
    raises(AssertionError, "must be a multiple of Options.deviceIterations(3)", wrapped, x, y)
    wrapped = poptorch.trainingModel(Small())
    wrapped(x, y)
    raises(ValueError, "Shape mismatch for x: expected (8, 6) but got (4, 6)", wrapped, x[:4],
           y[:4])
    raises(ValueError, "Data type mismatch for labels: expected torch.int64 but got "
           "torch.float32", wrapped, x, y.float())
    raises(ValueError, "mismatch", wrapped, x)
    wrapped.destroy()
    wrapped(x[:4], y[:4])
    check("destroy takes another shape", wrapped.isCompiled())
    raises(poptorch.Error, "Couldn't find a loss", poptorch.trainingModel(Identity()), x)
    raises(ValueError, "gradientAccumulation to 1", poptorch.inferenceModel, Identity(),
           options(1, 2))
    raises(ValueError, "torch.nn.Module", poptorch.trainingModel, 3)
    raises(poptorch.Error, "does not divide", poptorch.inferenceModel(
        Identity(), options(4).outputMode(OutputMode.EveryN, 3)), x)
    model = Small()
    training = poptorch.trainingModel(model)
    model.eval()
    check("the flags of the wrapped model", len(training(x, y)) == 2 and not model.training)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
