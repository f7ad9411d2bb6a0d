"""poptorch's face on the engine: a step of the introduction's network beside PyTorch's, what a call
costs in Python, and the introduction's training as a whole program.

    bench_poptorch.py [--threads 1] [--rounds 40] [--data FOLDER]

Steps are taken in turns in one run, batch 16, SGD with momentum; the ratio is of the fastest
turns. FOLDER has Fashion-MNIST's files: a new process trains five epochs from it and evaluates. Prints `name, value unit` lines.
"""

import argparse
import gzip
import logging
import os
import subprocess
import sys
import time

import torch
from torch import nn

import poptorch

BATCH = 16


class Classifier(nn.Module):
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


def fastest(functions, rounds, calls):
    """Seconds a call of each, in turns."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for i, function in enumerate(functions):
            begun = time.perf_counter()
            for _ in range(calls):
                function()
            best[i] = min(best[i], (time.perf_counter() - begun) / calls)
    return best


def steps(rounds, threads):
    torch.manual_seed(1)
    x, y = torch.randn(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))
    model, plain = Classifier(), Classifier()
    wrapped = poptorch.trainingModel(model, None, poptorch.optim.SGD(
        model.parameters(), lr=0.001, momentum=0.9))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.001, momentum=0.9)

    def eager():
        optimizer.zero_grad()
        plain(x, y)[1].backward()
        optimizer.step()

    wrapped(x, y)
    session = wrapped._engine.session
    outputs = (torch.empty(BATCH, 10), torch.empty(()))
    inputs = (x, y)
    ours, bare, theirs = fastest([lambda: wrapped(x, y), lambda: session.run(inputs, outputs),
                                  eager], rounds, 20)
    print(f"poptorch_cnn_vs_torch_{threads}t, {theirs / ours:.2f} ratio   # {1e6 * ours:.0f} and "
          f"{1e6 * theirs:.0f} us a step", flush=True)
    print(f"poptorch_call, {1e6 * (ours - bare):.1f} us   # {1e6 * bare:.0f} us in C", flush=True)


# --- the whole program ------------------------------------------------------------------------------


def table(folder, kind):
    """The files' images as the introduction normalizes them, and labels."""
    def read(name, header):
        with gzip.open(os.path.join(folder, name)) as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)

    images = read(f"{kind}-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28)
    return torch.utils.data.TensorDataset(
        images.float().div_(255).sub_(0.5).div_(0.5),
        read(f"{kind}-labels-idx1-ubyte.gz", 8).long())


def train(folder):
    torch.manual_seed(42)
    options = poptorch.Options()
    loader = poptorch.DataLoader(options, table(folder, "train"), batch_size=BATCH, shuffle=True)
    model = Classifier()
    wrapped = poptorch.trainingModel(model, options, poptorch.optim.SGD(
        model.parameters(), lr=0.001, momentum=0.9))
    for _ in range(5):
        for x, y in loader:
            wrapped(x, y)
    wrapped.detachFromDevice()
    inference = poptorch.inferenceModel(model.eval(), options)
    test = poptorch.DataLoader(options, table(folder, "t10k"), batch_size=32)
    right = [(inference(x).argmax(1) == y).sum().item() for x, y in test]
    print(f"{100 * sum(right) / (32 * len(right)):.2f} {time.process_time():.2f}")


def program(folder):
    begun = time.perf_counter()
    said = subprocess.run([sys.executable, __file__, "--train", folder], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.split()
    wall = time.perf_counter() - begun
    print(f"poptorch_program_accuracy, {said[0]} %", flush=True)
    print(f"poptorch_program_cpu_seconds, {said[1]} s", flush=True)
    print(f"poptorch_program_seconds, {wall:.2f} s   # load {os.getloadavg()[0]:.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--data")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.getLogger("poptorch").setLevel(logging.WARNING)
    if options.train:  # with PyTorch's own number of threads, as the program has it
        return train(options.train)
    torch.set_num_threads(options.threads)
    steps(options.rounds, options.threads)
    if options.data:
        program(options.data)
    return None


if __name__ == "__main__":
    sys.exit(main())
