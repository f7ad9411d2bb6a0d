"""sonde.check: each property on a network that has it and on one that does not, and that nothing
of the program changes.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import json
import os
import random
import subprocess
import sys

from harness import check, main, program, raises

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    import torch.nn.functional as F
    from torch import nn
    import sonde
    from sonde import checking
except ImportError as problem:
    print(problem)
    sys.exit(77)

torch.set_num_threads(1)
ROWS, TOKENS = 8, 11
PAIRS = {}


def pair(name):
    """A network with a property: function(False); and without it: function(True)."""
    def register(function):
        PAIRS[name] = function
        return function
    return register


class Net(nn.Module):
    """Layers, and a forward function of the test's own."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.own = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs):
        return self.own(self, *inputs)


def dense(*more):
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3), *more)


def rows(classes=3):
    return torch.randn(ROWS, 6), torch.arange(ROWS) % classes


def tokens():
    return torch.randint(TOKENS, (4, 9))


@pair("runs")
def runs(fault):
    x, y = rows()
    return dense(), F.cross_entropy, (x, y[:-1] if fault else y)


@pair("dtypes")
def dtypes(fault):
    model = dense()
    if fault:
        model[0].weight.data[0, 0] = float("nan")
    return model, F.cross_entropy, rows()


@pair("labels")
def labels(fault):
    x, y = rows()
    return dense(), F.cross_entropy, (x, y + 1 if fault else y)


@pair("reachable")
def reachable(fault):
    last = nn.ReLU() if fault else nn.Identity()
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2), last), F.mse_loss, \
        (torch.randn(ROWS, 6), 3 * torch.randn(ROWS, 2))


@pair("reached")
def reached(fault):
    def forward(self, x):
        x = self.a(x).tanh()
        return self.b(x.detach() if fault else x)
    return Net(forward, a=nn.Linear(6, 16), b=nn.Linear(16, 3)), F.cross_entropy, rows()


@pair("registered")
def registered(fault):
    layers = [nn.Linear(16, 16)]
    model = Net(lambda self, x: self.b(self.more[0](self.a(x)).relu()), a=nn.Linear(6, 16),
                more=layers if fault else nn.ModuleList(layers), b=nn.Linear(16, 3))
    return model, F.cross_entropy, rows()


@pair("held")
def held(fault):
    model = dense()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if fault:
        model[2] = nn.Linear(16, 3)
    return model, F.cross_entropy, rows(), optimizer


@pair("start")
def start(fault):
    model = dense()
    if fault:
        nn.init.normal_(model[2].weight, std=40)
    return model, F.cross_entropy, rows()


@pair("normalised")
def normalised(fault):
    return dense(*([nn.Softmax(1)] if fault else [])), F.cross_entropy, rows()


@pair("minimised")
def minimised(fault):
    return dense(), lambda output, y: -F.cross_entropy(output, y) if fault else \
        F.cross_entropy(output, y), rows()


@pair("nonlinear")
def nonlinear(fault):
    return nn.Sequential(nn.Linear(6, 16), nn.Identity() if fault else nn.ReLU(),
                         nn.Linear(16, 3)), F.cross_entropy, rows()


@pair("target_rows")
def target_rows(fault):
    x = torch.randn(ROWS, 6)
    y = x[:, :1] + 2 * x[:, 1:2]
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    return model, F.mse_loss, (x, y[:, 0] if fault else y)


@pair("loss_on_targets")
def loss_on_targets(fault):
    def loss(output, y):
        return F.cross_entropy(output, output.argmax(1) if fault else y)
    return dense(), loss, rows()


@pair("output_on_input")
def output_on_input(fault):
    def forward(self, x):
        x = self.a(x).tanh()
        return self.b(torch.ones_like(x) if fault else x)
    return Net(forward, a=nn.Linear(6, 4), b=nn.Linear(4, 3)), F.cross_entropy, rows()


