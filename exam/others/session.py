"""One run of somebody else's program: what its driver asks for, what is planted, what is seen.

A driver takes a Session. It asks for the rate and the batch size by naming the package's own
defaults, hands over its model and optimizers right before training begins (`attach`), and draws its
data through `batches` or `arrays`, where faults of the data are planted."""

import ctypes
import functools
import importlib
import os
import random
import sys

import numpy as np

PROGRAMS = {}
MODES = ["default", "full"]  # how a run is watched
# Vital signs of everything at every step; raw values of the model's inputs and outputs and of
# losses at every step, of the rest somewhat oftener than any rule looks at them.
LOOKS = [*range(50), *range(50, 1000, 10), *range(101, 106), *range(201, 206), *range(301, 306)]
FULL = {"every": 1, "save": {
    "every": 1, "vitals_every": 1, "collections": {
        "weights": {"save_steps": LOOKS}, "biases": {"save_steps": LOOKS},
        "gradients": {"save_steps": LOOKS}, "inputs": {"every": 1}, "outputs": {"every": 1},
        "scalars": {"every": 1}, "activations": {"save_steps": [*range(10), *range(10, 1000, 20)]},
        "activation_gradients": {"reductions": ["mean"], "every": 1},
        "updates": {"reductions": ["mean"], "every": 1},
        "buffers": {"reductions": ["mean"], "every": 1},
        "optimizer_state": {"reductions": ["mean"], "every": 1}}}}

ADAPTIVE = [("AdamW", 1.0, {"weight_decay": 0.05, "betas": (0.9, 0.95)}), ("NAdam", 1.0, {}),
            ("RMSprop", 0.5, {}), ("RAdam", 2.0, {}), ("Adam", 1.0, {"amsgrad": True}), ("Adamax", 2.0, {})]
OTHER_OPTIMIZERS = {  # name, share of the rate, options
    "Adam": ADAPTIVE, "AdamW": ADAPTIVE[1:],
    "SGD": [("SGD", 0.3, {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}), ("SGD", 1.0, {})]}


class Program:
    def __init__(self, name, drive, needs, can):
        self.name, self.drive, self.needs = name, drive, needs
        self.can = set(can.split()) ^ {"layers"}


def program(name, needs, can=""):
    """needs: modules that are imported once for all runs. can: what may be planted here (plants.py):
    single  one loss and one optimizer          targets   they pass the session
    inputs  floating inputs pass the session    batches   each batch passes the session
    classes targets are classes, drawn evenly   logits    the model's output goes into a softmax
    layers  (said of those that have none)      modes   it has dropout or batch norm
    relu    it has a ReLU after a layer with a bias"""
    def add(drive):
        PROGRAMS[name] = Program(name, drive, needs.split(), can)
        return drive
    return add


def prepare(build):
    """Makes `import sonde` find the build that is asked for."""
    ctypes.CDLL(os.path.join(build, "lib", "libsonde.so.0"), ctypes.RTLD_GLOBAL)
    sys.path.insert(0, os.path.join(build, "python"))


def torchvision_without_cuda():
    """torchvision of PyPI needs CUDA's libraries for its own operators, and some of them by name."""
    import torch
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def load(one):
    import torch
    torch.set_num_threads(1)
    if not torchvision_library:
        torchvision_library.append(torchvision_without_cuda())
    for name in one.needs:
        importlib.import_module(name)
    torch.set_default_dtype(torch.float32)  # some change it as they are imported


torchvision_library = []


