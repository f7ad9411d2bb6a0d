"""Tensors that sonde.watch knows from the program: predictions and targets of losses, functional
activations, initial weights, the losses of evaluations."""
import os
import sys
import warnings
import weakref

from harness import check, folder, main, program

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

warnings.filterwarnings("ignore")


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(5, 8), nn.Linear(8, classes)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


def data(n=16):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(n, 5, generator=generator), torch.arange(n) % 3


def train(run, loss_of, net=None, steps=30, between=None, **options):
    """The run of a program."""
    torch.manual_seed(1)
    net = net or Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    path = folder(run)
    watch = sonde.watch(net, optimizer, run=path, on_finding=None, **options)
    for i in range(steps):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()
        if between is not None:
            between(net, i)
    watch.close()
    check(f"{run}: no fault", watch.faults == 0)
    return sonde.open(path)


def roles(trial):
    return {info.name: info.role for info in trial.tensors()}


def same(trial, name, other, step=29):
    """Whether a tensor has the vital signs of another one of the run, or of an array."""
    found = trial.vitals(name, step, mode="train")
    if isinstance(other, str):
        other = trial.vitals(other, step, mode="train")
        return found.mean == other.mean and found.max == other.max and found.m2 == other.m2
    return abs(found.mean - float(other.double().mean())) < 1e-6 and found.max == other.max()


@program
def predictions_and_labels():
    x, y = data()
    target = torch.randn(16, 3)
    trial = train("labels", lambda net: F.cross_entropy(net(x), y), every=1, save=1)
    found = roles(trial)
    check(f"cross_entropy: {found}", found.get("loss/predictions") == "output" and
          found.get("loss/labels") == "input" and "loss/targets" not in found)
    steps = trial.steps("train", "loss/predictions")
    check(f"at each step at which it is due: {len(steps)}", len(steps) == 30)
    check("the labels are those of the program",
          same(trial, "loss/labels", y))
    check("the predictions are the model's output",
          same(trial, "loss/predictions", "output_0"))
    kinds = {
        "functional": lambda net: F.mse_loss(net(x), target),
        "module": lambda net: nn.L1Loss()(net(x), target),
        "hand": lambda net: ((net(x) - target) ** 2).mean(),
        "swapped": lambda net: ((target - net(x)) ** 2).mean(),
    }
    for kind, loss_of in kinds.items():
        trial = train(kind, loss_of, every=1, save=1)
        names = roles(trial)
        check(f"{kind}: {[name for name in names if '/' in name]}",
              names.get("loss/predictions") == "output" and names.get("loss/targets") == "input")
        for step in (1, 29):  # a loss by hand is known after its first backward pass
            check(f"{kind}: the values of step {step}",
                  same(trial, "loss/targets", target, step) and
                  same(trial, "loss/predictions", "output_0", step))
    trial = train("chosen", lambda net: -net(x).log_softmax(1)[torch.arange(16), y].mean(), every=1)
    check("labels that choose elements", "loss/labels" in roles(trial))
    trial = train("terms", lambda net: F.cross_entropy(net(x), y) +
                  0.1 * F.mse_loss(net(x), target), every=1)
    check("two terms", {"loss/predictions", "loss/labels", "loss_1/predictions",
                        "loss_1/targets"} <= set(roles(trial)))


@program
def rules_see_them():
    """Rules that need the labels or what the loss gets, by the three lines alone."""
    x, y = data(64)

    def rules_of(loss_of, net=None):
        torch.manual_seed(1)
        net = net or Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        watch = sonde.watch(net, optimizer, on_finding=None)
        for _ in range(40):
            optimizer.zero_grad()
            loss_of(net).backward()
            optimizer.step()
        watch.close()
        check("no fault", watch.faults == 0)
        return {finding.rule for finding in watch.findings}

    check("softmax twice", "SoftmaxMisuse" in rules_of(
        lambda net: F.cross_entropy(net(x).softmax(1), y)))
    check("softmax once", "SoftmaxMisuse" not in rules_of(lambda net: F.cross_entropy(net(x), y)))
    wide = x.sum(1)
    check("(n, 1) against (n)", "LossBroadcast" in rules_of(
        lambda net: F.mse_loss(net(x), wide), Net(1)))
    check("(n) against (n)", "LossBroadcast" not in rules_of(
        lambda net: F.mse_loss(net(x)[:, 0], wide), Net(1)))
    check("one class", "ClassImbalance" in rules_of(
        lambda net: F.cross_entropy(net(x), torch.zeros(64, dtype=torch.long))))


@program
def functional_activations():
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.act = Net(8), nn.ReLU()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.out = nn.Linear(8, 3)

        def forward(self, x):
            h = torch.tanh(self.act(self.body(x)))
            h = self.attention(h[None], h[None], h[None])[0][0]
            return self.out(torch.tanh(F.gelu(h)))

    x, y = data()
    trial = train("activations", lambda net: F.cross_entropy(net(x), y), Parts(), every=1, save=1)
    names = {name for name in roles(trial) if ":" in name}
    check(f"names: {names}", names == {"body/relu:0", "tanh:0", "tanh:1", "gelu:0"})
    check("as of a module", roles(trial)["body/relu:0"] == "activation")
    check("at each step", len(trial.steps("train", "body/relu:0")) == 30 and len(trial.steps("train", "tanh:1")) == 30)
    check("its values", trial.vitals("body/relu:0", 29, mode="train").min == 0 and
          trial.vitals("body/relu:0", 29, mode="train").max ==
          trial.vitals("body.fc1_output_0", 29, mode="train").max)