@pair("mixing")
def mixing(fault):
    model = Net(lambda self, x: self.b(self.a(x).softmax(0 if fault else 1)),
                a=nn.Linear(6, 16), b=nn.Linear(16, 3))
    return model, F.cross_entropy, rows()


@pair("batch")
def batch(fault):
    model = Net(lambda self, x: self.b(self.a(x).tanh() * (len(x) if fault else 1)),
                a=nn.Linear(6, 16), b=nn.Linear(16, 3))
    return model, F.cross_entropy, rows()


def language_model(causal):
    def forward(self, x):
        x = self.embed(x) + self.place
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if causal else None
        return self.head(x + self.mix(x, x, x, attn_mask=mask, need_weights=False)[0])
    model = Net(forward, embed=nn.Embedding(TOKENS, 16), head=nn.Linear(16, TOKENS),
                mix=nn.MultiheadAttention(16, 2, batch_first=True))
    model.place = nn.Parameter(torch.randn(8, 16) * 0.1)
    return model


def loss_of_tokens(output, y):
    return F.cross_entropy(output.reshape(-1, TOKENS), y.reshape(-1))


@pair("leak")
def leak(fault):
    x = tokens()
    return language_model(not fault), loss_of_tokens, (x[:, :-1], x[:, 1:])


@pair("copying")
def copying(fault):
    x = tokens()
    return language_model(True), loss_of_tokens, (x[:, :-1], x[:, :-1] if fault else x[:, 1:])


@pair("padding")
def padding(fault):
    def forward(self, x, mask):
        x, keep = self.embed(x), mask[:, :, None].float()
        return self.head(x.mean(1) if fault else (x * keep).sum(1) / keep.sum(1))
    mask = torch.arange(9)[None, :] < torch.tensor([9, 5, 3, 7])[:, None]
    return Net(forward, embed=nn.Embedding(TOKENS, 16), head=nn.Linear(16, 3)), \
        F.cross_entropy, (tokens(), mask, torch.tensor([0, 1, 2, 0]))


@pair("deterministic")
def deterministic(fault):
    model = Net(lambda self, x: self.b(F.dropout(self.a(x), 0.5, fault or self.training)),
                a=nn.Linear(6, 16), b=nn.Linear(16, 3))
    return model, F.cross_entropy, rows()


@pair("modes")
def modes(fault):
    model = Net(lambda self, x: self.b(self.a(x).tanh() * (0.5 if fault and self.training else 1)),
                a=nn.Linear(6, 16), b=nn.Linear(16, 3))
    return model, F.cross_entropy, rows()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


class WrongSquare(Square):
    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


@pair("functions")
def functions(fault):
    model = Net(lambda self, x: self.b((WrongSquare if fault else Square).apply(self.a(x))),
                a=nn.Linear(6, 16), b=nn.Linear(16, 3))
    return model, F.cross_entropy, rows()


@pair("overfits")
def overfits(fault):
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    x, y = rows()
    if fault:  # one input for all labels, of which there are equally many
        x, y = torch.ones(9, 6), torch.arange(9) % 3
        nn.init.zeros_(model[2].weight)
        nn.init.zeros_(model[2].bias)
    return model, F.cross_entropy, (x, y)


@program
def each_property():
    for name in (one.name for one in checking.PROPERTIES):
        check(f"{name} has a test", name in PAIRS or name == "training")  # test_check_command.py
    for name, made in PAIRS.items():
        for fault in (False, True):
            torch.manual_seed(1)
            result = sonde.check(*made(fault))
            row = result[name]
            check(f"{name} {'fails' if fault else 'passes'}: {row}",
                  row.verdict == ("failed" if fault else "passed"))
            if fault:
                check(f"{name} says what to do: {row}", row.message and row.advice)
                check(f"{name}: the result is false", not result)
            else:
                check(f"{name}: a healthy network fails nowhere: {result.failed}", result)


