"""Tensors that are known from the program: predictions and targets of losses, functional
activations, the loss of an evaluation.

A recorded step tells which calls of which functions these are; at later steps at which they are
due, a mode looks at the calls of these functions alone."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_module

from . import ops
from .capture import TAKE_OTHER_WAYS, Mode, Seer, pull, push

if TYPE_CHECKING:
    from ..torch_hooks import Hooks
    from .places import Finder, Place

FORWARD = 1
_LARGEST = 1 << 18  # elements of predictions and targets
# Functions, and the modules that do the same.
ACTIVATIONS = {"relu": "ReLU", "leaky_relu": "LeakyReLU", "gelu": "GELU", "silu": "SiLU",
               "elu": "ELU", "selu": "SELU", "celu": "CELU", "tanh": "Tanh",
               "sigmoid": "Sigmoid", "softplus": "Softplus", "relu6": "ReLU6",
               "hardtanh": "Hardtanh", "hardsigmoid": "Hardsigmoid", "hardswish": "Hardswish",
               "mish": "Mish", "softmax": "Softmax", "log_softmax": "LogSoftmax"}


class Observed:
    """What a watch observes of its programs."""

    def __init__(self, hooks: "Hooks"):
        self.hooks = weakref.proxy(hooks)
        # (function, place): (number, which operands are predictions and targets)
        self.losses: dict[tuple[Any, Any], tuple[int, int, int]] = {}
        self.functions: set[Any] = set()  # that compute losses or activations
        self.slots: dict[str, int] = {}  # -1: it is not observed
        self.names: "weakref.WeakKeyDictionary[torch.nn.Module, str]" = \
            weakref.WeakKeyDictionary()
        self.counts: dict[tuple[str, str], int] = {}  # activations in this pass
        self.activations = ACTIVATIONS
        self.always = hooks.watch.every["activations"] > 0  # as often as the program says

    def restart(self) -> None:
        """A forward pass begins."""
        self.counts.clear()

    def loss(self, function: Any, place: "Place", operands: list[Any],
             pair: tuple[int, int] | None, result: Any, training: bool) -> str:
        """A call that compares predictions with targets. pair: which operands these are; None:
        it is known. Returns the name of the targets; "": they are not observed."""
        key = function, place
        if key not in self.losses and pair is not None:
            number = None if training else next(
                (row[0] for (one, _), row in self.losses.items() if one is function), None)
            if number is None:
                number = len({row[0] for row in self.losses.values()})
            self.losses[key] = number, *pair
            self.functions.add(function)
        number, *which = self.losses[key]
        if max(which) >= len(operands) or None in (operands[i] for i in which):
            return ""
        predictions, targets = (operands[i] for i in which)
        name = f"loss_{number}" if number else "loss"
        self._see(f"{name}/predictions", "output", predictions, "", FORWARD)
        kind = "targets" if targets.is_floating_point() else "labels"
        self._see(f"{name}/{kind}", "input", targets, "", 0)
        if not number and kind == "labels":
            self.hooks.programs.see(targets, True)
        if not training and result is not None and result.dim() == 0:
            self._see_evaluated(name, result.detach())
        return f"{name}/{kind}" if self.slots.get(f"{name}/{kind}", -1) >= 0 else ""

    def _see_evaluated(self, name: str, loss: torch.Tensor) -> None:
        """The loss of an evaluation, on which nothing calls backward."""
        watch = self.hooks.watch
        if name not in watch._losses:
            watch._losses[name] = watch._declare(name, "loss", loss, "", "", FORWARD)
        if name not in self.slots:
            self.slots[name] = watch._losses[name]
            self.hooks.core.look_for(self.slots[name], True, self.always)
        self.hooks.core.see(watch._losses[name], loss)

    def activation(self, function: Any, name: str, op: str, result: Any) -> str:
        """A function of the module of a name has computed an activation. Returns its name."""
        number = self.counts.get((name, op), 0)
        self.counts[name, op] = number + 1
        self.functions.add(function)
        whole = f"{name}/{op}:{number}" if name else f"{op}:{number}"
        self._see(whole, "activation", result, ACTIVATIONS[op], FORWARD, name)
        return whole

    def _see(self, name: str, role: str, tensor: torch.Tensor, op: str, when: int,
             module: str = "") -> None:
        slot = self.slots.get(name)
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return
        if slot is None:
            many = role != "activation" and tensor.numel() > _LARGEST
            slot = -1 if many or tensor.dim() > 8 or name in self.hooks.watch._slots else \
                self.hooks.watch._declare(name, role, tensor, module, op, when)
            self.slots[name] = slot
            if slot >= 0:
                self.hooks.core.look_for(slot, False, self.always)
        if slot >= 0:
            self.hooks.core.see(slot, tensor.detach())


class Look(Seer):
    """A step at which something of this is due and that is not recorded."""

    def __init__(self, observed: Observed, finder: "Finder", training: bool, sees_modules: bool):
        super().__init__()
        self.observed, self.finder, self.training = observed, finder, training
        self.stack: list[torch.nn.Module] = []
        self.mode = Mode(self.take, ops.known)
        self.on_stack = True  # False: in a module that takes other ways
        push(self.mode)
        self.handles = [] if not sees_modules else [
            torch_module.register_module_forward_pre_hook(self.enter),
            torch_module.register_module_forward_hook(self.leave, always_call=True)]

    def uninstall(self) -> Any:
        """As of Capture."""
        for handle in self.handles:
            handle.remove()
        self.stack.clear()
        self.away = self.away or not self.on_stack
        return self.pull_out()

    def enter(self, module: torch.nn.Module, arguments: Any) -> None:
        if threading.get_ident() != self.thread:
            return
        self.stack.append(module)
        if isinstance(module, TAKE_OTHER_WAYS) and not module.training and self.on_stack:
            self.on_stack = not pull(self.mode)

    def leave(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        if threading.get_ident() != self.thread or not self.stack:
            return
        while self.stack and self.stack.pop() is not module:
            pass
        if not self.on_stack and not any(isinstance(one, TAKE_OTHER_WAYS) for one in self.stack):
            push(self.mode)
            self.on_stack = True

    def take(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any],
             result: Any) -> None:
        if self.off or function not in self.observed.functions:
            return
        try:
            with torch._C.DisableTorchFunctionSubclass():
                self._take(function, arguments, options, result)
        except Exception as problem:
            self.observed.hooks.watch._fault(problem)

    def _take(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any],
              result: Any) -> None:
        made = ops.operation(function)
        if made is None or torch._C._get_tracing_state() is not None:
            return
        if made.name in ACTIVATIONS and self.stack:
            name = self.observed.names.get(self.stack[-1])
            if name is not None:
                self.observed.activation(function, name, made.name, result)
            return
        place = self.finder.here()
        if (function, place) in self.observed.losses:
            self.observed.loss(function, place, ops.operands(made, arguments, options), None,
                               result if made.name in ops.LOSSES else None, self.training)
