"""sonde.check: properties that a network must have, tested on a copy of it.

The files: problem.py knows the forms of a loss function and a batch, guard.py copies and puts
back, subject.py evaluates copies; each property is a function of a file of its theme, and
properties.py turns what it raises into a row, with the line of the program that places.py finds;
result.py prints the rows. command.py is `python -m sonde check`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import nn

from .. import _sonde
from . import (dependence, gradients, guard, layers, learning, losses, modes, numbers, parameters,
               problem, rows)
from .properties import Property, judged, said
from .result import NOT_APPLICABLE, CheckError, Result, Row
from .subject import Subject

__all__ = ["CheckError", "Result", "Row", "check", "check_problem"]

PROPERTIES = (
    Property("runs", "a training step runs", learning.runs, 0.3),
    Property("dtypes", "dtypes, devices, finite values", numbers.dtypes, 0.1),
    Property("labels", "labels are in range", numbers.labels, 0.1),
    Property("reachable", "the output can reach targets", numbers.reachable, 0.1),
    Property("reached", "every parameter has a gradient", parameters.reached, 0.2),
    Property("registered", "layers are registered", parameters.registered, 0.1),
    Property("held", "the optimizer holds the parameters", parameters.held, 0.1),
    Property("start", "loss at the start", learning.start, 0.2),
    Property("normalised", "one softmax or sigmoid", losses.normalised_once, 0.1),
    Property("minimised", "the loss is minimised", losses.minimised, 0.1),
    Property("nonlinear", "layers are not one layer", layers.nonlinear, 0.1),
    Property("target_rows", "each row has its target", dependence.rows_of_targets, 0.1),
    Property("loss_on_targets", "the loss depends on targets", dependence.loss_on_targets, 0.1),
    Property("output_on_input", "the output depends on input", dependence.output_on_input, 0.1),
    Property("mixing", "rows do not mix", rows.no_mixing, 0.2),
    Property("batch", "rows alone give the same", rows.batch_independent, 0.1),
    Property("leak", "no look at later positions", rows.no_leak, 0.1),
    Property("copying", "targets are not the inputs", rows.targets_are_not_inputs, 0.1),
    Property("padding", "padding changes nothing", rows.padding_ignored, 0.1),
    Property("training", "training is in training mode", modes.training_mode, 0.1),
    Property("deterministic", "evaluation is deterministic", modes.deterministic, 0.1),
    Property("modes", "training and evaluation agree", modes.modes_agree, 0.1),
    Property("functions", "own gradients are right", gradients.own_functions, 0.1),
    Property("overfits", "one batch can be learned", learning.overfits, 1.0),
)
_NEEDED = "runs"  # without it no other property can be tested


def check(model: nn.Module, loss_fn: Callable[..., Any], batch: Any,
          optimizer: torch.optim.Optimizer | None = None, *, seconds: float = 30.0) -> Result:
    """Tests the properties of a network on copies of it; nothing of the program changes.

    loss_fn(output, targets), with batch = (inputs, targets), a dict with targets, or a tensor
    that is both; or loss_fn(model, batch), whose first parameter is named model or net."""
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise _sonde.BadValueError(f"optimizer: {type(optimizer).__name__} (expected a "
                                   "torch.optim.Optimizer)")
    if not isinstance(seconds, (int, float)) or not seconds > 0:
        raise _sonde.BadValueError(f"seconds: {seconds!r} (expected a number above 0)")
    whole = problem.of(model, loss_fn, batch)
    whole.optimizer = optimizer
    return check_problem(whole, seconds)


def check_problem(whole: problem.Problem, seconds: float,
                  names: Collection[str] | None = None) -> Result:
    """The result of all properties, or of some."""
    begin = time.monotonic()
    with guard.untouched(whole.model):
        try:
            subject = Subject(whole, begin + seconds)
        except guard.CannotCopy as why:
            return _all_refused(f"the model cannot be copied: {why}", whole, begin)
        broken = _completed(whole, subject)
        found = []
        for one in PROPERTIES:
            if names is not None and one.name not in names:
                continue
            if broken and one.name != _NEEDED:
                found.append(Row(one.name, one.title, NOT_APPLICABLE, broken))
                continue
            found.append(judged(one, subject, seconds))
            if one.name == _NEEDED and found[-1].verdict == "failed" and \
                    "out of" not in found[-1].message:
                broken = "no training step runs"
    return Result(found, whole.notes, time.monotonic() - begin)


def _completed(whole: problem.Problem, subject: Subject) -> str:
    """Finds calls and targets of a loss that calls the network itself; why it could not."""
    complete = getattr(whole, "complete", None)
    try:
        if complete is not None:
            guard.seed(0)
            complete(subject.twin(training=True))
    except (Exception, SystemExit) as problem_:  # of the program's own code
        return f"loss_fn raised {said(problem_)}"
    with contextlib.suppress(Exception):  # the row "runs" reports it
        subject.warm_up()
    return ""


def _all_refused(why: str, whole: problem.Problem, begin: float) -> Result:
    return Result([Row(one.name, one.title, NOT_APPLICABLE, why) for one in PROPERTIES],
                  whole.notes, time.monotonic() - begin)