@program
def places_and_numbers():
    """A failed row names the tensors, and the numbers behind the verdict."""
    torch.manual_seed(1)
    row = sonde.check(*reached(True))["reached"]
    check(f"tensors: {row}", row.where == ("a.weight", "a.bias") and "2 of 4" in row.message)
    row = sonde.check(*registered(True))["registered"]
    check(f"paths: {row}", row.where == ("more[0].weight", "more[0].bias"))
    row = sonde.check(*labels(True))["labels"]
    check(f"labels: {row}", "labels are 1 to 3" in row.message and "(8, 3)" in row.message)
    row = sonde.check(*target_rows(True))["target_rows"]
    check(f"shapes: {row}", "(8, 1)" in row.message and "(8,)" in row.message)
    check("a module that mixes is named", sonde.check(*mixing(True))["mixing"].verdict == "failed")


class Stateful(nn.Module):
    """Buffers that change in each pass, and a hook of the program."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.out = nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3)
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.passes += 1
        return self.out(self.drop(self.norm(x)))


@program
def nothing_changes():
    """Parameters, buffers, gradients, modes, random numbers, hooks, the batch, the optimizer."""
    torch.manual_seed(1)
    model, (x, y) = Stateful(), rows()
    model.norm.eval()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    calls, moved = [], []
    model.out.register_forward_hook(lambda *_: calls.append(1))

    def loss(net, batch):  # of a program that also touches its own model
        model.train()
        moved.append(float(F.cross_entropy(model(batch[0]), batch[1])))
        model.out.weight.grad.zero_()
        return F.cross_entropy(net(batch[0]), batch[1])

    for loss_fn in (F.cross_entropy, loss):
        del calls[:]
        before = state(model, optimizer, (x, y))
        result = sonde.check(model, loss_fn, (x, y), optimizer)
        after = state(model, optimizer, (x, y))
        for name, value in before.items():
            check(f"{name} is unchanged", same(value, after[name]))
        check(f"the check ran: {result}", result["runs"].verdict == "passed")
        if loss_fn is F.cross_entropy:
            check("the program's hooks are not called", not calls)
    check("the loss used the program's model", moved)


def state(model, optimizer, batch_):
    grads = [value.grad for value in model.parameters()]
    return {"parameters and buffers": [one.clone() for one in model.state_dict().values()],
            "gradients": [one.clone() for one in grads], "their objects": [id(g) for g in grads],
            "modes": [one.training for one in model.modules()],
            "random numbers": [torch.get_rng_state(), random.getstate()],
            "hooks": [len(one._forward_hooks) for one in model.modules()],
            "the batch": [one.clone() for one in batch_],
            "the optimizer": [one for values in optimizer.state.values()
                              for one in map(torch.clone, values.values())],
            "its groups": [group["lr"] for group in optimizer.param_groups]}


def same(one, two):
    return len(one) == len(two) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(one, two))


class Named(nn.Linear):
    """A network whose argument has the name of a key of the batch."""

    def forward(self, inputs):
        return super().forward(inputs)


@program
def forms_of_batches():
    torch.manual_seed(1)
    x, y = rows()
    named = Named(6, 3)
    joined = Net(lambda self, a, b: self.a(torch.cat([a, b], 1)), a=dense())

    def step(model, batch_):
        return F.cross_entropy(model(batch_["x"]), batch_["y"])

    def training_step(m, batch_):
        return {"loss": None} and F.cross_entropy(m(batch_[0]), batch_[1])

    auto = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 6))
    for what, arguments in {
            "(inputs, targets)": (dense(), F.cross_entropy, (x, y)),
            "a list": (dense(), F.cross_entropy, [x, y]),
            "a module as loss": (dense(), nn.CrossEntropyLoss(), (x, y)),
            "several inputs": (joined, F.cross_entropy, (x[:, :2], x[:, 2:], y)),
            "a tuple of inputs": (joined, F.cross_entropy, ((x[:, :2], x[:, 2:]), y)),
            "a dict": (named, F.cross_entropy, {"inputs": x, "labels": y}),
            "a tensor": (auto, F.mse_loss, x),
            "loss_fn(model, batch)": (dense(), step, {"x": x, "y": y}),
            "loss_fn(m, batch)": (dense(), training_step, (x, y))}.items():
        result = sonde.check(*arguments)
        check(f"{what} passes: {result}", result and result["runs"].verdict == "passed")
        if what != "a tensor":
            check(f"{what} has targets", result["loss_on_targets"].verdict == "passed")
        check(f"{what} has rows", result["mixing"].verdict == "passed")


@program
def errors():
    x, y = rows()
    model = dense()
    good = (model, F.cross_entropy, (x, y))
    raises(sonde.BadValueError, "model: function (expected a torch.nn.Module)",
           sonde.check, dense, *good[1:])
    raises(sonde.BadValueError, "loss_fn: str (expected a function)", sonde.check, model, "mse", x)
    raises(sonde.BadValueError, "loss_fn: takes 1 arguments", sonde.check, model, lambda z: z, x)
    raises(sonde.BadValueError, "without a tensor", sonde.check, model, F.cross_entropy, (1, 2))
    raises(sonde.BadValueError, "keys a, b without targets", sonde.check, model, F.cross_entropy,
           {"a": x, "b": y})
    raises(sonde.BadValueError, "one element", sonde.check, model, F.cross_entropy, (x,))
    raises(sonde.BadValueError, "optimizer: float", sonde.check, *good, 0.1)
    raises(sonde.BadValueError, "seconds: 0 (expected", sonde.check, *good, seconds=0)
    raises(sonde.BadValueError, "seconds: '3' (expected", sonde.check, *good, seconds="3")


def failed_of(*arguments):
    return {row.name for row in sonde.check(*arguments, seconds=300).failed}


@program
def directions():
    """Losses that are maximised, on purpose and by mistake."""
    x, y = rows()
    model = dense()
    up = torch.optim.SGD(model.parameters(), 0.1, maximize=True)
    check("maximize of a loss", "minimised" in failed_of(model, F.cross_entropy, (x, y), up))
    check("maximize of its negative", not failed_of(model, lambda output, y: -F.cross_entropy(output, y),
                                                    (x, y), up))
    one = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    check("a minus in front of a hand-written mean", "minimised" in failed_of(
        one, lambda output, y: -(0.5 * F.mse_loss(output, y)), (x, x[:, :1])))
    check("a generator against constant labels", not failed_of(
        one, lambda model, batch: -F.binary_cross_entropy_with_logits(model(batch), torch.zeros(ROWS, 1)), x))
    gain = -torch.rand(ROWS)  # all rewards are negative
    check("a policy by weighted cross entropies", not failed_of(
        model, lambda output, y: (F.cross_entropy(output, y, reduction="none") * gain).mean(), (x, y)))
    check("a term that is kept large", not failed_of(
        model, lambda output, y: F.cross_entropy(output, y) - 0.01 * F.mse_loss(output, x[:, :3]), (x, y)))
    wild = torch.optim.SGD(one.parameters(), 1e6)
    check("a rate that is far too high", failed_of(one, F.mse_loss, (x, x[:, :1]), wild) == {"overfits"})
    small = torch.optim.SGD(one.parameters(), 1e-12)
    check("a rate of a warm-up", not failed_of(one, F.mse_loss, (x, x[:, :1]), small))


@program
def layers_in_a_row():
    """Layers without an activation between them, on purpose and by mistake."""
    x, y = rows()

    def forward(call):
        def run(self, x):
            x = self.a(x)
            return self.b(self.act(x) if call else x).relu() if call is None else \
                self.b(self.act(x) if call else x)
        return run

    layers = {"a": nn.Linear(6, 16), "b": nn.Linear(16, 3)}
    loss = F.cross_entropy
    check("an activation that is never called", "nonlinear" in failed_of(
        Net(forward(False), act=nn.ReLU(), **layers), loss, (x, y)))
    check("one that is called", not failed_of(Net(forward(True), act=nn.ReLU(), **layers), loss, (x, y)))
    check("dropout between them", "nonlinear" in failed_of(
        nn.Sequential(layers["a"], nn.Dropout(0.5), layers["b"]), loss, (x, y)))
    check("a function instead of the module", not failed_of(
        Net(lambda self, x: self.b(F.relu(self.a(x))), act=nn.ReLU(), **layers), loss, (x, y)))
    check("a narrow layer", not failed_of(
        nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 6)), F.mse_loss, (x, x)))
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 3))
    result = sonde.check(net, loss, (x, y))
    check(f"a projection behind the network: {result['nonlinear']}",
          result and "as it is" in result["nonlinear"].message)
    check("relu in front of the loss", failed_of(nn.Sequential(*net, nn.ReLU()), loss, (x, y)) ==
          {"normalised"})
    chance = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
    half = (torch.arange(ROWS)[:, None] % 2).float()
    check("one sigmoid", not failed_of(chance, F.binary_cross_entropy, (x, half)))
    check("two sigmoids", failed_of(nn.Sequential(*chance, nn.Sigmoid()), F.binary_cross_entropy,
                                    (x, half)) == {"normalised"})
    check("targets that are repeated along the columns", "target_rows" in failed_of(
        dense(), F.mse_loss, (x, x[:, :1])))
    check("a bounded activation that is scaled", not failed_of(
        Net(lambda self, x: 30 * torch.tanh(self.a(x) / 30), a=net), loss, (x, y)))


@program
def targets_and_arguments():
    """What looks like a target or an input that has no effect, and is right."""
    x = torch.randn(ROWS, 6)

    def flow(model, batch):
        return (-0.5 * batch.pow(2).sum(1) + model(batch).pow(2).sum(1)).mean()

    check("a term of its own", not failed_of(dense(), flow, x))

    class Optional(nn.Module):
        def __init__(self, used):
            super().__init__()
            self.body, self.used = dense(), used

        def forward(self, x, z):
            if self.used:
                return self.body(x + z)
            return self.body(x)

    class Ignores(Optional):
        def forward(self, x, z):
            return self.body(x)

    for kind, expected in ((Optional, set()), (Ignores, {"output_on_input"})):
        check(f"an argument that {kind.__name__}", failed_of(
            kind(False), F.cross_entropy, (x, torch.randn(ROWS, 6), torch.arange(ROWS) % 3)) == expected)


@program
def inputs_without_content():
    """Inputs of one value, and targets that are the inputs of a series."""
    x, y = rows()
    check("inputs of one value", failed_of(dense(), F.cross_entropy, (x * 0, y)) >= {"output_on_input"})
    check("with equal targets", "output_on_input" not in failed_of(
        dense(), F.cross_entropy, (x * 0, torch.zeros_like(y))))

    class Series(nn.Module):
        def __init__(self, layer, width=12):
            super().__init__()
            self.layer, self.out = layer, nn.Linear(width, 2)

        def forward(self, x):
            x = self.layer(x)
            return self.out(x[0] if isinstance(x, tuple) else x.relu())

    series = torch.randn(4, 9, 2).cumsum(1)
    recurrent = Series(nn.GRU(2, 12, batch_first=True))
    check("a series that is to be copied", failed_of(recurrent, F.mse_loss, (series, series)) == {"copying"})
    check("one step ahead", not failed_of(recurrent, F.mse_loss, (series[:, :-1], series[:, 1:])))
    check("an encoder of each position", not failed_of(
        Series(nn.Linear(2, 1), 1), F.mse_loss, (series, series)))
    check("an encoder of the whole", not failed_of(
        Series(nn.GRU(2, 6, batch_first=True, bidirectional=True)), F.mse_loss, (series, series)))


@program
def what_cannot_be_tested():
    """The program's own exceptions are rows, and no exceptions of the check."""
    x, y = rows()

    def broken(output, _):
        raise KeyError("the program's own")

    result = sonde.check(dense(), broken, (x, y))
    check(f"it fails: {result}", "KeyError" in result["runs"].message and not result)
    check("the others are not applicable",
          all("no training step runs" in row.message for row in result.not_applicable) and
          len(result.not_applicable) == len(result.rows) - 1)

    class Refuses(nn.Linear):
        def __deepcopy__(self, memo):
            raise TypeError("a lock")

    result = sonde.check(Refuses(6, 3), F.cross_entropy, (x, y))
    check(f"a model that cannot be copied: {result}", len(result.not_applicable) ==
          len(result.rows) and "a lock" in result.rows[0].message)

    closed = dense()
    closed.forward = lambda x: closed[2](closed[1](closed[0](x)))
    before = closed[0].weight.clone()
    result = sonde.check(closed, F.cross_entropy, (x, y))
    check(f"a function that holds the network has the copy in its copy: {result}",
          result and result["overfits"].verdict == "passed" and torch.equal(before, closed[0].weight))

    frozen = dense()
    frozen.requires_grad_(False)
    result = sonde.check(frozen, F.cross_entropy, (x, y))
    check(f"a frozen model: {result}", result["reached"].verdict == "not applicable")


