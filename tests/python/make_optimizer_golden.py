#!/usr/bin/env python3
"""Writes tests/golden/optimizers.safetensors: a hundred steps of every optimizer and schedule.

The loss is sum(x_t w) + b, so the gradient of w is x_t and that of b is 1. NAME is (13): w and b
after 100 steps. rate.NAME holds the learning rates of 100 steps. LAMB and TensorFlow's RMSprop,
which PyTorch lacks, are written out here in float64. Run with PyTorch 2.13.
"""
import pathlib

import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "optimizers.safetensors"
STEPS = 100
torch.manual_seed(30)
start = torch.randn(13)
inputs = torch.randn(STEPS, 12)
made = {"start": start, "inputs": inputs}


def train(name, cls, clip_norm=None, clip_value=None, bare=False, **options):
    w, b = (torch.nn.Parameter(t.clone()) for t in (start[:12], start[12:]))
    groups = [{"params": [w]}, {"params": [b], **({"weight_decay": 0.0} if bare else {})}]
    optimizer = cls(groups, **options)
    for t in range(STEPS):
        optimizer.zero_grad()
        ((inputs[t] * w).sum() + b.sum()).backward()
        if clip_value is not None:
            torch.nn.utils.clip_grad_value_([w, b], clip_value)
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_([w, b], clip_norm)
        optimizer.step()
    made[name] = torch.cat([w, b]).detach()


def train_groups(name, cls, of_w, of_b, halve_b=False, **options):
    """w and b with numbers of their own; halve_b: b's rate halves every ten steps."""
    w, b = (torch.nn.Parameter(t.clone()) for t in (start[:12], start[12:]))
    optimizer = cls([{"params": [w], **of_w}, {"params": [b], **of_b}], **options)
    for t in range(STEPS):
        optimizer.param_groups[1]["lr"] = of_b["lr"] * (0.5 ** (t // 10) if halve_b else 1.0)
        optimizer.zero_grad()
        ((inputs[t] * w).sum() + b.sum()).backward()
        optimizer.step()
    made[name] = torch.cat([w, b]).detach()


def train_scaled(name, bad, **scaler):
    """With torch.amp.GradScaler; the inputs of steps `bad` hold an infinity or a NaN."""
    w, b = (torch.nn.Parameter(t.clone()) for t in (start[:12], start[12:]))
    optimizer = torch.optim.SGD([w, b], lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", **scaler)
    scales = []
    for t in range(STEPS):
        x = inputs[t].clone()
        if t in bad:
            x[3] = bad[t]
        optimizer.zero_grad()
        scaler.scale((x * w).sum() + b.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    made[name] = torch.cat([w, b]).detach()
    made[f"{name}.scales"] = torch.tensor(scales)


def own(name, update):
    """update(w, g, state, t) gives the new w, in float64."""
    params = [start[:12].double(), start[12:].double()]
    states = [{}, {}]
    for t in range(STEPS):
        grads = [inputs[t].double(), torch.ones(1, dtype=torch.float64)]
        params = [update(w, g, s, t + 1) for w, g, s in zip(params, grads, states)]
    made[name] = torch.cat(params).float()


def tf_rmsprop(w, g, s, t, lr=0.01, alpha=0.9, eps=1e-3, mu=0.5):
    s["v"] = alpha * s.get("v", torch.ones_like(w)) + (1 - alpha) * g * g
    s["m"] = alpha * s.get("m", torch.zeros_like(w)) + (1 - alpha) * g
    s["b"] = mu * s.get("b", torch.zeros_like(w)) + lr * g / (s["v"] - s["m"] ** 2 + eps).sqrt()
    return w - s["b"]


def lamb(w, g, s, t, lr=0.01, b1=0.9, b2=0.999, eps=1e-6, decay=0.1, most=2.0, corrects=True):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    m = s["m"] / (1 - b1 ** t) if corrects else s["m"]
    v = s["v"] / (1 - b2 ** t) if corrects else s["v"]
    x = m / (v.sqrt() + eps) + decay * w
    return w - lr * min(w.norm().item(), most) / x.norm().item() * x


O = torch.optim
train("sgd", O.SGD, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True)
train("sgd_dampening", O.SGD, lr=0.05, momentum=0.8, dampening=0.3)
train("adam", O.Adam, lr=0.01, weight_decay=0.05)
train("adamw", O.AdamW, lr=0.01, weight_decay=0.1)
train("adamw_bare", O.AdamW, bare=True, lr=0.01, weight_decay=0.1)
train("rmsprop", O.RMSprop, lr=0.01)
train("rmsprop_centered", O.RMSprop, lr=0.002, alpha=0.95, momentum=0.9, weight_decay=0.01, centered=True)
train("rmsprop_momentum", O.RMSprop, lr=0.002, momentum=0.5)
own("rmsprop_tf", tf_rmsprop)
train("adagrad", O.Adagrad, lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1, weight_decay=0.01)
own("lamb", lamb)
own("lamb_plain", lambda w, g, s, t: lamb(w, g, s, t, corrects=False))
train("clip_norm", O.SGD, clip_norm=1.0, lr=0.05)
train("clip_value", O.Adam, clip_value=0.5, lr=0.01)
train("clip_both", O.SGD, clip_norm=0.7, clip_value=0.3, lr=0.05, momentum=0.9)

train_groups("groups_adamw", O.AdamW, dict(lr=0.01, weight_decay=0.1),
             dict(lr=0.05, weight_decay=0.0, betas=(0.8, 0.99)), halve_b=True)
train_groups("groups_sgd", O.SGD, dict(lr=0.02, momentum=0.0), dict(lr=0.05, momentum=0.9))
train_scaled("loss_scaled", {0: float("inf"), 17: float("nan"), 18: float("-inf"), 60: float("nan")},
             init_scale=1024.0, growth_interval=10)


def rates(name, make):
    optimizer = O.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = make(optimizer)
    found = []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    made[f"rate.{name}"] = torch.tensor(found, dtype=torch.float64)


S = O.lr_scheduler
rates("step", lambda o: S.StepLR(o, 30, 0.5))
rates("cosine", lambda o: S.CosineAnnealingLR(o, STEPS, eta_min=0.01))
rates("one_cycle", lambda o: S.OneCycleLR(o, max_lr=0.1, total_steps=STEPS, cycle_momentum=False))
rates("warmup", lambda o: S.LinearLR(o, start_factor=1 / 10, end_factor=1.0, total_iters=9))
rates("warmup_cosine", lambda o: S.SequentialLR(
    o, [S.LinearLR(o, start_factor=1 / 20, end_factor=1.0, total_iters=20),
        S.CosineAnnealingLR(o, STEPS - 20)], [20]))
save_file(made, OUT, {"torch": torch.__version__.split("+")[0]})
print(len(made), "tensors")
