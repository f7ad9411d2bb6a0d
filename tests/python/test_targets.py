"""Losses with the wrong sign, players that do not oppose each other, and targets that the model is
given, by the three lines: each is found at its line at the first step, and its healthy twin is not.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import os
import sys

from harness import check, main, program

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

STEPS = 3


def line(mark):
    """The number of the line of this file that has a mark."""
    with open(__file__, encoding="utf-8") as file:
        return next(i for i, text in enumerate(file, 1) if text.rstrip().endswith(f"# LINE {mark}"))


def train(model, batch_of, loss_of, inputs=1):
    """batch_of: gives the inputs of the model and targets."""
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    watch = sonde.watch(model, optimizer, on_finding=None)
    for _ in range(STEPS):
        *x, y = batch_of()
        optimizer.zero_grad()
        loss_of(model(*x[:inputs]), y).backward()
        optimizer.step()
    watch.close()
    return watch


def show(watch):
    check(f"no fault: {watch.faults}", watch.faults == 0)
    return [f"{f.rule} {f.severity} {f.tensor} {f.place} {f.message}" for f in watch.findings]


def finds(watch, rule, mark, severity="error"):
    shown = show(watch)
    check(f"{rule} at line {line(mark)}: {shown}",
          any(f.rule == rule and f.severity == severity and
              str(f.place).endswith(f":{line(mark)}") for f in watch.findings))


def clean(watch, rule):
    check(f"not {rule}: {show(watch)}", all(f.rule != rule for f in watch.findings))


def net(inputs=8, outputs=4):
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


@program
def signs():
    def batch():
        return torch.randn(16, 8), torch.randint(4, (16,))

    def loss(sign):
        return lambda out, y: sign * F.cross_entropy(out, y)  # LINE sign

    def chosen(sign):
        def compare(out, y):
            log = F.log_softmax(out, 1)
            return sign * log[torch.arange(16), y].mean()  # LINE chosen
        return compare

    finds(train(net(), batch, loss(-1)), "LossSign", "sign")
    clean(train(net(), batch, loss(1)), "LossSign")
    finds(train(net(), batch, chosen(1)), "LossSign", "chosen")
    clean(train(net(), batch, chosen(-1)), "LossSign")


@program
def players():
    def play(made, wanted):
        torch.manual_seed(0)
        g, d = net(4, 2), nn.Sequential(net(2, 1), nn.Sigmoid())
        of_g, of_d = (torch.optim.Adam(m.parameters(), 1e-3) for m in (g, d))
        watch = sonde.watch([g, d], [of_g, of_d], on_finding=None)
        for _ in range(STEPS):
            fake = g(torch.randn(16, 4))
            of_d.zero_grad()
            loss = F.binary_cross_entropy(d(torch.randn(16, 2) + 3), torch.ones(16, 1))
            guess = d(fake.detach())
            loss = loss + F.binary_cross_entropy(guess, torch.full((16, 1), made))  # LINE made
            loss.backward()
            of_d.step()
            of_g.zero_grad()
            F.binary_cross_entropy(d(fake), torch.full((16, 1), wanted)).backward()  # LINE wanted
            of_g.step()
        watch.close()
        return watch

    finds(play(1.0, 1.0), "LossSign", "made")
    finds(play(0.0, 0.0), "LossSign", "wanted")
    clean(play(0.0, 1.0), "LossSign")


@program
def columns():
    def batch():
        x = torch.randn(32, 8)
        return x, (x.sum(1, keepdim=True) > 0).float()

    def leaking():
        x, y = batch()
        return torch.cat([x[:, 1:], y], 1), y

    def compare(out, y):
        return F.binary_cross_entropy_with_logits(out, y)  # LINE column

    finds(train(net(8, 1), leaking, compare), "TargetLeak", "column", "note")
    clean(train(net(8, 1), batch, compare), "TargetLeak")


@program
def noise():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net(5, 4)

        def forward(self, x, t):
            return self.inner(torch.cat([x, t], 1))

    data = torch.rand(64, 4)

    def batch(target):
        x, t, z = data[torch.randint(64, (32,))], torch.rand(32, 1), torch.randn(32, 4)
        noisy = (1 - t) * x + t * z
        return noisy, t, {"noisy": noisy, "again": (1 - t) * x + t * z, "noise": z, "data": x}[target]

    def compare(out, y):
        return F.mse_loss(out, y)  # LINE noisy

    for target in ("noisy", "again"):
        finds(train(Model(), lambda: batch(target), compare, 2), "TargetLeak", "noisy", "warning")
    for target in ("noise", "data"):
        clean(train(Model(), lambda: batch(target), compare, 2), "TargetLeak")


@program
def sequences():
    class Model(nn.Module):
        def __init__(self, features, hidden):
            super().__init__()
            self.rnn, self.out = nn.LSTM(features, hidden, batch_first=True), nn.Linear(hidden, features)

        def forward(self, x):
            return self.out(self.rnn(x)[0])

    def compare(out, y):
        return F.mse_loss(out, y)  # LINE copied

    def batch(shift, features=1):
        x = torch.randn(6, 12, features).cumsum(1)
        return x[:, :10], x[:, shift:10 + shift]

    finds(train(Model(1, 16), lambda: batch(0), compare), "TargetLeak", "copied", "warning")
    clean(train(Model(1, 16), lambda: batch(1), compare), "TargetLeak")
    clean(train(Model(4, 2), lambda: batch(0, 4), compare), "TargetLeak")  # an autoencoder


main()