@program
def time_is_bounded():
    """The properties that the time does not reach are not applicable, and say so."""
    class Slow(nn.Linear):
        def forward(self, x):
            end = checking.time.monotonic() + 0.02
            while checking.time.monotonic() < end:
                pass
            return super().forward(x)

    result = sonde.check(Slow(6, 3), F.cross_entropy, rows(), seconds=0.3)
    late = [row for row in result.not_applicable if "no time was left" in row.message]
    check(f"some rows had no time: {result}", late and not result.failed)
    check(f"the whole is near the limit: {result.seconds}", result.seconds < 3)


class FromFirstBatch(nn.Module):
    """Initial values are those of the first batch."""

    def __init__(self):
        super().__init__()
        self.shift, self.out = nn.Parameter(torch.zeros(6)), nn.Linear(6, 3)
        self.register_buffer("ready", torch.zeros(()))

    def forward(self, x):
        if not self.ready:
            with torch.no_grad():
                self.shift.copy_(x.mean(0))
                self.ready.fill_(1)
        return self.out(x - self.shift)


class Batch:
    """A batch of a class of the program's own."""

    def __init__(self, x, y):
        self.x, self.y = x, y


def derivative(model, batch_):
    x = batch_[0].requires_grad_()
    slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
    return (slope - batch_[1]).pow(2).mean()


