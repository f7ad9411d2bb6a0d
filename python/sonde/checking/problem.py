"""What is checked: a network, how it is called, and the loss of what it returns.

A loss function has one of two forms, which the name or the annotation of its first parameter
tells: loss_fn(output, targets), and loss_fn(model, batch), in which it calls the network itself.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from .. import _sonde
from . import trees

TARGETS = ("labels", "label", "targets", "target", "y", "y_true")
_MODELS = ("model", "net", "network", "module")


class Call(NamedTuple):
    """The arguments of one call of the network."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: tuple[str, ...] = ()  # of the parameters that take args

    @property
    def tree(self) -> tuple[Any, ...]:
        return (self.args, self.kwargs)

    def tensors(self) -> list[torch.Tensor]:
        return trees.tensors(self.tree)

    def named(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors and the names of their arguments, in the order of tensors()."""
        names = self.names + tuple(map(str, range(len(self.names), len(self.args))))
        return [pair for name, one in zip(names, self.args)
                for pair in trees.named(one, name)] + trees.named(self.kwargs)

    def direct(self) -> list[torch.Tensor]:
        """Those that are arguments themselves, and no parts of one."""
        return [one for one in (*self.args, *self.kwargs.values()) if trees.is_number(one)]

    def changed(self, function: Callable[[torch.Tensor], Any]) -> "Call":
        return Call(*trees.change(self.tree, function), self.names)

    def replaced(self, values: list[torch.Tensor]) -> "Call":
        return Call(*trees.replace(self.tree, values), self.names)


def call_of(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """A call with the names of the parameters of forward."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return Call(args, kwargs)
    names = [one.name for one in parameters
             if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return Call(args, kwargs, tuple(names[:len(args)]))


class Problem:
    """A network, the calls that one loss makes, and the loss.

    whole(model, targets): the loss of a model with these targets.
    loss_from(output, targets): the loss of what the only call returns; None: not known, with the
    reason in `why`. targets: tensors, in the order in which the two functions take them."""

    def __init__(self, model: nn.Module, whole: Callable[..., Any]):
        self.model, self.whole = model, whole
        self.loss_from: Callable[..., Any] | None = None
        self.why = ""
        self.calls: list[Call] = []
        self.targets: list[torch.Tensor] = []
        self.optimizer: torch.optim.Optimizer | None = None
        self.held_elsewhere: set[int] = set()  # parameters of the program's other optimizers
        self.only_inputs = False  # the batch is one tensor, which stands for the targets too
        self.in_training: bool | None = None  # the mode of the network in the program's own step
        self.notes: list[str] = []


def of(model: nn.Module, loss_fn: Callable[..., Any], batch: Any) -> Problem:
    """The problem of a program's call of sonde.check."""
    if not isinstance(model, nn.Module):
        raise _sonde.BadValueError(f"model: {type(model).__name__} (expected a torch.nn.Module)")
    if not callable(loss_fn):
        raise _sonde.BadValueError(f"loss_fn: {type(loss_fn).__name__} (expected a function)")
    if not trees.named(batch):
        raise _sonde.BadValueError(f"batch: {type(batch).__name__} without a tensor (expected "
                                   "(inputs, targets), a dict or a tensor)")
    loss_fn = copy.deepcopy(loss_fn) if isinstance(loss_fn, nn.Module) else loss_fn
    batch = trees.detached(batch)
    if _takes_model(loss_fn):
        return _of_model_and_batch(model, loss_fn, batch)
    return _of_output_and_targets(model, loss_fn, batch)


def _takes_model(loss_fn: Callable[..., Any]) -> bool:
    """Whether it is loss_fn(model, batch)."""
    function = loss_fn.forward if isinstance(loss_fn, nn.Module) else loss_fn
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function in C
        return False
    places = [one for one in parameters
              if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    required = [one for one in places if one.default is one.empty]
    several = any(one.kind == one.VAR_POSITIONAL for one in parameters)
    if len(required) > 2 or (len(places) < 2 and not several):
        raise _sonde.BadValueError(
            f"loss_fn: takes {len(required)} arguments (expected loss_fn(output, targets), or "
            "loss_fn(model, batch) whose first parameter is named model or net)")
    first = places[0] if places else None
    if first is None:
        return False
    note = first.annotation
    if isinstance(note, type) and issubclass(note, nn.Module) or note in ("nn.Module", "Module"):
        return True
    return first.name == "m" or first.name.lower().split("_")[-1] in _MODELS or \
        first.name.lower().split("_")[0] in _MODELS


def _of_output_and_targets(model: nn.Module, loss_fn: Callable[..., Any], batch: Any) -> Problem:
    call, targets = _split(model, batch)

    def loss_from(output: Any, values: list[torch.Tensor]) -> Any:
        return loss_fn(output, trees.replace(targets, values))

    problem = Problem(model, lambda net, values: loss_from(net(*call.args, **call.kwargs), values))
    problem.loss_from, problem.calls = loss_from, [call]
    problem.only_inputs = isinstance(batch, torch.Tensor)
    problem.targets = trees.tensors(targets)
    problem.notes.append("loss_fn was called as loss_fn(output, targets)")
    return problem


def _split(model: nn.Module, batch: Any) -> tuple[Call, Any]:
    """The arguments of the network and the targets of a batch."""
    if isinstance(batch, Mapping):
        key = next((name for name in TARGETS if name in batch), None)
        if key is None:
            raise _sonde.BadValueError(
                f"batch: keys {', '.join(map(str, batch))} without targets (expected one of "
                f"{', '.join(TARGETS)}, or a loss_fn(model, batch))")
        return Call((), {name: value for name, value in batch.items() if name != key}), batch[key]
    if isinstance(batch, torch.Tensor):
        return call_of(model, (batch,), {}), batch
    if len(batch) < 2:
        raise _sonde.BadValueError("batch: one element (expected (inputs, targets))")
    inputs = batch[0] if len(batch) == 2 else tuple(batch[:-1])
    if isinstance(inputs, Mapping):
        return Call((), dict(inputs)), batch[-1]
    args = tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)
    return call_of(model, args, {}), batch[-1]


def _of_model_and_batch(model: nn.Module, loss_fn: Callable[..., Any], batch: Any) -> Problem:
    every = trees.named(batch)
    places: list[int] = []  # of the targets among them

    def filled(values: list[torch.Tensor]) -> Any:
        rest = [value for _, value in every]
        for place, value in zip(places, values):
            rest[place] = value
        return trees.replace(batch, rest)

    def loss_from(output: Any, values: list[torch.Tensor]) -> Any:
        handle = model_of[0].register_forward_hook(lambda *_: output)
        try:
            return loss_fn(model_of[0], filled(values))
        finally:
            handle.remove()

    model_of: list[nn.Module] = []
    problem = Problem(model, lambda net, values: loss_fn(net, filled(values)))

    def complete(twin: nn.Module) -> None:
        """Finds the calls and the targets, with a copy that may be used up."""
        model_of[:] = [twin]
        problem.calls = calls_of(twin, lambda: loss_fn(twin, batch))
        inputs = {value.data_ptr() for call in problem.calls for value in call.tensors()}
        places[:] = [place for place, (name, value) in enumerate(every) if value.numel()
                     and (value.data_ptr() not in inputs or name in TARGETS
                          or _is_shifted(value, problem.calls))]
        problem.targets = [every[place][1] for place in places]
        if len(problem.calls) == 1:
            problem.loss_from = loss_from
        else:
            problem.why = f"loss_fn calls the model {len(problem.calls)} times"

    problem.complete = complete  # type: ignore[attr-defined]
    problem.notes.append("loss_fn was called as loss_fn(model, batch)")
    return problem


def _is_shifted(value: torch.Tensor, calls: list[Call]) -> bool:
    """Whether the network sees a part of it only: tokens[:, :-1], whose rest are targets."""
    return not any(one.shape == value.shape for call in calls for one in call.tensors()
                   if one.data_ptr() == value.data_ptr())


def calls_of(model: nn.Module, run: Callable[[], Any]) -> list[Call]:
    """The calls of a model while a function runs."""
    calls: list[Call] = []
    depth = [0]

    def before(_: Any, args: Any, kwargs: Any) -> None:
        if depth[0] == 0:
            calls.append(Call(args, kwargs))
        depth[0] += 1

    def after(*_: Any) -> None:
        depth[0] -= 1

    handles = [model.register_forward_pre_hook(before, with_kwargs=True, prepend=True),
               model.register_forward_hook(after, always_call=True)]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return [call_of(model, *trees.change(call.tree, torch.Tensor.detach)) for call in calls]
