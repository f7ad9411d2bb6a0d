"""The training loop of all programs: it shows every tensor to a recorder and lets a plant change
what happens at fixed places. A program (families.py) gives a model, batches and losses."""

import random

import torch
from torch import nn

from tracing import EVAL, TRAIN

ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.LeakyReLU, nn.ELU, nn.SiLU)
STATE = ("exp_avg", "exp_avg_sq", "exp_inf", "momentum_buffer", "square_avg", "acc_delta", "sum",
         "prev")


class Program:
    """A healthy program. variant draws its learning rate, batch size and length."""

    steps, eval_every, batch_size, accumulate, clip = 120, 0, 32, 1, None
    optimizer, rate, options = "adam", 2e-3, {}
    rates = (0.5, 1.0, 1.0, 1.5)
    batches = (1, 1, 2)
    labels = None  # "classes", "tokens", "real" or None
    declare_gradients = True  # at the start; else at the first step that has one
    used_gradients = False  # as the optimizer takes them, after clipping
    loss_op = "CrossEntropyLoss"
    replicas, kinds = 1, None  # kinds: of plants that fit; None: those that say so

    def __init__(self, seed, variant=True):
        draw = random.Random(f"{type(self).__name__} {seed}")
        self.seed = seed
        self.random = torch.Generator().manual_seed(1000 + seed)
        torch.manual_seed(seed)
        if variant:
            self.rate = self.rate * draw.choice(self.rates)
            self.batch_size = int(self.batch_size * draw.choice(self.batches))
            self.steps = self.steps if draw.random() < 0.9 else 3 * self.steps
        self.sign, self.loss_scale, self.schedule = 1.0, 1.0, None
        self.clear, self.train_mode, self.eval_mode = True, True, False
        self.build()

    def randn(self, *shape):
        return torch.randn(*shape, generator=self.random)

    def randint(self, high, *shape):
        return torch.randint(0, high, shape, generator=self.random)

    def build(self):
        raise NotImplementedError

    def batch(self, step, train=True):
        raise NotImplementedError

    def losses(self, batch):
        """{name: loss}; the sum of those of self.weights is what is trained."""
        prediction = self.predict(batch)
        self.note("loss_input_0", prediction, op="", role="input", module="loss")
        return {"loss": self.criterion(prediction, batch[self.target])}

    def predict(self, batch):
        return self.model(batch["input"])

    target, criterion = "labels", staticmethod(nn.functional.cross_entropy)

    def make_optimizer(self, parameters, scale=1.0):
        rate = self.rate * scale
        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, rate, **{"momentum": 0.9, **self.options})
        if self.optimizer == "adamw":
            return torch.optim.AdamW(parameters, rate, **self.options)
        if self.optimizer == "rmsprop":
            return torch.optim.RMSprop(parameters, rate, **self.options)
        return torch.optim.Adam(parameters, rate, **self.options)

    def make_optimizers(self):
        self.optimizers = [self.make_optimizer([p for p in self.model.parameters()
                                                if p.requires_grad])]

    def make_schedule(self):
        return None

    def begin_step(self, step):
        """Staged unfreezing and the like."""

    def other_backward(self, step):
        """The second replica's batch, loss and gradients, and the mean of both."""

    def other_update(self, recorder):
        """The second replica's optimizer."""

    def phases(self):
        """Pairs of an optimizer and a function batch -> losses."""
        return [(self.optimizers[0], self.losses)]

    def note(self, name, value, **info):
        if self.recorder is not None:
            self.recorder.see(name, value, **info)


class Plant:
    """A fault: what it changes. rules and where say what should be reported, and of which
    tensor; where holds patterns, "-" is the whole run."""

    kind, rules, where, first = "none", (), ("*",), 0
    always = True  # visible by construction; else by the loss, against the healthy twin

    def __init__(self, program):
        self.program = program

    fits = classmethod(lambda cls, family: True)

    def build(self): pass
    def ready(self): pass
    def batch(self, step, batch): return batch
    def losses(self, step, losses): return losses
    def before_step(self, step): pass
    def after_backward(self, step): pass
    def after_step(self, step): pass


def leaf_modules(model):
    """A layer whose weight is computed (weight norm) is one too."""
    return [(n, m) for n, m in model.named_modules() if n and "parametrizations" not in n and
            all(name == "parametrizations" for name, _ in m.named_children())]


def first_tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    found = []
    for part in value if isinstance(value, (tuple, list)) else ():
        found += first_tensors(part)
    return found


