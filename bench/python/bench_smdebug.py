"""What saving raw weights and gradients at every step adds to a step of PyTorch: smdebug's hook
against the same program on Sonde, in turns.

    bench_smdebug.py [--real PYTHON] [--rounds 5] [--steps 60]

PYTHON is an interpreter with smdebug 1.0.34 and torch. Each round runs, in a process of its own,
the network of the Fashion-MNIST example (batch 16) without a hook and with it, in turns of ten
steps, for both; the time is the wall clock of a step, the median of the differences of
neighboring turns. After each run every step, tensor and value is read back. Prints
`name, milliseconds` lines and the ratio of what the two add.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TURN = 10


def network(torch):
    nn = torch.nn
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 5, 3), nn.MaxPool2d(2, 2), nn.ReLU(), nn.Conv2d(5, 12, 5),
                         nn.ReLU(), nn.GroupNorm(3, 12), nn.Flatten(), nn.Linear(972, 100),
                         nn.ReLU(), nn.Linear(100, 10))


def measure(folder, steps):
    """Milliseconds of a step without, and what the hook adds; then the run is read."""
    import torch
    import smdebug.pytorch as smd
    from smdebug.trials import create_trial
    torch.set_num_threads(1)
    hook = smd.Hook(out_dir=folder, save_config=smd.SaveConfig(save_interval=1),
                    include_collections=["weights", "biases", "gradients"])
    plain, hooked = network(torch), network(torch)
    hook.register_module(hooked)
    loss_of = torch.nn.CrossEntropyLoss()
    x, y = torch.randn(16, 1, 28, 28), torch.randint(10, (16,))

    def turn(net, optimizer):
        began = time.perf_counter()
        for _ in range(TURN):
            optimizer.zero_grad()
            loss_of(net(x), y).backward()
            optimizer.step()
        return (time.perf_counter() - began) / TURN * 1e3

    pairs = []
    optimizers = [torch.optim.SGD(net.parameters(), 0.01, 0.9) for net in (plain, hooked)]
    for i in range(-2, steps // TURN):
        pair = (turn(plain, optimizers[0]), turn(hooked, optimizers[1]))
        if i >= 0:
            pairs.append(pair)
    hook.close()
    trial, count = create_trial(folder), 0
    for name in trial.tensor_names():
        if "output" not in name:
            count += len(trial.tensor(name).values())
    expected = (steps + 2 * TURN) * 2 * len(list(hooked.parameters()))
    print(f"RESULT {statistics.median(pair[0] for pair in pairs)} "
          f"{statistics.median(pair[1] - pair[0] for pair in pairs)} {expected - count}")


def run(command, environment):
    folder = tempfile.mkdtemp(prefix="sonde-bench-")
    try:
        done = subprocess.run([*command, os.path.join(folder, "run")], capture_output=True,
                              text=True, env=environment, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(f"{command[0]}: {done.stderr.strip().splitlines()[-1:]}")
    return [float(word) for word in lines[0].split()[1:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("folder", nargs="?", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.folder, options.steps)
        return
    ours, real = [], []
    me = [os.path.abspath(__file__), "--measure", "--steps", str(options.steps)]
    package = os.path.join(os.environ.get("SONDE_BUILD", os.path.join(
        HERE, "..", "..", "build", "release")), "python")
    environment = dict(os.environ, SMDEBUG_LOG_LEVEL="off")
    with_package = dict(environment, PYTHONPATH=os.path.abspath(package))
    for _ in range(options.rounds):
        ours.append(run([sys.executable, "-m", "sonde", "run", *me], with_package))
        if options.real:
            real.append(run([options.real, *me], environment))
    step, added, lost = (statistics.median(row[i] for row in ours) for i in range(3))
    print(f"smdebug_step, {step:.4g}\nsmdebug_ours_added, {added:.4g}\n"
          f"smdebug_ours_lost, {lost:.0f}")
    if real:
        theirs = statistics.median(row[1] for row in real)
        print(f"smdebug_real_added, {theirs:.4g}\nsmdebug_added_ratio, {theirs / added:.4g}")


if __name__ == "__main__":
    main()
