"""The network of a check: fresh copies, evaluated with given random numbers, in bounded time."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from . import guard, trees
from .problem import Call, Problem

EQUAL = 1e-4  # relative: what other orders of summation change in float32, with a margin


class NotApplicable(Exception):
    """Raised by a property that has nothing to test; why."""


class Failed(Exception):
    """Raised by a property that the network does not have."""

    def __init__(self, message: str, advice: str = "", where: tuple[str, ...] = (),
                 place: str = ""):
        super().__init__(message)
        self.message, self.advice, self.where, self.place = message, advice, where, place


class Subject:
    def __init__(self, problem: Problem, end: float):
        self.problem, self.end, self.deadline = problem, end, end
        self.original = self.base = problem.model  # base: what twins are copies of
        self.model = guard.copied(problem.model)  # never trained, its modes are set before use
        self.generator = torch.Generator()
        self.names = {id(value): name for name, value in self.model.named_parameters()}

    # --- copies -------------------------------------------------------------------------------

    def twin(self, training: bool | None = None, noise: float | None = None,
             number: int = 0) -> nn.Module:
        """A fresh copy. training: the mode; None: as the program has it. noise: values that are
        added to parameters which are 0 throughout, whose layer passes nothing on; a number
        beyond 0 changes all parameters, by half their own size."""
        self.look_at_clock()
        model = guard.copied(self.base)
        if training is not None:
            model.train(training)
        if noise is not None:
            guard.seed(1000 + number)
            with torch.no_grad():
                for value in model.parameters():
                    if value.is_floating_point() and value.numel():
                        if not bool(value.any()):
                            value.add_(torch.randn_like(value) * noise)
                        elif number:
                            value.add_(torch.randn_like(value) * (0.5 * value.std(correction=0)))
        return model

    def warm_up(self) -> None:
        """Some networks take initial values from their first batch: a pass sets them."""
        model = self.twin(training=True)
        before = _values(model)
        self.loss(model)
        first = _values(model)
        self.loss(model)
        always = _changed(first, _values(model))
        once = _changed(before, first) - always
        if not once:
            return
        with torch.no_grad():
            for name, value in [*model.named_parameters(), *model.named_buffers()]:
                if name in always and name in before:
                    value.copy_(before[name])
        self.base, self.model = model, guard.copied(model)

    def look_at_clock(self) -> None:
        if time.monotonic() > self.deadline:
            raise NotApplicable("no time was left for it (seconds=)")

    def restart(self) -> None:
        """Random values that a property draws are the same whatever ran before it."""
        self.generator.manual_seed(7)

    # --- evaluation ---------------------------------------------------------------------------

    @property
    def call(self) -> Call:
        """The only call of the network by the loss."""
        if len(self.problem.calls) != 1:
            raise NotApplicable(self.problem.why or "the loss does not call the model itself")
        return self.problem.calls[0]

    def output(self, model: nn.Module, call: Call | None = None, seed: int = 0) -> Any:
        self.look_at_clock()
        call = call or self.call
        guard.seed(seed)
        own = Call(*trees.detached(call.tree))  # a network may change its input in place
        return model(*own.args, **own.kwargs)

    def outputs(self, model: nn.Module, call: Call | None = None,
                seed: int = 0) -> list[torch.Tensor]:
        """The tensors that the network returns, without a graph."""
        with torch.no_grad():
            found = [value.detach().clone()
                     for value in trees.within(self.output(model, call, seed))]
        if not found:
            raise NotApplicable("the model returns no tensor")
        return found

    def loss(self, model: nn.Module, targets: list[torch.Tensor] | None = None,
             seed: int = 0) -> torch.Tensor:
        self.look_at_clock()
        guard.seed(seed)
        return self._scalar(self.problem.whole(
            model, self.problem.targets if targets is None else targets))

    def loss_from(self, output: Any, targets: list[torch.Tensor] | None = None) -> torch.Tensor:
        self.look_at_clock()
        if self.problem.loss_from is None:
            raise NotApplicable(self.problem.why or "the loss of an output is not known")
        guard.seed(0)
        return self._scalar(self.problem.loss_from(
            output, self.problem.targets if targets is None else targets))

    @staticmethod
    def _scalar(loss: Any) -> torch.Tensor:
        if isinstance(loss, (tuple, list)) and loss:
            loss = loss[0]
        if not isinstance(loss, torch.Tensor):
            raise TypeError(f"the loss is of type {type(loss).__name__} (expected a tensor)")
        if loss.numel() != 1:
            raise TypeError(f"the loss has the shape {tuple(loss.shape)} (expected one value)")
        return loss.reshape(())

    # --- rows ---------------------------------------------------------------------------------

    def rows(self) -> int:
        """The number of rows of the batch: the first dimension of every input."""
        shapes = [(name, value.shape) for name, value in self.call.named()
                  if value.dim() > 0 and value.numel() > 0]
        if not shapes:
            raise NotApplicable("the model has no tensor as input")
        if any(type(one).__name__ == "PackedSequence" for one in
               (*self.call.args, *self.call.kwargs.values())):
            raise NotApplicable("the input is a packed sequence")
        counts = {shape[0] for _, shape in shapes}
        if len(counts) > 1:
            raise NotApplicable("the first dimension of the inputs is not the batch: " +
                                ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes))
        rows = counts.pop()
        for name, value in self.call.named():
            if len(shapes) > 1 and value.dim() == 2 and value.shape[0] == value.shape[1] and \
                    _may_link(value):
                raise NotApplicable(f"{name} {tuple(value.shape)} links the rows, as a graph does")
        if rows < 2:
            raise NotApplicable("the batch has one row")
        return rows

    def split(self, first: int, last: int) -> Call:
        """The call with some rows of the batch."""
        return self.call.changed(lambda x: x[first:last] if x.dim() > 0 else x)

    def with_rows(self, outputs: list[torch.Tensor], rows: int) -> list[torch.Tensor]:
        """Those of the tensors that have a row for each row of the batch."""
        found = [value for value in outputs if value.dim() > 0 and value.shape[0] == rows]
        if not found:
            raise NotApplicable("the output has no row for each row of the input: " + (", ".join(
                str(tuple(value.shape)) for value in outputs) or "it has no tensor"))
        return found

    def rows_by_time(self) -> str | None:
        """The module that takes time as its first dimension, if there is one."""
        for name, module in self.model.named_modules():
            if getattr(module, "batch_first", True) is False:
                return f"{name or 'the model'} ({type(module).__name__}, batch_first=False)"
        return None



def _values(model: nn.Module) -> dict[str, torch.Tensor]:
    lazy = nn.parameter.UninitializedTensorMixin
    return {name: value.detach().clone() for name, value in
            [*model.named_parameters(), *model.named_buffers()] if not isinstance(value, lazy)}


def _changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, value in after.items()
            if name not in before or trees.difference(before[name], value) > 0}


def _may_link(value: torch.Tensor) -> bool:
    """Whether a square matrix may say which rows belong together, unlike tokens or features."""
    if trees.difference(value, value.T) == 0 or value.dtype == torch.bool:
        return True
    return bool((value >= 0).all()) and (value.is_floating_point() or int(value.max()) <= 1)
