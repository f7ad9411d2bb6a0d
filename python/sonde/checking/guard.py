"""The program is as it was after a check: what is copied, and what is put back."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import random
import sys
import types
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from . import trees

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class CannotCopy(Exception):
    """A model that copy.deepcopy refuses; why."""


@contextlib.contextmanager
def _without_global_hooks() -> Iterator[None]:
    """The program's hooks on every module and every optimizer do not see the copies."""
    every = [hooks for where in ("torch.nn.modules.module", "torch.optim.optimizer")
             for name, hooks in vars(sys.modules[where]).items()
             if name.startswith("_global_") and name.endswith("hooks") and isinstance(hooks, dict)]
    kept = [dict(hooks) for hooks in every]
    for hooks in every:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, before in zip(every, kept):
            hooks.clear()
            hooks.update(before)


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Puts back random numbers, modes, parameters, buffers and gradients of the program: a loss
    function may hold the program's own model, and call it."""
    state = _random_state()
    kept = [(value, value.detach().clone(), value._version)
            for value in _state_of(model)]
    grads = [(value, value.grad, None if value.grad is None else value.grad.detach().clone())
             for value in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    try:
        with torch.inference_mode(False), torch.enable_grad(), warnings.catch_warnings(), \
                _without_global_hooks(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for value, before, version in kept:
                # Running statistics change without a new version.
                if value._version != version or not _equal(value, before):
                    value.copy_(before)
            for value, grad, before in grads:
                if grad is not None and not _equal(grad, before):
                    grad.copy_(before)
                value.grad = grad
        _set_random_state(state)


def _equal(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether the values are equal; those of a sparse tensor, or of none, change by operations
    alone, which the version counts."""
    return not trees.is_number(one) or torch.equal(one, two)


def _state_of(model: nn.Module) -> list[torch.Tensor]:
    lazy = nn.parameter.UninitializedTensorMixin
    return [value for value in [*model.parameters(), *model.buffers()]
            if not isinstance(value, lazy) and not value.is_inference()]


def _random_state() -> tuple[Any, ...]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    numpy = sys.modules.get("numpy")
    return (torch.get_rng_state(), cuda, random.getstate(),
            numpy.random.get_state() if numpy is not None else None)


def _set_random_state(state: tuple[Any, ...]) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state_all(state[1])
    random.setstate(state[2])
    if state[3] is not None:
        sys.modules["numpy"].random.set_state(state[3])


def seed(number: int) -> None:
    """Starts all random numbers that a network may draw."""
    torch.manual_seed(number)
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)


def copied(model: nn.Module) -> nn.Module:
    """A copy without gradients and without the program's own hooks; raises CannotCopy."""
    memo: dict[int, Any] = {}
    inside = {id(module) for module in model.modules()}
    for module in model.modules():
        for value in module.__dict__.values():
            _remember_computed(value, memo)
            if type(value) is OrderedDict and not value:  # most of the time of large networks
                memo[id(value)] = OrderedDict()
        for name in _HOOKS:
            hooks = module.__dict__.get(name)
            if hooks:
                memo[id(hooks)] = OrderedDict(
                    (key, copy.deepcopy(hook, memo)) for key, hook in hooks.items()
                    if _belongs(hook, inside))
    for value in model.parameters():
        if value.grad is not None:
            memo[id(value.grad)] = None
    try:
        twin = copy.deepcopy(model, memo)
    except Exception as problem:  # whatever the program's own classes raise
        raise CannotCopy(f"{type(problem).__name__}: {problem}") from problem
    for module in model.modules():
        for key, value in module.__dict__.items():
            if _holds(value, inside):
                memo[id(module)].__dict__[key] = _rebound(value, memo)
    for value in twin.parameters():
        value.grad = None
    return twin


def _holds(value: Any, inside: set[int]) -> bool:
    """Whether a function, which deepcopy shares, has a module of the network in its closure."""
    return any(id(cell.cell_contents) in inside
               for cell in getattr(value, "__closure__", None) or ()
               if inspect.isfunction(value) and cell != types.CellType())


def _rebound(function: Any, memo: dict[int, Any]) -> Any:
    """The function with the copies in place of the modules in its closure."""
    cells = tuple(types.CellType(copy.deepcopy(cell.cell_contents, memo)) if cell != types.CellType()
                  else cell for cell in function.__closure__)
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__,
                              function.__defaults__, cells)
    made.__dict__.update(function.__dict__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _remember_computed(value: Any, memo: dict[int, Any], depth: int = 4) -> None:
    """deepcopy refuses a tensor that an operation computed, as weight_norm keeps one."""
    if isinstance(value, torch.Tensor):
        if value.grad_fn is not None:
            memo[id(value)] = value.detach().clone()
    elif isinstance(value, (dict, list, tuple)) and depth > 0:
        for one in value.values() if isinstance(value, dict) else value:
            _remember_computed(one, memo, depth - 1)


def _belongs(hook: Any, inside: set[int]) -> bool:
    """Whether a hook is a part of the network: PyTorch's own, or a method of a module in it."""
    owner = getattr(hook, "__self__", None)
    if id(owner) in inside:
        return True
    return (getattr(type(hook), "__module__", "") or "").startswith("torch.nn.utils")


def optimizer_on(optimizer: torch.optim.Optimizer, model: nn.Module,
                 twin: nn.Module) -> torch.optim.Optimizer | None:
    """An optimizer of the same class with the same groups, for the copy's parameters; None if it
    cannot be built so."""
    names = {id(value): name for name, value in model.named_parameters(remove_duplicate=False)}
    values = dict(twin.named_parameters(remove_duplicate=False))
    groups = []
    for group in optimizer.param_groups:
        held = [values[names[id(value)]] for value in group["params"] if id(value) in names]
        if held:
            groups.append({**{key: copy.copy(value) for key, value in group.items()
                              if key not in ("params", "param_names")}, "params": held})
    try:
        return type(optimizer)(groups, lr=float(groups[0]["lr"]))
    except Exception:  # a class of the program with arguments of its own
        return None
