"""The loss at the start against that of a constant, and whether one batch can be learned."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import nn

from . import graphs, guard, trees
from .properties import said
from .subject import Failed, NotApplicable, Subject

STEPS = 100
_FEW_STEPS = 20  # that the program's own optimizer must have had
_RATES = (1e-3, 1e-2, 1e-4)  # of Adam
_FAR = 6.0  # times the loss of a constant, and ...
_FURTHER = 8.0  # ... by so many nats: beyond what common initial values give
_STANDS_STILL = 0.02  # share of the loss at the start
_LEARNS = 0.2  # the same: no other rate is tried


def constant_loss(subject: Subject) -> float:
    """The smallest loss that one output for all rows reaches."""
    with torch.no_grad():
        output = subject.output(subject.twin(training=False))
    rows = subject.rows()
    values = trees.tensors(output)
    subject.with_rows(values, rows)
    if any(value.dim() == 0 or value.shape[0] != rows or not value.is_floating_point()
           for value in values):
        raise NotApplicable("parts of the output are no rows of floats")
    free = [torch.zeros_like(value[:1]).requires_grad_() for value in values]
    if float(min(trees.size(value) for value in values)) and \
            all(float(value.min()) >= 0 and float(value.max()) <= 1 for value in values):
        raise NotApplicable("the output is a probability")
    logs = [value.dim() >= 2 and trees.size(value.logsumexp(1)) < 1e-3 for value in values]
    optimizer = torch.optim.Adam(free, lr=0.1)
    best = math.inf
    for _ in range(60):
        given = [one.log_softmax(1) if log else one for one, log in zip(free, logs)]
        loss = subject.loss_from(trees.replace(
            output, [one.expand_as(value) for one, value in zip(given, values)]))
        best = min(best, float(loss)) if math.isfinite(float(loss)) else best
        for one, gradient in zip(free, torch.autograd.grad(loss, free, allow_unused=True)):
            one.grad = gradient
        optimizer.step()
    return best


def start(subject: Subject) -> str:
    """The loss at the start is finite, and not far above that of a constant prediction."""
    loss = subject.loss(subject.twin(training=True))
    value = float(loss)
    if not math.isfinite(value):
        raise Failed(f"the loss at the start is {value}",
                     "Look for log(0), a division by 0, or NaN in the batch or the parameters.")
    if value < 0:
        raise NotApplicable(f"the loss at the start is {value:.4g}: it has no lower end at 0")
    base = constant_loss(subject)
    kinds = {graphs.kind(node) for node in graphs.nodes(loss)}
    if not kinds & {"NllLoss", "NllLoss2D", "BinaryCrossEntropyWithLogits"}:
        return f"{value:.4g} (a constant prediction reaches {base:.4g}; no limit, as both depend on " \
               "the scale of the targets)"
    if value > _FAR * base and value > base + _FURTHER:
        raise Failed(f"the loss at the start is {value:.4g}; a constant prediction reaches "
                     f"{base:.4g}", "The initial weights or the inputs are too large: keep the "
                     "logits near 1, and scale the inputs.")
    return f"{value:.4g}; a constant prediction reaches {base:.4g}"


def overfits(subject: Subject) -> str:
    """A hundred steps on this batch alone lower the loss, with one rate of several."""
    model = subject.twin(training=True)
    if not any(value.requires_grad for value in model.parameters()):
        raise NotApplicable("no parameter requires a gradient")
    first = subject.loss(model)
    if not first.requires_grad:
        raise Failed("the loss has no gradient", "Look for detach() or torch.no_grad().")
    before, best, tried, own = float(first), math.inf, [], ()
    if not math.isfinite(before):
        raise NotApplicable(f"the loss at the start is {before}")
    for name, rate in [("own", None), *(("Adam", rate) for rate in _RATES)]:
        found, steps, last = _trained(subject, rate, before - 0.5 * abs(before))
        if steps == 0:
            continue
        tried.append(f"{name if rate is None else f'Adam {rate:g}'}: {found:.4g} in {steps} steps")
        own = (last, found, steps) if rate is None else own
        best = min(best, found)
        if best < before - _LEARNS * abs(before):
            break
    if not tried:
        raise NotApplicable("no time was left for it (seconds=)")
    if before - best > _STANDS_STILL * abs(before):
        _judge_own(subject, before, best, *own)
        return f"the loss falls from {before:.4g} to {best:.4g} on this batch"
    if abs(before) < 1e-6:
        raise NotApplicable(f"the loss is {before:.3g} at the start")
    if not any(f"{STEPS} steps" in one for one in tried):
        raise NotApplicable(f"the time was short: {'; '.join(tried)}")
    raise Failed(f"the loss is {before:.4g} at the start and {best:.4g} at best after {STEPS} steps "
                 f"on this batch alone ({'; '.join(tried)})",
                 "The network does not learn what it sees: look at the failed rows above.")


def _judge_own(subject: Subject, before: float, best: float, last: float = -math.inf,
               found: float = -math.inf, steps: int = 0) -> None:
    """The program's own optimizer does not only raise the loss, if another lowers it."""
    own = subject.problem.optimizer
    rises = found >= before and last > before + _STANDS_STILL * abs(before)
    if own is None or not rises or steps < _FEW_STEPS or subject.problem.held_elsewhere or \
            any(group.get("maximize") for group in own.param_groups):
        return  # networks that oppose each other, or a direction that another property judges
    if any(hasattr(type(node), "_forward_cls")
           for node in graphs.nodes(subject.loss(subject.twin(training=True)))):
        return  # a function of the program may reverse the gradient
    rates = ", ".join(sorted({f"{float(group['lr']):g}" for group in own.param_groups}))
    raise Failed(f"{steps} steps of {type(own).__name__} (rate {rates}) on this batch alone never "
                 f"lower the loss of {before:.4g}; Adam reaches {best:.4g}",
                 "The rate is too high, or negative.")


