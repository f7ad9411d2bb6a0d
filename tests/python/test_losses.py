"""The first hundred steps of the three networks against PyTorch.

bench_losses trains a built-in job and writes down initial weights, batches and losses; here
PyTorch starts from the same weights and takes the same batches, in float32. Every one of the
hundred losses must lie within 1e-4 of PyTorch's, relatively.

The same steps in float64 tell how far rounding alone leads away from each other; they are
printed for whoever wonders about the tolerance. The weights after the last step are compared
too, each tensor relative to how far it has moved: 1e-3, since a hundred updates add up what
rounding a ReLU or a maximum differently does to a few of its elements; and 1e-6 of its own
size, for what is moved by rounding alone: before a softmax over the batch, a bias.

Looks for bench_losses in SONDE_BIN. Without it or without PyTorch: skipped (77).
"""
import os
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors import safe_open
except ImportError as problem:
    print(problem)
    sys.exit(77)

JOBS = ("fashion_cnn", "mnist_mlp", "mnist_mlp_small")
STEPS, LOSS_TOLERANCE, MOVE_TOLERANCE, WEIGHT_TOLERANCE = 100, 1e-4, 1e-3, 1e-6
results = {True: 0, False: 0}


def check(what, good):
    results[bool(good)] += 1
    if not good:
        print("FAILED:", what)


def record(tool, job, threads, folder):
    """(tensors, metadata) of a run that the tool has written down."""
    path = os.path.join(folder, f"{job}-{threads}.safetensors")
    done = subprocess.run([tool, job, path, str(STEPS), str(threads)], capture_output=True,
                          text=True)
    check(f"{job}: {done.stderr.strip()}", done.returncode == 0)
    if done.returncode != 0:
        return None, None
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


def loss_of(job, weights, x, labels):
    """The loss that a job's network has of a batch, by its definition."""
    functional = torch.nn.functional

    def linear(name, value):
        return functional.linear(value, weights[name + ".weight"], weights[name + ".bias"])

    def conv(name, value):
        return functional.conv2d(value, weights[name + ".weight"], weights[name + ".bias"])

    if job == "fashion_cnn":
        x = functional.max_pool2d(torch.relu(conv("conv1", x)), 2)
        x = functional.group_norm(torch.relu(conv("conv2", x)), 3, weights["norm.weight"],
                                  weights["norm.bias"])
        x = linear("fc2", torch.relu(linear("fc1", torch.flatten(x, 1))))
        return functional.nll_loss(functional.log_softmax(x, dim=1), labels)
    x = torch.relu(linear("fc1", torch.flatten(x, 1)))
    x = linear("fc3", torch.relu(linear("fc2", x)))
    if job == "mnist_mlp":
        return functional.nll_loss(functional.log_softmax(x, dim=0), labels)
    return functional.cross_entropy(x, labels)


def repeat(job, tensors, metadata, dtype):
    """PyTorch's losses and weights of the same run."""
    names = [name.removeprefix("after.") for name in tensors if name.startswith("after.")]
    weights = {name: tensors[name].to(dtype).clone().requires_grad_() for name in names}
    optimizer = torch.optim.SGD(weights.values(), lr=float(metadata["learning_rate"]),
                                momentum=float(metadata["momentum"]))
    samples, losses = tensors["samples"].to(dtype), []
    for step in range(STEPS):
        at = step % len(samples)
        optimizer.zero_grad()
        loss = loss_of(job, weights, samples[at], tensors["labels"][at])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), {name: value.detach() for name, value in weights.items()}


def farthest(a, b):
    return ((a.double() - b.double()).abs() / b.double().abs()).max().item()


def compare(job, tensors, metadata):
    losses, weights = repeat(job, tensors, metadata, torch.float32)
    exact, _ = repeat(job, tensors, metadata, torch.float64)
    ours = tensors["losses"]
    print(f"{job}: loss {ours[0]:.4f} to {ours[-1]:.4f}; farthest from PyTorch "
          f"{farthest(ours, losses):.1e}, from float64 {farthest(ours, exact):.1e}, "
          f"PyTorch from float64 {farthest(losses, exact):.1e}")
    for step in range(STEPS):
        off = abs(ours[step].item() - losses[step].item()) / abs(losses[step].item())
        check(f"{job}: loss of step {step}: {ours[step]:.9g}, PyTorch {losses[step]:.9g}",
              off <= LOSS_TOLERANCE)
    check(f"{job}: it learns", ours[-10:].mean() < ours[:10].mean())
    for name, theirs in weights.items():
        moved = (theirs - tensors[name]).norm().item()
        off = (tensors["after." + name] - theirs).norm().item()
        check(f"{job}: {name} moved by {moved:.3g} and is {off:.3g} away",
              off <= MOVE_TOLERANCE * moved + WEIGHT_TOLERANCE * theirs.norm().item())


def main():
    tool = os.path.join(os.environ.get("SONDE_BIN", "build/release/bin"), "bench_losses")
    if not os.access(tool, os.X_OK):
        print(f"{tool} is not built")
        return 77
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for job in JOBS:
            tensors, metadata = record(tool, job, 1, folder)
            if tensors is None:
                continue
            compare(job, tensors, metadata)
            two, _ = record(tool, job, 2, folder)
            check(f"{job}: two threads, the same losses",
                  two is not None and torch.equal(two["losses"], tensors["losses"]))
    print("%d passed, %d failed" % (results[True], results[False]))
    return 1 if results[False] else 0


if __name__ == "__main__":
    sys.exit(main())