def all_with_all(output, y):
    same = (y[:, None] == y[None, :]).float()
    return ((output @ output.T) - same).pow(2).mean()


@program
def unusual_networks():
    """Healthy networks that look like faulty ones."""
    x, y = rows()
    scores = Net(lambda self, a, b: self.one(a) @ self.two(b).T, one=dense(), two=dense())
    labels_inside = Net(lambda self, a, b: F.cross_entropy(self.one(a), b), one=dense())
    choice = Net(lambda self, a: self.out(F.one_hot(self.one(a).argmax(1), 3).float()), one=dense(),
                 out=nn.Linear(3, 3))
    choice.one.requires_grad_(False)
    table = nn.Embedding(10, 3, sparse=True)
    for what, arguments, passed in (
            ("values of the first batch", (FromFirstBatch(), F.cross_entropy, (x, y)), "mixing batch"),
            ("a layer of a size not known yet", (nn.LazyLinear(3), F.cross_entropy, (x, y)), "reached"),
            ("a batch of its own class", (dense(), lambda model, b: F.cross_entropy(model(b.x), b.y),
                                          Batch(x, y)), "reached loss_on_targets mixing"),
            ("a loss of a derivative", (nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)),
                                        derivative, (x, torch.randn(ROWS, 6))), "reached overfits"),
            ("rows compared in the loss", (dense(), all_with_all, (x, y)), "mixing"),
            ("rows compared in the model", (scores, lambda model, b: F.cross_entropy(
                model(*b), torch.arange(len(b[0]))), (x, x.flip(1))), "mixing"),
            ("labels in the model", (labels_inside, lambda model, b: model(*b), (x, y)), "reached"),
            ("a choice of few outputs", (choice, F.cross_entropy, (x, y)), "output_on_input"),
            ("sparse gradients", (table, F.cross_entropy, (torch.arange(ROWS), y),
                                  torch.optim.SparseAdam(table.parameters())), "reached held")):
        result = sonde.check(*arguments)
        check(f"{what}: nothing fails: {result.failed}", result)
        for name in passed.split():
            check(f"{what}: {name} passes: {result[name]}", result[name].verdict == "passed")