def _trained(subject: Subject, rate: float | None, enough: float) -> tuple[float, int, float]:
    """The smallest loss of a fresh copy, trained on the batch until the loss is below `enough`,
    how many steps it made, and the last loss. With rate None: by the optimizer of the program."""
    model = subject.twin(training=True)
    optimizer = _optimizer(subject, model, rate)
    if optimizer is None:
        return math.inf, 0, math.inf
    trained = [value for value in model.parameters() if value.requires_grad]
    best, end = math.inf, time.monotonic() + (subject.deadline - time.monotonic()) / 2
    value = math.inf
    for step in range(STEPS + 1):
        if time.monotonic() > end:
            return best, step, value
        loss = subject.loss(model)
        value = float(loss)
        if not math.isfinite(value):  # at once: it runs away
            return best, STEPS if 0 < step <= 3 else step, math.inf
        best = min(best, value)
        if best < enough:
            return best, step + 1, value
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        for one, gradient in zip(trained, gradients):
            one.grad = gradient
        optimizer.step()
    return best, STEPS, value


def _optimizer(subject: Subject, model: nn.Module, rate: float | None) -> Any:
    if rate is not None:
        return torch.optim.Adam([value for value in model.parameters() if value.requires_grad],
                                lr=rate)
    own = subject.problem.optimizer
    if own is None or isinstance(own, torch.optim.LBFGS):
        return None
    return guard.optimizer_on(own, subject.original, model)


def runs(subject: Subject) -> str:
    """The network and the loss run on this batch, forwards and backwards."""
    model = subject.twin()
    model.train()
    try:
        loss = subject.loss(model)
        if loss.requires_grad:
            torch.autograd.grad(loss, [value for value in model.parameters()
                                       if value.requires_grad], allow_unused=True)
    except NotApplicable:
        raise
    except Exception as problem:
        raise Failed(f"a training step raises {said(problem)}",
                     "Is the batch as a loader gives it? See docs/check.md for the forms of "
                     "loss_fn and batch.") from problem
    return f"the loss is {float(loss):.4g}"