class Session:
    def __init__(self, one, plant, seed, variant, folder):
        import torch
        self.program, self.plant, self.seed, self.variant = one, plant, seed, variant
        self.folder, self.planted, self.step = folder, False, 0
        self.losses, self.scores, self.watches = [], [], {}
        self.draw = np.random.default_rng(seed)
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        self.record_losses()
        plant.session = self

    # --- what a driver asks for -------------------------------------------------------------

    def rate(self, default):
        return default * (0.5 if self.variant == "half-rate" else 1.0) * self.plant.rate

    def batch(self, default):
        return default * 2 if self.variant == "batch" else default

    def steps(self, default):
        return default * 2 if self.variant == "long" else default

    def optimizer(self, name, parameters, rate, **options):
        """One of torch.optim; in the variant "optimizer" another one that people put in its place."""
        import torch
        rate = self.rate(rate)
        if self.variant == "optimizer":
            name, share, options = random.Random(self.program.name).choice(OTHER_OPTIMIZERS[name])
            rate *= share
        return getattr(torch.optim, name)(parameters, lr=rate, **options)

    def score(self, value):
        """The program's own measure, where its loss is none; more is better."""
        self.scores.append(float(value))

    def options(self, mode):
        """Of sonde.watch and its callbacks."""
        return {"run": os.path.join(self.folder, mode), "on_finding": None,
                **(FULL if mode == "full" else {})}

    def attach(self, model, optimizers, watch=True, **more):
        """Training begins: plants the fault, then watches twice, as a user does and in full."""
        optimizers = list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]
        self.model, self.optimizers = model, optimizers
        self.plant.attach()
        self.planted = True
        optimizers[0].register_step_pre_hook(lambda *_: self.plant.before_update(self.step))
        optimizers[0].register_step_post_hook(self.count)
        for mode in MODES if watch else ():
            self.watches[mode] = sonde_watch(model, optimizers, **self.options(mode), **more)

    def count(self, *_):
        self.plant.after_update(self.step)
        self.step += 1

    def at_optimizer(self, model):
        """Attaches when a trainer first uses one of its optimizers; model: a function that gives it."""
        import torch
        plain, clear = torch.optim.Optimizer.__init__, torch.optim.Optimizer.zero_grad
        session, seen = self, []

        @functools.wraps(plain)
        def made(optimizer, *arguments, **options):
            plain(optimizer, *arguments, **options)
            if not session.planted:
                seen.append(optimizer)

        def first_use(optimizer, *arguments, **options):
            if not session.planted and any(optimizer is one for one in seen):
                session.attach(model(), seen)
                return optimizer.zero_grad(*arguments, **options)
            return clear(optimizer, *arguments, **options)

        torch.optim.Optimizer.__init__ = made
        torch.optim.Optimizer.zero_grad = first_use

    # --- data -------------------------------------------------------------------------------

    def arrays(self, x, y):
        """A data set that a trainer draws its batches from."""
        return self.plant.inputs(x), self.plant.targets(y)

    def batches(self, x, y, size, steps):
        """Shuffled batches of tensors, over as many epochs as it takes."""
        import torch
        order = np.empty(0, np.int64)
        for step in range(steps):
            if len(order) < size:
                order = np.concatenate([order, self.plant.order(self.draw.permutation(len(x)), y)])
            chosen, order = torch.as_tensor(order[:size]), order[size:]
            yield self.plant.batch(step, x[chosen], y[chosen])

    # --- what is seen -----------------------------------------------------------------------

    def record_losses(self):
        """Sonde wraps torch.autograd.backward: this one lies under it."""
        import torch
        plain = torch.autograd.backward

        @functools.wraps(plain)
        def backward(tensors, *arguments, **options):
            first = tensors[0] if isinstance(tensors, (tuple, list)) else tensors
            if first.numel() == 1:
                self.losses.append(float(first.detach()))
            return plain(tensors, *arguments, **options)

        torch.autograd.backward = backward

    def close(self):
        for watch in self.watches.values():
            watch.close()

    def progress(self):
        """The measure at the start and at the end; less is better."""
        seen = np.array([-s for s in self.scores] if self.scores else self.losses)
        if len(seen) < 2:
            return float("nan"), float("nan")
        return (float(np.mean(seen[:max(1, len(seen) // 10)])),
                float(np.mean(seen[-max(1, len(seen) // 5):])))


def sonde_watch(model, optimizers, **options):
    """sonde.watch, which refuses a model that is watched already: two watches of one run see the
    same numbers at the price of one training."""
    import sonde
    from sonde import torch_hooks
    torch_hooks._watched.clear()
    return sonde.watch(model, optimizers, **options)


def train(session, model, optimizer, batches, loss, schedule=None):
    """The loop that most READMEs show."""
    session.attach(model, optimizer)
    model.train()
    for x, y in batches:
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