class Mean(nn.Module):
    """A mean over all positions, whatever the lengths."""

    def __init__(self):
        super().__init__()
        self.one, self.out = nn.Embedding(TOKENS, 8), nn.Linear(8, 3)

    def forward(self, words, lengths):
        return self.out(self.one(words).mean(1))


@program
def unusual_faults():
    x, y = rows()
    mean = Net(lambda self, a, b: (self.one(a) - self.one(a).mean(0)) @ self.two(b).T,
               one=dense(), two=dense())
    result = sonde.check(mean, lambda model, b: F.cross_entropy(model(*b), torch.arange(ROWS)),
                         (x, x.flip(1)))
    check(f"rows that mix in front of a similarity: {result['mixing']}",
          result["mixing"].verdict == "failed")
    result = sonde.check(dense(), lambda model, b: F.mse_loss(
        model(b["x"]).gather(1, b["y"][:, None]), b["wanted"]), {"x": x, "y": y,
                                                                "wanted": torch.randn(ROWS)})
    check(f"one of several targets broadcasts: {result['target_rows']}",
          result["target_rows"].verdict == "failed" and "(8,)" in result["target_rows"].message)
    result = sonde.check(Mean(), F.cross_entropy, (tokens(), torch.tensor([9, 4, 2, 6]),
                                                   torch.arange(4) % 3))
    check(f"lengths that nobody uses: {result['padding']}", result["padding"].verdict == "failed")


