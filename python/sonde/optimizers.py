"""Which optimizers end the steps of a watch.

A program gives the optimizers to sonde.watch, or none. It may replace one in mid-training, make
another one later, or never step one that it gave. Every step of any optimizer comes here first:

    an optimizer steps the model twice in one step       steps end with it, in place of those
        of the watch, or while none that was known        that were known and did not step
        exists
    it steps parameters that none of these holds         steps end with it too
    it steps the same parameters beside them             a line says so
    one that was known does not step, while others do    steps end without it, until it steps
    none is known, and the program ends no step          steps end with it, at its second step

A line says each of these once.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import _sonde

if TYPE_CHECKING:
    from .torch_hooks import Hooks

_PATIENCE = 20  # steps of another optimizer until one that never stepped is left out
_LINES = 3  # that are printed of one watch


def given(optimizer: Any) -> list[Any]:
    """The optimizers that a program gave, one or several."""
    if optimizer is None:
        return []
    if isinstance(optimizer, Mapping):
        return list(optimizer.values())
    if isinstance(optimizer, Sequence) and not isinstance(optimizer, str):
        return list(optimizer)
    return [optimizer]


def stepping(optimizer: Any) -> Any:
    """The optimizer whose step takes hooks: one that is wrapped, as Accelerate, Opacus and
    programs do, by an object that is no optimizer or did not call Optimizer.__init__."""
    found = optimizer
    for _ in range(8):
        if isinstance(found, torch.optim.Optimizer) and hasattr(found, "_optimizer_step_pre_hooks"):
            return found
        inner = [value for value in getattr(found, "__dict__", {}).values()
                 if isinstance(value, torch.optim.Optimizer)]
        if len(inner) != 1:
            break
        found = inner[0]
    if isinstance(found, torch.optim.Optimizer):
        raise _sonde.BadValueError(f"optimizer: {type(found).__name__} has not called "
                                   "Optimizer.__init__ (expected one that has, or that wraps one)")
    return optimizer


def _kinds(optimizers: Iterable[Any]) -> str:
    return " and ".join(sorted({type(one).__name__ for one in optimizers}))


class Following:
    """Called before the step of any optimizer in the process."""

    def __init__(self, hooks: "Hooks", optimizers: list[Any]):
        self.hooks = weakref.ref(hooks)
        self.lines = 0
        self.endless = False
        self.idle: weakref.WeakSet[Any] = weakref.WeakSet()  # given, left out
        self.take(optimizers)

    def take(self, optimizers: list[Any]) -> None:
        """Those with which steps end now."""
        self.size = len(optimizers)
        self.known = weakref.WeakKeyDictionary(dict.fromkeys(optimizers, 0))  # their steps
        # The step of the watch at an optimizer's last one, of those that others step beside.
        self.last: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.others: weakref.WeakSet[Any] = weakref.WeakSet()  # that step the model too
        self.beside: weakref.WeakSet[Any] = weakref.WeakSet()  # of these, to be known at the next step
        self.said: weakref.WeakSet[Any] = weakref.WeakSet()

    def __call__(self, optimizer: torch.optim.Optimizer, *rest: Any) -> None:
        hooks = self.hooks()
        if hooks is None or not hooks.core.state()[0]:
            return
        try:
            if optimizer in self.known:
                self.see_known(hooks, optimizer)
            elif any(id(p) in hooks.names for group in optimizer.param_groups
                     for p in group["params"]):
                self.see_other(hooks, optimizer)
        except Exception as problem:
            hooks.watch._fault(problem)

    def see_known(self, hooks: "Hooks", optimizer: Any) -> None:
        self.known[optimizer] += 1
        if self.others:
            self.last[optimizer] = hooks.watch.step
        if self.beside:
            self.add_beside(hooks, list(self.beside))
        elif len(self.known) < self.size:
            self.follow(hooks, list(self.known), f"{_kinds(self.known)} alone ends steps from here:"
                        " another that was given exists no longer")
        elif self.size > 1 and self.known[optimizer] == _PATIENCE:
            idle = [one for one, steps in self.known.items() if steps == 0]
            if idle:
                self.leave_out(hooks, optimizer, idle)

    def add_beside(self, hooks: "Hooks", new: list[Any]) -> None:
        self.follow(hooks, [*self.known, *new], f"steps end with {_kinds(new)} too from here, which"
                    " was not given to sonde.watch")

    def leave_out(self, hooks: "Hooks", optimizer: Any, idle: list[Any]) -> None:
        hooks.core.end()
        self.idle.update(idle)
        self.follow(hooks, [one for one in self.known if one not in idle],
                    f"{_kinds(idle)} has not stepped in {_PATIENCE} steps of "
                    f"{type(optimizer).__name__}: steps end without it from here")

    def see_other(self, hooks: "Hooks", optimizer: Any) -> None:
        if any(part is optimizer for one in self.known for part in vars(one).values()):
            return  # it steps within the step of the one that holds it
        if optimizer in self.idle:
            self.idle.discard(optimizer)
            self.follow(hooks, [*self.known, optimizer], f"{type(optimizer).__name__} steps now: "
                        "steps end with it too", len(self.known))
            return
        on = hooks.core.state()[2] == 0
        step, before = hooks.watch.step, self.last.get(optimizer)
        self.last[optimizer] = step
        self.others.add(optimizer)
        if not self.size:
            if before is not None and not hooks.watch.ends_steps:
                self.follow(hooks, list(self.others), f"steps end with {_kinds(self.others)} from "
                            "here, which was not given to sonde.watch")
        elif not self.known or on and before == step:
            found = [one for one in (*self.known, *self.others) if self.last.get(one) == step]
            gone = "in place of what was given" if not self.known else \
                f"and no longer with {_kinds(self.known)}"
            self.follow(hooks, found, f"steps end with {_kinds(found)} from here, which was not "
                        f"given to sonde.watch, {gone}")
        elif not any(id(p) in hooks.holders for group in optimizer.param_groups
                     for p in group["params"]):
            if not on:
                self.beside.add(optimizer)  # from the next step on, whose first it is not
            elif before is not None:
                self.add_beside(hooks, [optimizer])
        elif before is not None and optimizer not in self.said:
            self.said.add(optimizer)
            self.say(f"{type(optimizer).__name__} steps the model too and was not given to "
                     f"sonde.watch: steps end with {_kinds(self.known)}")

    def follow(self, hooks: "Hooks", optimizers: list[Any], line: str,
               stepped: int = 0) -> None:
        hooks.follow(optimizers, stepped)
        self.take(optimizers)
        self.say(line)

    def say(self, line: str) -> None:
        self.lines += 1
        if self.lines <= _LINES:
            print(f"sonde: {line}", file=sys.stderr)

    def say_endless(self, passes: int) -> None:
        """Once: a step goes on."""
        if self.endless:
            return
        self.endless = True
        self.say(f"{passes} backward passes, and " + (
            f"{_kinds(self.known)} has not stepped: they are one step so far" if self.known else
            "no optimizer has stepped: they are one step until the program calls "
            "watch.step_end() after each of its updates"))
