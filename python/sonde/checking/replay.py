"""A problem from a tape: the loss of a training step, computed again with copies of the networks
and with other targets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from . import guard, places, trees
from .losses import OF_PYTORCH, target_of
from .problem import TARGETS, Call, Problem, call_of
from .subject import NotApplicable
from .tape import Entry, Loss, Ref, Tape, again

_PARTS = 3  # networks of a loss that are also tested alone
_NEAR = 1e-3  # relative: the loss computed again on the same machine, in other buffers


class Replay:
    """The entries that lead to the losses, with the network of a check in place of the program's."""

    def __init__(self, tape: Tape, losses: list[Loss], model: nn.Module, ends: set[int]):
        self.tape, self.losses, self.model = tape, losses, model
        self.entries = tape.slice_of(losses, ends)  # what the modules of ends return is constant
        self.paths = {id(module): path for path, module in
                      model.named_modules(remove_duplicate=False)}
        self.names = {id(value): name for name, value in
                      model.named_parameters(remove_duplicate=False)}
        self.names.update((id(value), name) for name, value in
                          model.named_buffers(remove_duplicate=False))
        self.calls = [entry for entry in self.entries if entry.function is None]
        self.handed_in = {value.key for entry in self.calls if self._returns_number(entry)
                          for name, value in _arguments(entry)
                          if name in TARGETS and isinstance(value, Ref)
                          and self._may_be_target(value.key)}  # of networks that return the loss
        self.targets = [*self.handed_in, *(key for key in self._targets()
                                           if key not in self.handed_in)]

    # --- targets ------------------------------------------------------------------------------

    def _targets(self) -> list[int]:
        """Which constants are targets: those that a loss of PyTorch names so; else those of
        hand-written operations that have a row for each row of the input."""
        named = [key for entry in self.entries if entry.function in OF_PYTORCH
                 for key in self._target_of(entry)]
        if named:
            return list(dict.fromkeys(named))
        rows = {self.tape.constants[key].shape[:1] for entry in self.calls
                for key in entry.inputs if key in self.tape.constants}
        return list(dict.fromkeys(
            key for entry in self.entries if entry.function is not None for key in entry.inputs
            if self._may_be_target(key) and self.tape.constants[key].shape[:1] in rows))

    def _returns_number(self, entry: Entry) -> bool:
        """Whether one of the tensors that a network returned may be a loss. Otherwise an argument
        `y` is an input, such as the second picture of a pair."""
        return any(self.tape.returned[key].numel() == 1 for key in entry.outputs)

    def _target_of(self, entry: Entry) -> list[int]:
        value = target_of(entry.function, *entry.tree)
        return [value.key] if isinstance(value, Ref) and self._may_be_target(value.key) else []

    def _may_be_target(self, key: int) -> bool:
        value = self.tape.constants.get(key)
        return value is not None and value.dim() > 0 and value.numel() > 1 and \
            not value.requires_grad and value.dtype != torch.bool and key not in self.names and \
            not isinstance(value, nn.Parameter)

    # --- calls --------------------------------------------------------------------------------

    def constant(self, key: int) -> torch.Tensor:
        found = self.tape.constants.get(key)
        return self.tape.returned[key] if found is None else found

    def call(self, entry: Entry) -> Call:
        """The arguments of a call of the network, as tensors."""
        return call_of(entry.module, *self._filled(entry.tree, self.constant))

    @staticmethod
    def _filled(tree: Any, value: Callable[[int], Any]) -> Any:
        return _pytree.tree_map(lambda one: value(one.key) if isinstance(one, Ref) else one, tree,
                                is_leaf=lambda one: isinstance(one, Ref))

    # --- the loss -----------------------------------------------------------------------------

    def loss(self, model: nn.Module, targets: list[torch.Tensor]) -> torch.Tensor:
        return self._run(model, targets, lambda module, call: module(*call.args, **call.kwargs))

    def loss_from(self, output: Any, targets: list[torch.Tensor]) -> torch.Tensor:
        return self._run(self.model, targets, lambda *_: output)

    def _run(self, model: nn.Module, targets: list[torch.Tensor],
             call: Callable[[nn.Module, Call], Any]) -> torch.Tensor:
        given = dict(zip(self.targets, targets))
        own: dict[int, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False)) | \
            dict(model.named_buffers(remove_duplicate=False))
        values: dict[int, Any] = {key: own[name] for key, name in self.names.items()
                                  if name in own}

        def value(key: int, of_call: bool = False) -> Any:
            if key in given and (not of_call or key in self.handed_in):
                return given[key]
            if key not in values:
                values[key] = trees.detached(self.constant(key))
            return values[key]

        for entry in self.entries:
            args, kwargs = self._filled(
                entry.tree, lambda key, of=entry.function is None: value(key, of))
            with again(entry.context), places.at(entry.place):
                if entry.function is None:
                    result = call(self._module(model, entry), Call(args, kwargs))
                else:
                    result = entry.function(*args, **kwargs)
            outputs = trees.within(result)
            if len(outputs) != len(entry.outputs):
                raise NotApplicable("an operation returns other tensors than in the program")
            values.update(zip(entry.outputs, outputs))
        return sum(self._scalar(loss, values) for loss in self.losses)

    def _module(self, model: nn.Module, entry: Entry) -> nn.Module:
        return dict(model.named_modules(remove_duplicate=False))[self.paths[id(entry.module)]]

    @staticmethod
    def _scalar(loss: Loss, values: dict[int, Any]) -> torch.Tensor:
        found = values[loss.key]
        return found if loss.gradient is None else (found * loss.gradient).sum()

    # --- whether it is the program's ----------------------------------------------------------

    def why_not(self, end: float) -> str:
        """Why the loss cannot be computed again before `end`; "" if it can."""
        if self.tape.too_long:
            return "the step has too many operations"
        missing = [loss for loss in self.losses
                   if not any(loss.key in entry.outputs for entry in self.entries)]
        if missing or not self.calls:
            return "the operations between the network and the loss are not known: it goes " \
                   "through a compiled function, NumPy, or a class of its own"
        lost = [entry for entry in self.calls if id(entry.module) not in self.paths]
        if lost:
            return f"the loss also calls {type(lost[0].module).__name__}"
        try:
            return self._difference(end)
        except Exception as problem:  # of the program's own code
            return f"the loss cannot be computed again: {type(problem).__name__}: " + \
                " ".join(str(problem).split())[:200]

    def _difference(self, end: float) -> str:
        """Why not: whether the same networks give another loss, though they draw no random
        numbers."""
        targets = [self.tape.constants[key] for key in self.targets]
        values = []
        for seed in (0, 1):
            guard.seed(seed)
            twin = guard.copied(self.model)
            for entry in self.calls:
                self._module(twin, entry).train(entry.training)
            values.append(self.loss(twin, targets))
            if time.monotonic() > end:
                return "no time was left for it (seconds=)"
        if not values[0].requires_grad:
            return "" if not any(loss.value.requires_grad for loss in self.losses) else \
                "the loss computed again has no gradient"
        found, other = float(values[0].detach()), float(values[1].detach())
        wanted = sum(float(self._scalar(loss, {loss.key: loss.value})) for loss in self.losses)
        if found == other and math.isfinite(wanted) and \
                abs(found - wanted) > _NEAR * max(abs(wanted), 1e-6):
            return f"the loss computed again is {found:.6g}, and was {wanted:.6g} in the program: " \
                   "the network keeps a state between calls, or a hook changes its values"
        return ""


