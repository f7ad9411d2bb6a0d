"""What sonde.watch adds to a step of PyTorch, as a share of the step without it.

    bench_watch.py [--model NAME ...] [--threads 1] [--rounds 60]
    bench_watch.py --first [--model NAME ...]
    bench_watch.py --against FOLDER [--model NAME ...] [--kind NAME ...]

Two equal models train in turns of a few steps each, one of them watched, recorded and judged;
the time is the processor time of the training thread (with several torch threads: the wall
clock), the median of the differences of neighboring turns. Where a step is slow, a turn is
one step and the mean is taken, over the steps 51 to 100: a look in fifty and one in a hundred
are among them. Prints `name, share` lines. A model is named by the beginning of its name.
ResNet-18 takes some ten minutes on one thread.

    weights_gradients   weights and gradients at every step
    default             sonde.watch(model, optimizer, run=...)
    everything          every=1
    hundredth           every=100

--first: the first steps of training, of which the program is recorded, over a step without the
watch: the slowest of the first five, each the median of seven watches; and the slowest of the
first watch of the process.

--against: what the watch adds with the package in FOLDER (a build's python/) and with the one
that is imported, in processes that take turns.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn

import sonde

EVERY = {
    "weights_gradients": {"losses": 1, "gradients": 1, "weights": 1, "updates": 0, "buffers": 0,
                          "optimizer": 0, "activations": 0},
    "default": None,
    "everything": 1,
    "hundredth": 100,
}


class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.short = nn.Identity() if stride == 1 and channels == out else \
            nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.short(x))


def resnet18():
    layers, channels = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(channels, out, stride), Block(out, out, 1)]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Transformer(nn.Module):
    def __init__(self, vocabulary=1000, width=256, length=128, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
            for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(x).flatten(0, 1)


def models():
    cnn = lambda: nn.Sequential(
        nn.Conv2d(1, 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 12, 5), nn.ReLU(),
        nn.GroupNorm(3, 12), nn.Flatten(), nn.Linear(972, 100), nn.ReLU(), nn.Linear(100, 10))
    mlp = lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 320), nn.ReLU(),
                                nn.Linear(320, 100), nn.ReLU(), nn.Linear(100, 10))
    images = lambda *shape: (torch.randn(shape), torch.randint(10, shape[:1]))
    return {
        "cnn_16": (cnn, images(16, 1, 28, 28)),
        "mlp_1000": (mlp, images(1000, 1, 28, 28)),
        "transformer": (Transformer, (torch.randint(1000, (8, 128)),
                                      torch.randint(1000, (8 * 128,)))),
        "resnet18_64": (resnet18, images(64, 3, 32, 32)),
    }


class Program:
    """A model that trains on one batch."""

    def __init__(self, make, batch, run=None, every=None):
        torch.manual_seed(0)
        self.model, self.batch = make(), batch
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3, momentum=0.9)
        self.watch = None
        if run is not None:
            self.watch = sonde.watch(self.model, self.optimizer, run=run, every=every,
                                     on_finding=None)

    def step(self, part=1):
        """On a part of the batch: the first eighth, say, for 8."""
        inputs, targets = self.batch if part == 1 else (
            tensor[:max(1, len(tensor) // part)] for tensor in self.batch)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()


def turn(program, steps, clock):
    before = clock()
    for _ in range(steps):
        program.step()
    return (clock() - before) / steps


def by_turns(bare, seen, rounds, once, clock):
    """(seconds added to a step, seconds of a bare step), of turns of some steps."""
    for _ in range(60):  # past the first, at which all is seen
        seen.step()
    steps = 10 * max(1, round(0.005 / once))  # whole periods of the default
    added, plain = [], []
    for _ in range(rounds):
        first = turn(bare, steps, clock)
        watched = turn(seen, steps, clock)
        second = turn(bare, steps, clock)
        plain.append(min(first, second))
        added.append(watched - (first + second) / 2)
    return statistics.median(added), statistics.median(plain)


def by_steps(bare, seen, rounds, clock):
    """The same of single steps: 51 to 100 of the watch, fewer if rounds are below 60."""
    for _ in range(48):
        seen.step(8)
    for _ in range(3):
        seen.step()
    first, added, plain = turn(bare, 1, clock), [], []
    for _ in range(max(5, 50 * min(rounds, 60) // 60)):
        watched = turn(seen, 1, clock)
        second = turn(bare, 1, clock)
        plain.append(min(first, second))
        added.append(watched - (first + second) / 2)
        first = second
    return statistics.mean(added), statistics.median(plain)


def measure(make, batch, every, rounds, clock):
    """(share added, seconds of a bare step)."""
    folder = tempfile.mkdtemp()
    try:
        bare = Program(make, batch)
        seen = Program(make, batch, os.path.join(folder, "run"), every)
        turn(bare, 3, clock)
        once = turn(bare, 3, clock)
        added, step = by_turns(bare, seen, rounds, once, clock) if once < 0.05 else \
            by_steps(bare, seen, rounds, clock)
        seen.watch.close()
        return added / step, step
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def first_steps(make, batch, clock, steps=5, watches=7):
    """(slowest of the first steps of a watch, the same of the first watch of all), over a bare
    step."""
    bare = Program(make, batch)
    turn(bare, 3, clock)
    folder, rows, plain = tempfile.mkdtemp(), [], []
    try:
        for i in range(watches + 1):
            seen = Program(make, batch, os.path.join(folder, f"run{i}"))
            rows.append([turn(seen, 1, clock) for _ in range(steps)])
            plain += [turn(bare, 1, clock) for _ in range(steps)]
            seen.watch.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    step = statistics.median(plain)
    return max(map(statistics.median, zip(*rows[1:]))) / step, max(rows[0]) / step, step


def say_first(name, make, batch, clock, threads):
    usual, cold, step = first_steps(make, batch, clock)
    for what, ratio in (("first", usual), ("first_of_process", cold)):
        print(f"watch_torch_{name}_{what}_{threads}t,{ratio:.2f},ratio,<=10   "
              f"# step {1e3 * step:.2f} ms", flush=True)


def against(folder, arguments, turns=3):
    """Prints what the watch adds, before and now: medians of processes that take turns."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(sonde.__file__)))
    found = {}
    for _ in range(turns):
        for path in (folder, here):
            text = subprocess.run([sys.executable, os.path.abspath(__file__), *arguments],
                                  env={**os.environ, "PYTHONPATH": path}, check=True,
                                  capture_output=True, text=True).stdout
            for line in text.splitlines():
                name, share = line.split(",")[0], float(line.split(",")[1].split()[0])
                found.setdefault(name, {}).setdefault(path, []).append(share)
    for name, shares in found.items():
        before, now = (statistics.median(shares[path]) for path in (folder, here))
        print(f"{name}, {now:.2f} % now, {before:.2f} % before   "
              f"# {shares[here]} and {shares[folder]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", action="append")
    parser.add_argument("--kind", action="append", choices=list(EVERY))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--against", metavar="FOLDER")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    for model in options.model or ():
        if not any(name.startswith(model) for name in models()):
            parser.error(f"--model {model} (expected {', '.join(models())})")
    if options.against:
        place = sys.argv.index("--against")
        against(os.path.abspath(options.against), sys.argv[1:place] + sys.argv[place + 2:])
        return
    for name, (make, batch) in models().items():
        if options.model and not name.startswith(tuple(options.model)):
            continue
        if options.first:
            say_first(name, make, batch, clock, options.threads)
            continue
        for kind, every in EVERY.items():
            if options.kind and kind not in options.kind:
                continue
            share, step = measure(make, batch, every, options.rounds, clock)
            print(f"watch_torch_{name}_{kind}_{options.threads}t, {100 * share:.2f} %   "
                  f"# step {1e3 * step:.2f} ms, added {1e6 * share * step:.0f} us", flush=True)


if __name__ == "__main__":
    sys.exit(main())
