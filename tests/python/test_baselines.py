"""Losses that stay at what the best constant prediction gives, by the three lines: targets that do
not belong to their inputs are found with the number; a network that starts slowly is healthy.

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

STEPS = 260


def pictures():
    """Of 50 pixels, of three causes; pixels differ in their means."""
    causes = torch.randn(3, 50, generator=torch.Generator().manual_seed(3))
    return torch.sigmoid(2 * torch.randn(64, 3) @ causes + 4 * torch.linspace(0, 1, 50) - 2)


def autoencoder():
    return nn.Sequential(nn.Linear(50, 32), nn.ReLU(), nn.Linear(32, 3), nn.Linear(3, 32),
                         nn.ReLU(), nn.Linear(32, 50), nn.Sigmoid())


def regression():
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))


def numbers():
    x = torch.randn(400, 20)
    return x, x[:, :5].sum(1, keepdim=True)


def shuffled(x, y):
    return x, y[torch.randperm(len(y))]


def train(model, batches, loss, rate=3e-3):
    optimizer = torch.optim.Adam(model.parameters(), rate)
    watch = sonde.watch(model, optimizer, on_finding=None)
    for _ in range(STEPS):
        x, y = batches()
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    watch.close()
    return watch


def found(watch):
    return [(f.rule, f.severity, f.message) for f in watch.findings if not f.resolved_step]


def stays(watch, what):
    rows = [row for row in found(watch) if row[0] == "LabelNoise"]
    check(f"stays at the {what}: {found(watch)}",
          len(rows) == 1 and rows[0][1] == "warning" and what in rows[0][2])


@program
def pictures_of_others():
    for loss, what in ((F.mse_loss, "variance of the targets"),
                       (F.binary_cross_entropy, "entropy of the targets")):
        torch.manual_seed(0)
        stays(train(autoencoder(), lambda: shuffled(*[pictures()] * 2), loss), what)
        torch.manual_seed(0)
        rows = found(train(autoencoder(), lambda: [pictures()] * 2, loss))
        check(f"an autoencoder: {rows}", not any(row[0] == "LabelNoise" for row in rows))


@program
def numbers_of_others():
    torch.manual_seed(0)
    stays(train(regression(), lambda: shuffled(*numbers()), F.mse_loss),
          "variance of the targets")
    torch.manual_seed(0)
    rows = found(train(regression(), numbers, F.mse_loss))
    check(f"a regression: {rows}", rows == [])


main()
