"""A training step of the built-in networks in PyTorch, in its fastest form.

usage: peer_torch.py [--threads N] [--seconds S] [--jobs A,B] [--variants eager,fused,compile]

Prints `name,value,unit` lines: for each network and variant the median and the fast decile
of a step in milliseconds, over tens of steps, as bench_train does. Batches are preloaded
tensors, many and different; gradients are set to None, which is the default. On one thread the
time is that of the process, on several that of the wall clock, as in bench_train.

    eager     the ordinary form: forward, backward, step of torch.optim.SGD
    fused     the same with SGD(fused=True)
    compile   the model and its loss through torch.compile, whose code needs a C++ compiler

The number of threads is for ATen, OpenMP and MKL alike; so start it with OMP_NUM_THREADS and
MKL_NUM_THREADS set to the same. The caller may preload a library that answers MKL's question
for an Intel processor; see README.md.
"""
import argparse
import math
import os
import sys
import time

SAMPLES = 16384
TEN = 10
SHAPES = {"resnet18": (3, 32, 32), "transformer": (128, 256)}  # of a sample; else 1 x 28 x 28
SLOW = ("resnet18",)  # a step takes more than a second: timed one by one


def make_networks(torch):
    """{job: (network, loss, batch, learning rate, momentum)}, as the jobs are; momentum None:
    Adam."""
    nn = torch.nn

    class FashionCnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.pool = nn.Conv2d(1, 5, 3), nn.MaxPool2d(2, 2)
            self.conv2, self.norm = nn.Conv2d(5, 12, 5), nn.GroupNorm(3, 12)
            self.fc1, self.fc2 = nn.Linear(972, 100), nn.Linear(100, 10)
            self.relu, self.log_softmax = nn.ReLU(), nn.LogSoftmax(dim=1)

        def forward(self, x):
            x = self.pool(self.relu(self.conv1(x)))
            x = self.norm(self.relu(self.conv2(x)))
            x = self.relu(self.fc1(torch.flatten(x, start_dim=1)))
            return self.log_softmax(self.fc2(x))

    class Mlp(nn.Module):
        def __init__(self, first, second, last):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(784, first), nn.Linear(first, second)
            self.fc3, self.last = nn.Linear(second, 10), last

        def forward(self, x):
            x = torch.relu(self.fc1(torch.flatten(x, start_dim=1)))
            return self.last(self.fc3(torch.relu(self.fc2(x))))

    class Block(nn.Module):
        def __init__(self, channels, out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
            self.down = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False),
                                      nn.BatchNorm2d(out)) if stride > 1 else nn.Identity()

        def forward(self, x):
            y = torch.relu_(self.bn1(self.conv1(x)))
            return torch.relu_(self.bn2(self.conv2(y)) + self.down(x))

    class ResNet18(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
            blocks = [Block(max(64, out // (stride or 1)), out, stride or 1)
                      for out, stride in ((64, 1), (64, 1), (128, 2), (128, 0), (256, 2),
                                          (256, 0), (512, 2), (512, 0))]
            self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(512, 10)

        def forward(self, x):
            x = self.blocks(torch.relu_(self.bn1(self.conv1(x))))
            return self.fc(x.mean((2, 3)))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
                for _ in range(2))
            self.fc = nn.Linear(128 * 256, 10)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(128))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x, src_mask=self.mask, is_causal=True)
            return self.fc(torch.flatten(x, start_dim=1))

    return {
        "transformer": (Transformer, nn.CrossEntropyLoss(), 8, 0.001, None),
        "resnet18": (ResNet18, nn.CrossEntropyLoss(label_smoothing=0.1), 64, 0.1, 0.9),
        "fashion_cnn": (FashionCnn, nn.NLLLoss(), 16, 0.001, 0.9),
        "mnist_mlp": (lambda: Mlp(320, 100, nn.LogSoftmax(dim=0)), nn.NLLLoss(), 1000, 0.01, 0.0),
        "mnist_mlp_small": (lambda: Mlp(256, 128, nn.Identity()), nn.CrossEntropyLoss(), 32,
                            0.01, 0.0),
    }


def make_batches(torch, batch, shape):
    """Blurred noise around a pattern of each class: a network has something to learn."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.rand(10, *shape, generator=generator) * 2 - 1
    batches = []
    for _ in range(min(SAMPLES // batch, SAMPLES * 784 // (batch * math.prod(shape)))):
        labels = torch.randint(0, 10, (batch,), generator=generator)
        noise = torch.randn(batch, *shape, generator=generator)
        batches.append(((0.5 * patterns[labels] + 0.5 * noise).contiguous(), labels))
    return batches


def make_step(torch, job, variant):
    make, loss_of, batch, rate, momentum = make_networks(torch)[job]
    torch.manual_seed(0)
    network = make()
    fused = True if variant == "fused" else None
    if momentum is None:
        optimizer = torch.optim.Adam(network.parameters(), lr=rate, fused=fused)
    else:
        optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=momentum, fused=fused)
    batches = make_batches(torch, batch, SHAPES.get(job, (1, 28, 28)))

    def forward(x, labels):
        return loss_of(network(x), labels)

    if variant == "compile":
        forward = torch.compile(forward)
    at = [0]

    def step():
        x, labels = batches[at[0] % len(batches)]
        at[0] += 1
        optimizer.zero_grad()
        forward(x, labels).backward()
        optimizer.step()

    return step


def measure(step, seconds, now, count):
    """Sorted seconds a step, each over so many."""
    for _ in range(count):
        step()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        start = now()
        for _ in range(count):
            step()
        times.append((now() - start) / count)
    return sorted(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--jobs", default="fashion_cnn,mnist_mlp,mnist_mlp_small")
    parser.add_argument("--variants", default="eager,fused")
    options = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, str(options.threads))
    try:
        import torch
    except ImportError as problem:
        print(problem)
        return 77
    torch.set_num_threads(options.threads)
    now = time.process_time if options.threads == 1 else time.perf_counter
    for job in options.jobs.split(","):
        for variant in options.variants.split(","):
            try:
                times = measure(make_step(torch, job, variant), options.seconds, now,
                                1 if job in SLOW else TEN)
            except Exception as problem:  # torch.compile has many ways to fail
                why = str(problem).strip().splitlines()[:1]
                print(f"# {job} {variant}: {type(problem).__name__}: {' '.join(why)}")
                continue
            name = f"torch_{variant}_{job}_{options.threads}t"
            print(f"{name}_step,{1e3 * times[len(times) // 2]:.4g},ms")
            print(f"{name}_p10,{1e3 * times[len(times) // 10]:.4g},ms", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