def problem_of(tape: Tape, losses: list[Loss], model: nn.Module, ends: set[int],
               end: float) -> Problem:
    """The problem of a step. Without a replay its loss is not applicable, with the reason."""
    replay = Replay(tape, losses, model, ends)
    with guard.untouched(model):
        try:
            why = replay.why_not(end)
        except guard.CannotCopy as problem:
            why = f"the model cannot be copied: {problem}"
    result = Problem(model, replay.loss if not why else _refused(why))
    result.why = why or f"the loss calls {_counted(replay)}"
    own = [entry for entry in replay.calls or _calls_of(tape, model) if entry.module is model]
    if len(own) == 1 and len(replay.calls) <= 1 and \
            all(key in tape.constants or key in tape.returned for key in own[0].inputs):
        result.calls = [replay.call(own[0])]
        result.loss_from = None if why else replay.loss_from
    result.in_training = all(entry.training for entry in replay.calls or own)
    result.targets = [] if why else [tape.constants[key] for key in replay.targets]
    return result


def parts_of(tape: Tape, losses: list[Loss], ends: set[int]) -> list[Problem]:
    """Each network alone that the losses call beside others, with the inputs of one of its calls."""
    calls = [entry for entry in tape.slice_of(losses, ends) if entry.function is None]
    known = {id(entry.module): entry for entry in calls
             if all(key in tape.constants or key in tape.returned for key in entry.inputs)}
    found = []
    for entry in list(known.values())[:_PARTS] if len(calls) > 1 else []:
        part = Problem(entry.module, _refused("the loss of several networks is tested as a whole"))
        part.calls = [Replay(tape, losses, entry.module, ends).call(entry)]
        found.append(part)
    return found


def _arguments(entry: Entry) -> list[tuple[str, Any]]:
    """The arguments of a call of a network, with the names of its parameters."""
    args, kwargs = entry.tree
    return [*zip(call_of(entry.module, args, kwargs).names, args), *kwargs.items()]


def _calls_of(tape: Tape, model: nn.Module) -> list[Entry]:
    return [entry for entry in tape.entries if entry.module is model]


def _counted(replay: Replay) -> str:
    kinds = [type(entry.module).__name__ for entry in replay.calls]
    return ", ".join(f"{kind} {kinds.count(kind)} times" for kind in dict.fromkeys(kinds))


def _refused(why: str) -> Callable[..., Any]:
    def whole(*_: Any) -> Any:
        raise NotApplicable(why)
    return whole