@program
def hooks_of_the_program():
    """Hooks on all modules and all optimizers do not see the copies, and are there afterwards."""
    from torch.optim.optimizer import register_optimizer_step_post_hook
    seen = []
    handles = [nn.modules.module.register_module_forward_hook(lambda *_: seen.append("module")),
               register_optimizer_step_post_hook(lambda *_: seen.append("optimizer"))]
    model = dense()
    sonde.check(model, F.cross_entropy, rows(), torch.optim.SGD(model.parameters(), 0.1))
    check(f"not called: {seen[:3]}", not seen)
    model(rows()[0])
    check("called again", seen)
    for handle in handles:
        handle.remove()


@program
def results():
    torch.manual_seed(1)
    good, bad = sonde.check(*reached(False)), sonde.check(*reached(True))
    check("a passed result returns itself", good.raise_if_failed() is good)
    raises(sonde.checking.CheckError, "no path leads from the loss", bad.raise_if_failed)
    text = str(bad).splitlines()
    check(f"failed rows come first: {text[0]}", text[0].startswith("failed") and
          text[-1] == bad._summary() and f"{len(bad.passed)} passed, 1 failed" in text[-1])
    check("each row is printed", all(row.title in str(bad) for row in bad.rows))
    values = json.loads(bad.to_json())
    check("json", values["passed"] is False and len(values["rows"]) == len(bad.rows) and
          values["rows"][4]["where"] == ["a.weight", "a.bias"])
    raises(KeyError, "expected one of runs", good.__getitem__, "nothing")
    check("repr", "1 failed" in repr(bad))


@program
def imported_late():
    """import sonde imports no PyTorch; sonde.check does."""
    code = "import sys, sonde; assert 'torch' not in sys.modules and 'check' in sonde.__all__; " \
           "assert sonde.check.__module__ == 'sonde.checking' and 'torch' in sys.modules"
    environment = {**os.environ, "PYTHONPATH": sys.path[0]}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env=environment)
    check(f"import: {done.stderr}", done.returncode == 0)
    raises(AttributeError, "no attribute 'chekc'", lambda: sonde.chekc)


if __name__ == "__main__":
    main()