@program
def initial_weights_and_evaluation():
    torch.manual_seed(1)
    net = Net()
    before = net.fc1.weight.detach().clone()
    x, y = data()

    def evaluate(net, i):
        if i % 10 == 9:
            net.eval()
            with torch.no_grad():
                F.cross_entropy(net(x), y)
            net.train()

    trial = train("evaluation", lambda net: F.cross_entropy(net(x), y), net, between=evaluate,
                  every=1, save=1)
    check("the weights before training are those of step 0",
          same(trial, "fc1.weight", before, 0))
    check(f"evaluations: {trial.steps('eval')}", len(trial.steps("eval")) == 3)
    check("their losses", len(trial.steps("eval", "loss")) == 3)
    torch.manual_seed(1)
    broken = Net()
    with torch.no_grad():
        broken.fc2.bias[1] = float("nan")
    optimizer = torch.optim.SGD(broken.parameters(), lr=0.05)
    watch = sonde.watch(broken, optimizer, on_finding=None)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(broken(x), y).backward()
        optimizer.step()
    watch.close()
    found = [f for f in watch.findings if f.rule == "NonFinite" and not f.because_of]
    check(f"a weight that is NaN before training is named: {[f.tensor for f in found]}",
          bool(found) and found[0].tensor == "fc2.bias" and found[0].step == 0)
    trial = train("no_grad", lambda net: F.cross_entropy(net(x), y), between=lambda net, i:
                  torch.no_grad()(net)(x), steps=4)
    check(f"without gradients, in training mode: {trial.steps('eval')}",
          len(trial.steps("eval")) == 4 and len(trial.steps("train")) == 4)


@program
def predicting():
    x, _ = data()
    net = Net().eval()
    with sonde.watch(net, None, on_finding=None) as watch:
        with watch.mode("predict"), torch.no_grad():
            for _ in range(3):
                net(x)
        check(f"each pass is a step: {watch.step}", watch.step == 2 and watch.faults == 0)


@program
def nothing_changes():
    def run(watched):
        torch.manual_seed(3)
        net = Net()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        watch = sonde.watch(net, optimizer, on_finding=None, every=3) if watched else None
        x, y = data()
        gone = []
        for i in range(40):
            out = F.dropout(net(x + torch.randn(16, 5)), 0.1)
            loss = F.cross_entropy(out, y)
            alive = [weakref.ref(out), weakref.ref(loss)]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del out, loss
            gone.append(all(ref() is None for ref in alive))
            if i % 7 == 6:
                with torch.no_grad():
                    alive = weakref.ref(F.cross_entropy(net.eval()(x), y))
                    gone.append(alive() is None)
                net.train()
        if watch is not None:
            watch.close()
            check(f"no fault: {watch.faults}", watch.faults == 0)
            check("nothing is left on the stack",
                  torch.overrides._len_torch_function_stack() == 0 and
                  not torch.nn.modules.module._global_forward_hooks)
            check("no tensor is kept", all(gone))
        return [*(p.detach().clone() for p in net.parameters()), torch.get_rng_state()]

    check("the same bits", all(torch.equal(a, b) for a, b in zip(run(True), run(False))))


@program
def looks_are_seldom():
    """In steady steps nothing looks for these tensors, whatever rules ask for."""
    x, y = data()
    loss_of = lambda net: F.cross_entropy(net(x), y)
    trial = train("seldom", loss_of, steps=120)
    steps = trial.steps("train", "loss/labels").tolist()
    check(f"labels: {steps}", steps == [*range(20), 50, 100])
    trial = train("always", loss_of, steps=60, every=2)
    check("as often as the program says",
          trial.steps("train", "loss/labels").tolist()[-4:] == [52, 54, 56, 58])

    def evaluate(net, i):
        if i == 29:
            with torch.no_grad():
                for _ in range(60):
                    F.cross_entropy(net.eval()(x), y)
            net.train()

    trial = train("evaluated", loss_of, between=evaluate)
    check(f"an evaluation: {trial.steps('eval', 'loss').tolist()}",
          trial.steps("eval", "loss").tolist() == [*range(8), 50])


@program
def between_two_modules():
    """Where NaN comes from between two modules, the second one's input is named, and its line."""

    class Between(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.f1, self.f2, self.bad = nn.Linear(5, width), nn.Linear(width, 3), False

        def forward(self, x):
            x = self.f1(x)
            x = torch.log(x.abs() - (1e9 if self.bad else -1))  # LINE log
            return self.f2(x)

    with open(__file__, encoding="utf-8") as file:
        line = next(i for i, text in enumerate(file, 1) if text.rstrip().endswith("# LINE log"))
    x, y = data()
    for width in (8, 600):  # 600: checks wait for the loss
        for at, where in ((0, "between"), (5, "between"), (33, "between"), (33, "x"), (33, "")):
            torch.manual_seed(1)
            net = Between(width)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
            found = []
            watch = sonde.watch(net, optimizer, on_finding=found.append)
            for i in range(36):
                net.bad = where == "between" and i == at
                optimizer.zero_grad()
                given = x * float("nan") if where == "x" and i == at else x
                F.cross_entropy(net(given), y).backward()
                optimizer.step()
            watch.close()
            check("no fault", watch.faults == 0)
            first = [one for one in found if one.rule == "NonFinite"][:1]
            if where == "x":
                check(f"{width}: {where}: {first}", first and "_input" not in first[0].tensor)
                continue
            wanted = ["f2_input_0"] if where else []
            check(f"{width}, step {at}, {where}: {first}", [one.tensor for one in first] == wanted)
            check("its line", not first or first[0].place.endswith(f":{line}"))


main()
