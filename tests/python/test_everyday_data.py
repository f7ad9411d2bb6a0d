"""Everyday mistakes in data, in the structure of a network and in the way that samples take through
it, watched by the three lines: each is found, at its line, and its healthy twin is not.

Needs the release build's package (SONDE_BUILD). Without it or without PyTorch: skipped (77).
"""
import os
import sys
import warnings

from harness import check, main, program

sys.path.insert(0, os.path.join(os.environ.get("SONDE_BUILD", "build/release"), "python"))
try:
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, TensorDataset
    import sonde
except ImportError as problem:
    print(problem)
    sys.exit(77)

warnings.filterwarnings("ignore")
EPOCHS, SAMPLES, CLASSES = 3, 640, 4


def line(mark):
    """The number of the line of this file that has a mark."""
    with open(__file__, encoding="utf-8") as file:
        return next(i for i, text in enumerate(file, 1) if text.rstrip().endswith(f"# LINE {mark}"))


def net(inputs=20, outputs=CLASSES):
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs))


def clusters(shape=(20,), seed=3):
    """Points around a center for each class, which overlap."""
    generator = torch.Generator().manual_seed(seed)
    centers = 0.5 * torch.randn(CLASSES, *shape, generator=generator)
    y = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    return centers[y] + torch.randn(SAMPLES, *shape, generator=generator), y


def loader_of(x, y, shuffle=True, size=32):
    return DataLoader(TensorDataset(x, y), batch_size=size, shuffle=shuffle)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(model, loader, loss_of=F.cross_entropy, optimizer=None, epochs=EPOCHS):
    """The watch of an ordinary training program."""
    optimizer = optimizer or sgd(model)
    watch = sonde.watch(model, optimizer, on_finding=None)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)  # LINE call
            loss.backward()
            optimizer.step()
    watch.close()
    return watch


def show(watch):
    check(f"no fault: {watch.faults}", watch.faults == 0)
    return [f"{f.rule} {f.severity} {f.tensor} {f.place} {f.message}" for f in watch.findings]


def finds(watch, rule, mark, severity="error"):
    """The mistake is found, first of all, and at its line."""
    shown = show(watch)
    found = [f for f in watch.findings if f.rule == rule and f.severity == severity]
    check(f"{rule} at line {line(mark) if mark else None}: {shown}",
          any(mark is None or str(f.place).endswith(f":{line(mark)}") for f in found))
    worst = [f for f in watch.findings if f.severity == "error" and not f.because_of]
    check(f"{rule} leads: {shown}",
          severity != "error" or all(f.rule == rule for f in worst))


def healthy(watch):
    shown = show(watch)
    check(f"nothing found: {shown}", not watch.findings and watch.verdict == "nothing found")


# --- classes ---------------------------------------------------------------------------


@program
def labels_in_order():
    def compare(out, y):
        return F.cross_entropy(out, y)  # LINE ordered

    x, y = clusters()
    order = y.argsort()
    for size in (32, 8):
        torch.manual_seed(0)
        finds(train(net(), loader_of(x[order], y[order], shuffle=False, size=size), compare),
              "ClassImbalance", "ordered", "warning")
    torch.manual_seed(0)
    healthy(train(net(), loader_of(x, y, size=8), compare))


@program
def one_class_alone():
    def compare(out, y):
        return F.cross_entropy(out, y)  # LINE alone

    x, y = clusters()
    for labels in (torch.ones_like(y), torch.zeros_like(y)):
        torch.manual_seed(0)
        finds(train(net(), loader_of(x, labels, size=16), compare),
              "ClassImbalance", "alone", "warning")
        torch.manual_seed(0)
        finds(train(net(), [(x[:6], labels[:6])] * 30, compare),
              "ClassImbalance", "alone", "warning")
    torch.manual_seed(0)
    y[:] = 0  # one of two, and rare
    y[500:] = torch.arange(140) % 2
    healthy(train(net(outputs=2), loader_of(x, y, shuffle=False, size=16), compare, epochs=1))


main()