def add_hooks(program):
    def forward(name, module):
        op = type(module).__name__

        def hook(_, inputs, output):
            if isinstance(module, ACTIVATIONS + (nn.Dropout,)):
                program.note(f"{name}_input_0", inputs[0], op="", role="input", module=name)
            for i, value in enumerate(first_tensors(output)[:1]):
                program.note(f"{name}_output_{i}", value, op=op, role="output", module=name)

        return hook

    for name, module in leaf_modules(program.model):
        module.register_forward_hook(forward(name, module))


def declare(program, recorder):
    for name, p in program.model.named_parameters():
        recorder.declare(name, p, role="bias" if p.dim() < 2 and "bias" in name else "weight")
        if program.declare_gradients and p.requires_grad:
            recorder.declare(f"gradient/{name}", p, role="gradient", step="backward")
    for name, b in program.model.named_buffers():
        recorder.declare(name, b, role="buffer")


def show_gradients(program, optimizer, recorder):
    mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
    several = len(program.optimizers) > 1
    for name, p in program.model.named_parameters():
        if p.grad is not None and (id(p) in mine or not several):
            recorder.see(f"gradient/{name}", p.grad, role="gradient", step="backward")


def show_parameters(program, recorder):
    names = {id(p): n for n, p in program.model.named_parameters()}
    for name, p in program.model.named_parameters():
        recorder.see(name, p, role="bias" if p.dim() < 2 and "bias" in name else "weight")
    for name, b in program.model.named_buffers():
        recorder.see(name, b, role="buffer")
    for optimizer in program.optimizers:
        for p, state in optimizer.state.items():
            for key in STATE:
                if id(p) in names and isinstance(state.get(key), torch.Tensor):
                    recorder.see(f"{names[id(p)]}.{key}", state[key], role="optimizer",
                                 step="update")


def show_batch(recorder, batch):
    for name, value in batch.items():
        if isinstance(value, torch.Tensor):
            recorder.see(name, value, role="input")


def phase(program, plant, recorder, step, optimizer, losses):
    if program.clear:
        optimizer.zero_grad()
    total = 0.0
    for i in range(program.accumulate):
        batch = plant.batch(step, program.batch(step * program.accumulate + i))
        show_batch(recorder, batch)
        parts = plant.losses(step, losses(batch))
        loss = program.sign * program.loss_scale * sum(parts.values())
        for name, part in parts.items():
            one = len(parts) == 1
            recorder.see(name, loss if one else part, role="loss",
                         op=program.loss_op if name in ("loss",) else "")
        if len(parts) > 1:
            recorder.see("total_loss", loss, role="loss")
        if loss.requires_grad:
            (loss / (program.accumulate if program.divide else 1)).backward()
        total += float(loss.detach()) / program.accumulate
    program.other_backward(step)
    if not program.used_gradients:
        show_gradients(program, optimizer, recorder)
    plant.after_backward(step)
    if program.clip is not None:
        torch.nn.utils.clip_grad_norm_(program.model.parameters(), program.clip)
    if program.used_gradients:
        show_gradients(program, optimizer, recorder)
    optimizer.step()
    return total


def evaluate(program, recorder):
    program.model.train(program.eval_mode)
    for i in range(4):
        recorder.begin(EVAL)
        with torch.no_grad():
            batch = program.batch(i, train=False)
            show_batch(recorder, batch)
            for name, loss in program.losses(batch).items():
                recorder.see(name, loss, role="loss")
        for name, b in program.model.named_buffers():
            recorder.see(name, b, role="buffer")
        recorder.end()


def train(program, plant, recorder):
    """Returns the losses of the steps."""
    program.recorder, program.plant = None, plant
    program.divide = True
    plant.build()
    program.make_optimizers()
    program.schedule = program.make_schedule()
    plant.ready()
    add_hooks(program)
    program.recorder = recorder
    declare(program, recorder)
    seen = []
    for step in range(program.steps):
        program.begin_step(step)
        plant.before_step(step)
        if program.train_mode:
            program.model.train()
        recorder.begin(TRAIN)
        total = 0.0
        for optimizer, losses in program.phases():
            total += phase(program, plant, recorder, step, optimizer, losses)
        plant.after_step(step)
        show_parameters(program, recorder)
        program.other_update(recorder)
        recorder.end()
        if program.schedule is not None:
            program.schedule.step()
        seen.append(total)
        if program.eval_every and (step + 1) % program.eval_every == 0:
            evaluate(program, recorder)
    return seen
